"""How the checks of chapter 25 deal with chance: how long a run of hidden words is, and where it lies."""


import torch

from minbert.course.trials import Case, Trial, mistake


# How does one check a function that draws at random? Not by its draws: somebody may draw in another order and be right. By what must hold for every
# roll, and by how often each thing happens in thousands of rolls.

TRIALS, MISTAKES, VARIANTS = {}, {}, {}


# ---- contrastive.lengths
#
# Twenty thousand draws a case (a hundred thousand where four in ten runs are too long: to give those any length moves a share by .045 only): a share
# of .25 is then right to within .003, and the tolerance is .03. That is far beyond chance, and every mistake below moves some share by more. A second
# set of outputs is exact: lengths stay in [1, cap], the same generator gives the same lengths, another one others, torch's own random state is left
# alone, and a generator goes on from call to call. Without a generator two calls differ. Neighbours agree as often as chance has it.

def lengths_cases(generator):
    seed = int(torch.randint(1000, (), generator=generator))
    return [Case("BERT-CF", {"seed": seed}),
            Case("drawn again", {"seed": seed, "renormalize": True}),
            Case("short runs", {"seed": seed, "p": 0.7, "cap": 3}),
            Case("long runs", {"seed": seed, "p": 0.1, "cap": 8}),
            Case("long runs, drawn again", {"seed": seed, "p": 0.1, "cap": 8, "renormalize": True}),
            Case("four in ten runs too long, drawn again", {"seed": seed, "p": 0.35, "cap": 2, "renormalize": True, "n": 100_000}),
            Case("cap 1", {"seed": seed, "cap": 1}),
            Case("p 1", {"seed": seed, "p": 1.0, "cap": 4})]


def run_lengths(draw, inputs):
    settings = {name: value for name, value in inputs.items() if name not in ("seed", "n")}
    n = inputs.get("n", 20_000)
    seeded = lambda plus: torch.Generator().manual_seed(inputs["seed"] + plus)
    before = torch.get_rng_state()
    many = draw(n, generator=seeded(0), **settings)
    untouched = torch.equal(before, torch.get_rng_state())
    again, other, goes_on = draw(60, generator=seeded(0), **settings), draw(60, generator=seeded(1), **settings), seeded(0)
    cap = settings.get("cap", 5)
    return {"shape": torch.tensor(many.shape), "int64": many.dtype == torch.int64, "shortest is 1 or more": many.min() >= 1,
            "longest is cap or less": many.max() <= cap,
            "shares of 0, 1, 2, ...": torch.bincount(many.long().clamp(0, cap + 2), minlength=cap + 3) / len(many),
            "shares in the first half": torch.bincount(many[: n // 2].long().clamp(0, cap + 2), minlength=cap + 3) / (n // 2),
            "share of neighbours that agree": (many[1:] == many[:-1]).double().mean(),
            "share of lengths that agree with the one half a draw later": (many[: n // 2] == many[n // 2 :]).double().mean(),
            "the same seed, the same lengths": torch.equal(again, draw(60, generator=seeded(0), **settings)),
            "another seed, other lengths": not torch.equal(again, other),
            "a generator goes on": not torch.equal(draw(60, generator=goes_on, **settings), draw(60, generator=goes_on, **settings)), "torch's own random state is left alone": untouched,
            "without a generator, other lengths each time": not torch.equal(draw(60, **settings), draw(60, **settings)),
            "none asked for": torch.tensor(draw(0, **settings).shape)}


TRIALS["contrastive.lengths"] = Trial(lengths_cases, run_lengths, replay=True, subject="spans and mirror", atol=0.03, hints=(
    "A run of length l or less has probability 1 - (1 - p)^l. Draw a number between 0 and 1: which l does it belong to?",
    "With u in [0, 1): the smallest l with 1 - (1 - p)^l > u. Solve for l, with logarithms. Mind p = 1.",
    "1 + floor(log(1 - u) / log(1 - p)), no longer than cap. For `renormalize` shrink u first, by the share of runs that fit: 1 - (1 - p)^cap."))


MISTAKES["contrastive.lengths"] = [
    mistake("math.log1p(-p)", "math.log(p)", "p and 1 - p are exchanged: a run goes on with probability p, where it should end."),
    mistake("lengths = 1 + torch.floor(", "lengths = torch.floor(", "The count starts at 0 and not at 1, so length 1 is drawn far too often."),
    mistake("return lengths.clamp(1, cap)", "return lengths", "The cap is not used."),
    mistake("return lengths.clamp(1, cap)", "return lengths.clamp(1, cap - 1) if cap > 1 else lengths.clamp(1, 1)", "Runs are cut one too early: length `cap` never comes."),
    mistake("if renormalize:", "if False:", "`renormalize` is not used: what is too long is always cut."),
    mistake("if renormalize:", "if True:", "Runs that are too long are always drawn again; without `renormalize` they count as `cap`."),
    mistake("    if renormalize:\n        u = u * (1 - (1 - p) ** cap)", "    again = torch.randint(1, cap + 1, (n,), generator=generator)",
            "return lengths.clamp(1, cap)", "return torch.where(lengths > cap, again if renormalize else cap, lengths)",
            "With `renormalize` a run that is too long gets any length from 1 to `cap`, all alike. Drawn again means from the same distribution: the ratios stay."),
    mistake("return lengths.clamp(1, cap)", "return torch.randint(1, cap + 1, (n,), generator=generator)", "All lengths are equally likely."),
    mistake("return lengths.clamp(1, cap)", "return torch.where(lengths > cap, 1, lengths)", "A run that is too long becomes one of length 1."),
    mistake("torch.rand(n, generator=generator, device=device, dtype=torch.float64)", "torch.rand(n, dtype=torch.float64)",
            "The generator is not used, so a run cannot be repeated."),
    mistake("torch.rand(n, generator=generator, device=device, dtype=torch.float64)", "torch.rand(1, generator=generator, dtype=torch.float64).expand(n)",
            "One length is drawn for all."),
    mistake("torch.rand(n, generator=generator, device=device, dtype=torch.float64)", "torch.rand(n, generator=torch.Generator().manual_seed(0), dtype=torch.float64)",
            "The numbers are drawn from a fixed seed, so the same lengths come every time."),
    mistake("torch.rand(n, generator=generator, device=device, dtype=torch.float64)", "torch.rand(n, generator=generator or torch.Generator(), dtype=torch.float64)",
            "Where no generator is given a new one is made. A new one starts from the same seed at every call; None means torch's own random state."),
    mistake("torch.rand(n, generator=generator, device=device, dtype=torch.float64)", "torch.rand(n, generator=generator.clone_state() if generator else None, dtype=torch.float64)",
            "The generator is copied and stays where it was, so two calls with it draw the same lengths."),
    mistake("return lengths.clamp(1, cap)", "return lengths.clamp(1, cap).int()", "The lengths are 32 bits wide; int64 was promised."),
    mistake("return lengths.clamp(1, cap)", "return lengths.clamp(1, cap)[torch.arange(n) // 2]", "Each length is used twice, for two neighbours."),
]

VARIANTS["contrastive.lengths"] = [
    '''
def span_lengths(n, p=0.3, cap=5, renormalize=False, generator=None):
    shares = p * (1 - p) ** torch.arange(cap, dtype=torch.float64)
    if not renormalize:
        shares[-1] = (1 - p) ** (cap - 1)
    if n == 0:
        return torch.zeros(0, dtype=torch.long)
    return 1 + torch.multinomial(shares, n, replacement=True, generator=generator)
''',
    '''
def span_lengths(n, p=0.3, cap=5, renormalize=False, generator=None):
    def coins(many):
        lengths = torch.ones(many, dtype=torch.long)
        going = torch.ones(many, dtype=torch.bool)
        for _ in range(cap):
            going &= torch.rand(many, generator=generator) >= p
            lengths += going
        return lengths
    lengths = coins(n)
    while renormalize and (lengths > cap).any():
        long = lengths > cap
        lengths[long] = coins(int(long.sum()))
    return lengths.clamp(max=cap)
''',
    '''
def span_lengths(n, p=0.3, cap=5, renormalize=False, generator=None):
    ends = torch.tensor([1 - (1 - p) ** l for l in range(1, cap + 1)], dtype=torch.float64)
    if renormalize:
        ends = ends / ends[-1]
    u = torch.rand(n, generator=generator, dtype=torch.float64)
    return torch.searchsorted(ends[:-1].contiguous(), u, right=True) + 1
''',
]


# ---- contrastive.spans
#
# Two thousand copies of one sentence are masked at once. What must hold for every copy is counted: changed places that were forbidden, runs with a
# hole, words that changed into something else. Then three shares: how long runs are, where they begin, how often each place is hidden. One sentence
# has a separator in the middle; a run steps over it. One has two words, one has none. Four sentences with other words and other marks come in one
# batch: what is measured on the first of them shows on the others. A word may have the number of the padding or of [MASK]; it stays a word. With
# `single_mask` the sentence gets shorter, and what is left must be the old one in order, separators included. Runs of one token in ten thousand
# copies show that each place is as likely as another: a share is then right to within .004, and .025 is allowed. Without a generator two calls
# differ.

def spans_cases(generator):
    words = 10 + torch.randperm(80, generator=generator)[:9]
    plain = {"words": words, "special": torch.tensor([1, 0, 0, 0, 0, 0, 0, 1, 1])}
    middle = {**plain, "special": torch.tensor([1, 0, 0, 1, 0, 0, 0, 1, 1]).bool()}
    cases = [Case("six words", plain),
             Case("a separator in the middle", middle),
             Case("one token of six", {**plain, "cap": 1, "rows": 10_000}),
             Case("runs as long as the sentence allows", {**plain, "p": 0.05, "cap": 9}),
             Case("drawn again", {**plain, "p": 0.2, "cap": 3, "renormalize": True}),
             Case("two words", {**plain, "special": torch.tensor([1, 1, 0, 1, 1, 0, 1, 1, 1])}),
             Case("one word", {**plain, "special": torch.tensor([1, 1, 0, 1, 1, 1, 1, 1, 1])}),
             Case("no words", {**plain, "special": torch.ones(9, dtype=torch.long)}),
             Case("cap 0", {**plain, "cap": 0}),
             Case("one [MASK] for a run", {**plain, "p": 0.15, "single_mask": True, "pad_id": 3}),
             Case("one [MASK] for a run, every token a word", {**plain, "special": torch.zeros(9), "single_mask": True}),
             Case("one [MASK] for a run that steps over a separator", {**middle, "p": 0.15, "single_mask": True, "pad_id": 3})]
    mixed = {"words": torch.stack([words, words + 100, words.flip(0) + 200, words + 300]),
             "special": torch.tensor([[1, 0, 0, 0, 0, 0, 0, 1, 1], [1, 0, 1, 0, 0, 1, 0, 0, 1], [1, 0, 0, 1, 1, 1, 1, 1, 1], [1, 0, 1, 1, 1, 1, 1, 1, 1]])}
    cases += [Case("sentences of six, five, two words and one, in one batch", {**mixed, "p": 0.15, "rows": 6000}),
              Case("such a batch, one [MASK] for a run", {**mixed, "p": 0.15, "single_mask": True, "pad_id": 3, "rows": 6000})]
    return [Case(c.label, {**c.inputs, "seed": int(torch.randint(10_000, (), generator=generator))}) for c in cases]


def run_spans(hide, inputs):
    settings = {name: value for name, value in inputs.items() if name not in ("words", "special", "seed", "rows")}
    patterns = len(inputs["words"]) if inputs["words"].ndim == 2 else 1
    ids, special = (inputs[name].view(patterns, -1).repeat(inputs.get("rows", 2000) // patterns, 1) for name in ("words", "special"))
    before = ids.clone(), special.clone(), torch.get_rng_state()
    seeded = lambda: torch.Generator().manual_seed(inputs["seed"])
    out = hide(ids, special, 4, generator=seeded(), **settings)
    if out.shape != ids.shape or out.is_floating_point():
        return {"shape": torch.tensor(out.shape), "whole numbers": not out.is_floating_point()}
    kept = torch.equal(ids, before[0]) and torch.equal(special, before[1])
    again = hide(ids[:99], special[:99], 4, generator=seeded(), **settings)
    facts, count = {}, _shorter if settings.get("single_mask") else _longer
    for k in range(patterns):
        found = count(out[k::patterns], ids[k], special[k].bool(), settings.get("pad_id", 0))
        facts |= {f"{name}, sentence {k + 1}" if patterns > 1 else name: value for name, value in found.items()}
    word, goes_on = ids[0, 1].item(), seeded()                                                # the same ids, but for one word
    for number, label in ((4, "[MASK]"), (settings.get("pad_id", 0), "padding")):
        twin = hide(torch.where(ids == word, number, ids)[:99], special[:99], 4, generator=seeded(), **settings)
        facts[f"a word with the number of {label} is a word"] = torch.equal(twin, torch.where(again == word, number, again))
    facts["a generator goes on"] = not torch.equal(*(hide(ids[:99], special[:99], 4, generator=goes_on, **settings) for _ in range(2)))
    facts["share of rows that are like the next"] = (out[::2] == out[1::2]).all(1).double().mean()
    alone, other = (hide(ids[:99], special[:99], 4, **settings) for _ in range(2))           # torch's own random state
    if "rows" in inputs and patterns == 1:
        facts["each place is hidden as often"] = ((out == 4).double().mean(0)[~special[0].bool()] - 1 / 6).abs().max() < 0.025
    return {"shape": torch.tensor(out.shape), "int64": out.dtype == torch.int64, "inputs are left alone": kept, "a new tensor": out.data_ptr() != ids.data_ptr(), **facts,
            "the same seed, the same masks": torch.equal(again, hide(ids[:99], special[:99], 4, generator=seeded(), **settings)),
            "without a generator": torch.tensor(alone.shape), "without a generator, other masks each time": not torch.equal(alone, other), "rows are hidden apart": (out != out[0]).any()}


def _longer(out, words, special, pad_id):
    """Facts about masks that take one place for each token."""
    content, hidden = ~special, out == 4
    rank = content.long().cumsum(0) - 1
    first = torch.where(hidden, rank, 99).amin(1)
    length = (hidden & content).sum(1)
    last = torch.where(hidden & content, rank, -99).amax(1)
    return {"forbidden places that changed": (out[:, special] != words[special]).sum(),
            "other words that changed": ((out != words) & ~hidden).sum(),
            "runs with a hole": ((last - first + 1 != length) & (length > 0)).sum(),
            "shares of the lengths": torch.bincount(length, minlength=len(content) + 1) / len(out),
            "shares of the first hidden words": torch.bincount(first.clamp(max=len(content)), minlength=len(content) + 1) / len(out),
            "shares of copies in which each place is hidden": hidden.double().mean(0)}


def _shorter(out, words, special, pad_id):
    """Facts about sentences in which one mask stands for a run."""
    gone = (out == pad_id).sum(1)
    start = (out == 4).long().argmax(1)
    place = torch.arange(len(words))
    rank = (~special).long().cumsum(0) - 1
    left = ~special & (rank > rank[start][:, None]) & (rank <= (rank[start] + gone)[:, None])   # what the mask stands for, beside its own place
    source = left.long().argsort(dim=1, stable=True)                                     # where each token comes from
    real = place < len(words) - gone[:, None]
    same = (out == words[source]) | (place == start[:, None]) | ~real
    return {"rows with one mask": ((out == 4).sum(1) == 1).sum(), "pads before the end": ((out == pad_id) & real).sum(), "tokens out of order": (~same).sum(),
            "masks in forbidden places": special[start].sum(),
            "shares of the lengths": torch.bincount(gone + 1, minlength=len(words) + 1) / len(out),
            "shares of the places of the mask": torch.bincount(start, minlength=len(words)) / len(out)}


TRIALS["contrastive.spans"] = Trial(spans_cases, run_spans, replay=True, subject="spans and mirror", atol=0.08, hints=(
    "Count the words of each row, draw a length for each, then a place where a run of that length can begin. Three numbers a row, no loop.",
    "Number the words of a row 0, 1, 2, ... with `cumsum` over the places that are allowed. A run hides the words from start to start + length - 1. Of n words it can begin in n - length + 1 places.",
    "length = span_lengths(B, ...) but at most count - 1; start = floor(rand(B) * (count - length + 1)); hidden = content & (rank >= start) & (rank < start + length); "
    "masked_fill. For `single_mask`, `_close_gaps(masked, gone, pad_id)` takes out all of the run but its first token."))


_WRONG_LENGTH = "span_lengths(len(content), p, cap, renormalize, generator)"
_WRONG_START = "torch.rand(len(content), generator=generator, device=drawing_device(generator), dtype=torch.float64)"
_WRONG_HIDDEN = "hidden = content & (rank >= start[:, None]) & (rank < (start + length)[:, None])"
MISTAKES["contrastive.spans"] = [
    mistake("content = ~special_mask.bool().cpu()", "content = special_mask.bool().cpu()", "`special_mask` is read the wrong way round: only [CLS], [SEP] and padding are hidden."),
    mistake("content = ~special_mask.bool().cpu()", "content = torch.ones_like(special_mask).bool().cpu()", "`special_mask` is not used: [CLS], [SEP] and padding are hidden like words."),
    mistake(".minimum((count - 1).clamp_min(0))", ".minimum(count)", "A run may hide the whole sentence; one word at least should stay."),
    mistake("room = (count - length + 1)", "room = (count - length)", "A run can never begin in the last place where it would fit: the range is one short."),
    mistake("room = (count - length + 1)", "room = count", "A run may begin at any word, so runs near the end are cut off there and come out shorter than drawn."),
    mistake("* room).long()", "* 0).long()", "A run always begins at the first word."),
    mistake("* room).long()", "* (room - 1)).round().long()", "The place is rounded to the nearest, so the first and the last come half as often as the others."),
    mistake("(chance.cpu() * room).long()", "torch.randint(content.shape[1], (len(content),), generator=generator) % room.long()",
            "A place in the row is drawn and the remainder taken: where the division leaves one, the first places come more often."),
    mistake(_WRONG_START, "torch.rand(1, generator=generator, dtype=torch.float64)", "One place is drawn for the whole batch, so all rows hide the same words."),
    mistake(_WRONG_LENGTH, "span_lengths(1, p, cap, renormalize, generator).expand(len(content))", "One length is drawn for the whole batch."),
    mistake("rank = content.cumsum(1) - 1", "rank = torch.arange(content.shape[1]).expand_as(content)",
            "Places are counted from the start of the row, [CLS] included, and not among the words: the run begins too early and loses what falls on a forbidden place."),
    mistake("(rank < (start + length)[:, None])", "(rank <= (start + length)[:, None])", "A run is one word too long."),
    mistake("(rank >= start[:, None])", "(rank > start[:, None])", "The first word of a run is not hidden."),
    mistake(_WRONG_HIDDEN, "seeded = torch.rand(content.shape, generator=generator).masked_fill(~content, 2)\n    hidden = content & (seeded.argsort(1).argsort(1) < length[:, None])",
            "As many words as the run has are hidden, but scattered over the sentence and not in a row."),
    mistake("masked = input_ids.masked_fill(", "masked = input_ids.masked_fill_(", "The ids that came in are overwritten."),
    mistake("if not single_mask:", "if True:", "`single_mask` is not used: each hidden token gets a [MASK] of its own."),
    mistake("return _close_gaps(masked, gone.to(input_ids.device), pad_id)", "return masked.masked_fill(gone.to(input_ids.device), pad_id)",
            "With `single_mask` the gap is filled with padding in the middle of the sentence; what is left should move together."),
    mistake("gone = hidden & (rank > start[:, None])", "inside = (hidden.cumsum(1) > 0) & (hidden.flip(1).cumsum(1).flip(1) > 0)\n    gone = inside & ~(hidden & (rank == start[:, None]))",
            "With `single_mask` everything between the ends of a run is taken out, a separator that the run steps over as well."),
    mistake("gone = hidden & (rank > start[:, None])", "gone = hidden", "With `single_mask` the whole run disappears, and no [MASK] says that something is missing."),
    mistake("gone.to(input_ids.device), pad_id)", "gone.to(input_ids.device), 0)", "`pad_id` is not used: the end of shorter rows is always filled with 0."),
    mistake(_WRONG_LENGTH, "span_lengths(len(content), p, cap, False, generator)", "`renormalize` is not passed on."),
    mistake(_WRONG_LENGTH, "span_lengths(len(content), 0.3, cap, renormalize, generator)", "`p` is not passed on."),
    mistake(_WRONG_START, "torch.rand(len(content), dtype=torch.float64)", "The generator is used for the lengths but not for the places, so a run cannot be repeated."),
    mistake("content = ~special_mask.bool().cpu()", "content = ~special_mask[:1].expand_as(special_mask).bool().cpu()",
            "The special mask of the first sentence is used for all of them."),
    mistake("content = ~special_mask.bool().cpu()", "content = ~special_mask.bool().cpu() & (input_ids != pad_id)",
            "A word that has the number of the padding is passed over; only `special_mask` says what is no word."),
    mistake("content = ~special_mask.bool().cpu()", "content = ~special_mask.bool().cpu() & (input_ids != mask_id)",
            "A word that is [MASK] already is passed over; only `special_mask` says what is no word."),
    mistake("(count - 1).clamp_min(0)", "(count.min() - 1).clamp_min(0)", "The shortest sentence of the batch limits the runs of all; each has its own number of words."),
    mistake("content = ~special_mask", "generator = generator.clone_state() if generator else None\n    content = ~special_mask",
            "The generator is copied and stays where it was, so two calls with it hide the same words."),
    mistake("content = ~special_mask", "generator = torch.Generator() if generator is None else generator\n    content = ~special_mask",
            "Where no generator is given a new one is made. A new one starts from the same seed at every call; None means torch's own random state."),
    mistake("masked = input_ids.masked_fill(hidden.to(input_ids.device), mask_id)", "masked = input_ids.masked_fill(hidden.to(input_ids.device), mask_id).int()",
            "The ids come back 32 bits wide; int64 was promised."),
    mistake("    if cap == 0:\n        return input_ids.clone()\n", "    cap = max(cap, 1)\n", "A cap of 0 hides one word; it should hide nothing."),
    mistake("return input_ids.clone()", "return input_ids", "With a cap of 0 the tensor that came in is returned itself, not a copy."),
    mistake(".minimum((count - 1).clamp_min(0))", ".minimum((count // 2).clamp_min(1)).minimum(count)",
            "A run is limited to half of the words, and the only word of a sentence is hidden."),
    mistake(_WRONG_LENGTH, "torch.full((len(content),), cap)", "Every run is as long as the cap allows; the length should be drawn."),
]

VARIANTS["contrastive.spans"] = [
    '''
def span_mask(input_ids, special_mask, mask_id, p=0.3, cap=5, generator=None, renormalize=False, single_mask=False, pad_id=0):
    out = input_ids.clone()
    if cap == 0:
        return out
    starts = torch.rand(len(out), generator=generator).tolist()
    lengths = span_lengths(len(out), p, cap, renormalize, generator).tolist()
    for row, special, u, length in zip(out, special_mask.tolist(), starts, lengths):
        places = [t for t, s in enumerate(special) if not s]
        if len(places) < 2:
            continue
        length = min(length, len(places) - 1)
        start = int(u * (len(places) - length + 1))
        run = places[start : start + length]
        row[run] = mask_id
        if single_mask:
            ids = [token for t, token in enumerate(row.tolist()) if t not in run[1:]]
            row[:] = torch.tensor(ids + [pad_id] * (len(row) - len(ids)))
    return out
''',
    '''
def span_mask(input_ids, special_mask, mask_id, p=0.3, cap=5, generator=None, renormalize=False, single_mask=False, pad_id=0):
    if cap == 0:
        return input_ids + 0
    words = (special_mask == 0).long()
    n = words.sum(dim=1)
    length = torch.minimum(span_lengths(len(n), p, cap, renormalize, generator), torch.clamp(n - 1, min=0))
    scores = torch.rand(len(n), words.shape[1] + 1, generator=generator)
    possible = torch.arange(words.shape[1] + 1) <= (n - length)[:, None]
    begin = torch.where(possible, scores, torch.tensor(-1.0)).argmax(dim=1)
    order = torch.cumsum(words, dim=1)
    hidden = (words == 1) & (order > begin[:, None]) & (order <= (begin + length)[:, None])
    out = torch.where(hidden, torch.tensor(mask_id), input_ids)
    if single_mask:
        rest = hidden & (order != begin[:, None] + 1)
        out = torch.stack([torch.cat([row[~r], row.new_full((int(r.sum()),), pad_id)]) for row, r in zip(out, rest)])
    return out
''',
]


# ---- How strong?
