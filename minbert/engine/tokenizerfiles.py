"""The files of a tokenizer: which class reads them, whether tokenizer.json holds BERT's own
tokenizer, and what sentence-transformers would read otherwise.
"""

from collections.abc import Mapping
from pathlib import Path

from .files import quoted, read_json_if_there

BERT_CLASSES = ("BertTokenizer", "BertTokenizerFast")
# they take tokenizer.json as it is; the second name is that of transformers 5
GENERIC_CLASSES = ("PreTrainedTokenizerFast", "TokenizersBackend")
_REMEDY = 'write "tokenizer_class": "PreTrainedTokenizerFast" into tokenizer_config.json to have it read as it is'
_OPTIONS = {
    "do_lower_case": ("lowercase", True),
    "strip_accents": ("strip_accents", None),
    # option of BertTokenizer -> field of the normalizer, default of BertTokenizer
    "tokenize_chinese_chars": ("handle_chinese_chars", True),
}


def is_generic(
    folder: Path,  # of a model and its tokenizer
    settings: Mapping,  # of tokenizer_config.json
    # False: BertTokenizer reads the folder, by name or because no class is named
) -> bool:
    """Find the class that reads a tokenizer as transformers does: tokenizer_config.json counts
    before config.json.

    Raises ValueError naming the file for any class but BERT's and the generic one of fast
    tokenizers.
    """
    for name, values in (
        ("tokenizer_config.json", settings),
        ("config.json", read_json_if_there(folder / "config.json")),
    ):
        found = values.get("tokenizer_class")
        if found is None:
            continue
        if found not in (*BERT_CLASSES, *GENERIC_CLASSES):
            raise ValueError(
                f"{folder / name}: expected a tokenizer_class among {', '.join((*BERT_CLASSES, *GENERIC_CLASSES))}, got {quoted(found)}. "
                f"If tokenizer.json holds the whole tokenizer, {_REMEDY}"
            )
        return found in GENERIC_CLASSES
    return False


def check_bert(file: Path, content: Mapping) -> None:  # `content` of the file, a tokenizer.json
    """Refuse a tokenizer.json that BertTokenizer would not take as it is: of other parts than
    BERT's it reads the vocabulary alone.

    Raises ValueError naming the file and the first part that differs.
    """
    model, normalizer, pre_tokenizer = (
        _part(content, name) for name in ("model", "normalizer", "pre_tokenizer")
    )
    # old releases do not name the kind of the model
    unnamed = "WordPiece" if "continuing_subword_prefix" in model else None
    parts = {
        "model": (model.get("type", unnamed), "WordPiece"),
        "continuing_subword_prefix": (model.get("continuing_subword_prefix"), "##"),
        "max_input_chars_per_word": (model.get("max_input_chars_per_word"), 100),
        "normalizer": (normalizer.get("type"), "BertNormalizer"),
        "clean_text": (normalizer.get("clean_text"), True),
        "pre_tokenizer": (pre_tokenizer.get("type"), "BertPreTokenizer"),
    }
    for name, (found, wanted) in parts.items():
        if found != wanted:
            raise ValueError(
                f"{file}: expected {name} {wanted!r}, as BertTokenizer reads this folder, got {quoted(found)}: {_REMEDY}"
            )


def _part(content, name):
    """Give a part of a tokenizer.json; an empty one where there is none."""
    found = content.get(name)
    return found if isinstance(found, Mapping) else {}


def bert_options(
    settings: Mapping,
    content: Mapping,
    # keyword arguments of BertTokenizer
) -> dict[str, bool | None]:
    """Take from tokenizer.json how BERT's normalizer works, where tokenizer_config.json does not
    say whether the tokenizer lower-cases.
    """
    normalizer = _part(content, "normalizer")
    if "do_lower_case" in settings or not normalizer:
        return {}
    return {
        option: normalizer.get(field, usual)
        for option, (field, usual) in _OPTIONS.items()
        if option not in settings
    }


def check_same_reading(
    folder: Path,
    tokenizer,
    # `tokenizer` of transformers, made from the files in the folder
) -> None:
    """Refuse a tokenizer that sentence-transformers uses in another way than we do. Raises
    ValueError naming the folder or the file.
    """
    if tokenizer.padding_side != "right":
        raise ValueError(
            f"{folder}: expected a tokenizer that pads on the right, got one that pads on the {tokenizer.padding_side}, "
            "which moves the positions of shorter texts"
        )
    encoded = tokenizer.backend_tokenizer.encode("a")
    if any(segment and real for segment, real in zip(encoded.type_ids, encoded.attention_mask)):
        raise ValueError(
            f"{folder / 'tokenizer.json'}: expected a post_processor that puts a single text into segment 0, got one with other segments"
        )
    settings = read_json_if_there(folder / "tokenizer_config.json")
    if is_generic(folder, settings):
        return
    for option, value in bert_options(
        settings, read_json_if_there(folder / "tokenizer.json", limit=2**27)
    ).items():
        field, usual = _OPTIONS[option]
        if value != usual:
            needed = " and ".join(dict.fromkeys(("do_lower_case", option)))
            raise ValueError(
                f"{folder / 'tokenizer.json'}: expected {field} {usual!r} in the normalizer, which transformers assumes, got {quoted(value)}: "
                f"write {needed} into tokenizer_config.json to say which of the two is right"
            )


def name_special_tokens(
    tokenizer,
    usual: Mapping[str, str],
    # attribute -> name, such as "pad_token" -> "[PAD]"
) -> None:
    """Give special tokens that no file names the usual names, where the vocabulary has those.
    Raises ValueError if no token can pad.
    """
    vocabulary = tokenizer.get_vocab()
    for attribute, name in usual.items():
        if getattr(tokenizer, attribute) is None and name in vocabulary:
            setattr(tokenizer, attribute, name)
    if tokenizer.pad_token_id is None:
        raise ValueError("no pad_token in tokenizer_config.json or special_tokens_map.json")


def special_token_ids(
    tokenizer,  # a transformers tokenizer, see load_tokenizer
    # ids of [PAD], [CLS], [SEP] and [MASK], whatever the tokenizer calls these four
) -> dict[str, int]:
    """Look up the special tokens of masked language modelling. Raises ValueError for a tokenizer
    that lacks one of them.
    """
    ids = {}
    for name in ("pad", "cls", "sep", "mask"):
        ids[f"[{name.upper()}]"] = getattr(tokenizer, f"{name}_token_id")
    for name, found in ids.items():
        if found is None:
            raise ValueError(
                f"expected a tokenizer with the special token {name}, got none: {name[1:-1].lower()}_token in tokenizer_config.json names it"
            )
    return ids
