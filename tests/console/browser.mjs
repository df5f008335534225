// Drives the console in Chromium, on a running collector that scrapes a Go program.
//
// usage: COLLECTOR=target/debug/collector GO=/usr/local/go/bin/go CHROMIUM=/usr/bin/chromium \
//        PUPPETEER=.../node_modules/puppeteer-core/lib/esm/puppeteer/puppeteer-core.js node tests/console/browser.mjs
//
// Prints a line for each check, and exits with 1 if one of them fails. With SCREENSHOTS, pictures of both pages in both
// themes are written to that directory. With MEASURE, the times of pictures are bounded: only on a quiet machine.

import { execFileSync, spawn } from "node:child_process";
import { mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { createServer, request } from "node:http";
import { createServer as createListener } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { pathToFileURL } from "node:url";

const { COLLECTOR, GO = "go", CHROMIUM = "/usr/bin/chromium", PUPPETEER, SCREENSHOTS } = process.env;
if (!COLLECTOR || !PUPPETEER) {
  console.error("set COLLECTOR to the binary and PUPPETEER to the module of puppeteer-core");
  process.exit(2);
}
const { default: puppeteer } = await import(pathToFileURL(PUPPETEER).href);

/** Longest time for a condition, in milliseconds. */
const PATIENCE = 30000;
/** Bounds in milliseconds for the time from an answer to its picture, and for a zoom. Checked on a quiet machine only. */
const [FIRST_PAINT, ZOOM] = process.env.MEASURE ? [300, 100] : [Infinity, Infinity];

const HOSTILE_SERVICE = '<img src=x onerror="document.title=1">\u202egnp\u0000\u0001';
const HOSTILE_FUNCTION = "<script>document.title=1</script>\u202e";

const directory = mkdtempSync(join(tmpdir(), "console-"));
const started = [];
let failures = 0;

const check = async (name, test) => {
  try {
    await test();
    console.log(`ok    ${name}`);
  } catch (error) {
    failures += 1;
    console.log(`FAIL  ${name}: ${error.message.split("\n")[0]}`);
  }
};

const expect = (condition, message) => {
  if (!condition) throw new Error(message);
};

const later = (millis) => new Promise((resolve) => setTimeout(resolve, millis));

/** Waits until a condition returns something. */
const until = async (name, condition) => {
  const end = Date.now() + PATIENCE;
  for (;;) {
    const found = await Promise.resolve(condition()).catch(() => null);
    if (found) return found;
    if (Date.now() > end) throw new Error(`timeout: ${name}`);
    await later(50);
  }
};

/** Returns a port that the kernel has just given away. */
const freePort = () =>
  new Promise((resolve, reject) => {
    const listener = createListener();
    listener.once("error", reject);
    listener.listen(0, "127.0.0.1", () => {
      const { port } = listener.address();
      listener.close(() => resolve(port));
    });
  });

const start = (command, args) => {
  const child = spawn(command, args, { stdio: ["ignore", "pipe", "pipe"] });
  child.output = "";
  for (const stream of [child.stdout, child.stderr]) stream.on("data", (data) => (child.output = (child.output + data).slice(-20000)));
  child.ended = new Promise((resolve) => child.once("exit", resolve));
  started.push(child);
  return child;
};

const GO_PROGRAM = `package main

import (
	"net/http"
	_ "net/http/pprof"
	"os"
)

var sink float64

//go:noinline
func burnLeaf(n int) float64 {
	sum := 0.0
	for i := 1; i < n; i++ {
		sum += 1 / float64(i)
	}
	return sum
}

//go:noinline
func burnOften() { sink += burnLeaf(300000) }

//go:noinline
func burnSeldom() { sink += burnLeaf(100000) }

func main() {
	go func() {
		for {
			burnOften()
			burnSeldom()
		}
	}()
	if err := http.ListenAndServe(os.Args[1], nil); err != nil {
		panic(err)
	}
}
`;

const buildBurner = () => {
  writeFileSync(join(directory, "main.go"), GO_PROGRAM);
  writeFileSync(join(directory, "go.mod"), "module burner\n\ngo 1.20\n");
  execFileSync(GO, ["build", "-o", "burner", "."], { cwd: directory, stdio: "inherit" });
};

const startBurner = async (port) => {
  start(join(directory, "burner"), [`127.0.0.1:${port}`]);
  await until("the Go program listens", async () => (await fetch(`http://127.0.0.1:${port}/debug/pprof/cmdline`)).ok);
};

const configuration = (ports) => `
receivers:
  otlp:
    protocols:
      http:
        endpoint: 127.0.0.1:${ports.otlp}
  pprof:
    targets:
${["burner", HOSTILE_SERVICE]
  .map(
    (service) => `      - endpoint: http://127.0.0.1:${ports.burner}
        profiles: [{name: cpu, seconds: 1, collection_interval: 3s}]
        resource:
          service.name: ${JSON.stringify(service)}`,
  )
  .join("\n")}
exporters:
  debug:
  profile_store:
    directory: ${JSON.stringify(join(directory, "profiles"))}
extensions:
  console:
    endpoint: 127.0.0.1:${ports.console}
service:
  extensions: [console]
  telemetry:
    metrics:
      readers: [{pull: {exporter: {prometheus: {host: 127.0.0.1, port: ${ports.metrics}}}}}]
  pipelines:
    traces: {receivers: [otlp], exporters: [debug]}
    profiles: {receivers: [pprof], exporters: [profile_store]}
`;

const SPAN = {
  resourceSpans: [
    {
      resource: { attributes: [{ key: "service.name", value: { stringValue: "shop" } }] },
      scopeSpans: [
        {
          spans: [
            {
              name: "checkout",
              traceId: "5b8efff798038103d269b633813fc60c",
              spanId: "eee19b7ec3c1b174",
              startTimeUnixNano: "1760000000000000000",
              endTimeUnixNano: "1760000000250000000",
            },
          ],
        },
      ],
    },
  ],
};

/** Serves the console below `/some/prefix/`, as a proxy does. */
const startProxy = async (to) => {
  const port = await freePort();
  const proxy = createServer((incoming, outgoing) => {
    if (!incoming.url.startsWith("/some/prefix/")) {
      outgoing.writeHead(404).end();
      return;
    }
    const path = incoming.url.slice("/some/prefix".length);
    const onward = request({ host: "127.0.0.1", port: to, path, method: incoming.method, headers: { ...incoming.headers, host: `127.0.0.1:${to}` } }, (answer) => {
      outgoing.writeHead(answer.statusCode, answer.headers);
      answer.pipe(outgoing);
    });
    onward.on("error", () => outgoing.destroy());
    incoming.pipe(onward);
  });
  await new Promise((resolve) => proxy.listen(port, "127.0.0.1", resolve));
  return { url: `http://127.0.0.1:${port}/some/prefix/`, close: () => (proxy.close(), proxy.closeAllConnections()) };
};

const ports = { otlp: await freePort(), burner: await freePort(), console: await freePort(), metrics: await freePort() };
const origin = `http://127.0.0.1:${ports.console}`;
const configFile = join(directory, "config.yaml");
writeFileSync(configFile, configuration(ports));

const startCollector = async () => {
  const collector = start(COLLECTOR, [`--config=${configFile}`]);
  const isUp = async () => {
    if (collector.exitCode !== null) throw new Error(`the collector ended: ${collector.output}`);
    return (await fetch(`${origin}/api/v1/pipeline`)).ok;
  };
  await until("the console answers", isUp);
  return collector;
};

/** Findings of all tabs: requests to other origins, violations of the policy, and errors. */
const findings = { requests: [], violations: [], errors: [] };

/** Opens a tab that notes what must not happen. */
const open = async (browser, url, { width = 1440, height = 900, theme = "light" } = {}) => {
  const page = await browser.newPage();
  await page.setViewport({ width, height });
  await page.emulateMediaFeatures([{ name: "prefers-color-scheme", value: theme }]);
  await page.exposeFunction("noteViolation", (text) => findings.violations.push(text));
  await page.evaluateOnNewDocument(() => {
    addEventListener("securitypolicyviolation", (event) => window.noteViolation(`${event.violatedDirective} ${event.blockedURI}`));
  });
  page.on("pageerror", (error) => findings.errors.push(error.stack ?? String(error)));
  page.on("console", (message) => {
    // A collector that is down for a restart, or refuses for the test, is reported by Chromium itself.
    const isExpected = /Failed to load resource/.test(message.text());
    if (message.type() === "error" && !isExpected) findings.errors.push(message.text());
  });
  page.on("request", (asked) => {
    const address = new URL(asked.url());
    const isOwn = ["data:", "blob:"].includes(address.protocol) || asked.url().startsWith(new URL(url).origin);
    if (!isOwn) findings.requests.push(asked.url());
  });
  page.setDefaultTimeout(PATIENCE);
  await page.goto(url);
  return page;
};

const text = (page, selector) => page.$eval(selector, (element) => element.textContent);
const status = (page) => text(page, "#status");
const click = (page, selector) => page.$eval(selector, (element) => element.dispatchEvent(new MouseEvent("click", { bubbles: true })));
const tab = async (page, view) => {
  await click(page, `[data-view="${view}"]`);
  await page.waitForFunction((name) => document.querySelector("[role=tabpanel]").dataset.loaded === name, {}, view);
};
const state = (page) => page.evaluate(() => Object.fromEntries(new URLSearchParams(location.hash.split("?")[1])));
/** Description of the focused frame of a flame graph. */
const FLAME = "#profiles canvas.flame";
const flame = (page, at = 0) => page.$$eval(FLAME, (all, index) => all[index]?.getAttribute("aria-label") ?? "", at);

const fill = async (page, selector, value) => {
  await page.$eval(
    selector,
    (input, next) => {
      input.value = next;
      for (const kind of ["input", "change"]) input.dispatchEvent(new Event(kind, { bubbles: true }));
    },
    value,
  );
};

/** Presses a key on the flame graph. */
const press = async (page, key) => {
  await page.focus(FLAME);
  await page.keyboard.press(key);
};

const pipelineChecks = async (page) => {
  await check("the graph shows receivers, pipelines and exporters", async () => {
    await page.waitForSelector('.box[data-id$="profile_store"]');
    const names = await page.$$eval(".box .name", (all) => all.map((one) => one.textContent));
    for (const name of ["otlp", "pprof", "debug", "profile_store"]) expect(names.includes(name), `${name} is not in ${names}`);
    expect((await status(page)) === "live", await status(page));
  });
  await check("an empty pipeline explains how to send a span", async () => {
    const hint = await page.waitForSelector("#pipeline .hint pre");
    const command = await hint.evaluate((element) => element.textContent);
    expect(command.startsWith(`curl http://127.0.0.1:${ports.otlp}/v1/traces`), command);
  });
  await check("a span that is sent is seen passing", async () => {
    const answer = await fetch(`http://127.0.0.1:${ports.otlp}/v1/traces`, {
      method: "POST",
      headers: { "content-type": "application/json" },
      body: JSON.stringify(SPAN),
    });
    expect(answer.ok, `status ${answer.status}`);
    await page.waitForFunction(() => {
      const edge = document.querySelector('.edge[data-from="receivers/otlp"]');
      return edge?.classList.contains("flows") && document.querySelector('.box[data-id="receivers/otlp"] .figures').textContent !== "0 items";
    });
    await page.waitForFunction(() => document.querySelector('.box[data-id$="debug"] .figures').textContent === "1 item");
    expect(await page.$eval("#pipeline .hint", (hint) => hint.hidden), "the hint is still shown");
  });
  await check("a box opens its account and its configuration", async () => {
    await page.$eval('.box[data-id="receivers/otlp"]', (box) => box.focus());
    await page.keyboard.press("Enter");
    await page.waitForFunction(() => /received\s*1/.test(document.querySelector(".details").textContent));
    await click(page, ".details .link");
    await page.waitForFunction(() => document.querySelector(".line.marked")?.textContent.includes("otlp"));
    await page.keyboard.press("Escape");
  });
  await check("the table behind the graph has the same components", async () => {
    await page.$eval("#pipeline .behind", (details) => (details.open = true));
    await page.waitForFunction(() => document.querySelector("#pipeline .behind table")?.textContent.includes("profile_store"));
    await page.$eval("#pipeline .behind", (details) => (details.open = false));
  });
  await check("a hidden tab stops asking", async () => {
    let asked = 0;
    page.on("request", () => (asked += 1));
    await page.evaluate(() => {
      Object.defineProperty(document, "hidden", { value: true, configurable: true });
      document.dispatchEvent(new Event("visibilitychange"));
    });
    asked = 0;
    const other = await open(page.browser(), origin);
    let snapshots = 0;
    other.on("response", (answer) => (snapshots += answer.url().endsWith("pipeline") || answer.url().endsWith("pipeline?") ? 1 : 0));
    await until("another tab gets snapshots", () => snapshots >= 3);
    await other.close();
    // A request that was already on its way may have ended.
    expect(asked <= 1, `${asked} requests`);
    await page.evaluate(() => {
      delete document.hidden;
      document.dispatchEvent(new Event("visibilitychange"));
    });
    await until("the tab asks again", () => asked > 1);
  });
};

const profileChecks = async (page) => {
  await check("the page of profiles shows live data", async () => {
    await page.goto(`${origin}/#profiles?from=now-15m`);
    await page.waitForFunction((selector) => / s \(100/.test(document.querySelector(selector)?.getAttribute("aria-label") ?? ""), {}, FLAME);
    expect((await state(page)).type.includes("cpu"), JSON.stringify(await state(page)));
    const before = await flame(page);
    await page.waitForFunction((selector, old) => document.querySelector(selector).getAttribute("aria-label") !== old, {}, FLAME, before);
  });
  await check("the first picture follows its answer", async () => {
    const fresh = await open(page.browser(), `${origin}/#profiles?from=now-15m`);
    await fresh.waitForFunction((selector) => document.querySelector(selector)?.dataset.drawn, {}, FLAME);
    const millis = await fresh.evaluate((selector) => {
      const answer = performance.getEntriesByType("resource").find((entry) => entry.name.includes("/flamegraph"));
      return Number(document.querySelector(selector).dataset.drawn) - answer.responseEnd;
    }, FLAME);
    await fresh.close();
    console.log(`      ${millis.toFixed(1)} ms`);
    expect(millis < FIRST_PAINT, `${millis} ms`);
  });
  await check("a zoom is drawn, and is in the link", async () => {
    await press(page, "ArrowDown");
    const millis = await page.evaluate(async (selector) => {
      const canvas = document.querySelector(selector);
      const began = performance.now();
      canvas.dispatchEvent(new KeyboardEvent("keydown", { key: "Enter", bubbles: true }));
      while (!(Number(canvas.dataset.drawn) > began) || !location.hash.includes("zoom=")) await new Promise(requestAnimationFrame);
      return Number(canvas.dataset.drawn) - began;
    }, FLAME);
    console.log(`      ${millis.toFixed(1)} ms`);
    expect(millis < ZOOM, `${millis} ms`);
    expect(JSON.parse((await state(page)).zoom).length === 1, JSON.stringify(await state(page)));
    await press(page, "Escape");
    await page.waitForFunction(() => !location.hash.includes("zoom="));
  });
  await check("a click zooms to the frame under it", async () => {
    const box = await (await page.$(FLAME)).boundingBox();
    await page.mouse.click(box.x + 30, box.y + 28);
    await page.waitForFunction(() => location.hash.includes("zoom="));
    await page.goBack();
    await page.waitForFunction(() => !location.hash.includes("zoom="));
  });
  await check("elided frames are fetched by a zoom", async () => {
    // The answer of the collector is made small, as if the profile were large.
    const other = await page.browser().newPage();
    await other.setRequestInterception(true);
    const zooms = [];
    other.on("request", (asked) => {
      const address = new URL(asked.url());
      const isPicture = address.pathname.endsWith("/flamegraph");
      if (isPicture && address.searchParams.has("zoom")) zooms.push(asked.url());
      if (isPicture) address.searchParams.set("max_frames", "2");
      asked.continue({ url: address.href });
    });
    await other.goto(`${origin}/#profiles?from=now-15m`);
    await other.waitForFunction((selector) => document.querySelector(selector)?.dataset.drawn, {}, FLAME);
    await press(other, "ArrowDown");
    await press(other, "Enter");
    await until("the zoom is fetched", () => zooms.length > 0);
    await other.close();
  });
  await check("a search tells the share that matches", async () => {
    await fill(page, "#profiles input[type=search]", "burn(Often|Seldom)");
    await page.waitForFunction(() => /matched: \d+\.\d+%/.test(document.querySelector(".found").textContent));
    const share = Number(/matched: ([\d.]+)%/.exec(await text(page, ".found"))[1]);
    expect(share > 50 && share <= 100, `${share}%`);
    await fill(page, "#profiles input[type=search]", "burn(");
    await page.waitForFunction(() => document.querySelector("#profiles input[type=search]").getAttribute("aria-invalid") === "true");
    await fill(page, "#profiles input[type=search]", "burn");
    await page.waitForFunction(() => /matched: \d/.test(document.querySelector(".found").textContent));
  });
  await check("a link restores the state", async () => {
    await press(page, "ArrowDown");
    await press(page, "Enter");
    await page.waitForFunction(() => location.hash.includes("zoom="));
    const link = await page.evaluate(() => location.href);
    const zoomed = JSON.parse((await state(page)).zoom).at(-1);
    const copy = await open(page.browser(), link);
    await copy.waitForFunction(() => /matched: \d/.test(document.querySelector(".found")?.textContent));
    expect((await flame(copy)).includes(zoomed), await flame(copy));
    expect((await copy.$eval("#profiles input[type=search]", (input) => input.value)) === "burn", "the search is lost");
    await copy.close();
    await press(page, "Escape");
    await fill(page, "#profiles input[type=search]", "");
    await page.waitForFunction(() => !location.hash.includes("find="));
  });
  await check("the table behind the picture has the frames", async () => {
    await page.$eval("#profiles .pane .behind", (details) => (details.open = true));
    await page.waitForFunction(() => document.querySelector("#profiles .pane .behind")?.textContent.includes("main.burn"));
    await page.$eval("#profiles .pane .behind", (details) => (details.open = false));
  });
  await check("the table sorts and filters functions", async () => {
    await tab(page, "table");
    const first = () => page.$eval(".functions tbody tr", (row) => row.textContent);
    expect((await first()).includes("main.burnLeaf"), await first());
    await page.$$eval(".functions th button", (all) => all.find((one) => one.textContent === "total").click());
    await page.waitForFunction(() => document.querySelector('.functions th[aria-sort="descending"]').textContent === "total");
    await fill(page, "#profiles [role=tabpanel] input[type=search]", "^main\\.burnOften$");
    await page.waitForFunction(() => document.querySelectorAll(".functions tbody tr").length === 1);
    expect((await first()).includes("main.burnOften"), await first());
  });
  await check("a sandwich shows callers and callees", async () => {
    await click(page, ".functions tbody button");
    await page.waitForFunction(() => document.querySelector("[role=tabpanel]").dataset.loaded === "sandwich");
    await page.waitForFunction((selector) => document.querySelectorAll(selector).length === 2, {}, FLAME);
    const [callers, callees] = [await flame(page, 0), await flame(page, 1)];
    expect(callers.startsWith("callers: main.burnOften") && callees.startsWith("callees: main.burnOften"), `${callers}, ${callees}`);
    await tab(page, "flame");
  });
  await check("two selections are compared as a difference and side by side", async () => {
    await page.select("#compare", "diff");
    await page.waitForFunction(() => location.hash.includes("compare=diff"));
    // The baseline is another series of the same time.
    await page.evaluate(() => {
      const params = new URLSearchParams(location.hash.split("?")[1]);
      for (const [name, value] of [["bfrom", "now-15m"], ["buntil", "now"], ["bquery", '{service_name="burner"}'], ["colors", "change"]]) params.set(name, value);
      location.hash = `#profiles?${params}`;
    });
    await page.waitForFunction((selector) => / to .*%\), /.test(document.querySelector(selector)?.getAttribute("aria-label") ?? ""), {}, FLAME);
    await page.select("#compare", "side");
    await page.waitForFunction((selector) => document.querySelectorAll(selector).length === 2, {}, FLAME);
    await page.waitForFunction((selector) => [...document.querySelectorAll(selector)].every((one) => one.dataset.drawn), {}, FLAME);
    await page.select("#compare", "");
    await page.waitForFunction((selector) => document.querySelectorAll(selector).length === 1, {}, FLAME);
  });
  await check("a range of the time line is a selection", async () => {
    const plot = await (await page.$("#profiles canvas.plot")).boundingBox();
    await page.mouse.move(plot.x + plot.width * 0.5, plot.y + 30);
    await page.mouse.down();
    await page.mouse.move(plot.x + plot.width - 2, plot.y + 30, { steps: 4 });
    await page.mouse.up();
    await page.waitForFunction(() => /[?&]a=\d+&b=\d+/.test(location.hash));
    await page.focus("#profiles canvas.plot");
    await page.keyboard.press("Escape");
    await page.waitForFunction(() => !/[?&]a=/.test(location.hash));
  });
  await check("a heat map says what it shows or lacks", async () => {
    await tab(page, "heat");
    await page.waitForFunction(() => /cells?\.|No sample with a timestamp/.test(document.querySelector("[role=tabpanel]").textContent));
    await tab(page, "flame");
  });
  await check("every format can be downloaded", async () => {
    const folder = join(directory, "downloads");
    mkdirSync(folder);
    const session = await page.createCDPSession();
    await session.send("Browser.setDownloadBehavior", { behavior: "allow", downloadPath: folder });
    const links = await page.$$eval("[data-format]", (all) => all.map((one) => [one.dataset.format, one.href]));
    expect(links.length === 6, `${links.length} formats`);
    for (const [format, link] of links) {
      const answer = await fetch(link);
      expect(answer.ok && (await answer.arrayBuffer()).byteLength > 0, `${format}: status ${answer.status}`);
    }
    await click(page, '[data-format="pprof"]');
    const file = await until("the file is there", () => readdirSync(folder).find((name) => name.endsWith(".pb.gz")));
    const content = readFileSync(join(folder, file));
    expect(content[0] === 0x1f && content[1] === 0x8b, "the file is not gzip");
  });
  await check("paused data stay as they are", async () => {
    await click(page, "#pause");
    await page.waitForFunction(() => document.querySelector("#status").textContent === "paused");
    await click(page, "#pause");
    await page.waitForFunction(() => document.querySelector("#status").textContent === "live");
  });
};

const hostileChecks = async (page) => {
  await check("hostile names of services do nothing", async () => {
    const box = await page.waitForSelector('[data-label="service_name"]');
    const shown = await box.evaluate((select) => [...select.options].map((option) => option.textContent));
    expect(shown.some((name) => name.includes("<img") && name.includes("\\u{202e}gnp\\u{0}\\u{1}")), shown.join(", "));
  });
  await check("a file with hostile names is shown, and nothing of them runs", async () => {
    const file = join(directory, "hostile.folded");
    const long = "n".repeat(100000);
    writeFileSync(file, `${HOSTILE_FUNCTION};b 5\n${long};c 3\nmain;"'\`&<b> 2\n`);
    const input = await page.$("#profiles input[type=file]");
    await input.uploadFile(file);
    await page.waitForFunction(() => document.querySelector("#profiles .hint").textContent.includes("hostile.folded"));
    await page.waitForFunction((selector) => /: all, 10 \(100/.test(document.querySelector(selector)?.getAttribute("aria-label") ?? ""), {}, FLAME);
    for (const view of ["table", "flame"]) {
      await tab(page, view);
      const dangerous = await page.$$eval("#profiles script, #profiles img, #profiles b b, #profiles iframe", (all) => all.length);
      expect(dangerous === 0, `${dangerous} elements`);
    }
    await page.$eval("#profiles .pane .behind", (details) => (details.open = true));
    const cells = await page.waitForFunction(() => {
      const rows = [...document.querySelectorAll("#profiles .pane .behind td")].map((cell) => cell.textContent);
      return rows.length && rows;
    });
    const shown = await cells.jsonValue();
    expect(shown.some((cell) => cell.includes("<script>") && cell.includes("\\u{202e}")), "the escapes are missing");
    expect(shown.every((cell) => cell.length < 1000), "a name is not cut");
    expect((await page.title()) !== "1", "a script ran");
    await page.$$eval("#profiles .hint button", ([close]) => close.click());
    await page.waitForFunction(() => document.querySelector("#profiles .hint").hidden);
  });
  await check("a refusal of the server is explained", async () => {
    const other = await page.browser().newPage();
    await other.setRequestInterception(true);
    other.on("request", (asked) => (asked.url().includes("/api/") ? asked.respond({ status: 401, contentType: "application/json", body: '{"error":"no"}' }) : asked.continue()));
    await other.goto(origin);
    await other.waitForFunction(() => document.querySelector("#alert").textContent.includes("authentication"));
    await other.close();
  });
};

const screenshots = async (browser) => {
  mkdirSync(SCREENSHOTS, { recursive: true });
  for (const [size, width, height] of [["laptop", 1440, 900], ["phone", 390, 844]]) {
    for (const theme of ["light", "dark"]) {
      const page = await open(browser, origin, { width, height, theme });
      await page.waitForSelector(".box");
      await page.screenshot({ path: join(SCREENSHOTS, `pipeline-${size}-${theme}.png`), fullPage: true });
      await page.goto(`${origin}/#profiles?from=now-15m`);
      await page.waitForFunction((selector) => document.querySelector(selector)?.dataset.drawn, {}, FLAME);
      await page.screenshot({ path: join(SCREENSHOTS, `profiles-${size}-${theme}.png`), fullPage: true });
      const overflow = await page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
      await check(`nothing is wider than a ${size} (${theme})`, async () => expect(overflow <= 0, `${overflow} pixels`));
      await page.close();
    }
  }
};

let browser = null;
try {
  buildBurner();
  let collector = await startCollector();
  browser = await puppeteer.launch({ executablePath: CHROMIUM, args: ["--no-sandbox"] });
  const page = await open(browser, origin);
  // Without a graph, nothing below works.
  await page.waitForSelector(".box").catch(() => {
    throw new Error(`the page shows no graph: ${findings.errors.join("; ")}`);
  });
  await pipelineChecks(page);
  // Until here, nothing but the span was to arrive.
  await startBurner(ports.burner);
  await profileChecks(page);
  await hostileChecks(page);
  await check("the page works below the prefix of a proxy", async () => {
    const proxy = await startProxy(ports.console);
    const other = await open(browser, proxy.url);
    await other.waitForSelector(".box");
    await other.close();
    proxy.close();
  });
  if (SCREENSHOTS) await screenshots(browser);
  await check("the page survives a restart of the collector", async () => {
    collector.kill("SIGTERM");
    await collector.ended;
    await page.waitForFunction(() => document.querySelector("#status").textContent.includes("disconnected"));
    expect((await text(page, "#alert")).includes("does not answer"), await text(page, "#alert"));
    collector = await startCollector();
    await page.waitForFunction(() => document.querySelector("#status").textContent === "live");
    expect((await text(page, "#alert")).includes("restarted"), await text(page, "#alert"));
    // The profiles from before the restart are still there.
    await page.waitForFunction((selector) => / s \(100/.test(document.querySelector(selector)?.getAttribute("aria-label") ?? ""), {}, FLAME);
  });
  await check("no request leaves the origin", async () => expect(findings.requests.length === 0, findings.requests.join(", ")));
  await check("the policy of the page has nothing to report", async () => expect(findings.violations.length === 0, findings.violations.join(", ")));
  await check("no error is logged", async () => expect(findings.errors.length === 0, findings.errors.join("; ")));
} catch (error) {
  failures += 1;
  console.log(`FAIL  ${error.stack}`);
} finally {
  await browser?.close();
  for (const child of started) {
    child.kill("SIGTERM");
    await Promise.race([child.ended, later(5000)]);
    if (failures && child.output) console.error(child.output.slice(-3000));
  }
  rmSync(directory, { recursive: true, force: true });
}
process.exit(failures ? 1 : 0);
