"""Mutants of `minbert.exercise_cases.pcgrad`: their checks must reject them all."""

from minbert.course.check_runner import mistake
from minbert.exercise_cases.pcgrad import _wrong_loop

MUTANTS = {}


MUTANTS["pcgrad.weights"] = [
    mistake(
        "w[j] -= inner / gram[j, j]",
        "w[j] -= inner / gram[j, j]\n                break",
        "Only the first conflict of each task is cut; the loop ends there.",
    ),
    mistake(
        "            if inner < 0 and gram[j, j] > _FLOOR:",
        "            if gram[j, j] <= _FLOOR:\n                break\n            if inner < 0:",
        "The loop ends at a gradient of zeros; it should pass over it and go on with the others.",
    ),
    mistake(
        "gram.detach().cpu().double()",
        "gram.detach().cpu()",
        "w = torch.zeros_like(total)",
        "w = torch.zeros_like(total, dtype=gram.dtype)",
        "    return total",
        "    return total.to(gram)",
        "The weights are in the dtype of `gram`. They are asked for in double precision: cut "
        "after cut the rounding adds up.",
    ),
    mistake(
        "gram.detach().cpu()",
        "gram.cpu()",
        "The weights carry a graph. They are plain numbers: nobody differentiates the surgery.",
    ),
    mistake(
        "_orders(len(gram), generator)",
        "_orders(len(gram), generator.clone_state() if generator else None)",
        "The generator is copied and stays where it was, so every step has the same orders.",
    ),
    mistake(
        "w[j] -= inner / gram[j, j]",
        "w[i] -= inner / gram[j, j]",
        "The cut changes the weight of g_i itself. What is subtracted is a piece of g_j.",
    ),
    mistake(
        "    return total",
        "    return total / len(gram)",
        "The rows are averaged; they are to be added up.",
    ),
    mistake(
        "for i, others in _orders(len(gram), generator):",
        "for i in range(len(gram)):\n"
        "        others = torch.randperm(len(gram), generator=generator).tolist()",
        "A gradient meets itself as well (j = i). After two cuts it can work against its own "
        "original, and is cut along it.",
    ),
    mistake(
        "for i, others in _orders(len(gram), generator):",
        "order = torch.randperm(len(gram), generator=generator).tolist()\n"
        "    for i in range(len(gram)):\n"
        "        others = [j for j in order if "
        "j != i]",
        "One order is drawn for the whole call. Each task should draw its own.",
    ),
    mistake(
        "for i, others in _orders(len(gram), generator):",
        "for i in range(len(gram)):\n"
        "        others = [j for j in range(len(gram)) if j != i]\n"
        "        k = int(torch.randint(len(others), (), generator=generator)) if others else "
        "0\n"
        "        "
        "others = others[k:] + others[:k]",
        "Only the start is drawn; the others follow in a fixed circle. With four tasks that is "
        "half of the orders.",
    ),
    mistake(
        " and gram[j, j] > _FLOOR",
        "",
        "A gradient that is nearly zero is not passed over, so its direction, mere rounding, is "
        "cut out of the others.",
    ),
    mistake(
        "w = torch.zeros_like(total)\n        w[i] = 1.0",
        "w = total.clone()\n        w[i] += 1.0",
        "A task goes on from the weights of the tasks before it, where it should begin with its "
        "own gradient alone.",
    ),
    mistake(
        "for i, others in _orders(len(gram), generator):\n        w =",
        "mixtures = torch.eye(len(gram), dtype=torch.float64)\n"
        "    for i, others in _orders(len(gram), generator):\n"
        "        w =",
        "w[i] = 1.0\n        for",
        "w[i] = 1.0\n        mixtures[i] = w\n        for",
        "inner = w @ gram[j]",
        "inner = w @ gram @ mixtures[j]",
        "gram[j, j] > _FLOOR:",
        "(mixtures[j] @ gram @ mixtures[j]) > _FLOOR:",
        "w[j] -= inner / gram[j, j]\n",
        "w -= inner / (mixtures[j] @ gram @ mixtures[j]) * mixtures[j]\n"
        "                mixtures[i] = w\n",
        "The cuts run along gradients that have been cut already. They should run along the "
        "originals.",
    ),
    mistake(
        "if inner < 0 and",
        "if gram[i, j] < 0 and",
        "The test asks the original gradients, but after the first cut g_i is another vector.",
    ),
    mistake(
        "w[j] -= inner / gram[j, j]",
        "w[j] -= inner / (gram[i, i] * gram[j, j]).sqrt()",
        "The cosine is taken for the share of g_j: the overlap is divided by both lengths.",
    ),
    mistake(
        "total += w",
        "total = w",
        "Only the weights of the last task come back. Those of all are added up.",
    ),
]


MUTANTS["pcgrad.project"] = [
    _wrong_loop(
        "All overlaps are measured on the original g_i and taken out together. Each cut should "
        "see what the one before has left.",
        test="grads[i] @ other < 0",
        cut="g = g - grads[i] @ other / (other @ other) * other",
    ),
    _wrong_loop(
        "The overlap is divided by the squared length of the gradient that is cut, not of the "
        "one it is cut along.",
        cut="g = g - g @ other / (g @ g) * other",
    ),
    _wrong_loop(
        "The cosine is taken for the share of g_j: the overlap is divided by both lengths.",
        cut="g = g - g @ other / (other.norm() * g.norm()) * other",
    ),
    _wrong_loop(
        "The overlap is not divided by anything, so the cut has the right direction and the "
        "wrong length.",
        cut="g = g - g @ other * other",
    ),
    _wrong_loop(
        "The cut runs along g_i itself: it shortens the gradient and leaves its direction.",
        cut="g = g - g @ other / (other @ other) * g",
    ),
    _wrong_loop(
        "A gradient meets itself as well (j = i). After two cuts it can work against its own "
        "original, and is cut along it.",
        meets="True",
    ),
    _wrong_loop(
        "Only one of two gradients in conflict gives in. Each has to give up its part.",
        meets="j < i",
    ),
    _wrong_loop(
        "One order is drawn for the whole call. Each task should draw its own.",
        begin=(
            "total, order = torch.zeros_like(grads[0]), torch.randperm(len(grads), "
            "generator=generator).tolist()"
        ),
        order="order",
    ),
    mistake(
        "gram = gram_matrix([grads])",
        "gram = grads @ grads.T",
        "The inner products are computed in half precision: squares overflow, and what nearly "
        "cancels is lost in rounding. They should be widened to single.",
    ),
    mistake(
        "grads = grads.detach()",
        "pass",
        "The step carries a graph. It is a gradient: nobody differentiates it.",
    ),
    mistake(
        ".to(grads.dtype)",
        ".float()",
        "The step comes in single precision; it should have the dtype of the gradients.",
    ),
    mistake(
        "project_weights(gram, generator)",
        "project_weights(gram, generator.clone_state() if generator else None)",
        "The generator is copied and stays where it was, so every step has the same orders.",
    ),
    _wrong_loop(
        "The generator is not used: runs with the same seed differ.",
        order="torch.randperm(len(grads)).tolist()",
    ),
    _wrong_loop(
        "Only the first conflict of each task is cut; the loop ends there.",
        keep="\n                break",
    ),
    _wrong_loop("The result is always a mean; the sum is the default.", share="len(grads)"),
    _wrong_loop(
        "`reduction` is not used: the mean is asked for and the sum comes back.", share="1"
    ),
    _wrong_loop(
        "A constant in the denominator, there against zeros, swallows the cut when gradients "
        "are small.",
        cut="g = g - g @ other / (other @ other + 1e-8) * other",
    ),
    _wrong_loop(
        "A gradient that is nearly zero is not passed over, so its direction, mere rounding, is "
        "cut out of the others.",
        floor="True",
    ),
    _wrong_loop(
        "The loop runs in the precision of the gradients. In half precision squares overflow, "
        "so the gradients should be widened to single first."
    ),
    _wrong_loop(
        '`reduction` "mean" divides by the number of weights; a mean over tasks divides by T.',
        share='grads.shape[1] if reduction == "mean" else 1',
    ),
    _wrong_loop(
        "The last task is in no order, so nobody meets it.",
        order="torch.randperm(len(grads) - 1, generator=generator).tolist()",
    ),
    _wrong_loop(
        "A gradient of zeros is divided by its length, 0: that is NaN.",
        floor="True",
        test="True",
        cut="g = g - (g @ other / (other @ other)).clamp(max=0) * other",
    ),
    _wrong_loop(
        "Each gradient is brought back to the length it had. What is cut off stays off.",
        more="g * grads[i].norm() / g.norm()",
    ),
    _wrong_loop(
        "A gradient in conflict is dropped as a whole. Only its part against the other goes.",
        cut="g = torch.zeros_like(g)",
    ),
    _wrong_loop(
        "Only the gradient of the last task comes back; all are added up.", more="g - total"
    ),
    _wrong_loop(
        "The orders come from Python's `random`, which `generator` knows nothing of.",
        order='__import__("random").sample(range(len(grads)), len(grads))',
    ),
    _wrong_loop(
        "The order goes by the size of the conflict. It is drawn.",
        order="(grads @ grads[i]).argsort().tolist()",
    ),
    mistake(
        ".to(grads.dtype)",
        ".double()",
        "The step comes in double precision; it should have the dtype of the gradients.",
    ),
    mistake(
        "    gram = gram_matrix([grads])  # (T, T), float32 or wider\n"
        "    weights = project_weights(gram, generator)  # (T,)\n"
        '    if reduction == "mean":\n'
        "        weights = weights / len(grads)\n"
        "    return (weights.to(gram) @ grads.to(gram.dtype)).to(grads.dtype)",
        "    total = grads.sum(0)\n"
        "    for g in grads:\n"
        "        if total @ g < 0:\n"
        "            total = total - total @ g / (g @ g) * g\n"
        '    return total / (len(grads) if reduction == "mean" else 1)',
        "The sum is cut along each gradient. Each gradient gives in before it is added.",
    ),
]


MUTANTS["pcgrad.vaccine"] = [
    mistake(
        "                continue\n",
        "                break\n",
        "The loop ends at a gradient of zeros; it should pass over it and go on with the others.",
    ),
    mistake(
        "min(square_i, square_j) <= _FLOOR",
        "square_i <= _FLOOR",
        "square_i * square_j",
        "max(square_i * square_j, _FLOOR)",
        "math.sqrt(square_i / square_j)",
        "math.sqrt(square_i / max(square_j, _FLOOR))",
        "A gradient of zeros is not passed over: its target moves, and its weight grows beyond "
        "all bounds.",
    ),
    mistake(
        "gram.detach().cpu()",
        "gram.cpu()",
        "w = torch.zeros_like(total)",
        "w = torch.zeros_like(total) + 0 * gram[0]",
        "The results carry a graph. They are plain numbers: nobody differentiates the surgery.",
    ),
    mistake(
        "targets[i, j].item()",
        "max(0.0, targets[i, j].item())",
        "A target below 0 is taken for 0. Tasks that usually conflict may go on doing so.",
    ),
    mistake(
        "                targets[i, j] = (1 - beta) * r + beta * f\n",
        "                f = (w @ gram[j]).item() / math.sqrt((w @ gram @ w).item() * "
        "square_j)\n"
        "                targets[i, j] = (1 - beta) * r + beta * f\n",
        "The cosine is measured again after the turn, where it is the target itself: so no "
        "target moves down.",
    ),
    mistake(
        "math.sqrt(max(1 - r * r, 1e-12))",
        "math.sqrt(max(1 - r * r, 0))",
        "/ sin_r",
        "/ (sin_r or 1e-300)",
        "1 - r² may become 0 below the line. It is kept at 1e-12 at least.",
    ),
    mistake(
        "math.sqrt(square_i / square_j)",
        "math.sqrt(square_j / square_i)",
        "The ratio of the lengths is upside down: a short g_j then counts too little.",
    ),
    mistake(
        "math.sqrt(square_i / square_j)",
        "square_i / square_j",
        "The lengths stand in squares where the equation has plain lengths.",
    ),
    mistake(
        "(r * sin_f - f * sin_r) / sin_r",
        "(r * sin_f - f * sin_r) / sin_f",
        "The denominator has the root of the measured cosine; it should have that of the wanted "
        "one.",
    ),
    mistake(
        'if f < r or update == "all":',
        "if True:",
        "`update` is not used: targets that were met move as well.",
    ),
    mistake(
        "f = (w @ gram[j]).item() / math.sqrt(square_i * square_j)",
        "f = gram[i, j].item() / math.sqrt(gram[i, i].item() * square_j)",
        "The cosine is that of the original gradients; g_i may have been turned already.",
    ),
    mistake(
        "targets[i, j].item()",
        "targets[j, i].item()",
        "The target is read the wrong way round. Row i holds what task i wants with the others.",
    ),
    mistake(
        "targets[i, j] = (1 - beta) * r + beta * f",
        "targets[i, j] = targets[j, i] = (1 - beta) * r + beta * f",
        "The target of j with i is moved along with that of i with j. The two are kept apart.",
    ),
    mistake(
        "            if f < r:\n",
        "            r = (1 - beta) * r + beta * f\n            if f < r:\n",
        "targets[i, j] = (1 - beta) * r + beta * f",
        "targets[i, j] = r",
        "The target is moved before it is used, so the gradient is held against its own newest "
        "cosine.",
    ),
    mistake(
        "(1 - beta) * r + beta * f",
        "r + beta * f",
        "The old target enters whole, so the next one grows step by step. It is a mean of the two.",
    ),
    mistake(
        "targets[i, j] = (1 - beta)",
        "targets[j, i] = (1 - beta)",
        "The target of j with i is moved, in the place of that of i with j.",
    ),
]
