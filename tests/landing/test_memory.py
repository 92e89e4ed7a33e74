"""The pool for large columns is taken where Arrow has it."""

from __future__ import annotations

import subprocess
import sys

import pytest

PROGRAM = """
import pyarrow as pa
from penstock.landing import settle_memory
before = pa.default_memory_pool().backend_name
settle_memory()
has_jemalloc = "jemalloc" in pa.supported_memory_backends()
assert pa.default_memory_pool().backend_name == ("jemalloc" if has_jemalloc else before)
assert pa.array([1, 2, 3]).to_pylist() == [1, 2, 3]
"""


@pytest.mark.processes
def test_a_process_that_lands_keeps_its_large_columns_and_works_without_that_pool() -> None:
    subprocess.run([sys.executable, "-c", PROGRAM], check=True)
