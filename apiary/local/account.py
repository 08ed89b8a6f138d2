"""The operating-system account under which a private PostgreSQL runs.

PostgreSQL refuses to run as root. A plain user runs it as himself; root runs it as ``postgres``,
or as ``nobody`` where there is no such account.
"""

from __future__ import annotations

import os
import pwd
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from apiary.errors import ConfigurationError


@dataclass(frozen=True, kw_only=True)
class Account:
    """An account; ``switch`` says whether this process must change into it."""

    name: str
    uid: int
    gid: int
    groups: tuple[int, ...]
    switch: bool

    @property
    def identity(self) -> str:
        """The argument of `launch.py`."""
        if not self.switch:
            return "-"
        return f"{self.uid}:{self.gid}:{','.join(map(str, self.groups))}"

    @property
    def popen_options(self) -> dict[str, Any]:
        """What makes `subprocess` run a program under this account."""
        if not self.switch:
            return {}
        return {"user": self.uid, "group": self.gid, "extra_groups": list(self.groups)}

    def own(self, path: Path) -> None:
        """Give a file or directory to the account."""
        if self.switch:
            os.chown(path, self.uid, self.gid)

    def can_enter(self, directory: Path) -> bool:
        """Whether the account can change into the directory. Tried, not computed from mode bits:
        access lists, mount options and security modules have a say too.
        """
        attempt = subprocess.run(
            ["/bin/sh", "-c", 'cd -- "$1"', "sh", str(directory)],
            cwd="/",
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=False,
            **self.popen_options,
        )
        return attempt.returncode == 0

    def first_closed(self, directory: Path) -> Path | None:
        """The outermost directory of a path that the account cannot enter."""
        for ancestor in [*reversed(directory.parents), directory]:
            if not self.can_enter(ancestor):
                return ancestor
        return None


def server_account() -> Account:
    """The account for the server started by this process."""
    uid = os.geteuid()
    if uid != 0:
        return Account(
            name=_name_of(uid),
            uid=uid,
            gid=os.getegid(),
            groups=tuple(os.getgroups()),
            switch=False,
        )
    for name in ("postgres", "nobody"):
        try:
            entry = pwd.getpwnam(name)
        except KeyError:
            continue
        groups = tuple(os.getgrouplist(name, entry.pw_gid))
        return Account(name=name, uid=entry.pw_uid, gid=entry.pw_gid, groups=groups, switch=True)
    raise ConfigurationError(
        "PostgreSQL does not run as root, and there is neither an account 'postgres' nor 'nobody'",
        hint="Create one (useradd --system postgres), or run as an ordinary user.",
    )


def _name_of(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:  # a container's arbitrary uid has no entry
        return str(uid)
