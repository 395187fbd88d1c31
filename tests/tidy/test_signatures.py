"""No public function has more parameters than a reader keeps in mind, and what it takes
is what its help says: parameters, fields of groups, which of these have an effect."""

import dataclasses
import importlib
import inspect
import re
import tomllib
from typing import get_overloads

import pytest

import jccl
from jccl import _round
from jccl._groups import Group, groups_of
from tests.docs.markdown import ROOT

MOST = 8
# The functions of `jccl.cli` get what the command line hands over.
MODULES = ["optim", *(name for name in jccl._MODULES if name != "cli")]
# Constructors with more, which no user calls.
READ_NOT_MADE = {
    "Result": "what a round gives: read by its fields",
    "DilocoState": "made by `init` of an optimizer, read by its fields",
    "Claim": "what a peer committed to: read from an optimizer's state",
    "Record": "what a checkpoint's manifest holds: read from a store",
}


def public(module):
    """(name, object) of what a module offers."""
    names = getattr(module, "__all__", None)
    if names is None:
        names = [
            name
            for name, one in vars(module).items()
            if name[0] != "_" and getattr(one, "__module__", "") == module.__name__
        ]
    for name in names:
        yield name, getattr(module, name)


def callables():
    """(name, callable): functions, constructors and methods, without self."""
    places = [jccl, *(importlib.import_module(f"jccl.{name}") for name in MODULES)]
    for place in places:
        for name, one in public(place):
            label = f"{place.__name__}.{name}"
            if inspect.isclass(one):
                yield label, one
                for word, member in inspect.getmembers(one):
                    if word[0] != "_" and inspect.isroutine(member):
                        yield f"{label}.{word}", member
            elif inspect.isroutine(one):
                yield label, one


def parameters(one):
    try:
        found = inspect.signature(one).parameters
    except ValueError:  # of the builtins, as a method of a tuple
        return []
    return [name for name in found if name not in ("self", "cls")]


ALL = dict(callables())


def test_the_callables_are_found():
    assert {"jccl.connect", "jccl.Communicator.start", "jccl.all_reduce"} <= set(ALL)
    assert {"jccl.optim.diloco", "jccl.testing.Cluster.run", "jccl.Travel"} <= set(ALL)
    assert "jccl.checkpoint.Checkpoints.restore" in ALL and len(ALL) > 150


def test_no_public_function_has_more_than_eight_parameters():
    long = {
        name: len(parameters(one))
        for name, one in ALL.items()
        if len(parameters(one)) > MOST
    }
    excused = {name for name in long if name.rpartition(".")[2] in READ_NOT_MADE}
    assert {name: n for name, n in long.items() if name not in excused} == {}
    assert {name.rpartition(".")[2] for name in excused} <= set(READ_NOT_MADE)


def test_a_function_with_more_would_be_found():
    def long(a, b, c, d, e, f, g, h, i):
        pass

    assert len(parameters(long)) > MOST


def described(text):
    """The names that the part `Args:` of a help describes."""
    part = re.split(r"\n(?=\S)", text.partition("Args:\n")[2])[0]
    rows = re.findall(r"^    (\w+(?:, \w+)*): ", part, re.M)
    return [name for row in rows for name in row.split(", ")]


GROUPS = [
    one for _, one in public(jccl) if inspect.isclass(one) and issubclass(one, Group)
]


@pytest.mark.parametrize("group", GROUPS)
def test_the_help_of_a_group_describes_every_field(group):
    fields = [field.name for field in dataclasses.fields(group)]
    assert described(inspect.getdoc(group)) == fields
    assert group() == group()  # a default for every field


def test_all_groups_are_public():
    taken = {type(group) for one in ALL.values() for group in groups_of_any(one)}
    assert taken and taken <= set(GROUPS)


def test_make_types_reads_what_type_checkers_know_of_calls():
    read = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["mypy"]["files"]
    assert "tests/tidy/typed_calls.py" in read
    typed = (ROOT / "tests" / "tidy" / "typed_calls.py").read_text()
    calls = {name: one for name, one in ALL.items() if inspect.isfunction(one)}
    overloaded = [n for n, one in calls.items() if get_overloads(inspect.unwrap(one))]
    assert len(overloaded) > 8
    for name in overloaded:
        assert re.search(rf"\b{name.rpartition('.')[2]}\(", typed), name


def groups_of_any(one):
    try:
        return groups_of(one).values()
    except ValueError:
        return []


FAMILY = ["connect", "diloco", "eager_diloco", "sparse_loco", "between_steps"]


@pytest.mark.parametrize("name", FAMILY)
def test_help_describes_every_parameter(name):
    one = getattr(jccl, name)
    assert sorted(described(inspect.getdoc(one))) == sorted(parameters(one))


def named(text, group):
    """The fields that a help lists after the name of a group."""
    listed = re.search(rf"`jccl\.{group}`:\s+([^.`]*)", text)
    return set(re.findall(r"\w+", listed[1])) if listed else None


@pytest.mark.parametrize("name", ["connect", "diloco"])
def test_help_lists_every_field_of_every_group(name):
    one = getattr(jccl, name)
    for group in map(type, groups_of(one).values()):
        if group is not jccl.Place:  # of which an optimizer takes two fields
            fields = {field.name for field in dataclasses.fields(group)}
            assert named(inspect.getdoc(one), group.__name__) == fields


@pytest.mark.parametrize("verb", [v for v in _round.TERMS if "." not in v])
def test_help_lists_the_fields_of_a_round_and_a_place_that_have_an_effect(verb):
    text = inspect.getdoc(getattr(jccl, verb))
    terms = set(_round.TERMS[verb])
    more = {"join_timeout"} if _round.EFFECTS[verb][2] else set()  # over devices
    if terms:
        assert named(text, "Round") == terms | more
    fields = set(" ".join(_round.EFFECTS[verb]).split())
    if fields:
        part = text.partition("place: ")[2].partition("Returns:")[0]
        every = {field.name for field in dataclasses.fields(jccl.Place)}
        assert {word for word in re.findall(r"\w+", part) if word in every} == fields


def test_the_help_of_a_function_describes_the_fields_that_it_takes():
    text = inspect.getdoc(jccl.broadcast)
    part = text.partition("Fields of `round`, a `jccl.Round`:\n")[2]
    about = inspect.getdoc(jccl.Round)
    for field in _round.TERMS["broadcast"]:
        (row,) = re.findall(rf"^    {field}: .*(?:\n {{8}}.*)*", about, re.M)
        assert row in part
    assert "plan: " not in part and "in_place: " not in part
    assert "Fields of `each`, a `jccl.Round`:" in inspect.getdoc(jccl.diloco)
