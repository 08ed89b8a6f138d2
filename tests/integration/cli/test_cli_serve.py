"""`apiary serve` for a database that exists: least rights, tokens, a clean end."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

from apiary.testing import TestServer

from .conftest import apiary, environment


def test_a_server_takes_known_tokens_only_and_ends_cleanly(login_url: str, tmp_path: Path) -> None:
    tokens = tmp_path / "tokens"
    tokens.write_text("sesame ada invoke\n")
    process = subprocess.Popen(
        [
            *(sys.executable, "-m", "apiary.cli", "serve"),
            *("--listen", "127.0.0.1:0", "--token-file", str(tokens)),
        ],
        env=environment(APIARY_DATABASE_URL=login_url),
        stdin=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stderr is not None
        said = process.stderr.readline()
        assert said.startswith("serving on 127.0.0.1:"), said + process.stderr.read()
        address = said.split()[-1]
        command = ("call", "guestbook.latest", "--server", address)
        assert apiary(tmp_path, *command).returncode == 5
        assert apiary(tmp_path, *command, APIARY_TOKEN="wrong").returncode == 5
        good = apiary(tmp_path, *command, APIARY_TOKEN="sesame")
        assert (good.returncode, good.stdout) == (0, "[]\n"), good.stderr
        # ada's token may call, and nothing else; and this server has no login that may deploy.
        asked = apiary(tmp_path, "sql", "SELECT 1", "--server", address, APIARY_TOKEN="sesame")
        assert asked.returncode == 5
        healthy = apiary(tmp_path, "doctor", "--only", "server", "--server", address)
        assert healthy.returncode == 0, healthy.stdout
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0, process.stderr.read()
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()


def test_a_database_without_the_platform_is_refused(
    apiary_server: TestServer, tmp_path: Path
) -> None:
    name = apiary_server.create_empty_database()
    try:
        done = apiary(
            tmp_path, "serve", "--listen", "127.0.0.1:0",
            APIARY_DATABASE_URL=apiary_server.url(name),
        )  # fmt: skip
        assert done.returncode == 78, done.stderr
        assert "apiary migrate" in done.stderr
    finally:
        apiary_server.drop_database(name)
