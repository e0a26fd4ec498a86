"""What several test files share."""

import os
import socket
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest
import torch
from torch import nn

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "scripts"))
from stored import how_to_restore, notebooks_that_were_run  # noqa: E402


class Given(nn.Module):
    """A model for sentence-transformers whose "text" is its embedding."""

    device = torch.device("cpu")

    def forward(self, features):
        return {"sentence_embedding": features["e"]}


@pytest.fixture(scope="session", autouse=True)
def weak_isolation_where_bubblewrap_does_not_exist():
    """On macOS grading is tested without it; on Linux it must be installed."""
    if sys.platform.startswith("linux"):
        yield
        return
    from minbert.course.sandbox import Sandbox

    start = Sandbox.start
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Sandbox, "start", lambda self, probe, weak=False: start(self, probe, True))
        yield


@pytest.fixture
def given() -> nn.Module:
    return Given()


@pytest.fixture
def bf16(monkeypatch):
    """ "bf16" means bfloat16, also on a processor that only imitates it and would be spared that."""
    monkeypatch.setattr("minbert.core.devices.imitates_bf16", lambda device: False)


@pytest.fixture
def unsealed(monkeypatch):
    """Encoders are saved without checksums, as an older release did: so a damage reaches the reader
    that is to notice it.
    """
    monkeypatch.setattr(
        "minbert.encoding.sentence_transformers_folder.folder_checksums", lambda *asked: {}
    )


@pytest.fixture
def nothing_left_open():
    """A picture that a test draws is closed by whoever drew it; what other tests left open does not
    count.
    """
    import matplotlib.pyplot as plt

    plt.close("all")
    yield
    assert plt.get_fignums() == []


@pytest.fixture
def in_processes():
    """Give a function that runs a script alone and, at the same time, in two processes that talk
    over gloo.

    The script gets a folder as its argument: "one" or "two" below the one given here.
    """

    def start(script, folder, **settings):
        folder.mkdir(exist_ok=True)
        return subprocess.Popen(
            [sys.executable, "-c", script, str(folder)],
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "OMP_NUM_THREADS": "1", "ACCELERATE_USE_CPU": "true", **settings},
        )

    def run(script, folder):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        world = dict(
            WORLD_SIZE="2", LOCAL_WORLD_SIZE="2", MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port)
        )
        started = [
            start(script, folder / "two", RANK=str(i), LOCAL_RANK=str(i), **world) for i in (0, 1)
        ]
        started.append(start(script, folder / "one"))
        try:
            for process in started:
                _, errors = process.communicate(timeout=300)
                assert process.returncode == 0, errors
        finally:  # one that waits for a dead colleague would wait for ever
            for process in started:
                process.kill()

    return run


@cache
def replaced_outputs() -> str:
    """Name the notebooks that were run in Jupyter; nothing if there are none."""
    return how_to_restore(notebooks_that_were_run(ROOT), ROOT)


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item, call):
    """Let a test that fails say which notebooks were run and how to restore them, because many
    tests read the stored outputs.
    """
    report = (yield).get_result()
    if report.failed and replaced_outputs():
        report.sections.append(
            ("Notebooks that were run: this may be why the test fails", replaced_outputs())
        )


def pytest_collection_modifyitems(config, items):
    """Leave the browser out where nobody named one; where one is named (.ci/run), its tests must
    pass. Files with long tests come first: none shall be alone at the end.
    """
    if not os.environ.get("MINBERT_BROWSER"):
        browser = [item for item in items if item.get_closest_marker("browser")]
        items[:] = [item for item in items if item not in browser]
        config.hook.pytest_deselected(items=browser)
    long = {
        item.path
        for item in items
        if item.get_closest_marker("long") or item.get_closest_marker("browser")
    }
    items.sort(key=lambda item: item.path not in long)


def pytest_terminal_summary(terminalreporter):
    if not os.environ.get("MINBERT_BROWSER"):
        terminalreporter.write_line(
            "tests marked browser were LEFT OUT: set MINBERT_BROWSER=/path/to/chromium to run them"
        )
