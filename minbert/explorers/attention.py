"""The attention explorer: one query and three keys in a plane, and the attention maps of a model."""

from __future__ import annotations

import math
from copy import deepcopy
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import torch
from torch import Tensor, nn

from ..core.figures import PALETTE, heatmap, panel, panels
from ..encoding.forward import with_attention
from ..tokens import load_tokenizer
from .base import BESIDE, Explorer, choice, point, slider, text, words

__all__ = ["AttentionExplorer", "KEYS", "Reading", "hand_weights", "read_sentence"]

# of the chapter; there they are queries and values as well
KEYS = {"river": (2.5, 0.2), "money": (0.2, 1.6), "bank": (1.0, 1.0)}
MARKERS = "os^"  # a shape a key
QUERY, KEY, VALUE, WEIGHT = "#2f6fb3", "#c25f17", "#267f5a", "#6846a8"  # as in the diagrams
LOW, HIGH = -1.0, 3.0  # of the plane, in both directions
LONGEST = 20  # pieces of a sentence that are read: more names do not fit beside a map


def hand_weights(
    query: np.ndarray,  # (K,)
    keys: np.ndarray,  # (T, K)
    hidden: np.ndarray,  # (T,) bool, keys that get the mask constant
    factor: float = 1.0,  # times q . k / sqrt(K)
    constant: float = -1e4,  # added to the score of a hidden key
) -> tuple[np.ndarray, np.ndarray]:  # scores (T,) with the constant, attention weights (T,)
    """Compute scores and attention weights: softmax(factor q k^T / sqrt(K) + constant hidden)."""
    scores = factor * keys @ query / math.sqrt(len(query)) + constant * hidden
    powers = np.exp(scores - scores.max())
    return scores, powers / powers.sum()


@dataclass
class Reading:
    """What a model made of one sentence."""

    pieces: list[str]  # T of them, with [CLS] and [SEP]
    maps: Tensor  # (L, H, T, T), row i: the attention weights of query i
    last: Tensor  # (T, D), after the last layer


@torch.no_grad()
def read_sentence(
    model,  # BertModel in eval mode
    input_ids: Tensor,  # (T,) int64
    hidden: Tensor,  # (T,) bool, keys that get the mask constant in every layer and head
    factor: float = 1.0,  # times q . k / sqrt(K), in every layer and head
    constant: float = -1e4,  # added to the scores of a hidden key
) -> tuple[Tensor, Tensor]:  # maps (L, H, T, T), last hidden states (T, D)
    """Run the encoder with another factor or mask constant, and keep every map."""
    attend = _ChangedAttention(hidden, factor, constant)
    hidden_states = model.embedding(input_ids[None])  # (1, T, D)
    for layer in model.bert_layers:
        changed = with_attention(layer, attend.of(layer.self_attention))
        hidden_states = changed(hidden_states)
    return torch.stack(attend.maps), hidden_states[0]


class _ChangedAttention(nn.Module):
    """Self-attention with another factor of the scores and another mask constant; it keeps its maps."""

    def __init__(self, hidden: Tensor, factor: float, constant: float):
        super().__init__()
        self.hidden, self.factor, self.constant = hidden, factor, constant
        self.attention, self.maps = None, []

    def of(self, attention: nn.Module) -> _ChangedAttention:
        """Use the weights of another layer from now on."""
        self.attention = attention
        return self

    def forward(self, hidden_states: Tensor, attention_mask: None) -> Tensor:
        heads = (self.attention.heads, -1)
        query, key, value = (
            x.unflatten(-1, heads).transpose(-3, -2) for x in self.attention.project(hidden_states)
        )  # (1, H, T, K) each
        scores = self.factor * query @ key.mT / math.sqrt(query.shape[-1])  # (1, H, T, T)
        weights = (scores + self.constant * self.hidden.to(query)).softmax(-1)
        self.maps.append(weights[0])
        return (weights @ value).transpose(-3, -2).flatten(-2)  # (1, T, D)


class AttentionExplorer(Explorer):
    """Drag a query and a key and see the attention weights change; then hide tokens of a sentence and
    see what the heads of a model attend to.

    Views: by hand, three keys in a plane; a sentence, with any layer and head of the embedded model
    or of your own. A model is copied: what happens to it later does not change the pictures. Raises
    ValueError for a tokenizer of another vocabulary.
    """

    title = "What a token attends to"

    def __init__(
        self,
        model=None,  # BertModel, or None: the one in the package
        tokenizer=None,  # of that model, or None: the one in the package
        sentence: str = "The river rose, and its bank gave way.",  # to begin with
        view: str = "by hand",  # or "a sentence"
    ):
        from ..encoder import BertModel

        self.tokenizer = tokenizer or load_tokenizer()
        self.model = (
            BertModel.from_pretrained() if model is None else deepcopy(model).cpu().float().eval()
        )
        if len(self.tokenizer) > self.model.config.vocab_size:
            raise ValueError(
                f"expected a tokenizer of at most {self.model.config.vocab_size} pieces, as the model has, got {len(self.tokenizer)}"
            )
        self.sentence, self.view_first = sentence, view
        self._read = lru_cache(64)(self._read_once)

    def _controls(self):
        config = self.model.config
        layers, heads = config.num_hidden_layers, config.num_attention_heads
        made = [
            choice(
                "view",
                self.view_first,
                ["by hand", "a sentence"],
                help="A query and three keys to drag, or the maps of a model.",
            ),
            text(
                "sentence",
                self.sentence,
                help=f"The input of the model: its first {LONGEST} tokens.",
            ),
            words(
                "hide",
                label="hide tokens",
                help="A selected token is masked like padding: the mask constant is added to the scores of its key.",
            ),
            slider(
                "layer",
                1,
                1,
                layers,
                1,
                help=f"Which of the {layers} layers is drawn; layer 1 follows the embedding layer.",
            )
            if layers > 1
            else None,
            slider("head", 1, 1, heads, 1, help=f"Which of the layer's {heads} heads is drawn.")
            if heads > 1
            else None,
            slider(
                "factor",
                1.0,
                0.0,
                8.0,
                0.25,
                label="factor of the scores",
                help="Times q·k / √K: 1 is the formula, √K leaves the division out, 0 makes all weights equal.",
            ),
            slider(
                "mask",
                4.0,
                0.0,
                4.0,
                0.1,
                label="mask: log10 of −constant",
                help="The number that is added for a hidden key is −10 to this power: 4 is −10,000, 0 is −1.",
            ),
            point(
                "query",
                (1.0, 1.0),
                low=(LOW, LOW),
                high=(HIGH, HIGH),
                step=0.1,
                help="Drag the query of bank.",
            ),
            point(
                "key",
                KEYS["river"],
                low=(LOW, LOW),
                high=(HIGH, HIGH),
                step=0.1,
                label="key of river",
                help="Drag the key of river.",
            ),
        ]
        # a model with one layer or one head has no slider for it
        return [control for control in made if control]

    def _idle(self, view, **_):
        used = {"by hand": {"query", "key"}, "a sentence": {"sentence", "layer", "head"}}[view]
        return sorted(self.controls.keys() - used - {"view", "hide", "factor", "mask"})

    def _words(self, view, sentence, **_):
        return {"hide": [*KEYS] if view == "by hand" else self.pieces(sentence)}

    def _ids(self, sentence):
        return self.tokenizer(
            sentence,
            truncation=True,
            max_length=min(LONGEST, self.model.config.max_position_embeddings),
        )["input_ids"]

    def pieces(self, sentence: str) -> list[str]:  # T of them
        """Cut a sentence as the model sees it."""
        return self.tokenizer.convert_ids_to_tokens(self._ids(sentence))

    def reading(self, sentence: str, hide=(), factor: float = 1.0, mask: float = 4.0) -> Reading:
        """Let the model read a sentence; the last 64 readings are remembered."""
        return self._read(sentence, tuple(hide), factor, mask)

    def _read_once(self, sentence, hide, factor, mask):
        ids = torch.tensor(self._ids(sentence))
        hidden = torch.tensor([place in hide for place in range(len(ids))])
        return Reading(
            self.tokenizer.convert_ids_to_tokens(ids.tolist()),
            *read_sentence(self.model, ids, hidden, factor, -(10.0**mask)),
        )

    def moved(
        self,
        sentence: str,
        hide=(),
        factor: float = 1.0,
        mask: float = 4.0,
        # (T,) in [0, 2]
    ) -> np.ndarray:
        """Say how far each piece's last vector goes from where it is with nothing hidden and factor
        1: one minus the cosine.
        """
        before, after = self.reading(sentence).last, self.reading(sentence, hide, factor, mask).last
        return (
            (1 - torch.cosine_similarity(before.double(), after.double(), dim=-1))
            .clamp_min(0)
            .numpy()
        )

    def _draw(self, view, **settings):
        return self._plane(**settings) if view == "by hand" else self._sentence(**settings)

    def _hand(self, hide, factor, mask, query, key, **_):
        keys = np.array([key, *[*KEYS.values()][1:]])
        hidden = np.array([place in hide for place in range(len(KEYS))])
        return (
            keys,
            hidden.tolist(),
            *hand_weights(np.array(query), keys, hidden, factor, -(10.0**mask)),
        )

    def _plane(self, query, **settings):
        keys, hidden, scores, weights = self._hand(query=query, **settings)
        left, right = panels(2, (10.5, 4.6))
        panel(
            "first dimension", "second dimension", "the query of bank (arrow) and three keys", left
        )
        left.annotate(
            "",
            query,
            (0, 0),
            arrowprops={"arrowstyle": "->", "color": QUERY, "linewidth": 2},
        )
        for name, place, gone, marker in zip(KEYS, keys, hidden, MARKERS):
            left.plot(
                *place,
                marker,
                color=KEY,
                markersize=11,
                fillstyle="none" if gone else "full",
                markeredgewidth=2,
            )
            low = place[1] < HIGH - 0.6  # room above
            left.annotate(
                f"({name})" if gone else name,
                place,
                (0, BESIDE if low else -BESIDE),
                textcoords="offset points",
                fontsize=9,
                ha="center",
                va="bottom" if low else "top",
            )
        left.plot(
            *(weights @ keys),
            "*",
            color=VALUE,
            markersize=15,
            markeredgecolor="white",
            linestyle="none",
            zorder=5,
            label="output: weighted mean of the keys",
        )
        left.legend(frameon=False, fontsize=8, loc="lower right")
        left.axhline(0, color="#777777", linewidth=0.8)
        left.axvline(0, color="#777777", linewidth=0.8)
        left.set(
            xlim=(LOW - 0.2, HIGH + 0.2), ylim=(LOW - 0.2, HIGH + 0.2), aspect="equal", anchor="W"
        )
        panel("key", "attention weight", "attention weights of the query", right)
        bars = right.bar(range(len(KEYS)), weights, color=WEIGHT, width=0.6)
        for bar, weight, gone in zip(bars, weights, hidden):
            bar.set_hatch("//" * gone)
            right.text(bar.get_x() + 0.3, weight + 0.02, f"{weight:.2f}", ha="center", fontsize=9)
        right.set(ylim=(0, 1.1))
        right.set_xticks(
            range(len(KEYS)), [f"({name})" if gone else name for name, gone in zip(KEYS, hidden)]
        )
        return left.figure

    def _sentence(self, sentence, hide, factor, mask, layer=1, head=1, **_):
        reading = self.reading(sentence, hide, factor, mask)
        moved = self.moved(sentence, hide, factor, mask)
        left, right = panels(2, (11.5, 4.9))
        wide = left.get_gridspec().ncols == 2
        # room for the names of pieces
        left.get_gridspec().update(
            left=0.95 / left.figure.get_figwidth(),
            right=1 - 0.22 / left.figure.get_figwidth(),
            bottom=1.0 / 4.9 if wide else 0.09,
            wspace=0.25,
            hspace=0.55,
        )
        pieces = [piece if len(piece) < 9 else piece[:7] + "…" for piece in reading.pieces]
        pieces = [f"({piece})" if place in hide else piece for place, piece in enumerate(pieces)]
        heatmap(
            reading.maps[layer - 1, head - 1],
            pieces,
            pieces,
            left,
            "key",
            "query",
            f"layer {layer}, head {head}: attention weights",
            "",
            (0, 1),
        )
        panel("1 − cosine similarity", "token", "change of the last hidden states", right)
        colours = [
            PALETTE["untrained"] if place in hide else PALETTE["ours"]
            for place in range(len(pieces))
        ]
        for place, bar in enumerate(right.barh(range(len(pieces)), moved, color=colours)):
            bar.set_hatch("//" * (place in hide))
        right.set_yticks(range(len(pieces)), pieces, fontsize=8)
        right.set(ylim=(len(pieces) - 0.5, -0.5), xlim=(0, max(0.1, 1.1 * moved.max())))
        return left.figure

    def _spots(self, view, sentence, hide, factor, mask, layer=1, head=1, **settings):
        if view == "by hand":
            _, _, scores, weights = self._hand(hide=hide, factor=factor, mask=mask, **settings)
            return [
                [
                    1,
                    place - 0.3,
                    place + 0.3,
                    0,
                    1.1,
                    f"{name}: score {score:,.2f}, weight {weight:.3f}",
                ]
                for place, (name, score, weight) in enumerate(zip(KEYS, scores, weights))
            ]
        reading = self.reading(sentence, hide, factor, mask)
        moved = self.moved(sentence, hide, factor, mask)
        weights, pieces = reading.maps[layer - 1, head - 1].tolist(), reading.pieces
        cells = [
            [
                0,
                j - 0.5,
                j + 0.5,
                i - 0.5,
                i + 0.5,
                f"query {pieces[i]}, key {pieces[j]}: {weight:.3f}",
            ]
            for i, row in enumerate(weights)
            for j, weight in enumerate(row)
        ]
        return cells + [
            [1, 0, 9, i - 0.5, i + 0.5, f"{piece} changed by {far:.3f}"]
            for i, (piece, far) in enumerate(zip(pieces, moved))
        ]

    def _describe(self, view, sentence, hide, factor, mask, layer=1, head=1, **settings):
        if view == "by hand":
            keys, hidden, scores, weights = self._hand(
                hide=hide, factor=factor, mask=mask, **settings
            )
            told = ", ".join(
                f"{name} {weight:.2f}{' (hidden)' * gone}"
                for name, weight, gone in zip(KEYS, weights, hidden)
            )
            x, y = weights @ keys
            return (
                f"Scores {', '.join(f'{score:,.2f}' for score in scores)}. The query ({settings['query'][0]:.1f}, {settings['query'][1]:.1f}) gives the attention weights {told}. "
                f"The weighted mean of the keys is ({x:.2f}, {y:.2f})."
            )
        reading = self.reading(sentence, hide, factor, mask)
        moved = self.moved(sentence, hide, factor, mask)
        weights, best = reading.maps[layer - 1, head - 1].max(-1)
        most = "; ".join(
            f"{piece} → {reading.pieces[j]} {weight:.2f}"
            for piece, j, weight in zip(reading.pieces, best.tolist(), weights.tolist())
        )
        far = np.argsort(-moved, kind="stable")[:3]
        gone = [piece for place, piece in enumerate(reading.pieces) if place in hide]
        changed = (
            "Nothing is hidden, and nothing changed."
            if not moved.max() > 1e-9
            else (
                f"{'Hidden: ' + ', '.join(gone) if gone else 'Nothing is hidden'}. Changed most: "
                + ", ".join(f"{reading.pieces[i]} {moved[i]:.3f}" for i in far)
                + "."
            )
        )
        return f"Layer {layer}, head {head}. For each query, the key with the largest attention weight: {most}. {changed}"
