"""Attention in a training step in bfloat16 on a CPU, there and back: torch's fused kernel against
the map itself.

python benchmarks/bench_attention.py [--tokens 4096] [--heads 4] [--width 256] [--dropout 0]
[--threads 1]

For each length the same tokens, cut into sentences of it. The map is the base: what stands in the
line of the fused kernel is how many times as long it takes. Needs nothing but the package.
"""

import argparse

import torch
from common import cost, interleave

from minbert.attention import SelfAttention
from minbert.encoder import _attend_by_maps


def there_and_back(attend, attention, inputs):
    """Return a function that attends once and goes back to the inputs."""
    return lambda turn: attend(attention, *inputs).sum().backward()


def main():
    parser = argparse.ArgumentParser(
        description=__doc__.split("\n\n")[0], formatter_class=argparse.ArgumentDefaultsHelpFormatter
    )
    for name, default in (
        ("tokens", 4096),
        ("heads", 4),
        ("width", 256),
        ("threads", 1),
        ("repeats", 7),
    ):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--dropout", type=float, default=0.0)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    torch.manual_seed(11711)
    attention = SelfAttention(args.width, args.heads, args.dropout).train()
    for length in (16, 32, 64, 128, 256, 512):
        shape = (max(1, args.tokens // length), length, args.width)
        inputs = [torch.randn(shape, dtype=torch.bfloat16, requires_grad=True) for _ in range(3)]
        variants = {
            "map": there_and_back(_attend_by_maps, attention, inputs),
            "fused": there_and_back(SelfAttention.attend, attention, inputs),
        }
        interleave(variants, 2)  # warm up
        print(
            f"\n{shape[0]} sentences of {length} tokens, {args.heads} heads, width {args.width}, dropout {args.dropout}"
        )
        cost(interleave(variants, args.repeats), "map")


if __name__ == "__main__":
    main()
