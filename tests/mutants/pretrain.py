"""Mutants of `minbert.exercise_cases.pretrain`: their checks must reject them all."""

from minbert.course.check_runner import mistake
from minbert.exercise_cases.pretrain import (
    _WRONG_LABELS,
    _WRONG_LOGITS,
    _WRONG_MEAN,
    _WRONG_RANDOM,
    _WRONG_ROW,
    _WRONG_SHIFT,
    _WRONG_SPECIAL,
    _WRONG_TOTAL,
    _WRONG_TREATMENT,
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
        "    special = torch.tensor(",
        "    special_ids.sort()\n    special = torch.tensor(",
        "The caller's list of special ids is sorted in place.",
    ),
    mistake(
        _WRONG_SPECIAL,
        "(attention_mask == 0) | (input_ids <= special.max())",
        "Every id up to the largest special one is marked, ordinary ones among them.",
    ),
]


_WRONG_HIDDEN = "chosen & (treatment < 0.8), mask_id)"


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
        _WRONG_RANDOM,
        (
            "random_ids = torch.where(random_ids == input_ids, (random_ids + 1) % vocab_size, random_ids)\n    "
        )
        + _WRONG_RANDOM,
        "A random word is never the true one. It is drawn from all, the true one among them.",
    ),
    mistake(
        "(treatment < 0.9)",
        "(treatment < 0.9) & (random_ids != mask_id)",
        "A random word is never [MASK]. It is drawn from all ids in the range.",
    ),
    mistake(
        "    " + _WRONG_TREATMENT + "\n",
        "",
        "    chosen = torch.rand(shape, generator=generator, device=device) < rate\n",
        "    treatment = torch.rand(shape, generator=generator, device=device)\n"
        "    chosen = treatment < rate\n",
        "One coin does both jobs: where it chooses it is low, so every chosen position becomes "
        "[MASK].",
    ),
    mistake(
        "(treatment >= 0.8) & (treatment < 0.9)",
        "(treatment >= 0.8) & (treatment < 0.82)",
        "A tenth of what is left becomes random, where it should be a tenth of all chosen "
        "words, half of what is left.",
    ),
    mistake(
        _WRONG_HIDDEN,
        "chosen & (treatment < 0.9), mask_id)",
        "(treatment >= 0.8) & (treatment < 0.9)",
        "(treatment >= 0.9) & (treatment < 0.95)",
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
        "random_ids = torch.randint(vocab_size, shape,",
        "random_ids = torch.randint(vocab_size - 1, shape,",
        "The last word of the vocabulary is never drawn; randint leaves out its upper end by "
        "itself.",
    ),
    mistake(
        "random_ids = torch.randint(vocab_size, shape,",
        "random_ids = torch.randint(vocab_size, (1, 1),",
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
        _WRONG_TREATMENT,
        "treatment = torch.rand((shape[0], 1), generator=generator, device=device).expand(shape)",
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
        _WRONG_TREATMENT,
        "treatment = torch.rand((shape[0] + 1) // 2, shape[1], generator=generator, "
        "device=device).repeat(2, 1)[:shape[0]]",
        "What happens to the words of the first half of the rows happens to those of the "
        "second. Each position has coins of its own.",
    ),
    mistake(
        "random_ids = torch.randint(vocab_size, shape, generator=generator, device=device)",
        "random_ids = torch.randint(vocab_size, ((shape[0] + 1) // 2, shape[1]), "
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
        _WRONG_HIDDEN,
        "treatment < 0.8, mask_id)",
        "Words that were not chosen become [MASK] as well.",
    ),
    mistake(
        _WRONG_RANDOM,
        "corrupted = torch.where((treatment >= 0.8) & (treatment < 0.9), random_ids, corrupted)",
        "Words that were not chosen become random as well.",
    ),
    mistake(
        _WRONG_HIDDEN,
        "chosen & (treatment >= 0.8) & (treatment < 0.9), mask_id)",
        _WRONG_RANDOM,
        "corrupted = torch.where(chosen & (treatment < 0.8), random_ids, corrupted)",
        "[MASK] and random words have changed places: eight in ten become random.",
    ),
    mistake(
        _WRONG_RANDOM,
        "corrupted = torch.where(chosen & (torch.rand(shape, generator=generator, "
        "device=device) < 0.1), random_ids, corrupted)",
        "A coin of its own decides about the random words, so some of them come in the place of "
        "a [MASK]. One coin decides between the three.",
    ),
    mistake(
        _WRONG_LABELS,
        _WRONG_LABELS.replace("-100", "-1"),
        "Positions that are not asked for have label -1; the mark for them is -100.",
    ),
]


MUTANTS["pretrain.loss"] = [
    mistake(
        _WRONG_TOTAL,
        _WRONG_TOTAL.replace("logits", "logits.double()"),
        "The loss is float64. float32 was promised.",
    ),
    mistake(
        _WRONG_MEAN,
        'costs = F.cross_entropy(logits, targets, reduction="none")\n'
        "    rows = (labels != -100).nonzero()[:, 0]\n"
        "    means = [costs[rows == i].mean() for i in rows.unique()]\n"
        "    return torch.stack(means).mean() if means else 0 * total",
        "Each sentence has a mean of its own, and these are averaged. All chosen positions have "
        "one mean.",
    ),
    mistake(
        _WRONG_MEAN,
        "labels[labels == -100] = 0\n    " + _WRONG_MEAN,
        "The labels are changed. The caller still needs them.",
    ),
    mistake(
        _WRONG_TOTAL,
        "if not len(targets):\n        return torch.zeros(())\n    " + _WRONG_TOTAL,
        "If nothing is chosen a new tensor is returned, without a graph: backward() fails.",
    ),
    mistake(
        _WRONG_MEAN,
        "return F.cross_entropy(logits, targets).nan_to_num() + 0 * total.nan_to_num()",
        "NaN becomes 0, wherever it comes from. 0 is correct only if nothing is chosen.",
    ),
    mistake(
        _WRONG_MEAN,
        "return total / labels.ne(-100).any(1).sum().clamp(min=1)",
        "The sum is divided by the number of sentences.",
    ),
    mistake(
        _WRONG_MEAN,
        "return total / attention_mask.sum()",
        "The sum is divided by the number of real tokens.",
    ),
    mistake(
        _WRONG_TOTAL,
        "if not len(targets):\n        return torch.zeros((), requires_grad=True)\n    "
        + _WRONG_TOTAL,
        "If nothing is chosen, the 0 has a graph of its own that does not reach the weights.",
    ),
    mistake(
        _WRONG_TOTAL,
        "if not len(targets):\n        return 0.0 * hidden_states.sum()\n    " + _WRONG_TOTAL,
        "If nothing is chosen, the 0 is attached to the encoder alone.",
    ),
    mistake(
        "hidden_states = model(input_ids, attention_mask).last_hidden_state",
        "hidden_states = model.embedding(input_ids)",
        "The encoder layers are skipped, so no token attends to its neighbours.",
    ),
    mistake(
        "model(input_ids, attention_mask)",
        "model(input_ids.where(labels == -100, labels), attention_mask)",
        "The model reads the original tokens, so the answers are visible.",
    ),
    mistake(
        "F.cross_entropy(logits, targets",
        "F.nll_loss(logits, targets",
        "The logits are taken for log-probabilities; no softmax is applied.",
    ),
    mistake(
        _WRONG_LOGITS,
        "labels = labels.masked_fill(labels == 0, -100)\n    " + _WRONG_LOGITS,
        "A chosen token with id 0 is left out.",
    ),
    mistake(
        _WRONG_LOGITS,
        "labels = labels.masked_fill(labels == input_ids, -100)\n    " + _WRONG_LOGITS,
        "Chosen tokens that stay unchanged are left out.",
    ),
    mistake(
        "hidden_states = model(",
        "model.eval()\n    hidden_states = model(",
        "The model is switched to eval mode, so there is no dropout.",
    ),
]


MUTANTS["pretrain.pairs"] = [
    mistake(
        _WRONG_ROW,
        "torch.randint(len(other) - 1, (), generator=generator).item() if len(other) > 1 else 0",
        "The last sentence of a document is never drawn.",
    ),
    mistake(
        _WRONG_SHIFT,
        "torch.randint(1, max(2, N - 1), (), generator=generator)",
        "The previous document is never drawn.",
    ),
    mistake(
        "generator=generator) < 0.5",
        "generator=generator) < 0.15",
        "Only 15% of the pairs are successors.",
    ),
    mistake(
        "    for number, document in enumerate(documents):",
        "    generator = torch.Generator().manual_seed(0)\n"
        "    for number, document in enumerate(documents):",
        "The caller's generator is replaced by one with a fixed seed.",
    ),
    mistake(
        "    return pairs",
        "    documents.clear()\n    return pairs",
        "The caller's documents are changed.",
    ),
    mistake(
        "pairs.append((first, other[row], 1))",
        "pairs.append((other[row], following, 1))",
        "A is random instead of B.",
    ),
]
