"""Weights that are laid out once: the same vectors, one layout a weight, and left alone where it
does not pay.
"""

import pytest
import torch
from torch.testing import assert_close

import minbert.encoding.packed_linear as products
from minbert.core.devices import half_type, meta_init
from minbert.encoding.int8_linear import exact_integers
from minbert.encoding.packed_linear import _Products, prepacked_weights
from minbert.sentence import SentenceEncoder

# elsewhere nothing is laid out
SERVED = torch.backends.mkldnn.is_available() and torch.backends.mkl.is_available()
# of eight lengths, above FEW tokens in all
TEXTS = [f"word {'and word ' * (k % 7)}{k}" for k in range(120)]


@pytest.fixture(scope="module")
def encoder():
    return SentenceEncoder.from_pretrained(device="cpu")


@pytest.fixture
def made(monkeypatch):
    """The dtypes of all weights that were laid out."""
    dtypes, packed = [], products._Packed

    def note(dtype, *given):
        dtypes.append(dtype)
        return packed(dtype, *given)

    monkeypatch.setattr(products, "_Packed", note)
    return dtypes


@pytest.mark.parametrize("precision, tolerance", [("fp32", 1e-5), ("bf16", 2**-5)])
def test_vectors_are_those_of_the_plain_way(encoder, made, monkeypatch, precision, tolerance):
    """The products are the same up to the rounding of their type: about 2^-23 or 2^-8 a map, of
    numbers near 1, through four layers.
    """
    ours = encoder.encode(TEXTS, precision=precision)
    # queries, keys and values as one, three more a layer, the pooler
    maps = 4 * encoder.model.config.num_hidden_layers + 1
    # a processor may lack products in bfloat16
    dtype = half_type(encoder.device, precision) or torch.float32
    laid = [dtype] * (maps if SERVED else 0)
    assert made == laid
    monkeypatch.setattr(products, "FEW", 10**9)
    plain = encoder.encode(TEXTS, precision=precision)
    assert made == laid
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
    assert bool(made) == SERVED and (after - before).abs().max() > 1e-3


def test_few_tokens_and_compiled_models_are_left_alone(encoder, made):
    encoder.encode(TEXTS[:3])
    own = SentenceEncoder.from_pretrained(device="cpu")
    own.model.bert_layers[0].compile(backend="eager")
    with prepacked_weights(own.model, "fp32", 10**6), torch.no_grad():
        own.model.pooler_dense(torch.zeros(2, own.width))
    assert not made


def test_other_weights_and_joins_are_left_alone(encoder, made):
    """Only weights of the model: a flow or a dense map behind it keeps its precision, and joined
    activations are joined anew.
    """
    other, x = torch.nn.Linear(4, 4), torch.ones(2, 4)
    with prepacked_weights(encoder.model, "fp32", 10**6), torch.no_grad():
        assert torch.equal(other(x), torch.nn.functional.linear(x, other.weight, other.bias))
        parts = [x, x]
        assert torch.cat(parts) is not torch.cat(parts)
    assert not made


def test_an_unknown_precision_is_refused(encoder):
    with pytest.raises(
        ValueError, match="expected precision 'fp32', 'bf16', 'fp16' or 'int8', got 'int4'"
    ):
        encoder.encode(TEXTS, precision="int4")


def test_integers_turn_the_vectors_little_or_are_refused(encoder):
    """Mean of the embedded encoder's cosines: .99 as measured. A processor that cannot add them
    without overflow says so.
    """
    if not exact_integers():
        with pytest.raises(
            ValueError,
            match="precision 'int8': expected a CPU whose instructions add 8-bit products .VNNI., got one without",
        ):
            encoder.encode(TEXTS, precision="int8")
        return
    exact, whole = encoder.encode(TEXTS), encoder.encode(TEXTS, precision="int8")
    cosines = torch.cosine_similarity(exact, whole)
    assert cosines.mean() > 0.98 and cosines.min() > 0.95 and not torch.equal(exact, whole)
    assert torch.equal(encoder.encode(TEXTS[:3], precision="int8"), encoder.encode(TEXTS[:3])), (
        "few tokens stay in float32"
    )


def test_integers_are_not_for_a_gpu():
    with meta_init():
        model = torch.nn.Linear(2, 2)
    with (
        pytest.raises(ValueError, match="precision 'int8': expected a CPU.*got meta"),
        prepacked_weights(model, "int8", 10**6),
    ):
        pass


def test_a_product_learns_which_norm_its_input_comes_from():
    """The form is made for the norm that x came out of, and one more for the same weight behind
    anything else, a norm without gain or of another model too.
    """
    norm = torch.nn.LayerNorm(4)
    bare = torch.nn.LayerNorm(4, elementwise_affine=False)
    strange = torch.nn.LayerNorm(4)
    one, other = torch.nn.Linear(4, 4), torch.nn.Linear(4, 4)
    made, x = [], torch.randn(3, 4)

    def form(weight, bias, given):
        made.append((weight, given))
        return lambda x: torch.zeros(len(x), 4)

    with (
        torch.no_grad(),
        _Products([*norm.parameters(), *one.parameters(), *other.parameters()], form),
    ):
        for _ in range(2):
            y = norm(x)
            one(y), other(y), one(y + 1), one(bare(x)), one(strange(x))
    assert [
        weight is layer.weight for (weight, _), layer in zip(made, (one, other, one), strict=True)
    ] == [True] * 3
    assert [given and (given[0] is norm.weight, given[1] is norm.bias) for _, given in made] == [
        (True, True),
        (True, True),
        None,
    ]
