"""Who runs the postmaster of a data directory, and ending one whose owner is dead.

The owner records itself and its postmaster in the state file. With that, a postmaster that is
found running is told apart: its owner lives (hands off), its owner was killed (stop it), or its
pid now belongs to an unrelated process (the lock file is stale).
"""

from __future__ import annotations

import os
import signal
from pathlib import Path

from apiary.errors import ConflictError, UnavailableError
from apiary.local.layout import Layout, read_record, write_record
from apiary.local.processes import ProcessMark, working_in

_FAST_TIMEOUT_S = 30.0
_IMMEDIATE_TIMEOUT_S = 10.0


def record_owner(layout: Layout, *, postmaster_pid: int, port: int) -> None:
    """Write that this process owns the running postmaster."""
    mark = ProcessMark.of(postmaster_pid)
    write_record(
        layout.state,
        {
            "owner": ProcessMark.of_self().to_json(),
            "postmaster": None if mark is None else mark.to_json(),
            "port": port,
        },
    )


def last_port(layout: Layout) -> int | None:
    """The port of the last run, for using it again."""
    state = read_record(layout.state)
    return None if state is None else int(state["port"])


def end_orphan(layout: Layout) -> None:
    """Make sure that no postmaster runs on the data.

    Raises ConflictError when one runs whose owner lives, or that nobody here started.
    """
    pid = _locked_by(layout.data)
    postmaster = None if pid is None else ProcessMark.of(pid)
    if postmaster is None:
        return  # PostgreSQL itself clears away the lock file of a dead process
    state = read_record(layout.state) or {}
    if not _serves(postmaster, layout.data, state.get("postmaster")):
        if not working_in(layout.data):
            (layout.data / "postmaster.pid").unlink(missing_ok=True)
        return
    owner = ProcessMark.from_json(state["owner"]) if "owner" in state else None
    if owner is None or owner.alive():
        started_by = "something else" if owner is None else f"process {owner.pid}"
        raise ConflictError(
            f"a PostgreSQL server (pid {postmaster.pid}), started by {started_by}, already runs "
            f"on {layout.data}",
            hint="Use that one, stop it, or choose another directory.",
            pid=postmaster.pid,
            owner_pid=None if owner is None else owner.pid,
        )
    _stop(postmaster)


def _locked_by(data: Path) -> int | None:
    try:
        lines = (data / "postmaster.pid").read_text(encoding="utf-8").splitlines()
    except FileNotFoundError:
        return None
    # A postmaster started by single-user mode writes a negative number.
    return abs(int(lines[0])) if lines and lines[0].strip("-").isdecimal() else None


def _serves(process: ProcessMark, data: Path, recorded: dict[str, object] | None) -> bool:
    if recorded is not None and ProcessMark.from_json(recorded) == process:
        return True
    pids = working_in(data)
    # Where working directories are not told, a living pid in the lock file counts as serving.
    return pids is None or process.pid in pids


def _stop(postmaster: ProcessMark) -> None:
    for number, timeout_s in (
        (signal.SIGINT, _FAST_TIMEOUT_S),
        (signal.SIGQUIT, _IMMEDIATE_TIMEOUT_S),
        (signal.SIGKILL, _IMMEDIATE_TIMEOUT_S),
    ):
        if not postmaster.alive():
            return
        os.kill(postmaster.pid, number)
        if postmaster.wait(timeout_s):
            return
    raise UnavailableError(
        f"the PostgreSQL server left by a dead process (pid {postmaster.pid}) does not end",
        hint="Its process is stuck in the operating system; see its state with ps.",
        pid=postmaster.pid,
    )
