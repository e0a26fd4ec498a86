"""encoding/dense_layers: linear maps behind a pooling, one folder for two libraries."""

import json
import pickle

import pytest
import torch
from safetensors.torch import load_file
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Dense as TheirDense
from sentence_transformers.sentence_transformer.modules import Normalize, Pooling, Transformer
from torch import nn
from torch.testing import assert_close

from minbert.core.files import read_json, write_json
from minbert.encoder import BertConfig, BertModel
from minbert.encoding.dense_layers import (
    ACTIVATIONS,
    Dense,
    apply_dense,
    maps_of,
    named_maps,
    width_after,
)
from minbert.encoding.sentence_transformers_folder import _makes_small_letters
from minbert.sentence import SentenceEncoder, UnitLength, unit
from minbert.tokens import load_tokenizer
from minbert.whitening import NullTop, StandardizeNullTop, Whiten

TEXTS = [
    "The cat sat on the mat.",
    "hi",
    "A much longer sentence about ships, harbours, fog and the men who read charts by lamplight.",
]


def small_encoder(pooling="mean", transform=None):
    torch.manual_seed(0)
    tokenizer = load_tokenizer()
    config = BertConfig(
        len(tokenizer), 16, 2, 2, 32, max_position_embeddings=64, initializer_range=0.3
    )
    return SentenceEncoder(BertModel(config), tokenizer, pooling, transform, max_length=60).eval()


def theirs(folder):
    return torch.tensor(SentenceTransformer(str(folder), device="cpu").encode(TEXTS))


def test_a_folder_is_read_in_float32_whatever_torch_takes_as_usual(tmp_path):
    encoder = small_encoder(transform=Dense(16, 5))
    encoder.save_pretrained(tmp_path)
    torch.set_default_dtype(torch.float64)
    try:
        again = SentenceEncoder.from_pretrained(tmp_path, device="cpu")
        assert {weight.dtype for weight in again.parameters()} == {torch.float32}
        assert torch.equal(again.encode(TEXTS), encoder.encode(TEXTS))
    finally:
        torch.set_default_dtype(torch.float32)


@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("out", [5, 16])
def test_a_dense_is_theirs_in_both_directions(tmp_path, activation, bias, out):
    torch.manual_seed(1)
    x = torch.randn(7, 16)
    ours = Dense(16, out, bias, activation)
    ours.save(tmp_path / "ours")
    assert_close(
        TheirDense.load(str(tmp_path / "ours"))({"sentence_embedding": x})["sentence_embedding"],
        ours(x),
    )
    other = TheirDense(16, out, bias, ACTIVATIONS[activation]())
    (tmp_path / "theirs").mkdir()
    other.save(str(tmp_path / "theirs"))
    again = Dense.load(tmp_path / "theirs")
    assert_close(again(x), other({"sentence_embedding": x})["sentence_embedding"])
    assert (
        again.out_features == width_after(again, 16) == out
        and not again.training
        and (again.linear.bias is None) == (not bias)
    )


def test_a_dense_is_its_formula_and_keeps_the_dtype():
    dense = Dense(3, 2, activation="Tanh")
    x = torch.randn(4, 3, requires_grad=True)
    expected = torch.tanh(x @ dense.linear.weight.T + dense.linear.bias)
    assert_close(dense(x), expected)
    assert_close(torch.autograd.grad(dense(x).sum(), x), torch.autograd.grad(expected.sum(), x))
    assert (
        dense(x.bfloat16()).dtype == torch.bfloat16
        and Dense(3, 2).double()(x).dtype == torch.float32
    )
    with pytest.raises(ValueError, match="'Softmax'"):
        Dense(3, 2, activation="Softmax")


@pytest.mark.parametrize("pooling", ["mean", "cls", "pooler", "emb_last_avg"])
def test_an_encoder_with_maps_is_theirs_without_trust(tmp_path, pooling):
    """No module of ours is among them, so sentence-transformers asks for no trust_remote_code."""
    encoder = small_encoder(
        pooling, nn.Sequential(Dense(16, 12), Dense(12, 9, activation="Tanh"), UnitLength())
    )
    encoder.save_pretrained(tmp_path)
    assert encoder.width == 9 and encoder.encode(TEXTS).shape == (3, 9)
    assert_close(theirs(tmp_path), encoder.encode(TEXTS), rtol=0, atol=1e-5)
    again = SentenceEncoder.from_pretrained(tmp_path, device="cpu")
    assert torch.equal(again.encode(TEXTS), encoder.encode(TEXTS)) and [
        type(m) for m in maps_of(again.transform)
    ] == [Dense, Dense, UnitLength]
    again.save_pretrained(tmp_path / "twice")
    assert read_json(tmp_path / "twice" / "modules.json", list) == read_json(
        tmp_path / "modules.json", list
    )


def test_a_folder_that_they_wrote_is_read(tmp_path):
    """Like LaBSE: [CLS], a Dense with tanh, unit length; and maps that follow each other."""
    small_encoder().save_pretrained(tmp_path / "bert")
    torch.manual_seed(2)
    transformer = Transformer(str(tmp_path / "bert"), max_seq_length=60)
    model = SentenceTransformer(
        modules=[
            transformer,
            Pooling(16, "cls"),
            TheirDense(16, 10),
            TheirDense(10, 6, activation_function=nn.Identity()),
            Normalize(),
        ],
        device="cpu",
    )
    model.save(str(tmp_path / "published"))
    expected = torch.tensor(model.encode(TEXTS))
    raw = SentenceEncoder.from_pretrained(tmp_path / "published", device="cpu")
    assert (
        raw.pooling == "cls"
        and raw.width == 6
        and [type(m) for m in maps_of(raw.transform)] == [Dense, Dense]
    )
    assert_close(unit(raw.encode(TEXTS)), expected, rtol=0, atol=1e-5)
    scaled = SentenceEncoder.from_pretrained(tmp_path / "published", device="cpu", normalize=True)
    assert_close(scaled.encode(TEXTS), expected, rtol=0, atol=1e-5)
    scaled.save_pretrained(tmp_path / "again")
    assert_close(theirs(tmp_path / "again"), expected, rtol=0, atol=1e-5)
    # not a second Normalize
    once = SentenceEncoder.from_pretrained(tmp_path / "again", device="cpu", normalize=True)
    assert len(maps_of(once.transform)) == 3 and torch.equal(
        once.encode(TEXTS), scaled.encode(TEXTS)
    )


CHANGES = {
    "shorter": lambda model: setattr(model, "max_seq_length", 32),
    "another pooling": lambda model: model.__setitem__(1, Pooling(16, "cls")),
    "a map more": lambda model: model.append(TheirDense(16, 4)),
    "unit length": lambda model: model.append(Normalize()),
}


@pytest.mark.parametrize("name", CHANGES)
def test_settings_that_they_changed_in_our_folder_are_not_passed_over(tmp_path, name):
    """The weights are the same, so their checksums say nothing; without our file it is a folder of
    theirs.
    """
    small_encoder().save_pretrained(tmp_path)
    model = SentenceTransformer(str(tmp_path), device="cpu")
    model.save(str(tmp_path))
    assert SentenceEncoder.from_pretrained(tmp_path).max_length == 60  # nothing was changed
    CHANGES[name](model)
    model.save(str(tmp_path))
    with pytest.raises(
        ValueError,
        match="modules.json: expected steps and length as minbert_sentence.json .*delete minbert_sentence.json",
    ):
        SentenceEncoder.from_pretrained(tmp_path)
    # who chooses a pooling takes the model alone
    assert SentenceEncoder.from_pretrained(tmp_path, "max").pooling == "max"
    (tmp_path / "minbert_sentence.json").unlink()
    again = SentenceEncoder.from_pretrained(tmp_path, device="cpu", normalize=name == "unit length")
    assert_close(again.encode(TEXTS), torch.tensor(model.encode(TEXTS)), rtol=0, atol=1e-5)


def test_a_folder_of_before_has_no_word_of_their_settings(tmp_path):
    small_encoder().save_pretrained(tmp_path)
    ours = read_json(tmp_path / "minbert_sentence.json")
    assert ours.pop("theirs") == [["Transformer"], ["Pooling", "mean"], 60]
    write_json(tmp_path / "minbert_sentence.json", ours)
    write_json(tmp_path / "sentence_bert_config.json", {"max_seq_length": 32})
    assert SentenceEncoder.from_pretrained(tmp_path).max_length == 60


def test_a_copy_that_lacks_their_files_is_read_by_ours(tmp_path):
    small_encoder().save_pretrained(tmp_path)
    for name in ("1_Pooling/config.json", "sentence_bert_config.json", "modules.json"):
        (tmp_path / name).rename(tmp_path / "away")
        assert SentenceEncoder.from_pretrained(tmp_path).max_length == 60
        (tmp_path / "away").rename(tmp_path / name)


def test_vectors_that_they_cut_are_refused(tmp_path):
    small_encoder().save_pretrained(tmp_path)
    SentenceTransformer(str(tmp_path), device="cpu", truncate_dim=8).save(str(tmp_path))
    for _ in range(2):  # in a folder of ours, then in one of theirs
        with pytest.raises(
            ValueError,
            match="config_sentence_transformers.json: expected vectors that are not cut, got truncate_dim 8",
        ):
            SentenceEncoder.from_pretrained(tmp_path)
        (tmp_path / "minbert_sentence.json").unlink(missing_ok=True)
    assert SentenceEncoder.from_pretrained(tmp_path, "mean").width == 16


def test_small_letters_that_only_they_make_are_refused(tmp_path):
    small_encoder().save_pretrained(tmp_path)
    write_json(
        tmp_path / "sentence_bert_config.json", {"max_seq_length": 60, "do_lower_case": True}
    )
    assert SentenceEncoder.from_pretrained(tmp_path).width == 16  # our tokenizer makes them, too
    write_json(
        tmp_path / "tokenizer_config.json",
        read_json(tmp_path / "tokenizer_config.json") | {"do_lower_case": False},
    )
    for _ in range(2):  # in a folder of ours, then in one of theirs
        with pytest.raises(
            ValueError,
            match="sentence_bert_config.json: expected a tokenizer that makes small letters",
        ):
            SentenceEncoder.from_pretrained(tmp_path)
        (tmp_path / "minbert_sentence.json").unlink(missing_ok=True)
    assert SentenceEncoder.from_pretrained(tmp_path, "mean").width == 16


@pytest.mark.parametrize(
    "settings, normalizer, lowers",
    [
        ({"do_lower_case": False}, {"type": "Lowercase"}, False),
        ({"do_lower_case": True}, None, True),
        ({}, {"type": "BertNormalizer", "lowercase": False}, False),
        ({}, {"type": "BertNormalizer", "lowercase": True}, True),
        ({}, {"type": "BertNormalizer"}, True),
        ({}, None, False),
        ({}, {"type": "NFC"}, False),
        ({}, {"type": "Sequence", "normalizers": [{"type": "NFC"}, {"type": "Lowercase"}]}, True),
        ({}, {"type": "Sequence", "normalizers": [{"type": "NFC"}]}, False),
        ({}, "none", False),
    ],
)
def test_whether_a_tokenizer_makes_small_letters_is_read_where_it_stands(
    tmp_path, settings, normalizer, lowers
):
    assert _makes_small_letters(tmp_path)  # a vocab.txt alone
    write_json(tmp_path / "tokenizer_config.json", settings)
    write_json(tmp_path / "tokenizer.json", {"normalizer": normalizer})
    assert _makes_small_letters(tmp_path) is lowers


def test_another_pooling_comes_without_the_map_of_the_first(tmp_path):
    """A map belongs to the vectors that it was fitted on."""
    encoder = small_encoder("emb_last_avg", Dense(16, 9))
    encoder.save_pretrained(tmp_path)
    assert SentenceEncoder.from_pretrained(tmp_path, pooling="emb_last_avg").width == 9
    plain = SentenceEncoder.from_pretrained(tmp_path, pooling="mean", device="cpu")
    assert plain.transform is None and plain.width == 16
    (tmp_path / "minbert_sentence.json").unlink()
    assert SentenceEncoder.from_pretrained(tmp_path, pooling="mean").transform is None


def test_maps_of_ours_and_theirs_stand_in_a_row(tmp_path):
    encoder = small_encoder(transform=Dense(16, 12))
    encoder.transform = nn.Sequential(encoder.transform, Whiten(12, 8).fit(torch.randn(99, 12)))
    encoder.save_pretrained(tmp_path)
    again = SentenceEncoder.from_pretrained(tmp_path, device="cpu")
    assert again.width == 8 and torch.equal(again.encode(TEXTS), encoder.encode(TEXTS))
    trusted = SentenceTransformer(str(tmp_path), device="cpu", trust_remote_code=True)
    assert_close(torch.tensor(trusted.encode(TEXTS)), encoder.encode(TEXTS), rtol=0, atol=1e-5)


def test_an_older_save_in_the_same_folder_adds_no_map(tmp_path):
    small_encoder(transform=nn.Sequential(Dense(16, 12), Dense(12, 7))).save_pretrained(tmp_path)
    small_encoder(transform=Dense(16, 5)).save_pretrained(tmp_path)
    assert SentenceEncoder.from_pretrained(tmp_path).width == 5
    small_encoder().save_pretrained(tmp_path)
    assert SentenceEncoder.from_pretrained(tmp_path).transform is None


def test_a_tuple_gives_its_first():
    class Both(nn.Module):
        def forward(self, x):
            return 2 * x, x.sum(1)

    x = torch.randn(3, 4)
    assert_close(apply_dense(x, nn.Sequential(Both(), Both())), 4 * x)
    assert (
        apply_dense(x, None) is x
        and maps_of(None) == []
        and width_after(nn.Sequential(Both()), 4) == 4
    )


@pytest.mark.parametrize(
    "change, message",
    [
        ({"activation_function": "os.system"}, "'os.system'"),
        ({"activation_function": "torch.nn.modules.activation.Softmax"}, "Softmax"),
        ({"activation_function": "evil.Tanh"}, "evil"),
        ({"in_features": 10**15}, "1000000000000000"),
        ({"in_features": "16"}, "in_features"),
        ({"out_features": 0}, "0"),
        ({"out_features": 4}, "linear.weight"),
        ({"module_output_name": "token_embeddings"}, "module_output_name"),
        ({"activation_function": "torchevil.nn.Tanh"}, "torchevil"),
        ({"in_features": 10**30}, "config.json"),
        ({"bias": False}, "linear.bias"),
        ({"bias": "yes"}, "bias"),
        ({"use_residual": True}, "use_residual"),
        ({"module_input_name": "token_embeddings"}, "module_input_name"),
    ],
)
def test_what_we_do_not_have_is_refused_by_name(tmp_path, change, message):
    Dense(16, 5).save(tmp_path)
    write_json(tmp_path / "config.json", read_json(tmp_path / "config.json") | change)
    with pytest.raises(ValueError, match=message) as error:
        Dense.load(tmp_path)
    assert str(tmp_path) in str(error.value)


def test_damaged_weights_are_refused_and_no_pickle_is_run(tmp_path):
    dense = Dense(4, 2)
    dense.linear.weight.data[0, 0] = float("nan")
    dense.save(tmp_path)
    with pytest.raises(ValueError, match="NaN"):
        Dense.load(tmp_path)
    (tmp_path / "model.safetensors").write_bytes((tmp_path / "model.safetensors").read_bytes()[:-3])
    with pytest.raises(ValueError, match="cut short"):
        Dense.load(tmp_path)
    (tmp_path / "model.safetensors").unlink()
    with pytest.raises(ValueError, match="found neither"):
        Dense.load(tmp_path)
    (tmp_path / "pytorch_model.bin").write_bytes(pickle.dumps(json.loads, protocol=2))
    with pytest.raises(ValueError, match="pytorch_model.bin"):
        Dense.load(tmp_path)


@pytest.mark.parametrize(
    "kind",
    [lambda: Whiten(16, 9), lambda: NullTop(16, 2), lambda: StandardizeNullTop(16)],
    ids=["whiten", "null top", "standardize, null top"],
)
def test_an_affine_map_becomes_a_dense_that_needs_no_trust(tmp_path, kind):
    encoder = small_encoder()
    x = 3 + encoder.encode(
        [f"sentence number {i} about {word}" for i in range(40) for word in ("ships", "fog", "oil")]
    )
    encoder.transform = nn.Sequential(kind().fit(x), Dense(kind().out_features, 5))
    expected = encoder.encode(TEXTS)
    encoder.transform = Dense.of(encoder.transform)
    assert_close(
        encoder.encode(TEXTS), expected, rtol=1e-4, atol=1e-4 * expected.abs().max().item()
    )
    encoder.save_pretrained(tmp_path)
    assert_close(theirs(tmp_path), expected, rtol=1e-4, atol=1e-4 * expected.abs().max().item())
    again = Dense.of(encoder.transform)
    assert_close(again.linear.weight, encoder.transform.linear.weight)


def test_a_whitening_as_a_dense_is_the_whitening():
    torch.manual_seed(3)
    # far from zero: what is subtracted is large
    x = torch.randn(500, 16) @ torch.randn(16, 16) + 100.0
    whiten = Whiten(16, 9).fit(x)
    dense = Dense.of(whiten)
    assert dense.linear.weight.shape == (9, 16) and not dense.training
    assert_close(dense(x.double()).float(), whiten(x), rtol=1e-3, atol=1e-3)
    assert_close(dense.linear.weight, whiten.matrix.T, rtol=1e-5, atol=1e-6)


def test_a_linear_layer_of_torch_becomes_a_dense(tmp_path):
    """`save_pretrained` keeps classes of minbert only, and says which one takes a plain nn.Linear."""
    encoder = small_encoder()
    encoder.transform = nn.Linear(encoder.width, 5).requires_grad_(False)
    expected = encoder.encode(TEXTS)
    with pytest.raises(ValueError, match="Dense.of"):
        encoder.save_pretrained(tmp_path)
    encoder.transform = Dense.of(encoder.transform)
    encoder.save_pretrained(tmp_path)
    assert_close(theirs(tmp_path), expected, rtol=1e-4, atol=1e-4 * expected.abs().max().item())


def test_what_is_not_affine_is_no_dense():
    for transform in (
        None,
        nn.Sequential(),
        UnitLength(),
        Dense(4, 4, activation="Tanh"),
        nn.Sequential(Dense(4, 4), UnitLength()),
    ):
        with pytest.raises(ValueError, match="affine"):
            Dense.of(transform)
    broken = Dense(4, 4)
    broken.linear.weight.data[0, 0] = float("nan")
    with pytest.raises(ValueError, match="affine"):
        Dense.of(broken)


def test_halves_are_kept_in_the_file_and_widened_in_memory(tmp_path):
    Dense(4, 2).half().save(tmp_path)
    assert load_file(tmp_path / "model.safetensors")["linear.weight"].dtype == torch.float16
    dense = Dense.load(tmp_path)
    before = dense.linear.weight.clone()
    # a loaded map no longer hangs on its file
    (tmp_path / "model.safetensors").write_bytes(
        b"x" * (tmp_path / "model.safetensors").stat().st_size
    )
    assert dense.linear.weight.dtype == torch.float32 and torch.equal(dense.linear.weight, before)


def test_older_files_of_theirs_are_read(tmp_path):
    dense = Dense(4, 2, activation="Tanh")
    dense.save(tmp_path)
    torch.save(dense.state_dict(), tmp_path / "pytorch_model.bin")
    (tmp_path / "model.safetensors").unlink()
    config = read_json(tmp_path / "config.json")
    del config["bias"]
    write_json(tmp_path / "config.json", config | {"activation_function": "torch.nn.Tanh"})
    x = torch.randn(3, 4)
    assert torch.equal(Dense.load(tmp_path)(x), dense(x))


def test_steps_in_an_order_that_we_do_not_have_are_refused(tmp_path):
    small_encoder(transform=Dense(16, 5)).save_pretrained(tmp_path)
    (tmp_path / "minbert_sentence.json").unlink()
    steps = read_json(tmp_path / "modules.json", list)
    scaled = {"idx": 9, "name": "9", "path": "", "type": "sentence_transformers.models.Normalize"}
    write_json(tmp_path / "modules.json", [*steps[:-1], scaled, steps[-1]])
    with pytest.raises(ValueError, match="behind Normalize"):
        SentenceEncoder.from_pretrained(tmp_path)
    assert SentenceEncoder.from_pretrained(tmp_path, pooling="cls").transform is None
    write_json(tmp_path / "modules.json", [*steps, scaled])
    assert SentenceEncoder.from_pretrained(tmp_path).width == 5
    Dense(8, 5).save(tmp_path / "3_Dense")
    with pytest.raises(ValueError, match="width 16, got one for 8"):
        SentenceEncoder.from_pretrained(tmp_path)


@pytest.mark.usefixtures("unsealed")
def test_a_map_that_is_gone_is_missed(tmp_path):
    """sentence-transformers names folders in its own way when it saves; without the file of ours it
    is read as theirs.
    """
    small_encoder(transform=nn.Sequential(Dense(16, 12), Dense(12, 9))).save_pretrained(tmp_path)
    expected = theirs(tmp_path)
    SentenceTransformer(str(tmp_path), device="cpu").save(str(tmp_path))
    with pytest.raises(ValueError, match="expected 2 maps.*minbert_sentence.json"):
        SentenceEncoder.from_pretrained(tmp_path)
    (tmp_path / "minbert_sentence.json").unlink()
    assert_close(
        SentenceEncoder.from_pretrained(tmp_path, device="cpu").encode(TEXTS),
        expected,
        rtol=0,
        atol=1e-5,
    )


def test_folders_of_before_say_only_whether_there_is_a_map(tmp_path):
    small_encoder(transform=UnitLength()).save_pretrained(tmp_path)
    file = tmp_path / "minbert_sentence.json"
    settings = read_json(file)
    assert settings.pop("maps") == 1
    write_json(file, settings)
    assert isinstance(SentenceEncoder.from_pretrained(tmp_path).transform, UnitLength)
    write_json(file, settings | {"transform": False})
    assert SentenceEncoder.from_pretrained(tmp_path).transform is None


@pytest.mark.usefixtures("unsealed")
def test_many_maps_and_maps_within_maps(tmp_path):
    class Own(nn.Sequential):
        pass

    own = Own(Dense(4, 2))
    assert maps_of(own) == [own]
    inner = nn.Sequential(Dense(16, 12), nn.Sequential(UnitLength(), Dense(12, 9)))
    encoder = small_encoder(transform=inner)
    assert len(maps_of(inner)) == 3 and encoder.width == 9 == encoder.encode(TEXTS).shape[1]
    encoder.save_pretrained(tmp_path / "inner")
    # the first UnitLength stays
    scaled = SentenceEncoder.from_pretrained(tmp_path / "inner", device="cpu", normalize=True)
    assert_close(scaled.encode(TEXTS), unit(encoder.encode(TEXTS)))
    small_encoder(transform=nn.Sequential(*(Dense(16, 16) for _ in range(9)))).save_pretrained(
        tmp_path / "many"
    )
    steps = read_json(tmp_path / "many" / "modules.json", list)
    write_json(tmp_path / "many" / "modules.json", [*steps, {**steps[-1], "path": "3_Dense_old"}])
    ours = read_json(tmp_path / "many" / "minbert_sentence.json")
    # as an older release, which compared no steps
    write_json(tmp_path / "many" / "minbert_sentence.json", ours | {"theirs": None})
    again = SentenceEncoder.from_pretrained(tmp_path / "many")
    assert len(maps_of(again.transform)) == 9 and again.max_length == 60


def test_a_kind_of_dense_that_is_not_ours_is_not_written_as_one(tmp_path):
    class Twice(Dense):
        def forward(self, vectors):
            return 2 * super().forward(vectors)

    with pytest.raises(ValueError, match="Twice"):
        small_encoder(transform=Twice(16, 16)).save_pretrained(tmp_path)


def test_saving_draws_no_random_numbers(tmp_path):
    for pooling in ("mean", "pooler"):
        encoder = small_encoder(pooling, Dense(16, 9))
        state = torch.get_rng_state()
        encoder.save_pretrained(tmp_path / pooling)
        assert torch.equal(torch.get_rng_state(), state)


def test_parts_of_an_encoding_tell_maps_apart():
    """An encoding that goes on in parts compares these words, and the checksum of all weights."""
    names = [
        named_maps(t)
        for t in (
            None,
            Dense(4, 4),
            Dense(4, 4, activation="Tanh"),
            UnitLength(),
            nn.Sequential(Dense(4, 4), UnitLength()),
        )
    ]
    assert names == [
        "NoneType",
        "Dense Identity",
        "Dense Tanh",
        "UnitLength",
        "Dense Identity, UnitLength",
    ]


def test_a_step_may_not_lead_out_of_its_folder(tmp_path):
    small_encoder(transform=Dense(16, 5)).save_pretrained(tmp_path / "in")
    Dense(16, 5).save(tmp_path / "3_Dense")
    file = tmp_path / "in" / "modules.json"
    (tmp_path / "in" / "minbert_sentence.json").unlink()
    file.write_text(file.read_text().replace('"3_Dense"', '"../3_Dense"'))
    with pytest.raises(ValueError, match="below its folder"):
        SentenceEncoder.from_pretrained(tmp_path / "in")
