"""The code of deployments, loaded from the database into this process."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from ..authoring.decorators import Workflow
from ..authoring.loader import DeploymentCode, SourceModule
from ..engine.postgres import PostgresEngine
from ..errors import ConfigurationError, NotFound

__all__ = ["CodeCache", "WorkflowEntry"]


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkflowEntry:
    """A workflow of one deployment, as the catalogue has it."""

    application: str
    deployment: str
    name: str
    module: str
    qualname: str
    in_database: bool


class CodeCache:
    """Loads each deployment, and finds each of its workflows, once per process."""

    def __init__(self, engine: PostgresEngine) -> None:
        self._engine = engine
        self._codes: dict[str, DeploymentCode] = {}
        self._currents: dict[str, str] = {}
        self._workflows: dict[tuple[str, str], WorkflowEntry] = {}
        self._found: dict[tuple[str, str], Workflow[..., object]] = {}
        self._lock = asyncio.Lock()

    async def code(self, deployment: str) -> DeploymentCode:
        """The code of a deployment; NotFound when the database has none of that id."""
        known = self._codes.get(deployment)
        if known is not None:
            return known
        async with self._lock:
            if deployment not in self._codes:
                rows = await self._engine.rows(
                    "SELECT name, file, source, is_package FROM apiary.module"
                    " WHERE deployment = %s",
                    [deployment],
                )
                if not rows:
                    raise NotFound(
                        f"no deployment {deployment}", kind="deployment", name=deployment
                    )
                self._codes[deployment] = DeploymentCode(
                    deployment,
                    [
                        SourceModule(name=name, file=file, source=source, is_package=package)
                        for name, file, source, package in rows
                    ],
                )
            return self._codes[deployment]

    async def current(self, application: str) -> str:
        """The deployment that serves new calls of an application."""
        rows = await self._engine.rows(
            "SELECT current FROM apiary.application WHERE name = %s", [application]
        )
        if not rows or rows[0][0] is None:
            raise NotFound(
                f"application {application!r} has no deployment in this database",
                hint="apiary deploy PATH puts one there",
                kind="application",
                name=application,
            )
        current = self._currents[application] = str(rows[0][0])
        return current

    def last_current(self, application: str) -> str | None:
        """What `current` answered last; another deployment may serve by now."""
        return self._currents.get(application)

    async def entry(self, deployment: str, name: str) -> WorkflowEntry:
        """The catalogue's entry of a workflow."""
        key = (deployment, name)
        if key not in self._workflows:
            rows = await self._engine.rows(
                "SELECT d.application, w.module, w.qualname, w.in_database"
                " FROM apiary.workflow w JOIN apiary.deployment d ON d.id = w.deployment"
                " WHERE w.deployment = %s AND w.name = %s AND w.kind = 'workflow'",
                [deployment, name],
            )
            if not rows:
                raise NotFound(
                    f"no workflow {name!r}",
                    hint="apiary workflow list --definitions shows what there is",
                    kind="workflow",
                    name=name,
                )
            application, module, qualname, in_database = rows[0]
            self._workflows[key] = WorkflowEntry(
                application=application,
                deployment=deployment,
                name=name,
                module=module,
                qualname=qualname,
                in_database=in_database,
            )
        return self._workflows[key]

    async def workflow(self, deployment: str, name: str) -> Workflow[..., object]:
        """The workflow itself; ConfigurationError when its module cannot be imported here."""
        known = self._found.get((deployment, name))
        if known is not None:
            return known
        entry = await self.entry(deployment, name)
        code = await self.code(deployment)
        try:
            found = await asyncio.to_thread(code.find, entry.module, entry.qualname)
        except ImportError as error:
            raise ConfigurationError(
                f"{entry.module} cannot be imported here: {error}",
                hint=f"install what provides {error.name!r} where executors and the server run",
                module=error.name,
            ) from error
        if not isinstance(found, Workflow):
            raise NotFound(f"{name} is a {found.kind}, not a workflow", kind="workflow", name=name)
        self._found[deployment, name] = found
        return found
