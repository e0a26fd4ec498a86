"""Time one step of Muon at the sizes of a small BERT: ours against torch's, turn by turn in one
process.

    python benchmarks/bench_muon.py [--layers 4 --width 256 --rounds 5 --threads 1]

Prints, for each optimizer, the median over all rounds of its time divided by that of
torch.optim.Muon in the same round. torch's takes products in bf16 on every device; ours takes
float32 where a processor has no such products. Needs nothing but the package.
"""

import argparse
import statistics

import torch
from common import interleave

from minbert.core.devices import imitates_bf16
from minbert.encoder import BertConfig, BertModel
from minbert.muon import Muon, muon


def moved(optimizer, device):
    """Take a step, and wait for it."""
    optimizer.step()
    if device.type == "cuda":
        torch.cuda.synchronize()


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    for name, value in dict(layers=4, width=256, rounds=5, threads=1).items():
        parser.add_argument(f"--{name}", type=int, default=value, help=f"default {value}")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    torch.manual_seed(0)

    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    model = BertModel(
        BertConfig(
            vocab_size=100,
            hidden_size=args.width,
            num_hidden_layers=args.layers,
            num_attention_heads=max(1, args.width // 64),
            intermediate_size=4 * args.width,
        )
    ).to(device)
    matrices = [p for group in muon(model).parts[1].param_groups for p in group["params"]]
    for p in matrices:
        p.grad = torch.randn_like(p)
    racers = {
        "torch.optim.Muon": torch.optim.Muon(matrices, lr=1e-7),
        "minbert.muon.Muon": Muon(matrices, lr=1e-7),
    }
    spent = interleave(
        {
            name: lambda turn, optimizer=optimizer: moved(optimizer, device)
            for name, optimizer in racers.items()
        },
        args.rounds + 1,
    )
    # the first round allocates the state
    times = {name: wall[1:] for name, (wall, _) in spent.items()}

    products = "imitates" if imitates_bf16(device) else "has"
    print(
        f"{sum(p.numel() for p in matrices):,} weights in {len(matrices)} matrices, {device}, which {products} products of bf16, {args.threads} thread(s)"
    )
    print(f"{'':20} best [ms]  ratio, median")
    for name, seconds in times.items():
        ratio = statistics.median(t / b for t, b in zip(seconds, times["torch.optim.Muon"]))
        print(f"{name:20} {1e3 * min(seconds):9.1f}  {ratio:.3f}")


if __name__ == "__main__":
    main()
