/** Answers that the server has not stored: kept in localStorage, sent in order, retried. */

import { Refused, ServerTrouble } from "./api.js";

const RETRY_SECONDS = [0.5, 1, 2, 4, 8];
const OUTDATED_TOKEN = 403;
/** The server will never store such an answer as it is: all else is tried again. */
const REFUSALS = [404, 409, 413, 415, 422];

/**
 * What is sent. An entry with ``refused``, the server's reason, is not sent again until somebody asks.
 * @template {{ id: string, retracts: string | null, refused?: string }} T
 */
export class Outbox {
  #key;
  #send;
  #changed;
  #failures = 0;
  /** @type {Promise<void> | null} */
  #flushing = null;
  /** @type {T[] | null} kept here where localStorage is full or switched off */
  #unkept = null;

  /** Why the last attempt failed; empty when the server is well. */
  trouble = "";

  /**
   * @param {string} key where answers wait: one place for each rater and workspace
   * @param {(entry: T) => Promise<unknown>} send
   * @param {() => void} changed called whenever something was sent or failed
   */
  constructor(key, send, changed) {
    this.#key = key;
    this.#send = send;
    this.#changed = changed;
    addEventListener("online", () => this.flush());
  }

  /** @returns {T[]} all that is not stored, oldest first; other tabs may add to it */
  get #entries() {
    try {
      return this.#unkept ?? JSON.parse(localStorage.getItem(this.#key) ?? "[]");
    } catch {
      return [];
    }
  }

  /** @returns {T[]} what is still to be sent */
  get waiting() {
    return this.#entries.filter(({ refused }) => !refused);
  }

  /** @returns {T[]} what the server refused */
  get refused() {
    return this.#entries.filter(({ refused }) => refused);
  }

  /** @returns {string} what to do where the browser keeps nothing */
  get warning() {
    return this.#unkept?.length ? "this browser keeps nothing: do not close the page while answers wait" : "";
  }

  /** @param {T[]} entries */
  #keep(entries) {
    try {
      localStorage.setItem(this.#key, JSON.stringify(entries));
      this.#unkept = null;
    } catch {
      this.#unkept = entries;
    }
  }

  /** Keep an entry and send it. @param {T} entry */
  add(entry) {
    this.#keep([...this.#entries, entry]);
    return this.flush();
  }

  /** Let what was refused wait again. @param {(entry: T) => boolean} isReadmitted */
  readmit(isReadmitted) {
    this.#keep(this.#entries.map((entry) => (isReadmitted(entry) ? { ...entry, refused: undefined } : entry)));
  }

  /** Set aside some of what waits. @param {(entry: T) => boolean} isRefused @param {string} reason */
  refuse(isRefused, reason) {
    this.#keep(this.#entries.map((entry) => (isRefused(entry) ? { ...entry, refused: entry.refused ?? reason } : entry)));
  }

  /** Drop what was refused, all of it or some. @param {(entry: T) => boolean} [isDropped] */
  forgetRefused(isDropped = () => true) {
    this.#keep(this.#entries.filter((entry) => !entry.refused || !isDropped(entry)));
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
        this.#drop(next.id);
      } catch (error) {
        if (!(error instanceof Refused) || !REFUSALS.includes(error.status)) {
          this.#tryLater(error);
          return;
        }
        this.#setAside(next, error.message);
      }
      this.#failures = 0;
      this.trouble = "";
    }
  }

  /** @param {string | null} id */
  #drop(id) {
    this.#keep(this.#entries.filter((entry) => entry.id !== id));
  }

  /** Keep what was refused; an answer that its rater took back goes with that. @param {T} entry @param {string} reason */
  #setAside({ id, retracts }, reason) {
    if (this.refused.some((entry) => entry.id === retracts)) {
      this.#drop(retracts);
      this.#drop(id);
    } else {
      this.#keep(this.#entries.map((entry) => (entry.id === id ? { ...entry, refused: reason } : entry)));
    }
  }

  /** @param {unknown} error */
  #tryLater(error) {
    this.trouble = "the server cannot be reached; trying again";
    if (error instanceof ServerTrouble || error instanceof Refused) this.trouble = `${error.message}; trying again`;
    if (error instanceof Refused && error.status === OUTDATED_TOKEN) {
      this.trouble = "the server was started anew: open the address that it printed";
    }
    const seconds = RETRY_SECONDS[Math.min(this.#failures++, RETRY_SECONDS.length - 1)];
    setTimeout(() => this.flush(), 1000 * seconds);
  }
}
