// SPDX-License-Identifier: Apache-2.0
// Making a timer, and changing one: the full definition is sent, so that what is not shown here stays.
import { appWords } from "../actions";
import { act } from "../api";
import { operand } from "../format";
import { ruleWords } from "../rule";
import type { Timer } from "../types";
import { ask } from "../ui/dialog";
import { Field } from "../ui/field";

interface Draft {
    name: string;
    app: string;
    kind: string;
    expression: string;
    tz: string;
    queue: string;
    type: string;
    payload: string;
    misfire: string;
    overlap: string;
}

const KINDS = ["cron", "every", "after-done", "at", "delay", "daily", "manual"];
const FIELDS = ["queue", "type", "misfire", "overlap"] as const;

function words(draft: Draft, old: Timer | null): string[] {
    const list = ["timer", old ? "update" : "create", ...appWords(draft)];
    list.push(...(draft.kind === "manual" ? ["--manual"] : [`--${draft.kind}`, draft.expression]));
    if (draft.tz) list.push("--tz", draft.tz);
    for (const name of FIELDS) if (draft[name]) list.push(`--${name}`, draft[name]);
    return [...list, ...operand(draft.name), ...(draft.payload ? [draft.payload] : [])];
}

function draftOf(timer: Timer | null): Draft {
    return {
        name: timer?.name ?? "",
        app: timer?.app ?? "default",
        kind: timer?.kind ?? "cron",
        expression: timer?.expression ?? "0 3 * * *",
        tz: timer?.tz ?? "UTC",
        queue: timer?.queue ?? "default",
        type: timer?.type ?? "task",
        payload: timer?.payload ?? "",
        misfire: timer?.misfire ?? "once",
        overlap: timer?.overlap ?? "allow",
    };
}

function Form({ draft, isNew, changed }: { draft: Draft; isNew: boolean; changed: () => void }) {
    const set = (name: keyof Draft) => (value: string) => {
        draft[name] = value;
        changed();
    };
    return (
        <div class="form">
            {isNew && (
                <div class="form-row">
                    <Field label="Name" value={draft.name} set={set("name")} required />
                    <Field label="App" value={draft.app} set={set("app")} />
                </div>
            )}
            <div class="form-row">
                <Field label="Kind" value={draft.kind} set={set("kind")} options={KINDS} />
                <Field label="Rule" value={draft.expression} set={set("expression")} hint={ruleWords(draft)} />
                <Field label="Zone" value={draft.tz} set={set("tz")} />
            </div>
            <div class="form-row">
                <Field label="Queue" value={draft.queue} set={set("queue")} />
                <Field label="Type" value={draft.type} set={set("type")} />
                <Field label="After a gap" value={draft.misfire} set={set("misfire")} options={["skip", "once", "all"]} />
                <Field label="While one runs" value={draft.overlap} set={set("overlap")} options={["allow", "skip", "queue", "cancel"]} />
            </div>
            <Field label="Payload" value={draft.payload} set={set("payload")} lines={3} />
        </div>
    );
}

// What the server keeps besides is sent back as it came.
const KEPT = ["strategy", "start_ms", "end_ms", "max_retry", "timeout_ms", "priority", "max_running", "jitter_ms", "times", "expire_ms", "exclude", "headers"];

async function save(draft: Draft, old: Timer | null): Promise<string> {
    const { name, app, ...rest } = draft;
    if (!old) {
        await act("POST", ["timers"], { name, app, ...rest });
        return "The timer was made.";
    }
    const kept = Object.fromEntries(Object.entries(old).filter(([field]) => KEPT.includes(field)));
    await act("PUT", ["timers", name], { ...kept, ...rest, if_version: old.version }, { app });
    return "The timer was changed.";
}

export function askTimer(old: Timer | null, done: () => void): void {
    const draft = draftOf(old);
    ask({
        title: old ? `Change timer ${old.name}` : "New timer",
        words: words(draft, old),
        verb: old ? "Change" : "Create",
        form: (changed) => <Form draft={draft} isNew={!old} changed={() => changed(words(draft, old))} />,
        run: async () => {
            const said = await save(draft, old);
            done();
            return said;
        },
    });
}
