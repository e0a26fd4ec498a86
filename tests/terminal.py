"""The command line, typed in this process."""

import pytest

from minbert.cli.commands import main


def run(capsys, line: str, status: int = 0) -> tuple[str, str]:
    """Run a command in this process -> its two outputs."""
    capsys.readouterr()
    with pytest.raises(SystemExit) as end:
        main(line.split())
    out, err = capsys.readouterr()
    assert (end.value.code or 0) == status, out + err
    return out, err
