"""Files of tensors: headers, finite numbers, expected tensors, folders of weights, checksums."""

import hashlib
import json
import os
import re
import struct

import pytest
import torch
from safetensors.torch import save_file

from minbert.core.safetensors_io import (
    check_file,
    check_numbers,
    check_tensors,
    file_checksum,
    load_tensors,
    read_checked,
    read_tensors,
    save_checked,
    tensor_checksum,
)


def test_a_header_that_does_not_fit_its_file_is_refused(tmp_path):
    box = tmp_path
    file = box / "model.safetensors"
    save_file({"a": torch.arange(6.0).reshape(2, 3), "b": torch.tensor(7)}, file)
    whole = file.read_bytes()

    def lie(header, body=b"\0" * 8):
        text = header if isinstance(header, bytes) else json.dumps(header).encode()
        file.write_bytes(struct.pack("<Q", len(text)) + text + body)
        return file

    one = {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}
    assert check_file(lie({"x": one})) == {"x": one}
    for header, message in [
        ({"x": {**one, "dtype": "F99"}}, "dtype"),
        ({"x": {**one, "shape": [3]}}, "to fill its place"),
        ({"x": {**one, "shape": [2, -1]}}, "shape"),
        ({"x": {**one, "shape": [10**30]}}, "shape"),
        ({"x": [1]}, "'x'"),
        ({"x": {**one, "data_offsets": [0, 16], "shape": [4]}}, "cut short at tensor 'x'"),
        ({"x": {**one, "shape": [1], "data_offsets": [4, 8]}}, "begin at byte 0"),
        ({}, "expected 10 bytes, got 18"),
        ({"x": one, "y": one}, "begin at byte 8"),
        ([], "expected an object"),
        (b"{" * 50_000, "expected JSON"),
        (b'{"x": 1, "x": 2}', "twice"),
        ({"x": one, "__metadata__": {"n": 1}}, "metadata"),
    ]:
        with pytest.raises(ValueError, match=re.escape(message)):
            check_file(lie(header))
        with pytest.raises(ValueError, match=re.escape("model.safetensors")):
            check_file(lie(header))
    for cut in range(0, len(whole), 7):
        file.write_bytes(whole[:cut])
        with pytest.raises(ValueError, match=re.escape("model.safetensors")):
            check_file(file)
    file.write_bytes(b"\xff" * 8 + whole[8:])
    with pytest.raises(ValueError, match=re.escape("without a whole header")):
        check_file(file)
    file.write_text("version https://git-lfs.github.com/spec/v1\noid sha256:0123\nsize 90868376\n")
    with pytest.raises(ValueError, match=re.escape("git lfs pull")):
        check_file(file)


def test_tensors_come_back_and_must_be_finite(tmp_path):
    box = tmp_path
    file = box / "model.safetensors"
    save_file({"a": torch.arange(6.0).reshape(2, 3), "b": torch.tensor(7)}, file)
    found = read_tensors(file)
    assert {name: x.tolist() for name, x in found.items()} == {"a": [[0, 1, 2], [3, 4, 5]], "b": 7}
    assert check_numbers(found, file) == found
    for bad in (torch.nan, torch.inf, -torch.inf):
        with pytest.raises(ValueError, match=re.escape("tensor 'c', got 1 of 2")):
            check_numbers({**found, "c": torch.tensor([1.0, bad])}, file)


def test_tensors_of_another_model_are_named(tmp_path):
    box = tmp_path
    file = box / "model.safetensors"
    save_file({"a": torch.arange(6.0).reshape(2, 3), "b": torch.tensor(7)}, file)
    found = read_tensors(file)
    assert check_tensors(file, found, {**found}) == found
    for other, message in [
        ({**found, "c": torch.ones(2)}, "expected tensor 'c' of shape (2,), found none"),
        ({"a": found["a"]}, "expected no tensor 'b'"),
        ({**found, "a": torch.ones(3)}, "tensor 'a' of shape (3,)"),
        ({**found, "b": torch.tensor(7.0)}, "torch.float32, got () and torch.int64"),
    ]:
        with pytest.raises(ValueError, match=re.escape(message)):
            check_tensors(file, found, other)


def test_a_folder_of_weights_in_one_file_or_several(tmp_path):
    box = tmp_path
    folder = box / "model"
    folder.mkdir()
    with pytest.raises(ValueError, match=re.escape("model.safetensors or pytorch_model.bin")):
        load_tensors(folder)
    torch.save({"a": torch.ones(2)}, folder / "pytorch_model.bin")
    assert load_tensors(folder)["a"].tolist() == [1, 1]
    torch.save({"a": os.system}, folder / "pytorch_model.bin")
    with pytest.raises(ValueError, match=re.escape("nothing in it was run")):
        load_tensors(folder)
    index = folder / "model.safetensors.index.json"
    save_file({"a": torch.zeros(2)}, folder / "part-1.safetensors")
    for names, message in [
        ('["part-1.safetensors"]', "'weight_map' to be a dict"),
        ('{"a": "../part-1.safetensors"}', "below its folder"),
        ('{"a": "part-2.safetensors"}', "part-2.safetensors: expected a file"),
        ('{"a": 1}', "below its folder"),
    ]:
        index.write_text(f'{{"weight_map": {names}}}')
        with pytest.raises(ValueError, match=re.escape(message)):
            load_tensors(folder)
    index.write_text('{"weight_map": {"a": "part-1.safetensors"}}')
    assert load_tensors(folder)["a"].tolist() == [0, 0]
    (folder / "model.safetensors").mkdir()
    with pytest.raises(
        ValueError, match=re.escape("model.safetensors: expected a readable file, got a folder")
    ):
        load_tensors(folder)


def test_a_checksum_counts_every_bit_name_shape_and_text(tmp_path):
    box = tmp_path
    file = box / "model.safetensors"
    save_file({"a": torch.arange(6.0).reshape(2, 3), "b": torch.tensor(7)}, file)
    whole = file.read_bytes()
    a, b = torch.tensor([1.0, 2.0]), torch.tensor(True)
    same = tensor_checksum({"a": a, "b": b}, "step 1")
    assert same == tensor_checksum({"b": b, "a": a.clone()}, "step 1")
    flipped = a.clone()
    flipped.view(torch.int32)[1] ^= 1
    others = [
        ({"a": a, "b": b}, "step 2"),
        ({"a": flipped, "b": b}, "step 1"),
        ({"b": a, "a": b}, "step 1"),
        ({"a": a[:, None], "b": b}, "step 1"),
        ({"a": a.view(torch.int32), "b": b}, "step 1"),
        ({"a": a}, "step 1"),
    ]
    assert len({same, *(tensor_checksum(*other) for other in others)}) == 7
    assert file_checksum(file) == hashlib.sha256(whole).hexdigest()


def test_checked_files_are_equal_to_the_byte_and_notice_any_change(tmp_path):
    box = tmp_path
    file = box / "model.safetensors"
    save_file({"a": torch.arange(6.0).reshape(2, 3), "b": torch.tensor(7)}, file)
    whole = file.read_bytes()
    found = read_tensors(file)
    save_checked(file, found, "step 1")
    again, text = read_checked(file)
    assert ({name: x.tolist() for name, x in again.items()}, text) == (
        {"a": [[0, 1, 2], [3, 4, 5]], "b": 7},
        "step 1",
    )
    whole = file.read_bytes()
    for _ in range(8):
        save_checked(file, found, "step 1")
        assert file.read_bytes() == whole
    for place in (30, whole.index(b"step"), len(whole) - 3):  # the header, the text, a number
        file.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
        with pytest.raises(ValueError, match=re.escape("model.safetensors: expected")):
            read_checked(file)
    save_file(found, file)
    with pytest.raises(ValueError, match=re.escape("got other tensors")):
        read_checked(file)
