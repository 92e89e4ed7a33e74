from __future__ import annotations

import json
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest
from tests.objects.bucket_server import bucket_server

PROGRAMS = 24
# Ends right behind its last answers, while the client's threads still hold what they were asked with.
PROGRAM = """
import asyncio, json, sys
from penstock.objects import open_store

async def put() -> None:
    store = await open_store("s3://bucket/prefix", **json.loads(sys.argv[1]))
    await asyncio.gather(*(store.put(f"{number}", b"body") for number in range(16)))

asyncio.run(put())
"""


@pytest.mark.processes
def test_a_program_that_ends_right_after_its_last_write_is_not_aborted() -> None:
    with bucket_server() as server:
        options = json.dumps(server.s3_options)

        def run(_: int) -> tuple[int, str]:
            ended = subprocess.run(
                [sys.executable, "-c", PROGRAM, options], capture_output=True, text=True, check=False, timeout=120
            )
            return ended.returncode, ended.stderr

        # More at once than there are cores: the threads get their turn late, as on a busy machine.
        with ThreadPoolExecutor(8) as pool:
            assert set(pool.map(run, range(PROGRAMS))) == {(0, "")}
