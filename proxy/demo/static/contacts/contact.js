// The page of one contact: fills the form from the interface, saves, deletes.

import { byId, clearFaults, read, sendInPlace } from "./common.js";

const form = byId("contact-form");
const say = (text) => { byId("status").textContent = text; };

async function load(message) {
  try {
    const contact = await read(`/api/contacts/${byId("main").dataset.id}`);
    const values = { ...contact, ...contact.address };
    for (const input of form.querySelectorAll("input:not([type=checkbox]), textarea")) input.value = values[input.name] ?? "";
    form.elements.vip.checked = contact.vip;
    byId("title").textContent = document.title = `${contact.first_name} ${contact.last_name}`;
    say(message);
  } catch (fault) {
    say(fault.message === "404" ? "There is no such contact any more." : "The server does not answer. Load the page again.");
  }
}

byId("cancel").addEventListener("click", () => location.assign("/contacts"));
byId("example").remove(); // there is someone to edit already
sendInPlace(form, () => load("Saved."));
sendInPlace(byId("delete-form"), (address) => location.assign(address));
form.addEventListener("input", () => { clearFaults(form); say(""); });
load("");
