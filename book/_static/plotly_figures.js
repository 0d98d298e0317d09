// Draws the stored Plotly figures of a page, each when it nears the viewport, in the page's own colours.
// A classic script, not a module: browsers refuse modules on pages opened from a disk.
(() => {
  const root = document.documentElement;
  const figures = [...document.querySelectorAll("figure.ar-plotly")];
  let library;

  function loadPlotly() {
    library ??= new Promise((resolve, reject) => {
      const script = document.createElement("script");
      script.src = `${root.dataset.content_root}_static/vendor/plotly/plotly-basic.min.js`;
      script.onload = () => resolve(window.Plotly);
      script.onerror = () => reject(new Error("the Plotly script of this book is missing"));
      document.head.append(script);
    });
    return library;
  }

  function template() {
    const style = getComputedStyle(root);
    const colour = (name) => style.getPropertyValue(name).trim();
    const axis = { gridcolor: colour("--ar-grid"), linecolor: colour("--ar-grid"), zerolinecolor: colour("--ar-grid"), automargin: true };
    return {
      layout: {
        paper_bgcolor: "rgba(0,0,0,0)",
        plot_bgcolor: "rgba(0,0,0,0)",
        font: { color: colour("--pst-color-text-base"), family: getComputedStyle(document.body).fontFamily, size: 14 },
        colorway: [0, 1, 2, 3, 4, 5, 6, 7].map((rank) => colour(`--ar-rank-${rank}`)),
        margin: { l: 56, r: 12, t: 16, b: 48 },
        legend: { orientation: "h", y: 1.12 },
        xaxis: axis,
        yaxis: axis,
      },
    };
  }

  async function draw(figure) {
    const place = figure.querySelector(".ar-drawing");
    const { data, layout = {} } = JSON.parse(figure.querySelector("script").textContent);
    const Plotly = await loadPlotly();
    const height = Number(place.dataset.height);
    await Plotly.react(place, data, { ...layout, height, template: template() }, { displayModeBar: false, responsive: true });
    place.setAttribute("role", "img");
    place.setAttribute("aria-label", figure.querySelector("figcaption").textContent);
    figure.classList.add("ar-drawn");
  }

  const nearing = new IntersectionObserver((entries) => {
    for (const entry of entries.filter((one) => one.isIntersecting)) {
      nearing.unobserve(entry.target);
      draw(entry.target);
    }
  }, { rootMargin: "400px" });

  window.allRanksDraw = () => Promise.all(figures.filter((one) => !one.classList.contains("ar-drawn")).map(draw)); // before printing

  for (const figure of figures) {
    figure.querySelector(".ar-drawing").style.minHeight = `${figure.querySelector(".ar-drawing").dataset.height}px`;
    nearing.observe(figure);
  }
  new MutationObserver(() => figures.filter((one) => one.classList.contains("ar-drawn")).forEach(draw))
    .observe(root, { attributes: true, attributeFilter: ["data-theme"] });
})();
