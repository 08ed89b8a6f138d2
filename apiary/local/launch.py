"""Become an unprivileged process that dies with its parent, then execute a program.

Run as a file by `apiary.local.postmaster`, never imported: it works before the privileges are
dropped, so it must not load anything but the standard library. A program of its own rather than a
``preexec_fn``, because code between fork and exec may deadlock in a process that has threads.

Arguments: the expected parent's pid, then ``uid:gid:group,group...`` or ``-`` (stay as is), then
the program and its arguments.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1  # <linux/prctl.h>


def become(identity: str) -> None:
    """Drop to ``uid:gid:groups``; groups first, while that is still allowed."""
    uid, gid, groups = identity.split(":")
    os.setgroups([int(group) for group in groups.split(",") if group])
    os.setgid(int(gid))
    os.setuid(int(uid))


def die_with(parent_pid: int) -> None:
    """Ask Linux for SIGINT at the parent's death (a fast shutdown for a postmaster).

    Must come after `become`: the kernel forgets the request when credentials change.
    """
    if not sys.platform.startswith("linux"):
        return
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(PR_SET_PDEATHSIG, signal.SIGINT, 0, 0, 0) != 0:
        error = ctypes.get_errno()
        raise OSError(error, f"prctl(PR_SET_PDEATHSIG): {os.strerror(error)}")
    if os.getppid() != parent_pid:
        raise SystemExit("the parent process ended before the postmaster was started")


def main() -> None:
    parent_pid, identity, program, *arguments = sys.argv[1:]
    if identity != "-":
        become(identity)
    die_with(int(parent_pid))
    os.execv(program, [program, *arguments])


if __name__ == "__main__":
    main()
