// Which pieces of a chapter stand on one slide? The cheapest cut, found as TeX finds the lines of a paragraph.
// A piece is a paragraph, a box, a list's item, a cell's code or one of its outputs; its nodes stay where they are.
(() => {
  const SMALLEST = 0.9; // so much smaller may the text of a full slide be

  function piecesIn(section, found = []) {
    for (const child of section.children) {
      if (child.tagName === "SECTION") piecesIn(child, found);
      else for (const node of partsOf(child)) found.push({ node, section });
    }
    return found;
  }

  function partsOf(node) {
    const parts = node.matches(".cell, .cell_output, ul, ol") ? [...node.children] : [];
    return parts.length ? parts.flatMap((part) => (part.matches(".cell_output") ? partsOf(part) : [part])) : [node];
  }

  // A piece's node and those it lies in, up to the article.
  function chain({ node }, article) {
    const nodes = [];
    for (let one = node; one !== article; one = one.parentElement) nodes.push(one);
    return nodes;
  }

  // What it costs to end a slide between two pieces. Infinity: not there. -Infinity: always there.
  function price({ node: last, section }, { node: next, section: its }) {
    const [said, code] = [last.matches("p"), next.matches(".cell_input")];
    if (last.matches("h1, h2, h3")) return Infinity;
    if ((section !== its && !next.matches("h3")) || last.matches(".predict")) return -Infinity;
    if (next.matches(".exercise")) return said ? 0 : -Infinity;
    if (next.matches("h3") || next.firstChild?.nodeName === "STRONG") return -1;
    if (next.matches(".predict")) return said ? 2.5 : 0;
    if (next.matches(".output")) return 3;
    if (last.matches(".output")) return code ? 0 : 2.5;
    if (last.matches(".cell_input")) return 2;
    if (code) return last.textContent.trim().endsWith(":") ? 6 : 1.5;
    return 0.5;
  }

  // What a slide of that height costs: each a little, one half empty or too full more, one that scrolls a lot.
  function weight(height, room) {
    const full = height / room;
    if (full * SMALLEST > 1) return 6 + 300 * (full * SMALLEST - 1);
    return full > 1 ? 5 + 20 * (full - 1) : 3 + 4 * (1 - full) ** 2;
  }

  function cut(pieces, room) {
    const boxes = pieces.map(({ node }) => node.getBoundingClientRect());
    const seen = pieces.map((_, at) => at).filter((at) => boxes[at].height > 0);
    const best = [{ cost: 0 }];
    for (let end = 1; end <= seen.length; end += 1) {
      best[end] = { cost: Infinity };
      for (let start = end - 1; start >= 0; start -= 1) {
        const between = start ? price(pieces[seen[start - 1]], pieces[seen[start]]) : 0;
        const height = boxes[seen[end - 1]].bottom - boxes[seen[start]].top;
        const cost = best[start].cost + Math.max(between, -1) + weight(height, room);
        if (cost < best[end].cost) best[end] = { cost, start, height };
        if (between === -Infinity) break;
      }
    }
    const slides = [];
    for (let end = seen.length; end; end = best[end].start) {
      const from = best[end].start ? seen[best[end].start] : 0; // what takes no room goes with the piece before it
      slides.unshift({
        pieces: pieces.slice(from, seen[end]),
        last: pieces[seen[end - 1]],
        fit: Math.min(1, Math.max(SMALLEST, room / best[end].height)),
      });
    }
    return slides;
  }

  window.allRanksSlides = { piecesIn, chain, cut };
})();
