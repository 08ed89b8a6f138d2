"""What static analysis of an application says: its records, and nothing that computes them.

Names of functions, steps and workflows are public names (``hotel.reserve``); tables are
``schema.table``. ``file`` and ``line`` (1-based) are those of the source that was given.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, NamedTuple

__all__ = [
    "Analysis",
    "FunctionAnalysis",
    "Module",
    "Problem",
    "Reason",
    "Statement",
    "StepAnalysis",
    "WorkflowAnalysis",
]


@dataclass(frozen=True, slots=True)
class Module:
    """The source of one module of an application, by its dotted name."""

    name: str
    file: str
    source: str


class Reason(NamedTuple):
    """Why something could not be known or be done, and where in the source."""

    file: str
    line: int
    why: str


@dataclass(frozen=True, slots=True)
class Problem:
    """Something that refuses the deployment."""

    file: str
    line: int
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Statement:
    """One constant SQL statement that a function runs through its database handle.

    ``kind`` is ``write`` also for what changes no row but takes locks or has other effects
    (SELECT ... FOR UPDATE, nextval). ``parameters`` is the highest ``$n``. ``functions`` are the
    unqualified names of the SQL functions it calls that are not plain SQL: they count as having no
    effects unless known to write, and a database can check them in ``pg_proc``.
    """

    sql: str
    file: str
    line: int
    kind: Literal["read", "write"]
    reads: frozenset[str]
    writes: frozenset[str]
    parameters: int
    functions: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class FunctionAnalysis:
    """What one @function does.

    ``statements`` are its own and those of the helpers that it hands its handle to. ``calls`` are
    the other functions that it calls itself or through helpers; ``reads``, ``writes``,
    ``read_only``, ``dynamic`` and ``dynamic_reasons`` include what those do in turn. A ``dynamic``
    function may write anything, and is never ``read_only``.
    """

    module: str
    qualname: str
    file: str
    line: int
    statements: tuple[Statement, ...]
    reads: frozenset[str]
    writes: frozenset[str]
    read_only: bool
    dynamic: bool
    dynamic_reasons: tuple[Reason, ...]
    calls: frozenset[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkflowAnalysis:
    """What one @workflow calls, itself or through helpers, and whether it can run in the database.

    ``functions``, ``steps`` and ``workflows`` are called by it, ``uses`` are the platform's
    primitives in it (``start`` among them, for ``reserve.start(...)``). ``reasons`` say what makes
    it leave the database, and are empty if ``in_database``.
    """

    module: str
    qualname: str
    file: str
    line: int
    functions: frozenset[str]
    steps: frozenset[str]
    workflows: frozenset[str]
    uses: frozenset[str]
    in_database: bool
    reasons: tuple[Reason, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class StepAnalysis:
    """Where one @step is."""

    module: str
    qualname: str
    file: str
    line: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Analysis:
    """The analysis of an application, by public name, and the ``problems`` that refuse it."""

    functions: Mapping[str, FunctionAnalysis]
    workflows: Mapping[str, WorkflowAnalysis]
    steps: Mapping[str, StepAnalysis]
    problems: tuple[Problem, ...]
