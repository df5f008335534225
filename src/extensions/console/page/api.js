// Requests to the collector. Addresses are relative: the page may be served below a prefix.

const failure = (status, message) => Object.assign(new Error(message), { status });

const HINTS = {
	0: "The collector does not answer. Check that it runs at this address.",
	401: "The collector wants authentication. Reload the page to log in, or use a proxy that adds a token.",
};
/** Milliseconds. The server ends requests after 10 s. */
const PATIENCE = 15000;
const ATTEMPTS = 4;

const errorOf = async (response) => {
	// The page of a proxy says less than its status.
	const said = response.status === 401 ? null : await response.json().catch(() => null);
	return failure(response.status, said?.error ?? HINTS[response.status] ?? `The server answers with status ${response.status}.`);
};

const once = async (url, { signal, body }) => {
	const patience = AbortSignal.timeout(PATIENCE);
	const options = { cache: "no-store", signal: signal ? AbortSignal.any([signal, patience]) : patience };
	const response = await fetch(url, body ? { ...options, method: "POST", body } : options).catch((error) => {
		throw signal?.aborted ? error : failure(0, HINTS[0]);
	});
	if (!response.ok) throw await errorOf(response);
	return response;
};

export const address = (path, params = {}) => {
	const given = Object.entries(params).filter(([, value]) => value !== null);
	return `api/v1/${path}?${new URLSearchParams(given)}`;
};

/** Asks for a path below `api/v1/`, again while the server is busy. */
export const ask = async (path, params, options = {}) => {
	for (let attempt = 1; ; attempt += 1) {
		try {
			return await once(address(path, params), options);
		} catch (error) {
			if (error.status !== 503 || attempt === ATTEMPTS) throw error;
			await new Promise((resolve) => setTimeout(resolve, 1000));
		}
	}
};

export const askJson = async (path, params, options) => (await ask(path, params, options)).json();
