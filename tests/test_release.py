"""What `make release` checks, and the lower bounds that CI installs."""

import zipfile

import check_release
import lower_bounds
import pytest
from check_release import ROOT, settings, versions, wheel_problems


def test_every_file_states_the_version_of_the_settings():
    assert set(versions().values()) == {settings()["version"]}


@pytest.fixture
def packed(tmp_path, monkeypatch):
    """Make a wheel of two files, which are all that git has; give a function that packs other files or another version."""
    monkeypatch.setattr(
        check_release, "git", lambda *words: "minbert/__init__.py\nminbert/tokens.py"
    )

    def pack(
        files=("minbert/__init__.py", "minbert/tokens.py"), version="0.3.0", licence="LICENSE"
    ):
        wheel = tmp_path / "minbert-0.3.0-py3-none-any.whl"
        with zipfile.ZipFile(wheel, "w") as archive:
            for name in (*files, f"minbert-0.3.0.dist-info/licenses/{licence}"):
                archive.writestr(name, "")
            archive.writestr(
                "minbert-0.3.0.dist-info/METADATA", f"Name: minbert\nVersion: {version}\n"
            )
        return [*wheel_problems(wheel, "0.3.0")]

    return pack


def test_a_wheel_with_the_files_of_git_has_no_problems(packed):
    assert packed() == []


@pytest.mark.parametrize(
    "change, problem",
    [
        (dict(files=["minbert/__init__.py"]), "minbert/tokens.py is in git and not in the wheel"),
        (
            dict(files=["minbert/__init__.py", "minbert/tokens.py", "minbert/old.py"]),
            "minbert/old.py is in the wheel and not in git",
        ),
        (dict(version="0.2.0"), "its description does not say version 0.3.0"),
        (dict(licence="NOTICE"), "it has no LICENSE"),
    ],
    ids=["missing", "stale", "version", "licence"],
)
def test_a_wheel_that_differs_is_reported(packed, change, problem):
    assert packed(**change) == [problem]


def test_ci_installs_the_lower_bound_of_every_library_that_the_package_imports():
    found = [line.split("==")[0] for line in lower_bounds.lower_bounds()]
    needed = [
        word.split(">=")[0]
        for name in ("requirements", "train_requirements")
        for word in settings()[name].split()
    ]
    assert set(needed) <= set(found) and len(found) == len(set(found))
    assert [
        name for name in lower_bounds.TESTS if not (ROOT / "tests" / f"test_{name}.py").is_file()
    ] == []
