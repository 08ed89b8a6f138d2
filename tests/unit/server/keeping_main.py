"""A process that keeps an address for others, as `apiary serve --processes` does.

It reads a line with an address and says ``kept ADDRESS`` or ``refused ADDRESS``; at the next line,
which is empty, it lets go and says ``free``.
"""

from __future__ import annotations

import sys

from apiary.errors import ConfigurationError
from apiary.server.addresses import shared_address


def main() -> None:
    """One address after another, until the input ends."""
    for line in sys.stdin:
        address = line.strip()
        try:
            with shared_address(address) as kept:
                print("kept", kept, flush=True)
                sys.stdin.readline()
        except ConfigurationError:
            print("refused", address, flush=True)
            sys.stdin.readline()
        print("free", flush=True)


if __name__ == "__main__":
    main()
