// SPDX-License-Identifier: Apache-2.0
// The frame around the pages.
import { effect } from "@preact/signals";
import { render } from "preact";
import { useState } from "preact/hooks";
import { needsToken, setToken } from "./api";
import { brief, shown } from "./format";
import { Help, helpShown, startKeys } from "./keys";
import { DeadPage } from "./pages/dead";
import { JobPage } from "./pages/job";
import { JobsPage } from "./pages/jobs";
import { Login } from "./pages/login";
import { NodesPage } from "./pages/nodes";
import { Overview } from "./pages/overview";
import { QueuePage } from "./pages/queue";
import { QueuesPage } from "./pages/queues";
import { TaskPage } from "./pages/task";
import { TasksPage } from "./pages/tasks";
import { TimerPage } from "./pages/timer";
import { TimersPage } from "./pages/timers";
import { link, route, section, startRouting } from "./route";
import { leave, link as live, paused, session, setPaused, startLive, totals } from "./store";
import "./style.css";
import "./tables.css";
import "./controls.css";
import "./narrow.css";
import { nextTheme, theme } from "./theme";
import { Dialogs } from "./ui/dialog";
import { Icon, type IconName } from "./ui/icons";
import { Empty, Head } from "./ui/page";

const SECTIONS: { name: string; path: string[]; icon: IconName; count?: () => number }[] = [
    { name: "Overview", path: [], icon: "overview" },
    { name: "Queues", path: ["queues"], icon: "queues" },
    { name: "Tasks", path: ["tasks"], icon: "tasks", count: () => totals.value.pending + totals.value.active },
    { name: "Jobs", path: ["jobs"], icon: "jobs" },
    { name: "Timers", path: ["timers"], icon: "timers" },
    { name: "Nodes", path: ["nodes"], icon: "nodes" },
    { name: "Dead letters", path: ["dead"], icon: "dead", count: () => totals.value.archived },
];

function Page() {
    const [name, first, second] = route.value.path;
    switch (name) {
        case undefined:
            return <Overview />;
        case "queues":
            return first === undefined ? <QueuesPage /> : <QueuePage key={first} name={first} />;
        case "tasks":
            return first === undefined ? <TasksPage /> : <TaskPage key={first} id={first} />;
        case "jobs":
            return first === undefined ? <JobsPage /> : <JobPage key={first} id={first} />;
        case "timers":
            return second === undefined ? <TimersPage /> : <TimerPage key={`${first}/${second}`} app={first} name={second} />;
        case "nodes":
            return <NodesPage />;
        case "dead":
            return <DeadPage />;
        default:
            return (
                <>
                    <Head title="Nothing here" />
                    <Empty title="There is no such page">Choose one of those in the menu.</Empty>
                </>
            );
    }
}

function Nav({ close }: { close: () => void }) {
    return (
        <nav class="nav" aria-label="Millrace">
            {SECTIONS.map(({ name, path, icon, count }) => {
                const n = count?.() ?? 0;
                return (
                    <a key={name} href={link(path)} aria-current={section.value === (path[0] ?? "") ? "page" : undefined} onClick={close}>
                        <Icon name={icon} />
                        <span>{name}</span>
                        {n > 0 && <b class="num">{brief(n)}</b>}
                    </a>
                );
            })}
        </nav>
    );
}

const LINKS: Record<string, string> = { live: "Live", polling: "Looking every 2 s", connecting: "Connecting", paused: "Paused", lost: "Out of reach" };

function Tools() {
    return (
        <div class="tools">
            <button type="button" class={`live live-${live.value}`} aria-pressed={paused.value} title="Pause or resume live updates (p)" onClick={() => setPaused(!paused.value)}>
                <i aria-hidden="true" />
                {LINKS[live.value]}
            </button>
            <button type="button" class="icon" aria-label={`Theme: ${theme.value}`} title={`Theme: ${theme.value} (T)`} onClick={nextTheme}>
                <Icon name={theme.value === "dark" ? "moon" : theme.value === "light" ? "sun" : "system"} />
            </button>
            <button type="button" class="icon" aria-label="Keyboard" title="Keyboard (?)" onClick={() => (helpShown.value = true)}>
                <Icon name="keys" />
            </button>
            {session.value?.token && (
                <button type="button" class="icon" aria-label="Log out" title="Log out" onClick={leave}>
                    <Icon name="leave" />
                </button>
            )}
        </div>
    );
}

function Who() {
    const who = session.value;
    if (!who) return null;
    return (
        <p class="who">
            Millrace {shown(who.version)}
            <br />
            {who.token ? `${who.role}, token ${shown(who.token)}` : who.role === "admin" ? "no token needed here" : who.role}
            {who.queue && who.queue !== "*" ? `, queues ${shown(who.queue)}` : ""}
        </p>
    );
}

function App() {
    const [open, setOpen] = useState(false);
    if (needsToken.value) return <Login />;
    const role = session.value?.role;
    return (
        <div class={open ? "frame open" : "frame"}>
            <a class="skip" href="#main" onClick={(event) => (event.preventDefault(), document.querySelector<HTMLElement>("main h1")?.focus())}>
                To the content
            </a>
            <header class="top">
                <button type="button" class="icon burger" aria-label="Menu" aria-expanded={open} onClick={() => setOpen(!open)}>
                    <Icon name={open ? "close" : "menu"} />
                </button>
                <a class="brand" href={link([])}>
                    Millrace
                </a>
                <Tools />
            </header>
            <aside class="side-bar">
                <Nav close={() => setOpen(false)} />
                <Who />
            </aside>
            <main id="main">
                {(role === "viewer" || role === "worker") && <p class="read-only">You may look, and change nothing: this token is a {role}&apos;s.</p>}
                {session.value ? <Page /> : <p class="loading">{live.value === "lost" ? "The server is out of reach. Trying again…" : "Loading…"}</p>}
            </main>
            <Dialogs />
            <Help />
        </div>
    );
}

// A token that came with the address is kept, and taken out of it at once.
function takeToken(): void {
    const found = /^#token=(.+)$/.exec(location.hash);
    if (!found) return;
    setToken(decodeURIComponent(found[1]));
    history.replaceState(null, "", location.pathname + location.search);
}

takeToken();
startRouting();
startKeys();
startLive();
effect(() => {
    const name = SECTIONS.find(({ path }) => (path[0] ?? "") === section.value)?.name ?? "Millrace";
    document.title = `${shown(route.value.path.at(-1) ?? "") && route.value.path.length > 1 ? `${shown(route.value.path.at(-1) ?? "")} · ` : ""}${name} · Millrace`;
});
const root = document.getElementById("app");
if (root) {
    root.replaceChildren();
    render(<App />, root);
}
