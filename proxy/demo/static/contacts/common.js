// What the list and the page of one contact share: reading the interface, sending forms, showing faults.

export const byId = (id) => document.getElementById(id);

export async function read(address) {
  const answer = await fetch(address, { headers: { Accept: "application/json" }, cache: "no-store" });
  if (!answer.ok) throw new Error(String(answer.status));
  return answer.json();
}

// Sends a form as a browser would, and goes where the redirect says; faults are shown beside their fields.
export function sendInPlace(form, done) {
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    const button = form.querySelector("button[type=submit]");
    button.disabled = true;
    clearFaults(form);
    try {
      const answer = await fetch(form.action, {
        method: "POST",
        body: new URLSearchParams(new FormData(form)),
        headers: { Accept: "application/json" },
      });
      if (answer.ok) done(new URL(answer.url));
      else await refused(form, answer);
    } catch {
      tell(form, "The server did not answer. Nothing was saved; please try again.");
    } finally {
      button.disabled = false;
    }
  });
}

async function refused(form, answer) {
  let problem = {};
  try {
    problem = await answer.json();
  } catch {
    // not an answer of ours: the status is all there is to tell
  }
  const faults = Array.isArray(problem.errors) ? problem.errors : [];
  const beside = faults.filter((fault) => markFault(form, fault));
  if (beside.length > 0) form.querySelector("[aria-invalid=true]").focus();
  else tell(form, problem.detail || problem.title || `The server answered with status ${answer.status}.`);
}

function markFault(form, { field, message }) {
  const input = form.elements[field];
  const place = byId(`${field}-fault`);
  if (!input || !place) return false;
  input.setAttribute("aria-invalid", "true");
  place.textContent = `This ${message}.`;
  return true;
}

export function clearFaults(form) {
  for (const input of form.querySelectorAll("[aria-invalid]")) input.removeAttribute("aria-invalid");
  for (const place of form.querySelectorAll(".fault")) place.textContent = "";
  form.querySelector(".problem").hidden = true;
}

export function tell(form, text) {
  const place = form.querySelector(".problem");
  place.textContent = text;
  place.hidden = false;
  place.focus();
}

// Invented people; the card numbers are the usual test numbers.
const PEOPLE = [
  ["Ingrid", "Åkesson", "ingrid.akesson@example.com", "+46 70 174 06 21", "1984-03-09", "4242424242424242", "Storgatan 14", "Lund"],
  ["Mateo", "Fernández", "mateo.fernandez@example.org", "+34 600 000 312", "1991-11-23", "5555555555554444", "Calle Mayor 8", "Madrid"],
  ["Amina", "Diallo", "amina.diallo@example.net", "+33 1 99 00 41 77", "1978-06-30", "4111111111111111", "12 rue des Lilas", "Lyon"],
  ["Jonas", "Weber", "jonas.weber@example.com", "+49 30 23125 014", "1969-01-17", "5105105105105100", "Lindenallee 3", "Leipzig"],
  ["Chiara", "Rossi", "chiara.rossi@example.org", "+39 06 5550 1933", "1996-08-05", "4012888888881881", "Via Roma 21", "Torino"],
];

export function fillExample(form) {
  const names = ["first_name", "last_name", "email", "phone", "birth_date", "card", "street", "city"];
  const person = PEOPLE[Math.floor(Math.random() * PEOPLE.length)];
  names.forEach((name, place) => { form.elements[name].value = person[place]; });
  form.elements.note.value = "Prefers to be called in the morning.";
  clearFaults(form);
}
