"""Exercise cases of chapter 20: a normalizing flow, its inverse, samples, and the likelihood."""

import torch
from torch.autograd.functional import jacobian

from minbert.course.check_runner import Case, Trial, fill, fixed, mistake, probe
from minbert.exercise_cases.bijections import gradients
from minbert.flow import flow_levels

TRIALS, MISTAKES, VARIANTS = {}, {}, {}


def started(kind, width, seed=0, **settings):
    """Build a flow with random weights in double precision, as if it had started from data."""
    generator = torch.Generator().manual_seed(seed)
    if hasattr(kind, "nll"):  # a Flow builds its layers itself
        flow = kind(width, hidden=3, generator=generator, **settings)
    else:
        flow = kind(flow_levels(width, hidden=3, generator=generator, **settings))
    flow = fill(flow, seed)
    for name, flag in flow.named_buffers():
        if name.endswith("initialized"):
            flag.fill_(True)
    with torch.no_grad():
        for name, weight in flow.named_parameters():
            weight.mul_(1.0 if name.endswith(".weight") else 0.4)  # scales near 1
    return flow.eval()


# ---- flow.through
#
# Three levels at width 7 work on 7, 4 and 2 dimensions. Every kind of mixing and coupling takes
# part.


def through_cases(generator):
    u = fixed(generator, 3, 7)
    return [
        Case("one level, two steps", {"u": u[:, :5], "depth": 2}),
        Case("three levels", {"u": u, "levels": 3, "depth": 1, "coupling": "affine"}),
        Case(
            "two levels, a matrix",
            {"u": u[:, :6], "levels": 2, "depth": 2, "mixing": "lu", "coupling": "affine"},
        ),
        Case("one row", {"u": u[:1, :3], "depth": 1, "mixing": "dense"}),
        Case("forty rows, two levels", {"u": fixed(generator, 40, 4), "levels": 2, "depth": 2}),
    ]


def run_through(kind, inputs):
    settings = {name: value for name, value in inputs.items() if name != "u"}
    u = inputs["u"]
    flow = started(kind, u.shape[1], **settings)
    z, log_det = flow.through(u)
    oracle = {}
    if "levels" in inputs:
        derivatives = jacobian(lambda v: flow.through(v)[0].sum(0), u).transpose(0, 1)
        oracle = {
            "log |det| minus that of all derivatives": log_det
            - torch.linalg.slogdet(derivatives).logabsdet
        }
    again, change = flow.through(leaf := u.clone().requires_grad_())
    return {
        "latent vectors": z,
        "log |det|": log_det,
        **oracle,
        **gradients(
            (again * probe(again)).sum() + (change * probe(change)).sum(),
            {"u": leaf, **dict(flow.named_parameters())},
        ),
    }


TRIALS["flow.through"] = Trial(
    through_cases,
    run_through,
    subject="flow",
    hints=(
        (
            "Two loops: over the levels, and over the layers of a level. What is passed from layer "
            "to layer, and what is added up?"
        ),
        (
            "Split z into the first `level[0].width` dimensions and the rest. Only the first ones "
            "pass through the layers; afterwards concatenate both, the transformed ones first."
        ),
        (
            "active, change = layer(active); log_det = log_det + change; after each level z = "
            "torch.cat([active, finished], dim=1)."
        ),
    ),
)

_WRONG_SUM = "log_det = log_det + change"
MISTAKES["flow.through"] = [
    mistake(
        _WRONG_SUM,
        "log_det = change",
        "Only the last log-determinant is kept. All of them are summed.",
    ),
    mistake(
        _WRONG_SUM,
        "log_det = log_det - change",
        "The log-determinants are subtracted. They are added.",
    ),
    mistake(
        "z = torch.cat([active, finished], dim=1)",
        "z = torch.cat([finished, active], dim=1)",
        "The finished dimensions are put in front, so the next level works on the wrong ones.",
    ),
    mistake(
        "for level in self.levels:",
        "for level in list(self.levels)[:1]:",
        "Only the first level is applied.",
    ),
    mistake(
        "for level in self.levels:",
        "for level in reversed(self.levels):",
        "The levels are applied in reverse order. That is the order of the inverse.",
    ),
    mistake(
        "for layer in level:",
        "for layer in reversed(level):",
        "The layers of a level are applied in reverse order. That is the order of the inverse.",
    ),
    mistake(
        _WRONG_SUM,
        "log_det = log_det + change.detach()",
        "The log-determinants are detached, so the scales get no gradient from them.",
    ),
    mistake(
        "z = torch.cat([active, finished], dim=1)",
        "z = active",
        "The finished dimensions are dropped.",
    ),
]

VARIANTS["flow.through"] = [
    """
def through(self, u):
    log_dets, finished, x = [], [], u
    for level in self.levels:
        width = level[0].width
        finished.insert(0, x[:, width:])
        x = x[:, :width]
        for layer in level:
            x, log_det = layer(x)
            log_dets.append(log_det)
    return torch.cat([x, *finished], dim=1), torch.stack(log_dets).sum(0)
""",
    """
def through(self, u):
    z = u.clone()
    total = torch.zeros(len(u), dtype=u.dtype)
    for level in self.levels:
        n = level[0].width
        x = z[:, :n]
        for layer in level:
            pair = layer(x)
            x, total = pair[0], total + pair[1]
        z = torch.hstack([x, z[:, n:]])
    return z, total
""",
]


# ---- flow.inverse
#
# The same flows. The latent vectors are drawn from the Gaussian, and the forward pass has to
# return them.


def inverse_cases(generator):
    return [
        Case(
            case.label,
            {"z": case.inputs["u"], **{k: v for k, v in case.inputs.items() if k != "u"}},
        )
        for case in through_cases(generator)
    ]


def run_inverse(kind, inputs):
    z = inputs["z"]
    settings = {name: value for name, value in inputs.items() if name != "z"}
    flow = started(kind, z.shape[1], **settings)
    u = flow.back(z)
    again = flow.back(leaf := z.clone().requires_grad_())
    return {
        "data": u,
        "back again, minus where it began": flow.through(u)[0] - z,
        **gradients((again * probe(again)).sum(), {"z": leaf, **dict(flow.named_parameters())}),
    }


TRIALS["flow.inverse"] = Trial(
    inverse_cases,
    run_inverse,
    subject="flow",
    hints=(
        (
            "The last operation is undone first. This holds for the levels, and for the layers of "
            "a level."
        ),
        (
            "`reversed(self.levels)`, and inside `reversed(level)`. The last level has only its "
            "own few dimensions; the others stay behind them."
        ),
        (
            "For each level from the end: split u at k = level[0].width; active = "
            "layer.inverse(active) for each layer from the end; u = torch.cat([active, finished], "
            "dim=1)."
        ),
    ),
)

MISTAKES["flow.inverse"] = [
    mistake(
        "for layer in reversed(level):",
        "for layer in level:",
        "The layers of a level are undone in forward order. The last layer is undone first.",
    ),
    mistake(
        "for level in reversed(self.levels):",
        "for level in self.levels:",
        "The levels are undone in forward order. The last level is undone first.",
    ),
    mistake(
        "active = layer.inverse(active)",
        "active = layer(active)[0]",
        "The layers are applied again instead of undone.",
    ),
    mistake(
        "u = torch.cat([active, finished], dim=1)",
        "u = torch.cat([finished, active], dim=1)",
        "The finished dimensions are put in front. They belong at the end.",
    ),
    mistake(
        "active, finished = u[:, :k], u[:, k:]",
        "active, finished = u[:, -k:], u[:, :-k]",
        "Each level undoes the last dimensions. It changed the first ones.",
    ),
    mistake(
        "for layer in reversed(level):",
        "for layer in list(level)[:0:-1]:",
        "The first layer of each level, its normalization, is not undone.",
    ),
    mistake(
        "for level in reversed(self.levels):",
        "for level in self.levels:",
        "for layer in reversed(level):",
        "for layer in level:",
        "Levels and layers are undone in forward order. Both are undone from last to first.",
    ),
    mistake(
        "    return u",
        "    return u.detach()",
        "The result is detached, so no gradient flows through the inverse.",
    ),
]

VARIANTS["flow.inverse"] = [
    """
def back(self, z):
    u = z
    for i in range(len(self.levels) - 1, -1, -1):
        level = self.levels[i]
        width = level[0].width
        x = u[:, :width]
        for layer in list(level)[::-1]:
            x = layer.inverse(x)
        u = torch.cat([x, u[:, width:]], dim=-1)
    return u
""",
    """
def back(self, z):
    def undo(levels, x):
        if not levels:
            return x
        n = levels[0][0].width
        inner = undo(levels[1:], x[:, : levels[1][0].width] if len(levels) > 1 else x[:, :n])
        x = torch.cat([inner, x[:, inner.shape[1]:]], dim=1)
        first, rest = x[:, :n], x[:, n:]
        for layer in reversed(list(levels[0])):
            first = layer.inverse(first)
        return torch.cat([first, rest], dim=1)
    return undo(list(self.levels), z)
""",
]


# ---- flow.sample
#
# Four thousand samples go through the forward pass of the flow: the result has to be Gaussian
# with the given temperature as standard deviation. The same generator gives the same samples; at
# temperature 0 all samples are equal.


def sample_cases(generator):
    seed = int(torch.randint(1000, (), generator=generator))
    return [
        Case("temperature 1", {"seed": seed}),
        Case("temperature 0.5", {"seed": seed, "temperature": 0.5}),
        Case("temperature 2, two levels", {"seed": seed, "temperature": 2.0, "levels": 2}),
        Case("temperature 0", {"seed": seed, "temperature": 0.0}),
    ]


def run_sample(kind, inputs):
    settings = {"temperature": inputs["temperature"]} if "temperature" in inputs else {}
    flow = started(kind, 5, 4, depth=1, levels=inputs.get("levels", 1), coupling="affine")

    def seeded(plus=0):
        return torch.Generator().manual_seed(inputs["seed"] + plus)

    before = torch.get_rng_state()
    u = flow.sample(4000, generator=seeded(), **settings)
    untouched = torch.equal(before, torch.get_rng_state())
    z, spread = flow.through(u.double())[0], settings.get("temperature", 1.0) or 1e-3
    few, more, other = (flow.sample(3, seeded(plus), **settings) for plus in (0, 0, 1))
    goes_on, z = seeded(), z / spread
    twice = [flow.sample(3, goes_on, **settings) for _ in range(2)]
    return {
        "shape": torch.tensor(u.shape),
        "without graph": not u.requires_grad,
        "in the dtype of the weights": u.dtype == torch.float64,
        "means of the latent vectors": z.mean(0),
        "their covariance": z.T @ z / len(z),
        "share of them within one spread": (z.abs() < 1).double().mean(0),
        "tails like a Gaussian's": bool(abs(z.pow(4).mean() - 3) < 0.5),
        "rows that know nothing of each other": all(
            bool((a * b).mean().abs() < 0.1) for a, b in ((z[:2000], z[2000:]), (z[::2], z[1::2]))
        ),
        "the random state goes on": inputs.get("temperature") == 0 or not torch.equal(*twice),
        "the same seed, the same samples": torch.equal(few, more),
        "another seed, other samples": inputs.get("temperature") == 0
        or not torch.equal(few, other),
        "torch's own random state is left alone": untouched,
        "without a generator, other samples each time": inputs.get("temperature") == 0
        or not torch.equal(*(flow.sample(2, **settings) for _ in range(2))),
        "none": torch.tensor(flow.sample(0, seeded()).shape),
    }


TRIALS["flow.sample"] = Trial(
    sample_cases,
    run_sample,
    replay=True,
    atol=0.16,
    hints=(
        "Which way does a sample go, from data to latent or back?",
        "Draw from the standard Gaussian, (n, D), scale by the temperature, undo the flow.",
        (
            "z = torch.randn(n, self.width, generator=generator, dtype=...); "
            "self.inverse(temperature * z), under no_grad."
        ),
    ),
)

MISTAKES["flow.sample"] = [
    mistake("temperature * z", "z", "The temperature is not used."),
    mistake(
        "return self.inverse(temperature * z.to(like.device))",
        "return temperature * self.inverse(z.to(like.device))",
        "The temperature multiplies the generated vectors. It multiplies the latent ones.",
    ),
    mistake(
        "@torch.no_grad()\ndef",
        "def",
        "The samples keep a computation graph. Use `torch.no_grad()`.",
    ),
    mistake(
        "temperature * z.to(like.device)",
        "z.to(like.device) / max(temperature, 1e-3)",
        "The latent vectors are divided by the temperature. Multiply by it.",
    ),
    mistake(
        "return self.inverse(temperature * z.to(like.device))",
        "return self.through(temperature * z.to(like.device))[0]",
        "The forward direction is used. Sampling goes from latent vectors to data, with the "
        "inverse.",
    ),
    mistake(
        "return self.inverse(temperature * z.to(like.device))",
        "return temperature * z.to(like.device)",
        "The latent vectors are returned. The inverse is missing.",
    ),
    mistake(
        "torch.randn(n, self.width, generator=generator, device=device, dtype=like.dtype)",
        "torch.rand(n, self.width, generator=generator, device=device, dtype=like.dtype)",
        "The latent vectors are uniformly distributed. They should be Gaussian.",
    ),
    mistake(
        "torch.randn(n, self.width, generator=generator, device=device, dtype=like.dtype)",
        "torch.randn(n, self.width, device=device, dtype=like.dtype)",
        "`generator` is not used, so samples are not reproducible.",
    ),
]

VARIANTS["flow.sample"] = [
    """
@torch.no_grad()
def sample(self, n, generator=None, temperature=1.0):
    z = torch.zeros(n, self.width, dtype=torch.float64)
    for row in z:
        row.copy_(torch.randn(self.width, generator=generator, dtype=torch.float64))
    return self.inverse(z * temperature)
""",
    """
def sample(self, n, generator=None, temperature=1.0):
    z = torch.empty(self.width, n).normal_(0, 1, generator=generator).T
    with torch.no_grad():
        return self.inverse(temperature * z).detach()
""",
]


# ---- flow.nll
#
# Nats and bits per dimension, two constants, and a sum over dimensions. Latent vectors are short
# in one case and long in another, because a missing factor is hidden where |z|² is small, and a
# missing constant where it is large.


def nll_cases(generator):
    u = fixed(generator, 4, 7)
    return [
        Case("bits per dimension", {"u": u[:, :5], "depth": 1}),
        Case("nats", {"u": u[:, :5], "depth": 1, "unit": "nats"}),
        Case("the unit that nobody asked for", {"u": u[:, :3], "depth": 1, "coupling": "affine"}),
        Case(
            "far away, nats",
            {"u": 30 * u, "levels": 2, "depth": 1, "coupling": "affine", "unit": "nats"},
        ),
        Case(
            "near the origin, bits",
            {"u": 0.01 * u, "depth": 1, "coupling": "affine", "unit": "bits"},
        ),
        Case("one row", {"u": u[:1, :2], "depth": 1, "mixing": "lu", "unit": "nats"}),
        Case(
            "so dense a cloud that -log p is below 0",
            {"u": 1e-3 * u, "depth": 1, "unit": "nats", "stretch": 1.5},
        ),
        Case("half precision into single", {"u": u.bfloat16(), "depth": 2}),
    ]


def run_nll(kind, inputs):
    u, unit = inputs["u"], {"unit": inputs["unit"]} if "unit" in inputs else {}
    flow = started(
        kind,
        u.shape[1],
        2,
        **{name: value for name, value in inputs.items() if name not in ("u", "unit", "stretch")},
    )
    for part in flow.modules():
        if "stretch" in inputs and hasattr(part, "logs"):
            part.logs.data.add_(inputs["stretch"] / 3), part.shift.data.zero_()
    if u.dtype == torch.bfloat16:
        return {"-log p": flow.float().nll(u, **unit)}
    nll = flow.nll(u, **unit)
    again = flow.nll(leaf := u.clone().requires_grad_(), **unit)
    return {
        "-log p": nll,
        **gradients((again * probe(again)).sum(), {"u": leaf, **dict(flow.named_parameters())}),
    }


TRIALS["flow.nll"] = Trial(
    nll_cases,
    run_nll,
    subject="flow",
    rtol=1e-9,
    hints=(
        (
            "log p(u) = log N(z; 0, I) + log|det|. Write the first term for D dimensions, then "
            "change all signs."
        ),
        (
            "-log N(z; 0, I) = |z|² / 2 + D/2 log 2π, one number per row. log|det| is "
            "subtracted. A bit is ln 2 nats."
        ),
        (
            "z, log_det = self(u); nats = z.square().sum(1) / 2 + self.width / 2 * math.log(2 * "
            "math.pi) - log_det; bits per dimension divide that by D ln 2."
        ),
    ),
)

_WRONG_BITS = "nats / (self.width * math.log(2))"
MISTAKES["flow.nll"] = [
    mistake(
        "math.log(2 * math.pi) - log_det",
        "math.log(2 * math.pi) + log_det",
        "The sign of the log-determinant is wrong, so the flow is rewarded for shrinking "
        "everything to a point.",
    ),
    mistake(
        "math.log(2 * math.pi) - log_det",
        "math.log(2 * math.pi)",
        "The log-determinant is missing.",
    ),
    mistake(
        "nats = z.square().sum(1) / 2 + self.width / 2 * math.log(2 * math.pi)",
        "nats = z.square().sum(1) / 2",
        "The constant D/2 log 2π is missing.",
    ),
    mistake(
        "self.width / 2 * math.log",
        "0.5 * math.log",
        "The constant ½ log 2π is counted once. It is needed for each of the D dimensions.",
    ),
    mistake("z.square().sum(1) / 2", "z.square().sum(1)", "The factor ½ of |z|² is missing."),
    mistake(
        "z.square().sum(1) / 2",
        "z.square().mean(1) / 2",
        "The squares are averaged over the dimensions. They are summed.",
    ),
    mistake(
        _WRONG_BITS,
        "nats / self.width * math.log(2)",
        "Nats are multiplied by ln 2. To convert to bits, divide.",
    ),
    mistake(
        _WRONG_BITS + ' if unit == "bits" else nats',
        "-" + _WRONG_BITS + ' if unit == "bits" else -nats',
        "The log-likelihood is returned. Its negative is expected.",
    ),
]

VARIANTS["flow.nll"] = [
    """
def nll(self, u, unit="bits"):
    z, log_det = self(u)
    log_p = torch.distributions.Normal(0.0, 1.0).log_prob(z).sum(dim=-1) + log_det
    if unit == "nats":
        return -log_p
    return -log_p / z.shape[1] / math.log(2)
""",
    """
def nll(self, u, unit="bits"):
    z, log_det = self(u)
    losses = []
    for row, change in zip(z, log_det):
        density = -0.5 * torch.dot(row, row) - len(row) * math.log(math.sqrt(2 * math.pi)) + change
        losses.append(-density if unit == "nats" else -density * math.log2(math.e) / len(row))
    return torch.stack(losses)
""",
]
