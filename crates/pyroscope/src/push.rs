//! Requests of `push.v1.PusherService/Push`.
//!
//! ```proto
//! message PushRequest { repeated RawProfileSeries series = 1; }
//! message RawProfileSeries { repeated LabelPair labels = 1; repeated RawSample samples = 2; }
//! message LabelPair { string name = 1; string value = 2; }
//! message RawSample { bytes raw_profile = 1; string ID = 2; }
//! ```

mod json;

use bytes::Bytes;
use tributary_memory::NoRoom;
use tributary_otlp::reader::{Fields, Value, WireFault, put_varint, varint_len};

pub use self::json::from_json;
use crate::labels::{Label, LabelError, MAX_LABELS, check};

/// Maximum number of series in a request.
pub const MAX_SERIES: usize = 1024;
/// Maximum number of profiles in a series.
pub const MAX_SAMPLES: usize = 64;

/// A series: profiles with the same labels.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Series {
    /// The labels, each once.
    pub labels: Vec<Label>,
    /// The profiles: pprof files, with or without gzip.
    pub profiles: Vec<Bytes>,
}

/// The reason why a request is refused.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum PushError {
    /// The bytes are not the message.
    #[error("the request is not a PushRequest: {}", .0.text())]
    Wire(WireFault),
    /// A label is not UTF-8.
    #[error("the request is not a PushRequest: a label is not UTF-8")]
    NotText,
    /// The text is not the message as JSON.
    #[error("the request is not a PushRequest as JSON: {0}")]
    Json(String),
    /// There are too many series.
    #[error("the request has more than {MAX_SERIES} series; send fewer")]
    TooManySeries,
    /// There are too many profiles in a series.
    #[error("a series has more than {MAX_SAMPLES} profiles; send fewer")]
    TooManySamples,
    /// A label is not acceptable.
    #[error(transparent)]
    Label(#[from] LabelError),
    /// The memory budget has no room for the request.
    #[error("{0}")]
    NoRoom(#[from] NoRoom),
}

impl From<WireFault> for PushError {
    fn from(fault: WireFault) -> Self {
        PushError::Wire(fault)
    }
}

/// Reads a request in protobuf encoding. The profiles are slices of the request.
///
/// # Errors
/// See [`PushError`].
pub fn from_protobuf(request: &Bytes) -> Result<Vec<Series>, PushError> {
    let mut all = Vec::new();
    for (number, message) in messages(request) {
        let message = message?;
        if number == 1 {
            if all.len() == MAX_SERIES {
                return Err(PushError::TooManySeries);
            }
            all.push(series(request, message)?);
        }
    }
    Ok(all)
}

fn series(request: &Bytes, message: &[u8]) -> Result<Series, PushError> {
    let mut series = Series::default();
    for (number, message) in messages(message) {
        let message = message?;
        match number {
            1 => {
                let [name, value] = pair(message)?;
                let text = |bytes| str::from_utf8(bytes).map_err(|_| PushError::NotText);
                series.label(text(name)?, text(value)?)?;
            }
            2 => {
                let [profile, _id] = pair(message)?;
                series.profile(request.slice_ref(profile))?;
            }
            _ => {}
        }
    }
    Ok(series)
}

impl Series {
    /// Adds a label. Of equal names, the last one counts.
    fn label(&mut self, name: &str, value: &str) -> Result<(), PushError> {
        check(name, value)?;
        self.labels.retain(|(known, _)| known != name);
        if self.labels.len() == MAX_LABELS {
            return Err(LabelError::TooMany.into());
        }
        self.labels.push((name.to_owned(), value.to_owned()));
        Ok(())
    }

    fn profile(&mut self, profile: Bytes) -> Result<(), PushError> {
        if self.profiles.len() == MAX_SAMPLES {
            return Err(PushError::TooManySamples);
        }
        self.profiles.push(profile);
        Ok(())
    }
}

/// Returns the fields with bytes, by number.
fn messages(message: &[u8]) -> impl Iterator<Item = (u32, Result<&[u8], WireFault>)> {
    Fields::new(message).filter_map(|field| match field {
        Err(fault) => Some((0, Err(fault))),
        Ok(field) => match field.value {
            Value::Bytes(bytes) => Some((field.number, Ok(bytes))),
            _ => None,
        },
    })
}

/// Returns the fields 1 and 2 of a message, which have bytes.
fn pair(message: &[u8]) -> Result<[&[u8]; 2], WireFault> {
    let mut pair = [&[][..]; 2];
    for (number, bytes) in messages(message) {
        let bytes = bytes?;
        match number {
            1 => pair[0] = bytes,
            2 => pair[1] = bytes,
            _ => {}
        }
    }
    Ok(pair)
}

/// Writes a series with one profile, as a field of a request. Fields of several calls are one request.
pub fn put_series(labels: &[Label], profile: &[u8], id: &str, into: &mut Vec<u8>) {
    let pairs = || {
        labels.iter().map(|(name, value)| {
            let fields = [(1, name.as_bytes()), (2, value.as_bytes())];
            (fields, field_len(name.len()) + field_len(value.len()))
        })
    };
    let sample = [(1, profile), (2, id.as_bytes())];
    let sample_len = field_len(profile.len()) + field_len(id.len());
    let series_len = pairs().map(|(_, len)| field_len(len)).sum::<usize>() + field_len(sample_len);
    into.reserve(field_len(series_len));
    put_head(1, series_len, into);
    for (fields, len) in pairs() {
        put_head(1, len, into);
        for (number, bytes) in fields {
            put_bytes(number, bytes, into);
        }
    }
    put_head(2, sample_len, into);
    for (number, bytes) in sample {
        put_bytes(number, bytes, into);
    }
}

fn put_bytes(number: u8, bytes: &[u8], into: &mut Vec<u8>) {
    put_head(number, bytes.len(), into);
    into.extend_from_slice(bytes);
}

/// Writes the key and the length of a field with bytes.
fn put_head(number: u8, len: usize, into: &mut Vec<u8>) {
    into.push(number << 3 | 2);
    put_varint(len as u64, into);
}

/// Returns the length of a field whose content has this length; field numbers are below 16.
fn field_len(len: usize) -> usize {
    1 + varint_len(len as u64) + len
}

#[cfg(test)]
mod tests {
    use super::*;

    fn label(name: &str, value: &str) -> Label {
        (name.to_owned(), value.to_owned())
    }

    #[test]
    fn written_request_is_read_again() {
        let labels = [label("__name__", "memory"), label("service_name", "shop")];
        let mut request = Vec::new();
        put_series(&labels, b"file", "id", &mut request);
        put_series(&[], &[7; 300], "", &mut request);
        let all = from_protobuf(&request.into()).unwrap();
        let expected = |labels: &[Label], profile: &[u8]| Series {
            labels: labels.to_vec(),
            profiles: vec![Bytes::copy_from_slice(profile)],
        };
        assert_eq!(all, [expected(&labels, b"file"), expected(&[], &[7; 300])]);
    }

    #[test]
    fn request_is_bounded_in_series_profiles_and_labels() {
        let read = |request: Vec<u8>| from_protobuf(&request.into()).map(|all| all.len());
        assert_eq!(read([0x0a, 0].repeat(MAX_SERIES)), Ok(MAX_SERIES));
        let many = read([0x0a, 0].repeat(MAX_SERIES + 1));
        assert_eq!(many, Err(PushError::TooManySeries));
        let series = |inner: Vec<u8>| {
            let mut request = vec![0x0a];
            put_varint(inner.len() as u64, &mut request);
            [request, inner].concat()
        };
        let samples = series([0x12, 0].repeat(MAX_SAMPLES + 1));
        assert_eq!(read(samples), Err(PushError::TooManySamples));
        let labels: Vec<u8> = (b'a'..=b'z')
            .flat_map(|a| (b'a'..=b'c').map(move |b| [0x0a, 4, 0x0a, 2, a, b]))
            .flatten()
            .collect();
        let too_many = Err(PushError::Label(LabelError::TooMany));
        assert_eq!(read(series(labels)), too_many);
        let unnamed = read(series(vec![0x0a, 0]));
        assert!(matches!(
            unnamed,
            Err(PushError::Label(LabelError::Name(_)))
        ));
    }

    #[test]
    fn damaged_request_is_refused() {
        for request in [&[0x0a, 5][..], b"name", &[0x0a, 2, 0x0a, 9]] {
            let read = from_protobuf(&Bytes::copy_from_slice(request));
            assert!(matches!(read, Err(PushError::Wire(_))), "{request:?}");
        }
    }
}
