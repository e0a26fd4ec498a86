"""Mutants of `minbert.exercise_cases.center`: their checks must reject them all."""

from minbert.course.check_runner import mistake
from minbert.exercise_cases.center import _WRONG_LAST, _WRONG_READER

MUTANTS = {}


_WRONG_BOTH = "for reader in (model.pooler_dense, head.transform_dense):"


MUTANTS["center.move"] = [
    mistake(
        _WRONG_LAST,
        "model.bert_layers[-1].out_layer_norm.bias = nn.Parameter(bias - mean)",
        "A new parameter stands in the place of the bias. The old one has to change, in place: "
        "an optimizer may hold it.",
    ),
    mistake(
        _WRONG_LAST,
        "bias *= 0",
        "The last bias is set to zero. Only the mean leaves it; what else the bias holds stays.",
    ),
    mistake(
        _WRONG_LAST,
        "bias -= mean / mean.norm().clamp_min(1e-12)",
        "The direction of the mean is subtracted, at length 1. Subtract the mean itself.",
    ),
    mistake(
        _WRONG_LAST,
        "bias -= mean - mean.mean()",
        "The average of the mean's numbers is kept in the hidden states. Every number of it has "
        "to go.",
    ),
    mistake(
        _WRONG_LAST,
        "model.bert_layers[-1].attention_layer_norm.bias.sub_(mean)",
        "The norm behind the attention was moved. The hidden states leave through the other "
        "one, behind the dense layers.",
    ),
    mistake(
        _WRONG_READER,
        "reader.bias += mean if reader.bias.shape == mean.shape else reader.weight @ mean",
        "The readers get c itself. Their matrix stands in between: what they lose is W c.",
    ),
    mistake(
        _WRONG_BOTH,
        "for reader in (model.pooler_dense,):",
        "The head gets nothing in return; it reads the hidden states as well.",
    ),
    mistake(
        _WRONG_BOTH,
        "for reader in (head.transform_dense,):",
        "The pooler gets nothing in return; it reads the hidden states as well.",
    ),
    mistake(
        _WRONG_READER,
        "reader.bias += model.pooler_dense.weight @ mean if reader.bias.shape == mean.shape "
        "else reader.weight @ mean",
        "Both readers get what the pooler loses. Each has a matrix of its own.",
    ),
    mistake(
        _WRONG_READER,
        "reader.bias -= reader.weight @ bias",
        "The last bias is put through the matrix as it is now, where the mean should be.",
    ),
    mistake(
        _WRONG_READER,
        "reader.weight -= reader.weight @ torch.outer(mean, mean) / "
        "mean.square().sum().clamp_min(1e-12)",
        "The matrices were changed, so that they no longer see the direction of the mean. They "
        "stay; the biases change.",
    ),
]
