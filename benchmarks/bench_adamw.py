"""Time one AdamW step at the sizes of a small BERT: ours against torch's, turn by turn in one
process.

python benchmarks/bench_adamw.py [--layers 4 --width 512 --vocabulary 30522 --rounds 30 --threads 1]

Prints, for each optimizer, the median over all rounds of its time divided by that of
torch.optim.AdamW(fused=True) in the same round. The optimizers take turns, so a busy machine slows
all of them alike; still, give it a quiet one. Needs nothing but the package: no data, no network.
"""

import argparse
import statistics
import time

import torch

from minbert.core.fused_adamw import FusedAdamW
from minbert.encoder import BertConfig, BertModel
from minbert.optim import AdamW, parameter_groups


def course_step(params, state, lr=1e-7, b1=0.9, b2=0.999, eps=1e-6, weight_decay=0.01):
    """The update as course solutions write it: a Python loop with a new tensor for every operation."""
    with torch.no_grad():
        for i, p in enumerate(params):
            t, m, v = state.get(i, (0, torch.zeros_like(p), torch.zeros_like(p)))
            t, m, v = t + 1, b1 * m + (1 - b1) * p.grad, b2 * v + (1 - b2) * p.grad * p.grad
            p.data = p.data - lr * (1 - b2**t) ** 0.5 / (1 - b1**t) * m / (v.sqrt() + eps)
            p.data = p.data - lr * weight_decay * p.data
            state[i] = t, m, v


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    for name, value in dict(layers=4, width=512, vocabulary=30522, rounds=30, threads=1).items():
        parser.add_argument(f"--{name}", type=int, default=value, help=f"default {value}")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    torch.manual_seed(0)

    device = "cuda" if torch.cuda.is_available() else "cpu"
    model = BertModel(
        BertConfig(
            vocab_size=args.vocabulary,
            hidden_size=args.width,
            num_hidden_layers=args.layers,
            num_attention_heads=args.width // 64,
            intermediate_size=4 * args.width,
        )
    ).to(device)
    params = list(model.parameters())
    for p in params:
        p.grad = torch.randn_like(p)
    groups = parameter_groups(model, 0.01)
    plain = [{"params": g["params"], "weight_decay": g["weight_decay"]} for g in groups]
    state = {}
    racers = {
        "torch.optim.AdamW(fused=True)": torch.optim.AdamW(plain, lr=1e-7, fused=True).step,
        "minbert FusedAdamW": FusedAdamW(groups, lr=1e-7).step,
        "minbert.optim.AdamW (lesson)": AdamW(groups, lr=1e-7).step,
        "torch.optim.AdamW(foreach=True)": torch.optim.AdamW(plain, lr=1e-7, foreach=True).step,
        "loop with temporaries": lambda: course_step(params, state),
    }
    times = {name: [] for name in racers}
    for round_ in range(args.rounds + 2):
        for name, step in racers.items():
            if device == "cuda":
                torch.cuda.synchronize()
            start = time.perf_counter()
            step()
            if device == "cuda":
                torch.cuda.synchronize()
            if round_ >= 2:  # the first rounds allocate the state
                times[name].append(time.perf_counter() - start)

    millions = sum(p.numel() for p in params) / 1e6
    base = times["torch.optim.AdamW(fused=True)"]
    print(
        f"{millions:.1f} million weights in {len(params)} tensors, {device}, {args.threads} thread(s), {args.rounds} rounds"
    )
    print(f"{'':34} best [ms]  ratio, median [middle half]")
    for name, ts in times.items():
        low, middle, high = statistics.quantiles([t / b for t, b in zip(ts, base)], n=4)
        print(f"{name:34} {1e3 * min(ts):9.1f}  {middle:5.2f} [{low:.2f}, {high:.2f}]")


if __name__ == "__main__":
    main()
