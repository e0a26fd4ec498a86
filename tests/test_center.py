"""Moving a mean out of the hidden states changes nothing that reads them."""

import copy

import pytest
import torch
from torch.testing import assert_close

from minbert.center import center, mean_state
from minbert.encoder import BertConfig, BertModel
from minbert.pretrain import MlmHead, load_mlm, masked_accuracy
from minbert.tokens import TokenBatch, load_tokenizer, tokenize

CONFIG = BertConfig(50, 16, 2, 2, 24, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)


def encoder(seed=0):
    """A small encoder in float64 whose hidden states share a long mean, and a head."""
    torch.manual_seed(seed)
    model, head = BertModel(CONFIG).double().eval(), MlmHead(CONFIG).double()
    with torch.no_grad():
        for p in [*model.parameters(), *head.parameters()]:
            p += 0.3 * torch.randn_like(p)
        model.bert_layers[-1].out_layer_norm.bias += 4
    return model, head


def batches(seed=0):
    random = torch.Generator().manual_seed(seed)
    for rows, length in ((4, 7), (3, 12), (1, 1)):
        mask = torch.ones(rows, length, dtype=torch.long)
        mask[0, max(1, length // 2) :] = 0
        yield TokenBatch(torch.randint(1, 50, (rows, length), generator=random), mask)


def read(model, head, batch):
    out, words = model(*batch), model.embedding.word_embedding.weight
    return out.pooler_output, head(out.last_hidden_state, words)[batch.attention_mask == 1]


def test_mean_counts_real_positions_once():
    model, _ = encoder()
    real = torch.cat([model(*b).last_hidden_state[b.attention_mask == 1] for b in batches()])
    assert_close(mean_state(model, batches()), real.mean(0))


def test_what_lies_under_padding_does_not_count():
    model, _ = encoder()
    changed = [
        TokenBatch(torch.where(b.attention_mask == 1, b.input_ids, 49), b.attention_mask)
        for b in batches()
    ]
    assert_close(mean_state(model, changed), mean_state(model, batches()))


def test_pooler_and_guesses_stay_and_the_mean_goes():
    model, head = encoder()
    before = [read(model, head, b) for b in batches()]
    states = [model(*b).last_hidden_state.detach() for b in batches()]
    mean = mean_state(model, batches())
    center(model, head, mean)
    assert_close([read(model, head, b) for b in batches()], before)
    assert_close(
        mean_state(model, batches()), torch.zeros(16, dtype=torch.float64), atol=1e-12, rtol=0
    )
    for b, was in zip(batches(), states):  # moved as a whole: differences stay
        assert_close(
            model(*b).last_hidden_state[b.attention_mask == 1], (was - mean)[b.attention_mask == 1]
        )


def test_center_is_taken_back_by_the_opposite():
    (model, head), rest = encoder(), copy.deepcopy(encoder())
    mean = mean_state(model, batches())
    center(model, head, mean)
    center(model, head, -mean)
    for now, was in zip(
        (*model.parameters(), *head.parameters()), (*rest[0].parameters(), *rest[1].parameters())
    ):
        assert_close(now, was)


@pytest.mark.parametrize(
    "mean, got",
    [
        (torch.zeros(3), r"\(3,\)"),
        (torch.zeros(1, 16), r"\(1, 16\)"),
        (torch.full((16,), float("nan")), "finite"),
        (torch.full((16,), float("inf")), "finite"),
    ],
)
def test_what_is_no_mean_is_refused_and_moves_nothing(mean, got):
    model, head = encoder()
    before = model.bert_layers[-1].out_layer_norm.bias.clone()
    with pytest.raises(ValueError, match=got):
        center(model, head, mean)
    assert_close(model.bert_layers[-1].out_layer_norm.bias, before, rtol=0, atol=0)


def test_no_text_has_no_mean():
    with pytest.raises(ValueError, match="at least one token that is not padding"):
        mean_state(encoder()[0], [])


def test_the_embedded_model_is_centered():
    """Its mean is a small part of a hidden state; put back as it came, it guesses the same words."""
    model, head = load_mlm()
    tokenizer = load_tokenizer()
    sentences = [
        "The river flows into the sea.",
        "A man is playing a guitar.",
        "He was born in London in 1912.",
    ]
    raw, reader = copy.deepcopy(model), copy.deepcopy(head)
    center(raw, reader, raw.bert_layers[-1].out_layer_norm.bias.clone())
    batch = [tokenize(tokenizer, sentences)]
    length = model(*batch[0]).last_hidden_state.norm(dim=-1).mean()
    assert (
        mean_state(model, batch).norm() < 0.6 * length
        and mean_state(raw, batch).norm()
        > 0.9 * raw(*batch[0]).last_hidden_state.norm(dim=-1).mean()
    )
    assert masked_accuracy(raw, reader, sentences * 20, tokenizer)[1] == pytest.approx(
        masked_accuracy(model, head, sentences * 20, tokenizer)[1], rel=1e-4
    )
