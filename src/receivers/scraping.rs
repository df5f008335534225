//! Scraping of servers over HTTP: discovery, schedules and the client, for receivers that scrape.

pub(super) mod client;
pub(super) mod dns_sd;
pub(super) mod file_sd;
pub(super) mod found;
pub(super) mod schedule;
pub(super) mod scheme;
