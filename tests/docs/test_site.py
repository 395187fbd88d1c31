"""The site: it builds without a warning, and everything in it leads somewhere."""

import html.parser
import os
import subprocess
import sys
from urllib.parse import unquote

import pytest

import jccl
from tests.docs.markdown import ROOT, documents

sys.path.insert(0, str(ROOT / "docs" / "site"))

import docstrings
import nav
import stage

FETCHED = {("script", "src"), ("link", "href"), ("img", "src"), ("iframe", "src")}


class Page(html.parser.HTMLParser):
    def __init__(self, path):
        super().__init__()
        self.ids, self.links, self.fetched = set(), [], []
        self.feed(path.read_text())

    def handle_starttag(self, tag, attrs):
        for key, value in attrs:
            if key == "id":
                self.ids.add(value)
            elif (tag, key) in FETCHED and dict(attrs).get("rel") != "canonical":
                self.fetched.append(value)
            elif (tag, key) == ("a", "href"):
                self.links.append(value)


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    pytest.importorskip("sphinx", reason="Sphinx is missing: pip install '.[docs]'")
    out = tmp_path_factory.mktemp("site")
    done = subprocess.run(
        [sys.executable, "docs/site/build.py", str(out)],
        cwd=ROOT,
        env={**os.environ, "JAX_PLATFORMS": "cpu"},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    return {path.resolve(): Page(path) for path in out.rglob("*.html")}


def test_each_link_leads_to_a_page_and_a_place_in_it(site):
    wrong = []
    for path, page in site.items():
        for link in page.links:
            file, _, anchor = unquote(link).partition("#")
            if "://" in file or file.startswith("mailto:"):
                continue
            target = (path.parent / file).resolve() if file else path
            if target not in site:
                if not target.exists():
                    wrong.append(f"{path.name}: {link}")
            elif anchor and anchor not in site[target].ids:
                wrong.append(f"{path.name}: {link}")
    assert not wrong


def test_nothing_is_fetched_from_another_host(site):
    for path, page in site.items():
        assert not [url for url in page.fetched if "//" in url], path.name


def test_every_public_name_has_a_page_and_words_are_searched(site):
    top = next(path.parent for path in site if path.name == "genindex.html")
    on_pages = {
        name
        for path in site
        if path.parent.name == "api"
        for name in [path.stem, *site[path].ids]
    }
    missing = [
        name
        for name in jccl.__all__
        if name not in stage.NO_PAGE
        and name not in on_pages
        and f"jccl.{name}" not in on_pages
    ]
    assert not missing
    assert (top / "searchindex.js").stat().st_size > 100_000


def test_every_document_is_in_one_section():
    assert len(nav.PAGES) == len(set(nav.PAGES))
    written = {
        str(path.relative_to(ROOT)).removesuffix(".md")
        for path in documents()
        if path.parts[len(ROOT.parts)] in {"docs", "cpp"} or path.parent == ROOT
    }
    left_out = {"README", *nav.NOT_HERE}
    assert written - left_out <= set(nav.PAGES)
    assert set(nav.PAGES) - {"docs/reference"} <= written | {"benchmarks/wan/README"}


def test_sections_lists_and_examples_of_a_docstring_are_told_apart():
    text = """Sums |x|.

    Two ways: `a*b`, or
    * one
    * two

    Args:
        x: an array, by_ name.
          * or a list
        **options: more
    Cost: little.

    Example:
        >>> f(1)
    """
    lines = [line.removeprefix("    ") for line in text.splitlines()]
    expected = (
        r"Sums \|x\|. Two ways: ``a*b``, or * one * two **Args** "
        r"* ``x``: an array, by\_ name. * or a list * ``**options``: more "
        r"**Cost** little. **Example** :: >>> f(1)"
    )
    assert " ".join("\n".join(docstrings.as_rst(lines)).split()) == expected
