//! How long a recording lasts, from its first bytes and its size: what a transcription may cost is held
//! before it is sent.

/// Milliseconds of `bytes`, a whole file; `None` where its format is not known here.
///
/// WAV: exact, from its header. MP3: an estimate, from the bit rate of the first frame and the size, as
/// if the rate never changed. `content_type` helps only where the bytes alone don't tell.
pub fn duration_millis(bytes: &[u8], content_type: Option<&str>) -> Option<u64> {
    if bytes.starts_with(b"RIFF") && bytes.get(8..12) == Some(b"WAVE") {
        return wav(bytes);
    }
    let says_mp3 = content_type.is_some_and(|kind| {
        let kind = kind.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
        matches!(kind.as_str(), "audio/mpeg" | "audio/mp3" | "audio/mpga" | "audio/x-mp3")
    });
    mp3(bytes, says_mp3)
}

/// The chunks of a RIFF file: `fmt ` has the bytes a second, `data` the sound.
fn wav(bytes: &[u8]) -> Option<u64> {
    let mut rest = bytes.get(12..)?;
    let mut bytes_a_second = None;
    loop {
        let (header, body) = rest.split_at_checked(8)?;
        let size = u32::from_le_bytes(header[4..].try_into().ok()?);
        match &header[..4] {
            b"fmt " => {
                let rate = body.get(8..12)?;
                bytes_a_second =
                    Some(u64::from(u32::from_le_bytes(rate.try_into().ok()?))).filter(|rate| *rate > 0);
            }
            b"data" => {
                // A recorder that writes as it goes leaves the size at 0 or at its largest.
                let said = u64::from(size);
                let there = body.len() as u64;
                let size = if size == 0 || said > there { there } else { said };
                return Some((size * 1_000).div_ceil(bytes_a_second?));
            }
            _ => {}
        }
        // A chunk of an odd size has a byte of padding.
        rest = body.get(usize::try_from(size).ok()?.checked_add(size as usize & 1)?..)?;
    }
}

/// An MP3 may begin with a tag; after it come frames.
fn mp3(bytes: &[u8], says_mp3: bool) -> Option<u64> {
    let (sound, is_tagged) = match bytes {
        [b'I', b'D', b'3', _, _, flags, size @ ..] if size.len() >= 4 => {
            let size = size[..4].iter().fold(0_usize, |sum, byte| sum << 7 | usize::from(byte & 0x7f));
            let footer = if flags & 0x10 == 0 { 0 } else { 10 };
            (bytes.get(10 + size + footer..)?, true)
        }
        _ => (bytes, false),
    };
    let first = Frame::read(sound)?;
    // Two bytes that look like a frame prove little; another frame where the first ends does.
    let is_followed = sound.get(first.bytes..).is_some_and(|next| Frame::read(next).is_some());
    if !says_mp3 && !is_tagged && !is_followed {
        return None;
    }
    Some((sound.len() as u64 * 8).div_ceil(u64::from(first.kilobits_a_second)))
}

/// A frame of MPEG audio, layer III.
struct Frame {
    kilobits_a_second: u32,
    bytes: usize,
}

impl Frame {
    fn read(bytes: &[u8]) -> Option<Self> {
        const MPEG_1: [u32; 14] = [32, 40, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320];
        const MPEG_2: [u32; 14] = [8, 16, 24, 32, 40, 48, 56, 64, 80, 96, 112, 128, 144, 160];
        let [0xff, second, third, ..] = *bytes else {
            return None;
        };
        let is_layer_3 = second & 0xe6 == 0xe2;
        let (rates, samples, slow) = match (second >> 3) & 3 {
            3 => (MPEG_1, 144_000, 1),
            2 => (MPEG_2, 72_000, 2),
            0 => (MPEG_2, 72_000, 4),
            _ => return None,
        };
        let rate = usize::from(third >> 4);
        let kilobits_a_second = *rates.get(rate.checked_sub(1)?)?;
        let hertz = [44_100, 48_000, 32_000].get(usize::from(third >> 2 & 3))? / slow;
        let padding = u32::from(third >> 1 & 1);
        let bytes = (samples * kilobits_a_second / hertz + padding) as usize;
        is_layer_3.then_some(Self { kilobits_a_second, bytes })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// 16-bit mono at 16 kHz: 32,000 bytes a second.
    fn a_wav(said: u32, there: usize) -> Vec<u8> {
        let mut file = b"RIFF\0\0\0\0WAVEfmt \x10\0\0\0\x01\0\x01\0".to_vec();
        file.extend(16_000_u32.to_le_bytes());
        file.extend(32_000_u32.to_le_bytes());
        file.extend(b"\x02\0\x10\0LIST\x03\0\0\0abc\0data");
        file.extend(said.to_le_bytes());
        file.resize(file.len() + there, 0);
        file
    }

    /// Frames of MPEG 1, layer III, 128 kbit/s, 44.1 kHz: 417 bytes each.
    fn an_mp3(frames: usize) -> Vec<u8> {
        let mut frame = vec![0xff, 0xfb, 0x90, 0x00];
        frame.resize(417, 0);
        frame.repeat(frames)
    }

    #[test]
    fn a_wav_is_exact() {
        assert_eq!(duration_millis(&a_wav(64_000, 64_000), None), Some(2_000));
        assert_eq!(duration_millis(&a_wav(16, 16), Some("audio/mpeg")), Some(1), "the bytes know better");
        assert_eq!(duration_millis(&a_wav(32_000, 64_000), None), Some(1_000), "what follows is no sound");
        assert_eq!(duration_millis(&a_wav(0, 32_000), None), Some(1_000), "a size that was never filled in");
        assert_eq!(duration_millis(&a_wav(u32::MAX, 32_000), None), Some(1_000));
        assert_eq!(duration_millis(&a_wav(9, 9)[..40], None), None, "no data");
    }

    #[test]
    fn an_mp3_is_its_size_by_its_first_bit_rate() {
        // 100 frames are 2.61 s of sound; 41,700 bytes at 16 bytes a millisecond.
        assert_eq!(duration_millis(&an_mp3(100), None), Some(2_607));
        assert_eq!(duration_millis(&an_mp3(1), Some("audio/mpeg; charset=binary")), Some(27));
        assert_eq!(duration_millis(&an_mp3(1), None), None, "one frame may be anything");
        let mut tagged = b"ID3\x04\0\0\0\0\x01\0".to_vec();
        tagged.resize(10 + 128, b'x');
        tagged.extend(an_mp3(100));
        assert_eq!(duration_millis(&tagged, None), Some(2_607), "the tag is no sound");
    }

    #[test]
    fn other_formats_are_not_known() {
        for bytes in
            [&b""[..], b"OggS\0\0", b"fLaC", b"RIFF\0\0\0\0AVI ", b"\xff\xd8\xff\xe0 a picture", b"ID3"]
        {
            assert_eq!(duration_millis(bytes, Some("audio/mpeg")), None);
        }
    }

    proptest! {
        #[test]
        fn no_bytes_panic(
            start in prop::sample::select(vec![&b""[..], b"RIFF\0\0\0\0WAVE", b"RIFF\0\0\0\0WAVEfmt \x10\0\0\0", b"ID3\x04\0", b"\xff\xfb"]),
            rest in proptest::collection::vec(any::<u8>(), 0..80),
        ) {
            let _ = duration_millis(&[start, &rest].concat(), Some("audio/mp3"));
        }
    }
}
