"""How the exercise of chapter 33 that moves the teacher's weights is checked."""


import torch
from torch import nn

from minbert.course.trials import Case, Trial, fixed, mistake


# An average in place is one line. What can be wrong with one line?

TRIALS, MISTAKES, VARIANTS = {}, {}, {}


# ---- proximal.average
#
# Two tensors of different shapes, shares from 0 to 1. The model's weights train, as they do in life. Afterwards the weights are moved once more: a
# teacher that shares their memory would go along. One copy goes into memory that holds NaN, as fresh memory may.

def average_cases(generator):
    draw = lambda: {"t0": fixed(generator, 2, 3), "t1": fixed(generator, 4), "w0": fixed(generator, 2, 3), "w1": fixed(generator, 4)}
    unwritten = torch.tensor([torch.nan, 1.0, -torch.inf, torch.nan], dtype=torch.float64)
    return [*(Case(f"share {share:g}", {**draw(), "share": share}) for share in (0.01, 0.3, 0.5, 0.9, 0.0)),
            Case("a copy", draw()),
            Case("a copy, share 1", {**draw(), "share": 1.0}),
            Case("single precision", {**{name: x.float() for name, x in draw().items()}, "share": 0.25}),
            Case("a copy into memory that nobody has written yet", {**draw(), "t1": unwritten, "share": 1.0})]


def run_average(move, inputs):
    teacher, more = [inputs["t0"].clone(), inputs["t1"].clone()], {"share": inputs["share"]} if "share" in inputs else {}
    views = [t.view(-1) for t in teacher]
    weights, first = [nn.Parameter(inputs["w0"].clone()), nn.Parameter(inputs["w1"].clone())], list(teacher)
    move(teacher, weights, **more)
    found = {"teacher, first tensor": first[0].clone(),
             "teacher, second tensor": first[1].clone(),
             "the tensors are where they were in memory": all(v.data_ptr() == t.data_ptr() for v, t in zip(views, first)),
             "the weights afterwards": weights[0].clone(),
             "the teacher has a graph": any(t.requires_grad for t in first),
             "the weights learn": all(w.requires_grad for w in weights)}
    with torch.no_grad():
        weights[0].add_(5.0)
    return found | {"teacher, when the weights move on": first[0].clone(), "the list holds the same tensors": all(a is b for a, b in zip(teacher, first))}


TRIALS["proximal.average"] = Trial(average_cases, run_average, subject="proximal", rtol=1e-9, atol=1e-11, hints=(
    "At share 0 nothing moves, at share 1 the teacher equals the model. Which of the two numbers belongs to the teacher?",
    "Use operations that end in an underscore, inside `torch.no_grad()`: the twin holds these very tensors.",
    "for t, w in zip(teacher, weights), inside no_grad: t.copy_(w) for a share of 1, since 0 times NaN is NaN, else t.lerp_(w, share)."))


_WRONG_MOVE = '''with torch.no_grad():
        if share == 1:
            torch._foreach_copy_(teacher, weights)
        else:
            torch._foreach_lerp_(teacher, weights, share)'''


def _wrong_move(line, says, graph=False, loop="t, w in zip(teacher, weights)"):
    return mistake(_WRONG_MOVE, f"with torch.{'enable_grad' if graph else 'no_grad'}():\n        for {loop}:\n            {line}", says)


MISTAKES["proximal.average"] = [
    _wrong_move("t.mul_(share).add_(w, alpha=1 - share)",
        "The two shares are swapped: with beta .99 the teacher would be nearly the model of this step."),
    _wrong_move("t.add_(w, alpha=share)", "The teacher's own part is not made smaller, so its weights grow with every step."),
    _wrong_move("t.mul_(1 - share).add_(w, alpha=share)",
        "At a share of 1 the teacher's own numbers still enter, as 0 times what is there, and 0 times NaN is NaN: fresh memory may hold one. A share of 1 copies."),
    _wrong_move("t.copy_(w)", "`share` is not used: the teacher is always a copy."),
    _wrong_move("w.lerp_(t, 1 - share)", "The model's weights are changed. They belong to the optimizer; the teacher should move."),
    _wrong_move("teacher[i] = torch.lerp(teacher[i], weights[i], share)",
        "New tensors are put into the list. The teacher's own tensors, which the twin holds, stay as they were.", loop="i in range(len(teacher))"),
    _wrong_move("t.data = w.data if share == 1 else torch.lerp(t, w.data, share)",
        "A copy shares its memory with the model, so the teacher moves along with every step."),
    _wrong_move("t.data = w.data.clone() if share == 1 else torch.lerp(t, w.data, share)",
        "The tensors are given other memory. The twin reads the old one, and there the numbers stay as they were."),
    _wrong_move("t.copy_(w) if share == 1 else t.mul_(share).add_(w, alpha=1 - share)",
        "The two shares are swapped, but for a copy: with beta .99 the teacher would be nearly the model of this step."),
    _wrong_move("t.mul_(1 - share).add_(share * w)", "A graph is recorded: the teacher would get a gradient, and remember all steps.", graph=True),
    _wrong_move("t.lerp_(w, share)", "Only the first tensor is moved.", loop="t, w in list(zip(teacher, weights))[:1]"),
    _wrong_move("t.mul_(1 - share).add_(t, alpha=0).add_((w - t) * share)",
        "The difference is taken after the teacher has been scaled, so the sum is not an average."),
    _wrong_move("t.add_((w - t).sign() * (w - t).square() * share)",
        "The teacher goes by the square of the difference. It should go a share of the way."),
    mistake("torch._foreach_lerp_(teacher, weights, share)", "torch._foreach_add_(teacher, weights, alpha=share)",
            "Except at a share of 1 the teacher's own part is not made smaller, so its weights grow with every step."),
]

VARIANTS["proximal.average"] = [
    '''
@torch.no_grad()
def move_weights(teacher, weights, share=1.0):
    for t, w in zip(teacher, weights):
        t.mul_(1 - share).add_(w, alpha=share) if share < 1 else t.copy_(w)
''', '''
def move_weights(teacher, weights, share=1.0):
    for i in range(len(teacher)):
        mixed = teacher[i].detach() + share * (weights[i].detach() - teacher[i].detach())
        teacher[i].data.copy_(mixed if share != 1.0 else weights[i])
''',
]


# ---- How strong are they?
