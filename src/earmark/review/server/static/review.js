/**
 * The listening page: one key judges a clip and goes on to the next.
 *
 * This module says what each key does and what comes next; the others hear, draw, write and store.
 */

import { About } from "./about.js";
import { get, Refused, ServerTrouble } from "./api.js";
import { ClassMode } from "./class_mode.js";
import { ClipMode } from "./clip_mode.js";
import { precisionCurve } from "./drawing.js";
import { isTakenBy, Keys, KeyTable } from "./keys.js";
import { Ledger } from "./ledger.js";
import { Overview } from "./overview.js";
import * as page from "./page.js";
import { itemsOf, Queue } from "./queue.js";
import { Stage } from "./stage.js";
import { Tab } from "./tab.js";
import { endTour, showTour } from "./tour.js";
import { Volume } from "./volume.js";
import { showYield } from "./yield.js";

/** @typedef {import("./ledger.js").Answered} Answered */
/** @typedef {import("./class_mode.js").Answers} Answers */
/** @typedef {import("./ledger.js").Session & { bands: { low_hz: number, high_hz: number } }} Session */

class Review {
  #session;
  /** @type {page.View} */
  #view = "gate";
  /** @type {page.View} where the overview leads back to */
  #behind = "gate";
  #hasSummary = false;
  #hasEnded = false;
  #keys = new Keys();
  #keyTable = new KeyTable(this.#keys, () => page.printKeys(this.#keys));
  #overview;
  #about = new About();
  #ledger;
  #queue;
  #stage;
  #volume;
  #tab;
  #modes;

  /** @param {Session} session */
  constructor(session) {
    this.#session = session;
    document.body.dataset.grows = String(Boolean(session.grows));
    this.#overview = new Overview(Boolean(session.grows), (classId) =>
      this.#attempt(() => this.#openClass(classId)),
    );
    this.#ledger = new Ledger(session, () => this.#stored());
    this.#queue = new Queue(session, this.#ledger);
    this.#stage = new Stage(session.bands, () => {
      page.showGate("Ready when you are", "The browser plays sound after a key press.", "Go on");
      this.#show("gate");
    });
    const judge = (/** @type {Answers} */ answers, /** @type {number} */ at) => this.#judge(answers, at);
    this.#modes = {
      class: new ClassMode(this.#stage, this.#queue, this.#keys, judge),
      clip: new ClipMode(this.#stage, this.#queue, judge),
    };
    this.#volume = new Volume((level) => this.#stage.setVolume(level));
    const name = `earmark-${session.workspace}-${session.rater}`;
    this.#tab = new Tab(name, () => this.#pause(), () => this.#ledger.flush());
  }

  async start() {
    showTour(this.#queue.mode);
    this.#useMode();
    this.#listen();
    this.#ledger.flush();
    const first = await this.#queue.next();
    if (first) await this.#load(first.block);
    if (this.#tab.isPaused) return;
    if (first) {
      page.showWelcome(this.#session, this.#mode.question, this.#ledger);
      this.#show("gate");
    } else {
      this.#finish();
    }
    this.#draw();
    await this.#showYield();
  }

  get #mode() {
    return this.#modes[this.#queue.mode];
  }

  /** Show the keys and controls of the block at hand. */
  #useMode() {
    const { mode } = this.#queue;
    this.#keys.mode = mode;
    document.body.dataset.mode = mode;
    page.printKeys(this.#keys);
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
    if (isTakenBy(document.activeElement, event.key)) return;
    if (this.#view === "work" && this.#mode.press(event)) return event.preventDefault();
    const action = this.#keys.action(event.key);
    if (!action || (this.#view === "overview" && action !== "overview" && action !== "help")) return;
    event.preventDefault();
    if (!event.repeat || action === "louder" || action === "quieter") {
      this.#attempt(() => this.#act(action, event.timeStamp));
    }
  }

  /** Do something that may need the server; say so if it cannot be done. */
  async #attempt(/** @type {() => unknown} */ act) {
    try {
      await act();
    } catch (error) {
      const { message } = /** @type {Error} */ (error);
      const isTold = error instanceof Refused || error instanceof ServerTrouble;
      page.write("message", isTold ? message : `${message}: is the server still running?`);
    }
  }

  /**
   * @param {string} action
   * @param {number} at when the key went down
   * @returns {unknown}
   */
  #act(action, at) {
    page.write("message", "");
    if (this.#tab.isPaused) return action === "replay" ? this.#takeOver() : undefined;
    if (action === "louder" || action === "quieter") return this.#volume.turn(action === "louder" ? 1 : -1);
    if (action === "overview") return this.#toggleOverview();
    if (action === "all_classes") return this.#limit([]);
    if (action === "help") return this.#keyTable.open();
    if (action.startsWith("refused_")) return this.#treatRefused(action);
    if (action === "undo") return this.#undo(at);
    if (action === "replay" && this.#view !== "work") return this.#goOn(at);
    return this.#view === "work" ? this.#actOnClip(action, at) : undefined;
  }

  /** Do something with answers that the server refused. @param {string} action @returns {unknown} */
  #treatRefused(action) {
    const { refused } = this.#ledger;
    if (action === "refused_retry") return this.#ledger.retryRefused();
    if (action === "refused_download") return page.download(refused);
    if (confirm(`Forget ${refused.length} of your answers? They are stored nowhere else.`)) this.#ledger.forgetRefused();
    return this.#showProgress();
  }

  /** @param {string} action @param {number} at @returns {unknown} */
  #actOnClip(action, at) {
    const { clip } = this.#queue;
    if (!clip) return undefined;
    switch (action) {
      case "skip":
        return this.#stage.hasFailed ? this.#judge(itemsOf(clip).map(unplayed), at) : undefined;
      case "replay":
        return this.#stage.replay();
      case "whole":
        return this.#stage.playWhole();
      case "speed":
        return this.#stage.changeSpeed();
      case "picture":
        return this.#stage.togglePicture();
      case "about":
        return this.#about.toggle(itemsOf(clip)[0]);
      case "alike":
        return this.#openAlike(itemsOf(clip)[0], at);
      default:
        return this.#mode.act(action, at);
    }
  }

  /**
   * Judge the clip on stage and go on; refused until enough of it was really heard.
   * @param {Answers} answers
   * @param {number} at
   */
  #judge(answers, at) {
    if (this.#stage.lock) return page.write("message", this.#stage.lock);
    const { number } = this.#queue;
    for (const answer of answers) this.#ledger.answer(number, { ...this.#stage.evidence, ...answer });
    page.tellAnswers(answers.map(({ answer }) => answer), this.#queue);
    return this.#queue.advance() ? this.#enter(at) : this.#endBlock();
  }

  /** Take the last clip's answers back, and hear it again. @param {number} at */
  async #undo(at) {
    const last = this.#ledger.history.at(-1);
    if (!last) return page.write("message", "There is nothing to undo.");
    this.#ledger.retract(last);
    await this.#queue.reopen(last);
    const others = this.#answersOf(this.#queue.clip);
    for (const other of others) this.#ledger.retract(other);
    this.#enterAgain(at, [...others, last]);
    return page.write("message", "Undone: judge this clip again.");
  }

  /**
   * Hear a clip again; an answer to it stands until there is another.
   * @param {Answered} answered
   * @param {number} at
   */
  async #reopen(answered, at) {
    await this.#queue.reopen(answered);
    this.#enterAgain(at, this.#answersOf(this.#queue.clip));
  }

  /** @param {import("./queue.js").Clip | undefined} clip @returns {Answered[]} */
  #answersOf(clip) {
    const items = clip ? itemsOf(clip) : [];
    return this.#ledger.history.filter(({ item }) => items.includes(item));
  }

  /** @param {number} at @param {Answered[]} before what was said of the clip */
  #enterAgain(at, before) {
    if (!this.#queue.clip) return;
    this.#useMode();
    this.#stage.forget(this.#queue.clip);
    this.#enter(at, before);
  }

  /** Put the current clip on stage. @param {number} at @param {Answered[]} [before] */
  #enter(at, before = []) {
    const { clip } = this.#queue;
    if (!clip || this.#tab.isPaused) return undefined;
    endTour();
    this.#hasEnded = false;
    this.#about.hide();
    this.#stage.recall(before);
    this.#mode.enter(before);
    this.#fetchAhead();
    this.#show("work");
    return this.#stage.enter(clip, at);
  }

  /** Fetch this clip, the next ones and, at the block's end, the next block. */
  #fetchAhead() {
    this.#stage.fetchAhead(this.#queue.upcoming, this.#queue.upcomingCards);
    this.#queue.lookAhead();
  }

  /** Go on from the start, from a block's end or from a pause. @param {number} at */
  async #goOn(at) {
    if (this.#view === "gate" && this.#queue.clip) return this.#enter(at);
    // A queue that grows knows that a block is finished when all of its answers have arrived.
    if (this.#session.grows && !(await this.#ledger.flush())) throw new Error("Answers wait to be stored");
    const next = await this.#queue.next();
    if (!next) return this.#finish();
    await this.#load(next.block);
    return this.#enter(at);
  }

  /** Make a block the current one, at its first open clip. @param {number} number */
  async #load(number) {
    await this.#queue.load(number);
    this.#useMode();
    this.#mode.enter([]);
    this.#fetchAhead();
  }

  /**
   * Hear clips like this one next; the block that is left comes again after them.
   * @param {string} item
   * @param {number} at
   */
  async #openAlike(item, at) {
    if (!this.#session.grows) return page.write("message", "More like this comes with a queue that learns (--aim find).");
    const next = await this.#queue.alike(item);
    if (!next) return page.write("message", "There are no further clips like this one.");
    await this.#load(next.block);
    await this.#enter(at);
    return page.write("message", `${next.n_items} clips like the last one, for the same class.`);
  }

  /** @param {string} classId */
  async #openClass(classId) {
    if (this.#session.grows) return this.#limit([classId]);
    const own = this.#session.blocks.filter(({ class_id }) => class_id === classId);
    const chosen = own.find(({ block, n_items }) => this.#ledger.nAnswered(block) < n_items) ?? own[0];
    if (!chosen) return page.write("message", "This class comes among others: go on with your block.");
    await this.#load(chosen.block);
    return this.#enter(performance.now());
  }

  /** Be asked about some classes alone, about all without any. @param {string[]} classIds */
  async #limit(classIds) {
    const next = await this.#queue.limit(classIds);
    if (!next) return page.write("message", "Nothing is left to ask about this class.");
    await this.#load(next.block);
    return this.#enter(performance.now());
  }

  async #endBlock() {
    this.#stage.leave();
    this.#hasSummary = false;
    page.showWaiting();
    this.#show("summary");
    await this.#ledger.flush();
    const block = await this.#queue.lookAhead();
    if (this.#view === "summary" && block) this.#stage.fetchAhead(block.items, block.cards.slice(0, 1));
  }

  async #showSummary() {
    this.#hasSummary = true;
    const told = await get(`/api/blocks/${this.#queue.number}/summary`);
    const grows = Boolean(this.#session.grows);
    const name = this.#queue.mode === "clip" ? `${this.#queue.clips.length} clips` : told.name;
    page.showSummary(told, !grows && this.#ledger.openBlock(-1) === undefined, name, grows);
    page.element("curve").replaceChildren(precisionCurve(told.points));
    await this.#showYield();
  }

  /** Say what listening has found, where the server keeps count. */
  async #showYield() {
    if (this.#session.grows) await showYield();
  }

  #finish() {
    this.#stage.leave();
    endTour();
    this.#hasEnded = true;
    this.#showEnd();
    this.#show("gate");
  }

  #showEnd() {
    const isStored = this.#ledger.nWaiting + this.#ledger.refused.length === 0;
    const text = isStored
      ? "Every answer is stored. `earmark relabel` makes the corrected label set of them."
      : "Not every answer is stored yet: leave this page open until the line at its end says so.";
    page.showGate("All clips are judged. Thank you!", text, null);
  }

  /** Another tab is at work. */
  #pause() {
    this.#stage.leave();
    this.#show("elsewhere");
  }

  /** Go on here with what the other tab has stored. */
  async #takeOver() {
    await this.#tab.takeOver();
    location.reload();
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
    await this.#showOverview();
    return this.#showYield();
  }

  /** Show the table of classes. */
  async #showOverview() {
    this.#overview.show(await get("/api/overview"));
  }

  /** @param {page.View} view */
  #show(view) {
    this.#view = view;
    page.show(view);
    this.#showProgress();
  }

  /** The server has stored an answer, or has not. */
  #stored() {
    this.#showProgress();
    if (this.#hasEnded) this.#showEnd();
    if (this.#view === "summary" && !this.#hasSummary && this.#ledger.nWaiting === 0) {
      this.#attempt(() => this.#showSummary());
    }
  }

  #showProgress() {
    page.showProgress(this.#session, this.#queue, this.#ledger);
    page.showLast(this.#mode.last(this.#ledger.history), (answered) =>
      this.#attempt(() => this.#reopen(answered, performance.now())),
    );
  }

  #draw() {
    requestAnimationFrame(() => this.#draw());
    if (this.#view !== "work") return;
    this.#stage.draw();
    this.#mode.draw();
  }
}

/** @param {string} item @returns {{ item: string, answer: string }} */
const unplayed = (item) => ({ item, answer: "cannot_play" });

try {
  // The address holds the token, which a cookie carries from now on: keep it out of sight.
  history.replaceState(null, "", "/");
  await new Review(await get("/api/session")).start();
} catch (error) {
  page.write("message", `The page cannot start: ${/** @type {Error} */ (error).message}`);
}
