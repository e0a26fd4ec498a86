"""`minbert.explorers.embedding_explorers`: explorers without a browser: what a control changes, which numbers are
shown, what is refused.
"""

import base64
import gc
import io
import math
import weakref
from dataclasses import replace

import matplotlib.image
import matplotlib.pyplot as plt
import numpy as np
import pytest
import torch
from scipy.stats import spearmanr
from torch import nn
from torch.testing import assert_close

from minbert.core.figures import panel
from minbert.data import Dataset, load_dataset
from minbert.explorers.base import choice, pick, point, slider, span, switch, words
from minbert.explorers.base import text as line
from minbert.explorers.embedding_explorers import (
    AnisotropyExplorer,
    CosineExplorer,
    Explorer,
    Remembered,
    grade_edges,
    other_captions,
    pair_vectors,
)
from minbert.explorers.figures import turn
from minbert.geometry import isoscore, mean_cosine, uniformity
from minbert.metrics import spearman
from minbert.sentence import safe_cosine
from minbert.whitening import Standardize, Whiten

pytestmark = pytest.mark.usefixtures("nothing_left_open")

N, D = 60, 12
WORDS = "a man cat plays guitar the sleeps eats red green onion sings".split()


class Letters:
    """An encoder that anybody could have written: it adds up letters, and remembers what it read."""

    def __init__(self, width=D, shift=1.0):
        self.width, self.shift, self.seen = width, shift, []

    def encode(self, sentences):
        self.seen += sentences
        x = np.zeros((len(sentences), self.width), dtype=np.float32)
        for row, text in zip(x, sentences):
            row[0] = self.shift
            # later letters weigh less, so that no two sentences are alike
            for place, letter in enumerate(text):
                row[ord(letter) * 7 % self.width] += 1 / (3 + place)
        return x


def sentence(rng):
    return " ".join(rng.choice(WORDS, rng.integers(2, 9)))


@pytest.fixture(scope="module")
def pairs():
    rng = np.random.default_rng(0)
    first, second = [sentence(rng) for _ in range(N)], [sentence(rng) for _ in range(N)]
    first[7] = second[3] = first[0]  # repeats, within and across the sides
    return Dataset(
        "stsb", "dev", "similarity", first, second, list(rng.integers(0, 21, N) / 4), scale=(0, 5)
    )


@pytest.fixture(scope="module")
def text(pairs):
    """Sentences to fit on, none of those that are drawn."""
    rng, read = np.random.default_rng(1), {*pairs.sentences, *pairs.sentences2}
    return [text for text in (sentence(rng) for _ in range(90)) if text not in read]


def shown(explorer):
    return matplotlib.image.imread(io.BytesIO(explorer.png(**explorer.settings)))


def differs(explorer, name, value):
    before = shown(explorer)
    explorer.set(**{name: value})
    after = shown(explorer)
    return before.shape == after.shape and np.abs(before - after).max() > 0.1


MOVES = {
    "cosine": {
        "edges": (1.0, 3.0),
        "smoothing": 0.1,
        "first": "the cat sings",
        "second": "a man",
        "pair": (0, 0.9, 1.9),
    },
    "space": {
        "encoder": "b",
        "state": "whitened",
        "k": 2,
        "azimuth": 30,
        "elevation": -20,
        "colour": "grade",
    },
}


def make(kind, pairs):
    encoders = {"a": Letters(), "b": Letters(shift=9.0)}
    # fitted on other captions
    return (
        CosineExplorer(encoders, pairs) if kind == "cosine" else AnisotropyExplorer(encoders, pairs)
    )


@pytest.mark.parametrize("kind", ["cosine", "space"])
def test_every_control_changes_the_picture_and_back(kind, pairs):
    explorer = make(kind, pairs)
    assert set(explorer.controls) == set(MOVES[kind]) == set(explorer.defaults)
    assert explorer.settings == explorer.defaults
    if kind == "cosine":
        explorer.set(second="an onion")
    start = shown(explorer)
    was = explorer.settings
    for name, value in MOVES[kind].items():
        assert differs(explorer, name, value), name
        assert explorer.settings[name] == value
    explorer.set(**was)
    assert (shown(explorer) == start).all()


@pytest.mark.parametrize("kind", ["cosine", "space"])
def test_the_picture_with_controls_is_the_picture_without(kind, pairs):
    explorer = make(kind, pairs)
    content, picture = explorer.answer(MOVES[kind])
    assert picture == explorer.png(**MOVES[kind]) and content["text"] == explorer.describe(
        **MOVES[kind]
    )
    again = make(kind, pairs)
    # the same to the byte, from fresh arrays
    assert again.png() == explorer.png() != explorer.png(**MOVES[kind])


@pytest.mark.long
@pytest.mark.parametrize("kind", ["cosine", "space"])
def test_fifty_moves_leave_no_figure_and_nothing_in_the_state(kind, pairs):
    explorer = make(kind, pairs)
    name = {"cosine": "smoothing", "space": "azimuth"}[kind]
    for step in range(1, 26):  # of each explorer
        explorer.answer({name: step / 125 if kind == "cosine" else step})
        assert plt.get_fignums() == []
    state = {
        key: value
        for key, value in explorer.view.get_state().items()
        if key not in ("_esm", "_css")
    }
    assert len(repr(state)) < 6000  # names and values, no picture


def asked(explorer, **message):
    """Send what a page would send; give what it would hear."""
    heard = []
    explorer.view.send = lambda content, buffers=None: heard.append((content, buffers))
    explorer.view._handle_custom_msg(message, [])
    return heard


def test_long_work_goes_by_rounds_and_a_page_asks_for_them():
    class Slow(Explorer):
        done = 0

        def _controls(self):
            return [slider("x", 1, 0, 5, 1)]

        def _prepare(self, rounds, x):
            self.done = 3 if rounds is None else min(3, self.done + rounds)
            return self.done == 3

        def _draw(self, x):
            return panel("x", "y", f"{self.done} of 3")

        def _describe(self, x):
            return f"{self.done} of 3"

    slow = Slow()
    told = [
        asked(slow, number=n, values={"x": 2}, rounds=rounds)[0][0]
        for n, rounds in enumerate((0, 1, 1, 0, 1))
    ]
    assert [(content["text"], content["ready"]) for content in told] == [
        ("0 of 3", False),
        ("1 of 3", False),
        ("2 of 3", False),
        ("2 of 3", False),
        ("3 of 3", True),
    ]
    # who does not ask for rounds gets all of it
    assert Slow().describe() == "3 of 3" and Slow().answer({})[0]["ready"]
    assert Slow().png() == slow.png() != Slow().answer({}, rounds=0)[1]


def test_an_answer_waits_for_no_collection_and_leaves_all_as_it_was(pairs, monkeypatch):
    explorer, threads, seen, born = make("space", pairs), torch.get_num_threads(), [], []
    draw = type(explorer)._draw

    def watched(self, **settings):
        seen.append((gc.isenabled(), torch.get_num_threads()))
        drawn = draw(self, **settings)
        born.append(weakref.ref(getattr(drawn, "figure", drawn)))
        return drawn

    monkeypatch.setattr(type(explorer), "_draw", watched)
    for collects in (True, False):
        (gc.enable if collects else gc.disable)()
        try:
            torch.set_num_threads(2)
            asked(explorer, number=1, values={"k": 3})
            assert gc.isenabled() == collects and torch.get_num_threads() == 2
        finally:
            gc.enable()
            torch.set_num_threads(threads)
    assert seen == [(False, 1)] * 2
    assert born[0]() is None  # swept, though figures are circles


def test_a_page_asks_and_gets_the_picture(pairs):
    explorer = make("space", pairs)
    ((content, (picture,)),) = asked(
        explorer, number=7, values={**explorer.defaults, "k": 2}, narrow=False, ratio=1
    )
    assert content["number"] == 7 and picture == explorer.png(k=2) and explorer.settings["k"] == 2
    # two flat panels; the body is not flat
    assert [set(place) for place in content["places"]] == [{"box", "x", "y"}] * 2
    ((content, (picture,)),) = asked(explorer, number=8, values={**explorer.defaults, "k": 99})
    # the picture before stays
    assert "k in [0, 9]" in content["error"] and picture == b"" and explorer.settings["k"] == 2
    sizes = [
        matplotlib.image.imread(io.BytesIO(explorer.answer({}, narrow, ratio)[1])).shape
        for narrow, ratio in ((False, 1), (True, 1), (False, 2), (False, 9))
    ]
    assert (
        sizes[1][0] > sizes[1][1]
        and sizes[0][1] > sizes[0][0]
        and sizes[2][0] == sizes[3][0] == 2 * sizes[0][0]
    )


def test_a_clicked_dot_is_its_pair(pairs):
    explorer = make("cosine", pairs)
    ax = explorer.figure().axes[1]
    dots = np.asarray(ax.collections[-1].get_offsets())
    for row in (0, 5, N - 1):
        x, y = dots[row]
        assert explorer.nearest((1, x, y), explorer.defaults["edges"]) == row
        told = explorer.describe(pair=(1, x, y))
        assert all(
            part in told
            for part in (
                pairs.sentences[row],
                pairs.sentences2[row],
                f"grade {pairs.labels[row]:g}",
                f"b {x:.2f}",
            )
        )


def test_untrained_stands_beside_every_other(pairs):
    explorer = AnisotropyExplorer(
        {"a": Letters(), "b": Letters(shift=3.0), "untrained": Letters(shift=9.0)}, pairs
    )
    names = [
        row.split(":")[0]
        for row in explorer.describe(encoder="b", state="whitened", k=1).split("\n")
    ]
    assert names == [
        "a, plain",
        "b, plain",
        "untrained, whitened, top 1 removed",
        "b, whitened, top 1 removed",
    ]
    assert (
        f"Spearman {explorer.measure('untrained', 'whitened', 1).spearman:.3f}"
        in explorer.describe(encoder="b", state="whitened", k=1).split("\n")[2]
    )


def test_a_refused_setting_leaves_no_figure(pairs):
    cosines, space = make("cosine", pairs), make("space", pairs)
    for explorer, bad, message in [
        (cosines, {"edges": (4, 2)}, "low <= high"),
        (cosines, {"smoothing": -1}, r"smoothing in \[0, 0.2\]"),
        (cosines, {"colour": "grade"}, "settings among edges"),
        (space, {"k": 10}, r"k in \[0, 9\]"),
        (space, {"k": -1}, r"k in \[0, 9\]"),
        (space, {"state": "flow"}, "plain, standardized, whitened"),
        (space, {"encoder": "c"}, "among a, b"),
        (space, {"colour": "red"}, "length, grade"),
    ]:
        with pytest.raises(ValueError, match=message):
            explorer.figure(**bad)


@pytest.mark.parametrize("kind", ["cosine", "space"])
def test_it_shows_itself_with_and_without_a_kernel(kind, pairs):
    explorer = make(kind, pairs)
    bundle = explorer._repr_mimebundle_(include=None, exclude=None)
    assert bundle["application/vnd.jupyter.widget-view+json"] == {
        "version_major": 2,
        "version_minor": 0,
        "model_id": explorer.view.model_id,
    }
    assert base64.b64decode(bundle["image/png"]) == explorer.png()
    assert bundle["text/plain"] == f"{explorer.title}: {explorer.describe()}"
    assert explorer._repr_mimebundle_() == bundle  # shown twice: two views of one thing


def test_each_sentence_is_read_once_and_a_move_reads_nothing(pairs):
    encoder = Letters()
    explorer = CosineExplorer({"a": encoder}, pairs)
    assert sorted(encoder.seen) == sorted(set(pairs.sentences + pairs.sentences2))
    encoder.seen.clear()
    explorer.png(smoothing=0.1, first="a man", second="")
    assert encoder.seen == []  # the second line is still empty
    explorer.png(first="a man", second="the cat")
    assert encoder.seen == ["a man", "the cat"]
    explorer.png(first="a man", second="the cat", smoothing=0.2, edges=(1, 2))
    assert encoder.seen == ["a man", "the cat"]
    assert explorer.cosine("a man", "   ") == {"a": None} and encoder.seen == ["a man", "the cat"]


def test_the_cosine_explorer_shows_the_numbers_of_scipy(pairs):
    encoders = {"a": Letters(), "b": Letters(shift=9.0)}
    explorer, grades = CosineExplorer(encoders, pairs), np.array(pairs.labels)
    axes = explorer.figure(edges=(1.25, 3), smoothing=0.0, first="a man", second="the cat").axes
    for ax, (name, encoder) in zip(axes, encoders.items()):
        u, v = (encoder.encode(side).astype(float) for side in (pairs.sentences, pairs.sentences2))
        cosine = (u * v).sum(1) / np.linalg.norm(u, axis=1) / np.linalg.norm(v, axis=1)
        a, b = encoder.encode(["a man", "the cat"]).astype(float)
        mark = a @ b / np.linalg.norm(a) / np.linalg.norm(b)
        np.testing.assert_allclose(explorer.cosines[name], cosine, rtol=1e-5)
        assert (
            ax.get_title()
            == f"{name}: Spearman {spearmanr(cosine, grades)[0]:.3f}, mean cosine {cosine.mean():.2f}"
        )
        texts = [text.get_text().strip() for text in ax.texts]
        high = grades >= 3
        assert (
            texts[2]
            == f"grade ≥ 3: {high.sum()} pairs, mean {cosine[high].mean():.2f}, ρ {spearmanr(cosine[high], grades[high])[0]:.2f}"
        )
        assert (
            texts[3] == f"your pair: {mark:.2f}, above {100 * (cosine < mark).mean():.0f} % of all"
        )
        np.testing.assert_allclose(ax.lines[-1].get_xdata(), mark, rtol=1e-5)


@pytest.mark.parametrize("state", ["plain", "standardized", "whitened"])
@pytest.mark.parametrize("k", [0, 1, 4])
def test_the_anisotropy_explorer_shows_the_numbers_of_their_chapters(state, k, pairs, text):
    explorer = AnisotropyExplorer(Letters(), pairs, text=text)
    x, rows = pair_vectors(Letters(), pairs)
    x = x.double()
    if state != "plain":
        fitted = torch.from_numpy(Letters().encode(text)).double()
        x = {"standardized": Standardize, "whitened": Whiten}[state](D).double().fit(fitted)(x)
    V = np.linalg.svd(x[rows].numpy())[2][:k]
    left = torch.from_numpy(x.numpy() @ (np.eye(D) - V.T @ V))
    other = explorer.measure("vectors", state, 6)  # what is remembered must not get in the way
    assert other != explorer.measure("vectors", state, k)
    expected = [
        spearman(safe_cosine(left[:N], left[N:]), pairs.labels),
        mean_cosine(left[rows]),
        uniformity(left[rows]),
        isoscore(left[rows]),
    ]
    np.testing.assert_allclose(
        explorer.measure("vectors", state, k), expected, rtol=1e-3, atol=1e-4
    )
    table = explorer.describe(state=state, k=k).split("\n")
    assert [part.split()[-1] for part in table[-1].split(", ")[-4:]] == [
        f"{round(number, 3) + 0:.3f}" for number in explorer.measure("vectors", state, k)
    ]
    assert len(table) == (1 if (state, k) == ("plain", 0) else 2)
    if k:
        assert f"top {k} removed" in table[-1]


def test_whitened_on_what_is_drawn_no_direction_is_longer(pairs):
    explorer = AnisotropyExplorer(
        Letters(), pairs, text=list(dict.fromkeys(pairs.sentences + pairs.sentences2))
    )
    x, rows = pair_vectors(Letters(), pairs)
    x = Whiten(D).double().fit(x[rows].double())(x.double())
    values = explorer.clouds["vectors", "whitened"].values
    filled = np.linalg.matrix_rank(x[rows].numpy(), tol=0.1)
    assert_close(
        values[:filled], torch.full((filled,), len(rows) ** 0.5).double(), rtol=1e-4, atol=0
    )
    assert filled > 6 and values[filled:].max() < 0.1  # letters that no word has
    for k in (0, 3):  # equal directions keep their order
        assert explorer.measure("vectors", "whitened", k).spearman == pytest.approx(
            spearman(safe_cosine(x[:N, k:], x[N:, k:]), pairs.labels), abs=1e-4
        )


def test_nothing_is_fitted_on_what_is_drawn(pairs):
    """Without `text`, the maps read captions of which none stands in the pairs: those of any pairs."""
    captions = load_dataset("inference", "train").sentences
    mixed = replace(pairs, sentences=captions[:N], sentences2=captions[N : 2 * N])
    for data in (pairs, mixed):
        found, drawn = other_captions(data), {*data.sentences, *data.sentences2}
        assert 500 < len(found) == len({*found}) and not {*found} & drawn
        encoder = Letters()
        explorer = AnisotropyExplorer(encoder, data)
        assert sorted(encoder.seen) == sorted([*drawn, *found])  # each once
        x, fitted = (
            torch.as_tensor(Letters().encode(side)).double()
            for side in (data.sentences + data.sentences2, found)
        )
        for state, kind in (("standardized", Standardize), ("whitened", Whiten)):
            z = kind(D).double().fit(fitted)(x)
            assert explorer.measure("vectors", state).spearman == pytest.approx(
                spearman(safe_cosine(z[:N], z[N:]), data.labels), abs=1e-4
            )
    assert not {*other_captions(mixed, every=1)} & {*captions[: 2 * N]}


def test_text_may_be_vectors_and_differ_by_encoder(pairs, text):
    u, v, t = (
        torch.from_numpy(Letters().encode(side))
        for side in (pairs.sentences, pairs.sentences2, text)
    )
    expected = AnisotropyExplorer(Letters(), pairs, text=text).measure("vectors", "whitened")
    for source, given in (
        ((u, v), t),
        ((u, v), t.numpy()),
        ((u, v), t.tolist()),
        (Letters(), t),
        (Letters(), tuple(text)),
    ):
        assert AnisotropyExplorer(source, pairs, text=given).measure(
            "vectors", "whitened"
        ) == pytest.approx(expected, abs=1e-4)
    both = AnisotropyExplorer(
        {"a": (u, v), "b": Letters(shift=9.0)}, pairs, text={"a": t, "b": text[:40]}
    )
    assert (
        both.measure("a", "whitened")
        == pytest.approx(expected, abs=1e-4)
        != both.measure("b", "whitened")
    )
    assert both.measure("b", "whitened") == AnisotropyExplorer(
        Letters(shift=9.0), pairs, text=text[:40]
    ).measure("vectors", "whitened")
    assert {
        state for _, state in AnisotropyExplorer({"a": (u, v), "b": Letters()}, pairs).clouds
    } == {"plain"}
    # nothing to fit on, nothing fitted
    assert AnisotropyExplorer((u, v), pairs).controls["state"].bounds["choices"] == ["plain"]


def test_a_text_of_another_form_is_refused(pairs, text):
    u, v, t = (
        torch.from_numpy(Letters().encode(side))
        for side in (pairs.sentences, pairs.sentences2, text)
    )
    for source, bad, message in [
        ((u, v), text, "text of vectors, since vectors cannot read"),
        (Letters(), "a cat", "2 sentences or vectors as text of vectors, got 'a cat'"),
        (Letters(), [], "at least 2 sentences"),
        (Letters(), ["a cat"], "at least 2 sentences"),
        (Letters(), 7, "at least 2"),
        ((u, v), t[:, 1:], "width 12"),
        ((u, v), t * math.nan, "finite numbers in text of vectors"),
        ((u, v), torch.ones(5, D), "differ"),
        (Letters(), {"a": text}, "a text for each of vectors, got a"),
    ]:
        with pytest.raises(ValueError, match=message):
            AnisotropyExplorer(source, pairs, text=bad)


def test_what_is_remembered_is_not_read_again():
    encoder = Letters()
    memory = Remembered(encoder)
    for asked in (["a cat", "a man", "a cat"], ["a man"], ["red", "a cat"]):
        np.testing.assert_allclose(memory.encode(asked), Letters().encode(asked))
    assert encoder.seen == ["a cat", "a man", "red"] == list(memory.known)
    encoder.encode = lambda sentences: np.ones((1, D))
    with pytest.raises(ValueError, match=r"expected 2 vectors of 2 sentences, got shape \(1, 12\)"):
        memory.encode(["onion", "green", "red"])
    assert list(memory.known) == ["a cat", "a man", "red"]  # a refusal leaves nothing behind


def test_the_first_encoder_is_what_the_others_are_compared_with(pairs):
    explorer = make("space", pairs)

    def rows(**settings):
        return [row.split(":")[0] for row in explorer.describe(**settings).split("\n")]

    assert rows() == ["a, plain"] and rows(encoder="b") == ["a, plain", "b, plain"]
    assert rows(state="whitened") == ["a, plain", "a, whitened"]
    assert rows(encoder="b", state="whitened", k=2) == [
        "a, plain",
        "b, plain",
        "b, whitened, top 2 removed",
    ]
    decay = explorer.figure(encoder="b", state="whitened", k=2).axes[1]
    assert [text.get_text() for text in decay.get_legend().get_texts()] == [
        "a, plain",
        "b, whitened, top 2 removed",
    ]
    for curve, (name, state, k) in zip(decay.lines, (("a", "plain", 0), ("b", "whitened", 2))):
        values = explorer.clouds[name, state].values[k:]
        np.testing.assert_allclose(
            np.nan_to_num(curve.get_ydata()), values / values[0], rtol=1e-4, atol=1e-9
        )


def test_the_cloud_that_is_drawn_is_the_one_that_is_left(pairs):
    explorer = AnisotropyExplorer(Letters(), pairs)
    x, rows = pair_vectors(Letters(), pairs)
    y = turn(x, rows).y[explorer.sample]
    flat, decay, body = explorer.figure(k=2).axes
    drawn = np.concatenate([scatter.get_offsets() for scatter in flat.collections])
    assert len(drawn) == len(rows)
    np.testing.assert_allclose(
        sorted(drawn.tolist()), sorted(y[:, 2:4].tolist()), rtol=1e-5, atol=1e-5
    )
    assert flat.get_xlabel() == "direction 3" and body.get_zlabel() == "direction 5"
    S = np.linalg.svd(x[rows].double().numpy(), compute_uv=False)
    np.testing.assert_allclose(
        np.nan_to_num(decay.lines[1].get_ydata()), S[2:] / S[2], rtol=1e-4, atol=1e-9
    )


def test_colours_mean_what_they_say(pairs):
    explorer = AnisotropyExplorer(Letters(), pairs)
    texts, y = pairs.sentences + pairs.sentences2, explorer.clouds["vectors", "plain"].y
    grade = {}
    for text, g in zip(texts, pairs.labels * 2):
        grade.setdefault(text, g)
    words = {row: len(texts[row].split()) for row in explorer.sample.tolist()}
    for colour, value in (("grade", lambda row: grade[texts[row]]), ("length", words.get)):
        flat = explorer.figure(colour=colour).axes[0]
        seen = 0
        for scatter in flat.collections:
            points, label = scatter.get_offsets(), scatter.get_label()
            members = [
                row
                for row in words
                if np.isclose(np.asarray(points), y[row, :2], atol=1e-6).all(1).any()
            ]
            values = [value(row) for row in members]
            seen += len(points)
            if label.startswith("grade ≥"):
                assert min(values) >= 4
            elif label.startswith("grade <"):
                assert max(values) < 2
            elif colour == "grade":
                assert min(values) >= 2 and max(values) < 4
            elif label.startswith("to"):
                assert max(values) == int(label.split()[1])
            else:
                assert min(values) > int(flat.collections[1].get_label().split()[1])
        assert seen == len(words)


def test_given_vectors_are_as_good_as_an_encoder(pairs):
    u, v = (
        torch.from_numpy(Letters().encode(side)) for side in (pairs.sentences, pairs.sentences2)
    )
    forms = [
        (u, v),
        [u.numpy(), v.numpy()],
        torch.stack([u, v]),
        np.stack([u, v]),
        (u.double().requires_grad_(), v),
        (u.tolist(), v.tolist()),
    ]
    for form in forms:
        x, rows = pair_vectors(form, pairs)
        assert x.dtype == torch.float32 and not x.requires_grad
        assert_close(x, torch.cat([u, v]))
        assert_close(rows, pair_vectors(Letters(), pairs)[1])
    by_vectors = CosineExplorer({"a": (u, v)}, pairs)
    by_encoder = CosineExplorer({"a": Letters()}, pairs)
    assert list(by_vectors.controls) == [
        "edges",
        "smoothing",
        "pair",
    ] and by_vectors.png() == by_encoder.png(first="")
    assert list(CosineExplorer({"a": (u, v), "b": Letters()}, pairs).controls) == [
        "edges",
        "smoothing",
        "pair",
    ]
    assert AnisotropyExplorer((u, v), pairs).png() == AnisotropyExplorer(Letters(), pairs).png()


class Flow(nn.Module):
    def __init__(self, tupled):
        super().__init__()
        self.tupled, self.scale = tupled, nn.Parameter(torch.linspace(1, 3, D).double())

    def forward(self, x):
        assert not self.training and not torch.is_grad_enabled()
        z = (x * self.scale).sinh()
        return (z, self.scale.log().sum().expand(len(x))) if self.tupled else z


@pytest.mark.parametrize("tupled", [True, False])
def test_a_flow_is_one_more_state(tupled, pairs, text):
    flow = Flow(tupled).train()
    u, v = (
        torch.from_numpy(Letters().encode(side)) / 5 for side in (pairs.sentences, pairs.sentences2)
    )
    explorer = AnisotropyExplorer((u, v), pairs, flow=flow, text=Letters().encode(text) / 5)
    assert flow.training and explorer.controls["state"].bounds["choices"] == [
        "plain",
        "standardized",
        "whitened",
        "flow",
    ]
    z = [(side.double() * torch.linspace(1, 3, D).double()).sinh() for side in (u, v)]
    assert explorer.measure("vectors", "flow").spearman == pytest.approx(
        spearman(safe_cosine(*z), pairs.labels), abs=1e-4
    )
    assert differs(explorer, "state", "flow")
    both = AnisotropyExplorer({"a": (u, v), "b": (v, u)}, pairs, flow={"a": flow, "b": Flow(False)})
    assert ("b", "flow") in both.clouds
    with pytest.raises(ValueError, match="a flow for each of a, b"):
        AnisotropyExplorer({"a": (u, v), "b": (v, u)}, pairs, flow=flow)
    flow.scale.data[3] = math.nan
    with pytest.raises(ValueError, match="flow"):
        AnisotropyExplorer((u, v), pairs, flow=flow)


def test_how_many_directions_can_go(pairs):
    assert (
        AnisotropyExplorer(Letters(30), pairs).top == 20
        and AnisotropyExplorer(Letters(), pairs).top == D - 3
    )
    assert AnisotropyExplorer(Letters(), pairs, top=4).controls["k"].bounds["high"] == 4
    few = AnisotropyExplorer(Letters(30), pairs.subset([1, 2, 3]))
    assert few.top == 3
    few.figure(k=3)
    for top in (D - 2, -1):
        with pytest.raises(ValueError, match="0 <= top <= 9"):
            AnisotropyExplorer(Letters(), pairs, top=top)
    with pytest.raises(ValueError, match="three directions"):
        AnisotropyExplorer(Letters(2), pairs)


def test_the_sample_is_fixed_and_each_sentence_is_in_it_once(pairs):
    rng = np.random.default_rng(0)
    many = Dataset(
        "x",
        "dev",
        "similarity",
        [f"{sentence(rng)} {i}" for i in range(600)],
        [f"{sentence(rng)} {i}." for i in range(600)],
        list(rng.uniform(0, 5, 600)),
    )
    one, two = AnisotropyExplorer(Letters(), many), AnisotropyExplorer(Letters(), many)
    assert len(set(one.sample.tolist())) == 1000 and torch.equal(one.sample, two.sample)
    assert one.measure("vectors", "plain", 1).uniformity == pytest.approx(
        uniformity(one.clouds["vectors", "plain"].y[one.sample, 1:])
    )


def test_edges_follow_the_scale(pairs):
    assert grade_edges(pairs) == (0, 2, 4, 5)
    assert grade_edges(replace(pairs, scale=(1, 5))) == pytest.approx((1, 2.6, 4.2, 5))
    bare = replace(pairs, scale=None, labels=[x / 10 for x in pairs.labels])
    low, high = min(bare.labels), max(bare.labels)
    assert grade_edges(bare) == pytest.approx(
        (low, low + 0.4 * (high - low), low + 0.8 * (high - low), high)
    )
    slider = CosineExplorer(Letters(), bare).controls["edges"]
    assert (slider.bounds["low"], slider.bounds["high"]) == (low, high)


def test_bad_input_is_refused(pairs):
    u, v = (
        torch.from_numpy(Letters().encode(side)) for side in (pairs.sentences, pairs.sentences2)
    )
    hole = u.clone()
    hole[3, 2] = math.nan
    for kind in (CosineExplorer, AnisotropyExplorer):
        for source, message in [
            ((u, v[:, 1:]), "equal shape"),
            ((u, v[1:]), "equal shape"),
            ((u[1:], v[1:]), f"{N} pairs of vectors"),
            ((hole, v), "finite numbers in vectors"),
            ("minilm", "an encoder"),
            ((u, v, u), "an encoder"),
            ((u[:, 0], v[:, 0]), "pairs of vectors"),
            ({}, "1 to"),
            (7, "an encoder"),
            ({"a": (hole, v)}, "in a,"),
        ]:
            with pytest.raises(ValueError, match=message):
                kind(source, pairs)
        for bad, message in [
            (pairs.subset([0, 1]), "at least 3 pairs"),
            (replace(pairs, labels=None), "labels"),
            (replace(pairs, labels=[math.nan] * N), "finite labels"),
            (replace(pairs, sentences2=None), "pairs of sentences"),
        ]:
            with pytest.raises(ValueError, match=message):
                kind(Letters(), bad)
    with pytest.raises(ValueError, match="1 to 3 encoders"):
        CosineExplorer(dict.fromkeys("abcd", (u, v)), pairs)
    short = Letters()
    short.encode = lambda sentences: np.ones((2, D))
    with pytest.raises(ValueError, match=r"vectors of \d+ sentences, got shape \(2, 12\)"):
        CosineExplorer(short, pairs)


def test_equal_grades_are_shown_as_unknown(pairs, recwarn):
    flat = replace(pairs, labels=[3.0] * N)
    for explorer in (CosineExplorer(Letters(), flat), AnisotropyExplorer(Letters(), flat)):
        assert any("nan" in ax.get_title() for ax in explorer.figure().axes)
    assert not [w for w in recwarn if issubclass(w.category, RuntimeWarning)]


def test_the_embedded_sample_and_the_embedded_model():
    from minbert.sentence import SentenceEncoder

    encoder = SentenceEncoder.from_pretrained(device="cpu")
    dev = load_dataset("stsb", "dev").subset(range(80))
    u, v = (encoder.encode(side) for side in (dev.sentences, dev.sentences2))
    space = AnisotropyExplorer(encoder, dev)
    assert space.measure("vectors", "plain").spearman == pytest.approx(
        spearman(safe_cosine(u, v), dev.labels), abs=1e-6
    )
    cosines = CosineExplorer(encoder, dev)
    assert cosines.cosine("A cat.", "A cat.")["vectors"] == pytest.approx(1)
    # what the cosine does not know
    told = CosineExplorer(
        SentenceEncoder(encoder.model, encoder.tokenizer, max_length=16), dev
    ).describe(first="你好世界", second="a cat " * 8)
    assert (
        "Of the first sentence 4 of 4 pieces are unknown." in told
        and "Of the second sentence only the first 16 tokens are read." in told
    )
    assert "Of the" not in cosines.describe(first="A cat.", second="A dog.")


def test_axes_are_a_picture_too_and_vectors_cannot_read(pairs):
    class Line(Explorer):
        def _controls(self):
            return [slider("x", 1.0, 0, 2, 0.1)]

        def _draw(self, x):
            return plt.subplots()[1]

    assert Line().png()[:4] == b"\x89PNG"
    u, v = (
        torch.from_numpy(Letters().encode(side)) for side in (pairs.sentences, pairs.sentences2)
    )
    explorer = CosineExplorer((u, v), pairs)
    assert explorer.cosine("", "a") == dict.fromkeys(explorer.cosines)
    with pytest.raises(ValueError, match="encoders, which can read text, got vectors"):
        explorer.cosine("a cat", "a man")


def test_an_explorer_of_ones_own():
    class Dot(Explorer):
        def _controls(self):
            return [slider("x", 0.0, -1, 1, 0.1)]

        def _draw(self, x):
            figure, ax = plt.subplots()
            ax.plot([x], [1], "o")
            ax.set(xlim=(-1, 1), yscale="log", ylim=(0.01, 100), title="$5 and $6")
            return figure

    assert differs(Dot(), "x", 0.5)
    # no words are read as formulas, and so no number is written as one
    axes = Dot().figure().axes[0]
    assert not axes.title.get_parse_math() and [
        axes.yaxis.get_major_formatter()(power) for power in (0.01, 100)
    ] == [".01", "100"]


def test_each_kind_of_control_refuses_what_it_cannot_be_moved_to():
    made = [
        slider("k", 1, 0, 5, 1),
        slider("t", 0.5, 0, 1, 0.1),
        span("edges", (1, 2), 0, 5, 0.5),
        choice("state", "plain", ["plain", "flow"]),
        line("first", "a cat"),
        switch("on"),
        point("query", (0, 0), low=(-2, -1), high=(2, 1)),
        pick("pair"),
    ]
    controls = {control.name: control for control in made}
    for name, good, kept in [
        ("k", 3.0, 3),
        ("t", 1, 1),
        ("edges", [0, 5], (0, 5)),
        ("state", "flow", "flow"),
        ("first", "x" * 900, "x" * 500),
        ("on", True, True),
        ("query", [2, -1], (2.0, -1.0)),
        ("pair", [0, 1, 2], (0, 1.0, 2.0)),
        ("pair", None, None),
    ]:
        assert controls[name].checked(good) == kept and isinstance(
            controls[name].checked(good), type(kept)
        )
    for name, bad, message in [
        ("k", 6, r"k in \[0, 5\]"),
        ("k", "2", "k in"),
        ("k", True, "k in"),
        ("k", math.nan, "k in"),
        ("edges", [3, 1], "low <= high"),
        ("edges", [0, 9], "edges in"),
        ("state", "white", "among plain, flow"),
        ("first", 3, "line of text"),
        ("on", 1, "True or False"),
        ("query", [3, 0], "between"),
        ("pair", [0, 1], "3 numbers as pair"),
    ]:
        with pytest.raises(ValueError, match=message):
            controls[name].checked(bad)


@pytest.mark.parametrize(
    "kind, value",
    [
        (span("a", (1, 2), 0, 5, 1), 3),
        (span("a", (1, 2), 0, 5, 1), [1, 2, 3]),
        (span("a", (1, 2), 0, 5, 1), None),
        (point("a", (0, 0)), 5),
        (pick("a"), (0, math.nan, 0.0)),
        (pick("a"), "abc"),
        (words("a"), 7),
    ],
)
def test_a_value_of_another_shape_is_refused_by_name(kind, value):
    with pytest.raises(ValueError, match="as a, got"):
        kind.checked(value)
