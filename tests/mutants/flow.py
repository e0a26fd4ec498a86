"""Mutants of `minbert.exercise_cases.flow`: their checks must reject them all."""

from minbert.course.check_runner import mistake
from minbert.exercise_cases.flow import _WRONG_BITS, _WRONG_SUM

MUTANTS = {}


MUTANTS["flow.through"] = [
    mistake(
        _WRONG_SUM,
        "log_det = log_det * change if log_det.any() else change",
        "The log |det| are multiplied; determinants multiply, their logarithms add up.",
    ),
    mistake(
        _WRONG_SUM,
        "log_det = log_det + change / len(level)",
        "The mean of the log |det| in a level is taken; they add up.",
    ),
    mistake(
        _WRONG_SUM,
        "log_det = log_det + change.sum()",
        "Each row gets the log |det| of the whole batch.",
    ),
    mistake(
        "active, finished = z[:, :k], z[:, k:]",
        "finished, active = z[:, :-k], z[:, -k:]",
        "z = torch.cat([active, finished], dim=1)",
        "z = torch.cat([finished, active], dim=1)",
        "Each level transforms the last dimensions instead of the first ones.",
    ),
    mistake(
        "active, change = layer(active)",
        "image, change = layer(active)\n            active = image if layer is level[-1] else active",
        "Each layer gets the input of the level instead of the output of the previous layer.",
    ),
    mistake(
        "active, change = layer(active)",
        "active, change = layer(active.detach())",
        "The input of each layer is detached, so earlier layers get no gradient from later ones.",
    ),
]


MUTANTS["flow.inverse"] = [
    mistake(
        "for level in reversed(self.levels):",
        "for level in list(self.levels)[:1]:",
        "Only the first level is undone.",
    ),
    mistake(
        "active = layer.inverse(active)",
        "active = layer.inverse(active.detach())",
        "The input of each inverse is detached, so no gradient passes through the inverse.",
    ),
    mistake(
        "active = layer.inverse(active)\n        u = torch.cat([active, finished], dim=1)",
        "y = layer.inverse(active)\n        u = torch.cat([y, finished], dim=1)",
        "Each layer undoes the input of the level instead of the output of the previous layer.",
    ),
    mistake(
        "for layer in reversed(level):",
        "for layer in list(level)[-2::-1]:",
        "The last layer of each level is not undone.",
    ),
    mistake(
        "for level in reversed(self.levels):",
        "for level in list(self.levels)[-1:]:",
        "Only the last level is undone.",
    ),
    mistake(
        "for level in reversed(self.levels):",
        "for level in list(self.levels)[:0:-1]:",
        "The first level is not undone.",
    ),
    mistake(
        "active, finished = u[:, :k], u[:, k:]",
        "active, finished = u, u[:, :0]",
        "All dimensions pass through the layers of a level. It has only its own, the first ones.",
    ),
    mistake(
        "u = torch.cat([active, finished], dim=1)",
        "u = active",
        "Only the dimensions of the last level are kept. The finished ones belong behind them.",
    ),
]


MUTANTS["flow.sample"] = [
    mistake(
        "temperature * z",
        "temperature**2 * z",
        "The temperature is squared; it is the spread itself.",
    ),
    mistake(
        "generator=generator, device=device",
        "generator=generator or torch.Generator(), device=device",
        "Where no generator is given a new one is made. A new one starts from the same seed at "
        "every call; None means torch's own random state.",
    ),
    mistake(
        "temperature * z",
        "temperature**0.5 * z",
        "The root of the temperature is the spread; it should be the temperature itself.",
    ),
    mistake(
        "generator=generator, device=device",
        "generator=torch.Generator().manual_seed(0), device=device",
        "The numbers are drawn from a fixed seed, so the same samples come every time.",
    ),
    mistake(
        "torch.randn(n, self.width, generator=generator, device=device, dtype=like.dtype)",
        "(torch.rand(n, self.width, generator=generator, device=device, dtype=like.dtype) - "
        "0.5) * 12**0.5",
        "The latent vectors are uniform, with the spread of a Gaussian and without its tails.",
    ),
    mistake(
        "generator=generator, device=device",
        "generator=None if generator is None else "
        "torch.Generator().manual_seed(generator.initial_seed()), device=device",
        "The random state is copied and starts again, so a generator gives the same samples at "
        "every call.",
    ),
    mistake(
        "torch.randn(n, self.width, generator=generator, device=device, dtype=like.dtype)",
        "torch.randn(n, 1, generator=generator, device=device, dtype=like.dtype).expand(n, "
        "self.width)",
        "One number is drawn for a whole vector, so all of its columns are the same.",
    ),
    mistake(
        "torch.randn(n, self.width, generator=generator, device=device, dtype=like.dtype)",
        "torch.randn((n + 1) // 2, self.width, generator=generator, device=device, "
        "dtype=like.dtype).repeat_interleave(2, 0)[:n]",
        "Every second sample repeats the one before it.",
    ),
]


MUTANTS["flow.nll"] = [
    mistake(
        "self.width / 2 * math.log",
        "self.width * math.log",
        "The constant is D log 2π, twice what it should be.",
    ),
    mistake(
        "math.log(2 * math.pi)", "math.log(math.pi)", "The constant has log π instead of log 2π."
    ),
    mistake(
        "math.log(2 * math.pi)", "2 * math.pi", "The constant has 2π itself, not its logarithm."
    ),
    mistake(
        "z.square().sum(1) / 2", "z.norm(dim=1) / 2", "The length of z is taken, not its square."
    ),
    mistake(
        "z.square().sum(1) / 2",
        "u.square().sum(1) / 2",
        "The Gaussian is asked about the vectors as they came, not about their images.",
    ),
    mistake(
        "z.square().sum(1) / 2", "z.square().sum() / 2", "|z|² is added up over the whole batch."
    ),
    mistake(
        _WRONG_BITS,
        "nats / math.log(2)",
        "The bits are those of the whole vector; bits per dimension are divided by D as well.",
    ),
    mistake(
        _WRONG_BITS,
        "nats / self.width",
        "The result is divided by D and stays in nats; a bit is ln 2 nats.",
    ),
    mistake(
        "z.square().sum(1) / 2",
        "z.detach().square().sum(1) / 2",
        "The image is detached, so nothing pulls it towards the origin.",
    ),
    mistake(
        "nats = z.square().sum(1) / 2 + self.width / 2 * math.log(2 * math.pi) - log_det",
        "nats = (z.square().sum(1) / 2 + self.width / 2 * math.log(2 * math.pi) - "
        "log_det).clamp_min(0)",
        "The result is cut off at 0. A density may be above 1, and -log p below 0.",
    ),
    mistake(_WRONG_BITS + ' if unit == "bits" else nats', "nats", "The result is always in nats."),
    mistake(
        _WRONG_BITS + ' if unit == "bits" else nats',
        _WRONG_BITS,
        "The result is always in bits per dimension.",
    ),
    mistake(
        _WRONG_BITS + ' if unit == "bits" else nats',
        'nats if unit == "bits" else ' + _WRONG_BITS,
        "The units are exchanged: nats come where bits per dimension were asked for.",
    ),
    mistake(
        _WRONG_BITS + ' if unit == "bits" else nats',
        'nats / self.width / (math.log(2) if unit == "bits" else 1)',
        "Nats are divided by D too; in nats the whole vector counts.",
    ),
    mistake(
        _WRONG_BITS + ' if unit == "bits" else nats',
        "(" + _WRONG_BITS + ' if unit == "bits" else nats).mean()',
        "The mean over the batch is returned; one number a row was asked for.",
    ),
    mistake(
        "z, log_det = self(u)",
        "z, log_det = self(u)\n    log_det = log_det.detach()",
        "log|det| is detached, so the scales feel only the pull towards the origin.",
    ),
    mistake(
        "math.log(2 * math.pi) - log_det",
        "math.log(2 * math.pi) - log_det.mean()",
        "log|det| is averaged over the batch; each row has its own.",
    ),
    mistake(
        "nats = z.square().sum(1) / 2 +",
        "nats = -z.square().sum(1) / 2 +",
        "The sign of |z|² is wrong: what lies far out counts as likely.",
    ),
    mistake(
        "math.log(2 * math.pi) - log_det",
        "math.log(2 * math.pi) - log_det / self.width",
        "log|det| is divided by D by itself. Only the whole is, and only for bits.",
    ),
]
