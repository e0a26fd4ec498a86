"""The fast forward: packed and padded give what the taught encoder gives, in values and gradients, and
each kernel stands where it should.
"""

from functools import partial

import pytest
import torch
import torch.nn.functional as F
from torch.testing import assert_close
from toys import batch, small

from minbert import attention as chapter
from minbert.attention import SelfAttention
from minbert.encoder import BertConfig, BertLayer, BertModel
from minbert.encoding import forward
from minbert.encoding.forward import (
    FastModel,
    encode_batch,
    only_taught_code,
    packing_pays,
    with_attention,
)
from minbert.encoding.packing import Packing, Padded

# The same as the taught forward --------------------------------------------------------------

MASKS = {
    "full": [[1, 1, 1, 1, 1]] * 3,
    "lengths": [[1, 1, 1, 1, 1], [1, 0, 0, 0, 0], [1, 1, 1, 0, 0], [1, 1, 1, 0, 0]],
    "holes": [[1, 0, 1, 1, 0], [1, 1, 0, 0, 1], [1, 0, 0, 0, 1]],
    "one": [[1, 1, 1, 0, 0]],
    "single token": [[1]],
    "two of one length, other places": [[1, 1, 0, 0], [1, 0, 0, 1], [1, 1, 1, 1]],
}
FAST = {
    "padded": partial(encode_batch, packed=False),
    "packed": partial(encode_batch, packed=True),
    "as it pays": encode_batch,
}


def loss_of(out, real):
    """A number to which every part of an output contributes."""
    weights = torch.linspace(-1, 1, out.last_hidden_state.numel(), dtype=torch.float64)
    target = weights.view_as(out.last_hidden_state)
    return (
        (out.last_hidden_state * target)[real].sum()
        + out.pooler_output.sum()
        + out.hidden_states[1][real].square().sum()
    )


@pytest.mark.parametrize("training", [False, True], ids=["eval", "train"])
@pytest.mark.parametrize("run", FAST.values(), ids=FAST)
@pytest.mark.parametrize("name", MASKS)
def test_values_and_gradients_are_those_of_the_taught_forward(name, run, training):
    mask = torch.tensor(MASKS[name])
    off = dict(hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
    model = small(**off).double().train(training)
    ids = torch.randint(1, 97, mask.shape, generator=torch.Generator().manual_seed(1))
    real, grads = mask.bool(), []
    taught = model(ids, mask, ids % 2, True)
    fast = run(model, ids, mask, ids % 2, True)
    assert len(taught.hidden_states) == len(fast.hidden_states) == 3
    for a, b in zip(taught.hidden_states, fast.hidden_states):
        assert_close(a[real], b[real], atol=1e-10, rtol=1e-10)
    assert_close(taught.pooler_output, fast.pooler_output, atol=1e-10, rtol=1e-10)
    for out in (taught, fast):
        model.zero_grad()
        loss_of(out, real).backward()
        grads.append({k: p.grad.clone() for k, p in model.named_parameters()})
    assert_close(grads[0], grads[1], atol=1e-10, rtol=1e-8)


def test_packed_gives_zeros_at_padding():
    mask = torch.tensor(MASKS["holes"])
    out = encode_batch(small(), mask + 3, mask, output_hidden_states=True, packed=True)
    assert not any(h[mask == 0].any() for h in out.hidden_states)


@pytest.mark.parametrize("run", FAST.values(), ids=FAST)
def test_random_masks(run):
    model = small()
    for seed in range(25):
        generator = torch.Generator().manual_seed(seed)
        B, T = torch.randint(1, 9, (2,), generator=generator).tolist()
        ids = torch.randint(0, 97, (B, T), generator=generator)
        mask = torch.randint(0, 2, (B, T), generator=generator)
        mask[:, 0] = 1
        a, b = (f(ids, mask).last_hidden_state for f in (model, partial(run, model)))
        assert_close(a[mask == 1], b[mask == 1])


@pytest.mark.parametrize("run", FAST.values(), ids=FAST)
@pytest.mark.parametrize("rate", ["hidden_dropout_prob", "attention_probs_dropout_prob"])
def test_dropout_has_the_distribution_of_the_taught_forward(rate, run):
    """Mean and standard deviation of 600 passes, number by number, within five standard errors."""
    off = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    model = small(**{**off, rate: 0.3}, num_hidden_layers=1).train()
    torch.manual_seed(5)
    ids, mask = torch.tensor([[3, 9, 4], [7, 5, 0]]), torch.tensor([[1, 1, 1], [1, 1, 0]])
    drawn = [
        torch.stack([f(ids, mask).last_hidden_state.detach()[mask == 1] for _ in range(600)])
        for f in (model, partial(run, model))
    ]
    (m, s), (n, t) = ((x.mean(0), x.std(0)) for x in drawn)
    error = ((s**2 + t**2) / 600).sqrt()
    assert ((m - n).abs() < 5 * error + 1e-6).all()
    assert ((s - t).abs() < 0.25 * (s + t) / 2 + 1e-3).all()


def test_bfloat16_is_roughly_the_same():
    model = small(hidden_size=64, num_attention_heads=4, intermediate_size=128)
    ids, mask = batch(6, 20)
    exact = model(ids, mask).last_hidden_state
    with torch.autocast("cpu", torch.bfloat16):
        outs = [run(model, ids, mask).last_hidden_state.float() for run in FAST.values()]
        loss = encode_batch(model, ids, mask).pooler_output.float().square().sum()
    loss.backward()
    assert all(p.grad.isfinite().all() for p in model.parameters())
    for out in outs:
        cosine = F.cosine_similarity(out, exact, dim=-1)[mask == 1]
        assert cosine.mean() > 0.999 and cosine.min() > 0.99
    assert not outs[1][mask == 0].any()


def test_bool_and_float_masks_mean_the_same():
    model = small()
    ids, mask = batch(3, 6)
    for run in FAST.values():
        a = run(model, ids, mask).last_hidden_state
        for other in (mask.bool(), mask.float(), mask.to(torch.int32)):
            assert_close(run(model, ids, other).last_hidden_state, a)


def test_the_mask_constant_is_that_of_the_chapter():
    assert forward._MASK_VALUE == chapter.MASK_VALUE


# What is not the taught code runs as it is ---------------------------------------------------


class Doubled(BertLayer):
    """A layer with another forward, which uses its own attention."""

    def forward(self, hidden_states, attention_mask=None):
        return 2 * super().forward(hidden_states, attention_mask)


class Shifted(SelfAttention):
    """An attention with another forward."""

    def forward(self, hidden_states, attention_mask=None):
        return 1 + super().forward(hidden_states, attention_mask)


class FirstOnly(SelfAttention):
    """An attention in which every token reads the first."""

    def attend(self, query, key, value, mask=None):
        return value[:, :1].expand_as(value)


class Negative(SelfAttention):
    """An attention with other projections."""

    def project(self, hidden_states):
        query, key, value = super().project(hidden_states)
        return query, -key, value


def changed_layer(kind):
    model = small()
    if issubclass(kind, BertLayer):
        model.bert_layers[0].__class__ = kind
    else:
        model.bert_layers[0].self_attention.__class__ = kind
    return model


@pytest.mark.parametrize("kind", [Doubled, Shifted, FirstOnly, Negative])
@pytest.mark.parametrize("run", FAST.values(), ids=FAST)
def test_a_subclass_does_what_it_does(kind, run):
    model = changed_layer(kind)
    ids, mask = batch(4, 7)
    expected = model(ids, mask).last_hidden_state[mask == 1]
    assert (expected - small()(ids, mask).last_hidden_state[mask == 1]).abs().max() > 1e-2
    assert_close(run(model, ids, mask).last_hidden_state[mask == 1], expected)


@pytest.mark.parametrize("run", FAST.values(), ids=FAST)
def test_a_learners_class_of_the_same_name_runs_its_own_code(run):
    names = {"Base": SelfAttention, "__name__": "mybert.attention"}
    lines = (
        "class SelfAttention(Base):",
        "    def attend(self, query, key, value, mask=None):",
        "        return value[:, :1].expand_as(value)",
    )
    exec("\n".join(lines), names)
    assert names["SelfAttention"].attend.__qualname__ == SelfAttention.attend.__qualname__
    model, expected = changed_layer(names["SelfAttention"]), changed_layer(FirstOnly)
    ids, mask = batch(4, 7)
    found = run(model, ids, mask).last_hidden_state[mask == 1]
    assert_close(found, expected(ids, mask).last_hidden_state[mask == 1])


@pytest.mark.parametrize("place", ["model", "layer", "attention", "norm"])
@pytest.mark.parametrize("run", FAST.values(), ids=FAST)
def test_hooks_are_called_and_may_change_the_result(place, run):
    model = small()
    layer = model.bert_layers[1]
    part = {"model": model, "layer": layer, "attention": layer.self_attention}
    part = part.get(place, layer.out_layer_norm)

    def doubled(module, inputs, out):
        return out._replace(last_hidden_state=2 * out[0]) if place == "model" else 2 * out

    part.register_forward_hook(doubled)
    ids, mask = batch(4, 7)
    expected = model(ids, mask).last_hidden_state[mask == 1]
    assert_close(run(model, ids, mask).last_hidden_state[mask == 1], expected)
    assert not torch.allclose(expected, small()(ids, mask).last_hidden_state[mask == 1])


def test_a_model_with_a_forward_of_its_own_is_called(monkeypatch):
    model = small()
    monkeypatch.setattr(model, "forward", lambda ids, mask: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        encode_batch(model, *batch(2, 3))


def test_inside_the_block_the_taught_code_runs(monkeypatch):
    """The integration run of a course counts which functions were called."""
    model, calls = small(), []
    maps = chapter.attention_maps
    monkeypatch.setattr(chapter, "attention_maps", lambda *a: calls.append(1) or maps(*a))
    ids, mask = batch(3, 5)
    outs = [encode_batch(model, ids, mask)]
    assert not calls
    with only_taught_code():
        outs.append(encode_batch(model, ids, mask))
        empty = encode_batch(model, ids, mask * torch.tensor([[1], [0], [1]]), allow_empty=True)
    assert len(calls) == 2 * model.config.num_hidden_layers
    assert not empty.pooler_output[1].any() and empty.pooler_output[0].any()
    outs.append(encode_batch(model, ids, mask))
    assert len(calls) == 2 * model.config.num_hidden_layers
    assert_close(outs[0].pooler_output, outs[1].pooler_output)


def test_a_fast_model_stands_in_for_its_model():
    model = small()
    ids, mask = batch(3, 5)
    for packed in (True, False, None):
        fast = FastModel(model, packed)
        expected = encode_batch(model, ids, mask, packed=packed)
        assert torch.equal(fast(ids, mask).last_hidden_state, expected.last_hidden_state)
        assert fast.embedding is model.embedding and fast.config is model.config
        assert fast(ids, attention_mask=mask, output_hidden_states=True).hidden_states is not None


def test_a_layer_with_another_attention_shares_its_weights():
    layer = small().bert_layers[0]
    zeros = torch.nn.Linear(16, 16)
    torch.nn.init.zeros_(zeros.weight), torch.nn.init.zeros_(zeros.bias)

    class Nothing(torch.nn.Module):
        def forward(self, hidden_states, attention_mask=None):
            return zeros(hidden_states)

    twin = with_attention(layer, Nothing())
    assert twin.out_dense is layer.out_dense and twin.training == layer.training
    h = torch.randn(2, 3, 16)
    assert not torch.allclose(twin(h), layer(h))
    assert isinstance(layer.self_attention, SelfAttention)


def test_packing_pays_on_a_cpu():
    assert packing_pays(small(), torch.ones(2, 3))


# Layouts -------------------------------------------------------------------------------------


def test_packing_round_trip_and_order():
    packing = Packing(torch.tensor([[1, 1, 0], [0, 0, 0], [1, 0, 0], [1, 1, 1], [1, 0, 1]]))
    assert packing.groups == [(1, 1), (2, 2), (1, 3)]
    assert packing.cells.tolist() == [6, 0, 1, 12, 14, 9, 10, 11]
    assert packing.positions.tolist() == [0, 0, 1, 0, 2, 0, 1, 2]
    x = torch.randn(5, 3, 2)
    back = packing.unpack(packing.pack(x))
    keep = (
        torch.zeros(5, 3, dtype=torch.bool).flatten().index_fill(0, packing.cells, True).view(5, 3)
    )
    assert_close(back, x * keep[..., None])


def test_padded_leaves_a_batch_as_it_is():
    x, mask = torch.randn(2, 3, 4), torch.tensor([[1, 1, 0], [1, 1, 1]])
    layout = Padded(mask)
    assert layout.pack(x) is x and layout.unpack(x) is x and layout.mask is mask
    assert layout.inside(lambda x, mask: (x, mask), x) == (x, mask)


# Bfloat16 on a CPU: a training step goes through the map -------------------------------------


def narrow_gradients(model, batch, monkeypatch, fused):
    """Gradients of a packed step in bfloat16, by the map or by torch's fused attention."""
    if fused:
        monkeypatch.setattr(forward, "_map_is_faster", lambda *_: False)
    with torch.autocast("cpu", torch.bfloat16):
        hidden = encode_batch(model, *batch, packed=True).last_hidden_state
    return torch.autograd.grad(
        hidden.float().square().mean(),
        [p for n, p in model.named_parameters() if "pooler" not in n],
    )


def test_in_bfloat16_the_map_gives_the_gradients_of_the_fused_kernel(monkeypatch):
    """Both round to eight bits; the sum over the tokens makes the difference of a tensor small
    beside its length.
    """
    torch.manual_seed(0)
    model = BertModel(BertConfig(50, 32, 2, 4, 64, 0.0, 0.0, 40)).train()
    ids = torch.randint(1, 50, (6, 11))
    batch = ids, (torch.arange(11) < torch.tensor([11, 3, 11, 7, 7, 1])[:, None]).long()
    by_map = narrow_gradients(model, batch, monkeypatch, fused=False)
    for one, other in zip(by_map, narrow_gradients(model, batch, monkeypatch, fused=True)):
        assert (one - other).norm() <= 4 * 2**-8 * other.norm() + 2**-8 * max(
            g.norm() for g in by_map
        ) * one.numel() ** -0.5


def makes_the_map(monkeypatch, T, heads=1, dtype=torch.bfloat16, train=True):
    """Does a packed pass over sentences of T tokens make an attention map? Widths are 16 a head."""
    made, maps = [], chapter.attention_maps
    monkeypatch.setattr(chapter, "attention_maps", lambda *args: (made.append(1), maps(*args))[1])
    model = BertModel(BertConfig(50, 16 * heads, 1, heads, 64, 0.0, 0.0, 512))
    ids = torch.ones(2, T, dtype=torch.long)
    with (
        torch.set_grad_enabled(train),
        torch.autocast("cpu", dtype, enabled=dtype == torch.bfloat16),
    ):
        encode_batch(model, ids, torch.ones_like(ids), packed=True)
    return bool(made)


@pytest.mark.parametrize(
    "dtype, train, expected",
    [(torch.bfloat16, True, True), (torch.bfloat16, False, False), (torch.float32, True, False)],
)
def test_only_a_training_step_in_bfloat16_makes_the_map(monkeypatch, dtype, train, expected):
    assert makes_the_map(monkeypatch, 5, dtype=dtype, train=train) == expected


@pytest.mark.parametrize("heads", [1, 3])
@pytest.mark.parametrize("T, expected", [(64, True), (65, False), (512, False)])
def test_a_map_is_kept_while_a_token_s_part_is_no_larger_than_four_vectors(
    monkeypatch, heads, T, expected
):
    """Heads of 16: H T numbers a token against 4 * 16 H."""
    assert makes_the_map(monkeypatch, T, heads) == expected


def test_512_tokens_go_the_fused_way_and_both_ways_agree(monkeypatch):
    """Value and gradient; each way rounds to eight bits, at a few places."""
    torch.manual_seed(0)
    attention = SelfAttention(64, 4, dropout=0.0).train()
    mask = torch.ones(2, 512, dtype=torch.long)
    qkv = [torch.randn(1024, 64).bfloat16().requires_grad_() for _ in range(3)]
    weight = torch.randn(1024, 64)

    def value_and_gradients():
        out = Packing(mask).inside(partial(forward._attend, attention), *qkv)
        return out, *torch.autograd.grad((out.float() * weight).sum(), qkv)

    maps = chapter.attention_maps
    monkeypatch.setattr(
        chapter, "attention_maps", lambda *args: pytest.fail("a map of 512 x 512 was made")
    )
    fused = value_and_gradients()
    monkeypatch.setattr(chapter, "attention_maps", maps)
    monkeypatch.setattr(forward, "_map_is_faster", lambda *_: True)
    for one, other in zip(value_and_gradients(), fused):
        assert (one - other).norm() <= 4 * torch.finfo(torch.bfloat16).eps * other.norm()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_packed_pass_asks_a_subclass_for_its_own_attend(dtype):
    """In bfloat16, too, where training otherwise goes by the map; and an attend that one module was
    given.
    """

    class First(SelfAttention):
        def attend(self, query, key, value, mask=None):
            return value[:, :1].expand_as(value)  # every token reads the first

    given = SelfAttention(16, 2).train()
    given.attend = lambda query, key, value, mask=None: value[:, :1].expand_as(value)
    value = torch.randn(5, 16).to(dtype).requires_grad_()
    for attention in (First(16, 2).train(), given):
        out = Packing(torch.tensor([[1, 1, 1], [1, 1, 0]])).inside(
            partial(forward._attend, attention), value, value, value
        )
        assert torch.equal(out, value[[0, 0, 2, 2, 2]])


def test_the_map_of_a_training_step_has_dropout():
    """With identity values the output is the map: a share p of it is zero, the rest grew by 1 / (1
    - p).
    """
    torch.manual_seed(0)
    attention = SelfAttention(64, 1, dropout=0.25).train()
    # equal scores: every share is 1/64
    x = torch.zeros(40, 64, 64, dtype=torch.bfloat16, requires_grad=True)
    values = torch.eye(64, dtype=torch.bfloat16).expand(40, 64, 64)
    out = forward._attend(attention, x, x, values, None)
    kept = out != 0
    assert abs(kept.float().mean() - 0.75) < 4.5 * (0.25 * 0.75 / out.numel()) ** 0.5
    assert_close(out[kept], torch.full_like(out[kept], 1 / 64 / 0.75), rtol=2**-7, atol=0)
    assert (forward._attend(attention.eval(), x, x, values, None) != 0).all()


@pytest.mark.parametrize("precision", [None, torch.bfloat16])
def test_compiled_layers_share_one_program_for_all_shapes(monkeypatch, precision):
    """Padded, as on a GPU; values and gradients are those of the taught forward."""
    import torch._dynamo.testing

    torch._dynamo.reset()
    counter = torch._dynamo.testing.CompileCounter()
    program = torch.compile(forward._call, backend=counter, fullgraph=True, dynamic=True)
    monkeypatch.setattr(forward, "_compiled_call", lambda: program)
    off = dict(hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
    model = small(num_hidden_layers=3, **off).train()
    plain = small(num_hidden_layers=3, **off).train()
    for layer in model.bert_layers:
        layer.compile(dynamic=True)
    for rows, width in ((2, 5), (3, 5), (4, 9), (7, 30)):
        ids, mask = batch(rows, width)
        found = []
        with torch.autocast("cpu", precision or torch.bfloat16, enabled=precision is not None):
            for f in (partial(encode_batch, model, packed=False), plain):
                found.append(f(ids, mask).last_hidden_state[mask == 1].float())
        for out, module in zip(found, (model, plain)):
            module.zero_grad()
            out.square().mean().backward()
        if precision is None:
            assert_close(*found)
            assert_close(*([p.grad for p in m.parameters()] for m in (model, plain)))
        else:
            assert F.cosine_similarity(*found, dim=-1).min() > 0.99
    assert counter.frame_count == 1, f"{counter.frame_count} graphs"


def test_padding_is_masked_by_the_same_number_as_in_the_chapter():
    """Any large number masks padding; in a row of padding only, its size shows."""
    assert forward._MASK_VALUE == chapter.MASK_VALUE
