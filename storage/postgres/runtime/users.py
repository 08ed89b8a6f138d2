"""Running the platform's own statements as its owner inside a procedure that runs as somebody else.

A procedure that commits cannot be SECURITY DEFINER. What it calls can be, but each such call is a
statement of its own with all its parameters, which took a tenth of a function in a workflow. So a
workflow's procedure does here what PostgreSQL does when it enters a SECURITY DEFINER function.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any, TypeVar

T = TypeVar("T")

_backend = ctypes.PyDLL(None)
_get_user = _backend.GetUserIdAndSecContext
_get_user.restype = None
_set_user = _backend.SetUserIdAndSecContext
_set_user.restype = None
_set_user.argtypes = [ctypes.c_uint, ctypes.c_int]
_LOCAL_USERID_CHANGE = 1  # SECURITY_LOCAL_USERID_CHANGE of miscadmin.h: no SET ROLE meanwhile


def as_user(user: int, work: Callable[..., T], *args: Any) -> T:
    """Call ``work`` as another user, given by the role's oid; it may neither commit nor roll back.

    A transaction that aborts meanwhile puts the user back by itself.
    """
    before, context = ctypes.c_uint(), ctypes.c_int()
    _get_user(ctypes.byref(before), ctypes.byref(context))
    try:
        _set_user(user, context.value | _LOCAL_USERID_CHANGE)
        return work(*args)
    finally:
        _set_user(before.value, context.value)
