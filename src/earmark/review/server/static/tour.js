/** Four sentences for those who are here for the first time; the table of keys holds them, too. */

const STORED_AT = "earmark-tour-seen";

const SENTENCES = [
  "A clip plays around the place where a class may be heard; the name of the class stands on top.",
  "Say whether you hear it, present, unsure or not present: one key answers and goes on.",
  "“Not present” speaks for the whole clip only if all of it was heard: the line under the picture says how much was.",
  "Undo as often as you like, and stop whenever you like: every answer is stored at once.",
];

const CLIP_SENTENCES = [
  "A clip plays once as a whole; the labels that it was given stand on top.",
  "Below are classes that may be missing: choose each that you hear (its number), or its question mark if you are unsure (Shift and its number); drag over the picture to say where the last one is heard.",
  "“Next clip” says that you hear none of the rest, and goes on: let the clip play to its end first, or it speaks for what was heard only.",
  "Undo as often as you like, and stop whenever you like: every answer is stored at once.",
];

/** @param {"class" | "clip"} mode @returns {HTMLOListElement} */
function list(mode) {
  const told = document.createElement("ol");
  for (const sentence of mode === "clip" ? CLIP_SENTENCES : SENTENCES) {
    told.append(Object.assign(document.createElement("li"), { textContent: sentence }));
  }
  return told;
}

/** Show the tour at the gate, once for each browser, and among the keys always. @param {"class" | "clip"} mode */
export function showTour(mode) {
  document.getElementById("help-tour")?.replaceChildren(list(mode));
  document.getElementById("gate-tour")?.replaceChildren(...(isSeen() ? [] : [list(mode)]));
}

/** Remember that the tour was shown. */
export function endTour() {
  document.getElementById("gate-tour")?.replaceChildren();
  try {
    localStorage.setItem(STORED_AT, "yes");
  } catch {
    // A browser that keeps nothing shows it again next time.
  }
}

/** @returns {boolean} */
function isSeen() {
  try {
    return localStorage.getItem(STORED_AT) !== null;
  } catch {
    return false;
  }
}
