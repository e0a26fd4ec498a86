"""Writing sentence vectors: whole or not at all, also where the disk is full."""

import re
import resource
import signal

import numpy as np
import pytest
import torch

from minbert.encoding.npy_writer import write_vectors


def test_rows_are_finite_as_many_and_as_wide_as_the_shape_says(tmp_path):
    box = tmp_path
    rows = torch.arange(15.0).reshape(5, 3)
    write_vectors(box / "v.npy", (5, 3), rows.split(2))
    assert (np.load(box / "v.npy") == rows.numpy()).all()
    for row in range(5):
        bad = rows.clone()
        bad[row, 1] = torch.nan
        with pytest.raises(ValueError, match=re.escape(f"in row {row + 1}:")):
            write_vectors(box / "v.npy", (5, 3), bad.split(2))
    for shape in ((6, 3), (4, 3), (5, 2), (5, 4)):  # one row or one column too few, or too many
        with pytest.raises(ValueError, match=re.escape(f"expected {shape[0]} rows")):
            write_vectors(box / "v.npy", shape, rows.split(2))
    assert (np.load(box / "v.npy") == rows.numpy()).all()
    assert [f.name for f in box.iterdir()] == ["v.npy"]


def test_a_disk_without_room_is_noticed_and_the_old_file_stays(tmp_path):
    box, rows = tmp_path, torch.arange(15.0).reshape(5, 3)
    write_vectors(box / "v.npy", (5, 3), rows.split(2))
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    heard = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)  # otherwise the limit ends the process
    resource.setrlimit(resource.RLIMIT_FSIZE, (4000, before[1]))
    try:
        with pytest.raises(OSError, match="large"):
            write_vectors(box / "v.npy", (1000, 3), torch.zeros(1000, 3).split(10))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, heard)
    assert (np.load(box / "v.npy") == rows.numpy()).all()
    assert [f.name for f in box.iterdir()] == ["v.npy"]
