// Copies what the pages load from node_modules into book/_static/vendor, so that the book asks no other host.
//
// Only files a page uses are copied; each package's licence travels with it.
import { cpSync, existsSync, mkdirSync, readdirSync, rmSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";

const root = join(dirname(fileURLToPath(import.meta.url)), "..", "..");
const target = join(root, "book", "_static", "vendor");

const woff2 = (folder) => readdirSync(join(root, "node_modules", folder)).filter((name) => name.endsWith(".woff2"));

const assets = [
  ["katex/dist/katex.min.css", "katex/katex.min.css"],
  ...woff2("katex/dist/fonts").map((name) => [`katex/dist/fonts/${name}`, `katex/fonts/${name}`]),
  ["katex/LICENSE", "katex/LICENSE"],
  ["plotly.js-basic-dist-min/plotly-basic.min.js", "plotly/plotly-basic.min.js"],
  ["plotly.js-basic-dist-min/LICENSE", "plotly/LICENSE"],
];

rmSync(target, { recursive: true, force: true });
for (const [source, destination] of assets) {
  const from = join(root, "node_modules", source);
  if (!existsSync(from)) {
    console.error(`node_modules/${source} is missing: run "npm ci" first.`);
    process.exit(1);
  }
  mkdirSync(dirname(join(target, destination)), { recursive: true });
  cpSync(from, join(target, destination));
}
console.log(`vendored ${assets.length} files into book/_static/vendor`);
