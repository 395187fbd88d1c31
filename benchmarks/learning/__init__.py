"""Training runs of `benchmarks.science`: a small language model, real peers, claims."""
