/** The clip on stage: its sound, picture, peaks and score, and the examples beside it. */

import { get } from "./api.js";
import { Overlay } from "./drawing.js";
import { element, renew, write } from "./page.js";
import { Shelf, SPEEDS } from "./player.js";
import { SpanMark } from "./span.js";

const LOCKED_SECONDS = 0.6;
const N_AHEAD = 3;
const SCORE_HIDDEN = "teacher’s score hidden";

/** @typedef {import("./player.js").Span} Span */
/** @typedef {{ item: string, peaks: Span[], isWhole?: boolean }} Item peaks: the teacher's best first; none if unknown */
/** @typedef {import("./page.js").ClassCard} ClassCard */
/** @typedef {{ item: string, peaks: Span[], name?: string }} Label what a span is of; named where there are others */

export class Stage {
  /** @type {Item | null} */
  #item = null;
  #peak = 0;
  #speed = 0;
  #volume = 1;
  #isPictureShown = true;
  #wasPictureShown = true;
  #wasScoreShown = false;
  /** @type {number | null} the key press that waits for its sound */
  #pressedAt = null;
  /** @type {import("./player.js").Sound | null} an example that interrupts the clip */
  #example = null;
  #shelf = new Shelf(() => this.#soundChanged());
  #overlay;
  #span;
  /** @type {Label | null} whose span is set */
  #label = null;
  /** @type {Map<string, Span>} spans that the rater set on this clip, by the labels' items */
  #spans = new Map();
  /** Called when a span was set or cleared. */
  spanSet = () => {};
  #blocked;

  /**
   * @param {{ low_hz: number, high_hz: number }} bands the range of the pictures
   * @param {() => void} blocked called when the browser wants a key press before it plays
   */
  constructor(bands, blocked) {
    const canvas = /** @type {HTMLCanvasElement} */ (element("overlay"));
    this.#overlay = new Overlay(canvas, bands);
    this.#span = new SpanMark(canvas, () => this.#spanChanged((sound, own) => sound.playPart(own)));
    this.#overlay.span = this.#span;
    this.#blocked = blocked;
  }

  get #sound() {
    return this.#item ? this.#shelf.sound(this.#item.item) : undefined;
  }

  /** @returns {boolean} whether the clip is missing or cannot be decoded */
  get hasFailed() {
    return Boolean(this.#sound?.hasFailed);
  }

  /** @returns {number} the clip's length; 0 until it is known */
  get seconds() {
    return this.#sound?.seconds ?? 0;
  }

  /** @returns {string} why no answer can be given yet; empty when one can */
  get lock() {
    const sound = this.#sound;
    if (!sound) return "There is no clip yet.";
    // A clip that is shorter than the guard opens when it was heard to its end.
    const isOpen = sound.hasFailed || sound.isHeardWhole || sound.heardSeconds >= LOCKED_SECONDS;
    return isOpen ? "" : `Listen first: answers open after ${LOCKED_SECONDS} s of sound.`;
  }

  /** @returns {object} what an answer rests on, for the record */
  get evidence() {
    return {
      heard_seconds: this.#sound?.heardSeconds ?? 0,
      whole_clip: Boolean(this.#sound?.isHeardWhole),
      shown_score: this.#wasScoreShown,
      shown_picture: this.#wasPictureShown,
    };
  }

  /** @param {string} item @returns {Span | null} the span that the rater set */
  spanOf(item) {
    return this.#spans.get(item) ?? null;
  }

  /** @param {string} item @returns {{ span_start?: number, span_end?: number }} for the record; empty without a span */
  spanTold(item) {
    const own = this.spanOf(item);
    return own ? { span_start: own[0], span_end: own[1] } : {};
  }

  /** Take up the spans of answers that were given before. @param {import("./ledger.js").Answered[]} before */
  recall(before) {
    this.#spans = new Map();
    for (const { item, span_start, span_end } of before) {
      if (span_start !== undefined && span_end !== undefined) this.#spans.set(item, [span_start, span_end]);
    }
  }

  /** Say whose span is set from now on. @param {Label | null} label */
  askWhere(label) {
    this.#label = label;
    this.#span.isOpen = label !== null;
    this.#span.own = label && this.spanOf(label.item);
    this.#showPlace();
  }

  /**
   * Fetch clips before they are wanted.
   * @param {Item[]} items the first of which are fetched
   * @param {ClassCard[]} cards whose examples are fetched
   */
  fetchAhead(items, cards) {
    const clips = items.slice(0, N_AHEAD + 1).map(({ item, peaks }) => ({ id: item, peak: peaks[0] ?? null }));
    const examples = cards.flatMap(({ examples, decoy }) => [...examples, ...(decoy ? [decoy] : [])]);
    this.#shelf.keep([...clips, ...examples]);
  }

  /** @param {number} level from 0 to 1 */
  setVolume(level) {
    this.#volume = level;
    for (const sound of [this.#sound, this.#example]) if (sound) sound.audio.volume = level;
  }

  /**
   * Put a clip on stage and play it from the start.
   * @param {Item} item
   * @param {number} pressedAt when the key went down that asked for it
   */
  enter(item, pressedAt) {
    this.leave();
    this.#item = item;
    this.#peak = 0;
    if (!item.isWhole) this.askWhere(item);
    this.#pressedAt = pressedAt;
    this.#wasScoreShown = false;
    this.#wasPictureShown = this.#isPictureShown;
    const picture = /** @type {HTMLImageElement} */ (element("mel"));
    picture.src = `/pictures/${item.item}.png`;
    element("answers").classList.add("locked");
    this.#soundChanged();
    const { own } = this.#span;
    if (item.isWhole) return this.playWhole();
    return own ? this.#play((sound) => sound.playPart(own)) : this.replay();
  }

  /** Fall silent. */
  leave() {
    this.#stopExample();
    this.#sound?.pause();
    this.#overlay.patches = [];
    write("score", SCORE_HIDDEN);
  }

  /** Forget that a clip was heard. @param {Item} item */
  forget(item) {
    this.#shelf.drop(item.item);
  }

  replay() {
    if (this.#item?.isWhole) return this.playWhole();
    return this.#play((sound) => sound.replay());
  }

  playWhole() {
    return this.#play((sound) => sound.playWhole());
  }

  /** Go to a better or to the next-best peak. @param {-1 | 1} step @returns {string} what to tell */
  tour(step) {
    const peaks = this.#item?.peaks ?? [];
    const place = this.#peak + step;
    if (!peaks.length) return "The teacher does not say where: the whole clip plays.";
    if (place < 0) return "This is the best peak.";
    if (place >= peaks.length) return "There are no further peaks.";
    this.#peak = place;
    this.#showPlace();
    this.#play((sound) => sound.playPeak(peaks[place]));
    return "";
  }

  /**
   * Begin or end the span at the playhead, or clear it.
   * @param {"span_start" | "span_end" | "span_clear"} action
   * @returns {string} what to tell
   */
  mark(action) {
    const sound = this.#sound;
    if (!this.#item || !sound?.seconds) return "There is no clip yet.";
    if (!this.#label) return "Mark a class first, then say where you hear it.";
    if (action === "span_clear") return this.#clearSpan();
    const at = sound.audio.currentTime;
    if (action === "span_start") this.#span.startAt(at);
    else this.#span.endAt(at);
    // Who begins a span while the whole clip plays hears on, until the span has an end.
    const isOpen = action === "span_start" && sound.isWhole;
    this.#spanChanged(async (playing, own) => (isOpen ? undefined : playing.loop(own)));
    return "";
  }

  #clearSpan() {
    const item = /** @type {Item} */ (this.#item);
    if (!this.#label || !this.#span.own) return "There is no span of yours to clear.";
    this.#span.own = null;
    this.#spans.delete(this.#label.item);
    this.#showPlace();
    this.spanSet();
    if (!item.isWhole) this.#play((sound) => sound.playPeak(item.peaks[this.#peak] ?? null));
    return "";
  }

  changeSpeed() {
    this.#speed = (this.#speed + 1) % SPEEDS.length;
    write("speed", `${SPEEDS[this.#speed]}×`);
    if (this.#sound) this.#sound.audio.playbackRate = SPEEDS[this.#speed];
  }

  togglePicture() {
    this.#isPictureShown = !this.#isPictureShown;
    this.#wasPictureShown ||= this.#isPictureShown;
    document.body.classList.toggle("no-picture", !this.#isPictureShown);
  }

  async toggleScore() {
    const item = this.#item;
    if (!item) return;
    if (element("score").textContent !== SCORE_HIDDEN) {
      this.#overlay.patches = [];
      write("score", SCORE_HIDDEN);
      return;
    }
    this.#wasScoreShown = true;
    const { logit, patches } = await get(`/api/items/${item.item}/score`);
    if (this.#item !== item) return;
    this.#overlay.patches = patches;
    write("score", `teacher’s score ${logit.toFixed(2).replace("-", "−")}`);
  }

  /**
   * Interrupt the clip with an example, once.
   * @param {string} id
   * @param {string} action which button to mark
   */
  async playExample(id, action) {
    const sound = this.#shelf.sound(id);
    this.#stopExample();
    this.#sound?.pause();
    this.#example = sound ?? null;
    if (sound) sound.audio.volume = this.#volume;
    document.querySelector(`[data-example=${action}]`)?.setAttribute("aria-pressed", "true");
    await sound?.replay();
  }

  /** Draw the playhead, keep sounds going and open the answers: call it at every frame. */
  draw() {
    const sound = this.#sound;
    if (!sound) return;
    sound.keepLooping();
    sound.wake();
    this.#example?.wake();
    this.#resumeAfterExample();
    this.#span.seconds = sound.seconds;
    this.#overlay.draw(sound);
    this.#showHeard(sound);
    element("answers").classList.toggle("locked", this.lock !== "");
    if (this.#pressedAt !== null && sound.heardSeconds > 0) {
      performance.measure("key-to-sound", { start: this.#pressedAt, end: performance.now() });
      this.#pressedAt = null;
    }
  }

  /** @param {(sound: import("./player.js").Sound) => Promise<void>} begin */
  async #play(begin) {
    this.#stopExample();
    const sound = this.#sound;
    if (!sound || sound.hasFailed) return;
    sound.audio.playbackRate = SPEEDS[this.#speed];
    sound.audio.volume = this.#volume;
    try {
      await begin(sound);
    } catch (error) {
      // Other failures come as events of the sound itself.
      if (/** @type {DOMException} */ (error).name === "NotAllowedError") this.#blocked();
    }
  }

  /** Keep the rater's span, and play on. @param {(sound: import("./player.js").Sound, own: Span) => Promise<void>} begin */
  #spanChanged(begin) {
    const { own } = this.#span;
    if (!this.#item || !this.#label || !own) return;
    this.#spans.set(this.#label.item, own);
    this.#showPlace();
    this.spanSet();
    // A clip that is heard for all of its labels plays on, until all of it was heard.
    if (this.#item.isWhole && !this.#sound?.isHeardWhole) return;
    this.#play((sound) => begin(sound, own));
  }

  #stopExample() {
    this.#example?.pause();
    this.#example = null;
    for (const button of document.querySelectorAll("[data-example]")) {
      button.removeAttribute("aria-pressed");
    }
  }

  #resumeAfterExample() {
    const example = this.#example;
    if (!example) return;
    const isOver = example.audio.currentTime >= example.span[1] - 0.05;
    if (example.hasFailed || (example.seconds && isOver)) this.replay();
  }

  #soundChanged() {
    const sound = this.#sound;
    document.body.classList.toggle("is-broken", this.hasFailed);
    element("broken").hidden = !this.hasFailed;
    write("broken-reason", sound?.reason ?? "");
    this.#showPlace();
  }

  /** Say how much was heard, and so what "not present" will speak for. */
  #showHeard(/** @type {import("./player.js").Sound} */ { seconds, heardSeconds, isHeardWhole }) {
    const heard = `heard ${Math.min(heardSeconds, seconds).toFixed(1)} of ${Number(seconds.toFixed(1))} s`;
    renew("heard", isHeardWhole ? "whole clip heard ✓" : seconds ? heard : "");
    const claim = isHeardWhole ? "in the whole clip" : "where I listened";
    renew("claim", claim);
    renew("claim-rest", `the rest is not ${claim}`);
    element("heard").classList.toggle("is-whole", isHeardWhole);
  }

  #showPlace() {
    const n = this.#item?.peaks.length ?? 0;
    const isWhole = this.#item && n === 0;
    write("place", isWhole ? "whole clip" : n > 1 ? `peak ${this.#peak + 1} of ${n}` : "");
    const { own } = this.#span;
    const name = this.#label?.name ?? "";
    this.#span.teachers = this.#label?.peaks[this.#peak] ?? null;
    const told = own ? `your span ${own.map((at) => at.toFixed(2)).join("–")} s` : "drag to mark where";
    write("span", this.#label ? (name ? `${name}: ${told}` : told) : "mark a class, then drag to say where");
    element("span-clear").hidden = !own;
  }
}
