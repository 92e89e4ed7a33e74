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


@pytest.mark.parametrize(
    ("query", "counts"),
    [
        ("up", [2, 2, 2]),
        ("sum(rate(up[30s]))", [2, 4, 4]),
        ('up{job="a"} + on(job) up', [3, 3, 3]),
        # What is the same at every step counts at each, and of a subquery its own values count.
        (f"up @ {T0 // 1000}", [2, 2, 2]),
        ("count_over_time(up[30s:10s])", [2, 6, 6]),
        ("timestamp(up)", [2, 2, 2]),
        ("1", [0, 0, 0]),
    ],
)
def test_statistics_count_the_samples_that_each_step_looks_at(ask, query, counts):
    start, end = T0 // 1000, T0 // 1000 + 60
    asked = {"query": query, "start": start, "end": end, "step": "30", "stats": "all"}
    for answer in (ask("query_range", params=asked), ask("query_range", "POST", data=asked)):
        stats = answer.json()["data"]["stats"]
        found = stats["samples"]
        assert found["totalQueryableSamplesPerStep"] == [[start + 30 * n, count] for n, count in enumerate(counts)]
        assert found["totalQueryableSamples"] == sum(counts)
        assert found["peakSamples"] >= max(counts)
        times = stats["timings"]
        assert times["execTotalTime"] >= times["innerEvalTime"] >= 0
        assert times["evalTotalTime"] == pytest.approx(times["queryPreparationTime"] + times["innerEvalTime"])


def test_statistics_are_given_to_whoever_asks_for_them(ask):
    asked = {"query": "up", "time": str(T0 / 1000)}
    assert "stats" not in ask("query", params=asked).json()["data"]
    assert "stats" not in ask("query", params={**asked, "stats": ""}).json()["data"]
    some = ask("query", params={**asked, "stats": "1"}).json()["data"]["stats"]
    assert some["samples"] == {"totalQueryableSamples": 2, "peakSamples": 2}
    every = ask("query", params={**asked, "stats": "all"}).json()["data"]["stats"]
    assert every["samples"]["totalQueryableSamplesPerStep"] == [[T0 / 1000, 2]]


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


@pytest.mark.parametrize("query", ["up + on() up", 'label_replace(up, "a", "$1", "job", "(")'])
def test_what_an_expression_cannot_do_is_an_error_of_its_execution(ask, query):
    asked = {"query": query, "time": str(T0 / 1000)}
    refused = ask("query", params=asked)
    assert (refused.status_code, refused.json()["errorType"]) == (422, "execution")


def test_an_empty_time_is_none(ask):
    for path in ("query", "labels", "label/job/values"):
        assert ask(path, params={"query": "up", "time": "", "start": "", "end": ""}).json()["status"] == "success"
    refused = ask("query_range", params={"query": "up", "start": "", "end": "1", "step": "1"})
    assert (refused.status_code, "start" in refused.json()["error"]) == (400, True)


def test_series_of_several_selectors_come_in_the_order_of_their_labels(ask):
    found = ask("series", params={"match[]": ['up{job="b"}', "up"]}).json()["data"]
    assert [labels["job"] for labels in found] == ["a", "b"]


def test_too_many_steps_are_refused_as_prometheus_refuses_them(ask):
    answer = ask("query_range", params={"query": "up", "start": "0", "end": "1000000000", "step": "1"})
    assert answer.status_code in (400, 422)


def test_a_query_is_explained_as_a_tree(ask):
    tree = ask("parse_query", params={"query": "sum by (job) (rate(up[5m]))"}).json()["data"]
    assert tree["type"] == "aggregation"
    assert tree["expr"]["args"][0]["range"] == 300_000


class NeverAnswers:
    """A store whose every question takes for ever."""

    def __getattr__(self, _name):
        async def asked(*_arguments):
            await asyncio.Event().wait()

        return asked


@pytest.mark.parametrize(
    "path", ["query?query=up", "series?match[]=up", "labels", "label/job/values", "metadata", "status/tsdb"]
)
def test_no_question_takes_longer_than_a_query_may(path):
    async def one():
        app = Gateway(PrometheusRoutes(NeverAnswers(), GatewayConfig(query_seconds_max=0.01), "0").endpoints())
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://localhost") as client:
            return await client.get(f"/api/v1/{path}")

    answer = asyncio.run(one())
    assert answer.status_code == 503
    assert answer.headers["retry-after"]
    assert answer.json()["status"] == "error"


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


@pytest.mark.parametrize(
    ("query", "formatted"),
    [
        ('up{job="a  b"}   +\n 1', 'up{job="a  b"} + 1'),
        ("up{job='a  b\\'  c'}", "up{job='a  b\\'  c'}"),
        ("up{job=`a\n  b`}", "up{job=`a\n  b`}"),
        ("up # what is up,\n  + 1", "up + 1"),
        ('up{job="#  1"} # end', 'up{job="#  1"}'),
    ],
)
def test_formatting_changes_nothing_that_a_query_means(ask, query, formatted):
    assert ask("format_query", params={"query": query}).json()["data"] == formatted


def test_an_error_names_the_parameter_that_it_is_about(ask):
    told = ask("query", params={"query": "up", "timeout": "soon"}).json()["error"]
    assert "timeout" in told
    assert "step" not in told


@pytest.mark.parametrize(
    "asked",
    [
        {"query": "up", "start": "2", "end": "1"},
        {"query": "up", "start": "soon", "end": "1"},
        {"query": "", "start": "1", "end": "2"},
    ],
)
def test_exemplars_are_asked_for_as_prometheus_demands(ask, asked):
    refused = ask("query_exemplars", params=asked)
    assert (refused.status_code, refused.json()["errorType"]) == (400, "bad_data")


@pytest.mark.parametrize(
    ("path", "data"),
    [
        ("targets", {"activeTargets": [], "droppedTargets": []}),
        ("targets/metadata", []),
        ("alertmanagers", {"activeAlertmanagers": [], "droppedAlertmanagers": []}),
        ("status/flags", {}),
        ("status/config", {"yaml": ""}),
    ],
)
def test_what_only_a_scraper_has_is_empty_here_and_no_error(ask, path, data):
    assert ask(path).json() == {"status": "success", "data": data}


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
    assert told["memoryInBytesByLabelName"] == [{"name": "__name__", "value": 4}, {"name": "job", "value": 2}]
    short = ask("status/tsdb", params={"limit": "1"}).json()["data"]
    assert [one["name"] for one in short["memoryInBytesByLabelName"]] == ["__name__"]
    assert ask("status/nothing").status_code == 404
