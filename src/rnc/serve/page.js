"use strict";
// Text from files and replies is only ever set as textContent: nothing in it is read as markup.

const model = JSON.parse(document.getElementById("model").textContent);
const at = (id) => document.getElementById(id);
const MOST_SHOWN = 200, MOST_FIELDS = 30, MOST_GIVEN = 3;
let reply = null, pictures = new Map(), asked = 0, again = () => {};

function add(parent, tag, attributes = {}, text = null) {
  const svg = tag === "svg" || tag === "polyline";
  const made = svg ? document.createElementNS("http://www.w3.org/2000/svg", tag)
    : document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  if (text !== null) made.textContent = text;
  parent.append(made);
  return made;
}

function shown(value) {
  if (value === null) return "not finite";
  return Math.abs(value) >= 1e4 && Math.abs(value) < 1e9
    ? Math.round(value).toLocaleString("en") : String(Number(value.toPrecision(4)));
}

function between(ends) {
  return `${shown(ends[0])} to ${shown(ends[1])}`;
}

function say(text) {
  at("status").textContent = text;
}

function fail(message) {
  say("");
  at("error").textContent = message;
  at("error").hidden = false;
  at("results").hidden = true; // they would be those of something else
}

// ------------------------------------------------------------------------------------- asking

async function ask(body, headers, what, moves = true) {
  at("error").hidden = true;
  again = () => ask(body, headers, what, false);
  const number = asked += 1;
  say(`Predicting ${what} …`);
  const query = new URLSearchParams({ pictures: "true" });
  if (at("confidence").value) query.set("confidence", at("confidence").value);
  if (at("neighbours").value) query.set("neighbours", at("neighbours").value);
  try {
    const answer = await fetch(`predict?${query}`, { method: "POST", body, headers });
    const content = await answer.json();
    if (number !== asked) return; // something else was asked meanwhile
    if (!answer.ok) return fail(content.error.message);
    reply = content;
    draw();
    if (moves) at("results-title").focus();
  } catch (error) {
    if (number === asked) fail(`The server did not answer (${error.message}). Is it still running?`);
  }
}

function askFiles(list) {
  const files = [...list];
  if (!files.length) return;
  asked += 1;
  again = () => {};
  const bytes = files.reduce((sum, file) => sum + file.size, 0);
  if (files.length > model.limits.files) {
    return fail(`${files.length} files; this server takes at most ${model.limits.files}.`);
  }
  if (bytes > model.limits.megabytes * 2 ** 20) {
    const size = (bytes / 2 ** 20).toFixed(1);
    return fail(`${size} MiB; this server takes at most ${model.limits.megabytes} at a time.`);
  }
  for (const address of pictures.values()) URL.revokeObjectURL(address);
  pictures = new Map();
  const form = new FormData(), names = new Set();
  for (const file of files) {
    let name = file.name; // of another folder, perhaps: each needs a name of its own
    for (let n = 2; names.has(name); n += 1) name = file.name.replace(/(\.[^.]*)?$/, ` (${n})$1`);
    names.add(name);
    form.append("files", file, name);
    if (model.kind === "image" && file.type.startsWith("image/")) {
      pictures.set(name, URL.createObjectURL(file));
    }
  }
  ask(form, {}, files.length === 1 ? files[0].name : `${files.length} files`);
}

function askRow() {
  const row = {};
  for (const input of at("fields").querySelectorAll("input")) {
    const text = input.value.trim();
    const isNumber = input.dataset.type === "number" && text !== "" && Number.isFinite(Number(text));
    row[input.dataset.column] = text === "" ? null : isNumber ? Number(text) : text;
  }
  ask(JSON.stringify({ rows: [row] }), { "Content-Type": "application/json" }, "one row");
}

// ------------------------------------------------------------------------------------ showing

function draw() {
  const rows = reply.rows.slice(0, MOST_SHOWN), skipped = reply.skipped.length;
  const notes = [...reply.notes];
  if (rows.length < reply.rows.length) {
    notes.push(`The first ${rows.length} of ${reply.rows.length} rows are shown; the CSV has all.`);
  }
  at("notes").replaceChildren();
  for (const note of notes) add(at("notes"), "li", {}, note);
  for (const one of reply.skipped) {
    add(at("notes"), "li", { class: "skipped" }, `Skipped ${one.name}: ${one.reason}`);
  }
  at("found").replaceChildren();
  if (model.kind === "image" || rows.length <= 12) drawCards(rows); else drawTable(rows);
  at("results").hidden = false;
  const left = skipped ? `, ${skipped} skipped` : "";
  say(`${reply.rows.length} predicted${left}.`);
}

function drawCards(rows) {
  const list = add(at("found"), "ul", { class: "gallery" });
  for (const row of rows) {
    const card = add(list, "li", { class: "card" });
    const own = pictures.get(row.name);
    if (own) {
      const photo = add(card, "img", { class: "photo", src: own, alt: "" });
      photo.addEventListener("error", () => photo.remove());
    }
    const about = add(card, "div");
    add(about, "strong", {}, row.name);
    const facts = add(about, "dl");
    for (const target of reply.targets) {
      add(facts, "dt", {}, target);
      const value = add(facts, "dd");
      add(value, "span", { class: "said" }, shown(row.predictions[target]));
      if (row.intervals) add(value, "small", {}, ` ${between(row.intervals[target])}`);
    }
    if (row.out_of_range) add(about, "p", { class: "far" }, "Unlike all training samples");
    if (row.neighbours && row.neighbours.length) drawNeighbours(card, row);
  }
}

function drawNeighbours(card, row) {
  const seen = add(card, "div", { class: "seen" });
  add(seen, "span", { class: "small" }, "Nearest training samples");
  const list = add(seen, "ol");
  for (const one of row.neighbours) {
    const item = add(list, "li");
    if (one.picture) add(item, "img", { src: one.picture, alt: "" });
    if (one.signal) sketch(item, one.signal);
    for (const target of reply.targets) {
      const name = reply.targets.length > 1 ? `${target} ` : "";
      add(item, "div", {}, name + shown(one.targets[target]));
    }
    add(item, "div", { class: "small name", title: one.name }, one.name.split("/").pop());
    const far = one.distance === null ? "" : Number(one.distance.toPrecision(2));
    add(item, "div", { class: "small", title: "distance in feature space" }, `at ${far}`);
  }
}

function sketch(parent, signal) {
  const svg = add(parent, "svg", { class: "spark", viewBox: "0 0 96 48", "aria-hidden": "true" });
  for (const line of signal) {
    const low = Math.min(...line), span = Math.max(...line) - low || 1;
    const points = line.map((y, i) =>
      `${(96 * i / Math.max(1, line.length - 1)).toFixed(1)},${(46 - 44 * (y - low) / span).toFixed(1)}`);
    add(svg, "polyline", { points: points.join(" ") });
  }
}

function drawTable(rows) {
  const region = { class: "wide", tabindex: "0", role: "region", "aria-label": "Predictions table" };
  const table = add(add(at("found"), "div", region), "table", { class: "numbers" });
  const head = add(add(table, "thead"), "tr");
  const given = Object.keys(rows[0].given).slice(0, MOST_GIVEN), titles = ["name", ...given];
  for (const target of reply.targets) titles.push(target, ...(rows[0].intervals ? ["interval"] : []));
  if (rows[0].neighbours) titles.push("nearest training sample");
  for (const title of titles) add(head, "th", { scope: "col" }, title);
  const body = add(table, "tbody");
  for (const row of rows) {
    const line = add(body, "tr");
    add(line, "th", { scope: "row" }, row.name);
    const cells = given.map((name) => row.given[name] ?? "");
    for (const target of reply.targets) {
      cells.push(shown(row.predictions[target]));
      if (row.intervals) cells.push(between(row.intervals[target]));
    }
    if (row.neighbours) cells.push(nearest(row));
    cells.forEach((text, i) => add(line, "td", { "data-label": titles[i + 1] }, text));
  }
}

function nearest(row) {
  const one = row.neighbours[0];
  const far = row.out_of_range ? "unlike all: " : "";
  if (!one) return "";
  return `${far}${one.name} (${reply.targets.map((target) => shown(one.targets[target])).join(", ")})`;
}

// -------------------------------------------------------------------------------------- saving

function cell(value) {
  let text = value === null || value === undefined ? "" : String(value);
  // A spreadsheet would run a text that begins like this.
  if (typeof value === "string" && /^[=+\-@\t\r]/.test(text) && !Number.isFinite(Number(text))) {
    text = `'${text}`;
  }
  return /[",\n\r]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
}

function csv() {
  const given = Object.keys(reply.rows[0].given), lines = [];
  const ends = reply.rows[0].intervals ? ["lower", "upper"] : [];
  const named = reply.targets.flatMap((target) => [target, ...ends.map((end) => `${target}_${end}`)]);
  lines.push(["name", ...given, ...named, "out_of_range"]);
  for (const row of reply.rows) {
    const numbers = reply.targets.flatMap((target) =>
      [row.predictions[target], ...(row.intervals ? row.intervals[target] : [])]);
    lines.push([row.name, ...given.map((name) => row.given[name]), ...numbers, row.out_of_range]);
  }
  return lines.map((line) => line.map(cell).join(",")).join("\n") + "\n";
}

function save() {
  const address = URL.createObjectURL(new Blob([csv()], { type: "text/csv" }));
  const link = add(document.body, "a", { href: address, download: "predictions.csv" });
  link.click();
  link.remove();
  URL.revokeObjectURL(address);
}

// ----------------------------------------------------------------------------------- the frame

function choices(id, values, words) {
  if (!values.length) return;
  for (const value of values) add(at(id), "option", { value }, words(value));
  at(`${id}-label`).hidden = false;
}

function setUp() {
  const { limits } = model;
  const rows = model.kind === "image" ? "" : `, ${limits.rows.toLocaleString("en")} rows`;
  at("limits").textContent =
    `At most ${limits.files} files${rows} and ${limits.megabytes} MiB at a time.`;
  choices("confidence", model.confidences, (value) => `${100 * value}% of targets`);
  const counts = [...new Set([model.neighbours, 3, 1, 0])].filter((n) => n <= model.neighbours);
  choices("neighbours", model.neighbours ? counts : [], String);
  if (model.columns && model.columns.length <= MOST_FIELDS) {
    for (const [i, column] of model.columns.entries()) {
      const label = add(at("fields"), "label", {}, column.name);
      const input = add(label, "input", { type: "text", autocomplete: "off" });
      Object.assign(input.dataset, { column: column.name, type: column.type });
      if (column.type === "number") input.inputMode = "decimal";
      if (column.categories) {
        const known = add(at("fields"), "datalist", { id: `known-${i}` });
        for (const value of column.categories.slice(0, 200)) add(known, "option", { value });
        input.setAttribute("list", known.id);
      }
    }
    at("by-hand").hidden = false;
  }
}

function listen() {
  at("files").addEventListener("click", () => { at("files").value = ""; }); // the same file again
  for (const id of ["confidence", "neighbours"]) at(id).addEventListener("change", () => again());
  at("files").addEventListener("change", () => askFiles(at("files").files));
  at("send-row").addEventListener("click", askRow);
  at("save").addEventListener("click", save);
  at("ask").addEventListener("submit", (event) => { event.preventDefault(); askRow(); });
  for (const name of ["dragenter", "dragover"]) {
    document.addEventListener(name, (event) => {
      event.preventDefault();
      at("drop").classList.add("over");
    });
  }
  for (const name of ["dragleave", "drop"]) {
    document.addEventListener(name, (event) => {
      event.preventDefault();
      at("drop").classList.remove("over");
      if (name === "drop") askFiles(event.dataTransfer.files);
    });
  }
}

function themes() {
  const button = at("theme"), root = document.documentElement;
  const system = matchMedia("(prefers-color-scheme: dark)");
  const isDark = () => (root.dataset.theme || (system.matches ? "dark" : "light")) === "dark";
  const name = () => { button.textContent = isDark() ? "Light" : "Dark"; };
  button.addEventListener("click", () => {
    root.dataset.theme = isDark() ? "light" : "dark";
    name();
  });
  system.addEventListener("change", name);
  button.hidden = false;
  name();
}

setUp();
listen();
themes();
