"""How Sphinx builds the site: `make docs`. Its sources are laid out by stage.py."""

import docstrings

project = "jccl"
author = "The jccl authors"
extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx_copybutton",
]
html_theme = "furo"
html_title = "jccl"
pygments_dark_style = "github-dark"  # furo's underlines imported names
html_show_sphinx = False
html_show_copyright = False
html_copy_source = False
myst_heading_anchors = 4
autodoc_typehints = "none"  # the signature has them
autodoc_member_order = "bysource"
copybutton_prompt_text = r"\$ |>>> "
copybutton_prompt_is_regexp = True


def setup(app):
    def rewrite(app, what, name, obj, options, lines):
        lines[:] = docstrings.as_rst(list(lines))

    app.connect("autodoc-process-docstring", rewrite)
