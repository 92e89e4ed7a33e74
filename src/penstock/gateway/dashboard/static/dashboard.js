// The one script of our own: refreshes without getting in the way, plots PromQL ranges, and lets a person drag to zoom.
// Tables and forms work without it.

// What a person reads with the keyboard or has selected is not replaced, and a page that nobody sees asks for nothing.
document.addEventListener("htmx:beforeRequest", (event) => {
  const region = event.target;
  const busy = region.contains(document.activeElement) || (document.getSelection() || {}).type === "Range";
  if (document.hidden || (busy && region.id !== "path" && region.id !== "poll")) event.preventDefault();
});

// Told once, when it changes: the picture itself is drawn anew every two seconds.
document.addEventListener("htmx:afterSwap", () => {
  const told = document.querySelector("#told");
  const verdict = document.querySelector(".verdict");
  if (told && verdict && told.textContent !== verdict.textContent) told.textContent = verdict.textContent;
});

// A page that can no longer be refreshed must not look as if all were well.
document.addEventListener("htmx:sendError", () => {
  const verdict = document.querySelector(".verdict");
  if (!verdict) return;
  verdict.className = "verdict down";
  verdict.textContent = "The server does not answer. This picture is old.";
});
document.addEventListener("htmx:responseError", (event) => {
  if (event.detail.xhr.status === 401 || event.detail.xhr.status === 403) location.reload();
});

// On a narrow screen the list of pages scrolls.
const here = document.querySelector("nav a[aria-current]");
if (here) here.scrollIntoView({ block: "nearest", inline: "center" });

const statement = document.querySelector("#statement");
if (statement) {
  statement.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) statement.form.requestSubmit();
  });
}

const root = document.querySelector("#explorer");
if (root && root.querySelector(".plot")) explore(root);

function explore(explorer) {
  const form = explorer.querySelector("form");
  const status = explorer.querySelector(".status");
  const target = explorer.querySelector(".plot");
  const values = explorer.querySelector(".values");
  const tree = explorer.querySelector(".tree");
  const hint = explorer.querySelector(".hint");
  const zooms = [];
  let plot = null;

  const size = () => ({ width: Math.max(200, target.clientWidth - 32), height: 320 });
  window.addEventListener("resize", () => plot && plot.setSize(size()));
  explorer.querySelector("#zoom-out").addEventListener("click", () => {
    zooms.pop();
    run();
  });

  async function ask(path, parameters) {
    const answer = await fetch(`/api/v1/${path}?${new URLSearchParams(parameters)}`);
    const body = await answer.json();
    if (body.status !== "success") throw new Error(body.error || answer.statusText);
    return body;
  }

  async function run() {
    const query = form.elements.query.value.trim();
    const now = Date.now() / 1000;
    const [start, end] = zooms.at(-1) || [now - Number(form.elements.hours.value) * 3600, now];
    explorer.querySelector("#zoom-out").hidden = !zooms.length;
    status.className = "status";
    status.textContent = "Evaluating …";
    try {
      const step = Math.max(1, Math.ceil((end - start) / 400));
      const [range, parsed] = await Promise.all([
        ask("query_range", { query, start, end, step }),
        ask("parse_query", { query }),
      ]);
      const series = range.data.result;
      const notes = [...(range.warnings || []), ...(range.infos || [])];
      if (series.length > 50) notes.push("the first 50 are plotted");
      status.textContent = `${series.length} series${notes.length ? `; ${notes.join("; ")}` : ""}`;
      draw(series.slice(0, 50), start, end, step);
      list(series.slice(0, 200));
      tree.replaceChildren(branch(parsed.data));
    } catch (error) {
      status.className = "status problem";
      status.textContent = error.message;
    }
    hint.hidden = !plot;
  }

  const colour = (index) => `hsl(${(210 + index * 137) % 360} 65% 50%)`;

  function draw(series, start, end, step) {
    if (plot) plot.destroy();
    target.replaceChildren();
    plot = null;
    // Shown before it is measured.
    target.hidden = !series.length;
    if (!series.length) return;
    const count = Math.floor((end - start) / step + 1e-6) + 1;
    const times = Array.from({ length: count }, (_, index) => start + index * step);
    const columns = series.map((one) => {
      const points = new Array(count).fill(null);
      for (const [time, value] of one.values) {
        const index = Math.round((time - start) / step);
        if (index >= 0 && index < count) points[index] = Number(value);
      }
      return points;
    });
    const ink = getComputedStyle(document.body).color;
    const axis = { stroke: ink, grid: { stroke: "rgba(128,128,128,.25)" }, ticks: { stroke: "rgba(128,128,128,.25)" } };
    // By the distance of two ticks, in seconds: what each shows, and what the first of a year and of a day adds.
    const clock = [
      [86400, "{YYYY}-{MM}-{DD}", null, null, null, null, null, null, 1],
      [60, "{HH}:{mm}", "\n{YYYY}-{MM}-{DD}", null, "\n{MM}-{DD}", null, null, null, 1],
      [1, "{HH}:{mm}:{ss}", "\n{YYYY}-{MM}-{DD}", null, "\n{MM}-{DD}", null, null, null, 1],
    ];
    plot = new uPlot({
      ...size(),
      legend: { show: false },
      series: [{}, ...series.map((one, index) => ({
        label: named(one.metric), stroke: colour(index), width: 1.5, spanGaps: false,
      }))],
      scales: { x: { time: true, min: start, max: end } },
      axes: [{ ...axis, values: clock }, { ...axis, size: 64, values: (_, ticks) => ticks.map(short) }],
      hooks: { setSelect: [(drawn) => {
        const { left, width } = drawn.select;
        if (width <= 5) return;
        zooms.push([drawn.posToVal(left, "x"), drawn.posToVal(left + width, "x")]);
        run();
      }] },
      cursor: { drag: { x: true, y: false, setScale: false } },
    }, [times, ...columns], target);
  }

  function short(value) {
    return value === null ? "" : new Intl.NumberFormat("en", { notation: "compact", maximumSignificantDigits: 4 }).format(value);
  }

  function list(series) {
    const table = document.createElement("table");
    const head = table.createTHead().insertRow();
    for (const [text, number] of [["series", false], ["last", true], ["lowest", true], ["highest", true]]) {
      const cell = document.createElement("th");
      cell.scope = "col";
      cell.textContent = text;
      if (number) cell.className = "number";
      head.append(cell);
    }
    const body = table.createTBody();
    series.forEach((one, index) => {
      const row = body.insertRow();
      const points = one.values.map(([, value]) => Number(value)).filter((value) => !Number.isNaN(value));
      const swatch = document.createElement("span");
      swatch.className = "swatch";
      if (index < 50) swatch.style.background = colour(index);
      const name = row.insertCell();
      name.append(swatch, named(one.metric));
      for (const value of [one.values.at(-1)[1], Math.min(...points), Math.max(...points)]) {
        const cell = row.insertCell();
        cell.className = "number";
        cell.textContent = Number.isFinite(Number(value)) ? String(Number(Number(value).toPrecision(6))) : String(value);
      }
    });
    const scroll = document.createElement("div");
    scroll.className = "scroll";
    scroll.tabIndex = 0;
    scroll.setAttribute("role", "region");
    scroll.setAttribute("aria-label", "Values");
    scroll.append(table);
    if (series.length) values.replaceChildren(scroll);
  }

  function named(metric) {
    const { __name__: name = "", ...labels } = metric;
    const inner = Object.entries(labels).map(([key, value]) => `${key}="${value}"`).join(", ");
    return inner ? `${name}{${inner}}` : name || "{}";
  }

  function branch(node) {
    const outer = document.createElement("ul");
    const item = document.createElement("li");
    const text = document.createElement("code");
    text.textContent = [node.type, node.op, node.func && node.func.name, node.name, node.val,
      (node.matchers || []).filter((one) => one.name !== "__name__" || one.value !== node.name).map((one) => `${one.name}${one.type}"${one.value}"`).join(", "),
      node.range ? `[${node.range / 1000} s]` : "",
      (node.grouping || []).length ? `${node.without ? "without" : "by"} (${node.grouping.join(", ")})` : ""]
      .filter(Boolean).join(" ");
    item.append(text);
    for (const inner of [node.expr, node.param, node.lhs, node.rhs, ...(node.args || [])]) {
      if (inner) item.append(branch(inner));
    }
    outer.append(item);
    return outer;
  }

  run();
}
