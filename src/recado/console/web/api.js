// Requests to the API, with the session of this browser. Addresses are relative to the page, whatever its path is.

export class ApiError extends Error {
  constructor(status, reason) {
    super(reason);
    this.status = status;
  }
}

export const session = { user: null, provider: null, tags: [], csrf_token: "", is_monitor: false };
const signedOut = new Set();
let tellReach = () => {};

// Call a function with "live" when the node answers, and "lost" when it does not.
export function onReach(listener) {
  tellReach = listener;
}

export function onSignedOut(listener) {
  signedOut.add(listener);
  return () => signedOut.delete(listener);
}

export function endSession() {
  Object.assign(session, { user: null, tags: [], csrf_token: "" });
  for (const each of signedOut) each();
}

// `at("queues", vhost, name)` is `api/queues/%2F/orders`.
export function at(...segments) {
  return `api/${segments.map((each) => encodeURIComponent(each)).join("/")}`;
}

export async function request(method, path, body, options = {}) {
  const headers = { "x-csrf-token": session.csrf_token || "none", ...options.headers };
  if (body !== undefined) headers["content-type"] = "application/json";
  let response;
  try {
    response = await fetch(path, {
      method,
      headers,
      body: body === undefined ? undefined : typeof body === "string" ? body : JSON.stringify(body),
      signal: options.signal,
      credentials: "same-origin",
    });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    tellReach("lost");
    throw new ApiError(0, "the node does not answer");
  }
  tellReach("live");
  const isJson = (response.headers.get("content-type") || "").startsWith("application/json");
  if (response.ok) return isJson ? response.json() : response.text();
  const answer = isJson ? await response.json() : {};
  if (response.status === 401 && answer.error === "not_signed_in" && path !== "api/session") endSession();
  throw new ApiError(response.status, describe(response.status, answer));
}

function describe(status, answer) {
  const reason = answer.reason ?? answer.error;
  if (typeof reason === "string" && reason) return reason;
  return reason ? JSON.stringify(reason) : `the node answered ${status}`;
}

export const get = (path, options) => request("GET", path, undefined, options);
export const put = (path, body) => request("PUT", path, body);
export const post = (path, body) => request("POST", path, body);
export const remove = (path, options) => request("DELETE", path, undefined, options);

export async function loadSession() {
  Object.assign(session, await get("api/session"));
  return session.user !== null;
}

export async function signIn(username, password) {
  Object.assign(session, await post("api/session", { username, password }));
}

export async function signOut() {
  try {
    await remove("api/session");
  } finally {
    endSession();
  }
}

export const isAdministrator = () => session.tags.includes("administrator");
export const isPolicymaker = () => isAdministrator() || session.tags.includes("policymaker");
