"""NewOrder and Payment, inside the database, by hand."""

from __future__ import annotations

from apiary.testing import Platform
from functions import tpcc


def load(app: Platform) -> None:
    """One district, four customers (three of one name), two items."""
    for statement in (
        "INSERT INTO tpcc.warehouse VALUES (1, 1000, 0)",  # 10 % tax
        "INSERT INTO tpcc.district VALUES (1, 1, 500, 0, 3001)",  # 5 % tax
        "INSERT INTO tpcc.customer VALUES"
        " (1, 1, 1, 'Cid', 'BAR', 1000, -1000, 1), (1, 1, 2, 'Ann', 'BAR', 0, -1000, 1),"
        " (1, 1, 3, 'Bob', 'BAR', 0, -1000, 1), (1, 1, 4, 'Dan', 'ABLE', 0, -1000, 1)",
        "INSERT INTO tpcc.item VALUES (1, 100), (2, 50)",
        "INSERT INTO tpcc.stock VALUES (1, 1, 12, 0, 0, 0), (1, 2, 11, 0, 0, 0)",
    ):
        app.query(statement)


def order(app: Platform, items: list[int]) -> int:
    """Customer 1 orders two of the first item and three of the second."""
    result: int = app.call(
        tpcc.new_order,
        w_id=1,
        d_id=1,
        c_id=1,
        items=items,
        supply_w_ids=[1, 1],
        quantities=[2, 3],
    )
    return result


def test_an_order_is_priced_and_taken_from_stock(apiary_app: Platform) -> None:
    load(apiary_app)
    # 2 x 100 + 3 x 50 = 350; less 10 % discount, and 15 % tax: 362.25
    assert order(apiary_app, [1, 2]) == 362
    # 12 - 2 leaves ten, which is enough; 11 - 3 leaves eight, which is filled up by 91.
    assert apiary_app.query("SELECT quantity, ytd, orders FROM tpcc.stock ORDER BY i_id") == [
        {"quantity": 10, "ytd": 2, "orders": 1},
        {"quantity": 99, "ytd": 3, "orders": 1},
    ]
    assert apiary_app.query("SELECT o_id, lines FROM tpcc.orders") == [{"o_id": 3001, "lines": 2}]
    assert apiary_app.query("SELECT next_o_id FROM tpcc.district") == [{"next_o_id": 3002}]
    assert apiary_app.query("SELECT amount FROM tpcc.order_line ORDER BY number") == [
        {"amount": 200},
        {"amount": 150},
    ]


def test_an_unknown_item_leaves_nothing_behind(apiary_app: Platform) -> None:
    load(apiary_app)
    assert order(apiary_app, [-12345, 2]) == tpcc.REFUSED
    assert apiary_app.query("SELECT next_o_id FROM tpcc.district") == [{"next_o_id": 3001}]
    assert apiary_app.query("SELECT 1 FROM tpcc.orders") == []


def test_a_payment_by_name_goes_to_the_one_in_the_middle(apiary_app: Platform) -> None:
    load(apiary_app)
    balance = apiary_app.call(
        tpcc.payment,
        w_id=1,
        d_id=1,
        c_w_id=1,
        c_d_id=1,
        c_id=None,
        last_name="BAR",
        amount=500,
    )
    assert balance == -1500
    paid = apiary_app.query("SELECT first_name FROM tpcc.customer WHERE payments = 2")
    assert paid == [{"first_name": "Bob"}]  # of Ann, Bob, Cid
    assert apiary_app.query("SELECT w_ytd FROM tpcc.warehouse") == [{"w_ytd": 500}]
    assert apiary_app.query("SELECT c_id, amount FROM tpcc.history") == [{"c_id": 3, "amount": 500}]
