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

// Values of a chunk: all, or if they are longer than so many characters the first.
function valueText(cell, most = Infinity) {
  const all = [...cell.values, ...(cell.values.length < DATA.elements[cell.chunk] ? ["…"] : [])];
  const text = all.join(" ");
  return text.length <= most || all.length < 2 ? text : `${all[0]} …`;
}

// Text instead of a chunk that a rank doesn't hold, and if it holds none.
const [ABSENT, NOTHING] = ["—", "nothing"];

// Text of a table cell: values with a sign, then whose data they contain.
function tableText(cell, held) {
  if (!cell) return held.size ? ABSENT : NOTHING;
  const head = [valueText(cell), markOf(cell)].filter(Boolean).join(" ");
  return `${head}\nfrom ${rankList(cell.ranks)}`;
}

// Full description of a chunk on a rank.
function cellText(k, rank, chunk) {
  const cell = stateAfter(k)[rank].get(chunk);
  const what = DATA.chunks.length > 1 ? `chunk ${DATA.chunks[chunk]}, ` : "";
  const lines = [`Rank ${rank}, ${what}${whenText(k)}`];
  lines.push(...(cell ? contentText(cell) : ["Not held."]));
  if (DATA.wanted[rank].includes(chunk)) lines.push("This rank needs it at the end.");
  return lines.join("\n");
}

function contentText(cell) {
  const several = cell.ranks.length > 1 ? "s" : "";
  const whose = `Data of rank${several} ${rankList(cell.ranks)}.`;
  const lines = [cell.complete ? `${whose} ✓ Complete.` : whose];
  if (cell.values.length) lines.push(`Values: ${valueText(cell)}`);
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

// Label of a message's chunks: "chunk 2", "chunks 0–3", "0→1"; without the word, "2". A version that
// isn't the one held now is named: "last tensor".
function chunkLabel(message, worded) {
  const label = chunkNames(message, worded);
  return message.version ? `${message.version} ${label}` : label;
}

function chunkNames(message, worded) {
  if (DATA.chunks.length === 1) return "tensor";
  const names = expand(message.chunks).map((each) => DATA.chunks[each]);
  const runs = message.chunks.length === 2;
  if (names.length > 3 && !runs) return `${names.length} chunks`;
  const label = names.length > 3 ? `${names[0]}–${names.at(-1)}` : names.join(" ");
  return worded && !NAMED ? `${names.length > 1 ? "chunks" : "chunk"} ${label}` : label;
}

// Colour of a rank, from the palette of all views.
function colourOf(rank) {
  return `var(--rank-${rank})`;
}
