"""What the documentation shows works as it is shown: its commands are run, its rules name metrics that exist."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import click
import httpx
import pytest
import yaml
from tests.documented import EXAMPLES, NOT_RUN, ROOT, SECONDS_MAX, fences, penstock_served, run_page

from penstock.cli import penstock
from penstock.observability import names
from penstock.testing.servers.object_stores import ServerMissing, seaweedfs

DOCS = ROOT / "docs"
PAGES = sorted([ROOT / "README.md", *DOCS.rglob("*.md"), *EXAMPLES.rglob("*.md")])
# Pages whose fences of bash and Python are run, each as one session. Those of rooms are played by test_room_examples.
RUN = sorted(
    [DOCS / "quickstart.md", DOCS / "migrating-a-catalog.md", *DOCS.glob("tutorials/*.md"), *EXAMPLES.rglob("*.md")]
)
RUN = [page for page in RUN if page.parent.name != "own_parser"]  # It has a test of its own.
_COMMAND = re.compile(r"^(?:\.venv/bin/|docker run .* )?penstock ([a-z].*?)(?:\s+#.*)?$", re.MULTILINE)
COMMANDS = sorted(
    {
        (page.name, found.replace("\\\n", " "))
        for page in PAGES
        for fence in fences(page)
        if fence.language in ("", "bash")
        for found in _COMMAND.findall(fence.text.replace("\\\n", " "))
        if "…" not in found
    }
)


@pytest.mark.parametrize(("page", "line"), COMMANDS)
def test_every_command_of_every_page_is_one_that_the_command_line_takes(page: str, line: str) -> None:
    name, *arguments = shlex.split(line)
    command = penstock.get_command(click.Context(penstock), name)
    assert command is not None
    while isinstance(command, click.Group):
        name, *arguments = arguments
        command = command.commands[name]
    try:
        command.make_context(name, arguments).close()
    except click.BadParameter as error:
        # A reader's own file is not here.
        if "does not exist" not in error.message:
            raise


@pytest.mark.parametrize("page", RUN, ids=lambda page: page.parent.name + "-" + page.stem)
def test_what_is_not_run_says_why(page: Path) -> None:
    for fence in fences(page):
        if fence.language not in ("bash", "python"):
            assert "penstock " not in fence.text or fence.language in ("json", "yaml", "toml"), fence.text
        elif fence.title:
            assert re.match(rf"{NOT_RUN}( here)?: \w+", fence.title), fence.title


@pytest.mark.integration
@pytest.mark.slow
def test_the_pages_with_a_server_work_as_they_are_shown(tmp_path: Path) -> None:
    """Quick start, OTLP and Grafana, one after the other against one server, and what they sent arrives."""
    with penstock_served(tmp_path) as address:
        _wait_for_jobs(address)
        said = run_page(DOCS / "quickstart.md", tmp_path, address)
        assert "The valve closes the pipe" in said
        said = run_page(DOCS / "tutorials" / "otlp-collector.md", tmp_path, address)
        assert "sent" in said
        run_page(DOCS / "tutorials" / "grafana.md", tmp_path, address)
        run_page(EXAMPLES / "otlp" / "README.md", EXAMPLES / "otlp", address)
        with httpx.Client(base_url=address, trust_env=False, timeout=60) as client:
            assert _arrives(client, "sum(last_over_time(orders_total[1h]))", "6")
            assert _arrives(client, "last_over_time(level[1h])", "42")
            _check_grafana(client)


def _wait_for_jobs(address: str) -> None:
    """The pages wait for documents for as long as a person would; on a busy machine jobs may take longer to start."""
    deadline = time.monotonic() + SECONDS_MAX
    status = 0
    while status != 200 and time.monotonic() < deadline:
        asked = {"wait": "true", "timeout": "60"}
        put = httpx.put(
            f"{address}/v1/documents/first/a.txt", content=b"First.", params=asked, timeout=90, trust_env=False
        )
        status = put.status_code
    assert status == 200


def _arrives(client: httpx.Client, query: str, value: str) -> bool:
    """Whether an expression comes to have this value."""
    deadline = time.monotonic() + SECONDS_MAX
    while time.monotonic() < deadline:
        found = client.get("/api/v1/query", params={"query": query}).json()["data"]["result"]
        if found and found[0]["value"][1] == value:
            return True
        time.sleep(0.5)
    return False


def _check_grafana(client: httpx.Client) -> None:
    """The calls that the panels of the example make are answered."""
    dashboard = json.loads((EXAMPLES / "grafana" / "dashboard.json").read_text())
    now = int(time.time())
    for panel in dashboard["panels"]:
        for target in panel["targets"]:
            asked = {"query": target["expr"], "start": now - 3600, "end": now, "step": 15}
            assert client.post("/api/v1/query_range", data=asked).json()["status"] == "success", target
            assert_known(target["expr"])


@pytest.mark.slow
@pytest.mark.parametrize(
    "page",
    [DOCS / "tutorials" / "own-sink.md", DOCS / "migrating-a-catalog.md", EXAMPLES / "kubernetes" / "README.md"],
    ids=lambda page: page.stem,
)
def test_a_page_works_as_it_is_shown(page: Path, tmp_path: Path) -> None:
    (tmp_path / "sink").mkdir()
    text = page.read_text().replace("/tmp/penstock-sink", str(tmp_path / "sink"))
    moved = tmp_path / page.name
    moved.write_text(text)
    run_page(moved, tmp_path)


@pytest.mark.processes
def test_the_example_of_the_queue_stores_each_line_once(tmp_path: Path) -> None:
    page = tmp_path / "README.md"
    page.write_text(
        (EXAMPLES / "queue" / "README.md").read_text().replace("/tmp/penstock-queue", str(tmp_path / "queue"))
    )
    for name in ("producer.py", "consumer.py"):
        (tmp_path / name).write_text((EXAMPLES / "queue" / name).read_text())
    assert "2 lines are stored, through batch 0" in run_page(page, tmp_path)
    assert "4 lines are stored, through batch 1" in run_page(page, tmp_path)


@pytest.mark.integration
@pytest.mark.slow
def test_the_tutorial_of_a_bucket_works_against_a_real_server(tmp_path: Path) -> None:
    try:
        with seaweedfs(tmp_path / "server", "documents") as server:
            server.create_bucket("penstock-store")
            given = {
                "PENSTOCK_S3_ENDPOINT": server.endpoint,
                "PENSTOCK_S3_REGION": server.region,
                "AWS_ACCESS_KEY_ID": server.access_key_id,
                "AWS_SECRET_ACCESS_KEY": server.secret_access_key,
            }
            said = run_page(DOCS / "tutorials" / "index-a-bucket.md", tmp_path, environment=given)
    except ServerMissing as reason:
        pytest.skip(str(reason))
    assert "approves travel, in writing" in said


# Files ---------------------------------------------------------------------------------------------------


def assert_known(expression: str) -> None:
    """Every metric of the house that a rule or a panel names is one that is emitted."""
    for name in re.findall(r"penstock_\w+", expression):
        base = re.sub(r"_(bucket|count|sum)$", "", name)
        assert name in names.METRICS or base in names.METRICS, name


def test_alerts_name_metrics_that_exist() -> None:
    (rules,) = [fence.text for fence in fences(DOCS / "alerts.md") if fence.language == "yaml"]
    found = [rule for group in yaml.safe_load(rules)["groups"] for rule in group["rules"]]
    assert len(found) >= 8
    for rule in found:
        assert_known(rule["expr"])
        assert rule["annotations"]["summary"]


def test_the_page_of_failures_names_metrics_and_events_that_exist() -> None:
    text = (DOCS / "failures.md").read_text() + (DOCS / "sizing.md").read_text()
    for name in re.findall(r"`(penstock_\w+)`", text):
        assert_known(name)
    for name in re.findall(r"`((?:buffer|blocks|gateway|landing)\.\w+)`", text):
        assert name in names.EVENTS, name


@pytest.mark.parametrize("file", sorted(EXAMPLES.glob("kubernetes/*.yaml")), ids=lambda file: file.stem)
def test_a_manifest_is_what_kubernetes_takes(file: Path) -> None:
    import jsonschema

    known = json.loads((ROOT / "tests" / "schemas" / "kubernetes-1.37.json").read_text())
    for manifest in yaml.safe_load_all(file.read_text()):
        if manifest["kind"] == "Kustomization":
            folder = file.parent
            assert sorted(manifest["resources"]) == sorted({each.name for each in folder.glob("*.yaml")} - {file.name})
            continue
        kind = known["kinds"][f"{manifest['apiVersion']}/{manifest['kind']}"]
        schema = {"$ref": f"#/$defs/{kind}", "$defs": known["$defs"]}
        jsonschema.Draft202012Validator(schema).validate(manifest)


def test_a_manifest_with_a_mistake_is_noticed() -> None:
    import jsonschema

    known = json.loads((ROOT / "tests" / "schemas" / "kubernetes-1.37.json").read_text())
    (_, manifest) = yaml.safe_load_all((EXAMPLES / "kubernetes" / "gateway.yaml").read_text())
    manifest["spec"]["template"]["spec"]["containers"][0]["imagePolicy"] = "Always"
    schema = {"$ref": f"#/$defs/{known['kinds']['apps/v1/StatefulSet']}", "$defs": known["$defs"]}
    with pytest.raises(jsonschema.ValidationError, match="imagePolicy"):
        jsonschema.Draft202012Validator(schema).validate(manifest)


def _manifests() -> list[dict[str, Any]]:
    return [each for file in EXAMPLES.glob("kubernetes/*.yaml") for each in yaml.safe_load_all(file.read_text())]


def test_the_manifests_start_what_penstock_offers(tmp_path: Path) -> None:
    """Their commands are taken, and their configuration is one."""
    (settings,) = [each["data"]["penstock.toml"] for each in _manifests() if each["kind"] == "ConfigMap"]
    (tmp_path / "penstock.toml").write_text(settings)
    from penstock.cli.serving.serve_config import ServeConfig
    from penstock.cli.settings.configuration import load_settings
    from penstock.gateway import GatewayConfig

    loaded = load_settings(tmp_path / "penstock.toml", {})
    assert loaded.of(ServeConfig).engine == "local"
    assert loaded.of(GatewayConfig).tokens
    command = penstock.get_command(click.Context(penstock), "serve")
    assert command is not None
    roles = []
    for each in _manifests():
        if each["kind"] in ("Deployment", "StatefulSet"):
            (container,) = each["spec"]["template"]["spec"]["containers"]
            first, *arguments = container["args"]
            assert first == "serve"
            arguments[arguments.index("--config") + 1] = str(tmp_path / "penstock.toml")
            with command.make_context("serve", arguments) as context:
                roles += context.params["roles"]
    assert sorted(roles) == ["gateway", "jobs", "query"]


def test_the_manifests_agree_with_each_other_and_with_what_penstock_answers() -> None:
    """Services find their pods, probes ask routes that are open on a port that is listened on, mounts have a volume."""
    from penstock.gateway import AboutRoutes, GatewayConfig

    probes = {route.path for route in AboutRoutes("0").endpoints([]) if route.probe}
    port, asked = GatewayConfig().port, set()
    found = _manifests()
    pods = [each["spec"]["template"] for each in found if each["kind"] in ("Deployment", "StatefulSet")]
    offered = {"penstock-tokens"} | {each["metadata"]["name"] for each in found if each["kind"] == "ConfigMap"}
    claims = [claim for each in found for claim in each.get("spec", {}).get("volumeClaimTemplates", ())]
    for pod in pods:
        (container,) = pod["spec"]["containers"]
        assert [one["containerPort"] for one in container.get("ports", [])] in ([port], [])
        for probe in (container[name]["httpGet"] for name in container if name.endswith("Probe")):
            assert probe["port"] == container["ports"][0]["name"]
            asked.add(probe["path"])
        volumes = {one["name"]: one for one in pod["spec"]["volumes"]}
        named = {one["name"] for one in container["volumeMounts"]}
        assert named <= set(volumes) | {claim["metadata"]["name"] for claim in claims}
        used = {
            one.get("configMap", {}).get("name") or one.get("secret", {}).get("secretName") for one in volumes.values()
        }
        assert used - {None} <= offered
    assert asked == probes
    for each in found:
        if each["kind"] == "Service":
            wanted = each["spec"]["selector"].items()
            (pod,) = [pod for pod in pods if wanted <= pod["metadata"]["labels"].items()]
            names = [one["name"] for one in pod["spec"]["containers"][0]["ports"]]
            assert [one["targetPort"] for one in each["spec"]["ports"]] == names
        if each["kind"] == "NetworkPolicy":
            assert [one["port"] for rule in each["spec"]["ingress"] for one in rule["ports"]] == [port]


def test_the_container_file_starts_what_penstock_offers_and_not_as_root() -> None:
    text = (EXAMPLES / "container" / "Containerfile").read_text().replace("\\\n", " ")
    instructions = [line.split(maxsplit=1) for line in text.splitlines() if line and not line.startswith("#")]
    last = dict(instructions)
    assert last["USER"] == "10001"
    assert json.loads(last["ENTRYPOINT"]) == ["penstock"]
    first, *arguments = json.loads(last["CMD"])
    command = penstock.get_command(click.Context(penstock), first)
    assert command is not None
    with command.make_context(first, arguments) as context:
        assert (context.params["host"], context.params["tokens"]) == ("0.0.0.0", "/data/tokens.json")
    copied = [value.split()[:-1] for name, value in instructions if name == "COPY" and "--from" not in value]
    for source in (each for sources in copied for each in sources):
        assert (ROOT / source).exists(), source


@pytest.mark.parametrize("file", sorted(EXAMPLES.glob("policies/*.json")), ids=lambda file: file.stem)
def test_a_policy_allows_what_is_needed_and_no_more(file: Path) -> None:
    policy = json.loads(file.read_text())
    if not file.name.startswith("s3-"):
        assert policy
        return
    allowed = {action for one in policy["Statement"] if one["Effect"] == "Allow" for action in one["Action"]}
    assert not [action for action in allowed if "*" in action]
    assert not [one for one in policy["Statement"] if one["Effect"] == "Allow" and "*" in one["Resource"]]
    needed = {
        "s3-store": {"s3:ListBucket", "s3:GetObject", "s3:PutObject", "s3:DeleteObject", "s3:AbortMultipartUpload"},
        "s3-store-reader": {"s3:ListBucket", "s3:GetObject"},
        "s3-source": {"s3:ListBucket", "s3:GetObject"},
        "s3-kms": {"kms:GenerateDataKey", "kms:Decrypt"},
    }
    assert allowed == needed[file.stem]


def test_the_collector_sends_where_penstock_listens() -> None:
    config = yaml.safe_load((EXAMPLES / "collector" / "collector.yaml").read_text())
    exporter = config["exporters"]["otlphttp/penstock"]
    assert exporter["endpoint"] == "http://127.0.0.1:4318"
    assert exporter["compression"] in ("zstd", "gzip")
    for name, pipeline in config["service"]["pipelines"].items():
        assert name in ("metrics", "logs", "traces")
        assert set(pipeline["exporters"]) <= set(config["exporters"])
        assert set(pipeline["receivers"]) <= set(config["receivers"])


def test_every_example_has_a_page_and_is_in_the_list() -> None:
    listed = re.findall(r"\]\((\w+)/README.md\)", (EXAMPLES / "README.md").read_text())
    folders = sorted(path.name for path in EXAMPLES.iterdir() if path.is_dir() and path.name != "__pycache__")
    assert set(listed) <= set(folders)
    for folder in folders:
        assert (EXAMPLES / folder / "README.md").exists()


def test_every_page_that_the_site_lists_is_there() -> None:
    text = (ROOT / "mkdocs.yml").read_text()
    for page in re.findall(r"- (?:[\w ]+: )?([\w/-]+\.md)$", text, re.MULTILINE):
        assert (DOCS / page).exists(), page
    program = "import site_nav, pathlib; print(len(site_nav._expanded(['rooms/*'], pathlib.Path('../docs'))))"
    found = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT / "tools", capture_output=True, text=True, check=True
    )
    assert int(found.stdout) == len(list((DOCS / "rooms").glob("*.md")))
