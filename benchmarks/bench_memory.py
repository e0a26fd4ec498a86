"""Peak memory of encoding, for more and more sentences; each count in a process of its own.

    python benchmarks/bench_memory.py [--counts 5000 20000 80000]

Prints the highest resident memory of the process, its growth over the smallest count, and the size
of the vectors themselves. `encode_stream` should not grow with the count, `encode` only by its text
and the vectors that it returns; what the allocator scatters differs from run to run. Needs nothing
but the package.
"""

import argparse
import random
import resource
import subprocess
import sys

import torch

from minbert.encoder import BertConfig, BertModel
from minbert.sentence import SentenceEncoder
from minbert.tokens import load_tokenizer


def sentences(count, seed=11711):
    """Made of words of the vocabulary, 3 to 40 each; made one at a time, so that they cost no
    memory.
    """
    words = [w for w in load_tokenizer().get_vocab() if w.isalpha()]
    words.sort()
    dice = random.Random(seed)
    for _ in range(count):
        yield " ".join(dice.choices(words, k=dice.randint(3, 40)))


def child(how, count):
    """Encode in this process, and print the peak [MB]."""
    torch.manual_seed(0)
    torch.set_num_threads(1)
    tokenizer = load_tokenizer()
    config = BertConfig(
        vocab_size=len(tokenizer),
        hidden_size=128,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=256,
    )
    encoder = SentenceEncoder(BertModel(config), tokenizer).eval()
    if how == "encode_stream":
        done = sum(len(chunk) for chunk in encoder.encode_stream(sentences(count)))
    else:
        done = len(encoder.encode(list(sentences(count))))
    assert done == count
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    print(peak / (1e6 if sys.platform == "darwin" else 1e3))


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--counts", type=int, nargs="+", default=[5_000, 20_000, 80_000])
    parser.add_argument("--child", nargs=2, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.child:
        return child(args.child[0], int(args.child[1]))
    print(f"{'':14} {'sentences':>10} {'peak [MB]':>10} {'growth [MB]':>12} {'vectors [MB]':>13}")
    for how in ("encode_stream", "encode"):
        first = None
        for count in args.counts:
            line = subprocess.run(
                [sys.executable, __file__, "--child", how, str(count)],
                check=True,
                capture_output=True,
                text=True,
            ).stdout
            peak = float(line)
            first = first or peak
            print(
                f"{how:14} {count:10,} {peak:10.0f} {peak - first:12.0f} {count * 128 * 4 / 1e6:13.1f}"
            )


if __name__ == "__main__":
    main()
