//! /api/admin: who may, what is refused and how, and that a change is live.

use serde_json::{Value, json};

use crate::app::{Answer, Plan, TestApp};

/// An operator's API token, made as the command line makes it.
async fn operator(app: &TestApp, name: &str, role: &str) -> String {
    app.operator_token(name, role).await
}

async fn call(app: &TestApp, token: &str, method: &str, path: &str, body: Value) -> Answer {
    let method = method.parse().expect("a method");
    let request = app.client.request(method, app.url(&format!("/api/admin{path}"))).bearer_auth(token);
    let request = request.header("content-type", "application/json");
    Answer::of(if body.is_null() { request } else { request.body(body.to_string()) }).await
}

/// Every call that changes something.
const WRITES: [(&str, &str); 17] = [
    ("PUT", "/pools/main_text"),
    ("DELETE", "/pools/main_text"),
    ("PUT", "/models/a"),
    ("DELETE", "/models/a"),
    ("PUT", "/providers/sim"),
    ("PUT", "/accounts/acc-a"),
    ("PUT", "/callers/demo-team"),
    ("PUT", "/models/a/accounts/acc-b"),
    ("DELETE", "/models/a/accounts/acc-a"),
    ("POST", "/breakers/a/reset"),
    ("POST", "/breakers/reset"),
    ("POST", "/breakers/a/force-open"),
    ("POST", "/accounts/acc-a/clear-cooldown"),
    ("POST", "/callers/demo-team/tokens"),
    ("POST", "/callers/demo-team/credits"),
    ("PUT", "/config"),
    ("PUT", "/settings"),
];
const READS: [&str; 8] =
    ["/pools", "/pools/main_text", "/breaker-events", "/tasks", "/config", "/settings", "/audit", "/callers"];

#[tokio::test]
async fn nobody_gets_in_without_a_token_and_a_viewer_changes_nothing() {
    let app = TestApp::start().await;
    let viewer = operator(&app, "viewer", "viewer").await;
    let before = Answer::of(app.client.get(app.url("/api/admin/config")).bearer_auth(&viewer)).await.body;
    for token in ["", "fba_wrong", &app.seeded.token] {
        for path in READS {
            let answer = call(&app, token, "GET", path, Value::Null).await;
            assert_eq!((answer.status, answer.outcome().1), (401, "unauthorized"), "{path} {token}");
        }
    }
    for path in READS {
        assert_eq!(call(&app, &viewer, "GET", path, Value::Null).await.status, 200, "{path}");
    }
    for (method, path) in WRITES {
        let answer = call(&app, &viewer, method, path, json!({})).await;
        assert_eq!((answer.status, answer.outcome().1), (403, "forbidden"), "{method} {path}");
    }
    let after = Answer::of(app.client.get(app.url("/api/admin/config")).bearer_auth(&viewer)).await.body;
    assert_eq!(before, after);
}

#[tokio::test]
async fn every_wrong_field_is_named_and_nothing_is_changed() {
    let app = TestApp::start().await;
    let admin = operator(&app, "root", "admin").await;
    let before = call(&app, &admin, "GET", "/config", Value::Null).await.body;
    let cases = [
        ("PUT", "/pools/main_text", json!({"circuit_failure_threshold": 0}), "circuit_failure_threshold"),
        ("PUT", "/pools/main_text", json!({"strategy": "fastest"}), "strategy"),
        ("PUT", "/pools/main_text", json!({"colour": "red"}), "colour"),
        ("PUT", "/pools/bad key!", json!({"name": "x", "capability": "text"}), "group_key"),
        ("PUT", "/pools/new", json!({"name": "x", "capability": "smell"}), "capability"),
        ("PUT", "/models/a", json!({"weight": 0}), "weight"),
        ("PUT", "/models/a", json!({"priority": -1}), "priority"),
        ("PUT", "/models/a", json!({"pool": "nope"}), "pool"),
        ("PUT", "/models/a", json!({"base_url": "ftp://x"}), "base_url"),
        ("PUT", "/models/a", json!({"prices": {"input_per_1m": "cheap"}}), "input_per_1m"),
        ("PUT", "/accounts/acc-a", json!({"max_rps": -1}), "max_rps"),
        ("PUT", "/accounts/acc-a", json!({"provider": "nope"}), "provider"),
        ("PUT", "/providers/sim", json!({"base_url": "http://169.254.169.254/v1"}), "base_url"),
        (
            "PUT",
            "/providers/other",
            json!({"name": "x", "protocol": "openai", "base_url": "http://127.0.0.1:1/v1"}),
            "base_url",
        ),
        ("PUT", "/callers/demo-team", json!({"plan": {"concurrent_tasks": 0}}), "concurrent_tasks"),
        ("POST", "/callers/demo-team/credits", json!({"amount": "lots", "reason": "x"}), "amount"),
        ("PUT", "/settings", json!({"routing": {"max_models": 9}}), "max_models"),
        ("PUT", "/settings", json!({"default_pool": {"text": "nope"}}), "default_pool"),
        (
            "PUT",
            "/config",
            json!({"pools": [{"group_key": "x"}], "models": [{"name": "m", "provider": "nope"}]}),
            "provider",
        ),
        ("PUT", "/config", json!({"poools": []}), "poools"),
        ("PUT", "/config?dryrun=1", json!({"pools": []}), "dryrun"),
        ("PUT", "/callers/demo-team", json!({"pools": ["nope"]}), "pools"),
        ("POST", "/breakers/a/force-open", json!({"zz": 1}), "zz"),
        ("POST", "/pools/main_text/mock-generate-probe", json!({"n": "x"}), "n"),
    ];
    for (method, path, body, field) in cases {
        let answer = call(&app, &admin, method, path, body.clone()).await;
        assert_eq!(
            (answer.status, answer.outcome().1),
            (400, "invalid_request"),
            "{method} {path} {body}: {}",
            answer.body
        );
        let message = answer.body["error"]["message"].as_str().expect("a message");
        assert!(message.contains(field), "{path} {body}: {message}");
    }
    assert_eq!(call(&app, &admin, "GET", "/config", Value::Null).await.body, before, "nothing half done");
}

#[tokio::test]
async fn a_list_is_no_object_and_what_is_too_large_is_413() {
    let app = TestApp::start().await;
    let token = operator(&app, "root", "admin").await;
    for (method, path, body) in [
        ("POST", "/callers/demo-team/credits", json!(["1", null])),
        ("POST", "/pools/main_text/mock-generate-probe", json!([null, null])),
        ("POST", "/breakers/a/force-open", json!([60])),
        ("PUT", "/models/a/accounts/acc-a", json!([3])),
        ("POST", "/callers/demo-team/tokens", json!([null])),
        ("PUT", "/pools/main_text", json!([])),
        ("PUT", "/settings", json!([])),
        ("PUT", "/config", json!(null)),
    ] {
        let answer = call(&app, &token, method, path, body).await;
        assert_eq!(answer.outcome(), (400, "invalid_request"), "{method} {path}: {}", answer.body);
    }
    let large = json!({"name": "x".repeat(17 << 20)});
    let answer = call(&app, &token, "PUT", "/pools/main_text", large).await;
    assert_eq!(answer.outcome(), (413, "payload_too_large"));
    for path in ["/audit?cursor=abc", "/tasks?caller=nobody&from=garbage"] {
        let answer = call(&app, &token, "GET", path, Value::Null).await;
        assert_eq!(answer.outcome(), (400, "invalid_request"), "{path}: {}", answer.body);
    }
}

#[tokio::test]
async fn what_does_not_exist_is_404_and_what_is_in_use_409() {
    let app = TestApp::start().await;
    let admin = operator(&app, "root", "admin").await;
    for (method, path) in [
        ("GET", "/pools/nope"),
        ("DELETE", "/pools/nope"),
        ("DELETE", "/models/nope"),
        ("PUT", "/models/nope/accounts/acc-a"),
        ("DELETE", "/models/a/accounts/acc-b"),
        ("POST", "/breakers/nope/reset"),
        ("POST", "/breakers/nope/force-open"),
        ("POST", "/accounts/nope/clear-cooldown"),
        ("POST", "/callers/nope/tokens"),
        ("GET", "/tasks/nope"),
        ("GET", "/nope"),
    ] {
        let body = match path {
            _ if method == "GET" => Value::Null,
            "/breakers/nope/force-open" => json!({"seconds": 5}),
            _ => json!({}),
        };
        let answer = call(&app, &admin, method, path, body).await;
        assert_eq!(
            (answer.status, answer.outcome().1),
            (404, "not_found"),
            "{method} {path}: {}",
            answer.body
        );
    }
    assert_eq!(app.generate().await.status, 200);
    app.ledger.flush().await;
    for path in ["/pools/main_text", "/providers/sim", "/accounts/acc-a", "/callers/demo-team"] {
        let answer = call(&app, &admin, "DELETE", path, Value::Null).await;
        assert_eq!(answer.status, 409, "{path}: {}", answer.body);
        let message = answer.body["error"]["message"].as_str().expect("a message");
        assert!(message.contains("in use"), "{message}");
    }
}

#[tokio::test]
async fn a_change_is_live_when_its_answer_arrives() {
    let app = TestApp::start().await;
    let admin = operator(&app, "root", "admin").await;
    let served = async || app.generate().await.body["output"]["choices"][0]["message"]["content"].clone();
    assert_eq!(served().await, "Hello from a.");
    assert_eq!(call(&app, &admin, "PUT", "/models/a", json!({"is_active": false})).await.status, 200);
    assert_eq!(served().await, "Hello from b.");
    assert_eq!(
        call(&app, &admin, "POST", "/breakers/b/force-open", json!({"seconds": 600})).await.status,
        200
    );
    assert_eq!(served().await, "Hello from c.");
    let pool = call(&app, &admin, "GET", "/pools/main_text", Value::Null).await.body;
    let b = pool["members"]
        .as_array()
        .expect("members")
        .iter()
        .find(|member| member["name"] == "b")
        .expect("b")
        .clone();
    assert_eq!(b["breaker"]["state"], "open");
    assert_eq!(call(&app, &admin, "POST", "/breakers/b/reset", json!({})).await.status, 200);
    assert_eq!(served().await, "Hello from b.");
    let events = call(&app, &admin, "GET", "/breaker-events", Value::Null).await.body;
    assert!(events.to_string().contains("forced"), "{events}");
    let audit = call(&app, &admin, "GET", "/audit", Value::Null).await.body;
    assert!(audit.to_string().contains("root"), "{audit}");
}

#[tokio::test]
async fn the_export_imports_again_without_a_change_and_shows_no_key() {
    let app = TestApp::start().await;
    let admin = operator(&app, "root", "admin").await;
    let export = call(&app, &admin, "GET", "/config", Value::Null).await;
    assert!(!export.body.to_string().contains("sk-canary"));
    let again = call(&app, &admin, "PUT", "/config?dry_run=1", export.body.clone()).await;
    assert_eq!((again.status, &again.body["changes"]), (200, &json!([])));
    assert_eq!(call(&app, &admin, "PUT", "/config", export.body).await.status, 200);
    assert_eq!(app.generate().await.status, 200, "a masked key means keep");
    assert_eq!(app.sim.last_key("a").as_deref(), Some("sk-canary-a"));
}

#[tokio::test]
async fn a_dry_run_of_picks_counts_and_calls_nobody() {
    let app = TestApp::start().await;
    let admin = operator(&app, "root", "admin").await;
    call(&app, &admin, "POST", "/breakers/a/force-open", json!({"seconds": 60})).await;
    let probe = call(&app, &admin, "POST", "/pools/main_text/mock-generate-probe", json!({"n": 500})).await;
    assert_eq!((probe.status, &probe.body["picked"]["b"]), (200, &json!(500)), "{}", probe.body);
    assert!(
        probe.body["excluded"]["a"].as_str().is_some_and(|why| why.contains("breaker")),
        "{}",
        probe.body
    );
    assert_eq!(app.asked(), [0, 0, 0]);
    for n in [json!(0), json!(-1), json!("x"), json!(1_000_000)] {
        let answer =
            call(&app, &admin, "POST", "/pools/main_text/mock-generate-probe", json!({"n": n})).await;
        assert_eq!((answer.status, answer.outcome().1), (400, "invalid_request"), "{n}");
    }
}

#[tokio::test]
async fn the_tasks_list_finds_what_a_fallback_saved() {
    let app = TestApp::start().await;
    let admin = operator(&app, "root", "admin").await;
    app.set("a", "500");
    app.generate().await;
    app.set("a", "ok");
    app.generate().await;
    app.ledger.flush().await;
    let saved = call(&app, &admin, "GET", "/tasks?error_class=upstream", Value::Null).await.body;
    let tasks = saved["tasks"].as_array().expect("tasks");
    assert_eq!((tasks.len(), &tasks[0]["status"]), (1, &json!("succeeded")));
    let id = tasks[0]["task_id"].as_str().or(tasks[0]["id"].as_str()).expect("an id");
    let task = call(&app, &admin, "GET", &format!("/tasks/{id}"), Value::Null).await.body;
    let attempts = task["attempts"].as_array().expect("attempts");
    let kinds: Vec<_> = attempts.iter().map(|attempt| attempt["kind"].as_str().unwrap_or_default()).collect();
    assert_eq!(kinds, ["initial", "fallback"]);
    assert_eq!((&attempts[0]["account"], &attempts[0]["provider"]), (&json!("acc-a"), &json!("sim")));
    for query in ["limit=0", "limit=x", "from=yesterday", "status=done", "error_class=nope", "cursor=!"] {
        let answer = call(&app, &admin, "GET", &format!("/tasks?{query}"), Value::Null).await;
        assert_eq!((answer.status, answer.outcome().1), (400, "invalid_request"), "{query}: {}", answer.body);
    }
}

#[tokio::test]
async fn a_session_of_another_site_can_write_nothing() {
    let app = TestApp::start().await;
    let request = |origin: &str| {
        app.client
            .post(app.url("/api/admin/breakers/reset"))
            .header("origin", origin)
            .header("sec-fetch-site", "cross-site")
            .header("cookie", "forebay_session=whatever")
            .header("content-type", "application/json")
            .body("{}")
    };
    let answer = Answer::of(request("http://evil.example")).await;
    assert!([401, 403].contains(&answer.status), "{}", answer.body);
}

#[tokio::test]
async fn events_tell_what_an_operator_does_and_what_callers_get() {
    let app = TestApp::start().await;
    let token = app.operator_token("root", "admin").await;
    let mut events =
        app.client.get(app.url("/api/admin/events")).bearer_auth(&token).send().await.expect("a stream");
    let force = app.client.post(app.url("/api/admin/breakers/a/force-open")).bearer_auth(&token);
    force
        .header("content-type", "application/json")
        .body(r#"{"seconds": 5}"#)
        .send()
        .await
        .expect("an answer");
    app.set("b", "429");
    app.generate().await;
    let mut text = String::new();
    while !text.contains("event: task") {
        let chunk = events.chunk().await.expect("the stream goes on").expect("and on");
        text.push_str(&String::from_utf8_lossy(&chunk));
    }
    let order: Vec<&str> = text.lines().filter_map(|line| line.strip_prefix("event: ")).collect();
    assert_eq!(order, ["breaker", "cooldown", "task"], "{text}");
    assert!(text.contains(r#""by":"root""#) && text.contains(r#""model":"c""#), "{text}");
}

#[tokio::test]
async fn a_pool_that_keeps_texts_keeps_them_sealed_and_shows_them_to_operators() {
    let app = TestApp::with(Plan { pool: json!({"store_content": true}), size: 1, ..Plan::default() }).await;
    let token = app.operator_token("root", "admin").await;
    app.completion(json!({"messages": [{"role": "user", "content": "a secret plan"}]}))
        .send()
        .await
        .expect("an answer");
    let (task, _) = app.last_task().await;
    assert!(!task.request_summary.expect("a summary").contains("secret plan"), "sealed");
    let shown =
        Answer::of(app.client.get(app.url(&format!("/api/admin/tasks/{}", task.id))).bearer_auth(&token))
            .await;
    assert_eq!(
        shown.body["request_summary"]["content"]["messages"][0]["content"], "a secret plan",
        "{}",
        shown.body
    );
}
