"""What every system is asked to do: requests that depend on nothing but their number.

Sources: Apiary's paper and its repository for increment, retwis, hotel and shop (mixes and sizes);
TPC-C 2.4 and 2.5 for new orders and payments, with the paper's constant 223 for NURand.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ..errors import BadArgument

__all__ = [
    "CHAINS",
    "FAN_OUT",
    "WORKLOADS",
    "Request",
    "Scale",
    "Workload",
    "chosen_workloads",
    "last_name",
]

_SYLLABLES = ("BAR", "OUGHT", "ABLE", "PRI", "PRES", "ESE", "ANTI", "CALLY", "ATION", "EING")
_NURAND_C = 223
BLOCK = 1000  # accounts of one workflow's workload


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    """How much data there is."""

    counters: int = 10_000
    users: int = 1_000
    followees: int = 50
    posts: int = 5_000
    hotels: int = 100
    items: int = 10_000
    persons: int = 100
    warehouses: int = 1
    customers: int = 300  # of each of the ten districts of a warehouse
    stock: int = 2_000  # TPC-C items

    def smaller(self, factor: int) -> Scale:
        """The same with fewer rows, for trying things out; the same for 1."""
        if factor == 1:
            return self
        return Scale(
            counters=self.counters // factor,
            users=max(100, self.users // factor),
            posts=self.posts // factor,
            items=self.items // factor,
            customers=max(30, self.customers // factor),
            stock=max(100, self.stock // factor),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One call: a function or workflow by its name, and its arguments by theirs."""

    target: str
    arguments: dict[str, Any]
    is_workflow: bool = False


Make = Callable[[int, random.Random, Scale], Request]


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """A kind of request, and what its requests leave in the tables.

    ``effects`` are queries of one number; a system that did the same work has the same numbers.
    """

    name: str
    title: str
    make: Make = field(repr=False)
    effects: Sequence[str]
    is_workflow: bool = False
    transactions: int = 1  # per request, at most

    def request(self, number: int, scale: Scale) -> Request:
        """The ``number``-th request."""
        return self.make(number, random.Random(f"{self.name}:{number}"), scale)


def _increment(_number: int, rng: random.Random, scale: Scale) -> Request:
    return Request(target="bench.increment", arguments={"key": rng.randrange(scale.counters)})


def _timeline(_number: int, rng: random.Random, scale: Scale) -> Request:
    return Request(target="retwis.timeline", arguments={"user_id": rng.randrange(scale.users)})


def _post(number: int, rng: random.Random, scale: Scale) -> Request:
    arguments = {
        "user_id": rng.randrange(scale.users),
        "post_id": scale.posts + number,
        "timestamp": scale.posts + number,
        "text": f"post {number}: " + "lorem ipsum " * 8,
    }
    return Request(target="retwis.post", arguments=arguments)


def _search_hotel(_number: int, rng: random.Random, _scale: Scale) -> Request:
    arguments = {"longitude": float(rng.randrange(90)), "latitude": float(rng.randrange(90))}
    return Request(target="hotel.search", arguments=arguments)


def _reserve(_number: int, rng: random.Random, scale: Scale) -> Request:
    arguments = {"hotel_id": rng.randrange(scale.hotels), "customer_id": rng.randrange(100)}
    return Request(target="hotel.reserve", arguments=arguments)


def _shop(_number: int, rng: random.Random, scale: Scale) -> Request:
    share = rng.random()
    person = rng.randrange(scale.persons)
    if share < 0.91:
        text = f"kind{rng.randrange(97)} colour{rng.randrange(11)}"
        arguments = {"person_id": person, "text": text, "max_cost": rng.randrange(1000, 2000)}
        return Request(target="shop.get_item", arguments=arguments)
    if share < 0.99:
        return Request(target="shop.checkout", arguments={"person_id": person})
    arguments = {"item_id": rng.randrange(scale.items), "cost": rng.randrange(900, 2000)}
    return Request(target="shop.set_price", arguments=arguments)


def nurand(rng: random.Random, a: int, low: int, high: int) -> int:
    """TPC-C 2.1.6: ((random(0, A) | random(x, y)) + C) % (y - x + 1) + x."""
    return ((rng.randint(0, a) | rng.randint(low, high)) + _NURAND_C) % (high - low + 1) + low


def last_name(number: int) -> str:
    """TPC-C 4.3.2.3: three syllables, one for each digit."""
    return "".join(_SYLLABLES[number // place % 10] for place in (100, 10, 1))


def _tpcc(number: int, rng: random.Random, scale: Scale) -> Request:
    return _new_order(rng, scale) if number % 2 else _payment(rng, scale)


def _new_order(rng: random.Random, scale: Scale) -> Request:
    w_id = rng.randint(1, scale.warehouses)
    count = rng.randint(5, 15)
    items = [nurand(rng, 8191, 1, scale.stock) for _ in range(count)]
    if rng.random() < 0.01:
        items[-1] = -12345
    others = [w for w in range(1, scale.warehouses + 1) if w != w_id]
    arguments = {
        "w_id": w_id,
        "d_id": rng.randint(1, 10),
        "c_id": nurand(rng, 1023, 1, scale.customers),
        "items": sorted(items),  # one order of locks for all
        "supply_w_ids": [
            rng.choice(others) if others and rng.random() < 0.01 else w_id for _ in range(count)
        ],
        "quantities": [rng.randint(1, 10) for _ in range(count)],
    }
    return Request(target="tpcc.new_order", arguments=arguments)


def _payment(rng: random.Random, scale: Scale) -> Request:
    w_id, d_id = rng.randint(1, scale.warehouses), rng.randint(1, 10)
    others = [w for w in range(1, scale.warehouses + 1) if w != w_id]
    away = bool(others) and rng.random() < 0.15
    by_name = rng.random() < 0.6
    arguments = {
        "w_id": w_id,
        "d_id": d_id,
        "c_w_id": rng.choice(others) if away else w_id,
        "c_d_id": rng.randint(1, 10) if away else d_id,
        "c_id": None if by_name else nurand(rng, 1023, 1, scale.customers),
        "last_name": last_name(nurand(rng, 255, 0, 999) % scale.customers) if by_name else None,
        "amount": rng.randint(100, 500_000),
    }
    return Request(target="tpcc.payment", arguments=arguments)


def _workflow(target: str, block: int) -> Make:
    def make(_number: int, rng: random.Random, _scale: Scale) -> Request:
        arguments = {"base": block * BLOCK, "start": rng.randrange(BLOCK)}
        return Request(target=target, arguments=arguments, is_workflow=True)

    return make


def _transfers(block: int) -> tuple[str, ...]:
    accounts = f"BETWEEN {block * BLOCK} AND {block * BLOCK + BLOCK - 1}"
    return (
        f"SELECT count(*) FROM bench.entry WHERE source {accounts}",
        f"SELECT sum(balance * account_id) FROM bench.account WHERE account_id {accounts}",
    )


_SHOP_EFFECTS = (
    "SELECT count(*) FROM shop.order_line",
    "SELECT coalesce(sum(cost), 0) FROM shop.transaction",
    "SELECT coalesce(sum(cost), 0) FROM shop.cart",
    "SELECT sum(inventory::bigint * (item_id + 1)) FROM shop.item",
)
_TPCC_EFFECTS = (
    "SELECT count(*) FROM tpcc.orders",
    "SELECT coalesce(sum(amount), 0) FROM tpcc.order_line",
    "SELECT sum(quantity::bigint * i_id) FROM tpcc.stock",
    "SELECT sum(balance * c_id) FROM tpcc.customer",
    "SELECT sum(w_ytd) FROM tpcc.warehouse",
)
_ALL = (
    Workload(
        name="increment",
        title="increment a counter",
        make=_increment,
        effects=("SELECT coalesce(sum(value * (key + 1)), 0) FROM bench.counter",),
    ),
    Workload(
        name="timeline",
        title="retwis timeline, 51 queries",
        make=_timeline,
        effects=("SELECT count(*) FROM retwis.post",),
    ),
    Workload(
        name="post",
        title="retwis post",
        make=_post,
        effects=("SELECT sum(user_id::bigint * post_id) FROM retwis.post",),
    ),
    Workload(
        name="search",
        title="hotel search, 7 queries",
        make=_search_hotel,
        effects=("SELECT count(*) FROM hotel.hotel",),
    ),
    Workload(
        name="reserve",
        title="hotel reserve",
        make=_reserve,
        effects=(
            "SELECT count(*) FROM hotel.reservation",
            "SELECT sum(available_rooms::bigint * (hotel_id + 1)) FROM hotel.hotel",
        ),
    ),
    Workload(name="shop", title="shop, mixed", make=_shop, effects=_SHOP_EFFECTS),
    Workload(name="tpcc", title="TPC-C NewOrder and Payment", make=_tpcc, effects=_TPCC_EFFECTS),
    Workload(
        name="workflow-1",
        title="workflow of 1 function",
        make=_workflow("bench.one", 0),
        effects=_transfers(0),
        is_workflow=True,
    ),
    Workload(
        name="workflow-5",
        title="workflow of 5 functions",
        make=_workflow("bench.five", 1),
        effects=_transfers(1),
        is_workflow=True,
        transactions=5,
    ),
    Workload(
        name="workflow-20",
        title="workflow of 20 functions",
        make=_workflow("bench.twenty", 2),
        effects=_transfers(2),
        is_workflow=True,
        transactions=20,
    ),
    Workload(
        name="fan-out-50",
        title="fan-out of 50 functions",
        make=_workflow("bench.fan_out", 3),
        effects=_transfers(3),
        is_workflow=True,
        transactions=50,
    ),
    Workload(
        name="mixed",
        title="2 functions around an external step",
        make=_workflow("bench.mixed", 4),
        effects=_transfers(4),
        is_workflow=True,
        transactions=2,
    ),
)
ACCOUNTS = 5 * BLOCK
# How many transfers, one after another, and side by side.
FAN_OUT = 50
CHAINS: Mapping[str, int] = {"bench.one": 1, "bench.five": 5, "bench.twenty": 20}
WORKLOADS: Mapping[str, Workload] = {workload.name: workload for workload in _ALL}


def chosen_workloads(names: Sequence[str]) -> list[Workload]:
    """The workloads of these names, all for none. BadArgument names an unknown one."""
    unknown = sorted(set(names) - set(WORKLOADS))
    if unknown:
        raise BadArgument(
            f"unknown workload {unknown[0]!r}",
            hint=f"there are {', '.join(WORKLOADS)}",
            path="workload",
        )
    return [workload for workload in _ALL if not names or workload.name in names]
