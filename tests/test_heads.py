"""Heads and the multitask model: closed forms, sentence-transformers, modes, precision, folders."""

import hashlib
import json
import math
import shutil

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.testing import assert_close

from minbert.data import Dataset, TaskBatch
from minbert.encoder import BertConfig, BertModel
from minbert.heads import (
    ConcatDiff,
    CosineHead,
    LinearHead,
    LinearPlusCosine,
    MultitaskBert,
    PairLinear,
    default_heads,
    join_batches,
    multitask_loss,
)
from minbert.losses import GOALS, ClippedCosineHead
from minbert.sentence import SentenceEncoder, UnitLength
from minbert.tokens import TokenBatch, load_tokenizer, tokenize

WORDS = [
    "a man plays",
    "the cat is on the mat",
    "rain",
    "two dogs run in the snow",
    "he plays the guitar",
    "no",
]


@pytest.fixture(scope="module")
def tokenizer():
    return load_tokenizer()


@pytest.fixture
def encoder(tokenizer):
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=len(tokenizer),
        hidden_size=16,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=24,
        max_position_embeddings=32,
    )
    return SentenceEncoder(BertModel(config), tokenizer).eval()


def heads(width=16):
    torch.manual_seed(1)
    return {
        "sst": LinearHead(width),
        "quora": LinearPlusCosine(width),
        "stsb": LinearPlusCosine(width, "similarity"),
        "clipped": ClippedCosineHead(width, project=8, threshold=0.2),
        "diff": ConcatDiff(width, 3, "classes"),
        "cosine": CosineHead("similarity"),
        "pair": PairLinear(width, "paraphrase_mse"),
    }


def vectors(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def pair_batch(tokenizer, task="stsb", labels=(1.0, 5.0, 0.0)):
    n = len(labels)
    return TaskBatch(
        task,
        tokenize(tokenizer, WORDS[:n]),
        tokenize(tokenizer, WORDS[3 : 3 + n]),
        torch.tensor(labels),
    )


# -- the heads alone

PAIR_HEADS = [
    lambda D: PairLinear(D),
    lambda D: ConcatDiff(D),
    lambda D: ConcatDiff(D, 3, "classes"),
    lambda D: CosineHead(),
    lambda D: LinearPlusCosine(D),
    lambda D: LinearPlusCosine(D, "similarity"),
    lambda D: ClippedCosineHead(D),
]


@pytest.mark.parametrize("B", [1, 2, 5])
@pytest.mark.parametrize("D", [1, 3, 8])
def test_formulas(B, D):
    u, v = vectors(2, B, D).unbind()
    cos = F.cosine_similarity(u, v)

    def join(*parts):
        return torch.cat(parts, 1)

    head = LinearHead(D, 4).double().eval()
    assert_close(head(u), u @ head.linear.weight.T + head.linear.bias)
    head = PairLinear(D).double().eval()
    assert_close(head(u, v), (join(u, v) @ head.linear.weight.T + head.linear.bias)[:, 0])
    head = ConcatDiff(D).double().eval()
    assert_close(
        head(u, v), (join(u, v, (u - v).abs()) @ head.linear.weight.T + head.linear.bias)[:, 0]
    )
    head = ConcatDiff(D, 3, "classes").double().eval()
    assert_close(head(u, v), join(u, v, (u - v).abs()) @ head.linear.weight.T + head.linear.bias)
    head = CosineHead(scale=3.5, bias=-0.25).double()
    assert_close(head(u, v), 3.5 * cos - 0.25)
    for goal, k in (("paraphrase", 1), ("similarity", 5)):
        head = LinearPlusCosine(D, goal).double().eval()
        assert_close(
            head(u, v), (join(u, v) @ head.linear.weight.T + head.linear.bias)[:, 0] + k * cos
        )
    assert LinearPlusCosine(D, "similarity", cosine_weight=0).cosine_weight == 0


@pytest.mark.parametrize("make", PAIR_HEADS)
def test_batch_axis_and_row_independence(make):
    torch.manual_seed(0)
    head = make(6).double().eval()
    u, v = vectors(2, 5, 6).unbind()
    out = head(u, v)
    assert out.shape[0] == 5 and out.ndim == (2 if head.goal == "classes" else 1)
    for i in range(5):
        assert_close(head(u[i : i + 1], v[i : i + 1]), out[i : i + 1])
    assert_close(head(u.flip(0), v.flip(0)), out.flip(0))
    for bad in ((u[0], v[0]), (u[:1], v), (u, v[:, :5])):
        with pytest.raises(ValueError, match=r"\(B, D\)"):
            head(*bad)


def test_linear_head_batch_of_one():
    assert LinearHead(6)(torch.zeros(1, 6)).shape == (1, 5)
    with pytest.raises(ValueError, match=r"\(B, D\)"):
        LinearHead(6)(torch.zeros(6))


def test_dropout_acts_on_what_the_linear_map_reads():
    u, v = torch.ones(1, 400), torch.ones(1, 400)
    for head, args in (
        (LinearHead(400, dropout=0.5), (u,)),
        (PairLinear(400, dropout=0.5), (u, v)),
        (ConcatDiff(400, dropout=0.5), (u, v)),
        (LinearPlusCosine(400, dropout=0.5), (u, v)),
    ):
        head.train()
        assert not torch.equal(head(*args), head(*args)), type(head)
        head.eval()
        assert torch.equal(head(*args), head(*args))
    head = LinearPlusCosine(400, dropout=0.9)
    nn.init.zeros_(head.linear.weight), nn.init.zeros_(head.linear.bias)
    assert_close(head.train()(u, v), torch.ones(1))  # the cosine is not dropped
    assert [
        h.dropout for h in (LinearHead(4), PairLinear(4), ConcatDiff(4), LinearPlusCosine(4))
    ] == [0.3, 0.1, 0.0, 0.1]


def test_concat_diff_is_the_classifier_of_sentence_bert():
    from sentence_transformers.sentence_transformer.losses import SoftmaxLoss

    class Given(nn.Module):
        device = torch.device("cpu")

        def forward(self, features):
            return {"sentence_embedding": features["e"]}

    theirs = SoftmaxLoss(Given(), embedding_dimension=6, num_labels=3)
    ours = ConcatDiff(6, 3, "classes")
    ours.linear.load_state_dict(theirs.classifier.state_dict())
    u, v = vectors(2, 7, 6).float().requires_grad_().unbind()
    y = torch.tensor([0, 1, 2, 2, 1, 0, 1])
    a, b = ours.loss(ours(u, v), y), theirs([{"e": u}, {"e": v}], y)
    assert_close(a, b)
    assert_close(torch.autograd.grad(a, (u, v)), torch.autograd.grad(b, (u, v)))


def test_one_logit_is_the_difference_of_two():
    two, one = ConcatDiff(6, 2, "classes").double(), ConcatDiff(6).double()
    with torch.no_grad():
        one.linear.weight.copy_(two.linear.weight[1:] - two.linear.weight[:1])
        one.linear.bias.copy_(two.linear.bias[1:] - two.linear.bias[:1])
    u, v = vectors(2, 9, 6).unbind()
    y = torch.tensor([0, 1, 1, 0, 1, 0, 1, 1, 0])
    assert_close(one.loss(one(u, v), y), two.loss(two(u, v), y))
    assert_close(one.predict(one(u, v)), two.predict(two(u, v)))


def test_cosine_head_bounds_and_parameters():
    bare = CosineHead(scale=1, trainable=False)
    u = torch.eye(3)
    p = torch.cat([bare(u, u), bare(u, -u), bare(u, u.roll(1, 0))]).sigmoid()
    assert_close(
        torch.tensor([p.min(), p.max()]), torch.tensor([0.26894, 0.73106]), rtol=0, atol=1e-4
    )
    assert [q.requires_grad for q in bare.parameters()] == [False, False]
    head = CosineHead()
    head.loss(head(u, u), torch.tensor([1, 0, 1])).backward()
    assert head.scale.grad != 0 and head.bias.grad != 0
    assert (head.scale.item(), head.bias.item()) == (5, 0)


def test_zero_vectors_pass_no_gradient_through_the_cosine():
    for head in (CosineHead(), CosineHead("similarity")):
        u = torch.zeros(2, 4, requires_grad=True)
        head(u, torch.ones(2, 4)).sum().backward()
        assert (u.grad == 0).all()


def test_swap():
    torch.manual_seed(0)
    u, v = vectors(2, 4, 6).unbind()
    same = {"CosineHead", "ClippedCosineHead"}
    for make in PAIR_HEADS:
        head = make(6).double().eval()
        assert torch.allclose(head(u, v), head(v, u)) == (type(head).__name__ in same)
    head = ConcatDiff(6).double()
    with torch.no_grad():
        head.linear.weight[:, 6:12] = head.linear.weight[:, :6]  # W_u = W_v
    assert_close(head(u, v), head(v, u))


@pytest.mark.parametrize("goal", ["paraphrase", "paraphrase_mse", "similarity"])
@pytest.mark.parametrize("make", [PairLinear, ConcatDiff, CosineHead, LinearPlusCosine])
def test_goal_sets_loss_and_answer(goal, make):
    head = make(goal=goal) if make is CosineHead else make(4, goal=goal)
    out, y = torch.tensor([-2.0, 0.5, 7.0]), torch.tensor([0, 1, 1])
    assert_close(head.loss(out, y), GOALS[goal][0](out, y))
    assert head.predict(out).tolist() == ([0, 0.5, 5] if goal == "similarity" else [0, 1, 1])


def test_wrong_arguments():
    for make in (
        lambda: LinearHead(4, 1),
        lambda: PairLinear(4, "sentiment"),
        lambda: ConcatDiff(4, 3),
        lambda: ConcatDiff(4, 1, "classes"),
        lambda: ConcatDiff(4, 0),
        lambda: CosineHead("stars"),
        lambda: LinearPlusCosine(4, "nli"),
    ):
        with pytest.raises(ValueError, match="expected"):
            make()


def test_init_kwargs_build_the_same_head():
    for head in [
        *heads().values(),
        CosineHead(scale=2, bias=-1, trainable=False),
        LinearPlusCosine(3, "similarity", 2.5, 0.7),
        ClippedCosineHead(3, clip_positives=False, threshold=0.3),
    ]:
        again = type(head)(**json.loads(json.dumps(head.init_kwargs())))
        again.load_state_dict(head.state_dict())
        assert again.init_kwargs() == head.init_kwargs()
        assert [p.requires_grad for p in again.parameters()] == [
            p.requires_grad for p in head.parameters()
        ]


def test_default_heads():
    made = default_heads(
        16, ("sst", "cfimdb", "quora", "mrpc", "stsb", "sts", "sickr", "snli", "mnli", "qnli")
    )
    assert {t: (type(h).__name__, h.goal) for t, h in made.items()} == {
        "sst": ("LinearHead", "classes"),
        "cfimdb": ("LinearHead", "classes"),
        "quora": ("CosineHead", "paraphrase"),
        "mrpc": ("CosineHead", "paraphrase"),
        "stsb": ("LinearPlusCosine", "similarity"),
        "sts": ("LinearPlusCosine", "similarity"),
        "sickr": ("LinearPlusCosine", "similarity"),
        "snli": ("ConcatDiff", "classes"),
        "mnli": ("ConcatDiff", "classes"),
        "qnli": ("ConcatDiff", "classes"),
    }
    assert [made[t].classes for t in ("sst", "cfimdb", "snli", "mnli", "qnli")] == [5, 2, 3, 3, 2]
    assert made["stsb"].cosine_weight == 5
    level = torch.tensor([[0.8, 0.6]])  # cosine .8 with (1, 0): the fence between no and yes
    assert abs(made["quora"](torch.tensor([[1.0, 0.0]]), level).item()) < 1e-6
    assert made["quora"](level, level).item() == pytest.approx(2)
    assert list(default_heads(16)) == ["sentiment", "inference", "similarity"]
    with pytest.raises(ValueError, match="poetry"):
        default_heads(16, ("sst", "poetry"))


# -- batches


def test_join_batches():
    short = TokenBatch(torch.tensor([[2, 9, 3]]), torch.tensor([[1, 1, 1]]))
    long = TokenBatch(
        torch.tensor([[2, 3, 7, 7], [2, 8, 5, 3]]), torch.tensor([[1, 1, 0, 0], [1, 1, 1, 1]])
    )
    for first, second, ids in (
        (short, long, [[2, 9, 3, 7], [2, 3, 7, 7], [2, 8, 5, 3]]),
        (long, short, [[2, 3, 7, 7], [2, 8, 5, 3], [2, 9, 3, 7]]),
    ):
        joined = join_batches(first, second, pad_id=7)
        assert joined.input_ids.tolist() == ids
        assert joined.lengths.tolist() == first.lengths.tolist() + second.lengths.tolist()
        assert joined.input_ids.dtype == joined.attention_mask.dtype == torch.int64


# -- the model


def test_a_pair_is_encoded_in_one_call(encoder, tokenizer, monkeypatch):
    model = MultitaskBert(encoder, heads())
    batch, calls = pair_batch(tokenizer), []
    embed = SentenceEncoder.embed
    monkeypatch.setattr(
        SentenceEncoder, "embed", lambda self, b: calls.append(len(b.input_ids)) or embed(self, b)
    )
    model.eval()
    out = model("stsb", batch.first, batch.second)
    assert calls == [6]
    u, v = embed(encoder, batch.first), embed(encoder, batch.second)
    assert_close(out, model.heads["stsb"](u, v), rtol=1e-5, atol=1e-6)
    assert_close(model("sst", batch.first), model.heads["sst"](u), rtol=1e-5, atol=1e-6)


def test_gradients_equal_those_of_two_calls(encoder, tokenizer):
    model = MultitaskBert(encoder, heads()).eval()
    batch = pair_batch(tokenizer)
    together = multitask_loss(model, {"stsb": batch})["stsb"]
    head = model.heads["stsb"]
    apart = head.loss(head(encoder.embed(batch.first), encoder.embed(batch.second)), batch.labels)
    weights = [
        p
        for n, p in model.named_parameters()
        if "pooler" not in n and (n.startswith("encoder") or "stsb" in n)
    ]
    assert_close(together, apart)
    for a, b in zip(torch.autograd.grad(together, weights), torch.autograd.grad(apart, weights)):
        assert_close(a, b, rtol=1e-4, atol=1e-6)


def test_batch_of_one(encoder, tokenizer):
    model = MultitaskBert(encoder, heads()).eval()
    for task, head in model.heads.items():
        batch = TaskBatch(
            task,
            tokenize(tokenizer, WORDS[:1]),
            tokenize(tokenizer, WORDS[1:2]) if head.pair else None,
            torch.tensor([1]),
        )
        assert model(task, batch.first, batch.second).shape == {"sst": (1, 5), "diff": (1, 3)}.get(
            task, (1,)
        )
        assert model.predict(task, batch).shape == (1,)
        assert multitask_loss(model, {task: batch})[task].shape == ()


def test_frozen_and_full(encoder, tokenizer):
    model = MultitaskBert(encoder, heads(), mode="frozen")
    batch = {
        "stsb": pair_batch(tokenizer),
        "sst": TaskBatch("sst", tokenize(tokenizer, WORDS), None, torch.arange(6) % 5),
    }
    sum(multitask_loss(model, batch).values()).backward()
    assert all(p.grad is None and not p.requires_grad for p in model.encoder.parameters())
    assert all(p.grad is not None for t in batch for p in model.heads[t].parameters())
    assert not model.vectors(batch["sst"].first)[0].requires_grad
    model.set_mode("full")
    sum(multitask_loss(model, batch).values()).backward()
    assert [n for n, p in model.encoder.named_parameters() if p.grad is None] == [
        "model.pooler_dense.weight",
        "model.pooler_dense.bias",
    ]
    with pytest.raises(ValueError, match="'half'"):
        model.set_mode("half")
    with pytest.raises(ValueError, match="'half'"):
        MultitaskBert(encoder, heads(), mode="half")


def test_a_frozen_encoder_still_drops_in_training(encoder, tokenizer):
    model = MultitaskBert(encoder, heads(), mode="frozen").train()
    batch = tokenize(tokenizer, WORDS)
    one, two = model.vectors(batch)[0], model.vectors(batch)[0]
    assert not torch.equal(one, two)
    model.encoder.eval()
    assert torch.equal(model.vectors(batch)[0], model.vectors(batch)[0])


def test_no_graph_without_grad(encoder, tokenizer):
    model = MultitaskBert(encoder, heads())
    with torch.no_grad():
        assert not model("sst", tokenize(tokenizer, WORDS)).requires_grad
    assert model("sst", tokenize(tokenizer, WORDS)).requires_grad


class Shift(nn.Module):
    """A stand-in for a flow: moves every vector, and returns a tuple."""

    def __init__(self):
        super().__init__()
        self.by = nn.Parameter(torch.tensor(1.0))

    def forward(self, x):
        return x.flip(-1) + self.by, x.sum(-1)


def test_head_input_chooses_the_side_of_the_transform(encoder, tokenizer):
    batch = tokenize(tokenizer, WORDS[:2])
    plain = encoder.embed(batch)
    encoder.transform = Shift()
    flow = MultitaskBert(encoder, heads()).eval()
    before = MultitaskBert(encoder, heads(), head_input="encoder").eval()
    assert_close(flow.vectors(batch)[0], plain.flip(-1) + 1)
    assert_close(before.vectors(batch)[0], plain)
    data = Dataset("x", "dev", "text", WORDS[:2])
    for model, x in ((flow, plain.flip(-1) + 1), (before, plain)):
        assert_close(
            model.predict("sst", data, raw=True),
            model.heads["sst"](x).detach(),
            rtol=1e-5,
            atol=1e-5,
        )
    before.heads["sst"](before.vectors(batch)[0]).sum().backward()
    assert encoder.transform.by.grad is None
    with pytest.raises(ValueError, match="'both'"):
        MultitaskBert(encoder, heads(), head_input="both")


def test_dropout_of_the_encoder_view_follows_the_model(encoder, tokenizer):
    encoder.transform = Shift()
    model = MultitaskBert(encoder, heads(), head_input="encoder").eval()
    batch = tokenize(tokenizer, WORDS)
    assert torch.equal(model.vectors(batch)[0], model.vectors(batch)[0])
    model.train()
    assert not torch.equal(model.vectors(batch)[0], model.vectors(batch)[0])


def test_heads_and_losses_stay_in_float32_under_autocast(encoder, tokenizer):
    model = MultitaskBert(encoder, heads()).eval()
    batch = pair_batch(tokenizer)
    with torch.autocast("cpu", torch.bfloat16):
        vectors = model.vectors(batch.first, batch.second)
        out = model("stsb", batch.first, batch.second)
        loss = multitask_loss(model, {"stsb": batch})["stsb"]
        labels = {
            "sst": [0, 4],
            "quora": [0, 1],
            "clipped": [0, 1],
            "diff": [0, 2],
            "cosine": [0.5, 5],
            "pair": [1, 0],
        }
        for task, y in labels.items():
            part = TaskBatch(
                task,
                tokenize(tokenizer, WORDS[:2]),
                None if task == "sst" else tokenize(tokenizer, WORDS[2:4]),
                torch.tensor(y),
            )
            assert multitask_loss(model, {task: part})[task].dtype == torch.float32
    assert out.dtype == loss.dtype == torch.float32
    exact = model.heads["stsb"](*(x.float() for x in vectors))
    assert_close(out, exact, rtol=1e-6, atol=1e-6)  # the head itself was not rounded
    loss.backward()
    assert all(p.grad.dtype == torch.float32 for p in model.heads["stsb"].parameters())


def test_heads_follow_their_own_precision(encoder, tokenizer):
    batch = pair_batch(tokenizer)
    for dtype in (torch.float64, torch.bfloat16):
        model = MultitaskBert(encoder, heads()).to(dtype).eval()
        want = torch.float64 if dtype == torch.float64 else torch.float32
        assert multitask_loss(model, {"stsb": batch})["stsb"].dtype == want
        assert (
            len(model.predict("stsb", Dataset("x", "dev", "similarity", WORDS, WORDS[::-1]))) == 6
        )
        model.float()


# -- predictions


def pair_data(n=6, labels=None):
    return Dataset("x", "dev", "similarity", WORDS[:n], WORDS[:n][::-1], labels)


def test_predict_gives_answers_in_order_on_the_scale_of_the_labels(encoder, tokenizer):
    model = MultitaskBert(encoder, heads())
    with torch.no_grad():
        for task in model.heads:
            pair = model.heads[task].pair
            data = pair_data() if pair else Dataset("x", "dev", "text", WORDS)
            model.eval()
            rows = [
                model(task, tokenize(tokenizer, [a]), tokenize(tokenizer, [b]) if pair else None)
                for a, b in zip(WORDS, WORDS[::-1])
            ]
            outputs = torch.cat(rows)
            model.train()
            assert_close(model.predict(task, data, raw=True), outputs, rtol=1e-4, atol=1e-5)
            answers = model.predict(task, data)
            assert_close(answers, model.heads[task].predict(outputs), rtol=1e-4, atol=1e-5)
            assert answers.dtype == (torch.float32 if task in ("stsb", "cosine") else torch.int64)
            assert not answers.requires_grad and answers.device.type == "cpu"
            assert model.training and model.encoder.model.training
            batch = TaskBatch(
                task, tokenize(tokenizer, WORDS), tokenize(tokenizer, WORDS[::-1]) if pair else None
            )
            assert_close(model.predict(task, batch), answers, rtol=1e-4, atol=1e-5)


def test_predict_keeps_the_mode_of_every_part(encoder):
    model = MultitaskBert(encoder, heads()).train()
    model.encoder.eval()
    model.predict("stsb", pair_data())
    assert model.training and model.heads["stsb"].drop.training and not model.encoder.model.training
    with pytest.raises(ValueError):
        model.predict("poetry", pair_data())
    assert model.training


def test_predict_encodes_each_sentence_once(encoder, monkeypatch):
    seen, encode = [], SentenceEncoder.encode
    monkeypatch.setattr(
        SentenceEncoder,
        "encode",
        lambda self, s, *a, **k: seen.append(list(s)) or encode(self, s, *a, **k),
    )
    model = MultitaskBert(encoder, heads())
    data = Dataset(
        "x", "dev", "similarity", ["no", "rain", "no", "no"], ["rain", "rain", "no", "rain"]
    )
    out = model.predict("stsb", data)
    assert [sorted(s) for s in seen] == [["no", "rain"]]
    assert out[0] == out[3] and out[0] != out[1]


def test_predict_over_more_rows_than_a_chunk(encoder):
    model = MultitaskBert(encoder, heads())
    n = 9001
    data = Dataset(
        "x", "dev", "similarity", [WORDS[i % 5] for i in range(n)], [WORDS[i % 6] for i in range(n)]
    )
    out = model.predict("stsb", data)
    assert out.shape == (n,)
    assert_close(out[8970:9000], out[:30], rtol=1e-5, atol=1e-6)


def test_predict_refuses_what_does_not_fit(encoder):
    model = MultitaskBert(encoder, heads())
    single = Dataset("x", "dev", "text", WORDS)
    for task, data, words in (
        ("stsb", single, "two sentences.*stsb.*one"),
        ("sst", pair_data(), "one sentence.*sst.*two"),
        ("poetry", single, "sst, quora.*poetry"),
        ("sst", Dataset("empty", "dev", "text", []), "empty"),
        ("sst", WORDS, "Dataset.* got list"),
        ("sst", WORDS[0], "Dataset.* got str"),
    ):
        with pytest.raises(ValueError, match=words):
            model.predict(task, data)


# -- losses of a step


def test_multitask_loss_weights(encoder, tokenizer):
    model = MultitaskBert(encoder, heads()).eval()
    batch = {
        "stsb": pair_batch(tokenizer),
        "sst": TaskBatch("sst", tokenize(tokenizer, WORDS), None, torch.arange(6) % 5),
    }
    plain = multitask_loss(model, batch)
    assert list(plain) == ["stsb", "sst"]
    assert_close(
        plain["sst"], model.heads["sst"].loss(model("sst", batch["sst"].first), batch["sst"].labels)
    )
    scaled = multitask_loss(model, batch, {"sst": 5.0, "quora": 20.0})
    assert_close(scaled["sst"], 5 * plain["sst"])
    assert_close(scaled["stsb"], plain["stsb"])
    assert multitask_loss(model, batch, {"sst": 0})["sst"] == 0
    part = pair_batch(tokenizer)
    half = TaskBatch("stsb", part.first, part.second, part.labels, weight=0.5)
    assert_close(multitask_loss(model, {"stsb": half})["stsb"], plain["stsb"] / 2)


def test_multitask_loss_finds_the_model_inside_a_wrapper(encoder, tokenizer):
    class Wrapper(nn.Module):
        def __init__(self, module):
            super().__init__()
            self.module, self.calls = module, 0

        def forward(self, *args):
            self.calls += 1
            return self.module(*args)

    model = MultitaskBert(encoder, heads()).eval()
    wrapped, batch = Wrapper(model), {"stsb": pair_batch(tokenizer)}
    assert_close(multitask_loss(wrapped, batch), multitask_loss(model, batch))
    assert wrapped.calls == 1  # through the wrapper's forward, where processes meet


def test_multitask_loss_errors(encoder, tokenizer):
    model = MultitaskBert(encoder, heads()).eval()
    batch = pair_batch(tokenizer)
    cases = [
        ({"stsb": TaskBatch("stsb", batch.first, batch.second)}, None, "labels for task 'stsb'"),
        ({"poetry": batch}, None, "poetry"),
        ({"stsb": batch}, {"poetry": 1}, "poetry"),
        ({"stsb": TaskBatch("stsb", batch.first, None, batch.labels)}, None, "two sentences"),
        (
            {"sst": TaskBatch("sst", batch.first, batch.second, torch.tensor([0, 1, 2]))},
            None,
            "one sentence",
        ),
        ({"stsb": pair_batch(tokenizer, labels=(1.0, 6.0, 0.0))}, None, r"\[0, 5\]"),
        ({"stsb": pair_batch(tokenizer, labels=(1.0, math.nan, 0.0))}, None, "nan"),
    ]
    for step, weights, words in cases:
        with pytest.raises(ValueError, match=words):
            multitask_loss(model, step, weights)
    with torch.no_grad():
        model.heads["stsb"].linear.bias.fill_(math.nan)
    with pytest.raises(ValueError, match="loss of stsb"):
        multitask_loss(model, {"stsb": batch})


def test_wrong_heads_are_refused(encoder):
    for wrong, word in (
        ({}, "at least one"),
        ({"sst": nn.Linear(16, 5)}, "Linear"),
        ({"a.b": LinearHead(16)}, "'a.b'"),
        ({"keys": LinearHead(16)}, "'keys'"),
        ({"a b": LinearHead(16)}, "'a b'"),
        ({"../x": LinearHead(16)}, "'../x'"),
    ):
        with pytest.raises(ValueError, match=word):
            MultitaskBert(encoder, wrong)


# -- folders


def test_a_saved_model_comes_back(encoder, tmp_path):
    model = MultitaskBert(encoder, heads(), "frozen", "encoder")
    encoder.transform = UnitLength()
    model.save_pretrained(tmp_path / "new" / "m")
    again = MultitaskBert.from_pretrained(tmp_path / "new" / "m", device="cpu")
    assert (again.mode, again.head_input, again.training) == ("frozen", "encoder", False)
    assert not any(p.requires_grad for p in again.encoder.parameters())
    assert again.state_dict().keys() == model.state_dict().keys()
    for name, x in model.state_dict().items():
        assert torch.equal(x, again.state_dict()[name]), name
    for task, head in model.heads.items():
        assert (
            type(again.heads[task]) is type(head)
            and again.heads[task].init_kwargs() == head.init_kwargs()
        )
        data = pair_data() if head.pair else Dataset("x", "dev", "text", WORDS)
        assert torch.equal(again.predict(task, data, raw=True), model.predict(task, data, raw=True))
    assert not [
        f
        for f in (tmp_path / "new" / "m").rglob("*")
        if f.suffix in {".bin", ".pt", ".pkl"} or f.name.startswith(".")
    ]


def test_the_folder_opens_in_sentence_transformers(encoder, tmp_path):
    from sentence_transformers import SentenceTransformer

    MultitaskBert(encoder, heads()).save_pretrained(tmp_path)
    theirs = SentenceTransformer(str(tmp_path), device="cpu").encode(WORDS, convert_to_tensor=True)
    assert_close(theirs, encoder.encode(WORDS), rtol=1e-5, atol=1e-5)


def test_saving_over_an_older_model_leaves_other_files_alone(encoder, tmp_path):
    MultitaskBert(encoder, heads()).save_pretrained(tmp_path)
    (tmp_path / "notes.txt").write_text("mine")
    newer = MultitaskBert(encoder, {"sst": LinearHead(16, 3)})
    newer.save_pretrained(tmp_path)
    again = MultitaskBert.from_pretrained(tmp_path, device="cpu")
    assert list(again.heads) == ["sst"] and again.heads["sst"].classes == 3
    assert (tmp_path / "notes.txt").read_text() == "mine"


def test_a_failed_save_leaves_the_older_model_whole(encoder, tmp_path):
    model = MultitaskBert(encoder, heads())
    model.save_pretrained(tmp_path)
    before = {f: f.read_bytes() for f in tmp_path.rglob("*") if f.is_file()}

    class Foreign(LinearHead):
        pass

    with pytest.raises(ValueError, match="Foreign"):
        MultitaskBert(encoder, {"sst": LinearHead(16), "own": Foreign(16)}).save_pretrained(
            tmp_path
        )
    assert {f: f.read_bytes() for f in tmp_path.rglob("*") if f.is_file()} == before


def test_broken_folders_are_named(encoder, tmp_path):
    MultitaskBert(encoder, heads()).save_pretrained(tmp_path / "good")

    def broken(change, words):
        shutil.rmtree(tmp_path / "bad", ignore_errors=True)
        shutil.copytree(tmp_path / "good", tmp_path / "bad")
        change(tmp_path / "bad")
        with pytest.raises(ValueError, match=words):
            MultitaskBert.from_pretrained(tmp_path / "bad", device="cpu")

    def cut(name):
        def change(folder):
            data = (folder / name).read_bytes()
            (folder / name).write_bytes(data[: len(data) // 2])

        return change

    def edit(name, **values):
        """Change a file, and the checksums in minbert_heads.json with it, as somebody who wants to
        would.
        """

        def change(folder):
            config = json.loads((folder / name).read_text())
            (folder / name).write_text(json.dumps(config | values))
            sealed = json.loads((folder / "minbert_heads.json").read_text())
            if name in sealed["files"]:
                sealed["files"][name] = hashlib.sha256((folder / name).read_bytes()).hexdigest()
                (folder / "minbert_heads.json").write_text(json.dumps(sealed))

        return change

    broken(cut("model.safetensors"), "model.safetensors")
    broken(cut("heads/sst/model.safetensors"), "sst.model.safetensors")
    broken(cut("minbert_heads.json"), "minbert_heads.json")
    broken(cut("heads/quora/config.json"), "quora.config.json")
    broken(cut("tokenizer.json"), "tokenizer.json as it was saved")
    broken(lambda f: (f / "minbert_heads.json").unlink(), "minbert_heads.json")
    broken(
        lambda f: (f / "heads/sst/model.safetensors").unlink(),
        "sst.model.safetensors: expected a file, got none",
    )
    broken(
        lambda f: shutil.copy(
            f / "heads/quora/model.safetensors", f / "heads/stsb/model.safetensors"
        ),
        "stsb.*another",
    )
    broken(edit("heads/sst/config.json", **{"class": "os.system"}), "os.system")
    broken(edit("heads/sst/config.json", **{"class": "minbert.heads.Path"}), "Path")
    broken(
        edit("heads/sst/config.json", **{"init_kwargs": {"width": 16, "classes": 4}}),
        "sst.model.safetensors .*LinearHead was saved",
    )
    broken(
        edit("heads/sst/config.json", **{"init_kwargs": {"width": 16, "kinds": 4}}),
        "sst.model.safetensors .*LinearHead was saved",
    )
    broken(
        lambda f: (f / "minbert_heads.json").write_text("{}"),
        "minbert_heads.json: expected 'tasks'",
    )
    broken(edit("minbert_heads.json", tasks=["sst", "poetry"]), "poetry")
    broken(edit("minbert_heads.json", tasks=["sst", "sst"]), "different tasks")
    broken(edit("minbert_heads.json", tasks=[]), "different tasks")
    broken(edit("minbert_heads.json", tasks=[["sst"]]), "different tasks")
    broken(edit("minbert_heads.json", files={}), "checksums of .*model.safetensors")
    broken(
        edit("minbert_heads.json", files={"../good/model.safetensors": ""}),
        "checksums of|below its folder",
    )
    broken(edit("minbert_heads.json", mode="half"), "half")
