// SPDX-License-Identifier: Apache-2.0
// The same on the command line, to be copied.
import { useState } from "preact/hooks";
import { command } from "../format";
import { Icon } from "./icons";

export function Copy({ text, label = "Copy" }: { text: string; label?: string }) {
    const [done, setDone] = useState(false);
    const copy = async () => {
        try {
            await navigator.clipboard.writeText(text);
        } catch {
            return; // not allowed here: it can still be selected
        }
        setDone(true);
        setTimeout(() => setDone(false), 1200);
    };
    return (
        <button type="button" class="icon" aria-label={label} title={label} onClick={() => void copy()}>
            <Icon name={done ? "check" : "copy"} />
        </button>
    );
}

// words: of millrace; a text is a command of its own.
export function Command({ words }: { words: string[] | string }) {
    const text = typeof words === "string" ? words : command(words);
    return (
        <div class="command">
            <code tabIndex={0}>{text}</code>
            <Copy text={text} label="Copy the command" />
        </div>
    );
}
