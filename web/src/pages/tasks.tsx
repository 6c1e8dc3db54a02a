// SPDX-License-Identifier: Apache-2.0
// One grid for the tasks of all states, with a filter that is part of the address.
import { useEffect, useState } from "preact/hooks";
import { chosenAction, filterAction, TASK_VERBS, type Filter } from "../actions";
import { get } from "../api";
import { count } from "../format";
import { useAsked } from "../query";
import { go, replaceQuery, route } from "../route";
import { isAdmin, queues } from "../store";
import { TASK_STATES, type Page, type Task, type TaskState } from "../types";
import { ask, note } from "../ui/dialog";
import { Grid, type Column } from "../ui/grid";
import { Card, Empty, Head, Loading, Problem } from "../ui/page";
import { Name, QueueLink, State, TaskLink, Time } from "../ui/text";
import { NewTaskButton } from "./newtask";

const LIMIT = 50;

const COLUMNS: Column<Task>[] = [
    { name: "Task", cell: (task) => <TaskLink id={task.id} /> },
    { name: "State", cell: (task) => <State state={task.state} /> },
    { name: "Queue", cell: (task) => <QueueLink name={task.queue} />, minor: true },
    { name: "Type", cell: (task) => <Name text={task.type} max={30} />, minor: true },
    { name: "Attempt", cell: (task) => `${task.attempt}`, right: true, minor: true },
    { name: "Created", cell: (task) => <Time ms={task.created_ms} />, right: true },
    { name: "Due", cell: (task) => <Time ms={task.state === "scheduled" || task.state === "retry" ? task.due_ms : 0} />, right: true, minor: true },
    { name: "Error or payload", cell: (task) => (task.last_error ? <span class="bad"><Name text={task.last_error} max={60} /></span> : <Name text={task.payload} max={60} />), wide: true, minor: true },
];

// What an action by filter is about.
function verbsFor(filter: Filter) {
    return TASK_VERBS.filter((row) => filter.state === "" || row.states.includes(filter.state as TaskState));
}

function Bulk({ filter, chosen, done }: { filter: Filter; chosen: ReadonlySet<string>; done: () => void }) {
    const [counting, setCounting] = useState(false);
    const begin = async (row: (typeof TASK_VERBS)[number]) => {
        if (chosen.size > 0) {
            ask(chosenAction(row, [...chosen], done));
            return;
        }
        setCounting(true);
        try {
            const action = await filterAction(row, filter, done);
            if (action) ask(action);
            else note("No task is in a state in which that can be done.");
        } catch (error) {
            note((error as Error).message, true);
        }
        setCounting(false);
    };
    return (
        <div class="bulk">
            <span class="faint">{chosen.size > 0 ? `${chosen.size} chosen:` : "All that the filter shows:"}</span>
            {verbsFor(filter).map((row) => (
                <button key={row.verb} type="button" class={row.danger ? "button small quiet-danger" : "button small"} disabled={counting} onClick={() => void begin(row)}>
                    {row.name}
                </button>
            ))}
        </div>
    );
}

export function TaskGrid({ filter, limit = LIMIT, bulk }: { filter: Filter; limit?: number; bulk?: boolean }) {
    const key = JSON.stringify(filter);
    const [cursors, setCursors] = useState<string[]>([]);
    const [chosen, setChosen] = useState<ReadonlySet<string>>(new Set());
    useEffect(() => {
        setCursors([]);
        setChosen(new Set());
    }, [key]);
    const cursor = cursors.at(-1) ?? "";
    const { data, error, again } = useAsked(`tasks ${key} ${cursor} ${limit}`, (abort) => get<Page<Task>>(["tasks"], { ...filter, cursor, limit }, abort));
    if (!data) return error ? <Problem error={error} /> : <Loading />;
    const done = () => {
        setChosen(new Set());
        again();
    };
    const columns = limit === LIMIT ? COLUMNS : COLUMNS.filter((column) => column.name !== "Queue");
    const turns = cursors.length > 0 || data.next;
    return (
        <>
            {bulk && isAdmin.value && <Bulk filter={filter} chosen={chosen} done={done} />}
            <Problem error={error} />
            {data.items.length === 0 ? (
                <NoTasks filter={filter} more={data.next !== null} />
            ) : (
                <Grid label="Tasks" rows={data.items} id={(task) => task.id} open={(task) => go(["tasks", task.id])} columns={columns} chosen={bulk && isAdmin.value ? chosen : undefined} choose={bulk ? setChosen : undefined} />
            )}
            {turns && (
                <nav class="turns" aria-label="Turn the page">
                    <button type="button" class="button small" disabled={cursors.length === 0} onClick={() => setCursors(cursors.slice(0, -1))}>
                        Back
                    </button>
                    <span class="faint num">Page {count(cursors.length + 1)}</span>
                    <button type="button" class="button small" disabled={!data.next} onClick={() => data.next && setCursors([...cursors, data.next])}>
                        Next
                    </button>
                </nav>
            )}
        </>
    );
}

function NoTasks({ filter, more }: { filter: Filter; more: boolean }) {
    if (more) return <Empty title="None on this page">The filter leaves nothing of it: go on to the next one.</Empty>;
    if (filter.queue || filter.state || filter.type || filter.text) return <Empty title="No task is like this">Take something out of the filter to see more.</Empty>;
    return (
        <Empty title="There are no tasks" words={["enqueue", "-q", "default", "-t", "hello", '{"n":1}']}>
            Those that have ended are kept for as long as their retention says, an hour unless told otherwise.
        </Empty>
    );
}

function filterOf(query: URLSearchParams): Filter {
    const of = (name: string) => query.get(name) ?? "";
    return { queue: of("queue"), state: of("state"), type: of("type"), text: of("text") };
}

interface Typed extends Record<string, unknown> {
    label: string;
    value: string;
    set: (value: string) => void;
}

// What is being typed is its own until it is entered: the bar is drawn anew with every live update.
function FilterText({ label, value, set, ...rest }: Typed) {
    const [text, setText] = useState(value);
    useEffect(() => setText(value), [value]);
    const typed = (event: Event) => (event.currentTarget as HTMLInputElement).value;
    return (
        <input {...rest} aria-label={label} value={text} onInput={(event) => setText(typed(event))} onChange={(event) => set(typed(event))} onKeyDown={(event) => event.key === "Enter" && set(typed(event))} />
    );
}

function FilterBar({ filter }: { filter: Filter }) {
    const set = (name: keyof Filter) => (value: string) => replaceQuery({ ...filter, [name]: value });
    return (
        <div class="filter" role="search">
            <FilterText type="search" data-search="" placeholder="Id, or text of payload or error" label="Text" value={filter.text} set={set("text")} />
            <FilterText list="queue-names" placeholder="Queue" label="Queue" value={filter.queue} set={set("queue")} />
            <datalist id="queue-names">
                {[...queues.value.keys()].slice(0, 200).map((name) => (
                    <option key={name} value={name} />
                ))}
            </datalist>
            <FilterText placeholder="Type" label="Type" value={filter.type} set={set("type")} />
            <div class="tabs" role="group" aria-label="State">
                {["", ...TASK_STATES].map((state) => (
                    <button key={state} type="button" aria-pressed={filter.state === state} onClick={() => replaceQuery({ ...filter, state })}>
                        {state || "all"}
                    </button>
                ))}
            </div>
        </div>
    );
}

export function TasksPage() {
    const filter = filterOf(route.value.query);
    return (
        <>
            <Head title="Tasks">
                <NewTaskButton from={filter.queue ? { queue: filter.queue } : undefined} />
            </Head>
            <FilterBar key={JSON.stringify(filter)} filter={filter} />
            <Card flush>
                <TaskGrid filter={filter} bulk />
            </Card>
        </>
    );
}
