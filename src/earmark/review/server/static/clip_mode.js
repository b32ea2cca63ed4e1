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
  /** Whether the next number marks unsure. */
  #isDoubting = false;
  /** Seconds of the clip for which the strips were drawn. */
  #drawnSeconds = 0;
  #rows = page.element("offers");
  #search = new Search((found) => this.#add(found));

  /**
   * @param {import("./stage.js").Stage} stage
   * @param {import("./queue.js").Queue} queue
   * @param {(answers: { item: string, answer: string }[], at: number) => unknown} judge
   */
  constructor(stage, queue, judge) {
    this.#stage = stage;
    this.#queue = queue;
    this.#judge = judge;
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
    const labels = this.#queue.clip?.labels ?? [];
    page.write("class-name", this.question);
    page.write("given", labels.length ? `Given: ${labels.join(" · ")}` : "No label was given.");
    this.#redraw();
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

  /** @returns {{ item: string, answer: string }[]} what has no mark is not present */
  get #answers() {
    return this.#offers.map(({ item }) => ({ item, answer: this.#marks.get(item) ?? "not_present" }));
  }

  /** Mark an offer, or take the same mark away. @param {Offer} offer @param {Mark} mark */
  #toggle({ item, name }, mark) {
    this.#isDoubting = false;
    if (this.#stage.lock || this.#stage.hasFailed) return page.write("message", this.#stage.lock);
    if (this.#marks.get(item) === mark) this.#marks.delete(item);
    else this.#marks.set(item, mark);
    page.write("spoken", `${name}: ${this.#marks.get(item) ?? "not present"}`);
    return this.#redraw();
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
    this.#redraw();
  }

  #redraw() {
    this.#rows.replaceChildren(...this.#offers.map((offer, place) => this.#row(offer, place)));
    this.#drawnSeconds = -1;
    this.draw();
  }

  /** @param {Offer} offer @param {number} place @returns {HTMLLIElement} */
  #row(offer, place) {
    const mark = this.#marks.get(offer.item);
    const row = document.createElement("li");
    row.className = mark ?? "";
    row.append(this.#markButton(offer, place, mark), strip(offer), this.#doubtButton(offer, mark));
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
      const [row, kind] = [this.#offers.indexOf(offer), button.className];
      this.#toggle(offer, mark);
      // Rows are made anew; who came by keyboard stays where they are.
      if (!event.detail) /** @type {HTMLElement} */ (this.#rows.children[row].querySelector(`.${kind}`)).focus();
    });
    return button;
  }
}

/** @param {string} name @param {string} text @param {string} [kind] */
function make(name, text, kind = "") {
  return Object.assign(document.createElement(name), { textContent: text, className: kind });
}

/** Make the strip of where the teacher hears a class. @param {Offer} offer @returns {HTMLElement} */
function strip({ peaks }) {
  const told = peaks.length ? `heard by the teacher at ${peaks.map(([at]) => at.toFixed(1)).join(", ")} s` : "";
  const line = make("span", "", "strip");
  line.setAttribute("role", "img");
  line.setAttribute("aria-label", told || "the teacher does not say where");
  for (const [start, end] of peaks) {
    const part = document.createElement("i");
    Object.assign(part.dataset, { start, end });
    line.append(part);
  }
  return line;
}
