// SPDX-License-Identifier: Apache-2.0
// What the dashboard works out by itself: words of rules, words for a shell, texts that are harmless, digits that stay. Usage:
// pure.mjs PACKAGES SOURCE
import { execFileSync } from "node:child_process";
import { createRequire } from "node:module";
import { join } from "node:path";
import assert from "node:assert/strict";

const [packages, source] = process.argv.slice(2);
const esbuild = createRequire(join(packages, "package.json"))("esbuild");
const entry = ["format", "exact", "rule"].map((name) => `export * from "./${name}";`).join("\n");
const { outputFiles } = await esbuild.build({ stdin: { contents: entry, resolveDir: source, loader: "ts" }, bundle: true, format: "esm", write: false });
const { cronWords, ruleWords, quoted, command, operand, shown, shownLines, duration, coarse, span, flagDuration, ago, clock, laidOut, parse, hex, cut } = await import(
    `data:text/javascript;base64,${Buffer.from(outputFiles[0].contents).toString("base64")}`
);

for (const [expression, words] of [
    ["*/15 * * * *", "every 15 minutes"],
    ["* * * * *", "every minute"],
    ["30 2 * * *", "at 02:30, every day"],
    ["0 9,17 * * 1-5", "at 09:00 and 17:00, on Monday to Friday"],
    ["0 * * * *", "every hour, on the hour"],
    ["5,35 */2 * * *", "every 2 hours, at 5 and 35 past the hour"],
    ["*/5 9-17 * * *", "every 5 minutes, from 09:00 to 17:59"],
    ["0 0 1 1 *", "at 00:00, on the 1st, in January"],
    ["0 9 LW * *", "at 09:00, on the last working day of the month"],
    ["0 9 ? * 5L", "at 09:00, on the last Friday of the month"],
    ["0 9 ? * MON#2", "at 09:00, on the 2nd Monday of the month"],
    ["0 0 13 * 5", "at 00:00, on the 13th or on Friday"],
    ["*/10 * * * * *", "every 10 seconds"],
    ["30 0 12 * * ? 2030", "at 12:00:30, every day, in 2030"],
    ["nonsense", "by nonsense"],
])
    assert.equal(cronWords(expression), words, expression);
assert.equal(ruleWords({ kind: "every", expression: "10m" }), "Every 10m");
assert.equal(ruleWords({ kind: "manual", expression: "" }), "Only when somebody runs it");

// A shell gives back what was put in.
for (const word of ["plain", "it's", "$(boom)", "`boom`", "a b\tc\nd", "", "\u001b[31mred", "\u202eexe", "back\\slash'\u0007", "*?[x]!#~"]) {
    const back = execFileSync("bash", ["-c", `printf %s ${quoted(word)}`], { encoding: "utf8" });
    assert.equal(back, word);
    assert.ok(!/[\u0000-\u0008\u000b-\u001f\u202e]/.test(quoted(word)), JSON.stringify(word));
}
assert.equal(command(["task", "run", ...operand("-x")]), "millrace task run -- -x");

assert.equal(shown("a\u001b[0m\r\n\u202eb\u0000\u200b\ud800"), "a\u241b[0m\u240d\u240a\u27e8U+202E\u27e9b\u2400\u27e8U+200B\u27e9\u27e8U+D800\u27e9");
assert.equal(shownLines("a\nb\tc\r"), "a\nb\tc\u240d");
assert.equal(shown("Grüße 你好 🎉"), "Grüße 你好 🎉");
assert.equal(cut("🎉🎉🎉🎉", 3), "🎉🎉…");

assert.deepEqual([0, 0.04, 5.25, 180, 4200, 61_000, 11_520_000, 90_000_000].map(duration), ["0 s", "40 µs", "5.3 ms", "180 ms", "4.2 s", "1 min 1 s", "3 h 12 min", "1 d 1 h"]);
assert.deepEqual([4200, 61_000, 11_520_000].map(coarse), ["4 s", "1 min", "3 h"]);
assert.deepEqual([null, 4200, 204_000, 5_400_000].map(span), ["–", "4.2 s", "3.4 min", "1.5 h"]);
assert.deepEqual([5_400_000, 250, 0].map(flagDuration), ["1h30m", "250ms", "0s"]);
assert.deepEqual([ago(1000, 61_000), ago(61_000, 1000), ago(500, 0)], ["1 min ago", "in 1 min", "now"]);
assert.equal(clock(Date.UTC(2026, 2, 29, 1, 30), "Europe/Berlin"), "2026-03-29 03:30:00");

const text = '{"n":12345678901234567890,"x":1.10,"e":{},"l":[],"s":"a\\"b{","d":[1,[true,null]]}';
const laid = laidOut(text);
assert.equal(laid.map((token) => token.text).join("").replaceAll(/\s/g, ""), text);
assert.ok(laid.some((token) => token.kind === "number" && token.text === "12345678901234567890"));
assert.equal(laidOut("{oops"), null);
assert.deepEqual(parse('{"a":1,"b":"x"}'), { a: 1, b: "x" });
assert.equal(hex(new TextEncoder().encode("hello")), "00000000  68 65 6c 6c 6f                                   hello");
