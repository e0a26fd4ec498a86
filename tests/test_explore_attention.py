"""`explorers/attention`: the attention weights drawn are those of the chapter and of the model, and each control
does what it says.
"""

import math

import numpy as np
import pytest
import torch
from torch.testing import assert_close

from minbert.attention import MASK_VALUE, attention_maps
from minbert.encoder import BertConfig, BertModel
from minbert.explorers.attention import (
    KEYS,
    LONGEST,
    AttentionExplorer,
    hand_weights,
    read_sentence,
)

pytestmark = pytest.mark.usefixtures("nothing_left_open")

MOVES = {
    "by hand": {"hide": (1,), "factor": 3.0, "mask": 0.5, "query": (0.0, 2.0), "key": (-0.5, 0.5)},
    "a sentence": {
        "sentence": "The bank raised its rates.",
        "hide": (2,),
        "layer": 2,
        "head": 3,
        "factor": 0.5,
        "mask": 0.5,
    },
}
OTHERS = {name: value for moves in MOVES.values() for name, value in moves.items()}


@pytest.fixture(scope="module")
def explorer():
    return AttentionExplorer()


@pytest.mark.parametrize("view", MOVES)
def test_every_control_that_counts_changes_picture_and_words_and_the_others_do_not(explorer, view):
    start = {"view": view, "hide": (0,)}  # something is hidden, so that the mask constant counts
    before, told = explorer.png(**start), explorer.describe(**start)
    idle = set(explorer.answer(start)[0]["idle"])
    assert idle == explorer.controls.keys() - MOVES[view].keys() - {"view"}
    for name in explorer.controls.keys() - {"view"}:
        same = (
            explorer.png(**start | {name: OTHERS[name]}) == before,
            explorer.describe(**start | {name: OTHERS[name]}) == told,
        )
        assert same == (name in idle,) * 2, name
    assert explorer.png(**start) == before


def test_the_plane_is_attention_of_the_chapter():
    rng = np.random.default_rng(0)
    for hidden in ([False] * 3, [True, False, False]):
        query, keys = rng.normal(size=2), rng.normal(size=(3, 2))
        mask = torch.tensor([[not gone for gone in hidden]])
        expected = attention_maps(
            torch.from_numpy(query)[None, None, None], torch.from_numpy(keys)[None, None], mask
        )[0, 0, 0]
        np.testing.assert_allclose(
            hand_weights(query, keys, np.array(hidden), 1.0, MASK_VALUE)[1], expected, atol=1e-12
        )
    # on paper
    scores, weights = hand_weights(
        np.array([math.sqrt(2) * math.log(3), 0]),
        np.array([[1.0, 0], [0, 0]]),
        np.array([False, False]),
    )
    np.testing.assert_allclose(scores, [math.log(3), 0])
    np.testing.assert_allclose(weights, [0.75, 0.25])
    assert hand_weights(query, keys, np.array(hidden), 0.0)[1].tolist() == [0, 0.5, 0.5]


def test_what_is_said_of_the_plane(explorer):
    told = explorer.describe(hide=(0,))
    keys = torch.tensor([*KEYS.values()], dtype=torch.float64)[1:]
    weights = (keys @ torch.ones(2, dtype=torch.float64) / math.sqrt(2)).softmax(0)
    assert f"river 0.00 (hidden), money {weights[0]:.2f}, bank {weights[1]:.2f}" in told
    assert explorer.answer({"hide": (0,)})[0]["words"] == {"hide": ["river", "money", "bank"]}


@pytest.mark.parametrize("own", [False, True])
def test_the_maps_and_vectors_are_those_of_the_model(own):
    torch.manual_seed(0)
    model = (
        BertModel(BertConfig(60, 24, 3, 2, 48, initializer_range=0.3)).eval()
        if own
        else BertModel.from_pretrained()
    )
    ids = torch.tensor([2, 17, 33, 51, 8, 3])
    hidden = torch.tensor([False, False, True, False, True, False])
    for gone in (torch.zeros_like(hidden), hidden):
        maps, last = read_sentence(model, ids, gone)
        with torch.no_grad():
            out = model(ids[None], (~gone).long()[None], output_hidden_states=True)
            expected = [
                layer.self_attention.maps(h, ~gone[None])[0]
                for layer, h in zip(model.bert_layers, out.hidden_states)
            ]
        assert_close(last, out.last_hidden_state[0], atol=2e-4, rtol=1e-3)
        assert_close(maps, torch.stack(expected), atol=2e-4, rtol=1e-3)
    even, _ = read_sentence(model, ids, hidden, factor=0.0)
    assert_close(even[0], (~hidden).float().expand_as(even[0]) / 4)
    weak = read_sentence(model, ids, hidden, constant=-1.0)[0][0]
    strong = read_sentence(model, ids, hidden)[0][0]
    assert (weak[..., hidden] > 0).all() and (strong[..., hidden] == 0).all()


def test_what_is_said_of_a_sentence(explorer):
    sentence = explorer.sentence
    assert explorer.pieces(sentence)[:4] == ["[CLS]", "the", "river", "rose"]
    assert "Nothing is hidden, and nothing changed." in explorer.describe(view="a sentence")
    assert explorer.moved(sentence).max() < 1e-12
    told, moved = explorer.describe(view="a sentence", hide=(2,)), explorer.moved(sentence, (2,))
    furthest = int(moved.argmax())
    assert (
        f"Hidden: river. Changed most: {explorer.pieces(sentence)[furthest]} {moved[furthest]:.3f}"
        in told
    )
    ids = torch.tensor([explorer.tokenizer(sentence)["input_ids"]])
    with torch.no_grad():
        before, after = (
            explorer.model(ids, mask).last_hidden_state[0]
            for mask in (None, torch.tensor([[place != 2 for place in range(ids.shape[1])]]))
        )
    np.testing.assert_allclose(moved, 1 - torch.cosine_similarity(before, after, dim=-1), atol=1e-5)
    content, _ = explorer.answer({"view": "a sentence", "layer": 2, "head": 3})
    T = len(explorer.pieces(sentence))
    assert (
        content["words"] == {"hide": explorer.pieces(sentence)}
        and len(content["spots"]) == T * T + T
    )
    weight = explorer.reading(sentence).maps[1, 2, 3, 2]
    assert [0, 1.5, 2.5, 2.5, 3.5, f"query rose, key river: {weight:.3f}"] in content["spots"]


def test_a_model_of_your_own_is_copied_and_has_the_sliders_that_fit():
    torch.manual_seed(0)
    # in training mode, with dropout
    model = BertModel(BertConfig(8000, 24, 1, 3, 48, max_position_embeddings=10))
    own = AttentionExplorer(model, view="a sentence")
    assert "layer" not in own.controls and own.controls["head"].bounds["high"] == 3
    assert own.png() == AttentionExplorer(model, view="a sentence").png() != own.png(head=2)
    assert model.training and not own.model.training
    before = own.png()
    with torch.no_grad():
        model.embedding.word_embedding.weight.zero_()
    assert own.png(head=2) != before == own.png()
    assert (
        len(own.pieces("word " * 50)) == 10
        and len(AttentionExplorer().pieces("word " * 50)) == LONGEST
    )


def test_what_is_refused_and_what_is_not(explorer):
    with pytest.raises(ValueError, match="at most 60 pieces"):
        AttentionExplorer(BertModel(BertConfig(60, 24, 1, 2, 48)))
    for bad, message in [
        ({"hide": (-1,)}, "places of words"),
        ({"hide": "river"}, "a list as hide"),
        ({"factor": 9.0}, r"in \[0, 8\]"),
        ({"layer": 5}, r"in \[1, 4\]"),
        ({"query": (4, 0)}, "between"),
        ({"view": "a map"}, "among by hand"),
    ]:
        with pytest.raises(ValueError, match=message):
            explorer.figure(**bad)
    for sentence in ("", "   ", "word " * 400):
        assert (
            "error"
            not in explorer.answer({"view": "a sentence", "sentence": sentence, "hide": [0, 63]})[0]
        )
