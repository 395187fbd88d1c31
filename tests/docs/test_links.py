"""Links lead somewhere, and every document can be reached from the index."""

import pytest

from tests.docs.markdown import LINK, ROOT, documents, name, prose, targets

INDEX = ROOT / "docs" / "index.md"


def links(path):
    """(target file, anchor) of the links that stay in the tree."""
    for target in LINK.findall(prose(path)):
        if "://" not in target and not target.startswith("mailto:"):
            file, _, anchor = target.partition("#")
            yield (path.parent / file).resolve() if file else path, anchor


@pytest.mark.parametrize("path", documents(), ids=name)
def test_links_lead_to_files_headings_and_tests_that_exist(path):
    wrong = []
    for target, anchor in links(path):
        if not target.exists():
            wrong.append(f"{target} does not exist")
        elif anchor and anchor not in targets(target):
            wrong.append(f"{name(target)} has no #{anchor}")
    assert not wrong


def test_every_document_is_linked_from_the_index():
    linked = {target for target, _ in links(INDEX)} | {INDEX}
    assert not [name(path) for path in documents() if path not in linked]


def test_the_readme_opens_with_what_it_is_and_the_two_commands():
    head = (ROOT / "README.md").read_text()[:1500]
    assert head.startswith("# jccl\n")
    assert "make demo" in head and "make test" in head
