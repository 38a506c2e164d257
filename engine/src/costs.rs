//! What a model costs the platform, as far as `lowest_cost` asks.

use crate::outcome::Usage;

/// A model's prices in micro-units of the accounting currency. The default is free.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Costs {
    /// A request.
    pub per_request: u64,
    /// 1,000,000 input tokens, those written to a cache included.
    pub input: u64,
    /// 1,000,000 input tokens read from a cache; `None` = they cost what input costs.
    pub cached_input: Option<u64>,
    /// 1,000,000 output tokens.
    pub output: u64,
    /// An image.
    pub per_image: u64,
    /// A second of audio.
    pub per_audio_second: u64,
    /// 1,000 characters.
    pub per_1k_characters: u64,
    /// A rerank unit.
    pub per_rerank_unit: u64,
}

impl Costs {
    /// What `usage` costs, in *millionths* of a micro-unit: nothing is rounded before two models are
    /// compared.
    pub fn of(&self, usage: &Usage) -> u128 {
        Shape::of(usage).costs(&self.rates())
    }

    pub(crate) fn rates(&self) -> Rates {
        [
            self.per_request,
            self.input,
            self.cached_input.unwrap_or(self.input),
            self.output,
            self.per_image,
            self.per_audio_second,
            self.per_1k_characters,
            self.per_rerank_unit,
        ]
    }
}

/// A model's prices, one for each unit that a [`Shape`] counts.
pub(crate) type Rates = [u64; 8];

/// What a request uses: which of the [`Rates`] it pays, and how often, scaled so that each product is in
/// millionths of a micro-unit. Reckoned once a pick, and held against every candidate's rates.
pub(crate) struct Shape(Vec<(usize, u64)>);

impl Shape {
    pub(crate) fn of(usage: &Usage) -> Self {
        let counts = [
            1_000_000,
            usage.input_tokens.saturating_add(usage.cache_write_tokens),
            usage.cached_input_tokens,
            usage.output_tokens,
            usage.images.saturating_mul(1_000_000),
            usage.audio_millis.saturating_mul(1_000),
            usage.characters.saturating_mul(1_000),
            usage.rerank_units.saturating_mul(1_000_000),
        ];
        Self(counts.into_iter().enumerate().filter(|(_, count)| *count != 0).collect())
    }

    pub(crate) fn costs(&self, rates: &Rates) -> u128 {
        self.0.iter().fold(0, |sum: u128, (unit, count)| {
            sum.saturating_add(u128::from(rates[*unit]) * u128::from(*count))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_unit_costs_its_own_price() {
        let none = Usage::NONE;
        let million = 1_000_000;
        let costs = Costs {
            per_request: 0,
            input: 500_000,
            cached_input: Some(50_000),
            output: 1_500_000,
            per_image: 40_000,
            per_audio_second: 6_000,
            per_1k_characters: 15_000,
            per_rerank_unit: 2_000,
        };
        for (usage, micros) in [
            (Usage { input_tokens: million, ..none }, 500_000),
            (Usage { cache_write_tokens: million, ..none }, 500_000),
            (Usage { cached_input_tokens: million, ..none }, 50_000),
            (Usage { output_tokens: million, ..none }, 1_500_000),
            (Usage { images: 2, ..none }, 80_000),
            (Usage { audio_millis: 1_500, ..none }, 9_000),
            (Usage { characters: 2_500, ..none }, 37_500),
            (Usage { rerank_units: 3, ..none }, 6_000),
            (none, 0),
        ] {
            assert_eq!(costs.of(&usage), micros * 1_000_000, "{usage:?}");
        }
        assert_eq!(Costs { per_request: 7, ..costs }.of(&none), 7_000_000);
        let uncached = Costs { cached_input: None, ..costs };
        assert_eq!(uncached.of(&Usage { cached_input_tokens: 1, ..none }), 500_000);
    }

    #[test]
    fn half_a_micro_unit_still_makes_a_difference_and_nothing_overflows() {
        let usage = Usage { input_tokens: 1, ..Usage::NONE };
        let (a, b) = (Costs { input: 2, ..Costs::default() }, Costs { input: 3, ..Costs::default() });
        assert!(a.of(&usage) < b.of(&usage));
        let dearest = Costs { per_request: u64::MAX, per_image: u64::MAX, output: u64::MAX, ..a };
        let most = Usage { images: u64::MAX, output_tokens: u64::MAX, ..Usage::NONE };
        assert_eq!(dearest.of(&most), u128::MAX);
    }
}
