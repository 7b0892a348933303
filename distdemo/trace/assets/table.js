// The state as a table of ranks and chunks, or, if that is too wide, one list per rank.

const WIDEST = 64; // largest number of chunks shown as columns
const AS_LISTS = DATA.chunks.length > WIDEST;
const fields = new Map(); // "rank:chunk", or "rank" for a list → { field, shown }

function buildTable() {
  const table = addElement("table", AS_LISTS ? "lists" : "", document.getElementById("state"));
  table.setAttribute("aria-labelledby", "state-title");
  const head = addElement("tr", "", addElement("thead", "", table));
  const names = DATA.chunks.length > 1 ? DATA.chunks.map((name) => `Chunk ${name}`) : ["Tensor"];
  const columns = AS_LISTS ? ["Holds"] : names;
  ["Rank", ...columns].forEach((text) => heading(head, "col", text));
  const body = addElement("tbody", "", table);
  DATA.slots.forEach((_, rank) => buildRow(addElement("tr", "", body), rank));
}

function heading(row, scope, text) {
  const cell = addElement("th", "", row);
  cell.scope = scope;
  cell.textContent = text;
}

function buildRow(row, rank) {
  heading(row, "row", `Rank ${rank}`);
  const keys = AS_LISTS ? [`${rank}`] : DATA.chunks.map((_, chunk) => `${rank}:${chunk}`);
  keys.forEach((key) => fields.set(key, { field: addElement("td", "", row), shown: null }));
}

function showTable(k) {
  const state = stateAfter(k);
  const arrived = arrivedIn(k);
  for (const [key, each] of fields) {
    const [rank, chunk] = key.split(":").map(Number);
    if (AS_LISTS) updateField(each, listText(state[rank]), "");
    else {
      const cell = state[rank].get(chunk);
      const named = { complete: cell && cell.complete, arrived: arrived.has(key) };
      const names = Object.keys(named).filter((name) => named[name]);
      updateField(each, tableText(cell, state[rank]), names.join(" "));
    }
  }
}

// Update only fields that changed: 64 ranks have 4,096 fields.
function updateField(each, text, name) {
  const shown = `${name}|${text}`;
  if (each.shown === shown) return;
  each.shown = shown;
  each.field.textContent = text;
  each.field.className = name;
}

// "3→0 ✓, 3→1: 30"; contributions are included only if chunks are reduced.
function listText(held) {
  const chunks = [...held.keys()].sort((a, b) => a - b);
  const parts = chunks.map((chunk) => {
    const cell = held.get(chunk);
    const whose = DATA.reduced ? `(${rankList(cell.ranks)})` : "";
    const mark = markOf(cell);
    return [DATA.chunks[chunk], whose, mark].filter(Boolean).join(" ");
  });
  return parts.join(", ") || NOTHING;
}
