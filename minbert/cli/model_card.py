"""Model cards: a README with the training data, the number of tokens seen and the measured scores,
written from a run's log.

The batches of a run follow from its seed, so the tokens can be counted again without a training
step.
"""

__all__ = ["CARD", "tokens_seen", "write_card"]

from dataclasses import asdict
from itertools import islice
from pathlib import Path

from ..core.atomic_dir import atomic_write_dir
from ..core.files import write_json
from ..corpus_cache import load_corpus
from ..encoder import BertModel
from .pretraining import PretrainConfig, step_indices


def tokens_seen(
    folder: str | Path,  # the run's folder
    config: PretrainConfig,
) -> int:  # tokens
    """Count the real tokens of a whole run, repeats included. Raises ValueError if its corpus is
    damaged.
    """
    lengths = load_corpus(folder).lengths
    batches = islice(step_indices(lengths, config), config.total_steps)
    return int(sum(lengths[rows].sum() for rows in batches))


CARD = """---
{said}library_name: minbert
---

# A small BERT pretrained with minbert

A BERT of {config.num_hidden_layers} layers, {config.hidden_size} wide, {config.num_attention_heads} heads,
{config.vocab_size:,} word pieces, {parameters:,} parameters, stored in half precision. Pretrained from
{origin} by masked-language modelling, without labels and without dropout. What is the same in all last hidden states
was moved into the biases behind them; no guess changes by it.

{corpus}

Tokens seen: {tokens:,} in {steps:,} steps of about {config.tokens_per_step:,} ({precision}). Highest rate {rates},
after {config.warmup_steps} steps of warm-up, 0 at the end (`pretraining.json` has it row by row); mask rate {config.mask_rate:.0%}.

| step | training loss [nats] | held-out loss [nats] | held-out words guessed |
|---|---|---|---|
{rows}

STS-B dev, Spearman of cosine and grade, by pooling: {poolings}.

Made by `minbert pretrain CORPUS{model} --out RUN --data DATA`.
"""


def write_card(
    folder: str | Path,  # holds the model; gets README.md and pretraining.json
    config: PretrainConfig,
    rows: list[dict],  # of the log
    tokens: int,  # seen in training
    corpus: str,  # a paragraph about the text: origin and licence
    poolings: dict[str, float],  # as sts_by_pooling returns; may be empty
    license: str | None = None,  # of the model, as the hub spells it; None: not stated
    origin: str = "random weights",  # what the run began with
    # of the text, as the hub spells it, such as de; None: not stated
    language: str | None = None,
) -> None:
    """Write the model's card and its log. Raises ValueError if the log has no row."""
    if not rows:
        raise ValueError("expected at least one row of the log, got none")
    model = BertModel.from_pretrained(folder)
    table = [
        f"| {r['step']:,} | {r['loss']:.2f} | {r['heldout_loss']:.2f} | {r['accuracy']:.1%} |"
        for r in rows
        if "accuracy" in r
    ]
    scores = ", ".join(f"{how} {score:.3f}" for how, score in poolings.items()) or "not measured"
    rates = (
        f"{config.matrix_lr:g} (Muon, matrices) and {config.lr:g} (AdamW, the rest)"
        if config.matrix_lr
        else f"{config.lr:g}"
    )
    said = "".join(
        f"{name}: {value}\n"
        for name, value in (("language", language), ("license", license))
        if value
    )
    text = CARD.format(
        config=config,
        origin=origin,
        model="" if origin == "random weights" else " --model MODEL",
        parameters=sum(p.numel() for p in model.parameters()),
        corpus=corpus,
        tokens=tokens,
        steps=rows[-1]["step"],
        precision=config.precision,
        rows="\n".join(table),
        poolings=scores,
        rates=rates,
        said=said,
    )
    with atomic_write_dir(folder) as draft:
        (draft / "README.md").write_text(text, encoding="utf-8")
        write_json(
            draft / "pretraining.json", {"config": asdict(config), "tokens": tokens, "rows": rows}
        )
