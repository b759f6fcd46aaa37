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
  let again = 0; // the timer of the next source
  let latest = null; // the page that was sent while the person has stopped it
  let stopped = false;
  let open = false;
  let lost = ""; // when the connection was lost

  function show(html) {
    const next = parser.parseFromString(trusted.createHTML("<body>" + html), "text/html").body; // with the space that it begins with, as the page has it
    localize(next);
    for (const details of page.querySelectorAll("details[id]")) {
      const now = next.querySelector("#" + CSS.escape(details.id));
      if (now) now.open = details.open;
    }
    Idiomorph.morph(page, next.childNodes, { morphStyle: "innerHTML", ignoreActiveValue: true, callbacks: { beforeNodeMorphed: keep } });
  }
  // What a person has written or chosen stays as it is. A hidden field is of the server.
  function keep(node) {
    return node.type === "hidden" || !(node instanceof HTMLInputElement || node instanceof HTMLTextAreaElement || node instanceof HTMLSelectElement);
  }
  function tell() {
    const state = lost ? "lost" : stopped ? "paused" : open ? "live" : "";
    connection.dataset.state = state;
    connection.textContent = state && connection.dataset[state] + (lost && " " + lost);
  }
  // There is one source at most, or a timer for it.
  function follow() {
    clearTimeout(again);
    source?.close();
    source = null;
    if (!body.dataset.live || document.visibilityState === "hidden") return;
    const mine = source = new EventSource(body.dataset.live);
    mine.addEventListener("open", () => {
      open = true;
      lost = "";
      tell();
    });
    mine.addEventListener("page", (event) => {
      latest = event.data;
      if (!stopped) show(latest);
    });
    mine.addEventListener("end", () => { // the session has ended: no page follows
      mine.close();
      open = false;
      tell();
    });
    mine.addEventListener("error", () => {
      open = false;
      lost ||= new Date().toLocaleTimeString();
      tell();
      if (mine.readyState === EventSource.CLOSED) again = setTimeout(follow, 2000); // refused, or the server is not there
    });
  }
  document.addEventListener("visibilitychange", follow);
  follow();

  // Keys: / finds, g and a letter is a page, j and k are rows, . stops and goes on, ? shows them.
  // A person who speaks to the browser, or hits keys by mistake, turns them off in that dialog.
  const keys = document.getElementById("shortcuts");
  const used = keys.querySelector("input");
  document.documentElement.classList.add("scripts");
  used.checked = localStorage.getItem("keys") !== "off";
  used.addEventListener("change", () => localStorage.setItem("keys", used.checked ? "on" : "off"));
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
    if (event.ctrlKey || event.metaKey || event.altKey || keys.open || !used.checked) return;
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
    } else if (key === "x") {
      document.activeElement.closest("tr")?.querySelector(".pick input")?.click();
    } else if (key === "." && body.dataset.live) {
      stopped = !stopped;
      tell();
      if (!stopped && latest) show(latest);
    } else if (key === "?") {
      keys.showModal();
    } else {
      before = key;
      return;
    }
    before = "";
    event.preventDefault();
  });

  // A click on an id copies it, and one on the button at the foot shows the keys.
  document.addEventListener("click", (event) => {
    if (event.target.closest("button.shortcuts")) keys.showModal();
    const text = event.target.closest("code.copy");
    if (text && getSelection().isCollapsed) navigator.clipboard?.writeText(text.textContent);
  });
})();
