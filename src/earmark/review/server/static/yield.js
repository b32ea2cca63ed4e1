/** What listening has found so far, and what more of it would find. */

import { get } from "./api.js";
import { shape } from "./drawing.js";
import { write } from "./page.js";

/** @typedef {[number, number, number]} Interval low, middle, high */

/**
 * @typedef {object} Yield
 * @property {number} n_answered
 * @property {number} n_found
 * @property {Interval | null} missing labels, those found included
 * @property {number} n_next answers that the forecast speaks of
 * @property {number | null} n_next_found
 * @property {number} n_left flags that nobody has heard
 * @property {Interval | null} precision_left of them
 * @property {[number, number][]} curve answered, found
 * @property {[number, number][]} forecast answered, found
 * @property {string} advice
 */

const [WIDE, TALL, LEFT, TOP, BELOW] = [300, 110, 44, 12, 34];

const round = (/** @type {number} */ count) => Math.round(count).toLocaleString("en-GB");

/** @param {Yield} told @returns {string} */
export function yieldSentence({ n_found, missing, n_next, n_next_found, n_left, precision_left }) {
  const parts = [`${round(n_found)} found`];
  if (missing) parts[0] += ` of about ${round(missing[1])} (${round(missing[0])}–${round(missing[2])})`;
  if (n_next_found !== null) parts.push(`the next ${round(n_next)} answers would find about ${round(n_next_found)}`);
  if (precision_left && n_left) {
    const [low, middle, high] = precision_left;
    parts.push(`precision of what is still flagged ${middle.toFixed(2)}\u00a0±\u00a0${((high - low) / 2).toFixed(2)}`);
  }
  return parts.join("; ");
}

/** Draw what was found against what was answered, and the forecast, dashed. @param {Yield} told @returns {Element} */
function yieldCurve({ curve, forecast }) {
  const [nAnswered, nFound] = [0, 1].map((axis) => Math.max(1, ...[...curve, ...forecast].map((point) => point[axis])));
  const x = (/** @type {number} */ n) => LEFT + (WIDE * n) / nAnswered;
  const y = (/** @type {number} */ n) => TOP + TALL * (1 - n / nFound);
  const [width, height] = [LEFT + WIDE + 24, TOP + TALL + BELOW];
  const line = (/** @type {[number, number][]} */ points, /** @type {string} */ kind) =>
    shape("polyline", { points: points.map(([a, f]) => `${x(a)},${y(f)}`).join(" "), class: kind });
  const [answered, found] = curve.at(-1) ?? [0, 0];
  const told = `Found against answered: ${found} of ${answered} answers so far, ${round(nFound)} of ${nAnswered} by the forecast.`;
  const svg = shape("svg", { viewBox: `0 0 ${width} ${height}`, width, height, role: "img", "aria-label": told });
  svg.append(
    shape("path", { d: `M${LEFT} ${TOP}V${TOP + TALL}H${LEFT + WIDE}`, class: "rule axis" }),
    shape("text", { x: LEFT - 6, y: TOP + 4, class: "end" }, round(nFound)),
    shape("text", { x: LEFT - 6, y: TOP + TALL + 4, class: "end" }, "0"),
    shape("text", { x: LEFT - 6, y: TOP + TALL / 2 + 4, class: "end quiet" }, "found"),
    shape("text", { x: LEFT + WIDE / 2, y: TOP + TALL + 17, class: "middle quiet" }, "answers"),
    shape("text", { x: LEFT + WIDE, y: TOP + TALL + 17, class: "middle" }, round(nAnswered)),
    line(forecast.length && curve.length ? [/** @type {[number, number]} */ (curve.at(-1)), ...forecast] : forecast, "line dashed"),
    line(curve, "line"),
    shape("circle", { cx: x(answered), cy: y(found), r: 3.5, class: "now" }),
  );
  return svg;
}

/** Ask what was found, and show it wherever it belongs. */
export async function showYield() {
  const told = /** @type {Yield} */ (await get("/api/yield"));
  const sentence = yieldSentence(told);
  write("yield-line", sentence);
  for (const place of document.querySelectorAll(".yield")) {
    /** @type {HTMLElement} */ (place).hidden = false;
    const curve = told.curve.length + told.forecast.length > 1 ? [yieldCurve(told)] : [];
    place.querySelector(".yield-told")?.replaceChildren(`${sentence}.`);
    place.querySelector(".yield-curve")?.replaceChildren(...curve);
    place.querySelector(".yield-advice")?.replaceChildren(told.advice);
  }
}
