"""Sphinx configuration of the website: python -m sphinx -W -b html docs docs/_build/html."""

from __future__ import annotations

import locale
import os
import re
from importlib import metadata

from docutils import nodes
from docutils.utils.math.latex2mathml import tex2mathml
from sphinx.application import Sphinx
from sphinx.writers.html5 import HTML5Translator

# cf-units cannot restore the locale that Sphinx has set where that is C.UTF-8.
locale.setlocale(locale.LC_NUMERIC, "C")

project = "invgp"
author = "The invgp developers"
copyright = author  # noqa: A001 - Sphinx's name
release = metadata.version("invgp")

extensions = [
    "myst_nb",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.napoleon",
    "sphinx.ext.viewcode",
    "sphinx_copybutton",
]
exclude_patterns = ["_build"]
nb_execution_mode = "off"  # docs/make_notebooks.py executes them
copybutton_prompt_text = r"^\$ "
copybutton_prompt_is_regexp = True

# Links into the documentation of other packages need the network, which other builds must not need.
if os.environ.get("READTHEDOCS"):
    extensions.append("sphinx.ext.intersphinx")
    intersphinx_mapping = {
        "python": ("https://docs.python.org/3", None),
        "numpy": ("https://numpy.org/doc/stable", None),
        "xarray": ("https://docs.xarray.dev/en/stable", None),
        "matplotlib": ("https://matplotlib.org/stable", None),
    }
myst_enable_extensions = ["dollarmath"]
myst_heading_anchors = 3
smartquotes = False  # readers copy options such as --from-data and unit = "m"

default_role = "literal"  # in docstrings, `name` is code
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_preserve_defaults = True
napoleon_use_rtype = False

html_theme = "furo"
html_title = "invgp"
html_show_copyright = False
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_math_renderer = "mathml"


def render_math(tex: str, *, as_block: bool = False) -> str:
    """Convert TeX to MathML, which browsers render without a script or network access."""
    math = tex2mathml(tex, as_block=as_block).replace("<mo>‖</mo>", '<mo stretchy="false">‖</mo>')
    return re.sub(
        r"<mo>&ApplyFunction;</mo>(?!\s*<mo)", '<mspace width="0.1667em"></mspace>', math
    )  # thin space, as in log p


def visit_math(self: HTML5Translator, node: nodes.math) -> None:
    """Render inline math."""
    self.body.append(render_math(node.astext()))
    raise nodes.SkipNode


def visit_displayed_math(self: HTML5Translator, node: nodes.math_block) -> None:
    """Render displayed math."""
    self.body.append(f'<div class="math">{render_math(node.astext(), as_block=True)}</div>')
    raise nodes.SkipNode


def uncover_directives(_app: Sphinx, _name: str, source: list[str]) -> None:
    """Remove the comment marks around directives that a Git host would show as text: ``<!-- site ... -->``."""
    source[0] = re.sub(r"^<!-- site\n(.*?)^-->$", r"\1", source[0], flags=re.DOTALL | re.MULTILINE)


def setup(app: Sphinx) -> None:
    """Register the renderer of formulas and the treatment of hidden directives."""
    app.connect("source-read", uncover_directives)
    app.add_html_math_renderer("mathml", (visit_math, None), (visit_displayed_math, None))
