"""Run test files and chapters, and record how much of its tolerance every comparison uses.

    python scripts/recorder.py FOLDER tests/test_optim.py nbs/1_bert/05_optim.ipynb

writes FOLDER/tests_test_optim.py.json and so on: whether the file passed, and for each line that compares
- closely (assert_close, assert_allclose, isclose, approx): the largest share |a - b| / (atol + rtol |b|);
- by order (`assert loss < 0.1`): how far each pair of numbers stood apart.
"""

from __future__ import annotations

import ast
import builtins
import json
import linecache
import math
import operator
import os
import sys
import time
from collections import defaultdict
from contextlib import suppress
from pathlib import Path

import numpy as np
import torch

ROOT = Path(__file__).resolve().parent.parent
# their frames are not the caller's
COMPARERS = tuple(str(Path(module.__file__).parent) for module in (np, torch))
ORDERS = {ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">="}
APPLY = {"<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge}


def numbers(x) -> np.ndarray:
    """Any tensor, array or number as float64."""
    return (
        x.detach().cpu().double().numpy()
        if isinstance(x, torch.Tensor)
        else np.asarray(x, dtype=float)
    )


def share_used(actual, expected, rtol: float, atol: float) -> tuple[float, float]:
    """The largest |a - b| / (atol + rtol |b|), and that tolerance relative to the largest number
    compared.
    """
    a, b = np.broadcast_arrays(numbers(actual), numbers(expected))
    if not a.size or rtol == atol == 0:
        return 0.0, 0.0  # bits are compared: nothing to use up
    with np.errstate(all="ignore"):
        same = (a == b) | (np.isnan(a) & np.isnan(b))
        allowed = atol + rtol * np.abs(b)
        share = np.where(same, 0.0, np.abs(a - b) / allowed)
        share = np.where(np.isnan(share), np.inf, share)  # a NaN beside a number
        worst = share.argmax()
        scale = np.abs(np.concatenate([a[np.isfinite(a)], b[np.isfinite(b)]])).max(initial=0)
    return float(share.flat[worst]), float(allowed.flat[worst] / scale) if scale else 0.0


class Recorder:
    """What one file's comparisons used; `install` makes the libraries report to it."""

    def __init__(self):
        self.clear()

    def clear(self):
        self.close = {}  # line: {"share", "relative", "test"} of its worst moment
        # the same where more than the tolerance was used: some are meant to fail
        self.over = {}
        self.order = defaultdict(list)  # line: distances, in the order in which they were compared

    def line(self) -> str | None:
        """The test's or the chapter's line that compares; None when a library compares for itself."""
        frame = sys._getframe(2)
        while frame:
            name = frame.f_code.co_filename
            if name.startswith("<ipython-input"):
                return linecache.getline(name, frame.f_lineno).strip()
            if name.startswith(str(ROOT / "tests")) and Path(name).name != "tolerance.py":
                return f"{Path(name).name}:{frame.f_lineno}"
            if not name.startswith(COMPARERS + (__file__,)) and Path(name).name not in (
                "tolerance.py",
                "approx.py",
                "python_api.py",
            ):
                return None
            frame = frame.f_back

    def compared(self, actual, expected, rtol, atol):
        if (line := self.line()) is None:
            return
        try:
            share, relative = share_used(actual, expected, rtol, atol)
        except (TypeError, ValueError):
            return  # words, or shapes that do not fit: the comparison itself says so
        kept = self.over if share > 1 else self.close
        if share >= kept.get(line, {"share": 0})["share"]:
            test = os.environ.get("PYTEST_CURRENT_TEST", "").split("::")[-1].removesuffix(" (call)")
            kept[line] = {"share": share, "relative": relative, "test": test}

    def ordered(self, signs, *values):
        """a < b < c, as `assert` would have it, with the distances kept where numbers are broken."""
        holds = True
        for sign, a, b in zip(signs, values, values[1:]):
            try:
                distance = numbers(a) - numbers(b)
                if not all(
                    np.issubdtype(
                        np.asarray(x.detach() if isinstance(x, torch.Tensor) else x).dtype,
                        np.integer,
                    )
                    for x in (a, b)
                ):
                    self.order[self.line()].append(float(np.abs(distance).min(initial=math.inf)))
            except (TypeError, ValueError, RuntimeError):
                pass
            part = APPLY[sign](a, b)
            holds = (
                part
                if holds is True
                else holds & part
                if not isinstance(holds, bool)
                else holds and part
            )
        return holds

    def install(self):
        from torch.testing import _comparison as torch_side

        number = torch_side.NumberPair.compare
        tensors = torch_side.TensorLikePair._compare_regular_values_close
        isclose, close_numbers, allclose = np._core.numeric.isclose, math.isclose, torch.allclose

        def compare_numbers(pair):
            self.compared(pair.actual, pair.expected, pair.rtol, pair.atol)
            return number(pair)

        def compare_tensors(pair, actual, expected, *, rtol, atol, **rest):
            self.compared(actual, expected, rtol, atol)
            return tensors(pair, actual, expected, rtol=rtol, atol=atol, **rest)

        def compare_arrays(a, b, rtol=1e-5, atol=1e-8, equal_nan=False):
            self.compared(a, b, rtol, atol)
            return isclose(a, b, rtol=rtol, atol=atol, equal_nan=equal_nan)

        def compare_floats(a, b, *, rel_tol=1e-9, abs_tol=0.0):
            if holds := close_numbers(a, b, rel_tol=rel_tol, abs_tol=abs_tol):
                self.compared(a, b, 0, max(rel_tol * max(abs(a), abs(b)), abs_tol))
            return holds

        def compare_all(a, b, rtol=1e-5, atol=1e-8, equal_nan=False):
            if holds := allclose(a, b, rtol=rtol, atol=atol, equal_nan=equal_nan):
                self.compared(a, b, rtol, atol)
            return holds

        torch_side.NumberPair.compare, torch_side.TensorLikePair._compare_regular_values_close = (
            compare_numbers,
            compare_tensors,
        )
        np._core.numeric.isclose, math.isclose, torch.allclose = (
            compare_arrays,
            compare_floats,
            compare_all,
        )
        builtins.ordered_comparison = self.ordered
        self._install_in_pytest()

    def _install_in_pytest(self):
        import pytest
        from _pytest.assertion import rewrite

        Scalar = type(pytest.approx(1.0))
        equal, rewritten = Scalar.__eq__, rewrite.rewrite_asserts

        def compare_scalar(approx, actual):
            with suppress(TypeError, ValueError):
                self.compared(float(actual), float(approx.expected), 0, approx.tolerance)
            return equal(approx, actual)

        def rewrite_asserts(tree, *rest):
            return rewritten(Ordered().visit(tree), *rest)

        Scalar.__eq__, rewrite.rewrite_asserts = compare_scalar, rewrite_asserts


class Ordered(ast.NodeTransformer):
    """Inside every `assert`, let `ordered_comparison` evaluate a < b."""

    inside = False

    def visit_Assert(self, node):
        self.inside = True
        node.test = self.visit(node.test)
        self.inside = False
        return node

    def visit_Compare(self, node):
        self.generic_visit(node)
        if not self.inside or not all(type(op) in ORDERS for op in node.ops):
            return node
        signs = ast.Constant("".join(f"{ORDERS[type(op)]} " for op in node.ops).strip())
        call = ast.Call(
            ast.Name("ordered_comparison", ast.Load()),
            [
                ast.Call(ast.Attribute(signs, "split", ast.Load()), [], []),
                node.left,
                *node.comparators,
            ],
            [],
        )
        return ast.fix_missing_locations(ast.copy_location(call, node))


def run_chapter(path: Path) -> bool:
    from nbdev import test
    from nbdev.config import get_config

    class Shell(test.CaptureShell):
        def __init__(self, *args, **kwargs):
            super().__init__(*args, **kwargs)
            self.ast_transformers.append(Ordered())

    test.CaptureShell, plain = Shell, test.CaptureShell
    try:
        return test.test_nb(path, skip_flags=get_config().tst_flags.split(), basepath=ROOT)[0]
    finally:
        test.CaptureShell = plain


def run_tests(path: Path) -> bool:
    import pytest

    return pytest.main(["-q", "-p", "no:cacheprovider", "--color=no", str(path)]) == 0


def main(folder: str, *files: str) -> int:
    # these tests are rewritten: keep no trace of them
    sys.dont_write_bytecode, sys.pycache_prefix = True, folder + "/none"
    sys.path.insert(0, str(ROOT))
    recorder = Recorder()
    recorder.install()
    for file in files:
        recorder.clear()
        start = time.time()
        passed = (run_chapter if file.endswith(".ipynb") else run_tests)(ROOT / file)
        result = {
            "file": file,
            "passed": bool(passed),
            "seconds": time.time() - start,
            "close": recorder.close,
            "over": {} if passed else recorder.over,
            "order": {line: kept for line, kept in recorder.order.items() if line},
        }
        Path(folder, file.replace("/", "_") + ".json").write_text(json.dumps(result))
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
