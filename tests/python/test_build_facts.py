"""`jccl --version` and `jccl.build_facts`: which build this is, and what it finds."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

import jccl
from jccl import _build, _native
from jccl.cli import group

ROOT = Path(__file__).parents[2]


def test_the_facts_are_those_of_the_sources_and_of_this_machine():
    facts = jccl.build_facts()
    messages = (ROOT / "cpp" / "wire" / "messages.h").read_text()
    wire = re.search(r"kVersion = (\d+);", messages)
    assert wire is not None and facts["wire"] == wire[1]
    assert int(facts["oldest_wire"]) <= int(facts["wire"])
    assert facts["version"] == jccl.__version__ == _native.core().version
    assert re.fullmatch(r"(gcc|clang) \d+\..*", facts["compiler"])
    for name in ("glibc", "ffi_api", "boost", "python", "jax", "jaxlib"):
        assert re.match(r"\d+\.\d+", facts[name]), name
    for name in ("openssl", "sqlite"):
        assert re.match(r"\d+\.\d+\.\d+, runs \d", facts[name]), name
    assert facts["native_module"] == "loads"
    assert json.loads(json.dumps(facts)) == facts


def test_the_command_prints_each_fact():
    result = CliRunner().invoke(group, ["--version"])
    assert result.exit_code == 0
    lines = result.output.splitlines()
    assert lines[0] == f"jccl {jccl.__version__}"
    for name, fact in jccl.build_facts().items():
        assert any(fact in line for line in lines), name


def test_the_command_imports_no_jax_for_them():
    program = """if True:
        import sys
        from jccl._build import as_text
        as_text()
        print(sorted({"jax", "jaxlib"} & set(sys.modules)))
    """
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"


def test_without_its_native_module_it_says_so_and_how_to_get_it(monkeypatch):
    def missing():
        raise ImportError(_native.missing_text("no such file"))

    monkeypatch.setattr(_native, "core", missing)
    facts = _build.build_facts()
    assert facts["version"] == jccl.__version__ and "wire" not in facts
    assert "pip install" in facts["native_module"]
    assert "native module missing" in _build.as_text()


@pytest.mark.parametrize("name", ["jax", "jaxlib"])
def test_a_package_that_is_not_there_is_named(monkeypatch, name):
    version = _build.importlib.metadata.version

    def without(asked):
        if asked == name:
            raise _build.importlib.metadata.PackageNotFoundError(name)
        return version(asked)

    monkeypatch.setattr(_build.importlib.metadata, "version", without)
    assert _build.build_facts()[name] == "missing"
