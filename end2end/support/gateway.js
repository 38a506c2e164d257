// What callers and upstreams do while an operator watches.

import { baseUrl, callerToken, simulatorUrl } from "./environment.js";

/** Sends one chat completion as a caller; resolves with its status and task id, whatever they are. */
export async function complete(pool, content = "hi") {
  const response = await fetch(`${baseUrl}/v1/chat/completions`, {
    method: "POST",
    headers: { authorization: `Bearer ${callerToken()}`, "content-type": "application/json" },
    body: JSON.stringify({ model: pool, messages: [{ role: "user", content }], max_tokens: 16 }),
  });
  await response.arrayBuffer();
  return { status: response.status, task: response.headers.get("x-request-id") };
}

/** Tells the simulator how a model of its own behaves from now on: `ok`, `500`, … */
export async function behave(model, behaviour) {
  const response = await fetch(`${simulatorUrl()}/control/${model}`, {
    method: "PUT",
    headers: { "content-type": "application/json" },
    body: JSON.stringify({ behaviour }),
  });
  if (!response.ok) throw new Error(`the simulator answered ${response.status}`);
}
