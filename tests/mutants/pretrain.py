"""Mutants of `minbert.exercise_cases.pretrain`: their checks must reject them all."""

from minbert.course.trials import mistake
from minbert.exercise_cases.pretrain import (
    _WRONG_FATE,
    _WRONG_GRADE,
    _WRONG_LABELS,
    _WRONG_LOGITS,
    _WRONG_NONE,
    _WRONG_SPECIAL,
    _WRONG_TRANSFORM,
    _WRONG_WORDS,
)

MUTANTS = {}


MUTANTS["pretrain.special"] = [
    mistake(
        _WRONG_SPECIAL,
        "(" + _WRONG_SPECIAL + ")[:1].expand_as(input_ids)",
        "What the first sentence hides is hidden in all.",
    ),
    mistake(
        _WRONG_SPECIAL,
        "(attention_mask == 0) | torch.isin(input_ids, special[:2])",
        "Only the first two special ids are marked.",
    ),
    mistake(
        _WRONG_SPECIAL,
        "(attention_mask == 0) | (torch.arange(input_ids.shape[1]) == 0) | "
        "(torch.arange(input_ids.shape[1]) == attention_mask.sum(1, keepdim=True) - 1)",
        "The first and the last real token are marked. A sentence can hold special tokens "
        "anywhere.",
    ),
    mistake(
        "    special = send(",
        "    special_ids.sort()\n    special = send(",
        "The caller's list of special ids is sorted in place.",
    ),
    mistake(
        _WRONG_SPECIAL,
        "(attention_mask == 0) | (input_ids <= special.max())",
        "Every id up to the largest special one is marked, ordinary ones among them.",
    ),
]


_WRONG_HIDDEN = "chosen & (fate < 0.8), mask_id)"


MUTANTS["pretrain.mask"] = [
    mistake(
        "chosen &= ~special_mask.bool()",
        "chosen &= ~special_mask.bool()[:1]",
        "The special positions of the first sentence are used for all.",
    ),
    mistake(
        "chosen &= ~special_mask.bool()",
        "chosen &= ~special_mask.bool() & (input_ids != mask_id)",
        "Words that are [MASK] already are never chosen. Only special positions are left out.",
    ),
    mistake(
        "chosen &= ~special_mask.bool()",
        "chosen &= ~special_mask.bool() & (input_ids != 0)",
        "Words with id 0 are never chosen. Only special positions are left out.",
    ),
    mistake(
        "chosen = torch.rand(shape",
        "generator = generator or torch.Generator().manual_seed(0)\n    chosen = torch.rand(shape",
        "Without a generator the same one is made each time, so every call hides the same words.",
    ),
    mistake(
        "    chosen &= ~special_mask.bool()",
        "    chances = torch.rand(shape, "
        "generator=generator).masked_fill(special_mask.bool(), 2.0).flatten()\n"
        "    last = chances.sort().values[max(0, round(rate * "
        "int((~special_mask.bool()).sum())) - 1)]\n"
        "    chosen = (chances <= last).view(shape) & ~special_mask.bool() & (rate > 0)",
        "Every batch has exactly the same share of hidden words; each position should have a "
        "coin of its own.",
    ),
    mistake(
        "chosen = torch.rand(shape, generator=generator, device=device) < rate",
        "rate = min(1.0, rate * special_mask.numel() / max(1, int((~special_mask.bool()).sum())))\n"
        "    chosen = torch.rand(shape, generator=generator, device=device) < rate",
        "The rate is raised to make up for special positions. It holds for each position that "
        "may be hidden.",
    ),
    mistake(
        _WRONG_WORDS,
        (
            "words = torch.where(words == input_ids, lowest_random + (words + 1 - lowest_random) "
            "% (vocab_size - lowest_random), words)\n"
            "    "
        )
        + _WRONG_WORDS,
        "A random word is never the true one. It is drawn from all, the true one among them.",
    ),
    mistake(
        _WRONG_WORDS,
        _WRONG_WORDS.replace("(fate < 0.9)", "(fate < 0.9) & (words != mask_id)"),
        "A random word is never [MASK]. It is drawn from all ids in the range.",
    ),
    mistake(
        "    " + _WRONG_FATE + "\n",
        "",
        "    chosen = torch.rand(shape, generator=generator, device=device) < rate\n",
        "    fate = torch.rand(shape, generator=generator, device=device)\n"
        "    chosen = fate < rate\n",
        "One coin does both jobs: where it chooses it is low, so every chosen position becomes "
        "[MASK].",
    ),
    mistake(
        "(fate >= 0.8) & (fate < 0.9)",
        "(fate >= 0.8) & (fate < 0.82)",
        "A tenth of what is left becomes random, where it should be a tenth of all chosen "
        "words, half of what is left.",
    ),
    mistake(
        _WRONG_HIDDEN,
        "chosen & (fate < 0.9), mask_id)",
        "(fate >= 0.8) & (fate < 0.9)",
        "(fate >= 0.9) & (fate < 0.95)",
        "Nine in ten become [MASK]; it should be eight.",
    ),
    mistake(
        "chosen &= ~special_mask.bool()",
        "chosen &= (~special_mask).bool()",
        "`~` turns every bit of a whole number: of a special_mask of numbers neither 0 nor 1 "
        "becomes 0. Make it truth values first.",
    ),
    mistake(
        _WRONG_LABELS,
        "return corrupted, input_ids.clone()",
        "All positions are asked for, and most show their answer; only the chosen ones should "
        "have a label.",
    ),
    mistake(
        _WRONG_LABELS,
        "return corrupted, input_ids.masked_fill(chosen, -100)",
        "The labels are turned round: -100 stands at the chosen positions.",
    ),
    mistake(
        "words = torch.randint(lowest_random, vocab_size, shape,",
        "words = torch.randint(0, vocab_size, shape,",
        "`lowest_random` is not used: random words may be special tokens.",
    ),
    mistake(
        "words = torch.randint(lowest_random, vocab_size, shape,",
        "words = torch.randint(lowest_random, vocab_size - 1, shape,",
        "The last word of the vocabulary is never drawn; randint leaves out its upper end by "
        "itself.",
    ),
    mistake(
        "words = torch.randint(lowest_random, vocab_size, shape,",
        "words = torch.randint(lowest_random, vocab_size, (1, 1),",
        "One random word serves all positions; each should have its own.",
    ),
    mistake(
        "chosen = torch.rand(shape, generator=generator, device=device) < rate",
        "chosen = (torch.rand(shape[1:], generator=generator, device=device) < "
        "rate).repeat(shape[0], 1)",
        "The same places are hidden in every sentence of the batch.",
    ),
    mistake(
        "chosen = torch.rand(shape, generator=generator, device=device) < rate",
        "order = torch.rand(shape, generator=generator, "
        "device=device).masked_fill(special_mask.bool(), 2).argsort(1).argsort(1)\n"
        "    chosen = order < (rate * (~special_mask.bool()).sum(1, keepdim=True)).round()",
        "Every sentence has the same share of hidden words; each position should have a coin of "
        "its own.",
    ),
    mistake(
        _WRONG_FATE,
        "fate = torch.rand((shape[0], 1), generator=generator, device=device).expand(shape)",
        "One coin decides what happens to all chosen words of a sentence; each should have its "
        "own.",
    ),
    mistake("< rate\n", "< 0.15\n", "The rate is always 0.15, whatever was asked for."),
    mistake(
        "chosen = torch.rand(shape, generator=generator, device=device) < rate",
        "chosen = torch.rand(shape, device=device) < rate",
        "torch's global random state takes part, so equal generators give different results. "
        "Coins and random words belong to `generator`.",
    ),
    mistake(
        "corrupted = input_ids.masked_fill(",
        "truth = input_ids.clone()\n    corrupted = input_ids.masked_fill_(",
        _WRONG_LABELS,
        "return corrupted, truth.masked_fill(~chosen, -100)",
        "The ids that came in are overwritten; whoever holds them loses the sentence.",
    ),
    mistake(
        "chosen = torch.rand(shape, generator=generator, device=device) < rate",
        "chosen = torch.rand((shape[0] + 1) // 2, shape[1], generator=generator, "
        "device=device).repeat(2, 1)[:shape[0]] < rate",
        "The second half of the rows repeats the choice of the first. Each position has coins "
        "of its own.",
    ),
    mistake(
        _WRONG_FATE,
        "fate = torch.rand((shape[0] + 1) // 2, shape[1], generator=generator, "
        "device=device).repeat(2, 1)[:shape[0]]",
        "What happens to the words of the first half of the rows happens to those of the "
        "second. Each position has coins of its own.",
    ),
    mistake(
        "words = torch.randint(lowest_random, vocab_size, shape, generator=generator, "
        "device=device)",
        "words = torch.randint(lowest_random, vocab_size, ((shape[0] + 1) // 2, shape[1]), "
        "generator=generator, device=device).repeat(2, 1)[:shape[0]]",
        "The random words of the first half of the rows come again in the second. Each position "
        "draws its own.",
    ),
    mistake(
        "    chosen &= ~special_mask.bool()",
        "    chosen &= ~special_mask.bool()\n"
        "    lonely = ~chosen & ~special_mask.bool() & ~chosen.any(1, keepdim=True) & (rate > "
        "0)\n"
        "    chosen |= lonely & (lonely.cumsum(1) == 1)",
        "A sentence in which chance chose nothing gets one word chosen. There may be none.",
    ),
    mistake(
        _WRONG_HIDDEN, "fate < 0.8, mask_id)", "Words that were not chosen become [MASK] as well."
    ),
    mistake(
        _WRONG_WORDS,
        "corrupted = torch.where((fate >= 0.8) & (fate < 0.9), words, corrupted)",
        "Words that were not chosen become random as well.",
    ),
    mistake(
        _WRONG_HIDDEN,
        "chosen & (fate >= 0.8) & (fate < 0.9), mask_id)",
        _WRONG_WORDS,
        "corrupted = torch.where(chosen & (fate < 0.8), words, corrupted)",
        "[MASK] and random words have changed places: eight in ten become random.",
    ),
    mistake(
        _WRONG_WORDS,
        "corrupted = torch.where(chosen & (torch.rand(shape, generator=generator, "
        "device=device) < 0.1), words, corrupted)",
        "A coin of its own decides about the random words, so some of them come in the place of "
        "a [MASK]. One coin decides between the three.",
    ),
    mistake(
        _WRONG_LABELS,
        _WRONG_LABELS.replace("-100", "-1"),
        "Positions that are not asked for have label -1; the mark for them is -100.",
    ),
]


MUTANTS["pretrain.head"] = [
    mistake(
        "return F.linear(h, word_vectors, self.bias)",
        "return F.linear(h, word_vectors, self.bias) / h.shape[-1] ** 0.5",
        "The logits are divided by √D. That belongs to attention.",
    ),
    mistake(
        "return F.linear(h, word_vectors, self.bias)",
        "return F.linear(h, F.normalize(word_vectors, dim=-1), self.bias)",
        "The word vectors are scaled to length 1. They are read as they are.",
    ),
    mistake(
        "return F.linear(h, word_vectors, self.bias)",
        "return F.linear(h + hidden_states, word_vectors, self.bias)",
        "The hidden state is added behind the norm; this head has no such path.",
    ),
    mistake(
        "h = " + _WRONG_TRANSFORM,
        "h = F.gelu(self.transform_dense(hidden_states))\n"
        "    h = F.layer_norm(h, h.shape[-1:], self.transform_norm.weight, "
        "self.transform_norm.bias)",
        "The norm has torch's ε of 1e-5. The module's norm has its own.",
    ),
    mistake(
        "h = " + _WRONG_TRANSFORM,
        "h = F.gelu(self.transform_dense(hidden_states))\n"
        "    m, s = h.mean(-1, keepdim=True), (h * h).mean(-1, keepdim=True)\n"
        "    h = (h - m) / (s - m * m + self.transform_norm.eps).sqrt() * "
        "self.transform_norm.weight + self.transform_norm.bias",
        "The variance is the mean of the squares less the square of the mean. Far from 0 both "
        "are large and their difference is rounding.",
    ),
    mistake(
        _WRONG_TRANSFORM,
        "self.transform_norm(hidden_states + F.gelu(self.transform_dense(hidden_states)))",
        "The hidden state is added before the norm, as in an encoder layer; this head has no "
        "such path.",
    ),
    mistake(
        "F.linear(h, word_vectors, self.bias)",
        "F.linear(h, word_vectors.detach(), self.bias)",
        "The word vectors are detached: the table does not learn from being read.",
    ),
    mistake(
        "    return F.linear(h, word_vectors, self.bias)",
        '    if self.training or not hasattr(self, "kept"):\n'
        "        self.kept = word_vectors\n"
        "    return F.linear(h, self.kept, self.bias)",
        "In eval mode the word vectors are kept from the first call. Weights may change in any "
        "mode.",
    ),
    mistake(
        "F.gelu(self.transform_dense(hidden_states))",
        "torch.tanh(self.transform_dense(hidden_states))",
        "This is a tanh, where a GELU should be. The tanh is in the pooler.",
    ),
    mistake(
        _WRONG_TRANSFORM,
        "F.gelu(self.transform_dense(self.transform_norm(hidden_states)))",
        "The norm comes first. It comes after the GELU.",
    ),
]


MUTANTS["pretrain.loss"] = [
    mistake(
        _WRONG_LOGITS,
        _WRONG_LOGITS.replace(".float()", ".double()"),
        _WRONG_NONE,
        "return 0.0 * (hidden.double().sum() + logits.sum())",
        "The loss is float64. float32 was promised.",
    ),
    mistake(
        _WRONG_LOGITS,
        _WRONG_LOGITS.replace(".float()", ""),
        "In half precision the loss is computed in half, and two digits are left of it. Widen "
        "the logits first.",
    ),
    mistake(
        _WRONG_GRADE,
        'costs, rows = F.cross_entropy(logits, labels.flatten()[places], reduction="none"), '
        "places // labels.shape[1]\n"
        "    return torch.stack([costs[rows == i].mean() for i in rows.unique()]).mean()",
        "Each sentence has a mean of its own, and these are averaged. All chosen positions have "
        "one mean.",
    ),
    mistake(
        _WRONG_GRADE,
        "loss = F.cross_entropy(logits, labels.flatten()[places])\n"
        "    labels[labels == -100] = 0\n"
        "    return loss",
        "The labels are changed. The caller still needs them.",
    ),
    mistake(
        _WRONG_NONE,
        "return torch.zeros(())",
        "If nothing is chosen a new tensor comes back, without a graph: backward() fails on it.",
    ),
    mistake(
        _WRONG_NONE,
        "pass",
        _WRONG_GRADE,
        "return F.cross_entropy(logits, labels.flatten()[places]).nan_to_num() + 0.0 * "
        "(hidden.sum() + logits.sum()).nan_to_num()",
        "NaN is made 0, wherever it comes from. A model whose weights are NaN would cost "
        "nothing for ever; 0 is right only where nothing is chosen.",
    ),
    mistake(
        _WRONG_GRADE,
        'return F.cross_entropy(logits, labels.flatten()[places], reduction="sum") / '
        "attention_mask.sum()",
        "The sum is divided by all real tokens; only the chosen ones have a cost.",
    ),
    mistake(
        "asked(labels)",
        "asked(labels.masked_fill(labels == input_ids, -100))",
        "Words that stayed as they were are not graded; they are chosen like the others.",
    ),
    mistake(
        _WRONG_NONE,
        "return torch.zeros((), requires_grad=True)",
        "If nothing is chosen, the 0 has a graph of its own that does not reach the weights.",
    ),
    mistake(
        "asked(labels)",
        "(labels.flatten() > 0).nonzero().squeeze(1)",
        "A label of 0 is a word as well; only -100 means that nothing is asked.",
    ),
    mistake(
        "hidden = model(input_ids, attention_mask).last_hidden_state",
        "hidden = model.embedding(input_ids)",
        "The word vectors are graded without the encoder: no word sees its neighbours.",
    ),
    mistake(
        _WRONG_NONE,
        "return 0.0 * hidden.float().sum()",
        "If nothing is chosen, the 0 is attached to the encoder alone. The head gets no "
        "gradient, where it should get one of 0.",
    ),
    mistake(
        "    hidden = model(input_ids, attention_mask).last_hidden_state",
        "    mode = model.training\n"
        "    model.eval()\n"
        "    hidden = model(input_ids, attention_mask).last_hidden_state\n"
        "    model.train(mode)",
        "The model is in eval mode while it is asked, so it learns without dropout.",
    ),
    mistake(
        "model(input_ids, attention_mask",
        "model(input_ids.where(labels == -100, labels), attention_mask",
        "The model reads the words as they were before, so it sees what it is asked for.",
    ),
    mistake(
        _WRONG_GRADE,
        "return F.nll_loss(logits, labels.flatten()[places])",
        "The logits are taken for log-probabilities; no softmax is applied at all.",
    ),
]
