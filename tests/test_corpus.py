"""Files in and out of the corpus, packing against a second implementation, batches against
counting, bad input.
"""

import gzip
import random
import re
from itertools import islice

import numpy as np
import pytest
from tokenizers import Tokenizer

from minbert.corpus import (
    Corpus,
    budget_batches,
    build_corpus,
    corpus_files,
    cut_long,
    heldout_sentences,
    pack_sentences,
    train_wordpiece,
)
from minbert.corpus_cache import load_corpus, save_corpus, text_checksum

SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
TEXT = [
    "The Cat sat on the mat.",
    "A dog saw the CAT and ran home.",
    "Nobody ran to the dog's café.",
] * 40


def write(folder, **files):
    """Files by name, `__` for a slash and `_txt` for the ending; `_gz` compresses."""
    for name, lines in files.items():
        path = folder / re.sub(r"_(txt|gz)", r".\1", name.replace("__", "/"))
        path.parent.mkdir(parents=True, exist_ok=True)
        data = ("\n".join(lines) + "\n").encode()
        path.write_bytes(gzip.compress(data, mtime=0) if path.suffix == ".gz" else data)
    return folder


class Letters:
    """A tokenizer of one id a letter, a = 10, that remembers every line it was given."""

    def __init__(self):
        self.seen = []

    def token_to_id(self, token):
        return SPECIAL.index(token)

    def encode_batch(self, lines, add_special_tokens):
        assert add_special_tokens is False
        self.seen += lines
        return [type("Encoding", (), {"ids": [ord(c) - 87 for c in line]}) for line in lines]


def read(corpus):
    """The sequences as text, with < for [CLS] and > for [SEP]."""
    rows = corpus.sequences(range(len(corpus.lengths)))
    return ["".join({2: "<", 3: ">"}.get(i) or chr(i + 87) for i in row) for row in rows]


# --- files


def test_files_are_found_at_any_depth_in_order(tmp_path):
    write(tmp_path, c_txt=["a"], a__z_txt_gz=["a"], b__docs__y_txt=["a"], a_txt=["a"])
    names = [str(p.relative_to(tmp_path)) for p in corpus_files(tmp_path)]
    assert names == ["a/z.txt.gz", "a.txt", "b/docs/y.txt", "c.txt"]
    assert corpus_files(str(tmp_path)) == corpus_files(tmp_path)


def test_other_files_and_folders_are_no_text(tmp_path):
    write(tmp_path, a_txt=["a"])
    for name in ("a.txt.bak", "a.txt~", "a.csv", "txt", "b.txt.part", "a.gz", "a.txts"):
        (tmp_path / name).write_text("secret\n")
    (tmp_path / "folder.txt").mkdir()
    assert [p.name for p in corpus_files(tmp_path)] == ["a.txt"]


def test_heldout_text_is_never_read(tmp_path):
    write(
        tmp_path,
        a_txt=["open"] * 9,
        heldout__b_txt=["secret"] * 9,
        x__heldout__c_txt_gz=["secret"] * 9,
        docs__heldout__d_txt=["secret"] * 9,
        heldout__far__down__f_txt=["secret"] * 9,
        unheldout__e_txt=["free"] * 9,
    )
    assert [p.name for p in corpus_files(tmp_path)] == ["a.txt", "e.txt"]
    for name in ("b.txt~", "b.txt.orig"):  # what editors leave beside a file
        (tmp_path / "heldout" / name).write_text("old\n")
    (tmp_path / "heldout" / "b.txt").write_text("secret\n\n  \n" * 9)
    assert heldout_sentences(tmp_path) == ["secret"] * 9
    letters = Letters()
    build_corpus(tmp_path, letters)
    assert set(letters.seen) == {"open", "free"}
    assert "secret" not in "".join(train_wordpiece(tmp_path, 60).get_vocab())
    assert not {"c", "s"} & set(
        "".join(set(train_wordpiece(tmp_path, 60).get_vocab()) - set(SPECIAL))
    )


@pytest.mark.parametrize("parent", ["heldout", "docs"])
def test_names_above_the_corpus_mean_nothing(tmp_path, parent):
    folder = write(tmp_path / parent / "corpus", a_txt=["ab", "cd"], docs__b_txt=["ef", "gh"])
    assert read(build_corpus(folder, Letters(), short=126)) == ["<ab>", "<cd>", "<efgh>"]


@pytest.mark.parametrize("name", ["mine.txt", "mine.txt.gz"])
def test_one_file_is_a_corpus(tmp_path, name):
    file = tmp_path / "heldout" / name  # a folder above it is none of its business
    file.parent.mkdir()
    with (gzip.open if name.endswith(".gz") else open)(file, "wt") as out:
        out.write("ab\n\nc\n")
    (file.parent / "other.txt").write_text("d\n")
    assert (
        corpus_files(file) == [file]
        and read(build_corpus(file, Letters())) == ["<ab>", "<c>"]
        and heldout_sentences(file) == []
    )
    (tmp_path / "rows.csv").write_text("a\n")
    with pytest.raises(
        ValueError,
        match="rows.csv: expected a .txt or .txt.gz file, or a folder that contains some, found none",
    ):
        corpus_files(tmp_path / "rows.csv")


@pytest.mark.parametrize(
    "make", [corpus_files, train_wordpiece, lambda f: build_corpus(f, Letters())]
)
@pytest.mark.parametrize("only_heldout", [False, True])
def test_no_text_is_refused_with_the_folder(tmp_path, make, only_heldout):
    folder = tmp_path / "nothing"
    if only_heldout:
        write(folder, heldout__a_txt=["a"])
    with pytest.raises(
        ValueError,
        match="nothing: expected a .txt or .txt.gz file, or a folder that contains some, found none",
    ):
        make(folder)


@pytest.mark.parametrize("make", [train_wordpiece, lambda f: build_corpus(f, Letters())])
@pytest.mark.parametrize(
    "name, data, words",
    [
        (
            "b.txt",
            b"fine\nalso fine\n" + b"caf\xe9\n",
            r"b\.txt:3: expected UTF-8 text, got the byte 0xe9",
        ),
        ("b.txt", b"", r"b\.txt: expected text, got an empty file"),
        ("b.txt", b"\n \n\n", r"b\.txt: expected text, got an empty file"),
        (
            "b.txt.gz",
            gzip.compress(b"a fine line\n" * 99, mtime=0)[:-9],
            r"b\.txt\.gz: expected a readable file",
        ),
        ("b.txt.gz", b"plain text\n", r"b\.txt\.gz: expected a readable file"),
        ("b.txt.gz", gzip.compress(b"fine\n\xff\n", mtime=0), r"b\.txt\.gz:2: expected UTF-8"),
    ],
)
def test_unreadable_files_are_named(tmp_path, make, name, data, words):
    write(tmp_path, a_txt=["fine"])
    (tmp_path / name).write_bytes(data)
    with pytest.raises(ValueError, match=words):
        make(tmp_path)


def test_text_without_a_word_is_refused(tmp_path):
    write(tmp_path, a_txt=TEXT)
    tokenizer = train_wordpiece(tmp_path, 60)
    write(tmp_path, a_txt=["\u200b", "\u00ad"])  # not blank, and yet the tokenizer finds nothing
    with pytest.raises(ValueError, match="expected words in the files under .*, got none"):
        build_corpus(tmp_path, tokenizer)


# --- vocabulary


@pytest.mark.parametrize("size", [58, 62])
def test_vocabulary_has_the_asked_size_and_fixed_first_ids(tmp_path, size):
    tokenizer = train_wordpiece(write(tmp_path, a_txt=TEXT[:60], docs__b_txt_gz=TEXT[60:]), size)
    vocabulary = tokenizer.get_vocab()
    assert sorted(vocabulary.values()) == list(range(size)) and tokenizer.get_vocab_size() == size
    assert [tokenizer.id_to_token(i) for i in range(5)] == SPECIAL
    pieces = set(vocabulary) - set(SPECIAL)
    assert all(p == p.lower() for p in pieces) and "é" not in "".join(pieces)
    assert tokenizer.encode("THE CAFÉ").tokens == tokenizer.encode("the cafe").tokens
    assert "[UNK]" not in tokenizer.encode("The dog's cafe ran home").tokens


def test_default_size_is_eight_thousand_and_frequent_words_are_whole(tmp_path):
    tokenizer = train_wordpiece(write(tmp_path, a_txt=TEXT))
    assert {"the", "cat", "dog", "nobody"} <= set(tokenizer.get_vocab())
    rng = random.Random(0)
    many = [
        " ".join("".join(rng.choices("abcdefghijkl", k=6)) for _ in range(9)) for _ in range(4000)
    ]
    assert train_wordpiece(write(tmp_path / "more", a_txt=many)).get_vocab_size() == 8000


def test_every_file_counts_for_the_vocabulary(tmp_path):
    write(tmp_path, a_txt=["apple"] * 9, b__c_txt_gz=["quince"] * 9, docs__d_txt=["medlar", ""] * 9)
    assert {"apple", "quince", "medlar"} <= set(train_wordpiece(tmp_path, 200).get_vocab())


def test_a_word_seen_once_is_no_piece_and_rare_letters_are_left_out(tmp_path):
    rare = "".join(chr(0x4E00 + i) for i in range(400))
    vocabulary = train_wordpiece(
        write(tmp_path, a_txt=TEXT + [rare, "tombstone", "ornament ornament"]), 2000
    ).get_vocab()
    assert "tombstone" not in vocabulary and "ornament" in vocabulary
    assert (
        len({c for piece in set(vocabulary) - set(SPECIAL) for c in piece.removeprefix("##")})
        == 200
    )


def test_a_text_is_framed_also_after_saving(tmp_path):
    tokenizer = train_wordpiece(write(tmp_path, a_txt=TEXT))
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    for each in (tokenizer, Tokenizer.from_file(str(tmp_path / "tokenizer.json"))):
        assert each.encode("The cat").tokens == ["[CLS]", "the", "cat", "[SEP]"]
        assert each.encode("the", "cat").tokens == ["[CLS]", "the", "[SEP]", "cat", "[SEP]"]


def test_a_checksum_tells_one_text_from_another(tmp_path):
    """Another byte, name, place, or cut between two files; what is no training text does not count."""
    write(tmp_path, a_txt=["ab"], docs__b_txt=["c"])
    own = text_checksum(tmp_path)
    write(tmp_path, heldout__h_txt=["d"], notes_md=["e"])
    assert text_checksum(tmp_path) == own and re.fullmatch("[0-9a-f]{64}", own)
    other = [
        dict(a_txt=["ac"], docs__b_txt=["c"]),
        dict(a_txt=["ab", ""], docs__b_txt=["c"]),
        dict(a_txt=["ab"], b_txt=["c"]),
        dict(a_txt=["ab"], docs__c_txt=["c"]),
        dict(a_txt=["ab"]),
        dict(a_txt=["ab", "docs/b.txt", "c"]),
        dict(a_txt=["ab"], docs__b_txt=["c"], z_txt=["f"]),
        dict(a_txt=["c"], docs__b_txt=["ab"]),
    ]
    found = [
        text_checksum(write(tmp_path / f"other {i}", **files)) for i, files in enumerate(other)
    ]
    assert len({own, *found}) == 1 + len(other)
    assert text_checksum(write(tmp_path / "same", docs__b_txt=["c"], a_txt=["ab"])) == own
    assert text_checksum(tmp_path / "a.txt") != own


# --- sequences


def test_sequences_by_hand(tmp_path):
    write(
        tmp_path,
        a_txt=["ab", "", "cde"],
        docs__b_txt=["f", "gh", "", "", "i", "j", "   "[:0]],
        z_txt_gz=["k"],
    )
    corpus = build_corpus(tmp_path, Letters(), short=126)
    assert read(build_corpus(tmp_path, Letters(), long_share=0)) == [
        "<ab>",
        "<cde>",
        "<f>",
        "<gh>",
        "<i>",
        "<j>",
        "<k>",
    ]
    assert read(corpus) == ["<ab>", "<cde>", "<fgh>", "<ij>", "<k>"]
    assert corpus.lengths.tolist() == [4, 5, 5, 4, 3] and corpus.offsets.tolist() == [
        0,
        4,
        9,
        14,
        18,
        21,
    ]
    assert corpus.ids.dtype == np.int32 and len(corpus.ids) == 21
    assert corpus.sequences(np.array([4, 0])) == [[2, 20, 3], [2, 10, 11, 3]]


@pytest.mark.parametrize("ending", ["\n", "\r\n"])
@pytest.mark.parametrize("mark", ["", "\ufeff"])
def test_line_ends_and_byte_order_marks(tmp_path, ending, mark):
    (tmp_path / "a.txt").write_bytes((mark + ending.join(["ab", "", "c"])).encode())
    letters = Letters()
    assert read(build_corpus(tmp_path, letters)) == ["<ab>", "<c>"] and letters.seen == [
        "ab",
        "",
        "c",
    ]


def test_articles_never_mix_even_between_files(tmp_path):
    write(tmp_path, docs__a_txt=["a", "b"], docs__b_txt=["c", "", "d"])
    assert read(build_corpus(tmp_path, Letters(), short=126)) == ["<ab>", "<c>", "<d>"]


def test_loose_sentences_have_128_tokens_at_most_and_articles_512(tmp_path):
    write(tmp_path, a_txt=["a" * n for n in (125, 126, 127, 900)], docs__b_txt=["b" * 900, ""] * 60)
    corpus = build_corpus(tmp_path, Letters(), long_share=0.1)
    assert corpus.lengths[:12].tolist() == [127, 128, 128, 3, *[128] * 7, 20]
    rest = {2 + 900 % 126 + 126 * parts for parts in range(4)}
    # the limit is drawn for each sequence: one part, or four, or what is left of an article
    assert {128, 506} < {*corpus.lengths[12:].tolist()} <= {128, 506} | rest
    # no word is lost
    assert [(corpus.ids == letter).sum() for letter in (10, 11)] == [
        125 + 126 + 127 + 900,
        60 * 900,
    ]
    starts, ends = corpus.ids[corpus.offsets[:-1]], corpus.ids[corpus.offsets[1:] - 1]
    assert set(starts.tolist()) == {2} and set(ends.tolist()) == {3}
    assert (corpus.ids == 2).sum() == (corpus.ids == 3).sum() == len(corpus.lengths)


def test_seed_decides_what_may_grow_long(tmp_path):
    write(tmp_path, docs__a_txt=["abcdefghij"] * 2000)
    same, again, other = (
        build_corpus(tmp_path, Letters(), seed).lengths.tolist() for seed in (1, 1, 2)
    )
    assert same == again != other and max(same) > 128


def test_real_tokenizer_loses_no_word(tmp_path):
    tokenizer = train_wordpiece(write(tmp_path, docs__a_txt=TEXT, b_txt=TEXT), 100)
    corpus = build_corpus(tmp_path, tokenizer, short=126)
    rows = corpus.sequences(range(len(corpus.lengths)))
    expected = [
        i for line in TEXT * 2 for i in tokenizer.encode(line, add_special_tokens=False).ids
    ]
    assert sorted(i for row in rows for i in row[1:-1]) == sorted(expected)
    loose = [tokenizer.encode(line).ids for line in TEXT]
    # b.txt first, then fewer, fuller rows
    assert rows[: len(TEXT)] == loose and len(rows) < 1.5 * len(TEXT)


def slow_pack(sentences, long_draws, short, long):
    """The same rule said otherwise: articles first, then a greedy fill; one draw after each
    closing.
    """
    rows, limit = [], short
    draws = iter(long_draws)
    articles = [[]]
    for s in sentences:
        if s:
            articles[-1].append(s)
        else:
            articles.append([])
    for article in articles:
        row = []
        for s in article:
            if len(row) + len(s) > limit:
                if row:
                    rows.append(row)
                row, limit = [], long if next(draws) else short
            row = row + s
        if row:
            rows.append(row)
        limit = long if next(draws) else short
    return rows


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("share", [0.0, 0.3, 1.0])
def test_packing_against_a_second_implementation(seed, share):
    rng = random.Random(seed)
    sentences = [[n] * rng.randint(1, 14) if rng.random() > 0.15 else [] for n in range(1, 300)]
    dice = random.Random(seed)
    draws = [dice.random() < share for _ in range(1000)]
    got = list(pack_sentences(sentences, random.Random(seed), short=10, long=25, long_share=share))
    assert got == slow_pack(sentences, draws, 10, 25)
    # a sentence that is too long for its neighbours stands alone
    assert max(map(len, got)) <= (14 if share == 0 else 25) and all(got)


def test_no_sentence_is_lost_doubled_or_moved():
    sentences = [[n] * (1 + n % 9) for n in range(1, 500)]
    rows = list(pack_sentences(sentences, random.Random(0), short=20, long=60))
    assert [i for row in rows for i in row] == [i for s in sentences for i in s]
    # a row closes only because the next sentence would not fit
    for row, after in zip(rows, rows[1:]):
        assert len(row) + after.count(after[0]) > 20


def test_about_one_row_in_a_hundred_grows_long():
    rows = list(pack_sentences([[7] * 9] * 200_000, random.Random(0)))
    lengths = [len(r) for r in rows[:-1]]
    assert set(lengths) == {9, 504}
    share = lengths.count(504) / len(lengths)
    assert abs(share - 0.01) < 4 * (0.0099 / len(lengths)) ** 0.5


def test_a_long_sentence_becomes_several():
    sentences = [[*range(300)], [8] * 5, [], [9] * 127, [7] * 126]
    parts = cut_long(sentences)
    assert [len(p) for p in parts] == [126, 126, 48, 5, 0, 126, 1, 126]
    assert sum(parts, []) == sum(sentences, [])
    assert cut_long([[]]) == [[]] and cut_long([]) == []


@pytest.mark.parametrize("sentences", [[], [[]], [[], [], []]])
def test_nothing_packs_to_nothing(sentences):
    assert list(pack_sentences(sentences, random.Random(0))) == []


# --- batches

LENGTHS = np.random.default_rng(3).integers(3, 60, 400)


def epochs(lengths, budget, seed, count):
    """Cut the endless stream into epochs: a new one begins where an index comes back or order
    starts anew.
    """
    stream, out = budget_batches(lengths, budget, seed), []
    for epoch in range(count):
        order = np.random.default_rng([seed, epoch]).permutation(len(lengths))
        batches, used = [], 0
        while lengths[order[used:]].sum() >= budget:
            batch = next(stream)
            assert np.array_equal(batch, order[used : used + len(batch)])
            used += len(batch)
            batches.append(batch)
        out.append(batches)
    return out


@pytest.mark.parametrize("budget", [1, 60, 500, 4096, int(LENGTHS.sum())])
def test_each_sequence_once_an_epoch_and_the_budget_kept(budget):
    for batches in epochs(LENGTHS, budget, 7, 3):
        seen = np.concatenate(batches)
        assert len(seen) == len(set(seen.tolist()))
        left_out = np.setdiff1d(np.arange(len(LENGTHS)), seen)
        assert LENGTHS[left_out].sum() < budget  # less than a batch sits out
        for batch in batches:
            assert LENGTHS[batch].sum() >= budget > LENGTHS[batch[:-1]].sum()


def test_equal_lengths_leave_nothing_out():
    for batches in epochs(np.full(60, 10), 50, 1, 4):
        assert [len(b) for b in batches] == [5] * 12
        assert sorted(np.concatenate(batches).tolist()) == list(range(60))


def test_what_sits_out_changes_from_epoch_to_epoch():
    runs = epochs(LENGTHS, 4096, 7, 2)
    assert not np.array_equal(*(np.concatenate(b)[:20] for b in runs))


def test_the_seed_alone_decides():
    one, two, other = (
        [b.tolist() for b in islice(budget_batches(LENGTHS, 300, seed), 99)] for seed in (1, 1, 2)
    )
    assert one == two != other
    np.random.seed(0)
    random.seed(0)
    assert [b.tolist() for b in islice(budget_batches(LENGTHS, 300, 1), 99)] == one


@pytest.mark.parametrize("start", [0, 1, 37, 38, 39, 40, 120])
def test_start_is_the_same_as_skipping(start):
    whole = [b.tolist() for b in islice(budget_batches(LENGTHS, 300, 5), start + 50)]
    assert [b.tolist() for b in islice(budget_batches(LENGTHS, 300, 5, start), 50)] == whole[start:]


@pytest.mark.parametrize("stretch", [2, 60, 400, 1000])
def test_sorted_stretches_keep_every_rule_and_hold_few_lengths(stretch):
    stream = budget_batches(LENGTHS, 300, 5, stretch=stretch)
    # a batch goes beyond 300 by less than 60
    an_epoch = [next(stream) for _ in range(LENGTHS.sum() // 360)]
    seen = np.concatenate(an_epoch)
    assert len(seen) == len(set(seen.tolist()))
    for batch in an_epoch:
        assert LENGTHS[batch].sum() >= 300 > LENGTHS[batch[:-1]].sum()

    def kinds(batches):
        return np.mean([len(set(LENGTHS[b])) for b in batches])

    assert kinds(an_epoch) < kinds(list(islice(budget_batches(LENGTHS, 300, 5), len(an_epoch))))
    means = [LENGTHS[b].mean() for b in an_epoch]
    assert means != sorted(means)  # short ones are not all first
    assert [b.tolist() for b in islice(budget_batches(LENGTHS, 300, 5, 41, stretch), 30)] == [
        b.tolist() for b in islice(budget_batches(LENGTHS, 300, 5, 0, stretch), 71)
    ][41:]


@pytest.mark.parametrize(
    "lengths, budget",
    [
        (LENGTHS, int(LENGTHS.sum()) + 1),
        (np.array([], int), 1),
        (np.array([], int), 0),
        (LENGTHS, 0),
        (LENGTHS, -5),
    ],
)
def test_impossible_budgets_are_refused(lengths, budget):
    with pytest.raises(
        ValueError, match=f"at least one batch of {budget} .*got {lengths.sum()} in all"
    ):
        next(budget_batches(lengths, budget, 1))


def test_corpus_survives_an_archive(tmp_path):
    corpus = build_corpus(write(tmp_path, a_txt=["ab", "c"]), Letters())
    np.savez(tmp_path / "c.npz", ids=corpus.ids, offsets=corpus.offsets)
    with np.load(tmp_path / "c.npz") as saved:
        assert read(Corpus(saved["ids"], saved["offsets"])) == read(corpus)


def test_a_cached_corpus_comes_back_unless_the_text_changed_or_the_file_is_damaged(tmp_path):
    text, run = write(tmp_path / "text", a_txt=TEXT), tmp_path / "run"
    run.mkdir()
    corpus = Corpus(np.arange(7, dtype=np.int32), np.array([0, 3, 7]))
    file = save_corpus(corpus, run, text_checksum(text))
    loaded = load_corpus(run, text_checksum(text))
    assert np.array_equal(loaded.ids, corpus.ids) and np.array_equal(loaded.offsets, corpus.offsets)
    with pytest.raises(ValueError, match="the text that this run began with"):
        load_corpus(run, "checksum of another text")
    file.write_bytes(file.read_bytes()[:-9])
    with pytest.raises(ValueError, match="corpus.safetensors: cut short .* delete it"):
        load_corpus(run)
