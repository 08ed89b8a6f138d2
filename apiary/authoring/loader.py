"""Loading an application's modules from their stored source, several versions side by side.

The modules of deployment ``d`` are imported as ``apiary_app_<d>.functions.hotel`` and so on, by a
finder that serves them from memory. Inside them, ``from functions import hotel`` means the same
deployment's module: each module's builtins carry an ``__import__`` that adds the prefix. So two
deployments live in one process with separate classes and constants, no file is ever read, and
`dataclasses`, `typing` and tracebacks find the modules in ``sys.modules`` as usual.
"""

from __future__ import annotations

import builtins
import os
import sys
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.abc import InspectLoader, MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import spec_from_loader
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

from .decorators import Registered

__all__ = ["DeploymentCode", "SourceModule"]


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceModule:
    """One module of an application."""

    name: str  # dotted, as the application imports it: functions.hotel
    file: str  # relative to the application's folder, for tracebacks
    source: str
    is_package: bool


class DeploymentCode:
    """The importable code of one deployment."""

    def __init__(self, deployment: str, modules: Iterable[SourceModule]) -> None:
        self.deployment = deployment
        self.prefix = f"apiary_app_{deployment}"
        self.modules = {module.name: module for module in modules}
        self._roots = {name.partition(".")[0] for name in self.modules}
        _finder.add(self)

    def load(self, name: str) -> ModuleType:
        """Import one of the application's modules."""
        return _import_absolute(f"{self.prefix}.{name}")

    def find(self, module: str, qualname: str) -> Registered:
        """The decorated object that ``module`` holds under ``qualname``."""
        found = getattr(self.load(module), qualname)
        if not isinstance(found, Registered):
            raise TypeError(f"{module}.{qualname} is not a function, step or workflow")
        return found

    def registered(self, modules: Iterable[str]) -> Iterator[Registered]:
        """Every decorated object defined in these modules, which are imported for that."""
        for name in modules:
            module = self.load(name)
            for value in vars(module).values():
                if isinstance(value, Registered) and value.module == module.__name__:
                    yield value

    def write(self, directory: Path) -> None:
        """Write all modules as files below a directory, as their application has them.

        With the directory on its PYTHONPATH a program of its own imports the same code, under the
        names that the application itself uses. Files are replaced whole, so that several may write
        the same deployment to one directory.
        """
        for module in self.modules.values():
            path = directory / module.file
            path.parent.mkdir(parents=True, exist_ok=True)
            unfinished = path.with_name(f".{path.name}.{os.getpid()}-{threading.get_ident()}")
            unfinished.write_text(module.source, encoding="utf-8")
            unfinished.replace(path)

    def find_class(self, module: str, name: str) -> type | None:
        """A class by the names recorded with an exception, or None when it is not to be had."""
        module = self.local_name(module)
        if module in self.modules:
            found = getattr(self.load(module), name, None)
        else:
            found = getattr(sys.modules.get(module), name, None)
        return found if isinstance(found, type) else None

    def local_name(self, module: str) -> str:
        """``apiary_app_<d>.functions.hotel`` -> ``functions.hotel``, whatever the deployment."""
        head, _, rest = module.partition(".")
        return rest if head.startswith("apiary_app_") and rest else module

    def unload(self) -> None:
        """Forget this deployment's modules."""
        _finder.remove(self)
        for name in [n for n in sys.modules if (n + ".").startswith(self.prefix + ".")]:
            del sys.modules[name]

    def import_hook(self) -> Any:
        """An ``__import__`` for this deployment's modules."""

        def import_in_deployment(
            name: str,
            globals: Mapping[str, Any] | None = None,
            locals: Mapping[str, Any] | None = None,
            fromlist: Sequence[str] | None = (),
            level: int = 0,
        ) -> ModuleType:
            root = name.partition(".")[0]
            if level or root not in self._roots:
                return builtins.__import__(name, globals, locals, fromlist or (), level)
            module = _import_absolute(f"{self.prefix}.{name}")
            if not fromlist:  # `import a.b` binds `a`
                return sys.modules[f"{self.prefix}.{root}"]
            for item in _names(module, fromlist):
                if not hasattr(module, item) and f"{name}.{item}" in self.modules:
                    _import_absolute(f"{self.prefix}.{name}.{item}")
            return module

        return import_in_deployment


def _names(module: ModuleType, fromlist: Sequence[str]) -> Iterator[str]:
    for item in fromlist:
        if item == "*":
            yield from getattr(module, "__all__", ())
        else:
            yield item


def _import_absolute(name: str) -> ModuleType:
    builtins.__import__(name)
    return sys.modules[name]


class _DeploymentLoader(InspectLoader):
    def __init__(self, code: DeploymentCode, module: SourceModule) -> None:
        self._code = code
        self._module = module

    def get_source(self, fullname: str) -> str:
        return self._module.source

    def get_code(self, fullname: str) -> CodeType:
        return compile(self._module.source, self._module.file, "exec", dont_inherit=True)

    def is_package(self, fullname: str) -> bool:
        return self._module.is_package

    def exec_module(self, module: ModuleType) -> None:
        hooked = dict(vars(builtins))
        hooked["__import__"] = self._code.import_hook()
        module.__dict__["__builtins__"] = hooked
        module.__file__ = self._module.file
        exec(self.get_code(module.__name__), module.__dict__)


class _DeploymentFinder(MetaPathFinder):
    """Serves the modules of every deployment that was loaded into this process."""

    def __init__(self) -> None:
        self._deployments: dict[str, DeploymentCode] = {}

    def add(self, code: DeploymentCode) -> None:
        if not self._deployments:
            sys.meta_path.insert(0, self)
        self._deployments[code.prefix] = code

    def remove(self, code: DeploymentCode) -> None:
        if self._deployments.get(code.prefix) is code:
            del self._deployments[code.prefix]
        if not self._deployments:
            sys.meta_path.remove(self)

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        prefix, _, name = fullname.partition(".")
        code = self._deployments.get(prefix)
        if code is None:
            return None
        module = code.modules.get(name)
        if module is None:
            if name and not any(known.startswith(name + ".") for known in code.modules):
                return None
            # The prefix itself, or a folder without __init__.py.
            module = SourceModule(name=name, file=f"<{fullname}>", source="", is_package=True)
        loader = _DeploymentLoader(code, module)
        return spec_from_loader(fullname, loader, origin=module.file, is_package=module.is_package)


_finder = _DeploymentFinder()
