"""What a deploy sends: an application's content, checked and described, as one JSON document.

Building it analyses the application's source to see what is registered and what each function's
SQL touches, and imports the modules that may register something (from the text that was read,
not from the folder) to see signatures and options. All other modules are stored as they are: what
only a step needs, such as a model that computes with numpy, need not be installed here.
A bundle's id is a hash of the content that the author wrote, so that the same content is the same
deployment wherever it is built.
"""

from __future__ import annotations

import ast
import hashlib
import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any

from ..errors import ApiaryError, DeployError
from .analysis import Analysis, Module, analyse
from .application import Application, TableScript
from .decorators import Function, Registered, Step, Workflow
from .loader import DeploymentCode, SourceModule

__all__ = ["Bundle", "build_bundle"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Bundle:
    """One version of an application, ready to be stored."""

    id: str  # hash of the content
    application: str
    provenance: str
    modules: tuple[SourceModule, ...]
    scripts: tuple[TableScript, ...]
    functions: tuple[dict[str, Any], ...]  # rows of apiary.function, without the deployment
    workflows: tuple[dict[str, Any], ...]  # rows of apiary.workflow, without the deployment

    def to_json(self) -> str:
        """The bundle as JSON text."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Bundle:
        """Read what `to_json` wrote."""
        document = json.loads(text)
        document["modules"] = tuple(SourceModule(**item) for item in document["modules"])
        document["scripts"] = tuple(TableScript(**item) for item in document["scripts"])
        document["functions"] = tuple(document["functions"])
        document["workflows"] = tuple(document["workflows"])
        return cls(**document)


def build_bundle(application: Application) -> Bundle:
    """Check and describe an application. DeployError names the file and line of a problem."""
    analysis = analyse(
        Module(name=module.name, file=module.file, source=module.source)
        for module in application.modules
    )
    if analysis.problems:
        raise _problems(analysis)
    deployment = _content_hash(application)
    code = DeploymentCode(deployment, application.modules)
    try:
        registered = _by_name(_load(code, _registering(application.modules)))
        functions = [
            _function_row(f, analysis, code) for f in registered if isinstance(f, Function)
        ]
        workflows = [
            _workflow_row(w, analysis, code) for w in registered if isinstance(w, (Step, Workflow))
        ]
    finally:
        code.unload()
    return Bundle(
        id=deployment,
        application=application.name,
        provenance=application.provenance,
        modules=application.modules,
        scripts=application.scripts,
        functions=tuple(functions),
        workflows=tuple(workflows),
    )


def _content_hash(application: Application) -> str:
    content = {
        "name": application.name,
        "provenance": application.provenance,
        "modules": [asdict(module) for module in application.modules],
        "scripts": [asdict(script) for script in application.scripts],
    }
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:16]


def _problems(analysis: Analysis) -> DeployError:
    first = analysis.problems[0]
    listed = "\n".join(f"{p.file}:{p.line}: {p.message}" for p in analysis.problems)
    count = len(analysis.problems)
    return DeployError(
        listed if count == 1 else f"{count} problems\n{listed}", file=first.file, line=first.line
    )


_REGISTERING = frozenset({"function", "step", "workflow", "authoring", "decorators", "*"})


def _registering(modules: Iterable[SourceModule]) -> list[str]:
    """The modules that may register something: those of functions/, and those with a decorator.

    Model libraries do not, and may need packages that the deploying machine lacks.
    """
    return [
        module.name
        for module in modules
        if module.name.partition(".")[0] == "functions" or _may_register(module)
    ]


def _may_register(module: SourceModule) -> bool:
    """Whether a module imports a decorator of the platform, or apiary whole."""
    for node in ast.walk(ast.parse(module.source)):
        if isinstance(node, ast.Import):
            if any(alias.name.partition(".")[0] == "apiary" for alias in node.names):
                return True
        elif isinstance(node, ast.ImportFrom) and not node.level:
            # What else there is to import (run_id, progress) registers nothing.
            from_apiary = (node.module or "").partition(".")[0] == "apiary"
            if from_apiary and any(alias.name in _REGISTERING for alias in node.names):
                return True
    return False


def _load(code: DeploymentCode, modules: Iterable[str]) -> list[Registered]:
    try:
        return list(code.registered(modules))
    except ApiaryError:
        raise
    except ImportError as error:
        raise DeployError(
            f"the application cannot be imported: {error}",
            hint=f"install what provides {error.name!r} where you deploy from, or correct it; what"
            " only a step needs is imported in the step's body",
            module=error.name,
        ) from error
    except Exception as error:
        frame = _innermost_frame(error, {module.file for module in code.modules.values()})
        raise DeployError(
            f"{frame[0]}:{frame[1]}: {type(error).__name__}: {error}", file=frame[0], line=frame[1]
        ) from error


def _innermost_frame(error: BaseException, files: set[str]) -> tuple[str, int]:
    traceback, found = error.__traceback__, ("?", 0)
    while traceback is not None:
        if traceback.tb_frame.f_code.co_filename in files:
            found = (traceback.tb_frame.f_code.co_filename, traceback.tb_lineno)
        traceback = traceback.tb_next
    return found


def _by_name(registered: Iterable[Registered]) -> list[Registered]:
    found: dict[str, Registered] = {}
    for item in registered:
        other = found.setdefault(item.name, item)
        if other is not item:
            raise DeployError(
                f"{item.name} is defined twice: in {other.module} and in {item.module}",
                hint="functions, steps and workflows of one domain share one set of names",
            )
    return [found[name] for name in sorted(found)]


def _common(item: Registered, code: DeploymentCode) -> dict[str, Any]:
    module = code.local_name(item.module)
    source = code.modules[module]
    try:
        signature = item.signature.describe()
        for parameter, (_, sql_type) in zip(
            signature["parameters"], item.signature.sql_types(), strict=True
        ):
            parameter["sql_type"] = sql_type
    except DeployError as error:
        raise DeployError(
            f"{source.file}:{item.body.__code__.co_firstlineno}: {item.name}: {error.message}",
            hint=error.hint,
            file=source.file,
            line=item.body.__code__.co_firstlineno,
        ) from error
    return {
        "name": item.name,
        "module": module,
        "qualname": item.qualname,
        "file": source.file,
        "line": item.body.__code__.co_firstlineno,
        "signature": signature,
        "doc": item.doc,
    }


def _require_found(item: Registered, found: object) -> None:
    """What is registered must be what the analysis found, or nothing is known of it."""
    if found is None:
        raise DeployError(
            f"{item.name} is made in a way that cannot be analysed",
            hint=f"decorate a def statement at the top level of its module with @{item.kind}",
        )


def _function_row(
    function: Function[..., Any], analysis: Analysis, code: DeploymentCode
) -> dict[str, Any]:
    found = analysis.functions.get(function.name)
    _require_found(function, found)
    assert found is not None
    return {
        **_common(function, code),
        "isolation": function.isolation,
        "timeout_ms": None if function.timeout_s is None else round(function.timeout_s * 1000),
        "partition": function.partition,
        "read_only": found.read_only,
        "dynamic": found.dynamic,
        "reads": sorted(found.reads),
        "writes": sorted(found.writes),
        "statements": [
            {
                "sql": statement.sql,
                "kind": statement.kind,
                "reads": sorted(statement.reads),
                "writes": sorted(statement.writes),
                "file": statement.file,
                "line": statement.line,
            }
            for statement in found.statements
        ],
    }


def _workflow_row(
    item: Step[..., Any] | Workflow[..., Any], analysis: Analysis, code: DeploymentCode
) -> dict[str, Any]:
    options = {k: v for k, v in asdict(item.options).items() if not callable(v)}
    row = {**_common(item, code), "kind": item.kind, "options": options}
    found = analysis.workflows.get(item.name)
    _require_found(item, analysis.steps.get(item.name) if isinstance(item, Step) else found)
    row["in_database"] = found is not None and found.in_database
    row["reasons"] = [
        {"file": file, "line": line, "reason": reason}
        for file, line, reason in (found.reasons if found else ())
    ]
    return row
