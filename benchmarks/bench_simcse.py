"""Sentences per second of unsupervised SimCSE training: minbert against sentence-transformers'
ranking loss on (s, s).

python benchmarks/bench_simcse.py --model FOLDER --data FOLDER --threads 1
Same weights, sentences, batch, dropout, precision, gradient clipping; both get sentences that are cut into tokens already.
sentence-transformers encodes the two columns one after the other, padded; minbert both in one packed forward.
--chunks (on Linux) also prints the peak memory of one batch of 512 sentences, whole and in chunks of 64, each in a process of its own.
"""

import random
import subprocess
import sys
from pathlib import Path

import torch
from common import interleave, parser, question_pairs, table

from minbert.core.device_step import DeviceStep
from minbert.core.fused_adamw import FusedAdamW
from minbert.encoding.chunked_encoder import ChunkedEncoder
from minbert.optim import parameter_groups
from minbert.sentence import SentenceEncoder
from minbert.simcse import ViewModel, view_batches, view_loss
from minbert.training import steps

SIZE = 64  # sentences a batch, SimCSE


def ours(folder, sentences, precision, size=SIZE, chunk=None):
    """A function that takes one step; batches are made before, in the order of the file."""
    encoder = SentenceEncoder.from_pretrained(folder, "mean", "cpu")
    model = ViewModel(encoder if chunk is None else ChunkedEncoder(encoder, chunk)).train()
    optimizer = FusedAdamW(parameter_groups(model, 0.01), lr=1e-5)
    slices = (sentences[i : i + size] for i in range(0, len(sentences) // size * size, size))
    batches = [
        next(view_batches([rows], encoder.tokenizer, size, max_length=64)) for rows in slices
    ]
    return lambda k: next(
        steps(
            model,
            [batches[k % len(batches)]],
            view_loss(),
            optimizer,
            max_grad_norm=1.0,
            take_step=DeviceStep(precision=precision),
        )
    )


def theirs(folder, sentences, precision):
    """The same step with sentence-transformers' model and loss, and torch's fastest AdamW."""
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.losses import MultipleNegativesRankingLoss
    from sentence_transformers.sentence_transformer.modules import Pooling, Transformer

    # a file in half precision would stay so
    body = Transformer(folder, max_seq_length=64, model_kwargs={"dtype": torch.float32})
    model = SentenceTransformer(
        modules=[body, Pooling(body.get_embedding_dimension(), "mean")], device="cpu"
    ).train()
    loss = MultipleNegativesRankingLoss(model, scale=20.0)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5, weight_decay=0.01, fused=True)
    whole = len(sentences) // SIZE * SIZE
    batches = [body.preprocess(sentences[i : i + SIZE]) for i in range(0, whole, SIZE)]

    def step(k):
        columns = [dict(batches[k % len(batches)]) for _ in range(2)]
        optimizer.zero_grad()
        with torch.autocast("cpu", torch.bfloat16, enabled=precision == "bf16"):
            value = loss(columns, None)
        value.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()

    return step


def highest() -> float:
    """Highest memory of this process so far [MB]. (`ru_maxrss` of a child begins at what its parent
    had.)
    """
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("VmHWM")).split()[1]) / 1024


def peak(args, sentences):
    """Print how far one step on 512 sentences goes above one on two."""
    # weights, gradients and the optimizer's memory are there now
    ours(args.model, sentences[:2], "fp32", 2)(0)
    before = highest()
    ours(args.model, sentences[:512], "fp32", 512, args.chunk or None)(0)
    name = f"chunks of {args.chunk}" if args.chunk else "whole"
    print(
        f"512 sentences, {name:14} {highest() - before:6.0f} MB more than a step on 2 sentences",
        flush=True,
    )


def main():
    options = parser(__doc__.split("\n\n")[0])
    options.set_defaults(repeats=15)
    options.add_argument("--chunks", action="store_true", help="measure memory")
    options.add_argument("--chunk", type=int, help="(used by --chunks)")
    args = options.parse_args()
    torch.set_num_threads(args.threads)
    torch.manual_seed(11711)
    sentences = [first for first, _ in question_pairs(args.data)]
    random.Random(11711).shuffle(sentences)
    if args.chunk is not None:
        return peak(args, sentences)
    sentences = sentences[: SIZE * (args.repeats + 1)]
    variants = {}
    for precision in args.precision:
        variants[f"sentence-transformers, {precision}"] = theirs(args.model, sentences, precision)
        variants[f"minbert, {precision}"] = ours(args.model, sentences, precision)
    for step in variants.values():  # warm up on the last batch
        step(args.repeats)
    spent = interleave(variants, args.repeats)
    for precision in args.precision:
        pair = {name: times for name, times in spent.items() if name.endswith(precision)}
        table(pair, f"sentence-transformers, {precision}", SIZE, "sentences")
    if args.chunks:
        for chunk in (0, 64):
            subprocess.run([sys.executable, *sys.argv, "--chunk", str(chunk)], check=True)


if __name__ == "__main__":
    main()
