"""The command line as people type it: output, exit status, what is written and what is not."""

import csv
import errno
import gzip
import json
import os
import re
import shutil
import socket
import subprocess
import sys
from importlib import resources
from pathlib import Path

import numpy as np
import pytest
import torch
from terminal import run
from torch import nn
from torch.testing import assert_close

from minbert.baselines import BagOfWords
from minbert.cli import commands, demo
from minbert.cli.cli_errors import GO_ON, SECTIONS, plain_sentence
from minbert.cli.commands import describe, main, repeat_option
from minbert.cli.table_reader import too_long
from minbert.core.checkpoint import read_checkpoint
from minbert.data import Dataset, load_dataset
from minbert.encoder import BertConfig, BertModel
from minbert.encoding.dense_layers import Dense
from minbert.encoding.int8_linear import exact_integers
from minbert.encoding.npy_writer import encode_file
from minbert.evaluate import evaluate_tasks, metric_of, read_predictions
from minbert.finetune import default_learning_rate
from minbert.heads import MultitaskBert, default_heads
from minbert.sentence import SentenceEncoder, UnitLength
from minbert.tokens import load_tokenizer

SAMPLE = Path(commands.__file__).parent.parent / "assets" / "sample"
TASKS = ("sst", "quora", "stsb")


def loads_of(cls, monkeypatch) -> list:
    """Note each call of `cls.from_pretrained`."""
    loads, load = [], cls.from_pretrained
    monkeypatch.setattr(cls, "from_pretrained", lambda *a, **k: loads.append(a) or load(*a, **k))
    return loads


@pytest.fixture(scope="module")
def tiny(tmp_path_factory) -> Path:
    """A folder with a tiny random encoder and the embedded tokenizer."""
    torch.manual_seed(0)
    tokenizer = load_tokenizer()
    config = BertConfig(
        vocab_size=len(tokenizer),
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=32,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
    )
    folder = tmp_path_factory.mktemp("models") / "tiny"
    SentenceEncoder(BertModel(config), tokenizer).save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def small_data(tmp_path_factory) -> Path:
    """The first rows of the embedded sample, as a course folder."""
    folder = tmp_path_factory.mktemp("data")
    for file in SAMPLE.glob("*.csv"):
        rows = 40 if "train" in file.name else 25
        lines = file.read_text(encoding="utf8").splitlines(keepends=True)
        (folder / file.name).write_text("".join(lines[: rows + 1]), encoding="utf8")
    return folder


@pytest.mark.parametrize(
    "typed, parsed",
    [
        ("train --tasks sst quora --out x", "train --tasks sst --tasks quora --out x"),
        ("train --tasks sst --tasks quora", "train --tasks sst --tasks quora"),
        ("train --out x --tasks a b c", "train --out x --tasks a --tasks b --tasks c"),
        ("encode model file --out v.npy", "encode model file --out v.npy"),
        ("train --tasks", "train --tasks"),
        ("train --tasks --steps 2", "train --tasks --steps 2"),
        # a file is no column
        (
            "contrast --columns a b t.csv.gz --out x",
            "contrast --columns a --columns b t.csv.gz --out x",
        ),
        ("predict model t.jsonl --columns a", "predict model t.jsonl --columns a"),
        ("predict model --columns a t.txt b", "predict model --columns a t.txt b"),
        ("predict model --columns a T.CSV", "predict model --columns a T.CSV"),
        ("contrast --columns t.csv", "contrast --columns t.csv"),  # the parser misses FILE
        ("train --tasks a t.csv", "train --tasks a --tasks t.csv"),
        # no task is called so
        ("evaluate --tasks a b run/model", "evaluate --tasks a --tasks b run/model"),
        ("", ""),
    ],
)
def test_many_words_after_tasks(typed, parsed):
    assert repeat_option(typed.split()) == parsed.split()


def test_help_is_quick_and_names_every_command_and_default():
    code = (
        "import sys; from minbert.cli.commands import main\n"
        "try: main(sys.argv[1:])\nexcept SystemExit: pass\n"
        "print('torch' in sys.modules)"
    )
    shown = {}
    for words in (["--help"], ["train", "--help"]):
        env = {**os.environ, "COLUMNS": "200", "TERM": "dumb"}
        shown[words[0]] = subprocess.run(
            [sys.executable, "-c", code, *words],
            capture_output=True,
            text=True,
            check=True,
            env=env,
        ).stdout
    listed = re.findall(r"^. ([a-z][a-z-]*)  ", shown["--help"], re.M)
    assert listed == [name for names in SECTIONS.values() for name in names] and len(
        {*listed}
    ) == len(listed)
    registered = {
        command.name or command.callback.__name__ for command in commands.app.registered_commands
    } | {group.name for group in commands.app.registered_groups}
    # none is hidden, and none is promised
    assert registered == {*listed}
    assert re.findall(r"─ ([A-Z][a-z ]+) ─", shown["--help"]) == ["Options", *SECTIONS]
    for option in (
        "--tasks",
        "--data",
        "--model",
        "--out",
        "--resume",
        "--schedule",
        "joint",
        "11711",
        "embedded",
        *commands.OPEN_TASKS,
        *TASKS,
    ):
        assert option in shown["train"]
    assert all(text.splitlines()[-1] == "False" for text in shown.values()), "help loads torch"


@pytest.mark.parametrize("words", [["grade", "."], ["course", "status"], ["course", "assemble"]])
def test_where_no_process_can_be_limited_nobody_is_graded_and_a_sentence_says_so(tmp_path, words):
    # Windows has neither
    code = "import sys; sys.modules['resource'] = sys.modules['fcntl'] = None; from minbert.cli.commands import main; main()"
    shown = subprocess.run(
        [sys.executable, "-c", code, *words],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(Path(commands.__file__).parents[2])},
    )
    assert shown.returncode == 1 and "WSL" in shown.stderr and "Traceback" not in shown.stderr


def test_default_learning_rate_falls_with_the_width():
    assert [default_learning_rate(width) for width in (128, 256, 384, 768, 1024)] == [
        5e-4,
        5e-4,
        1e-4,
        1e-5,
        1e-5,
    ]


def test_encode_gives_row_n_to_line_n(capsys, tmp_path, tiny):
    lines = ["A dog barks.", "", "  The market fell.  ", "Ein Hund.", ""]
    with gzip.open(tmp_path / "s.txt.gz", "wt", encoding="utf8") as file:
        file.write("\n".join(lines) + "\n")
    out, err = run(
        capsys, f"encode {tiny} {tmp_path / 's.txt.gz'} --out {tmp_path / 'sub' / 'v.npy'}"
    )
    assert out == f"5 vectors of width 16: {tmp_path / 'sub' / 'v.npy'}\n"
    assert "5/5" in err  # the bar
    vectors = np.load(tmp_path / "sub" / "v.npy")
    assert vectors.shape == (5, 16) and vectors.dtype == np.float32
    expected = SentenceEncoder.from_pretrained(tiny).encode([line.strip() for line in lines])
    assert_close(torch.from_numpy(vectors), expected, rtol=0, atol=1e-6)
    assert os.listdir(tmp_path / "sub") == ["v.npy"]


def test_vectors_do_not_take_the_place_of_a_folder(capsys, tmp_path, tiny):
    (tmp_path / "s.txt").write_text("A dog barks.\n")
    assert (
        "expected a file or nothing, got a folder"
        in run(capsys, f"encode {tiny} {tmp_path / 's.txt'} --out {tmp_path}", 1)[1]
    )


def test_encode_reads_the_sentences_of_a_table(capsys, tmp_path, tiny):
    """Not its header, ids and dates."""
    texts = ["A dog, barks.", "The market fell.", "Ein Hund."]
    (tmp_path / "s.txt").write_text("\n".join(texts) + "\n")
    rows = [{"id": str(i), "sentence": text, "day": "2024-05-01"} for i, text in enumerate(texts)]
    (tmp_path / "s.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    for name, mark in (
        ("comma.csv", ","),
        ("semicolon.csv", ";"),
        ("s.tsv", "\t"),
        ("s.csv.gz", ","),
    ):
        with (gzip.open if name.endswith(".gz") else open)(
            tmp_path / name, "wt", newline="", encoding="utf-8-sig"
        ) as file:
            csv.writer(file, delimiter=mark).writerows([rows[0], *(row.values() for row in rows)])
    run(capsys, f"encode {tiny} {tmp_path / 's.txt'} --out {tmp_path / 'v.npy'}")
    expected = np.load(tmp_path / "v.npy")
    shutil.copy(tmp_path / "comma.csv", tmp_path / "UPPER.CSV")
    for name in ("comma.csv", "semicolon.csv", "s.tsv", "s.csv.gz", "s.jsonl", "UPPER.CSV"):
        out, _ = run(capsys, f"encode {tiny} {tmp_path / name} --out {tmp_path / 'w.npy'}")
        assert out.startswith("3 vectors of width 16: ") and np.array_equal(
            np.load(tmp_path / "w.npy"), expected
        ), name
    run(capsys, f"encode {tiny} {tmp_path / 'comma.csv'} --columns day --out {tmp_path / 'w.npy'}")
    days = np.load(tmp_path / "w.npy")
    assert np.array_equal(days[0], days[2]) and not np.array_equal(days, expected)
    assert (
        "expected one column, got ['id', 'day']"
        in run(
            capsys,
            f"encode {tiny} {tmp_path / 'comma.csv'} --columns id day --out {tmp_path / 'x.npy'}",
            1,
        )[1]
    )
    assert not (tmp_path / "x.npy").exists()


def test_text_that_is_cut_is_said_so_and_may_be_read_on(capsys, tmp_path, tiny):
    short, long = "a dog " * 3, "a dog " * 40
    (tmp_path / "s.txt").write_text(f"{long} in the rain\n{short}\n{long} in the sun\n")
    most = SentenceEncoder.from_pretrained(tiny).max_length
    _, err = run(
        capsys, f"encode {tiny} {tmp_path / 's.txt'} --out {tmp_path / 'v.npy'} --max-length 20"
    )
    assert (
        "note: 2 of 3 texts are longer than the 20 tokens that the model reads: the rest of them is not read\n"
        in err
        and most > 20
    )
    vectors = np.load(tmp_path / "v.npy")
    assert np.allclose(vectors[0], vectors[2], atol=1e-6)
    _, err = run(
        capsys, f"encode {tiny} {tmp_path / 's.txt'} --out {tmp_path / 'v.npy'} --max-length 100"
    )
    assert "note" not in err and not np.allclose(*np.load(tmp_path / "v.npy")[[0, 2]], atol=1e-3)


@pytest.mark.parametrize("pieces", [18, 19])
def test_a_text_is_too_long_from_one_token_more_than_are_read(tiny, pieces):
    encoder = SentenceEncoder.from_pretrained(tiny)
    encoder.max_length = 20  # with [CLS] and [SEP]
    for text in (". " * pieces, "." * pieces):  # a piece may have one byte and no blank
        assert too_long(encoder, [text, "a", ""]) == (
            ""
            if pieces == 18
            else "note: 1 of 3 texts are longer than the 20 tokens that the model reads: the rest of them is not read"
        )


def test_encode_normalize_gives_vectors_of_length_1(capsys, tmp_path, tiny):
    (tmp_path / "s.txt").write_text("A dog barks.\nThe market fell.\nEin Hund.\n")
    plain, unit, parts = tmp_path / "plain.npy", tmp_path / "unit.npy", tmp_path / "parts"
    run(capsys, f"encode {tiny} {tmp_path / 's.txt'} --out {plain}")
    run(capsys, f"encode {tiny} {tmp_path / 's.txt'} --out {unit} --normalize")
    vectors = torch.from_numpy(np.load(plain))
    assert (vectors.norm(dim=1) - 1).abs().min() > 0.1
    assert_close(
        torch.from_numpy(np.load(unit)),
        vectors / vectors.norm(dim=1, keepdim=True),
        rtol=0,
        atol=1e-6,
    )
    run(capsys, f"encode {tiny} {tmp_path / 's.txt'} --out {parts} --part-size 2 --normalize")
    with pytest.raises(SystemExit):
        main(f"encode {tiny} {tmp_path / 's.txt'} --out {parts} --part-size 2".split())
    # both kinds in one folder would be of no use
    assert (
        "expected transform UnitLength, as the parts in this folder have" in capsys.readouterr().err
    )


def test_vectors_have_the_lengths_that_the_folder_asks_for(capsys, tmp_path, tiny):
    """As sentence-transformers gives them: of length 1 where a Normalize ends the folder."""
    SentenceEncoder.from_pretrained(tiny, normalize=True, device="cpu").save_pretrained(
        tmp_path / "theirs"
    )
    (tmp_path / "theirs" / "minbert_sentence.json").unlink()  # now another library's
    SentenceEncoder.from_pretrained(tiny, normalize=True, device="cpu").save_pretrained(
        tmp_path / "ours"
    )
    inner = SentenceEncoder.from_pretrained(tiny, device="cpu")
    inner.transform = nn.Sequential(UnitLength(), Dense(16, 4))
    inner.save_pretrained(tmp_path / "inner")
    (tmp_path / "s.txt").write_text("A dog barks.\nThe market fell.\n")
    length = {}
    for model in (tiny, tmp_path / "theirs", tmp_path / "ours", tmp_path / "inner"):
        for option in ("", "--normalize", "--no-normalize"):
            run(capsys, f"encode {model} {tmp_path / 's.txt'} --out {tmp_path / 'v.npy'} {option}")
            length[model.name, option] = np.linalg.norm(np.load(tmp_path / "v.npy"), axis=1)
    # one in the middle stays
    assert np.array_equal(length["inner", ""], length["inner", "--no-normalize"])
    ones = {key for key, norms in length.items() if np.allclose(norms, 1, atol=1e-6)}
    assert ones == {
        ("tiny", "--normalize"),
        ("theirs", ""),
        ("theirs", "--normalize"),
        ("ours", ""),
        ("ours", "--normalize"),
        ("inner", "--normalize"),
    }


def test_encode_does_not_replace_the_text(capsys, tmp_path, tiny):
    (tmp_path / "s").write_text("One line.\n")
    (tmp_path / "t").symlink_to(tmp_path / "s")
    for out in ("s", "t"):
        with pytest.raises(SystemExit):
            main(f"encode {tiny} {tmp_path / 's'} --out {tmp_path / out}".split())
        assert f"{out}: expected another file than the text" in capsys.readouterr().err
    assert (tmp_path / "s").read_text() == "One line.\n" and (tmp_path / "t").is_symlink()


def test_encode_in_integers(capsys, tmp_path, tiny):
    """Enough tokens that laying out pays; both precisions at once are none. Where integers are not
    to be had, the error says so.
    """
    lines, out = [f"Line {k} of these." for k in range(200)], tmp_path / "v.npy"
    (tmp_path / "s.txt").write_text("\n".join(lines))
    words = f"encode {tiny} {tmp_path / 's.txt'} --out {out} --int8"
    assert "expected --bf16 or --int8, got both" in run(capsys, f"{words} --bf16", 1)[1]
    said = run(capsys, words, 0 if exact_integers() else 1)[1]
    if not exact_integers():
        assert "VNNI" in said and not out.exists()
        return
    encoder = SentenceEncoder.from_pretrained(tiny)
    found = torch.from_numpy(np.load(out))
    assert_close(found, encoder.encode(lines, precision="int8"), rtol=0, atol=1e-6)
    assert (found - encoder.encode(lines)).abs().max() > 1e-5


def test_encode_that_is_stopped_says_how_to_go_on(capsys, tmp_path, tiny, monkeypatch):
    def interrupted(*asked):
        yield 0, 2, 1.0
        raise KeyboardInterrupt

    monkeypatch.setattr("minbert.encoding.shards.encode_shards", interrupted)
    (tmp_path / "three.txt").write_text("a\nb\nc\n")
    _, err = run(
        capsys,
        f"encode {tiny} {tmp_path / 'three.txt'} --out {tmp_path / 'parts'} --part-size 2",
        130,
    )
    assert (
        f"whole parts stay in {tmp_path / 'parts'}; the same command goes on" in err
        and err.endswith("minbert: stopped\n")
    )


def test_encode_pooling_and_bf16(capsys, tmp_path, tiny):
    (tmp_path / "s.txt").write_text("One line.\nAnother, longer line.\n")
    for option, settings in (("--pooling cls", {"pooling": "cls"}), ("--bf16", {})):
        run(capsys, f"encode {tiny} {tmp_path / 's.txt'} --out {tmp_path / 'v.npy'} {option}")
        precision = "bf16" if "bf16" in option else "fp32"
        encoder = SentenceEncoder.from_pretrained(tiny, **settings)
        expected = encoder.encode(["One line.", "Another, longer line."], precision=precision)
        assert_close(torch.from_numpy(np.load(tmp_path / "v.npy")), expected, rtol=0, atol=1e-6)


def test_the_word_embedded_means_the_model_in_the_package(capsys, tmp_path):
    (tmp_path / "s.txt").write_text("One line.\nAnother, longer line.\n")
    run(capsys, f"encode embedded {tmp_path / 's.txt'} --out {tmp_path / 'v.npy'}")
    expected = SentenceEncoder.from_pretrained().encode(["One line.", "Another, longer line."])
    assert_close(torch.from_numpy(np.load(tmp_path / "v.npy")), expected, rtol=0, atol=1e-6)


def test_interrupted_encoding_leaves_the_old_file_and_no_part(tmp_path, tiny):
    (tmp_path / "s.txt").write_text("One line.\n" * 3)
    (tmp_path / "v.npy").write_text("old")

    class Broken:
        width = 16

        def encode_stream(self, *_, **__):
            yield torch.zeros(2, 16)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        encode_file(Broken(), tmp_path / "s.txt", tmp_path / "v.npy")
    assert (
        sorted(os.listdir(tmp_path)) == ["s.txt", "v.npy"]
        and (tmp_path / "v.npy").read_text() == "old"
    )


def test_data_lists_splits_labels_and_rows_left_out(capsys, tmp_path):
    head = "\tid\tsentence1\tsentence2\tis_duplicate\n"
    rows = [f"{i}\tq{i}\twhat is {i} ?\thow is {i} ?\t{float(i % 2)}\n" for i in range(5)]
    (tmp_path / "quora-train.csv").write_text(
        head + "".join(rows) + "5\tq5\tone side\t\t\n", encoding="utf8"
    )
    out, _ = run(capsys, f"data --data {tmp_path} --rows")
    first, second = out.splitlines()
    assert first.split() == "quora train 5 rows, different 3 / duplicate 2, 1 rows left out".split()
    many = Dataset(
        "intents",
        "train",
        "sentiment",
        [f"text {i}" for i in range(25)],
        labels=[i % 9 for i in range(25)],
        classes=tuple("abcdefghi"),
    )
    assert describe(many).split()[
        :8
    ] == "intents train 25 rows, 9 classes of 2".split() and describe(many).endswith("2 to 3 rows")
    assert str(tmp_path / "quora-train.csv:7") in second and "grammar" not in out
    _, err = run(capsys, f"data sst --data {tmp_path}", 1)
    assert "sst" in err and "quora" in err and str(tmp_path) in err


def test_data_of_a_folder_without_any_says_which_files_it_looked_for(capsys, tmp_path):
    # read under the name .csv alone
    (tmp_path / "sts-train.tsv").write_text(
        "sentence1\tsentence2\tsimilarity\na\tb\t3\n", encoding="utf8"
    )
    for folder in (tmp_path, tmp_path / "nowhere", tmp_path / "sts-train.tsv"):
        out, err = run(capsys, f"data --data {folder}", 1)
        assert (
            not out
            and f"{folder}: expected a folder with files of data sets, such as ids-sst-train.csv"
            in err
        )


@pytest.mark.parametrize(
    "settings, told",
    [
        ("--lr -1", "finite lr of at least 0, got -1.0"),
        ("--lr nan", "finite lr of at least 0, got nan"),
        ("--lr inf", "finite lr of at least 0, got inf"),
    ],
)
def test_a_rate_that_cannot_be_is_refused_before_a_run_begins(capsys, tmp_path, settings, told):
    _, err = run(capsys, f"train --out {tmp_path / 'run'} {settings}", 1)
    assert f"minbert: expected a {told}" in err and not (tmp_path / "run").exists()


def test_a_full_card_is_a_sentence():
    """The batch was too large: nobody has to mend the package."""
    assert (
        plain_sentence(torch.OutOfMemoryError("CUDA out of memory.\nTried to allocate 2 GiB."))
        == "CUDA out of memory. Tried to allocate 2 GiB."
    )
    assert plain_sentence(RuntimeError("a mistake of ours")) is None


def test_a_disk_that_is_full_for_the_tokenizer_is_a_sentence(tmp_path):
    """Its library raises a bare Exception."""
    with pytest.raises(Exception) as caught:
        load_tokenizer().backend_tokenizer.save(str(tmp_path / "none" / "tokenizer.json"))
    assert (
        type(caught.value) is Exception
        and plain_sentence(caught.value) == "No such file or directory (os error 2)"
    )


@pytest.mark.parametrize(
    "inside, place", [("", "runs/"), ("/heads/model.safetensors", "runs/heads/model.safetensors")]
)
def test_a_draft_that_is_gone_is_not_named(inside, place):
    error = OSError(
        errno.ENOSPC, "No space left on device", f"runs/.draft-minbert-ab0_cd1e{inside}"
    )
    assert plain_sentence(error) == f"{place}: No space left on device"


def test_a_demo_that_was_stopped_says_what_its_folder_takes(capsys, tmp_path):
    (tmp_path / "checkpoint.safetensors").touch()
    assert GO_ON["demo"].removeprefix("; ") in run(capsys, f"demo --out {tmp_path}", 1)[1]


@pytest.mark.parametrize("command", ["train", "demo"])
@pytest.mark.parametrize("seed", ["-1", "99999999999999999999"])
def test_a_seed_out_of_range_is_named(capsys, tmp_path, command, seed):
    _, err = run(capsys, f"{command} --out {tmp_path / 'run'} --seed {seed}", 2)
    assert "Invalid value for '--seed'" in err and not (tmp_path / "run").exists()


def test_data_shows_the_named_sets_in_the_order_named(capsys):
    def shown(line):
        return [row.split()[:2] for row in run(capsys, line)[0].splitlines()]

    splits = ("train", "dev", "test")
    assert shown("data stsb sst") == [[name, split] for name in ("stsb", "sst") for split in splits]
    there = [
        [name, split]
        for name in (*TASKS, "sts", "sentiment", "similarity", "inference", "bigram_shift")
        for split in splits
    ]
    assert sorted(shown("data")) == sorted([*there, ["sentences", "train"], ["documents", "train"]])
    grammar = {
        row.split()[0]
        for row in run(capsys, "data")[0].splitlines()
        if "written by a grammar" in row
    }
    assert grammar == {*TASKS, "sts"}


def test_data_reports_a_broken_file_and_does_not_pass_over_it(capsys, tmp_path):
    (tmp_path / "ids-sst-train.csv").write_text("")
    _, err = run(capsys, f"data --data {tmp_path}", 1)
    assert f"{tmp_path / 'ids-sst-train.csv'}: expected text, got an empty file" in err


def test_download_needs_names_and_a_folder(capsys, tmp_path):
    for line in ("data --download", "data sst --download", f"data --download --data {tmp_path}"):
        assert "--download" in run(capsys, line, 1)[1]


@pytest.fixture(scope="module")
def trained(tiny, small_data, tmp_path_factory) -> Path:
    """A run of eight joint steps, made once."""
    folder = tmp_path_factory.mktemp("runs") / "first"
    with pytest.raises(SystemExit) as end:
        main(
            f"train --tasks {' '.join(TASKS)} --data {small_data} --model {tiny} --out {folder} "
            "--steps 8 --batch-size 4 --lr 1e-3 --save-every 2".split()
        )
    assert not end.value.code
    return folder


def test_train_writes_a_run_that_evaluates_to_its_own_table(capsys, trained, small_data):
    table = (trained / "dev.md").read_text()
    assert [line.split("|")[1].strip() for line in table.splitlines()[2:]] == list(TASKS)
    dev = {task: load_dataset(task, "dev", small_data) for task in TASKS}
    results = evaluate_tasks(MultitaskBert.from_pretrained(trained / "model"), dev)
    for line, task in zip(table.splitlines()[2:], TASKS):
        assert line.split("|")[3].strip() == f"{results[task].value:.3f}"
    out, _ = run(capsys, f"evaluate {trained / 'model'} --data {small_data}")
    assert out == table


def test_train_changes_the_weights_it_should(trained, tiny, small_data, tmp_path, capsys):
    before = BertModel.from_pretrained(tiny).state_dict()
    after = MultitaskBert.from_pretrained(trained / "model").encoder.model.state_dict()
    assert any(not torch.equal(before[name], after[name]) for name in before)
    run(
        capsys,
        f"train --tasks sst --data {small_data} --model {tiny} --out {tmp_path} --steps 2 --frozen",
    )
    after = MultitaskBert.from_pretrained(tmp_path / "model").encoder.model.state_dict()
    assert all(torch.equal(before[name], after[name]) for name in before)


@pytest.fixture
def asked(monkeypatch):
    """What `train` hands to `fit`, without training."""
    import minbert.finetune as module

    seen = []
    monkeypatch.setattr(
        module,
        "fit",
        lambda *a, **k: seen.append((a, k)) or (_ for _ in ()).throw(ValueError("stop")),
    )
    return seen


def test_options_reach_the_run(tiny, small_data, tmp_path, capsys, asked):
    run(
        capsys,
        f"train --tasks sst quora --data {small_data} --model {tiny} --out {tmp_path} --schedule sqrt --epochs 2 "
        "--batch-size 7 --lr 2e-4 --pooling cls --quora-fraction 0.5 --eval-every 3 --save-every 4 --bf16 --seed 5",
        1,
    )
    (model, train_sets, dev_sets, config, folder, resume), more = asked[0]
    assert (config.tasks, config.schedule, config.epochs, config.steps) == (
        ("sst", "quora"),
        "sqrt",
        2,
        None,
    )
    assert (config.batch_size, config.lr, config.quora_fraction) == (7, 2e-4, 0.5)
    assert (config.eval_every, config.save_every, config.precision, config.seed) == (
        3,
        4,
        "bf16",
        5,
    )
    assert (
        model.encoder.pooling == "cls"
        and model.mode == "full"
        and list(model.heads) == ["sst", "quora"]
    )
    assert (list(train_sets), len(dev_sets["sst"]), folder, resume, more) == (
        ["sst", "quora"],
        25,
        tmp_path,
        False,
        {"progress": True},
    )


def test_without_tasks_the_open_ones_or_those_of_the_folder(
    tiny, small_data, tmp_path, capsys, asked
):
    for options in (
        "",
        f" --data {small_data}",
        " --tasks sst",
        f" --tasks sentiment sst --data {small_data}",
    ):
        run(capsys, f"train --model {tiny} --out {tmp_path}{options}", 1)
    assert [call[0][3].tasks for call in asked] == [
        commands.OPEN_TASKS,
        TASKS,
        ("sst",),
        ("sentiment", "sst"),
    ]
    assert [list(call[0][0].heads) for call in asked] == [list(call[0][3].tasks) for call in asked]
    assert [len(data) for data in asked[0][0][1].values()] == [2372, 6884, 1000]
    # the package's, beside the folder's
    assert [len(data) for data in asked[3][0][1].values()] == [2372, 40]


@pytest.mark.parametrize(
    "options, said",
    [
        ("--tasks sst --data {data}", []),
        ("--tasks sentiment", []),
        (
            "--tasks sst sentiment --data {data}",
            [
                "{data} has no sentiment; its train rows are those of the package",
                "{data} has no sentiment; its dev rows",
            ],
        ),
        (
            "--tasks sentiment sst",
            [
                "without --data, the train rows of sst are a sample written by a grammar",
                "the dev rows of sst",
            ],
        ),
        ("--tasks sst --data {data} --resume", ["no checkpoint in {out}: a new run begins"]),
    ],
)
def test_rows_that_are_not_ones_own_and_runs_that_begin_again_are_announced(
    tiny, small_data, tmp_path, capsys, asked, options, said
):
    _, err = run(
        capsys, f"train --model {tiny} --out {tmp_path} {options}".format(data=small_data), 1
    )
    notes = [
        line
        for line in err.splitlines()
        if line.startswith("note: ") and "optimizer step" not in line
    ]
    assert len(notes) == len(said) and all(
        words.format(data=small_data, out=tmp_path) in note for words, note in zip(said, notes)
    ), err


def test_the_rate_is_the_usual_one_unless_given(tiny, small_data, tmp_path, capsys, asked):
    line = f"train --tasks sst --data {small_data} --model {tiny} --out {tmp_path}"
    for options in ("", " --frozen", " --lr 3e-4 --frozen", " --compile"):
        run(capsys, line + options, 1)
    configs = [call[0][3] for call in asked]
    assert [c.plan()[0].lr for c in configs] == [5e-4, 1e-3, 3e-4, 5e-4]
    assert [c.mode for c in configs] == ["full", "frozen", "frozen", "full"]
    assert [c.compile for c in configs] == [False, False, False, True]


def test_pooling_is_that_of_the_folder_unless_given(tiny, small_data, tmp_path, capsys, asked):
    encoder = SentenceEncoder.from_pretrained(tiny, pooling="max")
    encoder.save_pretrained(tmp_path / "max")
    for options in ("", " --pooling cls"):
        run(
            capsys,
            f"train --tasks sst --data {small_data} --model {tmp_path / 'max'} --out {tmp_path / 'run'}{options}",
            1,
        )
    assert [call[0][0].encoder.pooling for call in asked] == ["max", "cls"]


def test_a_run_is_not_overwritten_by_accident(capsys, trained, tiny, small_data, tmp_path):
    shutil.copytree(trained, tmp_path / "run")
    line = (
        f"train --tasks sst --data {small_data} --model {tiny} --out {tmp_path / 'run'} --steps 1"
    )
    _, err = run(capsys, line, 1)
    assert "--resume" in err and "--overwrite" in err
    assert "got both" in run(capsys, f"{line} --resume --overwrite", 1)[1]
    assert (tmp_path / "run" / "log.jsonl").read_bytes() == (trained / "log.jsonl").read_bytes()
    demo = f"demo --out {tmp_path / 'run'}"
    assert "--overwrite" in run(capsys, demo, 1)[1]
    run(capsys, line + " --overwrite")
    assert len((tmp_path / "run" / "log.jsonl").read_text().splitlines()) == 2


def test_a_run_that_was_cut_off_before_its_first_model_is_not_replaced(
    capsys, trained, tiny, small_data, tmp_path
):
    (tmp_path / "cut").mkdir()
    shutil.copy(trained / "checkpoint.safetensors", tmp_path / "cut")
    for line in (f"train --tasks sst --data {small_data} --model {tiny} --steps 1", "demo"):
        assert "--overwrite" in run(capsys, f"{line} --out {tmp_path / 'cut'}", 1)[1]
    assert [file.name for file in (tmp_path / "cut").iterdir()] == ["checkpoint.safetensors"]


def test_evaluate_takes_some_of_the_tasks(capsys, trained, small_data):
    out, _ = run(capsys, f"evaluate {trained / 'model'} --data {small_data} --tasks sst")
    assert "| sst |" in out and "quora" not in out
    assert (
        "expected a task among"
        in run(capsys, f"evaluate {trained / 'model'} --data {small_data} --tasks sentiment", 1)[1]
    )


@pytest.mark.long
def test_killed_command_resumes_to_the_same_weights(trained, tiny, small_data, tmp_path):
    """A real process is killed with SIGKILL after its fourth step, then started again with
    --resume.
    """
    words = (
        f"train --tasks {' '.join(TASKS)} --data {small_data} --model {tiny} --out {tmp_path} "
        "--steps 8 --batch-size 4 --lr 1e-3 --save-every 2"
    ).split()
    fuse = (
        "import os, signal, sys, minbert.finetune as t\nfrom minbert.cli.commands import main\nwrite = t.RunFolder.write\n"
        "def cut(self, entries):\n    write(self, entries)\n"
        "    if entries[0]['step'] == 4: os.kill(os.getpid(), signal.SIGKILL)\n"
        "t.RunFolder.write = cut\nmain(sys.argv[1:])"
    )
    killed = subprocess.run([sys.executable, "-c", fuse, *words], capture_output=True)
    assert killed.returncode == -9 and not (tmp_path / "dev.md").exists()
    count = (
        fuse.split("    if entries")[0]
        + "    print(entries[0]['step'], flush=True)\nt.RunFolder.write = cut\nmain(sys.argv[1:])"
    )
    resumed = subprocess.run(
        [sys.executable, "-c", count, *words, "--resume"],
        check=True,
        capture_output=True,
        text=True,
    )
    steps_done = [line for line in resumed.stdout.splitlines() if line.isdigit()]
    # the last one is the evaluation: nothing was done twice
    assert steps_done == ["4", "5", "6", "7", "7"]
    for name in ("model/model.safetensors", "log.jsonl", "dev.md"):
        assert (tmp_path / name).read_bytes() == (trained / name).read_bytes(), name


@pytest.mark.long
def test_accelerate_launch_with_two_processes(trained, tiny, small_data, tmp_path):
    """Two processes share each batch: same losses and scores as one, and one report."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    # --multi_gpu means "more than one process"; with --cpu there would be one, whatever the number
    launch = [
        sys.executable,
        "-m",
        "accelerate.commands.launch",
        "--multi_gpu",
        "--num_processes",
        "2",
        "--num_machines",
        "1",
        "--mixed_precision",
        "no",
        "--dynamo_backend",
        "no",
        "--main_process_port",
        str(port),
        "-m",
        "minbert",
    ]
    words = (
        f"train --tasks {' '.join(TASKS)} --data {small_data} --model {tiny} --out {tmp_path / 'two'} "
        "--steps 8 --batch-size 4 --lr 1e-3 --save-every 2"
    ).split()
    env = {**os.environ, "OMP_NUM_THREADS": "1", "ACCELERATE_USE_CPU": "true"}
    result = subprocess.run([*launch, *words], capture_output=True, text=True, env=env)
    assert result.returncode == 0, result.stderr[-2000:]
    assert result.stdout.count("best dev mean") == 1
    assert len(read_checkpoint(tmp_path / "two")["random"]) == 2  # the dice of two processes
    losses = [
        [
            json.loads(line)["loss"]
            for line in (folder / "log.jsonl").read_text().splitlines()
            if '"loss"' in line
        ]
        for folder in (trained, tmp_path / "two")
    ]
    # the heads drop other numbers, no more
    assert len(losses[1]) == 8 and abs(losses[0][0] / losses[1][0] - 1) < 0.2
    one, two = (
        MultitaskBert.from_pretrained(folder / "model") for folder in (trained, tmp_path / "two")
    )
    assert one.state_dict().keys() == two.state_dict().keys()


def test_evaluate_writes_the_files_of_the_course(capsys, trained, small_data, tmp_path):
    out, _ = run(
        capsys, f"evaluate {trained / 'model'} --data {small_data} --predictions {tmp_path / 'p'}"
    )
    names = ["para-dev-output.csv", "sst-dev-output.csv", "sts-dev-output.csv"]
    assert sorted(os.listdir(tmp_path / "p")) == names and out.count("written: ") == 3
    rows = (tmp_path / "p" / "sst-dev-output.csv").read_text().splitlines()
    dev = load_dataset("sst", "dev", small_data)
    assert [row.split(",")[0].strip() for row in rows[1:]] == dev.ids
    assert {int(row.split(",")[1]) for row in rows[1:]} <= set(range(5))


def test_evaluate_writes_a_file_for_each_open_task(capsys, tiny, tmp_path, monkeypatch):
    asked, predict = [], MultitaskBert.predict
    monkeypatch.setattr(
        MultitaskBert,
        "predict",
        lambda self, task, data: asked.append(task) or predict(self, task, data),
    )
    encoder = SentenceEncoder.from_pretrained(tiny)
    MultitaskBert(encoder, default_heads(encoder.width, commands.OPEN_TASKS)).save_pretrained(
        tmp_path / "model"
    )
    out, _ = run(capsys, f"evaluate {tmp_path / 'model'} --predictions {tmp_path / 'p'}")
    # each set once, for the files and for the table
    assert asked == list(commands.OPEN_TASKS)
    for task in commands.OPEN_TASKS:
        dev = load_dataset(task, "dev")
        predictions = read_predictions(tmp_path / "p" / f"{task}-dev-output.csv", dev)
        name, metric = metric_of(dev)
        # the file holds what the table measured
        assert f"| {task} | {name} | {metric(predictions, dev.labels):.3f} |" in out


def test_evaluate_sts(capsys, tiny, small_data, tmp_path, monkeypatch):
    import minbert.sts as module

    out, _ = run(capsys, f"evaluate {tiny} --sts --data {small_data} --split dev")
    encoder = SentenceEncoder.from_pretrained(tiny)
    expected = module.evaluate_sts(encoder, small_data, tasks=("stsb",), split="dev")
    assert out.split() == [
        "stsb",
        f"{expected['stsb']:.4f}",
        "average",
        f"{expected['average']:.4f}",
        "of",
        "1",
    ]

    seen = []
    monkeypatch.setattr(
        module, "evaluate_sts", lambda *args: seen.append(args[1:]) or {"a": 0.5, "average": 0.25}
    )
    year = tmp_path / "senteval" / "STS" / "STS13-en-test"
    year.mkdir(parents=True)
    for kind in ("input", "gs"):
        (year / f"STS.{kind}.news.txt").write_text("a\tb\n" if kind == "input" else "1.0\n")
    for option in ("", " --aggregate wmean", " --tasks stsb sickr --split dev"):
        run(capsys, f"evaluate {tiny} --sts --data {tmp_path}{option}")
    assert seen == [
        (tmp_path, "all", ("sts13",), "test"),
        (tmp_path, "wmean", ("sts13",), "test"),
        (tmp_path, "all", ("stsb", "sickr"), "dev"),
    ]
    _, err = run(capsys, f"evaluate {tiny} --sts --data {year} --split test", 1)
    assert "expected a test split" in err and str(year) in err


def test_a_split_without_labels_wants_predictions(capsys, trained, small_data, tmp_path):
    folder = tmp_path / "unlabelled"
    folder.mkdir()
    for task, stem in (("sst", "ids-sst"), ("quora", "quora"), ("stsb", "sts")):
        lines = (small_data / f"{stem}-dev.csv").read_text(encoding="utf8").splitlines()
        (folder / f"{stem}-test-student.csv").write_text(
            "".join(line.rsplit("\t", 1)[0] + "\n" for line in lines), encoding="utf8"
        )
    line = f"evaluate {trained / 'model'} --data {folder} --split test"
    assert "--predictions" in run(capsys, line, 1)[1]
    out, _ = run(capsys, f"{line} --predictions {tmp_path / 'p'}")
    assert out.count("written: ") == 3 and "|" not in out


def test_a_model_without_a_checkpoint_is_not_replaced_by_going_on(
    capsys, tiny, small_data, tmp_path
):
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "notes.txt").write_text("precious")
    _, err = run(
        capsys,
        f"train --tasks sst --data {small_data} --model {tiny} --out {tmp_path} --steps 1 --resume",
        1,
    )
    assert (
        "checkpoint.safetensors" in err
        and "--overwrite" in err
        and (tmp_path / "model" / "notes.txt").read_text() == "precious"
    )


def test_a_data_set_that_cannot_be_read_hides_no_other(capsys, tmp_path):
    (tmp_path / "open").mkdir()
    header, *rows = (
        (resources.files("minbert") / "assets" / "open" / "similarity.tsv")
        .read_text(encoding="utf-8")
        .splitlines()
    )
    train = [row for row in rows if row.split("\t")[0] == "train"][:20]
    (tmp_path / "open" / "similarity.tsv").write_text(
        "\n".join([header, *train]) + "\n", encoding="utf-8"
    )
    (tmp_path / "ids-sst-dev.csv").write_text("\tid\tsentence\tsentiment\n0\ta1\tA fine film.\t3\n")
    out, err = run(capsys, f"data --data {tmp_path}", 1)
    assert (
        "sst" in out and out.count("similarity") == 1 and err.count("at least one row of") == 2
    ), out + err


@pytest.mark.parametrize(
    "line, words",
    [
        ("evaluate {tiny} --data {data}", ["written by train", "--sts"]),
        # a table is not read as lines
        (
            "encode {tiny} {data}/ids-sst-dev.csv --out {out}/v.npy",
            ["ids-sst-dev.csv:1", "separated by tabs?"],
        ),
        (
            "encode {tiny} {data}/ids-sst-dev.csv --out {out}/v --part-size 2",
            ["one sentence a line, got a table"],
        ),
        ("evaluate nowhere", ["nowhere"]),
        ("train --tasks sst nothing --out {out}", ["nothing"]),
        ("train --tasks sst --data {out} --out {out}", ["ids-sst-train.csv"]),
        (
            "train --tasks tickets --data {out}/none --out {out}/r",
            ["none: expected a folder with files of data sets", "NAME-train.csv"],
        ),
        (
            "train --data {out} --out {out}/r",
            ["expected a folder with files of data sets", "NAME-train.csv"],
        ),
        (
            "train --tasks sst --data {data} --model {tiny} --out {out} --schedule random",
            ["schedule", "random"],
        ),
        ("train --tasks sst --data {data} --model {tiny} --out {out} --pooling median", ["median"]),
        ("train --tasks sst --data {data} --model no/such-model --out {out}", ["no/such-model"]),
        ("encode {tiny} {out}/none.txt", ["none.txt"]),
        ("encode {tiny} {out}/none.txt --dtype float16", ["--dtype", "--part-size"]),
        (
            "encode {tiny} {data}/ids-sst-dev.csv --out {out}/v.csv",
            ["expected --out FILE.npy", "v.csv"],
        ),
        ("encode {tiny} {out}/none.txt --out -", ["expected --out FILE.npy", "got -"]),
        (
            "encode {tiny} {out}/rows.json --out {out}/v.npy",
            ["rows.json: expected sentences, one a line, or a table", "got .json"],
        ),
        (
            "encode {tiny} {out}/a.txt {out}/sheet.xlsx --out {out}/v --part-size 9",
            ["sheet.xlsx: expected sentences", "got .xlsx"],
        ),
        ("evaluate {tiny} --split all", ["--split train or dev or test", "got all"]),
        ("evaluate {tiny} --sts --split all", ["--split train or dev or test", "got all"]),
        ("split {out}", ["expected a table"]),
        (
            "fill-mask {tiny} --out {out}/f",
            ["expected mlm_head.safetensors, which predicts masked tokens"],
        ),
        (
            "pretrain {data}/ids-sst-dev.csv --out {out}/p",
            ["ids-sst-dev.csv: expected a .txt or .txt.gz file"],
        ),
        ("evaluate {tiny} --sts --predictions {out}/p", ["--predictions", "--sts"]),
    ],
)
def test_mistakes_are_one_line_and_leave_nothing(
    capsys, tiny, small_data, tmp_path, monkeypatch, line, words
):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    line = line.format(tiny=tiny, data=small_data, out=tmp_path)
    _, err = run(capsys, line, 1)
    assert (
        err.startswith("minbert: ") and err.count("\n") == 1 and all(word in err for word in words)
    ), err
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize(
    "line",
    [
        "encode {run} {out}/s.txt --out {out}/v.npy",
        "train --tasks sst --data {data} --model {run} --out {out}/r",
        "contrast {out}/s.txt --model {run} --batch-size 8 --out {out}/r",
    ],
)
def test_the_folder_of_a_run_is_no_model_and_is_called_so(
    capsys, trained, small_data, tmp_path, line
):
    (tmp_path / "s.txt").write_text("".join(f"Dog {i} barks.\n" for i in range(20)))
    _, err = run(capsys, line.format(run=trained, out=tmp_path, data=small_data), 1)
    assert (
        f"{trained}: expected the folder of a model, got that of a run: its folder model is one\n"
        in err
    )
    assert os.listdir(tmp_path) == ["s.txt"]


def test_a_model_may_have_a_run_of_its_own_beside_its_files(tiny, tmp_path):
    folder = shutil.copytree(tiny, tmp_path / "both")
    shutil.copytree(tiny, folder / "model")
    assert SentenceEncoder.from_pretrained(folder).width == 16


def test_status_of_one_notebook_has_no_rows_of_other_chapters(capsys):
    one = Path(__file__).resolve().parent.parent / "nbs" / "1_bert" / "02_attention.ipynb"
    assert (
        "expected exercises of chapter 05 in"
        in run(capsys, f"course status {one} --chapter 05", 1)[1]
    )


def test_unknown_options_are_refused_by_the_parser(capsys):
    assert "no-such" in run(capsys, "train --no-such 1", 2)[1]


def test_demo_prints_table_and_places(capsys, tmp_path, monkeypatch):
    """On a few rows; the whole demo's table is in the README, and test_repository.py reads it."""
    load, tune, order, start = commands.load_splits, demo.fine_tune, demo.word_order, []
    monkeypatch.setattr(
        commands,
        "load_splits",
        lambda tasks, split, folder: {
            task: data.subset(range(40)) for task, data in load(tasks, split, folder).items()
        },
    )
    monkeypatch.setattr(demo, "word_order", lambda split: order(split).subset(range(40)))
    monkeypatch.setattr(demo, "fine_tune", lambda *a, **k: start.append(tune(*a, **k)) or start[-1])
    monkeypatch.chdir(tmp_path)
    out, err = run(capsys, "demo --epochs 2 --out d")
    assert (
        all(word in out for word in ("constant", "bag of words", "before", "after", "95 %"))
        and "4/4" in err
    )
    for place in ("d/model", "d/word-order/model", "d/table.txt", "d/cosines.png"):
        assert place in out and Path(place).exists()
    assert Path("d/table.txt").read_text().strip() in out
    *lines, scope = Path("d/table.txt").read_text().splitlines()[1:]
    assert scope.startswith("intervals: 95 %, examples only")
    rows = [line.split() for line in lines]
    assert [row[0] for row in rows] == [*commands.OPEN_TASKS, "bigram_shift"] and rows[-1][2:4] == [
        "0.500",
        "0.500",
    ]
    train, dev = (
        commands.load_splits(commands.OPEN_TASKS, split, None)
        | {"bigram_shift": demo.word_order(split)}
        for split in ("train", "dev")
    )
    before, after = {}, {}
    for tasks, models in zip((commands.OPEN_TASKS, ["bigram_shift"]), start, strict=True):
        folder = "d/model" if "sentiment" in tasks else "d/word-order/model"
        scored = [
            evaluate_tasks(m, {task: dev[task] for task in tasks})
            for m in (models[0], MultitaskBert.from_pretrained(folder))
        ]
        before, after = before | scored[0], after | scored[1]
    for task, *_, bag, first, last, low, _, high, gain, _, _, _ in rows:
        words = metric_of(dev[task])[1](
            BagOfWords().fit(train[task]).predict(dev[task]), dev[task].labels
        )
        found = after[task]
        assert [bag, first, last, low, high, gain] == [
            *(f"{x:.3f}" for x in (words, before[task].value, found.value, found.low, found.high)),
            f"{found.value - words:+.3f}",
        ]


def test_train_says_that_a_text_is_cut(capsys, tmp_path, tiny):
    rows = [f"a dog {i}{' in the rain' * (200 * (i == 3))},{'ab'[i % 2]}\n" for i in range(8)]
    for split in ("train", "dev"):
        (tmp_path / f"long-{split}.csv").write_text("sentence,label\n" + "".join(rows))
    _, err = run(
        capsys, f"train --data {tmp_path} --model {tiny} --steps 1 --out {tmp_path / 'run'}"
    )
    assert (
        "note: 1 of 8 texts are longer than the 512 tokens that the model reads: the rest of them is not read\n"
        in err
    )


def test_pretrain_makes_a_model_with_a_card(capsys, tmp_path):
    (tmp_path / "text" / "heldout").mkdir(parents=True)
    lines = [s for s in dict.fromkeys(load_dataset("sst").sentences)]
    (tmp_path / "text" / "a.txt").write_text("\n".join(lines[:300]) + "\n")
    (tmp_path / "text" / "heldout" / "mine.txt").write_text("\n".join(lines[300:320]) + "\n")
    out, _ = run(
        capsys,
        f"pretrain {tmp_path / 'text'} --out {tmp_path / 'run'} --steps 1 --about Reviews. --license mit --language de",
    )
    card = (tmp_path / "run" / "model" / "README.md").read_text()
    # the held-out row was measured
    assert "license: mit" in card and "language: de" in card and "| 1 |" in card
    assert "Reviews." in card and "minbert pretrain" in card and "accuracy" in out
    assert SentenceEncoder.from_pretrained(tmp_path / "run" / "model").encode(["a film"]).shape == (
        1,
        256,
    )
    _, err = run(capsys, f"pretrain {tmp_path / 'texd'} --out {tmp_path / 'run'} --steps 1")
    assert (
        f"note: {tmp_path / 'texd'} is not there: the run in {tmp_path / 'run'} goes on with the text that it keeps"
        in err
    )


def test_train_with_surgery_and_penalties_resumes(capsys, tmp_path, monkeypatch):
    """The options reach fit, and a run with them goes on where it stopped."""
    import minbert.finetune as module

    load, fit, seen = commands.load_splits, module.fit, []
    monkeypatch.setattr(
        commands,
        "load_splits",
        lambda tasks, split, folder: {
            task: data.subset(range(24)) for task, data in load(tasks, split, folder).items()
        },
    )
    monkeypatch.setattr(module, "fit", lambda *a, **k: seen.append(k) or fit(*a, **k))
    typed = f"train --tasks sst stsb --steps 3 --batch-size 4 --surgery gradvac --penalties smart proximal --out {tmp_path / 'r'}"
    run(capsys, typed)
    run(capsys, typed + " --resume")
    names = [type(penalty).__name__ for penalty in seen[0]["loss_fn"].penalties]
    assert (
        names == ["SmartPenalty", "BregmanProximal"]
        and type(seen[0]["backward"]).__name__ == "GradVac"
    )
    # the second call had nothing left to do
    assert len(seen[0]["backward"].records) == 3 and not seen[1]["backward"].records
    run(capsys, f"train --tasks sst --steps 1 --batch-size 4 --out {tmp_path / 'p'}")
    assert not {"loss_fn", "backward"} & set(seen[2])
    for wrong in ("--surgery knife", "--penalties rough"):
        assert (
            "expected surgery pcgrad or gradvac"
            in run(capsys, f"train --tasks sst {wrong} --out {tmp_path / 'w'}", 1)[1]
        )
