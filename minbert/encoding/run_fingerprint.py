"""A fingerprint of the encoder and the examples of a run, so that a resumed run with other inputs
is refused.
"""

from __future__ import annotations

__all__ = ["encoder_fingerprint", "rows_checksum"]

import hashlib
import json

from ..core.files import parse_json
from .dense_layers import named_maps
from .pooling_spec import pooling_name


def encoder_fingerprint(
    encoder,
) -> dict[str, str | int]:  # of a sentence.SentenceEncoder: name -> value
    """Say how an encoder reads text; its weights are not in it."""
    return {
        "pooling": pooling_name(encoder.pooling),
        "transform": named_maps(encoder.transform),
        "max_length": encoder.max_length,
        "tokenizer": _tokenizer_checksum(encoder.tokenizer),
    }


def _tokenizer_checksum(tokenizer):
    said = parse_json(tokenizer.backend_tokenizer.to_str(), "tokenizer")
    # these two are of its last call
    return _checksum(said | {"truncation": None, "padding": None}, 64)


def rows_checksum(rows) -> str:  # of a data.Dataset
    """Boil sentences and labels down to 16 digits."""
    labels = None if rows.labels is None else [float(label) for label in rows.labels]
    return _checksum(
        [
            *(
                column and list(column)
                for column in (rows.sentences, rows.sentences2, rows.sentences3)
            ),
            labels,
        ]
    )


def _checksum(tree, digits=16):
    return hashlib.sha256(json.dumps(tree, sort_keys=True).encode()).hexdigest()[:digits]
