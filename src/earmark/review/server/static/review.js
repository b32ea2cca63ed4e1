/**
 * The listening page: one key judges a clip and goes on to the next.
 *
 * This module says what each key does and what comes next; the others hear, draw, write and store.
 */

import { get } from "./api.js";
import { precisionCurve } from "./drawing.js";
import { Keys, KeyTable } from "./keys.js";
import { Ledger } from "./ledger.js";
import { Overview } from "./overview.js";
import * as page from "./page.js";
import { Stage } from "./stage.js";

/** @typedef {import("./stage.js").Item} Item */
/** @typedef {import("./ledger.js").Answered} Answered */
/** @typedef {{ block: number, card: page.ClassCard, items: Item[] }} Block */
/** @typedef {"gate" | "work" | "summary" | "overview"} View */

class Review {
  #session;
  /** @type {Block | null} */
  #block = null;
  /** @type {Promise<Block | null> | null} the block that comes next, asked for ahead */
  #ahead = null;
  #place = 0;
  /** @type {View} */
  #view = "gate";
  /** @type {View} where the overview leads back to */
  #behind = "gate";
  #hasSummary = false;
  #keys = new Keys();
  #keyTable = new KeyTable(this.#keys, () => page.printKeys(this.#keys));
  #overview = new Overview((classId) => this.#attempt(() => this.#openClass(classId)));
  #ledger;
  #stage;

  /** @param {import("./ledger.js").Session & { bands: { low_hz: number, high_hz: number } }} session */
  constructor(session) {
    this.#session = session;
    this.#ledger = new Ledger(session, () => this.#stored());
    this.#stage = new Stage(session.bands, () => {
      page.showGate("Ready when you are", "The browser plays sound after a key press.", "Go on");
      this.#show("gate");
    });
  }

  async start() {
    page.printKeys(this.#keys);
    this.#listen();
    this.#ledger.flush();
    const first = this.#ledger.openBlock(-1);
    if (first === undefined) {
      this.#finish();
    } else {
      await this.#load(first.block);
      page.showWelcome(this.#session, first.name, this.#ledger.history.length > 0);
      this.#show("gate");
    }
    this.#draw();
  }

  /** @returns {Item | undefined} */
  get #item() {
    return this.#block?.items[this.#place];
  }

  #listen() {
    addEventListener("keydown", (event) => this.#pressed(event));
    for (const button of document.querySelectorAll("[data-action]")) {
      button.addEventListener("click", (event) => {
        const { action } = /** @type {HTMLElement} */ (button).dataset;
        // A button that was clicked must not be pressed again by the next Space.
        if (/** @type {MouseEvent} */ (event).detail) /** @type {HTMLElement} */ (button).blur();
        if (action) this.#attempt(() => this.#act(action, event.timeStamp));
      });
    }
  }

  /** @param {KeyboardEvent} event */
  #pressed(event) {
    if (event.ctrlKey || event.metaKey || event.altKey || this.#keyTable.isOpen) return;
    const isOnButton = document.activeElement?.matches("button, a");
    if (isOnButton && (event.key === " " || event.key === "Enter")) return;
    const action = this.#keys.action(event.key);
    if (!action || (this.#view === "overview" && action !== "overview" && action !== "help")) return;
    event.preventDefault();
    if (!event.repeat) this.#attempt(() => this.#act(action, event.timeStamp));
  }

  /** Do something that may need the server; say so if it cannot be done. */
  async #attempt(/** @type {() => unknown} */ act) {
    try {
      await act();
    } catch (error) {
      page.write("message", `${/** @type {Error} */ (error).message}: is the server still running?`);
    }
  }

  /**
   * @param {string} action
   * @param {number} at when the key went down
   * @returns {unknown}
   */
  #act(action, at) {
    page.write("message", "");
    if (action === "overview") return this.#toggleOverview();
    if (action === "help") return this.#keyTable.open();
    if (action === "undo") return this.#undo(at);
    if (action === "replay" && this.#view !== "work") return this.#goOn(at);
    return this.#view === "work" ? this.#actOnClip(action, at) : undefined;
  }

  /** @param {string} action @param {number} at @returns {unknown} */
  #actOnClip(action, at) {
    switch (action) {
      case "present":
      case "not_present":
      case "unsure":
        return this.#stage.hasFailed ? undefined : this.#answer(action, at);
      case "skip":
        return this.#stage.hasFailed ? this.#answer("cannot_play", at) : undefined;
      case "replay":
        return this.#stage.replay();
      case "whole":
        return this.#stage.playWhole();
      case "earlier":
        return page.write("message", this.#stage.tour(-1));
      case "later":
        return page.write("message", this.#stage.tour(1));
      case "speed":
        return this.#stage.changeSpeed();
      case "picture":
        return this.#stage.togglePicture();
      case "score":
        return this.#stage.toggleScore();
      default:
        return this.#playExample(action);
    }
  }

  /**
   * Judge the clip on stage and go on; refused until enough of it was really heard.
   * @param {string} answer
   * @param {number} at
   */
  #answer(answer, at) {
    const item = this.#item;
    if (!item || !this.#block) return undefined;
    if (this.#stage.lock) return page.write("message", this.#stage.lock);
    this.#ledger.answer(this.#block.block, { ...this.#stage.evidence, item: item.item, answer });
    return this.#advance(at);
  }

  /** @param {number} at */
  async #undo(at) {
    const last = this.#ledger.history.at(-1);
    if (!last) return page.write("message", "There is nothing to undo.");
    this.#ledger.retract(last);
    await this.#reopen(last, at);
    return page.write("message", "Undone: judge this clip again.");
  }

  /**
   * Hear a clip again; an answer to it stands until there is another.
   * @param {Answered} answered
   * @param {number} at
   */
  async #reopen(answered, at) {
    if (this.#block?.block !== answered.block) await this.#load(answered.block);
    const items = this.#block?.items ?? [];
    this.#place = items.findIndex(({ item }) => item === answered.item);
    this.#stage.forget(items[this.#place]);
    this.#enter(at);
  }

  /** @param {string} action */
  #playExample(action) {
    const card = this.#block?.card;
    const chosen = action === "decoy" ? card?.decoy : card?.examples[Number(action.slice(-1)) - 1];
    if (!chosen) return page.write("message", "There is no such example for this class.");
    return this.#stage.playExample(chosen.id, action);
  }

  /** Go to the next clip without an answer, or to the block's end. @param {number} at */
  #advance(at) {
    this.#place = this.#openPlace(this.#place + 1);
    return this.#place < 0 ? this.#endBlock() : this.#enter(at);
  }

  /** @param {number} from @returns {number} the next place without an answer, -1 if there is none */
  #openPlace(from) {
    const answered = this.#ledger.answered;
    const items = this.#block?.items ?? [];
    const later = items.findIndex(({ item }, place) => place >= from && !answered.has(item));
    return later >= 0 ? later : items.findIndex(({ item }) => !answered.has(item));
  }

  /** Put the current clip on stage. @param {number} at */
  #enter(at) {
    this.#fetchAhead();
    this.#show("work");
    return this.#stage.enter(/** @type {Item} */ (this.#item), at);
  }

  /** Fetch this clip, the next ones and, at the block's end, the next block. */
  #fetchAhead() {
    const { block, card, items } = /** @type {Block} */ (this.#block);
    const answered = this.#ledger.answered;
    const wanted = items.filter(
      ({ item }, place) => place === this.#place || (place > this.#place && !answered.has(item)),
    );
    this.#stage.fetchAhead(wanted, card);
    const next = wanted.length < 3 ? this.#ledger.openBlock(block) : undefined;
    if (next && next.block !== block) {
      this.#ahead ??= get(`/api/blocks/${next.block}`).catch(() => null);
    }
  }

  /** Go on from the start, from a block's end or from a pause. @param {number} at */
  async #goOn(at) {
    if (this.#view === "gate" && this.#item) return this.#enter(at);
    const next = this.#ledger.openBlock(this.#block?.block ?? -1);
    return next === undefined ? this.#finish() : this.#open(next.block, at);
  }

  /** @param {number} number @param {number} at */
  async #open(number, at) {
    await this.#load(number);
    return this.#enter(at);
  }

  /** Make a block the current one, at its first open clip. @param {number} number */
  async #load(number) {
    const ahead = await this.#ahead;
    this.#ahead = null;
    this.#block = ahead?.block === number ? ahead : await get(`/api/blocks/${number}`);
    this.#place = Math.max(this.#openPlace(0), 0);
    page.showCard(/** @type {Block} */ (this.#block).card, this.#keys, (action) =>
      this.#attempt(() => this.#playExample(action)),
    );
    this.#fetchAhead();
  }

  /** @param {string} classId */
  #openClass(classId) {
    const own = this.#session.blocks.filter(({ class_id }) => class_id === classId);
    const isOpen = ({ block, n_items }) => this.#ledger.nAnswered(block) < n_items;
    return this.#open((own.find(isOpen) ?? own[0]).block, performance.now());
  }

  async #endBlock() {
    this.#stage.leave();
    this.#hasSummary = false;
    page.showWaiting();
    this.#show("summary");
    const next = this.#ledger.openBlock(this.#block?.block ?? -1);
    if (next) {
      this.#ahead ??= get(`/api/blocks/${next.block}`).catch(() => null);
      this.#ahead.then((block) => {
        if (this.#view === "summary" && block) this.#stage.fetchAhead(block.items, block.card);
      });
    }
    await this.#ledger.flush();
  }

  async #showSummary() {
    this.#hasSummary = true;
    const told = await get(`/api/blocks/${this.#block?.block}/summary`);
    page.showSummary(told, this.#ledger.openBlock(-1) === undefined);
    page.element("curve").replaceChildren(precisionCurve(told.points));
  }

  #finish() {
    this.#stage.leave();
    const text = "Every answer is stored. `earmark relabel` makes the corrected label set of them.";
    page.showGate("All clips are judged. Thank you!", text, null);
    this.#show("gate");
  }

  async #toggleOverview() {
    if (this.#view === "overview") {
      this.#show(this.#behind);
      return this.#behind === "work" ? this.#stage.replay() : undefined;
    }
    this.#behind = this.#view;
    this.#stage.leave();
    this.#show("overview");
    this.#overview.wait();
    await this.#ledger.flush();
    return this.#overview.show(await get("/api/overview"));
  }

  /** @param {View} view */
  #show(view) {
    this.#view = view;
    page.show(view);
    this.#showProgress();
  }

  /** The server has stored an answer, or has not. */
  #stored() {
    this.#showProgress();
    if (this.#view === "summary" && !this.#hasSummary && this.#ledger.nWaiting === 0) {
      this.#attempt(() => this.#showSummary());
    }
  }

  #showProgress() {
    const here = this.#session.blocks.find(({ block }) => block === this.#block?.block);
    page.showProgress(this.#session.blocks, here, this.#ledger);
    page.showLast(this.#ledger.history, (answered) =>
      this.#attempt(() => this.#reopen(answered, performance.now())),
    );
  }

  #draw() {
    requestAnimationFrame(() => this.#draw());
    if (this.#view === "work") this.#stage.draw();
  }
}

try {
  // The address holds the token, which a cookie carries from now on: keep it out of sight.
  history.replaceState(null, "", "/");
  await new Review(await get("/api/session")).start();
} catch (error) {
  page.write("message", `The page cannot start: ${/** @type {Error} */ (error).message}`);
}
