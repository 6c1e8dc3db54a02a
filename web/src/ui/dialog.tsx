// SPDX-License-Identifier: Apache-2.0
// Every action is asked about in one dialog, which says what it does and how to do it from the command line; how it
// went is told in a corner.
import { signal } from "@preact/signals";
import type { ComponentChildren } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import { shown } from "../format";
import { Command } from "./command";
import { Icon, type IconName } from "./icons";

export interface Action {
    title: string;
    text?: ComponentChildren;
    words: string[] | string; // of the command; it may change while the form is filled in
    verb: string; // on the button
    danger?: boolean;
    // Something to be filled in; what it is given says that words have changed.
    form?: (changed: (words: string[]) => void) => ComponentChildren;
    run: () => Promise<string>; // what is said when it is done
}

const asked = signal<Action | null>(null);
const notes = signal<{ id: number; text: string; bad: boolean }[]>([]);
let noteId = 0;

export function ask(action: Action): void {
    asked.value = action;
}

export function note(text: string, bad = false): void {
    const id = ++noteId;
    notes.value = [...notes.value, { id, text, bad }];
    setTimeout(() => (notes.value = notes.value.filter((one) => one.id !== id)), bad ? 8000 : 4000);
}

function Asking({ action }: { action: Action }) {
    const box = useRef<HTMLDialogElement>(null);
    const [words, setWords] = useState(action.words);
    const [busy, setBusy] = useState(false);
    const [problem, setProblem] = useState("");
    useEffect(() => box.current?.showModal(), []);
    const run = async () => {
        setBusy(true);
        setProblem("");
        try {
            note(await action.run());
            box.current?.close();
        } catch (error) {
            setProblem((error as Error).message);
            setBusy(false);
        }
    };
    const submit = (event: Event) => {
        event.preventDefault();
        if (!busy) void run();
    };
    return (
        <dialog ref={box} class="dialog" aria-labelledby="asked" onClose={() => (asked.value = null)}>
            <form onSubmit={submit}>
                <h2 id="asked">{action.title}</h2>
                {action.text && <p>{action.text}</p>}
                {action.form?.(setWords)}
                <p class="hint">The same on the command line:</p>
                <Command words={words} />
                {problem && (
                    <p class="problem" role="alert">
                        {shown(problem)}
                    </p>
                )}
                <div class="dialog-actions">
                    <button type="button" class="button" onClick={() => box.current?.close()}>
                        Cancel
                    </button>
                    <button type="submit" class={action.danger ? "button danger" : "button main"} disabled={busy}>
                        {busy ? "Working…" : action.verb}
                    </button>
                </div>
            </form>
        </dialog>
    );
}

export function Dialogs() {
    return (
        <>
            {asked.value && <Asking key={asked.value.title} action={asked.value} />}
            <div class="notes" role="status" aria-live="polite">
                {notes.value.map((one) => (
                    <p key={one.id} class={one.bad ? "note bad" : "note"}>
                        {shown(one.text)}
                    </p>
                ))}
            </div>
        </>
    );
}

export function Act({ action, children, danger, icon, disabled }: { action: () => Action; children: ComponentChildren; danger?: boolean; icon?: IconName; disabled?: boolean }) {
    return (
        <button type="button" class={danger ? "button quiet-danger" : "button"} disabled={disabled} onClick={() => ask(action())}>
            {icon && <Icon name={icon} />}
            {children}
        </button>
    );
}
