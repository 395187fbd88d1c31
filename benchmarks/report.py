"""One page with the plots and tables of all cells that have been measured.

Reads every JSON file below a folder; the page holds its pictures, so that it can be
sent as it is. It says nothing that the cells don't: no figure is computed here.
"""

from __future__ import annotations

import html
import io
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from benchmarks.common import RESULTS, Row, read_rows

STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto;
       padding: 0 1rem; color: #222; background: #fff }
figure { margin: 1.5rem 0 } figcaption { font-weight: 600 }
svg { max-width: 100%; height: auto }
div.wide { overflow-x: auto }
table { border-collapse: collapse; font: 12px/1.4 monospace }
td, th { padding: 1px 8px; text-align: right; border-bottom: 1px solid #eee }
th { position: sticky; top: 0; background: #fff }
.wrong { background: #f6c8c8 }
p.machine { color: #666 }
"""


@click.command()
@click.argument(
    "folders", nargs=-1, type=click.Path(exists=True, file_okay=False, path_type=Path)
)
@click.option(
    "-o",
    "--page",
    type=click.Path(dir_okay=False, path_type=Path),
    default=RESULTS.parent / "report.html",
    help="Where the page goes [build/benchmarks/report.html].",
)
def main(folders: Sequence[Path], page: Path) -> None:
    """Write a page from the cells below FOLDERS [build/benchmarks/results]."""
    try:
        from benchmarks import figures
    except ImportError as missing:
        raise click.ClickException(
            "plots need matplotlib: pip install matplotlib"
        ) from missing
    rows = [row for folder in folders or [RESULTS] for row in read_rows(folder)]
    if not rows:
        raise click.ClickException(
            "no cells there; run python -m benchmarks.all_reduce first"
        )
    parts = []
    for name in sorted({row["benchmark"] for row in rows}):
        mine = [row for row in rows if row["benchmark"] == name]
        parts.append(f"<h2>{html.escape(name)}</h2>\n{_machines(mine)}")
        parts += [_picture(title, figure) for title, figure in figures.of(name, mine)]
        parts.append(_table(mine))
    page.parent.mkdir(parents=True, exist_ok=True)
    page.write_text(
        "<!doctype html><html lang='en'><meta charset='utf-8'>"
        "<meta name='viewport' content='width=device-width'>"
        f"<title>jccl benchmarks</title><style>{STYLE}</style>"
        "<h1>jccl benchmarks</h1>" + "\n".join(parts) + "</html>\n"
    )
    click.echo(f"{len(rows)} rows: {page}")


def _machines(rows: Sequence[Row]) -> str:
    kinds = {
        f"{m['cpu']}, {m['cores']} cores, Linux {m['kernel']}"
        for m in (row["machine"] for row in rows)
    }
    loads = [row["machine"]["load"] for row in rows]
    text = "; ".join(sorted(kinds))
    text += f"; load {min(loads):.1f} to {max(loads):.1f} while measured"
    return f"<p class='machine'>{html.escape(text)}</p>"


def _picture(title: str, figure: Any) -> str:
    file = io.StringIO()
    figure.savefig(file, format="svg", metadata={"Date": None})
    picture = re.sub(r"^.*?(?=<svg)", "", file.getvalue(), flags=re.S)
    return f"<figure><figcaption>{html.escape(title)}</figcaption>{picture}</figure>"


def _table(rows: Sequence[Row]) -> str:
    heads = list(
        dict.fromkeys(
            key for row in rows for part in ("cell", "columns") for key in row[part]
        )
    )
    lines = []
    for row in rows:
        held = {**row["cell"], **row["columns"]}
        cells = "".join(f"<td>{_text(held.get(head))}</td>" for head in heads)
        mark = " class='wrong'" if held.get("wrong") else ""
        lines.append(f"<tr{mark}>{cells}</tr>")
    titles = "".join(f"<th>{html.escape(head)}</th>" for head in heads)
    return (
        f"<details><summary>{len(rows)} rows</summary><div class='wide'>"
        f"<table><tr>{titles}</tr>{''.join(lines)}</table></div></details>"
    )


def _text(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, float):
        return f"{value:.4g}"
    return html.escape(str(value))


if __name__ == "__main__":
    main()
