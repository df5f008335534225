// Places of the boxes and edges of the graph. Columns are steps on the way; each pipeline has a lane of its own.

/** Heights and distances, in pixels. */
const BOX = 66;
const EMPTY = 36;
const ROW = 100;
const GAP = 88;
const PAD = 14;
/** Room above a box for the name of its pipeline, and below it. */
const HEAD = 20;
const FOOT = 16;
/** Height of an edge that passes a column. */
const PASSAGE = 34;
/** Places to try for a label, as parts of the way. */
const PARTS = [0.58, 0.75, 0.45, 0.9, 0.3, 0.15];

/** Returns the edges to draw: an edge of a pipeline without processors passes a box that stands for the pipeline. */
const joinEdges = (snapshot, empty) => {
  const joined = new Map();
  const add = (from, to, edge) => {
    const id = JSON.stringify([from, to, edge.pipeline]);
    // Every exporter gets all items, so edges that become one tell the same.
    if (!(joined.get(id)?.items >= edge.items)) joined.set(id, { ...edge, id, from, to });
  };
  for (const edge of snapshot.edges) {
    const middle = `pipeline:${edge.pipeline}`;
    const stops = empty.has(edge.pipeline) ? [edge.from, middle, edge.to] : [edge.from, edge.to];
    for (let at = 1; at < stops.length; at += 1) add(stops[at - 1], stops[at], edge);
  }
  return [...joined.values()];
};

/** Sets the column of each box: one after the last box before it; exporters are in the last one. */
const setColumns = (boxes, edges) => {
  const find = (box) => {
    if (box.column === undefined) {
      // A circle would be an error of the configuration; it ends here in any case.
      box.column = 0;
      box.column = Math.max(-1, ...edges.filter((edge) => edge.to === box.id).map((edge) => find(boxes.get(edge.from)))) + 1;
    }
    return box.column;
  };
  const last = Math.max(1, ...[...boxes.values()].map(find));
  for (const box of boxes.values()) if (box.kind === "exporter") box.column = last;
};

/** Returns the middle of each lane: a lane is as high as the fullest of its columns. */
const lanes = (pipelines, boxes) => {
  const middles = new Map();
  let top = 0;
  for (const { id } of pipelines) {
    const filled = new Map();
    for (const { pipelines: own, column } of boxes) if (own.includes(id)) filled.set(column, (filled.get(column) ?? 0) + 1 / own.length);
    const height = Math.max(1, ...filled.values()) * ROW;
    middles.set(id, top + height / 2);
    top += height;
  }
  return middles;
};

/** Moves overlapping items of a column apart, in both directions alike. */
const separate = (items) => {
  items.sort((a, b) => a.y - b.y);
  for (let round = 0; round < 60; round += 1) {
    for (let at = 1; at < items.length; at += 1) {
      const overlap = items[at - 1].y + items[at - 1].h - items[at].y;
      if (overlap <= 0) continue;
      items[at - 1].y -= overlap / 2;
      items[at].y += overlap / 2;
    }
  }
};

/** Returns the places of boxes, groups (pipelines) and edges for a width in pixels. */
export const layout = (snapshot, width) => {
  const { nodes, pipelines } = snapshot;
  const filled = new Set(nodes.filter((node) => node.kind === "processor").flatMap((node) => node.pipelines));
  const empty = new Set(pipelines.map((one) => one.id).filter((id) => !filled.has(id)));
  const boxes = new Map(nodes.map((node) => [node.id, { id: node.id, kind: node.kind, pipelines: node.pipelines, h: BOX }]));
  for (const id of empty) boxes.set(`pipeline:${id}`, { id: `pipeline:${id}`, kind: "empty", pipelines: [id], h: EMPTY });
  const edges = joinEdges(snapshot, empty).filter((edge) => boxes.has(edge.from) && boxes.has(edge.to));
  setColumns(boxes, edges);

  // An edge across columns gets a place in each of them, so that it does not cross boxes. Edges from one box to
  // several exporters share their way.
  const passages = new Map();
  for (const edge of edges) {
    edge.route = [];
    for (let column = boxes.get(edge.from).column + 1; column < boxes.get(edge.to).column; column += 1) {
      const key = JSON.stringify([edge.from, edge.pipeline, column]);
      if (!passages.has(key)) passages.set(key, { column, pipelines: [edge.pipeline], h: PASSAGE });
      edge.route.push(passages.get(key));
    }
  }

  const count = Math.max(1, ...[...boxes.values()].map((box) => box.column + 1));
  const room = width - 2 * PAD;
  const w = Math.min(Math.max((room - (count - 1) * GAP) / count, 150), 210);
  const gap = count > 1 ? Math.min(Math.max((room - count * w) / (count - 1), GAP), 240) : 0;
  const x = (column) => PAD + column * (w + gap);
  const all = [...boxes.values(), ...passages.values()];
  const middles = lanes(pipelines, boxes.values());
  for (const item of all) {
    if (item.id) item.h += HEAD + FOOT;
    const own = item.pipelines.map((id) => middles.get(id) ?? 0);
    item.y = own.reduce((a, b) => a + b, 0) / Math.max(own.length, 1) - item.h / 2;
  }
  for (let column = 0; column < count; column += 1) separate(all.filter((item) => item.column === column));
  const top = Math.min(0, ...all.map((item) => item.y));
  for (const item of all) {
    item.y -= top;
    Object.assign(item, { x: x(item.column), w });
    if (item.id) Object.assign(item, { y: item.y + HEAD, h: item.h - HEAD - FOOT });
  }
  placeEdges(edges, boxes);
  return {
    width: x(count - 1) + w + PAD,
    height: Math.max(BOX, ...all.map((item) => item.y + item.h)) + FOOT,
    boxes,
    groups: pipelines.flatMap((one) => frame(one.id, [...boxes.values()])),
    edges,
    joined: (next) => joinEdges(next, empty),
  };
};

/** Returns the frame around the processors of a pipeline. */
const frame = (id, boxes) => {
  const own = boxes.filter((box) => (box.kind === "processor" || box.kind === "empty") && box.pipelines.includes(id));
  if (!own.length) return [];
  const [margin, head] = own[0].kind === "empty" ? [0, 0] : [8, HEAD];
  const [x, y] = [Math.min(...own.map((box) => box.x)) - margin, Math.min(...own.map((box) => box.y)) - head];
  const w = Math.max(...own.map((box) => box.x + box.w)) + margin - x;
  return [{ id: `pipeline:${id}`, title: id, isEmpty: !head, x, y, w, h: Math.max(...own.map((box) => box.y + box.h)) + margin - y }];
};

/** Spreads the ends of edges over the sides of their boxes, and puts labels where they do not cover each other. */
const placeEdges = (edges, boxes) => {
  const middle = ({ y, h }) => y + h / 2;
  // The next item on the way, seen from either end.
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
