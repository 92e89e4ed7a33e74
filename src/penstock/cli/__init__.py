"""The command line of Penstock."""

from penstock.cli.main import main, penstock

__all__ = ["main", "penstock"]
