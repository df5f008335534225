//! The text of a batch, written in pieces: it may be many times larger than the batch.

use std::fmt::{self, Write};
use std::io;

use super::LONGEST;

/// Function that receives the pieces of a text.
type Emit<'e> = dyn FnMut(&str) -> io::Result<()> + 'e;

/// A text that is emitted whenever there is a piece of it.
pub(super) struct Text<'e> {
    piece: String,
    /// Bytes of all pieces.
    len: usize,
    emit: &'e mut Emit<'e>,
    failed: Option<io::Error>,
}

/// Size of one write to a file or a log, in bytes.
const PIECE: usize = 64 << 10;

impl<'e> Text<'e> {
    /// A text that goes there.
    pub(super) fn new(emit: &'e mut Emit<'e>) -> Self {
        Text {
            piece: String::new(),
            len: 0,
            emit,
            failed: None,
        }
    }

    /// Whether more may follow.
    pub(super) fn has_room(&self) -> bool {
        self.len < LONGEST
    }

    /// Emits the remaining text.
    ///
    /// # Errors
    ///
    /// The first piece that could not be emitted.
    pub(super) fn finish(mut self, last: &str) -> io::Result<()> {
        if let Some(error) = self.failed {
            return Err(error);
        }
        self.piece.push_str(last);
        match self.piece.as_str() {
            "" => Ok(()),
            piece => (self.emit)(piece),
        }
    }

    /// Emits whole lines, or a part of one line if the piece has no end of a line.
    fn emit_lines(&mut self) -> fmt::Result {
        let end = self.piece.rfind('\n').map_or(self.piece.len(), |at| at + 1);
        if let Err(error) = (self.emit)(&self.piece[..end]) {
            self.failed = Some(error);
            return Err(fmt::Error);
        }
        self.piece.drain(..end);
        Ok(())
    }
}

impl Write for Text<'_> {
    /// Fails when the text is long enough: samples share stacks and attributes, so it has no relation to the size of a
    /// request.
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let mut rest = text;
        while !rest.is_empty() {
            if !self.has_room() {
                return Err(fmt::Error);
            }
            let (now, later) = rest.split_at(rest.floor_char_boundary(PIECE));
            self.piece.push_str(now);
            self.len += now.len();
            rest = later;
            if self.piece.len() >= PIECE {
                self.emit_lines()?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pieces(write: impl FnOnce(&mut Text<'_>) -> fmt::Result) -> Vec<String> {
        let mut pieces = Vec::new();
        let mut emit = |piece: &str| {
            pieces.push(piece.to_owned());
            Ok(())
        };
        let mut text = Text::new(&mut emit);
        write(&mut text).unwrap();
        text.finish("").unwrap();
        pieces
    }

    #[test]
    fn long_text_leaves_in_whole_lines() {
        let line = "x".repeat(1000);
        let pieces = pieces(|text| (0..1000).try_for_each(|_| writeln!(text, "{line}")));
        assert!(pieces.len() > 10);
        assert!(pieces.iter().all(|piece| piece.ends_with('\n')));
        assert!(pieces.iter().all(|piece| piece.len() <= 2 * PIECE));
        assert_eq!(pieces.concat(), format!("{line}\n").repeat(1000));
    }

    #[test]
    fn long_line_is_split_without_loss() {
        let long = "\u{e9}".repeat(PIECE);
        let pieces = pieces(|text| text.write_str(&long));
        assert!(pieces.iter().all(|piece| piece.len() <= 2 * PIECE));
        assert_eq!(pieces.concat(), long);
    }
}
