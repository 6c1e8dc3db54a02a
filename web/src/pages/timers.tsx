// SPDX-License-Identifier: Apache-2.0
import { get } from "../api";
import { brief } from "../format";
import { useAsked } from "../query";
import { go, link, replaceQuery, route } from "../route";
import { ruleWords } from "../rule";
import { mayProduce } from "../store";
import type { Page, Timer } from "../types";
import { Grid } from "../ui/grid";
import { Card, Empty, Head, Loading, Problem } from "../ui/page";
import { Name, QueueLink, State, Time } from "../ui/text";
import { askTimer } from "./timerform";

export function TimersPage() {
    const state = route.value.query.get("state") ?? "";
    const { data, error, again } = useAsked(`timers ${state}`, (abort) => get<Page<Timer>>(["timers"], { state, limit: 200 }, abort));
    return (
        <>
            <Head title="Timers">
                {mayProduce.value && (
                    <button type="button" class="button main" onClick={() => askTimer(null, again)}>
                        New timer
                    </button>
                )}
            </Head>
            <div class="filter">
                <div class="tabs" role="group" aria-label="State">
                    {["", "active", "paused", "finished"].map((name) => (
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
                <Empty title={state ? `No timer is ${state}` : "There is no timer yet"} words={["timer", "create", "nightly", "--cron", "0 3 * * *", "--tz", "Europe/Berlin", "-q", "backup", "{}"]}>
                    A timer makes tasks by itself: by cron, every so often, or once.
                </Empty>
            ) : (
                <Card flush>
                    <Grid<Timer>
                        label="Timers"
                        rows={data.items}
                        id={(timer) => `${timer.app}/${timer.name}`}
                        open={(timer) => go(["timers", timer.app, timer.name])}
                        columns={[
                            { name: "Timer", cell: (timer) => <a href={link(["timers", timer.app, timer.name])}><Name text={timer.name} max={40} /></a> },
                            { name: "State", cell: (timer) => <State state={timer.state} /> },
                            { name: "When", cell: (timer) => <Name text={ruleWords(timer)} max={70} />, wide: true },
                            { name: "Zone", cell: (timer) => <Name text={timer.tz || "UTC"} />, minor: true },
                            { name: "Queue", cell: (timer) => <QueueLink name={timer.queue || timer.app} />, minor: true },
                            { name: "App", cell: (timer) => <Name text={timer.app} max={20} />, minor: true },
                            { name: "Last", cell: (timer) => <Time ms={timer.last_ms} />, right: true, minor: true },
                            { name: "Next", cell: (timer) => <Time ms={timer.state === "active" ? timer.next_ms : 0} />, right: true },
                            { name: "Firings", cell: (timer) => brief(timer.firings_total), right: true, minor: true },
                        ]}
                    />
                </Card>
            )}
        </>
    );
}
