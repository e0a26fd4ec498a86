"""Draw the diagrams of the chapters as SVG, and put them into the notebooks.

    python scripts/diagrams.py                 # redraws every diagram, in every notebook that shows it
    python scripts/diagrams.py --out FOLDER    # writes SVG files instead

A chapter shows a diagram as `![alternative text](attachment:NAME.svg)`. The drawing is stored in the
notebook itself, so that it appears wherever the notebook is opened. Every drawing is 640 units wide and uses one
palette, one font and the helpers of drawing.py. On a phone 640 units become 390 pixels; text is therefore at least 16 units
high, which is 10 pixels there. Each drawing has a background of its own and a second set of colours
for dark pages. Meaning never depends on colour alone: every shape has a label.
"""

import argparse
import base64
import json
import re
from pathlib import Path

from diagrams_attention import (
    multi_head,
    one_query,
    padding_mask,
    permutation,
    query_key_value,
    scaled_dot_product,
)
from diagrams_center import DIAGRAMS as CENTER
from diagrams_contrastive import DIAGRAMS as CONTRASTIVE
from diagrams_corpus import DIAGRAMS as CORPUS
from diagrams_data import DIAGRAMS as DATA
from diagrams_encoder import DIAGRAMS as ENCODER
from diagrams_evaluation import DIAGRAMS as EVALUATION
from diagrams_finetune import DIAGRAMS as FINETUNE
from diagrams_heads import DIAGRAMS as HEADS
from diagrams_negatives import DIAGRAMS as NEGATIVES
from diagrams_optim import DIAGRAMS as OPTIM
from diagrams_pcgrad import DIAGRAMS as PCGRAD
from diagrams_pretraining import DIAGRAMS as PRETRAINING
from diagrams_results import DIAGRAMS as RESULTS
from diagrams_sentence import DIAGRAMS as SENTENCE
from diagrams_smart import DIAGRAMS as SMART
from diagrams_tokens import DIAGRAMS as TOKENS
from diagrams_whitening import DIAGRAMS as WHITENING
from drawing import BODY, PALETTE, SMALL, Drawing, box  # noqa: F401

ROOT = Path(__file__).resolve().parent.parent


def whole_model():
    """Show BERT from the tokens to three uses of its hidden states."""
    d = Drawing(
        740,
        "The whole model",
        "Five tokens are mapped to one vector each by the embedding layer. L encoder layers, one above the other, each "
        "with self-attention and a feed-forward network, transform the vectors. Above them, the hidden states are "
        "used in three ways: one head predicts a masked token, mean pooling averages them into a sentence embedding, "
        "and a classifier receives the hidden state of [CLS] after the pooler.",
    )
    xs = (88, 204, 320, 436, 552)
    tokens = ("[CLS]", "tea", "is", "[MASK]", "[SEP]")
    for x, token in zip(xs, tokens):
        d.rect(x - 46, 686, 92, 34, "cell", "muted", 1.4, radius=6)
        d.text(x, 708, token, "ink", SMALL, weight=600)
        d.arrow(x, 686, x, 664)
        d.arrow(x, 612, x, 590)
        d.arrow(x, 552, x, 530)
        d.arrow(x, 266, x, 240)
    d.rect(32, 614, 576, 50, "value-light", "value", 2, radius=8)
    d.text(320, 636, "embedding layer", "ink", SMALL, weight=600)
    d.text(320, 656, "token + position + segment, layer normalization: (T, D)", "muted", SMALL)
    d.rect(32, 554, 576, 34, "query-light", "query", 2, radius=8)
    d.text(320, 577, "encoder layer 1", "ink", SMALL, weight=600)
    d.text(320, 514, "…  layers 2 to L − 1, each of the same structure  …", "query", SMALL)
    for x in xs:
        d.arrow(x, 498, x, 484)
    d.rect(32, 268, 576, 214, "query-light", "query", 2, radius=8)
    d.text(320, 292, "encoder layer L", "ink", SMALL, weight=600)
    d.rect(52, 392, 536, 78, "cell", "query", 1.6, radius=8)
    d.text(320, 417, "multi-head self-attention", "ink", SMALL, weight=600)
    d.text(320, 440, "each token gathers information from all tokens", "muted", SMALL)
    d.text(320, 461, "+ residual connection, layer normalization", "muted", SMALL)
    d.rect(52, 304, 536, 78, "cell", "query", 1.6, radius=8)
    d.text(320, 329, "feed-forward network", "ink", SMALL, weight=600)
    d.text(320, 352, "transforms the vector of each token separately", "muted", SMALL)
    d.text(320, 373, "+ residual connection, layer normalization", "muted", SMALL)
    d.text(320, 230, "hidden states: one vector per token, (T, D)", "ink", SMALL, weight=600)
    uses = (
        (120, "token prediction", "logits (T, V)", "key-light", "key", "masked token: “hot”"),
        (320, "mean pooling", "embedding (D)", "weight-light", "weight", "similar sentences"),
        (520, "classifier", "logits (C)", "head2-light", "head2", "label of a sentence"),
    )
    for x, words, shape, fill, stroke, use in uses:
        box(d, x, 92, 176, words, shape, fill, stroke)
        d.text(x, 44, use, "ink", SMALL)
        d.arrow(x, 64, x, 51)
    d.arrow(120, 210, 120, 120)
    d.arrow(320, 210, 320, 120)
    d.arrow(520, 210, 520, 191)
    box(d, 520, 170, 176, "pooler of [CLS]", "", "head2-light", "head2", 38)
    d.arrow(520, 150, 520, 120)
    return d


def two_phases():
    """Show pretraining on plain text and fine-tuning on a few labelled examples."""
    d = Drawing(
        330,
        "Pretraining and fine-tuning",
        "On the left, an encoder with a token prediction head is pretrained on plain text in which tokens are masked. "
        "Its weights are copied to the right, where the same encoder is fine-tuned with a new head on labelled examples.",
    )
    d.text(160, 36, "1. pretraining", "key", BODY, weight=700)
    d.text(480, 36, "2. fine-tuning", "head2", BODY, weight=700)
    d.path("M320,20 L320,136", "line", 1.4)
    d.path("M320,190 L320,310", "line", 1.4)
    for x, head, fill, stroke in (
        (160, "token prediction", "key-light", "key"),
        (480, "new head", "head2-light", "head2"),
    ):
        box(d, x, 84, 190, head, "", fill, stroke, 42)
        box(d, x, 168, 190, "encoder", "", "query-light", "query", 62)
        d.arrow(x, 136, x, 107)
        d.arrow(x, 232, x, 201)
    d.arrow(257, 168, 383, 168, "query", 3)
    d.text(320, 156, "weights", "query", SMALL, weight=600)
    d.text(160, 256, "plain text, tokens masked", "ink", SMALL, weight=600)
    d.text(160, 278, "here: 19 million tokens,", "muted", SMALL)
    d.text(160, 298, "no labels needed", "muted", SMALL)
    d.text(480, 256, "labelled sentences or pairs", "ink", SMALL, weight=600)
    d.text(480, 278, "a few thousand examples", "muted", SMALL)
    d.text(480, 298, "for each task", "muted", SMALL)
    return d


def encoder_decoder():
    """Show which tokens an encoder and a decoder use to predict the same token."""
    d = Drawing(
        300,
        "Encoder and decoder",
        "On the left, an encoder predicts the masked token in “a [MASK] of tea”: arrows from all four tokens lead to "
        "the prediction “cup”. On the right, a decoder predicts the same word from the token “a” alone, because it "
        "has not reached “of tea”; its prediction is “few”.",
    )
    d.path("M320,20 L320,284", "line", 1.4)
    sides = (
        (160, "encoder (BERT)", ("a", "[MASK]", "of", "tea"), (0, 1, 2, 3), "cup", "query"),
        (480, "decoder (GPT)", ("a", "", "of", "tea"), (0,), "few", "key"),
    )
    for middle, title, tokens, read, prediction, colour in sides:
        d.text(middle, 36, title, colour, BODY, weight=700)
        xs = [middle - 108 + 72 * i for i in range(4)]
        d.rect(xs[1] - 34, 66, 68, 34, f"{colour}-light", colour, 2, radius=6)
        d.text(xs[1], 88, prediction, "ink", SMALL, weight=600)
        for i, (x, token) in enumerate(zip(xs, tokens)):
            if not token:
                continue
            if i in read:
                d.rect(x - 34, 206, 68, 34, "cell", "muted", 1.4, radius=6)
                d.arrow(x, 206, xs[1] + (x - xs[1]) * 0.14, 102, colour)
            else:
                d.dashed(f"M{x - 34},206 h68 v34 h-68 Z", "line", 1.4)
            d.text(x, 228, token, "ink" if i in read else "muted", SMALL)
    d.text(160, 272, "uses the words on both sides", "muted", SMALL)
    d.text(480, 272, "has not reached “of tea”", "muted", SMALL)
    return d


DIAGRAMS = {
    "encoder-decoder": encoder_decoder,
    "whole-model": whole_model,
    "two-phases": two_phases,
    "attention-one-query": one_query,
    "query-key-value": query_key_value,
    "scaled-dot-product-attention": scaled_dot_product,
    "multi-head-attention": multi_head,
    "padding-mask": padding_mask,
    "permutation-equivariance": permutation,
    **ENCODER,
    **TOKENS,
    **PCGRAD,
    **PRETRAINING,
    **NEGATIVES,
    **OPTIM,
    **HEADS,
    **RESULTS,
    **EVALUATION,
    **SENTENCE,
    **FINETUNE,
    **DATA,
    **CENTER,
    **CORPUS,
    **CONTRASTIVE,
    **SMART,
    **WHITENING,
}
SHOWN = re.compile(r"\(attachment:([\w-]+)\.svg\)")


def attach(notebook: dict) -> bool:
    """Store the diagrams that the Markdown cells of a notebook show; tell whether anything changed."""
    before = json.dumps(notebook, sort_keys=True)
    for cell in notebook["cells"]:
        names = SHOWN.findall("".join(cell["source"])) if cell["cell_type"] == "markdown" else []
        cell.pop("attachments", None)
        if names:
            cell["attachments"] = {
                f"{name}.svg": {"image/svg+xml": encoded(name)} for name in names
            }
    return json.dumps(notebook, sort_keys=True) != before


def encoded(name: str) -> str:
    return base64.b64encode(DIAGRAMS[name]().svg().encode("utf-8")).decode("ascii")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    if given.out:
        given.out.mkdir(parents=True, exist_ok=True)
        for name, draw in DIAGRAMS.items():
            (given.out / f"{name}.svg").write_text(draw().svg(), encoding="utf-8")
        return
    for file in sorted((ROOT / "nbs").rglob("*.ipynb")):
        notebook = json.loads(file.read_text(encoding="utf-8"))
        if attach(notebook):
            text = json.dumps(notebook, indent=1, ensure_ascii=False, sort_keys=True)
            file.write_text(text + "\n", encoding="utf-8")
            print(file.relative_to(ROOT))


if __name__ == "__main__":
    main()
