"""`python -m invgp` is the command line."""

from invgp.cli import main

main()
