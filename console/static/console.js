// Reads a live page again every two seconds, and less often while that fails or the page is hidden. It
// sends the ETag of what it shows, so an unchanged page costs no bytes. A page works without it.
"use strict";
(() => {
  const root = document.documentElement;
  const main = document.querySelector("main");

  // What an action has done is shown for a while, and not again when the page is loaded again.
  const done = main.querySelector(".done");
  const doneUntil = Date.now() + 8000;
  if (done) {
    const clean = new URL(location.href);
    clean.searchParams.delete("done");
    history.replaceState(null, "", clean);
  }
  // The key / leads to the search, as in other tools.
  const find = document.querySelector("#q");
  document.addEventListener("keydown", (e) => {
    if (e.key !== "/" || e.ctrlKey || e.metaKey || e.altKey || e.target.matches("input, select, textarea")) return;
    e.preventDefault();
    find.focus();
  });
  // Times are in UTC, as in logs. The local one is shown beside a time that the pointer is at, or in its place by a switch.
  const zone = document.querySelector("#zone");
  const local = () => {
    const here = zone?.getAttribute("aria-pressed") === "true";
    for (const t of main.querySelectorAll("time:not([data-age])")) {
      t.dataset.utc ??= t.textContent;
      const at = `${new Date(t.dateTime).toLocaleString()} here`;
      t.textContent = here ? at : t.dataset.utc;
      t.title = here ? t.dataset.utc : at;
    }
  };
  // A browser may refuse to keep the choice.
  const kept = (value) => {
    try {
      if (value) localStorage.setItem("etcdkit-zone", value);
      return localStorage.getItem("etcdkit-zone");
    } catch {
      return null;
    }
  };
  if (zone) {
    zone.hidden = new Date().getTimezoneOffset() === 0;
    zone.setAttribute("aria-pressed", String(kept() === "here"));
    zone.addEventListener("click", () => {
      const here = zone.getAttribute("aria-pressed") !== "true";
      zone.setAttribute("aria-pressed", String(here));
      kept(here ? "here" : "utc");
      local();
    });
  }
  // What an operator takes to a shell is copied by a button. A browser has a clipboard for secure contexts alone.
  const copies = () => {
    if (!navigator.clipboard) return;
    for (const e of main.querySelectorAll(".copied")) {
      const button = document.createElement("button");
      button.type = "button";
      button.className = "copy";
      button.textContent = "copy";
      button.setAttribute("aria-label", `copy ${e.textContent}`);
      button.addEventListener("click", async () => {
        await navigator.clipboard.writeText(e.textContent);
        button.textContent = "copied";
      });
      e.after(button);
    }
  };
  const dress = () => {
    local();
    copies();
  };
  dress();
  if (!("live" in main.dataset)) return;

  const status = document.querySelector("#status"), pause = document.querySelector("#pause");
  let tag = null, wait = 2000, title = document.title;
  let asOf = root.dataset.asOf; // of what is shown
  let skew = Date.parse(root.dataset.now) - Date.now();
  let reading = 0; // since when an answer is awaited, or 0
  let trouble = ""; // why what is shown is not confirmed
  let held = ""; // why it is not replaced

  // An age moves on while the page is up to date. Otherwise it is that of the time as of which the page is true.
  const ages = () => {
    const confirmed = Date.parse(asOf), now = Date.now() + skew;
    const at = !(confirmed > 0) ? now : trouble || held || "unconfirmed" in main.dataset ? confirmed : Math.min(now, confirmed + 10000);
    for (const t of main.querySelectorAll("time[data-age]")) {
      const s = Math.max(0, Math.floor((at - Date.parse(t.dateTime)) / 1000));
      const h = Math.floor(s / 3600), m = Math.floor(s % 3600 / 60);
      t.textContent = h > 0 ? `${h} h ${m} m` : m > 0 ? `${m} m ${s % 60} s` : `${s} s`;
    }
  };
  // The time moves on silently; what is wrong is announced, once.
  const say = () => {
    const text = trouble ? `not up to date, ${trouble}` : held;
    document.querySelector("#as-of").textContent = Date.parse(asOf) > 0 ? `as of ${new Date(asOf).toISOString().slice(11, 19)} UTC${new Date().getTimezoneOffset() ? `, ${new Date(asOf).toLocaleTimeString()} here` : ""}` : "";
    if (status.textContent !== text) status.textContent = text;
    status.classList.toggle("bad", trouble !== "");
    main.classList.toggle("stale", trouble !== "");
    document.title = trouble ? `Not up to date – ${title}` : title;
    ages();
  };

  // Why the page stays as it is now, or "".
  let pressed = false;
  main.addEventListener("pointerdown", (e) => { pressed = e.button === 0; });
  for (const end of ["pointerup", "pointercancel", "blur"]) addEventListener(end, () => { pressed = false; });
  const paused = () => pause.getAttribute("aria-pressed") === "true";
  const holds = () => {
    const selection = getSelection();
    if (paused()) return "updates are paused";
    if (pressed) return "kept as it is while the pointer is down";
    return !selection.isCollapsed && main.contains(selection.anchorNode) ? "kept as it is while a text is selected" : "";
  };

  // A table that is wider than the page is scrolled by keys.
  const tables = () => [...main.querySelectorAll(".scroll")];
  const scrolled = () => {
    for (const e of tables()) {
      if (e.scrollWidth <= e.clientWidth) {
        for (const name of ["tabindex", "role", "aria-label"]) e.removeAttribute(name);
        continue;
      }
      e.tabIndex = 0;
      e.setAttribute("role", "region");
      e.setAttribute("aria-label", e.querySelector("caption").textContent);
    }
  };
  // The focus stays where it is: on the link that leads to the same place, else on its table, else on the content.
  const focus = (href, nth) => {
    const to = href !== null && main.querySelector(`a[href="${CSS.escape(href)}"]`) || tables()[nth] || main;
    if (to.tabIndex < 0) to.tabIndex = -1;
    to.focus({ preventScroll: true });
  };
  const beside = (page) => {
    const now = document.querySelector("#side"), fresh = page.querySelector("#side");
    if (now && fresh && !now.contains(document.activeElement)) now.replaceChildren(...fresh.childNodes);
  };
  const show = (fresh) => {
    const at = document.activeElement, focused = main.contains(at), href = at.getAttribute("href");
    const nth = tables().indexOf(at.closest(".scroll"));
    const left = tables().map((e) => e.scrollLeft);
    main.replaceChildren(...fresh.childNodes);
    main.toggleAttribute("data-unconfirmed", "unconfirmed" in fresh.dataset);
    if (done && Date.now() < doneUntil) main.querySelector("h1").after(done);
    scrolled();
    dress();
    tables().forEach((e, i) => { e.scrollLeft = left[i] || 0; });
    if (focused) focus(href, nth);
  };

  const read = async () => {
    if (reading || paused()) return;
    reading = Date.now();
    try {
      const headers = tag ? { "If-None-Match": tag } : {};
      const answer = await fetch(location.href, { headers, cache: "no-store", redirect: "error", signal: AbortSignal.timeout(15000) });
      if (answer.status !== 304 && !answer.ok) throw new Error(`status ${answer.status}`);
      tag = answer.headers.get("ETag");
      held = "";
      if (answer.status === 200) {
        const page = new DOMParser().parseFromString(await answer.text(), "text/html");
        const fresh = page.querySelector("main");
        if (!fresh || !page.documentElement.dataset.asOf) throw new Error("the answer is not from the console");
        skew = Date.parse(page.documentElement.dataset.now) - Date.now();
        title = page.title;
        held = holds();
        if (!held) {
          show(fresh);
          beside(page);
        }
      } else if (done && Date.now() >= doneUntil) {
        done.remove();
      }
      if (held) tag = null; // shown at the next read
      else asOf = answer.headers.get("X-As-Of");
      wait = 2000;
      trouble = "";
    } catch (e) {
      wait = Math.min(30000, wait * 2);
      tag = null;
      trouble = `${e.message}; next try in ${wait / 1000} s`;
    }
    reading = 0;
    say();
  };
  const loop = async () => {
    if (!document.hidden) await read();
    setTimeout(loop, wait);
  };
  pause.hidden = false;
  pause.addEventListener("click", () => {
    pause.setAttribute("aria-pressed", String(!paused()));
    held = holds();
    say();
    read();
  });
  document.addEventListener("visibilitychange", () => { if (!document.hidden) read(); });
  addEventListener("resize", scrolled);
  setInterval(() => {
    if (reading && Date.now() - reading > 5000 && !trouble) {
      trouble = "the console has not answered yet";
      say();
    } else ages();
  }, 1000);
  scrolled();
  setTimeout(loop, wait);
})();
