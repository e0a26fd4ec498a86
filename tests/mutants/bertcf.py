"""Mutants of `minbert.exercise_cases.bertcf`: their checks must reject them all."""

from minbert.course.check_runner import mistake

MUTANTS = {}


MUTANTS["flow.bertcf"] = [
    mistake(
        "mirror_loss(flow(a)[0], flow(b)[0],",
        "mirror_loss(flow(b)[0], flow(a)[0],",
        "The views are exchanged: the rows of `a` ask, and the rows of `b` answer.",
    ),
    mistake(
        "mirror_loss(flow(a)[0], flow(b)[0],",
        "mirror_loss(flow(a)[0], flow(vectors)[0],",
        "The contrast compares the first view with the unmasked vectors; the second view is not "
        "used.",
    ),
    mistake(
        "mirror_loss(flow(a)[0], flow(b)[0],",
        "mirror_loss(flow(a)[0], b,",
        "Only one of the two views goes through the flow.",
    ),
    mistake(
        "flow.nll(vectors)",
        "flow.nll(vectors.detach())",
        "The vectors are detached; whoever wants the encoder left out detaches them before the "
        "call.",
    ),
    mistake(
        "mirror_loss(flow(a)[0], flow(b)[0],",
        "mirror_loss(flow(a.detach())[0], flow(b.detach())[0],",
        "The views are detached, so the contrast teaches the encoder nothing.",
    ),
    mistake(
        "flow.nll(vectors)",
        "flow.nll(a)",
        "The likelihood is that of the first view; that of `vectors` counts.",
    ),
    mistake(
        "flow.nll(vectors)",
        "flow.nll(torch.cat([a, b]))",
        "The likelihood is that of both views; that of `vectors` counts.",
    ),
    mistake(
        "flow.nll(vectors)",
        "flow.nll(flow(vectors)[0])",
        "The vectors go through the flow before `nll`, which sends them through once more.",
    ),
    mistake(
        "flow.nll(vectors).mean()",
        'flow.nll(vectors, "nats").mean() / vectors.shape[1]',
        "The likelihood is in nats per dimension; bits are nats by the logarithm of 2.",
    ),
    mistake(
        "flow(b)[0], temperature, groups",
        "flow(b)[0], temperature, symmetric=True, groups",
        "Both views ask; only the first one does.",
    ),
    mistake(
        "flow(b)[0], temperature, groups",
        "flow(b)[0].detach(), temperature, groups",
        "The second view is detached, so it does not teach the flow.",
    ),
    mistake(
        'return {"mirror": weight * contrast, "flow": likelihood}',
        'return {"mirror": weight * contrast, "flow": likelihood + weight * contrast}',
        "One of the parts is the sum already; the caller adds them up.",
    ),
    mistake(
        '"flow": likelihood}\n    contrast',
        '"flow": likelihood}\n    likelihood = (1 - weight) * likelihood\n    contrast',
        "The likelihood is multiplied by 1 - weight. It counts whole, whatever the weight of "
        "the contrast.",
    ),
]


MUTANTS["bertcf.forward"] = [
    mistake(
        "return self.encoder.embed(batch.tokens).chunk(batch.views)",
        "with torch.inference_mode(self.frozen):\n"
        "            return self.encoder.embed(batch.tokens).chunk(batch.views)",
        "The vectors of a frozen encoder come from inference mode. No loss can be made of such "
        "tensors, so the flow behind them could not learn.",
    ),
    mistake(
        "return self.encoder.embed",
        "self.encoder.requires_grad_(not self.frozen)\n        return self.encoder.embed",
        "`requires_grad` of the encoder's weights is set at every call; the forward should "
        "leave the weights alone.",
    ),
    mistake(
        "return self.encoder.embed",
        "self.train()\n        return self.encoder.embed",
        "The model is put into train mode, also if it is being measured.",
    ),
    mistake(
        "return self.encoder.embed(batch.tokens).chunk(batch.views)",
        "parts = zip(batch.tokens.input_ids.chunk(batch.views), "
        "batch.tokens.attention_mask.chunk(batch.views))\n"
        "        return tuple(self.encoder.embed(type(batch.tokens)(*part)) for part in parts)",
        "The encoder is run once for each view. One run over all rows gives the same vectors in "
        "fewer, larger products.",
    ),
    mistake(
        "return self.encoder.embed(batch.tokens)",
        "self.encoder.embed(batch.tokens)\n        return self.encoder.embed(batch.tokens)",
        "The encoder is run twice for one batch.",
    ),
    mistake(
        "return self.encoder.embed(batch.tokens).chunk(batch.views)",
        "vectors = self.encoder.embed(batch.tokens)\n"
        "        return tuple(self.flow(v)[0] for v in vectors.chunk(batch.views))",
        "The vectors have gone through the flow already; those before it were asked for.",
    ),
    mistake(
        ".chunk(batch.views)",
        ".chunk(2)",
        "The rows are always cut in two, however many views there are.",
    ),
    mistake(
        "return self.encoder.embed(batch.tokens).chunk(batch.views)",
        "return self.encoder.embed(batch.tokens).chunk(batch.views)[::-1]",
        "The views come back in reverse order.",
    ),
    mistake(
        "return self.encoder.embed(batch.tokens).chunk(batch.views)",
        "vectors, n = self.encoder.embed(batch.tokens), len(batch.groups)\n"
        "        return vectors[:n], vectors[n:2 * n]",
        "Only the first two views come back, however many there are.",
    ),
    mistake(
        "return self.encoder.embed(batch.tokens).chunk(batch.views)",
        "vectors, n = self.encoder.embed(batch.tokens), len(batch.groups)\n"
        "        return vectors[:n], vectors[n:]",
        "All rows behind the first view are taken for the second, however many views there are.",
    ),
    mistake(
        "return self.encoder.embed(batch.tokens).chunk(batch.views)",
        "first, *rest = self.encoder.embed(batch.tokens).chunk(batch.views)\n"
        "        return first, *(view.detach() for view in rest)",
        "Only the first view keeps its graph; all of them should.",
    ),
    mistake(
        "self.encoder.embed(batch.tokens).chunk",
        "torch.nn.functional.normalize(self.encoder.embed(batch.tokens), dim=-1).chunk",
        "The vectors are scaled to length 1. They are wanted as the encoder gives them.",
    ),
    mistake(
        ".chunk(batch.views)",
        ".chunk(batch.views, dim=1)",
        "The columns are cut. A view holds some of the rows, with all their columns.",
    ),
    mistake(
        "return self.encoder.embed(batch.tokens).chunk(batch.views)",
        "mode = self.encoder.training\n"
        "        self.encoder.train(mode and not self.frozen)\n"
        "        views = self.encoder.embed(batch.tokens).chunk(batch.views)\n"
        "        self.encoder.train(mode)\n"
        "        return views",
        "A frozen encoder works in eval mode here; its dropout should stay on, or the views are "
        "too alike.",
    ),
]


_WRONG_CALL = "bertcf_loss(model.flow, a, b, a.detach(), weight, temperature, batch.groups)"


MUTANTS["bertcf.loss"] = [
    mistake(
        "a.detach(), weight",
        "(a + b).detach() / 2, weight",
        "The likelihood is that of the mean of both views; the first one counts.",
    ),
    mistake(
        "return bertcf_loss(model.flow, a, b, a.detach(), weight, temperature, batch.groups)",
        "return sum(bertcf_loss(model.flow, a, b, a.detach(), weight, temperature, "
        "batch.groups).values())",
        "The two parts are added up. Give them back under their names; the loop adds them.",
    ),
    mistake(
        "a, b, a.detach()",
        "model.flow(a)[0], model.flow(b)[0], a.detach()",
        "The views go through the flow twice.",
    ),
    mistake(
        "a, b = model(batch)",
        "(a, b), (_, b) = model(batch), model(batch)",
        "The model is asked twice for one batch: the views come from two passes, and the work "
        "is double.",
    ),
    mistake(
        "return " + _WRONG_CALL,
        "model.flow.eval()\n        return " + _WRONG_CALL,
        "The flow is left in eval mode.",
    ),
    mistake(
        _WRONG_CALL,
        "bertcf_loss(model.flow, a, b.detach(), a.detach(), weight, temperature, batch.groups)",
        "The second view is detached in the contrast, so only one of the two teaches the encoder.",
    ),
    mistake(
        "    def loss_fn(",
        "    kept = {}\n\n    def loss_fn(",
        "temperature, batch.groups)",
        'temperature, kept.setdefault("groups", batch.groups))',
        "The groups of the first batch are kept for all that come after it.",
    ),
    mistake(
        "    def loss_fn(",
        "    calls = []\n\n    def loss_fn(",
        "        a, b = model(batch)",
        "        calls.append(1)\n        a, b = model(batch)",
        "weight, temperature, batch",
        "weight / len(calls), temperature, batch",
        "The weight of the contrast changes from call to call. It is the same for every batch.",
    ),
]
