// Layout of ranks and chunks, as numbers only. All lengths are in units: a unit is a pixel at a font
// size of 16 pixels, and grows with the screen.

const CHARACTER = 7; // width of a digit
const PADDING = 10; // of a chunk's text
const MOST_CHARACTERS = 48; // of values; longer ones are cut
const NAME = DATA.chunks.length > 1 ? Math.max(...DATA.chunks.map((each) => each.length)) + 1 : 0;
const [FIRST, ALL] = [1, Infinity].map((most) => NAME + 2 + longestValue(most));

// Characters of the longest values; if there are more than so many, of the first of each chunk.
function longestValue(most) {
  const cells = [DATA.start ?? [], ...DATA.rounds.map((each) => Object.values(each.arrived))].flat(2);
  const lengths = cells.map((each) => valueText(cellOf(each), Math.min(most, MOST_CHARACTERS)).length);
  return Math.max(NOTHING.length, ...lengths);
}

// Sizes of a chunk, with all its values, with the first, without its number, and without text.
// `least`: width that it needs to be readable in a row, where it fills the available width.
const SIZES = [
  { name: "full", width: Math.max(80, widthOf(ALL)), least: widthOf(ALL), height: 34, gap: 66 },
  { name: "short", width: widthOf(FIRST), least: widthOf(FIRST), height: 24, gap: NAMED ? 44 : 60 },
  { name: "brief", width: 38, least: 30, height: 20, gap: 30 },
  { name: "small", width: 20, least: 8, height: 15, gap: 26 },
];

function widthOf(characters) {
  return characters * CHARACTER + PADDING;
}

// Characters that fit a chunk on this card.
function charactersIn({ w, columns }) {
  const width = (w - 2 * EDGE + BETWEEN) / columns - BETWEEN;
  return Math.floor((width - PADDING) / CHARACTER + 0.01);
}

const ZOOMS = [3.2, 3, 2.8, 2.6, 2.4, 2.2, 2, 1.8, 1.6, 1.5, 1.4, 1.3, 1.2, 1.1]; // of pictures with room to spare
const TITLE = 20; // height of a rank's heading
const BETWEEN = 3; // gap between two chunks
const EDGE = 5; // border and padding of a card
const LOW = 480; // height of a picture that fits most screens together with its text
const TALLEST = 860;
const POWERS = [1, 0.8, 0.6, 0.4]; // an ellipse, and squarer ones
const POINTS = 120; // sample points of its outline
const BENDS = [0.1, 0.22, -0.16, -0.28, 0.34, -0.4, 0.5, -0.55, 0.7, -0.75, 0.95, -1]; // of a path, relative to the straight line
const FEW_RANKS = 8;
const MOST_RANKS = { circle: 20, row: 40 };

// Return the best layout that fits, or null for no picture. `room` is the remaining height of the
// window, `text` the height of the text below; it is exceeded only if chunks would be too small to see.
function layoutOf(kind, width, room, text) {
  if (DATA.n > MOST_RANKS[kind]) return null;
  const highest = Math.min(Math.max(room, LOW), TALLEST);
  const usual = Math.max(LOW, highest - text);
  // Chunks of few ranks show their contents even if the picture is higher than the window.
  const legible = DATA.n <= FEW_RANKS ? SIZES.slice(0, -1) : SIZES;
  const found = sized(kind, legible, width, usual, highest)
    ?? sized(kind, legible, width, usual, TALLEST)
    ?? sized(kind, SIZES, width, usual, TALLEST);
  if (!found) return null;
  // A picture that would leave room fills it.
  const sizes = SIZES.slice(0, SIZES.indexOf(found.size) + 1);
  for (const zoom of ZOOMS) {
    const low = (room - text) / zoom;
    const larger = sized(kind, sizes, width / zoom, low, low);
    if (larger) return { ...larger, zoom };
  }
  return { ...found, zoom: 1 };
}

// The first of these sizes that fits.
function sized(kind, sizes, width, usual, highest) {
  const most = Math.max(1, ...DATA.slots.map((each) => each.length));
  for (const size of sizes) {
    const found = (kind === "row" ? rowOf : circleOf)(size, most, width, highest, usual);
    if (found) return { ...found, kind, size };
  }
  return null;
}

function cardOf(size, slots, columns) {
  const rows = Math.ceil(slots / columns);
  return {
    columns,
    w: columns * (size.width + BETWEEN) - BETWEEN + 2 * EDGE,
    h: TITLE + rows * (size.height + BETWEEN) - BETWEEN + 2 * EDGE,
  };
}

// ------------------------------------------------------------------------------ in a circle

// As few columns of chunks and as round as a low picture allows; otherwise as low as possible.
function circleOf(size, slots, width, highest, low) {
  let best = null;
  for (let columns = 1; columns <= Math.min(slots, 8); columns += 1) {
    // A last row with few chunks wastes room.
    if (slots % columns && slots % columns < columns / 2) continue;
    const card = cardOf(size, slots, columns);
    for (const power of POWERS) {
      const found = ellipse(card, size.gap, width, power);
      if (found && found.height <= low) return found;
      if (found && found.height <= highest && !(best?.height <= found.height)) best = found;
    }
  }
  return best;
}

// As low as possible without overlapping cards.
function ellipse(card, gap, width, power) {
  const across = Math.min((width - card.w) / 2, 110 + 26 * DATA.n + 0.8 * card.w);
  if (across < 0) return null;
  for (let down = 0; 2 * down + card.h <= TALLEST + card.h / 2; down += 10) {
    const centres = positions(across, down, power);
    if (areApart(centres, card, gap)) return circleAt(centres, card, width);
  }
  return null;
}

// Evenly spaced along the outline. Rank 0 is at the top left, rank 1 at the top right.
function positions(across, down, power) {
  const points = Array.from({ length: POINTS + 1 }, (_, at) => outline(across, down, power, at));
  const lengths = [0];
  for (let at = 1; at <= POINTS; at += 1) {
    const [[x, y], [u, v]] = [points[at - 1], points[at]];
    lengths.push(lengths[at - 1] + Math.hypot(x - u, y - v));
  }
  return Array.from({ length: DATA.n }, (_, rank) => {
    const wanted = (((rank - 0.5 + DATA.n) % DATA.n) / DATA.n) * lengths[POINTS];
    const at = lengths.findIndex((each) => each >= wanted);
    const share = (wanted - lengths[at - 1]) / (lengths[at] - lengths[at - 1]);
    return [0, 1].map((i) => points[at - 1][i] + share * (points[at][i] - points[at - 1][i]));
  });
}

// Clockwise from the top.
function outline(across, down, power, at) {
  const angle = (2 * Math.PI * at) / POINTS - Math.PI / 2;
  const squarer = (value) => Math.sign(value) * Math.abs(value) ** power;
  return [across * squarer(Math.cos(angle)), down * squarer(Math.sin(angle))];
}

function areApart(centres, card, gap) {
  return centres.every(([x, y], at) =>
    centres
      .slice(at + 1)
      .every(([u, v]) => Math.abs(x - u) >= card.w + gap || Math.abs(y - v) >= card.h + gap),
  );
}

function circleAt(centres, card, width) {
  const top = Math.min(...centres.map((each) => each[1]));
  const low = Math.max(...centres.map((each) => each[1]));
  const cards = centres.map(([x, y]) => ({ ...card, x: width / 2 + x - card.w / 2, y: y - top }));
  return { cards, width, height: low - top + card.h };
}

// -------------------------------------------------------------------------------- in a row

function rowOf(size, slots, width, highest) {
  const between = Math.max(2, Math.min(24, width / DATA.n / 8));
  const room = width / DATA.n - between - 2 * EDGE;
  for (let columns = 1; columns <= Math.min(slots, 8); columns += 1) {
    const own = (room + BETWEEN) / columns - BETWEEN;
    if (own < size.least) return null;
    const fitting = { ...size, width: Math.min(own, 1.3 * size.width) };
    const found = rowAt(cardOf(fitting, slots, columns), width, between);
    if (found.height <= highest) return found;
  }
  return null;
}

function rowAt(card, width, between) {
  const [above, below] = arches();
  const step = Math.min(width / DATA.n, card.w + 90 + between);
  const left = (width - step * DATA.n) / 2 + (step - card.w) / 2;
  const cards = Array.from({ length: DATA.n }, (_, rank) => ({
    ...card,
    x: left + rank * step,
    y: above,
  }));
  return { cards, width, height: above + card.h + below };
}

// Room for arches: messages to the right go above, those to the left below.
function arches() {
  let [right, left] = [0, 0];
  for (const { messages } of DATA.rounds) {
    for (const { src, dst } of messages) {
      if (dst > src) right = Math.max(right, dst - src);
      else left = Math.max(left, src - dst);
    }
  }
  return [arch(right), arch(left)];
}

function arch(ranks) {
  return ranks ? Math.min(130, 34 + 12 * ranks) : 4;
}

// ------------------------------------------------------------------------ paths of messages

// A curve from card to card: three points of a parabola. `twin` separates equal messages.
function curveOf(layout, message, twin) {
  const [from, to] = [layout.cards[message.src], layout.cards[message.dst]];
  if (layout.kind === "row") return archCurve(from, to, message, twin);
  return freeCurve(layout, from, to, twin);
}

function archCurve(from, to, { src, dst }, twin) {
  const up = dst > src;
  const y = up ? from.y - 2 : from.y + from.h + 2;
  const high = (up ? -1 : 1) * (arch(Math.abs(dst - src)) - 14 + 8 * twin);
  const [x, u] = [from.x + from.w * (up ? 0.6 : 0.4), to.x + to.w * (up ? 0.4 : 0.6)];
  return [[x, y], [(x + u) / 2, y + 2 * high], [u, y]];
}

// Bend left, so that the opposite direction is on the other side; around other cards if possible.
function freeCurve(layout, from, to, twin) {
  const others = layout.cards.filter((each) => each !== from && each !== to);
  const curves = BENDS.map((bend) => bentCurve(from, to, bend + 0.08 * twin));
  const crossed = (curve) => others.filter((card) => crosses(curve, card)).length;
  const hits = curves.map((curve) => crossed(curve) + leavesPicture(curve, layout));
  return curves[hits.indexOf(Math.min(...hits))];
}

// Leaving the picture is worse than crossing a card.
function leavesPicture(curve, { width, height }) {
  const isOutside = ([x, y]) => x < 0 || x > width || y < 0 || y > height;
  return pointsOf(curve).some(isOutside) ? DATA.n : 0;
}

function crosses(curve, { x, y, w, h }) {
  return pointsOf(curve).some(([u, v]) => u > x - 6 && u < x + w + 6 && v > y - 6 && v < y + h + 6);
}

function bentCurve(from, to, bend) {
  const [a, b] = [middle(from), middle(to)];
  const bow = [(a[0] + b[0]) / 2 + (b[1] - a[1]) * bend, (a[1] + b[1]) / 2 - (b[0] - a[0]) * bend];
  return [border(from, bow, 3), bow, border(to, bow, 6)];
}

function middle({ x, y, w, h }) {
  return [x + w / 2, y + h / 2];
}

// Point slightly outside the card on the line from its centre to a given point.
function border(card, [x, y], further) {
  const [u, v] = middle(card);
  const [dx, dy] = [x - u, y - v];
  const half = [card.w / 2 + further, card.h / 2 + further];
  const share = Math.min(half[0] / Math.abs(dx || 1e-9), half[1] / Math.abs(dy || 1e-9));
  return [u + dx * share, v + dy * share];
}

function pointsOf(curve) {
  return Array.from({ length: 19 }, (_, at) => pointOn(curve, (at + 1) / 20));
}

function pointOn([a, b, c], t) {
  const mix = (at) => (1 - t) ** 2 * a[at] + 2 * t * (1 - t) * b[at] + t ** 2 * c[at];
  return [mix(0), mix(1)];
}
