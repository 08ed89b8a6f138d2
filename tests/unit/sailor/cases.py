"""The published planner cases, read."""

from __future__ import annotations

from typing import Any

from workflows.sailor.search_result import Goal


def goal_of(case: dict[str, Any]) -> Goal:
    """What a case asks for; it writes 0 for no limit."""
    return Goal(
        objective="cost" if case["objective"] == "iteration_cost" else "throughput",
        max_cost_usd=case["max_cost_usd"] or None,
        min_iterations_per_s=case["min_throughput"] or None,
    )
