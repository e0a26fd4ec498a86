"""The pieces of part III in one run: fit with penalties and surgery, killed and resumed."""

import pytest
import torch
from torch.testing import assert_close

from minbert.bregman import BregmanProximal
from minbert.conflicts import GradVac
from minbert.data import load_dataset
from minbert.encoder import BertConfig, BertModel
from minbert.finetune import TrainConfig, fit
from minbert.heads import MultitaskBert, default_heads
from minbert.pcgrad import PCGrad
from minbert.regularized import regularized_loss
from minbert.sentence import SentenceEncoder
from minbert.smart_penalty import SmartPenalty
from minbert.smoothness import SmoothnessPenalty
from minbert.tokens import load_tokenizer

pytestmark = pytest.mark.filterwarnings("ignore:Pearson is undefined", "ignore:.*one class")
TASKS = ("sst", "quora", "stsb")
TRAIN, DEV = (
    {task: load_dataset(task, split).subset(range(n)) for task in TASKS}
    for split, n in (("train", 30), ("dev", 8))
)
TOKENIZER = load_tokenizer()


def new_model():
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=len(TOKENIZER),
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=32,
    )
    return MultitaskBert(SentenceEncoder(BertModel(config), TOKENIZER), default_heads(16, TASKS))


def run(folder, kind, precision="fp32", trip=None, resume=False):
    model = new_model()
    surgery = PCGrad(model) if kind == "PCGrad" else GradVac(model, beta=0.5)
    penalties = [
        SmartPenalty(level="tokens"),
        SmoothnessPenalty(points=20),
        BregmanProximal(previous={"PCGrad": "ema", "GradVac": "step"}[kind], lag=2),
    ]
    calls = []

    def backward(losses):
        calls.append(losses)
        if len(calls) == trip:
            raise KeyboardInterrupt
        surgery(losses)

    backward.state_dict, backward.load_state_dict = surgery.state_dict, surgery.load_state_dict
    config = TrainConfig(TASKS, steps=6, batch_size=4, lr=1e-3, save_every=2, precision=precision)
    fit(
        model,
        TRAIN,
        DEV,
        config,
        folder,
        resume,
        loss_fn=regularized_loss(*penalties),
        backward=backward,
    )
    return torch.cat([p.detach().flatten() for p in model.parameters()]), len(calls)


@pytest.mark.parametrize("kind", ["PCGrad", "GradVac"])
def test_everything_at_once_resumes_to_the_same_bits(tmp_path, kind):
    whole, _ = run(tmp_path / "whole", kind)
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path / "cut", kind, trip=6)
    resumed, calls = run(tmp_path / "cut", kind, resume=True)
    assert calls == 2
    assert_close(resumed, whole, rtol=0, atol=0)


@pytest.mark.usefixtures("bf16")
def test_everything_at_once_in_bf16(tmp_path):
    weights, _ = run(tmp_path, "PCGrad", "bf16")
    assert weights.isfinite().all() and not torch.equal(
        weights, torch.cat([p.detach().flatten() for p in new_model().parameters()])
    )
