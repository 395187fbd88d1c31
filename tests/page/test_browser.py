"""The page in a real Chromium: make long-page (or here, where Chromium is)."""

import os
import re
from pathlib import Path

import pytest

from jccl import _native
from tests.page.chromium import PROGRAM, Chromium
from tests.page.run import SITES, seen

CORE = _native.core()
PICTURES = Path(__file__).parents[2] / "docs"
ROWS = "[...document.querySelectorAll('#peers tbody tr')].map(r => r.innerText)"

pytestmark = [
    pytest.mark.skipif(not PROGRAM, reason="no Chromium: make long-page"),
    pytest.mark.skipif(
        "JCCL_LONG" not in os.environ, reason="takes a minute: make long-page"
    ),
]


@pytest.fixture(scope="module")
def run():
    with seen(SITES) as (run, url):
        yield run, url


def test_it_loads_without_an_error_and_asks_nobody_else(run):
    with Chromium() as tab:
        tab.open(run[1])
        tab.wait(f"{ROWS}.length == {len(SITES)}")
        tab.wait("document.querySelectorAll('#waits svg line').length >= 3")
        tab.wait("document.querySelectorAll('#rounds rect.forming').length > 3")
        tab.wait("document.querySelectorAll('#rounds rect.moving').length > 3")
        assert tab.value("document.querySelectorAll('#rounds text.join').length") == 4
        tab.wait("/ ms/.test(document.querySelector('#links').innerText)")
        assert tab.value("document.querySelector('#state').innerText") == "live"
        assert all(url.startswith(run[1]) for url in tab.requests), tab.requests
        assert tab.errors == []
        label = "document.querySelector('#waits svg').getAttribute('aria-label')"
        assert "waits for lima" in tab.value(label)


def test_a_name_is_text_and_no_markup(run):
    with Chromium() as tab:
        tab.open(run[1])
        tab.wait(f"{ROWS}.length == {len(SITES)}")
        assert any("<b onclick=alert(1)>x</b>" in row for row in tab.value(ROWS))
        assert tab.value("document.querySelectorAll('[onclick]').length") == 0


def test_a_script_that_got_in_would_not_run(run):
    with Chromium() as tab:
        tab.open(run[1])
        tab.wait(f"{ROWS}.length > 0")
        tab.value(
            "document.body.insertAdjacentHTML('beforeend',"
            '\'<img src=x onerror="window.bad = 1">'
            '<a id=a onclick="window.bad = 1">\');'
            "document.getElementById('a').click(); window.bad = window.bad || 0"
        )
        tab.wait("document.images.length == 1 && document.images[0].complete")
        assert tab.value("window.bad") == 0
        assert any("Content Security Policy" in error for error in tab.errors)


def test_on_a_phone_nothing_is_cut_off(run):
    with Chromium(390, 844) as tab:
        tab.open(run[1])
        tab.wait(f"{ROWS}.length == {len(SITES)}")
        assert tab.value("document.documentElement.scrollWidth") == 390
        small = tab.value(
            "[...document.querySelectorAll('td, th, li, p')]"
            ".filter(e => e.innerText && "
            "parseFloat(getComputedStyle(e).fontSize) < 12).length"
        )
        assert small == 0
        dark = tab.value("getComputedStyle(document.body).backgroundColor")
        assert sum(map(int, re.findall(r"\d+", dark))) < 3 * 60
        if "JCCL_PICTURES" in os.environ:
            tab.wait("document.querySelectorAll('#waits svg line').length >= 3")
            tab.picture(PICTURES / "page-phone.png")


def test_a_kill_is_shown_within_two_seconds_and_a_master_that_ends_too(run):
    with Chromium() as tab:
        tab.open(run[1])
        tab.wait(f"{ROWS}.length == {len(SITES)}")
        lost = "document.querySelector('#events li[data-kind=evict]')"
        oslo = list(SITES).index("oslo")
        run[0].peers[oslo].kill()
        took = tab.wait(f"{lost} && {ROWS}.length == {len(SITES) - 1}", 2.0)
        print(f"a kill was shown after {took:.2f} s")
        assert "oslo" in tab.value(f"{lost}.innerText")
        tab.wait("document.querySelectorAll('#rounds text.kill').length == 1")
        if "JCCL_PICTURES" in os.environ:
            tab.wait("document.querySelectorAll('#waits svg line').length >= 2")
            tab.picture(PICTURES / "page.png")
        run[0].master.kill()
        tab.wait("/no answer/.test(document.querySelector('#state').innerText)")
        run[0].start_master()  # at another port of its page: an address is not kept


def test_a_token_goes_from_the_address_into_a_header():
    secret = CORE.new_token()
    master = CORE.Master.start(token=secret, http="0.0.0.0:0")
    try:
        url = f"http://127.0.0.1:{master.http_address.rpartition(':')[2]}/"
        token = CORE.make_token(secret, role="observer")
        with Chromium() as tab:
            tab.open(url)
            tab.wait("!document.querySelector('#ask').hidden")
            tab.open(f"{url}?token={token}")
            tab.wait("document.querySelector('#state').innerText == 'live'")
            assert tab.value("location.href") == url
            assert [u for u in tab.requests if token in u] == [f"{url}?token={token}"]
        with Chromium() as tab:
            tab.open(url)
            tab.wait("!document.querySelector('#ask').hidden")
            tab.value(f"document.querySelector('#token').value = '{token}x'")
            tab.value("document.querySelector('#ask button').click()")
            tab.wait("/valid token of this run/.test(document.body.innerText)")
            tab.value(f"document.querySelector('#token').value = '{token}'")
            tab.value("document.querySelector('#ask button').click()")
            tab.wait("document.querySelector('#state').innerText == 'live'")
    finally:
        master.stop()
