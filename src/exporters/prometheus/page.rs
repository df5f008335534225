//! The page, written while it is sent.
//!
//! The page is the body of the response: each time the connection can take more, some hundred
//! series are written. A page of any size therefore takes little memory, a slow client delays
//! nothing else, and no lock is held while waiting.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::io::Write as _;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;
use http_body::{Body, Frame, SizeHint};
use http_body_util::Full;

use super::family::Family;
use super::kind::Kind;
use super::naming::Name;
use super::negotiate::{Format, Syntax};
use super::origin::Origin;
use super::protobuf::Protobuf;
use super::table::Table;
use super::text::Text;

/// Body of a response: a page or a text.
pub(super) enum Answer {
    /// A complete text.
    Whole(Full<Bytes>),
    /// A page that is written while it is sent.
    Page(Box<Page>),
}

impl Body for Answer {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        match self.get_mut() {
            Answer::Whole(text) => Pin::new(text).poll_frame(cx),
            Answer::Page(page) => Poll::Ready(page.chunk().map(|chunk| Ok(Frame::data(chunk)))),
        }
    }

    fn is_end_stream(&self) -> bool {
        matches!(self, Answer::Whole(text) if text.is_end_stream())
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Answer::Whole(text) => text.size_hint(),
            Answer::Page(_) => SizeHint::default(),
        }
    }
}

/// A page that is being written.
pub(super) struct Page {
    table: Arc<Table>,
    writer: Writer,
    gzip: Option<GzEncoder<Vec<u8>>>,
    /// Families that remain to be written.
    families: VecDeque<Arc<Family>>,
    /// Position in the first family.
    at: usize,
    /// Whether a part of the first family was written.
    begun: bool,
    targets: Option<(Name, Vec<Arc<Origin>>)>,
    scrape: u32,
    ended: bool,
}

enum Writer {
    Text(Text),
    Protobuf(Protobuf),
}

impl Page {
    /// Returns the page with the current families.
    pub(super) fn new(table: Arc<Table>, format: Format, timestamps: bool, gzip: bool) -> Self {
        let (families, scrape) = table.families();
        let writer = match format.syntax {
            Syntax::Protobuf => Writer::Protobuf(Protobuf::new(format.utf8, timestamps)),
            syntax => {
                let open_metrics = syntax == Syntax::OpenMetrics;
                Writer::Text(Text::new(open_metrics, format.utf8, timestamps))
            }
        };
        Page {
            targets: Some(table.targets()),
            table,
            writer,
            gzip: gzip.then(|| GzEncoder::new(Vec::new(), Compression::fast())),
            families: families.into(),
            at: 0,
            begun: false,
            scrape,
            ended: false,
        }
    }

    /// Returns the next chunk of the page.
    pub(super) fn chunk(&mut self) -> Option<Bytes> {
        while !self.ended {
            let mut output = Vec::with_capacity(CHUNK + CHUNK / 4);
            while output.len() < CHUNK && self.step(&mut output) {}
            let Some(gzip) = &mut self.gzip else {
                if output.is_empty() {
                    continue;
                }
                return Some(output.into());
            };
            // Writing to memory does not fail.
            let _ = gzip.write_all(&output);
            if self.ended {
                let _ = gzip.try_finish();
            }
            let compressed = std::mem::take(gzip.get_mut());
            if !compressed.is_empty() {
                return Some(compressed.into());
            }
        }
        None
    }

    /// Writes the next series. Returns false at the end.
    fn step(&mut self, output: &mut Vec<u8>) -> bool {
        if let Some((name, targets)) = self.targets.take() {
            let targets = targets.iter().filter_map(|origin| origin.target());
            // Without targets, the description is left out.
            let mut targets = targets.peekable();
            if targets.peek().is_some() {
                match &mut self.writer {
                    Writer::Text(text) => text.target_info(&name, targets, output),
                    Writer::Protobuf(protobuf) => protobuf.target_info(&name, targets, output),
                }
            }
            return true;
        }
        let Some(family) = self.families.front().cloned() else {
            if let Writer::Text(text) = &self.writer {
                text.end(output);
            }
            self.ended = true;
            return false;
        };
        if self.some_series(&family, output) {
            if let Writer::Protobuf(protobuf) = &mut self.writer {
                protobuf.finish(&family, output);
            }
            self.families.pop_front();
            (self.at, self.begun) = (0, false);
        }
        true
    }

    /// Writes some series of the family. Returns whether they were the last.
    fn some_series(&mut self, family: &Family, output: &mut Vec<u8>) -> bool {
        let before = self.table.over_before();
        let shadowed = || {
            let base = family.name.escaped.strip_suffix("_total");
            family.kind == Kind::Counter && base.is_some_and(|base| self.table.has(base))
        };
        // The table is locked before the family, in the same order as everywhere.
        let shadowed = !self.begun && shadowed();
        let series = family.lock();
        let slots = series.slots(self.at..self.at + SERIES);
        for slot in slots.filter(|slot| slot.seen >= before && is_before(slot.born, self.scrape)) {
            match &mut self.writer {
                Writer::Text(text) => {
                    if !self.begun {
                        text.head(family, shadowed, output);
                    }
                    text.series(family, slot, &series.labels, output);
                }
                Writer::Protobuf(protobuf) => protobuf.series(slot, &series.labels, family.kind),
            }
            self.begun = true;
        }
        self.at += SERIES;
        let last = self.at >= series.len();
        drop(series);
        if let Writer::Protobuf(protobuf) = &mut self.writer
            && protobuf.pending() > FAMILY
        {
            protobuf.finish(family, output);
        }
        last
    }
}

/// Compares the numbers of scrapes, which wrap around.
fn is_before(born: u32, scrape: u32) -> bool {
    scrape.wrapping_sub(born).cast_signed() > 0
}

/// Bytes to write before the connection gets a turn.
const CHUNK: usize = 64 << 10;
/// Series to write while a family is locked; requests with points of the family wait meanwhile.
const SERIES: usize = 256;
/// Size in bytes at which a family is split into several protobuf messages of the same name, which
/// Prometheus reads as one. A message must be complete before its first byte can be sent.
const FAMILY: usize = 4 << 20;
