"""Weights that are laid out once: the same vectors, one layout a weight, and left alone where it does not pay."""
import pytest
import torch
from torch.testing import assert_close

import minbert.engine.products as products
from minbert.engine.products import laid_out
from minbert.sentence import SentenceEncoder

TEXTS = [f"word {'and word ' * (k % 7)}{k}" for k in range(120)]  # of eight lengths, above FEW tokens in all


@pytest.fixture(scope="module")
def encoder():
    return SentenceEncoder.from_pretrained(device="cpu")


@pytest.fixture
def made(monkeypatch):
    """The dtypes of all weights that were laid out."""
    dtypes, packed = [], products._Packed

    def note(weight, dtype):
        dtypes.append(dtype)
        return packed(weight, dtype)

    monkeypatch.setattr(products, "_Packed", note)
    return dtypes


@pytest.mark.parametrize("precision, dtype, tolerance", [("fp32", torch.float32, 1e-5), ("bf16", torch.bfloat16, 2**-5)])
def test_vectors_are_those_of_the_plain_way(encoder, made, monkeypatch, precision, dtype, tolerance):
    """The products are the same up to the rounding of their type: about 2^-23 or 2^-8 a map, of numbers near 1, through four layers."""
    ours = encoder.encode(TEXTS, precision=precision)
    layers = encoder.model.config.num_hidden_layers
    assert made == [dtype] * (4 * layers + 1)  # queries, keys and values as one, three more a layer, the pooler
    monkeypatch.setattr(products, "FEW", 10**9)
    plain = encoder.encode(TEXTS, precision=precision)
    assert len(made) == 4 * layers + 1
    assert_close(ours, plain, rtol=0, atol=tolerance)


def test_a_weight_is_laid_out_once_however_many_batches(encoder, made):
    one = encoder.encode(TEXTS)
    count = len(made)
    many = encoder.encode(TEXTS, batch_tokens=64)
    assert len(made) == 2 * count  # anew for each call: between two calls weights may learn
    assert_close(one, many, rtol=0, atol=1e-5)


def test_changed_weights_are_seen_by_the_next_call(made):
    own = SentenceEncoder.from_pretrained(device="cpu")
    before = own.encode(TEXTS)
    with torch.no_grad():
        own.model.bert_layers[0].interm_dense.weight.mul_(2)
    after = own.encode(TEXTS)
    assert made and (after - before).abs().max() > 1e-3


def test_few_tokens_and_compiled_models_are_left_alone(encoder, made):
    encoder.encode(TEXTS[:3])
    own = SentenceEncoder.from_pretrained(device="cpu")
    own.model.bert_layers[0].compile(backend="eager")
    with laid_out(own.model, "fp32", 10**6), torch.no_grad():
        own.model.pooler_dense(torch.zeros(2, own.width))
    assert not made


def test_other_weights_and_joins_are_left_alone(encoder, made):
    """Only weights of the model: a flow or a dense map behind it keeps its precision, and joined activations are joined anew."""
    other, x = torch.nn.Linear(4, 4), torch.ones(2, 4)
    with laid_out(encoder.model, "fp32", 10**6), torch.no_grad():
        assert torch.equal(other(x), torch.nn.functional.linear(x, other.weight, other.bias))
        parts = [x, x]
        assert torch.cat(parts) is not torch.cat(parts)
    assert not made


def test_an_unknown_precision_is_refused(encoder):
    with pytest.raises(ValueError, match="expected precision 'fp32', 'bf16' or 'fp16', got 'int4'"):
        encoder.encode(TEXTS, precision="int4")
