"""What travels to and from the functions and workflows of this service."""

from __future__ import annotations

from dataclasses import dataclass

from workflows.symi.costs import CommunicationCost, ExpertLayer, Links
from workflows.symi.memory import RankMemory

__all__ = [
    "Cluster",
    "Cost",
    "Hardware",
    "LayerProfile",
    "Observed",
    "PolicyCourse",
    "PolicySummary",
    "RunSummary",
    "StoredPlan",
    "TrainReport",
    "TrainingShape",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSummary:
    """A stored popularity trace."""

    run: str
    kind: str
    """trace, synthetic or training."""
    layers: int
    experts: int
    first_iteration: int
    iterations: int
    """Whole iterations stored."""
    state: str
    """OPEN, FAILED or COMPLETE."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerProfile:
    """Skew and change of one layer's popularity; see `workflows.symi.statistics`."""

    layer: int
    iterations: int
    mean_tokens: float
    max_over_mean: float
    largest_max_over_mean: float
    gini: float
    entropy_bits: float
    swing: float
    autocorrelation: list[float | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """The slots among which experts are placed."""

    ranks: int
    """N."""
    slots_per_rank: int
    """s."""
    capacity_factor: float = 1.0

    @property
    def slots(self) -> int:
        """sN."""
        return self.ranks * self.slots_per_rank


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredPlan:
    """The placement of one layer on which an iteration runs."""

    study: str
    policy: str
    iteration: int
    layer: int
    counts: list[int]
    placement: list[int]
    sources: list[list[int]]
    """``sources[e][dst]``: the rank that sends ``dst`` its gradient shard of ``e``."""
    moved: list[int]
    """Global slots whose expert differs from the iteration before; empty for the first."""
    digest: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingShape:
    """What a training job's control state needs to know of it."""

    layers: int
    experts: int
    cluster: Cluster
    expert_parameters: int
    """Parameters of one expert, which are sharded over all ranks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Observed:
    """What an iteration was seen to do, beside its popularity."""

    loss: float
    cross_entropy: float
    dropped: list[int]
    """Tokens over capacity, per layer."""
    gradient_bytes: int
    weight_bytes: int
    latency_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyCourse:
    """What a policy made of a whole trace in a simulation."""

    policy: str
    counts: list[list[list[int]]]
    """``[T][L][E]``, replicas during each iteration."""
    latency_s: list[float]
    """``[T]``."""
    latency_parts_s: dict[str, float]
    """Mean seconds of each part of an iteration."""
    minutes_to_target: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """What one iteration of one MoE layer moves and keeps in both designs."""

    communication: CommunicationCost
    memory: RankMemory
    advice: str | None
    """A warning where decoupling is not nearly free."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Hardware:
    """Sizes, bandwidths and measured times for the physical latency model."""

    layer: ExpertLayer
    links: Links
    dense_s: float
    """Everything outside the MoE layers, per iteration."""
    token_s: float
    """Expert computation per token, forward and backward."""
    token_bytes: float
    step_s: float
    """Optimizer step of one layer."""
    overhead_share: float = 0.0
    variant: str = "offload"


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicySummary:
    """What a policy makes of a trace."""

    policy: str
    drop_share: float
    mean_latency_s: float
    minutes_to_target: float | None
    """None where nobody says how many iterations the policy needs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainReport:
    """What the committed iterations of a training run come to."""

    run: str
    policy: str
    ranks: int
    iterations: int
    first_cross_entropy: float
    last_cross_entropy: float
    """Mean of the last ten iterations."""
    routed: int
    """Tokens, over all layers."""
    dropped: int
    gradient_bytes: int
    """Sent between ranks in the whole run."""
    weight_bytes: int
