//! Money: integer micro-units of the accounting currency, and the prices that make them.

use std::fmt;
use std::iter::Sum;
use std::ops::{Add, Neg, Sub};
use std::str::FromStr;

use forebay_engine::Usage;
use forebay_engine::policy::Invalid;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Micro-units: 1 = 0.000001 of the accounting currency. Never a float.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Micros(pub i64);

impl Micros {
    /// Nothing.
    pub const ZERO: Self = Self(0);

    /// As short as it can be said, with two decimals at least: `0.50`.
    pub fn short(self) -> String {
        forebay_wire::import::decimal(self.0)
    }
}

/// A decimal with up to six places: `12`, `-0.5`, `0.000001`.
impl FromStr for Micros {
    type Err = Invalid;

    fn from_str(text: &str) -> Result<Self, Invalid> {
        forebay_wire::import::micros(text).map(Self)
    }
}

/// With six decimals, as the API says money: `0.001200`.
impl fmt::Display for Micros {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sign = if self.0 < 0 { "-" } else { "" };
        let amount = self.0.unsigned_abs();
        write!(f, "{sign}{}.{:06}", amount / 1_000_000, amount % 1_000_000)
    }
}

impl Serialize for Micros {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Micros {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

/// Saturates: an amount that does not fit is not money that anybody has.
impl Add for Micros {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }
}

/// Saturates, like [`Add`].
impl Sub for Micros {
    type Output = Self;

    fn sub(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }
}

impl Neg for Micros {
    type Output = Self;

    fn neg(self) -> Self {
        Self(self.0.saturating_neg())
    }
}

impl Sum for Micros {
    fn sum<I: Iterator<Item = Self>>(amounts: I) -> Self {
        amounts.fold(Self::ZERO, Add::add)
    }
}

/// The prices of a pool or a model. A unit without a price costs nothing, except that cached input
/// and cache writes without a price of their own cost what input costs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Prices {
    /// A request.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub per_request: Option<Micros>,
    /// 1,000,000 input tokens that no cache served.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub input_per_1m: Option<Micros>,
    /// 1,000,000 input tokens read from the provider's cache.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cached_input_per_1m: Option<Micros>,
    /// 1,000,000 input tokens written to the provider's cache.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cache_write_per_1m: Option<Micros>,
    /// 1,000,000 output tokens, reasoning included.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub output_per_1m: Option<Micros>,
    /// An image.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub per_image: Option<Micros>,
    /// A second of audio.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub per_audio_second: Option<Micros>,
    /// A second of video.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub per_video_second: Option<Micros>,
    /// 1,000,000 video tokens.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub video_tokens_per_1m: Option<Micros>,
    /// 1,000 characters.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub per_1k_characters: Option<Micros>,
    /// A rerank unit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub per_rerank_unit: Option<Micros>,
}

impl Prices {
    /// The worst case, in credits: every token of the input at the dearest input price, and all else
    /// that may be consumed.
    pub fn hold(&self, worst: &Usage) -> Micros {
        let input = self.input().max(self.cached_input()).max(self.cache_write());
        self.with_request(input * wide(worst.all_input_tokens()) + self.made(worst))
    }

    /// What `usage` costs at these prices: credits at a pool's, platform cost at a model's.
    pub fn charge(&self, usage: &Usage) -> Micros {
        self.with_request(
            self.input() * wide(usage.input_tokens)
                + self.cached_input() * wide(usage.cached_input_tokens)
                + self.cache_write() * wide(usage.cache_write_tokens)
                + self.made(usage),
        )
    }

    /// All but the input's tokens, in micro-units × 1,000,000.
    fn made(&self, usage: &Usage) -> i128 {
        or_zero(self.output_per_1m) * wide(usage.output_tokens)
            + or_zero(self.per_image) * wide(usage.images) * 1_000_000
            + or_zero(self.per_audio_second) * wide(usage.audio_millis) * 1_000
            + or_zero(self.per_1k_characters) * wide(usage.characters) * 1_000
            + or_zero(self.per_rerank_unit) * wide(usage.rerank_units) * 1_000_000
    }

    /// From the JSON of a table's column.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn parse(json: &str) -> Result<Self, serde_json::Error> {
        serde_json::from_str(json)
    }

    fn input(&self) -> i128 {
        or_zero(self.input_per_1m)
    }

    fn cached_input(&self) -> i128 {
        or_zero(self.cached_input_per_1m.or(self.input_per_1m))
    }

    fn cache_write(&self) -> i128 {
        or_zero(self.cache_write_per_1m.or(self.input_per_1m))
    }

    /// `per_millions` is micro-units × 1,000,000: rounded here, half up, and nowhere else.
    fn with_request(&self, per_millions: i128) -> Micros {
        let rounded = (per_millions + 500_000).div_euclid(1_000_000) + or_zero(self.per_request);
        Micros(i64::try_from(rounded).unwrap_or(i64::MAX))
    }
}

fn or_zero(price: Option<Micros>) -> i128 {
    price.map_or(0, |price| i128::from(price.0))
}

/// A count, capped where the product with any price still fits.
fn wide(count: u64) -> i128 {
    i128::from(count.min(1 << 40))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn prices() -> Prices {
        Prices::parse(r#"{"input_per_1m": "0.50", "output_per_1m": "1.50"}"#).expect("these are prices")
    }

    #[test]
    fn money_is_said_with_six_decimals_and_read_back() {
        for (text, micros) in
            [("0.001200", 1_200), ("100", 100_000_000), ("-0.5", -500_000), ("+1", 1_000_000)]
        {
            assert_eq!(text.parse(), Ok(Micros(micros)), "{text}");
        }
        for wrong in ["", ".", "-", "1.2345678", "1e3", "1,5", "0x1", " 1", "9999999999999999999"] {
            assert!(wrong.parse::<Micros>().is_err(), "{wrong:?}");
        }
        assert_eq!(Micros(-1_200).to_string(), "-0.001200");
        assert_eq!(Micros(i64::MIN).to_string(), "-9223372036854.775808");
        assert_eq!(Micros(500_000).short(), "0.50");
        assert_eq!(Micros(1_234).short(), "0.001234");
    }

    #[test]
    fn one_multiplication_one_rounding() {
        let usage = Usage { input_tokens: 12, output_tokens: 16, ..Usage::default() };
        assert_eq!(prices().charge(&usage), Micros(30));
        // 1 token at 0.50 a million is half a micro-unit: up.
        assert_eq!(prices().charge(&Usage { input_tokens: 1, ..Usage::default() }), Micros(1));
        assert_eq!(prices().charge(&Usage::default()), Micros::ZERO);
    }

    #[test]
    fn what_has_no_price_of_its_own_costs_what_input_costs() {
        let usage =
            Usage { cached_input_tokens: 1_000_000, cache_write_tokens: 1_000_000, ..Usage::default() };
        assert_eq!(prices().charge(&usage), Micros(1_000_000));
        let cheaper = Prices { cached_input_per_1m: Some(Micros::ZERO), ..prices() };
        assert_eq!(cheaper.charge(&usage), Micros(500_000));
    }

    #[test]
    fn whatever_is_used_within_the_request_the_hold_covers_it() {
        // A small generator in place of a framework: the same numbers on every run.
        let mut seed = 7_u64;
        let mut next = |below: u64| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (seed >> 33) % below
        };
        for _ in 0..20_000 {
            let mut price = || Some(Micros(next(100_000_000) as i64)).filter(|price| price.0 % 3 != 0);
            let prices = Prices {
                per_request: price(),
                input_per_1m: price(),
                cached_input_per_1m: price(),
                cache_write_per_1m: price(),
                output_per_1m: price(),
                per_image: price(),
                per_audio_second: price(),
                per_1k_characters: price(),
                per_rerank_unit: price(),
                ..Prices::default()
            };
            let (bytes, max_tokens, units) = (next(1_000_000), 1 + next(400_000), 1 + next(100));
            let cached = next(bytes + 1);
            let written = next(bytes - cached + 1);
            let usage = Usage {
                input_tokens: bytes - cached - written,
                cached_input_tokens: cached,
                cache_write_tokens: written,
                output_tokens: next(max_tokens + 1),
                images: next(units + 1),
                audio_millis: next(units + 1),
                characters: next(units + 1),
                rerank_units: next(units + 1),
                estimated: false,
            };
            let worst = Usage {
                input_tokens: bytes,
                output_tokens: max_tokens,
                images: units,
                audio_millis: units,
                characters: units,
                rerank_units: units,
                ..Usage::default()
            };
            assert!(prices.charge(&usage) <= prices.hold(&worst), "{prices:?} {usage:?}");
        }
    }

    #[test]
    fn absurd_numbers_neither_wrap_nor_panic() {
        let dear = Prices {
            input_per_1m: Some(Micros(i64::MAX)),
            output_per_1m: Some(Micros(i64::MAX)),
            ..prices()
        };
        let absurd = Usage { input_tokens: u64::MAX / 2, output_tokens: u64::MAX, ..Usage::default() };
        assert_eq!(dear.hold(&absurd), Micros(i64::MAX));
    }

    #[test]
    fn every_unit_has_its_own_price() {
        let prices = Prices::parse(
            r#"{"per_request": "0.01", "per_image": "0.04", "per_audio_second": "0.006",
                "per_1k_characters": "0.015", "per_rerank_unit": "0.002"}"#,
        )
        .expect("these are prices");
        let of = |usage: Usage| prices.charge(&usage).to_string();
        assert_eq!(of(Usage { images: 3, ..Usage::default() }), "0.130000");
        assert_eq!(of(Usage { audio_millis: 2_500, ..Usage::default() }), "0.025000");
        assert_eq!(of(Usage { characters: 100, ..Usage::default() }), "0.011500");
        assert_eq!(of(Usage { rerank_units: 2, ..Usage::default() }), "0.014000");
    }
}
