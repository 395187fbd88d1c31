"""Runs one file of tests with a probe before each statement of some modules' functions.

`python -m tests.mutation.probe FILE OUT MODULES...` writes, by test: seconds of the
processor, and by module the lines it has reached. A probe is a call of the module's
own, so it is there on XLA's threads too, where no tracer is, and nothing else becomes
slower. Hypothesis tries few examples: which lines run matters here, not with what
values.
"""

import ast
import builtins
import collections
import json
import sys
import time
from pathlib import Path

import hypothesis
import pytest

from tests.mutation import worker

EXAMPLES = 4
reached: set[tuple[str, int]] = set()


class Probes(ast.NodeTransformer):
    def __init__(self, module):
        self.module = module

    def visit_FunctionDef(self, function):
        for node in list(ast.walk(function)):
            for name in ("body", "orelse", "finalbody"):
                block = getattr(node, name, None)
                if isinstance(block, list):
                    setattr(node, name, self._probed(block))
        return function

    def _probed(self, block):
        pairs = [(self._probe(one.lineno), one) for one in block]
        return [statement for pair in pairs for statement in pair]

    def _probe(self, line):
        text = f"__reached__(({self.module!r}, {line}))"
        probe = ast.parse(text).body[0]
        for node in ast.walk(probe):
            if hasattr(node, "lineno"):
                node.lineno = node.end_lineno = line
        return probe


def probed(module):
    tree = Probes(module).visit(ast.parse(Path(module).read_text()))
    return ast.unparse(tree)


class Plugin:
    def __init__(self):
        self.tests, self.failed = {}, set()

    def pytest_runtest_logreport(self, report):
        if report.failed:
            self.failed.add(report.nodeid)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item, nextitem):
        reached.clear()
        begun = time.process_time()
        try:
            return (yield)
        finally:
            lines = collections.defaultdict(list)
            for module, line in sorted(reached):
                lines[module].append(line)
            took = round(time.process_time() - begun, 2)
            self.tests[item.nodeid] = [took, lines]


def try_few_examples():
    """Also of tests that say how many."""
    init = hypothesis.settings.__init__

    def few(self, parent=None, **options):
        init(self, parent, **{**options, "max_examples": EXAMPLES})

    hypothesis.settings.__init__ = few


def main():
    file, out, *modules = sys.argv[1:]
    builtins.__reached__ = reached.add
    for module in modules:
        worker.change(module, probed(module))
    worker.hasten()
    try_few_examples()
    plugin = Plugin()
    options = ["-q", "-p", "no:cacheprovider", "--tb=line", "--timeout=0"]
    pytest.main([*options, file], plugins=[plugin])
    for test in plugin.failed:  # or it would be said to notice every mutant
        print(f"{test} fails without a mutant and is left out", flush=True)
        del plugin.tests[test]
    Path(out).write_text(json.dumps(plugin.tests))


if __name__ == "__main__":
    main()
