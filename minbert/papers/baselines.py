"""What scores must be compared with: weights that learned nothing, words alone, and the cheapest
correction that saw the same text.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn.functional import embedding_bag

from ..baselines import idf_overlap, idf_weights
from ..encoder import BertModel
from ..sentence import SentenceEncoder
from ..sts import word_overlap
from ..tokens import encode_ids
from ..whitening import Calibration, NullTop, Standardize, StandardizeNullTop, Whiten
from .li import (
    BERT,
    BERT_2,
    DENSE,
    LAST2AVG,
    LESS,
    MEAN,
    MNLI,
    SMALL,
    TARGET,
    flow_target,
    joined,
    plain,
    vectors,
)
from .recipe import claim, recipe
from .run import Run
from .sts_suite import (
    DEV,
    NEEDS,
    SETS,
    Cached,
    Through,
    by_cosine,
    keep,
    on_nli,
    on_target,
    seven,
    text_of,
)

LAST_TWO = "last2avg"  # the last two layers, as section 4.1 of Li et al. says
SEEN = {"text": "train, dev and test of each set, no labels: what the flow of Li et al. sees"}


def untrained(run: Run) -> Cached:
    """Draw the weights of the base model anew."""
    encoder = run.base()
    torch.manual_seed(run.seed)
    model = BertModel(encoder.model.config).to(encoder.device)
    return keep(
        run,
        "control/untrained",
        SentenceEncoder(model, encoder.tokenizer, LAST2AVG, max_length=64).eval(),
    )


def target(kind: type[Calibration], *k: int) -> Callable:
    """Correct the vectors of each set on its own sentences."""
    return lambda run, found: on_target(
        run, found, lambda text: kind(found.width, *k).fit(found.encode(text))
    )


def whiten_nli(run: Run, found: Cached) -> Callable:
    """Whiten on the sentences of the NLI sets, as many as the scale allows."""
    return on_nli(run, found, lambda text: Whiten(found.width).fit(found.encode(text)))


class RareWords:
    """SIF: the mean of the vectors of a sentence's pieces, each times a / (a + p), p its share of
    the pieces of a text.

    Paper: Arora et al. (2017), algorithm 1, a = 1e-3. Differs: word pieces, from BERT's table; p is
    counted in the text to be compared.
    """

    def __init__(self, encoder: SentenceEncoder, text: list[str], a: float = 1e-3):
        self.tokenizer, self.table = (
            encoder.tokenizer,
            encoder.model.embedding.word_embedding.weight.detach().cpu(),
        )
        counts = torch.bincount(torch.cat(self._pieces(text)), minlength=len(self.table)).double()
        self.weights = (a / (a + counts / counts.sum())).float()  # (V,)

    def _pieces(self, sentences: list[str]) -> list[Tensor]:
        # without [CLS] and [SEP]
        return [
            torch.tensor(ids[1:-1], dtype=torch.int64)
            for ids in encode_ids(self.tokenizer, sentences, 64)
        ]

    def encode(
        self,
        sentences: list[str],
        # (N, D) float32, zeros for a sentence without pieces
    ) -> Tensor:
        """Average the weighted vectors."""
        pieces = self._pieces(sentences)
        lengths = torch.tensor([len(p) for p in pieces])
        flat = torch.cat(pieces)
        total = embedding_bag(
            flat,
            self.table,
            lengths.cumsum(0) - lengths,
            mode="sum",
            per_sample_weights=self.weights[flat],
        )
        return total / lengths.clamp(min=1)[:, None]


def sif(run: Run, task: str) -> Through:
    """Weigh words on the text of a set, and remove the first direction of its vectors, the mean
    left where it is.
    """
    encoder, text = run.base(), text_of(run, task)
    rare = RareWords(encoder, text)
    return Through(rare, NullTop(encoder.width, 1, center=False).fit(rare.encode(text)))


def _vectors_of(
    name: str,
    pooling: str,
    look: Callable,
    settings: tuple[dict, ...],
    *differs: str,
    needs: tuple[str, ...] = NEEDS,
):
    recipe(f"control/{name}", needs=needs, settings=settings, differs=joined(*differs, LESS))(
        lambda run: seven(run, by_cosine(look(run, vectors(run, pooling=pooling))))
    )


BERT_LAST_TWO = BERT | {"pooling": "mean of the last two layers (Li et al., section 4.1)"}
_vectors_of("whiten-target", LAST2AVG, target(Whiten), (BERT_2, SEEN))
_vectors_of(
    "whiten-nli",
    LAST2AVG,
    whiten_nli,
    (BERT_2, {"text": "sentences of the NLI sets, no labels"}),
    SMALL,
    needs=(*NEEDS, MNLI[0]),
)
_vectors_of("sn-target", LAST2AVG, target(Standardize), (BERT_2, SEEN))
_vectors_of(
    "sn-natsv-6-target",
    LAST2AVG,
    target(StandardizeNullTop, 6),
    (BERT_2, SEEN, {"k": "6, as table 5 of Li et al. chose on STS-B dev"}),
)
_vectors_of("last-two", LAST_TWO, plain, (BERT_LAST_TWO,))
_vectors_of("last-two-whitened-target", LAST_TWO, target(Whiten), (BERT_LAST_TWO, SEEN))
_vectors_of("last-two-sn-target", LAST_TWO, target(Standardize), (BERT_LAST_TWO, SEEN))
_vectors_of("mean-whitened-target", MEAN, target(Whiten), (BERT, SEEN))

UNTRAINED = BERT_2 | {"weights": "drawn anew, normal, deviation .02"}
for _name, _look, _settings, _differs in (
    ("untrained", plain, {}, ()),
    ("untrained-whitened-target", target(Whiten), SEEN, ()),
    ("untrained-flow-target", flow_target, TARGET, (DENSE,)),
):
    recipe(
        f"control/{_name}",
        needs=NEEDS,
        settings=(UNTRAINED, _settings),
        differs=joined(*_differs, LESS),
    )(lambda run, look=_look: seven(run, by_cosine(look(run, untrained(run)))))


@recipe(
    "control/shared-words",
    needs=NEEDS,
    settings={"score": "words in both over words in either"},
    differs=LESS,
)
def shared_words(run: Run) -> dict:
    return seven(run, lambda task, data: word_overlap(data.sentences, data.sentences2))


@recipe(
    "control/idf-overlap-target",
    needs=NEEDS,
    settings=({"score": "as shared words, each weighted by inverse document frequency"}, SEEN),
    differs=LESS,
)
def rare_words(run: Run) -> dict:
    return seven(
        run,
        lambda task, data: idf_overlap(
            data.sentences, data.sentences2, idf_weights(text_of(run, task))
        ),
    )


@recipe(
    "control/sif-target",
    needs=NEEDS,
    settings=(
        {
            "weights": "a / (a + p), a 1e-3 (Arora et al., 2017)",
            "vectors": "BERT's word pieces",
            "p": "share of the pieces of the text",
            "removed": "first direction, mean left in (Arora et al., 2017)",
        },
        SEEN,
    ),
    differs=LESS,
)
def sif_vectors(run: Run) -> dict:
    return seven(run, by_cosine(lambda task: sif(run, task)))


for _key in (*SETS, DEV):
    claim(
        f"The flow beats whitening with the same text, the set's own: {_key}",
        "li/base-flow-target",
        "control/whiten-target",
        _key,
    )
    claim(
        f"The flow beats whitening with the same text, of NLI: {_key}",
        "li/base-flow-nli",
        "control/whiten-nli",
        _key,
    )
    claim(
        f"The flow beats standard normalization on the same vectors: {_key}",
        "li/base-flow-target",
        "control/sn-target",
        _key,
    )
    claim(
        f"The flow beats SN and NATSV on the same vectors: {_key}",
        "li/base-flow-target",
        "control/sn-natsv-6-target",
        _key,
    )
    claim(
        f"Plain BERT beats weights that learned nothing: {_key}",
        "li/base",
        "control/untrained",
        _key,
    )
    claim(
        f"Plain BERT beats the weight of shared words: {_key}",
        "li/base-last2avg",
        "control/idf-overlap-target",
        _key,
    )
    claim(
        f"The flow beats the weight of shared words: {_key}",
        "li/base-flow-target",
        "control/idf-overlap-target",
        _key,
    )
    claim(f"The flow beats SIF: {_key}", "li/base-flow-target", "control/sif-target", _key)
    claim(
        f"What the flow gives is not there without training: {_key}",
        "li/base-flow-target",
        "control/untrained-flow-target",
        _key,
    )
claim(
    "First and last layer beat the last two, as the released code does without saying",
    "li/base-last2avg",
    "control/last-two",
    "average",
)
for _year in range(12, 17):
    claim(
        f"The flow also helps pairs on which nothing was chosen: STS-{_year}",
        "li/base-flow-target",
        "li/base-last2avg",
        f"STS-{_year} less STS-B dev",
    )
