/** One label at a time: its class card, the examples, and three answers. */

import * as page from "./page.js";

/** @typedef {import("./ledger.js").Answered} Answered */
/** @typedef {{ item: string, answer: string, span_start?: number, span_end?: number }[]} Answers */

export class ClassMode {
  #stage;
  #queue;
  #keys;
  #judge;
  /** @type {page.ClassCard | undefined} the card that is shown */
  #card;

  /**
   * @param {import("./stage.js").Stage} stage
   * @param {import("./queue.js").Queue} queue
   * @param {import("./keys.js").Keys} keys
   * @param {(answers: Answers, at: number) => unknown} judge
   */
  constructor(stage, queue, keys, judge) {
    this.#stage = stage;
    this.#queue = queue;
    this.#keys = keys;
    this.#judge = judge;
  }

  /** @returns {string} what is asked */
  get question() {
    return `Do you hear it: ${this.#card?.name}?`;
  }

  /** Show the card of the clip's class; where the class is another one, nobody may overlook it. */
  enter() {
    const { card } = this.#queue;
    if (!card || card.class_id === this.#card?.class_id) return;
    page.showCard(card, this.#keys, (action) => this.#playExample(action));
    if (this.#card) page.announceClass(card.name);
    this.#card = card;
  }

  /** @returns {boolean} whether a key was taken */
  press() {
    return false;
  }

  /** @param {string} action @param {number} at @returns {unknown} */
  act(action, at) {
    switch (action) {
      case "present":
      case "not_present":
      case "unsure":
        return this.#answer(action, at);
      case "earlier":
        return page.write("message", this.#stage.tour(-1));
      case "later":
        return page.write("message", this.#stage.tour(1));
      case "span_start":
      case "span_end":
      case "span_clear":
        return page.write("message", this.#stage.mark(action));
      case "score":
        return this.#stage.toggleScore();
      default:
        return this.#playExample(action);
    }
  }

  draw() {}

  /** @param {Answered[]} history @returns {page.Last[]} */
  last(history) {
    return history.map((answered) => ({ answered, ...page.ANSWERS[answered.answer] }));
  }

  /** @param {string} answer @param {number} at */
  #answer(answer, at) {
    const { clip } = this.#queue;
    if (!clip || this.#stage.hasFailed) return undefined;
    return this.#judge([{ item: clip.item, answer, ...this.#stage.spanTold(clip.item) }], at);
  }

  /** @param {string} action */
  #playExample(action) {
    const { card } = this.#queue;
    const chosen = action === "decoy" ? card?.decoy : card?.examples[Number(action.slice(-1)) - 1];
    if (!chosen) return page.write("message", "There is no such example for this class.");
    return this.#stage.playExample(chosen.id, action);
  }
}
