"""The table of settings: each section of the configuration, and the class of the room that reads it.

A room gets its section by one line here. Its class is a frozen dataclass or a struct with a default for every field; a
field that is such a class itself is a table inside the section. Classes are imported when a command asks for them, so
that reading a configuration costs what is in it.
"""

from __future__ import annotations

import dataclasses
from importlib import import_module
from typing import Any, Final, get_type_hints

__all__ = ["SECTIONS", "WITHOUT_SECTION", "class_of", "fields_of", "is_section", "section_of"]

SECTIONS: Final[dict[str, str]] = {
    "observability": "penstock.cli.settings.observing:ObservingConfig",
    "s3": "penstock.objects.cloud.services:S3Options",
    "azure": "penstock.objects.cloud.services:AzureOptions",
    "google": "penstock.objects.cloud.services:GoogleOptions",
    "retry": "penstock.objects.retry:RetryPolicy",
    "keyvalue": "penstock.keyvalue.config:KeyValueConfig",
    "producer": "penstock.buffer.config:ProducerConfig",
    "consumer": "penstock.buffer.config:ConsumerConfig",
    "collector": "penstock.buffer.config:CollectorConfig",
    "catalog": "penstock.catalog.config:CatalogConfig",
    "sql": "penstock.lake.sql_config:SqlConfig",
    "compaction": "penstock.lake.file_layout:CompactionConfig",
    "relay": "penstock.relay.config:RelayConfig",
    "timeseries": "penstock.timeseries.config:TimeSeriesConfig",
    "vector": "penstock.vector.config:VectorConfig",
    "chunking": "penstock.documents.chunker:ChunkingConfig",
    "batcher": "penstock.documents.batcher_state:BatcherLimits",
    "parsers": "penstock.documents.parsers.formats:ParserLimits",
    "parsing": "penstock.documents.parsers.formats:ParserOptions",
    "embedding": "penstock.documents.embedding.dispatch:DispatchPolicy",
    "rate": "penstock.documents.embedding.pace:RateLimit",
    "budget": "penstock.indexing.job.budget:EmbeddingBudget",
    "reading": "penstock.indexing.stages.fetching:FetchLimits",
    "rounds": "penstock.indexing.planning.plan:RoundLimits",
    "intake": "penstock.indexing.job.config:IntakeLimits",
    "gateway": "penstock.gateway.config:GatewayConfig",
    "serve": "penstock.cli.serving.serve_config:ServeConfig",
    "decoding": "penstock.telemetry.wire.limits:DecodeLimits",
    "series": "penstock.telemetry.series.conversion:SeriesConfig",
    "landing": "penstock.landing.config:LandingLimits",
    "sharding": "penstock.landing.config:ShardingConfig",
    "data_files": "penstock.telemetry.data_files:DataFileConfig",
}

# Settings of code alone, and why no configuration reaches them.
WITHOUT_SECTION: Final[dict[str, str]] = {
    "CompactionPolicy": "a table inside the section of the catalog",
    "CoordinatorConfig": "a table inside the section of every store that has a coordinator",
    "DeltaPolicy": "a choice inside SeriesConfig",
    "ExponentialPolicy": "a choice inside SeriesConfig",
    "EngineConfig": "a table inside the section of the time series",
    "IndexingConfig": "put together from the sections and from what a command is given",
    "NotificationRules": "a table inside the section of the gateway",
    "OtlpOutletConfig": "a table inside the section of relays",
    "ParquetOutletConfig": "a table inside the section of relays",
    "QueueOutletConfig": "a table inside the section of relays",
    "QuiverConfig": "a store at the edge has a YAML file of its own, given to its commands",
    "RegisterPolicy": "every room sets its register's bounds from its own deadlines",
    "RetentionConfig": "a group inside QuiverConfig",
    "RunnerConfig": "no command runs a runner: it is for programs that bring their own sink",
    "SegmentConfig": "a group inside QuiverConfig",
    "ServiceOptions": "what the options of the three services have in common",
    "SizeCapPolicy": "a choice inside RetentionConfig",
    "SubscriberConfig": "given by the program that subscribes",
    "TelemetryConfig": "put together from the sections and from what a command is given",
    "TenantLimits": "a table inside the section of the gateway",
    "WalConfig": "a group inside QuiverConfig",
}


def class_of(section: str) -> type[Any]:
    """The class behind a section."""
    module, _, name = SECTIONS[section].partition(":")
    found: type[Any] = getattr(import_module(module), name)
    return found


def section_of(kind: type[Any]) -> str:
    """The section of a class, which is in the table."""
    return next(name for name, path in SECTIONS.items() if path.endswith(f":{kind.__name__}"))


def fields_of(kind: type[Any]) -> dict[str, Any]:
    """The settings of a class and their types, in its order."""
    hints = get_type_hints(kind)
    if not dataclasses.is_dataclass(kind):
        return {name: hints[name] for name in kind.__struct_fields__}
    return {one.name: hints[one.name] for one in dataclasses.fields(kind) if not one.name.startswith("_")}


def is_section(kind: Any) -> bool:
    """Whether a field of this type is a table of its own."""
    return isinstance(kind, type) and (dataclasses.is_dataclass(kind) or hasattr(kind, "__struct_fields__"))
