"""How the exercises of chapter 01 are checked: words into pieces, rows into a rectangle, rectangles into a budget."""


import torch

from minbert.course.trials import Case, Trial, mistake


# A list of pieces is no tensor. How do you compare it number by number?
#
# By places: each piece counts as its place in the vocabulary. Then the same comparison serves words as serves attention.

TRIALS, MISTAKES, VARIANTS = {}, {}, {}


def draw(generator, count):
    """A whole number from 0 to `count` - 1."""
    return int(torch.randint(count, (1,), generator=generator))


# ---- tokens.pieces
#
# Words that must not be cut from the other end, not by the shortest piece, not by going back; beginnings that exist only with `##`, and rests that
# exist only without. Limits of 100 and of five characters, hit exactly and missed by one, counted in letters of two bytes, and exceeded by a word
# that is itself a piece. Capitals, and pieces of sixteen letters, and words that another list of pieces cuts in another way. Then forty random words over
# three letters and a vocabulary that lacks some: half of them cannot be cut, and the two halves change with the seed.

PIECES = ["un", "##aff", "##able", "ab", "a", "##bc", "##b", "u", "##n", "##a", "n", "unaff", "##ables", "b", "re", "##", "##re", "x", "##xx"]


def piece_cases(generator):
    vocab = {piece: i for i, piece in enumerate(PIECES)}
    letters = [mark + c for mark in ("", "##") for c in "abc" if draw(generator, 5)]
    longer = [mark + "".join("abc"[draw(generator, 3)] for _ in range(n)) for mark in ("", "##") for n in (2, 2, 2, 3, 3, 4)]
    words = ["".join("abc"[draw(generator, 3)] for _ in range(1 + draw(generator, 8))) for _ in range(40)]
    long = {mark + letter * n: 100 * m + n for m, (mark, letter) in enumerate((("", "x"), ("##", "x"), ("", "y"), ("##", "y"))) for n in (1, 12, 16)}
    single = ["unaffable", "unable", "able", "abc", "unaffables", "nun", "a", "bab", "xxxx", "xre", "unz", "zun", "unzable", ""]
    return [*(Case(f"the word {word!r}", {"words": [word], "vocab": vocab}) for word in single),
            Case("100 letters, and 101", {"words": ["a" * 100, "a" * 101], "vocab": vocab}),
            Case("at most five letters", {"words": ["ab", "unaff", "unaffa", "aaaaa", "aaaaaa", ""], "vocab": vocab, "longest": 5}),
            Case("at most 200 letters", {"words": ["a" * 101, "a" * 200, "a" * 201], "vocab": vocab, "longest": 200}),
            Case("at most five letters, a piece of six", {"words": ["ababab", "abab", "ab"], "vocab": {"ababab": 0, "ab": 1, "##ab": 2}, "longest": 5}),
            Case("pieces of up to 16 letters", {"words": ["x" * 12, "x" * 16 + "y", "x" * 28 + "y" * 16, "y" * 17], "vocab": long}),
            Case("the word 'abcde'", {"words": ["abcde"], "vocab": {"a": 0, "##b": 1, "##cde": 2, "abc": 3, "##de": 4}}),
            Case("words from above, other pieces", {"words": ["unable", "able", "nun", "abc", "ab"], "vocab": {"una": 0, "##ble": 1, "able": 2, "n": 3, "##u": 4, "##c": 5, "a": 6, "##b": 7}}),
            Case("capital letters", {"words": ["Un", "unAff", "aB"], "vocab": vocab | {"Un": 50, "##A": 51, "##ff": 52}}),
            Case("60 letters of two bytes each", {"words": ["ä" * 60, "ä" * 101], "vocab": {"ä": 0, "##ä": 1}}),
            Case("forty random words", {"words": words, "vocab": {p: i for i, p in enumerate(dict.fromkeys(letters + longer))}})]


def run_pieces(cut, inputs):
    vocab = dict(inputs["vocab"])
    limit = {"longest": inputs["longest"]} if "longest" in inputs else {}
    found = [list(cut(word, vocab, **limit)) for word in inputs["words"]]
    width = max(map(len, inputs["words"])) + 2
    places = inputs["vocab"] | {"[UNK]": -1}
    rows = [[places.get(piece, 1000 + sum(map(ord, str(piece)))) for piece in pieces] for pieces in found]
    return {"places of the pieces, -1 for [UNK], -9 for no more": torch.tensor([(row + [-9] * width)[:width] for row in rows]),
            "the vocabulary is as it was": vocab == inputs["vocab"]}


TRIALS["tokens.pieces"] = Trial(piece_cases, run_pieces, hints=(
    "Two loops: the outer one moves along the word, the inner one tries the ends, longest first.",
    "If no end fits, all that was found so far is worth nothing. Python's `for ... else` runs the `else` when the loop was not left by `break`.",
    "For end from len(word) down to start + 1: piece = ('##' if start else '') + word[start:end]; leave the loop at the first that is in the "
    "vocabulary, "
    "append it, go on at end; where none is, return ['[UNK]']."))


MISTAKES["tokens.pieces"] = [
    mistake("range(len(word), start, -1)", "range(start + 1, len(word) + 1)", "The shortest piece is taken. It is the longest that counts."),
    mistake('("##" if start else "") + ', "", "Pieces inside a word are looked up without ##."),
    mistake('("##" if start else "")', '"##"', "The first piece is looked up with ##. Only pieces that continue a word have it."),
    mistake('return ["[UNK]"]\n        found', 'return found + ["[UNK]"]\n        found',
            "What was found before the gap is kept. The whole word is unknown."),
    mistake('return ["[UNK]"]\n        found', 'return found\n        found',
            "What was found before the gap is returned, and the rest of the word is lost."),
    mistake('return ["[UNK]"]\n        found', 'found.append("[UNK]")\n            start += 1\n            continue\n        found',
            "Each letter that fits nowhere becomes an [UNK] of its own. The whole word is unknown."),
    mistake("if len(word) > longest:", "if False:", "There is no limit to the length of a word."),
    mistake("len(word) > longest", "len(word) >= longest", "A word of exactly `longest` characters is refused. It is still allowed."),
    mistake("len(word) > longest", "len(word) > 100", "The limit is always 100. It should be `longest`."),
    mistake("range(len(word), start, -1)", "range(len(word), start + 1, -1)", "Pieces of a single letter are never tried."),
    mistake("range(len(word), start, -1)", "range(max(start + 1, len(word) - 1), start, -1)",
            "The whole rest of the word is never tried, unless it is a single letter."),
    mistake("found.append(piece)", "found.append(word[start:end])", "The pieces have lost their ##."),
    mistake("if piece in vocab:", "if piece in vocab or word[start:end] in vocab:",
            "Inside a word, pieces without ## pass as well. Those only start words."),
    mistake('return ["[UNK]"]\n        found', 'return []\n        found', "A word that cannot be cut gives nothing. It should give [UNK]."),
    mistake("    found, start = [], 0", '''    def spell(start):
        if start == len(word):
            return []
        for end in range(len(word), start, -1):
            piece = ("##" if start else "") + word[start:end]
            if piece in vocab and (rest := spell(end)) is not None:
                return [piece, *rest]
        return None
    if len(word) < 50:
        return ["[UNK]"] if spell(0) is None else spell(0)
    found, start = [], 0''', "Where it gets stuck, it goes back and tries a shorter piece. BERT never goes back."),
    mistake("    found, start = [], 0", '''    found, end = [], len(word)
    while end:
        fits = [s for s in range(end) if ("##" if s else "") + word[s:end] in vocab]
        if not fits:
            return ["[UNK]"]
        found, end = [("##" if fits[0] else "") + word[fits[0]:end], *found], fits[0]
    return found
    start = 0''', "The word is cut from its end. The longest piece that fits its beginning comes first."),
    mistake("    found, start = [], 0", '''    best = {0: []}
    for s in range(len(word)):
        for end in range(s + 1, len(word) + 1):
            piece = ("##" if s else "") + word[s:end]
            if s in best and piece in vocab and (end not in best or len(best[end]) > len(best[s]) + 1):
                best[end] = [*best[s], piece]
    return best.get(len(word), ["[UNK]"])
    found, start = [], 0''', "The word is cut into as few pieces as possible. BERT looks at one piece after the other."),
    mistake("    if len(word) > longest:\n        return [\"[UNK]\"]\n", "    word = word[:longest]\n",
            "A word that is too long is cut off at `longest`. The whole word is unknown."),
    mistake("if len(word) > longest:", "if len(word.encode()) > longest:", "Bytes are counted. `longest` counts characters, and a letter can take several bytes."),
    mistake("if len(word) > longest:", "if word in vocab:\n        return [word]\n    if len(word) > longest:",
            "A word that is itself a piece passes whatever its length. The limit comes first."),
    mistake("if len(word) > longest:", "word = word.lower()\n    if len(word) > longest:", "The word is put into lower case. It comes as it is to be looked up."),
    mistake("if len(word) > longest:", "if not word or len(word) > longest:", "An empty word gives [UNK]. It has no pieces."),
    mistake("    found, start = [], 0", "    kept = word_pieces.__dict__\n    if word in kept:\n        return kept[word]\n    found, start = kept.setdefault(word, []), 0",
            "The pieces of a word are kept from call to call. Another vocabulary may cut the same word in another way."),
    mistake('return ["[UNK]"]\n        found', 'return found or ["[UNK]"]\n        found', "Where nothing fits any more, what was found before comes back. The whole word is unknown."),
    mistake("        for end in range(len(word), start, -1):  # longest first\n            piece = (\"##\" if start else \"\") + word[start:end]\n            if piece in vocab:\n"
            "                break\n        else:\n            return [\"[UNK]\"]\n",
            "        mark, end = \"##\" if start else \"\", start\n        while end < len(word) and mark + word[start:end + 1] in vocab:\n            end += 1\n        if end == start:\n"
            "            return [\"[UNK]\"]\n        piece = mark + word[start:end]\n",
            "A piece grows letter by letter, and only as long as each step is a piece. A longer one can be in the vocabulary although a shorter one is not."),
    mistake("start = end", "start += len(piece)", "The two signs ## are counted as letters, so letters behind a piece are passed over."),
    mistake("    if len(word) > longest:\n        return [\"[UNK]\"]", "    if len(word) > longest:\n        return []", "A word that is too long gives nothing. It should give [UNK]."),
    mistake("    if len(word) > longest:\n        return [\"[UNK]\"]", "    if len(word) > longest:\n        return \"[UNK]\"", "else:\n            return [\"[UNK]\"]",
            "else:\n            return \"[UNK]\"", "An unknown word gives a text. A list was promised, with that text in it."),
]

VARIANTS["tokens.pieces"] = [
    '''
def word_pieces(word, vocab, longest=100):
    if len(word) > longest:
        return ["[UNK]"]
    pieces, rest, mark = [], word, ""
    while rest:
        size = len(rest)
        while size and mark + rest[:size] not in vocab:
            size -= 1
        if size == 0:
            return ["[UNK]"]
        pieces.append(mark + rest[:size])
        rest, mark = rest[size:], "##"
    return pieces
''',
    '''
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
''',
    '''
def word_pieces(word, vocab, longest=100):
    start, out = 0, []
    while start < len(word) <= longest:
        candidates = [word[start:end] if start == 0 else "##" + word[start:end] for end in range(start + 1, len(word) + 1)]
        known = [c for c in candidates if c in vocab]
        if not known:
            out = ["[UNK]"]
            break
        out.append(max(known, key=len))
        start += len(out[-1]) - (2 if start else 0)
    return out if len(word) <= longest else ["[UNK]"]
''',
]


# ---- tokens.pad
#
# Rows of different lengths in no order, one of them empty, real ids that equal the padding, a padding other than 0, large ids, a row longer than any
# model reads. The rows themselves must stay as they were: who appends zeros to them changes the caller's data.

def pad_cases(generator):
    def rows(*lengths):
        return [[1 + draw(generator, 99) for _ in range(n)] for n in lengths]
    return [Case("rows of 3, 5 and 2", {"ids": rows(3, 5, 2)}),
            Case("padding with 7", {"ids": rows(2, 4, 1, 4), "pad_id": 7}),
            Case("real tokens with the id of the padding", {"ids": [[0, 5, 0], [4], [0, 0, 0, 0], [9, 0]]}),
            Case("an empty row", {"ids": [*rows(2), [], *rows(3)]}),
            Case("one row", {"ids": rows(4)}),
            Case("one token", {"ids": rows(1), "pad_id": 3}),
            Case("rows of one length", {"ids": rows(3, 3)}),
            Case("the longest row last", {"ids": rows(1, 2, 6)}),
            Case("ids up to a hundred thousand", {"ids": [[100_000 + token for token in row] for row in rows(2, 3)]}),
            Case("a row of 600", {"ids": rows(600, 2)})]


def run_pad(pad, inputs):
    rows = [list(row) for row in inputs["ids"]]
    batch = pad(rows, **{name: value for name, value in inputs.items() if name == "pad_id"}).to("cpu")
    return {"input_ids": batch.input_ids, "attention_mask": batch.attention_mask, "the rows are as they were": rows == inputs["ids"],
            "both are int64": batch.input_ids.dtype == batch.attention_mask.dtype == torch.int64}


TRIALS["tokens.pad"] = Trial(pad_cases, run_pad, hints=(
    "The length of the longest row gives T. Each row needs T minus its own length of filling; the mask needs as many zeros.",
    "The mask follows from lengths alone: torch.arange(T) < lengths[:, None]. Do not look at the ids for it.",
    "TokenBatch(torch.tensor([row + [pad_id] * (T - len(row)) ...]), torch.tensor([[1] * len(row) + [0] * (T - len(row)) ...]))."))


_WRONG_BATCH = "return TokenBatch(input_ids, real.long())"

MISTAKES["tokens.pad"] = [
    mistake("real = torch.arange(int(lengths.max())) < lengths[:, None]", "real = torch.arange(int(lengths.max())).flip(0) < lengths[:, None]",
            "The padding stands in front. It belongs behind."),
    mistake(_WRONG_BATCH, "return TokenBatch(input_ids, torch.ones_like(input_ids))", "The mask is 1 everywhere, so pads pass for words."),
    mistake(_WRONG_BATCH, "return TokenBatch(input_ids, (input_ids != pad_id).long())",
            "The mask is read off the ids, so a real token with the id of the padding is lost."),
    mistake(_WRONG_BATCH, "return TokenBatch(input_ids, (input_ids != 0).long())",
            "The mask says which ids are not 0. Padding may have another id, and a real token may have this one."),
    mistake(_WRONG_BATCH, "return TokenBatch(input_ids, (~real).long())", "The mask is the wrong way round. 1 means real."),
    mistake("torch.full(real.shape, pad_id)", "torch.full(real.shape, 0)", "`pad_id` is not used: the filling is always 0."),
    mistake("lengths.max()", "lengths.max() + 1", "The rectangle has a column too many. T is the length of the longest row."),
    mistake("real = torch.arange(int(lengths.max())) < lengths[:, None]", "real = torch.arange(512) < lengths[:, None]",
            "The rectangle is as wide as the model allows. T is the length of the longest row."),
    mistake(_WRONG_BATCH, "return TokenBatch(input_ids, real)", "The mask holds truth values. Whole numbers were promised: they can be added up."),
    mistake(_WRONG_BATCH, "return TokenBatch(input_ids, real.float())", "The mask holds fractions. Whole numbers were promised."),
    mistake(_WRONG_BATCH, "return TokenBatch(input_ids, real.int())", "The whole numbers are not int64, as they are in every `TokenBatch`."),
    mistake("    flat = _check_rows(ids)", "    longest = max(map(len, ids))\n    for row in ids:\n        row += [pad_id] * (longest "
            "- len(row))\n    flat = _check_rows(ids)",
            "The caller's rows are filled up in place, and then count as real to their new end."),
    mistake(_WRONG_BATCH, "longest = max(map(len, ids))\n    for row in ids:\n        row += [pad_id] * (longest - len(row))\n    " + _WRONG_BATCH,
            "The caller's rows are filled up in place. `row += ...` writes into the list that was given; `row + ...` makes a new one."),
    mistake("    flat = _check_rows(ids)", "    ids = sorted(ids, key=len, reverse=True)\n    flat = _check_rows(ids)",
            "The rows are put in another order."),
    mistake("    flat = _check_rows(ids)", "    ids = sorted(ids, key=len)\n    flat = _check_rows(ids)",
            "The rows are sorted by their length. They keep their order."),
    mistake("    flat = _check_rows(ids)", "    ids = [row for row in ids if row]\n    flat = _check_rows(ids)",
            "Empty rows are left out, so the rows behind them belong to other sentences."),
    mistake("    flat = _check_rows(ids)", "    ids = [row[:len(ids[0])] for row in ids]\n    flat = _check_rows(ids)",
            "The length of the first row is taken for all, and longer rows lose their end."),
    mistake("    flat = _check_rows(ids)", "    ids = [row[:512] for row in ids]\n    flat = _check_rows(ids)",
            "Rows are cut at 512 tokens. Nothing is to be cut here."),
    mistake("torch.arange(int(lengths.max()))", "torch.arange(-(-int(lengths.max()) // 8) * 8)",
            "T is rounded up to a multiple of 8. It is the length of the longest row."),
    mistake("return TokenBatch(input_ids, real.long())", "return TokenBatch(input_ids, (input_ids != pad_id).long().flip(1).cummax(1).values.flip(1))",
            "Real tokens with the id of the padding are lost where they stand at the end of their row."),
    mistake("return TokenBatch(input_ids, real.long())", "return TokenBatch(input_ids, real.long().masked_fill(~real, pad_id))",
            "The mask holds `pad_id` at the padding. It is 0 there, whatever the id."),
    mistake(_WRONG_BATCH, "real = torch.arange(int(lengths.max())) <= lengths[:, None]\n    " + _WRONG_BATCH, "The first pad behind each row counts as real. Places count from 0."),
    mistake(_WRONG_BATCH, "return input_ids, real.long()", "A plain pair comes back. A `TokenBatch` was promised."),
    mistake(_WRONG_BATCH, "return TokenBatch(real.long(), input_ids)", "Ids and mask have changed places."),
]

VARIANTS["tokens.pad"] = [
    '''
def pad_ids(ids, pad_id=0):
    T = max(len(row) for row in ids)
    filled = [list(row) + [pad_id] * (T - len(row)) for row in ids]
    mask = [[1] * len(row) + [0] * (T - len(row)) for row in ids]
    return TokenBatch(torch.tensor(filled), torch.tensor(mask))
''',
    '''
def pad_ids(ids, pad_id=0):
    rows = [torch.tensor(row, dtype=torch.long) for row in ids]
    filled = torch.nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=pad_id)
    mask = torch.nn.utils.rnn.pad_sequence([torch.ones_like(row) for row in rows], batch_first=True)
    return TokenBatch(input_ids=filled, attention_mask=mask)
''',
    '''
def pad_ids(ids, pad_id=0):
    shape = len(ids), max(map(len, ids))
    filled, mask = torch.zeros(shape, dtype=torch.long) + pad_id, torch.zeros(shape, dtype=torch.long)
    for b, row in enumerate(ids):
        filled[b, :len(row)] = torch.tensor(row, dtype=torch.long)
        mask[b, :len(row)] = 1
    return TokenBatch(filled, mask)
''',
]


# ---- tokens.budget
#
# Budgets that fit exactly and budgets that leave one cell over, rows of one length whose order must stay, a single row, and forty random lengths. A
# batch is compared by the number it gives to each row, and by the place of the row in it.

def budget_cases(generator):
    many = [1 + draw(generator, 12) for _ in range(40)]
    return [Case("lengths 1, 3, 2, 2 and 6 cells", {"lengths": [1, 3, 2, 2], "budget": 6}),
            Case("lengths 2, 4, 3 and 8 cells", {"lengths": [2, 4, 3], "budget": 8}),
            Case("lengths 5, 1, 1, 1, 1 and 6 cells", {"lengths": [5, 1, 1, 1, 1], "budget": 6}),
            Case("rows of one length", {"lengths": [3] * 7, "budget": 10}),
            Case("rows of two lengths, mixed", {"lengths": [2, 5, 2, 5, 5, 2, 2], "budget": 10}),
            Case("one row that fills the budget", {"lengths": [4], "budget": 4}),
            Case("a budget for everything", {"lengths": [2, 3, 1], "budget": 9}),
            Case("forty rows of one token", {"lengths": [1] * 40, "budget": 64}),
            Case("forty random rows, 24 cells", {"lengths": many, "budget": 24}),
            Case("forty random rows, 12 cells", {"lengths": many, "budget": 12})]


def run_budget(cut, inputs):
    lengths = list(inputs["lengths"])
    groups = [list(map(int, group)) for group in cut(lengths, inputs["budget"])]
    place = {row: (b, i) for b, group in enumerate(groups) for i, row in enumerate(group)}
    return {"number of the batch of each row, -1 for none": torch.tensor([place.get(row, (-1, -1))[0] for row in range(len(lengths))]),
            "place of each row in its batch": torch.tensor([place.get(row, (-1, -1))[1] for row in range(len(lengths))]),
            "sizes of the batches": torch.tensor([len(group) for group in groups]),
            "the lengths are as they were": lengths == inputs["lengths"]}


TRIALS["tokens.budget"] = Trial(budget_cases, run_budget, hints=(
    "Put the row numbers in order first. Then every batch begins with its longest row.",
    "How many rows fit is decided by the first row of the batch alone: budget // its length. Python's `sorted` keeps the order of equals.",
    "order = sorted(range(N), key=lambda i: -lengths[i]); then again and again take the next budget // lengths[first] of them."))


MISTAKES["tokens.budget"] = [
    mistake("key=lambda i: -lengths[i]", "key=lambda i: lengths[i]", "size = max(1, budget // max(1, lengths[order[start]]))",
            "size = 1\n        while start + size < len(order) and (size + 1) * lengths[order[start + size]] <= budget:\n            size += 1",
            "The shortest come first. If the memory is too small you would learn it at the very end."),
    mistake("key=lambda i: -lengths[i])", "key=lambda i: lengths[i])[::-1]", "Rows of equal length come in reverse."),
    mistake("sorted(range(len(lengths)), key=lambda i: -lengths[i])", "list(range(len(lengths)))",
            "size = max(1, budget // max(1, lengths[order[start]]))",
            "size = 1\n        while start + size < len(order) and (size + 1) * max(lengths[i] for i in order[start:start + size + 1]) <= budget:\n "
            "           size += 1",
            "The rows are not sorted, so short ones are padded to the length of long ones."),
    mistake("size = max(1, budget // max(1, lengths[order[start]]))", "size = 1\n        while start + size < len(order) and sum(lengths[i] for i "
            "in order[start:start + size + 1]) <= budget:\n            size += 1",
            "Tokens are counted, not cells. Padding takes memory as well."),
    mistake("size = max(1, budget // max(1, lengths[order[start]]))", "size = max(1, (budget - 1) // lengths[order[start]])",
            "A batch that fills the budget exactly is cut. It is still allowed."),
    mistake("size = max(1, budget // max(1, lengths[order[start]]))", "size = max(1, budget // max(1, lengths[order[0]]))",
            "The longest row of all decides for every batch, so short rows travel in batches far too small."),
    mistake("size = max(1, budget // max(1, lengths[order[start]]))", "size = -(-budget // lengths[order[start]])",
            "The number of rows is rounded up, so batches exceed the budget."),
    mistake("size = max(1, budget // max(1, lengths[order[start]]))", "size = budget", "The budget is taken for a number of rows. It counts cells."),
    mistake("while start < len(order):", "while start + max(1, budget) // max(1, lengths[order[start]]) < len(order):",
            "The last rows, which do not fill a batch, are lost.",),
    mistake("return groups", "return groups[::-1]", "The batches come in reverse: the longest rows belong first."),
    mistake("groups.append(order[start:start + size])", "groups.append([lengths[i] for i in order[start:start + size]])",
            "The batches hold lengths. They should hold the numbers of the rows."),
    mistake("size = max(1, budget // max(1, lengths[order[start]]))", "size = 1 << ((budget // lengths[order[start]]).bit_length() - 1)",
            "The number of rows is a power of two. A batch takes as many as the budget allows."),
    mistake("size = max(1, budget // max(1, lengths[order[start]]))", "size = min(32, budget // lengths[order[start]])",
            "A batch holds at most 32 rows. The budget alone decides."),
    mistake("size = max(1, budget // max(1, lengths[order[start]]))", "size = budget // lengths[order[start]]\n        size = -(-(len(order) - start) // -(-(len(order) - start) // size))",
            "The batches are evened out. Each takes as many rows as the budget allows, and the last what is left."),
    mistake("size = max(1, budget // max(1, lengths[order[start]]))", "size = sum(lengths[i] == lengths[order[start]] for i in order[start:start + budget // lengths[order[start]]])",
            "A batch ends where the length changes. Shorter rows may travel with longer ones."),
    mistake("groups.append(order[start:start + size])", "groups.append([lengths.index(lengths[i]) for i in order[start:start + size]])",
            "Rows are found again by their length, so of several equal ones the first is taken each time."),
    mistake("groups.append(order[start:start + size])", "groups.append(sorted(order[start:start + size]))",
            "Inside a batch the rows stand in their old order. The longest comes first there too."),
    mistake("        size = max(1, budget // max(1, lengths[order[start]]))  # the first row is the longest\n",
            "        size = 1\n        while start + size < len(order) and (size + 1) * lengths[order[start + size]] <= budget:\n            size += 1\n",
            "The cells are counted with the length of the row that comes in. A batch is as wide as its longest row, which came in first."),
    mistake("start += size", "start += size + 1", "Between two batches a row is lost: the one that no longer fits begins the next."),
]

VARIANTS["tokens.budget"] = [
    '''
def budget_cut(lengths, budget):
    groups = []
    for i in sorted(range(len(lengths)), key=lengths.__getitem__, reverse=True):
        if groups and (len(groups[-1]) + 1) * lengths[groups[-1][0]] <= budget:
            groups[-1].append(i)
        else:
            groups.append([i])
    return groups
''',
    '''
def budget_cut(lengths, budget):
    left = torch.tensor(lengths).argsort(descending=True, stable=True).tolist()
    groups = []
    while left:
        n = budget // lengths[left[0]]
        groups, left = groups + [left[:n]], left[n:]
    return groups
''',
]


# ---- How much they catch
