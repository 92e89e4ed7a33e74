"""`penstock serve`: one command, documents in and found, killed and started again without a loss."""

import json
import os
import re
import subprocess
import sys
import time
from itertools import pairwise

import pytest
from tests.cli.served import START_SECONDS_MAX, Served, waited_for

from penstock.cli.settings.configuration import load_settings


def _status(served, key):
    answer = served.client.get(f"/v1/documents/manual/{key}")
    return answer.json()["status"] if answer.status_code == 200 else None


@pytest.mark.integration
def test_what_was_acknowledged_is_found_after_a_kill(tmp_path):
    with Served(tmp_path) as served:
        put = served.client.put(
            "/v1/documents/manual/a.txt", content=b"Water turns the turbine.", params={"wait": "true"}
        )
        # On a busy machine the job may need longer than a request may wait.
        assert put.status_code in (200, 503), put.text
        assert waited_for(lambda: _status(served, "a.txt") == "indexed")
        # Removed before the job has come to it; what is queued behind it is taken after it.
        assert served.client.put("/v1/documents/manual/never.txt", content=b"A flywheel.").status_code == 202
        assert served.client.delete("/v1/documents/manual/never.txt").status_code == 202
        queued = served.client.put("/v1/documents/manual/b.txt", content=b"A valve closes the pipe.")
        assert queued.status_code == 202
        served.kill()
    with Served(tmp_path) as served:
        assert waited_for(lambda: _status(served, "b.txt") == "indexed")
        for word, key in (("turbine", "a.txt"), ("valve", "b.txt")):
            hits = served.client.post("/v1/search", json={"query": word, "index": "manual", "mode": "text"}).json()[
                "hits"
            ]
            assert [hit["key"] for hit in hits] == [key]
        assert not _hits(served, "flywheel")
        assert _status(served, "never.txt") in (None, "removed")
        asked = {"query": "valve", "index": "manual", "by_document": True, "facets": ["key"], "filter": "page is null"}
        answer = served.client.post("/v1/search", json={**asked, "mode": "text"}).json()
        assert [document["key"] for document in answer["documents"]] == ["b.txt"]
        assert answer["facets"] == {
            "key": {"values": [{"value": "b.txt", "count": 1}], "other": 0, "missing": 0, "exact": True}
        }
        for wrong in ({"facets": ["langauge"]}, {"context": 99}, {"per_document": 0}, {"filter": "meta.x is null"}):
            assert served.client.post("/v1/search", json={**asked, **wrong}).status_code == 400, wrong
        page = served.client.get("/ui/page/documents").text
        secret = re.search(r'name="form_secret" value="([^"]+)"', page)[1]
        key = re.search(r'name="forget" value="([^"]+)" aria-label="Forget a.txt"', page)[1]
        form = {"form_secret": secret, "index": "manual", "forget": key, "confirmed": "yes"}
        assert served.client.post("/ui/documents", data=form).headers["location"].endswith("done=forget&count=1")
        assert waited_for(lambda: not _hits(served, "turbine"))
        # The index job took the fence of the queue before it did any of this.
        assert "buffer.started" in served.client.get("/ui/events").text
        assert served.end() == 0


def _hits(served, word):
    asked = {"query": word, "index": "manual", "mode": "text"}
    return [hit["key"] for hit in served.client.post("/v1/search", json=asked).json()["hits"]]


@pytest.mark.integration
def test_telemetry_that_was_acknowledged_is_answered_by_promql_and_sql_after_a_kill(tmp_path):
    """Acknowledged at the edge, killed before it travelled, and there once, in both answers."""
    now = int(time.time())
    points = [{"timeUnixNano": f"{now - 30 + number}000000000", "asDouble": number} for number in range(20)]
    metric = {"name": "level", "gauge": {"dataPoints": points}}
    body = {"resourceMetrics": [{"scopeMetrics": [{"metrics": [metric]}]}]}
    with Served(tmp_path) as served:
        assert served.client.post("/v1/metrics", json=body).json() == {}
        served.kill()
    with Served(tmp_path) as served:
        deadline = time.monotonic() + 2 * START_SECONDS_MAX
        promql: list[object] = []
        while not promql and time.monotonic() < deadline:
            asked = {"query": "sum(count_over_time(level[5m]))", "time": str(now)}
            promql = served.client.get("/api/v1/query", params=asked).json()["data"]["result"]
            time.sleep(0.2)
        assert promql, served.client.get("/ui/page/jobs").text
        sql = served.client.post("/v1/sql", json={"query": "select count(*), sum(value) from metrics"}).json()["rows"]
        assert (promql[0]["value"][1], sql) == ("20", [[20, 190.0]])  # type: ignore[index]
        page = served.client.get("/").text
        assert "Nothing is lost" in page or "Behind" in page
        assert served.end() == 0


def test_a_configuration_that_init_writes_changes_nothing(tmp_path):
    run = subprocess.run(
        [sys.executable, "-m", "penstock.cli", "init"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, run.stderr
    from penstock.cli.settings.sections import SECTIONS, class_of, fields_of

    text = (tmp_path / "penstock.toml").read_text()
    settings = load_settings(tmp_path / "penstock.toml", {})
    assert settings.said == {}
    for section in SECTIONS:
        assert f"[{section}]" in text
        for name in fields_of(class_of(section)):
            assert f"# {name} = " in text or f"[{section}.{name}]" in text


def test_a_configuration_is_written_for_its_owner_alone_whatever_the_umask(tmp_path):
    subprocess.run(
        [sys.executable, "-m", "penstock.cli", "init"], cwd=tmp_path, capture_output=True, check=True, umask=0
    )
    assert (tmp_path / "penstock.toml").stat().st_mode & 0o777 == 0o600


def test_every_line_of_that_configuration_can_be_switched_on(tmp_path):
    from penstock.cli.settings.sections import SECTIONS, class_of
    from penstock.cli.settings.template import commented_configuration

    lines = [line for line in commented_configuration().splitlines() if "# not set" not in line]
    on = [
        line[2:]
        if line.startswith("# ") and " = " in line and line[2].islower() and " " not in line[2:].split(" = ")[0]
        else line
        for line in lines
    ]
    file = tmp_path / "penstock.toml"
    file.write_text("\n".join(on))
    settings = load_settings(file, {})
    assert settings.said
    for section in SECTIONS:
        assert settings.of(class_of(section)) == class_of(section)()


def test_every_setting_of_that_configuration_says_what_it_means():
    from penstock.cli.settings.template import commented_configuration

    lines = commented_configuration().splitlines()
    settings = [(before, line) for before, line in pairwise(lines) if re.match(r"# [a-z][a-z0-9_]* = ", line)]
    assert len(settings) > 200
    assert [
        line for before, line in settings if not before.startswith("# ") or before[2:].split(" = ")[0].isidentifier()
    ] == []


def test_a_configuration_that_is_there_is_not_replaced(tmp_path):
    (tmp_path / "penstock.toml").write_text("# mine\n")
    run = subprocess.run([sys.executable, "-m", "penstock.cli", "init"], cwd=tmp_path, capture_output=True, check=False)
    assert run.returncode == 1
    assert (tmp_path / "penstock.toml").read_text() == "# mine\n"


def test_a_configuration_is_checked_with_what_it_names(tmp_path):
    (tmp_path / "penstock.toml").write_text('[gateway]\ntokens = "none.json"\n')
    run = subprocess.run(
        [sys.executable, "-m", "penstock.cli", "check-config", "--json"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PENSTOCK_CONFIG": ""},
    )
    told = {line["part"]: line for line in map(json.loads, run.stdout.splitlines())}
    assert run.returncode == 1
    assert told["store"]["ok"]
    assert "none.json" in told["gateway"]["problem"]
