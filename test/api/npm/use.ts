// Uses the generated types as a client would: the compiler checks them.
import type { components, operations, paths } from "./build/throttler.js";

type Schemas = components["schemas"];
type Accepted = paths["/v1/calls"]["post"]["responses"]["202"]["content"]["application/json"];
type Paused = operations["addPause"]["responses"]["201"]["content"]["application/json"];
type Audit = operations["listAudit"]["responses"]["200"]["content"]["application/json"];
type Filter = NonNullable<operations["listCalls"]["parameters"]["query"]>;

const submission: Schemas["Submission"] = { upstream: "pay", method: "POST", target: "/refunds", headers: { app: "a", accept: ["x"] } };
const resolution: Schemas["Resolution"] = { outcome: "done", attempt: 1, reason: "seen in the statement" };
const edit: Schemas["Edit"] = { priority: 50, reason: "the customer waits" };
const pause: Schemas["PauseRequest"] = { upstream: "pay", for: "30m", reason: "maintenance" };
const filter: Filter = { number: "R-88123", state: ["unknown", "waiting"], order: "newest", page_size: 10 };

// @ts-expect-error a resolution names the attempt
const stale: Schemas["Resolution"] = { outcome: "done", reason: "seen in the statement" };
// @ts-expect-error a retry has a reason
const blind: Schemas["Retry"] = { attempt: 1 };
// @ts-expect-error a pause names its upstream
const nothing: Schemas["PauseRequest"] = { for: "30m" };
// @ts-expect-error there is no such state
const lost: Filter = { state: ["lost"] };

export const requests = [submission, resolution, edit, pause, filter, stale, blind, nothing, lost];

export function next(accepted: Accepted): string {
  const call: Schemas["Call"] = accepted;
  return call.state === "unknown" ? `decide ${call.id} about attempt ${call.unknown?.attempt}` : call.state;
}

export function ending(paused: Paused): keyof paths {
  const pause: Schemas["Pause"] = paused;
  return pause.until < new Date().toISOString() ? "/v1/pauses" : "/v1/pauses/{id}";
}

export function decisions(audit: Audit): string[] {
  return audit.records.filter((record) => record.action === "resolve").map((record) => `${record.actor}: ${record.reason ?? ""}`);
}
