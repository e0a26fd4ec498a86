"""Hidden words under the hands: what encoders guess after more and more tokens of pretraining."""

from __future__ import annotations

import os
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from ..core.figures import PALETTE, panel, panels
from ..encoder import BertModel
from ..pretrain import MlmHead, load_mlm
from ..tokens import load_tokenizer, resolve_folder
from .base import Explorer, slider, text, words

__all__ = ["COPIES", "Gap", "MaskedWordExplorer", "UNTRAINED", "found_copies", "guess"]

UNTRAINED = "untrained"
# of the run that made the embedded model, in results/pretraining of a clone
COPIES = {"10 million tokens": "step-153", "50 million tokens": "step-763"}
LONGEST = 40  # pieces of a sentence that are read


def found_copies(
    # where the copies are; None: results/pretraining of the clone that this package stands in
    folder: str | Path | None = None,
    # name -> folder, None for the embedded model; in order of the tokens read
) -> dict[str, Path | None]:
    """List the encoders to compare: an untrained one and the embedded model always, and the copies
    between them that are there.
    """
    folder = (
        Path(__file__).resolve().parents[2] / "results" / "pretraining"
        if folder is None
        else Path(folder)
    )
    between = {
        name: folder / step
        for name, step in COPIES.items()
        if (folder / step / "model.safetensors").is_file()
    }
    return {UNTRAINED: UNTRAINED, **between, "359 million tokens": None}


class Gap(NamedTuple):
    """What one encoder thinks of one hidden piece."""

    pieces: list[str]  # the five likeliest
    shares: list[float]  # their probabilities
    # of the true piece, 1 is the first; None where the sentence itself says [MASK]
    rank: int | None
    share: float | None  # its probability


@torch.no_grad()
def guess(
    model,  # BertModel
    head,  # MlmHead of it
    input_ids: Tensor,  # (T,) int64, with [MASK] at the gaps
    gaps: list[int],  # n places
) -> Tensor:  # (n, V) probabilities
    """Ask for the pieces at the gaps."""
    hidden = model(input_ids[None]).last_hidden_state[0, gaps]  # (n, D)
    return head(hidden, model.embedding.word_embedding.weight).softmax(-1)


class MaskedWordExplorer(Explorer):
    """Press words of a sentence to hide them, and see what each encoder puts into the gap.

    All encoders read with one vocabulary. Raises ValueError for no or more than four encoders, a
    folder without its masked-word head, and one of another vocabulary.
    """

    title = "Guesses of a hidden word"

    def __init__(
        self,
        # name -> folder with encoder and masked-word head, None for the embedded model, or
        # "untrained"; None: `found_copies`
        folders: dict | None = None,
        tokenizer=None,  # of all of them, or None: the one in the package
        sentence: str = "The river flows into the sea near the old harbour.",  # to begin with
        hidden=(5,),  # places of the words hidden at first
    ):
        folders = found_copies() if folders is None else dict(folders)
        if not 1 <= len(folders) <= 4:
            raise ValueError(f"expected 1 to 4 encoders, got {len(folders)}")
        self.tokenizer = tokenizer or load_tokenizer()
        self.sentence, self.hidden = sentence, hidden
        loaded = {name: load_mlm(folder) for name, folder in folders.items() if folder != UNTRAINED}
        shape = (
            next(iter(loaded.values()))[0].config if loaded else BertModel.from_pretrained().config
        )
        self.encoders = {
            name: loaded[name] if name in loaded else _fresh(shape) for name in folders
        }
        for name, folder in folders.items():
            self._check_words(name, None if folder == UNTRAINED else folder)
        self._guessed = lru_cache(64)(self._guess_once)

    def _check_words(self, name, folder):
        """Refuse an encoder whose rows stand for other pieces."""
        if (size := self.encoders[name][0].config.vocab_size) != len(self.tokenizer):
            raise ValueError(
                f"expected {len(self.tokenizer)} pieces in the vocabulary of {name}, as the tokenizer has, got {size}"
            )
        if folder is None or not os.path.lexists(Path(resolve_folder(folder)) / "vocab.txt"):
            return
        if load_tokenizer(folder).get_vocab() != self.tokenizer.get_vocab():
            raise ValueError(
                f"expected the pieces of the tokenizer in the vocabulary of {name}, got others in {folder}"
            )

    def _controls(self):
        return [
            text(
                "sentence",
                self.sentence,
                help=f"What the encoders read, its first {LONGEST} pieces; [MASK] in it is a gap without a known answer.",
            ),
            words(
                "hide",
                self.hidden,
                label="hide words",
                help="A pressed word becomes [MASK], once for each of its pieces.",
            ),
            slider(
                "gap",
                1,
                1,
                LONGEST - 2,
                1,
                label="which gap",
                help="Where several pieces are hidden: the guesses for which of them, from the left, are drawn.",
            ),
        ]

    def _idle(self, sentence, hide, **_):
        return [] if len(self._cut(sentence, hide)[2]) > 1 else ["gap"]

    def _settled(self, sentence, hide, gap):
        count = len(self._cut(sentence, hide)[2])
        return {"gap": count} if 1 < count < gap else {}

    def _cut(self, sentence, hide):
        """Give ids with [MASK] at the gaps, the true ids, the places of the gaps, and the words
        with their places.
        """
        cut = self.tokenizer(sentence, truncation=True, max_length=LONGEST)
        true, spans = cut["input_ids"], {}
        for place, word in enumerate(cut.word_ids()):
            if word is not None and true[place] != self.tokenizer.mask_token_id:
                spans.setdefault(word, []).append(place)
        spans = [*spans.values()]
        gone = {place for word in hide if word < len(spans) for place in spans[word]}
        gaps = [
            place
            for place, piece in enumerate(true)
            if place in gone or piece == self.tokenizer.mask_token_id
        ]
        return (
            [
                self.tokenizer.mask_token_id if place in gone else piece
                for place, piece in enumerate(true)
            ],
            true,
            gaps,
            spans,
        )

    def words_of(self, sentence: str) -> list[str]:
        """Cut a sentence into the words that can be hidden."""
        _, true, _, spans = self._cut(sentence, ())
        return [
            self.tokenizer.convert_tokens_to_string(
                self.tokenizer.convert_ids_to_tokens([true[place] for place in span])
            )
            for span in spans
        ]

    def _words(self, sentence, **_):
        return {"hide": self.words_of(sentence)}

    def guesses(
        self,
        sentence: str,
        hide=(),
        # a dict a gap: name of the encoder -> its guesses
    ) -> list[dict[str, Gap]]:
        """Ask every encoder for every gap; the last 64 sentences are remembered."""
        return self._guessed(sentence, tuple(hide))

    def _guess_once(self, sentence, hide):
        ids, true, gaps, _ = self._cut(sentence, hide)
        if not gaps:
            return []
        found = {
            name: guess(*both, torch.tensor(ids), gaps) for name, both in self.encoders.items()
        }
        return [
            {name: self._gap(shares[row], true[place]) for name, shares in found.items()}
            for row, place in enumerate(gaps)
        ]

    def _gap(self, shares, true):
        best = shares.topk(5)
        pieces = self.tokenizer.convert_ids_to_tokens(best.indices.tolist())
        if true == self.tokenizer.mask_token_id:
            return Gap(pieces, best.values.tolist(), None, None)
        return Gap(
            pieces,
            best.values.tolist(),
            1 + int((shares > shares[true]).sum()),
            shares[true].item(),
        )

    def _chosen(self, sentence, hide, gap):
        """The gap that is drawn: its number from 1, its guesses, and the true piece or None."""
        all_gaps = self.guesses(sentence, hide)
        number = min(gap, len(all_gaps))
        if not all_gaps:
            return 0, 0, None, None
        _, true, gaps, _ = self._cut(sentence, hide)
        (piece,) = self.tokenizer.convert_ids_to_tokens([true[gaps[number - 1]]])
        return (
            number,
            len(all_gaps),
            all_gaps[number - 1],
            None if piece == self.tokenizer.mask_token else piece,
        )

    def _draw(self, **settings):
        _, _, gap, true = self._chosen(**settings)
        empty = (
            "no word is hidden:\npress one"
            if self.words_of(settings["sentence"])
            else "there are no words:\ntype some"
        )
        axes = panels(len(self.encoders), (3.4 * len(self.encoders) + 0.6, 3.4))
        for ax, name in zip(axes, self.encoders):
            panel("probability", "piece", name, ax)
            ax.set(xlim=(0, 1), ylim=(4.6, -0.6))
            ax.set_yticks([])
            if gap is None:
                ax.text(0.5, 2, empty, ha="center", va="center")
            else:
                _bars(ax, gap[name], true)
        return axes[0].figure

    def _spots(self, **settings):
        _, _, gap, true = self._chosen(**settings)
        return (
            []
            if gap is None
            else [
                [at, 0, 1.01, row - 0.5, row + 0.5, f"{name}: {piece} {share:.4f}"]
                for at, (name, guesses) in enumerate(gap.items())
                for row, (piece, share) in enumerate(zip(guesses.pieces, guesses.shares))
            ]
        )

    def _describe(self, sentence, hide, gap):
        number, count, found, true = self._chosen(sentence, hide, gap)
        if found is None:
            return (
                "No word is hidden: press one."
                if self.words_of(sentence)
                else "There are no words: type some."
            )
        ids, *_ = self._cut(sentence, hide)
        asked = self.tokenizer.decode(ids[1:-1])
        which = f"Gap {number} of {count}: " if count > 1 else ""
        truth = "" if true is None else f" Hidden: “{true}”."
        told = [
            f"{name}: "
            + ", ".join(f"{piece} {_share(share)}" for piece, share in zip(g.pieces, g.shares))
            + ("" if true is None else f"; “{true}” is guess {g.rank:,} with {_share(g.share)}")
            for name, g in found.items()
        ]
        return "\n".join([f"{which}{asked}{truth}", *told])


def _fresh(config):
    """Draw an encoder and its head, always the same ones."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return BertModel(config).eval(), MlmHead(config).eval()


def _share(share):
    return f"{share:.2f}" if share >= 0.005 else f"{share:.1g}"


def _bars(ax, gap, true):
    """Draw five guesses; the true piece is hatched and marked."""
    for row, (piece, share) in enumerate(zip(gap.pieces, gap.shares)):
        right = piece == true
        ax.barh(
            row,
            share,
            color=PALETTE["ours"] if right else "#9fb7d3",
            hatch="//" if right else None,
            height=0.7,
        )
        inside = share > 0.55  # then there is no room beside the bar
        ax.text(
            share - 0.02 if inside else share + 0.02,
            row,
            f"{piece} {_share(share)}" + " ✓" * right,
            ha="right" if inside else "left",
            va="center",
            fontsize=9,
            fontweight="bold" if right else None,
            bbox={"color": "white", "pad": 1.5} if inside else None,
        )
    if true is not None and true not in gap.pieces:
        ax.text(
            0.98,
            4.3,
            f"“{true}”: guess {gap.rank:,}",
            ha="right",
            va="center",
            fontsize=8,
            color="#444444",
        )
