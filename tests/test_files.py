"""Reading files from elsewhere: sizes, kinds, JSON, and names that may not lead out of a folder."""

import os
import re
from pathlib import Path

import pytest

from minbert.core.files import (
    JSON_LIMIT,
    check_fields,
    check_regular,
    inside,
    quoted,
    read_json,
    read_json_if_there,
    read_whole,
    write_json,
)


def test_a_quotation_in_a_message_is_never_long():
    assert quoted("a\tb") == repr("a\tb")
    assert [
        len(quoted(x))
        for x in ("x" * 198, "x" * 199, "x" * 10_000_000, "\n" * 150, list(range(10_000)))
    ] == [200] * 5
    quoted("word " * 1000, 40)


def test_only_a_regular_file_of_the_allowed_size_is_read(tmp_path):
    box = tmp_path
    (box / "ten").write_bytes(b"0123456789")
    assert (check_regular(box / "ten"), read_whole(box / "ten", 10)) == (10, b"0123456789")
    for name, limit, message in [
        ("ten", 9, "ten: expected at most 9 bytes, got 10"),
        ("none", 9, "none: expected a file, got none"),
        (".", 9, "expected a readable file, got a folder"),
        ("a\0b", 9, "expected a readable file"),
        ("x" * 999, 9, "expected a readable file"),
    ]:
        for read in (check_regular, read_whole):
            with pytest.raises(ValueError, match=re.escape(message)):
                read(box / name, limit)
    if hasattr(os, "mkfifo"):
        os.mkfifo(box / "pipe")
        with pytest.raises(
            ValueError, match=re.escape("pipe: expected a readable file, got a pipe")
        ):
            read_whole(box / "pipe")
    if Path("/dev/zero").exists():
        os.symlink("/dev/zero", box / "config.json")
        with pytest.raises(
            ValueError, match=re.escape("config.json: expected a readable file, got a device")
        ):
            read_whole(box / "config.json")


def test_json_is_read_strictly_and_every_error_names_the_file(tmp_path):
    box = tmp_path
    write_json(box / "a" / "sizes.json", {"hidden_size": 256, "name": "é"})
    assert read_json(box / "a" / "sizes.json") == {"hidden_size": 256, "name": "é"}
    for name, text, message in [
        ("cut", '{"hidden_size": 2', "expected JSON"),
        ("latin", b'{"name": "\xe9"}', "expected JSON"),
        ("deep", "[" * 100_000, "expected JSON"),
        ("twice", '{"a": 1, "b": 2, "a": 3}', "the key 'a' twice"),
        ("list", "[1]", "expected an object in JSON, got a list"),
        ("number", "7", "got 7"),
        ("digits", "1" * 9999, "expected JSON"),
        ("large", " " * 99 + "{}", "expected at most 50 bytes, got 101"),
    ]:
        file = box / f"{name}.json"
        file.write_bytes(text if isinstance(text, bytes) else text.encode())
        with pytest.raises(ValueError, match=re.escape(message)):
            read_json(file, limit=50 if name == "large" else JSON_LIMIT)
        with pytest.raises(ValueError, match=re.escape(file.name)):
            read_json(file, limit=50 if name == "large" else JSON_LIMIT)

    assert [
        read_json_if_there(box / "no file"),
        read_json_if_there(box / "no file", list),
        read_json_if_there(box / "a" / "sizes.json")["hidden_size"],
    ] == [{}, [], 256]
    assert check_fields({"n": 1, "x": None}, "f", n=int, x=(str, type(None))) == {"n": 1, "x": None}
    for bad, message in [
        ({}, "f: expected 'n', a int, found none"),
        ({"n": True}, "to be a int, got True"),
        ({"n": "1"}, "got '1'"),
    ]:
        with pytest.raises(ValueError, match=re.escape(message)):
            check_fields(bad, "f", n=int)


def test_a_name_found_in_a_file_cannot_leave_its_folder():
    assert [inside("m", name, "f") for name in ("", "1_Pooling", "heads/sst")] == [
        Path("m"),
        Path("m/1_Pooling"),
        Path("m/heads/sst"),
    ]
    for name in ("..", "a/../../b", "/etc", "C:/x", "a\\..\\b", "\\x", "a\0", 7, None, ["a"]):
        with pytest.raises(ValueError, match=re.escape("modules.json: expected the name")):
            inside("m", name, "modules.json")
