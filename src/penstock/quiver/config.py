"""The settings of a store, with the keys of its YAML: `segment.target_size`, `wal.flush_interval`, `retention.size_cap`.

```yaml
path: ./quiver_data
segment:
  target_size: 32MB
wal:
  max_size: 4GB
  flush_interval: 25ms
retention:
  max_retain_after_ingestion_hours: 72
  size_cap: 500GB
  size_cap_policy: backpressure   # or drop_oldest
```
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final

from penstock.errors import InvalidInput
from penstock.quiver.quantities import parse_seconds, parse_size
from penstock.quiver.setting_values import choice, chosen, grouped, nested, persistence_settings, positive, whole

__all__ = [
    "DeliveryOrder",
    "Durability",
    "OrphanPolicy",
    "QuiverConfig",
    "RetentionConfig",
    "SegmentConfig",
    "SizeCapPolicy",
    "SubscriberConfig",
    "WalConfig",
    "WriteMode",
    "check_subscriber",
]

_SUBSCRIBER: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")
_HOUR_MS: Final = 3_600_000


class Durability(StrEnum):
    """What an acknowledgement of `ingest` means."""

    SYNC = "sync"  # a sync of its own
    GROUP = "group"  # a sync shared with whoever came at the same time
    SEGMENT_ONLY = "segment_only"  # taken into memory; durable with its segment
    OFF = "off"  # nothing is ever written: the same interface, for comparison


class WriteMode(StrEnum):
    """How the log's files are written."""

    AUTO = "auto"  # directly where a probe of the file system succeeds, buffered elsewhere
    DIRECT = "direct"
    BUFFERED = "buffered"


class SizeCapPolicy(StrEnum):
    """What happens at the cap when every processed segment is gone."""

    BACKPRESSURE = "backpressure"  # callers wait, nothing is lost
    DROP_OLDEST = "drop_oldest"  # the oldest unprocessed data goes, and is recorded as dropped


class DeliveryOrder(StrEnum):
    OLDEST_FIRST = "oldest_first"
    NEWEST_FIRST = "newest_first"


class OrphanPolicy(StrEnum):
    """What happens to the unprocessed data of a subscriber without calls."""

    KEEP = "keep"  # it keeps its data, until retention takes it
    RELEASE = "release"  # it is unregistered, and its data goes


@dataclass(frozen=True, slots=True)
class SegmentConfig:
    """When the open segment becomes a file."""

    target_size: int = 32 << 20
    max_open_duration: float = 5.0
    # The timestamp column whose range is kept for each segment; none, and bundles bring their own ranges.
    event_time_column: str = ""
    # How long a full segment may be delivered from memory before it is written; 0: it is written first.
    memory_delivery_seconds: float = 1.0

    def __post_init__(self) -> None:
        whole("segment.target_size", self.target_size)
        positive("segment.memory_delivery_seconds", self.memory_delivery_seconds, least=0)
        positive("segment.max_open_duration", self.max_open_duration)
        if not isinstance(self.event_time_column, str):
            raise InvalidInput(f"segment.event_time_column is {self.event_time_column!r}", "it must be a column's name")


@dataclass(frozen=True, slots=True)
class WalConfig:
    """How the write-ahead log is written."""

    max_size: int = 4 << 30
    # The longest that a record waits for others to share its sync with; a free disk takes it at once.
    flush_interval: float = 0.025
    rotation_size: int = 64 << 20
    # Empty files kept for reuse: overwriting them is faster than growing new ones.
    spare_files: int = 2
    write_mode: WriteMode = WriteMode.AUTO

    def __post_init__(self) -> None:
        whole("wal.max_size", self.max_size)
        whole("wal.rotation_size", self.rotation_size)
        whole("wal.spare_files", self.spare_files, least=0)
        positive("wal.flush_interval", self.flush_interval, least=0)
        chosen(self, "write_mode", WriteMode, "wal.")
        if self.max_size < 2 * self.rotation_size:
            raise InvalidInput(
                f"wal.max_size of {self.max_size} bytes is too small",
                f"two files of wal.rotation_size, {self.rotation_size} bytes, must fit",
                "raise wal.max_size or lower wal.rotation_size",
            )


@dataclass(frozen=True, slots=True)
class RetentionConfig:
    """What is kept, for how long, and what happens at the size limit."""

    max_retain_after_ingestion_hours: float = 72.0
    size_cap: int = 500 << 30
    # None: no cap on their number.
    segment_count_cap: int | None = None
    size_cap_policy: SizeCapPolicy = SizeCapPolicy.BACKPRESSURE
    # Bytes of processed segments that stay all the same.
    steady_state_headroom: int = 0

    def __post_init__(self) -> None:
        positive("retention.max_retain_after_ingestion_hours", self.max_retain_after_ingestion_hours)
        whole("retention.size_cap", self.size_cap)
        whole("retention.steady_state_headroom", self.steady_state_headroom, least=0)
        chosen(self, "size_cap_policy", SizeCapPolicy, "retention.")
        if self.segment_count_cap is not None:
            whole("retention.segment_count_cap", self.segment_count_cap)

    @property
    def max_retain_ms(self) -> int:
        return int(self.max_retain_after_ingestion_hours * _HOUR_MS)


@dataclass(frozen=True, slots=True)
class SubscriberConfig:
    """How one subscriber is served."""

    order: DeliveryOrder = DeliveryOrder.OLDEST_FIRST
    # A new subscriber begins with what is there; or with what comes.
    from_newest: bool = False
    # Deliveries that may be open at once.
    in_flight_max: int = 8
    retry_seconds_first: float = 0.5
    retry_seconds_max: float = 60.0
    # After so many refusals a segment is a dead letter; 0: never.
    attempts_max: int = 0

    def __post_init__(self) -> None:
        chosen(self, "order", DeliveryOrder)
        if not isinstance(self.from_newest, bool):
            raise InvalidInput(f"from_newest is {self.from_newest!r}", "it must be true or false")
        whole("in_flight_max", self.in_flight_max)
        whole("attempts_max", self.attempts_max, least=0)
        positive("retry_seconds_first", self.retry_seconds_first)
        positive("retry_seconds_max", self.retry_seconds_max)
        if self.retry_seconds_max < self.retry_seconds_first:
            raise InvalidInput(
                "retry_seconds_max is below retry_seconds_first", "pauses grow from the first to the second"
            )


@dataclass(frozen=True, slots=True)
class QuiverConfig:
    """All settings of a store. Its YAML has the keys of the three groups."""

    segment: SegmentConfig = field(default_factory=SegmentConfig)
    wal: WalConfig = field(default_factory=WalConfig)
    retention: RetentionConfig = field(default_factory=RetentionConfig)
    durability: Durability = Durability.GROUP
    orphan_policy: OrphanPolicy = OrphanPolicy.KEEP
    # A subscriber is an orphan when nobody asked for it for so long.
    orphan_after_hours: float = 24.0
    # Acknowledgements between two checkpoints: what a start replays at most.
    checkpoint_records: int = 10_000
    # Room set aside for each file of ack.log; a larger checkpoint makes its file larger.
    ack_log_file_size: int = 1 << 20
    # Fair shares of the cap are reckoned for so many instances of one directory.
    instances: int = 1
    maintenance_seconds: float = 1.0

    def __post_init__(self) -> None:
        for name, kind in _GROUPS.items():
            grouped(self, name, kind)
        chosen(self, "durability", Durability)
        chosen(self, "orphan_policy", OrphanPolicy)
        whole("checkpoint_records", self.checkpoint_records)
        whole("ack_log_file_size", self.ack_log_file_size)
        whole("instances", self.instances)
        positive("orphan_after_hours", self.orphan_after_hours)
        positive("maintenance_seconds", self.maintenance_seconds)
        files = (2 + self.wal.spare_files) * self.wal.rotation_size + 3 * self.ack_log_file_size
        needed = self.instances * (files + 2 * self.segment.target_size)
        if self.retention.size_cap < needed and self.durability is not Durability.OFF:
            raise InvalidInput(
                f"retention.size_cap of {self.retention.size_cap} bytes is too small",
                f"the files of the log and of ack.log, and two segments, need {needed} bytes for all instances",
                "raise the cap, or lower wal.rotation_size, wal.spare_files and segment.target_size",
            )

    @staticmethod
    def from_mapping(settings: Mapping[str, Any]) -> QuiverConfig:
        """From nested keys or dotted ones (`retention.size_cap_policy`); a key that nothing reads is an error."""
        config: QuiverConfig = _read(QuiverConfig, nested(settings), "")
        return config

    @staticmethod
    def from_yaml(text: str | bytes) -> tuple[str | None, QuiverConfig]:
        """The path that the text names, if it does, and the settings. Needs the extra `quiver`.

        The text may also be that of a whole pipeline, `nodes` with one for persistence among them.
        """
        import yaml

        if not isinstance(text, str | bytes):
            raise InvalidInput(f"the configuration is a {type(text).__name__}", "it must be the text of a YAML file")
        try:
            settings = yaml.safe_load(text) or {}
        except (yaml.YAMLError, ValueError, RecursionError) as error:
            # A date that no calendar has is a ValueError, and a thousand nested lists a RecursionError.
            raise InvalidInput("the configuration is not YAML", str(error)) from error
        if not isinstance(settings, dict):
            raise InvalidInput("the configuration is not a YAML mapping", f"it is a {type(settings).__name__}")
        settings = persistence_settings(settings)
        path = settings.pop("path", None)
        if path is not None and not isinstance(path, str):
            raise InvalidInput(f"path is {path!r}", "it must be text", "put it in quotes")
        return path, QuiverConfig.from_mapping(settings)


def check_subscriber(name: Any) -> str:
    if not (isinstance(name, str) and _SUBSCRIBER.fullmatch(name)):
        raise InvalidInput(
            f"{name!r} cannot be a subscriber", "names have 1 to 64 letters, digits, underscores and hyphens"
        )
    return name


_GROUPS: Final[dict[str, Any]] = {"segment": SegmentConfig, "wal": WalConfig, "retention": RetentionConfig}
_SIZE_KEYS: Final = {
    "target_size",
    "max_size",
    "rotation_size",
    "size_cap",
    "steady_state_headroom",
    "ack_log_file_size",
}
_TIME_KEYS: Final = {"max_open_duration", "memory_delivery_seconds", "flush_interval", "maintenance_seconds"}
_ENUM_KEYS: Final[dict[str, type[StrEnum]]] = {
    "durability": Durability,
    "orphan_policy": OrphanPolicy,
    "size_cap_policy": SizeCapPolicy,
    "write_mode": WriteMode,
}


def _read(kind: Any, settings: Mapping[str, Any], prefix: str) -> Any:
    known = {one.name for one in dataclasses.fields(kind)}
    for key in settings:
        if key not in known:
            raise InvalidInput(f"{prefix}{key} is not a setting of a quiver", f"there are {', '.join(sorted(known))}")
    return kind(**{key: _value(key, value, prefix) for key, value in settings.items()})


def _value(key: str, value: Any, prefix: str) -> Any:
    if key in _GROUPS:
        if not isinstance(value, Mapping):
            raise InvalidInput(f"{key} is not a group of settings", f"it is {value!r}")
        return _read(_GROUPS[key], value, f"{key}.")
    if key in _SIZE_KEYS:
        return parse_size(value, f"{prefix}{key}")
    if key in _TIME_KEYS:
        return parse_seconds(value, f"{prefix}{key}")
    if key in _ENUM_KEYS:
        return choice(_ENUM_KEYS[key], f"{prefix}{key}", value)
    return value
