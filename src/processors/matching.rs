//! Selection of telemetry by its properties: the `include` and `exclude` of `attributes` and
//! `filter`.

mod config;
mod literal;
mod matcher;

pub use self::config::{
    LibraryConfig, MatchAttribute, MatchConfig, MatchType, RegexpCache, SeverityConfig,
};
pub use self::literal::Literal;
pub(super) use self::matcher::{Choice, Matcher, Selecting, Texts};
