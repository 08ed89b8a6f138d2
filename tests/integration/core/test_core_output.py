"""What a function prints and logs is kept with its invocation."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from apiary.testing import Platform

FILES = {
    "functions/talk/__init__.py": """
        import logging
        import sys
        from apiary import Database, function

        log = logging.getLogger("talk")

        @function
        def speak(db: Database, fail: bool) -> None:
            print("printed", 1, sep="-")
            print("to stderr", file=sys.stderr)
            log.debug("not kept")
            log.info("n=%s", 5)
            log.warning("careful")
            print("a\\0b", chr(0xd800))
            whisper()
            if fail:
                log.error("about to fail")
                raise ValueError("no")

        @function
        def whisper(db: Database) -> None:
            print("from inside")

        @function
        def silent(db: Database) -> None: ...

        @function
        def flood(db: Database) -> None:
            for _ in range(1000):
                print("x" * 999)
    """
}
SAID = "printed-1\nto stderr\nINFO talk: n=5\nWARNING talk: careful\na\\0b \\ud800\nfrom inside\n"


@pytest.fixture(scope="module")
def talk(make_shared_app: Callable[..., Platform]) -> Platform:
    return make_shared_app(FILES)


def log_of(app: Platform, run_id: str) -> str | None:
    [row] = app.query("SELECT log FROM provenance.invocation WHERE run_id = %s", run_id)
    text: str | None = row["log"]
    return text


def test_prints_and_logs_are_kept(talk: Platform) -> None:
    talk.invoke("talk.speak", run_id="speak", fail=False)
    assert log_of(talk, "speak") == SAID


def test_they_are_kept_also_when_the_body_fails(talk: Platform) -> None:
    assert talk.invoke("talk.speak", run_id="fail", fail=True).error
    assert log_of(talk, "fail") == SAID + "ERROR talk: about to fail\n"


def test_a_silent_body_keeps_nothing(talk: Platform) -> None:
    talk.invoke("talk.silent", run_id="silent")
    assert log_of(talk, "silent") is None


def test_a_flood_is_bounded_and_says_what_was_dropped(talk: Platform) -> None:
    talk.invoke("talk.flood", run_id="flood")
    text = log_of(talk, "flood")
    assert text is not None
    assert len(text) < 66_000
    assert text.endswith(f"[{1000 * 1000 - 64 * 1024} more characters were dropped]")
