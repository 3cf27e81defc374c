// Figures of lines, bars and matrices, as SVG: curves, panels, rows, heat.

function drawCurves(host, figure) {
  const heights = figure.panels.map((panel) => Math.round(130 * (panel.height || 1)));
  const tops = [];
  let total = 4;
  for (const height of heights) {
    tops.push(total + 26);
    total += height + 38;
  }
  total += 30;
  const [svg, width] = picture(host, total, figure.title);
  legend(host, figure.legend);
  const marks = figure.panels.flatMap((panel) => panel.marks);
  const xs = span(marks.flatMap((mark) => mark.x || mark.edges));
  const xRange = xs[0] === xs[1] ? [xs[0] - 1, xs[1] + 1] : xs;
  const ranges = figure.panels.map(panelRange);
  const marksOf = (i) => valueTicks(figure.panels[i], ranges[i], heights[i] > 100 ? 4 : 2);
  const labels = ranges.flatMap((_, i) => marksOf(i).map((tick) => widthOf(tick.text)));
  const box = { left: Math.max(...labels) + 12, right: 12 };
  const x = linear(xRange, box.left + 6, width - box.right - 6);
  figure.panels.forEach((panel, i) => {
    const y = (panel.log ? logarithmic : linear)(ranges[i], tops[i] + heights[i], tops[i]);
    const title = panel.log ? `${panel.title} (logarithmic)` : panel.title;
    shape(svg, "text", { x: 0, y: tops[i] - 8, class: "strong" }, fitting(title, width));
    yTicks(svg, y, marksOf(i), box, width);
    for (const mark of panel.marks) drawMark[mark.mark](svg, mark, x, y);
  });
  const below = total - 28;
  const count = Math.max(2, Math.floor((width - box.left) / 70));
  xTicks(svg, ticks(xRange, count, figure.x.whole), x, below, width);
  shape(svg, "text", { x: (box.left + width) / 2, y: total - 6, "text-anchor": "middle" },
    figure.x.title);
  const rule = shape(svg, "line", { class: "rule", y1: tops[0], y2: below - 16, visibility: "hidden" });
  readCurves(host, figure, { x, width, total, rule, top: tops[0] });
}

function panelRange(panel) {
  const values = panel.marks.flatMap((mark) =>
    mark.mark === "band" ? [...mark.low, ...mark.high] : mark.y);
  return panel.log ? span(values) : padded(span(values), panel.zero);
}

function drawPanels(host, figure) {
  host.replaceChildren();
  const grid = element(host, "div", { class: "small-panels" });
  legend(host, figure.legend);
  // As few rows as fit, and all of them about as full.
  const count = figure.panels.length;
  const rows = Math.ceil(count / Math.max(1, Math.floor(host.clientWidth / 250)));
  grid.style.setProperty("--columns", Math.ceil(count / rows));
  const plots = figure.panels.map(() => element(grid, "div", { class: "plot" }));
  plots.forEach((plot, i) => drawCurves(plot, figure.panels[i]));
}

const drawMark = {
  line(svg, mark, x, y) {
    const points = mark.x.map((value, i) => `${x(value).toFixed(1)},${y(mark.y[i]).toFixed(1)}`);
    const line = shape(svg, "polyline", { points: points.join(" "), fill: "none", "stroke-width": 2,
      "stroke-linejoin": "round" });
    line.style.stroke = runColor(mark.color);
    line.style.strokeDasharray = dashes(mark.dash);
    if (!mark.dots) return;
    mark.x.forEach((value, i) => {
      const dot = shape(svg, "circle", { cx: x(value), cy: y(mark.y[i]), r: 3 });
      dot.style.fill = runColor(mark.color);
    });
  },
  band(svg, mark, x, y) {
    const there = mark.x.map((value, i) => `${x(value).toFixed(1)},${y(mark.high[i]).toFixed(1)}`);
    const back = mark.x.map((value, i) => `${x(value).toFixed(1)},${y(mark.low[i]).toFixed(1)}`);
    const band = shape(svg, "polygon", { points: [...there, ...back.reverse()].join(" "),
      opacity: 0.18 });
    band.style.fill = runColor(mark.color);
  },
  steps(svg, mark, x, y) {
    mark.y.forEach((value, i) => {
      const left = x(mark.edges[i]), right = x(mark.edges[i + 1]);
      const bar = shape(svg, "rect", { x: left + 0.5, y: y(value || 0),
        width: Math.max(0.5, right - left - 1), height: Math.max(0, y(0) - y(value || 0)) });
      bar.style.fill = runColor(mark.color);
    });
  },
};

function readCurves(host, figure, { x, width, total, rule, top }) {
  const lines = figure.panels.flatMap((panel) => panel.marks.filter((mark) => mark.mark === "line")
    .map((mark) => ({ ...mark, panel: panel.title })));
  const steps = figure.panels.flatMap((panel) => panel.marks.filter((mark) => mark.mark === "steps")
    .map((mark) => ({ ...mark, panel: panel.title })));
  const places = [...new Set(lines.flatMap((line) => line.x))].sort((a, b) => a - b);
  let at = -1;
  const show = (index) => {
    at = index;
    const value = places[at];
    rule.setAttribute("x1", x(value));
    rule.setAttribute("x2", x(value));
    rule.setAttribute("visibility", "visible");
    const words = [`${figure.x.title}: ${brief(value)}`];
    for (const line of lines) {
      const i = line.x.indexOf(value);
      if (i >= 0) words.push(`${line.name}, ${line.panel}: ${brief(line.y[i])}`);
    }
    for (const step of steps) {
      const i = step.edges.findLastIndex((edge) => edge <= value);
      if (i >= 0 && i < step.y.length) words.push(`${step.panel}: ${brief(step.y[i])}`);
    }
    showTip(words, placeOn(host, x(value), top, width, total));
  };
  reader(host, {
    point(event) {
      if (!places.length) return;
      const value = x.back(placeIn(host, event, width, total).x);
      let best = 0;
      places.forEach((place, i) => {
        if (Math.abs(place - value) < Math.abs(places[best] - value)) best = i;
      });
      show(best);
    },
    step(right, down) {
      if (places.length) show(Math.min(places.length - 1, Math.max(0, at + right + down)));
    },
    leave() {
      rule.setAttribute("visibility", "hidden");
      hideTip();
    },
  });
}

// ------------------------------------------------------------------------------------------ rows

function drawRows(host, figure) {
  const thick = 13, apart = 9;
  const bars = figure.groups.flatMap((group) => group.bars);
  const height = figure.groups.reduce((sum, group) => sum + group.bars.length * (thick + 2) + apart,
    0) + 40;
  const [svg, width] = picture(host, height, figure.title);
  legend(host, figure.legend);
  const range = padded([0, span(bars.flatMap((bar) => [bar.value, bar.high]))[1]], true);
  const widest = Math.max(...figure.groups.map((group) => widthOf(group.name)));
  const left = Math.min(widest, width * 0.38) + 10;
  const texts = bars.map((bar) => bar.label || "");
  const x = linear(range, left, width - 10 - Math.max(...texts.map(widthOf)));
  const bottom = height - 36;
  const marks = ticks(range, Math.max(2, Math.floor((width - left) / 70)));
  for (const tick of marks) {
    shape(svg, "line", { class: "grid-line", x1: x(tick.at), x2: x(tick.at), y1: 0, y2: bottom });
  }
  xTicks(svg, marks, x, bottom + 15, width);
  const half = widthOf(figure.axis) / 2;
  const middle = Math.max(half + 1, Math.min((left + width) / 2, width - half - 1));
  shape(svg, "text", { x: middle, y: height - 4, "text-anchor": "middle" }, figure.axis);
  const spots = [];
  let y = 4;
  for (const group of figure.groups) {
    const middle = y + group.bars.length * (thick + 2) / 2 + 3;
    shape(svg, "text", { x: left - 8, y: middle, "text-anchor": "end", class: "strong" },
      fitting(group.name, left - 10));
    for (const bar of group.bars) {
      drawBar(svg, bar, x, y, thick);
      if (bar.label) {
        const end = Math.max(x(bar.value || 0), x(bar.high || 0)) + 6;
        shape(svg, "text", { x: end, y: y + thick - 2, class: "strong" }, bar.label);
      }
      spots.push({ y: y + thick / 2, group: group.name, bar });
      y += thick + 2;
    }
    y += apart;
  }
  readRows(host, spots, { x, width, height });
}

function drawBar(svg, bar, x, y, thick) {
  const value = bar.value || 0;
  const rect = shape(svg, "rect", { x: x(0), y, width: Math.max(0, x(value) - x(0)), height: thick,
    rx: 2 });
  rect.style.fill = runColor(bar.color);
  if (bar.low === null || bar.high === null) return;
  const middle = y + thick / 2;
  const ends = [x(bar.low), x(bar.high)];
  shape(svg, "path", { class: "whisker", d: `M${ends[0]},${middle}H${ends[1]}` +
    ends.map((end) => `M${end},${middle - 3.5}v7`).join("") });
}

function readRows(host, spots, { x, width, height }) {
  let at = -1;
  const show = (index, place) => {
    at = index;
    const { group, bar, y } = spots[at];
    const words = [group, `${bar.name}: ${brief(bar.value)}`];
    if (bar.low !== null) words.push(`95 % interval ${brief(bar.low)} to ${brief(bar.high)}`);
    if (bar.n) words.push(`${bar.n.toLocaleString("en")} samples`);
    showTip(words, place || placeOn(host, x(bar.value || 0), y, width, height));
  };
  reader(host, {
    point(event) {
      const { y } = placeIn(host, event, width, height);
      let best = 0;
      spots.forEach((spot, i) => {
        if (Math.abs(spot.y - y) < Math.abs(spots[best].y - y)) best = i;
      });
      if (spots.length) show(best, { x: event.clientX, y: event.clientY });
    },
    step(right, down) {
      if (spots.length) show(Math.min(spots.length - 1, Math.max(0, at + right + down)));
    },
    leave: hideTip,
  });
}

// ------------------------------------------------------------------------------------------ heat

function drawHeat(host, figure) {
  const levels = Uint8Array.from(atob(figure.levels), (letter) => letter.charCodeAt(0));
  const count = figure.labels.length;
  const places = [...new Set([0, 0.25, 0.5, 0.75, 1].map((s) => Math.round(s * (count - 1))))];
  const room = Math.max(...places.map((place) => widthOf(brief(figure.labels[place])))) + 12;
  const bar = 28 + Math.max(widthOf(brief(figure.low)), widthOf(brief(figure.high)));
  const side = Math.min(Math.max(240, host.clientWidth) - room - bar, 480);
  const height = side + 58;
  const [svg, width] = picture(host, height, figure.title);
  const left = room + Math.max(0, (width - room - bar - side) / 2);  // in the middle
  const [, context] = canvasOf(host, width, height, { left, top: 20, width: side, height: side });
  const cells = new OffscreenCanvas(count, count);
  const image = new ImageData(count, count);
  levels.forEach((level, i) => image.data.set([...numberColor(level / 255), 255], 4 * i));
  cells.getContext("2d").putImageData(image, 0, 0);
  context.imageSmoothingEnabled = false;
  context.drawImage(cells, 0, 0, side, side);
  const middle = (place) => (place + 0.5) / count * side;
  for (const place of places) {
    const text = brief(figure.labels[place]);
    const y = Math.min(Math.max(20 + middle(place) + 4, 26), side + 20);
    shape(svg, "text", { x: left - 6, y, "text-anchor": "end" }, text);
  }
  const marks = places.map((at) => ({ at, text: brief(figure.labels[at]) }));
  xTicks(svg, marks, (at) => left + middle(at), side + 36, width);
  shape(svg, "text", { x: left + side / 2, y: side + 54, "text-anchor": "middle" }, figure.target);
  drawColorBar(host, svg, figure, { left: left + side + 14, side, width, height });
  readHeat(host, figure, levels, { left, side, width, height });
}

function drawColorBar(host, svg, figure, { left, side, width, height }) {
  const [, context] = canvasOf(host, width, height, { left, top: 20, width: 10, height: side });
  for (let y = 0; y < side; y++) {
    context.fillStyle = `rgb(${numberColor(1 - y / side)})`;
    context.fillRect(0, y, 10, 1.5);
  }
  shape(svg, "text", { x: left + 14, y: 30 }, brief(figure.high));
  shape(svg, "text", { x: left + 14, y: side + 20 }, brief(figure.low));
  shape(svg, "text", { x: left + 10, y: 12, "text-anchor": "end" }, fitting(figure.name, side));
}

function readHeat(host, figure, levels, { left, side, width, height }) {
  const count = figure.labels.length;
  const at = { x: 0, y: 0 };
  const show = (place) => {
    const level = levels[at.y * count + at.x] / 255;
    showTip([`${figure.name} ${brief(figure.low + level * (figure.high - figure.low))}`,
      `${figure.target}: ${brief(figure.labels[at.y])} and ${brief(figure.labels[at.x])}`], place);
  };
  reader(host, {
    point(event) {
      const place = placeIn(host, event, width, height);
      const x = Math.floor((place.x - left) / side * count);
      const y = Math.floor((place.y - 20) / side * count);
      if (x < 0 || y < 0 || x >= count || y >= count) return hideTip();
      Object.assign(at, { x, y });
      return show({ x: event.clientX, y: event.clientY });
    },
    step(right, down) {
      const jump = Math.max(1, Math.round(count / 40));
      at.x = Math.min(count - 1, Math.max(0, at.x + right * jump));
      at.y = Math.min(count - 1, Math.max(0, at.y + down * jump));
      const middle = (place) => (place + 0.5) / count * side;
      show(placeOn(host, left + middle(at.x), 20 + middle(at.y), width, height));
    },
    leave: hideTip,
  });
}
