//! Random requests from OTLP's own descriptors: every field of every message, in all legal encodings. Also
//! used by the fuzz targets.

use prost_types::field_descriptor_proto::Type;
use tributary_otlp::Signal;
use tributary_otlp::descriptor::{Descriptors, FieldDescriptor};
use tributary_otlp::reader::put_varint;

/// Decisions read from bytes of proptest or a fuzzer, so that the bytes can be shrunk. When the bytes are used up,
/// every decision is 0, which always means "stop generating".
pub(crate) struct Entropy<'a>(pub(crate) &'a [u8]);

impl Entropy<'_> {
    pub(crate) fn byte(&mut self) -> u8 {
        match self.0 {
            [first, rest @ ..] => {
                self.0 = rest;
                *first
            }
            [] => 0,
        }
    }

    pub(crate) fn below(&mut self, bound: u8) -> u8 {
        self.byte() % bound
    }

    fn number(&mut self) -> u64 {
        match self.below(4) {
            0 => u64::from(self.byte()),
            1 => u64::from(self.byte()) << 8 | u64::from(self.byte()),
            2 => u64::MAX - u64::from(self.byte()),
            _ => (0..8).fold(0, |number, _| number << 8 | u64::from(self.byte())),
        }
    }
}

pub(crate) struct Generator {
    descriptors: Descriptors,
    /// Whether to write legal encodings that encoders avoid: unknown fields, repeated singular fields,
    /// over-long varints, fields in any order.
    pub(crate) wild: bool,
    /// Whether wild requests may have over-long varints.
    pub(crate) overlong: bool,
    /// Text to plant in strings and bytes, except for these fields.
    pub(crate) planted: Option<(&'static str, &'static [&'static str])>,
    /// Signal of the requests in bytes values, if any.
    pub(crate) embedded: Option<Signal>,
    /// Whether profiles are consistent: references have targets, and samples have values and no timestamps.
    pub(crate) sensible: bool,
}

/// Minimum number of entries in each table of a sensible dictionary.
const ENTRIES: u8 = 3;

impl Generator {
    pub(crate) fn new(wild: bool) -> Self {
        Generator {
            descriptors: Descriptors::load(),
            wild,
            overlong: true,
            planted: None,
            embedded: None,
            sensible: false,
        }
    }

    pub(crate) fn request(&self, signal: Signal, entropy: &mut Entropy<'_>) -> Vec<u8> {
        self.message(self.descriptors.root(signal), 0, entropy)
    }

    fn message(&self, kind: usize, depth: u32, entropy: &mut Entropy<'_>) -> Vec<u8> {
        let message = &self.descriptors.messages[kind];
        let mut fields: Vec<Vec<u8>> = Vec::new();
        let form = entropy.byte();
        let tables = self.sensible && message.name.ends_with(".ProfilesDictionary");
        let mut member = 0;
        for field in &message.fields {
            let mut occurrences = self.occurrences(field, depth, entropy);
            if field.oneof.is_some() {
                // Chooses one of eight members of a `oneof`, and rarely several members.
                let chosen = form % 8 == member || self.wild && form > 250;
                occurrences = if chosen { occurrences.max(1) } else { 0 };
                member += 1;
            }
            if depth > 12 && field.kind == Type::Message {
                occurrences = 0;
            }
            if self.sensible {
                occurrences = match field.name.as_str() {
                    "dictionary" => occurrences.max(1),
                    "timestamps_unix_nano" => 0,
                    // A sample without values could belong to an older layout.
                    "values" if message.name.ends_with(".Sample") => occurrences.max(1),
                    _ => occurrences,
                };
            }
            if tables {
                // Entry 0 of each table is the zero value.
                let mut raw = Vec::new();
                self.key(field.number, 2, entropy, &mut raw);
                self.delimited(&[], entropy, &mut raw);
                fields.push(raw);
                occurrences = ENTRIES - 1;
            }
            self.field(field, occurrences, depth, entropy, &mut fields);
        }
        if self.wild {
            while entropy.below(16) == 15 {
                fields.push(self.unknown(entropy));
            }
            match entropy.below(4) {
                _ if tables => {}
                1 => fields.reverse(),
                2 => {
                    for at in (1..fields.len()).rev() {
                        fields.swap(at, usize::from(entropy.byte()) % (at + 1));
                    }
                }
                _ => {}
            }
        }
        fields.concat()
    }

    fn occurrences(&self, field: &FieldDescriptor, depth: u32, entropy: &mut Entropy<'_>) -> u8 {
        let byte = entropy.byte();
        match (field.repeated, depth) {
            _ if byte == 0 => 0,
            (true, 0..3) => 1 + byte % 3,
            (true, _) => (byte % 8).saturating_sub(4),
            (false, _) if self.wild && byte > 248 => 2,
            (false, _) => byte % 2,
        }
    }

    fn field(
        &self,
        field: &FieldDescriptor,
        occurrences: u8,
        depth: u32,
        entropy: &mut Entropy<'_>,
        fields: &mut Vec<Vec<u8>>,
    ) {
        let packable =
            field.repeated && !matches!(field.kind, Type::Message | Type::String | Type::Bytes);
        if packable && occurrences > 0 && (!self.wild || entropy.below(2) == 0) {
            let mut packed = Vec::new();
            for _ in 0..occurrences {
                self.scalar(field, entropy, &mut packed);
            }
            let mut raw = Vec::new();
            self.key(field.number, 2, entropy, &mut raw);
            self.delimited(&packed, entropy, &mut raw);
            fields.push(raw);
            return;
        }
        for _ in 0..occurrences {
            let mut raw = Vec::new();
            match field.kind {
                Type::Message => {
                    let body = self.message(field.message.unwrap(), depth + 1, entropy);
                    self.key(field.number, 2, entropy, &mut raw);
                    self.delimited(&body, entropy, &mut raw);
                }
                Type::String => {
                    self.key(field.number, 2, entropy, &mut raw);
                    let mut text = text(entropy);
                    if let Some(planted) = self.plant(&field.name, entropy) {
                        text.push_str(&planted);
                    }
                    self.delimited(text.as_bytes(), entropy, &mut raw);
                }
                Type::Bytes if field.name == "bytes_value" && self.embedded.is_some() => {
                    let root = self.embedded.map(|signal| self.descriptors.root(signal));
                    let request = self.message(root.unwrap(), depth + 1, entropy);
                    self.key(field.number, 2, entropy, &mut raw);
                    self.delimited(&request, entropy, &mut raw);
                }
                Type::Bytes => {
                    self.key(field.number, 2, entropy, &mut raw);
                    let mut bytes: Vec<u8> =
                        (0..entropy.below(20)).map(|_| entropy.byte()).collect();
                    if let Some(planted) = self.plant(&field.name, entropy) {
                        bytes.extend(planted.as_bytes());
                        bytes.push(0xff);
                    }
                    self.delimited(&bytes, entropy, &mut raw);
                }
                _ => {
                    self.key(
                        field.number,
                        scalar_wire_type(field.kind),
                        entropy,
                        &mut raw,
                    );
                    self.scalar(field, entropy, &mut raw);
                }
            }
            fields.push(raw);
        }
    }

    /// Returns the planted text with text around it, for every second string.
    fn plant(&self, field: &str, entropy: &mut Entropy<'_>) -> Option<String> {
        let (planted, spared) = self.planted?;
        let chosen = entropy.below(2) == 1;
        let spared = spared.contains(&field);
        (chosen && !spared).then(|| format!(" {planted} {planted},"))
    }

    fn scalar(&self, field: &FieldDescriptor, entropy: &mut Entropy<'_>, output: &mut Vec<u8>) {
        let reference = ["_strindex", "_index", "_indices"];
        let reference = reference.iter().any(|ending| field.name.ends_with(ending));
        let number = match self.sensible && reference {
            true => entropy.below(ENTRIES).into(),
            false => entropy.number(),
        };
        match scalar_wire_type(field.kind) {
            1 => output.extend(number.to_le_bytes()),
            5 => output.extend((number as u32).to_le_bytes()),
            _ => self.varint(number, entropy, output),
        }
    }

    fn unknown(&self, entropy: &mut Entropy<'_>) -> Vec<u8> {
        let number = [17, 30, 31, 32, 1000, (1 << 29) - 1][usize::from(entropy.below(6))];
        let mut raw = Vec::new();
        let wire_type = [0, 1, 2, 5][usize::from(entropy.below(4))];
        self.key(number, wire_type, entropy, &mut raw);
        match wire_type {
            0 => self.varint(entropy.number(), entropy, &mut raw),
            1 => raw.extend([0xff; 8]),
            2 => match self.plant("unknown", entropy) {
                Some(planted) => self.delimited(planted.as_bytes(), entropy, &mut raw),
                None => self.delimited(&[0xff; 3], entropy, &mut raw),
            },
            _ => raw.extend([0xff; 4]),
        }
        raw
    }

    fn key(&self, number: u32, wire_type: u32, entropy: &mut Entropy<'_>, output: &mut Vec<u8>) {
        self.varint(u64::from(number << 3 | wire_type), entropy, output);
    }

    fn delimited(&self, bytes: &[u8], entropy: &mut Entropy<'_>, output: &mut Vec<u8>) {
        self.varint(bytes.len() as u64, entropy, output);
        output.extend(bytes);
    }

    fn varint(&self, number: u64, entropy: &mut Entropy<'_>, output: &mut Vec<u8>) {
        let start = output.len();
        put_varint(number, output);
        // Over-long, but at most ten bytes.
        if self.wild && self.overlong && output.len() - start < 9 && entropy.below(32) == 31 {
            *output.last_mut().unwrap() |= 0x80;
            output.extend([0x80, 0x00]);
        }
    }
}

fn scalar_wire_type(kind: Type) -> u32 {
    match kind {
        Type::Fixed64 | Type::Sfixed64 | Type::Double => 1,
        Type::Fixed32 | Type::Sfixed32 | Type::Float => 5,
        _ => 0,
    }
}

/// Draws from few distinct texts, so that keys repeat; some are long, some beyond ASCII.
fn text(entropy: &mut Entropy<'_>) -> String {
    match entropy.below(16) {
        0 => String::new(),
        1 => "x".repeat(120 + usize::from(entropy.below(20))),
        2 => "gr\u{fc}\u{df}e \u{1f980}".to_owned(),
        3 => "\u{e9}".repeat(usize::from(entropy.byte())),
        4..10 => ["a", "b", "c", "d"][usize::from(entropy.below(4))].to_owned(),
        _ => format!("text.{}", entropy.byte()),
    }
}
