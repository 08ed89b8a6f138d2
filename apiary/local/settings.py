"""The server settings of a private cluster."""

from __future__ import annotations

import re
from collections.abc import Mapping

from apiary.errors import BadArgument
from apiary.local.binaries import Installation

DEFAULT_SETTINGS: Mapping[str, str] = {
    "shared_buffers": "256MB",
    "max_connections": "100",
    "autovacuum": "on",
    "timezone": "UTC",
    "log_timezone": "UTC",
    "log_destination": "stderr",
    "logging_collector": "off",
    "log_line_prefix": "%m [%p] %q%u@%d ",
}
_OWN_SETTINGS = frozenset({"listen_addresses", "port", "unix_socket_directories", "lc_messages"})
_SETTING_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.]*")
_OFF = frozenset({"off", "false", "no", "0"})


def checked(settings: Mapping[str, str]) -> dict[str, str]:
    """The caller's settings with names in lower case. Raises BadArgument for a name that is none,
    or that the cluster decides itself.
    """
    for name in settings:
        if not _SETTING_NAME.fullmatch(name):
            raise BadArgument(f"{name!r} is not a server setting's name", path="settings")
        if name.lower() in _OWN_SETTINGS:
            raise BadArgument(
                f"the setting {name!r} is decided by the cluster itself",
                hint="Use the port argument for a port." if name.lower() == "port" else None,
                path="settings",
            )
    return {name.lower(): str(value) for name, value in settings.items()}


def effective(installation: Installation, settings: Mapping[str, str]) -> dict[str, str]:
    """The defaults for an installation, overridden by the caller's settings."""
    preloads = {}
    if installation.has_library("pg_stat_statements"):
        preloads["shared_preload_libraries"] = "pg_stat_statements"
    return {**DEFAULT_SETTINGS, **preloads, **settings}


def is_durable(settings: Mapping[str, str]) -> bool:
    """Whether the caller wants the data to survive a crash of the machine."""
    return settings.get("fsync", "on").lower() not in _OFF
