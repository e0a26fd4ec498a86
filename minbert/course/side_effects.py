"""Recording the side effects of calls: seeds, settings, module modes, frozen weights, graphs, and
values kept between calls.

Right results can come from a function that sets a seed or caches a mask by its shape. Neither shows
in one call and one look at the result, so each call is observed, and before some cases a call with
other numbers of the same shapes is made.
"""

__all__ = [
    "BEHIND",
    "DRAW",
    "BESIDE",
    "DTYPES",
    "KEPT",
    "SAYS",
    "changed_tensors",
    "perturbed",
    "shorter",
    "weights_shaken",
    "behind",
    "dtype_problem",
    "leaves",
    "seeded",
    "settings_kept",
    "SideEffectRecorder",
    "watched",
    "spare_the_compiler",
]

import functools
import inspect
import random
import types
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import islice
from operator import eq
from unittest.mock import patch

import numpy as np
import torch
from torch import Tensor, nn


def changed_tensors(change: Callable, x):
    """Change the tensors in nested lists, tuples and dicts, and copy the generators."""
    if isinstance(x, Tensor):
        return change(x)
    if isinstance(x, torch.Generator):
        return x.clone_state()
    if isinstance(x, dict):
        return {name: changed_tensors(change, value) for name, value in x.items()}
    if isinstance(x, tuple) and hasattr(x, "_fields"):
        return type(x)(*(changed_tensors(change, value) for value in x))
    return type(x)(changed_tensors(change, value) for value in x) if type(x) in (list, tuple) else x


def perturbed(x):
    """Other numbers in the same shape: fractions turned round and a quarter smaller, rows of whole
    numbers in another order, generators copied; nested too.
    """
    return changed_tensors(_other, x)


def shorter(x, axis: int):
    """Other numbers, and one less along an axis: of the first tensor that has the axis, and of all
    others of that size there.
    """
    sizes = [y.shape[axis] for y in leaves(x) if isinstance(y, Tensor) and y.ndim > axis]
    size = sizes[0] if sizes else 1

    def cut(y):
        at = next(
            (
                k
                for k in {axis, y.ndim - 1 if y.ndim == 1 else axis}
                if y.ndim > k and y.shape[k] == size
            ),
            None,
        )
        return (
            _other(y)
            if at is None
            else _other(y).narrow(at, 0, size - 1).detach().clone().requires_grad_(y.requires_grad)
        )

    return changed_tensors(cut, x) if size > 1 else x


def _other(x: Tensor) -> Tensor:
    if x.is_floating_point():
        return (0.75 * x.detach().flip(tuple(range(x.ndim)))).requires_grad_(x.requires_grad)
    return x.flip(0 if len(x) > 1 else -1) if x.ndim else x.clone()


@contextmanager
def weights_shaken(module) -> Iterator[None]:
    """Make all weights a quarter smaller, and put them back."""
    weights = list(module.parameters()) if isinstance(module, nn.Module) else []
    before = [w.detach().clone() for w in weights]
    try:
        for w in weights:
            w.data.mul_(0.75)  # of `data`, so that a graph that holds the weight does not notice
        yield
    finally:
        for w, old in zip(weights, before):
            w.data.copy_(old)


BEHIND, DRAW, BESIDE, DTYPES, KEPT = (
    "left behind: {}",
    "a draw",
    "a draw beside the generator given",
    "dtypes",
    "something kept for the next call",
)
_DTYPES = [
    torch.float16,
    torch.bfloat16,
    torch.float32,
    torch.float64,
    torch.int64,
    torch.int32,
    torch.int16,
    torch.int8,
    torch.uint8,
    torch.bool,
]

# what it means: (where only the answer does it, where only the reference does it); None: no harm
SAYS = {
    "a seed": (
        "your code sets the seed of torch's global generator: whoever draws after it draws the same numbers every time",
        None,
    ),
    DRAW: (
        "your code draws from torch's global generator, where nothing should be drawn from it",
        "nothing is ever drawn from torch's global generator, which stands in where no other is given",
    ),
    "a draw from the generator given": (None, "the generator that was given is not used"),
    BESIDE: (
        "your code draws from torch's global generator although a generator was given, which belongs into every draw",
        None,
    ),
    "an input with gradients off": (
        "your code changes a tensor that it was given; this happens where gradients are switched off",
        None,
    ),
    "a graph": (
        "the result carries a graph, so it keeps all it was made from alive; it should be plain numbers",
        None,
    ),
    "a mode": ("a module is left in another mode (train or eval) than it was found in", None),
    "a frozen or thawed weight": (
        "requires_grad of some weights is another than before the call",
        None,
    ),
    # harmless by itself; it explains wrong numbers
    KEPT: (None, None),
    "gradients on or off": (
        "your code switches gradients on or off for all that comes after it",
        None,
    ),
    "a default dtype": ("your code sets torch's default dtype for all that comes after it", None),
    "numpy's errors": (
        "your code sets what numpy does about errors for all that comes after it",
        None,
    ),
    "a filter of warnings": ("your code filters warnings for all that comes after it", None),
}


def behind(name: str, expected: Tensor, got: Tensor) -> str | None:
    """Compare what the calls of reference and answer left behind; None if that does no harm.

    One program draws where another sees that there is nothing to draw. So draws are compared over
    all cases, the rest in each.
    """
    if expected.dtype != torch.bool or got.dtype != torch.bool:
        return "expected truth values"
    # so many calls more or less: what happened at all
    if expected.shape != got.shape:
        expected, got = expected.any(), got.any()
    extra, lacking = SAYS[name]
    return (
        extra
        if extra and (got & ~expected).any()
        else lacking
        if lacking and (expected & ~got).any()
        else None
    )


def dtype_problem(
    promise: str,  # "as the reference", or "float32 or wider"
    expected: Tensor,  # numbers of dtypes, of the reference
    got: Tensor,
) -> str | None:
    """Compare the dtypes of all results with what a docstring promises."""
    if (
        expected.dtype != torch.int64
        or got.dtype != torch.int64
        or not all(0 <= k < len(_DTYPES) for k in got.tolist())
    ):
        return "expected numbers of dtypes"
    wide = [_DTYPES.index(torch.float32), _DTYPES.index(torch.float64)]
    allowed = set(expected.tolist()) | (set(wide) if promise == "float32 or wider" else set())
    if got.shape == expected.shape and promise != "float32 or wider":
        pairs = zip(expected.tolist(), got.tolist())
        wrong = next(((a, b) for a, b in pairs if a != b), None)
    else:
        wrong = next(((min(allowed), b) for b in got.tolist() if b not in allowed), None)
    if wrong is None:
        return None
    wanted = (
        promise if promise == "float32 or wider" else f"{_DTYPES[wrong[0]]}".removeprefix("torch.")
    )
    return f"the dtype of the result is {_DTYPES[wrong[1]]}, where the docstring promises {wanted}".replace(
        "torch.", ""
    )


def leaves(
    tree,  # nested lists, tuples and dicts
) -> Iterator:
    """Walk through what is no list, tuple or dict."""
    if isinstance(tree, (list, tuple, dict)):
        for part in tree.values() if isinstance(tree, dict) else tree:
            yield from leaves(part)
    else:
        yield tree


def _modules(tree) -> list[nn.Module]:
    """List the modules among some arguments, also those that a function holds."""
    held = [y for x in leaves(tree) for y in (x, getattr(x, "__self__", None), *_closed_over(x))]
    return [y for y in held if isinstance(y, nn.Module)]


def _closed_over(x) -> tuple:
    return (
        tuple(inspect.getclosurevars(x).nonlocals.values())
        if isinstance(x, types.FunctionType) and x.__closure__
        else ()
    )


def _wide(warned: tuple) -> bool:
    """Does a filter of warnings hold for any text, any module and a kind of Python's own? An import
    may leave others.
    """
    _, text, kind, module, _ = warned
    return text is None and module is None and kind.__module__ == "builtins"


def _set_filters(old: list[tuple]) -> None:
    warnings.resetwarnings()
    warnings.filters[:] = old


_SETTINGS = {  # of the whole process: how to read it, how to set it, whether two are the same
    "gradients on or off": (torch.is_grad_enabled, torch.set_grad_enabled, eq),
    "a default dtype": (torch.get_default_dtype, torch.set_default_dtype, eq),
    "numpy's errors": (np.geterr, lambda old: np.seterr(**old), eq),
    "a filter of warnings": (
        lambda: list(warnings.filters),
        _set_filters,
        lambda a, b: list(filter(_wide, a)) == list(filter(_wide, b)),
    ),
}


@contextmanager
def seeded(
    seed: int,
) -> Iterator[None]:
    """Seed the generators of torch, NumPy and Python for a block, and put their states back
    afterwards.

    torch.manual_seed would move CUDA's generators, too.
    """
    numpys, pythons = np.random.get_state(), random.getstate()
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        np.random.seed(seed % 2**32)
        random.seed(seed)
        try:
            yield
        finally:
            np.random.set_state(numpys)
            random.setstate(pythons)


@contextmanager
def settings_kept() -> Iterator[dict[str, bool]]:  # filled at the end: which of them were changed
    """Put back the settings of the process that a block changes."""
    before, changed = {name: read() for name, (read, _, _) in _SETTINGS.items()}, {}
    try:
        yield changed
    finally:
        for name, (read, write, same) in _SETTINGS.items():
            changed[name] = not same(before[name], read())
            if changed[name]:
                write(before[name])


@contextmanager
def _seeds_heard() -> Iterator[list]:
    """List the seeds and states that a block sets in torch's global generator. A state that it took
    there itself may be put back.
    """
    heard = []
    taken = []
    torchs = {
        name: getattr(torch, name)
        for name in ("manual_seed", "seed", "get_rng_state", "set_rng_state")
    }

    def manual_seed(seed):
        heard.append(seed)
        return torchs["manual_seed"](seed)

    def seed():
        heard.append(torchs["seed"]())
        return heard[-1]

    def get_rng_state():
        taken.append(torchs["get_rng_state"]())
        return taken[-1].clone()

    def set_rng_state(new_state):
        heard.extend([] if any(torch.equal(new_state, one) for one in taken) else [new_state])
        torchs["set_rng_state"](new_state)

    ours = {
        "manual_seed": manual_seed,
        "seed": seed,
        "get_rng_state": get_rng_state,
        "set_rng_state": set_rng_state,
    }
    first = torch.initial_seed()
    with patch.multiple(torch, **ours), patch.multiple(torch.random, **ours):
        yield heard
    # past all four: `torch.default_generator.manual_seed`
    heard.extend([torch.initial_seed()] if torch.initial_seed() != first else [])


class SideEffectRecorder:
    """Note what calls leave behind, one line a call."""

    def __init__(self, tape=None):
        self.tape = tape  # of all results, if they are to be repeated
        self.lines = []
        self.dtypes = []  # of all results, as numbers of `_DTYPES`
        self.none = False  # the last call gave back None
        self.inside = False  # a call within a call is its own affair
        self.memory = dict  # what the function can find again at its next call, see `_memory`
        self.wrote = False  # a rehearsal with gradients off changed what it was given

    def call(self, function: Callable, args: tuple, kwargs: dict):
        """Call, and note. What fails leaves no line."""
        models = _modules((args, kwargs))
        generators = [x for x in leaves((args, kwargs)) if isinstance(x, torch.Generator)]

        def look():
            return (
                [m.training for top in models for m in top.modules()],
                [p.requires_grad for m in models for p in m.parameters()],
            )

        def rolls():
            return [g.get_state() for g in (torch.default_generator, *generators)]

        before, thrown = look(), rolls()
        given = [x for x in leaves((args, kwargs)) if isinstance(x, Tensor)] if self.tape else []
        copies, memory = [x.detach().clone() for x in given], self.memory()

        self.inside = True
        try:
            with settings_kept() as changed, _seeds_heard() as heard:
                result = function(*args, **kwargs)
                self.none = result is None
        finally:
            self.inside = False
        moved = [not torch.equal(a, b) for a, b in zip(thrown, rolls())]
        after = look()
        line = {
            "a seed": bool(heard),
            DRAW: moved[0],
            "a draw from the generator given": any(moved[1:]),
            BESIDE: moved[0] and len(moved) > 1,
            "an input with gradients off": self.wrote,
            KEPT: memory != self.memory(),
            "a graph": any(isinstance(x, Tensor) and x.requires_grad for x in leaves(result)),
            "a mode": before[0] != after[0],
            "a frozen or thawed weight": before[1] != after[1],
            **changed,
        }
        self.lines.append(line)
        self.dtypes += [
            _DTYPES.index(x.dtype)
            for x in leaves(result)
            if isinstance(x, Tensor) and x.dtype in _DTYPES
        ]
        if self.tape:
            self.tape.record(given, copies, result, moved)
        return result

    def outputs(self) -> dict[str, Tensor]:
        """Say for each of them in which calls it happened."""
        if not self.lines:
            return {}
        seen = {
            BEHIND.format(name): torch.tensor([line[name] for line in self.lines]) for name in SAYS
        }
        return seen | {BEHIND.format(DTYPES): torch.tensor(self.dtypes, dtype=torch.int64)}


def _rehearse(function: Callable, args: tuple, kwargs: dict) -> bool:
    """Call with one row and one column less, with one row less, and twice with other numbers, and
    leave torch's global generator and all settings as they were.

    The last call has gradients off. Tells whether it changed a tensor that it was given.
    """
    with (
        torch.random.fork_rng(devices=[]),
        settings_kept(),
        weights_shaken(args[0] if args else None),
    ):
        fewer = shorter((args, kwargs), 0)
        for given in (shorter(fewer, 1), fewer):
            _call_once(function, given)
        _call_once(function, perturbed((args, kwargs)))
        with torch.no_grad():
            given = perturbed((args, kwargs))
            before = [x.detach().clone() for x in leaves(given) if isinstance(x, Tensor)]
            _call_once(function, given)
    after = [x.detach() for x in leaves(given) if isinstance(x, Tensor)]
    return not all(
        a.shape == b.shape and torch.equal(a.nan_to_num(), b.nan_to_num())
        for a, b in zip(before, after)
    )


def _call_once(function: Callable, given: tuple[tuple, dict]) -> None:
    """Call, whatever comes of it."""
    torch.default_generator.manual_seed(7)
    try:
        result = function(*given[0], **given[1])
        list(islice(result, 8)) if isinstance(result, Iterator) else None
    except Exception:
        pass


def _memory(function: Callable, kind: type | None) -> dict[tuple, tuple]:
    """Note what outlives a call: default arguments, attributes of the function and of its class,
    and the names outside that it uses.

    Of each the identity, and of a list, dict or set the length.
    """
    function = inspect.unwrap(function)
    if not isinstance(function, types.FunctionType):
        return {}
    outside = {
        name: function.__globals__[name]
        for name in function.__code__.co_names
        if name in function.__globals__
    }
    held = [
        outside,
        function.__dict__,
        dict(enumerate(function.__defaults__ or ())),
        function.__kwdefaults__ or {},
        *map(vars, kind.__mro__ if kind else ()),
    ]

    def note(x):
        return (id(x), len(x) if type(x) in (list, dict, set) else 0)

    return {(k, name): note(x) for k, names in enumerate(held) for name, x in list(names.items())}


def _looked_up(own) -> Callable:
    """Make a function of an attribute of a class that is none: what Python finds through an object
    is called.
    """
    return lambda who, *args, **kwargs: (
        own.__get__(who, type(who)) if hasattr(own, "__get__") else own
    )(*args, **kwargs)


def watched(
    implementation,  # function, or class that holds the method
    method: str,  # name of the method; "" for a function
    witness: SideEffectRecorder,
    again: bool = False,  # a few calls with other numbers before the first of each object
):  # the same, under watch
    """Put a witness between whoever calls and the implementation, whatever it is that can be
    called.
    """
    own = inspect.getattr_static(implementation, method, None) if method else implementation
    if method and not (
        isinstance(implementation, type) and callable(getattr(implementation, method, None))
    ):
        return implementation
    function = _looked_up(own) if method and not isinstance(own, types.FunctionType) else own
    met = []
    witness.memory = functools.partial(_memory, function, implementation if method else None)

    @functools.wraps(function)
    def seen(*args, **kwargs):
        if witness.inside:
            return function(*args, **kwargs)
        who = args[0] if method and args else None
        # what was read is gone
        once = any(isinstance(x, Iterator) for x in leaves((args, kwargs)))
        if again and not once and not any(who is one for one in met):
            met.append(who)
            witness.inside = True
            try:
                witness.wrote = _rehearse(function, args, kwargs)
            finally:
                witness.inside = False
        return witness.call(function, args, kwargs)

    return (
        type(implementation)(implementation.__name__, (implementation,), {method: seen})
        if method
        else seen
    )


def spare_the_compiler() -> None:
    """Tell torch's optimizers that nobody compiles them, so that the first one made does not import
    the compiler, which takes seconds.
    """
    for function in vars(torch.optim.Optimizer).values():
        inner = getattr(function, "__wrapped__", None)
        if inner is not None and not hasattr(inner, "__dynamo_disable"):
            # what `torch._compile` would put there itself after the import
            setattr(inner, "__dynamo_disable", inner)
