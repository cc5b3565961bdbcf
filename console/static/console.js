// Reads a live page again every two seconds, and less often while that fails or the page is hidden. It
// sends the ETag of what it shows, so an unchanged page costs no bytes. A page works without it.
"use strict";
(() => {
  const root = document.documentElement;
  const main = document.querySelector("main");
  const status = document.querySelector("#status");
  let skew = Date.parse(root.dataset.now) - Date.now();
  const ages = () => {
    for (const t of document.querySelectorAll("time[data-age]")) {
      const s = Math.max(0, Math.floor((Date.now() + skew - Date.parse(t.dateTime)) / 1000));
      const h = Math.floor(s / 3600), m = Math.floor(s % 3600 / 60);
      t.textContent = h > 0 ? `${h} h ${m} m` : m > 0 ? `${m} m ${s % 60} s` : `${s} s`;
    }
  };
  setInterval(ages, 1000);

  // What an action has done is shown for a while, and not again when the page is loaded again.
  const done = main.querySelector(".done");
  const doneUntil = Date.now() + 8000;
  if (done) {
    const clean = new URL(location.href);
    clean.searchParams.delete("done");
    history.replaceState(null, "", clean);
  }
  if (!("live" in main.dataset)) return;

  let tag = null, wait = 2000, asOf = root.dataset.asOf;
  const clock = (t) => new Date(t).toISOString().slice(11, 19) + " UTC";
  // The time moves on silently; what is wrong is announced, once.
  const say = (trouble) => {
    document.querySelector("#as-of").textContent = asOf && !asOf.startsWith("0001") ? `as of ${clock(asOf)}` : "";
    if (status.textContent !== trouble) status.textContent = trouble;
    status.classList.toggle("bad", trouble !== "");
  };

  // The element that has the focus keeps it, by where it leads; a text that is selected is not replaced.
  const show = (fresh) => {
    const at = document.activeElement, selection = getSelection();
    if (!selection.isCollapsed && main.contains(selection.anchorNode)) return false;
    const href = main.contains(at) ? at.getAttribute("href") : null;
    const left = [...main.querySelectorAll(".scroll")].map((e) => e.scrollLeft);
    main.replaceChildren(...fresh.childNodes);
    if (done && Date.now() < doneUntil) main.querySelector("h1").after(done);
    main.querySelectorAll(".scroll").forEach((e, i) => { e.scrollLeft = left[i] || 0; });
    if (href) main.querySelector(`a[href="${CSS.escape(href)}"]`)?.focus({ preventScroll: true });
    return true;
  };
  const read = async () => {
    try {
      const headers = tag ? { "If-None-Match": tag } : {};
      const answer = await fetch(location.href, { headers, cache: "no-store", redirect: "error", signal: AbortSignal.timeout(15000) });
      if (answer.status !== 304 && !answer.ok) throw new Error(`status ${answer.status}`);
      tag = answer.headers.get("ETag");
      let held = false; // the page is not replaced now
      if (answer.status === 200) {
        const page = new DOMParser().parseFromString(await answer.text(), "text/html");
        const fresh = page.querySelector("main");
        skew = Date.parse(page.documentElement.dataset.now) - Date.now();
        if (!fresh || !page.documentElement.dataset.asOf) throw new Error("the answer is not from the console");
        document.title = page.title;
        held = !show(fresh);
        ages();
      } else if (done && Date.now() >= doneUntil) {
        done.remove();
      }
      if (held) tag = null; // shown at the next read
      else asOf = answer.headers.get("X-As-Of");
      wait = 2000;
      say(held ? "kept as it is while a text is selected" : "");
    } catch (e) {
      wait = Math.min(30000, wait * 2);
      tag = null;
      say(`not up to date, ${e.message}; next try in ${wait / 1000} s`);
    }
  };
  const loop = async () => {
    if (!document.hidden) await read();
    setTimeout(loop, wait);
  };
  document.addEventListener("visibilitychange", () => { if (!document.hidden) read(); });
  setTimeout(loop, wait);
})();
