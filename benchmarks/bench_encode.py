"""Sentences per second: minbert against sentence-transformers and transformers, in one process.

python benchmarks/bench_encode.py --model FOLDER --data FOLDER --threads 1
Each round encodes another part of the sentences with every variant. Ratios are medians over rounds.
"""
import random

import torch
import torch.nn.functional as F
import transformers
from common import interleave, parser, question_pairs, shape, store, table
from sentence_transformers import SentenceTransformer

from minbert.sentence import SentenceEncoder


def padded_in_file_order(model, tokenizer, sentences, size=32):
    """The plain loop most people write: transformers' model, mean of real tokens."""
    vectors = []
    with torch.inference_mode():
        for start in range(0, len(sentences), size):
            batch = tokenizer(sentences[start:start + size], padding=True, truncation=True, return_tensors="pt")
            h = model(**batch).last_hidden_state
            mask = batch["attention_mask"][..., None]
            vectors.append((h * mask).sum(1) / mask.sum(1))
    return torch.cat(vectors)


def main():
    options = parser(__doc__.splitlines()[0])
    options.add_argument("--sentences", type=int, default=10_000)
    options.add_argument("--plain", action="store_true", help="also time transformers, padded in file order")
    args = options.parse_args()
    torch.set_num_threads(args.threads)

    unique = list(dict.fromkeys(q for pair in question_pairs(args.data) for q in pair))
    random.Random(11711).shuffle(unique)
    unique = unique[:args.sentences]
    part = len(unique) // args.repeats
    parts = [unique[k * part:(k + 1) * part] for k in range(args.repeats)]

    theirs = SentenceTransformer(args.model, device="cpu", model_kwargs={"dtype": torch.float32})   # a file in half precision would stay so
    ours = SentenceEncoder.from_pretrained(args.model, device="cpu")
    base = "SentenceTransformer.encode fp32"
    variants = {base: lambda k: theirs.encode(parts[k], convert_to_tensor=True)}
    if args.plain:
        tokenizer = transformers.AutoTokenizer.from_pretrained(args.model)
        plain = transformers.AutoModel.from_pretrained(args.model, dtype=torch.float32).eval()
        variants["transformers, file order, fp32"] = lambda k: padded_in_file_order(plain, tokenizer, parts[k])
    for precision in args.precision:
        variants[f"minbert {precision}"] = lambda k, p=precision: ours.encode(parts[k], precision=p)

    few = parts[0][:500]  # warm up, and compare the vectors
    exact = F.normalize(theirs.encode(few, convert_to_tensor=True).float(), dim=-1)
    for precision in args.precision:
        cosine = (F.normalize(ours.encode(few, precision=precision), dim=-1) * exact).sum(-1)
        print(f"cosine with sentence-transformers fp32, minbert {precision}: min {cosine.min():.6f}, mean {cosine.mean():.6f}")
    tokens = sum(len(ids) for ids in ours.tokenizer(few)["input_ids"]) / len(few)
    print(f"{part * args.repeats} questions, {part} a round, mean {tokens:.1f} tokens")
    spent = interleave(variants, args.repeats)
    table(spent, base, part, "sentences")
    if args.store:
        store(args.store, "bench_encode", f"Encoding: {part * args.repeats:,} questions of {tokens:.1f} tokens, {shape(ours.model.config)}", spent, base, part, "sentences")


if __name__ == "__main__":
    main()
