//! Selection of telemetry by its properties: the `include` and `exclude` of `attributes` and
//! `filter`.

mod config;
mod matcher;

pub use self::config::{
    LibraryConfig, MatchAttribute, MatchConfig, MatchType, RegexpCache, SeverityConfig,
};
pub(super) use self::matcher::{Choice, Matcher, Selecting};
