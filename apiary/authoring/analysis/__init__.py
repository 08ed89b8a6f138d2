"""Static analysis of an application at deploy: what its functions and workflows do.

It runs where an application is deployed from, never inside the database process.
"""

from apiary.authoring.analysis.closure import IN_DATABASE_PRIMITIVES, analyse
from apiary.authoring.analysis.findings import (
    Analysis,
    FunctionAnalysis,
    Module,
    Problem,
    Reason,
    Statement,
    StepAnalysis,
    WorkflowAnalysis,
)

__all__ = [
    "IN_DATABASE_PRIMITIVES",
    "Analysis",
    "FunctionAnalysis",
    "Module",
    "Problem",
    "Reason",
    "Statement",
    "StepAnalysis",
    "WorkflowAnalysis",
    "analyse",
]
