//! The way of profiles into a pipeline, shared by the receivers of profiles in other formats than OTLP.
//!
//! A file becomes one OTLP profile for each of its sample types, in one scope with the name that backends show for
//! such a profile. The scope's attribute `pprof.profile.name` is the kind of the profile, if known. Profiles have ids,
//! so that duplicates are recognized without reading the content. A file is acknowledged only after the pipeline has
//! accepted it, and nothing is buffered.

mod convert;
mod ids;
mod intake;
mod origin;
mod repairs;
#[cfg(test)]
pub(crate) mod testing;

pub(crate) use self::convert::{
    BATCH_BYTES, Converted, Refused, Rules, SCOPE_BYTES, complete, decode, inflated, read,
};
pub(crate) use self::ids::of_file;
pub(crate) use self::intake::{Accepted, Intake, ReceivedBytes, on_a_turn};
pub(crate) use self::origin::{Origin, SERVICE_NAME, Subject, text};
