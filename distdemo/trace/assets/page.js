// The page: display, controls and keys.

const by = (id) => document.getElementById(id);
const [said, heard] = [by("said"), by("heard")];
let layout = null;
let shown = ""; // last displayed state

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
    // When paused, the messages of the finished round stay on their paths.
    if (layout) showMessages(layout, state);
    showTimes(state, 0);
  }
  showSaid(state, moving);
  showState(state);
}

// Screen readers announce each round once, when it has finished.
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

// Redraw the picture for the current size.
function draw() {
  const kind = by("layout").value;
  const other = kind === "circle" ? "row" : "circle";
  const width = stage.clientWidth;
  // Slightly less than the window, so that the end of the picture is visible.
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

// Explain why the requested layout is not used.
function sayFit(kind) {
  by("too-many").hidden = layout !== null && layout.kind === kind;
  by("too-many").textContent = layout
    ? `${DATA.n} ranks don't fit in a ${kind} here, so they are shown in a ${layout.kind}.`
    : `${DATA.n} ranks with ${DATA.chunks.length} chunks are too many to draw here: `
      + "see the table below.";
}

// Reserve room for the longest sentence, so that the page doesn't jump during playback.
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

// Selects, buttons and scrollable areas keep their own keys.
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

// The only global of the page, for tests and experiments.
//   go(k), step(by), play(), pause()   same as the controls
//   advance(ms)                        simulate this many milliseconds
//   speed(x)                           any factor
//   state()                            displayed round, playback state, and the texts of the
//                                      picture and the table
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

// Without a start the run failed, and there is nothing to draw.
if (DATA.start) begin();
