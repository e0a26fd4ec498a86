"""How the exercise of chapter 32 that draws points is checked: shapes by their averages."""


import math

import torch

from minbert.course.trials import Case, Trial, mistake


# Twenty thousand points on a ball say what ball it is: how large the coordinates are on average, and their squares, and how far in the points lie.
# Two right programs agree to a hundredth, and a Gaussian divided by the wrong norm does not.

TRIALS, MISTAKES, VARIANTS = {}, {}, {}


# ---- smoothness.points
#
# Surfaces and volumes for p from 1 to infinity. Exact: the norm of each point on a surface, shapes, kinds, the same points from the same seed. By
# averages: sizes, squares, the largest coordinate, the mean, how far in. The tolerance of .02 is five times what chance does to a mean of 20,000, or
# more; what chance moves further is divided by three or five.

def points_cases(generator):
    seed = int(torch.randint(1000, (), generator=generator))
    return [Case(f"{where}, p = {p:g}, width {width}", {"width": width, "p": p, "where": where, "radius": radius, "seed": seed})
            for where, p, width, radius in (("surface", 2.0, 3, 0.1), ("surface", 1.0, 3, 2.0), ("surface", math.inf, 4, 0.5), ("surface", 3.0, 2,
                1.0), ("surface", 1.5, 2, 3.0),
                                            ("volume", 2.0, 3, 0.1), ("volume", 1.0, 2, 5.0), ("volume", math.inf, 2, 1.0), ("volume", 2.0, 1, 4.0))]


def _halves_and_neighbours(x):
    """Pairs of points that a program might make from one draw: half of them apart, and side by side."""
    return {"half of all apart": (x[:len(x) // 2], x[len(x) // 2:]), "side by side": (x[::2], x[1::2])}


def run_points(ball_points, inputs):
    seed, r, p = inputs.pop("seed"), inputs["radius"], inputs["p"]
    seeded = lambda: torch.Generator().manual_seed(seed)
    x = ball_points(20000, **inputs, generator=seeded(), dtype=torch.float64) / r
    few = ball_points(3, **inputs, generator=seeded())
    torch.default_generator.manual_seed(2)
    goes_on = seeded()
    norm, again = torch.linalg.vector_norm(x, p, -1), ball_points(3, **inputs, generator=seeded())
    pairs = _halves_and_neighbours(x)
    exact = {"every norm is the radius": (norm - 1).abs().max() < 1e-6} if inputs["where"] == "surface" else {"no norm is above the radius": norm.max() < 1 + 1e-6}
    if inputs["where"] == "volume":
        exact |= {f"a tenth of the correlation of two norms, {name}": torch.corrcoef(torch.stack([torch.linalg.vector_norm(y, p, -1) for y in pair]))[0, 1] / 10 for name, pair in pairs.items()}
    exact |= {f"a third of the mean product of two points, {name}": (a * b).sum(1).mean() / 3 for name, (a, b) in pairs.items()}
    return exact | {"shape of 3 points": torch.tensor(few.shape), "dtypes as asked for": few.dtype == torch.float32 and x.dtype == torch.float64,
        "the same seed gives the same points": torch.equal(few, again),
        "a generator goes on": not torch.equal(*(ball_points(3, **inputs, generator=goes_on) for _ in range(2))),
        "without a generator, other points each time": not torch.equal(*(ball_points(3, **inputs) for _ in range(2))),
                    "mean norm / radius": norm.mean(), "a third of the mean coordinate / radius": x.mean(0) / 3,
                    "mean size of a coordinate": x.abs().mean(0),
                    "mean square of a coordinate": x.square().mean(0), "mean fourth power": x.pow(4).mean(0),
                    "a fifth of the mean product of two signs": (x[:, 0] * x[:, -1]).sign().mean() / 5,
                    "a third of the mean product of two points": (x[1:] * x[:-1]).sum(1).mean() / 3}


TRIALS["smoothness.points"] = Trial(points_cases, run_points, replay=True, atol=0.02, hints=(
    "Draw with density exp(-|y|^p) in each coordinate, then bring each point to the norm it should have. In a ball, how much of the volume lies "
    "within half of the radius?",
    "`_bell` draws. The p-norm is `torch.linalg.vector_norm(y, p, -1, keepdim=True)`. The share of the volume within s is s^D, so s = U^(1/D).",
    "x = radius * y / |y|_p; for \"volume\" times torch.rand(n, 1) ** (1 / width), everything from `generator`, in `dtype`."))


_WRONG_DRAW = "y = _bell(torch.empty(n, width, dtype=dtype, device=device), p, generator)"

MISTAKES["smoothness.points"] = [
    mistake(_WRONG_DRAW, _WRONG_DRAW.replace(", p, gen", ", 2, gen"),
        "Normal numbers are drawn for every p. Scaled to another norm they crowd in some directions."),
    mistake(_WRONG_DRAW, _WRONG_DRAW.replace(", p, gen", ", math.inf, gen"),
        "Numbers between -1 and 1 are drawn for every p, so the corners of the cube get too many points."),
    mistake("torch.linalg.vector_norm(y, p, -1, keepdim=True)", "torch.linalg.vector_norm(y, 2, -1, keepdim=True)",
        "The points are divided by their length, whatever p is."),
    mistake("torch.linalg.vector_norm(y, p, -1, keepdim=True)", "torch.linalg.vector_norm(y, p, 0, keepdim=True)",
        "The norm is taken along the points, not along the coordinates."),
    mistake("x = radius * y /", "x = y /", "The radius is not used."),
    mistake(_WRONG_DRAW, _WRONG_DRAW + ".abs()", "All coordinates are positive: only one corner of the ball is visited."),
    mistake(" ** (1 / width)", "", "The share of the radius is uniform, so the middle of the ball is too full. Volume grows with a power of the "
        "radius."),
    mistake(" ** (1 / width)", " ** width", "The exponent is D instead of 1/D: nearly all points land in the middle."),
    mistake("torch.rand(n, 1, generator", "torch.rand(n, width, generator",
        "Each coordinate is shrunk by a share of its own, which bends the ball. A point has one share."),
    mistake("torch.rand(n, 1, generator", "torch.rand(1, 1, generator", "All points have one share: they lie on a smaller surface."),
    mistake("if where == \"volume\":", "if False:", "`where` is not used: all points lie on the surface."),
    mistake("if where == \"volume\":", "if True:", "`where` is not used: the points fill the ball, when the surface is asked for."),
    mistake("    " + _WRONG_DRAW, "    generator = generator.clone_state() if generator else None\n    " + _WRONG_DRAW,
        "The generator is copied and stays where it was, so two calls with it draw the same points."),
    mistake("    " + _WRONG_DRAW, "    generator = generator or torch.Generator()\n    " + _WRONG_DRAW,
        "Where no generator is given a new one is made. A new one starts from the same seed at every call; None means torch's own random state."),
    mistake("torch.rand(n, 1, generator=generator, ", "torch.rand(n, 1, ", "The generator is used for the directions and not for the shares of the radius."),
    mistake(" ** (1 / width)", " ** 0.5", "The exponent is 1/2, which is right in the plane only; it is 1/D."),
    mistake(_WRONG_DRAW, _WRONG_DRAW.replace("generator)", "None)"), "The generator is not used, so a resumed run sees other points."),
    mistake("    " + _WRONG_DRAW, "    " + _WRONG_DRAW.replace("(n, width", "((n + 1) // 2, width") + ".repeat(2, 1)[:n]", "The second half of the points lies in the directions of the first. Each point has a direction of its own."),
    mistake("    " + _WRONG_DRAW, "    " + _WRONG_DRAW.replace("(n, width", "((n + 1) // 2, width") + "\n    y = torch.cat([y, -y])[:n]", "The second half of the points lies opposite to the first. Each point has a direction of its own."),
    mistake("torch.rand(n, 1, generator=generator, dtype=dtype, device=device)", "torch.rand((n + 1) // 2, 1, generator=generator, dtype=dtype, device=device).repeat_interleave(2, 0)[:n]",
        "Two neighbours share their share of the radius. Each point has its own."),
    mistake("if where == \"volume\":", "if where == \"surface\":", "Surface and volume have changed places."),
    mistake("x = radius * y /", "x = radius**2 * y /", "The radius comes in twice."),
    mistake("torch.linalg.vector_norm(y, p, -1, keepdim=True)", "y.abs().pow(p).mean(-1, keepdim=True).pow(1 / p)", "The powers are averaged. A norm adds them up."),
    mistake("torch.linalg.vector_norm(y, p, -1, keepdim=True)", "y.abs().pow(p).sum(-1, keepdim=True).pow(1 / p)", "For p = ∞ there are no powers to add up: the norm is the largest coordinate."),
    mistake("torch.empty(n, width, dtype=dtype, device=device)", "torch.empty(n, width, device=device)", "generator=generator, dtype=dtype, device=device)", "generator=generator, device=device)", "`dtype` is not used."),
    mistake(_WRONG_DRAW, "y = torch.rand(n, width, generator=generator, dtype=dtype, device=device)", "The coordinates are drawn between 0 and 1: only one corner of the ball is visited, and not evenly."),
    mistake(" ** (1 / width)", " ** (1 / n)", "The exponent has the number of points; it is 1/D, D the width."),
    mistake(" ** (1 / width)", " ** (1 / p)", "The exponent is 1/p. Volume grows with the power D of the radius, whatever the norm."),
]

VARIANTS["smoothness.points"] = [
    '''
def ball_points(n, width, radius=1.0, p=2.0, where="surface", generator=None, device="cpu", dtype=torch.float32):
    shape = (n, width)
    if p == math.inf:
        y = 2 * torch.rand(shape, generator=generator, dtype=dtype) - 1
    elif p == 1:
        y = torch.empty(shape, dtype=dtype).exponential_(generator=generator) * (torch.rand(shape, generator=generator) - 0.5).sign()
    else:
        y = _bell(torch.empty(shape, dtype=dtype), p, generator)
    y = y / y.norm(p=p, dim=1)[:, None]
    if where == "volume":
        y = y * torch.exp(torch.log(1 - torch.rand(n, generator=generator, dtype=dtype)) / width)[:, None]
    return y * radius
''', '''
def ball_points(n, width, radius=1.0, p=2.0, where="surface", generator=None, device="cpu", dtype=torch.float32):
    share = torch.rand(n, 1, generator=generator, dtype=dtype) ** (1.0 / width) if where == "volume" else 1.0
    x = _bell(torch.zeros(n, width, dtype=dtype), p, generator)
    size = x.abs().amax(1, keepdim=True) if p == math.inf else x.abs().pow(p).sum(1, keepdim=True).pow(1 / p)
    return x.div_(size).mul_(radius * share)
''',
]


# ---- How strong are they?

# ---- Next
#
# - Draw 200 points instead of 20,000. Which ball can still be told from which?
