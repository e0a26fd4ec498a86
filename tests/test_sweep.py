"""Sweeps: every run becomes one row, rows are never lost or doubled, and another sweep is not mixed
in.
"""

import math
import re
from dataclasses import replace

import pytest
import torch
from torch import nn

import minbert.cli.sweep as module
from minbert.cli.sweep import GRIDS, grid, read_sweep, sweep, sweep_curve
from minbert.core.dropout import set_dropout
from minbert.core.locks import file_lock
from minbert.data import load_dataset
from minbert.encoder import BertConfig, BertModel
from minbert.finetune import Phase, TrainConfig
from minbert.heads import MultitaskBert, default_heads
from minbert.sentence import NotFinite, SentenceEncoder
from minbert.tokens import load_tokenizer

pytestmark = pytest.mark.filterwarnings("ignore:Pearson is undefined")
TOKENIZER = load_tokenizer()
TRAIN, DEV = ({"sst": load_dataset("sst", split).subset(range(24))} for split in ("train", "dev"))
CONFIG = TrainConfig(("sst",), steps=3, batch_size=4, lr=1e-3)


def build():
    config = BertConfig(
        vocab_size=len(TOKENIZER),
        hidden_size=16,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=32,
    )
    return MultitaskBert(SentenceEncoder(BertModel(config), TOKENIZER), default_heads(16, ("sst",)))


def run(folder, settings, config=CONFIG, **more):
    return list(sweep(build, TRAIN, DEV, settings, config, folder=folder, **more))


def test_a_grid_is_every_combination():
    assert grid(a=(1, 2), b="xy") == [
        {"a": 1, "b": "x"},
        {"a": 1, "b": "y"},
        {"a": 2, "b": "x"},
        {"a": 2, "b": "y"},
    ]
    for bad in ({}, {"a": ()}, {"a": (1,), "b": ()}):
        with pytest.raises(ValueError, match="at least one value"):
            grid(**bad)


def test_the_reports_grids_are_in_range():
    assert (
        GRIDS["lr"][0] == 1e-7
        and GRIDS["lr"][-1] == 1e-2
        and all(0 <= p < 1 for p in GRIDS["dropout"] + GRIDS["encoder_dropout"])
    )


def test_dropout_reaches_every_place_and_only_those():
    model = build()

    def places():
        return {
            name: part.p for name, part in model.named_modules() if isinstance(part, nn.Dropout)
        }

    def maps():
        return [layer.self_attention.dropout for layer in model.encoder.model.bert_layers]

    before = places()
    assert maps() == [0.1, 0.1]
    set_dropout(model.heads, 0.6)
    assert {name for name, p in places().items() if p != before[name]} == {
        "heads.sst.drop"
    } and places()["heads.sst.drop"] == 0.6
    set_dropout(model.encoder, 0.0)
    assert maps() == [0.0, 0.0] and {
        p for name, p in places().items() if name.startswith("encoder")
    } == {0.0}
    for bad in (1.0, -0.1, float("nan")):
        with pytest.raises(ValueError, match="dropout in"):
            set_dropout(model, bad)


def test_a_row_is_what_fit_would_have_said(tmp_path, monkeypatch):
    from minbert.finetune import fit

    logs = []
    monkeypatch.setattr(
        module, "fit", lambda *a, **k: logs.append(result := fit(*a, **k)) or result
    )
    (row,) = run(
        tmp_path / "sweep",
        grid(lr=(2e-3,), dropout=(0.5,), encoder_dropout=(0.3,)),
        TrainConfig(("sst",), steps=6, batch_size=4, eval_every=1),
        seeds=(7,),
    )
    torch.manual_seed(7)
    model = build()
    set_dropout(model.heads, 0.5)
    set_dropout(model.encoder, 0.3)
    result = fit(
        model,
        TRAIN,
        DEV,
        TrainConfig(("sst",), steps=6, batch_size=4, lr=2e-3, seed=7, eval_every=1),
        tmp_path / "run",
    )
    # every loss and every score, to the bit: one seed on one machine is one run
    assert logs[0].log == result.log
    assert (row["sst"], row["mean"], row["trained"], row["note"]) == (
        result.best,
        result.best,
        6,
        "",
    )
    assert (row["lr"], row["dropout"], row["encoder_dropout"], row["seed"]) == (
        2e-3,
        0.5,
        0.3,
        7,
    ) and row["seconds"]
    assert not (tmp_path / "sweep" / "runs").exists() or not list(
        (tmp_path / "sweep" / "runs").iterdir()
    )


def test_a_dropout_of_zero_is_a_dropout(tmp_path):
    models = []
    list(
        sweep(
            lambda: models.append(build()) or models[-1],
            TRAIN,
            DEV,
            grid(dropout=(0.0,), encoder_dropout=(0.0,)),
            CONFIG,
            folder=tmp_path,
        )
    )
    assert {part.p for part in models[0].modules() if isinstance(part, nn.Dropout)} == {0.0}


def test_a_row_that_another_writes_meanwhile_is_kept(tmp_path, monkeypatch):
    one, two = ({"lr": lr, "seed": 1} for lr in (1e-3, 1e-2))
    other = file_lock(tmp_path / ".lock", "")

    def meanwhile(seconds):
        module._write_sweep(tmp_path / "sweep.csv", [one])
        other.__exit__(None, None, None)

    other.__enter__()
    monkeypatch.setattr(module.time, "sleep", meanwhile)
    module._add_row(tmp_path, lambda: read_sweep(tmp_path / "sweep.csv"), two)
    assert read_sweep(tmp_path / "sweep.csv") == [one, two]


def test_rows_come_in_order_one_for_each_setting_and_seed(tmp_path):
    rows = run(tmp_path, grid(lr=(1e-4, 1e-2)), seeds=(1, 2))
    assert [(row["lr"], row["seed"]) for row in rows] == [
        (1e-4, 1),
        (1e-4, 2),
        (1e-2, 1),
        (1e-2, 2),
    ]
    again = read_sweep(tmp_path / "sweep.csv")
    # a seed of 1 is not written as 1.0
    assert rows == again and all(
        type(row[name]) is int for row in again for name in ("seed", "trained")
    )


def test_settings_change_the_run(tmp_path, monkeypatch):
    """From the second loss on; a share of 24 right answers may be the same by chance."""
    logs, fit = [], module.fit
    monkeypatch.setattr(
        module, "fit", lambda *a, **k: logs.append(result := fit(*a, **k)) or result
    )
    run(tmp_path, grid(lr=(1e-5, 3e-2)), TrainConfig(("sst",), steps=3, batch_size=8, warmup=0.0))
    slow, quick = ([entry["loss"] for entry in result.log if "loss" in entry] for result in logs)
    assert slow[0] == quick[0] and slow[1:] != quick[1:]


def test_an_interrupted_sweep_ends_like_a_whole_one(tmp_path, monkeypatch):
    settings = grid(lr=(1e-4, 1e-3, 1e-2))
    plain = [
        {k: v for k, v in row.items() if k != "seconds"}
        for row in run(tmp_path / "whole", settings)
    ]
    one, calls = module._run_one, []

    def trip(*args):
        calls.append(args[4])
        if len(calls) == 2:
            raise KeyboardInterrupt
        return one(*args)

    monkeypatch.setattr(module, "_run_one", trip)
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path / "cut", settings)
    assert len(read_sweep(tmp_path / "cut" / "sweep.csv")) == 1
    rows = run(tmp_path / "cut", settings)
    assert [{k: v for k, v in row.items() if k != "seconds"} for row in rows] == plain
    assert calls == [{"lr": 1e-4}, {"lr": 1e-3}, {"lr": 1e-3}, {"lr": 1e-2}]
    run(tmp_path / "cut", settings)
    assert len(calls) == 4  # nothing is run twice


def test_a_run_cut_in_the_middle_goes_on_from_its_checkpoint(tmp_path, monkeypatch):
    import minbert.finetune as train

    config = TrainConfig(("sst",), steps=6, batch_size=4, lr=1e-3, save_every=2)
    (whole,) = run(tmp_path / "whole", grid(lr=(1e-3,)), config)
    seen, real = [], train.steps

    def stops(*args, **kwargs):
        for record in real(*args, **kwargs):
            seen.append(record.step)
            if len(seen) == 5:
                raise KeyboardInterrupt
            yield record

    monkeypatch.setattr(train, "steps", stops)
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path / "cut", grid(lr=(1e-3,)), config)
    (row,) = run(tmp_path / "cut", grid(lr=(1e-3,)), config)
    assert seen[5:] == [4, 5] and (row["sst"], row["trained"]) == (whole["sst"], 6)


def test_divergence_is_a_row_and_a_mistake_is_an_error(tmp_path, monkeypatch):
    rows = run(
        tmp_path / "a",
        grid(lr=(1e30, 1e-4)),
        TrainConfig(("sst",), steps=3, batch_size=4, warmup=0.0, max_grad_norm=None),
    )
    assert (
        math.isnan(rows[0]["sst"])
        and math.isnan(rows[0]["mean"])
        and "step 1" in rows[0]["note"]
        and rows[1]["note"] == ""
    )
    assert math.isnan(read_sweep(tmp_path / "a" / "sweep.csv")[0]["sst"])

    def wrong(*args, **kwargs):
        raise ValueError("a mistake")

    monkeypatch.setattr(module, "fit", wrong)
    with pytest.raises(ValueError, match="a mistake"):
        run(tmp_path / "b", grid(lr=(1e-4,)))
    assert not (tmp_path / "b" / "sweep.csv").exists()


def test_the_best_score_of_a_run_counts_not_the_first(tmp_path, monkeypatch):
    from types import SimpleNamespace

    log = [
        {"step": 0, "loss": 1.0},
        {"step": 0, "dev": {"sst": 0.1}, "mean": 0.1},
        {"step": 1, "loss": 1.0},
        {"step": 1, "dev": {"sst": 0.4}, "mean": 0.4},
    ]
    monkeypatch.setattr(module, "fit", lambda *a, **k: SimpleNamespace(log=log, best_step=1))
    (row,) = run(tmp_path, grid(lr=(1e-3,)))
    assert (row["sst"], row["mean"], row["trained"]) == (0.4, 0.4, 2)


def test_a_row_is_written_before_its_run_is_removed(tmp_path, monkeypatch):
    def trip(file, rows):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(module, "_write_sweep", trip)
        with pytest.raises(KeyboardInterrupt):
            run(tmp_path, grid(lr=(1e-3,)))
    assert list((tmp_path / "runs").iterdir())
    run(tmp_path, grid(lr=(1e-3,)))
    assert not list((tmp_path / "runs").iterdir())


def test_rows_of_a_diverged_run_have_the_columns_of_the_others(tmp_path):
    dev = {**DEV, "more": DEV["sst"]}

    def extra():
        return MultitaskBert(
            build().encoder,
            {**default_heads(16, ("sst",)), "more": default_heads(16, ("sst",))["sst"]},
        )

    config = TrainConfig(("sst",), steps=3, batch_size=4, warmup=0.0, max_grad_norm=None)
    rows = list(sweep(extra, TRAIN, dev, grid(lr=(1e30, 1e-4)), config, folder=tmp_path))
    assert (
        list(rows[0]) == list(rows[1])
        and math.isnan(rows[0]["more"])
        and len(read_sweep(tmp_path / "sweep.csv")) == 2
    )


def test_a_setting_of_zero_and_a_setting_called_steps(tmp_path):
    frozen, moved = run(tmp_path / "a", grid(lr=(0.0, 1e-2)), seeds=(1,))
    assert (frozen["lr"], moved["lr"]) == (0.0, 1e-2)
    assert TrainConfig(lr=0.0).plan()[0].lr == 0.0
    rows = run(tmp_path / "b", grid(steps=(1, 2)))
    assert [(row["steps"], row["trained"]) for row in rows] == [(1, 1), (2, 2)] and run(
        tmp_path / "b", grid(steps=(1, 2))
    ) == rows


@pytest.mark.parametrize(
    "settings",
    [
        grid(schedule=("joint", "sqrt")),
        grid(decay=(True, False)),
        grid(lr=(1e-3,)) + grid(dropout=(0.1,)),
        grid(lr=(None,)),
        grid(dropout=(0.1, 1.0)),
        grid(encoder_dropout=(0.1, -0.1)),
        [],
    ],
)
def test_settings_that_would_fail_late_fail_at_once(tmp_path, settings):
    with pytest.raises(ValueError, match="expected"):
        run(tmp_path / "x", settings)
    assert not (tmp_path / "x").exists()


def test_one_process_sweeps(tmp_path, monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(ValueError, match="one process"):
        run(tmp_path / "x", grid(lr=(1e-3,)))


def test_what_the_caller_says_about_the_model_is_compared(tmp_path):
    run(tmp_path, grid(lr=(1e-3,)), about={"model": "a"})
    with pytest.raises(ValueError, match="model='b', got one with 'a'"):
        run(tmp_path, grid(lr=(1e-3,)), about={"model": "b"})
    # what one of them has not
    for about, told in (
        (None, "model=None, got one with 'a'"),
        ({"model": "a", "data": "c"}, "data='c', got one with None"),
    ):
        with pytest.raises(ValueError, match=told):
            run(tmp_path, grid(lr=(1e-3,)), about=about)


def test_the_seed_of_the_config_makes_no_other_sweep(tmp_path):
    """The seeds of the runs are given beside it."""
    rows = run(tmp_path, grid(lr=(1e-3,)))
    assert run(tmp_path, grid(lr=(1e-3,)), replace(CONFIG, seed=3)) == rows


def test_not_finite_is_told_from_other_errors():
    from minbert.core.device_step import DeviceStep
    from minbert.training import clip_gradients, steps

    weight = nn.Parameter(torch.ones(1))
    model = nn.ParameterList([weight])

    def loss(model, batch):
        return (model[0] * batch).sum()

    with pytest.raises(NotFinite, match="step 0.*finite loss"):
        next(steps(model, [math.nan], loss, torch.optim.SGD([weight], 1.0)))
    weight.grad = torch.tensor([math.inf])
    with pytest.raises(NotFinite, match="finite gradient"):
        clip_gradients({"w": weight})
    with pytest.raises(ValueError, match="step 0") as error:
        next(
            steps(
                model,
                [1.0],
                lambda m, b: weight * torch.ones(2),
                torch.optim.SGD([weight], 1.0),
                take_step=DeviceStep(),
            )
        )
    assert not isinstance(error.value, NotFinite)


@pytest.mark.parametrize(
    "change, message",
    [
        (
            dict(config=TrainConfig(("sst",), steps=4, batch_size=4, lr=1e-3)),
            "steps=4, got one with 3",
        ),
        (dict(settings=grid(dropout=(0.1,))), r"settings=\['dropout'\], got one with \['lr'\]"),
        (
            dict(train={"sst": TRAIN["sst"].subset(range(20))}),
            "train rows={'sst': 20}, got one with {'sst': 24}",
        ),
        (
            dict(dev={"sst": DEV["sst"].subset(range(20))}),
            "dev rows={'sst': 20}, got one with {'sst': 24}",
        ),
    ],
)
def test_another_sweep_is_not_mixed_in(tmp_path, change, message):
    run(tmp_path, grid(lr=(1e-3,)))
    with pytest.raises(ValueError, match=f"sweep.json: expected a sweep with {message}"):
        list(
            sweep(
                build,
                change.get("train", TRAIN),
                change.get("dev", DEV),
                change.get("settings", grid(lr=(1e-3,))),
                change.get("config", CONFIG),
                folder=tmp_path,
            )
        )
    assert len(read_sweep(tmp_path / "sweep.csv")) == 1


@pytest.mark.parametrize(
    "settings, config",
    [
        (grid(rate=(1,)), CONFIG),
        (grid(seed=(1,)), CONFIG),
        (grid(lr=(1e-3,)), TrainConfig(("sst",), phases=(Phase(("sst",), steps=1),))),
    ],
)
def test_unknown_settings_are_found_before_anything_runs(tmp_path, settings, config):
    with pytest.raises(ValueError, match="expected settings of TrainConfig"):
        run(tmp_path / "x", settings, config)
    assert not (tmp_path / "x").exists()


@pytest.mark.parametrize(
    "text, line",
    [
        ("lr,seed,sst\n1e-3,1\n", 2),
        ("lr,seed,sst\n1e-3,1,.5\n1e-3,1,.5,7\n", 3),
        ("lr,sst\n1,2\n", 1),
        ("lr,seed,lr\n", 1),
    ],
)
def test_a_broken_table_is_refused_with_its_line(tmp_path, text, line):
    (tmp_path / "sweep.csv").write_text(text)
    with pytest.raises(ValueError, match=f"sweep.csv:{line}: expected"):
        read_sweep(tmp_path / "sweep.csv")


@pytest.mark.parametrize(
    "change, message",
    [
        (("lr,seed", "rate,seed"), "column 'lr' in a sweep, got ['rate', 'seed'"),
        ((",mean", ",average"), "column 'mean'"),
        (("sst", "quora"), "column 'sst'"),
        ((",seed", ",seeds"), "column 'seed'"),
        ((",note", ""), "column 'note'"),
        (("note", "note,more"), "got 'more' in addition"),
        (("mean", "mean,mean"), "got 'mean' in addition"),
    ],
)
def test_a_table_with_other_columns_is_named_before_anything_runs(
    tmp_path, monkeypatch, change, message
):
    """With rows below it and without: each cell is taken away or doubled together with its name."""
    run(tmp_path, grid(lr=(1e-3,)))
    file = tmp_path / "sweep.csv"
    header = file.read_text().split("\n")[0].replace(*change)
    monkeypatch.setattr(module, "fit", None)
    for rows in ("", ",".join("1" for _ in header.split(",")) + "\n"):
        file.write_text(header + "\n" + rows)
        with pytest.raises(
            ValueError, match=re.escape(f"{file}:1: expected") + ".*" + re.escape(message)
        ):
            run(tmp_path, grid(lr=(1e-3,)))


def test_the_curve_shows_means_bands_and_gaps():
    rows = [
        {"lr": lr, "seed": seed, "sst": score}
        for lr, scores in ((1e-2, (0.2, 0.4)), (1e-4, (0.1, 0.5)), (1.0, (math.nan, 0.3)))
        for seed, score in enumerate(scores)
    ]
    ax = sweep_curve(rows, "lr", ("sst",))
    (line,) = ax.get_lines()
    x, y = line.get_data()
    assert (
        list(x) == [1e-4, 1e-2, 1.0]
        and y[:2].tolist() == pytest.approx([0.3, 0.3])
        and math.isnan(y[2])
    )
    band = ax.collections[0].get_paths()[0].vertices
    assert band[:, 1].min() == 0.1 and band[:, 1].max() == 0.5 and ax.get_xscale() == "log"
    again = sweep_curve([dict(row, quora=0.9) for row in rows], "lr", ("quora",), ax=ax)
    assert (
        again is ax
        and len(ax.get_lines()) == 2
        and ax.get_lines()[1].get_ydata()[0] == 0.9
        and len(ax.collections) == 2
    )
    # 0 has no logarithm
    assert (
        sweep_curve(
            [{"decay": decay, "sst": 0.5} for decay in (0.0, 1.0)], "decay", ("sst",)
        ).get_xscale()
        == "linear"
    )
    with pytest.raises(ValueError, match=r"expected rows with \['rate', 'sst'\]"):
        sweep_curve(rows, "rate", ("sst",))
    with pytest.raises(
        ValueError, match=r"expected rows with \['lr', 'sst'\], got \['lr', 'quora'\]"
    ):
        sweep_curve([*rows, {"lr": 1e-3, "quora": 0.5}], "lr", ("sst",))
    with pytest.raises(ValueError, match="got none"):
        sweep_curve([], "lr", ("sst",))
