// Makes a box that scrolls reachable by keyboard, and only while it does scroll.
(() => {
  const scrolls = (box) => box.scrollWidth > box.clientWidth || box.matches(".ar-picture") && box.scrollHeight > box.clientHeight;
  const observer = new ResizeObserver((entries) => {
    // First all are measured, then those that differ are changed: a change in between costs a layout.
    const found = entries.map(({ target }) => [target, scrolls(target)]);
    for (const [box, so] of found) {
      if (so === (box.getAttribute("tabindex") === "0")) continue;
      if (so) box.tabIndex = 0;
      else box.removeAttribute("tabindex");
    }
  });
  for (const box of document.querySelectorAll(".bd-article :is(pre, div.math, .pst-scrollable-table-container, .ar-picture)")) {
    observer.observe(box);
  }
})();
