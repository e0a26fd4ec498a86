"""Masks against transformers' collator, head and gradients against BertForMaskedLM, killed runs,
the embedded model.
"""

import json
import math
import os
import re
import shutil
import signal
import subprocess
import sys
from dataclasses import replace
from itertools import islice

import numpy as np
import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from scipy.stats import spearmanr
from torch import nn
from torch.testing import assert_close

import minbert.cli.pretraining as module
from minbert.center import mean_state
from minbert.cli.model_card import tokens_seen, write_card
from minbert.cli.pretraining import PretrainConfig, mlm_batches, packed_mlm_loss, prepare, pretrain
from minbert.core.checkpoint import CHECKPOINT, read_checkpoint
from minbert.core.graceful_stop import Stopped
from minbert.corpus import Corpus, budget_batches, build_corpus, train_wordpiece
from minbert.corpus_cache import CORPUS, load_corpus, save_corpus
from minbert.data import Dataset, load_dataset
from minbert.encoder import BertConfig, BertModel
from minbert.encoding.bert_weights import hugging_face_name
from minbert.pretrain import (
    HEAD,
    MlmHead,
    NspHead,
    load_mlm,
    mask_tokens,
    masked_accuracy,
    mlm_loss,
    pretraining_losses,
    save_mlm,
    sentence_pairs,
    special_positions,
)
from minbert.sentence import POOLINGS
from minbert.sts import sts_by_pooling
from minbert.tokens import load_tokenizer, pad_ids, resolve_folder, tokenize

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
    # every other id of the vocabulary, specials included, as in BERT
    for i in set(range(V)) - {MASK, word}:
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
    check_share(int((chosen[:, 1:] & chosen[:, :-1]).sum()), 39 * len(ids), 0.15**2)
    check_share(int((chosen[1:] & chosen[:-1]).sum()), 40 * (len(ids) - 1), 0.15**2)


def test_same_shares_as_the_collator_of_transformers():
    from transformers import DataCollatorForLanguageModeling

    tokenizer, V = load_tokenizer(), 8000
    words = torch.randint(5, V, (500, 200), generator=seeded(3))
    words[:, 0], words[:, -1] = CLS, SEP
    words[::2, 150:] = PAD
    words[::2, 149] = SEP
    torch.manual_seed(0)
    theirs = DataCollatorForLanguageModeling(tokenizer, mlm_probability=0.15)(
        [{"input_ids": row} for row in words]
    )
    special = special_positions(words, (words != PAD).long(), [CLS, SEP])
    ours = mask_tokens(words, special, MASK, V, 0.15, seeded(4))

    def shares(ids, labels):
        chosen = labels != -100
        return [
            chosen.sum(),
            (ids[chosen] == MASK).sum(),
            (ids[chosen] == labels[chosen]).sum(),
            ((ids[chosen] != MASK) & (ids[chosen] != labels[chosen])).sum(),
        ]

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
        corrupted, labels = mask_tokens(
            batch.input_ids, special.to(dtype), MASK, 99, 0.5, seeded(seed)
        )
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
    assert special_positions(torch.tensor([[PAD, 9]]), torch.tensor([[1, 1]]), [CLS]).tolist() == [
        [False, False]
    ]


def test_rate_zero_and_one():
    ids = torch.randint(5, 99, (7, 30), generator=seeded())
    special = torch.zeros_like(ids)
    special[:, 0] = 1
    corrupted, labels = mask_tokens(ids, special, MASK, 99, 0.0, seeded())
    assert torch.equal(corrupted, ids) and (labels == -100).all()
    corrupted, labels = mask_tokens(ids, special, MASK, 99, 1.0, seeded())
    assert torch.equal(labels[:, 1:], ids[:, 1:]) and (labels[:, 0] == -100).all()
    assert torch.equal(corrupted[:, 0], ids[:, 0])


def test_the_generator_decides():
    ids, special = torch.full((5, 60), 7), torch.zeros(5, 60)
    one, two, other = (mask_tokens(ids, special, MASK, 99, 0.5, seeded(s)) for s in (1, 1, 2))
    assert_close(one, two, rtol=0, atol=0)
    assert not torch.equal(one[1], other[1])
    torch.manual_seed(5)
    state = torch.get_rng_state()
    assert_close(mask_tokens(ids, special, MASK, 99, 0.5, seeded(1)), one, rtol=0, atol=0)
    assert torch.equal(torch.get_rng_state(), state)  # the global dice were not thrown


@pytest.mark.parametrize(
    "change, words",
    [
        (dict(special_mask=torch.zeros(3)), r"special_mask: expected shape \(2, 3\), got \(3,\)"),
        (
            dict(special_mask=torch.zeros(2, 4)),
            r"special_mask: expected shape \(2, 3\), got \(2, 4\)",
        ),
    ],
)
def test_bad_masking(change, words):
    given = dict(
        input_ids=torch.full((2, 3), 7), special_mask=torch.zeros(2, 3), mask_id=MASK, vocab_size=99
    )
    with pytest.raises(ValueError, match=words):
        mask_tokens(**{**given, **change})


# --- head and loss against transformers


def small_pair(seed=0, **sizes):
    """Our encoder and head, and a BertForMaskedLM, with the same random weights, norms and biases
    included.
    """
    from transformers import BertConfig as TheirConfig
    from transformers import BertForMaskedLM

    config = BertConfig(
        **{
            "vocab_size": 61,
            "hidden_size": 24,
            "num_hidden_layers": 2,
            "num_attention_heads": 3,
            "intermediate_size": 40,
            "max_position_embeddings": 32,
            "hidden_dropout_prob": 0.0,
            "attention_probs_dropout_prob": 0.0,
            **sizes,
        }
    )
    torch.manual_seed(seed)
    model, head = BertModel(config), MlmHead(config)
    with torch.no_grad():
        for p in [*model.parameters(), *head.parameters()]:
            p.add_(0.2 * torch.randn_like(p))
    theirs = BertForMaskedLM._from_config(
        TheirConfig(**json.loads(config.to_json())), attn_implementation="eager"
    )
    state = {
        f"bert.{name}": tensor for name, tensor in ours_by_their_name(model.state_dict()).items()
    }
    state |= {HEAD_NAMES[name]: tensor for name, tensor in head.state_dict().items()}
    state["cls.predictions.decoder.weight"] = model.embedding.word_embedding.weight
    state["cls.predictions.decoder.bias"] = head.bias
    state = {name: tensor for name, tensor in state.items() if "pooler" not in name}
    missing, unexpected = theirs.load_state_dict(state, strict=False)
    assert not unexpected and all("position_ids" in name for name in missing), (missing, unexpected)
    return model, head, theirs


HEAD_NAMES = {
    "transform_dense.weight": "cls.predictions.transform.dense.weight",
    "transform_dense.bias": "cls.predictions.transform.dense.bias",
    "transform_norm.weight": "cls.predictions.transform.LayerNorm.weight",
    "transform_norm.bias": "cls.predictions.transform.LayerNorm.bias",
    "bias": "cls.predictions.bias",
}


def ours_by_their_name(named):
    return {hugging_face_name(name): tensor for name, tensor in named.items()}


def masked_batch(lengths, vocab_size=61, rate=0.4, seed=0):
    rows = [
        torch.randint(5, vocab_size, (n,), generator=seeded(seed + n)).tolist() for n in lengths
    ]
    batch = pad_ids(rows, PAD)
    special = special_positions(*batch, [])
    corrupted, labels = mask_tokens(batch.input_ids, special, MASK, vocab_size, rate, seeded(seed))
    if not (labels != -100).any():
        labels[0, 0] = batch.input_ids[0, 0]
    return corrupted, batch.attention_mask, labels


SHAPES = [[1], [32], [5, 5], [9, 2, 6], [1, 32, 17, 3, 3]]


@pytest.mark.parametrize("lengths", SHAPES)
@pytest.mark.parametrize(
    "sizes", [{}, dict(hidden_size=16, num_hidden_layers=1, num_attention_heads=1, vocab_size=200)]
)
def test_logits_loss_and_gradients_of_transformers(lengths, sizes):
    model, head, theirs = small_pair(**sizes)
    ids, mask, labels = masked_batch(lengths, model.config.vocab_size)
    expected = theirs(input_ids=ids, attention_mask=mask, labels=labels)
    hidden = model(ids, mask).last_hidden_state
    logits = head(hidden, model.embedding.word_embedding.weight)
    assert logits.shape == expected.logits.shape
    assert_close(logits[mask == 1], expected.logits[mask == 1], atol=1e-5, rtol=1e-5)

    loss = mlm_loss(model, head, ids, mask, labels)
    assert loss.shape == () and loss.dtype == torch.float32
    assert_close(loss, expected.loss, atol=1e-5, rtol=1e-5)

    loss.backward()
    expected.loss.backward()
    gradients = {name: p.grad for name, p in theirs.named_parameters()}
    assert torch.any(gradients["bert.embeddings.word_embeddings.weight"] != 0)
    ours = {
        f"bert.{n}": p
        for n, p in ours_by_their_name(dict(model.named_parameters())).items()
        if "pooler" not in n
    }
    ours |= {HEAD_NAMES[n]: p for n, p in head.named_parameters()}
    assert set(ours) == set(gradients)
    for name, p in ours.items():
        assert_close(
            p.grad, gradients[name], atol=1e-5, rtol=1e-4, msg=lambda m, name=name: f"{name}: {m}"
        )


def test_the_word_table_learns_from_both_ends():
    """Its gradient is the sum of an input part and an output part; both are there."""
    model, head, _ = small_pair()
    batch = masked_batch([9, 4])
    table = model.embedding.word_embedding.weight
    (whole,) = torch.autograd.grad(mlm_loss(model, head, *batch), table)
    hidden = model(*batch[:2]).last_hidden_state[batch[2] != -100]
    copy = table.detach().clone().requires_grad_()
    loss = nn.functional.cross_entropy(head(hidden, copy), batch[2][batch[2] != -100])
    enter, leave = torch.autograd.grad(loss, [table, copy])
    assert enter.abs().max() > 1e-4 and leave.abs().max() > 1e-4
    assert_close(whole, enter + leave, atol=1e-6, rtol=1e-4)


def fast_loss(model, head, ids, mask, labels, packed=True):
    """The loss of the program, from the batch of the lesson."""
    both = nn.ModuleDict({"bert": model, "head": head})
    batch = module.MlmBatch(ids, mask, labels, module.chosen_positions(labels))
    return packed_mlm_loss(both, batch, packed)


@pytest.mark.parametrize("packed", [True, False])
@pytest.mark.parametrize("lengths", SHAPES)
def test_the_fast_loss_and_its_gradients_are_those_of_the_lesson(lengths, packed):
    model, head, _ = small_pair(seed=3)
    batch = masked_batch(lengths, seed=9)
    weights = [
        p for n, p in [*model.named_parameters(), *head.named_parameters()] if "pooler" not in n
    ]
    losses = mlm_loss(model, head, *batch), fast_loss(model, head, *batch, packed=packed)
    assert_close(
        *((loss, *torch.autograd.grad(loss, weights)) for loss in losses), atol=1e-5, rtol=1e-4
    )


@pytest.mark.parametrize("compute", [mlm_loss, fast_loss])
def test_nothing_chosen_is_zero_and_still_attached(compute):
    model, head, _ = small_pair()
    ids, mask, labels = masked_batch([6, 3])
    loss = compute(model, head, ids, mask, torch.full_like(labels, -100))
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


@pytest.mark.parametrize("lengths", SHAPES)
def test_chosen_positions_are_listed_row_by_row(lengths):
    _, _, labels = masked_batch(lengths, rate=0.4)
    row_by_row = [
        r * labels.shape[1] + c
        for r, row in enumerate(labels.tolist())
        for c, label in enumerate(row)
        if label != -100
    ]
    assert module.chosen_positions(labels).tolist() == row_by_row


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
        half = fast_loss(model, head, *batch)
    assert half.dtype == torch.float32
    assert_close(half, mlm_loss(model, head, *batch), atol=0.1, rtol=0.05)


@pytest.mark.parametrize("vocab_size", [200, 3000])
def test_untrained_is_ln_v(vocab_size):
    config = BertConfig(
        vocab_size, 32, 2, 2, 64, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0
    )
    torch.manual_seed(0)
    model, head = BertModel(config), MlmHead(config)
    for std in (0.02, 0.1):
        assert_close(
            MlmHead(replace(config, initializer_range=std)).transform_dense.weight.std().item(),
            std,
            rtol=0.1,
            atol=0,
        )
    assert all(
        (p == v).all()
        for p, v in [
            (head.bias, 0),
            (head.transform_dense.bias, 0),
            (head.transform_norm.weight, 1),
        ]
    )
    loss = mlm_loss(model, head, *masked_batch([50] * 8, vocab_size))
    assert abs(loss.item() - math.log(vocab_size)) < 0.1


# --- next-sentence prediction

DOCUMENTS = [[f"{d} {s}" for s in range(4 + d % 3)] for d in range(60)]


def test_pairs_are_successors_or_from_another_document():
    pairs = sentence_pairs(DOCUMENTS, seeded())
    firsts = [first for first, _, _ in pairs]
    assert firsts == [sentence for document in DOCUMENTS for sentence in document[:-1]]
    for first, second, label in pairs:
        document, number = map(int, first.split())
        if label == 0:
            assert second == f"{document} {number + 1}"
        else:
            assert label == 1 and second.split()[0] != first.split()[0]
    check_share(sum(label for *_, label in pairs), len(pairs), 0.5)
    assert pairs == sentence_pairs(DOCUMENTS, seeded()) != sentence_pairs(DOCUMENTS, seeded(1))


def test_random_sentences_come_from_every_document_and_every_place():
    drawn = [
        second
        for seed in range(300)
        for first, second, label in sentence_pairs(DOCUMENTS[:5], seeded(seed))
        if label == 1 and first.startswith("2 ")
    ]
    assert set(drawn) == {s for d in (0, 1, 3, 4) for s in DOCUMENTS[d]}
    check_share(sum(x.startswith("0 ") for x in drawn), len(drawn), 1 / 4)


def test_both_losses_are_those_of_transformers():
    from transformers import BertConfig as TheirConfig
    from transformers import BertForPreTraining

    model, head, _ = small_pair()
    nsp_head = NspHead(model.config)
    theirs = BertForPreTraining._from_config(
        TheirConfig(**json.loads(model.config.to_json())), attn_implementation="eager"
    )
    state = {f"bert.{n}": x for n, x in ours_by_their_name(model.state_dict()).items()}
    state |= {HEAD_NAMES[name]: x for name, x in head.state_dict().items()}
    state |= {f"cls.seq_relationship.{name}": x for name, x in nsp_head.state_dict().items()}
    state["cls.predictions.decoder.weight"] = model.embedding.word_embedding.weight
    state["cls.predictions.decoder.bias"] = head.bias
    missing, unexpected = theirs.load_state_dict(state, strict=False)
    assert not unexpected and all("position_ids" in name for name in missing), missing
    ids, mask, labels = masked_batch([9, 5, 12])
    segments = (torch.arange(ids.shape[1]) > 3).long().expand_as(ids)
    next_labels = torch.tensor([0, 1, 1])
    expected = theirs(
        input_ids=ids,
        attention_mask=mask,
        token_type_ids=segments,
        labels=labels,
        next_sentence_label=next_labels,
    ).loss
    mlm, nsp = pretraining_losses(model, head, nsp_head, ids, mask, segments, labels, next_labels)
    assert_close(mlm + nsp, expected, atol=1e-5, rtol=1e-5)
    one_segment = torch.zeros_like(segments)
    same, _ = pretraining_losses(model, head, nsp_head, ids, mask, one_segment, labels, next_labels)
    assert_close(same, mlm_loss(model, head, ids, mask, labels), atol=1e-5, rtol=1e-5)
    (mlm + nsp).backward()
    for part in (
        model.pooler_dense,
        nsp_head,
        head.transform_dense,
        model.embedding.tk_type_embedding,
    ):
        assert part.weight.grad.abs().max() > 0


# --- batches of a run

TOY = Corpus(np.arange(4000, dtype=np.int32) % 190 + 5, np.cumsum([0] + [10, 6, 14, 10] * 100))
TOY_IDS = {"[PAD]": PAD, "[CLS]": CLS, "[SEP]": SEP, "[MASK]": MASK}


def test_batches_hold_the_sequences_of_the_stream():
    config = PretrainConfig(vocab_size=200, tokens_per_step=300, seed=3)
    # 16 batches of 300 tokens, 10 tokens a sequence
    rows = budget_batches(TOY.lengths, 300, 3, stretch=480)
    for batch, chosen in zip(islice(mlm_batches(TOY, TOY_IDS, config), 30), rows):
        real = [
            torch.where(y != -100, y, x)[m == 1].tolist()
            for x, m, y in zip(batch.input_ids, batch.attention_mask, batch.labels)
        ]
        assert real == TOY.sequences(chosen)
        assert (batch.input_ids[batch.attention_mask == 0] == PAD).all()
        assert (batch.labels[batch.attention_mask == 0] == -100).all()


def test_batches_never_ask_for_the_frame_and_use_the_rate():
    framed = Corpus(
        np.where(
            np.arange(20_000) % 10 == 0, CLS, np.where(np.arange(20_000) % 10 == 9, SEP, 50)
        ).astype(np.int32),
        np.arange(0, 20_001, 10),
    )
    config = PretrainConfig(vocab_size=60, tokens_per_step=2000, mask_rate=0.3)
    batches = list(islice(mlm_batches(framed, TOY_IDS, config), 10))
    assert all(torch.equal(b.places, module.chosen_positions(b.labels)) for b in batches)
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
    other = next(
        mlm_batches(
            same, TOY_IDS, PretrainConfig(vocab_size=60, tokens_per_step=100, mask_rate=0.5, seed=1)
        )
    )
    assert not torch.equal(other.labels, labels[0])


def test_processes_that_work_ahead_make_the_same_batches_and_leave_the_random_state():
    config, before = PretrainConfig(vocab_size=200, tokens_per_step=300), torch.get_rng_state()
    alone, helped = (
        list(islice(mlm_batches(TOY, TOY_IDS, config, 3, workers), 7)) for workers in (0, 2)
    )
    assert_close([tuple(b) for b in helped], [tuple(b) for b in alone], rtol=0, atol=0)
    assert all(isinstance(b, module.MlmBatch) for b in helped)
    assert torch.equal(torch.get_rng_state(), before)


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
    assert all(a < b for a, b in zip(rates[:9], rates[1:10])) and all(
        a > b for a, b in zip(rates[70:], rates[71:])
    )


def test_sizes_reach_the_encoder():
    config = PretrainConfig(200, 16, 3, 2, 40).bert()
    assert (
        config.vocab_size,
        config.hidden_size,
        config.num_hidden_layers,
        config.num_attention_heads,
        config.intermediate_size,
    ) == (200, 16, 3, 2, 40)
    assert config.hidden_dropout_prob == config.attention_probs_dropout_prob == 0.0


# --- whole runs

CONFIG = dict(
    vocab_size=200,
    hidden_size=16,
    num_hidden_layers=1,
    num_attention_heads=2,
    intermediate_size=32,
    total_steps=30,
    tokens_per_step=256,
    lr=1e-2,
    warmup_steps=3,
    precision="fp32",
    save_every=5,
)
TINY = PretrainConfig(**CONFIG)


@pytest.fixture(scope="module")
def text():
    """300 sentences of the grammar of minbert.datasets.grammar_data."""
    return load_dataset("sst").sentences[:300]


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
    # the vocabulary's ties are broken by chance: share one
    shutil.copytree(top / "prepared", top / "whole")
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


def test_loss_goes_down_and_rows_tell_the_run(runs):
    top, rows = runs
    assert [r["step"] for r in rows] == [5, 10, 15, 20, 25, 30]
    assert all(set(r) == {"step", "loss", "lr", "accuracy", "heldout_loss"} for r in rows)
    assert abs(rows[0]["loss"] - math.log(200)) < 0.5 and rows[-1]["loss"] < rows[0]["loss"] - 0.2
    assert rows[-1]["heldout_loss"] < rows[0]["heldout_loss"] - 0.1
    assert rows[-1]["accuracy"] > 0.02
    for row in rows:
        assert row["lr"] == pytest.approx(TINY.lr * TINY.rate(row["step"] - 1))
    assert log_of(top / "whole") == rows


def test_rows_hold_the_mean_loss_since_the_last_row(runs, monkeypatch, text):
    losses, plain = [], module.packed_mlm_loss
    # append gives None
    monkeypatch.setattr(
        module, "packed_mlm_loss", lambda *a, **k: losses.append(plain(*a, **k)) or losses[-1]
    )
    rows = list(
        pretrain(
            runs[0] / "corpus",
            fresh(runs, "means"),
            PretrainConfig(**{**CONFIG, "total_steps": 13}),
        )
    )
    assert [r["step"] for r in rows] == [5, 10, 13] and set(rows[0]) == {"step", "loss", "lr"}
    for row, part in zip(rows, (losses[:5], losses[5:10], losses[10:])):
        assert row["loss"] == pytest.approx(sum(x.item() for x in part) / len(part), rel=1e-6)
    assert len(losses) == 13


def test_every_weight_learns_but_the_pooler(runs):
    torch.manual_seed(TINY.seed)
    before = nn.ModuleDict(
        {"bert": BertModel(TINY.bert()), "head": MlmHead(TINY.bert())}
    ).state_dict()
    model, head = load_mlm(runs[0] / "whole" / "model")
    after = nn.ModuleDict({"bert": model, "head": head}).state_dict()
    for name, tensor in before.items():
        if "pooler" not in name and "tk_type" not in name and "key.bias" not in name:
            assert (after[name] - tensor).abs().max() > 2e-3, name


def test_a_killed_process_goes_on_to_the_same_bits(runs):
    """SIGKILL in the middle of step 13, three steps behind the last checkpoint."""
    top, rows = runs
    folder = fresh(runs, "killed")
    code = (
        "import json, os, signal, sys\n"
        "import minbert.cli.pretraining as module\n"
        "plain, calls = module.packed_mlm_loss, []\n"
        "def deadly(*a, **k):\n"
        "    calls.append(1)\n"
        "    if len(calls) == 14: os.kill(os.getpid(), signal.SIGKILL)\n"
        "    return plain(*a, **k)\n"
        "module.packed_mlm_loss = deadly\n"
        "config = module.PretrainConfig(**json.loads(sys.argv[3]))\n"
        "for row in module.pretrain(sys.argv[1], sys.argv[2], config, json.loads(sys.argv[4])): pass\n"
    )
    env = {**os.environ, "OMP_NUM_THREADS": str(torch.get_num_threads())}
    heldout = (top / "corpus" / "heldout" / "c.txt").read_text(encoding="utf-8").split("\n")
    result = subprocess.run(
        [
            sys.executable,
            "-c",
            code,
            str(top / "corpus"),
            str(folder),
            json.dumps(CONFIG),
            json.dumps(heldout),
        ],
        env=env,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert result.returncode == -signal.SIGKILL, result.stderr
    assert [r["step"] for r in log_of(folder)] == [5, 10] and not (folder / "model" / HEAD).exists()
    rest = list(pretrain(top / "corpus", folder, TINY, heldout))
    assert rest == rows[2:] and log_of(folder) == rows
    assert same_model(top / "whole", folder)


@pytest.mark.parametrize("rows_read", [1, 3, 6])
def test_an_abandoned_iterator_goes_on_to_the_same_bits(runs, rows_read, text):
    top, rows = runs
    folder = fresh(runs, f"left {rows_read}")
    run = pretrain(top / "corpus", folder, TINY, text[270:])
    first = list(islice(run, rows_read))
    run.close()
    torch.manual_seed(rows_read)  # other dice in between do no harm
    assert first + list(pretrain(top / "corpus", folder, TINY, text[270:])) == rows
    assert log_of(folder) == rows and same_model(top / "whole", folder)


@pytest.mark.parametrize("step", [12, 10])  # between two rows, and with one
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_saves_and_the_run_goes_on_to_the_same_rows(runs, monkeypatch, text, number, step):
    top, rows = runs
    folder, plain, calls = fresh(runs, f"asked {number} {step}"), module.packed_mlm_loss, []

    def asked(*args, **kwargs):
        calls.append(1)
        if len(calls) == step:
            os.kill(os.getpid(), number)
        return plain(*args, **kwargs)

    monkeypatch.setattr(module, "packed_mlm_loss", asked)
    with pytest.raises(Stopped) as stopped:
        list(pretrain(top / "corpus", folder, TINY, text[270:]))
    assert (stopped.value.step, stopped.value.number) == (step, number) and len(calls) == step
    rest = list(pretrain(top / "corpus", folder, TINY, text[270:]))
    assert rest == rows[2:] and log_of(folder) == rows and same_model(top / "whole", folder)


def test_two_runs_in_one_folder_are_kept_apart(runs, text):
    top, _ = runs
    folder = fresh(runs, "twice")
    first = pretrain(top / "corpus", folder, TINY, text[270:])
    next(first)
    with pytest.raises(ValueError, match="no other run in this folder"):
        next(pretrain(top / "corpus", folder, TINY, text[270:]))
    first.close()
    assert next(pretrain(top / "corpus", folder, TINY, text[270:]))["step"] == 10


@pytest.mark.parametrize(
    "where, call",
    [("save_checkpoint", 2), ("save_checkpoint", 6), ("write_log", 3), ("save_mlm", 1)],
)
@pytest.mark.parametrize("moment", ["before", "after"])
def test_dying_around_a_save_loses_and_doubles_no_row(runs, monkeypatch, text, where, call, moment):
    top, rows = runs
    folder = fresh(runs, f"{where} {call} {moment}")
    plain, calls = getattr(module, where), []

    def dies(*args, **kwargs):
        calls.append(1)
        if len(calls) == call and moment == "before":
            raise KeyboardInterrupt
        plain(*args, **kwargs)
        if len(calls) == call:
            raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(module, where, dies)
        list(pretrain(top / "corpus", folder, TINY, text[270:]))
    list(pretrain(top / "corpus", folder, TINY, text[270:]))
    assert log_of(folder) == rows and same_model(top / "whole", folder)


def test_a_torn_log_is_written_anew(runs, text):
    top, rows = runs
    folder = fresh(runs, "torn")
    next(pretrain(top / "corpus", folder, TINY, text[270:]))
    with (folder / "log.jsonl").open("a") as log:
        log.write('{"step": 10, "lo')
    list(pretrain(top / "corpus", folder, TINY, text[270:]))
    assert log_of(folder) == rows


def test_a_finished_run_does_nothing_more(runs, text, monkeypatch):
    top, rows = runs
    shutil.copytree(top / "whole", top / "finished")
    monkeypatch.setattr(module, "packed_mlm_loss", None)
    assert list(pretrain(top / "corpus", top / "finished", TINY, text[270:])) == []
    assert log_of(top / "finished") == rows and same_model(top / "whole", top / "finished")


def test_more_steps_before_the_fall_change_nothing_done(runs, text):
    """30 steps planned, stopped at 15 before the fall; then 40 planned: the same as 40 from the
    start.
    """
    plan = {**CONFIG, "total_steps": 40, "decay_share": 0.25}
    straight, bent = fresh(runs, "straight"), fresh(runs, "bent")
    list(pretrain(runs[0] / "corpus", straight, PretrainConfig(**plan)))
    run = pretrain(runs[0] / "corpus", bent, PretrainConfig(**{**plan, "total_steps": 30}))
    assert [next(run)["step"] for _ in range(3)] == [5, 10, 15]
    run.close()
    list(pretrain(runs[0] / "corpus", bent, PretrainConfig(**plan)))
    assert log_of(straight) == log_of(bent) and same_model(straight, bent)


@pytest.mark.parametrize(
    "change", [{"lr": 1e-5}, {"tokens_per_step": 999}, {"mask_rate": 0.5}, {"seed": 1}], ids=str
)
def test_a_run_goes_on_with_its_own_settings_only(runs, text, change):
    """A card would tell the new ones of steps that were made with the old; how often is saved may
    change.
    """
    folder = fresh(runs, f"other-{next(iter(change))}")
    run = pretrain(runs[0] / "corpus", folder, TINY, text[270:])
    next(run)
    run.close()
    before, (name,) = (folder / CHECKPOINT).read_bytes(), change
    with pytest.raises(ValueError, match=f"expected {name} {getattr(TINY, name)}"):
        list(pretrain(runs[0] / "corpus", folder, replace(TINY, **change), text[270:]))
    assert (folder / CHECKPOINT).read_bytes() == before
    assert (
        next(pretrain(runs[0] / "corpus", folder, replace(TINY, save_every=1), text[270:]))["step"]
        > 0
    )


def test_copies_kept_on_the_way_are_the_models_of_those_steps(runs):
    folder = fresh(runs, "kept")
    run = pretrain(runs[0] / "corpus", folder, TINY, keep=[10, 13, 30])
    assert [next(run)["step"] for _ in range(2)] == [5, 10]
    then = read_checkpoint(folder)["model"]
    run.close()
    model, head = load_mlm(folder / "step-10")
    # by `center`
    moved = {
        f"bert_layers.{TINY.num_hidden_layers - 1}.out_layer_norm.bias",
        "pooler_dense.bias",
        "transform_dense.bias",
    }
    for part, name in ((model, "bert"), (head, "head")):
        same = {
            n: torch.equal(p, then[f"{name}.{n}"].half().float())
            for n, p in part.state_dict().items()
        }
        assert {n for n, is_same in same.items() if not is_same} == moved & set(same)
    sequences = load_corpus(folder).sequences(range(min(2048, len(load_corpus(folder).lengths))))
    # half precision of numbers of about 1
    assert mean_state(model, [pad_ids(sequences)]).abs().max() < 0.01
    assert len(load_tokenizer(folder / "step-10")) == 200 and model.config.hidden_dropout_prob == 0
    words = [
        load_tokenizer(folder / name)("A small FILM, unseen.")["input_ids"]
        for name in ("model", "step-10")
    ]
    assert words[0] == words[1]
    assert not (folder / "step-30").exists()
    list(pretrain(runs[0] / "corpus", folder, TINY, keep=[10, 13, 30]))
    assert sorted(p.name for p in folder.glob("step-*")) == ["step-10", "step-13", "step-30"]
    for name in ("model.safetensors", HEAD, "config.json"):
        assert (folder / "step-30" / name).read_bytes() == (folder / "model" / name).read_bytes()
        assert (
            name == "config.json"
            or (folder / "step-13" / name).read_bytes() != (folder / "step-10" / name).read_bytes()
        )


def test_the_seed_changes_the_run(runs):
    other = PretrainConfig(**{**CONFIG, "seed": 1, "total_steps": 5})
    (row,) = pretrain(runs[0] / "corpus", fresh(runs, "seed"), other)
    assert row["loss"] != runs[1][0]["loss"]


@pytest.mark.usefixtures("bf16")
def test_bfloat16_stays_near(runs):
    half = PretrainConfig(**{**CONFIG, "precision": "bf16", "total_steps": 10})
    rows = list(pretrain(runs[0] / "corpus", fresh(runs, "bf16"), half))
    # one alone may agree to the last digit by chance
    assert [r["loss"] for r in rows] != [r["loss"] for r in runs[1][:2]]
    assert [r["loss"] for r in rows] == pytest.approx([r["loss"] for r in runs[1][:2]], abs=0.1)


def test_other_sizes_or_fewer_steps_than_done_are_refused(runs):
    top, _ = runs
    for change, words in (
        ({"hidden_size": 32}, CHECKPOINT),
        ({"num_hidden_layers": 2}, CHECKPOINT),
        ({"total_steps": 10}, "at most 10 steps, got one that has done 30"),
    ):
        with pytest.raises(ValueError, match=words):
            next(pretrain(top / "corpus", top / "whole", PretrainConfig(**{**CONFIG, **change})))
    for count in ("total_steps", "tokens_per_step", "alike", "save_every"):
        with pytest.raises(ValueError, match=f"expected {count} of at least 1, got 0"):
            PretrainConfig(**{**CONFIG, count: 0})
    for rate in (-0.1, 15, math.nan):
        with pytest.raises(ValueError, match=rf"expected mask_rate in \[0, 1\], got {rate}"):
            PretrainConfig(**{**CONFIG, "mask_rate": rate})
    with pytest.raises(ValueError, match="fp32"):
        next(
            pretrain(
                top / "corpus", fresh(runs, "fp8"), PretrainConfig(**{**CONFIG, "precision": "fp8"})
            )
        )
    with pytest.raises(ValueError, match="at least one batch"):
        big = PretrainConfig(**{**CONFIG, "tokens_per_step": 10**6})
        next(pretrain(top / "corpus", fresh(runs, "big"), big))
    with pytest.raises(ValueError, match="nowhere: expected a .txt or .txt.gz file"):
        next(pretrain(top / "nowhere", top / "new", TINY))
    assert not (top / "new" / CORPUS).exists()


# --- what a run leaves behind


def test_prepared_folder(runs):
    # from the first time
    tokenizer, corpus = prepare(runs[0] / "nowhere", runs[0] / "prepared", TINY)
    assert [
        tokenizer.convert_tokens_to_ids(t) for t in ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
    ] == [0, 1, 2, 3, 4]
    assert (
        len(tokenizer)
        == 200
        == len((runs[0] / "prepared" / "model" / "vocab.txt").read_text("utf-8").splitlines())
    )
    assert tokenizer.model_max_length == 512 and corpus.ids.max() < 200
    text = (runs[0] / "corpus" / "a.txt").read_text(encoding="utf-8").split("\n")
    assert corpus.sequences([0, 1, 149]) == [tokenizer(text[i]).input_ids for i in (0, 1, 149)]
    settings = json.loads((runs[0] / "prepared" / "model" / "tokenizer_config.json").read_text())
    assert settings["do_lower_case"] is True
    assert not list((runs[0] / "prepared").glob(".draft*"))


def test_killed_while_preparing_starts_over(runs, monkeypatch, tmp_path):
    plain = module.build_corpus
    monkeypatch.setattr(module, "build_corpus", lambda *a: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        prepare(runs[0] / "corpus", tmp_path, TINY)
    monkeypatch.setattr(module, "build_corpus", plain)
    tokenizer, corpus = prepare(runs[0] / "corpus", tmp_path, TINY)
    assert len(tokenizer) == 200 and len(corpus.lengths) > 150


def damage(file, how):
    """Cut a file, flip one bit of it, or put something else in its place."""
    data = file.read_bytes()
    if how == "folder":
        file.unlink()
        file.mkdir()
    elif how == "other":
        save_file({"x": torch.ones(3)}, file)
    else:
        file.write_bytes(
            {
                "cut": data[:-7],
                "empty": b"",
                "flipped": data[:-9] + bytes([data[-9] ^ 4]) + data[-8:],
                "noise": bytes(range(256)) * 9,
            }[how]
        )


@pytest.mark.parametrize("how", ["cut", "empty", "flipped", "noise", "folder", "other"])
def test_a_damaged_corpus_is_named_and_comes_anew_when_deleted(runs, how, text):
    """Made anew, it is the same: words learned twice would differ, and the weights would not fit
    them.
    """
    top, rows = runs
    folder = fresh(runs, f"damaged {how}")
    next(pretrain(top / "corpus", folder, TINY, text[270:]))
    damage(folder / CORPUS, how)
    for call in (
        lambda: next(pretrain(top / "corpus", folder, TINY, text[270:])),
        lambda: tokens_seen(folder, TINY),
    ):
        with pytest.raises(
            ValueError,
            match=rf"{re.escape(str(folder / CORPUS))}: .*delete it, and the next start makes it anew",
        ):
            call()
    (folder / CORPUS).rmdir() if how == "folder" else (folder / CORPUS).unlink()
    assert list(pretrain(top / "corpus", folder, TINY, text[270:])) == rows[1:] and same_model(
        top / "whole", folder
    )


def test_a_run_whose_text_has_changed_is_told_so_and_goes_on_with_the_old_one(runs, tmp_path, text):
    top, rows = runs
    folder, corpus = fresh(runs, "changed"), shutil.copytree(top / "corpus", tmp_path / "corpus")
    next(pretrain(corpus, folder, TINY, text[270:]))  # the same text in another place
    before = {file: file.read_bytes() for file in folder.rglob("*") if file.is_file()}
    old = (corpus / "a.txt").read_text(encoding="utf-8")
    (corpus / "a.txt").write_text(old + "\nOne line more.", encoding="utf-8")
    with pytest.raises(
        ValueError,
        match=f"{re.escape(str(folder / CORPUS))}: expected the text that this run began with",
    ):
        next(pretrain(corpus, folder, TINY, text[270:]))
    assert {file: file.read_bytes() for file in folder.rglob("*") if file.is_file()} == before
    (corpus / "a.txt").write_text(old, encoding="utf-8")
    assert list(pretrain(corpus, folder, TINY, text[270:])) == rows[1:]


def test_a_corpus_that_an_older_release_kept_goes_on(runs, text):
    """It does not say from which text it is."""
    top, rows = runs
    folder = fresh(runs, "older")
    save_corpus(load_corpus(folder), folder)
    assert list(pretrain(top / "corpus", folder, TINY, text[270:])) == rows


def test_words_are_never_learned_twice(runs, text):
    top, _ = runs
    folder = fresh(runs, "wordless")
    next(pretrain(top / "corpus", folder, TINY, text[270:]))
    for name in ("vocab.txt", "tokenizer.json"):
        (folder / "model" / name).unlink()
    for kept in ({CORPUS, CHECKPOINT}, {CHECKPOINT}):
        for file in {CORPUS, CHECKPOINT} - kept:
            (folder / file).unlink()
        with pytest.raises(ValueError, match=re.escape(str(folder / "model"))):
            next(pretrain(top / "corpus", folder, TINY, text[270:]))
        assert not (folder / "model" / "vocab.txt").exists()


def test_the_tokenizer_that_was_learned_and_the_one_that_was_saved_cut_alike(runs, tmp_path):
    """Special words, capitals, accents, a long line: a corpus made again is made with what was
    saved.
    """
    words = train_wordpiece(runs[0] / "corpus", 200)
    text = tmp_path / "text"
    model = tmp_path / "run" / "model"
    text.mkdir()
    model.mkdir(parents=True)
    (text / "a.txt").write_text(
        "The [MASK] film.\nCAFÉ naïve 東京!\n[CLS] a  b\tc\n" + "word " * 600 + "\n",
        encoding="utf-8",
    )
    words.save_model(str(model))
    words.save(str(model / "tokenizer.json"))
    _, corpus = prepare(text, tmp_path / "run", TINY)
    # the long line is several
    assert [x.tolist() for x in corpus] == [
        x.tolist() for x in build_corpus(text, words, TINY.seed)
    ] and len(corpus.lengths) > 4


@pytest.mark.parametrize("name", ["log.jsonl", "model"])
def test_what_is_no_file_of_a_run_is_refused_before_a_step(runs, name):
    folder = fresh(runs, f"no {name}")
    shutil.rmtree(folder / name, ignore_errors=True)
    (folder / name).mkdir() if name == "log.jsonl" else (folder / name).touch()
    with pytest.raises(ValueError, match=f"{re.escape(str(folder / name))}: expected"):
        next(pretrain(runs[0] / "corpus", folder, TINY))


@pytest.mark.parametrize(
    "how, message",
    [
        ("cut", "cut short"),
        ("empty", "without a whole header"),
        ("noise", "expected"),
        ("folder", "got a folder"),
        ("other", "expected tensor 'bias' of shape"),
        ("nan", "finite numbers in tensor 'bias', got 1 of 61"),
        ("wide", "of shape"),
        ("ints", "torch.float16, got .* torch.int32"),
        ("dangling", "expected a file, got none"),
    ],
)
def test_a_damaged_head_is_named(tmp_path, how, message):
    model, head, _ = small_pair()
    save_mlm(model, head, tmp_path)
    file, state = tmp_path / HEAD, load_file(tmp_path / HEAD)
    if how == "dangling":
        file.unlink()
        file.symlink_to("nowhere")
    elif how in ("nan", "wide", "ints"):
        state["bias"] = {
            "nan": state["bias"].index_fill(0, torch.tensor(3), math.nan),
            "wide": torch.zeros(62).half(),
            "ints": torch.zeros(61, dtype=torch.int32),
        }[how]
        save_file(state, file)
    else:
        damage(file, how)
    with pytest.raises(ValueError, match=f"{re.escape(str(file))}: .*{message}"):
        load_mlm(tmp_path)


def test_transformers_loads_the_result(runs):
    """The encoder and its tokenizer, as in every Hugging Face folder; the head is ours."""
    from transformers import AutoModel, AutoTokenizer

    folder = runs[0] / "whole" / "model"
    theirs = AutoModel.from_pretrained(folder).float().eval()
    words = AutoTokenizer.from_pretrained(folder)
    ours, tokenizer = BertModel.from_pretrained(folder), load_tokenizer(folder)
    sentences = ["The film is GOOD.", "I read it on Sunday, and why not?"]
    batch = tokenize(tokenizer, sentences)
    assert words(sentences, padding=True)["input_ids"] == batch.input_ids.tolist()
    expected, got = theirs(**batch._asdict()), ours(*batch)
    real = batch.attention_mask == 1
    assert_close(
        got.last_hidden_state[real], expected.last_hidden_state[real], atol=1e-5, rtol=1e-5
    )
    assert_close(got.pooler_output, expected.pooler_output, atol=1e-5, rtol=1e-5)
    assert ours.config.hidden_dropout_prob == ours.config.attention_probs_dropout_prob == 0


def test_load_mlm_gives_back_what_was_saved(runs, tmp_path):
    model, head, _ = small_pair()
    save_mlm(model.train(), head.train(), tmp_path / "model")
    again, top = load_mlm(tmp_path / "model")
    assert not again.training and not top.training
    for before, after in ((model, again), (head, top)):
        for (name, x), (other, y) in zip(before.state_dict().items(), after.state_dict().items()):
            assert name == other and y.dtype == torch.float32
            assert_close(y, x.half().float(), rtol=0, atol=0)
    assert load_mlm(str(tmp_path / "model"))[1].state_dict().keys() == head.state_dict().keys()
    for name in ("model.safetensors", HEAD):
        with safe_open(tmp_path / "model" / name, "pt") as file:
            assert {file.get_tensor(k).dtype for k in file.keys()} == {torch.float16}  # noqa: SIM118


def test_a_head_that_half_precision_cannot_hold_is_refused_before_anything_is_written(tmp_path):
    model, head, _ = small_pair()
    head.bias.data[0] = 1e6
    with pytest.raises(
        ValueError, match="head in float16: expected finite numbers in tensor 'bias'"
    ):
        save_mlm(model, head, tmp_path / "model")
    assert not (tmp_path / "model").exists()


def test_a_model_without_its_head_is_refused(tmp_path):
    model, head, _ = small_pair()
    save_mlm(model, head, tmp_path)
    (tmp_path / HEAD).unlink()
    with pytest.raises(
        ValueError,
        match=f"{re.escape(str(tmp_path))}: expected {re.escape(HEAD)}, which predicts masked tokens",
    ):
        load_mlm(tmp_path)
    with pytest.raises(ValueError, match="no-such-folder"):
        load_mlm(tmp_path / "no-such-folder")


def test_tokens_seen_counts_what_the_batches_hold(runs):
    top, _ = runs
    corpus = load_corpus(top / "whole")
    for steps in (1, 30, 77):
        config = PretrainConfig(**{**CONFIG, "total_steps": steps})
        batches = islice(mlm_batches(corpus, TOY_IDS, config), steps)
        assert (
            tokens_seen(top / "whole", config)
            == sum(int(b.attention_mask.sum()) for b in batches)
            >= 256 * steps
        )


# --- measurements


class Knowing(nn.Module):
    """Says which of V words stands where, having been told the whole text; for each hidden word,
    with its loss.
    """

    def __init__(self, tokenizer, sentences, right=1.0):
        super().__init__()
        self.config = BertConfig(len(tokenizer), 8, 1, 1, 8)
        self.embedding = nn.Module()
        self.embedding.word_embedding = nn.Embedding(len(tokenizer), 8)
        self.truth, self.right, self.asked = [tokenizer(s).input_ids for s in sentences], right, []

    def forward(self, ids, mask, packed=False):
        rows, self.truth = self.truth[: len(ids)], self.truth[len(ids) :]
        self.asked.append((ids, mask))
        truth = pad_ids(rows)
        assert torch.equal(truth.attention_mask, mask)
        state = truth.input_ids[..., None].float()
        return type("Output", (), {"last_hidden_state": state})


def perfect_head(states, word_vectors):
    return 50.0 * nn.functional.one_hot(states[:, 0].long(), len(word_vectors)).float()


def test_accuracy_of_a_model_that_knows_everything(text):
    tokenizer = load_tokenizer()
    for sentences in (text[:5], text[:300]):
        accuracy, loss = masked_accuracy(
            Knowing(tokenizer, sentences), perfect_head, sentences, tokenizer
        )
        assert accuracy == 1.0 and loss < 1e-5
        wrong = masked_accuracy(
            Knowing(tokenizer, sentences), lambda s, w: -perfect_head(s, w), sentences, tokenizer
        )
        assert wrong[0] == 0.0 and wrong[1] == pytest.approx(50 + math.log(7999), rel=1e-4)


def test_accuracy_is_a_share_of_positions_over_all_batches(text):
    """A head that always says one word is right as often as that word is hidden: counted from what
    the model saw.
    """
    tokenizer, sentences = load_tokenizer(), text[:300]
    knowing, word = Knowing(tokenizer, sentences), tokenizer.convert_tokens_to_ids("the")
    truth, labels = list(knowing.truth), []

    def one_word(states, word_vectors):
        labels.append(states[:, 0].long())
        scores = torch.zeros(len(states), len(word_vectors))
        scores[:, word] = 3.0
        return scores

    accuracy, loss = masked_accuracy(knowing, one_word, sentences, tokenizer)
    asked = torch.cat(labels)
    share = (asked == word).float().mean().item()
    assert len(labels) == 3 and share > 0.01 and accuracy == pytest.approx(share)
    normaliser = math.log(7999 + math.exp(3))
    assert loss == pytest.approx(normaliser - 3 * share, rel=1e-5)
    check_share(len(asked), sum(len(row) - 2 for row in truth), 0.15)
    assert not set(asked.tolist()) & {PAD, CLS, SEP}


def test_the_same_words_are_always_hidden(text):
    tokenizer, sentences = load_tokenizer(), text[:40]

    def corrupted(**options):
        torch.manual_seed(len(options))
        model = Knowing(tokenizer, sentences)
        masked_accuracy(model, perfect_head, sentences, tokenizer, **options)
        return model.asked[0][0]

    assert torch.equal(corrupted(), corrupted(rate=0.15)) and not torch.equal(
        corrupted(), corrupted(seed=1)
    )
    share = [(corrupted(rate=r) == MASK).float().mean() for r in (0.1, 0.5, 0.9)]
    assert share[0] < share[1] < share[2]


def test_accuracy_of_an_untrained_model(text):
    tokenizer = load_tokenizer()
    config = BertConfig(
        8000, 16, 1, 2, 32, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0
    )
    torch.manual_seed(0)
    accuracy, loss = masked_accuracy(BertModel(config), MlmHead(config), text[:200], tokenizer)
    assert accuracy < 0.01 and abs(loss - math.log(8000)) < 0.1


def test_long_heldout_sentences_are_cut_to_128_tokens():
    tokenizer = load_tokenizer()
    config = BertConfig(8000, 16, 1, 2, 32, max_position_embeddings=128)
    accuracy, loss = masked_accuracy(
        BertModel(config).eval(), MlmHead(config), ["the cat " * 200], tokenizer
    )
    assert math.isfinite(loss)


def test_sts_by_pooling_by_hand():
    """Every pooling from the hidden states of each sentence alone, without padding, against scipy."""
    pairs, tokenizer = load_dataset("stsb", "dev").subset(range(25)), load_tokenizer()
    config = BertConfig(8000, 16, 2, 2, 32)
    torch.manual_seed(0)
    model = BertModel(config).eval()
    with torch.no_grad():
        for p in model.parameters():
            p.add_(0.2 * torch.randn_like(p))  # else all [CLS] vectors are the same to six digits
    got = sts_by_pooling(model.train(), pairs, tokenizer)
    assert list(got) == list(POOLINGS) and model.training and not model.eval().training
    assert got == sts_by_pooling(model, pairs, tokenizer)  # without dropout, whatever the mode was
    # a part that stays as it is, while the rest trains
    still = model.train().bert_layers[0].eval()
    assert sts_by_pooling(model, pairs, tokenizer) == got and model.training and not still.training
    model.eval()
    short = BertModel(BertConfig(8000, 16, 1, 2, 32, max_position_embeddings=8))
    # longer sentences are cut where the model ends
    assert set(sts_by_pooling(short, pairs, tokenizer)) == set(POOLINGS)

    @torch.no_grad()
    def vectors(sentence):
        ids = torch.tensor([tokenizer(sentence).input_ids])
        out = model(ids, torch.ones_like(ids), output_hidden_states=True)
        layers = [h[0].double() for h in out.hidden_states]
        mean = [h.mean(0) for h in layers]
        return {
            "cls": layers[-1][0],
            "pooler": out.pooler_output[0].double(),
            "mean": mean[-1],
            "last2avg": (mean[-1] + mean[-2]) / 2,
            "first_last_avg": (mean[1] + mean[-1]) / 2,
            "emb_last_avg": (mean[0] + mean[-1]) / 2,
            "max": layers[-1].max(0).values,
        }

    left, right = ([vectors(s) for s in column] for column in (pairs.sentences, pairs.sentences2))
    for how in left[0]:
        cosines = [
            float(u[how] @ v[how] / (u[how].norm() * v[how].norm())) for u, v in zip(left, right)
        ]
        assert got[how] == pytest.approx(spearmanr(cosines, pairs.labels).statistic, abs=1e-3), how
    assert len(set(left[0])) >= len(POOLINGS) - 1  # mean_padded depends on the batch


def test_sts_by_pooling_takes_folder_or_model(runs):
    folder, pairs = runs[0] / "whole" / "model", load_dataset("stsb", "dev").subset(range(12))
    by_folder = sts_by_pooling(folder, pairs)
    assert by_folder == sts_by_pooling(str(folder), pairs)
    assert by_folder == sts_by_pooling(
        BertModel.from_pretrained(folder), pairs, load_tokenizer(folder)
    )
    turned = Dataset(
        "x", "dev", "similarity", pairs.sentences, pairs.sentences2, [-x for x in pairs.labels]
    )
    assert sts_by_pooling(folder, turned) == pytest.approx(
        {how: -x for how, x in by_folder.items()}
    )
    with pytest.raises(ValueError, match="expected a tokenizer together with a BertModel"):
        sts_by_pooling(BertModel.from_pretrained(folder), pairs)


# --- the card


def test_card_says_what_it_is_told(runs, tmp_path):
    folder = tmp_path / "model"
    shutil.copytree(runs[0] / "whole" / "model", folder)
    kept = (folder / "model.safetensors").read_bytes()
    rows = [
        {"step": 500, "loss": 6.123, "lr": 1e-3},
        {"step": 1234567, "loss": 3.456, "lr": 0.0, "accuracy": 0.3217, "heldout_loss": 2.718},
    ]
    config = PretrainConfig(
        **{**CONFIG, "lr": 5e-4, "warmup_steps": 77, "decay_share": 0.4, "mask_rate": 0.2}
    )
    write_card(
        folder,
        config,
        rows,
        987654321,
        "Text: {curly} bräces kept.",
        {"cls": 0.1234, "mean": 0.5},
        "cc-by-4.0",
        language="de",
    )
    card = (folder / "README.md").read_text(encoding="utf-8")
    count = sum(p.numel() for p in BertModel.from_pretrained(folder).parameters())
    for words in (
        "Text: {curly} bräces kept.",
        "987,654,321 in 1,234,567 steps",
        "(fp32)",
        "cls 0.123, mean 0.500",
        "| 1,234,567 | 3.46 | 2.72 | 32.2% |",
        "`minbert pretrain CORPUS --out RUN",
        "rate 0.01 (Muon, matrices) and 0.0005 (AdamW, the rest)",
        "77 steps of warm-up",
        "mask rate 20%",
        f"{count:,} parameters",
        "1 layers, 16 wide, 2 heads",
        "200 word pieces",
        "about 256",
    ):
        assert words in re.sub(r"\n(?!\|)", " ", card), words
    assert "6.12" not in card  # a row that was not measured on held-out text
    assert (
        card.startswith("---\nlanguage: de\nlicense: cc-by-4.0\nlibrary_name: minbert\n---\n")
        and card.count("\n---\n") == 1
    )
    log = json.loads((folder / "pretraining.json").read_text())
    assert (
        log["tokens"] == 987654321
        and log["rows"] == rows
        and PretrainConfig(**log["config"]) == config
    )
    assert (folder / "model.safetensors").read_bytes() == kept and not list(folder.glob(".draft*"))


def test_card_and_log_are_written_both_or_none(runs, tmp_path):
    folder = tmp_path / "model"
    shutil.copytree(runs[0] / "whole" / "model", folder)
    (folder / "README.md").write_text("of an earlier run")
    with pytest.raises(TypeError, match="JSON"):
        write_card(
            folder, TINY, [{"step": 30, "loss": 4.0, "lr": 0.0, "more": {1}}], 7680, "Text.", {}
        )
    assert (folder / "README.md").read_text() == "of an earlier run" and not (
        folder / "pretraining.json"
    ).exists()


def test_card_of_a_run_with_one_optimizer_has_one_rate(runs, tmp_path):
    folder = tmp_path / "model"
    shutil.copytree(runs[0] / "whole" / "model", folder)
    write_card(
        folder,
        replace(TINY, lr=5e-4, matrix_lr=0.0, precision="bf16"),
        [{"step": 30, "loss": 4.0, "lr": 0.0}],
        7680,
        "Text.",
        {},
    )
    card = (folder / "README.md").read_text(encoding="utf-8")
    assert "(bf16). Highest rate 0.0005,\n" in card and "Muon" not in card


def test_card_without_measurements(runs, tmp_path):
    folder = tmp_path / "model"
    shutil.copytree(runs[0] / "whole" / "model", folder)
    write_card(folder, TINY, [{"step": 30, "loss": 4.0, "lr": 0.0}], 7680, "Text.", {})
    card = (folder / "README.md").read_text(encoding="utf-8")
    assert "by pooling: not measured." in card and "{" not in card
    assert card.startswith("---\nlibrary_name: minbert\n---\n")
    # nobody said so
    assert (
        "license" not in card
        and "language:" not in card
        and "evaluation sentence" not in card
        and "embedded" not in card
    )
    with pytest.raises(ValueError, match="at least one row"):
        write_card(folder, TINY, [], 7680, "Text.", {})


# --- the embedded model

EASY = [
    "He was born in London in 1912 and died in 1970.",
    "She is the daughter of the king.",
    "The film was released in the United States in 2005.",
    "The city is the capital of the country.",
    "It is one of the largest cities in the world.",
    "He went to the University of Cambridge.",
    "They won the first game of the season.",
    "I do not know what you are talking about.",
]


def test_embedded_model_is_small_and_half_precision():
    folder = resolve_folder()
    assert sum(f.stat().st_size for f in folder.rglob("*") if f.is_file()) < 14e6
    for name in ("model.safetensors", HEAD):
        with safe_open(folder / name, "pt") as file:
            assert {file.get_slice(k).get_dtype() for k in file.keys()} == {"F16"}  # noqa: SIM118
    assert not [f.name for f in folder.iterdir() if f.suffix in (".bin", ".pt", ".pkl", ".npz")]


def test_embedded_model_guesses_words():
    (model, head), tokenizer = load_mlm(), load_tokenizer()
    assert not model.training and model.config.vocab_size == len(tokenizer) == 8000
    results = [masked_accuracy(model, head, EASY, tokenizer, seed=s) for s in range(10)]
    accuracy, loss = (sum(column) / len(results) for column in zip(*results))
    assert accuracy > 0.2 and loss < math.log(8000) - 3
    torch.manual_seed(0)
    blind = masked_accuracy(BertModel(model.config).eval(), MlmHead(model.config), EASY, tokenizer)
    assert blind[0] < 0.02


def test_embedded_model_reads_the_sentence_around_the_gap():
    """The likeliest word for a gap changes with its neighbours, in the right way."""
    (model, head), tokenizer = load_mlm(), load_tokenizer()
    batch = tokenize(tokenizer, ["He was [MASK] in London in 1912.", "She is one [MASK] the best."])
    hidden = model(*batch).last_hidden_state[batch.input_ids == MASK]
    best = head(hidden, model.embedding.word_embedding.weight).argmax(-1)
    assert tokenizer.convert_ids_to_tokens(best.tolist()) == ["born", "of"]


def test_embedded_card_and_log_agree():
    folder = resolve_folder()
    card = re.sub(r"\s+", " ", (folder / "README.md").read_text(encoding="utf-8"))
    log = json.loads((folder / "pretraining.json").read_text(encoding="utf-8"))
    config, last = PretrainConfig(**log["config"]), log["rows"][-1]
    model = BertModel.from_pretrained()
    assert config.bert() == model.config
    assert last["step"] == config.total_steps
    assert f"{log['tokens']:,} in {last['step']:,} steps" in card
    measured = [r for r in log["rows"] if "accuracy" in r]
    assert measured[-1] is last
    for r in measured:
        assert (
            f"| {r['step']:,} | {r['loss']:.2f} | {r['heldout_loss']:.2f} | {r['accuracy']:.1%} |"
            in card
        )
    assert abs(log["tokens"] / (config.total_steps * config.tokens_per_step) - 1) < 0.05
    assert sum(p.numel() for p in model.parameters()) == int(
        re.search(r"([\d,]+) parameters", card)[1].replace(",", "")
    )
    for words in (
        "license: cc-by-sa-3.0",
        "no evaluation sentence",
        "Wikipedia",
        "CC BY-SA",
        "sentences",
        "words",
        "`minbert pretrain",
        "half precision",
        "mask rate",
    ):
        assert words in card, words
    for how in POOLINGS:
        assert -1 <= float(re.search(rf"\b{how} (-?\d\.\d+)", card)[1]) <= 1
    steps = [r["step"] for r in log["rows"]]
    assert steps == sorted(set(steps))


def test_embedded_model_ranks_pairs_better_than_chance():
    scores = sts_by_pooling(None, load_dataset("stsb", "dev").subset(range(100)))
    assert all(0 < score < 1 for score in scores.values()) and scores["mean"] > 0.2


def test_a_model_of_something_else_is_not_overwritten(runs, tmp_path):
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "config.json").write_text("mine")
    with pytest.raises(ValueError, match="expected an empty folder, or corpus.safetensors"):
        prepare(runs[0] / "corpus", tmp_path, TINY)
    assert [(f.name, f.read_text()) for f in (tmp_path / "model").iterdir()] == [
        ("config.json", "mine")
    ] and len(list(tmp_path.iterdir())) == 1
