//! Usage as upstreams report it → disjoint buckets.

use forebay_engine::Usage;
use serde_json::Value;

/// Reads a `usage` object, of whatever capability; `None` when it reports nothing that is known here.
///
/// OpenAI's dialect counts cached tokens *inside* `prompt_tokens` (and names them in
/// `prompt_tokens_details.cached_tokens`), its Responses inside `input_tokens`; Anthropic counts them
/// *beside* `input_tokens` (as `cache_read_input_tokens` and `cache_creation_input_tokens`). Reasoning is
/// inside the output of all. A bare `total_tokens`, as embeddings and rerank report it, is all input.
///
/// Beside tokens: `images`, `image_count` or `generated_images`; `characters`; `seconds` or `duration` of
/// audio; `search_units` of rerank.
pub fn read_usage(usage: &Value) -> Option<Usage> {
    let tokens = read_tokens(usage);
    let first = |names: &[&str]| names.iter().find_map(|name| usage.get(*name)?.as_u64());
    let images = first(&["generated_images", "image_count", "images"]);
    let characters = first(&["characters"]);
    let audio_millis = ["seconds", "duration"].iter().find_map(|name| millis(usage.get(*name)?));
    let rerank_units = first(&["search_units"]);
    let units = [images, characters, audio_millis, rerank_units];
    if tokens.is_none() && units.iter().all(Option::is_none) {
        return None;
    }
    let [images, characters, audio_millis, rerank_units] = units.map(Option::unwrap_or_default);
    Some(Usage { images, audio_millis, characters, rerank_units, ..tokens.unwrap_or_default() })
}

fn read_tokens(usage: &Value) -> Option<Usage> {
    // A count that can't be one makes the others doubtful, too: the caller of this estimates.
    let is_nonsense = |name: &str| usage.get(name).is_some_and(|count| !count.is_null() && !count.is_u64());
    if ["prompt_tokens", "completion_tokens", "input_tokens", "output_tokens"].into_iter().any(is_nonsense) {
        return None;
    }
    let number = |path: &[&str]| path.iter().try_fold(usage, |value, name| value.get(name))?.as_u64();
    let output = number(&["completion_tokens"]).or_else(|| number(&["output_tokens"]));
    let cached = number(&["prompt_tokens_details", "cached_tokens"]);
    if let Some(prompt) = number(&["prompt_tokens"]) {
        let cached = cached.or_else(|| number(&["prompt_cache_hit_tokens"])).unwrap_or(0).min(prompt);
        return Some(Usage {
            input_tokens: prompt - cached,
            cached_input_tokens: cached,
            output_tokens: output.unwrap_or(0),
            ..Usage::default()
        });
    }
    if let Some(input) = number(&["input_tokens"]) {
        let beside = number(&["cache_read_input_tokens"]);
        let inside = match beside {
            Some(_) => 0,
            None => number(&["input_tokens_details", "cached_tokens"]).or(cached).unwrap_or(0).min(input),
        };
        return Some(Usage {
            input_tokens: input - inside,
            cached_input_tokens: beside.unwrap_or(inside),
            cache_write_tokens: number(&["cache_creation_input_tokens"]).unwrap_or(0),
            output_tokens: output.unwrap_or(0),
            ..Usage::default()
        });
    }
    match (output, number(&["total_tokens"])) {
        (Some(output_tokens), _) => Some(Usage { output_tokens, ..Usage::default() }),
        (None, total) => total.map(|input_tokens| Usage { input_tokens, ..Usage::default() }),
    }
}

/// Seconds, whole or not; what no audio can last is nonsense.
fn millis(seconds: &Value) -> Option<u64> {
    let seconds = seconds.as_f64().filter(|seconds| (0.0..=1e9).contains(seconds))?;
    Some((seconds * 1_000.0).round() as u64)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn m8_the_buckets_of_both_dialects_are_disjoint() {
        let inside = json!({"prompt_tokens": 100, "completion_tokens": 50, "total_tokens": 150,
            "prompt_tokens_details": {"cached_tokens": 80},
            "completion_tokens_details": {"reasoning_tokens": 30}});
        let expected =
            Usage { input_tokens: 20, cached_input_tokens: 80, output_tokens: 50, ..Usage::default() };
        assert_eq!(read_usage(&inside), Some(expected));

        let beside = json!({"input_tokens": 20, "cache_read_input_tokens": 80,
            "cache_creation_input_tokens": 7, "output_tokens": 50});
        assert_eq!(read_usage(&beside), Some(Usage { cache_write_tokens: 7, ..expected }));
        assert_eq!(expected.all_input_tokens(), 100);
    }

    #[test]
    fn m8_cached_tokens_of_a_responses_answer_are_inside_its_input() {
        let responses = json!({"input_tokens": 100, "input_tokens_details": {"cached_tokens": 80},
            "output_tokens": 50, "output_tokens_details": {"reasoning_tokens": 30}, "total_tokens": 150});
        let expected =
            Usage { input_tokens: 20, cached_input_tokens: 80, output_tokens: 50, ..Usage::default() };
        assert_eq!(read_usage(&responses), Some(expected));
        let both = json!({"input_tokens": 20, "cache_read_input_tokens": 80, "output_tokens": 50,
            "input_tokens_details": {"cached_tokens": 80}});
        assert_eq!(read_usage(&both), Some(expected), "beside and inside at once: counted once");
    }

    #[test]
    fn every_capability_reports_in_its_own_words() {
        let cases = [
            (json!({"input_tokens": 3, "output_tokens": 4, "total_tokens": 7}), (3, 4)),
            (json!({"prompt_tokens": 8, "total_tokens": 8}), (8, 0)),
            (json!({"total_tokens": 9}), (9, 0)),
            (json!({"output_tokens": 5, "total_tokens": 5}), (0, 5)),
        ];
        for (usage, (input_tokens, output_tokens)) in cases {
            let expected = Usage { input_tokens, output_tokens, ..Usage::default() };
            assert_eq!(read_usage(&usage), Some(expected), "{usage}");
        }
        let ark = json!({"generated_images": 2, "output_tokens": 8_192, "total_tokens": 8_192});
        let expected = Usage { images: 2, output_tokens: 8_192, ..Usage::default() };
        assert_eq!(read_usage(&ark), Some(expected));
        let units = [
            (json!({"image_count": 3}), Usage { images: 3, ..Usage::default() }),
            (json!({"characters": 42}), Usage { characters: 42, ..Usage::default() }),
            (json!({"type": "duration", "seconds": 9.5}), Usage { audio_millis: 9_500, ..Usage::default() }),
            (json!({"search_units": 1}), Usage { rerank_units: 1, ..Usage::default() }),
        ];
        for (usage, expected) in units {
            assert_eq!(read_usage(&usage), Some(expected), "{usage}");
        }
    }

    #[test]
    fn nonsense_reports_nothing_and_never_underflows() {
        assert_eq!(read_usage(&json!(null)), None);
        assert_eq!(read_usage(&json!({"seconds": -1, "images": 2.5})), None);
        assert_eq!(read_usage(&json!({"prompt_tokens": "many"})), None);
        let more_cached = json!({"prompt_tokens": 5, "prompt_tokens_details": {"cached_tokens": 9}});
        assert_eq!(read_usage(&more_cached).map(|usage| usage.input_tokens), Some(0));
    }
}
