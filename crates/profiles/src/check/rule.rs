//! Rules of the checker.

/// Severity of a violation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Severity {
    /// The specification says MUST, or readers in use refuse the message.
    Error,
    /// The specification says SHOULD, or some readers lose information.
    Warning,
}

macro_rules! rules {
    ($($(#[doc = $doc:literal])+ $rule:ident $name:literal $severity:ident,)+) => {
        /// A rule for profiles. Sources: `profiles.proto` and `common.proto` of OTLP 1.10, the
        /// specification's `mappings.md` and `pprof.md`, the semantic conventions.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Rule {
            $($(#[doc = $doc])+ $rule,)+
        }

        impl Rule {
            /// All rules.
            pub const ALL: &'static [Rule] = &[$(Rule::$rule,)+];

            /// Short name, for display and scripts.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Rule::$rule => $name,)+
                }
            }

            /// Severity of a violation.
            pub const fn severity(self) -> Severity {
                match self {
                    $(Rule::$rule => Severity::$severity,)+
                }
            }
        }
    };
}

rules! {
    /// Every table begins with its zero value. A link of zeros counts as the zero value.
    ZeroValue "zero-value" Error,
    /// Every index is within its table.
    IndexOutOfRange "index-out-of-range" Error,
    /// Keys are unique in a list of attribute indices.
    DuplicateKey "duplicate-attribute-key" Error,
    /// Keys are unique in the attributes of a resource or scope, and in a list of keys and values.
    DuplicateKeyValue "duplicate-key-value" Error,
    /// The key of an attribute is not empty.
    EmptyKey "empty-attribute-key" Error,
    /// An attribute has a key or a reference to a key, not both.
    KeyAndReference "key-and-reference" Error,
    /// References to strings expand to at most the maximum size of a message.
    Expansion "reference-expansion" Error,
    /// A sample has at least one value or timestamp.
    NoObservations "no-observations" Error,
    /// If a sample has values and timestamps, their numbers are equal.
    UnequalObservations "unequal-observations" Error,
    /// A profile id is empty or has 16 bytes that are not all zero.
    ProfileId "profile-id" Error,
    /// The original payload and its format are both present, or both missing.
    OriginalPayload "original-payload" Error,
    /// A function has a name, a system name or a file name.
    NamelessFunction "nameless-function" Error,
    /// Lines, columns and periods are not negative.
    NegativeNumber "negative-number" Error,
    /// A mapping starts before it ends, or has no addresses at all.
    MappingRange "mapping-range" Error,
    /// A link has a trace id of 16 bytes and a span id of 8 bytes.
    LinkLength "link-length" Error,
    /// Attributes `pprof.scope.*` are on scopes only.
    ScopeOnly "scope-only-attribute" Error,
    /// The ids of a link are not all zero.
    ZeroLinkId "zero-link-id" Warning,
    /// An attribute of the semantic conventions has the defined type.
    AttributeType "attribute-type" Warning,
    /// A mapping has a build id, so that the next hop can symbolize its addresses.
    BuildIdMissing "build-id-missing" Warning,
    /// GNU build ids and htlhashes are lower-case hexadecimal digits; an htlhash has 32.
    BuildIdFormat "build-id-format" Warning,
    /// The address of a location is within its mapping.
    AddressOutsideMapping "address-outside-mapping" Warning,
    /// Timestamps are within the time of the profile, its end excluded.
    TimestampOutsideProfile "timestamp-outside-profile" Warning,
    /// The end of a profile, in nanoseconds, fits in 64 bits.
    TimeOverflow "time-overflow" Warning,
    /// All samples of a profile have the same kind of observations, and one value if they have no timestamps.
    SampleShape "sample-shape" Warning,
    /// No two samples of a profile have the same stack, attributes, link and kind of observations.
    DuplicateSample "duplicate-sample" Warning,
    /// No two entries of a table are equal.
    DuplicateEntry "duplicate-entry" Warning,
    /// Every entry of a table except the first is referred to.
    Orphan "orphan" Warning,
    /// Lists do not contain index 0, and lines have a function unless their code is unknown.
    NullInList "null-in-list" Warning,
    /// Resources, scopes and profiles are not empty.
    Empty "empty" Warning,
    /// The sample type of a profile has a name.
    SampleTypeMissing "sample-type-missing" Warning,
    /// The period type of a profile has a name.
    PeriodTypeMissing "period-type-missing" Warning,
}

impl Rule {
    /// Whether profiles written by this program satisfy the rule for any input.
    pub const fn is_structural(self) -> bool {
        matches!(
            self,
            Rule::ZeroValue
                | Rule::IndexOutOfRange
                | Rule::DuplicateKey
                | Rule::KeyAndReference
                | Rule::NoObservations
                | Rule::UnequalObservations
                | Rule::ProfileId
                | Rule::OriginalPayload
                | Rule::LinkLength
                | Rule::DuplicateEntry
                | Rule::Orphan
        )
    }
}
