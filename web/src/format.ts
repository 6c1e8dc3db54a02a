// SPDX-License-Identifier: Apache-2.0
// Values as text for people, and text for a shell.

// What moves the cursor, turns the direction of text or is not seen is shown as what it is, so that a name cannot look like another.
const UNSEEN = /[\u0000-\u001f\u007f-\u009f\u00ad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb]|[\ud800-\udfff](?![\udc00-\udfff])/gu;

function visible(c: string): string {
    const code = c.codePointAt(0) ?? 0;
    if (code < 0x20) return String.fromCodePoint(0x2400 + code);
    if (code === 0x7f) return "\u2421";
    return `\u27e8U+${code.toString(16).toUpperCase().padStart(4, "0")}\u27e9`;
}

export function shown(text: string): string {
    return text.replace(UNSEEN, visible);
}

// The same for text of several lines.
export function shownLines(text: string): string {
    return text.replace(UNSEEN, (c) => (c === "\n" || c === "\t" ? c : visible(c)));
}

export function cut(text: string, max: number): string {
    const points = Array.from(text.slice(0, max * 2 + 2));
    return points.length > max ? points.slice(0, max - 1).join("") + "\u2026" : text;
}

const whole = new Intl.NumberFormat("en-US", { maximumFractionDigits: 0 });
const short = new Intl.NumberFormat("en-US", { notation: "compact", maximumFractionDigits: 1 });

export function count(n: number | null | undefined): string {
    return n === null || n === undefined || !Number.isFinite(n) ? "\u2013" : whole.format(n);
}

export function brief(n: number | null | undefined): string {
    return n === null || n === undefined || !Number.isFinite(n) ? "\u2013" : n < 10_000 ? whole.format(n) : short.format(n);
}

export function rate(n: number | null | undefined): string {
    if (n === null || n === undefined || !Number.isFinite(n)) return "\u2013";
    return n === 0 ? "0" : n < 10 ? n.toFixed(1) : brief(n);
}

const UNITS: [number, string][] = [
    [86_400_000, "d"],
    [3_600_000, "h"],
    [60_000, "min"],
    [1000, "s"],
];

// Two units at most: "3 h 12 min", "4.2 s", "180 ms", "42 µs".
export function duration(ms: number | null | undefined): string {
    if (ms === null || ms === undefined || !Number.isFinite(ms)) return "\u2013";
    if (ms < 0) return `\u2212${duration(-ms)}`;
    if (ms === 0) return "0 s";
    if (ms < 1) return `${Math.round(ms * 1000)} \u00b5s`;
    if (ms < 1000) return `${ms < 10 ? ms.toFixed(1) : Math.round(ms)} ms`;
    if (ms < 10_000) return `${(ms / 1000).toFixed(1)} s`;
    const at = UNITS.findIndex(([size]) => ms >= size);
    const [size, unit] = UNITS[at];
    const rest = UNITS[at + 1];
    const first = Math.floor(ms / size);
    const second = rest ? Math.floor((ms % size) / rest[0]) : 0;
    return second > 0 && rest ? `${first} ${unit} ${second} ${rest[1]}` : `${first} ${unit}`;
}

// One unit: "13 min", "4 s".
export function coarse(ms: number): string {
    const found = UNITS.find(([size]) => ms >= size);
    return found ? `${Math.floor(ms / found[0])} ${found[1]}` : duration(Math.max(0, ms));
}

// One unit with a decimal, for where there is little room: "3.4 min".
export function span(ms: number | null | undefined): string {
    if (ms === null || ms === undefined || ms < 60_000) return duration(ms);
    const [size, unit] = UNITS.find(([least]) => ms >= least) ?? UNITS[0];
    return `${(ms / size).toFixed(1)} ${unit}`;
}

// How long something waits; nothing where nothing does.
export function age(ms: number): string {
    return ms > 0 ? coarse(ms) : "\u2013";
}

// As the command line reads it: 1h30m, 250ms.
export function flagDuration(ms: number): string {
    let text = "";
    let left = Math.round(ms);
    for (const [size, unit] of [[86_400_000, "d"], [3_600_000, "h"], [60_000, "m"], [1000, "s"], [1, "ms"]] as [number, string][]) {
        const n = Math.floor(left / size);
        if (n > 0) text += `${n}${unit}`;
        left -= n * size;
    }
    return text || "0s";
}

export function ago(ms: number, now: number): string {
    const gone = now - ms;
    if (Math.abs(gone) < 1000) return "now";
    return gone > 0 ? `${coarse(gone)} ago` : `in ${coarse(-gone)}`;
}

// "2026-03-29 02:30:00" of a zone.
export function clock(ms: number, zone?: string): string {
    const parts = new Intl.DateTimeFormat("en-GB", {
        timeZone: zone,
        year: "numeric",
        month: "2-digit",
        day: "2-digit",
        hour: "2-digit",
        minute: "2-digit",
        second: "2-digit",
        hourCycle: "h23",
    }).formatToParts(ms);
    const of = (type: string) => parts.find((part) => part.type === type)?.value ?? "";
    return `${of("year")}-${of("month")}-${of("day")} ${of("hour")}:${of("minute")}:${of("second")}`;
}

export const ownZone = Intl.DateTimeFormat().resolvedOptions().timeZone;

export function isZone(zone: string): boolean {
    try {
        Intl.DateTimeFormat("en", { timeZone: zone });
        return zone !== "";
    } catch {
        return false;
    }
}

export function bytes(n: number | null | undefined): string {
    if (n === null || n === undefined) return "\u2013";
    if (n < 1024) return `${n} B`;
    const at = Math.min(Math.floor(Math.log2(n) / 10), 4);
    return `${(n / 1024 ** at).toFixed(1)} ${["B", "KiB", "MiB", "GiB", "TiB"][at]}`;
}

// A word for a POSIX shell; what a terminal could take for more than text is written as its code.
export function quoted(word: string): string {
    if (/^[A-Za-z0-9_@%+=:,./-]+$/.test(word)) return word;
    UNSEEN.lastIndex = 0;
    if (!UNSEEN.test(word)) return `'${word.replaceAll("'", "'\\''")}'`;
    const escaped = word.replace(/[\\']/g, "\\$&").replace(UNSEEN, (c) =>
        Array.from(new TextEncoder().encode(c), (byte) => `\\x${byte.toString(16).padStart(2, "0")}`).join(""),
    );
    return `$'${escaped}'`;
}

export function command(words: string[]): string {
    return ["millrace", ...words].map(quoted).join(" ");
}

// What is behind a name that may begin like an option.
export function operand(name: string): string[] {
    return name.startsWith("-") ? ["--", name] : [name];
}
