// The callers of a function above it, and its callees below it.

import { el, setText, setValue } from "./dom.js";
import { createFlamegraph } from "./flamegraph.js";
import { createModel } from "./frames.js";

const FIRST = 2000;
const MOST = 100000;

export const createSandwich = (ctx) => {
	const name = el("input", { size: 50, "aria-label": "Function", placeholder: "name of a function", spellcheck: "false", onchange: () => ctx.set({ fn: name.value }) });
	const about = el("span.about.mono", { "aria-live": "polite" });
	let frames = FIRST;

	const createHalf = (title, isInverted) => {
		let model = null;
		const graph = createFlamegraph(title, {
			// The function itself is the frame after the root.
			zoom: (at) => show(Math.max(at, 1)),
			// Parts of a sandwich have no address, so all of it is fetched with more frames.
			elided() {
				frames = Math.min(frames * 10, MOST);
				ctx.reload();
			},
			pick: (fn) => ctx.set({ fn }),
			focus: (at) => setText(about, `${model.label(at)}: ${model.describe(at)}`),
		}, isInverted);
		const show = (at) => graph.show(model, model.isEmpty ? 0 : at, null, true);
		const update = (picture) => {
			model = createModel(picture);
			show(1);
		};
		return { update, redraw: graph.redraw, element: [el("h3", title), graph.element] };
	};
	const callers = createHalf("callers", true);
	const callees = createHalf("callees", false);
	const halves = el("div", callers.element, callees.element);

	return {
		element: el("div", el("div.bar", name, about), halves),
		async load(signal) {
			const { fn, compare } = ctx.state;
			setValue(name, fn);
			halves.hidden = !fn;
			if (!fn) return setText(about, "Choose a function in the table or the flame graph.");
			const answer = await ctx.fetch("sandwich", { function: fn, max_frames: frames }, compare ? "both" : "selected", signal);
			callers.update(answer.callers);
			callees.update(answer.callees);
		},
		redraw() {
			callers.redraw();
			callees.redraw();
		},
		focusSearch: () => name.focus(),
	};
};
