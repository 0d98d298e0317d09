// A link to a place of the page goes there, and its address is copied.
(() => {
  const said = document.createElement("div");
  said.className = "ar-copied d-print-none";
  said.setAttribute("role", "status");
  document.body.append(said);
  let gone;
  document.addEventListener("click", async (event) => {
    const link = event.target.closest?.("a.headerlink");
    if (!link || event.ctrlKey || event.metaKey || event.shiftKey || !navigator.clipboard) return;
    try {
      await navigator.clipboard.writeText(link.href);
    } catch {
      return; // not allowed to copy: the address is in the address bar
    }
    clearTimeout(gone);
    said.textContent = "Address copied";
    gone = setTimeout(() => (said.textContent = ""), 2500);
  });
})();
