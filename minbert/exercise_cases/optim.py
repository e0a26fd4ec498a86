"""Exercise cases of chapter 05: the AdamW update, the optimizer, and parameter groups."""

import copy
import math

import torch
from torch import nn

from minbert.course.check_runner import Case, Trial, fixed, mistake

TRIALS, MISTAKES, VARIANTS = {}, {}, {}


# ---- optim.update
#
# Parameters of several shapes. Gradients as small as epsilon, so that its position shows; large
# weight decay; different betas; step counts of 1, 7 and infinity. One parameter is a transposed
# view. The run looks at the tensors that were passed in: a parameter that is replaced instead of
# changed never reaches the model.


def _tensors(generator, size, shape=(3, 4), dtype=torch.float64):
    """A parameter around 1, its gradient, and averages of the same size."""

    def draw(scale):
        return scale * fixed(generator, 1, *shape, dtype=dtype)[0]

    return {"p": draw(1.0), "g": draw(size), "m": draw(0.3 * size), "v": draw(size).square()}


def update_cases(generator):
    def first(size, **shape):
        made = _tensors(generator, size, **shape)
        return {**made, "m": torch.zeros_like(made["m"]), "v": torch.zeros_like(made["v"])}

    plain = {"lr": 0.01, "betas": (0.9, 0.999), "eps": 1e-6, "weight_decay": 0.0}
    other = {"lr": 0.3, "betas": (0.7, 0.8), "eps": 1e-3, "weight_decay": 0.0}
    zero = _tensors(generator, 1e-3)
    zero["g"] = torch.zeros_like(zero["g"])
    crosswise = _tensors(generator, 0.1, (4, 3), torch.float32)
    crosswise["g"] = crosswise["g"].T.contiguous().T
    return [
        Case(
            "the first step, gradients as small as eps", {**first(1e-6), "t": 1, "options": plain}
        ),
        Case(
            "the first step, with weight decay",
            {**first(1e-3, shape=(5,)), "t": 1, "options": plain | {"weight_decay": 0.5}},
        ),
        Case(
            "step 7, other betas, no weight decay",
            {**_tensors(generator, 1e-3), "t": 7, "options": other},
        ),
        Case(
            "step 7, other betas, with weight decay",
            {
                **_tensors(generator, 1e-3, ()),
                "t": 7,
                "options": other | {"weight_decay": 0.9},
            },
        ),
        Case(
            "no bias correction (t is infinite)",
            {
                **_tensors(generator, 1e-3),
                "t": math.inf,
                "options": other | {"weight_decay": 0.9},
            },
        ),
        Case(
            "a gradient of 0 after others",
            {**zero, "t": 4, "options": other | {"weight_decay": 0.5}},
        ),
        Case(
            "single precision, a transposed gradient",
            {**crosswise, "t": 2, "options": other | {"weight_decay": 0.1}},
        ),
        Case(
            "a transposed parameter",
            {
                **_tensors(generator, 0.1),
                "t": 2,
                "options": other | {"weight_decay": 0.1},
                "crosswise": True,
            },
        ),
    ]


def run_update(step, inputs):
    tensors = {name: inputs[name] for name in ("p", "g", "m", "v")}
    if "crosswise" in inputs:
        tensors["p"] = tensors["p"].mT.contiguous().mT
    step(*tensors.values(), inputs["t"], **inputs["options"])
    return dict(tensors)


TRIALS["optim.update"] = Trial(
    update_cases,
    run_update,
    atol=1e-13,
    subject="adamw",
    forbidden=("torch._fused_adamw_", "fused_step", "foreach_step"),
    hints=(
        (
            "Five lines, in this order: m, v, the step size, the parameter, and once more the "
            "parameter. Which of them use the corrected learning rate, and which the plain one?"
        ),
        (
            "Change the tensors in place (`mul_`, `add_`, `sub_`), because the model holds these "
            "very tensors. eps is added to v.sqrt(), outside of the root."
        ),
        (
            "m.mul_(beta1).add_((1 - beta1) * g); the same for v with beta2 and g * g; then "
            "p.sub_(step_size * m / (v.sqrt() + eps)) and p.sub_(lr * weight_decay * p)."
        ),
    ),
)


_WRONG_M = "m.mul_(beta1).add_((1 - beta1) * g)"
_WRONG_V = "v.mul_(beta2).add_((1 - beta2) * g * g)"
_WRONG_SIZE = "step_size = lr * math.sqrt(1 - beta2**t) / (1 - beta1**t)"
_WRONG_MOVE = "p.sub_(step_size * m / (v.sqrt() + eps))"
_WRONG_DECAY = "p.sub_(lr * weight_decay * p)"

MISTAKES["optim.update"] = [
    mistake(
        "(v.sqrt() + eps)",
        "(v + eps).sqrt()",
        "eps is added inside the square root, where 1e-6 acts like 1e-3. It is added to the root.",
    ),
    mistake(_WRONG_SIZE, "step_size = lr", "There is no bias correction."),
    mistake(
        "math.sqrt(1 - beta2**t)",
        "(1 - beta2**t)",
        "The square root is missing in the bias correction of v: v is under a root in the "
        "update, so its correction is too.",
    ),
    mistake(
        _WRONG_M,
        "m.mul_(beta1).add_(g)",
        "The factor 1 - beta1 is missing, so the new gradient enters m with its full weight.",
    ),
    mistake(
        "beta1, beta2 = betas",
        "beta2, beta1 = betas",
        "The two betas are swapped: the first belongs to m, the second to v.",
    ),
    mistake(
        "p.sub_(step_size * m",
        "p.add_(step_size * m",
        "The sign is wrong: this step increases the loss.",
    ),
    mistake(
        _WRONG_M,
        "g = g + weight_decay * p\n    m.mul_(beta1).add_((1 - beta1) * g)",
        "\n    " + _WRONG_DECAY,
        "",
        "Weight decay is added to the gradient (an L2 penalty). AdamW decays the parameters "
        "directly (decoupled weight decay).",
    ),
    mistake(
        _WRONG_M,
        "m = beta1 * m + (1 - beta1) * g",
        "m is computed but not stored. It must change in place, or the next step starts from "
        "the old value.",
    ),
]

VARIANTS["optim.update"] = [
    """
def adamw_step(p, g, m, v, t, lr, betas, eps, weight_decay):
    m.lerp_(g, 1 - betas[0])
    v.lerp_(g * g, 1 - betas[1])
    p.addcdiv_(m, v.sqrt() + eps, value=-lr * (1 - betas[1] ** t) ** 0.5 / (1 - betas[0] ** t))
    p.mul_(1 - lr * weight_decay)
""",
    """
def adamw_step(p, g, m, v, t, lr, betas, eps, weight_decay):
    root, keep = math.sqrt(1 - betas[1] ** t), 1 - lr * weight_decay
    m.copy_(betas[0] * m + (1 - betas[0]) * g)
    v.copy_(betas[1] * v + (1 - betas[1]) * g.pow(2))
    move = lr * (m / (1 - betas[0] ** t)) / (v.sqrt() / root + eps / root)
    p.data = (keep * (p - move)).to(p.dtype)
""",
]


# ---- optim.adamw
#
# The exercise is the bookkeeping: groups with their own settings, parameters without gradients,
# learning rates that change between steps, a state that is saved and loaded, a closure, a
# transposed parameter.


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
        ([3, 1], {"correct_bias": False}),
    ]
    gaps = grads(6, 1e-3)
    for step, i in ((0, 1), (1, 1), (2, 0), (3, 0), (3, 2), (4, 1)):
        gaps[step][i] = None
    gaps[0][2] = torch.zeros((), dtype=torch.float64)
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
            "two groups with their own settings",
            {**four, "groups": own, "defaults": plain, "gradients": grads(4, 1e-3)},
        ),
        Case("some gradients are missing", {**one, "gradients": gaps}),
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
            "a learning rate that changes",
            {**one, "gradients": grads(4, 1e-3), "rates": [0.1, 0.05, 0.0, 0.3]},
        ),
        Case("with a closure", {**one, "gradients": [[None] * 4] * 3, "closure": True}),
        Case(
            "single precision, gradients stored column by column",
            {**single, "gradients": [[draw(4, 3, dtype=torch.float32).T] for _ in range(3)]},
        ),
        Case(
            "weights stored column by column",
            {**one, "gradients": grads(2, 1e-3), "crosswise": True},
        ),
    ]


def run_adamw(kind, inputs):
    """Train on given gradients; look at the weights after every step."""

    def crosswise(w):
        return w.mT.contiguous().mT if "crosswise" in inputs and w.ndim == 2 else w.clone()

    weights = [nn.Parameter(crosswise(w)) for w in inputs["weights"]]

    def group_of(members, own):
        return {"params": [weights[i] for i in members], **own}

    def make():
        return kind([group_of(*group) for group in inputs["groups"]], **inputs["defaults"])

    optimizer, seen, calls = make(), {}, []

    def closure():
        calls.append(1)
        optimizer.zero_grad()
        loss = sum((w * w).sum() for w in weights)
        loss.backward()
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
        loss = optimizer.step(closure) if "closure" in inputs else optimizer.step()
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
        "averages as precise as their parameter": all(
            torch.promote_types(x.dtype, w.dtype) == x.dtype for x, w in kept
        ),
        "calls of the closure": torch.tensor(len(calls)),
    }


TRIALS["optim.adamw"] = Trial(
    adamw_cases,
    run_adamw,
    atol=1e-12,
    subject="adamw",
    forbidden=("torch.optim.AdamW", "torch.optim.Adam", "super().step", "FusedAdamW"),
    hints=(
        (
            "Two nested loops: over the groups, and over the parameters of a group. Which values "
            "belong to the group, and which to a single parameter?"
        ),
        (
            "`self.state[p]` is a dictionary, empty at the first step of p. It needs the count t "
            "and the two averages, which start as torch.zeros_like(p)."
        ),
        (
            "For each p with a gradient: create the state if it is empty, add 1 to the count, and "
            "call adamw_step with the group's settings; t is math.inf if correct_bias is False. "
            "The closure needs torch.enable_grad()."
        ),
    ),
)


_WRONG_SKIP = """            if p.grad is None:
                continue
"""
_WRONG_CALL = (
    'adamw_step(p, p.grad, state["exp_avg"], state["exp_avg_sq"], t, group["lr"],\n'
    '                       group["betas"], group["eps"], group["weight_decay"])'
)

MISTAKES["optim.adamw"] = [
    mistake(
        't = state["step"] if group["correct_bias"] else math.inf',
        't = state["step"]',
        "`correct_bias` is not used: the averages are corrected even if it is False.",
    ),
    mistake(
        't, group["lr"]',
        't, self.defaults["lr"]',
        "The learning rate is taken from `self.defaults`, so schedules and groups with their "
        "own learning rate have no effect.",
    ),
    mistake(
        _WRONG_SKIP,
        "",
        "adamw_step(p, p.grad,",
        "adamw_step(p, torch.zeros_like(p) if p.grad is None else p.grad,",
        "A parameter without a gradient is treated as if its gradient were 0. It should be "
        "skipped, together with its state.",
    ),
    mistake(
        _WRONG_SKIP,
        "",
        '            state["step"] += 1\n',
        '            state["step"] += 1\n'
        "            if p.grad is None:\n                continue\n",
        "The step count advances even if a parameter has no gradient. Each parameter needs its "
        "own count, because some steps skip it.",
    ),
    mistake(
        "    if closure is not None:\n"
        "        with torch.enable_grad():\n"
        "            loss = closure()\n",
        "",
        "The closure is not called.",
    ),
    mistake(
        "with torch.enable_grad():\n            loss = closure()",
        "loss = closure()",
        "The closure runs while gradients are disabled, so it cannot compute any.",
    ),
    mistake(
        'state["exp_avg_sq"] = torch.zeros_like(p)',
        'state["exp_avg_sq"] = state["exp_avg"]',
        "Both averages are kept in one tensor, and each overwrites the other.",
    ),
    mistake(
        "if p.grad is None:\n                continue",
        "if p.grad is None:\n                break",
        "The loop ends at the first parameter without a gradient; the others of the group "
        "should still be updated.",
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
                rate = rate * math.sqrt(1 - b2**t) / (1 - b1**t)
            keep = 1 - group["lr"] * group["weight_decay"]
            p.copy_(keep * (p - rate * m / (v.sqrt() + group["eps"])))
    return loss
""",
    """
def step(self, closure=None):
    loss = None if closure is None else closure()
    with torch.no_grad():
        for group in self.param_groups:
            settings = [group[k] for k in ("lr", "betas", "eps", "weight_decay")]
            for p in group["params"]:
                if p.grad is None:
                    continue
                state = self.state[p]
                state["step"] = state.get("step", 0) + 1
                for name in ("exp_avg", "exp_avg_sq"):
                    state.setdefault(name, torch.zeros_like(p))
                averages = state["exp_avg"], state["exp_avg_sq"]
                t = state["step"] if group["correct_bias"] else math.inf
                adamw_step(p, p.grad, *averages, t, *settings)
    return loss
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
        "            rate = head_lr\n",
        "            rate = lr\n",
        "`head_lr` is not used: the heads get the learning rate of the encoder.",
    ),
    mistake(
        '            if rate is not None:\n                groups[key]["lr"] = rate\n',
        '            groups[key]["lr"] = rate\n',
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
