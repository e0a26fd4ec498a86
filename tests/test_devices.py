"""One place chooses the device; precisions, and runs that a Mac or a launcher would take elsewhere."""
import re
from pathlib import Path

import pytest
import torch

ROOT = Path(__file__).resolve().parent.parent


def test_a_mac_trains_on_its_cpu(monkeypatch):
    """A Mac's GPU lacks float64 and a random state that can be replayed; it is not taken, wherever a device is chosen."""
    from accelerate.state import AcceleratorState

    from minbert.devices import check_device, choose_device, new_accelerator
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


def test_no_other_module_chooses_a_device():
    guilty = [path.name for path in (ROOT / "minbert").glob("*.py")
              if path.name != "devices.py" and re.search(r"cuda\.is_available|mps\.is_available|\bAccelerator\(", path.read_text(encoding="utf-8"))]
    assert guilty == []
