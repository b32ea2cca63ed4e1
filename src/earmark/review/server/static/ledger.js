/** What this rater has answered: the history, what still waits to be stored, and the pace. */

import { send, uuid } from "./api.js";
import { Outbox } from "./outbox.js";

const N_PACED = 20;
const LONGEST_PAUSE_SECONDS = 60;
const AT_ONCE_SECONDS = 0.1;
const OTHER_QUEUE = "given in another queue of this workspace; try again to store what this one asks for, too";

/** @typedef {import("./api.js").Judgement} Judgement */
/** @typedef {{ id: string, item: string, block: number, answer: string, span_start?: number, span_end?: number }} Answered */
/** @typedef {{ block: number, class_id: string, name: string, n_items: number }} Planned */

/**
 * @typedef {object} Session What the server knows of this rater.
 * @property {string} rater
 * @property {string} workspace digest of its path
 * @property {string} queue digest
 * @property {Answered[]} history
 * @property {Planned[]} blocks those drawn so far
 * @property {"find" | "measure"} [aim]
 * @property {"class" | "clip"} [mode] whether one label is asked for at a time, or all of a clip
 * @property {string} [only] names of the classes that are asked about alone; empty for all
 * @property {boolean} [grows] whether blocks are drawn as they are wanted
 */

export class Ledger {
  /** @type {Answered[]} answers that were not retracted, the last one last */
  history;
  #session;
  /** @type {Outbox<Judgement & { block: number, queue: string, refused?: string }>} */
  #outbox;
  /** @type {number[]} when answers were given in this sitting, in seconds */
  #answeredAt = [];
  /** @type {Set<string>} answers that the server has stored and that no stored retraction takes back */
  #stored;
  #isOfThisQueue = (/** @type {{ queue: string }} */ { queue }) => queue === this.#session.queue;
  /** @type {{ items: Set<string>, blocks: Map<number, number> } | null} what the history sums up to */
  #sums = null;

  /**
   * @param {Session} session what the server knows
   * @param {() => void} changed called whenever an answer was stored or could not be
   */
  constructor(session, changed) {
    this.#session = session;
    this.history = session.history;
    this.#stored = new Set(session.history.map(({ id }) => id));
    const key = `earmark-${session.workspace}-${session.rater}`;
    const store = async (/** @type {Judgement & { block: number, queue: string }} */ { block, queue, ...judgement }) => {
      await send(judgement);
      if (judgement.retracts) this.#stored.delete(judgement.retracts);
      else this.#stored.add(judgement.id);
    };
    this.#outbox = new Outbox(key, store, () => {
      this.#removeRefused();
      changed();
    });
    this.#outbox.refuse((entry) => !this.#isOfThisQueue(entry), OTHER_QUEUE);
    this.#readmit();
  }

  get nWaiting() {
    return this.#outbox.waiting.length;
  }

  /** @returns {string} why answers cannot be stored; empty when they can */
  get trouble() {
    return [this.#outbox.trouble, this.#outbox.warning].filter(Boolean).join(" · ");
  }

  /** @returns {number} answers that count on the server: an undo that waits has not happened there */
  get nStored() {
    return this.#stored.size;
  }

  /** @returns {(Judgement & { queue: string, refused?: string })[]} what is not stored, each with the reason */
  get refused() {
    return this.#outbox.refused;
  }

  /** Send once more what was refused; the server knows where answers of another queue belong. */
  async retryRefused() {
    const before = this.refused;
    const isOther = !before.every(this.#isOfThisQueue);
    this.#readmit(() => true);
    await this.#outbox.flush();
    const isAnyStored = this.nWaiting === 0 && this.refused.length < before.length;
    if (isOther && isAnyStored) location.reload(); // which shows them in their blocks
  }

  /** Drop what the server refused. */
  forgetRefused() {
    this.#outbox.forgetRefused();
  }

  /** @returns {number} all items of this rater's blocks */
  get nItems() {
    return this.#session.blocks.reduce((sum, { n_items }) => sum + n_items, 0);
  }

  /** @returns {number} seconds for one clip, lately and without pauses; 0 where unknown */
  get paceSeconds() {
    const times = this.#answeredAt.slice(-N_PACED - 1);
    const gaps = times.slice(1).map((time, i) => Math.min(time - times[i], LONGEST_PAUSE_SECONDS));
    return gaps.length ? gaps.reduce((sum, gap) => sum + gap) / gaps.length : 0;
  }

  /** @returns {Set<string>} items with an answer */
  get answered() {
    return this.#summed.items;
  }

  /** @param {number} block @returns {number} */
  nAnswered(block) {
    return this.#summed.blocks.get(block) ?? 0;
  }

  get #summed() {
    if (this.#sums) return this.#sums;
    const blocks = new Map();
    for (const { block } of this.history) blocks.set(block, (blocks.get(block) ?? 0) + 1);
    this.#sums = { items: new Set(this.history.map(({ item }) => item)), blocks };
    return this.#sums;
  }

  /**
   * @param {number} after
   * @returns {Planned | undefined} the next block that is not finished, from the front if need be
   */
  openBlock(after) {
    const isOpen = (/** @type {Planned} */ { block, n_items }) => this.nAnswered(block) < n_items;
    const later = this.#session.blocks.find((planned) => planned.block > after && isOpen(planned));
    return later ?? this.#session.blocks.find(isOpen);
  }

  /**
   * Store an answer; an older answer to the same item is retracted first.
   * @param {number} block
   * @param {Partial<Judgement> & { item: string, answer: string }} judgement
   */
  answer(block, judgement) {
    const before = this.history.find(({ item }) => item === judgement.item);
    if (before) this.retract(before);
    this.#outbox.forgetRefused(({ item }) => item === judgement.item); // which this answer replaces
    this.#post(block, judgement);
    // All labels of a clip are answered at once, and count as one.
    const [now, last] = [performance.now() / 1000, this.#answeredAt.at(-1) ?? -Infinity];
    if (now - last > AT_ONCE_SECONDS) this.#answeredAt.push(now);
  }

  /** Take an answer back. @param {Answered} answered */
  retract(answered) {
    this.#post(answered.block, { item: answered.item, retracts: answered.id });
  }

  /** Try to store what waits. @returns {Promise<boolean>} whether nothing waits any longer */
  async flush() {
    await this.#outbox.flush();
    return this.nWaiting === 0;
  }

  /** Let refused answers wait, by default those of this queue; of this queue they count as answered. */
  #readmit(isReadmitted = this.#isOfThisQueue) {
    this.#outbox.readmit(isReadmitted);
    for (const { block, queue, ...judgement } of this.#outbox.waiting.filter(this.#isOfThisQueue)) {
      this.#enter(block, judgement);
    }
  }

  /** Ask again about what the server refused. */
  #removeRefused() {
    const refused = new Set(this.refused.map(({ id }) => id));
    if (!this.history.some(({ id }) => refused.has(id))) return;
    this.history = this.history.filter(({ id }) => !refused.has(id));
    this.#sums = null;
  }

  /** @param {number} block @param {Partial<Judgement> & { item: string }} said */
  #post(block, said) {
    const judgement = {
      id: uuid(),
      at: new Date().toISOString(),
      rater: this.#session.rater,
      answer: null,
      retracts: null,
      ...said,
    };
    this.#enter(block, judgement);
    this.#outbox.add({ ...judgement, block, queue: this.#session.queue });
  }

  /** @param {number} block @param {Judgement} judgement */
  #enter(block, { id, item, answer, retracts, span_start, span_end }) {
    this.history = this.history.filter((known) => known.id !== id && known.id !== retracts);
    const span = span_start === undefined ? {} : { span_start, span_end };
    if (answer) this.history.push({ id, item, block, answer, ...span });
    this.#sums = null;
  }
}
