//! Reader of complete records in a file while other processes append to it.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::PathBuf;

use bytes::Bytes;
use serde::de::IgnoredAny;

pub(super) use super::positions::identity_of;
use super::positions::{Position, Positions, head};
use tributary_net::files::open_regular;

/// Separation of records.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Framing {
    /// Each record is a line.
    Lines,
    /// Each record follows its length in 4 bytes, most significant first.
    Lengths,
}

/// Bytes per read.
const CHUNK: usize = 1 << 20;
/// Bytes of a length.
const PREFIX: usize = 4;

/// Position in an open file. The reader follows a renamed file.
#[derive(Debug)]
pub(super) struct Tail {
    pub(super) path: PathBuf,
    file: File,
    pub(super) identity: (u64, u64),
    /// Position up to which records are finished.
    offset: u64,
    /// Number of the record at `offset`, from 1. Lines are counted only if the file was read from
    /// the beginning.
    number: u64,
    /// Whether the data at `offset` is the remainder of a skipped line.
    in_skipped: bool,
    /// Size of the file when its last line, without a newline, was last examined.
    looked_at: u64,
}

/// A record that was read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Record {
    /// Content of the record, or `None` if the record is larger than the limit.
    pub(super) content: Option<Bytes>,
    pub(super) offset: u64,
    /// Number of the record, from 1.
    pub(super) number: u64,
    after: After,
}

/// Position after a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct After {
    offset: u64,
    number: u64,
    in_skipped: bool,
}

impl Tail {
    /// Opens a file, at its beginning.
    pub(super) fn open(path: PathBuf) -> io::Result<Self> {
        let file = open_regular(&path)?;
        let identity = identity_of(&file.metadata()?);
        Ok(Tail {
            path,
            file,
            identity,
            offset: 0,
            number: 1,
            in_skipped: false,
            looked_at: 0,
        })
    }

    /// Moves to the end. A record that is being written is skipped as a whole.
    pub(super) fn skip_to_end(&mut self, framing: Framing) -> io::Result<()> {
        let len = self.file.metadata()?.len();
        match framing {
            Framing::Lines => {
                let mut last = [b'\n'];
                if len > 0 {
                    self.file.read_exact_at(&mut last, len - 1)?;
                }
                self.offset = len;
                self.in_skipped = last != [b'\n'];
            }
            Framing::Lengths => {
                let mut prefix = [0; PREFIX];
                while len - self.offset >= PREFIX as u64 {
                    self.file.read_exact_at(&mut prefix, self.offset)?;
                    let next = self.offset + PREFIX as u64 + u64::from(u32::from_be_bytes(prefix));
                    if next > len {
                        break;
                    }
                    self.offset = next;
                    self.number += 1;
                }
            }
        }
        Ok(())
    }

    /// Seeks to the stored position of this file, if there is one. Returns whether there was one.
    pub(super) fn resume(&mut self, positions: &Positions) -> io::Result<bool> {
        let Some(position) = positions.of(&self.file)? else {
            return Ok(false);
        };
        (self.offset, self.number) = (position.offset, position.number);
        self.in_skipped = position.in_skipped;
        Ok(true)
    }

    /// Returns the offset up to which all records are finished.
    pub(super) fn offset(&self) -> u64 {
        self.offset
    }

    pub(super) fn position(&self) -> io::Result<Position> {
        Ok(Position {
            path: self.path.clone(),
            device: self.identity.0,
            inode: self.identity.1,
            offset: self.offset,
            number: self.number,
            in_skipped: self.in_skipped,
            head: head(&self.file, self.offset)?,
        })
    }

    /// Moves to the beginning.
    pub(super) fn rewind(&mut self) {
        (self.offset, self.number) = (0, 1);
        (self.in_skipped, self.looked_at) = (false, 0);
    }

    /// Moves the position past a finished record.
    pub(super) fn passed(&mut self, record: &Record) {
        self.offset = record.after.offset;
        self.number = record.after.number;
        self.in_skipped = record.after.in_skipped;
    }

    /// Returns new complete records of at most `limit` bytes each. The position does not change. The
    /// flag is true if the file was truncated and is read from its beginning.
    pub(super) fn read(
        &mut self,
        framing: Framing,
        limit: usize,
    ) -> io::Result<(Vec<Record>, bool)> {
        let len = self.file.metadata()?.len();
        let cut = len < self.offset;
        if cut {
            self.rewind();
        }
        let records = match framing {
            Framing::Lines => self.lines(len, limit)?,
            Framing::Lengths => self.messages(len, limit)?,
        };
        Ok((records, cut))
    }

    fn lines(&mut self, len: u64, limit: usize) -> io::Result<Vec<Record>> {
        if len > self.offset && len == self.looked_at {
            return Ok(Vec::new());
        }
        let mut buffer = self.bytes(len, CHUNK)?;
        let is_piece =
            memchr::memchr(b'\n', &buffer).is_none() && buffer.len() as u64 != len - self.offset;
        if is_piece && !self.in_skipped && buffer.len() <= limit {
            buffer = self.bytes(len, limit.saturating_add(1))?;
        }
        let mut records = Vec::new();
        let mut at = After {
            offset: self.offset,
            number: self.number,
            in_skipped: self.in_skipped,
        };
        let mut start = 0;
        for newline in memchr::memchr_iter(b'\n', &buffer) {
            let line = buffer.slice(start..newline);
            let offset = at.offset;
            let was_skipped = at.in_skipped;
            start = newline + 1;
            at.offset = self.offset + start as u64;
            let number = at.number;
            at.number += 1;
            at.in_skipped = false;
            let content = match () {
                // The skipped line has already been reported.
                () if was_skipped => Some(Bytes::new()),
                () if line.len() > limit => None,
                () => Some(line),
            };
            records.push(Record {
                content,
                offset,
                number,
                after: at,
            });
        }
        if !records.is_empty() || buffer.is_empty() {
            return Ok(records);
        }
        // The last line may be incomplete. A line is complete if it parses as JSON, because no prefix
        // of an object is an object.
        let end = After {
            offset: self.offset + buffer.len() as u64,
            ..at
        };
        let record = |content, in_skipped| Record {
            content,
            offset: self.offset,
            number: self.number,
            after: After { in_skipped, ..end },
        };
        if self.in_skipped {
            return Ok(vec![record(Some(Bytes::new()), true)]);
        }
        if buffer.len() > limit {
            return Ok(vec![record(None, true)]);
        }
        let is_whole = buffer.trim_ascii_end().ends_with(b"}")
            && serde_json::from_slice::<IgnoredAny>(&buffer).is_ok();
        if is_whole {
            return Ok(vec![record(Some(buffer), false)]);
        }
        self.looked_at = end.offset;
        Ok(Vec::new())
    }

    fn messages(&self, len: u64, limit: usize) -> io::Result<Vec<Record>> {
        let mut records = Vec::new();
        let mut buffer = self.bytes(len, CHUNK)?;
        let (mut start, mut offset, mut number) = (0, self.offset, self.number);
        while let Some(prefix) = buffer.get(start..).and_then(|rest| rest.first_chunk()) {
            let size = u32::from_be_bytes(*prefix);
            let end = offset + PREFIX as u64 + u64::from(size);
            if end > len {
                break;
            }
            let size = usize::try_from(size).unwrap_or(usize::MAX);
            let body = start + PREFIX;
            let is_too_large = size > limit;
            if !is_too_large && buffer.len() - body < size {
                if !records.is_empty() {
                    break;
                }
                buffer = self.bytes(len, PREFIX + size)?;
                if buffer.len() < PREFIX + size {
                    break;
                }
            }
            let content = (!is_too_large).then(|| buffer.slice(body..body + size));
            let after = After {
                offset: end,
                number: number + 1,
                in_skipped: false,
            };
            records.push(Record {
                content,
                offset,
                number,
                after,
            });
            if is_too_large {
                break;
            }
            start = body + size;
            (offset, number) = (end, number + 1);
        }
        Ok(records)
    }

    /// Returns at most `max` bytes at the position.
    fn bytes(&self, len: u64, max: usize) -> io::Result<Bytes> {
        let left = usize::try_from(len - self.offset).unwrap_or(usize::MAX);
        let mut buffer = vec![0; left.min(max)];
        let mut filled = 0;
        while let Some(rest) = buffer.get_mut(filled..).filter(|rest| !rest.is_empty()) {
            match self.file.read_at(rest, self.offset + filled as u64) {
                Ok(0) => break,
                Ok(read) => filled += read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        buffer.truncate(filled);
        Ok(buffer.into())
    }
}

#[cfg(test)]
mod tests {
    use std::fs::OpenOptions;
    use std::io::Write as _;

    use tempfile::TempDir;

    use super::*;

    struct Trial {
        path: PathBuf,
        tail: Tail,
        framing: Framing,
        _directory: TempDir,
    }

    #[test]
    fn fifo_is_refused_without_waiting_for_its_writer() {
        let directory = TempDir::new().unwrap();
        let path = directory.path().join("fifo");
        let made = std::process::Command::new("mkfifo").arg(&path).status();
        assert!(made.unwrap().success());
        let error = Tail::open(path).unwrap_err().to_string();
        assert!(error.ends_with("is a FIFO, not a regular file"), "{error}");
    }

    impl Trial {
        fn new(framing: Framing, content: &[u8]) -> Self {
            let directory = TempDir::new().unwrap();
            let path = directory.path().join("file");
            std::fs::write(&path, content).unwrap();
            Trial {
                tail: Tail::open(path.clone()).unwrap(),
                path,
                framing,
                _directory: directory,
            }
        }

        fn append(&self, content: &[u8]) {
            let mut file = OpenOptions::new().append(true).open(&self.path).unwrap();
            file.write_all(content).unwrap();
        }

        /// Returns all records as texts, with their numbers.
        fn rest(&mut self, limit: usize) -> Vec<(u64, String)> {
            let mut all = Vec::new();
            loop {
                let (records, _) = self.tail.read(self.framing, limit).unwrap();
                if records.is_empty() {
                    return all;
                }
                for record in records {
                    let text = match &record.content {
                        Some(content) => String::from_utf8(content.to_vec()).unwrap(),
                        None => "too large".to_owned(),
                    };
                    if !text.is_empty() {
                        all.push((record.number, text));
                    }
                    self.tail.passed(&record);
                }
            }
        }
    }

    fn expected(all: &[(u64, &str)]) -> Vec<(u64, String)> {
        all.iter()
            .map(|(n, text)| (*n, (*text).to_owned()))
            .collect()
    }

    #[test]
    fn incomplete_line_waits_for_its_rest() {
        let mut trial = Trial::new(Framing::Lines, b"{}\n{\"a\"");
        assert_eq!(trial.rest(100), expected(&[(1, "{}")]));
        trial.append(b":1");
        assert_eq!(trial.rest(100), expected(&[]));
        trial.append(b"}\n\n{");
        assert_eq!(trial.rest(100), expected(&[(2, "{\"a\":1}")]));
        // The last line of a file may have no newline.
        trial.append(b"}");
        assert_eq!(trial.rest(100), expected(&[(4, "{}")]));
        trial.append(b"\n{ }\n");
        assert_eq!(trial.rest(100), expected(&[(5, "{ }")]));
    }

    #[test]
    fn too_large_line_is_skipped_alone() {
        let long = "x".repeat(3 << 20);
        let mut trial = Trial::new(Framing::Lines, format!("{{}}\n{long}\n{{ }}\n").as_bytes());
        assert_eq!(
            trial.rest(10),
            expected(&[(1, "{}"), (2, "too large"), (3, "{ }")])
        );
        assert_eq!(trial.rest(10), expected(&[]));
    }

    #[test]
    fn incomplete_message_waits_for_its_rest() {
        let mut trial = Trial::new(Framing::Lengths, b"\0\0\0\x02ab\0\0\0\x03cd");
        assert_eq!(trial.rest(100), expected(&[(1, "ab")]));
        trial.append(b"e\0\0");
        assert_eq!(trial.rest(100), expected(&[(2, "cde")]));
        trial.append(b"\0\x20");
        trial.append("y".repeat(32).as_bytes());
        trial.append(b"\0\0\0\x01z");
        assert_eq!(trial.rest(31), expected(&[(3, "too large"), (4, "z")]));
        let mut large = vec![0, 0x20, 0, 0];
        large.resize(4 + (2 << 20), b'w');
        trial.append(&large);
        assert_eq!(trial.rest(4 << 20).len(), 1);
    }

    #[test]
    fn tail_reads_only_new_complete_records() {
        let mut trial = Trial::new(Framing::Lines, b"{}\n{\"a\"");
        trial.tail.skip_to_end(Framing::Lines).unwrap();
        trial.append(b":1}\n{ }\n");
        let texts: Vec<String> = trial.rest(100).into_iter().map(|(_, text)| text).collect();
        assert_eq!(texts, ["{ }"]);
        let mut trial = Trial::new(Framing::Lengths, b"\0\0\0\x02ab\0\0\0\x03cd");
        trial.tail.skip_to_end(Framing::Lengths).unwrap();
        trial.append(b"e");
        assert_eq!(trial.rest(100), expected(&[(2, "cde")]));
    }

    #[test]
    fn truncated_file_is_read_from_beginning() {
        let mut trial = Trial::new(Framing::Lines, b"{}\n{}\n{}\n");
        assert_eq!(trial.rest(100).len(), 3);
        std::fs::write(&trial.path, "{ }\n").unwrap();
        assert_eq!(trial.rest(100), expected(&[(1, "{ }")]));
    }
}
