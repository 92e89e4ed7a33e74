import asyncio
import json
from email.utils import formatdate

import httpx
import msgspec
import numpy as np
import pytest

from penstock.documents.embedding import PROFILES, OpenAiProvider, profile_of
from penstock.documents.embedding.provider import Later, Refused, Vectors
from penstock.errors import Corrupt, InvalidInput, NotFound, PermissionDenied
from penstock.testing import ManualClock

PROFILE = profile_of("text-embedding-3-small")


def ask(answer, texts=("a", "b"), key="k:0#d", profile=PROFILE, **more):
    seen = []

    def respond(request):
        seen.append(request)
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def main():
        provider = OpenAiProvider(
            "http://127.0.0.1:9/v1/", profile, transport=httpx.MockTransport(respond), clock=ManualClock(), **more
        )
        try:
            return await provider.embed(texts, idempotency_key=key)
        finally:
            await provider.close()

    return asyncio.run(main()), seen[0]


def rows(*indexes, **more):
    data = [{"index": index, "embedding": [float(index), 1.0], "object": "embedding"} for index in indexes]
    return httpx.Response(200, json={"data": data, "usage": {"total_tokens": 7}, **more})


def test_texts_become_rows_in_their_order_whatever_order_the_answer_has():
    answer, request = ask(rows(1, 0), api_key="secret")
    assert isinstance(answer, Vectors)
    assert answer.rows.tolist() == [[0.0, 1.0], [1.0, 1.0]]
    assert answer.tokens == 7
    assert request.url == "http://127.0.0.1:9/v1/embeddings"
    assert request.headers["authorization"] == "Bearer secret"
    assert request.headers["idempotency-key"] == "k:0#d"
    assert json.loads(request.content) == {"model": PROFILE.name, "input": ["a", "b"], "encoding_format": "float"}


@pytest.mark.parametrize(
    ("key", "sent"),
    [
        ("Müller:büro:m:0#d", "M%C3%BCller:b%C3%BCro:m:0#d"),
        ("a b\r\nc:0#d", "a%20b%0D%0Ac:0#d"),
        ("50%25:0#d", "50%2525:0#d"),
    ],
)
def test_a_key_with_names_in_any_script_is_sent_in_the_letters_that_a_header_has(key, sent):
    answer, request = ask(rows(0, 1), key=key)
    assert isinstance(answer, Vectors)
    assert request.headers["idempotency-key"] == sent


@pytest.mark.parametrize("status", [408, 429, 500, 502, 503, 529])
def test_limits_and_faults_of_the_server_mean_later(status):
    answer, _ = ask(httpx.Response(status, text="busy", headers={"retry-after": "7"}))
    assert answer == Later(f"{status}: busy", 7.0)


def test_a_date_to_retry_after_is_counted_from_our_clock():
    at = ManualClock().now_ms() / 1000
    answer, _ = ask(httpx.Response(503, headers={"retry-after": formatdate(at + 30, usegmt=True)}))
    assert answer.after_seconds == pytest.approx(30)


def test_a_header_that_is_neither_is_no_advice():
    answer, _ = ask(httpx.Response(503, headers={"retry-after": "soon"}))
    assert answer.after_seconds is None


@pytest.mark.parametrize(
    "error", [httpx.ConnectError("refused"), httpx.ReadTimeout("slow"), httpx.RemoteProtocolError("x")]
)
def test_a_broken_or_slow_connection_means_later(error):
    answer, _ = ask(error)
    assert isinstance(answer, Later)


CODECS = ["hex", "base64", "zlib", "rot13", "undefined", "idna", "punycode", "utf-16"]


@pytest.mark.parametrize("charset", CODECS)
@pytest.mark.parametrize("status", [200, 400, 503])
def test_a_charset_that_reads_no_text_raises_nothing_of_pythons(charset, status):
    answer = httpx.Response(status, content=b"odd\xff", headers={"content-type": f"text/html; charset={charset}"})
    if status == 200:
        with pytest.raises(Corrupt):
            ask(answer)
    else:
        assert "odd" in ask(answer)[0].reason


class Drip(httpx.AsyncByteStream):
    """A blank at once, and then nothing for ever: every single read is in time."""

    async def __aiter__(self):
        while True:
            yield b" "
            await asyncio.sleep(0)


def test_an_answer_that_drips_is_given_up_at_the_deadline_of_the_whole():
    answer, _ = ask(httpx.Response(200, stream=Drip()), timeout=0.05)
    assert isinstance(answer, Later)
    assert "0.05 s" in answer.reason


class Flood(httpx.AsyncByteStream):
    """Blanks without end; `sent` counts them."""

    def __init__(self):
        self.sent = 0

    async def __aiter__(self):
        while True:
            self.sent += 1 << 20
            yield b" " * (1 << 20)


def test_an_answer_without_end_is_refused_at_the_size_that_its_vectors_can_have():
    flood = Flood()
    with pytest.raises(Corrupt, match="too large"):
        ask(httpx.Response(200, stream=flood))
    assert flood.sent < 32 << 20


def test_of_a_refusal_without_end_only_the_beginning_is_read():
    flood = Flood()
    answer, _ = ask(httpx.Response(400, stream=flood))
    assert isinstance(answer, Refused)
    assert flood.sent == 1 << 20


@pytest.mark.parametrize("encoding", ["zstd", "br", "deflate", "gzip, gzip"])
def test_an_answer_is_unpacked_in_no_way_but_the_one_that_was_asked_for(encoding):
    answer, request = ask(httpx.Response(200, stream=Flood(), headers={"content-encoding": encoding}))
    assert isinstance(answer, Later)
    assert request.headers["accept-encoding"] == "gzip"


@pytest.mark.parametrize("tokens", [-1, -500_000, 1 << 40, 10**400])
def test_a_count_of_tokens_that_cannot_be_is_left_out(tokens):
    body = {"data": [{"index": 0, "embedding": [1.0]}], "usage": {"total_tokens": tokens}}
    answer, _ = ask(httpx.Response(200, json=body), texts=("a",))
    assert answer.tokens is None


@pytest.mark.parametrize(
    ("url", "key"),
    [("http://[::1", None), ("http://x:port", None), ("https://xn--", None), ("http://", None), ("http://x", "kéy")],
)
def test_an_address_and_a_key_that_cannot_be_sent_are_refused_without_quoting_the_key(url, key):
    with pytest.raises(InvalidInput) as refused:
        OpenAiProvider(url, PROFILE, api_key=key)
    assert "kéy" not in str(refused.value)


@pytest.mark.parametrize("status", [400, 413, 422])
def test_a_content_that_is_not_accepted_means_refused(status):
    answer, _ = ask(httpx.Response(status, text="too long"))
    assert answer == Refused(f"{status}: too long")


@pytest.mark.parametrize(
    ("status", "kind"), [(401, PermissionDenied), (403, PermissionDenied), (404, NotFound), (418, InvalidInput)]
)
def test_what_no_repeat_and_no_split_can_heal_is_raised(status, kind):
    with pytest.raises(kind, match=str(status)):
        ask(httpx.Response(status))


@pytest.mark.parametrize("answer", [rows(0), rows(0, 0), rows(0, 2), rows(0, 1, 2), httpx.Response(200, text="<html>")])
def test_an_answer_that_does_not_fit_the_question_is_corrupt(answer):
    with pytest.raises(Corrupt):
        ask(answer)


def test_an_address_without_a_scheme_is_refused():
    with pytest.raises(InvalidInput):
        OpenAiProvider("localhost:8080", PROFILE)


@pytest.mark.parametrize(
    ("name", "sent"),
    [
        ("amazon.titan-embed-text-v2:0", "amazon.titan-embed-text-v2:0"),
        ("bedrock:amazon.titan-embed-text-v2:0", "amazon.titan-embed-text-v2:0"),
        ("nomic-embed-text:v1.5", "nomic-embed-text:v1.5"),
        ("mistral:latest", "mistral:latest"),
        ("openai:text-embedding-3-small", "text-embedding-3-small"),
        ("text-embedding-3-small", "text-embedding-3-small"),
        ("odd:", "odd:"),
    ],
)
def test_a_model_is_asked_for_by_its_whole_name_and_only_a_provider_before_a_known_one_is_left_out(name, sent):
    profile = msgspec.structs.replace(PROFILE, name=name)
    _, request = ask(rows(0, 1), profile=profile)
    assert json.loads(request.content)["model"] == sent
    if sent in PROFILES:
        assert profile_of(name) is PROFILES[sent]


@pytest.mark.parametrize("body", [b'{"data": "\xff"}', b'{"x":' + b"[" * 3000 + b"]" * 3000 + b', "data": []}', b"{"])
def test_an_answer_of_any_bytes_is_corrupt_and_nothing_else(body):
    with pytest.raises(Corrupt):
        ask(httpx.Response(200, content=body))


def test_an_answer_that_cannot_be_unpacked_is_later():
    def garbled():
        return httpx.Response(200, headers={"content-encoding": "gzip"}, stream=httpx.ByteStream(b"no gzip"))

    answer, _ = ask(garbled())
    assert isinstance(answer, Later)


IN_BYTES = msgspec.structs.replace(PROFILE, vector_type="int8")


def bytes_answered(*numbers):
    return httpx.Response(200, json={"data": [{"index": 0, "embedding": [*numbers]}]})


def test_bytes_are_asked_for_and_become_vectors_of_length_one():
    answer, request = ask(bytes_answered(-128, 127, 0, 64), texts=("a",), profile=IN_BYTES)
    assert json.loads(request.content) == {"model": PROFILE.name, "input": ["a"], "output_dtype": "int8"}
    np.testing.assert_allclose(answer.rows, np.array([[-128, 127, 0, 64]]) / np.linalg.norm([128, 127, 64]), rtol=1e-6)
    zeros, _ = ask(bytes_answered(0, 0), texts=("a",), profile=IN_BYTES)
    assert zeros.rows.tolist() == [[0.0, 0.0]]


@pytest.mark.parametrize("numbers", [(0.25, 1), (128, 1), (-129, 1), (3e30, 1)])
def test_an_endpoint_that_does_not_know_of_bytes_is_named(numbers):
    with pytest.raises(Corrupt, match="did not answer with bytes"):
        ask(bytes_answered(*numbers), texts=("a",), profile=IN_BYTES)
