"""Which tests may be skipped, why, and how many: anything else fails the run.

What only other hardware, or root, can run is counted apart: where the project's own
tests run without it, such a count is what nobody has run.
"""

import re
from collections import Counter
from typing import NamedTuple

import pytest


class Reason(NamedTuple):
    pattern: str  # of the whole reason
    limit: int  # tests with it in one run
    hardware: bool = False


REASONS = (
    Reason("no CUDA GPU", 15, hardware=True),
    Reason("one GPU", 2, hardware=True),
    Reason("CET is of x86-64", 1, hardware=True),
    Reason("network namespaces need root", 13, hardware=True),
    Reason("/dev/net/tun: .*", 7, hardware=True),
    # With a GPU, or a JAX, for which the test does not apply.
    Reason("there is a GPU", 1),
    Reason("fixed in JAX 0.11", 1),
    Reason("needs glibc's malloc", 1),
    Reason("io_callback copies operands and results", 1),
    # Of make targets of their own.
    Reason("takes a minute: make long-sites", 5),
    Reason("more of the same: make long-python", 5),
    Reason("more of the same: make long-audits", 2),
    Reason("takes minutes: make long-slurm", 3),
    Reason("takes a minute: make long-examples", 6),
    Reason("no tokenizers: pip install tokenizers", 2),
    Reason("no Slurm: .*", 6),
    Reason("no OpenTelemetry: make long-loggers", 2),
    Reason("no TensorBoard: make long-loggers", 1),
    Reason("no clu: make long-loggers", 1),
    Reason(r"no Ray: pip install 'jccl\[ray\]'", 5),
    Reason("there is a Ray", 1),
    Reason("no older build: make long-upgrade", 3),
    Reason("no kubernetes-validate", 6),
    Reason("no jsonschema", 1),
    Reason("no kubectl", 3),
    Reason("no sshd: install openssh-server", 6),
    Reason("no Chromium: make long-page", 6),
    Reason("takes a minute: make long-page", 6),
    Reason("no promtool: make long-page", 1),
    Reason("no Prometheus: make long-page", 1),
    Reason(r"Sphinx is missing: pip install .*", 3),
)


def reason_of(report):
    """pytest keeps (file, line, "Skipped: why")."""
    text = report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longrepr
    return str(text).removeprefix("Skipped: ")


def known(text):
    return next((r for r in REASONS if re.fullmatch(r.pattern, text)), None)


def wrong(counts):
    """What is wrong with so many skips, by their reasons."""
    by_reason = Counter()
    for text, count in counts.items():
        reason = known(text)
        if reason is None:
            yield f"{count} skipped for a reason that tests/skips.py has not: {text}"
        by_reason[reason] += count
    for reason, count in by_reason.items():
        if reason is not None and count > reason.limit:
            yield f"{count} skipped, {reason.limit} may be: {reason.pattern}"


def lines(counts):
    """For people: first what any machine could have run, then what needs hardware."""
    for hardware in (False, True):
        of_kind = {
            text: count
            for text, count in counts.items()
            if ((reason := known(text)) is not None and reason.hardware) == hardware
        }
        what = "need hardware that is not here" if hardware else "were skipped"
        yield f"{sum(of_kind.values())} tests {what}"
        for text, count in sorted(of_kind.items()):
            yield f"  {count}  {text}"


class Plugin:
    """Of the process that reports: with pytest-xdist the one that starts the others."""

    def __init__(self):
        self.counts = Counter()

    def pytest_runtest_logreport(self, report):
        if report.skipped and not hasattr(report, "wasxfail"):
            self.counts[reason_of(report)] += 1

    def pytest_collectreport(self, report):
        if report.skipped:
            self.counts[reason_of(report)] += 1

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session):
        if any(wrong(self.counts)) and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter):
        if self.counts:
            terminalreporter.section("skipped, by reason")
            for line in lines(self.counts):
                terminalreporter.line(line)
        for line in wrong(self.counts):
            terminalreporter.line(f"ERROR: {line}", red=True)
