"""A command on another host, by ssh: its environment and its signals go over stdin.

So no token is in a command line, which every user of either machine can read, and the
remote process ends with the connection: sshd by itself would leave it running.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence

import click

GRACE_S = 10  # of the remote process, from the first signal to SIGKILL
LOST = 255  # ssh's own exit code, when it can't reach the host or loses it

# A host that is gone is noticed after 15 s. Nobody can type a password or a "yes".
SSH = (
    *("ssh", "-T", "-o", "BatchMode=yes", "-o", "ConnectTimeout=15"),
    *("-o", "ServerAliveInterval=5", "-o", "ServerAliveCountMax=3"),
)

# POSIX sh. The first line of stdin is the environment, as one command, and each further
# one a signal; its end is that of the launcher, or of the connection. `read` takes no
# byte beyond its line. The process has a group of its own, as what it starts.
_SCRIPT = """
IFS= read -r line || exit 1
eval "$line" || exit 1
unset line
exec 3<&0
setsid {command} </dev/null 3<&- &
pid=$!
{{
  while IFS= read -r number; do kill -s "$number" -- "-$pid"; done
  kill -s TERM -- "-$pid"
  sleep {grace}
  kill -s KILL -- "-$pid"
}} <&3 >/dev/null 2>&1 &
watcher=$!
exec 3<&-
wait "$pid"
code=$?
kill "$watcher" 2>/dev/null
exit "$code"
"""
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)


def ssh_command(
    target: str, options: Sequence[str], argv: Sequence[str], folder: str = ""
) -> list[str]:
    """What starts `argv` there, once it has read the environment."""
    script = _SCRIPT.format(command=shlex.join(argv), grace=GRACE_S)
    if folder:
        script = f"cd {shlex.quote(folder)} || exit 1\n{script}"
    # Whatever the user's shell is there.
    return [*SSH, *options, "--", target, f"exec sh -c {shlex.quote(script)}"]


def environment_line(env: Mapping[str, str]) -> str:
    """The first line of stdin."""
    for name, value in env.items():
        if not _NAME.fullmatch(name):
            raise click.UsageError(f"{name!r} is no name of an environment variable")
        if any(letter in value for letter in "\n\r\0"):
            raise click.UsageError(f"the value of {name} has more than one line")
    words = [f"{name}={shlex.quote(value)}" for name, value in env.items()]
    return f"export {' '.join(words)}\n" if words else ":\n"
