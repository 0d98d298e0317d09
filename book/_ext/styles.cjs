// Joins style sheets into one, without the rules that no page can use.
//
// Standard input: {"root", "out", "sheets": [{"file", "ours"}], "words": [files that name classes]}, files below root.
// A rule of somebody else's sheet stays if every class, id, tag and attribute in it is a word of some page or script.
const { readFileSync, writeFileSync } = require("node:fs");
const { dirname, extname, join, relative } = require("node:path");
const { transform } = require("lightningcss");
const { PurgeCSS } = require("purgecss");

const { root, out, sheets, words } = JSON.parse(readFileSync(0, "utf8"));
const read = (file) => readFileSync(join(root, file), "utf8");
const isRelative = (url) => !/^([a-z]+:|\/|#)/i.test(url);

/** The sheet, those that it imports before it, with addresses as seen from the joined sheet. */
function inlined(file, ours) {
  const imported = [];
  const { code } = transform({
    filename: file,
    code: Buffer.from(read(file)),
    minify: true,
    visitor: {
      Rule: {
        import({ value }) {
          imported.push(...inlined(join(dirname(file), value.url), ours));
          return [];
        },
      },
      Url(url) {
        if (!isRelative(url.url)) return url;
        return { ...url, url: relative(dirname(out), join(dirname(file), url.url)) };
      },
    },
  });
  return [...imported, { ours, raw: code.toString() }];
}

async function main() {
  const parts = sheets.flatMap(({ file, ours }) => inlined(file, ours));
  const content = words.map((file) => ({ raw: read(file), extension: extname(file).slice(1) }));
  const theirs = parts.filter((part) => !part.ours);
  const purged = await new PurgeCSS().purge({ content, css: theirs });
  theirs.forEach((part, index) => (part.raw = purged[index].css));
  const { code } = transform({
    filename: out,
    code: Buffer.from(parts.map((part) => part.raw).join("\n")),
    minify: true,
  });
  writeFileSync(join(root, out), code);
}

main();
