// SPDX-License-Identifier: Apache-2.0
// A table of rows that can be opened, walked through by j and k, and chosen.
import type { ComponentChildren } from "preact";

export interface Column<T> {
    name: string;
    cell: (row: T) => ComponentChildren;
    right?: boolean; // figures
    wide?: boolean; // takes what room is left
    minor?: boolean; // not on a phone
}

interface Props<T> {
    label: string;
    columns: Column<T>[];
    rows: T[];
    id: (row: T) => string;
    open?: (row: T) => void;
    chosen?: ReadonlySet<string>;
    choose?: (chosen: Set<string>) => void;
}

function toggled(chosen: ReadonlySet<string>, id: string): Set<string> {
    const next = new Set(chosen);
    if (!next.delete(id)) next.add(id);
    return next;
}

export function Grid<T>({ label, columns, rows, id, open, chosen, choose }: Props<T>) {
    const all = chosen !== undefined && rows.length > 0 && rows.every((row) => chosen.has(id(row)));
    const style = (column: Column<T>) => [column.right && "right", column.wide && "wide", column.minor && "minor"].filter(Boolean).join(" ");
    return (
        <div class="grid" role="region" aria-label={label} tabIndex={0}>
            <table>
                <thead>
                    <tr>
                        {chosen && choose && (
                            <th class="pick" scope="col">
                                <input type="checkbox" aria-label="Choose all of this page" checked={all} onChange={() => choose(new Set(all ? [] : rows.map(id)))} />
                            </th>
                        )}
                        {columns.map((column) => (
                            <th key={column.name} scope="col" class={style(column)}>
                                {column.name}
                            </th>
                        ))}
                    </tr>
                </thead>
                <tbody>
                    {rows.map((row) => {
                        const key = id(row);
                        return (
                            <tr
                                key={key}
                                class={open ? "opens" : undefined}
                                tabIndex={open ? -1 : undefined}
                                data-row={open ? "" : undefined}
                                onClick={(event) => open && !(event.target as Element).closest("a,button,input,label") && !getSelection()?.toString() && open(row)}
                                onKeyDown={(event) => {
                                    if (event.target !== event.currentTarget) return;
                                    if (event.key === "Enter" && open) open(row);
                                    if (event.key === "x" && chosen && choose) choose(toggled(chosen, key));
                                }}
                            >
                                {chosen && choose && (
                                    <td class="pick">
                                        <input type="checkbox" aria-label="Choose this row" checked={chosen.has(key)} onChange={() => choose(toggled(chosen, key))} />
                                    </td>
                                )}
                                {columns.map((column) => (
                                    <td key={column.name} class={style(column)}>
                                        {column.cell(row)}
                                    </td>
                                ))}
                            </tr>
                        );
                    })}
                </tbody>
            </table>
        </div>
    );
}
