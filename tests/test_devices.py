"""One place chooses the device; precisions, and runs that a Mac or a launcher would take elsewhere."""
import pytest
import torch


def test_a_mac_trains_on_its_cpu(monkeypatch):
    """A Mac's GPU lacks float64 and a random state that can be replayed; it is not taken, wherever a device is chosen."""
    from accelerate.state import AcceleratorState

    from minbert.engine.devices import check_device, choose_device, new_accelerator
    from minbert.sentence import SentenceEncoder

    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: True)
    monkeypatch.setattr(torch.backends.mps, "is_built", lambda: True)
    AcceleratorState._reset_state(reset_partial_state=True)
    try:
        assert choose_device().type == new_accelerator().device.type == SentenceEncoder.from_pretrained().device.type == "cpu"
    finally:
        AcceleratorState._reset_state(reset_partial_state=True)
    with pytest.raises(ValueError, match="lacks float64"):
        check_device(torch.device("mps"))


def test_products_are_rounded_to_tf32_and_no_attention_is_planned_on_a_gpu_and_for_the_length_of_a_step_only():
    from minbert.engine.devices import fast_kernels

    products = torch.backends.cuda.matmul
    read = lambda: products.fp32_precision if hasattr(products, "fp32_precision") else products.allow_tf32
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
    """Every dtype and shape, whatever stands before it in the one copy; the originals are what a check reads."""
    from minbert.engine.devices import _one_copy, send

    generator = torch.Generator().manual_seed(0)
    kinds = (torch.bool, torch.uint8, torch.int16, torch.int64, torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.complex64)
    shapes = ((), (0,), (1,), (3,), (2, 0), (5, 7), (2, 3, 1))
    tensors = [torch.randint(0, 2, shape, generator=generator).to(kind) for kind in kinds for shape in shapes]
    tensors.append(torch.arange(12).view(3, 4).T)  # not contiguous
    for x, there in zip(tensors, _one_copy(tensors, torch.device("cpu")), strict=True):
        assert there.dtype == x.dtype and torch.equal(there, x) and there._original is x
    assert send(tensors[0], "cpu") is tensors[0]


def test_a_silent_block_ends_even_after_an_error():
    from minbert.engine.devices import readable, without_waiting

    away = torch.empty(2, device="meta")
    with pytest.raises(KeyError), without_waiting(), without_waiting():
        assert readable(away) is None
        raise KeyError
    assert readable(away) is away
