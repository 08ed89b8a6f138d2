"""How values look as text inside a function: the same in every session.

PL/Python gets dates, times and intervals as text, in the session's formats and time zone. The
platform's own connections are opened with the formats that are wanted here; any other session gets
them for as long as a function runs. (A SET clause on the entry function would do that, too, at
twice the price of entering it.)
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager

import plpy  # type: ignore[import-not-found]

_WANTED = {"datestyle": "ISO, YMD", "intervalstyle": "iso_8601", "timezone": "UTC"}

_backend = ctypes.PyDLL(None)
_date_style = ctypes.c_int.in_dll(_backend, "DateStyle")
_interval_style = ctypes.c_int.in_dll(_backend, "IntervalStyle")
_time_zone = ctypes.c_void_p.in_dll(_backend, "session_timezone")
_zone_name = _backend.pg_get_timezone_name
_zone_name.restype = ctypes.c_char_p
_zone_name.argtypes = [ctypes.c_void_p]
_USE_ISO_DATES, _INTSTYLE_ISO_8601 = 1, 3  # of miscadmin.h


def are_wanted() -> bool:
    """Whether the session has the formats that functions want."""
    return (
        _date_style.value == _USE_ISO_DATES
        and _interval_style.value == _INTSTYLE_ISO_8601
        and _zone_name(_time_zone.value) == b"UTC"
    )


@contextmanager
def wanted() -> Iterator[None]:
    """Give the session the formats that functions want, and put its own back."""
    own = {
        name: plpy.execute(f"SELECT pg_catalog.current_setting('{name}') AS v")[0]["v"]
        for name in _WANTED
    }
    _set(_WANTED)
    try:
        yield
    finally:
        _set(own)


def _set(settings: dict[str, str]) -> None:
    for name, value in settings.items():
        plpy.execute(f"SELECT pg_catalog.set_config('{name}', {plpy.quote_literal(value)}, true)")
