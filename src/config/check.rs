//! What must hold between the parts of a configuration.

use super::assemble::Facts;
use super::report::Report;

pub(super) fn check(facts: &Facts, report: &mut Report) {
    let _ = (facts, report);
}
