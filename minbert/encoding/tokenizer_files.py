"""The files of a tokenizer: loading them, which class reads them, whether tokenizer.json holds
BERT's own tokenizer, and what sentence-transformers would read otherwise.

Four pitfalls of transformers are the reason for what `load_tokenizer` checks:

- A folder that has config.json but no tokenizer gives a tokenizer of five tokens in transformers 5,
  without a warning. tokenizer.json or vocab.txt is therefore required.
- `BertTokenizerFast` lower-cases unless told otherwise, even if tokenizer.json says the opposite.
  Without `do_lower_case` in tokenizer_config.json, tokenizer.json is therefore taken literally.
- With vocab.txt alone, nothing says whether case matters. Then the text is lower-cased, as for most
  BERT models.
- Not every BERT uses WordPiece: paraphrase-multilingual-MiniLM-L12-v2 has a Unigram model, which
  only the generic class `PreTrainedTokenizerFast` takes as it is. `tokenizer_class` decides which
  of the two classes loads a folder, and any other class is refused.
"""

import os
from collections.abc import Mapping
from pathlib import Path

from ..core.files import check_regular, quoted, read_json, read_json_if_there
from .transformer_folder import model_folder, resolve_folder

SPECIAL_TOKENS = {
    f"{name}_token": f"[{name.upper()}]" for name in ("pad", "unk", "cls", "sep", "mask")
}
TOKENIZER_FILES = (
    "tokenizer.json",
    "vocab.txt",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
)
_LARGEST = 2**27  # bytes; the largest vocabularies have 2**25

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


def load_tokenizer(
    name_or_folder: str | Path | None = None,  # as in `resolve_folder`; None: the embedded one
):  # a transformers fast tokenizer
    """Load the tokenizer of a BERT model: BERT's own WordPiece, or whatever tokenizer.json contains
    if `tokenizer_class` is the generic one.

    Whether BERT's own lower-cases: `do_lower_case` of tokenizer_config.json, else tokenizer.json,
    else yes. Raises ValueError, with the folder, if the tokenizer files are missing or broken, or
    name no token that can pad; with the file if it is no JSON, names another class, or holds
    another tokenizer than its class reads.
    """
    folder = model_folder(resolve_folder(name_or_folder))
    names = [name for name in TOKENIZER_FILES if os.path.lexists(folder / name)]
    if not {"tokenizer.json", "vocab.txt"} & set(names):
        raise ValueError(f"expected tokenizer.json or vocab.txt in {folder}, got neither")
    found = {}
    for name in names:
        check_regular(folder / name, _LARGEST)
        if name.endswith(".json"):
            found[name] = read_json(folder / name, limit=_LARGEST)
    settings, content = found.get("tokenizer_config.json", {}), found.get("tokenizer.json", {})
    generic = is_generic(folder, settings)
    if generic and "tokenizer.json" not in names:
        raise ValueError(
            f"expected tokenizer.json in {folder}, as its tokenizer_class needs, got vocab.txt alone"
        )
    if "tokenizer.json" in names and not generic:
        check_bert(folder / "tokenizer.json", content)
    from transformers import BertTokenizerFast, PreTrainedTokenizerFast

    try:
        if generic:
            tokenizer = PreTrainedTokenizerFast.from_pretrained(folder, local_files_only=True)
        else:
            options = bert_options(settings, content)
            tokenizer = BertTokenizerFast.from_pretrained(folder, local_files_only=True, **options)
        name_special_tokens(tokenizer, SPECIAL_TOKENS)
        tokenizer("unknown: \U00012345")  # a vocabulary without [UNK] fails only here
    except Exception as error:  # the Rust library raises bare Exception
        raise ValueError(
            f"expected a readable tokenizer in {folder}, got {str(error)[:200]}"
        ) from error
    return tokenizer
