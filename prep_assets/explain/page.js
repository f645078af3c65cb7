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
const textOf = (row, vocabulary) => row.t ?? grouped(row.i, vocabulary, 0, row.i.length).map(group => group.text).join("");
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
  let texts = null, order = Array.from({ length: total }, (_, at) => at), chosen = 0, asTokens = false, query = "", search = 0;
  const starts = index.chunks;
  const rowAt = async at => {
    let chunk = starts.findLastIndex(start => start <= at);
    if (!chunks.has(chunk)) { if (chunks.size > 24 && !texts) chunks.clear(); chunks.set(chunk, await unpack("rows-" + chunk)); }
    return chunks.get(chunk)[at - starts[chunk]];
  };
  const title = at => (streams.length > 1 ? streams[index.stream[at]].name + " " : "row ") + number(index.number[at]);
  const brief = at => number(index.length[at]) + (index.trained[at] === null ? "" : " · " + share(index.trained[at], index.length[at]));
  const figures = at => {
    const unit = streams[index.stream[at]].unit;
    return number(index.length[at]) + " " + unit + (index.trained[at] === null ? "" : ", " + share(index.trained[at], index.length[at]) + " trained");
  };

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
  const traced = (at, token, text) => {
    const { traced: address, trace: command } = streams[index.stream[at]], row = index.number[at];
    if (address) return make("a", { href: address + "&row=" + row + (token === null ? "" : "&token=" + token) }, text);
    return token === null && command ? make("code", {}, command + " --row " + row) : token === null ? null : text;
  };
  const tokens = (row, weights, start, end, which) => {
    const head = make("tr", {}, ...["place", "token", "id", "weight", "label", "must predict"].map(name => make("th", { scope: "col" }, name)));
    const body = make("tbody");
    for (let at = start; at < end; at++) {
      const next = at + 1 < row.i.length ? label(row, weights, at + 1) : -100;
      body.append(make("tr", { class: weights !== null && weights[at] > 0 ? "on" : null }, make("td", { class: "n" }, traced(which, at, number(at))),
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
  const show = async at => {
    const row = await rowAt(at), weights = weightsOf(row), panel = $("row");
    if (order[chosen] !== at) return;
    const parts = [make("h3", {}, title(at)), make("p", { class: "dim" }, figures(at) + " · " + number(row.p.length) + (row.p.length === 1 ? " document" : " documents"), " ", traced(at, null, "Trace this row"))];
    if (row.t !== undefined) {
      parts.push(make("div", { class: "doc" }, make("h4", {}, row.p[0][1]), make("p", { class: "flow line", dir: "auto" }, row.t)));
    } else {
      const toggle = (name, on) => { const made = make("button", { type: "button", "aria-pressed": String(asTokens === on) }, name); made.addEventListener("click", () => { asTokens = on; show(at); }); return made; };
      parts.push(make("div", { class: "tools" }, toggle("Text", false), toggle("Tokens and labels", true)));
      row.p.forEach(([start, name, offset, note, both], piece) => {
        const end = piece + 1 < row.p.length ? row.p[piece + 1][0] : row.i.length;
        const about = (note ? note + " · " : "") + number(end - start) + " tokens" + (offset ? ", from its token " + number(offset) : "");
        parts.push(make("section", { class: "doc", "aria-label": name }, make("h4", {}, make("span", { dir: "auto" }, name), make("span", { class: "dim" }, about)),
          (asTokens ? tokens : flow)(row, weights, start, end, at), both ? proof(both) : null));
      });
      if (row.i.length < index.length[at]) parts.push(make("p", { class: "dim" }, "… and " + number(index.length[at] - row.i.length) + " tokens more"));
    }
    panel.replaceChildren(...parts);
    panel.scrollTop = 0;
    panel.querySelector(".hit")?.scrollIntoView({ block: "center" });
    history.replaceState(null, "", "#row=" + index.number[at]);
  };

  /* search, filter, order */
  index.domains.forEach((name, at) => $("domain").append(make("option", { value: at }, name || "–")));
  const apply = async () => {
    const mine = ++search, wanted = $("query").value.trim().toLowerCase(), byId = $("where").value === "id", domain = $("domain").value;
    query = byId ? "" : wanted;
    let found = Array.from({ length: total }, (_, at) => at);
    if (domain !== "") found = found.filter(at => index.domain[at].includes(+domain));
    if (wanted) {
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
  let pending = 0;
  $("query").addEventListener("input", () => { clearTimeout(pending); pending = setTimeout(apply, 200); });
  for (const name of ["where", "domain", "order"]) $(name).addEventListener("change", apply);
  $("filters").addEventListener("submit", event => { event.preventDefault(); apply(); });
  document.addEventListener("keydown", event => {
    const typing = /^(INPUT|SELECT|TEXTAREA)$/.test(document.activeElement?.tagName ?? "");
    if (event.key === "/" && !typing) { event.preventDefault(); $("query").focus(); }
    if (event.key === "Escape" && document.activeElement === $("query")) { $("query").value = ""; apply(); }
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
  const every = await unpack("refused"), STEP = 50;
  let most = STEP;
  [...new Set(every.map(each => each[2]))].sort().forEach(name => $("reason").append(make("option", { value: name }, name)));
  const draw = () => {
    const reason = $("reason").value, wanted = $("refused-query").value.trim().toLowerCase();
    const found = every.filter(each => (!reason || each[2] === reason) && (!wanted || [each[1], each[3], each[4]].some(text => text.toLowerCase().includes(wanted))));
    box.replaceChildren(...found.slice(0, most).map(([store, id, why, detail, payload, length]) => make("details", { class: "refusal" },
      make("summary", {}, make("span", { class: "reason" }, why), " ", make("b", { dir: "auto" }, store + " " + id), " ", make("span", { dir: "auto" }, detail)),
      make("pre", { tabindex: "0", dir: "auto" }, payload + (length > payload.length ? "\n… (" + number(length) + " long)" : "")))));
    $("refused-found").textContent = number(found.length) + (found.length === 1 ? " record" : " records");
    $("more").hidden = found.length <= most;
  };
  for (const [name, event] of [["reason", "change"], ["refused-query", "input"]]) $(name).addEventListener(event, () => { most = STEP; draw(); });
  $("refused-filters").addEventListener("submit", event => event.preventDefault());
  $("more").addEventListener("click", () => { most += STEP; draw(); });
  draw();
};

const fail = error => { document.body.dataset.state = "failed"; $("main").prepend(make("p", { class: "note", role: "alert" }, "This browser cannot show the rows: " + error)); };
Promise.all([browse(), refusals()]).then(() => { document.body.dataset.state = "ready"; }, fail);
})();
