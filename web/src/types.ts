// SPDX-License-Identifier: Apache-2.0
// What the API answers, as /openapi.json has it. Bytes that are no UTF-8 come as NAME_base64 instead.

export type TaskState = "aggregating" | "scheduled" | "pending" | "active" | "retry" | "archived" | "completed";
export const TASK_STATES: TaskState[] = ["pending", "active", "scheduled", "retry", "aggregating", "completed", "archived"];

export interface Page<T> {
    items: T[];
    next: string | null;
}

export interface Task {
    id: string;
    queue: string;
    partition?: number;
    type: string;
    state: TaskState;
    payload?: string;
    payload_base64?: string;
    headers?: Record<string, string>;
    priority?: number;
    order_time_ms?: number;
    attempt: number;
    retried: number;
    max_retry: number;
    crashes: number;
    epoch?: number | string;
    timeout_ms?: number;
    deadline_ms?: number;
    unique_key?: string;
    group?: string;
    topic?: string;
    retention_ms?: number;
    created_ms: number;
    due_ms?: number;
    started_ms?: number;
    finished_ms?: number;
    node?: string;
    progress?: string;
    last_error?: string;
    last_error_base64?: string;
    last_failed_ms?: number;
    result?: string;
    result_base64?: string;
    operation?: { verb: string; app: string; timer: string; version: number };
}

export interface Queue {
    queue: string;
    partitions: number;
    assign?: string;
    pending: number;
    active: number;
    scheduled: number;
    retry: number;
    archived: number;
    completed: number;
    aggregating: number;
    paused: boolean;
    oldest_pending_ms: number;
    oldest_since_ms?: number; // ours: since when, worked out when it was told
    processed_total: number;
    failed_total: number;
    processed_today: number;
    failed_today: number;
    max_length: number;
    retry_mode?: string;
    retry_wait_ms?: number;
    rate: number;
    rate_ms?: number;
    concurrency: number;
    wait_p50_us?: number;
    wait_p99_us?: number;
    run_p50_us?: number;
    run_p99_us?: number;
    trimmed?: number;
    quarantined?: number;
}

export interface Node {
    node: string;
    role: "master" | "worker" | "server";
    state: "live" | "suspect" | "dead" | "draining" | "gone";
    incarnation: number | string;
    started_ms: number;
    last_beat_ms: number;
    in_hand: number;
    concurrency: number;
    slots?: string[];
    doing?: { slot: number; state: string; since_ms: number; task_id: string; type: string }[];
    queues: string[];
    types?: string[];
    partitions?: { queue: string; partitions: number[] }[];
    tags?: string[];
    leader?: boolean;
}

export interface Leader {
    node: string;
    term: number;
    since_ms: number;
    leaderless_ms?: number;
}

export interface Led {
    node: string;
    term: number;
    since_ms: number;
    until_ms: number | null;
}

// What a server has seen since watched_ms.
export interface LeaderHistory extends Page<Led> {
    watched_ms: number;
}

export interface Move {
    number: number;
    at_ms: number;
    app: string;
    subapp: number;
    from: string;
    to: string;
    reason: string;
}

export interface SubApp {
    app: string;
    subapp: number;
    cut: boolean;
    slots: number;
    owner: string;
    epoch: number;
    load: number;
}

export interface ServerRow {
    server: string;
    registered: boolean;
    weight: number;
    load: number;
    apps: string[];
}

// Servers that share the store; view: what a nameserver knows is among it.
export interface Servers {
    servers: ServerRow[];
    planner: string;
    view: boolean;
    balance: string;
    subapps: SubApp[];
    moves: Move[];
}

export interface ServerState {
    disk_full: boolean;
    failed: boolean;
    upkeep: boolean;
}

export interface Timer {
    name: string;
    id: string;
    app: string;
    version: number;
    kind: string;
    expression: string;
    tz: string;
    queue: string;
    type: string;
    payload?: string;
    payload_base64?: string;
    state: "active" | "paused" | "finished";
    next_ms: number;
    last_ms: number;
    misfire: string;
    overlap: string;
    strategy: string;
    start_ms: number;
    end_ms: number;
    firings_total: number;
    max_retry?: number;
    timeout_ms?: number;
    priority?: number;
    jitter_ms?: number;
    times?: number;
    exclude?: string;
}

export interface Firing {
    timer: string;
    app: string;
    planned_ms: number;
    until_ms?: number;
    state: string;
    cause?: string;
    reason?: string;
    task_id?: string;
    run?: number;
    attempt?: number;
    fired_ms?: number;
    started_ms?: number;
    finished_ms?: number;
}

export interface Job {
    id: string;
    name: string;
    queue: string;
    state: "created" | "running" | "succeeded" | "failed" | "cancelled";
    reason?: string;
    version?: number;
    total: number;
    done: number;
    failed: number;
    running: number;
    stages: { type: string; total: number; done: number; failed: number }[];
    rate: number;
    eta_ms: number | null;
    priority: number;
    split?: string;
    reduce?: string;
    policy?: string;
    created_ms: number;
    started_ms?: number;
    finished_ms?: number;
    result_bytes?: number;
    reducing?: boolean;
    round?: number;
}

export interface Part {
    job: string;
    index: number;
    stage: number;
    round: number;
    state: string;
    task_id?: string;
    error?: string;
}

export interface Why {
    reasons: { reason: string; text: string }[];
}

export interface TaskEvent {
    ms: number;
    event: string;
    attempt?: number;
    node?: string;
    text?: string;
    text_base64?: string;
}

export interface TaskEvents extends Page<TaskEvent> {
    missing: number;
}

export interface Session {
    role: "admin" | "producer" | "worker" | "viewer";
    token: string | null;
    queue: string | null;
    version: string;
}

export interface DeadGroup {
    error: string;
    queue: string;
    type: string;
    count: number;
    first_ms: number;
    last_ms: number;
    sample_id: string;
}

// The last hour, one value for each step; null where nothing was measured.
export interface History {
    step_ms: number;
    end_ms: number;
    enqueued: (number | null)[];
    succeeded: (number | null)[];
    failed: (number | null)[];
    backlog: (number | null)[];
    wait_p50_ms: (number | null)[];
    wait_p99_ms: (number | null)[];
    run_p50_ms: (number | null)[];
    run_p99_ms: (number | null)[];
}
