"""What all tests share."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

# Where the package is installed, the plugin is registered under this very name already, and pytest
# leaves it at that.
pytest_plugins = ["apiary.testing"]

REPOSITORY = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="session")
def spec_data() -> Path:
    """Reference data that is kept beside the repository, not in it; skips where it is absent."""
    chosen = os.environ.get("APIARY_SPEC_DATA")
    folder = Path(chosen) if chosen else REPOSITORY.parent / "shared" / "specs" / "data"
    if not folder.is_dir():
        pytest.skip(f"no reference data: {folder} does not exist (set APIARY_SPEC_DATA)")
    return folder
