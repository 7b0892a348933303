// Chunks in words and signs.

// "0 1 2 3", and of more than `few` their runs: "0–6 9". What is in it twice: "0 1 +0".
function rankList(ranks, few = 4) {
  const once = [...new Set(ranks)];
  const parts = [];
  for (let at = 0; at < once.length; ) {
    let end = at;
    while (once[end + 1] === once[end] + 1) end += 1;
    if (end - at < 2 || once.length <= few) end = at;
    parts.push(end > at ? `${once[at]}–${once[end]}` : `${once[at]}`);
    at = end + 1;
  }
  return [...parts, ...again(ranks).map((rank) => `+${rank}`)].join(" ");
}

function again(ranks) {
  return ranks.filter((rank, at) => ranks.indexOf(rank) < at);
}

function markOf(cell, wrong) {
  if (wrong) return "✗";
  return cell && cell.complete ? "✓" : "";
}

// For the table: contributions with a sign, and below them the numbers.
function tableText(cell, wrong) {
  if (!cell) return wrong ? "✗ ·" : "·";
  const head = [rankList(cell.ranks) || "nobody’s", markOf(cell, wrong)].filter(Boolean).join(" ");
  return cell.values.length ? `${head}\n${cell.values.join(" ")}` : head;
}

// Everything about a chunk of a rank, in sentences.
function cellWords(k, rank, chunk) {
  const cell = stateAfter(k)[rank].get(chunk);
  const wrong = wrongAt(k, rank, chunk);
  const lines = [`Rank ${rank}, chunk ${DATA.chunks[chunk]}, ${when(k)}`];
  lines.push(...(cell ? heldWords(cell) : ["Not there."]));
  if (DATA.wanted[rank].includes(chunk)) lines.push("This rank has to hold it at the end.");
  if (wrong) lines.push(`✗ Wrong: ${wrong.words}`);
  return lines.join("\n");
}

function heldWords(cell) {
  const once = [...new Set(cell.ranks)];
  const more = again(cell.ranks).map((rank) => `, ${rank} once more`).join("");
  const whose = once.length
    ? `Holds the contribution${cell.ranks.length > 1 ? "s" : ""} of ${rankList(once)}${more}.`
    : "Holds nobody’s contribution.";
  const lines = [cell.complete ? `${whose} ✓ Complete.` : `${whose} Not complete.`];
  if (cell.values.length) lines.push(`Numbers: ${cell.values.join(" ")}`);
  return lines;
}

// What was done in a round and what came of it; of one that is under way nobody knows that yet.
function roundWords(k) {
  const [head, sent, after] = DATA.words[k];
  return sent ? `${head}: ${sent} ${after}` : `${head}. ${after}`;
}

function underWayWords(k) {
  const [head, sent] = DATA.words[k];
  return `${head}, under way: ${sent}`;
}

function when(k) {
  if (LAST === 0) return "from the start on";
  if (k === 0) return "before the first round";
  return `after round ${k} of ${LAST}`;
}

// Chunks of a message: "2", "0–3", "0→1 0→3".
function chunkLabel(message) {
  const names = expanded(message.chunks).map((each) => DATA.chunks[each]);
  if (names.length > 3 && message.chunks.length === 2) return `${names[0]}–${names.at(-1)}`;
  return names.length > 3 ? `${names.length} chunks` : names.join(" ");
}

function duration(seconds) {
  if (seconds < 0.9995e-3) return `${(seconds * 1e6).toPrecision(3)} µs`;
  if (seconds < 0.9995) return `${(seconds * 1e3).toPrecision(3)} ms`;
  return `${seconds.toPrecision(3)} s`;
}

// A colour for each rank; neighbours are far apart (the golden angle), light and dark differ.
function colourOf(rank) {
  const hue = (250 + rank * 137.508) % 360;
  const step = rank % 2 ? 0.06 : 0;
  return `light-dark(oklch(${0.56 + step} 0.15 ${hue}), oklch(${0.72 + step} 0.13 ${hue}))`;
}
