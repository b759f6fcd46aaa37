// Uses the generated types as a client would: the compiler checks them.
import type { components, paths } from "./build/throttler.js";

type Call = components["schemas"]["Call"];
type Accepted = paths["/v1/calls"]["post"]["responses"]["202"]["content"]["application/json"];

const submission: components["schemas"]["Submission"] = { upstream: "pay", method: "POST", target: "/refunds", headers: { app: "a", accept: ["x"] } };
const resolution: components["schemas"]["Resolution"] = { outcome: "done", attempt: 1 };

// @ts-expect-error a resolution names the attempt
const stale: components["schemas"]["Resolution"] = { outcome: "done" };

export function next(accepted: Accepted): string {
  const call: Call = accepted;
  return call.state === "unknown" ? `decide ${call.id} with ${JSON.stringify(resolution)}, not ${JSON.stringify(stale)}` : JSON.stringify(submission);
}
