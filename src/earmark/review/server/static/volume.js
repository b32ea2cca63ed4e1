/** How loud sounds are: one level for all of them, remembered by the browser. */

const STORED_AT = "earmark-volume";
const STEP_PERCENT = 10;

export class Volume {
  #percent = 100;
  #slider = /** @type {HTMLInputElement} */ (document.getElementById("volume"));
  #changed;

  /** @param {(level: number) => void} changed called with a level from 0 to 1 */
  constructor(changed) {
    this.#changed = changed;
    try {
      this.#percent = Number(localStorage.getItem(STORED_AT) ?? 100);
    } catch {
      // A browser that keeps nothing plays at full volume.
    }
    this.#slider.addEventListener("input", () => this.#set(Number(this.#slider.value)));
    this.#set(this.#percent);
  }

  /** Turn it up or down by a step. @param {-1 | 1} sign */
  turn(sign) {
    this.#set(this.#percent + sign * STEP_PERCENT);
  }

  /** @param {number} percent */
  #set(percent) {
    this.#percent = Math.min(Math.max(Math.round(percent) || 0, 0), 100);
    this.#slider.value = String(this.#percent);
    this.#slider.setAttribute("aria-valuetext", `${this.#percent} %`);
    this.#changed(this.#percent / 100);
    try {
      localStorage.setItem(STORED_AT, String(this.#percent));
    } catch {
      // It still holds until the page is closed.
    }
  }
}
