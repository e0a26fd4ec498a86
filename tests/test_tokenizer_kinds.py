"""Tokenizers of every kind in the folder of a BERT: vectors equal those of sentence-transformers,
or the folder is refused by name.
"""

import json
import warnings

import pytest
import torch
from sentence_transformers import SentenceTransformer
from tokenizers import (
    AddedToken,
    Regex,
    Tokenizer,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    processors,
    trainers,
)
from torch.testing import assert_close
from transformers import BertConfig, BertModel

from minbert.encoder import BertModel as MinBert
from minbert.sentence import SentenceEncoder
from minbert.tokens import encode_ids, load_tokenizer

SUBJECTS, VERBS, OBJECTS = (
    ("the cat", "a dog", "My bird"),
    ("sees", "hears", "likes"),
    ("rain", "music", "Tea & cake"),
)
TEXT = [
    f"{subject} {verb} {thing} quickly 1 2 á"
    for subject in SUBJECTS
    for verb in VERBS
    for thing in OBJECTS
]
SENTENCES = [
    "the cat sees rain quickly",
    "Hello world",
    "Tea & cake",
    "AC-GT cat",
    "the cát sees",
    "a do\u200bg 12",
    "[MASK] <mask> sees",
    "<ent> a dog",
    "東京 rain " * 60,
]
BERTS = {
    "pad_token": "[PAD]",
    "unk_token": "[UNK]",
    "cls_token": "[CLS]",
    "sep_token": "[SEP]",
    "mask_token": "[MASK]",
}
ROBERTAS = {
    "cls_token": "<s>",
    "pad_token": "<pad>",
    "sep_token": "</s>",
    "unk_token": "<unk>",
    "mask_token": "<mask>",
}
GENERIC, BERT = "PreTrainedTokenizerFast", "BertTokenizer"


def framed(tokenizer, special):
    """Put the tokenizer's own [CLS] and [SEP] around every text."""
    first, last = special["cls_token"], special["sep_token"]
    pairs = [(name, tokenizer.token_to_id(name)) for name in (first, last)]
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"{first} $A {last}", special_tokens=pairs
    )
    return tokenizer, special


def wordpiece(normalizer=None, pre_tokenizer=None, special=BERTS, **bert):
    """BERT's own tokenizer, with parts that differ from it."""
    tokenizer = Tokenizer(models.WordPiece(unk_token=special["unk_token"]))
    tokenizer.normalizer = normalizers.BertNormalizer(**bert)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece()
    tokenizer.train_from_iterator(
        TEXT,
        trainers.WordPieceTrainer(
            vocab_size=120, special_tokens=list(special.values()), show_progress=False
        ),
    )
    tokenizer.normalizer = normalizer or tokenizer.normalizer
    tokenizer.pre_tokenizer = pre_tokenizer or tokenizer.pre_tokenizer
    return framed(tokenizer, special)


def unigram():
    tokenizer = Tokenizer(models.Unigram())
    tokenizer.pre_tokenizer, tokenizer.decoder = pre_tokenizers.Metaspace(), decoders.Metaspace()
    trainer = trainers.UnigramTrainer(
        vocab_size=80,
        special_tokens=list(ROBERTAS.values()),
        unk_token="<unk>",
        show_progress=False,
    )
    tokenizer.train_from_iterator(TEXT, trainer)
    return framed(tokenizer, ROBERTAS)


def bpe():
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>"))
    tokenizer.normalizer, tokenizer.pre_tokenizer = normalizers.NFKC(), pre_tokenizers.Whitespace()
    tokenizer.train_from_iterator(
        TEXT,
        trainers.BpeTrainer(
            vocab_size=90, special_tokens=list(ROBERTAS.values()), show_progress=False
        ),
    )
    return framed(tokenizer, ROBERTAS)


def byte_level():
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer, tokenizer.decoder = (
        pre_tokenizers.ByteLevel(add_prefix_space=False),
        decoders.ByteLevel(),
    )
    trainer = trainers.BpeTrainer(
        vocab_size=300,
        special_tokens=list(ROBERTAS.values()),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(TEXT, trainer)
    return framed(tokenizer, ROBERTAS)


def word_level():
    words = [*BERTS.values(), "cat", "AC-GT", "Tea", "&", "cake"]
    tokenizer = Tokenizer(
        models.WordLevel({word: i for i, word in enumerate(words)}, unk_token="[UNK]")
    )
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return framed(tokenizer, BERTS)


def added():
    """A name that is one token, and one with blanks around it."""
    tokenizer, special = wordpiece()
    tokenizer.add_tokens([AddedToken("<ent>", lstrip=True, rstrip=True), "Tea & cake"])
    return tokenizer, special


def unframed():
    tokenizer, special = wordpiece()
    tokenizer.post_processor = processors.TemplateProcessing(single="$A", special_tokens=[])
    return tokenizer, special


def second_segment():
    """All words belong to segment 1."""
    tokenizer, special = wordpiece()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS]:0 $A:1 [SEP]:1", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    return tokenizer, special


def short_and_padded():
    """tokenizer.json says how long a text may be, and fills every text up, as that of
    all-MiniLM-L6-v2 does.
    """
    tokenizer, special = wordpiece()
    tokenizer.enable_truncation(8)
    tokenizer.enable_padding(length=8, pad_id=0, pad_token="[PAD]")
    return tokenizer, special


def padded_left():
    tokenizer, special = wordpiece()
    tokenizer.enable_padding(direction="left", pad_id=0, pad_token="[PAD]")
    return tokenizer, special


def long_words():
    tokenizer, special = wordpiece()
    tokenizer.model.max_input_chars_per_word = 5
    return tokenizer, special


def other_prefix():
    names = [*BERTS.values(), "the", "cat", "@@s", "see"]
    tokenizer = Tokenizer(
        models.WordPiece(
            {name: i for i, name in enumerate(names)},
            unk_token="[UNK]",
            continuing_subword_prefix="@@",
        )
    )
    tokenizer.normalizer, tokenizer.pre_tokenizer = (
        normalizers.BertNormalizer(),
        pre_tokenizers.BertPreTokenizer(),
    )
    return framed(tokenizer, BERTS)


AND = normalizers.Sequence([normalizers.Replace("&", " and "), normalizers.BertNormalizer()])
KINDS = {
    "BERT's, small letters": wordpiece,
    "BERT's, capitals": lambda: wordpiece(lowercase=False),
    "BERT's, accents kept": lambda: wordpiece(strip_accents=False),
    "BERT's, control characters kept": lambda: wordpiece(clean_text=False),
    "Chinese words kept": lambda: wordpiece(handle_chinese_chars=False),
    "special tokens of other names": lambda: wordpiece(special=ROBERTAS),
    "Unigram": unigram,
    "BPE": bpe,
    "byte-level BPE": byte_level,
    "WordLevel": word_level,
    "a Sequence of normalizers": lambda: wordpiece(AND),
    "Lowercase alone": lambda: wordpiece(normalizers.Lowercase()),
    "words at blanks": lambda: wordpiece(pre_tokenizer=pre_tokenizers.WhitespaceSplit()),
    "a Sequence of pre-tokenizers": lambda: wordpiece(
        pre_tokenizer=pre_tokenizers.Sequence(
            [pre_tokenizers.BertPreTokenizer(), pre_tokenizers.Digits(True)]
        )
    ),
    "words at a pattern": lambda: wordpiece(
        pre_tokenizer=pre_tokenizers.Split(Regex("[^a-z]+"), "removed")
    ),
    "added tokens": added,
    "no frame": unframed,
    "segment 1": second_segment,
    "cut and padded": short_and_padded,
    "padded left": padded_left,
    "words of 5 letters": long_words,
    "another prefix": other_prefix,
}


def write_model(
    folder,
    kind,
    settings,
    config=None,
    special_map=False,
    below="",
    text_settings=None,
    positions=64,
):
    """A tiny BERT of random weights with a tokenizer.json, as sentence-transformers keeps it."""
    tokenizer, special = KINDS[kind]() if isinstance(kind, str) else kind
    place = folder / below
    place.mkdir(parents=True)
    torch.manual_seed(0)
    size = BertConfig(
        vocab_size=tokenizer.get_vocab_size(),
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=64,
        max_position_embeddings=positions,
        pad_token_id=tokenizer.token_to_id(special["pad_token"]),
    )
    BertModel(size).save_pretrained(place)
    if config:
        (place / "config.json").write_text(
            json.dumps(json.loads((place / "config.json").read_text()) | config)
        )
    tokenizer.save(str(place / "tokenizer.json"))
    (place / "tokenizer_config.json").write_text(
        json.dumps(settings if special_map else special | settings)
    )
    if special_map:
        (place / "special_tokens_map.json").write_text(json.dumps(special))
    if text_settings:
        (place / "sentence_bert_config.json").write_text(json.dumps(text_settings))
    steps = [("Transformer", below), ("Pooling", "1_Pooling")]
    (folder / "modules.json").write_text(
        json.dumps(
            [
                {
                    "idx": i,
                    "name": str(i),
                    "path": path,
                    "type": f"sentence_transformers.models.{name}",
                }
                for i, (name, path) in enumerate(steps)
            ]
        )
    )
    (folder / "1_Pooling").mkdir()
    (folder / "1_Pooling" / "config.json").write_text(
        '{"word_embedding_dimension": 32, "pooling_mode_mean_tokens": true}'
    )
    return folder


def their_vectors(folder, sentences=SENTENCES):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return torch.from_numpy(
            SentenceTransformer(str(folder), device="cpu").encode(list(sentences))
        )


def our_vectors(folder, sentences=SENTENCES, **how):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return SentenceEncoder.from_pretrained(folder, **how).encode(list(sentences))


REFUSED = {
    "BERT's, control characters kept": "clean_text True.*got False",
    "Unigram": "model 'WordPiece'.*got 'Unigram'",
    "BPE": "model.*got 'BPE'",
    "byte-level BPE": "model.*got 'BPE'",
    "WordLevel": "model.*got 'WordLevel'",
    "a Sequence of normalizers": "normalizer 'BertNormalizer'.*got 'Sequence'",
    "Lowercase alone": "normalizer.*got 'Lowercase'",
    "words at blanks": "pre_tokenizer 'BertPreTokenizer'.*got 'WhitespaceSplit'",
    "a Sequence of pre-tokenizers": "pre_tokenizer.*got 'Sequence'",
    "words at a pattern": "pre_tokenizer.*got 'Split'",
    "words of 5 letters": "max_input_chars_per_word 100.*got 5",
    "another prefix": "continuing_subword_prefix '##'.*got '@@'",
    # where BertTokenizer reads the folder
    "padded left": "pads on the right, got one that pads on the left",
}
SILENT = {
    "BERT's, capitals": "lowercase True.*got False: write do_lower_case into",
    "BERT's, accents kept": "strip_accents None.*got False: write do_lower_case and strip_accents into",
    # where tokenizer_config.json does not say how it normalizes, too
    "Chinese words kept": "handle_chinese_chars True.*got False",
}
# whatever class reads it
NEVER = {"padded left": REFUSED["padded left"], "segment 1": "segment 0"}
READERS = {
    "no class, no case": ({}, REFUSED | SILENT),
    "BertTokenizer, small letters": ({"tokenizer_class": BERT, "do_lower_case": True}, REFUSED),
    "BertTokenizer, capitals": (
        {"tokenizer_class": BERT + "Fast", "do_lower_case": False},
        REFUSED,
    ),
    "generic, no case": ({"tokenizer_class": GENERIC}, NEVER),
    "generic, small letters": ({"tokenizer_class": GENERIC, "do_lower_case": True}, NEVER),
    "generic, capitals": ({"tokenizer_class": "TokenizersBackend", "do_lower_case": False}, NEVER),
}


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("kind", KINDS)
def test_vectors_equal_those_of_sentence_transformers_or_the_folder_is_refused(
    tmp_path, kind, reader
):
    settings, refused = READERS[reader]
    folder = write_model(tmp_path / "model", kind, settings)
    if kind in refused:
        with pytest.raises(ValueError, match=refused[kind]) as error:
            SentenceEncoder.from_pretrained(folder)
        assert str(folder) in str(error.value)
    else:
        assert_close(our_vectors(folder), their_vectors(folder), rtol=0, atol=1e-5)


def test_the_kinds_differ(tmp_path):
    """A test of the table above: had all kinds the vectors of BERT's own, it would show nothing."""
    found = {
        kind: our_vectors(write_model(tmp_path / str(i), kind, {"tokenizer_class": GENERIC}))
        for i, kind in enumerate(KINDS)
        if kind not in NEVER
    }
    same = [
        kind
        for kind, vectors in found.items()
        if kind not in ("BERT's, small letters", "cut and padded")
        and (vectors - found["BERT's, small letters"]).abs().max() < 0.1
    ]
    assert not same


def test_the_settings_of_paraphrase_multilingual(tmp_path):
    """These keys are published with paraphrase-multilingual-MiniLM-L12-v2; its tokenizer.json holds
    a Unigram model.
    """
    settings = {
        "do_lower_case": True,
        "strip_accents": None,
        "tokenize_chinese_chars": True,
        "model_max_length": 512,
        "tokenizer_class": GENERIC,
    }
    folder = write_model(tmp_path / "model", "Unigram", settings)
    tokenizer = load_tokenizer(folder)
    assert encode_ids(tokenizer, ["Tea"]) == [
        Tokenizer.from_file(str(folder / "tokenizer.json")).encode("Tea").ids
    ]
    assert (
        tokenizer.cls_token,
        tokenizer.sep_token,
        tokenizer.pad_token,
        tokenizer.mask_token,
    ) == ("<s>", "</s>", "<pad>", "<mask>")
    assert_close(our_vectors(folder), their_vectors(folder), rtol=0, atol=1e-5)


@pytest.mark.parametrize(
    "name",
    ["BertJapaneseTokenizer", "XLMRobertaTokenizer", "RobertaTokenizerFast", "MyTokenizer", "", 5],
)
@pytest.mark.parametrize("file", ["tokenizer_config.json", "config.json"])
@pytest.mark.parametrize("kind", ["Unigram", "BERT's, small letters"])
def test_another_class_is_refused_by_name(tmp_path, name, file, kind):
    own = {"tokenizer_class": name}
    folder = write_model(
        tmp_path / "model",
        kind,
        own if file == "tokenizer_config.json" else {},
        own if file == "config.json" else None,
    )
    with pytest.raises(
        ValueError,
        match=f"{folder / file}: expected a tokenizer_class among BertTokenizer.*got {name!r}",
    ):
        load_tokenizer(folder)


def test_a_japanese_tokenizer_is_refused_though_its_vocabulary_looks_like_berts(tmp_path):
    folder = write_model(
        tmp_path / "model",
        "BERT's, small letters",
        {
            "tokenizer_class": "BertJapaneseTokenizer",
            "word_tokenizer_type": "mecab",
            "do_lower_case": False,
        },
    )
    (folder / "vocab.txt").write_text(
        "".join(
            f"{word}\n"
            for word, _ in sorted(load_vocabulary(folder).items(), key=lambda item: item[1])
        )
    )
    (folder / "tokenizer.json").unlink()
    with pytest.raises(ValueError, match="got 'BertJapaneseTokenizer'"):
        SentenceEncoder.from_pretrained(folder)


def load_vocabulary(folder):
    return json.loads((folder / "tokenizer.json").read_text())["model"]["vocab"]


def test_the_class_of_the_tokenizer_counts_before_that_of_the_model(tmp_path):
    folder = write_model(
        tmp_path / "model",
        "Unigram",
        {"tokenizer_class": GENERIC},
        {"tokenizer_class": "XLMRobertaTokenizer"},
    )
    assert_close(our_vectors(folder), their_vectors(folder), rtol=0, atol=1e-5)


@pytest.mark.parametrize(
    "kind",
    ["Unigram", "byte-level BPE", "WordLevel", "added tokens", "special tokens of other names"],
)
def test_what_is_saved_again_is_read_alike_by_both(tmp_path, kind):
    folder = write_model(
        tmp_path / "model", kind, {"tokenizer_class": GENERIC, "do_lower_case": True}
    )
    SentenceEncoder.from_pretrained(folder).save_pretrained(tmp_path / "again")
    assert_close(our_vectors(tmp_path / "again"), our_vectors(folder), rtol=0, atol=0)
    assert_close(their_vectors(tmp_path / "again"), our_vectors(folder), rtol=0, atol=1e-5)


@pytest.mark.parametrize("kind", ["Unigram", "BPE", "WordLevel", "BERT's, small letters"])
def test_special_tokens_named_in_special_tokens_map_alone(tmp_path, kind):
    folder = write_model(tmp_path / "model", kind, {"tokenizer_class": GENERIC}, special_map=True)
    special = json.loads((folder / "special_tokens_map.json").read_text())
    tokenizer = load_tokenizer(folder)
    assert {attribute: getattr(tokenizer, attribute) for attribute in special} == special
    # none was added
    assert len(tokenizer) == Tokenizer.from_file(str(folder / "tokenizer.json")).get_vocab_size()
    assert_close(our_vectors(folder), their_vectors(folder), rtol=0, atol=1e-5)


def test_special_tokens_that_no_file_names_are_found_by_their_usual_names(tmp_path):
    folder = write_model(tmp_path / "model", "WordLevel", {"tokenizer_class": GENERIC})
    (folder / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": GENERIC}))
    assert {attribute: getattr(load_tokenizer(folder), attribute) for attribute in BERTS} == BERTS


def test_a_tokenizer_that_cannot_pad_is_refused(tmp_path):
    folder = write_model(tmp_path / "model", "Unigram", {})
    (folder / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": GENERIC}))
    with pytest.raises(
        ValueError,
        match=f"{folder}.*no pad_token in tokenizer_config.json or special_tokens_map.json",
    ):
        load_tokenizer(folder)


def test_the_generic_class_needs_tokenizer_json(tmp_path):
    folder = write_model(tmp_path / "model", "BERT's, small letters", {"tokenizer_class": GENERIC})
    (folder / "tokenizer.json").rename(folder / "vocab.txt")
    with pytest.raises(
        ValueError, match=f"expected tokenizer.json in {folder}, as its tokenizer_class needs"
    ):
        load_tokenizer(folder)


def test_a_pooling_of_ones_own_does_not_open_a_folder_that_is_read_in_two_ways(tmp_path):
    folder = write_model(tmp_path / "model", "BERT's, capitals", {"tokenizer_class": BERT})
    with pytest.raises(ValueError, match="lowercase True"):
        our_vectors(folder, pooling="mean")
    # alone it is read as tokenizer.json says
    assert load_tokenizer(folder).tokenize("Tea") == ["Tea"]


@pytest.mark.parametrize("kind", ["no frame", "BERT's, small letters", "Unigram"])
def test_a_very_long_text_without_a_frame_is_read_too(tmp_path, kind):
    folder = write_model(tmp_path / "model", kind, {"tokenizer_class": GENERIC})
    long = ["the cat sees rain " * 500]
    assert_close(our_vectors(folder, long), their_vectors(folder, long), rtol=0, atol=1e-5)


def test_two_tokens_before_a_text_and_none_behind_it(tmp_path):
    tokenizer, special = wordpiece()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] [SEP] $A", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    folder = write_model(tmp_path / "model", (tokenizer, special), {"tokenizer_class": GENERIC})
    long = ["the cat sees rain " * 500]
    assert_close(our_vectors(folder, long), their_vectors(folder, long), rtol=0, atol=1e-5)


@pytest.mark.parametrize(
    "kind, settings, lowers",
    [
        ("Unigram", {"tokenizer_class": GENERIC, "do_lower_case": True}, False),
        ("BERT's, capitals", {"tokenizer_class": GENERIC, "do_lower_case": True}, False),
        ("BERT's, small letters", {"tokenizer_class": GENERIC, "do_lower_case": False}, True),
        ("BERT's, capitals", {"tokenizer_class": BERT, "do_lower_case": True}, True),
    ],
)
def test_small_letters_that_sentence_transformers_makes(tmp_path, kind, settings, lowers):
    """`do_lower_case` of sentence_bert_config.json puts small letters before the tokenizer, and
    only BERT's class asks tokenizer_config.json whether it makes them itself.
    """
    folder = write_model(
        tmp_path / "model",
        kind,
        settings,
        text_settings={"max_seq_length": 64, "do_lower_case": True},
    )
    if lowers:
        assert_close(our_vectors(folder), their_vectors(folder), rtol=0, atol=1e-5)
    else:
        with pytest.raises(ValueError, match="expected a tokenizer that makes small letters"):
            our_vectors(folder)


@pytest.mark.parametrize(
    "settings, length",
    [
        ({"max_len": 16}, 16),
        ({"max_len": 16, "model_max_length": 20}, 20),
        ({"model_max_length": 10**30}, 64),
        ({}, 64),
    ],
)
def test_how_much_of_a_text_is_read(tmp_path, settings, length):
    folder = write_model(tmp_path / "model", "BERT's, small letters", settings)
    assert SentenceEncoder.from_pretrained(folder).max_length == length
    assert_close(our_vectors(folder), their_vectors(folder), rtol=0, atol=1e-5)


def test_a_model_of_more_than_512_positions_reads_them(tmp_path):
    folder = write_model(tmp_path / "model", "BERT's, small letters", {}, positions=600)
    long = ["the cat sees rain " * 200]
    assert_close(our_vectors(folder, long), their_vectors(folder, long), rtol=0, atol=1e-5)
    assert SentenceEncoder.from_pretrained(folder).max_length == 600


# --- the layout of sentence-transformers before 2.0


@pytest.mark.parametrize("name", ["0_Transformer", "0_BERT"])
@pytest.mark.parametrize("root", [None, {"__version__": "0.3.8"}])
def test_the_old_layout_is_read(tmp_path, name, root):
    folder = write_model(
        tmp_path / "model",
        "BERT's, capitals",
        {"do_lower_case": False},
        below=name,
        text_settings={"max_seq_length": 12, "do_lower_case": False},
    )
    if root:  # these releases wrote it
        (folder / "config.json").write_text(json.dumps(root))
    encoder = SentenceEncoder.from_pretrained(folder)
    assert encoder.max_length == 12
    assert_close(our_vectors(folder), their_vectors(folder), rtol=0, atol=1e-5)
    encoder.save_pretrained(tmp_path / "again")
    assert_close(our_vectors(tmp_path / "again"), our_vectors(folder), rtol=0, atol=0)
    assert_close(their_vectors(tmp_path / "again"), their_vectors(folder), rtol=0, atol=1e-5)


def test_model_and_tokenizer_of_the_old_layout_load_alone(tmp_path):
    folder = write_model(tmp_path / "model", "BERT's, small letters", {}, below="0_Transformer")
    assert (
        load_tokenizer(folder).get_vocab() == load_tokenizer(folder / "0_Transformer").get_vocab()
    )
    both = MinBert.from_pretrained(folder), MinBert.from_pretrained(folder / "0_Transformer")
    assert_close(both[0].state_dict(), both[1].state_dict(), rtol=0, atol=0)


@pytest.mark.parametrize(
    "setting, words",
    [
        (
            {"do_lower_case": True},
            "0_Transformer/sentence_bert_config.json: expected a tokenizer that makes small letters",
        ),
        (
            {"max_seq_length": 2},
            "0_Transformer/sentence_bert_config.json: expected max_seq_length of 3",
        ),
    ],
)
def test_settings_of_the_old_layout_are_checked(tmp_path, setting, words):
    folder = write_model(
        tmp_path / "model",
        "BERT's, capitals",
        {"do_lower_case": False},
        below="0_Transformer",
        text_settings=setting,
    )
    with pytest.raises(ValueError, match=words):
        SentenceEncoder.from_pretrained(folder)


@pytest.mark.parametrize("path", ["../elsewhere", "/etc"])
def test_modules_json_does_not_lead_out_of_the_folder(tmp_path, path):
    folder = write_model(tmp_path / "model", "BERT's, small letters", {})
    (folder / "modules.json").write_text(
        (folder / "modules.json").read_text().replace('"path": ""', f'"path": "{path}"')
    )
    with pytest.raises(
        ValueError, match="modules.json: expected the name of a file below its folder"
    ):
        SentenceEncoder.from_pretrained(folder)


def test_a_folder_that_modules_json_names_and_that_is_missing(tmp_path):
    folder = write_model(tmp_path / "model", "BERT's, small letters", {}, below="0_Transformer")
    (folder / "0_Transformer").rename(folder / "elsewhere")
    with pytest.raises(ValueError, match="0_Transformer/config.json: expected a file, got none"):
        SentenceEncoder.from_pretrained(folder)
