"""Static analysis of an application at deploy: what its functions and workflows do.

`analyse` works on source text alone; no module of the application is imported. It answers three
questions for the platform:

* what a function reads and writes, and whether it can be trusted to write nothing: only then may
  its record be put off;
* whether a workflow calls nothing but functions, and can run inside the database;
* what must be refused before anything is stored.

It errs on one side. What cannot be followed makes a function ``dynamic`` (it may write anything)
and a workflow leave the database, each with the place and the reason.

The work is divided: `sourceindex` resolves names, `registry` finds what is registered,
`bodyreading` reads single bodies, `sqlreading` single statements. This module puts the readings of
helpers together and closes over calls.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from typing import TypedDict

from apiary.authoring.analysis.bodyreading import BodyKey, BodyReading, Mention, read_body
from apiary.authoring.analysis.determinism import nondeterminism
from apiary.authoring.analysis.findings import (
    Analysis,
    FunctionAnalysis,
    Module,
    Problem,
    Reason,
    StepAnalysis,
    WorkflowAnalysis,
)
from apiary.authoring.analysis.registry import collect
from apiary.authoring.analysis.sourceindex import Definition, FunctionNode, SourceIndex

__all__ = ["IN_DATABASE_PRIMITIVES", "analyse"]

# What a workflow may use of the platform and still run inside the database: values that are
# recorded when they are made. Everything else waits, or needs an executor.
IN_DATABASE_PRIMITIVES = frozenset({"now", "random", "run_id", "uuid4"})


def analyse(modules: Iterable[Module]) -> Analysis:
    """Analyse the modules of one application.

    Raises DeployError (``file``, ``line``) for a module that is not Python; everything else that
    is wrong is in `Analysis.problems`, ordered by file and line.
    """
    index = SourceIndex(modules)
    registry = collect(index)
    bodies = _Bodies(index)
    functions = {name: bodies.read(each) for name, each in registry.functions.items()}
    workflows = {name: bodies.read(each) for name, each in registry.workflows.items()}
    problems = [*registry.problems, *bodies.problems()]
    for name, reading in workflows.items():
        problems += nondeterminism(name, reading.foreign)
    return Analysis(
        functions={
            name: _function(name, registry.functions[name], functions) for name in functions
        },
        workflows=_workflows(registry.workflows, workflows),
        steps={name: StepAnalysis(**_place(each)) for name, each in registry.steps.items()},
        problems=tuple(sorted(dict.fromkeys(problems), key=lambda p: (p.file, p.line))),
    )


class _Bodies:
    """Readings of bodies with those of the helpers that they use; each body is read once."""

    def __init__(self, index: SourceIndex) -> None:
        self._index = index
        self._readings: dict[BodyKey, BodyReading] = {}

    def read(self, definition: Definition) -> BodyReading:
        """One reading of a registered function and all that it uses short of registered ones."""
        node = definition.node
        assert isinstance(node, FunctionNode)  # registered ones are functions
        parameters = [*node.args.posonlyargs, *node.args.args]
        takes_handle = definition.kind == "function" and parameters
        handles = frozenset({parameters[0].arg} if takes_handle else ())
        total = BodyReading()
        for reading in self._reachable(BodyKey(definition, handles, str(definition.source.domain))):
            total.statements += reading.statements
            total.calls += reading.calls
            total.primitives += reading.primitives
            total.foreign += reading.foreign
            total.opaque += reading.opaque
            total.unresolved += reading.unresolved
        return total

    def problems(self) -> Iterator[Problem]:
        """The problems of everything that was read."""
        for reading in self._readings.values():
            yield from reading.problems

    def _reachable(self, start: BodyKey) -> Iterator[BodyReading]:
        seen = {start}
        pending = [start]
        while pending:
            key = pending.pop()
            if key not in self._readings:
                self._readings[key] = read_body(self._index, key)
            reading = self._readings[key]
            yield reading
            new = [key for key in dict.fromkeys(reading.follows) if key not in seen]
            seen.update(new)
            pending += reversed(new)


class _Place(TypedDict):
    module: str
    qualname: str
    file: str
    line: int


def _place(definition: Definition) -> _Place:
    module = definition.source.module
    return {
        "module": module.name,
        "qualname": definition.node.name,
        "file": module.file,
        "line": definition.node.lineno,
    }


def _called(reading: BodyReading, kind: str) -> dict[str, Mention]:
    """The registered definitions of a kind that a reading mentions, by name, at first mention."""
    found: dict[str, Mention] = {}
    for call in reading.calls:
        assert isinstance(call.target, Definition)  # primitives are kept apart
        if call.target.kind == kind and call.target.name is not None:
            found.setdefault(call.target.name, call)
    return found


def _function(
    name: str, definition: Definition, readings: dict[str, BodyReading]
) -> FunctionAnalysis:
    own = readings[name]
    reached = [readings[each] for each in _reached(name, readings)]
    statements = [statement for reading in reached for statement in reading.statements]
    reasons = tuple(dict.fromkeys(reason for each in reached for reason in _dynamic_reasons(each)))
    return FunctionAnalysis(
        **_place(definition),
        statements=tuple(dict.fromkeys(own.statements)),
        reads=_union(statement.reads for statement in statements),
        writes=_union(statement.writes for statement in statements),
        read_only=not reasons and all(statement.kind == "read" for statement in statements),
        dynamic=bool(reasons),
        dynamic_reasons=reasons,
        calls=frozenset(_called(own, "function")) - {name},
    )


def _reached(name: str, readings: dict[str, BodyReading]) -> list[str]:
    """A function and every function that its calls lead to, in the order they are found."""
    found = {name: None}
    pending = [name]
    while pending:
        new = [each for each in _called(readings[pending.pop()], "function") if each not in found]
        found.update(dict.fromkeys(new))
        pending += new
    return list(found)


def _dynamic_reasons(reading: BodyReading) -> Iterator[Reason]:
    yield from reading.opaque
    for kind in ("step", "workflow"):
        for called, mention in _called(reading, kind).items():
            why = f"the {kind} {called} is used in a function, and runs outside its transaction"
            yield Reason(mention.file, mention.line, why)


def _union(sets: Iterable[frozenset[str]]) -> frozenset[str]:
    return frozenset[str]().union(*sets)


def _workflows(
    definitions: dict[str, Definition], readings: dict[str, BodyReading]
) -> dict[str, WorkflowAnalysis]:
    return {
        name: _workflow(definition, readings[name], _own_reasons(definition, readings[name]))
        for name, definition in definitions.items()
    }


def _workflow(
    definition: Definition, reading: BodyReading, found: Iterable[Reason]
) -> WorkflowAnalysis:
    reasons = tuple(dict.fromkeys(found))
    return WorkflowAnalysis(
        **_place(definition),
        functions=frozenset(_called(reading, "function")),
        steps=frozenset(_called(reading, "step")),
        workflows=frozenset(_called(reading, "workflow")),
        uses=frozenset(str(mention.target) for mention in reading.primitives),
        in_database=not reasons,
        reasons=reasons,
    )


def _own_reasons(definition: Definition, reading: BodyReading) -> Iterator[Reason]:
    """What makes a workflow leave the database by itself."""
    node, file = definition.node, definition.source.module.file
    if isinstance(node, ast.AsyncFunctionDef):
        yield Reason(file, node.lineno, "it is async, which only an executor can run")
    for kind in ("step", "workflow"):  # a child is a run of its own, for an executor
        for name, mention in _called(reading, kind).items():
            yield Reason(mention.file, mention.line, f"it calls the {kind} {name}")
    for mention in reading.primitives:
        if mention.target not in IN_DATABASE_PRIMITIVES:
            yield Reason(mention.file, mention.line, f"it uses {mention.target}")
    for call in reading.calls:
        if isinstance(call.target, Definition) and call.target.name is None:
            why = f"{call.target.node.name} is not registered"
            yield Reason(call.file, call.line, why)
    yield from reading.opaque
    yield from reading.unresolved
