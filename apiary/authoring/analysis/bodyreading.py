"""Read the body of one function, helper, workflow or class: what it runs, calls and hands on.

The reader follows the *handle*, the name under which a body has its `Database`. Every use of it
must be one that is understood: a call of one of its SQL methods, an argument of a function of the
application (which is then to be read as well, see `BodyReading.follows`), or a second name for it.
Any other use is a reason in ``opaque``: from there on nobody knows what is done with it.

Every other name is resolved. A function, step or workflow counts as called wherever it is
mentioned. What a workflow could do beyond what was resolved is in ``unresolved``; a function does
nothing to the database without its handle or a function that it mentions, so that for functions
these reasons do not matter.

Nothing here decides: `analysis` does, from the readings.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import NamedTuple

from apiary.authoring.analysis.findings import Problem, Reason, Statement
from apiary.authoring.analysis.sourceindex import (
    KINDS,
    Assigned,
    Definition,
    External,
    FunctionNode,
    Missing,
    Package,
    Platform,
    Resolved,
    Scope,
    SourceIndex,
    Value,
)
from apiary.authoring.analysis.sqltext import NotConstantError, SqlText, sql_text

__all__ = ["DATABASE_SQL_METHODS", "DATABASE_VALUES", "BodyKey", "BodyReading", "read_body"]

# The methods of `Database` whose first argument is SQL, and its attributes that are plain values.
DATABASE_SQL_METHODS = frozenset(
    {"execute", "query", "one", "first", "value", "values", "execute_many"}
)
DATABASE_VALUES = frozenset({"run_id", "seq"})

_SQL_KEYWORDS = frozenset({"sql", "statement", "query"})
_HARMLESS_WITH_HANDLE = frozenset({"builtins.isinstance"})
_BEYOND_ANALYSIS = frozenset(
    {
        "builtins.eval",
        "builtins.exec",
        "builtins.globals",
        "builtins.locals",
        "builtins.vars",
        "builtins.__import__",
        "importlib.import_module",
    }
)
_BESIDE_THE_HANDLE = "plpy"


class BodyKey(NamedTuple):
    """A body to read: whose, under which names it has the handle, and the schema of its tables."""

    definition: Definition
    handles: frozenset[str]
    schema: str


class Mention(NamedTuple):
    """A name of the application or of the platform, and where it is mentioned."""

    target: Definition | str
    file: str
    line: int


@dataclass(slots=True)
class BodyReading:
    """What one body does; see the module's text for ``opaque`` and ``unresolved``."""

    statements: list[Statement] = field(default_factory=list)
    calls: list[Mention] = field(default_factory=list)
    primitives: list[Mention] = field(default_factory=list)
    foreign: list[Mention] = field(default_factory=list)  # names of other packages
    follows: list[BodyKey] = field(default_factory=list)
    opaque: list[Reason] = field(default_factory=list)
    unresolved: list[Reason] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)


def read_body(index: SourceIndex, key: BodyKey) -> BodyReading:
    """Read the body that ``key`` names."""
    reader = _BodyReader(index, key)
    node = key.definition.node
    if isinstance(node, ast.ClassDef):
        reader.read_class(node)
    else:
        reader.read_function(node)
    return reader.reading


class _BodyReader(ast.NodeVisitor):
    def __init__(self, index: SourceIndex, key: BodyKey) -> None:
        self.index = index
        self.schema = key.schema
        self.scope = key.definition.scope
        self.handles = key.handles
        self.reading = BodyReading()
        self._visited_values: set[ast.expr] = set()
        self._class_parameters: set[str] = set()

    # Bodies and scopes

    def read_function(self, node: FunctionNode) -> None:
        handles = self.handles
        with self._within(self.scope, frozenset()):
            self._read_signature(node)
        for decorator in node.decorator_list:
            self._read_decorator(decorator, handles)
        self._read_inner(node, handles)

    def read_class(self, node: ast.ClassDef) -> None:
        for expression in (*node.bases, *(k.value for k in node.keywords), *node.decorator_list):
            self.visit(expression)
        for statement in node.body:
            if isinstance(statement, FunctionNode) and _is_classmethod(statement):
                self._class_parameters.update(_parameters(statement)[:1])
            self.visit(statement)

    def _read_decorator(self, decorator: ast.expr, handles: frozenset[str]) -> None:
        if self.index.decorator_kind(self.scope, decorator):
            return
        with self._within(self.scope, frozenset()):
            self.visit(decorator)
        target = decorator.func if isinstance(decorator, ast.Call) else decorator
        if handles and not isinstance(self.index.resolve(self.scope, target), External):
            self._opaque(decorator, f"the decorator {ast.unparse(target)} can use the handle")

    def _read_signature(self, node: FunctionNode | ast.Lambda) -> None:
        for default in (*node.args.defaults, *node.args.kw_defaults):
            if default is not None:
                self.visit(default)

    def _read_inner(self, node: FunctionNode | ast.Lambda, handles: frozenset[str]) -> None:
        body: list[ast.AST] = [node.body] if isinstance(node, ast.Lambda) else list(node.body)
        inner = self.index.scope(self.scope.source, self.scope, body, _parameters(node))
        with self._within(inner, _with_aliases(body, handles)):
            for statement in body:
                self.visit(statement)

    @contextmanager
    def _within(self, scope: Scope, handles: frozenset[str]) -> Iterator[None]:
        outer = self.scope, self.handles
        self.scope, self.handles = scope, handles
        yield
        self.scope, self.handles = outer

    def _visit_nested(self, node: FunctionNode | ast.Lambda) -> None:
        self._read_signature(node)
        self._read_inner(node, self.handles - set(_parameters(node)))

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        for decorator in node.decorator_list:
            self.visit(decorator)
        self._visit_nested(node)

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> None:
        for decorator in node.decorator_list:
            self.visit(decorator)
        self._visit_nested(node)

    def visit_Lambda(self, node: ast.Lambda) -> None:
        self._visit_nested(node)

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        self.read_class(node)

    # Statements and values

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        self._assignment([node.target], node.value)

    def visit_Assign(self, node: ast.Assign) -> None:
        self._assignment(node.targets, node.value)

    def _assignment(self, targets: list[ast.expr], value: ast.expr | None) -> None:
        named = all(isinstance(target, ast.Name) for target in targets)
        for target in targets:
            self.visit(target)
        if value is None or (named and self._is_handle(value)):
            return
        if named and len(targets) == 1:
            bound = self.index.resolve(self.scope, targets[0])
            if isinstance(bound, Definition) and bound.kind == "function":
                self._call(value, bound)
                return
        self.visit(value)

    def visit_Compare(self, node: ast.Compare) -> None:
        identity = all(isinstance(op, ast.Is | ast.IsNot) for op in node.ops)
        for operand in (node.left, *node.comparators):
            if not (identity and self._is_handle(operand)):
                self.visit(operand)

    def visit_Name(self, node: ast.Name) -> None:
        if not isinstance(node.ctx, ast.Load):
            return
        if self._is_handle(node):
            self._opaque(node, f"{node.id} is used as a value, and can be used from elsewhere")
        else:
            self._value(node, self.index.resolve(self.scope, node))

    def visit_Attribute(self, node: ast.Attribute) -> None:
        if self._is_handle(node.value):
            if node.attr not in DATABASE_VALUES or not isinstance(node.ctx, ast.Load):
                self._opaque(node, f"{ast.unparse(node)} is used as a value")
            return
        resolved = self.index.resolve(self.scope, node)
        if isinstance(resolved, Value) or not isinstance(node.ctx, ast.Load):
            self._attribute_of_value(node)
        else:
            self._value(node, resolved)

    def _value(self, node: ast.expr, resolved: Resolved) -> None:
        """A name that is mentioned, not called."""
        match resolved:
            case Definition(kind="function"):
                self._call(node, resolved)
                self._unresolved(node, f"the function {ast.unparse(node)} is passed as a value")
            case Definition():
                self._call(node, resolved)
            case Package(name):
                self._opaque(node, f"the module {name} is used as a value")
            case Assigned():
                self._visit_assigned(resolved)
            case Missing(name) if isinstance(node, ast.Attribute):
                self._unresolved(node, f"{name} is not found in this application")
            case Platform() | External():
                self._foreign(node, resolved)

    def _attribute_of_value(self, node: ast.Attribute) -> None:
        """``reserve.start`` calls reserve; an attribute of another value is a value."""
        owner = self.index.resolve(self.scope, node.value)
        if isinstance(owner, Definition):
            self._call(node, owner)
            if owner.kind in KINDS:
                self._primitive(node, node.attr)
        elif not isinstance(owner, Package):
            self.visit(node.value)

    def _visit_assigned(self, assigned: Assigned) -> None:
        """Read the expression that a name of a module or class stands for, once.

        Those of this body are read where they stand.
        """
        local = assigned.scope.parent is not None and assigned.scope in _chain(self.scope)
        if local or assigned.node in self._visited_values:
            return
        self._visited_values.add(assigned.node)
        with self._within(assigned.scope, frozenset()):
            self.visit(assigned.node)

    def _foreign(self, node: ast.expr, resolved: Platform | External) -> None:
        if isinstance(resolved, Platform):
            # Classes of the platform (Database, errors) do nothing by being mentioned.
            if not resolved.path:
                self._opaque(node, "the module apiary is used as a value")
            elif not resolved.path[-1][:1].isupper():
                self._primitive(node, resolved.path[0])
        else:
            self.reading.foreign.append(Mention(resolved.path, *self._place(node)))
            self._foreign_path(node, resolved)

    def _foreign_path(self, node: ast.expr, resolved: External) -> None:
        if resolved.path in _BEYOND_ANALYSIS:
            name = resolved.path.removeprefix("builtins.")
            self._opaque(node, f"{name} runs or reaches code that is not known here")
        elif resolved.path.split(".")[0] == _BESIDE_THE_HANDLE:
            self._opaque(node, f"{resolved.path} reaches the database beside the handle")

    # Calls

    def visit_Call(self, node: ast.Call) -> None:
        func = node.func
        if isinstance(func, ast.Attribute) and self._is_handle(func.value):
            self._database_call(node, func.attr)
            return
        resolved = self.index.resolve(self.scope, func)
        handed = any(self._is_handle(argument) for argument in _arguments(node))
        self._callee(node, resolved)
        if handed:
            self._hand_on(node, resolved)
        for argument in _arguments(node):
            if not self._is_handle(argument):
                self.visit(argument)

    def _callee(self, node: ast.Call, resolved: Resolved) -> None:
        func = node.func
        match resolved:
            case Definition():
                self._call(func, resolved)
            case Platform() | External():
                self._foreign(func, resolved)
            case Assigned(node=value):
                self._visit_assigned(resolved)
                if not self._is_known_callable(resolved.scope, value):
                    self._unresolved(func, f"what {ast.unparse(func)} calls is not known")
            case Value() if isinstance(func, ast.Attribute):
                self._attribute_of_value(func)
            case Value() if not isinstance(func, ast.Name):
                self.visit(func)
                if not isinstance(func, ast.Lambda):
                    self._unresolved(func, f"what {ast.unparse(func)} calls is not known")
            case Missing(name):
                self._unresolved(func, f"{name} is not found in this application")
            case Value() if isinstance(func, ast.Name) and func.id in self._class_parameters:
                pass  # the class, whose methods are being read
            case Value() if isinstance(func, ast.Name) and not self._is_local(func.id):
                self._opaque(func, f"{func.id} is bound more than once: what it calls is not known")
            case _:
                self._unresolved(func, f"what {ast.unparse(func)} calls is not known")

    def _is_known_callable(self, scope: Scope, value: ast.expr) -> bool:
        """A lambda, or what a function of another package made (a namedtuple class)."""
        if isinstance(value, ast.Call):
            return isinstance(self.index.resolve(scope, value.func), External)
        return isinstance(value, ast.Lambda)

    def _is_local(self, name: str) -> bool:
        inner = (scope for scope in _chain(self.scope) if scope.parent is not None)
        return any(name in scope.bindings for scope in inner)

    def _hand_on(self, node: ast.Call, resolved: Resolved) -> None:
        """The handle is an argument: to a function of the application, or out of sight."""
        called = ast.unparse(node.func)
        if isinstance(resolved, External) and resolved.path in _HARMLESS_WITH_HANDLE:
            return
        if isinstance(resolved, Definition) and resolved.kind == "function":
            return
        if (
            not isinstance(resolved, Definition)
            or resolved.kind != "helper"
            or isinstance(resolved.node, ast.ClassDef)
        ):
            self._opaque(node, f"the handle is passed to {called}, which cannot be followed")
            return
        names = self._receiving_parameters(node, resolved.node)
        if names is None:
            self._opaque(node, f"it is not known which parameter of {called} gets the handle")
            return
        inherited = self.handles if resolved.scope.parent is not None else frozenset()
        handles = (inherited - set(_parameters(resolved.node))) | names
        self.reading.follows.append(BodyKey(resolved, handles, self.schema))

    def _receiving_parameters(self, node: ast.Call, callee: FunctionNode) -> frozenset[str] | None:
        """The parameters of ``callee`` that get the handle; None if that cannot be told."""
        positional = [arg.arg for arg in (*callee.args.posonlyargs, *callee.args.args)]
        known = {*positional, *(arg.arg for arg in callee.args.kwonlyargs)}
        names: set[str | None] = set()
        starred = False
        for position, argument in enumerate(node.args):
            starred = starred or isinstance(argument, ast.Starred)
            if self._is_handle(argument):
                found = not starred and position < len(positional)
                names.add(positional[position] if found else None)
        for keyword in node.keywords:
            if self._is_handle(keyword.value):
                names.add(keyword.arg if keyword.arg in known else None)
        return None if None in names else frozenset(name for name in names if name)

    # SQL

    def _database_call(self, node: ast.Call, method: str) -> None:
        sql = _sql_argument(node) if method in DATABASE_SQL_METHODS else None
        if method not in DATABASE_SQL_METHODS | DATABASE_VALUES:
            self._opaque(node, f"{ast.unparse(node.func)} is not an operation known here")
        elif method in DATABASE_SQL_METHODS and sql is None:
            self._opaque(node, f"the SQL of {ast.unparse(node.func)} is not its first argument")
        for argument in _arguments(node):
            if argument is not sql:
                self.visit(argument)
        if sql is not None:
            self._sql(node, sql)

    def _sql(self, node: ast.Call, sql: ast.expr) -> None:
        try:
            text = sql_text(self.index, self.scope, sql)
        except NotConstantError as error:
            self.visit(sql)
            part = ast.unparse(error.node)
            what = part if len(part) <= 60 else f"{part[:57]}..."
            self._opaque(node, f"the SQL is not constant: {what} is not known before it runs")
            return
        self._statement(text)

    def _statement(self, text: SqlText) -> None:
        from apiary.authoring.analysis.sqlreading import read_sql  # noqa: PLC0415 - sqlglot is slow to import

        found = read_sql(text.text, self.schema)
        for problem in found.problems:
            self.reading.problems.append(Problem(*text.place(problem.offset), problem.message))
        for unknown in found.unknown:
            self.reading.opaque.append(Reason(*text.place(unknown.offset), unknown.message))
        file, line = text.place(0)
        self.reading.statements.append(
            Statement(
                sql=text.text,
                file=file,
                line=line,
                kind=found.kind,
                reads=found.reads,
                writes=found.writes,
                parameters=found.parameters,
                functions=found.functions,
            )
        )

    # Notes

    def _is_handle(self, node: ast.expr) -> bool:
        return isinstance(node, ast.Name) and node.id in self.handles

    def _call(self, node: ast.expr, definition: Definition) -> None:
        if definition.kind in KINDS:
            self.reading.calls.append(Mention(definition, *self._place(node)))
        elif definition.scope.parent is None:
            # Without the handle; those nested in this body are read where they stand.
            self.reading.follows.append(BodyKey(definition, frozenset(), self.schema))

    def _primitive(self, node: ast.expr, name: str) -> None:
        self.reading.primitives.append(Mention(name, *self._place(node)))

    def _opaque(self, node: ast.expr, why: str) -> None:
        self.reading.opaque.append(Reason(*self._place(node), why))

    def _unresolved(self, node: ast.expr, why: str) -> None:
        self.reading.unresolved.append(Reason(*self._place(node), why))

    def _place(self, node: ast.expr) -> tuple[str, int]:
        return self.scope.source.module.file, node.lineno


def _chain(scope: Scope) -> list[Scope]:
    """A scope and those around it, innermost first."""
    return [scope, *(_chain(scope.parent) if scope.parent else [])]


def _parameters(node: FunctionNode | ast.Lambda) -> list[str]:
    arguments = node.args
    named = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
    return [arg.arg for arg in (*named, arguments.vararg, arguments.kwarg) if arg is not None]


def _is_classmethod(node: FunctionNode) -> bool:
    return any(isinstance(d, ast.Name) and d.id == "classmethod" for d in node.decorator_list)


def _arguments(node: ast.Call) -> list[ast.expr]:
    return [*node.args, *(keyword.value for keyword in node.keywords)]


def _sql_argument(node: ast.Call) -> ast.expr | None:
    if node.args:
        return None if isinstance(node.args[0], ast.Starred) else node.args[0]
    return next((k.value for k in node.keywords if k.arg in _SQL_KEYWORDS), None)


def _with_aliases(body: list[ast.AST], handles: frozenset[str]) -> frozenset[str]:
    """The handles and the names that are assigned one of them (``database = db``)."""
    if not handles:
        return handles
    assigned = [
        (target.id, node.value.id)
        for statement in body
        for node in ast.walk(statement)
        if isinstance(node, ast.Assign | ast.AnnAssign) and isinstance(node.value, ast.Name)
        for target in (node.targets if isinstance(node, ast.Assign) else [node.target])
        if isinstance(target, ast.Name)
    ]
    known = set(handles)
    while more := {name for name, value in assigned if value in known} - known:
        known |= more
    return frozenset(known)
