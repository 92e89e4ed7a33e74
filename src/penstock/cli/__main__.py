"""Lets `python -m penstock.cli` serve where the `penstock` script is not on PATH."""

from penstock.cli.main import main

main()
