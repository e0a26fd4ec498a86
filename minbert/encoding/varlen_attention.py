"""Attention over sequences that are stored end to end, with PyTorch's variable-length kernel on
GPUs that have it.
"""

from functools import cache

import torch
import torch.nn.functional as F
from torch import Tensor


def serves(
    device: torch.device,
    dtype: torch.dtype,  # of queries, keys and values
    width: int,  # K of one head
) -> bool:
    """Tell whether the kernel can be used: an NVIDIA GPU of compute capability 8.0 or newer, half
    precision, heads it was made for.

    It has no dropout. On its first use it has to agree with the plain attention of torch, in values
    and gradients: that waits for the GPU once.
    """
    if (
        device.type != "cuda"
        or dtype not in (torch.float16, torch.bfloat16)
        or width % 8
        or width > 256
    ):
        return False
    return not torch.compiler.is_compiling() and _agrees(device, dtype, width)


def attend(
    query: Tensor,  # (N, D) half precision, the sequences end to end
    key: Tensor,  # (N, D)
    value: Tensor,  # (N, D)
    starts: Tensor,  # (n + 1,) int32 on the same device: where each begins, and N
    longest: int,  # tokens of the longest
    heads: int,  # H, divides D
) -> Tensor:  # (N, D)
    """Let every token read its own sequence; without dropout. Ask `serves` before."""
    from torch.nn.attention.varlen import varlen_attn  # loads the compiler: only where it is used

    q, k, v = (x.unflatten(-1, (heads, -1)).contiguous() for x in (query, key, value))  # (N, H, K)
    return varlen_attn(q, k, v, starts, starts, longest, longest).flatten(-2)


@cache
def _agrees(device, dtype, width):
    """Try the kernel on sequences of 3 and 5 tokens."""
    if torch.version.hip or torch.cuda.get_device_capability(device) < (8, 0):
        return False
    try:
        with torch.enable_grad(), torch.autocast(device.type, enabled=False):
            return _trial(device, dtype, width)
    except (ImportError, AttributeError, RuntimeError, TypeError, ValueError, NotImplementedError):
        # an older torch, or one built without it
        return False


def _trial(device, dtype, width):
    heads, lengths = 2, [3, 5]
    rows = [
        torch.linspace(-2, 2, 8 * heads * width)
        .cos()
        .roll(7 * i)
        .view(8, -1)
        .to(device, dtype)
        .requires_grad_()
        for i in range(3)
    ]
    starts = torch.tensor([0, 3, 8], dtype=torch.int32).to(device)
    parts = zip(*(x.view(8, heads, width).split(lengths) for x in rows))
    plain = torch.cat(
        [
            F.scaled_dot_product_attention(*(x.transpose(0, 1)[None] for x in part))[0]
            .transpose(0, 1)
            .flatten(1)
            for part in parts
        ]
    )
    found = attend(*rows, starts, 5, heads)
    slopes = [
        torch.autograd.grad((x.float() * rows[0].detach().float()).sum(), rows)
        for x in (plain, found)
    ]
    close = 4 * torch.finfo(dtype).eps  # a few roundings of the largest number
    return all(
        (a - b).abs().max() <= close * a.abs().max() for a, b in ((plain, found), *zip(*slopes))
    )
