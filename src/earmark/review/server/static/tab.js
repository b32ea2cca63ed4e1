/**
 * One tab at a time: two with the same rater would answer the same clips over each other.
 *
 * A tab that opens asks the others; one that is at work says so, and the newcomer waits until the
 * rater takes over there. BroadcastChannel, because Web Locks are missing on pages that are not
 * served from this machine.
 */

import { uuid } from "./api.js";

const LONGEST_FAREWELL_MILLISECONDS = 1000;

/** @typedef {{ from: string, since: number, says: "asks" | "holds" | "takes" | "gives" }} Word */

export class Tab {
  #id = uuid();
  #since = Date.now();
  #isPaused = false;
  #channel;
  #paused;
  #farewell;
  /** Called when the tab that was at work has let go. */
  #given = () => {};

  /**
   * @param {string} name of what only one tab may do
   * @param {() => void} paused called when another tab is at work
   * @param {() => Promise<unknown>} farewell what to finish before another tab goes on
   */
  constructor(name, paused, farewell) {
    this.#paused = paused;
    this.#farewell = farewell;
    this.#channel = new BroadcastChannel(name);
    this.#channel.addEventListener("message", ({ data }) => this.#hear(data));
    this.#say("asks");
    // A page that the browser had put aside has missed what was said.
    addEventListener("pageshow", ({ persisted }) => persisted && location.reload());
  }

  get isPaused() {
    return this.#isPaused;
  }

  /** Pause the others; resolves once the one at work has stored its answers. */
  async takeOver() {
    const given = new Promise((resolve) => {
      this.#given = () => resolve(undefined);
      // A tab that the browser has put to sleep does not reply.
      setTimeout(resolve, LONGEST_FAREWELL_MILLISECONDS);
    });
    this.#say("takes");
    await given;
  }

  /** @param {Word} word */
  #hear({ from, since, says }) {
    const isOlder = since < this.#since || (since === this.#since && from < this.#id);
    if (says === "gives") this.#given();
    if (this.#isPaused) return;
    if (says === "asks" && !isOlder) this.#say("holds");
    if (says === "takes") this.#farewell().finally(() => this.#say("gives"));
    if (says === "takes" || isOlder) this.#pause();
  }

  #pause() {
    this.#isPaused = true;
    this.#paused();
  }

  /** @param {Word["says"]} says */
  #say(says) {
    this.#channel.postMessage({ from: this.#id, since: this.#since, says });
  }
}
