"""The code of an application in this backend: loaded from its tables once per version."""

from __future__ import annotations

import json
from functools import cached_property
from typing import Any

import plpy  # type: ignore[import-not-found]
from apiary_runtime.database import PlpyDatabase
from apiary_runtime.interrupts import triggers_pending_on
from apiary_runtime.records import insert_plan

from apiary.authoring.decorators import Function, Registered
from apiary.authoring.loader import DeploymentCode, SourceModule
from apiary.errors import NotFound

_KEEP = 4  # versions of one application that a backend keeps loaded


class CatalogueFunction:
    """A function of one deployment: its catalogue row, its code and its database handle."""

    def __init__(self, code: LoadedDeployment, row: Any) -> None:
        self.code = code
        self.name: str = row["name"]
        self.isolation: str = row["isolation"]
        self.timeout_ms: int | None = row["timeout_ms"]
        self.read_only: bool = row["read_only"]
        self.module: str = row["module"]
        self.file: str = row["file"]
        self.qualname: str = row["qualname"]

    @property
    def is_loaded(self) -> bool:
        """Whether its module is imported already."""
        return "function" in self.__dict__

    @cached_property
    def function(self) -> Function[..., Any]:
        found = self.code.source.find(self.module, self.qualname)
        if not isinstance(found, Function):
            raise NotFound(f"{self.name} is a {found.kind}, not a function", name=self.name)
        return found

    @cached_property
    def insert_plan(self) -> Any:
        """The plan that records a call of it."""
        code = self.code
        return insert_plan(code.application.name, code.id, self.name, self.isolation)


class LoadedDeployment:
    """One deployment's modules and functions."""

    def __init__(self, application: Application, deployment: str) -> None:
        self.application = application
        self.id = deployment
        modules = application.backend.rows(
            "SELECT name, file, source, is_package FROM apiary.module WHERE deployment = $1",
            deployment,
        )
        functions = application.backend.rows(
            "SELECT name, module, qualname, file, isolation, timeout_ms, read_only,"
            " statements::text AS statements"
            " FROM apiary.function WHERE deployment = $1",
            deployment,
        )
        if not modules:
            raise NotFound(
                f"deployment {deployment} of {application.name} is not in the database",
                kind="deployment",
                name=deployment,
            )
        self.source = DeploymentCode(deployment, (SourceModule(**row) for row in modules))
        self.functions = {row["name"]: CatalogueFunction(self, row) for row in functions}
        self.workflows: dict[str, Registered] = {}  # that were run here
        self.statements: list[dict[str, Any]] = [
            statement for row in functions for statement in json.loads(row["statements"])
        ]
        relations = {
            statement["sql"]: statement["reads"]
            for statement in self.statements
            if statement["reads"]
        }
        # Deferred constraints are checked before the outcome is recorded, not at commit.
        self._deferrable = [
            int(row["relation"])
            for row in application.backend.rows(
                "SELECT DISTINCT r.oid::pg_catalog.int8 AS relation"
                "  FROM pg_catalog.pg_constraint c"
                "  JOIN pg_catalog.pg_namespace n ON n.oid = c.connamespace"
                "  JOIN apiary.domain d ON d.name = n.nspname,"
                "       pg_catalog.unnest(ARRAY[c.conrelid, c.confrelid]) AS r (oid)"
                " WHERE c.condeferrable AND d.application = $1 AND r.oid <> 0",
                application.name,
            )
        ]
        self.db = PlpyDatabase(relations)

    def has_deferred_triggers(self) -> bool:
        """Whether a deferred constraint of the application has still to be checked."""
        return any(triggers_pending_on(relation) for relation in self._deferrable)

    def function(self, name: str) -> CatalogueFunction:
        """The function called ``name``; NotFound with the nearest name."""
        try:
            return self.functions[name]
        except KeyError:
            raise not_found("function", name, self.functions) from None


class Application:
    """An application's row, and its versions in this backend."""

    def __init__(self, backend: Backend, name: str) -> None:
        self.backend = backend
        self.name = name
        self.captures_reads = True
        self._served: str | None = None  # as its entry function says it: deployment and level
        self._current = ""
        self._loaded: dict[str, LoadedDeployment] = {}

    def find(self, deployment: str | None, served: str) -> LoadedDeployment | None:
        """A deployment, or the one that serves: None if `serve` or `deployment` has to load it."""
        if served != self._served:
            return None
        return self._loaded.get(deployment or self._current)

    def serve(self, served: str) -> str:
        """Learn what serves from the application's row; return the deployment.

        A transaction whose snapshot is older than the entry function that it has entered sees
        another row: it is a serialization failure, so that it is run again with a new snapshot.
        """
        if served != self._served:
            rows = self.backend.rows(
                "SELECT current, provenance FROM apiary.application WHERE name = $1", self.name
            )
            row = rows[0] if rows else {"current": None}
            if row["current"] is None:
                raise _not_deployed(self.name)
            if f"{row['current']} {row['provenance']}" != served:
                plpy.error(f"application {self.name} was deployed meanwhile", sqlstate="40001")
            self._served, self._current = served, row["current"]
            self.captures_reads = row["provenance"] == "full"
        return self._current

    def loaded(self, deployment: str) -> LoadedDeployment | None:
        """The deployment, if this backend has loaded it."""
        return self._loaded.get(deployment)

    @cached_property
    def enter(self) -> Any:
        """The plan that runs the pending body with the application's role.

        Prepared where it is used first: only the platform's owner may name the entry function, and
        a workflow that runs in this backend looks an application up as somebody else.
        """
        return plpy.prepare(f"SELECT apiary_app.{plpy.quote_ident(self.name)}()")

    def deployment(self, deployment: str) -> LoadedDeployment:
        """The deployment, loaded at most once per backend."""
        loaded = self._loaded.get(deployment)
        if loaded is None:
            loaded = LoadedDeployment(self, deployment)
            while len(self._loaded) >= _KEEP:
                self._loaded.pop(next(iter(self._loaded))).source.unload()
            self._loaded[deployment] = loaded
        return loaded


class Backend:
    """Everything that this backend has loaded: applications and the platform's own plans."""

    def __init__(self) -> None:
        self._plans: dict[str, Any] = {}
        self._applications: dict[str, Application] = {}

    def rows(self, sql: str, *parameters: str | None) -> list[dict[str, Any]]:
        """Rows of one of the platform's own statements; its parameters are text."""
        return list(plpy.execute(self.plan(sql, ["text"] * len(parameters)), list(parameters)))

    def plan(self, sql: str, types: list[str]) -> Any:
        """A plan, prepared once per backend."""
        plan = self._plans.get(sql)
        if plan is None:
            plan = self._plans[sql] = plpy.prepare(sql, types)
        return plan

    @cached_property
    def owner(self) -> int:
        """The role that owns the platform, by its oid."""
        rows = self.rows(
            "SELECT proowner::pg_catalog.int8 AS role FROM pg_catalog.pg_proc"
            " WHERE oid = 'apiary.boot'::pg_catalog.regproc"
        )
        return int(rows[0]["role"])

    def application(self, name: str) -> Application:
        """The application; NotFound when there is none."""
        application = self._applications.get(name)
        if application is None:
            if not self.rows("SELECT 1 FROM apiary.application WHERE name = $1", name):
                raise _not_deployed(name)
            application = self._applications[name] = Application(self, name)
        return application


def _not_deployed(application: str) -> NotFound:
    return NotFound(
        f"application {application!r} has no deployment in this database",
        hint="apiary deploy PATH puts one there",
        kind="application",
        name=application,
    )


def not_found(kind: str, name: str, known: Any) -> NotFound:
    """NotFound for ``name``, with the nearest known name as its hint."""
    from difflib import get_close_matches  # noqa: PLC0415  (only on this path)

    near = get_close_matches(name, list(known), n=1)
    hint = f"did you mean {near[0]}?" if near else f"apiary {kind} list shows what there is"
    return NotFound(f"no {kind} {name!r}", hint=hint, kind=kind, name=name)
