// The page of the pipelines: what passes, what it costs, who sends it, and what went wrong.

import { ask } from "./api.js";
import { nodeDetails, nodeState, pipelineDetails, sum } from "./box.js";
import { createConfig, section, valueAt } from "./config.js";
import { behind, el, lines, muted, renew, table } from "./dom.js";
import { bytes, count, duration, moment, plural, rate, visible } from "./format.js";
import { createGraph } from "./graph.js";

const SPAN = `{"resourceSpans": [{
  "resource": {"attributes": [{"key": "service.name", "value": {"stringValue": "shop"}}]},
  "scopeSpans": [{"spans": [{"name": "checkout",
    "traceId": "5b8efff798038103d269b633813fc60c", "spanId": "eee19b7ec3c1b174",
    "startTimeUnixNano": "1760000000000000000", "endTimeUnixNano": "1760000000250000000"}]}]}]}`;

const firstSpan = (snapshot, config) => {
	const isOn = (path) => section(config, path) && valueAt(config, [...path, "enabled"]) !== "false";
	for (const { kind, component, config_path: at } of snapshot.nodes) {
		const path = [...at, "protocols", "http"];
		if (kind !== "receiver" || component.split("/")[0] !== "otlp" || !isOn(path)) continue;
		const endpoint = valueAt(config, [...path, "endpoint"]) ?? "localhost:4318";
		// 0.0.0.0 is no address to send to.
		const host = endpoint.replace(/^(0\.0\.0\.0|\[::\]|)(?=:)/, location.hostname);
		const scheme = isOn([...path, "tls"]) ? "https:" : "http:";
		return `curl ${scheme}//${host}/v1/traces -H 'content-type: application/json' -d '${SPAN}'`;
	}
	return null;
};

const hintOf = (snapshot, config) => {
	const command = firstSpan(snapshot, config);
	return [
		el("h2", snapshot.phase === "starting" ? "The pipelines start" : "Nothing has arrived yet"),
		command ? el("p", "Send a first span, and see it pass on this page:") : "No receiver takes OTLP over HTTP: add otlp with protocols.http to send a span by hand.",
		command ? el("pre", { tabindex: 0 }, lines(command.split("\n"))) : null,
	];
};

const tilesOf = ({ nodes, process, pipelines }) => {
	const of = (kind) => nodes.filter((node) => node.kind === kind);
	const all = (list, value) => list.reduce((before, one) => before + value(one), 0);
	const flow = (kind, counter) => [`${rate(all(of(kind), (one) => one.items_per_second))} items/s`,
		`${bytes(all(of(kind), (one) => one.bytes_per_second))}/s, ${plural(all(of(kind), (one) => sum(one, counter)), "item")} in total`];
	const percent = (part) => `${(part * 100).toFixed(part < 0.1 ? 1 : 0)}%`;
	const waiting = all(pipelines, (one) => one.in_flight) + all(of("exporter"), (one) => sum(one, "in_flight"));
	return [
		["Received", ...flow("receiver", "received")],
		["Delivered", ...flow("exporter", "delivered")],
		["In flight", count(waiting), plural(process.open_connections, "connection")],
		["Processor", `${percent(process.cores)} of a core`, `${duration(process.cpu_seconds)} since the start`],
		["Memory", bytes(process.resident_bytes), "resident"],
		["Memory budget", bytes(process.memory_used_bytes), `${percent(process.memory_used_bytes / (process.memory_limit_bytes || 1))} of ${bytes(process.memory_limit_bytes)} reserved`],
	];
};

const clientTable = (clients) =>
	table("Clients", ["client", "address", "receiver", "signal", "#requests", "#items", "#bytes", "#items/s", "#bytes/s", "#last"], clients.map((one) => [
		one.identity || muted("not authenticated"), one.address, one.receiver, one.signal, count(one.requests), count(one.items), bytes(one.bytes),
		rate(one.items_per_second), bytes(one.bytes_per_second), moment(one.last)]));

const eventList = (events) =>
	el("ol.events", events.map(({ time, level, message, count: times }) =>
		el("li", { "data-level": level }, muted(moment(time)), el("b", ` ${level} `), visible(message, 600), times > 1 ? muted(` (${count(times)} times)`) : null)));

const graphTables = ({ nodes, edges }) => [
	table("Components", ["component", "pipelines", "#items/s", "#bytes/s", "#received", "#delivered", "#refused", "#dropped", "#in flight", "state"], nodes.map((node) => [
		node.id, node.pipelines.join(", "), rate(node.items_per_second), bytes(node.bytes_per_second),
		...["received", "delivered", "refused", "dropped", "in_flight"].map((name) => count(sum(node, name))), nodeState(node).text || "no problems"])),
	table("Edges", ["from", "to", "pipeline", "#items/s", "#bytes/s", "#items"], edges.map((edge) => [
		edge.from, edge.to, edge.pipeline, rate(edge.items_per_second), edge.bytes_per_second === null ? "" : bytes(edge.bytes_per_second), count(edge.items)])),
];

export const create = (root, app) => {
	let config = [];
	let configOf = "";
	let selected = null;
	let isShown = false;
	/** Content of each list: an unchanged one is left alone. */
	const known = new Map();

	const tiles = el("div.tiles");
	const hint = el("div.card.hint", { hidden: true });
	const details = el("aside.card.details", { "aria-label": "Details", hidden: true });
	const picture = el("div.scroll");
	const clients = el("div.scroll");
	const events = el("div");
	const behindGraph = behind("Table of the graph", () => graphTables(app.snapshot));
	const configView = createConfig();

	const select = (id) => {
		selected = selected === id ? null : id;
		graph.select(selected);
		showDetails(app.snapshot);
		// The graph is narrower beside the details.
		graph.update(app.snapshot);
		graph.element(id)?.scrollIntoView({ block: "nearest", inline: "center" });
		if (selected) details.querySelector("button").focus({ preventScroll: innerWidth > 900 });
		else graph.element(id)?.focus({ preventScroll: true });
	};
	const on = { showConfig: configView.reveal, close: () => select(selected) };
	const graph = createGraph(picture, select);
	root.append(tiles, hint,
		el("div.columns", el("div.card.grow", picture, behindGraph), details),
		el("div.columns", el("div.card.grow", el("h2", "Clients"), clients), el("div.card.grow", el("h2", "Warnings and errors"), events)),
		configView.element);
	details.addEventListener("keydown", (event) => event.key === "Escape" && on.close());

	const showDetails = ({ nodes, pipelines }) => {
		const node = nodes.find((one) => one.id === selected);
		const pipeline = pipelines.find((one) => `pipeline:${one.id}` === selected);
		details.hidden = !node && !pipeline;
		if (!details.hidden) renew(details, node ? nodeDetails(node, on) : pipelineDetails(pipeline, on));
	};

	const showList = (place, data, make, none) => {
		const key = JSON.stringify(data);
		if (known.get(place) === key) return;
		known.set(place, key);
		renew(place, data.length ? make(data) : muted(none));
	};

	const loadConfig = async ({ started, generation }) => {
		const key = `${started} ${generation}`;
		if (key === configOf) return;
		configOf = key;
		try {
			config = (await (await ask("config")).text()).trimEnd().split("\n");
			configView.update(config);
		} catch (error) {
			configOf = "";
			configView.update([`# ${error.message}`]);
		}
	};

	const update = (snapshot) => {
		if (!isShown) return;
		loadConfig(snapshot);
		renew(tiles, tilesOf(snapshot).map(([title, figure, about]) => el("div.tile", muted(title), el("strong", figure), el("small", about))));
		const receivers = snapshot.nodes.filter((node) => node.kind === "receiver");
		hint.hidden = receivers.some((node) => sum(node, "received") + sum(node, "refused") > 0);
		if (!hint.hidden) showList(hint, [snapshot.phase, config.join("\n")], () => hintOf(snapshot, config), "");
		graph.update(snapshot);
		behindGraph.refresh();
		showDetails(snapshot);
		showList(clients, snapshot.clients, (list) => [clientTable(list), snapshot.clients_omitted ? muted(`${plural(snapshot.clients_omitted, "further client")} counted together`) : null], "No client has sent anything.");
		showList(events, snapshot.events, eventList, "None since the start.");
	};
	const again = () => app.snapshot && update(app.snapshot);
	new ResizeObserver(again).observe(picture);

	return {
		show() {
			isShown = true;
			again();
		},
		hide: () => (isShown = false),
		update,
		redraw() {},
		refresh() {},
	};
};
