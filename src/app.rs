//! The program: command line, life of the process, and the way from a configuration to a graph of components.

pub mod allocator;
mod builder;
pub mod cli;
pub mod code_pages;
pub mod config;
#[cfg(test)]
mod dashboards;
pub mod graph;
pub mod open_files;
mod reference;
pub mod service;
