"""Mutants of `minbert.exercise_cases.training`: their checks must reject them all."""

from minbert.course.check_runner import mistake
from minbert.exercise_cases.training import (
    _WRONG_BACK,
    _WRONG_CLIP,
    _WRONG_CUT,
    _WRONG_SQUARES,
    _WRONG_ZERO,
)

MUTANTS = {}


MUTANTS["training.clip"] = [
    mistake(
        "    gradients, squared_norm = [], 0.0\n",
        "    gradients, squared_norm = [], 0.0\n"
        "    if max_norm is not None:\n"
        "        torch.nn.utils.clip_grad_norm_(list(parameters.values()), max_norm)\n",
        "`clip_grad_norm_` clips before the norm is checked.",
    ),
    mistake(_WRONG_SQUARES, "squared_norm += norm", "The norms are added, not their squares."),
    mistake("total = math.sqrt(squared_norm)", "total = squared_norm", "The root is missing."),
    mistake(
        "total = math.sqrt(squared_norm)",
        "total = max([g.norm().item() for g in gradients], default=0.0)",
        "The largest norm is taken for the norm of the whole.",
    ),
    mistake(
        "total = math.sqrt(squared_norm)",
        "total = math.sqrt(squared_norm / max(1, len(gradients)))",
        "The squares are averaged.",
    ),
    mistake("if not math.isfinite(norm):", "if False:", "NaN is not detected."),
    mistake("max_norm / total)", "total / max_norm)", "The factor is upside down."),
    mistake(
        "gradient.mul_(max_norm / total)",
        "gradient = gradient * (max_norm / total)",
        "The clipped gradients are computed but not stored.",
    ),
    mistake("raise NotFinite(", "raise ValueError(", "The error is not a NotFinite."),
    mistake(
        _WRONG_CUT,
        "factor = 1.0 if max_norm is None else (max_norm / torch.tensor(total)).clamp(max=1.0).item()\n"
        "    for gradient in gradients:\n"
        "        gradient.mul_(factor)",
        "0 is divided by 0.",
    ),
    mistake(
        "        gradients.append(p.grad)\n",
        "        gradients.append(p.grad)\n"
        "        if max_norm is not None and norm > max_norm:\n"
        "            p.grad.mul_(max_norm / norm)\n",
        "Gradients change before all of them are checked.",
    ),
    mistake(
        "        if p.grad is None:\n            continue\n",
        "        if p.grad is None:\n            p.grad = torch.zeros_like(p)\n",
        "A missing gradient becomes one of zeros.",
    ),
    mistake(
        "if max_norm is not None and total > max_norm:",
        "if max_norm and total > max_norm:",
        "A limit of 0 is taken for none.",
    ),
    mistake("    return total\n", "    return total or 1.0\n", "A norm of 0 becomes 1."),
    mistake("; first in {name}", "; in {[*parameters]}", "The error names all parameters."),
    mistake("p.grad.norm()", "p.grad.norm(1)", "The norm is the sum of absolute values."),
    mistake(
        "    gradients, squared_norm = [], 0.0\n",
        "    gradients, squared_norm = [], 0.0\n"
        "    max_norm = 1.0 if max_norm is None else max_norm\n",
        "Without a limit the gradient is clipped to 1.",
    ),
]


_WRONG_VALUES = (
    "for name, value in finite_values(losses).items():\n"
    "            mean_losses[name] = mean_losses.get(name, 0.0) + value / len(batches)"
)


MUTANTS["training.step"] = [
    mistake(
        "    return mean_losses, grad_norm",
        "    model.eval()\n    return mean_losses, grad_norm",
        "The model is left in eval mode, so from the second step on there is no dropout.",
    ),
    mistake(
        "    return mean_losses, grad_norm",
        "    return mean_losses, clip_gradients(parameters)",
        "The length after the cut comes back. The one before it tells of trouble.",
    ),
    mistake(
        _WRONG_CLIP,
        "grad_norm = clip_gradients(parameters, max_grad_norm or 1.0)",
        "Where no limit is given, gradients are cut at 1.",
    ),
    mistake(
        "    optimizer.step()\n",
        "    optimizer.step()\n    optimizer.step()\n",
        "The optimizer moves twice.",
    ),
    mistake(
        "        losses = compute_losses(model, batch, loss_fn)",
        "        losses = compute_losses(model, batch, loss_fn)\n"
        "        if not all(loss.isfinite() for loss in losses.values()):\n            continue",
        "A bad batch is passed over in silence. It should be refused, so that somebody learns "
        "of it.",
    ),
    mistake(
        _WRONG_CLIP,
        "try:\n"
        "        grad_norm = clip_gradients(parameters, max_grad_norm)\n"
        "    except ValueError:\n"
        '        return mean_losses, float("nan")',
        "A bad gradient is passed over in silence. It should be refused, so that somebody "
        "learns of it.",
    ),
    mistake(
        "        " + _WRONG_BACK,
        "        kept = losses",
        "    " + _WRONG_CLIP,
        "    backward(kept)\n    " + _WRONG_CLIP,
        "Only the last batch is pulled back. Each adds its share of the gradient.",
    ),
    mistake(
        "    return mean_losses, grad_norm",
        "    count = {name: sum(name in compute_losses(model, batch, loss_fn) for "
        "batch in batches) for name in mean_losses}\n"
        "    return {name: value * len(batches) / count[name] for name, value in "
        "mean_losses.items()}, grad_norm",
        "A loss is averaged over the batches that have its task. It is the mean over all "
        "batches of the step.",
    ),
    mistake(
        _WRONG_ZERO,
        _WRONG_ZERO + "\n    model.train()",
        "The model is put into train mode. In which mode it is, is the caller's choice.",
    ),
    mistake(
        _WRONG_ZERO,
        _WRONG_ZERO + "\n    mode = model.training\n    model.train()",
        "    return mean_losses, grad_norm",
        "    model.train(mode)\n    return mean_losses, grad_norm",
        "The model is in train mode during the step. In which mode it is, is the caller's choice.",
    ),
    mistake(
        _WRONG_ZERO,
        _WRONG_ZERO + "\n    mode = model.training\n    model.eval()",
        "    return mean_losses, grad_norm",
        "    model.train(mode)\n    return mean_losses, grad_norm",
        "The model is in eval mode during the step, so it learns without dropout.",
    ),
    mistake(
        _WRONG_ZERO,
        "model.zero_grad()",
        "The gradients of the model are forgotten. The optimizer may move weights outside of "
        "it, which keep theirs.",
    ),
    mistake(
        _WRONG_ZERO,
        "optimizer.zero_grad(set_to_none=False)",
        "Old gradients are set to 0 instead of None. A head that no batch used then coasts and "
        "decays, where it should be passed over.",
    ),
    mistake(
        _WRONG_BACK,
        "backward({name: loss / len(batches) / len(losses) for name, loss in losses.items()})",
        "The losses are divided by the number of tasks as well; they are to be added up.",
    ),
    mistake(
        _WRONG_BACK,
        "sum_losses({name: loss / len(batches) for name, loss in losses.items()})",
        "The caller's `backward` is not used; the losses are simply added up.",
    ),
    mistake(
        "mean_losses.get(name, 0.0) + value / len(batches)",
        "value",
        "The record shows the last batch only; it should be the mean over the batches.",
    ),
    mistake(
        "value / len(batches)\n",
        "value\n",
        "The record adds the batches up; it should be their mean.",
    ),
    mistake(
        _WRONG_BACK,
        _WRONG_BACK + "\n        clip_gradients(parameters, max_grad_norm)",
        "The gradient is cut after every batch; it is to be cut once, when all have been added up.",
    ),
    mistake(
        _WRONG_VALUES,
        "for name, loss in losses.items():\n"
        "            value = loss.item()\n"
        "            mean_losses[name] = mean_losses.get(name, 0.0) + value / len(batches)",
        "Nobody looks whether the losses are finite. A gradient can be finite where its loss is "
        "not.",
    ),
    mistake(
        "    optimizer.step()\n",
        "",
        "The weights do not move: the optimizer is never asked to step.",
    ),
    mistake(
        "    return mean_losses, grad_norm",
        "    batches.clear()\n    return mean_losses, grad_norm",
        "The caller's list of batches is emptied.",
    ),
    mistake(
        _WRONG_VALUES + "\n        " + _WRONG_BACK,
        _WRONG_BACK + "\n        " + _WRONG_VALUES,
        "`backward` is called before anybody looks at the losses. A loss that is refused must "
        "leave no gradient.",
    ),
    mistake(
        _WRONG_VALUES + "\n        " + _WRONG_BACK,
        _WRONG_BACK + "\n    " + _WRONG_VALUES.replace("\n    ", "\n"),
        "The losses are added up behind the loop over batches, so the record has only a share "
        "of the last batch.",
    ),
    mistake(
        _WRONG_VALUES,
        "losses = {name: loss / len(batches) for name, loss in losses.items()}\n        "
        + _WRONG_VALUES,
        _WRONG_BACK,
        "backward(losses)",
        "The losses of the record are divided by the number of batches twice.",
    ),
    mistake(
        "    " + _WRONG_ZERO + "\n",
        "",
        "    optimizer.step()\n",
        "    optimizer.step()\n    " + _WRONG_ZERO + "\n",
        "Old gradients are forgotten behind the step, not before it. What lies about at the "
        "beginning comes along, and afterwards nobody can look at the new ones.",
    ),
    mistake(
        "clip_gradients(parameters, max_grad_norm)",
        "clip_gradients(dict(model.named_parameters()), max_grad_norm)",
        "Only the gradient of the model is measured and cut. The optimizer may move weights "
        "outside of it, and leave some of it alone.",
    ),
]


MUTANTS["training.schedule"] = [
    mistake(
        "    if decay_steps is None:",
        "    if not decay_steps:",
        "A way down of 0 steps is taken for none given. It leaves its line out.",
    ),
    mistake(
        "return max(",
        "return 0.0 if step >= total_steps else max(",
        "After the end the rate is 0 even where there is no way down. There it stays at 1.",
    ),
    mistake(
        "min(1.0, up, down)",
        "min(1.0, up) * min(1.0, down)",
        "The slopes are multiplied; where both are below 1, the lower one counts.",
    ),
    mistake(
        "min(1.0, up, down)",
        "(up if step < warmup_steps else min(1.0, down))",
        "The way down is not looked at before the warm-up is over.",
    ),
    mistake(
        "decay_steps = max(1, total_steps - warmup_steps)",
        "decay_steps = 0",
        "`None` is taken for 0: there is no way down.",
    ),
    mistake(
        "min(1.0, up, down)",
        "max(up, down) if up < 1 and down < 1 else min(1.0, up, down)",
        "Where both slopes are below 1 the lower one counts, not the higher one.",
    ),
    mistake(
        "min(1.0, up, down)",
        "min(up, down)",
        "There is no ceiling: between the slopes the rate goes beyond its peak.",
    ),
    mistake(
        "down = (total_steps - step) / decay_steps",
        "down = 1 - (step - warmup_steps) / decay_steps",
        "The way down begins where the warm-up ends. It lies at the end of the run.",
    ),
    mistake(
        "down = (total_steps - step) / decay_steps",
        "down = (total_steps - step + 1) / decay_steps",
        "The way down comes one step late: where the run is over the rate is not yet 0.",
    ),
]
