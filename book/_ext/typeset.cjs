// Typesets formulas with KaTeX: a JSON request on each line of standard input, its JSON answer on standard output.
const katex = require("katex");
const { createInterface } = require("node:readline");

createInterface({ input: process.stdin }).on("line", (line) => {
  const { latex, displayMode } = JSON.parse(line);
  let answer;
  try {
    answer = { html: katex.renderToString(latex, { displayMode, throwOnError: true, strict: "ignore" }) };
  } catch (error) {
    answer = { error: error.message };
  }
  process.stdout.write(`${JSON.stringify(answer)}\n`);
});
