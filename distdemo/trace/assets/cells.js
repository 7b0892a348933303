// Drawing of ranks and their chunks.

const stage = document.getElementById("stage");
let unit = 1; // pixels per unit of the layout, without its zoom
const units = (length) => `calc(${length.toFixed(2)} * var(--u))`;
let drawn = new Map(); // "rank:chunk" → { element, shown }

function addElement(tag, name, parent) {
  const element = document.createElement(tag);
  if (name) element.className = name;
  if (parent) parent.append(element);
  return element;
}

function drawRanks(layout) {
  stage.replaceChildren();
  drawn = new Map();
  stage.style.setProperty("--u", `${unit * (layout ? layout.zoom : 1)}px`);
  stage.style.height = units(layout ? layout.height : 0);
  if (!layout) return;
  DATA.slots.forEach((slots, rank) => drawRank(layout, rank, slots));
  const first = drawn.values().next().value;
  if (first) first.element.tabIndex = 0;
}

function drawRank(layout, rank, slots) {
  const { x, y, w, h, columns } = layout.cards[rank];
  const card = addElement("div", "rank", stage);
  card.setAttribute("role", "group");
  card.setAttribute("aria-label", `Rank ${rank}`);
  const box = { left: units(x), top: units(y), width: units(w), height: units(h) };
  Object.assign(card.style, box);
  const title = addElement("h3", "", card);
  addElement("span", "swatch", title).style.background = colourOf(rank);
  card.classList.toggle("tiny", w < 84);
  card.classList.toggle("thin", w < 34);
  title.append(w < 84 ? String(rank) : `Rank ${rank}`);
  const grid = addElement("div", "cells", card);
  grid.style.gridTemplateColumns = `repeat(${columns}, minmax(0, 1fr))`;
  const room = charactersIn(layout.cards[rank]);
  slots.forEach((chunk) => drawCell(grid, rank, chunk, layout.size, room));
}

function drawCell(grid, rank, chunk, size, room) {
  const element = addElement("div", "", grid);
  element.setAttribute("role", "img");
  element.tabIndex = -1;
  element.dataset.rank = rank;
  element.dataset.chunk = chunk;
  element.style.height = units(size.height);
  drawn.set(`${rank}:${chunk}`, { element, size: size.name, room, rank, chunk, shown: "" });
}

// Draw the state after k rounds. Only elements that look different are updated.
function showCells(k) {
  const state = stateAfter(k);
  const arrived = arrivedIn(k);
  for (const [key, each] of drawn) {
    const cell = state[each.rank].get(each.chunk);
    const words = cellText(k, each.rank, each.chunk);
    const shown = `${words}${arrived.has(key)}${state[each.rank].size}`;
    if (shown === each.shown) continue;
    each.shown = shown;
    each.element.setAttribute("aria-label", words.replaceAll("\n", ". ").replaceAll("..", "."));
    each.element.className = classes(each.size, cell, arrived.has(key));
    fill(each, cell, state[each.rank]);
  }
}

function classes(size, cell, arrived) {
  const named = { complete: cell && cell.complete, absent: !cell, arrived };
  return ["cell", size, ...Object.keys(named).filter((name) => named[name])].join(" ");
}

// A chunk's number if there are several, its values as far as there is room, ✓, and the bar.
function fill({ element, size, room, chunk }, cell, held) {
  element.replaceChildren();
  const line = size === "small" ? element : addElement("span", "line", element);
  if (!cell) return fillAbsent(line, size, held.size === 0 && room >= NOTHING.length);
  const named = DATA.chunks.length > 1 && (size === "full" || size === "short");
  if (named) addElement("span", "name", line).textContent = DATA.chunks[chunk];
  const mark = markOf(cell);
  if (size !== "small") {
    const used = (named ? DATA.chunks[chunk].length + 1 : 0) + (mark ? 2 : 0);
    addElement("span", "value", line).textContent = valueText(cell, room - used);
  }
  if (mark) addElement("span", "mark", line).textContent = mark;
  drawBar(addElement("span", "bar", element), cell.ranks);
}

function fillAbsent(line, size, isEmpty) {
  if (size !== "small") line.textContent = isEmpty ? NOTHING : ABSENT;
}

// Enlarged sample of a chunk, with labels for its parts.
function drawSample(size) {
  const item = document.getElementById("legend-chunk");
  item.replaceChildren();
  const element = addElement("span", `cell specimen ${size}`, item);
  element.setAttribute("aria-hidden", "true");
  const cell = sampleCell();
  fill({ element, size, room: SAMPLE_ROOM, chunk: cell.chunk }, { ...cell, complete: false });
  const several = DATA.chunks.length > 1;
  const named = several && (size === "full" || size === "short");
  const parts = [...(named ? ["chunk"] : []), ...(size === "small" ? [] : ["values"])];
  const line = addElement("span", "parts", element);
  parts.forEach((part) => { addElement("span", "", line).textContent = part; });
  const order = several && !named ? "chunks row by row; " : "";
  const bar = DATA.reduced
    ? "bar: a block for each rank, coloured if the chunk contains its data"
    : "bar: colour of the rank that the data is from";
  item.append(`${order}${bar}`);
}

const SAMPLE_ROOM = 24; // characters

// The first chunk that arrived, or an initial one.
function sampleCell() {
  const arrivals = DATA.rounds.flatMap((each) => Object.values(each.arrived).flat());
  return cellOf(arrivals[0] ?? DATA.start.flat()[0]);
}

// One block per rank if contributions are reduced; otherwise one for the owner.
function drawBar(bar, ranks) {
  const positions = DATA.reduced ? [...Array(DATA.n).keys()] : ranks;
  for (const rank of positions) {
    const part = addElement("i", "", bar);
    if (ranks.includes(rank)) part.style.backgroundColor = colourOf(rank);
  }
}

// ---------------------------------------------------------------- keyboard navigation of chunks

const DIRECTIONS = {
  ArrowLeft: [-1, 0],
  ArrowRight: [1, 0],
  ArrowUp: [0, -1],
  ArrowDown: [0, 1],
};

// Focus the next chunk in this direction, and make it the target of Tab.
function moveFocus(from, key) {
  const [dx, dy] = DIRECTIONS[key];
  const [x, y] = centre(from);
  let [best, least] = [null, Infinity];
  for (const { element } of drawn.values()) {
    const [u, v] = centre(element);
    const along = (u - x) * dx + (v - y) * dy;
    const beside = Math.abs((u - x) * dy) + Math.abs((v - y) * dx);
    if (along > 1 && along + 2 * beside < least) [best, least] = [element, along + 2 * beside];
  }
  if (best) focusCell(from, best);
}

function focusCell(from, to) {
  from.tabIndex = -1;
  to.tabIndex = 0;
  to.focus();
}

function centre(element) {
  const box = element.getBoundingClientRect();
  return [box.x + box.width / 2, box.y + box.height / 2];
}
