"""What all explorers share: a picture, the controls that change it, and a page that asks for the
next one.

An explorer is a drawing function with named settings. In a notebook the controls are drawn by
`assets/explore/explorer.js` (anywidget, so ipywidgets 7.6 and newer, Colab and VS Code); the kernel
answers each move with a picture. On a page without a kernel the same script takes its answers from
frames drawn beforehand. What travels is a message, never the widget's state: a saved notebook holds
no picture twice.
"""

from __future__ import annotations

import base64
import gc
import io
import math
import threading
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from functools import cached_property
from importlib.resources import files

from minbert.core.figures import compact

__all__ = [
    "BESIDE",
    "Control",
    "Explorer",
    "choice",
    "colour_scale",
    "name_cells",
    "pick",
    "places",
    "plain_ticks",
    "point",
    "slider",
    "span",
    "switch",
    "text",
    "words",
]

# points from the end of an arrow to its name: outside the handle, which is 26 pixels wide, where
# the picture is shown at .55 of its size or more
BESIDE = 17


@dataclass(frozen=True)
class Control:
    """One setting that a hand can change."""

    name: str  # of the setting
    kind: str  # "slider", "span", "choice", "text", "switch", "words", "point" or "pick"
    label: str  # what a screen reader says
    # a number, (low, high), a string, a bool, places of words, (x, y), or (panel, x, y) or None
    default: object
    help: str  # one sentence: which quantity this is, its unit, what to watch
    # what the kind needs: low, high, step; choices; panel
    bounds: dict = field(default_factory=dict)

    def checked(self, value):  # what JSON or a caller gave -> a value of the right kind
        """Refuse what this control could not have been moved to. Raises ValueError that names the
        setting.
        """
        return _CHECKS[self.kind](self, value)


def slider(name, default, low, high, step, *, label=None, help=""):
    """A number between low and high."""
    return Control(
        name, "slider", label or name, default, help, {"low": low, "high": high, "step": step}
    )


def span(name, default, low, high, step, *, label=None, help=""):
    """Two numbers in order."""
    return Control(
        name, "span", label or name, tuple(default), help, {"low": low, "high": high, "step": step}
    )


def choice(name, default, choices, *, label=None, help=""):
    """One of a few strings."""
    return Control(name, "choice", label or name, default, help, {"choices": [*choices]})


def text(name, default, *, label=None, help=""):
    """A line that somebody types."""
    return Control(name, "text", label or name, default, help)


def switch(name, default=False, *, label=None, help=""):
    """On or off."""
    return Control(name, "switch", label or name, default, help)


def words(name, default=(), *, label=None, help=""):
    """Which words of a line are pressed, by their places; the words themselves come with each
    answer, see `Explorer._words`.
    """
    return Control(name, "words", label or name, tuple(default), help, {"most": 64})


def point(name, default, *, panel=0, low=(-1, -1), high=(1, 1), step=0.05, label=None, help=""):
    """A handle on the picture, dragged in the coordinates of one panel."""
    return Control(
        name,
        "point",
        label or name,
        tuple(default),
        help,
        {"panel": panel, "low": low, "high": high, "step": step},
    )


def pick(name, *, panel=0, label=None, help=""):
    """A place on the picture that somebody clicks: (panel, x, y), or None."""
    return Control(name, "pick", label or name, None, help, {"panel": panel})


def _number(control, value):
    low, high = control.bounds["low"], control.bounds["high"]
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not low <= value <= high:
        raise ValueError(f"expected {control.name} in [{low:g}, {high:g}], got {value!r}")
    whole = all(isinstance(part, int) for part in (low, high, control.bounds["step"]))
    return int(value) if whole and value == int(value) else value


def _listed(control, value, size=None):
    """Make sure that a value is a list, where a size is given of so many finite numbers."""

    def number(part):
        return isinstance(part, (int, float)) and not isinstance(part, bool) and math.isfinite(part)

    if (
        not isinstance(value, (list, tuple))
        or size
        and (len(value) != size or not all(map(number, value)))
    ):
        raise ValueError(
            f"expected {f'{size} numbers' if size else 'a list'} as {control.name}, got {value!r}"
        )
    return value


def _span(control, value):
    low, high = (_number(control, part) for part in _listed(control, value, 2))
    if not low <= high:
        raise ValueError(
            f"expected {control.name} (low, high) with low <= high, got {low} and {high}"
        )
    return low, high


def _choice(control, value):
    if value not in control.bounds["choices"]:
        raise ValueError(
            f"expected {control.name} among {', '.join(control.bounds['choices'])}, got {value!r}"
        )
    return value


def _text(control, value):
    if not isinstance(value, str):
        raise ValueError(f"expected a line of text as {control.name}, got {type(value).__name__}")
    return value[:500]


def _switch(control, value):
    if not isinstance(value, bool):
        raise ValueError(f"expected True or False as {control.name}, got {value!r}")
    return value


def _words(control, value):
    most = control.bounds["most"]
    if not all(
        isinstance(place, int) and not isinstance(place, bool) and 0 <= place < most
        for place in _listed(control, value)
    ):
        raise ValueError(
            f"expected places of words in [0, {most}) as {control.name}, got {value!r}"
        )
    return tuple(sorted(set(value)))


def _point(control, value):
    bounds = zip(_listed(control, value, 2), control.bounds["low"], control.bounds["high"])
    if not all(low <= part <= high for part, low, high in bounds):
        raise ValueError(
            f"expected {control.name} between {control.bounds['low']} and {control.bounds['high']}, got {value!r}"
        )
    return tuple(float(part) for part in value)


def _pick(control, value):
    if value is None:
        return None
    panel, x, y = _listed(control, value, 3)
    return int(panel), float(x), float(y)


_CHECKS = {
    "slider": _number,
    "span": _span,
    "choice": _choice,
    "text": _text,
    "switch": _switch,
    "words": _words,
    "point": _point,
    "pick": _pick,
}


def places(
    figure,
    # a dict a panel: left, bottom, width, height in shares of the picture, x and y limits
) -> list[dict]:
    """Say where the panels of a drawn figure are, so that a page can turn a place on the picture
    into coordinates.
    """
    return [
        {
            "box": [float(part) for part in axes.get_position().bounds],
            "x": [float(part) for part in axes.get_xlim()],
            "y": [float(part) for part in axes.get_ylim()],
        }
        for axes in figure.axes
        if hasattr(axes, "get_xlim") and axes.name == "rectilinear"
    ]


class Explorer:
    """A picture with controls; a move of a control draws the picture again.

    A subclass defines `_controls()` (-> list of Control) and `_draw(**settings)` (-> Axes or
    Figure). It may define `_describe(**settings)` (-> str, read out beside the picture),
    `_words(**settings)` (-> names of such controls: the words to press), `_spots(**settings)` (->
    list of (panel, left, right, bottom, top, text) to hover over), `_settled(**settings)` (-> name
    -> value: where controls go back to that stand beyond what there is to show),
    `_idle(**settings)` (-> names of the controls that change nothing now: the page hides them, and
    takes no click) and `_prepare(rounds, **settings)` (-> bool), for what takes long: pictures are
    drawn of what there is, until all is there. As last line of a cell it shows itself, with
    ipywidgets 7.6 or newer.
    """

    title = "Explorer"

    @cached_property
    def controls(self) -> dict[str, Control]:  # name -> control
        """The controls, in the order in which they stand above the picture."""
        return {control.name: control for control in self._controls()}

    @property
    def defaults(self) -> dict:  # name -> value
        """Where the controls stand at first."""
        return {name: control.default for name, control in self.controls.items()}

    def _checked(self, settings):
        if unknown := settings.keys() - self.controls.keys():
            raise ValueError(
                f"expected settings among {', '.join(self.controls)}, got {', '.join(sorted(unknown))}"
            )
        return self.defaults | {
            name: self.controls[name].checked(value) for name, value in settings.items()
        }

    def figure(
        self,
        narrow=False,  # for a phone: panels one above the other
        **settings,  # any of `defaults`, to change it
    ):  # matplotlib Figure, closed: it is shown once and never kept
        """Draw the picture without controls.

        Raises ValueError for a setting that does not exist, or a value out of range.
        """
        settings = self._checked(settings)
        self._prepare(None, **settings)
        return self._figure(narrow, settings)

    def _figure(self, narrow, settings):
        import matplotlib.pyplot as plt

        before = plt.get_fignums()
        try:
            # a dollar sign in somebody's words begins no formula
            with compact(narrow), plt.rc_context({"text.parse_math": False}):
                drawn = self._draw(**settings)
            return _powers_in_digits(drawn if hasattr(drawn, "savefig") else drawn.figure)
        finally:  # also after an error
            for number in set(plt.get_fignums()) - set(before):
                plt.close(number)

    def describe(self, **settings) -> str:
        """Say in words what the picture shows: its alternative text, and the line under it."""
        settings = self._checked(settings)
        self._prepare(None, **settings)
        return self._describe(**settings)

    def _prepare(self, rounds, **settings):  # -> whether all is there
        """Do so many short rounds of the long work behind a picture; None: all of it."""
        return True

    def _describe(self, **settings):
        return ", ".join(
            f"{self.controls[name].label} {value}"
            for name, value in settings.items()
            if value not in (None, "")
        )

    def _spots(self, **settings):
        return []

    def _idle(self, **settings):
        return []

    def _words(self, **settings):
        return {}

    def _settled(self, **settings):
        return {}

    def png(self, narrow=False, ratio=1.0, **settings) -> bytes:
        """Draw the picture as a PNG file, lightly compressed, since a move should not wait for
        that.
        """
        return _written(self.figure(narrow, **settings), ratio)

    def answer(
        self,
        values: dict,  # of the controls, as a page sends them
        narrow: bool = False,  # for a phone: panels one above the other
        ratio: float = 1.0,  # pixels of the screen to a point
        rounds: int | None = None,  # of long work that may be done first; None: all of it
        # {"places", "text", "spots", "idle", "words", "ready", and "values" if some are others} or
        # {"error"}, and the picture
    ) -> tuple[dict, bytes]:
        """Answer one move. A value that is refused is answered with the reason; the picture before
        stays.

        Where the answer is not "ready", its picture is one of unfinished work: ask again with a
        round or more.
        """
        try:
            settings = self._checked(values)
            ready = self._prepare(rounds, **settings)
            figure = self._figure(narrow, settings)
        except ValueError as error:
            return {"error": str(error)}, b""
        picture = _written(figure, ratio)  # drawn, so its panels are where they will be
        content = {
            "ready": ready,
            "places": places(figure),
            "text": self._describe(**settings),
            "spots": self._spots(**settings),
            "idle": self._idle(**settings),
            "words": self._words(**settings),
        }
        return content | (
            {"values": moved} if (moved := self._settled(**settings)) else {}
        ), picture

    @property
    def spec(self) -> dict:  # JSON
        """All that a page needs to draw the controls."""
        return {
            "title": self.title,
            "controls": [asdict(control) for control in self.controls.values()],
        }

    @cached_property
    def view(self):  # anywidget.AnyWidget
        """Put the controls above the picture, in a page that has a kernel."""
        return _widget(self)

    @property
    def settings(self) -> dict:  # name -> value
        """Say where the controls stand."""
        return self._checked(dict(self.view.values))

    def set(self, **settings) -> None:
        """Move controls from the program. Raises ValueError as `figure` does."""
        self._checked(settings)
        self.view.values = {**self.view.values, **settings}

    def _repr_mimebundle_(self, include=None, exclude=None):
        """Show the controls; where there are none (a page without a kernel), the picture and what
        it shows.
        """
        live = {"version_major": 2, "version_minor": 0, "model_id": self.view.model_id}
        settings = self.settings
        return {
            "application/vnd.jupyter.widget-view+json": live,
            "image/png": base64.b64encode(self.png(**settings)).decode(),
            "text/plain": f"{self.title}: {self._describe(**settings)}",
        }


def _powers_in_digits(figure):
    """Number logarithmic axes without formulas, since these are not read."""
    from matplotlib.ticker import FuncFormatter, LogFormatter, LogFormatterMathtext

    for axis in (axis for axes in figure.axes for axis in (axes.xaxis, axes.yaxis)):
        if isinstance(axis.get_major_formatter(), LogFormatterMathtext):
            axis.set(
                major_formatter=FuncFormatter(lambda power, _: f"{power:g}".removeprefix("0")),
                minor_formatter=LogFormatter(labelOnlyBase=False),
            )
    return figure


def _written(figure, ratio):
    from matplotlib import rc_context

    file = io.BytesIO()
    # to fit letters to the pixels takes a fifth of the time
    with rc_context({"text.hinting": "no_hinting"}):
        figure.savefig(
            file,
            format="png",
            dpi=100 * min(max(float(ratio), 1.0), 2.0),
            pil_kwargs={"compress_level": 1},
        )
    return file.getvalue()


def asset(name: str) -> str:
    """Read the script or the style of the controls."""
    return (files("minbert") / "assets" / "explore" / name).read_text(encoding="utf-8")


@contextmanager
def _at_once():
    """Answer a hand without detours.

    One thread: products of this size wait longer for a second, where a page draws on the other
    core, than it helps. And Python collects what a picture leaves behind when it is sent, and only
    that: a walk through all that torch and a notebook hold takes .3 s.
    """
    import torch

    collects, threads = gc.isenabled(), torch.get_num_threads()
    gc.disable()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)
        if collects:
            gc.enable()
            gc.collect(0)  # the young: figures are circles, and would grow old


def _widget(explorer):
    import anywidget
    import traitlets

    class View(anywidget.AnyWidget):
        _esm, _css = asset("explorer.js"), asset("explorer.css")
        spec, values = traitlets.Dict().tag(sync=True), traitlets.Dict().tag(sync=True)

    view, drawing = View(spec=explorer.spec, values=explorer.defaults), threading.Lock()

    def answer(_, message, buffers):
        with drawing, _at_once():
            content, picture = explorer.answer(
                message["values"],
                message.get("narrow", False),
                message.get("ratio", 1),
                message.get("rounds", 0),
            )
            view.send({"number": message["number"], **content}, [picture])
        if "error" not in content:
            view.values = message["values"] | content.get("values", {})

    view.on_msg(answer)
    return view


def colour_scale(image, ticks, names=None) -> None:
    """Show what the colours of a picture mean: a strip at its right with a few numbers. A colour
    bar would be a panel of its own, which takes .02 s to make.
    """
    ax, (low, high) = image.axes, image.get_clim()
    box, limits = ax.get_position(), ax.axis()
    ax.set_position([box.x0, box.y0, 0.9 * box.width, box.height])
    ax.imshow(
        [[low + (high - low) * part / 99] for part in range(100)],
        cmap=image.cmap,
        alpha=image.get_alpha(),
        vmin=low,
        vmax=high,
        origin="lower",
        aspect="auto",
        clip_on=False,
        extent=(1.03, 1.06, 0, 1),
        transform=ax.transAxes,
    )
    ax.axis(limits)  # the strip lies outside
    for tick, name in zip(ticks, names or [f"{tick:.2g}" for tick in ticks]):
        ax.text(
            1.075,
            (tick - low) / (high - low),
            name,
            transform=ax.transAxes,
            fontsize=8,
            va="center",
        )


def plain_ticks(axis, places, names=None) -> None:
    """Name a few places of a logarithmic axis: powers of ten are slow to typeset, and a move should
    not wait for that.
    """
    from matplotlib.ticker import NullLocator

    axis.set_minor_locator(NullLocator())
    axis.set_ticks(places, names or [f"{place:g}" for place in places])


def name_cells(ax, columns=(), rows=()) -> None:
    """Write a name under each column and beside each row, 0, 1, …: a word takes a third of the time
    of a tick with its marks and label.
    """
    if columns:
        ax.set_xticks([])
        ax.xaxis.labelpad = 16  # points: room for the names
    if rows:
        ax.set_yticks([])
        ax.set_ylabel("")  # names say what stands there, and need the room
    for place, name in enumerate(columns):
        ax.text(
            place,
            -0.02,
            name,
            transform=ax.get_xaxis_transform(),
            ha="center",
            va="top",
            fontsize=8,
        )
    for place, name in enumerate(rows):
        ax.text(
            -0.02,
            place,
            name if len(name) < 11 else name[:9] + "…",
            transform=ax.get_yaxis_transform(),
            ha="right",
            va="center",
            fontsize=8,
        )
