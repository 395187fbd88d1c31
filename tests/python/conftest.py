"""Fixtures that several files share."""

import os

import pytest

from jccl import callback


@pytest.fixture(scope="module", params=callback.ROUTES)
def route(request):
    """Communicators made while it lasts take this route: the test runs over each."""
    before = os.environ.get("JCCL_ROUTE")
    os.environ["JCCL_ROUTE"] = request.param
    yield request.param
    os.environ.pop("JCCL_ROUTE")
    if before is not None:
        os.environ["JCCL_ROUTE"] = before
