/** Where the rater is: the blocks, the clip at hand, and what comes next, asked for ahead. */

import { get, post } from "./api.js";

const N_AHEAD = 3;

/** @typedef {import("./ledger.js").Planned} Planned */
/** @typedef {import("./ledger.js").Answered} Answered */
/** @typedef {import("./page.js").ClassCard} ClassCard */
/** @typedef {import("./player.js").Span} Span */

/**
 * @typedef {object} Offer A label that a clip may be missing.
 * @property {string} item
 * @property {string} class_id
 * @property {string} name
 * @property {string[]} path from the root of the ontology down to the class
 * @property {Span[]} peaks where the teacher hears it
 */

/**
 * @typedef {object} Clip What is judged at once: one label of a clip, or several where it has offers.
 * @property {string} item names the sound
 * @property {Span[]} peaks the teacher's best first; none if unknown
 * @property {boolean} [isWhole] whether it is played as a whole, once
 * @property {string} [class_id]
 * @property {string[] | null} [labels] names of labels that it was given; null where they are not shown
 * @property {Offer[]} [offers]
 */

/** @typedef {{ block: number, cards: ClassCard[], items: Clip[] }} Block */

/** @param {Clip} clip @returns {string[]} the items that are answered with it */
export const itemsOf = ({ item, offers }) => offers?.map((offer) => offer.item) ?? [item];

export class Queue {
  /** @type {Block | null} */
  #block = null;
  #place = 0;
  /** @type {Promise<Block | null> | null} the block that comes next */
  #ahead = null;
  #session;
  #ledger;

  /** @param {import("./ledger.js").Session} session @param {import("./ledger.js").Ledger} ledger */
  constructor(session, ledger) {
    this.#session = session;
    this.#ledger = ledger;
  }

  /** @returns {number} of the block at hand, -1 where there is none */
  get number() {
    return this.#block?.block ?? -1;
  }

  /** @returns {Clip | undefined} the clip at hand */
  get clip() {
    return this.#block?.items[this.#place];
  }

  /** @returns {"class" | "clip"} whether one label is asked for at a time, or all of a clip */
  get mode() {
    const [first] = this.clips;
    return first ? (first.offers ? "clip" : "class") : (this.#session.mode ?? "class");
  }

  /** @returns {ClassCard | undefined} of the class that is asked for */
  get card() {
    return this.clip && this.#card(this.clip);
  }

  /** @returns {Clip[]} the clips of the block at hand */
  get clips() {
    return this.#block?.items ?? [];
  }

  /** @returns {Clip[]} the clip at hand and the next ones */
  get upcoming() {
    const later = this.clips.filter((clip, place) => place > this.#place && !this.isDone(clip));
    return [...(this.clip ? [this.clip] : []), ...later].slice(0, N_AHEAD + 1);
  }

  /** @returns {ClassCard[]} whose examples may be asked for soon */
  get upcomingCards() {
    return [...new Set(this.upcoming.slice(0, 2).map((clip) => this.#card(clip)))].filter((card) => card !== undefined);
  }

  /** @param {Clip} clip @returns {boolean} whether all that it asks is answered */
  isDone(clip) {
    const { answered } = this.#ledger;
    return itemsOf(clip).every((item) => answered.has(item));
  }

  /** @param {string} item @returns {Clip | undefined} the clip of the block at hand that asks it */
  clipOf(item) {
    return this.clips.find((clip) => itemsOf(clip).includes(item));
  }

  /** Make a block the current one, at its first open clip. @param {number} number */
  async load(number) {
    const ahead = await this.#ahead;
    this.#ahead = null;
    this.#block = ahead?.block === number ? ahead : await fetchBlock(number);
    this.#place = Math.max(this.#openPlace(0), 0);
  }

  /** Go to the next clip without an answer. @returns {boolean} whether the block has one */
  advance() {
    this.#place = this.#openPlace(this.#place + 1);
    return this.#place >= 0;
  }

  /** Go back to a clip. @param {Answered} answered */
  async reopen(answered) {
    if (this.number !== answered.block) await this.load(answered.block);
    this.#place = this.clips.findIndex((clip) => itemsOf(clip).includes(answered.item));
  }

  /** Ask for the next block when this one is nearly done. @returns {Promise<Block | null> | null} */
  lookAhead() {
    if (this.clip && this.upcoming.length > N_AHEAD) return null;
    this.#ahead ??= this.#fetchNext().catch(() => null);
    this.#ahead.then((block) => {
      if (!block) this.#ahead = null; // there may be one later
    });
    return this.#ahead;
  }

  /** @returns {Promise<Planned | undefined>} the next unfinished block, drawn now if need be */
  async next() {
    if (!this.#session.grows) return this.#ledger.openBlock(this.number);
    return this.#known(await post("/api/blocks/next", { after: this.number }));
  }

  /** @param {string} item @returns {Promise<Planned | undefined>} a block of clips like an item's */
  async alike(item) {
    return this.#known(await post(`/api/items/${item}/alike`));
  }

  /** @param {string[]} classIds none for all @returns {Promise<Planned | undefined>} the next block of some classes alone */
  async limit(classIds) {
    await this.#ahead;
    this.#ahead = null;
    const drawn = await post("/api/only", { class_ids: classIds });
    this.#session.only = drawn.only;
    return this.#known(drawn);
  }

  /** @param {{ block: Planned | null }} drawn @returns {Planned | undefined} */
  #known({ block }) {
    if (!block) return undefined;
    if (!this.#session.blocks.some((known) => known.block === block.block)) this.#session.blocks.push(block);
    return block;
  }

  async #fetchNext() {
    const next = await this.next();
    return next && next.block !== this.number ? fetchBlock(next.block) : null;
  }

  /** @param {Clip} clip @returns {ClassCard | undefined} */
  #card(clip) {
    return this.#block?.cards.find(({ class_id }) => class_id === clip.class_id);
  }

  /** @param {number} from @returns {number} the next place without an answer, -1 if there is none */
  #openPlace(from) {
    const later = this.clips.findIndex((clip, place) => place >= from && !this.isDone(clip));
    return later >= 0 ? later : this.clips.findIndex((clip) => !this.isDone(clip));
  }
}

/** @param {number} number @returns {Promise<Block>} */
async function fetchBlock(number) {
  const told = await get(`/api/blocks/${number}`);
  const items = told.items.map((/** @type {any} */ item) =>
    item.offers ? { ...item, item: item.clip, peaks: [], isWhole: true } : item,
  );
  return { ...told, items };
}
