"""Collect the functions, steps and workflows of an application, and refuse what hides them.

A registered function is a plain ``def`` at the top level of a module under ``functions/`` or
``workflows/``, so that its public name is known from the source: the domain, a dot, its name.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from apiary.authoring.analysis.findings import Problem
from apiary.authoring.analysis.sourceindex import (
    KINDS,
    Definition,
    External,
    FunctionNode,
    Platform,
    Source,
    SourceIndex,
)

__all__ = ["Registry", "collect"]


@dataclass(frozen=True, slots=True)
class Registry:
    """The registered definitions by public name, and the problems found on the way."""

    functions: dict[str, Definition]
    workflows: dict[str, Definition]
    steps: dict[str, Definition]
    problems: list[Problem]


def collect(index: SourceIndex) -> Registry:
    """Every registered definition of the application; the first one of a name is kept."""
    registry = Registry({}, {}, {}, [])
    taken: dict[str, Definition] = {}
    for source in index.sources.values():
        for definition in _top_level(index, source):
            _register(registry, taken, definition)
        registry.problems.extend(_hidden(index, source))
        registry.problems.extend(_called_decorators(index, source))
    for definition in registry.functions.values():
        registry.problems.extend(_handle_problems(index, definition))
    return registry


def _top_level(index: SourceIndex, source: Source) -> Iterator[Definition]:
    for node in source.tree.body:
        if isinstance(node, FunctionNode):
            definition = index.definition(source.scope, node)
            if definition.kind in KINDS:
                yield definition


def _register(registry: Registry, taken: dict[str, Definition], definition: Definition) -> None:
    name, node, file = definition.name, definition.node, definition.source.module.file
    if name is None:
        message = (
            f"@{definition.kind} {node.name} is in module {definition.source.module.name}, which"
            " has no domain: put it into functions/<domain>/ or workflows/<domain>/"
        )
        registry.problems.append(Problem(file, node.lineno, message))
        return
    problem = _misplaced(definition)
    if problem is not None:
        registry.problems.append(problem)
    if name in taken:
        first = taken[name]
        where = f"{first.source.module.file}:{first.node.lineno}"
        message = f"{name} is already the {first.kind} at {where}: public names are unique"
        registry.problems.append(Problem(file, node.lineno, message))
        return
    taken[name] = definition
    kinds = {
        "function": registry.functions,
        "workflow": registry.workflows,
        "step": registry.steps,
    }
    kinds[definition.kind][name] = definition


def _misplaced(definition: Definition) -> Problem | None:
    """A definition that its place or its ``async`` forbids."""
    node, module, kind = definition.node, definition.source.module, definition.kind
    if kind == "function" and isinstance(node, ast.AsyncFunctionDef):
        message = (
            f"@function {node.name} is async: a function is one transaction and has nothing to"
            " wait for; write a plain def"
        )
    elif kind != "function" and module.name.partition(".")[0] == "functions":
        message = (
            f"@{kind} {node.name} is under functions/, which holds what runs in the database:"
            " move it to workflows/<domain>/"
        )
    else:
        return None
    return Problem(module.file, node.lineno, message)


def _hidden(index: SourceIndex, source: Source) -> Iterator[Problem]:
    """Decorated functions that are nested in a function or class, or under a condition.

    Their decorators may be imported where they are, so that all imports of the module count.
    """
    top = {id(node) for node in source.tree.body}
    imports = [n for n in source.nodes if isinstance(n, ast.Import | ast.ImportFrom)]
    scope = index.scope(source, source.scope, imports)
    for node in source.nodes:
        if not isinstance(node, FunctionNode) or id(node) in top:
            continue
        kinds = [index.decorator_kind(scope, decorator) for decorator in node.decorator_list]
        kind = next((kind for kind in kinds if kind), None)
        if kind:
            message = (
                f"@{kind} {node.name} is nested or conditional: move it to the top level of"
                " its module, where it exists whenever the module is loaded"
            )
            yield Problem(source.module.file, node.lineno, message)


def _called_decorators(index: SourceIndex, source: Source) -> Iterator[Problem]:
    """``reserve = function(body)`` at the top level registers what no analysis would find."""
    for statement in source.tree.body:
        value = getattr(statement, "value", None)
        if not isinstance(value, ast.Call):
            continue
        resolved = index.resolve(source.scope, value.func)
        if isinstance(resolved, Platform) and resolved.path and resolved.path[-1] in KINDS:
            kind = resolved.path[-1]
            message = f"{kind}() is called: write it as a decorator, @{kind}, above a def"
            yield Problem(source.module.file, statement.lineno, message)


def _handle_problems(index: SourceIndex, definition: Definition) -> Iterator[Problem]:
    node = definition.node
    assert isinstance(node, FunctionNode)  # only those have the decorator
    parameters = [*node.args.posonlyargs, *node.args.args]
    annotation = parameters[0].annotation if parameters else None
    if not parameters:
        found = "it has no positional parameter"
    elif annotation and isinstance(index.resolve(definition.scope, annotation), External):
        found = f"its first parameter is {parameters[0].arg}: {ast.unparse(annotation)}"
    else:
        return
    message = f"@function {node.name} must take the database handle first (db: Database); {found}"
    yield Problem(definition.source.module.file, node.lineno, message)
