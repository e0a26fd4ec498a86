"""Whole runs: schedules, best model, kill and resume, two processes, bad input."""

import json
import math
import os
import random
import shutil
import signal
import subprocess
import sys
from contextlib import nullcontext
from dataclasses import asdict, replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch.testing import assert_close

import minbert.finetune as train
from minbert.cli.commands import usual_tasks
from minbert.core.checkpoint import CHECKPOINT, read_checkpoint
from minbert.core.fused_adamw import FusedAdamW
from minbert.core.graceful_stop import stop_requests
from minbert.core.run_dir import (
    RunFolder,
    clean_partial_save,
    open_run,
    read_log,
    save_best,
    write_log,
)
from minbert.data import load_dataset
from minbert.datasets.formats import OPEN
from minbert.encoder import BertConfig, BertModel
from minbert.encoding.training_run import compile_layers
from minbert.finetune import Phase, TrainConfig, fit
from minbert.heads import LinearHead, MultitaskBert, default_heads, multitask_loss
from minbert.sentence import SentenceEncoder, UnitLength
from minbert.tokens import load_tokenizer
from minbert.training import warmup_decay

pytestmark = pytest.mark.filterwarnings("ignore:Pearson is undefined", "ignore:.*one class")

MODEL = """
import torch
from minbert.data import load_dataset
from minbert.encoder import BertConfig, BertModel
from minbert.heads import MultitaskBert, default_heads
from minbert.sentence import SentenceEncoder
from minbert.tokens import load_tokenizer

TASKS = ("sst", "quora", "stsb")

def small_model(dropout=0.1, seed=0):
    tokenizer = load_tokenizer()
    torch.manual_seed(seed)
    config = BertConfig(vocab_size=len(tokenizer), hidden_size=16, num_hidden_layers=1,
                        num_attention_heads=2, intermediate_size=32, hidden_dropout_prob=dropout,
                        attention_probs_dropout_prob=dropout)
    model = MultitaskBert(SentenceEncoder(BertModel(config), tokenizer), default_heads(16, TASKS))
    for head in model.heads.modules():
        if isinstance(head, torch.nn.Dropout):
            head.p = dropout
    return model

def rows(split, n):
    return {task: load_dataset(task, split).subset(range(n)) for task in TASKS}
"""
exec(MODEL)
TRAIN, DEV = rows("train", 30), rows("dev", 8)


def small(**settings):
    return TrainConfig(**{"tasks": TASKS, "steps": 4, "batch_size": 4, "lr": 1e-3, **settings})


def run(folder, config, model=None, **more):
    model = model or small_model()
    return model, fit(model, TRAIN, DEV, config, folder, **more)


def done(result):
    return [entry for entry in result.log if "loss" in entry]


def seen(result):
    return [tuple(entry["losses"]) for entry in done(result)]


# Schedules


def test_sequential_visits_the_tasks_in_order_with_a_warm_up_for_each(tmp_path):
    config = small(schedule="sequential", tasks=("stsb", "sst"), steps=10, warmup=0.2)
    _, result = run(tmp_path, config)
    assert seen(result) == [("stsb",)] * 10 + [("sst",)] * 10
    one = [1e-3 * warmup_decay(step, 10, 2) for step in range(10)]
    assert_close([entry["lr"] for entry in done(result)], one * 2)
    assert [entry["phase"] for entry in done(result)] == [0] * 10 + [1] * 10
    assert [entry["step"] for entry in result.log if "dev" in entry] == [9, 19]


def test_joint_and_round_robin(tmp_path):
    _, joint = run(tmp_path / "j", small(schedule="joint"))
    assert seen(joint) == [("sst", "quora", "stsb")] * 4
    _, turns = run(tmp_path / "r", small(schedule="round_robin"))
    assert seen(turns) == [("sst",), ("quora",), ("stsb",), ("sst",)]
    assert (tmp_path / "r" / "model").is_dir()


@pytest.mark.parametrize("strategy", ["proportional", "sqrt", "uniform", "annealed"])
def test_sampled_schedules_take_one_task_a_step(tmp_path, strategy):
    _, result = run(tmp_path, small(schedule=strategy, steps=6, epochs=2))
    assert len(seen(result)) == 6 and all(len(tasks) == 1 for tasks in seen(result))
    assert [entry["step"] for entry in result.log if "dev" in entry] == [2, 5]


def test_without_a_number_of_steps_the_rows_decide(tmp_path):
    config = small(tasks=("sst",), steps=None, epochs=2, batch_size=8)
    _, result = run(tmp_path, config)
    assert len(done(result)) == 8  # 30 rows in batches of 8: 4 steps, twice
    _, half = run(tmp_path, small(tasks=("quora",), steps=None, quora_fraction=0.5, batch_size=5))
    assert len(done(half)) == 3  # 15 rows
    unequal = TRAIN | {"sst": TRAIN["sst"].subset(range(20))}
    for resample, steps in (("truncate", 5), ("up", 8)):
        config = small(tasks=("sst", "quora"), steps=None, resample=resample)
        assert train.phase_sampler(*config.plan(), unequal, config)[1] == steps


def test_accumulate_counts_optimizer_steps(tmp_path):
    _, result = run(tmp_path / "a", small(tasks=("sst",), steps=3, accumulate=2))
    assert len(done(result)) == 3
    _, result = run(tmp_path / "b", small(tasks=("sst",), steps=None, batch_size=8, accumulate=3))
    assert len(done(result)) == 2  # 4 batches


def test_batch_sizes_for_each_task(tmp_path):
    sizes = []

    def loss_fn(model, batch):
        sizes.append({task: len(part) for task, part in batch.items()})
        return train.multitask_loss(model, batch)

    run(tmp_path, small(steps=1, batch_size={"sst": 2, "quora": 6, "stsb": 3}), loss_fn=loss_fn)
    assert sizes == [{"sst": 2, "quora": 6, "stsb": 3}]


def test_a_run_is_the_loop_that_its_settings_say(tmp_path):
    batches = []

    def loss_fn(model, batch):
        batches.append(batch)
        return multitask_loss(model, batch)

    config = small(
        steps=3, warmup=1 / 3, lr=0.01, head_lr=0.05, weight_decay=0.3, max_grad_norm=0.1
    )
    model, result = run(tmp_path, config, small_model(dropout=0.0).double(), loss_fn=loss_fn)
    ours = small_model(dropout=0.0).double()
    rates = {
        name: 0.05 if name.startswith("heads.") else 0.01 for name, _ in ours.named_parameters()
    }
    optimizer = FusedAdamW(
        [{"params": [p], "weight_decay": 0.3 if p.ndim > 1 else 0.0} for p in ours.parameters()]
    )
    norms = []
    for batch, share in zip(batches, (1.0, 1.0, 0.5), strict=True):  # up in one step, down in two
        optimizer.zero_grad()
        sum(multitask_loss(ours, batch).values()).backward()
        norms.append(torch.nn.utils.clip_grad_norm_(ours.parameters(), 0.1).item())
        for group, rate in zip(optimizer.param_groups, rates.values(), strict=True):
            group["lr"] = rate * share
        optimizer.step()
    assert min(norms) > 0.1  # each was shortened
    # single precision, added up in another order
    assert_close([entry["grad_norm"] for entry in done(result)], norms, rtol=1e-5, atol=0)
    for name, p in ours.named_parameters():
        # norms of single precision: 1e-7 of three steps of at most 0.05, and room for what they
        # change
        assert_close(
            model.get_parameter(name), p, rtol=0, atol=1e-6, msg=lambda text: f"{name}: {text}"
        )


def test_loss_weights_reach_the_losses(tmp_path):
    weights = {"sst": 5.0, "quora": 20.0}
    _, plain = run(tmp_path / "a", small(steps=1))
    _, heavy = run(tmp_path / "b", small(steps=1, loss_weights=weights))
    for task, loss in done(plain)[0]["losses"].items():
        assert_close(done(heavy)[0]["losses"][task], loss * weights.get(task, 1.0))


def test_frozen_mode_moves_the_heads_only(tmp_path):
    model = small_model()
    before = {name: p.clone() for name, p in model.named_parameters()}
    run(tmp_path, small(mode="frozen", lr=None), model)
    for name, p in model.named_parameters():
        assert torch.equal(p, before[name]) == name.startswith("encoder."), name


def test_own_phases_switch_mode_and_rate(tmp_path):
    model, weights = small_model(), []
    phases = (Phase(("sst",), steps=2, lr=1e-3), Phase(("sst",), steps=2, mode="frozen", lr=5e-3))

    def loss_fn(model, batch):
        weights.append(model.encoder.model.bert_layers[0].out_dense.weight.detach().clone())
        return train.multitask_loss(model, batch)

    _, result = run(
        tmp_path,
        small(tasks=("sst",), phases=phases, warmup=0.0, decay=False),
        model,
        loss_fn=loss_fn,
    )
    assert [e["lr"] for e in done(result)] == [1e-3, 1e-3, 5e-3, 5e-3]
    assert not torch.equal(weights[0], weights[1]) and torch.equal(weights[2], weights[3])


def test_rates_of_the_two_modes_and_of_the_heads():
    assert TrainConfig().plan()[0].lr == 1e-5 and TrainConfig(mode="frozen").plan()[0].lr == 1e-3
    assert TrainConfig(lr=3e-4, head_lr=1e-2).plan()[0].head_lr == 1e-2
    assert [p.tasks for p in TrainConfig(schedule="sequential").plan()] == [
        ("sentiment",),
        ("inference",),
        ("similarity",),
    ]


def test_the_default_tasks_are_those_that_the_package_holds(tmp_path):
    """A configuration, the usual heads and `minbert train` mean the same tasks, each with real rows
    in train and dev.
    """
    tasks = TrainConfig().tasks
    assert tasks == tuple(default_heads(16)) == usual_tasks(None, None) and set(tasks) <= set(OPEN)
    encoder = small_model().encoder
    sets = [
        {task: load_dataset(task, split).subset(range(4)) for task in tasks}
        for split in ("train", "dev")
    ]
    model = MultitaskBert(encoder, default_heads(encoder.width))
    result = fit(model, *sets, folder=tmp_path)  # no configuration: the defaults
    assert seen(result) == [tasks]


def test_training_is_in_train_mode_and_evaluation_does_not_change_it(tmp_path):
    modes = []

    def loss_fn(model, batch):
        modes.append(all(part.training for part in model.modules()))
        return train.multitask_loss(model, batch)

    run(tmp_path, small(eval_every=1), small_model().eval(), loss_fn=loss_fn)
    assert modes == [True] * 4


# What a run leaves behind


def test_the_best_model_on_dev_is_kept(tmp_path, monkeypatch):
    """Scores go up and down by decree; the folder must hold the weights of the highest mean."""
    scores, kept = iter([0.2, 0.7, 0.7, float("nan"), 0.1]), []

    class Result:
        def __init__(self, value):
            self.value = value

    def decree(model, sets, **more):
        kept.append({name: w.clone() for name, w in model.state_dict().items()})
        value = next(scores)
        return {"sst": Result(value), "quora": Result(0.5)}

    monkeypatch.setattr(train, "evaluate_tasks", decree)
    model, result = run(tmp_path, small(steps=5, eval_every=1))
    assert (result.best, result.best_step) == (0.6, 1)  # the earlier one of two equals
    best = MultitaskBert.from_pretrained(tmp_path / "model", device="cpu").state_dict()
    assert_close(dict(best), kept[1], rtol=0, atol=0)
    assert not torch.equal(
        best["heads.sst.linear.weight"]
        if "heads.sst.linear.weight" in best
        else [*best.values()][-1],
        [*model.state_dict().values()][-1],
    )
    assert sorted(f.name for f in tmp_path.iterdir()) == [CHECKPOINT, "log.jsonl", "model"]


def test_a_score_without_a_value_loses_to_a_negative_one(tmp_path, monkeypatch):
    scores = iter([math.nan, -0.3, math.nan])

    def decree(model, sets, **more):
        return {"stsb": SimpleNamespace(value=next(scores))}

    monkeypatch.setattr(train, "evaluate_tasks", decree)
    _, result = run(tmp_path, small(steps=3, eval_every=1))
    assert (result.best, result.best_step) == (-0.3, 1)


def test_the_log_says_everything(tmp_path):
    _, result = run(tmp_path, small(eval_every=2))
    lines = [json.loads(line) for line in (tmp_path / "log.jsonl").read_text().splitlines()]
    assert lines == result.log == read_log(tmp_path)
    assert [("loss" in line, line["step"]) for line in lines] == [
        (True, 0),
        (True, 1),
        (False, 1),
        (True, 2),
        (True, 3),
        (False, 3),
    ]
    for line in done(result):
        assert_close(line["loss"], sum(line["losses"].values()))
        assert line["grad_norm"] > 0
    means = [line["mean"] for line in lines if "dev" in line]
    assert result.best == max(means)


def test_a_new_run_replaces_an_old_one(tmp_path):
    run(tmp_path, small(steps=5))
    _, result = run(tmp_path, small(steps=2))
    assert [entry["step"] for entry in done(result)] == [0, 1]
    assert read_checkpoint(tmp_path)["step"] == 2


def test_same_seed_same_run_another_seed_another_run(tmp_path):
    runs = [
        run(tmp_path / str(i), small(steps=2, seed=seed))[0] for i, seed in enumerate((1, 1, 2))
    ]
    a, b, c = ([*model.state_dict().values()] for model in runs)
    assert all(map(torch.equal, a, b)) and not all(map(torch.equal, a, c))


def checkpoint_of(folder, number, **more):
    """The bytes that a run leaves, begun with global generators in a state of their own."""
    model = small_model()
    random.seed(number), np.random.seed(number), torch.manual_seed(number)
    np.random.randn()  # half of a pair, the other half waits
    run(folder, small(steps=3, save_every=1), model, **more)
    return (folder / CHECKPOINT).read_bytes()


def test_equal_runs_write_equal_checkpoints_to_the_byte(tmp_path):
    assert checkpoint_of(tmp_path / "a", 1) == checkpoint_of(tmp_path / "b", 2)


def test_a_run_that_was_killed_and_resumed_writes_the_checkpoint_of_one_that_was_not(
    tmp_path, monkeypatch
):
    whole = checkpoint_of(tmp_path / "a", 1)
    with monkeypatch.context() as patch, pytest.raises(ZeroDivisionError):
        patch.setattr(
            train,
            "keep_record",
            lambda run, stage, record, keep=train.keep_record: (
                1 / 0 if record.step == 2 else keep(run, stage, record)
            ),
        )
        checkpoint_of(tmp_path / "b", 2)
    assert (tmp_path / "b" / CHECKPOINT).read_bytes() != whole
    assert checkpoint_of(tmp_path / "b", 3, resume=True) == whole


def test_backward_is_used_for_every_step(tmp_path):
    tasks = []

    def backward(losses):
        tasks.append(list(losses))
        train.sum_losses(losses)

    run(tmp_path, small(steps=3), backward=backward)
    assert tasks == [["sst", "quora", "stsb"]] * 3


@pytest.mark.usefixtures("bf16")
def test_bf16_run(tmp_path):
    model, result = run(tmp_path / "b", small(precision="bf16"))
    _, full = run(tmp_path / "f", small())
    assert all(p.dtype == torch.float32 for p in model.parameters())
    a, b = (torch.tensor([e["loss"] for e in done(r)]) for r in (result, full))
    assert_close(a, b, rtol=0.05, atol=0.1)
    assert not torch.equal(a, b)  # it was really computed otherwise


def test_compile_goes_to_the_layers_on_a_gpu_and_is_refused_on_a_cpu(tmp_path, monkeypatch):
    """Of the whole model the compiler would not see what looks at lengths, and full batches would
    get a mask.
    """
    with pytest.raises(ValueError, match="expected a GPU"):
        run(tmp_path / "x", small(compile=True))
    assert not (tmp_path / "x").exists()
    model, calls = small_model(), []
    monkeypatch.setattr(torch.nn.Module, "compile", lambda self, **how: calls.append((self, how)))
    compile_layers(model, torch.device("cuda"))
    assert calls == [(layer, {"dynamic": True}) for layer in model.encoder.model.bert_layers]


def test_progress_draws_a_bar(tmp_path, capsys):
    run(tmp_path, small(steps=2), progress=True)
    assert "2/2" in capsys.readouterr().err
    run(tmp_path, small(steps=2))
    assert capsys.readouterr().err == ""


# Bad input


@pytest.mark.parametrize(
    "bad",
    [
        {"schedule": "random"},
        {"mode": "half"},
        {"precision": "fp8"},
        {"tasks": ()},
        {"tasks": ("sst", "sst")},
        {"epochs": 0},
        {"steps": 0},
        {"accumulate": 0},
        {"warmup": 1.5},
        {"quora_fraction": 0.0},
        {"quora_fraction": 2.0},
        {"eval_every": 0},
        {"save_every": -1},
        {"lr": -1.0},
        {"lr": float("nan")},
        {"head_lr": float("inf")},
        {"weight_decay": -0.1},
        {"max_grad_norm": -1.0},
        {"phases": (Phase(("sst",), lr=-1.0),)},
        {"phases": (Phase(("sst",), epochs=0, steps=1),)},
        {"phases": (Phase("sst"),)},
        {"phases": (Phase(("sst",), mode="half"),)},
        {"tasks": "sst"},
        {"epochs": "3"},
        {"epochs": 1.5},
        {"steps": float("nan")},
        {"lr": "1e-3"},
        {"warmup": "a tenth"},
        {"batch_size": 0},
        {"batch_size": "8"},
        {"batch_size": {"sst": 8, "quora": 0}},
    ],
)
def test_settings_out_of_range(bad):
    with pytest.raises(ValueError, match="expected"):
        TrainConfig(**bad)


def test_missing_sets_leave_no_folder(tmp_path):
    for sets in ((TRAIN, {"sst": DEV["sst"]}), ({"sst": TRAIN["sst"]}, DEV)):
        with pytest.raises(ValueError, match="quora"):
            fit(small_model(), *sets, small(), tmp_path / "x")
    assert not (tmp_path / "x").exists()


@pytest.mark.parametrize(
    "sets, words",
    (
        ((TRAIN["sst"], DEV), "as train_sets, got Dataset"),
        ((TRAIN, None), "as dev_sets, got NoneType"),
    ),
)
def test_sets_without_names_of_tasks_are_refused(tmp_path, sets, words):
    with pytest.raises(ValueError, match=words):
        fit(small_model(), *sets, small(), tmp_path / "x")
    assert not (tmp_path / "x").exists()


class OwnHead(LinearHead):
    """Defined outside minbert: a saved model could not name it."""


def test_what_cannot_be_scored_or_saved_is_refused_before_the_first_step(tmp_path):
    model = small_model()
    with pytest.raises(ValueError, match="expected a task among .*, got 'similarity'"):
        fit(model, TRAIN, {**DEV, "similarity": DEV["stsb"]}, small(), tmp_path / "x")
    with pytest.raises(
        ValueError, match="expected batch sizes of tasks that are trained, got one of similarty"
    ):
        fit(model, TRAIN, DEV, small(batch_size={"similarty": 4}), tmp_path / "x")
    model.encoder.transform = torch.nn.Linear(16, 16)
    with pytest.raises(ValueError, match="class defined in minbert"):
        fit(model, TRAIN, DEV, small(), tmp_path / "x")
    model.encoder.transform, model.heads["sst"] = None, OwnHead(16, 5)
    with pytest.raises(ValueError, match="class defined in minbert"):
        fit(model, TRAIN, DEV, small(), tmp_path / "x")
    assert not (tmp_path / "x").exists()


def test_nan_loss_names_task_and_step_and_keeps_the_checkpoint(tmp_path):
    model = small_model()

    def loss_fn(model, batch):
        losses = train.multitask_loss(model, batch)
        bad = torch.is_grad_enabled() and len(read_log(tmp_path)) >= 3
        return {**losses, "quora": losses["quora"] * float("nan")} if bad else losses

    with pytest.raises(ValueError, match="step 2: .*'quora'"):
        run(tmp_path, small(eval_every=2), model, loss_fn=loss_fn)
    saved = read_checkpoint(tmp_path)
    assert saved["step"] == 2
    assert_close(saved["model"], dict(model.state_dict()), rtol=0, atol=0)


def test_resume_refuses_other_settings_other_data_and_broken_files(tmp_path):
    run(tmp_path, small())
    with pytest.raises(ValueError, match="lr=0.002, got one with 0.001"):
        run(tmp_path, small(lr=2e-3), resume=True)
    fewer = {**TRAIN, "sst": TRAIN["sst"].subset(range(20))}
    with pytest.raises(
        ValueError, match="expected a run with train rows of sst=[0-9a-f]{16}, got one with"
    ):
        fit(small_model(), fewer, DEV, small(), tmp_path, resume=True)
    file = tmp_path / CHECKPOINT
    file.write_bytes(file.read_bytes()[:-1])
    with pytest.raises(ValueError, match=f"{file}: cut short at tensor"):
        run(tmp_path, small(), resume=True)
    file.unlink()
    with pytest.raises(
        ValueError,
        match=f"{tmp_path}: expected {CHECKPOINT} to go on from, got a model without one",
    ):
        run(tmp_path, small(), resume=True)
    assert (tmp_path / "model").is_dir() and len(read_log(tmp_path)) == 5  # nothing is lost
    shutil.rmtree(tmp_path / "model")
    _, result = run(tmp_path, small(), resume=True)  # killed before its first checkpoint
    assert len(done(result)) == 4


def other_tokenizer():
    tokenizer = load_tokenizer()
    tokenizer.add_tokens(["covidx"])
    return tokenizer


OTHER = {
    "pooling": (
        lambda m: setattr(m.encoder, "pooling", "cls"),
        "expected a run with pooling=cls, got one with mean",
    ),
    "max_length": (
        lambda m: setattr(m.encoder, "max_length", 5),
        "expected a run with max_length=5, got one with 512",
    ),
    "transform": (
        lambda m: setattr(m.encoder, "transform", UnitLength()),
        "transform=UnitLength, got one with NoneType",
    ),
    "tokenizer": (
        lambda m: setattr(m.encoder, "tokenizer", other_tokenizer()),
        "expected a run with tokenizer=",
    ),
}


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    folder = tmp_path_factory.mktemp("finished")
    run(folder, small())
    return folder


@pytest.mark.parametrize("change, message", OTHER.values(), ids=OTHER)
def test_resume_refuses_an_encoder_that_reads_otherwise(finished, change, message):
    model = small_model()
    change(model)
    with pytest.raises(ValueError, match=message):
        run(finished, small(), model, resume=True)


@pytest.mark.parametrize("split", ["train", "dev"])
@pytest.mark.parametrize("column", ["sentences", "sentences2", "labels"])
def test_resume_refuses_other_rows_of_the_same_number(finished, split, column):
    rows = {"train": TRAIN, "dev": DEV}[split]["stsb"]
    other = {"stsb": replace(rows, **{column: getattr(rows, column)[::-1]})}
    sets = {"train": TRAIN, "dev": DEV} | {split: {**{"train": TRAIN, "dev": DEV}[split], **other}}
    with pytest.raises(ValueError, match=f"expected a run with {split} rows of stsb="):
        fit(small_model(), sets["train"], sets["dev"], small(), finished, resume=True)


def test_a_checkpoint_that_does_not_say_what_it_read_is_gone_on_with(tmp_path, monkeypatch):
    with monkeypatch.context() as patch:
        # as an older version noted it
        patch.setattr(
            train, "run_identity", lambda model, config, sources, dev_sets: asdict(config)
        )
        _, first = run(tmp_path, small())
    _, second = run(tmp_path, small(), resume=True)
    assert first == second


def test_rows_of_one_length_waste_less_and_the_run_remembers_them(tmp_path):
    def padding(folder, **settings):
        cells = []

        def loss_fn(model, batch):
            for piece in batch.values():
                for side in filter(None, (piece.first, piece.second)):
                    cells.append((side.attention_mask.numel(), int(side.attention_mask.sum())))
            return train.multitask_loss(model, batch)

        run(folder, small(steps=12, **settings), loss_fn=loss_fn)
        return 1 - sum(real for _, real in cells) / sum(whole for whole, _ in cells)

    assert padding(tmp_path / "sorted", length_bucket=16) < 0.7 * padding(tmp_path / "plain")
    # None: a CPU has nothing to gain from it
    with pytest.raises(ValueError, match="length_bucket=1, got one with 16"):
        run(tmp_path / "sorted", small(steps=12), resume=True)


def test_resume_of_a_finished_run_changes_nothing(tmp_path):
    model, first = run(tmp_path, small())
    log = (tmp_path / "log.jsonl").read_bytes()
    again, second = run(tmp_path, small(), small_model(seed=5), resume=True)
    assert first == second and (tmp_path / "log.jsonl").read_bytes() == log
    assert_close(dict(again.state_dict()), dict(model.state_dict()), rtol=0, atol=0)


def test_a_resumed_run_ends_where_it_should_when_epochs_do_not_divide_the_steps(tmp_path):
    """Five steps in two epochs: the sampler holds six batches, and the sixth is never used."""
    config, calls = small(steps=5, epochs=2, save_every=1), iter(range(9))

    def trip(losses):
        if next(calls) == 3:
            raise KeyboardInterrupt
        train.sum_losses(losses)

    with pytest.raises(KeyboardInterrupt):
        run(tmp_path, config, backward=trip)
    model, result = run(tmp_path, config, small_model(seed=5), resume=True)
    straight, expected = run(tmp_path / "straight", config)
    assert [e["step"] for e in done(result)] == [0, 1, 2, 3, 4] and result.log == expected.log
    assert_close(dict(model.state_dict()), dict(straight.state_dict()), rtol=0, atol=0)


@pytest.mark.parametrize("nth", [0, 1])
def test_publishing_may_stop_at_any_moment(tmp_path, monkeypatch, nth):
    """The earlier model is there until the new one is."""
    first, second = small_model(seed=0), small_model(seed=1)
    save_best(first, tmp_path)
    replace, calls = os.replace, iter(range(9))

    def stop(source, target):
        if os.path.basename(target) in ("model", ".model.minbert-old") and next(calls) == nth:
            raise KeyboardInterrupt
        replace(source, target)

    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", stop)
        with pytest.raises(KeyboardInterrupt):
            save_best(second, tmp_path)
    clean_partial_save(tmp_path)
    assert os.listdir(tmp_path) == ["model"]
    kept = MultitaskBert.from_pretrained(tmp_path / "model", device="cpu").state_dict()
    assert_close(dict(kept), dict(first.state_dict()), rtol=0, atol=0)
    save_best(second, tmp_path)
    kept = MultitaskBert.from_pretrained(tmp_path / "model", device="cpu").state_dict()
    assert os.listdir(tmp_path) == ["model"]
    assert_close(dict(kept), dict(second.state_dict()), rtol=0, atol=0)


def test_a_resume_brings_the_best_model_back_at_once(tmp_path):
    """Killed between the two renames of `save_best`, a folder has the old model under our name, and
    no model.
    """
    run(tmp_path, small())
    (tmp_path / "model").rename(tmp_path / ".model.minbert-old")
    (tmp_path / ".model.minbert-new").mkdir()
    run(tmp_path, small(), small_model(seed=5), resume=True)
    assert sorted(f.name for f in tmp_path.iterdir()) == [CHECKPOINT, "log.jsonl", "model"]
    MultitaskBert.from_pretrained(tmp_path / "model", device="cpu")


def test_a_backup_beside_the_model_is_left_alone(tmp_path):
    for name in ("model.old", "model.new"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "mine").write_text("years of work")
    run(tmp_path, small())
    run(tmp_path, small())
    assert all(
        (tmp_path / name / "mine").read_text() == "years of work"
        for name in ("model.old", "model.new")
    )


def test_an_earlier_model_stays_until_the_new_run_has_one(tmp_path):
    first, _ = run(tmp_path, small())

    def fails(model, batch):
        raise OSError("out of memory")

    with pytest.raises(OSError, match="memory"):
        run(tmp_path, small(), loss_fn=fails)
    kept = MultitaskBert.from_pretrained(tmp_path / "model", device="cpu").state_dict()
    assert_close(dict(kept), dict(first.state_dict()), rtol=0, atol=0)
    second, _ = run(tmp_path, small(), small_model(seed=1))
    kept = MultitaskBert.from_pretrained(tmp_path / "model", device="cpu").state_dict()
    assert_close(dict(kept), dict(second.state_dict()), rtol=0, atol=0)


@pytest.mark.parametrize("name", ["log.jsonl", CHECKPOINT])
def test_a_folder_where_a_file_of_the_run_belongs_is_refused_before_the_run(tmp_path, name):
    (tmp_path / name).mkdir()
    with pytest.raises(ValueError, match=f"{name}: expected a readable file, got a folder"):
        run(tmp_path, small())
    assert os.listdir(tmp_path) == [name]


def test_a_model_that_is_a_link_is_refused_before_the_run(tmp_path):
    (tmp_path / "disk").mkdir()
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "model").symlink_to(tmp_path / "disk")
    with pytest.raises(
        ValueError,
        match="model: expected a folder or nothing, got a link: let the whole folder of the run",
    ):
        run(tmp_path / "run", small())
    assert (tmp_path / "run" / "model").is_symlink()
    (tmp_path / "link").symlink_to(tmp_path / "disk")
    run(tmp_path / "link", small())
    assert (tmp_path / "disk" / "model").is_dir()


def test_training_reads_as_many_tokens_as_the_encoder(tmp_path):
    long = {"sst": replace(TRAIN["sst"].subset(range(8)), sentences=["word " * 200] * 8)}
    for positions, wanted, read in ((64, 512, 64), (512, 16, 16)):
        model = small_model()
        config = BertConfig(
            vocab_size=8000,
            hidden_size=16,
            num_hidden_layers=1,
            num_attention_heads=2,
            intermediate_size=32,
            max_position_embeddings=positions,
        )
        model.encoder = SentenceEncoder(
            BertModel(config), model.encoder.tokenizer, max_length=wanted
        )
        widths = []

        def loss_fn(model, batch):
            widths.append(batch["sst"].first.input_ids.shape[1])
            return multitask_loss(model, batch)

        fit(
            model,
            long,
            {"sst": DEV["sst"]},
            small(tasks=("sst",)),
            tmp_path / str(read),
            loss_fn=loss_fn,
        )
        assert set(widths) == {read}


BAD_SETS = {
    "no rows": (dict(sentences=[], labels=[]), "sst: expected at least one row to train on"),
    "no labels": (dict(labels=None), "train set of sst: expected labels in sst train, got none"),
    "a class too many": (
        dict(labels=[0, 1, 5, 0]),
        r"train set of sst: expected labels in \[0, 4\], got 5.0 at row 2",
    ),
    "nan": (
        dict(labels=[0, 1, 2, math.nan]),
        "train set of sst: sst train: expected a whole number, .* at row 3, got nan",
    ),
    "half": (dict(labels=[0.5, 1, 2, 3]), "at row 0, got 0.5"),
    "none": (dict(labels=[0, None, 2, 3]), "at row 1, got None"),
    "pairs": (
        dict(labels=[0, 1, 2, 3], sentences2=["x"] * 4),
        "expected one sentence for task 'sst', got two",
    ),
}


@pytest.mark.parametrize("columns, message", BAD_SETS.values(), ids=BAD_SETS)
def test_a_bad_train_set_is_refused_before_anything_is_removed(tmp_path, columns, message):
    (tmp_path / CHECKPOINT).write_text("of an earlier run")
    bad = replace(TRAIN["sst"].subset(range(4)), **{"ids": None, **columns})
    with pytest.raises(ValueError, match=message):
        fit(small_model(), {"sst": bad}, {"sst": DEV["sst"]}, small(tasks=("sst",)), tmp_path)
    assert os.listdir(tmp_path) == [CHECKPOINT]


BAD_DEV = {
    "a class too many": (
        "sst",
        [0, 1, 5, 0],
        r"dev set of sst: expected labels in \[0, 4\], got 5.0 at row 2",
    ),
    "nan": (
        "sst",
        [0, 1, 2, math.nan],
        "dev set of sst: sst dev: expected a whole number, .* at row 3, got nan",
    ),
    "neither yes nor no": ("quora", [0, 1, 2, 0], "dev set of quora: .*got 2.0 at row 2"),
}


@pytest.mark.parametrize("task, labels, message", BAD_DEV.values(), ids=BAD_DEV)
def test_a_dev_label_that_no_head_can_answer_is_refused(tmp_path, task, labels, message):
    bad = replace(DEV[task].subset(range(4)), labels=labels, ids=None)
    with pytest.raises(ValueError, match=message):
        fit(small_model(), TRAIN, {**DEV, task: bad}, small(), tmp_path)
    assert not os.listdir(tmp_path)


def test_dev_grades_may_be_on_another_scale(tmp_path):
    hundred = replace(DEV["stsb"], labels=[20 * grade for grade in DEV["stsb"].labels])
    assert fit(small_model(), TRAIN, {**DEV, "stsb": hundred}, small(), tmp_path).best is not None


def test_a_loss_of_ones_own_may_do_without_labels(tmp_path):
    free = {"sst": replace(TRAIN["sst"], labels=None)}

    def loss_fn(model, batch):
        return {"sst": model("sst", batch["sst"].first).square().mean()}

    result = fit(
        small_model(), free, {"sst": DEV["sst"]}, small(tasks=("sst",)), tmp_path, loss_fn=loss_fn
    )
    assert len(done(result)) == 4


# Kill and resume: one process imports everything once, and forks a child for each run

KILL = (
    MODEL
    + """
import hashlib, json, os, pathlib, shutil, signal, sys, time, traceback
import safetensors.torch
import minbert.core.run_dir as runs
import minbert.finetune as train
from minbert.core.fused_adamw import FusedAdamW
from minbert.finetune import TrainConfig, fit

torch.set_num_threads(1)
few, tiny = rows("train", 30), rows("dev", 6)
root = pathlib.Path(sys.argv[1])
owners = {"os": os, "optimizer": FusedAdamW, "safetensors": safetensors.torch, "train": train, "runs": runs}

def sabotage(owner, name, nth, how):
    original, calls = getattr(owners[owner], name), iter(range(10**6))
    def patched(*args, **more):
        if next(calls) != nth:
            return original(*args, **more)
        if how == "half log":  # half a line reaches the disk
            with open(args[0] / "log.jsonl", "a") as log:
                log.write('{"step": 3, "lo')
        elif how != "before":
            original(*args, **more)
        if how == "half":
            os.truncate(args[1], os.path.getsize(args[1]) // 2)
        os.kill(os.getpid(), signal.SIGKILL)
    setattr(owners[owner], name, patched)

def run(folder, schedule, resume=False):
    config = TrainConfig(TASKS, schedule, steps=3 if schedule == "sequential" else 8,
                         batch_size=4, lr=1e-2, eval_every=4, save_every=3)
    found = (folder / "checkpoint.safetensors").exists()  # else the kill came before the first one: a new start
    model = small_model(seed=7 if found else 0)  # a resume must not lean on the same start
    if resume:
        torch.manual_seed(123)
    result = fit(model, few, tiny, config, folder, resume)
    weights = b"".join(w.numpy().tobytes() for w in model.state_dict().values())
    best = b"".join(f.read_bytes() for f in sorted((folder / "model").rglob("*.safetensors")))
    names = sorted(f.name for f in folder.iterdir())
    digest = [hashlib.sha256(x).hexdigest() for x in (weights, best)]
    (root / "out.json").write_text(json.dumps([digest, result.log, result.best, names]))

def child(*work):
    pid = os.fork()
    if pid == 0:
        try:
            for function, *arguments in work:
                function(*arguments)
        except BaseException:
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])

def outcome():
    return json.loads((root / "out.json").read_text())

run(root / "warm", "joint")  # imports and caches, once for all children
report, straight = [], {}
for schedule in ("joint", "sequential"):
    assert child((run, root / schedule, schedule)) == 0
    straight[schedule] = outcome()
for number, (schedule, *points) in enumerate(json.loads(sys.argv[2])):
    folder, codes = root / f"run{number}", []
    for i, point in enumerate(points):
        codes.append(child((sabotage, *point), (run, folder, schedule, i > 0)))
    codes.append(child((run, folder, schedule, True)))
    report.append([codes, outcome() == straight[schedule]])
    shutil.rmtree(folder)
print(json.dumps(report))
"""
)

POINTS = [
    *(("joint", ("optimizer", "step", nth, "before")) for nth in (0, 5)),
    ("joint", ("optimizer", "step", 3, "after")),
    ("sequential", ("optimizer", "step", 6, "before")),
    *(("joint", ("safetensors", "save_file", nth, "half")) for nth in (0, 1, 2)),
    *(("joint", ("os", "replace", nth, "before")) for nth in (0, 1, 2)),
    ("sequential", ("train", "evaluate_tasks", 1, "after")),
    ("sequential", ("runs", "save_checkpoint", 1, "after")),
    ("joint", ("runs", "write_log", 4, "half log")),
    ("joint", ("runs", "save_best", 0, "after")),
    (
        "joint",
        ("optimizer", "step", 4, "before"),
        ("optimizer", "step", 3, "before"),
        ("safetensors", "save_file", 0, "half"),
    ),
]


@pytest.mark.long
def test_killed_anywhere_resumes_to_the_same_bits(tmp_path):
    """Weights, best model, log, and what lies in the folder: all as if nothing had happened."""
    done = subprocess.run(
        [sys.executable, "-c", KILL, str(tmp_path), json.dumps(POINTS)],
        capture_output=True,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout.splitlines()[-1])
    assert len(report) == len(POINTS)
    for point, (codes, same) in zip(POINTS, report):
        assert codes == [-9] * (len(point) - 1) + [0], (point, codes, done.stderr)
        assert same, point


# Two processes

SHARED = (
    MODEL
    + """
import sys
from pathlib import Path
from accelerate import Accelerator
from minbert.finetune import TrainConfig, fit
torch.set_num_threads(1)
accelerator = Accelerator(cpu=True)
few, tiny = rows("train", 23), rows("dev", 6)
root = Path(sys.argv[1])
calls = []

def trip(losses):  # an accident in the middle of a run, on every process
    calls.append(1)
    if len(calls) == 4:
        raise RuntimeError
    sum(losses.values()).backward()

def double_model(**settings):  # AdamW divides noise by noise where a gradient is zero in theory: keep the noise small
    return small_model(dropout=0.0, **settings).double()

for schedule, batch in (("joint", 5), ("round_robin", 3), ("sequential", 1)):
    # 23 rows in fives and threes: uneven shares, a batch of two at the end; ones: idle processes
    config = TrainConfig(TASKS, schedule, epochs=1, steps=4 if batch == 1 else None,
                         batch_size=batch, lr=1e-2, save_every=2, weight_decay=0.01)
    # another start on each process: the first one's weights count
    model = double_model(seed=accelerator.process_index)
    result = fit(model, few, tiny, config, root / schedule, accelerator=accelerator)
    torch.save([model.state_dict(), result.log], root / f"{schedule}-{accelerator.process_index}.pt")
    if schedule == "joint":
        interrupted = double_model()
        try:
            fit(interrupted, few, tiny, config, root / "again", backward=trip, accelerator=accelerator)
        except RuntimeError:
            pass
        interrupted = double_model(seed=9)
        fit(interrupted, few, tiny, config, root / "again", True, accelerator=accelerator)
        same = all(map(torch.equal, model.state_dict().values(), interrupted.state_dict().values()))
        assert same and len(calls) == 4
accelerator.end_training()
"""
)


@pytest.mark.long
def test_two_processes_equal_one_with_the_whole_batch(tmp_path, in_processes):
    """Real processes over gloo, dropout 0, uneven and empty shares; also a resume with two."""
    in_processes(SHARED, tmp_path)
    for schedule in ("joint", "round_robin", "sequential"):
        first, second, one = (
            torch.load(tmp_path / name, weights_only=True)
            for name in (f"two/{schedule}-0.pt", f"two/{schedule}-1.pt", f"one/{schedule}-0.pt")
        )
        # the two are equal in every bit
        assert_close(dict(first[0]), dict(second[0]), rtol=0, atol=0)
        assert_close(dict(first[0]), dict(one[0]), rtol=0, atol=1e-5)
        for a, b in zip(first[1], one[1], strict=True):
            assert a["step"] == b["step"]
            if "loss" in a:
                assert a["losses"].keys() == b["losses"].keys()
                assert_close([*a["losses"].values()], [*b["losses"].values()], rtol=1e-4, atol=1e-5)
                assert math.isclose(a["grad_norm"], b["grad_norm"], rel_tol=1e-3, abs_tol=1e-5)


@pytest.mark.parametrize("end", [None, OSError("no space left")])
def test_signals_act_as_before_when_a_run_is_over(end):
    """In a notebook the process lives on: Ctrl-C has to stop what comes next."""

    def handlers():
        return [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]

    before = handlers()
    with pytest.raises(OSError, match="no space") if end else nullcontext(), stop_requests():
        assert all(now != then for now, then in zip(handlers(), before))
        if end:
            raise end
    assert handlers() == before


TOGETHER = (
    MODEL
    + """
import json, os, signal, sys
from pathlib import Path
from accelerate import Accelerator
from minbert.core.checkpoint import read_checkpoint
from minbert.core.run_dir import read_log
from minbert.core.graceful_stop import Stopped
from minbert.finetune import TrainConfig, fit
torch.set_num_threads(1)
accelerator = Accelerator(cpu=True)
few, tiny, root = rows("train", 13), rows("dev", 6), Path(sys.argv[1])
last, calls, found = accelerator.process_index == accelerator.num_processes - 1, [], []

def ask(losses):  # the last process alone hears a signal, in the middle of its third and of its seventh step
    calls.append(1)
    if last and len(calls) in (3, 7):
        os.kill(os.getpid(), signal.SIGTERM)
    sum(losses.values()).backward()

config = TrainConfig(TASKS, steps=9, batch_size=3, lr=1e-2, save_every=3)
straight, stopped = small_model(), small_model()
fit(straight, few, tiny, config, root / "straight", accelerator=accelerator)
for i in range(3):
    try:
        fit(stopped, few, tiny, config, root / "stopped", resume=i > 0, backward=ask, accelerator=accelerator)
    except Stopped as stop:
        found += [(stop.step, stop.number, read_checkpoint(root / "stopped")["step"], len(calls))]
    accelerator.wait_for_everyone()
same = all(map(torch.equal, straight.state_dict().values(), stopped.state_dict().values()))
same = same and read_log(root / "straight") == read_log(root / "stopped")
(root / f"{accelerator.process_index}.json").write_text(json.dumps([found, same]))
accelerator.end_training()
"""
)


@pytest.mark.long
def test_a_signal_to_one_of_several_processes_stops_all_after_the_same_step(tmp_path, in_processes):
    """All say the same step and the same signal, at a step with a save of its own and between two;
    the saved run goes on to the same bits.

    A process that had not heard would wait for the others for ever.
    """
    in_processes(TOGETHER, tmp_path)
    for name in ("one/0", "two/0", "two/1"):
        found, same = json.loads((tmp_path / f"{name}.json").read_text())
        assert same and found == [[step, signal.SIGTERM, step, step] for step in (3, 7)], name


class Counting:
    """A backward with a memory: it scales the gradient by how often it was called."""

    def __init__(self):
        self.calls = torch.zeros(())

    def __call__(self, losses):
        self.calls += 1
        (sum(losses.values()) * self.calls).backward()

    def state_dict(self):
        return {"calls": self.calls}

    def load_state_dict(self, state):
        self.calls = state["calls"].clone()


class Tired(Counting):
    def __call__(self, losses):
        if self.calls == 3:
            raise KeyboardInterrupt
        super().__call__(losses)


def test_the_memory_of_a_backward_is_resumed(tmp_path):
    config = small(steps=6, max_grad_norm=None, save_every=2)
    whole, _ = run(tmp_path / "whole", config, backward=Counting())
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path / "cut", config, backward=Tired())
    late = Counting()
    again, _ = run(tmp_path / "cut", config, backward=late, resume=True)
    assert late.calls == 6
    for name, value in whole.state_dict().items():
        assert_close(again.state_dict()[name], value, rtol=0, atol=0)
    with pytest.raises(
        ValueError, match=r"expected the memory of \[\], found that of \['backward'\]"
    ):
        run(tmp_path / "cut", config, resume=True)


ALONE = SimpleNamespace(
    is_main_process=True, process_index=0, num_processes=1, wait_for_everyone=lambda: None
)


def saved(folder, **parts):
    """Save a checkpoint of three steps, and give a run that is to go on from there."""
    layer, first = torch.nn.Linear(2, 2), RunFolder(folder, {}, {}, ALONE)
    with open_run(first, False):
        first.save(3, layer, None, None, {"phase": 0, "first": 0})
    return layer, RunFolder(folder, {}, parts, ALONE)


def test_a_checkpoint_is_loaded_once(tmp_path):
    """A later phase begins with what the earlier one has learned."""
    layer, again = saved(tmp_path)
    with open_run(again, True):
        assert [again.load(layer, None, None) for _ in range(2)] == [3, None]


def test_a_checkpoint_without_a_memory_is_no_start_for_who_needs_one(tmp_path):
    _, again = saved(tmp_path, backward=Counting())
    with pytest.raises(
        ValueError, match=r"expected the memory of \['backward'\], found that of \[\]"
    ):
        open_run(again, True).__enter__()


def test_a_log_that_is_put_in_the_place_of_another_is_whole(tmp_path, monkeypatch):
    def half(self, text, **_):
        with self.open("w") as file:
            file.write(text[:9])
        raise OSError("power cut")

    write_log(tmp_path, [{"step": 0, "loss": 2.5}], "w")
    monkeypatch.setattr(Path, "write_text", half)
    with pytest.raises(OSError, match="power cut"):
        write_log(tmp_path, [], "w")
    assert read_log(tmp_path) == [{"step": 0, "loss": 2.5}] and os.listdir(tmp_path) == [
        "log.jsonl"
    ]


def test_a_phase_may_take_its_rows_from_another_source(tmp_path, monkeypatch):
    other = {"sst": TRAIN["sst"].subset(range(7))}
    found = []
    real = train.task_batches
    monkeypatch.setattr(
        train, "task_batches", lambda sets, *rest: found.append(sets) or real(sets, *rest)
    )
    phases = (Phase(("sst",), steps=2, source="other"), Phase(("sst",), steps=1))
    run(tmp_path, small(phases=phases), sources={"other": other})
    assert found == [other, {"sst": TRAIN["sst"]}]


@pytest.mark.parametrize(
    "sources, phase, message",
    [
        (None, Phase(("sst",), source="other"), r"expected a source among \[\], got 'other'"),
        (
            {"other": {"quora": TRAIN["quora"]}},
            Phase(("sst",), source="other"),
            r"expected a train set for \['sst'\], got \['quora'\]",
        ),
    ],
)
def test_missing_sources_leave_no_folder(tmp_path, sources, phase, message):
    with pytest.raises(ValueError, match=message):
        run(tmp_path / "run", small(phases=(phase,)), sources=sources)
    assert not (tmp_path / "run").exists()


def test_a_machines_labels_are_no_dev_set(tmp_path):
    from minbert.synthetic import grammar_dataset

    with pytest.raises(ValueError, match="labels made by people"):
        fit(
            small_model(),
            TRAIN,
            DEV | {"sst": grammar_dataset(DEV["sst"], 5)},
            small(),
            tmp_path / "run",
        )
    assert not (tmp_path / "run").exists()


def test_loss_weights_are_not_dropped_silently(tmp_path):
    with pytest.raises(ValueError, match="no loss_weights beside a loss_fn"):
        run(
            tmp_path / "run",
            small(loss_weights={"sst": 5.0}),
            loss_fn=lambda m, b: multitask_loss(m, b),
        )
    assert not (tmp_path / "run").exists()


def test_surgery_of_one_process_is_refused_in_two(tmp_path, monkeypatch):
    from minbert.pcgrad import PCGrad

    monkeypatch.setenv("WORLD_SIZE", "2")
    model = small_model()
    with pytest.raises(ValueError, match=r"PCGrad\(..., accelerator=...\) with several processes"):
        run(tmp_path / "run", small(), model, backward=PCGrad(model), accelerator=object())
