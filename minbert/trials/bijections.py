"""How the exercises of chapter 27 are checked: every log |det| against all derivatives, every way back against the way there."""


import torch
from torch.autograd.functional import jacobian

from minbert.course.trials import Case, Trial, fill, fixed, mistake, probe


# A log |det| with the wrong sign trains as smoothly as the right one, towards nonsense. What would notice it? The definition: take all derivatives of
# the map by autograd, take the determinant, compare.

TRIALS, MISTAKES, VARIANTS = {}, {}, {}


def gradients(total, leaves):
    """Differentiate by each leaf; what was not used has gradient 0."""
    found = torch.autograd.grad(total, list(leaves.values()), allow_unused=True)
    return {f"gradient of {name}": torch.zeros_like(leaf) if g is None else g for (name, leaf), g in zip(leaves.items(), found)}


def there(layer, x):
    """Give image and log |det|, their gradients, and how far log |det| is from that of autograd's derivatives."""
    before = [w.detach().clone() for w in layer.parameters()]
    image, log_det = layer(x)                                          # sees the input itself, so that writing into it shows
    leaf = x.clone().requires_grad_()
    again, change = layer(leaf)
    total = (again * probe(again)).sum() + (change * probe(change)).sum()
    derivatives = jacobian(lambda v: layer(v)[0].sum(0), x).transpose(0, 1)   # (B, D, D): rows do not see each other
    moved = any(not torch.equal(w, old) for w, old in zip(layer.parameters(), before))
    return {"image": image, "log |det|": log_det, "log |det| minus that of all derivatives": log_det - torch.linalg.slogdet(derivatives).logabsdet, "a weight has changed": moved,
            **gradients(total, {"x": leaf, **dict(layer.named_parameters())})}


def back(layer, y):
    """Give what `inverse` makes of y, and its gradients."""
    x = layer.inverse(y)
    leaf = y.clone().requires_grad_()
    again = layer.inverse(leaf)
    return {"x": x, **gradients((again * probe(again)).sum(), {"y": leaf, **dict(layer.named_parameters())})}


# ---- bijections.start
#
# Spreads from .2 to 30; a column that never changes; one that changes by so little beside its mean that it is rounding; one so narrow that the floor
# decides; no column that varies; two rows; and vectors in single precision, far from the origin. The number of columns that vary is odd wherever the
# median counts, as a median of four numbers is a matter of taste.

def start_cases(generator):
    x = fixed(generator, 9, 5) * torch.tensor([0.2, 30, 1, 4, 7], dtype=torch.float64) + 10 * fixed(generator, 5)
    still = torch.cat([x, torch.full((9, 2), 0.1, dtype=torch.float64)], 1)
    nearly = torch.cat([x[:, :3], 1e7 + 0.1 * x[:, 3:]], 1)
    narrow = torch.cat([x[:, :4], 1e-5 * x[:, 4:]], 1)
    return [Case("nine rows", {"batch": x}), Case("two columns never change", {"batch": still}),
            Case("two columns change by rounding alone", {"batch": nearly}), Case("one column is narrow", {"batch": narrow}),
            Case("a floor of one half", {"batch": still, "floor": 0.5}), Case("two rows", {"batch": x[:2, :3]}),
            Case("nothing varies", {"batch": x[:1].expand(4, 5).clone()}), Case("one column varies, two do not", {"batch": torch.cat([x[:, :1], still[:, 5:]], 1)}),
            Case("single precision, far from the origin", {"batch": (x * 0.01 + 500).float(), "floor": 0.1})]


def run_start(start, inputs):
    c, s = start(**inputs)
    return {"c": c, "s": s}


TRIALS["bijections.start"] = Trial(start_cases, run_start, subject="flow", rtol=1e-9, hints=(
    "A column of mean m and spread σ becomes (x - m) / σ. What are c and s then?",
    "Make the batch double first. Decide which columns vary, then take the median of *their* spreads; a spread below `floor` times that median counts as the median, and so does that of a column that does not vary.",
    "c = -mean; spread = sqrt(var(0, correction=0)), the median in the place of what is too small; s = -log(spread + 1e-6)."))

MISTAKES["bijections.start"] = [
    mistake("correction=0", "correction=1", "The variance is divided by N - 1; here it is the plain mean of the squares."),
    mistake("return -mean,", "return mean,", "The sign of c is wrong: the mean is added once more."),
    mistake("-(std + 1e-6).log()", "(std + 1e-6).log()", "The sign of s is wrong: wide columns are made wider."),
    mistake("-(std + 1e-6).log()", "-(std + 1e-6).log() / 3", "s is divided by 3 here already; the weight is s / 3, but s was asked for."),
    mistake("-(std + 1e-6).log()", "-(std.square() + 1e-6).log()", "The logarithm is taken of the variance, so s is twice as large."),
    mistake("-(std + 1e-6).log()", "-(std.square() + 1e-6).sqrt().log()", "The 10⁻⁶ stands inside the root, with the variance, and not beside the spread."),
    mistake("-(std + 1e-6).log()", "-std.log()", "The 10⁻⁶ is missing."),
    mistake("-(std + 1e-6).log()", "1 / (std + 1e-6)", "The scale itself is returned; its logarithm was asked for."),
    mistake("varies & (std >= floor * usual)", "varies", "The floor is not used: a column that hardly varies is blown up."),
    mistake("varies & (std >= floor * usual)", "std >= floor * usual", "What is rounding beside a large mean counts as a spread."),
    mistake("std[varies].median()", "std.median()", "The median counts columns that never vary, so it is too low."),
    mistake("std[varies].median()", "std[varies].mean()", "The mean spread, which one loud column lifts, stands where the median should."),
    mistake("std[varies].median()", "std[varies].max()", "The largest spread stands where the median should."),
    mistake("floor * usual", "1e-3 * usual", "`floor` is written into the code instead of taken from the argument."),
    mistake("floor * usual", "floor", "The floor is taken as it is, not as a share of the median spread."),
    mistake("std.new_ones(())", "std.new_tensor(floor)", "If no column varies, the floor stands for the spread; it should be 1."),
    mistake("varies.any()", "varies.sum() > 1", "One column that varies is enough for a median."),
    mistake("std.new_ones(())", "std.new_zeros(())", "If no column varies, the scale is a million."),
    mistake("varies = variance > 1e-12 * (variance + mean.square())", "varies = variance > 1e-40", "What is rounding beside a large mean counts as a spread."),
    mistake("x = batch.double()", "x = batch", "Everything is computed in the precision of the batch; single loses a small spread beside a large mean."),
    mistake("usual)\n", "floor * usual)\n", "A spread below the floor counts as the floor: norm by norm the column is stretched a thousandfold; it should count as the median."),
    mistake("usual)\n", "torch.ones_like(mean))\n", "A column that does not vary gets spread 1; it should get the median."),
    mistake("return -mean, -(std + 1e-6).log()", "return -(std + 1e-6).log(), -mean", "c and s have changed places: the shift comes first."),
    mistake("return -mean,", "return -mean / (std + 1e-6),", "c is divided by the spread. It is added before the stretch."),
]

VARIANTS["bijections.start"] = [
    '''
def actnorm_start(batch, floor=1e-3):
    columns = batch.double().T
    means = torch.stack([column.sum() / len(column) for column in columns])
    variances = torch.stack([((column - m) ** 2).sum() / len(column) for column, m in zip(columns, means)])
    real = [float(v) ** 0.5 for v, m in zip(variances, means) if v > 1e-12 * (v + m * m)]
    spreads = []
    usual = sorted(real)[(len(real) - 1) // 2] if real else 1.0
    for v, m in zip(variances, means):
        own = float(v) ** 0.5 if v > 1e-12 * (v + m * m) else 0.0
        spreads.append(own if own >= floor * usual and own > 0 else usual)
    return -means, -torch.tensor([x + 1e-6 for x in spreads], dtype=torch.float64).log()
''',
    '''
def actnorm_start(batch, floor=1e-3):
    x = batch.to(torch.float64)
    c = -x.mean(dim=0)
    spread = (x + c).pow(2).mean(dim=0).sqrt()
    still = spread ** 2 <= 1e-12 * (spread ** 2 + c ** 2)
    usual = torch.ones(1, dtype=torch.float64) if still.all() else spread[~still].quantile(0.5)
    spread = torch.where(still | (spread / usual < floor), usual, spread)
    return c, torch.log(1 / (spread + 1e-6))
''',
]


# ---- bijections.norm and bijections.unnorm
#
# A norm with weights, forwards, with all derivatives; and a fresh one in train mode, which has to start from its first batch and only from that.

def _started(norm, seed):
    norm = fill(norm, seed)
    norm.initialized.fill_(True)
    return norm


def norm_cases(generator):
    x = 3 * fixed(generator, 67, 5) + 2
    return [Case("four rows", {"x": x[:4]}), Case("one row, evaluating", {"x": x[:1], "eval": True}), Case("the first batches of a fresh norm", {"x": x, "fresh": True}),
            Case("vectors far away", {"x": 1000 * x[:3]}), Case("64 columns, all of them squeezed", {"x": fixed(generator, 2, 64), "squeeze": 5.0}),
            Case("64 columns, all of them stretched", {"x": fixed(generator, 2, 64), "squeeze": -5.0})]


def run_norm(kind, inputs):
    x = inputs["x"]
    if not inputs.get("fresh"):
        norm = _started(kind(x.shape[1]), 1).train("eval" not in inputs)
        norm.logs.data.sub_(inputs.get("squeeze", 0.0))
        return there(norm, x)
    norm = kind(x.shape[1]).double().train()
    (first, change), (second, same) = norm(x[:64]), norm(x[64:])
    return {"first batch": first, "log |det|": change, "second batch": second, "log |det| again": same, "started": norm.initialized}


TRIALS["bijections.norm"] = Trial(norm_cases, run_norm, hints=(
    "Each column is shifted, then stretched. How much longer does a small piece of the line get?",
    "The stretch of column d is exp(s_d), its logarithm s_d, and logarithms of factors add up. It is the same number for every row.",
    "self._prepare(x); s = 3 * self.logs; the image is (x + self.shift) * s.exp(), log |det| is s.sum(), expanded to one number a row."))

_WRONG_IMAGE = "return (x + self.shift) * s.exp(), s.sum().expand(len(x))"
MISTAKES["bijections.norm"] = [
    mistake("(x + self.shift) * s.exp()", "x * s.exp() + self.shift", "The stretch comes before the shift; c belongs inside the bracket."),
    mistake("s = 3 * self.logs", "s = self.logs", "The factor 3 is missing: s is three times the weight `logs`."),
    mistake("s.sum().expand(len(x))", "self.logs.sum().expand(len(x))", "log |det| is made from `logs` without the factor 3."),
    mistake("s.sum().expand(len(x))", "-s.sum().expand(len(x))", "The sign of log |det| is wrong: stretching counts as shrinking."),
    mistake("s.sum().expand(len(x))", "s.mean().expand(len(x))", "log |det| is the mean of s over the columns, not the sum."),
    mistake("s.sum().expand(len(x))", "s.exp().prod().expand(len(x))", "The determinant is returned, not its logarithm."),
    mistake("s.sum().expand(len(x))", "s.exp().prod().log().expand(len(x))",
            "The scales are multiplied before the logarithm: of many columns the product is 0 or infinite in the machine. Logarithms add up."),
    mistake("* s.exp(), s.sum()", "* s.detach().exp(), s.sum()", "The scale is detached in the image, so it feels only log |det|."),
    mistake("s.sum().expand(len(x))", "s.exp().sum().expand(len(x))", "The scales are added up, not their logarithms."),
    mistake("s.sum().expand(len(x))", "s.sum()", "log |det| comes as a single number; one for every row was asked for."),
    mistake("s.sum().expand(len(x))", "s.sum().expand(len(x)) * len(x)", "log |det| is multiplied by the number of rows; each row has its own."),
    mistake("(x + self.shift)", "(x - self.shift)", "c is subtracted, but it is minus the mean already."),
    mistake("(x + self.shift) * s.exp()", "(x + self.shift) * s", "The columns are multiplied by s and not by its exponential, so a scale can be 0 or negative."),
    mistake("(x + self.shift) * s.exp()", "(x + self.shift) / s.exp()", "The columns are divided by exp(s): that is the way back."),
    mistake("self._prepare(x)", "check_rows(x, self.width)", "A fresh norm does not start from its first batch in train mode."),
    mistake("self._prepare(x)", "self.initialize(x) if self.training and len(x) > 1 else None", "The norm starts over with every batch: it should forget the batch after the first."),
    mistake("s.sum().expand(len(x))", "s.sum().detach().expand(len(x))", "log |det| is detached, so the scales do not feel it."),
    mistake("    s = 3 * self.logs", "    if self.training or not hasattr(self, \"kept\"):\n        self.kept = 3 * self.logs\n    s = self.kept", "In eval mode the scale is kept from the first call. Weights may change in any mode."),
    mistake(_WRONG_IMAGE, "return s.sum().expand(len(x)), (x + self.shift) * s.exp()", "Image and log |det| have changed places: the image comes first."),
    mistake("(x + self.shift) * s.exp()", "(x - x.mean(0)) / x.std(0, correction=0)", "The batch's own mean and spread are used, as in batch norm. c and s are weights."),
    mistake("s.sum().expand(len(x))", "s.expand(len(x), -1)", "log |det| has a number for each column. They add up to one for each row."),
]

VARIANTS["bijections.norm"] = [
    '''
def forward(self, x):
    self._prepare(x)
    stretch = torch.exp(self.logs * 3)
    return x * stretch + self.shift * stretch, 3 * self.logs.sum() * x.new_ones(len(x))
''',
    '''
def forward(self, x):
    self._prepare(x)
    scale = self.logs.exp() ** 3
    y = torch.stack([(row + self.shift) * scale for row in x])
    return y, torch.stack([scale.log().sum()] * x.shape[0])
''',
]


def unnorm_cases(generator):
    y = 3 * fixed(generator, 4, 5) + 2
    return [Case("four rows", {"y": y}), Case("one row, evaluating", {"y": y[:1], "eval": True}), Case("vectors far away", {"y": 1000 * y})]


def run_unnorm(kind, inputs):
    return back(_started(kind(inputs["y"].shape[1]), 2).train("eval" not in inputs), inputs["y"])


TRIALS["bijections.unnorm"] = Trial(unnorm_cases, run_unnorm, hints=(
    "Undo the last step first.", "The stretch by exp(s) is undone by exp(-s), then the shift by c is taken back.", "y * exp(-3 logs) - shift."))

MISTAKES["bijections.unnorm"] = [
    mistake("* (-3 * self.logs).exp() - self.shift", "* (-3 * self.logs).exp() + self.shift", "The shift is added again instead of taken back."),
    mistake("* (-3 * self.logs).exp() - self.shift", "* (3 * self.logs).exp() - self.shift", "The columns are stretched once more instead of shrunk."),
    mistake("(-3 * self.logs)", "(-self.logs)", "The factor 3 is missing."),
    mistake("y * (-3 * self.logs).exp() - self.shift", "(y - self.shift) * (-3 * self.logs).exp()",
            "The shift is undone before the stretch; the last step has to go first."),
    mistake("* (-3 * self.logs).exp() - self.shift", "/ (3 * self.logs) - self.shift", "The columns are divided by s, not by its exponential."),
    mistake("* (-3 * self.logs).exp() - self.shift", "* (-3 * self.logs).exp()", "The shift is not undone."),
    mistake("(-3 * self.logs).exp()", "(-3 * self.logs).detach().exp()", "The scale is detached, so a loss behind the inverse never reaches it."),
    mistake("    return y * (-3 * self.logs)", "    if self.training or not hasattr(self, \"kept\"):\n        self.kept = -3 * self.logs\n    return y * self.kept", "In eval mode the scale is kept from the first call. Weights may change in any mode."),
]

VARIANTS["bijections.unnorm"] = [
    '''
def inverse(self, y):
    return y / torch.exp(3 * self.logs) - self.shift
''',
    '''
def inverse(self, y):
    columns = [column / self.logs[d].exp() ** 3 - self.shift[d] for d, column in enumerate(y.unbind(1))]
    return torch.stack(columns, dim=1)
''',
]


# ---- bijections.unshuffle
#
# A reversal is its own inverse, and so is a swap of two equal halves. An odd width and a random order are not.

def unshuffle_cases(generator):
    y, around = fixed(generator, 3, 7), torch.randperm(7, generator=generator)
    order = torch.empty_like(around).scatter_(0, around, around.roll(1))      # one round through all columns: never its own inverse
    return [Case("reversed", {"y": y, "mode": "reverse"}), Case("halves of 3 and 4 swapped", {"y": y, "mode": "swap"}),
            Case("a random order", {"y": y, "mode": "random", "order": order}), Case("as many rows as columns", {"y": fixed(generator, 5, 5), "mode": "swap"})]


def run_unshuffle(kind, inputs):
    shuffle = kind(inputs["y"].shape[1], inputs["mode"])
    if "order" in inputs:
        shuffle.order.copy_(inputs["order"])
    return back(shuffle, inputs["y"])


TRIALS["bijections.unshuffle"] = Trial(unshuffle_cases, run_unshuffle, hints=(
    "If column 3 went to the front, where does the front go back to?", "You need the order that undoes the order. Sorting it tells.", "order.argsort() lists where each column went."))

MISTAKES["bijections.unshuffle"] = [
    mistake("[:, self.order.argsort()]", "[:, self.order]", "The same order is applied once more; that undoes a reversal, and no other order."),
    mistake("[:, self.order.argsort()]", "", "Nothing is undone."),
    mistake("[:, self.order.argsort()]", "[:, self.order.flip(0)]", "The order is read backwards; that is not the order that undoes it."),
    mistake("[:, self.order.argsort()]", ".flip(1)", "The columns are always reversed, whatever the order was."),
    mistake("[:, self.order.argsort()]", "[:, self.order.argsort(descending=True)]", "The places are sorted from last to first."),
]

VARIANTS["bijections.unshuffle"] = [
    '''
def inverse(self, y):
    x = torch.empty_like(y)
    x[:, self.order] = y
    return x
''',
    '''
def inverse(self, y):
    place = {column: k for k, column in enumerate(self.order.tolist())}
    return torch.stack([y[:, place[d]] for d in range(y.shape[1])], dim=1)
''',
]


# ---- How strong?
