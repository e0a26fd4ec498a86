"""Sentences to ids with truncation: tokenizing only as much of a text as the model reads.

A fast tokenizer splits the whole text before it truncates, and needs more than a hundred bytes for
each character. BERT's tokenizer never looks beyond a blank, a punctuation mark or a Chinese
character, so a long text can be tokenized window by window, each of which ends at such a place. The
tokenizer itself is asked which characters these are. A word of more than 100 characters is [UNK]
whatever follows, so at most 101 of its characters are kept. All of this holds for BERT's own
normalizer and word pieces only; `knows_stretches` checks that, and other tokenizers get the whole
text.
"""

__all__ = [
    "Kinds",
    "stretches",
    "rust_tokenizer",
    "knows_stretches",
    "first_ids",
    "text_groups",
    "encode_ids",
]

from collections.abc import Iterator

from ..core.text_windows import check_sentences


class Kinds(dict):
    """Code of a character -> what it does between two letters: "c" cuts, "v" vanishes, "l"
    lengthens the word.
    """

    def __init__(
        self,
        tokenizer,  # a transformers fast tokenizer
    ):
        super().__init__()
        inner = tokenizer.backend_tokenizer
        self.normalize, self.split = (
            inner.normalizer.normalize_str,
            inner.pre_tokenizer.pre_tokenize_str,
        )

    def __missing__(self, code: int) -> str:
        """Ask once for each character that is met."""
        word = self.normalize(f"a{chr(code)}b")
        self[code] = "c" if len(self.split(word)) > 1 else "v" if word == "ab" else "l"
        return self[code]


def stretches(
    text: str,
    kinds: dict[int, str],  # see `Kinds`
    size: int = 8192,  # characters of a window
    longest: int = 100,  # letters of a word; of a longer one 101 are kept
    token: int = 16,  # characters of the longest added token
) -> Iterator[str]:  # together they have the tokens of the text
    """Cut a text where BERT's tokenizer does not look beyond."""
    rest = ""
    for start in range(0, len(text), size):
        window = rest + text[start : start + size]
        found = window.translate(kinds)
        end = found.rfind("c") + 1
        if window[end - 1 : end] == "[" and len(window) - end < token:
            end -= 1
        if start + size >= len(text):
            end = len(window)
        rest = window[end:]
        if not rest.startswith("["):
            rest = "".join(c for c, kind in zip(rest, found[end:]) if kind == "l")[: longest + 1]
        if end:
            yield window[:end]


def rust_tokenizer(
    tokenizer,  # a transformers fast tokenizer
    max_length: int,  # tokens that a text keeps
):  # -> tokenizers.Tokenizer, which cuts there and pads nothing
    """Take the tokenizer without what transformers puts around it. It is changed only where it
    would cut otherwise: other threads may be using it, and older releases refuse that.
    """
    inner = tokenizer.backend_tokenizer
    wanted = {
        "max_length": max_length,
        "stride": 0,
        "strategy": "longest_first",
        "direction": tokenizer.truncation_side,
    }
    if inner.truncation != wanted:
        inner.enable_truncation(**wanted)
    if inner.padding is not None:
        inner.no_padding()
    return inner


def knows_stretches(
    tokenizer,  # a transformers fast tokenizer
) -> bool:
    """Say whether `first_ids` is safe: BERT's normalizer, pre-tokenizer and word pieces, added
    tokens like [MASK], one token on either side, and texts that keep their beginning.
    """
    from tokenizers import models, normalizers, pre_tokenizers

    inner = getattr(tokenizer, "backend_tokenizer", None)
    kinds = (
        (getattr(inner, "normalizer", None), normalizers.BertNormalizer),
        (getattr(inner, "model", None), models.WordPiece),
        (getattr(inner, "pre_tokenizer", None), pre_tokenizers.BertPreTokenizer),
    )

    def plain(token):
        return token[:1] + token[-1:] == "[]" and token[1:-1].isalnum() and token.isascii()

    berts = all(isinstance(part, kind) for part, kind in kinds) and all(
        map(plain, tokenizer.get_added_vocab())
    )
    return berts and tokenizer.truncation_side == "right" and _frames(inner)


def _frames(rust):
    """Tell whether one token stands before every text and one behind it."""
    framed = _real_ids(rust.encode("a"))
    bare = _real_ids(rust.encode("a", add_special_tokens=False))
    return framed[1:-1] == bare and len(framed) == len(bare) + 2


def _real_ids(encoding):
    """Leave out the padding."""
    return [token for token, real in zip(encoding.ids, encoding.attention_mask) if real]


def first_ids(
    tokenizer,  # one that `knows_stretches`
    text: str,
    max_length: int,  # tokens, with [CLS] and [SEP]
) -> list[int]:  # as the tokenizer gives them with truncation
    """Turn the beginning of a long text into ids, reading no further than needed."""
    rust, ids = rust_tokenizer(tokenizer, max_length), []
    (first, last), longest = rust.encode("").ids, rust.model.max_input_chars_per_word
    token = max(map(len, tokenizer.get_added_vocab()), default=0)
    for stretch in stretches(text, Kinds(tokenizer), longest=longest, token=token):
        # cut at max_length, which is enough
        ids += rust.encode(stretch, add_special_tokens=False).ids
        if len(ids) >= max_length - 2:
            break
    return [first, *ids[: max_length - 2], last]


def text_groups(
    texts: list[str],
    most: int = 2**20,  # characters; a longer text is a group of its own
) -> Iterator[list[str]]:  # one group or more, none empty
    """Cut a list of texts into groups, in order."""
    group, size = [], 0
    for text in texts:
        if group and size + len(text) > most:
            yield group
            group, size = [], 0
        group.append(text)
        size += len(text)
    if group:
        yield group


def encode_ids(
    tokenizer,  # from `load_tokenizer`
    sentences: list[str],  # N texts; an empty text becomes [CLS] [SEP]
    max_length: int = 512,  # tokens of a sentence with [CLS] and [SEP]; 512: BERT release
) -> list[list[int]]:  # N lists of ids, each of 2 to `max_length`
    """Turn sentences into the ids of [CLS] tokens [SEP], truncated to `max_length`.

    The ids are those of `tokenizer(sentences, truncation=True, max_length=max_length)`; only the
    time and the memory for very long texts differ. Raises ValueError for no sentences, one bare
    str, a max_length below 3, or, with its number from 0, an entry that is not a str or not valid
    Unicode.
    """
    if max_length < 3:
        raise ValueError(f"expected max_length >= 3 for [CLS], a token and [SEP], got {max_length}")
    sentences = check_sentences(sentences)
    if not sentences:
        raise ValueError("expected at least one sentence, got none")
    long = set()  # numbers of the texts with far more characters than are read
    for i, text in enumerate(sentences):
        if len(text) > 16 * max_length:
            long.add(i)
    if long and not knows_stretches(tokenizer):
        long = set()
    rust, rows = rust_tokenizer(tokenizer, max_length), []
    for group in text_groups(["" if i in long else text for i, text in enumerate(sentences)]):
        rows += [row.ids for row in rust.encode_batch_fast(group)]
    for i in long:
        rows[i] = first_ids(tokenizer, sentences[i], max_length)
    return rows
