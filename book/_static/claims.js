// Filters of the table of published numbers, by paper, status and chapter; what is chosen stands in the address.
(() => {
  const table = document.querySelector(".ar-claims table");
  if (!table) return;
  const bodies = [...table.tBodies];
  const entries = [...table.querySelectorAll("tbody tr[id]")].map((row) => ({
    row,
    paper: [row.parentElement.dataset.paper],
    status: [row.cells[3].textContent.trim()],
    chapter: (row.dataset.in || "").split(" ").filter(Boolean),
  }));

  function options(name) {
    const label = { paper: new Map(), status: new Map(), chapter: new Map() }[name];
    for (const { row, [name]: values } of entries) {
      for (const value of values) {
        const heading = row.parentElement.rows[0].textContent;
        const link = row.querySelector(`a[href="../${value}.html"]`);
        label.set(value, name === "paper" ? heading : link?.textContent || value);
      }
    }
    return label;
  }

  const form = document.createElement("form");
  form.className = "ar-filters";
  form.setAttribute("aria-label", "Published numbers to show");
  const choices = {};
  for (const [name, title] of [["paper", "Paper"], ["status", "Status"], ["chapter", "Chapter"]]) {
    const label = document.createElement("label");
    const select = (choices[name] = document.createElement("select"));
    label.textContent = title;
    label.htmlFor = select.id = `ar-filter-${name}`;
    select.append(new Option("all", ""));
    for (const [value, text] of options(name)) select.append(new Option(text, value));
    form.appendChild(document.createElement("div")).append(label, select);
  }
  const said = form.appendChild(document.createElement("output"));
  said.setAttribute("aria-live", "polite");
  table.parentElement.before(form);

  function show() {
    const chosen = Object.entries(choices).filter(([, select]) => select.value);
    let count = 0;
    for (const entry of entries) {
      entry.row.hidden = !chosen.every(([name, select]) => entry[name].includes(select.value));
      count += !entry.row.hidden;
    }
    for (const body of bodies) {
      let place = null;
      body.hidden = true;
      for (const row of [...body.rows].slice(1)) {
        if (!row.id) (place = row).hidden = true;
        else if (!row.hidden) place.hidden = body.hidden = false;
      }
    }
    said.textContent = chosen.length ? `${count} of ${entries.length} numbers` : `all ${count} numbers`;
    return chosen;
  }

  function read() {
    const fragment = location.hash.slice(1);
    const target = document.getElementById(fragment);
    if (!fragment.includes("=") && !(target && table.contains(target) && target.hidden)) return show();
    const wanted = new URLSearchParams(fragment.includes("=") ? fragment : "");
    for (const [name, select] of Object.entries(choices)) {
      select.value = wanted.get(name) || "";
      if (select.selectedIndex < 0) select.value = "";
    }
    show();
    if (target) target.scrollIntoView();
  }

  form.addEventListener("change", () => {
    const chosen = new URLSearchParams(show().map(([name, select]) => [name, select.value]));
    history.replaceState(null, "", chosen.size ? `#${chosen}` : location.pathname + location.search);
  });
  form.addEventListener("submit", (event) => event.preventDefault());
  window.addEventListener("hashchange", read);
  read();
})();
