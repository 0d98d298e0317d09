// Makes the explorers of a page answer: reads the controls, lets Python draw, shows picture and words.
// No arithmetic and no drawing here; both are allranks.explorers, run by MicroPython in a worker.
// A classic script, not a module: browsers refuse modules on pages opened from a disk.
(() => {
  const root = document.documentElement;
  const figures = [...document.querySelectorAll("figure.ar-explorer")];
  if (!figures.length) return;
  const phone = matchMedia("(max-width: 560px)");

  // ---- Python ----

  /** Why an explorer cannot answer, as a reader is told it; any other error is for the console alone. */
  class Reason extends Error {}
  const FAULT = "its program ended with an error, which is not your doing; reloading the page starts it again";

  // What travels is packed; the worker unpacks it, and does one thing after the other.
  const WORKER = `
    const unpack = async (text) => {
      const letters = atob(text);
      const bytes = new Uint8Array(letters.length);
      for (let i = 0; i < letters.length; i++) bytes[i] = letters.charCodeAt(i);
      const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate-raw"));
      return new Uint8Array(await new Response(stream).arrayBuffer());
    };
    let python;
    const start = async ({ loader, machine }) => {
      const [program, code] = await Promise.all([unpack(loader), unpack(machine).then(WebAssembly.compile)]);
      importScripts(URL.createObjectURL(new Blob([program], { type: "text/javascript" })));
      const instantiateWasm = (imports, take) => take(new WebAssembly.Instance(code, imports));
      python = await self.loadMicroPython({ instantiateWasm, heapsize: 32 * 1024 * 1024 });
      python.runPython("import sys; sys.path.insert(0, '/')");
    };
    // A piece begins with a line of the paths and sizes of its files.
    const add = (piece) => {
      let at = piece.indexOf(10) + 1;
      for (const [path, size] of JSON.parse(new TextDecoder().decode(piece.subarray(0, at)))) {
        const folders = path.split("/").slice(0, -1);
        folders.forEach((_, i) => { try { python.FS.mkdir("/" + folders.slice(0, i + 1).join("/")); } catch {} });
        python.FS.writeFile("/" + path, piece.subarray(at, (at += size)));
      }
      python.runPython("from allranks.explorers.frame.page import answer");
    };
    const handle = async ({ id, interpreter, files, question }) => {
      try {
        if (interpreter) await start(interpreter);
        if (files) add(await files);
        postMessage({ id, answer: question && python.globals.get("answer")(question) });
      } catch (error) { postMessage({ id, failure: String(error.message || error) }); }
    };
    let last = Promise.resolve();
    self.onmessage = ({ data }) => {
      const files = data.files && unpack(data.files);
      last = last.then(() => handle({ ...data, files }));
    };`;

  function load(source) {
    return new Promise((resolve, reject) => {
      const script = document.createElement("script");
      script.src = source;
      script.onload = resolve;
      script.onerror = () => reject(new Reason("its Python could not be loaded"));
      document.head.append(script);
    });
  }

  const waiting = new Map();
  let asked = 0;
  let started;
  const loaded = {};

  const place = `${root.dataset.content_root}_static/explorers`;

  function tell(worker, message) {
    return new Promise((resolve, reject) => {
      waiting.set(++asked, { resolve, reject });
      worker.postMessage({ ...message, id: asked });
    });
  }

  // Nobody waits for an answer before the next message: `done` is when all before it are answered.
  async function startPython() {
    if (typeof WebAssembly === "undefined") throw new Reason("this browser does not allow WebAssembly");
    if (typeof DecompressionStream === "undefined") throw new Reason("this browser is too old for it");
    const worker = new Worker(URL.createObjectURL(new Blob([WORKER], { type: "text/javascript" })));
    worker.onerror = (event) => waiting.forEach(({ reject }) => reject(new Error(event.message)));
    worker.onmessage = ({ data }) => {
      const { resolve, reject } = waiting.get(data.id);
      waiting.delete(data.id);
      if (data.failure) reject(new Error(data.failure));
      else resolve(data.answer);
    };
    await load(`${place}/python.js`); // while the worker starts
    return { worker, done: tell(worker, { interpreter: window.allRanksPython }) };
  }

  async function loadExplorer(name) {
    const brought = load(`${place}/${name}.js`);
    const [{ worker, done }] = await Promise.all([(started ??= startPython()), brought]);
    return { worker, done: Promise.all([done, tell(worker, { files: window.allRanksExplorers[name] })]) };
  }

  async function ask(question) {
    const { worker, done } = await (loaded[question.explorer] ??= loadExplorer(question.explorer));
    const [answer] = await Promise.all([tell(worker, { question: JSON.stringify(question) }), done]);
    return JSON.parse(answer);
  }

  // ---- a reader ----

  const idle = window.requestIdleCallback ?? ((then) => setTimeout(then, 100));
  const REST = 500; // milliseconds at a figure that fills a third of the screen

  const reader = new Promise((comes) => {
    for (const hand of ["pointermove", "wheel", "keydown", "touchstart"]) {
      addEventListener(hand, comes, { once: true, passive: true });
    }
  });

  /** Calls `then` once somebody who uses this page rests at the figure, unless they want to save data. */
  function rests(figure, then) {
    let soon;
    const seen = new IntersectionObserver(([{ intersectionRect }]) => {
      clearTimeout(soon);
      if (intersectionRect.height < innerHeight / 3) return;
      soon = setTimeout(() => { seen.disconnect(); reader.then(() => idle(then)); }, REST);
    }, { threshold: [0, 0.15, 0.3, 0.45, 0.6] });
    if (!navigator.connection?.saveData) seen.observe(figure);
  }

  // ---- one explorer ----

  function explorer(figure) {
    const name = figure.dataset.explorer;
    const { start, values, story, marks } = JSON.parse(figure.querySelector("script").textContent);
    const form = figure.querySelector("form");
    const caption = figure.querySelector("figcaption");
    const [insight, words, story_line] = [".ar-insight", ".ar-words", ".ar-story"].map((part) => figure.querySelector(part));
    const result = figure.querySelector(".ar-result");
    const steppers = [...figure.querySelectorAll('[data-do="tell"]')];
    const controls = [...form.elements].filter((element) => element.name);
    let given = { ...start };
    let good = start; // what the picture shows
    let turned = false; // the phone, since the last answer
    let drawing = false;
    let again = false;
    let given_a_hand = false;
    let timer;

    function read(control) {
      if (control.type === "checkbox") return control.checked;
      return control.name in values ? values[control.name][Number(control.value)] : Number(control.value);
    }

    function write(control, value) {
      if (control.type === "checkbox") control.checked = value;
      else if (control.name in values) control.value = values[control.name].findIndex((one) => String(one) === String(value));
      else {
        if (control.dataset.kind === "steps") control.max = Math.max(Number(control.max), value);
        control.value = value;
      }
      say(control);
    }

    function say(control) {
      if (control.type !== "range") return;
      const words = control.dataset.words ? JSON.parse(control.dataset.words)[Number(control.value)] : control.value;
      control.nextElementSibling.textContent = words;
      if (control.dataset.words) control.setAttribute("aria-valuetext", words);
    }

    function refuse(sentence) {
      for (const control of controls) {
        const mine = sentence && (sentence.split(" ")[0] === control.name || (!controls.some((one) => one.name === sentence.split(" ")[0]) && control === controls[0]));
        figure.querySelector(`#${CSS.escape(control.id)}-refusal`).textContent = mine ? `${sentence}.` : "";
        control.setAttribute("aria-invalid", String(Boolean(mine)));
        if (!mine) continue;
        control.closest("details")?.setAttribute("open", "");
        control.disabled = false; // as the settings before left it
      }
      figure.classList.toggle("ar-stale", Boolean(sentence));
      if (sentence) figure.dispatchEvent(new CustomEvent("ar-refused"));
    }

    async function draw() {
      if (drawing) { again = true; return; }
      drawing = true;
      figure.setAttribute("aria-busy", "true");
      try {
        do {
          again = false;
          const shown = await ask({ explorer: name, settings: given, narrow: phone.matches });
          if (again) continue;
          if (!shown.refusal) good = given;
          else if (turned) show(await ask({ explorer: name, settings: good, narrow: phone.matches }));
          turned = false;
          refuse(shown.refusal);
          if (!shown.refusal) show(shown);
        } while (again);
        drawing = false;
      } catch (error) { // which leaves `drawing` as it is: nothing is drawn any more
        stop();
        form.inert = story_line.inert = true;
        if (!(error instanceof Reason)) console.error(error);
        words.textContent += ` This figure stays as it is: ${error instanceof Reason ? error.message : FAULT}.`;
        figure.dispatchEvent(new CustomEvent("ar-failed"));
      }
      figure.removeAttribute("aria-busy");
    }

    function show(shown) {
      figure.dispatchEvent(new CustomEvent("ar-drawing"));
      const picture = figure.querySelector(phone.matches ? ".ar-narrow" : ".ar-wide");
      picture.querySelector(".ar-image").innerHTML = shown.svg;
      lay(picture, shown.marks);
      write_words(insight, story[told()]?.words ?? shown.insight ?? "");
      write_words(words, shown.text);
      if (shown.result) [...result.children].forEach((part, i) => write_words(part, shown.result[i]));
      for (const control of controls) {
        control.disabled = (shown.idle ?? []).includes(control.name);
        if (control.dataset.kind !== "steps") continue;
        control.max = (shown.steps ?? 1) - 1; // a browser takes the value down with it
        given[control.name] = Number(control.value);
        say(control);
      }
      if (!figure.classList.contains("ar-live")) performance.mark("ar-live");
      figure.classList.add("ar-live");
      figure.dispatchEvent(new CustomEvent("ar-drawn", { detail: { picture, handles: shown.handles } }));
    }

    function write_words(element, said) {
      if (element.textContent !== said) element.textContent = said;
    }

    /** Which step of the story has these settings; −1: none. */
    function told() {
      return story.findIndex(({ settings }) => Object.keys(settings).every((key) => settings[key] === given[key]));
    }

    function set(changed) {
      given = { ...given, ...changed };
      steppers.forEach((button, i) => button.setAttribute("aria-pressed", String(i === told())));
      const pressed = steppers[told()];
      if (pressed) story_line.scrollLeft = pressed.offsetLeft - story_line.clientWidth / 3; // on a phone, with its neighbours
      for (const control of controls) if (control.name in changed) write(control, given[control.name]);
      draw();
    }

    function remember() {
      const differ = Object.keys(given).filter((key) => given[key] !== start[key]);
      const part = differ.map((key) => `${key}=${encodeURIComponent(given[key])}`).join(",");
      const slide = location.hash.match(/(?:^#|;)(slide-\d.*)$/)?.[1]; // lecture.js finds its slide behind our settings
      const mine = part || !location.pathname.endsWith("/") ? `explorer-${name}${part && `:${part}`}` : "";
      history.replaceState(null, "", `#${[mine, slide].filter(Boolean).join(";")}`);
    }

    /** The settings that "name=value,…" names; what no control can be set to is left out. */
    function parse(list) {
      const found = {};
      for (const part of list.split(",")) {
        const [key, coded] = [part.split("=")[0], part.split("=")[1] ?? ""];
        const control = controls.find((one) => one.name === key);
        let text;
        try { text = decodeURIComponent(coded); } catch { continue; }
        if (!control) continue;
        if (control.type === "checkbox") { if (/^(true|false)$/.test(text)) found[key] = text === "true"; }
        else if (key in values) {
          const same = (one) => String(one) === text || (typeof one === "number" && text !== "" && one === Number(text));
          if (values[key].some(same)) found[key] = values[key].find(same);
        }
        else if (/^\d+$/.test(text) && Number(text) >= control.min && (control.dataset.kind || Number(text) <= control.max)) found[key] = Number(text);
      }
      return found;
    }

    function fromAddress() {
      const mark = `#explorer-${name}:`;
      if (!location.hash.startsWith(mark)) return;
      const found = parse(location.hash.slice(mark.length).replace(/;slide-\d.*$/, ""));
      if (!Object.keys(found).length) return;
      stop();
      figure.scrollIntoView({ block: "start" });
      set({ ...start, ...found });
    }

    // A link in the text that sets the figure; without scripts it leads to the figure.
    for (const link of document.querySelectorAll(`a.ar-set[href="#explorer-${name}"]`)) {
      link.href = `#explorer-${name}:${link.dataset.set}`;
      link.addEventListener("click", (event) => {
        if (event.ctrlKey || event.metaKey || event.shiftKey) return; // in a tab or a window of its own
        event.preventDefault();
        stop();
        set({ ...start, ...parse(link.dataset.set) });
        remember();
        figure.scrollIntoView({ block: "nearest" });
      });
    }

    // ---- marks in the picture: Python says where they are, what they are called and what they set ----

    function lay(picture, over) {
      if (!over) return;
      const old = picture.querySelector(".ar-marks");
      const at = old ? [...old.children].indexOf(document.activeElement) : -1;
      old?.remove();
      picture.insertAdjacentHTML("beforeend", over);
      const made = [...picture.querySelector(".ar-marks").children];
      const first = made[Math.max(0, Math.min(at, made.length - 1))];
      first?.setAttribute("tabindex", "0");
      if (at >= 0) first?.focus({ preventScroll: true });
    }

    const names = (mark) => (mark?.dataset.light ?? "").split(" ").filter(Boolean);

    const LIVE = ".ar-marks > *, .ar-handle";

    /** Show what a mark says above it, or below where there is no room; no mark: show nothing. */
    function tell(picture, mark) {
      const chip = picture.querySelector(".ar-chip") ?? picture.appendChild(Object.assign(document.createElement("div"), { className: "ar-chip" }));
      chip.setAttribute("aria-hidden", "true"); // a voice has the mark's own name
      chip.textContent = ["aria-label", "aria-valuetext"].map((part) => mark?.getAttribute(part)).filter(Boolean).join(": ");
      chip.hidden = !mark;
      if (!mark) return;
      const [inside, at] = [picture, mark.querySelector(".ar-grip") ?? mark].map((one) => one.getBoundingClientRect());
      const middle = at.left - inside.left + (at.width - chip.offsetWidth) / 2;
      const above = at.top - inside.top - chip.offsetHeight - 6;
      chip.style.left = `${Math.max(0, Math.min(middle, inside.width - chip.offsetWidth))}px`;
      chip.style.top = `${picture.scrollTop + (above >= 0 ? above : at.bottom - inside.top + 6)}px`;
    }

    function light({ target, type }) {
      const mark = type === "pointerout" || type === "focusout" ? null : target.closest(LIVE);
      const shared = names(mark);
      for (const one of figure.querySelectorAll(".ar-marks > *")) {
        one.classList.toggle("ar-lit", one === mark || names(one).some((name) => shared.includes(name)));
      }
      tell(target.closest(".ar-picture"), mark);
    }

    figure.addEventListener("ar-drawn", () => {
      const grip = figure.querySelector(".ar-handle:focus"); // it has moved, and its words have changed
      if (grip) tell(grip.closest(".ar-picture"), grip);
    });

    function press(mark) {
      if (!mark.dataset.set) return;
      stop();
      set(parse(mark.dataset.set));
      remember();
    }

    const STEP = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 };

    function key(event) {
      const mark = event.target.closest(".ar-marks > *");
      if (!mark) return;
      if (event.key === "Enter" || event.key === " ") press(mark);
      else if (event.key in STEP) {
        const all = [...mark.parentElement.children];
        const next = all[all.indexOf(mark) + STEP[event.key]];
        if (next) {
          mark.setAttribute("tabindex", "-1");
          next.setAttribute("tabindex", "0");
          next.focus();
        }
      } else return;
      event.preventDefault();
      event.stopPropagation(); // a lecture turns its slides with these keys
    }

    for (const [which, over] of Object.entries(marks)) {
      const picture = figure.querySelector(`.ar-${which}`);
      lay(picture, over);
      for (const type of ["pointerover", "pointerout", "focusin", "focusout"]) picture.addEventListener(type, light);
      picture.addEventListener("click", ({ target }) => { if (target.closest(".ar-marks > *")) press(target.closest(".ar-marks > *")); });
      picture.addEventListener("keydown", key);
    }

    // ---- playing steps ----

    const steps = controls.find((control) => control.dataset.kind === "steps");
    const play = figure.querySelector('[data-do="play"]');

    function listen(how) {
      for (const said of [caption, insight]) said.setAttribute("aria-live", how);
    }

    function stop() {
      clearInterval(timer);
      timer = undefined;
      listen("polite");
      if (play) { play.textContent = "Play"; play.setAttribute("aria-pressed", "false"); }
    }

    function move(by) {
      const next = Number(steps.value) + by;
      if (next < 0 || next > Number(steps.max)) return stop();
      set({ [steps.name]: next });
    }

    function toggle() {
      if (timer) return stop();
      if (Number(steps.value) >= Number(steps.max)) set({ [steps.name]: 0 });
      timer = setInterval(() => { if (!drawing) move(1); }, 700);
      listen("off"); // a voice would fall behind the steps
      play.textContent = "Pause";
      play.setAttribute("aria-pressed", "true");
    }

    async function clip(button, text, otherwise) {
      const label = (button.dataset.label ??= button.textContent); // not "Copied", if it still says that
      try { await navigator.clipboard.writeText(text); button.textContent = "Copied"; }
      catch { button.textContent = otherwise; }
      setTimeout(() => { button.textContent = label; }, 1600);
    }

    /** The picture as it is now, without need of the page's colours. */
    function standing() {
      const drawn = figure.querySelector(phone.matches ? ".ar-narrow svg" : ".ar-wide svg").outerHTML;
      return drawn.replace(/var\((--ar-[\w-]+),\s*#\w+\)/g, (_, colour) => getComputedStyle(root).getPropertyValue(colour).trim());
    }

    function save(blob, ending) {
      const link = Object.assign(document.createElement("a"), { href: URL.createObjectURL(blob), download: `all-ranks-${name}.${ending}` });
      link.click();
      setTimeout(() => URL.revokeObjectURL(link.href), 1000);
    }

    const actions = {
      tell: (button) => { stop(); set(story[button.dataset.step].settings); remember(); },
      reset: () => { stop(); set(start); remember(); },
      copy: (button) => { remember(); clip(button, location.href, "In the address bar"); },
      embed: (button) => {
        remember();
        const source = new URL(`${place}/${name}.html${location.hash.replace(/;slide.*/, "")}`, location);
        clip(button, `<iframe src="${source}" title="${name}" width="100%" height="900" loading="lazy"></iframe>`, "Not allowed here");
      },
      svg: () => save(new Blob([standing()], { type: "image/svg+xml" }), "svg"),
      png: async () => {
        const image = new Image();
        image.src = `data:image/svg+xml,${encodeURIComponent(standing())}`;
        await image.decode();
        const canvas = Object.assign(document.createElement("canvas"), { width: 2 * image.width, height: 2 * image.height });
        canvas.getContext("2d").drawImage(image, 0, 0, canvas.width, canvas.height);
        canvas.toBlob((blob) => save(blob, "png"));
      },
      back: () => { stop(); move(-1); remember(); },
      on: () => { stop(); move(1); remember(); },
      play: () => { toggle(); if (!timer) remember(); },
    };

    figure.addEventListener("ar-hand", ({ detail }) => {
      stop();
      set(parse(detail.sets));
      if (detail.done) remember();
    });
    form.addEventListener("submit", (event) => event.preventDefault());
    form.addEventListener("input", ({ target }) => { say(target); stop(); set({ [target.name]: read(target) }); });
    form.addEventListener("change", remember);
    for (const part of [form, story_line]) part.addEventListener("click", ({ target }) => actions[target.dataset.do]?.(target));
    // The stored picture is complete: Python is loaded when a hand comes near it, or when a reader rests at it.
    const wake = () => {
      if (given_a_hand) return;
      given_a_hand = true;
      performance.mark("ar-needed");
      draw();
    };
    for (const hand of ["pointerenter", "focusin"]) for (const part of [figure, form]) part.addEventListener(hand, wake);
    rests(figure, wake);
    addEventListener("hashchange", fromAddress);
    phone.addEventListener("change", () => { turned = true; if (drawing || figure.classList.contains("ar-live")) draw(); });
    fromAddress();
  }

  figures.forEach(explorer);
})();
