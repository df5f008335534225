// The effective configuration as lines, with the section of a component marked.

import { el, lines, renew } from "./dom.js";
import { visible } from "./format.js";

const keyOf = (line) => {
	const match = /^( *)("(?:[^"\\]|\\.)*"|'[^']*'|[^\s#"'-][^:]*):(?: +(.*))?$/.exec(line);
	return match && { indent: match[1].length, key: match[2].replace(/^["']|["']$/g, ""), value: match[3] ?? "" };
};

export const section = (text, path) => {
	let [first, end, indent] = [0, text.length, -1];
	for (const wanted of path) {
		let [found, level] = [-1, -1];
		for (let at = first; at < end && found < 0; at += 1) {
			const entry = keyOf(text[at]);
			if (!entry || entry.indent <= indent) continue;
			// The first key tells how far the keys of this level are indented.
			if (level < 0) level = entry.indent;
			if (entry.indent === level && entry.key === wanted) found = at;
		}
		if (found < 0) return null;
		let next = found + 1;
		// Items of a list may be as far to the left as their key.
		while (next < end && (!text[next].trim() || text[next].search(/\S/) > level || text[next].startsWith("- ", level))) next += 1;
		[first, end, indent] = [found, next, level];
	}
	return [first, end];
};

export const valueAt = (text, path) => {
	const found = section(text, path);
	return found && (keyOf(text[found[0]]).value.replace(/^["']|["']$/g, "") || null);
};

export const createConfig = () => {
	const body = el("pre", { tabindex: 0, "aria-label": "Effective configuration" });
	const element = el("details.card", el("summary", "Effective configuration (secrets masked)"), body);
	let text = [];
	return {
		element,
		update(next) {
			text = next;
			renew(body, lines(text.map((line) => visible(line, 400))));
		},
		reveal(path) {
			element.open = true;
			const [first, end] = section(text, path) ?? [0, 0];
			[...body.children].forEach((line, at) => line.classList.toggle("marked", at >= first && at < end));
			body.focus({ preventScroll: true });
			(body.children[first] ?? element).scrollIntoView({ block: "center" });
		},
	};
};
