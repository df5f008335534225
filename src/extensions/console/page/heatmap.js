// Samples by second and part of a second: stalls and bursts that sums hide.

import { heatColor } from "./colors.js";
import { behind, el, muted, setText, table } from "./dom.js";
import { amount, dateTime, plural, time } from "./format.js";
import { createPlot } from "./plot.js";

const HEIGHT = 300;
/** Narrowest column, in pixels: more seconds share one. */
const LEAST = 2;
const MOST_ROWS = 500;

export const createHeatmap = (ctx) => {
	const about = el("span.mono", { role: "status" });
	const note = muted();
	let answer = { rows: 50, cells: [] };
	let columns = new Map();
	let seconds = 1;

	const part = (row) => `${Math.round((row * 1000) / answer.rows)} ms`;
	const sums = (width) => {
		const all = new Map();
		for (const [second, row, value] of answer.cells) {
			const key = Math.floor(second / width) * width;
			if (!all.has(key)) all.set(key, new Float64Array(answer.rows));
			all.get(key)[row] += value;
		}
		return all;
	};

	const plot = createPlot("Heat map: seconds from left to right, parts of a second upwards", HEIGHT, {
		draw(context, width) {
			seconds = Math.max(1, Math.ceil(((plot.range[1] - plot.range[0]) * LEAST) / 1000 / width));
			columns = sums(seconds);
			const most = Math.max(1, ...[...columns.values()].map((column) => Math.max(...column)));
			const high = HEIGHT / answer.rows;
			context.fillStyle = heatColor(0);
			context.fillRect(0, 0, width, HEIGHT);
			for (const [second, column] of columns) {
				const [x, end] = [plot.x(second * 1000), plot.x((second + seconds) * 1000)];
				column.forEach((value, row) => {
					// Square roots keep small values visible beside large ones.
					context.fillStyle = heatColor(Math.sqrt(value / most));
					if (value) context.fillRect(x, HEIGHT - (row + 1) * high, end - x, high);
				});
			}
		},
		choose: (from, until) => ctx.set({ a: String(Math.floor(from / 1000) * 1000), b: String(Math.ceil(until / 1000) * 1000), view: "flame" }),
		none() {},
		key() {},
		hover(when, y) {
			const key = Math.floor(when / 1000 / seconds) * seconds;
			const row = Math.floor(((HEIGHT - y) * answer.rows) / HEIGHT);
			setText(about, `${time(key * 1000)} + ${part(row)}: ${amount(columns.get(key)?.[row] ?? 0, ctx.unit())}`);
		},
	});
	const rows = behind("Table of the heat map", () => table("Samples by second", ["second", "#value", "#fullest part"], [...sums(1)].slice(-MOST_ROWS).map(([second, column]) => [
		dateTime(second * 1000), amount(column.reduce((a, b) => a + b, 0), ctx.unit()), part(column.indexOf(Math.max(...column)))])));

	return {
		element: el("div", el("div.bar", note, about), plot.element, rows),
		async load(signal, isFresh) {
			if (isFresh) answer = await ctx.fetch("heatmap", {}, "selected", signal);
			const { cells } = answer;
			plot.element.hidden = !cells.length;
			// Cells are ordered by time.
			if (cells.length) plot.range = [cells[0][0] * 1000, (cells.at(-1)[0] + 1) * 1000];
			setText(note, cells.length ? `${plural(cells.length, "cell")}. Drag to see the flame graph of a range.`
				: "No sample with a timestamp is selected. Most pprof files have none. Heat maps cover the last six hours.");
			plot.draw();
			rows.refresh();
		},
		redraw: () => plot.draw(),
		focusSearch() {},
	};
};
