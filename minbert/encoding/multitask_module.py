"""What a model with task heads needs besides its forward pass: checks, finding a head, predictions for
whole datasets, and folders.
"""

from __future__ import annotations

from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..core.atomic_dir import atomic_write_dir
from ..core.devices import with_cpu_copy
from ..core.eval_mode import evaluating
from ..core.module_io import load_module, save_module
from .multitask_folder import DESCRIPTION, checked_description, write_description

__all__ = ["MultitaskModule", "join_padded"]

CHUNK = 4096  # rows that a head scores at a time


def join_padded(
    first: Tensor,  # (B1, T1)
    second: Tensor,  # (B2, T2)
    value: float,  # fills the shorter rows
) -> Tensor:  # (B1 + B2, max(T1, T2)), with CPU copies if both have one
    """Put one padded batch below another."""
    T = max(first.shape[1], second.shape[1])

    def join(*parts):
        return torch.cat([F.pad(x, (0, T - x.shape[1]), value=value) for x in parts])

    return with_cpu_copy(join, first, second)


class MultitaskModule(nn.Module):
    """Base class of a model with an `encoder` and `heads`: finds heads, predicts, saves and loads.

    A subclass sets `encoder_class` and `head_class`, and defines `score`, `vectors` and `forward`.
    """

    encoder_class: type  # has from_pretrained(folder, device=...)
    head_class: type  # of all heads

    def __init__(
        self,
        encoder: nn.Module,  # sentences -> (B, D)
        heads: dict[str, nn.Module],  # task -> head; moved to the device of the encoder
        mode: str = "full",  # or "frozen": the encoder is not trained
        head_input: str = "flow",  # "encoder": leave out the transform of the encoder
    ):
        super().__init__()
        self._check_heads(heads)
        if head_input not in ("flow", "encoder"):
            raise ValueError(f"expected head_input 'flow' or 'encoder', got {head_input!r}")
        self.encoder, self.head_input = encoder, head_input
        self.heads = nn.ModuleDict(heads).to(encoder.device)
        self.set_mode(mode)

    def _check_heads(self, heads):
        """Raise ValueError unless `heads` maps task names to heads."""
        if not heads:
            raise ValueError("expected at least one head, got none")
        for task, head in heads.items():
            if not task.isidentifier() or hasattr(nn.ModuleDict, task):
                raise ValueError(f"expected a plain word as the name of a task, got {task!r}")
            if not isinstance(head, self.head_class):
                raise ValueError(f"expected a Head for task {task!r}, got {type(head).__name__}")

    def set_mode(
        self,
        mode: str,  # "full" or "frozen"
    ) -> None:
        """Choose whether the encoder is trained. Dropout depends on `train()` and `eval()` alone."""
        if mode not in ("full", "frozen"):
            raise ValueError(f"expected mode 'full' or 'frozen', got {mode!r}")
        self.mode = mode
        self.encoder.requires_grad_(mode == "full")

    def source(self) -> nn.Module:
        """Return the encoder as the heads see it: with its transform, or a view without."""
        e = self.encoder
        if e.transform is None or self.head_input == "flow":
            return e
        return self.encoder_class(e.model, e.tokenizer, e.pooling, None, e.max_length)

    def head(
        self,
        task: str,
        pair: bool | None = None,  # whether there are two sentences; None: do not check
    ) -> nn.Module:
        """Find the head of a task. Raises ValueError if there is none, or it expects another number
        of sentences.
        """
        if task not in self.heads:
            raise ValueError(f"expected a task among {', '.join(self.heads)}, got {task!r}")
        head = self.heads[task]
        if pair is not None and pair != head.pair:
            wanted = "two sentences" if head.pair else "one sentence"
            found = "two" if pair else "one"
            raise ValueError(f"expected {wanted} for task {task!r}, got {found}")
        return head

    @torch.no_grad()
    def predict(
        self,
        task: str,
        data,  # data.Dataset or data.TaskBatch; labels are not used
        raw: bool = False,  # return the outputs of the head instead of predictions
        progress: bool = False,
    ) -> Tensor:  # (N,) on the CPU, in order
        """Predict in eval mode. Raises ValueError for an unknown task, or one sentence where the head
        expects two.
        """
        with evaluating(self):
            if hasattr(data, "first"):
                outputs = self(task, data.first, data.second)
            else:
                outputs = self._score_dataset(task, data, progress)
            return (outputs if raw else self.heads[task].predict(outputs)).cpu()

    def _score_dataset(self, task, data, progress):
        """Encode each distinct sentence once, then apply the head to their vectors."""
        if not hasattr(data, "sentences2"):
            raise ValueError(
                f"expected a Dataset or a TaskBatch, got {type(data).__name__}: "
                "Dataset('mine', 'test', 'text', sentences) makes one of a list of texts"
            )
        columns = [c for c in (data.sentences, data.sentences2) if c is not None]
        self.head(task, len(columns) == 2)
        distinct = list(dict.fromkeys(text for column in columns for text in column))
        if not distinct:
            raise ValueError(f"expected at least one sentence in {data.name}, got none")
        place = {text: i for i, text in enumerate(distinct)}
        x = self.source().encode(distinct, progress)  # (distinct, D)
        rows = torch.tensor([[place[text] for text in column] for column in columns])
        outputs = []
        for part in rows.split(CHUNK, dim=1):
            outputs.append(self.score(task, *(x[i].to(self.encoder.device) for i in part)))
        return torch.cat(outputs)

    def save_pretrained(
        self,
        folder: str | Path,  # made if missing; other files in it are left alone
    ) -> None:
        """Write encoder and heads; the folder also loads as a SentenceTransformer.

        Files are moved into place when all are written. Their checksums are stored, so that a folder
        mixed from two saves is noticed. Raises ValueError for a head that minbert does not define.
        """
        with atomic_write_dir(folder) as draft:
            self._write(draft)

    def _write(self, draft):
        self.encoder.save_pretrained(draft)
        for task, head in self.heads.items():
            save_module(head, draft / "heads" / task)
        write_description(draft, list(self.heads), mode=self.mode, head_input=self.head_input)

    @classmethod
    def from_pretrained(
        cls,
        folder: str | Path,  # written by `save_pretrained`
        device: str | torch.device | None = None,  # None: as `choose_device` says
    ):  # in eval mode
        """Load encoder and heads; nothing in the folder is run. Raises ValueError that names the file
        or tensor that is missing, cut short or different.
        """
        folder = Path(folder)
        saved = checked_description(folder)
        heads = {task: load_module(folder / "heads" / task) for task in saved["tasks"]}
        encoder = cls.encoder_class.from_pretrained(folder, device=device)
        try:
            model = cls(encoder, heads, saved["mode"], saved["head_input"])
        except ValueError as error:
            raise ValueError(f"{folder / DESCRIPTION}: {error}") from error
        return model.to(encoder.device).eval()
