// SPDX-License-Identifier: Apache-2.0
// Who works, with what in hand; who leads.
import type { ComponentChildren } from "preact";
import { get } from "../api";
import { count, duration } from "../format";
import { useAsked } from "../query";
import { leader, now, server } from "../store";
import type { Node, Page } from "../types";
import { Card, Empty, Head, Loading, Problem } from "../ui/page";
import { Facts, Mono, Name, QueueLink, State, TaskLink, Time } from "../ui/text";

const ROLES = ["server", "worker", "master"] as const;
const TITLES = { server: "Servers", worker: "Workers", master: "Masters" };

function Slots({ node }: { node: Node }) {
    const slots = node.slots ?? [];
    if (slots.length === 0) return null;
    const counts = new Map<string, number>();
    for (const slot of slots) counts.set(slot, (counts.get(slot) ?? 0) + 1);
    const words = [...counts].map(([state, n]) => `${n} ${state}`).join(", ");
    return (
        <div class="slots" role="img" aria-label={`Slots: ${words}`} title={words}>
            {slots.slice(0, 256).map((slot, i) => (
                <i key={i} class={`slot-${slot}`} />
            ))}
        </div>
    );
}

function Doing({ node }: { node: Node }) {
    const doing = node.doing ?? [];
    if (doing.length === 0) return null;
    return (
        <ul class="doing">
            {doing.slice(0, 20).map((run) => (
                <li key={run.slot}>
                    <State state={run.state} /> <TaskLink id={run.task_id} /> <Name text={run.type} max={30} /> <span class="faint num">{duration(Math.max(0, now.value - run.since_ms))}</span>
                </li>
            ))}
            {doing.length > 20 && <li class="faint">and {count(doing.length - 20)} more</li>}
        </ul>
    );
}

function partitionsOf(node: Node): string {
    return (node.partitions ?? []).map((owned) => `${owned.queue}: ${owned.partitions.join(", ")}`).join("; ");
}

function NodeCard({ node }: { node: Node }) {
    return (
        <Card title={<Name text={node.node} max={50} />} side={<>{node.leader && <span class="leads">leads</span>} <State state={node.state} /></>}>
            <Slots node={node} />
            <Facts
                rows={[
                    ["In hand", `${count(node.in_hand)}${node.concurrency ? ` of ${count(node.concurrency)} slots` : ""}`],
                    ["Last beat", <Time ms={node.last_beat_ms} />],
                    ["Since", <Time ms={node.started_ms} />],
                    ...(node.queues.length ? [["Queues", node.queues.slice(0, 12).map((name) => <span key={name} class="listed"><QueueLink name={name} /></span>)] as [string, ComponentChildren]] : []),
                    ...(partitionsOf(node) ? [["Partitions", <Name text={partitionsOf(node)} max={200} />] as [string, ComponentChildren]] : []),
                    ...(node.types?.length ? [["Types", <Name text={node.types.join(", ")} max={120} />] as [string, ComponentChildren]] : []),
                    ...(node.tags?.length ? [["Tags", <Name text={node.tags.join(", ")} max={120} />] as [string, ComponentChildren]] : []),
                    ["Incarnation", <Mono text={String(node.incarnation)} />],
                ]}
            />
            <Doing node={node} />
        </Card>
    );
}

function health(): string {
    const state = server.value;
    if (!state) return "–";
    if (state.failed) return "the store has failed";
    if (state.disk_full) return "the disk is full: new work is refused";
    return state.upkeep ? "well; some upkeep is under way" : "well";
}

export function NodesPage() {
    const { data, error } = useAsked("nodes", (abort) => get<Page<Node>>(["nodes"], {}, abort));
    const lead = leader.value;
    return (
        <>
            <Head title="Nodes" about={data ? `${count(data.items.length)} in all` : undefined} />
            <Problem error={error} />
            <Card title="Leader and server">
                <Facts
                    rows={[
                        ["Leader", lead?.node ? <Name text={lead.node} max={50} /> : "nobody now"],
                        ["Term", <Mono text={lead ? String(lead.term) : undefined} />],
                        ["Since", <Time ms={lead?.since_ms} />],
                        ["Leaderless", lead?.leaderless_ms ? duration(lead.leaderless_ms) : "–"],
                        ["This server", health()],
                    ]}
                />
            </Card>
            {!data && !error && <Loading />}
            {data &&
                ROLES.map((role) => {
                    const list = data.items.filter((node) => node.role === role);
                    return list.length > 0 ? (
                        <section key={role}>
                            <h2 class="section">{TITLES[role]}</h2>
                            <div class="cards">
                                {list.map((node) => (
                                    <NodeCard key={`${node.node} ${node.incarnation}`} node={node} />
                                ))}
                            </div>
                        </section>
                    ) : null;
                })}
            {data && !data.items.some((node) => node.role === "worker") && (
                <Empty title="No worker is there" words={["work", "-q", "default", "-c", "4", "--", "cat"]}>
                    Tasks wait until somebody takes them. Any program can be a worker: it reads a payload and writes a result.
                </Empty>
            )}
        </>
    );
}
