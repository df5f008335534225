// Places of boxes and edges. Columns are steps on the way; each pipeline has a lane.

/** Heights and distances, in pixels: HEAD is above a box, and FOOT below it. */
const [BOX, EMPTY, PASSAGE, ROW, GAP, PAD, HEAD, FOOT] = [66, 36, 34, 100, 88, 14, 20, 16];
const PARTS = [0.58, 0.75, 0.45, 0.9, 0.3, 0.15];

const most = (items, value) => Math.max(...items.map(value));
const least = (items, value) => Math.min(...items.map(value));
const middle = ({ y, h }) => y + h / 2;

/** In a pipeline without processors, edges pass a box that stands for it. */
const joinEdges = (snapshot, empty) => {
	const joined = new Map();
	for (const edge of snapshot.edges) {
		const stops = empty.has(edge.pipeline) ? [edge.from, `pipeline:${edge.pipeline}`, edge.to] : [edge.from, edge.to];
		for (let at = 1; at < stops.length; at += 1) {
			const [from, to] = [stops[at - 1], stops[at]];
			const id = JSON.stringify([from, to, edge.pipeline]);
			// Every exporter gets all items, so edges that become one tell the same.
			if (!(joined.get(id)?.items >= edge.items)) joined.set(id, { ...edge, id, from, to });
		}
	}
	return [...joined.values()];
};

/** Sets columns: each box is after those before it, and exporters are in the last one. */
const setColumns = (boxes, edges) => {
	const find = (box) => {
		if (box.column === undefined) {
			// Ends a circle.
			box.column = 0;
			box.column = Math.max(-1, ...edges.filter((edge) => edge.to === box.id).map((edge) => find(boxes.get(edge.from)))) + 1;
		}
		return box.column;
	};
	const last = Math.max(1, ...[...boxes.values()].map(find));
	for (const box of boxes.values()) if (box.kind === "exporter") box.column = last;
};

/** Returns the middles of lanes, which are as high as their fullest column. */
const lanes = (pipelines, boxes) => {
	const middles = new Map();
	let top = 0;
	for (const { id } of pipelines) {
		const filled = {};
		for (const { pipelines: own, column } of boxes) if (own.includes(id)) filled[column] = (filled[column] ?? 0) + 1 / own.length;
		const height = Math.max(1, ...Object.values(filled)) * ROW;
		middles.set(id, top + height / 2);
		top += height;
	}
	return middles;
};

/** Moves overlapping items of a column apart. */
const separate = (items) => {
	items.sort((a, b) => a.y - b.y);
	for (let round = 0; round < 60; round += 1) {
		for (let at = 1; at < items.length; at += 1) {
			const overlap = Math.max(items[at - 1].y + items[at - 1].h - items[at].y, 0);
			items[at - 1].y -= overlap / 2;
			items[at].y += overlap / 2;
		}
	}
};

export const layout = (snapshot, width) => {
	const { nodes, pipelines } = snapshot;
	const filled = new Set(nodes.flatMap((node) => (node.kind === "processor" ? node.pipelines : [])));
	const empty = new Set(pipelines.map((one) => one.id).filter((id) => !filled.has(id)));
	const list = nodes.map(({ id, kind, pipelines: own }) => ({ id, kind, pipelines: own, h: BOX }));
	for (const id of empty) list.push({ id: `pipeline:${id}`, kind: "empty", pipelines: [id], h: EMPTY });
	const boxes = new Map(list.map((box) => [box.id, box]));
	const edges = joinEdges(snapshot, empty).filter((edge) => boxes.has(edge.from) && boxes.has(edge.to));
	setColumns(boxes, edges);

	// An edge across columns passes between their boxes. Edges from one box to several exporters share passages.
	const passages = new Map();
	for (const edge of edges) {
		edge.route = [];
		for (let column = boxes.get(edge.from).column + 1; column < boxes.get(edge.to).column; column += 1) {
			const key = JSON.stringify([edge.from, edge.pipeline, column]);
			if (!passages.has(key)) passages.set(key, { column, pipelines: [edge.pipeline], h: PASSAGE });
			edge.route.push(passages.get(key));
		}
	}

	const columns = 1 + Math.max(0, ...list.map((box) => box.column));
	const room = width - 2 * PAD;
	const w = Math.min(Math.max((room - (columns - 1) * GAP) / columns, 150), 210);
	const gap = Math.min(Math.max((room - columns * w) / Math.max(columns - 1, 1), GAP), 240);
	const middles = lanes(pipelines, list);
	const all = [...list, ...passages.values()];
	for (const item of all) {
		item.x = PAD + item.column * (w + gap);
		item.w = w;
		item.h += item.id ? HEAD + FOOT : 0;
		item.y = item.pipelines.reduce((sum, id) => sum + middles.get(id) / item.pipelines.length, 0) - item.h / 2;
	}
	for (let column = 0; column < columns; column += 1) separate(all.filter((item) => item.column === column));
	const top = Math.min(0, ...all.map((item) => item.y));
	for (const item of all) {
		item.y += (item.id ? HEAD : 0) - top;
		item.h -= item.id ? HEAD + FOOT : 0;
	}
	placeEdges(edges, boxes);
	return {
		width: 2 * PAD + columns * w + (columns - 1) * gap,
		height: Math.max(BOX, ...all.map((item) => item.y + item.h)) + FOOT,
		boxes, edges,
		groups: pipelines.flatMap((one) => frame(one.id, list)),
		joined: (next) => joinEdges(next, empty),
	};
};

const frame = (id, boxes) => {
	const own = boxes.filter((box) => (box.kind === "processor" || box.kind === "empty") && box.pipelines.includes(id));
	if (!own.length) return [];
	const isEmpty = own[0].kind === "empty";
	const margin = isEmpty ? 0 : 8;
	const [x, y] = [least(own, (box) => box.x) - margin, least(own, (box) => box.y) - (isEmpty ? 0 : HEAD)];
	const [right, bottom] = [most(own, (box) => box.x + box.w), most(own, (box) => box.y + box.h)];
	return [{ id: `pipeline:${id}`, title: id, isEmpty, x, y, w: right + margin - x, h: bottom + margin - y }];
};

/** Spreads the ends of edges over the sides of boxes, and labels over free places. */
const placeEdges = (edges, boxes) => {
	const next = (edge, side) => (side === "from" ? edge.route[0] ?? boxes.get(edge.to) : edge.route.at(-1) ?? boxes.get(edge.from));
	const port = (edge, side) => {
		const own = [...new Set(edges.filter((one) => one[side] === edge[side]).map((one) => next(one, side)))].sort((a, b) => middle(a) - middle(b));
		const { y, h } = boxes.get(edge[side]);
		return [y + (h * (own.indexOf(next(edge, side)) + 1)) / (own.length + 1), own.length];
	};
	for (const edge of edges) {
		const [from, to] = [boxes.get(edge.from), boxes.get(edge.to)];
		const [[start, outs], [end, ins]] = [port(edge, "from"), port(edge, "to")];
		edge.points = [[from.x + from.w, start], ...edge.route.flatMap((one) => [[one.x, middle(one)], [one.x + one.w, middle(one)]]), [to.x, end]];
		// Edges that come together are apart at their beginning, and others at their end.
		const isJoin = ins > outs && !edge.route.length;
		const [[x0, y0], [x1, y1]] = edge.points.slice(-2);
		edge.slope = Math.abs(y1 - y0);
		edge.spots = PARTS.map((part) => [(x0 + x1) / 2, y0 + (y1 - y0) * (isJoin ? 1 - part : part)]);
	}
	// A flat edge has its label in one place only, so it comes first.
	const labels = [];
	for (const edge of [...edges].sort((a, b) => a.slope - b.slope)) {
		const isFree = ([x, y]) => labels.every(([left, top]) => Math.abs(left - x) > 66 || Math.abs(top - y) > 27);
		edge.label = edge.spots.find(isFree) ?? edge.spots[0];
		labels.push(edge.label);
	}
};
