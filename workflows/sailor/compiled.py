"""Where loops over numbers are compiled, and where they are interpreted.

The simulator also runs inside the database process, which has only the standard library and must
not compile. There the same functions are interpreted, on lists instead of arrays; they compute the
same numbers in the same order.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib.util import find_spec
from typing import Final, TypeVar, cast

COMPILED: Final = "plpy" not in sys.modules and find_spec("numba") is not None
"""whether kernels are compiled in this process"""

Kernel = TypeVar("Kernel", bound=Callable[..., object])


def compiled(body: Kernel) -> Kernel:
    """The function, compiled by numba if this process compiles.

    The result is kept on disk only for a module that is a file: code of a deployment has none.
    """
    if not COMPILED:
        return body
    from numba import njit  # noqa: PLC0415 - not where nothing is compiled

    spec = body.__globals__.get("__spec__")
    return cast("Kernel", njit(cache=spec is not None and spec.has_location)(body))
