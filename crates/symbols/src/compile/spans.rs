//! Combines the address ranges of functions and inlined calls with the rows of the line table.

use super::model::{ContextId, NO_CONTEXT, SourcePosition};

/// A line, from an address up to the next row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Row {
    pub(super) address: u64,
    pub(super) position: SourcePosition,
    /// End of a sequence: the lines of the following addresses are unknown.
    pub(super) end: bool,
}

/// Addresses of a function or of an inlined call.
#[derive(Debug, Clone, Copy)]
pub(super) struct Span {
    pub(super) start: u64,
    pub(super) end: u64,
    /// Nesting depth; deeper spans are inlined into shallower spans.
    pub(super) depth: isize,
    pub(super) context: ContextId,
}

/// Addresses with one context and one row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct CodeRange<'r> {
    pub(super) start: u64,
    pub(super) end: u64,
    pub(super) context: ContextId,
    pub(super) row: Option<&'r Row>,
}

/// Calls `emit` for all ranges, in order. The rows are sorted; each row extends to the next row.
pub(super) fn for_each_range<'r>(
    spans: &mut [Span],
    rows: &'r [Row],
    emit: &mut impl FnMut(CodeRange<'r>),
) {
    let mut writer = RangeWriter {
        rows,
        next: 0,
        at: 0,
        emit,
    };
    spans.sort_by_key(|span| (span.start, span.depth));
    let mut open: Vec<Span> = Vec::new();
    for span in spans.iter() {
        close(&mut open, span.start, &mut writer);
        writer.write_up_to(
            span.start,
            open.last().map_or(NO_CONTEXT, |span| span.context),
        );
        open.push(*span);
    }
    close(&mut open, u64::MAX, &mut writer);
    writer.write_up_to(u64::MAX, NO_CONTEXT);
}

/// Advances to `address`, emitting ranges while a span is open.
fn close<'r>(
    open: &mut Vec<Span>,
    address: u64,
    writer: &mut RangeWriter<'r, '_, impl FnMut(CodeRange<'r>)>,
) {
    while let Some(span) = open.last() {
        writer.write_up_to(span.end.min(address), span.context);
        if span.end > address {
            break;
        }
        open.pop();
    }
}

struct RangeWriter<'r, 'e, E> {
    rows: &'r [Row],
    /// Index of the first row behind `at`.
    next: usize,
    at: u64,
    emit: &'e mut E,
}

impl<'r, E: FnMut(CodeRange<'r>)> RangeWriter<'r, '_, E> {
    fn write_up_to(&mut self, to: u64, context: ContextId) {
        while self.at < to {
            let row = self.next.checked_sub(1).and_then(|row| self.rows.get(row));
            let row = row.filter(|row| !row.end);
            let following = self.rows.get(self.next);
            let end = following.map_or(to, |row| row.address.clamp(self.at, to));
            if self.at < end && (context != NO_CONTEXT || row.is_some()) {
                (self.emit)(CodeRange {
                    start: self.at,
                    end,
                    context,
                    row,
                });
            }
            self.at = end;
            while self
                .rows
                .get(self.next)
                .is_some_and(|row| row.address <= self.at)
            {
                self.next += 1;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(address: u64, line: u32) -> Row {
        let position = SourcePosition {
            line,
            ..SourcePosition::default()
        };
        Row {
            address,
            position,
            end: line == 0,
        }
    }

    fn span(start: u64, end: u64, depth: isize, context: ContextId) -> Span {
        Span {
            start,
            end,
            depth,
            context,
        }
    }

    fn all(mut spans: Vec<Span>, rows: &[Row]) -> Vec<(u64, u64, ContextId, u32)> {
        let mut all = Vec::new();
        for_each_range(&mut spans, rows, &mut |piece| {
            let line = piece.row.map_or(0, |row| row.position.line);
            all.push((piece.start, piece.end, piece.context, line));
        });
        all
    }

    #[test]
    fn inlined_span_covers_outer_span() {
        let spans = vec![span(10, 20, 1, 1), span(12, 18, 2, 2), span(14, 16, 3, 3)];
        let rows = [row(10, 1), row(13, 2), row(20, 0)];
        let expected = [
            (10, 12, 1, 1),
            (12, 13, 2, 1),
            (13, 14, 2, 2),
            (14, 16, 3, 2),
            (16, 18, 2, 2),
            (18, 20, 1, 2),
        ];
        assert_eq!(all(spans, &rows), expected);
    }

    #[test]
    fn spans_with_equal_start_nest_by_depth() {
        let spans = vec![span(10, 12, 2, 2), span(10, 20, 1, 1)];
        assert_eq!(all(spans, &[]), [(10, 12, 2, 0), (12, 20, 1, 0)]);
    }

    #[test]
    fn unpaired_lines_and_functions_are_kept() {
        let rows = [row(5, 7), row(8, 0), row(15, 9), row(25, 0)];
        let expected = [
            (5, 8, NO_CONTEXT, 7),
            (10, 15, 1, 0),
            (15, 20, 1, 9),
            (20, 25, NO_CONTEXT, 9),
        ];
        assert_eq!(all(vec![span(10, 20, 1, 1)], &rows), expected);
    }
}
