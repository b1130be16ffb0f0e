// Series over the last minutes or the last hour, as graphs with tables beside them.
const SVG = "http://www.w3.org/2000/svg";
const shape = (kind, attributes, ...children) => {
  const made = document.createElementNS(SVG, kind);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.append(...children);
  return made;
};
// Samples kept, and the seconds of one, as in history/ring.rs.
const KEPT = { fine: [600, 1], coarse: [360, 10] };
// What a graph shows: samples, and how many.
const RANGES = [["fine", 120], ["fine", 600], ["coarse", 360]];

// The samples of a gateway or a session at both resolutions. `last` is the slot of the last sample.
class History {
  constructor(history) {
    for (const range of Object.keys(KEPT)) this[range] = history[range];
    this.sums = null;
  }
  add(t, now) {
    this.put(this.fine, t, now, KEPT.fine[0]);
    const slot = Math.floor(t / KEPT.coarse[1]);
    if (!this.sums || this.sums.slot !== slot) this.sums = { slot, figures: {} };
    const means = {};
    for (const [name, value] of Object.entries(now)) {
      const sum = this.sums.figures[name] ||= [0, 0];
      if (value !== null) { sum[0] += value; sum[1]++; }
      means[name] = sum[1] ? sum[0] / sum[1] : null;
    }
    this.put(this.coarse, slot, means, KEPT.coarse[0]);
  }
  put(ring, slot, sample, most) {
    const gap = Math.min(slot - ring.last, most);
    // Classes come and go.
    for (const name of Object.keys(sample)) ring.figures[name] ||= [];
    for (const [name, values] of Object.entries(ring.figures)) {
      const value = sample[name] ?? null;
      for (let i = 1; i < gap; i++) values.push(null);
      if (gap > 0 || !values.length) values.push(value); else values[values.length - 1] = value;
      if (values.length > most) values.splice(0, values.length - most);
    }
    ring.last = Math.max(slot, ring.last);
  }
}

// A graph of some figures of a history. Each series is {figure, name, style, show}.
class Chart {
  constructor(place, title, series, least) {
    Object.assign(this, { title, series, least });
    this.svg = shape("svg", { role: "img", focusable: "false" });
    this.legend = element("ul", { className: "legend" });
    this.values = series.map(({ name, style }) => {
      const value = element("b");
      const line = shape("svg", { viewBox: "0 0 26 10", "aria-hidden": "true" }, shape("line", { x1: 0, x2: 26, y1: 5, y2: 5, class: "series " + style }));
      this.legend.append(element("li", {}, line, " " + name + " ", value));
      return value;
    });
    this.table = element("table");
    this.details = element("details", {}, element("summary", { textContent: "as a table" }), this.table);
    place.append(element("figure", {}, element("figcaption", { textContent: title }), this.legend, this.svg, this.details));
    this.details.addEventListener("toggle", () => this.draw());
    new ResizeObserver(() => this.draw()).observe(place);
  }
  show(history, range, events) {
    Object.assign(this, { history, range, events });
    this.draw();
  }
  draw() {
    if (!this.history) return;
    const [kind, most] = RANGES[this.range], step = KEPT[kind][1], ring = this.history[kind];
    const columns = this.series.map(({ figure }) => (ring.figures[figure] || []).slice(-most));
    const latest = columns.map(values => values.at(-1));
    this.series.forEach(({ show }, i) => say(this.values[i], show(latest[i])));
    const width = Math.max(this.svg.clientWidth, 200), height = this.svg.clientHeight || 150;
    const top = ceiling(Math.max(this.least, ...columns.flat().filter(value => value !== null)));
    const frame = { width, height, left: 0, bottom: height - 18, above: 12, top, most, step };
    frame.x = back => width - back * width / most;
    frame.y = value => frame.bottom - (frame.bottom - frame.above) * value / top;
    this.svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
    const named = this.series.map(({ name, show }, i) => name + " " + show(latest[i])).join(", ");
    this.svg.setAttribute("aria-label", `${this.title}, last ${lasts(most * step)}. Now: ${named}.`);
    this.svg.replaceChildren(...this.fades(frame, ring), ...this.grid(frame), ...this.marks(frame, ring), ...columns.map((values, i) =>
      shape("path", { class: "series " + this.series[i].style, d: line(values, frame) })));
    if (this.details.open) this.tabulate(columns, most, step);
  }
  grid(frame) {
    const show = this.series[0].show;
    const levels = [0, 0.5, 1].map(part => {
      const y = frame.y(frame.top * part);
      return [shape("line", { class: "grid", x1: 0, x2: frame.width, y1: y, y2: y }),
        ...(part ? [shape("text", { x: 2, y: y - 3 }, show(frame.top * part))] : [])];
    });
    const times = [0.75, 0.5, 0.25].map(part => shape("text", { x: frame.x(frame.most * part), y: frame.height - 4, "text-anchor": "middle" }, "−" + lasts(frame.most * frame.step * part)));
    return [...levels.flat(), ...times, shape("text", { x: frame.width - 2, y: frame.height - 4, "text-anchor": "end" }, "now")];
  }
  // Shades the time in which the peer did not answer.
  fades(frame, ring) {
    const up = (ring.figures.up || []).slice(-frame.most), found = [];
    for (let i = 0, from = null; i <= up.length; i++) {
      const faded = i < up.length && up[i] !== null && up[i] < 1;
      if (faded && from === null) from = i;
      if (!faded && from !== null) {
        const x = frame.x(up.length - from);
        found.push(shape("rect", { class: "fade", x, y: frame.above, width: Math.max(frame.x(up.length - i) - x, 2), height: frame.bottom - frame.above }));
        from = null;
      }
    }
    return found;
  }
  marks(frame, ring) {
    const now = (ring.last + 1) * frame.step;
    return this.events.filter(event => now - event.t < frame.most * frame.step).flatMap(event => {
      const x = frame.x((now - event.t) / frame.step);
      const words = EVENTS[event.kind] || [event.kind];
      return [shape("line", { class: "mark", x1: x, x2: x, y1: 8, y2: frame.bottom }),
        shape("path", { class: "mark-head" + (words[1] ? " bad" : ""), d: `M${x - 4} 0h8l-4 8z` }, shape("title", {}, words[0]))];
    });
  }
  tabulate(columns, most, step) {
    const per = most / 20, rows = [];
    for (let row = 0; row < 20; row++) {
      const cells = columns.map((values, i) => {
        const part = values.slice(Math.max(values.length - (row + 1) * per, 0), Math.max(values.length - row * per, 0)).filter(value => value !== null);
        return this.series[i].show(part.length ? part.reduce((sum, value) => sum + value, 0) / part.length : null);
      });
      if (cells.some(text => text !== "–")) rows.push([lasts(row * per * step) + " – " + lasts((row + 1) * per * step) + " ago", ...cells]);
    }
    const cell = (text, head) => element(head ? "th" : "td", { textContent: text, className: head ? "" : "number" });
    this.table.replaceChildren(
      element("thead", {}, element("tr", {}, cell("mean of", true), ...this.series.map(({ name }) => element("th", { scope: "col", className: "number", textContent: name })))),
      element("tbody", {}, ...rows.map(([head, ...rest]) => element("tr", {}, Object.assign(cell(head, true), { scope: "row" }), ...rest.map(text => cell(text, false))))));
  }
}

// The next number above it with one digit.
function ceiling(value) {
  const unit = 10 ** Math.floor(Math.log10(value));
  return [1, 1.5, 2, 3, 4, 5, 6, 8, 10].map(step => step * unit).find(step => step >= value * 0.999);
}

function line(values, frame) {
  let path = "", pen = false;
  values.forEach((value, i) => {
    if (value === null || value === undefined) { pen = false; return; }
    path += (pen ? "L" : "M") + frame.x(values.length - 1 - i).toFixed(1) + " " + frame.y(value).toFixed(1);
    // A sample alone is a dot.
    if (!pen && (values[i + 1] === null || values[i + 1] === undefined)) path += "h1";
    pen = true;
  });
  return path;
}
