"""A jccl-master of one file, where nothing else is: what an image from scratch holds.

    make long-static
    python -m tests.static_master PROGRAM

Not root; beside it are a journal and a file of hosts. It finds its address by name,
takes peers by their token, and goes on from its journal after a kill. Linux, root.
"""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

import jccl

NOBODY = 65534


def empty_root(folder: Path, program: Path) -> None:
    shutil.copy(program, folder / "jccl-master")
    (folder / "etc").mkdir()
    (folder / "etc" / "hosts").write_text("127.0.0.1 master.example\n")
    journal = folder / "journal"
    journal.mkdir()
    os.chown(journal, NOBODY, NOBODY)


def start(folder: Path, bind: str, secret: str) -> tuple[subprocess.Popen[str], str]:
    """The process and the address where it serves."""
    chroot = shutil.which("chroot")
    assert chroot is not None
    argv = [chroot, f"--userspec={NOBODY}:{NOBODY}", str(folder), "/jccl-master"]
    argv += ["--bind", bind, "--store", "sqlite:/journal/run"]
    process = subprocess.Popen(
        argv, env={"JCCL_TOKEN": secret}, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    line = process.stdout.readline()
    if not line.startswith("JCCL_MASTER="):
        process.kill()
        sys.exit(f"the master did not start: it said {line!r}")
    return process, line.strip().removeprefix("JCCL_MASTER=")


def rounds(comm: jccl.Communicator, count: int) -> list[int]:
    """Their numbers."""
    results = [comm.all_reduce(np.ones(1000, np.float32)) for _ in range(count)]
    for result in results:
        np.testing.assert_array_equal(result.value, np.ones(1000, np.float32))
    return [result.n for result in results]


def main(program: Path) -> None:
    linked = subprocess.run(["ldd", program], capture_output=True, text=True)
    assert "not a dynamic executable" in linked.stderr + linked.stdout, linked.stdout
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o755)
        empty_root(folder, program)
        secret = folder / "run.secret"
        token = folder / "peer.token"
        cli = [str(Path(sys.executable).with_name("jccl")), "token"]
        subprocess.run([*cli, "--file", secret], check=True)
        make = ["create", "--from", secret, "--shared", "--file", token]
        subprocess.run([*cli, *make], check=True)
        run_secret = secret.read_text().strip()
        process, address = start(folder, "master.example:0", run_secret)
        try:
            port = address.rpartition(":")[2]
            comm = jccl.connect(f"127.0.0.1:{port}", site="a", token=token.read_text())
            with comm:
                first = rounds(comm, 3)
                process.send_signal(signal.SIGKILL)
                process.wait()
                process, _ = start(folder, f"master.example:{port}", run_secret)
                second = rounds(comm, 3)
            assert second == [n + 3 for n in first], (first, second)
        finally:
            process.kill()
            process.wait()
    size = program.stat().st_size / 1e6
    print(f"{program.name}, {size:.0f} MB, ran alone: {first}, killed, {second}")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
