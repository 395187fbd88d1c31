"""One hostile member against live rounds of three honest ones, row by row.

    python -m tests.attack                      # all rows, 20 s each
    python -m tests.attack --row fail-guard     # or descriptor,done-wrong: by turns
    python -m tests.attack --token              # encrypted, each key by a token
    python -m tests.attack --strict             # a rate below 80 % fails, too

Usual is the same program beside it without lies. Exits with 1 where a promise is
broken; which those are says trial.py.
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
    "failed  banned s  named s  log B/s   MiB  busy % usually    lies"
)


def line_of(r: trial.Result) -> str:
    def seconds(value: float | None) -> str:
        return "-" if value is None else f"{value:.1f}"

    rates = [*r.usual, *r.first, *r.attacked] or [0.0] * 6
    return (
        f"{r.row[:22]:22} {' '.join(f'{rate:5.1f}' for rate in rates)}  "
        f"{r.ratio:5.2f} {r.usual_p99_ms:5.1f} {r.p99_ms:5.1f}  {r.p99_ratio:5.2f}  "
        f"{r.wrong:5}  {r.failed:6}  {seconds(r.banned_s):>8}  "
        f"{seconds(r.named_s):>7}  {r.log:7.0f} {r.mib:5.1f}  {100 * r.busy:6.1f} "
        f"{100 * r.usually_busy:7.1f}  {r.lies:6}"
    )


def arguments() -> argparse.Namespace:
    assert __doc__
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=20, help="of each row")
    parser.add_argument("--row", action="append", help="or several: by turns")
    parser.add_argument("--token", action="store_true", help="a run with a token")
    parser.add_argument("--strict", action="store_true", help="rates count, too")
    parser.add_argument("--jobs", type=int, default=1, help="rows side by side")
    parser.add_argument("--seed", type=int, default=1)
    return parser.parse_args()


def main() -> None:
    args = arguments()
    rows = trial.table()
    if args.row:
        rows = [trial.group(names) for names in args.row]
    token = trial.fresh_token() if args.token else ""
    home = Path(tempfile.mkdtemp(prefix="jccl-attack-"))
    broken = slow = 0
    print(f"{'with a token' if args.token else 'plain'}\n{HEAD}", flush=True)
    with ThreadPoolExecutor(args.jobs) as pool:
        plays = [
            pool.submit(
                trial.play, row, home / row.name, token, args.seconds, args.seed
            )
            for row in rows
        ]
        for row, played in zip(rows, plays, strict=True):
            result = played.result()
            print(line_of(result), flush=True)
            if result.codes:
                print(f"  honest calls failed: {result.codes}")
            for problem in result.broken:
                print(f"  BROKEN: {problem}", flush=True)
            broken += len(result.broken)
            slow += result.slow()
            if not result.broken and not result.slow():
                shutil.rmtree(home / row.name)
    print(f"{len(rows)} rows, {broken} promises broken, {slow} below 80 %")
    if broken or (args.strict and slow):
        sys.exit(f"logs: {home}")
    shutil.rmtree(home)


if __name__ == "__main__":
    main()
