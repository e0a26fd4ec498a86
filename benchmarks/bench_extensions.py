"""What each extension costs: its step against a plain step of the same model on the same batch, in
one run.

python benchmarks/bench_extensions.py --data FOLDER --threads 1 python
benchmarks/bench_extensions.py --data FOLDER --model FOLDER --only penalties --precision fp32
--store results/benchmarks

penalties: 32 graded pairs; smoothness on tokens, on sentence vectors, sampled on the head; proximal
steps with four penalties. surgery:   32 rows of three tasks, a forward each; their sum, PCGrad,
GradVac. ranking:   32 question pairs; the margin loss that chapter 16 puts on the same vectors,
multiple negatives with duplicates masked. A step is forward, backward, clipping and AdamW. Batches
are cut into tokens before; each round takes another one.
"""

import copy

import torch
from common import COST, cost, costs, interleave, keep, parser, shape

from minbert.bregman import BregmanProximal
from minbert.conflicts import GradVac
from minbert.contrastive import contrastive_loss
from minbert.core.device_step import DeviceStep
from minbert.core.fused_adamw import FusedAdamW
from minbert.data import load_dataset, task_batches
from minbert.heads import MultitaskBert, default_heads, multitask_loss
from minbert.negatives import multiple_negatives_loss
from minbert.optim import parameter_groups
from minbert.pcgrad import PCGrad
from minbert.regularized import regularized_loss
from minbert.sampling import TaskSampler
from minbert.sentence import SentenceEncoder
from minbert.simcse import ViewModel, view_batches, view_loss
from minbert.smart_penalty import SmartPenalty
from minbert.smoothness import SmoothnessPenalty
from minbert.training import steps, sum_losses

ROWS = 32


class DeepCopies(BregmanProximal):
    """What a first attempt does: a deep copy of the whole model in every step. It is run as the
    other penalties are.
    """

    def begin(self, model):
        self._copy = copy.deepcopy(model)
        super().begin(model)


PENALTIES = {
    "SMART, tokens, 1 step": lambda: SmartPenalty(level="tokens"),
    "SMART, vectors, 1 step": lambda: SmartPenalty(level="vectors"),
    "sampled smoothness, 1000 points": lambda: SmoothnessPenalty(points=1000),
    "proximal, moving average": lambda: BregmanProximal(previous="ema"),
    "proximal, lag 1": lambda: BregmanProximal(previous="step"),
    "proximal, average, bf16 copy": lambda: BregmanProximal(previous="ema", dtype=torch.bfloat16),
    "proximal, deep copies": lambda: DeepCopies(previous="ema"),
}


def new_model(folder, tasks):
    encoder = SentenceEncoder.from_pretrained(folder, "mean", "cpu")
    return MultitaskBert(encoder, default_heads(encoder.width, tasks)).train()


def stepper(model, batches, loss_fn, precision, backward=None):
    """A function that takes step k, on batch k."""
    optimizer = FusedAdamW(parameter_groups(model, 0.01), lr=1e-5)
    backward = sum_losses if backward is None else backward(model)
    return lambda k: next(
        steps(
            model,
            [batches[k % len(batches)]],
            loss_fn,
            optimizer,
            backward,
            max_grad_norm=1.0,
            take_step=DeviceStep(precision=precision),
        )
    )


def supervised_batches(data, tasks, count, tokenizer):
    sets = {task: load_dataset(task, "train", data) for task in tasks}
    sampler = TaskSampler({task: len(d) for task, d in sets.items()}, ROWS, "joint", steps=count)
    return list(task_batches(sets, tokenizer, sampler))


def penalties(args, precision):
    """Steps of one pair task, plain and with each penalty."""
    batches = supervised_batches(
        args.data, ("stsb",), args.repeats + 1, new_model(args.model, ("stsb",)).encoder.tokenizer
    )

    def make(loss_fn):
        return stepper(new_model(args.model, ("stsb",)), batches, loss_fn, precision)

    return {
        "plain": make(multitask_loss),
        **{name: make(regularized_loss(penalty())) for name, penalty in PENALTIES.items()},
    }


def surgery(args, precision):
    """Steps of three tasks: the sum of the losses, and two kinds of surgery."""
    tasks = ("sst", "quora", "stsb")
    batches = supervised_batches(
        args.data, tasks, args.repeats + 1, new_model(args.model, tasks).encoder.tokenizer
    )

    def make(backward=None):
        return stepper(new_model(args.model, tasks), batches, multitask_loss, precision, backward)

    return {"plain": make(), "PCGrad": make(PCGrad), "GradVac": make(GradVac)}


def ranking(args, precision):
    """Steps on question pairs: margin loss and multiple negatives."""
    quora = load_dataset("quora", "train", args.data)
    tokenizer = new_model(args.model, ("quora",)).encoder.tokenizer
    stream = view_batches([quora.sentences, quora.sentences2], tokenizer, ROWS, labels=quora.labels)
    batches = [next(stream) for _ in range(args.repeats + 1)]

    def make(loss_fn):
        return stepper(
            ViewModel(SentenceEncoder.from_pretrained(args.model, "mean", "cpu")).train(),
            batches,
            loss_fn,
            precision,
        )

    return {
        "plain": make(lambda model, batch: contrastive_loss(*model(batch), batch.labels)),
        "multiple negatives": make(view_loss(multiple_negatives_loss)),
    }


def keep_costs(args, part, precision, spent):
    """Store a part; another model than the embedded one gets a file of its own."""
    size, other = shape(new_model(args.model, ("stsb",)).encoder.model.config), bool(args.model)
    name = f"bench_extensions-{part}-{precision}" + f"-{size.replace(' ', '-')}" * other
    command = f"python benchmarks/bench_extensions.py --data DATA{' --model MODEL' * other} --only {part} --precision {precision} --threads {args.threads} --repeats {args.repeats}"
    keep(
        args.store,
        name,
        f"extensions, {part}, {precision}: steps of {ROWS} rows, {size}",
        command,
        args.repeats,
        COST,
        costs(spent, "plain"),
    )


def main():
    options = parser(__doc__.split("\n\n")[0], stores=True)
    options.set_defaults(repeats=15, precision=["fp32"])
    for action in options._actions:
        if action.dest == "model":
            action.required, action.help = (
                False,
                "Hugging Face folder of a BERT; without it, the embedded model",
            )
    options.add_argument(
        "--only",
        nargs="+",
        choices=["penalties", "surgery", "ranking"],
        default=["penalties", "surgery", "ranking"],
    )
    args = options.parse_args()
    torch.set_num_threads(args.threads)
    for precision in args.precision:
        for part in args.only:
            torch.manual_seed(11711)
            variants = globals()[part](args, precision)
            for step in variants.values():  # warm up
                step(args.repeats)
            print(f"\n{part}, {precision}")
            spent = interleave(variants, args.repeats)
            cost(spent, "plain")
            if args.store:
                keep_costs(args, part, precision, spent)


if __name__ == "__main__":
    main()
