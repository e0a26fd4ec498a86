"""Explorers on a site without a kernel: the numbers or pictures that they are drawn from, their
places in the chapters, and one page of all.

An explorer gets a place of its own where a chapter has a cell `name = ItsClass(…)` and below it one
that only says `name`. To add one, add a line to `EXPLORERS`; a module that is not there is left
out. Without `data` or `grid` the site shows its picture, and a kernel moves it.
"""

import base64
import io
import json
import posixpath
import re
from collections.abc import Callable
from dataclasses import asdict, replace
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from itertools import product
from pathlib import Path
from typing import NamedTuple

from site_chapters import Chapter, chapters, link

from minbert.course.learner_notebooks import directives
from minbert.explorers.base import Control, Explorer, asset, choice, pick, point, slider, span

SENTENCES = [
    ("A man is playing a guitar.", "Somebody plays an instrument."),
    ("A man is playing a guitar.", "A woman is slicing an onion."),
    ("A man is playing a guitar.", "A man is not playing a guitar."),
    ("A dog runs on the beach.", "A puppy is running along the shore."),
    ("A dog runs on the beach.", "A cat runs on the beach."),
]
TOP = 20  # directions that can be removed
COLOURS = 48  # of a frame


class Shown(NamedTuple):
    """One explorer of the package."""

    name: str  # of its file on the site
    place: str  # module and class below minbert
    says: str  # what a hand can find out with it
    more: str = ""  # what only a kernel can do
    # its controls on the site, and {"data": what site/static/drawings.js draws from}
    data: Callable[[], tuple[list[Control], dict]] | None = None
    # name of a control -> values: one picture is drawn for each combination; several such grids,
    # which have controls of their own
    grid: dict | Callable[[Explorer], list[dict]] | None = None
    # page -> `data` of a chapter that shows other models than the rest
    own: dict[str, Callable[[], tuple[list[Control], dict]]] = {}

    @property
    def kind(self) -> type[Explorer]:
        """The class."""
        module, _, name = self.place.rpartition(".")
        return getattr(import_module("minbert." + module), name)


@cache
def models() -> tuple:  # name -> encoder, graded pairs
    """Load the models of `minbert.explorers.embedding_explorers`, with their control, and its pairs."""
    import torch

    from minbert.data import load_dataset
    from minbert.encoder import BertModel
    from minbert.encoding.embedding_cache import Remembered
    from minbert.sentence import SentenceEncoder

    before = SentenceEncoder.from_pretrained(device="cpu")
    after = SentenceEncoder.from_pretrained("embedded-sentences", device="cpu")
    torch.manual_seed(0)
    untrained = SentenceEncoder(BertModel(before.model.config), before.tokenizer)
    return {
        "before": Remembered(before),
        "after": Remembered(after),
        "untrained": Remembered(untrained),
    }, load_dataset("similarity", "dev")


@cache
def clouds() -> tuple:  # name -> encoder, graded pairs
    """Load what the notebook draws as clouds: of the second model the last layer alone."""
    from minbert.encoding.embedding_cache import Remembered
    from minbert.sentence import SentenceEncoder

    encoders, pairs = models()
    return encoders | {
        "after": Remembered(SentenceEncoder.from_pretrained("embedded-sentences", "mean", "cpu"))
    }, pairs


def short(values, digits: int) -> list:  # numbers with so many decimals
    """Round what goes into a file."""
    return [round(float(value), digits) for value in values]


@cache
def made(place: str) -> Explorer:
    """Make an explorer by its module and class."""
    kind = Shown("", place, "").kind
    given = {
        "explorers.embedding_explorers.CosineExplorer": models,
        "explorers.embedding_explorers.AnisotropyExplorer": clouds,
    }.get(place, tuple)
    return kind(*given())


def cosine_data() -> tuple[list[Control], dict]:
    """Compare all models, each with all corrections, by the cosines of the graded pairs and of a
    few more.
    """
    from minbert.explorers.embedding_explorers import _states, other_captions
    from minbert.sentence import safe_cosine

    encoders, pairs = models()
    text, typed = other_captions(pairs), [" / ".join(both) for both in SENTENCES]
    first = pairs.sentences + [a for a, _ in SENTENCES]
    second = pairs.sentences2 + [b for _, b in SENTENCES]
    cosines = {
        f"{name}, {state}": short(safe_cosine(*z.split(len(first))), 4)
        for name, encoder in encoders.items()
        for state, z in _states(encoder.encode(first + second), encoder.encode(text), None).items()
    }
    names, count = list(cosines), len(pairs)
    controls = [
        choice(
            "left",
            "before, plain",
            names,
            label="at the left",
            help="Which model, and what was done to its vectors; whatever was fitted was fitted on other captions.",
        ),
        choice(
            "right",
            "after, plain",
            names,
            label="at the right",
            help="The same for the other picture.",
        ),
        span(
            "edges",
            (2, 4),
            0,
            5,
            0.25,
            label="band edges",
            help="Grades from the right edge up are the high band, below the left edge the low one.",
        ),
        slider(
            "smoothing",
            0.03,
            0,
            0.2,
            0.01,
            help="Standard deviation of the bell curve in place of each cosine; at 0 the bars of a histogram.",
        ),
        choice(
            "sentences",
            typed[0],
            [*typed, "none"],
            label="two more sentences",
            help="Compared with each other under each model: the vertical line.",
        ),
        pick("pair", label="Click a dot to read its pair, or move with the arrow keys"),
    ]
    extra = {
        words: {name: values[count + place] for name, values in cosines.items()}
        for place, words in enumerate(typed)
    }
    shown = {name: values[:count] for name, values in cosines.items()}
    return controls, {
        "data": {
            "first": pairs.sentences,
            "second": pairs.sentences2,
            "grades": short(pairs.labels, 4),
            "typed": extra,
            "cosines": shown,
        }
    }


def anisotropy_data() -> tuple[list[Control], dict]:
    """Store the clouds of all models."""
    return stored_clouds(made("explorers.embedding_explorers.AnisotropyExplorer"))


def calibration_data() -> tuple[list[Control], dict]:
    """Store the clouds of chapter 15: its names, and the sentences that it fits on."""
    from minbert.explorers.embedding_explorers import AnisotropyExplorer, other_captions

    encoders, pairs = models()
    return stored_clouds(
        AnisotropyExplorer(
            {"ours": encoders["before"], "untrained": encoders["untrained"]},
            pairs,
            top=TOP,
            text=other_captions(pairs, every=4),
        )
    )


def stored_clouds(space: Explorer) -> tuple[list[Control], dict]:
    """Store each cloud in its longest directions, a byte a number, with the four numbers for each
    count of directions removed.
    """
    clouds = {
        f"{name}, {state}": stored_cloud(turned, space.sample)
        | {"shapes": [short(space.measure(name, state, k), 4) for k in range(TOP + 1)]}
        for (name, state), turned in space.clouds.items()
    }
    groups = {
        colour: {
            "names": list(masks),
            "codes": "".join(
                str([mask[row] for mask in masks.values()].index(True))
                for row in range(len(space.sample))
            ),
        }
        for colour, masks in space._colours.items()
    }
    return list(space.controls.values()), {
        "data": {
            "encoders": space.controls["encoder"].bounds["choices"],
            "clouds": clouds,
            "groups": groups,
        }
    }


def stored_cloud(turned, sample) -> dict:  # JSON
    """Write the points of a cloud with a byte for each coordinate."""
    y = turned.y[sample, : TOP + 3].double()
    low, step = y.amin(0), (y.amax(0) - y.amin(0)) / 255
    coded = ((y - low) / step).round().byte().T.contiguous().numpy().tobytes()
    return {
        "low": short(low, 5),
        "step": short(step, 7),
        "points": base64.b64encode(coded).decode(),
        "values": [float(f"{value:.4g}") for value in turned.values],
    }


def conflict_data() -> tuple[list[Control], dict]:
    """Give the shapes of the valleys, and the orders in which the tasks are taken; all else the
    page computes.
    """
    from minbert.explorers import conflict
    from minbert.pcgrad import _orders

    orders = {
        tasks: [others for _, others in _orders(tasks, conflict._seeded())] for tasks in (2, 3)
    }
    return list(conflict.ConflictExplorer().controls.values()), {
        "data": {
            "valleys": conflict.VALLEYS,
            "reach": conflict.REACH,
            "steps": 60,
            "rate": 0.08,
            "orders": orders,
        }
    }


def attention_grid(explorer: Explorer) -> list[dict]:
    """Move the query and the factor, or hide a word and move the mask; then look at every head of
    the model, or hide a piece.
    """
    hand, sentence = {"view": ["by hand"]}, {"view": ["a sentence"]}
    config, pieces = explorer.model.config, explorer.pieces(explorer.sentence)
    return [
        hand
        | {
            "hide": [()],
            "factor": [0, 1, 2],
            "query": [(x, y) for x in range(4) for y in range(4)],
        },
        hand | {"hide": [(place,) for place in range(3)], "mask": [0, 1, 2, 3, 4]},
        sentence
        | {
            "hide": [()],
            "layer": [*range(1, config.num_hidden_layers + 1)],
            "head": [*range(1, config.num_attention_heads + 1)],
        },
        sentence | {"hide": [(place,) for place, piece in enumerate(pieces) if piece.isalpha()]},
    ]


def maskedword_grid(explorer: Explorer) -> list[dict]:
    """Hide each word of a few sentences."""
    lines = [
        explorer.sentence,
        "She opened the door and walked in.",
        "He was born in the north of the country and died in 1901.",
    ]
    return [
        {
            "sentence": [line],
            "hide": [(), *((place,) for place in range(len(explorer.words_of(line))))],
        }
        for line in lines
    ]


def temperature_grid(explorer: Explorer) -> list[dict]:
    """Move the temperature with and without repeats, for two batches; then draw all temperatures at
    once.
    """
    both = {"batch": [1, 2], "leave_out": [False, True]}
    return [
        {"view": ["one temperature"], "temperature": [0.01, 0.02, 0.05, 0.1, 0.3, 1.0]} | both,
        {"view": ["all temperatures"]} | both,
    ]


def smoothness_grid(explorer: Explorer) -> list[dict]:
    """Move width and radius of the slice, and the steps of the search for words, under both heads."""
    return [
        {
            "view": ["slice"],
            "head": [*explorer.heads],
            "width": [2, 4, 16, 64, 256, 768],
            "radius": [0.25, 0.5, 0.75],
        },
        {"view": ["words"], "head": [*explorer.heads], "steps": [0, 1, 2, 3, 4]},
    ]


EXPLORERS = [
    Shown(
        "cosine",
        "explorers.embedding_explorers.CosineExplorer",
        "Which cosines do pairs of low, middle and high grade get, before and after training, and after a correction?",
        "Sentences and models of your own need a kernel.",
        data=cosine_data,
    ),
    Shown(
        "anisotropy",
        "explorers.embedding_explorers.AnisotropyExplorer",
        "Which shape has the cloud of sentence vectors, and what changes when its longest directions are removed?",
        "Models and corrections of your own need a kernel.",
        data=anisotropy_data,
        own={"3_embeddings/15_whitening": calibration_data},
    ),
    Shown(
        "flow",
        "explorers.flow.FlowExplorer",
        "How does a flow bend the plane, block by block, while it learns?",
        "All steps and blocks, the sentences, and the star to drag need a kernel.",
        grid={
            "data": ["banana", "rings"],
            "training": [0, 300, 600],
            "direction": ["forward", "back"],
            "blocks": [0, 4, 8],
        },
    ),
    Shown(
        "conflict",
        "explorers.conflict.ConflictExplorer",
        "Which step do the sum, PCGrad, GradVac and the shortest mixture make of gradients that disagree?",
        "The view of a real run needs a kernel.",
        data=conflict_data,
    ),
    Shown(
        "attention",
        "explorers.attention.AttentionExplorer",
        "Which words does each head of each layer look at?",
        "Sentences and models of your own, the key to drag, and several hidden words need a kernel.",
        grid=attention_grid,
    ),
    Shown(
        "maskedword",
        "explorers.masked_word.MaskedWordExplorer",
        "Which words does the model guess at a hidden place?",
        "Sentences of your own, and several hidden words at once, need a kernel.",
        grid=maskedword_grid,
    ),
    Shown(
        "temperature",
        "explorers.temperature.TemperatureExplorer",
        "What does the temperature do to the loss, and to the pull on each negative?",
        "More batches, all temperatures between, and a click on a cell need a kernel.",
        grid=temperature_grid,
    ),
    Shown(
        "smoothness",
        "explorers.smoothness.SmoothnessExplorer",
        "How far does a prediction move when its input moves a little?",
        "Sentences and heads of your own, other draws and steps need a kernel.",
        grid=smoothness_grid,
    ),
]


def there(shown: Shown) -> bool:
    """Tell whether the package has the module of an explorer."""
    return find_spec("minbert." + shown.place.rpartition(".")[0]) is not None


@cache
def explorers() -> list[Shown]:
    """List the explorers whose modules exist."""
    return [shown for shown in EXPLORERS if there(shown)]


def is_shown(cell, variable: str) -> bool:
    """Tell whether a cell only shows an explorer, for those who have a kernel."""
    return (
        cell.cell_type == "code"
        and "eval" in dict(directives(cell.source))
        and re.sub(r"^#\|.*\n?", "", cell.source, flags=re.M).strip() == variable
    )


@cache
def _places(page: str) -> dict[str, Shown]:  # id of a cell -> the explorer that it shows
    notebook = next(chapter for chapter in chapters() if chapter.page == page).notebook
    classes, found, made = {shown.place.rpartition(".")[2]: shown for shown in explorers()}, {}, {}
    for cell in notebook.cells:
        if cell.cell_type == "code":
            made |= {
                name: classes[kind]
                for name, kind in re.findall(r"^(\w+) = (\w+Explorer)\(", cell.source, re.M)
                if kind in classes
            }
            for name, shown in made.items():
                if is_shown(cell, name):
                    found[cell.id] = shown
    return found


def places() -> dict[str, dict[str, str]]:  # page -> id of a cell -> HTML
    """Write the place of each explorer in each notebook."""
    return {
        chapter.page: {
            cell: fragment(shown, chapter.page, f"explorer-{shown.name}")
            for cell, shown in _places(chapter.page).items()
        }
        for chapter in chapters()
    }


def movable(shown: Shown) -> bool:
    """Tell whether an explorer moves without a kernel."""
    return bool(shown.data or shown.grid)


def stored(shown: Shown, page: str) -> str:
    """Name the file that an explorer on a page is drawn from."""
    return f"{shown.name}-{page.rpartition('/')[2][:2]}" if page in shown.own else shown.name


def fragment(shown: Shown, page: str, anchor: str) -> str:  # HTML
    """Write the place of an explorer on a page, with the scripts that fill it."""
    if not movable(shown):
        return f'<div id="{anchor}"></div>'
    up, file = posixpath.relpath(".", posixpath.dirname(page) or "."), stored(shown, page)
    # a chapter has a picture of its own
    still = (
        f'<img src="{up}/explorers/{shown.name}.webp" alt="{shown.kind.title}">'
        if page.startswith("explorers/")
        else ""
    )
    scripts = "".join(
        f'<script defer src="{up}/{script}"></script>'
        for script in ("explorers/explorer.js", "_static/drawings.js", f"explorers/{file}.js")
    )
    return (
        f'<link rel="stylesheet" href="{up}/explorers/explorer.css"><div class="movable" id="{anchor}" data-explorer="{file}"></div><p class="more">{shown.more}</p>'
        f"<noscript>{still}<p>With scripts switched on, this picture follows your hand.</p></noscript>{scripts}"
    )


def on_site(
    shown: Shown,
    data: Callable[[], tuple[list[Control], dict]] | None,
    # JSON: spec, values, data or frames
) -> dict:
    """Gather all that a page needs to move an explorer."""
    controls, rest = data() if data else framed(made(shown.place), shown.grid)
    values = {control.name: control.default for control in controls}
    return {
        "spec": {"title": shown.kind.title, "controls": [asdict(control) for control in controls]},
        "values": values,
    } | rest


def framed(
    explorer: Explorer, grid: dict | Callable[[Explorer], list[dict]]
) -> tuple[list[Control], dict]:
    """Draw a picture for each combination of values; a control whose values are not evenly spaced
    becomes a choice, and one of another grid is hidden.
    """
    grids = grid(explorer) if callable(grid) else [grid]
    values = {
        name: list(dict.fromkeys(value for grid in grids for value in grid.get(name, ())))
        for name in explorer.controls
    }
    controls = [
        stepped(control, values[name])
        for name, control in explorer.controls.items()
        if values[name]
    ]
    frames = []
    for grid in grids:
        idle = [control.name for control in controls if control.name not in grid]
        for chosen in (dict(zip(grid, combination)) for combination in product(*grid.values())):
            content, picture = explorer.answer(chosen, narrow=True)
            told = {
                control.name: written(chosen[control.name])
                if control.kind == "choice"
                else chosen[control.name]
                for control in controls
                if control.name in grid
            }
            frames.append(
                {
                    "values": told,
                    "source": "data:image/webp;base64," + base64.b64encode(small(picture)).decode(),
                    **content,
                    "idle": idle,
                }
            )
    return controls, {"frames": frames}


def written(value) -> str:
    """Write a value as one of a few."""
    return f"{value:g}" if isinstance(value, float) else str(value)


def stepped(control: Control, values: list) -> Control:
    """Let a control take only values that were drawn."""
    about = {"label": control.label, "help": control.help}
    if control.kind == "switch":
        return control
    if control.kind == "words":  # one at a time, or there would be too many to draw
        return replace(control, bounds=control.bounds | {"one": True})
    if control.kind == "point":
        xs = sorted({x for x, _ in values})
        return point(
            control.name,
            control.default,
            panel=control.bounds["panel"],
            low=min(values),
            high=max(values),
            step=xs[1] - xs[0],
            **about,
        )
    default = (
        min(values, key=lambda value: abs(value - control.default))
        if control.kind == "slider"
        else control.default
    )
    gaps = {b - a for a, b in zip(values, values[1:])} if control.kind == "slider" else set()
    if len(gaps) == 1:
        return slider(control.name, default, values[0], values[-1], *gaps, **about)
    return choice(control.name, written(default), [written(value) for value in values], **about)


def small(picture: bytes) -> bytes:  # PNG -> WebP
    """Write a picture with few colours.

    They are chosen so that none of the picture's is far off, and then moved to the commonest
    nearby; a median cut would split the common ones and turn rare ones grey.
    """
    from PIL import Image

    made, image = io.BytesIO(), Image.open(io.BytesIO(picture)).convert("RGB")
    image.quantize(
        COLOURS, method=Image.Quantize.MAXCOVERAGE, kmeans=1, dither=Image.Dither.NONE
    ).convert("RGB").save(made, "WEBP", lossless=True, quality=100, method=4)
    return made.getvalue()


def write_explorers(html: Path) -> None:
    """Write script, style and one file for each explorer; scripts are no modules, which browsers
    refuse to load from a disk.
    """
    folder = html / "explorers"
    folder.mkdir(parents=True, exist_ok=True)
    script = (
        asset("explorer.js")
        .replace("export function offline", "function offline")
        .replace("export default { render };", "window.minbertOffline = offline;")
    )
    (folder / "explorer.js").write_text(f"(() => {{\n{script}}})();\n", encoding="utf-8")
    (folder / "explorer.css").write_text(asset("explorer.css"), encoding="utf-8")
    for shown in filter(movable, explorers()):
        for name, data in {
            shown.name: shown.data,
            **{stored(shown, page): data for page, data in shown.own.items()},
        }.items():
            told = json.dumps(on_site(shown, data), ensure_ascii=False, separators=(",", ":"))
            (folder / f"{name}.js").write_text(
                f'minbertShow("{name}", {told});\n', encoding="utf-8"
            )
        # for a page without scripts
        (folder / f"{shown.name}.webp").write_bytes(small(made(shown.place).png()))


def homes(shown: Shown) -> list[Chapter]:
    """Find the notebooks that show an explorer."""
    return [chapter for chapter in chapters() if shown in _places(chapter.page).values()]


def gallery() -> str:
    """Write the table of all explorers."""
    rows = []
    for shown in explorers():
        where = (
            ", ".join(
                f'<a href="{chapter.page}.html#explorer-{shown.name}">{chapter.name}</a>'
                for chapter in homes(shown)
            )
            or "not in a chapter yet"
        )
        name = (
            f"**[{shown.kind.title}](explorers/{shown.name}.md)**"
            if movable(shown)
            else f"**{shown.kind.title}** (in JupyterLab)"
        )
        rows.append(f"| {name} | {shown.says} | {where} | {{py:obj}}`~minbert.{shown.place}` |")
    return "\n".join(
        ["| explorer | question | chapter | in the package |", "|---|---|---|---|", *rows]
    )


def explorer_pages() -> dict[str, str]:  # path below the sources -> text
    """Write a page for each explorer that moves without a kernel."""
    pages = {}
    for shown in filter(movable, explorers()):
        page = f"explorers/{shown.name}"
        where = ", ".join(link(chapter, page) for chapter in homes(shown))
        body = fragment(shown, page, f"explorer-{shown.name}")
        pages[f"{page}.md"] = (
            f"# {shown.kind.title}\n\n{shown.says}\n\n```{{raw}} html\n{body}\n```\n\n"
            + (f"What to move, and what to watch, stands in {where}.\n" if where else "")
        )
    return pages
