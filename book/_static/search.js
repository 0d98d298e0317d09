// Reads through the text of the book for the words in the search field; the order says where a word stands:
// in a title, a glossary entry, a heading, the prose, and last the code.
(() => {
  let index; // pages with their sections; loaded with the first words, for it is the whole book
  let loading;
  const field = document.querySelector(".ar-search input");
  const said = document.querySelector(".ar-found");
  const list = document.querySelector(".ar-results");
  const EXAMPLES = ["ZeRO", "all_reduce", "1F1B", "zero bubble", "Ψ", "2(p-1)/p"];
  const SMALL = new Set("a an and are at be by can do does for how in is it of on or the to what when which why with".split(" "));
  const WEIGHT = { chapter: 1, lab: 0.8, solved: 0.4, glossary: 1, notation: 1, index: 0.5, reading_list: 0.6,
    quick_reference: 0.5, bibliography: 0.4, claims: 0.6, hardware: 0.8, explorers: 0.5, how_to_use: 0.8,
    instructors: 0.4, question_bank: 0.4, changes: 0.2 };
  const KIND = { lab: "lab", solved: "solved lab", glossary: "glossary" };
  const MOST = 20;

  const plain = (text) => text.normalize("NFC").replace(/[‐‑–−]/g, "-").replace(/[’‘]/g, "'");

  // A word finds itself with any case, with hyphen, underscore, space or nothing between its parts, and its plural.
  function pattern(word) {
    const parts = plain(word).replace(/s$/, (s) => (word.length > 3 ? "" : s)).match(/[-_]+|\s+|[\p{L}\p{N}]+|./gu) || [];
    const source = parts.map((part) => {
      if (/^\p{L}{5,}$/u.test(part)) return [...part].join("[-_]?");
      if (/^[\p{L}\p{N}]+$/u.test(part)) return part;
      if (/^[-_]/.test(part)) return "[-_ ]?";
      return /^\s/.test(part) ? "[-_\\s]+" : `\\s*${part.replace(/[\\^$.*+?()[\]{}|/]/g, "\\$&")}\\s*`;
    });
    const start = /^[\p{L}\p{N}]/u.test(word) ? "(?<![\\p{L}\\p{N}])" : "";
    return new RegExp(start + source.join(""), "giu");
  }

  // How much a text says about a word: whole words more than beginnings, the case as typed more than another.
  function weigh(text, { word, find }, most) {
    let sum = 0;
    let count = 0;
    const read = plain(text);
    for (const { 0: found, index: at } of read.matchAll(find)) {
      const whole = /^s?(?![\p{L}\p{N}])/u.test(read.slice(at + found.length));
      const same = found.trim() === word || (/^\p{Lu}?[^\p{Lu}]*$/u.test(word) && !/\p{L}\p{Lu}/u.test(found));
      sum += (whole ? 1 : 0.4) * (same ? 1 : 0.3);
      if (++count === most) break;
    }
    return sum;
  }

  function asked(query) {
    const all = (query.replace(/["“”„]/g, " ").trim() || query.trim()).split(/\s+/).filter(Boolean);
    const large = all.filter((word) => !SMALL.has(word.toLowerCase()));
    const words = (large.length ? large : all).map((word) => ({ word, find: pattern(word) }));
    return { words, phrase: { word: all.join(" "), find: pattern(all.join(" ")) } };
  }

  // The score of one section for all words; null if a word that is needed is missing.
  function score([, heading, prose, code], title, isFirst, { words, phrase }, needed) {
    let sum = 0;
    let found = 0;
    for (const each of words) {
      const own = 12 * weigh(heading, each, 1) + 2 * weigh(prose, each, 5) + 0.5 * weigh(code, each, 4);
      const ofPage = weigh(title, each, 1);
      if (own + ofPage > 0) found += 1;
      sum += own + (isFirst ? 18 : 3) * ofPage * (own > 0 ? 1 : 0.5);
    }
    if (found < needed) return null;
    if (words.length > 1) sum += 25 * weigh(heading, phrase, 1) + 8 * weigh(prose, phrase, 2);
    const named = plain(heading).toLowerCase();
    const name = plain(phrase.word).toLowerCase().replaceAll("_", "-");
    if (named === name) sum += 30;
    return (sum * found) / words.length;
  }

  function search(question, needed) {
    const results = [];
    for (const [url, title, kind, sections] of index) {
      const hits = sections
        .map((section, i) => ({ section, score: score(section, title, i === 0, question, needed) }))
        .filter((hit) => hit.score)
        .sort((a, b) => b.score - a.score);
      const weight = WEIGHT[kind] ?? 1;
      if (kind === "glossary") {
        for (const { section, score } of hits) results.push({ url, title: section[1] || title, kind, hits: [{ section }], score });
      } else if (hits.length) {
        const rest = hits.slice(1, 6).reduce((sum, hit) => sum + hit.score, 0);
        results.push({ url, title, kind, hits: hits.slice(0, 3), score: weight * (hits[0].score + 0.25 * rest) });
      }
    }
    return results.sort((a, b) => b.score - a.score);
  }

  const element = (name, attributes = {}, ...children) => {
    const made = Object.assign(document.createElement(name), attributes);
    made.append(...children);
    return made;
  };

  function marked(text, { words }) {
    const every = new RegExp(words.map(({ find }) => find.source).join("|"), "giu");
    const pieces = [];
    let start = 0;
    for (const { 0: found, index: at } of plain(text).matchAll(every)) {
      if (!found) continue;
      pieces.push(text.slice(start, at), element("mark", {}, text.slice(at, at + found.length)));
      start = at + found.length;
    }
    return [...pieces, text.slice(start)];
  }

  // The part of a text around its first match: the whole phrase if it is there, else one of the words.
  function excerpt([, heading, prose, code], question) {
    const place = ({ find }) => plain(prose).search(new RegExp(find.source, "iu"));
    const at = [question.phrase, ...question.words].map(place).find((each) => each >= 0);
    const inHeading = question.words.some(({ find }) => plain(heading).search(find) >= 0);
    if (at === undefined && !inHeading) {
      const names = code.split(" ").filter((name) => question.words.some(({ find }) => plain(name).search(find) >= 0));
      if (names.length) return element("p", {}, "In the code: ", element("code", {}, ...marked(names.slice(0, 4).join(", "), question)));
    }
    if (prose.length < 330) return element("p", {}, ...marked(prose, question));
    let start = Math.max(0, (at ?? 0) - 70);
    if (start) start = prose.indexOf(" ", start) + 1;
    let end = Math.min(prose.length, start + 230);
    if (end < prose.length) end = Math.max(prose.lastIndexOf(" ", end), start);
    const cut = prose.slice(start, end);
    return element("p", {}, start ? "… " : "", ...marked(cut, question), end < prose.length ? " …" : "");
  }

  function shown({ url, title, kind, hits }, question) {
    const item = element("li");
    const first = hits[0].section;
    const top = element("a", { href: kind === "glossary" ? `${url}#${first[0]}` : url }, ...marked(title, question));
    item.append(element("h2", {}, top, ...(KIND[kind] ? [element("small", {}, KIND[kind])] : [])));
    for (const { section } of hits) {
      const [anchor, heading] = section;
      const isTop = heading === title;
      if (!isTop && heading) item.append(element("a", { className: "ar-place", href: `${url}#${anchor}` }, ...marked(heading, question)));
      item.append(excerpt(section, question));
    }
    return item;
  }

  // Headings and terms that share most groups of three letters with what was typed.
  function nearest(query) {
    const groups = (text) => new Set([...`  ${text.toLowerCase()} `].map((_, i, all) => all.slice(i, i + 3).join("")));
    const wanted = groups(query);
    const names = new Set(index.flatMap(([, title, kind, sections]) => [title, ...(kind === "glossary" ? sections.map((each) => each[1]) : [])]));
    return [...names]
      .map((name) => {
        const own = groups(name);
        const shared = [...wanted].filter((group) => own.has(group)).length;
        return { name, likeness: (2 * shared) / (wanted.size + own.size) };
      })
      .filter(({ name, likeness }) => name && likeness > 0.3)
      .sort((a, b) => b.likeness - a.likeness)
      .slice(0, 3)
      .map(({ name }) => name);
  }

  const links = (queries) =>
    queries.flatMap((query, i) => [i ? ", " : "", element("a", { href: `?q=${encodeURIComponent(query)}` }, query)]);

  function load() {
    return (loading ??= new Promise((done) => {
      const script = element("script", { src: "searchindex.js", onload: done, onerror: done });
      document.head.append(script);
    }));
  }

  async function show() {
    const query = field.value.trim();
    if (query) await load();
    if (field.value.trim() !== query) return; // more was typed meanwhile
    index = window.allRanksIndex;
    list.replaceChildren();
    if (query && !index) {
      said.textContent = "The text of the book did not load: load this page again, or use the contents.";
      return;
    }
    if (!query) {
      said.replaceChildren("Words, names of functions, symbols and formulas are found as they are written: ", ...links(EXAMPLES), ".");
      return;
    }
    const question = asked(query);
    let results = search(question, question.words.length);
    let about = `${results.length} ${results.length === 1 ? "result" : "results"} for “${query}”`;
    if (results.length > MOST) about += `, the first ${MOST} of them`;
    if (!results.length && question.words.length > 1) {
      results = search(question, 1);
      about = `No section has all words of “${query}”; these have some`;
    }
    if (results.length) said.replaceChildren(`${about}.`);
    else {
      const near = nearest(query);
      const glossary = element("a", { href: "book/glossary.html" }, "glossary");
      said.replaceChildren(`Nothing was found for “${query}”. `, ...(near.length ? ["Is it ", ...links(near), "? "] : []),
        "Try one word less, another spelling, or the ", glossary, ".");
    }
    list.append(...results.slice(0, MOST).map((result) => shown(result, question)));
  }

  field.value = new URLSearchParams(location.search).get("q") || "";
  field.focus();
  let pause;
  field.addEventListener("input", () => {
    clearTimeout(pause);
    pause = setTimeout(() => {
      show();
      if (location.protocol !== "file:") history.replaceState(null, "", `?q=${encodeURIComponent(field.value.trim())}`);
    }, 150);
  });
  show();
})();
