"""MLM prototype."""
import gzip, json, math, os, random, sys, time
from pathlib import Path
import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from minbert.encoder import BertConfig, BertModel
from minbert.optim import AdamW, warmup_decay

def mask_tokens(input_ids, special_mask, mask_id, vocab_size, rate=0.15, generator=None):
    """80/10/10 corruption; labels are -100 where nothing was chosen."""
    def coin(p):
        return torch.rand(input_ids.shape, generator=generator, device=input_ids.device) < p
    chosen = coin(rate) & ~special_mask.bool()
    labels = input_ids.masked_fill(~chosen, -100)
    masked = chosen & coin(0.8)
    randomized = chosen & ~masked & coin(0.5)
    random_ids = torch.randint(vocab_size, input_ids.shape, generator=generator, device=input_ids.device)
    corrupted = input_ids.masked_fill(masked, mask_id)
    return torch.where(randomized, random_ids, corrupted), labels

class MlmHead(nn.Module):
    """logits = LN(gelu(W h + b)) E_word^T + bias."""
    def __init__(self, config: BertConfig):
        super().__init__()
        D = config.hidden_size
        self.transform_dense = nn.Linear(D, D)
        self.transform_norm = nn.LayerNorm(D, eps=config.layer_norm_eps)
        self.bias = nn.Parameter(torch.zeros(config.vocab_size))
    def forward(self, hidden_states, word_vectors):
        h = self.transform_norm(F.gelu(self.transform_dense(hidden_states)))
        return F.linear(h, word_vectors, self.bias)

def mlm_loss(model, head, input_ids, attention_mask, labels, packed=True):
    h = model(input_ids, attention_mask, packed=packed).last_hidden_state
    chosen = labels != -100
    logits = head(h[chosen], model.embedding.word_embedding.weight).float()
    if not chosen.any():
        return 0.0 * logits.sum() + 0.0 * h.float().sum()
    return F.cross_entropy(logits, labels[chosen])

def read_lines(path):
    op = gzip.open if path.suffix == ".gz" else open
    with op(path, "rt", encoding="utf-8") as f:
        return [line.strip() for line in f]

def corpus_files(folder):
    fs = sorted(p for p in Path(folder).rglob("*.txt*") if "heldout" not in p.parts)
    return [(p, "docs" in p.parts) for p in fs]

def train_wordpiece(folder, vocab_size=8000):
    from tokenizers import BertWordPieceTokenizer
    tok = BertWordPieceTokenizer(lowercase=True)
    it = (l for p, _ in corpus_files(folder) for l in read_lines(p) if l)
    tok.train_from_iterator(it, vocab_size=vocab_size, min_frequency=2, limit_alphabet=200, show_progress=False)
    return tok

def examples(folder, tok, cls, sep, seed=0):
    rng = random.Random(seed)
    out = []
    for path, is_docs in corpus_files(folder):
        lines = read_lines(path)
        enc = [np.array(e.ids, dtype=np.int32) for e in tok.encode_batch(lines, add_special_tokens=False)]
        if not is_docs:
            out += [e[:126] for e in enc if len(e)]
            continue
        chunk, n, limit = [], 0, 126
        for e in enc + [np.array([], dtype=np.int32)]:
            if len(e) == 0 or n + len(e) > limit:
                if chunk:
                    out.append(np.concatenate(chunk)[:510])
                chunk, n = [], 0
                limit = 510 if rng.random() < 0.1 else 126
            if len(e):
                chunk.append(e); n += len(e)
    return [np.concatenate([[cls], e, [sep]]) for e in out]

def batches(data, budget, seed):
    """Shuffled epochs; a batch closes when its real tokens reach the budget."""
    epoch = 0
    while True:
        order = np.random.default_rng([seed, epoch]).permutation(len(data))
        batch, n = [], 0
        for i in order:
            batch.append(data[i]); n += len(data[i])
            if n >= budget:
                yield batch
                batch, n = [], 0
        epoch += 1

def pad(batch):
    T = max(map(len, batch))
    ids = np.zeros((len(batch), T), dtype=np.int64); mask = np.zeros_like(ids)
    for i, e in enumerate(batch):
        ids[i, : len(e)] = e; mask[i, : len(e)] = 1
    return torch.from_numpy(ids), torch.from_numpy(mask)
