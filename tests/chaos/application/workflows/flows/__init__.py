"""Workflows that use everything a run can do; each effect has a tag of its own in its run."""

from __future__ import annotations

import os
from pathlib import Path

from apiary import (
    gather,
    get_event,
    recv,
    run_id,
    send,
    set_event,
    sleep,
    step,
    step_key,
    workflow,
    write_stream,
)
from functions import effects


@workflow
def five(me: str, number: int) -> list[int]:
    """Stays in the database."""
    effects.note(me, "1")
    before = effects.look("hot")
    effects.bump(me, "2")
    effects.note(me, "3")
    effects.bump(me, "4")
    effects.note(me, f"5 after {before}")
    return [number, before]


@workflow
def held(me: str, number: int) -> list[int]:
    """Stays in the database, and stops at the gate in the middle."""
    effects.note(me, "1")
    before = effects.look("hot")
    effects.gated(me, f"2 after {before}")
    effects.note(me, "3")
    return [number, before]


@step(retries=2, backoff_s=0.01)
def outside(text: str) -> str:
    """One line in a file for each time it is run."""
    write_stream("lines", text)
    side = Path(os.environ["APIARY_CHAOS_SIDE"])
    with side.open("a") as file:
        file.write(f"{step_key()} {os.getpid()} {text}\n")
    return f"{text} by {os.getpid()}"


@workflow
def leaf(parent: str, number: int) -> int:
    """A child: one effect, then word to its parent."""
    effects.note(run_id(), "leaf")
    send(parent, number, topic="leaves")
    return number


@workflow
def mixed(number: int) -> list[object]:
    """Functions, steps, a sleep, children, messages, an event and a stream."""
    me = run_id()
    effects.note(me, "begin")
    before = effects.look("hot")
    done = outside(f"{number} {before}")
    effects.bump(me, f"bump after {before}")
    sleep(0.1)
    children = [leaf.start(me, i) for i in range(2)]
    inside = five.start(f"{me} five", number)
    heard = sorted(recv("leaves", timeout_s=600) for _ in children)
    set_event("heard", heard)
    joined = [sum(gather(*children)), inside.result()[0]]
    again = get_event(me, "heard")
    effects.note(me, "end")
    return [before, done, heard, joined, again]


@workflow
def limited(number: int) -> str:
    """Is started in a queue."""
    effects.bump(run_id(), "in the queue")
    done: str = outside(str(number))
    return done


@workflow
def crossing(me: str, first: str, second: str) -> str:
    """Stays in the database, and deadlocks with its mirror image."""
    return effects.cross(me, "cross", first, second)


@workflow
def napping(seconds: float) -> str:
    """Mostly sleeps."""
    effects.note(run_id(), "before")
    sleep(seconds)
    effects.note(run_id(), "after")
    return "awake"
