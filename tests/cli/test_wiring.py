"""Every setting has a road: what is configured is what the rooms are opened with, field by field."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import UTC, datetime
from enum import Enum
from pathlib import Path
from typing import Any, get_args, get_origin

import pytest

from penstock.buffer import ConsumerConfig, ProducerConfig
from penstock.cli.jobs.shelf import Order
from penstock.cli.running.job import JobPlan
from penstock.cli.settings.configuration import Settings, load_settings
from penstock.cli.settings.sections import SECTIONS, class_of, fields_of, is_section
from penstock.cli.settings.wiring import Wiring
from penstock.documents import ChunkingConfig, UploadNotification
from penstock.documents.embedding import EMBEDDED_MODEL, PROFILES, DispatchPolicy, RateLimit
from penstock.documents.parsers import ParserLimits
from penstock.indexing.job.config import IntakeLimits
from penstock.indexing.planning.plan import RoundLimits
from penstock.indexing.registry.reindexing import Wish
from penstock.indexing.search.providers import Provider
from penstock.indexing.sending.places import url_of
from penstock.indexing.sending.queue import is_waiting, send
from penstock.indexing.stages.embedding import Embedding
from penstock.indexing.stages.fetching import FetchLimits
from penstock.keyvalue import KeyValueConfig
from penstock.objects import RetryPolicy
from penstock.objects.cloud.services import S3Options
from penstock.vector import VectorConfig

# Values that a default next to them would contradict.
FITTING: dict[tuple[str, ...], Any] = {
    ("catalog", "format"): 2,
    ("catalog", "legacy"): "refuse",
    ("catalog", "conflict_rate_warn"): 0.4,
    ("chunking", "counter"): "estimate",
    ("chunking", "max_tokens"): 1300,
    ("chunking", "overlap_tokens"): 99,
    ("observability", "metrics"): "9464",
    ("observability", "log_format"): "json",
    ("observability", "log_level"): "debug",
    ("producer", "manifest_path"): "queue/manifest",
    ("producer", "data_path_prefix"): "queue",
    ("consumer", "manifest_path"): "queue/manifest",
    ("consumer", "data_path_prefix"): "queue",
    ("collector", "manifest_path"): "queue/manifest",
    ("collector", "data_path_prefix"): "queue",
    ("compaction", "bloom_probability"): 0.02,
    ("gateway", "buckets"): ("photos",),
    ("gateway", "hosts"): ("penstock.example",),
    ("serve", "engine"): "local",
    ("serve", "jobs"): ("index",),
    ("serve", "roles"): ("gateway", "query"),
    ("timeseries", "retention_seconds"): 86_400.0,
    ("vector", "recall_target"): 0.9,
    ("vector", "dead_share_max"): 0.3,
}


def other(path: tuple[str, ...], default: Any, hint: Any) -> Any:
    """A value that is not the default, and fits beside those of the other settings."""
    if path in FITTING:
        return FITTING[path]
    kinds = [kind for kind in (hint, *get_args(hint)) if isinstance(kind, type)]
    enums = [kind for kind in kinds if issubclass(kind, Enum)]
    if enums:
        return next(member for member in enums[0] if member is not default)
    if get_origin(hint) is tuple:
        return ("10.0.0.7",)
    if get_origin(hint) is dict:
        return {"acme": ("10.0.0.7",)}
    if isinstance(default, bool) or bool in kinds:
        return not default
    if isinstance(default, int | float):
        return type(default)(default + 1)
    return 7 if int in kinds else 7.0 if float in kinds else "7"


def toml(value: Any) -> str:
    if isinstance(value, Enum):
        return f'"{value.name.lower()}"'
    if isinstance(value, tuple):
        return repr(list(value))
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key} = {toml(each)}" for key, each in value.items()) + "}"
    return str(value).lower() if isinstance(value, bool) else repr(value)


def wanted(path: tuple[str, ...], kind: type) -> dict[str, Any]:
    usual = kind()
    return {
        name: (
            hint(**wanted((*path, name), hint))
            if is_section(hint)
            else other((*path, name), getattr(usual, name), hint)
        )
        for name, hint in fields_of(kind).items()
    }


def tables(path: tuple[str, ...], kind: type) -> str:
    lines, inner = [f"[{'.'.join(path)}]"], ""
    for name, hint in fields_of(kind).items():
        if is_section(hint):
            inner += tables((*path, name), hint)
        else:
            lines.append(f"{name} = {toml(other((*path, name), getattr(kind(), name), hint))}")
    return "\n".join(lines) + "\n" + inner


@pytest.fixture
def everything(tmp_path: Path) -> Settings:
    """A file in which every setting of every section is another than its default."""
    file = tmp_path / "everything.toml"
    file.write_text("\n".join(tables((section,), class_of(section)) for section in SECTIONS))
    return load_settings(file, {})


@pytest.mark.parametrize("section", SECTIONS)
def test_every_setting_of_every_section_can_be_configured(everything: Settings, section: str) -> None:
    kind = class_of(section)
    expected = kind(**wanted((section,), kind))
    assert everything.of(kind) == expected
    for name in fields_of(kind):
        assert getattr(expected, name) != getattr(kind(), name), name


def test_a_job_gets_every_section_that_is_about_it(everything: Settings) -> None:
    wiring = Wiring(everything)
    config = JobPlan("s3://bucket/prefix", wiring=wiring, reading=wiring.reading()).config
    assert config.rounds == everything.of(RoundLimits) != RoundLimits()
    assert IntakeLimits(config.batches_per_trigger, config.bytes_per_trigger) == everything.of(IntakeLimits)
    assert config.consumer == everything.of(ConsumerConfig) != ConsumerConfig()
    assert config.vector == everything.of(VectorConfig) != VectorConfig()
    assert config.keyvalue == everything.of(KeyValueConfig) != KeyValueConfig()
    assert config.reading.limits == everything.of(ParserLimits) != ParserLimits()
    assert config.reading.fetching == everything.of(FetchLimits) != FetchLimits()
    assert config.options == everything.given(S3Options)
    assert config.options.keys() == fields_of(S3Options).keys()
    assert config.batcher["max_items_per_batch"] == 129
    embedding = wiring.embedding(Embedding())
    assert embedding.policy == everything.of(DispatchPolicy) != DispatchPolicy()
    assert embedding.rate == everything.of(RateLimit) != RateLimit()


def test_documents_in_buckets_are_read_with_the_options_of_their_service(everything: Settings) -> None:
    reading = Wiring(everything).reading()
    assert reading.spec_of("bucket").options["endpoint"] == everything.of(S3Options).endpoint
    assert "endpoint" not in reading.spec_of("file:///folder").options
    assert reading.spec_of("gs://bucket").options.keys() >= {"service_account", "endpoint"}


def test_an_option_of_a_command_comes_before_the_configuration(everything: Settings) -> None:
    asked = Wiring(everything).embedding(Embedding(rate=RateLimit(requests_per_minute=1.5)))
    assert asked.rate == replace(everything.of(RateLimit), requests_per_minute=1.5)


def test_a_new_index_is_cut_as_is_configured_and_an_option_changes_it(tmp_path: Path) -> None:
    file = tmp_path / "c.toml"
    file.write_text("[chunking]\ntarget_tokens = 300\nmax_tokens = 500\noverlap_tokens = 30\ncell_bytes = 2048")
    wiring = Wiring(load_settings(file, {}))
    order = Order((), url_of(str(tmp_path / "store")), "default", "default", {}, "local[1]", wiring=wiring)
    shelf = order.laid_out(Wish(), Provider())
    assert shelf.chunking == wiring.settings.of(ChunkingConfig)
    assert shelf.plan.config.chunking.cell_bytes == 2048
    assert order.laid_out(Wish(None, None, 200), Provider()).chunking.target_tokens == 200


def test_batches_are_as_large_as_is_configured_and_never_larger_than_the_model_takes() -> None:
    profile = PROFILES[EMBEDDED_MODEL]
    usual = profile.batcher_limits()
    assert usual.max_items_per_batch == 128
    wanted = {"max_items_per_batch": 10_000, "max_tokens_per_batch": 5_000, "flush_after_ms": 9, "gap_chunks_max": 8}
    limits = profile.batcher_limits(wanted, chunk_tokens_max=1200)
    assert limits.max_items_per_batch == profile.items_per_request
    assert (limits.max_tokens_per_batch, limits.flush_after_ms, limits.gap_chunks_max) == (5_000, 9, 8)
    assert limits.max_tokens_per_input >= 1200
    tiny = profile.batcher_limits({"max_tokens_per_batch": 1, "max_tokens_per_input": 1}, chunk_tokens_max=1200)
    assert (tiny.max_tokens_per_batch, tiny.max_tokens_per_input) == (1200, 1200)
    small = PROFILES["BAAI/bge-small-en-v1.5"]
    assert small.batcher_limits({"max_tokens_per_batch": 10**9}) == small.batcher_limits()


def test_notifications_go_where_the_producer_is_configured_to(tmp_path: Path) -> None:
    file = tmp_path / "c.toml"
    file.write_text(
        "[producer]\ndata_path_prefix = 'queue'\nmanifest_path = 'queue/manifest'\n"
        "[consumer]\ndata_path_prefix = 'queue'\nmanifest_path = 'queue/manifest'\n[retry]\ndeadline_seconds = 5"
    )
    wiring, url = Wiring(load_settings(file, {})), url_of(str(tmp_path / "store"))
    assert wiring.spec(url).options == {"retry": RetryPolicy(deadline_seconds=5)}
    upload = UploadNotification(
        tenant_id="t",
        index_id="i",
        bucket="b",
        key="a.txt",
        size_bytes=1,
        model=EMBEDDED_MODEL,
        created_at=datetime(2026, 1, 1, tzinfo=UTC),
    )
    send(url, [upload], wiring)
    assert (tmp_path / "store" / "queue" / "manifest").exists()
    assert asyncio.run(is_waiting(url, wiring))
    assert not asyncio.run(is_waiting(url))
    assert wiring.settings.of(ProducerConfig).manifest_path == wiring.manifest_path
