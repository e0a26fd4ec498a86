"""Exercise cases of chapter 08: pooling and unit vectors."""

import math

import torch

from minbert.course.check_runner import Case, Trial, fixed, mistake, with_gradients
from minbert.exercise_cases.attention import masked, with_dtype

TRIALS, MISTAKES, VARIANTS = {}, {}, {}


# ---- sentence.mean
#
# Rows of every length, one with a gap in its mask, one without real tokens, NaN and infinity in
# padding, NaN in a real token (it stays), a boolean mask. In bfloat16 the inputs are such that
# their sum is exact in single precision in any order, so there is one correct result.


def mean_cases(generator):
    h = fixed(generator, 4, 6, 5)
    mask = torch.tensor(
        [[1, 1, 1, 1, 1, 1], [1, 1, 1, 0, 0, 0], [1, 0, 1, 1, 0, 0], [1, 0, 0, 0, 0, 0]]
    )
    empty = mask * torch.tensor([[1], [1], [0], [1]])
    poisoned = h.clone()
    poisoned[1, 4], poisoned[2, 1], poisoned[3, 5] = float("nan"), float("inf"), float("-inf")
    half = (32 * fixed(generator, 2, 301, 16) + 16).round().div(32).bfloat16()
    return [
        Case(
            "four sentences, one with a gap in the mask",
            {"hidden_states": h, "attention_mask": mask},
        ),
        Case("a boolean mask", {"hidden_states": h, "attention_mask": mask.bool()}),
        Case("a row of padding", {"hidden_states": h, "attention_mask": empty}),
        Case("NaN and infinity at padding", {"hidden_states": poisoned, "attention_mask": mask}),
        Case(
            "a real vector of zeros",
            {"hidden_states": h * (torch.arange(6) != 2)[:, None], "attention_mask": mask},
        ),
        Case("one token", {"hidden_states": h[:1, :1], "attention_mask": mask[:1, :1]}),
        Case("single precision", {"hidden_states": h.float(), "attention_mask": mask}),
        Case(
            "large numbers that cancel",
            {
                "hidden_states": torch.cat([h + 1e4, h - 1e4], 1),
                "attention_mask": torch.cat([mask, mask], 1),
            },
        ),
        Case(
            "NaN in a real token",
            {
                "hidden_states": torch.where(torch.arange(30).view(6, 5) == 6, math.nan, h),
                "attention_mask": mask,
            },
        ),
        *masked([], "attention_mask", lambda B: {"hidden_states": fixed(generator, B, 5, 4)}),
        Case(
            "301 tokens in half precision",
            {"hidden_states": half, "attention_mask": torch.ones(2, 301, dtype=torch.long)},
        ),
    ]


def run_mean(mean, inputs):
    return with_dtype(with_gradients(mean, inputs, "hidden_states"), inputs["hidden_states"].dtype)


TRIALS["sentence.mean"] = Trial(
    mean_cases,
    run_mean,
    hints=(
        "Two sums: one of the real vectors, one of the mask. What if the second is 0?",
        (
            "masked_fill writes zeros where the mask is 0, whatever the values are; a product with "
            "the mask would keep NaN. clamp(min=1) avoids a division by 0 for an empty row."
        ),
        (
            "kept = hidden_states.masked_fill(mask[..., None] == 0, 0); divide kept.sum(1, "
            "dtype=wide) by the clamped mask.sum(1, keepdim=True); go back to "
            "the old dtype."
        ),
    ),
)


MISTAKES["sentence.mean"] = [
    mistake(
        "attention_mask.sum(1, keepdim=True).clamp(min=1)",
        "hidden_states.shape[1]",
        "The sum is divided by the padded length T. Divide by the number of real tokens.",
    ),
    mistake(
        "hidden_states.masked_fill(attention_mask[..., None] == 0, 0)",
        "hidden_states",
        "The vectors of padding are included in the sum.",
    ),
    mistake(
        "hidden_states.masked_fill(attention_mask[..., None] == 0, 0)",
        "hidden_states",
        "attention_mask.sum(1, keepdim=True).clamp(min=1)",
        "hidden_states.shape[1]",
        "The mask is not used: padding is included in the sum and in the count.",
    ),
    mistake(".clamp(min=1)", "", "A row without real tokens is divided by 0 and becomes NaN."),
    mistake(
        "hidden_states.masked_fill(attention_mask[..., None] == 0, 0)",
        "hidden_states * attention_mask[..., None]",
        "Padding is multiplied by 0, but 0 times NaN is NaN. Use `masked_fill` or `where`.",
    ),
    mistake(
        "attention_mask[..., None] == 0, 0)",
        "attention_mask[..., None] != 0, 0)",
        "The mask is inverted: only padding is summed.",
    ),
    mistake(
        "kept.sum(1, dtype=wide) / count",
        "kept.sum(1, dtype=wide)",
        "The sum is not divided by the number of tokens.",
    ),
    mistake(
        "(kept.sum(1, dtype=wide) / count).to(hidden_states.dtype)",
        "hidden_states[:, 0]",
        "The vector of the first token is returned ([CLS] pooling). Mean pooling averages all "
        "real tokens.",
    ),
]

VARIANTS["sentence.mean"] = [
    """
def masked_mean(hidden_states, attention_mask):
    wide = torch.promote_types(hidden_states.dtype, torch.float32)
    real = attention_mask.bool().unsqueeze(-1)
    h = torch.where(real, hidden_states, torch.zeros_like(hidden_states)).to(wide)
    n = real.sum(1).to(wide)
    return torch.where(n > 0, h.sum(1) / n.clamp(min=1), 0.0).to(hidden_states.dtype)
""",
    """
def masked_mean(hidden_states, attention_mask):
    wide = torch.float64 if hidden_states.dtype == torch.float64 else torch.float32
    weights = attention_mask.to(wide) / attention_mask.sum(dim=1, keepdim=True).clamp_min(1e-9)
    clean = hidden_states.to(wide).masked_fill(~attention_mask.bool().unsqueeze(2), 0.0)
    total = torch.einsum("bt,btd->bd", attention_mask.to(wide), clean)
    return (total / weights.gt(0).sum(1, keepdim=True).clamp(min=1)).type_as(hidden_states)
""",
    """
def masked_mean(hidden_states, attention_mask):
    rows = []
    for h, m in zip(hidden_states, attention_mask):
        real = h[m.bool()].to(torch.promote_types(h.dtype, torch.float32))
        rows.append((real.mean(0) if len(real) else h.new_zeros(h.shape[-1])).to(h.dtype))
    return torch.stack(rows)
""",
]


# ---- sentence.unit
#
# The gradient at a zero vector is 0, where the usual ways give 10⁸, 10¹² or NaN. Vectors that are
# zero, shorter than eps, exactly as long as eps; another eps; a single vector, three axes; half
# precision, whose result is wider; NaN, which has to stay.


def unit_cases(generator):
    x = fixed(generator, 4, 5)
    some = x.clone()
    some[1], some[3] = 0, 1e-9 * x[3] / x[3].norm()
    return [
        Case("four vectors", {"x": x}),
        Case("the second is zero, the fourth shorter than eps", {"x": some}),
        Case("one zero vector", {"x": torch.zeros(3, dtype=torch.float64)}),
        Case(
            "eps 1, lengths 0.5, 2 and 0.999",
            {
                "x": x[:3] / x[:3].norm(dim=1, keepdim=True) * torch.tensor([[0.5], [2], [0.999]]),
                "eps": 1.0,
            },
        ),
        Case(
            "a vector exactly as long as eps",
            {"x": torch.tensor([[3.0, 4.0], [3.0, 3.9]], dtype=torch.float64), "eps": 5.0},
        ),
        Case(
            "lengths of a thousandth and a thousand",
            {"x": x * torch.tensor([[1e-3], [1e3], [1e-5], [1]])},
        ),
        Case("one number of each is 0", {"x": x * (torch.arange(5) != 2)}),
        Case("two axes before", {"x": fixed(generator, 2, 3, 4)}),
        Case("width one", {"x": torch.tensor([[-2.0], [0.0], [0.5]], dtype=torch.float64)}),
        Case("half precision", {"x": x.bfloat16()}),
        Case(
            "NaN in one vector", {"x": torch.where(torch.arange(20).view(4, 5) == 7, math.nan, x)}
        ),
        Case("single precision", {"x": some.float()}),
    ]


def run_unit(unit, inputs):
    x = inputs["x"]
    return with_dtype(
        with_gradients(unit, inputs, "x"), torch.promote_types(x.dtype, torch.float32)
    )


TRIALS["sentence.unit"] = Trial(
    unit_cases,
    run_unit,
    hints=(
        (
            "What does the square root do at 0, and what does zero times infinity give in the "
            "backward pass?"
        ),
        (
            "First decide which vectors are long enough, without a gradient. Replace the others "
            "by a harmless vector before the norm is computed, and their result by zeros "
            "afterwards."
        ),
        (
            "nonzero = ~(norm of x.detach() < eps), true for NaN; safe = torch.where(nonzero, x, "
            "1.0); divide safe by its own norm; torch.where(nonzero, that, 0.0)."
        ),
    ),
)


_WRONG_SAFE = "safe = torch.where(nonzero, x, 1.0)"
_WRONG_NORM = "torch.linalg.vector_norm(safe, dim=-1, keepdim=True)"
_WRONG_UNIT = "return torch.where(nonzero, scaled, 0.0)"


MISTAKES["sentence.unit"] = [
    mistake(
        _WRONG_UNIT,
        "return torch.nn.functional.normalize(x, dim=-1)",
        "This is `F.normalize`: its gradient at a zero vector is 10¹², and vectors shorter than "
        "eps are not set to zero.",
    ),
    mistake(
        _WRONG_SAFE,
        "safe = x",
        "`where` is applied only to the result. The norm of a zero vector still enters the "
        "backward pass, and 0 times infinity is NaN.",
    ),
    mistake(
        _WRONG_UNIT,
        "return x / (torch.linalg.vector_norm(x, dim=-1, keepdim=True) + eps)",
        "eps is added to the norm, so no result has length 1, and the gradient at a zero vector "
        "is 1 / eps.",
    ),
    mistake(
        _WRONG_NORM,
        "torch.linalg.vector_norm(safe.detach(), dim=-1, keepdim=True)",
        "The norm is detached, so the gradient has a component along the vector. It should be "
        "orthogonal to it.",
    ),
    mistake(
        _WRONG_NORM,
        "safe.square().sum(-1, keepdim=True)",
        "The square root is missing: vectors are divided by their squared norm.",
    ),
    mistake(
        _WRONG_NORM,
        "torch.linalg.vector_norm(safe)",
        "One norm is computed for the whole tensor. Each vector has its own: use `dim=-1`.",
    ),
    mistake(
        _WRONG_NORM,
        "torch.linalg.vector_norm(safe, dim=0, keepdim=True)",
        "The norm runs over the first axis. It belongs on the last.",
    ),
    mistake(
        "x = x.to(torch.promote_types(x.dtype, torch.float32))",
        "pass",
        "Half precision stays half precision. The result should be float32 or wider.",
    ),
]

VARIANTS["sentence.unit"] = [
    """
def unit(x, eps=1e-8):
    if x.dtype in (torch.float16, torch.bfloat16):
        x = x.float()
    length = x.detach().square().sum(-1, keepdim=True).sqrt()
    short = length < eps
    filled = x.masked_fill(short, 1.0)
    return (filled * filled.pow(2).sum(-1, keepdim=True).rsqrt()).masked_fill(short, 0.0)
""",
    """
def unit(x, eps=1e-8):
    wide = x.to(torch.promote_types(x.dtype, torch.float32))
    flat = wide.reshape(-1, wide.shape[-1])
    nonzero = ~(flat.detach().norm(dim=1) < eps)
    out = torch.zeros_like(flat)
    out[nonzero] = flat[nonzero] / flat[nonzero].norm(dim=1, keepdim=True)
    return out.view(wide.shape)
""",
]
