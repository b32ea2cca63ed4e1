/**
 * The report's page: charts that tell their points, and tables that sort and filter.
 *
 * Charts come as plain values (see charts.py); nothing is computed here but where things are.
 *
 * @typedef {{x: number, y: number, told: string[], low: ?number, high: ?number}} Point
 * @typedef {{name: string, points: Point[], look: number, line: string, marker: string}} Series
 * @typedef {{kind: string, x_label: string, y_label: string, x_scale: string,
 *   series: Series[], categories: string[]}} Chart
 * @typedef {{element: SVGElement, x: number, y: number, point: Point, series: number}} Mark
 */

const N_LOOKS = 7;
const NEAR_PIXELS = 36;
const ROW_PIXELS = 24;
const SHAPES = [
  "M-4 0a4 4 0 1 0 8 0a4 4 0 1 0-8 0",
  "M0-4.6L4.4 3.4H-4.4Z",
  "M0-4.8L4.8 0L0 4.8L-4.8 0Z",
  "M0 4.6L4.4-3.4H-4.4Z",
  "M-3.6-3.6H3.6V3.6H-3.6Z",
];
const CROSS = "M-4-4L4 4M-4 4L4-4";

const charts = JSON.parse(document.getElementById("charts").textContent);
const holder = document.createElement("div");
holder.innerHTML = "<svg></svg>";
const svgSpace = holder.firstChild.namespaceURI;

/**
 * Make an SVG element inside another.
 * @param {Element} parent
 * @param {string} tag
 * @param {Record<string, string | number>} attributes
 * @param {string} [text]
 * @returns {SVGElement}
 */
function add(parent, tag, attributes, text = "") {
  const element = document.createElementNS(svgSpace, tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.textContent = text;
  parent.append(element);
  return element;
}

/**
 * Make a function from values to pixels; `root` spaces them by square roots.
 * @param {[number, number]} domain
 * @param {[number, number]} range
 * @param {string} [kind]
 */
function scale([low, high], [start, end], kind = "linear") {
  const bend = kind === "root" ? (value) => Math.sign(value) * Math.sqrt(Math.abs(value)) : (value) => value;
  const [from, to] = [bend(low), bend(high)];
  return (value) => start + ((bend(value) - from) / (to - from || 1)) * (end - start);
}

/**
 * List about `count` round numbers within a domain.
 * @param {[number, number]} domain
 * @param {number} count
 */
function roundTicks([low, high], count) {
  const rough = (high - low) / count || 1;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].find((factor) => factor * power >= rough) * power;
  const first = Math.ceil(low / step);
  return Array.from({ length: Math.floor(high / step) - first + 1 }, (_, i) => (first + i) * step);
}

/**
 * Keep values whose places are some pixels apart; round ones go first.
 * @param {number[]} values
 * @param {(value: number) => number} place
 * @param {number} pixels
 */
function roomy(values, place, pixels) {
  const isRound = (value) => "0125".includes(value.toExponential()[0]);
  const ordered = [...new Set(values)].sort((a, b) => isRound(b) - isRound(a) || a - b);
  const kept = [];
  for (const value of ordered) {
    if (kept.every((other) => Math.abs(place(value) - place(other)) >= pixels)) kept.push(value);
  }
  return kept;
}

/** @param {number} value */
function numberText(value) {
  return String(Number(value.toPrecision(4))).replace("-", "−");
}

/**
 * The lowest and highest of some numbers, with a little room around them.
 * @param {number[]} values
 * @param {number} margin
 * @returns {[number, number]}
 */
function spread(values, margin) {
  const [low, high] = [Math.min(...values), Math.max(...values)];
  const room = (high - low || Math.abs(high) || 1) * margin;
  return [low - room, high + room];
}

/**
 * Lay a chart out: its size, scales and grid. Returns what drawing the series needs.
 * @param {SVGElement} svg
 * @param {Chart} chart
 * @param {number} width
 */
function layOut(svg, chart, width) {
  const isList = chart.kind === "intervals";
  const longest = Math.max(0, ...chart.categories.map((name) => name.length));
  const left = isList ? Math.min(7 * longest + 16, width * 0.4) : 52;
  const rows = ROW_PIXELS * Math.max(1, chart.series.length * 0.6) * chart.categories.length;
  const high = svg.closest(".first") ? 190 : 230;
  const inner = isList ? rows : chart.kind === "scatter" ? Math.min(width - left - 12, 380) : high;
  const top = isList ? 6 : 24;
  const right = chart.kind === "scatter" ? left + inner : width - 12;
  const bottom = top + inner;
  svg.setAttribute("viewBox", `0 0 ${width} ${bottom + 42}`);
  svg.setAttribute("height", bottom + 42);

  const points = chart.series.flatMap((series) => series.points);
  const ends = points.flatMap((point) => [point.low, point.high]).filter((end) => end !== null);
  const xs = points.map((point) => point.x);
  const ys = points.map((point) => point.y);
  let xDomain = isList ? spread([0, ...xs, ...ends], 0.06) : spread(xs, chart.x_scale === "root" ? 0 : 0.03);
  let yDomain = isList ? [-0.5, chart.categories.length - 0.5] : spread([...ys, ...ends], 0.06);
  if (chart.kind === "scatter") xDomain = yDomain = spread([...xs, ...ys], 0.06);
  const inset = chart.x_scale === "root" ? 10 : 0;
  const x = scale(xDomain, [left + inset, right - inset], chart.x_scale);
  const y = scale(yDomain, isList ? [top, bottom] : [bottom, top]);

  const isWhole = chart.kind === "lines" && xs.every(Number.isInteger); // epochs
  const across = chart.x_scale === "root" ? xs : roundTicks(xDomain, Math.max(2, (right - left) / 64));
  const ticks = isWhole ? across.filter(Number.isInteger) : across;
  for (const tick of roomy(ticks, x, 26)) {
    add(svg, "line", { class: "grid", x1: x(tick), x2: x(tick), y1: top, y2: bottom });
    add(svg, "text", { x: x(tick), y: bottom + 16, "text-anchor": "middle" }, numberText(tick));
  }
  const up = isList ? chart.categories.keys() : roundTicks(yDomain, 5);
  for (const tick of up) {
    const label = isList ? chart.categories[tick] : numberText(tick);
    add(svg, "line", { class: "grid", x1: left, x2: right, y1: y(tick), y2: y(tick) });
    add(svg, "text", { x: left - 8, y: y(tick) + 4, "text-anchor": "end" }, label);
  }
  if (xDomain[0] < 0 && isList) add(svg, "line", { class: "zero", x1: x(0), x2: x(0), y1: top, y2: bottom });
  if (yDomain[0] < 0 && yDomain[1] > 0 && chart.kind === "lines") {
    add(svg, "line", { class: "zero", x1: left, x2: right, y1: y(0), y2: y(0) });
  }
  if (chart.kind === "scatter") {
    const [low, high] = xDomain;
    add(svg, "line", { class: "zero", x1: x(low), y1: y(low), x2: x(high), y2: y(high) });
  }
  add(svg, "text", { class: "title", x: right, y: bottom + 36, "text-anchor": "end" }, chart.x_label);
  if (!isList) add(svg, "text", { class: "title", x: left - 44, y: 12 }, chart.y_label);
  return { x, y, isList };
}

/**
 * Draw one series and return its marks.
 * @param {SVGElement} svg
 * @param {Chart} chart
 * @param {number} index
 * @param {ReturnType<typeof layOut>} room
 * @returns {Mark[]}
 */
function drawSeries(svg, chart, index, { x, y, isList }) {
  const series = chart.series[index];
  const group = add(svg, "g", { class: `look${series.look % N_LOOKS}`, "data-series": index });
  const shift = isList ? (index - (chart.series.length - 1) / 2) * 0.5 / chart.series.length : 0;
  const places = series.points.map((point) => [x(point.x), y(point.y + shift)]);
  const banded = series.points.filter((point) => point.low !== null && point.high !== null);
  if (isList) {
    for (const point of banded) {
      const level = y(point.y + shift);
      add(group, "line", { class: "whisker", x1: x(point.low), x2: x(point.high), y1: level, y2: level });
    }
  } else if (series.line === "solid" && banded.length > 1) {
    const above = banded.map((point) => `${x(point.x)} ${y(point.high)}`);
    const below = banded.map((point) => `${x(point.x)} ${y(point.low)}`).reverse();
    add(group, "path", { class: "band", d: `M${[...above, ...below].join("L")}Z` });
  }
  if (series.line !== "none" && places.length) {
    const isDashed = series.line === "dashed" || series.look >= N_LOOKS;
    add(group, "path", { class: `line${isDashed ? " dashed" : ""}`, d: `M${places.map((place) => place.join(" ")).join("L")}` });
  }
  const isCrowded = chart.series.length > N_LOOKS;
  return series.points.map((point, i) => {
    const element = add(group, "path", {
      class: `point ${series.marker === "dot" ? "" : series.marker}`,
      d: series.marker === "cross" ? CROSS : SHAPES[series.look % SHAPES.length],
      transform: `translate(${places[i][0]} ${places[i][1]})${isCrowded ? " scale(0.6)" : ""}`,
      tabindex: -1,
      role: "img",
      "aria-label": point.told.join("; "),
    });
    return { element, x: places[i][0], y: places[i][1], point, series: index };
  });
}

/**
 * Draw a chart and let its points be told by pointer and keyboard.
 * @param {HTMLElement} place
 * @param {Chart} chart
 */
function drawChart(place, chart) {
  place.replaceChildren();
  const width = Math.max(place.clientWidth, 240);
  const svg = add(place, "svg", { role: "group", "aria-label": `${chart.y_label} by ${chart.x_label}; arrow keys move between points` });
  const room = layOut(svg, chart, width);
  const marks = chart.series.flatMap((_, index) => drawSeries(svg, chart, index, room));
  const isShown = (mark) => !mark.element.parentNode.classList.contains("off");
  const tell = tips(place, svg, width);
  marks[0]?.element.setAttribute("tabindex", 0);

  svg.addEventListener("pointermove", (event) => {
    const box = svg.getBoundingClientRect();
    const [across, down] = [event.clientX - box.left, event.clientY - box.top];
    const far = (mark) => Math.hypot(mark.x - across, mark.y - down);
    const nearest = marks.filter(isShown).reduce((best, mark) => (!best || far(mark) < far(best) ? mark : best), null);
    tell(nearest && far(nearest) < NEAR_PIXELS ? nearest : null);
  });
  svg.addEventListener("pointerleave", () => tell(null));
  for (const mark of marks) {
    mark.element.addEventListener("focus", () => tell(mark));
    mark.element.addEventListener("blur", () => tell(null));
  }
  svg.addEventListener("keydown", (event) => {
    if (event.key === "Escape") tell(null);
    const current = marks.find((mark) => mark.element === document.activeElement);
    const next = current && neighbour(marks.filter(isShown), current, event.key);
    if (!next) return;
    event.preventDefault();
    current.element.setAttribute("tabindex", -1);
    next.element.setAttribute("tabindex", 0);
    next.element.focus();
  });
  if (chart.series.length > 1) place.append(legend(chart, svg));
}

/**
 * The mark that an arrow key leads to: along its series, or to the nearest of the next series.
 * @param {Mark[]} marks
 * @param {Mark} current
 * @param {string} key
 * @returns {Mark | undefined}
 */
function neighbour(marks, current, key) {
  const step = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: 1, ArrowUp: -1 }[key];
  if (!step) return undefined;
  const own = marks.filter((mark) => mark.series === current.series);
  const isAlong = key === "ArrowRight" || key === "ArrowLeft";
  const shown = [...new Set(marks.map((mark) => mark.series))];
  if (isAlong || shown.length === 1) return own[own.indexOf(current) + step];
  const series = shown[(shown.indexOf(current.series) + step + shown.length) % shown.length];
  return marks
    .filter((mark) => mark.series === series)
    .reduce((best, mark) => (!best || Math.abs(mark.x - current.x) < Math.abs(best.x - current.x) ? mark : best), undefined);
}

/**
 * Return the function that shows what is told of a mark, and hides it for null.
 * @param {HTMLElement} place
 * @param {SVGElement} svg
 * @param {number} width
 */
function tips(place, svg, width) {
  const tip = document.createElement("div");
  tip.className = "tip";
  tip.hidden = true;
  place.append(tip);
  let shown = null;
  return (/** @type {?Mark} */ mark) => {
    if (mark === shown) return;
    shown?.element.classList.remove("near");
    shown = mark;
    tip.hidden = mark === null;
    if (mark === null) return;
    mark.element.classList.add("near");
    tip.replaceChildren(...mark.point.told.map((words, i) => {
      const line = document.createElement(i === 0 ? "b" : "span");
      line.textContent = words;
      return line;
    }));
    tip.style.left = `${Math.max(0, Math.min(mark.x + 12, width - tip.offsetWidth - 4))}px`;
    const above = mark.y - tip.offsetHeight - 12;
    tip.style.top = `${above < 0 ? mark.y + 14 : above}px`;
  };
}

/**
 * A list of the series; each can be taken away and brought back.
 * @param {Chart} chart
 * @param {SVGElement} svg
 */
function legend(chart, svg) {
  const list = document.createElement("ul");
  list.className = "legend";
  chart.series.forEach((series, index) => {
    const button = document.createElement("button");
    const mark = series.marker === "cross" ? "cross" : series.line;
    button.className = `look${series.look % N_LOOKS} ${mark}`;
    button.textContent = series.name;
    button.ariaPressed = "true";
    button.addEventListener("click", () => {
      button.ariaPressed = button.ariaPressed === "true" ? "false" : "true";
      const group = svg.querySelector(`[data-series="${index}"]`);
      group.classList.toggle("off", button.ariaPressed === "false");
    });
    list.append(document.createElement("li"));
    list.lastChild.append(button);
  });
  return list;
}

/**
 * Draw the figures of a group, anew whenever another variant is chosen or their width changes.
 * @param {HTMLElement} group
 */
function openFigures(group) {
  const select = group.querySelector(":scope > .chooser select");
  if (select) select.closest("p").hidden = false;
  const draw = (place) => {
    const variants = charts[place.dataset.figure];
    const chart = variants[select?.value] ?? Object.values(variants)[0];
    if (chart) drawChart(place, chart);
  };
  const widths = new Map();
  const observer = new ResizeObserver((entries) => {
    for (const { target, contentRect } of entries) {
      if (widths.get(target) !== contentRect.width) requestAnimationFrame(() => draw(target));
      widths.set(target, contentRect.width);
    }
  });
  const places = group.querySelectorAll("[data-figure]");
  places.forEach((place) => observer.observe(place));
  select?.addEventListener("change", () => places.forEach(draw));
  for (const button of group.querySelectorAll(".save")) {
    button.hidden = false;
    button.addEventListener("click", () => save(button.closest("figure").querySelector(".chart")));
  }
}

const SAVED_STYLES = [
  "display", "fill", "font-family", "font-size", "opacity", "stroke", "stroke-dasharray", "stroke-width",
];
const LEGEND_PIXELS = 16;

/**
 * Save a drawn chart as an SVG file with its legend, in the colours that it has on the page.
 * @param {HTMLElement} place
 */
function save(place) {
  const drawn = place.querySelector("svg");
  const copy = /** @type {SVGElement} */ (drawn.cloneNode(true));
  const originals = [drawn, ...drawn.querySelectorAll("*")];
  [copy, ...copy.querySelectorAll("*")].forEach((element, i) => {
    const style = getComputedStyle(originals[i]);
    for (const name of SAVED_STYLES) element.setAttribute(name, style.getPropertyValue(name));
  });
  const [, , width, height] = drawn.getAttribute("viewBox").split(" ").map(Number);
  const names = [...place.querySelectorAll(".legend [aria-pressed='true']")];
  const font = { "font-family": "sans-serif", "font-size": 12 };
  names.forEach((button, i) => {
    const ink = getComputedStyle(button).getPropertyValue("--ink");
    const y = height + (i + 0.5) * LEGEND_PIXELS;
    const [isCross, isDashed] = ["cross", "dashed"].map((name) => button.classList.contains(name));
    const look = Number(button.className.match(/look(\d+)/)[1]);
    const shape = isDashed ? "M-7 0H-2M2 0H7" : isCross ? CROSS : SHAPES[look % SHAPES.length];
    const paint = isDashed || isCross ? { fill: "none", stroke: ink, "stroke-width": 2 } : { fill: ink };
    add(copy, "path", { d: shape, transform: `translate(10 ${y})`, ...paint });
    add(copy, "text", { x: 22, y: y + 4, fill: ink, ...font }, button.textContent);
  });
  const whole = height + names.length * LEGEND_PIXELS + 8;
  for (const [name, value] of Object.entries({ viewBox: `0 0 ${width} ${whole}`, width, height: whole })) {
    copy.setAttribute(name, value);
  }
  const ground = add(copy, "rect", { width, height: whole, fill: getComputedStyle(document.body).backgroundColor });
  copy.prepend(ground);
  const link = document.createElement("a");
  link.download = `${place.dataset.figure}.svg`;
  link.href = `data:image/svg+xml,${encodeURIComponent(new XMLSerializer().serializeToString(copy))}`;
  link.click();
}

/**
 * The value by which a cell is sorted: its leading number, or its text; a dash is less than all.
 * @param {HTMLTableRowElement} row
 * @param {number} column
 * @returns {number | string}
 */
function cellValue(row, column) {
  const cell = row.cells[column];
  if (cell.className === "text") return cell.textContent;
  const number = parseFloat(cell.textContent.replace(/,(?=\d{3})/g, "").replace("−", "-"));
  return Number.isNaN(number) ? -Infinity : number;
}

/**
 * Sort a table by a column; a second time, the other way round. Numbers begin with the largest.
 * @param {HTMLTableElement} table
 * @param {number} column
 */
function sortBy(table, column) {
  const headings = [...table.tHead.rows[0].cells];
  const first = headings[column].className === "text" ? "ascending" : "descending";
  const second = first === "ascending" ? "descending" : "ascending";
  const order = headings[column].ariaSort === first ? second : first;
  headings.forEach((heading) => heading.removeAttribute("aria-sort"));
  headings[column].ariaSort = order;
  const rows = [...table.tBodies[0].rows].sort((a, b) => {
    const [one, other] = [cellValue(a, column), cellValue(b, column)];
    const sign = one < other ? -1 : one > other ? 1 : 0;
    return order === "ascending" ? sign : -sign;
  });
  table.tBodies[0].append(...rows);
}

/**
 * Put a field above a table that shows only the rows that contain all of its words.
 * @param {HTMLTableElement} table
 */
function openFilter(table) {
  const line = document.createElement("label");
  line.className = "filter";
  const field = document.createElement("input");
  field.type = "search";
  field.placeholder = "Words in any column";
  const count = document.createElement("output");
  line.append("Filter", field, count);
  table.closest(".scroll").before(line);
  const rows = [...table.tBodies[0].rows];
  const show = () => {
    const words = field.value.toLowerCase().split(/\s+/).filter(Boolean);
    for (const row of rows) {
      const text = row.textContent.toLowerCase();
      row.hidden = !words.every((word) => text.includes(word));
    }
    count.textContent = `${rows.filter((row) => !row.hidden).length} of ${rows.length}`;
  };
  field.addEventListener("input", show);
  show();
}

function openCopying() {
  const button = document.getElementById("copy");
  button.hidden = false;
  button.addEventListener("click", async () => {
    const paragraph = document.getElementById("methods-text");
    getSelection().selectAllChildren(paragraph); // can be copied by hand where writing is refused
    await navigator.clipboard?.writeText(paragraph.textContent);
    button.textContent = "Copied";
  });
}

document.querySelectorAll(".figures").forEach(openFigures);
for (const table of document.querySelectorAll("table")) {
  [...table.tHead.rows[0].cells].forEach((heading, column) => {
    const button = document.createElement("button");
    button.append(...heading.childNodes);
    button.addEventListener("click", () => sortBy(table, column));
    heading.append(button);
  });
  if ("filter" in table.dataset) openFilter(table);
}
openCopying();
