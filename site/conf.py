"""Sphinx's settings. `scripts/build_site.py` assembles the pages; nothing here asks a network for
anything.
"""

import sys
from configparser import ConfigParser
from pathlib import Path

import yaml

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
_found = ConfigParser(delimiters=["="])
_found.read(HERE.parent / "settings.ini", encoding="utf-8")
_settings = _found["DEFAULT"]

project, author, release = _settings["lib_name"], _settings["author"], _settings["version"]
copyright = _settings["copyright"]
root_doc, language = "index", "en"
extensions = ["myst_nb", "book"]
exclude_patterns = []
suppress_warnings = ["myst.header", "misc.highlighting_failure"]

nb_execution_mode = "off"  # pages show the outputs that the notebooks hold
nb_ipywidgets_js = {}  # widgets need a kernel; their scripts would come from another host
nb_render_markdown_format = "myst"
myst_enable_extensions = ["dollarmath", "amsmath", "colon_fence", "fieldlist", "attrs_block"]
myst_heading_anchors = 4
myst_links_external_new_tab = False
html_math_renderer = "mathml"

html_theme = "furo"
html_title = project
html_static_path = ["static"]
html_favicon = "static/favicon.svg"
html_css_files = ["site.css"]
html_baseurl = _settings.get("site_address", "")
html_copy_source = False
html_show_sphinx = False
# a summary would be fetched, which no browser does for files on a disk
html_show_search_summary = False
html_theme_options = {"navigation_with_keys": True}
pygments_style = "a11y-high-contrast-light"
pygments_dark_style = "a11y-high-contrast-dark"
_glossary = yaml.safe_load((HERE / "glossary.yml").read_text(encoding="utf-8"))
glossary_names = {
    entry["term"]: [entry["term"], *entry.get("also", [])]
    for entry in sorted(_glossary, key=lambda entry: -len(entry["term"]))
}
