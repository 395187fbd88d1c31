"""`jccl token`: the secret of a run, and tokens that are made of it."""

from __future__ import annotations

import os
import time

import click

from jccl.settings import read_token

UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}


class Span(click.ParamType):
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


@click.command(name="token")
@click.option(
    "--file", "path", type=click.Path(), help="Write it there, readable by you only."
)
@click.option(
    "--from",
    "secret_file",
    type=click.Path(),
    help="Make a token of the run's secret in this file.",
)
@click.option(
    "--role",
    type=click.Choice(["peer", "observer"]),
    help="What the token admits to: joining (default), or asking for the status alone.",
)
@click.option("--expires", type=Span(), help="Nobody joins by it after 12h, 7d, …")
@click.option("--site", help="The one site that may use it.")
def command(
    path: str | None,
    secret_file: str | None,
    role: str | None,
    expires: int | None,
    site: str | None,
) -> None:
    """Make the secret of a new run, or a token of one.

    The secret is for masters (--token-file, JCCL_TOKEN) and for making tokens. Peers
    may use it too; machines that are not yours get a token instead, made by --from:
    whoever has one can join the run, and cannot lead it or make others.
    """
    from jccl import _native
    from jccl._faults import typed_errors

    if site is not None and not 0 < len(site.encode()) <= 64:
        raise click.UsageError("--site has 1 to 64 bytes: a token of no site is of any")
    if secret_file is None:
        if role or expires or site:
            raise click.UsageError(
                "--role, --expires and --site are of tokens: name the run's secret by "
                "--from"
            )
        token = _native.core().new_token()
    else:
        until = int(time.time()) + expires if expires else 0
        with typed_errors():
            token = _native.core().make_token(
                read_token(None, secret_file),
                role=role or "peer",
                expires_unix_s=until,
                site=site or "",
            )
    if path is None:
        click.echo(token)
        return
    try:
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        raise click.ClickException(
            f"{path} exists; it may hold a token in use"
        ) from None
    except OSError as fault:
        raise click.ClickException(f"cannot write {path}: {fault.strerror}") from None
    with os.fdopen(handle, "w") as file:
        file.write(token + "\n")
    click.echo(f"JCCL_TOKEN_FILE={os.path.abspath(path)}")
