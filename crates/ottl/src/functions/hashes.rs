//! Functions that hash texts.

use md5::Digest as _;
use ring::digest::{Algorithm, SHA1_FOR_LEGACY_USE_ONLY, SHA256, SHA512, digest};
use xxhash_rust::xxh3::{xxh3_64, xxh3_128};

use super::{Arguments, Function, TARGET_TEXT};
use crate::value::{Undecided, Value, hexadecimal};

pub(super) const ALL: &[Function] = &[
    Function::new("FNV", &[TARGET_TEXT], |arguments| {
        Ok(Value::Int(fnv(arguments.text(0)?).cast_signed()))
    }),
    Function::new("MD5", &[TARGET_TEXT], |arguments| {
        let hash = md5::Md5::digest(arguments.text(0)?.as_bytes());
        Ok(Value::owned_text(hexadecimal(&hash)))
    }),
    Function::new("SHA1", &[TARGET_TEXT], |arguments| {
        sha(arguments, &SHA1_FOR_LEGACY_USE_ONLY)
    }),
    Function::new("SHA256", &[TARGET_TEXT], |arguments| {
        sha(arguments, &SHA256)
    }),
    Function::new("SHA512", &[TARGET_TEXT], |arguments| {
        sha(arguments, &SHA512)
    }),
    Function::new("XXH3", &[TARGET_TEXT], |arguments| {
        let hash = xxh3_64(arguments.text(0)?.as_bytes());
        Ok(Value::owned_text(hexadecimal(&hash.to_be_bytes())))
    }),
    Function::new("XXH128", &[TARGET_TEXT], |arguments| {
        let hash = xxh3_128(arguments.text(0)?.as_bytes());
        Ok(Value::owned_text(hexadecimal(&hash.to_be_bytes())))
    }),
    Function::new("Murmur3Hash", &[TARGET_TEXT], |arguments| {
        let hash = murmur32(arguments.text(0)?.as_bytes());
        Ok(Value::owned_text(hexadecimal(&hash.to_le_bytes())))
    }),
    Function::new("Murmur3Hash128", &[TARGET_TEXT], |arguments| {
        let (low, high) = murmur128(arguments.text(0)?.as_bytes());
        let hash = [low.to_le_bytes(), high.to_le_bytes()].concat();
        Ok(Value::owned_text(hexadecimal(&hash)))
    }),
];

fn sha<'v>(
    arguments: &mut Arguments<'_, 'v>,
    algorithm: &'static Algorithm,
) -> Result<Value<'v>, Undecided> {
    let hash = digest(algorithm, arguments.text(0)?.as_bytes());
    Ok(Value::owned_text(hexadecimal(hash.as_ref())))
}

/// 64-bit FNV-1a.
fn fnv(text: &str) -> u64 {
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

/// `MurmurHash3_x86_32` with seed 0 (Appleby, "smhasher").
fn murmur32(data: &[u8]) -> u32 {
    fn mixed(word: u32) -> u32 {
        word.wrapping_mul(0xcc9e_2d51)
            .rotate_left(15)
            .wrapping_mul(0x1b87_3593)
    }
    let (words, tail) = data.as_chunks::<4>();
    let mut hash = words.iter().fold(0_u32, |hash, word| {
        (hash ^ mixed(u32::from_le_bytes(*word)))
            .rotate_left(13)
            .wrapping_mul(5)
            .wrapping_add(0xe654_6b64)
    });
    if !tail.is_empty() {
        hash ^= mixed(little_endian(tail) as u32);
    }
    hash ^= data.len() as u32;
    hash = (hash ^ hash >> 16).wrapping_mul(0x85eb_ca6b);
    hash = (hash ^ hash >> 13).wrapping_mul(0xc2b2_ae35);
    hash ^ hash >> 16
}

/// `MurmurHash3_x64_128` with seed 0 (Appleby, "smhasher").
fn murmur128(data: &[u8]) -> (u64, u64) {
    const FIRST: u64 = 0x87c3_7b91_1142_53d5;
    const SECOND: u64 = 0x4cf5_ad43_2745_937f;
    let mixed_low = |word: u64| {
        word.wrapping_mul(FIRST)
            .rotate_left(31)
            .wrapping_mul(SECOND)
    };
    let mixed_high = |word: u64| {
        word.wrapping_mul(SECOND)
            .rotate_left(33)
            .wrapping_mul(FIRST)
    };
    let (blocks, tail) = data.as_chunks::<16>();
    let (mut low, mut high) = (0_u64, 0_u64);
    for block in blocks {
        let (first, second) = block.split_at(8);
        low ^= mixed_low(little_endian(first));
        low = low.rotate_left(27).wrapping_add(high);
        low = low.wrapping_mul(5).wrapping_add(0x52dc_e729);
        high ^= mixed_high(little_endian(second));
        high = high.rotate_left(31).wrapping_add(low);
        high = high.wrapping_mul(5).wrapping_add(0x3849_5ab5);
    }
    let (first, second) = tail.split_at(tail.len().min(8));
    high ^= mixed_high(little_endian(second));
    low ^= mixed_low(little_endian(first));
    let length = data.len() as u64;
    (low, high) = (low ^ length, high ^ length);
    low = low.wrapping_add(high);
    high = high.wrapping_add(low);
    (low, high) = (avalanche(low), avalanche(high));
    low = low.wrapping_add(high);
    high = high.wrapping_add(low);
    (low, high)
}

fn avalanche(mut hash: u64) -> u64 {
    hash = (hash ^ hash >> 33).wrapping_mul(0xff51_afd7_ed55_8ccd);
    hash = (hash ^ hash >> 33).wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    hash ^ hash >> 33
}

/// Reads up to eight bytes as a number.
fn little_endian(bytes: &[u8]) -> u64 {
    let bytes = bytes.iter().rev();
    bytes.fold(0, |word, byte| word << 8 | u64::from(*byte))
}
