"""Mutants of `minbert.exercise_cases.bregman`: their checks must reject them all."""

from minbert.course.check_runner import mistake
from minbert.exercise_cases.bregman import _WRONG_WEAR, _wrong_move

MUTANTS = {}


MUTANTS["bregman.average"] = [
    _wrong_move(
        "old.data = torch.lerp(old, new.data, 1 - beta)",
        "The tensors are given other memory. The copied model reads the old one, whose values "
        "stay as they were.",
    ),
    _wrong_move(
        "old.mul_(beta).add_((new - old) * (1 - beta))",
        "The difference is taken after the average has been scaled, so the sum is no average.",
    ),
    _wrong_move(
        "old.add_((new - old).sign() * (new - old).square() * (1 - beta))",
        "The average moves by the square of the difference instead of the difference.",
    ),
    _wrong_move(
        "old.add_(new, alpha=1 - beta).mul_(beta)",
        "The new parameters are multiplied by beta as well.",
    ),
    _wrong_move(
        "old.lerp_(new, 0.01)",
        "beta is always 0.99, whatever was asked for.",
    ),
]


MUTANTS["bregman.renew"] = [
    mistake(
        "self.switch is not None and n >= self.switch",
        "self.switch is None or n >= self.switch",
        "Without a switch the later beta is used. None means never.",
    ),
    mistake(
        "self.switch is not None and n >= self.switch",
        "self.switch and n >= self.switch",
        "A switch at step 0 counts as none, since 0 is false. None is what means never.",
    ),
    mistake(
        "update_average(copies.sets[0], copies.trained, self.late_beta if late else self.beta)",
        "beta = self.late_beta if late else self.beta\n"
        "        update_average(copies.sets[0], copies.trained, 1 - (1 - beta) / (1 - beta ** (n + 1)))",
        "The average is corrected for its start, as in Adam. It started from the parameters "
        "themselves, so there is nothing to correct.",
    ),
    mistake(
        'if self.previous == "ema" and n > 0:',
        'if self.previous == "ema" and n > 0 and n % 2 == 0:',
        "The average is renewed at every other step only, and copied in between.",
    ),
    mistake(
        _WRONG_WEAR,
        "copies.use(max(0, n - self.lag + 1 if self.lag else n) % len(copies.sets))",
        "The previous iterate is one step too young: `lag` 1 means the parameters one step ago.",
    ),
    mistake(
        "copies.store(n % len(copies.sets))",
        "if n % len(copies.sets) == 0:\n"
        "            for number in range(len(copies.sets)):\n"
        "                copies.store(number)",
        "The copy is renewed every few steps and stays until then: that is an epoch, not a lag.",
    ),
    mistake(
        "    " + _WRONG_WEAR,
        '    if self.previous == "ema" or n % len(copies.sets) == 0:\n        ' + _WRONG_WEAR,
        "Another set is used only when all are full. It has to change at every step.",
    ),
    mistake(
        _WRONG_WEAR,
        "copies.use(max(0, n - self.lag - 1 if self.lag else n) % len(copies.sets))",
        "The set that was just filled is used, since n - lag - 1 is the same as n modulo the "
        "number of sets. The previous iterate is then the model itself.",
    ),
    mistake(
        "copies.store(n % len(copies.sets))",
        "copies.store(n % max(1, self.lag))",
        _WRONG_WEAR,
        "copies.use(max(0, n - self.lag) % max(1, self.lag))",
        "The sets are counted round by `lag`. There are `lag` + 1 of them.",
    ),
    mistake(
        'self.previous != "epoch" or n % self.every == 0',
        'n == 0 or self.previous == "epoch" and n % self.every == 0',
        "A copy with a lag is never renewed after the start.",
    ),
    mistake(
        "n % self.every == 0",
        "n % self.every == 1 or n == 0",
        "The epochs begin at step 1. They begin at steps 0, `every`, 2 `every`.",
    ),
    mistake(
        "n % self.every == 0", "n % (self.every + 1) == 0", "An epoch lasts one step too long."
    ),
    mistake(
        "copies, n = self.copies, self.step",
        "copies, n = self.copies, self.step + 1",
        "The steps are counted from 1; `self.step` counts from 0, and so do `every` and `switch`.",
    ),
    mistake(
        "self.late_beta if late else self.beta",
        "self.beta if late else self.late_beta",
        "The two betas are exchanged: `late_beta` counts from `switch` on.",
    ),
    mistake(
        "self.late_beta if late else self.beta",
        "0.99",
        "beta is always 0.99, whatever was asked for.",
    ),
    mistake(
        "n >= self.switch",
        "n == self.switch",
        "The later beta is used at step `switch` alone; it stays from there on.",
    ),
    mistake(
        'if self.previous == "ema" and n > 0:',
        'if self.previous == "ema" and n > 1:',
        "At step 1 the parameters are copied; there the average moves already.",
    ),
    mistake(
        "copies, n = self.copies, self.step",
        'self.count = getattr(self, "count", -1) + 1\n    copies, n = self.copies, self.count',
        "The steps are counted beside `self.step`, so a run that goes on starts again from 0.",
    ),
]
