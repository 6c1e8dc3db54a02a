// SPDX-License-Identifier: Apache-2.0
// Dark, light, or as the system says.
import { effect, signal } from "@preact/signals";

export type Theme = "system" | "light" | "dark";
const KEY = "millrace.theme";
const ORDER: Theme[] = ["system", "light", "dark"];

export const theme = signal<Theme>((localStorage.getItem(KEY) as Theme | null) ?? "system");

export function nextTheme(): void {
    theme.value = ORDER[(ORDER.indexOf(theme.value) + 1) % ORDER.length];
}

effect(() => {
    if (theme.value === "system") delete document.documentElement.dataset.theme;
    else document.documentElement.dataset.theme = theme.value;
    localStorage.setItem(KEY, theme.value);
});
