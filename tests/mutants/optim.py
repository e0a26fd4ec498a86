"""Mutants of `minbert.exercise_cases.optim`: their checks must reject them all."""

from minbert.course.check_runner import mistake
from minbert.exercise_cases.optim import (
    _WRONG_CALL,
    _WRONG_DECAY,
    _WRONG_M,
    _WRONG_MOVE,
    _WRONG_SIZE,
    _WRONG_V,
)

MUTANTS = {}


MUTANTS["optim.update"] = [
    mistake(
        "    beta1, beta2 = betas\n",
        "    p, m, v = p.clone(), m.clone(), v.clone()\n    beta1, beta2 = betas\n",
        "The tensors that were passed in stay as they are.",
    ),
    mistake(
        "step_size * m /",
        "step_size * (beta1 * m + (1 - beta1) * g) /",
        "The gradient enters the step twice, as in Nesterov momentum.",
    ),
    mistake(
        _WRONG_DECAY,
        "if p.ndim > 1:\n        p.sub_(lr * weight_decay * p)",
        "Only matrices decay. The groups decide which parameters decay.",
    ),
    mistake(
        "    beta1, beta2 = betas\n",
        "    beta1, beta2 = betas\n    if not g.any():\n        return\n",
        "A gradient of 0 is treated like no gradient.",
    ),
    mistake("v.sqrt() + eps", "v + eps", "The root of v is missing."),
    mistake(
        "(v.sqrt() + eps)",
        "(v.sqrt() + eps * math.sqrt(1 - beta2**t))",
        "eps is added to the corrected root, as PyTorch does.",
    ),
    mistake("(v.sqrt() + eps)", "v.sqrt()", "eps is not used."),
    mistake("(v.sqrt() + eps)", "v.sqrt().clamp_min(eps)", "eps is a minimum of the root."),
    mistake(_WRONG_SIZE, "step_size = lr / (1 - beta1**t)", "v is not corrected."),
    mistake(_WRONG_SIZE, "step_size = lr * math.sqrt(1 - beta2**t)", "m is not corrected."),
    mistake(
        _WRONG_SIZE,
        "t = t + 1\n    " + _WRONG_SIZE,
        "The step count is one too high.",
    ),
    mistake(
        _WRONG_SIZE,
        "t = max(t - 1, 1)\n    " + _WRONG_SIZE,
        "The step count is one too low.",
    ),
    mistake(_WRONG_V, "v.mul_(beta2).add_(g * g)", "The factor 1 - beta2 is missing."),
    mistake(_WRONG_M, "m.mul_(1 - beta1).add_(beta1 * g)", "beta1 and 1 - beta1 are swapped."),
    mistake(_WRONG_V, "v.mul_(1 - beta2).add_(beta2 * g * g)", "beta2 and 1 - beta2 are swapped."),
    mistake(_WRONG_V, "v.mul_(beta2).add_((1 - beta2) * g.abs())", "v averages |g|."),
    mistake(_WRONG_V, "v.mul_(beta2).add_((1 - beta2) * m * m)", "v averages the squares of m."),
    mistake("step_size * m /", "step_size * g /", "There is no momentum."),
    mistake(
        _WRONG_DECAY,
        "p.sub_(step_size * weight_decay * p)",
        "The decay uses the corrected learning rate.",
    ),
    mistake(
        _WRONG_DECAY,
        "p.sub_(weight_decay * p)",
        "The decay is not multiplied by the learning rate.",
    ),
    mistake(
        "    " + _WRONG_DECAY + "\n",
        "",
        "    " + _WRONG_MOVE,
        "    " + _WRONG_DECAY + "\n    " + _WRONG_MOVE,
        "The decay comes before the step, as in PyTorch.",
    ),
    mistake("    " + _WRONG_DECAY + "\n", "", "There is no weight decay."),
    mistake(_WRONG_DECAY, "p.add_(lr * weight_decay * p)", "The decay has the wrong sign."),
    mistake(
        _WRONG_MOVE,
        "p.reshape(-1).sub_((step_size * m / (v.sqrt() + eps)).reshape(-1))",
        "Of a transposed tensor, `reshape` makes a copy.",
    ),
    mistake(
        _WRONG_V, "v.mul_(beta2).add_((1 - beta2) * g.mul_(g))", "The gradient is overwritten."
    ),
    mistake(
        _WRONG_SIZE,
        "step_size = lr * math.sqrt(1 - 0.999**t) / (1 - 0.9**t)",
        "The correction does not use the betas.",
    ),
]


MUTANTS["optim.adamw"] = [
    mistake(
        "    return loss",
        "    return None if loss is None else 0.0",
        "The loss of the closure is not returned: it is always 0.",
    ),
    mistake("    return loss", "    return None", "The loss of the closure is not returned."),
    mistake(
        "            loss = closure()",
        "            loss = closure()\n            loss = closure()",
        "The closure is called twice.",
    ),
    mistake(
        "    return loss",
        "    self.zero_grad()\n    return loss",
        "The gradients are deleted after the step.",
    ),
    mistake(
        _WRONG_CALL,
        "kept = self.__dict__.setdefault('kept', {}).setdefault(id(group), dict(group))\n"
        "            adamw_step(p, p.grad, state['exp_avg'], state['exp_avg_sq'], t, kept['lr'], "
        "kept['betas'], kept['eps'], kept['weight_decay'])",
        "The settings of the first step are kept.",
    ),
    mistake(
        'state["exp_avg"], state["exp_avg_sq"], t,',
        'state["exp_avg"].clone(), state["exp_avg_sq"].clone(), t,',
        "The averages are updated as copies.",
    ),
    mistake(
        'state["exp_avg"] = torch.zeros_like(p)',
        'state["exp_avg"] = p.grad.clone()',
        "m starts as the first gradient.",
    ),
    mistake(
        'state["exp_avg"] = torch.zeros_like(p)',
        'state["exp_avg"] = torch.zeros(p.shape)',
        "The averages are in single precision whatever the dtype of the parameter.",
    ),
    mistake(
        '            state["step"] += 1\n',
        '            state["step"] = 1\n',
        "The count does not advance.",
    ),
    mistake(
        't = state["step"] if',
        't = max(state["step"] - 1, 1) if',
        "The step count is one too low.",
    ),
    mistake(
        "state = self.state[p]",
        "state = self.__dict__.setdefault('own', {}).setdefault(p, {})",
        "The state is kept outside of `self.state`, so it is not saved.",
    ),
    mistake('group["betas"]', "(0.9, 0.999)", "The betas are always the usual ones."),
    mistake('group["eps"]', "1e-6", "eps is always the default."),
    mistake('group["weight_decay"]', "0.0", "There is no weight decay."),
    mistake(
        'group["weight_decay"]',
        'self.defaults["weight_decay"]',
        "All groups have the weight decay of the defaults.",
    ),
    mistake(
        "for group in self.param_groups:",
        "for group in self.param_groups[:1]:",
        "Only the first group is updated.",
    ),
    mistake(
        "for group in self.param_groups:",
        "for group in self.param_groups[-1:]:",
        "Only the last group is updated.",
    ),
    mistake(
        "if p.grad is None:",
        "if p.grad is None or not p.grad.any():",
        "A gradient of 0 is treated like no gradient.",
    ),
    mistake(
        "            if p.grad is None:\n                continue\n",
        "            if p.grad is None:\n"
        '                p.mul_(1 - group["lr"] * group["weight_decay"])\n'
        "                continue\n",
        "A parameter without a gradient decays.",
    ),
    mistake(
        "    for group in self.param_groups:",
        "    for group in self.__dict__.setdefault('kept_groups', list(self.param_groups)):",
        "The groups of the first step are kept, so a group that is added later is not updated.",
    ),
    mistake(
        "    loss = None\n"
        "    if closure is not None:\n"
        "        with torch.enable_grad():\n"
        "            loss = closure()\n",
        "",
        "    return loss",
        "    loss = None\n"
        "    if closure is not None:\n"
        "        with torch.enable_grad():\n"
        "            loss = closure()\n"
        "    return loss",
        "The closure is called after the step.",
    ),
]


MUTANTS["optim.groups"] = [
    mistake(
        "decays(name, p)",
        '("bias" not in name and "norm" not in name)',
        "Names decide what decays. `decays` does.",
    ),
    mistake(
        "weight_decay if decays(name, p) else 0.0",
        "weight_decay if _is_matrix(name, p) else 0.0",
        "The rule `decays` is not asked; the built-in one decides.",
    ),
    mistake(
        "weight_decay if decays(name, p) else 0.0",
        "weight_decay if decays(name, p) and not _is_head(name) else 0.0",
        "The heads never decay. Their matrices should, as all matrices do.",
    ),
    mistake(
        "_is_head(name)",
        '"head" in name',
        'Any name with "head" in it passes for a head; only what stands below `heads.` is one.',
    ),
    mistake(
        "if head_lr is not None and _is_head(name):",
        "if _is_head(name):",
        "Without `head_lr` the heads lose the rate that everything else gets.",
    ),
    mistake(
        "if rate is not None:",
        "if rate:",
        "A rate of 0 is taken for no rate, and the optimizer fills in its own. 0 means that "
        "nothing moves.",
    ),
    mistake(
        "key = (decay, rate)",
        "key = decay",
        "Weights are sorted by decay alone: heads end up in a group with another rate.",
    ),
    mistake(
        "key = (decay, rate)",
        "key = name",
        "Every weight gets a group of its own; those that agree in decay and rate share one.",
    ),
    mistake(
        "_is_head(name):",
        'name.startswith("heads."):',
        "Only names that begin with `heads.` count as heads. It can stand at any depth.",
    ),
    mistake(
        "key = (decay, rate)",
        "key = (decay, rate, _is_head(name))",
        "The heads always have groups of their own. What agrees in decay and rate shares one.",
    ),
    mistake(
        "groups = {}",
        "groups, head_rate = {}, lr if head_lr is None else head_lr\n"
        "    for decay, rate in ((weight_decay, lr), (0.0, lr), (weight_decay, head_rate), "
        "(0.0, head_rate)):\n"
        '        groups[decay, rate] = {"params": [], "names": [], "weight_decay": decay} | '
        '({} if rate is None else {"lr": rate})',
        "Groups without a weight are listed. A group is there for the weights in it.",
    ),
]
