"""Damage files and folders at random, by seed, and see what the readers make of them; run by
test_damage.py in a process of its own.

python tests/damage.py data|folders FIRST LAST prints one line of JSON a seed: [seed, what was done,
"loaded" | "refused" | what went wrong].
"""

import csv
import faulthandler
import gzip
import json
import os
import random
import resource
import shutil
import sys
import tempfile
import warnings
from pathlib import Path

import torch

from minbert.cli.pretraining import PretrainConfig, pretrain
from minbert.core.checkpoint import load_checkpoint
from minbert.core.run_dir import read_log
from minbert.data import load_dataset
from minbert.datasets.formats import SOURCES
from minbert.encoder import BertConfig, BertModel
from minbert.finetune import TrainConfig, fit
from minbert.heads import CosineHead, LinearHead, MultitaskBert
from minbert.pretrain import load_mlm
from minbert.sentence import SentenceEncoder, UnitLength

SECONDS, MEMORY = 60, 3 * 2**30  # of one load; of the address space beyond what the start took
WORDS = "water fire earth air moon sun star tree bird fish café naïve 東京".split()


# --- damage that any file can suffer


def flip(data, rng):
    data = bytearray(data)
    for _ in range(rng.choice((1, 1, 1, 2, 8))):
        place = rng.randrange(len(data)) if data else None
        if place is not None:
            data[place] ^= 1 << rng.randrange(8)
    return bytes(data)


def cut(data, rng):
    return data[: rng.randrange(len(data) + 1)]


def without(data, rng):
    first = rng.randrange(len(data) + 1)
    return data[:first] + data[first + rng.randrange(40) :]


def twice(data, rng):
    first = rng.randrange(len(data) + 1)
    return data[:first] + data[first : first + rng.randrange(40)] + data[first:]


def inserted(data, rng):
    place = rng.randrange(len(data) + 1)
    odd = rng.choice(
        (
            b"\0" * 9,
            b'"',
            b"\t",
            b"\r",
            b"\n",
            b",",
            b"\xff",
            b"\xed\xa0\x80",
            b"\xef\xbb\xbf",
            b"\x1a",
            b"\xe2\x80\xa8",
            b'"x"',
            b"\\",
            b"1e999",
        )
    )
    return data[:place] + odd + data[place:]


def recoded(data, rng):
    return data.decode("utf-8", "replace").encode(
        rng.choice(("utf-16", "utf-16-le", "utf-32", "latin-1", "utf-7", "cp1252")), "replace"
    )


def replaced(data, rng):
    return rng.choice(
        (
            b"",
            b"\n",
            b'""',
            b'""\n',
            b" \t\n",
            b"\0" * 999,
            b"null",
            b"[]",
            b"{}",
            b"7",
            b'"',
            b"PK\3\4junk",
            b"\x80\4N.",
            b"[" * 100_000,
            b'{"a":' * 50_000,
            rng.randbytes(300),
            b"x" * 2_000_000,
        )
    )


def line_ends(data, rng):
    return data.replace(b"\r\n", b"\n").replace(
        b"\n", rng.choice((b"\r", b"\r\n", b"\n\n", b"\r\r\n", b"\n\r"))
    )


BYTES = (
    flip,
    flip,
    flip,
    cut,
    without,
    twice,
    inserted,
    inserted,
    inserted,
    recoded,
    replaced,
    line_ends,
)


def misplaced(file, rng):
    """Put something else where the file was."""
    kind = rng.choice(("folder", "pipe", "zero", "dangling", "loop", "gone", "sparse", "locked"))
    data = file.read_bytes()
    file.unlink()
    if kind == "folder":
        file.mkdir()
    elif kind == "pipe":
        os.mkfifo(file)
    elif kind in ("zero", "dangling", "loop"):
        os.symlink({"zero": "/dev/zero", "dangling": "nowhere", "loop": file.name}[kind], file)
    elif kind in ("sparse", "locked"):
        file.write_bytes(data)
        os.truncate(file, 2**35) if kind == "sparse" else file.chmod(0)
    return kind


# --- data files


def table(rng, name):
    """A small file of a kind -> bytes."""

    def sentence():
        return (
            " ".join(rng.choice(WORDS) for _ in range(rng.randrange(2, 7)))
            + f" {rng.random():.6f}"
            + rng.choice(("", ".", '"', "'", ", yes"))
        )

    rows, pair = [], name not in ("sst", "sst5")
    for i in range(rng.randrange(1, 15)):
        texts = [sentence() for _ in range({"triplets": 3}.get(name, 2 if pair else 1))]
        score = round(rng.uniform(1, 5), 2)
        rows.append(
            {
                "sst": [i, f"id{i}", *texts, rng.randrange(5)],
                "quora": [i, f"id{i}", *texts, rng.choice(("0.0", "1.0", ""))],
                "sts": [i, f"id{i}", *texts, score],
                "stsb-cased": ["g", "f", "2012", i, score, *texts],
                "sickr": [i, *texts, score, "NEUTRAL"],
                "snli": [rng.choice(("neutral", "entailment", "-")), *texts],
                "sst5": [rng.randrange(5), *texts],
                "triplets": texts,
            }[name]
        )
    form = SOURCES[name][0].form
    if form.header:
        rows.insert(0, list(form.columns))
    if form.dialect in ("tab", "comma"):
        import io

        stream = io.StringIO()
        csv.writer(
            stream, delimiter={"tab": "\t", "comma": ","}[form.dialect], lineterminator="\n"
        ).writerows(rows)
        return stream.getvalue().encode()
    return "".join(
        {"raw": "\t", "space": " "}[form.dialect].join(map(str, row)) + "\n" for row in rows
    ).encode()


def closed(line, separator):
    """Whether the quotes of a line end on it."""
    try:
        list(csv.reader([line], delimiter=separator, strict=True))
    except csv.Error as error:
        return "end of data" not in str(error)
    return True


def by_lines(data, form):
    """The oracle: one row a physical line -> [(texts, label)], in the simplest way. ValueError
    where that makes no sense.
    """
    lines = [line.removesuffix("\r") for line in data.decode("utf-8-sig").split("\n")]
    cells = {
        "tab": lambda x: next(csv.reader([x], delimiter="\t")),
        "comma": lambda x: next(csv.reader([x])),
        "raw": lambda x: x.split("\t"),
        "space": lambda x: x.split(" ", 1),
    }[form.dialect]
    if form.dialect in ("tab", "comma"):  # a quoted cell may hold a line break
        whole, separator = [], {"tab": "\t", "comma": ","}[form.dialect]
        for line in lines:
            if whole and not closed(whole[-1], separator):
                whole[-1] += " " + line
            else:
                whole.append(line)
        lines = whole
    rows = [
        row
        for row in (cells(line) for line in lines if line.strip())
        if any(cell.strip() for cell in row)
    ]
    names = [name.strip() for name in rows.pop(0)] if form.header else list(form.columns)
    found = []
    for row in rows:
        named = dict(zip(names, row))
        texts = [named[name].strip() for name in form.text]
        label = named[form.label].strip() if form.label else None
        if form.lenient and (label in ("", "-") or not all(texts)):
            continue
        found.append((texts, label if form.words or label is None else float(label)))
    return found


def data_case(seed, box):
    rng = random.Random(seed)
    name = rng.choice(("sst", "quora", "sts", "stsb-cased", "sickr", "snli", "sst5", "triplets"))
    split = "train"
    file = box / SOURCES[name][0].file(split)
    file.parent.mkdir(parents=True)
    data, done = table(rng, name), [name]
    packed = rng.random() < 0.15
    file = file.with_name(file.name + ".gz") if packed else file
    inner = rng.random() < 0.8
    for damage in rng.sample(BYTES, rng.choice((0, 1, 1, 1, 2))) if inner else ():
        data = damage(data, rng)
        done.append(damage.__name__)
    stored = gzip.compress(data, mtime=0) if packed else data
    if packed and rng.random() < 0.5:
        stored = rng.choice(BYTES)(stored, rng)
        done.append("gz")
        data = None
    file.write_bytes(stored)
    if not inner:
        done.append(misplaced(file, rng))
    what = " ".join(done)

    def load():
        got = load_dataset(name, split, box)
        if data is None:
            return
        expected, form = by_lines(data, SOURCES[name][0].form), SOURCES[name][0].form
        columns = [c for c in (got.sentences, got.sentences2, got.sentences3) if c is not None]
        found = list(zip(map(list, zip(*columns)), got.labels or [None] * len(got)))
        if form.words:
            expected = [(texts, form.classes.index(label.lower())) for texts, label in expected]
        assert found == expected, f"other rows: {len(found)} found, {len(expected)} there"

    return what, load


# --- folders

VOCAB = [
    "[PAD]",
    "[UNK]",
    "[CLS]",
    "[SEP]",
    "[MASK]",
    *"abcdefghijklmnopqrstuvwxyz",
    *(f"##{c}" for c in "abcdefghijklmnopqrstuvwxyz"),
    "water",
    "fire",
]


def originals(box):
    """Folders of every kind -> name: (folder, function that reads a copy of it)."""
    from transformers import BertTokenizerFast

    from minbert.data import Dataset
    from minbert.whitening import Whiten

    box.mkdir()
    (box / "vocab.txt").write_text("\n".join(VOCAB) + "\n")
    tokenizer = BertTokenizerFast(str(box / "vocab.txt"), do_lower_case=True)
    torch.manual_seed(0)
    config = BertConfig(len(VOCAB), 8, 2, 2, 16, 0.0, 0.0, 32)

    def encoder(**more):
        return SentenceEncoder(BertModel(config), tokenizer, **more)

    x = torch.randn(30, 8)

    def vectors(folder):
        return check(
            SentenceEncoder.from_pretrained(folder, device="cpu").encode(["water", "fire ab"])
        )

    encoder().save_pretrained(box / "plain")
    # as an older release saved it: damage reaches the readers
    settings = json.loads((box / "plain" / "minbert_sentence.json").read_text())
    (box / "plain" / "minbert_sentence.json").write_text(
        json.dumps({name: value for name, value in settings.items() if name != "files"})
    )
    encoder(pooling="cls", transform=Whiten(8).fit(x)).save_pretrained(box / "whitened")
    encoder(transform=UnitLength()).save_pretrained(box / "unit")
    hub = box / "hub"
    encoder().save_pretrained(hub)
    for name in ("minbert_sentence.json", "tokenizer.json"):
        (hub / name).unlink()
    (hub / "vocab.txt").write_text("\n".join(VOCAB) + "\n")
    state = {k: v for k, v in torch.nn.Module.state_dict(BertModel.from_pretrained(hub)).items()}
    from minbert.encoding.bert_weights import hugging_face_name

    pickled = box / "pickled"
    shutil.copytree(hub, pickled)
    (pickled / "model.safetensors").unlink()
    torch.save({hugging_face_name(k): v for k, v in state.items()}, pickled / "pytorch_model.bin")
    shards = box / "shards"
    shutil.copytree(hub, shards)
    (shards / "model.safetensors").unlink()
    from safetensors.torch import save_file

    names = [hugging_face_name(k) for k in state]
    parts = {name: f"model-{i % 2}.safetensors" for i, name in enumerate(names)}
    for part in set(parts.values()):
        save_file(
            {
                hugging_face_name(k): v
                for k, v in state.items()
                if parts[hugging_face_name(k)] == part
            },
            shards / part,
        )
    (shards / "model.safetensors.index.json").write_text(json.dumps({"weight_map": parts}))

    def heads():
        return {"sst": LinearHead(8, 3), "quora": CosineHead()}

    MultitaskBert(encoder(), heads()).save_pretrained(box / "tasks")
    texts = [" ".join(pair) for pair in (("water", "a"), ("fire", "b"), ("c", "d"), ("e", "f"))]
    sets = {
        "sst": Dataset(
            "sst", "train", "sentiment", texts, labels=[0, 1, 2, 1], classes=("x", "y", "z")
        ),
        "quora": Dataset(
            "quora",
            "train",
            "paraphrase",
            texts,
            texts[::-1],
            labels=[0, 1, 1, 0],
            classes=("x", "y"),
        ),
    }
    settings = TrainConfig(("sst", "quora"), steps=3, batch_size=2, eval_every=2, save_every=1)

    def fresh():
        return MultitaskBert(encoder(), heads())

    fit(fresh(), sets, sets, settings, box / "run")

    plan = PretrainConfig(
        60,
        8,
        1,
        2,
        16,
        total_steps=3,
        tokens_per_step=40,
        warmup_steps=1,
        precision="fp32",
        save_every=2,
    )
    (box / "text").mkdir()
    (box / "text" / "a.txt").write_text(
        "\n".join(" ".join(WORDS[i % 7 : i % 7 + 5]) for i in range(30))
    )
    list(pretrain(box / "text", box / "pretrained", plan))

    def pretrained(folder):
        load_mlm(folder / "model")  # first: a run that has ended saves its model again
        list(pretrain(box / "text", folder, plan))

    def tasks(folder):
        model = MultitaskBert.from_pretrained(folder, device="cpu")
        check(model.predict("sst", sets["sst"], raw=True))
        check(model.predict("quora", sets["quora"], raw=True))

    def run(folder):
        read_log(folder)
        load_checkpoint(folder, fresh())
        fit(fresh(), sets, sets, settings, folder, resume=True)

    readers = {name: vectors for name in ("plain", "whitened", "unit", "hub", "pickled", "shards")}
    readers |= {
        "tasks": tasks,
        "run": run,
        "pretrained": pretrained,
    }
    return {name: (box / name, reader) for name, reader in readers.items()}


def check(x):
    if not torch.isfinite(x).all():
        raise ValueError(f"{ROOT}: not finite")  # what `encode` says, see write_vectors
    return x


def wrong_json(file, rng):
    """Change one value of a JSON file, or its shape."""
    odd = rng.choice(
        (
            None,
            True,
            -1,
            0,
            10**9,
            10**30,
            1.5,
            "x",
            "../..",
            "/etc/passwd",
            "",
            [],
            {},
            [[]],
            {"a": {}},
            ["a"] * 1000,
            "y" * 100_000,
            float("nan"),
            float("inf"),
        )
    )
    try:
        values = json.loads(file.read_text())
        assert isinstance(values, (dict, list)) and values
    except (ValueError, AssertionError):
        return "nothing"
    spot, key = values, None
    while isinstance(spot, (dict, list)) and spot:
        parent = spot
        key = rng.choice(list(spot)) if isinstance(spot, dict) else rng.randrange(len(spot))
        spot = parent[key]
        if rng.random() < 0.5:
            break
    how = rng.choice(("value", "value", "value", "gone", "more", "twice", "top"))
    if how == "value":
        parent[key] = odd
    elif how == "gone":
        del parent[key]
    elif how == "more" and isinstance(parent, dict):
        parent["extra"] = odd
    elif how == "top":
        values = odd
    text = json.dumps(values)
    if how == "twice":
        text = text[:1] + json.dumps("x") + ": 1, " + json.dumps("x") + ": 2, " + text[1:]
    file.write_text(text)
    return f"json {how}"


def wrong_tensors(file, rng):
    """Change tensors or the header of a safetensors file."""
    data = file.read_bytes()
    size = int.from_bytes(data[:8], "little")
    header, body = json.loads(data[8 : 8 + size]), bytearray(data[8 + size :])
    name = rng.choice([n for n in header if n != "__metadata__"])
    entry = header[name]
    how = rng.choice(
        (
            "length",
            "dtype",
            "shape",
            "offsets",
            "gone",
            "extra",
            "rename",
            "nan",
            "inf",
            "huge",
            "bits",
            "metadata",
            "types",
        )
    )
    first, end = entry["data_offsets"]
    if how == "length":
        size_now = rng.choice((0, 1, size - 1, size + 1, 2**40, 2**63, 2**64 - 1))
        file.write_bytes(size_now.to_bytes(8, "little") + data[8:])
        return how
    if how in ("nan", "inf", "huge") and entry["dtype"] == "F32" and end > first:
        import struct

        place = first + 4 * rng.randrange((end - first) // 4)
        body[place : place + 4] = struct.pack(
            "<f", {"nan": float("nan"), "inf": float("-inf"), "huge": 3e38}[how]
        )
    elif how == "bits" and body:
        body[rng.randrange(len(body))] ^= 1 << rng.randrange(8)
    elif how == "dtype":
        entry["dtype"] = rng.choice(("F16", "F64", "I32", "BOOL", "F99", "", None, 3))
    elif how == "shape":
        entry["shape"] = rng.choice(
            (
                [],
                [1],
                entry["shape"][::-1],
                [2**40],
                [-1],
                None,
                "8",
                [10**30],
                entry["shape"] + [1],
            )
        )
    elif how == "offsets":
        entry["data_offsets"] = rng.choice(
            (
                [first, end + 4],
                [first + 4, end],
                [end, first],
                [0, 2**50],
                [],
                None,
                ["0", "4"],
                [-8, 0],
            )
        )
    elif how == "gone":
        del header[name]
    elif how == "extra":
        header["x" * rng.choice((1, 100_000))] = dict(entry)
    elif how == "rename":
        header[rng.choice(("x", "", "../x", "bert." + name))] = header.pop(name)
    elif how == "metadata":
        header["__metadata__"] = rng.choice(
            (
                None,
                [],
                {"minbert": 1},
                {"minbert": "[" * 50_000},
                {"minbert": "{}", "sha256": ""},
                "x",
            )
        )
    else:
        header[name] = rng.choice((None, 1, [], "x", {}))
    text = json.dumps(header).encode()
    file.write_bytes(len(text).to_bytes(8, "little") + text + bytes(body))
    return how


def folder_case(seed, box, kinds):
    rng = random.Random(seed)
    name = rng.choice(list(kinds))
    original, reader = kinds[name]
    folder = box / "copy"
    shutil.copytree(original, folder)
    done = [name]
    for _ in range(rng.choice((1, 1, 1, 2))):
        files = sorted(
            f
            for f in folder.rglob("*")
            if f.is_file()
            and not f.is_symlink()
            and f.stat().st_size < 2**30
            and os.access(f, os.R_OK)
        )
        if not files:
            break
        file = rng.choice(files)
        special = (
            wrong_json
            if file.suffix == ".json"
            else wrong_tensors
            if file.suffix == ".safetensors"
            else None
        )
        try:
            if special and rng.random() < 0.6:
                how = special(file, rng)
            elif rng.random() < 0.25:
                how = misplaced(file, rng)
            else:
                damage = rng.choice(BYTES)
                file.write_bytes(damage(file.read_bytes(), rng))
                how = damage.__name__
        except (ValueError, KeyError, IndexError, TypeError):  # already damaged beyond this
            how = "nothing"
        done.append(f"{file.relative_to(folder)}: {how}")
    return " | ".join(done), lambda: reader(folder)


# --- judging


def names_in(folder):
    return sorted(str(p.relative_to(folder)) for p in folder.rglob("*"))


def judge(load, box, may_write=False):
    """Load, and say what happened: loaded, refused, or what should not happen."""
    before = names_in(box)
    faulthandler.dump_traceback_later(SECONDS, exit=True)
    try:
        load()
        outcome = "loaded"
    except ValueError as error:
        outcome = "refused"
        if str(box) not in str(error):
            outcome = f"names no file: {error!r}"[:300]
        elif len(str(error)) > 1500:
            outcome = f"a message of {len(str(error))} characters: {str(error)[:200]}"
    except BaseException as error:
        outcome = f"{type(error).__name__}: {error}"[:300]
    finally:
        faulthandler.cancel_dump_traceback_later()
    after = [name for name in names_in(box) if name not in before]
    left = [
        name
        for name in after
        if not may_write
        or ".part" in name
        or ".lock" in name
        or ".draft" in name
        or "minbert-new" in name
    ]
    return f"left behind: {left}" if left else outcome


ROOT = Path(tempfile.mkdtemp(prefix="damage-"))


def main(what, first, last):
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    reports = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # the Rust library of tokenizers prints what it ignores in a damaged file
    kinds = originals(ROOT / "originals") if what == "folders" else None
    if kinds:
        for folder, reader in kinds.values():  # whole folders load
            shutil.copytree(folder, ROOT / "whole")
            reader(ROOT / "whole")
            shutil.rmtree(ROOT / "whole")
    used = (
        int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        if Path("/proc/self/statm").exists()
        else 0
    )
    resource.setrlimit(
        resource.RLIMIT_AS, (used + MEMORY, resource.getrlimit(resource.RLIMIT_AS)[1])
    )
    for seed in range(first, last):
        box = ROOT / str(seed)
        box.mkdir()
        done, load = data_case(seed, box) if what == "data" else folder_case(seed, box, kinds)
        print(
            json.dumps(
                [seed, done, judge(load, box, may_write=done.startswith(("run |", "pretrained |")))]
            ),
            file=reports,
            flush=True,
        )
        shutil.rmtree(box)


if __name__ == "__main__":
    try:
        main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
    finally:
        shutil.rmtree(ROOT, ignore_errors=True)
