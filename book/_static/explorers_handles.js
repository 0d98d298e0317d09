// Lets a hand move what Python says can be moved: a grip knows its control and where it stands at each value of it.
// A drag along a grip's axis is ours, across it the page's, which scrolls; Escape takes back what a drag or keys did.
(() => {
  const calm = matchMedia("(prefers-reduced-motion: reduce)");
  for (const figure of document.querySelectorAll("figure.ar-explorer")) hold(figure);

  function hold(figure) {
    const { handles } = JSON.parse(figure.querySelector("script").textContent);
    let drag = null;
    let before = null; // [grip, its place] when it got the focus

    for (const [which, over] of Object.entries(handles ?? {})) {
      const picture = figure.querySelector(`.ar-${which}`);
      lay(picture, over);
      picture.addEventListener("pointerdown", take);
      picture.addEventListener("pointermove", move);
      picture.addEventListener("touchmove", keep, { passive: false });
      picture.addEventListener("pointerup", leave);
      picture.addEventListener("pointercancel", cancel);
      picture.addEventListener("focusin", ({ target }) => { if (grip(target)) before = [target, place(target)]; });
      picture.addEventListener("keydown", key, { capture: true });
    }

    figure.addEventListener("ar-drawn", ({ detail }) => { if (detail) lay(detail.picture, detail.handles ?? ""); });

    const grip = (target) => target.closest?.(".ar-handle");
    const stops = (one) => one.dataset.stops.split(" ").map((stop) => stop.split("="));
    const place = (one) => Number(one.dataset.place ?? one.getAttribute("aria-valuenow"));

    function put(one, where, done) {
      const [value] = stops(one)[where];
      one.dataset.place = where; // until it is drawn there
      figure.dispatchEvent(new CustomEvent("ar-hand", { detail: { sets: `${one.dataset.id}=${value}`, done } }));
    }

    /** Where a pointer is along the axis of a grip, in the picture's own pixels. */
    function along(one, event) {
      const [box, view] = [one.ownerSVGElement.getBoundingClientRect(), one.ownerSVGElement.viewBox.baseVal];
      const across = one.dataset.axis === "x";
      return across ? (event.clientX - box.left) * view.width / box.width : (event.clientY - box.top) * view.height / box.height;
    }

    function take(event) {
      const one = grip(event.target);
      if (!one || drag || event.button || !event.isPrimary) return;
      const [way, first] = [stops(one).map((stop) => Number(stop[1])), place(one)];
      drag = { one, way, first, off: along(one, event) - way[first], pointer: event.pointerId, from: event };
      event.currentTarget.setPointerCapture(event.pointerId);
      one.focus({ preventScroll: true });
      figure.classList.add("ar-dragged");
      event.preventDefault();
    }

    function move(event) {
      if (!drag || event.pointerId !== drag.pointer) return;
      const at = along(drag.one, event) - drag.off;
      const near = drag.way.reduce((best, stop, i) => (Math.abs(stop - at) < Math.abs(drag.way[best] - at) ? i : best), place(drag.one));
      if (near !== place(drag.one)) put(drag.one, near);
    }

    /** A finger that sets out along the axis drags, and the page does not scroll; across it, it scrolls. */
    function keep(event) {
      if (!drag) return;
      const [{ clientX, clientY }, { from, one }] = [event.touches[0], drag];
      const [along, across] = [Math.abs(clientX - from.clientX), Math.abs(clientY - from.clientY)];
      drag.ours ??= one.dataset.axis === "x" ? along >= across : across >= along;
      if (drag.ours && event.cancelable) event.preventDefault();
    }

    function leave() {
      if (!drag) return;
      const { one, first } = drag;
      drag = null;
      figure.classList.remove("ar-dragged");
      const settle = () => {
        const shown = Number(one.getAttribute("aria-valuenow"));
        if (figure.classList.contains("ar-stale")) put(one, shown, true); // what is refused is not kept
        else if (place(one) !== first || shown !== first) put(one, place(one), true);
      };
      if (!figure.hasAttribute("aria-busy")) return settle();
      const answered = new AbortController(); // only the answer tells whether it is refused
      for (const how of ["ar-drawn", "ar-refused"]) {
        figure.addEventListener(how, () => { answered.abort(); settle(); }, { signal: answered.signal });
      }
    }

    function cancel() {
      if (!drag) return;
      const { one, first } = drag;
      drag = null;
      figure.classList.remove("ar-dragged");
      if (place(one) !== first || Number(one.getAttribute("aria-valuenow")) !== first) put(one, first, true);
    }

    function key(event) {
      const one = grip(event.target);
      if (!one) return;
      const last = stops(one).length - 1;
      const far = Math.max(1, Math.round(last / 10));
      const by = { ArrowRight: 1, ArrowUp: 1, ArrowLeft: -1, ArrowDown: -1, PageUp: far, PageDown: -far, Home: -last, End: last }[event.key];
      const wanted = Math.max(0, Math.min(last, place(one) + by));
      if (event.key === "Escape" && drag) cancel();
      else if (event.key === "Escape" && before?.[0] === one && before[1] !== place(one)) put(one, before[1], true);
      else if (by && !drag) { if (wanted !== place(one)) put(one, wanted, true); }
      else return;
      event.preventDefault();
      event.stopPropagation(); // a lecture turns its slides with these keys
    }
  }

  /** Lays `over` on a picture. What has an id stays the same element, so that it keeps the focus and can move on. */
  function lay(picture, over) {
    const box = document.createElement("div");
    box.innerHTML = over;
    const [fresh, old] = [box.firstElementChild, picture.querySelector(".ar-grips")];
    if (!fresh) return old?.replaceChildren();
    if (!old) return picture.append(fresh);
    old.setAttribute("viewBox", fresh.getAttribute("viewBox"));
    const known = new Map([...old.children].map((one) => [one.dataset.id, one]));
    for (const one of [...fresh.children]) {
      const same = known.get(one.dataset.id);
      known.delete(one.dataset.id);
      if (!same) { old.append(one); continue; }
      const goes = same.style.transform !== one.style.transform;
      for (const { name, value } of one.attributes) if (same.getAttribute(name) !== value) same.setAttribute(name, value);
      const [kept, ...others] = same.children;
      others.forEach((part) => part.remove()); // but the part that a finger may be on: a touch ends with its target
      if (kept?.matches(".ar-reach")) same.append(...[...one.children].slice(1));
      else same.innerHTML = one.innerHTML;
      delete same.dataset.place;
      if (goes && same.matches(".ar-moving")) fly(same);
    }
    known.forEach((one) => one.remove());
  }

  /** Shows a thing while it moves, which is what the stylesheet does to it. */
  function fly(one) {
    if (calm.matches) return;
    one.animate([{ opacity: 0.9 }, { opacity: 0.9, offset: 0.8 }, { opacity: 0 }], 400);
  }
})();
