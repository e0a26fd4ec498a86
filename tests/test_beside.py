"""encoding/bag_of_words_pooling: a pooling with weights of its own, in steps that sentence-transformers has."""

import json

import pytest
import torch
from safetensors.torch import load_file, save_file
from sentence_transformers import SentenceTransformer
from torch import nn
from torch.testing import assert_close

from minbert.core.files import read_json, write_json
from minbert.data import load_dataset
from minbert.encoder import BertConfig, BertModel
from minbert.encoding.bag_of_words_pooling import WordsBeside
from minbert.encoding.dense_layers import Dense
from minbert.encoding.pooling_spec import layers_read, pooled_width, pooling_name
from minbert.encoding.shards import encoder_settings
from minbert.finetune import TrainConfig, fit
from minbert.heads import MultitaskBert, default_heads
from minbert.sentence import POOLINGS, SentenceEncoder
from minbert.tokens import load_tokenizer
from minbert.whitening import Whiten

TEXTS = [
    "The cat sat on the mat.",
    "hi",
    "A much longer sentence about ships, harbours, fog and the men who read charts by lamplight.",
    "",
]
D, K, LENGTH = 16, 24, 3.5


def beside():
    torch.manual_seed(1)
    made = WordsBeside(D, K, LENGTH)
    nn.init.normal_(made.words.linear.bias)
    return made


def small_encoder(transform=None, layers=2):
    torch.manual_seed(0)
    tokenizer = load_tokenizer()
    config = BertConfig(
        len(tokenizer), D, layers, 2, 32, max_position_embeddings=64, initializer_range=0.3
    )
    return SentenceEncoder(BertModel(config), tokenizer, beside(), transform, max_length=60).eval()


def theirs(folder):
    return torch.tensor(SentenceTransformer(str(folder), device="cpu").encode(TEXTS))


def by_hand(pooling, states, mask):
    """The formula, row by row and token by token, in float64."""
    A, W, b = (
        x.detach().double()
        for x in (
            pooling.tokens.linear.weight,
            pooling.words.linear.weight,
            pooling.words.linear.bias,
        )
    )
    rows = []
    for e, h, kept in zip(states[0], states[-1], mask):
        e, h = (torch.stack([x[t].double() for t in range(len(kept)) if kept[t]]) for x in (e, h))
        words = W @ torch.stack([torch.clamp(A @ token, min=0) for token in e]).mean(0) + b
        rows.append(torch.cat([LENGTH * words / words.square().sum().sqrt(), h.mean(0)]))
    return torch.stack(rows)


def test_it_is_its_formula_in_value_and_gradient():
    pooling, mask = beside(), torch.tensor([[1, 1, 1, 0], [1, 0, 0, 0]])
    states = tuple(torch.randn(2, 4, D, requires_grad=True) for _ in range(3))
    found, expected = pooling(states, mask), by_hand(pooling, states, mask)
    assert_close(found.double(), expected, atol=1e-5, rtol=1e-5)
    dice = torch.randn(2, K + D)
    wanted = torch.autograd.grad((expected * dice).sum(), [states[0], states[-1]])
    for a, b in zip(torch.autograd.grad((found * dice).sum(), [states[0], states[-1]]), wanted):
        assert_close(a, b, atol=1e-5, rtol=1e-5)
    assert pooling.out_features == K + D and found.shape == (2, K + D)


def test_padding_does_not_count_and_a_row_without_tokens_is_zero():
    pooling, mask = beside(), torch.tensor([[1, 1, 0], [0, 0, 0]])
    states = tuple(torch.randn(2, 3, D) for _ in range(2))
    expected = pooling(tuple(x[:1, :2] for x in states), mask[:1, :2])
    for x in states:
        x[mask == 0] = float("nan")
    found = pooling(states, mask)
    assert_close(found[:1], expected)
    assert torch.equal(found[1], torch.zeros(K + D))
    assert pooling(tuple(x.bfloat16() for x in states), mask).dtype == torch.bfloat16
    assert pooling((states[0], states[1].bfloat16()), mask).dtype == torch.bfloat16


def test_a_row_without_tokens_has_a_gradient():
    pooling, mask = beside(), torch.tensor([[1, 1, 0], [0, 0, 0]])
    nn.init.zeros_(pooling.words.linear.bias)
    states = tuple(torch.randn(2, 3, D, requires_grad=True) for _ in range(2))
    for dtype in (torch.float32, torch.float16):
        pooling.to(dtype)
        pooling(tuple(x.to(dtype) for x in states), mask).float().square().sum().backward()
        assert all(x.grad.isfinite().all() for x in (*states, *pooling.parameters()))


def test_a_long_row_in_half_precision_is_summed_in_single():
    pooling = beside()
    state = torch.full((1, 3000, D), 1.0).bfloat16()
    found = pooling((state, state), torch.ones(1, 3000, dtype=torch.long))
    assert_close(found[0, K:], torch.ones(D).bfloat16())


def test_what_it_reads_is_checked():
    pooling, states = beside(), (torch.randn(2, 4, D), torch.randn(2, 4, D))
    for given, mask, message in (
        (states[:1], torch.ones(2, 4), "all hidden states"),
        (states[0], torch.ones(2, 4), "tuple"),
        (states, torch.ones(1, 4), "mask of shape"),
    ):
        with pytest.raises(ValueError, match=message):
            pooling(given, mask)


@pytest.mark.parametrize(
    "given",
    [(16, 24, 0.0), (16, 24, -1.0), (16, 24, float("inf")), (16, 24, float("nan")), (16, 25, 1.0)],
)
def test_a_length_is_positive_and_columns_come_in_pairs(given):
    with pytest.raises(ValueError, match="expected an even number of columns"):
        WordsBeside(*given)


def test_its_length_belongs_to_its_state():
    encoder, other = small_encoder(), WordsBeside(D, K, 2.0)
    assert "pooling.length" in encoder.state_dict()
    other.load_state_dict(encoder.pooling.state_dict())
    assert other.length == LENGTH


@pytest.mark.parametrize("layers", [1, 3])
def test_an_encoder_gives_both_and_no_sentence_knows_its_neighbours(layers):
    encoder = small_encoder(layers=layers)
    vectors = encoder.encode(TEXTS)
    assert (
        encoder.width == K + D
        and vectors.shape == (4, K + D)
        and encoder.pooling in encoder.modules()
    )
    for text, row in zip(TEXTS, vectors):
        assert_close(encoder.encode([text])[0], row, atol=1e-5, rtol=1e-5)
    alone = SentenceEncoder(encoder.model, encoder.tokenizer, "mean", max_length=60)
    assert_close(vectors[:, K:], alone.encode(TEXTS), atol=1e-5, rtol=1e-5)
    assert_close(vectors[:, :K].norm(dim=1), torch.full((4,), LENGTH), atol=1e-5, rtol=1e-5)
    ids = torch.tensor([[2, 60, 70, 3]])
    out = encoder.model(ids, torch.ones_like(ids), output_hidden_states=True)
    assert_close(
        SentenceEncoder(encoder.model, encoder.tokenizer, encoder.pooling)(
            ids, torch.ones_like(ids)
        ),
        encoder.pooling(out.hidden_states, torch.ones_like(ids)),
    )


@pytest.mark.parametrize(
    "transform", [None, Dense(K + D, 5), nn.Sequential(Dense(K + D, 9), Dense(9, 4))]
)
def test_a_folder_is_the_same_encoder_in_both_libraries(tmp_path, transform):
    encoder = small_encoder(transform)
    before = torch.random.get_rng_state()
    encoder.save_pretrained(tmp_path)
    SentenceEncoder.from_pretrained(tmp_path)
    assert torch.equal(before, torch.random.get_rng_state())
    expected = encoder.encode(TEXTS)
    for pooling in (None, "words_beside"):
        again = SentenceEncoder.from_pretrained(tmp_path, pooling, device="cpu")
        assert (
            again.width == encoder.width
            and torch.equal(again.encode(TEXTS), expected)
            and not again.pooling.training
        )
    assert_close(theirs(tmp_path), expected, atol=1e-5, rtol=1e-5)
    assert (
        SentenceTransformer(str(tmp_path), device="cpu").get_embedding_dimension() == encoder.width
    )
    mean = SentenceEncoder.from_pretrained(tmp_path, "mean", device="cpu")
    assert mean.pooling == "mean" and mean.transform is None and mean.width == D
    again.save_pretrained(tmp_path / "twice")
    assert_close(theirs(tmp_path / "twice"), expected, atol=1e-5, rtol=1e-5)


def test_half_precision_stays_half(tmp_path):
    encoder = small_encoder()
    encoder.pooling.half()
    encoder.save_pretrained(tmp_path, torch.float16)
    files = [
        tmp_path / name / "model.safetensors"
        for name in ("words_tokens", "words_map", "words_length")
    ]
    assert {x.dtype for file in files for x in load_file(file).values()} == {torch.float16}
    assert (
        next(SentenceEncoder.from_pretrained(tmp_path, device="cpu").pooling.parameters()).dtype
        == torch.float32
    )


def test_a_whitening_of_both_halves_can_stand_behind_it(tmp_path):
    encoder = small_encoder()
    torch.manual_seed(3)
    encoder.transform = Dense.of(Whiten(K + D, 6).fit(torch.randn(200, K + D)))
    encoder.save_pretrained(tmp_path)
    assert_close(theirs(tmp_path), encoder.encode(TEXTS), atol=1e-5, rtol=1e-5)


def damage(folder, name, change):
    file = folder / name / "model.safetensors"
    tensors = load_file(file)
    change(tensors)
    save_file(tensors, file)


def beside_zero(t):
    t["linear.weight"][0, 1] = 0.5


def another_number(t):
    t["linear.weight"][1, 1] = 9.0


def negative(t):
    t["linear.weight"] *= -1


def nothing(t):
    t["linear.weight"] *= 0


@pytest.mark.usefixtures("unsealed")
@pytest.mark.parametrize("change", [beside_zero, another_number, negative, nothing])
def test_a_length_is_one_number(tmp_path, change):
    small_encoder().save_pretrained(tmp_path)
    damage(tmp_path, "words_length", change)
    with pytest.raises(ValueError, match="words_length.*diagonal"):
        SentenceEncoder.from_pretrained(tmp_path)


@pytest.mark.parametrize("name", ["words_tokens", "words_map", "words_length"])
@pytest.mark.parametrize("left", ["config.json", "model.safetensors"])
def test_a_step_that_is_gone_is_named(tmp_path, name, left):
    small_encoder().save_pretrained(tmp_path)
    (tmp_path / name / left).unlink()
    with pytest.raises((ValueError, FileNotFoundError), match=name):
        SentenceEncoder.from_pretrained(tmp_path)


@pytest.mark.usefixtures("unsealed")
def test_steps_that_do_not_fit_are_refused(tmp_path):
    small_encoder().save_pretrained(tmp_path)
    file = tmp_path / "words_tokens" / "config.json"
    config = read_json(file)
    write_json(file, config | {"module_output_name": "sentence_embedding"})
    with pytest.raises(ValueError, match="words_tokens.*module_output_name"):
        SentenceEncoder.from_pretrained(tmp_path)
    write_json(file, config)
    Dense(K - 1, K - 1).save(tmp_path / "words_map")
    with pytest.raises(ValueError, match=f"words_map: .*width {K}, got one for {K - 1}"):
        SentenceEncoder.from_pretrained(tmp_path)
    write_json(file, {name: value for name, value in config.items() if name != "module_input_name"})
    with pytest.raises(ValueError, match="words_tokens.*module_input_name"):
        SentenceEncoder.from_pretrained(tmp_path)
    write_json(file, config)
    Dense(K, K - 2).save(tmp_path / "words_map")
    with pytest.raises(ValueError, match="words_length.*no more"):
        SentenceEncoder.from_pretrained(tmp_path)
    with pytest.raises(ValueError, match="width 16, got one for 8"):
        _ = SentenceEncoder(small_encoder().model, load_tokenizer(), WordsBeside(8, 4)).width
    made = WordsBeside(8, 4)
    wrong = small_encoder()
    wrong.pooling = made
    wrong.save_pretrained(tmp_path / "wrong")
    with pytest.raises(ValueError, match="wrong.*width 16, got one for 8"):
        SentenceEncoder.from_pretrained(tmp_path / "wrong")


@pytest.mark.parametrize(
    "other",
    [Dense(K, K), Dense(K, K, bias=False, activation="ReLU"), Dense(K - 1, K - 1, bias=False)],
)
def test_a_length_is_nothing_else(tmp_path, other):
    small_encoder().save_pretrained(tmp_path)
    with torch.no_grad():
        other.linear.weight.copy_(LENGTH * torch.eye(other.width))
    other.save(tmp_path / "words_length", module_output_name="cls_token_embeddings")
    with pytest.raises(ValueError, match="words_length"):
        SentenceEncoder.from_pretrained(tmp_path)


@pytest.mark.usefixtures("unsealed")
def test_what_another_library_saved_again_is_not_read_from_old_files(tmp_path):
    small_encoder().save_pretrained(tmp_path)
    SentenceTransformer(str(tmp_path), device="cpu").save(str(tmp_path))
    with pytest.raises(ValueError, match="steps of a WordsBeside.*only that one reads all of it"):
        SentenceEncoder.from_pretrained(tmp_path)
    (tmp_path / "minbert_sentence.json").unlink()
    with pytest.raises(
        ValueError,
        match="WeightedLayerPooling., which may have learned there: name a pooling yourself",
    ):
        SentenceEncoder.from_pretrained(tmp_path)
    assert SentenceEncoder.from_pretrained(tmp_path, "mean").width == D


class Foreign(nn.Module):
    layers, out_features = (-1,), D

    def forward(self, hidden_states, attention_mask):
        return hidden_states[-1][:, 0]


class Sub(WordsBeside):
    name = "sub"


def test_any_module_pools_but_only_ours_is_kept(tmp_path):
    encoder = small_encoder()
    foreign = SentenceEncoder(encoder.model, encoder.tokenizer, Foreign(), max_length=60)
    assert_close(
        foreign.encode(TEXTS),
        SentenceEncoder(encoder.model, encoder.tokenizer, "cls", max_length=60).encode(TEXTS),
    )
    data = load_dataset("similarity", "dev").subset(range(8))
    for pooling in (Foreign(), Sub(D, K)):
        encoder.pooling = pooling
        with pytest.raises(ValueError, match="a name or a WordsBeside"):
            encoder.save_pretrained(tmp_path)
        model = MultitaskBert(encoder, default_heads(encoder.width, ["similarity"]))
        with pytest.raises(ValueError, match="a name or a WordsBeside"):
            fit(
                model,
                {"similarity": data},
                {"similarity": data},
                TrainConfig(["similarity"], steps=1),
                tmp_path / "run",
            )
    with pytest.raises(ValueError, match="layers and out_features, got Tanh"):
        SentenceEncoder(encoder.model, encoder.tokenizer, nn.Tanh())


def test_a_name_alone_is_no_pooling(tmp_path):
    with pytest.raises(ValueError, match="expected a pooling among"):
        SentenceEncoder(small_encoder().model, load_tokenizer(), "words_beside")
    encoder = small_encoder()
    SentenceEncoder(encoder.model, encoder.tokenizer, "mean").save_pretrained(tmp_path)
    with pytest.raises(ValueError, match="expected a pooling among"):
        SentenceEncoder.from_pretrained(tmp_path, "words_beside")


def test_names_layers_and_widths_of_poolings():
    made = beside()
    assert (pooling_name("cls"), pooling_name(made)) == ("cls", "words_beside")
    assert layers_read("last2avg", POOLINGS) == (-1, -2) and layers_read(made, POOLINGS) == (0, -1)
    assert pooled_width("cls", 7) == 7 and pooled_width(made, D) == K + D


def test_parts_of_an_encoding_know_the_pooling():
    encoder = small_encoder()
    settings = json.loads(json.dumps(encoder_settings(encoder, "fp32", "float32")))
    assert settings["pooling"] == "words_beside" and settings["width"] == K + D
    with torch.no_grad():
        encoder.pooling.tokens.linear.weight[0, 0] += 1
    assert encoder_settings(encoder, "fp32", "float32")["model"] != settings["model"]
