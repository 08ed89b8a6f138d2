"""What a session has to be like for a function: the same in every one.

PL/Python gets dates, times and intervals as text, in the session's formats and time zone, and
names are looked up along its search_path. The platform's own connections are opened as is wanted
here; any other session is made so for as long as a function runs. (A SET clause on the entry
function would do that, too, but from then on PostgreSQL goes through all its settings whenever a
statement of the transaction ends.)
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager

import plpy  # type: ignore[import-not-found]

_WANTED = {
    "search_path": "pg_catalog, pg_temp",
    "datestyle": "ISO, YMD",
    "intervalstyle": "iso_8601",
    "timezone": "UTC",
}

_backend = ctypes.PyDLL(None)
_search_path = ctypes.c_char_p.in_dll(_backend, "namespace_search_path")
_date_style = ctypes.c_int.in_dll(_backend, "DateStyle")
_interval_style = ctypes.c_int.in_dll(_backend, "IntervalStyle")
_time_zone = ctypes.c_void_p.in_dll(_backend, "session_timezone")
_zone_name = _backend.pg_get_timezone_name
_zone_name.restype = ctypes.c_char_p
_zone_name.argtypes = [ctypes.c_void_p]
_SEARCH_PATH = _WANTED["search_path"].encode()
_USE_ISO_DATES, _INTSTYLE_ISO_8601 = 1, 3  # of miscadmin.h


def is_wanted() -> bool:
    """Whether the session is as functions want it."""
    return (
        _search_path.value == _SEARCH_PATH
        and _date_style.value == _USE_ISO_DATES
        and _interval_style.value == _INTSTYLE_ISO_8601
        and _zone_name(_time_zone.value) == b"UTC"
    )


@contextmanager
def wanted() -> Iterator[None]:
    """Make the session as functions want it, and put its own settings back."""
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
