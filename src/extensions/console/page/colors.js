// Colors of frames and series. Color-blind people tell the hues apart, and no color is the only sign of anything.

const HUES = [[32, 85], [203, 70], [164, 50], [50, 80], [222, 65], [14, 80], [325, 45], [185, 40]];

export const isDark = () => document.documentElement.dataset.theme === "dark";

const packageOf = (name) => {
	const plain = name.slice(0, 300).split(/[(<[]/)[0];
	const base = plain.lastIndexOf("/") + 1;
	const [first] = plain.slice(base).split(/::|\./);
	return plain.slice(0, base) + first;
};

export const packageColor = (name) => {
	let hash = 2166136261;
	for (const c of packageOf(name)) hash = Math.imul(hash ^ c.codePointAt(0), 16777619) >>> 0;
	const [hue, saturation] = HUES[hash % HUES.length];
	const light = ((hash >>> 8) % 5) * 2.5;
	return isDark() ? `hsl(${hue},${saturation * 0.6}%,${24 + light}%)` : `hsl(${hue},${saturation}%,${70 + light}%)`;
};

/** Returns the color of a change from -1 to 1: blue is less, orange is more. */
export const changeColor = (change) => {
	const size = Math.abs(change);
	const light = isDark() ? 20 + 18 * size : 95 - 30 * size;
	return `hsl(${change < 0 ? 210 : 28},${size ? 30 + 55 * size : 0}%,${light}%)`;
};

export const seriesColor = (at) => {
	const [hue, saturation] = HUES[(at + 1) % HUES.length];
	return `hsl(${hue},${saturation}%,${isDark() ? 58 : 46}%)`;
};

export const heatColor = (part) => (isDark() ? `hsl(${210 - 160 * part},70%,${16 + 50 * part}%)` : `hsl(${50 + 160 * part},75%,${92 - 62 * part}%)`);
