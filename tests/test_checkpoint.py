"""Checkpoints: everything comes back, damage is named, nothing is half-written."""

import copy
import json
import os
import random
import signal
import subprocess
import sys

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from torch import nn
from torch.testing import assert_close

from minbert.core.checkpoint import (
    CHECKPOINT,
    load_checkpoint,
    random_state,
    read_checkpoint,
    replace_file,
    save_checkpoint,
    seed_everything,
    set_random_state,
)
from minbert.core.safetensors_io import check_file, read_checked, save_checked
from minbert.optim import AdamW, parameter_groups
from minbert.sampling import TaskSampler


class Tied(nn.Module):
    """Two names for one weight, a buffer, and an odd shape."""

    def __init__(self, width=4):
        super().__init__()
        self.inner, self.outer = nn.Linear(width, width, bias=False), nn.Linear(width, width)
        self.outer.weight = self.inner.weight
        self.scale = nn.Parameter(torch.tensor(2.0))
        self.register_buffer("count", torch.tensor([3, 4]))

    def forward(self, x):
        return self.scale * self.outer(torch.tanh(self.inner(x)))


def trained(seed=0, steps=3, width=4):
    torch.manual_seed(seed)
    model = Tied(width)
    optimizer = AdamW(parameter_groups(model, 0.01, lr=0.1), betas=(0.8, 0.95))
    for _ in range(steps):
        optimizer.zero_grad()
        model(torch.randn(2, width)).square().mean().backward()
        optimizer.step()
    return model, optimizer


def walk(n=3, seed=5):
    sampler = TaskSampler({"a": 7, "b": 4}, 3, "sqrt", epochs=4, seed=seed)
    return sampler, [next(iter(sampler)) for _ in range(n)]


@pytest.mark.parametrize(
    "text",
    ["", "step 1", 'quotes " and \\ and /', "\0\x01\x1f\x7f\t\n\r\b\f", "é 東 😀 \u2028 \ufeff"],
)
def test_equal_contents_give_equal_files_to_the_byte(tmp_path, text):
    """safetensors writes metadata in an order that differs from call to call."""
    tensors = {f"name {text}": torch.arange(6.0), "b": torch.tensor([1, 2])}
    files = [tmp_path / f"{i}.safetensors" for i in range(12)]
    for file in files:
        save_checked(file, tensors, text)
    assert len({file.read_bytes() for file in files}) == 1
    found, again = read_checked(files[0])
    assert again == text and list(check_file(files[0])["__metadata__"]) == ["minbert", "sha256"]
    assert_close(found, tensors, rtol=0, atol=0)


@pytest.mark.parametrize("seed", [0, 11711, 2**32 + 5, -1])
def test_every_generator_is_seeded(seed):
    draws = []
    for number in (1, 2):
        random.seed(number), np.random.seed(number), torch.manual_seed(number)
        random.gauss(0, 1), np.random.randn()  # the other half of each pair waits
        seed_everything(seed)
        draws.append(
            (
                random.gauss(0, 1),
                np.random.randn(),
                torch.rand(1).item(),
                random.random(),
                np.random.rand(),
            )
        )
    assert draws[0] == draws[1]
    seed_everything(seed + 1)
    assert draws[0] != (
        random.gauss(0, 1),
        np.random.randn(),
        torch.rand(1).item(),
        random.random(),
        np.random.rand(),
    )


def test_everything_comes_back(tmp_path):
    (model, optimizer), (sampler, _) = trained(), walk()
    file = save_checkpoint(tmp_path / "new", model, optimizer, sampler, 17, {"best": [0.1, None]})
    assert file == tmp_path / "new" / CHECKPOINT and [*file.parent.iterdir()] == [file]
    dice = (random.random(), np.random.rand(), torch.rand(2))
    rest = list(sampler)

    other, fresh = trained(seed=1, steps=1)
    again = walk(0)[0]
    random.seed(1), np.random.seed(1), torch.manual_seed(1)
    loaded = load_checkpoint(tmp_path / "new", other, fresh, again)
    assert loaded == {"step": 17, "extra": {"best": [0.1, None]}}
    assert (random.random(), np.random.rand()) == dice[:2] and torch.equal(torch.rand(2), dice[2])
    assert_close(other.state_dict(), model.state_dict(), rtol=0, atol=0)
    assert other.outer.weight is other.inner.weight
    ours, theirs = fresh.state_dict(), optimizer.state_dict()
    assert ours["param_groups"] == theirs["param_groups"]
    assert_close(ours["state"], theirs["state"], rtol=0, atol=0)
    for a, b in zip(again, rest, strict=True):
        assert a.keys() == b.keys() and all(torch.equal(a[k], b[k]) for k in a)


def test_the_next_step_is_the_same_bit_for_bit(tmp_path):
    model, optimizer = trained()
    save_checkpoint(tmp_path, model, optimizer)
    other, fresh = trained(seed=1, steps=5)
    load_checkpoint(tmp_path, other, fresh)
    for m, o in ((model, optimizer), (other, fresh)):
        o.zero_grad()
        m(torch.ones(2, 4)).sum().backward()
        o.step()
    assert_close(other.state_dict(), model.state_dict(), rtol=0, atol=0)


def test_torch_optimizers_work_too(tmp_path):
    models = [trained()[0], trained(seed=1)[0]]
    optimizers = [torch.optim.Adam(m.parameters(), lr=0.1, amsgrad=True) for m in models]
    for m, o in zip(models, optimizers):
        m(torch.ones(1, 4)).sum().backward()
        o.step()
    save_checkpoint(tmp_path, models[0], optimizers[0])
    load_checkpoint(tmp_path, models[1], optimizers[1])
    a, b = (o.state_dict() for o in optimizers)
    assert_close(a["state"], b["state"], rtol=0, atol=0)
    assert a["param_groups"] == b["param_groups"] and isinstance(
        b["param_groups"][0]["betas"], tuple
    )


def test_dice_of_many_processes(tmp_path):
    states, rolls = [], []
    for seed in (1, 2):
        torch.manual_seed(seed)
        states.append(random_state())
        rolls.append(torch.rand(1))
    model = trained()[0]
    save_checkpoint(tmp_path, model, random_states=states)
    for process in (0, 1):
        load_checkpoint(tmp_path, model, process=process, processes=2)
        assert torch.equal(torch.rand(1), rolls[process])
    with pytest.raises(ValueError, match="a run of 1 processes, got one of 2"):
        load_checkpoint(tmp_path, model)


def damaged(tmp_path, change):
    """Save, damage, load into something else; return the message, having seen nothing change."""
    (model, optimizer), (sampler, _) = trained(), walk()
    file = save_checkpoint(tmp_path, model, optimizer, sampler)
    change(file)
    (other, fresh), (again, _) = trained(seed=1), walk(1)
    before = copy.deepcopy([other.state_dict(), fresh.state_dict()["state"], again.state_dict()])
    dice = torch.get_rng_state()
    with pytest.raises(ValueError) as caught:
        load_checkpoint(tmp_path, other, fresh, again)
    assert_close([other.state_dict(), fresh.state_dict()["state"]], before[:2], rtol=0, atol=0)
    assert again.state_dict() == before[2] and torch.equal(torch.get_rng_state(), dice)
    assert str(file) in str(caught.value)
    return str(caught.value)


def test_a_file_cut_at_any_tensor_names_it(tmp_path):
    model, optimizer = trained()
    file = save_checkpoint(tmp_path, model, optimizer)
    body = 8 + int.from_bytes(file.read_bytes()[:8], "little")
    whole = file.read_bytes()
    for name, entry in check_file(file).items():
        if name == "__metadata__":
            continue
        file.write_bytes(whole[: body + entry["data_offsets"][1] - 1])
        with pytest.raises(ValueError, match=f"cut short at tensor '{name}'"):
            read_checkpoint(tmp_path)


@pytest.mark.parametrize("size", [0, 3, 8, 200])
def test_a_file_cut_in_its_header(tmp_path, size):
    message = damaged(tmp_path, lambda file: file.write_bytes(file.read_bytes()[:size]))
    assert "whole header" in message


@pytest.mark.parametrize(
    "content", [b"not tensors at all" * 9, b"\xff" * 64, (4).to_bytes(8, "little") + b"null"]
)
def test_a_file_of_another_kind(tmp_path, content):
    assert "safetensors" in damaged(tmp_path, lambda file: file.write_bytes(content))


def test_a_file_of_another_program(tmp_path):
    message = damaged(tmp_path, lambda file: save_file({"weight": torch.ones(2)}, file))
    assert "this package" in message


def test_a_pickle_is_not_opened(tmp_path):
    assert "safetensors" in damaged(tmp_path, lambda file: torch.save({"a": 1}, file))


def test_missing_file(tmp_path):
    with pytest.raises(ValueError, match="expected a file, got none"):
        load_checkpoint(tmp_path, trained()[0])


def test_another_shape_names_the_tensor(tmp_path):
    save_checkpoint(tmp_path, *trained())
    with pytest.raises(ValueError, match=r"'inner.weight' of shape \(5, 5\).*\(4, 4\)"):
        load_checkpoint(tmp_path, *trained(width=5))


def test_another_type_names_the_tensor(tmp_path):
    save_checkpoint(tmp_path, trained()[0].half())
    with pytest.raises(ValueError, match="float32, got .*float16"):
        load_checkpoint(tmp_path, trained()[0])


def test_missing_and_surplus_tensors(tmp_path):
    class More(Tied):
        def __init__(self):
            super().__init__()
            self.more = nn.Parameter(torch.ones(2))

    save_checkpoint(tmp_path / "less", Tied())
    save_checkpoint(tmp_path / "more", More())
    with pytest.raises(ValueError, match="expected tensor 'more'.*found none"):
        load_checkpoint(tmp_path / "less", More())
    with pytest.raises(ValueError, match="expected no tensor 'more'"):
        load_checkpoint(tmp_path / "more", Tied())


def test_optimizer_of_other_parameters(tmp_path):
    model, optimizer = trained()
    save_checkpoint(tmp_path, model, optimizer)
    with pytest.raises(ValueError, match="over 1 parameters.*inner.weight"):
        load_checkpoint(tmp_path, model, AdamW([model.scale]))
    order = AdamW(list(reversed(list(model.parameters()))))
    with pytest.raises(ValueError, match="ordered otherwise"):
        load_checkpoint(tmp_path, model, order)


def test_optimizer_tensor_of_another_shape(tmp_path):
    model, optimizer = trained()
    optimizer.state[model.inner.weight]["exp_avg"] = torch.zeros(3, 3)
    save_checkpoint(tmp_path, model, optimizer)
    with pytest.raises(ValueError, match=r"inner.weight.exp_avg of shape \(4, 4\), got \(3, 3\)"):
        load_checkpoint(tmp_path, *trained())


def test_what_was_not_saved_cannot_be_loaded(tmp_path):
    (model, optimizer), (sampler, _) = trained(), walk()
    save_checkpoint(tmp_path, model)
    with pytest.raises(ValueError, match="state of the optimizer"):
        load_checkpoint(tmp_path, model, optimizer)
    with pytest.raises(ValueError, match="state of the sampler"):
        load_checkpoint(tmp_path, model, sampler=sampler)


def test_sampler_of_another_run_changes_nothing(tmp_path):
    (model, optimizer), (sampler, _) = trained(), walk()
    save_checkpoint(tmp_path, model, optimizer, sampler)
    other, fresh = trained(seed=1)
    before = copy.deepcopy(other.state_dict())
    with pytest.raises(ValueError, match="seed"):
        load_checkpoint(tmp_path, other, fresh, walk(seed=6)[0])
    assert_close(other.state_dict(), before, rtol=0, atol=0)


def test_unwritable_things_are_refused_and_leave_the_old_file(tmp_path):
    model = trained()[0]
    file = save_checkpoint(tmp_path, model, step=1)
    with pytest.raises(ValueError, match="tensors, numbers and strings"):
        save_checkpoint(tmp_path, model, step=2, extra={"what": object()})
    for extra, said in (
        ({"a.b": torch.zeros(2), "a": {"b": torch.ones(2)}}, "one tensor called"),
        ({"tensor": 3}, "'tensor' alone"),
        ({"x": {"tensor": torch.ones(1)}}, "'tensor' alone"),
    ):
        with pytest.raises(ValueError, match=said):
            save_checkpoint(tmp_path, model, step=2, extra=extra)
    assert read_checkpoint(tmp_path)["step"] == 1 and [*tmp_path.iterdir()] == [file]


def test_keys_that_read_alike_are_refused(tmp_path):
    with pytest.raises(ValueError, match="extra: expected keys that differ as text, got 1, '1'"):
        save_checkpoint(tmp_path, nn.Linear(2, 2), extra={1: "a", "1": "b"})


def test_failed_write_leaves_the_old_file(tmp_path):
    file = replace_file(tmp_path / "a", lambda part: part.write_text("old"))

    def full_disk(part):
        part.write_text("ne")
        raise OSError("no space left")

    with pytest.raises(OSError):
        replace_file(file, full_disk)
    assert file.read_text() == "old"
    assert replace_file(file, lambda part: part.write_text("new")).read_text() == "new"
    assert [*tmp_path.iterdir()] == [file]


def test_a_pipe_or_a_device_keeps_its_place(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(
        ValueError, match="pipe: expected a file or nothing, got a device or a pipe"
    ):
        replace_file(tmp_path / "pipe", lambda part: part.write_text("new"))
    assert (tmp_path / "pipe").is_fifo()


def test_two_writers_of_one_file_leave_what_one_of_them_wrote(tmp_path):
    """The second begins and ends while the first is in the middle."""
    file = tmp_path / "v"

    def slow(part):
        with open(part, "w") as stream:
            stream.write("first ")
            stream.flush()
            replace_file(file, lambda other: other.write_text("the second one"))
            stream.write("and no other")

    assert replace_file(file, slow).read_text() == "first and no other"
    assert [*tmp_path.iterdir()] == [file]


def test_random_state_through_json():
    random.seed(3), np.random.seed(4), torch.manual_seed(5)
    np.random.randn()  # leaves half of a pair behind
    random.gauss(0, 1)
    state = random_state()

    def roll():
        return (random.random(), random.gauss(0, 1), np.random.randn(), torch.rand(1).item())

    first = roll()
    set_random_state(
        {
            **json.loads(json.dumps({k: state[k] for k in ("python", "numpy")})),
            "torch": state["torch"],
            "cuda": state["cuda"],
        }
    )
    assert roll() == first


KILLED_WHILE_WRITING = """
import os, signal, sys
import torch
from minbert.core.checkpoint import replace_file, save_checkpoint
save_checkpoint(sys.argv[1], torch.nn.Linear(9, 9), step=1)
import safetensors.torch as st
whole = st.save_file
def half(tensors, file, metadata):
    whole(tensors, file, metadata)
    os.truncate(file, os.path.getsize(file) // 2)
    os.kill(os.getpid(), signal.SIGKILL)
st.save_file = half
save_checkpoint(sys.argv[1], torch.nn.Linear(9, 9), step=2)
"""


def test_killed_while_writing_leaves_the_old_checkpoint(tmp_path):
    done = subprocess.run([sys.executable, "-c", KILLED_WHILE_WRITING, str(tmp_path)])
    assert done.returncode == -signal.SIGKILL
    assert len([*tmp_path.iterdir()]) == 2  # the checkpoint, and a draft with half of the next
    model = nn.Linear(9, 9)
    assert load_checkpoint(tmp_path, model)["step"] == 1
    save_checkpoint(tmp_path, model, step=3)
    assert [f.name for f in tmp_path.iterdir()] == [CHECKPOINT]


@pytest.mark.parametrize(
    "error, told",
    [
        (OSError(28, "No space left on device"), "[Errno 28] No space left on device: '{}'"),
        (
            OSError(28, "No space left on device", "other"),
            "[Errno 28] No space left on device: 'other'",
        ),
        (OSError("a library's own words"), "a library's own words"),
    ],
    ids=["nameless", "named", "words"],
)
def test_a_full_disk_is_told_with_the_name_of_the_file(tmp_path, error, told):
    def write(part):
        part.write_text("half")
        raise error

    file = tmp_path / "v.npy"
    with pytest.raises(OSError) as caught:
        replace_file(file, write)
    assert str(caught.value) == told.format(file) and not [*tmp_path.iterdir()]


def test_one_flipped_bit_anywhere_is_noticed_and_changes_nothing(tmp_path):
    torch.manual_seed(0)
    model = nn.Linear(3, 2)
    file = save_checkpoint(tmp_path, model)
    whole, before = file.read_bytes(), model.weight.detach().clone()
    for place in range(8, len(whole), 100):
        data = bytearray(whole)
        data[place] ^= 1 << place % 8
        file.write_bytes(data)
        with pytest.raises(ValueError, match=CHECKPOINT):
            load_checkpoint(tmp_path, model)
    assert torch.equal(model.weight, before)
