// The page of the profiles: the selection, the time line, and one of several views of it.

import { address, askJson } from "./api.js";
import { button, el, muted, renew, setText } from "./dom.js";
import { bytes, dateTime } from "./format.js";
import { createFlameView } from "./flameview.js";
import { createHeatmap } from "./heatmap.js";
import { createSandwich } from "./sandwich.js";
import { createSelectors, firstType, linkOf, paramsOf, parseState } from "./selection.js";
import { createTable } from "./table.js";
import { createTimeline } from "./timeline.js";

/** Milliseconds. The finest windows of a store are as long. */
const REFRESH = 10000;
const MOST_LABELS = 5;

const VIEWS = { flame: ["Flame graph", createFlameView], table: ["Table", createTable], sandwich: ["Sandwich", createSandwich], heat: ["Heat map", createHeatmap] };
const FORMATS = [["pprof", false], ["folded", false], ["speedscope", false], ["svg", true], ["html", true], ["json", true]];

export const create = (root, app) => {
	let state = parseState(new URLSearchParams());
	let isShown = false;
	let running = null;
	let timer = 0;
	/** Grows with each refresh of the data. */
	let fresh = 0;
	let file = null;
	let meta = { key: "", stores: [], types: [], values: new Map() };
	const shown = new Map();

	const ctx = {
		damaged: el("span.problem"),
		get state() {
			return file ? { ...state, compare: "", type: file.type } : state;
		},
		now: () => app.snapshot?.time ?? Date.now(),
		unit: () => (file ?? meta).types.find((type) => type.id === ctx.state.type)?.unit ?? "",
		/** A small change does not add to the history. */
		set({ type, ...patch }, isSmall = false) {
			if (type && file) file.type = type;
			state = { ...state, ...patch, type: (!file && type) || state.type };
			history[isSmall ? "replaceState" : "pushState"](null, "", linkOf(state));
			load();
		},
		reload: () => load(true),
		async fetch(kind, params, side, signal) {
			if (!file) return askJson(`profiles/${kind}`, { ...paramsOf(state, side), ...params }, { signal });
			const answer = await askJson("profiles/view", { as: kind, type: file.type || null, ...params }, { signal, body: file.data });
			if (answer.types) file.types = answer.types;
			file.type ||= file.types.find(({ name, unit }) => name === answer.type && unit === answer.unit)?.id ?? "";
			return answer;
		},
	};

	const selectors = createSelectors((patch) => ctx.set(patch));
	const timeline = createTimeline(ctx);
	const views = Object.fromEntries(Object.entries(VIEWS).map(([name, [, make]]) => [name, make(ctx)]));
	const tabs = Object.entries(VIEWS).map(([name, [title]]) => button(title, () => ctx.set({ view: name }), "", { role: "tab", "data-view": name }));
	const downloads = el("div");
	const menu = el("details.menu", el("summary", "Download"), downloads);
	const upload = el("input.unseen", { type: "file", tabindex: -1, "aria-label": "File to look at", onchange: () => openFile(upload.files[0]) });
	const busy = muted();
	const problem = el("p.alert", { role: "alert", hidden: true });
	const hint = el("div.card.hint", { hidden: true });
	const panel = el("div.card", { role: "tabpanel" });
	const drop = el("div.drop", { hidden: true }, "Drop the file to look at it. It is not stored.");
	root.append(problem,
		el("div.card", selectors.element, el("div.bar", el("div.tabs", { role: "tablist" }, tabs), busy, ctx.damaged, menu, button("Open a file", () => upload.click()), upload)),
		hint, timeline.element, panel, drop);

	const fail = (message) => {
		problem.hidden = !message;
		setText(problem, message);
	};
	const openFile = (data) => {
		file = data && { data, type: "", types: [] };
		upload.value = "";
		state = { ...state, zoom: "[]", skip: "0", fn: "", view: "flame" };
		load(true);
	};

	/** Shows controls and hints. Returns whether there is something else to show. */
	const showFrame = () => {
		selectors.update(ctx.state, { ...meta, types: (file ?? meta).types, isFile: Boolean(file) });
		for (const tab of tabs) {
			tab.setAttribute("aria-selected", tab.dataset.view === state.view);
			tab.disabled = Boolean(file) && tab.dataset.view === "heat";
		}
		if (panel.firstChild !== views[state.view].element) panel.replaceChildren(views[state.view].element);
		menu.hidden = Boolean(file);
		renew(downloads, FORMATS.map(([format, canCompare]) => {
			const side = canCompare && state.compare ? "both" : "selected";
			const href = address("profiles/download", { ...paramsOf(state, side), format, title: state.query || state.type });
			return el("a", { href, download: "", "data-format": format }, `${format}${state.compare ? ` (${side})` : ""}`);
		}));
		const store = meta.stores.find((one) => one.id === state.store) ?? meta.stores[0];
		const isEmpty = !file && (!store || !meta.types.length);
		hint.hidden = !file && !isEmpty;
		timeline.element.hidden = Boolean(file) || isEmpty;
		panel.hidden = isEmpty;
		const newest = store?.newest;
		const showNewest = () => ctx.set({ from: String(newest - 3600000), until: String(newest), a: "", b: "", query: "" });
		if (file) renew(hint, el("b", file.data.name), ` (${bytes(file.data.size)}) is shown, and not stored. `, button("Close the file", () => openFile(null)));
		else if (!store) renew(hint, el("h2", "No exporter keeps profiles"), "Add the exporter profile_store to a pipeline of profiles, or drop a file (pprof, OTLP, folded stacks) on this page.");
		else if (newest) renew(hint, el("h2", "No profiles in this selection"), button(`Show those before ${dateTime(newest)}`, showNewest));
		else renew(hint, el("h2", "No profiles yet"), "This page shows profiles as they arrive, from the receivers pprof or otlp.");
		return !isEmpty;
	};

	const loadMeta = async (signal) => {
		const key = JSON.stringify([state.store, state.query, state.from, state.until, fresh]);
		if (file || meta.key === key) return;
		const get = (path, params) => askJson(`profiles/${path}`, params, { signal });
		const next = { key, ...(await get("stores", {})), types: [], values: new Map() };
		if (next.stores.length) {
			const params = { ...paramsOf(state, "window"), type: null };
			// Without the query, other values of a label can be chosen.
			const all = { ...params, query: null };
			const [{ types }, { labels }] = await Promise.all([get("types", params), get("labels", all)]);
			const names = labels.sort((a, b) => (b === "service_name") - (a === "service_name")).slice(0, MOST_LABELS);
			const values = await Promise.all(names.map((name) => get(`labels/${encodeURIComponent(name)}/values`, all)));
			Object.assign(next, { types, values: new Map(names.map((name, at) => [name, values[at].values])) });
		}
		meta = next;
		if (state.type || !meta.types.length) return;
		state = { ...state, type: firstType(meta.types) };
		history.replaceState(null, "", linkOf(state));
	};

	/** A part of the page asks only if its selection changed. */
	const bring = async (name, names, part, signal) => {
		const key = () => JSON.stringify([names.map((one) => ctx.state[one]), fresh]);
		await part.load(signal, shown.get(name) !== key());
		shown.set(name, key());
	};
	const SERIES = ["store", "type", "query", "from", "until"];

	const load = async (isFresh = false) => {
		if (!isShown) return;
		running?.abort();
		running = new AbortController();
		const { signal } = running;
		if (isFresh) fresh += 1;
		clearTimeout(timer);
		setText(busy, "loading");
		try {
			await loadMeta(signal);
			const isReady = showFrame();
			const parts = [];
			if (isReady && !file) parts.push(bring("timeline", SERIES, timeline, signal));
			if (isReady) parts.push(bring(state.view, [...SERIES, "a", "b", "compare", "bquery", "bfrom", "buntil", "normalize"], views[state.view], signal));
			await Promise.all(parts);
			// A file tells its types with the first picture.
			if (file) showFrame();
			if (!signal.aborted) fail("");
		} catch (error) {
			if (!signal.aborted) fail(error.message);
		}
		if (signal.aborted) return;
		panel.dataset.loaded = state.view;
		setText(busy, "");
		schedule();
	};

	const schedule = () => {
		clearTimeout(timer);
		if (!isShown || file || document.hidden || app.paused || state.until !== "now" || state.a) return;
		// Controls in use stay as they are.
		const isInUse = () => menu.open || document.activeElement?.tagName === "SELECT";
		timer = setTimeout(() => (app.isConnected && !isInUse() ? load(true) : schedule()), REFRESH);
	};

	document.addEventListener("keydown", (event) => {
		if (!isShown || event.key !== "/" || event.ctrlKey || event.metaKey || ["INPUT", "SELECT"].includes(document.activeElement?.tagName)) return;
		event.preventDefault();
		views[state.view].focusSearch();
	});
	addEventListener("dragover", (event) => {
		if (!isShown || !event.dataTransfer?.types.includes("Files")) return;
		event.preventDefault();
		drop.hidden = false;
	});
	addEventListener("dragleave", (event) => (drop.hidden ||= !event.relatedTarget));
	addEventListener("drop", (event) => {
		drop.hidden = true;
		if (!isShown || !event.dataTransfer?.files.length) return;
		event.preventDefault();
		openFile(event.dataTransfer.files[0]);
	});

	return {
		show(params) {
			isShown = true;
			// A link without a state leads back to what was shown.
			if (params.size) state = parseState(params);
			if (!Object.hasOwn(views, state.view)) state.view = "flame";
			load();
		},
		hide() {
			isShown = false;
			clearTimeout(timer);
			running?.abort();
		},
		update() {},
		redraw() {
			if (!isShown) return;
			timeline.redraw();
			views[state.view].redraw();
		},
		refresh: (isNeeded) => (isNeeded ? load(true) : schedule()),
	};
};
