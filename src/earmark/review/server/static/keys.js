/** Which key does what: defaults, the rater's own choices, and the table in which to make them. */

/** @type {Record<string, { told: string, keys: string[] }>} the first key can be changed */
const ACTIONS = {
  present: { told: "present, next clip", keys: ["f", "ArrowLeft"] },
  unsure: { told: "unsure, next clip", keys: ["h", "ArrowDown"] },
  not_present: { told: "not present, next clip", keys: ["j", "ArrowRight"] },
  undo: { told: "undo, as often as you like", keys: ["z", "Backspace"] },
  replay: { told: "start, replay, next block", keys: [" "] },
  whole: { told: "whole clip", keys: ["g"] },
  earlier: { told: "better peak", keys: ["<", ","] },
  later: { told: "next-best peak", keys: [">", "."] },
  span_start: { told: "the span begins here", keys: ["["] },
  span_end: { told: "the span ends here", keys: ["]"] },
  span_clear: { told: "clear the span", keys: ["\\"] },
  speed: { told: "speed 1, 1.5, 2", keys: ["r"] },
  picture: { told: "hide or show the picture", keys: ["p"] },
  score: { told: "teacher's score", keys: ["s"] },
  about: { told: "the clip's name and its given labels", keys: ["i"] },
  alike: { told: "more clips like this one, for the same class", keys: ["m"] },
  louder: { told: "louder", keys: ["+", "="] },
  quieter: { told: "quieter", keys: ["-", "_"] },
  example1: { told: "first example", keys: ["1"] },
  example2: { told: "second example", keys: ["2"] },
  example3: { told: "third example", keys: ["3"] },
  decoy: { told: "decoy: sounds alike, is not", keys: ["4"] },
  skip: { told: "skip a clip that cannot be played", keys: ["x"] },
  overview: { told: "all classes, and back", keys: ["o"] },
  help: { told: "how to listen, and these keys", keys: ["?"] },
};
const SHARED = ["undo", "replay", "speed", "picture", "about", "louder", "quieter", "skip", "overview", "help"];
/** @type {typeof ACTIONS} where all labels of a clip are judged at once; numbers mark them */
const CLIP_ACTIONS = {
  next: { told: "the rest is not there, next clip", keys: ["Enter"] },
  doubt: { told: "unsure: then the number of a class", keys: ["h"] },
  search: { told: "add a class that is not listed", keys: ["a"] },
  span_start: { told: "the class marked last begins here", keys: ["["] },
  span_end: { told: "it ends here", keys: ["]"] },
  span_clear: { told: "clear its span", keys: ["\\"] },
  earlier: { told: "the span of the class marked above", keys: ["<", ","] },
  later: { told: "the span of the class marked below", keys: [">", "."] },
  ...Object.fromEntries(SHARED.map((action) => [action, ACTIONS[action]])),
};
const STORED_AT = "earmark-keys";
const LABELS = { " ": "Space", ArrowLeft: "←", ArrowRight: "→", ArrowDown: "↓", ArrowUp: "↑", Backspace: "⌫", Enter: "Enter" };

/** @param {string} key @returns {string} what is printed on the key */
const label = (key) => LABELS[/** @type {keyof typeof LABELS} */ (key)] ?? key.toUpperCase();

/** @param {string} key @returns {string} the same name with and without Shift or Caps Lock */
const named = (key) => (key.length === 1 ? key.toLowerCase() : key);

export class Keys {
  /** @type {Record<string, string>} the rater's own first keys */
  #own = {};
  /** @type {"class" | "clip"} */
  mode = "class";

  constructor() {
    try {
      this.#own = JSON.parse(localStorage.getItem(STORED_AT) ?? "{}");
    } catch {
      this.#own = {};
    }
  }

  /** @returns {typeof ACTIONS} what can be done */
  get actions() {
    return this.mode === "clip" ? CLIP_ACTIONS : ACTIONS;
  }

  /** @param {string} action @returns {string[]} its keys, the one to print first; none where it is not done */
  of(action) {
    if (!(action in this.actions)) return [];
    const [first, ...aliases] = this.actions[action].keys;
    const own = this.#own[action] ?? first;
    const taken = new Set(Object.values(this.#own));
    return [own, ...aliases.filter((key) => !taken.has(key))];
  }

  /** @param {string} action @returns {string} */
  label(action) {
    return label(this.of(action)[0] ?? "");
  }

  /** @param {string} key @returns {string | undefined} the action of a pressed key */
  action(key) {
    return Object.keys(this.actions).find((action) => this.of(action).includes(named(key)));
  }

  /** Give an action another key; the action that had it takes the old one. */
  rebind(/** @type {string} */ action, /** @type {string} */ key) {
    const old = this.of(action)[0];
    const other = Object.keys(this.actions).find((name) => this.of(name)[0] === named(key));
    if (other) this.#own[other] = old;
    this.#own[action] = named(key);
    this.#keep();
  }

  reset() {
    this.#own = {};
    this.#keep();
  }

  #keep() {
    try {
      localStorage.setItem(STORED_AT, JSON.stringify(this.#own));
    } catch {
      // A browser that keeps nothing still obeys until the page is closed.
    }
  }
}

/**
 * Tell whether what has the focus wants a key for itself.
 * @param {Element | null} focused
 * @param {string} key
 * @returns {boolean}
 */
export function isTakenBy(focused, key) {
  if (focused?.matches("button, a, summary")) return key === " " || key === "Enter";
  if (focused?.matches("input[type=text]")) return true;
  const isMove = key.startsWith("Arrow") || ["Home", "End", "PageUp", "PageDown"].includes(key);
  return isMove && Boolean(focused?.matches("input"));
}

/**
 * Let the rater see and change the keys in a dialog.
 * @param {Keys} keys
 * @param {() => void} changed
 */
export class KeyTable {
  /** @type {string | null} the action that waits for its new key */
  #waiting = null;
  #keys;
  #changed;
  #dialog = /** @type {HTMLDialogElement} */ (document.getElementById("help"));
  #body = /** @type {HTMLElement} */ (document.getElementById("keys"));

  /** @param {Keys} keys @param {() => void} changed */
  constructor(keys, changed) {
    this.#keys = keys;
    this.#changed = changed;
    this.#dialog.addEventListener("keydown", (event) => this.#take(event));
    this.#dialog.addEventListener("close", () => (this.#waiting = null));
    document.getElementById("help-close")?.addEventListener("click", () => this.#dialog.close());
    document.getElementById("keys-reset")?.addEventListener("click", () => {
      keys.reset();
      this.#redraw();
    });
  }

  get isOpen() {
    return this.#dialog.open;
  }

  open() {
    this.#dialog.showModal();
    this.#redraw();
  }

  /** @param {KeyboardEvent} event */
  #take(event) {
    event.stopPropagation();
    if (this.#waiting === null) {
      if (this.#keys.action(event.key) === "help") this.#dialog.close();
      return;
    }
    event.preventDefault();
    if (["Shift", "Control", "Alt", "Meta", "CapsLock"].includes(event.key)) return;
    if (event.key !== "Escape") this.#keys.rebind(this.#waiting, event.key);
    this.#waiting = null;
    this.#redraw();
  }

  #redraw() {
    this.#body.replaceChildren(...Object.keys(this.#keys.actions).map((action) => this.#row(action)));
    this.#changed();
  }

  /** @param {string} action @returns {HTMLTableRowElement} */
  #row(action) {
    const row = document.createElement("tr");
    const [first, ...aliases] = this.#keys.of(action);
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = this.#waiting === action ? "press a key" : label(first);
    button.setAttribute("aria-label", `Change the key for: ${this.#keys.actions[action].told}`);
    button.addEventListener("click", () => {
      this.#waiting = action;
      this.#redraw();
      [...this.#body.querySelectorAll("button")].find((b) => b.textContent === "press a key")?.focus();
    });
    row.insertCell().append(button);
    row.insertCell().textContent = aliases.map(label).join(" ");
    row.insertCell().textContent = this.#keys.actions[action].told;
    return row;
  }
}
