//! Bad input: a clear error that names the field, the right status, and nothing half done.

use serde_json::{Value, json};

use crate::app::{Answer, Plan, TestApp, chat};

async fn refused(app: &TestApp, path: &str, body: impl Into<reqwest::Body>) -> Answer {
    Answer::of(app.post(path).body(body)).await
}

#[tokio::test]
async fn every_wrong_field_of_a_generation_is_named() {
    let app = TestApp::start().await;
    let message = json!([{"role": "user", "content": "hi"}]);
    let cases = [
        (json!({"model_groop": "x"}), "model_groop"),
        (json!({"model_group": 7}), "model_group"),
        (json!({"model": "main_text"}), "model"),
        (json!({"input": "hi"}), "input"),
        (json!({"input": {}}), "input.messages"),
        (json!({"input": {"messages": []}}), "input.messages"),
        (json!({"input": {"messages": [{"content": "x"}]}}), "input.messages[0].role"),
        (json!({"input": {"messages": message, "n": 0}}), "input.n"),
        (json!({"input": {"messages": message, "max_tokens": "many"}}), "input.max_tokens"),
        (json!({"input": {"messages": message, "model": "x"}}), "input.model"),
        (json!({"stream": "yes"}), "stream"),
        (json!({"deadline_ms": -1}), "deadline_ms"),
        (json!({"metadata": {"a": 1}}), "metadata"),
        (json!({"capability": "image"}), "capability"),
        (json!({"operation": "edit"}), "operation"),
    ];
    for (fields, field) in cases {
        let answer = refused(&app, "/api/generate", chat(&fields).to_string()).await;
        assert_eq!(answer.outcome(), (400, "invalid_request"), "{fields}");
        let message = answer.body["error"]["message"].as_str().expect("a message");
        assert!(message.starts_with(&format!("{field}:")), "{fields}: {message}");
    }
    assert_eq!(app.asked(), [0, 0, 0]);
    let tasks = Answer::of(app.get("/api/tasks")).await;
    assert_eq!(tasks.body["tasks"], json!([]), "nothing half done");
}

#[tokio::test]
async fn what_is_not_json_is_said_so_and_too_much_is_413() {
    let app = TestApp::with(Plan { settings: json!({"body_limit": 2_000}), ..Plan::default() }).await;
    for body in ["", "{", "[]", "null", "\"x\"", "{\"a\":\u{0}}"] {
        let answer = refused(&app, "/api/generate", body).await;
        assert_eq!(answer.outcome(), (400, "invalid_request"), "{body:?}");
        assert!(answer.body["error"]["message"].as_str().is_some_and(|text| text.starts_with("body:")));
        let answer = refused(&app, "/v1/chat/completions", body).await;
        assert_eq!(
            (answer.status, &answer.body["error"]["type"]),
            (400, &json!("invalid_request_error")),
            "{body:?}"
        );
    }
    let long = chat(&json!({"task_type": "x".repeat(3_000)})).to_string();
    assert_eq!(refused(&app, "/api/generate", long).await.outcome(), (413, "payload_too_large"));
    let deep = format!("{}{}", "[".repeat(900), "]".repeat(900));
    assert_eq!(refused(&app, "/api/generate", deep).await.status, 400);
}

#[tokio::test]
async fn what_does_not_exist_is_404_and_what_is_not_yours_too() {
    let app = TestApp::start().await;
    let cases = [json!({"model_group": "nope"}), json!({"model_group": null, "model": "nope"})];
    for fields in cases {
        let answer = refused(&app, "/api/generate", chat(&fields).to_string()).await;
        assert_eq!(answer.outcome(), (404, "not_found"), "{fields}");
    }
    let answer = Answer::of(app.completion(json!({"model": "nope"}))).await;
    assert_eq!((answer.outcome(), &answer.body["error"]["param"]), ((404, "not_found"), &json!("model")));
    assert_eq!(Answer::of(app.get("/api/tasks/nope")).await.outcome(), (404, "not_found"));
    assert_eq!(Answer::of(app.get("/v1/nope")).await.outcome(), (404, "not_found"));
    assert_eq!(Answer::of(app.get("/api/nope")).await.outcome(), (404, "not_found"));
    assert_eq!(Answer::of(app.get("/api/generate")).await.status, 405);

    let file = json!({"callers": [{"name": "demo-team", "pools": ["other"]}],
                      "pools": [{"group_key": "other", "name": "Other", "capability": "text"}]});
    let file = forebay_wire::import::parse_value(&file).expect("a file");
    app.catalog.import(&file, forebay::catalog::Author("test"), false).await.expect("it is taken");
    assert_eq!(app.generate().await.outcome(), (404, "not_found"));
    let models = Answer::of(app.get("/v1/models")).await;
    let ids: Vec<_> =
        models.body["data"].as_array().into_iter().flatten().map(|model| model["id"].clone()).collect();
    assert_eq!(ids, [json!("other")]);
}

#[tokio::test]
async fn without_a_valid_token_it_is_401_in_the_shape_of_the_surface() {
    let app = TestApp::start().await;
    for path in ["/api/tasks", "/api/tasks/x", "/v1/models"] {
        for token in ["", "Bearer", "Bearer fb_wrong", "Basic abc"] {
            let answer = Answer::of(app.client.get(app.url(path)).header("authorization", token)).await;
            assert_eq!(answer.outcome(), (401, "unauthorized"), "{path} {token:?}");
        }
    }
    let answer = Answer::of(app.client.post(app.url("/v1/chat/completions")).body("{}")).await;
    assert_eq!((answer.status, &answer.body["error"]["type"]), (401, &json!("authentication_error")));
    let answer =
        Answer::of(app.client.get(app.url("/v1/models")).header("x-api-key", &app.seeded.token)).await;
    assert_eq!(answer.status, 200);
}

#[tokio::test]
async fn features_that_nobody_has_are_named() {
    let features = json!({"a": {"features": {"stream": false, "tools": false}}});
    let app = TestApp::with(Plan { size: 1, models: features, ..Plan::default() }).await;
    let cases = [
        (json!({"stream": true}), "stream"),
        (json!({"tools": [{"type": "function", "function": {"name": "f"}}]}), "tools"),
    ];
    for (fields, feature) in cases {
        let answer = Answer::of(app.completion(fields)).await;
        assert_eq!(
            (answer.outcome(), &answer.body["error"]["param"]),
            ((400, "unsupported"), &json!(feature))
        );
    }
    let thinking = refused(&app, "/api/generate", chat(&json!({"thinking": true})).to_string()).await;
    assert_eq!(thinking.outcome(), (400, "unsupported"));
    assert_eq!(app.asked(), [0, 0, 0]);
}

#[tokio::test]
async fn wrong_filters_of_the_task_list_are_named() {
    let app = TestApp::start().await;
    for (query, field) in [
        ("status=done", "status"),
        ("limit=0", "limit"),
        ("limit=x", "limit"),
        ("cursor=%00", "cursor"),
        ("colour=red", "colour"),
        ("capability=smell", "capability"),
    ] {
        let answer = Answer::of(app.get(&format!("/api/tasks?{query}"))).await;
        assert_eq!(answer.outcome(), (400, "invalid_request"), "{query}");
        assert!(
            answer.body["error"]["message"].as_str().is_some_and(|text| text.starts_with(field)),
            "{query}"
        );
    }
}

#[tokio::test]
async fn the_task_list_pages_through_every_task_once() {
    let app = TestApp::start().await;
    for _ in 0..7 {
        assert_eq!(app.generate().await.status, 200);
    }
    let mut seen = Vec::new();
    let mut cursor = String::new();
    loop {
        let page = Answer::of(app.get(&format!("/api/tasks?limit=3{cursor}"))).await;
        let tasks = page.body["tasks"].as_array().expect("tasks").clone();
        seen.extend(tasks.into_iter().map(|task| task["task_id"].clone()));
        match &page.body["next_cursor"] {
            Value::String(next) => cursor = format!("&cursor={next}"),
            _ => break,
        }
    }
    let unique: std::collections::HashSet<_> = seen.iter().map(Value::to_string).collect();
    assert_eq!((seen.len(), unique.len()), (7, 7));
}

#[tokio::test]
async fn every_response_has_a_request_id_and_every_refusal_its_envelope() {
    let app = TestApp::start().await;
    let get = |path: &str| app.client.get(app.url(path)).bearer_auth(&app.seeded.token);
    for path in [
        "/healthz",
        "/readyz",
        "/metrics",
        "/v1/models",
        "/api/tasks",
        "/api/admin/pools",
        "/admin/login",
        "/",
        "/v1",
        "/api",
        "/nope",
    ] {
        let answer = Answer::of(get(path)).await;
        assert!(answer.header("x-request-id").is_some_and(|id| !id.is_empty()), "{path}");
    }
    for (path, status) in
        [("/nope", 404), ("/v1", 404), ("/api", 404), ("/api/tasks/%ff", 400), ("/api/admin/pools/%ff", 401)]
    {
        let answer = Answer::of(get(path)).await;
        let error = &answer.body["error"];
        assert_eq!((answer.status, error["message"].is_string()), (status, true), "{path}: {}", answer.body);
    }
}

#[tokio::test]
async fn what_is_announced_as_too_large_need_not_be_sent() {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let app = TestApp::start().await;
    let mut socket = tokio::net::TcpStream::connect(app.addr).await.expect("a connection");
    let head = format!(
        "POST /api/generate HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {}\r\ncontent-length: 1000000000\r\n\r\n",
        app.seeded.token
    );
    socket.write_all(head.as_bytes()).await.expect("it is sent");
    let mut answer = [0; 12];
    socket.read_exact(&mut answer).await.expect("an answer at once");
    assert_eq!(&answer, b"HTTP/1.1 413");
}
