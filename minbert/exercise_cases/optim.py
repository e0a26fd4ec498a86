"""Exercise cases of chapter 05: AdamW, the learning rate schedule, and parameter groups."""

import copy
import math

import torch
from torch import nn

from minbert.course.trials import CHANGED, Case, Trial, fixed, mistake

TRIALS, MISTAKES, VARIANTS = {}, {}, {}


# ---- optim.rate
#
# Early steps, late ones, and no bias correction (t = ∞). The two betas are far apart in one case,
# so that a swap shows. In another the corrected learning rate is above the given one.


def rate_cases(generator):
    a, b, lr = torch.rand(3, generator=generator, dtype=torch.float64).tolist()
    return [
        Case(
            "Adam's betas", {"lr": 1e-3, "betas": (0.9, 0.999), "times": [1, 2, 3, 10, 100, 10_000]}
        ),
        Case(
            "other betas", {"lr": lr, "betas": (0.3 + 0.3 * a, 0.65 + 0.3 * b), "times": [1, 2, 5]}
        ),
        Case("a beta of 0", {"lr": lr, "betas": (0.0, 0.5), "times": [1, 2]}),
        Case("nothing to repair", {"lr": lr, "betas": (0.9, 0.999), "times": [math.inf]}),
        Case("betas near 1", {"lr": lr, "betas": (0.99999, 0.999999), "times": [1, 2, 1000]}),
        Case(
            "repaired to more than was asked for",
            {"lr": lr, "betas": (0.9, 0.5), "times": [1, 2, 3]},
        ),
    ]


def run_rate(rate, inputs):
    return {
        f"t = {t}": torch.tensor(rate(inputs["lr"], inputs["betas"], t), dtype=torch.float64)
        for t in inputs["times"]
    }


TRIALS["optim.rate"] = Trial(
    rate_cases,
    run_rate,
    atol=0,
    subject="adamw",
    hints=(
        (
            "Which of the two averages stands under the fraction bar of Adam's step, and which on "
            "top of it?"
        ),
        "1 - b1^t repairs m and goes below; 1 - b2^t repairs v, which stands under a root.",
        "math.sqrt of (1 - b2 ** t), times lr, divided by (1 - b1 ** t). betas is (b1, b2).",
    ),
)


_WRONG_RATE = "return lr * math.sqrt(1 - betas[1] ** t) / (1 - betas[0] ** t)"

MISTAKES["optim.rate"] = [
    mistake(
        "math.sqrt(1 - betas[1] ** t)",
        "(1 - betas[1] ** t)",
        "The square root is missing in the bias correction of v: v is under a root in the "
        "update, so its correction is too.",
    ),
    mistake(
        "betas[1] ** t)",
        "betas[0] ** t)",
        "/ (1 - betas[0] ** t)",
        "/ (1 - betas[1] ** t)",
        "The two betas are swapped: the first belongs to m, the second to v.",
    ),
    mistake(
        _WRONG_RATE,
        "return lr / (1 - betas[0] ** t)",
        "Only m is corrected for its bias; v is still too small, so the first steps are too long.",
    ),
    mistake(
        _WRONG_RATE,
        "return lr * math.sqrt(1 - betas[1] ** t)",
        "Only v is corrected for its bias; m is still too small, so the first steps are too short.",
    ),
    mistake(
        _WRONG_RATE,
        "return lr * math.sqrt(1 - betas[1] ** (t + 1)) / (1 - betas[0] ** (t + 1))",
        "The step count is one too high: the first step is t = 1, and that is what is passed in.",
    ),
    mistake(
        "return lr * ",
        "return ",
        "The learning rate is missing: only the correction factor is returned.",
    ),
    mistake(
        _WRONG_RATE,
        "t = max(t - 1, 1)\n    return lr * math.sqrt(1 - betas[1] ** t) / (1 - betas[0] ** t)",
        "The step count is one too low: the first step is t = 1, and that is what is passed in.",
    ),
    mistake(_WRONG_RATE, "return lr", "There is no bias correction."),
]

VARIANTS["optim.rate"] = [
    """
def corrected_rate(lr, betas, t):
    first, second = (1.0 - beta**t for beta in betas)
    return lr / first * second**0.5
""",
    """
def corrected_rate(lr, betas, t):
    if t == math.inf:
        return lr
    b1, b2 = torch.tensor(betas, dtype=torch.float64)
    return (lr * torch.sqrt(1 - b2**t) / (1 - b1**t)).item()
""",
]


# ---- optim.update
#
# Three tensors of different shapes. Gradients as small as epsilon, so that its position shows;
# large weight decay; different betas; step counts of 1, 7 and infinity. One parameter is a
# transposed view. The run looks at the tensors that were passed in, not at the lists: a parameter
# that is replaced instead of changed never reaches the model.


def _lists(generator, size, sizes=((3, 4), (5,), ()), dtype=torch.float64):
    """Weights around 1, gradients and averages around `size`."""

    def draw(scale):
        return [scale * fixed(generator, 1, *s, dtype=dtype)[0] for s in sizes]

    return {
        "params": draw(1.0),
        "grads": draw(size),
        "means": draw(0.3 * size),
        "squares": [x.square() for x in draw(size)],
    }


def update_cases(generator):
    def new(size, **kw):
        made = _lists(generator, size, **kw)
        for name in ("means", "squares"):
            made[name] = [torch.zeros_like(x) for x in made[name]]
        return made

    plain = {
        "lr": 0.01,
        "betas": (0.9, 0.999),
        "eps": 1e-6,
        "weight_decay": 0.0,
        "decay_first": False,
    }
    other = plain | {"betas": (0.7, 0.8), "lr": 0.3, "eps": 1e-3}
    zero = _lists(generator, 1e-3)
    zero["grads"] = [torch.zeros_like(x) for x in zero["grads"]]
    crossed = _lists(generator, 0.1, ((4, 3), (2,)), torch.float32)
    crossed["grads"][0] = crossed["grads"][0].T.contiguous().T
    cases = [
        Case("the first step, gradients as small as eps", {**new(1e-6), "t": 1, "options": plain}),
        Case(
            "the first step, with decay",
            {**new(1e-3), "t": 1, "options": plain | {"weight_decay": 0.5}},
        ),
        Case(
            "step 7, other betas, no decay", {**_lists(generator, 1e-3), "t": 7, "options": other}
        ),
        Case(
            "step 7, other betas, with decay",
            {**_lists(generator, 1e-3), "t": 7, "options": other | {"weight_decay": 0.9}},
        ),
        Case(
            "decay before the step",
            {
                **_lists(generator, 1e-3),
                "t": 3,
                "options": other | {"weight_decay": 0.9, "decay_first": True},
            },
        ),
        Case(
            "no bias correction",
            {**_lists(generator, 1e-3), "t": math.inf, "options": other | {"weight_decay": 0.9}},
        ),
        Case(
            "gradients of 0 after others",
            {**zero, "t": 4, "options": other | {"weight_decay": 0.5}},
        ),
        Case(
            "single precision, one tensor stored crosswise",
            {**crossed, "t": 2, "options": other | {"weight_decay": 0.1}},
        ),
    ]
    return [
        *cases,
        Case(
            "a weight stored crosswise",
            {
                **_lists(generator, 0.1),
                "t": 2,
                "options": other | {"weight_decay": 0.1},
                "crosswise": True,
            },
        ),
    ]


def run_update(step, inputs):
    lists = {name: inputs[name] for name in ("params", "grads", "means", "squares")}
    if "crosswise" in inputs:
        lists["params"] = [p.mT.contiguous().mT if p.ndim == 2 else p for p in lists["params"]]
    given = {name: list(x) for name, x in lists.items()}
    step(*given.values(), inputs["t"], **inputs["options"])
    changed = {
        CHANGED.format(name): torch.tensor(True)
        for name in lists
        if len(given[name]) != len(lists[name])
    }
    return {
        f"{name}[{i}]": x for name, tensors in lists.items() for i, x in enumerate(tensors)
    } | changed


TRIALS["optim.update"] = Trial(
    update_cases,
    run_update,
    atol=1e-13,
    subject="adamw",
    forbidden=("_fused_step", "torch._fused_adamw_"),
    hints=(
        (
            "Four things change or are read, in this order: m, v, the weight, the weight once "
            "more. Which of them sees the rate alpha_t, which the plain "
            "rate?"
        ),
        (
            "Change the tensors in place (`mul_`, `add_`, `addcmul_`, `addcdiv_`): the model "
            "holds these very tensors. eps is added to sqrt(v), outside "
            "of the root, before any repair."
        ),
        (
            "For each p, g, m, v: m.mul_(b1).add_(g, alpha=1 - b1); the same for v with g * g and "
            "b2; p.addcdiv_(m, v.sqrt().add_(eps), value=-alpha_t); "
            "then p times (1 - lr * weight_decay)."
        ),
    ),
)


_WRONG_MOVE = "torch._foreach_addcdiv_(params, means, roots, -alpha)"
_WRONG_ROOTS = "torch._foreach_add_(roots, eps)"
_WRONG_ALPHA = "alpha = corrected_rate(lr, betas, t)"
_WRONG_AFTER = (
    "if not decay_first and weight_decay:\n"
    "        torch._foreach_mul_(params, 1 - lr * weight_decay)"
)

MISTAKES["optim.update"] = [
    mistake(
        "roots = torch._foreach_sqrt(squares)",
        "roots = [(v + eps).sqrt() for v in squares]",
        _WRONG_ROOTS,
        "",
        "eps is added inside the square root, where 1e-6 acts like 1e-3. It is added to the root.",
    ),
    mistake(_WRONG_ALPHA, "alpha = lr", "There is no bias correction."),
    mistake(
        _WRONG_ALPHA,
        "alpha = corrected_rate(lr, betas, t + 1)",
        "The step count is one too high: the first step is t = 1, and that is what is passed in.",
    ),
    mistake(
        "torch._foreach_add_(means, grads, alpha=1 - b1)",
        "torch._foreach_add_(means, grads)",
        "The factor 1 - beta1 is missing, so the new gradient enters m with its full weight.",
    ),
    mistake(
        "b1, b2 = betas",
        "b2, b1 = betas",
        "The two betas are swapped: the first belongs to m, the second to v.",
    ),
    mistake(
        _WRONG_MOVE,
        "torch._foreach_addcdiv_(params, means, roots, alpha)",
        "The sign is wrong: this step goes uphill.",
    ),
    mistake(
        "if decay_first and weight_decay:\n"
        "        torch._foreach_mul_(params, 1 - lr * weight_decay)",
        "grads = torch._foreach_add(grads, params, alpha=weight_decay)",
        _WRONG_AFTER,
        "",
        "Weight decay is added to the gradient (an L2 penalty). AdamW decays the weights "
        "directly (decoupled weight decay).",
    ),
    mistake(
        "torch._foreach_mul_(means, b1)\n    torch._foreach_add_(means, grads, alpha=1 - b1)",
        "means = [b1 * m + (1 - b1) * g for m, g in zip(means, grads)]",
        "m is computed but not stored. It must change in place, or the next step starts from "
        "the old value.",
    ),
]

VARIANTS["optim.update"] = [
    """
def portable_step(params, grads, means, squares, t, lr, betas, eps, weight_decay, decay_first):
    for p, g, m, v in zip(params, grads, means, squares):
        if decay_first:
            p.sub_(lr * weight_decay * p)
        m.lerp_(g, 1 - betas[0])
        v.lerp_(g * g, 1 - betas[1])
        p.sub_(lr * math.sqrt(1 - betas[1] ** t) / (1 - betas[0] ** t) * m / (v.sqrt() + eps))
        if not decay_first:
            p.sub_(lr * weight_decay * p)
""",
    """
def portable_step(params, grads, means, squares, t, lr, betas, eps, weight_decay, decay_first):
    root, keep = math.sqrt(1 - betas[1] ** t), 1 - lr * weight_decay
    for p, g, m, v in zip(params, grads, means, squares):
        m.copy_(betas[0] * m + (1 - betas[0]) * g)
        v.copy_(betas[1] * v + (1 - betas[1]) * g.pow(2))
        move = lr * (m / (1 - betas[0] ** t)) / (v.sqrt() / root + eps / root)
        p.data = (keep * p - move if decay_first else keep * (p - move)).to(p.dtype)
""",
]


# ---- optim.adamw
#
# The exercise is the bookkeeping: groups with their own settings, parameters without gradients,
# learning rates that change between steps, a state that is saved and loaded, a closure, a NaN
# gradient, a transposed parameter. An explicit loop is a correct answer too, so everything that
# can go wrong in `optim.update` can go wrong here.


def adamw_cases(generator):
    def draw(*shape, **kw):
        return fixed(generator, 1, *shape, **kw)[0]

    sizes = ((3, 2), (4,), (), (2, 5))

    def grads(steps, size):
        return [[size * draw(*s) for s in sizes] for _ in range(steps)]

    plain = {"lr": 0.1, "weight_decay": 0.3, "eps": 1e-4, "betas": (0.8, 0.9)}
    four = {"weights": [1 + draw(*s) for s in sizes]}
    one = four | {"groups": [([0, 1, 2, 3], {})], "defaults": plain}
    own = [
        ([0, 2], {"lr": 0.02, "betas": (0.5, 0.6), "eps": 1e-2, "weight_decay": 0.9}),
        ([3, 1], {"fused": False, "correct_bias": False, "decay_first": True}),
    ]
    gaps = grads(6, 1e-3)
    for step, i in ((0, 1), (1, 1), (2, 0), (3, 0), (3, 2), (4, 1)):
        gaps[step][i] = None
    gaps[0][2] = torch.zeros((), dtype=torch.float64)
    bad = grads(4, 1e-3)
    bad[1][3] = torch.full_like(bad[1][3], math.inf)
    bad[2][0] = bad[2][0] * math.nan
    single = {
        "weights": [1 + draw(3, 4, dtype=torch.float32)],
        "groups": [([0], {})],
        "defaults": plain,
    }
    lone = {
        "weights": [torch.ones(1, dtype=torch.float64)],
        "groups": [([0], {})],
        "defaults": {"lr": 0.01, "weight_decay": 0.5},
    }
    return [
        Case(
            "one weight, three gradients",
            {**lone, "gradients": [[1e-4 * draw(1)], [-1e-4 * draw(1)], [draw(1) * 0]]},
        ),
        Case(
            "two groups, each with rules of its own",
            {**four, "groups": own, "defaults": plain, "gradients": grads(4, 1e-3)},
        ),
        Case("gradients missing now and then", {**one, "gradients": gaps}),
        Case(
            "saved and loaded after the third step",
            {**one, "groups": own, "gradients": gaps, "reload": 3},
        ),
        Case(
            "a group that is added after the second step",
            {
                **one,
                "groups": [([0, 1, 2], {})],
                "gradients": grads(4, 1e-3),
                "late": ([3], {"lr": 0.02}),
            },
        ),
        Case(
            "no bias correction",
            {**one, "defaults": plain | {"correct_bias": False}, "gradients": grads(3, 1e-3)},
        ),
        Case(
            "decay before the step",
            {**one, "defaults": plain | {"decay_first": True}, "gradients": grads(3, 1e-3)},
        ),
        Case(
            "a rate that changes",
            {**one, "gradients": grads(4, 1e-3), "rates": [0.1, 0.05, 0.0, 0.3]},
        ),
        Case("an infinite gradient in step 2, NaN in step 3", {**one, "gradients": bad}),
        Case("the same in the second of two groups", {**one, "groups": own, "gradients": bad}),
        Case("with a closure", {**one, "gradients": [[None] * 4] * 3, "closure": True}),
        Case(
            "a closure whose gradient is not finite in step 2",
            {**one, "gradients": [[None] * 4] * 3, "closure": True, "broken": 2},
        ),
        Case(
            "single precision, gradients stored crosswise",
            {**single, "gradients": [[draw(4, 3, dtype=torch.float32).T] for _ in range(3)]},
        ),
        Case("weights stored crosswise", {**one, "gradients": grads(2, 1e-3), "crosswise": True}),
    ]


def run_adamw(kind, inputs):
    """Train on given gradients; look at the weights after every step, and note which steps were
    refused."""

    def crosswise(w):
        return w.mT.contiguous().mT if "crosswise" in inputs and w.ndim == 2 else w.clone()

    weights = [nn.Parameter(crosswise(w)) for w in inputs["weights"]]

    def group_of(members, own):
        return {"params": [weights[i] for i in members], **own}

    def make():
        return kind([group_of(*group) for group in inputs["groups"]], **inputs["defaults"])

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
        seen |= {
            f"weight {i} after step {n + 1}": w.detach().clone() for i, w in enumerate(weights)
        }
        if "closure" in inputs:
            seen[f"loss of step {n + 1}"] = torch.as_tensor(math.nan if loss is None else loss)
        elif any(g is not None and w.grad is None for w, g in zip(weights, grads)):
            seen["a gradient is gone"] = torch.tensor(True)
        elif any(
            g is not None and not torch.equal(g.nan_to_num(), w.grad.nan_to_num())
            for w, g in zip(weights, grads)
        ):
            seen["a gradient was overwritten"] = torch.tensor(True)
    kept = [
        (x, w)
        for w in weights
        for x in optimizer.state.get(w, {}).values()
        if isinstance(x, torch.Tensor) and w.ndim and x.shape == w.shape
    ]
    return seen | {
        "averages as precise as their weight": all(
            torch.promote_types(x.dtype, w.dtype) == x.dtype for x, w in kept
        ),
        "steps refused": torch.tensor(refused),
        "calls of the closure": torch.tensor(len(calls)),
    }


TRIALS["optim.adamw"] = Trial(
    adamw_cases,
    run_adamw,
    atol=1e-12,
    subject="adamw",
    forbidden=("torch.optim.AdamW", "torch.optim.Adam", "super().step"),
    hints=(
        (
            "Four things in order: the closure's loss, the look at all gradients, the groups one "
            "after the other, the loss back to the caller. Which "
            "settings belong to the group, which facts to a single weight?"
        ),
        (
            "`for key, params in self._buckets(group).items()` gives lists of weights that share "
            "the count t. Their averages stand in "
            'self.state[p]["exp_avg"] and ["exp_avg_sq"]; the count is advanced already.'
        ),
        (
            "After `_check_gradients`, for each bucket call portable_step(params, [p.grad for p "
            'in params], means, squares, t, lr=group["lr"], ...) with t the first part of the '
            "key; it is math.inf where correct_bias is off. Closures need torch.enable_grad()."
        ),
    ),
)


_WRONG_GROUPS = """    _check_gradients(self.param_groups)
    for group in self.param_groups:
        options = {k: group[k] for k in ("lr", "betas", "eps", "weight_decay", "decay_first")}
        for (t, _, _, fused), params in self._buckets(group).items():
            means = [self.state[p]["exp_avg"] for p in params]
            squares = [self.state[p]["exp_avg_sq"] for p in params]
            step = _fused_step if fused else portable_step
            step(params, [p.grad for p in params], means, squares, t, **options)
"""
_WRONG_LOOP = """    _check_gradients(self.param_groups)
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
"""
_WRONG_SHRINK = '            if not group["decay_first"]:\n                p.mul_(1 - lr * decay)\n'
_WRONG_SKIP = (
    "            if p.grad is None:\n"
    "                continue\n"
    "            g, state = p.grad, self.state[p]\n"
)
_WRONG_NEW = """            if not state:
                state.update(step=0, exp_avg=torch.zeros_like(p), exp_avg_sq=torch.zeros_like(p))
            state["step"] += 1
"""


def _wrong_loop(*texts):
    """The step as a loop of one's own, with edits, and last the sentence."""
    *edits, says = texts
    text = _WRONG_LOOP
    for old, new in zip(edits[::2], edits[1::2]):
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    return mistake(_WRONG_GROUPS, text, says)


MISTAKES["optim.adamw"] = [
    _wrong_loop(
        "(v.sqrt() + eps)",
        "(v + eps).sqrt()",
        "eps is added inside the square root, where 1e-6 acts like 1e-3. It is added to the root.",
    ),
    _wrong_loop(
        "alpha = lr * math.sqrt(1 - b2**t) / (1 - b1**t)",
        "alpha = lr",
        "There is no bias correction.",
    ),
    _wrong_loop(
        't = state["step"] if',
        't = max(state["step"] - 1, 1) if',
        "The step count is one too low: it must be increased before it is used.",
    ),
    _wrong_loop(
        "g, state = p.grad, self.state[p]",
        "g, state = p.grad + decay * p, self.state[p]",
        '            if group["decay_first"]:\n                p.mul_(1 - lr * decay)\n',
        "",
        _WRONG_SHRINK,
        "",
        "Weight decay is added to the gradient (an L2 penalty). AdamW decays the weights "
        "directly (decoupled weight decay).",
    ),
    mistake(
        'for k in ("lr", "betas", "eps", "weight_decay", "decay_first")}',
        'for k in ("lr", "betas", "eps", "weight_decay", "decay_first")} | {"lr": '
        'self.defaults["lr"]}',
        "The learning rate is taken from `self.defaults`, so schedules and groups with their "
        "own learning rate have no effect.",
    ),
    _wrong_loop(
        _WRONG_SKIP,
        "            g, state = torch.zeros_like(p) if p.grad is None else p.grad, self.state[p]\n",
        "A parameter without a gradient is treated as if its gradient were 0. It should be "
        "skipped, together with its state.",
    ),
    _wrong_loop(
        _WRONG_SKIP,
        "            state = self.state[p]\n",
        _WRONG_NEW,
        _WRONG_NEW
        + "            if p.grad is None:\n                continue\n            g = p.grad\n",
        "One step count is shared by all parameters. Each parameter needs its own, because some "
        "steps skip it.",
    ),
    mistake(
        "    if closure is not None:\n"
        "        with torch.enable_grad():\n"
        "            loss = closure()",
        "",
        "The closure is not called.",
    ),
]

VARIANTS["optim.adamw"] = [
    """
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
            b1, b2 = group["betas"]
            m = state.get("m", torch.zeros_like(p)) * b1 + (1 - b1) * p.grad
            v = state.get("v", torch.zeros_like(p)) * b2 + (1 - b2) * p.grad**2
            state["m"], state["v"] = m, v
            rate = group["lr"]
            if group["correct_bias"]:
                rate = corrected_rate(rate, group["betas"], t)
            keep = 1 - group["lr"] * group["weight_decay"]
            move = rate * m / (v.sqrt() + group["eps"])
            p.copy_(keep * p - move if group["decay_first"] else keep * (p - move))
    return loss
""",
    """
def step(self, closure=None):
    loss = None if closure is None else closure()
    _check_gradients(self.param_groups)
    with torch.no_grad():
        for group in self.param_groups:
            settings = [group[k] for k in ("lr", "betas", "eps", "weight_decay", "decay_first")]
            for (t, *_), params in self._buckets(group).items():
                for p in params:
                    portable_step(
                        [p],
                        [p.grad],
                        [self.state[p]["exp_avg"]],
                        [self.state[p]["exp_avg_sq"]],
                        t,
                        *settings,
                    )
    return loss
""",
]


# ---- optim.schedule
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


TRIALS["optim.schedule"] = Trial(
    schedule_cases,
    run_schedule,
    hints=(
        "Two slopes and a ceiling: the share is the least of three numbers.",
        (
            "The way up reaches (step + 1) / warmup_steps, the way down (total_steps - step) / "
            "decay_steps. Beyond the end the second is below 0."
        ),
        (
            "Replace decay_steps=None by total_steps - warmup_steps, take 1 for a slope of 0 "
            "steps or fewer, then max(0, min(1, up, down))."
        ),
    ),
)


MISTAKES["optim.schedule"] = [
    mistake(
        "(step + 1) / warmup_steps",
        "(step + 1) // warmup_steps",
        "The warm-up uses integer division, so the factor is 0 until the peak.",
    ),
    mistake(
        "down = (total_steps - step) / decay_steps if decay_steps > 0 else 1.0",
        "down = 0.5 - 0.5 * math.cos(math.pi * max(0.0, min(1.0, (total_steps - step) / "
        "decay_steps))) if decay_steps > 0 else 1.0",
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
        "decay_steps = total_steps - warmup_steps",
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

VARIANTS["optim.schedule"] = [
    """
def warmup_decay(step, total_steps, warmup_steps=0, decay_steps=None):
    decay_steps = total_steps - warmup_steps if decay_steps is None else decay_steps
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
        decay_steps = total_steps - warmup_steps
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


# ---- optim.groups
#
# A small model with everything that has to be distinguished: matrices, biases, a layer norm, a
# scalar, a stack of matrices, a frozen parameter, heads, and a layer whose name only contains
# "head"; in one case a parameter with two names. The run records weight decay and learning rate
# of every parameter; the order of the groups is left open.


class Zoo(nn.Module):
    """One weight of every kind."""

    def __init__(self):
        super().__init__()
        self.word = nn.Embedding(5, 2)
        self.overheads = nn.ModuleDict({"no_head": nn.Linear(2, 3)})
        self.norm = nn.LayerNorm(3)
        self.frozen = nn.Linear(3, 3).requires_grad_(False)
        self.scale, self.stack = nn.Parameter(torch.ones(())), nn.Parameter(torch.ones(2, 3, 4))
        self.heads = nn.ModuleDict({"sts": nn.Linear(3, 1)})
        self.inner = nn.ModuleDict({"heads": nn.ModuleDict({"sst": nn.Linear(3, 2)})})


def groups_cases(generator):
    a, b, c = (1e-4 + torch.rand(3, generator=generator, dtype=torch.float64)).tolist()
    return [
        Case("as it comes", {}),
        Case("a decay of its own", {"weight_decay": a}),
        Case("rates for encoder and heads", {"weight_decay": a, "lr": b, "head_lr": b + c}),
        Case("a rate for the heads alone", {"head_lr": c}),
        Case("heads at rate 0", {"lr": b, "head_lr": 0.0}),
        Case("one rate", {"lr": c}),
        Case("a rule: nothing but word vectors decays", {"weight_decay": a, "decays": "word"}),
        Case(
            "a rule: only the head decays",
            {"weight_decay": a, "lr": b, "head_lr": b + c, "decays": "inner"},
        ),
        Case("everything at rate 0", {"lr": 0.0}),
        Case("a weight with two names", {"weight_decay": a, "tied": True}),
    ]


def _rate_of(group):
    """Give the learning rate of a group: -1 if there is none, NaN for None."""
    rate = group.get("lr", -1.0)
    return math.nan if rate is None else rate


def run_groups(sort, inputs):
    model, settings = Zoo(), dict(inputs)
    if settings.pop("tied", False):
        model.output = model.word
    if "decays" in settings:
        settings["decays"] = lambda name, weight: (
            name.startswith(inputs["decays"]) and weight.ndim == 2
        )
    groups = sort(model, **settings)
    seen = {
        "number of groups": torch.tensor(len(groups)),
        "number of weights in them": torch.tensor(sum(len(g["params"]) for g in groups)),
    }
    for name, p in model.named_parameters():
        own = [g for g in groups if any(p is q for q in g["params"])]
        named = [q for g in groups for n, q in zip(g["names"], g["params"]) if n == name]
        rows = [[g["weight_decay"], _rate_of(g)] for g in own]
        seen[f"{name}: decay and rate (-1: none) of its groups"] = torch.tensor(
            rows, dtype=torch.float64
        ).reshape(-1, 2)
        seen[f"{name}: found under its name"] = torch.tensor(
            len(named) == 1 and named[0] is p or not p.requires_grad and not named
        )
    return seen


TRIALS["optim.groups"] = Trial(
    groups_cases,
    run_groups,
    hints=(
        (
            "Two questions to each weight: does it decay, and at which rate does it learn? "
            "Weights with the same two answers share a group."
        ),
        (
            "A dictionary from (decay, rate) to group does the sorting. `decays(name, weight)` "
            "answers the first question, `_is_head(name)` helps with "
            "the second."
        ),
        (
            "decay = weight_decay if decays(name, p) else 0.0; rate = head_lr for a head if "
            "head_lr is given, else lr. Leave out p.requires_grad == "
            'False, and the key "lr" where the rate is None.'
        ),
    ),
)


MISTAKES["optim.groups"] = [
    mistake(
        "head_lr is not None and _is_head(name)",
        "head_lr and _is_head(name)",
        "`head_lr` of 0 is treated as if it were not given. Compare with `None`.",
    ),
    mistake(
        "weight_decay if decays(name, p) else 0.0",
        "0.0 if decays(name, p) else weight_decay",
        "The rule is inverted: biases and norms decay, matrices do not.",
    ),
    mistake(
        "weight_decay if decays(name, p) else 0.0",
        'weight_decay if not name.endswith("bias") else 0.0',
        "Only biases are excluded from weight decay. Layer norm gains and other vectors should "
        "be excluded too.",
    ),
    mistake(
        "weight_decay if decays(name, p) else 0.0",
        "weight_decay",
        "Every parameter decays, including biases and norms.",
    ),
    mistake(
        "        if not p.requires_grad:\n            continue\n",
        "",
        "Frozen parameters are included. They should be left out.",
    ),
    mistake(
        "head_lr if head_lr is not None and _is_head(name) else lr",
        "lr",
        "`head_lr` is not used: the heads get the learning rate of the encoder.",
    ),
    mistake(
        'new if rate is None else new | {"lr": rate}',
        'new | {"lr": rate}',
        "A group without its own learning rate contains `lr=None`, which the optimizer cannot "
        "replace. Leave the key out.",
    ),
    mistake(
        "model.named_parameters()",
        "model.named_parameters(remove_duplicate=False)",
        "A parameter with two names (tied weights) is listed twice. It belongs in one group, once.",
    ),
]

VARIANTS["optim.groups"] = [
    """
def parameter_groups(model, weight_decay=0.01, lr=None, head_lr=None, decays=_is_matrix):
    from itertools import groupby

    rows = []
    for name, p in model.named_parameters():
        if p.requires_grad:
            rate = lr if head_lr is None or not _is_head(name) else head_lr
            rows.append(
                (weight_decay * bool(decays(name, p)), -1 if rate is None else rate, name, p)
            )
    rows.sort(key=lambda row: row[:2])
    groups = []
    for (decay, rate), members in groupby(rows, key=lambda row: row[:2]):
        members = list(members)
        groups.append(
            {
                "params": [m[3] for m in members],
                "names": [m[2] for m in members],
                "weight_decay": decay,
            }
        )
        if rate != -1:
            groups[-1]["lr"] = rate
    return groups
""",
    """
def parameter_groups(model, weight_decay=0.01, lr=None, head_lr=None, decays=_is_matrix):
    found = [(n, p) for n, p in model.named_parameters() if p.requires_grad]
    groups = []
    for heads in (False, True):
        rate = head_lr if heads and head_lr is not None else lr
        for decayed in (True, False):
            chosen = [
                (n, p)
                for n, p in found
                if (_is_head(n) if head_lr is not None else False) == heads
                and bool(decays(n, p)) == decayed
            ]
            if chosen:
                names, params = map(list, zip(*chosen))
                groups.append(
                    dict(
                        params=params,
                        names=names,
                        weight_decay=weight_decay if decayed else 0.0,
                        **({} if rate is None else {"lr": rate}),
                    )
                )
    return groups
""",
]
