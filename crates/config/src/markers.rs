//! Names of newtypes that the deserializer treats specially.

/// Newtype name with which [`super::units::Section`] requests its special treatment.
pub(crate) const SECTION: &str = "$tributary::Section";

/// Newtype name with which [`super::units::Secret`] marks its value as secret.
pub(crate) const SECRET: &str = "$tributary::Secret";
