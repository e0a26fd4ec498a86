"""Vectors in parts: every sentence once and in order, whoever writes, stops or is killed; whatever
does not belong is refused and named.
"""

import errno
import gzip
import json
import os
import resource
import shutil
import signal
import socket
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from torch.testing import assert_close

from minbert.core import locks
from minbert.core.atomic_dir import DRAFT
from minbert.core.locks import file_lock
from minbert.core.safetensors_io import save_checked
from minbert.data import load_dataset
from minbert.encoding import line_chunks, shards
from minbert.encoding.line_chunks import TextReader, cut_parts, text_files
from minbert.encoding.shards import Shards, encode_shards, read_shards
from minbert.sentence import SentenceEncoder

SENTENCES = list(dict.fromkeys(load_dataset("sentences").sentences))[:50]


class Spelling:
    """An encoder whose vector of a sentence is its first letters, exact in every precision."""

    width, pooling, transform, max_length = 6, "mean", None, 16
    tokenizer = SimpleNamespace(
        backend_tokenizer=SimpleNamespace(to_str=lambda: '{"truncation": 3}')
    )

    def __init__(self, weight=1.0):
        self.weight = weight

    def state_dict(self):
        return {"weight": torch.tensor(self.weight)}

    def encode_stream(self, sentences, precision="fp32"):
        assert precision in ("fp32", "bf16")
        for first in range(0, len(sentences), 3):
            letters = [text.encode()[:6].ljust(6, b"\0") for text in sentences[first : first + 3]]
            yield torch.tensor([list(word) for word in letters]).float() * self.weight


def spelled(sentences) -> torch.Tensor:
    return torch.cat(list(Spelling().encode_stream(sentences)))


@pytest.fixture(autouse=True)
def short_pause(monkeypatch):
    monkeypatch.setattr(shards, "PAUSE", 0.01)


@pytest.fixture
def text(tmp_path) -> Path:
    """Three files whose lines are numbered through: plain, packed, and one without an end of its
    last line; some lines are blank.
    """
    folder = tmp_path / "text"
    (folder / "b").mkdir(parents=True)
    (folder / "a.txt").write_bytes(
        b"\xef\xbb\xbf" + "".join(f"{s}\r\n" for s in SENTENCES[:20]).encode()
    )
    (folder / "b" / "c.txt.gz").write_bytes(
        gzip.compress("".join(f"  {s} \n" for s in SENTENCES[20:32]).encode(), mtime=0)
    )
    (folder / "d.txt").write_bytes("\n\n".join(SENTENCES[32:]).encode())
    return folder


LINES = SENTENCES[:32] + [line for s in SENTENCES[32:] for line in (s, "")][:-1]


def encode(text, out, encoder=None, **options):
    return [
        done.part
        for done in encode_shards(
            encoder or Spelling(), text_files([text]), out, **{"part_size": 7, **options}
        )
    ]


def files(out) -> dict:
    return {file.name: file.stat().st_mtime_ns for file in sorted(out.iterdir())}


@pytest.mark.parametrize("rows", [1, 7, 20, 67, 1000])
def test_a_text_in_parts_is_the_text(text, rows):
    parts = list(cut_parts(text_files([text]), rows))
    assert sum(part.rows for part in parts) == len(LINES) == 67 and {
        part.rows for part in parts[:-1]
    } <= {rows}
    with TextReader(text_files([text])) as reader:
        found = [reader.read_part(part) for part in parts]
        assert [line for part in found for line in part] == LINES
        # a packed file is entered from behind, too
        assert [reader.read_part(part) for part in reversed(parts)] == found[::-1]


@pytest.mark.parametrize("dtype", shards.DTYPES)
def test_vectors_come_back_in_order(text, tmp_path, dtype):
    assert encode(text, tmp_path / "v", dtype=dtype) == list(range(10))
    found = list(read_shards(tmp_path / "v"))
    assert [len(part) for part in found] == [7] * 9 + [4] and {part.dtype for part in found} == {
        shards.DTYPES[dtype]
    }
    assert torch.equal(torch.cat(found).float(), spelled(LINES))
    assert torch.equal(
        torch.cat(list(read_shards(tmp_path / "v", verify=False))).float(), spelled(LINES)
    )
    assert len(Shards(tmp_path / "v")) == 67
    assert set(files(tmp_path / "v")) == {
        "manifest.json",
        *(f"part-{i:05d}.safetensors" for i in range(10)),
    }
    modes = {file.stat().st_mode for file in (tmp_path / "v").iterdir()}
    assert len(modes) == 1  # who may read the manifest may read the parts


def test_what_is_there_is_not_encoded_again(text, tmp_path):
    out = tmp_path / "v"
    encode(text, out)
    before = files(out)
    assert encode(text, out) == [] and files(out) == before
    for i in (2, 9):
        Shards(out).file(i).unlink()
    (out / f"{DRAFT}deaddead").mkdir()  # of one who was killed
    (out / "part-00009.lock").write_text("1")
    assert encode(text, out) == [2, 9] and set(files(out)) == set(before)
    assert all(
        files(out)[name] == before[name]
        for name in before
        if "00002" not in name and "00009" not in name
    )
    assert torch.equal(torch.cat(list(read_shards(out))).float(), spelled(LINES))


def test_each_process_begins_with_its_own_share_and_then_takes_what_is_left(text, tmp_path):
    assert encode(text, tmp_path / "v", rank=1, world=3) == [1, 4, 7, 0, 2, 3, 5, 6, 8, 9]


def test_what_another_is_writing_is_left_to_it_until_it_is_gone(text, tmp_path):
    encode(text, tmp_path / "v")
    out = Shards(tmp_path / "v")
    for i in range(4):
        out.file(i).unlink()
    steps = encode_shards(Spelling(), text_files([text]), out.folder, part_size=7)
    with file_lock(out.folder / "part-00001.lock", ""):
        assert [next(steps).part for _ in range(3)] == [0, 2, 3]
    assert [done.part for done in steps] == [1]


def test_what_another_finished_meanwhile_is_not_written_again(text, tmp_path):
    slow, fast = (
        encode_shards(Spelling(), text_files([text]), tmp_path / "v", part_size=7, rank=i, world=2)
        for i in (0, 1)
    )
    order = [next(slow).part, *(done.part for done in fast), *(done.part for done in slow)]
    assert order == [0, 1, 3, 5, 7, 9, 2, 4, 6, 8]


def test_what_was_finished_between_look_and_lock_is_not_written_again(text, tmp_path, monkeypatch):
    encode(text, tmp_path / "v")
    part = Shards(tmp_path / "v").file(4).rename(tmp_path / "away")

    @contextmanager
    def late(file, wanted):
        with file_lock(file, wanted) as sure:
            if Path(file).name == "part-00004.lock":
                part.rename(tmp_path / "v" / "part-00004.safetensors")
            yield sure

    monkeypatch.setattr(shards, "file_lock", late)
    assert encode(text, tmp_path / "v") == []


class NoLocks:
    """A file system without locks."""

    def __init__(self, file, timeout):
        pass

    def acquire(self):
        raise OSError(errno.ENOLCK, "no locks available")


def test_without_locks_each_writes_its_share_alone(text, tmp_path, monkeypatch):
    monkeypatch.setattr(locks, "FileLock", NoLocks)
    assert encode(text, tmp_path / "v", rank=0, world=2) == [0, 2, 4, 6, 8]
    with pytest.raises(ValueError, match=r"part-00001.*5 are missing"):
        list(read_shards(tmp_path / "v"))
    assert encode(text, tmp_path / "v", rank=1, world=2) == [1, 3, 5, 7, 9]
    assert torch.equal(torch.cat(list(read_shards(tmp_path / "v"))).float(), spelled(LINES))


def test_a_lock_that_another_has_is_a_lock(tmp_path):
    with file_lock(tmp_path / "try.lock", ""):
        assert shards._locks(tmp_path)


def test_without_locks_only_the_first_process_writes_the_manifest(text, tmp_path, monkeypatch):
    def waits(seconds):
        raise InterruptedError

    monkeypatch.setattr(shards, "_locks", lambda folder: False)
    monkeypatch.setattr(shards.time, "sleep", waits)
    with pytest.raises(InterruptedError):
        encode(text, tmp_path / "v", rank=1, world=2)
    assert not (tmp_path / "v" / "manifest.json").exists()


@pytest.mark.parametrize(
    "options, named",
    [
        (dict(encoder=Spelling(2.0)), "expected model "),
        (dict(part_size=8), "expected part_size 7,.*got 8"),
        (dict(dtype="float32"), "expected dtype float16,.*got float32"),
        (dict(precision="bf16"), "expected precision fp32,.*got bf16"),
        (dict(dtype="int8"), "expected dtype float32, float16, bfloat16, got 'int8'"),
    ],
)
def test_another_model_or_setting_is_refused(text, tmp_path, options, named):
    encode(text, tmp_path / "v")
    before = files(tmp_path / "v")
    with pytest.raises(ValueError, match=named):
        encode(text, tmp_path / "v", **options)
    assert files(tmp_path / "v") == before


@pytest.mark.parametrize(
    "name, value",
    [
        ("pooling", "cls"),
        ("max_length", 8),
        ("width", 7),
        ("transform", torch.nn.Identity()),
        (
            "tokenizer",
            SimpleNamespace(backend_tokenizer=SimpleNamespace(to_str=lambda: '{"model": 1}')),
        ),
    ],
)
def test_another_encoder_with_the_same_weights_is_refused(text, tmp_path, name, value):
    encode(text, tmp_path / "v")
    other = Spelling()
    setattr(other, name, value)
    with pytest.raises(ValueError, match=f"expected {name} "):
        encode(text, tmp_path / "v", other)


def test_a_text_of_another_size_or_name_is_refused(text, tmp_path):
    encode(text, tmp_path / "v")
    for change in (
        lambda: (text / "d.txt").write_text("Something else.\n"),
        lambda: (text / "d.txt").rename(text / "e.txt"),
        lambda: (text / "e.txt").unlink(),
    ):
        change()
        with pytest.raises(
            ValueError, match=r"expected the text .*d\.txt.* got .*(d\.txt.*16|e\.txt|None)"
        ):
            encode(text, tmp_path / "v")


def other_letter(file: Path, keep_time: bool) -> None:
    before = file.stat()
    file.write_bytes(file.read_bytes()[:-3] + b"\xc3\xa4?")
    if keep_time:
        os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))


def test_a_changed_line_is_found_where_it_is_encoded(text, tmp_path):
    steps = encode_shards(Spelling(), text_files([text]), tmp_path / "v", part_size=7)
    next(steps)
    other_letter(text / "d.txt", keep_time=True)
    with pytest.raises(ValueError, match=r"d\.txt:32: expected the 4 lines that were here"):
        list(steps)
    assert Shards(tmp_path / "v").missing() == [9]


def test_a_changed_line_of_a_finished_part_is_found_by_the_time_of_change(text, tmp_path):
    encode(text, tmp_path / "v")
    (text / "d.txt").touch()
    assert encode(text, tmp_path / "v") == []  # the same text
    copy = shutil.copytree(text, tmp_path / "copy", copy_function=shutil.copyfile)
    assert encode(copy, tmp_path / "v") == []  # elsewhere, too
    other_letter(text / "d.txt", keep_time=False)
    with pytest.raises(ValueError, match=r"d\.txt:32: expected the 4 lines that were here"):
        encode(text, tmp_path / "v")


def test_a_change_within_the_same_second_is_found(text, tmp_path):
    os.utime(text / "d.txt", ns=(10**18, 10**18))
    encode(text, tmp_path / "v")
    other_letter(text / "d.txt", keep_time=False)
    os.utime(text / "d.txt", ns=(10**18, 10**18 + 1000))
    with pytest.raises(ValueError, match=r"d\.txt:32: expected the 4 lines that were here"):
        encode(text, tmp_path / "v")


def test_a_manifest_is_whole_or_not_there(text, tmp_path, monkeypatch):
    def half(self, text, **_):
        with self.open("w") as file:
            file.write(text[:9])
        raise OSError("power cut")

    monkeypatch.setattr(Path, "write_text", half)
    with pytest.raises(OSError, match="power cut"):
        encode(text, tmp_path / "v")
    assert not (tmp_path / "v" / "manifest.json").exists()


@pytest.mark.parametrize(
    "name, data, named",
    [
        (
            "latin.txt",
            b"fine\n" * 9 + b"caf\xe9\n",
            r"latin\.txt:10: expected UTF-8 text, got the byte 0xe9",
        ),
        ("void.txt", b"", r"void\.txt: expected text, got an empty file"),
        ("hole.txt", b"fine\n" * 8 + b"\0\n", r"hole\.txt:9: expected lines of text.*NUL"),
        (
            "cut.txt.gz",
            gzip.compress(b"fine\n" * 99, mtime=0)[:-9],
            r"cut\.txt\.gz: expected a readable file",
        ),
        ("plain.txt.gz", b"fine\n", r"plain\.txt\.gz: expected a readable file"),
        (
            "long.txt",
            b"fine\n" + b"x" * 2**24 + b"y\n",
            r"long\.txt:2: expected lines of at most 16,777,216 bytes",
        ),
    ],
)
def test_what_is_no_text_is_named_before_anything_is_encoded(text, tmp_path, name, data, named):
    (text / name).write_bytes(data)
    with pytest.raises(ValueError, match=named):
        encode(text, tmp_path / "v")
    assert list((tmp_path / "v").iterdir()) == []


def test_only_text_is_taken_from_a_folder(text):
    before = text_files([text])
    for name in ("a.txt~", "b.txt.bak", "c.txt.gz.part", "d.md"):
        (text / name).write_text("not this\n")
    assert text_files([text]) == before


def test_a_damaged_packed_file_is_named(text, tmp_path):
    data = bytearray(gzip.compress("\n".join(SENTENCES).encode(), mtime=0))
    data[10:40] = b"\xff" * 30  # behind the head: what is packed makes no sense
    (text / "odd.txt.gz").write_bytes(data)
    with pytest.raises(ValueError, match=r"odd\.txt\.gz: expected a readable file, got: Error -3"):
        encode(text, tmp_path / "v")


def test_a_part_has_a_line_at_least(text):
    with pytest.raises(ValueError, match="expected at least 1 line a part, got 0"):
        list(cut_parts(text_files([text]), 0))


def test_one_line_without_an_end_is_text(text):
    (text / "one.txt").write_bytes(b"alone")
    with TextReader(text_files([text])) as reader:
        assert reader.read(99)[0] == [*LINES, "alone"]


def test_a_line_may_be_as_long_as_the_limit(text, monkeypatch):
    monkeypatch.setattr(line_chunks, "LINE_LIMIT", 1000)
    (text / "long.txt").write_bytes(b"fine\n" + b"x" * 999 + b"\n")  # the end of the line counts
    assert sum(part.rows for part in cut_parts(text_files([text]), 7)) == 69
    (text / "long.txt").write_bytes(b"fine\n" + b"x" * 1000 + b"\n")
    with pytest.raises(
        ValueError, match=r"long\.txt:2: expected lines of at most 1,000 bytes, got a longer one"
    ):
        list(cut_parts(text_files([text]), 7))


def test_a_place_without_text_is_named(tmp_path):
    (tmp_path / "empty").mkdir()
    for place, named in (
        ("empty", "expected .txt or .txt.gz files, found none"),
        ("none.txt", "expected a file, got none"),
    ):
        with pytest.raises(ValueError, match=f"{place}: {named}"):
            text_files([tmp_path / place])


def torn(out, elsewhere):
    file = out / "part-00003.safetensors"
    file.write_bytes(file.read_bytes()[:-5])


def flipped(out, elsewhere):
    file = out / "part-00003.safetensors"
    file.write_bytes(file.read_bytes()[:-1] + b"?")


@pytest.mark.parametrize(
    "harm, named",
    [
        (
            lambda out, _: (out / "part-00003.safetensors").unlink(),
            "part-00003.safetensors: expected 10 parts, 1 are missing",
        ),
        (torn, "part-00003.safetensors: cut short"),
        (flipped, "part-00003.safetensors: .*the file is damaged"),
        (
            lambda out, other: shutil.copy(other / "part-00003.safetensors", out),
            "part-00003.safetensors: expected part 3 of .* got a file from elsewhere",
        ),
        (
            lambda out, _: shutil.copy(
                out / "part-00004.safetensors", out / "part-00003.safetensors"
            ),
            "part-00003.safetensors: expected part 3 of .*elsewhere",
        ),
        (
            lambda out, _: shutil.copy(
                out / "part-00004.safetensors", out / "part-00010.safetensors"
            ),
            "part-00010.safetensors: expected 10 parts from 0 on",
        ),
        (
            lambda out, _: (out / "manifest.json").unlink(),
            "manifest.json: expected a file, got none",
        ),
        (
            lambda out, _: (out / "manifest.json").write_text(
                (out / "manifest.json").read_text()[:-30]
            ),
            "manifest.json: expected JSON",
        ),
        (
            lambda out, other: shutil.copy(other / "manifest.json", out),
            "part-00000.safetensors: expected part 0 of .*elsewhere",
        ),
    ],
)
def test_the_reader_refuses_what_is_not_whole(text, tmp_path, harm, named):
    encode(text, tmp_path / "v")
    encode(text, tmp_path / "other", Spelling(2.0))
    harm(tmp_path / "v", tmp_path / "other")
    with pytest.raises(ValueError, match=named):
        list(read_shards(tmp_path / "v"))


def test_a_part_from_elsewhere_is_refused_by_who_goes_on_and_by_who_reads_it_alone(text, tmp_path):
    encode(text, tmp_path / "v")
    encode(text, tmp_path / "other", Spelling(2.0))
    shutil.copy(tmp_path / "other" / "part-00003.safetensors", tmp_path / "v")
    for asked in (
        lambda: encode(text, tmp_path / "v"),
        lambda: Shards(tmp_path / "v").read(3),
        lambda: Shards(tmp_path / "v").read(3, verify=False),
    ):
        with pytest.raises(
            ValueError, match="part-00003.safetensors: expected part 3 of .*elsewhere"
        ):
            asked()


@pytest.mark.parametrize(
    "tensors",
    [
        {"vectors": torch.zeros(7, 5).half()},
        {"vectors": torch.zeros(7, 6)},
        {"vectors": torch.zeros(7, 6).half(), "more": torch.zeros(1)},
    ],
)
def test_a_part_of_another_shape_or_precision_is_refused(text, tmp_path, tensors):
    encode(text, tmp_path / "v")
    out = Shards(tmp_path / "v")
    save_checked(out.file(3), tensors, json.dumps({"run": out.name, "part": 3}))
    for asked in (lambda: encode(text, tmp_path / "v"), lambda: out.read(3, verify=False)):
        with pytest.raises(
            ValueError,
            match=r"part-00003.safetensors: expected vectors of shape \(7, 6\) in F16, got ",
        ):
            asked()


@pytest.mark.parametrize(
    "put", [lambda place: place.mkdir(), lambda place: place.symlink_to("nowhere")]
)
def test_what_is_no_file_in_the_place_of_a_part_is_named_and_not_taken_for_one(text, tmp_path, put):
    encode(text, tmp_path / "v")
    (tmp_path / "v" / "part-00003.safetensors").unlink()
    put(tmp_path / "v" / "part-00003.safetensors")
    for asked in (lambda: encode(text, tmp_path / "v"), lambda: Shards(tmp_path / "v").check()):
        with pytest.raises(ValueError, match="part-00003.safetensors: expected a (readable )?file"):
            asked()


def test_a_manifest_of_another_kind_is_refused(text, tmp_path):
    encode(text, tmp_path / "v")
    good = json.loads((tmp_path / "v" / "manifest.json").read_text())
    for change, named in (
        (dict(format="other"), "expected 'minbert vectors"),
        (dict(parts=[*good["parts"], [0, 1]]), r"expected file, offset.*\[0, 1\]"),
        (dict(parts=[["0", 0, 1, 2, "x"]]), "expected file, offset"),
        (dict(parts=[3]), "expected file, offset.*got 3"),
        (dict(settings={}), "'width'"),
    ):
        (tmp_path / "v" / "manifest.json").write_text(json.dumps(good | change))
        with pytest.raises(ValueError, match=named):
            Shards(tmp_path / "v")


def test_numbers_that_do_not_fit_are_refused(text, tmp_path):
    with pytest.raises(ValueError, match="finite numbers in float16.*sentence 1:"):
        encode(text, tmp_path / "v", Spelling(1e4))
    assert set(files(tmp_path / "v")) == {"manifest.json"}
    assert encode(text, tmp_path / "w", Spelling(1e4), dtype="bfloat16") == list(range(10))
    vectors = torch.zeros(7, 6)
    vectors[4, 5] = torch.inf
    # counted through all parts
    with pytest.raises(ValueError, match="part-00002.*the vector of sentence 19:"):
        Shards(tmp_path / "v").write(2, vectors)
    with pytest.raises(
        ValueError, match=r"part-00002.*expected 7 vectors of width 6, got \(6, 7\)"
    ):
        Shards(tmp_path / "v").write(2, torch.zeros(6, 7))


def test_a_full_disk_leaves_nothing_half_written(text, tmp_path):
    out = tmp_path / "v"
    encode(text, out)
    (out / "part-00001.safetensors").unlink()
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    signals = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, before[1]))
    try:
        with pytest.raises(Exception, match="(?i)file too large"):
            encode(text, out)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, signals)
    assert set(files(out)) == {
        "manifest.json",
        *(f"part-{i:05d}.safetensors" for i in range(10) if i != 1),
    }
    assert encode(text, out) == [1]


# The command in several processes. One of them is killed while it writes: its part has another
# name, half of its bytes, and its lock.
# The others wait for that after their first part, so that it happens before the work is done.
KILLED = """
import os, signal, sys, time
from pathlib import Path
from minbert.encoding import shards
from minbert.cli.commands import main

marker, replace_file, written = Path(sys.argv[1]), shards.replace_file, []
watched = "WATCHED" in os.environ and not marker.exists()   # by a launcher that will stop all: until it does, on a busy machine, they would finish

def dangerous(file, write):
    if watched and marker.exists():
        time.sleep(600)
    if file.suffix == ".json" or marker.exists():
        return replace_file(file, write)
    if os.environ["RANK"] == "2":
        def half(draft):
            write(draft)
            draft.write_bytes(draft.read_bytes()[:1000])
            while not list(file.parent.glob("part-*.safetensors")):   # on a busy machine the others may be late
                time.sleep(0.05)
            marker.write_text(file.name)
            os.kill(os.getpid(), signal.SIGKILL)
        return replace_file(file, half)
    while written and (watched or not marker.exists()):
        time.sleep(0.05)
    written.append(file)
    return replace_file(file, write)

shards.replace_file = dangerous
main(sys.argv[2:])
"""


@pytest.fixture
def work(tmp_path):
    """Real sentences in two files, the script, and the words after it."""
    lines = load_dataset("sentences").sentences[:600]
    (tmp_path / "a.txt").write_text("\n".join(lines[:250]) + "\n", encoding="utf8")
    (tmp_path / "b.txt").write_text("\n".join(lines[250:]), encoding="utf8")
    (tmp_path / "script.py").write_text(KILLED, encoding="utf8")
    words = [
        "encode",
        "embedded",
        str(tmp_path / "a.txt"),
        str(tmp_path / "b.txt"),
        "--out",
        str(tmp_path / "v"),
        "--part-size",
        "50",
    ]
    return SimpleNamespace(
        lines=lines,
        words=words,
        out=tmp_path / "v",
        marker=tmp_path / "killed",
        command=[str(tmp_path / "script.py"), str(tmp_path / "killed"), *words],
        env={**os.environ, "OMP_NUM_THREADS": "1", "ACCELERATE_USE_CPU": "true"},
    )


def launch(work, processes, *options) -> subprocess.CompletedProcess:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    start = [
        sys.executable,
        "-m",
        "accelerate.commands.launch",
        "--multi_gpu",
        "--num_processes",
        str(processes),
        "--num_machines",
        "1",
        "--mixed_precision",
        "no",
        "--dynamo_backend",
        "no",
        "--main_process_port",
        str(port),
        *options,
    ]
    return subprocess.run(
        [*start, *work.command], capture_output=True, text=True, env=work.env, timeout=600
    )


def told(errors: str) -> list[int]:
    """The parts that processes say they wrote."""
    return sorted(
        int(line.partition("part ")[2].partition(",")[0])
        for line in errors.splitlines()
        if line.startswith("process ")
    )


def check_whole(work) -> None:
    """Every sentence once, in order, and no leftovers."""
    found = torch.cat(list(read_shards(work.out))).float()
    assert_close(
        found, SentenceEncoder.from_pretrained().encode(work.lines), rtol=2**-10, atol=1e-4
    )
    assert not [name for name in files(work.out) if name.startswith(".")]


@pytest.mark.long
def test_one_of_four_launched_processes_is_killed_and_the_next_launch_goes_on(work):
    work.env["WATCHED"] = "yes"
    first = launch(work, 4)
    assert first.returncode != 0 and work.marker.exists()
    before = files(work.out)
    there = {name for name in before if name.endswith(".safetensors")}
    assert 0 < len(there) < 12 and work.marker.read_text() not in there
    # it looks at the head of those that are there: all are whole
    missing = Shards(work.out).missing()
    second = launch(work, 3)
    assert second.returncode == 0, second.stderr[-2000:]
    # none twice
    assert told(second.stderr) == missing and set(told(first.stderr)) <= {*range(12)} - {*missing}
    assert all(files(work.out)[name] == before[name] for name in there)
    assert second.stdout.count("600 vectors of width 256 in 12 parts") == 1
    check_whole(work)


@pytest.mark.long
def test_a_launcher_that_may_start_again_needs_no_second_command(work):
    run = launch(work, 4, "--max_restarts", "1")
    assert run.returncode == 0 and work.marker.exists(), run.stderr[-2000:]
    assert len(set(told(run.stderr))) == len(told(run.stderr))
    check_whole(work)


@pytest.mark.long
def test_three_finish_what_the_fourth_left_and_changes_are_refused(work):
    """Processes that nobody watches, as on four machines."""
    started = [
        subprocess.Popen(
            [sys.executable, *work.command],
            stderr=subprocess.PIPE,
            text=True,
            env={**work.env, "RANK": str(i), "WORLD_SIZE": "4"},
        )
        for i in range(4)
    ]
    errors = [process.communicate(timeout=600)[1] for process in started]
    assert [process.returncode for process in started] == [0, 0, -signal.SIGKILL, 0], errors
    assert told("".join(errors)) == list(range(12))  # each once
    check_whole(work)
    alone = [sys.executable, "-m", "minbert"]
    for words, named in (
        ([*work.words, "--bf16"], "expected precision fp32"),
        ([*work.words, "--pooling", "cls"], "expected pooling mean"),
        ([*work.words[:1], "embedded-sentences", *work.words[2:]], "expected model "),
        ([*work.words[:3], *work.words[4:]], "expected the text"),
    ):
        run = subprocess.run([*alone, *words], capture_output=True, text=True, env=work.env)
        assert run.returncode == 1 and named in run.stderr and len(run.stderr.splitlines()) == 1, (
            run.stderr
        )
