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
from diagrams_bertcf import DIAGRAMS as BERTCF
from diagrams_bertflow import DIAGRAMS as BERTFLOW
from diagrams_bregman import DIAGRAMS as BREGMAN
from diagrams_center import DIAGRAMS as CENTER
from diagrams_contrastive import DIAGRAMS as CONTRASTIVE
from diagrams_corpus import DIAGRAMS as CORPUS
from diagrams_data import DIAGRAMS as DATA
from diagrams_encoder import DIAGRAMS as ENCODER
from diagrams_evaluation import DIAGRAMS as EVALUATION
from diagrams_finetune import DIAGRAMS as FINETUNE
from diagrams_flows import DIAGRAMS as FLOWS
from diagrams_heads import DIAGRAMS as HEADS
from diagrams_negatives import DIAGRAMS as NEGATIVES
from diagrams_optim import DIAGRAMS as OPTIM
from diagrams_pcgrad import DIAGRAMS as PCGRAD
from diagrams_pretraining import DIAGRAMS as PRETRAINING
from diagrams_results import DIAGRAMS as RESULTS
from diagrams_sentence import DIAGRAMS as SENTENCE
from diagrams_simcse import DIAGRAMS as SIMCSE
from diagrams_smart import DIAGRAMS as SMART
from diagrams_smoothness import DIAGRAMS as SMOOTHNESS
from diagrams_tokens import DIAGRAMS as TOKENS
from diagrams_whitening import DIAGRAMS as WHITENING
from drawing import BODY, PALETTE, SMALL, Drawing, box  # noqa: F401

ROOT = Path(__file__).resolve().parent.parent


def masked_prediction():
    """Show how a masked token is predicted: tokens, hidden states, head, probabilities."""
    d = Drawing(
        404,
        "Predicting a masked token",
        "The nine tokens of “She made a cup of [MASK].” enter BERT, which computes one hidden state for each of them. "
        "The hidden state at [MASK] enters a head, which computes a logit for each token of the vocabulary. The softmax "
        "function turns the logits into probabilities: coffee 0.50, tea 0.20, flowers 0.04.",
    )
    tokens = ("[CLS]", "she", "made", "a", "cup", "of", "[MASK]", ".", "[SEP]")
    masked = tokens.index("[MASK]")
    for i, token in enumerate(tokens):
        x = 48 + 68 * i
        chosen = i == masked
        d.rect(x - 33, 356, 66, 32, "key-light" if chosen else "cell", "muted", 1.4, radius=6)
        d.text(x, 377, token, "ink", SMALL)
        d.arrow(x, 356, x, 332)
        d.arrow(x, 284, x, 262)
        fill, stroke = ("key-light", "key") if chosen else ("weight-light", "weight")
        d.rect(x - 24, 236, 48, 24, fill, stroke, 2 if chosen else 1.4, radius=4)
    d.rect(15, 286, 610, 44, "query-light", "query", 2, radius=8)
    d.text(320, 313, "BERT", "ink", BODY, weight=600)
    d.text(15, 222, "hidden states (T, D) = (9, 256)", "weight", SMALL, "start", weight=600)
    x = 48 + 68 * masked
    d.arrow(x, 236, x, 186)
    d.rect(264, 128, 344, 56, "key-light", "key", 2, radius=8)
    d.text(436, 150, "head for masked tokens", "ink", SMALL, weight=600)
    d.text(436, 172, "compares with V token vectors", "muted", SMALL)
    d.arrow(x, 128, x, 102)
    d.text(x + 14, 121, "logits (V), softmax", "muted", SMALL, "start")
    d.text(436, 30, "probabilities (V)", "ink", SMALL, weight=600)
    for row, (word, probability) in enumerate((("coffee", 0.5), ("tea", 0.2), ("flowers", 0.04))):
        y = 52 + 20 * row
        d.text(340, y, word, "ink", SMALL, "end")
        d.rect(350, y - 13, 360 * probability, 15, "key", "key", 0)
        d.text(358 + 360 * probability, y, f"{probability:.2f}", "ink", SMALL, "start")
    return d


def whole_model():
    """Show BERT from the tokens to three uses of its hidden states."""
    d = Drawing(
        748,
        "The whole model",
        "Five tokens are mapped to one vector each by the embedding layer. L encoder layers, one above the other, each "
        "with self-attention and a feed-forward network, transform the vectors. Above them are five hidden states, which "
        "are used in three ways: the hidden state of [CLS] enters the pooler and a classifier, all hidden states are "
        "averaged into a sentence embedding, and the hidden state of [MASK] enters a head that predicts the masked token.",
    )
    xs = (88, 204, 320, 436, 552)
    tokens = ("[CLS]", "tea", "is", "[MASK]", "[SEP]")
    states = ("head2", "weight", "weight", "key", "weight")
    for x, token, colour in zip(xs, tokens, states):
        d.rect(x - 46, 698, 92, 34, "cell", "muted", 1.4, radius=6)
        d.text(x, 720, token, "ink", SMALL, weight=600)
        d.arrow(x, 698, x, 676)
        d.arrow(x, 624, x, 602)
        d.arrow(x, 564, x, 542)
        d.arrow(x, 510, x, 496)
        d.arrow(x, 322, x, 300)
        d.rect(x - 40, 274, 80, 24, f"{colour}-light", colour, 2, radius=4)
    d.rect(32, 626, 576, 50, "value-light", "value", 2, radius=8)
    d.text(320, 648, "embedding layer", "ink", SMALL, weight=600)
    d.text(320, 668, "token + position + segment: (T, D)", "muted", SMALL)
    d.rect(32, 566, 576, 34, "query-light", "query", 2, radius=8)
    d.text(320, 589, "encoder layer 1", "ink", SMALL, weight=600)
    d.text(320, 527, "…  layers 2 to L − 1, each of the same structure  …", "query", SMALL)
    d.rect(32, 324, 576, 170, "query-light", "query", 2, radius=8)
    d.text(320, 348, "encoder layer L", "ink", SMALL, weight=600)
    d.rect(52, 424, 536, 58, "cell", "query", 1.6, radius=8)
    d.text(320, 448, "self-attention", "ink", SMALL, weight=600)
    d.text(320, 471, "each token gathers information from all tokens", "muted", SMALL)
    d.rect(52, 360, 536, 58, "cell", "query", 1.6, radius=8)
    d.text(320, 384, "feed-forward network", "ink", SMALL, weight=600)
    d.text(320, 407, "transforms the vector of each token separately", "muted", SMALL)
    for x in (112, 204, 320, 412, 552):
        d.path(f"M{x},274 V262", "weight", 1.6)
    d.path(
        "M111,262 H450 a10,10 0 0 1 20,0 H553", "weight", 1.6
    )  # passes above the arrow of [MASK]
    d.text(118, 250, "hidden states (T, D)", "ink", SMALL, "start", weight=600)
    uses = (
        (116, 168, "classifier", "logits (C)", "head2-light", "head2", "label of a sentence"),
        (320, 168, "mean pooling", "embedding (D)", "weight-light", "weight", "similar sentences"),
        (516, 184, "token prediction", "logits (V)", "key-light", "key", "token, e.g. “hot”"),
    )
    for x, width, words, shape, fill, stroke, use in uses:
        box(d, x, 92, width, words, shape, fill, stroke)
        d.text(x, 44, use, "ink", SMALL)
        d.arrow(x, 64, x, 51)
    box(d, 116, 174, 168, "pooler", "", "head2-light", "head2", 34)
    d.arrow(116, 156, 116, 121)
    d.arrow(64, 274, 64, 193, "head2")
    d.arrow(320, 262, 320, 121, "weight")
    d.arrow(460, 274, 460, 121, "key")
    return d


def two_phases():
    """Show pretraining on plain text, and two ways to go on: fine-tuning and training on pairs."""
    d = Drawing(
        410,
        "Pretraining and what follows",
        "On the left, an encoder with a token prediction head is pretrained on plain text in which tokens are masked. "
        "Its weights are copied twice to the right. Above, the encoder is fine-tuned with a new head on labelled "
        "examples. Below, it is trained further, for search, on pairs of sentences with mean pooling.",
    )
    d.text(124, 64, "1. pretraining", "key", BODY, weight=700)
    box(d, 124, 112, 172, "token prediction", "", "key-light", "key", 42)
    box(d, 124, 200, 172, "encoder", "", "query-light", "query", 62)
    d.arrow(124, 168, 124, 135)
    d.arrow(124, 266, 124, 233)
    d.text(124, 288, "masked plain text", "ink", SMALL, weight=600)
    d.text(124, 310, "19 million tokens,", "muted", SMALL)
    d.text(124, 330, "no labels needed", "muted", SMALL)
    d.text(262, 207, "weights", "query", SMALL, weight=600)
    rows = (
        (
            84,
            "2. fine-tuning for a task",
            "new head",
            "head2",
            "labelled sentences or pairs",
            "e.g. 1,000 to 7,000 examples",
        ),
        (
            284,
            "2. further training for search",
            "mean pooling",
            "weight",
            "pairs of related sentences",
            "about 100,000 pairs (part 3)",
        ),
    )
    for y, title, head, colour, data, amount in rows:
        d.text(460, y - 50, title, colour, BODY, weight=700)
        box(d, 378, y, 120, "encoder", "", "query-light", "query", 62)
        box(d, 548, y, 140, head, "", f"{colour}-light", colour, 42)
        d.arrow(440, y, 476, y)
        d.arrow(378, y + 66, 378, y + 33)
        d.text(460, y + 86, data, "ink", SMALL, weight=600)
        d.text(460, y + 106, amount, "muted", SMALL)
    d.arrow(212, 190, 316, 96, "query", 3)
    d.arrow(212, 210, 316, 276, "query", 3)
    return d


def sentence_search():
    """Show how a query is compared with N texts by sentence embeddings."""
    d = Drawing(
        362,
        "Search with sentence embeddings",
        "A query and N texts enter the same encoder. Mean pooling gives one embedding of size D for the query and "
        "N embeddings for the texts. Their cosine similarities are N numbers, which are sorted.",
    )
    sides = (
        (152, "query", "“I would like to …”", "(D)"),
        (474, "N texts", "“Applying for a loan”, …", "(N, D)"),
    )
    for x, title, words, shape in sides:
        d.text(x, 322, title, "ink", SMALL, weight=600)
        d.text(x, 344, words, "muted", SMALL)
        d.arrow(x, 304, x, 282)
        d.arrow(x, 236, x, 214)
        box(d, x, 192, 150, "mean pooling", "", "weight-light", "weight", 42)
        if title == "query":
            d.text(x + 14, 159, f"embedding {shape}", "muted", SMALL, "start")
        else:
            d.text(x - 14, 159, f"embeddings {shape}", "muted", SMALL, "end")
        d.arrow(x, 170, x, 132)
    d.rect(32, 238, 576, 44, "query-light", "query", 2, radius=8)
    d.text(
        320, 265, "the same encoder: hidden states (T, D) for each text", "ink", SMALL, weight=600
    )
    d.rect(32, 88, 576, 44, "key-light", "key", 2, radius=8)
    d.text(320, 115, "cosine similarity of the query and each text: (N)", "ink", SMALL, weight=600)
    d.arrow(320, 88, 320, 56)
    d.text(320, 42, "the most similar texts first", "ink", SMALL, weight=600)
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
        xs = [middle - 111 + 74 * i for i in range(4)]
        d.rect(xs[1] - 35, 66, 70, 34, f"{colour}-light", colour, 2, radius=6)
        d.text(xs[1], 88, prediction, "ink", SMALL, weight=600)
        for i, (x, token) in enumerate(zip(xs, tokens)):
            if not token:
                continue
            if i in read:
                d.rect(x - 35, 206, 70, 34, "cell", "muted", 1.4, radius=6)
                d.arrow(x, 206, xs[1] + (x - xs[1]) * 0.14, 102, colour)
            else:
                d.dashed(f"M{x - 35},206 h70 v34 h-70 Z", "line", 1.4)
            d.text(x, 228, token, "ink" if i in read else "muted", SMALL)
    d.text(160, 272, "uses the words on both sides", "muted", SMALL)
    d.text(480, 272, "has not reached “of tea”", "muted", SMALL)
    return d


DIAGRAMS = {
    "masked-prediction": masked_prediction,
    "encoder-decoder": encoder_decoder,
    "whole-model": whole_model,
    "two-phases": two_phases,
    "sentence-search": sentence_search,
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
    **FLOWS,
    **DATA,
    **CENTER,
    **CORPUS,
    **CONTRASTIVE,
    **SIMCSE,
    **BREGMAN,
    **SMART,
    **SMOOTHNESS,
    **WHITENING,
    **BERTFLOW,
    **BERTCF,
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
