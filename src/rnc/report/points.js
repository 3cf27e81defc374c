// Figures of samples, on a canvas: map and scatter. Pointing at a sample shows it in every run.

const choice = document.getElementById("coloring");
const clouds = [];

// --------------------------------------------------------------------------------------- colours

function rgb(hex) {
  return [1, 3, 5].map((i) => parseInt(hex.slice(i, i + 2), 16));
}

const numberColors = data.colors.number.map(rgb);

function numberColor(share) {
  const place = Math.min(1, Math.max(0, share)) * (numberColors.length - 1);
  const i = Math.min(numberColors.length - 2, Math.floor(place));
  return numberColors[i].map((low, c) =>
    Math.round(low + (numberColors[i + 1][c] - low) * (place - i)));
}

function categoryColor(column, code) {
  const last = column.rest && code === column.categories.length - 1;
  return data.colors.category[last ? data.colors.category.length - 1 : code];
}

function colorOf(column, value) {
  if (value === null || value === undefined) return "#88888866";
  if (column.categories.length) return categoryColor(column, value);
  return `rgb(${numberColor((value - column.low) / (column.high - column.low || 1))})`;
}

function wordOf(column, value) {
  if (value === null || value === undefined) return "-";
  return column.categories.length ? column.categories[value] : brief(value);
}

function drawScale() {
  const host = document.getElementById("scale");
  const column = data.columns[choice.selectedIndex];
  host.replaceChildren();
  if (column.categories.length) {
    column.categories.forEach((name, code) => {
      const key = element(host, "span", { class: "key" });
      element(key, "i").style.background = categoryColor(column, code);
      element(key, "span", {}, name);
    });
    return;
  }
  element(host, "span", {}, brief(column.low));
  const canvas = element(host, "canvas", { width: 144, height: 1 });
  const context = canvas.getContext("2d");
  for (let x = 0; x < 144; x++) {
    context.fillStyle = `rgb(${numberColor(x / 143)})`;
    context.fillRect(x, 0, 1, 1);
  }
  element(host, "span", {}, brief(column.high) + (column.kind === "error" ? " and more" : ""));
}

// ---------------------------------------------------------------------------------------- figures

function drawPoints(host, figure) {
  const isMap = figure.kind === "map";
  const height = Math.min(480, Math.max(240, host.clientWidth));
  const [svg, width] = picture(host, height, figure.title);
  const ranges = isMap ? [padded(span(figure.x)), padded(span(figure.y))]
    : [figure.limits, figure.limits];
  const labels = isMap ? [8] : ticks(ranges[1], 5).map((tick) => widthOf(tick.text));
  const box = { left: Math.max(...labels) + (isMap ? 0 : 12), right: 8, top: 24, bottom: 40 };
  const x = linear(ranges[0], box.left, width - box.right);
  const y = linear(ranges[1], height - box.bottom, box.top);
  shape(svg, "text", { x: 0, y: 14 }, figure.titles[1] + " ↑");
  shape(svg, "text", { x: width - 2, y: height - 6, "text-anchor": "end" }, figure.titles[0] + " →");
  if (!isMap) {
    yTicks(svg, y, ticks(ranges[1], 5), box, width);
    const count = Math.max(2, Math.floor(width / 80));
    xTicks(svg, ticks(ranges[0], count), x, height - box.bottom + 15, width);
    if (figure.band) drawBetween(svg, figure, x, y);
    const [low, high] = figure.limits;
    shape(svg, "line", { class: "diagonal", x1: x(low), y1: y(low), x2: x(high), y2: y(high) });
  }
  const cloud = { host, figure, x, y, width, height, box, isMap, ring: null };
  clouds[host.dataset.figure] = cloud;
  [, cloud.context] = canvasOf(host, width, height, { left: 0, top: 0, width, height });
  if (isMap) zoomButtons(cloud);
  paint(cloud);
  readPoints(cloud);
}

function drawBetween(svg, { band, color }, x, y) {
  // Of each prediction, the true values that its interval holds.
  const side = (ends) => band.predicted.map((value, i) =>
    `${x(ends[i]).toFixed(1)},${y(value).toFixed(1)}`);
  const points = [...side(band.low), ...side(band.high).reverse()].join(" ");
  shape(svg, "polygon", { class: "between", points, opacity: 0.16 }).style.fill = runColor(color);
}

function zoomButtons(cloud) {
  const { host } = cloud;
  const whole = { x: cloud.x, y: cloud.y };
  const buttons = element(host, "div", { class: "zoom" });
  const zoom = (factor, at) => {
    for (const [axis, from, to] of [["x", cloud.box.left, cloud.width - cloud.box.right],
      ["y", cloud.height - cloud.box.bottom, cloud.box.top]]) {
      const scale = cloud[axis], centre = scale.back(at[axis]);
      const ends = [from, to].map((end) => centre + (scale.back(end) - centre) * factor);
      cloud[axis] = linear(ends, from, to);
    }
    const wider = cloud.x.back(cloud.width) - cloud.x.back(0) >
      whole.x.back(cloud.width) - whole.x.back(0);
    if (wider || factor === 0) Object.assign(cloud, whole);
    host.handlers.leave();
    paint(cloud);
  };
  const middle = { x: cloud.width / 2, y: cloud.height / 2 };
  for (const [text, label, factor] of [["+", "zoom in", 0.6], ["−", "zoom out", 1 / 0.6],
    ["all", "show the whole map", 0]]) {
    const button = element(buttons, "button", { type: "button", "aria-label": label }, text);
    button.addEventListener("click", () => zoom(factor, middle));
  }
  host.ondblclick = (event) => {
    if (event.target.tagName !== "BUTTON") {
      zoom(0.5, placeIn(host, event, cloud.width, cloud.height));
    }
  };
}

function visible({ figure, x, y, width, height, box }, i) {
  if (figure.x[i] === null || figure.y[i] === null) return false;
  const px = x(figure.x[i]), py = y(figure.y[i]);
  return px >= box.left - 6 && px <= width - box.right + 6 &&
    py >= box.top - 6 && py <= height - box.bottom + 6;
}

function paint(cloud) {
  const { figure, x, y, width, height, isMap, context } = cloud;
  context.clearRect(0, 0, width, height);
  const edge = styled("--edge");
  const column = isMap ? data.columns[choice.selectedIndex] : null;
  const values = isMap ? data.runs[figure.run].values[choice.selectedIndex] : null;
  const plain = isMap ? "" : styled(`--run-${figure.color % 6}`);
  const many = figure.x.length > 1000;
  const radius = isMap ? (many ? 3.2 : 4.2) : (many ? 2.2 : 3);
  context.globalAlpha = isMap ? 0.92 : 0.5;
  context.lineWidth = 0.6;
  context.strokeStyle = edge;
  figure.x.forEach((value, i) => {
    if (!visible(cloud, i)) return;
    context.beginPath();
    context.arc(x(value), y(figure.y[i]), radius, 0, 2 * Math.PI);
    context.fillStyle = isMap ? colorOf(column, values && values[figure.points[i]]) : plain;
    context.fill();
    if (isMap) context.stroke();
  });
}

// ------------------------------------------------------------------------------------- one sample

function lookOf(run, place) {
  const { looks, sheet, signals } = data.runs[run];
  const look = looks[place];
  if (look < 0) return null;
  if (sheet !== null) {
    const { columns, lines } = data.sheets[sheet];
    const shares = [look % columns / Math.max(1, columns - 1),
      Math.floor(look / columns) / Math.max(1, lines - 1)];
    const made = document.createElement("span");
    made.className = `look sheet-${sheet}`;
    made.style.backgroundSize = `${100 * columns}% ${100 * lines}%`;
    made.style.backgroundPosition = shares.map((share) => `${100 * share}%`).join(" ");
    return made;
  }
  return signals === null ? null : sparkline(data.signals[signals], look);
}

function sparkline(signals, place) {
  const { channels, length } = signals;
  signals.levels ||= Uint8Array.from(atob(signals.bytes), (letter) => letter.charCodeAt(0));
  const svg = shape(document.createElement("div"), "svg",
    { class: "look spark", viewBox: "0 0 96 48" });
  for (let channel = 0; channel < channels; channel++) {
    const from = (place * channels + channel) * length;
    const points = [...signals.levels.subarray(from, from + length)].map((level, i) =>
      `${1 + 94 * i / (length - 1)},${1 + (channel + 1 - level / 255) * 46 / channels}`);
    shape(svg, "polyline", { points: points.join(" ") });
  }
  return svg;
}

function wordsOf(run, place, coloring) {
  const { names, values } = data.runs[run];
  const words = [names[place]];
  const few = data.columns.length <= 10;
  data.columns.forEach((column, i) => {
    if (values[i] && (few || column.kind !== "column" || i === coloring)) {
      words.push(`${column.name}: ${wordOf(column, values[i][place])}`);
    }
  });
  return words;
}

function mark(run, sample) {
  // The same sample in every figure of samples: by its place in this run, by its name in others.
  for (const cloud of clouds.filter(Boolean)) {
    if (cloud.ring) cloud.ring.remove();
    cloud.ring = null;
    if (sample === null) continue;
    const i = cloud.figure.run === run ? cloud.figure.points.indexOf(sample)
      : indexOf(cloud, data.runs[run].names[sample]);
    if (i === undefined || i < 0 || !visible(cloud, i)) continue;
    cloud.ring = element(cloud.host, "span", { class: "ring" });
    cloud.ring.style.left = 100 * cloud.x(cloud.figure.x[i]) / cloud.width + "%";
    cloud.ring.style.top = 100 * cloud.y(cloud.figure.y[i]) / cloud.height + "%";
  }
}

function indexOf({ figure }, name) {
  if (!figure.index) {
    figure.index = new Map();
    figure.points.forEach((place, i) => {
      if (figure.x[i] !== null && figure.y[i] !== null) {
        figure.index.set(data.runs[figure.run].names[place], i);
      }
    });
  }
  return figure.index.get(name);
}

function readPoints(cloud) {
  const { host, figure, width, height } = cloud;
  let at = null;
  const spot = (i) => [cloud.x(figure.x[i]), cloud.y(figure.y[i])];
  const show = (i, place) => {
    at = i;
    const sample = figure.points[i];
    const words = wordsOf(figure.run, sample, choice ? choice.selectedIndex : -1);
    mark(figure.run, sample);
    const from = place || placeOn(host, ...spot(i), width, height);
    showTip(words, from, lookOf(figure.run, sample));
  };
  const nearest = (px, py, allowed) => {
    let best = null, least = Infinity;
    figure.x.forEach((_, i) => {
      if (!visible(cloud, i)) return;
      const [x, y] = spot(i);
      const far = allowed(x - px, y - py, i);
      if (far < least) [least, best] = [far, i];
    });
    return [best, least];
  };
  const leave = () => {
    mark(null, null);
    hideTip();
  };
  reader(host, {
    point(event) {
      if (event.target.tagName === "BUTTON") return leave();
      const place = placeIn(host, event, width, height);
      const [best, far] = nearest(place.x, place.y, (dx, dy) => dx * dx + dy * dy);
      if (best === null || far > 24 * 24) return leave();
      return show(best, { x: event.clientX, y: event.clientY });
    },
    step(right, down) {
      const from = at === null ? [width / 2, height / 2] : spot(at);
      // The next sample in that direction: what lies aside counts three times.
      const [best] = nearest(...from, (dx, dy, i) => {
        const ahead = dx * right + dy * down, aside = dx * down + dy * right;
        if (at === null) return dx * dx + dy * dy;
        return i === at || ahead <= 0 ? Infinity : ahead + 3 * Math.abs(aside);
      });
      if (best !== null) show(best);
    },
    leave,
  });
}

// ------------------------------------------------------------------------------------------- start

const drawers = {
  curves: drawCurves, panels: drawPanels, rows: drawRows, heat: drawHeat, scatter: drawPoints, map: drawPoints,
};
const hosts = [...document.querySelectorAll("[data-figure]")];
const drawn = new Map();

function drawFigure(host) {
  const figure = data.figures[Number(host.dataset.figure)];
  drawn.set(host, host.clientWidth);
  host.setAttribute("role", "group");
  host.setAttribute("aria-label", `${figure.title}, read it with the arrow keys`);
  drawers[figure.kind](host, figure);
}

function recolor() {
  drawScale();
  clouds.filter((cloud) => cloud && cloud.isMap).forEach(paint);
}

if (choice) {
  drawScale();
  choice.addEventListener("change", recolor);
}
hosts.forEach(drawFigure);
themeButton(() => clouds.filter(Boolean).forEach(paint));
const watcher = new ResizeObserver((entries) => {
  for (const { target } of entries) {
    if (target.clientWidth && target.clientWidth !== drawn.get(target)) drawFigure(target);
  }
});
hosts.forEach((host) => watcher.observe(host));
addEventListener("scroll", () => {
  if (!hosts.includes(document.activeElement)) hideTip();  // the keyboard's sample stays
}, { passive: true });
addEventListener("beforeprint", () => {
  document.querySelectorAll("details").forEach((fold) => { fold.open = true; });
});
