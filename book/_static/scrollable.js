// Makes a box that scrolls reachable by keyboard, and only while it does scroll.
(() => {
  const observer = new ResizeObserver((entries) => {
    for (const { target } of entries) {
      const scrolls = target.scrollWidth > target.clientWidth || target.matches(".ar-picture") && target.scrollHeight > target.clientHeight;
      if (scrolls) target.tabIndex = 0;
      else target.removeAttribute("tabindex");
    }
  });
  for (const box of document.querySelectorAll(".bd-article :is(pre, div.math, .pst-scrollable-table-container, .ar-picture)")) {
    observer.observe(box);
  }
})();
