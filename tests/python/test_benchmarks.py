"""Benchmarks in tiny sizes: the columns are there, results are right. Never speed."""

import importlib.util
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from benchmarks import common
from benchmarks.peers import stepped

ROOT = Path(__file__).parents[2]
ENV = {k: v for k, v in os.environ.items() if not k.startswith("JCCL_")}


def run(module, *arguments, out):
    done = subprocess.run(
        [sys.executable, "-m", f"benchmarks.{module}", *arguments, "--out", str(out)],
        cwd=ROOT,
        env=ENV,
        capture_output=True,
        text=True,
        timeout=600,  # of a busy machine, too
    )
    assert done.returncode == 0, done.stderr
    return done


def rows_of(done):
    return [json.loads(line) for line in done.stdout.splitlines() if line[:1] == "{"]


@pytest.mark.parametrize(
    "variants, codecs",
    [
        (["jccl", "jccl-inplace", "ceiling"], ["none", "int8"]),
        (["jccl", "jccl-token"], ["none"]),
        (["jccl", "jccl-jit"], ["none", "bf16"]),
        (["jccl-donate"], ["int8"]),
        (["jax-psum"], ["none"]),
        (["gloo"], ["none"]),
    ],
    ids=lambda names: "+".join(names),
)
def test_all_reduce_gives_every_variant_a_row_without_wrong_values(
    variants, codecs, tmp_path
):
    done = run(
        "all_reduce",
        *("--sizes", "4096,1048580", "--codecs", ",".join(codecs)),
        *("--variants", ",".join(variants), "--turns", "1", "--iterations", "1"),
        "--json",
        out=tmp_path,
    )
    rows = rows_of(done)
    if variants == ["gloo"] and not importlib.util.find_spec("torch"):
        assert "pip install torch==2.13.0" in done.stderr and not rows
        return
    shown = {
        (r["cell"]["variant"], r["cell"]["codec"], r["cell"]["size"]) for r in rows
    }
    for variant in variants:
        assert {(variant, c, s) for c in codecs for s in (4096, 1048580)} <= shown
    for row in rows:
        assert row["columns"]["wrong"] == 0
        assert row["columns"]["time_p50_us"] > 0
        assert row["columns"]["cpu_s_per_GB"] >= 0
        assert {"cpu", "cores", "kernel", "load"} <= set(row["machine"])
    held = common.read_rows(tmp_path)
    assert sorted(held, key=str) == sorted(rows, key=str)


def test_a_run_of_four_peers_with_calls_in_flight_is_right(tmp_path):
    done = run(
        "all_reduce",
        *("--peers", "4", "--sizes", "65536", "--concurrent", "3", "--turns", "1"),
        *("--iterations", "1", "--variants", "jccl", "--json"),
        out=tmp_path,
    )
    (row,) = rows_of(done)
    assert row["cell"]["peers"] == 4 and row["columns"]["wrong"] == 0


def test_codecs_compares_every_loop_with_memcpy(tmp_path):
    done = run(
        "codecs",
        *("--codecs", "none,int8,topk:kept=9", "--isas", "baseline", "--turns", "1"),
        "--json",
        out=tmp_path,
    )
    rows = rows_of(done)
    loops = {(r["cell"]["codec"], r["cell"]["what"]) for r in rows}
    assert ("int8", "decode-add") in loops and ("none", "sum2") in loops
    assert ("topk:kept=9", "finish") in loops and len(loops) == 7 + 4 + 4
    for row in rows:
        assert row["columns"]["GBps"] > 0 and row["columns"]["percent_of_limit"] > 0


def test_latency_says_how_near_the_limit_a_round_is(tmp_path):
    rows = rows_of(
        run(
            "latency",
            "--turns",
            "1",
            "--iterations",
            "2",
            "--no-jit",
            "--json",
            out=tmp_path,
        )
    )
    for store in ("memory:", "sqlite:"):
        columns = {
            r["cell"]["what"]: r["columns"] for r in rows if r["cell"]["store"] == store
        }
        assert ("commit" in columns) == (store == "sqlite:")
        assert columns["round trip"]["time_p50_us"] > 0
        for what in ("barrier", "all_reduce", "direct", "int8"):
            assert columns[what]["percent_of_limit"] > 0
            assert columns[what]["wrong"] == 0


def test_faults_are_survived_with_right_results(tmp_path):
    rows = []
    for fault, times in (("drain", 1), ("master", 1), ("pause", 15)):
        more = ("--only", fault, "--times", str(times), "--json")
        rows += rows_of(run("faults", *more, out=tmp_path))
    assert [r["cell"]["fault"] for r in rows] == ["drain", "master", "pause"]
    for row in rows:
        assert row["columns"]["wrong"] == 0 and row["columns"]["p50_s"] > 0
        assert row["columns"]["evictions"] == 0


def test_overlap_gives_each_way_a_time_and_draws_them(tmp_path):
    picture = tmp_path / "timeline.svg"
    more = ("--mbit", "0", "--size", "8192", "--rows", "4", "--turns", "1", "--json")
    (row,) = rows_of(run("overlap", *more, "--picture", str(picture), out=tmp_path))
    columns = row["columns"]
    assert columns["wrong"] == 0 and columns["rounds"] == 2
    for mode in ("steps", "alone", "blocking", "overlapped"):
        assert columns[f"{mode}_s"] > 0
    assert {"hidden", "waited", "busy", "hidden_idle"} <= set(columns)
    assert picture.read_text().count("<svg") == 1


def test_the_report_shows_what_was_measured_and_what_was_wrong(tmp_path):
    def measure(wrong):
        for size in (4096, 65536, 1 << 20):
            for variant in ("jccl", "gloo"):
                columns = {"time_p50_us": 1.0, "algbw_GBps": 0.5, "wrong": wrong}
                yield {
                    "cell": {"size": size, "variant": variant},
                    "columns": {**columns, "times_gloo": 2.0, "cpu_s_per_GB": 0.4},
                }

    kind = {"peers": 2, "codec": "none", "concurrent": 1}
    common.Cells.of("all_reduce", str(tmp_path), False).rows(kind, lambda: measure(0))
    common.Cells.of("other", str(tmp_path), False).rows(kind, lambda: measure(3))
    page = tmp_path / "page.html"
    argv = ["-m", "benchmarks.report", str(tmp_path), "-o", str(page)]
    done = subprocess.run(
        [sys.executable, *argv], cwd=ROOT, env=ENV, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    text = page.read_text()
    assert text.count("<svg") >= 4  # lines, two groups of bars, lines of `other`
    assert text.count("<tr class='wrong'>") == 6
    assert "load" in text and "4 KiB" in text


def test_cells_are_measured_once_in_full_and_always_in_quick(tmp_path):
    calls = []

    def measure():
        calls.append(1)
        yield {"cell": {"variant": "x"}, "columns": {"time_p50_us": 1.0}}

    for full in (True, True, False):
        cells = common.Cells.of("some", str(tmp_path), full)
        (row,) = cells.rows({"size": 4, "codec": "none"}, measure)
        assert row["cell"] == {"size": 4, "codec": "none", "variant": "x"}
    assert len(calls) == 2


@pytest.mark.parametrize("codec", sorted(stepped.BOUNDS))
def test_a_wrong_value_is_counted(codec):
    batch = stepped.Batch(size=4 * 1000, codec=codec)
    out = sum(stepped.contribution(p, batch.count) for p in (1, 2))
    assert stepped.count_wrong(out, batch, (1, 2)) == 0
    for index, value in ((0, np.nan), (500, np.inf), (999, -1e3)):
        out[index] = value
    assert stepped.count_wrong(out, batch, (1, 2)) == 3


def test_percentiles_take_the_nearest_rank():
    values = list(range(1, 101))
    assert [common.percentile(values, p) for p in (50, 99, 100)] == [50, 99, 100]
    assert common.percentile([7.0], 99) == 7.0


def test_peers_of_a_killed_benchmark_die_with_it_even_stopped_ones():
    code = (
        "import signal, time; from benchmarks.faults import Peer;"
        "peer = Peer(['sleep', '600']); peer.send(signal.SIGSTOP);"
        "print(peer.process.pid, flush=True); time.sleep(600)"
    )
    parent = subprocess.Popen(
        [sys.executable, "-c", code], cwd=ROOT, env=ENV, stdout=subprocess.PIPE
    )
    stat = Path(f"/proc/{int(parent.stdout.readline())}/stat")

    def lives():
        try:
            return stat.read_text().rsplit(")", 1)[1].split()[0] != "Z"
        except OSError:  # reaped already
            return False

    assert lives()
    parent.kill()
    parent.wait()
    limit = time.monotonic() + 60
    while lives():
        assert time.monotonic() < limit
        time.sleep(0.01)
    parent.stdout.close()
