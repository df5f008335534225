//! The text of a batch, written in chunks, because the text may be many times larger than the batch.

use std::fmt::{self, Write};
use std::io;

use super::MAX_TEXT;

/// Function that receives the chunks of a text.
type Emit<'e> = dyn FnMut(&str) -> io::Result<()> + 'e;

/// A text that is emitted in chunks.
pub(super) struct Text<'e> {
    chunk: String,
    /// Bytes of all chunks.
    len: usize,
    emit: &'e mut Emit<'e>,
    failed: Option<io::Error>,
}

/// Size of one write to a file or a log, in bytes.
const CHUNK: usize = 64 << 10;

impl<'e> Text<'e> {
    /// Creates a text that is passed to `emit`.
    pub(super) fn new(emit: &'e mut Emit<'e>) -> Self {
        Text {
            chunk: String::new(),
            len: 0,
            emit,
            failed: None,
        }
    }

    /// Whether the text may become longer.
    pub(super) fn has_room(&self) -> bool {
        self.len < MAX_TEXT
    }

    /// Emits the remaining text.
    ///
    /// # Errors
    ///
    /// The error of the first chunk that could not be emitted.
    pub(super) fn finish(mut self, last: &str) -> io::Result<()> {
        if let Some(error) = self.failed {
            return Err(error);
        }
        self.chunk.push_str(last);
        match self.chunk.as_str() {
            "" => Ok(()),
            chunk => (self.emit)(chunk),
        }
    }

    /// Emits whole lines, or a part of one line if the chunk has no end of a line.
    fn emit_lines(&mut self) -> fmt::Result {
        let end = self.chunk.rfind('\n').map_or(self.chunk.len(), |at| at + 1);
        if let Err(error) = (self.emit)(&self.chunk[..end]) {
            self.failed = Some(error);
            return Err(fmt::Error);
        }
        self.chunk.drain(..end);
        Ok(())
    }
}

impl Write for Text<'_> {
    /// Fails when the text has reached its limit. Samples share stacks and attributes, so the size of the request does
    /// not limit the text.
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let mut rest = text;
        while !rest.is_empty() {
            if !self.has_room() {
                return Err(fmt::Error);
            }
            let (now, later) = rest.split_at(rest.floor_char_boundary(CHUNK));
            self.chunk.push_str(now);
            self.len += now.len();
            rest = later;
            if self.chunk.len() >= CHUNK {
                self.emit_lines()?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chunks(write: impl FnOnce(&mut Text<'_>) -> fmt::Result) -> Vec<String> {
        let mut chunks = Vec::new();
        let mut emit = |chunk: &str| {
            chunks.push(chunk.to_owned());
            Ok(())
        };
        let mut text = Text::new(&mut emit);
        write(&mut text).unwrap();
        text.finish("").unwrap();
        chunks
    }

    #[test]
    fn long_text_leaves_in_whole_lines() {
        let line = "x".repeat(1000);
        let chunks = chunks(|text| (0..1000).try_for_each(|_| writeln!(text, "{line}")));
        assert!(chunks.len() > 10);
        assert!(chunks.iter().all(|chunk| chunk.ends_with('\n')));
        assert!(chunks.iter().all(|chunk| chunk.len() <= 2 * CHUNK));
        assert_eq!(chunks.concat(), format!("{line}\n").repeat(1000));
    }

    #[test]
    fn long_line_is_split_without_loss() {
        let long = "\u{e9}".repeat(CHUNK);
        let chunks = chunks(|text| text.write_str(&long));
        assert!(chunks.iter().all(|chunk| chunk.len() <= 2 * CHUNK));
        assert_eq!(chunks.concat(), long);
    }
}
