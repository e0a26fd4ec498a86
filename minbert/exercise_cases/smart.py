"""Exercise cases of chapter 23: the adversarial regularization of SMART."""

import torch

from minbert.course.check_runner import Case, Trial, fixed, mistake

TRIALS, MISTAKES, VARIANTS = {}, {}, {}


# ---- smart.length
#
# One and several sentences, tokens and dimensions; a sentence of zeros; negative numbers only.


def length_cases(generator):
    x = fixed(generator, 3, 4, 5)
    zeros = x.clone()
    zeros[1] = 0
    return [
        Case("three sentences", {"x": x}),
        Case("a sentence of zeros", {"x": zeros}),
        Case("negative coordinates only", {"x": -x.abs()}),
        Case("one token", {"x": fixed(generator, 3, 1, 4)}),
        Case("one dimension", {"x": fixed(generator, 2, 4, 1)}),
        Case("one sentence", {"x": fixed(generator, 1, 4, 3)}),
    ]


def run_length(length, inputs):
    return {"sizes": length(**inputs)}


TRIALS["smart.length"] = Trial(
    length_cases,
    run_length,
    subject="smart",
    rtol=1e-9,
    atol=1e-11,
    hints=(
        "Which axes belong to one sentence, and which axis must be left alone?",
        "`amax` accepts several dimensions at once, and `keepdim=True` keeps them with size 1.",
        "x.abs().amax(dim=(1, 2), keepdim=True)",
    ),
)


_SIZE = "return x.abs().amax(dim=(1, 2), keepdim=True)"

MISTAKES["smart.length"] = [
    mistake(
        "dim=(1, 2)",
        "dim=2",
        "Each token has its own size here. Take the largest coordinate of the whole sentence.",
    ),
    mistake(
        _SIZE,
        "return x.abs().max().expand(len(x), 1, 1)",
        "The size is that of the whole batch. Each sentence has its own.",
    ),
    mistake("x.abs()", "x", "Negative values are ignored. Use absolute values."),
    mistake(
        ", keepdim=True",
        "",
        "The result has the shape (B,), so it does not broadcast against (B, T, D). Keep the axes.",
    ),
    mistake(
        _SIZE,
        "return x.square().sum(dim=(1, 2), keepdim=True).sqrt()",
        "This is the 2-norm of a sentence. The infinity norm is the largest absolute coordinate.",
    ),
]

VARIANTS["smart.length"] = [
    """
def largest_coordinate(x):
    return torch.linalg.vector_norm(x.flatten(1), float("inf"), dim=1)[:, None, None]
""",
    """
def largest_coordinate(x):
    sizes = [sentence.abs().max() for sentence in x]
    return torch.stack(sizes).view(-1, 1, 1)
""",
]


# ---- smart.step
#
# Steps that stay in the box, reach its edge and leave it; a start outside of it; sentences without
# a gradient, where the perturbation stays; gradients of 1e-30, alone and beside ordinary ones.


def step_cases(generator):
    delta, gradient = 0.1 * fixed(generator, 3, 2, 4), 5 * fixed(generator, 3, 2, 4)
    none = gradient.clone()
    none[1] = 0
    faint = gradient.float()
    faint[2] *= 1e-30
    edge = {"epsilon": 0.2, "eta": 0.15}
    ordinary = {"delta": delta, "gradient": gradient}
    single = {"delta": delta.float(), **edge}
    return [
        Case("inside the box", {**ordinary, "epsilon": 5.0, "eta": 0.15}),
        Case("to the edge of the box", {**ordinary, **edge}),
        Case("a step much longer than the radius", {**ordinary, "epsilon": 0.01, "eta": 1.0}),
        Case("a sentence without a gradient", {**ordinary, "gradient": none, **edge}),
        Case("no gradient at all", {**ordinary, "gradient": 0 * gradient, **edge}),
        Case(
            "a start outside of the box, and no gradient",
            {**ordinary, "gradient": 0 * gradient, "epsilon": 0.05, "eta": 0.15},
        ),
        Case("gradients of 1e-30", {**single, "gradient": 1e-30 * gradient.float()}),
        Case("one sentence with gradients of 1e-30", {**single, "gradient": faint}),
        Case("one sentence", {"delta": delta[:1], "gradient": gradient[:1], **edge}),
        Case("one token", {"delta": delta[:, :1], "gradient": gradient[:, :1], **edge}),
    ]


def run_step(step, inputs):
    return {"perturbation": step(**inputs)}


TRIALS["smart.step"] = Trial(
    step_cases,
    run_step,
    subject="smart",
    hints=(
        "First the direction of the step, then its length, and last the projection.",
        (
            "`largest_coordinate` gives the size of each gradient. A size of 0 would divide by "
            "zero: `clamp` it from below by the smallest normal number of its dtype."
        ),
        (
            "direction = gradient / size.clamp(min=torch.finfo(size.dtype).tiny); the result is "
            "(delta + eta * direction).clamp(-epsilon, epsilon)."
        ),
    ),
)


_DIRECTION = "direction = gradient / size.clamp(min=torch.finfo(size.dtype).tiny)"
_MOVED = "return (delta + eta * direction).clamp(-epsilon, epsilon)"

MISTAKES["smart.step"] = [
    mistake(
        "(delta + eta",
        "(delta - eta",
        "The step goes downhill. The search maximizes the distance.",
    ),
    mistake(
        "delta + eta * direction",
        "eta * direction",
        "The current perturbation is dropped, so several steps are no better than one.",
    ),
    mistake(
        "delta + eta * direction",
        "delta + epsilon * direction",
        "The step has the length epsilon. Use the step size eta.",
    ),
    mistake(
        _DIRECTION,
        "direction = gradient",
        "The gradient is not divided by its size, so that small gradients make tiny steps.",
    ),
    mistake(
        ".clamp(-epsilon, epsilon)",
        "",
        "The perturbation is not projected back onto the box.",
    ),
    mistake(
        "largest_coordinate(gradient)",
        "gradient.abs().amax()",
        "The gradient is divided by the size of the whole batch. Each sentence has its own.",
    ),
    mistake(
        _DIRECTION,
        "direction = gradient / size",
        "A gradient of zeros is divided by 0. Its sentence should keep its perturbation.",
    ),
    mistake(
        _DIRECTION,
        "direction = gradient.sign()",
        "Only the signs of the gradient are used. Smaller coordinates should move less.",
    ),
]

VARIANTS["smart.step"] = [
    """
def ascent_step(delta, gradient, epsilon, eta):
    size = gradient.abs().amax((1, 2), keepdim=True)
    direction = gradient / torch.where(size > 0, size, 1.0)
    return torch.clamp(delta + direction * eta, -epsilon, epsilon)
""",
    """
def ascent_step(delta, gradient, epsilon, eta):
    result = torch.empty_like(delta)
    for i in range(len(delta)):
        size = gradient[i].abs().max()
        moved = delta[i] + eta * gradient[i] / size if size > 0 else delta[i]
        result[i] = moved.clip(-epsilon, epsilon)
    return result
""",
]


# ---- smart.perturbation and smart.loss
#
# The noise of two right programs may differ. Where values are compared, the noise is therefore
# zero, and the distance has a slope at zero; or the model is linear, and the result is the same
# from any start. The noise itself is judged by its statistics.


def _model(generator):
    return {"W": 0.7 * fixed(generator, 3, 4), "V": fixed(generator, 4, 2)}


def _one_sided(p, q):
    return (p * (p - q)).sum(-1)


def _squares(p, q):
    return (p - q).square()


_EDGE = {"epsilon": 0.2, "eta": 0.15, "sigma": 0.0}


def perturbation_cases(generator):
    small = {**_model(generator), "x": fixed(generator, 5, 2, 3)}
    signs = torch.randint(2, (2, 3), generator=generator).double() * 2 - 1
    weights = signs * (1 + torch.rand(2, 3, generator=generator, dtype=torch.float64))
    line = {"x": fixed(generator, 4, 2, 3), "line": weights}
    return [
        Case("one step", {**small, "search": {**_EDGE, "K": 1}}),
        Case("three steps", {**small, "search": {**_EDGE, "K": 3}}),
        Case("three steps within the box", {**small, "search": {**_EDGE, "epsilon": 5.0, "K": 3}}),
        Case("no step, no noise", {**small, "search": {**_EDGE, "K": 0}}),
        Case("the defaults, but no noise", {**small, "search": {"sigma": 0.0}}),
        Case(
            "a clean prediction of another pass",
            {**small, "elsewhere": 0.2, "search": {**_EDGE, "K": 3}},
        ),
        Case("one sentence", {**small, "x": small["x"][:1], "search": {**_EDGE, "K": 2}}),
        Case("a linear model, from noise", {**line, "search": {}}),
        Case(
            "a linear model, three steps from noise",
            {**line, "search": {"epsilon": 0.03, "eta": 0.5, "sigma": 0.02, "K": 3}},
        ),
        Case(
            "noise", {**small, "x": fixed(generator, 40, 2, 3), "search": {"sigma": 0.05, "K": 0}}
        ),
    ]


def _net(inputs):
    """Take the weights out of a case; give the rest of the model, its weights and the clean
    prediction.
    """
    W, V = (torch.nn.Parameter(inputs.pop(name)) for name in ("W", "V"))
    x = inputs["x"].clone().requires_grad_()

    def f(x):
        return torch.tanh(x @ W).sum(1) @ V

    return x, f, f(x) + inputs.pop("elsewhere", 0.0), (W, V)


def run_perturbation(find, inputs):
    search = inputs["search"]
    if "line" in inputs:
        w = inputs["line"]

        def f(x):
            return (x * w).sum((1, 2))

        delta = find(inputs["x"], f, f(inputs["x"]), _squares, **search)
        return {"sizes": delta.abs(), "change of the prediction": f(delta).abs()}
    x, f, clean, weights = _net(inputs)
    if search.get("K") == 0 and search["sigma"]:
        return _noise(lambda: find(x, f, clean, _one_sided, **search), search["sigma"])
    delta = find(x, f, clean, _one_sided, **search)
    return {
        "perturbation": delta,
        "the perturbation has a graph": delta.requires_grad and delta.grad_fn is not None,
        "the search left gradients": any(w.grad is not None for w in (*weights, x)),
    }


def _noise(find, sigma):
    draws = torch.stack([find().detach() for _ in range(12)]) / sigma

    def near(x, y):
        return bool(abs(x - y) < 0.15)

    return {
        "mean noise is near 0": near(draws.mean(), 0),
        "spread of the noise is near sigma": near(draws.std(), 1),
        "noise of another call is another": not torch.equal(draws[0], draws[1]),
        "noise of another sentence is another": not torch.equal(draws[:, 0], draws[:, 1]),
        "noise of another token is another": not torch.equal(draws[:, :, 0], draws[:, :, 1]),
        "noise of another dimension is another": not torch.equal(draws[..., 0], draws[..., 1]),
    }


TRIALS["smart.perturbation"] = Trial(
    perturbation_cases,
    run_perturbation,
    subject="smart",
    derive=(),
    hints=(
        "Which of the quantities may change during the search, and which are constants?",
        (
            "In each step, `delta` needs `requires_grad_()`, and "
            "`torch.autograd.grad(distances.sum(), delta)` gives a tuple with one gradient."
        ),
        (
            "delta = sigma * torch.randn_like(x); K times: the distance of f(x.detach() + delta) "
            "and clean.detach(), its gradient, and ascent_step(delta.detach(), gradient, epsilon, "
            "eta)."
        ),
    ),
)


_DISTANCE = "distance(f(x.detach() + delta), clean.detach())"
_GRADIENT = "(gradient,) = torch.autograd.grad(moved.sum(), delta)"

MISTAKES["smart.perturbation"] = [
    mistake(
        "sigma * torch.randn_like(x)",
        "torch.zeros_like(x)",
        "The search starts from zero, where the gradient of the distance vanishes. Start from "
        "random noise.",
    ),
    mistake(
        "sigma * torch.randn_like(x)",
        "epsilon * torch.randn_like(x)",
        "The noise has the size epsilon. Its standard deviation is sigma.",
    ),
    mistake(
        "delta.detach(), gradient",
        "delta.detach(), -gradient",
        "The sign is wrong: the search minimizes the distance.",
    ),
    mistake(
        _DISTANCE,
        "distance(clean.detach(), f(x.detach() + delta))",
        "The arguments of the distance are swapped: first the perturbed prediction, then the "
        "clean one.",
    ),
    mistake("range(K)", "range(1)", "There is one step, whatever K is."),
    mistake(
        _GRADIENT,
        "moved.sum().backward()\n        gradient = delta.grad",
        "The search calls `backward`, which adds its gradients to those of the parameters. Use "
        "`torch.autograd.grad`.",
    ),
    mistake(
        "gradient, epsilon, eta)",
        "gradient, eta, epsilon)",
        "The radius and the step size have changed places.",
    ),
    mistake(
        "return delta",
        "return x.detach() + delta",
        "The perturbed word vectors are returned. Return the perturbation alone.",
    ),
]

VARIANTS["smart.perturbation"] = [
    """
def find_perturbation(x, f, clean, distance, epsilon=0.01, eta=1.0, sigma=0.01, K=1):
    target, start = clean.detach(), x.detach()
    delta = torch.randn(x.shape, dtype=x.dtype) * sigma
    for _ in range(K):
        variable = delta.clone().requires_grad_(True)
        value = distance(f(start + variable), target).mean()
        gradient = torch.autograd.grad(value, [variable])[0]
        delta = ascent_step(delta, gradient, epsilon, eta)
    return delta.detach()
""",
    """
def find_perturbation(x, f, clean, distance, epsilon=0.01, eta=1.0, sigma=0.01, K=1):
    moved = x.detach() + torch.normal(0.0, 1.0, x.shape).to(x.dtype) * sigma
    delta = moved - x.detach()
    step = 0
    while step < K:
        point = (x.detach() + delta).requires_grad_()
        gradient, = torch.autograd.grad(distance(f(point), clean.detach()).sum(), point)
        delta = ascent_step(delta, gradient, epsilon, eta)
        step += 1
    return delta
""",
]


def loss_cases(generator):
    small = {**_model(generator), "x": fixed(generator, 5, 2, 3)}
    line = {"x": fixed(generator, 4, 2, 3), "line": 1 + fixed(generator, 2, 3).abs()}
    return [
        Case("one step", {**small, "search": {**_EDGE, "K": 1}}),
        Case("three steps", {**small, "search": {**_EDGE, "K": 3}}),
        Case("no step, no noise", {**small, "search": {**_EDGE, "K": 0}}),
        Case("the defaults, but no noise", {**small, "search": {"sigma": 0.0}}),
        Case(
            "a clean prediction of another pass",
            {**small, "elsewhere": 0.2, "search": {**_EDGE, "K": 3}},
        ),
        Case("one sentence", {**small, "x": small["x"][:1], "search": {**_EDGE, "K": 2}}),
        Case(
            "a linear model, from noise",
            {**line, "search": {"epsilon": 0.03, "eta": 9.0, "sigma": 0.02, "K": 3}},
        ),
    ]


def run_loss(smart, inputs):
    search = inputs["search"]
    if "line" in inputs:
        w, x = torch.nn.Parameter(inputs.pop("line")), inputs["x"]

        def f(x):
            return (x * w).sum((1, 2))

        loss = smart(x, f, f(x), _squares, **search)
        return {"penalty": loss, "gradient of w": torch.autograd.grad(loss, w)[0]}
    x, f, clean, weights = _net(inputs)
    loss = smart(x, f, clean, _one_sided, **search)
    if not loss.requires_grad:
        return {"penalty": loss, "has a gradient": False}
    gradients = torch.autograd.grad(loss, (x, *weights), materialize_grads=True)
    names = ("gradient of x", "gradient of W", "gradient of V")
    return {"penalty": loss, "has a gradient": True, **dict(zip(names, gradients))}


TRIALS["smart.loss"] = Trial(
    loss_cases,
    run_loss,
    subject="smart",
    derive=(),
    hints=(
        "The perturbation is a constant here, but both predictions depend on the parameters.",
        "One call of `find_perturbation` with the same settings, and one of `distance`.",
        "distance(f(x + delta), clean).mean(), and nothing is detached.",
    ),
)


_PENALTY = "return distance(f(x + delta), clean).mean()"

MISTAKES["smart.loss"] = [
    mistake(
        "clean).mean()",
        "clean.detach()).mean()",
        "The clean prediction is detached in the penalty, so only the perturbed one gets a "
        "gradient.",
    ),
    mistake(
        _PENALTY,
        "return distance(f(x + delta), clean).sum()",
        "The penalty is a sum over the batch. It should be the mean.",
    ),
    mistake(
        "f(x + delta)",
        "f(x.detach() + delta)",
        "The word vectors are detached in the penalty, so their table does not learn from it.",
    ),
    mistake(
        "f(x + delta)",
        "f(delta)",
        "The model sees the perturbation alone. Add it to the word vectors.",
    ),
    mistake(
        "distance(f(x + delta), clean)",
        "distance(clean, f(x + delta))",
        "The arguments of the distance are swapped: first the perturbed prediction, then the "
        "clean one.",
    ),
    mistake(
        "distance, **search)",
        "distance)",
        "The settings of the search are not passed on, so that it uses its defaults.",
    ),
    mistake(
        _PENALTY,
        "return distance(f(x + delta), clean).max()",
        "Only the sentence with the largest distance counts. Take the mean over the batch.",
    ),
    mistake(
        "    " + _PENALTY,
        "    with torch.no_grad():\n        " + _PENALTY,
        "The penalty is computed without a graph, so it has no gradient.",
    ),
]

VARIANTS["smart.loss"] = [
    """
def smart(x, f, clean, distance, **search):
    perturbed = f(x + find_perturbation(x, f, clean, distance, **search))
    return distance(perturbed, clean).sum() / len(x)
""",
    """
def smart(x, f, clean, distance, epsilon=0.01, eta=1.0, sigma=0.01, K=1):
    delta = find_perturbation(x, f, clean, distance, epsilon, eta, sigma, K)
    return torch.mean(distance(f(delta + x), clean))
""",
]
