"""What a simulation workflow computes: policies replayed on a stored trace, and their courses."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from functions import symi
from functions.symi.records import Cluster, Hardware, PolicyCourse, PolicySummary

from .arguments import refused
from .convergence import iteration_fraction, minutes_to_target
from .costs import Variant
from .latency import CalibratedLatency, LatencyModel, PhysicalLatency, calibrate
from .policies import Policy, parse_policy
from .published import MINUTES_TO_LOSS_4
from .simulation import PolicyResult, simulate
from .trace import Trace

__all__ = ["Job"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """Policies on a cluster, how long its iterations take, and how many reach the target."""

    policies: list[Policy]
    cluster: Cluster
    latency: LatencyModel
    iterations: Mapping[str, float]
    """Iterations to the target by policy, as far as they are known."""

    @classmethod
    def of(
        cls,
        policies: Sequence[str],
        cluster: Cluster,
        hardware: Hardware | None,
        iterations: Mapping[str, float],
    ) -> Job:
        """The job of a workflow's arguments; without hardware latencies are the calibrated ones.

        Raises:
            InvalidArgument: a policy is unknown or named twice, or none is.
        """
        chosen = [parse_policy(name) for name in policies]
        if not chosen or len(set(chosen)) < len(chosen):
            raise refused("policies", policies, "at least one policy, each once", "name them")
        return cls(
            policies=chosen, cluster=cluster, latency=_latency(hardware), iterations=iterations
        )

    def simulated(self, trace: Trace, policy: Policy) -> PolicyResult:
        """What one policy makes of a trace."""
        (result,) = simulate(
            trace,
            [policy],
            ranks=self.cluster.ranks,
            slots_per_rank=self.cluster.slots_per_rank,
            latency=self.latency,
            capacity_factor=self.cluster.capacity_factor,
        )
        return result

    def replay(self, trace: Trace, policy: Policy, study: str, run_id: str) -> PolicySummary:
        """Simulate one policy and store its course in a study."""
        result = self.simulated(trace, policy)
        course = PolicyCourse(
            policy=result.policy,
            counts=result.counts.tolist(),
            latency_s=result.latency_s.tolist(),
            latency_parts_s={name: float(part.mean()) for name, part in result.latency.items()},
            minutes_to_target=self._minutes(result),
        )
        return PolicySummary(
            policy=result.policy,
            drop_share=symi.store_course(study, course, run_id),
            mean_latency_s=result.mean_latency_s,
            minutes_to_target=course.minutes_to_target,
        )

    def _minutes(self, result: PolicyResult) -> float | None:
        """minutes = iterations * latency; relative latencies are scaled by DeepSpeed's minutes."""
        if result.policy in self.iterations:
            return minutes_to_target(self.iterations[result.policy], result.mean_latency_s)
        if not isinstance(self.latency, CalibratedLatency):
            return None
        if result.policy not in MINUTES_TO_LOSS_4:
            return None
        relative = result.mean_latency_s / self.latency.static
        return MINUTES_TO_LOSS_4["static"] * iteration_fraction(result.policy) * relative


def _latency(hardware: Hardware | None) -> LatencyModel:
    if hardware is None:
        return calibrate()
    return PhysicalLatency(
        layer=hardware.layer,
        links=hardware.links,
        dense_s=hardware.dense_s,
        token_s=hardware.token_s,
        token_bytes=hardware.token_bytes,
        step_s=hardware.step_s,
        overhead_share=hardware.overhead_share,
        variant=Variant.named(hardware.variant),
    )
