// The frame of the page: pages by the fragment of the address, theme, and the snapshot that is fetched every second.

import { askJson } from "./api.js";
import { setText } from "./dom.js";
import { duration } from "./format.js";
import * as pipeline from "./pipeline.js";
import * as profiles from "./profiles.js";

/** Milliseconds between snapshots: the collector makes at most one a second. */
const INTERVAL = 1000;
/** Longest time between attempts while the collector does not answer, in milliseconds. */
const LONGEST_WAIT = 5000;

const at = (id) => document.getElementById(id);
const root = document.documentElement;

/** Shared by the pages. */
const app = { snapshot: null, paused: false, isConnected: false };
const pages = {
  pipeline: pipeline.create(at("pipeline"), app),
  profiles: profiles.create(at("profiles"), app),
};
let shown = null;

const route = () => {
  const [name, query = ""] = location.hash.slice(1).split("?");
  const next = Object.hasOwn(pages, name) ? name : "pipeline";
  for (const link of document.querySelectorAll("nav a")) {
    if (link.dataset.page === next) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  for (const page of Object.keys(pages)) at(page).hidden = page !== next;
  if (shown && shown !== next) pages[shown].hide();
  shown = next;
  pages[next].show(new URLSearchParams(query));
};

// Themes: that of the system, unless the user chose one.
const THEMES = ["system", "light", "dark"];
const dark = matchMedia("(prefers-color-scheme: dark)");
let theme = "system";
try {
  theme = localStorage.getItem("theme") ?? "system";
} catch {
  // Storage is off: the choice lasts until the page is left.
}

const setTheme = (forced) => {
  root.dataset.theme = forced ?? (theme === "system" ? (dark.matches ? "dark" : "light") : theme);
  at("theme").textContent = `Theme: ${theme}`;
  for (const page of Object.values(pages)) page.redraw();
};
at("theme").addEventListener("click", () => {
  theme = THEMES[(THEMES.indexOf(theme) + 1) % THEMES.length];
  try {
    localStorage.setItem("theme", theme);
  } catch {
    // As above.
  }
  setTheme();
});
dark.addEventListener("change", () => setTheme());
// Paper is white, and pictures have the colors that they were drawn with.
addEventListener("beforeprint", () => setTheme("light"));
addEventListener("afterprint", () => setTheme());

// Snapshots. A hidden tab asks for nothing.
let timer = 0;
let isAsking = false;
let failures = 0;

const status = (text, kind) => {
  setText(at("status"), text);
  at("status").dataset.kind = kind;
};

const alertWith = (text) => {
  at("alert").hidden = !text;
  setText(at("alert"), text);
};

const received = (snapshot) => {
  const before = app.snapshot;
  const wasLost = failures > 0;
  failures = 0;
  app.isConnected = true;
  app.snapshot = snapshot;
  status(app.paused ? "paused" : "live", app.paused ? "paused" : "live");
  const restarted = before && before.started !== snapshot.started;
  if (restarted) alertWith("The collector was restarted. Counts begin anew.");
  else if (wasLost || snapshot.time - snapshot.started > 60000) alertWith("");
  const place = [snapshot.host, `version ${snapshot.version}`, snapshot.phase, `up ${duration((snapshot.time - snapshot.started) / 1000)}`];
  setText(at("host"), place.filter(Boolean).join(" | "));
  document.title = snapshot.host ? `Tributary on ${at("host").textContent.split(" | ")[0]}` : "Tributary";
  for (const page of Object.values(pages)) page.update(snapshot, { restarted, recovered: wasLost });
};

const lost = (error) => {
  failures += 1;
  app.isConnected = false;
  const isDown = error.status === 0 || error.status >= 502;
  status(isDown ? "disconnected, retrying" : "no data", "lost");
  const data = app.snapshot ? " What is shown is from before." : "";
  alertWith(`${error.message}${data}`);
};

const poll = async () => {
  clearTimeout(timer);
  if (isAsking || document.hidden || app.paused) return;
  isAsking = true;
  const began = performance.now();
  let snapshot = null;
  try {
    snapshot = await askJson("pipeline");
  } catch (error) {
    lost(error);
  }
  isAsking = false;
  // Outside of the block above: an error of the page is no error of the collector.
  const wait = snapshot ? INTERVAL : Math.min(INTERVAL * 2 ** (failures - 1), LONGEST_WAIT);
  timer = setTimeout(poll, Math.max(wait - (performance.now() - began), 0));
  if (snapshot) received(snapshot);
};
document.addEventListener("visibilitychange", () => {
  for (const page of Object.values(pages)) page.visible(!document.hidden);
  poll();
});
addEventListener("online", poll);

at("pause").addEventListener("click", () => {
  app.paused = !app.paused;
  at("pause").setAttribute("aria-pressed", String(app.paused));
  at("pause").textContent = app.paused ? "Resume" : "Pause";
  status(app.paused ? "paused" : "resuming", app.paused ? "paused" : "live");
  poll();
});

// The fragment names a page, so the link to the content moves the focus by itself.
at("skip").addEventListener("click", (event) => {
  event.preventDefault();
  at("main").focus();
});

setTheme();
addEventListener("hashchange", route);
route();
poll();
