"""Holds the layer table: fails on any other include or import, on impurity in pure
folders, on public symbols other than `jccl_*`, and on the size limits of a unit."""

import ast
import re
import subprocess
from pathlib import Path

import pytest

from tests.tidy import strata

ROOT = Path(__file__).parents[2]
INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]', re.M)


def sources(folder):
    return sorted(
        p for p in folder.rglob("*") if p.suffix in {".h", ".cc", ".c"} and p.is_file()
    )


def includes(path):
    return INCLUDE.findall(path.read_text())


@pytest.mark.parametrize("folder", sorted(strata.CPP))
def test_a_folder_includes_only_what_its_row_names(folder):
    allowed = strata.CPP[folder] | {folder}
    for_tests = allowed | strata.TESTS_ALSO.get(folder, set()) | {"jccl"}
    wrong = [
        f"{path.relative_to(ROOT)}: {name}"
        for path in sources(ROOT / "cpp" / folder)
        for quote, name in includes(path)
        if quote == '"'
        and name.split("/")[0] not in (for_tests if "_test." in path.name else allowed)
    ]
    assert not wrong


NO_CODE = re.compile(r'//.*|"(?:\\.|[^"\\])*"')
USED = re.compile(rf"\b({'|'.join(strata.CPP)})::")


def used(text):
    return set(USED.findall(NO_CODE.sub("", text)))


def test_names_are_read_from_code_alone():
    text = 'codec::Codec of; // wire::Ready\nlog("net::dial"); a.base::at'
    assert used(text) == {"codec", "base"}


# An include of a neighbour brings what that one includes.
@pytest.mark.parametrize("folder", sorted(strata.CPP))
def test_a_folder_uses_names_only_of_what_its_row_names(folder):
    allowed = strata.CPP[folder] | {folder}
    for_tests = allowed | strata.TESTS_ALSO.get(folder, set())
    wrong = [
        f"{path.relative_to(ROOT)}: {name}::"
        for path in sources(ROOT / "cpp" / folder)
        for name in used(path.read_text())
        if name not in (for_tests if "_test." in path.name else allowed)
    ]
    assert not wrong


@pytest.mark.parametrize(
    "folder, allowed",
    [("xla_ext", strata.XLA_EXT), ("benchmarks", strata.BENCHMARKS)],
)
def test_what_stands_beside_the_strata_uses_names_only_of_its_row(folder, allowed):
    wrong = [
        f"{path.relative_to(ROOT)}: {name}::"
        for path in sources(ROOT / folder)
        for name in used(path.read_text()) - allowed
    ]
    assert not wrong


# What a neighbour happens to bring along is named: with its own name, the edge is seen.
@pytest.mark.parametrize("path", ["capi", "attack"])
@pytest.mark.parametrize("name", ["codec", "collective"])
def test_who_reaches_past_a_neighbour_says_so_by_an_include(path, name):
    wrong = [
        str(source.relative_to(ROOT))
        for source in sources(ROOT / "cpp" / path)
        if "_test." not in source.name
        and "cluster_" not in source.name
        and name in used(source.read_text())
        and not any(file.startswith(f"{name}/") for _, file in includes(source))
    ]
    assert not wrong


def test_the_extension_includes_only_what_its_row_names():
    allowed = strata.XLA_EXT | {"xla_ext"}
    folders = set(strata.CPP)
    wrong = [
        f"{path.relative_to(ROOT)}: {name}"
        for path in sources(ROOT / "xla_ext")
        for quote, name in includes(path)
        if quote == '"' and name.split("/")[0] in folders - allowed
    ]
    assert not wrong


def test_programs_of_the_benchmarks_include_only_what_users_have():
    folders = set(strata.CPP)
    wrong = [
        f"{path.relative_to(ROOT)}: {name}"
        for path in sources(ROOT / "benchmarks")
        for quote, name in includes(path)
        if quote == '"' and name.split("/")[0] in folders - strata.BENCHMARKS
    ]
    assert not wrong


def test_benchmarks_and_examples_import_only_public_modules():
    wrong = [
        f"{path.relative_to(ROOT)}: {name}"
        for folder in ("benchmarks", "examples")
        for path in sorted((ROOT / folder).rglob("*.py"))
        for name in imported_modules(path)
        if name.startswith("_")
    ]
    assert not wrong


@pytest.mark.parametrize("folder", sorted(strata.PURE))
def test_pure_folders_touch_nothing_outside(folder):
    wrong = []
    for path in sources(ROOT / "cpp" / folder):
        if path.name.endswith("_test.cc"):
            continue
        unit = path.relative_to(ROOT / "cpp").as_posix()
        for _, name in includes(path):
            excused = (unit, name) in strata.IMPURE_BUT
            if name in strata.IMPURE_HEADERS and not excused:
                wrong.append(f"{path.name} includes {name}")
        text = path.read_text()
        calls = [c for c in strata.IMPURE_CALLS if c in text]
        wrong += [
            f"{path.name} uses {c}" for c in calls if (unit, c) not in strata.IMPURE_BUT
        ]
        if re.search(r"for \(.*: \w*unordered", text):
            wrong.append(f"{path.name} iterates an unordered container")
    assert not wrong


def python_level(module):
    for level, names in enumerate(strata.PYTHON):
        if module in names:
            return level
    return None


def imported_modules(path):
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("jccl"):
            parts = (node.module or "").split(".")
            if len(parts) > 1:
                yield parts[1]
            else:
                yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.Import):
            for alias in node.names:
                parts = alias.name.split(".")
                if parts[0] == "jccl" and len(parts) > 1:
                    yield parts[1]


def test_python_modules_import_only_to_their_left():
    wrong = []
    for path in sorted((ROOT / "jccl").rglob("*.py")):
        module = path.relative_to(ROOT / "jccl").parts[0].removesuffix(".py")
        if module == "__init__":
            continue
        level = python_level(module)
        assert level is not None, f"{module} is missing in the layer table"
        for name in imported_modules(path):
            other = python_level(name)
            if name == "_core":
                if module != "_native":
                    wrong.append(f"{module} imports the extension; only _native may")
            elif other is not None and name != module and other > level:
                wrong.append(f"{module} imports {name}")
    assert not wrong


def early_imports(path):
    """Modules of a package that a file imports before the package itself."""
    own = path.relative_to(ROOT).with_suffix("").parts[:-1]
    seen = {"jccl", ".".join(own)}
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom):
            names = [node.module or ""]
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        else:
            continue
        for name in names:
            top, _, rest = name.partition(".")
            package = f"jccl.{rest.partition('.')[0]}" if top == "jccl" else top
            if name.startswith(package + ".") and package not in seen:
                yield name
            seen.add(package)


# Whose first import, too, may be in two threads at once.
PACKAGES = {"flax", "jax", "jaxlib", "jccl", "optax"}


def test_a_package_is_imported_before_its_modules():
    """Two threads that import a package and a module of it in opposite orders wait for
    each other, and Python then hands one of them a module that is not ready."""
    wrong = [
        f"{path.relative_to(ROOT)}: {name}"
        for path in sorted((ROOT / "jccl").rglob("*.py"))
        for name in early_imports(path)
        if name.partition(".")[0] in PACKAGES
    ]
    assert not wrong


def test_only_jccl_symbols_are_exported():
    libraries = list((ROOT / "build").glob("**/libjccl.so"))
    assert libraries, "build the C++ tree first (make test does)"
    for library in libraries:
        out = subprocess.run(
            ["nm", "-D", "--defined-only", str(library)],
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        names = {
            line.split()[-1]
            for line in out.splitlines()
            if line.split()[-2] in "TDBRVW"
        }
        strangers = {n for n in names if not n.startswith("jccl_")}
        assert not strangers, f"{library.name} exports {sorted(strangers)[:5]}"


STRUCT = re.compile(r"typedef struct \{(.*?)\} (jccl_\w+);", re.S)
COMMENT = re.compile(r"/\*.*?\*/", re.S)


def c_fields(header, code):
    """Fields of the C API's structs that no code names, but their size and room."""
    every = {
        (struct, field)
        for body, struct in STRUCT.findall(header)
        for field in re.findall(r"(\w+)\s*(?:\[\w+\])?;", COMMENT.sub("", body))
    }
    return {
        f"{struct}.{field}"
        for struct, field in every
        if field not in {"struct_size", "reserved"}
        and not re.search(rf"(\.|->){field}\b", code)
    }


def test_every_field_of_the_c_api_is_read_or_written():
    header = (ROOT / "cpp/include/jccl/jccl.h").read_text()
    code = "".join(
        path.read_text()
        for path in sources(ROOT / "cpp/capi")
        if "_test." not in path.name and path.suffix == ".cc"
    )
    assert STRUCT.search(header)
    assert not c_fields(header, code)
    # jccl_master_options.admission was read by nobody once.
    assert c_fields(header, code.replace("admission", "")) == {
        "jccl_master_options.admission"
    }


UNNAMED = re.compile(r"^namespace \{\n(.*?)^\}  // namespace$", re.S | re.M)
FUNCTION = re.compile(
    r"^(?!  |TEST|#|//|struct|class|enum)[^\n(;=]*?[ &*](\w+)\(", re.M
)


def unit_functions(path):
    """Names of the functions that a source keeps to itself."""
    return {
        name
        for part in UNNAMED.findall(path.read_text())
        for name in FUNCTION.findall(part)
    }


@pytest.mark.parametrize("folder", ["xla_ext", *(f"cpp/{x}" for x in strata.CPP)])
@pytest.mark.parametrize("tests", [False, True])
def test_functions_of_a_source_alone_have_names_of_their_own(folder, tests):
    """Sources compile together (JCCL_UNITY): of two functions with one name but other
    parameters a call could take the other file's, and nobody would say so."""
    owners = {}
    for path in sorted((ROOT / folder).rglob("*.cc")):
        if path.parent.name in strata.PROGRAMS:
            continue
        if path.name.endswith("_test.cc") == tests and "main" not in path.name:
            for name in unit_functions(path):
                owners.setdefault(name, []).append(path.name)
    assert not {name: files for name, files in owners.items() if len(files) > 1}


@pytest.mark.parametrize("folder", ["xla_ext", "cpp"])
def test_no_folder_outgrows_its_reader(folder):
    """A unit is a header with its source. Tests and what only they use don't count."""
    units = {}
    for path in sources(ROOT / folder):
        if not re.search(r"_(test|rig|harness|support|bench)$", path.stem):
            units.setdefault(path.parent.relative_to(ROOT), set()).add(path.stem)
    assert not {str(f): len(names) for f, names in units.items() if len(names) > 22}


def test_the_check_of_names_sees_them(tmp_path):
    unit = tmp_path / "x.cc"
    unit.write_text(
        "namespace {\n\nstd::vector<int> parts_of(int a,\n         int b) {\n"
        "  return call(a);\n}\nconst T& at() { return x; }\n}  // namespace\n"
        "void outside() {}\n"
    )
    assert unit_functions(unit) == {"parts_of", "at"}


def test_no_file_outgrows_its_reader():
    long = {
        str(path.relative_to(ROOT)): lines
        for folder in ("cpp", "xla_ext", "jccl", "examples", "benchmarks", "tests")
        for path in sorted((ROOT / folder).rglob("*"))
        if path.suffix in {".py", ".cc", ".h", ".c"}
        and (lines := len(path.read_text().splitlines())) > 500
    }
    assert not long


BANNED = re.compile(r"\b(worker|replica)s?\b", re.I)
LISTED = ("*.md", "*.py", "*.cc", "*.h", "*.toml", "Makefile", ".ci/*")
PLACES = re.compile(r"/work/|/root/|/farm/")


def test_documents_use_the_words_of_the_glossary_and_name_no_machine():
    listed = subprocess.run(
        ["git", "ls-files", *LISTED],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split()
    wrong = []
    for name in listed:
        if name.startswith("tests/tidy/"):
            continue
        for number, line in enumerate((ROOT / name).read_text().splitlines(), 1):
            if PLACES.search(line):
                wrong.append(f"{name}:{number}: {line.strip()[:80]}")
            if name.endswith(".md") and BANNED.search(line):
                wrong.append(f"{name}:{number}: {line.strip()[:80]}")
    assert not wrong


def test_the_workflow_calls_scripts_that_exist_and_every_cpython_is_installed():
    from tests.jax_versions.__main__ import RELEASES

    text = (ROOT / ".github" / "workflows" / "ci.yml").read_text()
    called = set(re.findall(r"(?<![\w/])\.ci/[\w-]+", text))
    assert ".ci/run" in called and ".ci/jax-versions" in called
    assert all((ROOT / name).stat().st_mode & 0o111 for name in called)
    installed = re.search(r"uv python install (.+)", text)[1].split()
    assert {"3.11", *installed} == set(RELEASES)  # 3.11 is the image's own


def test_what_is_built_without_a_check_of_alignment_makes_no_wider_pointers():
    text = (ROOT / "cpp/CMakeLists.txt").read_text()
    before = text.partition("PROPERTIES JCCL_NO_CASTS ON")[0]
    folders = re.findall(r'folder MATCHES "\^\(([\w|]+)\)\$"', before)[-1].split("|")
    casts = re.compile(r"reinterpret_cast<.*|static_cast<(?!const void)[^<>]*\*>")
    narrow = re.compile(r"static_cast<(const )?(std::uint8_t|AttemptHost)\*>")
    found = {
        f"{path.parent.name}/{path.name}: {cast[0]}"
        for folder in folders
        for path in sources(ROOT / "cpp" / folder)
        if not path.stem.endswith("_test")
        for cast in casts.finditer(path.read_text())
        if not narrow.fullmatch(cast[0])
    }
    assert "protocol" in folders and not found
