"""One configuration reaches every room, and whatever it cannot use is refused with its place and a remedy."""

from __future__ import annotations

import math
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from penstock.buffer import CollectorConfig, ConsumerConfig, ProducerConfig
from penstock.buffer.config import DeadLetterPolicy
from penstock.buffer.format.batch import Compression
from penstock.cli.settings.configuration import Settings, load_settings
from penstock.cli.settings.options import SETTINGS_FILE, settings_option
from penstock.cli.settings.sections import SECTIONS, class_of
from penstock.errors import InvalidInput, NotFound, PenstockError, PermissionDenied
from penstock.gateway import GatewayConfig
from penstock.objects.cloud.services import AzureOptions, S3Options
from penstock.vector import VectorConfig


def loaded(folder: Path, text: str = "", **environment: str) -> Settings:
    file = folder / "given.toml"
    file.write_text(text)
    return load_settings(file, environment, folder=folder)


def refusal(folder: Path, text: str = "", kind: type = VectorConfig, **environment: str) -> PenstockError:
    with pytest.raises(InvalidInput) as caught:
        loaded(folder, text, **environment).of(kind)
    assert caught.value.remedy
    return caught.value


@pytest.mark.parametrize("section", SECTIONS)
def test_every_section_is_as_its_room_has_it_when_nothing_is_configured(section: str) -> None:
    kind = class_of(section)
    assert Settings().of(kind) == kind()


def test_a_file_sets_what_it_names_and_leaves_the_rest(tmp_path: Path) -> None:
    settings = loaded(
        tmp_path,
        """
        [vector]
        cache_bytes = 1_000_000
        recall_target = 1
        rerank = false
        [vector.coordinator]
        flush_interval_seconds = inf
        [producer]
        compression = "zstd"
        [consumer]
        dead_letter = "set-aside"
        """,
    )
    vector = settings.of(VectorConfig)
    assert (vector.cache_bytes, vector.recall_target, vector.rerank) == (1_000_000, 1.0, False)
    assert vector.list_rows == VectorConfig().list_rows
    assert vector.coordinator.flush_interval_seconds == math.inf
    assert settings.of(ProducerConfig).compression is Compression.ZSTD
    assert settings.of(ConsumerConfig).dead_letter is DeadLetterPolicy.SET_ASIDE
    assert settings.given(VectorConfig).keys() == {"cache_bytes", "recall_target", "rerank", "coordinator"}


def test_the_environment_comes_before_the_file_and_options_before_both(tmp_path: Path) -> None:
    text = "[producer]\nflush_interval_seconds = 1\nupload_attempts = 2\nmax_in_flight_batches = 3"
    environment = {"PENSTOCK_PRODUCER_UPLOAD_ATTEMPTS": "20", "PENSTOCK_PRODUCER_MAX_IN_FLIGHT_BATCHES": "30"}
    config = loaded(tmp_path, text, **environment).of(ProducerConfig, max_in_flight_batches=300, upload_attempts=None)
    assert config.flush_interval_seconds == 1.0
    assert config.upload_attempts == 20
    assert config.max_in_flight_batches == 300


def test_the_environment_gives_lists_and_tables_too(tmp_path: Path) -> None:
    config = loaded(
        tmp_path,
        PENSTOCK_GATEWAY_HOSTS="a.example, b.example",
        PENSTOCK_GATEWAY_PROXIES='["10.0.0.0/8"]',
        PENSTOCK_GATEWAY_BUCKETS="",
        PENSTOCK_GATEWAY_NOTIFICATIONS_TOPICS='{"acme": ["arn:aws:sns:us-east-1:1:t"]}',
    ).of(GatewayConfig)
    assert (config.hosts, config.proxies, config.buckets) == (("a.example", "b.example"), ("10.0.0.0/8",), ())
    assert config.notifications.topics == {"acme": ("arn:aws:sns:us-east-1:1:t",)}
    for text in ('["a"', "[1]", '{"a": 1}'):
        assert "PENSTOCK_GATEWAY_HOSTS" in refusal(tmp_path, "", GatewayConfig, PENSTOCK_GATEWAY_HOSTS=text).what


def test_the_environment_is_text_and_becomes_what_the_setting_is(tmp_path: Path) -> None:
    settings = loaded(
        tmp_path,
        PENSTOCK_VECTOR_RERANK="false",
        PENSTOCK_VECTOR_UPKEEP_PAUSE_SECONDS="inf",
        PENSTOCK_VECTOR_COORDINATOR_MAX_UNSETTLED_FLUSHES="2",
        PENSTOCK_PRODUCER_COMPRESSION="ZSTD",
        PENSTOCK_PRODUCER_MAX_WAITING_BYTES="7",
        PENSTOCK_S3_ENDPOINT="http://127.0.0.1:9000",
    )
    vector = settings.of(VectorConfig)
    assert (vector.rerank, vector.upkeep_pause_seconds) == (False, math.inf)
    assert vector.coordinator.max_unsettled_flushes == 2
    assert settings.of(ProducerConfig).compression is Compression.ZSTD
    assert settings.of(ProducerConfig).max_waiting_bytes == 7
    assert settings.of(S3Options).endpoint == "http://127.0.0.1:9000"


def test_a_value_that_cannot_be_used_is_named_with_its_file_and_its_key(tmp_path: Path) -> None:
    error = refusal(tmp_path, '[vector]\ncache_bytes = "much"')
    assert str(tmp_path / "given.toml") in error.what
    assert "[vector] cache_bytes = 'much'" in error.what
    error = refusal(tmp_path, "", PENSTOCK_VECTOR_CACHE_BYTES="much")
    assert "PENSTOCK_VECTOR_CACHE_BYTES=much" in error.what
    error = refusal(tmp_path, "[producer]\ncompression = 'lz4'", ProducerConfig)
    assert "none, zstd" in (error.remedy or "")


def test_a_true_is_no_number_and_a_number_no_text(tmp_path: Path) -> None:
    refusal(tmp_path, "[vector]\ncache_bytes = true")
    refusal(tmp_path, "[vector]\ncache_bytes = 1.5")
    refusal(tmp_path, "[producer]\nmanifest_path = 3", ProducerConfig)
    refusal(tmp_path, "[vector]\nrerank = 1")


def test_a_secret_that_cannot_be_used_is_named_and_never_quoted(tmp_path: Path) -> None:
    told = refusal(tmp_path, '[s3]\nsecret_access_key = ["hunter2"]', S3Options)
    assert "secret_access_key" in told.what
    assert "hunter2" not in str(told)
    told = refusal(tmp_path, "[azure]\naccount_key = 7654321", AzureOptions)
    assert "7654321" not in str(told)


def test_no_number_is_no_setting(tmp_path: Path) -> None:
    assert "NaN" in str(refusal(tmp_path, "[vector]\nupkeep_pause_seconds = nan"))
    assert "NaN" in str(refusal(tmp_path, "", PENSTOCK_VECTOR_UPKEEP_PAUSE_SECONDS="nan"))


def test_settings_that_contradict_each_other_are_refused_with_their_file(tmp_path: Path) -> None:
    error = refusal(tmp_path, "[vector.coordinator]\nmax_pending_bytes = 9_000_000_000")
    assert str(tmp_path / "given.toml") in error.what
    assert "[vector]" in error.what
    assert "max_pending_bytes" in error.what


def test_a_key_that_does_not_exist_is_refused_and_a_near_one_is_offered(tmp_path: Path) -> None:
    assert "cache_bytes" in str(refusal(tmp_path, "[vector]\ncache_byte = 1").remedy)
    assert "vector" in str(refusal(tmp_path, "[vectors]\ncache_bytes = 1").remedy)
    assert "producer" in str(refusal(tmp_path, "[zzz]").remedy)
    error = refusal(tmp_path, "[vector.coordinator]\nmax_pending_byte = 1")
    assert "[vector.coordinator]" in error.what
    error = refusal(tmp_path, "", PENSTOCK_VECTOR_CACHE_BYTE="1")
    assert "PENSTOCK_VECTOR_CACHE_BYTES" in str(error.remedy)


def test_a_section_is_a_table_and_a_setting_is_none(tmp_path: Path) -> None:
    assert "[vector]" in str(refusal(tmp_path, "vector = 1").remedy)
    assert "[vector.coordinator]" in str(refusal(tmp_path, "[vector]\ncoordinator = 1").remedy)
    refusal(tmp_path, "[vector.cache_bytes]\nx = 1")


def test_variables_of_others_are_left_alone(tmp_path: Path) -> None:
    """An orchestrator names the addresses of services in variables; keys of endpoints have names of their own."""
    settings = loaded(
        tmp_path,
        PENSTOCK_VECTOR_SERVICE_HOST="10.0.0.1",
        PENSTOCK_PRODUCER_PORT="tcp://10.0.0.1:80",
        PENSTOCK_EMBEDDING_KEY="k",
        PENSTOCK_EMBEDDING_KEYS_FILE="f",
        PENSTOCK_BUCKETS="a=b",
        PENSTOCK_CONFIG="c",
        VECTOR_CACHE_BYTES="1",
    )
    assert settings.said == {}


@pytest.mark.parametrize("text", ["[vector\n[x]", "a = \nb = 1", "[vector]\ncache_bytes = 1\ncache_bytes = 2\n\n"])
def test_what_is_no_toml_is_refused_with_its_line(tmp_path: Path, text: str) -> None:
    assert "line" in refusal(tmp_path, text).why


def test_bytes_that_are_no_text_and_deep_nesting_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "odd.toml"
    for data in (b"\xff\xfe", b"a = " + b"[" * 100_000, b"#" * ((1 << 20) + 1)):
        file.write_bytes(data)
        with pytest.raises(InvalidInput):
            load_settings(file, {})


def test_a_file_that_was_named_must_be_there(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match=r"none\.toml"):
        load_settings(tmp_path / "none.toml", {})
    with pytest.raises(InvalidInput, match="folder"):
        load_settings(tmp_path, {})


def test_the_file_in_the_working_directory_is_read_without_being_named(tmp_path: Path) -> None:
    assert load_settings(None, {}, folder=tmp_path) == Settings()
    (tmp_path / SETTINGS_FILE).write_text("[collector]\ngrace_seconds = 60")
    assert load_settings(None, {}, folder=tmp_path).of(CollectorConfig).grace_seconds == 60


def test_a_file_that_anybody_can_write_is_read_only_when_it_is_named(tmp_path: Path) -> None:
    file = tmp_path / SETTINGS_FILE
    file.write_text("[s3]\nendpoint = 'http://elsewhere'")
    file.chmod(0o666)
    with pytest.raises(PermissionDenied, match="--config"):
        load_settings(None, {}, folder=tmp_path)
    assert load_settings(file, {}).of(S3Options).endpoint == "http://elsewhere"


def test_a_command_reads_the_file_that_its_option_or_the_environment_names(tmp_path: Path) -> None:
    @click.command()
    @settings_option
    def show(settings: Settings) -> None:
        click.echo(settings.of(CollectorConfig).grace_seconds)

    file = tmp_path / "c.toml"
    file.write_text("[collector]\ngrace_seconds = 61")
    assert CliRunner().invoke(show, ["--config", str(file)]).output == "61.0\n"
    assert CliRunner().invoke(show, [], env={"PENSTOCK_CONFIG": str(file)}).output == "61.0\n"
    named = {"PENSTOCK_CONFIG": str(file), "PENSTOCK_COLLECTOR_GRACE_SECONDS": "62"}
    assert CliRunner().invoke(show, [], env=named).output == "62.0\n"
