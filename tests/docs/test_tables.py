"""Tables and pictures that repeat the code say what the code says."""

import dataclasses
import importlib.util
import inspect
import re

import pytest

import jccl
from jccl._groups import groups_of
from tests.docs.markdown import ROOT, documents, name, prose
from tests.tidy import strata

SETTINGS = ROOT / "docs" / "settings.md"
VARIABLE = re.compile(r"\bJCCL_[A-Z]+(?:_[A-Z]+)*\b")


def load_generator():
    spec = importlib.util.spec_from_file_location(
        "docs_generate", ROOT / "docs" / "generate.py"
    )
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


generate = load_generator()


def first_column(text):
    rows = re.findall(r"^\| (.*?) \|", text, re.M)
    return {code for row in rows for code in re.findall(r"`([^`]+)`", row)}


def section(path, heading):
    return re.search(
        rf"^## {re.escape(heading)}\n(.*?)(?=^## |\Z)", prose(path), re.S | re.M
    )[1]


@pytest.mark.parametrize("path", generate.rendered(), ids=name)
def test_generated_parts_are_up_to_date(path):
    assert path.read_text() == generate.rendered()[path], "run docs/generate.py"


def test_the_table_of_strata_is_the_one_the_structure_test_holds():
    text = section(ROOT / "docs/architecture.md", "The strata")
    shown = {}
    for line in re.findall(r"^\| `(?:cpp/)?\w+/`.*$", text, re.M):
        folder, pure, uses, _ = (cell.strip() for cell in line.strip("|").split("|"))
        folder = folder.strip("`").removeprefix("cpp/").rstrip("/")
        names = set(re.findall(r"[\w.]+", uses.replace(", XLA's FFI headers", " xla")))
        shown[folder] = (pure == "pure", {n.removesuffix(".h") for n in names})
    held = {f: (f in strata.PURE, set(uses)) for f, uses in strata.CPP.items()}
    assert shown == {**held, "xla_ext": (False, strata.XLA_EXT)}


def test_the_table_of_subfolders_names_each_of_them():
    found = {
        path.parent.relative_to(ROOT).as_posix().removeprefix("cpp/")
        for top in ("cpp", "xla_ext")
        for path in (ROOT / top).rglob("*.cc")
        if path.parent.parent != ROOT and path.parent.parent.name != "cpp"
    }
    own = {f for f in found if f.rpartition("/")[2] in strata.PROGRAMS}
    assert found - own == set(generate.ROOMS)


def test_the_strata_are_the_folders_that_exist():
    folders = {p.name for p in (ROOT / "cpp").iterdir() if any(p.glob("*.cc"))}
    assert folders == set(strata.CPP)
    modules = {
        path.stem if path.is_file() else path.name
        for path in (ROOT / "jccl").iterdir()
        if path.suffix == ".py" or (path / "__init__.py").exists()
    }
    known = {module for level in strata.PYTHON for module in level}
    assert modules - {"__init__"} <= known


def test_the_picture_shows_every_folder_once():
    drawn = [name for row in generate.ROWS for name in row if name]
    assert sorted(drawn) == sorted([*strata.CPP, "xla_ext"])


def test_every_code_has_a_row():
    text = (ROOT / "docs/errors.md").read_text()
    numbers = re.findall(r"^\| (\d+) \| `(\w+)`", text, re.M)
    assert {(int(n), code) for n, code in numbers} == {
        (int(code), code.name) for code in jccl.Code
    }


def test_every_environment_variable_is_documented_and_read():
    read = set()
    for path in [*(ROOT / "jccl").rglob("*.py"), ROOT / "cpp/master/main.cc"]:
        text = path.read_text()
        if path.suffix == ".cc":
            text = " ".join(re.findall(r'getenv\("(\w+)"\)', text))
        read |= set(VARIABLE.findall(text))
    assert first_column(section(SETTINGS, "Environment")) == read


def test_no_other_program_of_ours_reads_the_environment():
    # Never installed; in the product planted.cc is empty.
    for_tests = {
        "failing_main.cc",
        "stress_peer_main.cc",
        "attack_main.cc",
        "planted.cc",
    }
    for folder in ("cpp", "xla_ext"):
        for path in (ROOT / folder).rglob("*.cc"):
            if "_test" not in path.name and path.name not in {"main.cc", *for_tests}:
                assert "getenv(" not in path.read_text(), path


def test_every_option_of_connect_is_documented():
    """Keywords, and the fields of each group under the parameter that takes it."""
    groups = {**groups_of(jccl.connect), "site": jccl.Site()}
    plain = set(inspect.signature(jccl.connect).parameters) - set(
        groups_of(jccl.connect)
    )
    options = {(name, "connect") for name in plain}
    for parameter, group in groups.items():
        form = f"{parameter}=jccl.{type(group).__name__}(…)"
        options |= {(field.name, form) for field in dataclasses.fields(group)}
    text = section(SETTINGS, "Options of `jccl.connect`")
    rows = re.findall(r"^\| (`[^|]*`) \| `([^|]*)` \|", text, re.M)
    shown = {
        (name, form) for names, form in rows for name in re.findall("`(.*?)`", names)
    }
    assert shown == options


def test_every_command_has_a_section_with_its_options():
    text = (ROOT / "docs/cli.md").read_text()
    for command in generate.commands():
        assert f"\n## jccl {command.replace('-', ' ')}\n" in text
        assert f"<!-- generated: cli-{command} -->" in text
    assert "<!-- generated: jccl-master -->" in text


def test_the_names_in_place_of_pccl_exist():
    text = section(ROOT / "docs" / "c-api.md", "From PCCL")
    header = (ROOT / "cpp" / "include" / "jccl" / "jccl.h").read_text()
    rows = [line.strip("| ").split(" | ") for line in text.splitlines() if "|" in line]
    assert len(rows) > 20 and {len(row) for row in rows} == {3}
    in_c = set(re.findall(r"\b(?:jccl|JCCL)_\w+", " ".join(row[1] for row in rows)))
    in_python = " ".join(row[2] for row in rows)
    assert in_c and not {n for n in in_c if not re.search(rf"\b{n}\b", header)}
    for owner, names in (
        (jccl, re.findall(r"\bjccl\.(\w+)", in_python)),
        (jccl.Communicator, re.findall(r"\bcomm\.(\w+)", in_python)),
    ):
        assert names and not [one for one in names if not hasattr(owner, one)]


def test_the_stages_of_ci_are_those_it_runs():
    text = section(ROOT / "CONTRIBUTING.md", "What CI runs")
    rows = [line.strip("| ").split(" | ") for line in text.splitlines() if "|" in line]
    shown = [(stage, target.strip("`")) for stage, target, _ in rows[2:]]
    held = re.findall(r'/stage "(.+?)"', (ROOT / ".ci" / "run").read_text())
    stages = [(stage, "–") for stage in held]
    recipes = re.findall(
        r"^([\w-]+):[^\n=]*\n((?:\t.*\n)+)", (ROOT / "Makefile").read_text(), re.M
    )
    for target, recipe in recipes:
        if target in {target for _, target in shown}:
            found = re.findall(r'\$\(STAGE\) "(.+?)"', recipe)
            stages += [(stage, target) for stage in found]
    assert shown == stages


CELL_MAX = 400  # characters that are seen; a list of links is no sentence
LABEL = re.compile(r"\[[^\]]*\]")


@pytest.mark.parametrize("path", documents(), ids=name)
def test_a_cell_of_a_table_can_be_read(path):
    for line in prose(path).splitlines():
        if line.startswith("|"):
            for cell in re.sub(r"\]\([^)]*\)", "]", line).strip("| ").split(" | "):
                said = cell if LABEL.sub("", cell).strip(", ") else ""
                assert len(said) <= CELL_MAX, (
                    f"{path.name}: {cell[:80]} … ({len(cell)})"
                )
