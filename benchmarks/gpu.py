"""What one GPU gives: training, SimCSE and encoding of a BERT-base beside transformers and
sentence-transformers, as shares of measured matrix products.

python benchmarks/gpu.py [--store FOLDER] [--parts train simcse encode layout] [--compile] One call,
some minutes, more with --compile. The weights are random and of BERT-base's sizes: speed does not
depend on them. Every party gets the same rows, weights, precision, AdamW and limit of the
gradient's length; only real tokens count as work, so padding is loss. "mixed": sentences of the
package joined until they are as long as the title says, or shorter. `--play` runs all of it at toy
sizes on a CPU; its figures mean nothing.
"""

import argparse
import csv
import gc
import gzip
import random
import statistics
import tempfile
import time
from contextlib import nullcontext
from importlib.resources import files
from itertools import cycle, islice
from pathlib import Path
from typing import NamedTuple

import torch
import transformers
from common import interleave, mean, processor, shape, write

from minbert.contrastive import simcse_loss
from minbert.core.device_step import DeviceStep
from minbert.core.devices import (
    LossScale,
    autocast,
    choose_device,
    fast_kernels,
    half_type,
    to_device,
    without_waiting,
)
from minbert.core.eval_mode import compile_parts
from minbert.core.fused_adamw import FusedAdamW
from minbert.core.prefetch import Ahead
from minbert.data import TaskBatch
from minbert.encoder import BertConfig, BertModel
from minbert.encoding.forward import encode_batch
from minbert.heads import LinearHead, MultitaskBert, multitask_loss
from minbert.sentence import SentenceEncoder
from minbert.simcse import ViewBatch, ViewModel, view_loss
from minbert.tokens import load_tokenizer, pad_ids
from minbert.training import steps


class Sizes(NamedTuple):
    """What fits a card."""

    config: BertConfig
    tokens: int  # of a training step
    steps: int  # of it in a round
    view_tokens: int  # of a step of SimCSE, both views together
    view_steps: int
    sentences: int  # encoded in a round
    lengths: tuple[int, ...]  # of SimCSE; the first two are trained on, too
    product: int  # width of the matrices whose products are the ceiling


def sizes(device: torch.device) -> Sizes:
    """Choose by memory: an H100 takes sixteen times the training step of a T4, and so much waits
    less for the program that feeds it.
    """
    if device.type == "cpu":
        return Sizes(BertConfig(30522, 32, 2, 2, 64), 64, 2, 64, 2, 40, (8, 16, 32), 128)
    memory = torch.cuda.get_device_properties(device).total_memory
    if memory < 30e9:
        return Sizes(BertConfig(), 4096, 5, 4096, 5, 3000, (64, 128, 256, 512), 4096)
    return Sizes(
        BertConfig(),
        65536 if memory > 70e9 else 32768,
        4,
        16384,
        10,
        20000,
        (64, 128, 256, 512),
        8192,
    )


class Bench(NamedTuple):
    """What all parts share."""

    device: torch.device
    sizes: Sizes
    # of training and encoding: "bf16", which is float16 where the card imitates bfloat16
    precision: str
    folder: Path  # a model with random weights, as transformers reads it
    rounds: int
    compile: bool

    @property
    def half(self) -> torch.dtype:
        """The dtype behind the precision; float32 on a processor that imitates bfloat16."""
        return half_type(self.device, self.precision) or torch.float32

    def wait(self):
        """Let the CPU wait until all is done."""
        if self.device.type == "cuda":
            torch.cuda.synchronize()


# the ceiling, and the work that is measured against it


def ceiling(bench: Bench) -> dict[str, float]:  # precision -> FLOP a second
    """Multiply square matrices: the best of ten, a round."""
    found = {}
    for name, dtype in {
        "bf16": torch.bfloat16,
        "fp16": torch.float16,
        "fp32": torch.float32,
    }.items():
        if (bench.device.type == "cpu" and name == "fp16") or (
            name == "bf16" and bench.half != torch.bfloat16
        ):
            continue  # nothing that this machine does in earnest
        a, b = (
            torch.randn(bench.sizes.product, bench.sizes.product, device=bench.device, dtype=dtype)
            for _ in range(2)
        )
        with fast_kernels(bench.device):
            times = []
            for _ in range(13):
                bench.wait()
                start = time.perf_counter()
                a @ b
                bench.wait()
                times.append(time.perf_counter() - start)
        found[name] = 2 * bench.sizes.product**3 / min(times[3:])
    return found


def flop(config: BertConfig, lengths) -> float:  # of one forward over sentences of these lengths
    """Count the products of the layers: 2 (4 D^2 + 2 D I) + 4 T D a token and layer; embedding,
    pooler and heads are left out.
    """
    D, inner = config.hidden_size, config.intermediate_size
    return config.num_hidden_layers * sum(
        T * (2 * (4 * D * D + 2 * D * inner) + 4 * T * D) for T in lengths
    )


def sentences() -> list[str]:
    """The open sentences of the package, shuffled."""
    with gzip.open(
        str(files("minbert") / "assets" / "open" / "sentences.tsv.gz"), "rt", encoding="utf-8"
    ) as f:
        found = [
            row["sentence"] for row in csv.DictReader(f, delimiter="\t", quoting=csv.QUOTE_NONE)
        ]
    random.Random(11711).shuffle(found)
    return found


def rows(tokenizer, count: int, longest: int, full: bool) -> list[list[int]]:
    """Ids of `count` texts: each of as many sentences as chance says, cut at `longest`; or all as
    long as that.
    """
    ids = cycle([row[1:-1] for row in tokenizer(sentences()[:2000])["input_ids"]])
    chance = random.Random(11711)
    first = tokenizer.cls_token_id
    last = tokenizer.sep_token_id
    found = []
    for _ in range(count):
        wanted, inner = longest if full else chance.randint(1, longest), []
        while len(inner) < (longest if full else min(wanted, longest)):
            inner += next(ids)
        found.append([first, *inner[: longest - 2], last])
    return found


# one step of everybody else


class TheirSteps:
    """The plain loop of those who know: autocast, fused AdamW, scaled losses in float16, and
    nothing read before the end.
    """

    def __init__(self, bench: Bench, model, loss_fn):
        self.bench, self.model, self.loss_fn = bench, model.to(bench.device).train(), loss_fn
        self.optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5, fused=True)
        self.scaler = torch.amp.GradScaler(bench.device.type, enabled=bench.half == torch.float16)

    def __call__(self, batches) -> float:
        total = 0.0
        for batch in batches:
            with autocast(self.bench.device, self.bench.precision):
                loss = self.loss_fn(self.model, batch)
            self.scaler.scale(loss).backward()
            self.scaler.unscale_(self.optimizer)
            torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
            self.scaler.step(self.optimizer)
            self.scaler.update()
            self.optimizer.zero_grad()
            total += loss.detach()
        return float(total)


class OurSteps:
    """`minbert.training.steps`, which reads losses and lengths in every step."""

    def __init__(self, bench: Bench, model, loss_fn):
        self.bench, self.model, self.loss_fn = bench, model.to(bench.device).train(), loss_fn
        self.optimizer, self.scale = FusedAdamW(model.parameters(), lr=1e-5), LossScale()

    def __call__(self, batches) -> float:
        supply = Ahead(self.bench.device).over(batches)
        return sum(
            r.loss
            for r in steps(
                self.model,
                supply,
                self.loss_fn,
                self.optimizer,
                max_grad_norm=1.0,
                take_step=DeviceStep(None, self.bench.precision, self.scale),
            )
        )


def groups_of(rows, size, alike=False):
    """Cut rows into batches; `alike`: of like length, as `TrainConfig.length_bucket` has it on a GPU."""
    rows = sorted(rows, key=len) if alike else rows
    found = [rows[i : i + size] for i in range(0, len(rows) - size + 1, size)]
    random.Random(1).shuffle(found)
    return found


# the parts: each yields title, base, what makes the variants, the rows that a round works on, and
# passes over them (a backward counts two)


def training(bench: Bench, tokenizer):
    """Classification of single texts: forward, backward, clipping, AdamW."""
    for longest in bench.sizes.lengths[:2]:
        for kind in ("full", "mixed"):
            size = max(2, bench.sizes.tokens // longest)
            ids = rows(tokenizer, size * bench.sizes.steps, longest, kind == "full")
            yield (
                f"training, {longest} tokens, {kind}",
                "transformers",
                lambda: classifiers(bench, tokenizer, ids, size, kind == "mixed"),
                ids,
                3,
            )


def classifiers(bench, tokenizer, ids, size, mixed):
    def batch(group):
        return {"task": TaskBatch("task", pad_ids(group), None, torch.arange(len(group)) % 3)}

    plain, like = (
        [batch(group) for group in groups_of(ids, size, alike)] for alike in (False, True)
    )

    def put(x):
        return x.to(bench.device, non_blocking=True)

    def their_loss(m, b):
        return m(
            put(b["task"].first.input_ids),
            put(b["task"].first.attention_mask),
            labels=put(b["task"].labels),
        ).loss

    rival = transformers.BertForSequenceClassification.from_pretrained(
        bench.folder, num_labels=3, dtype=torch.float32
    )
    theirs = TheirSteps(bench, rival, their_loss)
    variants = {"transformers": (theirs, plain)} | (
        {"transformers, like lengths together": (theirs, like)} if mixed else {}
    )
    for name, encoder in our_encoders(bench, tokenizer, "cls").items():
        model = MultitaskBert(encoder, {"task": LinearHead(bench.sizes.config.hidden_size, 3)})
        variants[name] = OurSteps(bench, model, multitask_loss), like
    return variants


def our_encoders(bench, tokenizer, pooling="mean"):
    """An encoder of ours as it is, and one compiled as `TrainConfig.compile` does, if that was
    asked for.
    """
    found = {}
    for compiled in (False, True)[: 1 + (bench.compile and bench.device.type == "cuda")]:
        encoder = found["minbert" + ", compiled" * compiled] = SentenceEncoder(
            BertModel.from_pretrained(bench.folder), tokenizer, pooling
        )
        if compiled:
            compile_parts(encoder.model.bert_layers)
    return found


def simcse(bench: Bench, tokenizer):
    """Two dropout views of each text, every other text of the batch a wrong answer."""
    for longest in bench.sizes.lengths:
        for kind in ("full", "mixed"):
            size = max(2, bench.sizes.view_tokens // 2 // longest)
            ids = rows(tokenizer, size * bench.sizes.view_steps, longest, kind == "full")
            yield (
                f"SimCSE, {longest} tokens, {kind}",
                "sentence-transformers",
                lambda: view_models(bench, tokenizer, groups_of(ids, size)),
                ids * 2,
                3,
            )


def view_models(bench, tokenizer, groups):
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.losses import MultipleNegativesRankingLoss

    def put(batch):
        return {
            "input_ids": batch.input_ids.to(bench.device, non_blocking=True),
            "attention_mask": batch.attention_mask.to(bench.device, non_blocking=True),
        }

    once, twice = [pad_ids(group) for group in groups], [pad_ids(group + group) for group in groups]

    def plain_loss(model, batch):
        side = put(batch)
        return simcse_loss(
            *mean(model(**side).last_hidden_state.float(), side["attention_mask"]).chunk(2)
        )

    st = SentenceTransformer(
        str(bench.folder), device=str(bench.device), model_kwargs={"dtype": torch.float32}
    )
    ranking = MultipleNegativesRankingLoss(st)
    plain = transformers.BertModel.from_pretrained(bench.folder, dtype=torch.float32)
    twins = [ViewBatch(batch, torch.arange(len(batch.input_ids) // 2)) for batch in twice]
    return {
        "sentence-transformers": (
            TheirSteps(bench, st, lambda model, batch: ranking([put(batch), put(batch)], None)),
            once,
        ),
        "transformers": (TheirSteps(bench, plain, plain_loss), twice),
        **{
            name: (OurSteps(bench, ViewModel(encoder), view_loss()), twins)
            for name, encoder in our_encoders(bench, tokenizer).items()
        },
    }


def encoding(bench: Bench, tokenizer):
    """Text in, vectors on the CPU out: tokenizers included."""
    texts = list(islice(cycle(sentences()), bench.sizes.sentences))
    yield (
        "encoding",
        "sentence-transformers, half, 32 a batch",
        lambda: encoders(bench, tokenizer, texts),
        tokenizer(texts)["input_ids"],
        1,
    )


def encoders(bench, tokenizer, texts):
    from sentence_transformers import SentenceTransformer

    ours = SentenceEncoder.from_pretrained(bench.folder, device=bench.device)
    st = {
        name: SentenceTransformer(
            str(bench.folder), device=str(bench.device), model_kwargs={"dtype": dtype}
        )
        for name, dtype in (("half", bench.half), ("fp32", torch.float32))
    }
    plain = (
        transformers.BertModel.from_pretrained(bench.folder, dtype=bench.half)
        .to(bench.device)
        .eval()
    )

    @torch.inference_mode()
    def in_file_order(texts):
        found = []
        for start in range(0, len(texts), 64):
            batch = tokenizer(
                texts[start : start + 64], padding=True, truncation=True, return_tensors="pt"
            ).to(bench.device)
            found.append(mean(plain(**batch).last_hidden_state, batch["attention_mask"]).float())
        return torch.cat(found).cpu()

    def rival(name, size):
        return lambda texts: (
            st[name]
            .encode(texts, batch_size=size, convert_to_tensor=True, show_progress_bar=False)
            .cpu()
        )

    variants = {
        f"sentence-transformers, {name}, {size} a batch": rival(name, size)
        for name, size in (("half", 32), ("half", 256), ("fp32", 256))
    }
    variants["transformers, half, file order, 64 a batch"] = in_file_order
    variants["minbert, half"] = lambda texts: ours.encode(texts, precision=bench.precision)
    variants["minbert, fp32"] = lambda texts: ours.encode(texts)
    return {name: (f, texts) for name, f in variants.items()}


def layouts(bench: Bench, tokenizer):
    """Padded or packed? The same forward without gradient, by the share of padding: what
    `packing_pays` decides on.
    """
    longest = bench.sizes.lengths[1]
    size = max(2, bench.sizes.view_tokens // longest)
    for share in (0.0, 0.125, 0.25, 0.5):
        chance, least = random.Random(1), max(2, round(longest * (1 - 2 * share)))
        ids = [
            row[: chance.randint(least, longest)]
            for row in rows(tokenizer, size * bench.sizes.view_steps, longest, True)
        ]
        cells = sum(longest for _ in ids)
        title = f"forward, {longest} tokens, {1 - sum(map(len, ids)) / cells:.0%} padding"
        yield (
            title,
            "padded",
            lambda: both_layouts(bench, [pad_ids(group) for group in groups_of(ids, size)]),
            ids,
            1,
        )


def both_layouts(bench, batches):
    model = BertModel.from_pretrained(bench.folder).to(bench.device).eval()

    def forward(packed):
        @torch.no_grad()
        def run(batches):
            with autocast(bench.device, bench.precision), without_waiting():
                return [
                    encode_batch(
                        model, *to_device(batch, bench.device), packed=packed
                    ).last_hidden_state[:, 0]
                    for batch in batches
                ][-1].cpu()

        return run

    return {"padded": (forward(False), batches), "packed": (forward(True), batches)}


PARTS = {"train": training, "simcse": simcse, "encode": encoding, "layout": layouts}


# measuring and writing


def measure(
    bench: Bench,
    variants,
    # seconds a round by variant; memory [GB]
) -> tuple[dict, dict[str, float]]:
    """Warm up, note how much memory a round takes beside what lies there, and time the variants by
    turns.
    """

    def one(run, batches):
        # TF32 for everybody
        with fast_kernels(bench.device) if bench.device.type == "cuda" else nullcontext():
            run(batches)
            bench.wait()

    memory = {}
    for name, (run, batches) in variants.items():
        one(run, batches)  # the optimizer makes its averages
        before = torch.cuda.memory_allocated() if bench.device.type == "cuda" else 0
        if bench.device.type == "cuda":
            torch.cuda.reset_peak_memory_stats()
        one(run, batches)
        memory[name] = (
            (torch.cuda.max_memory_allocated() - before) / 1e9
            if bench.device.type == "cuda"
            else 0.0
        )
    return interleave(
        {name: lambda turn, v=v: one(*v) for name, v in variants.items()}, bench.rounds
    ), memory


def figures(spent, memory, base, lengths, passes, config, peaks, half):
    """For each variant: real tokens a second, ratio to the base, share of the ceiling of its
    precision, memory.
    """
    found = {}
    for name, (wall, _) in spent.items():
        seconds = statistics.median(wall)
        peak = peaks["fp32" if "fp32" in name else half]
        found[name] = [
            sum(lengths) / seconds,
            statistics.median(b / t for b, t in zip(spent[base][0], wall)),
            passes * flop(config, lengths) / seconds / peak,
            memory[name],
        ]
    return found


COLUMNS = ["real tokens/s", "ratio", "share of the ceiling", "memory of a round [GB]"]


def show(title, found):
    """Print the table of one piece of work."""
    print(f"\n{title:42}{COLUMNS[0]:>16}{COLUMNS[1]:>9}{COLUMNS[2]:>22}{COLUMNS[3]:>24}")
    for name, (speed, ratio, share, memory) in found.items():
        print(f"  {name:40}{speed:16,.0f}{ratio:9.2f}{share:22.1%}{memory:24.2f}", flush=True)


def machine(bench: Bench, peaks) -> str:
    """Name card, ceiling and versions."""
    card = torch.cuda.get_device_name(bench.device) if bench.device.type == "cuda" else processor()
    products = ", ".join(f"{name} {peak / 1e12:.3g}" for name, peak in peaks.items())
    return f"{card}, torch {torch.__version__}; matrix products [TFLOP/s]: {products} (fp32 rounded to TF32 on a GPU)"


def store(folder: Path, part: str, says: str, where: str, bench: Bench, found) -> None:
    """Write FOLDER/gpu-PART.json, or gpu-PART-compiled.json, as `common.store` does; the rows of
    all pieces of work.
    """
    run = {
        "name": f"GPU, {part}{', compiled beside plain' * bench.compile}",
        "says": says,
        "command": f"python benchmarks/gpu.py --parts {part} --rounds {bench.rounds}{' --compile' * bench.compile}",
        "machine": where,
        "rounds": bench.rounds,
        "columns": COLUMNS,
        "rows": {
            f"{title}: {name}": numbers
            for title, table in found.items()
            for name, numbers in table.items()
        },
    }
    write(folder, f"gpu-{part}{'-compiled' * bench.compile}", run)


def run_part(bench: Bench, part: str, tokenizer, peaks) -> dict[str, dict[str, list[float]]]:
    """Measure the works of one part; one that does not fit the card is named and left out."""
    found = {}
    half = {torch.bfloat16: "bf16", torch.float16: "fp16", torch.float32: "fp32"}[bench.half]
    for title, base, make, ids, passes in PARTS[part](bench, tokenizer):
        try:
            spent, memory = measure(bench, make())
        except torch.OutOfMemoryError:
            print(f"\n{title}: does not fit into the memory of this card")
            continue
        finally:
            gc.collect()  # the models of this work
            if bench.device.type == "cuda":
                torch.cuda.empty_cache()
        found[title] = figures(
            spent, memory, base, [len(row) for row in ids], passes, bench.sizes.config, peaks, half
        )
        show(title, found[title])
    return found


def main(arguments: list[str] | None = None) -> dict:  # part -> work -> variant -> figures
    """Measure what is asked for, print tables, and store them."""
    options = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    options.add_argument("--parts", nargs="+", choices=list(PARTS), default=list(PARTS))
    options.add_argument("--rounds", type=int, default=5, help="each runs every variant once")
    options.add_argument(
        "--compile",
        action="store_true",
        help="also train through torch.compile, SimCSE included: some minutes more",
    )
    options.add_argument(
        "--store", type=Path, help="folder for the results as JSON, such as results/benchmarks"
    )
    options.add_argument(
        "--play", action="store_true", help="toy sizes on the CPU; the figures mean nothing"
    )
    args = options.parse_args(arguments)
    device = torch.device("cpu") if args.play else choose_device()
    if device.type == "cpu" and not args.play:
        raise SystemExit(
            "expected a CUDA GPU, found none: `--play` runs the same at toy sizes on the CPU"
        )
    with tempfile.TemporaryDirectory() as folder:
        torch.manual_seed(11711)
        transformers.logging.set_verbosity_error()
        bench = Bench(device, sizes(device), "bf16", Path(folder), args.rounds, args.compile)
        tokenizer = load_tokenizer()
        SentenceEncoder(BertModel(bench.sizes.config), tokenizer).save_pretrained(folder)
        peaks = ceiling(bench)
        where = machine(bench, peaks)
        says = f"random weights, {shape(bench.sizes.config)}, steps of {bench.sizes.tokens} tokens, of SimCSE {bench.sizes.view_tokens}, half precision is {str(bench.half)[6:]}"
        print(f"{where}\n{says}")
        found = {}
        for part in args.parts:
            found[part] = run_part(bench, part, tokenizer, peaks)
            if args.store:
                store(args.store, part, says, where, bench, found[part])
    return found


if __name__ == "__main__":
    main()
