// Makes a box that scrolls sideways reachable by keyboard, and only while it does scroll.
(() => {
  const observer = new ResizeObserver((entries) => {
    for (const { target } of entries) {
      if (target.scrollWidth > target.clientWidth) target.tabIndex = 0;
      else target.removeAttribute("tabindex");
    }
  });
  for (const box of document.querySelectorAll(".bd-article :is(pre, div.math, .pst-scrollable-table-container)")) {
    observer.observe(box);
  }
})();
