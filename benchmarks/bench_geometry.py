"""Seconds of the measures of a cloud of 20,000 vectors of width 768.

python benchmarks/bench_geometry.py --threads 2 `uniformity` visits 2 x 10^8 pairs; the others need
one or two passes. Random directions: the values do not change the time.
"""

import argparse
import resource

import torch
from common import interleave, seconds

from minbert.geometry import isoscore, mean_cosine, singular_spectrum, uniformity


def main():
    options = argparse.ArgumentParser(
        description=__doc__.split("\n\n")[0], formatter_class=argparse.ArgumentDefaultsHelpFormatter
    )
    options.add_argument("--threads", type=int, default=1)
    options.add_argument("--rows", type=int, default=20_000)
    options.add_argument("--width", type=int, default=768)
    options.add_argument(
        "--repeats", type=int, default=3, help="rounds; each runs every measure once"
    )
    args = options.parse_args()
    torch.set_num_threads(args.threads)
    x = torch.randn(args.rows, args.width, generator=torch.Generator().manual_seed(11711))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    measures = {
        f.__name__: (lambda turn, f=f: f(x))
        for f in (uniformity, mean_cosine, isoscore, singular_spectrum)
    }
    spent = interleave(measures, args.repeats)
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
    print(
        f"{args.rows} x {args.width}, {args.threads} thread(s), torch {torch.__version__}, {args.repeats} interleaved rounds; "
        f"peak memory grew by {grown:.0f} MiB"
    )
    seconds(spent)


if __name__ == "__main__":
    main()
