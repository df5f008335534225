//! A set of attributes that is about to be written.

use std::borrow::Cow;

use tributary_otlp::room::RoomExhausted;

use crate::memory::Memory;

/// A value of an attribute.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Value<'a> {
    Text(Cow<'a, str>),
    Bool(bool),
    Int(i64),
    Double(f64),
    Bytes(&'a [u8]),
}

impl<'a> Value<'a> {
    /// Returns the text of a value; empty for other values, as `pcommon.Value.Str` does.
    pub(crate) fn text(&self) -> &str {
        match self {
            Value::Text(text) => text,
            _ => "",
        }
    }

    /// Like [`text`](Self::text), without a copy.
    pub(crate) fn into_text(self) -> Cow<'a, str> {
        match self {
            Value::Text(text) => text,
            _ => Cow::Borrowed(""),
        }
    }
}

/// Attributes in the order of their arrival. Keys are distinct after [`deduplicate`](AttributeSet::deduplicate).
#[derive(Debug, Default, Clone, PartialEq)]
pub(crate) struct AttributeSet<'a> {
    entries: Vec<(Cow<'a, str>, Value<'a>)>,
}

/// Maximum number of attributes that are compared pairwise.
const FEW: usize = 16;

impl<'a> AttributeSet<'a> {
    pub(crate) fn clear(&mut self) {
        self.entries.clear();
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &(Cow<'a, str>, Value<'a>)> {
        self.entries.iter()
    }

    /// Appends an attribute, whose key may exist.
    pub(crate) fn add(
        &mut self,
        memory: &Memory<'_>,
        key: Cow<'a, str>,
        value: Value<'a>,
    ) -> Result<(), RoomExhausted> {
        memory.push(&mut self.entries, (key, value))
    }

    /// Keeps the last value of each key.
    pub(crate) fn deduplicate(&mut self, memory: &Memory<'_>) -> Result<(), RoomExhausted> {
        if self.entries.len() <= FEW {
            let mut at = 0;
            while at < self.entries.len() {
                let (earlier, later) = self.entries.split_at(at + 1);
                let key = earlier.last().map(|(key, _)| key);
                match later.iter().any(|(other, _)| Some(other) == key) {
                    true => drop(self.entries.remove(at)),
                    false => at += 1,
                }
            }
            return Ok(());
        }
        // Hostile clients send many attributes; the cost must stay below the square of their number.
        let bytes = self.entries.len() * (size_of::<usize>() + 1);
        memory.room.take(bytes)?;
        let mut order: Vec<usize> = (0..self.entries.len()).collect();
        let key = |at: &usize| self.entries.get(*at).map(|(key, _)| key);
        order.sort_by(|left, right| key(left).cmp(&key(right)).then(left.cmp(right)));
        let mut is_last = vec![true; self.entries.len()];
        for pair in order.windows(2) {
            if let [earlier, later] = pair
                && key(earlier) == key(later)
                && let Some(is_last) = is_last.get_mut(*earlier)
            {
                *is_last = false;
            }
        }
        let mut kept = is_last.iter();
        self.entries
            .retain(|_| kept.next().copied().unwrap_or(true));
        memory.room.release(bytes);
        Ok(())
    }

    pub(crate) fn get(&self, key: &str) -> Option<&Value<'a>> {
        let mut entries = self.entries.iter();
        entries
            .find(|(other, _)| other == key)
            .map(|(_, value)| value)
    }

    /// Removes an attribute.
    pub(crate) fn take(&mut self, key: &str) -> Option<Value<'a>> {
        let at = self.entries.iter().position(|(other, _)| other == key)?;
        Some(self.entries.remove(at).1)
    }

    /// Sets the value of a key.
    pub(crate) fn put(
        &mut self,
        memory: &Memory<'_>,
        key: &'static str,
        value: Value<'a>,
    ) -> Result<(), RoomExhausted> {
        match self.entries.iter_mut().find(|(other, _)| other == key) {
            Some((_, old)) => *old = value,
            None => self.add(memory, Cow::Borrowed(key), value)?,
        }
        Ok(())
    }

    /// Keeps the attributes for which `keep` returns true; `keep` may change them.
    pub(crate) fn retain(
        &mut self,
        mut keep: impl FnMut(&mut Cow<'a, str>, &mut Value<'a>) -> bool,
    ) {
        self.entries.retain_mut(|(key, value)| keep(key, value));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tributary_otlp::room::Unbounded;

    #[test]
    fn last_value_of_each_key_remains() {
        for count in [FEW, 40] {
            let memory = Memory::new(&Unbounded);
            let mut set = AttributeSet::default();
            for at in 0..count {
                let key = format!("k{}", at % 5);
                set.add(&memory, key.into(), Value::Int(at as i64)).unwrap();
            }
            set.deduplicate(&memory).unwrap();
            let values = set.iter().map(|(_, value)| value.clone());
            let last = (count - 5..count).map(|at| Value::Int(at as i64));
            assert!(values.eq(last), "{set:?}");
            let last_k0 = (count as i64 - 1) / 5 * 5;
            assert_eq!(set.take("k0"), Some(Value::Int(last_k0)));
            assert_eq!(set.get("k0"), None);
        }
    }
}
