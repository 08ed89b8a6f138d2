"""`python -m apiary.cli` is `apiary`."""

from apiary.cli import main

main()
