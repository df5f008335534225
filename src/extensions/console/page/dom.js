// Elements from plain values. Text is set as text, with hidden characters escaped: no name becomes markup.

import { visible } from "./format.js";

const LONGEST = 2000;

const append = (element, children) => {
	for (const child of children.flat(Infinity)) {
		if (child !== null && child !== undefined) element.append(child instanceof Node ? child : visible(String(child), LONGEST));
	}
	return element;
};

const make = (namespace) => (kind, ...children) => {
	const [tag, ...classes] = kind.split(".");
	const element = document.createElementNS(namespace, tag);
	if (classes.length) element.setAttribute("class", classes.join(" "));
	const hasProps = Object.getPrototypeOf(children[0] ?? []) === Object.prototype;
	for (const [name, value] of Object.entries(hasProps ? children.shift() : {})) {
		if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
		else if (["value", "disabled", "hidden"].includes(name)) element[name] = value;
		else element.setAttribute(name, value);
	}
	return append(element, children);
};

/** Returns an element, as in `el("div.bar", { id: "x" }, "text")`. */
export const el = make("http://www.w3.org/1999/xhtml");
export const svg = make("http://www.w3.org/2000/svg");
export const button = (title, onclick, classes = "", props = {}) => el(`button.${classes}`, { type: "button", onclick, ...props }, title);
export const muted = (...text) => el("span.muted", text);

export const setValue = (input, value) => {
	if (document.activeElement !== input) input.value = value;
};

export const lines = (list) => list.map((line) => el("span.line", line || " "));

export const field = (title, control) => el("label.field", el("span", title), control);

/** Characters that a search looks at: patterns are slow on long names. */
const SEARCHED = 2000;

export const createSearch = (title, apply) => {
	let timer = 0;
	const typed = () => {
		clearTimeout(timer);
		timer = setTimeout(() => apply(input.value), 150);
	};
	const input = el("input", { type: "search", size: 30, placeholder: "regular expression", "aria-label": title, spellcheck: "false", oninput: typed });
	const note = el("b.found", { role: "status" });
	const parse = (text) => {
		setValue(input, text);
		let [pattern, error] = [null, ""];
		try {
			pattern = text ? new RegExp(text) : null;
		} catch ({ message }) {
			error = message;
		}
		input.setAttribute("aria-invalid", Boolean(error));
		if (!pattern) setText(note, error);
		return pattern && ((name) => pattern.test(name.slice(0, SEARCHED)));
	};
	return { input, note, parse };
};

/** Sets text if it changed, so that a selection stays. */
export const setText = (element, text) => {
	const shown = visible(text, LONGEST);
	if (element.textContent !== shown) element.textContent = shown;
};

/** Replaces the content, unless text of it is selected, and keeps the focus. */
export const renew = (element, ...children) => {
	const selection = getSelection();
	if (!selection.isCollapsed && element.contains(selection.anchorNode)) return;
	const controls = () => [...element.querySelectorAll("a, button, input, select")];
	const focused = controls().indexOf(document.activeElement);
	element.replaceChildren();
	append(element, children);
	controls()[focused]?.focus({ preventScroll: true });
};

/** Returns a table. A title that begins with # heads a column of numbers. */
export const table = (caption, titles, rows) => {
	const cell = (tag, at, content) => el(titles[at][0] === "#" ? `${tag}.number` : tag, content);
	return el("table", el("caption.unseen", caption),
		el("thead", el("tr", titles.map((title, at) => cell("th", at, title.replace("#", ""))))),
		el("tbody", rows.map((row) => el("tr", row.map((content, at) => cell("td", at, content))))));
};

/** Returns the table behind a picture. It is made when it is opened. */
export const behind = (title, make) => {
	const body = el("div.scroll");
	const details = el("details.behind", { ontoggle: () => details.refresh() }, el("summary", title), body);
	details.refresh = () => details.open && renew(body, make());
	return details;
};

export const themeColor = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();

/** Fits a canvas to its place and to the pixels of the screen. */
export const sized = (canvas, height, font = "11px system-ui, sans-serif") => {
	const ratio = devicePixelRatio || 1;
	canvas.style.height = `${height}px`;
	canvas.width = Math.round(canvas.clientWidth * ratio);
	canvas.height = Math.round(height * ratio);
	const context = canvas.getContext("2d");
	context.scale(ratio, ratio);
	context.font = font;
	return context;
};

export const onWidth = (element, callback) => {
	let width = 0;
	new ResizeObserver(() => {
		if (element.clientWidth !== width) callback();
		width = element.clientWidth;
	}).observe(element);
};
