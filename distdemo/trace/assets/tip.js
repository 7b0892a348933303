// Tooltip of a chunk, on hover and focus. Esc hides it; the pointer may move onto it.

const tip = document.getElementById("tip");
let target = null; // the chunk that it describes

function showTip(element) {
  target = element;
  refreshTip();
}

function hideTip() {
  target = null;
  tip.hidden = true;
}

// Called when the round changes.
function refreshTip() {
  if (!target || !target.isConnected) return hideTip();
  tip.textContent = cellText(player.shown(), Number(target.dataset.rank), Number(target.dataset.chunk));
  tip.hidden = false;
  const [box, own] = [target.getBoundingClientRect(), tip.getBoundingClientRect()];
  const below = box.bottom + own.height + 8 < window.innerHeight;
  const left = Math.max(4, Math.min(box.left, window.innerWidth - own.width - 4));
  tip.style.left = `${left}px`;
  tip.style.top = `${Math.max(4, below ? box.bottom + 4 : box.top - own.height - 4)}px`;
}

function cellAt(target) {
  return target instanceof Element ? target.closest("#stage .cell") : null;
}

function listenToCells() {
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
  window.addEventListener("scroll", () => target && refreshTip(), { passive: true });
}
