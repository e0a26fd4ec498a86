"""Mutants of `minbert.exercise_cases.simcse`: their checks must reject them all."""

from minbert.course.check_runner import mistake

MUTANTS = {}


MUTANTS["simcse.forward"] = [
    mistake(
        "return vectors.chunk(batch.views)",
        "return tuple(vectors.view(-1, batch.views, vectors.shape[1]).unbind(1))[::-1]",
        "The rows are split into sentences of V views each, in the wrong order.",
    ),
    mistake(
        "if self.projection is not None:",
        "if self.projection is not None and self.training:",
        "The projection is left out in eval mode; it is applied whenever there is one.",
    ),
    mistake(
        "vectors = self.encoder(*batch.tokens)",
        "parts = zip(*(x.chunk(batch.views) for x in batch.tokens))\n"
        "    vectors = torch.cat([self.encoder(*part) for part in parts])",
        "Each view is encoded by itself, one forward pass a view where one would do.",
    ),
]


MUTANTS["simcse.loss"] = [
    mistake(
        "groups = batch.groups if exclude_duplicates else None",
        "groups = None if exclude_duplicates else batch.groups",
        "`exclude_duplicates` is read the wrong way round.",
    ),
    mistake(
        "if len(views) == 2:",
        "if False:",
        "hard=views[2]",
        "hard=views[2] if len(views) > 2 else None",
        "`hard=None` is passed on where there is no third view. Not every loss has that "
        "argument: `mirror_loss` does not.",
    ),
    mistake(
        "if len(views) == 2:",
        "if False:",
        "hard=views[2]",
        "hard=views[-1]",
        "The last view is passed as hard negatives even if there are only two.",
    ),
    mistake(
        "    def loss_of_batch(",
        "    kept = {}\n\n    def loss_of_batch(",
        "groups = batch.groups if",
        'groups = kept.setdefault("groups", batch.groups) if',
        "The groups of the first batch are kept for all that come after it.",
    ),
]
