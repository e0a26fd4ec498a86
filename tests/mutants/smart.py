"""Mutants of `minbert.exercise_cases.smart`: their checks must reject them all."""

from minbert.course.check_runner import mistake
from minbert.exercise_cases.smart import _DIRECTION, _DISTANCE, _GRADIENT, _MOVED, _PENALTY, _SIZE

MUTANTS = {}


MUTANTS["smart.length"] = [
    mistake("amax", "mean", "The mean of the absolute coordinates is taken, not the largest."),
    mistake("x.abs()", "x.square()", "The largest square is taken; its root is missing."),
    mistake("x.abs()", "x[:, :1].abs()", "Only the first token of a sentence counts."),
    mistake("dim=(1, 2)", "dim=(0, 2)", "The largest coordinate of a position is taken."),
    mistake(
        _SIZE,
        "return x.abs().amax(dim=(1, 2), keepdim=True).expand_as(x)",
        "The result has the shape of the input instead of (B, 1, 1).",
    ),
]


MUTANTS["smart.step"] = [
    mistake(
        _DIRECTION,
        "direction = gradient / (size + 1e-8)",
        "A constant is added to the size, so a small gradient makes nearly no step.",
    ),
    mistake(
        _DIRECTION,
        "direction = gradient / size.clamp(min=1e-8)",
        "The size has a large lower bound, so a small gradient makes nearly no step.",
    ),
    mistake(
        "largest_coordinate(gradient)",
        "gradient.abs().amax(dim=2, keepdim=True)",
        "The gradient is divided by the size of each token.",
    ),
    mistake(
        "largest_coordinate(gradient)",
        "gradient.flatten(1).norm(dim=1)[:, None, None]",
        "The gradient is divided by its 2-norm.",
    ),
    mistake("-epsilon, epsilon)", "max=epsilon)", "The box has no lower side."),
    mistake("delta + eta * direction", "delta + direction", "The step size is not used."),
    mistake(
        _MOVED,
        "return delta + (eta * direction).clamp(-epsilon, epsilon)",
        "The step is clamped instead of the new perturbation.",
    ),
    mistake(
        ".clamp(-epsilon, epsilon)",
        ".clamp(-eta, eta)",
        "The perturbation is projected onto a box of the step size.",
    ),
    mistake(
        "-epsilon, epsilon)",
        "-epsilon, epsilon).where(size > 0, delta)",
        "A sentence without a gradient is not projected.",
    ),
]


MUTANTS["smart.perturbation"] = [
    mistake("randn_like", "rand_like", "The noise is uniform between 0 and sigma."),
    mistake("range(K)", "range(K + 1)", "There is one step too many."),
    mistake(
        "f(x.detach() + delta)", "f(delta)", "The model sees the perturbation alone in the search."
    ),
    mistake(
        _DISTANCE,
        "distance(f(x.detach() + delta), f(x).detach())",
        "The clean prediction is computed once more instead of taken.",
    ),
    mistake(
        "ascent_step(delta.detach(), gradient",
        "ascent_step(0 * delta.detach(), gradient",
        "Every step starts from zero again.",
    ),
    mistake(
        "torch.randn_like(x)",
        "torch.randn_like(x[:1]).expand_as(x).clone()",
        "All sentences get the same noise.",
    ),
    mistake(
        "torch.randn_like(x)",
        "torch.randn_like(x[..., :1]).expand_as(x).clone()",
        "One number is drawn for all dimensions of a word vector.",
    ),
    mistake("moved.sum()", "moved[0]", "Only the first sentence is searched."),
    mistake(
        _GRADIENT,
        "(gradient,) = torch.autograd.grad(moved.sum(), delta)\n"
        "        gradient = gradient.mean(0, keepdim=True).expand_as(delta)",
        "All sentences move along the mean gradient.",
    ),
    mistake("sigma * torch", "sigma**2 * torch", "The variance is taken for the spread."),
    mistake(
        "        delta = ascent_step(", "        ascent_step(", "The result of the step is dropped."
    ),
]


MUTANTS["smart.loss"] = [
    mistake(
        "find_perturbation(x, f, clean,",
        "find_perturbation(x, f, f(x),",
        "The search uses another clean prediction than the penalty.",
    ),
    mistake("f(x + delta)", "f(x - delta)", "The perturbation is subtracted."),
    mistake(_PENALTY, _PENALTY + ".detach()", "The penalty has no graph."),
    mistake("clean).mean()", "clean).median()", "The median replaces the mean."),
    mistake("clean).mean()", "f(x)).mean()", "The clean prediction is computed once more."),
    mistake(
        _PENALTY,
        "return distance(f(x + delta).detach(), clean).mean()",
        "The perturbed prediction is detached.",
    ),
    mistake(_PENALTY, "return distance(f(x + delta), clean)", "The distances are not averaged."),
]
