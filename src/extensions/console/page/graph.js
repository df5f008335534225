// The pipelines as a picture: receivers on the left, exporters on the right, connectors between pipelines.

import { nodeState, sum } from "./box.js";
import { setText, svg } from "./dom.js";
import { bytes, count, plural, rate, visible } from "./format.js";
import { layout } from "./layout.js";

/** Milliseconds for which an edge stays marked: a span passes in an instant. */
const RECENT = 4000;
const CHARACTER = 7.3;
const SMALLEST = 0.78;

const curve = ([[x, y], ...rest]) => {
	let path = `M${x},${y}`;
	for (const [nextX, nextY] of rest) {
		const middle = (x + nextX) / 2;
		path += `C${middle},${y} ${middle},${nextY} ${nextX},${nextY}`;
		[x, y] = [nextX, nextY];
	}
	return path;
};

const text = (kind, x, y, anchor = "start", content = "") => svg(`text.${kind}`, { x, y, "text-anchor": anchor }, content);
const fitted = (name, width) => visible(name, Math.max(Math.floor(width / CHARACTER), 4));

export const createGraph = (place, onSelect) => {
	const root = svg("svg.graph", { role: "group", "aria-label": "Graph of the pipelines" });
	place.append(root);
	let parts = new Map();
	let key = "";
	let joined = null;
	let selected = null;
	/** Items of each edge, and when they grew. */
	const passed = new Map();

	const choose = (event) => {
		const id = event.target.closest("[data-id]")?.dataset.id;
		if (!id || (event.type === "keydown" && event.key !== "Enter" && event.key !== " ")) return;
		event.preventDefault();
		onSelect(id);
	};
	root.addEventListener("click", choose);
	root.addEventListener("keydown", choose);

	const add = (id, group, own) => {
		parts.set(id, { group, ...own });
		group.append(...Object.values(own));
		root.append(group);
	};
	const pressable = (id, kind, { x, y }, ...children) =>
		svg(`g.${kind}`, { transform: `translate(${x},${y})`, "data-id": id, tabindex: 0, role: "button" }, children);

	const drawGroup = (one) =>
		add(one.id, pressable(one.id, "group", one, svg("rect.frame", { width: one.w, height: one.h, rx: 6 }),
			text("kind", 8, 14, "start", fitted(one.title, one.w - 16)), one.isEmpty ? text("kind", 8, 28, "start", "no processors") : null), { title: svg("title") });

	const drawEdge = (edge) => {
		const [x, y] = edge.label;
		const d = curve(edge.points);
		add(edge.id, svg("g.edge", { "data-from": edge.from, "data-to": edge.to }, svg("path.base", { d })),
			{ line: svg("path.line", { d }), first: text("figures", x, y - 4, "middle"), second: text("figures", x, y + 11, "middle"), title: svg("title") });
	};

	const drawBox = (node, box) => {
		const { w, h } = box;
		const group = pressable(node.id, "box", box, svg("rect.frame", { width: w, height: h, rx: node.kind === "processor" ? 3 : 9 }),
			text("kind", 12, 17, "start", node.kind), text("name", 12, 36, "start", fitted(node.component, w - 22)),
			svg("path.mark", { d: `M${w - 11},9 L${w + 7},9 L${w - 2},-7 Z` }), text("mark", w - 2, 7, "middle", "!"));
		add(node.id, group, { state: text("state", w - 12, 17, "end"), flow: text("figures", 12, h - 13), fill: svg("rect.fill", { y: h - 4, height: 4 }), title: svg("title") });
		parts.get(node.id).width = w;
	};

	const draw = (snapshot, width) => {
		const plan = layout(snapshot, width);
		const scale = plan.width > width && plan.width * SMALLEST <= width ? width / plan.width : 1;
		const size = { viewBox: `0 0 ${plan.width} ${plan.height}`, width: plan.width * scale, height: plan.height * scale };
		for (const [name, value] of Object.entries(size)) root.setAttribute(name, value);
		root.replaceChildren();
		parts = new Map();
		plan.groups.forEach(drawGroup);
		plan.edges.forEach(drawEdge);
		for (const node of snapshot.nodes) drawBox(node, plan.boxes.get(node.id));
		joined = plan.joined;
	};

	const name = (id, about) => {
		const { group, title } = parts.get(id);
		setText(title, about);
		group.setAttribute("aria-label", title.textContent);
		group.classList.toggle("selected", id === selected);
	};

	const updateBox = (node) => {
		const { group, flow, state, fill, width } = parts.get(node.id);
		const now = nodeState(node);
		const items = sum(node, node.kind === "exporter" ? "delivered" : "received");
		setText(flow, node.items_per_second > 0 ? `${rate(node.items_per_second)}/s  ${bytes(node.bytes_per_second)}/s` : plural(items, "item"));
		setText(state, now.text);
		name(node.id, `${node.kind} ${node.component}: ${now.text || "no problems"}`);
		group.dataset.level = now.level;
		fill.setAttribute("width", width * now.fill);
	};

	const updateEdge = (edge) => {
		const { group, line, first, second, title } = parts.get(edge.id) ?? {};
		if (!group) return;
		const now = performance.now();
		const before = passed.get(edge.id) ?? { items: edge.items, grew: -RECENT };
		const grew = edge.items > before.items ? now : before.grew;
		passed.set(edge.id, { items: edge.items, grew });
		const flows = edge.items_per_second > 0;
		group.classList.toggle("flows", flows || now - grew < RECENT);
		setText(first, flows ? `${rate(edge.items_per_second)}/s` : count(edge.items));
		const volume = edge.bytes_per_second === null ? "" : `${bytes(edge.bytes_per_second)}/s`;
		setText(second, flows ? volume : edge.items === 1 ? "item" : "items");
		setText(title, `${edge.pipeline}: ${plural(edge.items, "item")} from ${edge.from} to ${edge.to}`);
		// A tenfold rate is one pixel wider.
		line.setAttribute("stroke-width", 1.5 + (flows ? Math.min(Math.log10(1 + edge.items_per_second), 6) : 0));
	};

	return {
		update(snapshot) {
			const width = place.clientWidth;
			if (!width) return;
			const next = JSON.stringify([width, snapshot.generation, snapshot.started, snapshot.nodes.length, snapshot.edges.length]);
			if (next !== key) draw(snapshot, width);
			key = next;
			snapshot.nodes.forEach(updateBox);
			joined(snapshot).forEach(updateEdge);
			for (const { id, forwarded } of snapshot.pipelines) if (parts.has(`pipeline:${id}`)) name(`pipeline:${id}`, `Pipeline ${id}: ${plural(forwarded, "item")} forwarded`);
		},
		select: (id) => (selected = id),
		element: (id) => parts.get(id)?.group,
	};
};
