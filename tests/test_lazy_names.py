"""Public lists whose modules load when a name of theirs is first asked for."""

from __future__ import annotations

import subprocess
import sys

import pytest

from penstock.lazy_names import lazy_names


def test_a_name_is_the_one_of_the_module_that_defines_it() -> None:
    load = lazy_names("email", {"message": ("EmailMessage", "Message"), "mime.text": ("MIMEText",)})
    from email.message import EmailMessage
    from email.mime.text import MIMEText

    assert load("EmailMessage") is EmailMessage
    assert load("MIMEText") is MIMEText


@pytest.mark.parametrize("name", ["message", "missing", "", "__path__"])
def test_a_name_that_is_not_on_the_list_is_missing_as_from_any_module(name: str) -> None:
    load = lazy_names("email", {"message": ("EmailMessage",)})
    with pytest.raises(AttributeError, match=f"^module 'email' has no attribute '{name}'$"):
        load(name)


@pytest.mark.processes
def test_only_the_modules_of_the_names_that_were_asked_for_are_loaded() -> None:
    program = (
        "import sys, penstock.blocks as blocks; before = set(sys.modules); blocks.Envelope;"
        "print(sorted(name for name in set(sys.modules) - before if name.startswith('penstock.blocks')),"
        " 'penstock.blocks.write.flush' in sys.modules)"
    )
    answer = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert answer.stdout.strip() == (
        "['penstock.blocks.format', 'penstock.blocks.format.arrays', 'penstock.blocks.format.envelope'] False"
    )
