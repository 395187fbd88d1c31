"""Public names are built of the glossary's terms and of common words of the field, and
names that were given up stay away."""

import ast
import re

import click
import pytest

import jccl
from jccl.cli import group
from tests.docs.markdown import LINK, ROOT
from tests.tidy import words

GLOSSARY = ROOT / "docs" / "glossary.md"
HEADER = ROOT / "cpp" / "include" / "jccl" / "jccl.h"
TERMS_MAX = 40
PART = re.compile(r"[A-Z]+(?=[A-Z][a-z])|[A-Z]?[a-z]+|[A-Z]+")


def glossary():
    """(term, meaning, where) of each row."""
    rows = re.findall(
        r"^\| ([^|]+) \| ([^|]+) \| ([^|]+) \|$", GLOSSARY.read_text(), re.M
    )
    return [row for row in rows if row[0] not in ("term", "---")]


def common():
    return {word for text in words.COMMON.values() for word in text.split()}


def known():
    return {term for term, _, _ in glossary()} | common()


def unknown_in(name, vocabulary):
    """The parts of a name that are no words of the vocabulary."""
    parts = [part.lower() for part in PART.findall(name)]
    return [p for p in parts if not spelt(p) & vocabulary]


def spelt(part):
    """A word, and what it may be the plural of."""
    return {part, part.removesuffix("s"), part.removesuffix("es")}


# ---- the public names ----------------------------------------------------------------


def python_names():
    yield from jccl.__all__
    for path in sorted((ROOT / "jccl").rglob("*.py")):
        module = path.relative_to(ROOT / "jccl").with_suffix("").parts
        if module == ("__init__",) or any(re.match("_[^_]", part) for part in module):
            continue
        public = len(module) == 1 and module[0] in jccl._MODULES
        yield from listed(ast.parse(path.read_text()), whole=public)


def listed(tree, whole):
    """What `__all__` lists; without it, what a module that is public defines."""
    for node in tree.body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            return ast.literal_eval(node.value)
    if not whole:
        return []
    defined = (ast.FunctionDef, ast.ClassDef)
    return [
        n.name
        for n in tree.body
        if isinstance(n, defined) and not n.name.startswith("_")
    ]


def c_names():
    """Functions, types, constants, and fields of structs."""
    code = re.sub(r"/\*.*?\*/", "", HEADER.read_text(), flags=re.S)
    yield from re.findall(r"\b(?:jccl|JCCL)_\w+", code)
    for body in re.findall(r"typedef struct \{(.*?)\} jccl_\w+;", code, re.S):
        yield from re.findall(r"(\w+)(?:\[\d+\])?;", body)


def command_names(command=group):
    for parameter in command.params:
        if isinstance(parameter, click.Option):
            yield from parameter.opts + parameter.secondary_opts
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            yield name
            yield from command_names(command.get_command(context, name))


NAMES = {
    "Python": lambda: set(python_names()),
    "C": lambda: set(c_names()),
    "command line": lambda: set(command_names()),
}


@pytest.mark.parametrize("kind", NAMES)
def test_public_names_are_built_of_known_words(kind):
    vocabulary = known()
    strange = {name: unknown_in(name, vocabulary) for name in NAMES[kind]()}
    assert {name: parts for name, parts in strange.items() if parts} == {}, (
        "use a term of docs/glossary.md, or add a word that the field has to "
        "tests/tidy/words.py"
    )


def test_the_names_are_found():
    found = {kind: names() for kind, names in NAMES.items()}
    assert {"all_reduce", "Pacer", "specs_like"} <= found["Python"]
    assert {"jccl_wait", "JCCL_TOO_FEW", "out_private", "run"} <= found["C"]
    assert {"bench", "revoke", "--kill-every", "-n"} <= found["command line"]


def test_a_name_of_unknown_words_is_refused():
    vocabulary = known()
    assert unknown_in("all_reduce", vocabulary) == []
    assert unknown_in("BusyTagError", vocabulary) == []
    assert unknown_in("ArrivalNotes", vocabulary) == ["arrival", "notes"]
    assert unknown_in("--door-open", vocabulary) == ["door", "open"]


def test_every_listed_word_is_in_a_public_name():
    used = {
        word
        for names in NAMES.values()
        for name in names()
        for part in PART.findall(name)
        for word in spelt(part.lower())
    }
    assert sorted(common() - used) == []


# ---- the glossary --------------------------------------------------------------------


def test_the_glossary_is_short_and_names_each_thing_once():
    terms = [term for term, _, _ in glossary()]
    assert 30 <= len(terms) <= TERMS_MAX
    assert len(set(terms)) == len(terms)
    assert not set(terms) & common(), "a word is in the glossary or common, not both"


@pytest.mark.parametrize("term, meaning, where", glossary())
def test_a_term_is_one_sentence_and_a_file_that_uses_it(term, meaning, where):
    assert meaning.endswith(".") and not re.search(r"[.?!;] ", meaning)
    for target in LINK.findall(where):
        assert term in (GLOSSARY.parent / target).read_text().lower()
    assert LINK.findall(where)


# ---- names that were given up --------------------------------------------------------


def places(pattern, folders, suffixes):
    """Where a pattern is found: `file:line`. The lists of these tests do not count."""
    for path in sorted(p for f in folders for p in (ROOT / f).rglob("*")):
        name = path.relative_to(ROOT)
        if path.suffix in suffixes and "tidy" not in name.parts:
            for number, line in enumerate(path.read_text().splitlines(), 1):
                if re.search(pattern, line):
                    yield f"{name}:{number}"


@pytest.mark.parametrize("pattern", words.GIVEN_UP)
def test_a_name_that_was_given_up_stays_away(pattern):
    instead, *where = words.GIVEN_UP[pattern]
    assert list(places(pattern, *where)) == [], f"write {instead}"
