"""Mutants of `minbert.exercise_cases.tokens`: their checks must reject them all."""

from minbert.course.check_runner import mistake
from minbert.exercise_cases.tokens import _WRONG_BATCH

MUTANTS = {}


MUTANTS["tokens.pieces"] = [
    mistake(
        'return ["[UNK]"]\n        found',
        "return found\n        found",
        "What was found before the gap is returned, and the rest of the word is lost.",
    ),
    mistake(
        'return ["[UNK]"]\n        found',
        'found.append("[UNK]")\n            start += 1\n            continue\n        found',
        "Each letter that fits nowhere becomes an [UNK] of its own. The whole word is unknown.",
    ),
    mistake(
        "len(word) > longest", "len(word) > 100", "The limit is always 100. It should be `longest`."
    ),
    mistake(
        "end = len(word)  #",
        "end = max(start + 1, len(word) - 1)  #",
        "The whole rest of the word is never tried, unless it is a single letter.",
    ),
    mistake(
        "found.append(prefix + word[start:end])",
        "found.append(word[start:end])",
        "The pieces have lost their ##.",
    ),
    mistake(
        "not in vocab:",
        "not in vocab and word[start:end] not in vocab:",
        "Inside a word, pieces without ## pass as well. Those only start words.",
    ),
    mistake(
        'return ["[UNK]"]\n        found',
        "return []\n        found",
        "A word that cannot be cut gives nothing. It should give [UNK].",
    ),
    mistake(
        "    found, start = [], 0",
        """    def spell(start):
        if start == len(word):
            return []
        for end in range(len(word), start, -1):
            piece = ("##" if start else "") + word[start:end]
            if piece in vocab and (rest := spell(end)) is not None:
                return [piece, *rest]
        return None
    if len(word) < 50:
        return ["[UNK]"] if spell(0) is None else spell(0)
    found, start = [], 0""",
        "Where it gets stuck, it goes back and tries a shorter piece. BERT never goes back.",
    ),
    mistake(
        "    found, start = [], 0",
        """    found, end = [], len(word)
    while end:
        fits = [s for s in range(end) if ("##" if s else "") + word[s:end] in vocab]
        if not fits:
            return ["[UNK]"]
        found, end = [("##" if fits[0] else "") + word[fits[0]:end], *found], fits[0]
    return found
    start = 0""",
        "The word is cut from its end. The longest piece that fits its beginning comes first.",
    ),
    mistake(
        "    found, start = [], 0",
        """    best = {0: []}
    for s in range(len(word)):
        for end in range(s + 1, len(word) + 1):
            piece = ("##" if s else "") + word[s:end]
            if s not in best or piece not in vocab:
                continue
            if end not in best or len(best[end]) > len(best[s]) + 1:
                best[end] = [*best[s], piece]
    return best.get(len(word), ["[UNK]"])
    found, start = [], 0""",
        "The word is cut into as few pieces as possible. BERT looks at one piece after the other.",
    ),
    mistake(
        '    if len(word) > longest:\n        return ["[UNK]"]\n',
        "    word = word[:longest]\n",
        "A word that is too long is cut off at `longest`. The whole word is unknown.",
    ),
    mistake(
        "if len(word) > longest:",
        "if len(word.encode()) > longest:",
        "Bytes are counted. `longest` counts characters, and a letter can take several bytes.",
    ),
    mistake(
        "if len(word) > longest:",
        "if word in vocab:\n        return [word]\n    if len(word) > longest:",
        "A word that is itself a piece passes whatever its length. The limit comes first.",
    ),
    mistake(
        "if len(word) > longest:",
        "word = word.lower()\n    if len(word) > longest:",
        "The word is put into lower case. It comes as it is to be looked up.",
    ),
    mistake(
        "if len(word) > longest:",
        "if not word or len(word) > longest:",
        "An empty word gives [UNK]. It has no pieces.",
    ),
    mistake(
        "    found, start = [], 0",
        "    kept = word_pieces.__dict__\n"
        "    if word in kept:\n"
        "        return kept[word]\n"
        "    found, start = kept.setdefault(word, []), 0",
        "The pieces of a word are kept from call to call. Another vocabulary may cut the same "
        "word in another way.",
    ),
    mistake(
        'return ["[UNK]"]\n        found',
        'return found or ["[UNK]"]\n        found',
        "Where nothing fits any more, what was found before comes back. The whole word is unknown.",
    ),
    mistake(
        '        prefix = "##" if start else ""\n'
        "        end = len(word)  # the longest candidate first\n"
        "        while end > start and prefix + word[start:end] not in vocab:\n"
        "            end -= 1\n"
        "        if end == start:  # no candidate is in the vocabulary\n"
        '            return ["[UNK]"]\n',
        '        mark, end = "##" if start else "", start\n'
        "        while end < len(word) and mark + word[start:end + 1] in vocab:\n"
        "            end += 1\n"
        "        if end == start:\n"
        '            return ["[UNK]"]\n        prefix = mark\n',
        "A piece grows letter by letter, and only as long as each step is a piece. A longer one "
        "can be in the vocabulary although a shorter one is not.",
    ),
    mistake(
        "start = end",
        "start += len(prefix) + end - start",
        "The two signs ## are counted as letters, so letters behind a piece are passed over.",
    ),
    mistake(
        '    if len(word) > longest:\n        return ["[UNK]"]',
        "    if len(word) > longest:\n        return []",
        "A word that is too long gives nothing. It should give [UNK].",
    ),
]


MUTANTS["tokens.pad"] = [
    mistake(
        _WRONG_BATCH,
        "return TokenBatch(input_ids, (input_ids != 0).long())",
        "The mask says which ids are not 0. Padding may have another id, and a real token may "
        "have this one.",
    ),
    mistake(
        "lengths.max()",
        "lengths.max() + 1",
        "The rectangle has a column too many. T is the length of the longest row.",
    ),
    mistake(
        _WRONG_BATCH,
        "return TokenBatch(input_ids, real.float())",
        "The mask holds fractions. Whole numbers were promised.",
    ),
    mistake(
        _WRONG_BATCH,
        "return TokenBatch(input_ids, real.int())",
        "The whole numbers are not int64, as they are in every `TokenBatch`.",
    ),
    mistake(
        "    lengths = torch.tensor(",
        "    longest = max(map(len, ids))\n    for row in ids:\n        row += [pad_id] * (longest "
        "- len(row))\n    lengths = torch.tensor(",
        "The caller's rows are filled up in place, and then count as real to their new end.",
    ),
    mistake(
        "    lengths = torch.tensor(",
        "    ids = sorted(ids, key=len, reverse=True)\n    lengths = torch.tensor(",
        "The rows are put in another order.",
    ),
    mistake(
        "    lengths = torch.tensor(",
        "    ids = sorted(ids, key=len)\n    lengths = torch.tensor(",
        "The rows are sorted by their length. They keep their order.",
    ),
    mistake(
        "    lengths = torch.tensor(",
        "    ids = [row for row in ids if row]\n    lengths = torch.tensor(",
        "Empty rows are left out, so the rows behind them belong to other sentences.",
    ),
    mistake(
        "    lengths = torch.tensor(",
        "    ids = [row[:len(ids[0])] for row in ids]\n    lengths = torch.tensor(",
        "The length of the first row is taken for all, and longer rows lose their end.",
    ),
    mistake(
        "    lengths = torch.tensor(",
        "    ids = [row[:512] for row in ids]\n    lengths = torch.tensor(",
        "Rows are cut at 512 tokens. Nothing is to be cut here.",
    ),
    mistake(
        "torch.arange(int(lengths.max()))",
        "torch.arange(-(-int(lengths.max()) // 8) * 8)",
        "T is rounded up to a multiple of 8. It is the length of the longest row.",
    ),
    mistake(
        "return TokenBatch(input_ids, real.long())",
        "return TokenBatch(input_ids, (input_ids != "
        "pad_id).long().flip(1).cummax(1).values.flip(1))",
        "Real tokens with the id of the padding are lost where they stand at the end of their row.",
    ),
    mistake(
        "return TokenBatch(input_ids, real.long())",
        "return TokenBatch(input_ids, real.long().masked_fill(~real, pad_id))",
        "The mask holds `pad_id` at the padding. It is 0 there, whatever the id.",
    ),
    mistake(
        _WRONG_BATCH,
        "real = torch.arange(int(lengths.max())) <= lengths[:, None]\n    " + _WRONG_BATCH,
        "The first pad behind each row counts as real. Places count from 0.",
    ),
    mistake(
        _WRONG_BATCH,
        "return input_ids, real.long()",
        "A plain pair comes back. A `TokenBatch` was promised.",
    ),
    mistake(
        _WRONG_BATCH,
        "return TokenBatch(real.long(), input_ids)",
        "Ids and mask have changed places.",
    ),
]


MUTANTS["tokens.budget"] = [
    mistake(
        "key=lambda i: lengths[i], reverse=True)",
        "key=lambda i: lengths[i])[::-1]",
        "Rows of equal length come in reverse.",
    ),
    mistake(
        "size = max(1, budget // longest)",
        "size = max(1, budget // max(1, lengths[order[0]]))",
        "The longest row of all decides for every batch, so short rows travel in batches far "
        "too small.",
    ),
    mistake(
        "return groups",
        "return groups[::-1]",
        "The batches come in reverse: the longest rows belong first.",
    ),
    mistake(
        "size = max(1, budget // longest)",
        "size = 1 << ((budget // lengths[order[start]]).bit_length() - 1)",
        "The number of rows is a power of two. A batch takes as many as the budget allows.",
    ),
    mistake(
        "size = max(1, budget // longest)",
        "size = min(32, budget // lengths[order[start]])",
        "A batch holds at most 32 rows. The budget alone decides.",
    ),
    mistake(
        "size = max(1, budget // longest)",
        "size = budget // lengths[order[start]]\n"
        "        size = -(-(len(order) - start) // -(-(len(order) - start) // size))",
        "The batches are evened out. Each takes as many rows as the budget allows, and the last "
        "what is left.",
    ),
    mistake(
        "size = max(1, budget // longest)",
        "size = sum(lengths[i] == lengths[order[start]] for i in order[start:start + budget "
        "// lengths[order[start]]])",
        "A batch ends where the length changes. Shorter rows may travel with longer ones.",
    ),
    mistake(
        "groups.append(order[start:start + size])",
        "groups.append([lengths.index(lengths[i]) for i in order[start:start + size]])",
        "Rows are found again by their length, so of several equal ones the first is taken each "
        "time.",
    ),
    mistake(
        "groups.append(order[start:start + size])",
        "groups.append(sorted(order[start:start + size]))",
        "Inside a batch the rows stand in their old order. The longest comes first there too.",
    ),
    mistake(
        "        size = max(1, budget // longest)  # at least one row, so that the loop ends\n",
        "        size = 1\n"
        "        while start + size < len(order) and (size + 1) * lengths[order[start + "
        "size]] <= budget:\n"
        "            size += 1\n",
        "The cells are counted with the length of the row that comes in. A batch is as wide as "
        "its longest row, which came in first.",
    ),
    mistake(
        "start += size",
        "start += size + 1",
        "Between two batches a row is lost: the one that no longer fits begins the next.",
    ),
]
