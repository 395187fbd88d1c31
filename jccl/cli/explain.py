"""`jccl bench --explain`: why the master chose a plan, and whether it was right.

Beside what the cost model predicts for each plan (ALGORITHMS.md, section 6) stands what
the same plan takes when it is asked for by name, and what is known of the links.
"""

from __future__ import annotations

from typing import Any

PLANS = ("direct", "exchange", "ring")


def decision(
    status: dict[str, Any], size: int, codec: str, measured: dict[str, float]
) -> dict[str, Any]:
    """What the master knew and chose for rounds of `size` bytes.

    Args:
        status: the master's status object, asked for right after the rounds.
        size: bytes of the array.
        codec: its codec.
        measured: seconds by plan; "auto" or "fastest" is what the master chose itself.
    """
    found = [p for p in status["plans"] if p["data_bytes"] == size]
    asked = "fastest" if "fastest" in measured else "auto"
    free = next((p for p in found if _asked(p) == asked), None)
    rows = [] if free is None else [_row(c) for c in free["candidates"]]
    chosen = rows[0]["plan"] if rows else None
    for row in rows[:1]:
        row["chosen"] = True
        row["measured_s"] = measured.get(asked)
    for plan in found:
        kind = plan["candidates"][0]["plan"]
        if plan["pinned"] and all(row["plan"] != kind for row in rows):
            rows.append(_row(plan["candidates"][0]))
    for row in rows[1:]:
        row["measured_s"] = measured.get(row["plan"])
    return {
        "size": size,
        "codec": codec,
        "asked": asked,
        "encoded_bytes": free["encoded_bytes"] if free else None,
        "plan": chosen,
        "candidates": rows,
        "links": status["links"],
        "uplinks": status["uplinks"],
    }


def _asked(plan: dict[str, Any]) -> str | None:
    """By what name it was left to the master; None: it was not."""
    if plan["pinned"]:
        return None
    return "fastest" if plan.get("any_order") else "auto"


def _row(candidate: dict[str, Any]) -> dict[str, Any]:
    return {**candidate, "chosen": False, "measured_s": None}


def text(decision: dict[str, Any]) -> str:
    """The decision as lines for people."""
    by = decision["plan"] or "nothing"
    asked = " (plan=fastest)" if decision["asked"] == "fastest" else ""
    lines = [f"# {decision['size']} B are reduced by: {by}{asked}"]
    lines.append(f"#   {'plan':<10}{'predicted':>12}{'measured':>12}  shares")
    for row in decision["candidates"]:
        shares = None if row["plan"] == "exchange" else row.get("shares")
        total = sum(shares) if shares else 0
        percents = [f"{100 * s / total:.0f}" for s in shares or ()]
        lines.append(
            f"#   {row['plan']:<10}{_time(row['predicted_s']):>12}"
            f"{_time(row['measured_s']):>12}  "
            + (" ".join(percents) + " %" if shares else _unshared(row))
            + (f"  order {' '.join(map(str, row['order']))}" if "order" in row else "")
            + ("  <- chosen" if row["chosen"] else "")
        )
    return "\n".join(lines)


def _unshared(row: dict[str, Any]) -> str:
    return "all" if row["plan"] == "exchange" else "equal"


def matrix(decision: dict[str, Any]) -> str:
    """What is known of the links, as lines for people."""
    links, uplinks = decision["links"], decision["uplinks"]
    lines = ["# links as measured (a dash: not yet, taken for fast)"]
    for peer, rate in sorted((u["peer"], u["bytes_per_s"]) for u in uplinks):
        lines.append(f"#   {peer:>4} -> all   {_rate(rate):>12}")
    for link in links:
        lines.append(
            f"#   {link['from']:>4} -> {link['to']:<5}{_rate(link['bytes_per_s']):>13}"
            f"  rtt {link['rtt_ms']:.2f} ms"
        )
    if len(lines) == 1:
        lines.append("#   nothing")
    return "\n".join(lines)


def _time(seconds: float | None) -> str:
    if seconds is None:
        return "-"
    return f"{seconds * 1e3:.2f} ms" if seconds >= 1e-3 else f"{seconds * 1e6:.0f} us"


def _rate(bytes_per_s: float) -> str:
    return f"{bytes_per_s / 1e6:.1f} MB/s" if bytes_per_s else "-"
