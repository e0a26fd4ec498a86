"""Exercise cases of chapter 17: contrastive training with two views."""

import types

import torch
from torch import nn

from minbert.course.check_runner import ALIKE, COLUMNS, SMALL, Case, Trial, fixed, mistake
from minbert.tokens import TokenBatch
from minbert.view_training import ViewBatch

TRIALS, MISTAKES, VARIANTS = {}, {}, {}


# ---- simcse.forward
#
# The encoder is a small stand-in that combines positions with a mask and counts its calls. Three
# sentences in one, two and three views, with and without a projection: no two sizes agree. One
# model is in eval mode.


class _Encoder(nn.Module):
    """Two numbers a token, the mean over real tokens; larger in train mode, as dropout would
    tell it; counts its calls and their rows."""

    def __init__(self, width=4):
        super().__init__()
        self.table = nn.Parameter(
            torch.sin(torch.arange(90.0 * width, dtype=torch.float64)).view(90, width)
        )
        self.calls = []

    def forward(self, input_ids, attention_mask):
        self.calls.append(len(input_ids))
        mask = attention_mask[..., None].double()
        return (self.table[input_ids] * mask).sum(1) / mask.sum(1) * (1.2 if self.training else 1.0)


def _batch(ids, mask, rows):
    return ViewBatch(TokenBatch(ids, mask), torch.arange(rows) % max(rows - 1, 1))


def views_cases(generator):
    ids = torch.randint(90, (9, 5), generator=generator)
    mask = (torch.arange(5) < torch.randint(2, 6, (9, 1), generator=generator)).long()
    layer = fixed(generator, 4, 3)
    return [
        Case("three sentences, two views", {"ids": ids[:6], "mask": mask[:6], "rows": 3}),
        Case("three views, a projection", {"ids": ids, "mask": mask, "rows": 3, "layer": layer}),
        Case(
            "one view, a projection",
            {"ids": ids[:5], "mask": mask[:5], "rows": 5, "layer": layer},
        ),
        Case(
            "two views, a projection",
            {"ids": ids[:6], "mask": mask[:6], "rows": 3, "layer": layer},
        ),
        Case(
            "two views, a projection, eval mode",
            {"ids": ids[:6], "mask": mask[:6], "rows": 3, "layer": layer, "eval": True},
        ),
    ]


def run_views(kind, inputs):
    layer = None
    if "layer" in inputs:
        layer = nn.Linear(4, 3, bias=False).double()
        layer.weight.data.copy_(inputs["layer"].T)
    model = kind(_Encoder(), layer).train("eval" not in inputs)
    views = model(_batch(inputs["ids"], inputs["mask"], inputs["rows"]))
    calls = model.encoder.calls[:]
    sum((k + 1) * view.sin().sum() for k, view in enumerate(views)).backward()
    return {
        "number of views": len(views),
        **{f"view {k + 1}": view for k, view in enumerate(views)},
        "rows of each call of the encoder": torch.tensor(calls),
        "gradient of the encoder": model.encoder.table.grad,
        **({"gradient of the layer": layer.weight.grad} if layer is not None else {}),
    }


TRIALS["simcse.forward"] = Trial(
    views_cases,
    run_views,
    derive=(COLUMNS,),
    hints=(
        "Three steps: encode all rows, apply the projection if there is one, split the result.",
        (
            "`self.encoder` takes input ids and attention mask, which is what `batch.tokens` "
            "unpacks to. The rows of one view are consecutive."
        ),
        "vectors.chunk(batch.views) splits (V B, E) into V matrices of B rows.",
    ),
)

MISTAKES["simcse.forward"] = [
    mistake(
        "return vectors.chunk(batch.views)",
        "return tuple(vectors[k::batch.views] for k in range(batch.views))",
        "The rows are split as if the views of a sentence were adjacent. The batch contains all "
        "first views, then all second views.",
    ),
    mistake(
        "return vectors.chunk(batch.views)",
        "return vectors.split(batch.views)",
        "The rows are split into chunks of V rows. Split them into V chunks.",
    ),
    mistake(
        "    if self.projection is not None:\n        vectors = self.projection(vectors)  # (V B, E)\n",
        "",
        "The projection is not applied.",
    ),
    mistake(
        "return vectors.chunk(batch.views)",
        "first, *rest = vectors.chunk(batch.views)\n"
        "    return first, *(view.detach() for view in rest)",
        "All views except the first are detached and get no gradient.",
    ),
    mistake(
        "vectors = self.encoder(*batch.tokens)",
        "vectors = self.encoder(*batch.tokens).detach()",
        "The vectors are detached, so the encoder gets no gradient.",
    ),
    mistake(
        "vectors = self.encoder(*batch.tokens)",
        "vectors = self.encoder(batch.tokens.input_ids, "
        "torch.ones_like(batch.tokens.attention_mask))",
        "The attention mask is not used, so padding is attended to.",
    ),
    mistake(
        "vectors = self.encoder(*batch.tokens)",
        "mode = self.training\n"
        "    self.eval()\n"
        "    vectors = self.encoder(*batch.tokens)\n"
        "    self.train(mode)",
        "The encoder runs in eval mode, so there is no dropout and both views are equal.",
    ),
    mistake(
        "return vectors.chunk(batch.views)",
        "return vectors.chunk(2)",
        "The rows are always split into two views. Use `batch.views`.",
    ),
]

VARIANTS["simcse.forward"] = [
    """
def forward(self, batch):
    vectors = self.encoder(batch.tokens.input_ids, batch.tokens.attention_mask)
    layer = self.projection or (lambda x: x)
    return tuple(torch.split(layer(vectors), len(batch.groups)))
""",
    """
def forward(self, batch):
    ids, mask = batch.tokens
    vectors = self.encoder(ids, mask)
    vectors = vectors if self.projection is None else self.projection(vectors)
    return tuple(vectors.reshape(batch.views, len(batch.groups), -1))
""",
]


# ---- simcse.loss
#
# The loss is a stand-in that distinguishes its arguments: each view has its own weight, and
# groups count by their ids. It is called with another batch before.


def view_loss_cases(generator):
    vectors, groups = fixed(generator, 3, 4, 3), torch.tensor([2, 0, 2, 5])
    return [
        Case("two views", {"vectors": vectors[:2], "groups": groups}),
        Case("three views", {"vectors": vectors, "groups": groups}),
        Case(
            "duplicates count as negatives",
            {"vectors": vectors, "groups": groups, "exclude_duplicates": False},
        ),
    ]


def run_view_loss(make, inputs):
    heard = []

    def loss(a, b, groups=None, **more):
        heard.append((a, b, groups, more))
        total = (a * torch.arange(a.numel()).view(a.shape)).sum() + 2 * (
            b.square() * torch.arange(b.numel()).view(b.shape)
        ).sum()
        return total + 3 * more["hard"].exp().sum() if more.get("hard") is not None else total

    made = make(
        loss,
        **(
            {"exclude_duplicates": inputs["exclude_duplicates"]}
            if "exclude_duplicates" in inputs
            else {}
        ),
    )
    vectors = inputs["vectors"].clone().requires_grad_()
    earlier, batch = (
        types.SimpleNamespace(groups=groups, views=len(vectors), tokens=None, labels=None)
        for groups in (inputs["groups"].flip(0), inputs["groups"])
    )
    calls = []

    def model(given):
        calls.append(given)
        return (
            tuple(vectors if given is batch else vectors.flip(1))
            if given is batch or given is earlier
            else None
        )

    made(model, earlier)
    value = made(model, batch)
    a, b, groups, more = heard[-1]
    return {
        "loss": value,
        "gradient": torch.autograd.grad(value, vectors)[0],
        "calls of the loss": len(heard),
        "calls of the model": len(calls),
        "groups": torch.tensor([-1]) if groups is None else groups,
        "rows": torch.tensor(
            [len(a), len(b), 0 if more.get("hard") is None else len(more["hard"])]
        ),
        "`hard` is passed on as None": more.get("hard", ()) is None,
        "other arguments": len(set(more) - {"hard"}),
    }


TRIALS["simcse.loss"] = Trial(
    view_loss_cases,
    run_view_loss,
    derive=(ALIKE, SMALL),
    hints=(
        (
            "Write a function inside the function: it takes a model and a batch, and it knows "
            "`loss` from outside."
        ),
        (
            "model(batch) gives the views. The first two are positional arguments of `loss`, the "
            "third, if there is one, is `hard=`, and the groups are `groups=`."
        ),
        (
            "views = model(batch); loss(*views[:2], groups=batch.groups if exclude_duplicates "
            "else None), with hard=views[2] only if there are three views; and return the inner "
            "function."
        ),
    ),
)

MISTAKES["simcse.loss"] = [
    mistake(
        "groups = batch.groups if exclude_duplicates else None",
        "groups = batch.groups",
        "`exclude_duplicates` is not used: duplicates are always excluded from the negatives.",
    ),
    mistake(
        "groups = batch.groups if exclude_duplicates else None",
        "groups = None",
        "The groups are not passed on, so duplicates count as negatives.",
    ),
    mistake(
        "hard=views[2], groups=groups",
        "groups=groups",
        "The third view, the hard negatives, is not passed on.",
    ),
    mistake(
        "return loss(views[0], views[1], groups",
        "return loss(views[1], views[0], groups",
        "The first two views are swapped.",
    ),
    mistake(
        "hard=views[2]",
        "hard=views[1]",
        "The second view is passed on as hard negatives. They are the third view.",
    ),
    mistake(
        "views = model(batch)",
        "views = [view.detach().requires_grad_() for view in model(batch)]",
        "The views are detached, so the model gets no gradient.",
    ),
    mistake(
        "hard=views[2]",
        "hard=model(batch)[2]",
        "The model runs twice for one batch, so views and hard negatives come from different "
        "dropout masks.",
    ),
]

VARIANTS["simcse.loss"] = [
    """
def view_loss(loss=simcse_loss, exclude_duplicates=True):
    def of_batch(model, batch):
        a, b, *rest = model(batch)
        more = {"groups": batch.groups} if exclude_duplicates else {"groups": None}
        if rest:
            more["hard"] = rest[0]
        return loss(a, b, **more)
    return of_batch
""",
    """
def view_loss(loss=simcse_loss, exclude_duplicates=True):
    class Loss:
        def __call__(self, model, batch):
            views = model(batch)
            groups = batch.groups if exclude_duplicates else None
            if len(views) == 3:
                return loss(views[0], views[1], hard=views[2], groups=groups)
            return loss(views[0], views[1], groups=groups)
    return Loss()
""",
]
