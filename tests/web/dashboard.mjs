// SPDX-License-Identifier: Apache-2.0
// The dashboard in a real browser: every page, every action, live updates, keyboard, themes, a phone, roles, and names that would
// be more than names. Usage: dashboard.mjs URL URL-WITH-TOKENS ADMIN-TOKEN VIEWER-TOKEN JOB-ID
import { accessible, carryOut, expectStatus, fits, forgive, go, holds, is, launch, open, picture, until } from "./lib.mjs";

const [url, locked, admin, viewer, job] = process.argv.slice(2);
const EVIL = '<img src=x onerror="boom()">';

async function api(method, path, body) {
    const response = await fetch(`${url}/api/v1${path}`, { method, body: body === undefined ? undefined : JSON.stringify(body) });
    return response.json();
}

// Whatever has a name or a text, with one that would be more than that; by a worker that has such a name itself.
async function makeEvil() {
    const script = "<script>boom()</script>";
    const crooked = "abc\u202egpj.exe";
    await api("POST", "/tasks", [
        { queue: EVIL, type: script, id: EVIL, payload: JSON.stringify({ html: `</script>${script}` }) },
        { queue: "crooked", type: crooked, id: "bidi", payload: "red \u001b[31m and\r\nnext \u202e line" },
        { queue: "evil", type: "evil", id: "fails", payload: script, headers: { "X-Evil": script } },
    ]);
    await api("POST", "/timers", { name: EVIL, kind: "manual", queue: "evil", payload: script });
    await api("POST", `/timers?app=${encodeURIComponent(EVIL)}`, { name: "mine", app: EVIL, kind: "manual", queue: "evil" });
    const { id } = await api("POST", "/jobs", { name: `${EVIL}\u202e`, queue: EVIL, parts: [script], stages: [script] });
    const { items } = await api("POST", "/take", { queues: { evil: 1 }, node: "<b>worker</b>", max: 1, wait_ms: 10_000, lease_ms: 60_000 });
    is("taken", ["fails"], items.map((task) => task.id));
    await api("POST", "/finish", [{ id: "fails", epoch: items[0].epoch, outcome: "fatal", error: `${script}\u001b[2J\r\n\u202eboom` }]);
    await api("POST", "/tasks", [
        { queue: "evil", id: "held", payload: script, topic: script, unique_key: script, unique_ms: 60_000 },
        { queue: "grouped", id: "joins", group: `${script}\u202e` },
    ]);
    await api("POST", "/take", { queues: { evil: 1 }, node: "<b>worker</b>", max: 1, wait_ms: 10_000, lease_ms: 60_000 });
    return id;
}

const PAGES = [
    ["overview", "#/", ".figures"],
    ["queues", "#/queues", "table tbody tr"],
    ["queue", "#/queues/mail", ".figures"],
    ["tasks", "#/tasks", "table tbody tr"],
    ["task", "#/tasks/invoice-4711", ".timeline"],
    ["jobs", "#/jobs", "table tbody tr"],
    ["job", `#/jobs/${job}`, ".heat canvas"],
    ["timers", "#/timers", "table tbody tr"],
    ["timer", "#/timers/default/nightly", ".facts"],
    ["nodes", "#/nodes", "[aria-label='Apps and subApps'] tbody tr"],
    ["dead", "#/dead", "table tbody tr"],
];

const tests = {
    async "is small and quick"(browser) {
        const page = await open(browser, url);
        const session = await page.context().newCDPSession(page);
        await session.send("Network.enable");
        let bytes = 0;
        const assets = new Map();
        session.on("Network.responseReceived", ({ requestId, response }) => assets.set(requestId, response.url));
        session.on("Network.loadingFinished", ({ requestId, encodedDataLength }) => {
            if (!(assets.get(requestId) ?? "").includes("/api/")) bytes += encodedDataLength;
        });
        const answer = await page.goto(url);
        is("the policy", true, answer.headers()["content-security-policy"].startsWith("default-src 'none'; script-src 'self'"));
        await page.waitForSelector(".figures");
        let paint = Infinity;
        for (let i = 0; i < 5 && paint > 500; i++) {
            const measured = await page.evaluate(() => performance.getEntriesByName("first-contentful-paint")[0]?.startTime);
            paint = Math.min(paint, measured ?? Infinity);
            if (paint > 500) await page.reload();
        }
        holds("first paint in ms:", paint <= 500, String(paint));
        holds("bytes transferred:", bytes > 10_000 && bytes <= 300 * 1024, String(bytes));
        for (const { url: asked } of page.sent) holds("nothing is asked of others:", asked.startsWith(url), asked);
        return page;
    },

    async "shows every page, light and dark"(browser) {
        const page = await open(browser, url);
        await page.goto(url);
        for (const [name, hash, selector] of PAGES) {
            await go(page, hash, selector);
            await page.waitForSelector("main h1");
            await accessible(page, name);
            await fits(page, name);
            await picture(page, `${name}-light`);
        }
        await page.emulateMedia({ colorScheme: "dark" });
        for (const [name, hash, selector] of PAGES) {
            await go(page, hash, selector);
            await accessible(page, `${name}, dark`, ["color-contrast"]);
            await picture(page, `${name}-dark`);
        }
        return page;
    },

    async "works on a phone"(browser) {
        const page = await open(browser, url, { viewport: { width: 375, height: 720 }, hasTouch: true });
        await page.goto(url);
        for (const [name, hash, selector] of PAGES) {
            await go(page, hash, selector);
            await fits(page, `${name} on a phone`);
        }
        await page.getByRole("button", { name: "Menu" }).click();
        await page.getByRole("link", { name: /Queues/ }).first().click();
        await page.waitForSelector("table tbody tr");
        await accessible(page, "queues on a phone");
        await picture(page, "queues-phone");
        await go(page, "#/", ".figures");
        await picture(page, "overview-phone");
        return page;
    },

    async "is live, and rests while it is hidden"(browser) {
        const page = await open(browser, url);
        await page.goto(`${url}/#/queues`);
        await page.waitForSelector("table tbody tr");
        await page.waitForSelector(".live-live");
        await api("POST", "/tasks", { queue: "live", payload: "x" });
        await page.waitForSelector("table a[href='#/queues/live']");
        await page.getByRole("button", { name: "Live", exact: true }).click();
        await page.waitForSelector(".live-paused");
        await page.getByRole("button", { name: "Paused" }).click();
        await page.waitForSelector(".live-live");
        await go(page, "#/queues/live", ".figures");
        await api("POST", "/queues/live/pause");
        await page.waitForSelector("main .state-paused");
        const charts = await go(page, "#/", ".chart canvas").then(() => page.locator(".chart").count());
        is("charts", 4, charts);
        await page.evaluate(() => {
            Object.defineProperty(document, "hidden", { value: true, configurable: true });
            document.dispatchEvent(new Event("visibilitychange"));
        });
        await page.waitForSelector(".live-paused");
        await page.evaluate(() => {
            Object.defineProperty(document, "hidden", { value: false, configurable: true });
            document.dispatchEvent(new Event("visibilitychange"));
        });
        await page.waitForSelector(".live-live");
        return page;
    },

    async "shows names as names"(browser) {
        const evilJob = await makeEvil();
        const page = await open(browser, url);
        await page.addInitScript(() => (window.boom = () => console.error("boom")));
        const evil = encodeURIComponent(EVIL);
        await page.goto(`${url}/#/queues/${evil}`);
        await page.getByRole("heading", { level: 1, name: EVIL }).waitFor();
        await page.waitForSelector("table tbody tr");
        await go(page, "#/queues", "table tbody tr");
        await page.getByText(EVIL).first().waitFor();
        await go(page, `#/tasks/${evil}`, ".timeline");
        await page.waitForSelector("pre");
        const text = await page.locator("pre").first().innerText();
        holds("markup is text:", text.includes("</script><script>boom()"), text);
        await go(page, "#/tasks/bidi", ".timeline");
        const whole = await page.locator("main").innerText();
        holds("no direction is turned:", !whole.includes("\u202e") && whole.includes("U+202E"), whole);
        holds("no escape is left:", !whole.includes("\u001b"), whole);
        await go(page, "#/tasks/invoice-4711", ".timeline");
        const digits = await page.locator("pre").first().innerText();
        holds("every digit:", digits.includes("12345678901234567890") && digits.includes("0.1000000000000000055"), digits);
        await page.getByRole("button", { name: "Hex" }).first().click();
        holds("bytes", (await page.locator("pre").first().innerText()).startsWith("00000000  7b "));
        await go(page, "#/tasks/fails", ".timeline");
        const error = await page.getByLabel("Last error", { exact: true }).innerText();
        holds("an error is text:", error.includes("<script>boom()</script>") && error.includes("U+202E") && !error.includes("\u001b"), error);
        await go(page, "#/tasks/held", ".timeline");
        is("topic and key are text", 2, await page.locator(".facts").getByText("<script>boom()</script>").count());
        await go(page, "#/tasks/joins", ".timeline");
        const group = await page.locator(".facts").innerText();
        holds("a group is text:", group.includes("<script>boom()</script>") && group.includes("U+202E") && !group.includes("\u202e"), group);
        await go(page, "#/dead", "table tbody tr");
        await page.getByText("<script>boom()</script>").first().waitFor();
        await go(page, "#/timers", "table tbody tr");
        await page.getByText(EVIL).first().waitFor();
        await go(page, `#/timers/default/${evil}`, ".facts");
        await go(page, "#/nodes", ".cards");
        await page.getByText("<b>worker</b>").first().waitFor();
        await page.getByLabel("Apps and subApps", { exact: true }).getByText(EVIL).waitFor();
        await go(page, "#/jobs", "table tbody tr");
        await page.getByText(EVIL).first().waitFor();
        await go(page, `#/jobs/${evilJob}`, ".figures");
        await page.getByText("<script>boom()</script>").first().waitFor();
        const named = await page.locator("main").innerText();
        holds("the name of a job is text:", named.includes(EVIL) && named.includes("U+202E") && !named.includes("\u202e"), named);
        is("nothing was run", 0, await page.locator("main img, main script, main b:not(.num)").count());
        return page;
    },

    async "tells what a task has been through"(browser) {
        await api("POST", "/tasks", { queue: "past", id: "tried", max_retry: 9 });
        for (const error of ["no route", "<b>still</b> none"]) {
            const { items } = await api("POST", "/take", { queues: { past: 1 }, node: "hand", max: 1, wait_ms: 10_000 });
            await api("POST", "/finish", [{ id: "tried", epoch: items[0].epoch, outcome: "error", error, delay_ms: 1 }]);
        }
        await api("POST", "/tasks/tried/archive");
        const page = await open(browser, url);
        await page.goto(`${url}/#/tasks/tried`);
        await page.waitForSelector(".timeline li");
        const steps = () => page.locator(".timeline li strong").allInnerTexts();
        is("its steps", ["Enqueued", "Started", "Failed", "Started", "Failed", "Archived by somebody", "Archived"], await steps());
        await page.getByText("attempt 1 by hand: no route").waitFor();
        await page.getByText("attempt 2 by hand: <b>still</b> none").waitFor();
        await accessible(page, "a timeline");
        await picture(page, "timeline-light");
        await api("POST", "/tasks/tried/run");
        await until("live", async () => (await steps()).includes("Made pending by somebody"));
        return page;
    },

    async "shows who leads and has led, and whose the apps are"(browser) {
        const page = await open(browser, url);
        await page.goto(`${url}/#/nodes`);
        const table = (label) => page.getByLabel(label, { exact: true }).locator("tbody tr");
        await table("Servers").first().waitFor();
        is("one server", 1, await table("Servers").count());
        const server = (await api("GET", "/servers")).servers[0].server;
        await table("Servers").getByText(server.slice(0, 20)).waitFor();
        await table("Apps and subApps").filter({ hasText: "default" }).first().waitFor();
        await table("Who has led").filter({ hasText: "worker-" }).first().waitFor();
        await table("Who has led").filter({ hasText: "now" }).first().waitFor();
        await accessible(page, "servers");
        await picture(page, "servers-light");
        return page;
    },

    async "finds tasks by what they are"(browser) {
        await api("POST", "/tasks", [
            { queue: "found", type: "haystack", id: "find-me-1", payload: "a Needle in it" },
            { queue: "found", type: "other", id: "find-me-2", payload: "nothing" },
        ]);
        const page = await open(browser, url);
        await page.goto(`${url}/#/tasks?queue=found`);
        const rows = page.locator("tbody tr");
        const shows = (what, n) => until(what, async () => (await rows.count()) === n);
        await shows("a queue", 2);
        for (const [label, text] of [["Text", "needle"], ["Text", "find-me-1"], ["Type", "haystack"]]) {
            await page.getByLabel(label, { exact: true }).fill(text);
            await page.keyboard.press("Enter");
            await page.getByLabel(label, { exact: true }).blur();
            await shows(`${label} ${text}`, 1);
            holds("the right one:", (await rows.first().innerText()).includes("find-me-1"));
            await page.reload();
            await shows("it is part of the address", 1);
            await page.getByLabel(label, { exact: true }).fill("");
            await page.getByLabel(label, { exact: true }).blur();
            await shows("all of them again", 2);
        }
        const text = page.getByLabel("Text", { exact: true });
        await text.pressSequentially("half a wo");
        await api("POST", "/tasks", { queue: "news", id: "news" });
        await page.locator("#queue-names option[value=news]").waitFor({ state: "attached" });
        is("what is typed outlives a live update", "half a wo", await text.inputValue());
        await text.fill("");
        await page.locator("main").getByRole("button", { name: "completed" }).click();
        await page.getByText("No task is like this").waitFor();
        return page;
    },

    async "follows a job, and charts outlive a reload"(browser) {
        const { id } = await api("POST", "/jobs", { queue: "stepwise", parts: ["a", "b"], name: "step by step" });
        const page = await open(browser, url);
        await page.goto(`${url}/#/jobs/${id}`);
        await page.getByText("0 of 2").waitFor();
        for (const done of ["1 of 2", "2 of 2"]) {
            const { items } = await api("POST", "/take", { queues: { stepwise: 1 }, node: "hand", max: 1, wait_ms: 20_000 });
            await api("POST", "/finish", [{ id: items[0].id, epoch: items[0].epoch, outcome: "ok", result: "x" }]);
            await page.getByText(done).waitFor();
        }
        await page.waitForSelector("main .state-succeeded");
        const known = ({ backlog }) => backlog.filter((value) => value !== null).length;
        await until("a point of the last hour", async () => known(await api("GET", "/history")) >= 2);
        await go(page, "#/", ".chart canvas");
        const answer = page.waitForResponse((response) => response.url().endsWith("/api/v1/history"));
        await page.reload();
        holds("what was before the reload:", known(await (await answer).json()) >= 2);
        await page.waitForSelector(".chart canvas");
        return page;
    },

    async "acts on queues and tasks"(browser) {
        const page = await open(browser, url);
        await page.goto(`${url}/#/queues/idle`);
        await page.waitForSelector(".figures");
        const button = (name) => page.locator("main").getByRole("button", { name, exact: true });
        await button("Pause").click();
        await accessible(page, "a dialog");
        await picture(page, "dialog-light");
        await carryOut(page, "Pause", "millrace queue pause idle");
        await until("paused", async () => (await api("GET", "/queues/idle")).paused);
        await button("Resume").click();
        await carryOut(page, "Resume", "millrace queue resume idle");
        await until("resumed", async () => !(await api("GET", "/queues/idle")).paused);
        await button("Change limits").click();
        await page.getByLabel("Running at once").fill("3");
        await carryOut(page, "Set", "--concurrency 3");
        await until("limits", async () => (await api("GET", "/queues/idle")).concurrency === 3);
        await button("Enqueue a task").click();
        await page.getByLabel("Payload").fill("it's new");
        await page.getByLabel("Delay, seconds").fill("3600");
        await carryOut(page, "Enqueue", "millrace enqueue -q idle -t task --delay 1h 'it'\\''s new'");
        await until("one more", async () => (await api("GET", "/queues/idle")).scheduled === 5);

        await go(page, "#/tasks?queue=idle&state=scheduled", "table tbody tr");
        await until("all five", async () => (await page.locator("tbody tr").count()) === 5);
        await page.locator("tbody input[type=checkbox]").first().check();
        await button("Archive").click();
        await carryOut(page, "Archive 1", "millrace task archive ");
        await until("one archived", async () => (await api("GET", "/queues/idle")).archived === 1);
        await until("four left", async () => (await page.locator("tbody tr").count()) === 4);
        await button("Cancel").click();
        await page.getByRole("heading", { name: "Cancel: 4 tasks" }).waitFor();
        await carryOut(page, "Cancel 4", "millrace task cancel -q idle --state scheduled --yes");
        await until("cancelled", async () => (await api("GET", "/queues/idle")).archived === 5);

        await go(page, "#/tasks?queue=idle&state=archived", "table tbody tr");
        await until("shown", async () => (await page.locator("tbody tr").count()) === 5);
        await page.locator("tbody tr").first().click();
        await page.waitForSelector(".timeline");
        await button("Run now").click();
        await carryOut(page, "Run now", "millrace task run ");
        await until("pending", async () => (await api("GET", "/queues/idle")).pending === 1);
        await page.waitForSelector("main .state-pending");
        await page.getByText("Why it waits").waitFor();
        await button("Delete").click();
        await carryOut(page, "Delete", "millrace task delete ");
        await until("deleted", async () => (await api("GET", "/queues/idle")).pending === 0);
        await page.getByText("There is no such task").waitFor();
        expectStatus(page, 404);

        await go(page, "#/queues/idle", ".figures");
        await button("Delete").click();
        await carryOut(page, "Delete it and 4 tasks", "millrace queue rm --force idle");
        await until("gone", async () => (await api("GET", "/queues/idle")).error?.code === "NOT_FOUND");
        return page;
    },

    async "acts on timers, jobs and dead letters"(browser) {
        const page = await open(browser, url);
        await page.goto(`${url}/#/timers`);
        await page.waitForSelector("table tbody tr");
        const button = (name) => page.locator("main").getByRole("button", { name, exact: true });
        await button("New timer").click();
        await page.getByLabel("Name").fill("by-hand");
        await page.getByLabel("Rule").fill("30 2 * * 1-5");
        await page.getByText("At 02:30, on Monday to Friday").waitFor();
        await page.getByLabel("Zone").fill("Europe/Berlin");
        await accessible(page, "the form of a timer");
        await carryOut(page, "Create", "millrace timer create --cron '30 2 * * 1-5' --tz Europe/Berlin");
        await go(page, "#/timers/default/by-hand", ".facts");
        await page.getByText("Asia/Tokyo (here)").waitFor();
        is("next firings", 10, await page.getByLabel("Next firings").locator("tbody tr").count());
        await button("Pause").click();
        await carryOut(page, "Pause", "millrace timer pause by-hand");
        await page.waitForSelector("main .state-paused");
        await button("Resume").click();
        await carryOut(page, "Resume", "millrace timer resume by-hand");
        await page.waitForSelector("main .state-active");
        await button("Run now").click();
        await carryOut(page, "Run now", "millrace timer run by-hand");
        await page.getByLabel("Ledger").locator("tbody tr").first().waitFor();
        await button("Edit").click();
        await page.getByLabel("Rule").fill("0 4 * * *");
        await carryOut(page, "Change", "millrace timer update --cron '0 4 * * *'");
        await page.getByText("At 04:00, every day").first().waitFor();
        await button("Delete").click();
        await carryOut(page, "Delete", "millrace timer rm by-hand");
        await until("no such timer", async () => (await api("GET", "/timers/by-hand")).error?.code === "NOT_FOUND");
        await page.getByRole("heading", { level: 1, name: "Timers" }).waitFor();
        forgive(page, 404, "/timers/by-hand");

        await go(page, `#/jobs/${job}`, ".heat canvas");
        await page.getByLabel("Failed parts").locator("tbody tr").first().waitFor();
        const { round } = await api("GET", `/jobs/${job}`);
        await button("Retry what failed").click();
        await carryOut(page, "Retry", `millrace job retry ${job}`);
        await until("it runs again", async () => (await api("GET", `/jobs/${job}`)).round > round);
        const slow = await api("POST", "/jobs", { queue: "nobody", parts: ["a", "b"], name: "slow" });
        await go(page, `#/jobs/${slow.id}`, ".figures");
        await page.getByText("No worker takes from its queue nobody.").waitFor();
        await button("Cancel").click();
        await carryOut(page, "Cancel the job", `millrace job cancel ${slow.id}`);
        await page.waitForSelector("main .state-cancelled");
        await page.getByText("No worker takes from its queue").waitFor({ state: "detached" });

        await go(page, "#/dead", "table tbody tr");
        await api("POST", "/queues/broken/pause"); // what is made pending stays so
        await page.locator("tbody tr", { hasText: "no such user" }).getByRole("button", { name: "Requeue" }).click();
        await carryOut(page, "Requeue 3", "| xargs millrace dead requeue");
        await until("requeued", async () => (await api("GET", "/queues/broken")).pending === 3);
        await button("Requeue all").click();
        await page.getByRole("heading", { name: /^Requeue \d+ tasks?$/ }).waitFor();
        await carryOut(page, /^Requeue \d+$/, "millrace dead requeue --all --yes");
        await until("all of them", async () => (await api("GET", "/queues/evil")).archived === 0);
        return page;
    },

    async "is driven by the keyboard"(browser) {
        const page = await open(browser, url);
        await page.goto(url);
        await page.waitForSelector(".figures");
        for (const [keys, want] of [["gq", "Queues"], ["gt", "Tasks"], ["gj", "Jobs"], ["gi", "Timers"], ["gn", "Nodes"], ["gd", "Dead letters"], ["go", "Overview"]]) {
            await page.keyboard.press(keys[0]);
            await page.keyboard.press(keys[1]);
            await page.getByRole("heading", { level: 1, name: want }).waitFor();
        }
        await page.keyboard.press("?");
        await page.getByRole("heading", { name: "Keyboard" }).waitFor();
        await accessible(page, "the help");
        await page.keyboard.press("Escape");
        await page.locator("dialog[open]").waitFor({ state: "detached" });
        await page.keyboard.press("g");
        await page.keyboard.press("q");
        await page.waitForSelector("table tbody tr");
        await page.keyboard.press("/");
        await page.keyboard.type("mai");
        await until("filtered", async () => (await page.locator("tbody tr").count()) === 1);
        await page.keyboard.press("Escape");
        await page.keyboard.press("j");
        await page.keyboard.press("Enter");
        await page.getByRole("heading", { level: 1, name: "mail" }).waitFor();
        is("the focus is at the head", "H1", await page.evaluate(() => document.activeElement?.tagName));
        await page.keyboard.press("T");
        is("light", "light", await page.evaluate(() => document.documentElement.dataset.theme));
        await page.keyboard.press("T");
        is("dark", "dark", await page.evaluate(() => document.documentElement.dataset.theme));
        await page.reload();
        await page.waitForSelector(".figures");
        is("kept", "dark", await page.evaluate(() => document.documentElement.dataset.theme));
        return page;
    },

    async "says what to do where there is nothing"(browser) {
        const page = await open(browser, locked);
        await page.goto(`${locked}/#token=${admin}`);
        await page.getByText("Nothing has been enqueued yet").waitFor();
        is("the token is not in the address", "", await page.evaluate(() => location.hash));
        for (const [hash, text] of [
            ["#/queues", "There is no queue yet"],
            ["#/tasks", "There are no tasks"],
            ["#/jobs", "There is no job yet"],
            ["#/timers", "There is no timer yet"],
            ["#/nodes", "No worker is there"],
            ["#/dead", "Nothing is dead"],
            ["#/nowhere", "There is no such page"],
        ]) {
            await go(page, hash, ".empty");
            await page.getByText(text).waitFor();
        }
        await accessible(page, "an empty page");
        return page;
    },

    async "asks for a token, and lets a viewer look only"(browser) {
        const page = await open(browser, locked);
        await page.goto(`${locked}/#/queues`);
        await page.getByLabel("Token").waitFor();
        expectStatus(page, 401);
        await accessible(page, "login");
        await picture(page, "login-light");
        await page.getByLabel("Token").fill("wrong");
        await page.getByRole("button", { name: "Log in" }).click();
        await page.getByRole("alert").waitFor();
        expectStatus(page, 401);
        await page.getByLabel("Token").fill(viewer);
        await page.getByRole("button", { name: "Log in" }).click();
        await page.getByText("You may look, and change nothing").waitFor();
        for (const { url: asked } of page.sent) holds("no token in an address:", !asked.includes(viewer), asked);
        for (const hash of ["#/queues", "#/tasks", "#/timers", "#/jobs", "#/dead", "#/nodes"]) {
            await go(page, hash, ".empty");
            for (const name of ["Enqueue a task", "New timer", "Requeue all", "Delete", "Pause"]) is(`${name} at ${hash}`, 0, await page.locator("main").getByRole("button", { name, exact: true }).count());
        }
        await page.getByRole("button", { name: "Log out" }).click();
        await page.getByLabel("Token").waitFor();
        is("the token is forgotten", 0, await page.evaluate(() => sessionStorage.length));
        return page;
    },
};

const browser = await launch();
const only = process.env.MR_WEB_ONLY;
let failed = 0;
for (const [name, test] of Object.entries(tests)) {
    if (only && !new RegExp(only).test(name)) continue;
    const began = Date.now();
    try {
        const page = await test(browser);
        is("the console", [], page.complaints);
        await page.context().close();
        console.log(`ok: it ${name} (${Date.now() - began} ms)`);
    } catch (error) {
        failed++;
        console.log(`FAILED: it ${name}: ${error.message}\n${error.stack}`);
        for (const context of browser.contexts()) {
            for (const page of context.pages()) await picture(page, `failed-${name.replaceAll(/\W+/g, "-")}`).catch(() => undefined);
            await context.close();
        }
    }
}
await browser.close();
process.exit(failed ? 1 : 0);
