"""Error messages of the command line: a sentence and an exit status, for every command at once."""

import errno
import signal

import typer
from typer.testing import CliRunner

from minbert.cli.cli_errors import Commands
from minbert.core.graceful_stop import Stopped


def test_every_error_becomes_a_sentence_and_an_exit_status_and_a_mistake_of_ours_keeps_its_traceback():
    class SafetensorError(Exception):
        """As the library has it."""

    app = typer.Typer(cls=Commands, pretty_exceptions_enable=False)
    failures = {
        "value": ValueError("data.csv:3: expected a number"),
        "disk": OSError(errno.ENOSPC, "No space left on device", "v.npy"),
        "weights": SafetensorError("I/O error: No space left on device"),
        "train": Stopped(8, signal.SIGTERM),
        "keys": KeyboardInterrupt(),
        "ours": KeyError("x"),
    }

    def failing(failure):
        def command():
            raise failure

        return command

    for name, failure in failures.items():
        app.command(name)(failing(failure))

    statuses = []
    for name in failures:
        result = CliRunner().invoke(app, [name])
        statuses.append(result.exit_code)
        assert isinstance(result.exception, KeyError) == (name == "ours")
    assert statuses == [1, 1, 1, 143, 130, 1]
