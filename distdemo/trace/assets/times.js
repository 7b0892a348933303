// Time line of each rank: measured working and waiting times.

const MARGIN = 62; // room for the names of ranks
const AXIS = 20; // room for the scale
let clock = null; // { x: seconds → pixels, needle, bars: one per round }

function drawTimes() {
  const frame = document.getElementById("times");
  document.getElementById("no-times").hidden = TIMED;
  frame.hidden = !TIMED;
  document.getElementById("times-legend").hidden = !TIMED;
  if (!TIMED) return;
  frame.replaceChildren();
  const height = DATA.n <= 16 ? 16 : 8;
  const width = Math.max(frame.clientWidth / unit || 600, LAST * 5 + MARGIN + 20, 320);
  const total = Math.max(...DATA.rounds.flatMap((each) => each.moments.map((m) => m[3])));
  const x = (seconds) => MARGIN + (seconds / total) * (width - MARGIN - 16);
  const high = DATA.n * height + AXIS;
  const size = { width: width * unit, height: high * unit, viewBox: `0 0 ${width} ${high}` };
  const picture = svg("svg", { ...size, role: "img", "aria-label": timesText(total) }, frame);
  drawScale(picture, x, total, DATA.n * height);
  drawNames(picture, height);
  const bars = DATA.rounds.map((round, at) => drawBusy(picture, x, height, round, at + 1));
  const needle = svg("line", { class: "needle", y1: 0, y2: DATA.n * height }, picture);
  clock = { x, needle, bars };
}

function timesText(total) {
  return `Time line: ${DATA.n} ranks and ${LAST} rounds in ${duration(total)}. `
    + "The table of all rounds says how long each took.";
}

function drawScale(picture, x, total, bottom) {
  for (let at = 0; at <= 4; at += 1) {
    const place = x((total * at) / 4);
    svg("line", { class: "tick", x1: place, x2: place, y1: 0, y2: bottom + 4 }, picture);
    const anchor = at === 4 ? "end" : at === 0 ? "start" : "middle";
    const text = { x: place, y: bottom + 16, "text-anchor": anchor };
    svg("text", text, picture).textContent = at ? duration((total * at) / 4) : "0";
  }
}

function drawNames(picture, height) {
  const step = height < 12 ? 4 : 1; // names of all ranks would overlap
  for (let rank = 0; rank < DATA.n; rank += step) {
    svg("text", { x: 0, y: rank * height + 12 }, picture).textContent = `Rank ${rank}`;
  }
}

// A rank works while it packs, posts and reduces; in between it waits, drawn as a thin line.
function drawBusy(picture, x, height, { moments, phase }, round) {
  const group = svg("g", { class: "busy" }, picture);
  moments.forEach(([began, posted, arrived, ended], rank) => {
    if (ended <= began) return;
    const y = rank * height + 2;
    const row = svg("g", { "data-round": round }, group);
    const line = (from, to, name, top, thick) => svg("rect", {
      class: name, x: x(from), y: top, width: Math.max(0.5, x(to) - x(from)), height: thick,
    }, row);
    line(began, ended, "whole", y, height - 3); // hover target
    line(posted, arrived, "waits", y + (height - 3) / 2 - 1, 2);
    line(began, posted, "works", y, height - 3);
    line(arrived, ended, "works", y, height - 3);
    svg("line", { class: "begins", x1: x(began), x2: x(began), y1: y, y2: y + height - 3 }, row);
    const name = `Round ${round}${phase && `, ${phase}`}: rank ${rank}`;
    const words = `worked ${duration(posted - began + ended - arrived)}, `
      + `waited ${duration(arrived - posted)}`;
    svg("title", {}, row).textContent = `${name} ${words}`;
  });
  return group;
}

// Show the time after k rounds and fraction t of the next one.
function showTimes(k, t) {
  if (!clock) return;
  const round = t > 0 ? k + 1 : k;
  clock.bars.forEach((bar, at) => bar.classList.toggle("now", at + 1 === round));
  const [began, ended] = (round && span(round)) || [lastEnd(round), lastEnd(round)];
  const place = clock.x(t > 0 ? began + (ended - began) * t : ended).toFixed(1);
  clock.needle.setAttribute("x1", place);
  clock.needle.setAttribute("x2", place);
}

// A round without a message takes no time, so the needle stays.
function lastEnd(round) {
  for (let at = round; at > 0; at -= 1) {
    const found = span(at);
    if (found) return found[1];
  }
  return 0;
}
