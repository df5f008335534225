// A flame graph as the collector answers it: each caller comes before all frames below it.

import { el, muted, table } from "./dom.js";
import { amount, count, plural, share, signed, visible } from "./format.js";

const MOST_ROWS = 500;

/** Returns a name without the path of its package. */
export const shortName = (name) => {
	const [plain] = name.split(/[[(<]/);
	const colons = plain.split("::");
	const base = colons.length > 2 ? colons.slice(0, -2).join("::").length + 2 : plain.lastIndexOf("/") + 1;
	return name.slice(base);
};

export const createModel = (picture) => {
	const { frames, names, unit, totals, scales, compares } = picture;
	const depth = new Uint32Array(frames.length);
	/** Positions after the last frame below. */
	const end = new Uint32Array(frames.length);
	const hidden = [0];
	frames.forEach((frame, at) => {
		depth[at] = at ? depth[frame.parent] + 1 : 0;
		hidden.push(hidden[at] + (frame.elided ?? 0));
	});
	for (let at = frames.length - 1; at >= 0; at -= 1) {
		end[at] = Math.max(end[at], at + 1);
		if (at) end[frames[at].parent] = Math.max(end[frames[at].parent], end[at]);
	}
	const labels = [];
	const both = (value, column) => `${amount(value, unit)} (${share(value, totals[column])})`;
	const scaled = (at) => frames[at].total.map((value, column) => value * scales[column]);
	const model = {
		picture, frames, depth, end, compares,
		isEmpty: !frames.length,
		isElided: (at) => Boolean(frames[at].elided),
		name: (at) => names[frames[at].name],
		/** Number of nodes below a frame that are not shown one by one. */
		elided: (at) => hidden[end[at]] - hidden[at],
		label: (at) => (frames[at].elided ? `(${count(frames[at].elided)} more)` : (labels[frames[at].name] ??= visible(model.name(at)) || "all")),
		/** Frames from the root on, whose names address the last one. */
		callers: (at) => (at ? [...model.callers(frames[at].parent), at] : [0]),
		path: (at) => model.callers(at).slice(1).map(model.name),
		find(path) {
			let at = frames.length ? 0 : -1;
			for (const name of path) {
				let found = -1;
				for (let child = at + 1; at >= 0 && child < end[at]; child = end[child]) if (!frames[child].elided && model.name(child) === name) found = child;
				at = found;
			}
			return at;
		},
		isMatch: (test) => names.map((name) => test(name)),
		/** A frame below a match counts with the match. */
		matched(test) {
			const isMatch = model.isMatch(test);
			const sums = [0, 0];
			for (let at = 1; at < frames.length;) {
				const isFound = !frames[at].elided && isMatch[frames[at].name];
				if (isFound) frames[at].total.forEach((value, column) => (sums[column] += value));
				at = isFound ? end[at] : at + 1;
			}
			return sums.slice(0, compares ? 2 : 1).map((sum, column) => `${share(sum, totals[column])} (${amount(sum, unit)})`).join(" to ");
		},
		describe(at) {
			const { total, own } = frames[at];
			if (!compares) return `${both(total[0], 0)}, self ${both(own[0], 0)}`;
			const [before, after] = scaled(at);
			return `${both(total[0], 0)} to ${both(total[1], 1)}, ${signed(after - before, unit)}`;
		},
		change(at) {
			const [before, after] = scaled(at).map(Math.abs);
			return (after - before) / (Math.max(before, after) || 1);
		},
		table(from) {
			const until = Math.min(end[from] ?? 0, from + MOST_ROWS);
			const rows = [];
			for (let at = from; at < until; at += 1) {
				const { total, own } = frames[at];
				const values = compares ? total.map(both) : [both(total[0], 0), both(own[0], 0)];
				rows.push([depth[at], model.label(at), ...values]);
			}
			const rest = (end[from] ?? 0) - until;
			return [table("Frames", ["#depth", "function", ...(compares ? ["#before", "#after"] : ["#total", "#self"])], rows),
				rest > 0 ? el("p", muted(`${plural(rest, "more frame")}: zoom in to see them.`)) : null];
		},
	};
	return model;
};
