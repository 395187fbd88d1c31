"""`make device-check`, as far as it goes without a GPU; it runs hybrid_cluster.py."""

import os
import re
import subprocess

from tests.docs.markdown import ROOT


def check(folder, **environment):
    return subprocess.run(
        [ROOT / ".ci" / "device-check", folder],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=300,
    )


def test_without_a_gpu_it_says_what_was_not_tried(tmp_path):
    said = check(tmp_path, PATH=without_gpu(tmp_path))
    assert said.returncode == 0, said.stdout + said.stderr
    assert "passed:    peers on device and host" in said.stdout
    assert "not tried: everything on a GPU: there is none" in said.stdout
    lines = [line for line in said.stdout.splitlines() if "digest" in line]
    assert len(lines) == 4 and len({re.sub(".*digest", "", one) for one in lines}) == 1
    for way in ("ffi", "buffer_callback", "io_callback", "between steps"):
        assert sum(f"{way} on cpu: loss" in line for line in lines) == 1
    assert all("the same on 4 peers" in line for line in lines)
    assert (tmp_path / "device-check.log").read_text() in said.stdout


def test_a_gpu_that_jax_does_not_see_fails(tmp_path):
    smi = tmp_path / "nvidia-smi"
    smi.write_text("#!/bin/sh\necho 'A GPU, 1 MiB, 1.0'\n")
    smi.chmod(0o755)
    path = f"{tmp_path}:{os.environ['PATH']}"
    said = check(tmp_path / "log", PATH=path, JAX_CUDA_VISIBLE_DEVICES="none")
    assert said.returncode == 1, said.stdout + said.stderr
    assert "FAILED:    JAX on the device" in said.stdout


def without_gpu(folder):
    """A PATH whose nvidia-smi finds nothing."""
    smi = folder / "nvidia-smi"
    smi.write_text("#!/bin/sh\nexit 1\n")
    smi.chmod(0o755)
    return f"{folder}:{os.environ['PATH']}"
