// What the page of profiles shows, as the link holds it, and the controls that choose it.

import { el, field, renew, setText, setValue } from "./dom.js";
import { dateTime, visible } from "./format.js";

/** Parts of the link, with their defaults. `a` and `b` are the range within the time line. */
const DEFAULTS = {
	view: "flame", store: "", type: "", query: "", from: "now-1h", until: "now", a: "", b: "",
	compare: "", bquery: "", bfrom: "", buntil: "", normalize: "total",
	zoom: "[]", skip: "0", find: "", filter: "", sort: "self", fn: "", colors: "package",
};
const MOST_OPTIONS = 500;
const RANGES = [["", "custom"], ...["5m", "15m", "1h", "6h", "1d", "7d"].map((length) => [`now-${length}`, length])];
const MILLIS = { ms: 1, s: 1000, m: 60000, h: 3600000, d: 86400000, w: 604800000 };

export const parseState = (params) => Object.fromEntries(Object.entries(DEFAULTS).map(([name, value]) => [name, params.get(name) ?? value]));

export const linkOf = (state) => `#profiles?${new URLSearchParams(Object.entries(state).filter(([name, value]) => value !== DEFAULTS[name]))}`;

/** `side`: `selected`, `before`, `both`, or `window` for the whole time line. */
export const paramsOf = (state, side) => {
	const { store, type, query, from, until, a, b, bquery, bfrom, buntil, normalize } = state;
	const params = { store: store || null, type: type || null, query: query || null, ...(side === "window" || !a ? { from, until } : { from: a, until: b }) };
	if (side === "before") return { ...params, query: bquery || query || null, from: bfrom, until: buntil };
	return side === "both" ? { ...params, before_query: bquery || null, before_from: bfrom, before_until: buntil, normalize } : params;
};

export const millisOf = (text, now) => {
	if (/^\d+$/.test(text)) return Number(text);
	return [...text.matchAll(/(\d+)(ms|s|m|h|d|w)/g)].reduce((at, [, number, unit]) => at - number * MILLIS[unit], now);
};

/** Returns the times just before a selection, to compare with. */
const timesBefore = ({ from, until, a, b }) => {
	const [, number, unit] = (!a && until === "now" && /^now-(\d+)([a-z]+)$/.exec(from)) || [];
	if (number) return { bfrom: `now-${2 * number}${unit}`, buntil: from };
	const [start, end] = [a || from, b || until].map((at) => millisOf(at, Date.now()));
	return { bfrom: String(Math.max(2 * start - end, 0)), buntil: String(start) };
};

const shownTime = (text) => (/^\d+$/.test(text) ? dateTime(Number(text)) : text);

const parsedTime = (text) => {
	if (/^(\d+|now(-(\d+[a-z]+)+)?)$/.test(text)) return text;
	const millis = Date.parse(text.replace(" ", "T"));
	return Number.isNaN(millis) ? null : String(millis);
};

const PAIR = /([A-Za-z_]\w*)\s*=\s*"((?:[^"\\]|\\.)*)"/g;
const ESCAPED = { n: "\n", t: "\t", r: "\r" };

/** Returns the labels of a query that only has `=`, or null. */
const pairsOf = (query) => {
	if (/[^{},\s]/.test(query.replace(PAIR, ""))) return null;
	return new Map([...query.matchAll(PAIR)].map(([, name, value]) => [name, value.replace(/\\(.)/g, (all, c) => ESCAPED[c] ?? c)]));
};

export const queryOf = (pairs) => (pairs.size ? `{${[...pairs].map(([name, value]) => `${name}="${value.replace(/["\\]/g, "\\$&")}"`).join(", ")}}` : "");

const setOptions = (select, list, chosen) => {
	const known = list.some(([value]) => value === chosen) ? list : [[chosen, chosen], ...list];
	renew(select, known.slice(0, MOST_OPTIONS).map(([value, title]) => el("option", { value }, visible(title, 80))));
	select.value = chosen;
};

const typeTitle = ({ name, unit, profile }) => `${profile === name ? "" : `${profile}: `}${name} (${unit})`;

/** Most people look for processor time first. */
export const firstType = (types) => (types.find((type) => type.name === "cpu") ?? types.find((type) => type.unit === "nanoseconds") ?? types[0])?.id ?? "";

export const createSelectors = (set) => {
	let state = DEFAULTS;
	const problem = el("span.problem", { role: "status" });
	const select = (name) => el("select", { id: `select-${name}`, onchange: (event) => set({ [name]: event.target.value }) });
	const inputs = new Map();
	const input = (name, size, parse, more = {}) => {
		const typed = () => {
			const parsed = parse(box.value.trim());
			box.setAttribute("aria-invalid", parsed === null);
			setText(problem, parsed === null ? "Write a time as now-15m or 2026-01-31 14:00." : "");
			if (parsed !== null) set({ [name]: parsed, ...more });
		};
		const box = el("input", { size, spellcheck: "false", onchange: typed });
		inputs.set(name, [box, parse === parsedTime ? shownTime : String]);
		return box;
	};
	const whole = { a: "", b: "" };
	const [store, type, normalize] = ["store", "type", "normalize"].map(select);
	const labels = el("span.fields");
	const range = el("select", { onchange: () => range.value && set({ from: range.value, until: "now", ...whole }) });
	const compare = el("select", { id: "compare", onchange: () => set({ compare: compare.value, ...(state.bfrom ? {} : timesBefore(state)) }) });
	setOptions(compare, [["", "nothing"], ["diff", "baseline, as a difference"], ["side", "baseline, side by side"]], "");
	setOptions(normalize, [["total", "shares"], ["none", "values"]], "total");
	const storeField = field("Store", store);
	const series = el("div.fields", labels, field("Query", input("query", 30, String)), field("Last", range),
		field("From", input("from", 17, parsedTime, whole)), field("until", input("until", 17, parsedTime, whole)), field("Compare with", compare));
	const baseline = el("div.fields", field("Baseline from", input("bfrom", 17, parsedTime)), field("until", input("buntil", 17, parsedTime)),
		field("series, if others", input("bquery", 30, String)), field("compare", normalize));

	const labelField = ([name, values]) => {
		const pairs = pairsOf(state.query);
		const box = el("select", { disabled: !pairs, "data-label": name, onchange: () => {
			pairs.set(name, box.value);
			if (!box.value) pairs.delete(name);
			set({ query: queryOf(pairs) });
		} });
		setOptions(box, [["", pairs ? "any" : "see query"], ...values.map((value) => [value, value])], pairs?.get(name) ?? "");
		return field(name, box);
	};

	return {
		element: el("div.selectors", el("div.fields", storeField, field("Type", type), series), baseline, problem),
		update(next, { stores, types, values, isFile }) {
			state = next;
			series.hidden = isFile;
			baseline.hidden = isFile || !state.compare;
			storeField.hidden = isFile || stores.length < 2;
			setOptions(store, stores.map(({ id }) => [id, id]), state.store || stores[0]?.id || "");
			setOptions(type, types.map((one) => [one.id, typeTitle(one)]), state.type);
			for (const [name, [box, shown]] of inputs) setValue(box, shown(state[name]));
			setOptions(range, RANGES, state.until === "now" && RANGES.some(([value]) => value === state.from) ? state.from : "");
			compare.value = state.compare;
			normalize.value = state.normalize;
			renew(labels, [...values].map(labelField));
		},
	};
};
