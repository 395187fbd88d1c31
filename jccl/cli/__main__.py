"""`python -m jccl.cli`: the same as the `jccl` command."""

from jccl.cli import main

main()
