"""What workflows and deployments there are."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from psycopg.rows import dict_row

from ..errors import BadArgument, NotFound
from .postgres import PostgresEngine

__all__ = ["DeploymentRow", "WorkflowCatalogue", "WorkflowRow"]

_WORKFLOWS = """
SELECT a.name AS application, w.name, w.deployment, w.doc, w.signature::text AS signature,
       w.in_database, w.reasons, w.file, w.line
  FROM apiary.application a JOIN apiary.workflow w ON w.deployment = a.current
 WHERE w.kind = 'workflow' AND (%(application)s::text IS NULL OR a.name = %(application)s)
   AND (%(name)s::text IS NULL OR w.name = %(name)s)
 ORDER BY a.name, w.name"""
_DEPLOYMENTS = """
SELECT d.id, d.application, d.id = a.current AS current, d.created_at, d.created_by,
       (SELECT count(*) FROM apiary.run r
         WHERE r.deployment = d.id AND r.finished_at IS NULL) AS live_runs
  FROM apiary.deployment d JOIN apiary.application a ON a.name = d.application
 WHERE %(application)s::text IS NULL OR d.application = %(application)s
 ORDER BY d.application, d.created_at DESC, d.id"""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkflowRow:
    """A workflow as its application's current deployment has it."""

    application: str
    name: str
    deployment: str
    doc: str
    signature: str  # JSON text
    in_database: bool
    reasons: Sequence[str]  # why not: file:line: reason
    file: str
    line: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DeploymentRow:
    """One stored version of an application."""

    id: str
    application: str
    current: bool
    created_at: datetime
    created_by: str
    live_runs: int  # runs that have not ended


class WorkflowCatalogue:
    """Read queries on workflows and deployments."""

    def __init__(self, engine: PostgresEngine) -> None:
        self._engine = engine

    async def workflows(self, application: str | None = None) -> list[WorkflowRow]:
        """The workflows that new runs can be started of, by application and name."""
        rows = await self._rows(_WORKFLOWS, {"application": application, "name": None})
        return [_workflow(row) for row in rows]

    async def workflow(self, name: str, application: str | None = None) -> WorkflowRow:
        """One of them; NotFound with the nearest name, BadArgument if two applications have it."""
        rows = await self._rows(_WORKFLOWS, {"application": application, "name": name})
        if not rows:
            known = [row.name for row in await self.workflows(application)]
            near = difflib.get_close_matches(name, known, n=1)
            raise NotFound(
                f"no workflow {name!r}" + (f" in application {application}" if application else ""),
                hint=f"did you mean {near[0]}?"
                if near
                else "apiary workflow list --definitions shows what there is",
                kind="workflow",
                name=name,
            )
        if len(rows) > 1:
            holders = ", ".join(row["application"] for row in rows)
            raise BadArgument(
                f"several applications have a workflow {name!r}: {holders}",
                hint="name the application",
                path="application",
            )
        return _workflow(rows[0])

    async def deployments(self, application: str | None = None) -> list[DeploymentRow]:
        """Stored deployments with the runs that still need them, newest first."""
        rows = await self._rows(_DEPLOYMENTS, {"application": application})
        if not rows and application is not None:
            raise NotFound(f"no application {application!r}", kind="application", name=application)
        return [DeploymentRow(**row) for row in rows]

    async def _rows(self, statement: str, values: dict[str, Any]) -> list[dict[str, Any]]:
        return await self._engine.rows(statement, values, dict_row)


def _workflow(row: dict[str, Any]) -> WorkflowRow:
    reasons = tuple(f"{each['file']}:{each['line']}: {each['reason']}" for each in row["reasons"])
    return WorkflowRow(**{**row, "reasons": reasons})
