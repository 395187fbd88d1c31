"""One hostile member against live rounds of three honest ones, row by row.

    python -m tests.attack                      # all rows, 20 s each
    python -m tests.attack --row fail-guard     # or descriptor,done-wrong: by turns
    python -m tests.attack --token              # encrypted, each key by a token
    python -m tests.attack --honest 2           # against two, who are still the most
    python -m tests.attack --strict             # slow and late rows fail, too
    python -m tests.attack --markdown table.md  # the table of docs/benchmarks.md

Usual is the same program beside it without lies. Exits with 1 where a promise is
broken; which those are says trial.py. How fast rounds go on is of the machine, too:
below 80 % of usual (slow), or with a p99 above 1.2 of it (late), a row has a mark, and
fails where that is strict. A late row is tried again then, twice as long, before it
counts.

Which row, or test (SECURITY.md names them), tries what was once done by hand:

    publishes first, weight 0, another state   weightless, published
    … and serves it to joiners                 cluster_forgery_test
    stripes in another's name, false data      impostor
    asks peers for data after it left          former
    hello with a member's life                 same-life
    a wish for 2^32-1 peers                    hostile_member_test (of a run's begin)
    256 tags, 1,023 observers                  crowded
    asks for snapshots and reads nothing       unread, unread-none, snapshots_test
    addresses of others                        elsewhere, link_admission_test
    names with markup, line ends, escapes      names, test_hostile_names
    256 connections of one byte                one-byte
    1,100 made-up links                        made-up-links
    status in a loop beside 900 observers      status-crowd
"""

import argparse
import shutil
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.attack import trial

HEAD = (
    "                          usual/s     first/s      then/s         p99 ms\n"
    "row                    grads model grads model grads model  ratio usual  "
    "then  ratio  wrong  "
    "failed  banned s  named s  log B/s   MiB  honest  fds  busy % usually    lies"
)


def line_of(r: trial.Result) -> str:
    def seconds(value: float | None) -> str:
        return "-" if value is None else f"{value:.1f}"

    rates = [*r.usual, *r.first, *r.attacked] or [0.0] * 6
    return (
        f"{r.row[:22]:22} {' '.join(f'{rate:5.1f}' for rate in rates)}  "
        f"{r.ratio:5.2f} {r.usual_p99_ms:5.1f} {r.p99_ms:5.1f}  {r.p99_ratio:5.2f}  "
        f"{r.wrong:5}  {r.failed:6}  {seconds(r.banned_s):>8}  "
        f"{seconds(r.named_s):>7}  {r.log:7.0f} {r.mib:5.1f} {r.honest_mib:7.1f} "
        f"{r.honest_descriptors:4}  {100 * r.busy:6.1f} "
        f"{100 * r.usually_busy:7.1f}  {r.lies:6}"
        f"{'  slow' if r.slow() else ''}{'  late' if r.late() else ''}"
    )


MARKDOWN_HEAD = (
    "| row | what it does | rounds | p99 | named | banned |\n"
    "| --- | --- | --- | --- | --- | --- |\n"
)


def markdown_of(r: trial.Result, does: str) -> str:
    def after(seconds: float | None) -> str:
        return "–" if seconds is None else f"{seconds:.1f} s"

    kept = f"{100 * r.ratio:.0f} %"
    return (
        f"| `{r.row}` | {does} | {kept} | {r.p99_ratio:.2f} × "
        f"| {after(r.named_s)} | {after(r.banned_s)} |\n"
    )


def arguments() -> argparse.Namespace:
    assert __doc__
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=20, help="of each row")
    parser.add_argument("--row", action="append", help="or several: by turns")
    parser.add_argument("--token", action="store_true", help="a run with a token")
    parser.add_argument("--honest", type=int, default=3, help="members")
    parser.add_argument("--strict", action="store_true", help="speed counts, too")
    parser.add_argument("--markdown", type=Path, help="a table of it, in that file")
    parser.add_argument("--jobs", type=int, default=1, help="rows side by side")
    parser.add_argument("--seed", type=int, default=1)
    return parser.parse_args()


def attempt(
    row: trial.Row, folder: Path, token: str, args: argparse.Namespace
) -> trial.Result:
    result = trial.play(row, folder, token, args.seconds, args.seed, args.honest)
    if args.strict and result.late() and not result.slow() and not result.broken:
        print(f"{line_of(result)}  again, twice as long", flush=True)
        again = folder.with_name(f"{folder.name}-again")
        more = 2 * args.seconds
        result = trial.play(row, again, token, more, args.seed, args.honest)
    return result


def main() -> None:
    args = arguments()
    rows = trial.table()
    if args.row:
        rows = [trial.group(names) for names in args.row]
    token = trial.fresh_token() if args.token else ""
    home = Path(tempfile.mkdtemp(prefix="jccl-attack-"))
    broken = slow = late = 0
    markdown = MARKDOWN_HEAD
    how = "with a token" if args.token else "plain"
    print(f"{how}, {args.honest} honest\n{HEAD}", flush=True)
    with ThreadPoolExecutor(args.jobs) as pool:
        plays = [
            pool.submit(attempt, row, home / row.name, token, args) for row in rows
        ]
        for row, played in zip(rows, plays, strict=True):
            result = played.result()
            print(line_of(result), flush=True)
            markdown += markdown_of(result, row.does)
            if args.markdown:
                args.markdown.write_text(markdown)
            if result.codes:
                print(f"  honest calls failed: {result.codes}")
            for problem in result.broken:
                print(f"  BROKEN: {problem}", flush=True)
            broken += len(result.broken)
            slow += result.slow()
            late += result.late()
            if not result.broken and not result.slow() and not result.late():
                for folder in (home / row.name, home / f"{row.name}-again"):
                    shutil.rmtree(folder, ignore_errors=True)
    print(
        f"{len(rows)} rows, {broken} promises broken, {slow} below 80 %, "
        f"{late} with a p99 above {trial.P99_RATIO_MAX} of usual"
    )
    if broken or (args.strict and (slow or late)):
        sys.exit(f"logs: {home}")
    shutil.rmtree(home)


if __name__ == "__main__":
    main()
