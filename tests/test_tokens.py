"""Folders of every layout, ids against the Rust library, batches against counting, and what is
refused.
"""

import json
import os
import random
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from tokenizers import BertWordPieceTokenizer, normalizers
from torch.testing import assert_close
from transformers import BertTokenizerFast

from minbert import tokens
from minbert.tokens import (
    TokenBatch,
    budget_cut,
    encode_ids,
    load_tokenizer,
    pad_ids,
    resolve_folder,
    token_batches,
    tokenize,
)

PIECES = (
    "[PAD] [UNK] [CLS] [SEP] [MASK] ! ' , . a The the film na ##ive ##ïve naive re ##watch ##ed Film cafe café "
    "中 un ##aff ##able 9"
).split()
TEXTS = [
    "The film.",
    "the FILM!",
    "naïve café",
    "naive cafe",
    "re rewatched unaffable, unaffabl",
    "",
    "中中9",
    "\t\n",
    "na\u00adive",
    "a" * 101,
    "[MASK] a [SEP]",
]


def write_folder(folder, config=None, settings=None, vocab=True, lower=None, strip_accents=None):
    """A model folder with any of config.json, tokenizer_config.json, vocab.txt, tokenizer.json (if
    `lower` is set).
    """
    folder.mkdir(exist_ok=True)
    text = "\n".join(PIECES) + "\n"
    (folder / "vocab.txt").write_text(text, encoding="utf-8")
    if lower is not None:
        rust = BertWordPieceTokenizer(
            str(folder / "vocab.txt"), lowercase=lower, strip_accents=strip_accents
        )
        rust.save(str(folder / "tokenizer.json"))
    if not vocab:
        (folder / "vocab.txt").unlink()
    for name, content in (("config.json", config), ("tokenizer_config.json", settings)):
        if content is not None:
            (folder / name).write_text(json.dumps(content))
    return folder


def rust_ids(tmp_path, lower, strip_accents=None):
    """The oracle: the Rust library itself, no transformers in between."""
    file = tmp_path / "oracle.txt"
    file.write_text("\n".join(PIECES) + "\n", encoding="utf-8")
    rust = BertWordPieceTokenizer(str(file), lowercase=lower, strip_accents=strip_accents)
    return [e.ids for e in rust.encode_batch(TEXTS)]


@pytest.fixture
def tokenizer(tmp_path):
    return load_tokenizer(write_folder(tmp_path / "model"))


BERT, CASED, UNCASED = {"model_type": "bert"}, {"do_lower_case": False}, {"do_lower_case": True}
LAYOUTS = {
    "vocab and config": (dict(config=BERT), True),
    "vocab alone": (dict(), True),
    "config without model_type": (dict(config={}), True),
    "vocab, cased by settings": (dict(config=BERT, settings=CASED), False),
    "vocab, uncased by settings": (dict(config=BERT, settings=UNCASED), True),
    "settings silent about case": (dict(config=BERT, settings={"model_max_length": 512}), True),
    "json alone, uncased": (dict(vocab=False, lower=True), True),
    "json alone, cased": (dict(vocab=False, lower=False), False),
    "json and config, cased": (dict(config=BERT, vocab=False, lower=False), False),
    "json cased, settings silent": (
        dict(config=BERT, lower=False, settings={"model_max_length": 512}),
        False,
    ),
    "everything, uncased": (dict(config=BERT, lower=True, settings=UNCASED), True),
    "everything, cased": (dict(config=BERT, lower=False, settings=CASED), False),
    "settings overrule json": (dict(config=BERT, lower=True, settings=CASED), False),
}


# --- loading


@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_layout_gives_the_ids_of_the_rust_library(tmp_path, layout):
    given, lower = LAYOUTS[layout]
    loaded = load_tokenizer(write_folder(tmp_path / "model", **given))
    assert loaded.is_fast and loaded.get_vocab() == {piece: i for i, piece in enumerate(PIECES)}
    assert encode_ids(loaded, TEXTS) == rust_ids(tmp_path, lower)
    assert (loaded.pad_token_id, loaded.unk_token_id, loaded.cls_token_id) == (0, 1, 2)
    assert (loaded.sep_token_id, loaded.mask_token_id) == (3, 4)


def test_upper_and_lower_case_really_differ_here(tmp_path):
    assert rust_ids(tmp_path, True) != rust_ids(tmp_path, False)


def test_accents_of_tokenizer_json_are_kept(tmp_path):
    folder = write_folder(tmp_path / "model", vocab=False, lower=True, strip_accents=False)
    assert (
        encode_ids(load_tokenizer(folder), TEXTS)
        == rust_ids(tmp_path, True, False)
        != rust_ids(tmp_path, True)
    )


def test_saved_again_and_loaded_again(tmp_path, tokenizer):
    tokenizer.save_pretrained(tmp_path / "again")
    assert encode_ids(load_tokenizer(tmp_path / "again"), TEXTS) == encode_ids(tokenizer, TEXTS)


def test_string_and_path_are_the_same(tmp_path):
    folder = write_folder(tmp_path / "model")
    assert resolve_folder(str(folder)) == resolve_folder(folder) == folder
    assert load_tokenizer(str(folder)).get_vocab() == load_tokenizer(folder).get_vocab()


def test_embedded_tokenizer():
    folder, loaded = resolve_folder(), load_tokenizer()
    assert folder.is_dir() and folder.parts[-3:] == ("minbert", "assets", "model")
    assert loaded.vocab_size == 8000
    assert loaded.convert_ids_to_tokens(range(5)) == ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    rust = BertWordPieceTokenizer(str(folder / "vocab.txt"), lowercase=True)
    texts = ["Crème brûlée costs $9.99!", "東京 is unphotographable…", "İstanbul\u200b", ""]
    assert encode_ids(loaded, texts) == [e.ids for e in rust.encode_batch(texts)]


@pytest.fixture
def package(monkeypatch, tmp_path):
    """Pretend that the package lies elsewhere, with the pretrained model alone."""
    (tmp_path / "assets/model").mkdir(parents=True)
    monkeypatch.setattr(
        "minbert.encoding.transformer_folder.files", lambda name: tmp_path / {"minbert": ""}[name]
    )
    return tmp_path


def test_a_package_carries_two_models(package):
    (package / "assets/sentences").mkdir()
    assert resolve_folder() == package / "assets/model"
    assert (
        resolve_folder("embedded-sentences")
        == resolve_folder(Path("embedded-sentences"))
        == package / "assets/sentences"
    )


def test_a_folder_of_that_name_is_reached_by_its_path(package, monkeypatch):
    (package / "assets/sentences").mkdir()
    (package / "embedded-sentences").mkdir()
    monkeypatch.chdir(package)
    assert resolve_folder("embedded-sentences") == package / "assets/sentences"
    assert resolve_folder("./embedded-sentences").resolve() == package / "embedded-sentences"


def test_a_package_without_the_second_model_says_so_and_asks_nobody(package, monkeypatch):
    asked = fake_hub(monkeypatch, package, [])
    with pytest.raises(ValueError, match=r"embedded-sentences.*assets.sentences.*without it"):
        resolve_folder("embedded-sentences")
    assert not asked
    assert resolve_folder() == package / "assets/model"


@pytest.mark.parametrize("keep", [[], ["config.json"], ["config.json", "tokenizer_config.json"]])
def test_folder_without_tokenizer_is_refused(tmp_path, keep):
    folder = write_folder(tmp_path / "model", config=BERT, settings=UNCASED, lower=True)
    for file in folder.iterdir():
        if file.name not in keep:
            file.unlink()
    with pytest.raises(ValueError, match="tokenizer.json or vocab.txt") as e:
        load_tokenizer(folder)
    assert str(folder) in str(e.value)


@pytest.mark.parametrize("name", ["tokenizer.json", "tokenizer_config.json"])
@pytest.mark.parametrize("settings", [UNCASED, {"model_max_length": 512}])
def test_file_cut_short_is_refused(tmp_path, name, settings):
    folder = write_folder(tmp_path / "model", config=BERT, settings=settings, lower=True)
    content = (folder / name).read_bytes()
    (folder / name).write_bytes(content[: len(content) // 2])
    with pytest.raises(ValueError, match=f"{folder / name}: expected JSON"):
        load_tokenizer(folder)


# --- the hub


def test_fresh_interpreter_imports_little_and_gives_up_fast(tmp_path):
    """Nothing listens at the hub's address; the time limit catches endless retries."""
    code = (
        "import sys\n"
        "from minbert.tokens import load_tokenizer\n"
        "heavy = {'transformers', 'tokenizers', 'huggingface_hub', 'matplotlib'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
        "try: load_tokenizer('nobody/no-such-model')\n"
        "except ValueError as e: print('refused:', e)"
    )
    env = {
        **os.environ,
        "OMP_NUM_THREADS": "1",
        "HF_ENDPOINT": "http://127.0.0.1:9",
        "HF_HOME": str(tmp_path),
    }
    result = subprocess.run(
        [sys.executable, "-c", code], env=env, capture_output=True, text=True, timeout=60
    )
    assert result.returncode == 0, result.stderr
    assert result.stdout.startswith("refused: ") and "'nobody/no-such-model'" in result.stdout


@pytest.mark.parametrize("error", [OSError, ConnectionError, RuntimeError, KeyError])
def test_any_trouble_with_the_hub_names_the_model(monkeypatch, error):
    import huggingface_hub

    def fail(*_, **__):
        raise error("no route")

    monkeypatch.setattr(huggingface_hub, "snapshot_download", fail)
    with pytest.raises(ValueError, match=f"'nobody/no-such-model'.*{error.__name__}"):
        resolve_folder("nobody/no-such-model")


@pytest.mark.parametrize("name", ["no such model!", "/no/such/folder", "../nowhere", "a/b/c", ""])
def test_impossible_names(name):
    with pytest.raises(ValueError) as e:
        resolve_folder(name)
    assert repr(name) in str(e.value)


def fake_hub(monkeypatch, folder, names):
    """Replace the download by one that copies, and record what was asked for."""
    import huggingface_hub

    asked = []

    def download(name, allow_patterns, **_):
        asked.append((name, allow_patterns))
        for file in names:
            if any(Path(file).match(pattern) for pattern in allow_patterns):
                (folder / file).parent.mkdir(exist_ok=True)
                (folder / file).write_text("{}")
        return str(folder)

    monkeypatch.setattr(huggingface_hub, "snapshot_download", download)
    return asked


def test_download_takes_what_is_needed_and_no_more(monkeypatch, tmp_path):
    hub = [
        "config.json",
        "vocab.txt",
        "tokenizer.json",
        "modules.json",
        "1_Pooling/config.json",
        "model.safetensors",
        "pytorch_model.bin",
        "tf_model.h5",
        "flax_model.msgpack",
        "onnx/model.onnx",
        "README.md",
    ]
    asked = fake_hub(monkeypatch, tmp_path, hub)
    assert resolve_folder("someone/model") == tmp_path
    found = {str(f.relative_to(tmp_path)) for f in tmp_path.rglob("*") if f.is_file()}
    assert found == set(hub[:6])
    assert [name for name, _ in asked] == ["someone/model"]


def test_download_of_an_old_model_takes_the_bin_file(monkeypatch, tmp_path):
    fake_hub(
        monkeypatch, tmp_path, ["config.json", "vocab.txt", "pytorch_model.bin", "tf_model.h5"]
    )
    resolve_folder("someone/model")
    assert {f.name for f in tmp_path.iterdir()} == {"config.json", "vocab.txt", "pytorch_model.bin"}


@pytest.mark.parametrize("weights", ["model.safetensors", "pytorch_model.bin"])
def test_download_of_the_layout_of_old_sentence_transformers(monkeypatch, tmp_path, weights):
    wanted = [
        "config.json",
        "modules.json",
        *(f"0_Transformer/{name}" for name in ("config.json", "vocab.txt", weights)),
        "1_Pooling/config.json",
    ]
    fake_hub(monkeypatch, tmp_path, [*wanted, "0_Transformer/tf_model.h5", "README.md"])
    resolve_folder("someone/model")
    assert {
        str(file.relative_to(tmp_path)) for file in tmp_path.rglob("*") if file.is_file()
    } == set(wanted)


# --- ids


def test_ids_by_hand(tokenizer):
    ids = encode_ids(tokenizer, ["The film!", "naïve", "", "unaffable xyz"])
    named = [[PIECES[i] for i in row] for row in ids]
    assert named == [
        ["[CLS]", "the", "film", "!", "[SEP]"],
        ["[CLS]", "naive", "[SEP]"],
        ["[CLS]", "[SEP]"],
        ["[CLS]", "un", "##aff", "##able", "[UNK]", "[SEP]"],
    ]


@pytest.mark.parametrize("length", [509, 510, 511, 512, 5000])
def test_long_sentence_keeps_its_frame(tokenizer, length):
    (row,) = encode_ids(tokenizer, ["a " * length])
    assert len(row) == min(length + 2, 512)
    assert row[0] == 2 and row[-1] == 3 and set(row[1:-1]) == {PIECES.index("a")}


@pytest.mark.parametrize("max_length", [3, 4, 5, 9])
def test_max_length(tokenizer, max_length):
    full, cut = (encode_ids(tokenizer, ["the film, naive a . !"], n)[0] for n in (512, max_length))
    assert cut == (full if len(full) <= max_length else full[: max_length - 1] + [3])


def test_one_call_leaves_no_trace_in_the_next(tokenizer):
    before = encode_ids(tokenizer, TEXTS)
    encode_ids(tokenizer, TEXTS, max_length=3)
    tokenizer(TEXTS, padding="max_length", max_length=20, truncation=True)
    assert encode_ids(tokenizer, TEXTS) == before


@pytest.mark.parametrize("kind", [tuple, iter])
def test_any_iterable_of_sentences(tokenizer, kind):
    sentences = ["a film", "the film"]
    assert encode_ids(tokenizer, kind(sentences)) == encode_ids(tokenizer, sentences)


@pytest.mark.parametrize(
    "sentences, words",
    [
        ([], "at least one"),
        ((), "at least one"),
        ("a film", "got one str"),
        (b"a film", "got one bytes"),
        (["a", None], "sentence 1, got NoneType"),
        (["a", "b", 3], "sentence 2, got int: 3"),
        ([float("nan")], "sentence 0, got float"),
        ([b"a"], "sentence 0, got bytes"),
        ([["a", "b"]], "sentence 0, got list"),
        ([("a", "b")], "sentence 0, got tuple"),
        (["ok", "caf\udce9"], "Unicode for sentence 1"),
        (None, "got NoneType: None"),
        ({"a film"}, "got a set, which has no order"),
    ],
)
@pytest.mark.parametrize("call", [encode_ids, tokenize])
def test_bad_sentences(tokenizer, call, sentences, words):
    with pytest.raises(ValueError) as e:
        call(tokenizer, sentences)
    assert words in str(e.value)


@pytest.mark.parametrize("max_length", [2, 1, 0, -1])
def test_bad_max_length(tokenizer, max_length):
    with pytest.raises(ValueError, match=f">= 3.*got {max_length}"):
        encode_ids(tokenizer, ["a"], max_length)


# --- padding


def random_rows(n, longest, seed, shortest=1):
    rng = random.Random(seed)
    return [[rng.randrange(1, 99) for _ in range(rng.randint(shortest, longest))] for _ in range(n)]


@pytest.mark.parametrize("n, longest", [(1, 1), (1, 9), (2, 1), (7, 5), (64, 40)])
@pytest.mark.parametrize("pad_id", [0, 5])
def test_pad_ids_against_torch(n, longest, pad_id):
    rows = random_rows(n, longest, seed=n)
    batch = pad_ids(rows, pad_id)
    as_tensors = [torch.tensor(row) for row in rows]
    assert_close(batch.input_ids, torch.nn.utils.rnn.pad_sequence(as_tensors, True, pad_id))
    assert_close(
        batch.attention_mask,
        torch.nn.utils.rnn.pad_sequence([torch.ones_like(t) for t in as_tensors], True),
    )
    assert batch.lengths.tolist() == [len(row) for row in rows]


def test_the_pad_id_inside_a_row_is_a_token():
    batch = pad_ids([[0, 7], [7]])
    assert batch.attention_mask.tolist() == [[1, 1], [1, 0]]


def test_empty_row_is_all_padding():
    batch = pad_ids([[], [7, 8]])
    assert batch.input_ids.tolist() == [[0, 0], [7, 8]] and batch.lengths.tolist() == [0, 2]


def test_empty_rows_alone_are_a_batch_of_width_0():
    batch = pad_ids([[], []])
    assert batch.input_ids.shape == batch.attention_mask.shape == (2, 0)
    assert batch.input_ids.dtype == torch.int64


def test_arguments_are_left_alone():
    rows = [[1, 2], [3]]
    pad_ids(rows)
    list(token_batches(rows))
    assert rows == [[1, 2], [3]]


def test_tokenize_against_transformers(tmp_path, tokenizer):
    theirs = BertTokenizerFast.from_pretrained(tmp_path / "model")
    for max_length in (4, 512):
        batch = tokenize(tokenizer, TEXTS, max_length)
        expected = theirs(
            TEXTS, padding=True, truncation=True, max_length=max_length, return_tensors="pt"
        )
        assert_close(batch.input_ids, expected["input_ids"])
        assert_close(batch.attention_mask, expected["attention_mask"])


def test_tokenize_pads_with_the_tokenizers_own_id(tmp_path):
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "vocab.txt").write_text("\n".join(PIECES[1:] + ["[PAD]"]) + "\n", encoding="utf-8")
    batch = tokenize(load_tokenizer(folder), ["a film", ""])
    assert batch.input_ids[1].tolist()[2:] == [len(PIECES) - 1] * 2


def test_batch_moves_and_unpacks():
    batch = TokenBatch(torch.tensor([[1, 2]]), torch.tensor([[1, 1]]))
    moved = batch.to("meta")
    assert isinstance(moved, TokenBatch) and {t.device.type for t in moved} == {"meta"}
    assert batch.input_ids.device.type == "cpu"
    ids, mask = batch
    assert ids is batch.input_ids and mask is batch.attention_mask


# --- batches


@pytest.mark.parametrize(
    "n, longest, budget",
    [(1, 1, 1), (5, 3, 3), (40, 20, 20), (300, 50, 64), (300, 50, 1000), (20, 7, 10**6)],
)
@pytest.mark.parametrize("seed", range(3))
def test_token_batches(n, longest, budget, seed):
    rows = random_rows(n, longest, seed)
    restored, widths = {}, []
    for positions, batch in token_batches(rows, budget, pad_id=0):
        B, T = batch.input_ids.shape
        assert positions.dtype == torch.int64 and positions.shape == (B,)
        assert budget >= B * T and batch.lengths.max() == T
        widths.append((B, T))
        for i, row, length in zip(
            positions.tolist(), batch.input_ids.tolist(), batch.lengths.tolist()
        ):
            assert i not in restored
            restored[i] = row[:length]
    assert [restored[i] for i in range(n)] == rows
    assert [T for _, T in widths] == sorted((T for _, T in widths), reverse=True)
    for B, T in widths[:-1]:
        assert budget < (B + 1) * T  # no batch leaves room for one more row


def test_order_is_restored_by_positions():
    rows = random_rows(50, 12, seed=1)
    out = torch.empty(50)
    for positions, batch in token_batches(rows, budget=30):
        out[positions] = (batch.input_ids * batch.attention_mask).sum(1).float()
    assert out.tolist() == [float(sum(row)) for row in rows]


def test_rows_inside_a_batch_run_from_long_to_short_and_ties_keep_their_order():
    order = [
        i
        for positions, _ in token_batches([[1], [2, 2], [3], [4, 4]], 4)
        for i in positions.tolist()
    ]
    assert order == [1, 3, 0, 2]


def test_batches_know_the_pad_id():
    ((_, batch),) = token_batches([[1, 1], [2]], pad_id=9)
    assert batch.input_ids.tolist() == [[1, 1], [2, 9]]


def test_default_budget_fits_sixteen_full_rows():
    sizes = [len(positions) for positions, _ in token_batches([[1] * 512] * 40)]
    assert sizes == [16, 16, 8]


@pytest.mark.parametrize(
    "ids, budget, words", [([[1, 2, 3], [1]], 2, "3 tokens, got 2"), ([[1]], 0, "1 tokens, got 0")]
)
def test_a_budget_below_the_longest_row_is_refused(ids, budget, words):
    with pytest.raises(ValueError) as e:
        next(token_batches(ids, budget))
    assert words in str(e.value)


def test_batches_are_made_one_at_a_time(monkeypatch):
    made = []
    monkeypatch.setattr(tokens, "pad_ids", lambda ids, pad_id: made.append(len(ids)))
    batches = token_batches([[1]] * 10, budget=2)
    next(batches)
    assert made == [2]


def test_a_row_above_the_budget_ends():
    assert budget_cut([2, 10], 5) == [[1], [0]]


def test_the_side_that_is_cut_is_the_tokenizers():
    tokenizer, text = load_tokenizer(), "a b c d e f g"
    for side in ("left", "right"):
        tokenizer.truncation_side = side
        assert encode_ids(tokenizer, [text], 5) == [
            tokenizer(text, truncation=True, max_length=5)["input_ids"]
        ]
    assert encode_ids(tokenizer, [text], 5)[0][1] != encode_ids(tokenizer, [text[6:]], 5)[0][1]


def test_the_end_of_a_very_long_text_is_kept_where_the_beginning_is_cut():
    tokenizer = load_tokenizer()
    tokenizer.truncation_side = "left"
    assert encode_ids(tokenizer, ["a " * 999 + "b c d"], 5) == encode_ids(tokenizer, ["b c d"], 5)


ACROSS = normalizers.Sequence(
    [normalizers.Replace("two three", "four"), normalizers.BertNormalizer()]
)


@pytest.mark.parametrize(
    "change",
    [
        lambda tokenizer: tokenizer.add_tokens(["two three"]),
        lambda tokenizer: setattr(tokenizer.backend_tokenizer, "normalizer", ACROSS),
    ],
)
def test_a_very_long_text_is_not_cut_where_a_tokenizer_looks_across_blanks(change):
    tokenizer, text = load_tokenizer(), "two three " * 8000
    change(tokenizer)
    expected = tokenizer(text, truncation=True, max_length=4000)["input_ids"]
    assert encode_ids(tokenizer, [text], 4000) == [expected] and len({*expected[1:-1]}) == 1


def test_an_added_token_stays_whole_where_a_window_ends():
    # the second window of 8192 ends behind a bracket
    tokenizer, text = load_tokenizer(), "ab [MASK] " * 8000
    assert encode_ids(tokenizer, [text], 4000) == [
        tokenizer(text, truncation=True, max_length=4000)["input_ids"]
    ]


def test_a_word_may_be_as_long_as_the_tokenizer_reads():
    # the first window of 8192 ends in a word
    tokenizer, text = load_tokenizer(), " " * 8000 + ("a" * 200 + " ") * 400
    tokenizer.backend_tokenizer.model.max_input_chars_per_word = 300
    expected = tokenizer(text, truncation=True, max_length=4000)["input_ids"]
    assert (
        encode_ids(tokenizer, [text], 4000) == [expected] and tokenizer.unk_token_id not in expected
    )


def test_other_threads_find_the_tokenizer_as_it_was_while_a_very_long_text_is_read(monkeypatch):
    """They share it: where one asks it for a text uncut, the text of another would come uncut, too."""
    from minbert.encoding import truncation

    tokenizer = load_tokenizer()
    text = "one two three " * 5000
    stretches = truncation.stretches
    seen = []

    def watched(*args, **kwargs):
        for stretch in stretches(*args, **kwargs):
            seen.append(tokenizer.backend_tokenizer.truncation)
            yield stretch

    wanted = tokenizer(text, truncation=True, max_length=4000)["input_ids"]
    monkeypatch.setattr(truncation, "stretches", watched)
    assert encode_ids(tokenizer, ["one", text], 4000)[1] == wanted
    seen.append(tokenizer.backend_tokenizer.truncation)
    assert len(seen) > 2 and all(found and found["max_length"] == 4000 for found in seen)


def test_a_tokenizer_that_cuts_there_already_is_not_set_again():
    """Releases of tokenizers before 0.23 raise "Already borrowed" where it is set while another
    thread encodes.
    """
    from types import SimpleNamespace

    from minbert.encoding.truncation import rust_tokenizer

    inner = load_tokenizer().backend_tokenizer
    set_at = []

    class Watched:
        truncation = property(lambda self: inner.truncation)
        padding = property(lambda self: inner.padding)

        def enable_truncation(self, **how):
            set_at.append(how["max_length"])
            inner.enable_truncation(**how)

        def no_padding(self):
            set_at.append("padding")
            inner.no_padding()

    outer = SimpleNamespace(backend_tokenizer=Watched(), truncation_side="right")
    inner.enable_padding()
    for length in (9, 9, 7, 7, 9):
        rust_tokenizer(outer, length)
    assert set_at == [9, "padding", 7, 9]
