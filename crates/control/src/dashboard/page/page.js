// Kinds of events: what to call them, and whether they are bad news.
const EVENTS = {
  "up": ["session up"], "down": ["session down", true], "fade": ["fade begins", true], "fade-end": ["fade ends"],
  "moved": ["address changed"], "rekey": ["new keys"], "tripped": ["rate lowered: most was lost", true],
  "restored": ["rate restored"], "told": ["rate reported"],
  "overload": ["the rate exceeds the link", true], "overload-end": ["the rate fits the link"], "capacity-fall": ["the link's capacity fell", true], "bypass": ["connections bypass the gateway", true],
  "bypass-end": ["connections intercepted again"], "reload": ["configuration reloaded"], "drain": ["draining", true],
};
const MOST_EVENTS = 300;
const wish = { session: null, sort: "peer", descending: false, filter: "", page: 0 };
let source = null, range = 0, gateway = null, session = null, events = [], own = [], list = null, connections = null, began = 0, before = null, past = null;

const rates = (figure, name, style) => ({ figure, name, style, show: rate });
const charts = {
  traffic: new Chart(id("traffic"), "All connections together", [rates("to_hop", "towards the satellite", "a"), rates("from_hop", "from the satellite", "c")], 1000),
  rates: new Chart(id("rates"), "Rates on the satellite link", [rates("rate", "allowed to send", "b dash"), rates("told", "reported by the modem", "d dots"), rates("found", "measured capacity", "e dots"), rates("sent", "sent", "a"), rates("received", "received", "c")], 1000),
  delays: new Chart(id("delays"), "Delay", [{ figure: "rtt", name: "round trip", style: "a", show: ms }, { figure: "queue", name: "waiting in the link", style: "b", show: ms }], 10),
  losses: new Chart(id("losses"), "Packets lost and restored", [{ figure: "lost", name: "lost, sent again", style: "b", show: perSecond }, { figure: "restored", name: "restored here by FEC", style: "c", show: perSecond }], 1),
  cost: new Chart(id("repair-cost"), "Cost of repairs", [rates("repairs", "FEC repairs sent", "d")], 1000),
};

const CLASS_STYLES = ["a", "b", "c", "d", "e", "a dash", "b dash", "c dash"];
// The graph of these classes, made anew when there are others.
function classChart(names) {
  if (charts.classes && charts.classes.names.join() === names.join()) return charts.classes;
  id("class-rates").replaceChildren();
  charts.classes = new Chart(id("class-rates"), "Sent of each class", names.map((name, i) => rates("class " + name, name, CLASS_STYLES[i % CLASS_STYLES.length])), 1000);
  return Object.assign(charts.classes, { names });
}

const column = (label, text, more = {}) => ({ label, text, ...more });
const number = (label, text, more = {}) => column(label, text, { number: true, ...more });
const COLUMNS = [
  column("peer", row => row.peer, { sort: "peer" }),
  column("state", row => row.verdict, { sort: "up" }),
  number("allowed to send", row => rate(row.rate), { sort: "rate" }),
  number("sent", row => rate(row.sent), { sort: "sent" }),
  number("received", row => rate(row.received), { sort: "received" }),
  number("RTT", row => ms(row.rtt), { sort: "rtt" }),
  number("wait", row => ms(row.queue), { sort: "queue" }),
  number("loss", row => percent(row.loss), { sort: "loss" }),
  number("connections", row => String(row.streams), { sort: "streams" }),
];
const limited = text => text.replaceAll("-", " ");
const tables = {
  list: new Table(id("list"), COLUMNS, { sort: sortBy, choose }),
  repairs: new Table(id("repairs"), [column("what", row => row[0]), number("how much", row => row[1]), number("share", row => row[2])]),
  classes: new Table(id("classes"), [column("class", row => row.name), number("weight", row => String(row.weight)), number("sent now", row => rate(row.now)),
    number("sent", row => bytes(row.sent_bytes)), number("waiting", row => bytes(row.waiting_bytes)), number("guaranteed", row => rate(row.guaranteed_bit_s)), number("at most", row => rate(row.maximum_bit_s))]),
  channels: new Table(id("channels"), [column("channel", row => row.channel + (row.class ? " " + row.class : "")), number("sent", row => count(row.packets_sent)),
    number("sent again", row => count(row.retransmitted)), number("lost", row => count(row.lost)), number("dropped", row => count(row.dropped_full + row.dropped_aqm + row.expired)),
    number("waiting", row => bytes(row.waiting_bytes)), number("queue", row => ms(row.queue_ms)), number("received", row => count(row.packets_received)), number("restored", row => count(row.recovered)), number("missing", row => count(row.missing))]),
  absent: new Table(id("absent"), [column("terminal", row => row.peer), column("last heard", row => row.silent_s === null ? "never" : lasts(row.silent_s) + " ago"), column("why", row => row.why || "it has not connected since this hub keeps a record")]),
  strangers: new Table(id("strangers"), [column("from", row => row.address), column("why refused", row => row.key ? "its key " + row.key + " is not permitted" : "it asks for a hub with another key"),
    number("attempts", row => count(row.attempts)), number("last", row => lasts(row.last_s) + " ago")]),
  connections: new Table(id("connections"), [column("client", row => row.client + (row.client_claimed ? " (claimed)" : "")), column("destination", row => row.destination),
    number("age", row => lasts(gateway.t - row.since)), number("towards satellite", row => bytes(row.to_hop_bytes)), number("from satellite", row => bytes(row.from_hop_bytes)),
    column("towards it, limited by", row => limited(row.to_hop_limit)), column("from it, limited by", row => limited(row.from_hop_limit)),
    number("LAN RTT", row => ms(row.lan_rtt_ms)), number("resent", row => bytes(row.resent_bytes)), number("restored", row => bytes(row.recovered_bytes))]),
};

// Rows of a list as it was sent: those that have changed, and the order if it has.
function merge(rows, { order, changed }) {
  const merged = rows || { order: [], by: {} };
  Object.assign(merged.by, changed);
  if (order) {
    merged.order = order;
    merged.by = Object.fromEntries(order.map(key => [key, merged.by[key]]));
  }
  return merged;
}
const ordered = rows => rows.order.map(key => [key, rows.by[key]]);

function follow() {
  if (source) source.close();
  [session, own, list, connections, before] = [null, [], null, null, null];
  let first = true;
  const query = new URLSearchParams({ sort: wish.sort, descending: wish.descending, filter: wish.filter, page: wish.page });
  if (wish.session) query.set("session", wish.session);
  const mine = source = new EventSource("events?" + query);
  mine.onmessage = message => {
    take(JSON.parse(message.data), first);
    first = false;
    say(id("feed"), "");
  };
  mine.onerror = () => {
    say(id("feed"), "no connection to the gateway, trying again");
    id("state").className = "badge bad";
    mine.close();
    setTimeout(() => { if (mine === source) follow(); }, 3000);
  };
}

function take(message, first) {
  gateway = { ...message.gateway, t: message.t };
  began = Date.now() / 1000 - message.t;
  if (first) [past, events] = [new History(message.history), []];
  else past.add(message.t, message.now);
  events = [...events, ...message.events].slice(-MOST_EVENTS);
  list = { ...message.list, rows: merge(list && list.rows, message.list.rows) };
  if (message.session) takeSession(message.session, message.t);
  if (message.connections) connections = { total: message.connections.total, rows: merge(connections && connections.rows, message.connections.rows) };
  if (!first) announce(wish.session ? message.session ? message.session.events : [] : message.events);
  // With one session there is nothing to choose.
  if (!wish.session && !wish.filter && list.total === 1) return choose(list.rows.order[0], false);
  show();
}

function takeSession({ status, now, events: more, history: whole }, t) {
  if (whole) session = { history: new History(whole) };
  else session.history.add(t, now);
  own = [...own, ...more].slice(-MOST_EVENTS);
  before = session.status ? { t: session.t, status: session.status } : null;
  Object.assign(session, { now, t, status: status || session.status, up: status !== null });
}

// Says events to those who do not see the page, without repeating all of it.
function announce(news) {
  const told = news.filter(event => event.kind !== "rekey").map(event => (event.peer ? event.peer + ": " : "") + (EVENTS[event.kind] || [event.kind])[0]);
  if (told.length) say(id("news"), told.slice(-3).join("; "));
}

function show() {
  showGateway();
  showNextStep();
  showList();
  showAbsent();
  showSession();
  showConnections();
  showEvents();
}

function showGateway() {
  const { host, role, version, interception: it, traffic, memory, draining_s: draining } = gateway;
  say(id("role"), (host ? host + ", " : "") + role + " " + version);
  document.title = (session && session.status ? session.status.peer + " – " : "") + (host ? host + " – " : "") + "skyhop " + role;
  const reachable = Object.values(list.rows.by).some(row => row.up) || list.total > list.rows.order.length;
  const [text, kind] = draining !== null ? ["draining", "bad"] : list.total === 0 && role === "hub" ? ["waiting for terminals", ""]
    : it && !it.on ? ["connections pass unaccelerated: " + limited(it.why || ""), "bad"]
    : role === "solo" || reachable ? ["in service", "good"] : [role === "hub" ? "no terminal answers" : "the hub does not answer", "bad"];
  say(id("state"), text);
  id("state").className = "badge " + kind;
  const moved = [traffic.to_hop_bytes + traffic.up_bytes, traffic.from_hop_bytes + traffic.down_bytes];
  tiles(id("facts"), [
    ["running for", lasts(gateway.uptime_s)],
    ["connections", memory.connections.toLocaleString("en"), "of at most " + count(memory.connections_limit)],
    ["carried so far", count(traffic.connections), count(traffic.closed) + " closed, " + count(traffic.reset) + " reset, " + count(traffic.failed) + " failed"],
    [role === "solo" ? "uploaded" : "towards satellite", bytes(moved[0])], [role === "solo" ? "downloaded" : "from satellite", bytes(moved[1])],
    ["data in memory", bytes(memory.held_bytes), "of at most " + bytes(memory.limit_bytes)], ["memory of the program", bytes(memory.resident_bytes)],
    ...(gateway.dlep ? [["modem", gateway.dlep.state, rate(gateway.dlep.rate_bit_s)]] : []),
  ]);
  // With one session, its own graph of rates shows the same.
  id("traffic").hidden = list.total === 1 && role !== "solo";
  if (!id("traffic").hidden) charts.traffic.show(past, range, events.filter(event => !event.peer));
}

// What to do where nothing is to be seen yet.
function showNextStep() {
  const { role, hubs, strangers, absent_total: absent } = gateway;
  const silent = hubs.find(hub => hub.why);
  const step = list.total > 0 || role === "solo" ? ""
    : role === "terminal" ? silent ? `No answer from ${silent.name} at ${silent.address} for ${lasts(silent.silent_s)}: ${silent.why}. Run skyhop doctor with this terminal's file.` : "The session with the hub is being set up."
    : strangers.length ? "No terminal is connected, but some ask and are refused: see below."
    : absent ? `No terminal is connected yet. Start one with skyhop terminal; if it stays absent, run skyhop doctor with its file there.`
    : "No terminal is permitted yet: add a [[terminal]], or invite one with skyhop enrol invite.";
  say(id("next-step"), step);
  id("next-step").hidden = !step;
}

function showAbsent() {
  const { absent, absent_total: total, strangers } = gateway;
  id("absent-part").hidden = !total;
  say(id("absent-title"), plural(total, "absent terminal"));
  tables.absent.show(absent.map(row => [row.key, row]));
  id("strangers-part").hidden = !strangers.length;
  tables.strangers.show(strangers.map(row => [row.key || row.address, row]));
}

function showList() {
  id("sessions").hidden = list.total < 2 && !wish.filter;
  say(id("sessions-title"), plural(list.total, "session") + (wish.filter ? ", " + list.found + " found" : ""));
  tables.list.showOrder(wish.sort, wish.descending);
  tables.list.show(ordered(list.rows), wish.session);
  const pages = Math.ceil(list.found / list.page);
  id("pager").hidden = pages < 2;
  say(id("place"), `page ${wish.page + 1} of ${pages}`);
  [id("back").disabled, id("forth").disabled] = [wish.page === 0, wish.page + 1 >= pages];
}

function showSession() {
  id("session").hidden = !session || !session.status;
  if (id("session").hidden) return;
  const { status: s, now, up } = session;
  say(id("session-title"), s.peer);
  const [text, kind] = !up ? ["session ended", "bad"] : [s.verdict, { good: "good", warn: "", bad: "bad" }[s.health]];
  say(id("session-state"), text);
  id("session-state").className = "badge " + kind;
  say(id("session-line"), `${s.address}, for ${lasts(s.since_s)}, packets of ${s.packet_bytes} bytes, ${plural(s.key_changes, "key renewal")}, ${plural(s.outages, "outage")}`);
  const told = s.told_bit_s !== null ? [rate(s.told_bit_s), (s.told_by_modem ? "by the modem " : "by an operator ") + lasts(s.told_age_s || 0) + " ago"]
    : s.rate_source === "fixed" ? [rate(s.rate_state === "tripped" ? null : s.rate_bit_s), "configured"] : ["–", s.rate_source === "auto" ? "measured here" : "no report"];
  tiles(id("figures"), [
    ["configured or reported", ...told],
    ["allowed to send", rate(s.rate_bit_s), s.rate_state || s.rate_source, s.rate_state === "tripped"],
    ["sent now", rate(now.sent), s.rate_bit_s ? Math.round(100 * (now.sent || 0) / s.rate_bit_s) + " % of it" : ""],
    ["received now", rate(now.received)],
    ["capacity", rate(s.capacity_bit_s), s.capacity_bit_s === null ? "not measured" : "measured"],
    ["round trip", ms(s.rtt_ms), s.min_rtt_ms === null ? "" : "at least " + ms(s.min_rtt_ms)],
    ["waits in the link", ms(s.queue_ms), bytes(s.held_to_send_bytes) + " not yet acknowledged"],
    ["loss", percent(s.loss), "lately", s.loss > 0.05],
    ["connections", String(s.streams)],
    ...(s.ecn ? [["ECN", s.ecn, count(s.ce_reported) + " marked"]] : []),
  ]);
  for (const name of ["rates", "delays", "losses", "cost"]) charts[name].show(session.history, range, own);
  // One class alone sends what the session does.
  const classes = s.classes.map(row => row.name).filter(name => "class " + name in now);
  id("class-rates").hidden = classes.length < 2;
  if (classes.length > 1) classChart(classes).show(session.history, range, own);
  showRepairs(s);
  const waits = before && session.t - before.t;
  const sentNow = row => { const old = waits && before.status.classes.find(it => it.name === row.name); return old ? Math.max(row.sent_bytes - old.sent_bytes, 0) * 8 / waits : null; };
  const classRow = row => [row.name, { ...row, now: sentNow(row) }];
  const busy = s.classes.filter(row => row.sent_bytes + row.waiting_bytes > 0), idle = s.classes.filter(row => !busy.includes(row));
  tables.classes.show(busy.map(classRow));
  id("idle-classes").hidden = !idle.length;
  say(id("idle-title"), plural(idle.length, "idle class").replace("classs", "classes") + ": " + idle.map(row => row.name).join(", "));
  const used = s.channels.filter(row => row.packets_sent + row.packets_received + row.dropped_full + row.waiting_bytes);
  id("channels-part").hidden = !used.length;
  tables.channels.show(used.map(row => [String(row.channel), row]));
}

function showRepairs(s) {
  tables.repairs.show([
    ["lost on the way to the peer, sent again (ARQ)", count(s.packets_lost), share(s.packets_lost, s.packets_sent) + " of sent"],
    ["lost on the way here, restored by FEC", count(s.recovered), share(s.recovered, s.packets_received + s.recovered) + " of arriving"],
    ["cost: FEC repairs sent", bytes(s.repair_bytes), share(s.repair_bytes, s.bytes_sent) + " of sent"],
    ["cost: padding to measure the path", bytes(s.padding_bytes), share(s.padding_bytes, s.bytes_sent) + " of sent"],
    ["cost: acknowledgements sent", count(s.acknowledgements), share(s.acknowledgements, s.packets_sent) + " of packets"],
    ["cost: packets received twice", count(s.duplicates), share(s.duplicates, s.packets_received) + " of received"],
    ["waited too long for an answer", count(s.probes), ""],
  ].map(row => [row[0], row]));
}

function showConnections() {
  id("connections-part").hidden = !connections;
  if (!connections) return;
  const shown = connections.rows.order.length;
  say(id("connections-note"), connections.total === 0 ? "none" : shown < connections.total ? `the ${shown} of ${connections.total} that have moved the most` : `${shown}; limited by: what the gateway has lately waited for`);
  tables.connections.show(ordered(connections.rows));
}

function showEvents() {
  id("only-part").hidden = !session;
  const chosen = session && id("only").checked ? own : events;
  const shown = chosen.slice(-100).reverse();
  const place = id("events");
  while (place.children.length > shown.length) place.lastChild.remove();
  while (place.children.length < shown.length) place.append(element("li", {}, element("time"), element("span"), element("span", { className: "what" })));
  shown.forEach((event, i) => {
    const [time, peer, what] = place.children[i].children;
    const at = new Date((began + event.t) * 1000);
    say(time, at.toLocaleTimeString("en-GB"));
    time.dateTime = at.toISOString();
    const [name, bad] = EVENTS[event.kind] || [event.kind];
    say(peer, event.peer || "gateway");
    const detail = event.kind === "told" || event.kind === "tripped" || event.kind === "restored" ? (event.detail || "").replace(/\d+ bit\/s/, text => rate(parseInt(text, 10))) : limited(event.detail || "");
    say(what, name + (detail ? ": " + detail : ""));
    what.className = bad ? "what bad-text" : "what";
  });
  if (!shown.length) place.replaceChildren(element("li", {}, element("span"), element("span"), element("span", { textContent: "none yet" })));
}

function choose(key, move = true) {
  wish.session = key;
  history.replaceState(null, "", "#" + new URLSearchParams({ session: key }));
  follow();
  if (move) id("session").scrollIntoView();
}

function sortBy(column) {
  // Names from A on, figures from the largest on.
  wish.descending = wish.sort === column ? !wish.descending : column !== "peer";
  [wish.sort, wish.page] = [column, 0];
  [id("sort").value, id("descending").checked] = [wish.sort, wish.descending];
  follow();
}

function start() {
  for (const { label, sort } of COLUMNS) id("sort").append(element("option", { value: sort, textContent: label }));
  id("sort").onchange = () => { [wish.sort, wish.page] = [id("sort").value, 0]; follow(); };
  id("descending").onchange = () => { [wish.descending, wish.page] = [id("descending").checked, 0]; follow(); };
  let typed;
  id("filter").oninput = () => {
    clearTimeout(typed);
    typed = setTimeout(() => { [wish.filter, wish.page] = [id("filter").value.trim(), 0]; follow(); }, 300);
  };
  id("finder").onsubmit = event => event.preventDefault();
  id("back").onclick = () => { wish.page--; follow(); };
  id("forth").onclick = () => { wish.page++; follow(); };
  id("only").onchange = show;
  for (const input of document.querySelectorAll("input[name=range]")) input.onchange = () => { range = Number(input.value); show(); };
  // A page that nobody sees costs the link nothing.
  let leaving;
  document.addEventListener("visibilitychange", () => {
    clearTimeout(leaving);
    if (document.hidden) leaving = setTimeout(() => { if (source) source.close(); source = null; }, 60000);
    else if (!source) follow();
  });
  wish.session = new URLSearchParams(location.hash.slice(1)).get("session");
  follow();
}
start();
