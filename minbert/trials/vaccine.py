"""How the exercises of chapter 38 are checked: gradients that are turned to a usual cosine, and statistics of a training run that was made up."""


import torch

from minbert.pcgrad import Surgery
from minbert.course.trials import Case, Trial, fixed, mistake
from minbert.trials.pcgrad import ALONE, ORDERS, CONFLICT, TWICE, asked, with_cosines


# What does a wrong formula look like at f = r? Like the right one: nothing is to be done there. So the cases keep away from it, on both sides.

TRIALS, MISTAKES, VARIANTS = {}, {}, {}


# ---- pcgrad.vaccine
#
# Two tasks at all sorts of targets, since then no order is drawn: below and above the cosine, not symmetric, negative. Parallel and opposite
# gradients, zeros. Both rules of update. Three tasks over all orders.

def vaccine_cases(generator):
    pair = lambda cosine, a=2.0, b=0.7: with_cosines(generator, [[1, cosine], [cosine, 1]], [a, b], 5)
    wanted = lambda a, b: torch.tensor([[0, a], [b, 0]], dtype=torch.float64)
    g = fixed(generator, 1, 5)
    two = {"first call: targets of 0": (pair(-0.4), wanted(0, 0)),
           "below its target": (pair(0.1), wanted(0.6, 0.3)),
           "above its target": (pair(0.8), wanted(0.2, -0.1)),
           "one above, one below": (pair(0.3), wanted(0.7, -0.5)),
           "negative targets": (pair(-0.7), wanted(-0.2, -0.4)),
           "parallel": (torch.cat([g, 3 * g]), wanted(0.4, 0.2)),
           "opposite": (torch.cat([g, -3 * g]), wanted(0.0, 0.3)),
           "a gradient of zeros": (torch.cat([g, 0 * g]), wanted(0.4, 0.2))}
    rules = {"": {}, ", beta .3": {"beta": 0.3}, ", violations": {"beta": 0.3, "update": "violations"}}
    cases = [Case(label + rule, {"gram": g @ g.T, "targets": r, **more}) for label, (g, r) in two.items() for rule, more in rules.items()
             if rule or label == "below its target"]
    g, r = with_cosines(generator, CONFLICT, [1.0, 0.5, 2.0], 6), 0.2 + 0.3 * torch.rand(3, 3, generator=generator, dtype=torch.float64)
    four = with_cosines(generator, ALONE, [1.0, 1.3, 0.7, 0.9], 7)
    holes = torch.zeros(5, 5, dtype=torch.float64)
    holes[[1, 3]] = pair(0.1)
    cases.append(Case("two among zeros: all results, over the orders", {"gram": holes @ holes.T, "targets": torch.full((5, 5), 0.6, dtype=torch.float64), "beta": 0.3, **ORDERS, "times": 20}))
    near = lambda f: torch.tensor([[1.0, f], [f, 1.0]], dtype=torch.float64)    # rounding has carried the cosine beyond 1
    cases += [Case("cosine and targets a little above 1", {"gram": near(1 + 1e-9), "targets": near(1 + 1e-12)}),
              Case("a cosine a little below -1", {"gram": near(-1 - 1e-9), "targets": wanted(0.0, 0.3)}),
              Case("a target of 1", {"gram": near(0.5), "targets": wanted(1.0, 0.2)}),
              Case("two that cancel, and a third: all results, over the orders", {"gram": torch.tensor([[1, -1, 0.3], [-1, 1, -0.3], [0.3, -0.3, 1]], dtype=torch.float64),
                  "targets": torch.zeros(3, 3, dtype=torch.float64), **ORDERS})]
    return cases + [Case("three: all results, over the orders", {"gram": g @ g.T, "targets": r, "beta": 0.2, **ORDERS}),
                    Case("three: difference between two runs with one seed", {"gram": g @ g.T, "targets": r, "beta": 0.2, **TWICE}),
                    Case("four, one against all: all results, over the orders", {"gram": four @ four.T,
                        "targets": torch.zeros(4, 4, dtype=torch.float64), "beta": 0.0, **ORDERS, "times": 75})]


def run_vaccine(vaccine_weights, inputs):
    dtypes, graphs = set(), []
    inputs["gram"].requires_grad_()

    def call(rng):
        weights, targets = vaccine_weights(**{name: x for name, x in inputs.items() if name not in ("ask", "times")}, generator=rng)
        dtypes.add(targets.dtype)
        graphs.append(weights.requires_grad or targets.requires_grad)
        return torch.cat([weights, targets[~torch.eye(len(targets), dtype=torch.bool)]]).detach()

    return {**asked("weights, then targets without the diagonal", call, inputs), "targets in double precision": dtypes == {torch.float64}, "the results have a graph": any(graphs)}


TRIALS["pcgrad.vaccine"] = Trial(vaccine_cases, run_vaccine, subject="pcgrad", hints=(
    "It is the loop of `project_weights` with another test and another piece of g_j. What are |g_i| and the cosine f, in terms of w and G?",
    "|g_i|² is w G w, g_i . g_j is (w G)_j, both for the present g_i. The new w_j follows from the equation; the target moves by the f that was "
    "measured before the turn.",
    "w[j] += |g_i| (r √(1-f²) - f √(1-r²)) / (|g_j| √(1-r²)) if f < r; then targets[i, j] = (1 - beta) r + beta f, on a copy of the targets."))


MISTAKES["pcgrad.vaccine"] = [
    mistake("if f < r:\n", "if f > r:\n", "The sign of the test is turned: gradients that agree more than usual are pushed apart."),
    mistake("                continue\n", "                break\n", "The loop ends at a gradient of zeros; it should pass over it and go on with the others."),
    mistake("min(square_i, square_j) <= _FLOOR", "square_i <= _FLOOR", "square_i * square_j", "max(square_i * square_j, _FLOOR)", "math.sqrt(square_i / square_j)", "math.sqrt(square_i / max(square_j, _FLOOR))",
        "A gradient of zeros is not passed over: its target moves, and its weight grows beyond all bounds."),
    mistake("gram.detach().cpu()", "gram.cpu()", "w = torch.zeros_like(total)", "w = torch.zeros_like(total) + 0 * gram[0]", "The results carry a graph. They are plain numbers: nobody differentiates the surgery."),
    mistake("targets[i, j].item()", "max(0.0, targets[i, j].item())", "A target below 0 is taken for 0. Tasks that usually conflict may go on doing so."),
    mistake("if f < r:\n", "if f < 0:\n", "Only conflicts are turned, as in PCGrad. The test here is against the usual cosine, not 0."),
    mistake("square_i, square_j, r = (w @ gram @ w).item(),", "square_i, square_j, r = gram[i, i].item(),", "|g_i| is that of the original gradient; g_i may have been turned already."),
    mistake("math.sqrt(square_i / square_j) *", "1 / math.sqrt(square_j) *", "|g_i| is left out: the piece of g_j has the wrong length."),
    mistake("                targets[i, j] = (1 - beta) * r + beta * f\n", "                f = (w @ gram[j]).item() / math.sqrt((w @ gram @ w).item() * square_j)\n                targets[i, j] = (1 - beta) * r + beta * f\n",
        "The cosine is measured again after the turn, where it is the target itself: so no target moves down."),
    mistake("math.sqrt(max(1 - r * r, 1e-12))", "math.sqrt(max(1 - r * r, 0))", "/ sin_r", "/ (sin_r or 1e-300)", "1 - r² may become 0 below the line. It is kept at 1e-12 at least."),
    mistake("math.sqrt(square_i / square_j)", "math.sqrt(square_j / square_i)",
        "The ratio of the lengths is upside down: a short g_j then counts too little."),
    mistake("math.sqrt(square_i / square_j)", "square_i / square_j", "The lengths stand in squares where the equation has plain lengths."),
    mistake("(r * sin_f - f * sin_r) / sin_r", "(r * sin_r - f * sin_f) / sin_r",
        "The two roots are swapped in the bracket: √(1-f²) belongs to the target r."),
    mistake("(r * sin_f - f * sin_r) / sin_r", "(r * sin_f - f * sin_r) / sin_f",
        "The denominator has the root of the measured cosine; it should have that of the wanted one."),
    mistake("(1 - beta) * r + beta * f", "beta * r + (1 - beta) * f",
        "beta and 1 - beta are swapped, so the target jumps to the newest cosine instead of following slowly."),
    mistake("if f < r or update == \"all\":", "if True:", "`update` is not used: targets that were met move as well."),
    mistake("if f < r or update == \"all\":", "if f < r:", "`update` is not used: only targets that were missed move, and so they can never rise."),
    mistake("targets.clone()", "targets", "The targets that came in are changed. The caller still needs them."),
    mistake("f = (w @ gram[j]).item() / math.sqrt(square_i * square_j)", "f = gram[i, j].item() / math.sqrt(gram[i, i].item() * square_j)",
        "The cosine is that of the original gradients; g_i may have been turned already."),
    mistake("targets[i, j].item()", "targets[j, i].item()", "The target is read the wrong way round. Row i holds what task i wants with the others."),
    mistake("targets[i, j] = (1 - beta) * r + beta * f", "targets[i, j] = targets[j, i] = (1 - beta) * r + beta * f",
        "The target of j with i is moved along with that of i with j. The two are kept apart."),
    mistake("            if f < r:\n", "            r = (1 - beta) * r + beta * f\n            if f < r:\n",
        "targets[i, j] = (1 - beta) * r + beta * f", "targets[i, j] = r",
        "The target is moved before it is used, so the gradient is held against its own newest cosine."),
    mistake("(1 - beta) * r + beta * f", "r + beta * f", "The old target enters whole, so the next one grows step by step. It is a mean of the two."),
    mistake("targets[i, j] = (1 - beta)", "targets[j, i] = (1 - beta)", "The target of j with i is moved, in the place of that of i with j."),
]

VARIANTS["pcgrad.vaccine"] = [
    '''
def vaccine_weights(gram, targets, beta=0.01, update="all", generator=None):
    G, R, T = gram.detach().cpu().double(), targets.clone(), len(gram)
    W = torch.eye(T, dtype=torch.float64)
    for i in range(T):
        for j in torch.randperm(T, generator=generator).tolist():
            if j == i:
                continue
            a, b = torch.sqrt(torch.clamp(W[i] @ G @ W[i], min=0)), G[j, j].clamp(min=0).sqrt()
            if a <= 1e-15 or b <= 1e-15:
                continue
            cosine, wanted = (W[i] @ G[:, j]) / a / b, R[i, j].clone()
            missed = bool(cosine < wanted)
            if missed:
                tangent = (1 - wanted ** 2).clamp(min=1e-12).sqrt()
                W[i, j] += a / b * (wanted * (1 - cosine ** 2).clamp(min=0).sqrt() / tangent - cosine)
            if missed or update == "all":
                R[i, j] = wanted + beta * (cosine - wanted)
    return W.sum(0), R
''', '''
def vaccine_weights(gram, targets, beta=0.01, update="all", generator=None):
    G = gram.detach().double()
    new, total = torch.clone(targets), torch.zeros(len(G), dtype=torch.float64)
    for i in range(len(G)):
        mix = torch.zeros(len(G), dtype=torch.float64)
        mix[i] = 1
        for j in (k for k in torch.rand(len(G), generator=generator).argsort().tolist() if k != i):
            own, other = float(mix @ (G @ mix)), float(G[j, j])
            if own > 1e-30 and other > 1e-30:
                f, r = float(G[j] @ mix) / own ** 0.5 / other ** 0.5, float(targets[i, j])
                if f < r:                            # sin(a - b), from angles
                    a, b = math.acos(max(-1.0, min(1.0, f))), max(math.acos(r), 1e-6)
                    mix[j] += (own / other) ** 0.5 * math.sin(a - b) / math.sin(b)
                    new[i, j] = r - beta * (r - f)
                elif update == "all":
                    new[i, j] = r - beta * (r - f)
        total = total + mix
    return total, new
''',
]


# ---- pcgrad.conflicts
#
# A made-up training run of three tasks: not all are there in every step, some gradients are zero and have no cosine, one cosine is exactly 0.
# Statistics are over the steps in which both had a gradient.

def conflicts_cases(generator):
    def run(steps, absent=0.0):
        cosines = torch.rand(steps, 3, generator=generator, dtype=torch.float64) * 2 - 1
        cosines[0] = torch.tensor([-0.3, 0.2, 0.0])
        cosines[1] = torch.tensor([0.4, -0.6, -0.1])
        cosines[2:][torch.rand(steps - 2, 3, generator=generator) < absent] = torch.nan
        return cosines

    missing = torch.zeros(12, dtype=torch.int64)
    missing[[4, 7, 9]] = torch.tensor([1, 2, 1])                      # tasks that stay away in a step
    return [Case("all tasks in every step", {"cosines": run(9), "missing": torch.zeros(9, dtype=torch.int64)}),
            Case("some gradients are zero", {"cosines": run(15, 0.4), "missing": torch.zeros(15, dtype=torch.int64)}),
            Case("some tasks stay away", {"cosines": run(12, 0.1), "missing": missing}),
            Case("never a conflict", {"cosines": run(6).abs(), "missing": torch.zeros(6, dtype=torch.int64)})]


def run_conflicts(conflict_summary, inputs):
    pairs, records = [("inference", "sentiment"), ("inference", "similarity"), ("sentiment", "similarity")], []
    for row, gone in zip(inputs["cosines"].tolist(), inputs["missing"].tolist()):
        absent = (None, "inference", "similarity")[gone]
        tasks = tuple(t for t in ("sentiment", "inference", "similarity") if t != absent)
        records.append(Surgery(tasks, (1.0,) * len(tasks), {p: c for p, c in zip(pairs, row) if absent not in p}, (1.0,) * len(tasks)))
    found = conflict_summary(iter(records))
    return {"pairs": len(found)} | {f"{name} of {' and '.join(pair)}": torch.tensor(float(getattr(found[pair], name)), dtype=torch.float64)
                                   for pair in pairs for name in ("steps", "share", "cosine", "conflict")}


TRIALS["pcgrad.conflicts"] = Trial(conflicts_cases, run_conflicts, hints=(
    "First collect, for each pair, the cosines of all records that have one. What does a NaN among them mean?",
    "A pair that is not in `record.cosines` and a cosine that is NaN are the same here: the step does not count for the pair.",
    "c = cosines of the pair without NaN: steps is len(c), share the mean of (c < 0), cosine the mean of c, conflict the mean of c[c < 0]."))


MISTAKES["pcgrad.conflicts"] = [
    mistake("c[~c.isnan()]", "c", "Steps without a cosine (NaN) are counted, and spoil the means."),
    mistake("PairConflict(len(c), (c < 0).double().mean().item(), c.mean().item(), c[c < 0].mean().item())",
        "PairConflict(len(c), (c < 0).sum().item(), c.mean().item(), c[c < 0].mean().item())",
        "`share` is a count. It should be the part of the steps, 0 to 1."),
    mistake("PairConflict(len(c),", "PairConflict(int((c < 0).sum()),", "`steps` counts the steps in conflict. It should count those in which both tasks had a gradient."),
    mistake("(c < 0).double()", "(c <= 0).double()", "A cosine of exactly 0 is counted as a conflict."),
    mistake("c[c < 0].mean().item()", "c.clamp(max=0).mean().item()",
        "The strength of a conflict is averaged over all steps; only those in conflict count."),
    mistake("c[c < 0].mean().item()", "c[c < 0].min().item()", "`conflict` is the worst cosine. It should be the mean over the steps in conflict."),
    mistake("c[c < 0].mean().item()", "c[c < 0].abs().mean().item()", "`conflict` has lost its sign: it is a cosine, so it is negative."),
    mistake("c.mean().item(), c[c", "c.abs().mean().item(), c[c",
        "The mean is over the sizes of the cosines, so agreement and conflict look the same."),
    mistake("found = {", "records = list(records)\n    found = {", "(c < 0).double().mean().item()", "(c < 0).sum().item() / len(records)",
        "`share` is taken of all records; a step counts for a pair only if both had a gradient."),
    mistake("c[c < 0].mean().item())", "c[c < 0].mean().nan_to_num().item())",
        "A pair without any conflict gets 0 instead of NaN, as if it had conflicts of strength 0."),
    mistake("(c < 0).double().mean().item(), c.mean().item(),", "c.mean().item(), (c < 0).double().mean().item(),", "`share` and `cosine` have changed places."),
    mistake("c.mean().item(), c[c < 0].mean().item()", "c[c < 0].mean().item(), c.mean().item()", "`cosine` and `conflict` have changed places."),
]

VARIANTS["pcgrad.conflicts"] = [
    '''
def conflict_summary(records):
    seen, found = defaultdict(list), {}
    for pair, cosine in (item for record in records for item in record.cosines.items()):
        if not math.isnan(cosine):
            seen[pair].append(cosine)
    for pair, values in seen.items():
        bad = [v for v in values if v < 0]
        found[pair] = PairConflict(len(values), len(bad) / len(values), sum(values) / len(values), sum(bad) / len(bad) if bad else math.nan)
    return found
''', '''
def conflict_summary(records):
    records, found = list(records), {}
    for pair in sorted(set().union(*(r.cosines for r in records))):
        c = torch.tensor([r.cosines[pair] for r in records if pair in r.cosines], dtype=torch.float64)
        ok, neg = torch.isfinite(c), c < 0
        found[pair] = PairConflict(int(ok.sum()), (neg.sum() / ok.sum()).item(), torch.nanmean(c).item(), torch.where(neg, c, math.nan).nanmean().item())
    return found
''',
]


# ---- How strong are they?

# ---- Next
#
# - Set all targets to 0. Which mistakes of `pcgrad.vaccine` pass, since then it is PCGrad?
# - Make up a training run in which the share of all records and the share of steps agree. Which mistake passes?
