// Show the parts one at a time as text, store the answers in the browser, and save them as CSV.
"use strict";

(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const at = (id) => document.getElementById(id);
  const STORE = `agent-eval-sheet-${data.id}`;
  const KEYS = [..."123456789abcdefghijklmnopqtuvwxyz"]; // r and s are shortcuts
  const state = { rater: data.rater, answers: {}, current: 0 };
  let isKept = true;
  let isUnsaved = false;

  const element = (name, text, className) => {
    const made = document.createElement(name);
    if (text !== undefined) made.textContent = text;
    if (className) made.className = className;
    return made;
  };

  function restore() {
    try {
      const held = JSON.parse(localStorage.getItem(STORE) || "null");
      if (held) Object.assign(state, held);
      localStorage.setItem(STORE, JSON.stringify(state));
    } catch {
      isKept = false;
      notice("This browser does not store progress for files: save the CSV before you close the page, and open it here to continue.");
    }
  }

  function keep() {
    isUnsaved = true;
    if (!isKept) return;
    try { localStorage.setItem(STORE, JSON.stringify(state)); } catch { isKept = false; }
  }

  function notice(text) {
    at("notice").textContent = text;
    at("notice").hidden = !text;
  }

  const item = () => data.items[state.current];
  const metric = () => data.metrics[item().metric];
  const answer = () => state.answers[state.current] || { labels: [], reason: "" };
  const isDone = (i) => Boolean(state.answers[i] && state.answers[i].labels.length);
  const keyOf = (i) => {
    const value = metric().options[i].value;
    return /^\d$/.test(value) ? value : KEYS[i];
  };

  function said(one) {
    const box = element("div", undefined, `said ${one.kind}`);
    box.append(element("b", one.error ? `${one.title} (error)` : one.title), element("pre", one.text));
    return box;
  }

  function turnOf(turn) {
    const box = element("section");
    box.setAttribute("aria-label", `Turn ${turn.index}`);
    box.append(...turn.said.map(said));
    return box;
  }

  function show() {
    const { turn } = item();
    const held = data.conversations[item().at];
    const isWhole = turn === null;
    at("rated-title").textContent = isWhole ? "Rate the whole conversation" : `Rate this turn (${turn})`;
    at("given").replaceChildren(...[held.goal, ...held.knowledge].filter(Boolean).map((text) => said({ kind: "system", title: "Given", text })));
    at("context").hidden = !at("given").childElementCount;
    const before = held.turns.filter((one) => !isWhole && one.index < turn);
    at("before").hidden = !before.length;
    at("before").open = before.length < 4;
    at("before-title").textContent = `Earlier turns (${before.length} ${before.length === 1 ? "turn" : "turns"})`;
    at("earlier").replaceChildren(...before.map(turnOf));
    at("judged").replaceChildren(...held.turns.filter((one) => isWhole || one.index === turn).map(turnOf));
    const expected = metric().has_reference ? held.expected[turn] : undefined;
    if (expected) at("judged").append(said({ kind: "system", title: "Expected answer", text: expected }));
    at("question").textContent = metric().question;
    at("notes").textContent = metric().notes;
    at("legend").textContent = item().metric.replaceAll("_", " ");
    at("options").replaceChildren(...(metric().options.length ? metric().options.map(option) : [number()]));
    at("reason").value = answer().reason;
    at("back").disabled = state.current === 0;
    progress();
    at("rated").scrollIntoView({ block: "start" });
  }

  function option(one, i) {
    const box = element("label", undefined, "option");
    const input = element("input");
    input.type = metric().is_several ? "checkbox" : "radio";
    input.name = "answer";
    input.value = one.value;
    input.checked = answer().labels.includes(one.value);
    input.addEventListener("change", () => choose(one.value, input.checked));
    const words = element("span");
    words.append(element("b", one.value), one.meaning ? ` ${one.meaning}` : "");
    box.append(input, element("kbd", keyOf(i).toUpperCase()), words);
    return box;
  }

  function number() {
    const { low, high } = metric();
    const box = element("label", `A number from ${low} to ${high} `);
    const input = element("input");
    Object.assign(input, { type: "number", id: "number", min: low, max: high, step: "any", value: answer().labels[0] || "" });
    input.addEventListener("input", () => {
      const isGiven = input.value !== "" && input.checkValidity();
      write({ labels: isGiven ? [input.value] : [] });
    });
    box.append(input);
    return box;
  }

  function write(changed) {
    state.answers[state.current] = { ...answer(), ...changed, time: new Date().toISOString() };
    keep();
    progress();
  }

  function choose(value, isChosen) {
    const { options, is_several: isSeveral } = metric();
    let labels = isChosen ? [value] : [];
    if (isSeveral) {
      const none = options[0].value; // "no failure" excludes the others
      const others = answer().labels.filter((label) => label !== value && (value !== none || !isChosen) && label !== none);
      labels = isChosen ? [...others, value] : answer().labels.filter((label) => label !== value);
    }
    write({ labels });
    for (const input of at("options").querySelectorAll("input")) input.checked = labels.includes(input.value);
  }

  function progress() {
    const n = data.items.filter((_, i) => isDone(i)).length;
    at("progress").textContent = `Part ${state.current + 1} of ${data.items.length}, ${n} labelled`;
    at("bar").max = data.items.length;
    at("bar").value = n;
  }

  function move(by) {
    const next = state.current + by;
    if (next < 0) return;
    if (next >= data.items.length) {
      const open = data.items.findIndex((_, i) => !isDone(i));
      if (open < 0 || open === state.current) {
        notice(open < 0 ? "All parts are labelled. Save the CSV, then: agent-eval labels import FILE" : "");
        return;
      }
      state.current = open;
    } else state.current = next;
    keep();
    show();
  }

  // Text that a spreadsheet program could interpret as a formula is prefixed with a ', which the import removes.
  const guarded = (text) => (/^\s*[=+\-@]/.test(text) && !/^[+-]?\d+(\.\d+)?$/.test(text) ? `'${text}` : text);
  const cell = (value) => `"${guarded(String(value ?? "")).replaceAll('"', '""')}"`;

  function save() {
    const rater = at("rater").value.trim();
    if (!rater) {
      notice("Enter your name first: each label needs a rater.");
      at("rater").focus();
      return;
    }
    const lines = data.items.map((one, i) => [one, state.answers[i]]).filter(([, given]) => given && given.labels.length)
      .map(([one, given]) => data.columns.map((name) => cell({ rater, label: given.labels.join("; "), reason: given.reason, time: given.time }[name] ?? one[name])).join(","));
    const blob = new Blob([`${[data.columns.join(","), ...lines].join("\r\n")}\r\n`], { type: "text/csv;charset=utf-8" });
    const link = element("a");
    link.href = URL.createObjectURL(blob);
    link.download = `labels-${data.id.slice(0, 6)}-${rater.toLowerCase().replace(/[^a-z0-9]+/g, "-").replace(/^-|-$/g, "") || "rater"}.csv`;
    document.body.append(link);
    link.click();
    link.remove();
    setTimeout(() => URL.revokeObjectURL(link.href), 10000);
    isUnsaved = false;
    notice(`Saved ${lines.length} of ${data.items.length} labels. Next: agent-eval labels import FILE`);
  }

  function rowsOf(text) {
    const rows = [[""]];
    let isQuoted = false;
    for (let i = 0; i < text.length; i += 1) {
      const sign = text[i];
      const row = rows.at(-1);
      if (isQuoted) {
        if (sign === '"' && text[i + 1] === '"') { row[row.length - 1] += '"'; i += 1; }
        else if (sign === '"') isQuoted = false;
        else row[row.length - 1] += sign;
      } else if (sign === '"') isQuoted = true;
      else if (sign === "," || sign === ";") row.push("");
      else if (sign === "\n") rows.push([""]);
      else if (sign !== "\r" && sign !== "\uFEFF") row[row.length - 1] += sign;
    }
    return rows;
  }

  async function goOn(file) {
    const [head, ...rows] = rowsOf(await file.text());
    const unguarded = (text) => (/^'\s*[=+\-@]/.test(text) ? text.slice(1) : text);
    const partOf = (one) => ["agent", "conversation", "turn", "metric"].map((name) => String(one[name] ?? "")).join("\u0000");
    const places = new Map(data.items.map((one, i) => [partOf(one), i]));
    let n = 0;
    for (const row of rows) {
      const given = Object.fromEntries(head.map((name, i) => [name.trim(), unguarded(row[i] ?? "")]));
      const i = places.get(partOf(given));
      if (i === undefined || !given.label) continue;
      state.answers[i] = { labels: given.label.split("; "), reason: given.reason, time: given.time };
      if (given.rater) at("rater").value = state.rater = given.rater;
      n += 1;
    }
    keep();
    const open = data.items.findIndex((_, i) => !isDone(i));
    state.current = open < 0 ? 0 : open;
    show();
    notice(n ? `${n} labels were read.` : "The file contains no label of this sheet.");
  }

  function onKey(event) {
    const where = event.target;
    const isWriting = where.matches?.("textarea, input:not([type=radio]):not([type=checkbox])");
    if (event.key === "Escape" && isWriting) { where.blur(); at("content").focus(); return; }
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (isWriting) {
      if (event.key === "Enter" && where.id === "rater") at("content").focus();
      else if (event.key === "Enter" && where.id === "number") move(1);
      else return;
      event.preventDefault();
      return;
    }
    const key = event.key.toLowerCase();
    const i = metric().options.findIndex((_, n) => keyOf(n) === key);
    if (i >= 0) choose(metric().options[i].value, !(metric().is_several && answer().labels.includes(metric().options[i].value)));
    else if (key === "arrowright" || (key === "enter" && !where.matches?.("button, summary"))) move(1);
    else if (key === "arrowleft") move(-1);
    else if (key === "r") at("reason").focus();
    else if (key === "s") save();
    else return;
    event.preventDefault();
  }

  const measure = () => document.documentElement.style.setProperty("--head", `${document.querySelector("header").offsetHeight}px`);

  restore();
  measure();
  addEventListener("resize", measure);
  at("rater").value = state.rater;
  at("rater").addEventListener("input", () => { state.rater = at("rater").value; keep(); });
  at("reason").addEventListener("input", () => write({ reason: at("reason").value }));
  at("answer").addEventListener("submit", (event) => { event.preventDefault(); move(1); });
  at("back").addEventListener("click", () => move(-1));
  at("save").addEventListener("click", save);
  at("open").addEventListener("change", () => { if (at("open").files.length) goOn(at("open").files[0]); });
  document.addEventListener("keydown", onKey);
  // The sheet may be open twice: what is written in another tab is shown here, and not overwritten from here.
  addEventListener("storage", (event) => {
    if (event.key !== STORE || !event.newValue) return;
    const { answers, rater } = JSON.parse(event.newValue);
    Object.assign(state, { answers, rater });
    at("rater").value = rater;
    show();
  });
  addEventListener("beforeunload", (event) => { if (!isKept && isUnsaved) event.preventDefault(); });
  if (data.items.length) show();
})();
