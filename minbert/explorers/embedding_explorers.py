"""Interactive explorers of sentence embeddings: cosines of graded pairs, and anisotropy before and
after whitening or a flow.

Everything slow (encoding, fitting, turning) happens once, when an explorer is made; a control only
draws again. Transformations are fitted on other sentences than those that are drawn, because a
cloud whitened on itself is a perfect ball whatever the method does elsewhere.
"""

__all__ = [
    "pair_vectors",
    "grade_edges",
    "CosineExplorer",
    "other_captions",
    "AnisotropyExplorer",
    "Remembered",
]

from copy import deepcopy

import numpy as np
import torch
from torch import Tensor

from ..core.figures import as_array, panels
from ..core.finite_checks import check_finite
from ..data import Dataset, load_dataset
from ..encoding.dense_layers import apply_dense
from ..encoding.embedding_cache import Remembered
from ..metrics import as_vectors
from ..sentence import SentenceEncoder, safe_cosine
from ..sts import gold_labels
from ..whitening import Standardize, Whiten
from .base import Explorer, choice, pick, slider, span
from .base import text as line
from .figures import (
    Shape,
    band_rows,
    draw_anisotropy,
    draw_cosine_bands,
    grade_bands,
    measure,
    occupied,
    shape_table,
    turn,
)

_all_ = ["Remembered"]  # may be imported from here, too


def pair_vectors(
    source,  # encoder with .encode(list of str), or (u, v) of shape (N, D) each
    pairs: Dataset,  # N >= 3 graded pairs
    name: str = "vectors",  # what to call it in an error
    # (2N, D) float32, all first sentences, then all second; (U,) where each different one stands
    # first
) -> tuple[Tensor, Tensor]:
    """Get the vectors of all sentences of a dataset; an encoder reads each different sentence once.

    Raises ValueError for fewer than 3 pairs, missing labels or partners, vectors of another shape,
    or NaN.
    """
    if pairs.sentences2 is None or len(pairs) < 3:
        raise ValueError(
            f"expected at least 3 pairs of sentences, got {len(pairs)} of kind {pairs.kind}"
        )
    as_vectors(range(len(pairs)), gold_labels(pairs))  # refuses NaN
    texts = pairs.sentences + pairs.sentences2
    rows = {text: place for place, text in reversed([*enumerate(texts)])}  # the first place wins
    if _reads(source):
        x = Remembered(source).encode(texts)
    elif (
        isinstance(source, str)
        or not hasattr(source, "__len__")
        or len(source) != 2
        or len({*map(np.shape, source)}) != 1
    ):
        raise ValueError(
            f"expected an encoder, or u and v of equal shape, as {name}, got {type(source).__name__}"
        )
    else:
        x = torch.cat([torch.as_tensor(side) for side in source])
    if x.ndim != 2 or len(x) != len(texts):
        raise ValueError(
            f"expected {len(pairs)} pairs of vectors in {name}, got shape {tuple(x.shape)}"
        )
    return check_finite(x.detach().cpu().float(), name), torch.tensor(
        [*rows.values()]
    ).sort().values


def _reads(source):
    return hasattr(source, "encode") and not isinstance(source, str)


def _named(sources, pairs, most=9):
    """Put a lone source into a dict, refuse none or too many, and let encoders remember what they
    read.
    """
    if not isinstance(sources, dict):
        sources = {"vectors": sources}
    if not 1 <= len(sources) <= most:
        raise ValueError(f"expected 1 to {most} encoders, got {len(sources)}")
    sources = {
        name: Remembered(source) if _reads(source) else source for name, source in sources.items()
    }
    return sources, {name: pair_vectors(source, pairs, name) for name, source in sources.items()}


def grade_edges(
    pairs: Dataset,  # graded
) -> tuple[float, float, float, float]:  # lowest grade, 2/5 and 4/5 of the way, highest grade
    """Place two edges on a scale of grades: 2 and 4 on the scale from 0 to 5 of STS-B."""
    low, high = pairs.scale or (min(pairs.labels), max(pairs.labels))
    return low, low + 0.4 * (high - low), low + 0.8 * (high - low), high


class CosineExplorer(Explorer):
    """Compare up to three encoders by the cosines of graded pairs, and of two sentences of your
    own.

    Controls: the two edges of the bands, the smoothing, a pair to click, and (with encoders) two
    lines of text. Raises ValueError as `pair_vectors` does.
    """

    title = "Cosines by grade"

    def __init__(
        self,
        encoders,  # name -> encoder or (u, v), at most three; or one of them alone
        pairs: Dataset,  # graded pairs
        sentences=("A man is playing a guitar.", "Somebody plays an instrument."),  # to begin with
    ):
        sources, vectors = _named(encoders, pairs, most=3)
        self.cosines = {
            name: safe_cosine(*x.split(len(pairs))).numpy() for name, (x, _) in vectors.items()
        }
        self.grades, self.scale = np.array(pairs.labels, dtype=float), grade_edges(pairs)
        self.pairs, self.sentences, self._encoders = pairs, sentences, sources

    def cosine(
        self,
        first: str,  # a sentence
        second: str,  # another
    ) -> dict[str, float | None]:  # name -> cosine, or None if a line is empty
        """Compare two sentences under each encoder. Raises ValueError if one was given as vectors."""
        if not (first.strip() and second.strip()):
            return dict.fromkeys(self.cosines)
        if not all(_reads(source) for source in self._encoders.values()):
            raise ValueError("expected encoders, which can read text, got vectors")
        return {
            name: safe_cosine(*encoder.encode([first, second])).item()
            for name, encoder in self._encoders.items()
        }

    def nearest(
        self,
        place: tuple[int, float, float],  # panel, cosine, height
        edges: tuple[float, float],  # of the bands
    ) -> int:  # the pair whose dot lies there
        """Find the pair that somebody clicks."""
        panel, x, y = place
        cosine = [*self.cosines.values()][panel % len(self.cosines)]
        rows, depth = band_rows(self.grades, edges)
        # a ridge is about .15 of the axis high
        return int(np.argmin((cosine - x) ** 2 + 0.02 * (rows - depth - y) ** 2))

    def _controls(self):
        lowest, *edges, highest = self.scale
        made = [
            span(
                "edges",
                edges,
                lowest,
                highest,
                (highest - lowest) / 20,
                label="band edges",
                help="Grades from the right edge up are the high band, below the left edge the low one.",
            ),
            slider(
                "smoothing",
                0.03,
                0,
                0.2,
                0.01,
                help="Standard deviation of the bell curve in place of each cosine; at 0 the bars of a histogram.",
            ),
            pick("pair", label="Click a dot to read its pair, or move with the arrow keys"),
        ]
        if all(_reads(source) for source in self._encoders.values()):
            made += [
                line(
                    name,
                    sentence,
                    label=f"{name} sentence",
                    help="Compared with the other one under each encoder: the vertical line.",
                )
                for name, sentence in zip(("first", "second"), self.sentences)
            ]
        return made

    def _draw(self, edges, smoothing, pair, first="", second=""):
        marks = self.cosine(first, second)
        chosen = None if pair is None else self.nearest(pair, edges)
        axes = panels(len(self.cosines), (5.5 * len(self.cosines), 4.2))
        limits = occupied(*self.cosines.values(), *marks.values())
        for ax, (name, cosine) in zip(axes, self.cosines.items()):
            draw_cosine_bands(
                cosine, self.grades, edges, smoothing, marks[name], name, ax, limits, chosen
            )
        return axes[0].figure

    def _describe(self, edges, smoothing, pair, first="", second=""):
        told = (
            [f"Your two sentences: {_listed(self.cosine(first, second))}."]
            if first.strip() and second.strip()
            else []
        )
        if told:
            told += dict.fromkeys(
                note
                for encoder in self._encoders.values()
                for name, text in (("first", first), ("second", second))
                for note in _unread(encoder, name, text)
            )
        if pair is not None:
            row = self.nearest(pair, edges)
            cosines = {name: cosine[row] for name, cosine in self.cosines.items()}
            told.append(
                f"The ringed pair, grade {self.grades[row]:g}: “{self.pairs.sentences[row]}” and “{self.pairs.sentences2[row]}”: {_listed(cosines)}."
            )
        return (
            " ".join(told)
            or f"{len(self.grades)} pairs in three bands of grades, with edges {edges[0]:g} and {edges[1]:g}. Click a dot to read its pair."
        )


def _unread(encoder, name, text):
    """Say what a cosine cannot know of a sentence: pieces that its encoder does not know, and what
    lies beyond its longest.
    """
    while isinstance(encoder, Remembered):
        encoder = encoder.encoder
    if isinstance(encoder, SentenceEncoder):
        ids, unknown = encoder.tokenizer(text)["input_ids"], encoder.tokenizer.unk_token_id
        if unknown in ids:
            yield f"Of the {name} sentence {ids.count(unknown)} of {len(ids) - 2} pieces are unknown."
        if len(ids) > encoder.max_length:
            yield f"Of the {name} sentence only the first {encoder.max_length} tokens are read."


def _listed(cosines):
    return ", ".join(f"{name} {cosine:.2f}" for name, cosine in cosines.items())


def other_captions(
    pairs: Dataset,  # whose sentences are left out
    every: int = 15,  # which of the others to take; one in 15 makes about 600
) -> list[str]:  # different sentences
    """Pick captions to fit a map on: of `inference` train, without labels, none that stands in
    `pairs`.
    """
    captions, read = load_dataset("inference", "train"), {*pairs.sentences, *pairs.sentences2}
    return [
        text for text in dict.fromkeys(captions.sentences + captions.sentences2) if text not in read
    ][::every]


def _fit_vectors(sources, text, pairs):
    """Get for each source the vectors that its maps are fitted on; None if there are none."""
    if text is None:
        if not all(map(_reads, sources.values())):
            return dict.fromkeys(sources)  # who gives vectors has to give those of another text too
        text = other_captions(pairs)
    texts = text if isinstance(text, dict) else dict.fromkeys(sources, text)
    if texts.keys() != sources.keys():
        raise ValueError(
            f"expected a text for each of {', '.join(sources)}, got {', '.join(texts)}"
        )
    return {
        name: _text_vectors(source, texts[name], f"text of {name}")
        for name, source in sources.items()
    }


def _text_vectors(source, text, name):
    """Encode sentences; take vectors as they are."""
    if isinstance(text, str) or not hasattr(text, "__len__") or len(text) < 2:
        raise ValueError(f"expected at least 2 sentences or vectors as {name}, got {text!r}")
    if not isinstance(text[0], str):
        return check_finite(torch.as_tensor(text).detach().cpu().float(), name)
    if not _reads(source):
        raise ValueError(
            f"expected vectors (M, D) as {name}, since vectors cannot read, got sentences"
        )
    return check_finite(source.encode(list(text)), name)


class AnisotropyExplorer(Explorer):
    """Walk round a cloud of sentence vectors, remove its longest directions, and watch the numbers.

    Controls: encoder, state, directions removed, two angles, what the colours mean. An encoder with
    the name "untrained" is the control: its numbers, in the same state, stand beside those of every
    other. Raises ValueError as `pair_vectors` does, for a text of another form, or for a `top` that
    leaves fewer than three directions.
    """

    title = "The cloud of sentence vectors"

    def __init__(
        self,
        vectors,  # encoder or (u, v), or a dict of them by name
        pairs: Dataset,  # graded pairs
        # module: (2N, D) -> (z, ...) or z; with several encoders a dict of modules by name
        flow=None,
        # most directions that can be removed; None: 20, or what the width allows
        top: int | None = None,
        # to fit the states on: sentences, or vectors (M, D), or a dict of them by name;
        text=None,
        # None: `other_captions`, so that nothing is fitted on `pairs`; with
        # vectors, the state "plain" alone
    ):
        sources, vectors = _named(vectors, pairs)
        flows = (
            flow
            if isinstance(flow, dict) or flow is None
            else dict.fromkeys(list(sources)[:1], flow)
        )
        if flows is not None and flows.keys() != sources.keys():
            raise ValueError(
                f"expected a flow for each of {', '.join(sources)}, got {', '.join(flows)}"
            )
        text = _fit_vectors(sources, text, pairs)
        self.clouds = {
            (name, state): turn(z, rows)
            for name, (x, rows) in vectors.items()
            for state, z in _states(x, text[name], flows and flows[name]).items()
        }
        _, self.rows = next(iter(vectors.values()))
        room = min(len(self.rows), *(cloud.y.shape[1] for cloud in self.clouds.values())) - 3
        self.top = min(20, room) if top is None else top
        if not 0 <= self.top <= room:
            raise ValueError(
                f"expected 0 <= top <= {room}, so that three directions remain, got {self.top}"
            )
        self.sample = self.rows[
            torch.randperm(len(self.rows), generator=torch.Generator().manual_seed(0))[:1000]
        ]
        self.grades, self._measured = np.array(pairs.labels, dtype=float), {}
        self._colours = _colours(pairs, self.sample)

    def measure(
        self,
        encoder: str,
        state: str,  # "plain", "standardized", "whitened" or "flow"
        k: int = 0,  # directions removed
    ) -> Shape:
        """Describe one cloud; each is measured once."""
        if (encoder, state) not in self.clouds or not 0 <= k <= self.top:
            known = ", ".join(" ".join(key) for key in self.clouds)
            raise ValueError(
                f"expected one of {known} and k in [0, {self.top}], got {encoder} {state} and {k}"
            )
        key = encoder, state, k
        if key not in self._measured:
            self._measured[key] = measure(
                self.clouds[key[:2]], k, self.grades, self.rows, self.sample
            )
        return self._measured[key]

    def _controls(self):
        names, states = (list(dict.fromkeys(column)) for column in zip(*self.clouds))
        return [
            choice("encoder", names[0], names, help="Whose vectors are drawn."),
            choice(
                "state",
                "plain",
                states,
                help="What was done to the vectors; whatever was fitted was fitted on other sentences.",
            ),
            slider(
                "k",
                0,
                0,
                self.top,
                1,
                label="remove top k",
                help="How many of the longest directions are left out.",
            ),
            slider("azimuth", -60, -180, 180, 5, label="azimuth [°]", help="Walk round the cloud."),
            slider(
                "elevation",
                20,
                -90,
                90,
                5,
                label="elevation [°]",
                help="Look from above or from below.",
            ),
            choice(
                "colour",
                "length",
                self._colours,
                label="colours show",
                help="Words in the sentence, or the grade of the pair it stands in.",
            ),
        ]

    def _shapes(self, encoder, state, k):
        """Measure what is compared: what came first, this encoder as it is, the control in the same
        state, and what is drawn.
        """
        keys = [(next(iter(self.clouds))[0], "plain", 0), (encoder, "plain", 0)]
        keys += [("untrained", state, k)] * (("untrained", state) in self.clouds) + [
            (encoder, state, k)
        ]
        return {
            self._name(*key): self.measure(*key)
            for key in sorted(keys, key=(encoder, state, k).__eq__)
        }

    def _draw(self, encoder, state, k, azimuth, elevation, colour):
        shapes, now = self._shapes(encoder, state, k), (encoder, state, k)
        spectra = {
            self._name(*key): self.clouds[key[:2]].values[key[2] :]
            for key in ((next(iter(self.clouds))[0], "plain", 0), now)
        }
        points = self.clouds[encoder, state].y[self.sample, k : k + 3].numpy()
        groups = {
            label: points[mask] for label, mask in self._colours[colour].items() if mask.any()
        }
        return draw_anisotropy(
            groups, spectra, {self._name(*now): shapes[self._name(*now)]}, azimuth, elevation, k + 1
        )

    def _describe(self, encoder, state, k, azimuth, elevation, colour):
        return shape_table(self._shapes(encoder, state, k))

    def _name(self, encoder, state, k):
        several = len({name for name, _ in self.clouds}) > 1
        return (f"{encoder}, " if several else "") + state + (f", top {k} removed" if k else "")


def _states(x, text, flow):
    """Map all vectors by what is fitted on those of a text."""
    found = {"plain": x}
    for name, kind in (
        (("standardized", Standardize), ("whitened", Whiten)) if text is not None else ()
    ):
        found[name] = kind(x.shape[1]).double().fit(text.double())(x.double())
    if flow is not None:
        with torch.no_grad():
            # a copy: the argument keeps its mode
            z = apply_dense(x.to(next(flow.parameters(), x)), deepcopy(flow).eval())
        found["flow"] = check_finite(z.cpu(), "flow")
    return found


def _colours(pairs, sample):
    """Band the sampled sentences by their number of words, and by the grade of the pair they stand
    in.
    """
    texts, grades = pairs.sentences + pairs.sentences2, as_array(pairs.labels, 1, "grades")
    words = np.array([len(texts[row].split()) for row in sample.tolist()])
    low, high = np.quantile(words, [1 / 3, 2 / 3], method="nearest")
    short, long = words <= low, words > high
    return {
        "length": {f"to {low} words": short, f"to {high} words": ~(short | long), "longer": long},
        "grade": grade_bands(grades[sample % len(pairs)], grade_edges(pairs)[1:3]),
    }
