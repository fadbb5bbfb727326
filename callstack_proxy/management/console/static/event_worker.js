// One connection for the events of all pages that a browser has open: a browser allows six to one host over HTTP/1.1.
// A page tells "visible", "hidden", or "bye" when it goes, and learns how many are visible.

const RETRY_MS = 3000;
const ports = new Map(); // page -> whether it is visible
let source = null;
let state = "";
let number = 0; // of the newest event
let store = ""; // why it fails, in words

function tellAll(message) {
  for (const port of ports.keys()) port.postMessage(message);
}

function change(to) {
  state = to;
  tellAll({ state });
}

function changeStore(to) {
  store = to;
  tellAll({ store });
}

function listen() {
  source = new EventSource("/console/events");
  source.onopen = () => {
    change("open");
    if (store) changeStore(""); // the proxy says it again where it still holds
  };
  source.onerror = () => {
    // Closed: the proxy answered, and refused. The page asks it why.
    change(source.readyState === EventSource.CLOSED ? "refused" : "away");
    if (source.readyState === EventSource.CLOSED) setTimeout(listen, RETRY_MS);
  };
  source.addEventListener("at", (event) => {
    number = JSON.parse(event.data).number;
    tellAll({ number });
  });
  source.addEventListener("store", (event) => changeStore(JSON.parse(event.data).problem));
  source.addEventListener("changed", (event) => {
    const { number: newest, conversations } = JSON.parse(event.data);
    number = newest;
    tellAll({ conversations });
  });
}

self.onconnect = (event) => {
  const port = event.ports[0];
  ports.set(port, true);
  port.onmessage = ({ data }) => {
    if (data === "bye") ports.delete(port);
    else ports.set(port, data === "visible");
    tellAll({ pages: [...ports.values()].filter(Boolean).length || 1 });
  };
  if (!source) listen();
  else if (state) port.postMessage({ state });
  if (store) port.postMessage({ store });
  if (number) port.postMessage({ number });
};
