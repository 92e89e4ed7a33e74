"""Any OpenAI-compatible endpoint, over HTTP: OpenAI, Azure, vLLM, TEI, Ollama and many more.

Status codes become answers: 429, 408 and 5xx and a broken connection are "later", with the time the server asked for;
400, 413 and 422 are "refused"; 401 and 403 raise `PermissionDenied`, 404 raises `NotFound`. A request that timed out
may have been counted by the provider; it changes nothing there, so it is safe to ask again. A count of tokens that
cannot be is left out, and then our own stands.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final
from urllib.parse import quote

import msgspec
import numpy as np
import numpy.typing as npt

from penstock.clock import SYSTEM_CLOCK, Clock
from penstock.documents.embedding.http_answers import answer_of_status, client_for, posted
from penstock.documents.embedding.profiles import ModelProfile, bare_name
from penstock.documents.embedding.provider import Answer, Later, Vectors, checked, unit_rows
from penstock.errors import Corrupt, InvalidInput
from penstock.undecodable import UNDECODABLE

if TYPE_CHECKING:
    import httpx

__all__ = ["OpenAiProvider"]

# For one answer, from the request to the last byte.
REQUEST_SECONDS_MAX: Final = 60.0
_OK: Final = 200
# Of an answer: beside its numbers, and for each of them as the longest one is written, with blanks around it.
_ANSWER_BYTES: Final = 16 << 20
_NUMBER_BYTES: Final = 64
# Of a request: more than any model takes.
_TOKENS_MAX: Final = 1 << 32
# What stays readable in a header: visible ASCII, but for the sign that marks everything else.
_PLAIN: Final = "".join(map(chr, range(0x21, 0x7F))).replace("%", "")


class _Row(msgspec.Struct):
    index: int
    embedding: list[float]


class _Usage(msgspec.Struct):
    total_tokens: int | None = None


class _Body(msgspec.Struct):
    data: list[_Row]
    usage: _Usage | None = None


class OpenAiProvider:
    """`POST {url}/embeddings`. One instance serves any number of requests at once; close it at the end."""

    def __init__(
        self,
        url: str,
        profile: ModelProfile,
        *,
        api_key: str | None = None,
        headers: Mapping[str, str] | None = None,
        model: str | None = None,
        timeout: float = REQUEST_SECONDS_MAX,
        transport: httpx.AsyncBaseTransport | None = None,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        if not url.startswith(("http://", "https://")):
            raise InvalidInput(
                f"not the address of an embedding endpoint: {url[:120]!r}", "it must begin with http(s)://"
            )
        sent = {"authorization": f"Bearer {api_key}"} if api_key else {}
        self._client = client_for(
            f"the endpoint of model {profile.name} cannot be asked",
            url.rstrip("/"),
            headers={**sent, **(headers or {})},
            timeout=timeout,
            transport=transport,
        )
        self._timeout = timeout
        self._profile, self._api_key = profile, api_key
        self._model = model or bare_name(profile.name)
        self._clock = clock

    @property
    def profile(self) -> ModelProfile:
        return self._profile

    @property
    def _in_bytes(self) -> bool:
        return self._profile.vector_type == "int8"

    async def embed(self, texts: Sequence[str], *, idempotency_key: str) -> Answer:
        form = {"output_dtype": "int8"} if self._in_bytes else {"encoding_format": "float"}
        body = {"model": self._model, "input": list(texts), **form}
        response = await posted(
            self._client,
            "/embeddings",
            msgspec.json.encode(body),
            seconds=self._timeout,
            bytes_max=self._answer_bytes_max(len(texts)),
            headers={"idempotency-key": _header(idempotency_key)},
        )
        if isinstance(response, Later):
            return response
        if response.status == _OK:
            return self._vectors(response.content, len(texts))
        what = f"the embedding endpoint refuses model {self._profile.name}"
        return answer_of_status(response, what, self._clock, secret=self._api_key, texts=texts)

    async def close(self) -> None:
        await self._client.aclose()

    def _answer_bytes_max(self, count: int) -> int:
        numbers = self._profile.model_dimensions or self._profile.dimensions
        return _ANSWER_BYTES + count * numbers * _NUMBER_BYTES

    def _vectors(self, content: bytes, count: int) -> Vectors:
        try:
            body = msgspec.json.decode(content, type=_Body)
        except UNDECODABLE as error:
            raise Corrupt(f"model {self._profile.name} did not answer with an embedding", str(error)) from error
        # The order of the rows is not promised: each says which text it belongs to.
        body.data.sort(key=lambda row: row.index)
        if [row.index for row in body.data] != list(range(count)) or len({len(row.embedding) for row in body.data}) > 1:
            raise Corrupt(f"model {self._profile.name} answered {len(body.data)} rows for {count} texts")
        # A number beyond all floats becomes infinity, which is looked for; nobody needs a warning of it.
        with np.errstate(over="ignore"):
            rows = np.array([row.embedding for row in body.data], dtype=np.float32)
        tokens = _believed(body.usage.total_tokens if body.usage else None)
        found = checked(Vectors(rows, tokens), count, self._profile.name)
        return Vectors(unit_rows(_checked_bytes(rows, self._profile.name)), tokens) if self._in_bytes else found


def _believed(tokens: int | None) -> int | None:
    """A count of tokens; one that no request can have would be a bill below nothing, or beyond all numbers."""
    return tokens if tokens is not None and 0 <= tokens <= _TOKENS_MAX else None


def _checked_bytes(rows: npt.NDArray[np.float32], model: str) -> npt.NDArray[np.float32]:
    """Rows of whole numbers from -128 to 127. An endpoint that does not know the wish answers with others."""
    if ((rows != np.rint(rows)) | (np.abs(rows + 0.5) > 127.5)).any():
        raise Corrupt(
            f"model {model} did not answer with bytes",
            "its profile asks for int8, and the endpoint wrote other numbers",
            "leave vector_type out of its profile",
        )
    return rows


def _header(text: str) -> str:
    """A tenant may be named in any script, a header's text may not: everything else is percent-encoded."""
    return quote(text, safe=_PLAIN, errors="surrogatepass")
