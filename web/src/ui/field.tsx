// SPDX-License-Identifier: Apache-2.0
// Something to be filled in, with its name.
import { useId, useState } from "preact/hooks";

interface Props {
    label: string;
    value: string;
    set: (value: string) => void;
    type?: "text" | "number";
    lines?: number;
    options?: string[];
    required?: boolean;
    hint?: string;
}

export function Field({ label, value, set, type = "text", lines, options, required, hint }: Props) {
    const id = useId();
    const [text, setText] = useState(value);
    const on = (event: Event) => {
        const next = (event.currentTarget as HTMLInputElement).value;
        setText(next);
        set(next);
    };
    const common = { id, value: text, onInput: on, required, "aria-describedby": hint ? `${id}-hint` : undefined };
    return (
        <div class="field">
            <label for={id}>{label}</label>
            {options ? (
                <select {...common}>
                    {options.map((option) => (
                        <option key={option} value={option} selected={option === text}>
                            {option || "any"}
                        </option>
                    ))}
                </select>
            ) : lines ? (
                <textarea {...common} rows={lines} spellcheck={false} />
            ) : type === "number" ? (
                <input {...common} type="number" min={0} step="any" />
            ) : (
                <input {...common} type="text" spellcheck={false} autocomplete="off" />
            )}
            {hint && (
                <small id={`${id}-hint`} class="faint">
                    {hint}
                </small>
            )}
        </div>
    );
}
