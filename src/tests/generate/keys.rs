//! Idempotency-Key: the same key with the same request is the same task.

use serde_json::json;

use crate::app::{Answer, Plan, Streamed, TestApp, chat, eventually};

fn keyed(app: &TestApp, key: &str) -> reqwest::RequestBuilder {
    app.generation().header("idempotency-key", key)
}

#[tokio::test]
async fn m6_ten_at_once_are_one_task_and_the_first_may_leave() {
    let app = TestApp::start().await;
    app.set("a", "slow-200");
    let first = tokio::spawn(keyed(&app, "k1").send());
    app.sim.until("a", |visits| visits.requests == 1).await;
    let others: Vec<_> = (0..9).map(|_| tokio::spawn(Answer::of(keyed(&app, "k1")))).collect();
    first.abort();
    let mut bodies = Vec::new();
    for other in others {
        let answer = other.await.expect("it ends");
        assert_eq!(answer.status, 200);
        bodies.push(answer.body);
    }
    assert!(bodies.windows(2).all(|pair| pair[0] == pair[1]), "nine equal answers");
    assert_eq!(app.asked(), [1, 0, 0]);
    // A finished one is replayed from its row.
    assert_eq!(Answer::of(keyed(&app, "k1")).await.body, bodies[0]);
    assert_eq!(app.asked(), [1, 0, 0]);
    app.money_adds_up().await;
}

#[tokio::test]
async fn s11_a_keyed_whole_request_runs_on_without_its_caller() {
    let app = TestApp::start().await;
    app.set("a", "slow-100");
    let first = tokio::spawn(keyed(&app, "k").send());
    app.sim.until("a", |visits| visits.requests == 1).await;
    first.abort();
    eventually("the end of the task", || app.ledger.reading().unfinished == 0).await;
    assert_eq!(app.last_task().await.0.status, "succeeded");
    assert_eq!(Answer::of(keyed(&app, "k")).await.status, 200);
    assert_eq!(app.asked(), [1, 0, 0]);
}

#[tokio::test]
async fn another_request_under_the_same_key_is_a_conflict_that_no_sdk_repeats() {
    let app = TestApp::start().await;
    assert_eq!(Answer::of(keyed(&app, "k")).await.status, 200);
    let other = chat(&json!({"deadline_ms": 1000}));
    let answer =
        Answer::of(app.post("/api/generate").body(other.to_string()).header("idempotency-key", "k")).await;
    assert_eq!(answer.outcome(), (409, "idempotency_conflict"));
    assert_eq!(answer.header("x-should-retry"), Some("false"));
    // White space and the order of fields make no other request.
    let same = r#"{ "input": {"max_tokens": 64, "messages": [{"content": "hi", "role": "user"}]}, "model_group": "main_text" }"#;
    let answer = Answer::of(app.post("/api/generate").body(same).header("idempotency-key", "k")).await;
    assert_eq!(answer.status, 200);
    assert_eq!(app.asked(), [1, 0, 0]);
}

#[tokio::test]
async fn m6_after_a_503_the_key_is_free_again() {
    let app = TestApp::with(Plan { size: 1, ..Plan::default() }).await;
    app.set("a", "401");
    app.generate().await;
    assert_eq!(Answer::of(keyed(&app, "k")).await.outcome(), (503, "no_available_model"));
    app.set("a", "ok");
    app.clock.advance(std::time::Duration::from_secs(10));
    assert_eq!(Answer::of(keyed(&app, "k")).await.status, 200);
}

#[tokio::test]
async fn an_unknown_outcome_is_replayed_and_never_sent_again() {
    let app = TestApp::start().await;
    app.set("a", "502");
    assert_eq!(Answer::of(keyed(&app, "k")).await.outcome(), (504, "outcome_unknown"));
    app.set("a", "ok");
    let again = Answer::of(keyed(&app, "k")).await;
    assert_eq!((again.outcome(), again.header("x-should-retry")), ((504, "outcome_unknown"), Some("false")));
    assert_eq!(app.asked(), [1, 0, 0]);
}

#[tokio::test]
async fn a_finished_stream_is_replayed_as_one_delta_and_the_end() {
    let app = TestApp::start().await;
    let request = || app.completion(json!({"stream": true})).header("idempotency-key", "k");
    let live = Streamed::of(request()).await;
    let replayed = Streamed::of(request()).await;
    assert_eq!((live.text(), live.is_done()), (replayed.text(), replayed.is_done()));
    assert_eq!(replayed.chunks().len(), 1);
    assert_eq!(app.asked(), [1, 0, 0]);
}

#[tokio::test]
async fn a_keyed_stream_whose_caller_left_may_be_asked_for_again() {
    let app = TestApp::start().await;
    app.set("a", "hang-content");
    let request = || app.completion(json!({"stream": true})).header("idempotency-key", "k");
    let mut response = request().send().await.expect("a stream");
    assert!(response.chunk().await.expect("it lives").is_some());
    drop(response);
    eventually("the end of the task", || app.ledger.reading().unfinished == 0).await;
    app.set("a", "ok");
    assert!(Streamed::of(request()).await.is_done());
    assert_eq!(app.asked(), [2, 0, 0]);
}

#[tokio::test]
async fn a_replayed_stream_has_what_an_accumulator_needs() {
    let app = TestApp::start().await;
    app.set("a", "tools");
    let fields = json!({"stream": true, "stream_options": {"include_usage": true}});
    let request = || app.completion(fields.clone()).header("idempotency-key", "k");
    let live = Streamed::of(request()).await;
    let replayed = Streamed::of(request()).await;
    assert_eq!(replayed.chunks()[0]["choices"][0]["delta"]["tool_calls"][0]["index"], 0);
    // The upstream said nothing of usage: an estimate is told, live and replayed alike.
    let usage = |streamed: &Streamed| streamed.chunks().last().expect("chunks")["usage"].clone();
    assert_eq!(usage(&live), usage(&replayed));
    assert!(usage(&live)["completion_tokens"].as_u64().is_some_and(|tokens| tokens < 30), "{}", usage(&live));
}
