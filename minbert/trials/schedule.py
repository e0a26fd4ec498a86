"""How the last exercises of chapter 05 are checked: the rate of every step, and which weights decay."""

import math

import torch
from torch import nn

from minbert.course.trials import Case, Trial, mistake


TRIALS, MISTAKES, VARIANTS = {}, {}, {}


# A schedule that is one step late, a group that decays by mistake: which run would show it? None. The numbers themselves do.
#
# ---- optim.schedule
#
# The whole curve, step by step, and some steps beyond its end; where the warm-up is as long as the run or longer, only the steps of the run. In one
# case the two slopes cross before the peak is reached; there `min` and "first up, then down" part.

def schedule_cases(generator):
    warmup, decay = torch.randint(2, 6, (2,), generator=generator).tolist()
    return [Case("up, flat, down", {"total_steps": warmup + decay + 4, "warmup_steps": warmup, "decay_steps": decay}),
            Case("up, then down all the way", {"total_steps": warmup + decay + 3, "warmup_steps": warmup}),
            Case("no warm-up", {"total_steps": 5 + decay, "decay_steps": decay}),
            Case("down all the way, without warm-up", {"total_steps": 4 + warmup}),
            Case("no way down", {"total_steps": 4 + warmup, "warmup_steps": warmup, "decay_steps": 0}),
            Case("slopes that cross before the peak", {"total_steps": 8 + warmup, "warmup_steps": 6 + warmup, "decay_steps": 7 + warmup}),
            Case("a warm-up as long as the run", {"total_steps": 3 + warmup, "warmup_steps": 3 + warmup}),
            Case("a warm-up longer than the run", {"total_steps": 3 + warmup, "warmup_steps": 5 + warmup + decay})]


def run_schedule(schedule, inputs):
    steps = range(inputs["total_steps"] + 4 * (inputs.get("warmup_steps", 0) < inputs["total_steps"]))
    return {"shares": torch.tensor([schedule(step, **inputs) for step in steps], dtype=torch.float64)}


TRIALS["optim.schedule"] = Trial(schedule_cases, run_schedule, hints=(
    "Two slopes and a ceiling: the share is the least of three numbers.",
    "The way up reaches (step + 1) / warmup_steps, the way down (total_steps - step) / decay_steps. Beyond the end the second is below 0.",
    "Replace decay_steps=None by total_steps - warmup_steps, take 1 for a slope of 0 steps or fewer, then max(0, min(1, up, down))."))


MISTAKES["optim.schedule"] = [
    mistake("(step + 1) / warmup_steps", "(step + 1) // warmup_steps", "The way up is divided as whole numbers, so the rate is 0 until the peak."),
    mistake("    if decay_steps is None:", "    if not decay_steps:", "A way down of 0 steps is taken for none given. It leaves its line out."),
    mistake("down = (total_steps - step) / decay_steps if decay_steps > 0 else 1.0",
            "down = 0.5 - 0.5 * math.cos(math.pi * max(0.0, min(1.0, (total_steps - step) / decay_steps))) if decay_steps > 0 else 1.0",
            "The way down is a cosine. All lines are straight here."),
    mistake("up = (step + 1) / warmup_steps", "up = step / warmup_steps",
            "The first step has rate 0 and is lost: the way up starts one step too late."),
    mistake("down = (total_steps - step) / decay_steps", "down = (total_steps - step - 1) / decay_steps",
            "The way down ends one step too early: the last step has rate 0 and is lost."),
    mistake("down = (total_steps - step) / decay_steps", "down = (total_steps - step) / total_steps",
            "The way down is as long as the whole run, whatever `decay_steps` says."),
    mistake("return max(", "return 0.0 if step >= total_steps else max(",
            "After the end the rate is 0 even where there is no way down. There it stays at 1."),
    mistake("max(0.0, min(1.0, up, down))", "min(1.0, up, down)", "After the end the rate is negative: training would go uphill."),
    mistake("min(1.0, up, down)", "min(1.0, up) * min(1.0, down)", "The slopes are multiplied; where both are below 1, the lower one counts."),
    mistake("min(1.0, up, down)", "(up if step < warmup_steps else min(1.0, down))", "The way down is not looked at before the warm-up is over."),
    mistake("decay_steps = total_steps - warmup_steps", "decay_steps = total_steps",
            "`None` means from the end of the warm-up to the end of the run, not from the beginning."),
    mistake("decay_steps = total_steps - warmup_steps", "decay_steps = 0", "`None` is taken for 0: there is no way down."),
    mistake("min(1.0, up, down)", "max(up, down) if up < 1 and down < 1 else min(1.0, up, down)",
            "Where both slopes are below 1 the lower one counts, not the higher one."),
    mistake("min(1.0, up, down)", "min(up, down)", "There is no ceiling: between the slopes the rate goes beyond its peak."),
    mistake("if decay_steps > 0", "if decay_steps != 0", "A warm-up longer than the run leaves a way down of less than 0 steps, and the rate is 0 from first to last. It should only rise."),
    mistake("(step + 1) / warmup_steps", "(step + 1) / (warmup_steps + 1)", "The peak comes one step late: the last step of the warm-up has it already."),
    mistake("down = (total_steps - step) / decay_steps", "down = 1 - (step - warmup_steps) / decay_steps", "The way down begins where the warm-up ends. It lies at the end of the run."),
    mistake("down = (total_steps - step) / decay_steps", "down = (total_steps - step + 1) / decay_steps", "The way down comes one step late: where the run is over the rate is not yet 0."),
]

VARIANTS["optim.schedule"] = [
    '''
def warmup_decay(step, total_steps, warmup_steps=0, decay_steps=None):
    decay_steps = total_steps - warmup_steps if decay_steps is None else decay_steps
    share = 1.0
    if step < warmup_steps:
        share = (step + 1) / warmup_steps
    if decay_steps and step > total_steps - decay_steps:
        share = min(share, max(total_steps - step, 0) / decay_steps)
    return share
''',
    '''
def warmup_decay(step, total_steps, warmup_steps=0, decay_steps=None):
    if decay_steps is None:
        decay_steps = total_steps - warmup_steps
    slopes = torch.tensor([(step + 1) / max(warmup_steps, 1), (total_steps - step) / decay_steps if decay_steps > 0 else 1.0], dtype=torch.float64)
    return slopes.min().clamp(0, 1).item()
''',
]


# ---- optim.groups
#
# A small model with everything that has to be told apart: matrices, biases, a norm, a lone number, a stack of matrices, something frozen, heads, and
# a layer whose name only sounds like a head; in one case a weight with two names. The run tells for every weight which decay and rate it got; the
# order of the groups is left open.

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
    return [Case("as it comes", {}), Case("a decay of its own", {"weight_decay": a}),
            Case("rates for encoder and heads", {"weight_decay": a, "lr": b, "head_lr": b + c}),
            Case("a rate for the heads alone", {"head_lr": c}), Case("heads at rate 0", {"lr": b, "head_lr": 0.0}), Case("one rate", {"lr": c}),
            Case("a rule: nothing but word vectors decays", {"weight_decay": a, "decays": "word"}),
            Case("a rule: only the head decays", {"weight_decay": a, "lr": b, "head_lr": b + c, "decays": "inner"}),
            Case("everything at rate 0", {"lr": 0.0}), Case("a weight with two names", {"weight_decay": a, "tied": True})]


def run_groups(sort, inputs):
    model, settings = Zoo(), dict(inputs)
    if settings.pop("tied", False):
        model.output = model.word
    if "decays" in settings:
        settings["decays"] = lambda name, weight: name.startswith(inputs["decays"]) and weight.ndim == 2
    groups = sort(model, **settings)
    seen = {"number of groups": torch.tensor(len(groups)), "number of weights in them": torch.tensor(sum(len(g["params"]) for g in groups))}
    for name, p in model.named_parameters():
        own = [g for g in groups if any(p is q for q in g["params"])]
        named = [q for g in groups for n, q in zip(g["names"], g["params"]) if n == name]
        rows = [[g["weight_decay"], -1.0 if "lr" not in g else math.nan if g["lr"] is None else g["lr"]] for g in own]
        seen[f"{name}: decay and rate (-1: none) of its groups"] = torch.tensor(rows, dtype=torch.float64).reshape(-1, 2)
        seen[f"{name}: found under its name"] = torch.tensor(len(named) == 1 and named[0] is p or not p.requires_grad and not named)
    return seen


TRIALS["optim.groups"] = Trial(groups_cases, run_groups, hints=(
    "Two questions to each weight: does it decay, and at which rate does it learn? Weights with the same two answers share a group.",
    "A dictionary from (decay, rate) to group does the sorting. `decays(name, weight)` answers the first question, `_is_head(name)` helps with "
    "the second.",
    "decay = weight_decay if decays(name, p) else 0.0; rate = head_lr for a head if head_lr is given, else lr. Leave out p.requires_grad == "
    "False, and the key \"lr\" where the rate is None."))


MISTAKES["optim.groups"] = [
    mistake("decays(name, p)", "(\"bias\" not in name and \"norm\" not in name)", "Names decide what decays. `decays` does."),
    mistake("head_lr is not None and _is_head(name)", "head_lr and _is_head(name)", "A rate of 0 for the heads is taken for none given."),
    mistake("weight_decay if decays(name, p) else 0.0", "0.0 if decays(name, p) else weight_decay",
            "Turned round: the matrices are spared, and biases and norms shrink."),
    mistake("weight_decay if decays(name, p) else 0.0", "weight_decay if not name.endswith(\"bias\") else 0.0",
            "Only biases are spared. The gains of norms and lone numbers shrink too, and a norm's neutral value is 1."),
    mistake("weight_decay if decays(name, p) else 0.0", "weight_decay if _is_matrix(name, p) else 0.0",
            "The rule `decays` is not asked; the built-in one decides."),
    mistake("weight_decay if decays(name, p) else 0.0", "weight_decay", "Everything decays, biases and norms too."),
    mistake("weight_decay if decays(name, p) else 0.0", "weight_decay if decays(name, p) and not _is_head(name) else 0.0",
            "The heads never decay. Their matrices should, as all matrices do."),
    mistake("        if not p.requires_grad:\n            continue\n", "",
            "Frozen weights are in the groups: with decay they would shrink as soon as something gave them a gradient."),
    mistake("_is_head(name)", "\"head\" in name", "Any name with \"head\" in it passes for a head; only what stands below `heads.` is one."),
    mistake("head_lr if head_lr is not None and _is_head(name) else lr", "lr", "`head_lr` is not used: the heads learn as slowly as the encoder."),
    mistake("head_lr if head_lr is not None and _is_head(name) else lr", "head_lr if _is_head(name) else lr",
            "Without `head_lr` the heads lose the rate that everything else gets."),
    mistake("new if rate is None else new | {\"lr\": rate}", "new | {\"lr\": rate}",
            "A group without a rate of its own holds `lr=None`, and the optimizer cannot fill it in."),
    mistake("new if rate is None else new", "new if not rate else new", "A rate of 0 is taken for no rate, and the optimizer fills in its own. 0 means that nothing moves."),
    mistake("model.named_parameters()", "model.named_parameters(remove_duplicate=False)",
            "A weight that has two names is listed twice; it is one weight and stands in one group once."),
    mistake("groups.setdefault((decay, rate), ", "groups.setdefault(decay, ",
            "Weights are sorted by decay alone: heads end up in a group with another rate."),
    mistake("groups.setdefault((decay, rate), ", "groups.setdefault(name, ",
            "Every weight gets a group of its own; those that agree in decay and rate share one."),
    mistake("_is_head(name) else lr", "name.startswith(\"heads.\") else lr", "Only names that begin with `heads.` count as heads. It can stand at any depth."),
    mistake("groups.setdefault((decay, rate),", "groups.setdefault((decay, rate, _is_head(name)),", "The heads always have groups of their own. What agrees in decay and rate shares one."),
    mistake("groups = {}", "groups, head_rate = {}, lr if head_lr is None else head_lr\n"
            "    for decay, rate in ((weight_decay, lr), (0.0, lr), (weight_decay, head_rate), (0.0, head_rate)):\n"
            "        groups[decay, rate] = {\"params\": [], \"names\": [], \"weight_decay\": decay} | ({} if rate is None else {\"lr\": rate})",
            "Groups without a weight are listed. A group is there for the weights in it."),
]

VARIANTS["optim.groups"] = [
    '''
def parameter_groups(model, weight_decay=0.01, lr=None, head_lr=None, decays=_is_matrix):
    from itertools import groupby
    rows = []
    for name, p in model.named_parameters():
        if p.requires_grad:
            rate = lr if head_lr is None or not _is_head(name) else head_lr
            rows.append((weight_decay * bool(decays(name, p)), -1 if rate is None else rate, name, p))
    rows.sort(key=lambda row: row[:2])
    groups = []
    for (decay, rate), members in groupby(rows, key=lambda row: row[:2]):
        members = list(members)
        groups.append({"params": [m[3] for m in members], "names": [m[2] for m in members], "weight_decay": decay})
        if rate != -1:
            groups[-1]["lr"] = rate
    return groups
''',
    '''
def parameter_groups(model, weight_decay=0.01, lr=None, head_lr=None, decays=_is_matrix):
    found = [(n, p) for n, p in model.named_parameters() if p.requires_grad]
    groups = []
    for heads in (False, True):
        rate = head_lr if heads and head_lr is not None else lr
        for decayed in (True, False):
            chosen = [(n, p) for n, p in found if (_is_head(n) if head_lr is not None else False) == heads and bool(decays(n, p)) == decayed]
            if chosen:
                names, params = map(list, zip(*chosen))
                groups.append(dict(params=params, names=names, weight_decay=weight_decay if decayed else 0.0, **({} if rate is None else {"lr": rate})))
    return groups
''',
]


# ---- How strong are they?
