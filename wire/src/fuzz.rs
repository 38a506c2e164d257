//! The bodies of the fuzz targets and their seeds: what must hold for any bytes at all. `fuzz/` runs
//! them under libFuzzer, `examples/soak_fuzz.rs` on a stable compiler.

use forebay_engine::{Class, Failure};
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::chat::{AnswerContent, Chunk};
use crate::responses::{ResponseEvent, WholeResponse, disguise_response};
use crate::sse::{Broken, Decoder, Event};
use crate::{audio, classify as dialects, content, import, retry_after, usage};

/// A target: any bytes, and a panic where something does not hold.
pub type Target = fn(&[u8]);

/// Every target by its name.
pub const TARGETS: [(&str, Target); 4] =
    [("sse", sse), ("classify", classify), ("import_file", import_file), ("responses", responses)];

/// A stream means the same in whatever chunks it comes; the first byte is their size.
pub fn sse(bytes: &[u8]) {
    let Some((size, stream)) = bytes.split_first() else { return };
    let whole = decode([stream].into_iter());
    let in_chunks = decode(stream.chunks(usize::from(*size).max(1)));
    assert_eq!(whole, in_chunks, "chunks of {size}");
}

fn decode<'s>(chunks: impl Iterator<Item = &'s [u8]>) -> Result<Vec<Event>, Broken> {
    let mut decoder = Decoder::new();
    let mut events = Vec::new();
    for chunk in chunks {
        decoder.push(chunk)?;
        events.extend(std::iter::from_fn(|| decoder.next_event()));
    }
    events.extend(decoder.finish()?);
    Ok(events)
}

/// Any body has a class with any status, a short message, and a wait of at most a day.
pub fn classify(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let body = serde_json::from_str(&text).unwrap_or_else(|_| Value::String(text.clone().into_owned()));
    for status in [0, 200, 301, 400, 401, 402, 403, 404, 408, 413, 429, 500, 502, 503, 504, 529, 600] {
        check(&dialects::classify(status, &body));
    }
    if let Some(inside) = dialects::classify_inside(&body) {
        check(&inside);
        assert_ne!(inside.class, Class::Unknown, "it came over a whole connection");
    }
    let day = std::time::Duration::from_secs(86_400);
    for header in ["retry-after-ms", "retry-after", "x-ratelimit-reset-tokens", "x-ratelimit-reset", "none"] {
        let found = |name: &str| (name == header).then_some(&*text);
        let after = retry_after::retry_after(found, &body, Timestamp::UNIX_EPOCH);
        assert!(after.is_none_or(|after| after <= day), "{header}");
    }
}

fn check(failure: &Failure) {
    assert!(failure.message.chars().count() <= 301, "{failure}");
    assert!(!failure.exceeds_context || failure.class == Class::Request, "{failure}");
}

/// Any text is refused with reasons, or gives rows that a second reading of them takes as well.
pub fn import_file(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let environment = |name: &str| (name.len() < 9).then(|| format!("key-of-{name}"));
    match import::parse(&text, &environment) {
        Ok(document) => {
            for item in &document.items {
                assert!(!item.name.is_empty(), "{item:?}");
            }
            let settings: Value =
                document.settings.iter().map(|(name, value)| (name.clone(), value.clone())).collect();
            assert_eq!(import::parse_settings(&settings), Ok(document.settings));
        }
        Err(problems) => {
            assert!(!problems.is_empty());
            assert!(problems.iter().all(|problem| !problem.remedy.is_empty()), "{problems:?}");
        }
    }
}

/// Any answer of any capability is understood without a panic; a disguised one keeps nothing of the
/// upstream's.
pub fn responses(bytes: &[u8]) {
    let _ = audio::duration_millis(bytes, Some("audio/mpeg"));
    let Ok(mut answer) = serde_json::from_slice::<Value>(bytes) else { return };
    let whole = WholeResponse::read(&answer);
    if let Some(chars) = whole.content.text_chars {
        assert!(chars <= whole.content.bytes);
    }
    let event = ResponseEvent::read(&answer);
    assert!(event.failure.is_none() || event.is_end, "{event:?}");
    let chunk = Chunk::read(&answer);
    assert_eq!(chunk.has_content, chunk.content_bytes > 0);
    let _ = (AnswerContent::read(&answer), usage::read_usage(&answer), content::has_image(&answer));
    let _ = (content::is_embedding(&answer), content::is_rerank(&answer), content::is_moderation(&answer));
    let _ = content::transcript_chars(&answer);
    if let Value::Object(fields) = &mut answer {
        disguise_response(fields, "ours", "alias");
        for fields in
            [Some(&*fields), fields.get("response").and_then(Value::as_object)].into_iter().flatten()
        {
            assert!(fields.get("id").is_none_or(|id| id == "ours"));
            assert!(fields.get("model").is_none_or(|model| model == "alias"));
            assert!(!fields.contains_key("system_fingerprint"));
        }
    }
}

/// Inputs that make sense to the target, for mutations to start from.
pub fn seeds(target: &str) -> Vec<Vec<u8>> {
    match target {
        "sse" => sse_seeds(),
        "classify" => bodies().iter().map(|body| body.to_string().into_bytes()).collect(),
        "import_file" => IMPORT_FILES.iter().map(|file| file.as_bytes().to_vec()).collect(),
        "responses" => answers().iter().map(|answer| answer.to_string().into_bytes()).collect(),
        _ => Vec::new(),
    }
}

/// The recorded error bodies, and the successes that must not be taken for one.
fn bodies() -> Vec<Value> {
    const FILES: [&str; 9] = [
        include_str!("../fixtures/openai.json"),
        include_str!("../fixtures/anthropic.json"),
        include_str!("../fixtures/volcengine_ark.json"),
        include_str!("../fixtures/volcengine_speech.json"),
        include_str!("../fixtures/dashscope.json"),
        include_str!("../fixtures/siliconflow.json"),
        include_str!("../fixtures/google.json"),
        include_str!("../fixtures/ollama.json"),
        include_str!("../fixtures/successes.json"),
    ];
    let lines = FILES.iter().flat_map(|file| serde_json::from_str::<Vec<Value>>(file).unwrap_or_default());
    lines.filter_map(|mut line| line.get_mut("body").map(Value::take)).collect()
}

fn sse_seeds() -> Vec<Vec<u8>> {
    let streams = [
        "\u{1}\u{feff}: hi\r\ndata: {\"t\":\"😀é\"}\r\n\r\nevent: x\rdata:a\rdata: b\r\rid: 1\ndata:[DONE]\r\n\r\n",
        "\u{7}data: {\"choices\":[{\"delta\":{\"content\":\"hi\"}}]}\n\ndata: [DONE]",
        "\u{3}event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"overloaded_error\"}}\n\n",
        "\u{2}data: 12",
        "\u{2}: keep-alive\n\n: keep-alive\n\nretry: 10\n\ndata\n\n",
    ];
    streams.iter().map(|stream| stream.as_bytes().to_vec()).collect()
}

const IMPORT_FILES: [&str; 4] = [
    r#"
providers:
  - {key: sim, name: Simulator, protocol: openai, base_url: "http://127.0.0.1:9100/v1", tier: other, allow_private_network: true}
accounts:
  - {label: sim-a, provider: sim, account_key: "${SIM_KEY}", max_rps: 50, max_concurrency: 20, region: cn-beijing}
pools:
  - {group_key: main_text, name: Main text, capability: text, circuit_failure_threshold: 5, price: {input_per_1m: "0.50"}}
models:
  - {name: sim-fast, provider: sim, upstream_model: fast, capability: text, pool: main_text, weight: 6, priority: 0,
     features: {stream: true, max_context: 128000, ratios: ["16:9"], durations: [5], max_references: {image: 9}, voices: {a: b}},
     routing: {fallback_on_failure: false}, prices: {per_image: 1}, api_keys: [k1, "****1234"], accounts: [{label: sim-a, priority: 0}]}
callers:
  - {name: team-a, plan: {concurrent_tasks: 10}, credits: "100", pools: []}
settings: {default_pool: {text: main_text}, routing: {text: {waits_ms: [1, 2]}, retry_budget: 0.2}, retention.tasks_days: 9}
"#,
    r#"{"models": [{"name": "a", "weight": 1, "weight": 2}], "settings": {"webhooks": {"alerts": null}}}"#,
    "settings: {task_types: {draw: {capability: image, operation: edit}}, postprocess: {waits_ms: [2000]}}",
    "pools: [{group_key: a, fallback_template: 'a ${B} c ${'}]\n",
];

fn answers() -> Vec<Value> {
    vec![
        json!({"id": "resp_1", "model": "m", "status": "completed", "error": null, "output": [
            {"type": "reasoning", "summary": [{"type": "summary_text", "text": "hm"}]},
            {"type": "function_call", "name": "f", "arguments": "{}"},
            {"type": "message", "content": [{"type": "output_text", "text": "hé"}, {"type": "refusal", "refusal": "no"}]}],
            "usage": {"input_tokens": 9, "input_tokens_details": {"cached_tokens": 4}, "output_tokens": 2}}),
        json!({"type": "response.output_text.delta", "delta": "hi", "item_id": "i"}),
        json!({"type": "response.failed", "response": {"id": "r", "status": "failed",
            "error": {"code": "rate_limit_exceeded", "message": "later"}, "service_tier": "x"}}),
        json!({"type": "error", "code": "server_error", "message": "x", "param": null}),
        json!({"id": "c", "model": "m", "system_fingerprint": "f", "choices": [{"index": 0, "text": "t",
            "delta": {"content": "d"}, "message": {"content": "m", "tool_calls": [{"id": "1"}]}, "finish_reason": "stop"}],
            "usage": {"prompt_tokens": 5, "prompt_tokens_details": {"cached_tokens": 2}, "completion_tokens": 1}}),
        json!({"data": [{"url": "u"}, {"b64_json": "AA"}, {"error": {"code": "c", "message": "m"}}]}),
        json!({"data": [{"embedding": [0.5, 1], "index": 0}], "usage": {"prompt_tokens": 3, "total_tokens": 3}}),
        json!({"results": [{"index": 0, "relevance_score": 0.9}], "usage": {"total_tokens": 9, "search_units": 1}}),
        json!({"text": "words", "usage": {"type": "duration", "seconds": 9.5}}),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_target_has_seeds_and_stands_them() {
        for (name, target) in TARGETS {
            let seeds = seeds(name);
            assert!(seeds.len() > 3, "{name}");
            seeds.iter().for_each(|seed| target(seed));
        }
    }
}
