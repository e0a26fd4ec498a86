"""Sentences per second: minbert against sentence-transformers and transformers, in one process.

python benchmarks/bench_encode.py --model FOLDER --data FOLDER --threads 1
python benchmarks/bench_encode.py --model FOLDER --data FOLDER --threads 1 --peers
Each round encodes another part of the sentences with every variant. Ratios are medians over rounds.
"""

import os
import random
import tempfile

import torch
import torch.nn.functional as F
import transformers
from common import NATIVE_PRECISIONS, interleave, parser, question_pairs, shape, store, table
from peers import peers
from sentence_transformers import SentenceTransformer

from minbert.encoding.int8_linear import exact_integers
from minbert.sentence import SentenceEncoder


def padded_in_file_order(model, tokenizer, sentences, size=32):
    """The plain loop most people write: transformers' model, mean of real tokens."""
    vectors = []
    with torch.inference_mode():
        for start in range(0, len(sentences), size):
            batch = tokenizer(
                sentences[start : start + size], padding=True, truncation=True, return_tensors="pt"
            )
            h = model(**batch).last_hidden_state
            mask = batch["attention_mask"][..., None]
            vectors.append((h * mask).sum(1) / mask.sum(1))
    return torch.cat(vectors)


def compare(variants, base):
    """Print how far the vectors of each variant are from those of `base`, and warm everything up ->
    the same as columns.
    """
    columns = {"cosine, mean": {}, "cosine, lowest": {}}
    exact = F.normalize(variants[base](), dim=-1)
    print(f"{'cosine with ' + base:40}{'mean':>10}{'lowest':>10}")
    for name, encode in variants.items():
        cosine = (F.normalize(encode().float(), dim=-1) * exact).sum(-1)
        columns["cosine, mean"][name], columns["cosine, lowest"][name] = (
            cosine.mean().item(),
            cosine.min().item(),
        )
        print(f"{name:40}{cosine.mean():10.6f}{cosine.min():10.6f}")
    return columns


def run(args, exported):
    """Time every variant on the same parts of the questions. exported: an empty folder for the
    models of peers.
    """
    unique = list(dict.fromkeys(q for pair in question_pairs(args.data) for q in pair))
    random.Random(11711).shuffle(unique)
    unique = unique[: args.sentences]
    part = len(unique) // args.repeats
    parts = [unique[k * part : (k + 1) * part] for k in range(args.repeats)]

    # a file in half precision would stay so
    theirs = SentenceTransformer(args.model, device="cpu", model_kwargs={"dtype": torch.float32})
    ours = SentenceEncoder.from_pretrained(args.model, device="cpu")
    base = "SentenceTransformer.encode fp32"
    rivals = {base: theirs, **(peers(theirs, exported, args.threads) if args.peers else {})}
    variants = {
        name: lambda texts, model=model: model.encode(texts, convert_to_tensor=True)
        for name, model in rivals.items()
    }
    if args.plain:
        tokenizer = transformers.AutoTokenizer.from_pretrained(args.model)
        plain = transformers.AutoModel.from_pretrained(args.model, dtype=torch.float32).eval()
        variants["transformers, file order, fp32"] = lambda texts: padded_in_file_order(
            plain, tokenizer, texts
        )
    for precision in args.precision:
        variants[f"minbert {precision}"] = lambda texts, p=precision: ours.encode(
            texts, precision=p
        )

    few = parts[0][:500]
    near = compare(
        {name: lambda encode=encode: encode(few) for name, encode in variants.items()}, base
    )
    tokens = sum(len(ids) for ids in ours.tokenizer(few)["input_ids"]) / len(few)
    print(f"{part * args.repeats} questions, {part} a round, mean {tokens:.1f} tokens")
    spent = interleave(
        {name: lambda k, encode=encode: encode(parts[k]) for name, encode in variants.items()},
        args.repeats,
    )
    table(spent, base, part, "sentences")
    if args.store:
        name, options = ("bench_encode-peers", " --peers") if args.peers else ("bench_encode", "")
        says = f"Encoding{' beside what else a user could pick' * args.peers}: {part * args.repeats:,} questions of {tokens:.1f} tokens, {shape(ours.model.config)}"
        store(args.store, name, says, spent, base, part, "sentences", options, near)


def main():
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")  # threads that no option counts
    options = parser(
        __doc__.split("\n\n")[0], (*NATIVE_PRECISIONS, *["int8"] * exact_integers()), stores=True
    )
    options.add_argument("--sentences", type=int, default=10_000)
    options.add_argument(
        "--plain", action="store_true", help="also time transformers, padded in file order"
    )
    options.add_argument(
        "--peers",
        action="store_true",
        help="also time what else a user could pick: bf16, ONNX, OpenVINO (see peers.py)",
    )
    args = options.parse_args()
    torch.set_num_threads(args.threads)
    with tempfile.TemporaryDirectory() as exported:
        run(args, exported)


if __name__ == "__main__":
    main()
