"""tokens prototype."""
from importlib.resources import files
from pathlib import Path
from typing import NamedTuple
import torch
from torch import Tensor

def resolve_folder(name_or_folder=None) -> Path:
    if name_or_folder is None:
        return Path(str(files("minbert") / "assets" / "model"))
    if Path(name_or_folder).is_dir():
        return Path(name_or_folder)
    from huggingface_hub import snapshot_download
    try:
        return Path(snapshot_download(str(name_or_folder)))
    except Exception as e:
        raise ValueError(f"expected a folder or a hub name, got {name_or_folder!r}") from e

def load_tokenizer(name_or_folder=None):
    from transformers import AutoTokenizer
    return AutoTokenizer.from_pretrained(resolve_folder(name_or_folder))

class TokenBatch(NamedTuple):
    input_ids: Tensor
    attention_mask: Tensor
    def to(self, device): return TokenBatch(*(x.to(device) for x in self))
    @property
    def lengths(self): return self.attention_mask.sum(1)

def encode_ids(tokenizer, sentences, max_length=512):
    return tokenizer(list(sentences), truncation=True, max_length=max_length, padding=False)["input_ids"]

def pad_ids(ids, pad_id=0):
    T = max(map(len, ids))
    x = torch.tensor([list(r) + [pad_id] * (T - len(r)) for r in ids])
    m = torch.tensor([[1] * len(r) + [0] * (T - len(r)) for r in ids])
    return TokenBatch(x, m)

def tokenize(tokenizer, sentences, max_length=512):
    return pad_ids(encode_ids(tokenizer, sentences, max_length), tokenizer.pad_token_id or 0)

def token_batches(ids, budget=8192, pad_id=0):
    order = sorted(range(len(ids)), key=lambda i: -len(ids[i]))
    i = 0
    while i < len(order):
        n = max(1, budget // len(ids[order[i]]))
        pos = order[i:i + n]; i += n
        yield torch.tensor(pos), pad_ids([ids[j] for j in pos], pad_id)
