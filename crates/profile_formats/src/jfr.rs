//! Recordings of Java Flight Recorder, version 2, as written by the JDK and by async-profiler.
//!
//! A recording is a list of chunks, each with its own metadata and constants. Therefore memory is bounded by the largest
//! chunk, besides the profiles. Each chunk is read twice: for constants and settings, and for samples.

mod constants;
mod cursor;
mod events;
mod metadata;
mod settings;
mod stacks;

use self::constants::Constants;
use self::cursor::Cursor;
use self::events::Events;
use self::metadata::Metadata;
use self::settings::Settings;
pub use self::stacks::CONTEXT;
use self::stacks::event;
use crate::builder::Builder;
use crate::error::Fault;

const MAGIC: &[u8] = b"FLR\0";
const HEADER: usize = 68;
/// Types of events that have no class.
const METADATA: i64 = 0;
const CHECKPOINT: i64 = 1;
/// Memory of the metadata of a chunk for each byte: an empty text has one byte, and takes an allocation and its entry.
const METADATA_PER_BYTE: usize = 64;

pub(crate) fn begins_like(bytes: &[u8]) -> bool {
    bytes.starts_with(MAGIC)
}

pub(crate) fn read(bytes: &[u8], builder: &mut Builder<'_>) -> Result<(), Fault> {
    let (mut start, mut end) = (u64::MAX, 0);
    let mut at = 0;
    // async-profiler writes the settings into the first chunk only.
    let mut settings = Settings::default();
    while at < bytes.len() {
        let rest = bytes.get(at..).unwrap_or_default();
        let header = Header::read(rest, at)?;
        let chunk = rest.get(..header.size).unwrap_or_default();
        let cursor = Cursor::new(chunk, at, header.compressed);
        read_chunk(cursor, &header, &mut settings, builder)?;
        start = start.min(header.start);
        end = end.max(header.start.saturating_add(header.duration));
        at += header.size;
    }
    if at == 0 {
        return Err(Fault::whole("the recording has no chunks"));
    }
    builder.arrange(&events::order());
    builder.cover(start, end.saturating_sub(start));
    Ok(())
}

/// The header of a chunk.
struct Header {
    size: usize,
    metadata: usize,
    /// Nanoseconds since 1970.
    start: u64,
    /// Nanoseconds.
    duration: u64,
    ticks_per_second: u64,
    compressed: bool,
}

impl Header {
    /// Reads a header and checks the size of its chunk. `at` is the offset in the file.
    fn read(rest: &[u8], at: usize) -> Result<Self, Fault> {
        let mut cursor = Cursor::new(rest, at, false);
        if !rest.starts_with(MAGIC) {
            return Err(cursor.fault("the header of a chunk is missing; the recording is damaged"));
        }
        if rest.len() < HEADER {
            return Err(cursor.fault("the recording ends in the header of a chunk"));
        }
        cursor.take(MAGIC.len())?;
        let (major, minor) = (cursor.integer(2)?, cursor.integer(2)?);
        if major != 2 {
            return Err(cursor.fault(format!(
                "version {major}.{minor} is not supported; record with JDK 8u262 or newer, or with async-profiler"
            )));
        }
        let mut number = || cursor.long().map(i64::cast_unsigned);
        let (size, _, metadata) = (number()?, number()?, number()?);
        let (start, duration, _, ticks_per_second) = (number()?, number()?, number()?, number()?);
        let size = usize::try_from(size).unwrap_or(usize::MAX);
        let left = rest.len();
        if size > left {
            return Err(Cursor::new(rest, at, false).fault(format!(
                "a chunk has {size} bytes, but only {left} are left; the recording is truncated"
            )));
        }
        if size < HEADER || metadata == 0 {
            return Err(Cursor::new(rest, at, false).fault(
                "a chunk is not finished; stop or dump the recording before you copy its file",
            ));
        }
        Ok(Header {
            size,
            metadata: usize::try_from(metadata).unwrap_or(usize::MAX),
            start,
            duration,
            ticks_per_second,
            compressed: cursor.integer(4)? & 1 == 1,
        })
    }
}

fn read_chunk(
    chunk: Cursor<'_>,
    header: &Header,
    known: &mut Settings,
    builder: &mut Builder<'_>,
) -> Result<(), Fault> {
    let size = chunk.moved(header.metadata).count()?;
    let charged = size.min(metadata::MOST) * METADATA_PER_BYTE;
    builder.grow(charged)?;
    let metadata = Metadata::read(&mut chunk.moved(header.metadata))?;
    let setting = metadata.id("jdk.ActiveSetting");
    let mut constants = Constants::new(chunk, metadata);
    let mut settings = Vec::new();
    each_event(chunk, |mut cursor, kind| {
        if kind == CHECKPOINT {
            constants.add(&mut cursor, builder)?;
        } else if Some(kind) == setting && settings.len() < SETTINGS {
            settings.push((cursor, kind));
        }
        Ok(())
    })?;
    for (mut cursor, kind) in settings {
        known.add(&constants, &mut cursor, kind)?;
    }
    let mut events = Events::new(&chunk, &constants, known, header.ticks_per_second)?;
    let mut converted = 0;
    each_event(chunk, |mut cursor, kind| {
        if kind == METADATA || kind == CHECKPOINT {
            return Ok(());
        }
        events.add(&mut cursor, kind, builder)?;
        let lacking = events.stacks.bytes().saturating_sub(converted);
        if lacking > CHARGED {
            builder.grow(lacking)?;
            converted += lacking;
        }
        Ok(())
    })?;
    builder.shrink(charged + constants.charged + converted);
    Ok(())
}

/// Maximum number of settings of a chunk. A JDK has about 500.
const SETTINGS: usize = 1 << 14;
/// Memory of converted constants that is accounted for together, in bytes.
const CHARGED: usize = 64 << 10;

fn each_event<'c>(
    chunk: Cursor<'c>,
    mut each: impl FnMut(Cursor<'c>, i64) -> Result<(), Fault>,
) -> Result<(), Fault> {
    let mut at = HEADER;
    while at < chunk.end() {
        let (inside, kind, end) = event(chunk.moved(at))?;
        each(inside, kind)?;
        at = end;
    }
    Ok(())
}
