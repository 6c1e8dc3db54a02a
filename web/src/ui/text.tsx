// SPDX-License-Identifier: Apache-2.0
// Names, times and figures, each shown in one way only.
import type { ComponentChildren } from "preact";
import { ago, clock, cut, ownZone, shown } from "../format";
import { link } from "../route";
import { now } from "../store";

// What somebody else has named: harmless, and apart from the direction of the text around it.
export function Name({ text, max = 80 }: { text: string | undefined; max?: number }) {
    if (text === undefined || text === "") return <span class="faint">–</span>;
    const whole = shown(text);
    const part = cut(whole, max);
    return <bdi title={part === whole ? undefined : whole}>{part}</bdi>;
}

export function Mono({ text, max }: { text: string | undefined; max?: number }) {
    return (
        <code class="mono">
            <Name text={text} max={max} />
        </code>
    );
}

export function TaskLink({ id, max = 26 }: { id: string | undefined; max?: number }) {
    if (!id) return <span class="faint">–</span>;
    return (
        <a class="mono" href={link(["tasks", id])}>
            <Name text={id} max={max} />
        </a>
    );
}

export function QueueLink({ name }: { name: string }) {
    return (
        <a href={link(["queues", name])}>
            <Name text={name} max={40} />
        </a>
    );
}

export function Time({ ms }: { ms: number | null | undefined }) {
    if (!ms) return <span class="faint">–</span>;
    return (
        <time class="num" dateTime={new Date(ms).toISOString()} title={`${clock(ms)} ${ownZone} · ${clock(ms, "UTC")} UTC`}>
            {ago(ms, now.value)}
        </time>
    );
}

export function State({ state }: { state: string }) {
    return (
        <span class={`state state-${state}`}>
            <i aria-hidden="true" />
            {state}
        </span>
    );
}

export function Facts({ rows }: { rows: [string, ComponentChildren][] }) {
    return (
        <dl class="facts">
            {rows.map(([name, value]) => (
                <div key={name}>
                    <dt>{name}</dt>
                    <dd>{value}</dd>
                </div>
            ))}
        </dl>
    );
}

export function Bar({ parts, total, label }: { parts: { kind: string; n: number }[]; total: number; label: string }) {
    return (
        <div class="bar" role="img" aria-label={label}>
            {parts.map(({ kind, n }) => n > 0 && <i key={kind} class={`fill-${kind}`} style={{ width: `${total > 0 ? Math.min(100, (100 * n) / total) : 0}%` }} />)}
        </div>
    );
}
