"""Trips: functions of the hotel domain, composed. The smallest workflows of each kind.

`book` calls functions only, so it runs inside the database. `book_and_confirm` also makes a
confirmation outside, in a step, and so runs in an executor.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

import apiary
from apiary import ApplicationError, step, workflow
from functions import hotel


class NoRoom(ApplicationError):
    """No hotel within reach has a room."""

    code = "NO_ROOM"


@dataclass(frozen=True)
class Booking:
    """A room that was taken."""

    hotel_id: int
    hotel_name: str
    customer_id: int


@dataclass(frozen=True)
class Confirmation:
    """A booking with its letter."""

    booking: Booking
    reference: str
    letter: str


@workflow
def book(customer_id: int, longitude: float, latitude: float) -> Booking:
    """Take a room in the nearest hotel that still has one when it comes to it."""
    for hit in hotel.search(longitude, latitude):
        if hotel.reserve(hit.hotel_id, customer_id) == hotel.RESERVED:
            return Booking(hit.hotel_id, hit.hotel_name, customer_id)
    raise NoRoom(f"no hotel near {latitude:g}, {longitude:g} has a room")


@step(retries=3)
def confirmation(booking: Booking, booked_at: datetime) -> Confirmation:
    """Write the letter; its reference is the step's key, the same in every attempt."""
    reference = apiary.step_key()
    letter = (
        f"Customer {booking.customer_id}: a room in the {booking.hotel_name} is yours.\n"
        f"Booked {booked_at:%Y-%m-%d %H:%M} UTC, reference {reference}."
    )
    return Confirmation(booking, reference, letter)


@workflow
def book_and_confirm(customer_id: int, longitude: float, latitude: float) -> Confirmation:
    """Book a room, in a run of its own, and confirm it."""
    booking = book(customer_id, longitude, latitude)
    return confirmation(booking, apiary.now())
