"""The command that installs PostgreSQL with PL/Python on this platform."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

# The version that each release's own packages bring, for when apt's lists are empty.
_DEBIAN_VERSIONS = {"12": 15, "13": 17, "22.04": 14, "24.04": 16, "26.04": 18}
_FALLBACK_VERSION = 17


def install_command(version_major: int | None, bin_dir: Path | None = None) -> str:
    """A shell command that adds PL/Python to the installed version, or that installs both.

    ``bin_dir`` tells the PGDG packages for RHEL (``/usr/pgsql-NN``) from the distribution's own.
    """
    if shutil.which("apt-get"):
        version = version_major or _debian_version()
        return f"{_sudo()}apt-get install -y postgresql postgresql-plpython3-{version}"
    if shutil.which("dnf"):
        if bin_dir is not None and "pgsql-" in str(bin_dir):
            return f"{_sudo()}dnf install -y postgresql{version_major}-plpython3"
        return f"{_sudo()}dnf install -y postgresql-server postgresql-plpython3"
    if shutil.which("brew"):
        # The core formulae are built without Python; this tap's are built with it.
        return f"brew install petere/postgresql/postgresql@{version_major or _FALLBACK_VERSION}"
    return "install PostgreSQL's server and its PL/Python (plpython3u) package"


def _sudo() -> str:
    return "" if os.geteuid() == 0 else "sudo "


def _debian_version() -> int:
    """The major version that apt would install for ``postgresql``."""
    if shutil.which("apt-cache"):
        answer = subprocess.run(
            ["apt-cache", "policy", "postgresql"],
            capture_output=True,
            text=True,
            check=False,
            env={**os.environ, "LC_ALL": "C"},
        )
        candidate = re.search(r"Candidate: (\d+)", answer.stdout)
        if candidate:
            return int(candidate.group(1))
    release = Path("/etc/os-release")
    text = release.read_text(encoding="utf-8") if release.is_file() else ""
    version_id = re.search(r'^VERSION_ID="?([\d.]+)', text, re.MULTILINE)
    return _DEBIAN_VERSIONS.get(version_id.group(1) if version_id else "", _FALLBACK_VERSION)
