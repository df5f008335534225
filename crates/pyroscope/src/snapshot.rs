//! Labels of a JFR recording: a message `LabelsSnapshot`, which the Java agent sends beside the recording.
//!
//! ```proto
//! message Context { map<int64, int64> labels = 1; }
//! message LabelsSnapshot { map<int64, Context> contexts = 1; map<int64, string> strings = 2; }
//! ```

use std::collections::{BTreeMap, HashMap};

use tributary_memory::{NoRoom, Permit};
use tributary_otlp::reader::{Fields, Value, WireFault};

use crate::labels::{MAX_LABELS, MAX_VALUE};

/// Memory of an entry of a map.
const PER_ENTRY: usize = 128;

/// Labels by the contexts that events of a recording name: ids of a name and of a value.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Snapshot {
    contexts: HashMap<i64, BTreeMap<i64, i64>>,
    strings: HashMap<i64, String>,
}

/// The reason why a message is not a snapshot.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum SnapshotError {
    /// The bytes are not the message.
    #[error("the labels are not a LabelsSnapshot: {}", .0.text())]
    Wire(WireFault),
    /// A name or a value is longer than [`MAX_VALUE`].
    #[error("a text of the labels is longer than {MAX_VALUE} bytes")]
    Long,
    /// The memory budget has no room for the labels.
    #[error("{0}")]
    NoRoom(#[from] NoRoom),
}

impl From<WireFault> for SnapshotError {
    fn from(fault: WireFault) -> Self {
        SnapshotError::Wire(fault)
    }
}

impl Snapshot {
    /// Reads a message. The permit grows by the memory of the labels.
    ///
    /// # Errors
    /// See [`SnapshotError`].
    pub fn parse(message: &[u8], permit: &mut Permit) -> Result<Self, SnapshotError> {
        let mut snapshot = Snapshot::default();
        for field in Fields::new(message) {
            let field = field?;
            let Value::Bytes(entry) = field.value else {
                continue;
            };
            match field.number {
                1 => {
                    permit.grow(PER_ENTRY)?;
                    let (key, context) = entry_of(entry)?;
                    let mut labels = BTreeMap::new();
                    for field in Fields::new(context) {
                        let field = field?;
                        if let (1, Value::Bytes(label)) = (field.number, field.value) {
                            permit.grow(PER_ENTRY)?;
                            // Of several entries with one key, the last one counts, as in any map of protobuf.
                            let (name, value) = numbers(label)?;
                            labels.insert(name, value);
                        }
                    }
                    snapshot.contexts.insert(key, labels);
                }
                2 => {
                    let (key, text) = entry_of(entry)?;
                    if text.len() > MAX_VALUE {
                        return Err(SnapshotError::Long);
                    }
                    permit.grow(PER_ENTRY + text.len())?;
                    let text = String::from_utf8_lossy(text).into_owned();
                    snapshot.strings.insert(key, text);
                }
                _ => {}
            }
        }
        Ok(snapshot)
    }

    /// Whether there are no labels.
    pub fn is_empty(&self) -> bool {
        self.contexts.is_empty()
    }

    /// Returns names and values of at most [`MAX_LABELS`] labels of a context. Labels without text are left out.
    pub fn labels(&self, context: i64) -> impl Iterator<Item = (&str, &str)> {
        let text = |id: &i64| self.strings.get(id).map(String::as_str);
        let pairs = self.contexts.get(&context).into_iter().flatten();
        pairs
            .filter_map(move |(name, value)| Some((text(name)?, text(value)?)))
            .take(MAX_LABELS)
    }

    /// Returns the contexts.
    pub fn contexts(&self) -> impl Iterator<Item = i64> {
        self.contexts.keys().copied()
    }
}

/// Returns key and value of an entry of a map whose values are bytes.
fn entry_of(entry: &[u8]) -> Result<(i64, &[u8]), WireFault> {
    let (mut key, mut value) = (0, &[][..]);
    for field in Fields::new(entry) {
        let field = field?;
        match (field.number, field.value) {
            (1, Value::Varint(number)) => key = number.cast_signed(),
            (2, Value::Bytes(bytes)) => value = bytes,
            _ => {}
        }
    }
    Ok((key, value))
}

/// Returns key and value of an entry of a map of numbers.
fn numbers(entry: &[u8]) -> Result<(i64, i64), WireFault> {
    let mut pair = (0, 0);
    for field in Fields::new(entry) {
        let field = field?;
        match (field.number, field.value) {
            (1, Value::Varint(number)) => pair.0 = number.cast_signed(),
            (2, Value::Varint(number)) => pair.1 = number.cast_signed(),
            _ => {}
        }
    }
    Ok(pair)
}

#[cfg(test)]
mod tests {
    use tributary_memory::Budget;
    use tributary_otlp::reader::put_varint;

    use super::*;

    /// Writes a field with bytes of fewer than 128.
    fn field(number: u8, bytes: &[u8]) -> Vec<u8> {
        let length = u8::try_from(bytes.len()).unwrap();
        [&[number << 3 | 2, length][..], bytes].concat()
    }

    fn message() -> Vec<u8> {
        let context = field(1, &[0x08, 1, 0x10, 2]);
        let context = [&[0x08, 7][..], &field(2, &context)].concat();
        let text = |id: u8, text: &[u8]| field(2, &[&[0x08, id][..], &field(2, text)].concat());
        [field(1, &context), text(1, b"route"), text(2, b"/cart")].concat()
    }

    #[test]
    fn labels_of_a_context_have_texts() {
        let mut permit = Budget::new(1 << 20).empty_permit();
        let snapshot = Snapshot::parse(&message(), &mut permit).unwrap();
        assert!(snapshot.labels(7).eq([("route", "/cart")]));
        assert_eq!(snapshot.labels(8).count(), 0);
        assert!(Snapshot::parse(b"", &mut permit).unwrap().is_empty());
    }

    #[test]
    fn context_has_each_name_once_and_few_labels() {
        let mut permit = Budget::new(1 << 20).empty_permit();
        let pair = |name: u8, value: u8| field(1, &[0x08, name, 0x10, value]);
        let context = |labels: Vec<u8>| {
            let mut entry = vec![0x08, 7, 0x12];
            put_varint(labels.len() as u64, &mut entry);
            entry.extend(labels);
            let mut message = vec![0x0a];
            put_varint(entry.len() as u64, &mut message);
            [message, entry].concat()
        };
        let text = |id: u8, text: &[u8]| field(2, &[&[0x08, id][..], &field(2, text)].concat());
        let twice = context([pair(1, 2).repeat(1000), pair(1, 3)].concat());
        let twice = [twice, text(1, b"route"), text(2, b"/a"), text(3, b"/b")].concat();
        let snapshot = Snapshot::parse(&twice, &mut permit).unwrap();
        assert!(snapshot.labels(7).eq([("route", "/b")]));

        let many = (1..100).flat_map(|id| pair(id, id)).collect();
        let mut message = context(many);
        message.extend((1..100).flat_map(|id| text(id, b"a")));
        let snapshot = Snapshot::parse(&message, &mut permit).unwrap();
        assert_eq!(snapshot.labels(7).count(), MAX_LABELS);
    }

    #[test]
    fn long_text_is_refused() {
        let mut permit = Budget::new(1 << 20).empty_permit();
        let mut text = vec![0x12];
        put_varint(MAX_VALUE as u64 + 1, &mut text);
        text.resize(text.len() + MAX_VALUE + 1, b'a');
        let mut message = vec![0x12];
        put_varint(text.len() as u64, &mut message);
        message.extend(text);
        let long = Snapshot::parse(&message, &mut permit);
        assert_eq!(long, Err(SnapshotError::Long));
    }

    #[test]
    fn damaged_or_large_message_is_refused() {
        let mut permit = Budget::new(1 << 20).empty_permit();
        let message = message();
        let cut = Snapshot::parse(&message[..message.len() - 1], &mut permit);
        assert!(matches!(cut, Err(SnapshotError::Wire(_))));
        let many = field(1, &[]).repeat(10_000);
        let full = Snapshot::parse(&many, &mut permit);
        assert!(matches!(full, Err(SnapshotError::NoRoom(_))));
    }
}
