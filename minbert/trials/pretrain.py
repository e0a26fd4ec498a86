"""How the last exercises of chapter 10 are checked: the head that names words, and its loss."""


import inspect
import math

import torch

from minbert.encoder import BertConfig, BertModel
from minbert.course.trials import Case, Trial, fill, fixed, mistake, probe


TRIALS, MISTAKES, VARIANTS = {}, {}, {}


# A head with a wrong norm, a loss with a wrong mean: both still learn. What shows them?
#
# ---- pretrain.head
#
# Hidden states of two and of three axes, and some far from 0. The gradient of the word vectors shows whether they are tied.

def head_cases(generator):
    h, words = fixed(generator, 2, 3, 6), fixed(generator, 11, 6)
    return [Case("two sentences of three tokens", {"hidden_states": h, "word_vectors": words}),
            Case("four chosen positions, evaluating", {"hidden_states": fixed(generator, 4, 6), "word_vectors": words, "eval": True}),
            Case("large numbers", {"hidden_states": 100 * h, "word_vectors": words}),
            Case("far from 0", {"hidden_states": h, "word_vectors": words, "far": True}),
            Case("as many words as numbers", {"hidden_states": h, "word_vectors": words[:6]}),
            Case("no position", {"hidden_states": h[0, :0], "word_vectors": words})]


def run_mlm_head(kind, inputs):
    """Logits, and the gradients of hidden states, word vectors and all weights."""
    head, given = fill(kind(BertConfig(len(inputs["word_vectors"]), 6, 1, 2, 8))), {name: inputs[name] for name in ("hidden_states", "word_vectors")}
    head.train("eval" not in inputs)
    if "far" in inputs:
        head.transform_dense.bias.data += 3e5
    leaves = {name: x.clone().requires_grad_() for name, x in given.items()}
    out = head(*given.values())
    pulled = head(*leaves.values())
    wanted = leaves | dict(head.named_parameters())
    found = torch.autograd.grad((pulled * probe(pulled)).sum(), list(wanted.values()), allow_unused=True)
    return {"logits": out} | {f"gradient of {name}": torch.zeros_like(x) if g is None else g for (name, x), g in zip(wanted.items(), found)}


TRIALS["pretrain.head"] = Trial(head_cases, run_mlm_head, hints=(
    "Three things happen to a hidden state before it meets the words. In which order?",
    "self.transform_dense, F.gelu, self.transform_norm; then a linear map whose weight is word_vectors, (V, D), and whose bias is self.bias.",
    "h = self.transform_norm(F.gelu(self.transform_dense(hidden_states))); then h @ word_vectors.T + self.bias."))


_WRONG_TRANSFORM = "self.transform_norm(F.gelu(self.transform_dense(hidden_states)))"

MISTAKES["pretrain.head"] = [
    mistake("return F.linear(h, word_vectors, self.bias)", "return F.linear(h, word_vectors, self.bias) / h.shape[-1] ** 0.5", "The logits are divided by √D. That belongs to attention."),
    mistake("return F.linear(h, word_vectors, self.bias)", "return F.linear(h, F.normalize(word_vectors, dim=-1), self.bias)", "The word vectors are scaled to length 1. They are read as they are."),
    mistake("return F.linear(h, word_vectors, self.bias)", "return F.linear(h + hidden_states, word_vectors, self.bias)",
            "The hidden state is added behind the norm; this head has no such path."),
    mistake("h = " + _WRONG_TRANSFORM, "h = F.gelu(self.transform_dense(hidden_states))\n    h = F.layer_norm(h, h.shape[-1:], self.transform_norm.weight, self.transform_norm.bias)",
            "The norm has torch's ε of 1e-5. The module's norm has its own."),
    mistake("h = " + _WRONG_TRANSFORM, "h = F.gelu(self.transform_dense(hidden_states))\n    m, s = h.mean(-1, keepdim=True), (h * h).mean(-1, keepdim=True)\n"
            "    h = (h - m) / (s - m * m + self.transform_norm.eps).sqrt() * self.transform_norm.weight + self.transform_norm.bias",
            "The variance is the mean of the squares less the square of the mean. Far from 0 both are large and their difference is rounding."),
    mistake(_WRONG_TRANSFORM, "F.gelu(self.transform_norm(self.transform_dense(hidden_states)))",
            "The norm comes before the GELU; it should come after."),
    mistake(_WRONG_TRANSFORM, "F.gelu(self.transform_dense(hidden_states))", "The norm is missing."),
    mistake(_WRONG_TRANSFORM, "self.transform_norm(self.transform_dense(hidden_states))", "The GELU is missing."),
    mistake(_WRONG_TRANSFORM, "self.transform_norm(F.gelu(self.transform_dense(hidden_states), approximate=\"tanh\"))",
            "This GELU is the approximation with tanh; BERT uses the exact one."),
    mistake(_WRONG_TRANSFORM, "self.transform_norm(F.relu(self.transform_dense(hidden_states)))", "This is a ReLU, where a GELU should be."),
    mistake(_WRONG_TRANSFORM, "self.transform_norm(hidden_states + F.gelu(self.transform_dense(hidden_states)))",
            "The hidden state is added before the norm, as in an encoder layer; this head has no such path."),
    mistake(_WRONG_TRANSFORM, "hidden_states", "The dense layer, the GELU and the norm are skipped."),
    mistake("F.linear(h, word_vectors, self.bias)", "F.linear(h, word_vectors)", "The bias of the words is missing."),
    mistake("F.linear(h, word_vectors, self.bias)", "F.linear(h, word_vectors.detach(), self.bias)",
            "The word vectors are detached: the table does not learn from being read."),
    mistake("F.linear(h, word_vectors, self.bias)", "F.linear(h, word_vectors, self.bias).softmax(-1)",
            "Softmax is applied; the cost does that itself and wants logits."),
    mistake("    return F.linear(h, word_vectors, self.bias)", "    if self.training or not hasattr(self, \"kept\"):\n        self.kept = word_vectors\n    return F.linear(h, self.kept, self.bias)",
            "In eval mode the word vectors are kept from the first call. Weights may change in any mode."),
    mistake("F.gelu(self.transform_dense(hidden_states))", "torch.tanh(self.transform_dense(hidden_states))", "This is a tanh, where a GELU should be. The tanh is in the pooler."),
    mistake(_WRONG_TRANSFORM, "F.gelu(self.transform_dense(self.transform_norm(hidden_states)))", "The norm comes first. It comes after the GELU."),
]

VARIANTS["pretrain.head"] = [
    '''
def forward(self, hidden_states, word_vectors):
    x = hidden_states @ self.transform_dense.weight.T + self.transform_dense.bias
    x = 0.5 * x * (1 + torch.erf(x / 2**0.5))
    return torch.einsum("...d,vd->...v", self.transform_norm(x), word_vectors) + self.bias
''',
    '''
def forward(self, hidden_states, word_vectors):
    x = nn.GELU()(self.transform_dense(hidden_states))
    x = F.layer_norm(x, x.shape[-1:], self.transform_norm.weight, self.transform_norm.bias, self.transform_norm.eps)
    return x.matmul(word_vectors.mT).add(self.bias)
''',
]


# ---- pretrain.loss
#
# A BERT of one layer. The gradients of all its weights are compared, since a label at the wrong place moves other words. Rows with padding, one
# chosen position, packed or not (the model is asked how it was called, and in which mode), and a batch in which chance chose nothing: 0, with gradients of 0. In half
# precision the loss has to be float32.

def loss_cases(generator):
    ids = torch.randint(1, 13, (3, 6), generator=generator)
    mask = torch.tensor([[1] * 6, [1] * 4 + [0] * 2, [1] * 3 + [0] * 3])
    chosen = torch.zeros(3, 6, dtype=torch.bool)
    chosen[[0, 0, 1, 2], [1, 4, 2, 1]] = True
    labels = torch.randint(1, 13, (3, 6), generator=generator).masked_fill(~chosen, -100)
    labels[0, 4], labels[1, 2] = 0, ids[1, 2]
    base = {"input_ids": ids, "attention_mask": mask, "labels": labels}
    lone = torch.full_like(labels, -100)
    lone[1, 2] = labels[1, 2]
    return [Case("four chosen positions", base), Case("not packed", {**base, "packed": False}), Case("one chosen position", {**base, "labels": lone}),
            Case("one sentence", {k: x[:1] for k, x in base.items()}), Case("nothing chosen", {**base, "labels": torch.full_like(labels, -100)}),
            Case("places given", {**base, "places": torch.tensor([1, 4, 8, 13])}), Case("half precision", {**base, "half": True}), Case("NaN in the weights", {**base, "spoilt": True})]


class WordHead(torch.nn.Module):
    """A head with a matrix of its own before the words."""

    def __init__(self):
        super().__init__()
        self.turn, self.bias = torch.nn.Linear(6, 6), torch.nn.Parameter(torch.zeros(13))

    def forward(self, hidden_states, word_vectors):
        return torch.tanh(self.turn(hidden_states)) @ word_vectors.T + self.bias


def run_mlm_loss(grade, inputs):
    """The loss, whether it has a graph, and the gradients of encoder and head."""
    model = fill(BertModel(BertConfig(13, 6, 1, 2, 8, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0))).float()
    head = fill(WordHead()).float()
    packed, modes, given = [], [], {name: value for name, value in inputs.items() if name not in ("half", "spoilt")}
    asked = inspect.signature(model.forward)
    model.register_forward_pre_hook(lambda module, args, kwargs: packed.append(asked.bind(*args, **kwargs).arguments.get("packed", False)), with_kwargs=True)
    for part in (model, head):
        part.register_forward_pre_hook(lambda module, args: modes.append(module.training))
    if "half" in inputs:
        flat = lambda hidden, words: (0 * hidden.sum(-1, keepdim=True) + torch.linspace(-3, 3, 13)).bfloat16()   # the same logits everywhere, exact in half
        loss = grade(model.bfloat16(), flat, **given)
        return {"loss": loss.detach(), "float32 as promised": loss.dtype == torch.float32}
    if "spoilt" in inputs:
        torch.nn.init.constant_(model.embedding.word_embedding.weight, math.nan)
        return {"loss": grade(model, head, **given).detach()}
    loss = grade(model, head, **given)
    weights = {f"encoder {n}": p for n, p in model.named_parameters()} | {f"head {n}": p for n, p in head.named_parameters()}
    seen = {"loss": loss.detach().clone(), "has a graph": torch.tensor(loss.requires_grad), "float32 as promised": loss.dtype == torch.float32}
    seen["packed as asked"] = {bool(way) for way in packed} == {inputs.get("packed", True)}
    seen["in train mode while they are asked"] = all(modes)
    if loss.requires_grad:
        loss.backward()
    seen["the encoder is reached"] = torch.tensor(model.embedding.word_embedding.weight.grad is not None)
    seen["the head is reached"] = torch.tensor(head.turn.weight.grad is not None)
    return seen | {f"gradient of {name}": torch.zeros_like(p) if p.grad is None else p.grad for name, p in weights.items()}


TRIALS["pretrain.loss"] = Trial(loss_cases, run_mlm_loss, hints=(
    "Which positions are graded? Only those need logits.",
    "hidden.flatten(0, 1)[places] is (n, D). The head gets it together with the encoder's own word table. A mean over nothing is NaN: what has to come "
    "back instead, and why not a new tensor?",
    "logits = head(hidden.flatten(0, 1)[places], model.embedding.word_embedding.weight).float(); F.cross_entropy(logits, labels.flatten()[places]), and 0.0 * "
    "(hidden.sum() + logits.sum()) if nothing is chosen."))


_WRONG_GRADE = "return F.cross_entropy(logits, labels.flatten()[places])"
_WRONG_NONE = "return 0.0 * (hidden.float().sum() + logits.sum())"
_WRONG_LOGITS = "logits = head(hidden.flatten(0, 1)[places], model.embedding.word_embedding.weight).float()  # (n, V)"

MISTAKES["pretrain.loss"] = [
    mistake("packed=packed", "packed=True", "The model is always asked for packed work. `packed` says whether; hand it on."),
    mistake(", packed=packed", "", "`packed` is not handed on, so the work on padding is always done."),
    mistake(_WRONG_LOGITS, _WRONG_LOGITS.replace(".float()", ".double()"), _WRONG_NONE, "return 0.0 * (hidden.double().sum() + logits.sum())", "The loss is float64. float32 was promised."),
    mistake(_WRONG_LOGITS, _WRONG_LOGITS.replace(".float()", ""), "In half precision the loss is computed in half, and two digits are left of it. Widen the logits first."),
    mistake(_WRONG_GRADE, "costs, rows = F.cross_entropy(logits, labels.flatten()[places], reduction=\"none\"), places // labels.shape[1]\n"
            "    return torch.stack([costs[rows == i].mean() for i in rows.unique()]).mean()",
            "Each sentence has a mean of its own, and these are averaged. All chosen positions have one mean."),
    mistake(_WRONG_GRADE, "loss = F.cross_entropy(logits, labels.flatten()[places])\n    labels[labels == -100] = 0\n    return loss", "The labels are changed. The caller still needs them."),
    mistake(_WRONG_NONE, "return F.cross_entropy(logits, labels.flatten()[places])",
            "If nothing is chosen the mean over nothing is NaN, and one such batch ruins the weights."),
    mistake(_WRONG_NONE, "return torch.zeros(())", "If nothing is chosen a new tensor comes back, without a graph: backward() fails on it."),
    mistake(_WRONG_NONE, "pass", _WRONG_GRADE, "return F.cross_entropy(logits, labels.flatten()[places]).nan_to_num() + 0.0 * (hidden.sum() + logits.sum()).nan_to_num()",
            "NaN is made 0, wherever it comes from. A model whose weights are NaN would cost nothing for ever; 0 is right only where nothing is chosen."),
    mistake(_WRONG_GRADE, "return F.cross_entropy(logits, labels.flatten()[places], reduction=\"sum\")",
            "The costs are added up; the mean over the chosen positions is wanted."),
    mistake(_WRONG_GRADE, "return F.cross_entropy(logits, labels.flatten()[places], reduction=\"sum\") / labels.numel()",
            "The sum is divided by all positions; only the chosen ones have a cost."),
    mistake(_WRONG_GRADE, "return F.cross_entropy(logits, labels.flatten()[places], reduction=\"sum\") / attention_mask.sum()",
            "The sum is divided by all real tokens; only the chosen ones have a cost."),
    mistake(_WRONG_GRADE, "return F.cross_entropy(logits, input_ids.flatten()[places])",
            "The corrupted ids are taken for the truth: the model learns to say what it sees."),
    mistake("asked(labels)", "asked(labels.masked_fill(labels == input_ids, -100))",
            "Words that stayed as they were are not graded; they are chosen like the others."),
    mistake(_WRONG_NONE, "return torch.zeros((), requires_grad=True)",
            "If nothing is chosen, the 0 has a graph of its own that does not reach the weights."),
    mistake("asked(labels)", "(labels.flatten() > 0).nonzero().squeeze(1)", "A label of 0 is a word as well; only -100 means that nothing is asked."),
    mistake("model.embedding.word_embedding.weight)", "model.embedding.word_embedding.weight.detach())",
            "The word table is detached: it does not learn from being read."),
    mistake("model(input_ids, attention_mask, packed=packed)", "model(input_ids, torch.ones_like(attention_mask), packed=packed)",
            "The attention mask is not handed on, so words attend to padding."),
    mistake("hidden = model(input_ids, attention_mask, packed=packed).last_hidden_state", "hidden = model.embedding(input_ids)",
            "The word vectors are graded without the encoder: no word sees its neighbours."),
    mistake(_WRONG_GRADE, "return F.cross_entropy(logits.softmax(-1), labels.flatten()[places])", "Softmax is applied twice: cross-entropy wants the logits."),
    mistake(_WRONG_LOGITS, "logits = head(hidden.flatten(0, 1)[places].detach(), model.embedding.word_embedding.weight).float()",
            "The hidden states are detached: the head learns, the encoder does not."),
    mistake(_WRONG_NONE, "return 0.0 * hidden.float().sum()", "If nothing is chosen, the 0 is attached to the encoder alone. The head gets no gradient, where it should get one of 0."),
    mistake("    hidden = model(input_ids, attention_mask, packed=packed).last_hidden_state",
            "    mode = model.training\n    model.eval()\n    hidden = model(input_ids, attention_mask, packed=packed).last_hidden_state\n    model.train(mode)",
            "The model is in eval mode while it is asked, so it learns without dropout."),
    mistake("model(input_ids, attention_mask, packed", "model(input_ids.where(labels == -100, labels), attention_mask, packed",
            "The model reads the words as they were before, so it sees what it is asked for."),
    mistake(_WRONG_GRADE, "return F.nll_loss(logits, labels.flatten()[places])", "The logits are taken for log-probabilities; no softmax is applied at all."),
]

VARIANTS["pretrain.loss"] = [
    '''
def mlm_loss(model, head, input_ids, attention_mask, labels, packed=True, places=None):
    hidden = model(input_ids, attention_mask, False, None, packed)[0]
    logits = head(hidden, model.embedding.word_embedding.weight).float().flatten(0, 1)
    total = F.cross_entropy(logits, labels.flatten(), ignore_index=-100, reduction="sum")
    return total / max((labels != -100).sum().item(), 1)
''',
    '''
def mlm_loss(model, head, input_ids, attention_mask, labels, packed=True, places=None):
    states = model(input_ids, attention_mask, packed=packed).last_hidden_state
    rows, columns = (labels >= 0).nonzero(as_tuple=True)
    logs = head(states[rows, columns], model.embedding.word_embedding.weight).float().log_softmax(-1)
    if len(rows) == 0:
        return (states.float().sum() + logs.sum()) * 0
    return -logs.gather(1, labels[rows, columns][:, None]).mean()
''',
]


# ---- How strong are they?
