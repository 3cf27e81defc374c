"use strict";
// What all figures share: elements, axes, the tip that follows the reader, the theme.
// Text from files is only ever set as textContent: nothing in it is read as markup.

const data = JSON.parse(document.getElementById("data").textContent);
const tip = document.getElementById("tip");

function element(parent, tag, attributes = {}, text = null) {
  const made = document.createElement(tag);
  return put(parent, made, attributes, text);
}

function shape(parent, tag, attributes = {}, text = null) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", tag);
  return put(parent, made, attributes, text);
}

function put(parent, made, attributes, text) {
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  if (text !== null) made.textContent = text;
  parent.append(made);
  return made;
}

function canvasOf(host, width, height, box) {
  // The place is in shares of the figure, so that it holds when paper scales the figure.
  const share = (part, whole) => (100 * part / whole) + "%";
  const canvas = element(host, "canvas", { "aria-hidden": "true" });
  canvas.style.left = share(box.left, width);
  canvas.style.top = share(box.top, height);
  canvas.style.width = share(box.width, width);
  canvas.style.height = share(box.height, height);
  const sharp = Math.max(2, devicePixelRatio || 1);
  canvas.width = Math.round(box.width * sharp);
  canvas.height = Math.round(box.height * sharp);
  const context = canvas.getContext("2d");
  context.scale(sharp, sharp);
  return [canvas, context];
}

function picture(host, height, label) {
  host.replaceChildren();
  const width = Math.max(240, host.clientWidth);
  const box = { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": label };
  return [shape(host, "svg", box), width];
}

function runColor(color) {
  if (color === "soft") return "var(--bars)";
  const stage = String(color).match(/^stage-(\d+)$/);
  return stage ? `var(--stage-${stage[1] % 6})` : `var(--run-${color % 6})`;
}

function styled(name) {
  // A canvas knows no variables: let an element say what colour this one is now.
  tip.style.outlineColor = `var(${name})`;
  return getComputedStyle(tip).outlineColor;
}

function dashes(dash) {
  return ["none", "6 3", "2 3", "8 3 2 3"][dash % 4];
}

// --------------------------------------------------------------------------------------- numbers

function span(values) {
  let low = Infinity, high = -Infinity;
  for (const value of values) {
    if (value === null || !Number.isFinite(value)) continue;
    low = Math.min(low, value);
    high = Math.max(high, value);
  }
  return low <= high ? [low, high] : [0, 1];
}

function padded([low, high], zero) {
  const room = (high - low || Math.abs(high) || 1) * 0.06;
  if (zero && low >= 0) return [0, high + room || 1];
  return [low - room, high + room];
}

function ticks([low, high], count, whole = false) {
  const rough = (high - low) / Math.max(1, count);
  const power = 10 ** Math.floor(Math.log10(rough));
  let step = [1, 2, 5, 10].find((factor) => factor * power >= rough * 0.7) * power;
  if (whole) step = Math.max(1, Math.round(step));
  const digits = Math.max(0, Math.min(12, -Math.floor(Math.log10(step) + 1e-9)));
  const found = [];
  for (let i = Math.ceil(low / step - 1e-9); i * step <= high + step * 1e-9; i++) {
    const value = i * step + 0;  // no minus zero
    const far = Math.abs(value) >= 1e6 || (value !== 0 && digits > 5);
    const text = far ? value.toExponential(1) : value.toLocaleString("en", {
      minimumFractionDigits: digits, maximumFractionDigits: digits });
    found.push({ at: value, text: text.replace("-", "−") });
  }
  return found;
}

function brief(value) {
  if (value === null || value === undefined || !Number.isFinite(value)) return "-";
  const size = Math.abs(value);
  const far = size >= 1e6 || (size > 0 && size < 1e-4);
  const text = far ? value.toExponential(3)
    : (value + 0).toLocaleString("en", { maximumSignificantDigits: 4 });
  return text.replace("-", "−");
}

function linear([low, high], from, to) {
  const scale = (value) => from + (value - low) / (high - low || 1) * (to - from);
  scale.back = (place) => low + (place - from) / (to - from) * (high - low);
  return scale;
}

function logarithmic([low, high], from, to) {
  const scale = linear([Math.log(low), Math.log(high)], from, to);
  return (value) => scale(Math.log(value));
}

function valueTicks(panel, range, count) {
  if (!panel.log) return ticks(range, count);
  // 1, 2 and 5 of every power of ten; of more than fit, the powers alone.
  const [low, high] = range.map((end) => Math.floor(Math.log10(end)));
  const found = [];
  for (let power = low; power <= high; power++) {
    for (const factor of high - low > 1 ? [1] : [1, 2, 5]) {
      const at = factor * 10 ** power;
      if (at >= range[0] * 0.999 && at <= range[1] * 1.001) found.push({ at, text: brief(at) });
    }
  }
  return found;
}

// ------------------------------------------------------------------------------------------ text

const ruler = document.createElement("canvas").getContext("2d");

function widthOf(text) {
  ruler.font = "12px system-ui, sans-serif";
  return ruler.measureText(text).width;
}

function fitting(text, room) {
  if (widthOf(text) <= room) return text;
  // The middle goes: beginnings and ends tell names apart.
  const cut = (kept) => text.slice(0, Math.ceil(kept / 2)) + "…" +
    text.slice(text.length - Math.floor(kept / 2));
  let kept = text.length - 1;
  while (kept > 1 && widthOf(cut(kept)) > room) kept--;
  return cut(kept);
}

function yTicks(svg, scale, marks, box, width) {
  for (const tick of marks) {
    const y = scale(tick.at);
    shape(svg, "line", { class: "grid-line", x1: box.left, x2: width - box.right, y1: y, y2: y });
    shape(svg, "text", { x: box.left - 6, y: y + 4, "text-anchor": "end" }, tick.text);
  }
}

function xTicks(svg, marks, scale, y, width) {
  // A label that would touch the one before it is left out.
  let free = -Infinity;
  for (const tick of marks) {
    const half = widthOf(tick.text) / 2;
    const x = Math.min(Math.max(scale(tick.at), half + 1), width - half - 1);
    if (x - half < free) continue;
    shape(svg, "text", { x, y, "text-anchor": "middle" }, tick.text);
    free = x + half + 8;
  }
}

function legend(host, entries) {
  if (!entries.length) return;
  const list = element(host, "div", { class: "legend" });
  host.prepend(list);
  for (const { name, color, dash } of entries) {
    const key = element(list, "span", { class: "key" });
    const svg = shape(key, "svg", { width: 22, height: 8, "aria-hidden": "true" });
    const line = shape(svg, "line", { x1: 1, x2: 21, y1: 4, y2: 4, "stroke-width": 3 });
    line.style.stroke = runColor(color);
    line.style.strokeDasharray = dashes(dash);
    element(key, "span", {}, name);
  }
}

// ------------------------------------------------------------------------------------------- tip

function showTip(lines, place, look = null) {
  tip.replaceChildren();
  if (look) tip.append(look);
  const words = element(tip, "div");
  lines.forEach((line, i) => element(words, i ? "div" : "strong", {}, line));
  tip.hidden = false;
  const { width, height } = tip.getBoundingClientRect();
  const right = place.x + 16 + width < innerWidth;
  const x = right ? place.x + 16 : place.x - 16 - width;
  const y = place.y + 16 + height < innerHeight ? place.y + 16 : place.y - 16 - height;
  tip.style.left = Math.max(4, Math.min(x, innerWidth - width - 4)) + "px";
  tip.style.top = Math.max(4, Math.min(y, innerHeight - height - 4)) + "px";
}

function hideTip() {
  tip.hidden = true;
}

function placeIn(host, event, width, height) {
  // From the screen to the units of the picture, whatever its scale.
  const svg = host.querySelector(":scope > svg").getBoundingClientRect();
  return { x: (event.clientX - svg.left) * width / svg.width,
           y: (event.clientY - svg.top) * height / svg.height };
}

function placeOn(host, x, y, width, height) {
  const svg = host.querySelector(":scope > svg").getBoundingClientRect();
  return { x: svg.left + x * svg.width / width, y: svg.top + y * svg.height / height };
}

function reader(host, handlers) {
  // One set of listeners for each figure, however often it is drawn.
  host.handlers = handlers;
  if (host.listens) return;
  host.listens = true;
  host.tabIndex = 0;
  host.addEventListener("pointermove", (event) => host.handlers.point(event));
  host.addEventListener("pointerdown", (event) => host.handlers.point(event));
  host.addEventListener("pointerleave", () => host.handlers.leave());
  host.addEventListener("blur", () => host.handlers.leave());
  host.addEventListener("keydown", (event) => {
    const [x, y] = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1],
      ArrowDown: [0, 1] }[event.key] || [0, 0];
    if (event.key === "Escape") host.handlers.leave();
    if (x || y) {
      event.preventDefault();
      host.handlers.step(x, y);
    }
  });
}

// ----------------------------------------------------------------------------------------- theme

function themeButton(redraw) {
  const button = document.getElementById("theme");
  const words = { auto: "Theme: auto", light: "Theme: light", dark: "Theme: dark" };
  const kept = () => { try { return localStorage.getItem("rnc-theme"); } catch { return null; } };
  let theme = kept() in words ? kept() : "auto";
  const apply = () => {
    if (theme === "auto") delete document.documentElement.dataset.theme;
    else document.documentElement.dataset.theme = theme;
    button.textContent = words[theme];
  };
  button.hidden = false;
  apply();
  button.addEventListener("click", () => {
    theme = { auto: "light", light: "dark", dark: "auto" }[theme];
    try { localStorage.setItem("rnc-theme", theme); } catch { /* the choice holds for this page */ }
    apply();
    redraw();
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
}
