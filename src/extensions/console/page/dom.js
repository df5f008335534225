// Elements from plain values. Text is always set as text, with hidden characters escaped: no name becomes markup.

import { visible } from "./format.js";

const SVG = "http://www.w3.org/2000/svg";

const fill = (element, props, children) => {
  for (const [name, value] of Object.entries(props)) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "value" || name === "checked" || name === "disabled" || name === "open") element[name] = value;
    else if (value === true) element.setAttribute(name, "");
    else if (value !== false && value !== null && value !== undefined) element.setAttribute(name, value);
  }
  append(element, children);
  return element;
};

/** Appends nodes and text; leaves out what is null. */
export const append = (element, children) => {
  for (const child of children.flat(Infinity)) {
    if (child === null || child === undefined || child === false) continue;
    element.append(child instanceof Node ? child : visible(String(child), 2000));
  }
};

export const el = (tag, props = {}, ...children) => fill(document.createElement(tag), props, children);

export const svg = (tag, props = {}, ...children) => fill(document.createElementNS(SVG, tag), props, children);

/** Sets text if it changed: an unchanged node costs no layout, and keeps a selection of the user. */
export const setText = (element, text) => {
  const shown = visible(text, 2000);
  if (element.textContent !== shown) element.textContent = shown;
};

export const replace = (element, ...children) => {
  element.replaceChildren();
  append(element, children);
};

/** Replaces the content, unless the user is selecting text of it, and keeps the focus on the same control. */
export const renew = (element, ...children) => {
  const selection = getSelection();
  if (selection && !selection.isCollapsed && element.contains(selection.anchorNode)) return;
  const controls = () => [...element.querySelectorAll("a, button, input, select, summary, [tabindex]")];
  const focused = controls().indexOf(document.activeElement);
  replace(element, ...children);
  controls()[focused]?.focus({ preventScroll: true });
};

/** Returns a table. `columns` are `[title, isNumber]`; rows have text or nodes. */
export const table = (caption, columns, rows) =>
  el("table", {},
    el("caption", { class: "unseen" }, caption),
    el("thead", {}, el("tr", {}, columns.map(([title, isNumber]) => el("th", { scope: "col", class: isNumber ? "number" : "" }, title)))),
    el("tbody", {}, rows.map((row) => el("tr", {}, row.map((cell, at) => el("td", { class: columns[at][1] ? "number" : "" }, cell))))));

/** Returns a table behind a picture, which is made when it is opened: a picture may have thousands of parts. */
export const behind = (title, make) => {
  const body = el("div", { class: "scroll" });
  const details = el("details", { class: "behind", ontoggle: () => details.refresh() }, el("summary", {}, title), body);
  details.refresh = () => details.open && replace(body, make());
  return details;
};

/** Colors of the theme, for canvases, which have no style sheet. */
export const themeColor = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

/** Fits a canvas to its place and the pixels of the screen, and returns its context in units of the page. */
export const sized = (canvas, height) => {
  const ratio = window.devicePixelRatio || 1;
  const width = canvas.clientWidth;
  canvas.style.height = `${height}px`;
  canvas.width = Math.round(width * ratio);
  canvas.height = Math.round(height * ratio);
  const context = canvas.getContext("2d");
  context.scale(ratio, ratio);
  return { context, width };
};
