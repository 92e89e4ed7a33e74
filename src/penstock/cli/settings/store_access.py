"""What the configuration says about reaching a store: options of its service, patience, and the bounds of what is on it.

Only what was configured is passed on, so that the rooms keep their own defaults and the environment of the service's
own tools goes on counting.
"""

from __future__ import annotations

from typing import Any, Final

from penstock.cli.settings.configuration import Settings
from penstock.cli.settings.sections import class_of
from penstock.objects import parse_url

__all__ = ["follower_options", "service_options", "store_options", "writer_options"]

# The sections of the services, by the scheme of their URLs.
_SECTIONS: Final = {"s3": "s3", "az": "azure", "gs": "google"}


def service_options(settings: Settings, url: str) -> dict[str, Any]:
    """Those of the service that a URL names; a directory has none."""
    scheme = parse_url(url).scheme
    if scheme not in _SECTIONS:
        return {}
    return settings.given(class_of(_SECTIONS[scheme]))


def store_options(settings: Settings, url: str) -> dict[str, Any]:
    """For `open_store` and `StoreSpec`."""
    from penstock.objects import RetryPolicy

    patience = {"retry": settings.of(RetryPolicy)} if settings.given(RetryPolicy) else {}
    return {**service_options(settings, url), **patience}


def writer_options(settings: Settings, url: str) -> dict[str, Any]:
    """For `open_keyvalue`, and for `VectorStore.open` beside its own settings."""
    from penstock.keyvalue import KeyValueConfig

    return {**service_options(settings, url), **settings.of(KeyValueConfig).writing}


def follower_options(settings: Settings, url: str) -> dict[str, Any]:
    """For `open_follower`, and for `VectorStore.open_reader` beside its own settings."""
    from penstock.keyvalue import KeyValueConfig

    return {**service_options(settings, url), **settings.of(KeyValueConfig).reading}
