// Numbers, units and names as text.

// Control, format and bidirectional characters change the text around them; lone surrogates are no text.
const HIDDEN = /[\p{Cc}\p{Cf}\p{Cs}\p{Zl}\p{Zp}\u115f\u1160\u3164\uffa0]/gu;
// Stacked marks would cover the lines above and below.
const STACKED = /(\p{M}{3})\p{M}+/gu;

/** Returns text with characters that cannot be seen as escapes, cut after `most` characters. */
export const visible = (text, most = 300) => {
  // Cut first: a name may have any length.
  const part = text.length > most ? `${text.slice(0, Math.max(most - 2, 1))}..` : text;
  return part.replace(HIDDEN, (c) => `\\u{${c.codePointAt(0).toString(16)}}`).replace(STACKED, "$1");
};

const scaled = (value, factor, names) => {
  let step = 0;
  while (Math.abs(value) >= factor * 0.9995 && step + 1 < names.length) {
    value /= factor;
    step += 1;
  }
  const digits = step === 0 ? 0 : Math.abs(value) < 10 ? 2 : Math.abs(value) < 100 ? 1 : 0;
  return `${value.toFixed(digits)} ${names[step]}`.trim();
};

export const count = (value) =>
  Math.abs(value) < 10000 ? Math.round(value).toLocaleString("en-US") : scaled(value, 1000, ["", "k", "M", "G", "T"]);

export const bytes = (value) => scaled(value, 1024, ["B", "KiB", "MiB", "GiB", "TiB"]);

/** Returns a rate without its unit. Small rates keep a digit, so that they are not shown as none. */
export const rate = (value) => {
  if (value === 0) return "0";
  return value < 0.05 ? "<0.1" : value < 10 ? value.toFixed(1) : count(value);
};

/** Returns a span of time in seconds as text. */
export const duration = (seconds) => {
  const size = Math.abs(seconds);
  if (size < 1) return `${Math.round(seconds * 1000)} ms`;
  if (size < 120) return `${seconds.toFixed(size < 10 ? 1 : 0)} s`;
  if (size < 7200) return `${Math.round(seconds / 60)} min`;
  return size < 172800 ? `${Math.round(seconds / 3600)} h` : `${Math.round(seconds / 86400)} d`;
};

const two = (value) => String(value).padStart(2, "0");

/** Returns the local date and time of a number of milliseconds since 1970. */
export const dateTime = (millis) => {
  const date = new Date(millis);
  const day = `${date.getFullYear()}-${two(date.getMonth() + 1)}-${two(date.getDate())}`;
  return `${day} ${time(millis)}`;
};

/** Returns the local time of day. */
export const time = (millis) => {
  const date = new Date(millis);
  return `${two(date.getHours())}:${two(date.getMinutes())}:${two(date.getSeconds())}`;
};

/** Returns the time of day, and the date unless that is the date of `now`. */
export const moment = (millis, now = Date.now()) => {
  const [day, clock] = dateTime(millis).split(" ");
  return dateTime(now).startsWith(day) ? clock : `${day} ${clock}`;
};

const TIMES = ["ns", "us", "ms", "s"];
const UNITS = new Map([
  ["nanoseconds", TIMES], ["ns", TIMES],
  ["microseconds", TIMES.slice(1)], ["us", TIMES.slice(1)],
  ["milliseconds", TIMES.slice(2)], ["ms", TIMES.slice(2)],
  ["seconds", ["s"]], ["s", ["s"]],
]);

/** Returns a value of a profile with its unit. */
export const amount = (value, unit) => {
  if (unit === "bytes" || unit === "By") return bytes(value);
  const steps = UNITS.get(unit);
  return steps ? scaled(value, 1000, steps) : count(value);
};

/** Returns a value with its sign. */
export const change = (value, unit) => `${value > 0 ? "+" : ""}${amount(value, unit)}`;

export const share = (part, whole) => `${(whole ? (100 * part) / whole : 0).toFixed(2)}%`;

/** Returns `1 item`, `2 items`. */
export const plural = (value, noun) => `${count(value)} ${noun}${value === 1 ? "" : "s"}`;
