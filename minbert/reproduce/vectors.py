"""Stages and questions that recipes share while no grade is looked at: contrast, flows, cosines."""
from __future__ import annotations

__all__ = ["wiki", "contrast", "fit_flow", "joint_flow", "behind", "cosines", "graded", "on_dev"]

from collections.abc import Callable
from functools import partial
from pathlib import Path

import torch

from ..contrastive import span_mask
from ..data import Dataset, load_dataset
from ..engine.elsewhere import not_as_published, where_to_get
from ..flow import Flow, train_flow
from ..joint import joint_decays, joint_loss, start_joint
from ..metrics import spearman
from ..mixing import seeded
from ..sentence import SentenceEncoder, safe_cosine
from ..views import ViewModel, keep_best, train_views, view_batches, view_loss
from .run import Answers, Run

WIKI = ("wiki1m_for_simcse.txt", "corpus/wiki1m-simcse-sample.txt")   # the published file, or below the paper's scale a sample of it


def wiki(run: Run) -> list[str]:
    """Read sentences of Wiki1M with at least six words, in an order of their own: the paper leaves out "length 5 or less". The run notes which text it was, and how long.

    Without a data folder the open sentences of the package stand in: enough to try a recipe.
    Raises ValueError for a folder without the file, and at the paper's scale for a sample of it.
    """
    wanted = WIKI[:1] if run.scale.name == "paper" else WIKI
    there = [name for name in wanted if run.data and (Path(run.data) / name).is_file()]
    if run.data and not there:
        raise ValueError(f"expected {' or '.join(wanted)} in {run.data} at scale {run.scale.name}, got none: {where_to_get('wiki1m')}")
    if there and run.scale.name == "paper" and (wrong := not_as_published("wiki1m", run.data)):
        raise ValueError(wrong[0])
    found = load_dataset(there[0] if there else "sentences", "train", run.data)
    long = list(dict.fromkeys(s for s in found.sentences if len(s.split()) > 5))
    order = torch.randperm(len(long), generator=seeded("wiki")).tolist()[:run.scale.most_text]
    run.texts[there[0] if there else "sentences of the package"] = len(order)
    return [long[i] for i in order]


def on_dev(encoder: SentenceEncoder, data: Dataset) -> float:
    """Spearman of cosine and grade; an encoder is asked in eval mode and goes on in the mode that it had."""
    return spearman(cosines(encoder, data), data.labels)


def contrast(run: Run, encoder: SentenceEncoder, loss: Callable, cap: int = 0, sentences: list[str] | None = None) -> SentenceEncoder:
    """Train with two dropout views of each sentence, the second with a hidden span of at most `cap` tokens; keep what is best on STS dev, as the paper does."""
    encoder, dev, s, sentences = run.noisy(encoder), run.dataset("sts", "dev"), run.scale, sentences or wiki(run)
    if run.counts("contrast", s.view_steps, 2 * s.view_batch, 25):
        return encoder
    hide = partial(span_mask, mask_id=encoder.tokenizer.mask_token_id, cap=cap) if cap else None
    batches = view_batches([sentences], encoder.tokenizer, s.view_batch, hide, max_length=32, seed=run.seed)
    model = ViewModel(encoder)
    records = train_views(model, batches, view_loss(loss), s.view_steps, s.view_lr, precision=s.precision)
    run.log((r for r, _ in keep_best(records, model, lambda: on_dev(encoder, dev), max(1, s.view_steps // 3))), "contrast")
    return encoder.eval()


def fit_flow(run: Run, encoder: SentenceEncoder, sentences: list[str], levels: int = 3, epochs: int = 1, lr: float = 1e-3,
             steps: int | None = None) -> Flow:
    """Fit a flow to the vectors of a frozen encoder. Rate and steps are those of the scale where it has some."""
    flow = Flow(encoder.width, 3, levels, generator=torch.Generator().manual_seed(run.seed))
    if run.counts("flow", 1, len(sentences), 25, backward=False):   # each sentence is encoded once; the flow itself is small
        return flow.initialize(encoder.encode(sentences[:64])).eval()
    vectors = encoder.encode(sentences)
    run.log(train_flow(flow, vectors, epochs, run.scale.flow_lr or lr, run.scale.flow_batch, steps or None, seed=run.seed), "flow")
    return flow.eval()


def behind(encoder: SentenceEncoder, flow: Flow) -> SentenceEncoder:
    """Put a flow behind an encoder."""
    return SentenceEncoder(encoder.model, encoder.tokenizer, encoder.pooling, flow, encoder.max_length).eval()


def joint_flow(run: Run, encoder: SentenceEncoder, frozen: bool = True, cap: int = 5) -> SentenceEncoder:
    """Train a flow by contrast and likelihood together; with `frozen=False` the contrast reaches the encoder, too."""
    s, dev, sentences = run.scale, run.dataset("sts", "dev"), wiki(run)
    model = start_joint(run.noisy(encoder), sentences[:256], frozen, levels=3, seed=run.seed)
    if run.counts("joint flow", s.view_steps, 2 * s.view_batch, 25, not frozen):
        return model.sentence_encoder().eval()
    hide = partial(span_mask, mask_id=encoder.tokenizer.mask_token_id, cap=cap) if cap else None
    batches = view_batches([sentences], encoder.tokenizer, s.view_batch, hide, max_length=32, seed=run.seed)
    records = train_views(model, batches, joint_loss(), s.view_steps, s.flow_lr or 3e-4, precision=s.precision, decays=joint_decays)
    run.log((r for r, _ in keep_best(records, model, lambda: on_dev(model.sentence_encoder(), dev), max(1, s.view_steps // 3))), "joint flow")
    return model.sentence_encoder().eval()


def cosines(encoder: SentenceEncoder, data: Dataset) -> list[float]:
    """Cosine of each pair."""
    u, v = encoder.encode([*data.sentences, *data.sentences2]).chunk(2)
    return safe_cosine(u, v).tolist()


def graded(run: Run, encoder: SentenceEncoder, key: str = "unsup STS dev spearman") -> dict[str, Answers]:
    """Ask for the cosines of graded pairs: the measurement that all unsupervised rows of a paper share."""
    data = run.dataset("sts", "dev")
    return {key: Answers(run.part("sts", "dev"), "spearman", data.labels if run.counts(key, 1, 2 * len(data), 16, False) else cosines(encoder, data))}
