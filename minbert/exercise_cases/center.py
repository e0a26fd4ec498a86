"""Exercise cases of chapter 30: subtracting the mean of the hidden states."""

import torch

from minbert.course.check_runner import Case, Trial, fill, fixed, mistake
from minbert.encoder import BertConfig, BertModel

TRIALS, MISTAKES, VARIANTS = {}, {}, {}


# ---- center.move
#
# Encoders of one and of three layers, a head that is wider than the encoder, a mean of zeros, and
# a long one. Compared are the output of the model, the mean of the hidden states, every bias, and
# that all other parameters are unchanged.


def center_cases(generator):
    mean, layers = fixed(generator, 6), lambda n, c, **more: {"layers": n, "mean": c, **more}
    return [
        Case("two layers", layers(2, mean)),
        Case("three layers", layers(3, fixed(generator, 6))),
        Case("one layer", layers(1, mean)),
        Case("a head that is wider", layers(2, mean, out=9)),
        Case("a long mean", layers(2, 40 * mean)),
        Case("a mean of one number", layers(2, torch.eye(6, dtype=torch.float64)[2])),
        Case("a mean of zeros", layers(2, 0 * mean)),
        Case("single precision", layers(2, mean.float())),
    ]


def run_center(move, inputs):
    """What pooler and head compute, the last hidden states, the biases that move, and how far
    all others moved."""
    mean, n = inputs["mean"], inputs["layers"]
    model = (
        fill(
            BertModel(
                BertConfig(
                    11, 6, n, 2, 8, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0
                )
            ),
            1,
        )
        .to(mean.dtype)
        .eval()
    )
    head = torch.nn.Module()
    head.transform_dense = fill(torch.nn.Linear(6, inputs.get("out", 6)), 2).to(mean.dtype)

    def weights():
        return dict(model.named_parameters()) | {
            f"head {name}": p for name, p in head.named_parameters()
        }

    before, was = (
        {name: p.detach().clone() for name, p in weights().items()},
        {name: id(p) for name, p in weights().items()},
    )
    move(model, head, mean)
    after = weights()
    last = f"bert_layers.{n - 1}.out_layer_norm.bias"
    moved = {
        last: "last bias of the encoder",
        "pooler_dense.bias": "bias of the pooler",
        "head transform_dense.bias": "bias of the head",
    }
    rest = [
        (after[name] - p).abs().max()
        for name, p in before.items()
        if name not in moved and name in after and after[name].shape == p.shape
    ]
    found = {said: after[name].detach().clone() for name, said in moved.items()}
    with torch.no_grad():
        out = model(
            torch.tensor([[1, 4, 2, 7], [3, 9, 0, 0]]), torch.tensor([[1, 1, 1, 1], [1, 1, 0, 0]])
        )
        found |= {
            "hidden states": out.last_hidden_state[0],
            "pooler": out.pooler_output,
            "head": head.transform_dense(out.last_hidden_state[0]),
        }
    return found | {
        "what all other weights moved": torch.stack(rest).sum().detach(),
        "the same parameters, changed in place": {name: id(p) for name, p in after.items()} == was,
        "still trained": all(p.requires_grad and p.grad_fn is None for p in after.values()),
    }


TRIALS["center.move"] = Trial(
    center_cases,
    run_center,
    hints=(
        (
            "The hidden states get shorter by c. In which bias does the encoder end, and which "
            "two layers read what it says?"
        ),
        (
            "W (h - c) + (b + W c): the reader sees h - c from now on, so its own bias grows by "
            "its own W times c. A layer of torch computes h W^T + b, with "
            "W of shape (out, in)."
        ),
        (
            "Subtract `mean` from the bias of the last layer's out_layer_norm, in place. Then "
            "`reader.bias += reader.weight @ mean` for both readers."
        ),
    ),
)


_WRONG_LAST = "bias -= mean"
_WRONG_READER = "reader.bias += reader.weight @ mean"

MISTAKES["center.move"] = [
    mistake(
        _WRONG_LAST, "bias += mean", "The mean is added to the last bias. It should be subtracted."
    ),
    mistake(
        _WRONG_LAST,
        "pass",
        "The bias of the last layer norm is unchanged, so the hidden states still contain the "
        "mean.",
    ),
    mistake(
        _WRONG_LAST,
        "for layer in model.bert_layers:\n        layer.out_layer_norm.bias -= mean",
        "The mean is subtracted in every layer. Only the last layer should change.",
    ),
    mistake(
        _WRONG_LAST,
        "model.bert_layers[0].out_layer_norm.bias.sub_(mean)",
        "The first layer was changed. The output of the encoder comes from the last one.",
    ),
    mistake(
        _WRONG_READER,
        "reader.bias -= reader.weight @ mean",
        "The sign is wrong for the layers that read the hidden states: they lost W c, so W c "
        "has to be added to their bias.",
    ),
    mistake(
        _WRONG_READER,
        "reader.bias += (mean @ reader.weight)[:len(reader.bias)] if reader.weight.shape[0] "
        "<= 6 else reader.weight @ mean",
        "The weight matrix is transposed: Wᵀ c is added instead of W c.",
    ),
    mistake(
        _WRONG_READER,
        "pass",
        "The layers that read the hidden states are not compensated: W c has to be added to "
        "their bias.",
    ),
    mistake(
        _WRONG_READER,
        "reader.bias = nn.Parameter(reader.bias + reader.weight @ mean)",
        "New parameters replace the old ones, so an optimizer still holds the old ones. Change "
        "the biases in place.",
    ),
]

VARIANTS["center.move"] = [
    """
def center(model, head, mean):
    with torch.no_grad():
        model.bert_layers[len(model.bert_layers) - 1].out_layer_norm.bias.sub_(mean)
        model.pooler_dense.bias.add_(model.pooler_dense.weight @ mean)
        head.transform_dense.bias.add_(head.transform_dense.weight @ mean)
""",
    """
def center(model, head, mean):
    for layer in [model.pooler_dense, head.transform_dense]:
        layer.bias.data += torch.einsum("oi,i->o", layer.weight.data, mean)
    model.bert_layers[-1].out_layer_norm.bias.data -= mean
""",
    """
def center(model, head, mean):
    for reader in (head.transform_dense, model.pooler_dense):
        with torch.no_grad():
            reader.bias.copy_(reader(mean))
    last = model.bert_layers[-1].out_layer_norm
    last.bias.data.copy_(last.bias.data - mean)
""",
]
