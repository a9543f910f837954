// The right side: what the application stores, drawn anew whenever the server says that it changed.

const LABELS = {
  first_name: "First name", last_name: "Last name", email: "E-mail", phone: "Phone", birth_date: "Date of birth", card: "Card",
  address: "Address", street: "Street", city: "City", tags: "Tags", note: "Note", vip: "VIP",
};
const byId = (id) => document.getElementById(id);
const make = (name, content = {}) => Object.assign(document.createElement(name), content);
let drawn = new Map(); // id -> {text, element}: only contacts that changed are drawn again
let first = true;

function show({ answers, contacts, tokens }) {
  const before = drawn;
  drawn = new Map();
  let marked = 0;
  let values = 0;
  const elements = contacts.map((contact) => {
    const leaves = list(contact).filter(({ value }) => value !== "" && value !== null);
    const places = new Set(tokens[contact.id]);
    const here = leaves.filter(({ place }) => places.has(place)).length;
    marked += here;
    values += leaves.length;
    const text = JSON.stringify([contact, tokens[contact.id]]);
    const known = before.get(contact.id);
    const element = known?.text === text ? known.element : draw(contact.id, leaves, places, here);
    if (known?.text !== text && !first) element.classList.add("fresh");
    drawn.set(contact.id, { text, element });
    return element;
  });
  first = false;
  byId("warning").hidden = answers;
  byId("share").textContent = values > 0 && answers ? `${marked} of ${values} values are tokens` : "";
  place(elements.length > 0 ? elements : [make("p", { className: "empty", textContent: "The application stores nobody yet." })]);
}

function place(elements) {
  const scroll = byId("stored-list");
  for (const child of [...scroll.children]) if (!elements.includes(child)) child.remove();
  elements.forEach((element, at) => {
    if (scroll.children[at] !== element) scroll.insertBefore(element, scroll.children[at] ?? null);
  });
}

// The values of a contact with the JSON Pointer of each, the id left out.
function list(node, place = "", name = "") {
  if (node === null || typeof node !== "object") return name === "id" ? [] : [{ place, name, value: node }];
  return Object.entries(node).flatMap(([key, value]) => list(value, `${place}/${key}`, Array.isArray(node) ? name : key));
}

function draw(id, leaves, places, marked) {
  const article = make("article");
  const head = make("h3", { textContent: `Contact ${id}` });
  head.append(make("span", { textContent: `${marked} of ${leaves.length}` }));
  const lines = make("dl");
  let last = null;
  for (const leaf of leaves) {
    if (last?.name !== leaf.name) {
      last = { name: leaf.name, dd: make("dd") };
      lines.append(make("dt", { textContent: LABELS[leaf.name] ?? leaf.name }), last.dd);
    }
    const token = places.has(leaf.place);
    last.dd.append(make(token ? "mark" : "span", { className: token ? "" : "plain", textContent: String(leaf.value) }));
  }
  article.append(head, lines);
  return article;
}

const live = byId("live");
const events = new EventSource("/events");
events.addEventListener("open", () => { live.textContent = "live"; live.classList.add("on"); });
events.addEventListener("error", () => { live.textContent = "connecting"; live.classList.remove("on"); });
events.addEventListener("message", (event) => show(JSON.parse(event.data)));
