"""The page about a run in a real browser, and its metrics in a real Prometheus."""
