// SPDX-License-Identifier: Apache-2.0
// Who works, with what in hand; who leads and has led; servers that share the timers, and whose apps are.
import type { ComponentChildren } from "preact";
import { get } from "../api";
import { clock, count, duration } from "../format";
import { useAsked } from "../query";
import { leader, now, server } from "../store";
import type { LeaderHistory, Led as LedRow, Move, Node, Page, ServerRow, Servers, SubApp } from "../types";
import { Grid } from "../ui/grid";
import { Card, Empty, Head, Loading, Problem } from "../ui/page";
import { Facts, Mono, Name, QueueLink, State, TaskLink, Time } from "../ui/text";

const ROLES = ["worker", "master"] as const;
const TITLES = { worker: "Workers", master: "Masters" };
const MOVES = 20; // that are shown

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

function Led() {
    const { data } = useAsked("leaders", (abort) => get<LeaderHistory>(["leader", "history"], {}, abort));
    if (!data || data.items.length === 0) return null;
    return (
        <Card title="Who has led" side={<span class="faint">as seen here since <Time ms={data.watched_ms} /></span>} flush>
            <Grid<LedRow>
                label="Who has led"
                rows={data.items}
                id={(led) => String(led.term)}
                columns={[
                    { name: "Term", cell: (led) => <Mono text={String(led.term)} />, right: true },
                    { name: "Node", cell: (led) => <Name text={led.node} max={50} />, wide: true },
                    { name: "From", cell: (led) => <span class="num">{clock(led.since_ms)}</span> },
                    { name: "Until", cell: (led) => (led.until_ms ? <span class="num">{clock(led.until_ms)}</span> : "now") },
                    { name: "For", cell: (led) => duration(Math.max(0, (led.until_ms ?? now.value) - led.since_ms)), right: true, minor: true },
                ]}
            />
        </Card>
    );
}

function stateOf(row: ServerRow, all: Servers): ComponentChildren {
    const silent = all.view && !row.registered;
    return (
        <>
            <State state={silent ? "suspect" : "live"} /> {silent && <span class="faint">not registered</span>} {all.planner === row.server && <span class="leads">plans</span>}
        </>
    );
}

function ServerTable({ all }: { all: Servers }) {
    const owned = (server: string) => all.subapps.filter((part) => part.owner === server).length;
    return (
        <Card title="Servers" side={all.balance && <span class="faint"><Name text={all.balance} max={120} /></span>} flush>
            <Grid<ServerRow>
                label="Servers"
                rows={all.servers}
                id={(row) => row.server}
                columns={[
                    { name: "Server", cell: (row) => <Name text={row.server} max={60} />, wide: true },
                    { name: "State", cell: (row) => stateOf(row, all) },
                    { name: "SubApps", cell: (row) => count(owned(row.server)), right: true },
                    { name: "Load", cell: (row) => (all.view ? count(row.load) : "–"), right: true },
                    { name: "Weight", cell: (row) => count(row.weight), right: true, minor: true },
                    { name: "Apps", cell: (row) => (row.apps.length ? <Name text={row.apps.join(", ")} max={80} /> : "all"), minor: true },
                ]}
            />
        </Card>
    );
}

function SubApps({ all }: { all: Servers }) {
    if (all.subapps.length === 0) return null;
    return (
        <Card title="Apps and subApps" flush>
            <Grid<SubApp>
                label="Apps and subApps"
                rows={all.subapps}
                id={(part) => `${part.app} ${part.subapp}`}
                columns={[
                    { name: "App", cell: (part) => <Name text={part.app} />, wide: true },
                    { name: "SubApp", cell: (part) => (part.cut ? count(part.subapp) : "whole"), right: true },
                    { name: "Owner", cell: (part) => (part.owner ? <Name text={part.owner} max={60} /> : <span class="bad">nobody</span>) },
                    { name: "Slots", cell: (part) => count(part.slots), right: true, minor: true },
                    { name: "Load", cell: (part) => count(part.load), right: true, minor: true },
                    { name: "Epoch", cell: (part) => <Mono text={String(part.epoch)} />, right: true, minor: true },
                ]}
            />
        </Card>
    );
}

function Moves({ all }: { all: Servers }) {
    if (all.moves.length === 0) return null;
    return (
        <Card title="What moved" flush>
            <Grid<Move>
                label="What moved"
                rows={all.moves.slice(0, MOVES)}
                id={(move) => String(move.number)}
                columns={[
                    { name: "When", cell: (move) => <Time ms={move.at_ms} /> },
                    { name: "App", cell: (move) => <Name text={`${move.app} ${move.subapp}`} /> },
                    { name: "From", cell: (move) => <Name text={move.from || "nobody"} max={60} />, minor: true },
                    { name: "To", cell: (move) => <Name text={move.to || "nobody"} max={60} /> },
                    { name: "Why", cell: (move) => <Name text={move.reason} max={80} />, wide: true, minor: true },
                ]}
            />
        </Card>
    );
}

function ServerCards() {
    const { data } = useAsked("servers", (abort) => get<Servers>(["servers"], {}, abort));
    if (!data) return null;
    return (
        <>
            <ServerTable all={data} />
            <SubApps all={data} />
            <Moves all={data} />
        </>
    );
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
            <Led />
            <ServerCards />
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
