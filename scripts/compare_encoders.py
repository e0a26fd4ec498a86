"""Compare ways to train a sentence encoder without similarity scores, under equal conditions.

    python scripts/compare_encoders.py --out results/comparisons/encoders

Every method trains 1,000 steps of 32 examples for each of its stages, on captions or caption pairs
of `inference` train without anything that occurs in a scored split. Dev is scored before the first
step and every 125 steps, and the best weights are kept. The learning rate is chosen on dev with a
seed of its own; three other seeds are reported.

Each run is one Parquet file with one row for each split: method, seed, learning rate, dev curve,
cosines of the pairs, measures of geometry. `--join FILE` writes all of them into one file. The
encoders of the first stage are kept in the folder `encoders`, because the second stage starts from
them.
"""

import os
from functools import partial
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")

import torch  # noqa: E402
from comparison import compare  # noqa: E402

from minbert.batches import pair_batches  # noqa: E402
from minbert.bertcf import joint_decays, joint_loss, start_joint  # noqa: E402
from minbert.contrastive import mirror_loss, simcse_loss, span_mask  # noqa: E402
from minbert.core.best_weights import Best  # noqa: E402
from minbert.core.dropout import set_dropout  # noqa: E402
from minbert.data import load_dataset  # noqa: E402
from minbert.geometry import alignment, isoscore, uniformity  # noqa: E402
from minbert.metrics import spearman  # noqa: E402
from minbert.negatives import multiple_negatives_loss  # noqa: E402
from minbert.sentence import SentenceEncoder, safe_cosine  # noqa: E402
from minbert.simcse import ViewModel, train_views, view_batches, view_loss  # noqa: E402

SEEDS = (1, 2, 3)
STEPS, EVERY, BATCH = 1000, 125, 32
DROPOUT, MASKED = 0.01, 2  # the embedded model was trained without dropout; longest masked span
TEMPERATURE = 0.05
ENCODER_RATES = (1e-4, 3e-4, 1e-3)
FLOW_RATES = (3e-4, 1e-3, 3e-3)
SETTINGS = {
    "steps": STEPS,
    "batch_size": BATCH,
    "dropout": DROPOUT,
    "masked_span": MASKED,
    "temperature": TEMPERATURE,
    "precision": "bf16",
    "flow": "additive, depth 3, 3 levels",
    "contrastive_weight": 0.3,
}
SPLITS = ("dev", "test")
KEPT = Path("encoders")  # changed by main to a folder beside the runs


def both_sides(data) -> list[str]:
    return [*data.sentences, *data.sentences2]


def training_pairs():
    """Give inference train without the pairs that share a sentence with a scored split."""
    held = set()
    for task in ("similarity", "inference"):
        for split in SPLITS:
            held.update(both_sides(load_dataset(task, split)))
    data = load_dataset("inference", "train")
    return data.subset(
        i for i, pair in enumerate(zip(data.sentences, data.sentences2)) if not held & set(pair)
    )


def captions() -> list[str]:
    return list(dict.fromkeys(both_sides(training_pairs())))


def entailed_pairs() -> list[list[str]]:
    data = training_pairs()
    entailment = data.classes.index("entailment")
    rows = [i for i, label in enumerate(data.labels) if label == entailment]
    return [[data.sentences[i] for i in rows], [data.sentences2[i] for i in rows]]


def triplets() -> list[list[str]]:
    """Give premises with a sentence that they entail and one that contradicts them."""
    data = training_pairs()
    first = {label: {} for label in data.classes}
    for premise, hypothesis, label in zip(data.sentences, data.sentences2, data.labels):
        first[data.classes[label]].setdefault(premise, hypothesis)
    entailed, contradicted = first["entailment"], first["contradiction"]
    premises = [premise for premise in entailed if premise in contradicted]
    return [premises, [entailed[p] for p in premises], [contradicted[p] for p in premises]]


def on_dev(encoder) -> float:
    data = load_dataset("similarity", "dev")
    training = encoder.training
    encoder.eval()
    cosine = safe_cosine(encoder.encode(data.sentences), encoder.encode(data.sentences2))
    encoder.train(training)
    return spearman(cosine, data.labels)


def keep_best(model, records, score) -> dict[int, float]:
    """Train to the end, give the model its best weights on dev, and return the dev curve."""
    best = Best(model, score)
    curve = {0: best.measure(0)}
    for step, _ in enumerate(records, 1):
        if step % EVERY == 0:
            curve[step] = best.measure(step)
    best.restore()
    return curve


def load(folder=None) -> SentenceEncoder:
    encoder = SentenceEncoder.from_pretrained(folder, pooling="mean")
    set_dropout(encoder, DROPOUT)
    return encoder


def train_encoder(encoder, batches, loss, rate: float) -> dict[int, float]:
    records = train_views(ViewModel(encoder), batches, loss, STEPS, rate, precision="bf16")
    return keep_best(encoder, records, lambda: on_dev(encoder))


def view_training(columns, seed: int, rate: float, loss, masked: int = 0):
    """Train on views: one column is encoded twice, two or three are positives and hard negatives."""
    torch.manual_seed(seed)
    encoder = load()
    mask = None
    if masked:
        mask = partial(span_mask, mask_id=encoder.tokenizer.mask_token_id, cap=masked)
    batches = view_batches(columns, encoder.tokenizer, BATCH, mask, max_length=32, seed=seed)
    return encoder, train_encoder(encoder, batches, view_loss(loss), rate)


def simcse(seed, rate):
    return view_training([captions()], seed, rate, partial(simcse_loss, temperature=TEMPERATURE))


def mirror(seed, rate):
    return view_training([captions()], seed, rate, mirror_loss, MASKED)


def supervised_simcse(seed, rate):
    return view_training(triplets(), seed, rate, partial(simcse_loss, temperature=TEMPERATURE))


def ranking(seed, rate):
    torch.manual_seed(seed)
    encoder = load()
    batches = pair_batches(entailed_pairs(), encoder.tokenizer, BATCH, max_length=32, seed=seed)
    return encoder, train_encoder(encoder, batches, view_loss(multiple_negatives_loss), rate)


def with_flow(seed, rate, first: str | None, weight: float):
    """Train a flow behind a frozen encoder, or both together when there is no first stage."""
    torch.manual_seed(seed)
    encoder = load(KEPT / f"{first}-{seed}" if first else None)
    text = captions()
    model = start_joint(encoder, text[:256], first is not None, seed=seed, depth=3, levels=3)
    mask = partial(span_mask, mask_id=encoder.tokenizer.mask_token_id, cap=MASKED)
    batches = view_batches([text], encoder.tokenizer, BATCH, mask, max_length=32, seed=seed + 100)
    records = train_views(
        model, batches, joint_loss(weight), STEPS, rate, precision="bf16", decays=joint_decays
    )
    curve = keep_best(model, records, lambda: on_dev(model.sentence_encoder()))
    return model.sentence_encoder(), curve


METHODS = {
    "simcse": simcse,
    "mirror": mirror,
    "supervised-simcse": supervised_simcse,
    "ranking": ranking,
    "bert-cf": partial(with_flow, first="mirror", weight=0.3),
    "mirror-flow": partial(with_flow, first="mirror", weight=0.0),
    "joint": partial(with_flow, first=None, weight=0.3),
}
FLOWS = ("bert-cf", "mirror-flow")  # only the flow is trained


def train(name: str, seed: int, rate: float) -> list[dict]:
    encoder, curve = METHODS[name](seed, rate)
    encoder.eval()
    if name == "mirror":
        best = KEPT / f"mirror-{seed}"
        if seed or curve_is_best(best, curve):
            encoder.save_pretrained(best)
    return [
        measure(encoder, split)
        | {"dev_steps": list(curve), "dev": list(curve.values()), "best_dev": max(curve.values())}
        for split in SPLITS
    ]


def curve_is_best(folder: Path, curve: dict[int, float]) -> bool:
    """Tell whether a run of the search is the best so far; the second stage of the search starts
    from it.
    """
    note = folder.with_suffix(".txt")
    best = float(note.read_text()) if note.exists() else -1.0
    if max(curve.values()) <= best:
        return False
    folder.parent.mkdir(parents=True, exist_ok=True)
    note.write_text(str(max(curve.values())))
    return True


def measure(encoder, split: str) -> dict:
    """Give score, cosines and geometry on one split."""
    data = load_dataset("similarity", split)
    u, v = encoder.encode(data.sentences), encoder.encode(data.sentences2)
    cosine = safe_cosine(u, v)
    close = torch.tensor(data.labels) > 4
    texts = torch.cat([u, v]).unique(dim=0)
    return {
        "split": split,
        "spearman": spearman(cosine, data.labels),
        "cosines": [round(x, 5) for x in cosine.tolist()],
        "alignment": alignment(u[close], v[close]),
        "uniformity": uniformity(texts),
        "isoscore": isoscore(texts),
    }


if __name__ == "__main__":
    import sys

    OUT = "results/comparisons/encoders"
    KEPT = Path(sys.argv[sys.argv.index("--out") + 1] if "--out" in sys.argv else OUT) / "encoders"
    compare(
        __doc__,
        train,
        list(METHODS),
        lambda name: FLOW_RATES if name in FLOWS else ENCODER_RATES,
        SEEDS,
        SETTINGS,
        OUT,
    )
