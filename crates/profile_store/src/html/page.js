"use strict";
(() => {
  const data = JSON.parse(document.getElementById("profile").textContent);
  const { names, frames, unit, totals, scales, compares } = data;
  const canvas = document.getElementById("graph");
  const context = canvas.getContext("2d");
  const about = document.getElementById("about");
  const found = document.getElementById("found");
  const search = document.getElementById("search");
  const ROW = 18;
  const root = document.documentElement;

  const children = frames.map(() => []);
  const depth = frames.map(() => 0);
  frames.forEach((frame, at) => {
    if (at > 0) {
      children[frame.parent].push(at);
      depth[at] = depth[frame.parent] + 1;
    }
  });

  let zoomed = data.zoomed;
  let focused = zoomed;
  let hovered = null;
  let pattern = null;
  let boxes = [];

  const label = (at) => {
    const frame = frames[at];
    if (frame.elided) return `(${frame.elided} more)`;
    return visible(names[frame.name]) || "all";
  };

  // Characters that change the direction or the form of the text around them are not drawn as such.
  const visible = (text) =>
    text.replace(/[\u0000-\u001f\u007f-\u009f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff]/g, "\ufffd");

  const UNITS = {
    nanoseconds: [["ns", "us", "ms", "s"], 1000], ns: [["ns", "us", "ms", "s"], 1000],
    microseconds: [["us", "ms", "s"], 1000], milliseconds: [["ms", "s"], 1000],
    bytes: [["B", "KiB", "MiB", "GiB", "TiB"], 1024],
  };
  const shown = (value) => {
    const [steps, factor] = UNITS[unit] || [["", "k", "M", "G"], 1000];
    let step = 0;
    while (Math.abs(value) >= factor && step + 1 < steps.length) {
      value /= factor;
      step += 1;
    }
    return `${value.toFixed(step ? 2 : 0)} ${steps[step]}`.trim();
  };
  const share = (value, total) => `${(total ? (100 * value) / total : 0).toFixed(2)}%`;
  const describe = (at) => {
    const { total, own } = frames[at];
    if (!compares) {
      return `${label(at)}: ${shown(total[0])} (${share(total[0], totals[0])}), self ${shown(own[0])}`;
    }
    const both = (values) => `${shown(values[0] * scales[0])} -> ${shown(values[1] * scales[1])}`;
    const shares = `${share(total[0], totals[0])} -> ${share(total[1], totals[1])}`;
    return `${label(at)}: ${both(total)} (${shares}), self ${both(own)}`;
  };

  const packageOf = (name) => {
    const plain = name.split(/[(<]/)[0];
    const base = plain.lastIndexOf("/") + 1;
    const rest = plain.slice(base);
    const colons = rest.lastIndexOf("::");
    const end = colons >= 0 ? colons : rest.indexOf(".");
    return end >= 0 ? name.slice(0, base + end) : name;
  };
  const hues = new Map();
  const hue = (name) => {
    if (!hues.has(name)) {
      let hash = 2166136261;
      for (const c of packageOf(name).slice(0, 200)) hash = Math.imul(hash ^ c.codePointAt(0), 16777619) >>> 0;
      hues.set(name, hash);
    }
    return hues.get(name);
  };
  const isDark = () => root.classList.contains("dark");
  const theme = (name) => getComputedStyle(root).getPropertyValue(name);
  const color = (at, elided, mark) => {
    const frame = frames[at];
    const name = names[frame.name];
    if (frame.elided) return elided;
    if (pattern && pattern.test(name)) return mark;
    if (!compares) {
      const hash = hue(name);
      const light = isDark() ? 34 + (hash % 10) : 64 + (hash % 12);
      return `hsl(${hash % 55},${isDark() ? 55 : 78}%,${light}%)`;
    }
    const before = frame.total[0] * scales[0];
    const after = frame.total[1] * scales[1];
    const larger = Math.max(Math.abs(before), Math.abs(after));
    const change = larger ? (after - before) / larger : 0;
    const light = isDark() ? 22 + 26 * Math.abs(change) : 94 - 34 * Math.abs(change);
    return `hsl(${change < 0 ? 210 : 28},85%,${light}%)`;
  };

  const layout = (width) => {
    boxes = [];
    const path = [];
    for (let at = zoomed; ; at = frames[at].parent) {
      path.unshift(at);
      if (at === 0) break;
    }
    for (const at of path) boxes.push({ at, x: 0, w: width });
    const open = [{ at: zoomed, x: 0, w: width }];
    while (open.length) {
      const { at, x, w } = open.pop();
      const whole = frames[at].weight;
      let left = x;
      for (const child of children[at]) {
        const wide = whole ? (w * frames[child].weight) / whole : 0;
        if (wide >= 0.3) {
          boxes.push({ at: child, x: left, w: wide });
          open.push({ at: child, x: left, w: wide });
        }
        left += wide;
      }
    }
  };

  const draw = () => {
    const width = canvas.clientWidth;
    layout(width);
    const rows = boxes.reduce((most, box) => Math.max(most, depth[box.at]), 0) + 1;
    const ratio = window.devicePixelRatio || 1;
    // Browsers refuse larger pictures.
    const height = Math.min(rows * ROW, 16000 / ratio);
    canvas.style.height = `${height}px`;
    canvas.width = Math.round(width * ratio);
    canvas.height = Math.round(height * ratio);
    context.scale(ratio, ratio);
    context.font = "12px ui-monospace, monospace";
    context.textBaseline = "middle";
    const character = context.measureText("m").width;
    const [text, elided, mark] = ["--text", "--elided", "--mark"].map(theme);
    for (const { at, x, w } of boxes) {
      const y = depth[at] * ROW;
      context.globalAlpha = depth[at] < depth[zoomed] ? 0.55 : 1;
      context.fillStyle = color(at, elided, mark);
      context.fillRect(x, y, Math.max(w - 0.5, 0.3), ROW - 1);
      if (at === focused || at === hovered) {
        context.strokeStyle = text;
        context.strokeRect(x + 0.5, y + 0.5, Math.max(w - 1.5, 0), ROW - 2);
      }
      const fitting = Math.floor((w - 6) / character);
      if (fitting >= 3) {
        const whole = label(at);
        const part = whole.length > fitting ? `${whole.slice(0, fitting - 2)}..` : whole;
        const isMarked = pattern && !frames[at].elided && pattern.test(names[frames[at].name]);
        context.fillStyle = isMarked && !isDark() ? "#fff" : isMarked ? "#16181c" : text;
        context.fillText(part, x + 3, y + ROW / 2);
      }
    }
    context.globalAlpha = 1;
  };

  const tell = (at) => {
    about.textContent = describe(at);
  };
  const focus = (at) => {
    focused = at;
    tell(at);
    canvas.setAttribute("aria-label", describe(at));
    draw();
  };
  const zoom = (at) => {
    if (frames[at].elided) return;
    zoomed = at;
    focus(at);
  };
  const boxAt = (event) => {
    const place = canvas.getBoundingClientRect();
    const x = event.clientX - place.left;
    const row = Math.floor((event.clientY - place.top) / ROW);
    return boxes.find((box) => depth[box.at] === row && x >= box.x && x < box.x + box.w);
  };

  canvas.addEventListener("click", (event) => {
    const box = boxAt(event);
    if (box) zoom(box.at);
  });
  canvas.addEventListener("mousemove", (event) => {
    const box = boxAt(event);
    const next = box ? box.at : null;
    if (next === hovered) return;
    hovered = next;
    tell(next === null ? focused : next);
    draw();
  });
  canvas.addEventListener("mouseleave", () => {
    hovered = null;
    tell(focused);
    draw();
  });

  // Siblings beside a frame, as far as they are drawn.
  const beside = (step) => {
    const drawn = new Set(boxes.map((box) => box.at));
    const siblings = children[frames[focused].parent].filter((at) => drawn.has(at));
    const next = siblings[siblings.indexOf(focused) + step];
    return focused === 0 || next === undefined ? focused : next;
  };
  const heaviest = () => {
    const drawn = new Set(boxes.map((box) => box.at));
    const below = children[focused].filter((at) => drawn.has(at));
    return below.reduce((a, b) => (frames[b].weight > frames[a].weight ? b : a), below[0] ?? focused);
  };
  canvas.addEventListener("keydown", (event) => {
    const actions = {
      ArrowUp: () => focus(frames[focused].parent),
      ArrowDown: () => focus(heaviest()),
      ArrowLeft: () => focus(beside(-1)),
      ArrowRight: () => focus(beside(1)),
      Enter: () => zoom(focused),
      Backspace: () => zoom(frames[zoomed].parent),
      Escape: () => zoom(0),
    };
    const action = actions[event.key];
    if (!action || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    action();
  });
  document.addEventListener("keydown", (event) => {
    if (event.key === "/" && document.activeElement !== search) {
      event.preventDefault();
      search.focus();
    }
  });

  search.addEventListener("input", () => {
    pattern = null;
    found.textContent = "";
    search.setAttribute("aria-invalid", "false");
    if (search.value) {
      try {
        pattern = new RegExp(search.value);
      } catch (error) {
        search.setAttribute("aria-invalid", "true");
        found.textContent = error.message;
      }
    }
    if (pattern) {
      // A frame below a match counts with the match.
      const sums = [0, 0];
      const open = [0];
      while (open.length) {
        const at = open.pop();
        if (at > 0 && !frames[at].elided && pattern.test(names[frames[at].name])) {
          frames[at].total.forEach((value, column) => (sums[column] += value));
        } else {
          open.push(...children[at]);
        }
      }
      const shares = sums.map((sum, column) => share(sum, totals[column]));
      found.textContent = `matched: ${compares ? shares.join(" -> ") : shares[0]}`;
    }
    draw();
  });

  const preferred = window.matchMedia("(prefers-color-scheme: dark)");
  root.classList.toggle("dark", preferred.matches);
  document.getElementById("theme").addEventListener("click", () => {
    root.classList.toggle("dark");
    draw();
  });
  document.getElementById("reset").addEventListener("click", () => zoom(0));

  // The table beside the picture: functions by their own value.
  const rows = new Map();
  frames.forEach((frame) => {
    if (frame.elided) return;
    const row = rows.get(frame.name) || [0, 0];
    frame.own.forEach((value, column) => (row[column] += value));
    rows.set(frame.name, row);
  });
  const weight = (row) => (compares ? Math.abs(row[1] * scales[1] - row[0] * scales[0]) : Math.abs(row[0]));
  const sorted = [...rows].filter(([, row]) => row[0] || row[1]).sort((a, b) => weight(b[1]) - weight(a[1]));
  const body = document.getElementById("rows");
  for (const [name, row] of sorted.slice(0, 500)) {
    const line = body.insertRow();
    const columns = compares
      ? [shown(row[0] * scales[0]), shown(row[1] * scales[1])]
      : [shown(row[0]), share(row[0], totals[0])];
    for (const text of [...columns, visible(names[name]) || "all"]) line.insertCell().textContent = text;
  }

  window.addEventListener("resize", draw);
  focus(zoomed);
})();
