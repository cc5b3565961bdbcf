// Reads a live page again every two seconds, and less often while that fails or the page is hidden. It
// sends the ETag of what it shows, so an unchanged page costs no bytes. A page works without it.
"use strict";
(() => {
  const main = document.querySelector("main[data-live]");
  const status = document.querySelector("#status");
  const ages = () => {
    for (const t of document.querySelectorAll("time[data-age]")) {
      const s = Math.max(0, Math.floor((Date.now() + skew - Date.parse(t.dateTime)) / 1000));
      const h = Math.floor(s / 3600), m = Math.floor(s % 3600 / 60);
      t.textContent = h > 0 ? `${h} h ${m} m` : m > 0 ? `${m} m ${s % 60} s` : `${s} s`;
    }
  };
  let skew = Date.parse(document.documentElement.dataset.now) - Date.now();
  setInterval(ages, 1000);
  if (!main) return;
  let tag = null, wait = 2000, asOf = document.documentElement.dataset.asOf;
  const clock = (t) => new Date(t).toLocaleTimeString();
  const say = (text, bad) => { status.textContent = text; status.classList.toggle("bad", bad); };
  const read = async () => {
    try {
      const headers = tag ? { "If-None-Match": tag } : {};
      const answer = await fetch(location.href, { headers, cache: "no-store", redirect: "error", signal: AbortSignal.timeout(15000) });
      if (answer.status !== 304 && !answer.ok) throw new Error(`status ${answer.status}`);
      asOf = answer.headers.get("X-As-Of");
      tag = answer.headers.get("ETag");
      if (answer.status === 200) {
        const page = new DOMParser().parseFromString(await answer.text(), "text/html");
        const fresh = page.querySelector("main");
        skew = Date.parse(page.documentElement.dataset.now) - Date.now();
        if (fresh && !main.contains(document.activeElement)) main.replaceChildren(...fresh.childNodes);
        else tag = null; // shown at the next read
        ages();
      }
      wait = 2000;
      say(`as of ${clock(asOf)}`, false);
    } catch (e) {
      wait = Math.min(30000, wait * 2);
      say(`as of ${clock(asOf)}: not up to date, ${e.message}; next try in ${wait / 1000} s`, true);
    }
  };
  const loop = async () => {
    if (!document.hidden) await read();
    setTimeout(loop, wait);
  };
  document.addEventListener("visibilitychange", () => { if (!document.hidden) read(); });
  setTimeout(loop, wait);
})();
