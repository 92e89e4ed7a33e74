"""What was sent to a running product, what became of each request, and whether all that was acknowledged is there, once.

Every request is sent once, and its outcome is noted: acknowledged, or not known. What is not known may be found once, or
not at all.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import httpx
from tests.cli.served import waited_for

DRAIN_SECONDS = 300.0
POINTS = 5


@dataclass
class Ledger:
    """What was sent, by its outcome. Names are unique; each is sent once."""

    acknowledged: set[str] = field(default_factory=set)
    unknown: set[str] = field(default_factory=set)

    def note(self, name: str, answer: httpx.Response | None) -> None:
        if answer is not None and answer.is_success:
            self.acknowledged.add(name)
        elif answer is None or answer.status_code >= 500:
            self.unknown.add(name)
        else:
            # Over a quota: told in time that nothing was stored.
            assert answer.status_code == 429, answer.text


class Asked(Protocol):
    """A product that is asked over HTTP, whatever runs it, until `stopping` is set."""

    stopping: threading.Event

    def ask(self, method: str, path: str, **given: Any) -> httpx.Response | None:
        """The answer; None when nothing is known of it."""
        ...


def send_points(product: Asked, ledger: Ledger, base_ns: int) -> None:
    number = 0
    while not product.stopping.is_set():
        name = f"m{number}"
        times = [base_ns + (number * POINTS + place) * 1_000_000 for place in range(POINTS)]
        points = [{"timeUnixNano": str(at), "asInt": str(number)} for at in times]
        attributes = [{"key": "batch", "value": {"stringValue": name}}]
        metric = {"name": "chaos", "gauge": {"dataPoints": [{**one, "attributes": attributes} for one in points]}}
        body = {"resourceMetrics": [{"scopeMetrics": [{"metrics": [metric]}]}]}
        ledger.note(name, product.ask("POST", "/v1/metrics", json=body))
        number += 1
        product.stopping.wait(0.05)


def send_documents(product: Asked, ledger: Ledger) -> None:
    number = 0
    while not product.stopping.is_set():
        name = f"word{number}x"
        ledger.note(
            name, product.ask("PUT", f"/v1/documents/chaos/{name}.txt", content=f"The {name} is here.".encode())
        )
        number += 1
        product.stopping.wait(0.5)


def check_points(product: Asked, ledger: Ledger) -> None:
    # One label is looked for in a map of the row.
    query = "select labels['batch'] as batch, count(*) as n from metrics where metric = 'chaos' group by 1"

    def counted() -> dict[str, int] | None:
        answer = product.ask("POST", "/v1/sql", json={"query": query})
        if answer is None or not answer.is_success:
            return None
        found = {str(batch): n for batch, n in answer.json()["rows"]}
        return found if ledger.acknowledged <= set(found) else None

    found = waited_for(counted, DRAIN_SECONDS)
    assert found, "acknowledged points are missing"
    assert set(found) <= ledger.acknowledged | ledger.unknown
    assert {batch: n for batch, n in found.items() if n != POINTS} == {}
    instant = {"query": "count by (batch) (count_over_time(chaos[1h])) * sum by (batch) (count_over_time(chaos[1h]))"}

    def series() -> dict[str, int] | None:
        answer = product.ask("POST", "/api/v1/query", data=instant)
        if answer is None or not answer.is_success:
            return None
        counts = {one["metric"]["batch"]: int(one["value"][1]) for one in answer.json()["data"]["result"]}
        return counts if set(counts) >= set(found) else None

    assert waited_for(series, DRAIN_SECONDS) == found


def check_documents(product: Asked, ledger: Ledger) -> None:
    def hits(word: str) -> list[str] | None:
        body = {"query": word, "index": "chaos", "mode": "text", "count": 5}
        answer = product.ask("POST", "/v1/search", json=body)
        if answer is None or not answer.is_success:
            return None
        return [hit["key"] for hit in answer.json()["hits"] if word in hit["text"]]

    for word in sorted(ledger.acknowledged):
        found = waited_for(lambda word=word: hits(word), DRAIN_SECONDS)
        assert [Path(key).name for key in found or []] == [f"{word}.txt"], word
    for word in sorted(ledger.unknown):
        assert len(hits(word) or []) <= 1
