//! The stream faults, each on real sockets and named after its number.

use std::time::{Duration, Instant};

use forebay_engine::Clock;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::app::{Answer, Plan, Streamed, TestApp, chat, eventually};

async fn stream(app: &TestApp) -> Streamed {
    Streamed::of(app.completion(json!({"stream": true}))).await
}

/// The first member misbehaves; the caller sees one clean stream from the second.
async fn rescued(app: &TestApp, behaviour: &str) {
    app.set("a", behaviour);
    let streamed = stream(app).await;
    assert_eq!((streamed.status, streamed.text().as_str()), (200, "Hello from b."), "{behaviour}");
    assert!(streamed.is_done() && streamed.ended_well && streamed.error_code().is_none(), "{behaviour}");
    let (task, attempts) = app.last_task().await;
    assert_eq!((task.status.as_str(), attempts.len()), ("succeeded", 2), "{behaviour}");
    assert_eq!(attempts[1].kind, "fallback");
    app.money_adds_up().await;
}

#[tokio::test]
async fn s1_a_cut_before_any_content_is_not_seen() {
    let app = TestApp::start().await;
    rescued(&app, "cut").await;
    let (_, attempts) = app.last_task().await;
    assert_eq!(attempts[0].status, "outcome_unknown");
    assert!(attempts[0].outcome_unknown());
}

#[tokio::test]
async fn s2_silence_before_content_goes_to_the_next_member() {
    for behaviour in ["hang-role", "hang-headers", "hang"] {
        let app = TestApp::start().await;
        app.set("a", behaviour);
        let advance = async {
            app.sim.until("a", |visits| visits.requests == 1).await;
            // The headers and the first delta are on their way; then a minute passes.
            tokio::time::sleep(Duration::from_millis(50)).await;
            app.clock.advance(Duration::from_secs(60));
        };
        let (streamed, ()) = tokio::join!(stream(&app), advance);
        assert_eq!((streamed.text().as_str(), streamed.is_done()), ("Hello from b.", true), "{behaviour}");
    }
}

#[tokio::test]
async fn s3_an_error_as_the_first_event_has_its_own_class() {
    let app = TestApp::start().await;
    rescued(&app, "error-in-200").await;
    let (_, attempts) = app.last_task().await;
    assert_eq!(attempts[0].error_class.as_deref(), Some("upstream"));
}

#[tokio::test]
async fn answers_without_content_go_to_the_next_member() {
    let app = TestApp::start().await;
    for behaviour in ["empty-choices", "empty-content", "500", "502", "reset"] {
        rescued(&app, behaviour).await;
    }
}

#[tokio::test]
async fn s4_a_cut_after_content_is_told_and_nothing_is_glued_on() {
    let app = TestApp::start().await;
    app.set("a", "cut-content");
    let streamed = stream(&app).await;
    assert_eq!((streamed.status, streamed.text().as_str()), (200, "Hello from"));
    assert_eq!(streamed.error_code().as_deref(), Some("upstream_failed"));
    assert!(!streamed.raw.contains("[DONE]"));
    assert_eq!(app.asked(), [1, 0, 0]);
    let (task, attempts) = app.last_task().await;
    assert_eq!((task.status.as_str(), task.hold_state.as_str(), attempts.len()), ("failed", "released", 1));
    assert!(attempts[0].outcome_unknown());
    app.money_adds_up().await;

    let streamed =
        Streamed::of(app.post("/api/generate").body(chat(&json!({"stream": true})).to_string())).await;
    assert!(
        streamed.raw.contains("event: error\ndata: {\"error\":{\"code\":\"upstream_failed\""),
        "{}",
        streamed.raw
    );
    assert!(!streamed.raw.contains("event: done"));
}

#[tokio::test]
async fn s5_silence_after_content_ends_it_at_the_idle_timeout() {
    let app = TestApp::start().await;
    app.set("a", "hang-content");
    let mut response = app.completion(json!({"stream": true})).send().await.expect("a stream");
    let mut seen = String::new();
    while !seen.contains("Hello") {
        seen.push_str(&String::from_utf8_lossy(&response.chunk().await.expect("it lives").expect("more")));
    }
    tokio::time::sleep(Duration::from_millis(50)).await;
    app.clock.advance(Duration::from_secs(61));
    while let Ok(Some(chunk)) = response.chunk().await {
        seen.push_str(&String::from_utf8_lossy(&chunk));
    }
    assert!(seen.contains("\"error\"") && !seen.contains("[DONE]"), "{seen}");
    assert_eq!(app.last_task().await.0.status, "failed");
    app.sim.until("a", |visits| visits.open == 0).await;
}

#[tokio::test]
async fn s6_usage_is_recorded_and_passed_on_only_if_asked_for() {
    let app = TestApp::start().await;
    let streamed = stream(&app).await;
    assert!(streamed.chunks().iter().all(|chunk| chunk.get("usage").is_none()));
    let (task, _) = app.last_task().await;
    let usage: Value = serde_json::from_str(task.usage.as_deref().expect("usage")).expect("JSON");
    assert_eq!((usage["output_tokens"].as_u64(), usage.get("estimated")), (Some(4), None));

    let fields = json!({"stream": true, "stream_options": {"include_usage": true}});
    let streamed = Streamed::of(app.completion(fields)).await;
    let last = streamed.chunks().pop().expect("chunks");
    assert_eq!(
        (last["choices"].as_array().map(Vec::len), last["usage"]["completion_tokens"].as_u64()),
        (Some(0), Some(4))
    );
}

#[tokio::test]
async fn s7_s8_split_characters_bom_comments_and_a_missing_blank_line_are_understood() {
    let app = TestApp::start().await;
    app.set("a", "odd");
    let streamed = stream(&app).await;
    assert_eq!((streamed.text().as_str(), streamed.is_done()), ("Grüße 😀", true));
    assert_eq!(app.last_task().await.0.status, "succeeded");
}

#[tokio::test]
async fn s9_a_tool_call_in_twenty_pieces_is_passed_on_unchanged() {
    let app = TestApp::start().await;
    app.set("a", "tools");
    let streamed = stream(&app).await;
    let arguments: String = streamed
        .chunks()
        .iter()
        .filter_map(|chunk| {
            chunk["choices"][0]["delta"]["tool_calls"][0]["function"]["arguments"].as_str().map(str::to_owned)
        })
        .collect();
    assert_eq!(arguments, (0..20).map(|n| format!("{n},")).collect::<String>());
    assert!(streamed.is_done());
}

#[tokio::test]
async fn s10_a_stream_is_committed_at_its_first_reasoning_and_is_not_cut_while_it_thinks() {
    let app = TestApp::with(Plan { pool: json!({"first_packet_timeout_ms": 300}), ..Plan::default() }).await;
    // It thinks for three times as long as its first content may take.
    app.set("a", "reasoning-9-100");
    let answer = stream(&app).await;
    assert!(answer.is_done(), "{}", answer.raw);
    assert_eq!(answer.text(), "Hello from a.");
    let thoughts = answer
        .chunks()
        .iter()
        .filter(|chunk| chunk["choices"][0]["delta"]["reasoning_content"].is_string())
        .count();
    assert_eq!((thoughts, app.asked()), (9, [1, 0, 0]));
    let (_, attempts) = app.last_task().await;
    assert!(attempts[0].first_content_ms.is_some_and(|ms| ms < 300), "{:?}", attempts[0].first_content_ms);
}

#[tokio::test]
async fn s14_one_event_that_is_no_json_ends_the_stream_and_a_missing_done_does_not() {
    let app = TestApp::start().await;
    app.set("a", "bad-json");
    let streamed = stream(&app).await;
    assert_eq!((streamed.text().as_str(), streamed.is_done()), ("Hello", false));
    assert_eq!(streamed.error_code().as_deref(), Some("upstream_failed"));

    app.set("a", "no-done");
    let streamed = stream(&app).await;
    assert!(streamed.is_done() && streamed.text() == "Hello from a.");
    assert_eq!(app.last_task().await.0.status, "succeeded");
}

#[tokio::test]
async fn nothing_in_a_stream_names_who_serves_it() {
    let app = TestApp::start().await;
    let streamed = stream(&app).await;
    assert!(!streamed.raw.contains("fp_sim") && !streamed.raw.contains("chatcmpl-sim"), "{}", streamed.raw);
    assert!(streamed.chunks().iter().all(|chunk| chunk["model"] == "main_text"));
}

/// Sends a request and closes the connection once `when` says so; returns when it was closed.
async fn leave(app: &TestApp, body: &Value, path: &str, when: impl Future<Output = ()>) -> Instant {
    let mut socket = TcpStream::connect(app.addr).await.expect("a connection");
    let body = body.to_string();
    let request = format!(
        "POST {path} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {}\r\ncontent-length: {}\r\n\r\n{body}",
        app.seeded.token,
        body.len()
    );
    socket.write_all(request.as_bytes()).await.expect("it is sent");
    when.await;
    drop(socket);
    Instant::now()
}

fn streaming() -> Value {
    json!({"model": "main_text", "stream": true, "messages": [{"role": "user", "content": "hi"}]})
}

#[tokio::test]
async fn s11_leaving_before_headers_before_content_or_mid_stream_closes_the_upstream_at_once() {
    for behaviour in ["hang", "hang-headers", "hang-role", "hang-content"] {
        let app = TestApp::start().await;
        app.set("a", behaviour);
        let reached = async {
            app.sim.until("a", |visits| visits.open == 1).await;
            tokio::time::sleep(Duration::from_millis(50)).await;
        };
        let left = leave(&app, &streaming(), "/v1/chat/completions", reached).await;
        app.sim.until("a", |visits| visits.open == 0).await;
        let took = left.elapsed();
        assert!(took < Duration::from_millis(100), "{behaviour}: {took:?}");
        eventually("the end of the task", || app.permits_are_free()).await;
        assert_eq!(app.asked(), [1, 0, 0], "{behaviour}: no further attempt");
        eventually("its record", || app.ledger.reading().unfinished == 0).await;
        let (task, attempts) = app.last_task().await;
        assert_eq!(
            (task.status.as_str(), attempts[0].status.as_str()),
            ("cancelled", "cancelled"),
            "{behaviour}"
        );
        assert!(attempts[0].outcome_unknown(), "{behaviour}");
        // What was delivered is paid for, and nothing else.
        let expected = if behaviour == "hang-content" { "settled" } else { "released" };
        assert_eq!(task.hold_state, expected, "{behaviour}");
        app.money_adds_up().await;
    }
}

#[tokio::test]
async fn s11_leaving_a_whole_request_closes_the_upstream_unless_it_has_a_key() {
    let app = TestApp::start().await;
    app.set("a", "hang");
    let reached = async {
        app.sim.until("a", |visits| visits.open == 1).await;
    };
    leave(&app, &chat(&json!({})), "/api/generate", reached).await;
    app.sim.until("a", |visits| visits.open == 0).await;
    eventually("its record", || app.ledger.reading().unfinished == 0).await;
    assert_eq!(app.last_task().await.0.status, "cancelled");
}

#[tokio::test]
async fn s11_leaving_while_waiting_for_room_costs_nothing() {
    let app =
        TestApp::with(Plan { size: 1, models: json!({"a": {"max_concurrency": 1}}), ..Plan::default() })
            .await;
    app.set("a", "hang");
    let first = tokio::spawn(app.generation().send());
    app.sim.until("a", |visits| visits.open == 1).await;
    let pool = app.catalog.snapshot().pools.values().next().expect("a pool").clone();
    let waiting = eventually("the wait", || pool.state.waiting() == 1);
    leave(&app, &streaming(), "/v1/chat/completions", waiting).await;
    eventually("the leaving", || pool.state.waiting() == 0).await;
    assert_eq!(app.asked()[0], 1);
    first.abort();
    eventually("the end", || app.permits_are_free()).await;
}

#[tokio::test]
async fn s11_leaving_during_a_back_off_makes_no_further_attempt() {
    let app = TestApp::with(Plan { size: 1, ..Plan::default() }).await;
    app.set("a", "500");
    let backing_off = async {
        app.sim.until("a", |visits| visits.requests == 1 && visits.open == 0).await;
        tokio::time::sleep(Duration::from_millis(50)).await;
    };
    leave(&app, &chat(&json!({})), "/api/generate", backing_off).await;
    eventually("its record", || app.ledger.reading().unfinished == 0).await;
    app.clock.advance(Duration::from_secs(10));
    assert_eq!(app.asked()[0], 1);
    let (task, attempts) = app.last_task().await;
    assert_eq!(
        (task.status.as_str(), attempts.len(), attempts[0].status.as_str()),
        ("cancelled", 1, "failed")
    );
    app.money_adds_up().await;
}

#[tokio::test]
async fn s13_a_stream_of_ten_minutes_is_never_cut_by_an_attempt_limit() {
    let app = TestApp::start().await;
    app.set("a", "pieces-20-20");
    let advance = async {
        app.sim.until("a", |visits| visits.requests == 1).await;
        for _ in 0..20 {
            tokio::time::sleep(Duration::from_millis(20)).await;
            app.clock.advance(Duration::from_secs(40));
        }
    };
    let began = app.clock.now();
    let (streamed, ()) = tokio::join!(stream(&app), advance);
    assert!(app.clock.now().since(began) > Duration::from_secs(600));
    assert!(streamed.is_done(), "{}", streamed.raw);
    assert_eq!(streamed.text(), (0..20).map(|n| format!("{n} ")).collect::<String>());
}

/// A stream that has begun to arrive, on a socket that nobody reads unless the test does.
async fn begun(app: &TestApp) -> TcpStream {
    let mut socket = TcpStream::connect(app.addr).await.expect("a connection");
    let body = streaming().to_string();
    let request = format!(
        "POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {}\r\ncontent-length: {}\r\n\r\n{body}",
        app.seeded.token,
        body.len()
    );
    socket.write_all(request.as_bytes()).await.expect("it is sent");
    let mut some = [0; 1_024];
    socket.read_exact(&mut some).await.expect("it begins");
    socket
}

#[tokio::test]
async fn s13_a_caller_that_reads_nothing_for_a_minute_has_left() {
    let app = TestApp::start().await;
    app.set("a", "bulk-400");
    let _socket = begun(&app).await;
    // From here on nobody reads. Once every buffer in between is full, a minute is too long.
    eventually("the end of the stream", || {
        app.clock.advance(Duration::from_secs(31));
        app.sim.visits("a").open == 0
    })
    .await;
    eventually("the permits", || app.permits_are_free()).await;
    eventually("its record", || app.ledger.reading().unfinished == 0).await;
    let (task, _) = app.last_task().await;
    assert_eq!((task.status.as_str(), task.hold_state.as_str()), ("cancelled", "settled"));
    app.money_adds_up().await;
}

#[tokio::test]
async fn s12_a_slow_caller_slows_the_upstream_and_reads_everything() {
    let app = TestApp::start().await;
    app.set("a", "bulk-400");
    let mut socket = begun(&app).await;
    // Nobody reads: the upstream can't get rid of its 26 MB.
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert_eq!(app.sim.visits("a").open, 1);
    let (mut all, mut total) = (Vec::new(), 0);
    let read = tokio::time::timeout(Duration::from_secs(60), async {
        while !all.ends_with(b"data: [DONE]\n\n\r\n0\r\n\r\n") {
            let mut buffer = vec![0; 65_536];
            let count = socket.read(&mut buffer).await.expect("it goes on");
            assert!(count > 0, "it ended too soon");
            all.extend_from_slice(&buffer[..count]);
            total += count;
            all.drain(..all.len().saturating_sub(100));
        }
    });
    read.await.expect("the whole stream arrives");
    assert!(total > 400 * 64 * 1_024, "{total}");
}

#[tokio::test]
async fn a_finished_streams_connection_is_used_again() {
    let app = TestApp::start().await;
    for _ in 0..5 {
        assert!(stream(&app).await.is_done());
    }
    let answer = Answer::of(app.generation()).await;
    assert_eq!(answer.status, 200);
}
