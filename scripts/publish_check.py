"""Say what is still to do before the repository can be read at an address: `make publish-check
ADDRESS=https://HOST/OWNER/NAME`.

Nothing is changed. One line for each thing, ready or not; the exit status is 1 while one is
missing.
"""

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from address import ADDRESS, ROOT, settings

# a repository of this name, whoever owns it
OURS = re.compile(r"https://[\w.-]+/[\w.-]+/minbert\b")


def git(*words: str) -> tuple[int, str]:  # exit status, what it printed
    """Ask git something about this clone."""
    run = subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, timeout=60)
    return run.returncode, run.stdout.strip()


def other_addresses(address: str) -> list[str]:
    """Find tracked texts that send the reader to another repository of this name."""
    found = []
    for name in git("ls-files")[1].split("\n"):
        if Path(name).suffix in {".py", ".ipynb", ".md", ".ini", ".toml"}:
            places = set(
                OURS.findall((ROOT / name).read_text(encoding="utf-8", errors="replace"))
            ) - {address}
            found += [f"{name}: {place}" for place in sorted(places)]
    return found


def in_sync() -> bool:
    """Tell whether everything that is made from the notebooks and the settings is as `make export`
    would write it.
    """
    return all(
        subprocess.run(
            [sys.executable, ROOT / "scripts" / script, "--check"], capture_output=True
        ).returncode
        == 0
        for script in ("address.py", "build_course.py", "build_readme.py")
    )


def reachable(address: str) -> tuple[bool, str]:
    """Ask the address for its branches, without a password."""
    try:
        run = subprocess.run(
            ["git", "-c", "credential.helper=", "ls-remote", "--heads", address],
            capture_output=True,
            text=True,
            timeout=60,
            env={"GIT_TERMINAL_PROMPT": "0", "PATH": "/usr/bin:/bin:/usr/local/bin"},
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return False, type(error).__name__
    head = git("rev-parse", "HEAD")[1]
    return (
        head in run.stdout,
        "it answers, but this commit is no branch of it: push first"
        if run.returncode == 0
        else (run.stderr.strip().split("\n") or [""])[-1],
    )


def findings(
    address: str,
    # ready?, what, what to do otherwise
) -> Iterator[tuple[bool, str, str]]:
    """Go through what a reader at the address needs."""
    yield (
        bool(ADDRESS.fullmatch(address)),
        "the address can be cloned from",
        f"give ADDRESS=https://HOST/OWNER/NAME, got {address!r}",
    )
    written = settings()[0]
    yield (
        bool(address) and written == address,
        "settings.ini names it",
        f"write `address = {address}` (it says {written or 'nothing'}), then `make export`",
    )
    yield (
        in_sync(),
        "chapters, README and learner's edition follow from settings.ini and nbs/",
        "run `make export` and commit",
    )
    others = other_addresses(address)
    yield not others, "no text names another repository", "; ".join(others[:5])
    yield (
        git("status", "--porcelain")[1] == "",
        "everything is committed",
        "commit or remove what `git status` shows",
    )
    yield (ROOT / "LICENSE").is_file(), "there is a licence", "add LICENSE"
    tag = f"v{settings()[1]}"
    yield (
        git("rev-parse", "-q", "--verify", f"refs/tags/{tag}")[0] == 0,
        f"the version has its tag {tag}",
        f"git tag {tag}, after `make test-all` has passed",
    )
    there, why = (
        reachable(address) if ADDRESS.fullmatch(address) else (False, "there is no address to ask")
    )
    yield there, "this commit can be had from the address", why
    host = address.removeprefix("https://").partition("/")[0]
    yield (
        host == "github.com",
        "Colab can open the chapters",
        f"{host or 'no host'}: Colab opens notebooks of github.com only; others upload chapter and wheel",
    )


def main() -> int:
    address = (
        (sys.argv[1] if len(sys.argv) > 1 else "").strip().removesuffix("/").removesuffix(".git")
    )
    missing = 0
    for ready, what, otherwise in findings(address):
        print(
            f"{'ready  ' if ready else 'MISSING'}  {what}"
            + ("" if ready else f"\n         {otherwise}")
        )
        missing += not ready
    print(f"{missing} to do" if missing else "nothing to do")
    return bool(missing)


if __name__ == "__main__":
    sys.exit(main())
