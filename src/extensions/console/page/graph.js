// The pipelines as a picture: receivers on the left, exporters on the right, connectors between pipelines.

import { svg, setText } from "./dom.js";
import { bytes, count, plural, rate, visible } from "./format.js";
import { nodeState, sums } from "./box.js";
import { layout } from "./layout.js";

/** Milliseconds for which an edge stays marked after something passed: one span passes in an instant. */
const RECENT = 4000;
/** Smallest scale at which names are readable. */
const SMALLEST = 0.78;
/** Width of a character of the names, in pixels. */
const CHARACTER = 7.3;

const curve = (points) => {
  const [first, ...rest] = points;
  let path = `M${first[0]},${first[1]}`;
  let [x, y] = first;
  for (const [nextX, nextY] of rest) {
    const middle = (x + nextX) / 2;
    path += y === nextY ? `L${nextX},${nextY}` : `C${middle},${y} ${middle},${nextY} ${nextX},${nextY}`;
    [x, y] = [nextX, nextY];
  }
  return path;
};

const fitted = (text, width) => visible(text, Math.max(Math.floor(width / CHARACTER), 4));

/** Creates the picture. `onSelect` gets the id of a box or of a pipeline. */
export const createGraph = (place, onSelect) => {
  const root = svg("svg", { class: "graph", role: "group", "aria-label": "Graph of the pipelines" });
  place.append(root);
  let drawn = { key: "", boxes: new Map(), edges: new Map(), groups: new Map() };
  let selected = null;

  const pressable = (id, props) => ({
    ...props,
    tabindex: 0,
    role: "button",
    onclick: () => onSelect(id),
    onkeydown: (event) => {
      if (event.key !== "Enter" && event.key !== " ") return;
      event.preventDefault();
      onSelect(id);
    },
  });

  const drawBox = (node, { x, y, w, h }) => {
    const parts = {
      state: svg("text", { class: "state", x: w - 10, y: 17, "text-anchor": "end" }),
      flow: svg("text", { class: "figures", x: 12, y: h - 13 }),
      fill: svg("rect", { class: "fill", x: 0, y: h - 4, width: 0, height: 4 }),
      title: svg("title"),
    };
    const mark = svg("path", { class: "mark", d: "M-9,-9 L9,-9 L0,7 Z" });
    mark.setAttribute("transform", `translate(${w - 2},2) rotate(180)`);
    parts.box = svg("g", pressable(node.id, { class: `box ${node.kind}`, transform: `translate(${x},${y})`, "data-id": node.id }),
      parts.title,
      svg("rect", { class: "frame", width: w, height: h, rx: node.kind === "processor" ? 3 : 9 }),
      svg("text", { class: "kind", x: 12, y: 17 }, node.kind),
      svg("text", { class: "name", x: 12, y: 36 }, fitted(node.component, w - 22)),
      parts.flow, parts.state, parts.fill, mark, svg("text", { class: "mark", x: w - 2, y: 7, "text-anchor": "middle" }, "!"));
    return parts;
  };

  const drawEdge = (edge) => {
    const path = curve(edge.points);
    const parts = {
      group: svg("g", { class: "edge", "data-edge": `${edge.from} -> ${edge.to}` }),
      line: svg("path", { class: "line", d: path }),
      first: svg("text", { class: "figures", x: edge.label[0], y: edge.label[1] - 4, "text-anchor": "middle" }),
      second: svg("text", { class: "figures", x: edge.label[0], y: edge.label[1] + 11, "text-anchor": "middle" }),
      title: svg("title"),
      items: null,
      last: -RECENT,
    };
    parts.group.append(parts.title, svg("path", { class: "base", d: path }), parts.line, parts.first, parts.second);
    return parts;
  };

  const drawGroup = (group) => {
    const figures = svg("text", { class: "figures", x: group.w - 8, y: 13, "text-anchor": "end" });
    const title = svg("title");
    const box = svg("g", pressable(group.id, { class: "group", transform: `translate(${group.x},${group.y})` }),
      title,
      svg("rect", { width: group.w, height: group.h, rx: 6 }),
      svg("text", { class: "kind", x: 8, y: 13 }, fitted(group.pipeline.id, group.w - 16)));
    if (group.isEmpty) box.append(svg("text", { class: "kind", x: 8, y: 28 }, "no processors"));
    return { box, figures, title };
  };

  const draw = (snapshot, width) => {
    const plan = layout(snapshot, width);
    root.replaceChildren();
    root.setAttribute("viewBox", `0 0 ${plan.width} ${plan.height}`);
    // A graph that is a little too wide is drawn smaller; a much wider one is scrolled.
    const scale = plan.width > width && plan.width * SMALLEST <= width ? width / plan.width : 1;
    root.setAttribute("width", plan.width * scale);
    root.setAttribute("height", plan.height * scale);
    const keep = drawn.edges;
    drawn = { key: "", boxes: new Map(), edges: new Map(), groups: new Map() };
    for (const group of plan.groups) {
      const parts = drawGroup(group);
      drawn.groups.set(group.id, parts);
      root.append(parts.box);
    }
    for (const edge of plan.edges) {
      const parts = drawEdge(edge);
      const before = keep.get(edge.id);
      if (before) [parts.items, parts.last] = [before.items, before.last];
      drawn.edges.set(edge.id, parts);
      root.append(parts.group);
    }
    for (const node of snapshot.nodes) {
      const spot = plan.boxes.get(node.id);
      const parts = drawBox(node, spot);
      parts.width = spot.w;
      drawn.boxes.set(node.id, parts);
      root.append(parts.box);
    }
    return plan;
  };

  const updateBox = (node) => {
    const parts = drawn.boxes.get(node.id);
    const state = nodeState(node);
    const total = sums(node);
    const flows = node.items_per_second > 0;
    const items = node.kind === "exporter" ? total.delivered : total.received;
    setText(parts.flow, flows ? `${rate(node.items_per_second)}/s  ${bytes(node.bytes_per_second)}/s` : plural(items, "item"));
    setText(parts.state, state.text);
    setText(parts.title, `${node.id}: ${state.text || "no problems"}`);
    parts.box.dataset.level = state.level;
    parts.box.setAttribute("aria-label", `${node.kind} ${visible(node.component)}, ${state.text || "no problems"}`);
    parts.box.classList.toggle("selected", node.id === selected);
    parts.fill.setAttribute("width", parts.width * Math.min(state.fill, 1));
  };

  const updateEdge = (edge, now) => {
    const parts = drawn.edges.get(edge.id);
    if (parts.items !== null && edge.items > parts.items) parts.last = now;
    parts.items = edge.items;
    const flows = edge.items_per_second > 0;
    const isRecent = flows || now - parts.last < RECENT;
    parts.group.classList.toggle("flows", isRecent);
    setText(parts.first, flows ? `${rate(edge.items_per_second)}/s` : count(edge.items));
    const second = edge.bytes_per_second === null ? "" : `${bytes(edge.bytes_per_second)}/s`;
    setText(parts.second, flows ? second : edge.items === 1 ? "item" : "items");
    setText(parts.title, `${edge.pipeline}: ${plural(edge.items, "item")} from ${edge.from} to ${edge.to}`);
    // A tenfold rate is one pixel wider.
    parts.line.setAttribute("stroke-width", 1.5 + (flows ? Math.min(Math.log10(1 + edge.items_per_second), 6) : 0));
  };

  return {
    reveal: (id) => drawn.boxes.get(id)?.box.scrollIntoView({ block: "nearest", inline: "center" }),
    /** Shows a snapshot; draws anew only if the graph or the width changed. */
    update(snapshot) {
      const width = place.clientWidth;
      if (!width) return;
      const parts = [width, snapshot.nodes.map((node) => node.id), snapshot.pipelines.map((one) => one.id), snapshot.edges.map((edge) => [edge.from, edge.to, edge.pipeline])];
      const key = JSON.stringify(parts);
      const hadFocus = root.contains(document.activeElement) ? document.activeElement.dataset.id : null;
      if (key !== drawn.key) {
        const plan = draw(snapshot, width);
        drawn.key = key;
        drawn.joined = plan.joined;
        if (hadFocus) drawn.boxes.get(hadFocus)?.box.focus();
      }
      snapshot.nodes.forEach(updateBox);
      for (const edge of drawn.joined(snapshot)) updateEdge(edge, performance.now());
      for (const pipeline of snapshot.pipelines) {
        const group = drawn.groups.get(`pipeline:${pipeline.id}`);
        if (!group) continue;
        setText(group.title, `Pipeline ${pipeline.id}: ${plural(pipeline.forwarded, "item")} forwarded`);
        group.box.setAttribute("aria-label", `Pipeline ${pipeline.id}`);
        group.box.classList.toggle("selected", selected === `pipeline:${pipeline.id}`);
      }
    },
    select(id) {
      selected = id;
      for (const [box, { box: element }] of drawn.boxes) element.classList.toggle("selected", box === id);
      for (const [group, { box: element }] of drawn.groups) element.classList.toggle("selected", group === id);
    },
  };
};
