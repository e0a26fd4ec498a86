"""The rules of a GPU without one: mixed devices and wrong generators are refused, and waits are
counted. See cuda_rules/simulated.py.
"""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch

sys.path.insert(0, str(Path(__file__).resolve().parent / "cuda_rules"))

ROOT = Path(__file__).resolve().parent.parent
RULES = ROOT / "tests" / "cuda_rules"
COMPILER = shutil.which("c++") or shutil.which("g++")
pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(
        not COMPILER, reason="needs a C++ compiler (c++ or g++) to tell torch of a device"
    ),
    pytest.mark.skipif(
        torch.cuda.is_available(), reason="there is a real GPU: its rules need no simulation"
    ),
    pytest.mark.skipif(
        torch.version.cuda is not None,
        reason="torch is built for CUDA: its own kernels would answer in the place of the simulation, which needs a build for CPUs",
    ),
]


@pytest.fixture(scope="session")
def guard(tmp_path_factory) -> Path:
    """Compile the library once."""
    code = f"import sys; sys.path.insert(0, {str(RULES)!r}); import build; print(build.build({str(tmp_path_factory.mktemp('guard'))!r}, {COMPILER!r}))"
    made = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=600)
    assert made.returncode == 0, made.stderr
    return Path(made.stdout.strip())


@pytest.fixture(scope="session")
def server(guard, tmp_path_factory):
    """A process that has loaded the libraries and forks for each scenario: the device is registered
    for good, and nothing a scenario does stays.
    """
    settings = {
        "CUDA_RULES_GUARD": str(guard),
        "OMP_NUM_THREADS": "1",
        "PYTHONPATH": str(ROOT),
        "HF_HUB_OFFLINE": "1",
    }
    command = [sys.executable, str(RULES / "scenarios.py"), str(tmp_path_factory.mktemp("played"))]
    with subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={k: v for k, v in os.environ.items() if k != "ACCELERATE_USE_CPU"} | settings,
    ) as process:
        yield process
        process.stdin.close()


@pytest.fixture(scope="session")
def play(server):
    """Run a scenario in a process of its own, and give what it returns."""

    def run(name):
        print(name, file=server.stdin, flush=True)
        answer = server.stdout.readline()
        assert answer, f"the server of the scenarios ended with {server.wait()}"
        status, result, errors = json.loads(answer)
        assert status == 0, f"{name} ended with {status}: {errors}"
        return result

    return run


def test_the_simulation_refuses_and_counts(play):
    """A check that refuses nothing checks nothing."""
    assert play("rules") == {"wait": 7, "copy": 1, "blocking copy": 1}


@pytest.mark.parametrize(
    "name",
    [
        "losses",
        "generators",
        "surgery",
        "batches_of_all_kinds",
        "one_ahead",
        "bad_batches",
        "broken_search",
    ],
)
def test_runs_by_the_rules(play, name):
    assert play(name) is None


@pytest.mark.long
@pytest.mark.parametrize(
    "name",
    [
        "heads",
        "penalties",
        "flow",
        "contrastive",
        "calibration",
        "fitting",
        "evaluation",
        "pretraining",
        "half_precision",
    ],
)
def test_runs_by_the_rules_for_long(play, name):
    assert play(name) is None


def test_encoding_waits_for_nothing_but_its_result(play):
    # two batches
    assert play("encoding") == {"embed": {"copy": 1}, "encode": {"copy": 2, "wait": 2}}


def test_attention_gets_a_mask_only_where_something_is_padded(play):
    """Without one a GPU can take its fastest kernel. Ids that came without an original are not
    counted: that would be a wait.
    """
    assert play("attention_masks") == {
        "step, full": True,
        "step, padded": False,
        "embed, full": True,
        "embed, padded": False,
        "ids on the gpu": False,
    }


def test_one_call_attends_in_all_sentences_where_the_kernel_serves(play):
    """In half precision, without dropout, if it agrees with plain attention, and if padding would
    cost a quarter.
    """
    assert play("one_call_attention") == {
        "waits": 0,
        "fp32": 0,
        "training with dropout": 0,
        "eval with dropout": 2,
        "a kernel that is off by a tenth": False,
        "much padding": True,
        "little padding": False,
        "compiled": False,
    }


def test_heads_stand_where_their_encoder_does(play):
    assert play("heads_beside") == [["cuda:0"], {"sst": 4, "quora": 4, "stsb": 4}]


MOST = 2  # times that the CPU may wait for the GPU in a step
# losses and length of the gradient are read together; the batch is sent
ONE_COPY = {"wait": 1, "copy": 1, "blocking copy": 0}


def test_a_joint_step_waits_once_and_sends_one_copy(play):
    assert play("count_joint") == {precision: ONE_COPY for precision in ("fp32", "bf16", "fp16")}
    # three batches in it
    assert {kind: n for kind, n in play("count_accumulated").items() if kind != "copy back"} == {
        "wait": 1,
        "copy": 3,
    }


@pytest.mark.long
def test_the_steps_of_flow_and_views_wait_once(play):
    found = play("count_flow")
    assert found.pop("alone, vectors on cuda") == ONE_COPY | {"copy": 0}
    assert found == {
        name: ONE_COPY for name in ("joint, reverse", "joint, lu", "alone, vectors on cpu")
    }
    assert play("count_views") == {name: ONE_COPY for name in ("simcse", "mirror", "ranking")}


@pytest.mark.long
def test_a_penalty_or_surgery_waits_at_most_once_more(play):
    """A proximal penalty asks whether a step was taken; surgery asks for its small matrix. A search asks
    nothing.
    """
    found = play("count_penalties")
    assert {kind: step["wait"] for kind, step in found.items()} == {
        kind: 2 if "proximal" in kind else 1 for kind in found
    }
    assert max(step["wait"] for step in found.values()) <= MOST and not any(
        step["blocking copy"] for step in found.values()
    )
    for kind, step in play("count_surgery").items():
        assert step == {"wait": MOST, "copy": 2, "blocking copy": 0}, (kind, step)


@pytest.mark.long
def test_a_step_of_pretraining_waits_once_and_sends_one_copy(play):
    """The places of the hidden words come with the batch: nothing has to be counted there."""
    assert play("count_pretraining") == ONE_COPY


FLAGGED = sorted(
    p.stem
    for p in (ROOT / "nbs").rglob("*.ipynb")
    if ".ipynb_checkpoints" not in p.parts and re.search(r'"#\| gpu', p.read_text(encoding="utf-8"))
)


def test_every_gpu_cell_is_played():
    source = (RULES / "scenarios.py").read_text(encoding="utf-8")
    assert [name for name in FLAGGED if f'"{name}"' not in source] == []


@pytest.mark.long
@pytest.mark.release
@pytest.mark.parametrize("name", FLAGGED)
def test_the_cell_that_wants_a_gpu_runs_there(play, name):
    assert play(name) is None
