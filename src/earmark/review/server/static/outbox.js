/** Answers that the server has not confirmed: kept in localStorage, sent in order, retried. */

import { Refused } from "./api.js";

const RETRY_SECONDS = [0.5, 1, 2, 4, 8];
const OUTDATED_TOKEN = 403;

/** @template {{ id: string }} T what is sent */
export class Outbox {
  #key;
  #send;
  #changed;
  #failures = 0;
  /** @type {Promise<void> | null} */
  #flushing = null;
  /** @type {T[]} kept here where localStorage is switched off */
  #unkept = [];

  /** Why the last attempt failed; empty when the server is well. */
  trouble = "";

  /**
   * @param {string} key where answers wait: one place for each rater and queue
   * @param {(entry: T) => Promise<unknown>} send
   * @param {() => void} changed called whenever something was sent or failed
   */
  constructor(key, send, changed) {
    this.#key = key;
    this.#send = send;
    this.#changed = changed;
    addEventListener("online", () => this.flush());
  }

  /** @returns {T[]} what waits, oldest first; other tabs may add to it */
  get waiting() {
    try {
      return JSON.parse(localStorage.getItem(this.#key) ?? "[]");
    } catch {
      return this.#unkept;
    }
  }

  /** @param {T[]} entries */
  #keep(entries) {
    this.#unkept = entries;
    try {
      localStorage.setItem(this.#key, JSON.stringify(entries));
    } catch {
      this.trouble = "this browser keeps nothing: do not close the page while answers wait";
    }
  }

  /** Keep an entry and send it. @param {T} entry */
  add(entry) {
    this.#keep([...this.waiting, entry]);
    return this.flush();
  }

  /** Send all that waits; one sender at a time, so that answers arrive in order. */
  flush() {
    this.#flushing ??= this.#sendAll().finally(() => {
      this.#flushing = null;
      this.#changed();
    });
    return this.#flushing;
  }

  async #sendAll() {
    for (let next; (next = this.waiting[0]); this.#changed()) {
      try {
        await this.#send(next);
        this.#failures = 0;
        this.trouble = "";
      } catch (error) {
        if (!(error instanceof Refused) || error.status === OUTDATED_TOKEN) {
          this.#tryLater(error);
          return;
        }
        this.trouble = `an answer was refused: ${error.message}`;
      }
      const { id } = next;
      this.#keep(this.waiting.filter((entry) => entry.id !== id));
    }
  }

  /** @param {unknown} error */
  #tryLater(error) {
    this.trouble =
      error instanceof Refused
        ? "the server was started anew: open the address that it printed"
        : "the server cannot be reached; trying again";
    const seconds = RETRY_SECONDS[Math.min(this.#failures++, RETRY_SECONDS.length - 1)];
    setTimeout(() => this.flush(), 1000 * seconds);
  }
}
