"use strict";
(() => {
const $ = id => document.getElementById(id);
const ITEM = 48;
const number = value => value.toLocaleString("en-US");
const share = (part, whole) => whole ? (100 * part / whole).toFixed(1) + " %" : "";

/* Every text reaches the page through `make`, as text and never as HTML. */
const make = (tag, attributes = {}, ...children) => {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) if (value !== null && value !== undefined) node.setAttribute(name, value);
  node.append(...children.filter(child => child !== null && child !== undefined && child !== ""));
  return node;
};

const unpack = async name => {
  const held = $("data-" + name);
  if (!held) return null;
  const binary = atob(held.textContent.trim());
  const bytes = Uint8Array.from(binary, sign => sign.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  return JSON.parse(await new Response(stream).text());
};

/* The same characters as `visible.py`; a byte-level tokenizer can cut one into several tokens, so that it is whole only here. */
const HIDDEN = /[\u0000-\u001f\u007f-\u009f\u061c\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb\ufffe\uffff]|[\u{e0000}-\u{e007f}]|[\ud800-\udbff](?![\udc00-\udfff])|(?<![\ud800-\udbff])[\udc00-\udfff]/gu;
const visible = text => text.replace(HIDDEN, sign => sign === "\n" ? "⏎\n" : "⟨u+" + sign.codePointAt(0).toString(16).padStart(4, "0") + "⟩");
const PARTS = /^(?:⟨[89a-f][0-9a-f]⟩)+$/;
const decoder = new TextDecoder("utf-8", { fatal: true });

/* The tokens of a row in groups that are whole characters: {at, count, text}. */
const grouped = (ids, vocabulary, start, end) => {
  const groups = [];
  for (let at = start; at < end; at++) {
    const text = vocabulary[ids[at]] ?? "⟨no token " + ids[at] + "⟩";
    if (!text.startsWith("⟨") || !PARTS.test(text)) { groups.push({ at, count: 1, text }); continue; }
    let hex = "", stop = at, whole = null;
    while (stop < end && stop < at + 8 && PARTS.test(vocabulary[ids[stop]] ?? "")) {
      hex += vocabulary[ids[stop++]].replace(/[⟨⟩]/g, "");
      try { whole = decoder.decode(Uint8Array.from(hex.match(/../g), pair => parseInt(pair, 16))); break; } catch { whole = null; }
    }
    if (whole === null) { groups.push({ at, count: 1, text }); continue; }
    groups.push({ at, count: stop - at, text: visible(whole) });
    at = stop - 1;
  }
  return groups;
};
const textOf = (row, vocabulary) => [row, ...(row.b ? [row.b] : [])]
  .map(side => side.f?.flatMap(([, , texts]) => texts.map(([, text]) => text)).join("\n") ?? grouped(side.i, vocabulary, 0, side.i.length).map(group => group.text).join("")).join("\n");
const weightsOf = row => {
  if (!row.w) return null;
  const weights = new Float32Array(row.i.length);
  let at = 0;
  for (const [count, weight] of row.w) { weights.fill(weight, at, at + count); at += count; }
  return weights;
};

/* -- theme -- */
const theme = $("theme"), dark = matchMedia("(prefers-color-scheme: dark)");
let isDark = dark.matches;
const setTheme = () => { document.documentElement.style.colorScheme = isDark ? "dark" : "light"; theme.textContent = isDark ? "Light" : "Dark"; };
theme.hidden = false;
theme.textContent = isDark ? "Light" : "Dark";
theme.addEventListener("click", () => { isDark = !isDark; setTheme(); });

/* -- rows -- */
const browse = async () => {
  const list = $("list");
  if (!list) return;
  const index = await unpack("index"), vocabulary = await unpack("vocabulary"), streams = await unpack("streams");
  const total = index.number.length, chunks = new Map();
  let texts = null, order = Array.from({ length: total }, (_, at) => at), chosen = 0, asTokens = false, search = 0;
  const served = "served" in $("filters").dataset;
  let query = served && $("where").value !== "id" ? $("query").value.trim().toLowerCase() : "";
  const starts = index.chunks;
  const rowAt = async at => {
    let chunk = starts.findLastIndex(start => start <= at);
    if (!chunks.has(chunk)) { if (chunks.size > 24 && !texts) chunks.clear(); chunks.set(chunk, await unpack("rows-" + chunk)); }
    return chunks.get(chunk)[at - starts[chunk]];
  };
  const title = at => (index.beside?.[at] != null ? streams[index.stream[at]].name.replace(/chosen$/, "pair") + " " : streams.length > 1 ? streams[index.stream[at]].name + " " : "row ") + number(index.number[at]);
  const isPair = at => index.pair?.[at] != null, ofAnswers = at => streams[index.stream[at]].unit === "tokens" ? "trained tokens" : "characters";
  const brief = at => isPair(at) ? index.pair[at].map(number).join(" : ") : number(index.length[at]) + (index.trained[at] === null ? "" : " · " + share(index.trained[at], index.length[at]));
  const figures = at => {
    if (isPair(at)) {
      const [chosen, rejected] = index.pair[at];
      return "chosen " + number(chosen) + ", rejected " + number(rejected) + " " + ofAnswers(at) + (chosen === rejected ? ", equally long" : chosen > rejected ? ", chosen is longer" : ", rejected is longer");
    }
    const unit = streams[index.stream[at]].unit;
    return number(index.length[at]) + " " + unit + (index.trained[at] === null ? "" : ", " + share(index.trained[at], index.length[at]) + " trained");
  };
  const heading = at => isPair(at) ? "chosen : rejected, " + ofAnswers(at) : streams[index.stream[at]].unit + (index.trained[at] === null ? "" : " · trained");

  /* the list holds only what can be seen */
  const space = make("div", { class: "space", role: "presentation" });
  list.append(space);
  const draw = () => {
    const first = Math.max(0, Math.floor(list.scrollTop / ITEM) - 4), last = Math.min(order.length, Math.ceil((list.scrollTop + list.clientHeight) / ITEM) + 4);
    const items = [];
    for (let place = first; place < last; place++) {
      const at = order[place];
      const item = make("div", { class: "item", role: "option", id: "item-" + place, "aria-selected": String(place === chosen), "aria-posinset": place + 1, "aria-setsize": order.length },
        make("b", {}, make("i", {}, title(at)), make("i", {}, brief(at))),
        make("span", {}, index.name[at] + (index.pieces[at] > 1 ? " and " + (index.pieces[at] - 1) + " more" : "")));
      item.style.top = place * ITEM + "px";
      item.addEventListener("click", () => choose(place));
      items.push(item);
    }
    space.style.height = order.length * ITEM + "px";
    space.replaceChildren(...items);
    $("unit").textContent = order.length ? heading(order[Math.min(chosen, order.length - 1)]) : "";
    list.setAttribute("aria-activedescendant", order.length ? "item-" + chosen : "");
    if (!order.length) list.removeAttribute("aria-activedescendant");
  };
  list.addEventListener("scroll", () => requestAnimationFrame(draw), { passive: true });
  const choose = async place => {
    if (!order.length) { draw(); $("row").replaceChildren(make("p", { class: "dim" }, "No row has this.")); return; }
    chosen = Math.max(0, Math.min(order.length - 1, place));
    const top = chosen * ITEM;
    if (top < list.scrollTop) list.scrollTop = top;
    if (top + ITEM > list.scrollTop + list.clientHeight) list.scrollTop = top + ITEM - list.clientHeight;
    draw();
    await show(order[chosen]);
  };
  list.addEventListener("keydown", event => {
    const page = Math.max(1, Math.floor(list.clientHeight / ITEM) - 1);
    const moves = { ArrowDown: chosen + 1, ArrowUp: chosen - 1, PageDown: chosen + page, PageUp: chosen - page, Home: 0, End: order.length - 1 };
    if (event.key in moves) { event.preventDefault(); choose(moves[event.key]); }
    if (event.key === "Enter") { event.preventDefault(); $("row").focus(); }
  });

  /* one row */
  const flow = (row, weights, start, end) => {
    const box = make("p", { class: "flow", dir: "auto" });
    let mark = null, wasTrained = false;
    for (const group of grouped(row.i, vocabulary, start, end)) {
      const trained = weights !== null && weights[group.at] > 0;
      if (trained && !wasTrained) { mark = make("mark", {}, make("span", { class: "said" }, "[trained] ")); box.append(mark); }
      if (!trained && wasTrained) { mark.append(make("span", { class: "said" }, " [end of trained]")); mark = null; }
      wasTrained = trained;
      const hit = query && group.text.toLowerCase().includes(query) ? "hit" : null;
      (mark ?? box).append(make("span", { class: hit, "data-at": group.at, "data-count": group.count }, group.text));
    }
    box.addEventListener("pointerover", event => {
      const at = event.target.dataset?.at;
      if (at === undefined || event.target.title) return;
      event.target.title = [...Array(+event.target.dataset.count).keys()].map(more => said(row, weights, +at + more)).join("\n");
    });
    return box;
  };
  const label = (row, weights, at) => weights === null ? row.i[at] : weights[at] > 0 ? row.i[at] : -100;
  const said = (row, weights, at) => "place " + at + ", id " + row.i[at] + (weights === null ? "" : (weights[at] < 0 ? ", not attended" : ", weight " + weights[at]) + ", label " + label(row, weights, at));
  /* a link to the trace of a row or of one token where a server answers it, the command elsewhere */
  const traced = (at, token, text, stream = index.stream[at]) => {
    const { traced: address, trace: command } = streams[stream], row = index.number[at];
    if (address) return make("a", { href: address + "&row=" + row + (token === null ? "" : "&token=" + token) }, text);
    return token === null && command ? make("code", {}, command + " --row " + row) : token === null ? null : text;
  };
  const tokens = (row, weights, start, end, which, stream) => {
    const head = make("tr", {}, ...["place", "token", "id", "weight", "label", "must predict"].map(name => make("th", { scope: "col" }, name)));
    const body = make("tbody");
    for (let at = start; at < end; at++) {
      const next = at + 1 < row.i.length ? label(row, weights, at + 1) : -100;
      body.append(make("tr", { class: weights !== null && weights[at] > 0 ? "on" : null }, make("td", { class: "n" }, traced(which, at, number(at), stream)),
        make("td", { dir: "auto" }, make("code", {}, (vocabulary[row.i[at]] ?? "").replaceAll("⏎\n", "⏎"))), make("td", { class: "n" }, String(row.i[at])),
        make("td", { class: "n" }, weights === null ? "" : weights[at] < 0 ? "hidden" : String(weights[at])), make("td", { class: "n" }, String(label(row, weights, at))), make("td", { class: "n" }, String(next))));
    }
    return make("table", { class: "tokens" }, make("thead", {}, head), body);
  };
  const proof = ([fault, stretches]) => {
    const side = found => found === null ? make("em", {}, "nothing") : make("span", { dir: "auto" }, found[0] + (found[1] === 1 ? "" : "  (weight " + found[1] + ")"));
    const body = make("tbody");
    for (const [start, end, first, second] of stretches) {
      const equal = first !== null && second !== null && first[1] === second[1] && first[0].replace(/[\s⏎]+$|^[\s⏎]+/g, "") === second[0].replace(/[\s⏎]+$|^[\s⏎]+/g, "");
      body.append(make("tr", {}, make("td", { class: "n" }, start < 0 ? "–" : start + "–" + (end - 1)), make("td", { class: "text" }, side(first)), make("td", { class: "text" }, side(second)),
        make("td", { class: equal ? "agree" : fault ? "differ" : "" }, equal ? "= equal" : fault ? "≠ differs" : "equal where not cut")));
    }
    const head = make("tr", {}, ...["tokens", "first: the store's mask, decoded", "second: from the source, without marks", ""].map(name => make(name ? "th" : "td", name ? { scope: "col" } : {}, name)));
    const box = make("details", {}, make("summary", { class: fault ? "differ" : "agree" }, fault ? "✗ The two derivations differ: " + fault : "✓ Both derivations agree on " + stretches.length + (stretches.length === 1 ? " trained stretch" : " trained stretches")),
      make("table", { class: "proof" }, make("thead", {}, head), body));
    if (fault) box.open = true;
    return box;
  };
  /* the documents of a row from a token on */
  const documents = (row, first, at, stream, side = "") => {
    const weights = weightsOf(row), view = asTokens ? tokens : flow;
    const shown = row.p.map(([start, name, offset, note, both], piece) => {
      const end = piece + 1 < row.p.length ? row.p[piece + 1][0] : row.i.length;
      const about = (note ? note + " · " : "") + number(end - start) + " tokens" + (offset ? ", from its token " + number(offset) : "");
      return make("section", { class: "doc", "aria-label": side + name }, make("h4", {}, make("span", { dir: "auto" }, name), make("span", { class: "dim" }, about)),
        view(row, weights, Math.max(start, first), end, at, stream), both ? proof(both) : null);
    });
    const more = (stream === index.stream[at] ? index.length[at] : row.i.length) - row.i.length;
    return more > 0 ? [...shown, make("p", { class: "dim" }, "… and " + number(more) + " tokens more")] : shown;
  };
  /* both sides of a pair: the masked beginning that they share, then side by side */
  const sides = (row, at) => {
    const [chosen, rejected] = [weightsOf(row), weightsOf(row.b)], last = Math.min(row.i.length, row.b.i.length);
    let shared = 0;
    while (shared < last && row.i[shared] === row.b.i[shared] && !(chosen?.[shared] > 0) && !(rejected?.[shared] > 0)) shared++;
    const column = (name, side, stream) => make("div", { class: name }, make("h4", {}, name), ...documents(side, shared, at, stream, name + " "));
    return [make("section", { class: "doc", "aria-label": "prompt" }, make("h4", {}, make("span", {}, "prompt"), make("span", { class: "dim" }, number(shared) + " tokens")),
      (asTokens ? tokens : flow)(row, chosen, 0, shared, at)), make("div", { class: "pair" }, column("chosen", row, index.stream[at]), column("rejected", row.b, index.beside[at]))];
  };
  /* the fields of a line; both answers of a pair stand side by side */
  const fields = every => {
    const texts = parts => parts.flatMap(([speaker, text]) => [speaker ? make("h5", {}, speaker) : null, highlighted(text)]).filter(part => part);
    const box = ([name, length, parts], classes) => make("div", { class: classes }, make("h4", {}, make("span", { dir: "auto" }, name), make("span", { class: "dim" }, number(length) + (length === 1 ? " character" : " characters"))), ...texts(parts));
    const answers = ["chosen", "rejected"].map(name => every.find(field => field[0] === name)), both = answers.every(answer => answer);
    const shown = [];
    for (const field of every) {
      if (both && field === answers[0]) shown.push(make("div", { class: "pair" }, ...answers.map(answer => box(answer, answer[0]))));
      else if (!both || field !== answers[1]) shown.push(box(field, "field"));
    }
    return make("div", {}, ...shown);
  };
  const highlighted = text => {
    const box = make("p", { class: "flow line", dir: "auto" }), low = text.toLowerCase();
    let from = 0;
    for (let at = query && low.length === text.length ? low.indexOf(query) : -1; at >= 0; at = low.indexOf(query, from)) {
      box.append(text.slice(from, at), make("span", { class: "hit" }, text.slice(at, at + query.length)));
      from = at + query.length;
    }
    box.append(text.slice(from));
    return box;
  };
  const show = async at => {
    const row = await rowAt(at), panel = $("row");
    if (order[chosen] !== at) return;
    const pieces = row.p.length === 1 ? "" : " · " + number(row.p.length) + (streams[index.stream[at]].packed ? " pieces" : " documents");
    const parts = [make("h3", {}, title(at)), make("p", { class: "dim" }, figures(at) + pieces, " ", traced(at, null, "Trace this row"))];
    if (row.f) parts.push(make("div", { class: "doc" }, make("h4", {}, make("span", { dir: "auto" }, row.p[0][1])), fields(row.f)));
    else {
      const toggle = (name, on) => { const made = make("button", { type: "button", "aria-pressed": String(asTokens === on) }, name); made.addEventListener("click", () => { asTokens = on; show(at); }); return made; };
      parts.push(make("div", { class: "tools" }, toggle("Text", false), toggle("Tokens and labels", true)));
      if (row.b) parts.push(...sides(row, at));
      else parts.push(...documents(row, 0, at, index.stream[at]));
    }
    panel.replaceChildren(...parts);
    panel.scrollTop = 0;
    panel.querySelector(".hit")?.scrollIntoView({ block: "center" });
    history.replaceState(null, "", "#row=" + index.number[at]);
  };

  /* search, filter, order */
  const apply = async () => {
    const mine = ++search, wanted = $("query").value.trim().toLowerCase(), byId = $("where").value === "id", domain = $("domain").value;
    query = byId ? "" : wanted;
    let found = Array.from({ length: total }, (_, at) => at);
    if (domain && !served) found = found.filter(at => index.domain[at].includes(index.domains.indexOf(domain)));
    if (wanted && !served) {
      texts ??= new Map();
      const kept = [];
      let since = performance.now();
      for (const at of found) {
        const row = await rowAt(at);
        if (mine !== search) return;
        if (!texts.has(at)) texts.set(at, [row.p.map(piece => piece[1]).join("\n").toLowerCase(), textOf(row, vocabulary).toLowerCase()]);
        if (texts.get(at)[byId ? 0 : 1].includes(wanted)) kept.push(at);
        if (performance.now() - since > 40) { $("found").textContent = "searching … " + number(at) + " of " + number(total); await new Promise(done => setTimeout(done)); since = performance.now(); if (mine !== search) return; }
      }
      found = kept;
    }
    const keys = { "-length": at => -index.length[at], length: at => index.length[at], share: at => (index.trained[at] ?? 0) / Math.max(1, index.length[at]) };
    const key = keys[$("order").value];
    if (key) found.sort((one, other) => key(one) - key(other) || one - other);
    order = found;
    $("found").textContent = number(found.length) + (found.length === 1 ? " row" : " rows");
    list.scrollTop = 0;
    await choose(0);
  };
  /* a file searches its rows; a server searches the store, and this page orders what it found */
  let pending = 0;
  if (!served) $("query").addEventListener("input", () => { clearTimeout(pending); pending = setTimeout(() => { apply(); document.dispatchEvent(new Event("searched")); }, 200); });
  for (const name of served ? ["order"] : ["where", "domain", "order"]) $(name).addEventListener("change", apply);
  if (!served) $("filters").addEventListener("submit", event => { event.preventDefault(); apply(); });
  document.addEventListener("keydown", event => {
    const typing = /^(INPUT|SELECT|TEXTAREA)$/.test(document.activeElement?.tagName ?? "");
    if (event.key === "/" && !typing) { event.preventDefault(); $("query").focus(); }
    if (event.key === "Escape" && document.activeElement === $("query")) { $("query").value = ""; if (!served) { apply(); document.dispatchEvent(new Event("searched")); } }
  });
  const linked = /^#row=(\d+)$/.exec(location.hash);
  const start = linked ? Math.max(0, index.number.indexOf(+linked[1])) : 0;
  $("found").textContent = number(total) + (total === 1 ? " row" : " rows");
  draw();
  if (!total) { $("row").replaceChildren(make("p", { class: "dim" }, "No row fits.")); return; }
  if (linked) { $("rows").scrollIntoView(); await choose(start); } else { await show(order[0]); history.replaceState(null, "", location.pathname + location.search); }
};

/* -- refused records -- */
const refusals = async () => {
  const box = $("refusals");
  if (!box) return;
  const every = await unpack("refused"), STEP = 50, form = $("refused-filters"), served = "served" in form.dataset;
  let most = STEP;
  const draw = () => {
    const reason = $("reason").value, wanted = $("query")?.value.trim().toLowerCase();
    const found = every.filter(each => (!reason || each[2] === reason) && (!wanted || [each[1], each[3], each[4]].some(text => text.toLowerCase().includes(wanted))));
    box.replaceChildren(...found.slice(0, most).map(([store, id, why, detail, payload, length]) => make("details", { class: "refusal" },
      make("summary", {}, make("span", { class: "reason" }, why), " ", make("b", { dir: "auto" }, store + " " + id), " ", make("span", { dir: "auto" }, detail)),
      make("pre", { tabindex: "0", dir: "auto" }, payload + (length > payload.length ? "\n… (" + number(length) + " long)" : "")))));
    $("refused-found").textContent = number(found.length) + (found.length === 1 ? " record" : " records") + (wanted ? " with “" + wanted + "”" : "");
    $("more").hidden = found.length <= most;
  };
  const again = () => { most = STEP; draw(); };
  $("reason").addEventListener("change", () => served ? form.submit() : again());
  document.addEventListener("searched", again);
  if (!$("list")) $("query").addEventListener("input", again);
  $("more").addEventListener("click", () => { most += STEP; draw(); });
  draw();
};

const fail = error => { document.body.dataset.state = "failed"; $("main").prepend(make("p", { class: "note", role: "alert" }, "This browser cannot show the rows: " + error)); };
Promise.all([browse(), refusals()]).then(() => { document.body.dataset.state = "ready"; }, fail);
})();
