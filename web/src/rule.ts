// SPDX-License-Identifier: Apache-2.0
// When a timer fires, in words. What has no words of its own is said as it is written.
import type { Timer } from "./types";

const DAYS = ["Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"];
const MONTHS = ["January", "February", "March", "April", "May", "June", "July", "August", "September", "October", "November", "December"];

function listed(words: string[]): string {
    return words.length < 2 ? words.join("") : `${words.slice(0, -1).join(", ")} and ${words[words.length - 1]}`;
}

function ordinal(n: number): string {
    const end = n % 100 > 10 && n % 100 < 14 ? "th" : (["th", "st", "nd", "rd"][n % 10] ?? "th");
    return `${n}${end}`;
}

function indexOf(text: string, names: string[], first: number): number {
    const at = names.findIndex((name) => name.slice(0, 3).toUpperCase() === text.toUpperCase());
    return at >= 0 ? at + first : Number(text);
}

// "1-5" as "Monday to Friday", "1,3" as "Monday and Wednesday"; null: it is more than that.
function named(field: string, names: string[], first: number): string | null {
    const name = (text: string) => names[(indexOf(text, names, first) - first) % names.length];
    const parts = field.split(",").map((part) => {
        const range = /^([A-Za-z0-9]+)-([A-Za-z0-9]+)$/.exec(part);
        if (range) return name(range[1]) && name(range[2]) ? `${name(range[1])} to ${name(range[2])}` : undefined;
        return /^[A-Za-z0-9]+$/.test(part) ? name(part) : undefined;
    });
    return parts.every((part) => part !== undefined) ? listed(parts as string[]) : null;
}

function every(field: string, unit: string): string | null {
    if (field === "*") return `every ${unit}`;
    const step = /^(?:\*|0)\/(\d+)$/.exec(field);
    return step ? (step[1] === "1" ? `every ${unit}` : `every ${step[1]} ${unit}s`) : null;
}

const two = (n: string) => n.padStart(2, "0");

function timeWords(second: string, minute: string, hour: string): string {
    const numbers = (field: string) => /^\d+(,\d+)*$/.test(field);
    const seconds = second === "0" ? "" : `:${two(second)}`;
    if (second !== "0" && !/^\d+$/.test(second)) {
        const said = every(second, "second");
        return said && minute === "*" && hour === "*" ? said : `at second ${second}, minute ${minute}, hour ${hour}`;
    }
    if (numbers(minute) && numbers(hour))
        return `at ${listed(hour.split(",").flatMap((h) => minute.split(",").map((m) => `${two(h)}:${two(m)}${seconds}`)))}`;
    const span = /^(\d+)-(\d+)$/.exec(hour);
    const during = hour === "*" ? "" : span ? `, from ${two(span[1])}:00 to ${two(span[2])}:59` : `, in hour ${hour}`;
    const minutes = every(minute, "minute");
    if (minutes) return minutes + during;
    if (!numbers(minute)) return `at minute ${minute}${during}`;
    const hours = every(hour, "hour");
    const past = minute === "0" ? "on the hour" : `at ${listed(minute.split(","))} past the hour`;
    return hours ? (hours === "every hour" ? `every hour, ${past}` : `${hours}, ${past}`) : past + during;
}

function dayWords(day: string, month: string, weekday: string): string[] {
    const words: string[] = [];
    if (day === "L") words.push("on the last day of the month");
    else if (day === "LW") words.push("on the last working day of the month");
    else if (/^\d+(,\d+)*$/.test(day)) words.push(`on the ${listed(day.split(",").map((n) => ordinal(Number(n))))}`);
    else if (day !== "*" && day !== "?") words.push(`on day ${day}`);
    if (weekday !== "*" && weekday !== "?") {
        const nth = /^(\w+)#(\d)$/.exec(weekday);
        const last = /^(\d)L$/.exec(weekday);
        if (nth) words.push(`on the ${ordinal(Number(nth[2]))} ${named(nth[1], DAYS, 0) ?? nth[1]} of the month`);
        else if (last) words.push(`on the last ${DAYS[Number(last[1]) % 7]} of the month`);
        else words.push(`on ${named(weekday, DAYS, 0) ?? `weekday ${weekday}`}`);
    }
    if (words.length === 2) words.splice(0, 2, `${words[0]} or ${words[1]}`);
    if (month !== "*") words.push(`in ${named(month, MONTHS, 1) ?? `month ${month}`}`);
    return words;
}

export function cronWords(expression: string): string {
    const fields = expression.trim().split(/\s+/);
    if (expression.startsWith("@")) return expression.slice(1);
    if (fields.length < 5 || fields.length > 7) return `by ${expression}`;
    const [second, minute, hour, day, month, weekday, year] = fields.length === 5 ? ["0", ...fields] : fields;
    const words = [timeWords(second, minute, hour), ...dayWords(day, month, weekday)];
    const daily = words.length === 1 && words[0].startsWith("at ") && /\d\d:\d\d/.test(words[0]);
    if (daily) words.push("every day");
    if (year && year !== "*") words.push(`in ${year}`);
    return words.join(", ");
}

const KINDS: Record<string, (expression: string) => string> = {
    cron: cronWords,
    every: (expression) => `every ${expression}`,
    "after-done": (expression) => `${expression} after the end of the last run`,
    at: (expression) => `once, at ${expression}`,
    delay: (expression) => `once, ${expression} after it was made`,
    daily: (expression) => `on each day given, ${expression}`,
    manual: () => "only when somebody runs it",
};

export function ruleWords(timer: Pick<Timer, "kind" | "expression">): string {
    const words = KINDS[timer.kind]?.(timer.expression) ?? `${timer.kind} ${timer.expression}`;
    return words.charAt(0).toUpperCase() + words.slice(1);
}
