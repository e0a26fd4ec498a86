"""BERT-CF, the report of Hu: tables 1 to 7 and section 6.1."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
import torch.nn.functional as F

from ..bertcf import joint_loss
from ..contrastive import mirror_loss
from ..data import TaskBatch
from ..geometry import alignment, uniformity
from ..heads import LinearHead, MultitaskBert
from ..losses import ClippedCosineHead
from ..sentence import SentenceEncoder
from .finetune_stages import answered, example, fine_tune, heads_from, phase
from .recipe import cell, claim, not_run, recipe, row
from .run import Run, searched_rate
from .scale import RATES
from .sts_suite import DEV, Cached
from .test_sets import TEST_DIFFERS, TEST_NEEDS, on_test
from .unsupervised_stages import behind, contrast, cosines, graded, joint_flow, likelihood_flow

FLOW_RATE = 3e-4  # section 5.3
SUP = {"sst": "SST-5 dev acc", "quora": "QQP dev acc", "sts": "STS dev pearson"}
NEEDS = ("sst/train", "sst/dev", "quora/train", "quora/dev", "sts/train", "sts/dev")
ENCODER = {
    "pooling": "mean of the last layer (section 5.3)",
    "optimizer": "AdamW, decay .01 (section 5.3)",
    "clipping": "gradient at most 1 long: the report has none",
    "precision": "bfloat16 products over float32 weights; the flow alone float32: the report has none",
    "seeds": "1, 2, 3 and at the paper's scale 4 and 5, so that there is an interval: the report has 11711 alone (section 5.3)",
}
LOOKS = "before the first step and after every 125, or every quarter of a shorter run: the report does not say how often"
CHECKPOINT = f"best on STS dev (section 5.3), evaluated {LOOKS}; the score is reported on the same pairs, as in the report, so that no stage scores below its start"
SEARCHED = f"; at other scales the best on STS dev of {', '.join(f'{rate:g}' for rate in RATES)} with seed 0, the same grid for every stage"
UP_AND_DOWN = "up for a tenth of the steps, then down to 0: the report has none"
DROPOUT = ".1 (section 5.3)"
NEGATIVES = "all other sentences of the batch, equal ones too (section 4.1); Wiki1M keeps its repeated sentences"
MIX = "an invertible linear layer W u (section 4.2), a dense matrix"
CUT = "32 tokens: the report has none; SimCSE's"
SPAN = "geometric .3, at most 5 tokens (section 5.3)"
NO_SPAN = "none: a cap of 0 (section 5.3)"
TEMPERATURE = ".04: the report has none; Mirror-BERT's"
BLOCKS = "3 levels of 3, as the port that the report names"
CONTRAST = {
    "contrast: batch": "16",
    "contrast: rate": f"1e-4{SEARCHED}",
    "contrast: negatives": NEGATIVES,
    "contrast: steps": "10,000 (section 5.3)",
    "contrast: span": SPAN,
    "contrast: temperature": TEMPERATURE,
    "contrast: checkpoint": CHECKPOINT,
    "contrast: dropout": DROPOUT,
    "contrast: rate over time": UP_AND_DOWN,
    "contrast: length": CUT,
}
FLOW = {
    "flow: batch": "16",
    "flow: rate": f"3e-4{SEARCHED}",
    "flow: steps": "10,000 (section 5.3)",
    "flow: blocks": BLOCKS,
    "flow: mixing": MIX,
    "flow: checkpoint": CHECKPOINT,
    "flow: likelihood": "bits per dimension: Adam cancels the constant factor between bits and the printed nats (section 4.2)",
    "flow: rate over time": "constant: the report has none",
    "flow: length": "512 tokens: the report has none",
}
JOINT = {
    "joint: batch": "16",
    "joint: rate": f"3e-4{SEARCHED}",
    "joint: mixing": MIX,
    "joint: likelihood": "nats (section 4.2)",
    "joint: negatives": NEGATIVES,
    "joint: steps": "10,000 (section 5.3)",
    "joint: blocks": BLOCKS,
    "joint: weight of the contrast": ".3 (section 5.3)",
    "joint: span": SPAN,
    "joint: temperature": TEMPERATURE,
    "joint: checkpoint": CHECKPOINT,
    "joint: dropout": f"{DROPOUT}; on in a frozen encoder, too: our reading",
    "joint: rate over time": UP_AND_DOWN,
    "joint: length": CUT,
}
TUNE = {
    "tuning: rows": "32 SST, 96 Quora, 32 STS",
    "tuning: rate": "1e-5",
    "tuning: weights": "5, 20, 1",
    "tuning: hinges": ".7 Quora, 0 STS (section 5.3); a pair below its hinge has no gradient, as printed",
    "tuning: steps": "5,000 (section 5.3)",
    "tuning: dropout of heads": ".3 SST, none Quora, .1 STS (section 5.3)",
    "tuning: checkpoint": f"best mean on dev (section 5.3), evaluated {LOOKS}",
    "tuning: dropout of the layers": "the encoder's own: BERT's .1 (section 5.3), none at micro",
    "tuning: rate over time": UP_AND_DOWN,
    "tuning: length": "512 tokens: the report has none",
}
ON_FLOW = "heads read F(x), behind the flow: section 4.3 writes f(x), with which BERT-CF and MinBERT-Mirror would be one model"


def mirrored(run: Run, cap: int = 5) -> SentenceEncoder:
    """Stage 1: two views, the second with a hidden span; without one it is what the report calls
    SimCSE.
    """
    name = f"hu/mirror-{cap}"

    def train(trial, rate):
        return contrast(trial, trial.base(), mirror_loss, cap, rate)

    def make():
        return train(
            run, searched_rate(run, name, lambda trial: partial(train, trial), run.scale.view_lr)
        )

    return run.encoder(name, make)


def flowed(run: Run, name: str, begin: Callable[[Run], SentenceEncoder]) -> SentenceEncoder:
    """Likelihood alone, the encoder that `begin` gives frozen."""

    def prepare(trial: Run) -> Callable[[float], object]:
        vectors = Cached(begin(trial))  # encoded once for all rates
        return lambda rate: likelihood_flow(trial, vectors, rate)

    def make() -> SentenceEncoder:
        rate, encoder = searched_rate(run, name, prepare, FLOW_RATE), begin(run)
        return behind(encoder, likelihood_flow(run, encoder, rate))

    return run.encoder(name, make)


def joint_stage(
    run: Run, name: str, begin: Callable[[Run], SentenceEncoder], **settings
) -> SentenceEncoder:
    """Likelihood and contrast together, from the encoder that `begin` gives."""

    def train(trial, rate):
        return joint_flow(trial, begin(trial), rate, **settings)

    return run.encoder(
        name,
        lambda: train(
            run, searched_rate(run, name, lambda trial: partial(train, trial), FLOW_RATE)
        ),
    )


def joined(run: Run, cap: int = 5) -> SentenceEncoder:
    """Stage 2 of BERT-CF: likelihood and .3 of the contrast train the flow alone."""
    return joint_stage(run, f"hu/joint-{cap}", partial(mirrored, cap=cap), cap=cap)


def heads(width: int, clip_positives: bool = True) -> dict:
    """Build the heads of section 4.3."""
    return {
        "sst": LinearHead(width, 5, dropout=0.3),
        "quora": ClippedCosineHead(width, "paraphrase", clip_positives=clip_positives),
        "sts": ClippedCosineHead(width, "similarity", clip_positives=clip_positives),
    }


LOSS_WEIGHTS, VECTOR_DROPOUT = {"sst": 5.0, "quora": 20.0, "sts": 1.0}, {"sts": 0.1}  # section 5.3


def weighted_losses(model: MultitaskBert, batch: dict[str, TaskBatch]) -> dict[str, torch.Tensor]:
    """Compute the three weighted losses of section 4.3, with dropout on the sentence vectors before
    the STS head (section 5.3).
    """
    losses = {}
    for task, part in batch.items():
        rate = VECTOR_DROPOUT.get(task, 0.0)
        vectors = [
            F.dropout(x, rate, model.training) for x in model.vectors(part.first, part.second)
        ]
        loss = model.head(task).loss(model.score(task, *vectors), part.labels)
        losses[task] = LOSS_WEIGHTS[task] * part.weight * loss
    return losses


def tuned(run: Run, encoder: SentenceEncoder, name: str) -> MultitaskBert:
    """All layers, three weighted losses a step, the best mean on dev."""
    return run.model(f"hu/tuned-{name}", lambda: _tune(run, heads_from(run, encoder, heads)))


def _tune(run: Run, model: MultitaskBert) -> MultitaskBert:
    return fine_tune(
        run,
        model,
        phase(run, *SUP, steps=run.scale.tune_steps),
        rows=run.scale.rows,
        loss_fn=weighted_losses,
        weight_decay=0.01,
    )


def both(run: Run, encoder: SentenceEncoder, name: str) -> dict:
    """Ask the encoder as it is, then fine-tune it."""
    return graded(run, encoder) | answered(run, tuned(run, encoder, name), SUP)


@recipe("hu/minbert", row("T1", "MinBERT"), needs=NEEDS, settings=(ENCODER, TUNE))
def minbert(run: Run) -> dict:
    return both(run, run.base(), "minbert")


@recipe(
    "hu/simcse",
    row("T1", "MinBERT-SimCSE"),
    row("S6.1a", "MinBERT-SimCSE"),
    needs=NEEDS,
    settings=(ENCODER, CONTRAST | {"contrast: span": NO_SPAN}, TUNE),
)
def simcse(run: Run) -> dict:
    return both(run, mirrored(run, 0), "simcse")


@recipe(
    "hu/mirror",
    row("T1", "MinBERT-Mirror"),
    row("S6.1a", "MinBERT-Mirror"),
    needs=NEEDS,
    settings=(ENCODER, CONTRAST, TUNE),
)
def mirror(run: Run) -> dict:
    return both(run, mirrored(run), "mirror")


@recipe(
    "hu/flow",
    row("T1", "MinBERT-flow"),
    needs=NEEDS,
    settings=(ENCODER, FLOW, TUNE),
    differs=ON_FLOW,
)
def flow(run: Run) -> dict:
    return both(run, flowed(run, "hu/flow", Run.base), "flow")


@recipe(
    "hu/bert-cf",
    row("T1", "BERT-CF"),
    row("S6.1a", "MinBERT-Mirror-joint (BERT-CF)"),
    row("S6.1b", "BERT-CF"),
    needs=NEEDS,
    settings=(ENCODER, CONTRAST, JOINT, TUNE),
    differs=ON_FLOW,
)
def bertcf(run: Run) -> dict:
    return both(run, joined(run), "bertcf")


@recipe(
    "hu/simcse-joint",
    row("S6.1a", "MinBERT-SimCSE-joint"),
    needs=("sts/dev",),
    settings=(ENCODER, CONTRAST | {"contrast: span": NO_SPAN}, JOINT | {"joint: span": NO_SPAN}),
)
def simcse_joint(run: Run) -> dict:
    return graded(run, joined(run, 0))


@recipe(
    "hu/joint",
    row("S6.1b", "MinBERT-joint"),
    needs=("sts/dev",),
    settings=(ENCODER, JOINT),
    differs="the contrast moves the encoder, the likelihood does not",
)
def joint(run: Run) -> dict:
    return graded(run, joint_stage(run, "hu/joint-alone", Run.base, frozen=False))


@recipe(
    "hu/mirror-flow",
    row("S6.1b", "MinBERT-Mirror-flow"),
    needs=("sts/dev",),
    settings=(ENCODER, CONTRAST, FLOW),
)
def mirror_flow(run: Run) -> dict:
    return graded(run, flowed(run, "hu/mirror-flow", mirrored))


@recipe(
    "control/hu-open-hinge",
    needs=NEEDS,
    settings=(
        ENCODER,
        TUNE
        | {
            "tuning: hinges": ".7 Quora, 0 STS; a pair whose label is above its hinge keeps its gradient"
        },
    ),
    differs="a control: MinBERT with a hinge that lets pairs below it rise",
)
def open_hinge(run: Run) -> dict:
    return answered(
        run, _tune(run, heads_from(run, run.base(), partial(heads, clip_positives=False))), SUP
    )


@recipe(
    "control/hu-bits",
    needs=("sts/dev",),
    settings=(
        ENCODER,
        CONTRAST,
        JOINT | {"joint: likelihood": "bits per dimension, as the released code of BERT-flow"},
    ),
    differs="a control: BERT-CF with a contrast that weighs D ln 2 times as much, 532 times at 768 dimensions, and without equal sentences as negatives",
)
def in_bits(run: Run) -> dict:
    return graded(run, joint_stage(run, "hu/joint-bits", mirrored, loss=joint_loss()))


def spread(run: Run, encoder: SentenceEncoder) -> dict[str, float]:
    """Alignment of duplicates and uniformity of questions, on the unit sphere, of Quora's train set
    (table 7).
    """
    data = run.dataset("quora", "train")
    data = data.draw(
        min(len(data), 4 * (run.scale.most_dev or len(data))), torch.Generator().manual_seed(0)
    )
    if run.counts("questions", 1, 2 * len(data), 16, backward=False):
        return {"alignment": 0.0, "uniformity": 0.0}
    u, v = encoder.encode([*data.sentences, *data.sentences2]).chunk(2)
    same = torch.tensor(data.labels) == 1
    texts = list(dict.fromkeys([*data.sentences, *data.sentences2]))
    return {
        "alignment": alignment(u[same], v[same]),
        "uniformity": uniformity(encoder.encode(texts)),
    }


TABLE_7 = {
    "MinBERT": (lambda run: run.base(),),
    "MinBERT-SimCSE": (lambda run: mirrored(run, 0), CONTRAST | {"contrast: span": NO_SPAN}),
    "MinBERT-Mirror": (mirrored, CONTRAST),
    "MinBERT-flow": (lambda run: flowed(run, "hu/flow", Run.base), FLOW),
    "BERT-CF": (joined, CONTRAST, JOINT),
}
ALL_PAIRS = (
    "uniformity of Wang and Isola, over all pairs of different questions: the formula that the report prints, over labelled pairs, cannot give its table; "
    "at scales below the paper's on a draw of the pairs"
)


def _spread_of(name: str):
    make, *stages = TABLE_7[name]
    recipe(
        f"hu/spread-{name.removeprefix('MinBERT-').lower()}",
        row("T7", name),
        needs=("quora/train", "sts/dev"),
        settings=(ENCODER, *stages, {"vectors": "of length 1", "pairs": "Quora train"}),
        differs=ALL_PAIRS,
    )(lambda run: spread(run, make(run)))


for _name in TABLE_7:
    _spread_of(_name)


@recipe(
    "hu/test",
    cell("T2", "BERT-CF", "SST-5 test acc", "SST test acc"),
    cell("T2", "BERT-CF", "STS test pearson", "STS test pearson"),
    needs=(*NEEDS, *TEST_NEEDS),
    settings=(ENCODER, CONTRAST, JOINT, TUNE),
    differs=f"{ON_FLOW}; {TEST_DIFFERS}",
)
def test(run: Run) -> dict:
    return on_test(run, tuned(run, joined(run), "bertcf"))


not_run(
    "hu",
    "T2",
    "BERT-CF",
    why="of the three, Quora: the labels of the course's test set are not public",
)
COSINES = {  # row of table 3 -> words that no other pair of STS dev has together
    "T3 couch/television pair": ("sitting on a couch", "watching tv"),
    "T3 girl/woman cupcake pair": ("girl", "woman", "cupcake"),
    "T3 libya jail pair": ("libya", "jail"),
}
TOLD = {  # row of tables 4 to 6 -> table, dev set, words
    "CFE treaty pair": ("T4", "sts", "antonov", "treaty"),
    "libya jail pair": ("T4", "sts", "libya", "jail"),
    "see description pair": ("T5", "quora", "answer to this question", "(see description)"),
    "fake names pair": ("T5", "quora", "fake names"),
    "breath of fresh air": ("T6", "sst", "breath of fresh air", "allow it in"),
    "unindicted": ("T6", "sst", "unindicted"),
    "italian for beginners": ("T6", "sst", "italian for beginners", "wham-bam"),
}


SEE_DESCRIPTION = 'table 5 prints the label 1 for the pair with "(see description)"; the course\'s file says 0, and the answer 0 that the report calls a failure is right there'


@recipe(
    "hu/example-cosines",
    *(
        row(
            "T3",
            name,
            **{
                "MinBERT_cos": f"{name} before",
                "BERT-CF_cos": f"{name} after",
                "gold": f"{name} gold",
            },
        )
        for name in COSINES
    ),
    examples=True,
    needs=NEEDS,
    settings=(ENCODER, CONTRAST, JOINT),
)
def example_cosines(run: Run) -> dict:
    found = {name: example("sts", words, run.data) for name, words in COSINES.items()}
    encoders = {"before": run.base(), "after": joined(run)}
    return {
        f"{name} {when}": cosines(encoder, data)[0]
        for when, encoder in encoders.items()
        for name, data in found.items()
    } | {f"{name} gold": data.labels[0] for name, data in found.items()}


@recipe(
    "hu/example-answers",
    *(
        row(table, name, gold=f"{name} gold", prediction=f"{name} prediction")
        for name, (table, *_) in TOLD.items()
    ),
    examples=True,
    needs=NEEDS,
    settings=(ENCODER, CONTRAST, JOINT, TUNE),
    differs=f"{ON_FLOW}; {SEE_DESCRIPTION}",
)
def example_answers(run: Run) -> dict:
    model = tuned(run, joined(run), "bertcf")
    found = {
        name: (task, example(task, words, run.data)) for name, (_, task, *words) in TOLD.items()
    }
    return {
        f"{name} prediction": model.predict(task, data).item()
        for name, (task, data) in found.items()
    } | {f"{name} gold": d.labels[0] for name, (_, d) in found.items()}


for _text, _better, _worse, _key in (
    ("Contrast lifts the cosine", "hu/mirror", "hu/minbert", DEV),
    (
        "A hidden span helps the contrast (section 6.1: comparable, if not better without)",
        "hu/mirror",
        "hu/simcse",
        DEV,
    ),
    ("The flow alone helps", "hu/flow", "hu/minbert", DEV),
    ("Contrast and likelihood together beat the contrast", "hu/bert-cf", "hu/mirror", DEV),
    ("Two stages beat one", "hu/bert-cf", "hu/joint", DEV),
    (
        "The printed hinge, without a gradient below it, beats an open one in paraphrase",
        "hu/minbert",
        "control/hu-open-hinge",
        SUP["quora"],
    ),
    (
        "The printed hinge, without a gradient below it, beats an open one in similarity",
        "hu/minbert",
        "control/hu-open-hinge",
        SUP["sts"],
    ),
    (
        "The joint flow helps SimCSE, too (section 6.1: not much)",
        "hu/simcse-joint",
        "hu/simcse",
        DEV,
    ),
    (
        "The joint flow is better after Mirror than after SimCSE",
        "hu/bert-cf",
        "hu/simcse-joint",
        DEV,
    ),
    (
        "A likelihood in bits, which gives the contrast more weight, beats one in nats",
        "control/hu-bits",
        "hu/bert-cf",
        DEV,
    ),
    ("Regularized likelihood beats plain likelihood", "hu/bert-cf", "hu/mirror-flow", DEV),
    ("BERT-CF helps sentiment", "hu/bert-cf", "hu/minbert", SUP["sst"]),
    ("BERT-CF helps paraphrase", "hu/bert-cf", "hu/minbert", SUP["quora"]),
    ("BERT-CF helps similarity", "hu/bert-cf", "hu/minbert", SUP["sts"]),
):
    claim(_text, _better, _worse, _key)
not_run(
    "hu",
    "F2",
    "cosines of MinBERT",
    "cosines of BERT-CF (figure 3)",
    figures=False,
    why="histograms without a figure: the stored answers of hu/minbert and hu/bert-cf to STS dev are these cosines",
)
for _name, _word in (
    ("simcse", "SimCSE"),
    ("mirror", "Mirror"),
    ("flow", "The flow"),
    ("bert-cf", "BERT-CF"),
):  # table 7: of both measures a lower value is better
    claim(
        f"{_word} moves duplicates apart: a higher alignment",
        f"hu/spread-{_name}",
        "hu/spread-minbert",
        "alignment",
    )
    claim(
        f"{_word} spreads sentences: a lower uniformity",
        "hu/spread-minbert",
        f"hu/spread-{_name}",
        "uniformity",
    )
claim(
    "Contrast spreads sentences more than the flow: a lower uniformity",
    "hu/spread-flow",
    "hu/spread-mirror",
    "uniformity",
)
for _key in ("alignment", "uniformity"):
    claim(
        f"BERT-CF has a higher {_key} than SimCSE: it is worse",
        "hu/spread-bert-cf",
        "hu/spread-simcse",
        _key,
    )
