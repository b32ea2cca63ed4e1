/** The part of the clip that an answer speaks of: drag it on the picture, or mark it by keys. */

/** @typedef {import("./player.js").Span} Span */

const LEAST_SECONDS = 0.05;
const EDGE_PIXELS = 9;
const DRAG_PIXELS = 4;

/** @param {number} seconds @returns {number} to the millisecond */
const rounded = (seconds) => Math.round(seconds * 1000) / 1000;

/** The span of the clip on stage; the rater's own once there is one, else the teacher's. */
export class SpanMark {
  /** @type {Span | null} what the rater set */
  own = null;
  /** @type {Span | null} where the teacher heard it; null where nobody knows */
  teachers = null;
  /** Seconds of the clip; 0 until they are known. */
  seconds = 0;
  /** Whether there is a label that a span could be of. */
  isOpen = true;
  #canvas;
  #set;
  /** @type {{ fixed: number, from: number, isMoved: boolean } | null} the end that stays, and where the drag began */
  #drag = null;

  /**
   * @param {HTMLElement} canvas as wide as the clip is long
   * @param {() => void} set called when a drag is over and the span is the rater's
   */
  constructor(canvas, set) {
    this.#canvas = canvas;
    this.#set = set;
    canvas.style.touchAction = "pan-y"; // sideways is ours, the page still scrolls
    canvas.addEventListener("pointerdown", (event) => this.#begin(event));
    canvas.addEventListener("pointermove", (event) => this.#move(event));
    canvas.addEventListener("pointerup", () => this.#end());
    canvas.addEventListener("pointercancel", () => (this.#drag = null));
  }

  /** @returns {Span | null} what is drawn */
  get shown() {
    return this.own ?? this.teachers;
  }

  /** Begin the span here, and end it where it ended. @param {number} at seconds */
  startAt(at) {
    const end = this.shown?.[1] ?? this.seconds;
    this.#take(at, end - at >= LEAST_SECONDS ? end : this.seconds);
  }

  /** End the span here, and begin it where it began. @param {number} at seconds */
  endAt(at) {
    const start = this.shown?.[0] ?? 0;
    this.#take(at - start >= LEAST_SECONDS ? start : 0, at);
  }

  /** Take two ends in any order, inside the clip and not too close. */
  #take(/** @type {number} */ one, /** @type {number} */ other) {
    const start = Math.min(Math.max(Math.min(one, other), 0), this.seconds - LEAST_SECONDS);
    const end = Math.min(Math.max(one, other, start + LEAST_SECONDS), this.seconds);
    this.own = [rounded(start), rounded(end)];
  }

  /** @param {PointerEvent} event @returns {number} seconds from the clip's start */
  #at(event) {
    const { left, width } = this.#canvas.getBoundingClientRect();
    return ((event.clientX - left) / width) * this.seconds;
  }

  /** @param {PointerEvent} event @returns {0 | 1 | null} which end of the span lies under the pointer */
  #edge(event) {
    const { left, width } = this.#canvas.getBoundingClientRect();
    const away = (this.shown ?? []).map((end) =>
      Math.abs(left + (end / this.seconds) * width - event.clientX),
    );
    const nearest = away[1] < away[0] ? 1 : 0;
    return away[nearest] <= EDGE_PIXELS ? nearest : null;
  }

  /** @param {PointerEvent} event */
  #begin(event) {
    if (!this.isOpen || !this.seconds || event.button !== 0 || !event.isPrimary) return;
    this.#canvas.setPointerCapture(event.pointerId);
    const edge = this.#edge(event);
    const fixed = edge === null ? this.#at(event) : /** @type {Span} */ (this.shown)[1 - edge];
    this.#drag = { fixed, from: event.clientX, isMoved: false };
  }

  /** @param {PointerEvent} event */
  #move(event) {
    if (!this.#drag) {
      this.#canvas.style.cursor = !this.isOpen ? "default" : this.#edge(event) === null ? "crosshair" : "ew-resize";
      return;
    }
    this.#drag.isMoved ||= Math.abs(event.clientX - this.#drag.from) >= DRAG_PIXELS;
    if (this.#drag.isMoved) this.#take(this.#drag.fixed, this.#at(event));
  }

  #end() {
    const isSet = this.#drag?.isMoved;
    this.#drag = null;
    if (isSet) this.#set();
  }
}
