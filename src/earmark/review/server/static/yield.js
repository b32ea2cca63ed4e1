/** What listening has found so far, and what more of it would find. */

import { get } from "./api.js";
import { shape } from "./drawing.js";
import { write } from "./page.js";

/**
 * @typedef {object} Yield
 * @property {string} described all of it in a few sentences
 * @property {[number, number][]} curve answered, found
 * @property {[number, number][]} forecast answered, found
 * @property {string} advice whether to go on; empty where there is nothing to say
 * @property {boolean} [is_current] whether it counts all answers; false while the server counts
 */

const [WIDE, TALL, LEFT, TOP, BELOW] = [300, 110, 44, 12, 34];

/** Why fewer are found than were answered with "present". */
const NOTE = "Counts confirmed missing labels only. Control clips are excluded; the last few answers are added with a short delay.";

const round = (/** @type {number} */ count) => Math.round(count).toLocaleString("en-GB");

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

/** Milliseconds after which a forecast that is still being made is asked for again. */
const ASK_AGAIN = 3000;

/** @type {ReturnType<typeof setTimeout> | undefined} */
let asking;

/** Ask what was found, and show it wherever it belongs; ask again later while the server counts. */
export async function showYield() {
  const told = /** @type {Yield} */ (await get("/api/yield"));
  clearTimeout(asking);
  if (told.is_current === false) asking = setTimeout(() => showYield().catch(() => {}), ASK_AGAIN);
  if (told.described === undefined) return; // nothing was counted yet
  write("yield-line", `${told.described} ${NOTE}`);
  for (const place of document.querySelectorAll(".yield")) {
    /** @type {HTMLElement} */ (place).hidden = false;
    const curve = told.curve.length + told.forecast.length > 1 ? [yieldCurve(told)] : [];
    place.querySelector(".yield-told")?.replaceChildren(told.described);
    place.querySelector(".yield-note")?.replaceChildren(NOTE);
    place.querySelector(".yield-curve")?.replaceChildren(...curve);
    place.querySelector(".yield-advice")?.replaceChildren(told.advice);
  }
}
