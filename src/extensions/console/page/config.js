// The effective configuration as lines, with the section of a component marked.

import { el, replace } from "./dom.js";

/** Longest line to show, in characters. */
const LONGEST = 400;

const keyOf = (line) => {
  const match = /^( *)(?:"((?:[^"\\]|\\.)*)"|'((?:[^']|'')*)'|([^\s#"'-][^:]*|[^:\s]+)):(?: +(.*))?$/.exec(line);
  if (!match) return null;
  return { indent: match[1].length, key: match[2] ?? match[3]?.replaceAll("''", "'") ?? match[4], value: match[5] ?? "" };
};

/** Returns the lines of a section as `[first, end]`, or null. */
export const section = (lines, path) => {
  let [first, end, indent] = [0, lines.length, -1];
  for (const wanted of path) {
    let found = -1;
    let level = -1;
    for (let at = indent < 0 ? first : first + 1; at < end && found < 0; at += 1) {
      const entry = keyOf(lines[at]);
      // The first key tells how far the keys of this level are indented.
      if (entry && level < 0) level = entry.indent;
      if (entry && entry.indent === level && level > indent && entry.key === wanted) found = at;
    }
    if (found < 0) return null;
    let next = found + 1;
    const isInside = (line) => line.trim() === "" || line.search(/\S/) > level || (line.search(/\S/) === level && /^ *- /.test(line));
    while (next < end && isInside(lines[next])) next += 1;
    [first, end, indent] = [found, next, level];
  }
  return [first, end];
};

/** Returns the value of a key in the text of a configuration, or null. */
export const valueAt = (text, path) => {
  const lines = text.split("\n");
  const found = section(lines, path);
  const value = found && keyOf(lines[found[0]]).value.replace(/^["']|["']$/g, "");
  return value || null;
};

export const createConfig = (place) => {
  const body = el("pre", { tabindex: 0, "aria-label": "Effective configuration", class: "config" });
  const details = el("details", { class: "card" }, el("summary", {}, "Effective configuration (secrets masked)"), body);
  place.append(details);
  let lines = [];
  let marked = null;
  const show = () => {
    const range = marked && section(lines, marked);
    replace(body, lines.map((line, at) =>
      el("span", { class: range && at >= range[0] && at < range[1] ? "line marked" : "line" }, line.length > LONGEST ? `${line.slice(0, LONGEST)}..` : line || " ")));
    return range;
  };
  return {
    update(text) {
      lines = text.replace(/\n$/, "").split("\n");
      show();
    },
    /** Opens the configuration at the section of a component. */
    reveal(path) {
      marked = path;
      details.open = true;
      const range = show();
      body.focus({ preventScroll: true });
      (range ? body.children[range[0]] : details).scrollIntoView({ block: "center" });
    },
  };
};
