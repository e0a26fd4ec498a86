"""Chapter 08: poolings, the safe cosine and the encoder, against loops, torch, transformers and
sentence-transformers.
"""

import json
import shutil
from collections import UserDict

import pandas as pd
import pytest
import torch
import torch.nn.functional as F
from datasets import Dataset as HubRows
from torch import nn
from torch.testing import assert_close

import minbert.sentence
from minbert.core.eval_mode import evaluating
from minbert.core.finite_checks import check_finite
from minbert.core.text_windows import windows
from minbert.encoder import BertConfig, BertModel
from minbert.encoding import forward
from minbert.encoding.packing import Packing, Padded
from minbert.flow import Flow
from minbert.sentence import (
    POOLINGS,
    SentenceEncoder,
    UnitLength,
    masked_mean,
    pool,
    safe_cosine,
    unit,
)
from minbert.tokens import load_tokenizer, tokenize
from minbert.whitening import Whiten

TEXTS = [
    "The cat sat on the mat.",
    "hi",
    "",
    "A much longer sentence about ships, harbours, fog and the men who read charts by lamplight.",
    "Oil fell again.",
    "Who wrote this book?",
    "ü 你好 😀",
]


@pytest.fixture(scope="module")
def tokenizer():
    return load_tokenizer()


def small_encoder(tokenizer, pooling="mean", layers=3, seed=0, **kwargs):
    torch.manual_seed(seed)
    config = BertConfig(
        vocab_size=len(tokenizer),
        hidden_size=16,
        num_hidden_layers=layers,
        num_attention_heads=2,
        intermediate_size=32,
        max_position_embeddings=64,
        initializer_range=0.3,
    )
    return SentenceEncoder(BertModel(config), tokenizer, pooling, **kwargs).eval()


# ---------------------------------------------------------------- poolings


def loop_pool(states, mask, how, pooler_output):
    def mean(layer, b):
        total, count = torch.zeros_like(states[0][0, 0]), 0
        for t in range(mask.shape[1]):
            if mask[b, t]:
                total, count = total + states[layer][b, t], count + 1
        return total / count

    rows = []
    for b in range(len(mask)):
        real = [t for t in range(mask.shape[1]) if mask[b, t]]
        if not real:
            rows.append(torch.zeros_like(states[0][b, 0]))
            continue
        rows.append(
            {
                "cls": lambda: states[-1][b, 0],
                "pooler": lambda: pooler_output[b],
                "mean": lambda: mean(-1, b),
                "last2avg": lambda: (mean(-1, b) + mean(-2, b)) / 2,
                "first_last_avg": lambda: (mean(1, b) + mean(-1, b)) / 2,
                "emb_last_avg": lambda: (mean(0, b) + mean(-1, b)) / 2,
                "max": lambda: torch.stack([states[-1][b, t] for t in real]).max(0).values,
                "mean_padded": lambda: (
                    sum(states[-1][b, t] for t in range(mask.shape[1])) / mask.shape[1]
                ),
            }[how]()
        )
    return torch.stack(rows)


@pytest.mark.parametrize("how", list(POOLINGS))
@pytest.mark.parametrize("shape", [(1, 1, 1), (1, 7, 3), (5, 1, 4), (4, 6, 8), (3, 20, 2)])
def test_pool_equals_the_loop_in_value_and_gradient(how, shape):
    g = torch.Generator().manual_seed(sum(shape))
    B, T, D = shape
    states = [
        (torch.randn(shape, generator=g, dtype=torch.float64) - 3).requires_grad_()
        for _ in range(5)
    ]
    pooler = torch.randn(B, D, generator=g, dtype=torch.float64).requires_grad_()
    lengths = torch.randint(0, T + 1, (B, 1), generator=g)
    lengths[0] = T
    mask = (torch.arange(T) < lengths).long()
    weights = torch.randn(B, D, generator=g, dtype=torch.float64)
    results = []
    for function in (pool, loop_pool):
        pooled = function(states, mask, how, pooler)
        grads = torch.autograd.grad((pooled * weights).sum(), [*states, pooler], allow_unused=True)
        results.append((pooled, [torch.zeros(1) if x is None else x for x in grads]))
    assert results[0][0].shape == (B, D)
    assert_close(results[0][0], results[1][0])
    for ours, theirs in zip(results[0][1], results[1][1]):
        assert_close(
            ours.double().expand(theirs.shape) if ours.numel() == 1 else ours, theirs.double()
        )


@pytest.mark.parametrize("how", list(POOLINGS))
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_rows_of_padding_give_zeros_with_finite_gradients(how, dtype):
    states = [torch.full((2, 3, 4), -2.0, dtype=dtype).requires_grad_() for _ in range(3)]
    pooler = torch.ones(2, 4, dtype=dtype).requires_grad_()
    mask = torch.tensor([[1, 1, 0], [0, 0, 0]])
    pooled = pool(states, mask, how, pooler)
    assert pooled.dtype == dtype
    assert torch.equal(pooled[1], torch.zeros(4, dtype=dtype))
    assert (pooled[0] != 0).all()
    pooled.sum().backward()
    for x in [*states, pooler]:
        if x.grad is not None:
            assert torch.isfinite(x.grad).all() and (x.grad[1] == 0).all()


def test_masked_mean_ignores_nan_at_padding_and_takes_bool_masks():
    x = torch.tensor([[[1.0], [3.0], [torch.nan]]])
    assert masked_mean(x, torch.tensor([[True, True, False]])).item() == 2
    half = torch.randn(2, 400, 3, generator=torch.Generator().manual_seed(0)).add(2).bfloat16()
    found, exact = masked_mean(half, torch.ones(2, 400)), half.double().mean(1)
    assert found.dtype == torch.bfloat16
    # rounded once to bf16, after a sum of 400 in float32
    assert_close(found.double(), exact, rtol=2**-8 + 400 * 2**-24, atol=0)
    with pytest.raises(ValueError, match=r"\(1, 3\), got \(3, 1\)"):
        masked_mean(x, torch.ones(3, 1))


@pytest.mark.parametrize(
    "arguments, message",
    [
        (dict(how="avg"), "got 'avg'"),
        (dict(how="pooler"), "pooler_output"),
        (
            dict(how="emb_last_avg", hidden_states=(torch.zeros(1, 2, 3),)),
            "output_hidden_states=True",
        ),
        (dict(hidden_states=torch.zeros(1, 2, 3)), "tuple"),
        (dict(hidden_states=()), "hidden states"),
        (dict(attention_mask=torch.ones(2, 2)), r"\(1, 2\), got \(2, 2\)"),
    ],
)
def test_pool_refuses(arguments, message):
    with pytest.raises(ValueError, match=message):
        pool(
            **{
                "hidden_states": (torch.zeros(1, 2, 3),) * 2,
                "attention_mask": torch.ones(1, 2),
                **arguments,
            }
        )


# ---------------------------------------------------------------- cosine and guards


@pytest.mark.parametrize(
    "shapes", [((5,), (5,)), ((3, 5), (3, 5)), ((3, 1, 5), (4, 5)), ((2, 3, 7), (2, 3, 7))]
)
def test_safe_cosine_equals_torch(shapes):
    g = torch.Generator().manual_seed(0)
    u, v = (torch.randn(s, generator=g, dtype=torch.float64).requires_grad_() for s in shapes)
    ours, theirs = safe_cosine(u, v), F.cosine_similarity(u, v, dim=-1)
    assert_close(ours, theirs)
    assert_close(
        torch.autograd.grad(ours.square().sum(), (u, v)),
        torch.autograd.grad(theirs.square().sum(), (u, v)),
    )
    assert torch.autograd.gradcheck(safe_cosine, (u, v))


def test_a_zero_row_hurts_nobody():
    u = torch.tensor([[0.0, 0.0], [3.0, 4.0], [1e-9, 0.0]]).requires_grad_()
    v = torch.tensor([[1.0, 2.0], [1.0, 0.0], [1.0, 0.0]]).requires_grad_()
    value = safe_cosine(u, v)
    assert_close(value, torch.tensor([0.0, 0.6, 0.0]))
    du, dv = torch.autograd.grad(value.sum(), (u, v))
    for row in (0, 2):
        assert (du[row] == 0).all() and (dv[row] == 0).all()
    expected = torch.autograd.grad(F.cosine_similarity(u[1], v[1], dim=0), u)[0]
    assert_close(du[1], expected[1])
    assert safe_cosine(torch.tensor([2e-8, 0.0]), torch.tensor([1.0, 0.0])).item() == pytest.approx(
        1.0
    )


def test_the_cosine_is_wide_and_unclamped():
    u = torch.randn(4, 8, generator=torch.Generator().manual_seed(1)).bfloat16()
    assert safe_cosine(u, u).dtype == torch.float32
    w = torch.randn(64, 9, generator=torch.Generator().manual_seed(2)).requires_grad_()
    # a clamp would hide the pull at 1
    grad = torch.autograd.grad(safe_cosine(w, w.detach() * 1.0).sum(), w)[0]
    assert torch.isfinite(grad).all()
    assert unit(torch.randn(3, 4, dtype=torch.float64)).dtype == torch.float64
    with pytest.raises(ValueError, match="got 3 and 4"):
        safe_cosine(torch.ones(2, 3), torch.ones(2, 4))


@pytest.mark.parametrize("bad", [torch.nan, torch.inf, -torch.inf])
def test_check_finite_names_tensor_and_place(bad):
    x = torch.zeros(2, 2, 2)
    assert check_finite(x, "loss") is x
    x[1, 0, 1] = bad
    with pytest.raises(ValueError, match=rf"loss, got 1 of 8 .* {bad} at \[1, 0, 1\]"):
        check_finite(x, "loss")
    with pytest.raises(ValueError, match="loss"):
        check_finite(torch.tensor(bad), "loss")


# ---------------------------------------------------------------- encoder


@pytest.mark.parametrize("how", list(POOLINGS))
def test_encode_equals_transformers_one_by_one(tokenizer, how):
    from transformers import BertConfig as TheirConfig
    from transformers import BertModel as TheirModel

    from minbert.encoding.bert_weights import hugging_face_name

    encoder = small_encoder(tokenizer, how, layers=4)
    sizes = {
        k: getattr(encoder.model.config, k)
        for k in (
            "vocab_size",
            "hidden_size",
            "num_hidden_layers",
            "num_attention_heads",
            "intermediate_size",
            "max_position_embeddings",
        )
    }
    theirs = TheirModel._from_config(TheirConfig(**sizes), attn_implementation="eager").eval()
    theirs.load_state_dict({hugging_face_name(k): v for k, v in encoder.model.state_dict().items()})
    rows = []
    for text in TEXTS:
        ids = torch.tensor([tokenizer(text, truncation=True, max_length=64)["input_ids"]])
        with torch.no_grad():
            out = theirs(ids, output_hidden_states=True)
        rows.append(loop_pool(out.hidden_states, torch.ones_like(ids), how, out.pooler_output)[0])
    window = 1 if how == "mean_padded" else 4  # there every sentence must be alone
    assert_close(
        encoder.encode(TEXTS, batch_tokens=96, window=window),
        torch.stack(rows),
        rtol=1e-4,
        atol=1e-5,
    )


def test_order_batches_and_windows_do_not_matter(tokenizer):
    encoder = small_encoder(tokenizer)
    many = [f"{'word ' * (i * 7 % 23)}{i}" for i in range(60)]
    expected = encoder.encode(many)
    assert expected.dtype == torch.float32 and expected.shape == (60, 16)
    assert (expected[1:] - expected[:-1]).norm(dim=1).min() > 1e-3  # or a mix-up would not show
    with pytest.raises(ValueError, match="window of at least 1"):
        encoder.encode(TEXTS, window=0)
    for options in [
        dict(batch_tokens=32),
        dict(window=7),
        dict(window=1, batch_tokens=1),
        dict(batch_tokens=10**6),
    ]:
        assert_close(encoder.encode(many, **options), expected, rtol=1e-4, atol=1e-5)
    assert_close(encoder.encode(many[::-1]), expected.flip(0), rtol=1e-4, atol=1e-5)


def test_batches_keep_to_the_budget_and_go_packed(tokenizer, monkeypatch):
    encoder, seen = small_encoder(tokenizer), []

    def noted(layout):
        return lambda mask: seen.append((mask.numel(), layout)) or layout(mask)

    for layout in (Packing, Padded):
        monkeypatch.setattr(forward, layout.__name__, noted(layout))
    encoder.encode([f"{'word ' * (i % 20)}" for i in range(100)], batch_tokens=200)
    assert max(n for n, _ in seen) <= 200 and 1 < len(seen) < 20
    assert {layout for _, layout in seen} == {Packing}
    encoder.pooling = "mean_padded"
    encoder.encode(["a b c", "a"])
    assert seen[-1][1] is Padded


@pytest.mark.parametrize("device, most", [("cpu", 4096), ("cuda", 32768)])
def test_a_window_is_larger_for_a_gpu_which_waits_between_two(device, most):
    assert [len(texts) for texts, _ in windows(["a"] * 33000, None, False, torch.device(device))][
        0
    ] == most


def test_the_stream_reads_one_window_ahead_at_most(tokenizer):
    encoder, read = small_encoder(tokenizer), []

    def supply():
        for i in range(10**9):
            read.append(i)
            yield f"sentence {i}"

    stream = encoder.encode_stream(supply(), window=5)
    assert next(stream).shape == (5, 16)
    assert len(read) == 5
    third = [next(stream), next(stream)][1]
    assert len(read) == 15
    assert_close(
        third, encoder.encode([f"sentence {i}" for i in range(10, 15)]), rtol=1e-4, atol=1e-5
    )
    assert torch.is_grad_enabled()  # nothing leaks out of a paused generator
    stream.close()


def test_freed_memory_goes_back_between_windows_where_the_c_library_can(tokenizer, monkeypatch):
    calls, encoder = [], small_encoder(tokenizer)

    class Library:
        def malloc_trim(self, rest):
            calls.append(rest)

    texts = [f"number {i}" for i in range(7)]
    expected = encoder.encode(texts)
    for library, count in ((Library(), 3), (object(), 0)):
        calls.clear()
        monkeypatch.setattr("ctypes.CDLL", lambda name: library)
        assert_close(encoder.encode(texts, window=2), expected)
        assert calls == [0] * count  # between four windows; after the last one nothing follows
    for error in (OSError, TypeError):
        monkeypatch.setattr("ctypes.CDLL", lambda name: (_ for _ in ()).throw(error()))
        assert_close(encoder.encode(texts, window=2), expected)


def test_modes_come_back_even_after_an_error(tokenizer, monkeypatch):
    encoder = small_encoder(tokenizer)
    encoder.train()
    encoder.model.bert_layers[0].eval()
    modes = [m.training for m in encoder.modules()]
    a, b = encoder.encode(TEXTS), encoder.encode(TEXTS)
    assert torch.equal(a, b)
    assert [m.training for m in encoder.modules()] == modes
    monkeypatch.setattr(encoder.model, "forward", lambda *a, **k: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        encoder.encode(TEXTS)
    assert [m.training for m in encoder.modules()] == modes


@pytest.mark.parametrize(
    "part", [lambda encoder: encoder, lambda encoder: encoder.model.bert_layers[1]]
)
def test_who_ends_first_leaves_the_other_thread_in_eval_mode(tokenizer, part):
    """Two threads encode with a model in training, as it is after `fit`: with dropout back on, the
    second would get other vectors.
    """
    encoder = small_encoder(tokenizer).train()
    encoder.model.bert_layers[0].eval()
    modes = [m.training for m in encoder.modules()]
    first = evaluating(encoder)
    second = evaluating(part(encoder))
    first.__enter__(), second.__enter__(), first.__exit__(None, None, None)
    assert not any(m.training for m in part(encoder).modules())
    second.__exit__(None, None, None)
    assert [m.training for m in encoder.modules()] == modes
    with evaluating(encoder):  # nothing is left over of those before
        assert not any(m.training for m in encoder.modules())
    assert [m.training for m in encoder.modules()] == modes


def test_vectors_can_feed_a_head(tokenizer):
    vectors = small_encoder(tokenizer).encode(TEXTS)
    assert not vectors.requires_grad and not vectors.is_inference()
    head = nn.Linear(16, 1)
    head(vectors).square().sum().backward()
    assert head.weight.grad.abs().sum() > 0


def test_forward_is_differentiable_and_refuses_empty_rows(tokenizer):
    encoder = small_encoder(tokenizer, "last2avg")
    batch = tokenize(tokenizer, TEXTS[:2])
    # a plain sum of a layer norm is constant: its gradient is rounding
    probe = torch.randn(2, 16, generator=torch.Generator().manual_seed(0))
    (encoder.embed(batch) * probe).sum().backward()
    assert encoder.model.embedding.word_embedding.weight.grad.abs().max() > 1e-3
    empty = batch.attention_mask.clone()
    empty[1] = 0
    with pytest.raises(ValueError):
        encoder(batch.input_ids, empty)
    assert torch.equal(encoder(batch.input_ids, empty, allow_empty=True)[1], torch.zeros(16))


@pytest.mark.usefixtures("bf16")
def test_precision(tokenizer):
    encoder = small_encoder(tokenizer)
    full, half = encoder.encode(TEXTS), encoder.encode(TEXTS, precision="bf16")
    assert half.dtype == torch.float32 and not torch.equal(full, half)
    assert safe_cosine(full, half).min() > 0.999
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(encoder.encode(TEXTS), full)  # "fp32" means it


@pytest.mark.parametrize(
    "sentences, message",
    [
        ("one text", "got one str"),
        (b"bytes", "got one bytes"),
        (["a", 3], "sentence 1, got int"),
        (["a"] * 5 + [None], "sentence 5, got NoneType"),
        (["a", "\ud800"], "Unicode for sentence 1"),
        (None, "a list of str, got NoneType: None"),
        (3, "a list of str, got int: 3"),
        ({"a", "b"}, "got a set, which has no order"),
        (frozenset("a"), "got a frozenset"),
        (
            pd.DataFrame({"text": ["a", "b"], "id": [1, 2]}),
            "got a DataFrame: of a table name the column",
        ),
        (
            {"text": ["a b", "c d"], "label": [0, 1]},
            r"got a dict with the keys \['text', 'label'\]: pass its column of sentences, such as rows\['text'\]",
        ),
        ({}, r"got a dict with the keys \[\]"),
        (UserDict(text=["a"]), "got a UserDict with the keys"),
        (HubRows.from_dict({"text": ["a b", "c d"]})[:2], "got a dict with the keys"),
    ],
)
def test_encode_refuses(tokenizer, sentences, message):
    encoder = small_encoder(tokenizer)
    with pytest.raises(ValueError, match=message):
        encoder.encode(sentences, window=2)
    with pytest.raises(ValueError, match=message):
        list(encoder.encode_stream(sentences, window=2))


def test_small_and_odd_inputs(tokenizer):
    encoder = small_encoder(tokenizer)
    assert encoder.encode([]).shape == (0, 16)
    assert encoder.encode(["x"]).shape == (1, 16)
    assert encoder.encode(("x", "y")).shape == (2, 16)
    assert encoder.max_length == 64  # no more than the model has positions
    assert_close(encoder.encode(["word " * 1000]), encoder.encode(["word " * 62]))
    encoder.max_length = 512
    assert encoder.max_length == 64 and encoder.encode(["word " * 1000]).isfinite().all()
    for wanted in (2, -1, 8.5, None):
        with pytest.raises(ValueError, match="expected max_length >= 3"):
            encoder.max_length = wanted
        with pytest.raises(ValueError, match="expected max_length >= 3"):
            SentenceEncoder(encoder.model, tokenizer, max_length=wanted)
    with pytest.raises(ValueError, match="'fp16'"):
        encoder.encode(["x"], precision="fp16")
    with pytest.raises(ValueError, match="'median'"):
        SentenceEncoder(encoder.model, tokenizer, "median")


def test_the_bar_counts_sentences(tokenizer, capfd):
    small_encoder(tokenizer).encode(TEXTS, progress=True)
    assert f"{len(TEXTS)}/{len(TEXTS)}" in capfd.readouterr().err
    small_encoder(tokenizer).encode(TEXTS)
    assert capfd.readouterr().err == ""


# ---------------------------------------------------------------- folders


class Shift(nn.Module):
    """Stands for a flow: has a state, arguments, and returns a tuple."""

    def __init__(self, width):
        super().__init__()
        self.offset = nn.Parameter(torch.arange(float(width)))

    def init_kwargs(self):
        return {"width": len(self.offset)}

    def forward(self, x):
        return x + self.offset, torch.zeros(len(x))


@pytest.fixture
def shift(monkeypatch):
    monkeypatch.setattr(Shift, "__module__", "minbert.sentence")
    monkeypatch.setattr(minbert.sentence, "Shift", Shift, raising=False)
    transform = Shift(16)
    transform.offset.data.mul_(0.1)
    return transform


@pytest.mark.parametrize("how", [how for how in POOLINGS if how != "mean_padded"])
@pytest.mark.parametrize("layers", [1, 3])
def test_sentence_transformers_reproduces_the_folder(tokenizer, tmp_path, how, layers):
    from sentence_transformers import SentenceTransformer

    if layers == 1 and how == "last2avg":
        layers = 2
    encoder = small_encoder(tokenizer, how, layers, max_length=20)
    encoder.save_pretrained(tmp_path)
    theirs = SentenceTransformer(str(tmp_path), device="cpu")
    assert theirs.max_seq_length == 20
    expected = encoder.encode(TEXTS)
    assert_close(torch.tensor(theirs.encode(TEXTS)), expected, rtol=0, atol=1e-5)
    again = SentenceEncoder.from_pretrained(tmp_path, device="cpu")
    assert (again.pooling, again.max_length, again.training) == (how, 20, False)
    assert torch.equal(again.encode(TEXTS), expected)


@pytest.mark.parametrize("device", ["cuda:99", "abacus"])
def test_a_device_that_is_not_here_is_refused_by_name(device):
    with pytest.raises(
        ValueError, match=f"expected a device that is here, such as cpu, got '{device}'"
    ):
        SentenceEncoder.from_pretrained(device=device)


@pytest.mark.parametrize("how", [how for how in POOLINGS if how != "mean_padded"])
def test_half_precision_halves_the_file_and_loads_everywhere(tokenizer, tmp_path, how):
    from sentence_transformers import SentenceTransformer

    encoder = small_encoder(tokenizer, how, 2)
    for name, dtype in (("whole", torch.float32), ("half", torch.float16)):
        encoder.save_pretrained(tmp_path / name, dtype)
    sizes = [(tmp_path / name / "model.safetensors").stat().st_size for name in ("whole", "half")]
    assert 0.45 < sizes[1] / sizes[0] < 0.6
    again = SentenceEncoder.from_pretrained(tmp_path / "half", device="cpu")
    assert again.pooling == how and next(again.parameters()).dtype == torch.float32
    theirs = SentenceTransformer(
        str(tmp_path / "half"), device="cpu", model_kwargs={"dtype": torch.float32}
    )
    # their step behind the pooling keeps its weights whole
    near = 1e-3 if how == "pooler" else 1e-5
    assert_close(torch.tensor(theirs.encode(TEXTS)), again.encode(TEXTS), rtol=0, atol=near)
    whole = encoder.encode(TEXTS)
    for p in encoder.parameters():
        # what a file in half precision can hold, and nothing else changes
        p.data = p.data.half().float()
    assert torch.equal(again.encode(TEXTS), encoder.encode(TEXTS)) and not torch.equal(
        again.encode(TEXTS), whole
    )


def test_sentence_transformers_refuses_what_it_cannot_do(tokenizer, tmp_path, shift):
    from sentence_transformers import SentenceTransformer

    encoder = small_encoder(tokenizer, "mean_padded")
    encoder.save_pretrained(tmp_path / "padded")
    with pytest.raises(ValueError, match="mean_padded"):
        SentenceTransformer(str(tmp_path / "padded"), device="cpu")
    assert SentenceEncoder.from_pretrained(tmp_path / "padded").pooling == "mean_padded"

    encoder = small_encoder(tokenizer, transform=shift)
    encoder.save_pretrained(tmp_path / "shift")
    with pytest.raises(ValueError, match="trust_remote_code"):
        SentenceTransformer(str(tmp_path / "shift"), device="cpu")
    theirs = SentenceTransformer(str(tmp_path / "shift"), device="cpu", trust_remote_code=True)
    assert_close(torch.tensor(theirs.encode(TEXTS)), encoder.encode(TEXTS), rtol=0, atol=1e-5)


def test_a_transform_is_applied_saved_and_restored(tokenizer, tmp_path, shift):
    plain = small_encoder(tokenizer)
    encoder = small_encoder(tokenizer, transform=shift)
    assert_close(encoder.encode(TEXTS), plain.encode(TEXTS) + shift.offset.detach())
    encoder.save_pretrained(tmp_path)
    again = SentenceEncoder.from_pretrained(tmp_path, device="cpu")
    assert torch.equal(again.encode(TEXTS), encoder.encode(TEXTS))
    assert (
        not list(tmp_path.rglob("*.pt"))
        + list(tmp_path.rglob("*.bin"))
        + list(tmp_path.rglob("*.pkl"))
    )
    plain.transform = nn.Linear(16, 5)
    assert (
        plain.width == 5
        and plain.encode(TEXTS).shape == (7, 5)
        and plain.encode([]).shape == (0, 5)
    )
    with pytest.raises(ValueError, match="minbert, got 'torch.nn"):
        plain.save_pretrained(tmp_path / "no")
    assert list((tmp_path / "no").iterdir()) == []


@pytest.mark.parametrize("kind", [Whiten, Flow])
def test_sentence_transformers_saves_a_folder_with_a_map_of_ours_again(tokenizer, tmp_path, kind):
    from sentence_transformers import SentenceTransformer

    torch.manual_seed(0)
    points = torch.randn(40, 16)
    encoder = small_encoder(
        tokenizer,
        "max",
        transform=Whiten(16).fit(points) if kind is Whiten else Flow(16, mixing="lu").eval(),
    )
    if kind is Flow:
        encoder.transform.initialize(points)
    encoder.save_pretrained(tmp_path / "ours")
    SentenceTransformer(str(tmp_path / "ours"), device="cpu", trust_remote_code=True).save(
        str(tmp_path / "theirs")
    )
    again = SentenceEncoder.from_pretrained(tmp_path / "theirs", device="cpu")
    assert (
        type(again.transform) is kind
        and again.pooling == "max"
        and not (tmp_path / "theirs" / "minbert_sentence.json").exists()
    )
    assert torch.equal(again.encode(TEXTS), encoder.encode(TEXTS))


def test_a_folder_of_two_saves_is_one_of_them_or_refused_wherever_the_second_was_killed(
    tokenizer, tmp_path
):
    wanted = {}
    for name, how in (("old", "mean"), ("new", "cls")):
        encoder = small_encoder(tokenizer, how, max_length=20, seed=len(how))
        encoder.save_pretrained(tmp_path / name)
        wanted[how] = encoder.encode(TEXTS)
    # the order in which they are moved
    files = sorted(
        path.relative_to(tmp_path / "new")
        for path in (tmp_path / "new").rglob("*")
        if path.is_file()
    )
    refused = 0
    for name in files:
        shutil.copy(tmp_path / "new" / name, tmp_path / "old" / name)
        try:
            found = SentenceEncoder.from_pretrained(tmp_path / "old", device="cpu")
        except ValueError as error:
            assert "mixed from two saves" in str(error)
            refused += 1
        else:
            assert torch.equal(found.encode(TEXTS), wanted[found.pooling])
    assert refused and found.pooling == "cls"


def test_the_text_beside_the_tensors_of_a_folder_may_be_edited(tokenizer, tmp_path):
    encoder = small_encoder(tokenizer)
    encoder.save_pretrained(tmp_path)
    for file in tmp_path.glob("*.json"):
        if file.name != "minbert_sentence.json":
            file.write_bytes(file.read_bytes().replace(b"\n", b"\r\n"))  # as git may on Windows
    (tmp_path / "README.md").write_text("my card")
    assert torch.equal(
        SentenceEncoder.from_pretrained(tmp_path, device="cpu").encode(TEXTS), encoder.encode(TEXTS)
    )


def test_a_folder_that_another_library_saved_again_says_what_to_do(tokenizer, tmp_path):
    from sentence_transformers import SentenceTransformer

    encoder = small_encoder(tokenizer)
    encoder.save_pretrained(tmp_path)
    theirs = SentenceTransformer(str(tmp_path), device="cpu")
    next(theirs.parameters()).data.mul_(2)
    theirs.save(str(tmp_path))
    with pytest.raises(
        ValueError, match="If another library saved this folder again, delete minbert_sentence.json"
    ):
        SentenceEncoder.from_pretrained(tmp_path)
    (tmp_path / "minbert_sentence.json").unlink()
    assert_close(
        SentenceEncoder.from_pretrained(tmp_path, device="cpu").encode(TEXTS),
        torch.tensor(theirs.encode(TEXTS)),
        rtol=0,
        atol=1e-5,
    )


def test_a_folder_lacks_what_the_hub_does_not_fetch_and_may_be_of_an_older_release(
    tokenizer, tmp_path
):
    encoder = small_encoder(tokenizer, "pooler")
    encoder.save_pretrained(tmp_path)
    shutil.rmtree(tmp_path / "2_Dense")
    assert torch.equal(
        SentenceEncoder.from_pretrained(tmp_path, device="cpu").encode(TEXTS), encoder.encode(TEXTS)
    )
    settings = json.loads((tmp_path / "minbert_sentence.json").read_text())
    (tmp_path / "minbert_sentence.json").write_text(
        json.dumps(
            {name: value for name, value in settings.items() if name not in ("files", "theirs")}
        )
    )
    (tmp_path / "sentence_bert_config.json").write_text("{}")
    assert torch.equal(
        SentenceEncoder.from_pretrained(tmp_path, device="cpu").encode(TEXTS), encoder.encode(TEXTS)
    )


def test_a_folder_whose_steps_are_missing_is_refused(tokenizer, tmp_path):
    """What sentence-transformers leaves when its save fails at a step."""
    small_encoder(tokenizer).save_pretrained(tmp_path)
    for name in ("minbert_sentence.json", "modules.json"):
        (tmp_path / name).unlink()
    # a folder of transformers
    assert SentenceEncoder.from_pretrained(tmp_path, device="cpu").pooling == "mean"
    (tmp_path / "config_sentence_transformers.json").write_text("{}")
    with pytest.raises(ValueError, match="expected modules.json beside"):
        SentenceEncoder.from_pretrained(tmp_path)
    assert SentenceEncoder.from_pretrained(tmp_path, pooling="cls", device="cpu").pooling == "cls"


def published(folder, pooling, *more):
    """Turn a saved folder into one that only sentence-transformers wrote."""
    (folder / "minbert_sentence.json").unlink()
    steps = [("", "Transformer"), ("1_Pooling", "Pooling"), *more]
    (folder / "modules.json").write_text(
        json.dumps(
            [
                {
                    "idx": i,
                    "name": str(i),
                    "path": path,
                    "type": f"sentence_transformers.models.{kind}",
                }
                for i, (path, kind) in enumerate(steps)
            ]
        )
    )
    (folder / "1_Pooling" / "config.json").write_text(
        json.dumps({"word_embedding_dimension": 16, **pooling})
    )


@pytest.mark.parametrize(
    "pooling, expected",
    [
        ({"pooling_mode_cls_token": True, "pooling_mode_mean_tokens": False}, "cls"),
        ({"pooling_mode_cls_token": False, "pooling_mode_max_tokens": True}, "max"),
        ({"pooling_mode": "mean"}, "mean"),
    ],
)
def test_published_folders(tokenizer, tmp_path, pooling, expected):
    from sentence_transformers import SentenceTransformer

    small_encoder(tokenizer, "max", max_length=30).save_pretrained(tmp_path)
    published(tmp_path, pooling, ("2_Normalize", "Normalize"))
    (tmp_path / "2_Normalize").mkdir()
    theirs = torch.tensor(SentenceTransformer(str(tmp_path), device="cpu").encode(TEXTS))
    raw = SentenceEncoder.from_pretrained(tmp_path, device="cpu")
    assert (raw.pooling, raw.max_length, raw.transform) == (expected, 30, None)
    assert_close(unit(raw.encode(TEXTS)), theirs, rtol=0, atol=1e-5)
    scaled = SentenceEncoder.from_pretrained(tmp_path, device="cpu", normalize=True)
    assert_close(scaled.encode(TEXTS), theirs, rtol=0, atol=1e-5)
    scaled.save_pretrained(tmp_path / "again")
    assert_close(
        torch.tensor(SentenceTransformer(str(tmp_path / "again"), device="cpu").encode(TEXTS)),
        theirs,
        rtol=0,
        atol=1e-5,
    )
    assert isinstance(SentenceEncoder.from_pretrained(tmp_path / "again").transform, UnitLength)
    # sentence-transformers 5 and 6.0 take no config there
    assert not any(
        "Normalize" in path.name or "Transform" in path.name
        for path in (tmp_path / "again").iterdir()
    )


def test_a_default_prompt_is_refused_and_not_left_out(tokenizer, tmp_path):
    from sentence_transformers import SentenceTransformer

    small_encoder(tokenizer).save_pretrained(tmp_path)
    SentenceTransformer(
        str(tmp_path), device="cpu", prompts={"query": "query: ", "plain": ""}
    ).save(str(tmp_path))
    (tmp_path / "minbert_sentence.json").unlink()
    file = tmp_path / "config_sentence_transformers.json"
    settings = json.loads(file.read_text())
    assert settings["prompts"]["query"] == "query: " and settings["default_prompt_name"] is None
    for name in (None, "plain", "query", "other", 3):
        file.write_text(json.dumps(settings | {"default_prompt_name": name}))
        assert (
            SentenceEncoder.from_pretrained(tmp_path, pooling="mean", device="cpu").pooling
            == "mean"
        )
        if name in (None, "plain"):
            SentenceEncoder.from_pretrained(tmp_path, device="cpu")
        else:
            with pytest.raises(
                ValueError,
                match=f"config_sentence_transformers.json: expected no default prompt, got {name!r}: name a pooling",
            ):
                SentenceEncoder.from_pretrained(tmp_path, device="cpu")


@pytest.mark.parametrize(
    "said, length",
    [
        (20, 20),
        (20.0, 20),
        (1e30, 64),
        (10**30, 64),
        (None, 64),
        (513, 64),
        (2, "tokenizer_config.json: expected model_max_length"),
        ("x", "got 'x'"),
    ],
)
def test_who_gives_no_length_is_asked_through_the_tokenizer(tokenizer, tmp_path, said, length):
    small_encoder(tokenizer).save_pretrained(tmp_path)
    for name in ("minbert_sentence.json", "sentence_bert_config.json"):
        (tmp_path / name).unlink()
    file = tmp_path / "tokenizer_config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"model_max_length": said}))
    if isinstance(length, int):
        assert SentenceEncoder.from_pretrained(tmp_path, device="cpu").max_length == length
    else:
        with pytest.raises(ValueError, match=length):
            SentenceEncoder.from_pretrained(tmp_path, device="cpu")
    (tmp_path / "sentence_bert_config.json").write_text('{"max_seq_length": 30}')
    if said != "x":
        assert SentenceEncoder.from_pretrained(tmp_path, device="cpu").max_length == 30


def test_a_token_that_was_added_counts(tokenizer, tmp_path):
    small_encoder(tokenizer).save_pretrained(tmp_path)
    more = load_tokenizer()
    more.add_tokens(["zebrafinch"])
    more.save_pretrained(tmp_path)
    (tmp_path / "minbert_sentence.json").unlink()
    with pytest.raises(
        ValueError,
        match=f"at most {len(tokenizer)} pieces, as the model has, got {len(tokenizer) + 1}",
    ):
        SentenceEncoder.from_pretrained(tmp_path, device="cpu")


def test_folders_that_cannot_be_read(tokenizer, tmp_path):
    small_encoder(tokenizer).save_pretrained(tmp_path)
    published(tmp_path, {"pooling_mode": "mean"}, ("2_LayerNorm", "LayerNorm"))
    with pytest.raises(ValueError, match="got 'LayerNorm'"):
        SentenceEncoder.from_pretrained(tmp_path)
    assert SentenceEncoder.from_pretrained(tmp_path, pooling="mean").pooling == "mean"
    published_pooling = tmp_path / "1_Pooling" / "config.json"
    (tmp_path / "modules.json").write_text(
        (tmp_path / "modules.json").read_text().replace("LayerNorm", "Normalize")
    )
    for text, message in [
        ('{"pooling_mode": "lasttoken"}', "lasttoken"),
        ('{"pooling_mode": ["cls", "mean"]}', "one pooling"),
        ('{"pooling_mode": ', "1_Pooling"),
        ("{}", "one pooling"),
    ]:
        published_pooling.write_text(text)
        with pytest.raises(ValueError, match=message):
            SentenceEncoder.from_pretrained(tmp_path)
    (tmp_path / "modules.json").write_text("[{")
    with pytest.raises(ValueError, match="modules.json"):
        SentenceEncoder.from_pretrained(tmp_path)
    with pytest.raises(ValueError, match="'median'"):
        SentenceEncoder.from_pretrained(tmp_path, pooling="median")


def test_a_failed_save_leaves_the_old_folder(tokenizer, tmp_path, monkeypatch):
    encoder = small_encoder(tokenizer)
    (tmp_path / "notes.txt").write_text("mine")
    encoder.save_pretrained(tmp_path)
    before = {f: f.read_bytes() for f in tmp_path.rglob("*") if f.is_file()}
    assert "notes.txt" in {f.name for f in before}
    broken = small_encoder(tokenizer, "cls", seed=1)

    def out_of_space(*args, **kwargs):
        raise OSError("no space left on device")

    monkeypatch.setattr("minbert.encoding.sentence_transformers_folder.write_json", out_of_space)
    with pytest.raises(OSError, match="no space"):
        broken.save_pretrained(tmp_path)
    monkeypatch.undo()
    assert {f: f.read_bytes() for f in tmp_path.rglob("*") if f.is_file()} == before
    assert not [f for f in tmp_path.iterdir() if f.name.startswith(".draft")]
    broken.save_pretrained(tmp_path)  # and a save over an older one replaces it
    assert torch.equal(
        SentenceEncoder.from_pretrained(tmp_path, device="cpu").encode(TEXTS), broken.encode(TEXTS)
    )
    assert (tmp_path / "notes.txt").read_text() == "mine"
    shutil.rmtree(tmp_path / "1_Pooling")


def test_the_embedded_model_is_the_default():
    encoder = SentenceEncoder.from_pretrained(device="cpu")
    assert encoder.pooling == "mean" and encoder.width == 256 and encoder.device.type == "cpu"
    u, v, w = encoder.encode(
        ["A man plays the guitar.", "A man is playing a guitar.", "Oil prices fell by a third."]
    )
    assert safe_cosine(u, v) > safe_cosine(u, w)
