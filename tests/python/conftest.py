"""Fixtures that several files share."""

import os
import signal

import pytest

from jccl import _leaving, callback


@pytest.fixture(autouse=True)
def _signals_are_given_back():
    """A handler that a test leaves behind would fail another one, on another day."""
    before = {n: signal.getsignal(n) for n in (signal.SIGINT, signal.SIGTERM)}
    yield
    left = {n: signal.getsignal(n) for n in before}
    if left[signal.SIGTERM] in (_leaving._on_term, _leaving._before):
        del left[signal.SIGTERM]  # a communicator has it, or has given it back
    for number in left:
        signal.signal(number, before[number])
    assert all(how == before[number] for number, how in left.items())


@pytest.fixture(scope="module", params=callback.ROUTES)
def route(request):
    """Communicators made while it lasts take this route: the test runs over each."""
    before = os.environ.get("JCCL_ROUTE")
    os.environ["JCCL_ROUTE"] = request.param
    yield request.param
    os.environ.pop("JCCL_ROUTE")
    if before is not None:
        os.environ["JCCL_ROUTE"] = before
