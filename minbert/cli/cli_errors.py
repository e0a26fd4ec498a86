"""Error messages of the command line: ValueError, OSError, full GPU memory and interruption become
one sentence and an exit status.

Any other exception is a mistake in this package and keeps its traceback, because somebody has to
fix it.
"""

__all__ = ["GO_ON", "SECTIONS", "plain_sentence", "Commands"]

import errno
import re

import typer
from typer.core import TyperGroup

from ..core.graceful_stop import Stopped


def plain_sentence(
    error: Exception,
) -> str | None:  # None: this is our mistake, and wants its traceback
    """Say in one line what went wrong outside this package."""
    # `minbert data | head`: typer knows what to do
    if isinstance(error, OSError) and error.errno == errno.EPIPE:
        return None
    if isinstance(error, OSError) and error.strerror:
        # a draft is gone by now
        place = re.sub(r"\.draft-minbert-[a-z0-9_]{8}/?", "", str(error.filename or ""))
        return f"{place}: {error.strerror}" if place else error.strerror
    # bare: the tokenizers' library
    if (
        isinstance(error, (OSError, ValueError, MemoryError))
        or type(error) is Exception
        or type(error).__name__ in ("SafetensorError", "OutOfMemoryError")
    ):
        return " ".join(str(error).split()) or type(error).__name__
    return None


GO_ON = {
    "train": "; --resume goes on",
    "contrast": "; --resume goes on",
    "demo": "; --overwrite starts anew",
    "pretrain": "; the same command goes on",
}  # command -> how


SECTIONS = {
    "Look around": ("demo", "data"),
    "Labels of your own": ("split", "train", "evaluate", "predict"),
    "Text of your own": ("contrast", "encode", "pretrain", "fill-mask"),
    "Experiments": ("reproduce",),
    # heading -> its commands, in the order in which one needs them
    "Learn and teach": ("course", "grade"),
}


class Commands(TyperGroup):
    """Commands whose errors are sentences: exit status 1, or 128 + the signal that stopped a run.
    The help page has sections.
    """

    def list_commands(self, ctx):
        """Give the names in the order of the sections; others come behind."""
        order = [name for names in SECTIONS.values() for name in names]
        return sorted(
            self.commands, key=lambda name: order.index(name) if name in order else len(order)
        )

    def get_command(self, ctx, name):
        """Find a command, and put it under its heading."""
        command = super().get_command(ctx, name)
        if command is not None:
            command.rich_help_panel = next(
                (heading for heading, names in SECTIONS.items() if name in names), None
            )
        return command

    def invoke(self, ctx):
        """Run a command."""
        try:
            return super().invoke(ctx)
        except Stopped as stopped:
            sentence = f"stopped at step {stopped.step}{GO_ON.get(ctx.invoked_subcommand, '')}"
            status = 128 + stopped.number
        except KeyboardInterrupt:
            sentence, status = "stopped", 130
        except Exception as error:
            sentence, status = plain_sentence(error), 1
            if sentence is None:
                raise
        typer.echo(f"minbert: {sentence}", err=True)
        raise typer.Exit(status)
