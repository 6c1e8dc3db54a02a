// SPDX-License-Identifier: Apache-2.0
import { get } from "../api";
import { count, duration, rate } from "../format";
import { useAsked } from "../query";
import { go, link, replaceQuery, route } from "../route";
import type { Job, Page } from "../types";
import { Grid } from "../ui/grid";
import { Card, Empty, Head, Loading, Problem } from "../ui/page";
import { Bar, Name, State, Time } from "../ui/text";

const STATES = ["", "created", "running", "succeeded", "failed", "cancelled"];

export function Progress({ job }: { job: Job }) {
    const parts = [
        { kind: "completed", n: job.done },
        { kind: "archived", n: job.failed },
        { kind: "active", n: job.running },
    ];
    return <Bar parts={parts} total={job.total} label={`${count(job.done)} of ${count(job.total)} parts done, ${count(job.failed)} failed`} />;
}

export function percent(job: Job): string {
    return job.total > 0 ? `${((100 * job.done) / job.total).toFixed(job.done === job.total ? 0 : 1)} %` : "–";
}

export function JobsPage() {
    const state = route.value.query.get("state") ?? "";
    const { data, error } = useAsked(`jobs ${state}`, (abort) => get<Page<Job>>(["jobs"], { state, limit: 100 }, abort));
    return (
        <>
            <Head title="Jobs" about="Big inputs, split into tasks, with one result" />
            <div class="filter">
                <div class="tabs" role="group" aria-label="State">
                    {STATES.map((name) => (
                        <button key={name} type="button" aria-pressed={state === name} onClick={() => replaceQuery({ state: name })}>
                            {name || "all"}
                        </button>
                    ))}
                </div>
            </div>
            <Problem error={error} />
            {!data ? (
                !error && <Loading />
            ) : data.items.length === 0 ? (
                <Empty title={state ? `No job is ${state}` : "There is no job yet"} words={["job", "submit", "--split", "lines:100", "--stage", "count", "--reduce", "concat", "big.txt"]}>
                    A job cuts one big input into tasks, runs them, and puts their results together.
                </Empty>
            ) : (
                <Card flush>
                    <Grid<Job>
                        label="Jobs"
                        rows={data.items}
                        id={(job) => job.id}
                        open={(job) => go(["jobs", job.id])}
                        columns={[
                            { name: "Job", cell: (job) => <a href={link(["jobs", job.id])}><Name text={job.name || job.id} max={40} /></a>, wide: true },
                            { name: "State", cell: (job) => <State state={job.state} /> },
                            { name: "Progress", cell: (job) => <Progress job={job} />, minor: true },
                            { name: "Done", cell: (job) => percent(job), right: true },
                            { name: "Parts", cell: (job) => count(job.total), right: true, minor: true },
                            { name: "Failed", cell: (job) => <span class={job.failed ? "bad" : ""}>{count(job.failed)}</span>, right: true, minor: true },
                            { name: "Rate", cell: (job) => (job.state === "running" ? `${rate(job.rate)}/s` : "–"), right: true, minor: true },
                            { name: "Left", cell: (job) => (job.state === "running" && job.eta_ms !== null ? duration(job.eta_ms) : "–"), right: true, minor: true },
                            { name: "Created", cell: (job) => <Time ms={job.created_ms} />, right: true },
                        ]}
                    />
                </Card>
            )}
        </>
    );
}
