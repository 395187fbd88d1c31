"""Measurements: one file per claim, each beside a baseline that ran in alternation.

Nothing here asserts speed. Run `python -m benchmarks.all_reduce --help` from the root
of the repository; docs/benchmarks.md says what the columns mean.
"""
