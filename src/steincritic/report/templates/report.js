(() => {
  "use strict";
  const root = document.documentElement;
  const button = document.getElementById("theme");
  const isDark = () => root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  const label = () => { button.textContent = isDark() ? "Light mode" : "Dark mode"; };
  button.addEventListener("click", () => { root.dataset.theme = isDark() ? "light" : "dark"; label(); });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", label);
  label();

  for (const table of document.querySelectorAll("table.sortable")) {
    const body = table.tBodies[0];
    [...table.tHead.rows[0].cells].forEach((head, column) => {
      const control = document.createElement("button");
      control.type = "button";
      control.textContent = head.textContent;
      head.replaceChildren(control);
      control.addEventListener("click", () => {
        const down = head.getAttribute("aria-sort") === "ascending";
        for (const other of table.tHead.rows[0].cells) other.removeAttribute("aria-sort");
        head.setAttribute("aria-sort", down ? "descending" : "ascending");
        const value = (row) => row.cells[column].dataset.value ?? row.cells[column].textContent;
        const rows = [...body.rows].sort((a, b) => {
          const x = value(a), y = value(b), n = Number(x) - Number(y);
          return (Number.isNaN(n) ? x.localeCompare(y, undefined, { numeric: true }) : n) * (down ? -1 : 1);
        });
        body.append(...rows);
      });
    });
  }

  const map = document.getElementById("map"), tip = document.getElementById("tip");
  map.addEventListener("pointerover", (event) => {
    const text = event.target.dataset && event.target.dataset.t;
    tip.hidden = !text;
    if (!text) return;
    const frame = map.parentElement.getBoundingClientRect(), dot = event.target.getBoundingClientRect();
    tip.textContent = text;
    tip.style.left = Math.max(0, Math.min(dot.left - frame.left + 10, frame.width - tip.offsetWidth)) + "px";
    tip.style.top = (dot.top - frame.top + (dot.top - frame.top < 32 ? 14 : -30)) + "px";
  });
  map.addEventListener("pointerleave", () => { tip.hidden = true; });
})();
