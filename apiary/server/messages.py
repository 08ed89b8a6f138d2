"""What the platform knows, as messages of the interface."""

from __future__ import annotations

from ..authoring.values import dumps
from ..engine.base import Outcome
from ..engine.deploying import Deployed
from ..proto.apiary.v1 import apiary_pb2

__all__ = ["deployed_message", "outcome_message"]


def outcome_message(run_id: str, outcome: Outcome) -> apiary_pb2.InvokeResponse:
    """The answer to an invocation that has a result."""
    return apiary_pb2.InvokeResponse(
        run_id=run_id,
        output=dumps(outcome.output),
        deployment=outcome.deployment,
        xid=outcome.xid or "",
        replayed=outcome.replayed,
    )


def deployed_message(deployed: Deployed) -> apiary_pb2.DeployResponse:
    """The answer to a deploy or rollback."""
    return apiary_pb2.DeployResponse(
        application=deployed.application,
        deployment=deployed.deployment,
        previous=deployed.previous or "",
        changed=deployed.changed,
        functions=deployed.functions,
        workflows=deployed.workflows,
        scripts=deployed.scripts,
    )
