// Requests to the collector. Addresses are relative, because the page may be served below a prefix.

/** A request without an answer, with what to do about it. `status` is 0 if there was no response. */
export class AskError extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

const HINTS = new Map([
  [401, "The collector wants authentication. Reload the page to enter a user name and a password, or open it through a proxy that adds the token."],
  [403, "The collector refuses this client. Check the settings of the extension console."],
  [404, "The collector does not serve this path. Check the prefix of the proxy in front of it."],
  [502, "The proxy does not reach the collector."],
  [504, "The proxy does not reach the collector in time."],
]);

/** Seconds after which a request has failed: the server ends its own ones after 10. */
const PATIENCE = 15;
/** Number of attempts while the server is busy. */
const ATTEMPTS = 4;

const errorOf = async (response) => {
  const text = await response.text().catch(() => "");
  let said = "";
  try {
    said = JSON.parse(text).error ?? "";
  } catch {
    // An answer of a proxy: its page says less than its status.
  }
  const hint = response.status === 401 || !said ? HINTS.get(response.status) ?? "" : "";
  return new AskError(response.status, [said, hint].filter(Boolean).join(". ") || `The answer has the status ${response.status}.`);
};

const once = async (address, { signal, body }) => {
  const patience = AbortSignal.timeout(PATIENCE * 1000);
  const options = { cache: "no-store", signal: signal ? AbortSignal.any([signal, patience]) : patience };
  if (body) Object.assign(options, { method: "POST", body });
  try {
    const response = await fetch(address, options);
    if (!response.ok) throw await errorOf(response);
    return response;
  } catch (error) {
    if (error instanceof AskError || signal?.aborted) throw error;
    throw new AskError(0, "The collector does not answer. Check that it runs and that this address is right.");
  }
};

const later = (millis) => new Promise((resolve) => setTimeout(resolve, millis));

/** Returns the address of a path below `api/v1/`. Parameters that are null or undefined are left out. */
export const address = (path, params = {}) => {
  const given = Object.entries(params).filter(([, value]) => value !== undefined && value !== null);
  const text = new URLSearchParams(given).toString();
  return `api/v1/${path}${text ? `?${text}` : ""}`;
};

/** Asks for a path below `api/v1/`; waits and asks again while the server is busy. */
export const ask = async (path, params, options = {}) => {
  for (let attempt = 1; ; attempt += 1) {
    try {
      return await once(address(path, params), options);
    } catch (error) {
      if (error.status !== 503 || attempt === ATTEMPTS) throw error;
      await later(1000);
    }
  }
};

export const askJson = async (path, params, options) => (await ask(path, params, options)).json();
