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

/** Returns the edges to draw: an edge of a pipeline without processors passes a box that stands for the pipeline. */
const joinEdges = (snapshot, empty) => {
  const joined = new Map();
  const add = (from, to, edge) => {
    const id = JSON.stringify([from, to, edge.pipeline]);
    const known = joined.get(id);
    if (!known) joined.set(id, { ...edge, id, from, to, ends: 1 });
    // Every exporter gets all items, so these edges tell the same.
    else if (known.items < edge.items) Object.assign(known, { items: edge.items, items_per_second: edge.items_per_second, bytes_per_second: edge.bytes_per_second });
  };
  for (const edge of snapshot.edges) {
    if (!empty.has(edge.pipeline)) {
      add(edge.from, edge.to, edge);
      continue;
    }
    const middle = `pipeline:${edge.pipeline}`;
    add(edge.from, middle, edge);
    add(middle, edge.to, edge);
  }
  return [...joined.values()];
};

/** Returns the column of each box: one after the last box before it; exporters are in the last one. */
const columns = (ids, edges, exporters) => {
  const before = new Map(ids.map((id) => [id, []]));
  for (const edge of edges) before.get(edge.to)?.push(edge.from);
  const found = new Map();
  const column = (id) => {
    if (found.has(id)) return found.get(id);
    // A circle would be an error of the configuration; it ends here in any case.
    found.set(id, 0);
    const own = Math.max(-1, ...(before.get(id) ?? []).map(column)) + 1;
    found.set(id, own);
    return own;
  };
  ids.forEach(column);
  const last = Math.max(0, ...found.values());
  for (const id of exporters) found.set(id, Math.max(last, 1));
  return found;
};

/** Moves overlapping items of a column apart, with each group of touching items centered on where they want to be. */
const separate = (items) => {
  items.sort((a, b) => a.want - b.want);
  const groups = [];
  for (const item of items) {
    let group = { items: [item], height: item.h, at: item.want - item.h / 2 };
    for (let last = groups.at(-1); last && last.at + last.height > group.at; last = groups.at(-1)) {
      groups.pop();
      const all = [...last.items, ...group.items];
      let offset = 0;
      let sum = 0;
      for (const one of all) {
        sum += one.want - one.h / 2 - offset;
        offset += one.h;
      }
      group = { items: all, height: offset, at: sum / all.length };
    }
    groups.push(group);
  }
  for (const { items: all, at } of groups) {
    let top = at;
    for (const item of all) {
      item.y = top;
      top += item.h;
    }
  }
};

const average = (numbers) => numbers.reduce((a, b) => a + b, 0) / Math.max(numbers.length, 1);

/** Returns the middle of each lane: a lane is as high as the fullest of its columns. */
const lanes = (pipelines, boxes) => {
  const middles = new Map();
  let top = 0;
  for (const pipeline of pipelines) {
    const filled = new Map();
    for (const box of boxes) {
      if (!box.pipelines.includes(pipeline.id)) continue;
      filled.set(box.column, (filled.get(box.column) ?? 0) + 1 / box.pipelines.length);
    }
    const height = Math.max(1, ...filled.values()) * ROW;
    middles.set(pipeline.id, top + height / 2);
    top += height;
  }
  return middles;
};

/** Returns the places of boxes, groups (pipelines) and edges for a width in pixels. */
export const layout = (snapshot, width) => {
  const { nodes, pipelines } = snapshot;
  const withProcessors = new Set(nodes.filter((node) => node.kind === "processor").flatMap((node) => node.pipelines));
  const empty = new Set(pipelines.map((one) => one.id).filter((id) => !withProcessors.has(id)));
  const edges = joinEdges(snapshot, empty);
  const boxes = nodes.map((node) => ({ id: node.id, pipelines: node.pipelines, isProcessor: node.kind === "processor", h: BOX }));
  for (const id of empty) boxes.push({ id: `pipeline:${id}`, pipelines: [id], isEmpty: true, h: EMPTY });
  const exporters = nodes.filter((node) => node.kind === "exporter").map((node) => node.id);
  const column = columns(boxes.map((box) => box.id), edges, exporters);
  for (const box of boxes) box.column = column.get(box.id);

  // An edge across columns gets a place in each of them, so that it does not cross boxes. Edges from one box to
  // several exporters share their way.
  const middles = lanes(pipelines, boxes);
  const passages = new Map();
  const passage = (edge, at) => {
    const key = JSON.stringify([edge.from, edge.pipeline, at]);
    if (!passages.has(key)) passages.set(key, { column: at, pipelines: [edge.pipeline], h: PASSAGE });
    return passages.get(key);
  };
  const routes = edges.map((edge) => {
    const route = [];
    for (let at = column.get(edge.from) + 1; at < column.get(edge.to); at += 1) route.push(passage(edge, at));
    return route;
  });

  const count = Math.max(1, ...boxes.map((box) => box.column + 1));
  const room = width - 2 * PAD - (count - 1) * GAP;
  const w = Math.min(Math.max(room / count, 150), 210);
  const gap = count > 1 ? Math.min(Math.max((width - 2 * PAD - count * w) / (count - 1), GAP), 240) : 0;
  const x = (at) => PAD + at * (w + gap);

  const all = [...boxes, ...passages.values()];
  for (const item of all) {
    item.want = average(item.pipelines.map((id) => middles.get(id) ?? 0));
    item.h += item.id ? HEAD + FOOT : 0;
  }
  for (let at = 0; at < count; at += 1) separate(all.filter((item) => item.column === at));
  const top = Math.min(...all.map((item) => item.y));
  for (const item of all) {
    item.h -= item.id ? HEAD + FOOT : 0;
    item.y += (item.id ? HEAD : 0) - top;
    item.x = x(item.column);
    item.w = w;
  }
  const byId = new Map(boxes.map((box) => [box.id, box]));
  return {
    width: Math.max(x(count - 1) + w + PAD, 1),
    height: Math.max(...all.map((item) => item.y + item.h), BOX) + FOOT,
    boxes: byId,
    groups: frames(pipelines, boxes),
    edges: ports(edges, routes, byId),
    joined: (next) => joinEdges(next, empty),
  };
};

/** Returns the frames around the processors of each pipeline. */
const frames = (pipelines, boxes) =>
  pipelines.flatMap((pipeline) => {
    const own = boxes.filter((box) => (box.isProcessor || box.isEmpty) && box.pipelines.includes(pipeline.id));
    if (!own.length) return [];
    const isEmpty = own[0].isEmpty ?? false;
    const margin = isEmpty ? 0 : 8;
    const x = Math.min(...own.map((box) => box.x)) - margin;
    const y = Math.min(...own.map((box) => box.y)) - (isEmpty ? 0 : HEAD);
    const right = Math.max(...own.map((box) => box.x + box.w)) + margin;
    const bottom = Math.max(...own.map((box) => box.y + box.h)) + margin;
    return [{ id: `pipeline:${pipeline.id}`, pipeline, isEmpty, x, y, w: right - x, h: bottom - y }];
  });

/** Spreads the ends of edges over the sides of their boxes, and puts labels where they do not cover each other. */
const ports = (edges, routes, byId) => {
  const middle = ({ y, h }) => y + h / 2;
  // `beside` is the item at the other end of the first or the last part of an edge.
  const spread = (side, beside) => {
    const sides = new Map();
    edges.forEach((edge, at) => {
      const own = sides.get(edge[side]) ?? new Set();
      sides.set(edge[side], own.add(beside(edge, at)));
    });
    return (edge, at) => {
      const box = byId.get(edge[side]);
      const own = [...sides.get(edge[side])].sort((a, b) => middle(a) - middle(b));
      return [box.y + (box.h * (own.indexOf(beside(edge, at)) + 1)) / (own.length + 1), own.length];
    };
  };
  const start = spread("from", (edge, at) => routes[at][0] ?? byId.get(edge.to));
  const end = spread("to", (edge, at) => routes[at].at(-1) ?? byId.get(edge.from));
  const labels = [];
  return edges.map((edge, index) => {
    const [from, to] = [byId.get(edge.from), byId.get(edge.to)];
    const [startY, outs] = start(edge, index);
    const [endY, ins] = end(edge, index);
    const points = [[from.x + from.w, startY]];
    for (const { x, y, w, h } of routes[index]) points.push([x, y + h / 2], [x + w, y + h / 2]);
    points.push([to.x, endY]);
    // Edges that come together are apart at their beginning, and others at their end.
    const isJoin = ins > outs && routes[index].length === 0;
    const [[x0, y0], [x1, y1]] = isJoin ? points.slice(0, 2) : points.slice(-2);
    const spots = PARTS.map((part) => [x0 + (x1 - x0) * 0.5, y0 + (y1 - y0) * smooth(isJoin ? 1 - part : part)]);
    const isFree = ([x, y]) => labels.every(([left, top]) => Math.abs(left - x) > 66 || Math.abs(top - y) > 27);
    const label = spots.find(isFree) ?? spots[0];
    labels.push(label);
    return { ...edge, points, label };
  });
};

/** Places to try for a label, as parts of the way. */
const PARTS = [0.58, 0.75, 0.45, 0.9, 0.3, 0.15];

/** Height of a curve at a part of its way. */
const smooth = (part) => part * part * (3 - 2 * part);
