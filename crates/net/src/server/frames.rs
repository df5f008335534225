//! Tracks the frames of an HTTP/2 connection without interpreting their contents, and reports their cost.
//!
//! h2 parses the same bytes a moment later and refuses malformed frames, but h2 has no counters. A client may send any
//! number of PING, SETTINGS, PRIORITY, WINDOW_UPDATE and RST_STREAM frames, begin a frame and never finish it, or never
//! read a response. This module has no clock and no I/O, so that it can be fuzzed.

/// Both directions of one connection, as seen by the server (RFC 9113, 3.4, 4.1 and 6).
#[derive(Debug, Default)]
pub struct FrameTracker {
    phase: Phase,
    received: Walk,
    sent: Walk,
    /// Number of frames that the client began.
    begun: u64,
    /// Number of the frame that opened the current, incomplete header block.
    block: Option<u64>,
    /// Whether the last frame of the header block has begun.
    block_ends: bool,
    /// Size in bytes if the client's last frame is a DATA frame.
    data: Option<u32>,
    /// Open streams, by their increasing ids.
    streams: Vec<Stream>,
    last_stream: u32,
    answers: usize,
    /// PINGs of the server that the client has not answered.
    pings: u32,
    /// Error code of a partly sent RST_STREAM frame of the server.
    reset: Option<u32>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// Part of the client's preface has arrived, with this many bytes.
    Preface(usize),
    /// The preface has arrived, but no complete SETTINGS frame.
    Settings,
    Open,
    /// The first bytes are not HTTP/2. Nothing is tracked.
    Foreign,
}

impl Default for Phase {
    fn default() -> Self {
        Phase::Preface(0)
    }
}

#[derive(Debug)]
struct Stream {
    id: u32,
    /// Time at which the response began.
    answered: Option<u32>,
}

/// Summary of parsed bytes.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct FrameSummary {
    /// Frames that cause work but carry neither a request nor its data. In the server's direction: RST_STREAM frames
    /// for an error of the client. Refusals are not counted, so that a client that retries at once stays connected.
    pub control: u32,
    /// In the server's direction: DATA frames and ends of responses. Clients answer such frames with WINDOW_UPDATE and
    /// measure the round trip with PING, so they entitle the client to control frames.
    pub answers: u32,
    /// In the server's direction: whether there was a GOAWAY.
    pub goodbye: bool,
    /// Whether the client answered a PING that the server did not send.
    pub has_unsolicited_ack: bool,
}

/// An item that the client began and has not finished.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UnfinishedItem {
    /// The connection preface with the first SETTINGS frame.
    Greeting,
    /// A frame, or a header block that began with the frame of this number.
    Frame(u64),
    /// A DATA frame with this number and size in bytes.
    Data(u64, u32),
}

impl FrameTracker {
    /// Tracks bytes from the client. The result does not depend on how the bytes are split.
    pub fn feed(&mut self, bytes: &[u8]) -> FrameSummary {
        self.feed_while(bytes, |_| true).0
    }

    /// Like [`feed`](Self::feed), up to the first frame that opens a stream which `admit` rejects. `admit` gets the
    /// number of open streams. Also returns the number of tracked bytes.
    pub fn feed_while(
        &mut self,
        all: &[u8],
        mut admit: impl FnMut(usize) -> bool,
    ) -> (FrameSummary, usize) {
        let mut seen = FrameSummary::default();
        let mut bytes = all;
        if let Phase::Preface(matched) = self.phase {
            let expected = PREFACE.get(matched..).unwrap_or_default();
            let length = expected.len().min(bytes.len());
            let (greeting, rest) = bytes.split_at(length);
            if !expected.starts_with(greeting) {
                self.phase = Phase::Foreign;
            } else if length == expected.len() {
                self.phase = Phase::Settings;
            } else {
                self.phase = Phase::Preface(matched + length);
            }
            bytes = rest;
        }
        if self.phase == Phase::Foreign {
            return (seen, all.len());
        }
        loop {
            self.received.skip_payload(&mut bytes);
            let before = (self.received.have, bytes);
            let Some(head) = self.received.next(&mut bytes) else {
                break;
            };
            let opens = head.kind == HEADERS && head.stream > self.last_stream;
            if opens && !admit(self.streams.len()) {
                (self.received.have, bytes) = before;
                self.received.left = 0;
                break;
            }
            seen.control += u32::from(self.received(head));
            if head.kind == PING && head.flags & ACK != 0 {
                seen.has_unsolicited_ack |= self.pings == 0;
                self.pings = self.pings.saturating_sub(1);
            }
        }
        let settled = self.begun > 1 || self.begun == 1 && self.received.left == 0;
        if self.phase == Phase::Settings && settled {
            self.phase = Phase::Open;
        }
        (seen, all.len() - bytes.len())
    }

    /// Tracks bytes sent by the server at `now`, in seconds of any clock.
    pub fn sent(&mut self, mut bytes: &[u8], now: u32) -> FrameSummary {
        let mut seen = FrameSummary::default();
        if self.phase == Phase::Foreign {
            return seen;
        }
        loop {
            let payload = self.sent.skip_payload(&mut bytes);
            if let Some(code) = self.reset {
                let code = payload
                    .iter()
                    .fold(code, |code, byte| code << 8 | u32::from(*byte));
                self.reset = (self.sent.left > 0).then_some(code);
                let is_refusal = matches!(code, NO_ERROR | REFUSED_STREAM);
                seen.control += u32::from(self.reset.is_none() && !is_refusal);
            }
            let Some(head) = self.sent.next(&mut bytes) else {
                break;
            };
            let ends = head.flags & END_STREAM != 0;
            match head.kind {
                RST_STREAM => {
                    self.reset = Some(0);
                    self.end(head.stream);
                }
                DATA | HEADERS if ends => {
                    seen.answers += 1;
                    self.end(head.stream);
                }
                DATA => seen.answers += 1,
                HEADERS => self.answer(head.stream, now),
                GOAWAY => seen.goodbye = true,
                PING if head.flags & ACK == 0 => self.pings += 1,
                _ => {}
            }
        }
        seen
    }

    /// Whether the connection turned out not to be HTTP/2.
    pub fn is_foreign(&self) -> bool {
        self.phase == Phase::Foreign
    }

    /// Whether the server may insert a frame after the sent bytes.
    pub fn may_insert(&self) -> bool {
        self.sent.at_boundary()
    }

    /// Returns how many bytes the server's last frame still needs.
    pub fn unsent(&self) -> usize {
        self.sent.missing()
    }

    /// Returns the item that the client has to finish.
    pub fn unfinished(&self) -> Option<UnfinishedItem> {
        match self.phase {
            Phase::Foreign => None,
            Phase::Preface(_) | Phase::Settings => Some(UnfinishedItem::Greeting),
            Phase::Open => match (self.block, self.data) {
                (Some(number), _) if !self.block_ends || self.received.left > 0 => {
                    Some(UnfinishedItem::Frame(number))
                }
                _ if self.received.at_boundary() => None,
                // Part of the next frame's head, without the type.
                _ if self.received.have > 0 => Some(UnfinishedItem::Frame(self.begun + 1)),
                (_, Some(size)) => Some(UnfinishedItem::Data(self.begun, size)),
                (_, None) => Some(UnfinishedItem::Frame(self.begun)),
            },
        }
    }

    /// Returns the start time of the oldest response whose rest the client does not read.
    pub fn oldest_answer(&self) -> Option<u32> {
        if self.answers == 0 {
            return None;
        }
        self.streams.iter().filter_map(|s| s.answered).min()
    }

    /// Whether there are responses that are not completely sent.
    pub fn answering(&self) -> bool {
        self.answers > 0
    }

    /// Returns the id of the last stream that the client opened.
    pub fn last_stream(&self) -> u32 {
        self.last_stream
    }

    /// Returns the number of streams that are open on at least one side.
    pub fn streams(&self) -> usize {
        self.streams.len()
    }

    /// Whether the client's next frame counts as a control frame.
    fn received(&mut self, head: Head) -> bool {
        self.begun += 1;
        if self.block_ends {
            self.block = None;
        }
        self.data = (head.kind == DATA).then_some(head.length);
        match head.kind {
            // Padding hides an empty frame, and no telemetry client pads.
            DATA => {
                let empty = head.length == 0 || head.flags & PADDED != 0 && head.length <= 256;
                empty && head.flags & END_STREAM == 0
            }
            HEADERS => {
                self.block = (head.flags & END_HEADERS == 0).then_some(self.begun);
                self.block_ends = false;
                !self.open(head.stream)
            }
            CONTINUATION => {
                self.block_ends = head.flags & END_HEADERS != 0;
                true
            }
            RST_STREAM => {
                self.end(head.stream);
                true
            }
            _ => true,
        }
    }

    /// Whether the stream is new. HEADERS on an existing stream are trailers.
    fn open(&mut self, id: u32) -> bool {
        if id <= self.last_stream {
            return false;
        }
        self.last_stream = id;
        // h2 allows far fewer streams at once, except after its GOAWAY.
        let fits = self.streams.len() < MAX_STREAMS;
        if fits {
            self.streams.push(Stream { id, answered: None });
        }
        fits
    }

    fn answer(&mut self, id: u32, now: u32) {
        if let Ok(at) = self.streams.binary_search_by_key(&id, |s| s.id)
            && let Some(stream) = self.streams.get_mut(at)
            && stream.answered.is_none()
        {
            stream.answered = Some(now);
            self.answers += 1;
        }
    }

    fn end(&mut self, id: u32) {
        if let Ok(at) = self.streams.binary_search_by_key(&id, |s| s.id) {
            self.answers -= usize::from(self.streams.remove(at).answered.is_some());
        }
    }
}

#[derive(Debug, Clone, Copy)]
struct Head {
    length: u32,
    kind: u8,
    flags: u8,
    stream: u32,
}

impl Head {
    fn parse(bytes: [u8; HEAD]) -> Self {
        let [a, b, c, kind, flags, s0, s1, s2, s3] = bytes;
        Head {
            length: u32::from_be_bytes([0, a, b, c]),
            kind,
            flags,
            stream: u32::from_be_bytes([s0 & 0x7f, s1, s2, s3]),
        }
    }
}

/// Finds the heads of frames in one direction.
#[derive(Debug, Default)]
struct Walk {
    head: [u8; HEAD],
    /// Bytes of `head` that have arrived.
    have: usize,
    /// Remaining bytes of the payload.
    left: usize,
}

impl Walk {
    /// Advances to the next complete head. Returns `None` when `bytes` is used up.
    fn next(&mut self, bytes: &mut &[u8]) -> Option<Head> {
        self.skip_payload(bytes);
        let head = match bytes.split_first_chunk::<HEAD>() {
            Some((head, rest)) if self.have == 0 => {
                *bytes = rest;
                *head
            }
            _ => {
                let missing = self.head.get_mut(self.have..).unwrap_or_default();
                let length = missing.len().min(bytes.len());
                let (now, rest) = bytes.split_at(length);
                missing
                    .iter_mut()
                    .zip(now)
                    .for_each(|(to, from)| *to = *from);
                self.have += length;
                *bytes = rest;
                if self.have < HEAD {
                    return None;
                }
                self.have = 0;
                self.head
            }
        };
        let head = Head::parse(head);
        self.left = head.length as usize;
        Some(head)
    }

    /// Advances past the available part of the payload, and returns that part.
    fn skip_payload<'b>(&mut self, bytes: &mut &'b [u8]) -> &'b [u8] {
        let (payload, rest) = bytes.split_at(self.left.min(bytes.len()));
        self.left -= payload.len();
        *bytes = rest;
        payload
    }

    fn at_boundary(&self) -> bool {
        self.have == 0 && self.left == 0
    }

    fn missing(&self) -> usize {
        match self.have {
            0 => self.left,
            have => HEAD - have,
        }
    }
}

/// Connection preface of every client (RFC 9113, 3.4).
pub(super) const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// Size of a frame's head in bytes (RFC 9113, 4.1).
const HEAD: usize = 9;
/// Maximum number of tracked streams per connection.
const MAX_STREAMS: usize = 1 << 14;

// Frame types and flags (RFC 9113, 6).
const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const PING: u8 = 6;
const GOAWAY: u8 = 7;
const CONTINUATION: u8 = 9;
const ACK: u8 = 0x1;
const END_STREAM: u8 = 0x1;
const END_HEADERS: u8 = 0x4;
const PADDED: u8 = 0x8;
// Error codes (RFC 9113, 7): the server needs no further part of the request, or refuses the request without
// processing.
const NO_ERROR: u32 = 0;
const REFUSED_STREAM: u32 = 7;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
        let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
        let mut bytes = length[1..].to_vec();
        bytes.extend([kind, flags]);
        bytes.extend(stream.to_be_bytes());
        bytes.extend(payload);
        bytes
    }

    fn open() -> FrameTracker {
        let mut frames = FrameTracker::default();
        frames.feed(&[PREFACE, &frame(4, 0, 0, &[])].concat());
        frames
    }

    #[test]
    fn control_frames_are_counted() {
        let padded = frame(DATA, PADDED, 1, &[7, 0, 0, 0, 0, 0, 0, 0]);
        for (bytes, control) in [
            (frame(DATA, 0, 1, b"some"), 0),
            (frame(DATA, END_STREAM, 1, b""), 0),
            (frame(DATA, 0, 1, b""), 1),
            (padded, 1),
            (frame(HEADERS, END_HEADERS, 1, b"head"), 0),
            (frame(CONTINUATION, END_HEADERS, 1, b"head"), 1),
            (frame(2, 0, 1, &[0; 5]), 1),
            (frame(RST_STREAM, 0, 1, &[0; 4]), 1),
            (frame(4, 0, 0, b""), 1),
            (frame(6, 0, 0, &[0; 8]), 1),
            (frame(8, 0, 0, &[0; 4]), 1),
            (frame(0x77, 0, 0, b"?"), 1),
        ] {
            let seen = open().feed(&bytes);
            assert_eq!(seen.control, control, "{bytes:?}");
        }
    }

    #[test]
    fn unfinished_frame_keeps_its_number_until_complete() {
        let mut frames = FrameTracker::default();
        assert_eq!(frames.unfinished(), Some(UnfinishedItem::Greeting));
        frames.feed(PREFACE);
        assert_eq!(frames.unfinished(), Some(UnfinishedItem::Greeting));
        frames.feed(&frame(4, 0, 0, &[]));
        assert_eq!(frames.unfinished(), None);
        let (first, second) = (
            frame(HEADERS, 0, 1, b"some"),
            frame(CONTINUATION, 4, 1, b"more"),
        );
        for bytes in [&first[..3], &first[3..], &second[..12]] {
            frames.feed(bytes);
            assert_eq!(frames.unfinished(), Some(UnfinishedItem::Frame(2)));
        }
        frames.feed(&second[12..]);
        assert_eq!(frames.unfinished(), None);
        frames.feed(&frame(DATA, 0, 1, b"data")[..10]);
        assert_eq!(frames.unfinished(), Some(UnfinishedItem::Data(4, 4)));
    }

    #[test]
    fn response_is_open_until_sent_or_reset() {
        let ends: [fn(&mut FrameTracker) -> FrameSummary; 3] = [
            |frames| frames.sent(&frame(DATA, END_STREAM, 3, b"data"), 9),
            |frames| frames.sent(&frame(RST_STREAM, 0, 3, &[0; 4]), 9),
            |frames| frames.feed(&frame(RST_STREAM, 0, 3, &[0; 4])),
        ];
        for end in ends {
            let mut frames = open();
            for id in [1, 3] {
                frames.feed(&frame(HEADERS, END_HEADERS, id, b"head"));
            }
            assert_eq!((frames.oldest_answer(), frames.streams()), (None, 2));
            frames.sent(&frame(HEADERS, END_HEADERS, 3, b"head"), 5);
            frames.sent(&frame(HEADERS, END_HEADERS, 3, b"more"), 8);
            assert_eq!(frames.oldest_answer(), Some(5));
            end(&mut frames);
            assert_eq!((frames.oldest_answer(), frames.streams()), (None, 1));
            frames.sent(&frame(HEADERS, END_HEADERS, 3, b"head"), 9);
            assert_eq!(frames.oldest_answer(), None);
        }
    }

    #[test]
    fn resets_count_except_refused_requests() {
        for (code, control) in [(0, 0), (7, 0), (1, 1), (5, 1), (11, 1)] {
            let mut frames = open();
            let reset = frame(RST_STREAM, 0, 1, &[0, 0, 0, code]);
            assert_eq!(frames.sent(&reset, 0).control, control, "{code}");
            let sums = reset.iter().map(|byte| frames.sent(&[*byte], 0).control);
            assert_eq!(sums.sum::<u32>(), control, "{code}");
        }
    }

    #[test]
    fn feed_while_stops_before_refused_stream() {
        let ping = frame(PING, 0, 0, &[0; 8]);
        let (one, three) = (
            frame(HEADERS, END_HEADERS, 1, b"head"),
            frame(HEADERS, END_HEADERS, 3, b"head"),
        );
        let said = [&ping[..], &one, &three, &ping].concat();
        let before = ping.len() + one.len();
        for cut in 0..=said.len() {
            let mut frames = open();
            let (first, second) = said.split_at(cut);
            let one_only = |open: usize| open < 1;
            let (seen, mut followed) = frames.feed_while(first, one_only);
            let mut control = seen.control;
            if followed == first.len() {
                let (seen, more) = frames.feed_while(second, one_only);
                control += seen.control;
                followed += more;
            }
            // A partly received head was forwarded earlier.
            assert!((before..before + HEAD).contains(&followed), "{cut}");
            assert_eq!((frames.streams(), control), (1, 1), "{cut}");
            let (seen, more) = frames.feed_while(&said[followed..], |_| true);
            assert_eq!(followed + more, said.len());
            assert_eq!((frames.streams(), seen.control), (2, 1), "{cut}");
        }
    }

    #[test]
    fn ping_ack_without_ping_is_detected() {
        let (ping, ack) = (frame(PING, 0, 0, &[0; 8]), frame(PING, ACK, 0, &[0; 8]));
        let mut frames = open();
        assert!(!frames.feed(&ping).has_unsolicited_ack);
        frames.sent(&ack, 0);
        frames.sent(&ping, 0);
        assert!(!frames.feed(&ack).has_unsolicited_ack);
        assert!(frames.feed(&ack).has_unsolicited_ack);
    }

    #[test]
    fn other_protocols_are_not_tracked() {
        let mut frames = FrameTracker::default();
        assert_eq!(
            frames.feed(b"POST /v1/traces HTTP/1.1\r\n"),
            FrameSummary::default()
        );
        assert!(frames.is_foreign() && frames.unfinished().is_none());
    }

    proptest! {
        #[test]
        fn counts_are_independent_of_chunk_boundaries(
            bytes in proptest::collection::vec(prop_oneof![Just(0_u8), 0..10_u8, any::<u8>()], 0..300),
            cut in 0..300_usize,
        ) {
            let whole = [PREFACE, &bytes].concat();
            let (one, two) = whole.split_at(cut.min(whole.len()));
            let (mut at_once, mut split) = (FrameTracker::default(), FrameTracker::default());
            let sum = at_once.feed(&whole).control;
            prop_assert_eq!(sum, split.feed(one).control + split.feed(two).control);
            prop_assert_eq!(at_once.streams(), split.streams());
            prop_assert_eq!(at_once.unfinished(), split.unfinished());
            let sum = at_once.sent(&whole, 1).control;
            prop_assert_eq!(sum, split.sent(one, 1).control + split.sent(two, 1).control);
            prop_assert_eq!(at_once.may_insert(), split.may_insert());
            prop_assert_eq!(at_once.streams(), split.streams());
        }
    }
}
