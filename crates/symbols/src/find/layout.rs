//! Names of files below a directory or a prefix, by build id.
//!
//! | path | what |
//! |---|---|
//! | `.build-id/ab/cdef.debug`, `ab/cdef.debug` | the debug information of `abcdef`: GDB, distributions, `symbol_upload` |
//! | `.build-id/ab/cdef`, `ab/cdef` | the binary |
//! | `abcdef/debuginfo`, `abcdef/executable` | the same, as debuginfod's clients keep it |

use crate::build_id::BuildId;

pub(super) fn debug_information(id: &BuildId) -> [String; 3] {
    names(id, ".debug", "debuginfo")
}

pub(super) fn binary(id: &BuildId) -> [String; 3] {
    names(id, "", "executable")
}

fn names(id: &BuildId, suffix: &str, kept_as: &str) -> [String; 3] {
    let id = id.to_string();
    let (first, rest) = id.split_at(2);
    [
        format!(".build-id/{first}/{rest}{suffix}"),
        format!("{first}/{rest}{suffix}"),
        format!("{id}/{kept_as}"),
    ]
}
