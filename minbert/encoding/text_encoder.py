"""Encoding text with a sentence encoder: windows of a stream, batches of similar length, reduced
precision, and the settings of its folder.

Nothing of a chapter is imported: `TextEncoder` is the base class of `minbert.sentence.SentenceEncoder`,
which supplies tokens, batches, and the forward pass.
"""

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import torch
from torch import Tensor, nn

from ..core.atomic_dir import atomic_write_dir
from ..core.devices import fast_kernels, to_device, usable_device
from ..core.eval_mode import evaluating
from ..core.text_windows import check_sentences, windows
from .dense_layers import check_widths, maps_of, sequential, width_after
from .forward import Encoded, encode_batch
from .packed_linear import prepacked_weights
from .pooling_spec import Longest, layers_read, pooled_width
from .sentence_transformers_folder import saved_settings, write_settings
from .tokenizer_files import check_same_reading, load_tokenizer
from .transformer_folder import model_folder, resolve_folder

__all__ = ["TextEncoder", "run_for_pooling"]


def run_for_pooling(
    model: nn.Module,  # a BertModel
    input_ids: Tensor,  # (B, T) int64
    attention_mask: Tensor,  # (B, T), 1 = real token
    pooling: str | nn.Module,
    poolings: Mapping[str, tuple],  # name -> the hidden states it reads
    allow_empty: bool = False,  # accept rows without tokens
) -> Encoded:  # `hidden_states` holds the last one only, if the pooling reads no other
    """Run a model as fast as a pooling allows: without work on padding, unless the pooling reads
    padding, and without keeping hidden states that it does not read.
    """
    out = encode_batch(
        model,
        input_ids,
        attention_mask,
        packed=False if pooling == "mean_padded" else None,
        output_hidden_states=len(layers_read(pooling, poolings)) > 1,
        allow_empty=allow_empty,
    )
    return Encoded(
        out.last_hidden_state, out.pooler_output, out.hidden_states or (out.last_hidden_state,)
    )


class TextEncoder(nn.Module):
    """Encode text with a model, in batches and windows, and keep the encoder in a folder. A subclass
    supplies `forward(input_ids, attention_mask)`, `token_ids(sentences)`, `batches(ids, budget)`,
    `pooling`, `transform`, and the three class attributes without a value here.
    """

    max_length = Longest()  # tokens, at most as many as the model has positions
    model_class: type[nn.Module]  # with `from_pretrained(folder)`
    poolings: Mapping[str, tuple]  # name -> the hidden states it reads
    plain: Mapping[str, type]  # module of sentence-transformers -> class that does the same

    def __init__(self, model: nn.Module, tokenizer, max_length: int):
        super().__init__()
        self.model, self.tokenizer, self.max_length = model, tokenizer, max_length

    @property
    def device(self) -> torch.device:
        """Where the weights are."""
        return next(self.model.parameters()).device

    @property
    def width(self) -> int:
        """Size of a sentence embedding: D, unless a pooling module or the transform says otherwise
        in `out_features`.
        """
        return width_after(
            self.transform, pooled_width(self.pooling, self.model.config.hidden_size)
        )

    def embed(
        self,
        batch,  # a TokenBatch, on any device
    ) -> Tensor:  # (B, D) float, on the encoder's device, differentiable
        """Map a batch of tokens to one embedding for each sentence."""
        return self(*to_device(batch, self.device))

    @torch.no_grad()
    def encode_ids(
        self,
        ids: list,  # token ids of each sentence
        batch_tokens: int | None = None,  # padded tokens in a batch; None: 2048, on a GPU 32768
        precision: str = "fp32",  # as `prepacked_weights` says
        bar=None,  # progress bar, or None
    ) -> Tensor:  # (N, D) float32 on the CPU, in the order of `ids`
        """Encode sentences that are tokenized already: in eval mode, in batches of similar length."""
        if batch_tokens is None:
            batch_tokens = 2048 if self.device.type == "cpu" else 32768
        budget = max(batch_tokens, *map(len, ids))  # the longest may need a batch of its own
        vectors, waiting = torch.empty(len(ids), self.width, dtype=torch.float32), []
        with (
            evaluating(self),
            prepacked_weights(self.model, precision, sum(map(len, ids))),
            fast_kernels(self.device),
        ):
            for positions, batch in self.batches(ids, budget):
                waiting.append((positions, self.embed(batch).float()))
                if bar is not None:
                    bar.update(len(positions))
        # only now, so that a GPU has all its work before the first result is awaited
        for positions, found in waiting:
            vectors[positions] = found.cpu()
        return vectors

    def encode(
        self,
        sentences: list[str],  # N sentences, in any order and of any length
        progress: bool = False,  # draw a progress bar
        batch_tokens: int | None = None,  # as in `encode_ids`
        precision: str = "fp32",  # or "bf16": matrix products in bfloat16; or "int8", on a CPU
        window: int | None = None,  # sentences tokenized and sorted at a time; None: see `windows`
    ) -> Tensor:  # (N, D) float32 on the CPU, row i for sentence i
        """Encode sentences without gradients, in eval mode.

        Raises ValueError for one bare str, for an item that is no string, with its index, and for
        a precision that is unknown or not supported here.
        """
        sentences = check_sentences(sentences)
        vectors, done = torch.empty(len(sentences), self.width, dtype=torch.float32), 0
        for chunk in self.encode_stream(sentences, progress, batch_tokens, precision, window):
            vectors[done : done + len(chunk)] = chunk
            done += len(chunk)
        return vectors

    def encode_stream(
        self,
        sentences: Iterable[str],
        progress: bool = False,
        batch_tokens: int | None = None,
        precision: str = "fp32",
        window: int | None = None,
    ) -> Iterator[Tensor]:  # (n, D) float32 on the CPU, n <= window, in order
        """Encode a stream of any length, one window at a time; the arguments are those of `encode`."""
        for texts, bar in windows(sentences, window, progress, self.device):
            yield self.encode_ids(self.token_ids(texts), batch_tokens, precision, bar)

    @classmethod
    def from_pretrained(
        cls,
        name_or_folder: str | Path | None = None,  # folder or hub name; None: the included model
        pooling: str | None = None,  # None: what the folder says, else "mean"
        device: str | torch.device | None = None,  # None: as `choose_device` says
        normalize: bool = False,  # scale embeddings to length 1
    ) -> "TextEncoder":  # in eval mode
        """Load an encoder that minbert, sentence-transformers or transformers saved. A pooling other
        than the folder's comes without its transform, and a Normalize at the end of theirs is left
        to `normalize`.

        Raises ValueError for a broken folder, for modules that we do not have, for a tokenizer that
        sentence-transformers uses in another way, and for tokens that the model does not know.
        """
        place, folder = usable_device(device), resolve_folder(name_or_folder)
        saved = saved_settings(folder, pooling, cls.poolings, cls.plain)
        model, tokenizer = cls.model_class.from_pretrained(folder), load_tokenizer(folder)
        check_same_reading(model_folder(folder), tokenizer)
        tokens = 1 + max(tokenizer.get_vocab().values())
        if tokens > model.config.vocab_size:
            raise ValueError(
                f"{folder}: expected a vocabulary of at most {model.config.vocab_size} pieces, "
                f"as the model has, got {tokens}"
            )
        maps, unit_length = maps_of(saved["transform"]), cls.plain["Normalize"]
        check_widths(maps, pooled_width(saved["pooling"], model.config.hidden_size, folder), folder)
        if normalize and not isinstance([None, *maps][-1], unit_length):
            maps.append(unit_length())
        settings = saved | {"transform": sequential(maps)}
        return cls(model=model, tokenizer=tokenizer, **settings).to(place).eval()

    def save_pretrained(
        self,
        folder: str | Path,  # made if missing; other files in it are left alone
        dtype: torch.dtype = torch.float32,  # of the saved model
    ) -> None:
        """Write a folder that `from_pretrained` and SentenceTransformer(folder) both load
        (mean_padded: only the first); a pooling with weights keeps its own dtype. A save that fails
        leaves earlier files as they were.

        Raises ValueError for a pooling or a transform that no folder can hold, and as
        `write_model`.
        """
        with atomic_write_dir(folder) as draft:
            self.model.save_pretrained(draft, dtype)
            self.tokenizer.save_pretrained(draft)
            write_settings(
                draft,
                self.model,
                self.pooling,
                layers_read(self.pooling, self.poolings),
                self.max_length,
                self.transform,
                self.plain,
            )
