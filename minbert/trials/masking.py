"""How the first exercises of chapter 10 are checked: which words may be hidden, and what becomes of those that are."""


import torch

from minbert.course.trials import Case, Trial, mistake


TRIALS, MISTAKES, VARIANTS = {}, {}, {}


# Masking goes wrong in silence: the loss falls whether the random words are there or not, whether the 10 % that stay are asked for or not. Only a
# count of forty thousand positions shows it.
#
# ---- pretrain.special
#
# Rows of different length; a special id in the middle of a row; a word with id 0, which is no padding if the mask says so; padding filled with an
# ordinary id.

def special_cases(generator):
    ids = torch.randint(5, 30, (3, 7), generator=generator)
    ids[:, 0], ids[0, 6], ids[1, 3], ids[2, 4], ids[0, 2], ids[1, 5] = 2, 3, 3, 3, 0, 3
    mask = torch.tensor([[1] * 7, [1] * 4 + [0] * 3, [1] * 5 + [0] * 2])
    base = {"input_ids": ids, "attention_mask": mask, "special_ids": [2, 3]}
    return [Case("three rows of different length", base), Case("a mask of truth values", {**base, "attention_mask": mask == 1}),
            Case("four special ids", {**base, "special_ids": [0, 2, 3, int(ids[0, 4])]}),
            Case("one token", {**base, "input_ids": ids[:1, 4:5], "attention_mask": mask[:1, :1]}),
            Case("special ids in another order, some absent", {**base, "special_ids": [101, 3, 2]}),
            Case("a pad between real tokens", {**base, "attention_mask": mask * (torch.arange(7) != 1)})]


def run_special(mark, inputs):
    before = list(inputs["special_ids"])
    return {"special": mark(**inputs), "the list of special ids is as it was": inputs["special_ids"] == before}


TRIALS["pretrain.special"] = Trial(special_cases, run_special, hints=(
    "Two reasons not to hide a position. Which of the two tensors knows the one, which the other?",
    "Padding is where attention_mask is 0. torch.isin tells which ids are among the special ones.",
    "(attention_mask == 0) | torch.isin(input_ids, torch.tensor(special_ids))."))


_WRONG_SPECIAL = "(attention_mask == 0) | torch.isin(input_ids, special)"

MISTAKES["pretrain.special"] = [
    mistake(_WRONG_SPECIAL, "(" + _WRONG_SPECIAL + ")[:1].expand_as(input_ids)", "What the first sentence hides is hidden in all."),
    mistake(_WRONG_SPECIAL, "(torch.arange(input_ids.shape[1]) >= attention_mask.sum(1, keepdim=True)) | torch.isin(input_ids, special)",
            "The mask is read as a length. A pad can stand between real tokens too."),
    mistake(_WRONG_SPECIAL, "(attention_mask == 0) | torch.isin(input_ids, special[:2])", "Only the first two special ids are marked."),
    mistake(_WRONG_SPECIAL, "(attention_mask == 0) | (torch.arange(input_ids.shape[1]) == 0) | (torch.arange(input_ids.shape[1]) == attention_mask.sum(1, keepdim=True) - 1)",
            "The first and the last real token are marked. A sentence can hold special tokens anywhere."),
    mistake("    special = send(", "    special_ids.sort()\n    special = send(", "The caller's list of special ids is sorted in place."),
    mistake(_WRONG_SPECIAL, "attention_mask == 0", "Special tokens are not marked: [CLS] and [SEP] would be hidden and asked for."),
    mistake(_WRONG_SPECIAL, "torch.isin(input_ids, special)", "Padding is not marked; it would be hidden and asked for."),
    mistake(_WRONG_SPECIAL, "(attention_mask == 0) & torch.isin(input_ids, special)", "Both reasons together are asked for; one of them is enough."),
    mistake(_WRONG_SPECIAL, "(attention_mask == 1) | torch.isin(input_ids, special)", "The mask is read the wrong way round: 1 is a real token."),
    mistake(_WRONG_SPECIAL, "~((attention_mask == 0) | torch.isin(input_ids, special))", "What may be hidden is marked; the answer is turned round."),
    mistake(_WRONG_SPECIAL, "(input_ids == 0) | torch.isin(input_ids, special)",
            "Padding is guessed from id 0; only the mask knows what is padding."),
    mistake(_WRONG_SPECIAL, "(attention_mask == 0) | (input_ids <= special.max())",
            "Every id up to the largest special one is marked, ordinary ones among them."),
    mistake(_WRONG_SPECIAL, "((attention_mask == 0) | torch.isin(input_ids, special)).long()",
            "Whole numbers come back; truth values are wanted, since `~` means something else for numbers."),
]

VARIANTS["pretrain.special"] = [
    '''
def special_positions(input_ids, attention_mask, special_ids):
    special = ~attention_mask.bool()
    for i in special_ids:
        special = special | (input_ids == i)
    return special
''',
    '''
def special_positions(input_ids, attention_mask, special_ids):
    known = set(special_ids)
    return torch.tensor([[m == 0 or i in known for i, m in zip(ids, mask)] for ids, mask in zip(input_ids.tolist(), attention_mask.tolist())])
''',
]


# ---- pretrain.mask
#
# Nobody has to draw in our order. Compared are facts that hold for any draw (what may change, what the labels say), and shares over forty thousand
# positions at a rate of one half, where chance moves them by less than half a percent; the check allows two and a half. Other facts of chance are
# turned into truth values with a wide margin: the coins of different rows, and of different places, are independent.
#
# Sentences of three words, at a rate of one tenth, have nothing to guess in .9³ = .73 of all cases. Words that are 0 or [MASK] already, two words to draw from, one of them [MASK], and sentences with special positions of their own show what
# is left out silently. Without a generator two calls must differ.

def mask_cases(generator):
    seed, rows = torch.randint(10**6, (), generator=generator).item(), (400, 100)
    ids = torch.randint(5, 30, rows, generator=generator)
    special = torch.rand(rows, generator=generator) < 0.2
    base = {"input_ids": ids, "special_mask": special, "mask_id": 4, "vocab_size": 30, "rate": 0.5, "seed": seed}
    return [Case("half of the positions", {**base, "more": True}), Case("the usual rate", {**base, "rate": None}), Case("every position", {**base, "rate": 1.0}),
            Case("none", {**base, "rate": 0.0}),
            Case("special positions as whole numbers", {**base, "special_mask": special.long(), "rate": 0.3}),
            Case("random words from id 20 on", {**base, "lowest_random": 20}),
            Case("every sentence special elsewhere", {**base, "special_mask": torch.arange(100) < torch.arange(400)[:, None] % 100}),
            Case("words 0 and [MASK] among the ids", {**base, "input_ids": torch.where(ids < 15, 4, torch.where(ids < 25, 0, ids))}),
            Case("two words to draw from, one of them [MASK]",
                 {**base, "input_ids": torch.full_like(ids, 5), "lowest_random": 4, "vocab_size": 6, "rate": 1.0, "special_mask": torch.zeros_like(special)}),
            Case("sentences of three words", {**base, "input_ids": ids.view(8000, 5), "special_mask": torch.tensor([1, 0, 0, 0, 1]).expand(8000, 5).clone(), "rate": 0.1}),
            Case("one position", {**base, "input_ids": ids[:1, :1], "special_mask": torch.zeros_like(special[:1, :1]), "rate": 1.0})]


def _spread(hits, among, axis):
    """How much rows (1) or columns (0) differ in their share of hits: 1 by chance, 0 if all have the same number."""
    n, share = among.sum(axis), hits.sum() / among.sum()
    return ((hits.sum(axis) - share * n) / (share * (1 - share) * n.clamp(min=1)).sqrt()).square().mean().sqrt()


def _repeats(chosen, hidden, drawn, words, free):
    """Do rows that a program might make from one draw agree: half a batch apart, or side by side? In their choice, in what happens, in the words."""
    half = len(chosen) // 2
    for where, (a, b) in {"half a batch apart": (slice(half), slice(half, None)), "side by side": (slice(0, None, 2), slice(1, None, 2))}.items():
        both, rate = free[a] & free[b], chosen[free].double().mean()
        agree = lambda x, among: (x[a] == x[b])[among].double().mean()
        yield f"rows {where} choose alike", abs(agree(chosen, both) - rate**2 - (1 - rate)**2) > 0.03
        yield f"the same happens in rows {where}", agree(hidden, chosen[a] & chosen[b]) > 0.87
        yield f"the same random words in rows {where}", bool((pair := drawn[a] & drawn[b]).sum() > 20) and bool(agree(words, pair) > 0.6)


def run_mask(hide, inputs):
    """Hide words, and count. Shares of few positions are left out."""
    ids, special, mask_id = inputs["input_ids"], inputs["special_mask"].bool(), inputs["mask_id"]
    options = {k: inputs[k] for k in ("rate", "lowest_random") if inputs.get(k) is not None}
    seeded = lambda more=0: torch.Generator().manual_seed(inputs["seed"] + more)
    draw = lambda: hide(ids, inputs["special_mask"], mask_id, inputs["vocab_size"], generator=seeded(), **options)
    before = torch.random.get_rng_state()
    known = [i for i in (0, mask_id) if (ids == i).any()]
    (corrupted, labels), again = draw(), draw()
    global_dice = torch.tensor(not torch.equal(before, torch.random.get_rng_state()))
    chosen, changed = labels != -100, corrupted != ids
    drawn = corrupted[chosen & changed & (corrupted != mask_id)]
    facts = {"labels that are neither -100 nor the true id": (chosen & (labels != ids)).any(), "share of labels that are neither": (chosen & (labels != ids)).double().mean(),
             "special positions that were chosen": (special & chosen).any(), "positions changed but not asked for": (changed & ~chosen).any(), "share of positions changed but not asked for": (changed & ~chosen).double().mean(),
             "equal generators give unequal masks": torch.tensor(not all(map(torch.equal, (corrupted, labels), again))),
             "torch's global random state was used": global_dice}
    if "more" in inputs:
        hide_by = lambda generator: hide(ids[:50], special[:50], mask_id, inputs["vocab_size"], generator=generator, **options)[1]   # few: all are handed over
        facts |= {"without a generator the same words are hidden again": torch.equal(hide_by(None), hide_by(None)),
                  "other generators choose as many": len({int((hide_by(seeded(n)) != -100).sum()) for n in range(4)}) == 1}
    share = lambda x: x.double().mean()
    facts |= {f"share of chosen words {i}": share(chosen[(ids == i) & ~special]) for i in known}
    if inputs["vocab_size"] == 6:    # so few words that a random one is often the true one, or [MASK]
        facts |= {"share that becomes [MASK]": share(corrupted == mask_id), "share that stays": share(~changed)}
    if len(ids) > 1 and inputs["vocab_size"] > 6 and inputs.get("rate") != 0.0:
        facts |= dict(_repeats(chosen, corrupted == mask_id, chosen & changed & (corrupted != mask_id), corrupted, ~special))
    if len(ids) == 8000:
        facts["share of sentences in which nothing is asked for"] = share(~chosen.any(1))
    if inputs.get("rate") in (0.0, 1.0):
        return facts | {"positions not chosen": (~chosen & ~special).any()}
    free, rate = chosen[~special], share(chosen[~special])
    pairs = ~special[:, :-1] & ~special[:, 1:]
    both = share((chosen[:, :-1] & chosen[:, 1:])[pairs])
    rows, columns = (_spread(chosen & ~special, ~special, axis) for axis in (1, 0))
    facts |= {"share of chosen positions": share(free), "coins of neighbours agree too often": (both - rate**2).abs() > 0.03,
              "every row has the same number": rows < 0.5, "rows differ more than chance lets them": rows > 2, "all rows have the same places": columns > 2}
    if len(drawn):
        facts["smallest and largest random word"] = torch.stack([drawn.min(), drawn.max()])
    if len(drawn) > 600:
        facts["share of the commonest random word"] = torch.bincount(drawn).max() / len(drawn)
        down = corrupted.T[(chosen & changed & (corrupted != mask_id)).T]
        facts |= {f"neighbours along {axis} get the same random word": share(x[1:] == x[:-1]) > 0.3 for axis, x in (("a row", drawn), ("a column", down))}
    by_row, by_place = (_spread(chosen & (corrupted == mask_id), chosen, axis) for axis in (1, 0))
    facts |= {"what happens goes by rows": by_row > 2, "what happens goes by places": by_place > 2}
    if inputs.get("rate") == 0.5:
        facts |= {"of the chosen, hidden": share(corrupted[chosen] == mask_id), "of the chosen, unchanged": share(~changed[chosen]),
                  "random words": len(drawn) / chosen.sum().double()}
    return facts


TRIALS["pretrain.mask"] = Trial(mask_cases, run_mask, replay=True, rtol=0, atol=0.025, derive=(), hints=(
    "Two coins a position, independent of each other: the first chooses, the second decides what happens. Which of them do the labels depend on?",
    "chosen = torch.rand(shape, generator=generator) < rate, and not special. A second torch.rand decides: below 0.8 [MASK], from 0.8 to 0.9 a "
    "random word, above that nothing.",
    "corrupted = input_ids.masked_fill(chosen & (fate < 0.8), mask_id); torch.where puts random words in where 0.8 <= fate < 0.9; labels = "
    "input_ids.masked_fill(~chosen, -100)."))


_WRONG_FATE = "fate = torch.rand(shape, generator=generator, device=device)"
_WRONG_LABELS = "return corrupted.to(home), input_ids.masked_fill(~chosen, -100).to(home)"
_WRONG_WORDS = "corrupted = torch.where(chosen & (fate >= 0.8) & (fate < 0.9), words, corrupted)"
_WRONG_HIDDEN = "chosen & (fate < 0.8), mask_id)"

MISTAKES["pretrain.mask"] = [
    mistake("chosen &= ~special_mask.bool()", "chosen &= ~special_mask.bool()[:1]", "The special positions of the first sentence are used for all."),
    mistake("chosen &= ~special_mask.bool()", "chosen &= ~special_mask.bool() & (input_ids != mask_id)", "Words that are [MASK] already are never chosen. Only special positions are left out."),
    mistake("chosen &= ~special_mask.bool()", "chosen &= ~special_mask.bool() & (input_ids != 0)", "Words with id 0 are never chosen. Only special positions are left out."),
    mistake("chosen = torch.rand(shape", "generator = generator or torch.Generator().manual_seed(0)\n    chosen = torch.rand(shape",
            "Without a generator the same one is made each time, so every call hides the same words."),
    mistake("    chosen &= ~special_mask.bool()", "    chances = torch.rand(shape, generator=generator).masked_fill(special_mask.bool(), 2.0).flatten()\n"
            "    last = chances.sort().values[max(0, round(rate * int((~special_mask.bool()).sum())) - 1)]\n    chosen = (chances <= last).view(shape) & ~special_mask.bool() & (rate > 0)",
            "Every batch has exactly the same share of hidden words; each position should have a coin of its own."),
    mistake("chosen = torch.rand(shape, generator=generator, device=device) < rate", "rate = min(1.0, rate * special_mask.numel() / max(1, int((~special_mask.bool()).sum())))\n"
            "    chosen = torch.rand(shape, generator=generator, device=device) < rate",
            "The rate is raised to make up for special positions. It holds for each position that may be hidden."),
    mistake(_WRONG_WORDS, "words = torch.where(words == input_ids, lowest_random + (words + 1 - lowest_random) % (vocab_size - lowest_random), words)\n    " + _WRONG_WORDS,
            "A random word is never the true one. It is drawn from all, the true one among them."),
    mistake(_WRONG_WORDS, _WRONG_WORDS.replace("(fate < 0.9)", "(fate < 0.9) & (words != mask_id)"), "A random word is never [MASK]. It is drawn from all ids in the range."),
    mistake("    " + _WRONG_FATE + "\n", "", "    chosen = torch.rand(shape, generator=generator, device=device) < rate\n",
            "    fate = torch.rand(shape, generator=generator, device=device)\n    chosen = fate < rate\n",
            "One coin does both jobs: where it chooses it is low, so every chosen position becomes [MASK]."),
    mistake(_WRONG_WORDS, "", "There are no random words: a tenth of the chosen ones should be replaced by one."),
    mistake("(fate >= 0.8) & (fate < 0.9)", "(fate >= 0.8)", "No chosen word stays as it is; a tenth of them should."),
    mistake("(fate >= 0.8) & (fate < 0.9)", "(fate >= 0.8) & (fate < 0.82)",
            "A tenth of what is left becomes random, where it should be a tenth of all chosen words, half of what is left."),
    mistake(_WRONG_HIDDEN, "chosen & (fate < 0.9), mask_id)", "(fate >= 0.8) & (fate < 0.9)", "(fate >= 0.9) & (fate < 0.95)",
            "Nine in ten become [MASK]; it should be eight."),
    mistake("chosen &= ~special_mask.bool()", "", "Special tokens and padding are hidden like words."),
    mistake("chosen &= ~special_mask.bool()", "chosen &= (~special_mask).bool()",
            "`~` turns every bit of a whole number: of a special_mask of numbers neither 0 nor 1 becomes 0. Make it truth values first."),
    mistake("chosen &= ~special_mask.bool()", "chosen &= special_mask.bool()",
            "The mask is read the wrong way round: only special positions are hidden."),
    mistake(_WRONG_LABELS, "return corrupted, input_ids.masked_fill(corrupted == input_ids, -100)",
            "Words that stay as they are are not asked for. Then the model knows that every visible word is true, which is what they are there to "
            "prevent."),
    mistake(_WRONG_LABELS, "return corrupted, corrupted.masked_fill(~chosen, -100)",
            "The labels hold what was put in; they should hold what was there before."),
    mistake(_WRONG_LABELS, "return corrupted, input_ids.clone()",
            "All positions are asked for, and most show their answer; only the chosen ones should have a label."),
    mistake(_WRONG_LABELS, "return corrupted, input_ids.masked_fill(chosen, -100)",
            "The labels are turned round: -100 stands at the chosen positions."),
    mistake(_WRONG_LABELS, "return corrupted, input_ids.masked_fill(~chosen, 0)",
            "Positions that are not asked for have label 0, which is a word; the mark for them is -100."),
    mistake("words = torch.randint(lowest_random, vocab_size, shape,", "words = torch.randint(0, vocab_size, shape,",
            "`lowest_random` is not used: random words may be special tokens."),
    mistake("words = torch.randint(lowest_random, vocab_size, shape,", "words = torch.randint(lowest_random, vocab_size - 1, shape,",
            "The last word of the vocabulary is never drawn; randint leaves out its upper end by itself."),
    mistake("words = torch.randint(lowest_random, vocab_size, shape,", "words = torch.randint(lowest_random, vocab_size, (1, 1),",
            "One random word serves all positions; each should have its own."),
    mistake("chosen = torch.rand(shape, generator=generator, device=device) < rate",
            "chosen = (torch.rand(shape[1:], generator=generator, device=device) < rate).repeat(shape[0], 1)",
            "The same places are hidden in every sentence of the batch."),
    mistake("chosen = torch.rand(shape, generator=generator, device=device) < rate",
            "order = torch.rand(shape, generator=generator, device=device).masked_fill(special_mask.bool(), 2).argsort(1).argsort(1)\n"
            "    chosen = order < (rate * (~special_mask.bool()).sum(1, keepdim=True)).round()",
            "Every sentence has the same share of hidden words; each position should have a coin of its own."),
    mistake(_WRONG_FATE, "fate = torch.rand((shape[0], 1), generator=generator, device=device).expand(shape)",
            "One coin decides what happens to all chosen words of a sentence; each should have its own."),
    mistake("< rate\n", "< 0.15\n", "The rate is always 0.15, whatever was asked for."),
    mistake("chosen = torch.rand(shape, generator=generator, device=device) < rate", "chosen = torch.rand(shape, device=device) < rate",
            "torch's global random state takes part, so equal generators give different results. Coins and random words belong to `generator`."),
    mistake("chosen = torch.rand(shape, generator=generator, device=device) < rate", "chosen = torch.rand(shape, device=device) < rate", _WRONG_FATE, "fate = torch.rand(shape, device=device)",
            "words = torch.randint(lowest_random, vocab_size, shape, generator=generator, device=device)", "words = torch.randint(lowest_random, vocab_size, shape, device=device)",
            "The generator is not used at all, so equal generators give different masks."),
    mistake("corrupted = input_ids.masked_fill(", "truth = input_ids.clone()\n    corrupted = input_ids.masked_fill_(", _WRONG_LABELS,
            "return corrupted, truth.masked_fill(~chosen, -100)",
            "The ids that came in are overwritten; whoever holds them loses the sentence."),
    mistake("chosen = torch.rand(shape, generator=generator, device=device) < rate", "chosen = torch.rand((shape[0] + 1) // 2, shape[1], generator=generator, device=device).repeat(2, 1)[:shape[0]] < rate",
            "The second half of the rows repeats the choice of the first. Each position has coins of its own."),
    mistake(_WRONG_FATE, "fate = torch.rand((shape[0] + 1) // 2, shape[1], generator=generator, device=device).repeat(2, 1)[:shape[0]]",
            "What happens to the words of the first half of the rows happens to those of the second. Each position has coins of its own."),
    mistake("words = torch.randint(lowest_random, vocab_size, shape, generator=generator, device=device)",
            "words = torch.randint(lowest_random, vocab_size, ((shape[0] + 1) // 2, shape[1]), generator=generator, device=device).repeat(2, 1)[:shape[0]]",
            "The random words of the first half of the rows come again in the second. Each position draws its own."),
    mistake("    chosen &= ~special_mask.bool()", "    chosen &= ~special_mask.bool()\n    lonely = ~chosen & ~special_mask.bool() & ~chosen.any(1, keepdim=True) & (rate > 0)\n"
            "    chosen |= lonely & (lonely.cumsum(1) == 1)", "A sentence in which chance chose nothing gets one word chosen. There may be none."),
    mistake(_WRONG_HIDDEN, "fate < 0.8, mask_id)", "Words that were not chosen become [MASK] as well."),
    mistake(_WRONG_WORDS, "corrupted = torch.where((fate >= 0.8) & (fate < 0.9), words, corrupted)", "Words that were not chosen become random as well."),
    mistake(_WRONG_HIDDEN, "chosen & (fate >= 0.8) & (fate < 0.9), mask_id)", _WRONG_WORDS, "corrupted = torch.where(chosen & (fate < 0.8), words, corrupted)",
            "[MASK] and random words have changed places: eight in ten become random."),
    mistake(_WRONG_WORDS, "corrupted = torch.where(chosen & (torch.rand(shape, generator=generator, device=device) < 0.1), words, corrupted)",
            "A coin of its own decides about the random words, so some of them come in the place of a [MASK]. One coin decides between the three."),
    mistake(_WRONG_LABELS, _WRONG_LABELS.replace("-100", "-1"), "Positions that are not asked for have label -1; the mark for them is -100."),
]

VARIANTS["pretrain.mask"] = [
    '''
def mask_tokens(input_ids, special_mask, mask_id, vocab_size, rate=0.15, generator=None, lowest_random=0):
    chances = torch.full(input_ids.shape, float(rate)).masked_fill(special_mask.bool(), 0.0)
    chosen = torch.bernoulli(chances, generator=generator).bool()
    labels = torch.where(chosen, input_ids, torch.full_like(input_ids, -100))
    out = input_ids.clone()
    hidden = torch.bernoulli(torch.full(out.shape, 0.8), generator=generator).bool() & chosen
    out[hidden] = mask_id
    noisy = torch.bernoulli(torch.full(out.shape, 0.5), generator=generator).bool() & chosen & ~hidden
    out[noisy] = torch.randint(lowest_random, vocab_size, (int(noisy.sum()),), generator=generator)
    return out, labels
''',
    '''
def mask_tokens(input_ids, special_mask, mask_id, vocab_size, rate=0.15, generator=None, lowest_random=0):
    out, labels = input_ids.clone(), torch.full_like(input_ids, -100)
    rows, columns = ((torch.rand(input_ids.shape, generator=generator) < rate) & (special_mask == 0)).nonzero(as_tuple=True)
    labels[rows, columns] = input_ids[rows, columns]
    kinds = torch.tensor([0.1, 0.8, 0.1]).multinomial(len(rows), replacement=True, generator=generator) if len(rows) else rows
    words = lowest_random + (torch.rand(len(rows), generator=generator) * (vocab_size - lowest_random)).long()
    now = out[rows, columns]
    out[rows, columns] = torch.where(kinds == 1, mask_id, torch.where(kinds == 2, words, now))
    return out, labels
''',
    '''
def mask_tokens(input_ids, special_mask, mask_id, vocab_size, rate=0.15, generator=None, lowest_random=0):
    fate = torch.rand(input_ids.shape, generator=generator)
    words = torch.randint(lowest_random, vocab_size, input_ids.shape, generator=generator)
    chosen = (torch.rand(input_ids.shape, generator=generator) < rate) & (special_mask == 0)
    new = torch.where(fate < 0.8, mask_id, torch.where(fate < 0.9, input_ids, words))
    return torch.where(chosen, new, input_ids), torch.where(chosen, input_ids, -100)
''',
]


# ---- How strong are they?
