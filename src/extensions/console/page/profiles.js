// Placeholder page, until the queries are here.
export const create = (root) => ({ show() { root.textContent = "No profiles yet."; }, hide() {}, update() {}, redraw() {}, visible() {} });
