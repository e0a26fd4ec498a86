"""The course's own run: one BERT, three tasks, ten epochs. No paper printed it as a row; every
report starts from it.
"""

from __future__ import annotations

from ..heads import default_heads
from .finetune_stages import TASKS, answered, fine_tune, heads_from, phase
from .recipe import recipe
from .run import Run


@recipe(
    "control/course",
    needs=tuple(f"{task}/{split}" for task in TASKS for split in ("train", "dev")),
    settings={
        "rows": "32 of each task a step (Hu, section 5.3, for SST and STS)",
        "epochs": "10 of the largest task (Wu and Zhao)",
        "rate": "1e-5 (course)",
        "looks at dev": "before the first step and at the end of each epoch; below the paper's scale after every 125 steps, or every quarter of a shorter run",
        "warm-up": "a tenth of the steps, then straight to 0 (BERT release)",
        "clipping": "gradient at most 1 long (BERT release)",
    },
    references={
        "SST dev acc": (
            0.515,
            "bert-base fine-tuned on SST alone, mean of 10 seeds: README of CMU's version of the course",
        )
    },
)
def course(run: Run) -> dict:
    """Fine-tune all three tasks in each step, the usual heads, the best mean on dev."""
    model = heads_from(run, run.base(), lambda width: default_heads(width, TASKS))
    return answered(
        run, run.model("control/course", lambda: fine_tune(run, model, phase(run, *TASKS)))
    )
