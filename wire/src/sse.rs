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
    pub fn finish(mut self) -> Result<Option<Event>, Broken> {
        if !self.line.is_empty() {
            self.end_line()?;
        }
        if !self.has_data {
            return Ok(None);
        }
        let whole =
            self.data == "[DONE]" || serde_json::from_str::<serde::de::IgnoredAny>(&self.data).is_ok();
        if whole { Ok(Some(Event { name: self.name, data: self.data })) } else { Err(Broken::CutShort) }
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
                if self.data.len() + value.len() > EVENT_CAP {
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
    fn an_unterminated_last_event_is_taken_only_when_it_is_whole() {
        assert_eq!(decode(&[b"data: {\"a\":1}\n"]), Ok(data(&["{\"a\":1}"])));
        assert_eq!(decode(&[b"data: {\"a\":"]), Err(Broken::CutShort));
        assert_eq!(decode(&[b"data: [DONE]"]), Ok(data(&["[DONE]"])));
        assert_eq!(decode(&[b": bye"]), Ok(vec![]));
    }

    #[test]
    fn caps_hold() {
        let mut decoder = Decoder::new();
        let half = vec![b'x'; LINE_CAP / 2 + 1];
        assert_eq!(decoder.push(&half), Ok(()));
        assert_eq!(decoder.push(&half), Err(Broken::LineTooLong));

        let mut decoder = Decoder::new();
        let line = [b"data:".as_slice(), &vec![b'x'; LINE_CAP - 10], b"\n"].concat();
        let pushed: Result<Vec<()>, Broken> = (0..6).map(|_| decoder.push(&line)).collect();
        assert_eq!(pushed, Err(Broken::EventTooLarge));
        assert_eq!(decode(&[b"data: \xff\n\n"]), Err(Broken::NotUtf8));
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

        #[test]
        fn no_bytes_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = decode(&[&bytes]);
        }

        #[test]
        fn every_single_split_of_a_real_stream(cut in 0_usize..100) {
            let stream = "\u{feff}: hi\r\ndata: {\"t\":\"😀\"}\r\n\r\ndata:[DONE]\r\n\r\n".as_bytes();
            let cut = cut.min(stream.len());
            prop_assert_eq!(decode(&[&stream[..cut], &stream[cut..]]), Ok(data(&["{\"t\":\"😀\"}", "[DONE]"])));
        }
    }
}
