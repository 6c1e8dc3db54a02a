// SPDX-License-Identifier: Apache-2.0
import { useState } from "preact/hooks";
import { age, brief, duration } from "../format";
import { go } from "../route";
import { known, oldestAge, queues } from "../store";
import type { Queue } from "../types";
import { Grid } from "../ui/grid";
import { Card, Empty, Head, Loading } from "../ui/page";
import { Bar, QueueLink, State } from "../ui/text";
import { NewTaskButton } from "./newtask";

export function tasksIn(queue: Queue): number {
    return queue.pending + queue.active + queue.scheduled + queue.retry + queue.archived + queue.completed + queue.aggregating;
}

export function StateBar({ queue }: { queue: Queue }) {
    const states = ["active", "pending", "scheduled", "retry", "aggregating", "completed", "archived"] as const;
    const parts = states.map((kind) => ({ kind, n: queue[kind] }));
    const label = parts.filter(({ n }) => n > 0).map(({ kind, n }) => `${n} ${kind}`).join(", ");
    return <Bar parts={parts} total={tasksIn(queue)} label={label || "no tasks"} />;
}

export function QueuesPage() {
    const [text, setText] = useState("");
    const rows = [...queues.value.values()].filter((queue) => queue.queue.toLowerCase().includes(text.toLowerCase())).sort((a, b) => a.queue.localeCompare(b.queue));
    return (
        <>
            <Head title="Queues" about={`${brief(queues.value.size)} in all`}>
                <input class="search" type="search" data-search="" placeholder="Filter by name" aria-label="Filter by name" value={text} onInput={(event) => setText(event.currentTarget.value)} />
                <NewTaskButton />
            </Head>
            {!known.value ? (
                <Loading />
            ) : queues.value.size === 0 ? (
                <Empty title="There is no queue yet" words={["enqueue", "-q", "mail", "-t", "hello", "{}"]}>
                    A queue comes into being with its first task.
                </Empty>
            ) : rows.length === 0 ? (
                <Empty title="No queue has such a name">Try a shorter part of it.</Empty>
            ) : (
                <Card flush>
                    <Grid<Queue>
                        label="Queues"
                        rows={rows}
                        id={(queue) => queue.queue}
                        open={(queue) => go(["queues", queue.queue])}
                        columns={[
                            { name: "Queue", cell: (queue) => <QueueLink name={queue.queue} />, wide: true },
                            { name: "State", cell: (queue) => <State state={queue.paused ? "paused" : "open"} /> },
                            { name: "Tasks", cell: (queue) => <StateBar queue={queue} />, minor: true },
                            { name: "Pending", cell: (queue) => brief(queue.pending), right: true },
                            { name: "Active", cell: (queue) => brief(queue.active), right: true },
                            { name: "Scheduled", cell: (queue) => brief(queue.scheduled), right: true, minor: true },
                            { name: "Retry", cell: (queue) => brief(queue.retry), right: true, minor: true },
                            { name: "Archived", cell: (queue) => <span class={queue.archived ? "bad" : ""}>{brief(queue.archived)}</span>, right: true, minor: true },
                            { name: "Oldest", cell: (queue) => age(oldestAge(queue)), right: true },
                            { name: "Wait p99", cell: (queue) => (queue.wait_p99_us ? duration(queue.wait_p99_us / 1000) : "–"), right: true, minor: true },
                            { name: "Done today", cell: (queue) => brief(queue.processed_today), right: true, minor: true },
                        ]}
                    />
                </Card>
            )}
        </>
    );
}
