"""How the largest exercise of chapter 05, the step of AdamW, is checked: ten runs, and the mistakes that they tell apart."""


import copy
import math

import torch
from torch import nn

from minbert.course.trials import Case, Trial, fixed, mistake


TRIALS, MISTAKES, VARIANTS = {}, {}, {}


# Can an optimizer be wrong for months? If it forgets the count when a run is resumed, only resumed runs are a little worse. If it decays weights that
# have no gradient, only the heads of rare tasks fade. So the runs here have gaps, reloads and surprises.

# ---- optim.adamw
#
# Here the mathematics is given and the bookkeeping is asked for: groups with rules of their own, weights without gradient, rates that change between
# steps, a state that is saved and loaded in the middle, a closure, a gradient that is NaN, a weight that is stored by columns. But a loop
# of one's own is a right answer too, so everything that can go wrong in `optim.update` can go wrong here.

def adamw_cases(generator):
    draw = lambda *shape, **kw: fixed(generator, 1, *shape, **kw)[0]
    sizes = ((3, 2), (4,), (), (2, 5))
    grads = lambda steps, size: [[size * draw(*s) for s in sizes] for _ in range(steps)]
    plain = {"lr": 0.1, "weight_decay": 0.3, "eps": 1e-4, "betas": (0.8, 0.9)}
    four = {"weights": [1 + draw(*s) for s in sizes]}
    one = four | {"groups": [([0, 1, 2, 3], {})], "defaults": plain}
    own = [([0, 2], {"lr": 0.02, "betas": (0.5, 0.6), "eps": 1e-2, "weight_decay": 0.9}), ([3, 1], {"fused": False, "correct_bias": False, "decay_first": True})]
    gaps = grads(6, 1e-3)
    for step, i in ((0, 1), (1, 1), (2, 0), (3, 0), (3, 2), (4, 1)):
        gaps[step][i] = None
    gaps[0][2] = torch.zeros((), dtype=torch.float64)
    bad = grads(4, 1e-3)
    bad[1][3] = torch.full_like(bad[1][3], math.inf)
    bad[2][0] = bad[2][0] * math.nan
    single = {"weights": [1 + draw(3, 4, dtype=torch.float32)], "groups": [([0], {})], "defaults": plain}
    lone = {"weights": [torch.ones(1, dtype=torch.float64)], "groups": [([0], {})], "defaults": {"lr": 0.01, "weight_decay": 0.5}}
    return [Case("one weight, three gradients", {**lone, "gradients": [[1e-4 * draw(1)], [-1e-4 * draw(1)], [draw(1) * 0]]}),
            Case("two groups, each with rules of its own", {**four, "groups": own, "defaults": plain, "gradients": grads(4, 1e-3)}),
            Case("gradients missing now and then", {**one, "gradients": gaps}),
            Case("saved and loaded after the third step", {**one, "groups": own, "gradients": gaps, "reload": 3}),
            Case("a group that is added after the second step", {**one, "groups": [([0, 1, 2], {})], "gradients": grads(4, 1e-3), "late": ([3], {"lr": 0.02})}),
            Case("no bias correction", {**one, "defaults": plain | {"correct_bias": False}, "gradients": grads(3, 1e-3)}),
            Case("decay before the step", {**one, "defaults": plain | {"decay_first": True}, "gradients": grads(3, 1e-3)}),
            Case("a rate that changes", {**one, "gradients": grads(4, 1e-3), "rates": [0.1, 0.05, 0.0, 0.3]}),
            Case("an infinite gradient in step 2, NaN in step 3", {**one, "gradients": bad}),
            Case("the same in the second of two groups", {**one, "groups": own, "gradients": bad}),
            Case("with a closure", {**one, "gradients": [[None] * 4] * 3, "closure": True}),
            Case("a closure whose gradient is not finite in step 2", {**one, "gradients": [[None] * 4] * 3, "closure": True, "broken": 2}),
            Case("single precision, gradients stored crosswise", {**single, "gradients": [[draw(4, 3, dtype=torch.float32).T] for _ in range(3)]}),
            Case("weights stored crosswise", {**one, "gradients": grads(2, 1e-3), "crosswise": True})]


def run_adamw(kind, inputs):
    """Train on given gradients; look at the weights after every step, and note which steps were refused."""
    crosswise = lambda w: w.mT.contiguous().mT if "crosswise" in inputs and w.ndim == 2 else w.clone()
    weights = [nn.Parameter(crosswise(w)) for w in inputs["weights"]]
    group_of = lambda members, own: {"params": [weights[i] for i in members], **own}
    make = lambda: kind([group_of(*group) for group in inputs["groups"]], **inputs["defaults"])
    optimizer, seen, refused, calls = make(), {}, [], []

    def closure():
        calls.append(1)
        optimizer.zero_grad()
        loss = sum((w * w).sum() for w in weights)
        loss.backward()
        if len(calls) == inputs.get("broken"):
            weights[1].grad.fill_(math.nan)
        return loss

    for n, grads in enumerate(inputs["gradients"]):
        if n == inputs.get("reload"):
            saved = copy.deepcopy(optimizer.state_dict())
            optimizer = make()
            optimizer.load_state_dict(saved)
        if n == 2 and "late" in inputs:
            optimizer.add_param_group(group_of(*inputs["late"]))
        for group in optimizer.param_groups if "rates" in inputs else ():
            group["lr"] = inputs["rates"][n]
        for w, g in zip(weights, grads):
            w.grad = None if g is None else g.clone()
        try:
            loss = optimizer.step(closure) if "closure" in inputs else optimizer.step()
        except ValueError:
            refused.append(n)
            loss = None
        seen |= {f"weight {i} after step {n + 1}": w.detach().clone() for i, w in enumerate(weights)}
        if "closure" in inputs:
            seen[f"loss of step {n + 1}"] = torch.as_tensor(math.nan if loss is None else loss)
        elif any(g is not None and w.grad is None for w, g in zip(weights, grads)):
            seen["a gradient is gone"] = torch.tensor(True)
        elif any(g is not None and not torch.equal(g.nan_to_num(), w.grad.nan_to_num()) for w, g in zip(weights, grads)):
            seen["a gradient was overwritten"] = torch.tensor(True)
    kept = [(x, w) for w in weights for x in optimizer.state.get(w, {}).values() if isinstance(x, torch.Tensor) and w.ndim and x.shape == w.shape]
    return seen | {"averages as precise as their weight": all(torch.promote_types(x.dtype, w.dtype) == x.dtype for x, w in kept), "steps refused": torch.tensor(refused), "calls of the closure": torch.tensor(len(calls))}


TRIALS["optim.adamw"] = Trial(adamw_cases, run_adamw, atol=1e-12, subject="adamw", forbidden=("torch.optim.AdamW", "torch.optim.Adam", "super().step"),
                             hints=(
    "Four things in order: the closure's loss, the look at all gradients, the groups one after the other, the loss back to the caller. Which "
    "settings belong to the group, which facts to a single weight?",
    "`for key, params in self._buckets(group).items()` gives lists of weights that share the count t. Their averages stand in "
    "self.state[p][\"exp_avg\"] and [\"exp_avg_sq\"]; the count is advanced already.",
    "After `_check_gradients`, for each bucket call portable_step(params, [p.grad for p in params], means, squares, t, lr=group[\"lr\"], ...) with t the first part of the "
    "key; it is math.inf where correct_bias is off. Closures need torch.enable_grad()."))


_WRONG_GROUPS = '''    _check_gradients(self.param_groups)
    for group in self.param_groups:
        options = {k: group[k] for k in ("lr", "betas", "eps", "weight_decay", "decay_first")}
        for (t, _, _, fused), params in self._buckets(group).items():
            means = [self.state[p]["exp_avg"] for p in params]
            squares = [self.state[p]["exp_avg_sq"] for p in params]
            step = _fused_step if fused else portable_step
            step(params, [p.grad for p in params], means, squares, t, **options)
'''
_WRONG_LOOP = '''    _check_gradients(self.param_groups)
    for group in self.param_groups:
        (b1, b2), lr, eps, decay = group["betas"], group["lr"], group["eps"], group["weight_decay"]
        for p in group["params"]:
            if p.grad is None:
                continue
            g, state = p.grad, self.state[p]
            if not state:
                state.update(step=0, exp_avg=torch.zeros_like(p), exp_avg_sq=torch.zeros_like(p))
            state["step"] += 1
            t = state["step"] if group["correct_bias"] else math.inf
            m = state["exp_avg"].mul_(b1).add_(g, alpha=1 - b1)
            v = state["exp_avg_sq"].mul_(b2).addcmul_(g, g, value=1 - b2)
            alpha = lr * math.sqrt(1 - b2**t) / (1 - b1**t)
            if group["decay_first"]:
                p.mul_(1 - lr * decay)
            p.sub_(alpha * m / (v.sqrt() + eps))
            if not group["decay_first"]:
                p.mul_(1 - lr * decay)
'''
_WRONG_SHRINK = "            if not group[\"decay_first\"]:\n                p.mul_(1 - lr * decay)\n"
_WRONG_SKIP = "            if p.grad is None:\n                continue\n            g, state = p.grad, self.state[p]\n"
_WRONG_NEW = '''            if not state:
                state.update(step=0, exp_avg=torch.zeros_like(p), exp_avg_sq=torch.zeros_like(p))
            state["step"] += 1
'''
_WRONG_OUTSIDE = '''            if "exp_avg" not in state:
                state.update(exp_avg=torch.zeros_like(p), exp_avg_sq=torch.zeros_like(p))
            self.t = getattr(self, "t", {})
            self.t[id(p)] = self.t.get(id(p), 0) + 1
'''


def _wrong_loop(*texts):
    """The step as a loop of one's own, with edits, and last the sentence."""
    *edits, says = texts
    text = _WRONG_LOOP
    for old, new in zip(edits[::2], edits[1::2]):
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    return mistake(_WRONG_GROUPS, text, says)


MISTAKES["optim.adamw"] = [
    mistake("    return loss", "    return None if loss is None else 0.0", "The loss of the closure is not returned: it is always 0."),
    mistake("            loss = closure()", "            loss = closure()\n            loss = closure()", "The closure is called twice. Each call computes the loss again."),
    mistake("    return loss", "    self.zero_grad()\n    return loss", "The gradients are deleted after the step. Whoever computed them decides that."),
    mistake("    loss = None\n    if closure is not None:\n        with torch.enable_grad():\n            loss = closure()\n", "", "    return loss",
            "    loss = None\n    if closure is not None:\n        with torch.enable_grad():\n            loss = closure()\n    return loss",
            "The closure is called after the step. Its gradients are what the step is made of."),
    mistake("    _check_gradients(self.param_groups)\n", "    bad = [p for group in self.param_groups for p in group[\"params\"] if p.grad is not None and not p.grad.isfinite().all()]\n"
            "    if bad:\n        return loss\n", "A bad gradient is passed over in silence. It should end in a ValueError, so that somebody learns of it."),
    mistake("            step(params, [p.grad for p in params], means, squares, t, **options)", "            step(params, [p.grad for p in params], means, squares, t, **options)\n            break",
            "Only the first bucket of a group moves. Weights that missed a gradient once have a count of their own."),
    mistake("        options = {k: group[k]", "        kept = self.__dict__.setdefault(\"kept\", {})\n        options = kept[id(group)] = kept.get(id(group)) or {k: group[k]",
            "The settings of the first step are kept. A schedule changes the rate afterwards."),
    mistake("means = [self.state[p][\"exp_avg\"] for p in params]", "own = self.__dict__.setdefault(\"own\", {})\n"
            "            means = [own.setdefault(p, torch.zeros_like(p)) for p in params]",
            "The averages are kept beside `state`, so they are not saved, and a run that goes on starts with zeros."),
    _wrong_loop("(v.sqrt() + eps)", "(v + eps).sqrt()", "eps stands inside the root, where 1e-6 counts like 1e-3."),
    _wrong_loop("(v.sqrt() + eps)", "(v.sqrt() + eps * math.sqrt(1 - b2**t))",
            "eps is added to the repaired root, as torch does it; here it is added to the plain root of v."),
    _wrong_loop("(v.sqrt() + eps)", "v.sqrt().clamp_min(1e-30)", "eps is not used: weights with tiny gradients take full steps."),
    _wrong_loop("(v.sqrt() + eps)", "(v + eps)", "The root of v is missing, as one printed version of the formula has it."),
    _wrong_loop("(v.sqrt() + eps)", "(v.sqrt() + 1e-6)", "eps is the default whatever the group says."),
    _wrong_loop("alpha = lr * math.sqrt(1 - b2**t) / (1 - b1**t)", "alpha = lr",
            "There is no bias correction: both averages start at 0 and are taken as they are."),
    _wrong_loop("alpha = lr * math.sqrt(1 - b2**t) / (1 - b1**t)", "alpha = lr / (1 - b1**t)", "Only m is repaired; v keeps its start at 0."),
    _wrong_loop("alpha = lr * math.sqrt(1 - b2**t) / (1 - b1**t)", "alpha = lr * (1 - b2**t) / (1 - b1**t)", "The repair of v lacks its root."),
    _wrong_loop("state[\"step\"] if group[\"correct_bias\"] else math.inf", "state[\"step\"]",
            "`correct_bias` is not read: the averages are repaired even when it is False."),
    _wrong_loop("t = state[\"step\"] if", "t = max(state[\"step\"] - 1, 1) if", "The count is one too low: it must advance before it is used."),
    _wrong_loop("exp_avg=torch.zeros_like(p), exp", "exp_avg=p.grad.clone(), exp",
            "m starts as the first gradient, but it starts at 0; the bias correction is made for that."),
    _wrong_loop("exp_avg=torch.zeros_like(p), exp_avg_sq=torch.zeros_like(p)", "exp_avg=torch.zeros(p.shape), exp_avg_sq=torch.zeros(p.shape)",
            "The averages are in single precision whatever their weight is. They need its dtype and its device."),
    _wrong_loop("p.sub_(alpha * m / (v.sqrt() + eps))", "p.reshape(-1).sub_((alpha * m / (v.sqrt() + eps)).reshape(-1))",
            "Weights are flattened with `reshape` before they move. Of a tensor that is stored crosswise that is a copy, and the weight stays."),
    _wrong_loop("p.sub_(alpha * m", "p.sub_(alpha * g", "The step takes the gradient itself and forgets the average m: there is no momentum."),
    _wrong_loop("(b1, b2), lr", "(b2, b1), lr", "The two betas are swapped: the first belongs to m, the second to v."),
    _wrong_loop(".add_(g, alpha=1 - b1)", ".add_(g)", "The new gradient enters m with its full weight."),
    _wrong_loop("addcmul_(g, g, value=1 - b2)", "addcmul_(m, m, value=1 - b2)",
            "v averages the squares of m, where it should average those of the gradient."),
    _wrong_loop("g, state = p.grad, self.state[p]", "g, state = p.grad + decay * p, self.state[p]",
            "            if group[\"decay_first\"]:\n                p.mul_(1 - lr * decay)\n", "", _WRONG_SHRINK, "",
                "The decay is added to the gradient and goes through the averages: plain Adam with an L2 penalty, which AdamW is not."),
    _wrong_loop(_WRONG_SHRINK, "            if not group[\"decay_first\"]:\n                p.mul_(1 - alpha * decay)\n",
            "The decay takes the repaired rate alpha_t; it takes the plain one."),
    _wrong_loop(_WRONG_SHRINK, "            if not group[\"decay_first\"]:\n                p.mul_(1 - decay)\n",
            "The decay forgets the learning rate."),
    _wrong_loop("            if group[\"decay_first\"]:\n    ", "            if True:\n    ", _WRONG_SHRINK, "",
            "The decay is taken from the weight as it was before the step, also where it should come after it. (That is torch's order.)"),
    _wrong_loop("            if group[\"decay_first\"]:\n                p.mul_(1 - lr * decay)\n", "", "if not group[\"decay_first\"]:",
            "if True:", "`decay_first` is not read: the decay always comes after the step."),
    _wrong_loop("            if group[\"decay_first\"]:\n                p.mul_(1 - lr * decay)\n", "", _WRONG_SHRINK, "",
            "There is no weight decay."),
    mistake("for k in (\"lr\", \"betas\", \"eps\", \"weight_decay\", \"decay_first\")}",
            "for k in (\"lr\", \"betas\", \"eps\", \"weight_decay\", \"decay_first\")} | {\"lr\": self.defaults[\"lr\"]}",
            "The rate comes from `self.defaults`: a schedule, or a group with a rate of its own, has no effect."),
    mistake("options = {k: group[k]", "options = {k: self.param_groups[0][k]", "All groups use the settings of the first."),
    mistake("options = {k: group[k]", "options = {k: self.defaults[k]",
            "The settings come from `self.defaults`: groups with rules of their own, and changed rates, have no effect."),
    mistake("for group in self.param_groups:", "for group in self.param_groups[:1]:", "Only the first group moves."),
    _wrong_loop(_WRONG_SKIP, "            g, state = torch.zeros_like(p) if p.grad is None else p.grad, self.state[p]\n",
            "A weight without gradient is treated as if its gradient were 0: it decays, coasts and counts. It should be left alone."),
    _wrong_loop("if p.grad is None:", "if p.grad is None or not p.grad.any():",
            "A gradient of 0 is treated like no gradient. But with 0 momentum and decay still act."),
    _wrong_loop(_WRONG_SKIP, "            state = self.state[p]\n", _WRONG_NEW,
            _WRONG_NEW + "            if p.grad is None:\n                continue\n            g = p.grad\n",
                "The count advances in every step, for weights without gradient too. Each weight needs a count of its own: some steps pass it by."),
    _wrong_loop("            if p.grad is None:\n                continue\n",
            "            if p.grad is None:\n                p.mul_(1 - lr * decay)\n                continue\n",
            "A weight without gradient decays; it should be left alone."),
    _wrong_loop("if p.grad is None:\n                continue", "if p.grad is None:\n                break",
            "The loop over the weights ends at the first one without gradient; the others of the group should still move."),
    _wrong_loop(_WRONG_NEW, _WRONG_OUTSIDE, "state[\"step\"] if", "self.t[id(p)] if",
            "The count is kept outside of `self.state`, so it starts again after the state was saved and loaded."),
    _wrong_loop("            state[\"step\"] += 1\n", "            state[\"step\"] = 1\n",
            "The count does not advance: every step is taken for the first."),
    mistake("_check_gradients(self.param_groups)", "pass", "Nobody looks at the gradients before the step: one NaN spoils the weights for good."),
    _wrong_loop("    _check_gradients(self.param_groups)\n", "", "            alpha = lr",
            "            _check_gradients(self.param_groups)\n            alpha = lr",
                "The gradients are checked after the averages have taken them in. The state is spoilt, although the weights are not."),
    mistake("    _check_gradients(self.param_groups)\n    for group in self.param_groups:\n",
            "    for group in self.param_groups:\n        _check_gradients([group])\n",
            "The gradients are looked at group by group. When the second group is refused, the first has moved already."),
    mistake("    if closure is not None:\n        with torch.enable_grad():\n            loss = closure()", "", "The closure is not called."),
    mistake("with torch.enable_grad():\n            loss = closure()", "loss = closure()",
            "The closure runs while gradients are switched off, so it cannot compute any."),
    mistake("return loss", "return None", "The closure's loss is not given back."),
    mistake("    for group in self.param_groups:", "    for group in self.__dict__.setdefault(\"kept_groups\", list(self.param_groups)):",
            "The groups of the first step are kept. A group that is added later never moves."),
    mistake("means, squares, t, **options)", "[m.clone() for m in means], [v.clone() for v in squares], t, **options)", "The averages are moved as copies, so `state` keeps zeros and every step starts anew."),
    mistake("squares = [self.state[p][\"exp_avg_sq\"] for p in params]", "squares = means", "Both averages are kept in one place, and each overwrites the other."),
    mistake("means, squares, t, **options)", "means, squares, 1, **options)", "The step is always told that it is the first."),
    mistake("means, squares, t, **options)", "means, squares, t + 1, **options)", "The count is one too high: `_buckets` has advanced it already."),
    mistake("self._buckets(group)", "self._buckets(self.param_groups[0])", "Each group moves the weights of the first."),
    mistake("for group in self.param_groups:", "for group in self.param_groups[-1:]:", "Only the last group moves."),
    mistake("    return loss", "    for group in self.param_groups:\n        for p in group[\"params\"]:\n            if p.grad is not None:\n                p.grad.zero_()\n    return loss", "The gradients are set to 0 after the step. Whoever computed them decides that."),
    mistake("    _check_gradients(self.param_groups)\n", "    for group in self.param_groups:\n        for p in group[\"params\"]:\n            if p.grad is not None:\n                p.grad.nan_to_num_()\n",
            "NaN and infinity are replaced by numbers. The step should end in a ValueError before it moves anything."),
    mistake("    loss = None\n", "    _check_gradients(self.param_groups)\n    loss = None\n", "            loss = closure()\n    _check_gradients(self.param_groups)\n", "            loss = closure()\n",
            "The gradients are looked at before the closure has made them."),
    mistake("    _check_gradients(self.param_groups)\n", "", "    return loss", "    _check_gradients(self.param_groups)\n    return loss", "The gradients are looked at after the step, when weights and averages are spoilt."),
    mistake("    for group in self.param_groups:\n        options = {k: group[k] for k in (\"lr\", \"betas\", \"eps\", \"weight_decay\", \"decay_first\")}",
            "    for group in self.param_groups:\n        options = {k: group[k] for k in (\"lr\", \"betas\", \"eps\", \"weight_decay\", \"decay_first\")} | {\"betas\": (0.9, 0.999)}",
            "The betas are the usual ones whatever the group says."),
]

VARIANTS["optim.adamw"] = [
    '''
@torch.no_grad()
def step(self, closure=None):
    loss = None
    if closure:
        torch.set_grad_enabled(True)
        loss = closure()
        torch.set_grad_enabled(False)
    _check_gradients(self.param_groups)
    for group in self.param_groups:
        for p in (q for q in group["params"] if q.grad is not None):
            state = self.state[p]
            t = state["n"] = state.get("n", 0) + 1
            m = state.get("m", torch.zeros_like(p)) * group["betas"][0] + (1 - group["betas"][0]) * p.grad
            v = state.get("v", torch.zeros_like(p)) * group["betas"][1] + (1 - group["betas"][1]) * p.grad**2
            state["m"], state["v"] = m, v
            rate = corrected_rate(group["lr"], group["betas"], t) if group["correct_bias"] else group["lr"]
            keep = 1 - group["lr"] * group["weight_decay"]
            move = rate * m / (v.sqrt() + group["eps"])
            p.copy_(keep * p - move if group["decay_first"] else keep * (p - move))
    return loss
''',
    '''
def step(self, closure=None):
    loss = None if closure is None else closure()
    _check_gradients(self.param_groups)
    with torch.no_grad():
        for group in self.param_groups:
            settings = [group[k] for k in ("lr", "betas", "eps", "weight_decay", "decay_first")]
            for (t, *_), params in self._buckets(group).items():
                for p in params:
                    portable_step([p], [p.grad], [self.state[p]["exp_avg"]], [self.state[p]["exp_avg_sq"]], t, *settings)
    return loss
''',
]


# ---- How strong is it?
