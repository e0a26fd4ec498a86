"""How the exercises of chapter 06 are checked: what the cases are for, and which mistakes people make."""


import math

import torch
import torch.nn.functional as F
from torch import nn

from minbert.course.trials import Case, Descent, Trial, fill, fixed, mistake


TRIALS, MISTAKES, VARIANTS = {}, {}, {}


# What is left of a step when it is over? Weights, momentum, gradients, and a record. All of them are compared, after two steps in a row.
#
# ---- loop.clip
#
# Several parameters of different sizes, one without gradient, so that a length for each and a length of all differ. A limit above and a limit below
# the length, no limit, no gradient at all, a gradient of 0, a tiny one, beside which any constant in the denominator is large, a NaN in the second of three. What is refused must be refused with NotFinite, and before
# any gradient changes.

def clip_cases(generator):
    grads = {"a": fixed(generator, 3, 4), "b": fixed(generator, 5), "none": None, "c": fixed(generator, 2, 2, 2)}
    bad = {**grads, "b": grads["b"] * math.nan}
    level = {"a": torch.full((4,), 1.5, dtype=torch.float64), "b": torch.full((4,), -1.5, dtype=torch.float64)}
    two = {"first.weight": grads["a"], "second.weight": bad["b"], "third.bias": grads["c"] * math.inf}
    return [Case("longer than the limit", {"grads": grads, "max_norm": 0.5}),
            Case("shorter than the limit", {"grads": grads, "max_norm": 100.0}),
            Case("a limit between the parts and the whole", {"grads": level, "max_norm": 3.5}),
            Case("no limit", {"grads": grads, "max_norm": None}), Case("a limit of 0", {"grads": grads, "max_norm": 0.0}),
            Case("no gradient at all", {"grads": {"a": None, "b": None}, "max_norm": 1.0}),
            Case("gradients of 0", {"grads": {"a": torch.zeros(3)}, "max_norm": 1.0}),
            Case("single precision", {"grads": {k: None if g is None else g.float() for k, g in grads.items()}, "max_norm": 1.0}),
            Case("a NaN in the second", {"grads": bad, "max_norm": 0.5}), Case("infinite", {"grads": {"a": grads["a"] * math.inf}, "max_norm": None}),
            Case("infinite, with a limit", {"grads": {**grads, "b": grads["b"] * math.inf}, "max_norm": 0.5}),
            Case("NaN in the second, infinity in the last", {"grads": two, "max_norm": 0.5, "bad": ["second.weight", "third.bias"]}),
            Case("gradients of length 1e-6, a tenth of it as limit", {"grads": {k: None if g is None else 1e-6 * g / 5 for k, g in grads.items()}, "max_norm": 1e-7, "unit": 1e7}),
            Case("gradients of 0, a limit of 0", {"grads": {"a": torch.zeros(3)}, "max_norm": 0.0})]


def run_clip(clip, inputs):
    """Hand over parameters with these gradients; look at what comes back, and at the gradients afterwards."""
    parameters = {name: nn.Parameter(torch.zeros(2) if g is None else torch.zeros_like(g)) for name, g in inputs["grads"].items()}
    for name, g in inputs["grads"].items():
        parameters[name].grad = None if g is None else g.clone()
    try:
        length = clip(parameters, inputs["max_norm"])
        seen = {"refused": torch.tensor(False), "a plain number comes back": isinstance(length, (int, float)), "length": torch.as_tensor(length, dtype=torch.float64)}
    except ValueError as error:
        seen = {"refused": torch.tensor(True), "with NotFinite": "NotFinite" in [kind.__name__ for kind in type(error).__mro__]}
        if "bad" in inputs:
            first, other = (name in str(error) for name in inputs["bad"])
            seen |= {"names the first": first, "names no other": not other}
    unit = inputs.get("unit", 1.0)       # small gradients are compared in a unit of their own
    return seen | {f"gradient of {name}": torch.tensor([]) if p.grad is None else unit * p.grad for name, p in parameters.items()}


TRIALS["loop.clip"] = Trial(clip_cases, run_clip, rtol=1e-5, atol=1e-7, forbidden=("clip_grad_norm_",), hints=(
    "How long is one vector that has all numbers of all gradients in it? One number comes out, not one for each parameter.",
    "The square of the whole length is the sum of the squares of the parts' lengths. All gradients are multiplied by the same number, and only if "
    "the length is above the limit.",
    "total = square root of the sum of g.square().sum(); if it is not finite, raise NotFinite; if max_norm is not None and total > max_norm: "
    "g.mul_(max_norm / total) for every g; return total as it was."))


_WRONG_TOTAL = "torch.linalg.vector_norm(norms).item()"
_WRONG_CUT = "if max_norm is not None and total > max_norm:\n        torch._foreach_mul_(list(grads.values()), max_norm / total)"

MISTAKES["loop.clip"] = [
    mistake("    if not math.isfinite(total):\n", "    if max_norm is not None:\n        torch.nn.utils.clip_grad_norm_(list(parameters.values()), max_norm)\n    if not math.isfinite(total):\n",
            "    if max_norm is not None and total > max_norm:\n        torch._foreach_mul_(list(grads.values()), max_norm / total)\n", "",
            "`clip_grad_norm_` cuts before anybody looks whether the length is finite: one NaN is then in all gradients."),
    mistake(_WRONG_TOTAL, "norms.sum().item()", "The lengths of the parts are added up. The whole is shorter: squares add up, lengths do not."),
    mistake(_WRONG_TOTAL, "(norms @ norms).item()", "The root is missing: that is the square of the length."),
    mistake(_WRONG_TOTAL, "norms.max().item()", "The length of the longest part is taken for the length of the whole."),
    mistake(_WRONG_TOTAL, "norms.square().mean().sqrt().item()", "The squares are averaged over the parameters, where they should be added up."),
    mistake(_WRONG_CUT,
            "for g, n in zip(grads.values(), norms.tolist() if max_norm is not None else ()):\n        g.mul_(min(1.0, max_norm / max(n, 1e-30)))",
            "Each gradient is cut by its own length. That turns the whole to another direction; all share one factor."),
    mistake(_WRONG_CUT, "for g in grads.values() if max_norm is not None else ():\n        g.clamp_(-max_norm, max_norm)",
            "Single numbers are cut off at the limit, where the whole vector should be shortened; its direction changes."),
    mistake(" and total > max_norm:", ":", "Short gradients are stretched to the limit; only longer ones are to be changed."),
    mistake("    return total\n", "    return total if max_norm is None else min(total, max_norm)\n", "The length after the cut comes back; the length before it is what tells of trouble."),
    mistake("max_norm / total)", "max_norm / (total + 1e-6))", "A small constant is added to the length, as torch's `clip_grad_norm_` does, so a tiny gradient is cut far below the limit."),
    mistake("max_norm / total)", "total / max_norm)", "The factor is upside down: long gradients get longer."),
    mistake("torch._foreach_mul_(list(grads.values()), max_norm / total)", "grads = {k: g * (max_norm / total) for k, g in grads.items()}",
            "The shortened gradients are computed and thrown away; what the optimizer reads is `.grad`."),
    mistake("if not math.isfinite(total):", "if False:", "A NaN passes: the gradient goes on to the optimizer as if nothing had happened."),
    mistake(_WRONG_CUT, "pass", "if not math.isfinite(total):", _WRONG_CUT + "\n    if not math.isfinite(total):",
            "The gradient is cut before anybody looks whether it is finite: what is refused has been spoilt already."),
    mistake("raise NotFinite(", "raise ValueError(", "A ValueError is raised; NotFinite, which is one of its kinds, tells a caller what happened."),
    mistake(_WRONG_CUT, "factor = 1.0 if max_norm is None else (max_norm / torch.tensor(total)).clamp(max=1.0).item()\n    torch._foreach_mul_(list(grads.values()), factor)",
            "The limit is divided by the length even where both are 0: gradients of 0 become NaN."),
    mistake("bad = next((name for name, n in zip(grads, norms.tolist()) if not math.isfinite(n)), \"all\")",
            "bad = [name for name, n in zip(grads, norms.tolist()) if not math.isfinite(n)][-1]", "The last bad gradient is named. The first is where to look."),
    mistake("    grads = {", "    for p in parameters.values():\n        p.grad = torch.zeros_like(p) if p.grad is None else p.grad\n    grads = {",
            "Parameters without a gradient get one of zeros. They are to be passed over, here and by the optimizer."),
    mistake("if max_norm is not None and total > max_norm:", "if max_norm and total > max_norm:", "A limit of 0 is taken for none."),
    mistake("if not grads:\n        return 0.0\n", "if not grads:\n        return 1.0\n", "With no gradient at all the length is 0."),
    mistake("; first in {bad}", "", "The error names no parameter. Whoever reads it has to know where to look: the first whose gradient is not finite."),
    mistake("; first in {bad}", "; in {[*grads]}", "The error names parameters whose gradient is finite, or more than the first that is not."),
    mistake("if not math.isfinite(total):", "if math.isnan(total):", "Only NaN is refused. An infinite gradient would move the weights just as far."),
    mistake(_WRONG_TOTAL, "torch.linalg.vector_norm(norms)", "The length comes back as a tensor. A plain number was promised; `.item()` gives it."),
    mistake("torch._foreach_norm(list(grads.values()))", "torch._foreach_norm(list(grads.values()), 1)", _WRONG_TOTAL, "norms.sum().item()",
            "The sizes of the numbers are added up. Length is the root of the sum of squares."),
    mistake("if max_norm is not None and", "max_norm = 1.0 if max_norm is None else max_norm\n    if", "Without a limit the gradient is cut at 1. None means to measure only."),
]

VARIANTS["loop.clip"] = [
    '''
def clip_gradients(parameters, max_norm=None):
    grads = [p.grad for p in parameters.values() if p.grad is not None]
    total = math.sqrt(sum(g.double().square().sum().item() for g in grads))
    if not math.isfinite(total):
        raise NotFinite(next((name for name, p in parameters.items() if p.grad is not None and not p.grad.isfinite().all()), "all"))
    factor = 1.0 if max_norm is None or total <= max_norm else max_norm / total
    for g in grads:
        g *= factor
    return total
''',
    '''
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
''',
]


# ---- loop.step
#
# Two steps in a row with momentum, so that what the first leaves behind shows in the second. One batch and three, old gradients lying about, a task
# that is missing, a `backward` that weighs tasks and notes what it is given, a colleague on another process, half precision, a model in eval mode.
# Then three bad batches: a loss that is infinite although its gradient is not, a gradient that is NaN although its loss is not, and a NaN that comes
# in the last batch of three.

def pair_model(dtype=torch.float64):
    return fill(nn.ModuleDict({"shared": nn.Linear(3, 4), "sum": nn.Linear(4, 1), "sign": nn.Linear(4, 1)})).to(dtype)


def pair_losses(model, batch):
    """Two tasks on one layer, which like a dropout tells the mode during the call; "kind" makes trouble."""
    h = torch.tanh(model["shared"](batch["x"])) * (0.8 if model.training else 1.0)
    losses = {"sum": (model["sum"](h)[:, 0] - batch["y"]).square().mean(), "sign": F.softplus(-model["sign"](h)[:, 0]).mean()}
    if batch["kind"] == "infinite loss":
        losses["sign"] = losses["sign"] + math.inf
    if batch["kind"] == "endless slope":
        losses["sum"] = losses["sum"] + (0 * h).abs().sqrt().sum()
    return losses["sum"] if batch["kind"] == "lone" else {"sum": losses["sum"]} if batch["kind"] == "one task" else losses


class Colleague:
    """An accelerator whose other process has only zeros to add; it notes the longest message."""

    num_processes, longest = 2, 0

    def reduce(self, tensor, reduction):
        self.longest = max(self.longest, tensor.numel())
        return tensor / 2 if reduction == "mean" else tensor


def step_cases(generator):
    def batch(kind="", rows=5, dtype=torch.float64):
        return {"x": fixed(generator, rows, 3, dtype=dtype), "y": 3 * fixed(generator, rows, dtype=dtype), "kind": kind}

    three = lambda: [batch(), batch(rows=2), batch(rows=7)]
    return [Case("one batch", {"groups": [[batch()], [batch()]]}), Case("three batches in a step", {"groups": [three(), three()]}),
            Case("three batches, clipped", {"groups": [three(), three()], "max_grad_norm": 0.3}),
            Case("old gradients lie about", {"groups": [[batch()]], "stale": True}),
            Case("a task is missing in the second step", {"groups": [[batch()], [batch("one task"), batch("one task")]]}),
            Case("a task is missing in one of two batches", {"groups": [[batch(), batch("one task")]]}),
            Case("a lone loss", {"groups": [[batch("lone")]]}),
            Case("tasks weighed by `backward`", {"groups": [[batch(), batch()], [batch()]], "weigh": True}),
            Case("another process", {"groups": [[batch(), batch()]], "max_grad_norm": 0.3, "shared": True}),
            Case("another process, a task is missing", {"groups": [[batch("one task")]], "shared": True}),
            Case("a weight outside the model, and one that the optimizer does not move", {"groups": [[batch()]], "max_grad_norm": 0.3, "outside": ["shared", "sum"]}),
            Case("a weight outside the model, two steps", {"groups": [[batch()], [batch()]], "outside": ["shared", "sum", "sign"]}),
            Case("a limit of 0", {"groups": [[batch()]], "max_grad_norm": 0.0}),
            Case("half precision", {"groups": [[batch(dtype=torch.float32)]], "precision": "bf16"}),
            Case("single precision", {"groups": [[batch(dtype=torch.float32)]]}),
            Case("an infinite loss with a finite gradient", {"groups": [[batch()], [batch(), batch("infinite loss")]]}),
            Case("an infinite loss, and what `backward` is given", {"groups": [[batch(), batch("infinite loss")]], "weigh": True}),
            Case("a finite loss without a gradient", {"groups": [[batch()], [batch("endless slope")]]}),
            Case("the third batch of three is bad", {"groups": [[batch(), batch(), {**batch(), "y": torch.full((5,), math.nan, dtype=torch.float64)}]]}),
            Case("a model in eval mode", {"groups": [[batch()]], "eval": True})]


def run_step(one_step, inputs):
    """Take the steps; look at the weights, at what comes back, and at what `backward` was given."""
    model, seen, given = pair_model(inputs["groups"][0][0]["x"].dtype), {}, []
    model.train("eval" not in inputs)
    outside, colleague, loss_fn = nn.Parameter(torch.ones(2, dtype=torch.float64)), Colleague(), pair_losses
    optimizer = Descent([outside, *(p for name in inputs["outside"] for p in model[name].parameters())] if "outside" in inputs else model.parameters())
    if "outside" in inputs:
        loss_fn = lambda model, batch: {name: loss * outside.prod() for name, loss in pair_losses(model, batch).items()}
    options = {k: inputs[k] for k in ("max_grad_norm", "precision") if k in inputs}
    if "stale" in inputs:
        for p in model.parameters():
            p.grad = torch.ones_like(p)
    if "weigh" in inputs:
        def options_backward(losses):
            given.extend(losses.values())
            (losses["sum"] + 3 * losses["sign"]).backward()
        options["backward"] = options_backward
    if "shared" in inputs:
        options["accelerator"] = colleague
    for n, batches in enumerate(inputs["groups"], 1):
        try:
            losses, norm = one_step(model, batches, loss_fn, optimizer, **options)
            seen |= {f"loss of {name}, step {n}": torch.as_tensor(x, dtype=torch.float64) for name, x in sorted(losses.items())}
            seen[f"length of the gradient, step {n}"] = torch.as_tensor(norm, dtype=torch.float64)
        except ValueError:
            seen[f"step {n} was refused"] = torch.tensor(True)
        seen |= {f"{name} after step {n}": p.detach().clone() for name, p in model.named_parameters()}
    if "outside" in inputs:
        seen["the weight outside the model"] = outside
    return seen | {"numbers in the longest message between processes": colleague.longest, "what `backward` was given": torch.stack(given) if given else torch.zeros(0), "in train mode": torch.tensor(model.training)}


TRIALS["loop.step"] = Trial(step_cases, run_step, rtol=1e-5, hints=(
    "Six things in the order of the docstring. Which of them happen once for each batch, which once for the step?",
    "Once for each batch: compute_losses, _finite_values, backward. Divide by len(batches) what goes to backward, and what you add up for the "
    "record.",
    "optimizer.zero_grad(); the loop over batches; average_gradients(parameters.values(), accelerator) if there is one; "
    "norm = clip_gradients(parameters, max_grad_norm); optimizer.step(); return the means and the norm."))


_WRONG_BACK = "backward({name: loss / len(batches) for name, loss in losses.items()})"
_WRONG_ZERO = "optimizer.zero_grad(set_to_none=True)"
_WRONG_CLIP = "norm = clip_gradients(parameters, max_grad_norm)"
_WRONG_VALUES = "for name, value in _finite_values(losses, accelerator).items():\n            total[name] = total.get(name, 0.0) + value / len(batches)"

MISTAKES["loop.step"] = [
    mistake("    return total, norm", "    model.eval()\n    return total, norm", "The model is left in eval mode, so from the second step on there is no dropout."),
    mistake("    return total, norm", "    return total, clip_gradients(parameters)", "The length after the cut comes back. The one before it tells of trouble."),
    mistake(_WRONG_CLIP, "norm = clip_gradients(parameters, max_grad_norm or 1.0)", "Where no limit is given, gradients are cut at 1."),
    mistake("    optimizer.step()\n", "    optimizer.step()\n    optimizer.step()\n", "The optimizer moves twice."),
    mistake("        losses = compute_losses(model, batch, loss_fn, precision)", "        losses = compute_losses(model, batch, loss_fn, precision)\n"
            "        if not all(loss.isfinite() for loss in losses.values()):\n            continue",
            "A bad batch is passed over in silence. It should be refused, so that somebody learns of it."),
    mistake(_WRONG_CLIP, "try:\n        norm = clip_gradients(parameters, max_grad_norm)\n    except ValueError:\n        return total, float(\"nan\")",
            "A bad gradient is passed over in silence. It should be refused, so that somebody learns of it."),
    mistake("        " + _WRONG_BACK, "        kept = losses", "    if accelerator is not None:", "    backward(kept)\n    if accelerator is not None:",
            "Only the last batch is pulled back. Each adds its share of the gradient."),
    mistake("    return total, norm", "    count = {name: sum(name in compute_losses(model, batch, loss_fn, precision) for batch in batches) for name in total}\n"
            "    return {name: value * len(batches) / count[name] for name, value in total.items()}, norm",
            "A loss is averaged over the batches that have its task. It is the mean over all batches of the step."),
    mistake(_WRONG_ZERO, "", "Old gradients are not forgotten: every step takes those of all steps before it along."),
    mistake(_WRONG_ZERO, "", _WRONG_CLIP, _WRONG_ZERO + "\n    " + _WRONG_CLIP, "The new gradients are forgotten before the weights could move by them."),
    mistake(_WRONG_ZERO, _WRONG_ZERO + "\n    model.train()", "The model is put into train mode. In which mode it is, is the caller's choice."),
    mistake(_WRONG_ZERO, _WRONG_ZERO + "\n    mode = model.training\n    model.train()", "    return total, norm", "    model.train(mode)\n    return total, norm",
            "The model is in train mode during the step. In which mode it is, is the caller's choice."),
    mistake(_WRONG_ZERO, _WRONG_ZERO + "\n    mode = model.training\n    model.eval()", "    return total, norm", "    model.train(mode)\n    return total, norm",
            "The model is in eval mode during the step, so it learns without dropout."),
    mistake(_WRONG_ZERO, "model.zero_grad()", "The gradients of the model are forgotten. The optimizer may move weights outside of it, which keep theirs."),
    mistake(_WRONG_ZERO, "optimizer.zero_grad(set_to_none=False)",
            "Old gradients are set to 0 instead of None. A head that no batch used then coasts and decays, where it should be passed over."),
    mistake("losses = compute_losses", "optimizer.zero_grad()\n        losses = compute_losses", "Gradients are forgotten at every batch, so only the last batch of a step counts."),
    mistake(_WRONG_BACK, "backward(losses)", "The losses are not divided by the number of batches: three batches make a gradient three times as long."),
    mistake(_WRONG_BACK, "backward({name: loss / len(batches) / len(losses) for name, loss in losses.items()})",
            "The losses are divided by the number of tasks as well; they are to be added up."),
    mistake(_WRONG_BACK, "sum_losses({name: loss / len(batches) for name, loss in losses.items()})", "The caller's `backward` is not used; the losses are simply added up."),
    mistake("total.get(name, 0.0) + value / len(batches)", "value", "The record shows the last batch only; it should be the mean over the batches."),
    mistake("value / len(batches)\n", "value\n", "The record adds the batches up; it should be their mean."),
    mistake(_WRONG_CLIP, "norm = clip_gradients(parameters)", "The gradient is measured but not cut: `max_grad_norm` is not handed on."),
    mistake(_WRONG_CLIP + "\n    optimizer.step()", "optimizer.step()\n    " + _WRONG_CLIP,
            "The gradient is cut, and looked at, after the weights have moved. It is too late then."),
    mistake(_WRONG_BACK, _WRONG_BACK + "\n        clip_gradients(parameters, max_grad_norm)",
            "The gradient is cut after every batch; it is to be cut once, when all have been added up."),
    mistake(_WRONG_BACK, _WRONG_BACK + "\n        if batch is not batches[-1]:\n            optimizer.step()",
            "The weights move after every batch, where several batches should make one step."),
    mistake("    if accelerator is not None:\n        average_gradients(parameters.values(), accelerator)\n", "",
            "Nothing is averaged over processes: each one trains a model of its own."),
    mistake("    if accelerator is not None:\n        average_gradients(parameters.values(), accelerator)\n    " + _WRONG_CLIP,
            "    " + _WRONG_CLIP + "\n    if accelerator is not None:\n        average_gradients(parameters.values(), accelerator)",
            "Each process cuts its own gradient before the mean is taken. The mean is to be cut."),
    mistake("_finite_values(losses, accelerator)", "_finite_values(losses, None)", "The record shows the losses of this process, where it should show the mean over all."),
    mistake(_WRONG_VALUES,
            "for name, loss in losses.items():\n            value = loss.item() if accelerator is None else accelerator.reduce(loss.detach(), "
            "reduction=\"mean\").item()\n"
            "            total[name] = total.get(name, 0.0) + value / len(batches)",
            "Nobody looks whether the losses are finite. A gradient can be finite where its loss is not."),
    mistake("loss_fn, precision)", "loss_fn)", "`precision` is not handed on: everything is computed in full."),
    mistake("    optimizer.step()\n", "", "The weights do not move: the optimizer is never asked to step."),
    mistake("    return total, norm", "    batches.clear()\n    return total, norm", "The caller's list of batches is emptied."),
    mistake(_WRONG_VALUES + "\n        " + _WRONG_BACK, _WRONG_BACK + "\n        " + _WRONG_VALUES, "`backward` is called before anybody looks at the losses. A loss that is refused must leave no gradient."),
    mistake(_WRONG_VALUES + "\n        " + _WRONG_BACK, _WRONG_BACK + "\n    " + _WRONG_VALUES.replace("\n    ", "\n"),
            "The losses are added up behind the loop over batches, so the record has only a share of the last batch."),
    mistake(_WRONG_VALUES, "losses = {name: loss / len(batches) for name, loss in losses.items()}\n        " + _WRONG_VALUES, _WRONG_BACK, "backward(losses)",
            "The losses of the record are divided by the number of batches twice."),
    mistake("    " + _WRONG_ZERO + "\n", "", "    optimizer.step()\n", "    optimizer.step()\n    " + _WRONG_ZERO + "\n",
            "Old gradients are forgotten behind the step, not before it. What lies about at the beginning comes along, and afterwards nobody can look at the new ones."),
    mistake("clip_gradients(parameters, max_grad_norm)", "clip_gradients(dict(model.named_parameters()), max_grad_norm)",
            "Only the gradient of the model is measured and cut. The optimizer may move weights outside of it, and leave some of it alone."),
]

VARIANTS["loop.step"] = [
    '''
def one_step(model, batches, loss_fn, optimizer, backward=sum_losses, max_grad_norm=None, accelerator=None, precision="fp32"):
    for group in optimizer.param_groups:
        for p in group["params"]:
            p.grad = None
    seen = []
    for batch in batches:
        losses = compute_losses(model, batch, loss_fn, precision)
        seen.append(_finite_values(losses, accelerator))
        backward({name: (1 / len(batches)) * loss for name, loss in losses.items()})
    parameters = _named_parameters(model, optimizer)
    if accelerator:
        average_gradients(list(parameters.values()), accelerator)
    norm = clip_gradients(parameters, max_norm=max_grad_norm)
    optimizer.step()
    return {name: sum(s.get(name, 0.0) for s in seen) / len(seen) for name in set().union(*seen)}, norm
''',
    '''
def one_step(model, batches, loss_fn, optimizer, backward=sum_losses, max_grad_norm=None, accelerator=None, precision="fp32"):
    n, parameters, means = len(batches), _named_parameters(model, optimizer), {}
    optimizer.zero_grad()
    for batch in batches:
        losses = {name: loss / n for name, loss in compute_losses(model, batch, loss_fn, precision).items()}
        for name, part in _finite_values(losses, accelerator).items():
            means[name] = part + means.get(name, 0)
        backward(losses)
    average_gradients(parameters.values(), accelerator) if accelerator is not None else None
    norm = clip_gradients(parameters, max_grad_norm)
    optimizer.step()
    return means, norm
''',
]


# ---- How strong are they?
