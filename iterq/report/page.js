"use strict";

// The whole page is drawn from the data it carries. Text of the data reaches the document as text only, never as HTML.

const report = JSON.parse(document.getElementById("data").textContent);
const ALL_TASKS = "all";
const state = { task: ALL_TASKS, seeds: false, hidden: new Set() };

// ---------------------------------------------------------------- small tools

const byId = (id) => document.getElementById(id);

/** What `object` holds under `key`, or null. A method may be called "constructor", so what objects inherit does not count. */
const get = (object, key) => (object && Object.hasOwn(object, key) ? object[key] : null);

const missing = (value) => value === null || value === undefined;

function fill(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (!missing(value)) node.setAttribute(name, value);
  }
  node.append(...children);
  return node;
}

const SVG = "http://www.w3.org/2000/svg";

const element = (tag, attributes = {}, ...children) => fill(document.createElement(tag), attributes, children);

const drawn = (tag, attributes = {}, ...children) => fill(document.createElementNS(SVG, tag), attributes, children);

// ---------------------------------------------------------------- numbers as text

const NONE = "–";
const fourDigits = new Intl.NumberFormat("en-US", { maximumSignificantDigits: 4 });
const whole = new Intl.NumberFormat("en-US", { maximumFractionDigits: 0 });

function short(value) {
  if (missing(value)) return NONE;
  return value !== 0 && Math.abs(value) < 1e-5 ? value.toExponential(3) : fourDigits.format(value);
}

const count = (value) => (missing(value) ? NONE : whole.format(value));

function withInterval(point) {
  if (!point || missing(point.value)) return NONE;
  const known = !missing(point.low) && !missing(point.high);
  return known ? `${short(point.value)} [${short(point.low)}, ${short(point.high)}]` : short(point.value);
}

/** 2500000 as 2.5M: what stands at an axis. */
function compact(value) {
  const size = Math.abs(value);
  const [unit, letter] = size >= 1e9 ? [1e9, "B"] : size >= 1e6 ? [1e6, "M"] : size >= 1e3 ? [1e3, "k"] : [1, ""];
  return Number((value / unit).toPrecision(6)) + letter;
}

// ---------------------------------------------------------------- looks of a method

// Colour, dashes and marker all differ, so that a line is known without its colour.
// Beyond six methods the colours come again, with other dashes and markers.
const COLOURS = 6;
const DASHES = [null, "9 4", "2.5 3", "10 3 2 3", "5 2.5", "14 3 2 3 2 3"];
const MARKS = [
  "M-4 0a4 4 0 1 0 8 0a4 4 0 1 0-8 0z",
  "M-4-4h8v8h-8z",
  "M0-5l5 9h-10z",
  "M0-5.5l5 5.5l-5 5.5l-5-5.5z",
  "M0 5l5-9h-10z",
  "M-1.5-5h3v3.5h3.5v3h-3.5v3.5h-3v-3.5h-3.5v-3h3.5z",
];

function look(index) {
  const turn = index + Math.floor(index / COLOURS);
  return { colour: `series-${index % COLOURS}`, dash: DASHES[turn % DASHES.length], mark: MARKS[turn % MARKS.length] };
}

function key(index) {
  const { colour, dash, mark } = look(index);
  return drawn(
    "svg",
    { class: `key ${colour}`, viewBox: "0 0 44 16", "aria-hidden": "true" },
    drawn("path", { class: "line", d: "M1 8H43", "stroke-dasharray": dash }),
    drawn("path", { class: "mark", d: mark, transform: "translate(22 8)" }),
  );
}

// ---------------------------------------------------------------- axes

/** Round numbers from `low` to `high`, about `wanted` of them. */
function ticks(low, high, wanted) {
  const rough = (high - low) / Math.max(wanted, 1);
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 2.5, 5, 10].map((part) => part * power).find((size) => size >= rough * 0.999) || 10 * power;
  const found = [];
  for (let i = Math.ceil(low / step - 1e-9); i * step <= high + step * 1e-9; i += 1) found.push(Number((i * step).toPrecision(12)));
  return found;
}

/** The smallest and largest number in `lists`, a little apart even where there is one number or none. */
function extent(lists) {
  let [low, high] = [Infinity, -Infinity];
  for (const value of lists.flat()) {
    if (missing(value)) continue;
    low = Math.min(low, value);
    high = Math.max(high, value);
  }
  if (low > high) return [0, 1];
  return low === high ? [low - (Math.abs(low) * 0.1 || 0.5), high + (Math.abs(high) * 0.1 || 0.5)] : [low, high];
}

function scale([low, high], from, to) {
  const place = (value) => from + ((value - low) / (high - low)) * (to - from);
  place.back = (pixel) => low + ((pixel - from) / (to - from)) * (high - low);
  return place;
}

function frame(chart, width, height) {
  const everything = chart.series.flatMap((one) => [one.value, one.low, one.high, ...one.seeds.map((seed) => seed.value)]);
  const xRange = extent(chart.series.map((one) => one.x));
  if (chart.fromZero) xRange[0] = Math.min(xRange[0], 0);
  const yRange = chart.yRange || padded(extent(everything));
  const yTicks = ticks(...yRange, height / 45);
  const left = 14 + 7.2 * Math.max(...yTicks.map((tick) => compact(tick).length));
  return {
    ...{ left, right: width - 22, top: 8, bottom: height - 26 },
    x: scale(xRange, left, width - 22),
    y: scale(yRange, height - 26, 8),
    xTicks: ticks(...xRange, (width - left - 22) / 85),
    yTicks,
  };
}

const padded = ([low, high]) => [low - (high - low) * 0.04, high + (high - low) * 0.04];

function axes(view) {
  const group = drawn("g");
  for (const tick of view.yTicks) {
    const y = view.y(tick);
    group.append(drawn("line", { class: "grid", x1: view.left, x2: view.right, y1: y, y2: y }));
    group.append(drawn("text", { class: "tick", x: view.left - 8, y: y + 4, "text-anchor": "end" }, compact(tick)));
  }
  for (const tick of view.xTicks) {
    const x = view.x(tick);
    group.append(drawn("line", { class: "grid", x1: x, x2: x, y1: view.top, y2: view.bottom }));
    group.append(drawn("text", { class: "tick", x, y: view.bottom + 18, "text-anchor": "middle" }, compact(tick)));
  }
  group.append(drawn("line", { class: "base", x1: view.left, x2: view.right, y1: view.bottom, y2: view.bottom }));
  return group;
}

// ---------------------------------------------------------------- lines

const at = (view, x, y) => `${view.x(x).toFixed(1)} ${view.y(y).toFixed(1)}`;

/** The index ranges in which every one of `lists` has a value: a missing value leaves a gap. */
function stretches(...lists) {
  const found = [];
  let current = null;
  for (let i = 0; i < lists[0].length; i += 1) {
    if (lists.some((list) => missing(list[i]))) current = null;
    else if (current) current.push(i);
    else found.push((current = [i]));
  }
  return found;
}

function linePath(view, x, value) {
  return stretches(x, value)
    .map((indices) => "M" + indices.map((i) => at(view, x[i], value[i])).join("L"))
    .join("");
}

function bandPath(view, { x, low, high }) {
  const edge = (indices, list) => indices.map((i) => at(view, x[i], list[i])).join("L");
  return stretches(x, low, high)
    .map((indices) => `M${edge(indices, high)}L${edge([...indices].reverse(), low)}Z`)
    .join("");
}

/** Where markers stand: about eight on a line, elsewhere on each, and wherever a point has no neighbour to be joined with. */
function marked({ x, value, index }) {
  const every = Math.max(1, Math.ceil(x.length / 8));
  const first = Math.floor((every * (index % 4)) / 4);
  return stretches(x, value).flatMap((indices) => indices.filter((i) => indices.length === 1 || i % every === first));
}

function curves(view, series) {
  const layers = { bands: drawn("g"), seeds: drawn("g"), lines: drawn("g") };
  for (const one of series) {
    const { colour, dash, mark } = look(one.index);
    const path = (kind, d, more) => drawn("path", { class: `${kind} ${colour}`, d, "data-label": one.label, ...more });
    layers.bands.append(path("band", bandPath(view, one)));
    for (const seed of one.seeds) layers.seeds.append(path("seed", linePath(view, one.x, seed.value), { "data-seed": seed.name }));
    layers.lines.append(path("line", linePath(view, one.x, one.value), { "stroke-dasharray": dash }));
    for (const i of marked(one)) layers.lines.append(path("mark", mark, { transform: `translate(${at(view, one.x[i], one.value[i])})` }));
  }
  return [layers.bands, layers.seeds, layers.lines];
}

// ---------------------------------------------------------------- charts

/** A chart in the element `box`; `xName` puts a place on the x axis into words. */
function makeChart(box, xName) {
  const chart = { box, xName, series: [], message: "", fromZero: false, yRange: null, places: [], current: null, view: null, width: 0 };
  box.addEventListener("pointermove", (event) => point(chart, event));
  box.addEventListener("pointerdown", (event) => point(chart, event));
  // A finger leaves as soon as it is lifted: what it showed stays until the next touch elsewhere.
  box.addEventListener("pointerleave", (event) => event.pointerType !== "touch" && hideValues(chart));
  box.addEventListener("blur", () => hideValues(chart));
  box.addEventListener("keydown", (event) => steer(chart, event));
  new ResizeObserver(() => box.clientWidth !== chart.width && draw(chart)).observe(box);
  return chart;
}

function draw(chart) {
  const [width, height] = [chart.box.clientWidth, chart.box.clientHeight];
  chart.width = width;
  chart.current = null;
  chart.view = null;
  chart.places = [...new Set(chart.series.flatMap((one) => one.x))].sort((a, b) => a - b);
  if (!width) return;
  if (!chart.places.length) {
    chart.box.replaceChildren(element("p", { class: "message" }, chart.message));
    return;
  }
  chart.view = frame(chart, width, height);
  chart.cross = drawn("g");
  chart.tooltip = element("div", { class: "tooltip", hidden: "" });
  chart.box.replaceChildren(
    drawn("svg", { "aria-hidden": "true" }, axes(chart.view), ...curves(chart.view, chart.series), chart.cross),
    chart.tooltip,
  );
}

/** The index in the sorted list `sorted` of the number nearest to `wanted`. */
function nearest(sorted, wanted) {
  let [low, high] = [0, sorted.length - 1];
  while (high - low > 1) {
    const middle = (low + high) >> 1;
    if (sorted[middle] <= wanted) low = middle;
    else high = middle;
  }
  return Math.abs(sorted[high] - wanted) < Math.abs(sorted[low] - wanted) ? high : low;
}

function point(chart, event) {
  if (!chart.view) return;
  const x = chart.view.x.back(event.clientX - chart.box.getBoundingClientRect().left);
  showValues(chart, nearest(chart.places, x));
}

function steer(chart, event) {
  if (event.key === "Escape") hideValues(chart);
  const last = chart.places.length - 1;
  const from = chart.current;
  const targets = {
    ArrowLeft: from === null ? last : Math.max(from - 1, 0),
    ArrowRight: from === null ? 0 : Math.min(from + 1, last),
    Home: 0,
    End: last,
  };
  const target = get(targets, event.key);
  if (target === null || !chart.view) return;
  event.preventDefault();
  byId("live").textContent = showValues(chart, target);
}

/** Shows what every method has at the given place, and returns it in words. */
function showValues(chart, place) {
  chart.current = place;
  const x = chart.places[place];
  const rows = chart.series.filter((one) => one.x.length).map((one) => reading(one, x));
  chart.tooltip.replaceChildren(element("strong", {}, chart.xName(x)), ...rows.map((row) => tooltipRow(row, chart.xName)));
  chart.tooltip.dataset.x = x;
  chart.tooltip.hidden = false;
  placeTooltip(chart, chart.view.x(x));
  drawCross(chart, x, rows);
  return `${chart.xName(x)}. ` + rows.map((row) => `${row.label}: ${inWords(row, chart.xName)}`).join("; ");
}

/** The point of a method nearest to `x`: methods need not have been measured at the same steps. */
function reading(one, x) {
  const i = nearest(one.x, x);
  const item = (list) => (missing(list[i]) ? null : list[i]);
  const { label, index } = one;
  return { label, index, x: one.x[i], aside: one.x[i] !== x, value: item(one.value), low: item(one.low), high: item(one.high) };
}

function tooltipRow(row, xName) {
  const exact = { "data-label": row.label, "data-x": row.x, "data-value": row.value, "data-low": row.low, "data-high": row.high };
  const place = row.aside ? ` (${xName(row.x)})` : "";
  const text = missing(row.value) ? "no value" : withInterval(row);
  return element("div", exact, key(row.index), element("span", {}, row.label + place), element("span", { class: "number" }, text));
}

function inWords(row, xName) {
  if (missing(row.value)) return "no value";
  const interval = missing(row.low) || missing(row.high) ? "" : `, from ${short(row.low)} to ${short(row.high)}`;
  return short(row.value) + interval + (row.aside ? ` at ${xName(row.x)}` : "");
}

function placeTooltip(chart, x) {
  chart.tooltip.style.left = "0";
  const size = chart.tooltip.offsetWidth;
  const wanted = x > chart.width / 2 ? x - size - 14 : x + 14;
  chart.tooltip.style.left = `${Math.max(0, Math.min(wanted, chart.width - size))}px`;
}

function drawCross(chart, x, rows) {
  const { view } = chart;
  const place = view.x(x);
  const spots = rows.filter((row) => !missing(row.value)).map((row) => drawn("circle", {
    class: `spot ${look(row.index).colour}`,
    ...{ cx: view.x(row.x), cy: view.y(row.value), r: 4.5 },
  }));
  chart.cross.replaceChildren(drawn("line", { class: "cross", x1: place, x2: place, y1: view.top, y2: view.bottom }), ...spots);
}

function hideValues(chart) {
  chart.current = null;
  if (!chart.view) return;
  chart.tooltip.hidden = true;
  chart.cross.replaceChildren();
}

// ---------------------------------------------------------------- what the two charts show

function series(pick) {
  return report.labels.flatMap((label, index) => {
    const data = state.hidden.has(label) ? null : pick(label);
    if (!data || !data.steps) return [];
    const seeds = state.seeds && state.task !== ALL_TASKS ? Object.entries(data.seeds || {}) : [];
    return [{
      ...{ label, index, x: data.steps, value: data.value || [], low: data.low || [], high: data.high || [] },
      seeds: seeds.map(([name, value]) => ({ name, value })),
    }];
  });
}

function drawCurves(chart) {
  const aggregated = state.task === ALL_TASKS;
  const name = aggregated ? "all tasks" : report.tasks[state.task];
  chart.series = series((label) => (aggregated ? get(report.aggregate, label) : get(get(report.curves, label), name)));
  chart.message = state.hidden.size ? "Nothing to draw: the methods with values here are hidden." : "No method has values here.";
  byId("curves-y").textContent = aggregated ? `${report.unit}, interquartile mean over tasks and seeds` : `${report.metric} in ${name}`;
  byId("seeds").disabled = aggregated;
  chart.box.setAttribute("aria-label", `Learning curves, ${name}. The left and right arrow keys read out values.`);
  draw(chart);
}

function drawProfile(chart) {
  if (!report.profile) return;
  const { taus, curves: profiles } = report.profile;
  chart.series = series((label) => get(profiles, label) && { ...get(profiles, label), steps: taus, seeds: {} });
  chart.message = "Nothing to draw: no method with a profile is shown.";
  draw(chart);
}

function setUpCharts() {
  const ofSteps = makeChart(byId("curves-plot"), (step) => `step ${count(step)}`);
  const ofTaus = makeChart(byId("profile-plot"), (tau) => `τ = ${short(tau)}`);
  ofSteps.fromZero = true;
  ofTaus.yRange = [-0.02, 1.02];
  const redraw = () => {
    drawCurves(ofSteps);
    drawProfile(ofTaus);
  };
  setUpTasks(() => drawCurves(ofSteps));
  setUpProfile();
  byId("legend").append(...report.labels.map((label, index) => legendButton(label, index, redraw)));
  redraw();
}

function setUpTasks(redraw) {
  const select = byId("task");
  const all = element("option", { value: ALL_TASKS }, "all tasks (aggregate)");
  select.append(all, ...report.tasks.map((task, i) => element("option", { value: i }, task)));
  if (!report.aggregate) {
    all.disabled = true;
    byId("no-aggregate").hidden = false;
    state.task = report.tasks.length ? "0" : ALL_TASKS;
  }
  // A browser that reloads a page may put back what was chosen before.
  select.value = state.task;
  byId("seeds").checked = state.seeds;
  select.addEventListener("change", () => {
    state.task = select.value;
    redraw();
  });
  byId("seeds").addEventListener("change", (event) => {
    state.seeds = event.target.checked;
    redraw();
  });
}

function setUpProfile() {
  const absent = !report.profile;
  byId("no-profile").hidden = !absent;
  byId("figures").classList.toggle("single", absent);
  for (const id of ["profile-y", "profile-plot", "profile-x"]) byId(id).hidden = absent;
  byId("profile-x").textContent = `τ, ${report.unit}`;
  byId("profile-plot").setAttribute("aria-label", "Performance profile. The left and right arrow keys read out values.");
}

function legendButton(label, index, redraw) {
  const button = element("button", { type: "button", "aria-pressed": "true", "data-label": label }, key(index), element("span", {}, label));
  button.addEventListener("click", () => {
    const hide = !state.hidden.has(label);
    if (hide) state.hidden.add(label);
    else state.hidden.delete(label);
    button.setAttribute("aria-pressed", String(!hide));
    redraw();
  });
  return button;
}

// ---------------------------------------------------------------- tables

// A column is a name, the key its rows are sorted by (a number, a text or null), and optionally how a cell shows it.
const words = (name, of) => ({ name, of });
const number = (name, of, show = short) => ({ name, of, numeric: true, show: (row) => show(of(row)), exact: of });
const estimate = (name, of) => ({ ...number(name, (row) => of(row)?.value ?? null), show: (row) => estimateText(of(row)) });

/** The interval stands below its value, so that many columns fit side by side. */
function estimateText(point) {
  const [value, interval] = withInterval(point).split(/ (?=\[)/);
  return element("span", {}, value, ...(interval ? [" ", element("span", { class: "interval" }, interval)] : []));
}

/** Puts a table that can be sorted into `section`, or one sentence where there are no rows. */
function table(section, columns, rows, otherwise) {
  if (!rows.length) {
    section.append(element("p", { class: "quiet" }, otherwise));
    return;
  }
  const body = element("tbody", {}, ...rows.map((row) => element("tr", {}, ...columns.map((column) => cell(column, row)))));
  const lines = [...body.children].map((line, i) => ({ line, row: rows[i] }));
  const headings = columns.map((column) => heading(column, (way) => {
    for (const one of headings) one.setAttribute("aria-sort", "none");
    body.append(...sorted(lines, column, way).map(({ line }) => line));
  }));
  const name = section.querySelector("h2").textContent;
  const grid = element("table", { "aria-label": name }, element("thead", {}, element("tr", {}, ...headings)), body);
  section.append(element("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": `${name}, table` }, grid));
}

function cell(column, row) {
  const value = column.of(row);
  const shown = column.show ? column.show(row) : missing(value) ? NONE : String(value);
  const exact = column.exact && !missing(value) ? { "data-value": value, title: value } : {};
  return element("td", { class: column.numeric ? "numeric" : column.style?.(row), ...exact }, shown);
}

/** The first click sorts upwards, the next one downwards. */
function heading(column, sort) {
  const button = element("button", { type: "button" }, column.name);
  const head = element("th", { scope: "col", "aria-sort": "none", class: column.numeric ? "numeric" : null }, button);
  button.addEventListener("click", () => {
    const upwards = head.getAttribute("aria-sort") !== "ascending";
    sort(upwards ? 1 : -1);
    head.setAttribute("aria-sort", upwards ? "ascending" : "descending");
  });
  return head;
}

/** Missing values come last both ways; equal ones keep the order of the report. */
function sorted(lines, column, way) {
  const compare = (a, b) => (column.numeric ? a - b : String(a).localeCompare(String(b), "en", { numeric: true }));
  return [...lines].sort((one, other) => {
    const [a, b] = [column.of(one.row), column.of(other.row)];
    if (missing(a) || missing(b)) return missing(a) - missing(b);
    return way * compare(a, b);
  });
}

function summaryTable() {
  const section = byId("summary");
  if (report.summary.length) section.append(element("p", { class: "quiet" }, summaryNote()));
  const columns = [
    words("Method", (row) => row.label),
    number("Runs", (row) => row.runs, count),
    estimate("IQM", (row) => row.iqm),
    estimate("Median", (row) => row.median),
    estimate("Mean", (row) => row.mean),
    estimate("Optimality gap", (row) => row.optimality_gap),
    estimate("Area under the curve", (row) => row.auc),
  ];
  if (!missing(report.baseline)) {
    columns.push(number("Steps to baseline", (row) => row.steps_to_baseline, count));
    columns.push(number("Hours to baseline", (row) => row.hours_to_baseline));
  }
  table(section, columns, report.summary, "There are no scores to sum up.");
}

function summaryNote() {
  const scores = `Final scores over all tasks and seeds${report.unit ? `, in ${report.unit}` : ""}.`;
  const goal = `Steps and hours to baseline: how long a method takes to reach the final score of ${report.baseline}.`;
  return missing(report.baseline) ? scores : `${scores} ${goal}`;
}

function improvementTable() {
  const columns = [
    words("A", (row) => row.a),
    words("B", (row) => row.b),
    estimate("P(A > B)", (row) => row),
  ];
  const note = "How likely a run of A is to score higher than a run of B on the same task.";
  if (report.improvement.length) byId("improvement").append(element("p", { class: "quiet" }, note));
  table(byId("improvement"), columns, report.improvement, "There are no two methods to compare.");
}

function differencesTable() {
  const { fields, rows } = report.differences;
  const value = (label, i) => get(rows, label)?.[i] ?? null;
  const labels = fields.length ? report.labels.filter((label) => get(rows, label)) : [];
  const columns = fields.map((field, i) => settingColumn(field, labels, (label) => value(label, i)));
  table(byId("differences"), [words("Method", (label) => label), ...columns], labels, "No setting differs between the methods.");
}

/** Settings arrive as text; where all of a column are numbers it is sorted as numbers. */
function settingColumn(field, labels, of) {
  const isNumber = (text) => missing(text) || (String(text).trim() !== "" && Number.isFinite(Number(text)));
  if (!labels.every((label) => isNumber(of(label)))) return words(field, of);
  const asNumber = (label) => (missing(of(label)) ? null : Number(of(label)));
  return { name: field, numeric: true, of: asNumber, show: (label) => String(of(label) ?? NONE) };
}

const status = { ...words("Status", (row) => row.status), style: (row) => (row.status === "crashed" ? "bad" : null) };

function finalTable() {
  const columns = [
    words("Method", (row) => row.label),
    words("Task", (row) => row.task),
    words("Seed", (row) => row.seed),
    number("Step", (row) => row.step, count),
    number(report.metric, (row) => row.value),
    number("Normalised", (row) => row.normalised),
    status,
    words("Run", (row) => row.run),
  ];
  table(byId("final"), columns, report.final, "No agent has a score yet.");
}

function machinesTable() {
  const columns = [
    words("Run", (row) => row.run),
    words("Method", (row) => row.label),
    words("Seeds", (row) => row.seeds),
    number("Steps", (row) => row.steps, count),
    number("Hours", (row) => row.hours),
    status,
    { name: "Versions", of: versionsText, show: versions },
  ];
  table(byId("machines"), columns, report.machines, "There are no runs.");
}

const versionList = (row) => Object.entries(row.versions || {}).map(([name, version]) => `${name} ${version}`);

const versionsText = (row) => versionList(row).join(", ") || null;

function versions(row) {
  const all = versionList(row);
  if (!all.length) return NONE;
  const list = element("ul", {}, ...all.map((one) => element("li", {}, one)));
  return element("details", {}, element("summary", {}, `${all.length} packages`), list);
}

// ---------------------------------------------------------------- videos, warnings, light and dark

function video({ label, task, mime, data }) {
  const address = `data:${mime};base64,${data}`;
  const name = `${label}, ${task}`;
  const caption = element("figcaption", {}, name);
  if (mime.startsWith("video/")) {
    return element("figure", {}, element("video", { src: address, controls: "", preload: "metadata", "aria-label": name }), caption);
  }
  // A moving image cannot be paused, so it stays folded for those who asked for less motion.
  const still = matchMedia("(prefers-reduced-motion: reduce)").matches;
  const image = element("img", { src: address, alt: `An episode: ${name}` });
  return element("figure", {}, element("details", still ? {} : { open: "" }, element("summary", {}, "moving image"), image), caption);
}

function setUpVideos() {
  byId("videos").hidden = !report.videos.length;
  byId("videos").querySelector(".videos").append(...report.videos.map(video));
}

function setUpWarnings() {
  byId("warnings").hidden = !report.warnings.length;
  byId("warnings").append(element("ul", {}, ...report.warnings.map((text) => element("li", {}, text))));
}

/** The page follows the system until the button is used. */
function setUpTheme() {
  const root = document.documentElement;
  const system = matchMedia("(prefers-color-scheme: dark)");
  const dark = () => (root.dataset.theme ? root.dataset.theme === "dark" : system.matches);
  const tell = () => byId("theme").setAttribute("aria-pressed", String(dark()));
  byId("theme").addEventListener("click", () => {
    root.dataset.theme = dark() ? "light" : "dark";
    tell();
  });
  system.addEventListener("change", tell);
  tell();
}

function about() {
  const several = (size, one, many) => `${size} ${size === 1 ? one : many}`;
  const sizes = [
    several(report.labels.length, "method", "methods"),
    several(report.tasks.length, "task", "tasks"),
    several(report.final.length, "agent", "agents"),
  ];
  byId("about").textContent = `Metric: ${report.metric}. ${sizes.join(", ")}. Made ${report.made}.`;
}

function start() {
  about();
  setUpTheme();
  setUpWarnings();
  if (!report.labels.length) {
    byId("empty").hidden = false;
    byId("charts").hidden = true;
    for (const id of ["summary", "improvement", "differences", "final", "machines"]) byId(id).hidden = true;
    return;
  }
  setUpCharts();
  summaryTable();
  improvementTable();
  differencesTable();
  finalTable();
  machinesTable();
  setUpVideos();
}

start();
