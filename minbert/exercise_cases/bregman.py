"""Exercise cases of chapter 33: Bregman proximal point optimization."""

import torch
from torch import nn

from minbert.course.check_runner import Case, Trial, fill, fixed, mistake
from minbert.heads import LinearHead, PairLinear
from minbert.losses import wide
from minbert.regularized import Clean, random_state
from minbert.sampling import seeded

TRIALS, MISTAKES, VARIANTS = {}, {}, {}


# ---- bregman.average
#
# Two tensors of different shapes, shares from 0 to 1. Afterwards the parameters change once more,
# which shows shared memory. One copy goes into memory that contains NaN, as uninitialized memory
# may.


def average_cases(generator):
    def draw():
        return {
            "t0": fixed(generator, 2, 3),
            "t1": fixed(generator, 4),
            "w0": fixed(generator, 2, 3),
            "w1": fixed(generator, 4),
        }

    unwritten = torch.tensor([torch.nan, 1.0, -torch.inf, torch.nan], dtype=torch.float64)
    return [
        *(
            Case(f"share {share:g}", {**draw(), "share": share})
            for share in (0.01, 0.3, 0.5, 0.9, 0.0)
        ),
        Case("a copy", draw()),
        Case("a copy, share 1", {**draw(), "share": 1.0}),
        Case(
            "single precision", {**{name: x.float() for name, x in draw().items()}, "share": 0.25}
        ),
        Case(
            "a copy into memory that nobody has written yet",
            {**draw(), "t1": unwritten, "share": 1.0},
        ),
    ]


def run_average(move, inputs):
    teacher, more = (
        [inputs["t0"].clone(), inputs["t1"].clone()],
        {"share": inputs["share"]} if "share" in inputs else {},
    )
    views = [t.view(-1) for t in teacher]
    weights, first = (
        [nn.Parameter(inputs["w0"].clone()), nn.Parameter(inputs["w1"].clone())],
        list(teacher),
    )
    move(teacher, weights, **more)
    found = {
        "teacher, first tensor": first[0].clone(),
        "teacher, second tensor": first[1].clone(),
        "the tensors are where they were in memory": all(
            v.data_ptr() == t.data_ptr() for v, t in zip(views, first)
        ),
        "the weights afterwards": weights[0].clone(),
        "the teacher has a graph": any(t.requires_grad for t in first),
        "the weights learn": all(w.requires_grad for w in weights),
    }
    with torch.no_grad():
        weights[0].add_(5.0)
    return found | {
        "teacher, when the weights move on": first[0].clone(),
        "the list holds the same tensors": all(a is b for a, b in zip(teacher, first)),
    }


TRIALS["bregman.average"] = Trial(
    average_cases,
    run_average,
    subject="proximal",
    rtol=1e-9,
    atol=1e-11,
    hints=(
        (
            "At share 0 nothing moves, at share 1 the teacher equals the model. Which of the two "
            "numbers belongs to the teacher?"
        ),
        (
            "Use operations that end in an underscore, inside `torch.no_grad()`: the twin holds "
            "these very tensors."
        ),
        (
            "for t, w in zip(teacher, weights), inside no_grad: t.copy_(w) for a share of 1, "
            "since 0 times NaN is NaN, else t.lerp_(w, share)."
        ),
    ),
)


_WRONG_MOVE = """with torch.no_grad():
        if share == 1:
            torch._foreach_copy_(teacher, weights)
        else:
            torch._foreach_lerp_(teacher, weights, share)"""


def _wrong_move(line, says, graph=False, loop="t, w in zip(teacher, weights)"):
    return mistake(
        _WRONG_MOVE,
        f"with torch.{'enable_grad' if graph else 'no_grad'}():\n"
        f"        for {loop}:\n            {line}",
        says,
    )


MISTAKES["bregman.average"] = [
    _wrong_move(
        "t.mul_(share).add_(w, alpha=1 - share)",
        "The two weights are swapped: the average would jump almost to the current parameters.",
    ),
    _wrong_move(
        "t.add_(w, alpha=share)",
        "The old average is not multiplied by 1 - share, so its values grow with every step.",
    ),
    _wrong_move("t.copy_(w)", "`share` is not used: the average is always a copy."),
    _wrong_move(
        "w.lerp_(t, 1 - share)", "The parameters of the model are changed. Change the average."
    ),
    _wrong_move(
        "teacher[i] = torch.lerp(teacher[i], weights[i], share)",
        "New tensors are put into the list. Change the existing tensors in place, because a "
        "model holds them.",
        loop="i in range(len(teacher))",
    ),
    _wrong_move(
        "t.data = w.data if share == 1 else torch.lerp(t, w.data, share)",
        "The copy shares memory with the model, so the average changes with every optimizer step.",
    ),
    _wrong_move(
        "t.mul_(1 - share).add_(share * w)",
        "A computation graph is recorded. Use `torch.no_grad()`.",
        graph=True,
    ),
    _wrong_move(
        "t.lerp_(w, share)",
        "Only the first tensor is updated.",
        loop="t, w in list(zip(teacher, weights))[:1]",
    ),
]

VARIANTS["bregman.average"] = [
    """
@torch.no_grad()
def move_weights(teacher, weights, share=1.0):
    for t, w in zip(teacher, weights):
        t.mul_(1 - share).add_(w, alpha=share) if share < 1 else t.copy_(w)
""",
    """
def move_weights(teacher, weights, share=1.0):
    for i in range(len(teacher)):
        mixed = teacher[i].detach() + share * (weights[i].detach() - teacher[i].detach())
        teacher[i].data.copy_(mixed if share != 1.0 else weights[i])
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
        | {f"an epoch of {k}": {"teacher": "epoch", "every": k} for k in (2, 3)}
        | {
            "average": {"teacher": "ema", "beta": 0.7},
            "average, a later beta from step 3": {
                "teacher": "ema",
                "beta": 0.6,
                "late_beta": 0.9,
                "switch": 3,
            },
            "average, a later beta from the start": {
                "teacher": "ema",
                "beta": 0.6,
                "late_beta": 0.9,
                "switch": 0,
            },
            "once a batch": {"teacher": "once_per_batch"},
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
        found[f"teacher of step {n}"] = torch.cat(
            [w.flatten() for w in penalty._twin.model.parameters()]
        )
    return found | {
        "model afterwards": model.encoder.weight,
        "teacher trains": any(w.requires_grad for w in penalty._twin.model.parameters()),
    }


TRIALS["bregman.renew"] = Trial(
    renew_cases,
    run_renew,
    subject="proximal",
    hints=(
        (
            "Write down, for lag 2 and steps 0 to 4, which weights go into which of the three "
            "sets, and which set the teacher wears."
        ),
        (
            "Set n % (number of sets) is filled at step n, so set (n - lag) % (number of sets) "
            "holds the weights of `lag` steps ago. At first there is only "
            "the start. An average lives in set 0, and an epoch's teacher too."
        ),
        (
            "ema after step 0: take(0, 1 - beta), with `late_beta` from step `switch` on. Else, "
            "unless an epoch is under way (n % every != 0): take(n % "
            "sets). Then wear(max(0, n - lag) % sets)."
        ),
    ),
)


_WRONG_TAKE = (
    'elif self.teacher != "epoch" or n % self.every == 0:\n        twin.take(n % len(twin.sets))'
)
_WRONG_WEAR = "twin.wear(max(0, n - self.lag) % len(twin.sets))"

MISTAKES["bregman.renew"] = [
    mistake(
        "1 - (self.late_beta if late else self.beta)",
        "self.late_beta if late else self.beta",
        "beta and 1 - beta are swapped: the average would jump almost to the newest parameters.",
    ),
    mistake(
        "n >= self.switch",
        "n > self.switch",
        "`late_beta` starts one step too late. It is used from step `switch` on (off by one).",
    ),
    mistake("self.late_beta if late else self.beta", "self.beta", "`late_beta` is never used."),
    mistake(
        'if self.teacher == "ema" and n:',
        'if self.teacher == "ema" and n == 0:\n'
        "        for w in twin.sets[0]:\n"
        "            w.zero_()\n"
        "        twin.take(0, 1 - self.beta)\n"
        "    "
        'elif self.teacher == "ema":',
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
        "elif True:\n        twin.take(n % len(twin.sets))",
        "The copy is updated at every step. It should be updated once per epoch.",
    ),
    mistake(
        _WRONG_TAKE,
        'elif n == 0 or self.teacher != "epoch":\n        twin.take(n % len(twin.sets))',
        "The copy is never updated after the start.",
    ),
    mistake(
        _WRONG_WEAR,
        "twin.wear(n % len(twin.sets))",
        "The newest parameters are used, so there is no lag.",
    ),
]

VARIANTS["bregman.renew"] = [
    """
def _renew(self):
    n, twin, kind = self.step, self._twin, self.teacher
    count = len(twin.sets)
    if n == 0:
        for number in range(count):
            twin.take(number)
    elif kind == "ema":
        beta = self.beta if self.switch is None or n < self.switch else self.late_beta
        move_weights(twin.sets[0], list(twin.learned), 1 - beta)
    elif kind == "epoch":
        if not n % self.every:
            twin.take(0)
    else:
        twin.take(n % count)
    twin.wear((n - self.lag) % count if n > self.lag else 0)
""",
    """
def _renew(self):
    twin = self._twin
    newest = self.step % (self.lag + 1)
    oldest = (self.step - min(self.step, self.lag)) % (self.lag + 1)
    if self.step > 0 and self.teacher == "ema":
        beta = self.late_beta if self.switch is not None and self.step >= self.switch else self.beta
        with torch.no_grad():
            for old, new in zip(twin.sets[newest], twin.learned):
                old.copy_(beta * old + (1 - beta) * new)
    elif self.every is None or self.step // self.every * self.every == self.step:
        with torch.no_grad():
            for old, new in zip(twin.sets[newest], twin.learned):
                old.copy_(new)
    twin.wear(oldest)
""",
]


# ---- bregman.answers and bregman.charge
#
# A model with dropout in train mode. The outputs of the previous iterate without dropout, with
# the dropout masks of the model, for a pair, for a frozen encoder, whose vectors are given (once
# with a graph, which must end there), and in bfloat16. Neither the mode of the model nor the
# random state may change.


def answers_cases(generator):
    u, v = fixed(generator, 2, 5, 3)
    ways = {"no dropout": {}, "the model's own dropout": {"dropout": "same"}}
    found = []
    for head, mode in (("classes", "full"), ("pair", "full"), ("pair", "frozen")):
        vectors = {"u": u} if head == "classes" else {"u": u, "v": v}
        for label, way in ways.items():
            inputs = {"head": head, "mode": mode, "way": way, **vectors}
            found.append(Case(f"{head}, {mode}, {label}", inputs))
    found.append(
        Case(
            "classes, a model at rest, the model's own dropout",
            {"head": "classes", "mode": "full", "way": {"dropout": "same"}, "u": u, "rests": True},
        )
    )
    found.append(
        Case(
            "pair, frozen, vectors with a graph",
            {"head": "pair", "mode": "frozen", "way": {}, "u": u, "v": v, "graph": True},
        )
    )
    return found + [
        Case(f"classes, {label}", {"head": "classes", "mode": "full", "way": way, "u": u})
        for label, way in (("bfloat16", {"narrow": True}), ("single precision", {"narrow": False}))
    ]


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


def run_answers(make, inputs):
    penalty, model, part, clean = _started(make, inputs)
    state = torch.get_rng_state()
    target = penalty._answers("task", part, clean)
    learner = torch.ones(target.shape[-1], dtype=target.dtype, requires_grad=True)
    (target * learner).sum().backward()  # as a loss behind the answers would
    return {
        "answers": wide(target),
        "the answers have a graph": target.requires_grad,
        "gradient behind the answers": wide(learner.grad),
        "the random state has moved": not torch.equal(state, torch.get_rng_state()),
        "the model trains": all(m.training for m in model.modules()),
        "answers the second time": wide(penalty._answers("task", part, clean)),
    }


TRIALS["bregman.answers"] = Trial(
    answers_cases,
    run_answers,
    subject="proximal",
    hints=(
        (
            "Who answers, in which mode, with which random state? The twin is in eval mode until "
            "it is told to `follow`."
        ),
        (
            "`replay` repeats the draws of the plain pass: all of them from `clean.random_state`, "
            "or those behind the encoder from `clean.head_random_state`. A frozen "
            "encoder's vectors are in `clean`."
        ),
        (
            "Under no_grad, the autocast (if there is a dtype) and the random state (if dropout "
            'is "same", after follow()): twin.score(task, *clean.vectors) if '
            "frozen, else twin(task, part.first, part.second)."
        ),
    ),
)


MISTAKES["bregman.answers"] = [
    mistake(
        '    twin, frozen = self._twin.model, self._twin.model.mode == "frozen"',
        '    twin, frozen = self._twin.source, self._twin.model.mode == "frozen"',
        "The current model is evaluated instead of the previous iterate.",
    ),
    mistake(
        "        self._twin.follow()\n",
        "        self._twin.model.train()\n",
        "The previous iterate is put into train mode. It should have the mode of the model.",
    ),
    mistake(
        "        drawn = replay(clean.head_random_state if frozen else clean.random_state)",
        "        drawn = nullcontext()",
        "The previous iterate uses another dropout mask than the model, and the random state of "
        "training changes.",
    ),
    mistake(
        "twin.score(task, *clean.vectors) if frozen else twin(task, part.first, part.second)",
        "twin.score(task, *clean.vectors)",
        "The head of the previous iterate gets the vectors of the current encoder. That is only "
        "right for a frozen encoder.",
    ),
    mistake(
        "with torch.no_grad(), narrow, drawn:",
        "with narrow, drawn:",
        "The outputs have a computation graph. They are constants.",
    ),
    mistake(
        "    twin, frozen = self._twin.model,",
        "    self._twin.source.eval()\n    twin, frozen = self._twin.model,",
        "The model stays in eval mode afterwards, so training goes on without dropout.",
    ),
    mistake(
        "    with torch.no_grad(), narrow, drawn:\n",
        "    return clean.outputs.detach()\n    with torch.no_grad(), narrow, drawn:\n",
        "The outputs of the current model are returned. The previous iterate is not evaluated.",
    ),
    mistake(
        "        return twin.score(task, *clean.vectors) if frozen else twin(task, "
        "part.first, part.second)",
        "        return (twin.score(task, *clean.vectors) if frozen else twin(task, "
        "part.first, part.second)).softmax(-1)",
        "A softmax is applied. The outputs should stay logits.",
    ),
]

VARIANTS["bregman.answers"] = [
    """
@torch.no_grad()
def _answers(self, task, part, clean):
    twin = self._twin.model
    device = clean.outputs.device.type

    def ask():
        if twin.mode == "frozen":
            return twin.score(task, *clean.vectors)
        return twin(task, part.first, part.second)

    with torch.autocast(device, dtype=torch.bfloat16, enabled=self.dtype is not None):
        if self.dropout == "same":
            self._twin.follow()
            with replay(clean.head_random_state if twin.mode == "frozen" else clean.random_state):
                return ask()
        return ask()
""",
    """
def _answers(self, task, part, clean):
    model, same = self._twin.model, self.dropout == "same"
    if same:
        self._twin.follow()
    else:
        model.eval()
    frozen = model.mode == "frozen"
    begin = (
        (clean.head_random_state if frozen else clean.random_state)
        if same
        else dict(cpu=torch.get_rng_state())
    )
    with replay(begin), torch.autocast("cpu", torch.bfloat16, enabled=self.dtype == torch.bfloat16):
        vectors = (
            [x.detach() for x in clean.vectors]
            if frozen
            else model.vectors(*(x for x in (part.first, part.second) if x is not None))
        )
        return model.score(task, *vectors).detach()
""",
]


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
                "way": {"weight": 0.5, "teacher": "ema", "beta": 0.9},
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
        "Which two answers are compared, by which distance, and who has a graph?",
        (
            "If there is no twin yet, which is so after loading a saved state too, call `begin` "
            "first. Then `_answers` gives the teacher's, `clean.outputs` are "
            "the model's."
        ),
        (
            "self.weight * output_distance(head)(clean.outputs, target).mean(), with the head of "
            "the twin's model for the task."
        ),
    ),
)


_WRONG_CHARGE = (
    "return self.weight * output_distance(self._twin.model.head(task))(clean.outputs, "
    "target).mean()"
)

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
        "return self.weight * (clean.outputs - target).square().mean()",
        "Logits are compared by squared differences. The distance depends on what the outputs "
        "mean.",
    ),
    mistake(
        _WRONG_CHARGE,
        "if clean.outputs.ndim == 2:\n"
        "        return self.weight * "
        "torch.nn.functional.kl_div(clean.outputs.log_softmax(-1), "
        'target.softmax(-1), reduction="batchmean")\n    ' + _WRONG_CHARGE,
        "This is the KL divergence in one direction only. The paper's distance has both.",
    ),
    mistake(
        _WRONG_CHARGE,
        _WRONG_CHARGE.replace("clean.outputs, target", "target, target"),
        "The previous iterate is compared with itself, so the penalty is always 0.",
    ),
    mistake(
        _WRONG_CHARGE,
        _WRONG_CHARGE.replace(
            "(clean.outputs, target)", "(model(task, part.first, part.second), target)"
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
    if not self._twin:
        self.begin(model)
    teacher = self._answers(task, part, clean).detach()
    if not teacher.isfinite().all():
        raise ValueError("expected finite answers of the teacher")
    far = output_distance(model.head(task), "full")
    each = far(teacher, clean.outputs)               # the distance is the same from either side
    return self.weight * each.sum() / len(each)
""",
    """
def __call__(self, model, task, part, clean):
    self.begin(model)  # does nothing if the weights are those of the last call
    target = self._answers(task, part, clean)
    check_finite(target, "target")
    rows = output_distance(getattr(model, "module", model).head(task))(clean.outputs, target)
    return torch.mean(rows) * self.weight
""",
]
