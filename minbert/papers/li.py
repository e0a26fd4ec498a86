"""BERT-flow, Li et al. (2020): tables 1 to 8 and figure 2."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from statistics import mean, median, stdev

import numpy as np

from ..datasets.formats import read_lines
from ..datasets.manual_downloads import not_as_published, where_to_get
from ..heads import ConcatDiff
from ..lexical import BANDS, edit_bias, edit_distance, frequency_table, rank_words
from ..metrics import spearman
from ..sentence import SentenceEncoder
from ..whitening import Calibration, NullTop, Standardize, StandardizeNullTop, score_top
from .finetune_stages import fine_tune, heads_from, phase
from .recipe import EVERY, cell, claim, not_run, recipe, row
from .run import Answers, Run, labelled
from .sts_suite import (
    NEEDS,
    SETS,
    Cached,
    Through,
    by_cosine,
    keep,
    nli_of,
    on_nli,
    on_target,
    ranks,
    seven,
    text_of,
)
from .unsupervised_stages import cosines, fit_flow

MEAN, LAST2AVG = "mean", "first_last_avg"
MNLI = ("mnli/train", "mnli/dev")
BERT = {"length": "64 tokens (appendix B)", "pooling": "mean of the last layer (section 4.1)"}
CLS = BERT | {"pooling": "[CLS] of the last layer (Reimers and Gurevych, 2019)"}
BERT_2 = BERT | {
    "pooling": "means of the first and the last layer, as the released code computes; section 4.1 has the last two layers (control/last-two)"
}
FLOW = {
    "flow": "2 levels of 3 steps, nets 32 wide (table 7)",
    "coupling": "additive (appendix A)",
    "batch": "64 sentences, the 32 pairs of the released code",
    "order": "reversed in each step, as the released code does; section 3.2: random",
    "decay": ".01, clipped at 1 (released code)",
}
TARGET = {
    **FLOW,
    "text": "train, dev and test of each set, no labels (section 4.1)",
    "epochs": "1, rate 1e-3 (appendix B)",
}
NLI = {
    **FLOW,
    "text": "sentences of SNLI and MNLI, no labels (section 4.1)",
    "epochs": ".15, rate 2e-5 (appendix B); a scale with a rate and steps of its own takes these: .15 of little text is a few dozen steps",
}
SIAMESE = {
    "NLI": "u, v, |u - v| and three classes, mean pooling, 1 epoch, rate 2e-5, batch 16 (appendix B), 10 % of the steps on the way up, then down to 0, decay .01 "
    "(Reimers and Gurevych, 2019), gradient at most 1 long: ours"
}
DENSE = "the nets of the couplings are three dense layers without a residual connection: a vector has one position"
LESS = "test rows are those of the data folder, which may be fewer than the published ones"
SMALL = "where the train split of SNLI is missing, open captions stand for it; a sample may stand for MNLI"


def siamese(run: Run, encoder: SentenceEncoder) -> SentenceEncoder:
    """Fine-tune on labelled NLI pairs: both sets as one, under one head. The run notes which sets
    they were.
    """
    sets, name = nli_of(run)
    run.texts[name] = sum(2 * len(pairs) for pairs in sets)
    whole = replace(
        sets[-1],
        sentences=sum((d.sentences for d in sets), []),
        sentences2=sum((d.sentences2 for d in sets), []),
        labels=sum((d.labels for d in sets), []),
        ids=[f"{d.name}-{i}" for d in sets for i in d.ids],
    )
    model = heads_from(run, encoder, lambda width: {"mnli": ConcatDiff(width, 3, "classes")})
    once = replace(
        phase(run, "mnli", epochs=1, lr=2e-5 if run.scale.task_steps is None else None),
        source="nli",
    )
    return fine_tune(
        run, model, once, rows=16, weight_decay=0.01, sources={"nli": {"mnli": whole}}, best=False
    ).encoder


def vectors(run: Run, large: bool = False, nli: bool = False, pooling: str = LAST2AVG) -> Cached:
    """Open BERT, as it was published or fine-tuned on NLI, to be read through one pooling."""
    name = "large" if large else "base"
    encoder = (
        run.encoder(f"li/nli-{name}", lambda: siamese(run, run.base(large=large)))
        if nli
        else run.base(large=large)
    )
    return keep(
        run,
        f"li/{name}/{nli}/{pooling}",
        SentenceEncoder(encoder.model, encoder.tokenizer, pooling, max_length=64).eval(),
    )


def plain(run: Run, found: Cached) -> Callable:
    """Leave the vectors as they are."""
    return lambda task: found


def _fit(run: Run, found: Cached, **printed) -> Callable:
    """Fit flows of table 7; the batch is the paper's at every scale, since a scale's is of another
    paper.
    """
    own = replace(run, scale=replace(run.scale, flow_batch=64))
    return lambda text: fit_flow(own, found, text, levels=2, **printed)


def flow_target(run: Run, found: Cached) -> Callable:
    """A flow for each set, on its own sentences."""
    fit = _fit(run, found, lr=1e-3)
    return lambda task: Through(
        found, run.own_flow(f"{found.name}/flow-{task}", lambda: fit(text_of(run, task)))
    )


def flow_nli(run: Run, found: Cached) -> Callable:
    """One flow on NLI sentences: one pass over 15 % of them is .15 of an epoch."""
    printed = run.scale.flow_lr is None
    fit = _fit(run, found, lr=2e-5, steps=None if printed else run.scale.flow_steps)
    return on_nli(
        run,
        found,
        lambda text: run.own_flow(f"{found.name}/flow-nli", lambda: fit(text)),
        share=0.15 if printed else 1.0,
    )


# suffix of the recipe -> (suffix of the row, pooling, map, settings, how it differs from the paper)
KINDS = {
    "": ("", MEAN, plain, BERT, ()),
    "-last2avg": ("-last2avg", LAST2AVG, plain, BERT_2, ()),
    "-flow-nli": ("-flow (NLI*)", LAST2AVG, flow_nli, BERT_2 | NLI, (DENSE, SMALL)),
    "-flow-target": ("-flow (target)", LAST2AVG, flow_target, BERT_2 | TARGET, (DENSE,)),
}
ALL = dict(zip(SETS, SETS))
# the same vectors, printed a second time as Reimers and Gurevych (2019) had measured them
ALSO = {
    (False, False): ("T2", "Avg. BERT embeddings"),
    (False, True): ("T3", "SBERT base-NLI"),
    (True, True): ("T3", "SBERT large-NLI"),
}


def scales(large: bool) -> tuple[str, ...]:
    """The large model is there at the paper's scale alone."""
    return ("paper",) if large else EVERY


def joined(*parts: str) -> str:
    """Say each difference once."""
    return "; ".join(dict.fromkeys(parts))


def _sts(large: bool, nli: bool, kind: str):
    """A row of table 2 or 3: all seven sets."""
    size, (suffix, pooling, look, settings, differs) = "large" if large else "base", KINDS[kind]
    # first: sentences are about the paper's own figure, the last
    places = [row(*ALSO[large, nli], **ALL)] if kind == "" and (large, nli) in ALSO else []
    places += [row("T3" if nli else "T2", f"BERT {size}{'-NLI' * nli}{suffix}", **ALL)]
    if (large, nli, kind) == (False, False, ""):
        places += [row("T5", "BERT base", Spearman="STS-B")]
    recipe(
        f"li/{size}{'-nli' * nli}{kind}",
        *places,
        needs=(*NEEDS, *MNLI) if nli or look is flow_nli else NEEDS,
        settings=(settings, SIAMESE if nli else {}),
        differs=joined(*differs, *([SMALL] if nli else []), LESS),
        scales=scales(large),
    )(lambda run: seven(run, by_cosine(look(run, vectors(run, large, nli, pooling)))))


for _large in (False, True):
    for _nli in (False, True):
        for _kind in KINDS:
            _sts(_large, _nli, _kind)


recipe(
    "li/base-cls", row("T2", "BERT CLS-vector", **ALL), needs=NEEDS, settings=(CLS,), differs=LESS
)(lambda run: seven(run, by_cosine(plain(run, vectors(run, pooling="cls")))))


def _qnli(large: bool, kind: str):
    """A row of table 4. Class 0 of the set is "entailment", so the higher the cosine, the lower the
    answer.
    """
    size, (suffix, pooling, look, settings, differs) = "large" if large else "base", KINDS[kind]

    def make(run: Run) -> dict:
        near = cosines(
            look(run, vectors(run, large, True, pooling))("qnli"), labelled("qnli/dev", run.data)
        )
        return {"AUC": Answers("qnli/dev", "auc", ranks([-c for c in near]))}

    recipe(
        f"li/{size}-qnli{kind}",
        row("T4", f"BERT {size}-NLI{suffix}"),
        needs=("qnli/dev", *MNLI),
        settings=(settings, SIAMESE),
        differs=joined(
            *differs,
            SMALL,
            "the flow on the set's own text reads those splits of QNLI that are there",
        ),
        scales=scales(large),
    )(make)


for _large in (False, True):
    for _kind in ("-last2avg", "-flow-nli", "-flow-target"):
        _qnli(_large, _kind)


def calibrated(run: Run, kind: type[Calibration], *k: int) -> dict:
    """Correct the mean of the last layer on the text of STS-B; where directions are removed, also
    say how many its dev set would choose.
    """
    found = vectors(run, pooling=MEAN)
    text = text_of(run, "stsb")
    test = labelled("stsb/test", run.data)
    dev = labelled("stsb/dev", run.data)
    x, u, v = (found.encode(s) for s in (text, dev.sentences, dev.sentences2))

    def answer(*k):
        return Answers(
            "stsb/test",
            "spearman",
            ranks(
                cosines(on_target(run, found, lambda _: kind(found.width, *k).fit(x))("stsb"), test)
            ),
        )

    if not k:
        return {"STS-B": answer()}
    scores = score_top(kind, x, u, v, dev.labels)
    best = max(scores, key=scores.get)
    return {
        "STS-B": answer(*k),
        "STS-B, k chosen on dev": answer(best),
        "k chosen on dev": float(best),
    }


def _calibration(name: str, printed: str, kind: type[Calibration], *k: int):
    recipe(
        f"li/base-{name}-target",
        row("T5", printed, Spearman="STS-B"),
        needs=NEEDS[:3],
        settings=(
            BERT,
            {
                "text": "train, dev and test of STS-B, no labels",
                "k": f"{k[0]} (table 5)" if k else "none",
            },
        ),
        differs=LESS,
    )(lambda run: calibrated(run, kind, *k))


for _name, _row, *_rest in (
    ("sn", "+ SN", Standardize),
    ("natsv-1", "+ NATSV (k=1)", NullTop, 1),
    ("natsv-10", "+ NATSV (k=10)", NullTop, 10),
    ("sn-natsv-1", "+ SN + NATSV (k=1)", StandardizeNullTop, 1),
    ("sn-natsv-6", "+ SN + NATSV (k=6)", StandardizeNullTop, 6),
):
    _calibration(_name, _row, *_rest)


@recipe(
    "li/base-mean-flow-target",
    row("T5", "BERT base-flow (target)", Spearman="STS-B"),
    needs=NEEDS,
    settings=(BERT, TARGET),
    differs=f"{DENSE}; {LESS}",
)
def mean_flow(run: Run) -> dict:
    """The flow of table 5: on the mean of the last layer, not on two layers."""
    return seven(run, by_cosine(flow_target(run, vectors(run, pooling=MEAN))))


EDITS = ((0, 4), (5, 9), (10, 14), (15, None))  # pairs of figure 2; the paper colours the first


def edits(run: Run, similarity: list[float]) -> dict[str, float]:
    """Correlate a similarity with the edit distance in words (table 6), and say where pairs of few
    edits stand in its order (figure 2).
    """
    dev = labelled("stsb/dev", run.data)
    distance = np.array(
        [edit_distance(a.split(), b.split()) for a, b in zip(dev.sentences, dev.sentences2)]
    )
    bias, place = edit_bias(similarity, distance), np.array(ranks(similarity)) / len(dev)
    found = {
        "vs edit distance": bias.all,
        "vs edit distance, at most 4 edits": bias.near,
        "pairs of at most 4 edits": float(bias.pairs),
    }
    for low, high in EDITS:
        inside = (distance >= low) & (distance <= (np.inf if high is None else high))
        found[f"mean place, {low} {'edits or more' if high is None else f'to {high} edits'}"] = (
            place[inside].mean() if inside.any() else math.nan
        )
    return {key: float(value) for key, value in found.items() if math.isfinite(value)}


SIX = {
    "distance": "of words, between blanks (section 4.4 has no unit; the printed figure of the grades fits words)",
    "set": "STS-B dev (table 6)",
    "place": "rank in the order of the similarity over the number of pairs, 1: most similar (figure 2 as numbers)",
}


@recipe("li/edits-gold", row("T6", "Gold similarity"), needs=("stsb/dev",), settings=SIX)
def edits_gold(run: Run) -> dict:
    grades = labelled("stsb/dev", run.data).labels
    return edits(run, grades) | {"vs gold": spearman(grades, grades)}


def _edits_of(run: Run, look: Callable) -> dict:
    near = cosines(look(run, vectors(run))("stsb"), labelled("stsb/dev", run.data))
    return edits(run, near) | {"vs gold": Answers("stsb/dev", "spearman", ranks(near))}


@recipe(
    "li/edits-bert", row("T6", "BERT- induced similarity"), needs=NEEDS[:3], settings=(BERT_2, SIX)
)
def edits_bert(run: Run) -> dict:
    return _edits_of(run, plain)


@recipe(
    "li/edits-flow-target",
    row("T6", "Flow- induced similarity"),
    needs=NEEDS[:3],
    settings=(BERT_2, TARGET, SIX),
    differs=DENSE,
)
def edits_flow(run: Run) -> dict:
    return _edits_of(run, flow_target)


def over_seeds(run: Run, pooling: str, look: Callable) -> dict[str, float]:
    """Fine-tune with every seed of the scale, and give mean, deviation and median of Spearman on
    STS-B test.
    """
    test, scores = labelled("stsb/test", run.data), []
    for seed in run.scale.seeds:
        one = replace(run, seed=seed, curve=[])
        scores.append(
            spearman(
                cosines(look(one, vectors(one, True, True, pooling))("stsb"), test), test.labels
            )
        )
    return {"mean": mean(scores), "sd": stdev(scores), "median": median(scores)}


for _suffix, _row, _kind in (
    ("", "", ""),
    ("-last2avg", "-last2avg", "-last2avg"),
    ("-flow-target", "-last2avg + flow-target", "-flow-target"),
):
    _, _pooling, _look, _settings, _differs = KINDS[_kind]
    recipe(
        f"li/large-seeds{_suffix}",
        row("T8", f"BERT-NLI-large{_row}"),
        needs=(*NEEDS[:3], *MNLI),
        settings=(_settings, SIAMESE),
        scales=scales(True),
        over_seeds=True,
        differs=joined(*_differs, SMALL, LESS),
    )(lambda run, pooling=_pooling, look=_look: over_seeds(run, pooling, look))


COUNTS = "wordfreq/enwiki-word-counts.txt"  # "word count" a line, most frequent first
BAND_NAMES = dict(zip(BANDS, ("rank (0,100)", "[100,500)", "[500,5K)", "[5K,1K) sic")))
KS = (3, 5, 7)


def crowding(run: Run, band: tuple[int, int]) -> dict[str, float]:
    """Measure the word vectors of a band of ranks. Raises ValueError if there is no frequency list."""
    if run.data is None:
        raise ValueError(f"expected {COUNTS} in a data folder, got none")
    if not (Path(run.data) / COUNTS).is_file():
        raise ValueError(
            f"{Path(run.data) / COUNTS}: expected a file, got none: {where_to_get('word counts')}"
        )
    if run.scale.name == "paper" and (wrong := not_as_published("word counts", run.data)):
        raise ValueError(wrong[0])
    encoder = run.base()
    ranked = rank_words(
        encoder.tokenizer.get_vocab(), run.read_text(COUNTS, read_lines(Path(run.data) / COUNTS))
    )
    found = frequency_table(
        encoder.model.embedding.word_embedding.weight.detach().cpu(), ranked, (band,), KS
    )
    return {
        key: value
        for b in found
        for key, value in (
            ("words", float(b.words)),
            ("Mean l2-norm", b.norm),
            *((f"Mean k-NN l2-dist. (k = {k})", b.distance[k]) for k in KS),
            *((f"Mean k-NN dot-product. (k = {k})", b.dot[k]) for k in KS),
        )
    }


def _band(band: tuple[int, int]):
    rows = (
        "Mean l2-norm",
        *(f"Mean k-NN {what} (k = {k})" for what in ("l2-dist.", "dot-product.") for k in KS),
    )
    recipe(
        f"li/words-{band[0]}",
        *(cell("T1", name, BAND_NAMES[band], name) for name in rows),
        needs=(),
        settings={
            "ranks": f"{band[0]} to {band[1]}" + (" (printed as 1K)" if band[1] == 10_000 else ""),
            "words": "whole words of the vocabulary, by their counts in Wikipedia (table 1)",
            "neighbours": "all pieces; for dot products those with the largest (the paper does not say)",
        },
        differs="a vocabulary of fewer words than ranks ends sooner",
    )(lambda run: crowding(run, band))


for _b in BANDS:
    _band(_b)

not_run(
    "li",
    "E2",
    "decomposition of the dot product into PMI, word and context terms (equations 2 and 3)",
    figures=False,
    why="an argument without a measurement: it would need the counts of words and contexts of BERT's own training text",
)
COPIED = "copied there from Reimers and Gurevych (2019): models of another kind"
not_run("li", "T2", "Avg. GloVe embeddings", why=COPIED)
not_run(
    "li", "T3", "InferSent- Glove", "USE", "SROBERTa base-NLI", "SROBERTa large-NLI", why=COPIED
)

# in print, tables 2 and 3
FALLS = {
    ("base-flow-nli", "STS-B"),
    ("base-flow-target", "SICK-R"),
    ("base-nli-flow-nli", "STS-12"),
}


def _against_two_layers(row: str, text: str, key: str) -> None:
    """Claim that a flow beats the mean of two layers, and say where the tables print a fall."""
    claim(
        f"{text}: {key}" + " (in print a fall)" * ((row, key) in FALLS),
        f"li/{row}",
        f"li/{row.partition('-flow')[0]}-last2avg",
        key,
    )


for _of, _text in (("base", ""), ("base-nli", ", after NLI")):
    for _key in SETS:
        claim(
            f"Two layers beat the last one{_text}: {_key}", f"li/{_of}-last2avg", f"li/{_of}", _key
        )
        _against_two_layers(
            f"{_of}-flow-target", f"The flow on the set's own text beats two layers{_text}", _key
        )
        _against_two_layers(
            f"{_of}-flow-nli", f"The flow on NLI text beats two layers{_text}", _key
        )
        if _key != "SICK-R":
            claim(
                f"The set's own text serves the flow better than NLI text{_text}: {_key}",
                f"li/{_of}-flow-target",
                f"li/{_of}-flow-nli",
                _key,
            )
    claim(
        f"NLI text serves the flow better{_text}: SICK-R",
        f"li/{_of}-flow-nli",
        f"li/{_of}-flow-target",
        "SICK-R",
    )
claim(
    "The flow on the set's own text beats two layers, mean of seven sets",
    "li/base-flow-target",
    "li/base-last2avg",
    "average",
    0.0588,
)
claim(
    "The flow on the set's own text beats two layers of the large model, mean of seven sets",
    "li/large-flow-target",
    "li/large-last2avg",
    "average",
    0.0816,
)
claim(
    "NLI text serves the flow better, large model: SICK-R",
    "li/large-flow-nli",
    "li/large-flow-target",
    "SICK-R",
)
for _size in ("base", "large"):
    claim(
        f"The flow finds answers better ({_size}, own text)",
        f"li/{_size}-qnli-flow-target",
        f"li/{_size}-qnli-last2avg",
        "AUC",
    )
    claim(
        f"The flow finds answers better ({_size}, NLI text)",
        f"li/{_size}-qnli-flow-nli",
        f"li/{_size}-qnli-last2avg",
        "AUC",
    )
    claim(
        f"QNLI's own text serves the flow better than NLI text ({_size})",
        f"li/{_size}-qnli-flow-target",
        f"li/{_size}-qnli-flow-nli",
        "AUC",
    )
claim("Standard normalization helps", "li/base-sn-target", "li/base", "STS-B")
claim(
    "Removing ten directions beats standard normalization",
    "li/base-natsv-10-target",
    "li/base-sn-target",
    "STS-B",
)
claim(
    "Both together beat removing directions",
    "li/base-sn-natsv-6-target",
    "li/base-natsv-10-target",
    "STS-B",
)
for _better in ("sn", "natsv-1", "natsv-10", "sn-natsv-1", "sn-natsv-6"):
    claim(
        f"The flow beats {_better.upper()}",
        "li/base-mean-flow-target",
        f"li/base-{_better}-target",
        "STS-B",
    )
claim(
    "BERT follows the edit distance more than people do",
    "li/edits-gold",
    "li/edits-bert",
    "vs edit distance",
)
claim(
    "The flow follows the edit distance less than BERT does",
    "li/edits-flow-target",
    "li/edits-bert",
    "vs edit distance",
)
claim(
    "The flow is less bound to the edit distance among pairs of few edits",
    "li/edits-flow-target",
    "li/edits-bert",
    "vs edit distance, at most 4 edits",
)
claim(
    "The flow moves nearly equal pairs down in the order",
    "li/edits-bert",
    "li/edits-flow-target",
    "mean place, 0 to 4 edits",
)
claim(
    "Rare words are longer than frequent ones", "li/words-5000", "li/words-0", "Mean l2-norm", 0.50
)
claim(
    "Rare words are farther from their neighbours",
    "li/words-5000",
    "li/words-0",
    "Mean k-NN l2-dist. (k = 3)",
    0.53,
)
claim(
    "Through NLI and seeds, the flow lifts the large model",
    "li/large-seeds-flow-target",
    "li/large-seeds-last2avg",
    "mean",
)
