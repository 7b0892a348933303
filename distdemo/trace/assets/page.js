// All of it put together: what is shown, the controls and the keys.

const by = (id) => document.getElementById(id);
const [said, heard] = [by("said"), by("heard")];
let layout = null;
let shown = ""; // what was shown last

const player = new Player(show);

function show() {
  const { k, t, moving } = player;
  const state = player.shown();
  showControls();
  if (moving) {
    const round = k + 1;
    if (layout) showMessages(layout, round, t / MOVING);
    showTimes(k, t / MOVING);
  } else {
    // At rest the messages of the round that is over stand on their ways.
    if (layout) showMessages(layout, state);
    showTimes(state, 0);
  }
  showSaid(state, moving);
  showState(state);
}

// Those who listen are told once a round, when it is over.
function showSaid(state, moving) {
  tell(said, moving ? underWayWords(state + 1) : roundWords(state));
  tell(heard, roundWords(state));
}

function tell(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

function showState(state) {
  const now = `${state}`;
  if (now === shown) return;
  shown = now;
  if (layout) showCells(state);
  showTable(state);
  by("state-when").textContent = when(state);
  document.querySelectorAll(".jump").forEach((button) => {
    if (Number(button.dataset.round) === state) button.setAttribute("aria-current", "step");
    else button.removeAttribute("aria-current");
  });
  refreshTip();
}

function showControls() {
  const state = player.shown();
  by("slider").value = state;
  by("slider").setAttribute("aria-valuetext", placeText(state));
  by("place").textContent = player.moving ? `${placeText(player.k + 1)} …` : placeText(state);
  by("play-word").textContent = player.playing ? "Pause" : "Play";
  by("play").classList.toggle("playing", player.playing);
  by("speed").textContent = `${player.speed}×`;
  by("back").disabled = by("restart").disabled = player.k === 0 && player.t === 0;
  by("forward").disabled = by("end").disabled = player.k === LAST;
  by("slower").disabled = player.speed <= SPEEDS[0];
  by("faster").disabled = player.speed >= SPEEDS.at(-1);
  by("play").disabled = by("slider").disabled = LAST === 0;
}

function placeText(state) {
  return state ? `Round ${state} of ${LAST}` : "The start";
}

// The picture anew, as it fits now.
function draw() {
  const kind = by("layout").value;
  const other = kind === "circle" ? "row" : "circle";
  const width = stage.clientWidth;
  // A little less than the window, so that the picture's end is seen; its top is that of the page.
  const room = window.innerHeight - stage.getBoundingClientRect().top - window.scrollY - 8;
  layout = layoutOf(kind, width, room) ?? layoutOf(other, width, room);
  drawRanks(layout);
  if (layout) newWays();
  if (layout) drawSample(layout.size.name);
  sayFit(kind);
  document.querySelector(".legend").hidden = layout === null;
  drawTimes();
  keepRoom();
  shown = "";
  show();
}

// What is not as it was asked for, and why.
function sayFit(kind) {
  by("too-many").hidden = layout !== null && layout.kind === kind;
  by("too-many").textContent = layout
    ? `${DATA.n} ranks do not fit in a ${kind} here: they stand in a ${layout.kind}.`
    : `${DATA.n} ranks with ${DATA.chunks.length} chunks are too many to draw here: `
      + "the table below holds all of them.";
}

// For the longest sentence, so that nothing below it jumps while it plays.
function keepRoom() {
  const texts = DATA.words.map((_, k) => roundWords(k));
  said.style.minHeight = "0";
  said.textContent = texts.reduce((long, each) => (each.length > long.length ? each : long));
  said.style.minHeight = `${said.offsetHeight}px`;
}

function drawLegend() {
  by("legend-wrong").hidden = DATA.wrong.length === 0;
}

// ---------------------------------------------------------------------------------- controls

const PRESSED = {
  restart: () => player.go(0),
  back: () => player.step(-1),
  play: () => player.toggle(),
  forward: () => player.step(1),
  end: () => player.go(LAST),
  slower: () => player.faster(-1),
  faster: () => player.faster(1),
};

function watchControls() {
  for (const [id, act] of Object.entries(PRESSED)) by(id).addEventListener("click", act);
  by("slider").addEventListener("input", () => player.go(Number(by("slider").value)));
  by("layout").addEventListener("change", draw);
  by("pace").addEventListener("change", () => { player.measured = by("pace").value === "measured"; });
  by("pace").disabled = !TIMED;
  by("theme").addEventListener("change", () => {
    document.documentElement.dataset.theme = by("theme").value;
  });
  document.addEventListener("click", (event) => {
    const round = event.target instanceof Element && event.target.closest("[data-round]");
    if (round) player.go(Number(round.dataset.round));
  });
  still.addEventListener("change", show);
}

// -------------------------------------------------------------------------------------- keys

const KEYS = {
  " ": () => player.toggle(),
  ArrowLeft: () => player.step(-1),
  ArrowRight: () => player.step(1),
  ",": () => player.step(-1),
  ".": () => player.step(1),
  Home: () => player.go(0),
  End: () => player.go(LAST),
  "+": () => player.faster(1),
  "=": () => player.faster(1),
  "-": () => player.faster(-1),
  "−": () => player.faster(-1),
};
const SCROLLING = ["ArrowLeft", "ArrowRight", "Home", "End", " "];

function pressed(event) {
  if (event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented) return;
  if (event.key === "Escape") return hideTip();
  const cell = cellAt(event.target);
  const act = cell && event.key in DIRECTIONS ? () => moveFocus(cell, event.key) : KEYS[event.key];
  if (!act || hasOwnUse(event.target, event.key)) return;
  event.preventDefault();
  act();
}

// A list of choices, a pressed button and what can be scrolled keep the keys that they know.
function hasOwnUse(target, key) {
  if (target.matches("select")) return true;
  if (target.matches("input")) return key.startsWith("Arrow") || key === "Home" || key === "End";
  if (target.matches("button, summary")) return key === " ";
  return target.matches(".wide") && SCROLLING.includes(key);
}

// ------------------------------------------------------------------------------------- begin

function begin() {
  document.documentElement.classList.add("running");
  drawLegend();
  buildTable();
  watchControls();
  watchCells();
  document.addEventListener("keydown", pressed);
  let width = stage.clientWidth;
  draw();
  new ResizeObserver(() => {
    if (stage.clientWidth === width) return;
    width = stage.clientWidth;
    draw();
  }).observe(stage);
}

// The one name that the page gives the browser, for tests and for the curious.
//   go(k), step(by), play(), pause()   as the controls do
//   advance(ms)                        as if so many milliseconds had gone by
//   speed(x)                           any factor
//   state()                            what is on the page: the round, whether it plays, and the
//                                      text of the picture and of the table
window.trace = {
  rounds: LAST,
  go: (k) => player.go(k),
  step: (by_) => player.step(by_),
  play: () => player.play(),
  pause: () => player.pause(),
  advance: (ms) => player.advance(ms),
  speed: (x) => { player.speed = x; },
  state: () => ({
    round: player.shown(),
    playing: player.playing,
    moving: player.moving,
    picture: [...drawn.values()].map((each) => each.element.getAttribute("aria-label")),
    table: [...document.querySelectorAll("#state tbody tr")].map((row) =>
      [...row.cells].slice(1).map((field) => field.textContent),
    ),
  }),
};

// Without a start the run failed: there is nothing to draw, and the page says so.
if (DATA.start) begin();
