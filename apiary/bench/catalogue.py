"""The systems that are compared, and what each of them is asked to do."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec

from ..errors import BadArgument, ConfigurationError
from .hosting import Direct, Hosted, OverGrpc, RestateIngress, Running
from .systems.engine import Engine, EngineCalls
from .systems.procedure import Procedure
from .systems.recorded import Recorded
from .workloads import Workload

__all__ = ["SYSTEMS", "System", "chosen_systems"]

_OUTSIDE = ("fan-out-50", "mixed")  # workflows that an executor must run
_RECORDED = ("increment", "post", "reserve")  # functions of few statements that write
_OVERHEAD = ("increment", "timeline", "post", "reserve")  # where overheads are looked at


@dataclass(frozen=True, slots=True, kw_only=True)
class System:
    """A system: how it starts, and which workloads it does."""

    name: str
    title: str
    start: Callable[[str], Awaitable[Running]]
    supports: Callable[[Workload], bool]
    provenance: str | None = None  # the level, of Apiary
    package: str | None = None  # of a peer: what `apiary[bench]` installs for it
    is_durable: bool = True  # whether a workflow survives a crash
    is_variant: bool = False  # there for its overhead alone

    @property
    def is_peer(self) -> bool:
        """Whether it is somebody else's product."""
        return self.package is not None

    @property
    def database(self) -> str:
        """Its own database."""
        return f"bench_{self.name.replace('-', '_')}"


def _everything(_workload: Workload) -> bool:
    return True


def _procedure(schema: str) -> Callable[[str], Awaitable[Running]]:
    return lambda url: Direct.start(Procedure(schema), url)


def _engine(url: str) -> Awaitable[Running]:
    return Direct.start(Engine(), url)


def _hosted(name: str) -> Callable[[str], Awaitable[Running]]:
    return lambda url: Hosted.start(name, url)


def _variant(level: str) -> System:
    return System(
        name=f"engine-{level}",
        title=f"Apiary's engine, provenance {level}",
        start=_engine,
        supports=lambda workload: workload.name in _OVERHEAD,
        provenance=level,
        is_variant=True,
    )


_ALL = (
    System(
        name="procedure",
        title="bare PL/pgSQL procedure (the floor)",
        start=_procedure("floor"),
        supports=_everything,
        is_durable=False,
    ),
    System(
        name="procedure-python",
        title="bare PL/Python procedure",
        start=_procedure("floor_python"),
        supports=lambda workload: workload.name in _RECORDED,
        is_durable=False,
        is_variant=True,
    ),
    System(
        name="engine",
        title="Apiary in the database, engine",
        start=_engine,
        supports=lambda workload: workload.name not in _OUTSIDE,
        provenance="writes",
    ),
    System(
        name="engine-calls",
        title="Apiary's engine, a call for each function",
        start=lambda url: Direct.start(EngineCalls(), url),
        supports=lambda workload: workload.name in ("workflow-1", "workflow-5", "workflow-20"),
        provenance="writes",
        is_durable=False,
        is_variant=True,
    ),
    _variant("off"),
    _variant("full"),
    System(
        name="grpc",
        title="Apiary in the database, over gRPC",
        start=lambda url: OverGrpc.start(url, executor_only=False),
        supports=_everything,
        provenance="writes",
    ),
    System(
        name="executor",
        title="Apiary in an executor, over gRPC",
        start=lambda url: OverGrpc.start(url, executor_only=True),
        supports=lambda workload: workload.is_workflow,
        provenance="writes",
    ),
    System(
        name="interactive",
        title="interactive psycopg transactions in a service",
        start=_hosted("interactive"),
        supports=_everything,
        is_durable=False,
    ),
    System(
        name="interactive-recorded",
        title="interactive psycopg transactions with the same record",
        start=lambda url: Direct.start(Recorded(), url),
        supports=lambda workload: workload.name in _RECORDED,
        provenance="writes",
        is_variant=True,
    ),
    System(
        name="dbos",
        title="DBOS",
        start=_hosted("dbos"),
        supports=_everything,
        package="dbos",
    ),
    System(
        name="absurd",
        title="Absurd",
        start=_hosted("absurd"),
        supports=lambda workload: workload.name != "fan-out-50",
        package="absurd_sdk",
    ),
    System(
        name="procrastinate",
        title="Procrastinate",
        start=_hosted("procrastinate"),
        supports=lambda workload: not workload.is_workflow,
        package="procrastinate",
    ),
    System(
        name="restate",
        title="Restate",
        start=RestateIngress.start,
        supports=_everything,
        package="restate",
    ),
)
SYSTEMS: Mapping[str, System] = {system.name: system for system in _ALL}


def chosen_systems(names: Sequence[str], *, peers: bool) -> list[System]:
    """The systems of these names; for none all of ours, and with ``peers`` the others too."""
    unknown = sorted(set(names) - set(SYSTEMS))
    if unknown:
        raise BadArgument(
            f"unknown system {unknown[0]!r}",
            hint=f"there are {', '.join(SYSTEMS)}",
            path="system",
        )
    if names:
        chosen = [system for system in _ALL if system.name in names]
    else:
        chosen = [system for system in _ALL if peers or not system.is_peer]
    missing = [s.name for s in chosen if s.package is not None and find_spec(s.package) is None]
    if missing:
        raise ConfigurationError(
            f"not installed: {', '.join(missing)}",
            hint="pip install 'apiary[bench]', or make bench-peers in a checkout",
        )
    return chosen
