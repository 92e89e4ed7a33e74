"""The dashboard in a real browser: no error, no foreign request, no page wider than its screen, and usable by keyboard.

Pictures of every page are left in `build/dashboard`; look at them after a change of the templates or the sheet.
"""

import re

import pytest
from tests.gateway.browser import BUILD, WAIT_MS, axe_script, chromium, served

from penstock.clock import SYSTEM_CLOCK
from penstock.gateway import (
    DashboardRoutes,
    Fact,
    Gateway,
    GatewayConfig,
    Guard,
    PageLink,
    Principal,
    PrometheusRoutes,
    Section,
    Sessions,
    ShownEvent,
    Stage,
    StageState,
    TableView,
)
from penstock.timeseries import Engine, MemorySource

LONG = "a-very-long-folder-name/" * 6 + "a-document-with-a-rather-long-name.txt"
LOOKS = {"light": ("light", 1280, 900), "dark": ("dark", 1280, 900), "phone": ("light", 390, 844)}
PAGES = {
    "overview": "/",
    "queue": "/ui/page/queue",
    "documents": "/ui/page/documents",
    "empty": "/ui/page/empty",
    "broken": "/ui/page/broken",
    "events": "/ui/events",
    "search": "/ui/search?q=turbine",
    "search-nothing": "/ui/search?q=nothing",
    "metrics": "/ui/metrics",
    "plot": "/ui/metrics?query=level",
    "plot-wrong": "/ui/metrics?query=sum(",
    "sql": "/ui/sql",
    "missing": "/ui/page/missing",
}


class Shown:
    """A house in which there is something of everything: long names, errors, nothing at all."""

    pages = (
        PageLink("queue", "Queue"),
        PageLink("documents", "Documents"),
        PageLink("empty", "Empty"),
        PageLink("broken", "Broken"),
    )

    def __init__(self):
        self.looks = 0
        self.changed = []

    async def stages(self, viewer):
        self.looks += 1
        facts = [Fact("waiting", "1 batch"), Fact("a name of some length", "1,234,567 batches of something")]
        error = f"3 min ago: A batch could not be read. object={LONG}"
        return [
            Stage("Gateway", StageState.OK, facts, "", "", "Telemetry", f"{self.looks} rows/s", [1, 3, 2]),
            Stage("Edge", StageState.IDLE, facts, "", "queue", "Telemetry", "0 rows/s"),
            Stage("Telemetry queue", StageState.LATE, facts, error, "queue", "Telemetry"),
            Stage("Telemetry job", StageState.DOWN, facts, error, "queue", "Telemetry", "0 rows/s"),
            Stage("Catalog and series", StageState.LOST, facts, "", "queue", "Telemetry", lost="12 rows"),
            Stage("Indexes", StageState.ATTENTION, facts, "1 document could not be read", "documents", "Documents"),
        ]

    async def page(self, name, viewer, choice):
        if name == "empty":
            return [Section("Nothing", table=TableView(("a",), []))]
        if name == "broken":
            return [Section("Queue", error=f"the store does not answer: {LONG}")]
        if name == "queue":
            rows = [(str(number), LONG, "1,234", "12.5 MiB") for number in range(30)]
            table = TableView(("sequence", "batch object", "records", "size"), rows, frozenset({0, 2, 3}))
            return [Section("Queue", [Fact(f"fact {number}", "12,345") for number in range(9)], table, note="A note.")]
        rows = [(LONG, "quarantined", "0", "a PDF cannot be opened"), ("b.txt", "indexed", "3", "")]
        table = TableView(("key", "status", "chunks", "reason"), rows, frozenset({2}), row_keys=("key-a", "key-b"))
        links = [("all 2", "", True), ("quarantined 1", "status=quarantined", False)]
        return [Section("Index manual", table=table, links=links, index="manual")]

    async def events(self, viewer, after):
        found = [
            ShownEvent(3, "2026-01-01 00:00:02", "error", "telemetry", "landing.set_aside", f"object={LONG}"),
            ShownEvent(2, "2026-01-01 00:00:01", "warning", "index", "indexing.set_aside", "object=b.pdf"),
            ShownEvent(1, "2026-01-01 00:00:00", "info", "serve", "quiver.opened", ""),
        ]
        return [event for event in found if event.number > after]

    async def change_documents(self, change, index, keys, viewer):
        self.changed.append((str(change), index, list(keys)))
        return len(keys)


class Levels:
    """Three series of the last hour."""

    def __init__(self):
        now = SYSTEM_CLOCK.now_ms()
        times = [now + 60_000 * number for number in range(-60, 30)]
        named = [{"__name__": "level"}, {"__name__": "flow", "host": "a"}, {"__name__": "flow", "host": LONG}]
        self._engine = Engine(MemorySource([(labels, times, [float(n % 7) for n in range(90)]) for labels in named]))

    async def query(self, tenant, expression, time_ms):
        return self._engine.query(expression, time_ms)

    async def query_range(self, tenant, expression, start_ms, end_ms, step_ms):
        return self._engine.query_range(expression, start_ms, end_ms, step_ms)

    async def label_values(self, tenant, name, selectors, start_ms, end_ms):
        return ["flow", "level"]

    async def metadata(self, tenant, metric):
        return {"level": [{"type": "gauge", "help": "The level of the water.", "unit": "m"}]}


@pytest.fixture(scope="module")
def house():
    return Shown()


@pytest.fixture(scope="module")
def address(house):
    with served(_app(house)) as found:
        yield found


@pytest.fixture(scope="module")
def browser(address):
    with chromium() as found:
        yield found


@pytest.fixture
def page(browser, address):
    context = browser.new_context(base_url=address, viewport={"width": 1280, "height": 900})
    context.set_default_timeout(WAIT_MS)
    yield context.new_page()
    context.close()


@pytest.mark.slow
@pytest.mark.parametrize("look", LOOKS)
def test_every_page_is_sound_in_every_look(browser, address, look):
    """Nothing is refused by the policy, asked of another host, or wider than the screen; axe finds nothing."""
    scheme, width, height = LOOKS[look]
    axe = axe_script()
    BUILD.mkdir(parents=True, exist_ok=True)
    context = browser.new_context(
        base_url=address, color_scheme=scheme, viewport={"width": width, "height": height}, bypass_csp=False
    )
    context.set_default_timeout(WAIT_MS)
    page = context.new_page()
    told, foreign = [], []
    page.on("console", lambda message: told.append((page.url, message.text)) if message.type == "error" else None)
    page.on("pageerror", lambda error: told.append((page.url, str(error))))
    page.on("request", lambda request: None if request.url.startswith((address, "data:")) else foreign.append(request))
    for name, path in PAGES.items():
        page.goto(path)
        if name == "plot":
            page.locator(".uplot").wait_for()
        if name == "plot-wrong":
            page.locator(".problem").wait_for()
        page.screenshot(path=BUILD / f"{name}-{look}.png", full_page=True)
        assert page.evaluate("document.documentElement.scrollWidth") <= width, f"{name} is wider than the screen"
        if look == "phone":
            # The same page and colours as in the light look.
            continue
        # Through the debugger, which the page's policy does not bind: the page itself may run no such script.
        page.evaluate(axe)
        found = page.evaluate("axe.run().then((found) => found.violations)")
        assert [(one["id"], [node["html"] for node in one["nodes"]]) for one in found] == [], f"axe on {name}"
    context.close()
    # A page that is not there and an expression that is wrong are answered so, which the console notes.
    noted = [line for line in told if "404" not in line[1] and "400" not in line[1]]
    assert (noted, foreign) == ([], [])


@pytest.mark.slow
def test_the_picture_is_drawn_anew_without_a_reload(page):
    page.goto("/")
    first = page.locator(".rate").first.text_content()
    page.wait_for_function("(first) => document.querySelector('.rate').textContent !== first", arg=first)
    assert page.locator("#told").text_content() == page.locator(".verdict").text_content()


@pytest.mark.slow
def test_a_document_is_retried_and_forgotten_with_the_keyboard_alone(page, house):
    page.goto("/ui/page/documents")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Skip to the content"
    page.get_by_role("button", name=f"Retry {LONG}").focus()
    page.keyboard.press("Enter")
    page.get_by_text("1 document is queued to be read again.").wait_for()
    page.get_by_role("button", name="Forget b.txt").focus()
    page.keyboard.press("Enter")
    page.get_by_role("heading", name="Forget a document?").wait_for()
    page.get_by_role("button", name="Forget").focus()
    page.keyboard.press("Enter")
    page.get_by_text("1 document is queued to be removed from the index.").wait_for()
    assert house.changed == [("retry", "manual", ["key-a"]), ("forget", "manual", ["key-b"])]


@pytest.mark.slow
def test_every_link_and_button_can_be_reached_with_the_tab_key(page):
    page.goto("/ui/page/queue")
    wanted = page.locator("a:visible, button:visible, input:visible, [tabindex='0']:visible").count()
    reached = set()
    for _ in range(wanted + 5):
        page.keyboard.press("Tab")
        reached.add(
            page.evaluate(
                "[...document.querySelectorAll('a, button, input, [tabindex=\"0\"]')].indexOf(document.activeElement)"
            )
        )
    assert len(reached - {-1}) >= wanted


@pytest.mark.slow
def test_dragging_over_the_plot_zooms_in_and_a_button_zooms_out(page):
    page.goto("/ui/metrics?query=level")
    page.locator(".uplot").wait_for()
    assert "level" in page.locator(".tree").text_content()
    asked = []
    page.on("request", lambda request: asked.append(request.url) if "query_range" in request.url else None)
    box = page.locator(".u-over").bounding_box()
    page.mouse.move(box["x"] + 100, box["y"] + 50)
    page.mouse.down()
    page.mouse.move(box["x"] + 300, box["y"] + 60, steps=5)
    page.mouse.up()
    page.locator("#zoom-out").wait_for()
    start, end = (float(re.search(rf"{name}=([\d.]+)", asked[0])[1]) for name in ("start", "end"))
    assert 60 < end - start < 3600
    page.locator("#zoom-out").click()
    page.locator("#zoom-out").wait_for(state="hidden")


@pytest.mark.slow
def test_tables_and_forms_work_without_scripts(browser, address):
    context = browser.new_context(base_url=address, java_script_enabled=False)
    context.set_default_timeout(WAIT_MS)
    page = context.new_page()
    page.goto("/ui/metrics?query=level")
    assert page.get_by_role("cell", name="level").count() == 1
    page.goto("/ui/sql")
    page.get_by_role("textbox").fill("select 1")
    page.get_by_role("button", name="Run").click()
    assert page.get_by_role("cell", name="select 1").count() == 3
    context.close()


def _app(house):
    config = GatewayConfig()
    sessions = Sessions(secure=False)
    guard = Guard(config, lambda: None)
    routes = DashboardRoutes(
        house,
        config,
        sessions,
        authenticate=lambda _exchange, _token: Principal("default", frozenset()),
        search=_hits,
        sql=_rows,
        series=Levels(),
    )
    prometheus = PrometheusRoutes(Levels(), config, "0")
    return Gateway([*routes.endpoints(), *prometheus.endpoints()], config, guard=guard)


async def _hits(words, index, tenant):
    if words == "nothing":
        return []
    text = "Water turns the turbine. " * 60
    return [{"key": LONG, "section": "Chapter › Part", "score": 0.5, "start": 0, "end": 9, "text": text}] * 3


async def _rows(statement, tenant):
    return ["answer", "another"], [[statement, LONG]] * 3
