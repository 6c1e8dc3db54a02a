// SPDX-License-Identifier: Apache-2.0
// Everything a person can do here: what it is called, what it means, how the command line says it, and how it is done.
import { act } from "./api";
import { command, cut, flagDuration, operand, quoted, shown } from "./format";
import { refresh } from "./store";
import type { DeadGroup, Queue, Task, TaskState, Timer } from "./types";
import type { Action } from "./ui/dialog";

export type TaskVerb = "run" | "cancel" | "archive" | "delete";

interface VerbRow {
    verb: TaskVerb;
    name: string;
    did: string;
    text: string;
    states: TaskState[]; // it makes sense in
    danger?: boolean;
}

export const TASK_VERBS: VerbRow[] = [
    { verb: "run", name: "Run now", did: "made pending", text: "becomes pending at once.", states: ["scheduled", "retry", "archived", "aggregating"] },
    { verb: "cancel", name: "Cancel", did: "cancelled", text: "goes to the archive if it waits, and is told to stop if it runs.", states: ["pending", "scheduled", "retry", "aggregating", "active"] },
    { verb: "archive", name: "Archive", did: "archived", text: "goes to the archive, from where it can be run again.", states: ["pending", "scheduled", "retry", "aggregating"] },
    { verb: "delete", name: "Delete", did: "deleted", text: "is deleted for good.", states: ["pending", "scheduled", "retry", "aggregating", "archived", "completed"], danger: true },
];

function one(verb: TaskVerb, id: string): Promise<unknown> {
    return verb === "delete" ? act("DELETE", ["tasks", id]) : act("POST", ["tasks", id, verb]);
}

export function taskAction(row: VerbRow, task: Task, done: () => void): Action {
    return {
        title: `${row.name}: task ${cut(shown(task.id), 40)}`,
        text: `The task ${row.text}`,
        words: ["task", row.verb, ...operand(task.id)],
        verb: row.name,
        danger: row.danger,
        run: async () => {
            await one(row.verb, task.id);
            refresh();
            done();
            return `The task was ${row.did}.`;
        },
    };
}

// ---- many -----------------------------------------------------------------------------------

export interface Filter {
    queue: string;
    state: string;
    type: string;
    text: string;
}

interface Done {
    matched: number;
    done: number;
    failed: number;
    more: boolean;
}

const CALL_MAX = 10_000; // tasks
const BESIDE = 8;

// Some at a time; how many were not carried out.
async function eachOf(verb: TaskVerb, ids: string[]): Promise<number> {
    let failed = 0;
    let at = 0;
    const work = async () => {
        while (at < ids.length) await one(verb, ids[at++]).catch(() => failed++);
    };
    await Promise.all(Array.from({ length: BESIDE }, work));
    return failed;
}

function told(n: number, failed: number, did: string): string {
    return failed ? `${n - failed} of ${n} tasks were ${did}; the others had moved on meanwhile.` : `${n} ${n === 1 ? "task was" : "tasks were"} ${did}.`;
}

// The fields that say something; one without any is of all tasks, which has to be said.
function asked(filter: Partial<Filter & { error: string }>): Record<string, string | boolean> {
    const some = Object.fromEntries(Object.entries(filter).filter(([, value]) => value !== ""));
    return Object.keys(some).length > 0 ? some : { all: true };
}

async function callAll(path: string[], body: object): Promise<Done> {
    const sum: Done = { matched: 0, done: 0, failed: 0, more: false };
    let call: Done;
    do {
        call = await act<Done>("POST", path, { ...body, max: CALL_MAX });
        sum.matched += call.matched;
        sum.done += call.done;
        sum.failed += call.failed;
    } while (call.more && call.done > 0);
    return sum;
}

function filterWords(filter: Filter): string[] {
    const words: string[] = [];
    if (filter.queue) words.push("-q", filter.queue);
    if (filter.state) words.push("--state", filter.state);
    if (filter.type) words.push("--type", filter.type);
    return words.length > 0 ? words : ["--all"];
}

// The command line has no filter by text: what fits is picked from its list.
function filterCommand(verb: TaskVerb, filter: Filter): string[] | string {
    if (!filter.text) return ["task", verb, ...filterWords(filter), "--yes"];
    const list = command(["task", "list", ...filterWords({ ...filter, text: "" }).filter((word) => word !== "--all"), "--limit", String(CALL_MAX), "--json"]);
    return `${list} | jq -r --arg text ${quoted(filter.text.toLowerCase())} '.[] | select([.id, .type, .payload, .last_error] | map(. // "" | ascii_downcase | contains($text)) | any) | .id' | xargs millrace task ${verb}`;
}

function manyAction(row: VerbRow, n: number, words: string[] | string, text: string, run: () => Promise<number>, done: () => void): Action {
    return {
        title: `${row.name}: ${n} ${n === 1 ? "task" : "tasks"}`,
        text: `Each of them ${row.text}${text}`,
        words,
        verb: `${row.name} ${n}`,
        danger: row.danger,
        run: async () => {
            const failed = await run();
            refresh();
            done();
            return told(n, failed, row.did);
        },
    };
}

export function chosenAction(row: VerbRow, ids: string[], done: () => void): Action {
    const words = ["task", row.verb, ...(ids.some((id) => id.startsWith("-")) ? ["--"] : []), ...ids];
    return manyAction(row, ids.length, words, "", () => eachOf(row.verb, ids), done);
}

// Those that the filter means are counted first. NULL: there is none.
export async function filterAction(row: VerbRow, filter: Filter, done: () => void): Promise<Action | null> {
    const body = { action: row.verb, ...asked(filter) };
    const { matched, more } = await act<Done>("POST", ["tasks", "bulk"], { ...body, dry_run: true });
    if (matched === 0) return null;
    const run = async () => (await callAll(["tasks", "bulk"], body)).failed;
    return manyAction(row, matched, filterCommand(row.verb, filter), more ? " There are more of them than could be counted." : "", run, done);
}

function groupCommand(group: DeadGroup): string {
    const list = command(["dead", "list", "-q", group.queue, "--type", group.type, "--limit", String(CALL_MAX), "--json"]);
    return `${list} | jq -r --arg error ${quoted(group.error)} '.[] | select((.last_error // "" | split("\n")[0]) == $error) | .id' | xargs millrace dead requeue`;
}

// group: NULL means all.
export async function requeueAction(group: DeadGroup | null, done: () => void): Promise<Action | null> {
    const body = group ? asked({ queue: group.queue, type: group.type, error: group.error }) : { all: true };
    const { matched } = await act<Done>("POST", ["dead", "requeue"], { ...body, dry_run: true });
    if (matched === 0) return null;
    return {
        title: `Requeue ${matched} ${matched === 1 ? "task" : "tasks"}`,
        text: `${group ? `Those of queue ${shown(group.queue)} that ended with this error become` : "All archived tasks become"} pending again, and their counts start anew.`,
        words: group ? groupCommand(group) : ["dead", "requeue", "--all", "--yes"],
        verb: `Requeue ${matched}`,
        run: async () => {
            const { failed } = await callAll(["dead", "requeue"], body);
            refresh();
            done();
            return told(matched, failed, "made pending again");
        },
    };
}

// ---- enqueue --------------------------------------------------------------------------------

export interface NewTask {
    queue: string;
    type: string;
    payload: string;
    delay_s: string;
}

export function newTaskWords(task: NewTask): string[] {
    const words = ["enqueue", "-q", task.queue, "-t", task.type];
    if (Number(task.delay_s) > 0) words.push("--delay", flagDuration(Number(task.delay_s) * 1000));
    return [...words, ...operand(task.payload)];
}

export async function enqueue(task: NewTask): Promise<string> {
    const delay_ms = Math.round(Number(task.delay_s) * 1000);
    const answer = await act<{ id: string }>("POST", ["tasks"], {
        queue: task.queue,
        type: task.type,
        payload: task.payload,
        ...(delay_ms > 0 ? { delay_ms } : {}),
    });
    refresh();
    return `Enqueued as ${answer.id}.`;
}

// ---- queues ---------------------------------------------------------------------------------

export function pauseAction(queue: Queue): Action {
    const verb = queue.paused ? "resume" : "pause";
    return {
        title: `${queue.paused ? "Resume" : "Pause"} queue ${cut(shown(queue.queue), 40)}`,
        text: queue.paused ? "Workers are handed its tasks again." : "Nothing is handed out of it until it is resumed. What runs now goes on, and new tasks are taken in.",
        words: ["queue", verb, ...operand(queue.queue)],
        verb: queue.paused ? "Resume" : "Pause",
        run: async () => {
            await act("POST", ["queues", queue.queue, verb]);
            refresh();
            return `The queue was ${verb}d.`;
        },
    };
}

export function removeAction(queue: Queue, done: () => void): Action {
    const n = queue.pending + queue.active + queue.scheduled + queue.retry + queue.archived + queue.completed + queue.aggregating;
    return {
        title: `Delete queue ${cut(shown(queue.queue), 40)}`,
        text: n > 0 ? `Its ${n} tasks are deleted with it, for good.` : "It has no tasks.",
        words: ["queue", "rm", ...(n > 0 ? ["--force"] : []), ...operand(queue.queue)],
        verb: n > 0 ? `Delete it and ${n} tasks` : "Delete",
        danger: true,
        run: async () => {
            await act("DELETE", ["queues", queue.queue], undefined, n > 0 ? { force: true } : {});
            refresh();
            done();
            return "The queue was deleted.";
        },
    };
}

// ---- timers ---------------------------------------------------------------------------------

export function appWords(timer: Pick<Timer, "app">): string[] {
    return timer.app && timer.app !== "default" ? ["--app", timer.app] : [];
}

const TIMER_TEXTS = {
    pause: ["Pause", "Nothing is planned while it is paused, and what would have been is not made up for.", "paused"],
    resume: ["Resume", "It is planned again from now on.", "resumed"],
    run: ["Run now", "One firing at once, beside those that are planned.", "run"],
} as const;

export function timerAction(verb: keyof typeof TIMER_TEXTS, timer: Timer, done: () => void): Action {
    const [name, text, did] = TIMER_TEXTS[verb];
    return {
        title: `${name}: timer ${cut(shown(timer.name), 40)}`,
        text,
        words: ["timer", verb, ...appWords(timer), ...operand(timer.name)],
        verb: name,
        run: async () => {
            await act("POST", ["timers", timer.name, verb], undefined, { app: timer.app });
            done();
            return `The timer was ${did}.`;
        },
    };
}

export function timerRemoveAction(timer: Timer, done: () => void): Action {
    return {
        title: `Delete timer ${cut(shown(timer.name), 40)}`,
        text: "It fires no more; tasks that it made stay.",
        words: ["timer", "rm", ...appWords(timer), ...operand(timer.name)],
        verb: "Delete",
        danger: true,
        run: async () => {
            await act("DELETE", ["timers", timer.name], undefined, { app: timer.app });
            done();
            return "The timer was deleted.";
        },
    };
}

// ---- jobs -----------------------------------------------------------------------------------

export function jobAction(verb: "cancel" | "retry", id: string, done: () => void): Action {
    return {
        title: `${verb === "cancel" ? "Cancel" : "Retry"} job ${cut(shown(id), 40)}`,
        text: verb === "cancel" ? "Parts that wait are dropped, those that run are told to stop." : "The parts that failed, and those that never ran, are run again.",
        words: ["job", verb, ...operand(id)],
        verb: verb === "cancel" ? "Cancel the job" : "Retry",
        danger: verb === "cancel",
        run: async () => {
            await act("POST", ["jobs", id, verb]);
            done();
            return verb === "cancel" ? "The job was cancelled." : "The job goes on.";
        },
    };
}
