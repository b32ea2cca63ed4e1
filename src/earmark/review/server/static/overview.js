/** The table of all classes: sortable, and the way into each of them. */

/**
 * @typedef {object} ClassRow
 * @property {string} class_id
 * @property {string} name
 * @property {number} n_flags
 * @property {number} n_items
 * @property {number} n_answered
 * @property {number} n_judged judged flags of finished blocks
 * @property {number | null} low precision with unsure as no
 * @property {number | null} high precision with unsure as yes
 * @property {number | null} interval_low
 * @property {number | null} interval_high
 * @property {number | null} [n_missing] of a queue that grows: the class's part of the total
 * @property {number} [n_present] of a queue that grows, as are the next two
 * @property {number} [n_next] labels that would come next, at most 100
 * @property {number} [n_next_found] those of them that would be there
 */

const round = (/** @type {number} */ count) => Math.round(count).toLocaleString("en-GB");

/** @param {number | null} low @param {number | null} high @returns {string} one number or two */
export function bounds(low, high) {
  if (low === null || high === null) return "–";
  const [from, to] = [low.toFixed(2), high.toFixed(2)];
  return from === to ? from : `${from}–${to}`;
}

/** @typedef {{ name: string, value: (row: ClassRow) => number | string, told: (row: ClassRow) => string }} Column */

const GROWING_NOTE =
  "Your own answers. Open a class to be asked about it alone, until you say otherwise. “Of the next 100”: how many of the class's likeliest labels without an answer are expected to be present. “Estimated missing”: the class's part of the total, known from 20 random answers on.";

/** @type {Column} */
const NAME = { name: "Class", value: (row) => row.name.toLowerCase(), told: (row) => row.name };

/** @type {Column} */
const MISSING = {
  name: "Estimated missing",
  value: (row) => row.n_missing ?? -1,
  told: (row) => (row.n_missing == null ? "–" : `≈ ${round(row.n_missing)}`),
};

/** @type {Column[]} of a queue that grows, where nobody knows how many there will be */
const GROWING_COLUMNS = [
  NAME,
  { name: "Judged", value: (row) => row.n_answered, told: (row) => round(row.n_answered) },
  { name: "Present", value: (row) => row.n_present ?? 0, told: (row) => round(row.n_present ?? 0) },
  {
    name: "Of the next 100",
    value: (row) => row.n_next_found ?? 0,
    told: (row) => {
      const [found, asked] = [row.n_next_found ?? 0, row.n_next ?? 0];
      return `${asked ? "≈ " : ""}${round(found)}${asked < 100 ? ` of ${asked}` : ""}`;
    },
  },
  MISSING,
];

/** @type {Column[]} */
const COLUMNS = [
  NAME,
  { name: "Flags", value: (row) => row.n_flags, told: (row) => round(row.n_flags) },
  {
    name: "Judged",
    value: (row) => row.n_answered / row.n_items,
    told: (row) => `${row.n_answered === row.n_items ? "✓ " : ""}${row.n_answered}/${row.n_items}`,
  },
  {
    name: "Precision",
    value: (row) => (row.low === null || row.high === null ? -1 : (row.low + row.high) / 2),
    told: (row) =>
      row.low === null
        ? "–"
        : `${bounds(row.low, row.high)} [${row.interval_low?.toFixed(2)}, ${row.interval_high?.toFixed(2)}]`,
  },
];

export class Overview {
  /** @type {ClassRow[]} */
  #rows = [];
  #column = 0;
  #isRising = true;
  #open;
  #columns;
  #told = /** @type {HTMLElement} */ (document.getElementById("overview-flags"));
  #head = /** @type {HTMLTableRowElement} */ (document.querySelector("#classes thead tr"));
  #body = /** @type {HTMLElement} */ (document.querySelector("#classes tbody"));

  /**
   * @param {boolean} grows whether the queue does, which then chooses the classes by itself
   * @param {(class_id: string) => void} open called with the class that was chosen
   */
  constructor(grows, open) {
    this.#open = open;
    if (grows) /** @type {HTMLElement} */ (document.getElementById("overview-note")).textContent = GROWING_NOTE;
    this.#columns = grows ? GROWING_COLUMNS : COLUMNS;
    // What promises most stands on top, where there is something to choose.
    [this.#column, this.#isRising] = grows ? [3, false] : [0, true];
    this.#head.replaceChildren(...this.#columns.map((column, place) => this.#heading(column.name, place)));
  }

  /** Say that the numbers are on their way: counting takes seconds in a large dataset. */
  wait() {
    if (!this.#rows.length) this.#told.textContent = "Counting …";
  }

  /** @param {{ flags?: string, is_sample?: boolean, only?: string, classes: ClassRow[] }} told */
  show({ flags, is_sample, only, classes }) {
    const told = is_sample ? `Flags: ${flags}.` : `Of ${flags}; no estimate for all flags.`;
    this.#told.textContent = flags ? told : "";
    const limit = /** @type {HTMLElement} */ (document.getElementById("overview-only"));
    limit.hidden = !only;
    if (only) /** @type {HTMLElement} */ (limit.firstElementChild).textContent = `You are asked about ${only} alone.`;
    this.#rows = classes;
    this.#redraw();
  }

  /** @param {string} name @param {number} place @returns {HTMLTableCellElement} */
  #heading(name, place) {
    const cell = document.createElement("th");
    const button = document.createElement("button");
    cell.scope = "col";
    button.type = "button";
    button.textContent = name;
    button.addEventListener("click", () => {
      this.#isRising = this.#column === place ? !this.#isRising : place === 0;
      this.#column = place;
      this.#redraw();
    });
    cell.append(button);
    return cell;
  }

  #redraw() {
    const { value } = this.#columns[this.#column];
    const sign = this.#isRising ? 1 : -1;
    const sorted = this.#rows.toSorted((a, b) => {
      const [one, other] = [value(a), value(b)];
      return sign * (one < other ? -1 : Number(one > other));
    });
    [...this.#head.cells].forEach((cell, place) => {
      const order = this.#isRising ? "ascending" : "descending";
      cell.ariaSort = place === this.#column ? order : "none";
    });
    this.#body.replaceChildren(...sorted.map((row) => this.#row(row)));
  }

  /** @param {ClassRow} row @returns {HTMLTableRowElement} */
  #row(row) {
    const line = document.createElement("tr");
    const name = document.createElement("th");
    const button = document.createElement("button");
    name.scope = "row";
    button.type = "button";
    button.textContent = row.name;
    button.addEventListener("click", () => this.#open(row.class_id));
    name.append(button);
    line.append(name);
    for (const { told } of this.#columns.slice(1)) {
      // The interval has a line of its own where the page is narrow.
      const [value, interval] = told(row).split(/(?= \[)/);
      line.insertCell().append(value, ...(interval ? [inSpan(interval)] : []));
    }
    return line;
  }
}

/** @param {string} text @returns {HTMLSpanElement} */
const inSpan = (text) => Object.assign(document.createElement("span"), { textContent: text });
