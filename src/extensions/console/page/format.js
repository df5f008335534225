// Numbers, units and names as text.

// Control, format and bidirectional characters change the text around them.
const HIDDEN = /[\p{Cc}\p{Cf}\p{Cs}\p{Zl}\p{Zp}\u115f\u1160\u3164\uffa0]/gu;
// Stacked marks would cover the lines above and below.
const STACKED = /(\p{M}{3})\p{M}+/gu;

/** Returns text with escapes for what cannot be seen, cut after `most` characters. */
export const visible = (text, most = 300) => {
	// Cut first: a name may have any length.
	const part = text.length > most ? `${text.slice(0, Math.max(most - 2, 1))}..` : text;
	return part.replace(HIDDEN, (c) => `\\u{${c.codePointAt(0).toString(16)}}`).replace(STACKED, "$1");
};

const scaled = (value, factor, names) => {
	let step = 0;
	for (; Math.abs(value) >= factor * 0.9995 && step + 1 < names.length; step += 1) value /= factor;
	const size = Math.abs(value);
	return `${value.toFixed(step === 0 || size >= 100 ? 0 : size < 10 ? 2 : 1)} ${names[step]}`.trim();
};

export const count = (value) =>
	Math.abs(value) < 10000 ? Math.round(value).toLocaleString("en-US") : scaled(value, 1000, ["", "k", "M", "G", "T"]);

export const bytes = (value) => scaled(value, 1024, ["B", "KiB", "MiB", "GiB", "TiB"]);

export const rate = (value) => (value === 0 ? "0" : value < 0.05 ? "<0.1" : value < 10 ? value.toFixed(1) : count(value));

export const duration = (seconds) => {
	if (seconds < 1) return `${Math.round(seconds * 1000)} ms`;
	if (seconds < 120) return `${seconds.toFixed(seconds < 10 ? 1 : 0)} s`;
	if (seconds < 7200) return `${Math.round(seconds / 60)} min`;
	return seconds < 172800 ? `${Math.round(seconds / 3600)} h` : `${Math.round(seconds / 86400)} d`;
};

export const dateTime = (millis) => {
	// A link may have a time that no date has.
	if (!(Math.abs(millis) < 8e15)) return String(millis);
	const zone = new Date(millis).getTimezoneOffset() * 60000;
	return new Date(millis - zone).toISOString().slice(0, 19).replace("T", " ");
};

export const time = (millis) => dateTime(millis).slice(11);

export const moment = (millis) => (dateTime(millis).slice(0, 10) === dateTime(Date.now()).slice(0, 10) ? time(millis) : dateTime(millis));

const TIMES = ["ns", "us", "ms", "s"];
const UNITS = { nanoseconds: 0, ns: 0, microseconds: 1, us: 1, milliseconds: 2, ms: 2, seconds: 3, s: 3 };

export const amount = (value, unit) => {
	if (unit === "bytes" || unit === "By") return bytes(value);
	return Object.hasOwn(UNITS, unit) ? scaled(value, 1000, TIMES.slice(UNITS[unit])) : count(value);
};

export const signed = (value, unit) => `${value > 0 ? "+" : ""}${amount(value, unit)}`;

export const share = (part, whole) => `${(whole ? (100 * part) / whole : 0).toFixed(2)}%`;

export const plural = (value, noun) => `${count(value)} ${noun}${value === 1 ? "" : "s"}`;
