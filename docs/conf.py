"""How the site is built: ``make docs``. Nothing is fetched, neither by the build nor by the pages."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from pathlib import Path

import fivesigma

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE / "_ext"))

project = "fivesigma"
author = "The fivesigma developers"
project_copyright = "The fivesigma developers, BSD-3-Clause"
version = release = fivesigma.__version__

extensions = [
    "myst_nb",
    "numpydoc",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx_copybutton",
    "sphinx_design",
    "mathml",
    "measured",
    "no_break",
    "shell_cells",
]
exclude_patterns = ["_build", "_ext", "_style", "figures/*.py"]
templates_path = ["_templates"]
nitpicky = True  # a reference that leads nowhere is an error
suppress_warnings = ["config.cache"]

# Pages
myst_enable_extensions = ["attrs_inline", "colon_fence", "deflist", "dollarmath", "substitution"]
myst_heading_anchors = 3
html_math_renderer = "mathml"

# Cells: each page in an empty folder, figures that follow the theme, an error ends the build.
nb_execution_mode = os.environ.get("FIVESIGMA_DOCS_EXECUTE", "force")
nb_execution_in_temp = True
nb_execution_timeout = 600  # seconds for a cell, on a busy machine
nb_execution_raise_on_error = True
nb_execution_show_tb = True
nb_merge_streams = True
nb_number_source_lines = False
_ipython = Path(tempfile.mkdtemp(prefix="fivesigma-docs-"))
_startup = _ipython / "profile_default" / "startup"
_startup.mkdir(parents=True)
shutil.copy(HERE / "_style" / "kernel.py", _startup / "00-kernel.py")
(_ipython / "profile_default" / "ipython_kernel_config.py").write_text(
    # The kernel talks to the build on this machine only, so that its warning about open ports says nothing new.
    'c = get_config()\nc.IPKernelApp.log_level = "ERROR"\nc.InlineBackend.figure_formats = set()\n'
)
EXTRA = HERE / "_build" / "extra"  # what pages write for the site
EXTRA.mkdir(parents=True, exist_ok=True)
html_extra_path = [str(EXTRA)]
os.environ |= {
    "FIVESIGMA_DOCS_EXTRA": str(EXTRA),
    "IPYTHONDIR": str(_ipython),
    "MATPLOTLIBRC": str(HERE / "_style" / "matplotlibrc"),
    "COLUMNS": "88",
    "NO_COLOR": "1",
    "OMP_NUM_THREADS": "1",
    "PYTHONPATH": os.pathsep.join([str(HERE.parent), str(HERE.parent / "src"), os.environ.get("PYTHONPATH", "")]),
    "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]),
}


# Reference
def _skip_inherited(app, what, name, obj, skip, options):  # noqa: ARG001, PLR0917 - Sphinx calls it with these
    """Leave out what scikit-learn documents itself."""
    of_sklearn = str(getattr(obj, "__module__", "")).startswith("sklearn.")
    return skip or of_sklearn or (name.startswith("set_") and name.endswith("_request"))


def setup(app):
    """Connect the handlers of this file."""
    app.connect("autodoc-skip-member", _skip_inherited)


autosummary_generate = True
autosummary_imported_members = False
autodoc_typehints = "none"  # docstrings say what arguments are
autodoc_member_order = "bysource"
numpydoc_show_class_members = False
numpydoc_class_members_toctree = False
toc_object_entries_show_parents = "hide"
copybutton_exclude = ".linenos, .gp, .go"
copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True

# Look
html_theme = "pydata_sphinx_theme"
html_title = "fivesigma"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_logo = "_static/logo.svg"
html_favicon = "_static/logo.svg"
html_show_sourcelink = False
html_theme_options = {
    "logo": {"text": "fivesigma"},
    "header_links_before_dropdown": 8,
    "navbar_align": "left",
    "show_toc_level": 2,
    "secondary_sidebar_items": ["page-toc"],
    "footer_start": ["copyright"],
    "footer_end": ["theme-version"],
    "show_prev_next": True,
    "pygments_light_style": "a11y-high-contrast-light",
    "pygments_dark_style": "a11y-high-contrast-dark",
    "search_bar_text": "Search",
}
html_sidebars = {"changelog": [], "start": [], "install": []}
