// Messages: their paths, and the chunks that travel along them.

const SVG = "http://www.w3.org/2000/svg";
let curves = null; // the layer above the ranks
let chips = []; // { chip, curve, offset, restAt: best visible position along the path }
let shownRound = null;
const REST_POSITIONS = [0.4, 0.55, 0.3, 0.65, 0.22, 0.75]; // many paths cross near the middle
const LEAST_WORDED = 600; // width of a picture from which chips have words
const VISIBLE_LENGTH = 46; // length of a path that must stay visible next to its chip

function svg(tag, attributes, parent) {
  const element = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  if (parent) parent.append(element);
  return element;
}

function newCurves(layout) {
  const viewBox = `0 0 ${layout.width} ${layout.height}`;
  curves = svg("svg", { class: "curves", viewBox, "aria-hidden": "true" }, stage);
  shownRound = null;
}

// Draw the messages of a round (0: none) at fraction t of their path, or where best visible.
function showMessages(layout, round, t) {
  if (round !== shownRound) drawMessages(layout, round);
  for (const each of chips) {
    const [x, y] = chipAt(each, t ?? each.restAt);
    each.chip.setAttribute("transform", `translate(${x.toFixed(1)} ${y.toFixed(1)})`);
  }
}

function drawMessages(layout, round) {
  shownRound = round;
  curves.replaceChildren();
  const seen = new Map();
  const messages = round ? DATA.rounds[round - 1].messages : [];
  chips = messages.map((message) => {
    const pair = `${message.src}:${message.dst}`;
    seen.set(pair, (seen.get(pair) ?? -1) + 1);
    const curve = curveOf(layout, message, seen.get(pair));
    drawCurve(curve, message.reduce);
    return { curve, message };
  });
  // Chips are drawn above all paths, which would otherwise cross them out.
  chips.forEach((each) => {
    each.chip = drawChip(each.message, layout);
    each.size = ["width", "height"].map((name) => Number(each.chip.firstChild.getAttribute(name)));
    const { src, dst } = each.message;
    const isMet = messages.some((other) => other.src === dst && other.dst === src);
    const isOnPath = layout.kind === "row" || (leavesPath(each) && !isMet);
    each.offset = isOnPath ? [0, 0] : offsetOf(each, layout);
  });
  chips.forEach((each, at) => {
    const isFree = (t) => !chips.slice(0, at).some((other) => covers(each, t, other));
    each.restAt = REST_POSITIONS.find(isFree) ?? REST_POSITIONS[0];
  });
}

function chipAt({ curve, offset }, t) {
  const [x, y] = pointOn(curve, t);
  return [x + offset[0], y + offset[1]];
}

function covers(each, t, other) {
  const [one, two] = [chipAt(each, t), chipAt(other, other.restAt)];
  return [0, 1].every((i) => Math.abs(one[i] - two[i]) < (each.size[i] + other.size[i]) / 2 + 2);
}

// True if enough of the path is visible beside the chip on it.
function leavesPath({ curve: [a, , c], size: [width, height] }) {
  const [dx, dy] = [c[0] - a[0], c[1] - a[1]];
  const length = Math.hypot(dx, dy) || 1;
  const along = (Math.abs(dx) * width + Math.abs(dy) * height) / length;
  return length > along + VISIBLE_LENGTH;
}

// Offset of a chip beside its path: on the outer side of the curve, if that is in the picture.
function offsetOf({ curve, size }, layout) {
  const [a, b, c] = curve;
  const [width, height] = size;
  const [dx, dy] = [c[0] - a[0], c[1] - a[1]];
  const length = Math.hypot(dx, dy) || 1;
  const across = (Math.abs(dy) * width + Math.abs(dx) * height) / length / 2 + 7;
  const side = Math.sign(dy * (b[0] - a[0]) - dx * (b[1] - a[1])) || 1;
  const outer = [(side * across * dy) / length, (-side * across * dx) / length];
  const y = pointOn(curve, REST_POSITIONS[0])[1] + outer[1];
  const isInside = y >= height / 2 && y <= layout.height - height / 2;
  return isInside ? outer : outer.map((each) => -each);
}

function drawCurve([a, b, c], reduce) {
  const name = reduce ? "reduce" : "copy";
  svg("path", { class: `curve ${name}`, d: `M${a} Q${b} ${c}` }, curves);
  const angle = (Math.atan2(c[1] - b[1], c[0] - b[0]) * 180) / Math.PI;
  if (!reduce) {
    const turn = `translate(${c}) rotate(${angle})`;
    svg("path", { class: "head", d: "M-9 -5L3 0L-9 5z", transform: turn }, curves);
    return;
  }
  const end = svg("g", { transform: `translate(${c})` }, curves);
  svg("circle", { class: "join", r: 6 }, end);
  svg("path", { class: "plus", d: "M-3.5 0h7M0 -3.5v7" }, end);
}

function drawChip(message, layout) {
  const small = layout.width * layout.zoom < LEAST_WORDED || ["brief", "small"].includes(layout.size.name);
  // No room for names between narrow cards; the sentence and the table have them.
  const text = layout.cards[0].w < 30 ? "" : chunkLabel(message, !small);
  const width = text ? text.length * 7 + (small ? 9 : 12) : 8;
  const height = text ? (small ? 14 : 20) : 8;
  const chip = svg("g", { class: `chip ${message.reduce ? "reduce" : "copy"}` }, curves);
  const box = { x: -width / 2, y: -height / 2, width, height, rx: message.reduce ? height / 2 : 2 };
  svg("rect", box, chip);
  svg("text", {}, chip).textContent = text;
  return chip;
}
