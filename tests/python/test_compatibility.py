"""What docs/upgrading.md promises of releases: C programs that were compiled with an
older header run with a newer library, and newer builds read older checkpoints.

`python -m tests.python.test_compatibility` writes the first release's ABI anew. After
that release nobody calls it: the file only loses its meaning by an edit.
"""

import re
import subprocess
import sys
import tempfile
from pathlib import Path

from jccl.checkpoint import records
from jccl.checkpoint.stores import Kept
from tests.docs.markdown import ROOT

HEADER = ROOT / "cpp" / "include" / "jccl" / "jccl.h"
FROZEN = ROOT / "tests" / "data" / "abi_0.1.txt"
MARKERS = ROOT / "tests" / "data" / "checkpoints"
FIELD = re.compile(r"(\w+)(?:\[[^\]]*\])?\s*(?:,|;)")


def names_in(header):
    """Structs with their fields in order, and the names of all enumerators."""
    text = re.sub(r"/\*.*?\*/", "", header, flags=re.S)
    structs = {}
    for body, name in re.findall(r"typedef struct \{(.*?)\} (\w+);", text, flags=re.S):
        structs[name] = FIELD.findall(body)
    enumerators = []
    for body in re.findall(r"enum(?: \w+)? \{(.*?)\};", text, flags=re.S):
        enumerators += re.findall(r"(JCCL_\w+)", body)
    return structs, enumerators


def layout(folder):
    """Lines: struct field offset size; enumerator value; as the C compiler has them."""
    structs, enumerators = names_in(HEADER.read_text())
    lines = ["#include <jccl/jccl.h>", "#include <stddef.h>", "#include <stdio.h>"]
    lines += ["int main(void) {"]
    for struct, fields in structs.items():
        for field in fields:
            size = f"sizeof(((({struct}*)0)->{field}))"
            lines.append(
                f'printf("{struct} {field} %zu %zu\\n", '
                f"offsetof({struct}, {field}), {size});"
            )
    lines += [f'printf("{one} %d\\n", (int){one});' for one in enumerators]
    source, program = folder / "abi.c", folder / "abi"
    source.write_text("\n".join([*lines, "return 0; }", ""]))
    include = f"-I{HEADER.parents[1]}"
    subprocess.run(["cc", "-std=c99", include, source, "-o", program], check=True)
    done = subprocess.run([program], capture_output=True, text=True, check=True)
    symbols = (ROOT / "cpp" / "capi" / "exports.txt").read_text().split()
    return [*done.stdout.splitlines(), *(f"function {name}" for name in symbols)]


def test_what_a_c_program_was_compiled_with_stays_where_it_is(tmp_path):
    """Offsets, sizes, values and functions; more of them at the end are none of its."""
    frozen, now = FROZEN.read_text().splitlines(), layout(tmp_path)
    assert len(frozen) > 200 and not set(frozen) - set(now)
    structs = {line.split()[0] for line in frozen if len(line.split()) == 4}
    for struct in structs:
        had = [line for line in frozen if line.startswith(f"{struct} ")]
        has = [line for line in now if line.startswith(f"{struct} ")]
        assert has[: len(had)] == had, f"{struct}: new fields go to its end"


def test_each_struct_that_grows_begins_with_its_size():
    grows = {one for one in names_in(HEADER.read_text())[0] if "options" in one}
    structs = names_in(HEADER.read_text())[0]
    assert len(grows) >= 4
    assert all(structs[one][0] == "struct_size" for one in grows)


def record():
    leaf = records.Leaf("w", "float32", (2, 3))
    digest = "0123456789abcdef0123456789abcdef"
    return records.Record(
        run="000102030405060708090a0b0c0d0e0f",
        site="a",
        number=7,
        saved_unix_s=1.5,
        revisions=(records.Revision("diloco", 7, digest),),
        leaves={"diloco": (leaf,)},
        items={records.SHARED: "shared"},
        files={"shared/x": Kept(3, "ab" * 32)},
        data=None,
    )


def test_markers_of_checkpoints_of_the_first_release_are_read():
    whole = (MARKERS / "marker_1.json").read_bytes()
    assert records.record_of(whole) == record()
    assert records.marker_of(record()) == whole, "write this with a new format"


def write():
    with tempfile.TemporaryDirectory() as folder:
        FROZEN.write_text("\n".join(layout(Path(folder))) + "\n")
    MARKERS.mkdir(exist_ok=True)
    (MARKERS / "marker_1.json").write_bytes(records.marker_of(record()))


if __name__ == "__main__":
    sys.exit(write())
