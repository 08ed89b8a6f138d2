"""Workflows of 1, 5 and 20 functions, a fan-out of 50, and one with a step outside the database.

Each moves 1 between neighbouring accounts of a block of a thousand that begins at ``base``. A
workflow returns the sum of the balances that its transfers return.
"""

from __future__ import annotations

import hashlib

from apiary import gather, step, workflow
from functions import bench

BLOCK = 1000
FAN_OUT = 50
QUOTE_ITERATIONS = 1000


def pair(base: int, start: int, number: int) -> tuple[int, int]:
    """The accounts of the ``number``-th transfer."""
    return base + (start + 2 * number) % BLOCK, base + (start + 2 * number + 1) % BLOCK


@workflow
def one(base: int, start: int) -> int:
    """One transfer."""
    source, target = pair(base, start, 0)
    return bench.transfer(source, target, 1)


@workflow
def five(base: int, start: int) -> int:
    """Five transfers, one after another."""
    total = 0
    for number in range(5):
        source, target = pair(base, start, number)
        total += bench.transfer(source, target, 1)
    return total


@workflow
def twenty(base: int, start: int) -> int:
    """Twenty transfers, one after another."""
    total = 0
    for number in range(20):
        source, target = pair(base, start, number)
        total += bench.transfer(source, target, 1)
    return total


@workflow
def fan_out(base: int, start: int) -> int:
    """Fifty transfers side by side."""
    begun = []
    for number in range(FAN_OUT):
        source, target = pair(base, start, number)
        begun.append(bench.transfer.start(source, target, 1))
    return sum(gather(*begun))


@step
def quote(number: int) -> int:
    """Something outside the database that takes about half a millisecond of a processor."""
    key = hashlib.pbkdf2_hmac("sha256", str(number).encode(), b"bench", QUOTE_ITERATIONS)
    return key[0] % 10 + 1


@workflow
def mixed(base: int, start: int) -> int:
    """A transfer, a step outside the database, and a transfer of what the step says."""
    source, target = pair(base, start, 0)
    total = bench.transfer(source, target, 1)
    return total + bench.transfer(source, target, quote(start))
