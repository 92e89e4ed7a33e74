"""The YAML of the design is read with its keys and units, and a wrong one says what is wrong."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from penstock.errors import InvalidInput
from penstock.quiver import (
    DeliveryOrder,
    Durability,
    OrphanPolicy,
    QuiverConfig,
    RetentionConfig,
    SizeCapPolicy,
    SubscriberConfig,
    WalConfig,
    WriteMode,
)
from penstock.quiver.config import check_subscriber
from penstock.quiver.quantities import parse_seconds, parse_size

EXAMPLE = """
path: ./quiver_data
segment:
  target_size: 32MB
wal:
  max_size: 4GB
  flush_interval: 25ms
retention:
  max_retain_after_ingestion_hours: 72
  size_cap: 500GB
  size_cap_policy: drop_oldest
"""


def test_the_example_of_the_design_is_the_default() -> None:
    path, config = QuiverConfig.from_yaml(EXAMPLE)
    assert path == "./quiver_data"
    default = QuiverConfig()
    assert config.segment == default.segment
    assert config.wal == default.wal
    assert config.retention == RetentionConfig(size_cap_policy=SizeCapPolicy.DROP_OLDEST)
    assert default.retention.size_cap_policy is SizeCapPolicy.BACKPRESSURE


def test_the_node_for_persistence_is_found_in_a_whole_pipeline() -> None:
    inner = EXAMPLE.replace("\n", "\n      ")
    node = f"nodes:\n  receiver: {{kind: receiver}}\n  persistence:\n    plugin_urn: urn:otap:processor:persistence\n    config:{inner}"
    assert QuiverConfig.from_yaml(node) == QuiverConfig.from_yaml(EXAMPLE)
    for nodes in ("{a: {kind: receiver}}", "{a: {plugin_urn: 'urn:x:processor:persistence', config: 3}}", "{}"):
        with pytest.raises(InvalidInput, match=r"nodes"):
            QuiverConfig.from_yaml(f"nodes: {nodes}")


@pytest.mark.parametrize(
    "settings",
    [
        {"checkpoint_records": "many"},
        {"retention.max_retain_after_ingestion_hours": "72h"},
        {"retention.segment_count_cap": "3"},
        {"instances": 1.5},
        {"wal.spare_files": -1},
        {"maintenance_seconds": 0},
        {"orphan_after_hours": float("nan")},
        {"segment.event_time_column": 5},
    ],
)
def test_a_value_of_the_wrong_kind_is_named(settings: dict[str, object]) -> None:
    with pytest.raises(InvalidInput) as refused:
        QuiverConfig.from_mapping(settings)
    assert next(iter(settings)) in str(refused.value)


def test_dotted_keys_and_a_bare_off_are_understood() -> None:
    _, config = QuiverConfig.from_yaml(
        "retention.size_cap_policy: backpressure\nretention.size_cap: 600GB\ndurability: off"
    )
    assert config.durability is Durability.OFF
    assert config.retention.size_cap == 600 << 30
    assert QuiverConfig.from_yaml("") == (None, QuiverConfig())


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("retention:\n  size_capp: 1GB", "retention.size_capp"),
        ("segment:\n  target_size: 32XB", "32XB"),
        ("wal:\n  flush_interval: soon", "soon"),
        ("retention:\n  size_cap_policy: drop", "drop_oldest"),
        ("retention:\n  size_cap: 1MB", "too small"),
        ("wal: 3", "wal"),
        ("wal: 3\nwal.max_size: 8GB", "wal is not a group"),
        ("wal:\n  max_size: 1MB", "wal.max_size"),
        ("- a", "list"),
        ("a: [", "YAML"),
        ("segment:\n  target_size: true", "boolean"),
        ("segment:\n  target_size: 0", "above zero"),
    ],
)
def test_a_setting_that_cannot_be_used_is_named(text: str, named: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        QuiverConfig.from_yaml(text)
    assert named in str(refused.value)


@pytest.mark.parametrize(
    ("text", "size"), [("32MB", 32 << 20), ("32MiB", 32 << 20), ("4g", 4 << 30), ("1.5K", 1536), (7, 7), ("9B", 9)]
)
def test_sizes(text: str | int, size: int) -> None:
    assert parse_size(text) == size


@pytest.mark.parametrize(("text", "seconds"), [("25ms", 0.025), ("5s", 5.0), (3, 3.0), ("2h", 7200.0), ("0.5", 0.5)])
def test_durations(text: str | int, seconds: float) -> None:
    assert parse_seconds(text) == seconds


@pytest.mark.parametrize("name", ["", "a b", "ä", "x" * 65, "a/b", "a\n"])
def test_subscribers_have_plain_names(name: str) -> None:
    with pytest.raises(InvalidInput):
        check_subscriber(name)
    assert check_subscriber("otlp_exporter-1") == "otlp_exporter-1"


def test_settings_that_contradict_each_other_are_refused() -> None:
    with pytest.raises(InvalidInput):
        WalConfig(max_size=100, rotation_size=100)


def test_choices_may_be_given_as_text_and_mean_the_same() -> None:
    assert QuiverConfig(durability="off").durability is Durability.OFF  # type: ignore[arg-type]
    assert QuiverConfig(orphan_policy="release").orphan_policy is OrphanPolicy.RELEASE  # type: ignore[arg-type]
    assert WalConfig(write_mode="direct").write_mode is WriteMode.DIRECT  # type: ignore[arg-type]
    retention = RetentionConfig(size_cap_policy="drop_oldest")  # type: ignore[arg-type]
    assert retention.size_cap_policy is SizeCapPolicy.DROP_OLDEST
    order = SubscriberConfig(order="newest_first").order  # type: ignore[arg-type]
    assert order is DeliveryOrder.NEWEST_FIRST


@pytest.mark.parametrize(
    "make",
    [
        lambda: QuiverConfig(durability="sometimes"),  # type: ignore[arg-type]
        lambda: QuiverConfig(durability=None),  # type: ignore[arg-type]
        lambda: WalConfig(write_mode="bufferd"),  # type: ignore[arg-type]
        lambda: RetentionConfig(size_cap_policy="drop"),  # type: ignore[arg-type]
        lambda: SubscriberConfig(order="random"),  # type: ignore[arg-type]
        lambda: SubscriberConfig(from_newest="no"),  # type: ignore[arg-type]
        lambda: QuiverConfig(segment=5),  # type: ignore[arg-type]
        lambda: QuiverConfig(wal={"max_size": 1}),  # type: ignore[arg-type]
        lambda: QuiverConfig(retention=None),  # type: ignore[arg-type]
    ],
)
def test_a_setting_of_another_kind_is_refused_by_name(make: Callable[[], object]) -> None:
    with pytest.raises(
        InvalidInput, match=r"durability|write_mode|size_cap_policy|order|from_newest|segment|wal|retention"
    ):
        make()


BEYOND = 10**400


@pytest.mark.parametrize(
    "value", [None, [1], {"MB": 1}, True, "many", "1 furlong", BEYOND, str(BEYOND)], ids=lambda value: repr(value)[:12]
)
@pytest.mark.parametrize("key", ["segment.target_size", "wal.flush_interval", "maintenance_seconds"])
def test_a_quantity_that_is_none_is_refused_by_the_name_of_its_setting(key: str, value: object) -> None:
    with pytest.raises(InvalidInput, match=key):
        QuiverConfig.from_mapping({key: value})


@pytest.mark.parametrize("make", [lambda: WalConfig(flush_interval=BEYOND), lambda: WalConfig(rotation_size=1 << 63)])
def test_a_number_that_nothing_can_count_to_is_refused(make: Callable[[], object]) -> None:
    with pytest.raises(InvalidInput, match=r"wal\.(flush_interval|rotation_size)"):
        make()


@pytest.mark.parametrize("text", [None, 5, "a: 2001-99-99", "[" * 5000, "segment:\n  target_size:\n"])
def test_a_text_that_is_no_configuration_is_refused(text: str) -> None:
    with pytest.raises(InvalidInput):
        QuiverConfig.from_yaml(text)


def test_settings_that_are_no_mapping_are_refused() -> None:
    with pytest.raises(InvalidInput, match="must be a mapping"):
        QuiverConfig.from_mapping(None)  # type: ignore[arg-type]
