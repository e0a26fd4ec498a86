"""Embedding: parity with transformers, tokens without a batch dimension, gradients of each table."""

from types import SimpleNamespace

import pytest
import torch
import torch.nn.functional as F
from torch.testing import assert_close

from minbert.embedding import BertEmbedding
from minbert.encoder import BertConfig

SHAPES = [(2, 7, 12), (1, 1, 8), (3, 1, 4), (1, 20, 16), (4, 13, 32), (6, 5, 6)]  # B, T, D
V, P, S = 23, 20, 3
NAMES = {  # ours -> transformers
    "word_embedding.weight": "word_embeddings.weight",
    "pos_embedding.weight": "position_embeddings.weight",
    "tk_type_embedding.weight": "token_type_embeddings.weight",
    "embed_layer_norm.weight": "LayerNorm.weight",
    "embed_layer_norm.bias": "LayerNorm.bias",
}


def config_of(D=12, **changes):
    usual = {
        "vocab_size": V,
        "hidden_size": D,
        "max_position_embeddings": P,
        "type_vocab_size": S,
        "layer_norm_eps": 1e-12,
        "hidden_dropout_prob": 0.1,
        "pad_token_id": 0,
    }
    return SimpleNamespace(**usual | changes)


def embedding(D=12, seed=0, **changes):
    torch.manual_seed(seed)
    module = BertEmbedding(config_of(D, **changes))
    for p in module.parameters():  # norm scales and shifts too, so that none can be forgotten
        torch.nn.init.normal_(p)
    return module.eval()


def some_ids(B, T, seed=0):
    ids = torch.randint(1, V, (B, T), generator=torch.Generator().manual_seed(seed))
    ids[-1, (T + 1) // 2 :] = 0
    return ids


def transformers_embedding(module, D, **changes):
    from transformers import BertConfig
    from transformers.models.bert.modeling_bert import BertEmbeddings

    config = BertConfig(
        vocab_size=V,
        hidden_size=D,
        max_position_embeddings=P,
        type_vocab_size=S,
        pad_token_id=0,
        **changes,
    )
    oracle = BertEmbeddings(config).eval()
    missing = oracle.load_state_dict(
        {NAMES[n]: p for n, p in module.state_dict().items()}, strict=False
    ).missing_keys
    assert not [n for n in missing if not n.endswith("_ids")]
    return oracle


@pytest.mark.parametrize("B,T,D", SHAPES)
@pytest.mark.parametrize("given", ["nothing", "positions", "segments", "both"])
def test_parity_with_transformers(B, T, D, given):
    module = embedding(D)
    oracle = transformers_embedding(module, D)
    ids, g = some_ids(B, T), torch.Generator().manual_seed(1)
    extra = {}
    if given in ("positions", "both"):
        extra["position_ids"] = torch.randint(P, (B, T), generator=g)
    if given in ("segments", "both"):
        extra["token_type_ids"] = torch.randint(S, (B, T), generator=g)
    ours, theirs = module(ids, **extra), oracle(ids, **extra)
    assert ours.shape == (B, T, D)
    assert_close(ours, theirs, atol=1e-5, rtol=1e-5)
    probe = torch.randn(ours.shape, generator=g)
    grads = torch.autograd.grad((ours * probe).sum(), list(module.parameters()))
    parameters = dict(oracle.named_parameters())
    expected = torch.autograd.grad(
        (theirs * probe).sum(), [parameters[NAMES[n]] for n, _ in module.named_parameters()]
    )
    assert_close(grads, expected, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("eps", [1e-12, 1e-5, 0.5])
def test_the_norm_uses_its_epsilon(eps):
    module = embedding(layer_norm_eps=eps)
    assert_close(
        module(some_ids(2, 5)),
        transformers_embedding(module, 12, layer_norm_eps=eps)(some_ids(2, 5)),
    )


def test_a_config_of_bert_base_gives_its_sizes():
    from transformers import BertConfig as Reference

    with torch.device("meta"):
        module = BertEmbedding(BertConfig())
    config = Reference()
    assert module.word_embedding.weight.shape == (config.vocab_size, config.hidden_size)
    assert module.pos_embedding.weight.shape == (config.max_position_embeddings, config.hidden_size)
    assert module.tk_type_embedding.weight.shape == (config.type_vocab_size, config.hidden_size)
    assert module.embed_layer_norm.eps == config.layer_norm_eps
    assert module.embed_dropout.p == config.hidden_dropout_prob
    assert module.word_embedding.padding_idx == config.pad_token_id
    assert set(module.state_dict()) == set(NAMES)


def test_tiny_numbers_survive_the_norm():
    """With eps 1e-5 a sum of size 1e-4 would shrink; BERT's 1e-12 keeps it."""
    module = embedding()
    with torch.no_grad():
        for p in list(module.parameters())[:3]:
            p.mul_(1e-4)
        module.embed_layer_norm.weight.fill_(1)
        module.embed_layer_norm.bias.zero_()
    assert_close(module(some_ids(2, 5)).std(-1, correction=0), torch.ones(2, 5), atol=1e-3, rtol=0)


@pytest.mark.parametrize("pad", [0, 5, None])
def test_only_the_padding_row_gets_no_gradient(pad):
    module = embedding(pad_token_id=pad)
    ids = torch.arange(V).expand(2, V)[:, :P]
    probe = torch.randn(2, P, 12, generator=torch.Generator().manual_seed(3))
    (module(ids) * probe).sum().backward()
    touched = module.word_embedding.weight.grad.abs().sum(1) > 0
    assert touched.tolist() == [i < P and i != pad for i in range(V)]
    assert (module.pos_embedding.weight.grad.abs().sum(1) > 0).all()
    assert (module.tk_type_embedding.weight.grad.abs().sum(1) > 0).tolist() == [True] + [False] * (
        S - 1
    )


def test_padding_is_embedded_like_anything_else():
    module = embedding()
    assert module(torch.zeros(1, 4, dtype=torch.long)).std(-1).min() > 0
    with torch.no_grad():
        before = module(some_ids(2, 5))
        module.word_embedding.weight[0] += torch.arange(12.0)
        after = module(some_ids(2, 5))
    changed = (before != after).any(-1)
    assert torch.equal(changed, some_ids(2, 5) == 0)


def test_positions_that_no_sentence_reaches_get_no_gradient():
    module = embedding()
    probe = torch.randn(2, 5, 12, generator=torch.Generator().manual_seed(3))
    (module(some_ids(2, 5)) * probe).sum().backward()
    assert (module.pos_embedding.weight.grad.abs().sum(1) > 0).tolist() == [True] * 5 + [False] * (
        P - 5
    )


@pytest.mark.parametrize("with_segments", [False, True])
def test_flat_equals_padded_in_values_and_gradients(with_segments):
    module, ids = embedding(), some_ids(4, 9)
    mask = torch.arange(9) < torch.tensor([9, 4, 1, 6])[:, None]
    positions = torch.arange(9).expand(4, 9)
    segments = torch.randint(S, (4, 9)) if with_segments else None
    padded = module(ids, token_type_ids=segments)[mask]
    flat = module(ids[mask], positions[mask], segments[mask] if with_segments else None)
    assert flat.shape == (20, 12)
    assert_close(flat, padded)
    probe = torch.randn(flat.shape, generator=torch.Generator().manual_seed(2))
    parameters = list(module.parameters())
    assert_close(
        torch.autograd.grad((flat * probe).sum(), parameters),
        torch.autograd.grad((padded * probe).sum(), parameters),
    )


def test_flat_without_positions_is_one_sentence():
    module, ids = embedding(), some_ids(1, 9)
    assert_close(module(ids[0]), module(ids)[0])


def test_flat_list_may_be_longer_than_the_table():
    module = embedding()
    ids, positions = some_ids(1, 50)[0], torch.arange(50) % P
    assert_close(module(ids, positions)[P : 2 * P], module(ids[P : 2 * P]))


def test_one_row_of_positions_or_segments_serves_all():
    module, ids = embedding(), some_ids(3, 4)
    row = torch.tensor([2, 0, 1, 1])
    assert_close(module(ids, position_ids=row), module(ids, position_ids=row.expand(3, 4)))
    assert_close(module(ids, token_type_ids=row), module(ids, token_type_ids=row.expand(3, 4)))


def test_order_counts_and_sentences_do_not_meet():
    module, ids = embedding(), some_ids(3, 6)
    shuffle = torch.tensor([1, 0, 2, 3, 4, 5])
    assert (module(ids[:, shuffle]) - module(ids)[:, shuffle])[:, :2].abs().min(-1).values.max() > 0
    assert_close(module(ids.flip(0)), module(ids).flip(0))
    assert_close(module(ids[:, :4]), module(ids)[:, :4])


def test_dropout_comes_last_and_only_while_training():
    module = embedding(hidden_dropout_prob=0.4)
    ids = torch.randint(V, (30, P), generator=torch.Generator().manual_seed(0))
    quiet = module(ids)
    assert torch.equal(quiet, module(ids))
    torch.manual_seed(1)
    dropped = module.train()(ids)
    assert_close(dropped, torch.where(dropped == 0, 0, quiet / 0.6))
    assert 0.36 < (dropped == 0).float().mean() < 0.44
    # single numbers, not whole rows
    assert not (dropped == 0).all(-1).any() and not (dropped == 0).all(0).any()
    assert not torch.equal(dropped, module(ids))


def test_int32_ids_and_arguments_left_alone():
    module, ids = embedding(), some_ids(2, 5)
    positions, before = torch.arange(5).expand(2, 5).contiguous(), ids.clone()
    assert_close(module(ids.int(), positions.int()), module(ids, positions))
    assert torch.equal(ids, before) and torch.equal(positions, torch.arange(5).expand(2, 5))


def test_longest_sentence_fits_and_one_more_does_not():
    module = embedding()
    ids = torch.ones(2, P + 1, dtype=torch.long)
    assert module(ids[:, :P]).shape == (2, P, 12)
    with pytest.raises(IndexError):
        module(ids)
    with pytest.raises(IndexError):
        module(ids, position_ids=torch.arange(P + 1).expand(2, P + 1))


def test_empty_batches_pass():
    module = embedding()
    assert module(torch.zeros(0, 4, dtype=torch.long)).shape == (0, 4, 12)
    assert module(torch.zeros(0, dtype=torch.long), torch.zeros(0, dtype=torch.long)).shape == (
        0,
        12,
    )


def test_autocast_sums_and_normalises_in_full_precision():
    module, ids = embedding(), some_ids(2, 5)
    with torch.autocast("cpu", torch.bfloat16):
        assert_close(module(ids), module(ids).float())
    assert_close(
        module(ids),
        F.layer_norm(
            module.word_embedding.weight[ids]
            + module.pos_embedding.weight[:5]
            + module.tk_type_embedding.weight[0],
            (12,),
            module.embed_layer_norm.weight,
            module.embed_layer_norm.bias,
            1e-12,
        ),
    )


def test_compiles_into_one_graph():
    module, ids = embedding(), some_ids(2, 5)
    compiled = torch.compile(module, backend="eager", fullgraph=True)
    assert_close(compiled(ids), module(ids))
