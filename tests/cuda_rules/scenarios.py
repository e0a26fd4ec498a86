"""What must work on a GPU: one function for each corner of the package, run by test_cuda_rules.py,
each in a process of its own.

`echo NAME | python scenarios.py FOLDER` plays the GPU and prints how that ended; CUDA_RULES_GUARD
names the library.
"""

import json
import math
import os
import signal
import sys
import tempfile
import traceback
import warnings
from functools import partial
from importlib import import_module
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
from simulated import CUDA, counted, gpu  # noqa: E402

# isort: split
# `simulated` has to load its library before torch.
import torch  # noqa: E402

TASKS = ("sst", "quora", "stsb")
warnings.simplefilter("ignore")
TOKENIZER = []


def tokenizer():
    from minbert.tokens import load_tokenizer

    if not TOKENIZER:
        TOKENIZER.append(load_tokenizer())
    return TOKENIZER[0]


def encoder(device=CUDA, width=16, dropout=0.1):
    from minbert.encoder import BertConfig, BertModel
    from minbert.sentence import SentenceEncoder

    torch.manual_seed(1)
    config = BertConfig(
        len(tokenizer()),
        width,
        1,
        2,
        2 * width,
        hidden_dropout_prob=dropout,
        attention_probs_dropout_prob=dropout,
    )
    return SentenceEncoder(BertModel(config), tokenizer()).to(device)


def multitask(device=CUDA, tasks=TASKS, **options):
    from minbert.heads import MultitaskBert, default_heads

    whole = encoder("cpu", **options)
    return MultitaskBert(whole, default_heads(whole.width, tasks)).to(device)


def sets(split="train", rows=12):
    from minbert.data import load_dataset

    return {
        task: load_dataset(task, split).draw(rows, torch.Generator().manual_seed(3))
        for task in TASKS
    }


def batches(count, rows=4):
    from minbert.data import task_batches
    from minbert.sampling import TaskSampler

    data = sets()
    return task_batches(
        data,
        tokenizer(),
        TaskSampler({t: len(d) for t, d in data.items()}, rows, "joint", steps=count),
    )


def cloud(n=80, width=16, device=CUDA, dtype=torch.float32):
    return torch.randn(n, width, generator=torch.Generator().manual_seed(5), dtype=dtype).to(device)


def refuses(call, *words):
    try:
        call()
    except ValueError as error:
        assert all(word in str(error) for word in words), error
    else:
        raise AssertionError(f"expected a ValueError with {words}")


def on_gpu(x):
    assert x.device == CUDA, x.device
    return x


def rules():
    """Each rule of the simulation, broken once; then one event of each kind."""
    from simulated import DeviceError

    def broken(call, error=DeviceError):
        try:
            call()
        except error:
            return
        raise AssertionError("expected a refusal")

    x, y = torch.ones(3).to(CUDA), torch.ones(3)
    for call in (
        lambda: x + y,
        lambda: torch.cat([x, y]),
        lambda: y[torch.tensor([0]).to(CUDA)],
        lambda: torch.where(x > 0, x, y),
        lambda: torch.randn(3, generator=torch.Generator(), device=CUDA),
        lambda: torch.randn(3, generator=torch.Generator("cuda")),
        lambda: torch.nn.Linear(3, 1)(x),
        lambda: torch.nn.functional.embedding(torch.tensor([0]), x[:, None]),
    ):
        broken(call)
    broken(x.numpy, TypeError), broken(lambda: __import__("numpy").asarray(x), TypeError)
    assert (x + 1 + torch.tensor(2.0)).device == CUDA  # a number may come from the CPU
    torch.randn(3, generator=torch.Generator("cuda"), device=CUDA)
    counted()
    x.sum().item(), x.tolist(), bool(x.any()), x.nonzero(), x[x > 0], x.cpu(), torch.equal(x, x)
    torch.ones(3).to(CUDA)
    torch.empty(3, pin_memory=True).to(CUDA, non_blocking=True)
    return counted()


# what a step costs: waits and copies a step, once the first two steps are over


def costs(model, supply, loss_fn, backward=None, precision="fp32"):
    from minbert.core.device_step import DeviceStep
    from minbert.core.fused_adamw import FusedAdamW
    from minbert.training import steps, sum_losses

    model.train()
    optimizer, found = FusedAdamW([p for p in model.parameters() if p.requires_grad], lr=1e-3), []
    for record in steps(
        model,
        supply,
        loss_fn,
        optimizer,
        backward or sum_losses,
        max_grad_norm=1.0,
        take_step=DeviceStep(precision=precision),
    ):
        assert math.isfinite(record.loss) and isinstance(record.loss, float)
        found.append(counted())
    found = found[2:]
    return {
        kind: max(step.get(kind, 0) for step in found) for kind in ("wait", "copy", "blocking copy")
    }


def count_joint():
    from minbert.heads import multitask_loss

    return {
        precision: costs(multitask(), batches(4), multitask_loss, precision=precision)
        for precision in ("fp32", "bf16", "fp16")
    }


def count_accumulated():
    from minbert.core.device_step import DeviceStep
    from minbert.core.fused_adamw import FusedAdamW
    from minbert.heads import multitask_loss
    from minbert.training import steps

    model, found = multitask().train(), []
    for _ in steps(
        model,
        batches(9),
        multitask_loss,
        FusedAdamW(model.parameters(), lr=1e-3),
        max_grad_norm=1.0,
        accumulate=3,
        take_step=DeviceStep(),
    ):
        found.append(counted())
    return found[-1]


def count_penalties():
    from minbert.bregman import BregmanProximal
    from minbert.regularized import regularized_loss
    from minbert.smart_penalty import SmartPenalty
    from minbert.smoothness import SmoothnessPenalty

    kinds = {
        "smart": SmartPenalty(seed=1),
        "smart, two steps": SmartPenalty(steps=2),
        "smart on vectors": SmartPenalty(level="vectors"),
        "sampled": SmoothnessPenalty(points=20),
        "pgd": SmoothnessPenalty(search="pgd", steps=2),
        **{f"proximal, {kind}": BregmanProximal(previous=kind) for kind in ("step", "ema")},
    }
    return {
        name: costs(multitask(), batches(4), regularized_loss(penalty))
        for name, penalty in kinds.items()
    }


def count_surgery():
    from minbert.conflicts import GradVac
    from minbert.heads import multitask_loss
    from minbert.pcgrad import PCGrad

    found = {}
    for kind in (PCGrad, GradVac):
        model = multitask()
        found[kind.__name__] = costs(model, batches(4), multitask_loss, kind(model))
    return found


def views(columns=1, rows=6, **options):
    from itertools import islice

    from minbert.simcse import view_batches

    quora = sets()["quora"]
    return islice(
        view_batches([quora.sentences, quora.sentences2][:columns], tokenizer(), rows, **options), 4
    )


def count_views():
    from minbert.contrastive import mirror_loss
    from minbert.negatives import multiple_negatives_loss
    from minbert.simcse import ViewModel, view_loss

    losses = {
        "simcse": view_loss(),
        "mirror": view_loss(mirror_loss),
        "ranking": view_loss(multiple_negatives_loss),
    }
    return {name: costs(ViewModel(encoder()), views(2), loss) for name, loss in losses.items()}


def count_flow():
    from minbert.bertcf import joint_loss, start_joint
    from minbert.flow import train_flow

    found = {}
    for mixing in ("reverse", "lu"):
        model = start_joint(encoder(), sets(rows=80)["sst"].sentences, frozen=False, mixing=mixing)
        counted()
        found[f"joint, {mixing}"] = costs(model, views(), joint_loss())
    for place in (CUDA, "cpu"):
        flow, steps = model.flow, []
        counted()
        for record in train_flow(flow, cloud(device=place), steps=5, batch_size=16):
            steps.append(counted())
        found[f"alone, vectors on {torch.device(place).type}"] = {
            kind: max(step.get(kind, 0) for step in steps[2:4])
            for kind in ("wait", "copy", "blocking copy")
        }
    return found


def count_pretraining():
    from minbert.cli.pretraining import packed_mlm_loss
    from minbert.pretrain import MlmHead

    bert = encoder(dropout=0.0).model
    model = torch.nn.ModuleDict({"bert": bert, "head": MlmHead(bert.config).to(CUDA)})

    return costs(model, mlm_supply(4), partial(packed_mlm_loss, packed=False))


def mlm_supply(count, rows=6):
    from minbert.cli.pretraining import MlmBatch, chosen_positions
    from minbert.pretrain import mask_tokens, special_positions
    from minbert.tokens import tokenize

    generator = torch.Generator().manual_seed(0)
    for _ in range(count):
        batch = tokenize(tokenizer(), sets()["quora"].sentences[:rows])
        special = special_positions(*batch, tokenizer().all_special_ids)
        ids, labels = mask_tokens(
            batch.input_ids, special, tokenizer().mask_token_id, len(tokenizer()), 0.3, generator
        )
        yield MlmBatch(ids, batch.attention_mask, labels, chosen_positions(labels))


# rules: what must run, and what must be refused with a sentence


def losses():
    from minbert import batches, contrastive, losses, negatives

    logits, grades = cloud(6, 5).requires_grad_(), cloud(6, 1)[:, 0].requires_grad_()
    for place in (CUDA, "cpu"):  # labels may lie on either side
        classes, yes, score = (
            torch.tensor(x).to(place)
            for x in ([0, 1, 2, 3, 4, 0], [0, 1, 1, 0, 1, 0], [0.0, 1, 2.5, 5, 4, 3])
        )
        for loss in (
            losses.classes_loss(logits, classes),
            losses.paraphrase_loss(grades, yes),
            losses.paraphrase_mse_loss(grades, yes),
            losses.similarity_loss(grades, score),
            losses.clipped_paraphrase_loss(grades, yes),
            losses.clipped_similarity_loss(grades, score),
            contrastive.contrastive_loss(cloud(6).requires_grad_(), cloud(6).flip(0), yes),
        ):
            on_gpu(loss).backward()
        on_gpu(losses.zero_gradient_fraction(grades, yes))
        refuses(lambda: losses.classes_loss(logits, classes + 1), "labels in [0, 4]", "5")
        refuses(lambda: losses.classes_loss(logits, classes / 2), "whole classes", "0.5")
        refuses(lambda: losses.signed_labels(classes), "expected labels of 0 and 1")
        refuses(
            lambda: contrastive.contrastive_loss(cloud(6), cloud(6).flip(0), yes / 2),
            "labels 0 and 1",
        )
        groups = torch.tensor([0, 0, 1, 2, 2, 3]).to(place)
        u, v, hard = (cloud(6).roll(i, 0).requires_grad_() for i in range(3))
        for loss in (
            contrastive.simcse_loss(u, v, hard=hard, groups=groups),
            contrastive.mirror_loss(u, v, symmetric=True, groups=groups),
            negatives.multiple_negatives_loss(u, v, groups=groups, symmetric=True, hard=hard),
            negatives.multiple_negatives_loss(u, v, groups=groups, score="dot", scale=1.0),
        ):
            on_gpu(loss).backward()
        (
            negatives.collision_rate(groups),
            batches.no_duplicate_batches(groups, 2),
        )
    for call in (losses.predicted_class,):
        on_gpu(call(logits))
    on_gpu(losses.predicted_binary(grades)), on_gpu(losses.predicted_score(grades))
    refuses(
        lambda: contrastive.simcse_loss(cloud(4), cloud(4).flip(0), groups=torch.zeros(3)),
        "expected groups of shape (4,)",
    )
    refuses(
        lambda: negatives.multiple_negatives_loss(cloud(4) / 0, cloud(4)),
        "finite numbers in anchors",
    )


def heads():
    from minbert.heads import ConcatDiff, CosineHead, LinearHead, LinearPlusCosine, PairLinear
    from minbert.losses import ClippedCosineHead
    from minbert.regularized import output_distance
    from minbert.smoothness import linear_maximum, sampled_smoothness

    yes = torch.tensor([0, 1, 1, 0])
    grades = torch.tensor([0.0, 2, 4, 5])
    classes = torch.tensor([0, 1, 2, 0])
    kinds = [
        (LinearHead(16, 3), classes),
        (PairLinear(16), yes),
        (PairLinear(16, "similarity"), grades),
        (PairLinear(16, "paraphrase_mse"), yes),
        (ConcatDiff(16), yes),
        (ConcatDiff(16, 3, "classes"), classes),
        (CosineHead(), yes),
        (CosineHead("similarity"), grades),
        (LinearPlusCosine(16), yes),
        (LinearPlusCosine(16, "similarity"), grades),
        (ClippedCosineHead(16, project=8), yes),
        (ClippedCosineHead(16, "similarity", clip_positives=False, project=8), grades),
    ]
    for head, labels in kinds:
        head.to(CUDA)
        vectors = tuple(cloud(4).roll(i, 0).requires_grad_() for i in range(1 + head.pair))
        outputs = head(*vectors)
        on_gpu(head.loss(outputs, labels)).backward()
        on_gpu(head.predict(outputs))
        on_gpu(output_distance(head)(outputs, outputs.roll(1, 0)))
        for search in ("random", "pgd"):
            for generator in (None, torch.Generator("cuda"), torch.Generator()):
                on_gpu(
                    sampled_smoothness(
                        head, vectors, search=search, points=7, steps=2, generator=generator
                    )
                ).backward()
        if type(head) in (LinearHead, PairLinear):
            on_gpu(linear_maximum(head, vectors, 0.1))
        head.init_kwargs()


def generators():
    from minbert.batches import no_duplicate_batches
    from minbert.conflicts import vaccine_weights
    from minbert.contrastive import span_lengths, span_mask
    from minbert.flow import MIXINGS, Flow
    from minbert.pcgrad import project_conflicting, project_weights
    from minbert.pretrain import mask_tokens, special_positions
    from minbert.smoothness import ball_points
    from minbert.tokens import tokenize

    batch = tokenize(tokenizer(), sets()["quora"].sentences[:4])
    same = []
    for ids_on in (CUDA, "cpu"):
        for draws_on in ("cuda", "cpu", None):
            generator = None if draws_on is None else torch.Generator(draws_on).manual_seed(7)
            ids, mask = (x.to(ids_on) for x in batch)
            special = special_positions(ids, mask, tokenizer().all_special_ids)
            hidden = span_mask(
                ids, special, tokenizer().mask_token_id, generator=generator, single_mask=True
            )
            assert hidden.device.type == torch.device(ids_on).type
            if draws_on in (None, torch.device(ids_on).type):  # masks are drawn where the ids are
                masked = mask_tokens(ids, special, tokenizer().mask_token_id, 100, 0.3, generator)
                assert {x.device.type for x in masked} == {torch.device(ids_on).type}
            same += [hidden.cpu()] if draws_on == "cpu" else []
            assert span_lengths(5, generator=generator).device.type == "cpu"
            no_duplicate_batches(torch.arange(6).to(ids_on), 2, generator)
            (
                project_conflicting(cloud(3, 8, ids_on), generator),
                project_weights(torch.eye(3).to(ids_on), generator),
            )
            vaccine_weights(
                torch.eye(3).to(ids_on), torch.zeros(3, 3, dtype=torch.float64), generator=generator
            )
            (
                ball_points(4, 8, generator=generator),
                ball_points(4, 8, p=1.5, where="volume", generator=generator),
            )
            for mixing in MIXINGS:
                assert {
                    p.device.type for p in Flow(8, mixing=mixing, generator=generator).parameters()
                } == {"cpu"}
                flow = Flow(8, mixing=mixing).to(ids_on).initialize(cloud(70, 8, "cpu"))
                assert flow.sample(5, generator).device.type == torch.device(ids_on).type
    assert torch.equal(*same), "a generator on the CPU draws the same for ids on either side"


def penalties():
    from minbert.bregman import BregmanProximal
    from minbert.core.device_step import DeviceStep
    from minbert.core.fused_adamw import FusedAdamW
    from minbert.regularized import regularized_loss
    from minbert.smart_penalty import SmartPenalty
    from minbert.smoothness import SmoothnessPenalty
    from minbert.training import steps

    proximal = [
        BregmanProximal(previous=t, every=2 if t == "epoch" else None)
        for t in ("step", "epoch", "ema", "once_per_batch")
    ]
    smart = [
        SmartPenalty(level=level, variant=variant, target=target, steps=2, p=p)
        for level in ("tokens", "vectors")
        for variant, target, p in (
            ("paper", "clean", math.inf),
            ("paper", "clean", 2),
            ("rescale", "labels", math.inf),
            ("printed", "clean", 2),
        )
    ]
    for penalty in (
        *proximal,
        BregmanProximal(dropout="same", dtype=torch.bfloat16),
        *smart,
        SmoothnessPenalty(points=9),
        SmoothnessPenalty(search="pgd"),
    ):
        for mode in ("full", "frozen"):
            model = multitask()
            model.set_mode(mode)
            loss = regularized_loss(penalty)
            optimizer = FusedAdamW([p for p in model.parameters() if p.requires_grad], lr=1e-3)
            for record in steps(
                model.train(),
                batches(2),
                loss,
                optimizer,
                max_grad_norm=1.0,
                take_step=DeviceStep(),
            ):
                assert math.isfinite(record.loss)
            if hasattr(penalty, "state_dict"):
                penalty.load_state_dict(penalty.state_dict())
            if mode == "full" and getattr(penalty, "previous", "") == "ema":
                list(steps(model, batches(1), loss, optimizer, take_step=DeviceStep()))


def surgery():
    from minbert.conflicts import GradVac, conflict_summary
    from minbert.core.device_step import DeviceStep
    from minbert.core.fused_adamw import FusedAdamW
    from minbert.heads import multitask_loss
    from minbert.pcgrad import PCGrad
    from minbert.training import steps

    for kind in (PCGrad, GradVac):
        model = multitask("cpu")
        # made before the model moves, as in the command line
        operate = kind(model, reduction="mean")
        model.to(CUDA).train()
        list(
            steps(
                model,
                batches(2),
                multitask_loss,
                FusedAdamW(model.parameters(), lr=1e-3),
                operate,
                accumulate=2,
                max_grad_norm=1.0,
                take_step=DeviceStep(),
            )
        )
        assert len(operate.records) == 2 and len(conflict_summary(operate.records)) == 3
        operate.load_state_dict(operate.state_dict())


def flow():
    from minbert.bertcf import joint_decays, joint_loss, start_joint
    from minbert.core.device_step import DeviceStep
    from minbert.core.fused_adamw import FusedAdamW
    from minbert.flow import COUPLINGS, MIXINGS, Flow, bertcf_loss, flow_groups, train_flow
    from minbert.optim import parameter_groups
    from minbert.training import steps

    u = cloud()
    for mixing in MIXINGS:
        for coupling in COUPLINGS:
            f = Flow(16, depth=2, levels=2, mixing=mixing, coupling=coupling, hidden=8).to(CUDA)
            refuses(lambda: f.eval()(u), "started from data")
            f.initialize(u.cpu())  # a batch from `encode` lies on the CPU
            z, log_det = f(u)
            assert torch.allclose(on_gpu(f.inverse(z)).cpu(), u.cpu(), atol=1e-3)
            assert torch.allclose(f(u.cpu())[0].cpu(), z.cpu()), (
                "vectors of `encode` go where the flow is"
            )
            on_gpu(f.sample(3)), on_gpu(f.nll(u, "nats")).mean().backward()
            twin = Flow(**f.init_kwargs()).to(CUDA)
            twin.load_state_dict({k: v.cpu() for k, v in f.state_dict().items()})
            assert twin.initialized and torch.equal(twin(u)[0].cpu(), f(u)[0].cpu())
            losses = bertcf_loss(f, u[:8], u[:8].roll(1, 0), u[:8], groups=torch.arange(8))
            sum(losses.values()).backward()
            refuses(lambda: f.nll(u / 0), "finite numbers in vectors")
    for vectors in (u, u.cpu()):
        fresh = Flow(16).to(CUDA)
        assert len(list(train_flow(fresh, vectors, epochs=1, batch_size=32))) == 3
    fresh = Flow(16).to(CUDA).train()
    fresh(u.cpu())  # in train mode the first batch starts it
    for frozen in (True, False):
        model = start_joint(
            encoder(), sets(rows=80)["sst"].sentences, frozen=frozen, mixing="dense"
        )
        optimizer = FusedAdamW(parameter_groups(model, decays=joint_decays), lr=1e-3)
        list(
            steps(
                model.train(),
                views(),
                joint_loss(),
                optimizer,
                max_grad_norm=1.0,
                take_step=DeviceStep(),
            )
        )
        assert model.sentence_encoder().encode(["a b", "c"]).shape == (2, 16)
    flow_groups(fresh)


def contrastive():
    from functools import partial

    from minbert.batches import pair_batches
    from minbert.contrastive import mirror_loss, span_mask
    from minbert.encoding.chunked_encoder import ChunkedEncoder
    from minbert.negatives import multiple_negatives_loss
    from minbert.simcse import Projection, ViewModel, keep_best, train_views, view_loss

    hide = partial(span_mask, mask_id=tokenizer().mask_token_id)

    def corrupt(ids, special, generator):
        return hide(ids, special, generator=generator)

    quora = sets()["quora"]
    for loss in (
        view_loss(),
        view_loss(mirror_loss),
        view_loss(multiple_negatives_loss),
        view_loss(partial(multiple_negatives_loss, score="dot")),
    ):
        for chunk in (None, 5):
            one = encoder() if chunk is None else ChunkedEncoder(encoder(), chunk)
            model = ViewModel(one, Projection(16).to(CUDA))
            records = train_views(model, views(corrupt=corrupt), loss, 3)
            for record, score in keep_best(records, model, lambda: 1.0, 2):
                assert math.isfinite(record.loss)
    pairs = pair_batches([quora.sentences, quora.sentences2], tokenizer(), 4)
    list(train_views(ViewModel(encoder()), pairs, view_loss(multiple_negatives_loss), 2))


def calibration():
    from minbert import geometry
    from minbert.sentence import SentenceEncoder, UnitLength
    from minbert.whitening import NullTop, Standardize, StandardizeNullTop, Whiten, score_top

    x = cloud()
    for kind in (Standardize, NullTop, StandardizeNullTop, Whiten):
        for place, fitted_on in ((CUDA, x), (CUDA, x.cpu()), ("cpu", x)):
            made = kind(16).to(place).fit(fitted_on)
            on_gpu(made(x))
        whole = encoder()
        whole.transform = kind(16).to(CUDA).fit(whole.encode(sets()["sst"].sentences))
        assert whole.encode(["a", "b c d"]).isfinite().all()
    score_top(NullTop, x, x[:10], x[10:20], range(10), range(1, 3))
    for measure in (
        geometry.mean_cosine,
        geometry.uniformity,
        geometry.isoscore,
        geometry.effective_rank,
        geometry.partition_isotropy,
        geometry.singular_spectrum,
    ):
        measure(x)
    geometry.alignment(x, x.roll(1, 0)), geometry.uniformity_labelled(x, x.roll(1, 0))
    SentenceEncoder(encoder().model, tokenizer(), transform=UnitLength()).to(CUDA).encode(["a"])


def encoding():
    from minbert.sentence import POOLINGS, SentenceEncoder

    sentences = [*sets()["quora"].sentences, ""]
    reference = encoder("cpu").eval()
    for pooling in POOLINGS:
        whole = SentenceEncoder(encoder().model, tokenizer(), pooling)
        counted()
        found = whole.encode(sentences, batch_tokens=64)
        reference.pooling = pooling
        assert torch.allclose(found, reference.encode(sentences, batch_tokens=64), atol=1e-5), (
            pooling
        )
        assert found.device.type == "cpu"
        whole.encode(sentences, precision="bf16")
    whole = SentenceEncoder.from_pretrained()
    assert whole.device == CUDA and whole.encode(["It runs on the GPU."]).shape == (1, whole.width)
    bad = torch.full((1, 3), 10**6)
    from minbert.encoding.forward import encode_batch
    from minbert.tokens import TokenBatch

    refuses(lambda: encode_batch(encoder().model, bad.to(CUDA)), "input_ids in [0,", "(0, 0)")

    refuses(
        lambda: encoder().embed(TokenBatch(bad, torch.ones_like(bad))), "input_ids in [0,", "(0, 0)"
    )
    refuses(
        lambda: encoder().embed(TokenBatch(torch.ones_like(bad), torch.zeros_like(bad))),
        "only padding in rows [0]",
    )
    whole = encoder()
    counted()
    whole.embed(TokenBatch(torch.ones_like(bad), torch.ones_like(bad)))
    found = {"embed": counted()}
    whole.encode(
        ["one", "two words", "three words here", "and now there are five"], batch_tokens=14
    )
    return found | {"encode": counted()}


def batches_of_all_kinds():
    """A batch may check itself when it is made, and hold one tensor twice; what cannot go in one
    copy goes alone.
    """
    from dataclasses import dataclass

    from minbert.core.devices import to_device

    @dataclass
    class Careful:
        ids: torch.Tensor

        def __post_init__(self):
            if not isinstance(self.ids, torch.Tensor):
                raise ValueError(f"expected a tensor, got {self.ids!r}")

    ids, weight = torch.arange(3), torch.ones(2, requires_grad=True)
    counted()
    there = to_device({"a": Careful(ids), "b": [ids, None, "x"], "c": weight}, CUDA)
    assert counted() == {"copy": 1, "blocking copy": 1}
    assert there["a"].ids is there["b"][0] and there["b"][1:] == [None, "x"]
    assert on_gpu(there["a"].ids).cpu().tolist() == [0, 1, 2] and on_gpu(there["c"]).requires_grad


def one_ahead():
    """A thread sends the next batch; the loop has nothing left to send, and what is checked is
    checked on the originals.
    """
    from minbert.core.device_step import DeviceStep
    from minbert.core.fused_adamw import FusedAdamW
    from minbert.core.prefetch import Ahead
    from minbert.heads import multitask_loss
    from minbert.training import steps

    plain, ahead = multitask(dropout=0.0), multitask(dropout=0.0)

    def losses(model, supply):
        return torch.manual_seed(2) and [
            r.losses
            for r in steps(
                model.train(),
                supply,
                multitask_loss,
                FusedAdamW(model.parameters(), lr=1e-3),
                take_step=DeviceStep(),
            )
        ]

    assert losses(plain, batches(4)) == losses(ahead, Ahead(CUDA).over(batches(4)))
    assert all(
        torch.equal(a.detach().cpu(), b.detach().cpu())
        for a, b in zip(plain.parameters(), ahead.parameters())
    )
    counted()
    sent = list(Ahead(CUDA).over(batches(3)))
    assert counted() == {"copy": 3}
    on_gpu(sent[0]["sst"].labels), on_gpu(sent[2]["quora"].second.input_ids)
    losses(ahead, iter(sent))
    found = counted()
    assert found["wait"] == 3 and "copy" not in found and "blocking copy" not in found, found


def bad_batches():
    """In a step ids and labels are refused while they are on the CPU, without a wait; NaN is
    refused before a weight moves.
    """
    from dataclasses import replace

    from minbert.core.device_step import DeviceStep
    from minbert.core.fused_adamw import FusedAdamW
    from minbert.heads import multitask_loss
    from minbert.pcgrad import PCGrad
    from minbert.training import steps, sum_losses

    good = next(iter(batches(1)))

    def spoil(task, **change):
        return {**good, task: replace(good[task], **change)}

    ids = good["quora"].second.input_ids.clone()
    ids[1, 1] = 10**6
    cases = [
        (spoil("quora", second=good["quora"].second._replace(input_ids=ids)), "input_ids in [0,"),
        (spoil("sst", labels=good["sst"].labels + 5), "labels in [0, 4]"),
        (spoil("sst", labels=good["sst"].labels + 0.5), "labels"),
        (spoil("stsb", labels=good["stsb"].labels * math.nan), "labels in [0, 5]"),
        (
            spoil(
                "sst",
                first=good["sst"].first._replace(
                    attention_mask=0 * good["sst"].first.attention_mask
                ),
            ),
            "only padding",
        ),
    ]
    for batch, words in cases:
        model = multitask()
        refuses(
            lambda: list(
                steps(
                    model,
                    [batch],
                    multitask_loss,
                    FusedAdamW(model.parameters()),
                    take_step=DeviceStep(),
                )
            ),
            "step 0",
            words,
        )
    model = multitask()
    before = [p.detach().cpu().clone() for p in model.parameters()]

    def broken(m, b):
        return {k: v * (math.nan if k == "quora" else 1) for k, v in multitask_loss(m, b).items()}

    # its gradient is finite
    def endless(m, b):
        return {k: v + (math.inf if k == "quora" else 0) for k, v in multitask_loss(m, b).items()}

    for loss_fn in (broken, endless):
        for backward in (sum_losses, PCGrad(model)):
            refuses(
                lambda: list(
                    steps(
                        model,
                        [good],
                        loss_fn,
                        FusedAdamW(model.parameters()),
                        backward,
                        take_step=DeviceStep(),
                    )
                ),
                "step 0",
                "finite loss for task 'quora'",
            )
    assert all(torch.equal(a, b.detach().cpu()) for a, b in zip(before, model.parameters()))

    def steep(m, b):
        return {
            k: v + (0 * m.heads[k].linear.weight).abs().sqrt().sum()
            for k, v in multitask_loss(m, b).items()
        }

    refuses(
        lambda: list(
            steps(
                model,
                [{"sst": good["sst"]}],
                steep,
                FusedAdamW(model.parameters()),
                take_step=DeviceStep(),
            )
        ),
        "step 0",
        "first in heads.sst.linear.weight",
    )
    assert all(torch.equal(a, b.detach().cpu()) for a, b in zip(before, model.parameters()))


def broken_search():
    """A gradient of a search that is not finite moves nothing: the noise stays, whether one may
    look or not.
    """
    from minbert.core.devices import without_waiting
    from minbert.regularized import symmetric_kl
    from minbert.smart_penalty import Attack, smart_loss

    x = cloud(4, 6).requires_grad_()

    def steep(x):
        return (x - x.detach()).abs().sqrt()[:, :3]  # infinite slope at 0

    clean = steep(x)
    loss, stats = smart_loss(
        x, steep, clean, symmetric_kl, Attack("paper"), start=torch.zeros_like(x)
    )
    assert stats.skipped and loss.item() == 0
    counted()
    with without_waiting():
        loss, stats = smart_loss(
            x, steep, clean, symmetric_kl, Attack("paper"), start=torch.zeros_like(x)
        )
    assert "wait" not in counted()
    assert loss.item() == 0 and not stats.delta.cpu().any()


def attention_masks():
    """What attention is given: no mask where nothing is padded, on the way in and in training."""
    import torch.nn.functional as F

    from minbert.core.device_step import DeviceStep
    from minbert.core.fused_adamw import FusedAdamW
    from minbert.heads import multitask_loss
    from minbert.training import steps

    real, seen = F.scaled_dot_product_attention, []
    F.scaled_dot_product_attention = lambda *a, attn_mask=None, **k: (
        seen.append(attn_mask is None) or real(*a, attn_mask=attn_mask, **k)
    )

    def noted(call):
        call(), seen.insert(0, len(set(seen)))
        found = seen[1] if seen[0] == 1 else "both"
        seen.clear()
        return found

    model, whole = multitask(tasks=("sst",)), encoder()
    ids = torch.randint(5, 90, (3, 7), generator=torch.Generator().manual_seed(1))
    full = torch.ones_like(ids)
    part = full.index_fill(1, torch.tensor([6]), 0)
    from minbert.data import TaskBatch
    from minbert.encoding.forward import encode_batch
    from minbert.tokens import TokenBatch

    def train(mask):
        return list(
            steps(
                model.train(),
                [
                    {
                        "sst": TaskBatch(
                            "sst", TokenBatch(ids, mask), None, torch.tensor([0, 1, 2]), 1.0
                        )
                    }
                ],
                multitask_loss,
                FusedAdamW(model.parameters(), lr=1e-3),
                take_step=DeviceStep(precision="bf16"),
            )
        )

    found = {
        "step, full": noted(lambda: train(full)),
        "step, padded": noted(lambda: train(part)),
        "embed, full": noted(lambda: whole.embed(TokenBatch(ids, full))),
        "embed, padded": noted(lambda: whole.embed(TokenBatch(ids, part))),
        "ids on the gpu": noted(lambda: encode_batch(whole.model, ids.to(CUDA), full.to(CUDA))),
    }
    F.scaled_dot_product_attention = real
    return found


def one_call_attention():
    """torch's variable-length kernel, played by plain attention: who gets it, and that values and
    gradients stay.
    """
    import torch.nn.attention.varlen as library
    import torch.nn.functional as F

    from minbert.encoding import varlen_attention
    from minbert.encoding.forward import packing_pays
    from minbert.tokens import TokenBatch

    calls = []

    def played(q, k, v, starts, ends, longest, longest_):
        assert (
            q.dtype in (torch.bfloat16, torch.float16)
            and q.dim() == 3
            and starts.dtype == torch.int32
            and starts is ends
        )
        borders = starts.inner.tolist()
        assert (
            borders[0] == 0
            and borders[-1] == len(q)
            and longest == longest_ == max(b - a for a, b in zip(borders, borders[1:]))
        )
        calls.append(borders)
        sizes = [b - a for a, b in zip(borders, borders[1:])]
        parts = zip(*(x.split(sizes) for x in (q, k, v)))
        return torch.cat(
            [
                F.scaled_dot_product_attention(*(x.transpose(0, 1)[None] for x in part))[
                    0
                ].transpose(0, 1)
                for part in parts
            ]
        )

    ids = torch.randint(5, 90, (4, 12), generator=torch.Generator().manual_seed(1))
    mask = (torch.arange(12) < torch.tensor([[3], [12], [0], [5]])).long()
    batch = TokenBatch(ids, mask)

    def run(model, dtype=torch.bfloat16, use=True):
        varlen_attention._agrees.cache_clear(), calls.clear()
        library.varlen_attn = played if use else broken
        model.zero_grad()
        counted()
        with torch.autocast("cuda", dtype, enabled=dtype is not None):
            vectors = model(*to_device(batch, CUDA), allow_empty=True)
        vectors.float().square().sum().backward()
        return (
            vectors.detach().cpu(),
            {n: p.grad.cpu() for n, p in model.named_parameters() if p.grad is not None},
            len(calls),
        )

    def broken(*args):
        raise RuntimeError("no kernel image is available")

    from minbert.core.devices import to_device

    def still():
        return encoder(dropout=0.0).train()

    with_kernel, slopes, used = run(still())
    counted()
    with torch.autocast("cuda", torch.bfloat16), torch.no_grad():
        still()(*to_device(batch, CUDA), allow_empty=True)
    found = {"waits": counted().get("wait", 0)}
    padded, slopes_padded, none = run(still(), use=False)
    assert used == 1 + 1 and none == 0, (used, none)  # the trial, and a layer
    assert torch.allclose(with_kernel, padded, atol=3e-2) and padded.abs().max() > 0.3
    for name, slope in slopes.items():
        assert torch.allclose(
            slope, slopes_padded[name], atol=3e-2 * max(1.0, slope.abs().max().item())
        ), name
    found |= {
        "fp32": run(still(), None)[2],
        "training with dropout": run(encoder().train())[2],
        "eval with dropout": run(encoder().eval())[2],
    }
    library.varlen_attn = lambda *a: 1.1 * played(*a)
    varlen_attention._agrees.cache_clear()
    found["a kernel that is off by a tenth"] = varlen_attention.serves(CUDA, torch.bfloat16, 8)
    library.varlen_attn = played
    with torch.autocast("cuda", torch.bfloat16):
        sent = to_device(batch, CUDA)
        varlen_attention._agrees.cache_clear()
        model = still()
        found["much padding"] = packing_pays(model.model, sent.attention_mask)
        found["little padding"] = packing_pays(
            model.model, to_device(torch.ones_like(ids).index_fill(1, torch.tensor([11]), 0), CUDA)
        )
        model.model.bert_layers[0].compile(backend="eager")
        found["compiled"] = packing_pays(model.model, sent.attention_mask)
    return found


def heads_beside():
    """Heads are made on the CPU, an encoder takes the GPU by itself."""
    from minbert.heads import MultitaskBert, default_heads

    whole, rows = encoder(), sets("dev", 4)
    model = MultitaskBert(whole, default_heads(whole.width, TASKS))
    return [
        sorted({str(p.device) for p in model.parameters()}),
        {task: len(model.predict(task, data)) for task, data in rows.items()},
    ]


def fitting():
    from minbert.bregman import BregmanProximal
    from minbert.core.checkpoint import read_checkpoint
    from minbert.finetune import Phase, TrainConfig, fit
    from minbert.pcgrad import PCGrad
    from minbert.regularized import regularized_loss
    from minbert.smart_penalty import SmartPenalty

    train, dev = sets(), sets("dev", 8)

    def run(folder, steps_, resume=False, stop=None, extras=False, **options):
        model = multitask("cpu")
        more = (
            {
                "backward": PCGrad(model, seed=1),
                "loss_fn": regularized_loss(SmartPenalty(), BregmanProximal(previous="ema")),
            }
            if extras
            else {}
        )
        config = TrainConfig(
            TASKS, steps=steps_, batch_size=4, lr=1e-3, eval_every=2, save_every=1, **options
        )
        if stop is not None:
            from minbert.core import run_dir as module

            write = module.RunFolder.write

            def halting(self, entries):
                write(self, entries)
                if entries[0]["step"] == stop:
                    raise KeyboardInterrupt

            module.RunFolder.write = halting
        try:
            result = fit(model, train, dev, config, folder, resume, **more)
        except KeyboardInterrupt:
            return None
        finally:
            if stop is not None:
                module.RunFolder.write = write
        assert next(model.parameters()).device == CUDA
        return [p.detach().cpu() for p in model.parameters()], result

    with tempfile.TemporaryDirectory() as place:
        for extras, options in ((False, {}), (True, {}), (False, {"precision": "fp16"})):
            name = f"{place}/{extras}{options}"
            whole, _ = run(name + "a", 4, extras=extras, **options)
            assert run(name + "b", 4, stop=2, extras=extras, **options) is None
            again, result = run(name + "b", 4, resume=True, extras=extras, **options)
            assert read_checkpoint(name + "b")["extra"]["settings"]["length_bucket"] == 16, (
                "padding costs time there: rows of one length"
            )
            assert all(torch.equal(a, b) for a, b in zip(whole, again)), (
                f"a resumed run ends elsewhere: {extras}, {options}"
            )
            assert [line["step"] for line in result.log if "loss" in line] == [0, 1, 2, 3]
        for options in (
            {"precision": "bf16"},
            {"mode": "frozen"},
            {"schedule": "round_robin"},
            {"schedule": "sequential"},
            {"accumulate": 2},
            {"phases": (Phase(TASKS, "sqrt", steps=1), Phase(("sst",), steps=1, mode="frozen"))},
        ):
            run(place + "/c", None if "phases" in options else 2, **options)


def half_precision():
    """A GPU that imitates bfloat16 gets float16 and scaled losses; launched precisions are honoured
    or refused.
    """
    from minbert.core.device_step import DeviceStep
    from minbert.core.devices import half_type
    from minbert.core.fused_adamw import FusedAdamW
    from minbert.finetune import TrainConfig, fit
    from minbert.heads import multitask_loss
    from minbert.training import steps

    assert half_type(CUDA, "bf16") == torch.float16
    model = multitask()
    seen = []

    def loss_fn(m, b):
        return multitask_loss(m, b)

    hook = model.encoder.model.pooler_dense.register_forward_hook(
        lambda module, args, out: seen.append(out.dtype)
    )

    def tiny(m, b):
        return {k: v * 1e-12 for k, v in loss_fn(m, b).items()}

    for record in steps(
        model.train(),
        batches(2),
        tiny,
        FusedAdamW(model.parameters(), lr=1e-3),
        take_step=DeviceStep(precision="bf16"),
    ):
        assert record.grad_norm > 0
    hook.remove()
    assert set(seen) == {torch.float16}
    model = multitask()

    # overflows at 2^16, not at a smaller factor
    def large(m, b):
        return {k: v * 100 for k, v in loss_fn(m, b).items()}

    for record in steps(
        model.train(),
        batches(3),
        large,
        FusedAdamW(model.parameters(), lr=1e-3),
        take_step=DeviceStep(precision="fp16"),
    ):
        assert math.isfinite(record.grad_norm)
    from minbert.core.devices import new_accelerator

    with tempfile.TemporaryDirectory() as place:
        result = fit(
            multitask("cpu"),
            sets(),
            sets("dev", 6),
            TrainConfig(TASKS, steps=2, batch_size=4),
            place + "/a",
            accelerator=new_accelerator(mixed_precision="fp16"),
        )
        assert len([line for line in result.log if "loss" in line]) == 2


def evaluation():
    from minbert.evaluate import (
        drop_linear,
        evaluate_sts,
        evaluate_tasks,
        results_table,
        swap_symmetry,
        write_predictions,
    )
    from minbert.heads import MultitaskBert

    model, dev = multitask().eval(), sets("dev", 8)
    results_table(evaluate_tasks(model, dev, resamples=20))
    for task, data in dev.items():
        assert model.predict(task, data).device.type == "cpu"
    for task, batch in next(iter(batches(1))).items():
        assert model.predict(task, batch, raw=True).device.type == "cpu"
    swap_symmetry(model, "quora", dev["quora"]), drop_linear(model, "stsb", dev["stsb"])
    evaluate_sts(model.encoder, tasks=("stsb",), split="dev")
    with tempfile.TemporaryDirectory() as folder:
        write_predictions(model, dev, folder)
        model.save_pretrained(folder + "/model")
        again = MultitaskBert.from_pretrained(folder + "/model")
        assert again.encoder.device == CUDA and again.heads["sst"].linear.weight.device == CUDA
        assert torch.equal(
            again.predict("quora", dev["quora"], raw=True),
            model.predict("quora", dev["quora"], raw=True),
        )


def pretraining():
    from minbert.cli.model_card import tokens_seen, write_card
    from minbert.cli.pretraining import PretrainConfig, pretrain
    from minbert.pretrain import load_mlm, masked_accuracy, save_mlm
    from minbert.sts import sts_by_pooling

    text = "\n".join(sets(rows=60)["quora"].sentences + sets(rows=60)["sst"].sentences)
    with tempfile.TemporaryDirectory() as place:
        (Path(place) / "corpus").mkdir()
        (Path(place) / "corpus" / "a.txt").write_text(text)
        config = PretrainConfig(
            vocab_size=300,
            hidden_size=16,
            num_hidden_layers=1,
            num_attention_heads=2,
            intermediate_size=32,
            total_steps=4,
            tokens_per_step=200,
            warmup_steps=1,
            save_every=2,
        )
        rows, devices, run = [], set(), Path(place) / "run"
        supply = pretrain(Path(place) / "corpus", run, config, sets("dev", 8)["sst"].sentences)
        rows.append(next(supply))
        devices |= {
            frame.device.type
            for frame in supply.gi_yieldfrom.gi_frame.f_locals["model"].parameters()
        }
        supply.close()  # killed here; the second call goes on
        rows += list(pretrain(Path(place) / "corpus", run, config, sets("dev", 8)["sst"].sentences))
        assert [row["step"] for row in rows] == [2, 4] and devices == {"cuda"}, (rows, devices)
        model, head = load_mlm(run / "model")
        model.to(CUDA), head.to(CUDA)
        from minbert.tokens import load_tokenizer

        words = load_tokenizer(run / "model")
        share, loss = masked_accuracy(model, head, sets("dev", 8)["sst"].sentences, words)
        on_cpu = load_mlm(run / "model")
        assert (
            abs(masked_accuracy(*on_cpu, sets("dev", 8)["sst"].sentences, words)[1] - loss) < 1e-4
        )
        poolings = sts_by_pooling(model, sets("dev", 8)["stsb"], words)
        save_mlm(model, head, run / "model")
        write_card(run / "model", config, rows, tokens_seen(run, config), "Text.", poolings)


# the cells of the chapters that want a GPU, at a small size

# the row of a paper, three steps a stage, on the samples in the package
REAL = ('data=os.environ.get("MINBERT_DATA")', 'out=__import__("tempfile").mkdtemp(), scale=toy()')

# notebook -> what stands in its cell, and what takes its place; every entry must be found
SMALLER = {
    **{
        name: [REAL]
        for name in (
            "13_finetune",
            "17_simcse",
            "20_bertflow",
            "21_bertcf",
            "22_smoothness",
            "24_bregman",
            "23_smart",
            "18_negatives",
            "25_pcgrad",
            "32_synthetic",
            "31_bertcf_results",
            "26_ablations",
        )
    },
}


def _names(tree):
    """Names that a cell makes at its top level, and all that it uses."""
    import ast

    made, todo = set(), list(tree.body)
    while todo:
        node = todo.pop()
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            made.add(node.name)
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            made |= {(alias.asname or alias.name).split(".")[0] for alias in node.names}
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            made.add(node.id)
        elif not isinstance(node, (ast.Lambda, ast.comprehension)):
            todo += ast.iter_child_nodes(node)
    return made, {
        n.id for n in ast.walk(tree) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load)
    }


def _cells_before(sources, last, known):
    """Choose the plain cells that the last one builds on, in order."""
    import ast

    first = {}  # where the last cell first makes a name, and where it first reads it
    for node in ast.walk(ast.parse(last)):
        if isinstance(node, ast.Name):
            key = node.id, isinstance(node.ctx, ast.Store)
            first[key] = min(node.lineno, first.get(key, node.lineno))
    own = {name for name, made in first if made and first[name, True] < first.get((name, False), 0)}
    wanted, kept = _names(ast.parse(last))[1] - known - own, []
    for source in reversed(sources):
        made, used = _names(ast.parse(source))
        if made & wanted:
            kept.append(source)
            wanted |= used - known
    return kept[::-1]


def gpu_cell(notebook, place):
    """Run the gpu cell of a chapter, on the sample and a tiny model, after the cells that it needs."""
    import gzip
    import re
    import shutil
    from importlib.resources import files

    file = next((Path(__file__).resolve().parents[2] / "nbs").rglob(f"{notebook}.ipynb"))
    sources = [
        "".join(c["source"])
        for c in json.loads(file.read_text("utf8"))["cells"]
        if c["cell_type"] == "code"
    ]
    exported = next(
        (re.search(r"default_exp ([\w.]+)", s)[1] for s in sources if "default_exp" in s), None
    )
    wanted = [i for i, source in enumerate(sources) if "#| gpu" in source]
    for old, _ in SMALLER[notebook]:
        assert any(old in sources[i] for i in wanted), (
            f"{notebook}: {old!r} no longer stands in a gpu cell"
        )
    encoder("cpu").save_pretrained(place / "tiny")
    shutil.copytree(str(files("minbert") / "assets" / "sample"), place / "data")
    (place / "data" / "corpus").mkdir()
    text = "\n".join(sets(rows=40)["quora"].sentences)
    (place / "data" / "corpus" / "wikipedia-sentences-00.txt.gz").write_bytes(
        gzip.compress(text.encode())
    )
    here = import_module("minbert.papers.run_in_notebook")
    here.product_speed = partial(here.product_speed, width=64, rounds=2)
    os.environ |= {"MINBERT_RUNS": str(place / "runs"), "MPLBACKEND": "agg"}
    for at in wanted:
        play_cell(notebook, sources, at, exported, place)


def play_cell(notebook, sources, at, exported, place):
    """Run one cell at a small size, after the plain cells whose names it uses."""
    import re

    cell = sources[at]
    for old, new in SMALLER[notebook]:
        cell = cell.replace(old, new)
    names = {"__name__": "__main__", "display": lambda *_: None, "toy": toy} | (
        vars(import_module(f"minbert.{exported}")) if exported else {}
    )
    plain = [
        s for s in sources[:at] if not re.search(r"#\|\s*(slow|gpu|export|eval|default_exp)", s)
    ]
    before = _cells_before(plain, cell, set(names))
    for source in before:
        exec(compile(source, notebook, "exec"), names)
    names["DATA"] = place / "data"
    exec(
        compile(cell.replace('"bert-base-uncased"', repr(str(place / "tiny"))), notebook, "exec"),
        names,
    )


def toy():
    """A recipe's scale of three steps a stage; the weights are the embedded ones."""
    from dataclasses import replace

    from minbert.papers import SCALES

    return replace(
        SCALES["micro"],
        view_batch=4,
        view_steps=3,
        flow_steps=3,
        rows={"sst": 2, "quora": 2, "sts": 2},
        tune_steps=3,
        batch=2,
        task_steps=3,
        head_steps=3,
        most_train=40,
        most_dev=30,
        precision="fp32",
    )


SCENARIOS = {
    f.__name__: f
    for f in (
        rules,
        losses,
        heads,
        generators,
        penalties,
        surgery,
        flow,
        contrastive,
        calibration,
        encoding,
        batches_of_all_kinds,
        one_ahead,
        bad_batches,
        broken_search,
        attention_masks,
        heads_beside,
        one_call_attention,
        fitting,
        evaluation,
        pretraining,
        count_joint,
        count_accumulated,
        count_penalties,
        count_surgery,
        count_views,
        count_flow,
        count_pretraining,
    )
}


def main(name):
    if name in SMALLER:
        with gpu(), tempfile.TemporaryDirectory() as place:
            return gpu_cell(name, Path(place))
    if name == "half_precision":
        with gpu(native_bf16=False):
            return half_precision()
    with gpu():
        return SCENARIOS[name]()


HEAVY = (
    "accelerate",
    "matplotlib.pyplot",
    "torch._dynamo",
    "transformers.models.bert.modeling_bert",
    "transformers.models.bert.tokenization_bert",
)


def serve(folder):
    """Play each scenario that a line of standard input names in a fork of a process that has loaded
    the libraries, and never the package.

    Answers with a line of JSON: how the fork ended, what the scenario returned, and the end of what
    it wrote to standard error.
    """
    for name in HEAVY:
        import_module(name)
    for line in sys.stdin:
        out, err = folder / "out", folder / "err"
        child = os.fork()
        if not child:
            _alone(line.strip(), out, err)
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        said = out.read_text(encoding="utf-8").splitlines()
        print(
            json.dumps(
                [
                    status,
                    json.loads(said[-1]) if not status else None,
                    err.read_text(encoding="utf-8")[-3000:],
                ]
            ),
            flush=True,
        )


def _alone(name, out, err):
    """End this process with the scenario: 0, and its result in `out`, or 1, and why in `err`."""
    for number, file in ((0, os.devnull), (1, out), (2, err)):
        os.dup2(os.open(file, os.O_RDWR | os.O_CREAT | os.O_TRUNC), number)
    signal.alarm(1800)
    try:
        print(json.dumps(main(name)), flush=True)
        # torch's threads for the pretended device do not end in order, and may abort a process that
        # has done its work
        os._exit(0)
    except BaseException:
        traceback.print_exc()
        sys.stderr.flush()
        os._exit(1)


if __name__ == "__main__":
    torch.set_num_threads(1)
    serve(Path(sys.argv[1]))
