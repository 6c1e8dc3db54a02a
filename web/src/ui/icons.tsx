// SPDX-License-Identifier: Apache-2.0
const PATHS = {
    overview: "M3 12l4-4 4 3 6-7M3 17h14",
    queues: "M3 5h14M3 10h14M3 15h9",
    tasks: "M7 5h10M7 10h10M7 15h10M3 5h.01M3 10h.01M3 15h.01",
    jobs: "M4 4h5v5H4zM11 4h5v5h-5zM4 11h5v5H4zM11 11h5v5h-5z",
    timers: "M10 6v4l3 2M17 10a7 7 0 11-14 0 7 7 0 0114 0z",
    nodes: "M4 4h12v5H4zM4 11h12v5H4zM7 6.5h.01M7 13.5h.01",
    dead: "M3 6h14v3H3zM4.5 9v7h11V9M8 12h4",
    copy: "M7 7h9v9H7zM4 13V4h9",
    check: "M4 10.5l4 4 8-9",
    close: "M5 5l10 10M15 5L5 15",
    sun: "M10 6.5a3.5 3.5 0 110 7 3.5 3.5 0 010-7zM10 2v1.5M10 16.5V18M2 10h1.5M16.5 10H18M4.3 4.3l1.1 1.1M14.6 14.6l1.1 1.1M4.3 15.7l1.1-1.1M14.6 5.4l1.1-1.1",
    moon: "M16 11.5A6.5 6.5 0 018.5 4a6.5 6.5 0 107.5 7.5z",
    system: "M3 4h14v9H3zM7 17h6M10 13v4",
    pause: "M7 5v10M13 5v10",
    play: "M6 4.5v11l9-5.5z",
    keys: "M3 6h14v8H3zM6 9h.01M9 9h.01M12 9h.01M6.5 11.5h7",
    leave: "M8 4H4v12h4M12 7l3 3-3 3M15 10H8",
    menu: "M3 5.5h14M3 10h14M3 14.5h14",
} as const;

export type IconName = keyof typeof PATHS;

export function Icon({ name }: { name: IconName }) {
    return (
        <svg class="glyph" viewBox="0 0 20 20" aria-hidden="true" focusable="false">
            <path d={PATHS[name]} />
        </svg>
    );
}
