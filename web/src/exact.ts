// SPDX-License-Identifier: Apache-2.0
// JSON as it was written: numbers keep every digit, and a text is laid out without being understood.

type Source = { source?: string };

// Whole numbers that a double does not hold exactly come as their text.
function keep(this: unknown, _key: string, value: unknown, context?: Source): unknown {
    const lossy = typeof value === "number" && !Number.isSafeInteger(value) && Math.abs(value) >= 2 ** 53;
    return lossy && context?.source && /^-?\d+$/.test(context.source) ? context.source : value;
}

export function parse<T>(text: string): T {
    return JSON.parse(text, keep as (key: string, value: unknown) => unknown) as T;
}

export type Token = { kind: "key" | "string" | "number" | "word" | "mark"; text: string };

const TOKEN = /"(?:\\.|[^"\\])*"|-?\d[\d.eE+-]*|true|false|null|[{}[\],:]/g;

// Tokens with spaces and new lines between them; null: it is no JSON.
export function laidOut(text: string, max = 200_000): Token[] | null {
    if (text.length > max) return null;
    try {
        JSON.parse(text);
    } catch {
        return null;
    }
    const raw = text.match(TOKEN) ?? [];
    const tokens: Token[] = [];
    let depth = 0;
    const mark = (mark: string) => tokens.push({ kind: "mark", text: mark });
    const line = () => mark("\n" + "  ".repeat(depth));
    raw.forEach((token, i) => {
        const empty = (token === "{" && raw[i + 1] === "}") || (token === "[" && raw[i + 1] === "]");
        const closes = (token === "}" && raw[i - 1] !== "{") || (token === "]" && raw[i - 1] !== "[");
        if (closes) {
            depth--;
            line();
        }
        if (token[0] === '"') tokens.push({ kind: raw[i + 1] === ":" ? "key" : "string", text: token });
        else if (/^[-\d]/.test(token)) tokens.push({ kind: "number", text: token });
        else if (/^[a-z]/.test(token)) tokens.push({ kind: "word", text: token });
        else mark(token === ":" ? ": " : token);
        if ((token === "{" || token === "[") && !empty) {
            depth++;
            line();
        } else if (token === ",") line();
    });
    return tokens;
}

export function bytesOf(base64: string): Uint8Array {
    return Uint8Array.from(atob(base64), (c) => c.charCodeAt(0));
}

// "00000000  68 65 6c 6c 6f                                    hello"
export function hex(data: Uint8Array, max = 4096): string {
    const lines: string[] = [];
    for (let at = 0; at < data.length && at < max; at += 16) {
        const row = Array.from(data.subarray(at, at + 16));
        const codes = row.map((byte) => byte.toString(16).padStart(2, "0")).join(" ");
        const text = row.map((byte) => (byte >= 0x20 && byte < 0x7f ? String.fromCharCode(byte) : ".")).join("");
        lines.push(`${at.toString(16).padStart(8, "0")}  ${codes.padEnd(47)}  ${text}`);
    }
    if (data.length > max) lines.push(`\u2026 ${data.length - max} bytes more`);
    return lines.join("\n");
}
