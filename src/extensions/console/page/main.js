// The frame of the page: pages by the fragment of the address, theme, and the snapshot that is fetched every second.

import { askJson } from "./api.js";
import { setText } from "./dom.js";
import { duration } from "./format.js";
import * as pipeline from "./pipeline.js";
import * as profiles from "./profiles.js";

const INTERVAL = 1000;
const LONGEST_WAIT = 5000;
const THEMES = ["system", "light", "dark"];

const at = (id) => document.getElementById(id);
const app = { snapshot: null, paused: false, isConnected: false };
const pages = { pipeline: pipeline.create(at("pipeline"), app), profiles: profiles.create(at("profiles"), app) };
const all = Object.values(pages);
let shown = null;
let fragment = "";

const route = () => {
	const [name, query = ""] = location.hash.slice(1).split("?");
	const next = Object.hasOwn(pages, name) ? name : "pipeline";
	for (const link of document.querySelectorAll("[data-page]")) {
		link.setAttribute("aria-current", link.dataset.page === next ? "page" : "false");
		// The way back leads to what was shown.
		if (link.dataset.page === shown && shown !== next) link.href = fragment;
		at(link.dataset.page).hidden = link.dataset.page !== next;
	}
	if (shown && shown !== next) pages[shown].hide();
	shown = next;
	pages[next].show(new URLSearchParams(query));
};
// Pages change their fragment without an event.
const remember = () => (fragment = location.hash || "#pipeline");

const dark = matchMedia("(prefers-color-scheme: dark)");
let theme = "system";
const setTheme = (forced) => {
	document.documentElement.dataset.theme = forced ?? (theme === "system" ? (dark.matches ? "dark" : "light") : theme);
	at("theme").textContent = `Theme: ${theme}`;
	for (const page of all) page.redraw();
};
const stored = (action) => {
	try {
		return action(localStorage);
	} catch {
		return null;
	}
};
at("theme").addEventListener("click", () => {
	theme = THEMES[(THEMES.indexOf(theme) + 1) % THEMES.length];
	stored((storage) => storage.setItem("theme", theme));
	setTheme();
});
dark.addEventListener("change", () => setTheme());
// Paper is white, and pictures have the colors that they were drawn with.
addEventListener("beforeprint", () => setTheme("light"));
addEventListener("afterprint", () => setTheme());

let timer = 0;
let isAsking = false;
let failures = 0;

const show = (kind, status, message) => {
	at("status").dataset.kind = kind;
	setText(at("status"), status);
	at("alert").hidden = !message;
	setText(at("alert"), message);
};

const showLive = (message) => show(app.paused ? "paused" : "live", app.paused ? "paused" : "live", message);

const received = (snapshot) => {
	const age = (snapshot.time - snapshot.started) / 1000;
	const isNew = app.snapshot && app.snapshot.started !== snapshot.started;
	if (isNew) app.restarted = true;
	const returned = isNew || failures > 0;
	[failures, app.isConnected, app.snapshot] = [0, true, snapshot];
	showLive(app.restarted && age < 60 ? "The collector was restarted. Counts began anew." : "");
	setText(at("host"), [snapshot.host, `version ${snapshot.version}`, snapshot.phase, `up ${duration(age)}`].filter(Boolean).join(" | "));
	for (const page of all) page.update(snapshot);
	if (returned) for (const page of all) page.refresh(true);
};

const lost = (error) => {
	failures += 1;
	app.isConnected = false;
	const isDown = error.status === 0 || error.status > 500;
	show("lost", isDown ? "disconnected, retrying" : "no data, retrying", `${error.message}${app.snapshot ? " The page shows the last data." : ""}`);
};

/** Fetches snapshots, unless the tab is hidden. */
const poll = async () => {
	clearTimeout(timer);
	if (isAsking || document.hidden || app.paused) return;
	isAsking = true;
	const began = performance.now();
	const snapshot = await askJson("pipeline").catch(lost);
	isAsking = false;
	const wait = snapshot ? INTERVAL : Math.min(INTERVAL * 2 ** (failures - 1), LONGEST_WAIT);
	timer = setTimeout(poll, Math.max(wait - (performance.now() - began), 0));
	if (snapshot) received(snapshot);
};
const resume = () => {
	poll();
	for (const page of all) page.refresh(false);
};
document.addEventListener("visibilitychange", resume);
at("pause").addEventListener("click", () => {
	app.paused = !app.paused;
	at("pause").setAttribute("aria-pressed", app.paused);
	showLive("");
	resume();
});

theme = stored((storage) => storage.getItem("theme")) ?? "system";
setTheme();
document.querySelector("nav").addEventListener("click", remember);
addEventListener("hashchange", route);
route();
poll();
