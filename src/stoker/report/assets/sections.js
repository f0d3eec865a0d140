"use strict";
// The sections of the page, from the headline to the settings of the build.

const page = document.getElementById("page");
let timeline = null;

// -- head -------------------------------------------------------------------------------------

function statusPill(run) {
  if (!run.timed) return el("span", { class: "pill" }, "imported: when its steps ran is not known");
  if (!run.complete) return el("span", { class: "pill warn" }, "not finished: this is what was recorded until then");
  if (run.status) return el("span", { class: "pill bad" }, `failed, status ${run.status}`);
  return el("span", { class: "pill good" }, "succeeded");
}

function titleOf(run) { return run.build && run.build.title ? run.build.title : run.command; }

function head() {
  const when = new Date(RUN.began * 1000).toLocaleString();
  const machine = [RUN.cpus ? plural(RUN.cpus, "CPU") : null, RUN.limit ? `${size(RUN.limit)} limit` : null, RUN.policy ? `policy ${RUN.policy}` : null];
  document.title = `${titleOf(RUN)} – stoker report`;
  document.getElementById("top").append(
    el("div", { class: "row between" }, el("span", { class: "muted" }, `stoker report, run ${RUN.id}`),
      el("button", { id: "theme", onclick: () => Theme.toggle() }, "Light / dark")),
    el("h1", {}, titleOf(RUN)),
    el("div", { class: "row muted" }, statusPill(RUN), RUN.build ? el("span", {}, RUN.build.variant) : null, el("span", {}, machine.filter(Boolean).join(", ")), el("span", {}, when)));
}

function tile(name, value, note, share, colour) {
  return el("div", { class: "tile" }, el("div", { class: "name" }, name), el("div", { class: "value" }, value),
    share === undefined || share === null ? null : bar(share, colour), el("div", { class: "note" }, note));
}

function headline() {
  const notes = [RUN.lost ? `${count(RUN.lost)} killed and repeated` : "none killed", RUN.oom_kills ? plural(RUN.oom_kills, "OOM kill") : null, RUN.pauses ? plural(RUN.pauses, "pause") : null, RUN.failed ? `${count(RUN.failed)} failed` : null];
  const busy = RUN.wall_s ? RUN.cpu_s / RUN.wall_s : 0;
  const tiles = !RUN.timed ? [
    tile("CPU time", duration(RUN.cpu_s), "of all steps"), tile("Largest peak", size(RUN.peak), "of a step"), tile("Steps", count(RUN.steps), ""),
  ] : [
    tile("Wall time", duration(RUN.wall_s), RUN.bounds.length ? `no schedule can beat ${duration(RUN.bounds[0].seconds)}` : ""),
    tile("CPU time", duration(RUN.cpu_s), RUN.cpus ? `${busy.toFixed(1)} of ${plural(RUN.cpus, "CPU")} busy on average` : `${busy.toFixed(1)} CPUs busy on average`),
    RUN.limit ? tile("Peak memory", size(RUN.peak), `${percent(RUN.peak / RUN.limit)} of the ${size(RUN.limit)} limit`, RUN.peak / RUN.limit, "--accent") : tile(RUN.complete ? "Peak memory" : "Largest peak", size(RUN.peak), RUN.complete ? "the limit was not recorded" : "of a step; the limit was not recorded"),
    tile("Steps", count(RUN.steps), notes.filter(Boolean).join(", ")),
  ];
  if (RUN.cache_hits) tiles.push(tile("Cache hits", count(RUN.cache_hits), `${percent(RUN.cache_hits / (RUN.cache_hits + RUN.steps))} of all compiles`));
  if (DATA.cost !== null) tiles.push(tile("Cost", money(DATA.cost), "from the prices in stoker.toml"));
  return el("div", { class: "tiles", id: "headline" }, tiles);
}

// -- where the time went ----------------------------------------------------------------------

const BOUND_TEXT = { "CPU": "CPU time, spread over all CPUs", "memory": "memory × time, under the limit", "critical path": "longest chain of dependent steps" };

function boundsPart() {
  if (!RUN.bounds.length) return null;
  const rows = RUN.bounds.flatMap((bound, place) => [
    el("div", {}, el("div", {}, bound.name), el("div", { class: "muted", style: { fontSize: ".8rem" } }, BOUND_TEXT[bound.name])),
    bar(bound.share, place === 0 ? "--accent" : "--faint"),
    el("div", { class: "num" }, el("b", {}, percent(bound.share)), el("span", { class: "muted" }, ` ${duration(bound.seconds)}`)),
  ]);
  const [first] = RUN.bounds;
  const verdict = first ? `The largest lower bound is ${first.name === "CPU" ? "CPU time" : first.name === "memory" ? "memory" : "the critical path"}: ${percent(first.share)} of the wall time would pass under any schedule.` : "";
  const graph = RUN.has_graph ? null : el("p", { class: "muted" }, "The build folder's dependency graph was not found: the critical path is the longest single step.");
  return el("div", {}, el("h3", {}, "Lower bounds, as shares of the wall time"), el("div", { class: "bounds" }, rows), el("p", {}, verdict), graph);
}

function cpuPart() {
  if (!RUN.cpu_time) return null;
  const parts = [
    ["computing", "--cxx", "steps on a CPU"],
    ["repeated", "--bad", "attempts that were killed"],
    ["stalled", "--fortran", "steps running, but not on a CPU: disks, shared CPUs"],
    ["held", "--warn", "CPUs free while steps were held back, mostly for memory"],
    ["idle", "--wait", RUN.cpu_time.held === null ? "CPUs free" : "CPUs free and no step waiting: dependencies, configuration"],
  ].map(([name, colour, text]) => ({ name, colour, text, amount: RUN.cpu_time[name] })).filter((part) => part.amount);
  const whole = parts.reduce((sum, part) => sum + part.amount, 0) || 1;
  const split = el("div", { class: "bar split", "aria-hidden": "true" }, parts.map((part) => el("i", { style: { width: `${100 * part.amount / whole}%`, background: `var(${part.colour})` } })));
  const legend = el("ul", { class: "legend" }, parts.map((part) => el("li", { title: part.text }, el("i", { style: { background: `var(${part.colour})` } }), el("b", {}, percent(part.amount / whole)), ` ${part.text}`)));
  return el("div", {}, el("h3", {}, `${plural(RUN.cpus, "CPU")} × ${duration(RUN.wall_s)}: what became of them`), split, legend);
}

// -- timeline ---------------------------------------------------------------------------------

function timelineCard() {
  const canvas = el("canvas", { id: "timeline", tabindex: "0", role: "application", "aria-label": "Timeline of steps and memory", "aria-describedby": "keys" });
  const overview = el("canvas", { id: "overview", "aria-hidden": "true" });
  const detail = el("div", { id: "detail" });
  const legend = el("ul", { class: "legend", id: "colours" });
  const press = (name) => { timeline.by = name; for (const [key, button] of Object.entries(choices)) button.setAttribute("aria-pressed", String(key === name)); fillLegend(legend); timeline.redraw(); };
  const choices = {
    role: el("button", { "aria-pressed": "true", onclick: () => press("role") }, "by language"),
    target: el("button", { "aria-pressed": "false", onclick: () => press("target") }, "by target"),
  };
  const path = el("button", { id: "show-path", "aria-pressed": "false", onclick: () => {
    timeline.path = timeline.path ? null : new Set(RUN.path);
    path.setAttribute("aria-pressed", String(Boolean(timeline.path)));
    timeline.redraw();
  } }, "critical path only");
  const tools = el("div", { class: "row" }, choices.role, choices.target, path,
    el("button", { id: "zoom-in", "aria-label": "Zoom in", onclick: () => timeline.zoom(0.5) }, "+"),
    el("button", { id: "zoom-out", "aria-label": "Zoom out", onclick: () => timeline.zoom(2) }, "−"),
    el("button", { id: "zoom-all", onclick: () => timeline.whole() }, "whole run"));
  const made = el("section", { class: "card", id: "timeline-card", "aria-label": "Timeline" },
    el("div", { class: "row between" }, el("h2", {}, "Timeline"), tools), legend,
    el("div", { class: "chart", style: { marginTop: "8px" } }, canvas, overview),
    el("p", { class: "muted", id: "keys", style: { fontSize: ".82rem", marginTop: "8px" } },
      "Drag to zoom, double-click for the whole run, click a step for its details. With the keyboard: + and − zoom, ← and → move, ↑ and ↓ go from step to step, 0 shows the whole run. The table of steps below has the same figures."),
    detail);
  return { made, start: () => { timeline = new Timeline(canvas, overview, (i) => showDetail(detail, i)); fillLegend(legend); } };
}

function fillLegend(legend) {
  const entries = timeline.by === "role"
    ? RUN.roles.map((total) => [total.name.replace("compile ", ""), ROLE_COLOURS[total.name] || "--other"])
    : [...RUN.targets.slice(0, 10).map((total, i) => [total.name, `--t${i}`]), ...(RUN.targets.length > 10 ? [["others", "--other"]] : [])];
  if (RUN.lost) entries.push(["killed and repeated", "--bad"]);
  legend.replaceChildren(...entries.map(([name, colour]) => el("li", {}, el("i", { style: { background: `var(${colour})` } }), name)));
}

function showDetail(place, i) {
  if (i === null) { place.replaceChildren(); return; }
  const wait = STEPS.waited[i];
  const facts = [
    ["Kind", `${STEPS.word("role", i)}, target ${STEPS.word("target", i)}`],
    ["Output", STEPS.output[i] || "–"],
    ["Result", outcomeText(i)],
    ["Time", `${duration(STEPS.seconds[i])}${RUN.timed ? ` from ${clock(STEPS.started[i])} to ${clock(STEPS.ended[i])}` : ""}, CPU ${duration(STEPS.cpu_seconds[i])}`],
    ["Ran", STEPS.mode[i] || "by default"],
    ["Waited", wait === null ? "not recorded" : STEPS.waits[i]],
    ["Peak", STEPS.predicted[i] === null ? size(STEPS.peak[i]) : `${size(STEPS.peak[i])}, predicted ${size(STEPS.predicted[i])} from ${STEPS.word("basis", i)}`],
    ["Memory × time", memoryTime(STEPS.byte_seconds[i])],
    ["Compiler", STEPS.word("compiler", i)],
  ];
  const archs = STEPS.word("archs", i), flags = STEPS.word("flags", i);
  if (archs.length) facts.push(["GPU targets", archs.join(" ")]);
  if (STEPS.killed[i]) facts.push(["Killed", STEPS.killed[i]]);
  if (STEPS.once[i]) facts.push(["Preemption", STEPS.once[i]]);
  for (const pause of STEPS.pauses[i] || []) facts.push(["Paused", `${duration(pause.seconds)} at ${clock(pause.at)}: ${pause.why}`]);
  if (flags.length) facts.push(["Flags", el("details", {}, el("summary", {}, plural(flags.length, "flag")), el("code", {}, flags.join(" ")))]);
  place.replaceChildren(el("div", { class: "detail" }, el("h3", {}, STEPS.title[i]),
    el("dl", {}, facts.flatMap(([name, text]) => [el("dt", {}, name), el("dd", {}, text)])), profileChart(i)));
  announce(`${STEPS.title[i]}: ${duration(STEPS.seconds[i])}, peak ${size(STEPS.peak[i])}, ${outcomeText(i)}`);
}

function profileChart(i) {
  const shape = STEPS.shape(i);
  if (!shape.length) return el("div", { class: "muted" }, "Too short for a memory profile.");
  const name = "http://www.w3.org/2000/svg", svg = document.createElementNS(name, "svg"), area = document.createElementNS(name, "path");
  const points = [...shape].map((share, n) => `L${(300 * n / shape.length).toFixed(1)},${(84 - 0.8 * share).toFixed(1)}H${(300 * (n + 1) / shape.length).toFixed(1)}`);
  svg.setAttribute("viewBox", "0 0 300 90");
  svg.setAttribute("role", "img");
  svg.setAttribute("aria-label", `Memory over the life of the step, up to ${size(STEPS.peak[i])}`);
  area.setAttribute("d", `M0,84${points.join("")}V84Z`);
  area.setAttribute("style", `fill: var(${ROLE_COLOURS[STEPS.word("role", i)] || "--other"}); opacity: .8`);
  svg.append(area);
  return el("div", {}, el("div", { class: "muted" }, "memory over its life"), svg);
}

// -- critical path ----------------------------------------------------------------------------

function pick(i) {
  if (timeline) timeline.pick(i, { centre: true });
  else showDetail(document.getElementById("detail"), i);
  document.getElementById(timeline ? "timeline-card" : "steps").scrollIntoView({ block: "start" });
}

// The beginning of the folder gives way where the name is too long; the text stays whole for search
// and copying. The title of a step of another kind is its command.
function stepName(i) {
  const role = STEPS.word("role", i), title = STEPS.title[i], name = role === "other" ? title : shortName(title);
  return el("span", { class: "step", title }, el("span", { class: "chip", style: { background: `var(${ROLE_COLOURS[role] || "--other"})` } }),
    el("span", { class: "folder" }, el("bdi", { dir: "ltr" }, title.slice(0, title.length - name.length))), el("span", { class: "file" }, name));
}

function pathCard() {
  const most = Math.max(...RUN.path.map((i) => STEPS.seconds[i]), 0.001);
  const columns = [
    { title: "step", name: true, cell: stepName },
    { title: "target", cell: (i) => STEPS.word("target", i) },
    { title: "start", num: true, cell: (i) => clock(STEPS.started[i]) },
    { title: "waited", num: true, cell: (i) => (STEPS.waited[i] === null ? "–" : duration(STEPS.waited[i])) },
    { title: "time", num: true, cell: (i) => duration(STEPS.seconds[i]) },
    { title: "CPU", num: true, cell: (i) => duration(STEPS.cpu_seconds[i]) },
    { title: "", cell: (i) => bar(STEPS.seconds[i] / most, "--accent") },
  ];
  const text = RUN.has_graph ? `${plural(RUN.path.length, "step")}, ${duration(RUN.path_s)} if every step has a CPU of its own and none waits: more CPUs or memory cannot make the build faster.` : `No dependency graph was found; the longest step takes ${duration(RUN.path_s)}.`;
  return card("path", "Critical path", "", el("p", { class: "muted" }, text), table(columns, RUN.path, { pick, caption: "Steps of the critical path" }));
}

// -- steps ------------------------------------------------------------------------------------

const PER_PAGE = 50;

function stepsCard() {
  const ratio = (i) => (STEPS.predicted[i] ? STEPS.peak[i] / STEPS.predicted[i] : null);
  const columns = [
    { id: "title", title: "step", name: true, key: (i) => STEPS.title[i], cell: stepName },
    { id: "started", title: "start", num: true, key: (i) => STEPS.started[i], cell: (i) => clock(STEPS.started[i]) },
    { id: "waited", title: "waited", num: true, key: (i) => STEPS.waited[i], cell: (i) => (STEPS.waited[i] === null ? "–" : duration(STEPS.waited[i])) },
    { id: "seconds", title: "time", num: true, key: (i) => STEPS.seconds[i], cell: (i) => duration(STEPS.seconds[i]) },
    { id: "cpu", title: "CPU", num: true, key: (i) => STEPS.cpu_seconds[i], cell: (i) => duration(STEPS.cpu_seconds[i]) },
    { id: "peak", title: "peak", num: true, key: (i) => STEPS.peak[i], cell: (i) => size(STEPS.peak[i]) },
    { id: "area", title: "memory × time", num: true, key: (i) => STEPS.byte_seconds[i], cell: (i) => memoryTime(STEPS.byte_seconds[i]) },
    { id: "predicted", title: "predicted", num: true, key: (i) => STEPS.predicted[i], cell: (i) => size(STEPS.predicted[i]) },
    { id: "ratio", title: "ratio", num: true, key: ratio, cell: (i) => (ratio(i) === null ? "–" : times(ratio(i))) },
    { id: "outcome", title: "result", key: (i) => STEPS.word("outcome", i), cell: (i) => el("span", { class: STEPS.lost(i) || STEPS.failed(i) ? "bad" : "muted" }, STEPS.word("outcome", i)) },
  ];
  const byTime = columns[3];
  if (!RUN.timed) columns.splice(1, 2);
  const state = { sort: byTime, down: true, at: 0, words: [], role: "" };
  const search = el("input", { type: "search", id: "search", placeholder: "search: file, target, flag", "aria-label": "Search steps", oninput: () => { state.words = search.value.toLowerCase().split(/\s+/).filter(Boolean); state.at = 0; fill(); } });
  const roles = el("select", { id: "roles", "aria-label": "Language", onchange: () => { state.role = roles.value; state.at = 0; fill(); } },
    el("option", { value: "" }, "all kinds"), RUN.roles.map((total) => el("option", { value: total.name }, total.name)));
  const shown = el("span", { class: "muted", id: "shown", "aria-live": "polite" });
  const body = el("tbody", { id: "rows" }), heads = new Map();
  const move = (by) => { state.at += by; fill(); };
  const back = el("button", { onclick: () => move(-PER_PAGE) }, "previous"), next = el("button", { id: "next", onclick: () => move(PER_PAGE) }, "next");
  const header = el("tr", {}, columns.map((column) => {
    const cell = el("th", { scope: "col", class: column.num ? "num" : null }, el("button", { id: `sort-${column.id}`, onclick: () => {
      state.down = state.sort === column ? !state.down : Boolean(column.num);
      state.sort = column;
      state.at = 0;
      fill();
    } }, column.title));
    heads.set(column, cell);
    return cell;
  }));
  const texts = Array.from({ length: STEPS.length }, (_, i) => `${STEPS.title[i]}\n${STEPS.output[i]}\n${STEPS.word("target", i)}\n${STEPS.word("role", i)}\n${STEPS.word("outcome", i)}`.toLowerCase());
  const matches = (i) => (!state.role || STEPS.word("role", i) === state.role) && state.words.every((word) => texts[i].includes(word) || (word.startsWith("-") && STEPS.word("flags", i).some((flag) => flag.toLowerCase().includes(word))));

  function fill() {
    const key = state.sort.key, sign = state.down ? -1 : 1;
    const rows = [];
    for (let i = 0; i < STEPS.length; i += 1) if (matches(i)) rows.push(i);
    rows.sort((a, b) => {
      const one = key(a), other = key(b);
      if (one === null || other === null) return (one === null) - (other === null);
      return sign * (one < other ? -1 : one > other ? 1 : 0) || a - b;
    });
    for (const [column, cell] of heads) {
      if (column === state.sort) cell.setAttribute("aria-sort", state.down ? "descending" : "ascending");
      else cell.removeAttribute("aria-sort");
    }
    body.replaceChildren(...rows.slice(state.at, state.at + PER_PAGE).map((i) => el("tr", { ...picking(() => pick(i)), "data-step": i },
      columns.map((column) => el("td", { class: column.num ? "num" : column.name ? "name" : null }, column.cell(i))))));
    shown.textContent = rows.length ? `${count(state.at + 1)}–${count(Math.min(rows.length, state.at + PER_PAGE))} of ${plural(rows.length, "attempt")}` : "no step matches";
    back.disabled = state.at === 0;
    next.disabled = state.at + PER_PAGE >= rows.length;
  }
  fill();
  return el("section", { class: "card", id: "steps", "aria-label": "Steps" },
    el("div", { class: "row between" }, el("h2", {}, "Steps"), el("div", { class: "row" }, search, roles)),
    RUN.timed ? null : el("div", { id: "detail" }),
    el("div", { class: "scroll", tabindex: "0" }, el("table", {}, el("caption", { class: "unseen" }, "All attempts of all steps"), el("thead", {}, header), body)),
    el("div", { class: "row", style: { marginTop: "10px" } }, back, next, shown));
}

// -- totals and predictions -------------------------------------------------------------------

function totalsTable(totals, most) {
  const longest = Math.max(...totals.map((total) => total.cpu_seconds), 0.001);
  const columns = [
    { title: "name", name: true, cell: (total) => el("span", { class: "step", title: total.name }, el("span", { class: "file" }, total.name)) },
    { title: "steps", num: true, cell: (total) => count(total.steps) },
    { title: "CPU", num: true, cell: (total) => duration(total.cpu_seconds) },
    { title: "", cell: (total) => bar(total.cpu_seconds / longest, "--accent") },
    { title: "largest peak", num: true, cell: (total) => size(total.peak) },
    { title: "memory × time", num: true, cell: (total) => memoryTime(total.byte_seconds) },
  ];
  return more(totals, most, (rows) => table(columns, rows, { caption: "Totals" }));
}

const MORE = 200; // rows that a button adds: thousands at once would block the page

function more(rows, most, make) {
  if (rows.length <= most) return make(rows);
  const place = el("div"), next = Math.min(rows.length, most + MORE);
  const text = next === rows.length ? `show all ${count(rows.length)}` : `show ${count(next)} of ${count(rows.length)}`;
  place.append(make(rows.slice(0, most)), el("button", { style: { marginTop: "10px" }, onclick: () => place.replaceChildren(more(rows, next, make)) }, text));
  return place;
}

function totalsCard() {
  return card("totals", "By target and language", "", el("h3", {}, "Targets"), totalsTable(RUN.targets, 12), el("h3", {}, "Languages"), totalsTable(RUN.roles, 12));
}

const BASIS_COLOURS = { "the same command before": "--good", "the same source with other flags": "--cxx", "shipped figures for this source": "--cuda", "its folder and rule": "--link", "shipped figures": "--other" };

function predictionsCard() {
  if (!RUN.accuracy.length) return null;
  const columns = [
    { title: "prediction from", cell: (row) => [el("span", { class: "chip", style: { background: `var(${BASIS_COLOURS[row.basis] || "--other"})` } }), row.basis] },
    { title: "steps", num: true, cell: (row) => count(row.steps) },
    { title: "measured / predicted", num: true, cell: (row) => times(row.ratio) },
    { title: "above the prediction", num: true, cell: (row) => percent(row.above) },
  ];
  const canvas = el("canvas", { id: "scatter", role: "img", "aria-label": "Predicted against measured peak of each step; the table beside it sums it up" });
  const place = el("div", { class: "chart" }, canvas);
  const draw = () => drawScatter(canvas, place.clientWidth);
  Theme.listeners.push(draw);
  new ResizeObserver(draw).observe(place);
  return card("predictions", "Predicted against measured", "peak memory of each step", el("div", { class: "two" }, place,
    el("div", {}, table(columns, RUN.accuracy, { caption: "Accuracy of predictions" }),
      el("p", { class: "muted", style: { marginTop: "10px" } }, "A point above the line used more memory than the governor predicted when the step started. The ratio is the median of the steps."))));
}

function drawScatter(canvas, width) {
  const height = 260, left = 66, bottom = 34, top = 22;
  if (!width) return;
  scaled(canvas, width, height);
  const pen = canvas.getContext("2d");
  const peaks = [];
  for (let i = 0; i < STEPS.length; i += 1) if (STEPS.predicted[i] && STEPS.peak[i] && STEPS.word("outcome", i) === "done") peaks.push(i);
  if (!peaks.length) return;
  const all = peaks.flatMap((i) => [STEPS.peak[i], STEPS.predicted[i]]).sort((a, b) => a - b);
  const low = Math.log(all[0] / 1.3), high = Math.log(all[all.length - 1] * 1.3);
  const x = (bytes) => left + (Math.log(bytes) - low) / (high - low) * (width - left - 24);
  const y = (bytes) => height - bottom - (Math.log(bytes) - low) / (high - low) * (height - bottom - top);
  pen.font = "12px system-ui, sans-serif";
  pen.clearRect(0, 0, width, height);
  for (let at = 1024 ** 2; at < 1024 ** 5; at *= 4) {
    if (Math.log(at) < low || Math.log(at) > high) continue;
    pen.strokeStyle = Theme.colour("--line");
    line(pen, x(at), top, x(at), height - bottom);
    line(pen, left, y(at), width - 24, y(at));
    pen.fillStyle = Theme.colour("--muted");
    pen.textAlign = "center";
    pen.fillText(tick(at), x(at), height - bottom + 14);
    pen.textAlign = "right";
    pen.fillText(tick(at), left - 8, y(at) + 4);
  }
  pen.strokeStyle = Theme.colour("--faint");
  line(pen, x(Math.exp(low)), y(Math.exp(low)), x(Math.exp(high)), y(Math.exp(high)));
  pen.globalAlpha = peaks.length > 500 ? 0.45 : 0.7;
  for (const i of peaks) {
    pen.fillStyle = Theme.colour(BASIS_COLOURS[STEPS.word("basis", i)] || "--other");
    pen.beginPath();
    pen.arc(x(STEPS.predicted[i]), y(STEPS.peak[i]), 2.6, 0, 7);
    pen.fill();
  }
  pen.globalAlpha = 1;
  pen.fillStyle = Theme.colour("--muted");
  pen.textAlign = "right";
  pen.fillText("predicted", width - 12, height - 4);
  pen.textAlign = "left";
  pen.fillText("measured", 4, 10);
}

// -- what if ----------------------------------------------------------------------------------

function whatIfCard() {
  if (!DATA.what_if.length) return null;
  const [base] = DATA.what_if, longest = Math.max(...DATA.what_if.map((row) => row.result.wall_s));
  const columns = [
    { title: "machine", cell: (row) => row.name },
    { title: "CPUs", num: true, cell: (row) => count(row.result.cpus) },
    { title: "memory", num: true, cell: (row) => size(row.result.memory_bytes) },
    { title: "time", num: true, cell: (row) => duration(row.result.wall_s) },
    { title: "", cell: (row) => bar(row.result.wall_s / longest, row === base ? "--faint" : "--accent") },
    { title: "against this machine", num: true, cell: (row) => (row === base ? "" : change(row.result.wall_s / base.result.wall_s - 1)) },
    { title: "limited by", cell: (row) => row.result.bounds.limited_by },
    { title: "killed", num: true, cell: (row) => count(row.result.preemptions + row.result.oom_kills) },
    { title: "do not fit", num: true, cell: (row) => (row.result.failed.length ? el("span", { class: "bad" }, plural(row.result.failed.length, "step")) : "") },
  ];
  if (DATA.what_if.some((row) => row.cost !== null)) columns.push({ title: "cost", num: true, cell: (row) => money(row.cost) });
  const note = `Simulated from the measured steps with the governor's own policy. For this machine the simulation gives ${duration(base.result.wall_s)}; the run took ${duration(RUN.wall_s)}.`;
  return card("what-if", "What if", "", el("p", { class: "muted" }, note), table(columns, DATA.what_if, { caption: "Simulated builds on other machines" }));
}

function change(share) {
  const text = `${share > 0 ? "+" : "−"}${percent(Math.abs(share))}`;
  return el("span", { class: share > 0.02 ? "bad" : share < -0.02 ? "good" : "muted" }, Math.abs(share) < 0.0005 ? "same" : text);
}

// -- waits and kills --------------------------------------------------------------------------

function eventsCard() {
  const rows = [];
  for (let i = 0; i < STEPS.length; i += 1) {
    if (STEPS.lost(i)) rows.push({ at: STEPS.ended[i], i, what: STEPS.word("outcome", i) === "preempted" ? "killed" : STEPS.word("outcome", i), lost: STEPS.seconds[i], why: STEPS.killed[i] || "not recorded" });
    if (STEPS.waited[i] >= 1) rows.push({ at: STEPS.asked[i], i, what: "waited", lost: STEPS.waited[i], why: STEPS.waits[i] });
    for (const pause of STEPS.pauses[i] || []) rows.push({ at: pause.at, i, what: "paused", lost: pause.seconds, why: pause.why });
  }
  if (!rows.length) return card("events", "Waits and kills", "", el("p", { class: "muted" }, STEPS.asked.some((at) => at !== null) ? "No step waited for more than a second, and none was killed or paused." : "No step was killed or paused. How long steps waited was not recorded for this run."));
  const rank = { "out of memory": 0, "killed": 1, "paused": 2, "waited": 3 };
  rows.sort((a, b) => rank[a.what] - rank[b.what] || b.lost - a.lost);
  const columns = [
    { title: "time", num: true, cell: (row) => clock(row.at) },
    { title: "event", cell: (row) => el("span", { class: row.what === "waited" ? "muted" : row.what === "paused" ? "warn" : "bad" }, row.what) },
    { title: "for", num: true, cell: (row) => duration(row.lost) },
    { title: "step", name: true, cell: (row) => stepName(row.i) },
    { title: "reason", cell: (row) => row.why },
  ];
  return card("events", "Waits and kills", "", more(rows, 15, (some) => table(columns, some, { pick: (row) => pick(row.i), caption: "Waits, pauses and kills" })));
}

// -- the build --------------------------------------------------------------------------------

function buildCard() {
  const build = RUN.build;
  const facts = [["Command", el("code", {}, RUN.command)], ["Directory", el("code", {}, RUN.directory)]];
  if (RUN.cpus) facts.push(["CPUs", count(RUN.cpus)]);
  if (RUN.limit) facts.push(["Memory limit", `${size(RUN.limit)}${build && build.memory_limit ? `, ${build.memory_limit}` : ""}`]);
  if (RUN.written_bytes) facts.push(["Written to disk", size(RUN.written_bytes)]);
  if (build && build.commit) facts.push(["Commit", el("code", {}, build.commit)]);
  if (build && build.folder) facts.push(["Run folder", el("code", {}, build.folder)]);
  for (const [name, text] of Object.entries(build ? build.tools : {})) facts.push([name, text]);
  const list = el("dl", {}, facts.flatMap(([name, text]) => [el("dt", {}, name), el("dd", {}, text)]));
  if (!build) return card("build", "Machine", "", list);
  return card("build", "Build", "", el("div", { class: "two" }, el("div", {}, el("h3", {}, "Stages"), stagesPart(build.stages)), el("div", {}, el("h3", {}, "Machine and tools"), list)), outputsPart(build.outputs), settingsPart(build.settings));
}

function stagesPart(stages) {
  const longest = Math.max(...stages.map((stage) => stage.wall_s), 0.001);
  return table([
    { title: "stage", cell: (stage) => stage.stage },
    { title: "result", cell: (stage) => el("span", { class: stage.end === "failed" ? "bad" : "muted" }, stage.end) },
    { title: "time", num: true, cell: (stage) => duration(stage.wall_s) },
    { title: "", cell: (stage) => bar(stage.wall_s / longest, "--accent") },
    { title: "reason", name: true, cell: (stage) => el("span", { class: "muted" }, stage.why || "") },
  ], stages, { caption: "Stages of the build" });
}

function outputsPart(outputs) {
  return outputs.map((output) => {
    const largest = Math.max(...output.libraries.map((library) => library.bytes), 1);
    const rows = output.libraries.filter((library) => library.bytes >= largest / 1000);
    const device = (library) => Object.values(library.device_code).reduce((sum, bytes) => sum + bytes, 0);
    return el("div", {}, el("h3", {}, `${shortName(output.path)}, ${output.bytes === null ? "no longer there" : size(output.bytes)}`),
      rows.length ? table([
        { title: "library", name: true, cell: (library) => library.path },
        { title: "size", num: true, cell: (library) => size(library.bytes) },
        { title: "", cell: (library) => bar(library.bytes / largest, "--accent") },
        ...(rows.some(device) ? [
          { title: "GPU code", num: true, cell: (library) => (device(library) ? size(device(library)) : "–") },
          { title: "by architecture", cell: (library) => Object.entries(library.device_code).map(([arch, bytes]) => `${arch} ${size(bytes)}`).join(", ") },
        ] : []),
      ], rows, { caption: "Libraries of the result" }) : null);
  });
}

function settingsPart(settings) {
  if (!settings.length) return null;
  return el("details", {}, el("summary", {}, `${plural(settings.length, "setting")} of the plan, each with its origin`), table([
    { title: "setting", cell: (setting) => el("code", {}, setting.name) },
    { title: "value", name: true, cell: (setting) => el("code", {}, setting.value) },
    { title: "origin", cell: (setting) => `${setting.origin.kind} ${setting.origin.where}`.trim() },
    { title: "reason", cell: (setting) => setting.why },
  ], settings, { caption: "Settings of the plan" }));
}

// -- comparison -------------------------------------------------------------------------------

function comparisonCard() {
  const before = DATA.before, found = DATA.comparison;
  if (!before) return null;
  const old = before.columns;
  const changes = found.after.map((after, n) => ({ after, before: found.before[n], cpu_s: found.cpu_s[n], peak: found.peak[n], why: found.texts[found.why[n]] }));
  const figure = (name, one, other, text) => el("div", { class: "tile" }, el("div", { class: "name" }, name), el("div", { class: "value" }, text(other)),
    el("div", { class: "note" }, one === other ? "as before" : [one ? change(other / one - 1) : "", ` before: ${text(one)}`]));
  const tiles = el("div", { class: "tiles" }, before.timed && RUN.timed ? figure("Wall time", before.wall_s, RUN.wall_s, duration) : null, figure("CPU time", before.cpu_s, RUN.cpu_s, duration),
    figure("Peak memory", before.peak, RUN.peak, size), figure("Steps", before.steps, RUN.steps, count), figure("Killed and repeated", before.lost, RUN.lost, count));
  const views = {
    slower: { text: "slower", rows: () => changes.filter((row) => row.cpu_s > 0).sort((a, b) => b.cpu_s - a.cpu_s) },
    faster: { text: "faster", rows: () => changes.filter((row) => row.cpu_s < 0).sort((a, b) => a.cpu_s - b.cpu_s) },
    hungrier: { text: "more memory", rows: () => changes.filter((row) => row.peak > 0).sort((a, b) => b.peak - a.peak) },
    leaner: { text: "less memory", rows: () => changes.filter((row) => row.peak < 0).sort((a, b) => a.peak - b.peak) },
    added: { text: "only in this run", rows: () => found.added.map((i) => ({ after: i })) },
    removed: { text: "only before", rows: () => found.removed.map((i) => ({ before: i })) },
  };
  const place = el("div", { id: "changes" }), buttons = {};
  const value = (steps, column, i) => (i === undefined ? null : steps[column][i]);
  const columns = [
    { title: "step", name: true, cell: (row) => (row.after === undefined ? old.title[row.before] : stepName(row.after)) },
    { title: "CPU before", num: true, cell: (row) => duration(value(old, "cpu_seconds", row.before)) },
    { title: "now", num: true, cell: (row) => duration(value(STEPS, "cpu_seconds", row.after)) },
    { title: "change", num: true, cell: (row) => (row.cpu_s === undefined ? "" : signed(row.cpu_s, duration)) },
    { title: "peak before", num: true, cell: (row) => size(value(old, "peak", row.before)) },
    { title: "now", num: true, cell: (row) => size(value(STEPS, "peak", row.after)) },
    { title: "change", num: true, cell: (row) => (row.peak === undefined ? "" : signed(row.peak, size)) },
    { title: "what differs", cell: (row) => el("div", { class: "muted" }, (row.why || []).map((text) => el("div", {}, text))) },
  ];
  const show = (name) => {
    for (const [key, button] of Object.entries(buttons)) button.setAttribute("aria-pressed", String(key === name));
    const rows = views[name].rows();
    place.replaceChildren(rows.length ? more(rows, 15, (some) => table(columns, some, { pick: (row) => (row.after === undefined ? null : pick(row.after)), caption: `Steps: ${views[name].text}` })) : el("p", { class: "muted" }, "None."));
  };
  for (const [name, view] of Object.entries(views)) buttons[name] = el("button", { id: `show-${name}`, onclick: () => show(name) }, `${view.text} (${count(view.rows().length)})`);
  show("slower");
  return card("comparison", `Compared with run ${before.id}`, titleOf(before), tiles, differencesPart(before), causesPart(found.causes), el("h3", {}, "Steps"), el("div", { class: "row", style: { margin: "14px 0 10px" } }, Object.values(buttons)), place);
}

function causesPart(causes) {
  if (!causes.length) return null;
  return el("div", {}, el("h3", {}, "What differs between the steps"), more(causes, 6, (some) => table([
    { title: "difference", name: true, cell: (cause) => cause.text },
    { title: "steps", num: true, cell: (cause) => count(cause.steps) },
    { title: "CPU time", num: true, cell: (cause) => signed(cause.cpu_s, duration) },
    { title: "largest change of a peak", num: true, cell: (cause) => signed(cause.peak, size) },
  ], some, { caption: "Differences that steps have in common" })));
}

function signed(amount, text) {
  return el("span", { class: amount > 0 ? "bad" : amount < 0 ? "good" : "muted" }, amount > 0 ? `+${text(amount)}` : text(amount));
}

function differencesPart(before) {
  const pairs = (build) => new Map([
    ...(build ? build.settings.map((setting) => [setting.name, setting.value]) : []), ...Object.entries(build ? build.tools : {}),
    ...(build && build.commit ? [["commit", build.commit]] : []),
    ...(build ? build.outputs.flatMap((output) => output.libraries.map((library) => [`size of ${library.path}`, size(library.bytes)])) : []),
  ]);
  const old = pairs(before.build), now = pairs(RUN.build);
  for (const [name, run] of [["before", before], ["now", RUN]]) {
    const map = name === "before" ? old : now;
    if (run.cpus) map.set("CPUs", String(run.cpus));
    if (run.limit) map.set("memory limit", size(run.limit));
    if (run.policy) map.set("policy", run.policy);
  }
  const names = [...new Set([...old.keys(), ...now.keys()])].filter((name) => old.get(name) !== now.get(name));
  if (!names.length) return el("p", { class: "muted" }, "Machine, tools and settings are the same, as far as they were recorded.");
  return el("div", {}, el("h3", {}, "Machine, tools, settings and sizes that differ"), more(names, 12, (some) => table([
    { title: "name", cell: (name) => el("code", {}, name) },
    { title: "before", name: true, cell: (name) => old.get(name) ?? "–" },
    { title: "now", name: true, cell: (name) => now.get(name) ?? "–" },
  ], some, { caption: "Differences" })));
}

// -- all of it --------------------------------------------------------------------------------

function navigation(sections) {
  const links = sections.filter((section) => section.id).map((section) => el("a", { href: `#${section.id}` }, section.getAttribute("aria-label")));
  return el("nav", { "aria-label": "Sections" }, links);
}

function render() {
  head();
  const chart = RUN.timed ? timelineCard() : { made: null, start: () => {} };
  const sections = [
    comparisonCard(),
    !RUN.timed ? null : card("time", "Where the time went", "", el("div", { class: "two" }, boundsPart(), cpuPart())),
    chart.made, RUN.timed && STEPS.length ? pathCard() : null, stepsCard(), totalsCard(), predictionsCard(), whatIfCard(), RUN.timed ? eventsCard() : null, buildCard(),
  ].filter(Boolean);
  page.append(navigation(sections), headline(), ...sections);
  document.getElementById("foot").append(`stoker ${DATA.stoker}. Steps, times and memory come from the history of governed runs. Memory over time is the sum of the steps' own profiles.`);
  chart.start();
  document.documentElement.dataset.rendered = performance.now().toFixed(0);
}

render();
