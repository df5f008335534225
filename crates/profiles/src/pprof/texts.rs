//! Iterates over all text in a file, referenced or not.

use std::io;

use super::ReadOptions;
use tributary_compression::Codec;
use tributary_compression::decompress::decompress;
use tributary_memory::Permit;
use tributary_otlp::reader::{Fields, Value};

#[derive(Clone, Copy)]
enum FieldKind {
    Number,
    Numbers,
    Text,
    /// A message, with the types of its fields from number 1 on.
    Message(&'static [FieldKind]),
}

use FieldKind::{Message, Number, Numbers, Text};

// `proto/profile.proto` of github.com/google/pprof.
const PROFILE: &[FieldKind] = &[
    Message(VALUE_TYPE),
    Message(SAMPLE),
    Message(MAPPING),
    Message(LOCATION),
    Message(FUNCTION),
    Text,
    Number,
    Number,
    Number,
    Number,
    Message(VALUE_TYPE),
    Number,
    Numbers,
    Number,
    Number,
];
const VALUE_TYPE: &[FieldKind] = &[Number; 2];
const SAMPLE: &[FieldKind] = &[Numbers, Numbers, Message(LABEL)];
const LABEL: &[FieldKind] = &[Number; 4];
const MAPPING: &[FieldKind] = &[Number; 10];
const LOCATION: &[FieldKind] = &[Number, Number, Number, Message(LINE), Number];
const LINE: &[FieldKind] = &[Number; 3];
const FUNCTION: &[FieldKind] = &[Number; 5];

/// Whether `fine` holds for all strings of a file, including unreferenced ones. `false` if the file may contain
/// other text: in unknown fields, or in a gzip header (RFC 1952, section 2.3).
///
/// Meanwhile, `permit` accounts for the decompressed file too.
pub fn all_texts(file: &[u8], permit: &mut Permit, mut fine: impl FnMut(&[u8]) -> bool) -> bool {
    if !file.starts_with(&[0x1f, 0x8b]) {
        return all(file, PROFILE, &mut fine);
    }
    if !is_one_bare_member(file) {
        return false;
    }
    let held = permit.bytes();
    let decompressed = decompress(Codec::Gzip, file, ReadOptions::default().limit, permit);
    let fine = decompressed.is_ok_and(|bytes| all(&bytes, PROFILE, &mut fine));
    permit.shrink_to(held);
    fine
}

fn all(message: &[u8], fields: &'static [FieldKind], fine: &mut impl FnMut(&[u8]) -> bool) -> bool {
    Fields::new(message).all(|field| {
        let Ok(field) = field else {
            return false;
        };
        let at = (field.number as usize).checked_sub(1);
        match (at.and_then(|at| fields.get(at)), field.value) {
            (Some(Number | Numbers), Value::Varint(_)) | (Some(Numbers), Value::Bytes(_)) => true,
            (Some(Text), Value::Bytes(text)) => fine(text),
            (Some(Message(fields)), Value::Bytes(message)) => all(message, fields, fine),
            _ => false,
        }
    })
}

/// Whether a file is a single gzip member without a name, a comment or other optional fields.
fn is_one_bare_member(file: &[u8]) -> bool {
    let mut member = flate2::bufread::GzDecoder::new(file);
    let bare = file.get(3) == Some(&0);
    bare && io::copy(&mut member, &mut io::sink()).is_ok() && member.into_inner().is_empty()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use tributary_memory::Budget;
    use tributary_otlp::edit::put_delimited;

    fn texts(file: &[u8]) -> Option<Vec<String>> {
        let mut permit = Budget::new(1 << 20).acquire(0).unwrap();
        let mut texts = Vec::new();
        let all = all_texts(file, &mut permit, |text| {
            texts.push(String::from_utf8_lossy(text).into_owned());
            true
        });
        assert_eq!(permit.bytes(), 0);
        all.then_some(texts)
    }

    fn gzip(builder: flate2::GzBuilder, file: &[u8]) -> Vec<u8> {
        let mut writer = builder.write(Vec::new(), flate2::Compression::fast());
        writer.write_all(file).unwrap();
        writer.finish().unwrap()
    }

    #[test]
    fn all_texts_visits_every_string_or_refuses() {
        let mut file = Vec::new();
        for text in ["", "cpu", "nobody refers to this"] {
            put_delimited(6, text.as_bytes(), &mut file);
        }
        // A sample with two values and a label.
        put_delimited(2, &[0x12, 2, 7, 8, 0x1a, 4, 8, 1, 16, 2], &mut file);
        let all = Some(
            ["", "cpu", "nobody refers to this"]
                .map(str::to_owned)
                .to_vec(),
        );
        assert_eq!(texts(&file), all);
        assert_eq!(texts(&gzip(flate2::GzBuilder::new(), &file)), all);
        let mut permit = Budget::new(1 << 20).acquire(0).unwrap();
        assert!(!all_texts(&file, &mut permit, |text| text != b"cpu"));

        let with = |number: u32, body: &[u8]| {
            let mut more = file.clone();
            put_delimited(number, body, &mut more);
            more
        };
        let member = || gzip(flate2::GzBuilder::new(), &file);
        for hides in [
            with(16, b"unknown"),
            with(2, &[0x22, 1, b'x']),
            with(5, &[0x12, 1, b'x']),
            with(7, b"x"),
            gzip(flate2::GzBuilder::new().filename("jane"), &file),
            gzip(flate2::GzBuilder::new().comment("jane"), &file),
            gzip(flate2::GzBuilder::new().extra("jane"), &file),
            [member(), b"jane".to_vec()].concat(),
            [
                member(),
                gzip(flate2::GzBuilder::new().filename("jane"), b""),
            ]
            .concat(),
        ] {
            assert_eq!(texts(&hides), None);
        }
    }
}
