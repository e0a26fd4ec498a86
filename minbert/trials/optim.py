"""How the first exercises of chapter 05 are checked: the corrected rate and one step of AdamW."""


import math

import torch

from minbert.course.trials import CHANGED, Case, Trial, fixed, mistake


TRIALS, MISTAKES, VARIANTS = {}, {}, {}


# Which of twenty ways to get AdamW wrong still trains? Nearly all of them. The loss falls with epsilon in the wrong place, with the decay of another
# paper, with the settings of another group. So the checks look at numbers, after every step, where the ways differ.
#
# ---- optim.rate
#
# Early steps, late ones, and no repair at all ($t = \infty$). The two betas are far apart in one case, so that a mix-up shows. In another the
# repaired rate is above the one that was asked for.

def rate_cases(generator):
    a, b, lr = torch.rand(3, generator=generator, dtype=torch.float64).tolist()
    return [Case("Adam's betas", {"lr": 1e-3, "betas": (0.9, 0.999), "times": [1, 2, 3, 10, 100, 10_000]}),
            Case("other betas", {"lr": lr, "betas": (0.3 + 0.3 * a, 0.65 + 0.3 * b), "times": [1, 2, 5]}),
            Case("a beta of 0", {"lr": lr, "betas": (0.0, 0.5), "times": [1, 2]}),
            Case("nothing to repair", {"lr": lr, "betas": (0.9, 0.999), "times": [math.inf]}),
            Case("betas near 1", {"lr": lr, "betas": (0.99999, 0.999999), "times": [1, 2, 1000]}),
            Case("repaired to more than was asked for", {"lr": lr, "betas": (0.9, 0.5), "times": [1, 2, 3]})]


def run_rate(rate, inputs):
    return {f"t = {t}": torch.tensor(rate(inputs["lr"], inputs["betas"], t), dtype=torch.float64) for t in inputs["times"]}


TRIALS["optim.rate"] = Trial(rate_cases, run_rate, atol=0, subject="adamw", hints=(
    "Which of the two averages stands under the fraction bar of Adam's step, and which on top of it?",
    "1 - b1^t repairs m and goes below; 1 - b2^t repairs v, which stands under a root.",
    "math.sqrt of (1 - b2 ** t), times lr, divided by (1 - b1 ** t). betas is (b1, b2)."))


_WRONG_RATE = "return lr * math.sqrt(1 - betas[1] ** t) / (1 - betas[0] ** t)"

MISTAKES["optim.rate"] = [
    mistake("math.sqrt(1 - betas[1] ** t)", "(1 - betas[1] ** t)",
            "The repair of v lacks its root: v stands under a root in the step, so its repair does too."),
    mistake("betas[1] ** t)", "betas[0] ** t)", "/ (1 - betas[0] ** t)", "/ (1 - betas[1] ** t)",
            "The two betas are swapped: the first belongs to m, the second to v."),
    mistake(_WRONG_RATE, "return lr * (1 - betas[0] ** t) / math.sqrt(1 - betas[1] ** t)",
            "The fraction is upside down, which makes averages that are too small smaller still."),
    mistake(_WRONG_RATE, "return lr / (1 - betas[0] ** t)", "Only m is repaired; v still starts at 0, and the first steps come out too long."),
    mistake(_WRONG_RATE, "return lr * math.sqrt(1 - betas[1] ** t)",
            "Only v is repaired; m still starts at 0, and the first steps come out too short."),
    mistake(_WRONG_RATE, "return lr * math.sqrt(1 - betas[1] ** (t + 1)) / (1 - betas[0] ** (t + 1))",
            "The count is one too high: the first step is t = 1, and it arrives that way."),
    mistake(_WRONG_RATE, "return lr * math.sqrt(1 - betas[1] * t) / (1 - betas[0] * t)",
            "The betas are multiplied by t, where the equation raises them to the power t."),
    mistake("return lr * ", "return ", "The rate itself is missing: what comes back is only the factor."),
    mistake(_WRONG_RATE, "return min(lr, lr * math.sqrt(1 - betas[1] ** t) / (1 - betas[0] ** t))",
            "The rate is held below the one that was asked for. The repair may lengthen a step as well: it depends on the betas."),
    mistake(_WRONG_RATE, "return lr * math.sqrt((1 - betas[1] ** t) / (1 - betas[0] ** t))", "The root is taken of the whole fraction. Only v stands under a root."),
    mistake(_WRONG_RATE, "return lr * math.sqrt(1 - 0.999 ** t) / (1 - 0.9 ** t)", "`betas` is not used: these are the usual ones."),
    mistake(_WRONG_RATE, "t = max(t - 1, 1)\n    return lr * math.sqrt(1 - betas[1] ** t) / (1 - betas[0] ** t)",
            "The count is one too low: the first step is t = 1, and it arrives that way."),
    mistake(_WRONG_RATE, "return lr * math.sqrt(1 - betas[1] ** t) / (1 - betas[0] ** t) if t < math.inf else 0.0",
            "At t = inf the rate is 0. Nothing is left to repair there, so it is the one that was asked for."),
    mistake(_WRONG_RATE, "t = min(t, 1000)\n    return lr * math.sqrt(1 - betas[1] ** t) / (1 - betas[0] ** t)",
            "The count stops at a limit. With a long memory the repair goes on."),
    mistake(_WRONG_RATE, "return lr * math.sqrt(1 - betas[1] ** t) / (1 - betas[0] ** t + 1e-8)",
            "A small number is added below the bar. With betas near 1 it weighs as much as what it is added to."),
    mistake(_WRONG_RATE, "return lr", "Nothing is repaired: both averages start at 0 and are taken as they are."),
    mistake(_WRONG_RATE, "return lr * math.sqrt(1 - betas[1]) / (1 - betas[0])", "The betas are not raised to the power t, so every step is repaired like the first."),
]

VARIANTS["optim.rate"] = [
    '''
def corrected_rate(lr, betas, t):
    first, second = (1.0 - beta**t for beta in betas)
    return lr / first * second**0.5
''',
    '''
def corrected_rate(lr, betas, t):
    if t == math.inf:
        return lr
    b1, b2 = torch.tensor(betas, dtype=torch.float64)
    return (lr * torch.sqrt(1 - b2**t) / (1 - b1**t)).item()
''',
]


# ---- optim.update
#
# Three tensors of different shapes at once. Gradients are as small as epsilon, so that its place shows; decay is large; the betas differ from case to
# case; the count is 1, then 7, then infinite. One weight is stored crosswise, by columns, as the transpose of another tensor is. The run looks at the
# tensors that it handed over, not at what stands in the lists afterwards: a weight that is replaced, where it should be changed, never reaches the
# model.

def _lists(generator, size, sizes=((3, 4), (5,), ()), dtype=torch.float64):
    """Weights around 1, gradients and averages around `size`."""
    draw = lambda scale: [scale * fixed(generator, 1, *s, dtype=dtype)[0] for s in sizes]
    return {"params": draw(1.0), "grads": draw(size), "means": draw(0.3 * size), "squares": [x.square() for x in draw(size)]}


def update_cases(generator):
    new = lambda size, **kw: (made := _lists(generator, size, **kw)) | {k: [torch.zeros_like(x) for x in made[k]] for k in ("means", "squares")}
    plain = {"lr": 0.01, "betas": (0.9, 0.999), "eps": 1e-6, "weight_decay": 0.0, "decay_first": False}
    other = plain | {"betas": (0.7, 0.8), "lr": 0.3, "eps": 1e-3}
    zero = _lists(generator, 1e-3)
    zero["grads"] = [torch.zeros_like(x) for x in zero["grads"]]
    crossed = _lists(generator, 0.1, ((4, 3), (2,)), torch.float32)
    crossed["grads"][0] = crossed["grads"][0].T.contiguous().T
    cases = [Case("the first step, gradients as small as eps", {**new(1e-6), "t": 1, "options": plain}),
             Case("the first step, with decay", {**new(1e-3), "t": 1, "options": plain | {"weight_decay": 0.5}}),
             Case("step 7, other betas, no decay", {**_lists(generator, 1e-3), "t": 7, "options": other}),
             Case("step 7, other betas, with decay", {**_lists(generator, 1e-3), "t": 7, "options": other | {"weight_decay": 0.9}}),
             Case("decay before the step", {**_lists(generator, 1e-3), "t": 3, "options": other | {"weight_decay": 0.9, "decay_first": True}}),
             Case("no bias correction", {**_lists(generator, 1e-3), "t": math.inf, "options": other | {"weight_decay": 0.9}}),
             Case("gradients of 0 after others", {**zero, "t": 4, "options": other | {"weight_decay": 0.5}}),
             Case("single precision, one tensor stored crosswise", {**crossed, "t": 2, "options": other | {"weight_decay": 0.1}})]
    return [*cases, Case("a weight stored crosswise", {**_lists(generator, 0.1), "t": 2, "options": other | {"weight_decay": 0.1}, "crosswise": True})]


def run_update(step, inputs):
    lists = {name: inputs[name] for name in ("params", "grads", "means", "squares")}
    if "crosswise" in inputs:
        lists["params"] = [p.mT.contiguous().mT if p.ndim == 2 else p for p in lists["params"]]
    given = {name: list(x) for name, x in lists.items()}
    step(*given.values(), inputs["t"], **inputs["options"])
    changed = {CHANGED.format(name): torch.tensor(True) for name in lists if len(given[name]) != len(lists[name])}
    return {f"{name}[{i}]": x for name, tensors in lists.items() for i, x in enumerate(tensors)} | changed


TRIALS["optim.update"] = Trial(update_cases, run_update, atol=1e-13, subject="adamw", forbidden=("_fused_step", "torch._fused_adamw_"), hints=(
    "Four things change or are read, in this order: m, v, the weight, the weight once more. Which of them sees the rate alpha_t, which the plain "
    "rate?",
    "Change the tensors in place (`mul_`, `add_`, `addcmul_`, `addcdiv_`): the model holds these very tensors. eps is added to sqrt(v), outside "
    "of the root, before any repair.",
    "For each p, g, m, v: m.mul_(b1).add_(g, alpha=1 - b1); the same for v with g * g and b2; p.addcdiv_(m, v.sqrt().add_(eps), value=-alpha_t); "
    "then p times (1 - lr * weight_decay)."))


_WRONG_MOVE = "torch._foreach_addcdiv_(params, means, roots, -alpha)"
_WRONG_ROOTS = "torch._foreach_add_(roots, eps)"
_WRONG_ALPHA = "alpha = corrected_rate(lr, betas, t)"
_WRONG_AFTER = "if not decay_first and weight_decay:\n        torch._foreach_mul_(params, 1 - lr * weight_decay)"

MISTAKES["optim.update"] = [
    mistake("    b1, b2 = betas\n", "    params, means, squares = ([x.clone() for x in tensors] for tensors in (params, means, squares))\n    b1, b2 = betas\n",
            "The numbers go into new tensors, and those that were given stay as they are. `p = p - ...` makes a new tensor; what ends in an underscore, or `p -= ...`, changes the old one."),
    mistake(_WRONG_MOVE, "torch._foreach_addcdiv_(params, torch._foreach_add(torch._foreach_mul(means, b1), grads, alpha=1 - b1), roots, -alpha)",
            "The gradient is put into m a second time before the step, as Nesterov does. Adam steps by m."),
    mistake(_WRONG_AFTER, "torch._foreach_mul_([p for p in params if p.ndim > 1], 1 if decay_first else 1 - lr * weight_decay)",
            "Only matrices decay. Which weights decay is settled by the groups, not here."),
    mistake(_WRONG_ALPHA, _WRONG_ALPHA + "\n    means, squares = [m.clone() for m in means], [v.clone() for v in squares]",
            "The averages are computed and thrown away. They have to be changed in place: the next step goes on from them."),
    mistake(_WRONG_ALPHA, _WRONG_ALPHA + "\n    some = [i for i, g in enumerate(grads) if g.any()]\n"
            "    params, grads, means, squares = ([x[i] for i in some] for x in (params, grads, means, squares))\n    if not params:\n        return",
            "Weights with a gradient of 0 are passed over. Their averages still fade, and they still move and decay."),
    mistake("roots = torch._foreach_sqrt(squares)", "roots = [v.clone() for v in squares]",
            "The root is missing: the step divides by v, as one printed version of the formula has it, and gets the wrong unit."),
    mistake("roots = torch._foreach_sqrt(squares)", "roots = [(v + eps).sqrt() for v in squares]", _WRONG_ROOTS, "",
            "eps stands inside the root, where 1e-6 counts like 1e-3."),
    mistake(_WRONG_ROOTS, "torch._foreach_add_(roots, eps * math.sqrt(1 - b2**t))",
            "eps is added to the repaired root, as torch does it; here it is added to the plain root of v."),
    mistake(_WRONG_ROOTS, "", "eps is missing: a weight with tiny gradients takes full steps, and one with none divides by 0."),
    mistake(_WRONG_ROOTS, "torch._foreach_clamp_min_(roots, eps)", "eps is the least value of the root here, where it should be added to it."),
    mistake(_WRONG_ALPHA, "alpha = lr", "The averages are not repaired: they start at 0 and are taken as they are."),
    mistake(_WRONG_ALPHA, "alpha = lr / (1 - b1**t)", "Only m is repaired; v keeps its start at 0, and the first steps are too long."),
    mistake(_WRONG_ALPHA, "alpha = corrected_rate(lr, betas, t + 1)", "The count is one too high: the first step is t = 1, and it arrives that way."),
    mistake(_WRONG_ALPHA, "alpha = corrected_rate(lr, betas, t - 1) if t > 1 else lr",
            "The count is one too low: t already counts the step that is being taken."),
    mistake("torch._foreach_add_(means, grads, alpha=1 - b1)", "torch._foreach_add_(means, grads)",
            "The new gradient enters m with its full weight, so m is ten times too large."),
    mistake("torch._foreach_addcmul_(squares, grads, grads, 1 - b2)", "torch._foreach_addcmul_(squares, grads, grads, 1)",
            "The new square enters v with its full weight, so v is far too large."),
    mistake("torch._foreach_mul_(means, b1)\n    torch._foreach_add_(means, grads, alpha=1 - b1)",
            "torch._foreach_mul_(means, 1 - b1)\n    torch._foreach_add_(means, grads, alpha=b1)",
            "b1 and 1 - b1 are swapped: m should remember nearly everything and take in a little."),
    mistake("b1, b2 = betas", "b2, b1 = betas", "The two betas are swapped: the first belongs to m, the second to v."),
    mistake("torch._foreach_addcmul_(squares, grads, grads, 1 - b2)", "torch._foreach_add_(squares, torch._foreach_abs(grads), alpha=1 - b2)",
            "v averages |g| here, where it should average the square."),
    mistake("torch._foreach_addcmul_(squares, grads, grads, 1 - b2)", "torch._foreach_addcmul_(squares, means, means, 1 - b2)",
            "v averages the squares of m here, where it should average those of the gradient."),
    mistake(_WRONG_MOVE, "torch._foreach_addcdiv_(params, means, roots, alpha)", "The sign is wrong: this step climbs."),
    mistake(_WRONG_MOVE, "torch._foreach_addcdiv_(params, grads, roots, -alpha)",
            "The step takes the gradient itself and forgets the average m: there is no momentum."),
    mistake(_WRONG_AFTER, "if not decay_first and weight_decay:\n        torch._foreach_mul_(params, 1 - alpha * weight_decay)",
            "The decay takes the repaired rate alpha_t; it takes the plain one."),
    mistake(_WRONG_AFTER, "if not decay_first and weight_decay:\n        torch._foreach_mul_(params, 1 - weight_decay)",
            "The decay forgets the learning rate, and the weights vanish in a few steps."),
    mistake("if decay_first and weight_decay:", "if weight_decay:", _WRONG_AFTER, "",
            "The decay is taken from the weight as it was before the step, also where it should come after it. (That is torch's order.)"),
    mistake("if decay_first and weight_decay:\n        torch._foreach_mul_(params, 1 - lr * weight_decay)", "pass",
            "if not decay_first and weight_decay:", "if weight_decay:",
            "`decay_first` is not read: the decay always comes after the step."),
    mistake("if decay_first and weight_decay:\n        torch._foreach_mul_(params, 1 - lr * weight_decay)",
            "grads = torch._foreach_add(grads, params, alpha=weight_decay)", _WRONG_AFTER, "",
            "The decay is added to the gradient and goes through the averages: that is plain Adam with an L2 penalty, and the W of AdamW stands "
            "for not doing so."),
    mistake(_WRONG_AFTER, "", "There is no decay after the step."),
    mistake(_WRONG_AFTER, "if not decay_first:\n        torch._foreach_mul_(params, 1 + lr * weight_decay)",
            "The decay has the wrong sign: the weights grow."),
    mistake(_WRONG_MOVE, "params[:] = [p - alpha * m / r for p, m, r in zip(params, means, roots)]",
            "New weights are put into the list, and the tensors that the model holds stay as they were. Change them in place."),
    mistake(_WRONG_MOVE, "for p, m, r in zip(params, means, roots):\n        p.reshape(-1).sub_(alpha * (m / r).reshape(-1))",
            "Weights are flattened with `reshape` before they move. Of a tensor that is stored crosswise that is a copy, and the weight stays."),
    mistake("torch._foreach_mul_(means, b1)\n    torch._foreach_add_(means, grads, alpha=1 - b1)",
            "means = [b1 * m + (1 - b1) * g for m, g in zip(means, grads)]",
            "The averages are computed and not kept: m must change in place, or the next step starts from the old one."),
    mistake("torch._foreach_addcmul_(squares, grads, grads, 1 - b2)",
            "torch._foreach_mul_(grads, grads)\n    torch._foreach_add_(squares, grads, alpha=1 - b2)",
            "The gradients are overwritten by their squares; they are only to be read."),
    mistake(_WRONG_MOVE, "torch._foreach_addcdiv_(params[:1], means[:1], roots[:1], -alpha)", "Only the first weight of the list moves."),
    mistake(_WRONG_MOVE, _WRONG_MOVE + "\n    grads.clear()", "The caller's list of gradients is emptied. The tensors change, the lists stay."),
    mistake("    torch._foreach_mul_(means, b1)\n    torch._foreach_add_(means, grads, alpha=1 - b1)\n", "", _WRONG_MOVE,
            _WRONG_MOVE + "\n    torch._foreach_mul_(means, b1)\n    torch._foreach_add_(means, grads, alpha=1 - b1)", "The step is made of m as it was before the new gradient. m takes it in first."),
    mistake("    roots = torch._foreach_sqrt(squares)\n", "", "    torch._foreach_mul_(squares, b2)\n", "    roots = torch._foreach_sqrt(squares)\n    torch._foreach_mul_(squares, b2)\n",
            "The root is taken of v as it was before the new gradient. v takes in its square first."),
    mistake("torch._foreach_mul_(squares, b2)", "torch._foreach_mul_(squares, 1 - b2)", "grads, grads, 1 - b2)", "grads, grads, b2)",
            "b2 and 1 - b2 are swapped: v should remember nearly everything and take in a little."),
    mistake("if not decay_first and weight_decay:", "if weight_decay:", "With `decay_first` there is decay before the step and after it. It comes once."),
    mistake(_WRONG_ALPHA + "\n    if decay_first", _WRONG_ALPHA + "\n    if not decay_first", _WRONG_MOVE + "\n    if not decay_first", _WRONG_MOVE + "\n    if decay_first",
            "`decay_first` is read the wrong way round."),
]

VARIANTS["optim.update"] = [
    '''
def portable_step(params, grads, means, squares, t, lr, betas, eps, weight_decay, decay_first):
    for p, g, m, v in zip(params, grads, means, squares):
        if decay_first:
            p.sub_(lr * weight_decay * p)
        m.lerp_(g, 1 - betas[0])
        v.lerp_(g * g, 1 - betas[1])
        p.sub_(lr * math.sqrt(1 - betas[1] ** t) / (1 - betas[0] ** t) * m / (v.sqrt() + eps))
        if not decay_first:
            p.sub_(lr * weight_decay * p)
''',
    '''
def portable_step(params, grads, means, squares, t, lr, betas, eps, weight_decay, decay_first):
    root, keep = math.sqrt(1 - betas[1] ** t), 1 - lr * weight_decay
    for p, g, m, v in zip(params, grads, means, squares):
        m.copy_(betas[0] * m + (1 - betas[0]) * g)
        v.copy_(betas[1] * v + (1 - betas[1]) * g.pow(2))
        move = lr * (m / (1 - betas[0] ** t)) / (v.sqrt() / root + eps / root)
        p.data = (keep * p - move if decay_first else keep * (p - move)).to(p.dtype)
''',
]


# ---- How strong are they?
