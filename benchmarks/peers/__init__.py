"""Peers of a benchmark as processes that take batches from standard input."""
