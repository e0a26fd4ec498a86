"""Side effects of calls: seeds, modes, frozen weights, and what is kept for the next call."""

import subprocess
import sys
import textwrap

import torch
from torch import nn
from torch.testing import assert_close

from minbert.course.side_effects import (
    BEHIND,
    SAYS,
    SideEffectRecorder,
    behind,
    perturbed,
    watched,
    weights_shaken,
)


def looks(f, *inputs, again=False):
    witness = SideEffectRecorder()
    result = watched(f, "", witness, again)(*inputs)
    return result, [name for name in SAYS if witness.outputs()[BEHIND.format(name)].any()]


def test_other_numbers_have_the_same_shapes_and_generators_are_copied():
    assert perturbed(torch.tensor([[1, 1, 0], [1, 0, 0]])).tolist() == [[1, 0, 0], [1, 1, 0]]
    assert perturbed({"x": [torch.tensor([1.0, 2.0])], "p": 0.1})["x"][0].tolist() == [1.5, 0.75]
    with weights_shaken(layer := nn.Linear(2, 1)):
        inside = layer.weight.detach().clone()
    assert_close(inside, 0.75 * layer.weight.detach())
    generator = torch.Generator().manual_seed(3)
    assert torch.equal(
        torch.rand(2, generator=perturbed(generator)), torch.rand(2, generator=generator)
    )


def test_a_seed_and_a_mask_that_is_kept_show_in_the_second_call():
    kept = {}

    def average(words, mask):
        torch.manual_seed(0)
        if words.shape not in kept:
            kept[words.shape] = mask / mask.sum()
        return words @ kept[words.shape]

    words, first = torch.tensor([1.0, 2.0, 3.0]), torch.tensor([1.0, 1.0, 0.0])
    result, effects = looks(average, words, first)
    assert result == 1.5 and "a seed" in effects
    kept.clear()
    assert looks(average, words, first, again=True)[0] != 1.5


def test_effects_are_compared_with_those_of_the_reference():
    assert behind("a seed", torch.tensor([False]), torch.tensor([True])) == SAYS["a seed"][0]
    assert behind("a seed", torch.tensor([True]), torch.tensor([False])) is None
    assert behind("a draw", torch.tensor([True, False]), torch.tensor([True])) is None
    assert (
        behind("a draw", torch.tensor([True, False]), torch.tensor([False, False]))
        == SAYS["a draw"][1]
    )
    read = []
    looks(lambda numbers: read.extend(numbers), iter([1, 2]), again=True)
    assert read == [1, 2]

    class Doubles(nn.Linear):
        def forward(self, x):
            return self.half(x) * 4

        def half(self, x):
            self.eval()
            self.weight.requires_grad_(False)
            return super().forward(x) / 2

    witness = SideEffectRecorder()
    model = watched(Doubles, "half", witness)(2, 1)
    model(torch.ones(1, 2))
    assert [name for name in SAYS if witness.outputs()[BEHIND.format(name)].any()] == [
        "a graph",
        "a mode",
        "a frozen or thawed weight",
    ]


def test_the_compiler_is_not_loaded_for_an_optimizer():
    script = """
    import sys, torch
    from minbert.course.side_effects import spare_the_compiler
    spare_the_compiler()
    optimizer = torch.optim.Optimizer([torch.zeros(1, requires_grad=True)], {})
    optimizer.load_state_dict(optimizer.state_dict()); optimizer.zero_grad()
    sys.exit("torch._dynamo" in sys.modules)
    """
    assert subprocess.run([sys.executable, "-c", textwrap.dedent(script)]).returncode == 0
