"""Options and small helpers that several subcommands share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click
from rich.text import Text

from jccl.errors import printable


def run_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """--master, --token-file and --insecure: how to reach a run."""
    for option in (
        click.option(
            "--insecure", is_flag=True, help="Allow plain connections off loopback."
        ),
        click.option(
            "--token-file",
            type=click.Path(exists=True, dir_okay=False),
            help="File with the run's token; default JCCL_TOKEN, JCCL_TOKEN_FILE.",
        ),
        click.option(
            "--master",
            envvar="JCCL_MASTER",
            metavar="HOST:PORT",
            help="Address of the master; default JCCL_MASTER.",
        ),
    ):
        command = option(command)
    return command


def shown(text: Any) -> Text:
    """For rich: what others wrote stands there as they wrote it, and does nothing."""
    return Text(printable(str(text)))


class Size(click.ParamType):
    """`64M`, `1K`, `4096`: bytes, by powers of 1024."""

    name = "size"

    def convert(self, value: Any, param: Any, ctx: Any) -> int:
        if isinstance(value, int):
            return value
        text = str(value).strip().upper().removesuffix("IB").removesuffix("B")
        factor = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}.get(text[-1:], 1)
        try:
            size = int(float(text[:-1] if factor > 1 else text) * factor)
        except ValueError:
            self.fail(f"{value!r} is not a size like 4096, 64K or 1G", param, ctx)
        if size < 1:
            self.fail(f"{value!r} is not positive", param, ctx)
        return size
