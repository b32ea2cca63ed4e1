/** The clip's name and the labels that it was given, for those who ask. */

import { get } from "./api.js";

export class About {
  /** @type {string | null} the item that is told of */
  #item = null;
  #place = /** @type {HTMLElement} */ (document.getElementById("about"));
  #button = document.querySelector("[data-action=about]");

  /** Show or hide it. @param {string} item */
  async toggle(item) {
    if (!this.#place.hidden) return this.hide();
    this.#item = item;
    const { clip_id, labels } = await get(`/api/items/${item}/clip`);
    if (this.#item !== item) return undefined;
    const given = labels.length ? labels.join(", ") : "none";
    this.#place.textContent = `Clip ${clip_id} · given labels: ${given}`;
    return this.#show(true);
  }

  hide() {
    this.#item = null;
    this.#show(false);
  }

  /** @param {boolean} isShown */
  #show(isShown) {
    this.#place.hidden = !isShown;
    this.#button?.setAttribute("aria-expanded", String(isShown));
  }
}
