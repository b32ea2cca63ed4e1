/** All labels of a clip at once: those it was given, those it may be missing, and those you add. */

import { post } from "./api.js";
import * as page from "./page.js";
import { Search } from "./search.js";

/** @typedef {import("./queue.js").Offer} Offer */
/** @typedef {import("./ledger.js").Answered} Answered */
/** @typedef {"present" | "unsure"} Mark */

/** @type {Record<string, string>} */
const SIGNS = { present: "✓", unsure: "?" };

export class ClipMode {
  #stage;
  #queue;
  #judge;
  /** @type {Map<string, Mark>} marks by item; what has none is not present */
  #marks = new Map();
  /** @type {Offer | null} whose span is set */
  #asked = null;
  /** Whether the next number marks unsure. */
  #isDoubting = false;
  /** Seconds of the clip for which the strips were drawn. */
  #drawnSeconds = 0;
  #rows = page.element("offers");
  #search = new Search((found) => this.#add(found));

  /**
   * @param {import("./stage.js").Stage} stage
   * @param {import("./queue.js").Queue} queue
   * @param {(answers: import("./class_mode.js").Answers, at: number) => unknown} judge
   */
  constructor(stage, queue, judge) {
    this.#stage = stage;
    this.#queue = queue;
    this.#judge = judge;
    stage.spanSet = () => this.#redraw();
  }

  /** @returns {string} what is asked */
  get question() {
    return "What do you hear?";
  }

  /** Show the clip's labels and offers, with the answers that were given before. @param {Answered[]} before */
  enter(before) {
    this.#marks = new Map();
    for (const { item, answer } of before) {
      if (answer === "present" || answer === "unsure") this.#marks.set(item, answer);
    }
    this.#isDoubting = false;
    this.#search.close();
    const labels = this.#queue.clip?.labels;
    page.write("class-name", this.question);
    const told = labels?.length ? `Given: ${labels.join(" · ")}` : "No label was given.";
    page.write("given", labels ? told : "Given labels are not shown for this clip.");
    this.#askWhere(this.#marked.at(-1) ?? null);
  }

  /** Take a number key. @param {KeyboardEvent} event @returns {boolean} whether it was one */
  press(event) {
    const number = Number(/^(?:Digit|Numpad)([1-9])$/.exec(event.code)?.[1] ?? (/^[1-9]$/.test(event.key) ? event.key : 0));
    if (!number) return false;
    const offer = this.#offers[number - 1];
    if (offer && !event.repeat) this.#toggle(offer, event.shiftKey || this.#isDoubting ? "unsure" : "present");
    return true;
  }

  /** @param {string} action @param {number} at @returns {unknown} */
  act(action, at) {
    switch (action) {
      case "next":
        return this.#stage.hasFailed ? undefined : this.#judge(this.#answers, at);
      case "doubt":
        this.#isDoubting = !this.#isDoubting;
        return page.write("message", this.#isDoubting ? "Unsure of which? Press its number." : "");
      case "search":
        return this.#stage.hasFailed ? undefined : this.#search.open();
      case "span_start":
      case "span_end":
      case "span_clear":
        return page.write("message", this.#stage.mark(action));
      case "earlier":
      case "later":
        return this.#askNext(action === "later" ? 1 : -1);
      default:
        return undefined;
    }
  }

  /** Place the strips as soon as it is known how long the clip is. */
  draw() {
    const { seconds } = this.#stage;
    if (seconds === this.#drawnSeconds) return;
    this.#drawnSeconds = seconds;
    for (const part of /** @type {NodeListOf<HTMLElement>} */ (this.#rows.querySelectorAll(".strip i"))) {
      const [start, end] = [Number(part.dataset.start), Number(part.dataset.end)];
      part.hidden = !seconds;
      part.style.left = `${(100 * start) / seconds}%`;
      part.style.width = `${(100 * Math.max(end - start, 0)) / seconds}%`;
    }
  }

  /** Sum up the clips of this block. @param {Answered[]} history @returns {page.Last[]} */
  last(history) {
    return this.#queue.clips.flatMap((clip) => {
      const own = history.filter(({ item }) => this.#queue.clipOf(item) === clip);
      if (!own.length) return [];
      const n = own.filter(({ answer }) => answer === "present").length;
      return [{ answered: own[0], letter: `${n}✓`, spoken: `${n} of ${own.length} present` }];
    });
  }

  /** @returns {Offer[]} */
  get #offers() {
    return this.#queue.clip?.offers ?? [];
  }

  /** @returns {Offer[]} those with a mark */
  get #marked() {
    return this.#offers.filter(({ item }) => this.#marks.has(item));
  }

  /** @returns {import("./class_mode.js").Answers} what has no mark is not present, and so nowhere */
  get #answers() {
    return this.#offers.map(({ item }) => {
      const mark = this.#marks.get(item);
      return mark ? { item, answer: mark, ...this.#stage.spanTold(item) } : { item, answer: "not_present" };
    });
  }

  /** Let the span be that of an offer. @param {Offer | null} offer */
  #askWhere(offer) {
    this.#asked = offer;
    this.#stage.askWhere(offer);
    this.#redraw();
  }

  /** Go to another class that is marked. @param {1 | -1} step */
  #askNext(step) {
    const marked = this.#marked;
    const place = this.#asked ? marked.indexOf(this.#asked) + step : 0;
    const next = marked[(place + marked.length) % marked.length];
    if (!next) return page.write("message", "Mark a class first, then say where you hear it.");
    page.write("spoken", `Where: ${next.name}`);
    return this.#askWhere(next);
  }

  /** Mark an offer, or take the same mark away. @param {Offer} offer @param {Mark} mark */
  #toggle(offer, mark) {
    const { item, name } = offer;
    this.#isDoubting = false;
    if (this.#stage.lock || this.#stage.hasFailed) return page.write("message", this.#stage.lock);
    if (this.#marks.get(item) === mark) this.#marks.delete(item);
    else this.#marks.set(item, mark);
    page.write("spoken", `${name}: ${this.#marks.get(item) ?? "not present"}`);
    return this.#askWhere(this.#marks.has(item) ? offer : (this.#marked.at(-1) ?? null));
  }

  /** Add a class that nobody offered; it is heard, or it would not have been searched for. */
  async #add(/** @type {import("./search.js").Found} */ { class_id, name }) {
    const { clip } = this.#queue;
    if (!clip) return;
    let offer = this.#offers.find((known) => known.class_id === class_id);
    if (!offer) {
      offer = /** @type {Offer} */ (await post(`/api/clips/${clip.item}/offers`, { class_id }));
      clip.offers?.push(offer);
    }
    if (this.#queue.clip !== clip) return;
    this.#marks.set(offer.item, "present");
    page.write("spoken", `${name}: present`);
    this.#askWhere(offer);
  }

  /** Make the rows anew; who came by keyboard stays where they are. */
  #redraw() {
    const focused = /** @type {HTMLElement | null} */ (document.activeElement);
    const row = [...this.#rows.children].findIndex((one) => one.contains(focused));
    this.#rows.replaceChildren(...this.#offers.map((offer, place) => this.#row(offer, place)));
    const again = row < 0 ? null : this.#rows.children[row]?.querySelector(`.${focused?.className}`);
    /** @type {HTMLElement | null | undefined} */ (again)?.focus();
    this.#drawnSeconds = -1;
    this.draw();
  }

  /** @param {Offer} offer @param {number} place @returns {HTMLLIElement} */
  #row(offer, place) {
    const mark = this.#marks.get(offer.item);
    const row = document.createElement("li");
    row.className = mark ?? "";
    if (offer === this.#asked) row.setAttribute("aria-current", "true");
    const line = strip(offer, mark ? this.#stage.spanOf(offer.item) : null);
    if (mark) line.addEventListener("click", () => this.#askWhere(offer));
    row.append(this.#markButton(offer, place, mark), line, this.#doubtButton(offer, mark));
    return row;
  }

  /** @param {Offer} offer @param {number} place @param {Mark | undefined} mark */
  #markButton(offer, place, mark) {
    const button = this.#button(offer, "present", mark === "present");
    button.className = "offer";
    const path = offer.path.slice(0, -1).join(" › ");
    button.append(
      make("kbd", place < 9 ? String(place + 1) : ""),
      make("span", mark ? SIGNS[mark] : "", "sign"),
      make("span", offer.name, "name"),
      make("small", path),
    );
    button.setAttribute("aria-label", `${offer.name}${mark === "unsure" ? ", unsure" : ""}`);
    return button;
  }

  /** @param {Offer} offer @param {Mark | undefined} mark */
  #doubtButton(offer, mark) {
    const button = this.#button(offer, "unsure", mark === "unsure");
    button.className = "doubt";
    button.textContent = "?";
    button.setAttribute("aria-label", `Unsure: ${offer.name}`);
    return button;
  }

  /** @param {Offer} offer @param {Mark} mark @param {boolean} isPressed */
  #button(offer, mark, isPressed) {
    const button = document.createElement("button");
    button.type = "button";
    button.setAttribute("aria-pressed", String(isPressed));
    button.addEventListener("click", (event) => {
      // A button that was clicked must not be pressed again by the next Space or Enter.
      if (event.detail) button.blur();
      this.#toggle(offer, mark);
    });
    return button;
  }
}

/** @param {string} name @param {string} text @param {string} [kind] */
function make(name, text, kind = "") {
  return Object.assign(document.createElement(name), { textContent: text, className: kind });
}

/**
 * Make the strip of where the teacher hears a class, and where the rater does.
 * @param {Offer} offer
 * @param {import("./player.js").Span | null} own
 * @returns {HTMLElement}
 */
function strip({ peaks }, own) {
  const teachers = peaks.length
    ? `heard by the teacher at ${peaks.map(([at]) => at.toFixed(1)).join(", ")} s`
    : "the teacher does not say where";
  const line = make("span", "", "strip");
  line.setAttribute("role", "img");
  line.setAttribute("aria-label", own ? `by you from ${own[0].toFixed(1)} to ${own[1].toFixed(1)} s, ${teachers}` : teachers);
  for (const [start, end] of own ? [...peaks, own] : peaks) {
    const part = document.createElement("i");
    Object.assign(part.dataset, { start, end });
    part.className = own && start === own[0] && end === own[1] ? "own" : "";
    line.append(part);
  }
  return line;
}
