"""How the exercise of chapter 09 is checked: a mean that leaves the hidden states and is given to two biases."""


import torch

from minbert.course.trials import Case, Trial, fill, fixed, mistake
from minbert.encoder import BertConfig, BertModel


TRIALS, MISTAKES, VARIANTS = {}, {}, {}


# A bias with the wrong sign, or a matrix that is read by its columns: shapes fit, nothing fails. What shows it?
#
# ---- center.move
#
# Encoders of one and of three layers, a head that is wider than the encoder, a mean of zeros and one that is long. Compared are the two things that
# have to hold, what is computed afterwards and where the mean of the hidden states went, then every bias, and that all else is as it was.

def center_cases(generator):
    mean, layers = fixed(generator, 6), lambda n, c, **more: {"layers": n, "mean": c, **more}
    return [Case("two layers", layers(2, mean)), Case("three layers", layers(3, fixed(generator, 6))), Case("one layer", layers(1, mean)),
            Case("a head that is wider", layers(2, mean, out=9)), Case("a long mean", layers(2, 40 * mean)),
            Case("a mean of one number", layers(2, torch.eye(6, dtype=torch.float64)[2])), Case("a mean of zeros", layers(2, 0 * mean)),
            Case("single precision", layers(2, mean.float()))]


def run_center(move, inputs):
    """What pooler and head compute, the last hidden states, the biases that move, and how far all others moved."""
    mean, n = inputs["mean"], inputs["layers"]
    model = fill(BertModel(BertConfig(11, 6, n, 2, 8, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)), 1).to(mean.dtype).eval()
    head = torch.nn.Module()
    head.transform_dense = fill(torch.nn.Linear(6, inputs.get("out", 6)), 2).to(mean.dtype)
    weights = lambda: dict(model.named_parameters()) | {f"head {name}": p for name, p in head.named_parameters()}
    before, was = {name: p.detach().clone() for name, p in weights().items()}, {name: id(p) for name, p in weights().items()}
    move(model, head, mean)
    after = weights()
    last = f"bert_layers.{n - 1}.out_layer_norm.bias"
    moved = {last: "last bias of the encoder", "pooler_dense.bias": "bias of the pooler", "head transform_dense.bias": "bias of the head"}
    rest = [(after[name] - p).abs().max() for name, p in before.items() if name not in moved and name in after and after[name].shape == p.shape]
    found = {said: after[name].detach().clone() for name, said in moved.items()}
    with torch.no_grad():
        out = model(torch.tensor([[1, 4, 2, 7], [3, 9, 0, 0]]), torch.tensor([[1, 1, 1, 1], [1, 1, 0, 0]]))
        found |= {"hidden states": out.last_hidden_state[0], "pooler": out.pooler_output, "head": head.transform_dense(out.last_hidden_state[0])}
    return found | {"what all other weights moved": torch.stack(rest).sum().detach(),
                    "the same parameters, changed in place": {name: id(p) for name, p in after.items()} == was,
                    "still trained": all(p.requires_grad and p.grad_fn is None for p in after.values())}


TRIALS["center.move"] = Trial(center_cases, run_center, hints=(
    "The hidden states get shorter by c. In which bias does the encoder end, and which two layers read what it says?",
    "W (h - c) + (b + W c): the reader sees h - c from now on, so its own bias grows by its own W times c. A layer of torch computes h W^T + b, with "
    "W of shape (out, in).",
    "Subtract `mean` from the bias of the last layer's out_layer_norm, in place. Then `reader.bias += reader.weight @ mean` for both readers."))


_WRONG_LAST = "bias -= mean"
_WRONG_READER = "reader.bias += reader.weight @ mean"
_WRONG_BOTH = "for reader in (model.pooler_dense, head.transform_dense):"

MISTAKES["center.move"] = [
    mistake(_WRONG_LAST, "bias += mean", "The mean is added to the last bias, so the hidden states are longer than before. It has to go."),
    mistake(_WRONG_LAST, "model.bert_layers[-1].out_layer_norm.bias = nn.Parameter(bias - mean)",
            "A new parameter stands in the place of the bias. The old one has to change, in place: an optimizer may hold it."),
    mistake(_WRONG_LAST, "pass", "The hidden states still hold the mean: the bias of the last norm did not move."),
    mistake(_WRONG_LAST, "bias *= 0", "The last bias is set to zero. Only the mean leaves it; what else the bias holds stays."),
    mistake(_WRONG_LAST, "bias -= mean / mean.norm().clamp_min(1e-12)", "The direction of the mean is subtracted, at length 1. Subtract the mean itself."),
    mistake(_WRONG_LAST, "bias -= mean - mean.mean()", "The average of the mean's numbers is kept in the hidden states. Every number of it has to go."),
    mistake(_WRONG_LAST, "for layer in model.bert_layers:\n        layer.out_layer_norm.bias -= mean",
            "Every layer loses the mean. The inner layers are read by attention, which gets nothing in return; only the last layer moves."),
    mistake(_WRONG_LAST, "model.bert_layers[0].out_layer_norm.bias.sub_(mean)", "The first layer was moved, and what leaves the encoder comes from the last."),
    mistake(_WRONG_LAST, "model.bert_layers[-1].attention_layer_norm.bias.sub_(mean)",
            "The norm behind the attention was moved. The hidden states leave through the other one, behind the dense layers."),
    mistake(_WRONG_READER, "reader.bias -= reader.weight @ mean", "The biases of the readers move the wrong way: they have lost W c, and have to get it."),
    mistake(_WRONG_READER, "reader.bias += (mean @ reader.weight)[:len(reader.bias)] if reader.weight.shape[0] <= 6 else reader.weight @ mean",
            "The matrix is read by its columns, Wᵀ c. What a reader loses is W c."),
    mistake(_WRONG_READER, "reader.bias += mean if reader.bias.shape == mean.shape else reader.weight @ mean",
            "The readers get c itself. Their matrix stands in between: what they lose is W c."),
    mistake(_WRONG_READER, "pass", "The readers get nothing in return: they lose W c, and compute something else now."),
    mistake(_WRONG_BOTH, "for reader in (model.pooler_dense,):", "The head gets nothing in return; it reads the hidden states as well."),
    mistake(_WRONG_BOTH, "for reader in (head.transform_dense,):", "The pooler gets nothing in return; it reads the hidden states as well."),
    mistake(_WRONG_READER, "reader.bias += model.pooler_dense.weight @ mean if reader.bias.shape == mean.shape else reader.weight @ mean",
            "Both readers get what the pooler loses. Each has a matrix of its own."),
    mistake(_WRONG_READER, "reader.bias -= reader.weight @ bias", "The last bias is put through the matrix as it is now, where the mean should be."),
    mistake(_WRONG_READER, "reader.weight -= reader.weight @ torch.outer(mean, mean) / mean.square().sum().clamp_min(1e-12)",
            "The matrices were changed, so that they no longer see the direction of the mean. They stay; the biases change."),
    mistake(_WRONG_READER, "reader.bias = nn.Parameter(reader.bias + reader.weight @ mean)",
            "The numbers are right, in new parameters: an optimizer still holds the old ones. Change the biases in place."),
]

VARIANTS["center.move"] = [
    '''
def center(model, head, mean):
    with torch.no_grad():
        model.bert_layers[len(model.bert_layers) - 1].out_layer_norm.bias.sub_(mean)
        model.pooler_dense.bias.add_(model.pooler_dense.weight @ mean)
        head.transform_dense.bias.add_(head.transform_dense.weight @ mean)
''',
    '''
def center(model, head, mean):
    for layer in [model.pooler_dense, head.transform_dense]:
        layer.bias.data += torch.einsum("oi,i->o", layer.weight.data, mean)
    model.bert_layers[-1].out_layer_norm.bias.data -= mean
''',
    '''
def center(model, head, mean):
    for reader in (head.transform_dense, model.pooler_dense):
        with torch.no_grad():
            reader.bias.copy_(reader(mean))
    last = model.bert_layers[-1].out_layer_norm
    last.bias.data.copy_(last.bias.data - mean)
''',
]


# ---- How strong are they?
