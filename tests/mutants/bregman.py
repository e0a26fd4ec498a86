"""Mutants of `minbert.exercise_cases.bregman`: their checks must reject them all."""

from minbert.course.check_runner import mistake
from minbert.exercise_cases.bregman import _WRONG_WEAR, _wrong_move

MUTANTS = {}


MUTANTS["bregman.average"] = [
    _wrong_move(
        "t.mul_(1 - share).add_(w, alpha=share)",
        "At a share of 1 the teacher's own numbers still enter, as 0 times what is there, and 0 "
        "times NaN is NaN: fresh memory may hold one. A share of 1 copies.",
    ),
    _wrong_move(
        "t.data = w.data.clone() if share == 1 else torch.lerp(t, w.data, share)",
        "The tensors are given other memory. The twin reads the old one, and there the numbers "
        "stay as they were.",
    ),
    _wrong_move(
        "t.copy_(w) if share == 1 else t.mul_(share).add_(w, alpha=1 - share)",
        "The two shares are swapped, but for a copy: with beta .99 the teacher would be nearly "
        "the model of this step.",
    ),
    _wrong_move(
        "t.mul_(1 - share).add_(t, alpha=0).add_((w - t) * share)",
        "The difference is taken after the teacher has been scaled, so the sum is not an average.",
    ),
    _wrong_move(
        "t.add_((w - t).sign() * (w - t).square() * share)",
        "The teacher goes by the square of the difference. It should go a share of the way.",
    ),
    mistake(
        "torch._foreach_lerp_(teacher, weights, share)",
        "torch._foreach_add_(teacher, weights, alpha=share)",
        "Except at a share of 1 the teacher's own part is not made smaller, so its weights grow "
        "with every step.",
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
        "twin.take(0, 1 - (self.late_beta if late else self.beta))",
        "beta = self.late_beta if late else self.beta\n"
        "        twin.take(0, (1 - beta) / (1 - beta ** (n + 1)))",
        "The average is corrected for its start, as in Adam. It started from the weights "
        "themselves, so there is nothing to correct.",
    ),
    mistake(
        'if self.teacher == "ema" and n:',
        'if self.teacher == "ema" and n and n % 2 == 0:',
        "The average is renewed at every other step only, and copied in between.",
    ),
    mistake(
        _WRONG_WEAR,
        "twin.wear(max(0, n - self.lag + 1 if self.lag else n) % len(twin.sets))",
        "The teacher is one step too young: `lag` 1 means the weights before this step.",
    ),
    mistake(
        "twin.take(n % len(twin.sets))",
        "if n % len(twin.sets) == 0:\n"
        "            for number in range(len(twin.sets)):\n"
        "                twin.take(number)",
        "The teacher is copied every few steps and stays until the next copy: that is an epoch, "
        "not a lag.",
    ),
    mistake(
        "    " + _WRONG_WEAR,
        '    if self.teacher == "ema" or n % len(twin.sets) == 0:\n        ' + _WRONG_WEAR,
        "The twin puts on another set only when all are full. It has to at every step.",
    ),
    mistake(
        _WRONG_WEAR,
        "twin.wear(max(0, n - self.lag - 1 if self.lag else n) % len(twin.sets))",
        "The set that was just filled is worn: counted round, n - lag - 1 is the same as n. So "
        "the teacher is the model as it is.",
    ),
    mistake(
        "twin.take(n % len(twin.sets))",
        "twin.take(n % max(1, self.lag))",
        _WRONG_WEAR,
        "twin.wear(max(0, n - self.lag) % max(1, self.lag))",
        "The sets are counted round by `lag`. There are `lag` + 1 of them.",
    ),
    mistake(
        'self.teacher != "epoch" or n % self.every == 0',
        'n == 0 or self.teacher == "epoch" and n % self.every == 0',
        "A teacher that lags is never renewed after the start.",
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
        "twin, n = self._twin, self.step",
        "twin, n = self._twin, self.step + 1",
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
        'if self.teacher == "ema" and n:',
        'if self.teacher == "ema" and n > 1:',
        "At step 1 the weights are copied; there the average moves already.",
    ),
    mistake(
        "twin, n = self._twin, self.step",
        'self.count = getattr(self, "count", -1) + 1\n    twin, n = self._twin, self.count',
        "The steps are counted beside `self.step`, so a run that goes on starts again from 0.",
    ),
]


MUTANTS["bregman.answers"] = [
    mistake(
        "        self._twin.follow()\n",
        "",
        'With "same" the teacher has to be in the model\'s mode; it is in eval mode and drops '
        "nothing.",
    ),
    mistake(
        "        drawn = nullcontext()",
        "        self._twin.follow()\n        drawn = nullcontext()",
        'The teacher is put into the model\'s mode and draws noise of its own. "off" is without '
        "dropout.",
    ),
    mistake(
        "clean.head_random_state if frozen else clean.random_state",
        "clean.random_state",
        "A frozen encoder is not run again, so only the draws behind it are to be repeated.",
    ),
    mistake(
        "clean.head_random_state if frozen else clean.random_state",
        "clean.head_random_state",
        "The draws begin at the head. The teacher starts at the words, so they begin there.",
    ),
    mistake(
        "twin.score(task, *clean.vectors) if frozen else twin(",
        "twin(",
        "A frozen encoder is run again, for vectors that are there already.",
    ),
    mistake(
        'self._twin.model.mode == "frozen"',
        "False",
        "A frozen encoder is treated like any other: it is run again, and the draws are those "
        "of the whole pass.",
    ),
    mistake(
        "with torch.no_grad(), narrow, drawn:",
        "with torch.inference_mode(), narrow, drawn:",
        "The answers come from inference mode. No loss can be made of such tensors.",
    ),
    mistake(
        "torch.autocast(clean.outputs.device.type, self.dtype) if self.dtype else nullcontext()",
        "nullcontext()",
        "`dtype` is not used.",
    ),
    mistake(
        "twin(task, part.first, part.second)",
        "twin(task, part.first)",
        "The second input of a pair is not handed on.",
    ),
    mistake(
        "twin.score(task, *clean.vectors)",
        "twin.score(task, clean.vectors[0])",
        "The head does not get all vectors: a pair has two of them, `*clean.vectors`.",
    ),
    mistake(
        "torch.autocast(clean.outputs.device.type, self.dtype) if self.dtype else nullcontext()",
        "torch.autocast(clean.outputs.device.type, torch.bfloat16)",
        "The answers are in bfloat16 even where no `dtype` was asked for.",
    ),
    mistake(
        'if self.dropout == "off":',
        "if False:",
        "`dropout` is not read: the teacher always has the model's.",
    ),
    mistake(
        'if self.dropout == "off":',
        'if self.dropout == "same":',
        'The two ways are exchanged: "off" is without dropout, "same" with the model\'s.',
    ),
    mistake(
        "clean.head_random_state if frozen else clean.random_state",
        "clean.random_state if frozen else clean.head_random_state",
        "The two random states are exchanged: a frozen encoder is not run, so its draws begin "
        "at the head, and others at the words.",
    ),
    mistake(
        "twin.score(task, *clean.vectors) if frozen",
        "self._twin.source.score(task, *clean.vectors) if frozen",
        "With a frozen encoder the model's own head answers, not the teacher's.",
    ),
    mistake(
        '    if self.dropout == "off":',
        '    self._twin.take(0)\n    if self.dropout == "off":',
        "The teacher is renewed before it answers. `begin` decides about that, once a step.",
    ),
]
