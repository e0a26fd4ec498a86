"""Long texts: only as much is tokenized as the model reads, and the ids are those of the whole
text.
"""

import random

from minbert.encoding.truncation import (
    Kinds,
    first_ids,
    knows_stretches,
    rust_tokenizer,
    stretches,
    text_groups,
)
from minbert.tokens import load_tokenizer


def test_kinds_of_characters_follow_from_the_tokenizer():
    tokenizer = load_tokenizer()
    kinds = Kinds(tokenizer)
    assert "é_東ß—\u0301\u00a0[9".translate(kinds) == "lcclcvccl"


def test_a_text_is_cut_where_the_tokenizer_does_not_look_beyond():
    kinds = Kinds(load_tokenizer())
    assert list(stretches("one two three", kinds, 5)) == ["one ", "two ", "three"]
    assert list(stretches("東京物語", kinds, 1)) == ["東", "京", "物", "語"]
    # what is left of each word, and the last window
    assert [len(x) for x in stretches("a" * 1000 + "-" + "b" * 1000, kinds, 99)] == [
        101 + 10 + 1,
        101 + 21,
    ]
    assert list(stretches("[MASK][MA", kinds, 3)) == ["[MASK]", "[MA"]
    assert "".join(stretches("x y\tz\n" * 999, kinds, 7)) == "x y\tz\n" * 999


def test_the_first_ids_are_those_of_the_whole_text():
    tokenizer = load_tokenizer()
    rng = random.Random(11711)
    odd = list(" \t\n\r\x1c\u200b\u00a0é\u0301ßİς東京—\u037e\u0387×.-_'[]aZ9×\ufffdกำ가ـ😀") + [
        "[SEP]",
        "[MASK]",
        " [UNK]",
        "word ",
        "unphotographable ",
        "x" * 150,
        "、",
        "=\u0338",
        "[",
        "_",
        "  " * 50,
        "a" * 9000,
        "ก" * 9000,
        "a\u0301" * 5000,
        "_" * 9000,
        "[" * 9000,
        "…" * 9000,
        "\u0301" * 9000,
        "a\u200b",
    ]
    assert knows_stretches(tokenizer)
    for _ in range(12):
        text = "".join(rng.choice(odd) for _ in range(rng.choice((3, 20, 60))))
        for length in (3, 64, 512, 9000):
            assert (
                first_ids(tokenizer, text, length)
                == tokenizer(text, truncation=True, max_length=length)["input_ids"]
            )


def test_texts_are_grouped_in_order_and_the_tokenizer_keeps_its_settings():
    tokenizer = load_tokenizer()
    assert list(text_groups(["aa", "b", "cccc", "d", "", ""], 3)) == [
        ["aa", "b"],
        ["cccc"],
        ["d", "", ""],
    ]
    assert list(text_groups([])) == []
    assert len(rust_tokenizer(tokenizer, 5).encode("one two three four five six").ids) == 5
    # who asks transformers next gets what he asks for
    assert len(tokenizer("one two three four five six")["input_ids"]) == 8
