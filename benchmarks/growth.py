"""How a cost grows: exponents and slopes, for tables that say whether it should."""

from __future__ import annotations

import math
from collections.abc import Sequence

Points = Sequence[tuple[float, float]]


def exponent(points: Points) -> float:
    """e of cost = a·x^e, by least squares over logarithms: 0 flat, 1 linear."""
    logs = [(math.log(x), math.log(y)) for x, y in points if x > 0 and y > 0]
    return _slope(logs)


def line(points: Points) -> tuple[float, float]:
    """(a, b) of cost = a + b·x, each point weighed by 1/x: the small ones tell a."""
    if len(points) < 2:
        return (points[0][1] if points else 0.0, 0.0)
    weighed = [(1.0 / x, x, y) for x, y in points]
    total = sum(w for w, _, _ in weighed)
    mean_x = sum(w * x for w, x, _ in weighed) / total
    mean_y = sum(w * y for w, _, y in weighed) / total
    over = sum(w * (x - mean_x) * (y - mean_y) for w, x, y in weighed)
    under = sum(w * (x - mean_x) ** 2 for w, x, _ in weighed)
    slope = over / under if under else 0.0
    return mean_y - slope * mean_x, slope


def _slope(points: Points) -> float:
    if len(points) < 2:
        return 0.0
    mean_x = sum(x for x, _ in points) / len(points)
    mean_y = sum(y for _, y in points) / len(points)
    under = sum((x - mean_x) ** 2 for x, _ in points)
    over = sum((x - mean_x) * (y - mean_y) for x, y in points)
    return over / under if under else 0.0
