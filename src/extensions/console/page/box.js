// A component of the graph in detail: its account, queues, last error and certificates.

import { button, el, table } from "./dom.js";
import { bytes, count, dateTime, duration, moment, plural, rate } from "./format.js";

const SOON = 14 * 86400000;
const FULL = 0.8;

const COUNTERS = [["received", "received"], ["delivered", "delivered"], ["refused", "refused"], ["in_flight", "in flight"], ["recovered", "recovered from the queue"]];

export const sum = (node, name) => {
	const of = (account) => (name === "dropped" ? Object.values(account.dropped ?? {}).reduce((a, b) => a + b, 0) : account[name] ?? 0);
	return node.accounts.reduce((all, account) => all + of(account), 0);
};

const fillOf = (queue) => (queue.capacity ? Math.min(queue.size / queue.capacity, 1) : 0);

export const nodeState = (node) => {
	const fill = Math.max(0, ...node.queues.map(fillOf));
	const failing = node.last_error?.failing_seconds ?? null;
	const left = Math.min(Infinity, ...node.certificates.map((one) => one.expires)) - Date.now();
	const [dropped, refused] = [sum(node, "dropped"), sum(node, "refused")];
	const is = (level, text) => ({ level, text, fill });
	if (failing !== null) return is("error", `failing ${duration(failing)}`);
	if (left < 0) return is("error", "certificate expired");
	if (fill >= FULL) return is("warn", `queue ${Math.round(fill * 100)}%`);
	if (left < SOON) return is("warn", `certificate ${duration(left / 1000)}`);
	return is("ok", dropped ? `dropped ${count(dropped)}` : refused ? `refused ${count(refused)}` : fill >= 0.01 ? `queue ${Math.round(fill * 100)}%` : "");
};

const account = (accounts) => {
	const reasons = new Set(accounts.flatMap((one) => Object.keys(one.dropped ?? {})));
	const shown = COUNTERS.filter(([key]) => accounts.some((one) => key in one));
	const rows = shown.map(([key, title]) => [title, ...accounts.map((one) => count(one[key] ?? 0))]);
	for (const reason of reasons) rows.push([`dropped: ${reason}`, ...accounts.map((one) => count(one.dropped?.[reason] ?? 0))]);
	return table("Account", ["items", ...accounts.map((one) => `#${one.signal}`)], rows);
};

const queue = (one) => {
	const size = one.unit === "bytes" ? bytes : (value) => `${count(value)} ${one.unit}`;
	const age = one.oldest_seconds ? `, the oldest item ${duration(one.oldest_seconds)} old` : "";
	return [
		el("p", `${one.signal}: ${size(one.size)} of ${size(one.capacity)} (${Math.round(fillOf(one) * 100)}%), ${plural(one.requests ?? 0, "request")}${age}`),
		el("meter", { max: 1, high: FULL, value: fillOf(one), "aria-label": "Fill of the queue" }),
	];
};

const lastError = ({ time, message, address, signal, failing_seconds: failing }) => [
	el("h3", "Last error"),
	failing === null ? el("p.muted", "Delivers again.") : el("p.problem", `Failing for ${duration(failing)}.`),
	el("p", `${moment(time)}${address && ` at ${address}`} (${signal})`),
	el("p.message", message),
];

const certificate = ({ kind, subject, expires }) => {
	const left = expires - Date.now();
	const text = left < 0 ? "expired" : `expires in ${duration(left / 1000)}`;
	return el("p", { class: left < SOON ? "problem" : "" }, `${kind} of `, el("code", subject), `: ${text} (${dateTime(expires)})`);
};

const details = (title, about, path, of, accounts, { showConfig, close }) => [
	el("div.bar", el("h2.grow", title), button("Close", close)),
	el("p", `${about} `, button("Configuration", () => showConfig(path), "link")),
	el("p", `${rate(of.items_per_second)} items/s, ${bytes(of.bytes_per_second)}/s`),
	el("h3", "Account"), account(accounts),
];

export const nodeDetails = (node, on) => [
	details(node.component, `${node.kind} in ${node.pipelines.join(", ")}`, node.config_path, node, node.accounts, on),
	node.queues.length ? [el("h3", "Queue"), node.queues.map(queue)] : null,
	node.last_error ? lastError(node.last_error) : null,
	node.certificates.length ? [el("h3", "Certificates"), node.certificates.map(certificate)] : null,
];

export const pipelineDetails = (one, on) =>
	details(`Pipeline ${one.id}`, `Signal ${one.signal}`, ["service", "pipelines", one.id], one, [{ ...one, delivered: one.forwarded }], on);
