// SPDX-License-Identifier: Apache-2.0
// What pages are made of: heads, cards, and what is said when there is nothing, or something went wrong.
import type { ComponentChildren } from "preact";
import type { ApiError } from "../api";
import { shown } from "../format";
import { Command } from "./command";

export function Head({ title, about, children }: { title: ComponentChildren; about?: ComponentChildren; children?: ComponentChildren }) {
    return (
        <header class="head">
            <div>
                <h1 tabIndex={-1}>{title}</h1>
                {about && <p class="about">{about}</p>}
            </div>
            {children && <div class="actions">{children}</div>}
        </header>
    );
}

export function Card({ title, side, children, flush }: { title?: ComponentChildren; side?: ComponentChildren; children: ComponentChildren; flush?: boolean }) {
    return (
        <section class={flush ? "card flush" : "card"}>
            {title && (
                <header>
                    <h2>{title}</h2>
                    {side && <div class="side">{side}</div>}
                </header>
            )}
            {children}
        </section>
    );
}

export function Figure({ name, value, unit, tone, href }: { name: string; value: string; unit?: string; tone?: string; href?: string }) {
    const body = (
        <>
            <span class="figure-name">{name}</span>
            <span class={`figure-value num ${tone ?? ""}`}>
                {value}
                {unit && <small> {unit}</small>}
            </span>
        </>
    );
    return href ? (
        <a class="figure" href={href}>
            {body}
        </a>
    ) : (
        <div class="figure">{body}</div>
    );
}

export function Empty({ title, children, words }: { title: string; children?: ComponentChildren; words?: string[] }) {
    return (
        <div class="empty">
            <h2>{title}</h2>
            {children && <p>{children}</p>}
            {words && <Command words={words} />}
        </div>
    );
}

export function Problem({ error }: { error: ApiError | null }) {
    return error ? (
        <p class="problem" role="alert">
            {shown(error.message)}
        </p>
    ) : null;
}

export function Loading() {
    return <p class="loading">Loading…</p>;
}
