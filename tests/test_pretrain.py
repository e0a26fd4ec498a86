"""Masks against transformers' collator, head and gradients against BertForMaskedLM, killed runs, the embedded model."""
import json
import math
import os
import re
import shutil
import signal
import subprocess
import sys
from itertools import islice

import numpy as np
import pytest
import torch
from safetensors import safe_open
from scipy.stats import spearmanr
from torch import nn
from torch.testing import assert_close

import minbert.pretrain as module
from minbert.checkpoint import CHECKPOINT
from minbert.corpus import Corpus, budget_batches
from minbert.data import Dataset, load_dataset
from minbert.encoder import BertConfig, BertModel, hugging_face_name
from minbert.pretrain import (HEAD, MlmHead, PretrainConfig, load_mlm, masked_accuracy, mask_tokens, mlm_batches,
                              mlm_loss, prepare, pretrain, save_mlm, special_positions, sts_by_pooling, tokens_seen,
                              write_card)
from minbert.sample import generate_sample
from minbert.sentence import POOLINGS
from minbert.tokens import TokenBatch, load_tokenizer, pad_ids, resolve_folder, tokenize

PAD, UNK, CLS, SEP, MASK = range(5)


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


def check_share(count, n, p):
    """Four and a half standard deviations: one false alarm in 100,000, and the seeds are fixed."""
    assert abs(count / n - p) <= 4.5 * math.sqrt(p * (1 - p) / n), (count / n, p)


# --- masking

@pytest.mark.parametrize("rate", [0.15, 0.05, 0.4, 0.9])
def test_rates(rate):
    V, n, word = 50, 200_000, 7
    ids = torch.full((400, n // 400), word)
    corrupted, labels = mask_tokens(ids, torch.zeros_like(ids), MASK, V, rate, seeded(1))
    chosen = labels != -100
    k = int(chosen.sum())
    check_share(k, n, rate)
    check_share(int((corrupted[chosen] == MASK).sum()), k, 0.8 + 0.1 / V)
    check_share(int((corrupted[chosen] == word).sum()), k, 0.1 + 0.1 / V)
    counts = torch.bincount(corrupted[chosen], minlength=V)
    counts[[MASK, word]] = 0
    for i in set(range(V)) - {MASK, word}:  # every other id of the vocabulary, specials included, as in BERT
        check_share(int(counts[i]), k, 0.1 / V)
    assert (corrupted[~chosen] == word).all()


def test_default_rate_is_fifteen_percent():
    ids = torch.full((1, 100_000), 7)
    _, labels = mask_tokens(ids, torch.zeros_like(ids), MASK, 50, generator=seeded())
    check_share(int((labels != -100).sum()), ids.numel(), 0.15)


def test_positions_are_chosen_independently():
    """The number chosen in a row of 40 has the variance of a binomial, and neighbours do not agree."""
    ids = torch.full((20_000, 40), 7)
    chosen = mask_tokens(ids, torch.zeros_like(ids), MASK, 50, 0.15, seeded(2))[1] != -100
    variance = chosen.sum(1).double().var().item()
    assert abs(variance / (40 * 0.15 * 0.85) - 1) < 5 * math.sqrt(2 / len(ids))
    check_share(int((chosen[:, 1:] & chosen[:, :-1]).sum()), 39 * len(ids), 0.15 ** 2)
    check_share(int((chosen[1:] & chosen[:-1]).sum()), 40 * (len(ids) - 1), 0.15 ** 2)


def test_same_shares_as_the_collator_of_transformers():
    from transformers import DataCollatorForLanguageModeling

    tokenizer, V = load_tokenizer(), 8000
    words = torch.randint(5, V, (500, 200), generator=seeded(3))
    words[:, 0], words[:, -1] = CLS, SEP
    words[::2, 150:] = PAD
    words[::2, 149] = SEP
    torch.manual_seed(0)
    theirs = DataCollatorForLanguageModeling(tokenizer, mlm_probability=0.15)([{"input_ids": row} for row in words])
    special = special_positions(words, (words != PAD).long(), [CLS, SEP])
    ours = mask_tokens(words, special, MASK, V, 0.15, seeded(4))

    def shares(ids, labels):
        chosen = labels != -100
        return [chosen.sum(), (ids[chosen] == MASK).sum(), (ids[chosen] == labels[chosen]).sum(),
                ((ids[chosen] != MASK) & (ids[chosen] != labels[chosen])).sum()]

    n = int((~special).sum())
    for a, b in zip(shares(*ours), shares(theirs["input_ids"], theirs["labels"])):
        p = (int(a) + int(b)) / 2 / n
        assert abs(int(a) - int(b)) < 4.5 * math.sqrt(2 * n * p * (1 - p)), (a, b)
    assert (theirs["labels"][special] == -100).all() and (ours[1][special] == -100).all()


@pytest.mark.parametrize("dtype", [torch.bool, torch.int64])
def test_specials_and_padding_are_never_chosen_and_labels_are_the_originals(dtype):
    batch = pad_ids([[CLS, *range(5, 5 + n), SEP] for n in range(0, 60, 7)], PAD)
    special = special_positions(*batch, [CLS, SEP])
    assert special.dtype == torch.bool and torch.equal(special, batch.input_ids <= 4)
    before = batch.input_ids.clone()
    for seed in range(20):
        corrupted, labels = mask_tokens(batch.input_ids, special.to(dtype), MASK, 99, 0.5, seeded(seed))
        chosen = labels != -100
        assert not (chosen & special).any()
        assert torch.equal(corrupted[~chosen], before[~chosen])
        assert torch.equal(labels[chosen], before[chosen]) and chosen.any()
        assert corrupted.dtype == labels.dtype == torch.int64
    assert torch.equal(batch.input_ids, before)  # the caller's ids are left alone


def test_padding_is_special_whatever_its_id():
    ids, mask = torch.tensor([[CLS, 9, SEP, 9, 9]]), torch.tensor([[1, 1, 1, 0, 0]])
    assert special_positions(ids, mask, [CLS, SEP]).tolist() == [[True, False, True, True, True]]
    assert special_positions(ids, mask, []).tolist() == [[False, False, False, True, True]]
    assert special_positions(torch.tensor([[PAD, 9]]), torch.tensor([[1, 1]]), [CLS]).tolist() == [[False, False]]


def test_rate_zero_and_one():
    ids = torch.randint(5, 99, (7, 30), generator=seeded())
    special = torch.zeros_like(ids)
    special[:, 0] = 1
    corrupted, labels = mask_tokens(ids, special, MASK, 99, 0.0, seeded())
    assert torch.equal(corrupted, ids) and (labels == -100).all()
    corrupted, labels = mask_tokens(ids, special, MASK, 99, 1.0, seeded())
    assert torch.equal(labels[:, 1:], ids[:, 1:]) and (labels[:, 0] == -100).all()
    assert torch.equal(corrupted[:, 0], ids[:, 0])


def test_lowest_random_leaves_out_the_first_ids():
    ids = torch.full((100, 1000), 7)
    corrupted, _ = mask_tokens(ids, torch.zeros_like(ids), MASK, 20, 1.0, seeded(), lowest_random=5)
    counts = torch.bincount(corrupted.flatten(), minlength=20)
    assert counts[:4].sum() == 0 and counts[MASK] > 0 and (counts[5:] > 0).all() and len(counts) == 20
    check_share(int(counts[19]), ids.numel(), 0.1 / 15)


def test_the_generator_decides():
    ids, special = torch.full((5, 60), 7), torch.zeros(5, 60)
    one, two, other = (mask_tokens(ids, special, MASK, 99, 0.5, seeded(s)) for s in (1, 1, 2))
    assert_close(one, two, rtol=0, atol=0)
    assert not torch.equal(one[1], other[1])
    torch.manual_seed(5)
    state = torch.get_rng_state()
    assert_close(mask_tokens(ids, special, MASK, 99, 0.5, seeded(1)), one, rtol=0, atol=0)
    assert torch.equal(torch.get_rng_state(), state)  # the global dice were not thrown


@pytest.mark.parametrize("change, words", [
    (dict(special_mask=torch.zeros(3)), r"special_mask: expected shape \(2, 3\), got \(3,\)"),
    (dict(special_mask=torch.zeros(2, 4)), r"special_mask: expected shape \(2, 3\), got \(2, 4\)"),
    (dict(rate=-0.1), r"rate: expected a probability in \[0, 1\], got -0.1"), (dict(rate=15), "got 15"),
    (dict(rate=float("nan")), "got nan"), (dict(lowest_random=99), r"expected an id in \[0, 99\), got 99"),
    (dict(lowest_random=-1), "got -1"),
])
def test_bad_masking(change, words):
    given = dict(input_ids=torch.full((2, 3), 7), special_mask=torch.zeros(2, 3), mask_id=MASK, vocab_size=99)
    with pytest.raises(ValueError, match=words):
        mask_tokens(**{**given, **change})


# --- head and loss against transformers

def small_pair(seed=0, **sizes):
    """Our encoder and head, and a BertForMaskedLM, with the same random weights, norms and biases included."""
    from transformers import BertConfig as TheirConfig
    from transformers import BertForMaskedLM

    config = BertConfig(**{"vocab_size": 61, "hidden_size": 24, "num_hidden_layers": 2, "num_attention_heads": 3,
                           "intermediate_size": 40, "max_position_embeddings": 32, "hidden_dropout_prob": 0.0,
                           "attention_probs_dropout_prob": 0.0, **sizes})
    torch.manual_seed(seed)
    model, head = BertModel(config), MlmHead(config)
    with torch.no_grad():
        for p in [*model.parameters(), *head.parameters()]:
            p.add_(0.2 * torch.randn_like(p))
    theirs = BertForMaskedLM._from_config(TheirConfig(**json.loads(config.to_json())), attn_implementation="eager")
    state = {f"bert.{name}": tensor for name, tensor in ours_by_their_name(model.state_dict()).items()}
    state |= {HEAD_NAMES[name]: tensor for name, tensor in head.state_dict().items()}
    state["cls.predictions.decoder.weight"] = model.embedding.word_embedding.weight
    state["cls.predictions.decoder.bias"] = head.bias
    state = {name: tensor for name, tensor in state.items() if "pooler" not in name}
    missing, unexpected = theirs.load_state_dict(state, strict=False)
    assert not unexpected and all("position_ids" in name for name in missing), (missing, unexpected)
    return model, head, theirs


HEAD_NAMES = {"transform_dense.weight": "cls.predictions.transform.dense.weight",
              "transform_dense.bias": "cls.predictions.transform.dense.bias",
              "transform_norm.weight": "cls.predictions.transform.LayerNorm.weight",
              "transform_norm.bias": "cls.predictions.transform.LayerNorm.bias", "bias": "cls.predictions.bias"}


def ours_by_their_name(named):
    return {hugging_face_name(name): tensor for name, tensor in named.items()}


def masked_batch(lengths, vocab_size=61, rate=0.4, seed=0):
    rows = [torch.randint(5, vocab_size, (n,), generator=seeded(seed + n)).tolist() for n in lengths]
    batch = pad_ids(rows, PAD)
    special = special_positions(*batch, [])
    corrupted, labels = mask_tokens(batch.input_ids, special, MASK, vocab_size, rate, seeded(seed))
    if not (labels != -100).any():
        labels[0, 0] = batch.input_ids[0, 0]
    return corrupted, batch.attention_mask, labels


SHAPES = [[1], [32], [5, 5], [9, 2, 6], [1, 32, 17, 3, 3]]


@pytest.mark.parametrize("packed", [True, False])
@pytest.mark.parametrize("lengths", SHAPES)
@pytest.mark.parametrize("sizes", [{}, dict(hidden_size=16, num_hidden_layers=1, num_attention_heads=1, vocab_size=200)])
def test_logits_loss_and_gradients_of_transformers(lengths, packed, sizes):
    model, head, theirs = small_pair(**sizes)
    ids, mask, labels = masked_batch(lengths, model.config.vocab_size)
    expected = theirs(input_ids=ids, attention_mask=mask, labels=labels)
    hidden = model(ids, mask, packed=packed).last_hidden_state
    logits = head(hidden, model.embedding.word_embedding.weight)
    assert logits.shape == expected.logits.shape
    assert_close(logits[mask == 1], expected.logits[mask == 1], atol=1e-5, rtol=1e-5)

    loss = mlm_loss(model, head, ids, mask, labels, packed=packed)
    assert loss.shape == () and loss.dtype == torch.float32
    assert_close(loss, expected.loss, atol=1e-5, rtol=1e-5)

    loss.backward()
    expected.loss.backward()
    gradients = {name: p.grad for name, p in theirs.named_parameters()}
    assert torch.any(gradients["bert.embeddings.word_embeddings.weight"] != 0)
    ours = {f"bert.{n}": p for n, p in ours_by_their_name(dict(model.named_parameters())).items() if "pooler" not in n}
    ours |= {HEAD_NAMES[n]: p for n, p in head.named_parameters()}
    assert set(ours) == set(gradients)
    for name, p in ours.items():
        assert_close(p.grad, gradients[name], atol=1e-5, rtol=1e-4, msg=lambda m, name=name: f"{name}: {m}")


def test_the_word_table_learns_from_both_ends():
    """Its gradient is the sum of an input part and an output part; both are there."""
    model, head, _ = small_pair()
    batch = masked_batch([9, 4])
    table = model.embedding.word_embedding.weight
    whole, = torch.autograd.grad(mlm_loss(model, head, *batch), table)
    hidden = model(*batch[:2]).last_hidden_state[batch[2] != -100]
    copy = table.detach().clone().requires_grad_()
    loss = nn.functional.cross_entropy(head(hidden, copy), batch[2][batch[2] != -100])
    enter, leave = torch.autograd.grad(loss, [table, copy])
    assert enter.abs().max() > 1e-4 and leave.abs().max() > 1e-4
    assert_close(whole, enter + leave, atol=1e-6, rtol=1e-4)


@pytest.mark.parametrize("lengths", SHAPES)
def test_packed_equals_padded(lengths):
    model, head, _ = small_pair(seed=3)
    batch = masked_batch(lengths, seed=9)
    weights = [p for n, p in [*model.named_parameters(), *head.named_parameters()] if "pooler" not in n]
    runs = []
    for packed in (True, False):
        loss = mlm_loss(model, head, *batch, packed=packed)
        runs.append((loss, *torch.autograd.grad(loss, weights)))
    assert_close(*runs, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("packed", [True, False])
def test_nothing_chosen_is_zero_and_still_attached(packed):
    model, head, _ = small_pair()
    ids, mask, labels = masked_batch([6, 3])
    loss = mlm_loss(model, head, ids, mask, torch.full_like(labels, -100), packed=packed)
    assert loss.item() == 0.0 and loss.shape == () and loss.requires_grad
    loss.backward()
    for name, p in [*model.named_parameters(), *head.named_parameters()]:
        if "pooler" not in name:
            assert p.grad is not None and p.grad.abs().max() == 0, name


def test_logits_are_made_for_chosen_positions_only():
    model, head, _ = small_pair()
    ids, mask, labels = masked_batch([20, 11, 30], rate=0.2)
    seen = []
    head.register_forward_hook(lambda _, args, out: seen.append((args[0].shape, out.shape)))
    mlm_loss(model, head, ids, mask, labels)
    k = int((labels != -100).sum())
    assert 0 < k < mask.sum() and seen == [((k, 24), (k, 61))]


def test_the_loss_is_a_mean_over_chosen_positions():
    model, head, _ = small_pair()
    ids, mask, labels = masked_batch([9, 5])
    rows, columns = (labels != -100).nonzero(as_tuple=True)
    singles = []
    for r, c in zip(rows, columns):
        alone = torch.full_like(labels, -100)
        alone[r, c] = labels[r, c]
        singles.append(mlm_loss(model, head, ids, mask, alone))
    assert_close(mlm_loss(model, head, ids, mask, labels), torch.stack(singles).mean())


def test_loss_in_bfloat16_is_summed_in_float32():
    model, head, _ = small_pair()
    batch = masked_batch([9, 5])
    with torch.autocast("cpu", torch.bfloat16):
        half = mlm_loss(model, head, *batch)
    assert half.dtype == torch.float32
    assert_close(half, mlm_loss(model, head, *batch), atol=0.1, rtol=0.05)


@pytest.mark.parametrize("vocab_size", [200, 3000])
def test_untrained_is_ln_v(vocab_size):
    config = BertConfig(vocab_size, 32, 2, 2, 64, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
    torch.manual_seed(0)
    model, head = BertModel(config), MlmHead(config)
    assert_close(head.transform_dense.weight.std().item(), 0.02, atol=0.002, rtol=0)
    assert all((p == v).all() for p, v in [(head.bias, 0), (head.transform_dense.bias, 0), (head.transform_norm.weight, 1)])
    loss = mlm_loss(model, head, *masked_batch([50] * 8, vocab_size))
    assert abs(loss.item() - math.log(vocab_size)) < 0.1


# --- batches of a run

TOY = Corpus(np.arange(4000, dtype=np.int32) % 190 + 5, np.cumsum([0] + [10, 6, 14, 10] * 100))
TOY_IDS = {"[PAD]": PAD, "[CLS]": CLS, "[SEP]": SEP, "[MASK]": MASK}


def test_batches_hold_the_sequences_of_the_stream():
    config = PretrainConfig(vocab_size=200, tokens_per_step=300, seed=3)
    rows = budget_batches(TOY.lengths, 300, 3)
    for batch, chosen in zip(islice(mlm_batches(TOY, TOY_IDS, config), 30), rows):
        real = [torch.where(y != -100, y, x)[m == 1].tolist()
                for x, m, y in zip(batch.input_ids, batch.attention_mask, batch.labels)]
        assert real == TOY.sequences(chosen)
        assert (batch.input_ids[batch.attention_mask == 0] == PAD).all()
        assert (batch.labels[batch.attention_mask == 0] == -100).all()


def test_batches_never_ask_for_the_frame_and_use_the_rate():
    framed = Corpus(np.where(np.arange(20_000) % 10 == 0, CLS, np.where(np.arange(20_000) % 10 == 9, SEP, 50)).astype(np.int32),
                    np.arange(0, 20_001, 10))
    config = PretrainConfig(vocab_size=60, tokens_per_step=2000, mask_rate=0.3)
    batches = list(islice(mlm_batches(framed, TOY_IDS, config), 10))
    asked = torch.cat([b.labels.flatten() for b in batches])
    assert set(asked.tolist()) == {-100, 50}
    check_share(int((asked == 50).sum()), 16_000, 0.3)
    ids = torch.cat([b.input_ids.flatten() for b in batches])
    assert (ids == MASK).any() and ids.max() < 60 and len(set(ids.tolist())) > 50


def test_masks_differ_between_steps_and_epochs_and_repeat_with_the_seed():
    same = Corpus(np.full(100, 50, np.int32), np.arange(0, 101, 10))
    config = PretrainConfig(vocab_size=60, tokens_per_step=100, mask_rate=0.5)
    labels = [b.labels for b in islice(mlm_batches(same, TOY_IDS, config), 6)]
    assert len({tuple(x.flatten().tolist()) for x in labels}) == 6
    again = [b.labels for b in islice(mlm_batches(same, TOY_IDS, config), 6)]
    assert_close(labels, again)
    other = next(mlm_batches(same, TOY_IDS, PretrainConfig(vocab_size=60, tokens_per_step=100, mask_rate=0.5, seed=1)))
    assert not torch.equal(other.labels, labels[0])


@pytest.mark.parametrize("start", [1, 12, 13, 14, 40])
def test_batches_start_anywhere(start):
    config = PretrainConfig(vocab_size=200, tokens_per_step=300)
    whole = list(islice(mlm_batches(TOY, TOY_IDS, config), start + 3))
    late = list(islice(mlm_batches(TOY, TOY_IDS, config, start), 3))
    assert_close([tuple(b) for b in late], [tuple(b) for b in whole[start:]], rtol=0, atol=0)


def test_rate_rises_stays_and_falls():
    config = PretrainConfig(total_steps=100, warmup_steps=10, decay_share=0.3)
    rates = [config.rate(s) for s in range(101)]
    assert rates[10:71] == [1.0] * 61 and rates[100] == 0.0 and rates[0] < 0.11
    assert all(a < b for a, b in zip(rates[:9], rates[1:10])) and all(a > b for a, b in zip(rates[70:], rates[71:]))


def test_sizes_reach_the_encoder():
    config = PretrainConfig(200, 16, 3, 2, 40).bert()
    assert (config.vocab_size, config.hidden_size, config.num_hidden_layers, config.num_attention_heads,
            config.intermediate_size) == (200, 16, 3, 2, 40)
    assert config.hidden_dropout_prob == config.attention_probs_dropout_prob == 0.0


# --- whole runs

CONFIG = dict(vocab_size=200, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=32,
              total_steps=30, tokens_per_step=256, lr=1e-2, warmup_steps=3, precision="fp32", save_every=5)
TINY = PretrainConfig(**CONFIG)


@pytest.fixture(scope="module")
def text():
    sample = generate_sample(0)
    sentences = load_dataset("sst").sentences[:300]
    assert sample and len(sentences) == 300
    return sentences


@pytest.fixture(scope="module")
def runs(tmp_path_factory, text):
    """A corpus, a prepared folder, an uninterrupted run and its rows."""
    top = tmp_path_factory.mktemp("runs")
    (top / "corpus" / "docs").mkdir(parents=True)
    (top / "corpus" / "heldout").mkdir()
    (top / "corpus" / "a.txt").write_text("\n".join(text[:150]), encoding="utf-8")
    (top / "corpus" / "docs" / "b.txt").write_text("\n".join(text[150:270]), encoding="utf-8")
    (top / "corpus" / "heldout" / "c.txt").write_text("\n".join(text[270:]), encoding="utf-8")
    prepare(top / "corpus", top / "prepared", TINY)
    shutil.copytree(top / "prepared", top / "whole")  # the vocabulary's ties are broken by chance: share one
    rows = list(pretrain(top / "corpus", top / "whole", TINY, heldout=text[270:]))
    return top, rows


def fresh(runs, name):
    folder = runs[0] / name
    shutil.copytree(runs[0] / "prepared", folder)
    return folder


def log_of(folder):
    return [json.loads(line) for line in (folder / "log.jsonl").read_text().splitlines()]


def same_model(one, two):
    names = ["config.json", "model.safetensors", HEAD, "vocab.txt"]
    return all((one / "model" / n).read_bytes() == (two / "model" / n).read_bytes() for n in names)
