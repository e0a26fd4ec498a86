"""The command `minbert`, which `python -m minbert` and `accelerate launch -m minbert` run as well."""

import sys

from minbert.core.extras import what_to_install


def main() -> None:
    """Run the command line. Where a package of an extra is missing, print a sentence that names the extra, and exit with 1."""
    try:
        from minbert.cli.commands import main as run

        run()
    except ModuleNotFoundError as error:
        sentence = what_to_install(error)
        if sentence is None:
            raise
        sys.exit(f"minbert: {sentence}")


if __name__ == "__main__":
    main()
