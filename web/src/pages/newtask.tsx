// SPDX-License-Identifier: Apache-2.0
// A task by hand.
import { enqueue, newTaskWords, type NewTask } from "../actions";
import { mayProduce } from "../store";
import { ask } from "../ui/dialog";
import { Field } from "../ui/field";

function Form({ task, changed }: { task: NewTask; changed: () => void }) {
    const set = (name: keyof NewTask) => (value: string) => {
        task[name] = value;
        changed();
    };
    return (
        <div class="form">
            <div class="form-row">
                <Field label="Queue" value={task.queue} set={set("queue")} required />
                <Field label="Type" value={task.type} set={set("type")} required />
                <Field label="Delay, seconds" value={task.delay_s} set={set("delay_s")} type="number" />
            </div>
            <Field label="Payload" value={task.payload} set={set("payload")} lines={5} />
        </div>
    );
}

export function askNewTask(from: Partial<NewTask> = {}): void {
    const task: NewTask = { queue: "default", type: "task", payload: "{}", delay_s: "0", ...from };
    ask({
        title: "Enqueue a task",
        words: newTaskWords(task),
        verb: "Enqueue",
        form: (changed) => <Form task={task} changed={() => changed(newTaskWords(task))} />,
        run: () => enqueue(task),
    });
}

export function NewTaskButton({ from, label }: { from?: Partial<NewTask>; label?: string }) {
    return mayProduce.value ? (
        <button type="button" class={label ? "button" : "button main"} onClick={() => askNewTask(from)}>
            {label ?? "Enqueue a task"}
        </button>
    ) : null;
}
