"""Unsupervised stages that recipes share: contrastive training, flows, cosines of pairs."""

from __future__ import annotations

__all__ = [
    "wiki",
    "contrast",
    "fit_flow",
    "likelihood_flow",
    "joint_flow",
    "joint_in_nats",
    "behind",
    "cosines",
    "graded",
    "on_dev",
    "best_on_dev",
]

import math
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path

import torch

from ..bertcf import JointModel, joint_decays, start_joint
from ..contrastive import mirror_loss, span_mask
from ..core.best_weights import Best
from ..data import Dataset, load_dataset
from ..datasets.manual_downloads import not_as_published, where_to_get
from ..encoding.dense_layers import apply_dense
from ..flow import Flow, train_flow
from ..metrics import spearman
from ..sampling import seeded
from ..sentence import SentenceEncoder, safe_cosine
from ..simcse import ViewBatch, ViewModel, train_views, view_batches, view_loss
from ..training import Record
from .run import Answers, Run, look_every

START = 256  # sentences from which a flow is initialized
MIXING = "dense"  # invertible linear layer of a flow: u = W u (Hu, section 4.2)
VIEW_DROPOUT = 0.1  # of contrastive training (Hu, section 5.3)
WIKI = (
    "wiki1m_for_simcse.txt",
    "corpus/wiki1m-simcse-sample.txt",
)  # the published file, or below the papers' scale a sample of it


def wiki(run: Run) -> list[str]:
    """Read sentences of Wiki1M with at least six words, shuffled: the paper leaves out "length 5 or
    less". The run notes name, number and checksum of the text.

    Without a data folder the open sentences of the package stand in: enough to try a recipe. Raises
    ValueError for a folder without the file;
    at the scale of the papers the published file is wanted, and a sample of it is refused.
    """
    files = WIKI[:1] if run.scale.printed else WIKI
    there = [name for name in files if run.data and (Path(run.data) / name).is_file()]
    if run.data and not there:
        raise ValueError(
            f"expected {' or '.join(files)} in {run.data} at scale {run.scale.name}, got none: "
            f"{where_to_get('wiki1m')}"
        )
    if there and run.scale.printed and (wrong := not_as_published("wiki1m", run.data)):
        raise ValueError(wrong[0])
    found = load_dataset(there[0] if there else "sentences", "train", run.data)
    name = there[0] if there else "sentences of the package"
    long = [s for s in found.sentences if len(s.split()) > 5]
    order = torch.randperm(len(long), generator=seeded("wiki")).tolist()[: run.scale.most_text]
    run.texts[name] = len(order)
    return run.read_text(name, [long[i] for i in order])


def on_dev(encoder: SentenceEncoder, data: Dataset) -> float:
    """Spearman of cosine and grade; an encoder is asked in eval mode and goes on in the mode that
    it had.
    """
    return spearman(cosines(encoder, data), data.labels)


def best_on_dev(
    run: Run,
    stage: str,
    records: Iterable[Record],
    model: torch.nn.Module,
    score: Callable[[], float],
    steps: int,
    **values,
) -> None:
    """Train to the end, and give the model its best weights back: those of the start, of every
    `look_every(steps)` steps, or of the end.

    The run notes `values`, and at which steps dev was scored with what result.
    """
    best, every, looks = Best(model, score), look_every(steps), {}

    def watched() -> Iterator[Record]:
        looks[0] = best.measure(0)
        for record in records:
            yield record
            done = record.step + 1
            if done % every == 0 or done == steps:
                looks[done] = best.measure(done)

    run.log(watched(), stage)
    best.restore()
    kept = max(looks, key=looks.get)  # the first of equal ones, as `Best` keeps
    run.note(stage, steps=steps, **values, looks=list(looks), dev=list(looks.values()), kept=kept)


def two_views(
    run: Run, encoder: SentenceEncoder, cap: int, sentences: list[str]
) -> Iterator[ViewBatch]:
    """Batch two views of each sentence, the second with a masked span of at most `cap` tokens; 32
    tokens, as SimCSE.
    """
    hide = partial(span_mask, mask_id=encoder.tokenizer.mask_token_id, cap=cap) if cap else None
    return view_batches(
        [sentences], encoder.tokenizer, run.scale.view_batch, hide, max_length=32, seed=run.seed
    )


def contrast(
    run: Run, encoder: SentenceEncoder, loss: Callable, cap: int = 0, lr: float | None = None
) -> SentenceEncoder:
    """Train with two dropout views of each sentence, the second with a masked span of at most `cap`
    tokens; keep the weights that are best on STS dev.

    As printed, all other sentences of a batch are negatives, equal ones too.
    """
    encoder, dev, s, sentences = (
        run.noisy(encoder, VIEW_DROPOUT),
        run.dataset("sts", "dev"),
        run.scale,
        wiki(run),
    )
    if run.counts("contrast", s.view_steps, 2 * s.view_batch, 25):
        return encoder
    lr, model = lr or s.view_lr, ViewModel(encoder)
    records = train_views(
        model,
        two_views(run, encoder, cap, sentences),
        view_loss(loss, exclude_duplicates=False),
        s.view_steps,
        lr,
        precision=s.precision,
    )
    best_on_dev(
        run,
        "contrast",
        records,
        model,
        lambda: on_dev(encoder, dev),
        s.view_steps,
        batch=s.view_batch,
        rate=lr,
        dropout=VIEW_DROPOUT,
    )
    return encoder.eval()


def fit_flow(
    run: Run,
    encoder: SentenceEncoder,
    sentences: list[str],
    levels: int = 3,
    epochs: int = 1,
    lr: float = 1e-3,
    steps: int | None = None,
) -> Flow:
    """Fit a flow to the vectors of a frozen encoder. Rate and steps are those of the scale where it
    has some.
    """
    flow = Flow(encoder.width, 3, levels, generator=torch.Generator().manual_seed(run.seed))
    if run.counts(
        "flow", 1, len(sentences), 25, backward=False
    ):  # each sentence is encoded once; the flow itself is small
        return flow.initialize(encoder.encode(sentences[:64])).eval()
    vectors, lr, batch = encoder.encode(sentences), run.scale.flow_lr or lr, run.scale.flow_batch
    run.log(train_flow(flow, vectors, epochs, lr, batch, steps or None, seed=run.seed), "flow")
    run.note(
        "flow",
        batch=batch,
        steps=steps or epochs * math.ceil(len(vectors) / batch),
        rate=lr,
        kept="the last",
    )
    return flow.eval()


def likelihood_flow(run: Run, encoder: SentenceEncoder, lr: float) -> Flow:
    """Fit a flow of 3 levels with an invertible linear layer (Hu, section 4.2) to the vectors of a
    frozen encoder, by likelihood alone; keep what is best on STS dev.

    The likelihood is in bits per dimension: a constant factor that Adam cancels; only the clipping
    of the gradient would differ in nats.
    """
    s, dev, sentences = run.scale, run.dataset("sts", "dev"), wiki(run)
    flow = Flow(encoder.width, 3, 3, MIXING, generator=torch.Generator().manual_seed(run.seed))
    if run.counts("flow", 1, len(sentences), 25, backward=False):
        return flow.initialize(encoder.encode(sentences[:64])).eval()
    vectors, pairs = encoder.encode(sentences), encoder.encode([*dev.sentences, *dev.sentences2])
    flow.initialize(vectors[:START])
    steps = s.flow_steps or math.ceil(len(vectors) / s.flow_batch)
    records = train_flow(flow, vectors, 1, lr, s.flow_batch, steps, seed=run.seed)

    @torch.no_grad()
    def score() -> float:
        return spearman(safe_cosine(*apply_dense(pairs, flow).chunk(2)), dev.labels)

    best_on_dev(run, "flow", records, flow, score, steps, batch=s.flow_batch, rate=lr)
    return flow.eval()


def behind(encoder: SentenceEncoder, flow: Flow) -> SentenceEncoder:
    """Put a flow behind an encoder."""
    return SentenceEncoder(
        encoder.model, encoder.tokenizer, encoder.pooling, flow, encoder.max_length
    ).eval()


def joint_in_nats(
    model: JointModel, batch: ViewBatch, weight: float = 0.3, temperature: float = 0.04
) -> dict[str, torch.Tensor]:
    """Compute the joint loss as printed: weight mirror(F(x), F(x')) - log p(f(x)), the likelihood
    in nats; it never reaches the encoder.

    Paper: Hu (BERT-CF), section 4.2. Differs from `joint_loss`, which divides the likelihood by D
    ln 2 and leaves out equal sentences as negatives.
    """
    a, b = model(batch)
    contrast = mirror_loss(model.flow(a)[0], model.flow(b)[0], temperature)
    return {"mirror": weight * contrast, "flow": model.flow.nll(a.detach(), "nats").mean()}


def joint_flow(
    run: Run,
    encoder: SentenceEncoder,
    lr: float,
    frozen: bool = True,
    cap: int = 5,
    loss: Callable = joint_in_nats,
) -> SentenceEncoder:
    """Train a flow by contrast and likelihood together; with `frozen=False` the contrast also
    reaches the encoder. Keep what is best on STS dev.
    """
    s, dev, sentences = run.scale, run.dataset("sts", "dev"), wiki(run)
    model = start_joint(
        run.noisy(encoder, VIEW_DROPOUT),
        sentences[:START],
        frozen,
        levels=3,
        mixing=MIXING,
        seed=run.seed,
    )
    if run.counts("joint flow", s.view_steps, 2 * s.view_batch, 25, not frozen):
        return model.sentence_encoder().eval()
    records = train_views(
        model,
        two_views(run, encoder, cap, sentences),
        loss,
        s.view_steps,
        lr,
        precision=s.precision,
        decays=joint_decays,
    )

    def score():
        return on_dev(model.sentence_encoder(), dev)

    best_on_dev(
        run,
        "joint flow",
        records,
        model,
        score,
        s.view_steps,
        batch=s.view_batch,
        rate=lr,
        dropout=VIEW_DROPOUT,
    )
    return model.sentence_encoder().eval()


def cosines(encoder: SentenceEncoder, data: Dataset) -> list[float]:
    """Cosine of each pair."""
    u, v = encoder.encode([*data.sentences, *data.sentences2]).chunk(2)
    return safe_cosine(u, v).tolist()


def graded(
    run: Run, encoder: SentenceEncoder, key: str = "unsup STS dev spearman"
) -> dict[str, Answers]:
    """Ask for the cosines of graded pairs: the measurement that all unsupervised rows of a paper
    share.
    """
    data = run.dataset("sts", "dev")
    return {
        key: Answers(
            run.part("sts", "dev"),
            "spearman",
            data.labels if run.counts(key, 1, 2 * len(data), 16, False) else cosines(encoder, data),
        )
    }
