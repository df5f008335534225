// The values of the series over time, with a brush for the selection and the baseline.

import { seriesColor } from "./colors.js";
import { behind, button, el, muted, renew, setText, table, themeColor } from "./dom.js";
import { amount, dateTime, duration, plural, time, visible } from "./format.js";
import { createPlot } from "./plot.js";
import { millisOf, queryOf } from "./selection.js";

const HEIGHT = 84;
const COLORED = 6;

export const createTimeline = (ctx) => {
	const about = el("span.mono", { role: "status" });
	const legend = el("div.bar");
	let series = [];
	let step = 1000;
	let totals = new Map();

	const shown = (value) => amount(value, ctx.unit());
	const band = (context, range, color, title) => {
		const [left, right] = range.map((at) => Math.min(Math.max(plot.x(at), 0), context.canvas.clientWidth));
		if (right - left < 2) return;
		context.fillStyle = context.strokeStyle = themeColor(color);
		context.globalAlpha = 0.16;
		context.fillRect(left, 0, right - left, HEIGHT);
		context.globalAlpha = 1;
		context.strokeRect(left + 0.5, 0.5, right - left - 1, HEIGHT - 1);
		if (right - left > 60) context.fillText(title, left + 5, 24);
	};

	const choose = (from, until, isBaseline) => {
		// Windows of the store are whole.
		const start = Math.floor(from / step) * step;
		const end = Math.max(Math.ceil(until / step) * step, start + step);
		ctx.set(isBaseline && ctx.state.compare ? { bfrom: String(start), buntil: String(end) } : { a: String(start), b: String(end) });
	};
	const tell = () => {
		const { a, b, compare } = ctx.state;
		setText(about, a ? `${dateTime(Number(a))} to ${time(Number(b))} (${duration((b - a) / 1000)}). Click to end the selection.` : `Drag to choose a range${compare ? ", with Shift for the baseline" : ""}.`);
	};

	const plot = createPlot("Time line: arrow keys move the selection, with Shift they grow it", HEIGHT, {
		draw(context) {
			const most = Math.max(1, ...totals.values());
			const base = new Map();
			series.forEach(({ points }, at) => {
				context.fillStyle = at < COLORED ? seriesColor(at) : themeColor("strong");
				for (const [start, value] of points) {
					const below = base.get(start) ?? 0;
					const high = ((HEIGHT - 14) * Math.abs(value)) / most;
					base.set(start, below + high);
					context.fillRect(plot.x(start), HEIGHT - below - high, Math.max(plot.x(start + step) - plot.x(start) - 0.6, 0.8), high);
				}
			});
			context.fillStyle = themeColor("soft");
			context.fillText(`${shown(most)} in ${duration(step / 1000)}`, 2, 10);
			const { state } = ctx;
			if (state.compare) band(context, [millisOf(state.bfrom, ctx.now()), millisOf(state.buntil, ctx.now())], "warn", "baseline");
			if (state.a) band(context, [Number(state.a), Number(state.b)], "accent", "selection");
		},
		choose,
		none: () => ctx.state.a && ctx.set({ a: "", b: "" }),
		key(direction, grows) {
			const last = Math.floor(plot.range[1] / step) * step;
			const [from, to] = ctx.state.a ? [Number(ctx.state.a), Number(ctx.state.b)] : [last - 10 * step, last - step];
			choose(grows ? from : from + direction * step, to + direction * step);
		},
		hover(when) {
			const start = Math.floor(when / step) * step;
			if (totals.has(start)) setText(about, `${time(start)}: ${shown(totals.get(start))}`);
		},
	});
	plot.element.addEventListener("pointerleave", tell);
	const rows = behind("Table of the time line", () => [
		table("Series", ["series", "#sum"], series.map((one) => [one.name, shown(one.sum)])),
		table("Sums by time", ["time", "#sum"], [...totals].map(([at, value]) => [dateTime(at), shown(value)])),
	]);

	const redraw = () => {
		tell();
		const others = series.length - COLORED;
		renew(legend, series.slice(0, COLORED).map((one, at) => {
			const entry = button(`${visible(one.name, 40)}: ${shown(one.sum)}`, () => ctx.set({ query: queryOf(new Map(Object.entries(one.labels))) }), "plain");
			const swatch = el("i.swatch");
			swatch.style.background = seriesColor(at);
			entry.prepend(swatch);
			return entry;
		}), others > 0 ? muted(`${plural(others, "smaller one")} in gray`) : null);
		plot.draw();
		rows.refresh();
	};

	return {
		element: el("div.card", el("div.bar", el("b", "Time line"), about), plot.element, legend, rows),
		async load(signal, isFresh) {
			if (!isFresh) return redraw();
			plot.range = [ctx.state.from, ctx.state.until].map((at) => millisOf(at, ctx.now()));
			const answer = await ctx.fetch("totals", { by: "service_name" }, "window", signal);
			step = answer.step;
			totals = new Map();
			for (const { points } of answer.series) for (const [at, value] of points) totals.set(at, (totals.get(at) ?? 0) + Math.abs(value));
			totals = new Map([...totals].sort(([a], [b]) => a - b));
			series = answer.series.map((one) => ({ ...one, name: Object.values(one.labels).join(", ") || "all", sum: one.points.reduce((sum, [, value]) => sum + Math.abs(value), 0) }));
			series.sort((a, b) => b.sum - a.sum);
			redraw();
		},
		redraw,
	};
};
