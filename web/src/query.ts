// SPDX-License-Identifier: Apache-2.0
// What a page asks for: once, again when something has changed, and not while nobody looks.
import { useEffect, useRef, useState } from "preact/hooks";
import type { ApiError } from "./api";
import { changes, paused } from "./store";

export interface Asked<T> {
    data: T | null;
    error: ApiError | null;
    again: () => void;
}

const EVERY_MS = 1000; // at most so often
const SLOW_MS = 5000; // what no event tells of is looked at so often

// key: what it depends on; another key asks anew. live: the store's changes ask again.
export function useAsked<T>(key: string, ask: (abort: AbortSignal) => Promise<T>, live = true): Asked<T> {
    const [answer, setAnswer] = useState<{ key: string; data: T | null; error: ApiError | null }>({ key, data: null, error: null });
    const again = useRef<() => void>(() => undefined);
    useEffect(() => {
        const abort = new AbortController();
        let asking = false;
        let wanted = false;
        let last = 0;
        let timer = 0;
        const run = async () => {
            timer = 0;
            if (asking) {
                wanted = true;
                return;
            }
            asking = true;
            last = Date.now();
            try {
                const data = await ask(abort.signal);
                if (!abort.signal.aborted) setAnswer({ key, data, error: null });
            } catch (error) {
                const failure = error as ApiError;
                // What is gone is not shown any more; what could not be asked for is.
                if (!abort.signal.aborted) setAnswer((old) => ({ key, data: old.key === key && failure.status !== 404 ? old.data : null, error: failure }));
            }
            asking = false;
            if (wanted && !abort.signal.aborted) {
                wanted = false;
                soon();
            }
        };
        const soon = () => {
            if (!timer && !abort.signal.aborted) timer = window.setTimeout(() => void run(), Math.max(0, last + EVERY_MS - Date.now()));
        };
        again.current = () => void run();
        void run();
        const unsubscribe = live ? changes.subscribe((version) => version > 0 && !document.hidden && !paused.value && soon()) : () => undefined;
        const slow = live ? window.setInterval(() => !document.hidden && !paused.value && soon(), SLOW_MS) : 0;
        return () => {
            abort.abort();
            clearTimeout(timer);
            clearInterval(slow);
            unsubscribe();
        };
    }, [key, live]);
    const fits = answer.key === key;
    return { data: fits ? answer.data : null, error: fits ? answer.error : null, again: () => again.current() };
}
