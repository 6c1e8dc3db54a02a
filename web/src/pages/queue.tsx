// SPDX-License-Identifier: Apache-2.0
import { pauseAction, removeAction } from "../actions";
import { act, get } from "../api";
import { age, brief, count, duration, operand } from "../format";
import { go, link } from "../route";
import { isAdmin, known, nodes, oldestAge, queues, refresh } from "../store";
import { TASK_STATES, type Queue } from "../types";
import { Act, ask, note } from "../ui/dialog";
import { Field } from "../ui/field";
import { Card, Empty, Figure, Head, Loading } from "../ui/page";
import { Facts, Name, State } from "../ui/text";
import { NewTaskButton } from "./newtask";
import { StateBar } from "./queues";
import { TaskGrid } from "./tasks";

interface Limits {
    rate: string;
    concurrency: string;
    max_length: string;
}

function limitWords(queue: string, limits: Limits): string[] {
    return ["queue", "set", "--rate", `${limits.rate || 0}/1s`, "--concurrency", limits.concurrency || "0", "--max-length", limits.max_length || "0", ...operand(queue)];
}

function askLimits(queue: Queue): void {
    const limits: Limits = { rate: String(queue.rate ? (queue.rate * 1000) / (queue.rate_ms || 1000) : 0), concurrency: String(queue.concurrency), max_length: String(queue.max_length) };
    ask({
        title: `Limits of queue ${queue.queue}`,
        text: "0 means none.",
        words: limitWords(queue.queue, limits),
        verb: "Set",
        form: (changed) => {
            const set = (name: keyof Limits) => (value: string) => {
                limits[name] = value;
                changed(limitWords(queue.queue, limits));
            };
            return (
                <div class="form-row">
                    <Field label="Tasks a second" type="number" value={limits.rate} set={set("rate")} />
                    <Field label="Running at once" type="number" value={limits.concurrency} set={set("concurrency")} />
                    <Field label="Most that may wait" type="number" value={limits.max_length} set={set("max_length")} />
                </div>
            );
        },
        run: async () => {
            await act("PATCH", ["queues", queue.queue], { rate: Number(limits.rate), concurrency: Number(limits.concurrency), max_length: Number(limits.max_length) });
            refresh();
            return "The limits were set.";
        },
    });
}

// "1.2 ms / 30 ms"; a dash where nothing was measured.
function spread(p50_us?: number, p99_us?: number): string {
    return p99_us ? `${duration((p50_us ?? 0) / 1000)} / ${duration(p99_us / 1000)}` : "–";
}

function Settings({ queue }: { queue: Queue }) {
    const workers = [...nodes.value.values()].filter((node) => node.role === "worker" && node.queues.includes(queue.queue));
    return (
        <Card title="Times and limits" side={isAdmin.value && <button type="button" class="button small" onClick={() => askLimits(queue)}>Change limits</button>}>
            <Facts
                rows={[
                    ["Wait p50 / p99", spread(queue.wait_p50_us, queue.wait_p99_us)],
                    ["Run p50 / p99", spread(queue.run_p50_us, queue.run_p99_us)],
                    ["Partitions", `${queue.partitions}${queue.partitions > 1 && queue.assign ? `, ${queue.assign}` : ""}`],
                    ["Rate limit", queue.rate ? `${count(queue.rate)} per ${duration(queue.rate_ms || 1000)}` : "none"],
                    ["Running at once", queue.concurrency ? count(queue.concurrency) : "no limit"],
                    ["May wait", queue.max_length ? count(queue.max_length) : "no limit"],
                    ["Workers", workers.length ? workers.map((node) => <span key={node.node} class="listed"><Name text={node.node} max={30} /></span>) : "none"],
                    ["Trimmed", count(queue.trimmed ?? 0)],
                    ["Quarantined", count(queue.quarantined ?? 0)],
                ]}
            />
        </Card>
    );
}

// How many tasks go with it is looked up first: what was told last may be a second old.
async function askRemove(name: string): Promise<void> {
    try {
        ask(removeAction(await get<Queue>(["queues", name]), () => go(["queues"])));
    } catch (error) {
        note((error as Error).message, true);
    }
}

function Figures({ queue }: { queue: Queue }) {
    return (
        <div class="figures">
            {TASK_STATES.map((state) => (
                <Figure
                    key={state}
                    name={state[0].toUpperCase() + state.slice(1)}
                    value={brief(queue[state])}
                    tone={state === "archived" && queue.archived ? "bad" : undefined}
                    href={link(["tasks"], { queue: queue.queue, state })}
                />
            ))}
            <Figure name="Failed today" value={brief(queue.failed_today)} unit={`of ${brief(queue.processed_today)}`} tone={queue.failed_today ? "bad" : undefined} />
        </div>
    );
}

export function QueuePage({ name }: { name: string }) {
    const queue = queues.value.get(name);
    if (!queue && !known.value) return <Loading />;
    if (!queue)
        return (
            <>
                <Head title={<Name text={name} />} />
                <Empty title="There is no such queue" words={["enqueue", "-q", name, "-t", "hello", "{}"]}>
                    It comes into being with its first task.
                </Empty>
            </>
        );
    return (
        <>
            <Head
                title={<Name text={queue.queue} />}
                about={
                    <>
                        <State state={queue.paused ? "paused" : "open"} />
                        {queue.oldest_pending_ms > 0 && (
                            <>
                                {" "}
                                · oldest has waited for {age(oldestAge(queue))}
                            </>
                        )}
                    </>
                }
            >
                {isAdmin.value && (
                    <>
                        <Act action={() => pauseAction(queue)} icon={queue.paused ? "play" : "pause"}>
                            {queue.paused ? "Resume" : "Pause"}
                        </Act>
                        <button type="button" class="button quiet-danger" onClick={() => void askRemove(queue.queue)}>
                            Delete
                        </button>
                    </>
                )}
                <NewTaskButton from={{ queue: queue.queue }} />
            </Head>
            <StateBar queue={queue} />
            <Figures queue={queue} />
            <Settings queue={queue} />
            <Card title="Tasks" side={<a href={link(["tasks"], { queue: queue.queue })}>All of them</a>} flush>
                <TaskGrid filter={{ queue: queue.queue, state: "", type: "", text: "" }} limit={20} />
            </Card>
        </>
    );
}
