//! Classifies the bytes of a window into bit masks, one bit per byte.
//!
//! On x86-64, 16 bytes are compared at a time (SSE2 is part of the architecture), or 64 if the processor has
//! AVX-512; elsewhere a table classifies byte by byte. A test compares all variants.

/// Maximum size of a window in bytes.
pub(super) const WINDOW: usize = 64;

/// Bits, one per byte of a window, the first byte lowest.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Masks {
    /// `0` to `9`.
    pub(super) digit: u64,
    /// `A` to `Z` and `a` to `z`.
    pub(super) alpha: u64,
    /// `@`
    pub(super) at: u64,
    /// `:`
    pub(super) colon: u64,
    /// `.`
    pub(super) dot: u64,
    /// `-`
    pub(super) dash: u64,
    /// `_`
    pub(super) underscore: u64,
    /// `/`
    pub(super) slash: u64,
    /// `\`
    pub(super) backslash: u64,
    pub(super) space: u64,
    /// `=`
    pub(super) equal: u64,
    /// `~`, for the client secrets of Azure.
    pub(super) tilde: u64,
    /// `d` in both cases. The fields for letters cover the endings of key names such as `password`, `secret`, `token`,
    /// `api_key`, `pass` and `passphrase`.
    pub(super) d: u64,
    /// `e` in both cases, which also begins JSON Web Tokens, before `y` or `w`.
    pub(super) e: u64,
    /// `n` in both cases.
    pub(super) n: u64,
    /// `s` in both cases.
    pub(super) s: u64,
    /// `t` in both cases.
    pub(super) t: u64,
    /// `w` in both cases.
    pub(super) w: u64,
    /// `y` in both cases.
    pub(super) y: u64,
    /// `(` to `+`: the characters `(` and `+` begin telephone numbers.
    pub(super) opening: u64,
    /// `0`, which begins national telephone numbers.
    pub(super) zero: u64,
    /// `a` in both cases, for the prefixes of several keys.
    pub(super) a: u64,
    /// `b` in both cases, the beginning of `Bearer` and `Basic`.
    pub(super) b: u64,
    /// `h` and `U`, the beginning of directories with home directories.
    pub(super) home: u64,
    /// `r` and `c` in both cases, the ends of `Bearer` and `Basic`.
    pub(super) scheme: u64,
    /// `I`, at the beginning of AWS and Google Cloud keys.
    pub(super) i: u64,
    /// All bytes outside of ASCII.
    pub(super) foreign: u64,
}

impl Masks {
    /// Classifies a window of at most [`WINDOW`] bytes; further bytes are ignored.
    #[inline]
    pub(super) fn of(window: &[u8]) -> Masks {
        let mut masks = Masks::default();
        let (lanes, rest) = window.as_chunks::<16>();
        for (position, lane) in lanes.iter().enumerate().take(WINDOW / 16) {
            masks.add(lane, 16 * position);
        }
        if rest.is_empty() || lanes.len() >= WINDOW / 16 {
            return masks;
        }
        // The last vector overlaps the previous vector; setting a bit twice is harmless.
        match window.last_chunk::<16>() {
            Some(lane) => masks.add(lane, window.len() - 16),
            None => masks.add(&short(window), 0),
        }
        masks
    }

    /// Like [`of`](Self::of), with one comparison per class for the whole window.
    #[cfg(target_arch = "x86_64")]
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,bmi1,bmi2")]
    #[allow(
        unsafe_code,
        reason = "the one load that leaves out what is behind the end takes a pointer"
    )]
    pub(super) fn of_wide(window: &[u8]) -> Masks {
        use std::arch::x86_64::{
            __m512i, _mm512_and_si512, _mm512_cmpeq_epi8_mask, _mm512_cmple_epu8_mask,
            _mm512_maskz_loadu_epi8, _mm512_movepi8_mask, _mm512_or_si512, _mm512_set1_epi8,
            _mm512_sub_epi8,
        };
        let length = window.len().min(WINDOW);
        let there = match length {
            WINDOW => u64::MAX,
            length => (1 << length) - 1,
        };
        // SAFETY: only the bytes selected by `there` are read, and they are within the window.
        let bytes = unsafe { _mm512_maskz_loadu_epi8(there, window.as_ptr().cast()) };
        let all = |byte: u8| _mm512_set1_epi8(byte as i8);
        let equal = |byte: u8| _mm512_cmpeq_epi8_mask(bytes, all(byte));
        // Whether a byte is in a range of `count` values from `first` on.
        let within = |bytes: __m512i, first: u8, count: u8| {
            _mm512_cmple_epu8_mask(_mm512_sub_epi8(bytes, all(first)), all(count - 1))
        };
        let lower = _mm512_or_si512(bytes, all(0x20));
        Masks {
            digit: within(bytes, b'0', 10),
            alpha: within(lower, b'a', 26),
            at: equal(b'@'),
            colon: equal(b':'),
            dot: equal(b'.'),
            dash: equal(b'-'),
            underscore: equal(b'_'),
            slash: equal(b'/'),
            backslash: equal(b'\\'),
            space: equal(b' '),
            opening: _mm512_cmpeq_epi8_mask(_mm512_and_si512(bytes, all(!3)), all(b'(')),
            zero: equal(b'0'),
            a: _mm512_cmpeq_epi8_mask(lower, all(b'a')),
            b: _mm512_cmpeq_epi8_mask(lower, all(b'b')),
            equal: equal(b'='),
            tilde: equal(b'~'),
            d: _mm512_cmpeq_epi8_mask(lower, all(b'd')),
            e: _mm512_cmpeq_epi8_mask(lower, all(b'e')),
            n: _mm512_cmpeq_epi8_mask(lower, all(b'n')),
            s: _mm512_cmpeq_epi8_mask(lower, all(b's')),
            t: _mm512_cmpeq_epi8_mask(lower, all(b't')),
            w: _mm512_cmpeq_epi8_mask(lower, all(b'w')),
            y: _mm512_cmpeq_epi8_mask(lower, all(b'y')),
            home: equal(b'h') | equal(b'U'),
            scheme: _mm512_cmpeq_epi8_mask(lower, all(b'r'))
                | _mm512_cmpeq_epi8_mask(lower, all(b'c')),
            i: equal(b'I'),
            foreign: _mm512_movepi8_mask(bytes),
        }
    }

    #[cfg(target_arch = "x86_64")]
    #[inline]
    #[allow(
        unsafe_code,
        reason = "intrinsics take the same three calls per class that a table takes per byte"
    )]
    fn add(&mut self, lane: &[u8; 16], position: usize) {
        // SAFETY: every x86-64 processor has SSE2; the function reads and writes only its arguments.
        unsafe { self.add_vector(lane, position) }
    }

    #[cfg(target_arch = "x86_64")]
    #[inline]
    #[target_feature(enable = "sse2")]
    fn add_vector(&mut self, lane: &[u8; 16], position: usize) {
        use std::arch::x86_64::{
            __m128i, _mm_and_si128, _mm_cmpeq_epi8, _mm_movemask_epi8, _mm_or_si128,
            _mm_set_epi64x, _mm_set1_epi8, _mm_setzero_si128, _mm_sub_epi8, _mm_subs_epu8,
        };
        let value = u128::from_le_bytes(*lane);
        let bytes = _mm_set_epi64x((value >> 64) as i64, value as i64);
        let bits = |found: __m128i| u64::from(_mm_movemask_epi8(found) as u32 & 0xffff) << position;
        let equal = |byte: u8| bits(_mm_cmpeq_epi8(bytes, _mm_set1_epi8(byte as i8)));
        // Whether a byte is in a range of `count` values from `first` on: the saturating difference is zero.
        let within = |bytes: __m128i, first: u8, count: u8| {
            let offset = _mm_sub_epi8(bytes, _mm_set1_epi8(first as i8));
            let above = _mm_subs_epu8(offset, _mm_set1_epi8((count - 1) as i8));
            bits(_mm_cmpeq_epi8(above, _mm_setzero_si128()))
        };
        self.digit |= within(bytes, b'0', 10);
        let lower = _mm_or_si128(bytes, _mm_set1_epi8(0x20));
        let equal_lower = |byte: u8| bits(_mm_cmpeq_epi8(lower, _mm_set1_epi8(byte as i8)));
        self.alpha |= within(lower, b'a', 26);
        self.at |= equal(b'@');
        self.colon |= equal(b':');
        self.dot |= equal(b'.');
        self.dash |= equal(b'-');
        self.underscore |= equal(b'_');
        self.slash |= equal(b'/');
        self.backslash |= equal(b'\\');
        self.space |= equal(b' ');
        let either = |bytes: __m128i, first: u8, second: u8| {
            let first = _mm_cmpeq_epi8(bytes, _mm_set1_epi8(first as i8));
            let second = _mm_cmpeq_epi8(bytes, _mm_set1_epi8(second as i8));
            bits(_mm_or_si128(first, second))
        };
        self.home |= either(bytes, b'h', b'U');
        self.scheme |= either(lower, b'r', b'c');
        let opening = _mm_and_si128(bytes, _mm_set1_epi8(!3));
        self.opening |= bits(_mm_cmpeq_epi8(opening, _mm_set1_epi8(b'(' as i8)));
        self.zero |= equal(b'0');
        self.a |= equal_lower(b'a');
        self.b |= equal_lower(b'b');
        self.equal |= equal(b'=');
        self.tilde |= equal(b'~');
        self.d |= equal_lower(b'd');
        self.e |= equal_lower(b'e');
        self.n |= equal_lower(b'n');
        self.s |= equal_lower(b's');
        self.t |= equal_lower(b't');
        self.w |= equal_lower(b'w');
        self.y |= equal_lower(b'y');
        self.i |= equal(b'I');
        self.foreign |= bits(bytes);
    }

    #[cfg(not(target_arch = "x86_64"))]
    #[inline]
    fn add(&mut self, lane: &[u8; 16], position: usize) {
        self.add_bytewise(lane, position);
    }

    #[cfg(any(test, not(target_arch = "x86_64")))]
    fn add_bytewise(&mut self, lane: &[u8; 16], position: usize) {
        for (offset, byte) in lane.iter().enumerate() {
            let bit = 1 << (position + offset);
            match byte {
                b'0'..=b'9' => {
                    self.digit |= bit;
                    self.zero |= u64::from(*byte == b'0') << (position + offset);
                }
                b'('..=b'+' => self.opening |= bit,
                b'@' => self.at |= bit,
                b':' => self.colon |= bit,
                b'.' => self.dot |= bit,
                b'-' => self.dash |= bit,
                b'_' => self.underscore |= bit,
                b'/' => self.slash |= bit,
                b'\\' => self.backslash |= bit,
                b' ' => self.space |= bit,
                b'=' => self.equal |= bit,
                b'~' => self.tilde |= bit,
                0x80.. => self.foreign |= bit,
                b'A'..=b'Z' | b'a'..=b'z' => {
                    self.alpha |= bit;
                    self.i |= u64::from(*byte == b'I') << (position + offset);
                    let is = |found: bool| u64::from(found) << (position + offset);
                    self.home |= is(matches!(byte, b'h' | b'U'));
                    self.scheme |= is(matches!(byte | 0x20, b'r' | b'c'));
                    self.a |= is(byte | 0x20 == b'a');
                    self.b |= is(byte | 0x20 == b'b');
                    self.d |= is(byte | 0x20 == b'd');
                    self.e |= is(byte | 0x20 == b'e');
                    self.n |= is(byte | 0x20 == b'n');
                    self.s |= is(byte | 0x20 == b's');
                    self.t |= is(byte | 0x20 == b't');
                    self.w |= is(byte | 0x20 == b'w');
                    self.y |= is(byte | 0x20 == b'y');
                }
                _ => {}
            }
        }
    }
}

/// Whether the processor supports [`Masks::of_wide`].
#[cfg(target_arch = "x86_64")]
pub(super) fn wide() -> bool {
    is_x86_feature_detected!("avx512bw")
        && is_x86_feature_detected!("bmi1")
        && is_x86_feature_detected!("bmi2")
}

/// Supported only by x86-64 processors.
#[cfg(not(target_arch = "x86_64"))]
pub(super) fn wide() -> bool {
    false
}

/// Pads fewer than 16 bytes with zeros, by two overlapping loads instead of a copy of variable length.
#[inline]
fn short(window: &[u8]) -> [u8; 16] {
    let shift = |length: usize| 8 * (window.len() - length);
    let value = if let (Some(first), Some(last)) = (window.first_chunk::<8>(), window.last_chunk())
    {
        u128::from(u64::from_le_bytes(*first)) | u128::from(u64::from_le_bytes(*last)) << shift(8)
    } else if let (Some(first), Some(last)) = (window.first_chunk::<4>(), window.last_chunk()) {
        u128::from(u32::from_le_bytes(*first)) | u128::from(u32::from_le_bytes(*last)) << shift(4)
    } else {
        let mut bytes = [0; 16];
        for (to, from) in bytes.iter_mut().zip(window) {
            *to = *from;
        }
        return bytes;
    };
    value.to_le_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytewise(window: &[u8]) -> Masks {
        let mut masks = Masks::default();
        for (position, lane) in window.chunks(16).enumerate() {
            let mut bytes = [0; 16];
            bytes[..lane.len()].copy_from_slice(lane);
            masks.add_bytewise(&bytes, 16 * position);
        }
        masks
    }

    #[allow(unsafe_code, reason = "what the processor cannot do is left out")]
    fn check(window: &[u8]) {
        assert_eq!(Masks::of(window), bytewise(window), "{window:?}");
        #[cfg(target_arch = "x86_64")]
        if wide() {
            // SAFETY: the processor supports the instructions.
            let masks = unsafe { Masks::of_wide(window) };
            assert_eq!(masks, bytewise(window), "{window:?}");
        }
    }

    #[test]
    fn every_byte_is_classified_at_every_position() {
        let mut random = fastrand::Rng::with_seed(1);
        for length in 0..=WINDOW {
            for _ in 0..200 {
                let window: Vec<u8> = std::iter::repeat_with(|| random.u8(..))
                    .take(length)
                    .collect();
                check(&window);
            }
        }
        let all: Vec<u8> = (0..=255).collect();
        all.chunks(WINDOW).for_each(check);
    }
}
