// The reader's own JupyterHub: its address, given once or proposed by a link, stays in this browser.
// The menu in the header is complete without this script but for the hub; nothing here asks a host for anything.
(() => {
  const STORE = "all-ranks-hub";
  const HERE = ["localhost", "127.0.0.1", "[::1]"];

  // The hub's address in its short form; an Error says what to change. Readers paste what their browser shows.
  function hubAddress(given) {
    let text = given.trim();
    if (!text) throw new Error("Write the address of your hub, such as https://hub.example.edu.");
    if (!/^[a-z][a-z\d+.-]*:\/\//i.test(text)) {
      if (/^[a-z][a-z\d+.-]*:(?!\d)/i.test(text)) {
        throw new Error(`“${text}” is no address of a hub: write it like https://hub.example.edu.`);
      }
      text = (HERE.some((host) => text.startsWith(host)) ? "http://" : "https://") + text;
    }
    let url;
    try {
      url = new URL(text);
    } catch {
      throw new Error(`“${given.trim()}” is no address: write it like https://hub.example.edu.`);
    }
    const local = HERE.includes(url.hostname);
    if (url.protocol !== "https:" && !(url.protocol === "http:" && local)) {
      throw new Error(`“${url.protocol}//” is not taken: a hub begins with https://, or with http:// on localhost.`);
    }
    if (url.username || url.password) throw new Error("Leave out the name and the password: the hub asks for them.");
    if (!local && !url.hostname.includes(".")) {
      throw new Error(`“${url.hostname}” has no dot: write the whole name, such as hub.example.edu.`);
    }
    if (!/^(\[[\da-f:.]+\]|[a-z\d_-]+(\.[a-z\d_-]+)*\.?)$/.test(url.hostname)) {
      throw new Error(`“${given.trim()}” is no address: write it like https://hub.example.edu.`);
    }
    const base = url.pathname.replace(/\/(hub|user)(\/.*)?$/, "").replace(/\/+$/, "");
    return url.origin + base;
  }

  // A link in nbgitpuller's form: the hub clones or updates the repository, then opens `opens` in JupyterLab.
  function pullLink(hub, { repository, branch, opens }) {
    const query = new URLSearchParams({ repo: repository, branch, urlpath: `lab/tree/${opens}` });
    return `${hub}/hub/user-redirect/git-pull?${query}`;
  }

  if (typeof document === "undefined") {
    module.exports = { hubAddress, pullLink };
    return;
  }
  const menu = document.querySelector(".ar-open");
  if (!menu) return;

  function element(tag, properties = {}, ...children) {
    const made = Object.assign(document.createElement(tag), properties);
    made.append(...children);
    return made;
  }

  const button = (text, onclick) => element("button", { type: "button", textContent: text, onclick });
  const shown = (hub) => hub.replace(/^https:\/\//, "");

  // ---- what this browser remembers ----

  let hub = "";
  let kept = true;
  try {
    hub = hubAddress(localStorage.getItem(STORE) || "");
  } catch { /* none is stored, or one that is not allowed */ }

  function remember(address) {
    hub = address;
    try {
      if (hub) localStorage.setItem(STORE, hub);
      else localStorage.removeItem(STORE);
      kept = true;
    } catch {
      kept = false; // a browser that stores nothing: the address holds until the page is left
    }
  }

  // ---- the hub's place in the menu ----

  const place = element("li", { className: "ar-open-hub" });
  menu.querySelector("ul").prepend(place);

  function draw(focus) {
    place.replaceChildren(...(hub ? known() : [form("")]));
    if (focus) place.querySelector("a, input").focus();
  }

  function known() {
    const link = element("a", { href: pullLink(hub, menu.dataset), target: "_blank", rel: "noopener" }, "On your hub");
    const copy = button("Copy a link for others", async () => {
      const address = new URL(location.href);
      address.search = new URLSearchParams({ hub });
      address.hash = "";
      try {
        await navigator.clipboard.writeText(address.href);
        copy.textContent = "Copied: it asks them first";
      } catch {
        copy.replaceWith(element("code", { textContent: address.href }));
      }
    });
    return [
      link,
      element("small", {}, ` ${shown(hub)}${kept ? "" : ", until you leave this page: the browser stores nothing"}`),
      element("div", { className: "ar-open-tools" },
        button("Change", () => {
          place.replaceChildren(form(hub));
          place.querySelector("input").select();
        }),
        button("Forget", () => {
          remember("");
          draw(true);
        }),
        copy),
    ];
  }

  function form(value) {
    const field = element("input", {
      id: "ar-hub", type: "text", inputMode: "url", autocomplete: "url", spellcheck: false, autocapitalize: "off",
      placeholder: "https://hub.example.edu", value,
    });
    const problem = element("small", { id: "ar-hub-problem", className: "ar-open-problem" });
    problem.setAttribute("role", "alert");
    field.setAttribute("aria-describedby", "ar-hub-problem ar-hub-about");
    const made = element("form", { noValidate: true },
      element("label", { htmlFor: "ar-hub" }, "On your JupyterHub"),
      element("span", { className: "ar-open-field" }, field, element("button", { type: "submit" }, "Set")),
      problem,
      element("small", { id: "ar-hub-about" },
        "Its address, once; it stays in this browser. The hub needs nbgitpuller and this book’s packages."));
    made.addEventListener("submit", (event) => {
      event.preventDefault();
      try {
        remember(hubAddress(field.value));
        draw(true);
      } catch (error) {
        problem.textContent = error.message;
        field.setAttribute("aria-invalid", "true");
        field.focus();
      }
    });
    return made;
  }

  // ---- a hub that a link proposes ----

  function ask(given) {
    const question = element("div", { className: "ar-hub-question" });
    question.setAttribute("role", "region");
    question.setAttribute("aria-label", "A hub that the link proposes");
    const close = () => question.remove();
    try {
      const proposed = hubAddress(given);
      if (proposed === hub) return;
      question.append(
        element("p", {}, "The link you followed proposes a JupyterHub to run the notebooks on: ",
          element("strong", {}, proposed), ". Say yes if you know it: you would log in there, and your code would run there.",
          hub ? ` It would replace ${shown(hub)}.` : ""),
        button("Use this hub", (event) => {
          event.stopPropagation(); // a click outside the menu would close it
          remember(proposed);
          draw(false);
          close();
          menu.open = true;
          place.querySelector("a").focus();
        }),
        button("No", close));
    } catch (error) {
      question.append(element("p", {}, "The link you followed proposes a hub that cannot be used. ", error.message),
        button("Close", close));
    }
    document.querySelector("main").prepend(question);
  }

  draw(false);
  const address = new URL(location.href);
  if (address.searchParams.has("hub")) {
    ask(address.searchParams.get("hub"));
    address.searchParams.delete("hub"); // a reload or a copied address asks nobody again
    history.replaceState(history.state, "", address);
  }

  // ---- the menu as readers know menus ----

  const print = button("Print, or save as PDF", async () => {
    menu.open = false;
    await window.allRanksDraw?.().catch(() => {});
    window.print();
  });
  print.className = "ar-open-print";
  menu.querySelector("[aria-labelledby=ar-open-take]").append(element("li", {}, print));
  menu.addEventListener("keydown", (event) => {
    if (event.key !== "Escape" || !menu.open) return;
    menu.open = false;
    menu.querySelector("summary").focus();
  });
  document.addEventListener("click", (event) => {
    if (menu.open && !event.composedPath().includes(menu)) menu.open = false;
  });
})();
