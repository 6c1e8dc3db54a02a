// SPDX-License-Identifier: Apache-2.0
// Payloads, results and errors: JSON with every digit, text, or bytes.
import { useState } from "preact/hooks";
import { bytesOf, hex, laidOut } from "../exact";
import { bytes, shownLines } from "../format";
import { Copy } from "./command";

type View = "json" | "text" | "hex";
const NAMES: Record<View, string> = { json: "JSON", text: "Text", hex: "Hex" };
const TEXT_MAX = 200_000;

function Body({ view, text, data }: { view: View; text: string; data: Uint8Array }) {
    if (view === "hex") return <>{hex(data)}</>;
    const tokens = view === "json" ? laidOut(text) : null;
    if (!tokens) return <bdi>{shownLines(text.slice(0, TEXT_MAX))}</bdi>;
    return (
        <>
            {tokens.map((token, i) => (token.kind === "mark" ? token.text : <span key={i} class={`json-${token.kind}`}>{shownLines(token.text)}</span>))}
        </>
    );
}

export function Viewer({ label, text, base64 }: { label: string; text?: string; base64?: string }) {
    const isText = base64 === undefined;
    const whole = text ?? "";
    const isJson = isText && /^\s*[{["\d-]/.test(whole) && laidOut(whole) !== null;
    const views: View[] = isJson ? ["json", "text", "hex"] : isText ? ["text", "hex"] : ["hex"];
    const [chosen, choose] = useState<View>(views[0]);
    const view = views.includes(chosen) ? chosen : views[0];
    const data = isText ? new TextEncoder().encode(whole) : bytesOf(base64);
    if (data.length === 0) return <p class="faint pad">Nothing: it is empty.</p>;
    return (
        <div class="viewer">
            <div class="viewer-bar">
                <div class="tabs" role="group" aria-label={`${label} as`}>
                    {views.map((name) => (
                        <button key={name} type="button" aria-pressed={name === view} onClick={() => choose(name)}>
                            {NAMES[name]}
                        </button>
                    ))}
                </div>
                <span class="faint num">{bytes(data.length)}</span>
                <Copy text={isText ? whole : (base64 ?? "")} label={`Copy ${label.toLowerCase()}`} />
            </div>
            <pre tabIndex={0} role="region" aria-label={label}>
                <Body view={view} text={whole} data={data} />
            </pre>
        </div>
    );
}
