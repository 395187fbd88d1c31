"""What the documents show is what happens.

`python run` blocks of a document are executed in order, in one program. `console`
blocks hold commands after `$ ` and lines of which each must be in the output, spaces
aside. A block with `file=PATH` equals that file; C files are compiled as strict C99.
`sh` blocks set things up and are not executed, but what they name must exist. Blocks
marked `lab` need network namespaces and are skipped where there can be none.
"""

import functools
import os
import re
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from benchmarks.wan import missing
from tests.docs.markdown import ROOT, blocks, documents, name
from tests.xla_flags import not_optimised

BLOCKS = [block for path in documents() for block in blocks(path)]
LANGUAGES = {"python", "console", "c", "sh", "text", ""}
ENV = {
    **{key: value for key, value in os.environ.items() if key[:5] != "JCCL_"},
    "JAX_PLATFORMS": "cpu",
    "XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false "
    "--xla_force_host_platform_device_count=4",
}
# Blocks compile longer than they run; commands run with what users have.
NOT_OPTIMISED = {"XLA_FLAGS": " ".join([ENV["XLA_FLAGS"], *not_optimised()])}


def of(language, word=None):
    return [
        b for b in BLOCKS if b.language == language and (not word or word in b.words)
    ]


def normal(text):
    return " ".join(text.split())


def run(argv, path, timeout=150, **env):
    env = {**ENV, **env, "PATH": os.pathsep.join([*path, ENV.get("PATH", "")])}
    return subprocess.run(
        argv, cwd=ROOT, env=env, capture_output=True, text=True, timeout=timeout
    )


@functools.cache
def programs():
    """A folder with the C programs that the documents show, compiled."""
    # Not a sanitizer's build, which plain programs cannot be linked with.
    places = (ROOT / "build/ext/cpp", ROOT / "build/dev")
    libraries = [p / "libjccl.so" for p in places if (p / "libjccl.so").exists()]
    assert libraries, "build the C++ tree first (make test does)"
    folder = Path(tempfile.mkdtemp(prefix="jccl-docs-"))
    strict = ["-std=c99", "-pedantic", "-Wall", "-Wextra", "-Werror"]
    for block in of("c"):
        place = str(libraries[0].parent)
        argv = ["cc", *strict, f"-I{ROOT}/cpp/include", str(block.file)]
        argv += ["-o", str(folder / block.file.stem), f"-L{place}", "-ljccl"]
        done = run([*argv, "-lpthread", f"-Wl,-rpath,{place}"], [])
        assert done.returncode == 0, done.stderr
    return folder


@functools.cache
def outcome(command):
    argv = shlex.split(command)
    path = [str(Path(sys.executable).parent)]
    if argv[0] in {block.file.stem for block in of("c")}:
        path.append(str(programs()))
    return run(argv, path)


def need_lab():
    if reason := missing():
        pytest.skip(reason)


def test_every_block_says_what_it_is():
    strange = [f"{name(b.path)}: {b.language!r}" for b in BLOCKS]
    known = [
        f"{name(b.path)}: {b.language!r}" for b in BLOCKS if b.language in LANGUAGES
    ]
    assert strange == known
    assert of("python", "run") and of("console") and of("c")
    unmarked = [b for b in (*of("python"), *of("c")) if not b.words]
    assert not unmarked, "python and c blocks are executed: `python run` or `file=`"


@pytest.mark.parametrize(
    "block", [b for b in BLOCKS if b.file], ids=lambda b: name(b.file)
)
def test_a_block_with_a_file_equals_it(block):
    assert block.text == block.file.read_text()


@pytest.mark.parametrize(
    "path", sorted({b.path for b in of("python", "run")}), ids=name
)
def test_the_python_of_a_document_runs(path):
    shown = [b for b in of("python", "run") if b.path == path]
    if any("lab" in b.words for b in shown):
        need_lab()
    parts = [b.text for b in shown]
    done = run([sys.executable, "-c", "\n".join(parts)], [], **NOT_OPTIMISED)
    assert done.returncode == 0, done.stderr


CONSOLE = [
    (command, answer, "lab" in block.words)
    for block in of("console")
    for command, answer in re.findall(
        r"^\$ ([^\n]*)\n(.*?)(?=^\$ |\Z)", block.text, re.S | re.M
    )
]


@pytest.mark.parametrize("command, answer, lab", CONSOLE, ids=[c for c, *_ in CONSOLE])
def test_a_command_answers_as_shown(command, answer, lab):
    if lab:
        need_lab()
    done = outcome(command)
    said = normal(done.stdout + done.stderr)
    assert done.returncode == 0, said
    missing = [line for line in answer.splitlines() if normal(line) not in said]
    assert not missing, said


def test_the_readmes_script_ends_with_one_digest_on_all_peers():
    shown = [c for c, *_ in CONSOLE if c.startswith("jccl run") and "train.py" in c]
    assert len(set(shown)) == 1
    digests = re.findall(r"digest ([0-9a-f]{32})", outcome(shown[0]).stdout)
    assert len(digests) == 3 and len(set(digests)) == 1


def test_what_setup_commands_name_exists():
    targets = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.M))
    wrong = []
    for block in of("sh"):
        for line in block.text.splitlines():
            words = line.split("#")[0].split()
            if words[:1] == ["make"]:
                named = [word for word in words[1:] if "=" not in word]
                wrong += [f"make {word}" for word in named if word not in targets]
            wrong += [
                word
                for word in words
                if re.match(r"(\.ci|examples|tests|docs|cpp)/", word)
                and not (ROOT / word).exists()
            ]
    assert not wrong
