"""Exercise cases of chapter 07: masking, the loss of masked language modelling, sentence pairs."""

import math

import torch

from minbert.course.check_runner import Case, Trial, fill, mistake
from minbert.encoder import BertConfig, BertModel

TRIALS, MISTAKES, VARIANTS = {}, {}, {}


# ---- pretrain.special
#
# Rows of different length; a special id in the middle of a row; a word with id 0, which is not
# padding if the mask says so; padding filled with an ordinary id.


def special_cases(generator):
    ids = torch.randint(5, 30, (3, 7), generator=generator)
    ids[:, 0], ids[0, 6], ids[1, 3], ids[2, 4], ids[0, 2], ids[1, 5] = 2, 3, 3, 3, 0, 3
    mask = torch.tensor([[1] * 7, [1] * 4 + [0] * 3, [1] * 5 + [0] * 2])
    base = {"input_ids": ids, "attention_mask": mask, "special_ids": [2, 3]}
    return [
        Case("three rows of different length", base),
        Case("a mask of truth values", {**base, "attention_mask": mask == 1}),
        Case("four special ids", {**base, "special_ids": [0, 2, 3, int(ids[0, 4])]}),
        Case("one token", {**base, "input_ids": ids[:1, 4:5], "attention_mask": mask[:1, :1]}),
        Case("special ids in another order, some absent", {**base, "special_ids": [101, 3, 2]}),
        Case(
            "a pad between real tokens", {**base, "attention_mask": mask * (torch.arange(7) != 1)}
        ),
    ]


def run_special(mark, inputs):
    before = list(inputs["special_ids"])
    return {
        "special": mark(**inputs),
        "the list of special ids is as it was": inputs["special_ids"] == before,
    }


TRIALS["pretrain.special"] = Trial(
    special_cases,
    run_special,
    hints=(
        (
            "There are two reasons why a position must not be chosen. Which of the two tensors "
            "contains which?"
        ),
        (
            "Padding is where attention_mask is 0. torch.isin tells which ids are among the "
            "special ones."
        ),
        "(attention_mask == 0) | torch.isin(input_ids, torch.tensor(special_ids)).",
    ),
)


_WRONG_SPECIAL = "(attention_mask == 0) | torch.isin(input_ids, special)"

MISTAKES["pretrain.special"] = [
    mistake(
        _WRONG_SPECIAL,
        "(torch.arange(input_ids.shape[1]) >= attention_mask.sum(1, keepdim=True)) | "
        "torch.isin(input_ids, special)",
        "The mask is used as a length. Padding can also be between real tokens.",
    ),
    mistake(
        _WRONG_SPECIAL,
        "attention_mask == 0",
        "Special tokens are not marked, so [CLS] and [SEP] could be masked and predicted.",
    ),
    mistake(
        _WRONG_SPECIAL,
        "torch.isin(input_ids, special)",
        "Padding is not marked, so it could be masked and predicted.",
    ),
    mistake(
        _WRONG_SPECIAL,
        "(attention_mask == 0) & torch.isin(input_ids, special)",
        "Both conditions are required. One of them is enough.",
    ),
    mistake(
        _WRONG_SPECIAL,
        "(attention_mask == 1) | torch.isin(input_ids, special)",
        "The mask is inverted: 1 is a real token.",
    ),
    mistake(
        _WRONG_SPECIAL,
        "~((attention_mask == 0) | torch.isin(input_ids, special))",
        "The result is inverted: it marks what may be masked.",
    ),
    mistake(
        _WRONG_SPECIAL,
        "(input_ids == 0) | torch.isin(input_ids, special)",
        "Padding is detected by id 0. Use the attention mask.",
    ),
    mistake(
        _WRONG_SPECIAL,
        "((attention_mask == 0) | torch.isin(input_ids, special)).long()",
        "Integers are returned. Booleans are expected, because `~` means something else for "
        "integers.",
    ),
]

VARIANTS["pretrain.special"] = [
    """
def special_positions(input_ids, attention_mask, special_ids):
    special = ~attention_mask.bool()
    for i in special_ids:
        special = special | (input_ids == i)
    return special
""",
    """
def special_positions(input_ids, attention_mask, special_ids):
    known = set(special_ids)
    return torch.tensor(
        [
            [m == 0 or i in known for i, m in zip(ids, mask)]
            for ids, mask in zip(input_ids.tolist(), attention_mask.tolist())
        ]
    )
""",
]


# ---- pretrain.mask
#
# The order of random draws is left open. Compared are facts that hold for any draw, and
# frequencies over forty thousand positions at a rate of one half, whose standard error is below
# half a percent; the check allows 2.5%. Other random facts become booleans with a wide margin:
# the choices in different rows and positions are independent. Words with id 0 or [MASK], two
# tokens to draw from, one of them [MASK], and sentences with their own special positions show
# tokens that are left out. Without a generator two calls must differ.


def mask_cases(generator):
    seed, rows = torch.randint(10**6, (), generator=generator).item(), (400, 100)
    ids = torch.randint(5, 30, rows, generator=generator)
    special = torch.rand(rows, generator=generator) < 0.2
    base = {
        "input_ids": ids,
        "special_mask": special,
        "mask_id": 4,
        "vocab_size": 30,
        "rate": 0.5,
        "seed": seed,
    }
    return [
        Case("half of the positions", {**base, "more": True}),
        Case("the usual rate", {**base, "rate": None}),
        Case("every position", {**base, "rate": 1.0}),
        Case("none", {**base, "rate": 0.0}),
        Case(
            "special positions as whole numbers",
            {**base, "special_mask": special.long(), "rate": 0.3},
        ),
        Case(
            "every sentence special elsewhere",
            {**base, "special_mask": torch.arange(100) < torch.arange(400)[:, None] % 100},
        ),
        Case(
            "words 0 and [MASK] among the ids",
            {**base, "input_ids": torch.where(ids < 15, 4, torch.where(ids < 25, 0, ids))},
        ),
        Case(
            "two tokens to draw from, one of them [MASK]",
            {
                **base,
                "input_ids": torch.ones_like(ids),
                "mask_id": 0,
                "vocab_size": 2,
                "rate": 1.0,
                "special_mask": torch.zeros_like(special),
            },
        ),
        Case(
            "sentences of three words",
            {
                **base,
                "input_ids": ids.view(8000, 5),
                "special_mask": torch.tensor([1, 0, 0, 0, 1]).expand(8000, 5).clone(),
                "rate": 0.1,
            },
        ),
        Case(
            "one position",
            {
                **base,
                "input_ids": ids[:1, :1],
                "special_mask": torch.zeros_like(special[:1, :1]),
                "rate": 1.0,
            },
        ),
    ]


def _spread(hits, among, axis):
    """How much rows (1) or columns (0) differ in their share of hits: 1 by chance, 0 if all have
    the same number."""
    n, share = among.sum(axis), hits.sum() / among.sum()
    return (
        ((hits.sum(axis) - share * n) / (share * (1 - share) * n.clamp(min=1)).sqrt())
        .square()
        .mean()
        .sqrt()
    )


def _agreement(x, a, b, among):
    """Give the fraction of places in which two halves of the rows agree."""
    return (x[a] == x[b])[among].double().mean()


def _repeats(chosen, hidden, drawn, words, free):
    """Compare rows that a program might make from one draw: half a batch apart, or side by side.

    What is compared: the choice of tokens, what happens to them, and the random words.
    """
    half = len(chosen) // 2
    halves = {
        "half a batch apart": (slice(half), slice(half, None)),
        "side by side": (slice(0, None, 2), slice(1, None, 2)),
    }
    for where, (a, b) in halves.items():
        rate = chosen[free].double().mean()
        by_chance = rate**2 + (1 - rate) ** 2
        alike = _agreement(chosen, a, b, free[a] & free[b])
        yield f"rows {where} choose alike", abs(alike - by_chance) > 0.03
        same = _agreement(hidden, a, b, chosen[a] & chosen[b])
        yield f"the same happens in rows {where}", same > 0.87
        pair = drawn[a] & drawn[b]
        enough = bool(pair.sum() > 20)
        same = enough and bool(_agreement(words, a, b, pair) > 0.6)
        yield f"the same random words in rows {where}", same


def run_mask(hide, inputs):
    """Hide words, and count. Shares of few positions are left out."""
    ids, special, mask_id = inputs["input_ids"], inputs["special_mask"].bool(), inputs["mask_id"]
    options = {"rate": inputs["rate"]} if inputs.get("rate") is not None else {}

    def seeded(more=0):
        return torch.Generator().manual_seed(inputs["seed"] + more)

    def draw():
        return hide(
            ids,
            inputs["special_mask"],
            mask_id,
            inputs["vocab_size"],
            generator=seeded(),
            **options,
        )

    before = torch.random.get_rng_state()
    known = [i for i in (0, mask_id) if (ids == i).any()]
    (corrupted, labels), again = draw(), draw()
    global_dice = torch.tensor(not torch.equal(before, torch.random.get_rng_state()))
    chosen, changed = labels != -100, corrupted != ids
    drawn = corrupted[chosen & changed & (corrupted != mask_id)]
    facts = {
        "labels that are neither -100 nor the true id": (chosen & (labels != ids)).any(),
        "share of labels that are neither": (chosen & (labels != ids)).double().mean(),
        "special positions that were chosen": (special & chosen).any(),
        "positions changed but not asked for": (changed & ~chosen).any(),
        "share of positions changed but not asked for": (changed & ~chosen).double().mean(),
        "equal generators give unequal masks": torch.tensor(
            not all(map(torch.equal, (corrupted, labels), again))
        ),
        "torch's global random state was used": global_dice,
    }
    if "more" in inputs:

        def hide_by(generator):
            return hide(
                ids[:50],
                special[:50],
                mask_id,
                inputs["vocab_size"],
                generator=generator,
                **options,
            )[1]  # few: all are handed over

        facts |= {
            "without a generator the same words are hidden again": torch.equal(
                hide_by(None), hide_by(None)
            ),
            "other generators choose as many": len(
                {int((hide_by(seeded(n)) != -100).sum()) for n in range(4)}
            )
            == 1,
        }

    def share(x):
        return x.double().mean()

    facts |= {f"share of chosen words {i}": share(chosen[(ids == i) & ~special]) for i in known}
    if inputs["vocab_size"] == 2:  # so few words that a random one is often the true one, or [MASK]
        facts |= {
            "share that becomes [MASK]": share(corrupted == mask_id),
            "share that stays": share(~changed),
        }
    if len(ids) > 1 and inputs["vocab_size"] > 2 and inputs.get("rate") != 0.0:
        facts |= dict(
            _repeats(
                chosen,
                corrupted == mask_id,
                chosen & changed & (corrupted != mask_id),
                corrupted,
                ~special,
            )
        )
    if len(ids) == 8000:
        facts["share of sentences in which nothing is asked for"] = share(~chosen.any(1))
    if inputs.get("rate") in (0.0, 1.0):
        return facts | {"positions not chosen": (~chosen & ~special).any()}
    free, rate = chosen[~special], share(chosen[~special])
    pairs = ~special[:, :-1] & ~special[:, 1:]
    both = share((chosen[:, :-1] & chosen[:, 1:])[pairs])
    rows, columns = (_spread(chosen & ~special, ~special, axis) for axis in (1, 0))
    facts |= {
        "share of chosen positions": share(free),
        "coins of neighbours agree too often": (both - rate**2).abs() > 0.03,
        "every row has the same number": rows < 0.5,
        "rows differ more than chance lets them": rows > 2,
        "all rows have the same places": columns > 2,
    }
    if len(drawn):
        facts["smallest and largest random word"] = torch.stack([drawn.min(), drawn.max()])
    if len(drawn) > 600:
        facts["share of the commonest random word"] = torch.bincount(drawn).max() / len(drawn)
        down = corrupted.T[(chosen & changed & (corrupted != mask_id)).T]
        facts |= {
            f"neighbours along {axis} get the same random word": share(x[1:] == x[:-1]) > 0.3
            for axis, x in (("a row", drawn), ("a column", down))
        }
    by_row, by_place = (_spread(chosen & (corrupted == mask_id), chosen, axis) for axis in (1, 0))
    facts |= {"what happens goes by rows": by_row > 2, "what happens goes by places": by_place > 2}
    if inputs.get("rate") == 0.5:
        facts |= {
            "of the chosen, hidden": share(corrupted[chosen] == mask_id),
            "of the chosen, unchanged": share(~changed[chosen]),
            "random words": len(drawn) / chosen.sum().double(),
        }
    return facts


TRIALS["pretrain.mask"] = Trial(
    mask_cases,
    run_mask,
    replay=True,
    rtol=0,
    atol=0.025,
    derive=(),
    hints=(
        (
            "Two independent random numbers for each position are enough: the first chooses, the "
            "second decides what happens. On which of them do the labels depend?"
        ),
        (
            "chosen = torch.rand(shape, generator=generator) < rate, and not special. A second "
            "torch.rand decides: below 0.8 [MASK], from 0.8 to 0.9 a "
            "random word, above that nothing."
        ),
        (
            "corrupted = input_ids.masked_fill(chosen & (treatment < 0.8), mask_id); torch.where puts "
            "random ids in where 0.8 <= treatment < 0.9; labels = "
            "input_ids.masked_fill(~chosen, -100)."
        ),
    ),
)


_WRONG_TREATMENT = "treatment = torch.rand(shape, generator=generator, device=device)"
_WRONG_LABELS = "return corrupted, input_ids.masked_fill(~chosen, -100)"
_WRONG_RANDOM = "corrupted = torch.where(replaced, random_ids, corrupted)"

MISTAKES["pretrain.mask"] = [
    mistake(
        _WRONG_RANDOM,
        "",
        "No chosen token is replaced by a random one. That should happen to 10% of them.",
    ),
    mistake(
        "(treatment >= 0.8) & (treatment < 0.9)",
        "(treatment >= 0.8)",
        "No chosen token is kept unchanged. That should happen to 10% of them.",
    ),
    mistake(
        "chosen &= ~special_mask.bool()", "", "Special tokens and padding are masked like words."
    ),
    mistake(
        "chosen &= ~special_mask.bool()",
        "chosen &= special_mask.bool()",
        "`special_mask` is inverted: only special tokens are masked.",
    ),
    mistake(
        _WRONG_LABELS,
        "return corrupted, input_ids.masked_fill(corrupted == input_ids, -100)",
        "Chosen tokens that are kept unchanged have no label. They are predicted like the other "
        "chosen ones.",
    ),
    mistake(
        _WRONG_LABELS,
        "return corrupted, corrupted.masked_fill(~chosen, -100)",
        "The labels contain the corrupted tokens. They should contain the original ones.",
    ),
    mistake(
        _WRONG_LABELS,
        "return corrupted, input_ids.masked_fill(~chosen, 0)",
        "Positions that are not predicted get label 0, which is a token id. Use -100.",
    ),
    mistake(
        "chosen = torch.rand(shape, generator=generator, device=device) < rate",
        "chosen = torch.rand(shape, device=device) < rate",
        _WRONG_TREATMENT,
        "treatment = torch.rand(shape, device=device)",
        "random_ids = torch.randint(vocab_size, shape, generator=generator, device=device)",
        "random_ids = torch.randint(vocab_size, shape, device=device)",
        "`generator` is not used, so masks are not reproducible.",
    ),
]

VARIANTS["pretrain.mask"] = [
    """
def mask_tokens(input_ids, special_mask, mask_id, vocab_size, rate=0.15, generator=None):
    chances = torch.full(input_ids.shape, float(rate)).masked_fill(special_mask.bool(), 0.0)
    chosen = torch.bernoulli(chances, generator=generator).bool()
    labels = torch.where(chosen, input_ids, torch.full_like(input_ids, -100))
    out = input_ids.clone()
    hidden = torch.bernoulli(torch.full(out.shape, 0.8), generator=generator).bool() & chosen
    out[hidden] = mask_id
    noisy = (
        torch.bernoulli(torch.full(out.shape, 0.5), generator=generator).bool() & chosen & ~hidden
    )
    out[noisy] = torch.randint(vocab_size, (int(noisy.sum()),), generator=generator)
    return out, labels
""",
    """
def mask_tokens(input_ids, special_mask, mask_id, vocab_size, rate=0.15, generator=None):
    out, labels = input_ids.clone(), torch.full_like(input_ids, -100)
    rows, columns = (
        (torch.rand(input_ids.shape, generator=generator) < rate) & (special_mask == 0)
    ).nonzero(as_tuple=True)
    labels[rows, columns] = input_ids[rows, columns]
    kinds = (
        torch.tensor([0.1, 0.8, 0.1]).multinomial(len(rows), replacement=True, generator=generator)
        if len(rows)
        else rows
    )
    words = (torch.rand(len(rows), generator=generator) * vocab_size).long()
    now = out[rows, columns]
    out[rows, columns] = torch.where(kinds == 1, mask_id, torch.where(kinds == 2, words, now))
    return out, labels
""",
    """
def mask_tokens(input_ids, special_mask, mask_id, vocab_size, rate=0.15, generator=None):
    treatment = torch.rand(input_ids.shape, generator=generator)
    words = torch.randint(vocab_size, input_ids.shape, generator=generator)
    chosen = (torch.rand(input_ids.shape, generator=generator) < rate) & (special_mask == 0)
    new = torch.where(treatment < 0.8, mask_id, torch.where(treatment < 0.9, input_ids, words))
    return torch.where(chosen, new, input_ids), torch.where(chosen, input_ids, -100)
""",
]


# ---- pretrain.loss
#
# A BERT of one layer, with the gradients of all its weights. Rows with padding, one masked
# position, and a batch without masked positions: loss 0 with zero gradients.


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
    return [
        Case("four chosen positions", base),
        Case("one chosen position", {**base, "labels": lone}),
        Case("one sentence", {k: x[:1] for k, x in base.items()}),
        Case("nothing chosen", {**base, "labels": torch.full_like(labels, -100)}),
        Case("NaN in the weights", {**base, "spoilt": True}),
    ]


class WordHead(torch.nn.Module):
    """A head with a matrix of its own before the words."""

    def __init__(self):
        super().__init__()
        self.turn, self.bias = torch.nn.Linear(6, 6), torch.nn.Parameter(torch.zeros(13))

    def forward(self, hidden_states, word_vectors):
        return torch.tanh(self.turn(hidden_states)) @ word_vectors.T + self.bias


def run_mlm_loss(compute, inputs):
    """The loss, whether it has a graph, and the gradients of encoder and head."""
    config = BertConfig(13, 6, 1, 2, 8, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
    model, head = fill(BertModel(config)).float(), fill(WordHead()).float()
    given = {name: value for name, value in inputs.items() if name != "spoilt"}
    modes = []
    for part in (model, head):
        part.register_forward_pre_hook(lambda module, args: modes.append(module.training))
    if "spoilt" in inputs:
        torch.nn.init.constant_(model.embedding.word_embedding.weight, math.nan)
        return {"loss": compute(model, head, **given).detach()}
    loss = compute(model, head, **given)
    weights = {f"encoder {n}": p for n, p in model.named_parameters()} | {
        f"head {n}": p for n, p in head.named_parameters()
    }
    seen = {
        "loss": loss.detach().clone(),
        "has a graph": torch.tensor(loss.requires_grad),
        "float32 as promised": loss.dtype == torch.float32,
        "in train mode while they are called": all(modes),
    }
    if loss.requires_grad:
        loss.backward()
    seen["the encoder is reached"] = torch.tensor(
        model.embedding.word_embedding.weight.grad is not None
    )
    seen["the head is reached"] = torch.tensor(head.turn.weight.grad is not None)
    return seen | {
        f"gradient of {name}": torch.zeros_like(p) if p.grad is None else p.grad
        for name, p in weights.items()
    }


TRIALS["pretrain.loss"] = Trial(
    loss_cases,
    run_mlm_loss,
    hints=(
        "chosen_logits returns logits of the shape (n, V). What is their mean loss if n is 0?",
        (
            "A mean over nothing is NaN, so take the sum of the losses and divide it by the number "
            "of chosen tokens, or by 1 if there are none."
        ),
        (
            "logits, targets = chosen_logits(model, head, hidden_states, labels); "
            'total = F.cross_entropy(logits, targets, reduction="sum"); return total / '
            "max(len(targets), 1)."
        ),
    ),
)


_WRONG_TOTAL = 'total = F.cross_entropy(logits, targets, reduction="sum")'
_WRONG_MEAN = "return total / max(len(targets), 1)"
_WRONG_LOGITS = "logits, targets = chosen_logits(model, head, hidden_states, labels)"

MISTAKES["pretrain.loss"] = [
    mistake(
        _WRONG_MEAN,
        "return F.cross_entropy(logits, targets)",
        "The mean over no masked tokens is NaN. Without masked tokens the loss should be 0.",
    ),
    mistake(
        _WRONG_MEAN,
        "return total",
        "The losses are summed. Use the mean over the masked tokens.",
    ),
    mistake(
        _WRONG_MEAN,
        "return total / labels.numel()",
        "The sum is divided by the number of all positions. Divide by the number of masked tokens.",
    ),
    mistake(
        _WRONG_TOTAL,
        'total = F.cross_entropy(logits, input_ids[labels != -100], reduction="sum")',
        "The corrupted ids are used as labels, so the model learns to copy its input.",
    ),
    mistake(
        _WRONG_LOGITS,
        "targets = labels[labels != -100]\n    table = model.embedding.word_embedding.weight.detach()\n"
        "    logits = head(hidden_states[labels != -100], table)",
        "The token embeddings are detached, so they get no gradient from the output layer.",
    ),
    mistake(
        "model(input_ids, attention_mask)",
        "model(input_ids, torch.ones_like(attention_mask))",
        "The attention mask is not passed on, so tokens attend to padding.",
    ),
    mistake(
        _WRONG_TOTAL,
        'total = F.cross_entropy(logits.softmax(-1), targets, reduction="sum")',
        "A softmax is applied before the cross-entropy, which expects logits.",
    ),
    mistake(
        _WRONG_LOGITS,
        "logits, targets = chosen_logits(model, head, hidden_states.detach(), labels)",
        "The hidden states are detached, so the encoder gets no gradient.",
    ),
]

VARIANTS["pretrain.loss"] = [
    """
def mlm_loss(model, head, input_ids, attention_mask, labels):
    hidden = model(input_ids, attention_mask)[0]
    logits = head(hidden, model.embedding.word_embedding.weight).flatten(0, 1)
    total = F.cross_entropy(logits, labels.flatten(), ignore_index=-100, reduction="sum")
    return total / max((labels != -100).sum().item(), 1)
""",
    """
def mlm_loss(model, head, input_ids, attention_mask, labels):
    states = model(input_ids, attention_mask).last_hidden_state
    rows, columns = (labels >= 0).nonzero(as_tuple=True)
    logs = head(states[rows, columns], model.embedding.word_embedding.weight).log_softmax(-1)
    if len(rows) == 0:
        return (states.sum() + logs.sum()) * 0
    return -logs.gather(1, labels[rows, columns][:, None]).mean()
""",
]


# ---- pretrain.pairs
#
# The order of random draws is left open. Compared are facts that hold for any draw: which first
# sentences there are, where the second ones come from, and how often. Sentences are numbered, so
# that their document and place can be read off.


def pairs_cases(generator):
    seed = torch.randint(10**6, (), generator=generator).item()

    def documents(*lengths):
        return [[f"{d} {s}" for s in range(n)] for d, n in enumerate(lengths)]

    return [
        Case("many documents", {"documents": documents(*[5, 3, 4, 8] * 100), "seed": seed}),
        Case("two documents", {"documents": documents(500, 700), "seed": seed + 1}),
        Case("a document of one sentence", {"documents": documents(600, 1, 2), "seed": seed + 2}),
        Case("three documents", {"documents": documents(400, 400, 400), "seed": seed + 3}),
    ]


def run_pairs(make, inputs):
    """Facts about the pairs, and fractions."""
    documents = inputs["documents"]

    def draw(more=0):
        copies = [list(document) for document in documents]
        pairs = make(copies, torch.Generator().manual_seed(inputs["seed"] + more))
        return [tuple(pair) for pair in pairs], copies == documents

    before = torch.random.get_rng_state()
    pairs, unchanged = draw()
    again, other = draw()[0], draw(1)[0]
    global_state_used = not torch.equal(before, torch.random.get_rng_state())
    place = {s: (d, i) for d, document in enumerate(documents) for i, s in enumerate(document)}
    successors = {first: s for document in documents for first, s in zip(document, document[1:])}
    following = [(a, b) for a, b, label in pairs if label == 0]
    drawn = [(place[a], place[b]) for a, b, label in pairs if label == 1]
    half = len(drawn) / max(len(pairs), 1)
    late = [i / (len(documents[d]) - 1) for _, (d, i) in drawn if len(documents[d]) > 1]
    facts = {
        "number of pairs": len(pairs),
        "first sentences": [a for a, _, _ in pairs] == list(successors),
        "labels other than 0 and 1": any(label not in (0, 1) for *_, label in pairs),
        "label 0, but B does not follow A": any(successors.get(a) != b for a, b in following),
        "label 1, but B is from the document of A": any(a[0] == b[0] for a, b in drawn),
        "fraction of random pairs": half,
        "the documents are as they were": unchanged,
        "equal generators give equal pairs": pairs == again,
        "other generators give the same pairs": pairs == other,
        "torch's global random state was used": global_state_used,
        "mean place of a random sentence in its document": sum(late) / max(len(late), 1),
    }
    if len(documents) == 3:
        to_next = sum((b[0] - a[0]) % 3 == 1 for a, b in drawn) / max(len(drawn), 1)
        facts["fraction of random sentences from the next document"] = to_next
    return facts


TRIALS["pretrain.pairs"] = Trial(
    pairs_cases,
    run_pairs,
    rtol=0,
    atol=0.12,
    derive=(),
    hints=(
        "zip(document, document[1:]) gives each sentence with its successor.",
        (
            "To draw another document uniformly, add a random number from 1 to N - 1 to the "
            "number of the document, and take the remainder of the division by N."
        ),
        (
            "shift = torch.randint(1, N, (), generator=generator).item(); other = "
            "documents[(number + shift) % N]; then draw the row with torch.randint(len(other), "
            "(), generator=generator).item()."
        ),
    ),
)


_WRONG_SHIFT = "torch.randint(1, N, (), generator=generator)"
_WRONG_ROW = "torch.randint(len(other), (), generator=generator).item()"

MISTAKES["pretrain.pairs"] = [
    mistake(
        "generator=generator) < 0.5",
        "generator=generator) < 2",
        "No pair is random. Half of the pairs should have a random second sentence.",
    ),
    mistake(
        "pairs.append((first, following, 0))",
        "pairs.append((first, following, 1))",
        "pairs.append((first, other[row], 1))",
        "pairs.append((first, other[row], 0))",
        "The labels are swapped: 0 means that B follows A, 1 that B is random.",
    ),
    mistake(
        _WRONG_SHIFT,
        "torch.randint(0, N, (), generator=generator)",
        "The random sentence may come from the document of A, where it can even be the successor.",
    ),
    mistake(
        "other = documents[(number + shift) % N]",
        "other = document",
        "The random sentence comes from the document of A. Draw another document.",
    ),
    mistake(
        _WRONG_ROW,
        "0",
        "The random sentence is always the first one of its document.",
    ),
    mistake(
        "other = documents[(number + shift) % N]",
        "other = documents[(number + 1) % N]",
        "The random sentence always comes from the next document. Draw the document.",
    ),
    mistake(
        "zip(document, document[1:])",
        "zip(document[::2], document[1::2])",
        "Only every second sentence is used as A. Each sentence with a successor makes a pair.",
    ),
    mistake(
        "torch.rand((), generator=generator)",
        "torch.rand(())",
        "`generator` is not used for the choice between the two cases, so pairs are not "
        "reproducible.",
    ),
]

VARIANTS["pretrain.pairs"] = [
    """
def sentence_pairs(documents, generator=None):
    def draw(n):
        return int(torch.randint(n, (1,), generator=generator))

    result = []
    for d in range(len(documents)):
        others = [k for k in range(len(documents)) if k != d]
        for i in range(len(documents[d]) - 1):
            first = documents[d][i]
            if draw(2):
                other = documents[others[draw(len(others))]]
                result.append((first, other[draw(len(other))], 1))
            else:
                result.append((first, documents[d][i + 1], 0))
    return result
""",
    """
def sentence_pairs(documents, generator=None):
    firsts = [(d, i) for d, text in enumerate(documents) for i in range(len(text) - 1)]
    coins = torch.rand(len(firsts), generator=generator)
    shifts = torch.randint(1, len(documents), (len(firsts),), generator=generator)
    rows = torch.rand(len(firsts), generator=generator)
    result = []
    for (d, i), coin, shift, row in zip(firsts, coins, shifts.tolist(), rows.tolist()):
        other = documents[(d - shift) % len(documents)]
        random = coin >= 0.5
        second = other[int(row * len(other))] if random else documents[d][i + 1]
        result.append((documents[d][i], second, int(random)))
    return result
""",
]
