// SPDX-License-Identifier: Apache-2.0
//
// build.mjs PACKAGES DIST: bundles src/ with the packages installed in PACKAGES. Names of assets carry their content, and
// the page names them by relative addresses, so that it works below any path.
import { createRequire } from "node:module";
import { mkdirSync, readFileSync, readdirSync, rmSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";

const [packages, dist] = process.argv.slice(2);
const here = dirname(fileURLToPath(import.meta.url));
const esbuild = createRequire(join(packages, "package.json"))("esbuild");

rmSync(dist, { recursive: true, force: true });
mkdirSync(join(dist, "assets"), { recursive: true });
await esbuild.build({
    entryPoints: { app: join(here, "src/main.tsx"), icon: join(here, "icon.svg") },
    outdir: join(dist, "assets"),
    entryNames: "[name]-[hash]",
    bundle: true,
    minify: true,
    format: "esm",
    target: ["es2022"],
    jsx: "automatic",
    jsxImportSource: "preact",
    loader: { ".svg": "copy" },
    nodePaths: [join(packages, "node_modules")],
    legalComments: "none",
    logLevel: "warning",
});

let page = readFileSync(join(here, "index.html"), "utf8");
for (const name of readdirSync(join(dist, "assets"))) {
    const kind = name.replace(/-[^-]*(\.\w+)$/, "$1"); // app.js, app.css, icon.svg
    page = page.replaceAll(`assets/${kind}`, `assets/${name}`);
}
writeFileSync(join(dist, "index.html"), page);
