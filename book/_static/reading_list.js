// The reading list as a tool: filters, order, a path for the time there is, what has been read, and BibTeX.
// The page is complete without it. What is chosen stands in the address; what was read stays in this browser.
(() => {
  // Works for `minutes`: the most important first, of those one from each topic, then the next ones; each after
  // the works it needs. What was read counts as known, and what does not fit is passed over.
  function path(works, minutes, read = new Set(), wanted = () => true) {
    const byKey = new Map(works.map((work) => [work.key, work]));
    const chosen = new Set();
    let left = minutes;
    const candidates = works.filter((work) => work.kind !== "conference" && !read.has(work.key) && wanted(work));
    const seen = {};
    const turn = new Map(candidates.map((work) => {
      const group = `${work.topic} ${work.priority}`;
      seen[group] = (seen[group] || 0) + 1;
      return [work, seen[group]];
    }));
    candidates.sort((one, other) => other.priority - one.priority || turn.get(one) - turn.get(other));
    for (const work of candidates) {
      const more = [];
      const need = (key) => {
        if (read.has(key) || chosen.has(key) || more.includes(key)) return;
        byKey.get(key).needs.forEach(need);
        more.push(key);
      };
      need(work.key);
      const time = more.reduce((sum, key) => sum + byKey.get(key).minutes, 0);
      if (time > left) continue;
      left -= time;
      more.forEach((key) => chosen.add(key));
    }
    return [...chosen].map((key) => byKey.get(key));
  }

  if (typeof document === "undefined") {
    module.exports = { path };
    return;
  }
  const stored = document.getElementById("ar-reading-data");
  if (!stored) return;
  const { topics, chapters, works } = JSON.parse(stored.textContent);
  const STORE = "all-ranks-read";
  const place = (key) => document.getElementById(`read-${key}`).closest("section");
  const home = new Map(works.map((work) => [work, place(work.key).parentElement]));

  function element(tag, properties = {}, ...children) {
    const made = Object.assign(document.createElement(tag), properties);
    made.append(...children);
    return made;
  }

  function duration(minutes) {
    const hours = Math.floor(minutes / 60);
    return [hours && `${hours} h`, minutes % 60 && `${minutes % 60} min`].filter(Boolean).join(" ") || "0 min";
  }

  const total = (some) => some.reduce((sum, work) => sum + work.minutes, 0);
  const count = (number) => (number === 1 ? "1 work" : `${number} works`);

  // ---- what was read ----

  const read = new Set();
  function recall() {
    try {
      const kept = JSON.parse(localStorage.getItem(STORE) || "[]");
      read.clear();
      works.filter((work) => kept.includes(work.key)).forEach((work) => read.add(work.key));
    } catch { /* this browser keeps nothing: the marks last as long as the page */ }
  }
  recall();
  addEventListener("storage", ({ key }) => { // marked in another tab
    if (key !== STORE && key !== null) return;
    recall();
    for (const [work, box] of boxes) box.checked = read.has(work.key);
    show();
  });

  function keep() {
    try {
      if (read.size) localStorage.setItem(STORE, JSON.stringify([...read]));
      else localStorage.removeItem(STORE);
    } catch { /* see above */ }
  }

  const boxes = new Map();
  for (const work of works) {
    const box = element("input", { type: "checkbox", checked: read.has(work.key) });
    boxes.set(work, box);
    const label = element("label", { className: "ar-read" }, box, " read", element("span", { className: "ar-unseen" }, `: ${work.title}`));
    place(work.key).querySelector(".ar-about").append(label);
    box.addEventListener("change", () => {
      if (box.checked) read.add(work.key);
      else read.delete(work.key);
      keep();
      show();
    });
  }

  // ---- what is asked ----

  const form = element("form", { className: "ar-reading" });
  form.setAttribute("aria-label", "Works to show");
  const asked = {};

  function question(parent, name, title, options) {
    const select = element("select", { id: `ar-reading-${name}` });
    for (const [value, text] of options) select.append(new Option(text, value));
    parent.append(element("div", {}, element("label", { htmlFor: select.id, textContent: title }), select));
    asked[name] = select;
  }

  function group(title) {
    const set = form.appendChild(element("fieldset", {}, element("legend", { textContent: title })));
    return set.appendChild(element("div", { className: "ar-questions" }));
  }

  const button = (textContent, action) => {
    const made = element("button", { type: "button", textContent });
    made.addEventListener("click", action);
    return made;
  };

  const filters = group("Show");
  question(filters, "topic", "Topic", [["", "all"], ...Object.entries(topics)]);
  const KINDS = [...new Set(works.map((work) => work.kind))].sort();
  question(filters, "kind", "Kind", [["", "all"], ...KINDS.map((kind) => [kind, kind])]);
  question(filters, "priority", "Priority", [["", "all"], ["2", "★★ and ★★★"], ["3", "★★★, start here"]]);
  question(filters, "time", "Time at most", [["", "any"], ["30", "30 min"], ["60", "1 h"], ["120", "2 h"]]);
  question(filters, "chapter", "Chapter", [["", "all"], ...Object.entries(chapters)]);
  question(filters, "progress", "Progress", [["", "all"], ["open", "not read"], ["read", "read"]]);
  const ORDERS = [["", "topic"], ["priority", "priority"], ["short", "time, short first"], ["new", "year, new first"], ["title", "title"]];
  question(filters, "sort", "Sort by", ORDERS);

  const planning = group("A path for the time you have");
  const HOURS = [[30, "30 minutes"], [60, "one hour"], [120, "two hours"], [240, "four hours"], [480, "a day of eight"], [2400, "a week"]];
  question(planning, "hours", "I have", HOURS);
  asked.hours.value = "120";
  let planned = null;
  planning.append(element("div", {}, button("Pick a path", () => plan(Number(asked.hours.value)))));
  const picked = element("div", { className: "ar-path" });
  picked.setAttribute("aria-live", "polite");
  planning.after(picked);

  const said = element("output");
  said.setAttribute("aria-live", "polite");
  const progress = element("progress", { max: works.length });
  progress.setAttribute("aria-label", "works read");
  const marks = element("span");
  const forget = button("Forget what I read", () => {
    read.clear();
    boxes.forEach((box) => { box.checked = false; });
    keep();
    show();
    said.focus();
  });
  said.tabIndex = -1;
  form.append(
    element("div", { className: "ar-summary" }, said, button("Show all", reset), button("BibTeX of these", download)),
    element("div", { className: "ar-summary" }, progress, marks, forget),
  );
  form.addEventListener("submit", (event) => event.preventDefault());

  // ---- what is shown ----

  const byKey = (key) => (one, other) => (one[key] < other[key] ? -1 : one[key] > other[key] ? 1 : 0);
  const SORTS = {
    priority: (one, other) => other.priority - one.priority,
    short: byKey("minutes"),
    new: (one, other) => (other.year || 0) - (one.year || 0),
    title: (one, other) => one.title.localeCompare(other.title),
  };
  const sorted = element("section", { className: "ar-sorted", hidden: true }, element("h2"));
  document.querySelector(".ar-reading-place").append(form);
  home.get(works[0]).before(sorted);

  const has = {
    topic: (work, value) => work.topic === value,
    kind: (work, value) => work.kind === value,
    priority: (work, value) => work.priority >= Number(value),
    time: (work, value) => work.minutes <= Number(value),
    chapter: (work, value) => work.chapters.includes(value),
    progress: (work, value) => read.has(work.key) === (value === "read"),
  };
  const asks = (work, ...names) => names.every((name) => !asked[name].value || has[name](work, asked[name].value));
  const matching = () => works.filter((work) => asks(work, ...Object.keys(has)));

  let placed = ""; // moving a work scrolls the page and takes the focus off its box: only where the order is another

  function show() {
    const shown = new Set(matching());
    const order = SORTS[asked.sort.value];
    for (const work of works) place(work.key).hidden = !shown.has(work);
    if (placed !== asked.sort.value) {
      placed = asked.sort.value;
      for (const work of order ? [...works].sort(order) : works) (order ? sorted : home.get(work)).append(place(work.key));
    }
    sorted.hidden = !order;
    sorted.firstChild.textContent = order ? `By ${asked.sort.selectedOptions[0].text}` : "";
    for (const section of new Set(home.values())) {
      section.hidden = Boolean(order) || ![...shown].some((work) => home.get(work) === section);
    }
    const all = shown.size === works.length;
    said.textContent = `${all ? "all " : ""}${all ? works.length : `${shown.size} of ${works.length}`} works, ${duration(total([...shown]))}`;
    progress.value = read.size;
    marks.textContent = `${read.size} of ${works.length} read`;
    forget.disabled = !read.size;
  }

  function plan(minutes) {
    planned = minutes;
    const steps = path(works, minutes, read, (work) => asks(work, "topic", "kind", "priority", "chapter"));
    const heading = steps.length
      ? `${count(steps.length)} in ${duration(total(steps))}, each after those it builds on:`
      : "Nothing more fits: there is less time than the next work takes, or all of it has been read.";
    picked.replaceChildren(element("p", { textContent: heading }), element("ol", {}, ...steps.map((work) => {
      const link = element("a", { href: `#read-${work.key}`, textContent: work.name });
      return element("li", {}, link, ` · ${"★".repeat(work.priority)} · ${duration(work.minutes)}`);
    })));
    if (steps.length) picked.append(button("BibTeX of the path", () => save(steps)));
    remember();
  }

  function save(some) {
    const text = some.map((work) => work.bibtex).join("\n\n") + "\n";
    const address = URL.createObjectURL(new Blob([text], { type: "application/x-bibtex" }));
    element("a", { href: address, download: "all-ranks-reading.bib" }).click();
    setTimeout(() => URL.revokeObjectURL(address), 1000);
  }

  function download() {
    save(matching());
  }

  // ---- the address ----

  function remember() {
    const chosen = Object.entries(asked).filter(([name, select]) => name !== "hours" && select.value);
    const words = new URLSearchParams(chosen.map(([name, select]) => [name, select.value]));
    if (planned) words.set("hours", planned / 60);
    const address = words.size ? `#${words}` : location.pathname + location.search;
    history.replaceState(null, "", address);
  }

  function reset() {
    for (const [name, select] of Object.entries(asked)) if (name !== "hours") select.value = "";
    planned = null;
    picked.replaceChildren();
    show();
    remember();
  }

  function follow() {
    const fragment = location.hash.slice(1);
    const target = fragment && document.getElementById(fragment);
    if (target) {
      if (target.closest("section[hidden]")) {
        for (const [name, select] of Object.entries(asked)) if (name !== "hours") select.value = "";
        show();
      }
      target.scrollIntoView();
      return;
    }
    const words = new URLSearchParams(fragment.includes("=") ? fragment : "");
    for (const [name, select] of Object.entries(asked)) {
      if (name === "hours") continue;
      select.value = words.get(name) || "";
      if (select.selectedIndex < 0) select.value = "";
    }
    show();
    const minutes = Number(words.get("hours")) * 60;
    if (minutes) {
      asked.hours.value = minutes;
      if (asked.hours.selectedIndex < 0) asked.hours.value = "120";
      plan(minutes);
    }
  }

  form.addEventListener("change", (event) => {
    if (event.target === asked.hours) return;
    show();
    if (planned) plan(planned); // its address asks for the path within these
    else remember();
  });
  window.addEventListener("hashchange", follow);
  follow();
})();
