/** Talk to the server that this page came from, and to no other. */

const LONGEST_SEND_MILLISECONDS = 30_000;

/**
 * @typedef {object} Judgement What is sent for every answer; a retraction names the id it undoes.
 * @property {string} id
 * @property {string} at ISO time
 * @property {string} rater
 * @property {string} item
 * @property {"present" | "not_present" | "unsure" | "cannot_play"} answer
 * @property {number} [span_start] seconds from the clip's start; only if the rater set a span
 * @property {number} [span_end]
 * @property {number} heard_seconds
 * @property {boolean} whole_clip
 * @property {boolean} shown_score
 * @property {boolean} shown_picture
 * @property {string | null} retracts
 */

/** The server understood and said no: trying again would not help. */
export class Refused extends Error {
  /** @param {number} status @param {string} reason */
  constructor(status, reason) {
    super(reason);
    this.status = status;
  }
}

/** The server cannot do it now, and says why: a full disk, a locked store. */
export class ServerTrouble extends Error {}

/**
 * Fetch JSON; throws Refused for a 4xx, ServerTrouble for a 5xx, any other error for a server that
 * cannot be reached.
 * @param {string} path
 * @param {RequestInit} [options]
 * @returns {Promise<any>}
 */
async function request(path, options) {
  const response = await fetch(path, options);
  const answer = await response.json().catch(() => ({ error: response.statusText }));
  if (response.status >= 500) throw new ServerTrouble(answer.error);
  if (!response.ok) throw new Refused(response.status, answer.error);
  return answer;
}

/** @param {string} path @returns {Promise<any>} */
export const get = (path) => request(path);

/** @param {string} path @param {object} [body] @param {AbortSignal} [signal] @returns {Promise<any>} */
export const post = (path, body = {}, signal) =>
  request(path, {
    method: "POST",
    signal,
    headers: { "Content-Type": "application/json" },
    body: JSON.stringify(body),
  });

/** @param {Judgement} judgement @returns {Promise<any>} */
export const send = (judgement) => post("/api/judgements", judgement, AbortSignal.timeout(LONGEST_SEND_MILLISECONDS));

/**
 * Make a random identifier; crypto.randomUUID is missing on pages that are not served from
 * this machine.
 * @returns {string}
 */
export function uuid() {
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  bytes[6] = (bytes[6] & 0x0f) | 0x40;
  bytes[8] = (bytes[8] & 0x3f) | 0x80;
  const digits = Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
  return digits.replace(/^(.{8})(.{4})(.{4})(.{4})(.{12})$/, "$1-$2-$3-$4-$5");
}
