"""`jccl token`: the secret that admits to one run."""

from __future__ import annotations

import os

import click


@click.command(name="token")
@click.option(
    "--file", "path", type=click.Path(), help="Write it there, readable by you only."
)
def command(path: str | None) -> None:
    """Make a new token.

    The master gets it by --token-file, the peers by --token-file or JCCL_TOKEN. Whoever
    has it can join the run and is believed.
    """
    from jccl import _native

    token = _native.core().new_token()
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
