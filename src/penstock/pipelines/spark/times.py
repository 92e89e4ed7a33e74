"""Times as Spark hands them over: in filters that it pushes down, and in the options of a source. Exact, without floats."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Final

from penstock.errors import InvalidInput

__all__ = ["microseconds", "time_option"]

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_WHOLE_NUMBER: Final = re.compile(r"-?[0-9]{1,30}")


def microseconds(moment: datetime) -> int:
    """Since 1970. A time without a zone counts as UTC, whatever zone this process is in.

    Spark gives one only for a column without a zone, and Arrow counts such columns so.
    """
    aware = moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment
    return (aware - _EPOCH) // timedelta(microseconds=1)


def time_option(name: str, text: str | None, unit: str, per_second: int) -> int | None:
    """A number of `unit`, of which a second has `per_second`, or an ISO 8601 time; without a zone it is UTC."""
    if text is None:
        return None
    if _WHOLE_NUMBER.fullmatch(text.strip()):
        return int(text)
    try:
        moment = datetime.fromisoformat(text.strip())
    except ValueError as error:
        raise InvalidInput(f"{name} = {text!r}", f"it is neither {unit} nor an ISO 8601 time") from error
    return microseconds(moment) * per_second // 1_000_000
