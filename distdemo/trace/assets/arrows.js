// Messages: their paths, and the chunks that travel along them.

const SVG = "http://www.w3.org/2000/svg";
let curves = null; // the layer above the ranks
let chips = []; // { chip, curve, rest: where it stands between two rounds }
let shownRound = null;
const ALONG = [0.4, 0.5, 0.55, 0.3, 0.65, 0.22, 0.75]; // places on a path: many cross near the middle
const LEAST_WORDED = 600; // width of a picture from which chips have words
const VISIBLE_LENGTH = 46; // length of a path that must stay visible next to its chip
// What it costs if a chip covers something, if its path is hidden, and if it stands beside the path.
const COSTS = { card: 100, chip: 100, edge: 100, end: 10, path: 5, hidden: 4, outer: 1, inner: 2 };
const SERIOUS = 100;

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
  for (const { chip, curve, rest } of chips) {
    const [x, y] = t === undefined ? rest : pointOn(curve, t);
    chip.setAttribute("transform", `translate(${x.toFixed(1)} ${y.toFixed(1)})`);
  }
}

function drawMessages(layout, round) {
  shownRound = round;
  curves.replaceChildren();
  const seen = new Map();
  const messages = round ? DATA.rounds[round - 1].messages : [];
  const paths = messages.map((message) => {
    const pair = `${message.src}:${message.dst}`;
    seen.set(pair, (seen.get(pair) ?? -1) + 1);
    return { message, curve: curveOf(layout, message, seen.get(pair)) };
  });
  for (const { message, curve } of paths) drawCurve(curve, message.reduce);
  // Chips are drawn above all paths, which would otherwise cross them out.
  chips = placed(layout, paths).map((each) => ({ ...each, chip: drawChip(each) }));
}

// ---------------------------------------------------------------------------- places of chips

// Chips with their places: the longer labels if no chip covers a card or another chip, else the
// shorter ones, and a dot where even these don't fit.
function placed(layout, paths) {
  const sampled = paths.map((path) => ({ ...path, points: pointsOf(path.curve) }));
  let found = [];
  for (const form of formsOf(layout)) {
    found = [];
    for (const path of sampled) {
      const best = bestPlace(layout, sampled, found, { ...path, ...form(path.message) });
      found.push(best);
    }
    if (found.every((each) => each.cost < SERIOUS)) return found;
  }
  return found.map((each, at) => {
    if (each.cost < SERIOUS) return each;
    return bestPlace(layout, sampled, found.filter((_, i) => i !== at), { ...each, ...DOT });
  });
}

// Forms of labels: "chunk 2" and "2". Small pictures and small chunks have only the second, and
// narrow cards a dot: the sentence and the table have the names.
function formsOf(layout) {
  const small = layout.width * layout.zoom < LEAST_WORDED || ["brief", "small"].includes(layout.size.name);
  const worded = (message) => chipOf(chunkLabel(message, true), 12, 20);
  const brief = (message) => chipOf(chunkLabel(message, false), 9, 14);
  if (layout.cards[0].w < 30) return [() => DOT];
  return small ? [brief] : [worded, brief];
}

const DOT = { text: "", w: 8, h: 8 };

function chipOf(text, padding, height) {
  return { text, w: text.length * 7 + padding, h: height };
}

// The place with the least cost, the first of several.
function bestPlace(layout, paths, others, chip) {
  let best = { cost: Infinity };
  for (const [at, t] of ALONG.entries()) {
    for (const [offset, cost] of offsetsOf(chip)) {
      const rest = [0, 1].map((i) => pointOn(chip.curve, t)[i] + offset[i]);
      const total = cost + 0.1 * at + costAt(layout, paths, others, chip, rest);
      if (total < best.cost) best = { ...chip, rest, cost: total };
    }
  }
  return best;
}

// On the path, and beside it on the outer and the inner side of the curve.
function offsetsOf({ curve: [a, b, c], w, h }) {
  const [dx, dy] = [c[0] - a[0], c[1] - a[1]];
  const length = Math.hypot(dx, dy) || 1;
  const across = (Math.abs(dy) * w + Math.abs(dx) * h) / length / 2 + 7;
  const along = (Math.abs(dx) * w + Math.abs(dy) * h) / length;
  const side = Math.sign(dy * (b[0] - a[0]) - dx * (b[1] - a[1])) || 1;
  const outer = [(side * across * dy) / length, (-side * across * dx) / length];
  return [
    [[0, 0], length > along + VISIBLE_LENGTH ? 0 : COSTS.hidden],
    [outer, COSTS.outer],
    [outer.map((each) => -each), COSTS.inner],
  ];
}

// What the chip would cover here: cards, other chips, ends of paths and other paths.
function costAt(layout, paths, others, { curve, w, h }, [x, y]) {
  const box = { x: x - w / 2, y: y - h / 2, w, h };
  const isIn = ([u, v], margin) => Math.abs(u - x) < w / 2 + margin && Math.abs(v - y) < h / 2 + margin;
  const isOutside = box.x < 0 || box.y < 0 || box.x + w > layout.width || box.y + h > layout.height;
  const covered = {
    card: layout.cards.filter((card) => overlaps(box, card)).length,
    chip: others.filter((each) => overlaps(box, boxOf(each))).length,
    edge: isOutside ? 1 : 0,
    end: paths.filter((path) => isIn(path.curve[2], 7)).length,
    path: paths.filter((path) => path.curve !== curve && path.points.some((each) => isIn(each, 3))).length,
  };
  return Object.keys(covered).reduce((sum, name) => sum + COSTS[name] * covered[name], 0);
}

function boxOf({ rest: [x, y], w, h }) {
  return { x: x - w / 2, y: y - h / 2, w, h };
}

function overlaps(one, other) {
  const beside = one.x + one.w + 1 <= other.x || other.x + other.w + 1 <= one.x;
  return !beside && one.y < other.y + other.h + 1 && other.y < one.y + one.h + 1;
}

// ------------------------------------------------------------------------------------- drawing

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

function drawChip({ message, text, w, h }) {
  const chip = svg("g", { class: `chip ${message.reduce ? "reduce" : "copy"}` }, curves);
  const box = { x: -w / 2, y: -h / 2, width: w, height: h, rx: message.reduce ? h / 2 : 2 };
  svg("rect", box, chip);
  svg("text", {}, chip).textContent = text;
  return chip;
}
