"""Mutants of `minbert.exercise_cases.loop`: their checks must reject them all."""

from minbert.course.trials import mistake
from minbert.exercise_cases.loop import (
    _WRONG_BACK,
    _WRONG_CLIP,
    _WRONG_CUT,
    _WRONG_TOTAL,
    _WRONG_ZERO,
)

MUTANTS = {}


MUTANTS["loop.clip"] = [
    mistake(
        "    if not math.isfinite(total):\n",
        "    if max_norm is not None:\n"
        "        torch.nn.utils.clip_grad_norm_(list(parameters.values()), max_norm)\n"
        "    if not math.isfinite(total):\n",
        "    if max_norm is not None and total > max_norm:\n"
        "        torch._foreach_mul_(list(grads.values()), max_norm / total)\n",
        "",
        "`clip_grad_norm_` cuts before anybody looks whether the length is finite: one NaN is "
        "then in all gradients.",
    ),
    mistake(
        _WRONG_TOTAL,
        "norms.sum().item()",
        "The lengths of the parts are added up. The whole is shorter: squares add up, lengths "
        "do not.",
    ),
    mistake(
        _WRONG_TOTAL,
        "(norms @ norms).item()",
        "The root is missing: that is the square of the length.",
    ),
    mistake(
        _WRONG_TOTAL,
        "norms.max().item()",
        "The length of the longest part is taken for the length of the whole.",
    ),
    mistake(
        _WRONG_TOTAL,
        "norms.square().mean().sqrt().item()",
        "The squares are averaged over the parameters, where they should be added up.",
    ),
    mistake(
        "if not math.isfinite(total):",
        "if False:",
        "NaN is not detected: the gradient is passed on to the optimizer.",
    ),
    mistake(
        "max_norm / total)",
        "total / max_norm)",
        "The factor is upside down: long gradients get longer.",
    ),
    mistake(
        "torch._foreach_mul_(list(grads.values()), max_norm / total)",
        "grads = {k: g * (max_norm / total) for k, g in grads.items()}",
        "The shortened gradients are computed and thrown away; what the optimizer reads is "
        "`.grad`.",
    ),
    mistake(
        _WRONG_CUT,
        "pass",
        "if not math.isfinite(total):",
        _WRONG_CUT + "\n    if not math.isfinite(total):",
        "The gradient is cut before anybody looks whether it is finite: what is refused has "
        "been spoilt already.",
    ),
    mistake(
        "raise NotFinite(",
        "raise ValueError(",
        "A ValueError is raised; NotFinite, which is one of its kinds, tells a caller what "
        "happened.",
    ),
    mistake(
        _WRONG_CUT,
        "factor = 1.0 if max_norm is None else (max_norm / "
        "torch.tensor(total)).clamp(max=1.0).item()\n"
        "    torch._foreach_mul_(list(grads.values()), factor)",
        "The limit is divided by the length even where both are 0: gradients of 0 become NaN.",
    ),
    mistake(
        "bad = next((name for name, n in zip(grads, norms.tolist()) if not math.isfinite(n)), "
        '"all")',
        "bad = [name for name, n in zip(grads, norms.tolist()) if not math.isfinite(n)][-1]",
        "The last bad gradient is named. The first is where to look.",
    ),
    mistake(
        "    grads = {",
        "    for p in parameters.values():\n"
        "        p.grad = torch.zeros_like(p) if p.grad is None else p.grad\n"
        "    grads = {",
        "Parameters without a gradient get one of zeros. They are to be passed over, here and "
        "by the optimizer.",
    ),
    mistake(
        "if max_norm is not None and total > max_norm:",
        "if max_norm and total > max_norm:",
        "A limit of 0 is taken for none.",
    ),
    mistake(
        "if not grads:\n        return 0.0\n",
        "if not grads:\n        return 1.0\n",
        "With no gradient at all the length is 0.",
    ),
    mistake(
        "; first in {bad}",
        "; in {[*grads]}",
        "The error names parameters whose gradient is finite, or more than the first that is not.",
    ),
    mistake(
        "torch._foreach_norm(list(grads.values()))",
        "torch._foreach_norm(list(grads.values()), 1)",
        _WRONG_TOTAL,
        "norms.sum().item()",
        "The sizes of the numbers are added up. Length is the root of the sum of squares.",
    ),
    mistake(
        "if max_norm is not None and",
        "max_norm = 1.0 if max_norm is None else max_norm\n    if",
        "Without a limit the gradient is cut at 1. None means to measure only.",
    ),
]


_WRONG_VALUES = (
    "for name, value in _finite_values(losses, accelerator).items():\n"
    "            total[name] = total.get(name, 0.0) + value / len(batches)"
)


MUTANTS["loop.step"] = [
    mistake(
        "    return total, norm",
        "    model.eval()\n    return total, norm",
        "The model is left in eval mode, so from the second step on there is no dropout.",
    ),
    mistake(
        "    return total, norm",
        "    return total, clip_gradients(parameters)",
        "The length after the cut comes back. The one before it tells of trouble.",
    ),
    mistake(
        _WRONG_CLIP,
        "norm = clip_gradients(parameters, max_grad_norm or 1.0)",
        "Where no limit is given, gradients are cut at 1.",
    ),
    mistake(
        "    optimizer.step()\n",
        "    optimizer.step()\n    optimizer.step()\n",
        "The optimizer moves twice.",
    ),
    mistake(
        "        losses = compute_losses(model, batch, loss_fn, precision)",
        "        losses = compute_losses(model, batch, loss_fn, precision)\n"
        "        if not all(loss.isfinite() for loss in losses.values()):\n            continue",
        "A bad batch is passed over in silence. It should be refused, so that somebody learns "
        "of it.",
    ),
    mistake(
        _WRONG_CLIP,
        "try:\n"
        "        norm = clip_gradients(parameters, max_grad_norm)\n"
        "    except ValueError:\n"
        '        return total, float("nan")',
        "A bad gradient is passed over in silence. It should be refused, so that somebody "
        "learns of it.",
    ),
    mistake(
        "        " + _WRONG_BACK,
        "        kept = losses",
        "    if accelerator is not None:",
        "    backward(kept)\n    if accelerator is not None:",
        "Only the last batch is pulled back. Each adds its share of the gradient.",
    ),
    mistake(
        "    return total, norm",
        "    count = {name: sum(name in compute_losses(model, batch, loss_fn, precision) for "
        "batch in batches) for name in total}\n"
        "    return {name: value * len(batches) / count[name] for name, value in "
        "total.items()}, norm",
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
        "    return total, norm",
        "    model.train(mode)\n    return total, norm",
        "The model is in train mode during the step. In which mode it is, is the caller's choice.",
    ),
    mistake(
        _WRONG_ZERO,
        _WRONG_ZERO + "\n    mode = model.training\n    model.eval()",
        "    return total, norm",
        "    model.train(mode)\n    return total, norm",
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
        "total.get(name, 0.0) + value / len(batches)",
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
        "    if accelerator is not None:\n"
        "        average_gradients(parameters.values(), accelerator)\n",
        "",
        "Nothing is averaged over processes: each one trains a model of its own.",
    ),
    mistake(
        (
            "    if accelerator is not None:\n"
            "        average_gradients(parameters.values(), accelerator)\n"
            "    "
        )
        + _WRONG_CLIP,
        "    "
        + _WRONG_CLIP
        + (
            "\n    if accelerator is not None:\n"
            "        average_gradients(parameters.values(), accelerator)"
        ),
        "Each process cuts its own gradient before the mean is taken. The mean is to be cut.",
    ),
    mistake(
        "_finite_values(losses, accelerator)",
        "_finite_values(losses, None)",
        "The record shows the losses of this process, where it should show the mean over all.",
    ),
    mistake(
        _WRONG_VALUES,
        "for name, loss in losses.items():\n"
        "            value = loss.item() if accelerator is None else "
        "accelerator.reduce(loss.detach(), "
        'reduction="mean").item()\n'
        "            total[name] = total.get(name, 0.0) + value / len(batches)",
        "Nobody looks whether the losses are finite. A gradient can be finite where its loss is "
        "not.",
    ),
    mistake(
        "    optimizer.step()\n",
        "",
        "The weights do not move: the optimizer is never asked to step.",
    ),
    mistake(
        "    return total, norm",
        "    batches.clear()\n    return total, norm",
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


MUTANTS["loop.schedule"] = [
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
        "decay_steps = total_steps - warmup_steps",
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
        "if decay_steps > 0",
        "if decay_steps != 0",
        "A warm-up longer than the run leaves a way down of less than 0 steps, and the rate is "
        "0 from first to last. It should only rise.",
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
