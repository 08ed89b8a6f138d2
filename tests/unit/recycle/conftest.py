"""Jobs of the worked examples."""

import pytest

from workflows.recycle.job import Job, StageTimes


@pytest.fixture(scope="session")
def example() -> Job:
    """Three pipelines of four stages, six micro-batches, every operation one unit."""
    return Job.uniform(3, 4, 6)


@pytest.fixture(scope="session")
def uneven() -> Job:
    """The example with different times for F, I and W, and transfers."""
    times = StageTimes(forward_us=10, input_grad_us=12, weight_grad_us=9, transfer_us=1)
    return Job.uniform(3, 4, 6, times=times)
