// Functions as a table: sorted, filtered, and compared.

import { button, createSearch, el, muted, renew, setText } from "./dom.js";
import { amount, count, share, signed, visible } from "./format.js";

/** A filter or another order needs all functions. */
const FIRST = 1000;
const MOST = 100000;
const PAGE = 200;

/** Columns: key, title, value and text. `scale` makes the baseline comparable. */
const plain = (value, { unit }) => amount(value, unit);
const both = (value, { unit, total }) => `${amount(value, unit)} (${share(value, total)})`;
const change = (value, { unit }) => signed(value, unit);
const [OWN, TOTAL] = ["self", "total"].map((key) => [key, key, (row) => row[key], both]);
const COMPARED = [
	OWN, ["selfChange", "self change", (row, scale) => row.self - row.self_before * scale, change],
	TOTAL, ["totalBefore", "total before", (row, scale) => row.total_before * scale, plain], ["totalChange", "total change", (row, scale) => row.total - row.total_before * scale, change],
];

export const createTable = (ctx) => {
	const search = createSearch("Filter functions", (text) => ctx.set({ filter: text }, true));
	const note = muted();
	const head = el("tr");
	const body = el("tbody");
	const more = button("More rows", () => addRows(PAGE * 5));
	let answer = null;
	let rows = [];

	const compares = () => answer.total_before !== undefined;
	const columns = () => (compares() ? COMPARED : [OWN, TOTAL]);
	const scale = () => (compares() && ctx.state.normalize === "total" && answer.total_before && answer.total ? answer.total / answer.total_before : 1);

	const addRows = (number) => {
		const from = body.children.length;
		const factor = scale();
		body.append(...rows.slice(from, from + number).map((row) => el("tr",
			el("td.function", button(visible(row.name, 160) || "(no name)", () => ctx.set({ view: "sandwich", fn: row.name }), "plain.mono")),
			columns().map(([, , value, text]) => el("td.number", text(value(row, factor), answer))),
			el("td", muted(visible(row.file, 120))))));
		more.hidden = body.children.length >= rows.length;
	};

	const header = ([key, title], isNumber) => {
		const [by, order] = ctx.state.sort.split("-");
		const state = by !== key ? "none" : order ? "ascending" : "descending";
		const next = () => ctx.set({ sort: state === "descending" ? `${key}-up` : key }, true);
		return el(isNumber ? "th.number" : "th", { "aria-sort": state }, button(title, next, "plain"));
	};

	const show = () => {
		const test = search.parse(ctx.state.filter);
		const [by, order] = ctx.state.sort.split("-");
		const [, , value, text] = columns().find(([key]) => key === by) ?? [];
		const factor = scale();
		// Large changes in either direction come first.
		const key = (row) => (!value ? String(row[by] ?? "") : text === change ? -Math.abs(value(row, factor)) : -value(row, factor));
		const keyed = answer.functions.filter((row) => !test || test(row.name)).map((row) => [key(row), row]);
		keyed.sort(([a], [b]) => (a < b ? -1 : a > b ? 1 : 0));
		rows = keyed.map(([, row]) => row);
		if (order) rows.reverse();
		renew(head, header(["name", "function"]), columns().map((one) => header(one, true)), header(["file", "file"]));
		body.replaceChildren();
		addRows(PAGE);
		setText(note, `${count(rows.length)} of ${count(answer.count)} functions, ${share(rows.reduce((sum, row) => sum + row.self, 0), answer.total)} of the total as self`);
	};

	return {
		element: el("div", el("div.bar", search.input, search.note, note),
			el("div.scroll", el("table.functions", el("caption.unseen", "Functions"), el("thead", head), body)), more),
		async load(signal, isFresh) {
			const { sort, compare } = ctx.state;
			const isHeaviest = (sort === "self" || sort === "total") && !ctx.state.filter;
			const isEnough = answer && !isFresh && (answer.functions.length >= answer.count || (isHeaviest && answer.sort === sort));
			if (!isEnough) {
				const params = { limit: isHeaviest ? FIRST : MOST, sort: sort === "total" ? "total" : "self" };
				answer = { ...(await ctx.fetch("table", params, compare ? "both" : "selected", signal)), sort };
			}
			show();
		},
		redraw() {},
		focusSearch: () => search.input.focus(),
	};
};
