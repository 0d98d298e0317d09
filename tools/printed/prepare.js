// Draws what a printer needs drawn: every Plotly figure, every picture, and stripes as lines.
// (A striped fill would be printed as a photograph of stripes, 100 kB for each bar.)
async () => {
  const SECONDS = 60;

  async function drawFigures() {
    for (const figure of document.querySelectorAll("figure.ar-plotly")) {
      figure.scrollIntoView();
      const end = Date.now() + SECONDS * 1000;
      while (!figure.classList.contains("ar-drawn")) {
        if (Date.now() > end) throw new Error(`a figure was not drawn in ${SECONDS} s: ${figure.textContent.slice(0, 80)}`);
        await new Promise((done) => setTimeout(done, 50));
      }
    }
  }

  const svg = (name, attributes) => {
    const made = document.createElementNS("http://www.w3.org/2000/svg", name);
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
    return made;
  };

  // Bars are one path of thick lines, "M{x} {y}h{width}" each: their outlines.
  function outlined(bars) {
    const height = parseFloat(bars.style.strokeWidth);
    return bars.getAttribute("d").replace(/M(\d+) (\d+)h(\d+)/g, (_, x, y, width) =>
      `M${x} ${y - height / 2}h${width}v${height}h-${width}z`);
  }

  function drawStripes(shape, index) {
    const paint = ["fill", "stroke"].find((one) => shape.style[one].startsWith("url"));
    const pattern = paint && document.getElementById(/#([^"')]+)/.exec(shape.style[paint])[1]);
    const stripe = pattern?.querySelector("path");
    if (!stripe) return;
    const scale = Number(/scale\((\d+)\)/.exec(pattern.getAttribute("patternTransform"))?.[1] ?? 1);
    const outline = shape.cloneNode();
    for (const name of ["style", "transform", "clip-path"]) outline.removeAttribute(name);
    if (paint === "stroke") outline.setAttribute("d", outlined(shape));
    const within = svg("clipPath", { id: `stripes-${index}` });
    within.append(outline);

    const [wide, high] = ["width", "height"].map((name) => scale * parseFloat(pattern.getAttribute(name)));
    const margin = paint === "stroke" ? parseFloat(shape.style.strokeWidth) / 2 : 0;
    const box = shape.getBBox();
    let lines = "";
    for (let x = Math.floor(box.x / wide) * wide; x < box.x + box.width; x += wide)
      for (let y = Math.floor((box.y - margin) / high) * high; y < box.y + box.height + margin; y += high)
        lines += stripe.getAttribute("d").replace(/([MLH])(-?[\d.]+)(?:[ ,](-?[\d.]+))?/g, (_, command, first, second) =>
          `${command}${first * scale + x}${second ? ` ${second * scale + y}` : ""}`);
    const drawn = stripe.cloneNode();
    drawn.setAttribute("d", lines);
    drawn.setAttribute("clip-path", `url(#stripes-${index})`);
    if (scale !== 1) drawn.setAttribute("stroke-width", scale);
    if (shape.hasAttribute("transform")) drawn.setAttribute("transform", shape.getAttribute("transform"));
    shape.style[paint] = pattern.querySelector("rect")?.style.fill || "none";
    shape.after(within, drawn);
  }

  // One thing too wide for the paper, and Chromium prints the whole book smaller.
  function requireWidth() {
    const edge = document.body.getBoundingClientRect().right + 1;
    const wide = [...document.querySelectorAll("article *")].filter((one) =>
      !one.closest("svg") && one.getBoundingClientRect().right > edge);
    if (wide.length)
      throw new Error(`wider than the paper: ${wide.map((one) => `${one.closest("article").id} ${one.tagName} ${one.textContent.trim().slice(0, 60)}`).join("; ")}`);
  }

  async function fetchPictures() {
    const pictures = [...document.images];
    pictures.forEach((picture) => { picture.loading = "eager"; });
    await Promise.all(pictures.map((picture) => picture.decode()));
  }

  await drawFigures();
  await fetchPictures();
  [...document.querySelectorAll("svg [style*='url(']")].forEach(drawStripes);
  await document.fonts.ready;
  requireWidth();
}
