"""What a workflow's body may not use: values that would be others in a replay.

A workflow is run again from its beginning after a crash or a wait. Whatever differs then (the
clock, random numbers) leads it another way than the record. Each such name has a replacement that
is recorded, or the same in every replay.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from apiary.authoring.analysis.bodyreading import Mention
from apiary.authoring.analysis.findings import Problem

__all__ = ["NONDETERMINISTIC", "nondeterminism"]

_NOW = "apiary.now()"
_RANDOM = "apiary.random()"
_SLEEP = "apiary.sleep()"
_STEP = "a step"

# Full name -> what to use instead.
NONDETERMINISTIC: dict[str, str] = {
    **dict.fromkeys(
        (
            "time.time", "time.time_ns", "time.monotonic", "time.monotonic_ns",
            "time.perf_counter", "time.perf_counter_ns", "time.process_time",
            "time.process_time_ns", "time.localtime", "time.gmtime", "time.ctime",
            "datetime.datetime.now", "datetime.datetime.utcnow", "datetime.datetime.today",
            "datetime.date.today",
        ),
        _NOW,
    ),
    "time.sleep": _SLEEP,
    "asyncio.sleep": _SLEEP,
    **dict.fromkeys(
        (
            "random.random", "random.randint", "random.randrange", "random.randbytes",
            "random.getrandbits", "random.choice", "random.choices", "random.sample",
            "random.shuffle", "random.uniform", "random.triangular", "random.betavariate",
            "random.expovariate", "random.gammavariate", "random.gauss", "random.lognormvariate",
            "random.normalvariate", "random.vonmisesvariate", "random.paretovariate",
            "random.weibullvariate", "random.binomialvariate", "random.seed",
            "random.SystemRandom",
        ),
        f"{_RANDOM}, or random.Random({_RANDOM})",
    ),
    **dict.fromkeys(("uuid.uuid1", "uuid.uuid4"), "apiary.uuid4()"),
    **dict.fromkeys(
        (
            "os.urandom", "os.getrandom", "secrets.token_bytes", "secrets.token_hex",
            "secrets.token_urlsafe", "secrets.choice", "secrets.randbelow", "secrets.randbits",
            "secrets.SystemRandom",
        ),
        _STEP,
    ),
}  # fmt: skip


def nondeterminism(workflow: str, mentions: Iterable[Mention]) -> Iterator[Problem]:
    """The problems of a workflow that mentions such names, itself or through helpers."""
    for mention in mentions:
        replacement = NONDETERMINISTIC.get(str(mention.target))
        if replacement is not None:
            message = (
                f"workflow {workflow} uses {mention.target}, which gives another value in a "
                f"replay: use {replacement}"
            )
            yield Problem(mention.file, mention.line, message)
