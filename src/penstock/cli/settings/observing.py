"""How a command that runs for long is watched: a page for Prometheus, log lines, and traces by the environment.

A command opens one `Watching` around its work and hands the observer on. Unless somebody asked for any of it, the
observer is the silent one, and no library of it is imported.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from penstock.cli.settings.job_figures import FIGURES_FILE, figures_written
from penstock.cli.settings.long_running import LOG_FORMATS, LOG_LEVELS
from penstock.errors import InvalidInput, Unavailable
from penstock.observability import SILENT, Event, LiveObserver, Observer

if TYPE_CHECKING:
    from opentelemetry.trace import Tracer
    from prometheus_client import CollectorRegistry

__all__ = ["Heard", "ObservingConfig", "Watching", "parse_address"]

Heard: TypeAlias = Callable[[Event, Mapping[str, Any]], None]

_HOST: Final = "127.0.0.1"
_PORT_MAX: Final = 65_535
_OTLP: Final = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
# A collector that does not answer holds up a command's end by no more than this.
_LAST_SPANS_MS: Final = 5_000


@dataclass(frozen=True, slots=True)
class ObservingConfig:
    """Metrics and logs of long-running commands."""

    # Address to serve Prometheus metrics on, as `[HOST:]PORT`. The default host is 127.0.0.1.
    metrics: str | None = None
    # Format of log lines: `text`, or one `json` object each.
    log_format: str | None = None
    # Minimum severity of log lines: `debug`, `info`, `warning` or `error`.
    log_level: str | None = None

    def __post_init__(self) -> None:
        if self.metrics is not None:
            parse_address(self.metrics)
        _check_choice("log_format", self.log_format, LOG_FORMATS)
        _check_choice("log_level", self.log_level, LOG_LEVELS)


@dataclass(frozen=True, slots=True)
class Watching:
    """What was asked for; `environment` says where traces go."""

    config: ObservingConfig = field(default_factory=ObservingConfig)
    environment: Mapping[str, str] = field(default_factory=dict, repr=False)

    @property
    def wanted(self) -> bool:
        traced = any(self.environment.get(name) for name in _OTLP)
        return traced or self.config != ObservingConfig()

    @property
    def level(self) -> str:
        """Asked for or not, what goes wrong is logged; what goes well only if somebody wants a log."""
        return self.config.log_level or ("info" if self.config.log_format else "warning")

    @contextmanager
    def opened(self, *, heard: Heard | None = None, warns: bool = False) -> Iterator[Observer]:
        """The observer, and everything behind it until the work is done. `heard` is told of every event.

        `warns`: what goes wrong is logged though nobody asked, because the command retries it and says nothing else.
        """
        figures = self.environment.get(FIGURES_FILE)
        if not self.wanted and heard is None and not figures and not warns:
            yield SILENT
            return
        from penstock.observability import names
        from penstock.observability.logs import open_log

        # A supervisor reads the lines of its jobs, shows those that were asked for, and keeps the others for a while.
        form, level = ("json", "info") if figures else (self.config.log_format or "text", self.level)
        log = open_log(sys.stderr, form=form, level=level)
        with ExitStack() as stack:
            observer = LiveObserver(tracer=stack.enter_context(_tracer(self.environment)), log=log, heard=heard)
            observer.declare(names.METRICS.values())
            if figures:
                # Its supervisor serves the figures of all jobs: one port is not for several processes.
                stack.enter_context(figures_written(observer.registry, Path(figures)))
            elif self.config.metrics:
                stack.enter_context(_served(self.config.metrics, observer.registry))
            yield observer


def parse_address(text: str) -> tuple[str, int]:
    """Host and port of `9464`, `:9464`, `host:9464` or `[::1]:9464`."""
    host, _, port = text.strip().rpartition(":")
    if not port.isdecimal() or not port.isascii() or int(port) > _PORT_MAX or (":" in host and not _is_bracketed(host)):
        raise InvalidInput(f"the address {text!r} cannot be used", "it is not [HOST:]PORT", "write 9464 or host:9464")
    return host.strip("[]") or _HOST, int(port)


def _is_bracketed(host: str) -> bool:
    return host.startswith("[") and host.endswith("]")


def _check_choice(name: str, value: str | None, known: tuple[str, ...]) -> None:
    if value is not None and value not in known:
        raise InvalidInput(f"{name} = {value!r}", "there is no such choice", f"use one of {', '.join(known)}")


@contextmanager
def _served(address: str, registry: CollectorRegistry) -> Iterator[None]:
    from prometheus_client import start_http_server

    host, port = parse_address(address)
    try:
        server, thread = start_http_server(port, host, registry)
    except OSError as error:
        raise Unavailable(
            f"metrics cannot be served at {host}:{port}",
            error.strerror or str(error),
            "choose another --metrics address",
        ) from error
    try:
        yield
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@contextmanager
def _tracer(environment: Mapping[str, str]) -> Iterator[Tracer]:
    """A tracer that sends to the collector that the environment names, or nowhere."""
    from opentelemetry import trace

    if not any(environment.get(name) for name in _OTLP):
        yield trace.NoOpTracer()
        return
    from opentelemetry.sdk.resources import SERVICE_NAME, Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    from penstock.observability.otlp import OtlpExporter, OtlpSettings

    settings = OtlpSettings.of(environment)
    if settings is None:
        yield trace.NoOpTracer()
        return
    named = {} if environment.get("OTEL_SERVICE_NAME") else {SERVICE_NAME: "penstock"}
    provider = TracerProvider(resource=Resource.create(named), shutdown_on_exit=False)
    exporter = OtlpExporter(settings)
    provider.add_span_processor(BatchSpanProcessor(exporter))
    try:
        yield provider.get_tracer("penstock")
    finally:
        exporter.hurry()
        provider.force_flush(_LAST_SPANS_MS)
        provider.shutdown()
