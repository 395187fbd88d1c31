#!/usr/bin/env python3
"""wan - emulated wide-area networks between network namespaces of one machine.

  wan.py up 3 rate=1gbit rtt=80ms loss=0.1%     three hosts h0, h1, h2
  wan.py up -f topology.toml                    the same from a file
  wan.py exec h0 -- CMD...                      run a program on a host
  wan.py set rate=500mbit h0-h1.rtt=200ms       change it while programs run
  wan.py cut h0 | heal h0                       partition (also h0-h1, h0:h1)
  wan.py kill h0                                SIGKILL all programs of a host
  wan.py show | stats | ls | down [--all]
  wan.py run 2 rate=1gbit rtt=80ms -- CMD...    up, CMD (not on a host), down

Settings: [TARGET.]KEY=VALUE; see README.md. Needs root, g++, iproute2, Linux 5.11.
"""

import argparse
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

sys.path[:1] = [str(Path(__file__).resolve().parents[2])]  # when run as a file

from benchmarks.wan.net import Net, networks  # noqa: E402
from benchmarks.wan.settings import WanError  # noqa: E402

CHANGES = ("set", "cut", "heal", "kill")
COMMANDS = ("up", "run", "exec", *CHANGES, "show", "stats", "ls", "down")


def arguments(argv):
    """(options, what comes after the first --)."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "-n",
        "--net",
        default=os.environ.get("WAN_NET", "wan"),
        help="network name (default: $WAN_NET or wan)",
    )
    sub = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name in COMMANDS:
        p = sub.add_parser(name)
        if name in ("up", "run"):
            p.add_argument("-f", "--file")
        if name == "down":
            p.add_argument("--all", action="store_true", help="all networks")
        p.add_argument("args", nargs="*")
    program = []
    if "--" in argv:
        at = argv.index("--")
        argv, program = argv[:at], argv[at + 1 :]
    return parser.parse_args(argv), program


def bring_up(options, program):
    settings = [a for a in options.args if "=" in a]
    hosts = [a for a in options.args if "=" not in a]
    hosts = hosts[0] if len(hosts) == 1 else hosts or 2
    if options.command == "up":
        net = Net(hosts, *settings, name=options.net, file=options.file, keep=True)
        print(" ".join(f"{host}={address}" for host, address in net.addr.items()))
        return 0
    if not program:
        raise WanError("run needs -- CMD")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    with Net(hosts, *settings, file=options.file) as net:
        return subprocess.run(
            program, env={**os.environ, "WAN_NET": net.name}
        ).returncode


def main():
    options, program = arguments(sys.argv[1:])
    command, args = options.command, options.args
    if command in ("up", "run"):
        return bring_up(options, program)
    if command == "ls":
        print("\n".join(networks()))
        return 0
    if command == "down":
        for name in networks() if options.all else [options.net]:
            Net.attach(name).close()
        return 0
    net = Net.attach(options.net)
    if command == "exec":
        if not args:
            raise WanError("exec needs a host")
        argv = net.argv(args[0], args[1:] + program)
        os.execvp(argv[0], argv)
    elif command in ("set", "cut", "heal"):
        getattr(net, command)(*args)
    elif command == "kill":
        for host in args:
            net.kill(host)
    elif command == "show":
        print(json.dumps({**net.state, "addr": net.addr}, indent=1))
    elif command == "stats":
        print(json.dumps(net.stats(), indent=1))
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except WanError as e:
        sys.exit(f"wan: {e}")
