"""Pages of the package: for every public name its signature, its docstring, and a table of what the
comments beside its parameters say.
"""

import importlib
import inspect
import pkgutil
from html import escape
from types import ModuleType

from fastcore.docments import docments
from site_chapters import chapters

import minbert

FLOORS = {
    "": "The book",
    "core": "Files, devices and checkpoints",
    "datasets": "Datasets",
    "encoding": "Encoding",
    "explorers": "Explorers",
    "papers": "Published tables",
    "course": "Course",
    "cli": "Command line",
}


def modules() -> list[ModuleType]:
    """Import every module of the package but tables of exercises and stored files."""
    names = [
        info.name for info in pkgutil.walk_packages(minbert.__path__, "minbert.") if not info.ispkg
    ]
    hidden = {"exercise_cases", "assets", "__main__", "_modidx"}
    return [importlib.import_module(name) for name in names if not hidden & {*name.split(".")}]


def public(module: ModuleType) -> list[tuple[str, object]]:
    """Give the functions and classes that a module defines and shows."""
    names = getattr(module, "__all__", [name for name in vars(module) if not name.startswith("_")])
    found = [(name, getattr(module, name)) for name in names if not name.startswith("_")]
    return [
        (name, thing)
        for name, thing in found
        if (inspect.isclass(thing) or inspect.isroutine(thing))
        and thing.__module__ == module.__name__
    ]


def methods(kind: type) -> list[tuple[str, object]]:
    """Give the public methods that a class defines itself."""
    own = {
        name: value
        for name, value in vars(kind).items()
        if not name.startswith("_") or name == "__call__"
    }
    found = [
        (name, getattr(kind, name))
        for name, value in own.items()
        if inspect.isfunction(value) or isinstance(value, (classmethod, staticmethod))
    ]
    return [(name, thing) for name, thing in found if thing.__doc__]


def signature(thing: object) -> str:
    """Write the parameters, without annotations: the table below has them."""
    try:
        given = inspect.signature(thing)
    except (TypeError, ValueError):
        return "()"
    plain = [
        p.replace(
            annotation=p.empty, default=p.default if p.default is p.empty else Short(p.default)
        )
        for p in given.parameters.values()
        if p.name != "self"
    ]
    return str(given.replace(parameters=plain, return_annotation=given.empty))


class Short:
    """A default value as one would type it."""

    def __init__(self, value):
        self.value = value

    def __repr__(self):
        words = getattr(self.value, "__name__", None) or repr(self.value)
        return words if len(words) < 40 and "<" not in words and " at 0x" not in words else "..."


def kind_of(annotation: object) -> str:
    """Write an annotation in short."""
    if annotation is inspect.Parameter.empty:
        return ""
    words = (
        annotation
        if isinstance(annotation, str)
        else getattr(annotation, "__name__", None)
        if inspect.isclass(annotation) and not getattr(annotation, "__args__", None)
        else str(annotation)
    )
    for long in (
        "torch.nn.modules.module.",
        "torch._C.",
        "torch.",
        "collections.abc.",
        "typing.",
        "pathlib.",
        "minbert.",
    ):
        words = words.replace(long, "")
    return words


def row(name: str, found: dict) -> str:
    """Write one line of the table of parameters."""
    default = (
        ""
        if found.get("default", inspect.Parameter.empty) is inspect.Parameter.empty
        else f"<code>{escape(repr(Short(found['default'])))}</code>"
    )
    told = escape(" ".join((found["docment"] or "").split()))
    return f'<tr><th scope="row"><code>{escape(name)}</code></th><td><code>{escape(kind_of(found["anno"]))}</code></td><td>{default}</td><td>{told}</td></tr>'


def table(thing: object) -> str:
    """Write what is known of each parameter and of the result; nothing where nothing is known."""
    try:
        known = docments(thing, full=True)
    except (TypeError, ValueError, OSError, SyntaxError):
        return ""
    rows = [
        row(name if name != "return" else "returns", found)
        for name, found in known.items()
        if name != "self"
        and (found["docment"] or name != "return")
        and (found["docment"] or found["anno"] is not inspect.Parameter.empty)
    ]
    head = '<tr><th scope="col">name</th><th scope="col">type</th><th scope="col">default</th><th scope="col">what it is</th></tr>'
    return (
        f'<div class="table-wrapper"><table class="docutils parameters"><thead>{head}</thead><tbody>{"".join(rows)}</tbody></table></div>'
        if rows
        else ""
    )


def told(thing: object) -> str:
    """Write a docstring: its first paragraph as prose, the rest line by line, as equations and
    references stand there.
    """
    first, _, rest = (inspect.getdoc(thing) or "").partition("\n\n")
    more = f'<div class="docstring">{escape(rest.strip())}</div>' if rest.strip() else ""
    return f"<p>{escape(' '.join(first.split()))}</p>{more}"


def entry(directive: str, name: str, thing: object, inside: str = "") -> str:
    """Write one name: heading, docstring, parameters; of a class also its methods."""
    colons = ":" * (5 if inside else 4)
    parameters = table(
        thing.__init__ if inspect.isclass(thing) and "__init__" in vars(thing) else thing
    )
    body = f"```{{raw}} html\n{told(thing)}{parameters}\n```\n"
    return f"{colons}{{py:{directive}}} {name}{signature(thing)}\n\n{body}\n{inside}{colons}\n"


def described(name: str, thing: object) -> str:
    """Write a function, or a class with its methods."""
    if not inspect.isclass(thing):
        return entry("function", name, thing)
    inside = "\n".join(entry("method", method, value) for method, value in methods(thing))
    return entry("class", name, thing, inside + "\n" if inside else "")


def module_page(module: ModuleType) -> str:
    """Write the page of a module, with the chapter that it comes from."""
    short = module.__name__.removeprefix("minbert.")
    home = next((chapter for chapter in chapters() if chapter.module == short), None)
    source = (
        f"Written in [{home.name}](../{home.page}.ipynb)."
        if home
        else "A plain module, without a notebook."
    )
    body = "\n".join(f"## {name}\n\n{described(name, thing)}" for name, thing in public(module))
    says = inspect.getdoc(module) or ""
    return f"# {module.__name__}\n\n{says}\n\n{source}\n\n```{{py:module}} {module.__name__}\n```\n\n{body}"


def summary(module: ModuleType) -> str:
    """Give the first paragraph of a module's docstring, which says what the module contains."""
    return " ".join((inspect.getdoc(module) or "").partition("\n\n")[0].split())


def index_page(found: list[ModuleType]) -> str:
    """List all modules, floor by floor."""
    text = "# Package\n\nWhat a script can import. Each table of parameters is made of the comments beside them in the source.\n"
    for floor, name in FLOORS.items():
        here = [m for m in found if m.__name__.removeprefix("minbert.").rpartition(".")[0] == floor]
        names = [m.__name__.removeprefix("minbert.") for m in here]
        lines = "\n".join(f"- [{m.__name__}]({n}.md): {summary(m)}" for m, n in zip(here, names))
        text += (
            f"\n## {name}\n\n{lines}\n\n```{{toctree}}\n:hidden:\n\n" + "\n".join(names) + "\n```\n"
        )
    return text


def api_pages() -> dict[str, str]:  # path below the sources -> text
    """Write all pages of the package."""
    found = [module for module in modules() if public(module)]
    return {"api/index.md": index_page(found)} | {
        f"api/{m.__name__.removeprefix('minbert.')}.md": module_page(m) for m in found
    }
