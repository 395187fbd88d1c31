"""What compiler and linker add against mistakes is in the files that are shipped."""

import platform
import shutil
import struct
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
BUILT = ROOT / "build" / "ext" / "cpp"

PT_DYNAMIC, PT_LOAD, PT_GNU_STACK, PT_GNU_RELRO = 2, 1, 0x6474E551, 0x6474E552
PT_GNU_PROPERTY, PF_X = 0x6474E553, 1
DT_STRTAB, DT_STRSZ, DT_FLAGS, DT_FLAGS_1 = 5, 10, 30, 0x6FFFFFFB
DF_BIND_NOW, DF_1_NOW, DF_1_PIE = 8, 1, 0x08000000
X86_FEATURES, IBT_AND_SHSTK = 0xC0000002, 3
ENDBR64 = b"\xf3\x0f\x1e\xfa"


class Elf:
    """The parts of a 64-bit little-endian ELF file that the loader reads."""

    def __init__(self, path):
        self.bytes = Path(path).read_bytes()
        assert self.bytes[:6] == b"\x7fELF\x02\x01", path
        at, size, count = (
            self.read("<Q", 32),
            self.read("<H", 54),
            self.read("<H", 56),
        )
        self.segments = [self.unpack("<IIQQQQQQ", at + i * size) for i in range(count)]
        self.dynamic = dict(
            struct.iter_unpack("<QQ", b"".join(self.contents(PT_DYNAMIC)))
        )

    def unpack(self, form, at):
        return struct.unpack_from(form, self.bytes, at)

    def read(self, form, at):
        return self.unpack(form, at)[0]

    def contents(self, kind):
        for held, _, offset, _, _, size, _, _ in self.segments:
            if held == kind:
                yield self.bytes[offset : offset + size]

    def flags(self, kind):
        return [flags for held, flags, *_ in self.segments if held == kind]

    def names(self):
        """The strings of the dynamic symbols and libraries."""
        address, size = self.dynamic[DT_STRTAB], self.dynamic[DT_STRSZ]
        for held, _, offset, start, _, length, _, _ in self.segments:
            if held == PT_LOAD and start <= address < start + length:
                at = offset + address - start
                return set(self.bytes[at : at + size].decode().split("\0"))
        raise AssertionError("the table of strings is in no segment")

    def x86_features(self):
        for note in self.contents(PT_GNU_PROPERTY):
            at = 16  # behind the note's head and its name, "GNU"
            while at + 8 <= len(note):
                kind, size = struct.unpack_from("<II", note, at)
                if kind == X86_FEATURES:
                    return struct.unpack_from("<I", note, at + 8)[0]
                at += 8 + (size + 7) // 8 * 8
        return 0


def shipped():
    core = find_spec("jccl._core")
    return [Path(core.origin), BUILT / "libjccl.so", BUILT / "jccl-master"]


@pytest.fixture(params=shipped(), ids=lambda path: path.name.partition(".")[0])
def file(request):
    if not request.param.exists():
        pytest.skip(f"{request.param.name} is not built: .ci/build-tests builds it")
    return Elf(request.param)


def test_relocations_are_done_at_start_and_then_read_only(file):
    assert file.flags(PT_GNU_RELRO)
    now = file.dynamic.get(DT_FLAGS, 0) & DF_BIND_NOW
    assert now or file.dynamic.get(DT_FLAGS_1, 0) & DF_1_NOW


def test_no_stack_is_executable(file):
    assert [flags & PF_X for flags in file.flags(PT_GNU_STACK)] == [0]


def test_copies_and_stacks_are_checked(file):
    names = file.names()
    assert "__stack_chk_fail" in names
    assert [name for name in names if name.startswith("__") and name.endswith("_chk")]


def test_programs_run_at_random_addresses():
    program = BUILT / "jccl-master"
    if not program.exists():
        pytest.skip("jccl-master is not built: .ci/build-tests builds it")
    assert Elf(program).dynamic.get(DT_FLAGS_1, 0) & DF_1_PIE


@pytest.mark.skipif(platform.machine() != "x86_64", reason="CET is of x86-64")
def test_functions_begin_where_control_may_land(file, tmp_path):
    # Debian's own start-up objects carry no note, so the linker leaves it out: then the
    # instructions are there, and the kernel does not ask for them.
    assert file.bytes.count(ENDBR64) > 1000
    compiler = shutil.which("g++") or shutil.which("c++")
    assert compiler, "no compiler to compare with"
    source, probe = tmp_path / "probe.cc", tmp_path / "probe"
    source.write_text("int main() { return 0; }\n")
    subprocess.run(
        [compiler, "-fcf-protection=full", str(source), "-o", str(probe)], check=True
    )
    if Elf(probe).x86_features() & IBT_AND_SHSTK == IBT_AND_SHSTK:
        assert file.x86_features() & IBT_AND_SHSTK == IBT_AND_SHSTK


@pytest.mark.skipif(platform.machine() != "x86_64", reason="CET is of x86-64")
def test_only_objects_of_the_system_lack_the_mark_of_control(tmp_path):
    # A linked file is marked if each of its objects is.
    tests_only = ("fuzz", "sim", "model", "attack", "mutants")
    ours = [
        path
        for path in sorted(BUILT.glob("libjccl_*.a"))
        if not path.stem.endswith(tests_only)
    ]
    if not ours:
        pytest.skip("jccl-master is not built: .ci/build-tests builds it")
    compiler = shutil.which("g++") or shutil.which("c++")
    assert compiler, "no compiler to link with"

    def link(*objects):
        flags = ("-r", "-nostdlib", "-Wl,-z,cet-report=error,--whole-archive")
        return subprocess.run(
            [compiler, *flags, *map(str, objects), "-o", str(tmp_path / "all.o")],
            capture_output=True,
            text=True,
        )

    source, plain = tmp_path / "plain.cc", tmp_path / "plain.o"
    source.write_text("int plain() { return 1; }\n")
    subprocess.run(
        [compiler, "-fcf-protection=none", "-c", str(source), "-o", str(plain)],
        check=True,
    )
    assert "missing IBT" in link(plain).stderr
    said = link(*ours)
    assert said.returncode == 0, said.stderr[:500]


@pytest.fixture(scope="module")
def configured(tmp_path_factory):
    """Configures one build as told and reads its rules; the compiler is looked at once,
    which takes most of the time."""
    folder, tools = tmp_path_factory.mktemp("build"), str(Path(sys.executable).parent)

    def rules(build_type, sanitizers):
        subprocess.run(
            [
                shutil.which("cmake", path=tools) or "cmake",
                *("-G", "Ninja"),
                f"-DCMAKE_MAKE_PROGRAM={shutil.which('ninja', path=tools) or 'ninja'}",
                *("-S", str(ROOT / "cpp"), "-B", str(folder)),
                f"-DPYTHON_EXECUTABLE={sys.executable}",
                f"-DCMAKE_BUILD_TYPE={build_type}",
                f"-DJCCL_SANITIZE={sanitizers}",
                # A build's own choice otherwise, by the sanitizers of the first time.
                *("-DJCCL_PLANTED=OFF", "-DJCCL_TESTS=OFF"),
            ],
            check=True,
            capture_output=True,
            timeout=120,
        )
        return (folder / "build.ninja").read_text()

    return rules


@pytest.mark.parametrize(
    "build_type, sanitizers, checked",
    [
        ("RelWithDebInfo", "", True),
        ("Release", "", True),
        ("Debug", "", False),  # glibc warns without optimisation
        # Does not see through its calls.
        ("RelWithDebInfo", "address,undefined", False),
    ],
)
def test_only_optimised_builds_without_sanitizers_have_checked_copies(
    configured, build_type, sanitizers, checked
):
    rules = configured(build_type, sanitizers)
    assert ("_FORTIFY_SOURCE=" in rules) == checked
    assert "-fstack-protector-strong" in rules and "-z,now" in rules
    assert ("-fsanitize=" in rules) == bool(sanitizers)
