//! Whole answers and the money they cost, each fault named after its number.

use std::time::Duration;

use serde_json::{Value, json};

use crate::app::{Answer, Plan, TestApp, chat, eventually};

#[tokio::test]
async fn a_generation_answers_in_our_shape_and_is_paid_for_at_the_pools_price() {
    let app = TestApp::start().await;
    let answer = app.generate().await;
    assert_eq!(answer.status, 200, "{}", answer.body);
    let body = &answer.body;
    assert_eq!(
        (&body["status"], &body["capability"], &body["model"]),
        (&json!("succeeded"), &json!("text"), &json!("main_text"))
    );
    assert_eq!(body["output"]["choices"][0]["message"]["content"], "Hello from a.");
    assert_eq!(body["output"].as_object().map(|output| output.len()), Some(1), "nothing but choices: {body}");
    assert_eq!(answer.header("x-request-id"), body["task_id"].as_str());
    // 8 × 0.50 + 13 × 1.50 micro-units, rounded half up once.
    assert_eq!((&body["usage"]["input_tokens"], &body["usage"]["output_tokens"]), (&json!(8), &json!(13)));
    assert_eq!(body["credits_charged"], "0.000024");
    let (task, attempts) = app.last_task().await;
    assert_eq!((task.credits_charged, task.hold_state.as_str()), (Some(24), "settled"));
    // 8 × 0.10 + 13 × 0.30: what we pay.
    assert_eq!((attempts[0].cost, attempts[0].account.as_deref()), (Some(5), Some("acc-a")));
    app.money_adds_up().await;

    let task = Answer::of(app.get(&format!("/api/tasks/{}", task.id))).await;
    assert_eq!(
        (task.status, &task.body["status"], &task.body["output"]),
        (200, &json!("succeeded"), &body["output"])
    );
}

#[tokio::test]
async fn a_completion_answers_in_openais_shape_and_names_nobody() {
    let app = TestApp::start().await;
    let answer = Answer::of(app.completion(json!({"temperature": 0.5, "some_new_field": {"x": 1}}))).await;
    assert_eq!((answer.status, &answer.body["object"]), (200, &json!("chat.completion")));
    assert_eq!(answer.body["model"], "main_text");
    assert_eq!(answer.body["usage"]["total_tokens"], 21);
    let text = answer.body.to_string();
    assert!(!text.contains("sim") && !text.contains("fp_"), "{text}");
}

#[tokio::test]
async fn m1_what_answers_nothing_is_no_success_and_falls_over() {
    let app = TestApp::start().await;
    for behaviour in ["empty-choices", "empty-content", "html", "bad-json", "error-in-200"] {
        app.set("a", behaviour);
        let answer = app.generate().await;
        assert_eq!(answer.body["output"]["choices"][0]["message"]["content"], "Hello from b.", "{behaviour}");
        let (_, attempts) = app.last_task().await;
        let class = if behaviour == "error-in-200" { "upstream" } else { "bad_answer" };
        assert_eq!(attempts[0].error_class.as_deref(), Some(class), "{behaviour}");
        app.set("a", "ok");
        app.generate().await;
    }
    // A tool call without text is no empty answer.
    app.set("a", "tools");
    assert_eq!(app.generate().await.body["output"]["choices"][0]["message"]["content"], Value::Null);
}

#[tokio::test]
async fn m1_a_whole_answer_cut_short_is_unknown_and_never_sent_again() {
    let app = TestApp::start().await;
    for behaviour in ["cut-content", "cut", "reset", "502", "504", "524"] {
        let before = app.asked();
        app.set("a", behaviour);
        let answer = app.generate().await;
        assert_eq!(answer.outcome(), (504, "outcome_unknown"), "{behaviour}");
        assert_eq!(answer.header("x-should-retry"), Some("false"), "{behaviour}");
        assert_eq!(app.asked(), [before[0] + 1, before[1], before[2]], "{behaviour}");
        let (task, attempts) = app.last_task().await;
        assert_eq!(
            (task.status.as_str(), task.hold_state.as_str()),
            ("outcome_unknown", "released"),
            "{behaviour}"
        );
        assert_eq!(attempts[0].status, "outcome_unknown");
        assert!(attempts[0].outcome_unknown(), "{behaviour}");
        app.set("a", "ok");
        assert_eq!(app.generate().await.status, 200);
    }
    app.money_adds_up().await;
}

#[tokio::test]
async fn m2_a_read_timeout_sends_one_request_in_all() {
    let app = TestApp::start().await;
    app.set("a", "hang");
    let advance = async {
        app.sim.until("a", |visits| visits.requests == 1).await;
        app.clock.advance(Duration::from_secs(120));
    };
    let (answer, ()) = tokio::join!(app.generate(), advance);
    assert_eq!(answer.outcome(), (504, "outcome_unknown"));
    assert_eq!(app.asked(), [1, 0, 0]);
    let (task, _) = app.last_task().await;
    assert_eq!((task.hold_state.as_str(), task.credits_charged), ("released", Some(0)));
    app.money_adds_up().await;
}

#[tokio::test]
async fn m5_a_billed_failure_costs_us_and_the_caller_pays_once() {
    let models = json!({"a": {"prices": {"input_per_1m": "100", "output_per_1m": "100"}}});
    let app = TestApp::with(Plan { models, ..Plan::default() }).await;
    // An answer without content, but with usage: billed all the same.
    app.set("a", "empty-content");
    let answer = app.generate().await;
    assert_eq!((answer.status, &answer.body["credits_charged"]), (200, &json!("0.000024")));
    let (_, attempts) = app.last_task().await;
    let costs: Vec<_> = attempts.iter().map(|attempt| attempt.cost).collect();
    assert_eq!(costs, [Some(800), Some(5)], "each at its own price");
    app.money_adds_up().await;
}

#[tokio::test]
async fn a_definite_refusal_costs_nothing_and_the_tasks_cost_stays_known() {
    let app = TestApp::start().await;
    let token = app.operator_token("root", "admin").await;
    app.set("a", "500");
    app.generate().await;
    let (task, attempts) = app.last_task().await;
    assert_eq!((attempts[0].cost, attempts[1].cost), (Some(0), Some(5)));
    let shown = app.client.get(app.url(&format!("/api/admin/tasks/{}", task.id))).bearer_auth(&token);
    assert_eq!(Answer::of(shown).await.body["platform_cost"], "0.000005");
}

#[tokio::test]
async fn a_fallback_is_recorded_with_its_reason_and_its_wait() {
    let app = TestApp::start().await;
    app.set("a", "500");
    assert_eq!(app.generate().await.status, 200);
    let (task, attempts) = app.last_task().await;
    assert_eq!(task.final_model.as_deref(), Some("b"));
    let first = &attempts[0];
    assert_eq!(
        (first.kind.as_str(), first.status.as_str(), first.http_status),
        ("initial", "failed", Some(500))
    );
    assert_eq!(first.error_message.as_deref(), Some("simulated failure"));
    let second = &attempts[1];
    assert_eq!((second.kind.as_str(), second.status.as_str()), ("fallback", "succeeded"));
    assert!(second.reason.contains("after upstream"), "{}", second.reason);
}

#[tokio::test]
async fn the_callers_fault_is_told_in_our_words_with_the_parameter() {
    let app = TestApp::start().await;
    app.set("a", "400");
    let answer = app.generate().await;
    assert_eq!(answer.outcome(), (400, "invalid_request"));
    assert_eq!(answer.body["error"]["param"], "temperature");
    assert!(!answer.body.to_string().contains("at most 2"), "not in the upstream's words");
    app.set("a", "policy");
    assert_eq!(app.generate().await.outcome(), (400, "content_rejected"));
    assert_eq!(app.asked(), [2, 0, 0]);
    assert_eq!(app.breaker("a").consecutive_failures, 0);
}

#[tokio::test]
async fn all_attempts_failed_is_502_and_free() {
    let app =
        TestApp::with(Plan { settings: json!({"routing": {"text": {"waits_ms": [1]}}}), ..Plan::default() })
            .await;
    ["a", "b", "c"].iter().for_each(|model| app.set(model, "500"));
    let answer = app.generate().await;
    assert_eq!(answer.outcome(), (502, "upstream_failed"));
    assert_eq!(app.asked().iter().sum::<u64>(), 5, "five requests at most");
    let (task, attempts) = app.last_task().await;
    assert_eq!((task.status.as_str(), task.hold_state.as_str(), attempts.len()), ("failed", "released", 5));
    app.money_adds_up().await;
}

#[tokio::test]
async fn too_little_credit_is_402_before_anything_is_sent() {
    let app = TestApp::start().await;
    let body = chat(
        &json!({"input": {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 10_000_000, "n": 100}}),
    );
    let answer = Answer::of(app.post("/api/generate").body(body.to_string())).await;
    assert_eq!(answer.outcome(), (402, "insufficient_credits"));
    assert_eq!(app.asked(), [0, 0, 0]);
    assert!(app.permits_are_free());
    app.money_adds_up().await;
}

#[tokio::test]
async fn a_caller_has_so_many_unfinished_tasks_and_no_more() {
    let app = TestApp::start().await;
    let plan = json!({"callers": [{"name": "demo-team", "plan": {"concurrent_tasks": 2}}]});
    let plan = forebay_wire::import::parse_value(&plan).expect("a plan");
    app.catalog.import(&plan, forebay::catalog::Author("test"), false).await.expect("it is taken");
    app.set("a", "hang");
    let under_way: Vec<_> = (0..2).map(|_| tokio::spawn(app.generation().send())).collect();
    app.sim.until("a", |visits| visits.open == 2).await;
    let answer = app.generate().await;
    assert_eq!(answer.outcome(), (429, "too_many_concurrent_tasks"));
    assert!(answer.header("retry-after").is_some());
    under_way.iter().for_each(tokio::task::JoinHandle::abort);
    app.sim.until("a", |visits| visits.open == 0).await;
    app.set("a", "ok");
    eventually("the slots", || {
        app.catalog.snapshot().callers.values().all(|caller| caller.in_flight.taken() == 0)
    })
    .await;
    assert_eq!(app.generate().await.status, 200);
}

#[tokio::test]
async fn o6_stopping_lets_streams_finish_and_takes_no_new_work() {
    let mut app = TestApp::start().await;
    app.set("a", "pieces-20-50");
    let streams: Vec<_> = (0..50)
        .map(|_| {
            let request = app.completion(json!({"stream": true}));
            tokio::spawn(crate::app::Streamed::of(request))
        })
        .collect();
    app.sim.until("a", |visits| visits.open == 50).await;
    app.stop();
    let ready = app.client.get(app.url("/readyz"));
    let mut draining = false;
    while !draining {
        draining =
            ready.try_clone().expect("a request").send().await.expect("it still answers").status() == 503;
    }
    assert_eq!(app.generate().await.outcome(), (503, "shutting_down"));
    for stream in streams {
        let streamed = stream.await.expect("it ends");
        assert!(streamed.is_done() && streamed.text().ends_with("19 "), "{}", streamed.raw);
    }
    app.serving.take().expect("it was serving").await.expect("it ends, and without a panic");
    let (task, _) = app.last_task().await;
    assert_eq!(task.status, "succeeded");
}

#[tokio::test]
async fn a_callers_own_deadline_opens_no_breaker() {
    let app = TestApp::start().await;
    for (behaviour, stream) in [("slow-300", false), ("slow-300", true), ("ok", false)] {
        app.set("a", behaviour);
        for _ in 0..8 {
            let deadline = if behaviour == "ok" { 1 } else { 100 };
            let body = chat(&json!({"deadline_ms": deadline, "stream": stream}));
            let answer = Answer::of(app.post("/api/generate").body(body.to_string())).await;
            assert!(behaviour == "ok" || answer.status == 504, "{}", answer.body);
        }
        assert_eq!(app.breaker("a").consecutive_failures, 0, "{behaviour}");
    }
    app.set("a", "ok");
    assert_eq!(app.generate().await.body["output"]["choices"][0]["message"]["content"], "Hello from a.");
}

#[tokio::test]
async fn o6_what_outlasts_the_drain_time_is_told_so_and_is_on_record() {
    let mut app = TestApp::with(Plan { settings: json!({"drain_seconds": 0}), ..Plan::default() }).await;
    app.set("a", "hang");
    let (waiting, streaming) = (app.generation(), app.completion(json!({"stream": true})));
    let whole = tokio::spawn(async move { Answer::of(waiting).await });
    app.sim.until("a", |visits| visits.open == 1).await;
    app.set("a", "hang-content");
    let streamed = tokio::spawn(async move { crate::app::Streamed::of(streaming).await });
    app.sim.until("a", |visits| visits.open == 2).await;
    eventually("the stream's first content", || app.breaker("a").recent.calls > 0).await;
    app.stop();
    let whole = whole.await.expect("an answer");
    assert_eq!(whole.outcome(), (504, "outcome_unknown"), "{}", whole.body);
    assert_eq!(whole.header("x-should-retry"), Some("false"));
    let streamed = streamed.await.expect("an answer");
    assert_eq!(streamed.error_code().as_deref(), Some("upstream_failed"), "{}", streamed.raw);
    app.serving.take().expect("it serves").await.expect("it ends");
    app.money_adds_up().await;
}

#[tokio::test]
async fn no_key_is_in_any_answer_or_record() {
    let app = TestApp::start().await;
    let mut seen = String::new();
    for behaviour in ["ok", "500", "401", "400", "cut", "error-in-200"] {
        app.set("a", behaviour);
        seen.push_str(&app.generate().await.body.to_string());
        let (task, attempts) = app.last_task().await;
        seen.push_str(&format!("{task:?}{attempts:?}"));
    }
    seen.push_str(
        &app.client.get(app.url("/metrics")).send().await.expect("metrics").text().await.expect("text"),
    );
    assert_eq!(app.sim.last_key("b").as_deref(), Some("sk-canary-b"), "the key is used");
    assert!(!seen.contains("sk-canary") && !seen.contains(&app.seeded.token), "and seen nowhere");
}
