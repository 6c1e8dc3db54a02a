// SPDX-License-Identifier: Apache-2.0
// Where we are: everything behind the #, so that the server has one page.
import { computed, signal } from "@preact/signals";

export interface Route {
    path: string[];
    query: URLSearchParams;
}

function read(): Route {
    const [path, search = ""] = location.hash.replace(/^#\/?/, "").split("?");
    return { path: path.split("/").filter(Boolean).map(decoded), query: new URLSearchParams(search) };
}

function decoded(part: string): string {
    try {
        return decodeURIComponent(part);
    } catch {
        return part;
    }
}

export const route = signal<Route>({ path: [], query: new URLSearchParams() });
export const section = computed(() => route.value.path[0] ?? "");

export function link(path: string[], query: Record<string, string> = {}): string {
    const search = new URLSearchParams(Object.entries(query).filter(([, value]) => value !== "")).toString();
    return `#/${path.map(encodeURIComponent).join("/")}${search ? `?${search}` : ""}`;
}

export function go(path: string[], query: Record<string, string> = {}): void {
    location.hash = link(path, query);
}

// The same page with another query, without a step in the history.
export function replaceQuery(query: Record<string, string>): void {
    history.replaceState(null, "", link(route.value.path, query));
    route.value = read();
}

export function startRouting(): void {
    route.value = read();
    addEventListener("hashchange", () => {
        route.value = read();
        scrollTo(0, 0);
        // Who reads the page by ear is told where he is.
        requestAnimationFrame(() => document.querySelector<HTMLElement>("main h1")?.focus({ preventScroll: true }));
    });
}
