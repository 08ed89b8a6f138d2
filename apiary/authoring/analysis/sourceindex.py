"""The names of an application's modules, resolved without importing them.

A `SourceIndex` parses every module once. `SourceIndex.resolve` answers what a name or a dotted name
stands for where it is written: an application's function, class or module, a name bound once to an
expression, a name of the platform, a name of another package, or a value that only running would
tell. A name that is bound more than once stands for a value.
"""

from __future__ import annotations

import ast
import builtins
import warnings
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import PurePath
from typing import Literal

from apiary.authoring.analysis.findings import Module
from apiary.errors import DeployError

__all__ = [
    "Assigned",
    "Definition",
    "External",
    "FunctionNode",
    "Missing",
    "Package",
    "Platform",
    "Resolved",
    "Scope",
    "Source",
    "SourceIndex",
    "Value",
]

FunctionNode = ast.FunctionDef | ast.AsyncFunctionDef
Kind = Literal["function", "step", "workflow", "helper", "class"]

KINDS: dict[str, Kind] = {"function": "function", "step": "step", "workflow": "workflow"}
_PLATFORM = "apiary"
_ALIAS_DEPTH = 12


@dataclass(frozen=True, slots=True)
class Package:
    """A module of the application, or a package that holds some (``functions``)."""

    name: str


@dataclass(frozen=True, slots=True)
class Platform:
    """A name of the platform: ``("sleep",)`` for ``apiary.sleep``, ``()`` for apiary itself."""

    path: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class External:
    """A name of a package that is not the application's, or a builtin (``builtins.len``)."""

    path: str


@dataclass(frozen=True, slots=True)
class Missing:
    """A name that is not bound anywhere."""

    name: str


@dataclass(frozen=True, slots=True)
class Value:
    """A value that only running the code would tell: a parameter, an item, a result."""


@dataclass(frozen=True, slots=True, eq=False)
class Assigned:
    """A name that is bound exactly once, to ``node``, which is to be read in ``scope``."""

    scope: Scope
    node: ast.expr


@dataclass(frozen=True, slots=True, eq=False)
class Definition:
    """A function or class of the application; ``name`` is the public name of a registered one."""

    kind: Kind
    scope: Scope
    node: FunctionNode | ast.ClassDef
    name: str | None = None

    @property
    def source(self) -> Source:
        """The module it is defined in."""
        return self.scope.source


Resolved = Package | Platform | External | Missing | Value | Assigned | Definition


@dataclass(frozen=True, slots=True)
class _Import:
    """``import module`` (``name`` is None) or ``from module import name``."""

    module: str
    name: str | None = None


_Binding = _Import | ast.expr | FunctionNode | ast.ClassDef | None


@dataclass(slots=True, eq=False)
class Scope:
    """The names bound in a module, class or function body; None stands for a value."""

    source: Source
    parent: Scope | None
    bindings: dict[str, _Binding] = field(default_factory=dict)
    definitions: dict[str, Definition] = field(default_factory=dict)


@dataclass(slots=True, eq=False)
class Source:
    """A parsed module; ``nodes`` are all those of its tree."""

    module: Module
    tree: ast.Module
    package: str
    nodes: tuple[ast.AST, ...]
    stars: tuple[str, ...] = ()
    scope: Scope = field(init=False)

    @property
    def domain(self) -> str | None:
        """``hotel`` for ``functions.hotel`` and ``functions.hotel.search``."""
        parts = self.module.name.split(".")
        in_domain = len(parts) > 1 and parts[0] in ("functions", "workflows")
        return parts[1] if in_domain else None


class SourceIndex:
    """All modules of an application.

    Raises DeployError with ``file`` and ``line`` for a module that is not Python.
    """

    def __init__(self, modules: Iterable[Module]) -> None:
        given = list(modules)
        names = {module.name for module in given}
        self._packages = {
            ".".join(parts[:count])
            for parts in (name.split(".") for name in names)
            for count in range(1, len(parts) + 1)
        }
        self._roots = {name.split(".")[0] for name in names}
        self.sources = {module.name: self._parse(module) for module in given}
        for source in self.sources.values():
            source.scope = self.scope(source, None, source.tree.body)
            _forget_globals(source)
        for source in self.sources.values():
            self._forget_patched(source)

    def _parse(self, module: Module) -> Source:
        try:
            with warnings.catch_warnings():
                # Python warns (of invalid escapes) when it loads the module, where it belongs.
                warnings.simplefilter("ignore")
                tree = ast.parse(module.source, filename=module.file)
        except (SyntaxError, ValueError) as error:
            line = getattr(error, "lineno", None) or 1
            what = error.msg if isinstance(error, SyntaxError) else str(error)
            raise DeployError(
                f"{module.file}:{line}: Python syntax error: {what}",
                hint="correct the module and deploy again",
                file=module.file,
                line=line,
            ) from error
        is_package = PurePath(module.file).name == "__init__.py"
        package = module.name if is_package else module.name.rpartition(".")[0]
        source = Source(module, tree, package, tuple(ast.walk(tree)))
        source.stars = tuple(
            _absolute(node, package)
            for node in tree.body
            if isinstance(node, ast.ImportFrom) and node.names[0].name == "*"
        )
        return source

    def _forget_patched(self, source: Source) -> None:
        """A module attribute that any module assigns to (``queries.FIND = x``) is a value."""
        for node in source.nodes:
            if isinstance(node, ast.Attribute) and not isinstance(node.ctx, ast.Load):
                owner = self.resolve(source.scope, node.value)
                if isinstance(owner, Package) and owner.name in self.sources:
                    self.sources[owner.name].scope.bindings[node.attr] = None

    def scope(
        self,
        source: Source,
        parent: Scope | None,
        body: Iterable[ast.AST],
        parameters: Iterable[str] = (),
    ) -> Scope:
        """The scope of a body of statements, with ``parameters`` bound to values."""
        scope = Scope(source, parent)
        for name in parameters:
            scope.bindings[name] = None
        for name, binding in _bindings(body, source.package):
            same = name not in scope.bindings or scope.bindings[name] == binding
            scope.bindings[name] = binding if same else None
        return scope

    def definition(self, scope: Scope, node: FunctionNode | ast.ClassDef) -> Definition:
        """The definition that a def or class statement in ``scope`` makes."""
        if node.name in scope.definitions and scope.definitions[node.name].node is node:
            return scope.definitions[node.name]
        kind: Kind = "class"
        if not isinstance(node, ast.ClassDef):
            kinds = (self.decorator_kind(scope, decorator) for decorator in node.decorator_list)
            kind = next((kind for kind in kinds if kind), "helper")
        registered = kind in KINDS and scope.parent is None and scope.source.domain
        name = f"{scope.source.domain}.{node.name}" if registered else None
        definition = Definition(kind, scope, node, name)
        scope.definitions[node.name] = definition
        return definition

    def decorator_kind(self, scope: Scope, decorator: ast.expr) -> Kind | None:
        """``function``, ``step`` or ``workflow`` if the expression is that of the platform."""
        target = decorator.func if isinstance(decorator, ast.Call) else decorator
        resolved = self.resolve(scope, target)
        if isinstance(resolved, Platform) and resolved.path:
            return KINDS.get(resolved.path[-1])
        return None

    def resolve(self, scope: Scope, node: ast.expr, depth: int = 0) -> Resolved:
        """What a name or dotted name stands for; `Value` for any other expression."""
        if depth > _ALIAS_DEPTH:
            return Value()
        if isinstance(node, ast.Name):
            return self._name(scope, node.id, depth)
        if isinstance(node, ast.Attribute):
            return self._member(self.resolve(scope, node.value, depth), node.attr, depth)
        return Value()

    def _name(self, scope: Scope, name: str, depth: int) -> Resolved:
        current: Scope | None = scope
        while current is not None:
            if name in current.bindings:
                return self._bound(current, name, depth)
            current = current.parent
        for module in scope.source.stars:
            found = self._member(self._module(module), name, depth)
            # What other packages export is not known here, and a builtin is likelier than that.
            known = not isinstance(found, Missing | External)
            if known and not (isinstance(found, Platform) and hasattr(builtins, name)):
                return found
        return External(f"builtins.{name}") if hasattr(builtins, name) else Missing(name)

    def _bound(self, scope: Scope, name: str, depth: int) -> Resolved:
        binding = scope.bindings[name]
        if isinstance(binding, _Import):
            module = self._module(binding.module)
            if binding.name is None:
                return module
            return self._member(module, binding.name, depth)
        if isinstance(binding, FunctionNode | ast.ClassDef):
            return self.definition(scope, binding)
        if binding is None:
            return Value()
        if isinstance(binding, ast.Name | ast.Attribute):
            target = self.resolve(scope, binding, depth + 1)
            if not isinstance(target, Value | Missing):
                return target
        return Assigned(scope, binding)

    def _module(self, name: str) -> Resolved:
        root, *rest = name.split(".")
        if root == _PLATFORM and root not in self._roots:
            return Platform(tuple(rest))
        if root not in self._roots:
            return External(name)
        return Package(name) if name in self._packages else Missing(name)

    def _member(self, owner: Resolved, name: str, depth: int) -> Resolved:
        match owner:
            case Platform(path):
                return Platform((*path, name))
            case External(path):
                return External(f"{path}.{name}")
            case Package(package):
                return self._module_member(package, name, depth)
            case Missing(missing):
                return Missing(f"{missing}.{name}")
            case Definition(kind="class", node=ast.ClassDef() as node):
                inner = self.scope(owner.source, owner.scope, node.body)
                if isinstance(inner.bindings.get(name), ast.expr):
                    return self._bound(inner, name, depth + 1)
        return Value()

    def _module_member(self, package: str, name: str, depth: int) -> Resolved:
        source = self.sources.get(package)
        itself = _Import(package, name)
        binding = source.scope.bindings.get(name, itself) if source is not None else itself
        submodule = f"{package}.{name}"
        # `from functions.hotel import queries` in functions.hotel itself binds the submodule.
        if submodule in self._packages and binding == itself:
            return Package(submodule)
        if source is not None and name in source.scope.bindings:
            return Value() if depth > _ALIAS_DEPTH else self._bound(source.scope, name, depth + 1)
        if source is not None and source.stars and depth <= _ALIAS_DEPTH:
            return self._name(source.scope, name, depth + 1)
        return Missing(submodule)


def _absolute(node: ast.ImportFrom, package: str) -> str:
    """The dotted module of a from-import, relative ones resolved against ``package``."""
    if not node.level:
        return node.module or ""
    parts = package.split(".")
    base = parts[: len(parts) - node.level + 1]
    return ".".join([*base, node.module] if node.module else base)


def _forget_globals(source: Source) -> None:
    """A module name that a function assigns to (``global name``) is a value."""
    for node in source.nodes:
        if isinstance(node, ast.Global):
            source.scope.bindings.update(dict.fromkeys(node.names))


def _bindings(body: Iterable[ast.AST], package: str) -> Iterator[tuple[str, _Binding]]:
    """Every binding of a name in a body, without those of the functions and classes in it."""
    for node in body:
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                yield node.name, node
                continue
            case ast.Lambda():
                continue
            case ast.Import():
                yield from _import_bindings(node)
            case ast.ImportFrom():
                module = _absolute(node, package)
                for alias in node.names:
                    if alias.name != "*":
                        yield alias.asname or alias.name, _Import(module, alias.name)
            case (
                ast.Assign(targets=[ast.Name(id=name)], value=value)
                | ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value)
            ):
                yield name, value
                yield from _bindings([value], package)
                continue
            case ast.AnnAssign(target=ast.Name(), value=None):
                continue
            case (
                ast.Name(id=name, ctx=ast.Store() | ast.Del())
                | ast.ExceptHandler(name=str(name))
                | ast.MatchAs(name=str(name))
                | ast.MatchStar(name=str(name))
                | ast.MatchMapping(rest=str(name))
            ):
                yield name, None
        yield from _bindings(ast.iter_child_nodes(node), package)


def _import_bindings(node: ast.Import) -> Iterator[tuple[str, _Binding]]:
    for alias in node.names:
        if alias.asname:
            yield alias.asname, _Import(alias.name)
        else:
            root = alias.name.split(".")[0]
            yield root, _Import(root)
