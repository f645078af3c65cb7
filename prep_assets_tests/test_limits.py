"""Code that came from somebody else ends in time and within memory, with an error that says where it was."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
import types
from collections.abc import Iterator
from typing import Any

import pytest

from prep_assets import limits
from prep_assets.errors import ConfigError, PrepAssetsError, Refused, TemplateError
from prep_assets.limits import limited
from prep_assets.schemas.reader import apply
from prep_assets.schemas.registry import convert_with
from prep_assets.text.template import LARGEST, ChatTemplate

CHAT = [{"role": "user", "content": "50% of 12345678 {}"}]


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "SECONDS", 0.3)
    monkeypatch.setattr(limits, "_LOOK", 0.05)


def render(source: str, **options: Any) -> str:
    return ChatTemplate("mine", source, {}, options).render(CHAT)


LOOP = "{% for a in range(99999) %}{% for b in range(99999) %}{{ 1 }}{% endfor %}{% endfor %}"
BEHIND = "{% macro go() %}" + LOOP + "{% endmacro %}\n{% set x = go() %}"


@pytest.mark.parametrize(("source", "line"), [(f"\n\n{LOOP}", 3), (f"\n{BEHIND}", 2)])
def test_a_loop_that_does_not_end_is_ended_with_its_line(short: None, source: str, line: int) -> None:
    with pytest.raises(TemplateError, match=rf"^chat template mine: line {line}: one render takes more than 0.3 seconds\. Look for a loop"):
        render(source)
    assert render("{{ messages[0].content }}") == CHAT[0]["content"]


def test_a_loop_that_gathers_memory_is_ended(short: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "SECONDS", 60)
    monkeypatch.setattr(limits, "BYTES", 40 << 20)
    with pytest.raises(TemplateError, match="line 1: one render takes more than 40 MiB of memory"):
        render(BEHIND)


@pytest.mark.parametrize(
    "expression",
    ["'x' * 10**9", "10**9 * [1]", "7 ** (7 ** 12)", "'%0999999999d' % 1", "'%*d' % (10**9, 1)", "'{:>999999999}'.format(1)", "'{:{}}'.format(1, 10**9)",
     "'x'.center(10**9)", "'x'|center(10**9)", "'x'|indent(10**9)", "'%999999999d'|format(1)", "[1]|batch(10**9, 'x')|list", "{}|tojson(indent=10**9)"],
)  # fmt: skip
def test_one_operation_makes_a_bounded_text(expression: str) -> None:
    began = time.process_time()
    with pytest.raises(Refused, match=rf"template mine: line 2: .*makes at most {LARGEST:,} characters or elements"):
        render("\n{{ " + expression + " }}")
    assert time.process_time() - began < 30


def test_what_is_no_size_is_no_concern_of_it() -> None:
    written = (
        "{{ messages[0].content|indent(2) }} {{ messages[0].content|tojson }} {{ 99999999|tojson }} {{ '%d'|format(99999999) }} "
        "{{ '%s' % messages[0].content }} {{ '{}'.format(99999999) }} {{ 3 * 'ab' }} {{ 2 ** 10 }} {{ [1, 2]|batch(1)|list }} {{ undefined_one }}"
    )
    content = CHAT[0]["content"]
    assert render(written) == f'{content} "{content}" 99999999 99999999 {content} 99999999 ababab 1024 [[1], [2]] '


@pytest.mark.parametrize("value", ["messages[0].items", "messages|map(attribute='role')", "range"])
def test_what_another_run_would_write_otherwise_is_not_written(value: str) -> None:
    with pytest.raises(Refused, match=r"line 1: it writes a .*, which is another text in each run"):
        render("{{ " + value + " }}")


@pytest.fixture
def mine() -> Iterator[types.ModuleType]:
    module = types.ModuleType("my_slow_schema")
    sys.modules["my_slow_schema"] = module
    yield module
    del sys.modules["my_slow_schema"]


def test_a_schema_of_ones_own_that_hangs_stops_the_build(short: None, mine: types.ModuleType) -> None:
    def read(row: dict[str, Any]) -> None:
        while row["n"]:
            try:
                time.sleep(0.001)
            except Exception:
                continue

    mine.read = read  # type: ignore[attr-defined]
    convert = convert_with("my_slow_schema:read")
    with pytest.raises(Refused, match="skipped_by_schema"):
        apply(convert, {"n": 0})
    with pytest.raises(
        ConfigError, match=r"^schema 'my_slow_schema:read': .*test_limits.py, line \d+: one call takes more than 0.3 seconds"
    ):
        apply(convert, {"n": 1})


def test_a_call_that_ends_in_time_is_left_alone_in_every_thread(short: None) -> None:
    wrong: list[BaseException] = []

    def work() -> None:
        try:
            for _ in range(200):
                limited(lambda what, trace: PrepAssetsError(what), time.sleep, 0.001)
            time.sleep(0.4)  # outside, nothing is limited
        except BaseException as error:
            wrong.append(error)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


CALLS = """
import re, sys, threading, time
from prep_assets import limits
from prep_assets.errors import PrepAssetsError
from prep_assets.limits import limited
from prep_assets.own_code import within_limits
limits.SECONDS, limits._GRACE, limits._LOOK = 0.3, 0.3, 0.05

def sleeps():
    time.sleep(2)

def loops():
    while True:
        pass

def swallows():
    try:
        time.sleep(2)
    except BaseException:
        raise ValueError("refused") from None

def never_lets_go():
    while True:
        try:
            time.sleep(0.001)
        except BaseException:
            continue

def searches():
    re.match("(a+)+$", 60 * "a" + "b")  # for years

def exits():
    sys.exit(3)

def ends():
    return threading.current_thread() is threading.main_thread()

def call(function):
    try:
        print(within_limits("step", "mine:" + function.__name__, function)(), flush=True)
    except (PrepAssetsError, SystemExit) as error:
        print(type(error).__name__, str(error).partition(": one call ")[2] or error, flush=True)

def in_a_thread(function):
    thread = threading.Thread(target=call, args=(function,))
    thread.start()
    thread.join()
"""
OURS = CALLS + "limits.interrupt_main_thread()\n"
REMEDY = "Fix it, or leave out the row that causes it"
LATE = f"ConfigError takes more than 0.3 seconds. {REMEDY}"


def said(code: str) -> tuple[list[str], str, int]:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    return done.stdout.splitlines(), done.stderr, done.returncode


def test_a_signal_ends_calls_in_the_main_thread_of_our_processes() -> None:
    lines, fault, code = said(OURS + "for each in (sleeps, loops, swallows, searches, exits, ends): call(each)")
    assert (lines, fault, code) == ([LATE, LATE, LATE, LATE, "SystemExit 3", "True"], "", 0)


@pytest.mark.parametrize("stuck", ["in_a_thread(sleeps)", "call(never_lets_go)"])
def test_our_processes_end_with_the_error_of_a_call_that_nothing_else_ends(stuck: str) -> None:
    lines, fault, code = said(OURS + stuck)
    assert (lines, code) == ([], 1) and f"one call takes more than 0.3 seconds. {REMEDY}" in fault


def test_elsewhere_too_and_leaves_the_signal_as_it_was() -> None:
    """A notebook's, or that of a step of Dagster; a regular expression keeps the interpreter's lock, so no thread could end it."""
    calls = "for each in (sleeps, loops, swallows, searches, exits, ends): call(each)\nimport signal\nprint(signal.getsignal(signal.SIGALRM).name)"
    lines, fault, code = said(CALLS + calls)
    assert (lines, fault, code) == ([LATE, LATE, LATE, LATE, "SystemExit 3", "True", "SIG_DFL"], "", 0)


def test_the_error_names_the_line_of_the_call_and_not_that_of_the_signals_handler() -> None:
    lines, _, _ = said(
        CALLS + "try:\n    within_limits('step', 'mine:searches', searches)()\nexcept PrepAssetsError as error:\n    print(error)"
    )
    assert lines == [f"step 'mine:searches': <string>, line 30: one call takes more than 0.3 seconds. {REMEDY}"]


def test_a_signal_that_somebody_else_uses_is_left_to_them() -> None:
    theirs = "import signal\nsignal.signal(signal.SIGALRM, lambda *_: print('theirs'))\nsignal.setitimer(signal.ITIMER_REAL, 0.1)\n"
    lines, fault, code = said(CALLS + theirs + "call(sleeps)")
    assert (lines, code) == (["theirs", LATE], 0) and "is stopped only when it comes back" in fault


def test_elsewhere_a_call_in_another_thread_is_named_and_fails_when_it_comes_back() -> None:
    lines, fault, code = said(CALLS + "in_a_thread(sleeps); in_a_thread(exits); in_a_thread(ends)")
    assert (lines, code) == ([LATE, "SystemExit 3", "False"], 0)
    assert fault.count("one call takes more than 0.3 seconds, and is stopped only when it comes back") == 1
    assert "schema.py" not in fault and "line 10" in fault
