// Keeps an open page current: asks for its content again when something happened, draws the chart, writes times in the
// reader's own zone, and lends a few keys. Nothing is kept here.

const REFRESH_MS = 1000;
const SHARE = 20; // several visible pages together ask the proxy for a twentieth of the time at most
const ALONE_MS = 1200; // a visible page that is alone waits no longer, or as long as its content took: half of the time
const LOOK_MS = 2000; // between two looks at what runs now
const RETRY_MS = 3000; // after a refresh that failed
const SLOW_MS = 10000; // so long a refresh may take before the reader is told
const AWAY = "The proxy is away; trying again …";
const body = document.body;

// ---------------------------------------------------------------------------------------------------------- live pages
// `data-live` is "all", or the conversation that the page shows; empty for a page that does not change.
const loading = performance.getEntriesByType("navigation")[0];
let timer = 0;
let asked = 0;
let visiblePages = 1;
let took = loading.responseEnd - loading.requestStart; // the newest answer, in ms
let ended = Date.now();
let stale = false;

// As many pages as are visible now: a page that was just loaded does not know of the others yet.
function pause() {
  const most = visiblePages > 1 ? Infinity : Math.max(ALONE_MS, took);
  return Math.max(0, ended + Math.max(REFRESH_MS, Math.min(SHARE * visiblePages * took, most)) - Date.now());
}

function refresh() {
  if (!body.dataset.live) return;
  clearTimeout(timer);
  timer = setTimeout(ask, pause());
}

function ask() {
  stale = document.hidden; // until it is shown
  if (stale) return;
  asked = ended = Date.now();
  body.dispatchEvent(new Event("news"));
}

// What runs changes between two events, and is made from memory: it is asked for apart from the page.
async function look() {
  const place = document.getElementById("running");
  if (!place || document.hidden || signedOut || !window.Idiomorph) return;
  const answer = await fetch(place.dataset.from).catch(() => null);
  if (!answer?.ok || !place.isConnected) return;
  window.Idiomorph.morph(place, await answer.text(), { morphStyle: "outerHTML" });
  showTimes();
}

body.addEventListener("htmx:afterRequest", () => {
  if (!asked) return;
  ended = Date.now();
  took = ended - asked;
  asked = 0;
});

// What is wrong, in words; the first of these that is not empty is shown.
const problems = { page: "", connection: "", store: "" };

function tell(about, text) {
  problems[about] = text;
  const state = document.getElementById("live-state");
  const shown = problems.page || problems.connection || problems.store;
  if (state && state.textContent !== shown) {
    state.textContent = shown;
    state.hidden = !shown;
  }
}

let wasAway = false;
let signedOut = false;

function onEvent({ data }) {
  if (signedOut) return;
  if (data.pages) {
    visiblePages = data.pages;
  } else if (data.number !== undefined) {
    if (data.number > Number(body.dataset.event)) refresh(); // it happened while this page was on its way
  } else if (data.store !== undefined) {
    if (data.store !== problems.store) refresh();
    tell("store", data.store);
  } else if (data.state === "refused") {
    wasAway = true;
    refresh();
  } else if (data.state === "away") {
    wasAway = true;
    tell("connection", AWAY);
  } else if (data.state === "open") {
    tell("connection", "");
    if (wasAway) refresh();
    wasAway = false;
  } else if (data.conversations.some((each) => !each || [each, "all"].includes(body.dataset.live))) {
    refresh();
  }
}

let worker = null;
if (body.hasAttribute("data-listens") && window.SharedWorker) {
  worker = new SharedWorker("/console/static/event_worker.js");
  worker.port.onmessage = onEvent;
  worker.port.postMessage(document.visibilityState);
  addEventListener("pagehide", () => worker.port.postMessage("bye"));
  addEventListener("pageshow", (event) => event.persisted && location.reload());
} else {
  setInterval(refresh, 10 * REFRESH_MS); // a browser without shared workers asks from time to time
}

document.addEventListener("visibilitychange", () => {
  worker?.port.postMessage(document.visibilityState);
  if (!document.hidden && stale) refresh();
});

// The slider changes the address, and only the picture: the whole page is then asked for as the address stands.
body.addEventListener("htmx:configRequest", ({ detail }) => {
  if (detail.elt.id === "live") detail.path = location.pathname + location.search;
});

let slow = 0;

body.addEventListener("htmx:beforeSend", () => {
  clearTimeout(slow);
  slow = setTimeout(() => tell("page", "The proxy or its store has not answered for 10 s; waiting …"), SLOW_MS);
});

body.addEventListener("htmx:afterRequest", (event) => {
  clearTimeout(slow);
  if (event.detail.successful && !signedOut) {
    tell("page", "");
    tell("connection", "");
  }
});

function reasonIn(page) {
  return new DOMParser().parseFromString(page, "text/html").querySelector("[role=alert]")?.textContent.trim();
}

body.addEventListener("htmx:responseError", (event) => {
  const { status, responseText } = event.detail.xhr;
  signedOut = status === 401;
  if (signedOut) tell("page", "You are signed out. Load the page again to sign in.");
  else if (status === 404) tell("page", "What this page showed was deleted.");
  else {
    const reason = reasonIn(responseText) || "The page could not be brought up to date.";
    tell("page", `${reason} What you see is from before; trying again …`);
    setTimeout(refresh, RETRY_MS);
  }
});
body.addEventListener("htmx:sendError", () => {
  tell("connection", AWAY);
  setTimeout(refresh, RETRY_MS);
});

// A page that could not be shown because of the store comes by itself.
if (document.querySelector("[data-retry]")) {
  setInterval(async () => {
    if (document.hidden) return;
    const answer = await fetch(location.href).catch(() => null);
    if (answer && answer.status < 500) location.reload();
  }, RETRY_MS);
}

// Rows that the reader folded stay folded when the page is brought up to date.
if (window.Idiomorph) {
  window.Idiomorph.defaults.callbacks.beforeAttributeUpdated = (name, node) =>
    !(name === "open" && node.tagName === "DETAILS");
  // What the reader is writing stays as well.
  window.Idiomorph.defaults.callbacks.beforeNodeMorphed = (node) => !(node.dataset && "keep" in node.dataset);
}

// --------------------------------------------------------------------------------------------------------------- times
const clock = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "short" });

function words(at, ago) {
  if (Math.abs(ago) >= 3600) return clock.format(at);
  if (ago < 0) return `in ${Math.ceil(-ago / 60)} min`;
  return ago < 60 ? "just now" : `${Math.floor(ago / 60)} min ago`;
}

function showTimes() {
  for (const each of document.querySelectorAll("time[datetime]")) {
    const at = new Date(each.getAttribute("datetime"));
    const text = words(at, (Date.now() - at) / 1000);
    if (each.textContent !== text) each.textContent = text;
    each.title = at.toISOString();
  }
  for (const each of document.querySelectorAll("[data-since]")) {
    const seconds = Math.max(0, Math.round((Date.now() - Number(each.dataset.since)) / 1000));
    const text = seconds < 120 ? `for\u00a0${seconds}\u00a0s` : `for\u00a0${Math.floor(seconds / 60)}\u00a0min`;
    if (each.textContent !== text) each.textContent = text;
  }
}

// --------------------------------------------------------------------------------------------------------------- chart
let chart = null;
let drawn = "";
const compact = new Intl.NumberFormat("en", { notation: "compact", maximumFractionDigits: 1 });
const exact = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });

function color(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

function drawChart() {
  const place = document.getElementById("chart");
  if (!place || !window.uPlot) return;
  const width = place.clientWidth;
  const key = `${width} ${place.dataset.unit} ${place.dataset.points} ${matchMedia("(prefers-color-scheme: dark)").matches}`;
  if (key === drawn && place.querySelector(".uplot")) return;
  drawn = key;
  chart?.destroy();
  const inUsd = place.dataset.unit === "usd";
  const series = JSON.parse(place.dataset.points);
  const decimals = Math.max(...series.slice(1).flat().map(Math.abs)) >= 1 ? 2 : 4; // as `dollar_decimals` has it
  const dollars = (v) => `$${v.toFixed(decimals)}`;
  const short = inUsd ? dollars : (v) => compact.format(v).replace("K", "k");
  const full = inUsd ? dollars : (v) => exact.format(v);
  const axis = { stroke: color("--soft"), grid: { stroke: color("--line"), width: 1 }, ticks: { show: false } };
  const points = { show: place.dataset.points.length < 120 };
  const value = (_, v) => (v === null ? "–" : full(v));
  const [untouched, sent, own] = place.dataset.lines.split("|");
  // Where the pointer is elsewhere, the legend has the newest figures.
  const tellNewest = (plot) => {
    if (plot.cursor.idx == null) plot.setLegend({ idx: series[0].length - 1 });
  };
  chart = new window.uPlot({
    hooks: { ready: [tellNewest], setCursor: [tellNewest] },
    width,
    height: 260,
    axes: [axis, { ...axis, values: (_, values) => values.map(short), size: 64 }],
    scales: { y: { range: (_, low, high) => [Math.min(0, low), high || 1] } },
    series: [
      { label: "time" },
      { label: untouched, stroke: color("--soft"), width: 2, value, points },
      { label: sent, stroke: color("--sent"), width: 2, value, points },
      { label: own, points, stroke: color("--recalled"), fill: `${color("--recalled")}44`, width: 1, value },
    ],
  }, series, place);
}

// ---------------------------------------------------------------------------------------------------------------- keys
// `j` and `k` go through requests where the page has such links, and else through its rows; the arrows walk the tree.
const ROWS = "main [data-row], main .leaf a, main tbody th a";

function shown(selector) {
  return [...document.querySelectorAll(selector)].filter((each) => each.offsetParent !== null);
}

function step(links, by) {
  const at = links.indexOf(document.activeElement);
  const next = links[at < 0 ? (by > 0 ? 0 : links.length - 1) : at + by];
  next?.focus();
}

function walkTree(key, link) {
  const branch = link.closest("li").querySelector(":scope > details");
  if (key === "ArrowDown" || key === "ArrowUp") step(shown(".tree .leaf a"), key === "ArrowDown" ? 1 : -1);
  else if (key === "ArrowRight" && branch && !branch.open) branch.open = true;
  else if (key === "ArrowRight") branch?.querySelector(".leaf a")?.focus();
  else if (branch?.open) branch.open = false;
  else link.closest("details")?.closest("li")?.querySelector(":scope > .leaf a")?.focus();
}

function search() {
  const field = document.querySelector("input[type=search]");
  if (field) field.focus();
  else location.assign("/console/conversations#search");
}

const KEYS = {
  "/": search,
  "?": () => document.getElementById("keys")?.showModal(),
  a: () => document.querySelector("[data-active]")?.focus(),
  j: () => step(shown(ROWS), 1),
  k: () => step(shown(ROWS), -1),
};

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || event.target.closest("input, textarea, select, dialog")) return;
  const leaf = event.key.startsWith("Arrow") && event.target.closest(".tree .leaf a");
  const link = document.querySelector(`a[data-key="${CSS.escape(event.key)}"]`);
  if (leaf) walkTree(event.key, leaf);
  else if (link) link.click();
  else if (KEYS[event.key]) KEYS[event.key]();
  else return;
  event.preventDefault();
});

document.addEventListener("click", (event) => {
  if (event.target.closest("[data-keys]")) KEYS["?"]();
});

// A block of the picture is shown below it, with what can be done. Without this script its link opens the frame.
document.addEventListener("click", (event) => {
  const block = event.target.closest(".icicle a");
  const picked = document.getElementById("picked");
  if (!block || !picked || event.ctrlKey || event.metaKey || event.shiftKey) return;
  event.preventDefault();
  const frame = block.getAttribute("href");
  const back = picked.querySelector("button");
  picked.querySelector("bdi").textContent = block.querySelector("title").textContent;
  picked.querySelector("a").href = frame;
  back.formAction = `${frame}/unfold`;
  back.textContent = block.dataset.back === "hurry" ? "At once" : "Bring back";
  back.name = block.dataset.back === "hurry" ? "now" : "";
  back.value = "yes";
  back.hidden = !block.dataset.back;
  picked.hidden = false;
});

// A tab shows another part of the same page, which stays where it is.
document.addEventListener("click", (event) => {
  if (event.target.closest(".tabs a:not([data-copy])")) sessionStorage.setItem("tab", `${location.pathname} ${scrollY}`);
});
const [tabPage, tabScroll] = (sessionStorage.getItem("tab") || "").split(" ");
sessionStorage.removeItem("tab");
if (tabPage === location.pathname) scrollTo(0, Number(tabScroll));

if (location.hash === "#search") search();

document.addEventListener("click", async (event) => {
  const link = event.target.closest("a[data-copy]");
  if (!link || !navigator.clipboard) return;
  event.preventDefault();
  const answer = await fetch(link.href);
  await navigator.clipboard.writeText(await answer.text());
  link.textContent = "copied";
});

function show() {
  showTimes();
  drawChart();
}

body.addEventListener("htmx:afterSettle", show);
addEventListener("resize", drawChart);
setInterval(() => document.querySelector("[data-since]") ? showTimes() : 0, 1000);
setInterval(showTimes, 30_000);
setInterval(look, LOOK_MS);
show();
