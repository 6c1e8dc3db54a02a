// SPDX-License-Identifier: Apache-2.0
// Lines over the last hour, in the colours of the theme.
import { useEffect, useRef } from "preact/hooks";
import uPlot from "uplot";
import "uplot/dist/uPlot.min.css";
import { theme } from "../theme";

export interface Line {
    name: string;
    colour: string; // a variable of the style
    values: (number | null)[];
    fill?: boolean;
}

interface Props {
    title: string;
    end_ms: number;
    step_ms: number;
    lines: Line[];
    text: (value: number) => string;
    height?: number;
}

const SPAN_S = 600; // that is shown at least

function colour(name: string): string {
    return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

function dataOf({ end_ms, step_ms, lines }: Props): uPlot.AlignedData {
    const n = Math.max(...lines.map((line) => line.values.length), 0);
    const times = Array.from({ length: n }, (_, i) => (end_ms - (n - 1 - i) * step_ms) / 1000);
    return [times, ...lines.map((line) => line.values)] as uPlot.AlignedData;
}

// While nobody points at a moment, the figures are those of the latest one.
function toLatest(plot: uPlot): void {
    const idx = plot.data[0].length - 1;
    if (idx >= 0 && plot.legend.idx !== idx) plot.setLegend({ idx }, false);
}

function optionsOf(props: Props, width: number): uPlot.Options {
    const axis = { stroke: colour("--muted"), grid: { stroke: colour("--line"), width: 1 }, ticks: { show: false }, font: "11px system-ui, sans-serif" };
    return {
        width,
        height: props.height ?? 160,
        padding: [8, 16, 0, 0],
        cursor: { y: false, points: { size: 5 } },
        legend: { live: true },
        hooks: { setCursor: [(plot) => (plot.cursor.left ?? -1) < 0 && toLatest(plot)] },
        scales: { x: { range: (_u, min, max) => (max ? [Math.min(min, max - SPAN_S), max] : [Date.now() / 1000 - SPAN_S, Date.now() / 1000]) }, y: { range: (_u, _min, max) => [0, max > 0 ? max * 1.1 : 1] } },
        axes: [
            { ...axis, size: 28, values: "{HH}:{mm}", space: 70 },
            { ...axis, size: 56, values: (_u, values) => values.map((value) => props.text(value)), space: 32 },
        ],
        series: [
            { label: "Time", value: "{HH}:{mm}:{ss}" },
            ...props.lines.map((line) => ({
                label: line.name,
                stroke: colour(line.colour),
                width: 1.5,
                fill: line.fill ? `${colour(line.colour)}1f` : undefined,
                points: { show: false },
                spanGaps: false,
                value: (_u: uPlot, value: number | null) => (value === null || value === undefined ? "–" : props.text(value)),
            })),
        ],
    };
}

export function Chart(props: Props) {
    const box = useRef<HTMLDivElement>(null);
    const plot = useRef<uPlot | null>(null);
    const dark = theme.value;
    const shape = props.lines.map((line) => line.name).join();
    useEffect(() => {
        const element = box.current;
        if (!element) return;
        plot.current = new uPlot(optionsOf(props, element.clientWidth || 300), dataOf(props), element);
        const sizes = new ResizeObserver(() => plot.current?.setSize({ width: element.clientWidth, height: props.height ?? 160 }));
        sizes.observe(element);
        return () => {
            sizes.disconnect();
            plot.current?.destroy();
            plot.current = null;
        };
    }, [dark, shape]);
    useEffect(() => {
        plot.current?.setData(dataOf(props));
        if (plot.current) toLatest(plot.current);
    }, [props.end_ms, props.lines[0]?.values.length]);
    const latest = props.lines.map((line) => `${line.name} ${props.text(line.values.at(-1) ?? 0)}`).join(", ");
    return <div class="chart" ref={box} role="img" aria-label={`${props.title}, last hour; now: ${latest}`} />;
}
