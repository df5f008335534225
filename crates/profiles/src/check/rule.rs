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
        /// A rule for profiles: of `profiles.proto` and `common.proto` of OTLP 1.10, of the specification's
        /// `mappings.md` and `pprof.md`, of the semantic conventions.
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
    /// Every table has an element 0, and that is the zero value. A link of zeros only is one, too.
    ZeroValue "zero-value" Error,
    /// Every index is in its table.
    IndexOutOfRange "index-out-of-range" Error,
    /// No key occurs twice in one list of attribute indices.
    DuplicateKey "duplicate-attribute-key" Error,
    /// No key occurs twice in the attributes of a resource or a scope, or in a list of keys and values.
    DuplicateKeyValue "duplicate-key-value" Error,
    /// An attribute has a key.
    EmptyKey "empty-attribute-key" Error,
    /// A key is either there or referred to, not both.
    KeyAndReference "key-and-reference" Error,
    /// References do not stand for more strings than a message may have.
    Expansion "reference-expansion" Error,
    /// A sample has a value or a timestamp at least.
    NoObservations "no-observations" Error,
    /// If a sample has values and timestamps, it has as many of these as of those.
    UnequalObservations "unequal-observations" Error,
    /// A profile's id has 16 bytes that are not all zero, or none.
    ProfileId "profile-id" Error,
    /// The original payload and its format are both there, or neither.
    OriginalPayload "original-payload" Error,
    /// A function has a name, a system name or a file name at least.
    NamelessFunction "nameless-function" Error,
    /// Lines, columns and periods are not negative.
    NegativeNumber "negative-number" Error,
    /// A mapping starts before it ends, or has no addresses at all.
    MappingRange "mapping-range" Error,
    /// A link has a trace id of 16 bytes and a span id of 8.
    LinkLength "link-length" Error,
    /// `pprof.scope.*` is on scopes only.
    ScopeOnly "scope-only-attribute" Error,
    /// The ids of a link are not all zero.
    ZeroLinkId "zero-link-id" Warning,
    /// An attribute with a name of the semantic conventions has a value of the right type.
    AttributeType "attribute-type" Warning,
    /// A mapping has a build id, so that others can find its symbols.
    BuildIdMissing "build-id-missing" Warning,
    /// GNU build ids and htlhashes are lower-case hexadecimal digits, 32 of them for an htlhash.
    BuildIdFormat "build-id-format" Warning,
    /// A location's address is in its mapping.
    AddressOutsideMapping "address-outside-mapping" Warning,
    /// Timestamps are in the profile's time, its end not included.
    TimestampOutsideProfile "timestamp-outside-profile" Warning,
    /// A profile ends before the end of time in 64 bits.
    TimeOverflow "time-overflow" Warning,
    /// All samples of a profile have the same kind of observations; a sample without timestamps has one value.
    SampleShape "sample-shape" Warning,
    /// No two samples of a profile have the same stack, attributes and link, unless their kinds of observations differ.
    DuplicateSample "duplicate-sample" Warning,
    /// No two entries of a table say the same.
    DuplicateEntry "duplicate-entry" Warning,
    /// Something refers to every entry of a table but the first.
    Orphan "orphan" Warning,
    /// Lists do not contain index 0, which means none, and lines have a function, unless nothing is known of their code.
    NullInList "null-in-list" Warning,
    /// Resources, scopes and profiles are not empty.
    Empty "empty" Warning,
    /// A profile says what its values count.
    SampleTypeMissing "sample-type-missing" Warning,
    /// A profile says what its period counts.
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
