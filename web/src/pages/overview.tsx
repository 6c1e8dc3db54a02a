// SPDX-License-Identifier: Apache-2.0
// How everything is: figures, the last hour, and the queues that want to be looked at.
import { age, brief, coarse, count, rate, span } from "../format";
import { link } from "../route";
import { leader, nodes, now, oldestAge, past, queues, server, totals } from "../store";
import type { History, Queue } from "../types";
import { Chart } from "../ui/chart";
import { Grid } from "../ui/grid";
import { Card, Empty, Figure, Head } from "../ui/page";
import { Name, QueueLink } from "../ui/text";

const RECENT = 12; // points: the last minute

function perSecond(values: (number | null)[], history: History): (number | null)[] {
    return values.map((value) => (value === null ? null : (value * 1000) / history.step_ms));
}

function mean(values: (number | null)[]): number | null {
    const some = values.slice(-RECENT).filter((value): value is number => value !== null);
    return some.length ? some.reduce((a, b) => a + b, 0) / some.length : null;
}

function latest(values: (number | null)[]): number | null {
    return values.slice(-RECENT).findLast((value) => value !== null) ?? null;
}

function oldest(): number {
    let ms = 0;
    for (const queue of queues.value.values()) if (!queue.paused) ms = Math.max(ms, oldestAge(queue));
    return ms;
}

// What somebody should know before anything else.
function alerts(): { text: string; href: string }[] {
    const list: { text: string; href: string }[] = [];
    if (server.value?.disk_full) list.push({ text: "The disk is full: new work is refused, finished work is still recorded.", href: link(["nodes"]) });
    if (server.value?.failed) list.push({ text: "The store has failed: the server must be restarted.", href: link(["nodes"]) });
    const waiting = totals.value.pending > 0;
    const workers = [...nodes.value.values()].filter((node) => node.role === "worker" && node.state !== "dead");
    if (waiting && workers.length === 0) list.push({ text: "Tasks wait, and no worker is there.", href: link(["nodes"]) });
    for (const queue of queues.value.values())
        if (queue.paused && queue.pending > 0) list.push({ text: `Queue ${queue.queue} is paused with ${count(queue.pending)} tasks pending.`, href: link(["queues", queue.queue]) });
    return list.slice(0, 5);
}

function Figures({ history }: { history: History }) {
    const sum = totals.value;
    const done = mean(perSecond(history.succeeded, history));
    const failed = mean(perSecond(history.failed, history));
    const first = oldest();
    const workers = [...nodes.value.values()].filter((node) => node.role === "worker" && node.state !== "dead");
    const slots = workers.reduce((n, node) => n + node.concurrency, 0);
    return (
        <div class="figures">
            <Figure name="Throughput" value={rate(done)} unit="tasks/s" />
            <Figure name="Failures" value={rate(failed)} unit="/s" tone={failed ? "bad" : undefined} />
            <Figure name="Pending" value={brief(sum.pending)} href={link(["tasks"], { state: "pending" })} />
            <Figure name="Active" value={brief(sum.active)} unit={slots ? `of ${brief(slots)} slots` : undefined} href={link(["tasks"], { state: "active" })} />
            <Figure name="Oldest waiting" value={first ? coarse(first) : "–"} />
            <Figure name="Wait p99" value={span(latest(history.wait_p99_ms))} />
            <Figure name="Dead letters" value={brief(sum.archived)} tone={sum.archived ? "bad" : undefined} href={link(["dead"])} />
            <Figure name="Workers" value={brief(workers.length)} href={link(["nodes"])} />
        </div>
    );
}

function Charts({ history }: { history: History }) {
    const common = { end_ms: history.end_ms, step_ms: history.step_ms };
    return (
        <div class="charts">
            <Card title="Throughput" side={<span class="faint">tasks a second</span>}>
                <Chart
                    title="Throughput"
                    {...common}
                    text={(value) => rate(value)}
                    lines={[
                        { name: "succeeded", colour: "--completed", values: perSecond(history.succeeded, history), fill: true },
                        { name: "failed", colour: "--archived", values: perSecond(history.failed, history) },
                    ]}
                />
            </Card>
            <Card title="Backlog" side={<span class="faint">tasks that wait</span>}>
                <Chart title="Backlog" {...common} text={(value) => (Number.isInteger(value) ? brief(value) : "")} lines={[{ name: "waiting", colour: "--pending", values: history.backlog, fill: true }]} />
            </Card>
            <Card title="Latency" side={<span class="faint">until a task begins</span>}>
                <Chart
                    title="Latency"
                    {...common}
                    text={(value) => span(value)}
                    lines={[
                        { name: "p50", colour: "--active", values: history.wait_p50_ms },
                        { name: "p99", colour: "--retry", values: history.wait_p99_ms },
                    ]}
                />
            </Card>
            <Card title="Run time" side={<span class="faint">of an attempt</span>}>
                <Chart
                    title="Run time"
                    {...common}
                    text={(value) => span(value)}
                    lines={[
                        { name: "p50", colour: "--active", values: history.run_p50_ms },
                        { name: "p99", colour: "--retry", values: history.run_p99_ms },
                    ]}
                />
            </Card>
        </div>
    );
}

function Busiest() {
    const rows = [...queues.value.values()].sort((a, b) => b.pending + b.active - a.pending - a.active || b.processed_total - a.processed_total).slice(0, 8);
    return (
        <Card title="Busiest queues" side={<a href={link(["queues"])}>All queues</a>} flush>
            <Grid<Queue>
                label="Busiest queues"
                rows={rows}
                id={(queue) => queue.queue}
                columns={[
                    { name: "Queue", cell: (queue) => <QueueLink name={queue.queue} />, wide: true },
                    { name: "Pending", cell: (queue) => brief(queue.pending), right: true },
                    { name: "Active", cell: (queue) => brief(queue.active), right: true },
                    { name: "Archived", cell: (queue) => <span class={queue.archived ? "bad" : ""}>{brief(queue.archived)}</span>, right: true, minor: true },
                    { name: "Done today", cell: (queue) => brief(queue.processed_today), right: true, minor: true },
                    { name: "Oldest", cell: (queue) => age(oldestAge(queue)), right: true },
                ]}
            />
        </Card>
    );
}

export function Overview() {
    const history = past.value;
    const list = alerts();
    return (
        <>
            <Head
                title="Overview"
                about={
                    leader.value?.node ? (
                        <>
                            Led by <Name text={leader.value.node} max={40} /> for {coarse(now.value - leader.value.since_ms)}
                        </>
                    ) : undefined
                }
            />
            {list.map((alert) => (
                <a key={alert.text} class="alert" href={alert.href}>
                    <Name text={alert.text} max={200} />
                </a>
            ))}
            <Figures history={history} />
            {queues.value.size === 0 && (
                <Empty title="Nothing has been enqueued yet" words={["enqueue", "-q", "default", "-t", "hello", '{"n":1}']}>
                    Put a first task into a queue, then start a worker for it: <code>millrace work -q default -- cat</code>
                </Empty>
            )}
            <Charts history={history} />
            {queues.value.size > 0 && <Busiest />}
        </>
    );
}
