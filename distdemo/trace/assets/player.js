// The current round and playback. The display depends only on `k` and `t`.

const ROUND_MS = 1600; // milliseconds for a round at speed 1
const MOVING_SHARE = 0.7; // share of it in which messages travel; then the result is shown
const SPEEDS = [0.25, 0.5, 1, 2, 4, 8, 16];

class Player {
  constructor(show) {
    this.k = 0; // finished rounds
    this.t = 0; // progress of the next round, from 0 to 1
    this.playing = false;
    this.speed = 1;
    this.show = show;
  }

  // True while messages travel; never if the user prefers reduced motion.
  get moving() {
    return this.t > 0 && this.t < MOVING_SHARE && !reducedMotion.matches;
  }

  // Number of rounds whose result is displayed.
  shown() {
    return this.t >= MOVING_SHARE ? this.k + 1 : this.k;
  }

  go(k) {
    this.k = Math.max(0, Math.min(LAST, Math.round(k)));
    this.t = 0;
    this.playing = false;
    this.show();
  }

  step(by) {
    this.go(this.t > 0 && by < 0 ? this.k + 1 + by : this.shown() + by);
  }

  toggle() {
    if (this.playing) this.pause();
    else this.play();
  }

  play() {
    if (this.k === LAST) [this.k, this.t] = [0, 0];
    this.playing = LAST > 0;
    this.last = null;
    this.show();
    if (this.playing) requestAnimationFrame((now) => this.frame(now));
  }

  pause() {
    this.playing = false;
    this.show();
  }

  frame(now) {
    if (!this.playing) return;
    // A background page gets no frames and must not jump when it returns.
    this.advance(Math.min(now - (this.last ?? now), 100));
    this.last = now;
    if (this.playing) requestAnimationFrame((next) => this.frame(next));
  }

  // Advance by this many milliseconds.
  advance(milliseconds) {
    let left = milliseconds * this.speed;
    while (this.playing && left > 0) {
      const step = Math.min(left, (1 - this.t) * ROUND_MS);
      this.t += step / ROUND_MS;
      left -= step;
      if (this.t >= 1 - 1e-9) this.over();
    }
    this.show();
  }

  over() {
    this.k += 1;
    this.t = 0;
    if (this.k === LAST) this.playing = false;
  }

  faster(by) {
    const at = SPEEDS.findIndex((each) => each >= this.speed);
    this.speed = SPEEDS[Math.max(0, Math.min(SPEEDS.length - 1, at + by))];
    this.show();
  }
}

const reducedMotion = matchMedia("(prefers-reduced-motion: reduce)");
