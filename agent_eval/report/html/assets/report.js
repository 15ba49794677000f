// Theme, sorting, filtering and folds. Without it every page is whole; with it, pages are handier.
"use strict";

(() => {
  const root = document.documentElement;
  const KEY = "agent-eval-theme";

  const stored = {
    get() {
      try { return localStorage.getItem(KEY); } catch { return null; }
    },
    set(value) {
      try { localStorage.setItem(KEY, value); } catch { /* no storage: the choice lasts for this page */ }
    },
  };

  const isDark = () =>
    root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;

  const known = stored.get();
  if (known === "dark" || known === "light") root.dataset.theme = known;
  root.classList.remove("no-js");

  function themeToggle() {
    const button = document.querySelector(".toggle");
    if (!button) return;
    const tell = () => {
      button.textContent = isDark() ? "Light" : "Dark";
      button.setAttribute("aria-label", `Change to ${isDark() ? "light" : "dark"} colours`);
    };
    button.addEventListener("click", () => {
      root.dataset.theme = isDark() ? "light" : "dark";
      stored.set(root.dataset.theme);
      tell();
    });
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", tell);
    tell();
  }

  // Filters and sorting are in the address, so that a link shows the same rows.
  const address = {
    get: (name) => new URLSearchParams(location.search).get(name),
    set(name, value) {
      const url = new URL(location.href);
      if (value === null) url.searchParams.delete(name);
      else url.searchParams.set(name, value);
      try { history.replaceState(null, "", url); } catch { /* a page that may not change its address */ }
    },
  };

  // Sorting: a cell's data-sort, else its text; what is unknown ("") comes last in both directions.
  const valueOf = (row, column) => {
    const cell = row.cells[column];
    return cell.dataset.sort === undefined ? cell.textContent.trim() : cell.dataset.sort;
  };

  const compare = (a, b) => {
    const [x, y] = [Number(a), Number(b)];
    return Number.isNaN(x) || Number.isNaN(y) ? a.localeCompare(b) : x - y;
  };

  const isGroup = (row) => row.classList.contains("group");

  // Rows of different groups (templates, task sets) are not comparable: rows are sorted within their group, below its
  // heading. If a column has one value per group, the groups are sorted by it instead.
  function sortBy(table, header, direction) {
    const column = header.cellIndex;
    const body = table.tBodies[0];
    const sign = direction === "ascending" ? 1 : -1;
    const inOrder = (a, b) => (a === "") - (b === "") || sign * compare(a, b);
    const groups = new Map();
    for (const row of body.rows) {
      const name = row.dataset.group || "";
      if (!groups.has(name)) groups.set(name, { headings: [], rows: [] });
      groups.get(name)[isGroup(row) ? "headings" : "rows"].push([isGroup(row) ? "" : valueOf(row, column), row]);
    }
    const parts = [...groups.values()];
    const isConstant = parts.every(({ rows }) => rows.every(([value]) => value === rows[0][0]));
    if (isConstant) parts.sort((one, other) => inOrder(one.rows[0]?.[0] ?? "", other.rows[0]?.[0] ?? ""));
    for (const { headings, rows } of parts) {
      rows.sort(([a], [b]) => inOrder(a, b));
      body.append(...[...headings, ...rows].map(([, row]) => row));
    }
    for (const other of table.tHead.rows[0].cells) other.removeAttribute("aria-sort");
    header.setAttribute("aria-sort", direction);
    if (table.id) address.set(`${table.id}.sort`, `${column}.${direction}`);
  }

  function sortable(table) {
    for (const header of table.tHead.rows[0].cells) {
      if (header.dataset.sortable === undefined) continue;
      const button = document.createElement("button");
      button.type = "button";
      button.append(...header.childNodes);
      header.append(button);
      button.addEventListener("click", () => {
        const first = header.dataset.sortable || "ascending";
        const second = first === "ascending" ? "descending" : "ascending";
        sortBy(table, header, header.getAttribute("aria-sort") === first ? second : first);
      });
    }
    const [, column, direction] = /^(\d+)\.(ascending|descending)$/.exec(address.get(`${table.id}.sort`) || "") || [];
    const sorted = table.tHead.rows[0].cells[column];
    if (sorted?.dataset.sortable !== undefined) sortBy(table, sorted, direction);
  }

  // Filters: each control names a data-attribute of the rows; the text field searches the row's whole text.
  function filterable(form) {
    const table = document.getElementById(form.dataset.filters);
    const output = form.querySelector("output");
    const controls = [...form.querySelectorAll("input, select")];
    const groups = [...table.tBodies[0].rows].filter(isGroup);
    const rows = [...table.tBodies[0].rows].filter((row) => !isGroup(row));
    const texts = new Map(rows.map((row) => [row, row.textContent.toLowerCase()]));
    const keeps = (row, control) => {
      const wanted = control.value.trim();
      if (!wanted) return true;
      if (control.type === "search") return texts.get(row).includes(wanted.toLowerCase());
      return row.dataset[control.name] === wanted;
    };
    const place = (control) => `${form.dataset.filters}.${control.name}`;
    const initial = new Map(controls.map((control) => [control, control.value]));
    for (const control of controls) {
      const wanted = address.get(place(control));
      const isKnown = control.type === "search" || [...(control.options || [])].some(({ value }) => value === wanted);
      if (wanted !== null && isKnown) control.value = wanted;
    }
    const apply = () => {
      let n = 0;
      for (const row of rows) {
        row.hidden = !controls.every((control) => keeps(row, control));
        n += row.hidden ? 0 : 1;
      }
      for (const group of groups) {
        group.hidden = !rows.some((row) => !row.hidden && row.dataset.group === group.dataset.group);
      }
      output.textContent = `${n} of ${rows.length} rows`;
    };
    form.addEventListener("input", () => {
      apply();
      for (const control of controls) {
        address.set(place(control), control.value === initial.get(control) ? null : control.value);
      }
    });
    form.addEventListener("submit", (event) => event.preventDefault());
    apply();
  }

  // Two chosen columns of a table side by side; without a choice all are shown.
  function columns(form) {
    const table = document.getElementById(form.dataset.columns);
    const selects = [...form.querySelectorAll("select")];
    const apply = () => {
      const wanted = selects.map((select) => Number(select.value));
      const isChosen = wanted.every((column) => column > 0);
      for (const row of table.rows) {
        if (row.classList.contains("section")) continue;
        [...row.cells].forEach((cell, i) => { cell.hidden = isChosen && i > 0 && !wanted.includes(i); });
      }
    };
    form.addEventListener("input", apply);
    form.addEventListener("submit", (event) => event.preventDefault());
    apply();
  }

  // Search within a conversation: turns without the text are hidden, and folds that contain it are opened.
  function within(form) {
    const field = form.querySelector("input");
    const turns = [...document.querySelectorAll("section.turn")];
    const has = (element, text) => element.textContent.toLowerCase().includes(text);
    const apply = () => {
      const text = field.value.trim().toLowerCase();
      for (const turn of turns) turn.hidden = !has(turn, text);
      const shown = turns.filter((turn) => !turn.hidden);
      for (const fold of text ? shown.flatMap((turn) => [...turn.querySelectorAll("details")]) : []) fold.open ||= has(fold, text);
      form.querySelector("output").textContent = text ? `${shown.length} of ${turns.length} turns` : "";
    };
    field.value = address.get(field.name) || "";
    form.addEventListener("input", () => {
      apply();
      address.set(field.name, field.value || null);
    });
    form.addEventListener("submit", (event) => event.preventDefault());
    apply();
  }

  // The sections of a page as tabs: one is shown, by its link or by a link to anything in it; without the script, all.
  function tabs(nav) {
    const links = [...nav.querySelectorAll("a")];
    const sections = links.map((link) => document.querySelector(link.hash).closest("section"));
    const show = (chosen) => sections.forEach((section, i) => {
      section.hidden = section !== chosen;
      if (section.hidden) section.setAttribute("hidden", "until-found"); // the browser's own search still finds it
      if (section === chosen) links[i].setAttribute("aria-current", "true");
      else links[i].removeAttribute("aria-current");
    });
    const select = () => {
      const target = targetOf(location.hash);
      const chosen = target && sections.find((section) => section.contains(target));
      if (chosen) show(chosen);
    };
    for (const section of sections) section.addEventListener("beforematch", () => show(section));
    addEventListener("hashchange", select);
    show(sections[0]);
    select();
  }

  // A box whose table fits needs no scrolling of its own, so that headings can stay in view (report.css).
  function fitting(box) {
    const check = () => box.classList.toggle("fits", box.scrollWidth <= box.clientWidth);
    const observer = new ResizeObserver(check);
    observer.observe(box);
    for (const table of box.children) observer.observe(table);
  }

  const targetOf = (hash) => hash && document.getElementById(decodeURIComponent(hash.slice(1)));

  // A link to something inside a fold opens the fold.
  function reveal() {
    const target = targetOf(location.hash);
    if (!target) return;
    for (let fold = target.closest("details"); fold; fold = fold.parentElement.closest("details")) fold.open = true;
    target.scrollIntoView();
  }

  // Keys: j and k go to the next and previous turn, n to the next finding, / to the search field.
  function keys() {
    const turns = [...document.querySelectorAll("section.turn")];
    const findings = [...document.querySelectorAll(".opinion[open], .said.error, .said.cited")];
    const next = (all, isForward) => {
      const places = all.filter((place) => place.checkVisibility());
      const top = (place) => Math.round(place.getBoundingClientRect().top);
      const edge = parseFloat(getComputedStyle(root).scrollPaddingTop) || 0;
      const away = places.filter((place) => (isForward ? top(place) > edge + 2 : top(place) < edge - 2));
      const chosen = isForward ? away[0] : away[away.length - 1];
      if (!chosen) return;
      chosen.tabIndex = -1;
      chosen.focus({ preventScroll: true });
      chosen.scrollIntoView();
    };
    const act = {
      j: () => next(turns, true),
      k: () => next(turns, false),
      n: () => next(findings, true),
      "/": () => document.querySelector("input[type=search]")?.focus(),
    };
    addEventListener("keydown", (event) => {
      const isTyping = event.target.closest?.("input, select, textarea");
      if (isTyping || event.ctrlKey || event.metaKey || event.altKey || !act[event.key]) return;
      event.preventDefault();
      act[event.key]();
    });
  }

  // A button that copies a message, made for all messages with one listener.
  function copying() {
    if (!navigator.clipboard) return;
    for (const head of document.querySelectorAll(".said > .who")) {
      const button = document.createElement("button");
      button.type = "button";
      button.className = "copy";
      button.textContent = "copy";
      head.append(button);
    }
    addEventListener("click", async (event) => {
      const button = event.target.closest?.(".copy");
      if (!button) return;
      const text = button.closest(".said").querySelector(".text");
      await navigator.clipboard.writeText(text ? text.innerText : "");
      button.textContent = "copied";
    });
  }

  function foldAll() {
    for (const button of document.querySelectorAll("[data-opens]")) {
      const folds = () => [...document.querySelectorAll(`#${button.dataset.opens} details`)];
      button.hidden = false;
      button.addEventListener("click", () => {
        const open = folds().some((fold) => !fold.open);
        for (const fold of folds()) fold.open = open;
        button.setAttribute("aria-expanded", String(open));
      });
    }
  }

  document.addEventListener("DOMContentLoaded", () => {
    themeToggle();
    document.querySelectorAll("table").forEach((table) => table.tHead && sortable(table));
    document.querySelectorAll("form[data-filters]").forEach(filterable);
    document.querySelectorAll("form[data-columns]").forEach(columns);
    document.querySelectorAll("form[data-within]").forEach(within);
    document.querySelectorAll("nav.tabs").forEach(tabs);
    document.querySelectorAll(".scroll").forEach(fitting);
    foldAll();
    keys();
    copying();
    reveal();
  });
  addEventListener("hashchange", reveal);
  addEventListener("beforeprint", () => {
    for (const fold of document.querySelectorAll("details")) fold.open = true;
    for (const section of document.querySelectorAll("section.tab")) section.hidden = false;
  });
})();
