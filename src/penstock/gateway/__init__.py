"""HTTP and gRPC in and out: tokens and tenants, bounded requests, and the routes of every room.

Names are imported when they are first asked for: a command that makes a token needs no server.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from penstock.gateway.about import AboutRoutes
    from penstock.gateway.app import Gateway
    from penstock.gateway.config import GatewayConfig, TenantLimits
    from penstock.gateway.dashboard.routes import DashboardRoutes
    from penstock.gateway.dashboard.sessions import Sessions
    from penstock.gateway.dashboard.views import (
        DocumentChange,
        Fact,
        HouseView,
        PageLink,
        Section,
        ShownEvent,
        Stage,
        StageState,
        TableView,
        Viewer,
    )
    from penstock.gateway.documents import DocumentRoutes
    from penstock.gateway.guard import Guard
    from penstock.gateway.ingest import IngestRoutes
    from penstock.gateway.notifications import NotificationRoutes
    from penstock.gateway.otlp_grpc import GrpcServer
    from penstock.gateway.prometheus import PrometheusRoutes, PromSource
    from penstock.gateway.routing import Route
    from penstock.gateway.server import HttpServer, serving
    from penstock.gateway.services import DocumentServices, KeptReader
    from penstock.gateway.sql import SqlRoutes, StoredTables
    from penstock.gateway.stored_series import StoredSeries
    from penstock.gateway.tokens import Principal, Scope, TokenBook, TokenEntry

__all__ = [
    "AboutRoutes",
    "DashboardRoutes",
    "DocumentChange",
    "DocumentRoutes",
    "DocumentServices",
    "Fact",
    "Gateway",
    "GatewayConfig",
    "GrpcServer",
    "Guard",
    "HouseView",
    "HttpServer",
    "IngestRoutes",
    "KeptReader",
    "NotificationRoutes",
    "PageLink",
    "Principal",
    "PromSource",
    "PrometheusRoutes",
    "Route",
    "Scope",
    "Section",
    "Sessions",
    "ShownEvent",
    "SqlRoutes",
    "Stage",
    "StageState",
    "StoredSeries",
    "StoredTables",
    "TableView",
    "TenantLimits",
    "TokenBook",
    "TokenEntry",
    "Viewer",
    "serving",
]

_HOMES: Final = {
    "about": ("AboutRoutes",),
    "app": ("Gateway",),
    "config": ("GatewayConfig", "TenantLimits"),
    "dashboard.routes": ("DashboardRoutes",),
    "dashboard.sessions": ("Sessions",),
    "dashboard.views": (
        "DocumentChange",
        "Fact",
        "HouseView",
        "PageLink",
        "Section",
        "ShownEvent",
        "Stage",
        "StageState",
        "TableView",
        "Viewer",
    ),
    "documents": ("DocumentRoutes",),
    "guard": ("Guard",),
    "ingest": ("IngestRoutes",),
    "notifications": ("NotificationRoutes",),
    "otlp_grpc": ("GrpcServer",),
    "prometheus": ("PrometheusRoutes", "PromSource"),
    "routing": ("Route",),
    "server": ("HttpServer", "serving"),
    "services": ("DocumentServices", "KeptReader"),
    "sql": ("SqlRoutes", "StoredTables"),
    "stored_series": ("StoredSeries",),
    "tokens": ("Principal", "Scope", "TokenBook", "TokenEntry"),
}
_HOME_OF: Final = {name: home for home, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> Any:
    """The modules behind the list are imported when a name of theirs is first asked for."""
    if name not in _HOME_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOME_OF[name]}"), name)
