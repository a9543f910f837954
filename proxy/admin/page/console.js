// The console: asks /api/rules… of the listener that it comes from, and writes what it is told as text.
"use strict";

const byId = (id) => document.getElementById(id);
const texts = new Map(); // of the rule files, by name, as they may have been changed here
let files = {}; // as the instance has them
let token = ""; // of an operator; kept nowhere else

function element(name, text = "", kind = "") {
  const made = document.createElement(name);
  made.textContent = text;
  made.className = kind;
  return made;
}

async function ask(path, question) {
  const headers = token ? { Authorization: `Bearer ${token}` } : {};
  const options = question === undefined ? { headers } : {
    method: "POST", headers: { ...headers, "Content-Type": "application/json" }, body: JSON.stringify(question),
  };
  const answer = await fetch(`api/rules${path}`, options);
  const data = await answer.json();
  if (answer.status === 401 || answer.status === 403) byId("login").hidden = false;
  if (!answer.ok) throw new Error(data.detail || data.title || `The instance answers ${answer.status}.`);
  byId("login").hidden = true;
  return data;
}

const counted = (count, noun) => `${count} ${noun}${count === 1 ? "" : "s"}`;
const changed = () => Object.fromEntries([...texts].filter(([name, text]) => text !== files[name]));

// ---------------------------------------------------------------- what is in force

async function showRules() {
  const rules = await ask("");
  const line = byId("version");
  line.replaceChildren(element("span", `Rules ${rules.version}: ${counted(rules.endpoints.length, "application")}, ${counted(rules.operations.length, "operation")}. `));
  if (rules.fault) line.append(element("strong", `The files in place are not in force: ${rules.fault}`, "bad"));
  byId("warnings").hidden = !rules.warnings.length;
  byId("warned").textContent = counted(rules.warnings.length, "warning");
  byId("warnings").querySelector("ul").replaceChildren(...rules.warnings.map((text) => element("li", text)));
  files = rules.files;
  const kept = changed();
  for (const [name, text] of Object.entries(files)) if (!(name in kept)) texts.set(name, text);
  const chooser = byId("file");
  const chosen = chooser.value;
  chooser.replaceChildren(...[...texts.keys(), "new.yaml"].map((name) => new Option(name)));
  if (texts.has(chosen)) chooser.value = chosen;
  byId("roles").replaceChildren(...rules.roles.map((role) => new Option(role)));
  showText();
}

// ---------------------------------------------------------------- coverage

const STATES = {
  unknown: ["no rule", "bad"], parameter: ["parameter or member without rule", "warn"],
  ruled: ["protected", "good"], passed: ["passes", "soft"],
};

function coverageRows(data) {
  const places = (one) => Object.entries(one.places).map(([place, kinds]) => `${place}: ${kinds.join(", ")}`).join("; ");
  return [
    ...data.unknown.map((one) => ["unknown", one.endpoint, `${one.method} ${one.path}`, places(one) || one.suspected.join(", "), one]),
    ...data.parameters.map((one) => ["parameter", one.endpoint, `${one.match}, ${one.place} ${one.parameter}`, one.suspected.join(", "), one]),
    ...data.ruled.map((one) => ["ruled", one.endpoint, one.match, "", one]),
    ...data.passed.map((one) => ["passed", one.endpoint, one.match, "", one]),
  ];
}

async function showCoverage() {
  const data = await ask("/coverage");
  const wanted = new Set([...byId("filters").querySelectorAll("input:checked")].map((box) => box.value));
  const rows = coverageRows(data);
  byId("covered").replaceChildren(...rows.filter(([state]) => wanted.has(state)).map(([state, endpoint, request, kinds, one]) => {
    const row = document.createElement("tr");
    const [words, tone] = STATES[state];
    const about = element("td", request, "request");
    if (one.perhaps) about.append(element("span", ` perhaps ${one.perhaps} by now`, "soft"));
    if (state === "unknown" && one.path.startsWith("/")) {
      const button = element("button", "Suggest a rule", "quiet small");
      button.addEventListener("click", () => suggest(one));
      about.append(" ", button);
    }
    row.append(
      element("td", words, `state ${tone}`), element("td", endpoint), about,
      element("td", kinds, kinds ? "suspected warn" : "suspected"), element("td", one.since ? one.since.replace("T", " ").replace("Z", "") : "never", "since"),
      element("td", String(one.count), "count"),
    );
    return row;
  }));
  byId("numbers").replaceChildren(...Object.entries(STATES).map(([state, [words, tone]]) => {
    const part = element("span");
    part.append(element("strong", String(rows.filter((row) => row[0] === state).length), tone), ` ${words}`);
    return part;
  }));
}

async function suggest(one) {
  const heading = byId("suggested");
  heading.textContent = `A first rule for ${one.method} ${one.path}`;
  byId("suggestion").hidden = false;
  try {
    byId("proposal").textContent = (await ask("/learn", { endpoint: one.endpoint, method: one.method, path: one.path })).rules;
  } catch (error) {
    byId("proposal").textContent = error.message;
  }
  heading.scrollIntoView({ block: "start" });
  heading.focus({ preventScroll: true });
}

// The clipboard is there on secure pages alone; elsewhere the text is selected, to be copied by hand.
async function copy(text, shown, button) {
  const words = button.textContent;
  try {
    await navigator.clipboard.writeText(text);
    button.textContent = "Copied";
  } catch {
    if (shown.select) shown.select(); else getSelection().selectAllChildren(shown);
    button.textContent = "Selected: press Ctrl+C";
  }
  setTimeout(() => { button.textContent = words; }, 3000);
}

// ---------------------------------------------------------------- drafts

function showText() {
  byId("text").value = texts.get(byId("file").value) ?? "";
  showLines();
}

function showLines() {
  const count = byId("text").value.split("\n").length;
  byId("lines").textContent = Array.from({ length: count }, (_, index) => index + 1).join("\n");
  byId("lines").scrollTop = byId("text").scrollTop;
}

function goTo(name, line) {
  if (!texts.has(name)) return;
  byId("file").value = name;
  showText();
  const area = byId("text");
  const start = area.value.split("\n").slice(0, line - 1).reduce((sum, one) => sum + one.length + 1, 0);
  const end = area.value.indexOf("\n", start);
  area.focus();
  area.setSelectionRange(start, end < 0 ? area.value.length : end);
  area.scrollTop = Math.max(0, (line - 5) * 21);
  showLines();
}

function list(items) {
  const made = document.createElement("ul");
  made.append(...items);
  return made;
}

function faultItem(fault) {
  const [name, line] = fault.source.split(":");
  const item = element("li");
  const link = element("a", fault.source);
  link.href = "#";
  link.addEventListener("click", (event) => { event.preventDefault(); goTo(name, Number(line)); });
  item.append(link, ` ${fault.text}`);
  return item;
}

const RESULTS = {
  check: (data) => [
    element("p", `In order: ${counted(data.endpoints.length, "application")}, ${counted(data.operations.length, "operation")}, ${counted(data.tests, "test")}.`, "good"),
    list([...data.warnings.map((text) => element("li", `Warning: ${text}`, "warn")), ...data.hints.map((text) => element("li", `Hint: ${text}`))]),
  ],
  test: (data) => [
    element("p", `${data.tests.filter((one) => !one.problems.length).length} of ${counted(data.tests.length, "test")} passed.`, data.ok ? "good" : "bad"),
    list(data.tests.flatMap((one) => [
      element("li", `${one.problems.length ? "fails" : "holds"}: ${one.name}`, one.problems.length ? "bad" : ""),
      ...one.problems.map((text) => element("li", text, "soft")),
    ])),
  ],
  diff: (data) => [["loses", "lose protection", "bad"], ["gains", "gain protection", "good"], ["changes", "are different otherwise", "soft"]].flatMap(
    ([effect, words, tone]) => [element("p", `${data[effect].length} ${words}`, data[effect].length ? tone : "soft"),
      list(data[effect].map((one) => element("li", `${one.subject}: ${one.text}`)))],
  ),
};

async function askDraft(what, button) {
  const result = byId("result");
  button.disabled = true;
  result.replaceChildren(element("p", "Working …", "soft"));
  try {
    const data = await ask(`/${what}`, { files: changed() });
    result.replaceChildren(...(data.faults
      ? [element("p", `${counted(data.faults.length, "fault")}; a file loads whole or not at all.`, "bad"), list(data.faults.map(faultItem))]
      : RESULTS[what](data)));
  } catch (error) {
    result.replaceChildren(element("p", error.message, "bad"));
  }
  button.disabled = false;
}

// ---------------------------------------------------------------- one request

async function explain() {
  const question = { files: changed(), method: byId("method").value, path: byId("path").value, host: byId("host").value, role: byId("role").value };
  try {
    const data = await ask("/explain", question);
    byId("explained").textContent = data.faults ? data.faults.map((one) => `${one.source} ${one.text}`).join("\n") : data.text;
  } catch (error) {
    byId("explained").textContent = error.message;
  }
}

// ---------------------------------------------------------------- the page

function choose(tab) {
  for (const button of document.querySelectorAll("[data-tab]")) {
    const chosen = button.dataset.tab === tab;
    button.setAttribute("aria-pressed", String(chosen));
    byId(button.dataset.tab).hidden = !chosen;
  }
}

async function refresh() {
  try {
    await showRules();
    await showCoverage();
  } catch (error) {
    byId("version").replaceChildren(element("span", error.message, "bad"));
  }
}

for (const button of document.querySelectorAll("[data-tab]")) button.addEventListener("click", () => choose(button.dataset.tab));
for (const button of document.querySelectorAll("[data-ask]")) button.addEventListener("click", () => askDraft(button.dataset.ask, button));
byId("filters").addEventListener("change", refresh);
byId("file").addEventListener("change", showText);
byId("text").addEventListener("input", () => { texts.set(byId("file").value, byId("text").value); showLines(); });
byId("text").addEventListener("scroll", showLines);
byId("copy").addEventListener("click", () => copy(byId("text").value, byId("text"), byId("copy")));
byId("take").addEventListener("click", () => copy(byId("proposal").textContent, byId("proposal"), byId("take")));
byId("close").addEventListener("click", () => { byId("suggestion").hidden = true; });
byId("reset").addEventListener("click", () => { texts.clear(); byId("result").replaceChildren(); refresh(); });
byId("explain").addEventListener("submit", (event) => { event.preventDefault(); explain(); });
byId("login").addEventListener("submit", (event) => { event.preventDefault(); token = byId("token").value.trim(); byId("token").value = ""; refresh(); });
setInterval(() => { if (!document.hidden && !byId("coverage").hidden) refresh(); }, 5000);
refresh();
