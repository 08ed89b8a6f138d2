"""Lengths of time on the command line: ``90``, ``90s``, ``5m``, ``1h``, ``2d``."""

from __future__ import annotations

import re

import typer

__all__ = ["seconds"]

_FORM = re.compile(r"(\d+(?:\.\d+)?)([smhd]?)")
_UNITS_S = {"": 1.0, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


def seconds(text: str, option: str) -> float:
    """The seconds of a text; BadParameter names the option."""
    match = _FORM.fullmatch(text.strip())
    if match is None:
        raise typer.BadParameter(
            f"{text!r} is no length of time; write it as in 90s, 5m, 1h or 2d", param_hint=option
        )
    return float(match.group(1)) * _UNITS_S[match.group(2)]
