// The list of contacts: follows the server, finds by e-mail, opens the form for a new contact, deletes.

import { byId, clearFaults, fillExample, read, sendInPlace } from "./common.js";

const POLL = 2000; // milliseconds between two looks at the server
const shown = new Map(); // id -> {text, element}: only cards that changed are drawn again, so that focus stays
let wanted = "";
let latest = 0; // number of the newest look; slower answers of older ones are dropped

async function refresh() {
  const look = ++latest;
  const address = wanted ? `/api/contacts?email=${encodeURIComponent(wanted)}` : "/api/contacts";
  const answer = await read(address).catch(() => null);
  if (look !== latest) return;
  if (answer) draw(answer.items.reverse());
  const status = answer ? count(answer.items.length) : "The server does not answer. Trying again …";
  if (byId("status").textContent !== status) byId("status").textContent = status;
}

function count(number) {
  const people = number === 1 ? "1 contact" : `${number} contacts`;
  return wanted ? `${people} with this e-mail` : people;
}

function draw(contacts) {
  const list = byId("list");
  const cards = contacts.map(card);
  const kept = new Set(cards);
  for (const [id, { element }] of shown) {
    if (!kept.has(element)) {
      shown.delete(id);
      element.remove();
    }
  }
  cards.forEach((element, place) => {
    if (list.children[place] !== element) list.insertBefore(element, list.children[place] ?? null);
  });
  list.querySelector(".empty")?.remove();
  if (cards.length === 0) list.append(Object.assign(document.createElement("li"), {
    className: "empty", textContent: wanted ? "Nobody has this e-mail." : "No contacts yet. Add the first one.",
  }));
}

function card(contact) {
  const text = JSON.stringify(contact);
  const known = shown.get(contact.id);
  if (known?.text === text) return known.element;
  const element = byId("card-template").content.firstElementChild.cloneNode(true);
  const name = `${contact.first_name} ${contact.last_name}`;
  const link = element.querySelector("h2 a");
  const address = `/contacts/${contact.id}`;
  link.textContent = name;
  link.href = element.querySelector(".edit").href = address;
  element.querySelector(".edit").setAttribute("aria-label", `Edit ${name}`);
  element.querySelector(".vip").hidden = !contact.vip;
  const remove = element.querySelector(".delete");
  remove.setAttribute("aria-label", `Delete ${name}`);
  remove.addEventListener("click", () => askToDelete(address, name));
  describe(element.querySelector("dl"), contact);
  known?.element.replaceWith(element);
  shown.set(contact.id, { text, element });
  return element;
}

function describe(list, contact) {
  const lines = {
    "E-mail": contact.email, Phone: contact.phone, "Date of birth": contact.birth_date, Card: contact.card,
    Address: [contact.address.street, contact.address.city].filter(Boolean).join(", "),
    Tags: contact.tags.join(", "), Note: contact.note,
  };
  for (const [name, value] of Object.entries(lines)) {
    if (!value) continue;
    const line = document.createElement("div");
    line.append(
      Object.assign(document.createElement("dt"), { textContent: name }),
      Object.assign(document.createElement("dd"), { textContent: value }),
    );
    list.append(line);
  }
}

function askToDelete(address, name) {
  const form = byId("delete-form");
  clearFaults(form);
  form.action = `${address}/delete`;
  byId("delete-name").textContent = name;
  byId("delete-dialog").showModal();
}

byId("new").addEventListener("click", () => byId("new-dialog").showModal());
byId("cancel").addEventListener("click", () => byId("new-dialog").close());
byId("keep").addEventListener("click", () => byId("delete-dialog").close());
byId("example").addEventListener("click", () => fillExample(byId("contact-form")));

sendInPlace(byId("contact-form"), () => {
  byId("new-dialog").close();
  byId("contact-form").reset();
  search("");
});
sendInPlace(byId("delete-form"), () => {
  byId("delete-dialog").close();
  refresh();
});

// The address searched for never stands in the address of this page: it would end up in logs and histories.
function search(email) {
  wanted = email;
  byId("wanted").value = email;
  byId("all").hidden = !email;
  refresh();
}
byId("search").addEventListener("submit", (event) => {
  event.preventDefault();
  search(byId("wanted").value.trim());
});
byId("all").addEventListener("click", () => search(""));

refresh();
setInterval(() => { if (!document.hidden) refresh(); }, POLL);
