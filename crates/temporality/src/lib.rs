//! Conversion of cumulative sums and histograms to deltas, in encoded form.
//!
//! [`DeltaTracker`] keeps the last point of each series. A conversion replaces each point by its difference from that
//! point. If the next stage refuses the converted request, [`Tentative`] restores the previous state, so that the retry
//! of the request yields the same deltas.
//!
//! Results equal those of the Collector's processor `cumulativetodelta`.

mod buckets;
mod convert;
mod identity;
mod kinds;
mod point;
mod tracker;
mod wire;

pub use convert::DeltaRequest;
pub use kinds::{CumulativeKind, DropCause};
pub use tracker::{DeltaTracker, FirstPoint, Tentative, TrackerLimits};

#[cfg(test)]
mod tests;
