"""How the exercises of chapters 29 and 30 are checked: a likelihood that must add up, and gradients that must stop where they should."""


import torch
from torch.autograd.functional import jacobian

from minbert.course.trials import Case, Trial, autocast, fill, fixed, mistake, probe
from minbert.flow import flow_rows
from minbert.trials.bijections import gradients


# A flow that leaves out one log |det| still trains, still draws a falling curve, and believes in a density that adds up to something else than 1. How
# does one see it? Once more: all derivatives, and the way back.

TRIALS, MISTAKES, VARIANTS = {}, {}, {}


def started(kind, width, seed=0, **settings):
    """Build a flow with random weights in double precision, as if it had started from data."""
    flow = fill(kind(flow_rows(width, hidden=3, generator=torch.Generator().manual_seed(seed), **settings)), seed)
    for name, flag in flow.named_buffers():
        if name.endswith("initialized"):
            flag.fill_(True)
    with torch.no_grad():
        for name, weight in flow.named_parameters():
            weight.mul_(1.0 if name.endswith(".weight") else 0.4)      # scales near 1
    return flow.eval()


# ---- flow.through
#
# Three levels at width 7 work on 7, 4 and 2 columns: an odd width, a larger half, columns that are done. Every kind of mixing and coupling takes part
# once. Then a fresh flow is started, part by part, from a batch; each norm must have seen what comes out of the parts before it.

def through_cases(generator):
    u, many = fixed(generator, 3, 7), 2 * fixed(generator, 70, 4) + 1
    return [Case("one level, two steps", {"u": u[:, :5], "depth": 2}), Case("three levels", {"u": u, "levels": 3, "depth": 1, "coupling": "affine"}),
            Case("two levels, a matrix", {"u": u[:, :6], "levels": 2, "depth": 2, "mixing": "lu", "coupling": "affine"}), Case("one row", {"u": u[:1, :3], "depth": 1, "mixing": "dense"}),
            Case("started from a batch", {"u": many, "levels": 2, "depth": 2, "start": True})]


def run_through(kind, inputs):
    settings, u = {name: value for name, value in inputs.items() if name not in ("u", "start")}, inputs["u"]
    if "start" in inputs:
        flow = kind(flow_rows(u.shape[1], hidden=3, generator=torch.Generator().manual_seed(0), **settings)).double().eval()
        with torch.no_grad():
            z, log_det = flow.through(u, start=True)
        return {"latent vectors": z, "log |det|": log_det, "norms that have started": torch.stack([flag for name, flag in flow.named_buffers() if name.endswith("initialized")]),
                "first weights": torch.cat([p.detach().flatten() for name, p in flow.named_parameters() if name.endswith(("shift", "logs"))])}
    flow = started(kind, u.shape[1], **settings)
    z, log_det = flow.through(u)
    oracle = {}
    if "levels" in inputs:
        derivatives = jacobian(lambda v: flow.through(v)[0].sum(0), u).transpose(0, 1)
        oracle = {"log |det| minus that of all derivatives": log_det - torch.linalg.slogdet(derivatives).logabsdet}
    again, change = flow.through(leaf := u.clone().requires_grad_())
    return {"latent vectors": z, "log |det|": log_det, **oracle,
            **gradients((again * probe(again)).sum() + (change * probe(change)).sum(), {"u": leaf, **dict(flow.named_parameters())})}


TRIALS["flow.through"] = Trial(through_cases, run_through, subject="flow", hints=(
    "Two loops: over the blocks, and over the parts of a block. What is handed on from part to part, and what is added up?",
    "Cut z into x, the first `block[0].width` columns, and the rest. Only x goes through the parts; afterwards put both together again, x in front.",
    "x, change = part(x); log_det = log_det + change; after each block z = cat([x, done], dim=1). With `start`: part._fit(x) before part(x)."))

_WRONG_SUM = "log_det = log_det + change"
MISTAKES["flow.through"] = [
    mistake(_WRONG_SUM, "log_det = change", "Only the last part's log |det| is kept; all of them add up."),
    mistake(_WRONG_SUM, "log_det = log_det - change", "The log |det| are subtracted."),
    mistake(_WRONG_SUM, "log_det = log_det * change if log_det.any() else change", "The log |det| are multiplied; determinants multiply, their logarithms add up."),
    mistake(_WRONG_SUM, "log_det = log_det + change / len(block)", "The mean of the log |det| in a block is taken; they add up."),
    mistake(_WRONG_SUM, "log_det = log_det + change.sum()", "Each row gets the log |det| of the whole batch."),
    mistake("z = torch.cat([x, done], dim=1)", "z = torch.cat([done, x], dim=1)", "What is done is put in front, so the next level works on the wrong columns."),
    mistake("x, done = z[:, :block[0].width], z[:, block[0].width:]", "done, x = z[:, :-block[0].width], z[:, -block[0].width:]", "z = torch.cat([x, done], dim=1)", "z = torch.cat([done, x], dim=1)",
            "Each level works on the last columns; the first ones go on."),
    mistake("for block in self.blocks:", "for block in list(self.blocks)[:1]:", "Only the first level is used."),
    mistake("for block in self.blocks:", "for block in reversed(self.blocks):", "The levels come in the wrong order: that is the way back."),
    mistake("for part in block:", "for part in reversed(block):", "The parts of a block come in the wrong order: that is the way back."),
    mistake("x, change = part(x)", "image, change = part(x)\n            x = image if part is block[-1] else x", "Each part gets the block's input instead of what the part before it gave."),
    mistake("            if start:\n                part._fit(x)\n", "", "The parts do not start from data: `start` has no effect."),
    mistake("            if start:\n                part._fit(x)\n            x, change = part(x)", "            if start:\n                part._fit(z[:, :block[0].width])\n            x, change = part(x)",
            "Each part starts from the block's input and not from what it is about to see."),
    mistake("            if start:\n                part._fit(x)\n            x, change = part(x)", "            if start:\n                part._fit(x)\n            x, change = part(x.detach())",
            "What is handed on is detached, so earlier parts do not learn from later ones."),
    mistake(_WRONG_SUM, "log_det = log_det + change.detach()", "The log |det| are detached, so no scale feels them."),
    mistake("z = torch.cat([x, done], dim=1)", "z = x", "The columns that are done are thrown away."),
]

VARIANTS["flow.through"] = [
    '''
def through(self, u, start=False):
    log_dets, finished, x = [], [], u
    for level, block in enumerate(self.blocks):
        width = block[0].width
        finished.insert(0, x[:, width:])
        x = x[:, :width]
        for part in block:
            if start:
                part._fit(x)
            x, log_det = part(x)
            log_dets.append(log_det)
    return torch.cat([x, *finished], dim=1), torch.stack(log_dets).sum(0)
''',
    '''
def through(self, u, start=False):
    z = u.clone()
    total = torch.zeros(len(u), dtype=u.dtype)
    for block in self.blocks:
        n = block[0].width
        x = z[:, :n]
        for part in block:
            part._fit(x) if start else None
            pair = part(x)
            x, total = pair[0], total + pair[1]
        z = torch.hstack([x, z[:, n:]])
    return z, total
''',
]


# ---- flow.inverse
#
# The same flows. The latent vectors are those of no data at all, drawn from the Gaussian. A way back that is right sends them there again.

def inverse_cases(generator):
    return [Case(c.label, {**{k: v for k, v in c.inputs.items() if k != "u"}, "z": c.inputs["u"]}) for c in through_cases(generator) if "start" not in c.inputs] + [
        Case("double precision into single", {"z": fixed(generator, 3, 4), "single": True}),
        Case("half precision into single", {"z": fixed(generator, 3, 4, dtype=torch.bfloat16), "single": True, "depth": 2}),
        autocast(Case("two levels, a matrix", {"z": 3 * fixed(generator, 50, 6), "levels": 2, "depth": 2, "mixing": "dense", "coupling": "affine", "single": True}), "z")]


def run_inverse(kind, inputs):
    z = inputs["z"]
    flow = started(kind, z.shape[1], **{name: value for name, value in inputs.items() if name not in ("z", "single")})
    if "single" in inputs:
        u = flow.float().inverse(z)
        return {"in the dtype of the weights": u.dtype == torch.float32, "shape": torch.tensor(u.shape), "data": u.float()}
    u = flow.inverse(z)
    again = flow.inverse(leaf := z.clone().requires_grad_())
    return {"data": u, "back again, minus where it began": flow.through(u)[0] - z, **gradients((again * probe(again)).sum(), {"z": leaf, **dict(flow.named_parameters())})}


TRIALS["flow.inverse"] = Trial(inverse_cases, run_inverse, subject="flow", hints=(
    "Shoes and socks: what went on last comes off first. That holds for blocks, and for the parts of a block.",
    "`reversed(self.blocks)`, and inside `reversed(block)`. The last block knows only its own few columns; the others wait behind.",
    "for each block from the end: x, done = u[:, :width], u[:, width:]; x = part.inverse(x) for each part from the end; u = cat([x, done], dim=1)."))

MISTAKES["flow.inverse"] = [
    mistake("with torch.autocast(u.device.type, enabled=False):", "if True:", "Under autocast the products on the way back are rounded to bfloat16."),
    mistake("u = self._check_latent(z)", "u = z", "The latent vectors are taken in the dtype in which they came; the weights may have another."),
    mistake("for part in reversed(block):", "for part in block:", "The parts of a block are undone in the order in which they were done; the last has to go first."),
    mistake("for block in reversed(self.blocks):", "for block in self.blocks:", "The levels are undone in the order in which they were done; the last has to go first."),
    mistake("x = part.inverse(x)", "x = part(x)[0]", "The parts are applied once more instead of undone."),
    mistake("u = torch.cat([x, done], dim=1)", "u = torch.cat([done, x], dim=1)", "The columns that wait are put in front."),
    mistake("for block in reversed(self.blocks):", "for block in list(self.blocks)[:1]:", "Only the first level is undone."),
    mistake("x, done = u[:, :block[0].width], u[:, block[0].width:]", "x, done = u[:, -block[0].width:], u[:, :-block[0].width]", "Each level undoes the last columns; it worked on the first ones."),
    mistake("x = part.inverse(x)", "x = part.inverse(x.detach())", "What is handed on is detached, so nothing behind the inverse can be learned."),
    mistake("for part in reversed(block):", "for part in list(block)[:0:-1]:", "The first part of each block, its norm, is not undone."),
    mistake("x = part.inverse(x)\n            u = torch.cat([x, done], dim=1)", "y = part.inverse(x)\n            u = torch.cat([y, done], dim=1)", "Each part undoes the block's input instead of what the part before it gave."),
    mistake("for part in reversed(block):", "for part in list(block)[-2::-1]:", "The last part of each block is not undone."),
    mistake("for block in reversed(self.blocks):", "for block in list(self.blocks)[-1:]:", "Only the last level is undone."),
    mistake("for block in reversed(self.blocks):", "for block in list(self.blocks)[:0:-1]:", "The first level is not undone."),
    mistake("for block in reversed(self.blocks):", "for block in self.blocks:", "for part in reversed(block):", "for part in block:", "Levels and parts are undone in the order in which they were done; the last has to go first, of both."),
    mistake("x, done = u[:, :block[0].width], u[:, block[0].width:]", "x, done = u, u[:, :0]", "All columns go through the parts of a level. It knows only its own, the first ones."),
    mistake("u = torch.cat([x, done], dim=1)", "u = x", "Only the columns of the last level go on. Each level has a width of its own, and what waits belongs behind."),
    mistake("    return u", "    return u.detach()", "The way back has no graph, so nobody can learn through it."),
    mistake("    return u", "    return u.to(z.dtype)", "The result goes back to the dtype of `z`. That of the weights was promised."),
    mistake("enabled=False", "enabled=True", "Autocast is switched on here; it has to be off."),
]

VARIANTS["flow.inverse"] = [
    '''
@torch.autocast("cpu", enabled=False)
def inverse(self, z):
    u = self._check_latent(z)
    for k in range(len(self.blocks) - 1, -1, -1):
        block = self.blocks[k]
        width = block[0].width
        x = u[:, :width]
        for part in list(block)[::-1]:
            x = part.inverse(x)
        u = torch.cat([x, u[:, width:]], dim=-1)
    return u
''',
    '''
@torch.autocast("cpu", enabled=False)
def inverse(self, z):
    def undo(blocks, x):
        if not blocks:
            return x
        n = blocks[0][0].width
        inner = undo(blocks[1:], x[:, : blocks[1][0].width] if len(blocks) > 1 else x[:, :n])
        x = torch.cat([inner, x[:, inner.shape[1]:]], dim=1)
        first, rest = x[:, :n], x[:, n:]
        for part in reversed(list(blocks[0])):
            first = part.inverse(first)
        return torch.cat([first, rest], dim=1)
    return undo(list(self.blocks), z.to(self.blocks[0][0].shift.dtype))
''',
]


# ---- flow.sample
#
# Four thousand samples of a flow, undone by its own `through`: what comes out must be a Gaussian with the spread that was asked for. With the same
# generator the same samples come; at temperature 0 all are one point.

def sample_cases(generator):
    seed = int(torch.randint(1000, (), generator=generator))
    return [Case("temperature 1", {"seed": seed}), Case("temperature 0.5", {"seed": seed, "temperature": 0.5}),
            Case("temperature 2, two levels", {"seed": seed, "temperature": 2.0, "levels": 2}), Case("temperature 0", {"seed": seed, "temperature": 0.0})]


def run_sample(kind, inputs):
    settings = {"temperature": inputs["temperature"]} if "temperature" in inputs else {}
    flow = started(kind, 5, 4, depth=1, levels=inputs.get("levels", 1), coupling="affine")
    seeded = lambda plus=0: torch.Generator().manual_seed(inputs["seed"] + plus)
    before = torch.get_rng_state()
    u = flow.sample(4000, generator=seeded(), **settings)
    untouched = torch.equal(before, torch.get_rng_state())
    z, spread = flow.through(u.double())[0], settings.get("temperature", 1.0) or 1e-3
    few, more, other = (flow.sample(3, seeded(plus), **settings) for plus in (0, 0, 1))
    goes_on, z = seeded(), z / spread
    twice = [flow.sample(3, goes_on, **settings) for _ in range(2)]
    return {"shape": torch.tensor(u.shape), "without graph": not u.requires_grad, "in the dtype of the weights": u.dtype == torch.float64, "means of the latent vectors": z.mean(0), "their covariance": z.T @ z / len(z),
            "share of them within one spread": (z.abs() < 1).double().mean(0),
            "tails like a Gaussian's": bool(abs(z.pow(4).mean() - 3) < 0.5), "rows that know nothing of each other": all(bool((a * b).mean().abs() < 0.1) for a, b in ((z[:2000], z[2000:]), (z[::2], z[1::2]))),
            "the random state goes on": inputs.get("temperature") == 0 or not torch.equal(*twice),
            "the same seed, the same samples": torch.equal(few, more), "another seed, other samples": inputs.get("temperature") == 0 or not torch.equal(few, other),
            "torch's own random state is left alone": untouched,
            "without a generator, other samples each time": inputs.get("temperature") == 0 or not torch.equal(*(flow.sample(2, **settings) for _ in range(2))), "none": torch.tensor(flow.sample(0, seeded()).shape)}


TRIALS["flow.sample"] = Trial(sample_cases, run_sample, replay=True, atol=0.16, hints=(
    "Which way does a sample go, from data to latent or back?", "Draw from the standard Gaussian, (n, D), scale by the temperature, undo the flow.",
    "z = torch.randn(n, self.width, generator=generator, dtype=...); self.inverse(temperature * z), under no_grad."))

MISTAKES["flow.sample"] = [
    mistake("temperature * z", "z", "The temperature is not used."),
    mistake("return self.inverse(temperature * z.to(like.device))", "return temperature * self.inverse(z.to(like.device))", "The temperature multiplies the vectors and not the latent ones: they move away from the data, too."),
    mistake("temperature * z", "temperature**2 * z", "The temperature is squared; it is the spread itself."),
    mistake("@torch.no_grad()\ndef", "def", "The samples keep a graph through the whole flow; they should come without."),
    mistake("generator=generator, device=device", "generator=generator or torch.Generator(), device=device",
            "Where no generator is given a new one is made. A new one starts from the same seed at every call; None means torch's own random state."),
    mistake("temperature * z", "temperature**0.5 * z", "The root of the temperature is the spread; it should be the temperature itself."),
    mistake("temperature * z.to(like.device)", "z.to(like.device) / max(temperature, 1e-3)", "The latent vectors are divided by the temperature."),
    mistake("return self.inverse(temperature * z.to(like.device))", "return self.through(temperature * z.to(like.device))[0]", "The samples are sent from data to latent instead of back."),
    mistake("return self.inverse(temperature * z.to(like.device))", "return temperature * z.to(like.device)", "Latent vectors are returned; nothing is undone."),
    mistake("torch.randn(n, self.width, generator=generator, device=device, dtype=like.dtype)", "torch.rand(n, self.width, generator=generator, device=device, dtype=like.dtype)",
            "The latent vectors are uniform between 0 and 1, not Gaussian."),
    mistake("torch.randn(n, self.width, generator=generator, device=device, dtype=like.dtype)", "torch.randn(n, self.width, device=device, dtype=like.dtype)",
            "The generator is not used, so samples cannot be repeated."),
    mistake("generator=generator, device=device", "generator=torch.Generator().manual_seed(0), device=device", "The numbers are drawn from a fixed seed, so the same samples come every time."),
    mistake("torch.randn(n, self.width, generator=generator, device=device, dtype=like.dtype)", "(torch.rand(n, self.width, generator=generator, device=device, dtype=like.dtype) - 0.5) * 12**0.5",
            "The latent vectors are uniform, with the spread of a Gaussian and without its tails."),
    mistake("generator=generator, device=device", "generator=None if generator is None else torch.Generator().manual_seed(generator.initial_seed()), device=device",
            "The random state is copied and starts again, so a generator gives the same samples at every call."),
    mistake("torch.randn(n, self.width, generator=generator, device=device, dtype=like.dtype)", "torch.randn(n, 1, generator=generator, device=device, dtype=like.dtype).expand(n, self.width)",
            "One number is drawn for a whole vector, so all of its columns are the same."),
    mistake("torch.randn(n, self.width, generator=generator, device=device, dtype=like.dtype)", "torch.randn((n + 1) // 2, self.width, generator=generator, device=device, dtype=like.dtype).repeat_interleave(2, 0)[:n]",
            "Every second sample repeats the one before it."),
]

VARIANTS["flow.sample"] = [
    '''
@torch.no_grad()
def sample(self, n, generator=None, temperature=1.0):
    z = torch.stack([torch.randn(self.width, generator=generator, dtype=torch.float64) for _ in range(n)]) if n else torch.zeros(0, self.width)
    return self.inverse(z * temperature)
''',
    '''
def sample(self, n, generator=None, temperature=1.0):
    z = torch.empty(self.width, n).normal_(0, 1, generator=generator).T
    with torch.no_grad():
        return self.inverse(temperature * z).detach()
''',
]


# ---- flow.nll
#
# Three units to get wrong (nats, bits, bits per dimension), two constants, a sum over columns that is easily a mean, and one sign that matters most.
# Latent vectors are short in one case and long in another, as a missing ½ hides where |z|² is small, and a missing constant where it is large. The
# rows differ, so no mean over the batch can pass.

def nll_cases(generator):
    u = fixed(generator, 4, 7)
    return [Case("bits per dimension", {"u": u[:, :5], "depth": 1}), Case("nats", {"u": u[:, :5], "depth": 1, "unit": "nats"}),
            Case("the unit that nobody asked for", {"u": u[:, :3], "depth": 1, "coupling": "affine"}), Case("far away, nats", {"u": 30 * u, "levels": 2, "depth": 1, "coupling": "affine", "unit": "nats"}),
            Case("near the origin, bits", {"u": 0.01 * u, "depth": 1, "coupling": "affine", "unit": "bits"}), Case("one row", {"u": u[:1, :2], "depth": 1, "mixing": "lu", "unit": "nats"}),
            Case("so dense a cloud that -log p is below 0", {"u": 1e-3 * u, "depth": 1, "unit": "nats", "stretch": 1.5}),
            Case("half precision into single", {"u": u.bfloat16(), "depth": 2})]


def run_nll(kind, inputs):
    u, unit = inputs["u"], {"unit": inputs["unit"]} if "unit" in inputs else {}
    flow = started(kind, u.shape[1], 2, **{name: value for name, value in inputs.items() if name not in ("u", "unit", "stretch")})
    for part in flow.modules():
        if "stretch" in inputs and hasattr(part, "logs"):
            part.logs.data.add_(inputs["stretch"] / 3), part.shift.data.zero_()
    if u.dtype == torch.bfloat16:
        return {"-log p": flow.float().nll(u, **unit)}
    nll = flow.nll(u, **unit)
    again = flow.nll(leaf := u.clone().requires_grad_(), **unit)
    return {"-log p": nll, **gradients((again * probe(again)).sum(), {"u": leaf, **dict(flow.named_parameters())})}


TRIALS["flow.nll"] = Trial(nll_cases, run_nll, subject="flow", rtol=1e-9, hints=(
    "log p(u) = log N(z; 0, I) + log|det|. Write the first one down for D columns, then change all signs.",
    "-log N(z; 0, I) = |z|² / 2 + D/2 log 2π, a number for each row. log|det| is subtracted. A bit is ln 2 nats.",
    "z, log_det = self(u); nats = z.square().sum(1) / 2 + self.width / 2 * math.log(2 * math.pi) - log_det; bits per dimension divide that by D ln 2."))

_WRONG_BITS = "nats / (self.width * math.log(2))"
MISTAKES["flow.nll"] = [
    mistake("math.log(2 * math.pi) - log_det", "math.log(2 * math.pi) + log_det", "The sign of log|det| is wrong: the flow is rewarded for shrinking the cloud to a point."),
    mistake("math.log(2 * math.pi) - log_det", "math.log(2 * math.pi)", "log|det| is missing: only the image's own likelihood counts, and shrinking wins."),
    mistake("nats = z.square().sum(1) / 2 + self.width / 2 * math.log(2 * math.pi)", "nats = z.square().sum(1) / 2", "The constant D/2 log 2π is missing, so the density does not add up to 1."),
    mistake("self.width / 2 * math.log", "0.5 * math.log", "The constant ½ log 2π is counted once; it belongs to each of the D columns."),
    mistake("self.width / 2 * math.log", "self.width * math.log", "The constant is D log 2π, twice what it should be."),
    mistake("math.log(2 * math.pi)", "math.log(math.pi)", "The constant has log π instead of log 2π."),
    mistake("math.log(2 * math.pi)", "2 * math.pi", "The constant has 2π itself, not its logarithm."),
    mistake("z.square().sum(1) / 2", "z.square().sum(1)", "|z|² is not halved."),
    mistake("z.square().sum(1) / 2", "z.square().mean(1) / 2", "The squares are averaged over the columns, not added up: the likelihood of a whole vector is a product."),
    mistake("z.square().sum(1) / 2", "z.norm(dim=1) / 2", "The length of z is taken, not its square."),
    mistake("z.square().sum(1) / 2", "u.square().sum(1) / 2", "The Gaussian is asked about the vectors as they came, not about their images."),
    mistake("z.square().sum(1) / 2", "z.square().sum() / 2", "|z|² is added up over the whole batch."),
    mistake(_WRONG_BITS, "nats / math.log(2)", "The bits are those of the whole vector; bits per dimension are divided by D as well."),
    mistake(_WRONG_BITS, "nats / self.width", "The result is divided by D and stays in nats; a bit is ln 2 nats."),
    mistake(_WRONG_BITS, "nats / self.width * math.log(2)", "Nats are multiplied by ln 2; to get bits, divide."),
    mistake("z.square().sum(1) / 2", "z.detach().square().sum(1) / 2", "The image is detached, so nothing pulls it towards the origin."),
    mistake("nats = z.square().sum(1) / 2 + self.width / 2 * math.log(2 * math.pi) - log_det", "nats = (z.square().sum(1) / 2 + self.width / 2 * math.log(2 * math.pi) - log_det).clamp_min(0)",
            "The result is cut off at 0. A density may be above 1, and -log p below 0."),
    mistake(_WRONG_BITS + ' if unit == "bits" else nats', "nats", "The result is always in nats."),
    mistake(_WRONG_BITS + ' if unit == "bits" else nats', _WRONG_BITS, "The result is always in bits per dimension."),
    mistake(_WRONG_BITS + ' if unit == "bits" else nats', 'nats if unit == "bits" else ' + _WRONG_BITS, "The units are exchanged: nats come where bits per dimension were asked for."),
    mistake(_WRONG_BITS + ' if unit == "bits" else nats', 'nats / self.width / (math.log(2) if unit == "bits" else 1)', "Nats are divided by D too; in nats the whole vector counts."),
    mistake(_WRONG_BITS + ' if unit == "bits" else nats', "-" + _WRONG_BITS + ' if unit == "bits" else -nats', "The log-likelihood is returned, not its negative."),
    mistake(_WRONG_BITS + ' if unit == "bits" else nats', "(" + _WRONG_BITS + ' if unit == "bits" else nats).mean()', "The mean over the batch is returned; one number a row was asked for."),
    mistake("z, log_det = self(u)", "z, log_det = self(u)\n    log_det = log_det.detach()", "log|det| is detached, so the scales feel only the pull towards the origin."),
    mistake("math.log(2 * math.pi) - log_det", "math.log(2 * math.pi) - log_det.mean()", "log|det| is averaged over the batch; each row has its own."),
    mistake("nats = z.square().sum(1) / 2 +", "nats = -z.square().sum(1) / 2 +", "The sign of |z|² is wrong: what lies far out counts as likely."),
    mistake("math.log(2 * math.pi) - log_det", "math.log(2 * math.pi) - log_det / self.width", "log|det| is divided by D by itself. Only the whole is, and only for bits."),
]

VARIANTS["flow.nll"] = [
    '''
def nll(self, u, unit="bits"):
    z, log_det = self(u)
    log_p = torch.distributions.Normal(0.0, 1.0).log_prob(z).sum(dim=-1) + log_det
    if unit == "nats":
        return -log_p
    return -log_p / z.shape[1] / math.log(2)
''',
    '''
def nll(self, u, unit="bits"):
    z, log_det = self(u)
    losses = []
    for row, change in zip(z, log_det):
        density = -0.5 * torch.dot(row, row) - len(row) * math.log(math.sqrt(2 * math.pi)) + change
        losses.append(-density if unit == "nats" else -density * math.log2(math.e) / len(row))
    return torch.stack(losses)
''',
]


# ---- How strong?
