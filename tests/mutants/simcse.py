"""Mutants of `minbert.exercise_cases.simcse`: their checks must reject them all."""

from minbert.course.check_runner import mistake

MUTANTS = {}


MUTANTS["simcse.forward"] = [
    mistake(
        "return vectors.chunk(batch.views)",
        "return tuple(vectors.view(-1, batch.views, vectors.shape[1]).unbind(1))[::-1]",
        "The rows are cut into sentences of V views each, in the wrong order.",
    ),
    mistake(
        "if self.projection is not None:",
        "if self.projection is not None and self.training:",
        "The layer is left out in eval mode; it is applied whenever there is one.",
    ),
    mistake(
        "vectors = self._encode(*batch.tokens)",
        "vectors = self.encoder(*batch.tokens)",
        "The chunks are not used: all rows are in memory at once.",
    ),
    mistake(
        "vectors = self._encode(*batch.tokens)",
        "parts = zip(*(x.chunk(batch.views) for x in batch.tokens))\n"
        "    vectors = torch.cat([self._encode(*part) for part in parts])",
        "Each view is encoded by itself, one forward a view where one would do.",
    ),
    mistake(
        "vectors = self._encode(*batch.tokens)",
        "vectors = self._encode(*batch.tokens) if self.training else self.encoder(*batch.tokens)",
        "The chunks are used in train mode only; in eval mode all rows are in memory at once.",
    ),
]


MUTANTS["simcse.loss"] = [
    mistake(
        "groups=groups if exclude_duplicates else None",
        "groups=None if exclude_duplicates else groups",
        "`exclude_duplicates` is read the wrong way round.",
    ),
    mistake(
        '{"hard": views[2]} if len(views) > 2 else {}',
        '{"hard": views[2] if len(views) > 2 else None}',
        "`hard=None` is handed on where there is no third view. Not every loss knows that "
        "argument: `mirror_loss` does not.",
    ),
    mistake(
        "_everyone(model(batch), batch.groups, accelerator)",
        "(model(batch), batch.groups)",
        "The other processes are not asked: wrong answers come from one's own rows only.",
    ),
    mistake(
        'hard = {"hard": views[2]} if len(views) > 2 else {}',
        'hard = {"hard": views[-1]}',
        "The last view is passed as hard negatives even if there are only two.",
    ),
    mistake(
        "    def loss_fn(",
        "    kept = {}\n\n    def loss_fn(",
        "batch.groups, accelerator)",
        'kept.setdefault("groups", batch.groups), accelerator)',
        "The groups of the first batch are kept for all that come after it.",
    ),
]
