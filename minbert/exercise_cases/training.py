"""Exercise cases of chapter 06: gradient clipping, the training step, and the schedule."""

import math

import torch
import torch.nn.functional as F
from torch import nn

from minbert.course.check_runner import Case, Descent, Trial, fill, fixed, mistake

TRIALS, MISTAKES, VARIANTS = {}, {}, {}


# ---- training.clip
#
# Several parameters of different sizes, one without a gradient. Limits above and below the norm,
# no limit, no gradient at all, a gradient of 0, a tiny one, and NaN in the second of three.
# NotFinite has to be raised before any gradient changes.


def clip_cases(generator):
    grads = {
        "a": fixed(generator, 3, 4),
        "b": fixed(generator, 5),
        "none": None,
        "c": fixed(generator, 2, 2, 2),
    }
    bad = {**grads, "b": grads["b"] * math.nan}
    level = {
        "a": torch.full((4,), 1.5, dtype=torch.float64),
        "b": torch.full((4,), -1.5, dtype=torch.float64),
    }
    two = {
        "first.weight": grads["a"],
        "second.weight": bad["b"],
        "third.bias": grads["c"] * math.inf,
    }
    return [
        Case("longer than the limit", {"grads": grads, "max_norm": 0.5}),
        Case("shorter than the limit", {"grads": grads, "max_norm": 100.0}),
        Case("a limit between the parts and the whole", {"grads": level, "max_norm": 3.5}),
        Case("no limit", {"grads": grads, "max_norm": None}),
        Case("a limit of 0", {"grads": grads, "max_norm": 0.0}),
        Case("no gradient at all", {"grads": {"a": None, "b": None}, "max_norm": 1.0}),
        Case("gradients of 0", {"grads": {"a": torch.zeros(3)}, "max_norm": 1.0}),
        Case(
            "single precision",
            {
                "grads": {k: None if g is None else g.float() for k, g in grads.items()},
                "max_norm": 1.0,
            },
        ),
        Case("a NaN in the second", {"grads": bad, "max_norm": 0.5}),
        Case("infinite", {"grads": {"a": grads["a"] * math.inf}, "max_norm": None}),
        Case(
            "infinite, with a limit",
            {"grads": {**grads, "b": grads["b"] * math.inf}, "max_norm": 0.5},
        ),
        Case(
            "NaN in the second, infinity in the last",
            {"grads": two, "max_norm": 0.5, "bad": ["second.weight", "third.bias"]},
        ),
        Case(
            "gradients of length 1e-6, a tenth of it as limit",
            {
                "grads": {k: None if g is None else 1e-6 * g / 5 for k, g in grads.items()},
                "max_norm": 1e-7,
                "unit": 1e7,
            },
        ),
        Case("gradients of 0, a limit of 0", {"grads": {"a": torch.zeros(3)}, "max_norm": 0.0}),
    ]


def run_clip(clip, inputs):
    """Hand over parameters with these gradients; look at what comes back, and at the gradients
    afterwards."""
    parameters = {
        name: nn.Parameter(torch.zeros(2) if g is None else torch.zeros_like(g))
        for name, g in inputs["grads"].items()
    }
    for name, g in inputs["grads"].items():
        parameters[name].grad = None if g is None else g.clone()
    try:
        length = clip(parameters, inputs["max_norm"])
        seen = {
            "refused": torch.tensor(False),
            "a plain number comes back": isinstance(length, (int, float)),
            "length": torch.as_tensor(length, dtype=torch.float64),
        }
    except ValueError as error:
        seen = {
            "refused": torch.tensor(True),
            "with NotFinite": "NotFinite" in [kind.__name__ for kind in type(error).__mro__],
        }
        if "bad" in inputs:
            first, other = (name in str(error) for name in inputs["bad"])
            seen |= {"names the first": first, "names no other": not other}
    unit = inputs.get("unit", 1.0)  # small gradients are compared in a unit of their own
    return seen | {
        f"gradient of {name}": torch.tensor([]) if p.grad is None else unit * p.grad
        for name, p in parameters.items()
    }


TRIALS["training.clip"] = Trial(
    clip_cases,
    run_clip,
    rtol=1e-5,
    atol=1e-7,
    forbidden=("clip_grad_norm_",),
    hints=(
        (
            "How long is one vector that has all numbers of all gradients in it? One number comes "
            "out, not one for each parameter."
        ),
        (
            "The square of the whole length is the sum of the squares of the parts' lengths. All "
            "gradients are multiplied by the same number, and only if "
            "the length is above the limit."
        ),
        (
            "total = square root of the sum of g.square().sum(); if it is not finite, raise "
            "NotFinite; if max_norm is not None and total > max_norm: "
            "g.mul_(max_norm / total) for every g; return total as it was."
        ),
    ),
)


_WRONG_SQUARES = "squared_norm += norm**2"
_WRONG_CUT = (
    "if max_norm is not None and total > max_norm:\n"
    "        for gradient in gradients:\n"
    "            gradient.mul_(max_norm / total)"
)

MISTAKES["training.clip"] = [
    mistake(
        _WRONG_CUT,
        "for g in gradients if max_norm is not None else ():\n"
        "        g.mul_(min(1.0, max_norm / max(g.norm().item(), 1e-30)))",
        "Each gradient is clipped by its own norm, which changes the direction. All gradients "
        "share one factor.",
    ),
    mistake(
        _WRONG_CUT,
        "for g in gradients if max_norm is not None else ():\n"
        "        g.clamp_(-max_norm, max_norm)",
        "The values are clipped one by one, which changes the direction. Scale the whole gradient.",
    ),
    mistake(
        " and total > max_norm:",
        ":",
        "Short gradients are scaled up to the limit. Only longer ones are changed.",
    ),
    mistake(
        "    return total\n",
        "    return total if max_norm is None else min(total, max_norm)\n",
        "The norm after clipping is returned. The norm before clipping is expected.",
    ),
    mistake(
        "; first in {name}",
        "",
        "The error does not name the parameter. It should name the first one whose gradient is "
        "not finite.",
    ),
    mistake(
        "if not math.isfinite(norm):",
        "if math.isnan(norm):",
        "Only NaN is rejected. An infinite gradient should be rejected too.",
    ),
    mistake(
        "max_norm / total)",
        "max_norm / (total + 1e-6))",
        "A small constant is added to the norm, as PyTorch's `clip_grad_norm_` does, so a tiny "
        "gradient is clipped far below the limit.",
    ),
    mistake(
        "total = math.sqrt(squared_norm)",
        "total = torch.tensor(squared_norm).sqrt()",
        "The norm is returned as a tensor. A Python float is expected: use `.item()`.",
    ),
]

VARIANTS["training.clip"] = [
    """
def clip_gradients(parameters, max_norm=None):
    grads = [p.grad for p in parameters.values() if p.grad is not None]
    total = math.sqrt(sum(g.double().square().sum().item() for g in grads))
    if not math.isfinite(total):
        raise NotFinite(
            next(
                (
                    name
                    for name, p in parameters.items()
                    if p.grad is not None and not p.grad.isfinite().all()
                ),
                "all",
            )
        )
    factor = 1.0 if max_norm is None or total <= max_norm else max_norm / total
    for g in grads:
        g *= factor
    return total
""",
    """
def clip_gradients(parameters, max_norm=None):
    for name, p in parameters.items():
        if p.grad is not None and not torch.isfinite(p.grad).all():
            raise NotFinite(name)
    with_gradient = [p for p in parameters.values() if p.grad is not None]
    total = float(nn.utils.get_total_norm([p.grad for p in with_gradient]))
    for p in with_gradient:
        if max_norm is not None and total > max_norm:
            p.grad = p.grad * (max_norm / total)
    return total
""",
]


# ---- training.step
#
# Two steps with momentum, so that the state after the first step shows in the second. One batch
# and three, old gradients, a missing task, a `backward` that weights tasks, a model in eval mode.
# Then three bad batches: an infinite loss with a finite gradient, a NaN gradient with a finite
# loss, and NaN in the last of three batches.


def pair_model(dtype=torch.float64):
    return fill(
        nn.ModuleDict({"shared": nn.Linear(3, 4), "sum": nn.Linear(4, 1), "sign": nn.Linear(4, 1)})
    ).to(dtype)


def pair_losses(model, batch):
    """Two tasks on one layer, which like a dropout tells the mode during the call; "kind" makes
    trouble."""
    h = torch.tanh(model["shared"](batch["x"])) * (0.8 if model.training else 1.0)
    losses = {
        "sum": (model["sum"](h)[:, 0] - batch["y"]).square().mean(),
        "sign": F.softplus(-model["sign"](h)[:, 0]).mean(),
    }
    if batch["kind"] == "infinite loss":
        losses["sign"] = losses["sign"] + math.inf
    if batch["kind"] == "endless slope":
        losses["sum"] = losses["sum"] + (0 * h).abs().sqrt().sum()
    return (
        losses["sum"]
        if batch["kind"] == "lone"
        else {"sum": losses["sum"]}
        if batch["kind"] == "one task"
        else losses
    )


def step_cases(generator):
    def batch(kind="", rows=5, dtype=torch.float64):
        return {
            "x": fixed(generator, rows, 3, dtype=dtype),
            "y": 3 * fixed(generator, rows, dtype=dtype),
            "kind": kind,
        }

    def three():
        return [batch(), batch(rows=2), batch(rows=7)]

    return [
        Case("one batch", {"groups": [[batch()], [batch()]]}),
        Case("three batches in a step", {"groups": [three(), three()]}),
        Case("three batches, clipped", {"groups": [three(), three()], "max_grad_norm": 0.3}),
        Case("old gradients lie about", {"groups": [[batch()]], "stale": True}),
        Case(
            "a task is missing in the second step",
            {"groups": [[batch()], [batch("one task"), batch("one task")]]},
        ),
        Case("a task is missing in one of two batches", {"groups": [[batch(), batch("one task")]]}),
        Case("a lone loss", {"groups": [[batch("lone")]]}),
        Case(
            "tasks weighed by `backward`",
            {"groups": [[batch(), batch()], [batch()]], "weigh": True},
        ),
        Case(
            "a weight outside the model, and one that the optimizer does not move",
            {"groups": [[batch()]], "max_grad_norm": 0.3, "outside": ["shared", "sum"]},
        ),
        Case(
            "a weight outside the model, two steps",
            {"groups": [[batch()], [batch()]], "outside": ["shared", "sum", "sign"]},
        ),
        Case("a limit of 0", {"groups": [[batch()]], "max_grad_norm": 0.0}),
        Case("single precision", {"groups": [[batch(dtype=torch.float32)]]}),
        Case(
            "an infinite loss with a finite gradient",
            {"groups": [[batch()], [batch(), batch("infinite loss")]]},
        ),
        Case(
            "an infinite loss, and what `backward` is given",
            {"groups": [[batch(), batch("infinite loss")]], "weigh": True},
        ),
        Case("a finite loss without a gradient", {"groups": [[batch()], [batch("endless slope")]]}),
        Case(
            "the third batch of three is bad",
            {
                "groups": [
                    [
                        batch(),
                        batch(),
                        {**batch(), "y": torch.full((5,), math.nan, dtype=torch.float64)},
                    ]
                ]
            },
        ),
        Case("a model in eval mode", {"groups": [[batch()]], "eval": True}),
    ]


def run_step(one_step, inputs):
    """Take the steps; look at the weights, at what comes back, and at what `backward` was given."""
    model, seen, given = pair_model(inputs["groups"][0][0]["x"].dtype), {}, []
    model.train("eval" not in inputs)
    outside, loss_fn = nn.Parameter(torch.ones(2, dtype=torch.float64)), pair_losses
    optimizer = Descent(
        [outside, *(p for name in inputs["outside"] for p in model[name].parameters())]
        if "outside" in inputs
        else model.parameters()
    )
    if "outside" in inputs:

        def loss_fn(model, batch):
            return {name: loss * outside.prod() for name, loss in pair_losses(model, batch).items()}

    options = {k: inputs[k] for k in ("max_grad_norm",) if k in inputs}
    if "stale" in inputs:
        for p in model.parameters():
            p.grad = torch.ones_like(p)
    if "weigh" in inputs:

        def options_backward(losses):
            given.extend(losses.values())
            (losses["sum"] + 3 * losses["sign"]).backward()

        options["backward"] = options_backward
    for n, batches in enumerate(inputs["groups"], 1):
        try:
            losses, norm = one_step(model, batches, loss_fn, optimizer, **options)
            seen |= {
                f"loss of {name}, step {n}": torch.as_tensor(x, dtype=torch.float64)
                for name, x in sorted(losses.items())
            }
            seen[f"length of the gradient, step {n}"] = torch.as_tensor(norm, dtype=torch.float64)
        except ValueError:
            seen[f"step {n} was refused"] = torch.tensor(True)
        seen |= {
            f"{name} after step {n}": p.detach().clone() for name, p in model.named_parameters()
        }
    if "outside" in inputs:
        seen["the weight outside the model"] = outside
    return seen | {
        "what `backward` was given": torch.stack(given) if given else torch.zeros(0),
        "in train mode": torch.tensor(model.training),
    }


TRIALS["training.step"] = Trial(
    step_cases,
    run_step,
    rtol=1e-5,
    hints=(
        (
            "Which operations happen once for each batch, and which once for the whole step? "
            "Where must old gradients be removed?"
        ),
        (
            "Once for each batch: compute_losses, finite_values, backward. Divide by "
            "len(batches) both what goes to backward and what you add up for the result."
        ),
        (
            "parameters = updated_parameters(model, optimizer); optimizer.zero_grad(); the loop "
            "over batches; norm = clip_gradients(parameters, max_grad_norm); optimizer.step(); "
            "return the mean losses and the norm."
        ),
    ),
)


_WRONG_BACK = "backward({name: loss / len(batches) for name, loss in losses.items()})"
_WRONG_ZERO = "optimizer.zero_grad()"
_WRONG_CLIP = "grad_norm = clip_gradients(parameters, max_grad_norm)"

MISTAKES["training.step"] = [
    mistake(
        _WRONG_ZERO,
        "",
        "The old gradients are never cleared, so they accumulate from step to step.",
    ),
    mistake(
        _WRONG_ZERO,
        "",
        _WRONG_CLIP,
        _WRONG_ZERO + "\n    " + _WRONG_CLIP,
        "The gradients are cleared after the backward pass, before the optimizer uses them.",
    ),
    mistake(
        "losses = compute_losses",
        "optimizer.zero_grad()\n        losses = compute_losses",
        "The gradients are cleared for every batch, so only the last batch of a step counts.",
    ),
    mistake(
        _WRONG_BACK,
        "backward(losses)",
        "The losses are not divided by the number of batches, so three batches give a gradient "
        "three times as large.",
    ),
    mistake(
        _WRONG_CLIP,
        "grad_norm = clip_gradients(parameters)",
        "`max_grad_norm` is not passed on: the norm is measured but nothing is clipped.",
    ),
    mistake(
        _WRONG_CLIP + "\n    optimizer.step()",
        "optimizer.step()\n    " + _WRONG_CLIP,
        "The gradient is clipped after the optimizer step, which is too late.",
    ),
    mistake(
        _WRONG_BACK,
        _WRONG_BACK + "\n        if batch is not batches[-1]:\n            optimizer.step()",
        "The optimizer steps after every batch. Gradient accumulation takes one step for all "
        "batches.",
    ),
    mistake(
        "    " + _WRONG_ZERO + "\n",
        "",
        "    return mean_losses, grad_norm",
        "    " + _WRONG_ZERO + "\n    return mean_losses, grad_norm",
        "The gradients are cleared after the step, so the first step includes old ones.",
    ),
]

VARIANTS["training.step"] = [
    """
def one_step(model, batches, loss_fn, optimizer, backward=sum_losses, max_grad_norm=None):
    for group in optimizer.param_groups:
        for p in group["params"]:
            p.grad = None
    seen = []
    for batch in batches:
        losses = compute_losses(model, batch, loss_fn)
        seen.append(finite_values(losses))
        backward({name: (1 / len(batches)) * loss for name, loss in losses.items()})
    parameters = updated_parameters(model, optimizer)
    norm = clip_gradients(parameters, max_norm=max_grad_norm)
    optimizer.step()
    return {
        name: sum(s.get(name, 0.0) for s in seen) / len(seen) for name in set().union(*seen)
    }, norm
""",
    """
def one_step(model, batches, loss_fn, optimizer, backward=sum_losses, max_grad_norm=None):
    n, means = len(batches), {}
    optimizer.zero_grad()
    for batch in batches:
        losses = {k: loss / n for k, loss in compute_losses(model, batch, loss_fn).items()}
        for name, part in finite_values(losses).items():
            means[name] = part + means.get(name, 0)
        backward(losses)
    norm = clip_gradients(updated_parameters(model, optimizer), max_grad_norm)
    optimizer.step()
    return means, norm
""",
]


# ---- training.schedule
#
# The whole schedule, step by step, and some steps beyond its end; also a warm-up as long as the
# run or longer. In one case warm-up and decay overlap; there `min` and "first up, then down"
# differ.


def schedule_cases(generator):
    warmup, decay = torch.randint(2, 6, (2,), generator=generator).tolist()
    return [
        Case(
            "up, flat, down",
            {"total_steps": warmup + decay + 4, "warmup_steps": warmup, "decay_steps": decay},
        ),
        Case(
            "up, then down all the way", {"total_steps": warmup + decay + 3, "warmup_steps": warmup}
        ),
        Case("no warm-up", {"total_steps": 5 + decay, "decay_steps": decay}),
        Case("down all the way, without warm-up", {"total_steps": 4 + warmup}),
        Case("no way down", {"total_steps": 4 + warmup, "warmup_steps": warmup, "decay_steps": 0}),
        Case(
            "slopes that cross before the peak",
            {"total_steps": 8 + warmup, "warmup_steps": 6 + warmup, "decay_steps": 7 + warmup},
        ),
        Case(
            "a warm-up as long as the run", {"total_steps": 3 + warmup, "warmup_steps": 3 + warmup}
        ),
        Case(
            "a warm-up longer than the run",
            {"total_steps": 3 + warmup, "warmup_steps": 5 + warmup + decay},
        ),
    ]


def run_schedule(schedule, inputs):
    steps = range(
        inputs["total_steps"] + 4 * (inputs.get("warmup_steps", 0) < inputs["total_steps"])
    )
    return {
        "shares": torch.tensor([schedule(step, **inputs) for step in steps], dtype=torch.float64)
    }


TRIALS["training.schedule"] = Trial(
    schedule_cases,
    run_schedule,
    hints=(
        "Two lines and a constant: the factor is the minimum of three numbers.",
        (
            "The increasing line is (step + 1) / warmup_steps, the decreasing line "
            "(total_steps - step) / decay_steps. Beyond the end the second is below 0."
        ),
        (
            "Replace decay_steps=None by max(1, total_steps - warmup_steps), take 1 for a line of 0 "
            "steps or fewer, then max(0, min(1, up, down))."
        ),
    ),
)


MISTAKES["training.schedule"] = [
    mistake(
        "(step + 1) / warmup_steps",
        "(step + 1) // warmup_steps",
        "The warm-up uses integer division, so the factor is 0 until the peak.",
    ),
    mistake(
        "down = (total_steps - step) / decay_steps",
        "down = 0.5 - 0.5 * math.cos(math.pi * max(0.0, min(1.0, (total_steps - step) / "
        "decay_steps)))",
        "The decay is a cosine. It should be linear.",
    ),
    mistake(
        "up = (step + 1) / warmup_steps",
        "up = step / warmup_steps",
        "The first step has learning rate 0: the warm-up starts one step too late.",
    ),
    mistake(
        "down = (total_steps - step) / decay_steps",
        "down = (total_steps - step - 1) / decay_steps",
        "The last step has learning rate 0: the decay ends one step too early.",
    ),
    mistake(
        "down = (total_steps - step) / decay_steps",
        "down = (total_steps - step) / total_steps",
        "`decay_steps` is not used: the decay is as long as the whole run.",
    ),
    mistake(
        "max(0.0, min(1.0, up, down))",
        "min(1.0, up, down)",
        "After the end the factor is negative. It should be 0.",
    ),
    mistake(
        "decay_steps = max(1, total_steps - warmup_steps)",
        "decay_steps = total_steps",
        "`decay_steps` of `None` means the steps from the end of the warm-up to the end of the "
        "run.",
    ),
    mistake(
        "(step + 1) / warmup_steps",
        "(step + 1) / (warmup_steps + 1)",
        "The peak is reached one step too late. The last step of the warm-up has it already.",
    ),
]

VARIANTS["training.schedule"] = [
    """
def warmup_decay(step, total_steps, warmup_steps=0, decay_steps=None):
    decay_steps = max(1, total_steps - warmup_steps) if decay_steps is None else decay_steps
    share = 1.0
    if step < warmup_steps:
        share = (step + 1) / warmup_steps
    if decay_steps and step > total_steps - decay_steps:
        share = min(share, max(total_steps - step, 0) / decay_steps)
    return share
""",
    """
def warmup_decay(step, total_steps, warmup_steps=0, decay_steps=None):
    if decay_steps is None:
        decay_steps = max(1, total_steps - warmup_steps)
    slopes = torch.tensor(
        [
            (step + 1) / max(warmup_steps, 1),
            (total_steps - step) / decay_steps if decay_steps > 0 else 1.0,
        ],
        dtype=torch.float64,
    )
    return slopes.min().clamp(0, 1).item()
""",
]
