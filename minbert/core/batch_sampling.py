"""What a sampler of batches needs beside its sampling strategy: random generators that depend on a
key alone, batches of similar length, the share of one process, and a state that can be saved.
"""

__all__ = [
    "SAMPLING_STRATEGIES",
    "seeded",
    "sort_by_length",
    "process_share",
    "per_task",
    "check_sampler",
    "ResumableSampler",
]

import hashlib
from collections.abc import Mapping

import torch
from torch import Tensor

SAMPLING_STRATEGIES = ("proportional", "sqrt", "uniform", "annealed", "round_robin", "joint")


def seeded(
    *key,  # anything printable; equal keys give equal streams
) -> torch.Generator:  # on the CPU
    """Make a random generator that depends on the key alone.

    The seed is the first 63 bits of SHA-256 of the key, because `hash()` differs from process to
    process.
    """
    digest = hashlib.sha256("/".join(map(str, key)).encode()).digest()
    return torch.Generator().manual_seed(int.from_bytes(digest[:8], "big") >> 1)


def sort_by_length(
    rows: Tensor,  # (n,) int64, a shuffled pass over the examples of a task
    token_counts: Tensor,  # (N,) tokens of every example of the task
    batch_size: int,  # examples
    length_bucket: int,  # batches whose examples are sorted together
    generator: torch.Generator,  # on the CPU
) -> Tensor:  # (n,) int64, the same examples
    """Sort stretches of a shuffled pass by length, and shuffle the full batches; a shorter batch
    stays last.
    """
    batches = []
    for stretch in rows.split(length_bucket * batch_size):
        order = token_counts[stretch].argsort(stable=True)
        batches += stretch[order].split(batch_size)
    full = len(rows) // batch_size
    shuffled = [batches[i] for i in torch.randperm(full, generator=generator).tolist()]
    return torch.cat(shuffled + batches[full:])


def process_share(
    rows: Tensor,  # (n,) int64, one batch
    rank: int,  # number of this process
    world: int,  # number of processes
) -> tuple[Tensor, float]:  # the examples of this process, and the weight of their mean loss
    """Take every `world`-th example. A process left without any gets one example with weight 0.

    The weight is W n_r / n for n_r of n examples in one of W processes, so that the average over
    the processes is the mean over the batch.
    """
    mine = rows[rank::world]
    return (mine, world * len(mine) / len(rows)) if len(mine) else (rows[:1], 0.0)


def per_task(sizes: Mapping[str, int], given, default) -> dict:
    """Give every task its number; one number stands for all."""
    given = given if isinstance(given, Mapping) else dict.fromkeys(sizes, given)
    return {task: given.get(task, default) for task in sizes}


def check_sampler(sampler, fractions: Mapping[str, float], steps: int | None) -> None:
    """Refuse settings with which no batch could be sampled. Raises ValueError."""
    if sampler.strategy not in SAMPLING_STRATEGIES:
        raise ValueError(f"expected a strategy of {SAMPLING_STRATEGIES}, got {sampler.strategy!r}")
    sizes, batch_sizes = sampler.sizes, sampler.batch_sizes
    if not sizes or min(sizes.values()) < 1:
        raise ValueError(f"expected at least one task and one row in each, got {sizes}")
    if min(batch_sizes.values()) < 1 or sampler.epochs < 1 or sampler.length_bucket < 1:
        raise ValueError(
            "expected batch sizes, epochs and length_bucket of at least 1, "
            f"got {batch_sizes}, {sampler.epochs}, {sampler.length_bucket}"
        )
    if steps is not None and steps < 1:
        raise ValueError(f"expected steps of at least 1, or None, got {steps}")
    if not set(fractions) <= set(sizes) or not all(0 < f <= 1 for f in fractions.values()):
        raise ValueError(f"expected fractions in (0, 1] of {list(sizes)}, got {dict(fractions)}")
    if sampler.resample not in (None, "up", "truncate"):
        raise ValueError(f'expected resample None, "up" or "truncate", got {sampler.resample!r}')
    if not 0 <= sampler.rank < sampler.world:
        raise ValueError(f"expected 0 <= rank < world, got {sampler.rank} and {sampler.world}")


class ResumableSampler:
    """The state of a sampler: the position of the run, and of each task in its examples. A subclass
    sets the attributes below, calls `start`, and yields what `next_step` returns.
    """

    sizes: dict[str, int]
    row_samplers: dict
    epochs: int
    steps_per_epoch: int
    length_bucket: int
    rank: int
    world: int

    def __len__(self) -> int:
        """Count the steps of the whole run."""
        return self.epochs * self.steps_per_epoch

    def start(self) -> None:
        """Begin the run; `step` counts from the start of the epoch."""
        self.epoch = self.step = 0
        self.weights: dict[str, float] = {}  # of the step yielded last, see `process_share`
        self.token_counts: dict[str, Tensor] = {}  # task -> (n,), set by `task_batches`

    def next_step(self, tasks: list[str]) -> dict[str, Tensor]:  # task -> (B,) int64
        """Count one step, and take the next batch of each of its tasks. An epoch begins after the
        last step of the one before.
        """
        self.step += 1
        if self.step == self.steps_per_epoch:
            self.epoch, self.step = self.epoch + 1, 0
        indices, self.weights = {}, {}
        for task in tasks:
            rows = self.row_samplers[task].next_batch()
            indices[task], self.weights[task] = process_share(rows, self.rank, self.world)
        return indices

    def set_lengths(self) -> None:
        """Give the token counts to the samplers of the tasks. Raises ValueError if some are missing."""
        if self.length_bucket > 1 and not set(self.sizes) <= set(self.token_counts):
            raise ValueError(
                f"expected token_counts of {list(self.sizes)} for "
                f"length_bucket={self.length_bucket}, got those of {list(self.token_counts)}"
            )
        for task, sampler in self.row_samplers.items():
            sampler.token_counts = self.token_counts.get(task)

    def _identity(self) -> dict:
        """List what must agree for a position to mean the same, including the order of the tasks;
        the number of processes may differ.
        """
        names = (
            "sizes batch_sizes strategy epochs steps_per_epoch seed resample fractions "
            "length_bucket"
        ).split()
        return {"tasks": list(self.sizes)} | {name: getattr(self, name) for name in names}

    def state_dict(self) -> dict:
        """Return the position after the step that was yielded last."""
        position = {
            "epoch": self.epoch,
            "step": self.step,
            "passes": {task: rows.passes for task, rows in self.row_samplers.items()},
            "offsets": {task: rows.offset for task, rows in self.row_samplers.items()},
        }
        return {"position": position, "identity": self._identity()}

    def load_state_dict(self, state: dict) -> None:
        """Continue from a position. Raises ValueError if it belongs to another sampler."""
        mine, theirs = self._identity(), state["identity"]
        wrong = [
            f"{name}: expected {mine[name]}, got {theirs.get(name)}"
            for name in mine
            if mine[name] != theirs.get(name)
        ]
        if wrong:
            raise ValueError("state of another sampler; " + "; ".join(wrong))
        position = state["position"]
        self.epoch, self.step = position["epoch"], position["step"]
        for task, rows in self.row_samplers.items():
            rows.passes, rows.offset = position["passes"][task], position["offsets"][task]
