"""A learner in a real JupyterLab with a real browser: opens a workspace, reads what a check says,
writes the answer.

Run by MINBERT_BROWSER=/usr/bin/chromium pytest -m browser tests/test_learner.py (.ci/run sets it);
MINBERT_SHOTS names an existing folder for screenshots.
"""

import os
import shutil
import sys
from pathlib import Path

import pytest
from test_browser import FLAGS, PATIENCE, ROOT, lab, opened, run_all

sys.path.insert(0, str(ROOT / "scripts"))
import lab as start  # noqa: E402

from minbert.course.exercises import EXERCISES, wrong_definition
from minbert.course.workspace import new_workspace

pytestmark = pytest.mark.browser


def test_a_learner_reads_the_check_and_writes_the_answer(tmp_path_factory, tmp_path):
    """A new workspace: the first cell that needs an answer says so. With a mistake in it the check
    names the mistake; solved, it passes.
    """
    folder = new_workspace(tmp_path_factory.mktemp("learner") / "my-bert")
    tasks = [e for e in EXERCISES.values() if e.module == "attention"]
    tasks = tasks[: [task.name for task in tasks].index("attention.scores") + 1]
    with opened(folder, "nbs/1_bert/02_attention.ipynb") as page:
        write = """([stub, text]) => { const cell = window.jupyterapp.shell.currentWidget.content.widgets.find(c => c.model.sharedModel.source.includes(stub));
                    cell.model.sharedModel.setSource(cell.model.sharedModel.source.replace(stub, text)); }"""

        def body(definition):
            return definition.split('"""')[-1].strip("\n").strip()

        for task in tasks:
            errors = run_all(page)
            assert len(errors) == 1 and any(
                words in errors[0]
                for words in (
                    f"exercise {task.name}",
                    f"{task.name}: not written yet",
                    f"{task.name}: not yet",  # a planted mistake
                )
            )
            bad = task.mistakes[0] if task is tasks[-1] else None
            page.evaluate(
                write,
                [
                    body(task.given)
                    if task.planted
                    else f"raise NotImplementedError('exercise {task.name}')",
                    body(wrong_definition(task, bad) if bad else task.definition),
                ],
            )
        run_all(page)
        message = page.evaluate("""async () => { const panel = window.jupyterapp.shell.currentWidget; const cells = panel.content.widgets;
            const at = cells.findIndex(c => c.model.type === 'code' && c.model.sharedModel.source.includes('check("attention.scores"'));
            panel.content.activeCellIndex = at; await window.jupyterapp.commands.execute('notebook:run-cell');
            panel.content.scrollToItem(at); return cells[at].model.outputs.toJSON().map(o => (o.evalue || '') + (o.text || '')).join(' '); }""")
        page.screenshot(
            path=Path(os.environ.get("MINBERT_SHOTS") or tmp_path) / "learner_mistake.png"
        )
        assert tasks[-1].mistakes[0].says in message, message
        assert page.problems == []


def test_the_lab_opens_on_the_map_with_the_list_of_files_folded(tmp_path):
    """As `make lab` starts it: the workspace's map, with the layout that a reader's own replaces
    later; one click leads to the solved book.
    """
    from playwright.sync_api import sync_playwright

    (tmp_path / "nbs").mkdir()
    shutil.copy(ROOT / "nbs" / "index.ipynb", tmp_path / "nbs")
    shutil.copytree(ROOT / "nbs" / "images", tmp_path / "nbs" / "images")
    start.prepare(tmp_path)
    (tmp_path / ".own").mkdir()
    shutil.copytree(start.layout(tmp_path), tmp_path / ".own" / "workspaces")
    with lab(tmp_path) as base, sync_playwright() as p:
        browser = p.chromium.launch(
            executable_path=os.environ.get("MINBERT_BROWSER", "/usr/bin/chromium"), args=FLAGS
        )
        page = browser.new_page(viewport={"width": 1250, "height": 950})
        page.set_default_timeout(PATIENCE * 1000)
        page.goto(f"{base}/lab/tree/{start.FOLDER}/nbs/index.ipynb")
        page.wait_for_function(
            "() => window.jupyterapp?.shell.currentWidget?.sessionContext?.session?.kernel?.status === 'idle'"
        )
        picture = page.locator(".jp-Notebook img").first
        picture.wait_for()
        page.wait_for_function(
            "() => { const img = document.querySelector('.jp-Notebook img'); return img.complete && img.naturalWidth > 0; }"
        )
        assert picture.bounding_box()["y"] < 600  # on the first screen
        assert page.evaluate("() => window.jupyterapp.shell.leftCollapsed")
        for link, opened_as in (
            ("Hello, BERT", f"{start.FOLDER}/nbs/1_bert/00_hello.ipynb"),
            ("The same page in the book", "nbs/index.ipynb"),
        ):
            page.evaluate(
                f"async () => {{ await window.jupyterapp.commands.execute('docmanager:open', {{path: '{start.FOLDER}/nbs/index.ipynb'}}); }}"
            )
            page.locator(".jp-Notebook:visible a", has_text=link).first.click()
            page.wait_for_function(
                f"() => window.jupyterapp.shell.currentWidget?.context?.path === '{opened_as}'"
            )
        page.evaluate(
            "async () => { await window.jupyterapp.serviceManager.sessions.shutdownAll(); }"
        )
        browser.close()
