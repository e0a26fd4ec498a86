"""scripts/processors.py finds what uses more than a third of its tolerance: in tests, in chapters,
and between processors.
"""

import json
import math
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "scripts"))
import processors  # noqa: E402
from recorder import share_used  # noqa: E402

TESTS = """
import math
import os
import numpy as np
import pytest
import torch

def test_half():
    torch.testing.assert_close({"a": torch.ones(3)}, {"a": torch.tensor([1, 1, 1 + 5e-6])}, rtol=0, atol=1e-5)

def test_half_of_numbers():
    torch.testing.assert_close([1.0], [1 + 5e-6], rtol=0, atol=1e-5)

def test_half_of_arrays():
    np.testing.assert_allclose(np.ones(2), [1, 1 + 5e-6], rtol=0, atol=1e-5)

def test_half_of_floats():
    assert 1 + 5e-6 == pytest.approx(1, rel=1e-5)
    assert math.isclose(1, 1 + 5e-6, rel_tol=1e-5)
    assert torch.allclose(torch.ones(2), torch.full((2,), 1 + 5e-6), rtol=1e-5, atol=0)

def test_a_sample():
    assert 0.5 == pytest.approx(0.56, abs=0.1)

def test_what_is_meant_to_fail():
    with pytest.raises(AssertionError):
        torch.testing.assert_close(1.0, 2.0)

def test_a_threshold():
    assert float(os.environ["OMP_NUM_THREADS"]) < 2.5
    assert len("threads") < 8
"""
FAILING = """
import torch

def test_twice():
    torch.testing.assert_close(1.0, 1 + 2e-5, rtol=0, atol=1e-5)
"""
CHAPTER = [
    "from torch.testing import assert_close\nassert_close(1.0, 1 + 5e-6, rtol=0, atol=1e-5)  # in a chapter",
    "assert 1.5 > 1",
]


def processed(folder, *arguments):
    """Run the script in a repository of its own."""
    for name in ("tests", "nbs", "scripts"):
        (folder / name).mkdir(exist_ok=True)
    for name in ("scripts/processors.py", "scripts/recorder.py", "settings.ini"):
        shutil.copy(ROOT / name, folder / name)
    (folder / "tests/test_near.py").write_text(TESTS)
    (folder / "tests/test_failing.py").write_text(FAILING)
    cells = [
        {
            "cell_type": "code",
            "id": str(i),
            "metadata": {},
            "execution_count": None,
            "outputs": [],
            "source": s,
        }
        for i, s in enumerate(CHAPTER)
    ]
    (folder / "nbs/near.ipynb").write_text(
        json.dumps({"cells": cells, "metadata": {}, "nbformat": 4, "nbformat_minor": 5})
    )
    return subprocess.run(
        [sys.executable, "scripts/processors.py", *arguments],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=300,
    )


@pytest.mark.long
def test_what_is_near_and_what_fails_is_told_with_its_line(tmp_path):
    both = [f"--setting=as it is, {threads}" for threads in ("1 thread", "2 threads")]
    done = processed(
        tmp_path,
        *both,
        "--keep",
        "kept",
        "tests/test_near.py",
        "nbs/near.ipynb",
        "tests/test_failing.py",
    )
    near = [line for line in done.stdout.splitlines() if line.startswith("near: ")]
    lines = [number for number, line in enumerate(TESTS.splitlines(), 1) if "5e-6" in line]
    assert done.returncode == 1, done.stderr
    for number in lines:
        assert any(
            line.startswith("near: 0.50") and f"test_near.py:{number} " in line for line in near
        ), (number, done.stdout)
    assert any("nbs/near.ipynb: assert_close" in line and "# in a chapter" in line for line in near)
    threshold = TESTS[: TESTS.index("    assert float")].count("\n") + 1
    assert any(
        line.startswith("near: 2.00")
        and f"test_near.py:{threshold} (a and b are 0.5 apart, and move by 1)" in line
        for line in near
    )
    # not the sample, not what is meant to fail, not whole numbers
    assert len(near) == len(lines) + 2
    assert (
        "FAILED under as it is, 1 thread: tests/test_failing.py\n    2.00 of the tolerance: test_failing.py:5 test_twice"
        in done.stdout
    )
    # the kept result counts
    again = processed(
        tmp_path, both[0], "--keep", "kept", "tests/test_near.py", "tests/test_missing.py"
    )
    assert again.returncode == 1 and "tests/test_missing.py" in again.stdout


@pytest.mark.parametrize(
    "actual, expected, rtol, atol, share",
    [
        (torch.tensor([1.0, 2.0]), torch.tensor([1.0, 2.5]), 0.1, 0.25, 1.0),
        (
            torch.tensor([0.0, math.nan, math.inf]),
            torch.tensor([0.0, math.nan, math.inf]),
            0.1,
            0.1,
            0.0,
        ),
        (1.0, math.nan, 0.1, 0.1, math.inf),
        (torch.ones(2), torch.zeros(2), 0, 0, 0.0),  # bits are compared: no tolerance to use
        (
            torch.ones(2, dtype=torch.bfloat16),
            torch.full((2,), 2.0, dtype=torch.bfloat16),
            1.0,
            0,
            0.5,
        ),
        (torch.empty(0), torch.empty(0), 0.1, 0.1, 0.0),
    ],
)
def test_share_by_hand(actual, expected, rtol, atol, share):
    assert share_used(actual, expected, rtol, atol)[0] == pytest.approx(share, rel=1e-6)


def outcome(share=0.0, relative=1e-6, order=()):
    return [
        {
            "file": "f",
            "passed": True,
            "close": {"l": {"share": share, "relative": relative, "test": "t"}},
            "order": {"o": list(order)},
        }
    ]


@pytest.mark.parametrize(
    "shares, relative, near",
    [
        ((0.1, 0.34), 1e-6, True),
        ((0.1, 0.33), 1e-6, False),
        ((0.5, 0.5), 1e-6, True),
        ((0.5, 0.5), 0.1, False),
        ((0.5, 0.52), 0.1, True),
        ((0.1, 0.3), 0.1, False),
    ],
)
def test_a_wide_tolerance_counts_where_its_share_moves(shares, relative, near):
    results = {str(i): outcome(share, relative) for i, share in enumerate(shares)}
    assert bool(processors.near_tolerance(results)) == near


@pytest.mark.parametrize(
    "runs, near",
    [
        (([3.0, 9.0], [5.5, 9.0]), False),
        (([3.0, 9.0], [6.5, 9.0]), True),
        (([0.0], [0.0]), False),
        (([0.0], [1e-9]), True),
        (([3.0], [9.0, 9.0]), False),
    ],
)
def test_an_order_is_near_where_it_moves(runs, near):
    assert (
        bool(processors.near_orders({str(i): outcome(order=run) for i, run in enumerate(runs)}))
        == near
    )


def test_every_numeric_file_is_found():
    files = processors.numeric()
    assert {
        "tests/test_attention.py",
        "tests/test_finetune.py",
        "nbs/3_embeddings/18_negatives.ipynb",
        "nbs/2_finetuning/13_finetune.ipynb",
    } <= set(files)
    assert set(processors.CORE) <= set(files) and set(processors.SHORT) <= set(processors.SETTINGS)
