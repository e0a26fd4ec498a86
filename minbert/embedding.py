"""Word, position and segment vectors."""
import torch
from torch import Tensor, nn

__all__ = ["BertEmbedding"]


class BertEmbedding(nn.Module):
    """Dropout(LayerNorm(word + position + segment))."""

    def __init__(self, vocab_size=30522, hidden_size=768, max_position_embeddings=512, type_vocab_size=2,
                 layer_norm_eps=1e-12, dropout=0.1, pad_token_id=0):
        super().__init__()
        self.word_embedding = nn.Embedding(vocab_size, hidden_size, padding_idx=pad_token_id)
        self.pos_embedding = nn.Embedding(max_position_embeddings, hidden_size)
        self.tk_type_embedding = nn.Embedding(type_vocab_size, hidden_size)
        self.embed_layer_norm = nn.LayerNorm(hidden_size, eps=layer_norm_eps)
        self.embed_dropout = nn.Dropout(dropout)

    def forward(self, input_ids: Tensor, position_ids: Tensor | None = None, token_type_ids: Tensor | None = None) -> Tensor:
        """(B, T) or (N,) ids -> the same with width D at the end."""
        if position_ids is None:
            position_ids = torch.arange(input_ids.shape[-1], device=input_ids.device)
        summed = self.word_embedding(input_ids) + self.pos_embedding(position_ids)
        segment = self.tk_type_embedding.weight[0] if token_type_ids is None else self.tk_type_embedding(token_type_ids)
        return self.embed_dropout(self.embed_layer_norm(summed + segment))
