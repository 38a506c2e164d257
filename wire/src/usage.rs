//! Usage as upstreams report it → disjoint buckets.

use forebay_engine::Usage;
use serde_json::Value;

/// Reads a `usage` object; `None` when it reports no tokens.
///
/// OpenAI's dialect counts cached tokens *inside* `prompt_tokens` (and names them in
/// `prompt_tokens_details.cached_tokens`); the other counts them *beside* `input_tokens` (as
/// `cache_read_input_tokens` and `cache_creation_input_tokens`). Reasoning is inside the output of both.
pub fn read_usage(usage: &Value) -> Option<Usage> {
    let number = |path: &[&str]| path.iter().try_fold(usage, |value, name| value.get(name))?.as_u64();
    let output = number(&["completion_tokens"]).or_else(|| number(&["output_tokens"]));
    if let Some(prompt) = number(&["prompt_tokens"]) {
        let cached = number(&["prompt_tokens_details", "cached_tokens"])
            .or_else(|| number(&["prompt_cache_hit_tokens"]))
            .unwrap_or(0)
            .min(prompt);
        return Some(Usage {
            input_tokens: prompt - cached,
            cached_input_tokens: cached,
            output_tokens: output.unwrap_or(0),
            ..Usage::default()
        });
    }
    if let Some(input) = number(&["input_tokens"]) {
        let beside = number(&["cache_read_input_tokens"]);
        let inside = number(&["input_tokens_details", "cached_tokens"]).unwrap_or(0).min(input);
        return Some(Usage {
            input_tokens: input - inside,
            cached_input_tokens: beside.unwrap_or(inside),
            cache_write_tokens: number(&["cache_creation_input_tokens"]).unwrap_or(0),
            output_tokens: output.unwrap_or(0),
            ..Usage::default()
        });
    }
    output.map(|output_tokens| Usage { output_tokens, ..Usage::default() })
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
    fn nonsense_reports_nothing_and_never_underflows() {
        assert_eq!(read_usage(&json!(null)), None);
        assert_eq!(read_usage(&json!({"prompt_tokens": "many"})), None);
        let more_cached = json!({"prompt_tokens": 5, "prompt_tokens_details": {"cached_tokens": 9}});
        assert_eq!(read_usage(&more_cached).map(|usage| usage.input_tokens), Some(0));
    }
}
