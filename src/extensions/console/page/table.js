// Functions as a table: sorted, filtered, and compared.

import { button, el, muted, renew, searchInput, setText } from "./dom.js";
import { amount, count, share, signed, visible } from "./format.js";
import { patternOf } from "./frames.js";

/** Functions of the first answer; all of them are fetched for a filter or another order. */
const FIRST = 1000;
const MOST = 100000;
/** Rows that are added at a time: a browser is slow with many. */
const PAGE = 200;

/** Columns: key, title, value of a row (`scale` makes the baseline comparable), and text of the value. */
const plain = (value, { unit }) => amount(value, unit);
const part = (value, { total }) => share(value, total);
const change = (value, { unit }) => signed(value, unit);
const COLUMNS = [["self", "self", (row) => row.self, plain], ["selfShare", "self %", (row) => row.self, part], ["total", "total", (row) => row.total, plain], ["totalShare", "total %", (row) => row.total, part]];
const COMPARED = [
  ["self", "self", (row) => row.self, plain], ["selfChange", "self change", (row, scale) => row.self - row.self_before * scale, change],
  ["totalBefore", "total before", (row, scale) => row.total_before * scale, plain], ["total", "total", (row) => row.total, plain],
  ["totalChange", "total change", (row, scale) => row.total - row.total_before * scale, change],
];

export const createTable = (ctx) => {
  const filter = searchInput("Filter functions by regular expression", (text) => ctx.set({ filter: text }, true));
  const note = muted();
  const head = el("tr");
  const body = el("tbody");
  const more = button("More rows", () => addRows(PAGE * 5));
  let answer = null;
  let rows = [];

  const compares = () => answer.total_before !== undefined;
  const columns = () => (compares() ? COMPARED : COLUMNS);
  const scale = () => (compares() && ctx.state.normalize === "total" && answer.total_before && answer.total ? answer.total / answer.total_before : 1);

  const addRows = (number) => {
    const from = body.children.length;
    const factor = scale();
    body.append(...rows.slice(from, from + number).map((row) => el("tr", {},
      columns().map(([, , value, text]) => el("td", { class: "number" }, text(value(row, factor), answer))),
      el("td", { class: "function" }, button(visible(row.name, 160) || "(no name)", () => ctx.set({ view: "sandwich", fn: row.name }), { class: "plain mono" })),
      el("td", {}, muted(visible(row.file, 120))))));
    more.hidden = body.children.length >= rows.length;
  };

  const header = ([key, title], isNumber) => {
    const [by, order] = ctx.state.sort.split("-");
    const state = by !== key ? "none" : order ? "ascending" : "descending";
    const next = () => ctx.set({ sort: state === "descending" ? `${key}-up` : key }, true);
    return el("th", { class: isNumber ? "number" : "", "aria-sort": state }, button(title, next, { class: "plain" }));
  };

  const show = () => {
    const pattern = patternOf(ctx.state.filter);
    const isWrong = pattern instanceof Error;
    filter.setAttribute("aria-invalid", isWrong);
    const [by, order] = ctx.state.sort.split("-");
    const [, , value, text] = columns().find(([key]) => key === by) ?? [];
    const factor = scale();
    // Large changes in either direction come first.
    const key = (row) => (!value ? String(row[by] ?? "") : text === change ? -Math.abs(value(row, factor)) : -value(row, factor));
    const keyed = answer.functions.filter((row) => !pattern || isWrong || pattern.test(row.name)).map((row) => [key(row), row]);
    keyed.sort(([a], [b]) => (a < b ? -1 : a > b ? 1 : 0));
    rows = keyed.map(([, row]) => row);
    if (order) rows.reverse();
    renew(head, columns().map((one) => header(one, true)), header(["name", "function"]), header(["file", "file"]));
    body.replaceChildren();
    addRows(PAGE);
    setText(note, isWrong ? pattern.message : `${count(rows.length)} of ${count(answer.count)} functions, ${share(rows.reduce((sum, row) => sum + row.self, 0), answer.total)} of the total as self`);
  };

  return {
    element: el("div", {}, el("div", { class: "bar" }, filter, note),
      el("div", { class: "scroll" }, el("table", { class: "functions" }, el("caption", { class: "unseen" }, "Functions"), el("thead", {}, head), body)), more),
    async load(signal, isFresh) {
      if (document.activeElement !== filter) filter.value = ctx.state.filter;
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
    focusSearch: () => filter.focus(),
  };
};
