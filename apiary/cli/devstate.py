"""The state file of a running `apiary dev`, by which other commands find it.

It holds no secret: the database URL names a password file that only its owner may read.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

__all__ = ["STATE_FOLDER", "DevRecord", "running_dev"]

STATE_FOLDER = ".apiary"
_FILE = "dev.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class DevRecord:
    """What an `apiary dev` says of itself."""

    file: Path
    process: dict[str, Any]  # pid and start, as `ProcessMark` writes them
    address: str
    database_url: str  # the deployer's
    runtime_url: str  # the servers' and executors'
    reader_url: str
    postgres_log: str | None  # None when the PostgreSQL is not ours

    def write(self) -> None:
        """Replace the file."""
        from ..local.layout import write_record

        write_record(self.file, {**asdict(self), "file": str(self.file)})

    def remove(self) -> None:
        """Remove the file: nothing runs any more."""
        self.file.unlink(missing_ok=True)

    @staticmethod
    def path(folder: Path) -> Path:
        """Where the file of a folder is."""
        return folder / STATE_FOLDER / _FILE


def running_dev(folder: Path) -> DevRecord | None:
    """The `apiary dev` that runs in ``folder`` or in one above it; a dead one does not count."""
    for candidate in (folder, *folder.parents):
        file = DevRecord.path(candidate)
        if file.is_file():
            return _alive(file)
    return None


def _alive(file: Path) -> DevRecord | None:
    from ..local.processes import ProcessMark

    document = json.loads(file.read_text(encoding="utf-8"))
    if not ProcessMark.from_json(document["process"]).alive():
        return None
    return DevRecord(**{**document, "file": file})
