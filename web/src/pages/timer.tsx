// SPDX-License-Identifier: Apache-2.0
// A timer: its rule in words, when it fires next, and its ledger.
import { timerAction, timerRemoveAction } from "../actions";
import { get } from "../api";
import { clock, count, duration, isZone, ownZone } from "../format";
import { useAsked } from "../query";
import { go } from "../route";
import { ruleWords } from "../rule";
import { mayProduce } from "../store";
import type { Firing, Page, Timer } from "../types";
import { Act } from "../ui/dialog";
import { Grid } from "../ui/grid";
import { Card, Empty, Head, Loading, Problem } from "../ui/page";
import { Facts, Mono, Name, QueueLink, State, TaskLink, Time } from "../ui/text";
import { Viewer } from "../ui/viewer";
import { askTimer } from "./timerform";

function Next({ timer }: { timer: Timer }) {
    const zone = isZone(timer.tz) ? timer.tz : "UTC";
    const { data } = useAsked(`next ${timer.app} ${timer.name} ${timer.version} ${timer.next_ms}`, (abort) => get<Page<number>>(["timers", timer.name, "next"], { app: timer.app, limit: 10 }, abort), false);
    if (!data) return <Loading />;
    if (data.items.length === 0) return <Empty title="It will not fire by itself">{timer.state === "paused" ? "It is paused: resume it." : "Run it by hand, or change its rule."}</Empty>;
    return (
        <Grid<number>
            label="Next firings"
            rows={data.items}
            id={(ms) => String(ms)}
            columns={[
                { name: zone, cell: (ms) => clock(ms, zone) },
                { name: zone === ownZone ? "UTC" : `${ownZone} (here)`, cell: (ms) => clock(ms, zone === ownZone ? "UTC" : undefined) },
                { name: "That is", cell: (ms) => <Time ms={ms} />, right: true },
            ]}
        />
    );
}

function took(firing: Firing): string {
    return firing.started_ms && firing.finished_ms ? duration(firing.finished_ms - firing.started_ms) : "–";
}

function Ledger({ timer }: { timer: Timer }) {
    const { data } = useAsked(`history ${timer.app} ${timer.name}`, (abort) => get<Page<Firing>>(["timers", timer.name, "history"], { app: timer.app, limit: 50 }, abort));
    if (!data) return <Loading />;
    if (data.items.length === 0) return <Empty title="It has not fired yet">Its firings, and those that were left out with the reason, are listed here.</Empty>;
    return (
        <Grid<Firing>
            label="Ledger"
            rows={data.items}
            id={(firing) => `${firing.planned_ms} ${firing.run} ${firing.cause}`}
            columns={[
                { name: "Planned", cell: (firing) => <span class="num">{clock(firing.planned_ms)}</span> },
                { name: "State", cell: (firing) => <State state={firing.state} /> },
                { name: "Cause", cell: (firing) => firing.cause ?? "–", minor: true },
                { name: "Late by", cell: (firing) => (firing.fired_ms ? duration(Math.max(0, firing.fired_ms - firing.planned_ms)) : "–"), right: true, minor: true },
                { name: "Took", cell: took, right: true, minor: true },
                { name: "Task", cell: (firing) => <TaskLink id={firing.task_id} /> },
                { name: "Reason", cell: (firing) => <Name text={firing.reason} max={80} />, wide: true, minor: true },
            ]}
        />
    );
}

export function TimerPage({ app, name }: { app: string; name: string }) {
    const { data: timer, error, again } = useAsked(`timer ${app} ${name}`, (abort) => get<Timer>(["timers", name], { app }, abort));
    if (!timer)
        return error?.status === 404 ? (
            <>
                <Head title={<Name text={name} max={60} />} />
                <Empty title="There is no such timer" words={["timer", "list"]} />
            </>
        ) : error ? (
            <Problem error={error} />
        ) : (
            <Loading />
        );
    return (
        <>
            <Head title={<Name text={timer.name} max={60} />} about={<><State state={timer.state} /> {ruleWords(timer)}{timer.kind === "cron" || timer.kind === "daily" ? ` (${timer.tz || "UTC"})` : ""}</>}>
                {mayProduce.value && (
                    <>
                        <Act action={() => timerAction("run", timer, again)} icon="play">Run now</Act>
                        {timer.state !== "finished" && <Act action={() => timerAction(timer.state === "paused" ? "resume" : "pause", timer, again)} icon={timer.state === "paused" ? "play" : "pause"}>{timer.state === "paused" ? "Resume" : "Pause"}</Act>}
                        <button type="button" class="button" onClick={() => askTimer(timer, again)}>Edit</button>
                        <Act action={() => timerRemoveAction(timer, () => go(["timers"]))} danger>Delete</Act>
                    </>
                )}
            </Head>
            <div class="columns">
                <Card title="Next firings" flush>
                    <Next timer={timer} />
                </Card>
                <Card title="Details">
                    <Facts
                        rows={[
                            ["Rule", <Mono text={`${timer.kind} ${timer.expression}`} />],
                            ["Zone", <Name text={timer.tz || "UTC"} />],
                            ["Queue", <QueueLink name={timer.queue || timer.app} />],
                            ["Type", <Name text={timer.type} />],
                            ["App", <Name text={timer.app} />],
                            ["After a gap", timer.misfire],
                            ["While one runs", timer.overlap],
                            ["Which worker", <Name text={timer.strategy} />],
                            ["From", <Time ms={timer.start_ms} />],
                            ["Until", <Time ms={timer.end_ms} />],
                            ["Firings", count(timer.firings_total)],
                            ["Version", <Mono text={String(timer.version)} />],
                        ]}
                    />
                </Card>
            </div>
            {(timer.payload || timer.payload_base64) && (
                <Card title="Payload" flush>
                    <Viewer label="Payload" text={timer.payload} base64={timer.payload_base64} />
                </Card>
            )}
            <Card title="Ledger" flush>
                <Ledger timer={timer} />
            </Card>
        </>
    );
}
