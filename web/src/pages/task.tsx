// SPDX-License-Identifier: Apache-2.0
// A task: what became of it so far, what it carries, and why it waits.
import type { ComponentChildren } from "preact";
import { TASK_VERBS, taskAction } from "../actions";
import { get } from "../api";
import { clock, count, duration, shown } from "../format";
import { useAsked } from "../query";
import { isAdmin, now } from "../store";
import type { Task, TaskEvent, TaskEvents, Why } from "../types";
import { Act } from "../ui/dialog";
import { Card, Empty, Head, Loading, Problem } from "../ui/page";
import { Facts, Mono, Name, QueueLink, State, Time } from "../ui/text";
import { Viewer } from "../ui/viewer";
import { NewTaskButton } from "./newtask";

// The words of an event, and the state whose colour it has.
const EVENTS: Record<string, [string, string]> = {
    enqueued: ["Enqueued", "pending"],
    due: ["Became due", "scheduled"],
    started: ["Started", "active"],
    error: ["Failed", "archived"],
    timeout: ["Timed out", "archived"],
    cancelled: ["Stopped by a cancel", "archived"],
    crash: ["Lost its worker", "archived"],
    later: ["Put off", "retry"],
    cancel: ["Cancelled by somebody", "retry"],
    run: ["Made pending by somebody", "pending"],
    archive: ["Archived by somebody", "archived"],
    prioritise: ["Given another priority", "scheduled"],
    completed: ["Completed", "completed"],
    archived: ["Archived", "archived"],
};

function wordsOf(event: TaskEvent): [string, string] {
    if (event.event === "due" && event.ms > now.value) return ["Due", "scheduled"];
    return EVENTS[event.event] ?? [event.event, "pending"];
}

// "attempt 2 by worker-1: no route"
function detailOf(event: TaskEvent): string {
    if (event.event === "enqueued") return `into ${event.text ?? ""}`;
    const who = [event.attempt ? `attempt ${event.attempt}` : "", event.node ? `by ${event.node}` : ""].filter(Boolean).join(" ");
    const said = event.text ?? (event.text_base64 ? "(not text)" : "");
    return who && said ? `${who}: ${said}` : who || said;
}

function Timeline({ task }: { task: Task }) {
    const { data, error } = useAsked(`events ${task.id} ${task.state} ${task.attempt} ${task.epoch ?? ""}`, (abort) => get<TaskEvents>(["tasks", task.id, "events"], {}, abort));
    if (!data) return error ? <Problem error={error} /> : <Loading />;
    return (
        <>
            <ol class="timeline">
                {data.items.map((event, i) => {
                    const [name, tone] = wordsOf(event);
                    const text = detailOf(event);
                    const before = i > 0 ? data.items[i - 1].ms : event.ms;
                    return (
                        <li key={i} class={`tone-${tone}`}>
                            <strong>{shown(name)}</strong> <Time ms={event.ms} />
                            <span class="faint num"> {clock(event.ms)}</span>
                            {event.ms > before && <span class="faint num"> · {duration(event.ms - before)} later</span>}
                            {text && (
                                <div class="step-text">
                                    <Name text={text} max={300} />
                                </div>
                            )}
                        </li>
                    );
                })}
            </ol>
            {data.missing > 0 && <p class="faint">Of {count(data.missing)} earlier {data.missing === 1 ? "run" : "runs"} nothing is known any more.</p>}
        </>
    );
}

function WhyWaiting({ id, state }: { id: string; state: string }) {
    const { data, error } = useAsked(`why ${id} ${state}`, (abort) => get<Why>(["tasks", id, "why"], {}, abort));
    if (error || !data || data.reasons.length === 0) return null;
    return (
        <Card title={state === "active" || state === "completed" || state === "archived" ? "What became of it" : "Why it waits"}>
            <ul class="reasons">
                {data.reasons.map((row) => (
                    <li key={row.reason}>{shown(row.text)}</li>
                ))}
            </ul>
        </Card>
    );
}

type Fact = [string, ComponentChildren];

// What most tasks do not have, of those that do.
function rare(task: Task): Fact[] {
    const rows: [string, unknown, ComponentChildren][] = [
        ["Worker", task.node, <Name text={task.node} />],
        ["Progress", task.progress, <Name text={task.progress} />],
        ["Priority", task.priority, `${task.priority} s ahead`],
        ["Partition", task.partition, count(task.partition)],
        ["Timeout", task.timeout_ms, duration(task.timeout_ms)],
        ["Deadline", task.deadline_ms, <Time ms={task.deadline_ms} />],
        ["Kept for", task.retention_ms, `${duration(task.retention_ms)} after its end`],
        ["Unique key", task.unique_key, <Mono text={task.unique_key} />],
        ["Group", task.group, <Name text={task.group} />],
        ["Topic", task.topic, <Name text={task.topic} />],
        ["Epoch", task.epoch, <Mono text={String(task.epoch)} />],
    ];
    return rows.filter(([, value]) => value).map(([name, , shape]) => [name, shape]);
}

function Details({ task }: { task: Task }) {
    const headers = Object.entries(task.headers ?? {});
    return (
        <Card title="Details">
            <Facts
                rows={[
                    ["Queue", <QueueLink name={task.queue} />],
                    ["Type", <Name text={task.type} />],
                    ["Attempts", `${count(task.attempt)} (${count(task.retried)} failed, ${count(task.crashes)} crashed; at most ${count(task.max_retry)} retries)`],
                    ...rare(task),
                    ...headers.map(([name, value]): Fact => [shown(`Header ${name}`), <Mono text={value} max={200} />]),
                ]}
            />
        </Card>
    );
}

export function TaskPage({ id }: { id: string }) {
    const { data: task, error, again } = useAsked(`task ${id}`, (abort) => get<Task>(["tasks", id], {}, abort));
    if (!task)
        return error?.status === 404 ? (
            <>
                <Head title={<Name text={id} max={60} />} />
                <Empty title="There is no such task" words={["task", "list", "--limit", "20"]}>
                    It may have ended longer ago than its retention, or been deleted.
                </Empty>
            </>
        ) : error ? (
            <Problem error={error} />
        ) : (
            <Loading />
        );
    const verbs = TASK_VERBS.filter((row) => row.states.includes(task.state));
    return (
        <>
            <Head title={<Mono text={task.id} max={60} />} about={<State state={task.state} />}>
                {isAdmin.value &&
                    verbs.map((row) => (
                        <Act key={row.verb} action={() => taskAction(row, task, again)} danger={row.danger}>
                            {row.name}
                        </Act>
                    ))}
                {task.payload !== undefined && <NewTaskButton from={{ queue: task.queue, type: task.type, payload: task.payload }} label="Once more" />}
            </Head>
            <Problem error={error} />
            <div class="columns">
                <div>
                    <Card title="Timeline">
                        <Timeline task={task} />
                    </Card>
                    <WhyWaiting id={task.id} state={task.state} />
                    <Details task={task} />
                </div>
                <div>
                    <Card title="Payload" flush>
                        <Viewer label="Payload" text={task.payload} base64={task.payload_base64} />
                    </Card>
                    {(task.result || task.result_base64) && (
                        <Card title="Result" flush>
                            <Viewer label="Result" text={task.result} base64={task.result_base64} />
                        </Card>
                    )}
                    {(task.last_error || task.last_error_base64) && (
                        <Card title="Last error" flush>
                            <Viewer label="Last error" text={task.last_error} base64={task.last_error_base64} />
                        </Card>
                    )}
                </div>
            </div>
        </>
    );
}
