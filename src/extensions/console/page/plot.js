// A picture over time on a canvas, with a range to drag.

import { el, onWidth, sized, themeColor } from "./dom.js";
import { dateTime, time } from "./format.js";

const AXIS = 16;

/** `on` has `draw(context, width)`, `choose(from, until, hasShift)`, `none()` for a click, `hover(time, y)`, `key(step, hasShift)`. */
export const createPlot = (name, height, on) => {
	const canvas = el("canvas.plot", { tabindex: 0, role: "application", "aria-label": name });
	const plot = { element: canvas, range: [0, 1] };
	plot.x = (at) => (canvas.clientWidth * (at - plot.range[0])) / (plot.range[1] - plot.range[0]);
	let start = null;
	let end = null;

	plot.draw = () => {
		const width = canvas.clientWidth;
		if (!width) return;
		const [from, until] = plot.range;
		const context = sized(canvas, height + AXIS);
		on.draw(context, width);
		context.fillStyle = themeColor("soft");
		const ticks = Math.max(2, Math.floor(width / 130));
		for (let at = 0; at <= ticks; at += 1) {
			const when = from + ((until - from) * at) / ticks;
			context.textAlign = at === 0 ? "left" : at === ticks ? "right" : "center";
			context.fillText(until - from > 86400000 ? dateTime(when).slice(5, 16) : time(when), (width * at) / ticks, height + 13);
		}
		if (start === null) return;
		context.strokeStyle = themeColor("text");
		context.strokeRect(plot.x(Math.min(start, end)), 1, Math.abs(plot.x(end) - plot.x(start)), height - 2);
	};

	const timeAt = (event) => {
		const part = Math.min(Math.max(event.offsetX / canvas.clientWidth, 0), 1);
		return plot.range[0] + part * (plot.range[1] - plot.range[0]);
	};
	canvas.addEventListener("pointerdown", (event) => {
		if (event.button !== 0) return;
		start = end = timeAt(event);
		canvas.setPointerCapture(event.pointerId);
	});
	canvas.addEventListener("pointermove", (event) => {
		if (start === null) return on.hover(timeAt(event), event.offsetY);
		end = timeAt(event);
		plot.draw();
	});
	canvas.addEventListener("pointerup", ({ shiftKey }) => {
		if (start === null) return;
		const ends = [start, end].sort((a, b) => a - b);
		start = null;
		// A click is no range.
		if (plot.x(ends[1]) - plot.x(ends[0]) < 4) on.none();
		else on.choose(...ends, shiftKey);
		plot.draw();
	});
	canvas.addEventListener("pointercancel", () => {
		start = null;
		plot.draw();
	});
	canvas.addEventListener("keydown", (event) => {
		const step = { ArrowLeft: -1, ArrowRight: 1, Escape: 0 }[event.key];
		if (step === undefined || event.ctrlKey || event.metaKey || event.altKey) return;
		event.preventDefault();
		if (step) on.key(step, event.shiftKey);
		else on.none();
	});
	onWidth(canvas, plot.draw);
	return plot;
};
