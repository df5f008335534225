//! The program: command line, lifecycle of the process, and construction of the component graph from a configuration.

pub mod allocator;
mod builder;
pub mod cli;
pub mod code_pages;
pub mod config;
#[cfg(test)]
mod dashboards;
pub mod graph;
pub mod open_files;
mod own_telemetry;
mod reference;
pub mod service;
