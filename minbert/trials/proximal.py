"""How the exercises of chapter 33 are checked: a model of a few weights walks a path that is given, and the teacher has to be where it should be at every step."""


import torch
from torch import nn

from minbert.heads import LinearHead, PairLinear
from minbert.losses import wide
from minbert.mixing import seeded
from minbert.regularized import Clean, random_state
from minbert.course.trials import Case, Trial, fill, fixed, mistake


# A teacher that lags by one step too many still teaches, and the loss still falls. So no training here: the weights are put where the case says, step
# after step, and after each step we look at the teacher's weights.

TRIALS, MISTAKES, VARIANTS = {}, {}, {}


class Toy(nn.Module):
    """A model of a few weights with everything that a penalty asks for: an encoder with dropout and a buffer, and one head."""

    def __init__(self, head, mode="full", seed=0):
        super().__init__()
        self.encoder, self.drop, self.mode = nn.Linear(3, 4), nn.Dropout(0.4), mode
        self.heads = nn.ModuleDict({"task": LinearHead(4, 3) if head == "classes" else PairLinear(4, "similarity")})
        self.register_buffer("shift", torch.tensor([0.1, -0.2, 0.3, 0.0]))
        fill(self, seed)
        self.encoder.requires_grad_(mode != "frozen")

    def head(self, task):
        return self.heads[task]

    def vectors(self, *inputs):
        return tuple(self.drop(torch.tanh(self.encoder(x)) + self.shift) for x in inputs if x is not None)

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


# ---- proximal.renew
#
# Seven steps along a random path, some of them with a second batch. Every kind of teacher, lags from none to two, epochs of two and three steps, an
# average whose beta changes; and a run that is saved in the middle and goes on as another object. One step moves nothing, and must not count.

def renew_cases(generator):
    path = torch.randint(2**31, (), generator=generator).item()
    kinds = {f"lag {k}": {"lag": k} for k in range(3)} | {f"an epoch of {k}": {"teacher": "epoch", "every": k} for k in (2, 3)} | {
        "average": {"teacher": "ema", "beta": 0.7},
        "average, a later beta from step 3": {"teacher": "ema", "beta": 0.6, "late_beta": 0.9, "switch": 3},
        "average, a later beta from the start": {"teacher": "ema", "beta": 0.6, "late_beta": 0.9, "switch": 0},
        "once a batch": {"teacher": "once_per_batch"}}
    saved = ("lag 2", "an epoch of 2", "average, a later beta from step 3")
    return [*(Case(label, {**way, "path": path, "saved": False}) for label, way in kinds.items()),
            *(Case(f"{label}, saved after step 3", {**kinds[label], "path": path, "saved": True}) for label in saved)]


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
        found[f"teacher of step {n}"] = torch.cat([w.flatten() for w in penalty._twin.model.parameters()])
    return found | {"model afterwards": model.encoder.weight, "teacher trains": any(w.requires_grad for w in penalty._twin.model.parameters())}


TRIALS["proximal.renew"] = Trial(renew_cases, run_renew, subject="proximal", hints=(
    "Write down, for lag 2 and steps 0 to 4, which weights go into which of the three sets, and which set the teacher wears.",
    "Set n % (number of sets) is filled at step n, so set (n - lag) % (number of sets) holds the weights of `lag` steps ago. At first there is only "
    "the start. An average lives in set 0, and an epoch's teacher too.",
    "ema after step 0: take(0, 1 - beta), with `late_beta` from step `switch` on. Else, unless an epoch is under way (n % every != 0): take(n % "
    "sets). Then wear(max(0, n - lag) % sets)."))


_WRONG_TAKE = "elif self.teacher != \"epoch\" or n % self.every == 0:\n        twin.take(n % len(twin.sets))"
_WRONG_WEAR = "twin.wear(max(0, n - self.lag) % len(twin.sets))"

MISTAKES["proximal.renew"] = [
    mistake("1 - (self.late_beta if late else self.beta)", "self.late_beta if late else self.beta",
        "beta and 1 - beta are swapped: the teacher runs to the newest weights instead of following slowly."),
    mistake("n >= self.switch", "n > self.switch", "The later beta comes one step too late; it counts from step `switch` on."),
    mistake("self.late_beta if late else self.beta", "self.beta", "`late_beta` is never used."),
    mistake("self.switch is not None and n >= self.switch", "self.switch is None or n >= self.switch",
        "Without a switch the later beta is used. None means never."),
    mistake("self.switch is not None and n >= self.switch", "self.switch and n >= self.switch",
        "A switch at step 0 counts as none, since 0 is false. None is what means never."),
    mistake("if self.teacher == \"ema\" and n:",
        "if self.teacher == \"ema\" and n == 0:\n        for w in twin.sets[0]:\n            w.zero_()\n        twin.take(0, 1 - self.beta)\n    "
        "elif self.teacher == \"ema\":",
        "The average starts from zeros. It should start from the weights of the first step."),
    mistake("twin.take(0, 1 - (self.late_beta if late else self.beta))",
        "beta = self.late_beta if late else self.beta\n        twin.take(0, (1 - beta) / (1 - beta ** (n + 1)))",
        "The average is corrected for its start, as in Adam. It started from the weights themselves, so there is nothing to correct."),
    mistake("if self.teacher == \"ema\" and n:", "if self.teacher == \"ema\" and n and n % 2 == 0:",
        "The average is renewed at every other step only, and copied in between."),
    mistake("n % self.every == 0", "(n + 1) % self.every == 0",
        "The epoch ends a step too early. The teacher is renewed at steps 0, `every`, 2 `every`."),
    mistake(_WRONG_TAKE, "elif True:\n        twin.take(n % len(twin.sets))", "An epoch's teacher is renewed at every step, so it never lags."),
    mistake(_WRONG_TAKE, "elif n == 0 or self.teacher != \"epoch\":\n        twin.take(n % len(twin.sets))",
        "An epoch's teacher is never renewed after the start."),
    mistake(_WRONG_WEAR, "twin.wear(n % len(twin.sets))", "The teacher wears the set that has just been filled: it has no lag, and nothing to say."),
    mistake(_WRONG_WEAR, "twin.wear(max(0, n - self.lag + 1 if self.lag else n) % len(twin.sets))",
        "The teacher is one step too young: `lag` 1 means the weights before this step."),
    mistake("twin.take(n % len(twin.sets))",
        "if n % len(twin.sets) == 0:\n            for number in range(len(twin.sets)):\n                twin.take(number)",
        "The teacher is copied every few steps and stays until the next copy: that is an epoch, not a lag."),
    mistake("    " + _WRONG_WEAR, "    if self.teacher == \"ema\" or n % len(twin.sets) == 0:\n        " + _WRONG_WEAR,
        "The twin puts on another set only when all are full. It has to at every step."),
    mistake(_WRONG_WEAR, "twin.wear(max(0, n - self.lag - 1 if self.lag else n) % len(twin.sets))", "The set that was just filled is worn: counted round, n - lag - 1 is the same as n. So the teacher is the model as it is."),
    mistake("twin.take(n % len(twin.sets))", "twin.take(n % max(1, self.lag))", _WRONG_WEAR, "twin.wear(max(0, n - self.lag) % max(1, self.lag))", "The sets are counted round by `lag`. There are `lag` + 1 of them."),
    mistake("self.teacher != \"epoch\" or n % self.every == 0", "n == 0 or self.teacher == \"epoch\" and n % self.every == 0", "A teacher that lags is never renewed after the start."),
    mistake("n % self.every == 0", "n % self.every == 1 or n == 0", "The epochs begin at step 1. They begin at steps 0, `every`, 2 `every`."),
    mistake("n % self.every == 0", "n % (self.every + 1) == 0", "An epoch lasts one step too long."),
    mistake("twin, n = self._twin, self.step", "twin, n = self._twin, self.step + 1", "The steps are counted from 1; `self.step` counts from 0, and so do `every` and `switch`."),
    mistake("self.late_beta if late else self.beta", "self.beta if late else self.late_beta", "The two betas are exchanged: `late_beta` counts from `switch` on."),
    mistake("self.late_beta if late else self.beta", "0.99", "beta is always 0.99, whatever was asked for."),
    mistake("n >= self.switch", "n == self.switch", "The later beta is used at step `switch` alone; it stays from there on."),
    mistake("if self.teacher == \"ema\" and n:", "if self.teacher == \"ema\" and n > 1:", "At step 1 the weights are copied; there the average moves already."),
    mistake("twin, n = self._twin, self.step", "self.count = getattr(self, \"count\", -1) + 1\n    twin, n = self._twin, self.count", "The steps are counted beside `self.step`, so a run that goes on starts again from 0."),
]

VARIANTS["proximal.renew"] = [
    '''
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
''', '''
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
''',
]


# ---- proximal.answers and proximal.charge
#
# A model with dropout in train mode. The teacher's answers without dropout, with the model's own draws, for a pair, for a frozen encoder, whose
# vectors are given (once with a graph, which must end there), and in bfloat16. Neither the model's mode nor the random state may change. For the charge,
# classes and grades, a weight, and the gradient.

def answers_cases(generator):
    u, v = fixed(generator, 2, 5, 3)
    ways = {"no dropout": {}, "the model's own dropout": {"dropout": "same"}}
    found = [Case(f"{head}, {mode}, {label}", {"head": head, "mode": mode, "way": way, "u": u, **({} if head == "classes" else {"v": v})})
             for head, mode in (("classes", "full"), ("pair", "full"), ("pair", "frozen")) for label, way in ways.items()]
    found.append(Case("classes, a model at rest, the model's own dropout", {"head": "classes", "mode": "full", "way": {"dropout": "same"}, "u": u, "rests": True}))
    found.append(Case("pair, frozen, vectors with a graph", {"head": "pair", "mode": "frozen", "way": {}, "u": u, "v": v, "graph": True}))
    return found + [Case(f"classes, {label}", {"head": "classes", "mode": "full", "way": way, "u": u}) for label, way in (("bfloat16",
        {"narrow": True}), ("single precision", {"narrow": False}))]


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
                w.add_(shift * (torch.arange(w.numel()).view(w.shape) % 3 - 1).to(w) if w.requires_grad else 0.0)
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
    (target * learner).sum().backward()                                  # as a loss behind the answers would
    return {"answers": wide(target),
            "the answers have a graph": target.requires_grad,
            "gradient behind the answers": wide(learner.grad),
            "the random state has moved": not torch.equal(state, torch.get_rng_state()),
            "the model trains": all(m.training for m in model.modules()),
            "answers the second time": wide(penalty._answers("task", part, clean))}


TRIALS["proximal.answers"] = Trial(answers_cases, run_answers, subject="proximal", hints=(
    "Who answers, in which mode, with which random state? The twin is in eval mode until it is told to `follow`.",
    "`replay` repeats the draws of the plain pass: all of them from `clean.random_state`, or those behind the encoder from `clean.head_random_state`. A frozen "
    "encoder's vectors are in `clean`.",
    "Under no_grad, the autocast (if there is a dtype) and the random state (if dropout is \"same\", after follow()): twin.score(task, *clean.vectors) if "
    "frozen, else twin(task, part.first, part.second)."))


MISTAKES["proximal.answers"] = [
    mistake("    twin, frozen = self._twin.model, self._twin.model.mode == \"frozen\"",
        "    twin, frozen = self._twin.source, self._twin.model.mode == \"frozen\"", "The model is asked, not the teacher."),
    mistake("        self._twin.follow()\n", "        self._twin.model.train()\n", "The teacher is put into train mode; it should be in the mode of the model, which may rest."),
    mistake("        self._twin.follow()\n", "", "With \"same\" the teacher has to be in the model's mode; it is in eval mode and drops nothing."),
    mistake("        drawn = nullcontext()", "        self._twin.follow()\n        drawn = nullcontext()",
        "The teacher is put into the model's mode and draws noise of its own. \"off\" is without dropout."),
    mistake("        drawn = replay(clean.head_random_state if frozen else clean.random_state)", "        drawn = nullcontext()",
        "The teacher drops other numbers than the model, and training's own draws move on."),
    mistake("clean.head_random_state if frozen else clean.random_state", "clean.random_state",
        "A frozen encoder is not run again, so only the draws behind it are to be repeated."),
    mistake("clean.head_random_state if frozen else clean.random_state", "clean.head_random_state",
        "The draws begin at the head. The teacher starts at the words, so they begin there."),
    mistake("twin.score(task, *clean.vectors) if frozen else twin(", "twin(", "A frozen encoder is run again, for vectors that are there already."),
    mistake("twin.score(task, *clean.vectors) if frozen else twin(task, part.first, part.second)", "twin.score(task, *clean.vectors)",
        "The teacher's head gets the model's vectors. Only for a frozen encoder they are the teacher's too."),
    mistake("self._twin.model.mode == \"frozen\"", "False", "A frozen encoder is treated like any other: it is run again, and the draws are those of the whole pass."),
    mistake("with torch.no_grad(), narrow, drawn:", "with narrow, drawn:", "The teacher answers with a graph, if its input has one. The answers are constants."),
    mistake("with torch.no_grad(), narrow, drawn:", "with torch.inference_mode(), narrow, drawn:",
        "The answers come from inference mode. No loss can be made of such tensors."),
    mistake("    twin, frozen = self._twin.model,", "    self._twin.source.eval()\n    twin, frozen = self._twin.model,", "The model itself is left in eval mode: from here on it trains without dropout."),
    mistake("torch.autocast(clean.outputs.device.type, self.dtype) if self.dtype else nullcontext()", "nullcontext()", "`dtype` is not used."),
    mistake("twin(task, part.first, part.second)", "twin(task, part.first)", "The second input of a pair is not handed on."),
    mistake("twin.score(task, *clean.vectors)", "twin.score(task, clean.vectors[0])", "The head does not get all vectors: a pair has two of them, `*clean.vectors`."),
    mistake("    with torch.no_grad(), narrow, drawn:\n", "    return clean.outputs.detach()\n    with torch.no_grad(), narrow, drawn:\n", "The model's own answers come back; the teacher is not asked."),
    mistake("        return twin.score(task, *clean.vectors) if frozen else twin(task, part.first, part.second)", "        return (twin.score(task, *clean.vectors) if frozen else twin(task, part.first, part.second)).softmax(-1)",
            "Softmax is applied. Answers are outputs as they are; the distance does the rest."),
    mistake("torch.autocast(clean.outputs.device.type, self.dtype) if self.dtype else nullcontext()", "torch.autocast(clean.outputs.device.type, torch.bfloat16)", "The answers are in bfloat16 even where no `dtype` was asked for."),
    mistake("if self.dropout == \"off\":", "if False:", "`dropout` is not read: the teacher always has the model's."),
    mistake("if self.dropout == \"off\":", "if self.dropout == \"same\":", "The two ways are exchanged: \"off\" is without dropout, \"same\" with the model's."),
    mistake("clean.head_random_state if frozen else clean.random_state", "clean.random_state if frozen else clean.head_random_state",
            "The two random states are exchanged: a frozen encoder is not run, so its draws begin at the head, and others at the words."),
    mistake("twin.score(task, *clean.vectors) if frozen", "self._twin.source.score(task, *clean.vectors) if frozen", "With a frozen encoder the model's own head answers, not the teacher's."),
    mistake("    if self.dropout == \"off\":", "    self._twin.take(0)\n    if self.dropout == \"off\":", "The teacher is renewed before it answers. `begin` decides about that, once a step."),
]

VARIANTS["proximal.answers"] = [
    '''
@torch.no_grad()
def _answers(self, task, part, clean):
    twin = self._twin.model
    ask = (lambda: twin.score(task, *clean.vectors)) if twin.mode == "frozen" else (lambda: twin(task, part.first, part.second))
    with torch.autocast(clean.outputs.device.type, dtype=torch.bfloat16, enabled=self.dtype is not None):
        if self.dropout == "same":
            self._twin.follow()
            with replay(clean.head_random_state if twin.mode == "frozen" else clean.random_state):
                return ask()
        return ask()
''', '''
def _answers(self, task, part, clean):
    model, same = self._twin.model, self.dropout == "same"
    if same:
        self._twin.follow()
    else:
        model.eval()
    frozen = model.mode == "frozen"
    begin = (clean.head_random_state if frozen else clean.random_state) if same else dict(cpu=torch.get_rng_state())
    with replay(begin), torch.autocast("cpu", torch.bfloat16, enabled=self.dtype == torch.bfloat16):
        vectors = [x.detach() for x in clean.vectors] if frozen else model.vectors(*(x for x in (part.first, part.second) if x is not None))
        return model.score(task, *vectors).detach()
''',
]


def charge_cases(generator):
    u, v = fixed(generator, 2, 5, 3)
    return [Case("classes", {"head": "classes", "mode": "full", "way": {}, "u": u}),
            Case("classes, weight 3", {"head": "classes", "mode": "full", "way": {"weight": 3.0}, "u": u}),
            Case("grades, weight .5", {"head": "pair", "mode": "full", "way": {"weight": 0.5, "teacher": "ema", "beta": 0.9}, "u": u, "v": v}),
            Case("a frozen encoder", {"head": "pair", "mode": "frozen", "way": {}, "u": u, "v": v}),
            Case("one row", {"head": "classes", "mode": "full", "way": {"dropout": "same"}, "u": u[:1]}),
            Case("goes on after a save", {"head": "classes", "mode": "full", "way": {}, "u": u, "saved": True}),
            Case("the first call", {"head": "classes", "mode": "full", "way": {}, "u": u, "fresh": True})]


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
    slopes = torch.autograd.grad(loss, trained, allow_unused=True, materialize_grads=True) if loss.requires_grad else []
    return {"penalty": loss, "has a gradient": loss.requires_grad, "steps seen": penalty.step,
        "gradient": torch.cat([g.flatten() for g in slopes]) if slopes else torch.zeros(0)}


TRIALS["proximal.charge"] = Trial(charge_cases, run_charge, subject="proximal", hints=(
    "Which two answers are compared, by which distance, and who has a graph?",
    "If there is no twin yet, which is so after loading a saved state too, call `begin` first. Then `_answers` gives the teacher's, `clean.outputs` are "
    "the model's.",
    "self.weight * output_distance(head)(clean.outputs, target).mean(), with the head of the twin's model for the task."))


_WRONG_CHARGE = "return self.weight * output_distance(self._twin.model.head(task))(clean.outputs, target).mean()"

MISTAKES["proximal.charge"] = [
    mistake(_WRONG_CHARGE, _WRONG_CHARGE.replace("self.weight * ", ""), "The weight μ is missing."),
    mistake(_WRONG_CHARGE, _WRONG_CHARGE.replace(".mean()", ".sum()"),
        "The rows are added up. The penalty is their mean, so that it does not grow with the batch."),
    mistake(_WRONG_CHARGE, _WRONG_CHARGE.replace("clean.outputs,", "clean.outputs.detach(),"),
        "The model's answers are detached: the penalty has no gradient."),
    mistake(_WRONG_CHARGE, "return self.weight * (clean.outputs - target).square().mean()",
        "Logits are compared by their squares. The distance has to fit what the outputs mean."),
    mistake(_WRONG_CHARGE, "if clean.outputs.ndim == 2:\n        return self.weight * torch.nn.functional.kl_div(clean.outputs.log_softmax(-1), "
        "target.softmax(-1), reduction=\"batchmean\")\n    " + _WRONG_CHARGE,
        "This is KL in one direction only, from the teacher to the model. The distance of the paper has both."),
    mistake(_WRONG_CHARGE, _WRONG_CHARGE.replace("clean.outputs, target", "target, target"), "The teacher is compared with itself: always 0."),
    mistake(_WRONG_CHARGE, _WRONG_CHARGE.replace("(clean.outputs, target)", "(model(task, part.first, part.second), target)"),
        "The model is run again, with other dropout. `clean` has its answers already."),
    mistake("self.begin(model)", "pass",
        "Nobody begins: at the first call there is no teacher yet, and a saved one is not put back."),
]

VARIANTS["proximal.charge"] = [
    '''
def __call__(self, model, task, part, clean):
    if not self._twin:
        self.begin(model)
    teacher = self._answers(task, part, clean).detach()
    if not teacher.isfinite().all():
        raise ValueError("expected finite answers of the teacher")
    far = output_distance(model.head(task), "full")
    each = far(teacher, clean.outputs)               # the distance is the same from either side
    return self.weight * each.sum() / len(each)
''', '''
def __call__(self, model, task, part, clean):
    self.begin(model)                                # does nothing if the weights are those of the last call
    target = self._answers(task, part, clean)
    check_finite(target, "target")
    rows = output_distance(getattr(model, "module", model).head(task))(clean.outputs, target)
    return torch.mean(rows) * self.weight
''',
]


# ---- How strong are they?

# ---- Next
#
# - Let all steps of the path be equally long. Which mistakes of `proximal.renew` become one?
# - Leave out the random state in `run_answers`. Who gets away?
