"""What several test files share."""
import pytest
import torch
from torch import nn


class Given(nn.Module):
    """A model for sentence-transformers whose "text" is its embedding."""

    device = torch.device("cpu")

    def forward(self, features):
        return {"sentence_embedding": features["e"]}


@pytest.fixture
def given() -> nn.Module:
    return Given()
