"""`penstock search --rerank` puts the first passages in the order of an endpoint."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from tests.cli.test_search import PASSAGES, store

from penstock.cli.main import penstock

__all__ = ["store"]


class ShortestFirstServer(HTTPServer):
    """Judges a passage the better the shorter it is; remembers what it was asked, with the keys."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Judging)
        self.asked: list[tuple[dict[str, Any], str | None]] = []
        self.status = 200


class _Judging(BaseHTTPRequestHandler):
    server: ShortestFirstServer

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        self.server.asked.append((body, self.headers["authorization"]))
        results = [{"index": n, "relevance_score": -len(text)} for n, text in enumerate(body["documents"])]
        content = json.dumps({"results": results}).encode()
        self.send_response(self.server.status)
        self.send_header("content-length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *arguments: Any) -> None:
        """Nobody reads it."""


@pytest.fixture
def server() -> Iterator[ShortestFirstServer]:
    with ShortestFirstServer() as judging:
        thread = threading.Thread(target=judging.serve_forever, args=(0.01,))
        thread.start()
        yield judging
        judging.shutdown()
        thread.join()


def ask(folder: Path, server: ShortestFirstServer, *arguments: str) -> Result:
    url = f"http://127.0.0.1:{server.server_port}/v1/rerank"
    options = ["--store", str(folder), "--rerank", url]
    return CliRunner().invoke(penstock, ["search", "the hot fish of the court", *options, *arguments])


def test_answers_come_in_the_order_of_the_endpoint_and_more_of_them_change_only_the_length(
    store: Path, server: ShortestFirstServer, tmp_path: Path
) -> None:
    secret = tmp_path / "key"
    secret.write_text("s3cret\n")
    options = ("--json", "--rerank-model", "judge-1", "--rerank-key-file", str(secret))
    lines = {count: ask(store, server, *options, "-n", str(count)).output.splitlines() for count in (1, 3)}
    assert [json.loads(line)["key"] for line in lines[3]] == sorted(PASSAGES, key=lambda key: len(PASSAGES[key]))
    assert lines[1] == lines[3][:1]
    body, authorization = server.asked[0]
    assert (body["model"], authorization, len(body["documents"])) == ("judge-1", "Bearer s3cret", 3)


def test_an_endpoint_that_fails_is_an_error_and_not_another_order(store: Path, server: ShortestFirstServer) -> None:
    server.status = 503
    answer = ask(store, server)
    assert answer.exit_code == 1
    assert "the reranking endpoint did not answer" in answer.output


def test_nothing_is_asked_unless_somebody_wants_it(store: Path, server: ShortestFirstServer) -> None:
    assert CliRunner().invoke(penstock, ["search", "fish", "--store", str(store)]).exit_code == 0
    assert server.asked == []
