"""`minbert.core.saving`: files that cannot run code, saves that are whole or absent, folders in
sentence-transformers' layout.
"""

import json
import os

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import nn

from minbert import pretrain
from minbert.attention import SelfAttention
from minbert.core.atomic_dir import atomic_write_dir
from minbert.core.files import read_json, write_json
from minbert.core.module_io import load_module, save_module
from minbert.core.safetensors_io import tensor_checksum
from minbert.encoder import BertConfig, BertModel
from minbert.encoding.module_files import read_modules, write_modules
from minbert.heads import LinearHead


def files(folder):
    return {str(f.relative_to(folder)): f.read_text() for f in folder.rglob("*") if f.is_file()}


def test_json_round_trip_and_errors(tmp_path):
    values = {"a": [1, 2.5, None], "ü": "你好"}
    write_json(tmp_path / "deep" / "er" / "x.json", values)
    assert read_json(tmp_path / "deep" / "er" / "x.json") == values
    for name, data in {
        "cut.json": b'{"a": [1,',
        "latin.json": b'"\xe9"',
        "empty.json": b"",
    }.items():
        (tmp_path / name).write_bytes(data)
        with pytest.raises(ValueError, match=name):
            read_json(tmp_path / name)
    for name in ("missing.json", "deep"):
        with pytest.raises(ValueError, match=name):
            read_json(tmp_path / name)


def test_replacing_is_all_or_nothing(tmp_path):
    target = tmp_path / "new" / "run"
    with atomic_write_dir(target) as draft:
        (draft / "a").write_text("1")
        (draft / "sub").mkdir()
        (draft / "sub" / "b").write_text("1")
        assert files(target).keys() & {"a", "sub/b"} == set()  # nothing shows yet
    (target / "mine").write_text("kept")
    assert files(target) == {"a": "1", "sub/b": "1", "mine": "kept"}
    for error in (RuntimeError, KeyboardInterrupt):
        with pytest.raises(error), atomic_write_dir(target) as draft:
            (draft / "a").write_text("2")
            raise error
        assert files(target) == {"a": "1", "sub/b": "1", "mine": "kept"}
    with atomic_write_dir(str(target)) as draft:
        (draft / "sub").mkdir()
        (draft / "sub" / "b").write_text("2")
    assert files(target) == {"a": "1", "sub/b": "2", "mine": "kept"}
    assert sorted(os.listdir(target)) == ["a", "mine", "sub"]


@pytest.mark.parametrize(
    "name", [".draft-thesis", ".draft-thesis_1", ".draft-minbert-notes", ".draft-minbert-my-notes"]
)
def test_a_folder_of_the_reader_is_no_leftover(tmp_path, name):
    (tmp_path / name).mkdir()
    (tmp_path / name / "chapter.txt").write_text("mine")
    with atomic_write_dir(tmp_path) as draft:
        (draft / "a").write_text("1")
    assert files(tmp_path) == {"a": "1", f"{name}/chapter.txt": "mine"}


def test_what_cannot_be_moved_is_undone(tmp_path):
    (tmp_path / "b").mkdir()
    (tmp_path / "a").write_text("1")
    with pytest.raises(OSError), atomic_write_dir(tmp_path) as draft:
        # moved in this order; a folder stands in the way of the third
        for name in ("a", "aa", "b", "c"):
            (draft / name).write_text("2")
    assert files(tmp_path) == {"a": "1"} and sorted(os.listdir(tmp_path)) == ["a", "b"]


def test_what_is_put_in_place_is_on_the_disk_first(tmp_path, monkeypatch):
    done = []
    monkeypatch.setattr(
        "minbert.core.atomic_dir.flush",
        lambda path: done.append((path.name, (tmp_path / "a").exists())),
    )
    with atomic_write_dir(tmp_path) as draft:
        (draft / "a").write_text("1")
    assert done == [("a", False), (tmp_path.name, True)]


def test_modules_come_back_with_every_number(tmp_path):
    attention = SelfAttention(8, 2, dropout=0.0)
    attention.init_kwargs = lambda: {"hidden_size": 8, "num_attention_heads": 2, "dropout": 0.0}
    save_module(attention, tmp_path / "x")
    again = load_module(tmp_path / "x")
    assert type(again) is SelfAttention and not again.training
    assert attention.state_dict().keys() == again.state_dict().keys()
    assert all(torch.equal(v, again.state_dict()[k]) for k, v in attention.state_dict().items())
    assert sorted(os.listdir(tmp_path / "x")) == ["config.json", "model.safetensors"]


def test_tensors_that_share_or_stride_are_saved(tmp_path):
    attention = SelfAttention(8, 2)
    attention.init_kwargs = lambda: {"hidden_size": 8, "num_attention_heads": 2}
    attention.key.weight = attention.query.weight
    attention.value.weight = nn.Parameter(torch.randn(8, 8).t())
    save_module(attention, tmp_path)
    assert torch.equal(load_module(tmp_path).value.weight, attention.value.weight)


@pytest.mark.parametrize(
    "path",
    [
        "os.system",
        "torch.nn.modules.linear.Linear",
        "minbert.pretrain.os",
        "minbert.pretrain.nn",
        "minbert.pretrain.nn.Linear",
        "minbert.pretrain.replacing",
        "minbert.pretrain.save_mlm",
        "minbert.encoder.BertConfig",
        "minbert..Linear",
        "minbert.pretrain",
        "module_files.TransformModule",
        "",
        "minbert.no.Thing",
        "minbert_evil.Thing",
        "minbert.pretrain.BertModel",
        "__main__.X",
        "minbert.encoding.module_files.torch",
        "minbert.encoding.module_files.TransformModule",
    ],
)
def test_only_classes_that_a_chapter_defines_are_built(tmp_path, path):
    assert pretrain.BertModel is BertModel  # imported there is not defined there
    write_json(tmp_path / "config.json", {"class": path, "init_kwargs": {}})
    with pytest.raises(ValueError, match="defined in minbert"):
        load_module(tmp_path)


def test_broken_modules(tmp_path):
    with pytest.raises(ValueError, match="got 'torch.nn"):
        save_module(nn.Linear(2, 2), tmp_path / "no")
    assert not (tmp_path / "no").exists()
    attention = SelfAttention(8, 2)
    attention.init_kwargs = lambda: {"hidden_size": 8, "num_attention_heads": 2}
    save_module(attention, tmp_path)
    whole = (tmp_path / "model.safetensors").read_bytes()
    for cut in (0, 4, 60, len(whole) - 1):
        (tmp_path / "model.safetensors").write_bytes(whole[:cut])
        with pytest.raises(ValueError, match="model.safetensors"):
            load_module(tmp_path)
    (tmp_path / "model.safetensors").write_bytes(whole)
    config = read_json(tmp_path / "config.json")
    write_json(
        tmp_path / "config.json",
        config | {"init_kwargs": {"hidden_size": 4, "num_attention_heads": 2}},
    )
    with pytest.raises(ValueError, match="SelfAttention was saved, got others"):
        load_module(tmp_path)


def test_nothing_is_built_from_sizes_that_the_tensors_do_not_have(tmp_path):
    """Two hundred terabytes that a file of a kilobyte asks for: no memory is set aside before the
    tensors are compared.
    """
    save_module(LinearHead(10, 5), tmp_path)
    config, state = read_json(tmp_path / "config.json"), load_file(tmp_path / "model.safetensors")
    kwargs = config["init_kwargs"] | {"width": 10**13}
    write_json(
        tmp_path / "config.json",
        config
        | {
            "init_kwargs": kwargs,
            "sha256": tensor_checksum(state, json.dumps([config["class"], kwargs], sort_keys=True)),
        },
    )
    with pytest.raises(
        ValueError, match="(?s)config.json: expected arguments and tensors of .*size mismatch"
    ):
        load_module(tmp_path)


def test_a_module_comes_back_in_the_precision_of_its_class_and_with_memory_of_its_own(tmp_path):
    head = LinearHead(10, 5).half()
    save_module(head, tmp_path)
    again = load_module(tmp_path)
    kept = {name: x.clone() for name, x in again.state_dict().items()}
    save_module(LinearHead(10, 5), tmp_path)  # in the same file
    assert all(
        x.dtype == torch.float32 and torch.equal(x, kept[name])
        for name, x in again.state_dict().items()
    )
    assert all(torch.equal(x.half(), head.state_dict()[name]) for name, x in kept.items()) and all(
        p.requires_grad for p in again.parameters()
    )


@pytest.mark.parametrize(
    "pooling, layers, kinds",
    [
        ("cls", (-1,), ["Transformer", "Pooling"]),
        ("mean", (-1,), ["Transformer", "Pooling"]),
        ("max", (-1,), ["Transformer", "Pooling"]),
        ("pooler", (), ["Transformer", "Pooling", "Dense"]),
        ("last2avg", (-1, -2), ["Transformer", "WeightedLayerPooling", "Pooling"]),
        ("emb_last_avg", (0, -1), ["Transformer", "WeightedLayerPooling", "Pooling"]),
        ("mean_padded", (-1,), ["Transformer", "mean_padded"]),
    ],
)
def test_steps(tmp_path, pooling, layers, kinds):
    model = BertModel(
        BertConfig(
            vocab_size=9,
            hidden_size=4,
            num_hidden_layers=3,
            num_attention_heads=1,
            intermediate_size=4,
        )
    )
    write_json(tmp_path / "config.json", {"hidden_size": 4})
    write_modules(tmp_path, model, pooling, layers, 77, [("Normalize", "9_N")])
    steps = json.loads((tmp_path / "modules.json").read_text())
    assert [s["type"].rpartition(".")[-1] for s in steps] == [*kinds, "Normalize"]
    assert [s["idx"] for s in steps] == list(range(len(steps)))
    assert read_json(tmp_path / "config.json").get("output_hidden_states", False) == (
        len(layers) == 2
    )
    if len(layers) == 2:
        weights = load_file(str(tmp_path / "1_WeightedLayerPooling" / "model.safetensors"))[
            "layer_weights"
        ]
        assert weights.nonzero().flatten().tolist() == sorted(layer % 4 for layer in layers)
    if len(kinds) == 2 and pooling != "mean_padded":
        assert read_modules(tmp_path) == (pooling, 77)
    elif pooling == "pooler":  # [CLS] and a Dense, for whoever does not know our name for it
        assert read_modules(tmp_path) == ("cls", 77)
    else:
        with pytest.raises(ValueError):
            read_modules(tmp_path)
        assert read_modules(tmp_path, "mean") == ("mean", 77)


def test_files_are_as_public_as_the_system_makes_files(tmp_path):
    """safetensors writes with mode 600; a shared model folder must be readable by those the umask
    allows.
    """
    old = os.umask(0o027)
    try:
        with atomic_write_dir(tmp_path / "model") as draft:
            save_file({"x": torch.zeros(1)}, str(draft / "model.safetensors"))
            (draft / "config.json").write_text("{}")
    finally:
        os.umask(old)
    assert {f.name: oct(f.stat().st_mode & 0o777) for f in (tmp_path / "model").iterdir()} == {
        "model.safetensors": "0o640",
        "config.json": "0o640",
    }
