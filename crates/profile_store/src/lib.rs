//! Stores the recent profiles of a pipeline, and serves queries on them.
//!
//! ```text
//! append -> journal, one sync for all that wait -> requests in memory     (the open window)
//! flush  -> a block: for each series, the merged profile of a window of 10 seconds
//! age    -> blocks of a minute, then of 10 minutes; then they are deleted
//! query  <- the blocks and the open window, merged by `tributary_profiles::Merger`
//! ```
//!
//! # Invariants
//!
//! - When [`ProfileStore::append`] returns, the request is durable and visible to queries. A crash at any step loses no
//!   acknowledged request and counts none twice.
//! - Block files are written once: under a temporary name, then synced, then renamed. A block names the files that it
//!   replaces, so a crash between the rename and their removal is harmless. Sections and indices have checksums. A
//!   damaged file is renamed; a damaged section is left out of results; both are counted.
//! - Appends wait for the disk and for a flush, and never for a query. Queries work on a snapshot. Their memory and
//!   time are bounded by [`QueryLimits`].
//! - Memory and disk are bounded by [`ProfileStoreOptions`]. Above a bound, blocks are compacted early, and then the
//!   oldest blocks are dropped and counted.
//! - Compaction changes the resolution of time only, and removes the heat maps of blocks of 10 minutes.
//!
//! # Design
//!
//! The journal is not a log of `tributary_storage`, which is a queue whose records are read and acknowledged one by
//! one. Here a block replaces the journal with the same number as a whole, so a start needs no positions: a journal
//! without its block is read again.
//!
//! Files are read by plain reads of single sections. A mapping would need unsafe code, because another process may
//! truncate a mapped file.
//!
//! Values are added, as `collector profiles merge` adds them. The sum of gauges, such as memory in use, over time is
//! not a state of the process; divide it by the number of profiles, or select a single window.
//!
//! Samples of the slowest requests cannot be selected: links have ids and no durations of spans.
//!
//! # Example
//!
//! ```
//! use tributary_profile_store::{ProfileStore, ProfileStoreOptions, Query, Zoom};
//!
//! let directory = tempfile::tempdir()?;
//! let (store, _) = ProfileStore::open(ProfileStoreOptions::new(directory.path()))?;
//!
//! // A request of OTLP profiles, here made of folded stacks.
//! let request = tributary_profiles::folded::read("main;parse 3\nmain;write 1\n")?.encode();
//! let now = 1_700_000_000_000_000_000;
//! store.append(request, now)?;
//!
//! let query = Query {
//!     selector: r#"{service_name="unknown_service"}"#.parse()?,
//!     range: 0..u64::MAX,
//!     ..Query::default()
//! };
//! assert_eq!(store.label_values("service_name", &query), ["unknown_service"]);
//! let mut answer = store.merge(&query)?.ok_or("no profiles")?;
//! assert_eq!(answer.folded(), "main;parse 3\nmain;write 1\n");
//! let view = answer.tree()?.view(&Zoom::default(), 1000, [1.0; 2]).ok_or("no such path")?;
//! assert_eq!(view.totals, [4, 0]);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Where to start reading
//!
//! - [`store`] appends and opens; `journal`, `head` and `intake` are the open window; `block` and `format` the files;
//!   `upkeep` flushes, compacts and deletes.
//! - [`query`] has labels, totals and heat maps, [`answer`] merged profiles; [`selector`], [`series`], [`heat`] and
//!   [`budget`] serve both.
//! - Without a store: [`tree`] builds call trees, [`view`] selects the nodes to draw, [`sandwich`] shows callers and
//!   callees, [`table`] has the functions, [`svg`], [`html`] and `speedscope` write pictures and files.

pub mod answer;
mod block;
pub mod budget;
mod disk;
mod error;
mod format;
mod head;
pub mod heat;
pub mod html;
mod intake;
mod journal;
pub mod options;
pub mod query;
pub mod sandwich;
pub mod selector;
pub mod series;
mod settings;
mod speedscope;
pub mod store;
pub mod svg;
pub mod table;
#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;
mod text;
pub mod tree;
mod upkeep;
pub mod view;

pub use self::answer::QueryAnswer;
pub use self::budget::QueryLimits;
pub use self::error::{QueryError, StoreAppendError, StoreOpenError};
pub use self::options::ProfileStoreOptions;
pub use self::query::Query;
pub use self::selector::Selector;
pub use self::store::{ProfileStore, Stats};
pub use self::tree::Tree;
pub use self::view::{FlameView, Zoom};
