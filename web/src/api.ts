// SPDX-License-Identifier: Apache-2.0
// The one way to the server. Addresses are relative to the page, so that it works below any path.
import { signal } from "@preact/signals";
import { parse } from "./exact";

const KEY = "millrace.token";

export class ApiError extends Error {
    constructor(
        readonly status: number,
        readonly code: string,
        message: string,
    ) {
        super(message);
    }
}

// Whether the server wants a token that we do not have.
export const needsToken = signal(false);

export function token(): string {
    return sessionStorage.getItem(KEY) ?? "";
}

export function setToken(text: string): void {
    if (text === "") sessionStorage.removeItem(KEY);
    else sessionStorage.setItem(KEY, text);
}

const base = new URL("api/v1", location.href.replace(/[#?].*$/, "")).pathname;

export type Query = Record<string, string | number | boolean | undefined | null>;

export function address(path: string[], query: Query = {}): string {
    const search = new URLSearchParams();
    for (const [name, value] of Object.entries(query))
        if (value !== undefined && value !== null && value !== "") search.set(name, String(value));
    const text = search.toString();
    return [base, ...path.map(encodeURIComponent)].join("/") + (text ? `?${text}` : "");
}

async function failure(response: Response): Promise<ApiError> {
    let code = "FAILED";
    let message = `the server answered with ${response.status}`;
    try {
        const error = parse<{ error?: { code: string; message: string } }>(await response.text()).error;
        if (error) ({ code, message } = error);
    } catch {
        // not one of ours: a proxy's, perhaps
    }
    if (response.status === 401) needsToken.value = true;
    return new ApiError(response.status, code, message);
}

function headers(more: Record<string, string> = {}): Record<string, string> {
    const own = token();
    return own ? { Authorization: `Bearer ${own}`, ...more } : more;
}

async function send(method: string, url: string, body?: unknown, abort?: AbortSignal): Promise<Response> {
    const json: Record<string, string> = body === undefined ? {} : { "Content-Type": "application/json" };
    let response: Response;
    try {
        response = await fetch(url, {
            method,
            headers: headers(json),
            body: body === undefined ? undefined : JSON.stringify(body),
            signal: abort,
            cache: "no-store",
            credentials: "omit",
        });
    } catch (error) {
        if (abort?.aborted) throw error;
        throw new ApiError(0, "UNAVAILABLE", "the server is out of reach");
    }
    if (!response.ok) throw await failure(response);
    return response;
}

export async function get<T>(path: string[], query?: Query, abort?: AbortSignal): Promise<T> {
    return parse<T>(await (await send("GET", address(path, query), undefined, abort)).text());
}

export async function getBytes(path: string[]): Promise<Uint8Array> {
    return new Uint8Array(await (await send("GET", address(path))).arrayBuffer());
}

export async function act<T>(method: "POST" | "PUT" | "PATCH" | "DELETE", path: string[], body?: unknown, query?: Query): Promise<T> {
    return parse<T>(await (await send(method, address(path, query), body)).text());
}

export interface StreamEvent {
    id: string;
    name: string;
    data: string;
}

// One event of a stream: its lines.
function eventOf(block: string): StreamEvent | null {
    const event: StreamEvent = { id: "", name: "message", data: "" };
    let said = false;
    for (const line of block.split("\n")) {
        const at = line.indexOf(":");
        if (at <= 0) continue; // a comment keeps the connection alive
        const value = line.slice(at + 1).replace(/^ /, "");
        const field = line.slice(0, at);
        if (field === "id") event.id = value;
        else if (field === "event") event.name = value;
        else if (field === "data") event.data += (event.data ? "\n" : "") + value;
        said = true;
    }
    return said ? event : null;
}

// Server-sent events, read by fetch, since EventSource cannot send a token. Returns at the end of the stream.
export async function stream(path: string[], lastId: string, abort: AbortSignal, on: (event: StreamEvent) => void, opened: () => void = () => undefined): Promise<void> {
    const more: Record<string, string> = { Accept: "text/event-stream" };
    if (lastId) more["Last-Event-ID"] = lastId;
    const response = await fetch(address(path), { headers: headers(more), signal: abort, cache: "no-store", credentials: "omit" });
    if (!response.ok || !response.body) throw await failure(response);
    opened();
    const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
    let rest = "";
    for (;;) {
        const { done, value } = await reader.read();
        if (done) return;
        const blocks = (rest + value).split(/\n\n/);
        rest = blocks.pop() ?? "";
        for (const block of blocks) {
            const event = eventOf(block);
            if (event) on(event);
        }
    }
}
