// Messages: their ways, and the chunks that travel on them.

const SVG = "http://www.w3.org/2000/svg";
let ways = null; // the layer above the ranks
let travellers = []; // { chip, way }
let shownRound = null;

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

// The messages of a round (0: none), t of their way gone.
function showMessages(layout, round, t) {
  if (round !== shownRound) drawMessages(layout, round);
  for (const { chip, way } of travellers) {
    const [x, y] = pointOn(way, t);
    chip.setAttribute("transform", `translate(${x.toFixed(1)} ${y.toFixed(1)})`);
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
  // Above all ways, or they would strike through what travels.
  travellers.forEach((each) => Object.assign(each, { chip: drawChip(each.message, layout) }));
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
  // Between narrow cards there is no room for names: the sentence and the table have them.
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
