"""No error of a function that opens something by URL repeats a secret: not its text, its repr, its causes or a log."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from traceback import format_exception
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.campaigns import examples
from tests.objects.bucket_server import bucket_server

from penstock.errors import PenstockError
from penstock.keyvalue import open_follower, open_keyvalue
from penstock.objects import RetryPolicy, StoreSpec, open_store
from penstock.testing import RecordingObserver
from penstock.vector import VectorStore

SECRET = "hunter2Secret"

OPENERS: dict[str, Callable[..., Any]] = {
    "open_store": open_store,
    "StoreSpec": lambda url, observer, **options: StoreSpec(url, options).open(observer=observer),
    "open_keyvalue": lambda url, **options: open_keyvalue(url, "store", **options),
    "open_follower": lambda url, **options: open_follower(url, "store", **options),
    "VectorStore.open": lambda url, **options: VectorStore.open(url, "store", **options),
    "VectorStore.open_reader": lambda url, **options: VectorStore.open_reader(url, "store", **options),
}

# What people put around a key: with a slash, a colon, a hash, a percent sign, a blank, a line break.
around = st.text(st.sampled_from("abK9:/@?#%&=;+. \n\u2100\ud800"), max_size=4)
secrets = st.builds(lambda before, after: f"{before}{SECRET}{after}", around, around)
malformed = st.one_of(
    st.builds(
        lambda form, secret: form.replace("SECRET", secret),
        st.sampled_from(
            [
                "s3://key:SECRET@bucket/prefix",
                "s3:/key:SECRET@bucket",
                "s3:key:SECRET@bucket",
                "key:SECRET@bucket/prefix",
                "s3://key:SECRET",
                "S3://key:SECRET@bucket",
                "s3a://key:SECRET@bucket",
                "https://key:SECRET@host/bucket",
                "https://host/hook/SECRET",
                "az://container/prefix?sig=SECRET",
                "gs://bucket/prefix#SECRET",
                "memory://key:SECRET@name",
                "memory://name?token=SECRET",
                "file://key:SECRET@host/directory",
                "file:///directory?token=SECRET",
                "AccountName=a;AccountKey=SECRET",
                "?SECRET",
                "@SECRET",
            ]
        ),
        secrets,
    )
)


def told_by(opener: str, url: Any, **options: Any) -> str:
    """Everything that a log would have of a call that fails."""
    observer = RecordingObserver()

    async def run() -> str:
        try:
            opened = await OPENERS[opener](url, observer=observer, **options)
        except PenstockError as error:
            return repr(error) + str(error) + "".join(format_exception(error))
        await opened.close()
        return repr(opened)

    return asyncio.run(run()) + repr(vars(observer))


@pytest.mark.parametrize("opener", OPENERS)
@settings(max_examples=examples(150), deadline=None)
@given(url=malformed)
def test_a_url_that_carries_a_secret_is_refused_without_it(opener: str, url: str) -> None:
    assert SECRET not in told_by(opener, url)


@pytest.mark.parametrize("opener", OPENERS)
@settings(max_examples=examples(30), deadline=None)
@given(
    secret=secrets,
    place=st.sampled_from(
        [
            ("s3://bucket", "endpoint", "http://key:{}@127.0.0.1:1"),
            ("s3://bucket", "endpoint", "http://127.0.0.1:1/?token={}"),
            ("s3://bucket", "endpoint", "key:{}@127.0.0.1:1"),
            ("s3://bucket", "session_token", "{}\n"),
            ("s3://bucket", "secret_acces_key", "{}"),
            ("az://container", "account_key", "-{}"),
            ("az://container", "sas_token", "{}&sig"),
            ("gs://bucket", "service_account_key", "{}"),
            ("gs://bucket", "service_account", '{{"private_key": "{}"}}'),
            ("memory://", "token", "{}"),
        ]
    ),
)
def test_an_option_that_cannot_be_used_is_refused_without_its_value(
    opener: str, secret: str, place: tuple[str, str, str]
) -> None:
    url, option, form = place
    options = {"account_name": "account"} if url.startswith("az") else {}
    assert SECRET not in told_by(opener, url, **options, **{option: form.format(secret)})


@pytest.mark.slow
def test_a_service_that_refuses_a_key_is_told_of_without_it() -> None:
    with bucket_server() as server:
        server.denied.add(".penstock/none")
        options = {**server.s3_options, "secret_access_key": SECRET, "session_token": SECRET}
        quick = RetryPolicy(deadline_seconds=0.1)
        for opener, more in (("open_store", {"retry": quick}), ("open_keyvalue", {"retries_max": 1})):
            server.is_away = opener == "open_keyvalue"
            assert SECRET not in told_by(opener, "s3://bucket", **options, **more)


def test_what_describes_a_store_does_not_show_its_options() -> None:
    from penstock.objects.cloud.services import AzureOptions, GoogleOptions, S3Options

    shown = [
        StoreSpec("s3://bucket", {"secret_access_key": SECRET}),
        S3Options(secret_access_key=SECRET, session_token=SECRET),
        AzureOptions(account_key=SECRET, sas_token=SECRET),
        GoogleOptions(service_account=SECRET, service_account_key=SECRET, bearer_token=SECRET),
    ]
    assert SECRET not in repr(shown)
