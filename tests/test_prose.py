"""What the text says, the screen shows: a number in the prose of a chapter stands in an output or a
line of code of the same chapter.

Numbers from elsewhere are listed here with their source, so that nobody writes one down without
having seen it.
"""

import re
from collections import Counter
from pathlib import Path

import nbformat
import pytest

ROOT = Path(__file__).resolve().parent.parent
CHAPTERS = sorted((ROOT / "nbs").glob("[1-5a]*/*.ipynb"))
FORMULA = re.compile(r"`[^`]*`|\$\$.*?\$\$|\$[^$]*\$", re.S)
# two or three digits behind the point, as results have them
SAID = re.compile(r"(?<![\w.,/-])(\d?\.\d{2,3})(?![\w.])")
SHOWN = re.compile(r"(?<![\w.])\d*\.\d+(?:e-?\d+)?")

PAPER, PICTURE = "a paper, named beside it", "read off the picture beside it"
SUM = "difference, product or interval of numbers shown"
ELSEWHERE = {  # chapter -> number -> where it comes from
    "06_training": dict.fromkeys(
        ("0.60", "0.62", "0.66", "0.69", "0.53", "2.10", "2.09"), "an example in an exercise"
    ),
    "12_evaluation": {
        "0.625": SUM,
        "0.681": SUM,
        "4.30": "Student's t distribution",
        "2.26": "Student's t distribution",
        "0.53": "an example in a question",
    },
    "13_finetune": dict.fromkeys(("0.046", "0.100", "0.110"), SUM),
    "08_sentence": {"0.026": SUM, "0.98": "an output of chapter 30, named beside it"},
    "09_data": {"0.66": "an example in a question"},
    "11_heads": {"0.455": PAPER, "0.141": SUM},
    "14_similarity": dict.fromkeys(
        "0.246 0.388 0.464 0.505 0.538 0.548 0.551 0.580 0.584 0.597 0.611 0.613 0.632 0.637 0.683 0.707".split(),
        PAPER,
    ),
    "15_whitening": {
        **dict.fromkeys(
            "0.003 0.032 0.033 0.036 0.045 0.054 0.071".split(),
            "stored predictions in results/recipes, compared by minbert.papers.report",
        ),
        **dict.fromkeys("0.055 0.131 0.473 0.604 0.637 0.676 0.750 0.766".split(), PAPER),
        **dict.fromkeys("0.062".split(), SUM),
    },
    "16_contrastive": {
        "0.729": "chapter 31",
        "0.125": SUM,
    },
    "17_simcse": {
        **dict.fromkeys("0.514 0.736 0.745".split(), PAPER),
        "0.729": "chapter 31",
    },
    "20_bertflow": {
        **dict.fromkeys("0.225 0.183".split(), SUM),
        **dict.fromkeys("0.15 0.692".split(), PAPER),
    },
    "21_bertcf": dict.fromkeys("0.514 0.517 0.629 0.736 0.739 0.745 0.746".split(), PAPER),
    "24_bregman": dict.fromkeys("0.077 0.635 0.712 0.892 0.909 0.915 0.929".split(), PAPER),
    "23_smart": {
        **dict.fromkeys(
            "0.006 0.027 0.034 0.087 0.635 0.712 0.892 0.909 0.915 0.929".split(), PAPER
        ),
        **dict.fromkeys(("0.527", "0.673", "0.830", "0.823"), "the same cells with seed=1"),
        **dict.fromkeys(("0.038", "0.078"), "the same cells with steps=120"),
    },
    "18_negatives": {
        **dict.fromkeys(("0.473", "0.770"), PAPER),
        **dict.fromkeys(("0.156", "0.088", "0.224"), "the table of chapter 31"),
        **dict.fromkeys(("0.032", "0.058"), "the table of chapter 26"),
        "0.117": SUM,
    },
    "25_pcgrad": {
        **dict.fromkeys("0.334 0.502 0.503 0.510 0.511 0.519 0.673".split(), PAPER),
        **dict.fromkeys(("0.170",), SUM),
    },
}


def said(notebook) -> set[str]:
    """The numbers of the prose, as they are written."""
    return {
        number
        for cell in notebook.cells
        if cell.cell_type == "markdown"
        for number in SAID.findall(FORMULA.sub(" ", cell.source))
    }


def shown(notebook) -> list[float]:
    """The numbers of code and text outputs."""
    texts = [cell.source for cell in notebook.cells if cell.cell_type == "code"]
    for output in (o for cell in notebook.cells if cell.cell_type == "code" for o in cell.outputs):
        texts += [
            output.get("text", ""),
            *(
                str(value)
                for kind, value in output.get("data", {}).items()
                if kind.startswith("text")
            ),
        ]
    return [float(number) for text in texts for number in SHOWN.findall(text)]


def missing(notebook) -> set[str]:
    """Numbers of the prose that no number shown rounds to."""
    numbers = shown(notebook)

    def digits(number):
        return len(number.partition(".")[2])

    return {
        n
        for n in said(notebook)
        if not any(abs(x - float(n)) <= 0.51 * 10 ** -digits(n) for x in numbers)
    }


@pytest.mark.parametrize("file", CHAPTERS, ids=lambda f: f.stem)
def test_each_number_of_the_prose_is_on_the_screen(file):
    notebook = nbformat.read(file, as_version=4)
    unknown = missing(notebook) - set(ELSEWHERE.get(file.stem, {}))
    assert not unknown, (
        f"in the prose of {file.name}, in no output, and without a source in {Path(__file__).name}: {sorted(unknown)}"
    )


def twice(notebook) -> list[str]:
    """Headings and paragraphs that stand in it more than once."""
    parts = [
        part.strip()
        for cell in notebook.cells
        if cell.cell_type == "markdown"
        for part in re.split(r"\n\s*\n", cell.source)
    ]
    return sorted(
        part
        for part, times in Counter(parts).items()
        if times > 1 and (part.startswith("#") or len(part) > 60)
    )


@pytest.mark.parametrize("file", CHAPTERS, ids=lambda f: f.stem)
def test_nothing_is_said_twice(file):
    assert twice(nbformat.read(file, as_version=4)) == []


def test_what_is_said_twice_is_found():
    cell = nbformat.v4.new_markdown_cell
    long = "A sentence that is long enough to be told from a word, such as this one is."
    assert twice(
        nbformat.v4.new_notebook(
            cells=[cell(f"## A\n\n{long}"), cell(f"Between.\n\n## A\n\n{long}"), cell("Between.")]
        )
    ) == ["## A", long]


def test_no_source_outlives_its_number():
    stems = {file.stem: file for file in CHAPTERS}
    assert set(ELSEWHERE) <= set(stems)
    for stem, numbers in ELSEWHERE.items():
        assert set(numbers) <= missing(nbformat.read(stems[stem], as_version=4)), stem


def test_a_number_from_nowhere_is_found():
    cells = [
        nbformat.v4.new_markdown_cell(
            "The model scores .731 of .75, and `.999` or $.888$ is code."
        ),
        nbformat.v4.new_code_cell(
            "x", outputs=[nbformat.v4.new_output("stream", text="score 0.7312\n")]
        ),
    ]
    assert missing(nbformat.v4.new_notebook(cells=cells)) == {".75"}


REWRITTEN = (
    "00_hello 01_tokens 02_attention 03_embedding 04_encoder 05_optim 06_training "
    "28_corpus 29_muon 30_center 07_pretrain 08_sentence 09_data 10_losses 11_heads "
    "12_evaluation 14_similarity 13_finetune 15_whitening 16_contrastive 17_simcse 19_flows 20_bertflow "
    "21_bertcf 22_smoothness 24_bregman 23_smart 18_negatives 25_pcgrad 32_synthetic "
    "27_replication 31_bertcf_results 26_ablations"
).split()


@pytest.mark.parametrize("name", REWRITTEN)
def test_a_chapter_begins_with_its_topic_and_ends_with_a_summary(name):
    (file,) = [path for path in CHAPTERS if path.stem == name]
    notebook = nbformat.read(file, as_version=4)
    texts = [cell.source for cell in notebook.cells if cell.cell_type == "markdown"]
    assert texts[0].startswith("# ") and "| **Time** |" in texts[0]
    assert any("## Summary" in text for text in texts[-3:]), (
        f"{name}: expected a summary at its end"
    )
