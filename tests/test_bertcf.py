"""Chapter 21: what learns from which loss, and the encoder that comes out."""

import copy
from functools import partial

import pytest
import torch
from torch.testing import assert_close

from minbert.bertcf import JointModel, joint_decays, joint_loss, start_joint
from minbert.contrastive import mirror_loss, span_mask
from minbert.encoder import BertConfig, BertModel
from minbert.flow import Flow, flow_groups
from minbert.sentence import SentenceEncoder, UnitLength
from minbert.simcse import train_views, view_batches
from minbert.tokens import load_tokenizer

TEXTS = [
    f"{a} {b} {c}"
    for a in ("red", "old", "slow", "cold")
    for b in ("cat", "door", "river", "song")
    for c in ("sleeps", "falls", "ends", "waits", "turns")
]


@pytest.fixture(scope="module")
def tokenizer():
    return load_tokenizer()


def encoder(tokenizer, dropout=0.1, pooling="mean"):
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=len(tokenizer),
        hidden_size=16,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=32,
        hidden_dropout_prob=dropout,
        attention_probs_dropout_prob=dropout,
    )
    return SentenceEncoder(BertModel(config), tokenizer, pooling, max_length=40)


def batch(tokenizer, n=8):
    return next(
        view_batches([TEXTS], tokenizer, n, partial(span_mask, mask_id=tokenizer.mask_token_id))
    )


def gradients(module):
    return {
        name: None if p.grad is None else p.grad.clone() for name, p in module.named_parameters()
    }


@pytest.mark.parametrize("frozen", [True, False])
@pytest.mark.parametrize("weight, temperature", [(0.3, 0.04), (2.0, 0.1), (0.0, 0.04)])
def test_value_and_gradients_are_those_of_the_formula(tokenizer, frozen, weight, temperature):
    """Against the formula written out: mirror through the flow, likelihood of vectors cut from the
    graph.
    """
    model = start_joint(encoder(tokenizer), TEXTS, frozen, depth=2).train()
    views = batch(tokenizer)
    torch.manual_seed(3)
    ours = joint_loss(weight, temperature)(model, views)
    sum(ours.values()).backward()
    other = copy.deepcopy(model)
    other.zero_grad(set_to_none=True)
    torch.manual_seed(3)
    a, b = other.encoder(*views.tokens).chunk(2)
    if frozen:
        a, b = a.detach(), b.detach()
    expected = (
        weight * mirror_loss(other.flow(a)[0], other.flow(b)[0], temperature)
        + other.flow.nll(a.detach()).mean()
    )
    expected.backward()
    assert_close(ours["mirror"] + ours["flow"], expected)
    for part in ("encoder", "flow"):
        for name, gradient in gradients(getattr(other, part)).items():
            mine = gradients(getattr(model, part))[name]
            if gradient is None or not gradient.any():
                assert mine is None or not mine.any(), name
            else:
                assert_close(mine, gradient, rtol=1e-4, atol=1e-6)
    learns = any(g is not None and g.any() for g in gradients(model.encoder).values())
    assert learns == (not frozen and weight > 0)


@pytest.mark.parametrize("mixing", ["reverse", "dense", "lu"])
def test_only_what_may_shrink_decays(tokenizer, mixing):
    from minbert.optim import parameter_groups

    model = start_joint(encoder(tokenizer), TEXTS, frozen=False, depth=1, mixing=mixing)
    groups = {
        g["weight_decay"]: set(g["names"])
        for g in parameter_groups(model, 0.5, decays=joint_decays)
    }
    nets = {n for n in groups[0.5] if n.startswith("flow.")}
    assert nets and nets == {
        g
        for group in flow_groups(model.flow, 0.5)
        if group["weight_decay"]
        for g in ("flow." + n for n in group["names"])
    }
    assert (
        "encoder.model.embedding.word_embedding.weight" in groups[0.5]
        and "encoder.model.pooler_dense.bias" in groups[0.0]
    )


def test_doubles_are_excused(tokenizer):
    corrupt = partial(span_mask, mask_id=tokenizer.mask_token_id)
    views = next(view_batches([["a b", "c d", "a b", "e f g"]], tokenizer, 4, corrupt))
    model = start_joint(encoder(tokenizer), TEXTS).eval()
    a, b = model(views)
    expected = 0.3 * mirror_loss(model.flow(a)[0], model.flow(b)[0], groups=views.groups)
    assert_close(joint_loss()(model, views)["mirror"], expected)
    assert expected < 0.3 * mirror_loss(model.flow(a)[0], model.flow(b)[0]) - 0.01
    with pytest.raises(ValueError, match="two views, got 3"):
        joint_loss()(model, next(view_batches([TEXTS] * 3, tokenizer, 4)))


def test_without_weight_there_is_no_contrast(tokenizer):
    """Not a contrast times zero, whose gradient of zeros would let weight decay move the encoder."""
    model = start_joint(encoder(tokenizer), TEXTS, frozen=False)
    losses = joint_loss(0.0)(model.train(), batch(tokenizer))
    sum(losses.values()).backward()
    assert losses["mirror"] == 0 and all(p.grad is None for p in model.encoder.parameters())


def test_a_frozen_encoder_keeps_its_dropout_and_its_weights(tokenizer):
    model = start_joint(encoder(tokenizer), TEXTS)
    before = copy.deepcopy(model.encoder.state_dict())
    views = next(view_batches([TEXTS], tokenizer, 8))
    a, b = model.eval()(views)
    assert_close(a, b)
    a, b = model.train()(views)
    assert (a != b).any(1).all() and not a.requires_grad
    start = copy.deepcopy(model.flow.state_dict())
    records = list(
        train_views(model, view_batches([TEXTS], tokenizer, 8), joint_loss(), 5, lr=1e-2)
    )
    assert_close(model.encoder.state_dict(), before, rtol=0, atol=0)
    assert set(records[0].losses) == {"mirror", "flow"} and any(
        (model.flow.state_dict()[k] != v).any() for k, v in start.items()
    )


def test_an_unfrozen_encoder_learns_and_stays_trainable(tokenizer):
    model = start_joint(encoder(tokenizer), TEXTS)
    assert not any(p.requires_grad for p in model.encoder.parameters())
    model = JointModel(model.encoder, model.flow, frozen=False)
    before = copy.deepcopy(model.encoder.state_dict())
    list(train_views(model, view_batches([TEXTS], tokenizer, 8), joint_loss(), 3, lr=1e-2))
    assert (
        model.encoder.state_dict()["model.embedding.word_embedding.weight"]
        != before["model.embedding.word_embedding.weight"]
    ).any()
    with torch.no_grad():
        a, _ = model(batch(tokenizer))
    assert not a.requires_grad


def test_the_flow_starts_from_the_sentences_as_they_are_used(tokenizer):
    plain = encoder(tokenizer)
    model = start_joint(
        plain.train(), TEXTS, levels=2, depth=1, mixing="lu", coupling="affine", hidden=8, seed=5
    )
    by_hand = Flow(
        16, 1, 2, "lu", "affine", 8, generator=torch.Generator().manual_seed(5)
    ).initialize(plain.encode(TEXTS))
    # eval mode: no dropout in the start
    assert_close(model.flow.state_dict(), by_hand.state_dict())


@pytest.mark.parametrize("pooling", ["mean", "cls", "first_last_avg"])
def test_the_encoder_that_comes_out_saves_loads_and_encodes(tokenizer, tmp_path, pooling):
    model = start_joint(encoder(tokenizer, pooling=pooling), TEXTS)
    out = model.sentence_encoder().eval()
    expected = model.flow(model.encoder.encode(TEXTS))[0].detach()
    assert (out.pooling, out.max_length) == (pooling, 40)
    assert_close(out.encode(TEXTS), expected)
    out.save_pretrained(tmp_path)
    assert_close(
        SentenceEncoder.from_pretrained(tmp_path, device="cpu").encode(TEXTS),
        expected,
        rtol=1e-5,
        atol=1e-5,
    )


def test_bad_models(tokenizer):
    plain = encoder(tokenizer)
    with pytest.raises(ValueError, match="initialize"):
        JointModel(plain, Flow(16))
    with pytest.raises(ValueError, match="12 wide like the flow, got NoneType and 16"):
        JointModel(plain, Flow(12).initialize(torch.randn(80, 12)))
    plain.transform = UnitLength()
    with pytest.raises(ValueError, match="without a transform.*UnitLength"):
        start_joint(plain, TEXTS)
    plain.transform = None
    with pytest.raises(ValueError):
        start_joint(plain, TEXTS[:1])
    with pytest.raises(ValueError, match="weight"):
        joint_loss(-1.0)(start_joint(plain, TEXTS), batch(tokenizer))
