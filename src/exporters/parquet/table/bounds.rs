//! Bounds of the values of a page.

/// The smallest and the largest value.
#[derive(Debug, Clone)]
pub(super) enum Bounds {
    Signed(i64, i64),
    Unsigned(u64, u64),
    /// Neither bound is NaN, and a lower bound of zero is negative zero, as the format requires.
    Doubles(f64, f64),
    Bytes(Vec<u8>, Vec<u8>),
}

impl Bounds {
    /// Maximum length of a text in the bounds, in bytes. Longer values would bloat every footer.
    const MAX_TEXT_LENGTH: usize = 128;

    pub(super) fn is_short(&self) -> bool {
        match self {
            Bounds::Bytes(min, max) => min.len().max(max.len()) <= Self::MAX_TEXT_LENGTH,
            _ => true,
        }
    }

    pub(super) fn to_bytes(&self) -> (Vec<u8>, Vec<u8>) {
        match self {
            Bounds::Signed(min, max) => (min.to_le_bytes().into(), max.to_le_bytes().into()),
            Bounds::Unsigned(min, max) => (min.to_le_bytes().into(), max.to_le_bytes().into()),
            Bounds::Doubles(min, max) => (min.to_le_bytes().into(), max.to_le_bytes().into()),
            Bounds::Bytes(min, max) => (min.clone(), max.clone()),
        }
    }

    pub(super) fn add(&mut self, other: &Bounds) {
        match (self, other) {
            (Bounds::Signed(min, max), Bounds::Signed(low, high)) => {
                (*min, *max) = ((*min).min(*low), (*max).max(*high));
            }
            (Bounds::Unsigned(min, max), Bounds::Unsigned(low, high)) => {
                (*min, *max) = ((*min).min(*low), (*max).max(*high));
            }
            (Bounds::Doubles(min, max), Bounds::Doubles(low, high)) => {
                (*min, *max) = (min.min(*low), max.max(*high));
            }
            (Bounds::Bytes(min, max), Bounds::Bytes(low, high)) => {
                if low < min {
                    min.clone_from(low);
                }
                if high > max {
                    max.clone_from(high);
                }
            }
            _ => {}
        }
    }

    pub(super) fn is_before(&self, next: &Bounds) -> bool {
        match (self, next) {
            (Bounds::Signed(min, max), Bounds::Signed(low, high)) => min <= low && max <= high,
            (Bounds::Unsigned(min, max), Bounds::Unsigned(low, high)) => min <= low && max <= high,
            (Bounds::Doubles(min, max), Bounds::Doubles(low, high)) => min <= low && max <= high,
            (Bounds::Bytes(min, max), Bounds::Bytes(low, high)) => min <= low && max <= high,
            _ => false,
        }
    }
}
