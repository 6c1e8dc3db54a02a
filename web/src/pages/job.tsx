// SPDX-License-Identifier: Apache-2.0
// A job as it goes: its own stream tells of progress, its parts are drawn as a map.
import { useEffect, useRef, useState } from "preact/hooks";
import { jobAction } from "../actions";
import { ApiError, get, getBytes, stream } from "../api";
import { parse } from "../exact";
import { bytes, count, duration, rate } from "../format";
import { useAsked } from "../query";
import { link } from "../route";
import { known, mayProduce, nodes, now, queues } from "../store";
import { theme } from "../theme";
import type { Job, Page, Part } from "../types";
import { Act, note } from "../ui/dialog";
import { Grid } from "../ui/grid";
import { Card, Empty, Figure, Head, Loading, Problem } from "../ui/page";
import { Facts, Mono, Name, QueueLink, State, TaskLink, Time } from "../ui/text";
import { Viewer } from "../ui/viewer";
import { percent, Progress } from "./jobs";

const PARTS_MAX = 5000;
const PAGE = 1000;
const CELL = 10;

const ended = (job: Job) => job.state === "succeeded" || job.state === "failed" || job.state === "cancelled";

// The job, and its changes while it runs and is looked at.
function useJob(id: string): { job: Job | null; error: ApiError | null; again: () => void } {
    const { data, error, again } = useAsked(`job ${id}`, (abort) => get<Job>(["jobs", id], {}, abort));
    const [told, setTold] = useState<Job | null>(null);
    const over = data !== null && ended(data);
    useEffect(() => {
        if (over || data === null) return;
        const abort = new AbortController();
        const hide = () => document.hidden && abort.abort();
        document.addEventListener("visibilitychange", hide);
        stream(["jobs", id, "events"], "", abort.signal, (event) => {
            if (event.name === "progress" || event.name === "end") setTold(parse<Job>(event.data));
            if (event.name === "end") again();
        }).catch(() => undefined); // then it is looked at now and then
        return () => {
            abort.abort();
            document.removeEventListener("visibilitychange", hide);
        };
    }, [id, over, data === null]);
    const newest = told && data && told.id === data.id && (told.version ?? 0) > (data.version ?? 0) ? told : data;
    return { job: newest, error, again };
}

async function partsOf(id: string, abort: AbortSignal): Promise<Part[]> {
    const parts: Part[] = [];
    let cursor: string | null = null;
    do {
        const page: Page<Part> = await get<Page<Part>>(["jobs", id, "parts"], { cursor, limit: PAGE }, abort);
        parts.push(...page.items);
        cursor = page.next;
    } while (cursor && parts.length < PARTS_MAX);
    return parts;
}

const COLOURS: Record<string, string> = {
    done: "--completed",
    succeeded: "--completed",
    completed: "--completed",
    failed: "--archived",
    running: "--active",
    dispatched: "--active",
    cancelled: "--retry",
};

function draw(canvas: HTMLCanvasElement, parts: Part[], width: number): void {
    const style = getComputedStyle(document.documentElement);
    const colour = new Map<string, string>();
    const of = (state: string) => {
        const name = COLOURS[state] ?? "--line-strong";
        if (!colour.has(name)) colour.set(name, style.getPropertyValue(name).trim());
        return colour.get(name) ?? "#888";
    };
    const scale = devicePixelRatio || 1;
    const across = Math.max(1, Math.floor(width / CELL));
    const height = Math.max(1, Math.ceil(parts.length / across)) * CELL;
    canvas.width = width * scale;
    canvas.height = height * scale;
    canvas.style.height = `${height}px`;
    const context = canvas.getContext("2d");
    if (!context) return;
    context.scale(scale, scale);
    parts.forEach((part, i) => {
        context.fillStyle = of(part.state);
        context.fillRect((i % across) * CELL, Math.floor(i / across) * CELL, CELL - 2, CELL - 2);
    });
}

function HeatMap({ parts }: { parts: Part[] }) {
    const canvas = useRef<HTMLCanvasElement>(null);
    const dark = theme.value;
    useEffect(() => {
        const element = canvas.current;
        const box = element?.parentElement;
        if (!element || !box) return;
        const again = () => draw(element, parts, box.clientWidth);
        const sizes = new ResizeObserver(again);
        sizes.observe(box);
        again();
        return () => sizes.disconnect();
    }, [parts, dark]);
    const counts = new Map<string, number>();
    for (const part of parts) counts.set(part.state, (counts.get(part.state) ?? 0) + 1);
    const words = [...counts].map(([state, n]) => `${n} ${state}`).join(", ");
    return (
        <>
            <div class="heat">
                <canvas ref={canvas} role="img" aria-label={`Parts: ${words}`} />
            </div>
            <p class="faint">{words}</p>
        </>
    );
}

function Failed({ id }: { id: string }) {
    const { data } = useAsked(`failed ${id}`, (abort) => get<Page<Part>>(["jobs", id, "parts"], { state: "failed", limit: 100 }, abort));
    if (!data || data.items.length === 0) return null;
    return (
        <Card title="Failed parts" flush>
            <Grid<Part>
                label="Failed parts"
                rows={data.items}
                id={(part) => `${part.stage} ${part.index} ${part.round}`}
                columns={[
                    { name: "Part", cell: (part) => count(part.index), right: true },
                    { name: "Stage", cell: (part) => part.stage, right: true },
                    { name: "Task", cell: (part) => <TaskLink id={part.task_id} /> },
                    { name: "Error", cell: (part) => <span class="bad"><Name text={part.error} max={120} /></span>, wide: true },
                ]}
            />
        </Card>
    );
}

function Result({ job }: { job: Job }) {
    const [text, setText] = useState<string | null>(null);
    if (job.state !== "succeeded") return null;
    const show = async () => {
        try {
            setText(new TextDecoder().decode(await getBytes(["jobs", job.id, "result"])));
        } catch (error) {
            note((error as Error).message, true);
        }
    };
    return (
        <Card title="Result" side={<span class="faint">{bytes(job.result_bytes)}</span>} flush={text !== null}>
            {text === null ? (
                <button type="button" class="button" onClick={() => void show()}>
                    Show the result
                </button>
            ) : (
                <Viewer label="Result" text={text} />
            )}
        </Card>
    );
}

function Stages({ job }: { job: Job }) {
    return (
        <Card title="Stages" flush>
            <Grid
                label="Stages"
                rows={job.stages.map((stage, index) => ({ ...stage, index }))}
                id={(stage) => String(stage.index)}
                columns={[
                    { name: "Stage", cell: (stage) => <Name text={stage.type} />, wide: true },
                    { name: "Parts", cell: (stage) => count(stage.total), right: true },
                    { name: "Done", cell: (stage) => count(stage.done), right: true },
                    { name: "Failed", cell: (stage) => <span class={stage.failed ? "bad" : ""}>{count(stage.failed)}</span>, right: true },
                ]}
            />
        </Card>
    );
}

// Why nothing of it goes on, where somebody has to do something about it: as `millrace job show` says it.
function Waits({ job }: { job: Job }) {
    if (ended(job) || job.reducing || !known.value) return null;
    const paused = queues.value.get(job.queue)?.paused;
    const served = [...nodes.value.values()].some((node) => node.role === "worker" && node.state !== "dead" && node.queues.includes(job.queue));
    if (served && !paused) return null;
    const text = paused ? `Its queue ${job.queue} is paused.` : `No worker takes from its queue ${job.queue}.`;
    return (
        <a class="alert" href={link(paused ? ["queues", job.queue] : ["nodes"])}>
            <Name text={text} max={200} />
        </a>
    );
}

function left(job: Job): string {
    return job.state === "running" && job.eta_ms !== null ? duration(job.eta_ms) : "–";
}

export function JobPage({ id }: { id: string }) {
    const { job, error, again } = useJob(id);
    const parts = useAsked(`parts ${id} ${job ? ended(job) : ""}`, (abort) => partsOf(id, abort), !(job && ended(job)));
    if (!job)
        return error?.status === 404 ? (
            <>
                <Head title={<Name text={id} max={60} />} />
                <Empty title="There is no such job" words={["job", "list"]} />
            </>
        ) : error ? (
            <Problem error={error} />
        ) : (
            <Loading />
        );
    const end = job.finished_ms || now.value;
    return (
        <>
            <Head title={<Name text={job.name || job.id} max={60} />} about={<><State state={job.state} /> {job.reason && <span class="bad"><Name text={job.reason} max={200} /></span>}</>}>
                {mayProduce.value && !ended(job) && <Act action={() => jobAction("cancel", job.id, again)} danger>Cancel</Act>}
                {mayProduce.value && ended(job) && (job.failed > 0 || job.state !== "succeeded") && <Act action={() => jobAction("retry", job.id, again)}>Retry what failed</Act>}
            </Head>
            <Progress job={job} />
            <Waits job={job} />
            <div class="figures">
                <Figure name="Done" value={percent(job)} unit={`${count(job.done)} of ${count(job.total)}`} />
                <Figure name="Running" value={count(job.running)} />
                <Figure name="Failed" value={count(job.failed)} tone={job.failed ? "bad" : undefined} />
                <Figure name="Rate" value={rate(job.rate)} unit="parts/s" />
                <Figure name="Left" value={left(job)} />
                <Figure name="Took" value={duration(Math.max(0, end - job.created_ms))} />
            </div>
            {parts.data && parts.data.length > 0 && (
                <Card title="Parts" side={parts.data.length < job.total && <span class="faint">the first {count(parts.data.length)}</span>}>
                    <HeatMap parts={parts.data} />
                </Card>
            )}
            <Failed id={job.id} />
            <Stages job={job} />
            <Result job={job} />
            <Card title="Details">
                <Facts
                    rows={[
                        ["Id", <Mono text={job.id} />],
                        ["Queue", <QueueLink name={job.queue} />],
                        ["Split", <Mono text={job.split} />],
                        ["Reduce", <Mono text={job.reduce} />],
                        ["When a part fails", job.policy ?? "–"],
                        ["Priority", job.priority ? `${job.priority} s ahead` : "none"],
                        ["Created", <Time ms={job.created_ms} />],
                        ["Finished", <Time ms={job.finished_ms} />],
                    ]}
                />
            </Card>
        </>
    );
}
