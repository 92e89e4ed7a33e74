// The one script of our own: plots PromQL ranges, and lets a person drag to zoom. Tables work without it.
const root = document.querySelector("#explorer");
if (root) start(root);

function start(explorer) {
  const form = explorer.querySelector("form");
  const status = explorer.querySelector("[role=status]");
  const target = explorer.querySelector(".plot");
  const tree = explorer.querySelector(".tree");
  let plot = null;

  form.addEventListener("submit", (event) => {
    event.preventDefault();
    const hours = Number(form.elements.hours.value);
    const end = Date.now() / 1000;
    run(end - hours * 3600, end);
  });
  window.addEventListener("resize", () => plot && plot.setSize({ width: target.clientWidth, height: 320 }));

  async function ask(path, parameters) {
    const answer = await fetch(`/api/v1/${path}?${new URLSearchParams(parameters)}`);
    const body = await answer.json();
    if (body.status !== "success") throw new Error(body.error || answer.statusText);
    return body;
  }

  async function run(start, end) {
    const query = form.elements.query.value.trim();
    if (!query) return;
    status.textContent = "Evaluating …";
    history.replaceState(null, "", `?${new URLSearchParams({ query, hours: form.elements.hours.value })}`);
    try {
      const step = Math.max(1, Math.ceil((end - start) / 400));
      const [range, parsed] = await Promise.all([
        ask("query_range", { query, start, end, step }),
        ask("parse_query", { query }),
      ]);
      const count = range.data.result.length;
      const notes = [...(range.warnings || []), ...(range.infos || [])];
      status.textContent = `${count} series${notes.length ? `; ${notes.join("; ")}` : ""}`;
      draw(range.data.result, start, end, step);
      tree.replaceChildren(branch(parsed.data));
    } catch (error) {
      status.textContent = error.message;
    }
  }

  function draw(series, start, end, step) {
    if (plot) plot.destroy();
    target.replaceChildren();
    plot = null;
    if (!series.length) return;
    const times = [];
    for (let time = start; time <= end; time += step) times.push(time);
    const place = new Map(times.map((time, index) => [Math.round((time - start) / step), index]));
    const columns = series.slice(0, 50).map((one) => {
      const values = new Array(times.length).fill(null);
      for (const [time, value] of one.values) {
        const index = place.get(Math.round((time - start) / step));
        if (index !== undefined) values[index] = Number(value);
      }
      return values;
    });
    const ink = getComputedStyle(document.body).color;
    const axis = { stroke: ink, grid: { stroke: "rgba(128,128,128,.25)" } };
    plot = new uPlot({
      width: target.clientWidth,
      height: 320,
      series: [{}, ...series.slice(0, 50).map((one, index) => ({
        label: named(one.metric), stroke: `hsl(${(index * 137) % 360} 65% 50%)`, width: 1.5, spanGaps: false,
      }))],
      axes: [axis, axis],
      hooks: { setSelect: [(drawn) => {
        const { left, width } = drawn.select;
        if (width > 5) run(drawn.posToVal(left, "x"), drawn.posToVal(left + width, "x"));
      }] },
      cursor: { drag: { x: true, y: false, setScale: false } },
    }, [times, ...columns], target);
  }

  function named(metric) {
    const { __name__: name = "", ...labels } = metric;
    const inner = Object.entries(labels).map(([key, value]) => `${key}="${value}"`).join(", ");
    return inner ? `${name}{${inner}}` : name || "{}";
  }

  function branch(node) {
    const list = document.createElement("ul");
    const item = document.createElement("li");
    const text = document.createElement("code");
    text.textContent = [node.type, node.op, node.func && node.func.name, node.name, node.val,
      (node.matchers || []).map((one) => `${one.name}${one.type}"${one.value}"`).join(","),
      node.range ? `[${node.range} ms]` : "", (node.grouping || []).length ? `by (${node.grouping})` : ""]
      .filter(Boolean).join(" ");
    item.append(text);
    for (const inner of [node.expr, node.param, node.lhs, node.rhs, ...(node.args || [])]) {
      if (inner) item.append(branch(inner));
    }
    list.append(item);
    return list;
  }

  if (form.elements.query.value) form.requestSubmit();
}
