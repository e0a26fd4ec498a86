"""A model that reads on: its words, its head and its weights are those that begin the run;
transformers' head is the oracle.
"""

import math
import random
from itertools import islice

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from terminal import run as typed
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from torch.testing import assert_close
from transformers import (
    AutoModelForMaskedLM,
    AutoTokenizer,
    BertForMaskedLM,
)
from transformers import (
    BertConfig as TheirConfig,
)
from transformers import (
    BertModel as TheirBert,
)

from minbert.cli.continue_pretraining import FurtherConfig, beginning, lay_words, plan
from minbert.cli.export_fill_mask import published_head, write_fill_mask
from minbert.cli.pretraining import PretrainConfig, mlm_batches, pretrain
from minbert.core.checkpoint import CHECKPOINT
from minbert.core.files import read_json, write_json
from minbert.corpus_cache import load_corpus
from minbert.data import load_dataset
from minbert.encoder import BertModel
from minbert.encoding.tokenizer_files import special_token_ids
from minbert.pretrain import HEAD, load_mlm, masked_accuracy
from minbert.tokens import load_tokenizer, resolve_folder, tokenize

pytestmark = pytest.mark.filterwarnings("ignore:.* has no pooler")
SIZES = dict(
    hidden_size=16,
    num_hidden_layers=2,
    num_attention_heads=2,
    intermediate_size=32,
    max_position_embeddings=128,
)


def published(folder, kind=BertForMaskedLM, seed=4, **sizes):
    """A folder as transformers writes it, with the embedded vocabulary."""
    torch.manual_seed(seed)
    tokenizer = load_tokenizer()
    model = kind(TheirConfig(vocab_size=len(tokenizer), **SIZES | sizes))
    for p in model.parameters():
        torch.nn.init.normal_(p, std=0.3)  # biases are not 0, norms not 1
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return model.eval()


@pytest.fixture
def text(tmp_path):
    place = tmp_path / "text"
    (place / "heldout").mkdir(parents=True)
    lines = load_dataset("sentiment").sentences
    (place / "mine.txt").write_text("\n".join(lines[:60]) + "\n", encoding="utf-8")
    (place / "heldout" / "b.txt").write_text("\n".join(lines[60:80]) + "\n", encoding="utf-8")
    return place


def guesses(model):
    batch = tokenize(load_tokenizer(), ["a film that was [MASK] .", "the [MASK] of it all"])
    return model["head"](
        model["bert"](*batch).last_hidden_state, model["bert"].embedding.word_embedding.weight
    )


def test_a_published_head_guesses_what_transformers_guesses(tmp_path):
    theirs = published(tmp_path)
    model, head_from = beginning(tmp_path)
    batch = tokenize(load_tokenizer(), ["a film that was [MASK] .", "the [MASK] of it all"])
    want = theirs(input_ids=batch.input_ids, attention_mask=batch.attention_mask).logits
    real = batch.attention_mask.bool()
    assert_close(guesses(model)[real], want[real], rtol=1e-4, atol=1e-4)
    assert head_from == "its own"


def test_old_names_of_a_norm_are_read(tmp_path):
    published(tmp_path)
    want, file = beginning(tmp_path)[0], tmp_path / "model.safetensors"

    def old(key):
        return key.replace("LayerNorm.weight", "LayerNorm.gamma").replace(
            "LayerNorm.bias", "LayerNorm.beta"
        )

    save_file({old(key): x for key, x in load_file(file).items()}, file, {"format": "pt"})
    for name, x in beginning(tmp_path)[0].state_dict().items():
        assert torch.equal(x, want.state_dict()[name]), name


def test_the_embedded_model_brings_its_head():
    model, head_from = beginning()
    for ours, saved in zip(model.values(), load_mlm()):
        assert all(
            torch.equal(x, saved.state_dict()[name]) for name, x in ours.state_dict().items()
        )
    assert head_from == "its own"


def test_without_a_head_one_is_drawn_and_always_the_same(tmp_path):
    published(tmp_path, TheirBert)
    assert published_head(tmp_path, BertModel.from_pretrained(tmp_path).config) is None
    (one, head_from), (two, _), (other, _) = (beginning(tmp_path, seed) for seed in (1, 1, 2))
    assert head_from == "drawn at random"
    assert torch.equal(guesses(one), guesses(two)) and not torch.equal(guesses(one), guesses(other))
    assert all(
        torch.equal(a, b) for a, b in zip(one["bert"].parameters(), other["bert"].parameters())
    )
    assert not any(part.training for part in one.modules())


@pytest.mark.parametrize(
    "change, words",
    [
        (
            lambda tensors: tensors.pop("cls.predictions.bias"),
            "expected tensors .*cls.predictions.bias.*found none",
        ),
        (
            lambda tensors: tensors.update(
                {"cls.predictions.transform.dense.weight": torch.ones(3, 16)}
            ),
            r"cls.predictions.transform.dense.weight' as floats \(16, 16\), got .*\(3, 16\)",
        ),
        (
            lambda tensors: tensors.update({"cls.predictions.bias": torch.full((8000,), math.nan)}),
            "cls.predictions.bias",
        ),
    ],
)
def test_a_head_that_does_not_fit_is_named(tmp_path, change, words):
    published(tmp_path)
    tensors = load_file(tmp_path / "model.safetensors")
    change(tensors)
    save_file(tensors, tmp_path / "model.safetensors", {"format": "pt"})
    with pytest.raises(ValueError, match=f"(?s)^{tmp_path}: .*{words}"):
        beginning(tmp_path)


def test_the_words_are_the_models(tmp_path, text):
    plan(text, tmp_path / "run", tokens_per_step=256)
    ours, theirs = load_tokenizer(tmp_path / "run" / "model"), load_tokenizer()
    lines = load_dataset("sentiment", "dev").sentences
    assert (
        ours(lines)["input_ids"] == theirs(lines)["input_ids"]
        and ours.get_vocab() == theirs.get_vocab()
    )
    # in the order of their ids
    assert (tmp_path / "run" / "model" / "vocab.txt").read_text() == (
        resolve_folder() / "vocab.txt"
    ).read_text()
    ids = load_corpus(tmp_path / "run").sequences(range(60))
    assert ids == [
        theirs(line)["input_ids"][:128] for line in load_dataset("sentiment").sentences[:60]
    ]


def test_case_is_kept_where_the_model_keeps_it(tmp_path):
    (tmp_path / "vocab.txt").write_text(
        "\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "The", "film"]) + "\n"
    )
    (tmp_path / "tokenizer_config.json").write_text('{"do_lower_case": false}')
    lay_words(tmp_path, tmp_path / "run")
    assert load_tokenizer(tmp_path / "run" / "model").tokenize("The the film Film") == [
        "The",
        "[UNK]",
        "film",
        "[UNK]",
    ]


def files_of(folder):
    return {file.name: file.read_bytes() for file in folder.iterdir()}


def test_words_that_are_there_stay(tmp_path):
    lay_words(None, tmp_path)
    before = files_of(tmp_path / "model")
    lay_words(None, tmp_path)
    assert files_of(tmp_path / "model") == before


@pytest.mark.parametrize("there", ["the words of another run", "a model saved without vocab.txt"])
def test_what_began_with_other_words_is_left_alone(tmp_path, there):
    place, words = tmp_path / "model", ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "film"]
    place.mkdir()
    (place / "vocab.txt").write_text("\n".join(words) + "\n")
    if "model" in there:
        load_tokenizer(place).backend_tokenizer.save(str(place / "tokenizer.json"))
        (place / "vocab.txt").unlink()
        (place / "config.json").write_text("{}")
    before = files_of(place)
    with pytest.raises(
        ValueError,
        match="expected the words of the embedded model, got others: something else began there",
    ):
        lay_words(None, tmp_path)
    assert files_of(place) == before


def test_sizes_and_steps_follow_model_and_text(tmp_path, text):
    published(tmp_path / "theirs")
    config, model, _ = plan(
        text, tmp_path / "run", tmp_path / "theirs", passes=3, tokens_per_step=256
    )
    tokens = load_corpus(tmp_path / "run").lengths.sum()
    assert (config.total_steps - 1) * 256 < 3 * tokens <= config.total_steps * 256
    assert {name: getattr(config, name) for name in SIZES if name != "max_position_embeddings"} == {
        name: n for name, n in SIZES.items() if name != "max_position_embeddings"
    } and config.vocab_size == 8000
    assert plan(text, tmp_path / "run", tmp_path / "theirs", total_steps=7)[0].total_steps == 7
    assert (config.lr, config.matrix_lr) == (FurtherConfig.lr, FurtherConfig.matrix_lr)


def test_a_model_that_has_learned_goes_on_at_a_quarter_of_the_rates():
    assert (FurtherConfig.lr, FurtherConfig.matrix_lr) == (
        PretrainConfig.lr / 4,
        PretrainConfig.matrix_lr / 4,
    )


FOUR = {"total_steps": 4, "tokens_per_step": 256, "save_every": 2, "precision": "fp32"}


def run(text, folder, base=None, **settings):
    config, model, _ = plan(text, folder, base, **FOUR | settings)
    return list(pretrain(text, folder, config, model=model))


def test_text_longer_than_the_model_reads_is_refused(tmp_path, text):
    published(tmp_path / "theirs", max_position_embeddings=32)
    (text / "mine.txt").write_text("a film " * 40 + "\n")
    with pytest.raises(
        ValueError,
        match=f"{text}: expected sequences of at most 32 tokens, as the model reads them, got one of 82",
    ):
        run(text, tmp_path / "run", tmp_path / "theirs")
    published(tmp_path / "longer", max_position_embeddings=82)  # all of it
    assert plan(text, tmp_path / "two", tmp_path / "longer", tokens_per_step=256)[0].total_steps > 0


def test_nothing_is_dropped_and_what_is_saved_drops_as_before(tmp_path, text):
    """Without steps the losses depend on the masks alone, and those on the config's seed."""
    published(tmp_path / "theirs")  # its config asks for dropout
    found = []
    for state in (1, 2):  # dropout would draw from here
        torch.manual_seed(state)
        found.append(run(text, tmp_path / str(state), tmp_path / "theirs", lr=0.0, matrix_lr=0.0))
    assert found[0] == found[1]
    assert read_json(tmp_path / "1" / "model" / "config.json")["hidden_dropout_prob"] == 0.1


def test_a_run_that_does_not_move_ends_where_the_model_began(tmp_path, text):
    run(text, tmp_path / "run", lr=0.0, matrix_lr=0.0)
    before, after = beginning()[0], beginning(tmp_path / "run" / "model")[0]
    lines = load_dataset("sentiment", "dev").sentences[:100]
    scores = [
        masked_accuracy(*model.values(), lines, load_tokenizer()) for model in (before, after)
    ]
    # saved in float16, which keeps 11 bits
    assert scores[0][1] == pytest.approx(scores[1][1], rel=2**-11)


def test_equal_runs_write_equal_checkpoints_to_the_byte(tmp_path, text):
    found = []
    for number in (1, 2):
        config, model, _ = plan(text, tmp_path / str(number), **FOUR)
        random.seed(number), np.random.seed(number), torch.manual_seed(number)
        list(pretrain(text, tmp_path / str(number), config, model=model))
        found.append((tmp_path / str(number) / CHECKPOINT).read_bytes())
    assert found[0] == found[1]


def generic(folder, special):
    """A folder whose tokenizer is no WordPiece, and calls its special tokens otherwise: named in
    tokenizer_config.json as `special` says.
    """
    words = [
        "<s>",
        "<pad>",
        "</s>",
        "<unk>",
        "<mask>",
        *sorted(
            {word for line in load_dataset("sentiment").sentences[:80] for word in line.split()}
        ),
    ]
    rust = Tokenizer(models.WordLevel({word: i for i, word in enumerate(words)}, unk_token="<unk>"))
    rust.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    rust.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>", special_tokens=[("<s>", 0), ("</s>", 2)]
    )
    torch.manual_seed(4)
    BertForMaskedLM(TheirConfig(vocab_size=len(words), pad_token_id=1, **SIZES)).save_pretrained(
        folder
    )
    rust.save(str(folder / "tokenizer.json"))
    names = {
        "cls_token": "<s>",
        "pad_token": "<pad>",
        "sep_token": "</s>",
        "unk_token": "<unk>",
        "mask_token": "<mask>",
    }
    write_json(
        folder / "tokenizer_config.json",
        {"tokenizer_class": "PreTrainedTokenizerFast", "do_lower_case": True}
        | {name: names[name] for name in special},
    )
    return folder


ALL = ("cls_token", "pad_token", "sep_token", "unk_token", "mask_token")


def test_special_tokens_are_those_of_the_tokenizer(tmp_path, text):
    base = generic(tmp_path / "base", ALL)
    tokenizer = load_tokenizer(base)
    assert special_token_ids(tokenizer) == {"[PAD]": 1, "[CLS]": 0, "[SEP]": 2, "[MASK]": 4}
    rows = run(text, tmp_path / "run", base)
    assert rows[-1]["step"] == 4 and math.isfinite(rows[-1]["loss"])
    lines = [
        line
        for line in (text / "mine.txt").read_text(encoding="utf-8").splitlines()
        if line.strip()
    ]
    assert load_corpus(tmp_path / "run").sequences(range(len(lines))) == [
        tokenizer(line)["input_ids"] for line in lines
    ]
    assert load_tokenizer(tmp_path / "run" / "model").get_vocab() == tokenizer.get_vocab()
    seen = [
        batch
        for batch in islice(
            mlm_batches(
                load_corpus(tmp_path / "run"),
                special_token_ids(tokenizer),
                PretrainConfig(vocab_size=len(tokenizer), tokens_per_step=256),
            ),
            4,
        )
    ]
    for batch in seen:  # no padding and no frame is asked for, and the mask is the tokenizer's own
        asked, real = batch.labels != -100, batch.attention_mask.bool()
        assert (
            not (asked & ~real).any()
            and not torch.isin(batch.labels[asked], torch.tensor([0, 1, 2])).any()
        )
        assert (
            (batch.input_ids[asked] == 4).float().mean() > 0.5
            and (batch.input_ids[~real] == 1).all()
            and (batch.input_ids[:, 0] == 0).all()
        )


@pytest.mark.parametrize("missing", ["cls_token", "sep_token", "mask_token"])
def test_a_tokenizer_without_a_special_token_is_refused_before_anything_is_written(
    tmp_path, text, missing, capsys
):
    base = generic(tmp_path / "base", [name for name in ALL if name != missing])
    with pytest.raises(
        ValueError,
        match=rf"expected a tokenizer with the special token \[{missing[:-6].upper()}\], got none: {missing} in tokenizer_config.json",
    ):
        plan(text, tmp_path / "run", base, **FOUR)
    assert not (tmp_path / "run").exists()
    _, err = typed(
        capsys,
        f"pretrain {text} --model {base} --steps 2 --tokens-per-step 64 --out {tmp_path / 'run'}",
        1,
    )
    assert (
        f"got none: {missing}" in err
        and len(err.splitlines()) == 1
        and not (tmp_path / "run" / "model").exists()
    )


def test_what_tokenizer_json_says_of_cutting_and_padding_is_not_done_to_the_text(tmp_path, text):
    """That of all-MiniLM-L6-v2 cuts at 128 tokens and pads up to them: lines would lose their ends,
    and padding would be learned.
    """
    published(tmp_path / "base")
    file = tmp_path / "base" / "tokenizer.json"
    rust = Tokenizer.from_file(str(file))
    rust.enable_truncation(8)
    rust.enable_padding(length=8, pad_id=0, pad_token="[PAD]")
    rust.save(str(file))
    plan(text, tmp_path / "run", tmp_path / "base", **FOUR)
    plain = load_tokenizer()
    assert load_corpus(tmp_path / "run").sequences(range(60)) == [
        plain(line)["input_ids"][:128] for line in load_dataset("sentiment").sentences[:60]
    ]


def test_reading_on_lowers_the_loss_on_its_own_text(tmp_path, text):
    lines = load_dataset("sentiment").sentences[:60]
    run(text, tmp_path / "run", total_steps=12, lr=2e-3, matrix_lr=0.0)  # AdamW alone: quicker
    before, after = (
        masked_accuracy(*load_mlm(folder), lines, load_tokenizer())[1]
        for folder in (None, tmp_path / "run" / "model")
    )
    assert after < before - 0.2


def test_a_run_that_was_stopped_ends_in_the_same_bits_and_goes_on_with_its_own_model_only(
    tmp_path, text
):
    published(tmp_path / "theirs")
    published(tmp_path / "others", seed=5)
    straight = run(text, tmp_path / "straight", tmp_path / "theirs")
    config, model, _ = plan(text, tmp_path / "stopped", tmp_path / "theirs", **FOUR)
    rows = pretrain(text, tmp_path / "stopped", config, model=model)
    next(rows)
    rows.close()  # after two steps of four
    saved = (tmp_path / "stopped" / CHECKPOINT).read_bytes()
    with pytest.raises(ValueError, match="expected weights .*, with which the run there began"):
        run(text, tmp_path / "stopped", tmp_path / "others")
    assert (tmp_path / "stopped" / CHECKPOINT).read_bytes() == saved
    assert run(text, tmp_path / "stopped", tmp_path / "theirs") == straight[1:] and [
        row["step"] for row in straight
    ] == [2, 4]
    for name in ("model.safetensors", HEAD):
        one, two = (
            load_file(tmp_path / folder / "model" / name) for folder in ("straight", "stopped")
        )
        assert all(torch.equal(x, two[key]) for key, x in one.items())


def test_the_command_says_what_it_begins_with(tmp_path, text, capsys):
    published(tmp_path / "theirs", TheirBert)
    out, _ = typed(
        capsys,
        f"pretrain {text} --model {tmp_path / 'theirs'} --out {tmp_path / 'run'} --steps 1 --tokens-per-step 256",
    )
    assert out.startswith("1 steps from `theirs` (its head is drawn at random)\nstep 0  accuracy ")
    card = (tmp_path / "run" / "model" / "README.md").read_text()
    assert (
        "`theirs` (its head is drawn at random), which guessed" in card
        and "without dropout" in card
        and "--model MODEL" in card
    )
    assert (
        str(tmp_path) not in card
        and str(tmp_path) not in (tmp_path / "run" / "model" / "pretraining.json").read_text()
    )
    assert read_json(tmp_path / "run" / "model" / "config.json")["hidden_dropout_prob"] == 0.1
    out, _ = typed(
        capsys, f"pretrain {text} --model embedded --out {tmp_path / 'two'} --tokens-per-step 1000"
    )
    tokens = load_corpus(tmp_path / "two").lengths.sum()
    assert out.startswith(
        f"{math.ceil(4 * tokens / 1000):,} steps from `embedded`\nstep 0  accuracy "
    )


@pytest.fixture(scope="module")
def fill_mask_folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("words") / "model"
    write_fill_mask(None, folder)
    return folder


def test_transformers_guesses_the_words_that_ours_guesses(fill_mask_folder, capfd):
    """Loaded by its name alone, with nothing missing and nothing over; the logits are ours."""
    theirs, told = AutoModelForMaskedLM.from_pretrained(fill_mask_folder, output_loading_info=True)
    assert type(theirs).__name__ == "BertForMaskedLM" and not any(told.values()), told
    words = AutoTokenizer.from_pretrained(fill_mask_folder)
    batch = words(
        [
            "The cat sat on the [MASK].",
            "She opened the [MASK] and walked in, and then there was [MASK].",
        ],
        padding=True,
        return_tensors="pt",
    )
    bert, head = load_mlm()
    with torch.no_grad():
        hidden = bert(batch["input_ids"], batch["attention_mask"]).last_hidden_state
        ours = head(hidden, bert.embedding.word_embedding.weight)
        real = batch["attention_mask"].bool()
        assert_close(theirs.eval()(**batch).logits[real], ours[real], rtol=1e-4, atol=1e-4)
    assert (
        load_tokenizer()(["a b [MASK]", "naïve Ünïcode 東"])["input_ids"]
        == words(["a b [MASK]", "naïve Ünïcode 東"])["input_ids"]
    )


def test_what_was_written_for_transformers_reads_on_here(fill_mask_folder):
    again, head_from = beginning(fill_mask_folder)
    ours, _ = beginning()
    assert head_from == "its own"
    for name, x in ours.state_dict().items():
        assert "pooler" in name or torch.equal(x, again.state_dict()[name]), name
    assert (fill_mask_folder / "vocab.txt").read_bytes() == (
        resolve_folder() / "vocab.txt"
    ).read_bytes()


def test_fill_mask_writes_into_an_empty_folder_only(tmp_path, capsys):
    (tmp_path / "kept").write_text("mine")
    _, err = typed(capsys, f"fill-mask embedded --out {tmp_path}", 1)
    assert "expected a new or empty folder" in err and [f.name for f in tmp_path.iterdir()] == [
        "kept"
    ]
    assert (
        "expected a new or empty folder"
        in typed(capsys, f"fill-mask embedded --out {tmp_path / 'kept'}", 1)[1]
        and (tmp_path / "kept").read_text() == "mine"
    )
    published(tmp_path / "theirs", TheirBert)
    _, err = typed(capsys, f"fill-mask {tmp_path / 'theirs'} --out {tmp_path / 'out'}", 1)
    assert "mlm_head.safetensors" in err and not (tmp_path / "out").exists()
