// Which words do not stand out from what is behind them (WCAG 2.2, 1.4.3)? axe gives up where it finds two elements
// in one place, which on these pages is nearly everywhere. Of words that look alike (the same tags, classes and
// styles up to the root) one is measured; formulas have the colour of their text. Pictures have tests of their own.
() => {
  const canvas = new OffscreenCanvas(1, 1).getContext("2d", { willReadFrequently: true });

  /** Red, green, blue and opacity of any colour of CSS, from 0 to 1. */
  function rgba(colour) {
    canvas.clearRect(0, 0, 1, 1);
    canvas.fillStyle = colour;
    canvas.fillRect(0, 0, 1, 1);
    return [...canvas.getImageData(0, 0, 1, 1).data].map((value) => value / 255);
  }

  const over = ([r, g, b, a], under) => [r, g, b].map((value, at) => a * value + (1 - a) * under[at]);

  function behind(element) {
    if (!element) return [1, 1, 1];
    return over(rgba(getComputedStyle(element).backgroundColor), behind(element.parentElement));
  }

  /** Relative luminance. */
  function luminance(colour) {
    const [r, g, b] = colour.map((value) => value <= 0.04045 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  }

  function complaint(element) {
    const { color, fontSize, fontWeight } = getComputedStyle(element);
    const under = behind(element);
    const [dark, bright] = [over(rgba(color), under), under].map(luminance).sort((a, b) => a - b);
    const contrast = (bright + 0.05) / (dark + 0.05);
    const size = parseFloat(fontSize);
    const large = size >= 24 || (size >= 18.66 && fontWeight >= 700);
    return contrast < (large ? 3 : 4.5) && `${contrast.toFixed(2)}: ${element.outerHTML.slice(0, 200)}`;
  }

  const looks = new Map();
  const words = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (words.nextNode()) {
    const parent = words.currentNode.parentElement;
    if (!words.currentNode.data.trim() || parent.closest("svg, script, style, :disabled")) continue;
    const element = parent.closest(".katex") ?? parent;
    if (!element.checkVisibility({ visibilityProperty: true, opacityProperty: true })) continue;
    const way = [];
    for (let at = element; at; at = at.parentElement) {
      way.push(`${at.tagName}.${at.getAttribute("class")}.${at.getAttribute("style")}`);
    }
    looks.set(way.join(" "), element);
  }
  return { measured: looks.size, complaints: [...looks.values()].map(complaint).filter(Boolean) };
}
