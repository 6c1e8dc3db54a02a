// SPDX-License-Identifier: Apache-2.0
// Tasks that gave up, by the error they ended with.
import { requeueAction } from "../actions";
import { get } from "../api";
import { count } from "../format";
import { useAsked } from "../query";
import { link } from "../route";
import { isAdmin } from "../store";
import type { DeadGroup, Page } from "../types";
import { ask, note } from "../ui/dialog";
import { Grid } from "../ui/grid";
import { Card, Empty, Head, Loading, Problem } from "../ui/page";
import { Name, QueueLink, TaskLink, Time } from "../ui/text";

async function begin(group: DeadGroup | null, done: () => void): Promise<void> {
    try {
        const action = await requeueAction(group, done);
        if (action) ask(action);
        else note("There is nothing to requeue any more.");
    } catch (error) {
        note((error as Error).message, true);
    }
}

export function DeadPage() {
    const { data, error, again } = useAsked("dead", (abort) => get<Page<DeadGroup>>(["dead", "groups"], {}, abort));
    const all = data?.items.reduce((n, group) => n + group.count, 0) ?? 0;
    return (
        <>
            <Head title="Dead letters" about={data ? `${count(all)} tasks gave up and wait here for a person` : undefined}>
                {isAdmin.value && all > 0 && (
                    <button type="button" class="button" onClick={() => void begin(null, again)}>
                        Requeue all
                    </button>
                )}
            </Head>
            <Problem error={error} />
            {!data ? (
                !error && <Loading />
            ) : data.items.length === 0 ? (
                <Empty title="Nothing is dead">Tasks that failed for good, or too often, are kept here until somebody decides.</Empty>
            ) : (
                <Card flush>
                    <Grid<DeadGroup>
                        label="Dead letters by error"
                        rows={data.items}
                        id={(group) => JSON.stringify([group.queue, group.type, group.error])}
                        columns={[
                            { name: "Tasks", cell: (group) => <strong>{count(group.count)}</strong>, right: true },
                            { name: "Error", cell: (group) => <span class="bad"><Name text={group.error || "no error was given"} max={140} /></span>, wide: true },
                            { name: "Queue", cell: (group) => <QueueLink name={group.queue} /> },
                            { name: "Type", cell: (group) => <Name text={group.type} max={30} />, minor: true },
                            { name: "Last", cell: (group) => <Time ms={group.last_ms} />, right: true, minor: true },
                            { name: "One of them", cell: (group) => <TaskLink id={group.sample_id} max={14} />, minor: true },
                            {
                                name: "Actions",
                                cell: (group) => (
                                    <span class="row-actions">
                                        <a class="button small" href={link(["tasks"], { queue: group.queue, state: "archived", type: group.type })}>
                                            Show
                                        </a>
                                        {isAdmin.value && (
                                            <button type="button" class="button small" onClick={() => void begin(group, again)}>
                                                Requeue
                                            </button>
                                        )}
                                    </span>
                                ),
                                right: true,
                            },
                        ]}
                    />
                </Card>
            )}
        </>
    );
}
