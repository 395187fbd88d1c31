"""Flags for programs that compile longer than they run."""

import importlib.metadata


def not_optimised():
    """Half as long without the emitters of fusions, and a quarter of the rest is LLVM's
    optimisation. jaxlib 0.11 has no other emitters, and a process that is given a flag
    that its XLA doesn't know ends.
    """
    release = importlib.metadata.version("jaxlib").split(".")[:2]
    fusions = ["--xla_cpu_use_fusion_emitters=false"]
    return [
        *(fusions if [int(part) for part in release] < [0, 11] else []),
        "--xla_backend_optimization_level=0",
    ]
