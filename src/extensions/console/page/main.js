// The frame of the page: routing, theme, and the snapshots.

import { askJson } from "./api.js";
import { setText } from "./dom.js";
import { duration } from "./format.js";
import * as pipeline from "./pipeline.js";
import * as profiles from "./profiles.js";

const INTERVAL = 1000;
const LONGEST_WAIT = 5000;

const at = (id) => document.getElementById(id);
const app = { snapshot: null, paused: false, isConnected: false };
const pages = { pipeline: pipeline.create(at("pipeline"), app), profiles: profiles.create(at("profiles"), app) };
const all = Object.values(pages);
let shown = null;

const route = () => {
	const [name, query = ""] = location.hash.slice(1).split("?");
	const next = Object.hasOwn(pages, name) ? name : "pipeline";
	for (const link of document.querySelectorAll("[data-page]")) {
		link.setAttribute("aria-current", link.dataset.page === next ? "page" : "false");
		at(link.dataset.page).hidden = link.dataset.page !== next;
	}
	if (shown && shown !== next) pages[shown].hide();
	shown = next;
	pages[next].show(new URLSearchParams(query));
};

const dark = matchMedia("(prefers-color-scheme: dark)");
const theme = document.documentElement.dataset;
let chosen = null;
const setTheme = (forced) => {
	theme.theme = forced ?? chosen ?? (dark.matches ? "dark" : "light");
	for (const page of all) page.redraw();
};
at("theme").addEventListener("click", () => {
	chosen = theme.theme === "dark" ? "light" : "dark";
	setTheme();
});
dark.addEventListener("change", () => setTheme());
// Paper is white.
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
	show("lost", "disconnected, retrying", `${error.message}${app.snapshot ? " The page shows the last data." : ""}`);
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

setTheme();
addEventListener("hashchange", route);
route();
poll();
