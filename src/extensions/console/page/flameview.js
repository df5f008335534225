// The view with flame graphs: one, a differential one, or two side by side.

import { button, createSearch, el, muted, renew, setText } from "./dom.js";
import { createFlamegraph } from "./flamegraph.js";
import { count, plural } from "./format.js";
import { createModel } from "./frames.js";

/** As many frames as the collector sends. */
const ALL_FRAMES = 100000;
const KEYS = "Keys: arrows, Enter zooms, Backspace zooms out, Escape shows all, s: sandwich, /: search. A dashed frame holds smaller ones.";

const createPane = (ctx, side, title, on) => {
	const note = muted();
	const graph = createFlamegraph(title || "flame graph", on);
	const kind = side === "both" ? "diff" : "flamegraph";
	let [model, base, full] = [null, null, null];
	const show = (next, at, test) => {
		model = next;
		setText(note, model.isEmpty ? "No profiles are selected here." : "");
		graph.show(model, at, test, ctx.state.colors === "change");
	};
	const pane = {
		element: el("div.pane", title ? el("h3", title) : null, note, graph.element),
		redraw: graph.redraw,
		model: () => model,
		/** Zooms to a path: at once if its frames are here, and again if some were elided. */
		async go(path, skip, test, signal, isFresh) {
			const key = JSON.stringify([path, skip]);
			const known = [model, base].find((one) => one && !isFresh && (one.key === key || (!skip && !one.skip && one.find(path) >= 0)));
			if (known) {
				const at = skip ? known.picture.zoomed : known.find(path);
				show(known, at, test);
				if (known.key === key || known.elided(at) === 0) return;
			}
			const params = { zoom: path.length ? JSON.stringify(path) : null, skip: skip || null };
			const next = createModel(await ctx.fetch(kind, params, side, signal));
			Object.assign(next, { key, skip });
			if (isFresh) base = full = null;
			if (!path.length && !skip) base = next;
			setText(ctx.damaged, next.picture.damaged ? `${plural(next.picture.damaged, "damaged section")} left out` : "");
			show(next, next.picture.zoomed, test);
		},
		/** Tells what matches: first in the frames that are here, then in all. */
		async tellMatched(test, signal, tell) {
			const has = full ?? base ?? model;
			const isAll = (one) => !one.skip && one.picture.zoomed === 0 && one.elided(0) === 0;
			const text = (one) => `${isAll(one) ? "" : "at least "}${one.matched(test)}`;
			if (has.isEmpty) return;
			tell(text(has));
			if (isAll(has) || has === full) return;
			full = createModel(await ctx.fetch(kind, { max_frames: ALL_FRAMES }, side, signal));
			tell(text(full));
		},
	};
	return pane;
};

export const createFlameView = (ctx) => {
	const search = createSearch("Search functions", (text) => ctx.set({ find: text }, true));
	const colors = el("select", { "aria-label": "Colors", onchange: () => ctx.set({ colors: colors.value }, true) },
		el("option", { value: "package" }, "colors by package"), el("option", { value: "change" }, "colors: blue is less, orange is more"));
	const zoomed = el("span");
	const about = el("span.about.mono", { "aria-live": "polite" });
	const place = el("div.panes");
	let panes = [];
	let layoutOf = null;
	let picked = "";

	const path = () => {
		try {
			return JSON.parse(ctx.state.zoom).map(String);
		} catch {
			return [];
		}
	};
	const zoomTo = (to, skip = 0) => ctx.set({ zoom: JSON.stringify(to), skip: String(skip) });
	const pick = (fn) => ctx.set({ view: "sandwich", fn });
	const sandwich = button("Sandwich", () => pick(picked));

	const build = () => {
		const { compare } = ctx.state;
		if (compare === layoutOf) return;
		layoutOf = compare;
		const sides = compare === "side" ? [["before", "Baseline"], ["selected", "Selection"]] : [[compare ? "both" : "selected", ""]];
		panes = sides.map(([side, title]) => {
			const pane = createPane(ctx, side, title, {
				pick,
				zoom: (at) => zoomTo(pane.model().path(at)),
				elided: (at) => zoomTo(pane.model().path(pane.model().frames[at].parent), pane.model().frames[at].skip),
				focus(at) {
					const model = pane.model();
					setText(about, `${model.label(at)}: ${model.describe(at)}`);
					sandwich.disabled = at === 0 || model.isElided(at);
					picked = model.name(at);
				},
			});
			return pane;
		});
		renew(place, panes.map((pane) => pane.element));
		place.classList.toggle("two", panes.length > 1);
	};

	const showZoom = (to, skip) =>
		renew(zoomed, to.length ? button("Show all", () => zoomTo([])) : null, skip ? [` without the ${count(skip)} heaviest callees `, button("Show them", () => zoomTo(to))] : null);

	return {
		element: el("div", el("div.bar", search.input, search.note, colors, zoomed), el("div.bar", about, sandwich), place, el("p.muted.keys", KEYS)),
		/** `isFresh`: the profiles may have changed. */
		async load(signal, isFresh) {
			build();
			colors.value = ctx.state.colors;
			colors.hidden = ctx.state.compare !== "diff";
			const to = path();
			const skip = Number(ctx.state.skip) || 0;
			const test = search.parse(ctx.state.find);
			showZoom(to, skip);
			try {
				await Promise.all(panes.map((pane) => pane.go(to, skip, test, signal, isFresh)));
			} catch (error) {
				// The function is gone, or is not in both selections.
				if (error.status === 404 && to.length) return ctx.set({ zoom: "[]", skip: "0" }, true);
				throw error;
			}
			if (!test) return;
			const texts = panes.map(() => "");
			await Promise.all(panes.map((pane, at) => pane.tellMatched(test, signal, (text) => {
				texts[at] = text;
				setText(search.note, `matched: ${texts.filter(Boolean).join(" and ")}`);
			})));
		},
		redraw() {
			for (const pane of panes) pane.redraw();
		},
		focusSearch: () => search.input.focus(),
	};
};
