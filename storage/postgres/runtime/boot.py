"""Start the runtime in a backend: serve its modules from the database to Python's import system.

The modules are the runtime itself (``apiary_runtime``) and the part of ``apiary`` that user code
imports. They are served before anything of the same name on the file system, so that a backend
runs what is in its database, whatever is installed on its machine.
"""

from __future__ import annotations

import marshal
import sys
from importlib import import_module
from importlib.abc import InspectLoader, MetaPathFinder
from importlib.util import MAGIC_NUMBER, spec_from_loader
from typing import Any


class _RuntimeLoader(InspectLoader):
    def __init__(self, row: Any) -> None:
        self._row = row

    def get_source(self, fullname: str) -> str:
        return str(self._row["source"])

    def get_code(self, fullname: str) -> Any:
        row = self._row
        if row["magic"] == MAGIC_NUMBER:
            return marshal.loads(row["bytecode"])
        return compile(row["source"], f"<{fullname}>", "exec", dont_inherit=True)

    def is_package(self, fullname: str) -> bool:
        return bool(self._row["is_package"])


class _RuntimeFinder(MetaPathFinder):
    def __init__(self, rows: Any) -> None:
        self._rows = {row["name"]: row for row in rows}

    def find_spec(self, fullname: str, path: Any, target: Any = None) -> Any:
        row = self._rows.get(fullname)
        if row is None:
            return None
        return spec_from_loader(fullname, _RuntimeLoader(row), is_package=row["is_package"])


def boot(rows: Any) -> Any:
    """Make the modules in ``rows`` (name, source, is_package) importable; return the runtime."""
    sys.meta_path.insert(0, _RuntimeFinder(rows))
    return import_module("apiary_runtime.runtime").Runtime()
