// SPDX-License-Identifier: Apache-2.0
// The token is kept for this tab only, and is never part of an address.
import { useState } from "preact/hooks";
import { needsToken, setToken, token } from "../api";
import { enter } from "../store";
import { Command } from "../ui/command";

export function Login() {
    const [text, setText] = useState("");
    const [problem, setProblem] = useState(token() ? "This token is not known here, or was revoked." : "");
    const submit = async (event: Event) => {
        event.preventDefault();
        setToken(text.trim());
        try {
            await enter();
        } catch (error) {
            setToken("");
            needsToken.value = true;
            setProblem((error as Error).message);
        }
    };
    return (
        <main class="login">
            <form class="card" onSubmit={(event) => void submit(event)}>
                <h1 tabIndex={-1}>Millrace</h1>
                <p>This server wants to know who you are.</p>
                <div class="field">
                    <label for="token">Token</label>
                    <input id="token" type="password" autocomplete="off" required value={text} onInput={(event) => setText(event.currentTarget.value)} />
                </div>
                {problem && (
                    <p class="problem" role="alert">
                        {problem}
                    </p>
                )}
                <button type="submit" class="button main">
                    Log in
                </button>
                <p class="hint">One that only looks is made with:</p>
                <Command words={["token", "create", "--role", "viewer"]} />
            </form>
        </main>
    );
}
