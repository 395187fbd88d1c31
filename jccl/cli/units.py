"""Numbers with units, as options of commands and in what they print."""

from __future__ import annotations

import math
import re
from typing import Any

import click


class Number(click.ParamType):  # type: ignore[type-arg]
    """A number with one of some units, `10B` or `200mbit`."""

    name = "number"

    def __init__(self, units: dict[str, float], example: str) -> None:
        self.units, self.example = units, example

    def convert(self, value: Any, param: Any, ctx: Any) -> float:
        if isinstance(value, float):
            return value
        found = re.fullmatch(r"([\d.]+(?:e[+-]?\d+)?)\s*([a-z/%]*)", str(value).lower())
        try:
            number = float(found[1]) * self.units[found[2]] if found else math.nan
        except (KeyError, ValueError):
            number = math.nan
        if not (math.isfinite(number) and number > 0):
            units = ", ".join(unit for unit in self.units if unit)
            self.fail(f"{value!r}: give it like {self.example} ({units})", param, ctx)
        return number


COUNT = Number({"": 1, "k": 1e3, "m": 1e6, "b": 1e9, "t": 1e12}, "10B")
RATE = Number({"": 1, "kbit": 1e3, "mbit": 1e6, "gbit": 1e9, "tbit": 1e12}, "1gbit")
TIME = Number({"": 1, "s": 1, "ms": 1e-3, "us": 1e-6, "min": 60}, "100ms")
LONG = Number({"s": 1, "min": 60, "h": 3600, "d": 86400}, "24h")
SHARE = Number({"": 1, "%": 0.01}, "95%")


def count(parameters: float) -> str:
    return short(parameters).replace(" G", "B").replace(" ", "").replace("k", "K")


def rate(bits_per_s: float) -> str:
    if not math.isfinite(bits_per_s):
        return "impossible"
    return short(bits_per_s) + "bit/s"


def short(value: float) -> str:
    for unit, name in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= unit:
            return f"{value / unit:.3g} {name}"
    return f"{value:.3g} "
