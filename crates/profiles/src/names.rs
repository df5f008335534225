//! Names of attributes that this crate reads or writes: semantic conventions of OpenTelemetry,
//! `docs/general/profiles.md` and the `pprof` and `process` registries.

/// Runtime of a frame: `native`, `go`, `jvm`, `kernel` and so on; on locations.
pub const FRAME_TYPE: &str = "profile.frame.type";
/// The GNU build id of a mapping, in lower-case hexadecimal digits.
pub const BUILD_ID_GNU: &str = "process.executable.build_id.gnu";
/// The Go build id of a mapping.
pub const BUILD_ID_GO: &str = "process.executable.build_id.go";
/// Hash of the beginning and the end of a mapping's file, in 32 lower-case hexadecimal digits.
pub const BUILD_ID_HTLHASH: &str = "process.executable.build_id.htlhash";
/// Keys of build ids, in order of preference.
pub const BUILD_IDS: [&str; 3] = [BUILD_ID_GNU, BUILD_ID_GO, BUILD_ID_HTLHASH];
/// Whether a mapping's locations have functions.
pub const HAS_FUNCTIONS: &str = "pprof.mapping.has_functions";
/// Whether a mapping's locations have file names.
pub const HAS_FILENAMES: &str = "pprof.mapping.has_filenames";
/// Whether a mapping's locations have line numbers.
pub const HAS_LINE_NUMBERS: &str = "pprof.mapping.has_line_numbers";
/// Whether a mapping's locations have inlined frames.
pub const HAS_INLINE_FRAMES: &str = "pprof.mapping.has_inline_frames";
/// Whether several symbols share a location's address, so that no single symbol is certain.
pub const IS_FOLDED: &str = "pprof.location.is_folded";
/// Free text about a profile: a list of strings.
pub const COMMENT: &str = "pprof.profile.comment";
/// URL of a profile's documentation.
pub const DOC_URL: &str = "pprof.profile.doc_url";
/// Frames to drop, as a regular expression.
pub const DROP_FRAMES: &str = "pprof.profile.drop_frames";
/// Frames to keep in spite of `drop_frames`, as a regular expression.
pub const KEEP_FRAMES: &str = "pprof.profile.keep_frames";
/// Name of the profile at its source, such as `heap` or `mutex`; on scopes only. Go's mutex and block profiles have
/// equal sample types and would be added up without it.
pub const PROFILE_NAME: &str = "pprof.profile.name";
/// Default sample type for display; on scopes only.
pub const DEFAULT_SAMPLE_TYPE: &str = "pprof.scope.default_sample_type";
/// Sample types that count from the start of a process, with their units: those of Go's `allocs`, `heap`, `mutex`
/// and `block`.
const CUMULATIVE: [(&str, &str); 4] = [
    ("alloc_objects", "count"),
    ("alloc_space", "bytes"),
    ("contentions", "count"),
    ("delay", "nanoseconds"),
];

/// Whether values count from the start of a process, so that adding two profiles would count values twice. OTLP has had
/// no field for this property since 1.9. The names decide, together with the duration in nanoseconds: a profile with a
/// duration covers only that duration.
pub fn is_cumulative(sample_type: &str, unit: &str, duration: u64) -> bool {
    duration == 0 && CUMULATIVE.contains(&(sample_type, unit))
}

/// Position of each profile of a scope in pprof's list of sample types; on scopes only.
pub const SAMPLE_TYPE_ORDER: &str = "pprof.scope.sample_type_order";

/// Name of CPU profiles at backends.
pub const CPU: &str = "process_cpu";
/// Name of memory profiles at backends.
pub const MEMORY: &str = "memory";
/// Name of profiles of elapsed time at backends.
pub const WALL: &str = "wall";
/// Name of profiles of waiting for mutexes.
pub const MUTEX: &str = "mutex";
/// Name of profiles of blocking operations.
pub const BLOCK: &str = "block";

/// Returns the name under which backends such as Parca and Pyroscope show a profile with this name at its source. The
/// backends' own scrapers and agents set these names.
pub fn at_backends(profile: &str) -> &str {
    match profile {
        "cpu" | "profile" => CPU,
        "heap" => MEMORY,
        profile => profile,
    }
}

/// Returns the name at backends of a profile without a name, by its sample types, with the rules of Pyroscope's server.
/// If no sample type is well known, this is the name of the last one, which pprof shows; empty if all are.
pub fn by_sample_types<'t>(types: impl Iterator<Item = &'t str> + Clone) -> &'t str {
    if types.clone().any(|kind| kind == WALL) {
        return WALL;
    }
    let mut last = "";
    for kind in types {
        let has = |part| kind.contains(part);
        match kind {
            "" => {}
            _ if has("cpu") => return CPU,
            "space" | "objects" => return MEMORY,
            _ if has("alloc_") || has("inuse_") => return MEMORY,
            _ if has("mutex_") => return MUTEX,
            _ if has("block_") => return BLOCK,
            kind => last = kind,
        }
    }
    last
}
