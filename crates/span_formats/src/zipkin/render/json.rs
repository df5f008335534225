//! Writes Zipkin v2 as JSON.

use tributary_otlp::room::{Room, RoomExhausted, reserve};

use super::model::{Rendered, RenderedEndpoint, SpanTags};

/// A JSON list of spans.
pub(super) struct JsonList<'r> {
    room: &'r dyn Room,
    text: Vec<u8>,
}

impl<'r> JsonList<'r> {
    pub(super) fn new(room: &'r dyn Room) -> Self {
        JsonList {
            room,
            text: Vec::new(),
        }
    }

    pub(super) fn finish(mut self) -> Result<Vec<u8>, RoomExhausted> {
        self.raw(if self.text.is_empty() { "[]" } else { "]" })?;
        Ok(self.text)
    }

    pub(super) fn span(
        &mut self,
        span: &Rendered<'_>,
        tags: &SpanTags<'_, '_>,
    ) -> Result<(), RoomExhausted> {
        self.raw(if self.text.is_empty() { "[{" } else { ",{" })?;
        self.raw("\"traceId\":\"")?;
        // 64-bit ids are short, as in the Collector.
        let short = span.trace_id.strip_prefix(&[0; 8]);
        self.hex(short.unwrap_or(span.trace_id))?;
        self.raw("\",\"id\":\"")?;
        self.hex(span.span_id)?;
        if !span.parent_id.is_empty() {
            self.raw("\",\"parentId\":\"")?;
            self.hex(span.parent_id)?;
        }
        self.raw("\"")?;
        let start = rounded(span.start);
        if start > 0 {
            self.member("timestamp")?;
            self.raw(&start.to_string())?;
        }
        let duration = match span.duration {
            1..1000 => 1,
            longer => rounded(longer),
        };
        if duration > 0 {
            self.member("duration")?;
            self.raw(&duration.to_string())?;
        }
        if !span.name.is_empty() {
            self.member("name")?;
            self.lowercase(span.name)?;
        }
        if let Some((kind, _)) = span.kind {
            self.member("kind")?;
            self.quoted(kind)?;
        }
        for (key, endpoint) in [
            ("localEndpoint", &span.local),
            ("remoteEndpoint", &span.remote),
        ] {
            if let Some(endpoint) = endpoint {
                self.member(key)?;
                self.endpoint(endpoint)?;
            }
        }
        let mut separator = ",\"annotations\":[{";
        span.annotations(|time, text| {
            self.raw(separator)?;
            self.raw("\"timestamp\":")?;
            self.raw(&rounded(time).to_string())?;
            self.member("value")?;
            self.quoted(text)?;
            separator = "},{";
            Ok(())
        })?;
        if separator == "},{" {
            self.raw("}]")?;
        }
        let mut separator = ",\"tags\":{";
        for (key, value) in tags.iter() {
            self.raw(separator)?;
            self.quoted(key)?;
            self.raw(":")?;
            self.quoted(value)?;
            separator = ",";
        }
        self.raw(if separator == "," { "}}" } else { "}" })
    }

    fn endpoint(&mut self, endpoint: &RenderedEndpoint<'_>) -> Result<(), RoomExhausted> {
        self.raw("{")?;
        let begin = self.text.len();
        if !endpoint.service.is_empty() {
            self.raw("\"serviceName\":")?;
            self.lowercase(&endpoint.service)?;
        }
        if let Some(address) = endpoint.address {
            let key = if address.is_ipv4() {
                "\"ipv4\":\""
            } else {
                "\"ipv6\":\""
            };
            self.raw(if self.text.len() > begin { "," } else { "" })?;
            self.raw(key)?;
            self.raw(&crate::zipkin::address::text(address))?;
            self.raw("\"")?;
        }
        if endpoint.port > 0 {
            self.raw(if self.text.len() > begin { "," } else { "" })?;
            self.raw("\"port\":")?;
            self.raw(&endpoint.port.to_string())?;
        }
        self.raw("}")
    }

    fn raw(&mut self, text: &str) -> Result<(), RoomExhausted> {
        reserve(self.room, &mut self.text, text.len())?;
        self.text.extend_from_slice(text.as_bytes());
        Ok(())
    }

    fn member(&mut self, key: &str) -> Result<(), RoomExhausted> {
        self.raw(",\"")?;
        self.raw(key)?;
        self.raw("\":")
    }

    fn hex(&mut self, id: &[u8]) -> Result<(), RoomExhausted> {
        reserve(self.room, &mut self.text, 2 * id.len())?;
        for byte in id {
            for digit in [byte >> 4, byte & 0xf] {
                let digit = char::from_digit(digit.into(), 16).unwrap_or('0');
                self.text.push(digit as u8);
            }
        }
        Ok(())
    }

    /// Writes a name as Zipkin stores it.
    fn lowercase(&mut self, text: &str) -> Result<(), RoomExhausted> {
        if !text.chars().any(char::is_uppercase) {
            return self.quoted(text);
        }
        // A lowercase letter may be longer.
        let copy = text.len().saturating_mul(2);
        self.room.take(copy)?;
        let written = self.quoted(&text.to_lowercase());
        self.room.release(copy);
        written
    }

    fn quoted(&mut self, text: &str) -> Result<(), RoomExhausted> {
        let escapes = text
            .bytes()
            .filter(|byte| matches!(byte, b'"' | b'\\' | 0..0x20));
        reserve(
            self.room,
            &mut self.text,
            text.len() + 2 + 5 * escapes.count(),
        )?;
        // Writing a string to memory cannot fail.
        let _ = serde_json::to_writer(&mut self.text, text);
        Ok(())
    }
}

/// Returns whole microseconds, rounded.
fn rounded(nanoseconds: u64) -> u64 {
    nanoseconds.saturating_add(500) / 1000
}
