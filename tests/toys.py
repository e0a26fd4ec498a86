"""Small models, batches and numbers that several test files play with."""

import torch
from torch.testing import assert_close

from minbert.data import TaskBatch
from minbert.encoder import BertConfig, BertModel
from minbert.tokens import TokenBatch

# of four rows
LABELS = {"sst": [0, 4, 2, 1], "stsb": [0.0, 5, 2.5, 4], "quora": [0, 1, 1, 0], "nli": [2, 1, 0, 0]}

SMALL = dict(
    vocab_size=97,
    hidden_size=16,
    num_hidden_layers=2,
    num_attention_heads=2,
    intermediate_size=24,
    max_position_embeddings=40,
)


def dice(seed=0):
    return torch.Generator().manual_seed(seed)


def vectors(n, d=6, count=2, seed=0, dtype=torch.float64):
    generator = dice(seed)
    return [
        torch.randn(n, d, generator=generator, dtype=dtype).requires_grad_() for _ in range(count)
    ]


def equal(ours, theirs, inputs, **close):
    """Values and gradients."""
    assert_close(ours, theirs, **close)
    assert_close(torch.autograd.grad(ours, inputs), torch.autograd.grad(theirs, inputs), **close)


def small_bert(dropout=0.1):
    return BertConfig(
        vocab_size=60,
        hidden_size=16,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=32,
        max_position_embeddings=32,
        hidden_dropout_prob=dropout,
        attention_probs_dropout_prob=dropout,
    )


def tokens(lengths, seed):
    ids = torch.randint(5, 60, (len(lengths), max(lengths)), generator=dice(seed))
    mask = (torch.arange(max(lengths)) < torch.tensor(lengths)[:, None]).long()
    return TokenBatch(ids * mask, mask)


def batch_of(tasks, weight=1.0):
    """Four rows a task, sentences of sst alone and of the others in pairs."""
    return {
        task: TaskBatch(
            task,
            tokens([5, 9, 3, 7], 1),
            None if task == "sst" else tokens([4, 4, 8, 6], 2),
            torch.tensor(LABELS[task]),
            weight,
        )
        for task in tasks
    }


def run(model, loss_fn, batch, seed=3):  # -> losses, gradients by name
    torch.manual_seed(seed)
    model.zero_grad(set_to_none=True)
    losses = loss_fn(model, batch)
    sum(losses.values()).backward()
    return losses, {
        name: w.grad.clone() for name, w in model.named_parameters() if w.grad is not None
    }


def small(seed=0, **more) -> BertModel:
    """A model whose weights are large enough for mistakes to show, biases and norms included."""
    torch.manual_seed(seed)
    model = BertModel(BertConfig(**{**SMALL, "initializer_range": 0.3, **more}))
    with torch.no_grad():
        for p in model.parameters():
            p.add_(0.2 * torch.randn_like(p))
    return model.eval()


def batch(B, T, seed=0, vocab=97):
    """Ids and a mask: row 0 full, the others of random length."""
    generator = torch.Generator().manual_seed(seed)
    ids = torch.randint(1, vocab, (B, T), generator=generator)
    lengths = torch.randint(1, T + 1, (B,), generator=generator)
    lengths[0] = T
    return ids, (torch.arange(T) < lengths[:, None]).long()
