// Shows what the master says, once a second, and its events as they come. Whatever a peer can name
// goes into the page as text, never as markup.
"use strict";

const $ = (id) => document.getElementById(id);
const SVG = "http://www.w3.org/2000/svg";
const PEERS_MAX = 256, MATRIX_MAX = 24, EVENTS_MAX = 1024;
const KILLS = new Set(["evict", "ban", "convicted"]);
const JOINS = new Set(["admit"]);
const OF_ROUNDS = new Set(["start", "commit"]);
const BAD = new Set(["abort", "fault", "reject", "refuse", "cut", "violation", "dispute", "held", "outvoted"]);

let token = "", latest = null, last = 0, born = 0, told = 0, failures = 0, stamp = 0;
let events = [];
let before = new Map();  // incarnation -> [t, bytes]

// Signs that a reader would not see, or that turn the text around, are written out.
function shown(text) {
  return String(text).replace(/[\p{Cc}\p{Cf}\p{Zl}\p{Zp}]/gu, (sign) => "\\u{" + sign.codePointAt(0).toString(16) + "}");
}
function put(element, parts) {
  for (const part of parts.flat()) {
    if (part !== null && part !== undefined) element.append(part instanceof Node ? part : document.createTextNode(shown(part)));
  }
  return element;
}
function make(name, attributes, ...parts) {
  const element = document.createElement(name);
  for (const [key, value] of Object.entries(attributes || {})) element.setAttribute(key, value);
  return put(element, parts);
}
function draw(name, attributes, ...parts) {
  const element = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  return put(element, parts);
}
const named = (text) => make("bdi", {}, text);
function fill(id, ...parts) { const element = $(id); element.replaceChildren(); put(element, parts); }

function bytes(n) {
  for (const [unit, name] of [[1e12, "TB"], [1e9, "GB"], [1e6, "MB"], [1e3, "kB"]]) {
    if (n >= unit) return (n / unit).toFixed(n / unit < 10 ? 1 : 0) + " " + name;
  }
  return Math.round(n) + " B";
}
const rate = (n) => n > 0 ? bytes(n) + "/s" : "–";
function span(s) {
  if (s < 0.9995) return Math.round(s * 1000) + " ms";
  if (s < 60) return s.toFixed(1) + " s";
  if (s < 3600) return Math.floor(s / 60) + " min " + Math.floor(s % 60) + " s";
  return s < 86400 ? Math.floor(s / 3600) + " h " + Math.floor(s % 3600 / 60) + " min" : Math.floor(s / 86400) + " d " + Math.floor(s % 86400 / 3600) + " h";
}
const clock = (t) => new Date(born + t * 1000).toLocaleTimeString([], {hour12: false});

function table(id, heads, rows, none) {
  if (!rows.length) return fill(id, make("tbody", {}, make("tr", {}, make("td", {class: "none"}, none))));
  for (const row of rows) [...row.children].forEach((one, n) => { if (typeof heads[n] === "string") one.setAttribute("data-head", heads[n]); });
  fill(id, make("thead", {}, make("tr", {}, heads.map((head) => make("th", {scope: "col"}, head)))),
    make("tbody", {}, rows));
}
const short = (name) => name.length > 14 ? name.slice(0, 13) + "…" : name;
const cell = (value, kind) => make("td", kind ? {class: kind} : {}, value);

function stateOf(peer) {
  if (!peer.connected) return ["lost", "bad"];
  if (!peer.admitted) return ["observer", ""];
  return peer.trouble ? ["member", "warn"] : ["member", "good"];
}

function showPeers(whole) {
  const now = whole.t, next = new Map();
  const uplinks = new Map(whole.status.uplinks.map((one) => [one.peer, one.bytes_per_s]));
  const rows = whole.status.peers.slice(0, PEERS_MAX).map((peer) => {
    const seen = before.get(peer.incarnation);
    const fresh = seen && now - seen[0] < 0.5;
    const speed = seen && !fresh ? Math.max(0, (peer.progress_bytes - seen[1]) / (now - seen[0])) : seen ? seen[2] : 0;
    next.set(peer.incarnation, fresh ? seen : [now, peer.progress_bytes, speed]);
    const [state, kind] = stateOf(peer);
    const left = peer.moving.reduce((sum, one) => sum + one.left_bytes, 0);
    const all = peer.moving.reduce((sum, one) => sum + one.all_bytes, 0);
    const joined = Object.hasOwn(whole.joined, peer.site) ? whole.joined[peer.site] : 0;
    return make("tr", {}, cell(named(peer.site || "–")), cell(peer.shards > 1 ? peer.shard + "/" + peer.shards : "–"),
      cell(peer.id || "–"), cell(state, kind), cell(peer.admitted ? (joined ? "" : "≥ ") + span(now - joined) : "–"),
      cell(span(peer.silent_s), peer.silent_s > whole.status.silence_s / 2 ? "warn" : ""), cell(rate(speed)),
      cell(rate(uplinks.get(peer.id) || 0)), cell(all ? bytes(left) + " of " + bytes(all) : "–"),
      cell([peer.trouble, peer.faults, peer.waiting_for].filter(Boolean).join("; ") || "–", "words"));
  });
  before = next;
  table("peers", ["site", "shard", "peer", "state", "member for", "silent", "moves", "uplink", "left", "waits for"], rows, "no peers");
}

// Site → sites it waits for: by its transfers, and where the master's words name a member.
function waitsOf(status) {
  const site = new Map(status.peers.map((peer) => [peer.id, peer.site]));
  const members = new Set(status.peers.map((peer) => peer.site));
  const edges = new Map();
  for (const peer of status.peers) {
    const whom = new Set(peer.moving.map((one) => site.get(one.waits_on)));
    const at = peer.waiting_for.search(/\bwaits? (for|on)\b/);
    if (at >= 0) {
      const words = peer.waiting_for.slice(at).split(/[\s,;]+/).slice(2);
      for (const word of words) if (members.has(word)) whom.add(word);
    }
    whom.delete(peer.site);
    whom.delete(undefined);
    if (whom.size) edges.set(peer.site, new Set([...(edges.get(peer.site) || []), ...whom]));
  }
  return edges;
}

function showWaits(status) {
  const edges = waitsOf(status);
  const sites = [...new Set(status.peers.filter((peer) => peer.admitted).map((peer) => peer.site))];
  const words = status.tags.filter((tag) => tag.waiting_for).map((tag) => make("li", {}, named(tag.tag), " " , tag.waiting_for));
  fill("waits-words", words);
  if (!edges.size) return fill("waits", make("p", {class: "none"}, "nobody waits"));
  if (sites.length > 32) return fill("waits", make("ul", {}, [...edges].slice(0, 64).map(([from, to]) => make("li", {}, named(from), " → ", [...to].slice(0, 8).join(", ")))));
  const size = 290, middle = size / 2, radius = sites.length > 1 ? 100 : 0;
  const place = new Map(sites.map((site, n) => [site, [middle + radius * Math.sin(2 * Math.PI * n / sites.length), middle - radius * Math.cos(2 * Math.PI * n / sites.length)]]));
  const waited = new Set([...edges.values()].flatMap((to) => [...to]));
  const lost = new Set(status.peers.filter((peer) => !peer.connected).map((peer) => peer.site));
  const lines = [];
  for (const [from, all] of edges) {
    for (const to of all) {
      const a = place.get(from), b = place.get(to);
      if (!a || !b) continue;
      const long = Math.hypot(b[0] - a[0], b[1] - a[1]) || 1, x = (b[0] - a[0]) / long, y = (b[1] - a[1]) / long;
      lines.push(draw("line", {class: "edge", x1: a[0] + 13 * x, y1: a[1] + 13 * y, x2: b[0] - 17 * x, y2: b[1] - 17 * y}));
    }
  }
  const nodes = sites.map((site) => {
    const [x, y] = place.get(site), kind = lost.has(site) ? " lost" : waited.has(site) ? " waited" : "";
    const name = shown(site);
    return draw("g", {}, draw("title", {}, site), draw("circle", {class: "node" + kind, cx: x, cy: y, r: 12}),
      draw("text", {x, y: y + (y > middle ? 27 : -18), "text-anchor": "middle"}, short(name)));
  });
  const label = [...edges].slice(0, 16).map(([from, to]) => from + " waits for " + [...to].slice(0, 8).join(" and ")).join("; ");
  fill("waits", draw("svg", {viewBox: `0 0 ${size} ${size}`, role: "img", "aria-label": shown(label)},
    draw("defs", {}, draw("marker", {id: "tip", viewBox: "0 0 8 8", refX: 6, refY: 4, markerWidth: 7, markerHeight: 7, orient: "auto"}, draw("path", {d: "M0 0L8 4L0 8z"}))),
    lines, nodes));
}

function showRounds(whole) {
  const seconds = Number($("span").value), to = whole.t + (performance.now() - stamp) / 1000, from = to - seconds;
  const width = Math.max(320, $("rounds").clientWidth || 720), left = 90, row = 26, top = 18;
  const rounds = whole.rounds.filter((round) => (round.ended ?? to) >= from);
  const tags = [...new Set([...whole.status.tags.map((tag) => tag.tag), ...rounds.map((round) => round.tag)])].slice(0, 16);
  const height = top + row * Math.max(1, tags.length) + 20;
  const x = (t) => left + (Math.min(to, Math.max(from, t)) - from) / seconds * (width - left - 4);
  const parts = [];
  for (let n = 0; n <= 4; ++n) {
    const t = from + seconds * n / 4;
    parts.push(draw("line", {class: "grid", x1: x(t), x2: x(t), y1: top, y2: height - 16}),
      draw("text", {x: x(t), y: height - 4, "text-anchor": n ? n < 4 ? "middle" : "end" : "start"}, t >= 0 ? clock(t) : ""));
  }
  tags.forEach((tag, n) => {
    const y = top + row * n + 4, name = shown(tag);
    parts.push(draw("text", {x: 0, y: y + 13}, short(name)));
    for (const round of rounds.filter((one) => one.tag === tag)) {
      const end = round.ended ?? to, started = round.started ?? end, done = round.done ?? end;
      const bars = [[round.formed ?? started, started, "forming"], [started, done, round.end === "abort" ? "abort" : "moving"], [done, end, round.end === "abort" ? "abort" : "deciding"]];
      const words = `round ${round.n} of ${round.tag}, ${round.end}: ` + bars.map(([a, b, kind]) => kind + " " + span(b - a)).join(", ") + (round.why ? "; " + round.why : "");
      parts.push(draw("g", {}, draw("title", {}, words), bars.filter(([, b]) => b >= from).map(([a, b, kind]) =>
        draw("rect", {class: kind, x: x(a), y, width: Math.max(kind === "deciding" ? 0.5 : 1, x(b) - x(a)), height: row - 8}))));
    }
    const tagNow = whole.status.tags.find((one) => one.tag === tag);
    if (tagNow && tagNow.phase === "forming") {
      const ended = Math.max(from, ...rounds.filter((one) => one.tag === tag && one.ended !== null).map((one) => one.ended));
      parts.push(draw("rect", {class: "forming", opacity: 0.5, x: x(ended), y: y + 6, width: Math.max(1, x(to) - x(ended)), height: row - 20}, draw("title", {}, tagNow.waiting_for)));
    }
  });
  for (const event of events) {
    const kind = JOINS.has(event.kind) ? "join" : KILLS.has(event.kind) ? "kill" : "";
    if (!kind || event.t < from) continue;
    parts.push(draw("g", {}, draw("title", {}, clock(event.t) + " " + event.kind + " " + (event.site || "") + " " + (event.reason || "")),
      draw("line", {class: kind, x1: x(event.t), x2: x(event.t), y1: top - 2, y2: height - 16}),
      draw("text", {class: kind, x: x(event.t), y: 12, "text-anchor": "middle"}, kind === "join" ? "▲" : "✕")));
  }
  const counts = `${rounds.filter((one) => one.end === "commit").length} commits and ${rounds.filter((one) => one.end === "abort").length} aborts in the last ${span(seconds)}`;
  fill("rounds", draw("svg", {viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": counts}, parts));
  table("tags", ["tag", "newest", "phase", "commits", "aborts", "waits for"], whole.status.tags.map((tag) => make("tr", {},
    cell(named(tag.tag)), cell(tag.committed), cell(tag.phase), cell(tag.commits), cell(tag.aborts, tag.aborts ? "warn" : ""), cell(tag.waiting_for || "–", "words"))), "no rounds yet");
}

function showLinks(status) {
  const peers = status.peers.filter((peer) => peer.admitted && peer.id).slice(0, MATRIX_MAX);
  const links = new Map(status.links.map((link) => [link.from + " " + link.to, link]));
  const name = (peer) => {
    const whole = shown(peer.shards > 1 ? peer.site + "/" + peer.shard : peer.site);
    return make("bdi", {title: whole}, short(whole));
  };
  const rows = peers.map((from) => make("tr", {}, make("th", {scope: "row"}, name(from)), peers.map((to) => {
    const link = links.get(from.id + " " + to.id);
    if (!link) return cell(from === to ? "" : "–");
    return cell([rate(link.bytes_per_s), make("small", {}, link.rtt_ms < 10 ? link.rtt_ms.toFixed(2) + " ms" : Math.round(link.rtt_ms) + " ms")]);
  })));
  table("links", ["", ...peers.map((peer) => name(peer))], peers.length > 1 ? rows : [], "fewer than two members");
}

function wordsOf(event) {
  const known = new Set(["id", "t", "kind", "key", "digest", "result", "unix_ms", "pid"]);
  return Object.entries(event).filter(([key, value]) => !known.has(key) && value !== "").map(([key, value]) =>
    key === "site" || key === "reason" || key === "text" ? value : key + " " + value).join(" · ");
}
function showEvents() {
  const every = $("every").checked;
  const list = events.filter((event) => every || !OF_ROUNDS.has(event.kind)).slice(-200).reverse();
  fill("events", list.map((event) => {
    const mark = JOINS.has(event.kind) ? ["join", "▲ joined"] : KILLS.has(event.kind) ? ["kill", "✕ " + (event.kind === "evict" ? "lost" : event.kind)] : event.kind === "leave" ? ["warn", "left"] : [BAD.has(event.kind) ? "warn" : "", event.kind];
    return make("li", {"data-kind": event.kind}, make("time", {}, clock(event.t)), make("b", {class: mark[0]}, mark[1]), named(wordsOf(event)));
  }));
}

function showAll(whole) {
  const status = whole.status, stale = whole.age_s > 5;
  document.title = "jccl " + whole.run.slice(0, 8);
  fill("run", whole.run.slice(0, 8));
  say(status.failure ? "failed: " + status.failure : stale ? "the master has not answered for " + span(whole.age_s) : "live", status.failure || stale ? "bad" : "good");
  const members = status.peers.filter((peer) => peer.admitted).length + status.peers_left_out;
  const facts = [["members", members], ["epoch", status.epoch], ["up", span(status.uptime_s)], ["master", status.address], ["journal", status.journal.sequence + " records"], ["memory", bytes(status.memory.held)], ["strangers closed", status.strangers_closed]];
  const groups = (status.groups || []).map((one) => one.group + " (" + one.sites + ")");
  if (groups.length > 0) facts.push(["groups (sites)", groups.join(", ")]);
  fill("facts", facts.map(([name, value]) => make("div", {}, make("dt", {}, name), make("dd", {}, value))));
  showPeers(whole);
  showWaits(status);
  showRounds(whole);
  showLinks(status);
}
function say(text, kind) { const pill = $("state"); if (pill.textContent !== shown(text)) pill.textContent = shown(text); pill.className = "pill " + kind; }

async function fetchOf(path) {
  const headers = token ? {Authorization: "Bearer " + token} : {};
  const reply = await fetch(path, {headers, cache: "no-store", credentials: "omit", redirect: "error"});
  if (reply.status === 401) {
    const why = await reply.text();
    $("ask").hidden = false;
    $("main").hidden = true;
    if (token) $("refused").textContent = shown(why.trim());
    token = "";
    sessionStorage.removeItem("token");
    say("a token is needed", "bad");
    throw new Error("401");
  }
  if (!reply.ok) throw new Error(String(reply.status));
  return reply;
}

let polling = false;
async function poll() {
  if (polling || document.hidden || !$("ask").hidden) return;
  polling = true;
  try {
    const whole = await (await fetchOf("/api/v1/status")).json();
    failures = 0;
    latest = whole;
    stamp = performance.now();
    born = whole.started_unix_ms;
    $("main").hidden = false;
    showAll(whole);
  } catch (error) {
    if (error.message !== "401" && ++failures >= 2) say("no answer from the master", "bad");
  } finally {
    polling = false;
  }
}

function take(block) {
  let kind = "message", data = "";
  for (const line of block.split("\n")) {
    if (line.startsWith("event: ")) kind = line.slice(7);
    if (line.startsWith("data: ")) data += line.slice(6);
  }
  if (!data) return false;
  const value = JSON.parse(data);
  if (kind === "hello") {
    if (value.started_unix_ms === told) return false;
    const other = last > 0;  // numbers begin anew with each master
    events = [];
    last = 0;
    told = born = value.started_unix_ms;
    if (other) throw new Error("another master");
  } else if (kind === "message") {
    events.push(value);
    last = value.id;
    if (events.length > EVENTS_MAX) events = events.slice(-EVENTS_MAX);
    return !OF_ROUNDS.has(value.kind);
  }
  return false;
}

async function listen() {
  for (;;) {
    try {
      if ($("ask").hidden) {
        const reader = (await fetchOf("/events?after=" + last)).body.pipeThrough(new TextDecoderStream()).getReader();
        for (let rest = "";;) {
          const {value, done} = await reader.read();
          if (done) break;
          const blocks = (rest + value).split("\n\n");
          rest = blocks.pop();
          const urgent = blocks.map(take).some(Boolean);
          showEvents();
          if (urgent) poll();
        }
      }
    } catch (error) { /* the state says so */ }
    await new Promise((wake) => setTimeout(wake, 1000));
  }
}

// A token in the address goes from there into a header, so that no log and no history keeps it.
function readToken() {
  const given = new URLSearchParams(location.hash.slice(1)).get("token") || new URLSearchParams(location.search).get("token");
  if (given) {
    sessionStorage.setItem("token", given);
    history.replaceState(null, "", location.pathname);
  }
  token = sessionStorage.getItem("token") || "";
}

readToken();
$("ask").addEventListener("submit", (event) => {
  event.preventDefault();
  token = $("token").value.trim();
  $("token").value = "";
  sessionStorage.setItem("token", token);
  $("ask").hidden = true;
  poll();
});
$("every").addEventListener("change", showEvents);
$("span").addEventListener("change", () => latest && showRounds(latest));
document.addEventListener("visibilitychange", poll);
setInterval(poll, 1000);
poll();
listen();
