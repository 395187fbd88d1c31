"""Options and small helpers that several subcommands share."""

from __future__ import annotations

import contextlib
import ctypes
import math
import os
import re
from collections.abc import Callable, Iterator
from typing import Any

import click
from rich.text import Text

from jccl.errors import AuthError, printable
from jccl.settings import read_token, refuse_secret


def _no_secret(
    ctx: click.Context, param: click.Parameter, value: str | None
) -> str | None:
    refuse_secret("the address of the master (--master, JCCL_MASTER)", value)
    return value


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
            callback=_no_secret,
            help="Address of the master; default JCCL_MASTER.",
        ),
    ):
        command = option(command)
    return command


def group_option(command: Callable[..., Any]) -> Callable[..., Any]:
    return click.option(
        "--group",
        envvar="JCCL_GROUP",
        default="",
        metavar="NAME",
        help="A group of the run; default JCCL_GROUP, else the run itself.",
    )(command)


class Decimal(click.ParamType):  # type: ignore[type-arg]
    """A number >= 0 as jccl-master reads it (base/number.h): no nan, inf, hex, sign."""

    name = "number"

    def __init__(self, most: float = math.inf) -> None:
        self.most = most

    def convert(
        self,
        value: Any,
        param: click.Parameter | None,
        ctx: click.Context | None,
    ) -> float:
        text = str(value)
        form = r"(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?"
        number = float(text) if re.fullmatch(form, text, re.ASCII) else math.inf
        if not math.isfinite(number):
            self.fail(f"'{printable(text)}' is not a decimal number", param, ctx)
        if number > self.most:
            self.fail(f"{text} is above {self.most:g}", param, ctx)
        return number


def shown(text: Any) -> Text:
    """For rich: what others wrote stands there as they wrote it, and does nothing. A
    space at an end, which nobody would see, stands there by its number."""
    line = printable(str(text))
    return Text(re.sub(r"^\s+|\s+$", lambda end: "\\u0020" * len(end[0]), line))


_MAYBE_SECRET = re.compile("[0-9a-f]{32}", re.IGNORECASE)  # part of a token, or a key
_SHOWN = 80  # characters of what somebody mistyped


def quoted(name: str) -> str:
    """What somebody gave as a name, for an error: never anything like a secret."""
    if _MAYBE_SECRET.search(name):
        return "what you gave"
    return repr(name if len(name) <= _SHOWN else name[: _SHOWN - 1] + "…")


def keep_out_of_cores() -> None:
    """A secret is all over the process that uses it, in OpenSSL's memory as well: so
    none of it goes into a core, nor to other processes of this user."""
    set_dumpable = 4  # PR_SET_DUMPABLE
    ctypes.CDLL(None).prctl(set_dumpable, 0, 0, 0, 0)


RUN_SECRET = "jccl2run."  # how a run's secret begins
UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}


class Span(click.ParamType):  # type: ignore[type-arg]  # of a newer click
    """A time like 90s, 30m, 12h or 7d, in seconds."""

    name = "span"

    def convert(
        self,
        value: str,
        param: click.Parameter | None = None,
        ctx: click.Context | None = None,
    ) -> int:
        number, unit = value[:-1], value[-1:]
        decimal = number.isascii() and number.isdigit() and len(number) < 8
        if unit not in UNITS or not decimal or int(number) == 0:
            self.fail(f"{value!r} is no time like 90s, 30m, 12h or 7d", param, ctx)
        return int(number) * UNITS[unit]


_ROLE_LACKS = "a token with the role admin"  # in the master's refusal of an order


class Run:
    """A run's master, as the options of `run_options` name it."""

    def __init__(
        self,
        master: str | None,
        token_file: str | None,
        insecure: bool,
        group: str = "",
    ):
        if not master:
            raise click.UsageError(
                "no master named: give --master HOST:PORT or set JCCL_MASTER"
            )
        self._master = master
        self._group = group
        keep_out_of_cores()
        self._how: dict[str, Any] = {
            "token": read_token(None, token_file),
            "insecure": insecure,
        }
        # As the environment has it; a file that is named goes before it.
        self._admin = "" if token_file else os.environ.get("JCCL_ADMIN_TOKEN", "")
        self._as_admin = self._how
        if self._admin:
            self._as_admin = {**self._how, "token": self._admin.strip()}

    def orders_by(self, name: str) -> bool:
        """Whether orders are given by the token of this name."""
        return f".{name}." in self._as_admin["token"]

    def status(self, timeout: float = 5.0) -> str:
        """The status JSON as text."""
        from jccl import _native
        from jccl._faults import typed_errors

        with typed_errors():
            return str(
                _native.core().query_status(
                    self._master, timeout=timeout, group=self._group, **self._how
                )
            )

    def status_for_order(self) -> str:
        """The same, asked by the token that the order will be given by."""
        from jccl import _native
        from jccl._faults import typed_errors

        with self._naming_the_token(), typed_errors():
            return str(
                _native.core().query_status(
                    self._master, group=self._group, **self._as_admin
                )
            )

    def order(self, verb: str, subject: str, **details: Any) -> str:
        """What was done, in words."""
        from jccl import _native
        from jccl._faults import typed_errors

        order = {"verb": verb, "subject": subject, **details, **self._as_admin}
        order["group"] = self._group
        with self._naming_the_token(), typed_errors():
            return str(_native.core().give_order(self._master, **order))

    @contextlib.contextmanager
    def _naming_the_token(self) -> Iterator[None]:
        """Says which variable held a token that was refused, and how to get another."""
        if self._admin and not self._as_admin["token"]:
            raise AuthError("JCCL_ADMIN_TOKEN is blank: unset it, or set it to a token")
        try:
            yield
        except AuthError as fault:
            text = f"JCCL_ADMIN_TOKEN: {fault.text}" if self._admin else fault.text
            if _ROLE_LACKS in text and self._as_admin["token"]:
                text += (
                    "; set JCCL_ADMIN_TOKEN to one, as `jccl master --new-token` "
                    "printed it, or make one: jccl token create --from run.secret "
                    "--role admin"
                )
            raise AuthError(text, int(fault.code)) from None

    def join(self, **options: Any) -> Any:
        """A communicator, with the right to give orders if there is one."""
        import jccl
        from jccl import _native
        from jccl._faults import typed_errors

        how = dict(self._as_admin)
        security = jccl.Security(insecure=how.pop("insecure"))
        with self._naming_the_token():
            if how["token"].startswith(RUN_SECRET):  # who has it may make any token
                with typed_errors():
                    how["token"] = _native.core().make_token(how["token"], role="admin")
            return jccl.connect(self._master, security=security, **how, **options)


class Size(click.ParamType):  # type: ignore[type-arg]
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
