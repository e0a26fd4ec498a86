"""benchmarks/gpu.py, played at toy sizes on the CPU: every party has its rows, and what is stored
is what is shown. Its figures mean nothing here.
"""

import json
import math
import sys
from pathlib import Path

import pytest
import torch

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "benchmarks"))

import gpu  # noqa: E402

from minbert.encoder import BertConfig  # noqa: E402

PARTIES = {
    "train": {"transformers", "minbert"},
    "simcse": {"sentence-transformers", "transformers", "minbert"},
    "encode": {"sentence-transformers", "transformers", "minbert"},
    "layout": {"padded", "packed"},
}
LIKE = "transformers, like lengths together"


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU to measure")
def test_without_a_gpu_it_says_so_in_one_sentence(capsys):
    with pytest.raises(
        SystemExit,
        match=r"^expected a CUDA GPU, found none: `--play` runs the same at toy sizes on the CPU$",
    ):
        gpu.main([])


@pytest.mark.long
@pytest.mark.parametrize("part", list(gpu.PARTS))
def test_a_played_run_has_rows_for_all_parties(part, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(
        gpu,
        "sizes",
        lambda device: gpu.Sizes(BertConfig(30522, 16, 1, 2, 32), 32, 1, 32, 1, 12, (4, 8), 32),
    )
    found = gpu.main(["--play", "--rounds", "1", "--parts", part, "--store", str(tmp_path)])[part]
    assert len(found) == {"train": 4, "simcse": 4, "encode": 1, "layout": 4}[part]
    for title, table in found.items():
        assert {name.partition(",")[0] for name in table} == PARTIES[part], title
        assert part != "train" or (LIKE in table) == title.endswith("mixed")
        for speed, ratio, share, memory in table.values():
            assert (
                0 < speed < math.inf
                and 0 < ratio < math.inf
                and 0 < share < math.inf
                and memory == 0
            )
    stored = json.loads((tmp_path / f"gpu-{part}.json").read_text(encoding="utf-8"))
    assert stored["columns"] == gpu.COLUMNS and list(stored["rows"].values()) == [
        row for table in found.values() for row in table.values()
    ]
    assert str(tmp_path) not in json.dumps(stored)
    shown = capsys.readouterr().out
    assert all(title in shown for title in found)


def test_work_is_counted_by_hand():
    """One layer of width 4 and inner width 8, one sentence of 3 tokens: each product costs two
    operations a number of its weight.
    """
    config = BertConfig(30522, 4, 1, 2, 8)
    # Q, K, V and the output map; in and out of the feed-forward net
    dense = 3 * 2 * (4 * 4 * 4 + 2 * 4 * 8)
    attention = 2 * 2 * 3 * 3 * 4  # scores, and the mix of the values
    assert gpu.flop(config, [3]) == dense + attention
    assert gpu.flop(config, [3, 3]) == 2 * gpu.flop(config, [3])


@pytest.mark.parametrize("full", [True, False])
def test_rows_are_as_long_as_asked(full):
    from minbert.tokens import load_tokenizer

    tokenizer = load_tokenizer()
    rows = gpu.rows(tokenizer, 40, 32, full)
    lengths = [len(row) for row in rows]
    assert rows == gpu.rows(tokenizer, 40, 32, full) and max(lengths) <= 32
    assert {row[0] for row in rows} == {tokenizer.cls_token_id} and {row[-1] for row in rows} == {
        tokenizer.sep_token_id
    }
    assert set(lengths) == {32} if full else len(set(lengths)) > 5


def test_batches_of_like_length_hold_the_same_rows():
    rows = [[1] * n for n in (5, 2, 9, 4, 7, 1, 8, 3)]
    plain, alike = (gpu.groups_of(rows, 2, how) for how in (False, True))
    assert (
        sorted(map(len, sum(plain, [])))
        == sorted(map(len, sum(alike, [])))
        == [1, 2, 3, 4, 5, 7, 8, 9]
    )
    assert sum(max(map(len, g)) - min(map(len, g)) for g in alike) < sum(
        max(map(len, g)) - min(map(len, g)) for g in plain
    )
