"""Figures of papers that ours stand beside."""

from __future__ import annotations

from jccl.planning import Method, Model

# arXiv:2501.18512, Table 4: Gbit/s that a site needs for these shares of time in steps.
# H=100, fragments of 3 layers, bf16 unless said. The values lie on a grid of 50 points
# from 0.1 to 1,000, evenly spaced by logarithm, and are printed to one place. All 75
# were compared with the HTML of the paper's first version (arXiv:2501.18512v1).
TABLE_4_TARGETS = (0.50, 0.80, 0.90, 0.95, 0.99)
TABLE_4: dict[str, tuple[Model, dict[str, tuple[float, ...]]]] = {
    "1B": (
        Model(1e9, 24, 0.1),
        {
            "data-parallel": (86.8, 152.6, 184.2, 222.3, 569.0),
            "DiLoCo": (1.4, 6.2, 13.3, 23.3, 86.8),
            "streaming": (1.4, 5.2, 9.1, 16.0, 28.1),
            "overlapped": (1.4, 4.3, 6.2, 9.1, 11.0),
            "4 bits": (0.4, 0.9, 1.7, 2.0, 3.0),
        },
    ),
    "10B": (
        Model(1e10, 48, 0.8),
        {
            "data-parallel": (104.8, 222.3, 222.3, 268.3, 471.5),
            "DiLoCo": (1.7, 7.5, 16.0, 33.9, 104.8),
            "streaming": (1.7, 5.2, 9.1, 13.3, 19.3),
            "overlapped": (1.7, 3.6, 5.2, 6.2, 7.5),
            "4 bits": (0.4, 0.9, 1.4, 1.4, 1.7),
        },
    ),
    "100B": (
        Model(1e11, 108, 4.9),
        {
            "data-parallel": (184.2, 323.8, 390.7, 390.7, 471.5),
            "DiLoCo": (3.0, 11.0, 23.3, 49.4, 184.2),
            "streaming": (2.4, 6.2, 9.1, 11.0, 19.3),
            "overlapped": (1.7, 3.6, 4.3, 5.2, 5.2),
            "4 bits": (0.5, 0.9, 1.1, 1.1, 1.4),
        },
    ),
}


def table_4_method(name: str, model: Model) -> Method:
    """The method of a row."""
    parts = model.layers // 3
    return {
        "data-parallel": Method(1),
        "DiLoCo": Method(100),
        "streaming": Method(100, parts),
        "overlapped": Method(100, parts, overlap=1),
        "4 bits": Method(100, parts, overlap=1, bits=4.0),
    }[name]


# arXiv:2412.01152, Table 2: a 10B model, 38 minutes of steps between rounds of int8 in
# a ring: where the sites are -> (median seconds of a round, share of time in steps).
INTELLECT_1_STEPS_S = 38 * 60
INTELLECT_1 = {
    "USA": (103, 0.957),
    "transatlantic": (382, 0.856),
    "global": (469, 0.830),
}
