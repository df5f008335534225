//! The protocols of Pyroscope's agents, without HTTP: what `/ingest` and `push.v1.PusherService/Push` contain.
//!
//! Input is untrusted. No decoder recurses, every list has a maximum length, and a result that can be larger than its
//! input takes memory from a [`Permit`](tributary_memory::Permit) before it grows.
//!
//! # Where to start reading
//!
//! - [`ingest`]: the query of `/ingest`; [`name`]: its parameter `name`; [`kinds`]: the names of profiles and sample
//!   types; [`multipart`]: the body of a form.
//! - [`stacks`]: stacks with values, as text; [`trie`] and [`tree`]: the two binary encodings of stacks.
//! - [`push`]: requests of `push.v1`, as protobuf and as JSON; [`labels`]: the labels of a series; [`series`]: requests
//!   made of OTLP profiles.
//! - [`snapshot`]: the labels that the Java agent sends beside a JFR recording.
//!
//! The rules are those of Pyroscope 1.x: its page "Server HTTP API", and the behavior of its server.

pub mod ingest;
pub mod kinds;
pub mod labels;
pub mod multipart;
pub mod name;
pub mod push;
pub mod series;
pub mod snapshot;
pub mod stacks;
pub mod tree;
pub mod trie;
