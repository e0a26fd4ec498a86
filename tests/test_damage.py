"""What an attempt to break files, folders and runs found, each as a test; and a thousand more by
chance, in the long tests.
"""

import errno
import json
import os
import re
import resource
import signal
import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from minbert.cli.cli_errors import plain_sentence
from minbert.cli.commands import main
from minbert.core.checkpoint import CHECKPOINT, read_checkpoint, save_checkpoint
from minbert.core.module_io import save_module
from minbert.core.run_dir import locked
from minbert.data import load_dataset
from minbert.encoder import BertConfig, BertModel
from minbert.encoding.dense_layers import Dense
from minbert.encoding.module_files import write_layers
from minbert.encoding.npy_writer import encode_file, write_vectors
from minbert.finetune import TrainConfig, fit
from minbert.heads import LinearHead, MultitaskBert
from minbert.pretrain import MlmHead, save_mlm
from minbert.sentence import SentenceEncoder
from minbert.tokens import encode_ids, load_tokenizer

ROOT = Path(__file__).resolve().parent.parent


def put(folder, name, text):
    (folder / name).parent.mkdir(parents=True, exist_ok=True)
    (folder / name).write_bytes(text if isinstance(text, bytes) else text.encode())
    return folder / name


# --- data

PAIRS = "\tid\tsentence1\tsentence2\tsimilarity\n"
ROWS = [f"{i}\tid{i}\tfirst {i}\tsecond {i}\t{i}.0\n" for i in range(4)]
STSB = "main\tf\t2012\t1\t4.0\ta dog\ta cat"


@pytest.mark.parametrize(
    "text, message",
    [
        (
            PAIRS + ROWS[0].replace("first", '"first') + ROWS[1] + ROWS[2].replace("second", 'x"'),
            ":2: expected matching CSV quotes",
        ),
        (
            PAIRS
            + ROWS[0]
            + ROWS[1].replace("first", '"first')
            + ROWS[2].replace("first 2", 'first 2"')
            + ROWS[3],
            ":3: expected matching CSV quotes",
        ),
        (
            (PAIRS + "".join(ROWS)).replace("\n", "\r"),
            ":1: expected lines of text that end in LF or CRLF, got a carriage return",
        ),
        (PAIRS + ROWS[0] + "\0\0\0\n", ":3: expected lines of text"),
        (
            PAIRS.replace("sentence2", "sentence1") + "".join(ROWS),
            ":1: expected each column once, got 'sentence1' again",
        ),
        ('""\n', "expected rows of cells, got none"),
        ('""', "expected rows of cells, got none"),
        (PAIRS + ROWS[0].replace("0.0", "1_0"), ":2: expected a number from 0 to 5"),
    ],
    ids=[
        "one cell of many rows",
        "two stray quotes",
        "lone CR",
        "NUL",
        "a column twice",
        "empty cell",
        "empty cell, no end",
        "underscore",
    ],
)
def test_no_row_is_lost_in_silence(tmp_path, text, message):
    file = put(tmp_path, "sts-train.csv", text)
    with pytest.raises(ValueError, match=re.escape(message)) as caught:
        load_dataset("sts", "train", tmp_path)
    assert str(caught.value).startswith(str(file))


@pytest.mark.parametrize(
    "extra, good", [("", True), ("\tx\ty", True), ("\tx", False), ("\tx\ty\tz", False)]
)
def test_a_row_of_stsb_has_seven_cells_or_nine(tmp_path, extra, good):
    put(tmp_path, "STSBenchmark/sts-dev.csv", f"{STSB}\n{STSB}{extra}\n")
    if good:
        assert len(load_dataset("stsb", "dev", tmp_path)) == 2
    else:
        with pytest.raises(ValueError, match="sts-dev.csv:2: expected 7 or 9 cells"):
            load_dataset("stsb", "dev", tmp_path)


def test_messages_quote_two_hundred_characters(tmp_path):
    long = "x" * 100_000
    for text in (PAIRS + f"0\ta\tb\tc\t{long}\n", PAIRS + f"{long}\ta\n", f"\t{long}\n0\t1\n"):
        file = put(tmp_path, "sts-train.csv", text)
        with pytest.raises(ValueError) as caught:
            load_dataset("sts", "train", tmp_path)
        assert len(str(caught.value)) < len(str(file)) + 500


# --- folders


@pytest.fixture
def encoder():
    tokenizer = load_tokenizer()
    torch.manual_seed(0)
    config = BertConfig(len(tokenizer), 8, 2, 2, 16, 0.0, 0.0, 64)
    return SentenceEncoder(BertModel(config), tokenizer)


def config_is(folder, **values):
    file = folder / "config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | values))


@pytest.mark.parametrize(
    "name, value",
    [
        ("num_hidden_layers", 10**9),
        ("hidden_size", 10**12),
        ("vocab_size", 10**15),
        ("intermediate_size", 10**18),
        ("max_position_embeddings", 2**62),
        ("num_hidden_layers", 10**30),
        ("num_hidden_layers", 3),
    ],
)
def test_sizes_that_the_weights_do_not_have_are_refused_before_anything_is_built(
    tmp_path, encoder, name, value
):
    encoder.save_pretrained(tmp_path)
    config_is(tmp_path, **{name: value, "num_attention_heads": 2})
    with pytest.raises(ValueError, match=re.escape(str(tmp_path))):
        SentenceEncoder.from_pretrained(tmp_path, device="cpu")


@pytest.mark.usefixtures("unsealed")
@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_weights_that_are_not_finite_are_refused(tmp_path, encoder, bad):
    encoder.save_pretrained(tmp_path)
    state = load_file(tmp_path / "model.safetensors")
    state["encoder.layer.1.output.dense.bias"][3] = bad
    save_file(state, tmp_path / "model.safetensors", {"format": "pt"})
    with pytest.raises(
        ValueError,
        match=f"{re.escape(str(tmp_path))}.*finite numbers in tensor 'encoder.layer.1.output.dense.bias', got 1 of 8",
    ):
        SentenceEncoder.from_pretrained(tmp_path, device="cpu")


def test_vectors_that_overflow_are_not_written(tmp_path, encoder):
    torch.nn.init.constant_(encoder.model.embedding.embed_layer_norm.weight, 3e38)
    lines = put(tmp_path, "s.txt", "One.\nTwo, three.\n")
    with pytest.raises(
        ValueError, match="v.npy: expected finite numbers, got NaN or infinity in row 1"
    ):
        encode_file(encoder, lines, tmp_path / "v.npy")
    assert sorted(f.name for f in tmp_path.iterdir()) == ["s.txt"]


JSON = [
    "[" * 100_000,
    '{"a":' * 50_000,
    "null",
    "[]",
    "7",
    '"x"',
    "{}",
    "",
    '{"a": 1, "a": 2}',
    "\0",
    "1" * 9999,
]


@pytest.mark.usefixtures("unsealed")
@pytest.mark.parametrize("name", ["config.json", "minbert_sentence.json", "tokenizer_config.json"])
def test_odd_json_is_a_valueerror_with_the_name_of_the_file(tmp_path, encoder, name):
    encoder.save_pretrained(tmp_path)
    whole = (tmp_path / name).read_text()
    for text in JSON:
        (tmp_path / name).write_text(text)
        if name == "tokenizer_config.json" and text == "{}":
            continue
        # {} is BERT-base: its sizes do not fit
        said = re.escape(str(tmp_path)) if (name, text) == ("config.json", "{}") else name
        with pytest.raises(ValueError, match=said):
            SentenceEncoder.from_pretrained(tmp_path, device="cpu")
    (tmp_path / name).write_text(whole)
    SentenceEncoder.from_pretrained(tmp_path, device="cpu")


@pytest.mark.parametrize(
    "steps",
    [
        '[{"type": "x.Pooling", "path": "../elsewhere"}]',
        '[{"type": "x.Pooling", "path": "/etc"}]',
        '[{"type": "x.Pooling"}]',
        "[7]",
        '[{"type": 1, "path": ""}]',
        '{"type": "x.Pooling", "path": "1_Pooling"}',
    ],
)
def test_steps_of_an_encoder_stay_in_their_folder(tmp_path, encoder, steps):
    folder = tmp_path / "model"
    encoder.save_pretrained(folder)
    (folder / "minbert_sentence.json").unlink()
    put(tmp_path, "elsewhere/config.json", '{"pooling_mode": "cls"}')
    (folder / "modules.json").write_text(steps)
    with pytest.raises(ValueError, match="modules.json"):
        SentenceEncoder.from_pretrained(folder, device="cpu")


@pytest.mark.parametrize(
    "name",
    [
        "config.json",
        "model.safetensors",
        "tokenizer.json",
        "tokenizer_config.json",
        "minbert_sentence.json",
    ],
)
@pytest.mark.parametrize("kind", ["zero", "pipe", "folder", "sparse"])
def test_what_is_no_file_is_not_read(tmp_path, encoder, name, kind):
    encoder.save_pretrained(tmp_path)
    file = tmp_path / name
    data = file.read_bytes()
    file.unlink()
    {
        "zero": lambda: os.symlink("/dev/zero", file),
        "pipe": lambda: os.mkfifo(file),
        "folder": file.mkdir,
        "sparse": lambda: (file.write_bytes(data), os.truncate(file, 2**36)),
    }[kind]()
    with pytest.raises(
        ValueError, match=f"{name}: (expected a readable file|expected at most|expected .* bytes)"
    ):
        SentenceEncoder.from_pretrained(tmp_path, device="cpu")


@pytest.mark.parametrize("words", ["", "\n", "a\nb\n", "[PAD]\n[CLS]\n"])
def test_a_vocabulary_without_words_is_refused_or_knows_no_word(tmp_path, words):
    put(tmp_path, "vocab.txt", words)
    try:
        tokenizer = load_tokenizer(tmp_path)
    except ValueError as error:
        assert str(tmp_path) in str(error)
    else:  # transformers adds the special tokens that are missing: then text must become ids
        assert encode_ids(tokenizer, ["a b zebra"])


@pytest.mark.parametrize("place", [0.01, 0.3, 0.5, 0.7, 0.9, 0.999])
def test_one_flipped_bit_of_a_checkpoint_is_noticed(tmp_path, encoder, place):
    file = save_checkpoint(tmp_path, encoder, step=3)
    data = bytearray(file.read_bytes())
    data[int(len(data) * place)] ^= 4
    file.write_bytes(data)
    with pytest.raises(ValueError, match=CHECKPOINT):
        read_checkpoint(tmp_path)


def test_one_flipped_bit_of_a_task_model_is_noticed_in_any_file(tmp_path, encoder):
    MultitaskBert(encoder, {"sst": LinearHead(8, 3)}).save_pretrained(tmp_path)
    for file in sorted(f for f in tmp_path.rglob("*") if f.is_file()):
        whole = file.read_bytes()
        data = bytearray(whole)
        data[len(data) // 2] ^= 1
        file.write_bytes(data)
        with pytest.raises(ValueError, match=re.escape(str(tmp_path))):
            MultitaskBert.from_pretrained(tmp_path, device="cpu")
        file.write_bytes(whole)
    MultitaskBert.from_pretrained(tmp_path, device="cpu")


# --- runs


@pytest.fixture
def small_disk():
    """Let files grow to a hundred kilobytes: a full disk without a disk."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, before)
    signal.signal(signal.SIGXFSZ, handler)


@pytest.mark.parametrize("reserves", [True, False])
def test_a_full_disk_under_encode_is_an_oserror_and_leaves_the_old_file(
    tmp_path, small_disk, monkeypatch, reserves
):
    np.save(tmp_path / "v.npy", np.ones(3))
    if not reserves:
        monkeypatch.delattr(os, "posix_fallocate", raising=False)
    asked = []
    chunks = (asked.append(i) or torch.ones(1000, 10) for i in range(100))
    with pytest.raises(OSError) as caught:
        write_vectors(tmp_path / "v.npy", (100_000, 10), chunks)
    assert "too large" in plain_sentence(caught.value) or "space" in plain_sentence(caught.value)
    assert not (reserves and asked), "the disk is asked before the first sentence is encoded"
    assert np.load(tmp_path / "v.npy").sum() == 3 and os.listdir(tmp_path) == ["v.npy"]


@pytest.mark.parametrize(
    "number, full",
    [
        (errno.ENOSPC, True),
        (errno.EDQUOT, True),
        (errno.EFBIG, True),
        (errno.EOPNOTSUPP, False),
        (errno.EINVAL, False),
    ],
)
def test_a_disk_that_cannot_keep_room_is_written_all_the_same(tmp_path, monkeypatch, number, full):
    def refuses(*asked):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "posix_fallocate", refuses, raising=False)
    with pytest.raises(OSError, match=os.strerror(number)) if full else nullcontext():
        write_vectors(tmp_path / "v.npy", (2, 3), [torch.ones(2, 3)])
    assert os.listdir(tmp_path) == [] if full else np.load(tmp_path / "v.npy").sum() == 6


def test_room_is_asked_for_all_rows_before_the_first_and_a_bar_is_drawn_for_who_asks(
    tmp_path, monkeypatch
):
    class Encoder:
        width = 3

        def encode_stream(self, lines, progress, precision):
            seen.append(progress)
            yield torch.zeros(len(lines), 3)

    seen, lines = [], tmp_path / "s.txt"
    lines.write_text("one\ntwo\n")
    monkeypatch.setattr(
        "minbert.encoding.npy_writer.reserve", lambda stream, size: seen.append(size)
    )
    for progress in ({}, {"progress": True}):
        assert encode_file(Encoder(), lines, tmp_path / "v.npy", **progress) == (2, 3)
    assert seen == [4 * 2 * 3, False, 4 * 2 * 3, True]


@pytest.mark.parametrize("shape", [(3, 2), (1, 2), (2, 1), (2, 3)])
def test_rows_that_are_not_as_many_or_as_wide_as_the_head_says_leave_the_old_file(tmp_path, shape):
    np.save(tmp_path / "v.npy", np.ones(3))
    with pytest.raises(ValueError, match=f"v.npy: expected {shape[0]} rows"):
        write_vectors(tmp_path / "v.npy", shape, torch.ones(2, 2).split(1))
    assert np.load(tmp_path / "v.npy").sum() == 3 and os.listdir(tmp_path) == ["v.npy"]


BIG = BertConfig(
    vocab_size=60_000,
    hidden_size=16,
    num_hidden_layers=1,
    num_attention_heads=1,
    intermediate_size=8,
)
NARROW = BertConfig(
    vocab_size=20, hidden_size=8, num_hidden_layers=1, num_attention_heads=1, intermediate_size=8
)


@pytest.mark.parametrize(
    "save",
    [
        lambda folder: BertModel(BIG).save_pretrained(folder),
        lambda folder: save_mlm(BertModel(NARROW), MlmHead(BIG), folder),
        lambda folder: save_module(LinearHead(10_000, 5), folder),
        lambda folder: Dense(200, 200).save(folder),
        lambda folder: save_checkpoint(folder, torch.nn.Linear(200, 200)),
        lambda folder: write_layers(
            folder,
            SimpleNamespace(config=SimpleNamespace(hidden_size=1, num_hidden_layers=30_000)),
            (1,),
        ),
    ],
    ids=["model", "head of pretraining", "module", "map", "checkpoint", "layers"],
)
def test_a_full_disk_under_weights_is_an_oserror_that_names_the_file(tmp_path, small_disk, save):
    with pytest.raises(OSError, match="File too large.*safetensors") as caught:
        save(tmp_path)
    assert caught.value.errno == errno.EFBIG and str(tmp_path) in str(caught.value.filename)
    assert "too large" in plain_sentence(caught.value)


@pytest.mark.parametrize("call", ["save_file", "replace"])
@pytest.mark.parametrize(
    "command",
    [
        "encode {model} {text} --out {out}/v.npy",
        "train --tasks sst --data {data} --model {model} --steps 1 --out {out}/run",
    ],
)
def test_errors_of_the_disk_are_one_line(tmp_path, encoder, capsys, monkeypatch, command, call):
    encoder.save_pretrained(tmp_path / "model")
    rows = "".join(f"{i}\tid{i}\tsentence {i}\t{i % 5}\n" for i in range(8))
    for split in ("train", "dev"):
        put(tmp_path, f"data/ids-sst-{split}.csv", "\tid\tsentence\tsentiment\n" + rows)
    text = put(tmp_path, "s.txt", "One.\n")

    def full(*args, **more):
        raise OSError(28, "No space left on device", "x")

    monkeypatch.setattr(
        {"save_file": "safetensors.torch.save_file", "replace": "os.replace"}[call], full
    )
    with pytest.raises(SystemExit) as end:
        main(
            command.format(
                model=tmp_path / "model", text=text, out=tmp_path / "out", data=tmp_path / "data"
            ).split()
        )
    err = capsys.readouterr().err
    if "encode" in command and call == "save_file":
        assert not end.value.code
    else:
        assert (
            end.value.code == 1
            and "minbert: x: No space left on device" in err
            and "Traceback" not in err
        )
        assert not [
            p
            for p in (tmp_path / "out").rglob("*")
            if ".draft" in p.name or p.name.startswith(".model")
        ]


def test_two_runs_in_one_folder_are_kept_apart(tmp_path, encoder):
    code = "import sys, time; from minbert.core.run_dir import locked\nwith locked(sys.argv[1]): print('mine', flush=True); time.sleep(100)"
    other = subprocess.Popen(
        [sys.executable, "-c", code, str(tmp_path)], stdout=subprocess.PIPE, text=True, cwd=ROOT
    )
    other.stdout.readline()
    data = {"sst": load_dataset("sst", "dev").subset(range(8))}
    model = MultitaskBert(encoder, {"sst": LinearHead(8, 5)})
    try:
        with pytest.raises(
            ValueError,
            match=f"{re.escape(str(tmp_path))}: expected no other run in this folder, but process {other.pid}",
        ):
            fit(model, data, data, TrainConfig(("sst",), steps=1), tmp_path)
        assert os.listdir(tmp_path) == [".lock"]
    finally:
        other.kill()
        other.wait()
    # the lock died with its process
    fit(model, data, data, TrainConfig(("sst",), steps=1), tmp_path)
    with locked(tmp_path):
        pass
    assert ".lock" not in os.listdir(tmp_path)


RUN = """
import os, sys, torch
import minbert.finetune as train
from minbert.cli.commands import main
torch.set_num_threads(1)
write, number = train.RunFolder.write, int(sys.argv[1])

def heard(self, entries):   # from whom a signal comes makes no difference; from another process it could come when all is done
    write(self, entries)
    if number and entries[0]["step"] == 5:
        os.kill(os.getpid(), number)

train.RunFolder.write = heard
main(["train", "--tasks", "sst", "--data", sys.argv[2], "--model", sys.argv[3], "--out", sys.argv[4], "--batch-size", "2", "--eval-every", "1000", *sys.argv[5:]])
"""


@pytest.mark.long
@pytest.mark.parametrize("number, status", [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_saves_and_the_run_goes_on_to_the_same_bits(tmp_path, encoder, number, status):
    encoder.save_pretrained(tmp_path / "model")
    rows = "".join(f"{i}\tid{i}\tsentence {i}\t{i % 5}\n" for i in range(200))
    for split in ("train", "dev"):
        put(tmp_path, f"data/ids-sst-{split}.csv", "\tid\tsentence\tsentiment\n" + rows)

    def start(number, out, *more):
        return subprocess.run(
            [
                sys.executable,
                "-c",
                RUN,
                str(int(number)),
                str(tmp_path / "data"),
                str(tmp_path / "model"),
                str(tmp_path / out),
                *more,
            ],
            capture_output=True,
            text=True,
            cwd=ROOT,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
            timeout=300,
        )

    stopped, log = start(number, "stopped"), tmp_path / "stopped" / "log.jsonl"
    assert stopped.returncode == status and "Traceback" not in stopped.stderr, stopped.stderr
    assert (
        "minbert: stopped at step 6; --resume goes on\n" in stopped.stderr
        and read_checkpoint(tmp_path / "stopped")["step"] == 6
    )
    assert "best=none" in stopped.stderr and ".lock" not in os.listdir(tmp_path / "stopped")
    for out, more in (("stopped", ["--resume"]), ("straight", [])):
        done = start(0, out, *more)
        assert done.returncode == 0, done.stderr
    one, other = (read_checkpoint(tmp_path / out) for out in ("stopped", "straight"))
    assert all(torch.equal(x, other["model"][name]) for name, x in one["model"].items())
    assert log.read_text() == (tmp_path / "straight" / "log.jsonl").read_text()


def test_few_rows_and_other_tasks_are_said(tmp_path, encoder, capsys):
    encoder.save_pretrained(tmp_path / "model")
    for split in ("train", "dev"):
        put(tmp_path, f"data/sts-{split}.csv", PAIRS + "".join(ROWS))
    line = f"train --data {tmp_path / 'data'} --model {tmp_path / 'model'} --out {tmp_path / 'out'}"
    with pytest.raises(SystemExit) as end:
        main(line.split())
    err = capsys.readouterr().err
    assert (
        end.value.code == 1
        and "expected train and dev files of sst quora" in err
        and "--tasks stsb trains on what is there" in err
    )
    with pytest.raises(SystemExit) as end:
        main((line + " --tasks stsb").split())
    assert (
        not end.value.code
        and "4 rows in batches of 32 are 1 optimizer step(s) an epoch" in capsys.readouterr().err
    )


def test_version(capsys):
    import minbert

    with pytest.raises(SystemExit) as end:
        main(["--version"])
    assert not end.value.code and capsys.readouterr().out == f"minbert {minbert.__version__}\n"


LONG = """
import resource, sys
from minbert.tokens import encode_ids, load_tokenizer
tokenizer = load_tokenizer()
encode_ids(tokenizer, ["warm"])
text = {"words": "water unphotographable film, " * 400_000, "letters": "a" * 10_000_000, "marks": "-a" * 5_000_000,
        "underscores": "_" * 10_000_000, "brackets": "[" * 10_000_000, "Thai": "กำ" * 5_000_000, "dots": "…" * 10_000_000}[sys.argv[1]]
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
ids = encode_ids(tokenizer, [text, "x"])
print(len(ids[0]), len(ids[1]), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""


@pytest.mark.long
@pytest.mark.parametrize(
    "kind, tokens",
    [
        ("words", 512),
        ("letters", 3),
        ("marks", 512),
        ("underscores", 512),
        ("brackets", 512),
        ("Thai", 3),
        ("dots", 512),
    ],
)
def test_a_line_of_ten_megabytes_needs_little_memory(kind, tokens):
    done = subprocess.run(
        [sys.executable, "-c", LONG, kind], capture_output=True, text=True, check=True, cwd=ROOT
    )
    first, second, more = map(int, done.stdout.split())
    assert (first, second) == (tokens, 3) and more < 200_000  # kilobytes; it was 1,800,000


# --- by chance


def damaged(what, first, last):
    done = subprocess.run(
        [sys.executable, str(ROOT / "tests" / "damage.py"), what, str(first), str(last)],
        capture_output=True,
        text=True,
        timeout=1200,
        cwd=ROOT,
        env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)},
    )
    reports = [json.loads(line) for line in done.stdout.splitlines()]
    assert done.returncode == 0 and len(reports) == last - first, (
        f"after {reports[-1:]}: {done.stderr[-3000:]}"
    )
    return reports


@pytest.mark.parametrize(
    "what, first, last",
    [
        ("data", 0, 20),
        ("folders", 0, 10),
        *(
            pytest.param(what, first, last, marks=pytest.mark.long)
            for what, first, last in (
                ("data", 20, 500),
                ("folders", 10, 250),
                ("folders", 250, 500),
            )
        ),
    ],
)
def test_damaged_files_are_refused_by_name_or_load_what_is_right(what, first, last):
    reports = damaged(what, first, last)
    assert [report for report in reports if report[2] not in ("loaded", "refused")] == []
    assert {outcome for _, _, outcome in reports} == {"loaded", "refused"}
