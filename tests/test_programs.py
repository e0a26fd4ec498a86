"""Source text as data: finding, replacing and stubbing functions, and collecting what they need."""

import re

import pytest
import torch

from minbert.course.source_tools import (
    edited,
    guarded,
    guards,
    is_stub,
    load,
    module_text,
    needed,
    pieces,
    program,
    replace,
    replace_all,
    source_of,
    stub,
    transitive_imports,
)

module = """
import math

def double(x):
    "Twice x."
    return 2 * x

class Circle:
    def __init__(self, radius):
        self.radius = radius

    def area(self):
        return math.pi * self.radius ** 2

    def bigger(self):
        return Circle(double(self.radius))
"""

careful = """def ratio(a, b):
    "a / b."
    size = len(a)
    if size != len(b):
        raise ValueError("unequal")
    _check_numbers(a, b)
    scale = size ** 2    # of the answer
    if not scale:
        raise ValueError("empty")
    return a / b / scale
"""

NOTEBOOK = """
import math, os
factor = 2
print("never asked for")
def helper(x): return factor * x
def double(x): return helper(x)
x = print("a variable of the notebook, not the argument")
def unused(x): return os.getpid()
"""


def test_a_definition_is_found_by_its_qualified_name():
    assert source_of(module, "double") == 'def double(x):\n    "Twice x."\n    return 2 * x\n'
    assert (
        source_of(module, "Circle.bigger")
        == "def bigger(self):\n    return Circle(double(self.radius))\n"
    )
    # the last one counts
    assert source_of("def f(): return 1\ndef f(): return 2", "f") == "def f(): return 2\n"
    careless = "class A:\n    def f(self):\n# to the left\n        return 1\n"
    assert source_of(careless, "A.f") == "def f(self):\n# to the left\n    return 1\n"
    with pytest.raises(ValueError, match=re.escape("Circle.corner")):
        source_of(module, "Circle.corner")


def test_a_definition_is_replaced_and_fits_back_in():
    triple = replace(module, "double", "def double(x):\n    return 3 * x")
    assert "2 * x" not in triple and "Twice" not in triple
    # what was cut out fits back in
    assert replace(module, "double", source_of(module, "double")) == module
    assert replace(module, "Circle.area", source_of(module, "Circle.area")) == module
    both = replace_all(
        module,
        {"Circle.area": "def area(self): return 3", "double": "def double(x):\n    return 3 * x"},
    )
    assert both == replace(triple, "Circle.area", "def area(self): return 3")
    assert edited("a + b", [("+", "-"), ("b", "c")]) == "a - c"
    with pytest.raises(ValueError, match=re.escape("2 times")):
        edited("x * x", [("x", "y")])


def test_a_stub_keeps_signature_docstring_and_the_lines_that_refuse_wrong_input():
    assert is_stub(stub(source_of(module, "double"), "exercise circle.double")) and not is_stub(
        source_of(module, "double")
    )
    assert (
        stub("def f(\n    x,  # any\n): return 1", "no")
        == "def f(\n    x,  # any\n):\n    raise NotImplementedError('no')\n"
    )
    assert (
        stub("def f(x):\n    # twice\n    return 2 * x", "no")
        == "def f(x):\n    raise NotImplementedError('no')\n"
    )
    assert (
        is_stub("def f(): ...")
        and is_stub("def f():\n    pass")
        and not is_stub("def f():\n    return None")
    )

    assert is_stub(stub(careful, "exercise ratio")) and not is_stub(careful)
    wrong = careful.replace("    return", "    scale += 1\n    return")
    assert guards(wrong) == guards(careful)
    # what comes later is nobody's gift
    assert guards(careful.replace("scale = size ** 2", "scale += 2")) == guards(careful)[:3]
    assert guarded("def ratio(a, b):\n    return a / b", careful) == "\n".join(
        ["def ratio(a, b):", *guards(careful), "    return a / b"]
    )
    assert not is_stub("def f(x):\n    if x: raise ValueError('x')") and not is_stub(
        "def f(x):\n    return x\n    raise NotImplementedError"
    )


def test_a_text_runs_as_one_of_our_modules():
    triple = replace(module, "double", "def double(x):\n    return 3 * x")
    shapes = load(triple, "shapes")
    assert shapes.Circle(1).bigger().radius == 3
    attention = module_text("attention")
    halves = program(
        "attention", "split_heads", "def split_heads(x, heads):\n    return x[..., None, :]"
    )
    assert halves(torch.zeros(2, 4), 2).shape == (2, 1, 4)
    assert {"encoder", "attention", "embedding"} <= transitive_imports(
        "encoder"
    ) and "encoder" not in transitive_imports("attention")
    # the real one is untouched
    assert source_of(attention, "split_heads") == source_of(module_text("attention"), "split_heads")
    with pytest.raises(ValueError, match=re.escape("alchemy.py")):
        module_text("alchemy")


def test_what_a_definition_needs_is_found_in_the_other_cells():
    notebook = pieces(NOTEBOOK)
    assert [sorted(p.names) for p in needed(["double"], notebook)] == [
        ["factor"],
        ["helper"],
        ["double"],
    ]
    assert [sorted(p.names) for p in needed(["double"], notebook, without=["helper"])] == [
        ["double"]
    ]
    assert [p.text for p in needed(["unused"], notebook)][0] == "import math, os"
