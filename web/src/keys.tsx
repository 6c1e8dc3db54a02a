// SPDX-License-Identifier: Apache-2.0
// The keyboard: one table, which is also the help.
import { signal } from "@preact/signals";
import { useEffect, useRef } from "preact/hooks";
import { go } from "./route";
import { paused, refresh, setPaused } from "./store";
import { nextTheme } from "./theme";

const SECTIONS: Record<string, string[]> = { o: [], q: ["queues"], t: ["tasks"], j: ["jobs"], i: ["timers"], n: ["nodes"], d: ["dead"] };
const HELP: [string, string][] = [
    ["/", "search on this page"],
    ["g o", "overview"],
    ["g q", "queues"],
    ["g t", "tasks"],
    ["g j", "jobs"],
    ["g i", "timers"],
    ["g n", "nodes"],
    ["g d", "dead letters"],
    ["j  k", "down and up in a list"],
    ["Enter", "open the row"],
    ["x", "choose the row"],
    ["r", "look again now"],
    ["p", "pause and resume live updates"],
    ["T", "theme: system, light, dark"],
    ["?", "this help"],
];

export const helpShown = signal(false);
let going = 0; // until when a letter after g counts

function step(by: number): void {
    const rows = [...document.querySelectorAll<HTMLElement>("[data-row]")];
    const at = rows.indexOf(document.activeElement as HTMLElement);
    rows[Math.max(0, Math.min(rows.length - 1, at + by))]?.focus();
}

const PLAIN: Record<string, () => void> = {
    "/": () => {
        const box = document.querySelector<HTMLInputElement>("[data-search]");
        if (box) box.focus();
        else go(["tasks"]);
    },
    "?": () => (helpShown.value = true),
    g: () => (going = Date.now() + 1500),
    j: () => step(1),
    k: () => step(-1),
    r: refresh,
    p: () => setPaused(!paused.value),
    T: nextTheme,
};

function isTyping(target: EventTarget | null): boolean {
    return target instanceof HTMLElement && (target.matches("input:not([type=checkbox]),textarea,select") || target.isContentEditable);
}

function onKey(event: KeyboardEvent): void {
    if (event.key === "Escape" && isTyping(event.target)) (event.target as HTMLElement).blur();
    if (event.ctrlKey || event.metaKey || event.altKey || isTyping(event.target) || document.querySelector("dialog[open]")) return;
    const section = Date.now() < going ? SECTIONS[event.key] : undefined;
    going = 0;
    const act = section ? () => go(section) : PLAIN[event.key];
    if (!act) return;
    event.preventDefault();
    act();
}

export function startKeys(): void {
    addEventListener("keydown", onKey);
}

export function Help() {
    const box = useRef<HTMLDialogElement>(null);
    useEffect(() => {
        if (helpShown.value) box.current?.showModal();
    }, [helpShown.value]);
    if (!helpShown.value) return null;
    return (
        <dialog ref={box} class="dialog" aria-labelledby="help" onClose={() => (helpShown.value = false)}>
            <h2 id="help">Keyboard</h2>
            <dl class="keys">
                {HELP.map(([key, text]) => (
                    <div key={key}>
                        <dt>
                            {key.split(" ").filter(Boolean).map((one) => (
                                <kbd key={one}>{one}</kbd>
                            ))}
                        </dt>
                        <dd>{text}</dd>
                    </div>
                ))}
            </dl>
            <div class="dialog-actions">
                <button type="button" class="button" onClick={() => box.current?.close()}>
                    Close
                </button>
            </div>
        </dialog>
    );
}
