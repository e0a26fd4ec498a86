"""One place chooses the device; precisions, and runs that a Mac or a launcher would take elsewhere."""

import re
from typing import NamedTuple
from unittest.mock import patch

import pytest
import torch
from torch import nn
from torch.testing import assert_close

from minbert.core.devices import (
    AsyncScalar,
    GpuInfo,
    LossScale,
    _one_copy,
    autocast,
    check_device,
    choose_device,
    drawing_device,
    find_card,
    half_type,
    leave_process_group,
    meta_init,
    new_accelerator,
    product_speed,
    sync_free_value,
    to_device,
    usable_device,
    with_cpu_copy,
    without_waiting,
)


def test_a_mac_trains_on_its_cpu(monkeypatch):
    """A Mac's GPU lacks float64 and a random state that can be replayed; it is not taken, wherever
    a device is chosen.
    """
    from accelerate.state import AcceleratorState

    from minbert.core.devices import check_device, choose_device, new_accelerator
    from minbert.sentence import SentenceEncoder

    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: True)
    monkeypatch.setattr(torch.backends.mps, "is_built", lambda: True)
    AcceleratorState._reset_state(reset_partial_state=True)
    try:
        assert (
            choose_device().type
            == new_accelerator().device.type
            == SentenceEncoder.from_pretrained().device.type
            == "cpu"
        )
    finally:
        AcceleratorState._reset_state(reset_partial_state=True)
    with pytest.raises(ValueError, match="lacks float64"):
        check_device(torch.device("mps"))


def test_products_are_rounded_to_tf32_and_no_attention_is_planned_on_a_gpu_and_for_the_length_of_a_step_only():
    from minbert.core.devices import fast_kernels

    products = torch.backends.cuda.matmul

    def read():
        return (
            products.fp32_precision if hasattr(products, "fp32_precision") else products.allow_tf32
        )

    before = read()
    for planned in (True, False):  # whatever the user had set
        torch.backends.cuda.enable_cudnn_sdp(planned)
        for device, inside in (("cpu", planned), ("cuda", False)):
            with pytest.raises(KeyError), fast_kernels(torch.device(device)):
                assert torch.backends.cuda.cudnn_sdp_enabled() == inside
                raise KeyError
            assert torch.backends.cuda.cudnn_sdp_enabled() == planned
    torch.backends.cuda.enable_cudnn_sdp(True)
    for device, changed in (("cpu", False), ("cuda", True)):
        with pytest.raises(KeyError), fast_kernels(torch.device(device)):
            assert (read() != before) == changed
            raise KeyError
        assert read() == before


def test_a_batch_arrives_as_it_was_sent():
    """Every dtype and shape, whatever stands before it in the one copy; the originals are what a
    check reads.
    """
    from minbert.core.devices import _one_copy, to_device

    generator = torch.Generator().manual_seed(0)
    kinds = (
        torch.bool,
        torch.uint8,
        torch.int16,
        torch.int64,
        torch.float16,
        torch.bfloat16,
        torch.float32,
        torch.float64,
        torch.complex64,
    )
    shapes = ((), (0,), (1,), (3,), (2, 0), (5, 7), (2, 3, 1))
    tensors = [
        torch.randint(0, 2, shape, generator=generator).to(kind)
        for kind in kinds
        for shape in shapes
    ]
    tensors.append(torch.arange(12).view(3, 4).T)  # not contiguous
    for x, there in zip(tensors, _one_copy(tensors, torch.device("cpu")), strict=True):
        assert there.dtype == x.dtype and torch.equal(there, x) and there._original is x
    assert to_device(tensors[0], "cpu") is tensors[0]


def test_a_silent_block_ends_even_after_an_error():
    from minbert.core.devices import sync_free_value, without_waiting

    away = torch.empty(2, device="meta")
    with pytest.raises(KeyError), without_waiting(), without_waiting():
        assert sync_free_value(away) is None
        raise KeyError
    assert sync_free_value(away) is away


def test_each_process_of_a_launcher_gets_a_device_of_its_own():
    with (
        patch("torch.backends.mps.is_available", lambda: True),
        patch("torch.cuda.is_available", lambda: False),
    ):
        assert choose_device() == torch.device("cpu")
        assert new_accelerator().device.type == "cpu"
    with pytest.raises(ValueError, match=re.escape("lacks float64")):
        check_device(torch.device("mps"))
    assert [usable_device(name) for name in ("cpu", torch.device("cpu"))] == 2 * [
        torch.device("cpu")
    ]
    with pytest.raises(
        ValueError, match=re.escape("expected a device that is here, such as cpu, got 'abacus'")
    ):
        usable_device("abacus")
    assert choose_device().type in ("cuda", "cpu")
    with (
        patch("torch.cuda.is_available", lambda: True),
        patch("torch.cuda.device_count", lambda: 8),
    ):
        for rank, name in ((None, "cuda"), ("0", "cuda:0"), ("3", "cuda:3"), ("9", "cuda:1")):
            with patch.dict("os.environ", {} if rank is None else {"LOCAL_RANK": rank}):
                assert choose_device() == torch.device(name)


def test_shapes_only_needs_neither_memory_nor_random_numbers():
    state = torch.get_rng_state()
    with meta_init():
        layer = nn.Sequential(nn.Embedding(9, 4), nn.Linear(4, 3), nn.LayerNorm(3))
        nn.init.normal_(layer[0].weight)
    assert all(p.is_meta for p in layer.parameters()) and torch.equal(torch.get_rng_state(), state)
    layer.load_state_dict(
        {name: torch.ones(x.shape) for name, x in layer.state_dict().items()}, assign=True
    )
    # equal columns: the norm leaves its bias
    assert_close(layer(torch.tensor([0])), torch.ones(1, 3))
    # and outside everything is as it was
    assert not nn.Linear(2, 2).weight.is_meta


def test_numbers_are_drawn_where_their_generator_lives():
    assert drawing_device(None, torch.device("cuda")) == torch.device("cuda")
    assert drawing_device(torch.Generator(), torch.device("cuda")) == torch.device("cpu")


def test_what_was_sent_to_a_device_can_be_read_from_its_original():
    x = torch.arange(3)
    assert sync_free_value(x) is x
    with without_waiting():
        assert sync_free_value(x) is x
        # "meta" plays the GPU: a tensor without numbers
        assert sync_free_value(torch.empty(3, device="meta")) is None
    away = torch.empty(3, device="meta")
    away._original = x
    twice = with_cpu_copy(lambda a: 2 * a, away)
    with without_waiting():
        assert sync_free_value(away) is x
        assert_close(sync_free_value(twice), 2 * x)
    assert AsyncScalar(x).read() is x  # on a CPU they are there


def test_tensors_in_one_copy_are_views_of_their_stretches():
    class Pair(NamedTuple):
        ids: torch.Tensor
        weight: float

    batch = {
        "a": Pair(torch.arange(5), 0.5),
        "b": [torch.tensor([True, False]), None, torch.rand(2, 3)],
    }
    same = to_device(batch, "cpu")
    assert isinstance(same["a"], Pair) and same["a"].weight == 0.5 and same["b"][1] is None
    assert same["a"].ids is batch["a"].ids  # nothing to move, nothing copied

    tensors = [batch["a"].ids, torch.empty(0), *batch["b"][::2], torch.tensor(7, dtype=torch.int16)]
    for x, there in zip(tensors, _one_copy(tensors, torch.device("cpu"))):
        assert there.dtype == x.dtype
        assert_close(there, x)
        assert there.data_ptr() != x.data_ptr() or not x.numel()


def test_half_precision_where_the_device_has_such_products():
    cpu, gpu = torch.device("cpu"), torch.device("cuda")
    for native, expected in (
        (True, [torch.bfloat16, torch.bfloat16]),
        (False, [None, torch.float16]),
    ):
        with (
            patch(
                "torch.cuda.is_bf16_supported",
                lambda including_emulation=True: native or including_emulation,
            ),
            # a Mac's torch has neither
            patch("torch.backends.mkldnn.is_available", lambda: True),
            patch("torch.ops.mkldnn._is_mkldnn_bf16_supported", lambda: native, create=True),
        ):
            assert [half_type(device, "bf16") for device in (cpu, gpu)] == expected
            assert half_type(cpu, "fp32") is None
    with pytest.raises(ValueError, match=re.escape("CUDA GPU")):
        half_type(cpu, "fp16")
    with pytest.raises(ValueError, match=re.escape("expected precision")):
        half_type(cpu, "tf32")
    with autocast(cpu, "bf16"):
        assert (torch.ones(2, 2) @ torch.ones(2, 2)).dtype == (
            half_type(cpu, "bf16") or torch.float32
        )


def test_a_card_says_its_memory_and_its_speed_is_measured():
    cpu = torch.device("cpu")
    assert find_card(cpu) is None and product_speed(cpu, "fp32", 64, 3) > 0
    with (
        patch("torch.cuda.mem_get_info", lambda _: (12e9, 16e9)),
        patch("torch.cuda.get_device_name", lambda _: "Tesla T4"),
        patch("torch.cuda.memory_reserved", lambda _: 3e9),
        patch("torch.cuda.memory_allocated", lambda _: 1e9),
    ):
        assert find_card(torch.device("cuda")) == GpuInfo("Tesla T4", 16.0, 14.0)


def test_the_loss_scale_leaves_gradients_as_they_are():
    w = torch.tensor([3.0], requires_grad=True)
    scale = LossScale(factor=8.0, patience=2)
    seen = []
    backward = scale.around(
        lambda losses: (seen.append(losses["a"].item()), losses["a"].backward()), [w]
    )
    backward({"a": (w * 2).sum()})
    # a second batch of the same step: gradients add up
    backward({"a": (w * 5).sum()})
    assert seen == [48.0, 120.0]
    assert_close(w.grad, torch.tensor([7.0]))  # 2 + 5: the factor is gone
    scale.passed()
    scale.passed()
    assert scale.factor == 16.0  # two good steps
    assert [scale.overflowed() for _ in range(5)] == [True] * 4 + [False]
    copy_ = LossScale()
    copy_.load_state_dict(scale.state_dict())
    assert copy_.state_dict() == scale.state_dict()


def test_the_process_group_ends_after_a_barrier_and_a_single_process_has_none(tmp_path):
    leave_process_group()
    torch.distributed.init_process_group(
        "gloo", init_method=f"file://{tmp_path / 'store'}", rank=0, world_size=1
    )
    try:
        with patch("torch.distributed.barrier", wraps=torch.distributed.barrier) as barrier:
            leave_process_group()
        assert barrier.call_count == 1 and not torch.distributed.is_initialized()
    finally:
        if torch.distributed.is_initialized():
            torch.distributed.destroy_process_group()
