// Ranks in a page: runs what a reader writes on simulated ranks, and shows their messages.
// No arithmetic and no drawing here: both are Python, run by MicroPython in a worker, in a frame that has no origin.
// What comes out of the frame is not trusted: text is set as text, and of a picture only plain shapes are kept.
// A classic script, as explorers.js is: browsers refuse modules on pages opened from a disk.
(() => {
  const root = document.documentElement;
  const figures = [...document.querySelectorAll("figure.ar-ranks")];
  if (!figures.length) return;
  const LIMIT = 5000; // ms that a program may take; one that takes longer is run again, watched, to name its line
  const LONGEST = 3_000_000; // characters of an answer
  const phone = matchMedia("(max-width: 560px)");
  const touched = matchMedia("(pointer: coarse)");
  const STRAIGHT = { "“": '"', "”": '"', "„": '"', "‘": "'", "’": "'", "‚": "'" };
  const place = `${root.dataset.content_root}_static/explorers`;
  const FROM_A_LINK = "This program came with a link. Read it first; Run runs it.";

  // ---- Python, in a frame without an origin ----

  const WORKER = `
    let python;
    const stop = () => python._module.ccall("mp_sched_keyboard_interrupt", "null", [], []);
    const start = async ({ machine, files }) => {
      const url = URL.createObjectURL(new Blob([machine], { type: "application/wasm" }));
      python = await self.loadMicroPython({ url, heapsize: 16 * 1024 * 1024, stdout: () => {} });
      for (const [path, source] of Object.entries(files)) {
        const folders = path.split("/").slice(0, -1);
        folders.forEach((_, i) => { try { python.FS.mkdir("/" + folders.slice(0, i + 1).join("/")); } catch {} });
        python.FS.writeFile("/" + path, source);
      }
      python.registerJsModule("host", { now: () => performance.now(), stop });
      python.runPython("import sys; sys.path.insert(0, '/')\\nfrom page import answer\\nimport watch");
    };
    self.onmessage = async ({ data }) => {
      try {
        if (data.machine) { await start(data); return postMessage({ id: data.id }); }
        if (data.watch) python.runPython("watch.start(" + Number(data.watch) + ")");
        const answer = python.globals.get("answer")(data.question);
        if (data.watch) python.runPython("watch.end()");
        postMessage({ id: data.id, answer });
      } catch (error) { postMessage({ id: data.id, failure: String(error.message || error) }); }
    };`;

  const POLICY = "default-src 'none'; script-src 'unsafe-inline' 'wasm-unsafe-eval' blob:; worker-src blob:; connect-src blob:";
  const FRAME = `<!doctype html><meta http-equiv="Content-Security-Policy" content="${POLICY}"><script>
    let worker;
    onmessage = ({ data, source }) => {
      if (source !== parent) return;
      if (data.code) {
        worker = new Worker(URL.createObjectURL(new Blob(data.code, { type: "text/javascript" })));
        worker.onmessage = (event) => parent.postMessage(event.data, "*");
        worker.onerror = (event) => parent.postMessage({ id: data.id, failure: String(event.message) }, "*");
      }
      worker.postMessage(data);
    };
    parent.postMessage({ id: 0 }, "*");
  <\/script>`;

  class Late extends Error {}
  const waiting = new Map();
  let frame, started, asked = 0, queue = Promise.resolve();
  let playing; // stops the figure that plays: one worker keeps the messages of one
  let latest; // the figure whose program the worker ran last: it keeps the messages of that one

  addEventListener("message", ({ data, source }) => {
    if (!frame || source !== frame.contentWindow) return;
    const { resolve, reject } = waiting.get(data?.id) ?? {};
    waiting.delete(data?.id);
    if (data?.failure) reject?.(new Error(String(data.failure)));
    else resolve?.(data?.answer);
  });

  const reply = (id) => new Promise((resolve, reject) => waiting.set(id, { resolve, reject }));

  function tell(message, moved = []) {
    const id = ++asked;
    const answer = reply(id);
    frame.contentWindow.postMessage({ ...message, id }, "*", moved);
    return answer;
  }

  function load(source) {
    return new Promise((resolve, reject) => {
      const script = document.createElement("script");
      script.src = source;
      script.onload = resolve;
      script.onerror = () => reject(new Error("its Python could not be loaded"));
      document.head.append(script);
    });
  }

  async function unpack(text) {
    const bytes = Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
    const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate-raw"));
    return new Response(stream).arrayBuffer();
  }

  async function pack(text) {
    const stream = new Blob([text]).stream().pipeThrough(new CompressionStream("deflate-raw"));
    const bytes = new Uint8Array(await new Response(stream).arrayBuffer());
    return btoa(String.fromCharCode(...bytes)).replaceAll("+", "-").replaceAll("/", "_").replace(/=+$/, "");
  }

  async function start() {
    if (typeof WebAssembly === "undefined") throw new Error("this browser does not allow WebAssembly");
    if (typeof DecompressionStream === "undefined") throw new Error("this browser is too old for it");
    await Promise.all([window.allRanksPython ?? load(`${place}/python.js`), window.allRanksRanks ?? load(`${place}/ranks.js`)]);
    frame = document.createElement("iframe");
    frame.setAttribute("sandbox", "allow-scripts");
    Object.assign(frame, { hidden: true, title: "Python of the programs on this page", srcdoc: FRAME });
    const there = reply(0);
    document.body.append(frame);
    const packed = [window.allRanksPython.loader, window.allRanksPython.machine, window.allRanksRanks];
    const [loader, machine, files] = await Promise.all(packed.map(unpack));
    await there;
    const text = (buffer) => new TextDecoder().decode(buffer);
    await tell({ code: [text(loader), "\n", WORKER], machine, files: JSON.parse(text(files)) }, [machine]);
  }

  /** Ends whatever runs: the worker goes with its frame. */
  function end() {
    frame?.remove();
    frame = started = latest = undefined;
    for (const { reject } of waiting.values()) reject(new Late());
    waiting.clear();
  }

  /** Asks one question at a time: each has the whole LIMIT, and no program is ended with another. */
  function ask(question) {
    const answer = queue.then(() => answered(question));
    queue = answer.catch(() => {});
    return answer;
  }

  async function answered(question) {
    try { return await once(question); }
    catch (error) {
      end();
      if (!(error instanceof Late && "source" in question)) throw error;
    }
    try { return await once(question, 1000); }
    catch (error) { end(); throw error; }
  }

  async function once(question, watch = 0) {
    await (started ??= start());
    let timer, ticks = (watch ? 2 : 1) * LIMIT / 100;
    const late = new Promise((_, reject) => { // where the page is seldom given the processor, nor is the worker: no clock, but ticks
      timer = setInterval(() => { ticks -= 1; if (ticks < 0) reject(new Late()); }, 100);
    });
    try {
      const answer = await Promise.race([tell({ question: JSON.stringify(question), watch }), late]);
      if (typeof answer !== "string" || answer.length > LONGEST) throw new Error("its answer is too long to be shown");
      return JSON.parse(answer);
    } finally { clearInterval(timer); }
  }

  // ---- what is shown of an answer ----

  const SHAPES = ["svg", "g", "rect", "line", "path", "circle", "text", "title"];
  const ATTRIBUTES = /^(viewBox|width|height|x|y|x1|y1|x2|y2|cx|cy|r|d|text-anchor|font-size|font-weight|font-family)$/;
  const STYLE = /^(?:(?:fill|stroke|stroke-width|stroke-dasharray|opacity|font-variant-numeric):(?:var\(--ar-[\w-]+,#\w+\)|[\w.\s-]+);?)*$/;

  /** A picture made anew, of plain shapes alone; null if the text is no picture. */
  function picture(text) {
    const svg = new DOMParser().parseFromString(String(text), "image/svg+xml").documentElement;
    if (svg.localName !== "svg") return null;
    const copy = (element) => {
      const made = document.createElementNS("http://www.w3.org/2000/svg", element.localName);
      for (const { name, value } of element.attributes) {
        if (ATTRIBUTES.test(name) || (name === "style" && STYLE.test(value))) made.setAttribute(name, value);
      }
      for (const child of element.childNodes) {
        if (child.nodeType === Node.TEXT_NODE) made.append(child.data);
        else if (SHAPES.includes(child.localName)) made.append(copy(child));
      }
      return made;
    };
    return copy(svg);
  }

  // ---- the editor: a text area over its coloured copy ----

  const TOKENS = /(#.*)|("""[\s\S]*?"""|'''[\s\S]*?'''|[frb]?"(?:\\.|[^"\\\n])*"|[frb]?'(?:\\.|[^'\\\n])*')|\b(and|as|assert|break|class|continue|def|del|elif|else|except|finally|for|from|global|if|import|in|is|lambda|nonlocal|not|or|pass|raise|return|try|while|with|yield|None|True|False)\b|\b(\d[\w.]*)/g;
  const KINDS = [null, "ar-note", "ar-text", "ar-word", "ar-number"];

  function span(kind, text) {
    return Object.assign(document.createElement("span"), { className: kind, textContent: text });
  }

  /** The lines of a program, each a list of nodes. */
  function coloured(source) {
    const lines = [[]];
    const add = (text, kind) => text.split("\n").forEach((part, i) => {
      if (i) lines.push([]);
      if (part) lines.at(-1).push(kind ? span(kind, part) : part);
    });
    let done = 0;
    for (const match of source.matchAll(TOKENS)) {
      add(source.slice(done, match.index));
      add(match[0], KINDS[match.findIndex((group, i) => i && group !== undefined)]);
      done = match.index + match[0].length;
    }
    add(source.slice(done));
    return lines;
  }

  function editor(figure, run) {
    const area = figure.querySelector("textarea");
    const copy = figure.querySelector(".ar-code > pre");
    let leaving = false;

    function paint(marks = []) {
      const said = {};
      for (const [line, words] of marks) said[line] = said[line] ? `${said[line]}; ${words}` : String(words);
      copy.replaceChildren(...coloured(area.value).map((nodes, i) => {
        const line = span("ar-line", "");
        line.append(...(nodes.length ? nodes : ["\u200b"]));
        if (said[i + 1]) { line.classList.add("ar-marked"); line.dataset.mark = said[i + 1]; }
        return line;
      }));
    }

    const insert = (text) => document.execCommand("insertText", false, text); // keeps the browser's undo
    area.addEventListener("keydown", (event) => {
      const before = area.value.slice(0, area.selectionStart).split("\n").pop();
      const left = leaving;
      leaving = event.key === "Escape";
      if (event.key === "Enter" && (event.shiftKey || event.ctrlKey || event.metaKey)) { event.preventDefault(); run(); }
      else if (event.key === "Enter") {
        event.preventDefault();
        insert(`\n${before.match(/^ */)[0]}${/:\s*(#.*)?$/.test(before) ? "    " : ""}`);
      } else if (event.key === "Tab" && !event.shiftKey && !left) { event.preventDefault(); insert("    "); }
    });
    area.addEventListener("beforeinput", (event) => {
      if (event.isComposing) return;
      const end = area.selectionStart;
      const before = area.value.slice(0, end).split("\n").pop();
      if (event.inputType === "deleteContentBackward" && end === area.selectionEnd && /^ {2,}$/.test(before)) {
        event.preventDefault(); // a phone has no Shift+Tab: one key takes back one step of indentation
        area.setSelectionRange(end - (before.length % 4 || 4), end);
        document.execCommand("delete");
      } else if (touched.matches && /[“”„‘’‚]/.test(event.data ?? "")) { // a phone's keyboard makes them of " and '
        event.preventDefault();
        insert(event.data.replace(/[“”„‘’‚]/g, (quote) => STRAIGHT[quote]));
      }
    });
    paint();
    return { area, paint };
  }

  // ---- one program ----

  function program(figure) {
    const by = (selector) => figure.querySelector(selector);
    const form = by("form");
    const slider = by(".ar-message-steps input");
    const play = by('[data-do="play"]');
    const { area, paint } = editor(figure, () => run());
    const first = area.value;
    const key = `all-ranks-program:${location.pathname}#${figure.dataset.program}`;
    const mark = `#ranks-${figure.dataset.program}:`;
    let world = null, running = false, stepping = false, again = false, wanted = false, timer;
    figure.classList.add("ar-live");

    const SIZES = /\bworld_size=(\d+)\b/g;
    function readSize() {
      const found = [...area.value.matchAll(SIZES)];
      form.ranks.disabled = found.length !== 1;
      if (found.length === 1) form.ranks.value = found[0][1];
    }

    function keep() {
      try { area.value === first ? localStorage.removeItem(key) : localStorage.setItem(key, area.value); } catch {}
      if (location.hash.startsWith(mark)) history.replaceState(null, "", location.pathname + location.search); // the link holds another program
    }

    function edited() {
      stop();
      world = null;
      figure.classList.add("ar-stale");
      figure.classList.toggle("ar-edited", area.value !== first);
      paint();
      readSize();
    }

    function set(text) { area.value = text; edited(); }

    function open() { const box = by("details.ar-program"); if (box) box.open = true; }

    function show(told) {
      by(phone.matches ? ".ar-space-narrow" : ".ar-space-wide").replaceChildren(picture(told.svg) ?? "");
      by("figcaption").textContent = told.text;
      if (told.lines.length && told.failure) open();
      figure.classList.toggle("ar-step", !told.failure);
      area.parentElement.scrollLeft = 0; // a failure names a line by its number
      paint(told.lines);
    }

    function showRun(told) {
      figure.classList.remove("ar-stale");
      by(".ar-failure").textContent = told.failure ?? "";
      by(".ar-printed").textContent = told.printed;
      by(".ar-by-rank ul").replaceChildren(...(told.ranks ?? []).map((line) => {
        return Object.assign(document.createElement("li"), { textContent: line });
      }));
      for (const each of figure.querySelectorAll(".ar-space")) each.replaceChildren();
      world = told.worlds ? told.worlds - 1 : null;
      slider.parentElement.hidden = !told.steps;
      slider.max = slider.value = told.steps ?? 0;
      show({ text: told.worlds ? told.text : "No ranks were launched.", lines: told.lines, svg: told.svg, failure: told.failure });
    }

    const question = () => ({ source: area.value, alpha: Number(form.alpha.value), beta: Number(form.beta.value), narrow: phone.matches });

    async function run() {
      if (running) { wanted = true; return; }
      running = true;
      stop();
      figure.setAttribute("aria-busy", "true");
      try {
        const asked = question();
        const told = await ask(asked);
        latest = figure;
        showRun(told);
        if (asked.source !== area.value) edited(); // meanwhile
      } catch (error) {
        if (latest === figure) end(); // what it answered cannot be shown
        const last = error.message.trim().split("\n").pop(); // of a traceback
        const late = error instanceof Late || last.startsWith("KeyboardInterrupt");
        by(".ar-printed").textContent = ""; // that of an earlier run
        by(".ar-failure").textContent = late ? "The program was stopped: it runs on and on." : `This could not be run: ${last}.`;
      }
      figure.removeAttribute("aria-busy");
      running = false;
      if (wanted) { wanted = false; return run(); }
      figure.dispatchEvent(new CustomEvent("ar-ran"));
    }

    // ---- messages one by one ----

    const isKept = () => world !== null && latest === figure;

    async function showStep() {
      if (!isKept()) { const wanted = slider.value; await run(); slider.value = Math.min(wanted, slider.max); }
      if (!isKept() || running) return;
      const shown = Number(slider.value);
      const whole = shown === Number(slider.max);
      slider.setAttribute("aria-valuetext", `${shown} of ${slider.max}`);
      try {
        const told = await ask({ world, step: whole && !timer ? null : shown, narrow: phone.matches });
        if (isKept()) show(told);
        else again = world !== null; // another program ran in between: this one runs once more
      } catch (error) { by(".ar-failure").textContent = `This could not be shown: ${error.message || "it took too long"}.`; }
    }

    /** Shows the messages up to the slider's place; what it skipped while the last answer was under way is not shown. */
    async function step() {
      again = true;
      if (stepping) return;
      stepping = true;
      while (again) { again = false; await showStep(); }
      stepping = false;
      figure.dispatchEvent(new CustomEvent("ar-stepped"));
    }

    function stop() {
      clearInterval(timer);
      timer = undefined;
      play.textContent = "Play";
      play.setAttribute("aria-pressed", "false");
    }

    function move(by) {
      const next = Number(slider.value) + by;
      if (next < 0 || next > Number(slider.max)) return stop();
      slider.value = next;
      return step();
    }

    async function toggle() {
      if (timer) return stop();
      playing?.();
      playing = stop;
      if (!isKept()) await run();
      if (!isKept() || slider.parentElement.hidden) return;
      if (slider.value === slider.max) slider.value = 0;
      timer = setInterval(() => { if (!stepping) move(1); }, 700);
      play.textContent = "Pause";
      play.setAttribute("aria-pressed", "true");
    }

    const actions = {
      run,
      play: toggle,
      back: () => { stop(); move(-1); },
      on: () => { stop(); move(1); },
      reset: () => { set(first); keep(); by(".ar-failure").textContent = ""; },
      copy: async (button) => {
        history.replaceState(null, "", `${mark}${await pack(area.value)}`);
        try { await navigator.clipboard.writeText(location.href); button.textContent = "Copied"; }
        catch { button.textContent = "In the address bar"; }
        setTimeout(() => { button.textContent = "Copy link"; }, 1600);
      },
    };

    async function fromAddress() {
      if (!location.hash.startsWith(mark)) return;
      const packed = location.hash.slice(mark.length).replace(/;slide-\d.*$/, "").replaceAll("-", "+").replaceAll("_", "/");
      try { set(new TextDecoder().decode(await unpack(packed))); by(".ar-failure").textContent = FROM_A_LINK; open(); }
      catch { by(".ar-failure").textContent = "The link to this page holds no program that can be read."; }
      figure.scrollIntoView({ block: "start" });
    }

    area.addEventListener("input", () => { edited(); keep(); });
    slider.addEventListener("input", () => { stop(); step(); });
    form.addEventListener("submit", (event) => event.preventDefault());
    form.addEventListener("change", ({ target }) => {
      if (target.name === "ranks") { set(area.value.replace(SIZES, `world_size=${target.value}`)); keep(); }
      if (by(".ar-failure").textContent !== FROM_A_LINK) run();
    });
    figure.addEventListener("click", ({ target }) => actions[target.dataset?.do]?.(target));
    figure.addEventListener("focusin", () => { (started ??= start()).catch(() => { started = undefined; }); }, { once: true });
    addEventListener("hashchange", fromAddress);
    phone.addEventListener("change", () => { if (world !== null) step(); });
    try { const kept = localStorage.getItem(key); if (kept !== null) set(kept); } catch {}
    readSize();
    fromAddress();
  }

  figures.forEach(program);
})();
