// The page: display, controls and keys.

const byId = (id) => document.getElementById(id);
const [caption, announcement] = [byId("caption"), byId("announcement")];
let layout = null;
let shown = ""; // last displayed state

const player = new Player(show);

function show() {
  const { k, t, moving } = player;
  const state = player.shown();
  showControls();
  if (moving) {
    if (layout) showMessages(layout, k + 1, t / MOVING_SHARE);
  } else if (layout) {
    showMessages(layout, state); // when paused, they stay on their paths
  }
  showCaption(state, moving);
  showState(state);
}

// Screen readers announce each round once, when it has finished.
function showCaption(state, moving) {
  setText(caption, moving ? runningText(state + 1) : roundText(state));
  setText(announcement, roundText(state));
}

function setText(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

function showState(state) {
  const now = `${state}`;
  if (now === shown) return;
  shown = now;
  if (layout) showCells(state);
  showTable(state);
  byId("state-when").textContent = whenText(state);
  refreshTip();
}

function showControls() {
  const state = player.shown();
  byId("slider").value = state;
  byId("slider").setAttribute("aria-valuetext", placeText(state));
  byId("place").textContent = player.moving ? `${placeText(player.k + 1)} …` : placeText(state);
  byId("play-word").textContent = player.playing ? "Pause" : "Play";
  byId("play").classList.toggle("playing", player.playing);
  byId("speed").textContent = `${player.speed}×`;
  byId("back").disabled = byId("restart").disabled = player.k === 0 && player.t === 0;
  byId("forward").disabled = byId("end").disabled = player.k === LAST;
  byId("slower").disabled = player.speed <= SPEEDS[0];
  byId("faster").disabled = player.speed >= SPEEDS.at(-1);
  byId("play").disabled = byId("slider").disabled = LAST === 0;
}

function placeText(state) {
  return state ? `Round ${state} of ${LAST}` : "The start";
}

// Redraw the picture for the current size.
function draw() {
  const kind = byId("layout").value;
  const other = kind === "circle" ? "row" : "circle";
  unit = parseFloat(getComputedStyle(document.documentElement).fontSize) / 16;
  reserveCaption();
  const width = stage.clientWidth / unit;
  // Slightly less than the window, so that the end of the picture is visible.
  const top = stage.getBoundingClientRect().top + window.scrollY;
  const room = (window.innerHeight - top) / unit - 8;
  const text = textBelow();
  layout = layoutOf(kind, width, room, text) ?? layoutOf(other, width, room, text);
  drawRanks(layout);
  if (layout) newCurves(layout);
  if (layout) drawSample(layout.size.name);
  explainLayout(kind);
  document.querySelector(".legend").hidden = layout === null;
  shown = "";
  show();
}

// Explain why the requested layout is not used.
function explainLayout(kind) {
  byId("too-many").hidden = layout !== null && layout.kind === kind;
  byId("too-many").textContent = layout
    ? `${DATA.n} ranks don't fit in a ${kind} here, so they are shown in a ${layout.kind}.`
    : `${DATA.n} ranks with ${DATA.chunks.length} chunks are too many to draw here: `
      + "see the table below.";
}

// Height of the caption and the legend, which are on the same screen as the picture.
function textBelow() {
  const legend = document.querySelector(".legend");
  legend.hidden = false;
  return (caption.offsetHeight + legend.offsetHeight + 24) / unit;
}

// Show the signs in use.
function trimLegend() {
  const messages = DATA.rounds.flatMap((each) => each.messages);
  byId("legend-reduce").hidden = !messages.some((each) => each.reduce);
  byId("legend-copy").hidden = messages.every((each) => each.reduce);
  byId("legend-absent").hidden = DATA.chunks.length === 1 || DATA.start.every((held, rank) => held.length === DATA.slots[rank].length);
}

// Reserve room for the longest sentence, so that the page doesn't jump during playback.
function reserveCaption() {
  const texts = DATA.words.map((_, k) => roundText(k));
  caption.style.minHeight = "0";
  caption.textContent = texts.reduce((long, each) => (each.length > long.length ? each : long));
  caption.style.minHeight = `${caption.offsetHeight}px`;
}

// ---------------------------------------------------------------------------------- controls

const ACTIONS = {
  restart: () => player.go(0),
  back: () => player.step(-1),
  play: () => player.toggle(),
  forward: () => player.step(1),
  end: () => player.go(LAST),
  slower: () => player.faster(-1),
  faster: () => player.faster(1),
  projector: () => toggleProjector(),
};

// The player alone, in sizes for a lecture room, on the full screen if the browser allows it.
function toggleProjector() {
  const on = document.documentElement.classList.toggle("projector");
  if (on) document.documentElement.requestFullscreen?.().catch(() => {});
  else if (document.fullscreenElement) document.exitFullscreen();
  changedSize();
}

function leaveProjector() {
  if (document.documentElement.classList.contains("projector")) toggleProjector();
}

function changedSize() {
  const on = document.documentElement.classList.contains("projector");
  byId("projector").setAttribute("aria-pressed", on);
  window.scrollTo(0, 0);
  draw();
}

function listenToControls() {
  for (const [id, act] of Object.entries(ACTIONS)) byId(id).addEventListener("click", act);
  byId("slider").addEventListener("input", () => player.go(Number(byId("slider").value)));
  byId("layout").addEventListener("change", draw);
  reducedMotion.addEventListener("change", show);
  // The browser's own Esc leaves the full screen without a key event.
  document.addEventListener("fullscreenchange", () => {
    if (!document.fullscreenElement) leaveProjector();
  });
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
  f: () => toggleProjector(),
};
const SCROLLING = ["ArrowLeft", "ArrowRight", "Home", "End", " "];

function onKey(event) {
  if (event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented) return;
  if (event.key === "Escape") return target ? hideTip() : leaveProjector();
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

// ------------------------------------------------------------------------------------- start

function start() {
  document.documentElement.classList.add("running");
  buildTable();
  trimLegend();
  listenToControls();
  listenToCells();
  document.addEventListener("keydown", onKey);
  let size = "";
  const resized = () => {
    const now = `${stage.clientWidth} ${window.innerHeight}`;
    if (now === size) return;
    size = now;
    draw();
  };
  resized();
  new ResizeObserver(resized).observe(stage);
  window.addEventListener("resize", resized);
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
if (DATA.start) start();
