// Requests by HTTP: the session, and what is loaded on demand. Addresses are relative to the page.
import { sentence } from "./format.js";

export class ApiError extends Error {
  constructor(status, reason) {
    super(reason);
    this.status = status;
  }
}

async function request(method, path, body) {
  let response;
  try {
    response = await fetch(path, {
      method,
      headers: body === undefined ? {} : { "content-type": "application/json" },
      body: body === undefined ? undefined : JSON.stringify(body),
      credentials: "same-origin",
    });
  } catch {
    throw new ApiError(0, "The server does not answer.");
  }
  const isJson = (response.headers.get("content-type") || "").startsWith("application/json");
  const answer = isJson ? await response.json() : {};
  if (response.ok) return answer;
  throw new ApiError(response.status, sentence(answer.reason ?? `the server answered ${response.status}`));
}

const query = (values) => new URLSearchParams(Object.entries(values).filter(([, value]) => value != null)).toString();

export async function loadSession() {
  try {
    return (await request("GET", "api/session")).me ?? null;
  } catch (error) {
    if (error.status === 401) return null;
    throw error;
  }
}

export const signIn = async (name) => (await request("POST", "api/session", { name })).me;
export const signOut = () => request("DELETE", "api/session");
export const createLink = async () => (await request("POST", "api/link", {})).url;
export const loadHistory = (values) => request("GET", `api/history?${query(values)}`);
export const search = (values) => request("GET", `api/search?${query(values)}`);
