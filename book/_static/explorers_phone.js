// On a phone, keeps in sight what a touched control changes in the picture above it.
// A picture may be higher than the screen. While one reads it is whole; from the first touch of a control there is a
// window on it below the header, moved to what has changed, and the control stays where the finger is.
(() => {
  for (const figure of document.querySelectorAll("figure.ar-explorer")) follow(figure);

  function follow(figure) {
    const form = figure.querySelector("form");
    const picture = figure.querySelector(".ar-narrow");
    let control = null; // the last one that was touched
    let before = null;

    const above = (element) => element.getBoundingClientRect().top;
    const hidden = () => Math.max(0, picture.getBoundingClientRect().bottom - above(control));

    for (const hand of ["pointerdown", "keydown"]) { // a touched mark or grip is in sight itself
      picture.addEventListener(hand, () => { control = null; });
    }
    for (const touch of ["input", "click"]) {
      form.addEventListener(touch, ({ target }) => { control = target.closest(".ar-control"); }, { capture: true });
    }

    figure.addEventListener("ar-drawing", () => {
      before = control && picture.offsetParent && {
        marks: marks(),
        control: above(control),
        picture: above(picture),
        hidden: hidden(),
        from: picture.scrollTop,
      };
    });

    figure.addEventListener("ar-drawn", () => {
      if (!before) return;
      figure.classList.add("ar-touched");
      const header = parseFloat(getComputedStyle(picture).top);
      const from = before.from || Math.max(0, header - before.picture);
      picture.scrollTop = best(changes(before.marks, marks()), picture.clientHeight, from);
      if (before.hidden) return; // the reader has scrolled on while it plays
      scrollBy(0, above(control) - before.control);
      scrollBy(0, -hidden());
    });

    figure.addEventListener("ar-refused", () => {
      figure.querySelector(".ar-refusal:not(:empty)").scrollIntoView({ block: "nearest" });
    });

    // Below the screen, where it moves nothing that is seen, the figure becomes whole again.
    new IntersectionObserver(([{ isIntersecting, boundingClientRect }]) => {
      if (!isIntersecting && boundingClientRect.top > 0) figure.classList.remove("ar-touched");
    }).observe(figure);

    // Whole, it comes to rest with its lower end in the window: how high it is, only a script can say.
    new ResizeObserver(() => figure.style.setProperty("--ar-high", `${picture.scrollHeight}px`)).observe(picture);

    /** What is drawn, each mark with its place, measured from the top of the picture. */
    function marks() {
      const top = above(picture.firstElementChild);
      return [...picture.querySelectorAll(".ar-image > svg > :not(defs)")].slice(1).map((mark) => {
        const box = mark.getBoundingClientRect();
        return { drawn: mark.outerHTML, top: box.top - top, bottom: box.bottom - top };
      });
    }
  }

  /** The marks that only one of two pictures has. */
  function changes(old, made) {
    const lacking = (some) => {
      const known = new Set(some.map((mark) => mark.drawn));
      return (mark) => !known.has(mark.drawn);
    };
    return [...old.filter(lacking(made)), ...made.filter(lacking(old))];
  }

  /** From where a window of `high` pixels shows most of what has changed; `from`, where that shows half as much. */
  function best(changed, high, from) {
    const shown = (place) => changed.filter((mark) => mark.top >= place && mark.bottom <= place + high).length;
    let [most, where] = [0, from];
    for (const { top } of changed) {
      const number = shown(top - 4);
      if (number > most) [most, where] = [number, top - 4];
    }
    return shown(from) * 2 >= most ? from : where;
  }
})();
