"""TPC-C's NewOrder and Payment, statement by statement as an application would send them.

Money is in cents; tax and discount are in basis points. An order with an unknown item is refused
before it writes anything, which leaves what TPC-C's roll-back leaves.
"""

from __future__ import annotations

from apiary import Database, function

REFUSED = -1
LOW_STOCK = 10
REFILL = 91


@function
def new_order(
    db: Database,
    w_id: int,
    d_id: int,
    c_id: int,
    items: list[int],
    supply_w_ids: list[int],
    quantities: list[int],
) -> int:
    """Order items; return the total in cents, or -1 when there is no such item."""
    prices: list[int] = []
    for item in items:
        price = db.value("SELECT price FROM tpcc.item WHERE i_id = $1", item)
        if price is None:
            return REFUSED
        prices.append(price)
    w_tax: int = db.value("SELECT w_tax FROM tpcc.warehouse WHERE w_id = $1", w_id)
    district = db.one(
        "UPDATE tpcc.district SET next_o_id = next_o_id + 1 WHERE w_id = $1 AND d_id = $2"
        " RETURNING d_tax, next_o_id - 1 AS o_id",
        w_id,
        d_id,
    )
    discount: int = db.value(
        "SELECT discount FROM tpcc.customer WHERE w_id = $1 AND d_id = $2 AND c_id = $3",
        w_id,
        d_id,
        c_id,
    )
    order = (w_id, d_id, district.o_id)
    db.execute(
        "INSERT INTO tpcc.orders (w_id, d_id, o_id, c_id, lines) VALUES ($1, $2, $3, $4, $5)",
        *order,
        c_id,
        len(items),
    )
    db.execute("INSERT INTO tpcc.new_order (w_id, d_id, o_id) VALUES ($1, $2, $3)", *order)
    total = 0
    lines = zip(items, supply_w_ids, quantities, prices, strict=True)
    for number, (item, supply_w_id, quantity, price) in enumerate(lines, 1):
        _take_from_stock(db, supply_w_id, item, quantity, remote=supply_w_id != w_id)
        amount = quantity * price
        total += amount
        db.execute(
            "INSERT INTO tpcc.order_line"
            " (w_id, d_id, o_id, number, i_id, supply_w_id, quantity, amount)"
            " VALUES ($1, $2, $3, $4, $5, $6, $7, $8)",
            *order,
            number,
            item,
            supply_w_id,
            quantity,
            amount,
        )
    return total * (10_000 - discount) * (10_000 + w_tax + district.d_tax) // 100_000_000


def _take_from_stock(db: Database, w_id: int, i_id: int, quantity: int, *, remote: bool) -> None:
    left: int = db.value(
        "SELECT quantity FROM tpcc.stock WHERE w_id = $1 AND i_id = $2", w_id, i_id
    )
    left = left - quantity if left - quantity >= LOW_STOCK else left - quantity + REFILL
    db.execute(
        "UPDATE tpcc.stock SET quantity = $3, ytd = ytd + $4, orders = orders + 1,"
        " remote = remote + $5 WHERE w_id = $1 AND i_id = $2",
        w_id,
        i_id,
        left,
        quantity,
        int(remote),
    )


@function
def payment(
    db: Database,
    w_id: int,
    d_id: int,
    c_w_id: int,
    c_d_id: int,
    c_id: int | None,
    last_name: str | None,
    amount: int,
) -> int:
    """Pay an amount in cents, by number or by last name; return the customer's new balance."""
    db.execute("UPDATE tpcc.warehouse SET w_ytd = w_ytd + $2 WHERE w_id = $1", w_id, amount)
    db.execute(
        "UPDATE tpcc.district SET d_ytd = d_ytd + $3 WHERE w_id = $1 AND d_id = $2",
        w_id,
        d_id,
        amount,
    )
    if c_id is None:
        # TPC-C 2.5.2.2: the one in the middle, rounded up, by first name.
        found: list[int] = db.values(
            "SELECT c_id FROM tpcc.customer WHERE w_id = $1 AND d_id = $2 AND last_name = $3"
            " ORDER BY first_name, c_id",
            c_w_id,
            c_d_id,
            last_name,
        )
        c_id = found[(len(found) + 1) // 2 - 1]
    balance: int = db.value(
        "UPDATE tpcc.customer SET balance = balance - $4, payments = payments + 1"
        " WHERE w_id = $1 AND d_id = $2 AND c_id = $3 RETURNING balance",
        c_w_id,
        c_d_id,
        c_id,
        amount,
    )
    db.execute(
        "INSERT INTO tpcc.history (w_id, d_id, c_w_id, c_d_id, c_id, amount)"
        " VALUES ($1, $2, $3, $4, $5, $6)",
        w_id,
        d_id,
        c_w_id,
        c_d_id,
        c_id,
        amount,
    )
    return balance
