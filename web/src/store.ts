// SPDX-License-Identifier: Apache-2.0
// What is known of the system, live: queues, nodes and the leader as /events tells them, and the figures of the last hour.
// While the page is hidden nothing is read; when it is seen again, it goes on where it was.
import { batch, computed, signal } from "@preact/signals";
import { ApiError, get, needsToken, setToken, stream, type StreamEvent } from "./api";
import { parse } from "./exact";
import type { History, Leader, Node, Page, Queue, ServerState, Session } from "./types";

const POLL_MS = 2000;
const AGAIN_MS = 1500;

export const session = signal<Session | null>(null);
export const queues = signal<ReadonlyMap<string, Queue>>(new Map());
export const nodes = signal<ReadonlyMap<string, Node>>(new Map());
export const leader = signal<Leader | null>(null);
export const server = signal<ServerState | null>(null);
export const link = signal<"connecting" | "live" | "polling" | "paused" | "lost">("connecting");
export const known = signal(false); // everything was told once
export const changes = signal(0); // rises with what is told
export const paused = signal(false); // by the person
export const now = signal(Date.now());
export const past = signal<History>(emptyPast(5000));

export const isAdmin = computed(() => session.value?.role === "admin");
export const mayProduce = computed(() => session.value?.role === "admin" || session.value?.role === "producer");

export const totals = computed(() => {
    const sum = { pending: 0, active: 0, scheduled: 0, retry: 0, archived: 0, completed: 0, aggregating: 0, processed: 0, failed: 0 };
    for (const queue of queues.value.values()) {
        sum.pending += queue.pending;
        sum.active += queue.active;
        sum.scheduled += queue.scheduled;
        sum.retry += queue.retry;
        sum.archived += queue.archived;
        sum.completed += queue.completed;
        sum.aggregating += queue.aggregating;
        sum.processed += queue.processed_total;
        sum.failed += queue.failed_total;
    }
    return sum;
});

// ---- what is told ---------------------------------------------------------------------------

let lastId = "";
let told: StreamEvent[] = [];
let flushing = 0;

function nodeKey(node: Node): string {
    return `${node.role} ${node.node} ${node.incarnation}`;
}

// An age goes on between two events.
function dated(queue: Queue): Queue {
    return { ...queue, oldest_since_ms: queue.oldest_pending_ms > 0 ? Date.now() - queue.oldest_pending_ms : 0 };
}

export function oldestAge(queue: Queue): number {
    return queue.oldest_since_ms ? Math.max(1, now.value - queue.oldest_since_ms) : 0;
}

const apply: Record<string, (data: string, next: Next) => void> = {
    start: (_data, next) => {
        next.queues.clear();
        next.nodes.clear();
    },
    queue: (data, next) => {
        const queue = parse<Queue>(data);
        next.queues.set(queue.queue, dated(queue));
    },
    queue_removed: (data, next) => next.queues.delete(parse<Queue>(data).queue),
    node: (data, next) => {
        const node = parse<Node>(data);
        if (node.state === "gone") next.nodes.delete(nodeKey(node));
        else next.nodes.set(nodeKey(node), node);
    },
    leader: (data) => (leader.value = parse<Leader>(data)),
    server: (data) => (server.value = parse<ServerState>(data)),
    ready: () => (known.value = true),
};

interface Next {
    queues: Map<string, Queue>;
    nodes: Map<string, Node>;
}

// Many events come at once: the page is drawn once for all of them.
function flush(): void {
    flushing = 0;
    const events = told;
    told = [];
    const next = { queues: new Map(queues.value), nodes: new Map(nodes.value) };
    batch(() => {
        for (const event of events) apply[event.name]?.(event.data, next);
        queues.value = next.queues;
        nodes.value = next.nodes;
        changes.value++;
    });
}

function tell(event: StreamEvent): void {
    if (event.id) lastId = event.id;
    told.push(event);
    if (!flushing) flushing = window.setTimeout(flush, 60);
}

async function poll(): Promise<void> {
    const [queuePage, nodePage, whoLeads] = await Promise.all([
        get<Page<Queue>>(["queues"]),
        get<Page<Node>>(["nodes"]),
        get<Leader>(["leader"]),
    ]);
    batch(() => {
        queues.value = new Map(queuePage.items.map((queue) => [queue.queue, dated(queue)]));
        nodes.value = new Map(nodePage.items.map((node) => [nodeKey(node), node]));
        leader.value = whoLeads;
        known.value = true;
        changes.value++;
    });
}

// ---- reading --------------------------------------------------------------------------------

let reading: AbortController | null = null;

function wait(ms: number, abort: AbortSignal): Promise<void> {
    return new Promise((resolve) => {
        const timer = setTimeout(resolve, ms);
        abort.addEventListener("abort", () => (clearTimeout(timer), resolve()), { once: true });
    });
}

// Streams while that is possible; looks now and then where it is not.
async function read(abort: AbortSignal): Promise<void> {
    while (!abort.aborted && !needsToken.value) {
        try {
            await stream(["events"], lastId, abort, tell, () => (link.value = "live"));
        } catch (error) {
            if (abort.aborted) return;
            const refused = error instanceof ApiError && (error.status === 404 || error.status === 429);
            try {
                await poll();
                link.value = refused ? "polling" : "connecting";
            } catch {
                link.value = "lost";
            }
            if (refused) {
                await wait(POLL_MS, abort);
                continue;
            }
        }
        await wait(AGAIN_MS, abort);
    }
}

function start(): void {
    if (reading || needsToken.value || session.value === null) return;
    link.value = "connecting";
    reading = new AbortController();
    void read(reading.signal);
}

function stop(): void {
    reading?.abort();
    reading = null;
    link.value = "paused";
}

export function refresh(): void {
    void poll().catch(() => undefined);
}

export function setPaused(on: boolean): void {
    paused.value = on;
    if (on) stop();
    else start();
}

// ---- the last hour --------------------------------------------------------------------------

function emptyPast(step_ms: number): History {
    const none = () => [] as (number | null)[];
    return {
        step_ms,
        end_ms: Date.now(),
        enqueued: none(),
        succeeded: none(),
        failed: none(),
        backlog: none(),
        wait_p50_ms: none(),
        wait_p99_ms: none(),
        run_p50_ms: none(),
        run_p99_ms: none(),
    };
}

async function look(): Promise<void> {
    if (document.hidden || paused.value || session.value === null || needsToken.value) return;
    try {
        past.value = await get<History>(["history"]);
    } catch {
        // next time
    }
}

// ---- who we are -----------------------------------------------------------------------------

export async function enter(): Promise<void> {
    needsToken.value = false;
    session.value = await get<Session>(["session"]);
    lastId = "";
    start();
    void look();
}

export function leave(): void {
    setToken("");
    stop();
    batch(() => {
        session.value = null;
        known.value = false;
        queues.value = new Map();
        nodes.value = new Map();
        past.value = emptyPast(5000);
        needsToken.value = true;
    });
}

export function startLive(): void {
    document.addEventListener("visibilitychange", () => {
        if (document.hidden) stop();
        else if (!paused.value) start();
    });
    setInterval(() => {
        if (!document.hidden) now.value = Date.now();
    }, 1000);
    setInterval(() => void look(), 5000);
    void enter().catch(() => {
        if (!needsToken.value) {
            link.value = "lost";
            setTimeout(startAgain, AGAIN_MS);
        }
    });
}

function startAgain(): void {
    void enter().catch(() => {
        if (!needsToken.value) setTimeout(startAgain, AGAIN_MS);
    });
}
