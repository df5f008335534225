//! The process-wide memory budget, in bytes.
//!
//! Every batch of telemetry in memory is covered by a [`Permit`]. A receiver takes the permit as it reads a request,
//! and the permit travels with the data.
//!
//! # Invariants
//!
//! * The bytes of all permits never exceed the limit, except for one record per stored queue (see [`StoredQueue`]).
//! * Taking a permit never waits. A component without a permit refuses the data.
//! * Up to a quarter of the limit is reserved for the read-ahead of stored queues, so that they can drain under load.
//! * Memory of clients without permits, such as open connections, is counted in [`clients`].
//!
//! # Example
//!
//! ```
//! use tributary_memory::Budget;
//!
//! let budget = Budget::new(1 << 20);
//! let mut request = budget.acquire(600 << 10)?;
//! assert!(budget.acquire(600 << 10).is_err());
//! request.resize(100 << 10)?;
//! assert!(budget.acquire(600 << 10).is_ok());
//! drop(request);
//! assert_eq!(budget.used(), 0);
//! # Ok::<(), tributary_memory::NoRoom>(())
//! ```
//!
//! # Where to start reading
//!
//! [`Budget::acquire`] and [`Permit`], then [`Budget::begin`] for requests that are still arriving.

mod budget;
pub mod clients;
mod machine;
mod unfinished;

pub use self::budget::{Budget, NoRoom, Permit, Permits, StoredQueue};
pub use self::machine::machine_memory;
pub use self::unfinished::{UnfinishedPermit, UnfinishedShare};
