"""Examples per second of two training steps: minbert packed against transformers' BertModel, padded
in file order.

python benchmarks/bench_steps.py --model FOLDER --data FOLDER --threads 1 Similarity: 32 pairs,
squared error of the cosine. SimCSE: 64 sentences, two dropout views, in-batch negatives. Same
weights, optimizer, batches, dropout 0.1; each round is one step of every variant on the same
sentences.
"""

import random

import torch
import torch.nn.functional as F
import transformers
from common import interleave, mean, parser, question_pairs, shape, store, table

from minbert.encoder import BertModel
from minbert.encoding.forward import encode_batch
from minbert.tokens import load_tokenizer, pad_ids


def similarity(u, v):
    """Squared error against a fixed target: the value does not matter here, the work does."""
    return (F.cosine_similarity(u, v) - 0.5).square().mean()


def simcse(u, v):
    """Cross-entropy of finding one's own second view."""
    scores = F.cosine_similarity(u[:, None], v[None], dim=-1) / 0.05
    return F.cross_entropy(scores, torch.arange(len(u)))


def apart(model, first, second):
    """Transformers' way: one padded forward a side."""
    return [
        mean(model(*side).last_hidden_state.float(), side.attention_mask)
        for side in map(pad_ids, (first, second))
    ]


def together(model, first, second):
    """Ours: both sides in one packed forward."""
    batch = pad_ids(first + second)
    u = mean(
        encode_batch(model, *batch, packed=True).last_hidden_state.float(), batch.attention_mask
    )
    return u.split(len(first))


def stepper(model, optimizer, forward, loss, batches, precision):
    """Return a function that takes one training step on batch k."""

    def step(k):
        with torch.autocast("cpu", torch.bfloat16, enabled=precision == "bf16"):
            u, v = forward(model, *batches[k])
        optimizer.zero_grad()
        loss(u, v).backward()
        optimizer.step()

    return step


def main():
    options = parser(__doc__.split("\n\n")[0], stores=True)
    options.set_defaults(repeats=15)
    args = options.parse_args()
    torch.set_num_threads(args.threads)
    torch.manual_seed(11711)
    pairs = question_pairs(args.data)
    random.Random(11711).shuffle(pairs)
    tokenizer = load_tokenizer(args.model)

    def cut(sentences):
        return tokenizer(list(sentences), truncation=True)["input_ids"]

    works = {
        "similarity, 32 pairs": (
            32,
            similarity,
            lambda rows: tuple(cut(side) for side in zip(*rows)),
        ),
        "SimCSE, 64 sentences twice": (64, simcse, lambda rows: (cut([a for a, _ in rows]),) * 2),
    }
    base = "transformers, padded, fp32"
    # a file in half precision would stay so
    theirs = transformers.BertModel.from_pretrained(args.model, dtype=torch.float32).train()
    ours = BertModel.from_pretrained(args.model).train()
    kits = {"transformers, padded": (theirs, apart), "minbert, packed": (ours, together)}
    kits = {
        name: (model, torch.optim.AdamW(model.parameters(), lr=1e-5, fused=True), forward)
        for name, (model, forward) in kits.items()
    }
    for title, (size, loss, prepare) in works.items():
        batches = [prepare(pairs[k * size : (k + 1) * size]) for k in range(args.repeats + 1)]
        variants = {
            f"{name}, {precision}": stepper(*kit, loss, batches, precision)
            for name, kit in kits.items()
            for precision in dict.fromkeys(["fp32", *args.precision])
        }
        for step in variants.values():  # warm up on the last batch
            step(args.repeats)
        print(f"\n{title}")
        spent = interleave(variants, args.repeats)
        table(spent, base, size, "examples")
        if args.store:
            store(
                args.store,
                f"bench_steps-{title.split(',')[0].lower()}",
                f"Training step, {title}: forward, backward and AdamW, {shape(ours.config)}",
                spent,
                base,
                size,
                "examples",
            )


if __name__ == "__main__":
    main()
