/** The field in which a class is searched for by name. */

import { get } from "./api.js";
import { element, write } from "./page.js";

/** @typedef {{ class_id: string, name: string, path: string[] }} Found */

export class Search {
  /** @type {Found[]} */
  #found = [];
  #place = 0;
  #choose;
  #panel = element("search");
  #input = /** @type {HTMLInputElement} */ (element("search-text"));
  #list = element("search-found");

  /** @param {(found: Found) => Promise<void>} choose */
  constructor(choose) {
    this.#choose = choose;
    this.#input.addEventListener("input", () => this.#ask());
    this.#input.addEventListener("keydown", (event) => this.#pressed(event));
  }

  open() {
    this.#panel.hidden = false;
    this.#input.value = "";
    this.#show([]);
    this.#input.focus();
  }

  close() {
    this.#panel.hidden = true;
    this.#input.blur();
  }

  async #ask() {
    const asked = this.#input.value.trim();
    const { classes } = asked ? await this.#get(asked) : { classes: [] };
    // Answers may come in another order than questions.
    if (asked === this.#input.value.trim()) this.#show(classes);
  }

  /** @param {string} asked @returns {Promise<{ classes: Found[] }>} */
  async #get(asked) {
    try {
      return await get(`/api/classes?q=${encodeURIComponent(asked)}`);
    } catch (error) {
      write("message", `${/** @type {Error} */ (error).message}: is the server still running?`);
      return { classes: [] };
    }
  }

  /** @param {KeyboardEvent} event */
  #pressed(event) {
    event.stopPropagation();
    const steps = /** @type {Record<string, number>} */ ({ ArrowDown: 1, ArrowUp: -1 });
    if (event.key in steps) {
      event.preventDefault();
      this.#go(this.#place + steps[event.key]);
    } else if (event.key === "Enter") {
      event.preventDefault();
      this.#take(this.#found[this.#place]);
    } else if (event.key === "Escape") {
      this.close();
    }
  }

  /** @param {Found | undefined} found */
  async #take(found) {
    if (!found) return;
    this.close();
    try {
      await this.#choose(found);
    } catch (error) {
      write("message", /** @type {Error} */ (error).message);
    }
  }

  /** @param {Found[]} found */
  #show(found) {
    this.#found = found;
    this.#list.replaceChildren(...found.map((one, place) => this.#option(one, place)));
    this.#input.setAttribute("aria-expanded", String(found.length > 0));
    this.#go(0);
  }

  /** @param {Found} found @param {number} place */
  #option(found, place) {
    const option = document.createElement("li");
    option.id = `found-${place}`;
    option.setAttribute("role", "option");
    option.append(found.name, Object.assign(document.createElement("small"), { textContent: found.path.slice(0, -1).join(" › ") }));
    option.addEventListener("pointerdown", (event) => event.preventDefault()); // the field keeps the focus
    option.addEventListener("click", () => this.#take(found));
    return option;
  }

  /** @param {number} place */
  #go(place) {
    this.#place = Math.min(Math.max(place, 0), Math.max(this.#found.length - 1, 0));
    [...this.#list.children].forEach((option, at) => {
      option.setAttribute("aria-selected", String(at === this.#place));
      if (at === this.#place) option.scrollIntoView({ block: "nearest" });
    });
    this.#input.setAttribute("aria-activedescendant", this.#found.length ? `found-${this.#place}` : "");
  }
}
