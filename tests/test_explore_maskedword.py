"""`explorers/masked_word`: the guesses are those of the models, the gaps those that were pressed."""

import shutil

import pytest
import torch

from minbert.encoder import BertConfig, BertModel
from minbert.explorers.masked_word import UNTRAINED, MaskedWordExplorer, found_copies, guess
from minbert.pretrain import MlmHead, load_mlm, save_mlm
from minbert.tokens import load_tokenizer, resolve_folder

pytestmark = pytest.mark.usefixtures("nothing_left_open")

RIVER = "The river flows into the sea near the old harbour."


@pytest.fixture(scope="module")
def explorer():
    return MaskedWordExplorer({UNTRAINED: UNTRAINED, "embedded": None})


@pytest.mark.parametrize(
    "name, value",
    [("sentence", "The river flows into the sea near a new harbour."), ("hide", (1,)), ("gap", 2)],
)
def test_each_control_changes_picture_and_words_and_back(explorer, name, value):
    start = {"hide": (1, 5)}
    before = explorer.png(**start)
    after = explorer.png(**start | {name: value})
    again = explorer.png(**start)
    assert before == again != after and explorer.describe(**start) != explorer.describe(
        **start | {name: value}
    )
    assert explorer.answer(start)[0]["idle"] == [] and explorer.answer({"hide": [5]})[0][
        "idle"
    ] == ["gap"]


def test_the_guesses_are_those_of_the_chapter(explorer):
    tokenizer, (model, head) = load_tokenizer(), load_mlm()
    ids = torch.tensor([tokenizer(RIVER.replace("sea", "[MASK]"))["input_ids"]])
    with torch.no_grad():
        states = model(ids).last_hidden_state[ids == tokenizer.mask_token_id]
        shares = head(states, model.embedding.word_embedding.weight)[0].softmax(-1)
    (gap,) = explorer.guesses(RIVER, (5,))
    best = shares.topk(5)
    assert gap["embedded"].pieces == tokenizer.convert_ids_to_tokens(best.indices.tolist())
    assert gap["embedded"].shares == pytest.approx(best.values.tolist(), rel=1e-4)
    sea = tokenizer.convert_tokens_to_ids("sea")
    assert (
        gap["embedded"].share == pytest.approx(shares[sea].item(), rel=1e-4)
        and gap["embedded"].rank == 1 + (shares.argsort(descending=True) == sea).nonzero().item()
    )
    told = explorer.describe(hide=(5,))
    assert (
        "into the [MASK] near" in told
        and "Hidden: “sea”." in told
        and f"“sea” is guess {gap['embedded'].rank} with {shares[sea]:.2f}" in told
    )
    assert gap[UNTRAINED].shares[0] < 1e-3  # about 1 / V
    assert guess(model, head, ids[0], [3, 6]).sum(-1).tolist() == pytest.approx([1, 1], abs=1e-5)


def test_a_word_of_two_pieces_makes_two_gaps_and_a_typed_mask_has_no_answer(explorer):
    assert explorer.words_of(RIVER) == [
        "the",
        "river",
        "flows",
        "into",
        "the",
        "sea",
        "near",
        "the",
        "old",
        "harbour",
        ".",
    ]
    first, second = explorer.guesses(RIVER, (9,))
    assert (
        explorer.guesses(RIVER, (2,))[0] != first
        and "gap 2 of 2" in explorer.describe(hide=(9,), gap=2).lower()
    )
    # the last there is
    assert "Hidden: “har”" in explorer.describe(
        hide=(9,)
    ) and "Hidden: “##bour”" in explorer.describe(hide=(9,), gap=6)
    typed = RIVER.replace("sea", "[MASK]")
    assert explorer.words_of(typed) == [word for word in explorer.words_of(RIVER) if word != "sea"]
    # the control goes back
    assert (
        explorer.answer({"hide": (9,), "gap": 9})[0]["values"] == {"gap": 2}
        and "values" not in explorer.answer({"hide": (9,), "gap": 2})[0]
    )
    many = "unbelievable " * 9
    assert "Gap 13 of " in explorer.describe(sentence=many, hide=[*range(9)], gap=13)
    assert "type some" in explorer.describe(
        sentence="", hide=()
    ) and "press one" in explorer.describe(hide=())
    (gap,), (known,) = explorer.guesses(typed), explorer.guesses(RIVER, (5,))
    assert (
        gap["embedded"].pieces == known["embedded"].pieces
        and gap["embedded"].rank is None is gap["embedded"].share
    )
    assert "Hidden" not in explorer.describe(sentence=typed, hide=())


def test_the_true_word_is_marked(explorer):
    def marked(**settings):
        figure = explorer.figure(**settings)
        return [[bar.get_hatch() for bar in axes.patches] for axes in figure.axes], [
            [text.get_text() for text in axes.texts] for axes in figure.axes
        ]

    hatches, texts = marked(sentence="She opened the door and walked in.", hide=(3,))
    assert hatches == [[None] * 5, ["//", None, None, None, None]]  # told by more than a colour
    assert "door" in texts[1][0] and "✓" in texts[1][0] and "“door”: guess" in texts[0][-1]
    assert marked(hide=()) == ([[], []], [["no word is hidden:\npress one"]] * 2)
    assert explorer.describe(hide=()) == "No word is hidden: press one."


def test_the_copies_that_are_found(tmp_path):
    assert [*found_copies(tmp_path)] == [UNTRAINED, "359 million tokens"]
    for step in ("step-153", "step-763"):
        shutil.copytree(resolve_folder(), tmp_path / step)
    found = found_copies(tmp_path)
    assert [*found] == [UNTRAINED, "10 million tokens", "50 million tokens", "359 million tokens"]
    both = MaskedWordExplorer({"copy": found["10 million tokens"], "embedded": None}).guesses(
        RIVER, (5,)
    )[0]
    assert both["copy"] == both["embedded"]


def test_fresh_weights_are_always_the_same_and_leave_the_random_state():
    torch.manual_seed(3)
    expected = torch.rand(3)
    torch.manual_seed(3)
    first, second = (
        MaskedWordExplorer({UNTRAINED: UNTRAINED}).guesses(RIVER, (5,)) for _ in range(2)
    )
    assert first == second and torch.equal(torch.rand(3), expected)


def test_what_is_refused(explorer, tmp_path):
    for folders in ({}, dict.fromkeys("abcde")):
        with pytest.raises(ValueError, match="1 to 4 encoders"):
            MaskedWordExplorer(folders)
    config = BertConfig(60, 24, 1, 2, 48)
    save_mlm(BertModel(config), MlmHead(config), tmp_path / "small")
    with pytest.raises(
        ValueError, match="8000 pieces in the vocabulary of mine, as the tokenizer has, got 60"
    ):
        MaskedWordExplorer({"mine": tmp_path / "small"})
    shutil.copytree(resolve_folder(), tmp_path / "turned")
    lines = (tmp_path / "turned" / "vocab.txt").read_text(encoding="utf-8").split("\n")
    lines[1000], lines[1001] = lines[1001], lines[1000]
    (tmp_path / "turned" / "vocab.txt").write_text("\n".join(lines), encoding="utf-8")
    (tmp_path / "turned" / "tokenizer.json").unlink()
    with pytest.raises(ValueError, match="got others in"):
        MaskedWordExplorer({"turned": tmp_path / "turned"})
    for bad in ({"gap": 0}, {"hide": (64,)}, {"hide": (True,)}, {"sentence": 3}):
        assert "expected" in explorer.answer(bad)[0]["error"]
    for sentence in ("", "word " * 400):
        assert "error" not in explorer.answer({"sentence": sentence, "hide": [0, 63]})[0]
