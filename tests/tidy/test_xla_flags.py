"""A process whose XLA doesn't know a flag ends, so tests give it none of those."""

import importlib.metadata

import pytest

from tests import xla_flags

FUSIONS = "--xla_cpu_use_fusion_emitters=false"


@pytest.mark.parametrize(
    "release, known",
    [
        ("0.7.2", True),
        ("0.10.2", True),
        ("0.11.0", False),
        ("0.11.2", False),
        ("0.12.0", False),
        ("1.0.0", False),
    ],
)
def test_the_flag_of_fusions_is_given_to_a_jaxlib_below_0_11(
    release, known, monkeypatch
):
    monkeypatch.setattr(importlib.metadata, "version", {"jaxlib": release}.__getitem__)
    flags = xla_flags.not_optimised()
    assert (FUSIONS in flags) == known
    assert "--xla_backend_optimization_level=0" in flags
