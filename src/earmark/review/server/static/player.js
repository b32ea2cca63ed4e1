/** Sounds: fetched and sought ahead, looped around a peak, and measured by what was really heard. */

const LOOP_SECONDS = 2.4;
const LEAD_SECONDS = 0.4;
const LEAST_LOOP_SECONDS = 0.8;
const WHOLE_SHARE = 0.97;
const RELOAD_MILLISECONDS = 1000;
const STALLED_MILLISECONDS = 500;
export const SPEEDS = [1, 1.5, 2];

/** @typedef {[number, number]} Span start and end in seconds */

/** One clip, ready to be heard from just before a peak. */
export class Sound {
  /** Set when the browser could not fetch or decode the clip. */
  hasFailed = false;
  /** Why, in the server's words. */
  reason = "";
  isWhole = false;
  #peak;
  /** @type {Span | null} what is looped instead of the peak */
  #part = null;
  /** Whether it is to sound as soon as it can. */
  #isWanted = false;
  /** @type {Promise<void>} kept when the clip's length is known */
  #measured;
  /** Where the sound was last seen to move, and when. */
  #moved = { to: 0, at: 0 };

  /**
   * @param {string} address
   * @param {Span | null} peak where the interesting part is; null where nobody knows
   * @param {() => void} changed called when it becomes playable, or turns out not to be
   */
  constructor(address, peak, changed) {
    this.#peak = peak;
    this.audio = new Audio();
    this.audio.preload = "auto";
    this.audio.preservesPitch = true;
    this.#measured = new Promise((resolve) => {
      this.audio.addEventListener("loadedmetadata", () => {
        this.seek();
        changed();
        resolve(undefined);
      });
    });
    this.audio.addEventListener("error", () => this.#diagnose(address).then(changed));
    this.audio.addEventListener("ended", () => this.#ended());
    this.audio.src = address;
  }

  /** @returns {number} the clip's length in seconds; 0 until it is known */
  get seconds() {
    return Number.isFinite(this.audio.duration) ? this.audio.duration : 0;
  }

  /** @returns {Span} the part that is played: all of it where nobody knows where the peak is */
  get span() {
    const looped = this.#part ?? this.#peak;
    if (this.isWhole || !looped) return [0, this.seconds];
    const [from, to] = looped;
    // A part is looped as it is, unless it is too short to be heard as a sound.
    const lead = this.#part ? Math.max((LEAST_LOOP_SECONDS - (to - from)) / 2, 0) : LEAD_SECONDS;
    const least = this.#part ? 0 : LOOP_SECONDS;
    const length = Math.min(Math.max(least, to - from + 2 * lead), this.seconds);
    const start = Math.min(Math.max(from - lead, 0), this.seconds - length);
    return [start, start + length];
  }

  /** @returns {number} seconds of the clip that have sounded, each counted once */
  get heardSeconds() {
    const { played } = this.audio;
    let seconds = 0;
    for (let i = 0; i < played.length; i++) seconds += played.end(i) - played.start(i);
    return seconds;
  }

  /** @returns {boolean} */
  get isHeardWhole() {
    return this.seconds > 0 && this.heardSeconds >= WHOLE_SHARE * this.seconds;
  }

  /** Go to the start of the part that is played. */
  seek() {
    this.audio.currentTime = this.span[0];
  }

  /** Move to another peak and play there. @param {Span | null} peak */
  playPeak(peak) {
    this.#peak = peak;
    this.#part = null;
    this.isWhole = false;
    return this.replay();
  }

  /** Loop a part from where the sound is. @param {Span} part */
  async loop(part) {
    this.#part = part;
    this.isWhole = false;
    if (this.audio.paused) await this.#begin();
  }

  /** Play a part from its start, over and over. @param {Span} part */
  playPart(part) {
    this.#part = part;
    this.isWhole = false;
    return this.replay();
  }

  playWhole() {
    this.isWhole = true;
    return this.replay();
  }

  /** Play from the start of the part; only once its place is known, or the clip's start would sound. */
  async replay() {
    this.#isWanted = true;
    if (this.audio.readyState < HTMLMediaElement.HAVE_METADATA) await this.#measured;
    if (!this.#isWanted) return;
    this.seek();
    await this.#begin();
  }

  /** Begin to sound; a pause that comes before the sound does is no error. */
  async #begin() {
    try {
      await this.audio.play();
    } catch (error) {
      if (this.#isWanted || error.name !== "AbortError") throw error;
    }
  }

  pause() {
    this.#isWanted = false;
    this.audio.pause();
  }

  /** Turn back at the end of the loop; call it for every picture drawn. */
  keepLooping() {
    const [start, end] = this.span;
    if (!this.isWhole && !this.audio.paused && this.audio.currentTime >= end) {
      this.audio.currentTime = start;
    }
  }

  /** Seek if it stands still: after quick seeks Chromium may wait for data that it has. */
  wake() {
    const { currentTime, paused, seeking } = this.audio;
    const now = performance.now();
    const isStill = !paused && !seeking && currentTime === this.#moved.to;
    if (isStill && now - this.#moved.at < STALLED_MILLISECONDS) return;
    this.#moved = { to: currentTime, at: now };
    if (isStill) this.audio.currentTime = currentTime;
  }

  #ended() {
    if (!this.isWhole) this.replay();
  }

  /** Tell a clip that is missing or damaged from a server that is away, and wait for the latter. */
  async #diagnose(/** @type {string} */ address) {
    if (!this.audio.getAttribute("src")) return; // released
    try {
      const response = await fetch(address, { headers: { Range: "bytes=0-0" } });
      if (response.status === 403 || response.status >= 500) throw new Error(response.statusText);
      this.reason = response.ok ? "the browser cannot decode it" : (await response.json()).error;
      this.hasFailed = true;
    } catch {
      setTimeout(() => this.audio.getAttribute("src") && this.audio.load(), RELOAD_MILLISECONDS);
    }
  }

  /** Let go of the browser's decoder, of which there are few. */
  release() {
    this.pause();
    this.audio.removeAttribute("src");
    this.audio.load();
  }
}

/** The sounds at hand, by address: what was asked for ahead is there when it is wanted. */
export class Shelf {
  /** @type {Map<string, Sound>} */
  #sounds = new Map();
  /** @type {Map<string, HTMLImageElement>} */
  #pictures = new Map();
  #changed;

  /** @param {() => void} changed called when any sound becomes playable or fails */
  constructor(changed) {
    this.#changed = changed;
  }

  /**
   * Keep exactly these clips, fetching those that are new.
   * @param {{ id: string, peak: Span | null }[]} clips
   */
  keep(clips) {
    const wanted = new Set(clips.map(({ id }) => id));
    for (const [id, sound] of this.#sounds) {
      if (wanted.has(id)) continue;
      sound.release();
      this.#sounds.delete(id);
      this.#pictures.delete(id);
    }
    for (const { id, peak } of clips) {
      if (this.#sounds.has(id)) continue;
      this.#sounds.set(id, new Sound(`/clips/${id}.wav`, peak, this.#changed));
      const picture = new Image();
      picture.src = `/pictures/${id}.png`;
      this.#pictures.set(id, picture);
    }
  }

  /** @param {string} id @returns {Sound | undefined} */
  sound(id) {
    return this.#sounds.get(id);
  }

  /** Forget one clip, so that it will be heard afresh. @param {string} id */
  drop(id) {
    this.#sounds.get(id)?.release();
    this.#sounds.delete(id);
  }
}
