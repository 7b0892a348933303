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
  slots.forEach((chunk) => drawCell(grid, rank, chunk, layout.size));
}

function drawCell(grid, rank, chunk, size) {
  const element = addElement("div", "", grid);
  element.setAttribute("role", "img");
  element.tabIndex = -1;
  element.dataset.rank = rank;
  element.dataset.chunk = chunk;
  element.style.height = units(size.height);
  drawn.set(`${rank}:${chunk}`, { element, size: size.name, rank, chunk, shown: "" });
}

// Draw the state after k rounds. Only elements that look different are updated.
function showCells(k) {
  const state = stateAfter(k);
  const arrived = arrivedIn(k);
  for (const [key, each] of drawn) {
    const cell = state[each.rank].get(each.chunk);
    const words = cellText(k, each.rank, each.chunk);
    const shown = `${words}${arrived.has(key)}`;
    if (shown === each.shown) continue;
    each.shown = shown;
    each.element.setAttribute("aria-label", words.replaceAll("\n", ". ").replaceAll("..", "."));
    each.element.className = classes(each.size, cell, arrived.has(key));
    fill(each, cell);
  }
}

function classes(size, cell, arrived) {
  const named = { complete: cell && cell.complete, absent: !cell, arrived };
  return ["cell", size, ...Object.keys(named).filter((name) => named[name])].join(" ");
}

function fill({ element, size, chunk }, cell) {
  element.replaceChildren();
  const line = size === "small" ? element : addElement("span", "line", element);
  if (cell && DATA.chunks.length > 1 && (size === "large" || size === "short")) {
    addElement("span", "name", line).textContent = DATA.chunks[chunk];
  }
  if (size !== "small" && cell) fillText(line, size, cell);
  const mark = size === "brief" && VALUED ? "" : markOf(cell);
  if (mark) addElement("span", "mark", line).textContent = mark;
  if (cell) drawBar(addElement("span", "bar", element), cell.ranks);
}

function fillText(line, size, cell) {
  if (cell.values.length) {
    const [first, ...more] = cell.values;
    const omitted = more.length && size !== "brief" ? " …" : "";
    addElement("span", "value", line).textContent = `${first}${omitted}`;
    // Chunks that aren't reduced have one rank, which the bar shows.
    if (size === "brief" || (size === "short" && !DATA.reduced)) return;
  }
  // With little room, "complete" already implies the contributions.
  if (size === "short" && cell.complete && DATA.reduced) return;
  addElement("span", "who", line).textContent = rankList(cell.ranks, 2);
}

const BAR = DATA.reduced ? "; the bar has one segment per rank" : "; the bar has that rank's colour";
const ORDER = "row by row in numerical order";
const MORE = "hover or focus shows value and ranks";

// Enlarged sample of a chunk, with labels for its parts.
function drawSample(size) {
  const item = document.getElementById("legend-chunk");
  item.replaceChildren();
  const element = addElement("span", `cell specimen ${size}`, item);
  element.setAttribute("aria-hidden", "true");
  const cell = sampleCell(size === "small" ? 0.25 : 0);
  fill({ element, size, chunk: cell.chunk }, { ...cell, complete: false });
  if (size === "small" || size === "brief") {
    const what = size === "small" ? "chunks" : cell.values.length ? "values of chunks" : "ranks of chunks";
    item.append(`${what} ${ORDER}; numbers on arrows are chunks${BAR}; ${MORE}`);
    return;
  }
  const value = cell.values.length ? ["value"] : [];
  const who = DATA.reduced ? ["from ranks"] : size === "short" && VALUED ? [] : ["from rank"];
  const parts = [...(DATA.chunks.length > 1 ? ["chunk"] : []), ...value, ...who];
  const line = addElement("span", "parts", element);
  parts.forEach((part) => { addElement("span", "", line).textContent = part; });
  item.append(`${parts.join(" · ")}${BAR}`);
}

// The chunk that arrived after this share of all arrivals, or an initial one.
function sampleCell(share) {
  const arrivals = DATA.rounds.flatMap((each) => Object.values(each.arrived).flat());
  return cellOf(arrivals[Math.floor(share * arrivals.length)] ?? DATA.start.flat()[0]);
}

// One segment per rank if contributions are reduced; otherwise one for the owner.
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
