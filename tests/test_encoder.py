"""Encoder: parity with transformers of the taught forward and of both fast ones, loading and saving."""

import copy
import json
import math
import subprocess
import sys
import warnings
from functools import partial

import pytest
import torch
import torch.nn.functional as F
import transformers
from safetensors.torch import load_file, save_file
from torch.testing import assert_close
from toys import SMALL, batch, small

from minbert.core.safetensors_io import load_tensors
from minbert.encoder import BertConfig, BertLayer, BertModel
from minbert.encoding.bert_weights import hugging_face_name, minbert_name
from minbert.encoding.forward import encode_batch

SHAPES = [  # D, layers, heads, inner, B, T
    (8, 1, 1, 16, 1, 1),
    (8, 2, 2, 16, 3, 7),
    (12, 3, 4, 20, 2, 5),
    (32, 2, 8, 64, 5, 33),
    (16, 4, 2, 8, 4, 12),
    (24, 2, 3, 96, 1, 512),
    (64, 1, 4, 256, 6, 20),
]
FAST = {
    "padded": partial(encode_batch, packed=False),
    "packed": partial(encode_batch, packed=True),
}
WAYS = {"taught": lambda model, *batch, **how: model(*batch, **how), **FAST}


def settings(D=16, layers=2, heads=2, inner=24, **more):
    return dict(
        vocab_size=97,
        hidden_size=D,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        intermediate_size=inner,
        **more,
    )


def twins(seed=0, **sizes):
    """Transformers' model with random weights, and ours with the same ones."""
    torch.manual_seed(seed)
    oracle = transformers.BertModel._from_config(
        transformers.BertConfig(**sizes, initializer_range=0.2), attn_implementation="eager"
    ).eval()
    with torch.no_grad():
        for p in oracle.parameters():
            p.add_(0.1 * torch.randn_like(p))  # norms and biases too: none may be confused
    model = BertModel(BertConfig(**sizes))
    state = {minbert_name(k): v for k, v in oracle.state_dict().items() if minbert_name(k)}
    model.load_state_dict(state, strict=True)
    return model.eval(), oracle


@pytest.mark.parametrize("run", FAST.values(), ids=FAST)
def test_segments_of_another_shape_are_refused(run):
    model, _ = twins(**settings(8, 1, 2, 16))
    ids, mask = batch(2, 4)
    for segments in (torch.zeros(2, 5, dtype=torch.int64), torch.zeros(4, dtype=torch.int64)):
        with pytest.raises(ValueError, match=r"token_type_ids of shape \(2, 4\)"):
            run(model, ids, mask, token_type_ids=segments)


# Parity --------------------------------------------------------------------------------------


@pytest.mark.parametrize("run", WAYS.values(), ids=WAYS)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_states_and_gradients_equal_transformers(shape, run):
    """In double precision, where a gradient that is zero in theory (a key's bias) is nearly so."""
    D, layers, heads, inner, B, T = shape
    model, oracle = (net.double() for net in twins(**settings(D, layers, heads, inner)))
    ids, mask = batch(B, T)
    segments = torch.randint(0, 2, ids.shape)
    ours = run(model, ids, mask, segments, True)
    theirs = oracle(ids, mask, token_type_ids=segments, output_hidden_states=True)
    real = mask.bool()
    assert len(ours.hidden_states) == layers + 1
    for a, b in zip(ours.hidden_states, theirs.hidden_states):
        assert_close(a[real], b[real])
    assert_close(ours.hidden_states[-1], ours.last_hidden_state)
    assert_close(ours.pooler_output, theirs.pooler_output)

    target = torch.randn(*ids.shape, D, dtype=torch.float64) / real.sum()
    for out in (ours, theirs):
        loss = (out.last_hidden_state * target)[real].sum() + out.pooler_output.square().mean()
        (loss + out.hidden_states[0][real].square().mean()).backward()
    expected = {minbert_name(k): p.grad for k, p in oracle.named_parameters()}
    for name, p in model.named_parameters():
        assert_close(p.grad, expected[name], msg=lambda m: f"{name}: {m}")


def test_double_precision_parity_leaves_no_doubt():
    model, oracle = twins(**settings(16, 3, 4, 24))
    ids, mask = batch(4, 9)
    ours, theirs = model.double()(ids, mask), oracle.double()(ids, mask)
    real = mask.bool()
    assert_close(
        ours.last_hidden_state[real], theirs.last_hidden_state[real], atol=1e-12, rtol=1e-12
    )


def test_parameter_count_of_base_and_large():
    def count(**sizes):
        with torch.device("meta"):
            return sum(p.numel() for p in BertModel(BertConfig(**sizes)).parameters())

    assert count() == 109_482_240
    assert (
        count(
            hidden_size=1024, num_hidden_layers=24, num_attention_heads=16, intermediate_size=4096
        )
        == 335_141_888
    )


@pytest.mark.parametrize("std, pad", [(0.02, 0), (0.1, 7)])  # the release's, and others
def test_fresh_weights_follow_the_release(std, pad):
    torch.manual_seed(0)
    assert (BertConfig().initializer_range, BertConfig().pad_token_id) == (0.02, 0)
    model = BertModel(
        BertConfig(
            vocab_size=2000,
            hidden_size=128,
            num_hidden_layers=1,
            num_attention_heads=2,
            intermediate_size=512,
            initializer_range=std,
            pad_token_id=pad,
        )
    )
    for name, p in model.named_parameters():
        if name.endswith("bias"):
            assert not p.any(), name
        elif "norm" in name:
            assert (p == 1).all(), name
        elif p.numel() > 10_000:
            assert abs(p.std().item() / std - 1) < 0.05, name
    table = model.embedding.word_embedding
    assert table.padding_idx == pad and (table.weight == 0).all(1).nonzero().flatten().tolist() == [
        pad
    ]


# Properties ----------------------------------------------------------------------------------


@pytest.mark.parametrize("run", WAYS.values(), ids=WAYS)
def test_padding_and_neighbours_change_nothing(run):
    model = small()
    ids, mask = batch(5, 12, seed=3)
    h = run(model, ids, mask).last_hidden_state
    wide, wide_mask = F.pad(ids, (0, 9), value=5), F.pad(mask, (0, 9))
    assert_close(run(model, wide, wide_mask).last_hidden_state[:, :12][mask == 1], h[mask == 1])
    for row in range(5):
        n = int(mask[row].sum())
        alone = run(model, ids[row : row + 1, :n]).last_hidden_state[0]
        assert_close(alone, h[row, :n])


@pytest.mark.parametrize("run", WAYS.values(), ids=WAYS)
def test_permuting_the_batch_permutes_the_output(run):
    model = small()
    ids, mask = batch(6, 10)
    order = torch.randperm(6)
    a, b = run(model, ids, mask), run(model, ids[order], mask[order])
    assert_close(a.last_hidden_state[order], b.last_hidden_state)
    assert_close(a.pooler_output[order], b.pooler_output)


def test_word_order_matters():
    model = small()
    ids = torch.tensor([[2, 5, 6, 7, 3]])
    assert not torch.allclose(
        model(ids).pooler_output, model(ids[:, [0, 3, 1, 2, 4]]).pooler_output
    )


def test_gradient_reaches_every_parameter():
    model = small()
    ids, mask = batch(3, 40)
    model(ids, mask).pooler_output.square().sum().backward()
    for name, p in model.named_parameters():
        assert p.grad is not None and p.grad.isfinite().all(), name
        assert p.grad.any() or name.endswith("key.bias"), name  # softmax ignores a constant


def test_layer_by_closed_form():
    D = 4
    config = BertConfig(hidden_size=D, num_attention_heads=1, intermediate_size=1)
    layer = BertLayer(config).eval()
    with torch.no_grad():
        for p in layer.parameters():
            p.zero_()
        for norm in (layer.attention_layer_norm, layer.out_layer_norm):
            norm.weight.fill_(1)
        layer.interm_dense.weight[0, 0] = 1
        layer.out_dense.weight[:, 0] = torch.tensor([1.0, -1, -1, 1])
    a = 0.5 * (1 + math.erf(1 / math.sqrt(2)))
    expected = torch.tensor([[[1 + a, -1 - a, 1 - a, -1 + a]]]) / math.sqrt(1 + a * a)
    assert_close(layer(torch.tensor([[[1.0, -1, 1, -1]]])), expected)


@pytest.mark.parametrize(
    "rate, place", [("hidden_dropout_prob", "hidden"), ("attention_probs_dropout_prob", "map")]
)
@pytest.mark.parametrize("run", WAYS.values(), ids=WAYS)
def test_dropout_acts_in_training_only(rate, place, run):
    off = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    model = small(**{**off, rate: 0.5})
    ids, mask = batch(3, 8)
    assert_close(run(model, ids, mask), run(model, ids, mask))
    model.train()
    a, b = (run(model, ids, mask).last_hidden_state for _ in range(2))
    assert not torch.allclose(a, b), place
    still = small(**off).train()
    assert_close(run(still, ids, mask), run(still, ids, mask))


def test_each_rate_of_dropout_is_that_of_transformers():
    """One rate for maps, one for embeddings and for what each half of a layer adds."""
    rates = dict(hidden_dropout_prob=0.25, attention_probs_dropout_prob=0.35)
    model = BertModel(BertConfig(**SMALL, **rates))
    oracle = transformers.BertModel(transformers.BertConfig(**SMALL, **rates))
    assert model.embedding.embed_dropout.p == oracle.embeddings.dropout.p == 0.25
    for ours, theirs in zip(model.bert_layers, oracle.encoder.layer, strict=True):
        assert ours.self_attention.dropout == theirs.attention.self.dropout.p == 0.35
        assert (
            ours.dropout.p == theirs.attention.output.dropout.p == theirs.output.dropout.p == 0.25
        )


# Edges ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("run", WAYS.values(), ids=WAYS)
@pytest.mark.parametrize("B, T", [(1, 1), (1, 40), (4, 1), (1, 3)])
def test_smallest_and_longest_batches(B, T, run):
    out = run(small(), torch.ones(B, T, dtype=torch.long))
    assert out.last_hidden_state.shape == (B, T, 16) and out.pooler_output.shape == (B, 16)
    assert out.hidden_states is None


@pytest.mark.parametrize("run", FAST.values(), ids=FAST)
def test_one_token_too_many(run):
    with pytest.raises(ValueError, match="at most 40 tokens, got 41"):
        run(small(), torch.ones(2, 41, dtype=torch.long))
    base = small(max_position_embeddings=512)
    run(base, torch.ones(1, 512, dtype=torch.long))
    with pytest.raises(ValueError, match="at most 512 tokens, got 513"):
        run(base, torch.ones(1, 513, dtype=torch.long))
    with pytest.raises(IndexError):  # the taught forward leaves it to PyTorch
        small()(torch.ones(2, 41, dtype=torch.long))


@pytest.mark.parametrize("run", FAST.values(), ids=FAST)
@pytest.mark.parametrize("wrong", [97, -1])
def test_id_beyond_the_vocabulary(wrong, run):
    ids = torch.tensor([[1, 2, wrong]])
    with pytest.raises(ValueError, match=str(wrong)):
        run(small(), ids)
    with pytest.raises(IndexError):
        small()(ids)


@pytest.mark.parametrize("run", FAST.values(), ids=FAST)
def test_rows_of_padding_only(run):
    model, (ids, mask) = small(), batch(4, 6)
    full = run(model, ids, mask)
    mask = mask.clone()
    mask[[1, 3]] = 0
    with pytest.raises(ValueError, match=r"only padding in rows \[1, 3\]"):
        run(model, ids, mask)
    out = run(model, ids, mask, output_hidden_states=True, allow_empty=True)
    assert not out.pooler_output[[1, 3]].any()
    assert out.last_hidden_state.isfinite().all()
    assert_close(out.last_hidden_state[0], full.last_hidden_state[0])
    assert_close(out.pooler_output[[0, 2]], full.pooler_output[[0, 2]])
    out.pooler_output.sum().backward()
    assert all(p.grad is None or p.grad.isfinite().all() for p in model.parameters())


def test_nothing_but_padding_packed():
    model = small()
    ids = torch.ones(2, 3, dtype=torch.long)
    out = encode_batch(model, ids, torch.zeros_like(ids), packed=True, allow_empty=True)
    assert not out.last_hidden_state.any() and not out.pooler_output.any()


def test_the_taught_forward_gives_finite_numbers_for_a_row_of_padding():
    model = small()
    ids = torch.ones(2, 3, dtype=torch.long)
    out = model(ids, torch.tensor([[0, 0, 0], [1, 1, 0]]))
    assert out.last_hidden_state.isfinite().all() and out.pooler_output.isfinite().all()


def test_shapes_that_do_not_fit():
    model = small()
    ids, mask = batch(3, 6)
    with pytest.raises(ValueError, match=r"\(3, 6\) and \(3, 5\)"):
        encode_batch(model, ids, mask[:, :5])
    with pytest.raises(ValueError, match=r"\(6,\)"):
        encode_batch(model, ids[0])
    for wrong in (mask[:, :5], mask[:1], mask[:, :1]):  # the last two would broadcast
        with pytest.raises(ValueError, match=r"mask of shape \(3, 6\)"):
            model(ids, wrong)


# Config --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "field, value, message",
    [
        ("hidden_size", 10, "num_attention_heads to divide hidden_size 10, got 4"),
        ("num_attention_heads", 3, "divide hidden_size 16, got 3"),
        ("hidden_size", 0, "hidden_size a whole number >= 1, got 0"),
        ("num_hidden_layers", 0, "num_hidden_layers a whole number >= 1, got 0"),
        ("num_attention_heads", -1, "num_attention_heads a whole number >= 1, got -1"),
        ("vocab_size", 2.5, "vocab_size a whole number >= 1, got 2.5"),
        ("intermediate_size", "24", "intermediate_size a whole number >= 1, got '24'"),
        ("hidden_dropout_prob", 1.0, r"hidden_dropout_prob a number in \[0, 1\), got 1.0"),
        ("attention_probs_dropout_prob", -0.1, "attention_probs_dropout_prob .* got -0.1"),
        ("layer_norm_eps", float("nan"), "layer_norm_eps .* got nan"),
        ("pad_token_id", 97, "pad_token_id below 97, got 97"),
        ("pad_token_id", -1, "pad_token_id a whole number >= 0, got -1"),
    ],
)
def test_impossible_sizes(field, value, message):
    with pytest.raises(ValueError, match=message):
        BertConfig(**{**dict(vocab_size=97, hidden_size=16, num_attention_heads=4), field: value})


def test_config_is_frozen_and_hashable():
    config = BertConfig()
    with pytest.raises(AttributeError):
        config.hidden_size = 3
    assert hash(config) == hash(BertConfig()) and config != BertConfig(vocab_size=5)


def test_config_round_trip_and_extras(tmp_path):
    config, file = BertConfig(**SMALL, hidden_dropout_prob=0.25), tmp_path / "config.json"
    file.write_text(config.to_json(), encoding="utf-8")
    assert BertConfig.from_json(file) == config
    raw = {
        **json.loads(config.to_json()),
        "use_cache": True,
        "id2label": {"0": "x"},
        "pad_token_id": None,
    }
    file.write_text(json.dumps(raw), encoding="utf-8")
    assert BertConfig.from_json(file) == config
    theirs = transformers.BertConfig.from_pretrained(tmp_path)
    for key, value in json.loads(config.to_json()).items():
        if key in SMALL:
            assert getattr(theirs, key) == value
    assert theirs.hidden_dropout_prob == 0.25


@pytest.mark.parametrize(
    "key, value",
    [
        ("hidden_act", "gelu_new"),
        ("position_embedding_type", "relative_key"),
        ("model_type", "roberta"),
        ("is_decoder", True),
        ("add_cross_attention", True),
    ],
)
def test_unsupported_architecture(tmp_path, key, value):
    file = tmp_path / "config.json"
    file.write_text(json.dumps({**json.loads(BertConfig().to_json()), key: value}))
    with pytest.raises(ValueError, match=f"config.json: expected {key} .*got {value!r}"):
        BertConfig.from_json(file)


@pytest.mark.parametrize("content", [b"", b"{", b"[1, 2]", b"\xff\xfe\x00", b"3"])
def test_broken_config(tmp_path, content):
    (tmp_path / "config.json").write_bytes(content)
    with pytest.raises(ValueError, match="config.json"):
        BertConfig.from_json(tmp_path / "config.json")
    with pytest.raises(ValueError, match="missing.json"):
        BertConfig.from_json(tmp_path / "missing.json")


# Names ---------------------------------------------------------------------------------------


def test_names_are_a_bijection_with_every_key_of_transformers():
    with torch.device("meta"):
        model = BertModel(BertConfig())
        oracle = transformers.BertModel(transformers.BertConfig())
    ours, theirs = set(model.state_dict()), {k for k in oracle.state_dict() if "_ids" not in k}
    assert {hugging_face_name(k) for k in ours} == theirs
    assert {minbert_name(k) for k in theirs} == ours
    assert len(ours) == len(theirs) == 5 + 12 * 16 + 2
    assert all(minbert_name(hugging_face_name(k)) == k for k in ours)
    assert all(minbert_name("bert." + k) == minbert_name(k) for k in theirs)


def test_old_and_foreign_names():
    assert minbert_name("bert.embeddings.LayerNorm.gamma") == "embedding.embed_layer_norm.weight"
    assert (
        minbert_name("encoder.layer.10.output.LayerNorm.beta")
        == "bert_layers.10.out_layer_norm.bias"
    )
    for skipped in (
        "embeddings.position_ids",
        "bert.embeddings.position_ids",
        "cls.predictions.bias",
        "cls.seq_relationship.weight",
        "classifier.weight",
        "qa_outputs.bias",
    ):
        assert minbert_name(skipped) is None
    for wrong in (
        "encoder.layer.0.output.dense.gamma",
        "xencoder.layer.0.output.dense.weight",
        "",
        "encoder.layer.0.output.dense.weight.x",
        "encoder.layer.01.output.dense.weight",
        "embeddings.word_embeddings",
        "bert.bert.pooler.dense.bias",
        "roberta.pooler.dense.bias",
    ):
        with pytest.raises(ValueError):
            minbert_name(wrong)
    with pytest.raises(ValueError, match="pooler"):
        hugging_face_name("pooler.dense.weight")


# Loading and saving --------------------------------------------------------------------------


@pytest.fixture
def saved(tmp_path):
    model = small()
    model.save_pretrained(tmp_path / "model")
    return model, tmp_path / "model"


def same(a: BertModel, b: BertModel):
    assert a.config == b.config
    assert_close(a.state_dict(), b.state_dict(), atol=0, rtol=0)


def test_saved_model_loads_here_and_in_transformers(saved):
    model, folder = saved
    assert sorted(f.name for f in folder.iterdir()) == ["config.json", "model.safetensors"]
    again = BertModel.from_pretrained(folder)
    same(model, again)
    assert not again.training and all(p.requires_grad for p in again.parameters())
    assert not any(t.is_meta for t in [*again.parameters(), *again.buffers()])
    ids, mask = batch(4, 11)
    oracle = transformers.AutoModel.from_pretrained(folder, attn_implementation="eager").eval()
    theirs, ours = oracle(ids, mask), again(ids, mask)
    real = mask.bool()
    assert type(oracle).__name__ == "BertModel"
    assert_close(ours.last_hidden_state[real], theirs.last_hidden_state[real], atol=1e-5, rtol=1e-5)
    assert_close(ours.pooler_output, theirs.pooler_output, atol=1e-5, rtol=1e-5)


def test_a_loaded_model_does_not_hold_on_to_its_file(saved):
    model, folder = saved
    again = BertModel.from_pretrained(folder)
    file = folder / "model.safetensors"
    file.write_bytes(bytes(file.stat().st_size))
    same(model, again)
    with torch.no_grad():
        again.pooler_dense.weight.add_(1)


def test_transformers_saves_what_we_load(tmp_path):
    _, oracle = twins(**settings())
    oracle.save_pretrained(tmp_path / "whole")
    oracle.save_pretrained(tmp_path / "shards", max_shard_size="5KB")
    assert (tmp_path / "shards" / "model.safetensors.index.json").exists()
    a, b = (BertModel.from_pretrained(tmp_path / name) for name in ("whole", "shards"))
    same(a, b)
    ids, mask = batch(3, 6)
    assert_close(a(ids, mask).pooler_output, oracle(ids, mask).pooler_output, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize(
    "make", [transformers.BertForPreTraining, transformers.BertForSequenceClassification]
)
def test_checkpoints_with_a_task_head(tmp_path, make):
    oracle = make(transformers.BertConfig(**settings())).eval()
    oracle.save_pretrained(tmp_path)
    model = BertModel.from_pretrained(tmp_path)
    ids, mask = batch(3, 6)
    assert_close(
        model(ids, mask).pooler_output, oracle.bert(ids, mask).pooler_output, atol=1e-5, rtol=1e-5
    )


def test_missing_pooler_is_drawn_and_announced(tmp_path):
    oracle = transformers.BertForMaskedLM(
        transformers.BertConfig(**settings(64), initializer_range=0.05)
    ).eval()
    oracle.save_pretrained(tmp_path)
    with pytest.warns(UserWarning, match="no pooler"):
        model = BertModel.from_pretrained(tmp_path)
    ids, mask = batch(3, 6)
    theirs = oracle.bert(ids, mask).last_hidden_state
    assert_close(
        model(ids, mask).last_hidden_state[mask == 1], theirs[mask == 1], atol=1e-5, rtol=1e-5
    )
    # nine standard errors, 1 / sqrt(2 * 64**2) each
    assert abs(model.pooler_dense.weight.std().item() / 0.05 - 1) < 0.1
    assert not model.pooler_dense.bias.any()
    torch.manual_seed(5)
    # a folder is one model: who finishes another's work compares checksums
    with pytest.warns(UserWarning, match="no pooler"):
        assert torch.equal(
            BertModel.from_pretrained(tmp_path).pooler_dense.weight, model.pooler_dense.weight
        )


def test_pickled_weights_and_old_names(saved):
    model, folder = saved
    tensors = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    old = {
        "bert."
        + k.replace("LayerNorm.weight", "LayerNorm.gamma").replace(
            "LayerNorm.bias", "LayerNorm.beta"
        ): v
        for k, v in tensors.items()
    }
    old["bert.embeddings.position_ids"] = torch.arange(40)[None]
    old["cls.seq_relationship.bias"] = torch.zeros(2)
    torch.save(old, folder / "pytorch_model.bin")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        same(model, BertModel.from_pretrained(folder))


class Evil:
    def __reduce__(self):
        return (print, ("this code must not run",))


def test_pickles_cannot_run_code(saved, capsys):
    _, folder = saved
    (folder / "model.safetensors").unlink()
    torch.save({"x": Evil()}, folder / "pytorch_model.bin")
    with pytest.raises(
        ValueError, match=r"pytorch_model.bin: .*\((U|u)nsupported .*print.*; nothing in it was run"
    ) as refused:
        BertModel.from_pretrained(folder)
    assert "must not run" not in capsys.readouterr().out
    assert "weights_only" not in str(refused.value)  # torch advises to load it all the same


@pytest.mark.parametrize("name", ["model.safetensors", "pytorch_model.bin"])
def test_a_pointer_of_git_lfs_is_called_so(saved, name):
    _, folder = saved
    (folder / "model.safetensors").unlink()
    (folder / name).write_text(
        "version https://git-lfs.github.com/spec/v1\noid sha256:0123\nsize 90868376\n"
    )
    with pytest.raises(ValueError, match=f"{name}: expected .*`git lfs pull` fetches"):
        BertModel.from_pretrained(folder)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_on_disk_is_float32_in_memory(saved, dtype):
    model, folder = saved
    model.save_pretrained(folder, dtype=dtype)
    assert {t.dtype for t in load_tensors(folder).values()} == {dtype}
    again = BertModel.from_pretrained(folder)
    assert {p.dtype for p in again.parameters()} == {torch.float32}
    for a, b in zip(model.parameters(), again.parameters()):
        assert_close(a.to(dtype).float(), b, atol=0, rtol=0)
    assert next(model.parameters()).dtype == torch.float32
    # 5 would keep the file's
    assert {p.dtype for p in transformers.BertModel.from_pretrained(folder).parameters()} == {
        torch.float32
    }


@pytest.mark.parametrize(
    "dtype",
    [torch.int8, torch.bool, torch.complex64, torch.float8_e4m3fn, "float16", None],
    ids=str,
)
def test_a_dtype_that_no_reader_takes_is_refused_and_the_folder_stays(saved, dtype):
    """The numbers of a model are below one: as bytes they would all be zero, in the place of the
    weights that were there.
    """
    model, folder = saved
    with pytest.raises(
        ValueError, match=f"expected a dtype among torch.float32, .*, got {dtype!r}"
    ):
        model.save_pretrained(folder, dtype)
    same(model, BertModel.from_pretrained(folder))


@pytest.mark.parametrize("value, dtype", [(1e6, torch.float16), (math.nan, torch.float32)], ids=str)
def test_numbers_that_could_not_be_read_again_are_not_saved(saved, value, dtype):
    model, folder = saved
    broken = copy.deepcopy(model)
    with torch.no_grad():
        broken.bert_layers[1].out_dense.weight[3, 2] = value
    with pytest.raises(
        ValueError, match=f"in {dtype}: expected finite numbers in tensor '{POINT}', got 1 of 384"
    ):
        broken.save_pretrained(folder, dtype)
    same(model, BertModel.from_pretrained(folder))
    assert sorted(file.name for file in folder.iterdir()) == ["config.json", "model.safetensors"]


def rewrite(folder, change):
    tensors = load_file(folder / "model.safetensors")
    change(tensors)
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})


POINT = "encoder.layer.1.output.dense.weight"


@pytest.mark.parametrize(
    "change, message",
    [
        (lambda t: t.pop(POINT), "expected tensors .*" + POINT),
        (lambda t: t.pop("pooler.dense.bias"), "pooler.dense.bias"),
        (lambda t: t.update({POINT: torch.zeros(16, 23)}), POINT + r".*\(16, 24\).*\(16, 23\)"),
        (lambda t: t.update({POINT: torch.zeros(24, 16)}), POINT + r".*\(16, 24\).*\(24, 16\)"),
        (
            lambda t: t.update({POINT: torch.zeros(16, 24, dtype=torch.int8)}),
            POINT + ".*float.*int8",
        ),
        (
            lambda t: t.update({"encoder.layer.2.output.dense.bias": torch.zeros(16)}),
            "encoder.layer.2",
        ),
        (lambda t: t.update({"something.else": torch.zeros(1)}), "something.else"),
        (lambda t: t.update({"bert." + POINT: torch.zeros(16, 24)}), "output.dense.weight.*twice"),
    ],
    ids=[
        "missing",
        "half a pooler",
        "shape",
        "transposed",
        "integers",
        "extra layer",
        "foreign",
        "twice",
    ],
)
def test_checkpoint_that_does_not_fit(saved, change, message):
    _, folder = saved
    rewrite(folder, change)
    with pytest.raises(ValueError, match=message):
        BertModel.from_pretrained(folder)


@pytest.mark.parametrize("keep", [0, 4, 300, 0.5, 0.999])
@pytest.mark.parametrize("name", ["model.safetensors", "pytorch_model.bin"])
def test_file_cut_short(saved, name, keep):
    model, folder = saved
    if name.endswith(".bin"):
        (folder / "model.safetensors").unlink()
        torch.save({hugging_face_name(k): v for k, v in model.state_dict().items()}, folder / name)
    data = (folder / name).read_bytes()
    (folder / name).write_bytes(data[: int(len(data) * keep) if isinstance(keep, float) else keep])
    with pytest.raises(ValueError, match=name):
        BertModel.from_pretrained(folder)


@pytest.mark.parametrize(
    "content, odd",
    [
        ([1, 2], "list"),
        ({"x": 3}, "x"),
        (torch.zeros(3), "Tensor"),
        ({"state_dict": {"a": torch.zeros(3)}}, "state_dict"),
    ],
    ids=str,
)
def test_pickle_of_something_else(saved, content, odd):
    _, folder = saved
    (folder / "model.safetensors").unlink()
    torch.save(content, folder / "pytorch_model.bin")
    with pytest.raises(
        ValueError,
        match=f"pytorch_model.bin: expected tensors by their names, got something else: '{odd}'",
    ):
        BertModel.from_pretrained(folder)


def test_missing_files(saved):
    _, folder = saved
    (folder / "model.safetensors").unlink()
    with pytest.raises(ValueError, match="model.safetensors or pytorch_model.bin"):
        BertModel.from_pretrained(folder)
    (folder / "model.safetensors.index.json").write_text(
        '{"weight_map": {"a": "model-1.safetensors"}}'
    )
    with pytest.raises(ValueError, match="model-1.safetensors"):
        BertModel.from_pretrained(folder)
    for broken in ("{", "{}", "[]"):
        (folder / "model.safetensors.index.json").write_text(broken)
        with pytest.raises(ValueError, match="index.json"):
            BertModel.from_pretrained(folder)
    (folder / "config.json").unlink()
    with pytest.raises(ValueError, match="config.json"):
        BertModel.from_pretrained(folder)


def test_unknown_name_without_network(monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(ValueError, match="no-such-owner/no-such-model"):
        BertModel.from_pretrained("no-such-owner/no-such-model")


def test_a_failed_save_leaves_the_old_files(saved, monkeypatch):
    model, folder = saved
    before = {f.name: f.read_bytes() for f in folder.iterdir()}

    def half(tensors, file, metadata):
        file.write_bytes(b"half")
        raise OSError("disk full")

    monkeypatch.setattr("safetensors.torch.save_file", half)
    with pytest.raises(OSError, match="disk full"):
        small(seed=5).save_pretrained(folder)
    assert {f.name: f.read_bytes() for f in folder.iterdir()} == before
    same(model, BertModel.from_pretrained(folder))


def test_saving_over_an_older_model_and_into_a_file(saved, tmp_path):
    model, folder = saved
    other = small(seed=9, num_hidden_layers=3)
    other.save_pretrained(folder)
    same(other, BertModel.from_pretrained(folder))
    (tmp_path / "file").write_text("x")
    with pytest.raises(ValueError, match="expected a folder"):
        model.save_pretrained(tmp_path / "file")
    assert (tmp_path / "file").read_text() == "x"


def test_embedded_model_loads_and_matches_transformers(tmp_path):
    model = BertModel.from_pretrained()
    assert {p.dtype for p in model.parameters()} == {torch.float32}
    model.save_pretrained(tmp_path)
    oracle = (
        transformers.AutoModel.from_pretrained(tmp_path, attn_implementation="eager")
        .eval()
        .double()
    )
    # trained weights make large sums of both signs, which float32 rounds otherwise on each
    # processor
    model.double()
    ids, mask = batch(4, 30, vocab=model.config.vocab_size)
    with torch.no_grad():
        for run in WAYS.values():
            a, b = run(model, ids, mask), oracle(ids, mask)
            real = mask.bool()
            assert_close(
                a.last_hidden_state[real], b.last_hidden_state[real], atol=1e-10, rtol=1e-10
            )


# Imports -------------------------------------------------------------------------------------


def test_import_brings_nothing_heavy():
    """What costs time at import: the list is checked, the clock is not."""
    code = (
        "import torch, sys; before = set(sys.modules); import minbert.encoder; "
        "print(*{m.split('.')[0] for m in set(sys.modules) - before})"
    )
    found = subprocess.run(
        [sys.executable, "-c", code], check=True, capture_output=True, text=True
    ).stdout.split()
    heavy = {
        "transformers",
        "matplotlib",
        "scipy",
        "sklearn",
        "datasets",
        "accelerate",
        "huggingface_hub",
        "tokenizers",
        "safetensors",
        "pandas",
        "seaborn",
        "fastcore",
        "IPython",
    }
    assert "minbert" in found and not heavy & set(found)


def test_loading_encoding_and_training_do_not_load_torchs_compiler(tmp_path):
    """It takes longer than reading the weights, and a shell command pays for it every time."""
    code = (
        "import sys, torch\nfrom minbert.data import load_dataset\nfrom minbert.heads import MultitaskBert, default_heads\n"
        "from minbert.sentence import SentenceEncoder\nfrom minbert.finetune import TrainConfig, fit\nbefore = torch.get_rng_state()\n"
        "encoder = SentenceEncoder.from_pretrained(device='cpu')\nencoder.encode(['A dog barks.'])\n"
        "assert torch.equal(torch.get_rng_state(), before), 'weights were drawn'\n"
        "few = {'sentiment': load_dataset('sentiment', 'dev').subset(range(4))}\n"
        f"fit(MultitaskBert(encoder, default_heads(256, ['sentiment'])), few, few, TrainConfig(('sentiment',), steps=1, batch_size=2), {str(tmp_path / 'run')!r})\n"
        "assert 'torch._dynamo' not in sys.modules, 'the compiler was loaded'\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("precision", [None, torch.bfloat16])
@pytest.mark.parametrize("part", ["layer", "model"])
def test_compiles_into_one_graph_that_serves_all_shapes(part, precision):
    """A look at a value would split the graph; a number taken for a constant would make a new one
    for each batch. Backward included.
    """
    import torch._dynamo.testing

    torch._dynamo.reset()
    counter = torch._dynamo.testing.CompileCounter()
    model = BertModel(
        BertConfig(60, 16, 2, 2, 32, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
    ).train()
    module = model.bert_layers[0] if part == "layer" else model
    compiled = torch.compile(module, backend=counter, fullgraph=True, dynamic=True)
    generator = torch.Generator().manual_seed(0)
    for rows, width in ((2, 5), (3, 5), (4, 9), (7, 30)):
        if part == "layer":
            inputs = (torch.randn(rows, width, 16, generator=generator),)

            def run(f):
                return f(*inputs)
        else:
            inputs = (
                torch.randint(1, 60, (rows, width), generator=generator),
                (torch.arange(width) < torch.arange(1, rows + 1)[:, None] + 1).long(),
            )

            def run(f):
                return f(*inputs).last_hidden_state

        found = []
        for f in (compiled, module):
            module.zero_grad()
            with torch.autocast("cpu", precision or torch.bfloat16, enabled=precision is not None):
                out = run(f)
            out.float().square().mean().backward()
            found.append(
                (out.detach(), [p.grad.clone() for p in module.parameters() if p.grad is not None])
            )
        assert_close(*found)
    assert counter.frame_count == 1, f"{counter.frame_count} graphs for four shapes"


def test_a_file_in_the_place_of_the_folder_is_named(saved, tmp_path):
    (tmp_path / "file").write_text("mine")
    with pytest.raises(
        ValueError, match=f"expected a folder to save in, got the file {tmp_path / 'file'}"
    ):
        saved[0].save_pretrained(tmp_path / "file")
    assert (tmp_path / "file").read_text() == "mine"
