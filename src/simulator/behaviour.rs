//! How a simulated model behaves: a word, chosen by its name or switched while it runs.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

/// How a simulated model behaves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Behaviour {
    /// `ok`: answers at once.
    #[default]
    Ok,
    /// `slow-2000`: answers after so many milliseconds.
    Slow(Duration),
    /// `flaky-30`: so many percent of the requests end in a 500.
    Flaky(u8),
    /// `pieces-20-100`: streams so many pieces, so many milliseconds apart.
    Pieces(u32, Duration),
    /// `bulk-400`: streams so many pieces of 64 KiB, as fast as they are taken.
    Bulk(u32),
    /// `429`, or `429-7` with `Retry-After: 7`.
    RateLimited(Option<u32>),
    /// `500`, `502`, `401` …: that status, with an error body.
    Status(u16),
    /// `quota`: 429 with `insufficient_quota`.
    Quota,
    /// `policy`: 400 with `content_policy_violation`.
    Policy,
    /// `hang`: nothing, not even headers.
    Hang,
    /// `hang-headers`: headers of a 200, then nothing.
    HangAfterHeaders,
    /// `hang-role`: a delta with a role, then nothing.
    HangAfterRole,
    /// `hang-content`: some content, then nothing.
    HangAfterContent,
    /// `cut`: headers of a 200, then the connection is cut.
    CutBeforeContent,
    /// `cut-content`: some content (of a whole answer: half of it), then the connection is cut.
    CutAfterContent,
    /// `error-in-200`: an error object inside a 200.
    ErrorIn200,
    /// `empty-choices`: a 200 with no choice in it.
    EmptyChoices,
    /// `empty-content`: a 200 with a choice that says nothing.
    EmptyContent,
    /// `bad-json`: a 200 that is no JSON; in a stream, one event amid good ones.
    BadJson,
    /// `html`: a 200 with a web page.
    Html,
    /// `no-done`: a stream that ends cleanly after its finish reason, without `[DONE]`.
    NoDone,
    /// `odd`: a stream with a BOM, comments, CRLF, no spaces, split characters, no last blank line.
    Odd,
    /// `tools`: a tool call whose arguments come in twenty pieces.
    Tools,
    /// `reset`: reads the request and closes the connection.
    Reset,
    /// `context`: 400, the request is longer than the model's context.
    Context,
    /// `once-500`: that status for the first request after it was switched, and then answers.
    Once(u16),
    /// `late-401-300`: that status, after so many milliseconds; `late-429-300-60` says `Retry-After: 60`.
    Late(u16, Duration, Option<u32>),
    /// `reasoning-20-100`: streams so many pieces of reasoning, so many milliseconds apart, and then text.
    Reasoning(u32, Duration),
    /// `partial`: of the images that were asked for, the last could not be made.
    Partial,
}

/// A word that names no behaviour.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("'{0}' is no behaviour; one of: {words}", words = WORDS)]
pub struct UnknownBehaviour(String);

const WORDS: &str = "ok, slow-MS, flaky-PERCENT, pieces-N-MS, bulk-N, 429, 429-SECONDS, 400–599, quota, policy, hang, \
     hang-headers, hang-role, hang-content, cut, cut-content, error-in-200, empty-choices, empty-content, \
     bad-json, html, no-done, odd, tools, reset, context, partial, once-STATUS, late-STATUS-MS, late-429-MS-SECONDS, \
     reasoning-N-MS";

impl FromStr for Behaviour {
    type Err = UnknownBehaviour;

    fn from_str(word: &str) -> Result<Self, UnknownBehaviour> {
        let unknown = || UnknownBehaviour(word.to_owned());
        let number = |text: &str| text.parse::<u32>().map_err(|_| unknown());
        let simple = match word {
            "ok" => Self::Ok,
            "429" => Self::RateLimited(None),
            "quota" => Self::Quota,
            "policy" => Self::Policy,
            "hang" => Self::Hang,
            "hang-headers" => Self::HangAfterHeaders,
            "hang-role" => Self::HangAfterRole,
            "hang-content" => Self::HangAfterContent,
            "cut" => Self::CutBeforeContent,
            "cut-content" => Self::CutAfterContent,
            "error-in-200" => Self::ErrorIn200,
            "empty-choices" => Self::EmptyChoices,
            "empty-content" => Self::EmptyContent,
            "bad-json" => Self::BadJson,
            "html" => Self::Html,
            "no-done" => Self::NoDone,
            "odd" => Self::Odd,
            "tools" => Self::Tools,
            "reset" => Self::Reset,
            "context" => Self::Context,
            "partial" => Self::Partial,
            _ => {
                let parts: Vec<_> = word.split('-').collect();
                return match parts[..] {
                    ["slow", ms] => Ok(Self::Slow(Duration::from_millis(number(ms)?.into()))),
                    ["flaky", percent] => match number(percent)? {
                        percent @ 0..=100 => Ok(Self::Flaky(percent as u8)),
                        _ => Err(unknown()),
                    },
                    ["pieces", count, ms] => {
                        Ok(Self::Pieces(number(count)?, Duration::from_millis(number(ms)?.into())))
                    }
                    ["bulk", count] => Ok(Self::Bulk(number(count)?)),
                    ["late", status, ms] => match number(status)? {
                        status @ 400..=599 => {
                            Ok(Self::Late(status as u16, Duration::from_millis(number(ms)?.into()), None))
                        }
                        _ => Err(unknown()),
                    },
                    ["late", "429", ms, seconds] => {
                        let wait = Duration::from_millis(number(ms)?.into());
                        Ok(Self::Late(429, wait, Some(number(seconds)?)))
                    }
                    ["reasoning", count, ms] => {
                        Ok(Self::Reasoning(number(count)?, Duration::from_millis(number(ms)?.into())))
                    }
                    ["once", status] => match number(status)? {
                        status @ 400..=599 => Ok(Self::Once(status as u16)),
                        _ => Err(unknown()),
                    },
                    ["429", seconds] => Ok(Self::RateLimited(Some(number(seconds)?))),
                    [status] => match number(status)? {
                        status @ 400..=599 => Ok(Self::Status(status as u16)),
                        _ => Err(unknown()),
                    },
                    _ => Err(unknown()),
                };
            }
        };
        Ok(simple)
    }
}

impl fmt::Display for Behaviour {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ok => f.write_str("ok"),
            Self::Slow(wait) => write!(f, "slow-{}", wait.as_millis()),
            Self::Flaky(percent) => write!(f, "flaky-{percent}"),
            Self::Pieces(count, apart) => write!(f, "pieces-{count}-{}", apart.as_millis()),
            Self::Bulk(count) => write!(f, "bulk-{count}"),
            Self::RateLimited(None) => f.write_str("429"),
            Self::RateLimited(Some(after)) => write!(f, "429-{after}"),
            Self::Status(status) => write!(f, "{status}"),
            Self::Quota => f.write_str("quota"),
            Self::Policy => f.write_str("policy"),
            Self::Hang => f.write_str("hang"),
            Self::HangAfterHeaders => f.write_str("hang-headers"),
            Self::HangAfterRole => f.write_str("hang-role"),
            Self::HangAfterContent => f.write_str("hang-content"),
            Self::CutBeforeContent => f.write_str("cut"),
            Self::CutAfterContent => f.write_str("cut-content"),
            Self::ErrorIn200 => f.write_str("error-in-200"),
            Self::EmptyChoices => f.write_str("empty-choices"),
            Self::EmptyContent => f.write_str("empty-content"),
            Self::BadJson => f.write_str("bad-json"),
            Self::Html => f.write_str("html"),
            Self::NoDone => f.write_str("no-done"),
            Self::Odd => f.write_str("odd"),
            Self::Tools => f.write_str("tools"),
            Self::Reset => f.write_str("reset"),
            Self::Context => f.write_str("context"),
            Self::Partial => f.write_str("partial"),
            Self::Late(status, wait, None) => write!(f, "late-{status}-{}", wait.as_millis()),
            Self::Late(status, wait, Some(after)) => {
                write!(f, "late-{status}-{}-{after}", wait.as_millis())
            }
            Self::Reasoning(count, apart) => write!(f, "reasoning-{count}-{}", apart.as_millis()),
            Self::Once(status) => write!(f, "once-{status}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_word_reads_back_as_it_is_written() {
        let words = "ok slow-2000 flaky-30 pieces-20-100 bulk-400 429 429-7 500 502 401 quota policy hang hang-headers hang-role \
            hang-content cut cut-content error-in-200 empty-choices empty-content bad-json html no-done odd tools reset context partial once-500 late-401-300 late-429-300-60 reasoning-20-100";
        for word in words.split_whitespace() {
            assert_eq!(word.parse::<Behaviour>().expect(word).to_string(), word);
        }
        for word in ["", "nope", "flaky-101", "slow", "200", "slow-x"] {
            assert!(word.parse::<Behaviour>().is_err(), "{word}");
        }
    }
}
