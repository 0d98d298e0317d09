// MicroPython, as the pages start it, with the arithmetic in its virtual file system. It answers one JSON line for each.
//
// node run.mjs <package folder> <heap in MiB> <file of the package>...
// Its first line is {"started": ms}. Then {"expression": "memory.zero_bytes(7.5e9, 64, 1)"} gives {"value": …} or
// {"error": "ValueError", "message": …}, and {"statements": "…"} gives {"milliseconds": …} or an error.
import { readFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";
import { loadMicroPython } from "@micropython/micropython-webassembly-pyscript";

const [folder, heap, ...files] = process.argv.slice(2);
const started = performance.now();
const micropython = await loadMicroPython({
  heapsize: Number(heap) * 2 ** 20,
  stdout: (line) => process.stderr.write(`${line}\n`),
});

function write(path, text) {
  micropython.FS.mkdirTree(dirname(path));
  micropython.FS.writeFile(path, text);
}

write("/lib/allranks/__init__.py", ""); // the package's own imports launch, which a page does not have
for (const file of files) write(`/lib/allranks/${file}`, readFileSync(join(folder, file)));
const canonical = join(dirname(fileURLToPath(import.meta.url)), "canonical.py");
write("/lib/canonical.py", readFileSync(canonical));
micropython.runPython("import canonical");
const answer = micropython.globals.get("canonical").answer;

function run(statements) {
  const began = performance.now();
  try {
    micropython.runPython(statements);
  } catch (error) {
    return JSON.stringify({ error: error.type ?? error.name, message: error.message });
  }
  return JSON.stringify({ milliseconds: performance.now() - began });
}

console.log(JSON.stringify({ started: performance.now() - started }));
for await (const line of createInterface({ input: process.stdin })) {
  const request = JSON.parse(line);
  console.log("expression" in request ? answer(request.expression) : run(request.statements));
}
