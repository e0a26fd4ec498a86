"""Mutants of `minbert.exercise_cases.optim`: their checks must reject them all."""

from minbert.course.trials import mistake
from minbert.exercise_cases.optim import (
    _WRONG_AFTER,
    _WRONG_ALPHA,
    _WRONG_MOVE,
    _WRONG_NEW,
    _WRONG_RATE,
    _WRONG_ROOTS,
    _WRONG_SHRINK,
    _wrong_loop,
)

MUTANTS = {}


MUTANTS["optim.rate"] = [
    mistake(
        _WRONG_RATE,
        "return lr * (1 - betas[0] ** t) / math.sqrt(1 - betas[1] ** t)",
        "The fraction is upside down, which makes averages that are too small smaller still.",
    ),
    mistake(
        _WRONG_RATE,
        "return lr * math.sqrt(1 - betas[1] * t) / (1 - betas[0] * t)",
        "The betas are multiplied by t, where the equation raises them to the power t.",
    ),
    mistake(
        _WRONG_RATE,
        "return min(lr, lr * math.sqrt(1 - betas[1] ** t) / (1 - betas[0] ** t))",
        "The rate is held below the one that was asked for. The repair may lengthen a step as "
        "well: it depends on the betas.",
    ),
    mistake(
        _WRONG_RATE,
        "return lr * math.sqrt((1 - betas[1] ** t) / (1 - betas[0] ** t))",
        "The root is taken of the whole fraction. Only v stands under a root.",
    ),
    mistake(
        _WRONG_RATE,
        "return lr * math.sqrt(1 - 0.999 ** t) / (1 - 0.9 ** t)",
        "`betas` is not used: these are the usual ones.",
    ),
    mistake(
        _WRONG_RATE,
        "return lr * math.sqrt(1 - betas[1] ** t) / (1 - betas[0] ** t) if t < math.inf else 0.0",
        "At t = inf the rate is 0. Nothing is left to repair there, so it is the one that was "
        "asked for.",
    ),
    mistake(
        _WRONG_RATE,
        "t = min(t, 1000)\n    return lr * math.sqrt(1 - betas[1] ** t) / (1 - betas[0] ** t)",
        "The count stops at a limit. With a long memory the repair goes on.",
    ),
    mistake(
        _WRONG_RATE,
        "return lr * math.sqrt(1 - betas[1] ** t) / (1 - betas[0] ** t + 1e-8)",
        "A small number is added below the bar. With betas near 1 it weighs as much as what it "
        "is added to.",
    ),
    mistake(
        _WRONG_RATE,
        "return lr * math.sqrt(1 - betas[1]) / (1 - betas[0])",
        "The betas are not raised to the power t, so every step is repaired like the first.",
    ),
]


MUTANTS["optim.update"] = [
    mistake(
        "    b1, b2 = betas\n",
        "    params, means, squares = ([x.clone() for x in tensors] for tensors in (params, "
        "means, squares))\n"
        "    b1, b2 = betas\n",
        "The numbers go into new tensors, and those that were given stay as they are. `p = p - "
        "...` makes a new tensor; what ends in an underscore, or `p -= ...`, changes the old "
        "one.",
    ),
    mistake(
        _WRONG_MOVE,
        "torch._foreach_addcdiv_(params, torch._foreach_add(torch._foreach_mul(means, b1), "
        "grads, alpha=1 - b1), roots, -alpha)",
        "The gradient is put into m a second time before the step, as Nesterov does. Adam steps "
        "by m.",
    ),
    mistake(
        _WRONG_AFTER,
        "torch._foreach_mul_([p for p in params if p.ndim > 1], 1 if decay_first else 1 - lr "
        "* weight_decay)",
        "Only matrices decay. Which weights decay is settled by the groups, not here.",
    ),
    mistake(
        _WRONG_ALPHA,
        _WRONG_ALPHA
        + "\n    means, squares = [m.clone() for m in means], [v.clone() for v in squares]",
        "The averages are computed and thrown away. They have to be changed in place: the next "
        "step goes on from them.",
    ),
    mistake(
        _WRONG_ALPHA,
        _WRONG_ALPHA + "\n    some = [i for i, g in enumerate(grads) if g.any()]\n"
        "    params, grads, means, squares = ([x[i] for i in some] for x in (params, grads, "
        "means, squares))\n"
        "    if not params:\n"
        "        return",
        "Weights with a gradient of 0 are passed over. Their averages still fade, and they "
        "still move and decay.",
    ),
    mistake(
        "roots = torch._foreach_sqrt(squares)",
        "roots = [v.clone() for v in squares]",
        "The root is missing: the step divides by v, as one printed version of the formula has "
        "it, and gets the wrong unit.",
    ),
    mistake(
        _WRONG_ROOTS,
        "torch._foreach_add_(roots, eps * math.sqrt(1 - b2**t))",
        "eps is added to the repaired root, as torch does it; here it is added to the plain "
        "root of v.",
    ),
    mistake(
        _WRONG_ROOTS,
        "",
        "eps is missing: a weight with tiny gradients takes full steps, and one with none "
        "divides by 0.",
    ),
    mistake(
        _WRONG_ROOTS,
        "torch._foreach_clamp_min_(roots, eps)",
        "eps is the least value of the root here, where it should be added to it.",
    ),
    mistake(
        _WRONG_ALPHA,
        "alpha = lr / (1 - b1**t)",
        "Only m is repaired; v keeps its start at 0, and the first steps are too long.",
    ),
    mistake(
        _WRONG_ALPHA,
        "alpha = corrected_rate(lr, betas, t - 1) if t > 1 else lr",
        "The count is one too low: t already counts the step that is being taken.",
    ),
    mistake(
        "torch._foreach_addcmul_(squares, grads, grads, 1 - b2)",
        "torch._foreach_addcmul_(squares, grads, grads, 1)",
        "The new square enters v with its full weight, so v is far too large.",
    ),
    mistake(
        "torch._foreach_mul_(means, b1)\n    torch._foreach_add_(means, grads, alpha=1 - b1)",
        "torch._foreach_mul_(means, 1 - b1)\n    torch._foreach_add_(means, grads, alpha=b1)",
        "b1 and 1 - b1 are swapped: m should remember nearly everything and take in a little.",
    ),
    mistake(
        "torch._foreach_addcmul_(squares, grads, grads, 1 - b2)",
        "torch._foreach_add_(squares, torch._foreach_abs(grads), alpha=1 - b2)",
        "v averages |g| here, where it should average the square.",
    ),
    mistake(
        "torch._foreach_addcmul_(squares, grads, grads, 1 - b2)",
        "torch._foreach_addcmul_(squares, means, means, 1 - b2)",
        "v averages the squares of m here, where it should average those of the gradient.",
    ),
    mistake(
        _WRONG_MOVE,
        "torch._foreach_addcdiv_(params, grads, roots, -alpha)",
        "The step takes the gradient itself and forgets the average m: there is no momentum.",
    ),
    mistake(
        _WRONG_AFTER,
        "if not decay_first and weight_decay:\n"
        "        torch._foreach_mul_(params, 1 - alpha * weight_decay)",
        "The decay takes the repaired rate alpha_t; it takes the plain one.",
    ),
    mistake(
        _WRONG_AFTER,
        "if not decay_first and weight_decay:\n"
        "        torch._foreach_mul_(params, 1 - weight_decay)",
        "The decay forgets the learning rate, and the weights vanish in a few steps.",
    ),
    mistake(
        "if decay_first and weight_decay:",
        "if weight_decay:",
        _WRONG_AFTER,
        "",
        "The decay is taken from the weight as it was before the step, also where it should "
        "come after it. (That is torch's order.)",
    ),
    mistake(
        "if decay_first and weight_decay:\n"
        "        torch._foreach_mul_(params, 1 - lr * weight_decay)",
        "pass",
        "if not decay_first and weight_decay:",
        "if weight_decay:",
        "`decay_first` is not read: the decay always comes after the step.",
    ),
    mistake(_WRONG_AFTER, "", "There is no decay after the step."),
    mistake(
        _WRONG_AFTER,
        "if not decay_first:\n        torch._foreach_mul_(params, 1 + lr * weight_decay)",
        "The decay has the wrong sign: the weights grow.",
    ),
    mistake(
        _WRONG_MOVE,
        "params[:] = [p - alpha * m / r for p, m, r in zip(params, means, roots)]",
        "New weights are put into the list, and the tensors that the model holds stay as they "
        "were. Change them in place.",
    ),
    mistake(
        _WRONG_MOVE,
        "for p, m, r in zip(params, means, roots):\n"
        "        p.reshape(-1).sub_(alpha * (m / r).reshape(-1))",
        "Weights are flattened with `reshape` before they move. Of a tensor that is stored "
        "crosswise that is a copy, and the weight stays.",
    ),
    mistake(
        "torch._foreach_addcmul_(squares, grads, grads, 1 - b2)",
        "torch._foreach_mul_(grads, grads)\n    torch._foreach_add_(squares, grads, alpha=1 - b2)",
        "The gradients are overwritten by their squares; they are only to be read.",
    ),
    mistake(
        _WRONG_MOVE,
        "torch._foreach_addcdiv_(params[:1], means[:1], roots[:1], -alpha)",
        "Only the first weight of the list moves.",
    ),
    mistake(
        _WRONG_MOVE,
        _WRONG_MOVE + "\n    grads.clear()",
        "The caller's list of gradients is emptied. The tensors change, the lists stay.",
    ),
    mistake(
        "    torch._foreach_mul_(means, b1)\n    torch._foreach_add_(means, grads, alpha=1 - b1)\n",
        "",
        _WRONG_MOVE,
        _WRONG_MOVE
        + (
            "\n    torch._foreach_mul_(means, b1)\n"
            "    torch._foreach_add_(means, grads, alpha=1 - b1)"
        ),
        "The step is made of m as it was before the new gradient. m takes it in first.",
    ),
    mistake(
        "    roots = torch._foreach_sqrt(squares)\n",
        "",
        "    torch._foreach_mul_(squares, b2)\n",
        "    roots = torch._foreach_sqrt(squares)\n    torch._foreach_mul_(squares, b2)\n",
        "The root is taken of v as it was before the new gradient. v takes in its square first.",
    ),
    mistake(
        "torch._foreach_mul_(squares, b2)",
        "torch._foreach_mul_(squares, 1 - b2)",
        "grads, grads, 1 - b2)",
        "grads, grads, b2)",
        "b2 and 1 - b2 are swapped: v should remember nearly everything and take in a little.",
    ),
    mistake(
        "if not decay_first and weight_decay:",
        "if weight_decay:",
        "With `decay_first` there is decay before the step and after it. It comes once.",
    ),
    mistake(
        _WRONG_ALPHA + "\n    if decay_first",
        _WRONG_ALPHA + "\n    if not decay_first",
        _WRONG_MOVE + "\n    if not decay_first",
        _WRONG_MOVE + "\n    if decay_first",
        "`decay_first` is read the wrong way round.",
    ),
]


_WRONG_OUTSIDE = """            if "exp_avg" not in state:
                state.update(exp_avg=torch.zeros_like(p), exp_avg_sq=torch.zeros_like(p))
            self.t = getattr(self, "t", {})
            self.t[id(p)] = self.t.get(id(p), 0) + 1
"""


MUTANTS["optim.adamw"] = [
    mistake(
        "    return loss",
        "    return None if loss is None else 0.0",
        "The loss of the closure is not returned: it is always 0.",
    ),
    mistake(
        "            loss = closure()",
        "            loss = closure()\n            loss = closure()",
        "The closure is called twice. Each call computes the loss again.",
    ),
    mistake(
        "    return loss",
        "    self.zero_grad()\n    return loss",
        "The gradients are deleted after the step. Whoever computed them decides that.",
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
        "The closure is called after the step. Its gradients are what the step is made of.",
    ),
    mistake(
        "    _check_gradients(self.param_groups)\n",
        '    bad = [p for group in self.param_groups for p in group["params"] if p.grad is '
        "not None and not p.grad.isfinite().all()]\n"
        "    if bad:\n        return loss\n",
        "A bad gradient is passed over in silence. It should end in a ValueError, so that "
        "somebody learns of it.",
    ),
    mistake(
        "            step(params, [p.grad for p in params], means, squares, t, **options)",
        "            step(params, [p.grad for p in params], means, squares, t, **options)\n"
        "            break",
        "Only the first bucket of a group moves. Weights that missed a gradient once have a "
        "count of their own.",
    ),
    mistake(
        "        options = {k: group[k]",
        '        kept = self.__dict__.setdefault("kept", {})\n'
        "        options = kept[id(group)] = kept.get(id(group)) or {k: group[k]",
        "The settings of the first step are kept. A schedule changes the rate afterwards.",
    ),
    mistake(
        'means = [self.state[p]["exp_avg"] for p in params]',
        'own = self.__dict__.setdefault("own", {})\n'
        "            means = [own.setdefault(p, torch.zeros_like(p)) for p in params]",
        "The averages are kept beside `state`, so they are not saved, and a run that goes on "
        "starts with zeros.",
    ),
    _wrong_loop(
        "(v.sqrt() + eps)",
        "(v.sqrt() + eps * math.sqrt(1 - b2**t))",
        "eps is added to the repaired root, as torch does it; here it is added to the plain "
        "root of v.",
    ),
    _wrong_loop(
        "(v.sqrt() + eps)",
        "v.sqrt().clamp_min(1e-30)",
        "eps is not used: weights with tiny gradients take full steps.",
    ),
    _wrong_loop(
        "(v.sqrt() + eps)",
        "(v + eps)",
        "The root of v is missing, as one printed version of the formula has it.",
    ),
    _wrong_loop(
        "(v.sqrt() + eps)", "(v.sqrt() + 1e-6)", "eps is the default whatever the group says."
    ),
    _wrong_loop(
        "alpha = lr * math.sqrt(1 - b2**t) / (1 - b1**t)",
        "alpha = lr / (1 - b1**t)",
        "Only m is repaired; v keeps its start at 0.",
    ),
    _wrong_loop(
        "alpha = lr * math.sqrt(1 - b2**t) / (1 - b1**t)",
        "alpha = lr * (1 - b2**t) / (1 - b1**t)",
        "The repair of v lacks its root.",
    ),
    _wrong_loop(
        'state["step"] if group["correct_bias"] else math.inf',
        'state["step"]',
        "`correct_bias` is not read: the averages are repaired even when it is False.",
    ),
    _wrong_loop(
        "exp_avg=torch.zeros_like(p), exp",
        "exp_avg=p.grad.clone(), exp",
        "m starts as the first gradient, but it starts at 0; the bias correction is made for that.",
    ),
    _wrong_loop(
        "exp_avg=torch.zeros_like(p), exp_avg_sq=torch.zeros_like(p)",
        "exp_avg=torch.zeros(p.shape), exp_avg_sq=torch.zeros(p.shape)",
        "The averages are in single precision whatever their weight is. They need its dtype and "
        "its device.",
    ),
    _wrong_loop(
        "p.sub_(alpha * m / (v.sqrt() + eps))",
        "p.reshape(-1).sub_((alpha * m / (v.sqrt() + eps)).reshape(-1))",
        "Weights are flattened with `reshape` before they move. Of a tensor that is stored "
        "crosswise that is a copy, and the weight stays.",
    ),
    _wrong_loop(
        "p.sub_(alpha * m",
        "p.sub_(alpha * g",
        "The step takes the gradient itself and forgets the average m: there is no momentum.",
    ),
    _wrong_loop(
        "(b1, b2), lr",
        "(b2, b1), lr",
        "The two betas are swapped: the first belongs to m, the second to v.",
    ),
    _wrong_loop(
        ".add_(g, alpha=1 - b1)", ".add_(g)", "The new gradient enters m with its full weight."
    ),
    _wrong_loop(
        "addcmul_(g, g, value=1 - b2)",
        "addcmul_(m, m, value=1 - b2)",
        "v averages the squares of m, where it should average those of the gradient.",
    ),
    _wrong_loop(
        _WRONG_SHRINK,
        '            if not group["decay_first"]:\n                p.mul_(1 - alpha * decay)\n',
        "The decay takes the repaired rate alpha_t; it takes the plain one.",
    ),
    _wrong_loop(
        _WRONG_SHRINK,
        '            if not group["decay_first"]:\n                p.mul_(1 - decay)\n',
        "The decay forgets the learning rate.",
    ),
    _wrong_loop(
        '            if group["decay_first"]:\n    ',
        "            if True:\n    ",
        _WRONG_SHRINK,
        "",
        "The decay is taken from the weight as it was before the step, also where it should "
        "come after it. (That is torch's order.)",
    ),
    _wrong_loop(
        '            if group["decay_first"]:\n                p.mul_(1 - lr * decay)\n',
        "",
        'if not group["decay_first"]:',
        "if True:",
        "`decay_first` is not read: the decay always comes after the step.",
    ),
    _wrong_loop(
        '            if group["decay_first"]:\n                p.mul_(1 - lr * decay)\n',
        "",
        _WRONG_SHRINK,
        "",
        "There is no weight decay.",
    ),
    mistake(
        "options = {k: group[k]",
        "options = {k: self.param_groups[0][k]",
        "All groups use the settings of the first.",
    ),
    mistake(
        "options = {k: group[k]",
        "options = {k: self.defaults[k]",
        "The settings come from `self.defaults`: groups with rules of their own, and changed "
        "rates, have no effect.",
    ),
    mistake(
        "for group in self.param_groups:",
        "for group in self.param_groups[:1]:",
        "Only the first group moves.",
    ),
    _wrong_loop(
        "if p.grad is None:",
        "if p.grad is None or not p.grad.any():",
        "A gradient of 0 is treated like no gradient. But with 0 momentum and decay still act.",
    ),
    _wrong_loop(
        "            if p.grad is None:\n                continue\n",
        "            if p.grad is None:\n"
        "                p.mul_(1 - lr * decay)\n"
        "                continue\n",
        "A weight without gradient decays; it should be left alone.",
    ),
    _wrong_loop(
        "if p.grad is None:\n                continue",
        "if p.grad is None:\n                break",
        "The loop over the weights ends at the first one without gradient; the others of the "
        "group should still move.",
    ),
    _wrong_loop(
        _WRONG_NEW,
        _WRONG_OUTSIDE,
        'state["step"] if',
        "self.t[id(p)] if",
        "The count is kept outside of `self.state`, so it starts again after the state was "
        "saved and loaded.",
    ),
    _wrong_loop(
        '            state["step"] += 1\n',
        '            state["step"] = 1\n',
        "The count does not advance: every step is taken for the first.",
    ),
    mistake(
        "_check_gradients(self.param_groups)",
        "pass",
        "Nobody looks at the gradients before the step: one NaN spoils the weights for good.",
    ),
    _wrong_loop(
        "    _check_gradients(self.param_groups)\n",
        "",
        "            alpha = lr",
        "            _check_gradients(self.param_groups)\n            alpha = lr",
        "The gradients are checked after the averages have taken them in. The state is spoilt, "
        "although the weights are not.",
    ),
    mistake(
        "    _check_gradients(self.param_groups)\n    for group in self.param_groups:\n",
        "    for group in self.param_groups:\n        _check_gradients([group])\n",
        "The gradients are looked at group by group. When the second group is refused, the "
        "first has moved already.",
    ),
    mistake(
        "with torch.enable_grad():\n            loss = closure()",
        "loss = closure()",
        "The closure runs while gradients are switched off, so it cannot compute any.",
    ),
    mistake("return loss", "return None", "The closure's loss is not given back."),
    mistake(
        "    for group in self.param_groups:",
        '    for group in self.__dict__.setdefault("kept_groups", list(self.param_groups)):',
        "The groups of the first step are kept. A group that is added later never moves.",
    ),
    mistake(
        "means, squares, t, **options)",
        "[m.clone() for m in means], [v.clone() for v in squares], t, **options)",
        "The averages are moved as copies, so `state` keeps zeros and every step starts anew.",
    ),
    mistake(
        'squares = [self.state[p]["exp_avg_sq"] for p in params]',
        "squares = means",
        "Both averages are kept in one place, and each overwrites the other.",
    ),
    mistake(
        "means, squares, t, **options)",
        "means, squares, 1, **options)",
        "The step is always told that it is the first.",
    ),
    mistake(
        "means, squares, t, **options)",
        "means, squares, t + 1, **options)",
        "The count is one too high: `_buckets` has advanced it already.",
    ),
    mistake(
        "self._buckets(group)",
        "self._buckets(self.param_groups[0])",
        "Each group moves the weights of the first.",
    ),
    mistake(
        "for group in self.param_groups:",
        "for group in self.param_groups[-1:]:",
        "Only the last group moves.",
    ),
    mistake(
        "    return loss",
        "    for group in self.param_groups:\n"
        '        for p in group["params"]:\n'
        "            if p.grad is not None:\n"
        "                p.grad.zero_()\n"
        "    return loss",
        "The gradients are set to 0 after the step. Whoever computed them decides that.",
    ),
    mistake(
        "    _check_gradients(self.param_groups)\n",
        "    for group in self.param_groups:\n"
        '        for p in group["params"]:\n'
        "            if p.grad is not None:\n"
        "                p.grad.nan_to_num_()\n",
        "NaN and infinity are replaced by numbers. The step should end in a ValueError before "
        "it moves anything.",
    ),
    mistake(
        "    loss = None\n",
        "    _check_gradients(self.param_groups)\n    loss = None\n",
        "            loss = closure()\n    _check_gradients(self.param_groups)\n",
        "            loss = closure()\n",
        "The gradients are looked at before the closure has made them.",
    ),
    mistake(
        "    _check_gradients(self.param_groups)\n",
        "",
        "    return loss",
        "    _check_gradients(self.param_groups)\n    return loss",
        "The gradients are looked at after the step, when weights and averages are spoilt.",
    ),
    mistake(
        "    for group in self.param_groups:\n"
        '        options = {k: group[k] for k in ("lr", "betas", "eps", "weight_decay", '
        '"decay_first")}',
        "    for group in self.param_groups:\n"
        '        options = {k: group[k] for k in ("lr", "betas", "eps", "weight_decay", '
        '"decay_first")} | {"betas": (0.9, 0.999)}',
        "The betas are the usual ones whatever the group says.",
    ),
]


MUTANTS["optim.schedule"] = [
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
        "head_lr if head_lr is not None and _is_head(name) else lr",
        "head_lr if _is_head(name) else lr",
        "Without `head_lr` the heads lose the rate that everything else gets.",
    ),
    mistake(
        "new if rate is None else new",
        "new if not rate else new",
        "A rate of 0 is taken for no rate, and the optimizer fills in its own. 0 means that "
        "nothing moves.",
    ),
    mistake(
        "groups.setdefault((decay, rate), ",
        "groups.setdefault(decay, ",
        "Weights are sorted by decay alone: heads end up in a group with another rate.",
    ),
    mistake(
        "groups.setdefault((decay, rate), ",
        "groups.setdefault(name, ",
        "Every weight gets a group of its own; those that agree in decay and rate share one.",
    ),
    mistake(
        "_is_head(name) else lr",
        'name.startswith("heads.") else lr',
        "Only names that begin with `heads.` count as heads. It can stand at any depth.",
    ),
    mistake(
        "groups.setdefault((decay, rate),",
        "groups.setdefault((decay, rate, _is_head(name)),",
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
