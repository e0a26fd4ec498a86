"""Seconds of one training epoch of a flow on 10,000 cached vectors of width 768, batch 64.

python benchmarks/bench_flow.py --threads 2 Default Flow (3 steps, reverse, additive, nets of width
32), the 3 x 3 of the released command, affine couplings, and learned mixing. Each round trains a
fresh flow of every kind for 157 steps by `train_flow`, its start from 256 rows included. Random
vectors with correlated columns: what they mean does not matter for the time.
"""

import argparse

import torch
from common import interleave, seconds

from minbert.flow import Flow, train_flow

KINDS = {
    "default, 1 x 3": {},
    "3 x 3": {"levels": 3},
    "3 x 3, affine": {"levels": 3, "coupling": "affine"},
    "1 x 3, dense": {"mixing": "dense"},
    "1 x 3, lu": {"mixing": "lu"},
}


def epoch(vectors, settings, batch_size):
    """Return a function that trains a fresh flow for one epoch."""

    def run(turn):
        flow = Flow(vectors.shape[1], **settings, generator=torch.Generator().manual_seed(turn))
        for _ in train_flow(flow, vectors, batch_size=batch_size, seed=turn):
            pass

    return run


def main():
    options = argparse.ArgumentParser(
        description=__doc__.split("\n\n")[0], formatter_class=argparse.ArgumentDefaultsHelpFormatter
    )
    options.add_argument("--threads", type=int, default=1)
    options.add_argument("--rows", type=int, default=10_000)
    options.add_argument("--width", type=int, default=768)
    options.add_argument("--batch-size", type=int, default=64)
    options.add_argument("--repeats", type=int, default=3, help="rounds; each runs every kind once")
    options.add_argument("--kinds", nargs="+", choices=KINDS, default=list(KINDS))
    args = options.parse_args()
    torch.set_num_threads(args.threads)
    g = torch.Generator().manual_seed(11711)
    vectors = (
        torch.randn(args.rows, args.width, generator=g)
        @ torch.randn(args.width, args.width, generator=g)
        / args.width**0.5
    )
    spent = interleave(
        {name: epoch(vectors, KINDS[name], args.batch_size) for name in args.kinds}, args.repeats
    )
    print(
        f"{args.rows} x {args.width}, batch {args.batch_size}, {args.threads} thread(s), torch {torch.__version__}, "
        f"{args.repeats} interleaved rounds"
    )
    seconds(spent)


if __name__ == "__main__":
    main()
