//! The journal: requests that are not in a block yet, in the order of arrival.
//!
//! ```text
//! file:    "TRIBJRNL" version:u32
//! record:  length:u32 crc:u32 arrival:u64 request
//! ```
//!
//! Numbers are little-endian. `length` and `crc` (CRC-32C) cover the arrival time and the request. The first record
//! with a wrong checksum ends the journal: a crash interrupted its write, and its sender was not acknowledged.

use std::io;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;

use super::disk::{Input, Output};

const MAGIC: [u8; 8] = *b"TRIBJRNL";
const VERSION: u32 = 1;
const HEADER: usize = MAGIC.len() + size_of::<u32>();
const RECORD_HEADER: usize = 8;
const ARRIVAL: usize = 8;
/// Maximum size of a request, in bytes. The request limits of all receivers are lower.
pub(crate) const MAX_REQUEST_BYTES: usize = 1 << 30;

/// The journal of the open window.
///
/// Appends use group commit: while one thread writes and syncs, new records are buffered, and the next write includes
/// all of them. After a failed write the journal accepts no more records, because the state of the file is unknown.
#[derive(Debug)]
pub(crate) struct Journal {
    state: Mutex<State>,
    /// The file. One thread at a time writes it.
    output: Mutex<Box<dyn Output>>,
    written: Condvar,
}

#[derive(Debug, Default)]
struct State {
    gathered: Vec<u8>,
    appended: u64,
    durable: u64,
    is_writing: bool,
    failure: Option<String>,
    bytes: u64,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Record {
    /// Time of arrival, in nanoseconds since 1970.
    pub(crate) arrival: u64,
    pub(crate) request: Bytes,
}

impl Journal {
    /// Begins a journal in an empty file.
    pub(crate) fn begin(mut output: Box<dyn Output>) -> io::Result<Self> {
        let mut header = MAGIC.to_vec();
        header.extend(VERSION.to_le_bytes());
        output.write(&header)?;
        output.sync()?;
        Ok(Journal {
            state: Mutex::new(State {
                bytes: HEADER as u64,
                ..State::default()
            }),
            output: Mutex::new(output),
            written: Condvar::new(),
        })
    }

    /// Appends a record, and waits until the record is durable.
    ///
    /// # Errors
    /// The disk returned an error, now or earlier.
    pub(crate) fn append(&self, record: &Record) -> Result<(), String> {
        let mut state = self.lock();
        if let Some(failure) = &state.failure {
            return Err(failure.clone());
        }
        encode(record, &mut state.gathered);
        state.appended += 1;
        let own = state.appended;
        loop {
            if state.durable >= own {
                return Ok(());
            }
            if let Some(failure) = &state.failure {
                return Err(failure.clone());
            }
            if state.is_writing {
                let waited = self.written.wait(state);
                state = waited.unwrap_or_else(PoisonError::into_inner);
                continue;
            }
            state.is_writing = true;
            let gathered = std::mem::take(&mut state.gathered);
            let last = state.appended;
            drop(state);
            let result = self.write(&gathered);
            state = self.lock();
            state.is_writing = false;
            match result {
                Ok(()) => {
                    state.durable = last;
                    state.bytes += gathered.len() as u64;
                }
                Err(error) => state.failure = Some(error.to_string()),
            }
            self.written.notify_all();
        }
    }

    fn write(&self, bytes: &[u8]) -> io::Result<()> {
        let mut output = self.output.lock().unwrap_or_else(PoisonError::into_inner);
        output.write(bytes)?;
        output.sync()
    }

    /// Whether a write failed, so that the journal accepts no more records.
    pub(crate) fn has_failed(&self) -> bool {
        self.lock().failure.is_some()
    }

    /// Number of appended records, durable or not.
    #[cfg(test)]
    pub(crate) fn appended(&self) -> u64 {
        self.lock().appended
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.lock().bytes
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn encode(record: &Record, into: &mut Vec<u8>) {
    let arrival = record.arrival.to_le_bytes();
    let crc = crc32c::crc32c_append(crc32c::crc32c(&arrival), &record.request);
    let length = u32::try_from(ARRIVAL + record.request.len()).unwrap_or(u32::MAX);
    into.extend(length.to_le_bytes());
    into.extend(crc.to_le_bytes());
    into.extend(arrival);
    into.extend_from_slice(&record.request);
}

/// Reads a journal. The flag is true if the journal ends with a record that is not whole.
///
/// # Errors
/// The disk returned an error; of the kind `InvalidData` if the file has records and no header.
pub(crate) fn read(input: &dyn Input) -> io::Result<(Vec<Record>, bool)> {
    let len = usize::try_from(input.len()?).unwrap_or(usize::MAX);
    let mut records = Vec::new();
    if len < HEADER {
        return Ok((records, len > 0));
    }
    let header = input.read(0, HEADER)?;
    if header.get(..MAGIC.len()) != Some(&MAGIC) || number(&header, MAGIC.len()) != Some(VERSION) {
        return match len {
            HEADER => Ok((records, true)),
            _ => Err(io::ErrorKind::InvalidData.into()),
        };
    }
    let mut at = HEADER;
    while at < len {
        let Some(record) = record(input, at, len)? else {
            return Ok((records, true));
        };
        at += RECORD_HEADER + ARRIVAL + record.request.len();
        records.push(record);
    }
    Ok((records, false))
}

/// Reads the record at an offset; `None` for an incomplete record.
fn record(input: &dyn Input, at: usize, end: usize) -> io::Result<Option<Record>> {
    if end - at < RECORD_HEADER + ARRIVAL {
        return Ok(None);
    }
    let header = input.read(at as u64, RECORD_HEADER)?;
    let (Some(length), Some(crc)) = (number(&header, 0), number(&header, 4)) else {
        return Ok(None);
    };
    let length = length as usize;
    if length < ARRIVAL || length > end - at - RECORD_HEADER {
        return Ok(None);
    }
    let content = input.read((at + RECORD_HEADER) as u64, length)?;
    if crc32c::crc32c(&content) != crc {
        return Ok(None);
    }
    let Some(arrival) = content.first_chunk() else {
        return Ok(None);
    };
    Ok(Some(Record {
        arrival: u64::from_le_bytes(*arrival),
        request: Bytes::from(content).slice(ARRIVAL..),
    }))
}

fn number(bytes: &[u8], at: usize) -> Option<u32> {
    let bytes = bytes.get(at..)?.first_chunk()?;
    Some(u32::from_le_bytes(*bytes))
}
