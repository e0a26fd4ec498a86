"""What several test files share."""
import os

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


def pytest_collection_modifyitems(config, items):
    """Leave the browser out where nobody named one; where one is named (.ci/run), its tests must pass."""
    if os.environ.get("MINBERT_BROWSER"):
        return
    browser = [item for item in items if item.get_closest_marker("browser")]
    if browser:
        items[:] = [item for item in items if item not in browser]
        config.hook.pytest_deselected(items=browser)


def pytest_terminal_summary(terminalreporter):
    if not os.environ.get("MINBERT_BROWSER"):
        terminalreporter.write_line("tests marked browser were LEFT OUT: set MINBERT_BROWSER=/path/to/chromium to run them")
