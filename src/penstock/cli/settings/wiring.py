"""What a command is configured with and watched by, in one hand: it opens stores, producers and readers accordingly."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

from penstock.cli.settings.configuration import Settings
from penstock.cli.settings.store_access import follower_options, service_options, store_options, writer_options
from penstock.observability import SILENT, Observer

if TYPE_CHECKING:
    from collections.abc import Mapping

    from penstock.buffer import SyncProducer
    from penstock.documents.embedding import RateLimit
    from penstock.indexing import Embedding, EmbeddingBudget, IndexingConfig, Reading
    from penstock.objects import StoreSpec
    from penstock.timeseries import TimeSeriesReader, TimeSeriesStore
    from penstock.vector import VectorReader, VectorStore

__all__ = ["UNWIRED", "Wiring"]

T = TypeVar("T")

_VECTOR_PATH: Final = "vectors"
_SERVICE_URLS: Final = {"s3": "s3://any", "az": "az://any", "gs": "gs://any"}


@dataclass(frozen=True)
class Wiring:
    """Rooms are imported when they are opened."""

    settings: Settings = field(default_factory=Settings)
    observer: Observer = SILENT

    def spec(self, url: str) -> StoreSpec:
        from penstock.objects import StoreSpec

        return StoreSpec(url, store_options(self.settings, url))

    def service_options(self, url: str) -> dict[str, Any]:
        return service_options(self.settings, url)

    def producer(self, url: str, shard: int = 0) -> SyncProducer:
        from penstock.buffer import ProducerConfig, SyncProducer, shard_config

        config = shard_config(self.settings.of(ProducerConfig), shard)
        return SyncProducer(self.spec(url), config, observer=self.observer)

    @property
    def manifest_path(self) -> str:
        """Where the queue of a store is."""
        from penstock.buffer import ConsumerConfig

        return self.settings.of(ConsumerConfig).manifest_path

    async def reader(self, url: str, path: str = _VECTOR_PATH) -> VectorReader:
        """The vectors of a store, beside whoever writes them."""
        from penstock.vector import VectorConfig, VectorReader

        options = follower_options(self.settings, url)
        return await VectorReader.open(url, path, self.settings.of(VectorConfig), observer=self.observer, **options)

    async def writer(self, url: str, path: str = _VECTOR_PATH) -> VectorStore:
        """The vectors of a store, as their only writer."""
        from penstock.vector import VectorConfig, VectorStore

        options = writer_options(self.settings, url)
        return await VectorStore.open(url, path, self.settings.of(VectorConfig), observer=self.observer, **options)

    async def series_reader(self, url: str, path: str) -> TimeSeriesReader:
        """The time series of a store, beside whoever writes them."""
        from penstock.timeseries import TimeSeriesConfig, TimeSeriesStore

        options = follower_options(self.settings, url)
        config = self.settings.of(TimeSeriesConfig)
        return await TimeSeriesStore.open_reader(url, path, config, observer=self.observer, **options)

    async def series_writer(self, url: str, path: str) -> TimeSeriesStore:
        """The time series of a store, as their only writer."""
        from penstock.timeseries import TimeSeriesConfig, TimeSeriesStore

        options = writer_options(self.settings, url)
        config = self.settings.of(TimeSeriesConfig)
        return await TimeSeriesStore.open(url, path, config, observer=self.observer, **options)

    # Of a job ----------------------------------------------------------------------------------------------

    def reading(self, **given: Any) -> Reading:
        """How documents are read; `given` is what the command itself knows."""
        from penstock.documents.parsers import ParserLimits, ParserOptions
        from penstock.indexing import FetchLimits, Reading
        from penstock.objects import without_encryption

        services: Mapping[str, Mapping[str, Any]] = {
            # Documents are only read, and whoever wrote them had a key of their own or none.
            scheme: without_encryption(options)
            for scheme, url in _SERVICE_URLS.items()
            if (options := self.service_options(url))
        }
        limits, fetching = self.settings.of(ParserLimits), self.settings.of(FetchLimits)
        parsing = self.settings.of(ParserOptions)
        return Reading(limits=limits, parsing=parsing, fetching=fetching, services=services, **given)

    def embedding(self, embedding: Embedding) -> Embedding:
        """With the patience and the limits that are configured; an option of a command comes first."""
        from dataclasses import replace

        from penstock.documents.embedding import DispatchPolicy

        return replace(embedding, policy=self.settings.of(DispatchPolicy), rate=self._rate(embedding.rate))

    def _rate(self, asked: RateLimit) -> RateLimit:
        from penstock.documents.embedding import RateLimit

        requests, tokens = asked.requests_per_minute, asked.tokens_per_minute
        return self.settings.of(RateLimit, requests_per_minute=requests, tokens_per_minute=tokens)

    def _budget(self, asked: EmbeddingBudget | None) -> EmbeddingBudget:
        from penstock.indexing import EmbeddingBudget

        asked = asked or EmbeddingBudget()
        return self.settings.of(EmbeddingBudget, max_dollars=asked.max_dollars, max_total_tokens=asked.max_total_tokens)

    def job(self, url: str, *, budget: EmbeddingBudget | None = None, **given: Any) -> IndexingConfig:
        """An indexing job on a store; `given` is what the command itself knows."""
        from penstock.buffer import ConsumerConfig
        from penstock.documents import BatcherLimits
        from penstock.indexing import IndexingConfig, IntakeLimits, RoundLimits
        from penstock.keyvalue import KeyValueConfig
        from penstock.vector import VectorConfig

        settings = self.settings
        intake = settings.of(IntakeLimits)
        return IndexingConfig(
            url,
            options=self.service_options(url),
            rounds=settings.of(RoundLimits),
            batches_per_trigger=intake.batches_per_trigger,
            bytes_per_trigger=intake.bytes_per_trigger,
            batcher=settings.given(BatcherLimits),
            consumer=settings.of(ConsumerConfig),
            vector=self._beside(VectorConfig, IndexingConfig.vector),
            keyvalue=self._beside(KeyValueConfig, IndexingConfig.keyvalue),
            budget=self._budget(budget),
            **given,
        )

    def _beside(self, kind: type[T], default: T) -> T:
        """What is configured of a class, and the rest as in `default`, where that is not the class's own."""
        given = self.settings.given(kind)
        names = [one.name for one in fields(cast("Any", default)) if one.name not in given]
        return self.settings.of(kind, **{name: getattr(default, name) for name in names})


UNWIRED: Final = Wiring()
