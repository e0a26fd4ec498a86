"""Data that minbert does not download: what says where it is to be had, what tells a published file
from another, and what may stand in for it.
"""

import gzip
import hashlib
from dataclasses import replace

import pytest
from terminal import run as typed

from minbert.data import download
from minbert.datasets import manual_downloads
from minbert.datasets.formats import SOURCES
from minbert.datasets.hub_datasets import HUB
from minbert.datasets.manual_downloads import ELSEWHERE, Elsewhere, not_as_published, where_to_get
from minbert.papers import RECIPES, SCALES, Run, li, sts_suite
from minbert.papers.result_store import missing_data
from minbert.papers.sizes import PUBLISHED_ROWS, smaller_sets
from minbert.papers.unsupervised_stages import WIKI, wiki


@pytest.fixture
def paper(tmp_path):
    """A run at the scale of the papers on a data folder, which is empty."""
    return Run(SCALES["paper"], 1, str(tmp_path / "data"), tmp_path / "out")


def put(run, path, text):
    file = run.out.parent / "data" / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    return file


def test_every_file_that_a_recipe_needs_can_be_fetched_or_has_a_home():
    """Of 203 recipes 43 could start from what was fetched, while the course's STS, SICK's train and
    dev sets and SST as published were not.
    """
    needs = {need for recipe in RECIPES.values() for need in recipe.needs}
    fetched = {f"{name}/{split}" for name, (*_, splits) in HUB.items() for split in splits} | {
        "sickr/train",
        "sickr/dev",
    }
    assert {need.split("/")[0] for need in needs - fetched} == {"cfimdb"} and where_to_get("cfimdb")
    able = [recipe for recipe in RECIPES.values() if {*recipe.needs} <= fetched]
    assert len(able) == len(RECIPES) - 2


def test_a_home_is_named_with_the_names_of_its_files(tmp_path, capsys):
    assert where_to_get("sst") == ""
    for name, (where, files) in ELSEWHERE.items():
        assert (
            where.startswith("https://")
            and all(path in where_to_get(name) for path in files)
            and where in where_to_get(name)
        )
        assert all(isinstance(wanted, int) or len(wanted) == 64 for wanted in files.values())
    assert {SOURCES["cfimdb"][0].file(split) for split in ("train", "dev", "test")} == {
        *ELSEWHERE["cfimdb"].files
    }
    assert {WIKI[0], li.COUNTS} == {*ELSEWHERE["wiki1m"].files, *ELSEWHERE["word counts"].files}
    with pytest.raises(
        ValueError, match="got 'cfimdb': cfimdb is to be had at https://github.com/"
    ):
        download("cfimdb", tmp_path)
    assert (
        "minbert does not download cfimdb, wiki1m, word counts"
        in typed(capsys, "data --download", status=1)[1]
    )


def test_a_file_that_is_not_the_published_one_is_told(tmp_path, monkeypatch, capsys):
    monkeypatch.setitem(
        ELSEWHERE,
        "cfimdb",
        Elsewhere(
            "https://home",
            {
                "cs224n/ids-cfimdb-dev.csv": hashlib.sha256(
                    b"\tid\tsentence\tsentiment\n0\ta\tGood\t1\n"
                ).hexdigest()
            },
        ),
    )
    monkeypatch.setitem(ELSEWHERE, "wiki1m", Elsewhere("https://home", {"wiki.txt": 1000}))
    assert not_as_published("cfimdb", tmp_path) == []  # nothing is there
    (tmp_path / "ids-cfimdb-dev.csv").write_text("\tid\tsentence\tsentiment\n0\ta\tGood\t1\n")
    assert not_as_published("cfimdb", tmp_path) == []
    (tmp_path / "ids-cfimdb-dev.csv").write_text("\tid\tsentence\tsentiment\n0\ta\tGood\t0\n")
    (told,) = not_as_published("cfimdb", tmp_path)
    assert told.startswith(
        f"{tmp_path / 'ids-cfimdb-dev.csv'}: not the published file: expected SHA-256 "
    )
    assert f"note: {told}" in typed(capsys, f"data --data {tmp_path}")[1]
    for lines, right in ((1000, True), (999, True), (990, False), (0, False)):
        (tmp_path / "wiki.txt.gz").write_bytes(gzip.compress(b"a\n" * lines, mtime=0))
        assert not_as_published("wiki1m", tmp_path) == (
            []
            if right
            else [
                f"{tmp_path / 'wiki.txt.gz'}: not the published file: expected 1,000 lines, got {lines:,}"
            ]
        )


def test_missing_data_are_told_with_their_home(tmp_path):
    told = missing_data(RECIPES["dao-mehta-tian/cfimdb-full"], SCALES["paper"], str(tmp_path))
    assert "cfimdb train: expected one of these files" in told and told.endswith(
        where_to_get("cfimdb")
    )
    told = missing_data(RECIPES["hu/mirror"], SCALES["micro"], str(tmp_path))
    assert (
        "sst train: expected one of these files" in told
        and "`minbert data sst quora sts --data FOLDER --download`" in told
    )


def test_another_file_than_the_published_one_is_refused_at_the_papers_scale(paper, monkeypatch):
    for split in ("train", "dev"):
        put(paper, f"cs224n/ids-cfimdb-{split}.csv", "\tid\tsentence\tsentiment\n0\ta\tGood\t1\n")
    assert "expected SHA-256" in missing_data(
        RECIPES["dao-mehta-tian/cfimdb-full"], paper.scale, paper.data
    )
    assert (
        missing_data(RECIPES["dao-mehta-tian/cfimdb-full"], SCALES["micro"], paper.data) == ""
    )  # a toy, and its name says so


def test_a_set_with_fewer_rows_than_published_is_called_a_sample(paper, capsys, monkeypatch):
    assert {need for recipe in RECIPES.values() for need in recipe.needs} == {*PUBLISHED_ROWS}
    for split in ("train", "dev"):
        put(paper, f"cs224n/ids-sst-{split}.csv", "\tid\tsentence\tsentiment\n0\ta\tGood\t1\n")
    recipe = RECIPES["hu/mirror"]
    told = list(
        smaller_sets([recipe, recipe], paper.scale, paper.data)
    )  # what is missing is told elsewhere
    assert told == [
        f"sst/{split} in {paper.data} is a sample of 1 rows; the published set has {rows} or more"
        for split, rows in (("train", "8,544"), ("dev", "1,101"))
    ]
    assert not list(smaller_sets([recipe], SCALES["micro"], paper.data)) and not list(
        smaller_sets([recipe], paper.scale, None)
    )
    monkeypatch.setattr("minbert.cli.reproduction.run_recipes", lambda *_: iter(()))
    assert (
        f"note: {told[0]}\n"
        in typed(
            capsys, f"reproduce hu/mirror --scale paper --data {paper.data} --out {paper.out}"
        )[1]
    )


# --- text


def test_a_sample_of_wikipedia_is_no_million_sentences(paper, monkeypatch):
    """At the papers' scale nothing stands in for Wiki1M; below it a sample may, under its own name."""
    text = "".join(f"the {i} sentences have six words\n" for i in range(20))
    put(paper, WIKI[1], text)
    with pytest.raises(
        ValueError,
        match="expected wiki1m_for_simcse.txt in .* at scale paper, got none: wiki1m is to be had at https://huggingface.co/",
    ):
        wiki(paper)
    small = replace(paper, scale=SCALES["small"], texts={})
    assert len(wiki(small)) == 20 and small.texts == {WIKI[1]: 20}
    file = put(paper, WIKI[0], text)
    with pytest.raises(
        ValueError, match=rf"{file}: not the published file: expected 1,000,000 lines, got 20"
    ):
        wiki(paper)
    monkeypatch.setitem(
        manual_downloads.ELSEWHERE, "wiki1m", Elsewhere("https://home", {WIKI[0]: 20})
    )
    assert len(wiki(paper)) == 20 and paper.texts == {WIKI[0]: 20}


NLI = "gold_label\tsentence1\tsentence2\n" + "neutral\ta dog\ta cat\n" * 3


def test_captions_and_samples_have_names_that_say_so_and_never_stand_in_at_the_papers_scale(
    paper, monkeypatch
):
    micro = replace(paper, scale=SCALES["micro"], texts={})
    put(paper, "nli/mnli-train-sample.tsv", NLI)
    assert len(sts_suite.nli_of(micro)[0]) == 2
    sts_suite.nli_text(micro, 1.0)
    assert list(micro.texts) == ["captions of the package in place of snli and a sample of mnli"]
    with pytest.raises(
        ValueError,
        match="expected the 549,367 train rows of snli at scale paper, got captions of the package in place of snli, 6,884 rows: `minbert data snli",
    ):
        sts_suite.nli_text(paper, 1.0)
    put(paper, "nli/snli-train.tsv", NLI)
    with pytest.raises(
        ValueError, match="train rows of snli at scale paper, got a sample of snli, 3 rows"
    ):
        sts_suite.nli_text(paper, 1.0)
    monkeypatch.setattr(sts_suite, "WHOLE", {"snli": 3, "mnli": 10})
    with pytest.raises(
        ValueError, match="train rows of mnli at scale paper, got a sample of mnli, 3 rows"
    ):
        sts_suite.nli_text(paper, 1.0)
    monkeypatch.setattr(sts_suite, "WHOLE", {"snli": 3, "mnli": 3})
    assert len(sts_suite.nli_text(paper, 1.0)) == 12 and paper.texts == {"snli and mnli": 12}


def test_word_counts_have_a_home_and_a_checksum(paper):
    with pytest.raises(
        ValueError,
        match="enwiki-word-counts.txt: expected a file, got none: word counts is to be had at https://github.com/PrincetonML/SIF",
    ):
        li.crowding(paper, (0, 100))
    put(paper, li.COUNTS, "the 90\n")
    with pytest.raises(ValueError, match="expected SHA-256 472326d0b311..., got "):
        li.crowding(paper, (0, 100))
