// Elements and text. What comes from a gateway or its peers is only ever set as text.
const id = name => document.getElementById(name);
const element = (kind, properties = {}, ...children) => {
  const made = Object.assign(document.createElement(kind), properties);
  made.append(...children);
  return made;
};
const say = (place, text) => { if (place.textContent !== text) place.textContent = text; };
const scaled = (value, unit) => {
  for (const prefix of ["", "k", "M", "G", "T"]) {
    if (value < 999.5 || prefix === "T") return Number(value.toPrecision(3)) + " " + prefix + unit;
    value /= 1000;
  }
};
const known = show => value => value === null || value === undefined ? "–" : show(value);
const bytes = known(value => scaled(value, "B"));
const rate = known(value => scaled(value, "bit/s"));
const count = known(value => Number(value.toPrecision(3)).toLocaleString("en"));
const ms = known(value => value === 0 || value >= 9.95 ? Math.round(value) + " ms" : value.toFixed(1) + " ms");
const percent = known(value => value === 0 ? "0 %" : value < 0.0001 ? "< 0.01 %" : Number((value * 100).toPrecision(2)) + " %");
const perSecond = known(value => Number(value.toPrecision(2)) + " /s");
const plural = (number, noun) => count(number) + " " + noun + (number === 1 ? "" : "s");
const share = (part, whole) => whole ? percent(part / whole) : "–";
const lasts = s => s < 120 ? Math.round(s) + " s" : s < 7200 ? Math.round(s / 60) + " min" : s < 172800 ? Math.round(s / 3600) + " h" : Math.round(s / 86400) + " d";

// Terms of a description list, as tiles: name, value, and a note.
function tiles(place, rows) {
  while (place.children.length < rows.length) place.append(element("div", {}, element("dt"), element("dd", {}, element("span"), element("small"))));
  while (place.children.length > rows.length) place.lastChild.remove();
  rows.forEach(([name, value, note = "", bad = false], i) => {
    const [term, description] = place.children[i].children;
    say(term, name);
    say(description.children[0], value);
    description.children[0].className = bad ? "bad-text" : "";
    say(description.children[1], note);
  });
}

// A table that keeps the rows it has, so that neither focus nor a selection of text is lost. A
// column is {label, text, number, sort}; rows are [key, value]; the first column heads its row.
class Table {
  constructor(place, columns, options = {}) {
    Object.assign(this, { place, columns, options, rows: new Map() });
    // Roles are explicit: on a phone rows become cards, and browsers then forget that this is a table.
    place.setAttribute("role", "table");
    place.classList.add("cards");
    this.head = element("tr", {}, ...columns.map(column => this.heading(column)));
    this.head.setAttribute("role", "row");
    this.body = element("tbody");
    place.append(element("thead", {}, this.head), this.body);
  }
  heading(column) {
    const cell = element("th", { scope: "col", className: column.number ? "number" : "" });
    cell.setAttribute("role", "columnheader");
    if (!column.sort) {
      cell.textContent = column.label;
      return cell;
    }
    cell.append(element("button", { type: "button", textContent: column.label, onclick: () => this.options.sort(column.sort) }));
    return cell;
  }
  showOrder(sort, descending) {
    this.columns.forEach((column, i) => {
      if (column.sort === sort) this.head.children[i].setAttribute("aria-sort", descending ? "descending" : "ascending");
      else this.head.children[i].removeAttribute("aria-sort");
    });
  }
  row(key) {
    const cells = this.columns.map((column, i) => {
      const cell = i ? element("td", { className: column.number ? "number" : "" }) : element("th", { scope: "row" });
      cell.setAttribute("role", i ? "cell" : "rowheader");
      if (i) cell.dataset.label = column.label;
      const holder = i || !this.options.choose ? element("span") : element("button", { type: "button", onclick: () => this.options.choose(key) });
      cell.append(holder);
      return cell;
    });
    const made = element("tr", {}, ...cells);
    made.setAttribute("role", "row");
    return made;
  }
  show(rows, chosen) {
    const there = new Set(rows.map(([key]) => key));
    for (const [key, row] of this.rows) if (!there.has(key)) { row.remove(); this.rows.delete(key); }
    rows.forEach(([key, value], at) => {
      if (!this.rows.has(key)) this.rows.set(key, this.row(key));
      const row = this.rows.get(key);
      this.columns.forEach((column, i) => say(row.children[i].firstChild, column.text(value)));
      row.classList.toggle("chosen", key === chosen);
      if (this.options.choose) row.firstChild.firstChild.setAttribute("aria-pressed", key === chosen);
      if (this.body.children[at] !== row) this.body.insertBefore(row, this.body.children[at] || null);
    });
  }
}
