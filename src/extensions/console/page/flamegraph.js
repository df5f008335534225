// A flame graph on a canvas: layout, drawing, pointer and keyboard. Queries are elsewhere.

import { changeColor, packageColor } from "./colors.js";
import { behind, el, onWidth, sized, themeColor } from "./dom.js";
import { visible } from "./format.js";
import { shortName } from "./frames.js";

const ROW = 19;
/** Pixels. Narrower frames are drawn together. */
const LEAST = 0.6;
/** Rows of callers above the zoom. */
const CALLERS = 5;
/** Pixels. Browsers refuse higher canvases; zooming reaches deeper rows. */
const HIGHEST = 6000;

/** `on` has `zoom(frame)`, `elided(frame)`, `pick(name)`, `focus(frame)`. */
export const createFlamegraph = (name, on, isInverted = false) => {
	const canvas = el("canvas.flame", { tabindex: 0, role: "application", "aria-label": name });
	const place = el("div", canvas);
	const rowsBehind = behind(`Table: ${name}`, () => (model ? model.table(zoomed) : []));
	let model = null;
	let [zoomed, focused, hovered, height, byChange] = [0, 0, -1, ROW, false];
	let matches = null;
	/** Boxes by row. */
	let rows = [];

	const firstRow = () => Math.max(0, model.depth[zoomed] - CALLERS);
	const rowOf = (at) => model.depth[at] - firstRow();

	const layout = (width) => {
		rows = [];
		const { frames, end, picture } = model;
		const add = (box) => (rows[box.row] ??= []).push(box);
		for (const at of model.callers(zoomed)) if (rowOf(at) >= 0) add({ at, x: 0, w: width, row: rowOf(at) });
		const left = new Float64Array(frames.length);
		const whole = frames[zoomed].weight - (zoomed === picture.zoomed ? picture.skipped : 0);
		for (let at = zoomed + 1; at < end[zoomed];) {
			const { parent, weight } = frames[at];
			const w = whole > 0 ? (width * weight) / whole : 0;
			const [x, row] = [left[parent], rowOf(at)];
			left[parent] = x + w;
			left[at] = x;
			const last = rows[row]?.at(-1);
			if (w >= LEAST) add({ at, x, w, row });
			// Thin frames beside each other become one gray box, so that they are not invisible.
			else if (last?.isRun && x - last.x - last.w < LEAST) last.w = x + w - last.x;
			else if (w > 0) add({ at, x, w, row, isRun: true });
			at = w >= LEAST ? at + 1 : end[at];
		}
		height = Math.min(rows.length * ROW, HIGHEST);
	};

	const fitted = (at, most) => {
		const whole = model.label(at);
		if (whole.length <= most || model.isElided(at)) return whole.length <= most ? whole : "";
		const short = visible(shortName(model.name(at)));
		return short.length <= most ? short : most < 4 ? "" : `${short.slice(0, most - 2)}..`;
	};

	const drawBox = (context, theme, { at, x, w, row, isRun }) => {
		const y = isInverted ? height - (row + 1) * ROW : row * ROW;
		const isPlain = !isRun && !model.isElided(at) && at > 0;
		const isMatch = isPlain && matches?.[model.frames[at].name];
		// Others fade, so that matches are seen without colors.
		context.globalAlpha = matches && !isMatch ? 0.45 : row < rowOf(zoomed) ? 0.6 : 1;
		context.fillStyle = isMatch ? theme.mark : !isPlain ? theme.elided : byChange ? changeColor(model.change(at)) : packageColor(model.name(at));
		context.fillRect(x, y, Math.max(w - 0.6, 0.4), ROW - 1);
		if (isRun) return;
		context.strokeStyle = theme.text;
		if (model.isElided(at)) context.setLineDash([3, 2]);
		if (at === focused || at === hovered || model.isElided(at)) context.strokeRect(x + 0.8, y + 0.8, Math.max(w - 2.2, 0.4), ROW - 2.6);
		context.setLineDash([]);
		context.fillStyle = isMatch ? theme.card : theme.text;
		const text = fitted(at, Math.floor((w - 7) / theme.character));
		if (text) context.fillText(text, x + 3.5, y + ROW / 2);
	};

	const draw = () => {
		if (!model || model.isEmpty || !canvas.clientWidth) return;
		const began = performance.now();
		layout(canvas.clientWidth);
		const context = sized(canvas, height, "12px ui-monospace, Menlo, Consolas, monospace");
		context.textBaseline = "middle";
		context.lineWidth = 1.4;
		const theme = { character: context.measureText("m").width };
		for (const color of ["text", "card", "elided", "mark"]) theme[color] = themeColor(color);
		for (const row of rows) for (const box of row ?? []) drawBox(context, theme, box);
		canvas.dataset.millis = (performance.now() - began).toFixed(1);
		canvas.dataset.drawn = performance.now();
	};

	const boxAt = ({ offsetX: x, offsetY: y }) => rows[Math.floor((isInverted ? height - y : y) / ROW)]?.find((box) => x >= box.x && x < box.x + Math.max(box.w, 1));
	const focus = (at) => {
		focused = at;
		canvas.setAttribute("aria-label", `${name}: ${model.label(at)}, ${model.describe(at)}`);
		on.focus(at);
		draw();
	};
	const open = (at) => (model.isElided(at) ? on.elided(at) : on.zoom(at));

	const hover = (box) => {
		const next = box && !box.isRun ? box.at : -1;
		if (next === hovered) return;
		hovered = next;
		on.focus(next < 0 ? focused : next);
		draw();
	};
	canvas.addEventListener("pointermove", (event) => hover(boxAt(event)));
	canvas.addEventListener("pointerleave", () => hover(null));
	canvas.addEventListener("click", (event) => {
		const box = boxAt(event);
		if (!box) return;
		// Thin frames open with the frame around them.
		const at = box.isRun ? model.frames[box.at].parent : box.at;
		focus(at);
		open(at);
	});

	const callees = (at) => (rows[rowOf(at) + 1] ?? []).filter((box) => !box.isRun && model.frames[box.at].parent === at).map((box) => box.at);
	const beside = (step) => {
		const siblings = focused ? callees(model.frames[focused].parent) : [];
		focus(siblings[siblings.indexOf(focused) + step] ?? focused);
	};
	const outwards = () => focus(model.frames[focused].parent);
	const inwards = () => focus(callees(focused).sort((a, b) => model.frames[b].weight - model.frames[a].weight)[0] ?? focused);
	const actions = {
		ArrowUp: isInverted ? inwards : outwards,
		ArrowDown: isInverted ? outwards : inwards,
		ArrowLeft: () => beside(-1),
		ArrowRight: () => beside(1),
		Enter: () => open(focused),
		Backspace: () => on.zoom(model.frames[zoomed].parent),
		Escape: () => on.zoom(0),
		s: () => focused && !model.isElided(focused) && on.pick(model.name(focused)),
	};
	canvas.addEventListener("keydown", (event) => {
		if (!Object.hasOwn(actions, event.key) || !model || event.ctrlKey || event.metaKey || event.altKey) return;
		event.preventDefault();
		actions[event.key]();
	});
	onWidth(place, draw);

	return {
		element: el("div", place, rowsBehind),
		redraw: draw,
		show(next, at, test, isColoredByChange) {
			[model, zoomed, focused, hovered] = [next, at, at, -1];
			matches = test && model.isMatch(test);
			byChange = isColoredByChange && model.compares;
			place.hidden = model.isEmpty;
			if (!model.isEmpty) focus(at);
			rowsBehind.refresh();
		},
	};
};
