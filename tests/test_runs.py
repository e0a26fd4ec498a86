"""The folder of a run: its log, its best model, its lock, and what it resumes from."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import minbert
from minbert.core.run_dir import (
    RunFolder,
    clean_partial_save,
    locked,
    open_run,
    read_log,
    save_best,
    write_log,
)


def test_a_log_cut_in_its_last_line_is_read_up_to_there(tmp_path):
    folder = tmp_path
    write_log(folder, [{"step": 0, "loss": 2.5}, {"step": 1, "loss": 2.25}], "w")
    write_log(folder, [{"step": 2, "loss": 2.0}])
    with open(folder / "log.jsonl", "a") as handle:
        handle.write('{"step": 3, "lo')  # killed here
    assert [entry["step"] for entry in read_log(folder)] == [0, 1, 2]
    assert read_log(folder, before=2) == [{"step": 0, "loss": 2.5}, {"step": 1, "loss": 2.25}]
    assert read_log(folder / "nowhere") == []
    for bad in (
        b'{"step": 0, "lo\n',
        b"\0\0\0\n",
        b'{"loss": 1}\n',
        b'{"step": "1"}\n',
        b"[]\n",
        b"\xff\n",
    ):
        (folder / "log.jsonl").write_bytes(b'{"step": 0, "loss": 2.5}\n' + bad)
        with pytest.raises(ValueError, match=re.escape("log.jsonl:2: expected")):
            read_log(folder)


def test_the_best_model_is_replaced_as_a_whole(tmp_path):
    folder = tmp_path

    class Pebble:
        """A model of one file, which dies after writing half of it if told so."""

        def __init__(self, text, dies=None):
            self.text, self.dies = text, dies

        def save_pretrained(self, folder):
            folder.mkdir(parents=True)
            (folder / "weights").write_text(self.text[: 2 if self.dies else None])
            if self.dies:
                raise self.dies

    save_best(Pebble("first"), folder)
    with pytest.raises(Exception, match=re.escape("no space")):
        save_best(Pebble("second", OSError("no space left")), folder)
    assert [f.name for f in folder.iterdir()] == ["model"]
    with pytest.raises(KeyboardInterrupt):
        save_best(Pebble("third", KeyboardInterrupt()), folder)
    assert (folder / "model" / "weights").read_text() == "first"
    os.replace(folder / "model", folder / ".model.minbert-old")  # as if it died between the renames
    clean_partial_save(folder)
    assert (folder / "model" / "weights").read_text() == "first"
    save_best(Pebble("fourth"), folder)
    assert (folder / "model" / "weights").read_text() == "fourth"
    assert [f.name for f in folder.iterdir()] == ["model"]
    (folder / ".model.minbert-old").write_text("a file")
    with pytest.raises(
        ValueError, match=re.escape(".model.minbert-old: expected a folder or nothing")
    ):
        clean_partial_save(folder)
    (folder / ".model.minbert-old").unlink()


def test_a_folder_belongs_to_one_process_until_that_ends(tmp_path):
    folder = tmp_path
    code = "import sys, time; from minbert.core.run_dir import locked\nwith locked(sys.argv[1]): print('mine', flush=True); time.sleep(60)"
    root = str(Path(minbert.__file__).parents[1])
    other = subprocess.Popen(
        [sys.executable, "-c", code, str(folder)],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": root},
    )
    other.stdout.readline()
    with locked(folder / "elsewhere"):
        with pytest.raises(ValueError, match=re.escape(f"process {other.pid} is at work")):
            locked(folder).__enter__()
        with pytest.raises(ValueError, match=re.escape(f"process {os.getpid()}")):
            locked(folder / "elsewhere").__enter__()
    other.kill()
    other.wait()
    with locked(folder):
        pass
    assert sorted(f.name for f in folder.iterdir()) == ["elsewhere"]


def test_a_run_goes_on_from_its_checkpoint_with_the_same_settings_only(tmp_path):
    folder = tmp_path

    class Alone:
        """One process, as accelerate describes it."""

        is_main_process, process_index, num_processes = True, 0, 1

        def wait_for_everyone(self):
            pass

    layer = torch.nn.Linear(2, 2)
    run = RunFolder(folder / "run", {"lr": 0.1}, {"loss": None}, Alone())
    with open_run(run, resume=True) as position:  # nothing there yet: a new run
        assert (position, run.load(layer, None, None)) == ({}, None)
        run.write([{"step": 0, "loss": 2.5}])
        run.save(1, layer, None, None, {"phase": 0, "first": 0})
        run.write([{"step": 1, "loss": 2.0}])  # newer than the checkpoint
    again = RunFolder(folder / "run", {"lr": 0.1}, {"loss": None}, Alone())
    with open_run(again, resume=True) as position:
        again.load(layer, None, None)
    assert (position, len(read_log(folder / "run"))) == ({"phase": 0, "first": 0}, 1)
    other = RunFolder(folder / "run", {"lr": 0.2}, {}, Alone())
    with pytest.raises(ValueError, match=re.escape("expected a run with lr=0.2, got one with 0.1")):
        open_run(other, True).__enter__()
