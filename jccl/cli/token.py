"""`jccl token`: the secret of a run, tokens that are made of it, and their end."""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Sequence
from typing import Any

import click
from rich.console import Console

from jccl.cli.common import (
    RUN_SECRET,
    Run,
    Span,
    keep_out_of_cores,
    quoted,
    run_options,
)
from jccl.cli.peers import tokens_of
from jccl.errors import AuthError
from jccl.settings import read_token, secret_in

# As the master reads them (net/security/credentials.h): role, uses, end, site, number.
_RIGHTS = r"[poa]-[0-9]{1,10}-[0-9]{1,20}-(?:0|[0-9a-f]{16})-[0-9a-f]{8}"
_NAME = re.compile(_RIGHTS)
_TOKEN = re.compile(
    rf"jccl2\.[0-9a-f]{{32}}\.[0-9a-f]{{64}}\.(?P<name>{_RIGHTS})\.[0-9a-f]{{64}}"
)
_TOKEN_FILE_MAX = 4096

FILE = click.option(
    "--file", "path", type=click.Path(), help="Write it there, readable by you only."
)


@click.group(name="token", invoke_without_command=True)
@FILE
@click.pass_context
def command(ctx: click.Context, path: str | None) -> None:
    """Make the secret of a new run. A subcommand handles the tokens of a run.

    Masters (--token-file, JCCL_TOKEN) and operators use the secret. It also makes
    tokens. Peers may use it too. Give a token to machines that are not yours.
    """
    if ctx.invoked_subcommand is not None:
        if path:
            raise click.UsageError("--file goes behind the subcommand")
        return
    from jccl import _native

    _hand_over(_native.core().new_token(), path)


@command.command(name="create")
@FILE
@click.option(
    "--from",
    "secret_file",
    type=click.Path(),
    required=True,
    help="The file with the run's secret.",
)
@click.option(
    "--role",
    type=click.Choice(["peer", "observer", "admin"]),
    default="peer",
    show_default=True,
    help="What the token allows: to join, to read the status only, or to give orders.",
)
@click.option("--site", help="The only site that may use it. --role peer needs this …")
@click.option(
    "--any-site", is_flag=True, help="… or this. --shared also allows any site."
)
@click.option(
    "--uses",
    type=click.IntRange(1, 1024),
    help="How many keys may join by it; default 1. A key returns with its key file.",
)
@click.option("--shared", is_flag=True, help="Any number of keys may join by it.")
@click.option("--expires", type=Span(), help="Nobody can join by it after 12h, 7d, …")
def create(path: str | None, secret_file: str, **rights: Any) -> None:
    """Make a token from the run's secret.

    The holder can do what its role says, but cannot lead the run or make other tokens.
    """
    from jccl import _native
    from jccl._faults import typed_errors

    role, site, uses = rights["role"], rights["site"], rights["uses"]
    if site is not None and not 0 < len(site.encode()) <= 64:
        raise click.UsageError("--site has 1 to 64 bytes: a token of no site is of any")
    if site is not None and rights["any_site"]:
        raise click.UsageError("--site and --any-site exclude each other")
    named = site is not None or rights["any_site"] or rights["shared"]
    if role == "peer" and not named:
        raise click.UsageError(
            "name the one site that may use it (--site eu-west), so that it is of "
            "no use elsewhere if it leaks; or say --any-site"
        )
    if rights["shared"] and uses:
        raise click.UsageError("--shared and --uses exclude each other")
    if role == "peer" and not rights["shared"]:
        uses = uses or 1
    expires = rights["expires"]
    keep_out_of_cores()
    secret = read_token(None, secret_file)
    if secret_in(secret) and not secret.startswith(RUN_SECRET):
        raise AuthError(
            "a token can't make tokens: give the run's secret (the file of "
            "`jccl token`)"
        )
    with typed_errors():
        token = _native.core().make_token(
            secret,
            role=role,
            uses=uses or 0,
            expires_unix_s=int(time.time()) + expires if expires else 0,
            site=site or "",
        )
    _hand_over(token, path)


@command.command(name="list")
@run_options
def show(**run: Any) -> None:
    """Show the tokens that were used to join, and those that were revoked."""
    tokens = tokens_of(json.loads(Run(**run).status()))
    Console().print(tokens if tokens.row_count else "nobody joined by a token yet")


@command.command(name="revoke")
@run_options
@click.argument("tokens", nargs=-1, required=True, metavar="TOKEN...")
def revoke(tokens: Sequence[str], **run: Any) -> None:
    """Refuse TOKEN (its file, or its name), and evict the sites that joined by it."""
    names = [_name_of(token) for token in tokens]  # none is sent before all are known
    master = Run(**run)
    # Its own last: with it gone no other would be taken from here.
    for name in sorted(names, key=master.orders_by):
        click.echo(master.order("revoke", name))


def _name_of(token: str) -> str:
    """The public part of a token. Nothing else is sent: the run shows it to all."""
    if _NAME.fullmatch(token):
        return token
    text = token.strip() if secret_in(token) else _content_of(token)
    what = "what you gave" if secret_in(token) else quoted(token)
    if text.startswith(RUN_SECRET):
        raise click.ClickException(
            f"{what} is the run's secret, which can't be revoked, and was not sent; if "
            "others have it, begin a new run (docs/lost-keys.md)"
        )
    found = _TOKEN.fullmatch(text)
    if found is None:
        raise click.ClickException(
            f"{what} holds no whole token (jccl2.…), so nothing was revoked; "
            "see the names in jccl token list"
        )
    return found["name"]


def _content_of(path: str) -> str:
    """Of a file that may be open to all by now: that may be why its token has to go."""
    try:
        with open(path, "rb") as file:
            return file.read(_TOKEN_FILE_MAX).decode("ascii", "replace").strip()
    except OSError as fault:
        raise click.ClickException(
            f"{quoted(path)} is neither a token's name (like p-1-0-0-b4b0fd4c) nor a "
            f"file with a token ({fault.strerror}), so nothing was revoked; see the "
            "names in jccl token list"
        ) from None


def _hand_over(token: str, path: str | None) -> None:
    """Prints it, or writes a file for its owner alone."""
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
