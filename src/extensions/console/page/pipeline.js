// The page of the pipelines: what passes, what it costs, who sends it, and what went wrong.

import { ask } from "./api.js";
import { nodeDetails, nodeState, pipelineDetails, sums } from "./box.js";
import { createConfig, section, valueAt } from "./config.js";
import { behind, el, renew, replace, setText, svg, table } from "./dom.js";
import { bytes, count, duration, moment, plural, rate, visible } from "./format.js";
import { createGraph } from "./graph.js";

/** Points of a small line: one a second. */
const HISTORY = 120;
/** Clients that are listed before the user asks for all. */
const FEW = 8;

const SPAN = `{"resourceSpans": [{
  "resource": {"attributes": [{"key": "service.name", "value": {"stringValue": "shop"}}]},
  "scopeSpans": [{"spans": [{"name": "checkout", "traceId": "5b8efff798038103d269b633813fc60c",
    "spanId": "eee19b7ec3c1b174", "startTimeUnixNano": "1760000000000000000",
    "endTimeUnixNano": "1760000000250000000"}]}]}]}`;

/** Returns the base address of the first OTLP receiver with HTTP, or null. */
const otlpAddress = (snapshot, config) => {
  const lines = config.split("\n");
  for (const node of snapshot.nodes) {
    const isOtlp = node.kind === "receiver" && node.component.split("/")[0] === "otlp";
    const path = [...node.config_path, "protocols", "http"];
    if (!isOtlp || (config && !section(lines, path))) continue;
    const endpoint = valueAt(config, [...path, "endpoint"]) ?? "localhost:4318";
    const scheme = section(lines, [...path, "tls"]) ? "https" : "http";
    // An address that stands for all interfaces is none to send to.
    return `${scheme}://${endpoint.replace(/^(0\.0\.0\.0|\[::\]|)(?=:)/, location.hostname || "localhost")}`;
  }
  return null;
};

const firstSpan = (base) => {
  const command = `curl ${base}/v1/traces -H 'content-type: application/json' -d '${SPAN}'`;
  const copied = el("span", { role: "status", class: "muted" });
  const copy = async () => {
    const done = await navigator.clipboard?.writeText(command).then(() => "copied", () => null);
    setText(copied, done ?? "Select the text to copy it.");
  };
  return [
    el("p", {}, "Send a first span, and see it pass on this page:"),
    el("pre", { tabindex: 0 }, command.split("\n").map((line) => el("span", { class: "line" }, line))),
    el("p", {}, el("button", { type: "button", onclick: copy }, "Copy the command"), " ", copied),
  ];
};

/** Returns a tile with a figure, and a line of its last values. */
const createTile = (title) => {
  const figure = el("strong");
  const about = el("span", { class: "muted" });
  const line = svg("polyline", { fill: "none" });
  const values = [];
  const tile = el("div", { class: "tile" }, el("span", { class: "title" }, title), figure, about,
    svg("svg", { viewBox: `0 0 ${HISTORY} 24`, preserveAspectRatio: "none", "aria-hidden": "true" }, line));
  const update = (value, text, more) => {
    values.push(value);
    if (values.length > HISTORY) values.shift();
    const most = Math.max(...values) || 1;
    const from = HISTORY - values.length;
    line.setAttribute("points", values.map((one, at) => `${from + at},${(23 - (22 * one) / most).toFixed(1)}`).join(" "));
    setText(figure, text);
    setText(about, more);
  };
  return { tile, update };
};

const createTiles = () => {
  const [flow, out, cores, memory, budget] = ["Received", "Delivered", "Processor", "Memory", "Memory budget"].map(createTile);
  const place = el("div", { class: "tiles" }, [flow, out, cores, memory, budget].map((one) => one.tile));
  const update = ({ nodes, process, pipelines }) => {
    const of = (kind) => nodes.filter((node) => node.kind === kind);
    const sum = (list, name) => list.reduce((all, one) => all + one[name], 0);
    const total = (list, name) => list.reduce((all, node) => all + sums(node)[name], 0);
    const [receivers, exporters] = [of("receiver"), of("exporter")];
    flow.update(sum(receivers, "items_per_second"), `${rate(sum(receivers, "items_per_second"))} items/s`,
      `${bytes(sum(receivers, "bytes_per_second"))}/s, ${count(total(receivers, "received"))} in total, ${plural(process.open_connections, "connection")}`);
    const leaving = sum(exporters, "items_per_second");
    out.update(leaving, `${rate(leaving)} items/s`, `${count(total(exporters, "delivered"))} in total, ${count(sum(pipelines, "in_flight") + total(exporters, "in_flight"))} in flight`);
    cores.update(process.cores, `${(process.cores * 100).toFixed(process.cores < 0.1 ? 1 : 0)}% of a core`, `${duration(process.cpu_seconds)} since the start`);
    memory.update(process.resident_bytes, bytes(process.resident_bytes), "resident");
    const used = process.memory_limit_bytes ? process.memory_used_bytes / process.memory_limit_bytes : 0;
    budget.update(process.memory_used_bytes, bytes(process.memory_used_bytes), `${(used * 100).toFixed(used < 0.1 ? 1 : 0)}% of ${bytes(process.memory_limit_bytes)} reserved`);
  };
  return { place, update };
};

const clientTable = (clients) => {
  const columns = [["client", false], ["address", false], ["receiver", false], ["signal", false], ["requests", true], ["items", true], ["bytes", true], ["items/s", true], ["bytes/s", true], ["last", true]];
  const rows = clients.map((one) => [
    one.identity || el("span", { class: "muted" }, "not authenticated"), one.address, one.receiver, one.signal, count(one.requests), count(one.items),
    bytes(one.bytes), rate(one.items_per_second), bytes(one.bytes_per_second), moment(one.last),
  ]);
  return table("Clients", columns, rows);
};

const eventList = (events) =>
  el("ol", { class: "events" }, events.map((one) =>
    el("li", { "data-level": one.level }, el("span", { class: "muted" }, moment(one.time)), " ", el("b", {}, one.level === "error" ? "error" : "warning"), " ",
      visible(one.message, 600), one.count > 1 ? el("span", { class: "muted" }, ` (${count(one.count)} times)`) : null)));

const graphTable = (snapshot) => [
  table("Components", [["component", false], ["kind", false], ["pipelines", false], ["items/s", true], ["bytes/s", true], ["received", true], ["delivered", true], ["refused", true], ["dropped", true], ["in flight", true], ["state", false]],
    snapshot.nodes.map((node) => {
      const sum = sums(node);
      return [node.component, node.kind, node.pipelines.join(", "), rate(node.items_per_second), bytes(node.bytes_per_second),
        ...["received", "delivered", "refused", "dropped", "in_flight"].map((name) => count(sum[name])), nodeState(node).text || "no problems"];
    })),
  table("Edges", [["from", false], ["to", false], ["pipeline", false], ["items/s", true], ["bytes/s", true], ["items", true]],
    snapshot.edges.map((edge) => [edge.from, edge.to, edge.pipeline, rate(edge.items_per_second), edge.bytes_per_second === null ? "" : `${bytes(edge.bytes_per_second)}/s`, count(edge.items)])),
];

/** Creates the page in its section. */
export const create = (root, app) => {
  let config = "";
  let configOf = "";
  let selected = null;
  let showsAll = false;
  let isShown = false;

  const tiles = createTiles();
  const hint = el("div", { class: "card hint", hidden: true });
  const details = el("aside", { class: "card details", "aria-label": "Details", hidden: true });
  const picture = el("div", { class: "scroll" });
  const clients = el("div", { class: "scroll" });
  const events = el("div", { class: "scroll" });
  const graphRows = behind("Table of the graph", () => (app.snapshot ? graphTable(app.snapshot) : []));
  const configPlace = el("div");

  const select = (id) => {
    selected = selected === id ? null : id;
    graph.select(selected);
    if (app.snapshot) showDetails(app.snapshot);
    // The graph has another width beside the details.
    if (app.snapshot) graph.update(app.snapshot);
    if (selected) graph.reveal(selected);
    if (selected) details.querySelector("button")?.focus({ preventScroll: innerWidth > 900 });
  };
  const close = () => {
    const id = selected;
    select(id);
    root.querySelector(`[data-id="${CSS.escape(id)}"]`)?.focus();
  };
  const graph = createGraph(picture, select);
  root.append(tiles.place, hint,
    el("div", { class: "columns" }, el("div", { class: "card grow" }, picture, graphRows), details),
    el("div", { class: "columns" },
      el("div", { class: "card wide" }, el("h2", {}, "Clients"), clients),
      el("div", { class: "card grow" }, el("h2", {}, "Warnings and errors"), events)),
    configPlace);
  const configView = createConfig(configPlace);
  details.addEventListener("keydown", (event) => event.key === "Escape" && close());

  const showDetails = (snapshot) => {
    const node = snapshot.nodes.find((one) => one.id === selected);
    const pipeline = snapshot.pipelines.find((one) => `pipeline:${one.id}` === selected);
    details.hidden = !node && !pipeline;
    if (node) renew(details, nodeDetails(node, configView.reveal, close));
    else if (pipeline) renew(details, pipelineDetails(pipeline, configView.reveal, close));
  };

  const showClients = (snapshot) => {
    const list = showsAll ? snapshot.clients : snapshot.clients.slice(0, FEW);
    const others = snapshot.clients.length - list.length;
    const all = () => {
      showsAll = true;
      showClients(app.snapshot);
    };
    renew(clients, list.length ? clientTable(list) : el("p", { class: "muted" }, "No client has sent anything."),
      others ? el("button", { type: "button", onclick: all }, `Show ${others} more`) : null,
      snapshot.clients_omitted ? el("p", { class: "muted" }, `${plural(snapshot.clients_omitted, "further client")} counted together.`) : null);
  };

  let hintOf = "";
  const showHint = (snapshot) => {
    const receivers = snapshot.nodes.filter((node) => node.kind === "receiver");
    const isEmpty = receivers.every((node) => sums(node).received + sums(node).refused === 0);
    hint.hidden = !isEmpty;
    const key = `${snapshot.phase} ${configOf} ${config.length}`;
    if (!isEmpty || key === hintOf) return;
    hintOf = key;
    const base = otlpAddress(snapshot, config);
    replace(hint, el("h2", {}, snapshot.phase === "starting" ? "The pipelines start" : "Nothing has arrived yet"),
      base ? firstSpan(base) : el("p", {}, "No receiver takes OTLP over HTTP. Add the receiver otlp with protocols.http to a pipeline to send a span by hand, or wait for the receivers of this configuration."));
  };

  let eventsOf = "";
  const showEvents = (snapshot) => {
    const key = JSON.stringify(snapshot.events);
    if (key === eventsOf) return;
    eventsOf = key;
    renew(events, snapshot.events.length ? eventList(snapshot.events) : el("p", { class: "muted" }, "None since the start."));
  };

  const loadConfig = async (snapshot) => {
    const key = `${snapshot.started} ${snapshot.generation}`;
    if (key === configOf) return;
    configOf = key;
    try {
      config = await (await ask("config")).text();
      configView.update(config);
    } catch (error) {
      configOf = "";
      configView.update(`# ${error.message}`);
    }
  };

  const update = (snapshot) => {
    tiles.update(snapshot);
    if (!isShown) return;
    loadConfig(snapshot);
    showHint(snapshot);
    graph.update(snapshot);
    graphRows.refresh();
    showDetails(snapshot);
    showClients(snapshot);
    showEvents(snapshot);
  };
  const again = () => {
    if (isShown && app.snapshot) graph.update(app.snapshot);
  };
  new ResizeObserver(again).observe(picture);

  return {
    show() {
      isShown = true;
      if (app.snapshot) update(app.snapshot);
    },
    hide() {
      isShown = false;
    },
    update,
    redraw: again,
    visible() {},
  };
};
