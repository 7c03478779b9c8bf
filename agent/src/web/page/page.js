// The server renders; this puts what changed into the page that is there, and lets the clocks run in between. Focus, selection and
// what somebody opened stay, for nothing else is touched.
(() => {
  const live = document.getElementById("live"), lost = document.getElementById("lost");
  let booted = Number(live.dataset.booted), parts = null, events = null;
  const now = () => Date.now() / 1000 - skew - booted;
  // The browser's clock may be another than the box's.
  let skew = 0;

  const span = (seconds) => {
    const s = Math.max(0, Math.floor(seconds));
    return s < 60 ? s + " s" : s < 3600 ? Math.floor(s / 60) + " min " + (s % 60) + " s"
      : s < 86400 ? Math.floor(s / 3600) + " h " + (Math.floor(s / 60) % 60) + " min"
      : Math.floor(s / 86400) + " d " + (Math.floor(s / 3600) % 24) + " h";
  };
  const write = (node, text) => { if (node.textContent !== text) node.textContent = text; };
  const form = { month: "2-digit", day: "2-digit", hour: "2-digit", minute: "2-digit", second: "2-digit" };
  const tick = () => {
    const at = now();
    for (const e of live.querySelectorAll("[data-since]")) write(e, span(at - Number(e.dataset.since)));
    for (const e of live.querySelectorAll("[data-at]")) {
      write(e, new Date((booted + skew + Number(e.dataset.at)) * 1000).toLocaleString(undefined, form));
    }
    for (const e of live.querySelectorAll("svg[data-from]")) {
      e.setAttribute("viewBox", `0 0 ${Math.max(1, at - Number(e.dataset.from)).toFixed(1)} 10`);
    }
  };

  // What runs by itself, and what a person changes.
  const own = (node, name) => name === "open" || (name === "viewBox" && node.dataset.from !== undefined);
  const runs = (node) => node.dataset && (node.dataset.since !== undefined || node.dataset.at !== undefined);
  const same = (a, b) => a.nodeType === b.nodeType && a.nodeName === b.nodeName && (a.id || "") === (b.id || "");
  const become = (node, next) => {
    if (node.nodeType !== Node.ELEMENT_NODE) {
      if (node.data !== next.data) node.data = next.data;
      return;
    }
    for (const { name } of [...node.attributes]) {
      if (!next.hasAttribute(name) && !own(node, name)) node.removeAttribute(name);
    }
    for (const { name, value } of next.attributes) {
      if (node.getAttribute(name) !== value && !own(node, name)) node.setAttribute(name, value);
    }
    if (runs(node)) return;
    // By id where a part has one, so that a row that moves stays the row that it was.
    const byId = new Map();
    for (const child of node.children) if (child.id) byId.set(child.id, child);
    let at = node.firstChild;
    for (const wanted of [...next.childNodes]) {
      const known = wanted.id ? byId.get(wanted.id) : null;
      if (known && known !== at && same(known, wanted)) {
        node.insertBefore(known, at);
        become(known, wanted);
      } else if (at && same(at, wanted)) {
        become(at, wanted);
        at = at.nextSibling;
      } else {
        node.insertBefore(wanted, at);
      }
    }
    while (at) {
      const gone = at;
      at = at.nextSibling;
      gone.remove();
    }
  };

  const show = (told) => {
    const began = performance.now();
    lost.hidden = true;
    booted = told.booted;
    skew = Date.now() / 1000 - told.unix;
    if (told.text !== undefined) {
      parts = told.text.split(/(?=<)/);
    } else {
      for (const [at, gone, text] of told.patch.reverse()) {
        parts.splice(at, gone, ...(text === "" ? [] : text.split(/(?=<)/)));
      }
    }
    if (told.text !== undefined || told.patch.length > 0) {
      const next = new DOMParser().parseFromString(`<div>${parts.join("")}</div>`, "text/html");
      become(live, Object.assign(next.body.firstChild, { id: "live" }));
      document.title = live.firstElementChild.dataset.title;
    }
    tick();
    performance.clearMarks();
    performance.mark("shown");
    if (performance.getEntriesByName("update").length > 100) performance.clearMeasures();
    performance.measure("update", { start: began, end: performance.now() });
  };
  const follow = () => {
    if (events) events.close();
    events = new EventSource("/changes?of=" + encodeURIComponent(location.pathname + location.search));
    events.onmessage = (message) => show(JSON.parse(message.data));
    events.onerror = async () => {
      lost.hidden = false;
      if (events.readyState !== EventSource.CLOSED) return;
      // Refused: perhaps whoever reads this has to log in again.
      const answer = await fetch(location.href).catch(() => null);
      if (answer && answer.status === 401) location.reload();
      else setTimeout(follow, 3000);
    };
  };

  let typed = 0;
  const seek = (event) => {
    const filter = event.target.closest && event.target.closest("form[data-live]");
    if (!filter) return;
    if (event.type === "submit") event.preventDefault();
    clearTimeout(typed);
    typed = setTimeout(() => {
      const query = new URLSearchParams([...new FormData(filter)].filter(([, value]) => value !== "" && value !== "none"));
      history.replaceState(null, "", filter.action + (query.size ? "?" + query : ""));
      follow();
    }, 200);
  };
  for (const kind of ["input", "change", "submit"]) live.addEventListener(kind, seek);
  follow();
  setInterval(tick, 1000);
})();
