// A component of the graph in detail: its account, queues, last error and certificates.

import { el, table } from "./dom.js";
import { bytes, count, dateTime, duration, moment, plural, rate } from "./format.js";

const DAY = 86400000;
/** Days before the end of a certificate at which the page begins to warn. */
const EXPIRES_SOON = 14;
/** Share of a queue above which the page warns. */
const FULL = 0.8;

/** Returns the account of a component over all signals. */
export const sums = (node) => {
  const sum = { received: 0, delivered: 0, refused: 0, in_flight: 0, recovered: 0, dropped: 0 };
  for (const account of node.accounts) {
    for (const name of Object.keys(sum)) if (name !== "dropped") sum[name] += account[name] ?? 0;
    for (const dropped of Object.values(account.dropped ?? {})) sum.dropped += dropped;
  }
  return sum;
};

const fillOf = (queue) => (queue.capacity ? queue.size / queue.capacity : 0);

/** Returns the state of a component: `level` is `error`, `warn`, `note` or `ok`; `text` says why. */
export const nodeState = (node) => {
  const fill = Math.max(0, ...node.queues.map(fillOf));
  const failing = node.last_error?.failing_seconds;
  const left = Math.min(Infinity, ...node.certificates.map((one) => one.expires)) - Date.now();
  const { dropped, refused } = sums(node);
  const is = (level, text) => ({ level, text, fill });
  if (typeof failing === "number") return is("error", `failing ${duration(failing)}`);
  if (left < 0) return is("error", "certificate expired");
  if (fill >= FULL) return is("warn", `queue ${Math.round(fill * 100)}%`);
  if (left < EXPIRES_SOON * DAY) return is("warn", `certificate ${duration(left / 1000)}`);
  if (dropped > 0) return is("note", `dropped ${count(dropped)}`);
  if (refused > 0) return is("note", `refused ${count(refused)}`);
  return is("ok", fill >= 0.01 ? `queue ${Math.round(fill * 100)}%` : "");
};

const account = (accounts) => {
  const names = [["received", "received"], ["delivered", "delivered"], ["refused", "refused"], ["in_flight", "in flight"]];
  if (accounts.some((one) => one.recovered)) names.push(["recovered", "recovered from the queue"]);
  const reasons = new Set(accounts.flatMap((one) => Object.keys(one.dropped ?? {})));
  const rows = names.map(([key, title]) => [title, ...accounts.map((one) => count(one[key] ?? 0))]);
  for (const reason of reasons) rows.push([`dropped: ${reason}`, ...accounts.map((one) => count(one.dropped?.[reason] ?? 0))]);
  if (!reasons.size) rows.push(["dropped", ...accounts.map(() => "0")]);
  return table("Account", [["items", false], ...accounts.map((one) => [one.signal, true])], rows);
};

const queue = (one) => {
  const size = one.unit === "bytes" ? bytes : count;
  const unit = one.unit === "bytes" ? "" : ` ${one.unit}`;
  const fill = Math.round(fillOf(one) * 100);
  return el("div", {},
    el("p", {}, el("b", {}, `${one.signal}: `), `${size(one.size)} of ${size(one.capacity)}${unit} (${fill}%), ${plural(one.requests ?? 0, "request")}`,
      one.oldest_seconds ? `, the oldest ${duration(one.oldest_seconds)} old` : ""),
    el("meter", { min: 0, max: 1, high: FULL, value: fillOf(one), "aria-label": `Fill of the queue for ${one.signal}` }));
};

const lastError = (error) => {
  const isFailing = typeof error.failing_seconds === "number";
  return [
    el("h3", {}, "Last error"),
    el("p", { class: isFailing ? "problem" : "muted" }, isFailing ? `Failing for ${duration(error.failing_seconds)}.` : "Delivers again."),
    el("p", {}, moment(error.time), error.address ? ` at ${error.address}` : "", error.signal ? ` (${error.signal})` : ""),
    el("p", { class: "message" }, error.message),
  ];
};

const certificate = (one) => {
  const left = one.expires - Date.now();
  const text = left < 0 ? "expired" : `expires in ${duration(left / 1000)}`;
  return el("p", { class: left < EXPIRES_SOON * DAY ? "problem" : "" }, el("code", {}, one.file), `: ${text} (${dateTime(one.expires)})`);
};

const heading = (title, close) =>
  el("div", { class: "row" }, el("h2", { class: "grow" }, title), el("button", { type: "button", onclick: close, "aria-label": "Close the details" }, "Close"));

/** Returns the details of a component. `showConfig` gets the path of its configuration. */
export const nodeDetails = (node, showConfig, close) => {
  const configured = (event) => {
    event.preventDefault();
    showConfig(node.config_path);
  };
  return [
    heading(node.component, close),
    el("p", {}, `${node.kind} in ${node.pipelines.join(", ") || "no pipeline"}; `, el("a", { href: "#pipeline", onclick: configured }, "configuration")),
    el("p", {}, `${rate(node.items_per_second)} items/s, ${bytes(node.bytes_per_second)}/s`),
    el("h3", {}, "Account"),
    node.accounts.length ? account(node.accounts) : el("p", { class: "muted" }, "Nothing has passed."),
    node.queues.length ? [el("h3", {}, "Queue"), node.queues.map(queue)] : null,
    node.last_error ? lastError(node.last_error) : null,
    node.certificates.length ? [el("h3", {}, "Certificates"), node.certificates.map(certificate)] : null,
  ];
};

/** Returns the details of a pipeline. */
export const pipelineDetails = (pipeline, showConfig, close) => {
  const configured = (event) => {
    event.preventDefault();
    showConfig(["service", "pipelines", pipeline.id]);
  };
  return [
    heading(`Pipeline ${pipeline.id}`, close),
    el("p", {}, `Signal ${pipeline.signal}; `, el("a", { href: "#pipeline", onclick: configured }, "configuration")),
    el("p", {}, `${rate(pipeline.items_per_second)} items/s, ${bytes(pipeline.bytes_per_second)}/s`),
    el("h3", {}, "Account"),
    account([{ ...pipeline, delivered: pipeline.forwarded }]),
  ];
};
