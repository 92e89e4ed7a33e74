"""A model that nobody here knows can be used once it is described, and an index keeps to its description."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click
import msgspec
import pytest
from click.testing import CliRunner

from penstock.cli.main import penstock
from penstock.cli.settings.options import provider_options, rate_options
from penstock.documents.embedding import EMBEDDED_MODEL, ModelProfile, RateLimit, profile_of
from penstock.errors import InvalidInput, NotFound
from penstock.indexing.registry.reindexing import Wish, changed
from penstock.indexing.registry.settings import Build, Cut, IndexSettings
from penstock.indexing.search.providers import Description, Provider
from penstock.indexing.search.targets import Target, embedding_for
from penstock.indexing.stages.embedding import Endpoint, OwnModel
from penstock.vector import CollectionName

MODEL = "model-of-somebody"
SAID = Description(dimensions=48, tokens_per_input=512)
CUT = Cut(800, 1200, 100, "cl100k")
URL = "https://models.example/v1"
INDEX = ("t", "i")


def given(*arguments: str) -> Provider:
    found: list[Provider] = []

    @click.command()
    @rate_options
    @provider_options
    def command(provider: Provider) -> None:
        found.append(provider)

    answer = CliRunner().invoke(command, arguments, standalone_mode=False)
    if answer.exception:
        raise answer.exception
    return found[0]


def target(model: str, **build: Any) -> Target:
    made = Build(model=model, cut=CUT, **build)
    return Target(CollectionName(*INDEX, model), IndexSettings(tenant="t", index="i", current=made))


def test_options_describe_a_model_and_bounds_that_are_not_said_are_small_ones() -> None:
    provider = given("--dimensions", "48", "--input-tokens", "512", "--price", "0.5", "--embedding-url", URL)
    assert provider.description.profile(MODEL) == ModelProfile(
        name=MODEL,
        dimensions=48,
        tokens_per_input=512,
        tokens_per_request=16_384,
        items_per_request=32,
        usd_per_million_tokens=0.5,
    )


def test_a_file_describes_a_model_and_options_win_over_it(tmp_path: Path) -> None:
    file = tmp_path / "profile.json"
    file.write_text(json.dumps({"dimensions": 48, "tokens_per_input": 512, "items_per_request": 7, "headroom": 0.5}))
    profile = given("--profile", str(file), "--dimensions", "64").description.profile(MODEL)
    assert (profile.dimensions, profile.items_per_request, profile.headroom) == (64, 7, 0.5)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"[]",
        b'{"dimension": 48}',
        b'{"dimensions": 0}',
        b'{"dimensions": "48"}',
        b'{"headroom": 1.5}',
        b"\xff",
        b" " * (1 << 17),
    ],
)
def test_a_file_that_cannot_be_meant_is_refused_by_name(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "profile.json"
    file.write_bytes(content)
    with pytest.raises(InvalidInput, match=r"profile\.json"):
        given("--profile", str(file))


def test_a_model_of_which_too_little_is_said_is_refused() -> None:
    with pytest.raises(InvalidInput, match="tokens_per_input"):
        Description(dimensions=48).profile(MODEL)


def test_of_a_model_that_is_known_only_what_is_said_changes() -> None:
    known = profile_of("text-embedding-3-small")
    said = Description(usd_per_million_tokens=9.0).profile("text-embedding-3-small")
    assert said == msgspec.structs.replace(known, usd_per_million_tokens=9.0)


def test_the_rate_is_passed_on() -> None:
    provider = given("--requests-per-minute", "30", "--tokens-per-minute", "90000")
    assert provider.rate == RateLimit(30.0, 90_000.0)
    assert embedding_for(target(EMBEDDED_MODEL), provider).rate == provider.rate


@pytest.mark.parametrize("option", ["--price", "--requests-per-minute", "--tokens-per-minute"])
@pytest.mark.parametrize("number", ["nan", "inf", "1e999", "-1"])
def test_a_number_that_nothing_compares_with_is_no_price_and_no_rate(option: str, number: str) -> None:
    with pytest.raises(click.BadParameter):
        given(option, number)


@pytest.mark.parametrize("price", [float("nan"), float("inf"), 1e300, -0.5])
def test_a_price_that_no_report_can_hold_is_refused(price: float) -> None:
    with pytest.raises(InvalidInput, match="price"):
        msgspec.structs.replace(profile_of(EMBEDDED_MODEL), usd_per_million_tokens=price)


@pytest.mark.parametrize("rate", [float("nan"), float("inf"), 0.0, -1.0])
def test_a_rate_that_is_none_is_refused(rate: float) -> None:
    with pytest.raises(InvalidInput, match="rate"):
        RateLimit(tokens_per_minute=rate)


def test_an_index_remembers_how_its_model_was_described() -> None:
    profile = SAID.profile(MODEL)
    embedding = embedding_for(target(MODEL, endpoint=URL, profile=profile), Provider(key="k"))
    assert embedding.profile_of(MODEL, INDEX) == profile
    assert embedding.endpoint_of(MODEL, INDEX) == Endpoint(URL, "k")


def test_an_address_on_the_command_line_is_for_its_own_index_alone() -> None:
    embedding = embedding_for(target(MODEL, profile=SAID.profile(MODEL)), given("--embedding-url", URL))
    assert embedding.endpoint_of(MODEL, INDEX) == Endpoint(URL)
    for index in (("t", "another"), ("another", "i"), None):
        assert embedding.endpoint_of(MODEL, index) is None


def test_an_index_that_is_made_keeps_to_its_description_but_for_the_price() -> None:
    made = target(MODEL, endpoint=URL, profile=SAID.profile(MODEL))
    dearer = embedding_for(made, Provider(description=Description(usd_per_million_tokens=3.0)))
    assert dearer.profile_of(MODEL, INDEX).usd_per_million_tokens == 3.0
    with pytest.raises(InvalidInput, match="another profile"):
        embedding_for(made, Provider(description=Description(dimensions=64)))


def test_an_index_is_rebuilt_with_a_model_that_is_described() -> None:
    before = target(EMBEDDED_MODEL).settings
    assert before is not None
    profile = SAID.profile(MODEL)
    building = changed(before, Wish(MODEL, URL, profile=profile)).building
    assert building == Build(model=MODEL, cut=CUT, endpoint=URL, profile=profile)


def test_a_model_cannot_get_other_dimensions_under_the_same_name() -> None:
    before = target(MODEL, endpoint=URL, profile=SAID.profile(MODEL)).settings
    assert before is not None
    with pytest.raises(InvalidInput, match="48 dimensions"):
        changed(before, Wish(profile=Description(dimensions=64, tokens_per_input=512).profile(MODEL)))


@pytest.mark.parametrize(
    "url",
    [
        "models.example/v1",
        "ftp://models.example",
        "https://user:word@models.example",
        "https://models.example:port/v1",
        "http://[::1/v1",
        "https://xn--/v1",
        "https:///v1",
    ],
)
def test_an_endpoint_that_cannot_be_asked_is_refused_before_anything_is_done(tmp_path: Path, url: str) -> None:
    (tmp_path / "note.txt").write_text("Otters swim.")
    arguments = ["index", str(tmp_path / "note.txt"), "--store", str(tmp_path / "store"), "--embedding-url", url]
    answer = CliRunner().invoke(penstock, [*arguments, "--model", MODEL, "--dimensions", "48", "--input-tokens", "512"])
    assert answer.exit_code == 1
    assert "endpoint" in answer.output
    assert not (tmp_path / "store").exists()


def test_every_endpoint_gets_its_own_key_from_a_file_or_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "keys.json"
    file.write_text(json.dumps({"https://b.example/v1/": "key of b"}))
    monkeypatch.setenv("PENSTOCK_EMBEDDING_KEYS", json.dumps({"https://a.example/v1": "key of a", URL: "own"}))
    provider = given("--embedding-keys", str(file))
    embedding = embedding_for(target(MODEL, endpoint=URL, profile=SAID.profile(MODEL)), provider)
    urls = {"model-a": "https://a.example/v1", "model-b": "https://b.example/v1", "model-c": "https://c.example/v1"}
    known = embedding.knowing({(*INDEX, model): OwnModel(Endpoint(url)) for model, url in urls.items()})
    assert [known.endpoint_of(model, INDEX) for model in (MODEL, *urls)] == [
        Endpoint(URL, "own"),
        Endpoint("https://a.example/v1", "key of a"),
        Endpoint("https://b.example/v1", "key of b"),
        Endpoint("https://c.example/v1", None),
    ]
    # What is said for this endpoint on the command line wins.
    said = embedding_for(target(MODEL, endpoint=URL), given("--embedding-keys", str(file), "--embedding-key", "said"))
    assert said.endpoint_of(MODEL, INDEX) == Endpoint(URL, "said")
    assert "key of" not in repr((provider, embedding, known))


@pytest.mark.parametrize("content", [b"", b"[]", b'{"https://a": 7}', b"\xff", b"[" * 3000, b'{"https://a": "sec'])
def test_keys_that_cannot_be_read_are_refused_by_their_file_and_none_is_quoted(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "keys.json"
    file.write_bytes(content)
    with pytest.raises(InvalidInput, match=r"keys\.json") as refused:
        given("--embedding-keys", str(file))
    assert "sec" not in str(refused.value)


@pytest.mark.parametrize("key", ["k\n", "schl\u00fcssel", "\tk"])
def test_a_key_that_no_header_can_carry_is_refused_before_anything_is_done(key: str) -> None:
    with pytest.raises(InvalidInput, match="HTTP headers do not allow") as refused:
        given("--embedding-key", key)
    assert key not in str(refused.value)


def test_a_key_comes_from_a_file_or_the_environment_and_one_on_the_command_line_is_warned_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "key").write_text("of the file\n")
    assert given("--embedding-key-file", str(tmp_path / "key")).key == "of the file"
    monkeypatch.setenv("PENSTOCK_EMBEDDING_KEY", "of the environment")
    assert given().key == "of the environment"
    with pytest.raises(InvalidInput, match="twice"):
        given("--embedding-key-file", str(tmp_path / "key"))
    monkeypatch.delenv("PENSTOCK_EMBEDDING_KEY")
    monkeypatch.setenv("PENSTOCK_EMBEDDING_KEY_FILE", str(tmp_path / "nowhere"))
    with pytest.raises(NotFound, match="nowhere"):
        given()


@pytest.mark.parametrize(
    ("command", "option"),
    [
        (["index", "--queue-only"], "--embedding-key"),
        (["search", "rivers"], "--embedding-key"),
        (["reindex"], "--embedding-key"),
        (["reindex"], "--old-embedding-key"),
    ],
)
def test_whoever_writes_a_key_on_the_command_line_is_told_who_can_read_it(
    tmp_path: Path, command: list[str], option: str
) -> None:
    store = ["--store", str(tmp_path / "store")]
    warned = CliRunner().invoke(penstock, [*command, *store, option, "secret"])
    assert f"everybody on this machine can read {option} on the command line; use {option}-file FILE" in warned.stderr
    (tmp_path / "key").write_text("secret")
    quiet = CliRunner().invoke(penstock, [*command, *store, f"{option}-file", str(tmp_path / "key")])
    assert "everybody" not in quiet.output
