//! Server-sent events, as the WHATWG's HTML standard (section 9.2.6) describes them, with caps.
//!
//! Lines end in LF, CRLF or CR, also when a chunk ends between the two; a byte-order mark, comments,
//! unknown fields and multi-line data are understood; UTF-8 may be split anywhere.

use std::collections::VecDeque;

/// The longest line, in bytes.
pub const LINE_CAP: usize = 1024 * 1024;
/// The largest event, in bytes of data.
pub const EVENT_CAP: usize = 4 * 1024 * 1024;

/// One event.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Event {
    /// Its `event` field; empty without one.
    pub name: String,
    /// Its `data` lines, joined by LF.
    pub data: String,
}

/// A stream that can't be read on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Broken {
    /// A line above [`LINE_CAP`].
    #[error("a line of more than 1 MiB")]
    LineTooLong,
    /// An event above [`EVENT_CAP`].
    #[error("an event of more than 4 MiB")]
    EventTooLarge,
    /// A line that is no UTF-8.
    #[error("a line that is no UTF-8")]
    NotUtf8,
    /// The stream ended within an event.
    #[error("the stream ended within an event")]
    CutShort,
}

/// Turns bytes, in whatever chunks they come, into events.
#[derive(Debug, Default)]
pub struct Decoder {
    line: Vec<u8>,
    begun: bool,
    after_cr: bool,
    name: String,
    data: String,
    has_data: bool,
    ready: VecDeque<Event>,
}

impl Decoder {
    /// At the start of a stream.
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes the next chunk.
    ///
    /// # Errors
    /// The stream can't be read on: a cap is passed, or a line is no UTF-8.
    pub fn push(&mut self, mut bytes: &[u8]) -> Result<(), Broken> {
        if self.after_cr && !bytes.is_empty() {
            self.after_cr = false;
            bytes = bytes.strip_prefix(b"\n").unwrap_or(bytes);
        }
        while let Some(end) = bytes.iter().position(|byte| matches!(byte, b'\n' | b'\r')) {
            self.extend_line(&bytes[..end])?;
            let was_cr = bytes[end] == b'\r';
            bytes = &bytes[end + 1..];
            if was_cr {
                if bytes.is_empty() {
                    self.after_cr = true;
                } else {
                    bytes = bytes.strip_prefix(b"\n").unwrap_or(bytes);
                }
            }
            self.end_line()?;
        }
        self.extend_line(bytes)
    }

    /// The next complete event.
    pub fn next_event(&mut self) -> Option<Event> {
        self.ready.pop_front()
    }

    /// The stream has ended. An event without its final blank line is taken only if it is `[DONE]`
    /// or whole JSON: anything else was cut short.
    ///
    /// # Errors
    /// [`Broken::CutShort`] then, or what is wrong with the last line.
    pub fn finish(mut self) -> Result<Option<Event>, Broken> {
        if !self.line.is_empty() {
            self.end_line()?;
        }
        if !self.has_data {
            return Ok(None);
        }
        let is_whole = self.data == "[DONE]" || is_whole_json(&self.data);
        if is_whole { Ok(Some(Event { name: self.name, data: self.data })) } else { Err(Broken::CutShort) }
    }

    fn extend_line(&mut self, bytes: &[u8]) -> Result<(), Broken> {
        if self.line.len() + bytes.len() > LINE_CAP {
            return Err(Broken::LineTooLong);
        }
        self.line.extend_from_slice(bytes);
        Ok(())
    }

    fn end_line(&mut self) -> Result<(), Broken> {
        let bytes = std::mem::take(&mut self.line);
        let mut line = std::str::from_utf8(&bytes).map_err(|_| Broken::NotUtf8)?;
        if !self.begun {
            self.begun = true;
            line = line.strip_prefix('\u{feff}').unwrap_or(line);
        }
        if line.is_empty() {
            self.dispatch();
        } else if !line.starts_with(':') {
            let (field, value) = line.split_once(':').unwrap_or((line, ""));
            let value = value.strip_prefix(' ').unwrap_or(value);
            self.take_field(field, value)?;
        }
        self.line = bytes;
        self.line.clear();
        Ok(())
    }

    fn take_field(&mut self, field: &str, value: &str) -> Result<(), Broken> {
        match field {
            "data" => {
                if self.data.len() + usize::from(self.has_data) + value.len() > EVENT_CAP {
                    return Err(Broken::EventTooLarge);
                }
                if self.has_data {
                    self.data.push('\n');
                }
                self.data.push_str(value);
                self.has_data = true;
            }
            "event" => value.clone_into(&mut self.name),
            // `id`, `retry` and whatever else comes mean nothing here.
            _ => {}
        }
        Ok(())
    }

    fn dispatch(&mut self) {
        let event = Event { name: std::mem::take(&mut self.name), data: std::mem::take(&mut self.data) };
        if std::mem::take(&mut self.has_data) {
            self.ready.push_back(event);
        }
    }
}

/// JSON that shows where it ends: a number or a word that was cut short would pass for a whole one.
fn is_whole_json(data: &str) -> bool {
    data.trim_start().starts_with(['{', '[', '"'])
        && serde_json::from_str::<serde::de::IgnoredAny>(data).is_ok()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn decode(chunks: &[&[u8]]) -> Result<Vec<Event>, Broken> {
        let mut decoder = Decoder::new();
        let mut events = Vec::new();
        for chunk in chunks {
            decoder.push(chunk)?;
            while let Some(event) = decoder.next_event() {
                events.push(event);
            }
        }
        events.extend(decoder.finish()?);
        Ok(events)
    }

    fn data(texts: &[&str]) -> Vec<Event> {
        texts.iter().map(|text| Event { name: String::new(), data: (*text).into() }).collect()
    }

    #[test]
    fn s8_oddities_of_real_upstreams_are_parsed() {
        let stream = "\u{feff}:comment\n\ndata:{\"a\":1}\r\n\r\nevent: message\rdata: x\rdata: y\rid: 7\rfoo\r\r\
                      retry: 10\n\ndata: [DONE]";
        let mut expected = data(&["{\"a\":1}"]);
        expected.push(Event { name: "message".into(), data: "x\ny".into() });
        expected.extend(data(&["[DONE]"]));
        assert_eq!(decode(&[stream.as_bytes()]), Ok(expected));
    }

    #[test]
    fn lines_end_in_lf_crlf_or_cr() {
        for end in ["\n", "\r\n", "\r"] {
            let stream = format!("data: a{end}{end}data: b{end}data: c{end}{end}");
            assert_eq!(decode(&[stream.as_bytes()]), Ok(data(&["a", "b\nc"])), "{end:?}");
        }
        assert_eq!(decode(&[b"data: a\r\r\ndata: b\n\r\n"]), Ok(data(&["a", "b"])), "mixed");
    }

    #[test]
    fn a_crlf_split_over_two_chunks_is_one_line_end() {
        assert_eq!(decode(&[b"data: a\r", b"\ndata: b\r", b"\n\r", b"\n"]), Ok(data(&["a\nb"])));
        assert_eq!(decode(&[b"data: a\r", b"", b"\n\n"]), Ok(data(&["a"])), "an empty chunk between");
        assert_eq!(decode(&[b"data: a\r", b"\r"]), Ok(data(&["a"])), "two CR are two ends");
    }

    #[test]
    fn a_byte_order_mark_counts_only_at_the_start() {
        let mark = "\u{feff}".as_bytes();
        assert_eq!(decode(&[mark, b"data: a\n\n"]), Ok(data(&["a"])));
        assert_eq!(decode(&[&mark[..1], &mark[1..], b"data: a\n\n"]), Ok(data(&["a"])), "split");
        assert_eq!(decode(&[b"data: a\n\n", mark, b"data: b\n\n"]), Ok(data(&["a"])), "an unknown field");
    }

    #[test]
    fn comments_and_unknown_fields_say_nothing() {
        let stream = b": keep-alive\n\n:\n\nid: 7\nretry: 10\nfoo: bar\nbaz\n\ndata: a\n: within\nfoo: b\n\n";
        assert_eq!(decode(&[stream]), Ok(data(&["a"])));
    }

    #[test]
    fn data_comes_with_and_without_a_space_and_on_many_lines() {
        assert_eq!(decode(&[b"data:a\n\ndata: a\n\ndata:  a\n\n"]), Ok(data(&["a", "a", " a"])));
        assert_eq!(decode(&[b"data: {\ndata: }\n\n"]), Ok(data(&["{\n}"])));
        assert_eq!(decode(&[b"data\n\ndata:\ndata:\n\n"]), Ok(data(&["", "\n"])));
    }

    #[test]
    fn an_event_without_data_is_none_and_its_name_goes_with_it() {
        let named = Event { name: "b".into(), data: "x".into() };
        assert_eq!(decode(&[b"event: a\n\ndata: y\n\nevent: a\nevent: b\ndata: x\n\n"]), {
            let mut expected = data(&["y"]);
            expected.push(named);
            Ok(expected)
        });
    }

    #[test]
    fn s7_a_character_split_over_four_chunks_is_whole() {
        let smile = "😀".as_bytes();
        let chunks: [&[u8]; 6] = [b"data: ", &smile[..1], &smile[1..2], &smile[2..3], &smile[3..], b"\n\n"];
        assert_eq!(decode(&chunks), Ok(data(&["😀"])));
        assert_eq!(decode(&[b"data: \xff\n\n"]), Err(Broken::NotUtf8));
    }

    #[test]
    fn an_unterminated_last_event_is_taken_only_when_it_is_whole() {
        assert_eq!(decode(&[b"data: {\"a\":1}\n"]), Ok(data(&["{\"a\":1}"])));
        assert_eq!(decode(&[b"data: {\"a\":1}"]), Ok(data(&["{\"a\":1}"])));
        assert_eq!(decode(&[b"data: {\ndata: }"]), Ok(data(&["{\n}"])));
        assert_eq!(decode(&[b"data: [DONE]"]), Ok(data(&["[DONE]"])));
        assert_eq!(decode(&[b": bye"]), Ok(vec![]));
        for cut in ["{\"a\":", "[DON", "[DONE", "12", "tru", "true", "\"a", ""] {
            assert_eq!(decode(&[format!("data: {cut}").as_bytes()]), Err(Broken::CutShort), "{cut}");
        }
    }

    #[test]
    fn a_line_may_have_one_mebibyte_and_no_byte_more() {
        let mut decoder = Decoder::new();
        assert_eq!(decoder.push(&vec![b'x'; LINE_CAP]), Ok(()));
        assert_eq!(decoder.push(b"\n"), Ok(()), "the end is no part of it");
        assert_eq!(decoder.push(&vec![b'x'; LINE_CAP + 1]), Err(Broken::LineTooLong));

        let mut decoder = Decoder::new();
        let half = vec![b'x'; LINE_CAP / 2 + 1];
        assert_eq!(decoder.push(&half), Ok(()));
        assert_eq!(decoder.push(&half), Err(Broken::LineTooLong), "in chunks too");
    }

    #[test]
    fn an_event_may_have_four_mebibytes_and_no_more() {
        let line = [b"data:".as_slice(), &vec![b'x'; LINE_CAP - 10], b"\n"].concat();
        let mut decoder = Decoder::new();
        let pushed: Vec<_> = (0..5).map(|_| decoder.push(&line)).collect();
        assert_eq!(pushed[..4], [Ok(()); 4]);
        assert_eq!(pushed[4], Err(Broken::EventTooLarge));

        let mut decoder = Decoder::new();
        let ended = [line.as_slice(), b"\n"].concat();
        for _ in 0..8 {
            assert_eq!(decoder.push(&ended), Ok(()), "each event has its own cap");
            assert!(decoder.next_event().is_some());
        }
        let empty = b"data\n".repeat(EVENT_CAP + 2);
        assert_eq!(Decoder::new().push(&empty), Err(Broken::EventTooLarge), "empty lines count too");
    }

    /// A stream with everything in it.
    const REAL: &str = "\u{feff}: hi\r\ndata: {\"t\":\"😀é\"}\r\n\r\nevent: x\rdata:a\rdata: b\r\rid: 1\ndata:[DONE]\r\n\r\n";

    #[test]
    fn every_split_of_a_real_stream_into_three_gives_the_same_events() {
        let bytes = REAL.as_bytes();
        let mut expected = data(&["{\"t\":\"😀é\"}"]);
        expected.push(Event { name: "x".into(), data: "a\nb".into() });
        expected.extend(data(&["[DONE]"]));
        let expected = Ok(expected);
        for first in 0..=bytes.len() {
            for second in first..=bytes.len() {
                let chunks = [&bytes[..first], &bytes[first..second], &bytes[second..]];
                assert_eq!(decode(&chunks), expected, "cut at {first} and {second}");
            }
        }
        let single: Vec<_> = bytes.chunks(1).collect();
        assert_eq!(decode(&single), expected, "byte by byte");
    }

    #[test]
    fn no_cut_of_a_real_stream_gives_an_event_that_was_not_sent() {
        let whole = decode(&[REAL.as_bytes()]).expect("it is well formed");
        for end in 0..REAL.len() {
            if let Ok(events) = decode(&[&REAL.as_bytes()[..end]]) {
                assert_eq!(events, whole[..events.len()], "cut at {end}");
            }
        }
    }

    proptest! {
        /// S7: wherever the bytes are split, the events are the same.
        #[test]
        fn s7_any_split_gives_the_same_events(
            texts in proptest::collection::vec("[a-z😀é{}\": ]{0,12}", 1..6),
            ends in proptest::collection::vec(prop_oneof![Just("\n"), Just("\r\n"), Just("\r")], 6),
            cuts in proptest::collection::vec(any::<prop::sample::Index>(), 0..8),
        ) {
            let mut stream = String::new();
            for (text, end) in texts.iter().zip(&ends) {
                stream.push_str(&format!("data: {text}{end}{end}"));
            }
            let bytes = stream.as_bytes();
            let mut cuts: Vec<_> = cuts.iter().map(|cut| cut.index(bytes.len() + 1)).collect();
            cuts.extend([0, bytes.len()]);
            cuts.sort_unstable();
            let chunks: Vec<_> = cuts.windows(2).map(|pair| &bytes[pair[0]..pair[1]]).collect();
            let expected: Vec<_> = texts.iter().map(String::as_str).collect();
            prop_assert_eq!(decode(&chunks), Ok(data(&expected)));
        }

        /// Any bytes at all, cut anywhere, mean what they mean in one piece.
        #[test]
        fn any_bytes_mean_the_same_in_any_chunks(
            bytes in proptest::collection::vec(prop_oneof![4 => prop::sample::select(&b"data: \r\n{}"[..]), 1 => any::<u8>()], 0..80),
            size in 1_usize..9,
        ) {
            let chunks: Vec<_> = bytes.chunks(size).collect();
            prop_assert_eq!(decode(&chunks), decode(&[&bytes]));
        }
    }
}
