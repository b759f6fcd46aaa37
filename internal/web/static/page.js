// The dashboard works without this script. With it, a page follows itself, shows instants in
// the time zone of the browser, and takes keys.
"use strict";

(() => {
  const body = document.body;
  const page = document.getElementById("page");
  const connection = document.getElementById("connection");

  // Instants are shown in the time zone of the browser.
  const zone = Intl.DateTimeFormat().resolvedOptions().timeZone;
  const two = (n) => String(n).padStart(2, "0");
  function localize(root) {
    const today = new Date().toDateString();
    for (const time of root.querySelectorAll("time[datetime]")) {
      const at = new Date(time.dateTime);
      const clock = `${two(at.getHours())}:${two(at.getMinutes())}`;
      time.textContent = at.toDateString() === today
        ? `${clock}:${two(at.getSeconds())}`
        : `${at.getFullYear()}-${two(at.getMonth() + 1)}-${two(at.getDate())} ${clock}`;
    }
    for (const place of root.querySelectorAll("[data-zone]")) {
      place.textContent = zone || "UTC";
    }
  }
  localize(page);

  // The server sends the page anew when it has changed. It alone makes markup of a text.
  const parser = new DOMParser();
  const trusted = window.trustedTypes
    ? window.trustedTypes.createPolicy("throttler", { createHTML: (html) => html })
    : { createHTML: (html) => html };
  let source = null;
  let latest = null; // the page that was sent while the person has stopped it
  let stopped = false;

  function show(html) {
    const next = parser.parseFromString(trusted.createHTML("<body>" + html), "text/html").body; // with the space that it begins with, as the page has it
    localize(next);
    for (const details of page.querySelectorAll("details[id]")) {
      const now = next.querySelector("#" + CSS.escape(details.id));
      if (now) now.open = details.open;
    }
    Idiomorph.morph(page, next.childNodes, { morphStyle: "innerHTML", ignoreActiveValue: true, callbacks: { beforeNodeMorphed: keep } });
  }
  // What a person has written or chosen stays as it is.
  function keep(node) {
    return !(node instanceof HTMLInputElement || node instanceof HTMLTextAreaElement || node instanceof HTMLSelectElement);
  }
  function tell(state, text) {
    connection.dataset.state = state;
    connection.textContent = text;
  }
  function follow() {
    if (!body.dataset.live || document.visibilityState === "hidden") return;
    source = new EventSource(body.dataset.live);
    source.addEventListener("open", () => tell("live", connection.dataset.live));
    source.addEventListener("page", (event) => {
      latest = event.data;
      if (!stopped) show(latest);
    });
    source.addEventListener("error", () => {
      if (connection.dataset.state !== "lost") tell("lost", `${connection.dataset.lost} ${new Date().toLocaleTimeString()}`);
      if (source.readyState === EventSource.CLOSED) { // refused, or the server is not there
        source.close();
        setTimeout(follow, 2000);
      }
    });
  }
  document.addEventListener("visibilitychange", () => {
    if (source) source.close();
    source = null;
    follow();
  });
  follow();

  // Keys: / find, g and a letter a page, j and k rows, space stops and goes on, ? says so.
  const places = { o: "", d: "decide", c: "calls", l: "limits", e: "events", p: "plan" };
  const base = document.querySelector("a.name").pathname;
  let before = "";
  function step(by) {
    const rows = [...document.querySelectorAll("tbody th a, article.case h2 a")];
    if (rows.length === 0) return;
    const at = rows.indexOf(document.activeElement);
    rows[Math.min(Math.max(at + by, 0), rows.length - 1)].focus();
  }
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || localStorage.getItem("keys") === "off") return;
    if (event.target.closest("input, textarea, select")) {
      if (event.key === "Escape") event.target.blur();
      return;
    }
    const key = event.key;
    if (before === "g" && key in places) {
      location.href = base + places[key];
    } else if (key === "/") {
      document.getElementById("find")?.focus();
    } else if (key === "j") {
      step(1);
    } else if (key === "k") {
      step(-1);
    } else if (key === "." && body.dataset.live) {
      stopped = !stopped;
      if (stopped) tell("paused", connection.dataset.paused);
      else {
        tell("live", connection.dataset.live);
        if (latest) show(latest);
      }
    } else {
      before = key;
      return;
    }
    before = "";
    event.preventDefault();
  });

  // A click on an id copies it.
  document.addEventListener("click", (event) => {
    const text = event.target.closest("code.copy");
    if (text && getSelection().isCollapsed) navigator.clipboard?.writeText(text.textContent);
  });
})();
