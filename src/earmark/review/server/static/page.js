/** Write into the page: everything that is text, and which part of it is seen. */

import { bounds } from "./overview.js";

/** @type {Record<string, { letter: string, spoken: string }>} */
export const ANSWERS = {
  present: { letter: "P", spoken: "present" },
  not_present: { letter: "N", spoken: "not present" },
  unsure: { letter: "U", spoken: "unsure" },
  cannot_play: { letter: "–", spoken: "cannot play" },
};
const N_LAST = 12;

/** @typedef {import("./ledger.js").Ledger} Ledger */
/** @typedef {import("./queue.js").Queue} Queue */

/** @param {string} id @returns {HTMLElement} */
export const element = (id) => /** @type {HTMLElement} */ (document.getElementById(id));

/** @param {string} id @param {string} text */
export const write = (id, text) => {
  element(id).textContent = text;
};

/** Write what is asked to be written at every frame. @param {string} id @param {string} text */
export const renew = (id, text) => {
  if (element(id).textContent !== text) write(id, text);
};

/** @typedef {"gate" | "work" | "summary" | "overview" | "elsewhere"} View */

/** @type {View[]} */
const VIEWS = ["gate", "work", "summary", "overview", "elsewhere"];

/** Show one part of the page. @param {View} view */
export function show(view) {
  document.body.dataset.view = view;
  for (const name of VIEWS) element(name).hidden = name !== view;
}

/** Print its key on every button. @param {import("./keys.js").Keys} keys */
export function printKeys(keys) {
  for (const button of document.querySelectorAll("[data-action]")) {
    const { action } = /** @type {HTMLElement} */ (button).dataset;
    const key = button.querySelector("kbd");
    if (key && action) key.textContent = keys.label(action);
  }
  for (const key of document.querySelectorAll("kbd[data-key]")) {
    key.textContent = keys.label(/** @type {HTMLElement} */ (key).dataset.key ?? "");
  }
}

/**
 * @typedef {object} ClassCard
 * @property {string} class_id
 * @property {string} name
 * @property {string[]} path from the root of the ontology down to the class
 * @property {string} definition
 * @property {string[]} confused names of its siblings
 * @property {{ id: string, peak: import("./player.js").Span | null }[]} examples
 * @property {{ id: string, peak: import("./player.js").Span | null } | null} decoy
 */

/**
 * @param {ClassCard} card
 * @param {import("./keys.js").Keys} keys
 * @param {(action: string) => void} play
 */
export function showCard(card, keys, play) {
  document.title = `${card.name} · earmark review`;
  write("class-name", card.name);
  write("path", card.path.length > 1 ? card.path.join(" › ") : "");
  write("confused", card.confused.length ? `often confused: ${card.confused.join(" · ")}` : "");
  write("definition", card.definition);
  const buttons = card.examples.map((_, i) => ["example" + (i + 1), "Example"]);
  if (card.decoy) buttons.push(["decoy", "Decoy: sounds alike, is not"]);
  element("examples").replaceChildren(
    ...buttons.map(([action, text]) => {
      const button = document.createElement("button");
      const key = document.createElement("kbd");
      button.type = "button";
      button.dataset.example = action;
      key.textContent = keys.label(action);
      button.append(`▸ ${text} `, key);
      button.addEventListener("click", () => play(action));
      return button;
    }),
  );
}

/** Say that another class is asked for, so that nobody answers for the last one. @param {string} name */
export function announceClass(name) {
  const heading = element("class-name");
  heading.classList.remove("is-new");
  void heading.offsetWidth; // lets the animation begin anew
  heading.classList.add("is-new");
  write("spoken", `Now: ${name}`);
}

/** @param {number} seconds @returns {string} such as 2 h 26 min */
export function duration(seconds) {
  if (seconds < 60) return `${Math.ceil(seconds)} s`;
  const minutes = Math.round(seconds / 60);
  return minutes < 60 ? `${minutes} min` : `${Math.floor(minutes / 60)} h ${minutes % 60} min`;
}

/** Confirm answers to those who do not see the page. @param {string[]} answers @param {Queue} queue */
export function tellAnswers(answers, queue) {
  const nPresent = answers.filter((answer) => answer === "present").length;
  const said = answers.length === 1 ? ANSWERS[answers[0]].spoken : `${nPresent} of ${answers.length} present`;
  write("spoken", `${said}, ${nDone(queue)} of ${queue.clips.length}`);
  element("class-name").classList.remove("is-new");
}

/** @param {Queue} queue @returns {number} clips of the block at hand that are answered */
const nDone = (queue) => queue.clips.filter((clip) => queue.isDone(clip)).length;

/**
 * Say where the rater is, how fast, how long still, and whether all is stored.
 * @param {import("./ledger.js").Session} session
 * @param {Queue} queue
 * @param {Ledger} ledger
 */
export function showProgress(session, queue, ledger) {
  const parts = session.grows ? growingParts(session, queue, ledger) : plannedParts(session, queue, ledger);
  element("progress").replaceChildren(
    ...parts.map((part) => Object.assign(document.createElement("span"), { textContent: part })),
  );
  const waiting = ledger.nWaiting ? [`${ledger.nWaiting} waiting`] : [];
  const trouble = ledger.trouble ? [ledger.trouble] : [];
  const nUnplayed = ledger.history.filter(({ answer }) => answer === "cannot_play").length;
  const unplayed = nUnplayed ? [`${nUnplayed} could not be played`] : [];
  const stored = `saved ${ledger.nStored}`;
  write("saved", [stored, ...unplayed, ...waiting, ...trouble].join(" · "));
  element("saved").classList.toggle("trouble", trouble.length > 0);
  showRefused(ledger.refused);
}

/** Say which answers the server refused, and why. @param {Ledger["refused"]} refused */
function showRefused(refused) {
  element("refused").hidden = refused.length === 0;
  const reasons = [...new Set(refused.map((entry) => entry.refused))];
  renew("refused-told", `${refused.length} not stored, kept in this browser: ${reasons.join("; ")}.`);
}

/** Save answers as a file. @param {Ledger["refused"]} answers */
export function download(answers) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([JSON.stringify(answers, null, 1)], { type: "application/json" }));
  link.download = "earmark-answers.json";
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 60_000);
}

/** @param {import("./ledger.js").Session} session @param {Queue} queue @param {Ledger} ledger */
function plannedParts({ blocks }, queue, ledger) {
  const nAnswered = ledger.history.length;
  const parts = [`all ${nAnswered}/${ledger.nItems}`];
  const here = blocks.find(({ block }) => block === queue.number);
  if (here) {
    const classes = [...new Set(blocks.map(({ class_id }) => class_id))];
    parts.unshift(
      `class ${classes.indexOf(here.class_id) + 1}/${classes.length}`,
      `here ${nDone(queue)}/${queue.clips.length}`,
    );
  }
  const pace = ledger.paceSeconds;
  if (pace) parts.push(`${pace.toFixed(1)} s/clip`, `${duration(pace * (ledger.nItems - nAnswered))} left`);
  return parts;
}

/** @param {import("./ledger.js").Session} session @param {Queue} queue @param {Ledger} ledger */
function growingParts({ blocks, only }, queue, ledger) {
  // What was found is the server's to say: some clips are controls, and nobody is told which.
  const nPresent = ledger.history.filter(({ answer }) => answer === "present").length;
  const parts = [`${ledger.history.length} answered`, `${nPresent} present`];
  const place = blocks.findIndex(({ block }) => block === queue.number);
  if (place >= 0) parts.unshift(`block ${place + 1}`, `here ${nDone(queue)}/${queue.clips.length}`);
  if (ledger.paceSeconds) parts.push(`${ledger.paceSeconds.toFixed(1)} s/clip`);
  if (only) parts.push(`only ${only}`);
  return parts;
}

/** @param {string} title @param {string} text @param {string | null} button */
export function showGate(title, text, button) {
  write("gate-title", title);
  write("gate-text", text);
  const start = /** @type {HTMLElement} */ (element("gate").querySelector("button"));
  start.hidden = button === null;
  if (button) /** @type {HTMLElement} */ (start.querySelector("span")).textContent = button;
}

/**
 * @param {import("./ledger.js").Session} session
 * @param {string} question
 * @param {Ledger} ledger
 */
export function showWelcome(session, question, ledger) {
  const nAnswered = ledger.history.length;
  const left = nAnswered ? `${ledger.nItems - nAnswered} of ${ledger.nItems} clips are left` : `${ledger.nItems} clips`;
  const before = session.grows ? `${nAnswered} answers so far.` : `${left} to judge.`;
  const whose = `Answers are kept under the name ${session.rater}`;
  const other = nAnswered ? "." : "; `earmark review` takes another with --raters NAME.";
  const text = `${session.grows && !nAnswered ? "Welcome." : before} ${whose}${other}`;
  showGate(question, text, nAnswered ? "Go on" : "Start");
}

/** @typedef {import("./ledger.js").Answered} Answered */

/** @typedef {{ answered: Answered, letter: string, spoken: string }} Last what is told of an answer */

/** @param {Last[]} last @param {(answered: Answered) => void} reopen */
export function showLast(last, reopen) {
  const buttons = last.slice(-N_LAST).map(({ answered, letter, spoken }) => {
    const button = document.createElement("button");
    button.type = "button";
    button.className = letter.length > 1 ? "" : answered.answer;
    button.textContent = letter;
    button.title = `${spoken}: hear it again`;
    button.setAttribute("aria-label", button.title);
    button.addEventListener("click", () => reopen(answered));
    return button;
  });
  element("last").replaceChildren(...(buttons.length ? ["last: ", ...buttons] : []));
}

/**
 * @typedef {object} Summary
 * @property {string} name
 * @property {Record<string, number>} answers of all the block's items
 * @property {string} flags which labels are summed up, in words
 * @property {boolean} is_sample whether what was heard speaks for all of them
 * @property {number} n_judged flags judged
 * @property {number | null} low
 * @property {number | null} high
 * @property {number | null} interval_low
 * @property {number | null} interval_high
 * @property {{ passed: number, total: number, is_failed: boolean }} gold
 * @property {import("./drawing.js").Point[]} points
 */

/** Say that the block is over while its summary is fetched. */
export function showWaiting() {
  write("summary-title", "Block finished");
  write("summary-told", "The summary comes when all answers are stored.");
  write("summary-gold", "");
  for (const place of document.querySelectorAll("#summary :is(#curve-figure, .yield)")) {
    /** @type {HTMLElement} */ (place).hidden = true;
  }
  element("curve").replaceChildren();
}

/**
 * @param {Summary} told
 * @param {boolean} isLast
 * @param {string} name of the block
 * @param {boolean} grows whether it is of a queue that grows, whose flags are summed up elsewhere
 */
export function showSummary(told, isLast, name, grows) {
  const { answers, gold } = told;
  write("summary-title", `${name}: block finished`);
  const counts =
    `${answers.present} present, ${answers.not_present} not present, ${answers.unsure} unsure` +
    (answers.cannot_play ? `, ${answers.cannot_play} could not be played` : "");
  const interval =
    told.interval_low === null
      ? "not known yet"
      : `${bounds(told.low, told.high)} [${told.interval_low.toFixed(2)}, ${told.interval_high?.toFixed(2)}]`;
  const flags = told.is_sample
    ? ` Precision of the flags: ${interval}, from ${told.n_judged} judged. They are ${told.flags}.`
    : ` Of ${told.flags}, present: ${bounds(told.low, told.high)}. This is no estimate for all flags.`;
  write("summary-told", `${counts}.${grows ? "" : flags}`);
  element("curve-figure").hidden = !told.is_sample || !told.points.length;
  const known = `Known ${grows ? "labels" : "clips"} among them: ${gold.passed} of ${gold.total} as expected`;
  write("summary-gold", !gold.total ? "" : gold.is_failed
    ? `✗ ${known}. The block is marked; its answers are kept.` : `✓ ${known}.`);
  const next = element("summary").querySelector("[data-action=replay] span");
  if (next) next.textContent = isLast ? "Finish" : "Next block";
}
