// Texts of chunks and rounds.

// "0 1 2 3"; more than `few` as ranges: "0–6 9".
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
  return parts.join(" ");
}

function markOf(cell) {
  return cell && cell.complete ? "✓" : "";
}

// Text of a table cell: contributions with a sign, then the numbers.
function tableText(cell) {
  if (!cell) return "·";
  const head = [rankList(cell.ranks), markOf(cell)].filter(Boolean).join(" ");
  return cell.values.length ? `${head}\n${cell.values.join(" ")}` : head;
}

// Full description of a chunk on a rank.
function cellText(k, rank, chunk) {
  const cell = stateAfter(k)[rank].get(chunk);
  const lines = [`Rank ${rank}, chunk ${DATA.chunks[chunk]}, ${whenText(k)}`];
  lines.push(...(cell ? contentText(cell) : ["Not held."]));
  if (DATA.wanted[rank].includes(chunk)) lines.push("This rank needs it at the end.");
  return lines.join("\n");
}

function contentText(cell) {
  const several = cell.ranks.length > 1 ? "s" : "";
  const whose = `Holds the contribution${several} of ${rankList(cell.ranks)}.`;
  const lines = [cell.complete ? `${whose} ✓ Complete.` : `${whose} Not complete.`];
  if (cell.values.length) lines.push(`Numbers: ${cell.values.join(" ")}`);
  return lines;
}

// Messages and result of a round; the result of a running round is not known yet.
function roundText(k) {
  const [head, sent, after] = DATA.words[k];
  return sent ? `${head}: ${sent} ${after}` : `${head}. ${after}`;
}

function runningText(k) {
  const [head, sent] = DATA.words[k];
  return `${head}, under way: ${sent}`;
}

function whenText(k) {
  if (LAST === 0) return "from the start";
  if (k === 0) return "before the first round";
  return `after round ${k} of ${LAST}`;
}

// Label of a message's chunks: "chunk 2", "chunks 0–3", "0→1"; without the word, "2".
function chunkLabel(message, worded) {
  if (DATA.chunks.length === 1) return "tensor";
  const names = expand(message.chunks).map((each) => DATA.chunks[each]);
  const runs = message.chunks.length === 2;
  if (names.length > 3 && !runs) return `${names.length} chunks`;
  const label = names.length > 3 ? `${names[0]}–${names.at(-1)}` : names.join(" ");
  return worded && !NAMED ? `${names.length > 1 ? "chunks" : "chunk"} ${label}` : label;
}

// Colour of a rank. Neighbours are far apart in hue (the golden angle) and differ in lightness.
function colourOf(rank) {
  const hue = (250 + rank * 137.508) % 360;
  const step = rank % 2 ? 0.06 : 0;
  return `light-dark(oklch(${0.56 + step} 0.15 ${hue}), oklch(${0.72 + step} 0.13 ${hue}))`;
}
