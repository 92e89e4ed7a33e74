"""The Prometheus HTTP API, in Prometheus' own words, over a real store."""

import asyncio

import httpx
import pytest

from penstock.gateway import Gateway, GatewayConfig, PrometheusRoutes, StoredSeries
from penstock.timeseries import MetricMetadata, SampleBatch, TimeSeriesStore

T0 = 1_700_000_000_000


@pytest.fixture(scope="module")
def ask(tmp_path_factory):
    """Asks a gateway over a store with two series of `up` for tenant default, and one for another."""
    url = f"file://{tmp_path_factory.mktemp('series')}"

    async def filled():
        async with await TimeSeriesStore.open(url, "series") as store:
            for tenant, jobs in (("default", ("a", "b")), ("other", ("secret",))):
                times = [T0 + 15_000 * number for number in range(20)]
                values = [float(number) for number in range(20)]
                batch = SampleBatch.of_series(
                    [({"__name__": "up", "job": job}, times, values) for job in jobs],
                    {"up": MetricMetadata("gauge", "Whether it is up.", "")},
                )
                await store.write(batch, tenant=tenant, durable=True)

    asyncio.run(filled())

    def asking(path, method="GET", **given):
        async def one():
            series = StoredSeries(lambda: TimeSeriesStore.open_reader(url, "series"))
            app = Gateway(PrometheusRoutes(series, GatewayConfig(), "0").endpoints())
            async with httpx.AsyncClient(
                transport=httpx.ASGITransport(app), base_url="http://localhost/api/v1/"
            ) as client:
                answer = await client.request(method, path, **given)
            await series.close()
            return answer

        return asyncio.run(one())

    return asking


def test_an_instant_query_by_get_and_by_post(ask):
    asked = {"query": "sum(up)", "time": str((T0 + 150_000) / 1000)}
    for answer in (ask("query", params=asked), ask("query", "POST", data=asked)):
        assert answer.json() == {
            "status": "success",
            "data": {"resultType": "vector", "result": [{"metric": {}, "value": [(T0 + 150_000) / 1000, "20"]}]},
        }


def test_a_range_query_takes_durations_and_rfc_3339(ask):
    answer = ask(
        "query_range",
        params={"query": 'up{job="a"}', "start": "2023-11-14T22:13:20Z", "end": str(T0 / 1000 + 60), "step": "30s"},
    )
    assert answer.json()["data"]["result"][0]["values"] == [[T0 / 1000 + 30 * n, str(2 * n)] for n in range(3)]


def test_series_labels_values_and_metadata_are_the_tenants_own(ask):
    assert ask("series", params={"match[]": "up"}).json()["data"] == [
        {"__name__": "up", "job": "a"},
        {"__name__": "up", "job": "b"},
    ]
    assert ask("labels").json()["data"] == ["__name__", "job"]
    assert ask("label/job/values").json()["data"] == ["a", "b"]
    assert ask("metadata").json()["data"] == {"up": [{"type": "gauge", "help": "Whether it is up.", "unit": ""}]}
    assert ask("status/tsdb").json()["data"]["headStats"]["numSeries"] == 2


def test_a_limit_cuts_and_says_so(ask):
    answer = ask("series", params={"match[]": "up", "limit": "1"}).json()
    assert len(answer["data"]) == 1
    assert answer["warnings"] == ["results truncated due to limit"]


def test_times_outside_the_data_give_nothing_and_no_error(ask):
    assert ask("query", params={"query": "up", "time": "1"}).json()["data"]["result"] == []


@pytest.mark.parametrize(
    ("path", "asked"),
    [
        ("query", {}),
        ("query", {"query": "up{"}),
        ("query", {"query": "up", "time": "soon"}),
        ("query", {"query": "up", "time": "NaN"}),
        ("query_range", {"query": "up", "start": "2", "end": "1", "step": "1"}),
        ("query_range", {"query": "up", "start": "1", "end": "2", "step": "0"}),
        ("query_range", {"query": "up", "start": "1", "end": "2", "step": "-5m"}),
        ("query_range", {"query": "up", "start": "1", "end": "2"}),
        ("series", {}),
        ("series", {"match[]": "rate(up[5m])"}),
        ("query", {"query": "up", "limit": "-1"}),
    ],
)
def test_what_cannot_be_read_is_bad_data(ask, path, asked):
    answer = ask(path, params=asked)
    assert answer.status_code == 400
    assert answer.json()["status"] == "error"
    assert answer.json()["errorType"] == "bad_data"
    assert answer.json()["error"]


def test_too_many_steps_are_refused_as_prometheus_refuses_them(ask):
    answer = ask("query_range", params={"query": "up", "start": "0", "end": "1000000000", "step": "1"})
    assert answer.status_code in (400, 422)


def test_a_query_is_explained_as_a_tree(ask):
    tree = ask("parse_query", params={"query": "sum by (job) (rate(up[5m]))"}).json()["data"]
    assert tree["type"] == "aggregation"
    assert tree["expr"]["args"][0]["range"] == 300_000


def test_before_anything_was_written_every_question_has_an_empty_answer(tmp_path):
    async def one(path, **params):
        series = StoredSeries(lambda: TimeSeriesStore.open_reader(f"file://{tmp_path}/none", "series"))
        app = Gateway(PrometheusRoutes(series, GatewayConfig(), "0").endpoints())
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://localhost") as client:
            return (await client.get(f"/api/v1/{path}", params=params)).json()

    assert asyncio.run(one("labels"))["data"] == []
    assert asyncio.run(one("query", query="1 + 1"))["data"]["result"][1] == "2"
    assert asyncio.run(one("query", query="up"))["data"]["result"] == []


def test_what_grafana_asks_when_a_data_source_is_saved_is_answered_in_prometheus_words(ask):
    """Its health check, its version and its lists of rules and alerts: empty ones, not errors."""
    told = ask("status/buildinfo").json()["data"]
    assert told["version"].partition(".")[0].isdigit()
    assert ask("rules").json() == {"status": "success", "data": {"groups": []}}
    assert ask("rules", params={"type": "alert"}).json() == {"status": "success", "data": {"groups": []}}
    assert ask("alerts").json() == {"status": "success", "data": {"alerts": []}}
    health = ask("query", "POST", data={"query": "1+1", "time": "4"})
    assert health.json()["data"] == {"resultType": "scalar", "result": [4, "2"]}


@pytest.mark.parametrize("method", ["GET", "POST"])
def test_exemplars_are_none_and_a_query_that_cannot_be_read_is_told(ask, method):
    given = "params" if method == "GET" else "data"
    asked = {"query": "up", "start": str(T0 / 1000), "end": str(T0 / 1000 + 60)}
    assert ask("query_exemplars", method, **{given: asked}).json() == {"status": "success", "data": []}


@pytest.mark.parametrize("method", ["GET", "POST"])
def test_a_query_is_formatted(ask, method):
    given = "params" if method == "GET" else "data"
    answer = ask("format_query", method, **{given: {"query": 'sum( rate(up{job="a"}[5m]))by(job)'}})
    assert answer.json()["status"] == "success"
    again = ask("format_query", method, **{given: {"query": answer.json()["data"]}})
    assert again.json() == answer.json()
    refused = ask("format_query", method, **{given: {"query": "sum("}})
    assert (refused.status_code, refused.json()["errorType"]) == (400, "bad_data")


def test_the_status_of_the_store_is_the_tenants_own(ask):
    told = ask("status/tsdb").json()["data"]
    assert told["headStats"]["numSeries"] == 2
    assert [one["name"] for one in told["seriesCountByMetricName"]] == ["up"]
    assert "secret" not in str(told)
    assert ask("status/nothing").status_code == 404
