"""The rules, the dashboard and the documented names, by a real Prometheus (Debian:
apt-get install prometheus)."""

import json
import re
import shutil
import socket
import subprocess
import urllib.parse
import urllib.request
from pathlib import Path

import pytest

from jccl import _native
from jccl.testing import Process, wait_until
from tests.page.run import seen

CORE = _native.core()
ROOT = Path(__file__).parents[2]
SHIPPED = ROOT / "examples/monitoring"
NAME = re.compile(r"\bjccl_(?!run\b)[a-z_]+\b")

needs_promtool = pytest.mark.skipif(
    not shutil.which("promtool"), reason="no promtool: make long-page"
)
needs_prometheus = pytest.mark.skipif(
    not shutil.which("prometheus"), reason="no Prometheus: make long-page"
)


def promtool(*words, **options):
    ended = subprocess.run(
        ["promtool", *words], capture_output=True, text=True, timeout=120, **options
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return ended.stdout + ended.stderr


def page_text():
    master = CORE.Master.start(http="127.0.0.1:0")
    try:
        with urllib.request.urlopen(f"http://{master.http_address}/metrics") as answer:
            return answer.read().decode()
    finally:
        master.stop()


def families():
    return set(re.findall(r"^# TYPE (\w+)", page_text(), re.M))


def test_every_name_is_documented_and_every_documented_one_is_there():
    text = (ROOT / "docs/monitoring.md").read_text()
    documented = set(re.findall(r"^\| `(jccl_\w+)", text, re.M))
    assert documented == families()


def test_rules_and_dashboard_use_names_that_exist():
    known = families()
    known |= {f"{name}{end}" for name in known for end in ("_sum", "_count")}
    dashboard = json.loads((SHIPPED / "grafana.json").read_text())
    rules = (SHIPPED / "alerts.yml").read_text()
    used = {
        expr["expr"] for panel in dashboard["panels"] for expr in panel["targets"]
    } | set(re.findall(r"expr: (?:>-\n\s+)?(.+)", rules))
    assert len(used) > 20
    assert not {name for text in used for name in NAME.findall(text)} - known


@needs_promtool
def test_rules_and_metrics_are_what_promtool_takes():
    assert "9 rules found" in promtool("check", "rules", str(SHIPPED / "alerts.yml"))
    promtool("check", "config", str(SHIPPED / "prometheus.yml"))
    promtool("test", "rules", "alerts_test.yml", cwd=SHIPPED)
    promtool("check", "metrics", input=page_text())


def ask(port, path, **query):
    url = f"http://127.0.0.1:{port}/api/v1/{path}?{urllib.parse.urlencode(query)}"
    with urllib.request.urlopen(url, timeout=60) as answer:
        return json.load(answer)["data"]


@needs_prometheus
def test_a_prometheus_scrapes_a_run_and_alerts_of_a_lost_site(tmp_path):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    sites = {"a": 0.1, 'b"}\\': 0.1}
    with seen(sites) as (run, url):
        config = (SHIPPED / "prometheus.yml").read_text()
        config = config.replace("127.0.0.1:29490", url.removeprefix("http://"))
        config = config.replace("5s", "1s")
        (tmp_path / "prometheus.yml").write_text(config)
        shutil.copy(SHIPPED / "alerts.yml", tmp_path)
        server = Process(
            ["prometheus", f"--config.file={tmp_path}/prometheus.yml"]
            + [f"--storage.tsdb.path={tmp_path}/data"]
            + [f"--web.listen-address=127.0.0.1:{port}"],
            {"PATH": "/usr/bin:/bin"},
            tmp_path / "prometheus.log",
        )
        try:

            def value(expr):
                try:
                    return [
                        (one["metric"], one["value"][1])
                        for one in ask(port, "query", query=expr)["result"]
                    ]
                except OSError:
                    return []  # it begins

            members = 'jccl_peers{state="member"}'
            wait_until(lambda: [v for _, v in value(members)] == ["2"], 60, members)
            commits = "increase(jccl_tag_commits_total[10s])"
            wait_until(
                lambda: any(float(v) > 0 for _, v in value(commits)), 60, commits
            )
            sums = "jccl_round_phase_seconds_count"
            wait_until(lambda: len(value(sums)) == 3, 60, sums)
            names = {m["site"] for m, _ in value("jccl_peer_connected")}
            assert names == set(sites)
            rules = ask(port, "rules")["groups"][0]["rules"]
            assert [r["health"] for r in rules] == ["ok"] * 9

            def firing():
                return {a["labels"]["alertname"] for a in ask(port, "alerts")["alerts"]}

            assert firing() == set()
            run.peers[0].kill()
            wait_until(lambda: "JcclPeerLost" in firing(), 60, "the alert")
        finally:
            server.kill()
