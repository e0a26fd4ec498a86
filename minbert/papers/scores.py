"""Scores of stored results with their bootstrap samples, alone and in pairs."""

from __future__ import annotations

__all__ = ["Pair", "Scores", "bounds", "constant"]

import math
import zlib
from typing import NamedTuple

import numpy as np

from ..metrics import majority_baseline
from ..significance import Interval, Scored, interval
from .finetune_stages import KEYS
from .run import labelled
from .scoring import gold_of, sample_scores
from .sts_suite import SETS, unseen_pairs

UNSEEN = " less STS-B dev"  # ends the name of a score on the pairs that STS-B dev lacks
MEANS = ("average", "overall")  # measurements that are means of other measurements of the run
MEAN_ERROR = 2e-3  # of a mean of scores of predictions that are stored with four decimal places


class Pair(NamedTuple):
    """Two rows, scored on the same examples with the same seeds on the same kind of machine."""

    better: Scored
    worse: Scored
    device: str


def bounds(one: Scored, other: Scored | None = None) -> Interval:
    """Give the interval of chapter 27; its ends are NaN where nothing is known about the error.

    That is so for a plain number, which has no examples to sample, with one seed or where no seed
    changes it; and where a few seeds scored the same by chance. Equal predictions are no chance.
    """
    found = interval(one, other)
    if not found.high - found.low < 1e-12:
        return found
    sampled = not (one.draws == one.by_seed).all()
    if sampled and other is not None and np.array_equal(one.draws, other.draws):
        return found
    return found._replace(low=math.nan, high=math.nan)


def constant(taken: dict, data: str | None) -> float:
    """Score the best constant prediction; minus infinity for a plain number."""
    if "answers" not in taken:
        return -math.inf
    if taken["metric"] != "accuracy":
        return 0.5 if taken["metric"] == "auc" else 0.0
    return majority_baseline(labelled(taken["dataset"], data).labels)[1]


class Scores:
    """Scores of what is stored, each computed once."""

    def __init__(self, results: dict[str, list[dict]], data: str | None, samples: int):
        self.results, self.data, self.samples = results, data, samples
        self.known: dict[tuple[str, str, int], tuple[float, np.ndarray]] = {}
        self.rows: dict[str, list[int]] = {}

    def runs(self, recipe: str, key: str) -> dict[str, dict[int, dict]]:
        """Give the measurements of a recipe: kind of machine -> seed -> measurement."""
        found: dict[str, dict[int, dict]] = {}
        for result in self.results.get(recipe, []):
            if key in result["measured"]:
                found.setdefault(result["device"], {})[result["seed"]] = result["measured"][key]
        return found

    def usual_runs(self, recipe: str, key: str) -> tuple[str | None, dict[int, dict]]:
        """Give the kind of machine with the most seeds, and the measurements made there."""
        return max(
            self.runs(recipe, key).items(), key=lambda found: len(found[1]), default=(None, {})
        )

    def deterministic(self, recipe: str) -> bool:
        """Tell whether no seed changes the results of a recipe."""
        return all(result["deterministic"] for result in self.results.get(recipe, []))

    def scored(self, recipe: str, key: str, seeds) -> Scored | None:
        """Score a measurement over some seeds; None if there are none."""
        if not seeds:
            return None
        each = [self._one(recipe, key, seed) for seed in seeds]
        return Scored(
            np.array([value for value, _ in each]),
            np.stack([draws for _, draws in each], 1),
            self.deterministic(recipe),
        )

    def _one(self, recipe: str, key: str, seed: int) -> tuple[float, np.ndarray]:
        """Score a measurement of one seed: on the examples as they are, and on samples (R,)."""
        if (recipe, key, seed) not in self.known:
            result = next(r for r in self.results[recipe] if r["seed"] == seed)
            self.known[recipe, key, seed] = self._scored(recipe, result, key)
        return self.known[recipe, key, seed]

    def _scored(self, recipe: str, result: dict, key: str) -> tuple[float, np.ndarray]:
        taken = result["measured"][key]
        value = math.nan if taken["value"] is None else taken["value"]
        if "answers" in taken:
            return value, self._samples(taken)
        if parts := parts_of(result["measured"], key):
            draws = [self._one(recipe, part, result["seed"])[1] for part in parts]
            return value, np.mean(np.nan_to_num(draws), 0)  # undefined counts 0, as in the value
        whole = result["measured"].get(key.removesuffix(UNSEEN))
        if key.endswith(UNSEEN) and whole:
            return value, self._samples(whole, self._unseen(whole["dataset"]))
        return value, np.full(self.samples, value)

    def _unseen(self, name: str) -> list[int]:
        """Number the pairs of a data set that STS-B dev lacks, once."""
        if name not in self.rows:
            self.rows[name] = unseen_pairs(name, self.data)
        return self.rows[name]

    def _samples(self, taken: dict, rows: list[int] | None = None) -> np.ndarray:
        """Score bootstrap samples of a data set, or of some of its examples: the same for all runs.

        Raises ValueError if the examples are not those that the predictions were made for.
        """
        gold = gold_of(labelled(taken["dataset"], self.data), taken["metric"])
        predictions = np.asarray(taken["answers"])
        if len(predictions) != len(gold):
            raise ValueError(
                f"{taken['dataset']}: expected {len(predictions)} examples, one for "
                f"each stored prediction, got {len(gold)}"
            )
        if rows is not None:
            gold, predictions = gold[rows], predictions[rows]
        seed = zlib.crc32(taken["dataset"].encode())  # samples of two data sets are independent
        return sample_scores(predictions, gold, taken["metric"], self.samples, seed)

    def pair(self, better: str, worse: str, key: str) -> Pair | None:
        """Score two rows over the seeds that both have on one kind of machine; None if none.

        A deterministic row has one run, which is compared with every seed of the other. Raises
        ValueError if the two rows have predictions for different examples.
        """
        first, second = self.runs(better, key), self.runs(worse, key)
        _check_examples(f"{better} and {worse}, {key}", [*first.values(), *second.values()])
        fixed = self.deterministic(better) or self.deterministic(worse)
        found = _common_seeds(first, second, fixed)
        if not found:
            return None
        device = max(sorted(found), key=lambda name: max(map(len, found[name])))
        seeds, other_seeds = found[device]
        one = self.scored(better, key, seeds)
        return Pair(one, self.scored(worse, key, other_seeds), device)

    def learned(self, pair: Pair, recipe: str, key: str) -> bool:
        """Tell whether one of two compared rows is above the best constant prediction.

        Both rows predict the same examples, so that one constant is the best for both.
        """
        best = constant(next(iter(self.runs(recipe, key)[pair.device].values())), self.data)
        return any(_above(scored, best) for scored in (pair.better, pair.worse))


def _above(scored: Scored, best: float) -> bool:
    """Tell whether the runs of a row are above a score; the interval is over examples alone."""
    means = scored.draws.mean(1)
    means = means[~np.isnan(means)]
    return not len(means) or bool(np.quantile(means, 0.025) > best)


def _check_examples(where: str, runs: list[dict[int, dict]]) -> None:
    """Raise ValueError unless all predictions of two rows are for the same examples."""
    taken = [measurement for seeds in runs for measurement in seeds.values()]
    names = {str(t.get("dataset")) for t in taken}
    checksums = {t["examples"] for t in taken if t.get("examples")}
    for found in (names, checksums):
        if len(found) > 1:
            raise ValueError(
                f"{where}: expected predictions for the same examples, "
                f"got {' and '.join(sorted(found))}"
            )


def _common_seeds(
    first: dict[str, dict[int, dict]],  # kind of machine -> seed -> measurement
    second: dict[str, dict[int, dict]],
    fixed: bool,  # one of the rows is deterministic: its only seed goes with every other
) -> dict[str, tuple[list[int], list[int]]]:  # kind of machine -> seeds of the one, of the other
    """List the seeds on which two rows can be compared, for each kind of machine that has some."""
    found = {}
    for device in first.keys() & second.keys():
        one, other = set(first[device]), set(second[device])
        if not fixed:
            one = other = one & other
        if one and other:
            found[device] = (sorted(one), sorted(other))
    return found


def parts_of(measured: dict[str, dict], key: str) -> list[str]:
    """Name the measurements of which a plain number is the mean; none if it is something else."""
    if key not in MEANS:
        return []
    for names in (list(SETS), list(KEYS.values())):
        found = [measured[name] for name in names if "answers" in measured.get(name, {})]
        if len(found) == len(names):
            mean = np.mean([part["value"] or 0.0 for part in found])
            if abs(mean - measured[key]["value"]) < MEAN_ERROR:
                return names
    return []
