"""Exercise cases of chapter 01: WordPiece, padding, and batches of bounded size."""

import torch

from minbert.course.check_runner import Case, Trial, mistake

TRIALS, MISTAKES, VARIANTS = {}, {}, {}


def draw(generator, count):
    """A whole number from 0 to `count` - 1."""
    return int(torch.randint(count, (1,), generator=generator))


# ---- tokens.pieces
#
# Pieces are compared by their index in the vocabulary. Words that must be split from the left, by
# the longest piece, without backtracking; pieces that exist only with or only without `##`.
# Limits of 100 and of five characters, met exactly and missed by one, counted in characters of
# two bytes. Capitals, pieces of sixteen letters, and another vocabulary. Then forty random words
# over three letters and a vocabulary that lacks some pieces, so that about half of the words are
# unknown.

PIECES = [
    "un",
    "##aff",
    "##able",
    "ab",
    "a",
    "##bc",
    "##b",
    "u",
    "##n",
    "##a",
    "n",
    "unaff",
    "##ables",
    "b",
    "re",
    "##",
    "##re",
    "x",
    "##xx",
]


def _letters(generator, length):
    """Draw a word of the letters a, b and c."""
    return "".join("abc"[draw(generator, 3)] for _ in range(length))


def piece_cases(generator):
    vocab = {piece: i for i, piece in enumerate(PIECES)}
    letters = [mark + c for mark in ("", "##") for c in "abc" if draw(generator, 5)]
    longer = []
    for mark in ("", "##"):
        longer += [mark + _letters(generator, n) for n in (2, 2, 2, 3, 3, 4)]
    words = [_letters(generator, 1 + draw(generator, 8)) for _ in range(40)]
    long = {
        mark + letter * n: 100 * m + n
        for m, (mark, letter) in enumerate((("", "x"), ("##", "x"), ("", "y"), ("##", "y")))
        for n in (1, 12, 16)
    }
    single = [
        "unaffable",
        "unable",
        "able",
        "abc",
        "unaffables",
        "nun",
        "a",
        "bab",
        "xxxx",
        "xre",
        "unz",
        "zun",
        "unzable",
        "",
    ]
    return [
        *(Case(f"the word {word!r}", {"words": [word], "vocab": vocab}) for word in single),
        Case("100 characters, and 101", {"words": ["a" * 100, "a" * 101], "vocab": vocab}),
        Case(
            "at most five characters",
            {
                "words": ["ab", "unaff", "unaffa", "aaaaa", "aaaaaa", ""],
                "vocab": vocab,
                "longest": 5,
            },
        ),
        Case(
            "at most 200 characters",
            {"words": ["a" * 101, "a" * 200, "a" * 201], "vocab": vocab, "longest": 200},
        ),
        Case(
            "at most five characters, a token of six",
            {
                "words": ["ababab", "abab", "ab"],
                "vocab": {"ababab": 0, "ab": 1, "##ab": 2},
                "longest": 5,
            },
        ),
        Case(
            "tokens of up to 16 characters",
            {"words": ["x" * 12, "x" * 16 + "y", "x" * 28 + "y" * 16, "y" * 17], "vocab": long},
        ),
        Case(
            "the word 'abcde'",
            {"words": ["abcde"], "vocab": {"a": 0, "##b": 1, "##cde": 2, "abc": 3, "##de": 4}},
        ),
        Case(
            "the words of the chapter, another vocabulary",
            {
                "words": ["unable", "able", "nun", "abc", "ab"],
                "vocab": {
                    "una": 0,
                    "##ble": 1,
                    "able": 2,
                    "n": 3,
                    "##u": 4,
                    "##c": 5,
                    "a": 6,
                    "##b": 7,
                },
            },
        ),
        Case(
            "capital letters",
            {"words": ["Un", "unAff", "aB"], "vocab": vocab | {"Un": 50, "##A": 51, "##ff": 52}},
        ),
        Case(
            "60 characters of two bytes each",
            {"words": ["ä" * 60, "ä" * 101], "vocab": {"ä": 0, "##ä": 1}},
        ),
        Case(
            "forty random words",
            {
                "words": words,
                "vocab": {p: i for i, p in enumerate(dict.fromkeys(letters + longer))},
            },
        ),
    ]


def run_pieces(cut, inputs):
    vocab = dict(inputs["vocab"])
    limit = {"longest": inputs["longest"]} if "longest" in inputs else {}
    found = [list(cut(word, vocab, **limit)) for word in inputs["words"]]
    width = max(map(len, inputs["words"])) + 2
    places = inputs["vocab"] | {"[UNK]": -1}

    def place(piece):
        return places.get(piece, 1000 + sum(map(ord, str(piece))))

    rows = [list(map(place, pieces)) for pieces in found]
    return {
        "ids of the tokens, -1 for [UNK], -9 for the end": torch.tensor(
            [(row + [-9] * width)[:width] for row in rows]
        ),
        "the vocabulary is as it was": vocab == inputs["vocab"],
    }


TRIALS["tokens.pieces"] = Trial(
    piece_cases,
    run_pieces,
    hints=(
        (
            "Write two loops: the outer one moves along the word, the inner one tries the ends, longest "
            "first."
        ),
        (
            "The inner loop begins with end = len(word) and makes `end` smaller until the candidate "
            "is in the vocabulary. If it arrives at `start`, there is no match, and the tokens found "
            "so far are discarded."
        ),
        (
            "prefix = '##' if start else ''; while end > start and prefix + word[start:end] is not in "
            "the vocabulary, subtract 1 from end. If end == start, return ['[UNK]']; otherwise append "
            "the candidate and continue with start = end."
        ),
    ),
)


MISTAKES["tokens.pieces"] = [
    mistake(
        "end = len(word)  #",
        "end = start + 1  #",
        "while end > start and",
        "while end <= len(word) and",
        "end -= 1",
        "end += 1",
        "if end == start:",
        "if end > len(word):",
        "The shortest matching piece is taken. WordPiece takes the longest one.",
    ),
    mistake(
        'prefix = "##" if start else ""',
        'prefix = ""',
        "Pieces inside a word are looked up without the prefix ##.",
    ),
    mistake(
        'prefix = "##" if start else ""',
        'prefix = "##"',
        "The first piece is looked up with ##. Only pieces that continue a word have this prefix.",
    ),
    mistake(
        'return ["[UNK]"]\n        found',
        'return found + ["[UNK]"]\n        found',
        "The pieces found before the failure are kept, followed by [UNK]. The whole word "
        "becomes one [UNK].",
    ),
    mistake(
        "if len(word) > longest:",
        "if False:",
        "`longest` is not used: there is no limit on the length of a word.",
    ),
    mistake(
        "len(word) > longest",
        "len(word) >= longest",
        "A word of exactly `longest` characters is rejected. It is still allowed (off by one).",
    ),
    mistake(
        "if end == start:",
        "if end <= start + 1:",
        "Pieces of a single character are never tried (off by one).",
    ),
    mistake(
        '    if len(word) > longest:\n        return ["[UNK]"]',
        '    if len(word) > longest:\n        return "[UNK]"',
        'return ["[UNK]"]\n        found',
        'return "[UNK]"\n        found',
        "A string is returned for an unknown word. The result is always a list, here the list "
        '["[UNK]"].',
    ),
]

VARIANTS["tokens.pieces"] = [
    """
def word_pieces(word, vocab, longest=100):
    if len(word) > longest:
        return ["[UNK]"]
    found, start = [], 0
    while start < len(word):
        for end in range(len(word), start, -1):
            piece = ("##" if start else "") + word[start:end]
            if piece in vocab:
                break
        else:
            return ["[UNK]"]
        found.append(piece)
        start = end
    return found
""",
    """
def word_pieces(word, vocab, longest=100):
    def cut(rest):
        if not rest.removeprefix("##"):
            return []
        least = 3 if rest.startswith("##") else 1
        fits = next((rest[:n] for n in range(len(rest), least - 1, -1) if rest[:n] in vocab), None)
        if fits is None:
            raise KeyError(rest)
        tail = rest[len(fits):]
        return [fits] + (cut("##" + tail) if tail else [])
    try:
        return cut(word) if len(word) <= longest else ["[UNK]"]
    except KeyError:
        return ["[UNK]"]
""",
    """
def word_pieces(word, vocab, longest=100):
    start, out = 0, []
    while start < len(word) <= longest:
        candidates = [
            word[start:end] if start == 0 else "##" + word[start:end]
            for end in range(start + 1, len(word) + 1)
        ]
        known = [c for c in candidates if c in vocab]
        if not known:
            out = ["[UNK]"]
            break
        out.append(max(known, key=len))
        start += len(out[-1]) - (2 if start else 0)
    return out if len(word) <= longest else ["[UNK]"]
""",
]


# ---- tokens.pad
#
# Rows of different lengths in no order, one of them empty, real ids that equal the padding, a
# padding other than 0, large ids, a row longer than any model accepts. The rows themselves must
# not change.


def pad_cases(generator):
    def rows(*lengths):
        return [[1 + draw(generator, 99) for _ in range(n)] for n in lengths]

    return [
        Case("rows of 3, 5 and 2", {"ids": rows(3, 5, 2)}),
        Case("padding with 7", {"ids": rows(2, 4, 1, 4), "pad_id": 7}),
        Case(
            "real tokens with the id of the padding",
            {"ids": [[0, 5, 0], [4], [0, 0, 0, 0], [9, 0]]},
        ),
        Case("an empty row", {"ids": [*rows(2), [], *rows(3)]}),
        Case("one row", {"ids": rows(4)}),
        Case("one token", {"ids": rows(1), "pad_id": 3}),
        Case("rows of one length", {"ids": rows(3, 3)}),
        Case("the longest row last", {"ids": rows(1, 2, 6)}),
        Case(
            "ids up to a hundred thousand",
            {"ids": [[100_000 + token for token in row] for row in rows(2, 3)]},
        ),
        Case("a row of 600", {"ids": rows(600, 2)}),
    ]


def run_pad(pad, inputs):
    rows = [list(row) for row in inputs["ids"]]
    batch = pad(rows, **{name: value for name, value in inputs.items() if name == "pad_id"}).to(
        "cpu"
    )
    return {
        "input_ids": batch.input_ids,
        "attention_mask": batch.attention_mask,
        "the rows are as they were": rows == inputs["ids"],
        "both are int64": batch.input_ids.dtype == batch.attention_mask.dtype == torch.int64,
    }


TRIALS["tokens.pad"] = Trial(
    pad_cases,
    run_pad,
    hints=(
        (
            "T is the length of the longest row. Each row needs T minus its own length of "
            "padding, and the mask needs as many zeros."
        ),
        (
            "The mask follows from lengths alone: torch.arange(T) < lengths[:, None]. Do not look "
            "at the ids for it."
        ),
        (
            "TokenBatch(torch.tensor([row + [pad_id] * (T - len(row)) ...]), torch.tensor([[1] * "
            "len(row) + [0] * (T - len(row)) ...]))."
        ),
    ),
)


_WRONG_BATCH = "return TokenBatch(input_ids, real.long())"

MISTAKES["tokens.pad"] = [
    mistake(
        "real = torch.arange(int(lengths.max())) < lengths[:, None]",
        "real = torch.arange(int(lengths.max())).flip(0) < lengths[:, None]",
        "The padding is on the left. It belongs on the right, after the real tokens.",
    ),
    mistake(
        _WRONG_BATCH,
        "return TokenBatch(input_ids, torch.ones_like(input_ids))",
        "The attention mask is 1 everywhere, so padding counts as real tokens.",
    ),
    mistake(
        _WRONG_BATCH,
        "return TokenBatch(input_ids, (input_ids != pad_id).long())",
        "The mask is computed by comparing ids with `pad_id`, so a real token that has this id "
        "is masked out. Use the lengths.",
    ),
    mistake(
        _WRONG_BATCH,
        "return TokenBatch(input_ids, (~real).long())",
        "The mask is inverted: 1 marks a real token.",
    ),
    mistake(
        "torch.full(real.shape, pad_id)",
        "torch.full(real.shape, 0)",
        "`pad_id` is not used: the padding is always 0.",
    ),
    mistake(
        "real = torch.arange(int(lengths.max())) < lengths[:, None]",
        "real = torch.arange(512) < lengths[:, None]",
        "The batch is padded to the maximum length of the model. T is the length of the longest "
        "row.",
    ),
    mistake(
        _WRONG_BATCH,
        "return TokenBatch(input_ids, real)",
        "The mask is boolean. An integer mask (int64) is expected, because it is summed later.",
    ),
    mistake(
        _WRONG_BATCH,
        (
            "longest = max(map(len, ids))\n"
            "    for row in ids:\n"
            "        row += [pad_id] * (longest - len(row))\n"
            "    "
        )
        + _WRONG_BATCH,
        "The caller's lists are changed in place: `row += ...` modifies the list that was "
        "passed in, `row + ...` makes a new one.",
    ),
]

VARIANTS["tokens.pad"] = [
    """
def pad_ids(ids, pad_id=0):
    T = max(len(row) for row in ids)
    filled = [list(row) + [pad_id] * (T - len(row)) for row in ids]
    mask = [[1] * len(row) + [0] * (T - len(row)) for row in ids]
    return TokenBatch(torch.tensor(filled), torch.tensor(mask))
""",
    """
def pad_ids(ids, pad_id=0):
    rows = [torch.tensor(row, dtype=torch.long) for row in ids]
    filled = torch.nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=pad_id)
    mask = torch.nn.utils.rnn.pad_sequence([torch.ones_like(row) for row in rows], batch_first=True)
    return TokenBatch(input_ids=filled, attention_mask=mask)
""",
    """
def pad_ids(ids, pad_id=0):
    shape = len(ids), max(map(len, ids))
    filled, mask = (
        torch.zeros(shape, dtype=torch.long) + pad_id,
        torch.zeros(shape, dtype=torch.long),
    )
    for b, row in enumerate(ids):
        filled[b, : len(row)] = torch.tensor(row, dtype=torch.long)
        mask[b, : len(row)] = 1
    return TokenBatch(filled, mask)
""",
]


# ---- tokens.budget
#
# Budgets that fit exactly and budgets that leave one token over, rows of equal length whose order
# must stay, a single row, and forty random lengths. A batch is compared by the number it gives to
# each row, and by the position of the row in it.


def budget_cases(generator):
    many = [1 + draw(generator, 12) for _ in range(40)]
    return [
        Case("lengths 1, 3, 2, 2, a budget of 6", {"lengths": [1, 3, 2, 2], "budget": 6}),
        Case("lengths 2, 4, 3, a budget of 8", {"lengths": [2, 4, 3], "budget": 8}),
        Case("lengths 5, 1, 1, 1, 1, a budget of 6", {"lengths": [5, 1, 1, 1, 1], "budget": 6}),
        Case("rows of one length", {"lengths": [3] * 7, "budget": 10}),
        Case("rows of two lengths, mixed", {"lengths": [2, 5, 2, 5, 5, 2, 2], "budget": 10}),
        Case("one row that fills the budget", {"lengths": [4], "budget": 4}),
        Case("a budget for everything", {"lengths": [2, 3, 1], "budget": 9}),
        Case("forty rows of one token", {"lengths": [1] * 40, "budget": 64}),
        Case("forty random rows, a budget of 24", {"lengths": many, "budget": 24}),
        Case("forty random rows, a budget of 12", {"lengths": many, "budget": 12}),
    ]


def run_budget(cut, inputs):
    lengths = list(inputs["lengths"])
    groups = [list(map(int, group)) for group in cut(lengths, inputs["budget"])]
    place = {row: (b, i) for b, group in enumerate(groups) for i, row in enumerate(group)}
    return {
        "index of the batch of each row, -1 for none": torch.tensor(
            [place.get(row, (-1, -1))[0] for row in range(len(lengths))]
        ),
        "position of each row in its batch": torch.tensor(
            [place.get(row, (-1, -1))[1] for row in range(len(lengths))]
        ),
        "sizes of the batches": torch.tensor([len(group) for group in groups]),
        "the lengths are as they were": lengths == inputs["lengths"],
    }


TRIALS["tokens.budget"] = Trial(
    budget_cases,
    run_budget,
    hints=(
        "Sort the indices of the rows first. Then every batch begins with its longest row.",
        (
            "How many rows fit is decided by the first row of the batch alone: budget // its "
            "length. Python's `sorted` keeps the order of equals."
        ),
        (
            "order = sorted(range(N), key=lambda i: lengths[i], reverse=True); then repeatedly take the "
            "next budget // lengths[first] of them."
        ),
    ),
)


MISTAKES["tokens.budget"] = [
    mistake(
        "key=lambda i: lengths[i], reverse=True",
        "key=lambda i: lengths[i]",
        "size = max(1, budget // longest)",
        "size = 1\n"
        "        while start + size < len(order) and (size + 1) * lengths[order[start + "
        "size]] <= budget:\n"
        "            size += 1",
        "The batches are sorted from short to long. The longest come first, so that running out "
        "of memory shows at the start.",
    ),
    mistake(
        "sorted(range(len(lengths)), key=lambda i: lengths[i], reverse=True)",
        "list(range(len(lengths)))",
        "size = max(1, budget // longest)",
        "size = 1\n"
        "        while start + size < len(order) and (size + 1) * max(lengths[i] for i in "
        "order[start:start + size + 1]) <= budget:\n"
        " "
        "           size += 1",
        "The rows are not sorted by length, so short rows are padded to the length of long ones.",
    ),
    mistake(
        "size = max(1, budget // longest)",
        "size = 1\n        while start + size < len(order) and sum(lengths[i] for i "
        "in order[start:start + size + 1]) <= budget:\n            size += 1",
        "Only real tokens are counted. Padding takes memory as well: the cost of a batch is "
        "rows times the longest length.",
    ),
    mistake(
        "size = max(1, budget // longest)",
        "size = max(1, (budget - 1) // lengths[order[start]])",
        "A batch that fills the budget exactly is split. It is still allowed (off by one).",
    ),
    mistake(
        "size = max(1, budget // longest)",
        "size = -(-budget // lengths[order[start]])",
        "The number of rows is rounded up, so batches exceed the budget.",
    ),
    mistake(
        "size = max(1, budget // longest)",
        "size = budget",
        "The budget is used as a number of rows. It is a number of tokens, padding included.",
    ),
    mistake(
        "while start < len(order):",
        "while start + max(1, budget) // max(1, lengths[order[start]]) < len(order):",
        "The last, incomplete batch is dropped.",
    ),
    mistake(
        "groups.append(order[start:start + size])",
        "groups.append([lengths[i] for i in order[start:start + size]])",
        "The batches contain lengths. They should contain row indices.",
    ),
]

VARIANTS["tokens.budget"] = [
    """
def budget_cut(lengths, budget):
    groups = []
    for i in sorted(range(len(lengths)), key=lengths.__getitem__, reverse=True):
        if groups and (len(groups[-1]) + 1) * lengths[groups[-1][0]] <= budget:
            groups[-1].append(i)
        else:
            groups.append([i])
    return groups
""",
    """
def budget_cut(lengths, budget):
    left = torch.tensor(lengths).argsort(descending=True, stable=True).tolist()
    groups = []
    while left:
        n = budget // lengths[left[0]]
        groups, left = groups + [left[:n]], left[n:]
    return groups
""",
]
