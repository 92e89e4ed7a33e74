"""An error for a person: what happened, why, and what to do, on the terminal's second channel."""

from __future__ import annotations

from penstock.cli.terminal.terminal_text import terminal_text
from penstock.errors import PenstockError

__all__ = ["explain"]


def explain(error: PenstockError) -> None:
    from rich.console import Console

    console = Console(stderr=True, emoji=False, highlight=False, soft_wrap=True)
    console.print(f"[bold red]{type(error).__name__}[/]: ", end="")
    console.print(terminal_text(error.what), markup=False)
    if error.why:
        console.print(f"  why:    {terminal_text(error.why)}", markup=False)
    if error.remedy:
        console.print(f"  remedy: {terminal_text(error.remedy)}", markup=False)
