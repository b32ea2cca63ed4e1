/** What is drawn by hand: the playhead and the loop over the picture, and the precision curve. */

const TICK_HZ = [250, 500, 1000, 2000, 4000];

/**
 * @typedef {object} Patch The teacher's output for a stretch of the clip.
 * @property {number} start seconds
 * @property {number} end seconds
 * @property {number} output how much speaks for the class there, compared within a clip
 */

/** The canvas over the picture. */
export class Overlay {
  /** @type {Patch[]} drawn as a line when the rater asked for the teacher's score */
  patches = [];
  /** @type {import("./span.js").SpanMark | null} the part that an answer speaks of */
  span = null;
  #canvas;
  #bands;

  /**
   * @param {HTMLCanvasElement} canvas
   * @param {{ low_hz: number, high_hz: number }} bands the range of the picture's height
   */
  constructor(canvas, bands) {
    this.#canvas = canvas;
    this.#bands = bands;
  }

  /** @param {import("./player.js").Sound} sound */
  draw(sound) {
    const [pen, width, height] = this.#cleared();
    if (!pen || !sound.seconds) return;
    const x = (/** @type {number} */ seconds) => (width * seconds) / sound.seconds;
    this.#shade(pen, sound.span.map(x), width, height);
    this.#part(pen, x, height);
    this.#ticks(pen, sound.seconds, width, height);
    this.#outputs(pen, x, height);
    pen.fillStyle = "#fff";
    pen.shadowColor = "#000";
    pen.shadowBlur = 3;
    pen.fillRect(x(sound.audio.currentTime) - 1, 0, 2, height);
    pen.shadowBlur = 0;
  }

  /** @returns {[CanvasRenderingContext2D | null, number, number]} with CSS pixels as the unit */
  #cleared() {
    const { clientWidth: width, clientHeight: height } = this.#canvas;
    const scale = devicePixelRatio;
    if (this.#canvas.width !== Math.round(width * scale)) this.#canvas.width = width * scale;
    if (this.#canvas.height !== Math.round(height * scale)) this.#canvas.height = height * scale;
    const pen = this.#canvas.getContext("2d");
    pen?.setTransform(scale, 0, 0, scale, 0, 0);
    pen?.clearRect(0, 0, width, height);
    return [pen, width, height];
  }

  /** Darken what is not played, and frame what is. */
  #shade(
    /** @type {CanvasRenderingContext2D} */ pen,
    /** @type {number[]} */ [from, to],
    /** @type {number} */ width,
    /** @type {number} */ height,
  ) {
    pen.fillStyle = "rgb(0 0 0 / 45%)";
    pen.fillRect(0, 0, from, height);
    pen.fillRect(to, 0, width - to, height);
    pen.strokeStyle = "#56b4e9";
    pen.lineWidth = 2;
    pen.strokeRect(from + 1, 1, Math.max(to - from - 2, 0), height - 2);
  }

  /** Draw the span: dashed where the teacher heard it, filled and with handles if it is the rater's. */
  #part(
    /** @type {CanvasRenderingContext2D} */ pen,
    /** @type {(seconds: number) => number} */ x,
    /** @type {number} */ height,
  ) {
    if (!this.span?.shown) return;
    const [from, to] = this.span.shown.map(x);
    const isOwn = this.span.own !== null;
    pen.strokeStyle = isOwn ? "#e69f00" : "#fff";
    pen.fillStyle = isOwn ? "#e69f00" : "#fff";
    pen.lineWidth = isOwn ? 2 : 1;
    pen.setLineDash(isOwn ? [] : [4, 4]);
    pen.strokeRect(from, 3, to - from, height - 6);
    pen.setLineDash([]);
    if (!isOwn) return;
    pen.globalAlpha = 0.1;
    pen.fillRect(from, 3, to - from, height - 6);
    pen.globalAlpha = 1;
    for (const edge of [from, to]) pen.fillRect(edge - 3, height / 2 - 14, 6, 28);
  }

  /** Write seconds along the bottom and frequencies along the left. */
  #ticks(
    /** @type {CanvasRenderingContext2D} */ pen,
    /** @type {number} */ seconds,
    /** @type {number} */ width,
    /** @type {number} */ height,
  ) {
    pen.font = "11px system-ui, sans-serif";
    const write = (/** @type {string} */ text, /** @type {number} */ x, /** @type {number} */ y) => {
      pen.fillStyle = "rgb(0 0 0 / 60%)";
      pen.fillRect(x - 2, y - 10, pen.measureText(text).width + 4, 13);
      pen.fillStyle = "#fff";
      pen.fillText(text, x, y);
    };
    const step = [0.5, 1, 2, 5, 10, 30, 60, 300].find((s) => (seconds / s) * 60 < width) ?? 600;
    for (let at = step; at < seconds - step / 3; at += step) {
      write(`${at} s`, (width * at) / seconds - 8, height - 6);
    }
    const mel = (/** @type {number} */ hz) => Math.log1p(hz / 700);
    const [low, high] = [mel(this.#bands.low_hz), mel(this.#bands.high_hz)];
    for (const hz of TICK_HZ.filter((tick) => mel(tick) > low && mel(tick) < high)) {
      const y = height * (1 - (mel(hz) - low) / (high - low));
      write(hz < 1000 ? `${hz} Hz` : `${hz / 1000} kHz`, 6, y + 4);
    }
  }

  /** Draw the teacher's output over time, its highest value at the top: where, not how sure. */
  #outputs(
    /** @type {CanvasRenderingContext2D} */ pen,
    /** @type {(seconds: number) => number} */ x,
    /** @type {number} */ height,
  ) {
    pen.strokeStyle = "#f0e442";
    pen.lineWidth = 3;
    pen.beginPath();
    const highest = Math.max(...this.patches.map(({ output }) => output));
    for (const { start, end, output } of highest > 0 ? this.patches : []) {
      const y = height - 22 - (output / highest) * (height - 32);
      pen.lineTo(x((start + end) / 2), y);
    }
    pen.stroke();
  }
}

/**
 * @typedef {object} Point What was judged of the flags up to an operating point.
 * @property {number} percent
 * @property {number} n_judged
 * @property {number | null} low precision with unsure taken as no
 * @property {number | null} high precision with unsure taken as yes
 * @property {number | null} interval_low
 * @property {number | null} interval_high
 */

const SVG = "http://www.w3.org/2000/svg";
const [LEFT, TOP, STEP, TALL] = [34, 12, 40, 140];

/** @param {string} name @param {Record<string, string | number>} attributes @param {string} [text] */
export function shape(name, attributes, text) {
  const element = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, String(value));
  if (text !== undefined) element.textContent = text;
  return element;
}

/** @param {number} share @returns {number} */
const height = (share) => TOP + TALL * (1 - share);

/**
 * Draw precision against the discard percent: a bar from the lower to the upper bound (unsure as
 * no and as yes), a whisker for the interval, and the number judged below.
 * @param {Point[]} points
 * @returns {SVGElement}
 */
export function precisionCurve(points) {
  const judged = points.filter((point) => point.n_judged);
  const [width, tall] = [LEFT + STEP * judged.length + 8, TOP + TALL + 40];
  const told = judged.map(({ percent, low, high }) => `${percent} %: ${low?.toFixed(2)} to ${high?.toFixed(2)}`);
  const svg = shape("svg", {
    viewBox: `0 0 ${width} ${tall}`,
    width,
    height: tall,
    role: "img",
    "aria-label": `Precision of the flags up to a discard percent. ${told.join("; ")}`,
  });
  for (const share of [0, 0.5, 1]) {
    const y = height(share);
    svg.append(shape("line", { x1: LEFT, x2: width - 8, y1: y, y2: y, class: "rule" }));
    svg.append(shape("text", { x: LEFT - 6, y: y + 4, class: "end" }, share.toFixed(1)));
  }
  const line = judged.map((point, i) => `${LEFT + STEP * (i + 0.5)},${height(middle(point))}`);
  svg.append(shape("polyline", { points: line.join(" "), class: "line" }));
  judged.forEach((point, i) => svg.append(...pointShapes(point, LEFT + STEP * (i + 0.5))));
  return /** @type {SVGElement} */ (svg);
}

/** @param {Point} point @returns {number} */
const middle = ({ low, high }) => ((low ?? 0) + (high ?? 0)) / 2;

/** @param {Point} point @param {number} x @returns {Element[]} */
function pointShapes({ percent, n_judged, low, high, interval_low, interval_high }, x) {
  const [top, bottom] = [height(high ?? 0), height(low ?? 0)];
  const [y1, y2] = [height(interval_low ?? 0), height(interval_high ?? 1)];
  return [
    shape("rect", { x: x - 6, width: 12, y: top - 2, height: bottom - top + 4, class: "bar" }),
    shape("path", { d: `M${x - 4} ${y1}h8M${x - 4} ${y2}h8M${x} ${y1}V${y2}`, class: "whisker" }),
    shape("text", { x, y: TOP + TALL + 17, class: "middle" }, `${percent}`),
    shape("text", { x, y: TOP + TALL + 32, class: "middle quiet" }, `n ${n_judged}`),
  ];
}
