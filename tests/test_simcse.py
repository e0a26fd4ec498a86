"""Chapter 17: views, chunks, processes and the training around them."""

import copy
import math
from functools import partial
from types import SimpleNamespace

import pandas as pd
import pytest
import torch
from torch import nn
from torch.testing import assert_close

from minbert.contrastive import mirror_loss, simcse_loss, span_mask
from minbert.core.all_gather import gather_views
from minbert.encoder import BertConfig, BertModel
from minbert.encoding.chunked_encoder import ChunkedEncoder
from minbert.sentence import SentenceEncoder
from minbert.simcse import (
    Projection,
    ViewBatch,
    ViewModel,
    keep_best,
    train_views,
    view_batches,
    view_loss,
)
from minbert.tokens import TokenBatch, load_tokenizer
from minbert.training import Record, steps

TEXTS = [
    "A man plays a guitar.",
    "Rain.",
    "Oil became cheaper in the spring of that year.",
    "She cuts an onion.",
    "Nobody knows.",
    "A man plays a guitar.",
    "Two dogs run along the beach.",
    "The train is late again.",
]


@pytest.fixture(scope="module")
def tokenizer():
    return load_tokenizer()


def encoder(tokenizer, dropout=0.1, seed=0):
    torch.manual_seed(seed)
    config = BertConfig(
        vocab_size=len(tokenizer),
        hidden_size=16,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=32,
        hidden_dropout_prob=dropout,
        attention_probs_dropout_prob=dropout,
    )
    return SentenceEncoder(BertModel(config), tokenizer)


def rows(batch, tokenizer):
    """Each row of a batch as its list of real ids."""
    return [ids[mask.bool()].tolist() for ids, mask in zip(*batch.tokens)]


# Batches


def test_labels_of_a_shuffled_table_stay_with_their_sentences():
    tokenizer, texts, labels = load_tokenizer(), ["one", "two", "three", "four"], [0, 1, 2, 3]
    given = pd.Series(labels, index=[3, 2, 1, 0])
    batch, wanted = (
        next(view_batches([column], tokenizer, batch_size=4, labels=y))
        for column, y in ((texts, given), (texts, labels))
    )
    assert (
        torch.equal(batch.tokens.input_ids, wanted.tokens.input_ids)
        and batch.labels.tolist() == wanted.labels.tolist()
    )


def test_an_epoch_draws_every_sentence_once(tokenizer):
    wanted = sorted(tokenizer(TEXTS)["input_ids"])
    orders = []
    for seed in (1, 2):
        batches = list(view_batches([TEXTS], tokenizer, 4, epochs=2, seed=seed))
        assert [len(b.groups) for b in batches] == [4] * 4 and {b.views for b in batches} == {2}
        firsts = [rows(b, tokenizer)[:4] for b in batches]
        assert sorted(firsts[0] + firsts[1]) == wanted == sorted(firsts[2] + firsts[3])
        assert firsts[:2] != firsts[2:]  # another order in each epoch
        assert all(rows(b, tokenizer)[4:] == first for b, first in zip(batches, firsts))
        orders.append(firsts)
    assert orders[0] != orders[1]
    again = [rows(b, tokenizer)[:4] for b in view_batches([TEXTS], tokenizer, 4, epochs=2, seed=2)]
    assert again == orders[1]


def test_rows_that_do_not_fill_a_batch_are_left_out(tokenizer):
    assert len(list(view_batches([TEXTS], tokenizer, 3, epochs=1))) == 2
    drawn = [
        tuple(r)
        for b in view_batches([TEXTS], tokenizer, 3, epochs=12)
        for r in rows(b, tokenizer)[:3]
    ]
    assert len(set(drawn)) == 7  # TEXTS has a double; each of the rest is drawn in some epoch
    endless = view_batches([TEXTS], tokenizer, 8)
    assert all(len(next(endless).groups) == 8 for _ in range(5))


def test_a_pool_puts_like_lengths_together(tokenizer):
    texts = [" ".join(["word"] * n) for n in range(1, 25)]
    g = torch.Generator().manual_seed(0)
    texts = [texts[i] for i in torch.randperm(24, generator=g).tolist()]
    batches = [
        b.tokens.lengths[:4] for b in view_batches([texts], tokenizer, 4, epochs=2, pool=3, seed=5)
    ]
    assert (
        sorted(torch.cat(batches[:6]).tolist())
        == sorted(torch.cat(batches[6:]).tolist())
        == [n + 2 for n in range(1, 25)]
    )
    plain = [b.tokens.lengths[:4] for b in view_batches([texts], tokenizer, 4, epochs=2, seed=5)]

    def spread(many):
        return sum(b.max() - b.min() for b in many)

    assert spread(batches) < spread(plain) / 2
    assert all(b.sort().values.equal(b) for b in batches)
    one = [
        b.tokens.lengths[0].item()
        for b in view_batches([texts], tokenizer, 4, epochs=1, pool=6, seed=5)
    ]
    # the batches come in any order
    assert sorted(one) == [3, 7, 11, 15, 19, 23] and one not in (sorted(one), sorted(one)[::-1])
    assert [b.tolist() for b in batches[:6]] != [b.tolist() for b in batches[6:]]


def test_columns_stay_together_and_labels_with_them(tokenizer):
    columns = [[f"{word} {i}" for i in range(6)] for word in ("one", "two", "three")]
    batch = next(view_batches(columns, tokenizer, 6, labels=range(6), seed=3))
    assert batch.views == 3 and batch.labels.tolist() != list(range(6))
    text = tokenizer.batch_decode(batch.tokens.input_ids, skip_special_tokens=True)
    assert text == [
        f"{word} {i}" for word in ("one", "two", "three") for i in batch.labels.tolist()
    ]


def test_groups_mark_equal_first_sentences(tokenizer):
    batch = next(view_batches([TEXTS], tokenizer, 8))
    same = batch.groups[:, None] == batch.groups
    ids = rows(batch, tokenizer)[:8]
    assert same.tolist() == [[a == b for b in ids] for a in ids] and same.sum() == 10


def test_only_the_second_view_is_corrupted(tokenizer):
    corrupt = partial(span_mask, mask_id=tokenizer.mask_token_id)
    for batch in view_batches([TEXTS, TEXTS, TEXTS], tokenizer, 8, corrupt, epochs=3):
        first, second, third = batch.tokens.input_ids.split(8)
        assert torch.equal(first, third) and (first != tokenizer.mask_token_id).all()
        changed = first != second
        assert (second[changed] == tokenizer.mask_token_id).all()
        assert changed.any(1).sum() >= 7  # "Rain." may have one token besides its full stop
    shorter = next(view_batches([TEXTS], tokenizer, 8, partial(corrupt, p=0.01, single_mask=True)))
    lengths = shorter.tokens.lengths
    assert (lengths[8:] <= lengths[:8]).all() and (lengths[8:] < lengths[:8]).sum() >= 5
    for ids in rows(shorter, tokenizer)[8:]:
        assert ids[0] == tokenizer.cls_token_id and ids[-1] == tokenizer.sep_token_id


def test_processes_share_a_batch(tokenizer):
    whole = list(view_batches([TEXTS], tokenizer, 4, epochs=1))
    parts = [
        list(view_batches([TEXTS], tokenizer, 4, epochs=1, process_index=i, num_processes=2))
        for i in (0, 1)
    ]
    for batch, *shares in zip(whole, *parts, strict=True):
        together = [r for pair in zip(*(rows(s, tokenizer)[:2] for s in shares)) for r in pair]
        assert together == rows(batch, tokenizer)[:4]
        assert (
            torch.stack([s.groups for s in shares], 1).flatten().tolist() == batch.groups.tolist()
        )


def test_processes_hide_different_runs_of_the_same_order(tokenizer):
    """The order depends on the seed alone: not on what is hidden, nor on how much chance that
    takes.
    """
    texts = ["one two three four five six seven eight"] * 2 + [
        f"{i} two three four five six seven eight" for i in range(6)
    ]

    def greedy(ids, special, generator):
        torch.rand(int(ids.sum()) % 7 + process, generator=generator)
        return span_mask(ids, special, tokenizer.mask_token_id, generator=generator)

    seen = {}
    for process in (0, 1):
        batches = list(
            view_batches(
                [texts], tokenizer, 4, greedy, epochs=3, process_index=process, num_processes=2
            )
        )
        seen[process] = [rows(b, tokenizer) for b in batches]
    plain = [rows(b, tokenizer)[:4] for b in view_batches([texts], tokenizer, 4, epochs=3)]
    assert [
        [x for pair in zip(a[:2], b[:2]) for x in pair] for a, b in zip(seen[0], seen[1])
    ] == plain
    here, there = (
        next(
            view_batches(
                [["a b c d e f g h"] * 40],
                tokenizer,
                40,
                partial(span_mask, mask_id=4),
                process_index=i,
                num_processes=2,
            )
        )
        for i in (0, 1)
    )
    assert rows(here, tokenizer)[20:] != rows(there, tokenizer)[20:]


def test_a_pad_in_the_middle_stays_a_token(tokenizer):
    batch = next(
        view_batches(
            [["a [PAD] b", "c d e f g"]], tokenizer, 2, lambda ids, special, generator: ids.clone()
        )
    )
    assert batch.tokens.attention_mask[:2].equal(batch.tokens.attention_mask[2:])


def test_labels_move_with_the_batch(tokenizer):
    moved = next(view_batches([TEXTS], tokenizer, 4, labels=range(8))).to("meta")
    assert {t.device.type for t in (*moved.tokens, moved.groups, moved.labels)} == {"meta"}
    assert next(view_batches([TEXTS], tokenizer, 4)).to("cpu").labels is None


def test_long_sentences_are_cut(tokenizer):
    batch = next(view_batches([["word " * 100] * 2], tokenizer, 2, max_length=10))
    assert batch.tokens.input_ids.shape == (4, 10)


@pytest.mark.parametrize(
    "change, message",
    [
        (dict(columns=[TEXTS, TEXTS[1:]]), r"\[8, 7\]"),
        (dict(batch_size=9), "at least 9 rows"),
        (dict(batch_size=1), "2 rows or more"),
        (dict(labels=[1, 2]), r"\[8, 2\]"),
        (dict(batch_size=4, num_processes=3), "multiple of 3"),
        (dict(columns=[TEXTS] * 4), "1 to 3 columns"),
        (dict(columns=[]), "1 to 3 columns"),
        (dict(pool=0), "pool of at least 1"),
        (dict(process_index=2, num_processes=2), r"process in \[0, 2\)"),
        (dict(num_processes=0), r"process in \[0, 0\)"),
        (
            dict(corrupt=lambda ids, special, generator: ids[:, :2]),
            r"corrupt: expected ids of shape \(4, \d+\), got \(4, 2\)",
        ),
    ],
)
def test_bad_columns(tokenizer, change, message):
    with pytest.raises(ValueError, match=message):
        next(
            view_batches(**{"columns": [TEXTS], "tokenizer": tokenizer, "batch_size": 4, **change})
        )


# Model


def test_views_are_those_of_separate_forwards(tokenizer):
    model = encoder(tokenizer).eval()
    batch = next(view_batches([TEXTS, TEXTS[::-1]], tokenizer, 8))
    for ours, ids, mask in zip(ViewModel(model)(batch), *(t.split(8) for t in batch.tokens)):
        assert_close(ours, model(ids, mask))
    head = Projection(16)
    for ours, plain in zip(ViewModel(model, head)(batch), ViewModel(model)(batch)):
        assert_close(ours, torch.tanh(plain @ head[0].weight.T + head[0].bias))


def gradients(model):
    return {name: p.grad for name, p in model.named_parameters()}


@pytest.mark.parametrize("loss", [simcse_loss, mirror_loss])
@pytest.mark.parametrize("chunk", [1, 3, 5, 16, 100])
def test_chunks_have_the_gradient_of_the_whole_batch(tokenizer, chunk, loss):
    """Without dropout: of the same batch in one piece. With it: of the same pieces, all kept in
    memory.

    In double precision: a sum in another order is off by its rounding, and by nothing more.
    """
    batch = next(
        view_batches([TEXTS], tokenizer, 8, partial(span_mask, mask_id=tokenizer.mask_token_id))
    )
    for dropout in (0.0, 0.3):
        whole = encoder(tokenizer, dropout).double().train()
        model = ViewModel(ChunkedEncoder(copy.deepcopy(whole), chunk)).train()
        torch.manual_seed(5)
        parts = zip(*(t.split(chunk if dropout else 100) for t in batch.tokens))
        expected = loss(*torch.cat([whole(*part) for part in parts]).chunk(2), groups=batch.groups)
        expected.backward()
        torch.manual_seed(5)
        ours = view_loss(loss)(model, batch)
        state = torch.get_rng_state()
        ours.backward()
        assert torch.equal(torch.get_rng_state(), state)  # replayed, not drawn anew
        assert_close(ours, expected, rtol=0, atol=1e-10)
        assert_close(gradients(model.encoder.encoder), gradients(whole), rtol=0, atol=1e-10)


def test_a_chunk_keeps_only_vectors(tokenizer):
    """Nothing of the encoder's inside may stay in memory between forward and backward."""
    batch = next(view_batches([TEXTS], tokenizer, 8))
    kept = {}
    for chunk in (None, 4):
        one = encoder(tokenizer)
        model = ViewModel(one if chunk is None else ChunkedEncoder(one, chunk)).train()
        total = [0]

        def count(tensor, total=total):
            total[0] += tensor.numel()
            return tensor

        with torch.autograd.graph.saved_tensors_hooks(count, lambda t: t):
            view_loss()(model, batch)
        kept[chunk] = total[0]
    assert kept[4] < kept[None] / 5


def test_bad_chunk(tokenizer):
    with pytest.raises(ValueError, match="chunk of at least 1"):
        ChunkedEncoder(encoder(tokenizer), 0)


def test_margin_pairs_hard_negatives_and_doubles(tokenizer):
    model = ViewModel(encoder(tokenizer)).eval()
    batch = next(view_batches([TEXTS, TEXTS[::-1], TEXTS[1:] + TEXTS[:1]], tokenizer, 8))
    a, b, h = model(batch)
    assert_close(view_loss()(model, batch), simcse_loss(a, b, hard=h, groups=batch.groups))
    assert_close(view_loss(exclude_duplicates=False)(model, batch), simcse_loss(a, b, hard=h))
    two = ViewBatch(TokenBatch(*(t[:16] for t in batch.tokens)), batch.groups)
    assert_close(
        view_loss(partial(mirror_loss, temperature=0.1))(model, two),
        mirror_loss(a, b, 0.1, groups=batch.groups),
    )
    assert view_loss()(model, two) != view_loss(exclude_duplicates=False)(model, two)


# Processes

SCRIPT = """
import sys
from functools import partial
from pathlib import Path
import torch
from accelerate import Accelerator
from minbert.contrastive import mirror_loss, span_mask
from minbert.core.all_gather import across_processes
from minbert.encoder import BertConfig, BertModel
from minbert.encoding.chunked_encoder import ChunkedEncoder
from minbert.sentence import SentenceEncoder
from minbert.tokens import load_tokenizer
from minbert.simcse import Projection, ViewModel, train_views, view_batches, view_loss

torch.set_num_threads(1)
accelerator, tokenizer = Accelerator(cpu=True), load_tokenizer()
torch.manual_seed(accelerator.process_index)   # another start on each process: the first one's weights count
config = BertConfig(vocab_size=len(tokenizer), hidden_size=16, num_hidden_layers=2, num_attention_heads=2,
                    intermediate_size=32, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
words = "red green blue old new fast slow warm cold dry".split()
pairs = [[f"a {a} {b} day" for a, b in zip(words[:5], words[5:])] * 3, [f"the {b} and {a} days" for a, b in zip(words[:5], words[5:])] * 3]
share = dict(process_index=accelerator.process_index, num_processes=accelerator.num_processes)
for chunk in (None, 3):
    torch.manual_seed(accelerator.process_index)
    encoder = SentenceEncoder(BertModel(config), tokenizer)
    model = ViewModel(encoder if chunk is None else ChunkedEncoder(encoder, chunk), Projection(16))
    loss = view_loss(across_processes(partial(mirror_loss, symmetric=True), accelerator))
    seen = []   # five different pairs, three times each: in every batch of eight doubles meet, most of them across processes

    def watch(model, batch):
        seen.append(batch.groups)
        return loss(model, batch)

    records = list(train_views(model, view_batches(pairs, tokenizer, 8, **share), watch, 5, lr=1e-2, accelerator=accelerator))
    out = Path(sys.argv[1]) / f"{chunk}-{accelerator.process_index}.pt"
    torch.save([model.state_dict(), [[r.loss, r.grad_norm] for r in records], torch.stack(seen)], out)
accelerator.end_training()
"""


@pytest.mark.long
def test_two_processes_equal_one_with_the_whole_batch(tmp_path, in_processes):
    in_processes(SCRIPT, tmp_path)
    for chunk in (None, 3):
        first, second, one = (
            torch.load(tmp_path / name, weights_only=True)
            for name in (f"two/{chunk}-0.pt", f"two/{chunk}-1.pt", f"one/{chunk}-0.pt")
        )
        assert_close(first[0], second[0], rtol=0, atol=0)
        meetings = [set(a.tolist()) & set(b.tolist()) for a, b in zip(first[2], second[2])]
        assert sum(map(bool, meetings)) >= 3  # doubles did meet across processes
        assert_close(torch.tensor(first[1]), torch.tensor(one[1]), rtol=1e-4, atol=1e-5)
        assert_close(first[0], one[0], rtol=0, atol=1e-5)


def test_gather_counts_the_processes():
    other = SimpleNamespace(
        num_processes=3, process_index=1, gather=lambda t: torch.cat([t - 1, t, t + 1])
    )
    v = torch.randn(2, 4, requires_grad=True)
    weights = torch.randn(6, 4)
    other_sizes = SimpleNamespace(
        **{
            **vars(other),
            "gather": lambda t: t.repeat(3) if t.ndim == 1 else torch.cat([t - 1, t, t + 1]),
        }
    )
    (gathered,) = gather_views([v], other_sizes)
    assert_close(torch.autograd.grad((gathered * weights).sum(), v)[0], 3 * weights[2:4])


def test_unequal_processes_are_refused():
    other = SimpleNamespace(
        num_processes=2, process_index=0, gather=lambda t: torch.cat([t, t - 1])
    )
    with pytest.raises(ValueError, match=r"as many rows on every process, got \[3, 2\]"):
        gather_views([torch.ones(3, 2)], other)


# Training


def test_training_finds_partners(tokenizer):
    model = ViewModel(encoder(tokenizer))
    batches = view_batches([TEXTS[:4], TEXTS[4:]], tokenizer, 4)
    records = list(train_views(model, batches, view_loss(), 30, lr=3e-3))
    assert [r.step for r in records] == list(range(30)) and not model.training
    assert records[-1].loss < records[0].loss / 2
    rates = [r.lr for r in records]
    assert max(rates) == 3e-3 and rates[0] == pytest.approx(1e-3) and rates[-1] < 2e-4


def test_training_is_steps_with_adamw(tokenizer):
    """The wrapper against the loop of chapter 06, written out."""
    from minbert.optim import AdamW, parameter_groups

    ours, by_hand = (ViewModel(encoder(tokenizer, 0.0)) for _ in range(2))
    batches = [
        b
        for b, _ in zip(
            view_batches([TEXTS], tokenizer, 4, partial(span_mask, mask_id=4)), range(6)
        )
    ]
    list(train_views(ours, batches, view_loss(), 6, lr=1e-2, warmup=0.5, weight_decay=0.1))
    optimizer = AdamW(parameter_groups(by_hand, 0.1, 1e-2), lr=1e-2)
    factors = [1 / 3, 2 / 3, 1, 1, 2 / 3, 1 / 3]
    list(
        steps(
            by_hand,
            batches,
            view_loss(),
            optimizer,
            schedule=factors.__getitem__,
            max_grad_norm=1.0,
        )
    )
    assert_close(ours.state_dict(), by_hand.state_dict(), rtol=0, atol=1e-6)


def test_training_puts_dropout_on(tokenizer):
    model, modes = ViewModel(encoder(tokenizer)).eval(), []
    list(
        train_views(
            model,
            view_batches([TEXTS], tokenizer, 4),
            lambda m, b: modes.append(m.training) or view_loss()(m, b),
            2,
        )
    )
    assert modes == [True, True] and not model.training


def test_who_decays_is_for_the_caller_to_say(tokenizer):
    ends = {}
    for name, settings in {
        "none": dict(weight_decay=0.0),
        "told": dict(weight_decay=5.0, decays=lambda name, p: False),
        "all": dict(weight_decay=5.0),
    }.items():
        model = ViewModel(encoder(tokenizer, 0.0))
        list(
            train_views(
                model,
                view_batches([TEXTS, TEXTS[::-1]], tokenizer, 4),
                view_loss(),
                3,
                lr=1e-2,
                **settings,
            )
        )
        ends[name] = model.state_dict()["encoder.model.embedding.word_embedding.weight"]
    assert_close(ends["told"], ends["none"], rtol=0, atol=0)
    assert (ends["all"] - ends["none"]).abs().max() > 1e-3


def test_training_stops_at_the_last_step_and_refuses_none(tokenizer):
    supply = view_batches([TEXTS], tokenizer, 4)
    assert len(list(train_views(ViewModel(encoder(tokenizer)), supply, view_loss(), 3))) == 3
    with pytest.raises(ValueError, match="expected 5 batches, got 2"):
        list(
            train_views(
                ViewModel(encoder(tokenizer)),
                view_batches([TEXTS], tokenizer, 4, epochs=1),
                view_loss(),
                5,
            )
        )
    with pytest.raises(ValueError, match="at least 1 step"):
        next(train_views(ViewModel(encoder(tokenizer)), supply, view_loss(), 0))


def counting(total):
    """A model whose one weight is the number of steps done."""
    model = nn.Linear(1, 1, bias=False)
    model.weight.data.zero_()

    def records():
        for step in range(total):
            model.weight.data += 1
            yield Record(step, 0.0, {}, 0.0, 0.0)

    return model, records()


@pytest.mark.parametrize(
    "scores, best", [([0.1, 0.5, 0.3], 4), ([0.9, 0.5, 0.9], 2), ([0.1, 0.2, 0.3], 6)]
)
def test_best_weights_come_back(scores, best):
    model, records = counting(6)
    supply = iter(scores)
    seen = list(keep_best(records, model, lambda: next(supply), every=2))
    assert [value for _, value in seen] == [None, scores[0], None, scores[1], None, scores[2]]
    assert model.weight.item() == best


def test_the_last_step_counts_too():
    model, records = counting(5)
    assert [
        value for _, value in keep_best(records, model, lambda: model.weight.item(), every=2)
    ] == [None, 2, None, 4, None, 5]
    assert model.weight.item() == 5
    model, records = counting(0)
    assert list(keep_best(records, model, lambda: 1.0, every=2)) == [] and model.weight.item() == 0


def test_projection_starts_as_bert_does():
    torch.manual_seed(0)
    dense, squash = Projection(400)
    assert (
        abs(dense.weight.std() - 0.02) < 1e-3
        and not dense.bias.any()
        and isinstance(squash, nn.Tanh)
    )


@pytest.mark.usefixtures("bf16")
def test_precision_reaches_the_model(tokenizer):
    model, seen = ViewModel(encoder(tokenizer)), []

    def look(m, batch):
        return seen.append(
            m.encoder.model.bert_layers[0].interm_dense(torch.ones(1, 16)).dtype
        ) or view_loss()(m, batch)

    for precision in ("fp32", "bf16"):
        list(train_views(model, view_batches([TEXTS], tokenizer, 4), look, 1, precision=precision))
    assert seen == [torch.float32, torch.bfloat16]


def test_scores_need_a_distance():
    with pytest.raises(ValueError, match="at least 1 step between two scores, got 0"):
        next(keep_best(iter(()), nn.Linear(1, 1), lambda: 1.0, every=0))


def test_a_score_that_is_no_number():
    model, records = counting(4)
    with pytest.raises(ValueError, match="score after step 1, got nan"):
        list(keep_best(records, model, lambda: math.nan, every=2))
