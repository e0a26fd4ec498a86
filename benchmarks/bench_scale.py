"""What a sentence costs one processor core on its way from a text file to a part of vectors, stage
by stage.

python benchmarks/bench_scale.py --store results/benchmarks Sentences are those that come with the
package. Times are those of the processor, since cutting, tokenizing and encoding seldom wait;
medians over rounds. Sizes other than that of the embedded model have random weights: they take as
long as trained ones.
"""

import argparse
import statistics
import tempfile
from pathlib import Path

import torch
from common import interleave, keep

from minbert.data import load_dataset
from minbert.encoder import BertConfig, BertModel
from minbert.encoding.line_chunks import TextReader, cut_parts
from minbert.encoding.shards import Shards, encode_shards
from minbert.sentence import SentenceEncoder
from minbert.tokens import encode_ids

SIZES = {
    "4 layers of 256": (4, 256, 4),
    "6 layers of 384": (6, 384, 12),
    "12 layers of 768": (12, 768, 12),
}


def stages(
    encoder,
    sentences: list[str],
    ids: list,
    some: int,
    folder: Path,
    # name -> function of a round, and the token ids of its sentences
) -> dict:
    """Make what is timed; `some` sentences are encoded, and fewer by a larger model."""
    n, file = len(sentences), folder / "text.txt"
    file.write_text("\n".join(sentences) + "\n", encoding="utf-8")
    vectors, parts = torch.randn(n, encoder.width), Path(folder / "parts")
    # encoded already: what is left is the work of writing
    encoder.encode_stream = lambda texts, precision: [vectors]
    list(encode_shards(encoder, [file], parts, part_size=n))
    shards = Shards(parts)

    def rewrite(k):
        with TextReader([file]) as reader:
            reader.read_part(shards.parts[0])
        shards.write(0, vectors)

    made = {
        "cut the text into parts": (lambda k: list(cut_parts([file], n)), ids),
        "tokenize": (lambda k: encode_ids(encoder.tokenizer, sentences), ids),
        "read and write a part of 256 numbers in float16": (rewrite, ids),
    }
    for name, (layers, width, heads) in SIZES.items():
        model = SentenceEncoder(
            BertModel(
                BertConfig(
                    vocab_size=8000,
                    hidden_size=width,
                    num_hidden_layers=layers,
                    num_attention_heads=heads,
                    intermediate_size=4 * width,
                )
            ).eval(),
            encoder.tokenizer,
        )
        drawn = ids[:: max(1, n // some) * max(1, width**2 * layers // 8 // 256**2)]
        # as asked for: a processor without bfloat16 does both in float32, and the page counts on
        # both
        for precision in ("fp32", "bf16"):
            made[f"encode, {name}, {precision}"] = (
                lambda k, m=model, i=drawn, p=precision: m.encode_ids(i, precision=p),
                drawn,
            )
    return made


def main():
    options = argparse.ArgumentParser(
        description=__doc__.split("\n\n")[0], formatter_class=argparse.ArgumentDefaultsHelpFormatter
    )
    options.add_argument(
        "--sentences", type=int, default=600, help="to encode, evenly spaced in the ten thousand"
    )
    options.add_argument(
        "--repeats",
        type=int,
        default=3,
        help="rounds; each runs every stage once, and the first one warms up",
    )
    options.add_argument("--store", type=Path, help="folder for the results as JSON")
    args = options.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(11711)

    sentences = load_dataset("sentences").sentences
    encoder = SentenceEncoder.from_pretrained(device="cpu")
    ids = encode_ids(encoder.tokenizer, sentences)

    def count(rows):
        return sum(map(len, rows))

    size = sum(len(text.encode()) + 1 for text in sentences) / len(sentences)
    with tempfile.TemporaryDirectory() as folder:
        made = stages(encoder, sentences, ids, args.sentences, Path(folder))
        spent = interleave({name: run for name, (run, _) in made.items()}, args.repeats)
    median = {name: statistics.median(times[1]) for name, times in spent.items()}
    rows = {name: [len(made[name][1]) / t, count(made[name][1]) / t] for name, t in median.items()}
    tokens = count(ids) / len(ids)
    print(
        f"{len(ids):,} sentences, mean {tokens:.1f} tokens and {size:.1f} bytes; {args.repeats} rounds\n{'per second of one core':50}{'sentences':>14}{'tokens':>14}"
    )
    for name, rates in rows.items():
        print(f"{name:50}" + "".join(f"{rate:14,.0f}" for rate in rates))
    if args.store:
        keep(
            args.store,
            "bench_scale",
            f"Stages: {len(ids):,} open sentences of {tokens:.1f} tokens, one core",
            "python benchmarks/bench_scale.py",
            args.repeats,
            ["sentences per second of the processor", "tokens per second of the processor"],
            rows,
            tokens=tokens,
            bytes=size,
        )


if __name__ == "__main__":
    main()
