// A word of the glossary or a citation shows its entry beside it: on hover, on keyboard focus, and on tap.
// Without this script, or where a browser knows no popover, both are links to the entry.
(() => {
  if (!HTMLElement.prototype.showPopover) return;
  const POINTERS = 'a[href*="glossary.html#term-"], a[href*="bibliography.html#"]';
  const book = new URL(`${document.documentElement.dataset.content_root}book/`, location.href);
  const card = document.createElement("span");
  card.id = "ar-card-of";
  card.className = "ar-card-of d-print-none";
  card.popover = "manual";
  card.setAttribute("role", "tooltip");
  let wanted = null; // the link whose card is open or about to be
  let timer;
  let loading;

  function entries() {
    return (loading ??= new Promise((resolve) => {
      const script = document.createElement("script");
      script.src = new URL("../_static/cards.js", book);
      script.onload = () => resolve(window.allRanksCards);
      script.onerror = () => resolve({}); // a link stays a link
      document.head.append(script);
    }));
  }

  const pointer = (event) => event.target.closest?.(POINTERS);
  const inside = (node) => node instanceof Node && (card.contains(node) || Boolean(wanted?.contains(node)));

  function place(link) {
    const boxes = link.getClientRects();
    const beside = boxes[boxes.length - 1];
    const { width, height } = card.getBoundingClientRect();
    const left = Math.max(16, Math.min(beside.left, document.documentElement.clientWidth - width - 16));
    const below = beside.bottom + 6;
    const above = boxes[0].top - 6 - height;
    const top = below + height > innerHeight && above > 0 ? above : below;
    card.style.left = `${left + scrollX}px`;
    card.style.top = `${top + scrollY}px`;
  }

  async function show(link) {
    clearTimeout(timer);
    if (wanted === link && card.isConnected) return true;
    hide();
    wanted = link;
    const { pathname, hash } = new URL(link.href);
    const entry = (await entries())[pathname.split("/").pop() + hash];
    if (wanted !== link) return true;
    if (!entry) return false;
    card.innerHTML = entry;
    const whole = card.appendChild(document.createElement("a"));
    whole.className = "ar-whole";
    whole.setAttribute("href", link.href);
    whole.textContent = pathname.endsWith("glossary.html") ? "Open the glossary" : "Open the bibliography";
    for (const each of card.querySelectorAll("a")) {
      each.href = new URL(each.getAttribute("href"), book);
      each.tabIndex = -1; // Tab goes on in the text; the entry itself, one Enter away, has the same links
    }
    link.after(card);
    link.setAttribute("aria-describedby", card.id);
    card.showPopover();
    place(link);
    return true;
  }

  function hide() {
    clearTimeout(timer);
    wanted?.removeAttribute("aria-describedby");
    wanted = null;
    card.remove();
  }

  function later(act, milliseconds) {
    clearTimeout(timer);
    timer = setTimeout(act, milliseconds);
  }

  document.addEventListener("pointerover", (event) => {
    if (event.pointerType === "touch") return;
    const link = pointer(event);
    if (link && !card.contains(link)) later(() => show(link), 200);
    else if (inside(event.target)) clearTimeout(timer);
    else if (wanted && !inside(document.activeElement)) later(hide, 250);
    else clearTimeout(timer);
  });
  document.addEventListener("focusin", (event) => {
    const link = pointer(event);
    if (link && !card.contains(link)) link.matches(":focus-visible") && show(link);
    else if (wanted && !inside(event.target)) hide();
  });
  document.addEventListener("pointerdown", (event) => wanted && !inside(event.target) && hide());
  document.addEventListener("click", async (event) => {
    const link = pointer(event);
    if (!link || card.contains(link) || event.pointerType !== "touch") return;
    event.preventDefault();
    if (wanted === link) hide();
    else if (!(await show(link))) location.assign(link.href);
  });
  document.addEventListener("keydown", (event) => event.key === "Escape" && wanted && hide());
})();
