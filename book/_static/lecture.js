// Turns a chapter into slides and back. No copy: the page's own nodes are shown a few at a time, and none is moved.
// lecture_slides.js says which belong together; lecture.css hides those that are not on the slide.
(() => {
  const root = document.documentElement;
  const article = document.querySelector("article.bd-article");
  const main = article.querySelector("section");
  const { piecesIn, chain, cut } = window.allRanksSlides;
  const MARK = /(?:^#|;)slide-(\d+)(?:-(.*))?$/;
  const KEYS = [
    ["next", ["ArrowRight", "ArrowDown", "PageDown", " "], "→ ↓ Page down, Space", "Next slide"],
    ["back", ["ArrowLeft", "ArrowUp", "PageUp", "Shift+ "], "← ↑ Page up, Shift + Space", "Slide before"],
    ["first", ["Home"], "Home", "First slide"],
    ["last", ["End"], "End", "Last slide"],
    ["notes", ["n"], "n", "Notes for the lecturer"],
    ["timer", ["t"], "t", "Start or pause the clock"],
    ["reset", ["r"], "r", "Set the clock to zero"],
    ["blank", ["b", "."], "b or .", "Dark screen; any key returns"],
    ["full", ["f"], "f", "Full screen"],
    ["help", ["?"], "?", "These keys"],
    ["leave", ["Escape"], "Esc", "Leave a control, then the lecture"],
  ];
  const action = new Map(KEYS.flatMap(([name, keys]) => keys.map((key) => [key, name])));
  // Whoever speaks to the computer, or hits keys unawares, can switch off those of one letter or sign.
  const STORE = "allranks-lecture-letters";
  const isLetter = (key) => key.length === 1 && key !== " ";
  let letters = true;
  try {
    letters = localStorage.getItem(STORE) !== "off";
  } catch {
    // no storage: they are on until switched off
  }
  let lecture; // what is remembered while slides are shown: undefined on the page

  const titleOf = (section) => section.querySelector("h1, h2, h3").firstChild.textContent;
  const top = (section) => (section.parentElement.parentElement === article ? section : top(section.parentElement));
  const sectionOf = (slide) => (slide.pieces[0].section.parentElement === article ? slide.pieces[0].section : top(slide.pieces[0].section));

  // ---- what is added to the page, and removed with the mode ----

  function made(tag, attributes, html = "") {
    const element = document.createElement(tag);
    for (const [name, value] of Object.entries({ "data-ar-lecture-ui": "", ...attributes })) element.setAttribute(name, value);
    element.innerHTML = html;
    return element;
  }

  function makeBar() {
    const button = (name, words, shown) => `<button type="button" data-do="${name}" title="${words}" aria-label="${words}">${shown}</button>`;
    const bar = made("section", { class: "ar-lecture-bar", "aria-label": "Lecture" }, `<h1> <small></small></h1><span class="ar-lecture-hint">Esc: back to the slides</span>
      <button type="button" data-do="notes" aria-pressed="false" title="Notes for the lecturer (n)">Notes</button>
      <button type="button" data-do="timer" aria-pressed="false" title="Clock: start or pause (t), zero (r)"><span class="ar-lecture-aloud">Clock </span><span class="ar-lecture-clock">0:00</span></button>
      ${button("help", "Keys (?)", "?")}${button("back", "Slide before (←)", "‹")}<span role="status"></span>${button("next", "Next slide (→)", "›")}${button("leave", "Leave the lecture (Esc)", "×")}`);
    bar.addEventListener("click", ({ target }) => {
      const name = target.closest("[data-do]")?.dataset.do;
      if (name) actions[name]();
    });
    return bar;
  }

  function makeHelp() {
    const rows = KEYS.map(([, , keys, words]) => `<tr><th scope="row">${keys}</th><td>${words}</td></tr>`).join("");
    const help = made("dialog", { class: "ar-lecture-help", "aria-label": "Keys of the lecture" }, `<table>${rows}</table>
      <p><label><input type="checkbox"${letters ? " checked" : ""}> Letters and signs are keys, <kbd>p</kbd> on the page too</label></p>
      <p>Keys go to a slider or a menu while it has the focus. A clicker sends Page up and Page down; swipe on a touch screen.</p>
      <form method="dialog"><button autofocus>Close</button></form>`);
    help.addEventListener("change", ({ target }) => useLetters(target.checked));
    return help;
  }

  function useLetters(wanted) {
    letters = wanted;
    try {
      if (letters) localStorage.removeItem(STORE);
      else localStorage.setItem(STORE, "off");
    } catch {
      // no storage: until the page is left
    }
  }

  // Notes stand behind what they speak of: those of this section, else the next ones.
  function notesFor(slide) {
    const section = sectionOf(slide);
    const own = [...section.querySelectorAll(":scope > .instructor")];
    if (own.length) return own;
    const all = [...article.querySelectorAll(".instructor")];
    return all.filter((note) => slide.pieces[0].node.compareDocumentPosition(note) & Node.DOCUMENT_POSITION_FOLLOWING).slice(0, 1);
  }

  function writeNotes() {
    const slide = lecture.slides[lecture.at];
    const notes = notesFor(slide);
    const texts = notes.map((note) => {
      const from = note.parentElement === sectionOf(slide) ? "" : `<p>From the end of <em></em>:</p>`;
      const copy = made("div", {}, from + [...note.children].slice(1).map((one) => one.outerHTML).join("").replace(/ id="[^"]*"/g, ""));
      if (from) copy.querySelector("em").textContent = titleOf(note.parentElement);
      return copy;
    });
    lecture.text.replaceChildren(...(texts.length ? texts : ["No more notes on this page."]));
  }

  // ---- the clock ----

  const minutes = (milliseconds) => `${Math.floor(milliseconds / 60000)}:${String(Math.floor(milliseconds / 1000) % 60).padStart(2, "0")}`;
  const spent = () => lecture.spent + (lecture.since ? performance.now() - lecture.since : 0);

  function tick() {
    lecture.bar.querySelector(".ar-lecture-clock").textContent = minutes(spent());
    lecture.panel.querySelector("header").textContent = `${minutes(spent())} in all, ${minutes(spent() - lecture.entered)} in this section`;
  }

  // ---- the address ----

  // `#slide-12-its-section`; the settings of an explorer stand before it: `#explorer-zero:stage=2;slide-12-…`.
  function writeAddress(mark) {
    const figure = /^#(explorer|ranks)-/.test(location.hash) ? location.hash.replace(MARK, "") : "";
    const hash = mark ? `${figure}${figure ? ";" : "#"}${mark}` : figure || lecture.hash;
    history.replaceState(history.state, "", hash || location.pathname + location.search);
  }

  function slideOfAddress() {
    const [, number, name] = location.hash.match(MARK) ?? [];
    const slides = lecture.slides;
    const within = (at) => !name || (slides[at] && sectionOf(slides[at]).id === name);
    if (number) return within(number - 1) ? number - 1 : Math.max(0, slides.findIndex((_, at) => within(at)));
    const target = document.getElementById(location.hash.slice(1));
    return slides.findIndex(({ pieces }) => pieces.some(({ node, section }) => node.contains(target) || section === target));
  }

  // ---- showing ----

  function show(at) {
    const { slides, marked, bar } = lecture;
    const to = Math.min(Math.max(Number(at) || 0, 0), slides.length - 1);
    const slide = slides[to];
    const section = sectionOf(slide);
    if (lecture.at === undefined || sectionOf(slides[lecture.at]) !== section) lecture.entered = spent();
    lecture.at = to;
    for (const node of marked) node.dataset.arSlide = "";
    for (const piece of slide.pieces) for (const node of chain(piece, article)) node.dataset.arSlide = "on";
    for (const node of chain(slide.last, article)) node.dataset.arSlide = "last";
    for (const node of chain(slide.pieces[0], article)) node.dataset.arSlide = node.dataset.arSlide === "last" ? "first last" : "first";
    fit(slide);
    const over = article.clientHeight / article.scrollHeight;
    if (over < 1 && over > 0.93) { // as drawn it is a little higher than as measured
      slide.fit = Math.max(0.9, slide.fit * over);
      fit(slide);
    }
    article.scrollTop = 0;
    bar.querySelector("h1").firstChild.textContent = titleOf(section);
    bar.querySelector("small").textContent = section === main ? "" : titleOf(main);
    bar.querySelector("[role=status]").textContent = `${to + 1} / ${slides.length}`;
    bar.querySelector('[data-do="back"]').disabled = to === 0;
    bar.querySelector('[data-do="next"]').disabled = to === slides.length - 1;
    writeAddress(`slide-${to + 1}-${section.id}`);
    writeNotes();
    tick();
    if (!bar.contains(document.activeElement) || document.activeElement.disabled) article.focus({ preventScroll: true });
  }

  function fit(slide) {
    if (lecture.fit === slide.fit) return drawPlots(); // a change makes the browser style the whole page anew
    lecture.fit = slide.fit;
    root.style.setProperty("--ar-fit", slide.fit);
    scale();
  }

  // Pictures with sizes in pixels grow with the text; Plotly draws for the new width.
  function scale() {
    root.style.setProperty("--ar-zoom", parseFloat(getComputedStyle(root).fontSize) / 16);
    drawPlots();
  }

  function drawPlots() {
    for (const plot of article.querySelectorAll(".ar-drawn .ar-drawing")) if (plot.checkVisibility()) window.Plotly.Plots.resize(plot);
  }

  function move(by) {
    const below = article.scrollHeight - article.clientHeight - article.scrollTop;
    if (by > 0 && below > 16) return article.scrollBy({ top: article.clientHeight * 0.8 });
    show(lecture.at + by);
  }

  const actions = {
    next: () => move(1),
    back: () => move(-1),
    first: () => show(0),
    last: () => show(lecture.slides.length - 1),
    notes() {
      lecture.panel.hidden = !lecture.panel.hidden;
      root.toggleAttribute("data-ar-notes", !lecture.panel.hidden);
      lecture.bar.querySelector('[data-do="notes"]').setAttribute("aria-pressed", String(!lecture.panel.hidden));
    },
    timer() {
      lecture.spent = spent();
      clearInterval(lecture.ticking);
      lecture.since = lecture.since ? 0 : performance.now();
      if (lecture.since) lecture.ticking = setInterval(tick, 1000);
      lecture.bar.querySelector('[data-do="timer"]').setAttribute("aria-pressed", String(Boolean(lecture.since)));
      tick();
    },
    reset() {
      Object.assign(lecture, { spent: 0, entered: 0, since: lecture.since && performance.now() });
      tick();
    },
    blank: () => root.toggleAttribute("data-ar-blank"),
    full: () => (document.fullscreenElement ? document.exitFullscreen() : root.requestFullscreen()),
    help: () => (lecture.help.open ? lecture.help.close() : lecture.help.showModal()),
    leave: () => close(),
  };

  // ---- opening and closing ----

  function open() {
    if (lecture) return;
    const pieces = piecesIn(main);
    const here = pieces.find(({ node }) => node.getBoundingClientRect().bottom > 90) ?? pieces.at(-1);
    const hash = location.hash.replace(MARK, "");
    lecture = { hash, scroll: scrollY, focus: document.activeElement, marked: new Set(pieces.flatMap((piece) => chain(piece, article))), spent: 0, since: 0 };
    lecture.panel = made("aside", { class: "ar-lecture-notes", "aria-label": "Notes for the lecturer", hidden: "" }, "<header></header><div tabindex='0'></div>");
    Object.assign(lecture, { bar: makeBar(), help: makeHelp(), text: lecture.panel.lastElementChild });
    document.body.prepend(lecture.bar, lecture.panel, lecture.help);
    for (const node of lecture.marked) node.dataset.arSlide = "on";
    root.dataset.arLecture = "measure";
    root.style.setProperty("--ar-zoom", parseFloat(getComputedStyle(root).fontSize) / 16);
    const { paddingTop, paddingBottom } = getComputedStyle(article);
    lecture.slides = cut(pieces, article.clientHeight - parseFloat(paddingTop) - parseFloat(paddingBottom));
    root.dataset.arLecture = "on";
    lecture.slides.forEach(({ pieces: [first] }, at) => { first.node.dataset.arNumber = at + 1; });
    article.tabIndex = -1;
    const linked = location.hash.match(MARK) ? slideOfAddress() : -1;
    lecture.start = lecture.slides.findIndex((slide) => slide.pieces.includes(here));
    show(linked < 0 ? lecture.start : linked);
  }

  function close() {
    const { marked, slides, at, start, scroll, focus, bar, panel, help, ticking } = lecture;
    clearInterval(ticking);
    if (document.fullscreenElement) document.exitFullscreen();
    [bar, panel, help].forEach((one) => one.remove());
    writeAddress("");
    lecture = undefined;
    for (const node of marked) ["data-ar-slide", "data-ar-number"].forEach((name) => node.removeAttribute(name));
    for (const name of ["data-ar-lecture", "data-ar-notes", "data-ar-blank"]) root.removeAttribute(name);
    ["--ar-fit", "--ar-zoom"].forEach((name) => root.style.removeProperty(name));
    if (!root.getAttribute("style")) root.removeAttribute("style");
    article.removeAttribute("tabindex");
    focus?.focus({ preventScroll: true });
    const first = slides[at].pieces[0].node;
    scrollTo({ top: at === start ? scroll : first.getBoundingClientRect().top + scrollY - 90, behavior: "instant" });
    drawPlots();
  }

  // ---- keys, touch, links, paper ----

  const CONTROL = "input:not([type=checkbox]), select, textarea, [contenteditable]";

  // What Escape closes first: by the time that lecture mode hears of the key, it is closed.
  let before;
  addEventListener("keydown", () => { before = document.querySelector("#pst-search-dialog[open], #ar-card-of"); }, true);

  addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.isComposing || (before && before.id !== "ar-card-of")) return;
    const focused = document.activeElement;
    if (isLetter(event.key) && !letters && !root.hasAttribute("data-ar-blank")) return;
    if (!lecture) {
      if (event.key !== "p" || focused.matches(CONTROL)) return;
      event.preventDefault();
      return open();
    }
    const name = action.get((event.shiftKey && event.key === " " ? "Shift+" : "") + event.key);
    if (lecture.help.open && name !== "help") return;
    if (root.hasAttribute("data-ar-blank")) {
      event.preventDefault();
      return actions.blank();
    }
    if (name === "leave" && before) return; // Escape has closed a card
    if (name === "leave" && focused.closest("article *, .ar-lecture-notes *")) return article.focus({ preventScroll: true });
    const taken = focused.matches(CONTROL) || (focused.matches("[tabindex='0']") && /^(Arrow|Page|Home|End)/.test(event.key) && scrolls(focused, event.key));
    const pressed = event.key === " " && focused.matches("button, a, summary, input");
    if (!name || taken || pressed) return;
    event.preventDefault();
    actions[name]();
  });

  function scrolls(box, key) {
    return /Left|Right/.test(key) ? box.scrollWidth > box.clientWidth : box.scrollHeight > box.clientHeight;
  }

  let touch;
  addEventListener("touchstart", ({ touches, target }) => {
    const busy = !lecture || touches.length > 1 || target.closest(`${CONTROL}, dialog, .ar-lecture-bar`) || sideways(target);
    touch = busy ? undefined : { x: touches[0].clientX, y: touches[0].clientY };
  }, { passive: true });
  addEventListener("touchend", ({ changedTouches: [end] }) => {
    if (!lecture || !touch) return;
    const [x, y] = [end.clientX - touch.x, end.clientY - touch.y];
    if (Math.abs(x) > 50 && Math.abs(x) > 2 * Math.abs(y)) show(lecture.at - Math.sign(x));
  }, { passive: true });

  function sideways(node) {
    const box = node.closest("[tabindex='0']");
    return box && box.scrollWidth > box.clientWidth;
  }

  addEventListener("hashchange", () => {
    if (!lecture) return MARK.test(location.hash) && open();
    const at = slideOfAddress();
    if (at >= 0) show(at);
  });
  addEventListener("resize", () => lecture && scale());

  let theme;
  addEventListener("beforeprint", () => {
    if (!lecture) return;
    theme = root.dataset.theme;
    root.dataset.theme = "light";
  });
  addEventListener("afterprint", () => {
    if (theme) root.dataset.theme = theme;
    theme = undefined;
  });

  addEventListener("ar-lecture", open);
  if (MARK.test(location.hash)) {
    addEventListener("load", () => document.fonts.ready.then(open));
  }
})();
