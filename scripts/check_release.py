"""Check what `make release` has built, and say how to tag it: version, wheel, site and the state of the clone.

    make release

Nothing is uploaded or tagged. The exit status is 1 if a check fails.
"""

import re
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from configparser import ConfigParser
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
ENCODE = (
    "import minbert; from minbert.sentence import SentenceEncoder; "
    "print(minbert.__file__, [*SentenceEncoder.from_pretrained('embedded-sentences').encode(['A dog.']).shape])"
)


def settings() -> dict[str, str]:
    """Read settings.ini."""
    found = ConfigParser(delimiters=["="])
    found.read(ROOT / "settings.ini", encoding="utf-8")
    return dict(found["DEFAULT"])


def git(*words: str) -> str:
    """Ask git something about this clone."""
    return subprocess.run(
        ["git", *words], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.strip()


def versions() -> dict[str, str]:
    """Give the version that each file states: the topmost release of the changelog, the citation, the package, the README."""
    patterns = {
        "settings.ini": r"^version = (\S+)",
        "minbert/__init__.py": r'^__version__ = "(.+)"',
        "CITATION.cff": r"^version: (\S+)",
        "CHANGELOG.md": r"^## (\d\S*)",
        "README.md": r"minbert-(\S+)-py3-none-any\.whl",
    }
    found = {}
    for name, pattern in patterns.items():
        match = re.search(pattern, (ROOT / name).read_text(encoding="utf-8"), re.M)
        found[name] = match[1] if match else "none"
    return found


def wheel_problems(wheel: Path, version: str) -> Iterator[str]:
    """Compare the files of the wheel with those of git, and its description with settings.ini."""
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        [described] = [name for name in names if name.endswith(".dist-info/METADATA")]
        description = archive.read(described).decode()
    packed = {name for name in names if ".dist-info/" not in name}
    ours = set(git("ls-files", "minbert").split("\n"))
    yield from (f"{name} is in git and not in the wheel" for name in sorted(ours - packed))
    yield from (f"{name} is in the wheel and not in git" for name in sorted(packed - ours))
    if f"\nVersion: {version}\n" not in description:
        yield f"its description does not say version {version}"
    if not any(name.endswith("LICENSE") for name in names):
        yield "it has no LICENSE"


def encodes_alone(wheel: Path) -> str:
    """Install the wheel into an empty folder and encode a sentence there; give an error message, or "" if that worked."""
    with tempfile.TemporaryDirectory() as folder:
        pip = [
            sys.executable,
            "-m",
            "pip",
            "install",
            "--quiet",
            "--no-deps",
            "--no-index",
            "--target",
            folder,
            str(wheel),
        ]
        subprocess.run(pip, check=True)
        run = subprocess.run(
            [sys.executable, "-c", ENCODE],
            cwd=folder,
            capture_output=True,
            text=True,
            env={
                "PATH": "/usr/bin:/bin",
                "PYTHONPATH": folder,
                "HF_HUB_OFFLINE": "1",
                "OMP_NUM_THREADS": "1",
            },
        )
    expected = f"{Path(folder).resolve() / 'minbert' / '__init__.py'} [1, 768]"
    return (
        ""
        if run.stdout.strip() == expected
        else f"expected {expected!r}, got {run.stdout + run.stderr!r}"
    )


def checks(
    version: str,
) -> Iterator[tuple[str, str]]:  # what is checked, what is wrong ("" if nothing)
    """Go through the requirements of a release."""
    others = {name: found for name, found in versions().items() if found != version}
    yield f"every file states version {version}", str(others or "")
    wheels = sorted((ROOT / "dist").glob("minbert-*.whl"))
    yield (
        "dist/ holds one wheel",
        "" if len(wheels) == 1 else f"found {[wheel.name for wheel in wheels]}",
    )
    if len(wheels) == 1:
        yield (
            "the wheel holds the package as git has it",
            "; ".join(list(wheel_problems(wheels[0], version))[:5]),
        )
        yield "a sentence can be encoded with the wheel alone", encodes_alone(wheels[0])
    site = ROOT / "build" / "site" / "html" / "index.html"
    yield "the site is built", "" if site.is_file() else f"there is no {site.relative_to(ROOT)}"
    yield "everything is committed", git("status", "--porcelain")
    yield "the version has no tag yet", git("tag", "--list", f"v{version}")


def main() -> int:
    version = settings()["version"]
    failed = 0
    for what, wrong in checks(version):
        print(f"{'FAILED' if wrong else 'passed'}  {what}" + (f": {wrong}" if wrong else ""))
        failed += bool(wrong)
    if failed:
        print(f"{failed} failed: this is no release yet")
        return 1
    print(
        f"If `make test-all` has passed on this commit, tag it and push the tag:\n\n"
        f'    git tag --annotate v{version} --message "minbert {version}"\n    git push origin v{version}\n\n'
        f"Then attach dist/minbert-{version}-py3-none-any.whl to the release page of the tag."
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
