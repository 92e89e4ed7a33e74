"""SQL over the data files of the token's tenant: one SELECT, within bounds, as JSON or as an Arrow stream."""

from __future__ import annotations

from decimal import Decimal
from typing import Annotated, Any, Final

import msgspec
import pyarrow as pa

from penstock.gateway.access.tokens import Scope
from penstock.gateway.config import GatewayConfig
from penstock.gateway.http.exchange import HttpAnswer, HttpExchange, json_answer
from penstock.gateway.http.inputs import body_schema, decoded, whole_body
from penstock.gateway.http.routing import Route
from penstock.gateway.query.sql_worker import SqlAnswering
from penstock.lake import SqlAnswer, answer_rows

__all__ = ["SqlRoutes"]

_ARROW: Final = "application/vnd.apache.arrow.stream"
_CELL_CHARACTERS_MAX: Final = 500
# Rows that the dashboard shows.
_SHOWN_ROWS_MAX: Final = 200


_INTEGER_MAX: Final = 2**63 - 1
_Sequence = Annotated[int, msgspec.Meta(ge=0, le=_INTEGER_MAX)]


class SqlBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The body of a query. `as_of` is a position that an earlier answer gave."""

    query: str
    as_of: _Sequence | dict[str, _Sequence] | None = None
    rows: Annotated[int, msgspec.Meta(ge=1, le=_INTEGER_MAX)] | None = None


class SqlRoutes:
    """`POST /v1/sql`, and the same for the dashboard. Tables hold the rows of the tenant alone."""

    def __init__(self, engine: SqlAnswering, config: GatewayConfig) -> None:
        self._engine, self._config = engine, config

    def endpoints(self) -> list[Route]:
        return [
            Route(
                "POST",
                "/v1/sql",
                Scope.READ,
                self.query,
                "Answer one SELECT.",
                takes=("application/json",),
                gives=("application/json", _ARROW),
                tag="sql",
                body=body_schema(SqlBody),
            )
        ]

    async def query(self, exchange: HttpExchange) -> HttpAnswer:
        asked = decoded(await whole_body(exchange, self._config), SqlBody)
        answer = await self._answer(asked, exchange.principal.tenant)
        if _ARROW in exchange.headers.get("accept", ""):
            return _arrow(answer)
        rows = [[_plain(value) for value in row] for row in answer_rows(answer.table)]
        told = {"columns": answer.table.column_names, "rows": rows, "cut": answer.is_cut, "position": answer.position}
        return json_answer(told)

    async def shown(self, statement: str, tenant: str) -> tuple[list[str], list[list[str]]]:
        """Columns and rows as text, for a person."""
        answer = await self._answer(SqlBody(query=statement, rows=_SHOWN_ROWS_MAX), tenant)
        rows = [[_text(value) for value in row] for row in answer_rows(answer.table)]
        return answer.table.column_names, rows

    async def _answer(self, asked: SqlBody, tenant: str) -> SqlAnswer:
        return await self._engine.query(
            asked.query,
            tenant=tenant,
            as_of=asked.as_of,
            rows_max=asked.rows,
            seconds_max=self._config.query_seconds_max,
        )


def _arrow(answer: SqlAnswer) -> HttpAnswer:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, answer.table.schema) as writer:
        writer.write_table(answer.table)
    headers = {
        "x-penstock-cut": str(answer.is_cut).lower(),
        "content-disposition": 'attachment; filename="answer.arrows"',
    }
    return HttpAnswer(sink.getvalue().to_pybytes(), content_type=_ARROW, headers=headers)


def _plain(value: Any) -> Any:
    """What JSON has no word for, as text: times, bytes and numbers that are none."""
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return value if value == value and abs(value) != float("inf") else str(value)
    if isinstance(value, Decimal):
        # Sums of integers are decimals without places, and integers to whoever asks; others keep all of theirs as text.
        return int(value) if value.as_tuple().exponent == 0 else str(value)
    if isinstance(value, dict):
        return {str(name): _plain(inner) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(inner) for inner in value]
    return value.hex() if isinstance(value, bytes) else str(value)


def _text(value: Any) -> str:
    shown = "" if value is None else str(_plain(value))
    return shown if len(shown) <= _CELL_CHARACTERS_MAX else f"{shown[:_CELL_CHARACTERS_MAX]}…"
