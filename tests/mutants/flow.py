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
        "log_det = log_det + change / len(block)",
        "The mean of the log |det| in a block is taken; they add up.",
    ),
    mistake(
        _WRONG_SUM,
        "log_det = log_det + change.sum()",
        "Each row gets the log |det| of the whole batch.",
    ),
    mistake(
        "x, done = z[:, :block[0].width], z[:, block[0].width:]",
        "done, x = z[:, :-block[0].width], z[:, -block[0].width:]",
        "z = torch.cat([x, done], dim=1)",
        "z = torch.cat([done, x], dim=1)",
        "Each level works on the last columns; the first ones go on.",
    ),
    mistake(
        "x, change = part(x)",
        "image, change = part(x)\n            x = image if part is block[-1] else x",
        "Each part gets the block's input instead of what the part before it gave.",
    ),
    mistake(
        "            if start:\n                part._fit(x)\n",
        "",
        "The parts do not start from data: `start` has no effect.",
    ),
    mistake(
        "            if start:\n                part._fit(x)\n            x, change = part(x)",
        "            if start:\n"
        "                part._fit(z[:, :block[0].width])\n"
        "            x, change = part(x)",
        "Each part starts from the block's input and not from what it is about to see.",
    ),
    mistake(
        "            if start:\n                part._fit(x)\n            x, change = part(x)",
        "            if start:\n"
        "                part._fit(x)\n"
        "            x, change = part(x.detach())",
        "What is handed on is detached, so earlier parts do not learn from later ones.",
    ),
]


MUTANTS["flow.inverse"] = [
    mistake(
        "with torch.autocast(u.device.type, enabled=False):",
        "if True:",
        "Under autocast the products on the way back are rounded to bfloat16.",
    ),
    mistake(
        "u = self._check_latent(z)",
        "u = z",
        "The latent vectors are taken in the dtype in which they came; the weights may have "
        "another.",
    ),
    mistake(
        "for block in reversed(self.blocks):",
        "for block in list(self.blocks)[:1]:",
        "Only the first level is undone.",
    ),
    mistake(
        "x = part.inverse(x)",
        "x = part.inverse(x.detach())",
        "What is handed on is detached, so nothing behind the inverse can be learned.",
    ),
    mistake(
        "x = part.inverse(x)\n            u = torch.cat([x, done], dim=1)",
        "y = part.inverse(x)\n            u = torch.cat([y, done], dim=1)",
        "Each part undoes the block's input instead of what the part before it gave.",
    ),
    mistake(
        "for part in reversed(block):",
        "for part in list(block)[-2::-1]:",
        "The last part of each block is not undone.",
    ),
    mistake(
        "for block in reversed(self.blocks):",
        "for block in list(self.blocks)[-1:]:",
        "Only the last level is undone.",
    ),
    mistake(
        "for block in reversed(self.blocks):",
        "for block in list(self.blocks)[:0:-1]:",
        "The first level is not undone.",
    ),
    mistake(
        "x, done = u[:, :block[0].width], u[:, block[0].width:]",
        "x, done = u, u[:, :0]",
        "All columns go through the parts of a level. It knows only its own, the first ones.",
    ),
    mistake(
        "u = torch.cat([x, done], dim=1)",
        "u = x",
        "Only the columns of the last level go on. Each level has a width of its own, and what "
        "waits belongs behind.",
    ),
    mistake(
        "    return u",
        "    return u.to(z.dtype)",
        "The result goes back to the dtype of `z`. That of the weights was promised.",
    ),
    mistake("enabled=False", "enabled=True", "Autocast is switched on here; it has to be off."),
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
