// The server renders; this only swaps in what it rendered, and lets the clocks run in between.
(() => {
  let fetched = performance.now(), busy = false, again = false;
  const span = (seconds) => {
    const s = Math.max(0, Math.floor(seconds));
    return s < 60 ? s + " s" : s < 3600 ? Math.floor(s / 60) + " min " + (s % 60) + " s"
      : Math.floor(s / 3600) + " h " + (Math.floor(s / 60) % 60) + " min";
  };
  const tick = () => {
    const now = Number(document.getElementById("live").dataset.uptime) + (performance.now() - fetched) / 1000;
    for (const e of document.querySelectorAll("[data-since]")) e.textContent = span(now - Number(e.dataset.since));
  };
  const refresh = async () => {
    if (busy) { again = true; return; }
    busy = true;
    try {
      const page = new DOMParser().parseFromString(await (await fetch("/")).text(), "text/html");
      // Whoever is not logged in any more is asked to.
      if (!page.getElementById("live")) { location.reload(); return; }
      document.getElementById("live").replaceWith(page.getElementById("live"));
      document.title = page.title;
      fetched = performance.now();
      tick();
    } catch { /* The event stream says when the box is back. */ }
    busy = false;
    if (again) { again = false; refresh(); }
  };
  const events = new EventSource("/api/v1/events");
  const lost = document.getElementById("lost");
  events.onmessage = () => { lost.hidden = true; refresh(); };
  events.onerror = () => { lost.hidden = false; };
  setInterval(tick, 1000);
})();
