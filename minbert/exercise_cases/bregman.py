"""Exercise cases of chapter 24: Bregman proximal point optimization."""

import torch
from torch import nn

from minbert.course.check_runner import Case, Trial, fill, fixed, mistake
from minbert.heads import LinearHead, PairLinear
from minbert.regularized import Clean, random_state
from minbert.sampling import seeded

TRIALS, MISTAKES, VARIANTS = {}, {}, {}


# ---- bregman.average
#
# Two tensors of different shapes, and several values of beta. Afterwards the parameters change once
# more, which shows shared memory.


def average_cases(generator):
    def draw():
        return {
            "t0": fixed(generator, 2, 3),
            "t1": fixed(generator, 4),
            "w0": fixed(generator, 2, 3),
            "w1": fixed(generator, 4),
        }

    return [
        *(
            Case(f"beta {beta:g}", {**draw(), "beta": beta})
            for beta in (0.99, 0.7, 0.5, 0.1, 1.0, 0.0)
        ),
        Case("single precision", {**{name: x.float() for name, x in draw().items()}, "beta": 0.75}),
    ]


def run_average(update, inputs):
    average = [inputs["t0"].clone(), inputs["t1"].clone()]
    parameters = [nn.Parameter(inputs["w0"].clone()), nn.Parameter(inputs["w1"].clone())]
    views, first = [t.view(-1) for t in average], list(average)
    update(average, parameters, inputs["beta"])
    found = {
        "average, first tensor": first[0].clone(),
        "average, second tensor": first[1].clone(),
        "the tensors are where they were in memory": all(
            v.data_ptr() == t.data_ptr() for v, t in zip(views, first)
        ),
        "the parameters afterwards": parameters[0].clone(),
        "the average has a graph": any(t.requires_grad for t in first),
        "the parameters are trained": all(w.requires_grad for w in parameters),
    }
    with torch.no_grad():
        parameters[0].add_(5.0)
    return found | {
        "average, after the parameters have changed": first[0].clone(),
        "the list holds the same tensors": all(a is b for a, b in zip(average, first)),
    }


TRIALS["bregman.average"] = Trial(
    average_cases,
    run_average,
    subject="proximal",
    rtol=1e-9,
    atol=1e-11,
    hints=(
        "With beta = 1 nothing changes, with beta = 0 the average equals the parameters.",
        (
            "Use operations whose names end in an underscore, inside `torch.no_grad()`, because "
            "a model holds these very tensors."
        ),
        (
            "for old, new in zip(average, parameters), inside no_grad: "
            "old.mul_(beta).add_(new, alpha=1 - beta)"
        ),
    ),
)


_WRONG_MOVE = """with torch.no_grad():
        for old, new in zip(average, parameters):
            old.lerp_(new, 1 - beta)"""


def _wrong_move(line, says, graph=False, loop="old, new in zip(average, parameters)"):
    return mistake(
        _WRONG_MOVE,
        f"with torch.{'enable_grad' if graph else 'no_grad'}():\n"
        f"        for {loop}:\n            {line}",
        says,
    )


MISTAKES["bregman.average"] = [
    _wrong_move(
        "old.lerp_(new, beta)",
        "The two weights are swapped: the average would jump almost to the current parameters.",
    ),
    _wrong_move(
        "old.add_(new, alpha=1 - beta)",
        "The old average is not multiplied by beta, so its values grow with every step.",
    ),
    _wrong_move("old.copy_(new)", "`beta` is not used: the average is always a copy."),
    _wrong_move(
        "new.lerp_(old, beta)", "The parameters of the model are changed. Change the average."
    ),
    _wrong_move(
        "average[i] = torch.lerp(average[i], parameters[i], 1 - beta)",
        "New tensors are put into the list. Change the existing tensors in place, because a "
        "model holds them.",
        loop="i in range(len(average))",
    ),
    _wrong_move(
        "old.data = new.data if beta == 0 else torch.lerp(old, new.data, 1 - beta)",
        "The copy shares memory with the model, so the average changes with every optimizer step.",
    ),
    _wrong_move(
        "old.mul_(beta).add_((1 - beta) * new)",
        "A computation graph is recorded. Use `torch.no_grad()`.",
        graph=True,
    ),
    _wrong_move(
        "old.lerp_(new, 1 - beta)",
        "Only the first tensor is updated.",
        loop="old, new in list(zip(average, parameters))[:1]",
    ),
]

VARIANTS["bregman.average"] = [
    """
@torch.no_grad()
def update_average(average, parameters, beta):
    for old, new in zip(average, parameters):
        old.mul_(beta).add_(new, alpha=1 - beta)
""",
    """
def update_average(average, parameters, beta):
    for i in range(len(average)):
        mixed = beta * average[i].detach() + (1 - beta) * parameters[i].detach()
        average[i].data.copy_(mixed)
""",
]


class Toy(nn.Module):
    """A model of a few weights with everything that a penalty asks for: an encoder with dropout
    and a buffer, and one head."""

    def __init__(self, head, mode="full", seed=0):
        super().__init__()
        self.encoder, self.drop, self.mode = nn.Linear(3, 4), nn.Dropout(0.4), mode
        self.heads = nn.ModuleDict(
            {"task": LinearHead(4, 3) if head == "classes" else PairLinear(4, "similarity")}
        )
        self.register_buffer("shift", torch.tensor([0.1, -0.2, 0.3, 0.0]))
        fill(self, seed)
        self.encoder.requires_grad_(mode != "frozen")

    def head(self, task):
        return self.heads[task]

    def vectors(self, *inputs):
        return tuple(
            self.drop(torch.tanh(self.encoder(x)) + self.shift) for x in inputs if x is not None
        )

    def score(self, task, *vectors):
        return self.heads[task](*vectors)

    def forward(self, task, first, second=None):
        return self.score(task, *self.vectors(first, second))

    def clean(self, task, *inputs):
        """Run the plain pass, and note the random state."""
        before = random_state(torch.device("cpu"))
        vectors = self.vectors(*inputs)
        between = random_state(torch.device("cpu"))
        return Clean(vectors, self.score(task, *vectors), before, between)


class Part:
    """A batch of a task."""

    def __init__(self, first, second=None):
        self.first, self.second = first, second


# ---- bregman.renew
#
# Nothing is trained: the parameters are set by the case, and after each step those of the
# previous iterate are compared. Seven steps along a random path, some with a second batch. Every
# kind of update, lags from zero to two, epochs of two and three steps, an average whose beta
# changes; and a run that is saved and resumed. One step changes nothing, and must not count.


def renew_cases(generator):
    path = torch.randint(2**31, (), generator=generator).item()
    kinds = (
        {f"lag {k}": {"lag": k} for k in range(3)}
        | {f"an epoch of {k}": {"previous": "epoch", "every": k} for k in (2, 3)}
        | {
            "average": {"previous": "ema", "beta": 0.7},
            "average, a later beta from step 3": {
                "previous": "ema",
                "beta": 0.6,
                "late_beta": 0.9,
                "switch": 3,
            },
            "average, a later beta from the start": {
                "previous": "ema",
                "beta": 0.6,
                "late_beta": 0.9,
                "switch": 0,
            },
            "once a batch": {"previous": "once_per_batch"},
        }
    )
    saved = ("lag 2", "an epoch of 2", "average, a later beta from step 3")
    return [
        *(Case(label, {**way, "path": path, "saved": False}) for label, way in kinds.items()),
        *(
            Case(f"{label}, saved after step 3", {**kinds[label], "path": path, "saved": True})
            for label in saved
        ),
    ]


def run_renew(make, inputs):
    path, saved = inputs.pop("path"), inputs.pop("saved")
    model, penalty, found = Toy("classes"), make(**inputs), {}
    for n in range(7):
        start = seeded(path, n)
        with torch.no_grad():
            for w in model.parameters():
                w.copy_(torch.randn(w.shape, generator=start, dtype=torch.float64))
        if saved and n == 4:
            state, penalty = penalty.state_dict(), make(**inputs)
            penalty.load_state_dict(state)
        for _ in range(1 + n % 2):
            penalty.begin(model)
        found[f"previous iterate of step {n}"] = torch.cat(
            [w.flatten() for w in penalty.copies.model.parameters()]
        )
    return found | {
        "model afterwards": model.encoder.weight,
        "the copy is trained": any(w.requires_grad for w in penalty.copies.model.parameters()),
    }


TRIALS["bregman.renew"] = Trial(
    renew_cases,
    run_renew,
    subject="proximal",
    hints=(
        (
            "Write down, for lag 2 and steps 0 to 4, which parameters go into which of the three "
            "sets, and which set is in use."
        ),
        (
            "Set n % (number of sets) is filled at step n, so set (n - lag) % (number of sets) "
            "holds the weights of `lag` steps ago. At first there is only "
            "the start. An average and the copy of an epoch live in set 0."
        ),
        (
            "ema after step 0: update_average(copies.sets[0], copies.trained, beta), with `late_beta` "
            "from step `switch` on. Else, "
            "unless an epoch is under way (n % every != 0): store(n "
            "% sets). Then use(max(0, n - lag) % sets)."
        ),
    ),
)


_WRONG_TAKE = 'elif self.previous != "epoch" or n % self.every == 0:\n        copies.store(n % len(copies.sets))'
_WRONG_WEAR = "copies.use(max(0, n - self.lag) % len(copies.sets))"

MISTAKES["bregman.renew"] = [
    mistake(
        "self.late_beta if late else self.beta",
        "1 - (self.late_beta if late else self.beta)",
        "beta and 1 - beta are swapped: the average would jump almost to the newest parameters.",
    ),
    mistake(
        "n >= self.switch",
        "n > self.switch",
        "`late_beta` starts one step too late. It is used from step `switch` on (off by one).",
    ),
    mistake("self.late_beta if late else self.beta", "self.beta", "`late_beta` is never used."),
    mistake(
        'if self.previous == "ema" and n > 0:',
        'if self.previous == "ema" and n == 0:\n'
        "        for w in copies.sets[0]:\n"
        "            w.zero_()\n"
        "        update_average(copies.sets[0], copies.trained, self.beta)\n"
        "    "
        'elif self.previous == "ema":',
        "The average starts from zeros. It should start from the parameters of the first step.",
    ),
    mistake(
        "n % self.every == 0",
        "(n + 1) % self.every == 0",
        "The update comes one step too early. It happens at steps 0, `every`, 2 `every` (off by "
        "one).",
    ),
    mistake(
        _WRONG_TAKE,
        "elif True:\n        copies.store(n % len(copies.sets))",
        "The copy is updated at every step. It should be updated once per epoch.",
    ),
    mistake(
        _WRONG_TAKE,
        'elif n == 0 or self.previous != "epoch":\n        copies.store(n % len(copies.sets))',
        "The copy is never updated after the start.",
    ),
    mistake(
        _WRONG_WEAR,
        "copies.use(n % len(copies.sets))",
        "The newest parameters are used, so there is no lag.",
    ),
]

VARIANTS["bregman.renew"] = [
    """
def update(self):
    n, copies, kind = self.step, self.copies, self.previous
    count = len(copies.sets)
    if n == 0:
        for number in range(count):
            copies.store(number)
    elif kind == "ema":
        beta = self.beta if self.switch is None or n < self.switch else self.late_beta
        update_average(copies.sets[0], list(copies.trained), beta)
    elif kind == "epoch":
        if not n % self.every:
            copies.store(0)
    else:
        copies.store(n % count)
    copies.use((n - self.lag) % count if n > self.lag else 0)
""",
    """
def update(self):
    copies = self.copies
    newest = self.step % (self.lag + 1)
    oldest = (self.step - min(self.step, self.lag)) % (self.lag + 1)
    if self.step > 0 and self.previous == "ema":
        beta = self.late_beta if self.switch is not None and self.step >= self.switch else self.beta
        with torch.no_grad():
            for old, new in zip(copies.sets[newest], copies.trained):
                old.copy_(beta * old + (1 - beta) * new)
    elif self.every is None or self.step // self.every * self.every == self.step:
        with torch.no_grad():
            for old, new in zip(copies.sets[newest], copies.trained):
                old.copy_(new)
    copies.use(oldest)
""",
]


# ---- bregman.charge
#
# A model with dropout in train mode, and a previous iterate two steps ago: for classes, for a pair,
# for a frozen encoder, with the dropout masks of the model, at the first call, and after a saved
# state has been loaded.


def _started(make, inputs):
    """A penalty that has seen two steps, the model after them, and its plain pass."""
    way = dict(inputs["way"])
    single, narrow = "narrow" in way, {"dtype": torch.bfloat16} if way.pop("narrow", False) else {}
    model, penalty = Toy(inputs["head"], inputs["mode"]), make(**way, **narrow)
    if single:
        model.float()
    for shift in (0.0, 0.3):
        with torch.no_grad():
            for w in model.parameters():
                w.add_(
                    shift * (torch.arange(w.numel()).view(w.shape) % 3 - 1).to(w)
                    if w.requires_grad
                    else 0.0
                )
        penalty.begin(model)
    model.train(not inputs.get("rests", False))
    part = Part(*(inputs[name].to(model.shift.dtype) for name in ("u", "v") if name in inputs))
    clean = model.clean("task", *(x for x in (part.first, part.second) if x is not None))
    if inputs.get("graph", False):
        clean = clean._replace(vectors=tuple(x.detach().requires_grad_() for x in clean.vectors))
    return penalty, model, part, clean


def charge_cases(generator):
    u, v = fixed(generator, 2, 5, 3)
    return [
        Case("classes", {"head": "classes", "mode": "full", "way": {}, "u": u}),
        Case(
            "classes, weight 3", {"head": "classes", "mode": "full", "way": {"weight": 3.0}, "u": u}
        ),
        Case(
            "grades, weight .5",
            {
                "head": "pair",
                "mode": "full",
                "way": {"weight": 0.5, "previous": "ema", "beta": 0.9},
                "u": u,
                "v": v,
            },
        ),
        Case("a frozen encoder", {"head": "pair", "mode": "frozen", "way": {}, "u": u, "v": v}),
        Case(
            "one row", {"head": "classes", "mode": "full", "way": {"dropout": "same"}, "u": u[:1]}
        ),
        Case(
            "goes on after a save",
            {"head": "classes", "mode": "full", "way": {}, "u": u, "saved": True},
        ),
        Case(
            "the first call", {"head": "classes", "mode": "full", "way": {}, "u": u, "fresh": True}
        ),
    ]


def run_charge(make, inputs):
    penalty, model, part, clean = _started(make, inputs)
    if "saved" in inputs or "fresh" in inputs:
        state, penalty = penalty.state_dict(), make(**inputs["way"])
        if "saved" in inputs:
            penalty.load_state_dict(state)
            with torch.no_grad():
                model.encoder.bias.add_(0.5)
    loss = penalty(model, "task", part, clean)
    trained = [w for w in model.parameters() if w.requires_grad]
    slopes = (
        torch.autograd.grad(loss, trained, allow_unused=True, materialize_grads=True)
        if loss.requires_grad
        else []
    )
    return {
        "penalty": loss,
        "has a gradient": loss.requires_grad,
        "steps seen": penalty.step,
        "gradient": torch.cat([g.flatten() for g in slopes]) if slopes else torch.zeros(0),
    }


TRIALS["bregman.charge"] = Trial(
    charge_cases,
    run_charge,
    subject="proximal",
    hints=(
        "Which two outputs are compared, by which distance, and which of them has a graph?",
        (
            "If there are no copies yet, which is also the case after loading a saved state, call "
            "`begin` first. Then `previous_outputs` returns the outputs of the previous iterate, "
            "and `clean.outputs` are those of the model."
        ),
        (
            "self.weight * output_distance(head)(clean.outputs, previous_outputs).mean(), with the "
            "head of "
            "the copied model for the task."
        ),
    ),
)


_WRONG_CHARGE = "return self.weight * distance(clean.outputs, previous_outputs).mean()"

MISTAKES["bregman.charge"] = [
    mistake(_WRONG_CHARGE, _WRONG_CHARGE.replace("self.weight * ", ""), "The weight μ is missing."),
    mistake(
        _WRONG_CHARGE,
        _WRONG_CHARGE.replace(".mean()", ".sum()"),
        "The penalty is summed over the examples. Use the mean.",
    ),
    mistake(
        _WRONG_CHARGE,
        _WRONG_CHARGE.replace("clean.outputs,", "clean.outputs.detach(),"),
        "The outputs of the model are detached, so the penalty has no gradient.",
    ),
    mistake(
        _WRONG_CHARGE,
        "return self.weight * (clean.outputs - previous_outputs).square().mean()",
        "Logits are compared by squared differences. The distance depends on what the outputs "
        "mean.",
    ),
    mistake(
        _WRONG_CHARGE,
        "if clean.outputs.ndim == 2:\n"
        "        return self.weight * "
        "torch.nn.functional.kl_div(clean.outputs.log_softmax(-1), "
        'previous_outputs.softmax(-1), reduction="batchmean")\n    ' + _WRONG_CHARGE,
        "This is the KL divergence in one direction only. The paper's distance has both.",
    ),
    mistake(
        _WRONG_CHARGE,
        _WRONG_CHARGE.replace("clean.outputs, previous", "previous_outputs, previous"),
        "The previous iterate is compared with itself, so the penalty is always 0.",
    ),
    mistake(
        _WRONG_CHARGE,
        _WRONG_CHARGE.replace(
            "(clean.outputs, previous_outputs)",
            "(model(task, part.first, part.second), previous_outputs)",
        ),
        "The model runs again, with another dropout mask. `clean` already contains its outputs.",
    ),
    mistake(
        "self.begin(model)",
        "pass",
        "`begin` is not called, so there is no previous iterate at the first call.",
    ),
]

VARIANTS["bregman.charge"] = [
    """
def __call__(self, model, task, part, clean):
    if not self.copies:
        self.begin(model)
    previous = self.previous_outputs(task, part, clean).detach()
    distance = output_distance(model.head(task), "full")
    each = distance(previous, clean.outputs)         # the distance is symmetric
    return self.weight * each.sum() / len(each)
""",
    """
def __call__(self, model, task, part, clean):
    self.begin(model)  # does nothing if the parameters are those of the last call
    target = self.previous_outputs(task, part, clean)
    rows = output_distance(getattr(model, "module", model).head(task))(clean.outputs, target)
    return torch.mean(rows) * self.weight
""",
]
