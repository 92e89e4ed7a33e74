"""The processes of `penstock serve`: started again, ended together, and told apart when something is in the way."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tests.cli.served import START_SECONDS_MAX, Served, waited_for

pytestmark = pytest.mark.integration


def is_alive(pid):
    """Whether it runs; one that ended and was not asked for yet does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def refused(folder, *options, **environment):
    """What `serve` says when it does not start."""
    run = subprocess.run(
        [sys.executable, "-m", "penstock.cli", "serve", "--engine", "local", *options],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        timeout=START_SECONDS_MAX,
        env={**os.environ, **environment},
    )
    assert "Traceback" not in run.stderr
    return run.returncode, run.stderr


def test_a_job_that_is_killed_is_started_again_and_shown_and_all_end_together(tmp_path):
    with Served(tmp_path) as served:
        first = waited_for(lambda: len(served.children()) == 3 and served.children())
        os.kill(first[0], signal.SIGKILL)
        shown = waited_for(lambda: "-9" in served.client.get("/ui/page/jobs").text)
        assert shown, "the exit code is not shown"
        second = waited_for(lambda: len(served.children()) == 3 and served.children())
        assert len(set(first) & set(second)) == 2
        # What is in the way of a second one on the same edge is named, and the first goes on.
        code, told = refused(tmp_path, "--port", "0")
        assert (code, f"process {served.process.pid}" in told) == (1, True), told
        assert set(second) <= set(served.children())
        code, told = refused(tmp_path, "--port", served.url.rpartition(":")[2], "--roles", "query")
        assert code == 1
        assert f"cannot listen on 127.0.0.1:{served.url.rpartition(':')[2]}" in told
        assert served.client.get("/readyz").status_code == 200
        began = time.monotonic()
        assert served.end() == 0
        # Seconds on a machine with nothing else to do; never the time after which a child is killed.
        assert time.monotonic() - began < START_SECONDS_MAX
        assert [pid for pid in second if is_alive(pid)] == []


def test_children_end_with_a_parent_that_was_killed(tmp_path):
    with Served(tmp_path) as served:
        children = waited_for(lambda: len(served.children()) == 3 and served.children())
        served.kill()
        assert waited_for(lambda: not any(map(is_alive, children)))


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("[gateway]\nprot = 1\n", "did you mean port?"),
        ('[gateway]\nhost = "0.0.0.0"\n', "without tokens"),
        ('[gateway.notifications]\nkey_files = {acme = ["none.key"]}\n', "none.key"),
        ('[serve]\nroles = ["cook"]\n', "roles"),
    ],
)
def test_a_configuration_that_cannot_be_used_is_told_before_anything_starts(tmp_path, text, told):
    (tmp_path / "mine.toml").write_text(text)
    code, said = refused(tmp_path, "--port", "0", "--config", "mine.toml")
    assert code == 1
    assert told in said


def test_roles_in_processes_of_their_own_around_one_store_are_one_product(tmp_path):
    folders = {role: tmp_path / role for role in ("gateway", "query")}
    for folder in folders.values():
        folder.mkdir()
    store = ("--store", str(tmp_path / "store"))
    jobs = subprocess.Popen(
        [sys.executable, "-m", "penstock.cli", "serve", *store, "--roles", "jobs", "--engine", "local"],
        cwd=tmp_path,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        with Served(folders["gateway"], *store, "--roles", "gateway") as gateway:
            with Served(folders["query"], *store, "--roles", "query") as query:
                assert gateway.client.post("/v1/rows/parts", content=b'{"n": 1}\n{"n": 2}\n').json() == {"rows": 2}
                assert gateway.client.post("/v1/sql", json={"query": "select 1"}).status_code == 404
                assert query.client.post("/v1/rows/parts", content=b'{"n": 1}').status_code == 404

                def landed():
                    answer = query.client.post("/v1/sql", json={"query": "select sum(n) from parts"})
                    return answer.status_code == 200 and answer.json()["rows"]

                assert waited_for(landed) == [[3]]
                # Whether anything is late can be told only by whoever sees the queue.
                path = query.client.get("/").text
                assert "Telemetry queue" in path
                assert "acknowledged" not in path
                assert "acknowledged" in gateway.client.get("/").text
    finally:
        jobs.terminate()
        assert jobs.wait(START_SECONDS_MAX) == 0
