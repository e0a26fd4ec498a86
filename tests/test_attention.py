"""Attention: other people's implementations over many shapes, gradients, and what must not matter."""

import math

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.testing import assert_close

from minbert.attention import (
    MASK_VALUE,
    SelfAttention,
    attention_maps,
    merge_heads,
    padding_bias,
    scaled_dot_product_attention,
    split_heads,
)

SHAPES = [  # B, T, H, K
    (2, 7, 3, 4),
    (1, 1, 1, 1),
    (3, 1, 2, 8),
    (1, 5, 3, 4),
    (4, 9, 4, 16),
    (2, 33, 2, 64),
    (5, 5, 5, 5),
]


def lengths_mask(B: int, T: int, seed: int) -> torch.Tensor:
    """At least one real token a row, at least one full row; lengths differ."""
    g = torch.Generator().manual_seed(seed)
    lengths = torch.randint(1, T + 1, (B,), generator=g)
    lengths[0] = T
    return (torch.arange(T) < lengths[:, None]).long()


def projected(B, T, H, K, seed=0, dtype=torch.float32):
    g = torch.Generator().manual_seed(seed)
    return torch.randn(3, B, H, T, K, generator=g, dtype=torch.float64).to(dtype).unbind()


def by_definition(q, k, v, mask=None):
    """Softmax over real keys only, token by token, in float64."""
    q, k, v = q.double(), k.double(), v.double()
    out = torch.zeros_like(q)
    for b in range(len(q)):
        real = torch.ones(k.shape[-2], dtype=torch.bool) if mask is None else mask[b].bool()
        for h in range(q.shape[1]):
            for t in range(q.shape[2]):
                scores = k[b, h, real] @ q[b, h, t] / math.sqrt(q.shape[-1])
                powers = (scores - scores.max()).exp()
                out[b, h, t] = powers @ v[b, h, real] / powers.sum()
    return out


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("masked", [False, True])
def test_values_by_definition(shape, masked):
    B, T, H, K = shape
    q, k, v = projected(*shape)
    mask = lengths_mask(B, T, 1) if masked else None
    expected = by_definition(q, k, v, mask).float()
    assert_close(scaled_dot_product_attention(q, k, v, mask), expected, atol=1e-5, rtol=1e-5)
    assert_close(attention_maps(q, k, mask) @ v, expected, atol=1e-5, rtol=1e-5)


def test_queries_and_keys_keep_their_roles():
    """More keys than queries: rows are queries, columns are keys, and the mask belongs to the keys."""
    q, _, _ = projected(2, 3, 2, 4)
    _, k, v = projected(2, 6, 2, 4, seed=1)
    mask = torch.tensor([[1, 1, 1, 1, 1, 1], [1, 1, 0, 0, 0, 0]])
    maps = attention_maps(q, k, mask)
    assert maps.shape == (2, 2, 3, 6)
    assert_close(maps @ v, by_definition(q, k, v, mask).float())


@pytest.mark.parametrize(
    "dtype", [torch.bool, torch.int32, torch.int64, torch.float32, torch.uint8]
)
def test_any_mask_dtype(dtype):
    q, k, v = projected(3, 6, 2, 4)
    mask = lengths_mask(3, 6, 2)
    assert_close(
        scaled_dot_product_attention(q, k, v, mask.to(dtype)),
        scaled_dot_product_attention(q, k, v, mask),
    )


def test_a_mask_with_holes():
    q, k, v = projected(2, 5, 3, 4)
    mask = torch.tensor([[1, 0, 1, 0, 1], [0, 0, 0, 0, 1]])
    assert_close(scaled_dot_product_attention(q, k, v, mask), by_definition(q, k, v, mask).float())


def test_padding_neither_speaks_nor_learns():
    q, k, v = (x.requires_grad_() for x in projected(2, 6, 3, 4, dtype=torch.float64))
    mask = torch.tensor([[1, 1, 1, 1, 0, 0], [1, 1, 1, 1, 1, 1]])
    loud_k, loud_v = k.detach().clone(), v.detach().clone()
    loud_k[0, :, 4:] = 30 * q.detach()[0, :, :2]
    loud_v[0, :, 4:] = 1e6
    quiet = scaled_dot_product_attention(q, k, v, mask)
    assert_close(scaled_dot_product_attention(q, loud_k, loud_v, mask), quiet)
    probe = torch.randn(
        quiet.shape, generator=torch.Generator().manual_seed(4), dtype=torch.float64
    )
    _, grad_k, grad_v = torch.autograd.grad((quiet * probe).sum(), (q, k, v))
    assert (grad_k[0, :, 4:] == 0).all() and (grad_v[0, :, 4:] == 0).all()
    assert (grad_k[0, :, :4].abs().amax((0, 2)) > 0).all() and (
        grad_v[1].abs().amax((0, 2)) > 0
    ).all()


def test_more_padding_changes_nothing():
    q, k, v = projected(2, 4, 2, 8)
    longer = [torch.cat([x, torch.full((2, 2, 5, 8), 3.0)], 2) for x in (q, k, v)]
    mask = torch.tensor([[1, 1, 1, 1], [1, 1, 0, 0]])
    expected = scaled_dot_product_attention(q, k, v, mask)
    assert_close(scaled_dot_product_attention(*longer, F.pad(mask, (0, 5)))[:, :, :4], expected)


def test_gradcheck():
    leaves = [x.requires_grad_() for x in projected(2, 3, 2, 2, dtype=torch.float64)]
    mask = torch.tensor([[1, 1, 1], [1, 1, 0]])
    assert torch.autograd.gradcheck(lambda *x: scaled_dot_product_attention(*x, mask), leaves)
    assert torch.autograd.gradcheck(lambda q, k: attention_maps(q, k, mask), leaves[:2])


@pytest.mark.parametrize("size", [1e2, 1e4, 1e18])
def test_large_logits(size):
    q, k, v = (x.requires_grad_() for x in projected(2, 6, 3, 4))
    out = scaled_dot_product_attention(size * q, k, v)
    assert_close(out, by_definition(size * q, k, v).float(), atol=1e-3, rtol=1e-3)
    assert_close(attention_maps(size * q, k) @ v, out, atol=1e-3, rtol=1e-3)
    grads = torch.autograd.grad(out.square().sum(), (q, k, v))
    assert all(x.isfinite().all() for x in grads)
    assert attention_maps(size * q, k).isfinite().all()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision(dtype):
    q, k, v = projected(2, 6, 3, 16, dtype=dtype)
    mask = torch.tensor([[1, 1, 1, 1, 0, 0], [1, 1, 1, 1, 1, 1]])
    out = scaled_dot_product_attention(q, k, v, mask)
    assert out.dtype == dtype
    assert_close(out.double(), by_definition(q, k, v, mask), atol=3e-2, rtol=3e-2)
    maps = attention_maps(q, k, mask)
    assert maps.dtype == dtype and (maps[0, ..., 4:] == 0).all()
    nothing = torch.zeros(2, 6)
    assert scaled_dot_product_attention(20 * q, 20 * k, v, nothing).isfinite().all()
    assert attention_maps(20 * q, 20 * k, nothing).isfinite().all()


def test_all_padding_row_is_finite_in_values_and_gradients():
    q, k, v = (x.requires_grad_() for x in projected(2, 4, 2, 4))
    mask = torch.tensor([[0, 0, 0, 0], [1, 1, 1, 0]])
    out = scaled_dot_product_attention(q, k, v, mask)
    grads = torch.autograd.grad(out.sum(), (q, k, v))
    assert out.isfinite().all() and all(x.isfinite().all() for x in grads)
    assert_close(out[0], scaled_dot_product_attention(q, k, v)[0], atol=1e-2, rtol=1e-2)


def test_padding_bias():
    assert MASK_VALUE == -1e4
    mask = torch.tensor([[1, 0, 0], [1, 1, 1]])
    bias = padding_bias(mask, torch.zeros(2, 5, 3, 4, dtype=torch.float64))
    assert bias.dtype == torch.float64
    assert_close(
        bias, torch.tensor([[0, -1e4, -1e4], [0, 0, 0]], dtype=torch.float64).view(2, 1, 1, 3)
    )


def test_arguments_are_left_alone():
    q, k, v = projected(2, 5, 3, 4)
    mask = lengths_mask(2, 5, 3)
    before = [x.clone() for x in (q, k, v, mask)]
    scaled_dot_product_attention(q, k, v, mask)
    attention_maps(q, k, mask)
    assert all(torch.equal(a, b) for a, b in zip((q, k, v, mask), before))


def test_dropout_falls_on_the_map_before_the_values():
    """Twenty tokens of width 40, whose values are the identity twice over: the output shows the map
    twice.
    """
    q, k, _ = projected(8, 20, 2, 40)
    twice = torch.eye(20).repeat(1, 2).expand(8, 2, 20, 40)
    maps = attention_maps(q, k)
    torch.manual_seed(0)
    seen = scaled_dot_product_attention(q, k, twice, dropout_p=0.25)
    left, right = seen.chunk(2, -1)
    assert_close(left, right)
    assert_close(left, torch.where(left == 0, 0, maps / 0.75))
    assert 0.2 < (left == 0).float().mean() < 0.3
    assert_close(scaled_dot_product_attention(q, k, twice), maps.repeat(1, 1, 1, 2))


@pytest.mark.parametrize(
    "mask",
    [torch.ones(2, 4), torch.ones(3, 5), torch.ones(2, 1, 1, 5), torch.ones(5), torch.ones(5, 2)],
)
def test_a_mask_of_another_shape_is_refused(mask):
    q, k, v = projected(2, 5, 3, 4)
    for call in (
        lambda: scaled_dot_product_attention(q, k, v, mask),
        lambda: attention_maps(q, k, mask),
    ):
        with pytest.raises(ValueError, match=r"expected a mask of shape \(2, 5\)") as error:
            call()
        assert str(tuple(mask.shape)) in str(error.value)


@pytest.mark.parametrize("place", [1, 2])
@pytest.mark.parametrize("axis", [0, 1, 2, 3])
def test_shapes_that_would_broadcast_are_refused(place, axis):
    """One sentence, head, token or dimension for all of them."""
    qkv = list(projected(2, 5, 3, 4))
    qkv[place] = qkv[place].narrow(axis, 0, 1)
    with pytest.raises(ValueError, match="shapes differ"):
        scaled_dot_product_attention(*qkv)


def test_keys_without_batch_are_refused_with_a_mask():
    q, k, v = projected(5, 5, 1, 4)
    with pytest.raises(ValueError):
        scaled_dot_product_attention(q[:, 0], k[:, 0], v[:, 0], torch.ones(5, 5))


# Heads


@pytest.mark.parametrize("heads,width", [(1, 6), (2, 3), (3, 4), (12, 1)])
def test_heads_are_slices_of_the_width(heads, width):
    x = torch.randn(2, 5, heads * width)
    cut = split_heads(x, heads)
    assert cut.shape == (2, heads, 5, width)
    for h in range(heads):
        assert torch.equal(cut[:, h], x[..., h * width : (h + 1) * width])
    assert torch.equal(merge_heads(cut), x)
    assert torch.equal(split_heads(x[0], heads), cut[0]) and torch.equal(merge_heads(cut[0]), x[0])


# The module

# B, T, D, H
MODULES = [
    (2, 7, 12, 3),
    (1, 1, 12, 3),
    (3, 5, 8, 1),
    (4, 17, 32, 4),
    (2, 40, 48, 12),
    (1, 9, 6, 6),
]


def module(D, H, seed=0):
    torch.manual_seed(seed)
    attention = SelfAttention(D, H)
    for p in attention.parameters():  # biases as large as weights, so that none can be forgotten
        nn.init.normal_(p, std=0.5)
    return attention.eval()


def transformers_attention(attention, D, H):
    from transformers import BertConfig
    from transformers.models.bert.modeling_bert import BertSelfAttention

    config = BertConfig(hidden_size=D, num_attention_heads=H, intermediate_size=D)
    config._attn_implementation = "eager"
    oracle = BertSelfAttention(config).eval()
    oracle.load_state_dict(attention.state_dict(), strict=True)  # the names are theirs
    return oracle


@pytest.mark.parametrize("B,T,D,H", MODULES)
@pytest.mark.parametrize("masked", [False, True])
def test_parity_with_transformers(B, T, D, H, masked):
    """In double precision: the gradient of the key's bias is zero in theory, and in single
    precision only noise.
    """
    attention = module(D, H).double()
    oracle = transformers_attention(attention, D, H).double()
    ours_in = torch.randn(
        B, T, D, generator=torch.Generator().manual_seed(1), dtype=torch.float64
    ).requires_grad_()
    theirs_in = ours_in.detach().clone().requires_grad_()
    mask = lengths_mask(B, T, 5) if masked else torch.ones(B, T, dtype=torch.long)
    extended = (1.0 - mask[:, None, None, :]) * torch.finfo(torch.float32).min
    ours, (theirs, their_maps) = (
        attention(ours_in, mask),
        oracle(theirs_in, attention_mask=extended)[:2],
    )
    assert_close(ours, theirs)
    assert_close(attention.maps(ours_in, mask), their_maps)
    if not masked:
        assert_close(attention(ours_in), ours)
    probe = torch.randn(ours.shape, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    grads = torch.autograd.grad((ours * probe).sum(), [ours_in, *attention.parameters()])
    expected = torch.autograd.grad((theirs * probe).sum(), [theirs_in, *oracle.parameters()])
    assert [n for n, _ in attention.named_parameters()] == [n for n, _ in oracle.named_parameters()]
    assert_close(grads, expected)


@pytest.mark.parametrize("B,T,D,H", MODULES)
def test_parity_with_torch_multihead_attention(B, T, D, H):
    attention = module(D, H).double()
    oracle = nn.MultiheadAttention(D, H, batch_first=True).double()
    parts = (attention.query, attention.key, attention.value)
    with torch.no_grad():
        oracle.in_proj_weight.copy_(torch.cat([p.weight for p in parts]))
        oracle.in_proj_bias.copy_(torch.cat([p.bias for p in parts]))
        oracle.out_proj.weight.copy_(torch.eye(D))
        oracle.out_proj.bias.zero_()
    x = torch.randn(B, T, D, dtype=torch.float64)
    mask = lengths_mask(B, T, 6)
    theirs, maps = oracle(x, x, x, key_padding_mask=mask == 0, average_attn_weights=False)
    assert_close(attention(x, mask), theirs)
    assert_close(attention.maps(x, mask), maps)


def test_project_is_three_linear_maps_on_any_leading_axes():
    attention = module(12, 3)
    for shape in [(12,), (7, 12), (2, 5, 12), (2, 3, 5, 12)]:
        x = torch.randn(shape)
        for got, part in zip(
            attention.project(x), (attention.query, attention.key, attention.value)
        ):
            assert_close(got, part(x))


def test_attend_completes_project():
    attention = module(12, 3)
    x, mask = torch.randn(2, 5, 12), lengths_mask(2, 5, 7)
    assert torch.equal(attention.attend(*attention.project(x), mask), attention(x, mask))
    q, k, v = attention.project(x)
    assert not torch.allclose(attention.attend(k, q, v, mask), attention(x, mask))


@pytest.mark.parametrize("masked", [False, True])
def test_shuffling_tokens_or_sentences_shuffles_the_output(masked):
    attention = module(12, 3).double()
    x = torch.randn(4, 6, 12, dtype=torch.float64)
    mask = lengths_mask(4, 6, 8) if masked else torch.ones(4, 6)
    tokens, rows = torch.randperm(6), torch.randperm(4)
    out = attention(x, mask)
    assert_close(attention(x[:, tokens], mask[:, tokens]), out[:, tokens])
    assert_close(attention(x[rows], mask[rows]), out[rows])


def test_sentences_of_a_batch_do_not_meet():
    attention = module(12, 3)
    x = torch.randn(3, 6, 12)
    assert_close(torch.cat([attention(row[None]) for row in x]), attention(x))


def test_dropout_only_while_training():
    torch.manual_seed(3)
    attention = SelfAttention(12, 3, dropout=0.5)
    assert SelfAttention(12, 3).dropout == 0.1
    x = torch.randn(2, 6, 12)
    first, second = attention(x), attention(x)
    assert not torch.equal(first, second)
    torch.manual_seed(5)
    once = attention(x)
    torch.manual_seed(5)
    assert torch.equal(attention(x), once)  # the global generator decides, and only it
    drawn = torch.stack([attention(x) for _ in range(1000)])
    attention.eval()
    assert torch.equal(attention(x), attention(x))
    # standard errors, for 144 numbers
    assert ((drawn.mean(0) - attention(x)).abs() < 5 * drawn.std(0) / math.sqrt(1000)).all()
    assert_close(attention.train().maps(x).sum(-1), torch.ones(2, 3, 6))


def test_autocast():
    attention = module(16, 2)
    x, mask = torch.randn(2, 5, 16), lengths_mask(2, 5, 9)
    with torch.autocast("cpu", torch.bfloat16):
        out = attention(x, mask)
    assert out.dtype == torch.bfloat16
    # scores near 10 carry 2**-8 of themselves, and weigh values near 4
    assert_close(out.float(), attention(x, mask), atol=0.2, rtol=0.05)
