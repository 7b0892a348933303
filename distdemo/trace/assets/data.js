// The recorded run, and the state of all ranks after k rounds.

const DATA = JSON.parse(document.getElementById("data").textContent);
const LAST = DATA.rounds.length;
const NAMED = DATA.chunks.some((name, chunk) => name !== `${chunk}`); // such as 0→1

// One Map of chunk → cell per rank, per round. Computed on demand and never changed.
const states = [
  (DATA.start ?? []).map((cells) => new Map(cells.map((each) => [each[0], cellOf(each)]))),
];

function cellOf([chunk, runs, complete, values]) {
  return { chunk, ranks: expand(runs), complete: complete === 1, values };
}

// Expand runs given by first and last: [0, 2, 5, 5] becomes 0 1 2 5.
function expand(runs) {
  const numbers = [];
  for (let at = 0; at < runs.length; at += 2) {
    for (let each = runs[at]; each <= runs[at + 1]; each += 1) numbers.push(each);
  }
  return numbers;
}

function stateAfter(k) {
  while (states.length <= k) {
    states.push(changed(states[states.length - 1], DATA.rounds[states.length - 1]));
  }
  return states[k];
}

function changed(before, round) {
  return before.map((held, rank) => {
    const arrived = round.arrived[rank];
    const gone = round.gone[rank];
    if (!arrived && !gone) return held;
    const now = new Map(held);
    (gone || []).forEach((chunk) => now.delete(chunk));
    (arrived || []).forEach((each) => now.set(each[0], cellOf(each)));
    return now;
  });
}

// Chunks that arrived in round k, as "rank:chunk"; chunks without elements are not sent.
function arrivedIn(k) {
  const found = new Set();
  if (k === 0) return found;
  for (const { dst, chunks } of DATA.rounds[k - 1].messages) {
    expand(chunks).forEach((chunk) => found.add(`${dst}:${chunk}`));
  }
  return found;
}
