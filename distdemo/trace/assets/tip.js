// What a chunk holds, beside it: on hover and on focus. Esc hides it; the pointer may go onto it.

const tip = document.getElementById("tip");
let told = null; // the chunk that it is about

function showTip(element) {
  told = element;
  refreshTip();
}

function hideTip() {
  told = null;
  tip.hidden = true;
}

// Another round, another text.
function refreshTip() {
  if (!told || !told.isConnected) return hideTip();
  tip.textContent = cellWords(player.shown(), Number(told.dataset.rank), Number(told.dataset.chunk));
  tip.hidden = false;
  const [box, own] = [told.getBoundingClientRect(), tip.getBoundingClientRect()];
  const below = box.bottom + own.height + 8 < window.innerHeight;
  const left = Math.max(4, Math.min(box.left, window.innerWidth - own.width - 4));
  tip.style.left = `${left}px`;
  tip.style.top = `${Math.max(4, below ? box.bottom + 4 : box.top - own.height - 4)}px`;
}

function cellAt(target) {
  return target instanceof Element ? target.closest("#stage .cell") : null;
}

function watchCells() {
  stage.addEventListener("pointerover", (event) => {
    const cell = cellAt(event.target);
    if (cell) showTip(cell);
  });
  stage.addEventListener("pointerout", (event) => {
    if (!tip.contains(event.relatedTarget) && !cellAt(event.relatedTarget)) hideTip();
  });
  tip.addEventListener("pointerleave", hideTip);
  stage.addEventListener("focusin", (event) => cellAt(event.target) && showTip(event.target));
  stage.addEventListener("focusout", hideTip);
  window.addEventListener("scroll", () => told && refreshTip(), { passive: true });
}
