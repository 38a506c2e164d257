//! Each class × each dialect, through the whole server: what the recorded bodies of real providers do to
//! attempts, callers and breakers.

use std::collections::BTreeMap;
use std::time::Duration;

use forebay::simulator::Recorded;
use forebay_engine::Clock;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::app::{Answer, Plan, Streamed, TestApp};

/// The dialects that a chat completion is refused in.
const DIALECTS: [(&str, &str); 7] = [
    ("openai", include_str!("../../../wire/fixtures/openai.json")),
    ("anthropic", include_str!("../../../wire/fixtures/anthropic.json")),
    ("volcengine_ark", include_str!("../../../wire/fixtures/volcengine_ark.json")),
    ("dashscope", include_str!("../../../wire/fixtures/dashscope.json")),
    ("siliconflow", include_str!("../../../wire/fixtures/siliconflow.json")),
    ("google", include_str!("../../../wire/fixtures/google.json")),
    ("ollama", include_str!("../../../wire/fixtures/ollama.json")),
];

/// A recorded refusal; lines that record something else are passed over.
#[derive(Deserialize)]
struct Said {
    what: String,
    status: u16,
    #[serde(default)]
    headers: BTreeMap<String, String>,
    body: Value,
    class: String,
    #[serde(default)]
    retry_after_ms: Option<u64>,
}

fn recorded(dialect: &str) -> Vec<Said> {
    let lines: Vec<Value> = serde_json::from_str(dialect).expect("a list");
    lines.into_iter().filter_map(|line| serde_json::from_value(line).ok()).collect()
}

/// What a class does to a whole text in a pool of two: the caller's status and code, how many members
/// were asked, and whether the breaker counted it.
fn does(class: &str) -> (u16, &'static str, usize, bool) {
    match class {
        "rate_limited" | "auth" | "quota" | "misconfigured" => (200, "", 2, false),
        "upstream" => (200, "", 2, true),
        "unknown" => (504, "outcome_unknown", 1, true),
        "request" => (400, "invalid_request", 1, false),
        "policy" => (400, "content_rejected", 1, false),
        other => panic!("{other} is said by nobody"),
    }
}

#[tokio::test]
async fn every_class_in_every_dialect_does_what_its_row_says() {
    let app = TestApp::with(Plan { size: 2, ..Plan::default() }).await;
    for (dialect, text) in DIALECTS {
        for said in recorded(text) {
            let what = format!("{dialect}: {} ({})", said.what, said.class);
            let (status, code, asked, counted) = does(&said.class);
            let headers = said.headers.iter().map(|(name, value)| (name.clone(), value.clone())).collect();
            app.sim.record("a", Some(Recorded { status: said.status, headers, body: said.body.clone() }));
            let before = app.asked();
            let answer = app.generate().await;
            assert_eq!(answer.outcome(), (status, code), "{what}: {}", answer.body);
            let after = app.asked();
            assert_eq!((after[0] - before[0] + after[1] - before[1]) as usize, asked, "{what}");
            let (task, attempts) = app.last_task().await;
            assert_eq!(attempts[0].error_class.as_deref(), Some(said.class.as_str()), "{what}");
            assert_eq!(attempts[0].outcome_unknown(), said.class == "unknown", "{what}");
            assert_eq!(task.credits_charged.is_some_and(|charged| charged > 0), status == 200, "{what}");
            assert_eq!(app.breaker("a").consecutive_failures > 0, counted, "{what}");
            cooled_as_long_as_it_says(&app, &said, &what);
            // Nobody learns who failed, or why.
            let told = answer.body.to_string();
            assert!(!told.contains("request_id") && !told.contains("api-key"), "{what}: {told}");
            app.sim.record("a", None);
            app.clock.advance(Duration::from_secs(2 * 86_400));
            app.generate().await;
        }
    }
    app.money_adds_up().await;
}

/// The account at its model, or the account, is set aside as the class and its Retry-After say.
fn cooled_as_long_as_it_says(app: &TestApp, said: &Said, what: &str) {
    let wanted = match (said.class.as_str(), said.retry_after_ms) {
        ("rate_limited", Some(ms)) => Duration::from_millis(ms),
        ("rate_limited", None) => Duration::from_secs(60),
        ("auth", _) => Duration::from_secs(10),
        ("quota", _) => Duration::from_secs(3_600),
        ("misconfigured", _) => Duration::from_secs(300),
        _ => Duration::ZERO,
    };
    let snapshot = app.catalog.snapshot();
    let pool = snapshot.pools.values().next().expect("a pool");
    let member = pool.members().find(|member| &*member.name == "a").expect("a member");
    let binding = &member.accounts[0];
    let until = binding.cooldown.until().max(binding.account.state.cooldown.until());
    let left = app.clock.now().until(until);
    let slack = Duration::from_secs(2);
    assert!(left <= wanted && left + slack >= wanted, "{what}: {left:?} of {wanted:?}");
}

#[tokio::test]
async fn a_stream_is_refused_in_every_dialect_before_its_first_content() {
    let app = TestApp::with(Plan { size: 2, ..Plan::default() }).await;
    for (dialect, text) in DIALECTS {
        for said in recorded(text) {
            let what = format!("{dialect}: {} ({})", said.what, said.class);
            let headers = said.headers.iter().map(|(name, value)| (name.clone(), value.clone())).collect();
            app.sim.record("a", Some(Recorded { status: said.status, headers, body: said.body.clone() }));
            let streamed = Streamed::of(app.completion(json!({"stream": true}))).await;
            let (status, code, ..) = does(&said.class);
            // A streamed text is the one that may be asked for again elsewhere.
            if status == 200 || said.class == "unknown" {
                assert!(streamed.is_done() && streamed.text() == "Hello from b.", "{what}: {}", streamed.raw);
            } else {
                assert_eq!(streamed.status, status, "{what}: {}", streamed.raw);
                assert!(streamed.raw.contains(code), "{what}: {}", streamed.raw);
            }
            app.sim.record("a", None);
            app.clock.advance(Duration::from_secs(2 * 86_400));
            app.generate().await;
        }
    }
}

#[tokio::test]
async fn m8_cached_and_reasoning_tokens_of_both_dialects_are_priced_once() {
    let app = TestApp::with(Plan {
        size: 1,
        pool: json!({"price": {"input_per_1m": "1", "cached_input_per_1m": "0.1", "output_per_1m": "2"}}),
        ..Plan::default()
    })
    .await;
    let choices =
        json!([{"index": 0, "message": {"role": "assistant", "content": "hi"}, "finish_reason": "stop"}]);
    let inside = json!({"prompt_tokens": 50, "completion_tokens": 20, "prompt_tokens_details": {"cached_tokens": 40},
                        "completion_tokens_details": {"reasoning_tokens": 15}});
    let beside = json!({"input_tokens": 10, "cache_read_input_tokens": 40, "output_tokens": 20});
    for usage in [inside, beside] {
        let body = json!({"id": "x", "choices": choices, "usage": usage});
        app.sim.record("a", Some(Recorded { status: 200, headers: Vec::new(), body }));
        let answer = app.generate().await;
        assert_eq!(
            (&answer.body["usage"]["input_tokens"], &answer.body["usage"]["output_tokens"]),
            (&json!(50), &json!(20))
        );
        // 10 × 1 + 40 × 0.1 + 20 × 2, in micro-units.
        assert_eq!(answer.body["credits_charged"], "0.000054", "{usage}");
    }
}

#[tokio::test]
async fn a_request_that_is_too_long_goes_only_to_a_larger_context() {
    let features = |context: u64| json!({"features": {"max_context": context}});
    let app = TestApp::with(Plan {
        models: json!({"a": features(8_000), "b": features(8_000), "c": features(128_000)}),
        ..Plan::default()
    })
    .await;
    app.set("a", "context");
    let answer = app.generate().await;
    assert_eq!(answer.body["output"]["choices"][0]["message"]["content"], "Hello from c.");
    assert_eq!(app.asked(), [1, 0, 1], "b's context is no larger");
    assert_eq!(app.breaker("a").consecutive_failures, 0, "the request is to blame");
    app.set("c", "context");
    assert_eq!(app.generate().await.outcome(), (400, "invalid_request"), "there is none larger");
}

#[tokio::test]
async fn bad_answers_all_round_end_in_the_pools_template() {
    let app = TestApp::with(Plan {
        pool: json!({"fallback_template": "Please try again later."}),
        ..Plan::default()
    })
    .await;
    for model in ["a", "b", "c"] {
        app.set(model, "empty-content");
    }
    let answer = app.generate().await;
    assert_eq!(answer.status, 200, "{}", answer.body);
    assert_eq!(answer.body["output"]["choices"][0]["message"]["content"], "Please try again later.");
    assert_eq!(answer.body["credits_charged"], "0.000000");
    assert_eq!(answer.header("x-forebay-fallback"), Some("template"));
    let (task, attempts) = app.last_task().await;
    assert_eq!((task.status.as_str(), task.final_model.as_deref()), ("succeeded", Some("fallback_template")));
    assert!(attempts.len() >= 3 && attempts.iter().all(|attempt| attempt.status == "failed"));
    let streamed = Streamed::of(app.completion(json!({"stream": true}))).await;
    assert_eq!((streamed.text().as_str(), streamed.is_done()), ("Please try again later.", true));
    // Refusals of another kind are no bad answers.
    for model in ["a", "b", "c"] {
        app.set(model, "500");
        app.clock.advance(Duration::from_secs(120));
    }
    assert_eq!(Answer::of(app.generation()).await.status, 502);
    app.money_adds_up().await;
}
