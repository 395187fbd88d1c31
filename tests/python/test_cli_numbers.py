"""Numbers of `jccl master` are read as jccl-master reads them: decimal, in range."""

import pytest
from click.testing import CliRunner

from jccl.cli import group


def invoke(*args):
    return CliRunner().invoke(group, list(args))


@pytest.mark.parametrize("odd", ["nan", "inf", "0x10", "-1", " 1", "1_0", "1e6x", ""])
def test_a_number_of_the_master_is_decimal_as_jccl_master_reads_it(odd):
    result = invoke("master", "--weight-max", odd)
    assert result.exit_code == 2
    assert "--weight-max" in result.output


@pytest.mark.parametrize("odd", ["nan", "0x1", "1.01", "-0.1", "one"])
def test_a_share_to_audit_is_at_most_1(odd):
    result = invoke("master", "--audit", odd)
    assert result.exit_code == 2
    assert "--audit" in result.output
