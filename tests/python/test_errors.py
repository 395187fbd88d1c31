"""Codes, remedies and texts, held against the C++ table they mirror."""

import pickle
import re
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jccl
from jccl import errors
from jccl.errors import Code, Remedy

CODES_H = Path(__file__).parents[2] / "cpp" / "base" / "codes.h"


def header_codes():
    rows = re.findall(r"X\((\w+), (\d+), (\w+)\)", CODES_H.read_text())
    return [(name, int(number), remedy) for name, number, remedy in rows if number]


def snake(name):
    return re.sub(r"(?<!^)(?=[A-Z])", "_", name).upper()


def test_every_code_has_the_number_and_remedy_of_the_c_header():
    mine = [(code.name, int(code), errors.REMEDY[code].value) for code in Code]
    header = [(snake(name), n, remedy.lower()) for name, n, remedy in header_codes()]
    assert mine == header


@pytest.mark.parametrize(
    "code", [c for c in Code if c not in (Code.OK, Code.RESYNCED, Code.SKIPPED)]
)
def test_every_code_that_can_fail_has_an_exception_of_its_own(code):
    fault = errors.error_of(code, "link to peer 3 was reset")
    words = "".join(word.capitalize() for word in code.name.split("_"))
    assert type(fault).__name__ == f"{words}Error"
    assert fault.code is code
    assert fault.remedy is errors.REMEDY[code]
    assert "peer 3" in str(fault) and errors.NEXT[fault.remedy] in str(fault)


BUILTIN = {
    TimeoutError: {Code.DEADLINE, Code.TOO_FEW},
    ConnectionError: {Code.MASTER_LOST, Code.PEER_LOST, Code.LINK_LOST},
    PermissionError: {Code.AUTH, Code.BANNED},
    ArithmeticError: {Code.GUARD},
    ValueError: {
        *(Code.INVALID, Code.MISMATCH, Code.LIMIT),
        *(Code.UNKNOWN_TAG, Code.BUSY_TAG),
    },
}


@pytest.mark.parametrize("kind", BUILTIN, ids=lambda kind: kind.__name__)
def test_faults_are_the_exceptions_of_python_that_people_catch(kind):
    found = {code for code, cls in errors.ERROR.items() if issubclass(cls, kind)}
    assert found == BUILTIN[kind]
    for code in found:
        with pytest.raises(kind, match="link to peer 3"):
            raise errors.error_of(code, "link to peer 3 was reset")


def test_a_timeout_can_be_answered_by_the_same_call_again():
    """So a program in doubt, which has to resync first, does not see one."""
    timeouts = [c for c, cls in errors.ERROR.items() if issubclass(cls, TimeoutError)]
    assert {errors.REMEDY[code] for code in timeouts} == {Remedy.RETRY}


def test_every_public_exception_is_called_an_error():
    found = {
        name
        for name in jccl.__all__
        if isinstance(it := getattr(jccl, name), type) and issubclass(it, Exception)
    }
    assert {name for name in found if not name.endswith("Error")} == set()
    assert {cls.__name__ for cls in errors.ERROR.values()} < found


def test_a_message_says_what_happened_and_what_to_do_next():
    fault = errors.error_of(Code.MASTER_LOST, "tried 10.0.0.1:29400: refused")
    assert str(fault) == (
        "tried 10.0.0.1:29400: refused [MASTER_LOST; reconnect: open a new "
        "communicator with jccl.connect]"
    )


def test_a_fault_without_a_text_says_what_its_code_means():
    assert "deadline passed" in str(errors.DeadlineError())
    assert errors.ClosedError().code is Code.CLOSED


def test_an_unknown_code_is_reported_as_a_bug_with_its_number():
    fault = errors.error_of(99, "?")
    assert fault.code is Code.INTERNAL and "99" in str(fault)
    assert fault.remedy is Remedy.REPORT


def test_errors_are_caught_by_the_builtin_class_that_fits():
    assert isinstance(errors.error_of(Code.DEADLINE), TimeoutError)
    assert isinstance(errors.error_of(Code.PEER_LOST), ConnectionError)
    assert isinstance(errors.error_of(Code.MISMATCH), ValueError)


def test_errors_survive_pickling():
    fault = pickle.loads(pickle.dumps(errors.error_of(Code.EVICTED, "silent for 3 s")))
    assert type(fault) is errors.EvictedError and fault.text == "silent for 3 s"


def test_check_returns_a_good_status_and_raises_the_error_of_a_bad_one():
    assert errors.check(jnp.array([0, 3, 7, 1], jnp.int32)).world == 3
    assert errors.check(np.array([10, 2, 7, 1])).code == Code.RESYNCED
    with pytest.raises(errors.DeadlineError):
        errors.check(np.array([3, 0, 7, 1]))


def test_check_finds_the_status_of_whatever_carries_one():
    class Carrier:
        status = np.array([6, 2, 1, 1])
        text = "leaf params/w holds NaN"

    with pytest.raises(errors.GuardError, match="params/w"):
        errors.check(Carrier())


def test_check_refuses_what_is_no_status():
    with pytest.raises(TypeError, match="4 numbers"):
        errors.check(np.array([0, 1]))


def test_check_inside_jit_says_that_the_status_is_data_there():
    with pytest.raises(TypeError, match="outside"):
        jax.jit(errors.check)(jnp.zeros(4, jnp.int32))
