// SPDX-License-Identifier: Apache-2.0
// A real browser, what it complains of, and checks that name what they found.
import { createRequire } from "node:module";
import { mkdirSync } from "node:fs";
import { join } from "node:path";

const packages = process.env.MR_WEB_PACKAGES;
const require = createRequire(join(packages, "package.json"));
const { chromium } = require("playwright-core");
const axePath = require.resolve("axe-core/axe.min.js");
const WAIT_MS = 30_000;

export const pictures = process.env.MR_WEB_PICTURES;
mkdirSync(pictures, { recursive: true });

export function is(what, want, got) {
    if (JSON.stringify(want) !== JSON.stringify(got)) throw new Error(`${what}: ${JSON.stringify(got)}, not ${JSON.stringify(want)}`);
}

export function holds(what, good, more = "") {
    if (!good) throw new Error(`${what} ${typeof more === "string" ? more : JSON.stringify(more)}`);
}

export async function launch() {
    return chromium.launch({
        executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium",
        args: ["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--force-color-profile=srgb"],
    });
}

// A page on a server. Whatever its console says is collected; what a test asks for by its own doing is taken out again.
export async function open(browser, url, options = {}) {
    const context = await browser.newContext({ viewport: { width: 1280, height: 800 }, colorScheme: "light", timezoneId: "Asia/Tokyo", ...options });
    context.setDefaultTimeout(WAIT_MS);
    await context.grantPermissions(["clipboard-read", "clipboard-write"]);
    const page = await context.newPage();
    page.complaints = [];
    page.sent = [];
    page.on("console", (message) => message.type() === "error" && page.complaints.push(`${message.text()} ${message.location().url}`));
    page.on("pageerror", (error) => page.complaints.push(String(error)));
    page.on("dialog", (dialog) => (page.complaints.push(`a dialog: ${dialog.message()}`), dialog.dismiss()));
    page.on("request", (request) => page.sent.push({ method: request.method(), url: request.url() }));
    page.url0 = url;
    return page;
}

export function expectStatus(page, status) {
    const rest = page.complaints.filter((text) => !text.includes(`status of ${status}`));
    holds(`the console tells of a ${status}`, rest.length < page.complaints.length, page.complaints);
    page.complaints = rest;
}

// What is looked at once more while it goes is not there: the console may tell so, or not.
export function forgive(page, status, path) {
    page.complaints = page.complaints.filter((text) => !(text.includes(`status of ${status}`) && text.includes(path)));
}

export async function go(page, hash, selector) {
    await page.evaluate((to) => (location.hash = to), hash);
    await page.waitForSelector(selector);
}

// No rule of accessibility is broken on what is shown now.
export async function accessible(page, name, rules) {
    if (!(await page.evaluate(() => "axe" in window))) {
        // As the browser's own tools do: the page's policy does not let a script in.
        const { readFileSync } = await import("node:fs");
        await page.evaluate(readFileSync(axePath, "utf8") + "\n;0");
    }
    const broken = await page.evaluate(async (only) => {
        const options = only ? { runOnly: { type: "rule", values: only } } : { runOnly: { type: "tag", values: ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"] } };
        const { violations } = await window.axe.run(document, options);
        return violations.map(({ id, nodes }) => ({ id, nodes: nodes.slice(0, 3).map((node) => `${node.html.slice(0, 160)} ${node.failureSummary ?? ""}`) }));
    }, rules);
    is(`accessibility of ${name}`, [], broken);
}

export async function picture(page, name) {
    await page.screenshot({ path: join(pictures, `${name}.png`) });
}

// What is shown has no sideways scroll bar.
export async function fits(page, name) {
    const [whole, seen] = await page.evaluate(() => [document.documentElement.scrollWidth, document.documentElement.clientWidth]);
    holds(`${name} is wider than the screen:`, whole <= seen, `${whole} > ${seen}`);
}

export async function until(what, condition) {
    const end = Date.now() + WAIT_MS;
    while (Date.now() < end) {
        if (await condition()) return;
        await new Promise((resolve) => setTimeout(resolve, 50));
    }
    throw new Error(`waited in vain: ${what}`);
}

// In the dialog that is open: the command it shows, then its button.
export async function carryOut(page, verb, words) {
    const dialog = page.locator("dialog.dialog[open]");
    await dialog.waitFor();
    const shown = await dialog.locator(".command code").innerText();
    holds(`the command for ${verb}: ${shown} has`, shown.includes(words), words);
    await dialog.getByRole("button", { name: verb, exact: typeof verb === "string" }).click();
    await dialog.waitFor({ state: "detached" });
    return shown;
}
