// Elements from plain values. Text is always set as text, with hidden characters escaped: no name becomes markup.

import { visible } from "./format.js";

/** Longest text of an element, in characters. */
const LONGEST = 2000;
const PROPERTIES = new Set(["value", "disabled", "hidden"]);

/** Appends nodes and text; leaves out what is null. */
const append = (element, children) => {
  for (const child of children.flat(Infinity)) {
    if (child !== null && child !== undefined) element.append(child instanceof Node ? child : visible(String(child), LONGEST));
  }
  return element;
};

const fill = (element, props, children) => {
  for (const [name, value] of Object.entries(props)) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (PROPERTIES.has(name)) element[name] = value;
    else element.setAttribute(name, value);
  }
  return append(element, children);
};

export const el = (tag, props = {}, ...children) => fill(document.createElement(tag), props, children);
export const svg = (tag, props = {}, ...children) => fill(document.createElementNS("http://www.w3.org/2000/svg", tag), props, children);
export const button = (title, onclick, props = {}) => el("button", { type: "button", onclick, ...props }, title);
export const muted = (...text) => el("span", { class: "muted" }, text);
export const lines = (list) => list.map((line) => el("span", { class: "line" }, line || " "));

/** Returns a label with its control. */
export const field = (title, control) => el("label", { class: "field" }, el("span", {}, title), control);

/** Returns an input for text that is applied while it is typed, after a short pause. */
export const searchInput = (title, apply) => {
  let timer = 0;
  const typed = () => {
    clearTimeout(timer);
    timer = setTimeout(() => apply(input.value), 150);
  };
  const input = el("input", { type: "search", size: 30, placeholder: "regular expression", "aria-label": title, spellcheck: "false", oninput: typed });
  return input;
};

/** Sets text if it changed: an unchanged node costs no layout, and keeps a selection of the user. */
export const setText = (element, text) => {
  const shown = visible(text, LONGEST);
  if (element.textContent !== shown) element.textContent = shown;
};

/** Replaces the content, unless the user is selecting text of it, and keeps the focus on the same control. */
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
  const cell = (tag, at, content) => el(tag, { class: titles[at][0] === "#" ? "number" : "" }, content);
  return el("table", {}, el("caption", { class: "unseen" }, caption),
    el("thead", {}, el("tr", {}, titles.map((title, at) => cell("th", at, title.replace("#", ""))))),
    el("tbody", {}, rows.map((row) => el("tr", {}, row.map((content, at) => cell("td", at, content))))));
};

/** Returns the table behind a picture. It is made when it is opened: a picture may have thousands of parts. */
export const behind = (title, make) => {
  const body = el("div", { class: "scroll" });
  const details = el("details", { class: "behind", ontoggle: () => details.refresh() }, el("summary", {}, title), body);
  details.refresh = () => details.open && renew(body, make());
  return details;
};

/** Returns a color of the theme, for canvases, which have no style sheet. */
export const themeColor = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();

/** Fits a canvas to its place and the pixels of the screen, and returns its context in units of the page. */
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

/** Calls back when the width of an element changes. */
export const onWidth = (element, callback) => {
  let width = 0;
  new ResizeObserver(() => {
    if (element.clientWidth !== width) callback();
    width = element.clientWidth;
  }).observe(element);
};
