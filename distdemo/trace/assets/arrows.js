// Messages: their paths, and the chunks that travel along them.

const SVG = "http://www.w3.org/2000/svg";
let ways = null; // the layer above the ranks
let travellers = []; // { chip, way, aside, rest: best visible position along the path }
let shownRound = null;
const RESTS = [0.4, 0.55, 0.3, 0.65, 0.22, 0.75]; // many paths cross near the middle
const BARE = 46; // pixels of a path that must stay visible next to its chip

function svg(tag, attributes, parent) {
  const element = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  if (parent) parent.append(element);
  return element;
}

function newWays() {
  ways = svg("svg", { class: "ways", "aria-hidden": "true" }, stage);
  shownRound = null;
}

// Draw the messages of a round (0: none) at fraction t of their path, or where best visible.
function showMessages(layout, round, t) {
  if (round !== shownRound) drawMessages(layout, round);
  for (const each of travellers) {
    const [x, y] = chipAt(each, t ?? each.rest);
    each.chip.setAttribute("transform", `translate(${x.toFixed(1)} ${y.toFixed(1)})`);
  }
}

function drawMessages(layout, round) {
  shownRound = round;
  ways.replaceChildren();
  const seen = new Map();
  const messages = round ? DATA.rounds[round - 1].messages : [];
  travellers = messages.map((message) => {
    const pair = `${message.src}:${message.dst}`;
    seen.set(pair, (seen.get(pair) ?? -1) + 1);
    const way = wayOf(layout, message, seen.get(pair));
    drawWay(way, message.reduce);
    return { way, message };
  });
  // Chips are drawn above all paths, which would otherwise cross them out.
  travellers.forEach((each) => {
    each.chip = drawChip(each.message, layout);
    each.size = ["width", "height"].map((name) => Number(each.chip.firstChild.getAttribute(name)));
    each.aside = layout.kind === "row" ? [0, 0] : asideOf(each.way, each.size);
  });
  travellers.forEach((each, at) => {
    const before = travellers.slice(0, at);
    each.rest = RESTS.find((t) => !before.some((other) => covers(each, t, other))) ?? RESTS[0];
  });
}

function chipAt({ way, aside }, t) {
  const [x, y] = pointOn(way, t);
  return [x + aside[0], y + aside[1]];
}

function covers(each, t, other) {
  const [one, two] = [chipAt(each, t), chipAt(other, other.rest)];
  return [0, 1].every((i) => Math.abs(one[i] - two[i]) < (each.size[i] + other.size[i]) / 2 + 2);
}

// Offset of a chip from a path that it would cover, on the outer side of the curve.
function asideOf([a, b, c], [width, height]) {
  const [dx, dy] = [c[0] - a[0], c[1] - a[1]];
  const length = Math.hypot(dx, dy) || 1;
  const along = (Math.abs(dx) * width + Math.abs(dy) * height) / length;
  if (length > along + BARE) return [0, 0];
  const across = (Math.abs(dy) * width + Math.abs(dx) * height) / length / 2 + 7;
  const side = Math.sign(dy * (b[0] - a[0]) - dx * (b[1] - a[1])) || 1;
  return [(side * across * dy) / length, (-side * across * dx) / length];
}

function drawWay([a, b, c], reduce) {
  const name = reduce ? "reduce" : "copy";
  svg("path", { class: `way ${name}`, d: `M${a} Q${b} ${c}` }, ways);
  const angle = (Math.atan2(c[1] - b[1], c[0] - b[0]) * 180) / Math.PI;
  if (!reduce) {
    const turn = `translate(${c}) rotate(${angle})`;
    svg("path", { class: "head", d: "M-9 -5L3 0L-9 5z", transform: turn }, ways);
    return;
  }
  const end = svg("g", { transform: `translate(${c})` }, ways);
  svg("circle", { class: "join", r: 6 }, end);
  svg("path", { class: "plus", d: "M-3.5 0h7M0 -3.5v7" }, end);
}

function drawChip(message, layout) {
  const small = layout.size.name === "small";
  // No room for names between narrow cards; the sentence and the table have them.
  const name = layout.cards[0].w < 30 ? "" : chunkLabel(message);
  const text = `${message.reduce ? DATA.sign : ""}${name}`;
  const width = text.length * 7 + (small ? 6 : 12);
  const height = small ? 14 : 20;
  const chip = svg("g", { class: `chip ${message.reduce ? "reduce" : "copy"}` }, ways);
  const box = { x: -width / 2, y: -height / 2, width, height, rx: message.reduce ? height / 2 : 2 };
  svg("rect", box, chip);
  svg("text", {}, chip).textContent = text;
  return chip;
}
