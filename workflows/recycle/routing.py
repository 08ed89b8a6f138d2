"""Who takes over the micro-batches of dead workers.

All workers of one stage hold the same parameters, so a dead worker's micro-batches go to its
peers of the same stage (ReCycle, section "adaptive pipelining").
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from workflows.recycle.job import Job, Worker

__all__ = ["IntArray", "reroute"]

IntArray = npt.NDArray[np.int64]


def reroute(job: Job, failed: Sequence[Worker]) -> IntArray:
    """Who executes what: the executing pipeline of (home k, stage i, micro-batch j), shape (P,S,M).

    The micro-batches of a stage's dead workers, in the order (k, j), are dealt round-robin to its
    live workers in ascending order.
    """
    executor = np.empty((job.pipelines, job.stages, job.micro_batches), dtype=np.int64)
    executor[:] = np.arange(job.pipelines)[:, None, None]
    for stage in range(job.stages):
        dead = sorted(w.pipeline for w in failed if w.stage == stage)
        if not dead:
            continue
        live = np.array([k for k in range(job.pipelines) if k not in dead])
        orphans = len(dead) * job.micro_batches
        dealt = live[np.arange(orphans) % len(live)]
        executor[dead, stage, :] = dealt.reshape(len(dead), job.micro_batches)
    return executor
