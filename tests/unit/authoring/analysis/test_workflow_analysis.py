"""What static analysis says about workflows: what they call, and where they can run."""

from __future__ import annotations

from textwrap import dedent

import pytest

from apiary.authoring.analysis import Analysis, Module, analyse
from apiary.authoring.analysis.determinism import NONDETERMINISTIC

HEADER = "from apiary import Database, function, step, workflow\n"


def one_workflow(body: str, before: str = "", **others: str) -> Analysis:
    """An application with functions hotel.reserve and hotel.cancel, and the workflow trips.w."""
    lines = dedent(body).strip().replace("\n", "\n    ")
    hotel = (
        HEADER
        + "@function\ndef reserve(db, a): db.execute('INSERT INTO room VALUES ($1)', a)\n"
        + "@function\ndef cancel(db, a): db.execute('DELETE FROM room WHERE a = $1', a)\n"
    )
    trips = (
        f"{HEADER}from functions import hotel\n{dedent(before)}\n"
        f"@workflow\ndef w(a: int, given=None):\n    {lines}\n"
    )
    return analyse(
        [
            Module("functions.hotel", "hotel.py", hotel),
            Module("workflows.trips", "trips.py", trips),
            *(Module(n.replace("__", "."), f"{n}.py", dedent(s)) for n, s in others.items()),
        ]
    )


@pytest.mark.parametrize(
    ("body", "before"),
    [
        ("return hotel.reserve(a)", ""),
        ("for i in range(a):\n    hotel.reserve(i)\nreturn hotel.cancel(a)", ""),
        ("return math.sqrt(hotel.reserve(a)) + json.loads('1')", "import json, math"),
        ("return _plus(hotel.reserve(a))", "def _plus(x): return x + 1"),
        ("return sorted(hotel.reserve(a), key=_plus)", "def _plus(x): return x + 1"),
        ("items = []\nitems.append(hotel.reserve(a))\nreturn items[0].name.upper()", ""),
        ("return model.cost(hotel.reserve(a))", "from workflows.trips import model"),
        ("return now(), uuid4(), random(), hotel.reserve(a)",
         "from apiary import now, random, uuid4"),
        ("r = hotel.reserve\nreturn r(a)", ""),
        ("return Point(hotel.reserve(a), 1)", "from collections import namedtuple\n"
         "Point = namedtuple('Point', 'x y')"),
        ("return Receipt(hotel.reserve(a)).total()",
         "class Receipt:\n    def __init__(self, x): self.x = x\n    def total(self): return 1"),
        ("return Receipt.of(hotel.reserve(a))",
         "class Receipt:\n    @classmethod\n    def of(cls, x): return cls(x)"),
        ("try:\n    hotel.reserve(a)\nexcept ValueError as error:\n    raise KeyError(str(error))",
         ""),
    ],
)  # fmt: skip
def test_a_workflow_of_functions_runs_in_the_database(body: str, before: str) -> None:
    model = "def cost(x): return max(x, 0)\n"
    found = one_workflow(body, before, workflows__trips__model=model)
    workflow = found.workflows["trips.w"]
    assert workflow.reasons == ()
    assert workflow.in_database
    assert "hotel.reserve" in workflow.functions


@pytest.mark.parametrize(
    ("body", "before", "why"),
    [
        ("charge(a)", "", "it calls the step trips.charge"),
        ("charge.start(a)", "", "it calls the step trips.charge"),
        ("list(map(charge, [a]))", "", "it calls the step trips.charge"),
        ("run(a)", "def run(x): return charge(x)", "it calls the step trips.charge"),
        ("STEPS[a](1)", "STEPS = {1: charge}", "it calls the step trips.charge"),
        ("sleep(1)", "from apiary import sleep", "it uses sleep"),
        ("apiary.recv('x')", "import apiary", "it uses recv"),
        ("gather(a)", "from apiary import gather", "it uses gather"),
        ("hotel.reserve.start(a)", "", "it uses start"),
        ("unheard_of()", "from apiary import unheard_of", "it uses unheard_of"),
        ("given(a)", "", "what given calls is not known"),
        ("given[0](a)", "", "what given[0] calls is not known"),
        ("a.make()(1)", "", "what a.make() calls is not known"),
        ("for f in [hotel.reserve]: f(a)", "", "what f calls is not known"),
        ("list(map(hotel.reserve, a))", "",
         "the function hotel.reserve is passed as a value"),
        ("twice(a, a)", "def twice(f, x): return f(x)", "what f calls is not known"),
        ("nobody(a)", "", "nobody is not found in this application"),
        ("hotel.nothing(a)", "", "functions.hotel.nothing is not found in this application"),
        ("getattr(hotel, a)(1)", "", "the module functions.hotel is used as a value"),
        ("exec(a)", "", "exec runs or reaches code that is not known here"),
        ("child(a)", "@workflow\ndef child(x): return hotel.cancel(x)",
         "it calls the workflow trips.child"),
        ("w(a) or hotel.reserve(a)", "", "it calls the workflow trips.w"),
    ],
)  # fmt: skip
def test_what_makes_a_workflow_leave_the_database(body: str, before: str, why: str) -> None:
    charge = "@step\ndef charge(x): ...\n"
    workflow = one_workflow(body, charge + before).workflows["trips.w"]
    assert not workflow.in_database
    assert why in [reason.why for reason in workflow.reasons]
    assert {reason.file for reason in workflow.reasons} == {"trips.py"}


def test_an_async_workflow_leaves_the_database() -> None:
    source = f"{HEADER}@workflow\nasync def w(): ...\n"
    (reason,) = (
        analyse([Module("workflows.trips", "trips.py", source)]).workflows["trips.w"].reasons
    )
    assert reason.why == "it is async, which only an executor can run"


def test_what_a_workflow_calls_and_uses() -> None:
    found = one_workflow(
        "child(a)\nother.charge(a)\napiary.sleep(1)\nhelp_out(a)\nhotel.cancel.start(a)",
        "import apiary\nfrom workflows import other\n"
        "@workflow\ndef child(a): return hotel.cancel(a)\n"
        "def help_out(a):\n    apiary.progress(1, 2)\n    return hotel.reserve(a)",
        workflows__other=f"{HEADER}@step\ndef charge(a): ...\n",
    )
    workflow = found.workflows["trips.w"]
    assert workflow.functions == {"hotel.reserve", "hotel.cancel"}
    assert workflow.steps == {"other.charge"}
    assert workflow.workflows == {"trips.child"}
    assert workflow.uses == {"sleep", "progress", "start"}
    assert found.workflows["trips.child"].in_database
    assert not workflow.in_database


@pytest.mark.parametrize("path", sorted(NONDETERMINISTIC))
def test_what_differs_in_a_replay_is_refused_in_workflows_alone(path: str) -> None:
    module, _, name = path.partition(".")
    first = name.partition(".")[0]
    written = [f"import {module}", f"from {module} import {first}"]
    for imported, used in zip(written, (path, name), strict=True):
        (problem,) = one_workflow(f"return {used}()", imported).problems
        assert (problem.file, problem.line) == ("trips.py", 6)
        assert f"workflow trips.w uses {path}" in problem.message
        assert f"use {NONDETERMINISTIC[path]}" in problem.message
        step = f"{imported}\n@step\ndef charge(x): return {used}()"
        assert one_workflow("return charge(a)", step).problems == ()


def test_what_differs_in_a_replay_is_found_in_helpers() -> None:
    helper = "import time\ndef stamp():\n    return time.time()"
    (problem,) = one_workflow("return stamp()", helper).problems
    assert problem.line == 5
    assert "apiary.now()" in problem.message


def test_a_seeded_generator_is_allowed() -> None:
    found = one_workflow("return random.Random(a).random() + hotel.reserve(a)", "import random")
    assert found.problems == ()
