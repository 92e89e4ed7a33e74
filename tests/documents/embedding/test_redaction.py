"""What a provider says of a failure is kept, without what must not be: keys, tokens, addresses, texts."""

from __future__ import annotations

import asyncio
import json

import httpx
import pytest

from penstock.documents.embedding import OpenAiProvider, Refused, RemoteReranker, profile_of
from penstock.documents.embedding.redaction import redacted
from penstock.errors import PermissionDenied

TEXT = "The patient, Ms Example, was given 40 mg of furosemide on the ward and slept well.\nHer sister called at nine."


@pytest.mark.parametrize(
    ("answer", "hidden"),
    [
        ("Incorrect API key provided: sk-proj-abc123DEF456ghi. See the docs.", "abc123"),
        ("Incorrect API key provided: sk-abcd****************wxyz.", "wxyz"),
        ('{"error": {"message": "bad", "api_key": "plainwords"}}', "plainwords"),
        ("Authorization: Bearer abcdefgh12345678 is not valid", "abcdefgh"),
        ("the token 'Bearer zzz.yyy.xxx-www' has expired", "yyy"),
        ("GET https://user:hunter2@models.example/v1 failed", "hunter2"),
        ("GET https://models.example/v1?api-key=abc123&x=1 failed", "abc123"),
        ("GET https://bucket/x?X-Amz-Signature=deadbeef&y failed", "deadbeef"),
        ("jwt eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.c2lnbmF0dXJl refused", "c2lnbmF0dXJl"),
        ("AKIAIOSFODNN7EXAMPLE may not", "IOSFODNN"),
        ("password = hunter2", "hunter2"),
        ("session 0123456789abcdef0123456789abcdef01234567 is over", "abcdef0123"),
    ],
)
def test_secrets_are_hidden_by_their_shape(answer: str, hidden: str) -> None:
    shown = redacted(answer)
    assert hidden not in shown
    assert "[secret]" in shown


def test_the_key_that_was_sent_is_hidden_whatever_it_looks_like() -> None:
    assert redacted("unknown caller: open sesame!", secrets=["open sesame", None, ""]) == "unknown caller: [secret]!"


@pytest.mark.parametrize(
    "quote",
    [
        TEXT,
        TEXT[4:60],
        TEXT[40:90],
        json.dumps({"error": {"message": f"cannot embed {TEXT!r}", "input": TEXT}}),
        json.dumps({"error": f"input was: “{TEXT[:70]}” …"}),
    ],
)
def test_quotations_of_what_was_sent_are_hidden(quote: str) -> None:
    shown = redacted(f"{quote} is not accepted" if not quote.startswith("{") else quote, texts=["other", TEXT])
    assert "[text]" in shown
    for word in ("Example", "furosemide", "sister"):
        assert word not in shown


def test_a_short_text_is_hidden_too_and_words_of_the_answer_itself_stay() -> None:
    assert redacted("input 'PIN is 4711' refused", texts=["PIN is 4711"]) == "input '[text]' refused"
    plain = "maximum context length is 8192 tokens, however you requested 9000 tokens; reduce your prompt"
    assert redacted(plain, texts=["water", "tokens", "Otters swim in the river."]) == plain


def test_a_report_has_neither_the_key_nor_the_text() -> None:
    key = "k-very-own-1"
    asked = []

    def answer(request: httpx.Request) -> httpx.Response:
        asked.append(request)
        status = 401 if len(asked) > 1 else 400
        return httpx.Response(status, json={"error": {"message": f"key {key} may not send {TEXT!r}"}})

    async def work() -> tuple[Refused, PermissionDenied]:
        provider = OpenAiProvider(
            "https://models.example/v1",
            profile_of("text-embedding-3-small"),
            api_key=key,
            transport=httpx.MockTransport(answer),
        )
        refused = await provider.embed([TEXT], idempotency_key="k")
        with pytest.raises(PermissionDenied) as denied:
            await provider.embed([TEXT], idempotency_key="k")
        await provider.close()
        assert isinstance(refused, Refused)
        return refused, denied.value

    refused, denied = asyncio.run(work())
    for told in (refused.reason, str(denied)):
        assert key not in told
        assert "furosemide" not in told
        assert "may not send" in told


def test_a_reranker_is_quoted_without_its_passages() -> None:
    transport = httpx.MockTransport(lambda _: httpx.Response(422, text=f"too long: {TEXT}"))

    async def work() -> str:
        reranker = RemoteReranker("https://models.example/rerank", transport=transport)
        refused = await reranker.rerank("who called?", [TEXT])
        await reranker.close()
        assert isinstance(refused, Refused)
        return refused.reason

    assert asyncio.run(work()) == "422: too long: [text]"
