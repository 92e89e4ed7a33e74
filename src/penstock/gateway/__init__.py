"""HTTP and gRPC in and out: tokens and tenants, bounded requests, and the routes of every room.

Names are imported on first use: a command that makes a token needs no server.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.lazy_names import lazy_names

if TYPE_CHECKING:
    from penstock.gateway.about import AboutRoutes
    from penstock.gateway.access.storage import StorageQuota
    from penstock.gateway.access.tokens import Principal, Scope, TokenBook, TokenEntry
    from penstock.gateway.config import GatewayConfig, NotificationRules, TenantLimits
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
    from penstock.gateway.documents.notifications import NotificationRoutes
    from penstock.gateway.documents.routes import DocumentRoutes
    from penstock.gateway.documents.senders import NotificationSenders
    from penstock.gateway.documents.services import DocumentServices, KeptReader
    from penstock.gateway.http.app import Gateway
    from penstock.gateway.http.guard import Guard
    from penstock.gateway.http.routing import Route
    from penstock.gateway.http.server import HttpServer, serving
    from penstock.gateway.ingest.otlp_grpc import GrpcServer
    from penstock.gateway.ingest.telemetry import IngestRoutes
    from penstock.gateway.query.catalog_lender import CatalogLender
    from penstock.gateway.query.lent_catalog import LentCatalog
    from penstock.gateway.query.prometheus import PrometheusRoutes, PromSource
    from penstock.gateway.query.sql import SqlRoutes
    from penstock.gateway.query.sql_processes import SqlProcesses
    from penstock.gateway.query.sql_worker import OVER_MEMORY, answer_questions, bound_process
    from penstock.gateway.query.stored_series import StoredSeries

__all__ = [
    "OVER_MEMORY",
    "AboutRoutes",
    "CatalogLender",
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
    "LentCatalog",
    "NotificationRoutes",
    "NotificationRules",
    "NotificationSenders",
    "PageLink",
    "Principal",
    "PromSource",
    "PrometheusRoutes",
    "Route",
    "Scope",
    "Section",
    "Sessions",
    "ShownEvent",
    "SqlProcesses",
    "SqlRoutes",
    "Stage",
    "StageState",
    "StorageQuota",
    "StoredSeries",
    "TableView",
    "TenantLimits",
    "TokenBook",
    "TokenEntry",
    "Viewer",
    "answer_questions",
    "bound_process",
    "serving",
]

__getattr__ = lazy_names(
    __name__,
    {
        "about": ("AboutRoutes",),
        "http.app": ("Gateway",),
        "access.storage": ("StorageQuota",),
        "config": ("GatewayConfig", "NotificationRules", "TenantLimits"),
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
        "documents.routes": ("DocumentRoutes",),
        "http.guard": ("Guard",),
        "ingest.telemetry": ("IngestRoutes",),
        "documents.notifications": ("NotificationRoutes",),
        "documents.senders": ("NotificationSenders",),
        "ingest.otlp_grpc": ("GrpcServer",),
        "query.prometheus": ("PrometheusRoutes", "PromSource"),
        "http.routing": ("Route",),
        "http.server": ("HttpServer", "serving"),
        "documents.services": ("DocumentServices", "KeptReader"),
        "query.catalog_lender": ("CatalogLender",),
        "query.lent_catalog": ("LentCatalog",),
        "query.sql": ("SqlRoutes",),
        "query.sql_processes": ("SqlProcesses",),
        "query.sql_worker": ("OVER_MEMORY", "answer_questions", "bound_process"),
        "query.stored_series": ("StoredSeries",),
        "access.tokens": ("Principal", "Scope", "TokenBook", "TokenEntry"),
    },
)
