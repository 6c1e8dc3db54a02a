// SPDX-License-Identifier: Apache-2.0
// Pictures of a server that has something to show, for README and docs: pictures.mjs URL PAGE..., a page as name=#/hash. Both
// themes; into the folder MR_WEB_PICTURES, with the packages of MR_WEB_PACKAGES (as tests/integration/web.sh has them).
import { go, launch, open, picture } from "./lib.mjs";

const [url, ...pages] = process.argv.slice(2);
const browser = await launch();
const page = await open(browser, url, { timezoneId: "Europe/Berlin" });
await page.goto(url);
for (const theme of ["light", "dark"]) {
    await page.emulateMedia({ colorScheme: theme });
    for (const [name, hash] of pages.map((text) => [text.slice(0, text.indexOf("=")), text.slice(text.indexOf("=") + 1)])) {
        await go(page, hash, "main h1");
        await page.waitForLoadState("networkidle", { timeout: 3000 }).catch(() => undefined); // it never is, with a stream
        await page.waitForSelector(".loading", { state: "detached" });
        await picture(page, `${name}-${theme}`);
    }
}
await browser.close();
