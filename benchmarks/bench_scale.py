"""What a sentence costs one processor core on its way from a text file to a part of vectors, stage by stage.

python benchmarks/bench_scale.py --store results/benchmarks
Sentences are those that come with the package. Times are those of the processor, since cutting, tokenizing and encoding seldom wait; medians over rounds.
Sizes other than that of the embedded model have random weights: they take as long as trained ones.
"""
import argparse
import statistics
import tempfile
from pathlib import Path

import torch
from common import interleave, keep

from minbert.data import load_dataset
from minbert.encoder import BertConfig, BertModel
from minbert.engine.shards import encode_shards
from minbert.engine.textparts import cut_parts
from minbert.sentence import PooledBert, SentenceEncoder, encode_window
from minbert.tokens import encode_ids

SIZES = {"4 layers of 256": (4, 256, 4), "6 layers of 384": (6, 384, 12), "12 layers of 768": (12, 768, 12)}


class Ready:
    """An encoder that has encoded already: what is left is the work of writing."""

    def __init__(self, encoder, vectors):
        self.vectors, self.encoder = vectors, encoder

    def __getattr__(self, name):
        return getattr(self.encoder, name)

    def encode_stream(self, sentences, precision):
        yield self.vectors[:len(sentences)]


def stages(encoder, sentences: list[str], ids: list, folder: Path) -> dict:   # name -> function of a round, and the token ids of its sentences
    """Make what is timed."""
    n, file = len(sentences), folder / "text.txt"
    file.write_text("\n".join(sentences) + "\n", encoding="utf-8")
    ready = Ready(encoder, torch.randn(n, encoder.width))
    write = lambda k: list(encode_shards(ready, [file], folder / str(k), part_size=n))
    made = {"cut the text into parts": (lambda k: list(cut_parts([file], n)), ids), "tokenize": (lambda k: encode_ids(encoder.tokenizer, sentences), ids),
            "read and write a part of 256 numbers in float16": (write, ids)}
    for name, (layers, width, heads) in SIZES.items():
        model = PooledBert(BertModel(BertConfig(vocab_size=8000, hidden_size=width, num_hidden_layers=layers, num_attention_heads=heads, intermediate_size=4 * width)).eval())
        some = ids[::max(1, width**2 * layers // 8 // 256**2)]   # fewer for a larger model
        for precision in ("fp32", "bf16"):
            made[f"encode, {name}, {precision}"] = (lambda k, m=model, i=some, p=precision: encode_window(m, i, precision=p), some)
    return made


def main():
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0], formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    options.add_argument("--sentences", type=int, default=600, help="how many of the ten thousand, evenly spaced")
    options.add_argument("--repeats", type=int, default=3, help="rounds; each runs every stage once, and the first one warms up")
    options.add_argument("--store", type=Path, help="folder for the results as JSON")
    args = options.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(11711)

    sentences = load_dataset("sentences").sentences
    sentences = sentences[::max(1, len(sentences) // args.sentences)][:args.sentences]
    encoder = SentenceEncoder.from_pretrained(device="cpu")
    ids = encode_ids(encoder.tokenizer, sentences)
    count = lambda rows: sum(map(len, rows))
    size = sum(len(text.encode()) + 1 for text in sentences) / len(sentences)
    with tempfile.TemporaryDirectory() as folder:
        made = stages(encoder, sentences, ids, Path(folder))
        spent = interleave({name: run for name, (run, _) in made.items()}, args.repeats)
    median = {name: statistics.median(times[1]) for name, times in spent.items()}
    rows = {name: [len(made[name][1]) / t, count(made[name][1]) / t] for name, t in median.items()}
    tokens = count(ids) / len(ids)
    print(f"{len(ids):,} sentences, mean {tokens:.1f} tokens and {size:.1f} bytes; {args.repeats} rounds\n{'per second of one core':50}{'sentences':>14}{'tokens':>14}")
    for name, rates in rows.items():
        print(f"{name:50}" + "".join(f"{rate:14,.0f}" for rate in rates))
    if args.store:
        keep(args.store, "bench_scale", f"Stages: {len(ids):,} open sentences of {tokens:.1f} tokens, one core", "python benchmarks/bench_scale.py", args.repeats,
             ["sentences per second of the processor", "tokens per second of the processor"], rows, tokens=tokens, bytes=size)


if __name__ == "__main__":
    main()
