//! Whom a request goes to: default pools, features, regions, thinking, own keys, limits of accounts, and
//! models asked for by name.

use std::time::Duration;

use serde_json::{Value, json};

use crate::app::{Answer, MODELS, Plan, TestApp, chat};

async fn generate(app: &TestApp, fields: Value) -> Answer {
    Answer::of(app.post("/api/generate").body(chat(&fields).to_string())).await
}

fn served_by(answer: &Answer) -> &str {
    let text = answer.body["output"]["choices"][0]["message"]["content"].as_str();
    text.and_then(|text| text.strip_prefix("Hello from ")?.strip_suffix('.')).unwrap_or("nobody")
}

async fn import(app: &TestApp, file: Value) {
    let document = forebay_wire::import::parse_value(&file).expect("a file");
    app.catalog.import(&document, forebay::catalog::Author("test"), false).await.expect("imported");
}

#[tokio::test]
async fn a_request_that_names_nobody_is_served_by_the_default_pool_of_its_capability() {
    let app =
        TestApp::with(Plan { settings: json!({"default_pool": {"text": "main_text"}}), ..Plan::default() })
            .await;
    let input = json!({"input": {"messages": [{"role": "user", "content": "hi"}]}});
    let ask = |body: &Value| Answer::of(app.post("/api/generate").body(body.to_string()));
    assert_eq!(ask(&input).await.body["model"], "main_text");
    let mut image = input.clone();
    image["capability"] = json!("image");
    let answer = ask(&image).await;
    assert_eq!(
        (answer.status, &answer.body["error"]["param"]),
        (400, &json!("model_group")),
        "no default for it"
    );
    // What an old caller calls a task stands for a capability.
    import(&app, json!({"settings": {"task_types": {"chat": {"capability": "text"}}}})).await;
    let mut old = input.clone();
    old["task_type"] = json!("chat");
    assert_eq!(ask(&old).await.status, 200);
}

#[tokio::test]
async fn both_ids_in_one_payload_the_pool_wins_if_it_is_there() {
    let app = TestApp::start().await;
    let both = |pool: &str| json!({"model_group": pool, "ai_model_id": "c"});
    assert_eq!(served_by(&generate(&app, both("main_text")).await), "a");
    assert_eq!(served_by(&generate(&app, both("gone")).await), "c");
    import(&app, json!({"pools": [{"group_key": "main_text", "is_active": false}]})).await;
    assert_eq!(served_by(&generate(&app, both("main_text")).await), "c");
}

#[tokio::test]
async fn thinking_goes_to_the_deep_thinking_model_first_and_to_others_that_can() {
    let app = TestApp::with(Plan {
        pool: json!({"deep_thinking_model": "c"}),
        models: json!({"b": {"features": {"thinking": true}}, "c": {"features": {"thinking": true}}}),
        ..Plan::default()
    })
    .await;
    assert_eq!(served_by(&generate(&app, json!({})).await), "a");
    assert_eq!(served_by(&generate(&app, json!({"thinking": true})).await), "c");
    app.set("c", "500");
    assert_eq!(served_by(&generate(&app, json!({"thinking": true})).await), "b");
}

#[tokio::test]
async fn a_region_is_preferred_and_excludes_nobody() {
    let app = TestApp::with(Plan { weights: Some([1, 1, 1]), ..Plan::default() }).await;
    import(
        &app,
        json!({"providers": [{"key": "north", "name": "North", "protocol": "openai", "base_url": app.sim.base_url(),
                              "region": "north", "allow_private_network": true}],
               "accounts": [{"label": "acc-north", "provider": "north", "account_key": "sk-north"}],
               "models": [{"name": "n", "provider": "north", "upstream_model": "n", "capability": "text",
                           "pool": "main_text", "accounts": [{"label": "acc-north", "priority": 0}]}]}),
    )
    .await;
    for _ in 0..4 {
        assert_eq!(served_by(&generate(&app, json!({"region": "north"})).await), "n");
    }
    app.set("n", "500");
    assert_eq!(generate(&app, json!({"region": "north"})).await.status, 200, "others serve it too");
    assert_eq!(generate(&app, json!({"region": "nowhere"})).await.status, 200);
}

#[tokio::test]
async fn a_models_own_keys_are_used_in_order_where_it_has_no_account() {
    let app = TestApp::with(Plan { size: 1, ..Plan::default() }).await;
    import(&app, json!({"models": [{"name": "a", "accounts": [], "api_keys": ["sk-own-1", "sk-own-2"]}]}))
        .await;
    generate(&app, json!({})).await;
    assert_eq!(app.sim.last_key("a").as_deref(), Some("sk-own-1"));
    app.set("a", "once-401");
    assert_eq!(generate(&app, json!({})).await.status, 200);
    assert_eq!(app.sim.last_key("a").as_deref(), Some("sk-own-2"), "the next key at once");
    // Shown to nobody, kept by an export that comes back.
    let exported = app.catalog.export();
    assert!(!exported.to_string().contains("sk-own"));
    import(&app, exported).await;
    app.clock.advance(Duration::from_secs(60));
    generate(&app, json!({})).await;
    assert_eq!(app.sim.last_key("a").as_deref(), Some("sk-own-1"));
}

#[tokio::test]
async fn a_daily_limit_holds_and_ends_with_the_day() {
    let app = TestApp::with(Plan { account: json!({"daily_limit": 2}), size: 1, ..Plan::default() }).await;
    for _ in 0..2 {
        assert_eq!(app.generate().await.status, 200);
    }
    let answer = app.generate().await;
    assert_eq!(answer.outcome(), (503, "no_available_model"), "{}", answer.body);
    assert!(
        answer.body["error"]["retry_after_ms"].as_u64().is_some_and(|ms| ms <= 86_400_000),
        "{}",
        answer.body
    );
    assert_eq!(app.asked()[0], 2);
    app.clock.advance(Duration::from_secs(86_400));
    assert_eq!(app.generate().await.status, 200, "a new day");
}

#[tokio::test]
async fn tokens_a_minute_are_taken_on_the_way_in_and_another_account_serves() {
    let app = TestApp::with(Plan { account: json!({"max_tpm": 60}), size: 1, ..Plan::default() }).await;
    // Some twenty tokens each: a few fit into the burst, then a wait is due.
    let mut outcomes = Vec::new();
    for _ in 0..12 {
        outcomes.push(generate(&app, json!({"deadline_ms": 300})).await.status);
    }
    assert_eq!(outcomes[0], 200);
    assert!(outcomes.contains(&429) || outcomes.contains(&504), "{outcomes:?}");
    assert!(app.asked()[0] < 12);
}

#[tokio::test]
async fn a_model_asked_for_by_name_falls_back_only_where_it_says_so() {
    let app = TestApp::with(Plan {
        models: json!({"a": {"routing": {"fallback_on_failure": true}, "pool": null},
                       "b": {"routing": {"fallback_candidate": false}}}),
        settings: json!({"routing": {"text": {"retries": 0}}}),
        ..Plan::default()
    })
    .await;
    let named = |name: &str| json!({"model_group": null, "ai_model_id": name});
    app.set("a", "500");
    let answer = generate(&app, named("a")).await;
    assert_eq!(
        (served_by(&answer), &answer.body["model"]),
        ("c", &json!("a")),
        "b is no candidate: {}",
        answer.body
    );
    let (_, attempts) = app.last_task().await;
    let kinds: Vec<_> =
        attempts.iter().map(|attempt| (attempt.model.as_str(), attempt.kind.as_str())).collect();
    assert_eq!(kinds, [("a", "initial"), ("c", "fallback")]);
    // Its breaker open counts as a failure of it.
    for _ in 0..5 {
        generate(&app, named("a")).await;
    }
    let before = app.asked();
    assert_eq!(served_by(&generate(&app, named("a")).await), "c");
    assert_eq!(app.asked()[0], before[0], "nothing is sent to it");
    // One that says nothing of it gets no other.
    app.set("b", "500");
    assert_eq!(generate(&app, named("b")).await.outcome(), (502, "upstream_failed"));
    // What may have been done is asked of nobody else.
    app.clock.advance(Duration::from_secs(120));
    app.set("a", "reset");
    let before = app.asked();
    assert_eq!(generate(&app, named("a")).await.outcome(), (504, "outcome_unknown"));
    assert_eq!(app.asked(), [before[0] + 1, before[1], before[2]]);
}

#[tokio::test]
async fn every_strategy_and_every_setting_of_a_pool_is_taken_live() {
    let app = TestApp::with(Plan { weights: Some([1, 1, 1]), ..Plan::default() }).await;
    for strategy in ["round_robin", "least_latency", "lowest_cost", "weighted_random"] {
        import(
            &app,
            json!({"pools": [{"group_key": "main_text", "strategy": strategy, "dynamic_weights": true}]}),
        )
        .await;
        for _ in 0..9 {
            assert_eq!(app.generate().await.status, 200, "{strategy}");
        }
    }
    // The cheapest, once prices differ.
    import(&app, json!({"pools": [{"group_key": "main_text", "strategy": "lowest_cost"}],
                        "models": [{"name": "b", "prices": {"input_per_1m": "0.01", "output_per_1m": "0.01"}}]}))
    .await;
    for _ in 0..4 {
        assert_eq!(served_by(&app.generate().await), "b");
    }
}

#[tokio::test]
async fn an_image_pool_sends_each_request_where_it_can_be_made() {
    let features = |features: Value| json!({"features": features});
    let app = TestApp::with(Plan {
        capability: "image",
        models: json!({"a": features(json!({"resolutions": ["512x512"]})),
                       "b": features(json!({"resolutions": ["1024x1024"], "ratios": ["1:1"]})),
                       "c": features(json!({"image_edit": true, "max_references": 2}))}),
        ..Plan::default()
    })
    .await;
    let ask = async |input: Value, operation: &str| {
        let body = json!({"model_group": "main_image", "operation": operation, "input": input});
        let before = app.asked();
        let answer = Answer::of(app.post("/api/generate").body(body.to_string())).await;
        let after = app.asked();
        let asked =
            MODELS.iter().zip(before.iter().zip(after)).find(|(_, (before, after))| **before < *after);
        (answer, asked.map(|(name, _)| *name))
    };
    assert_eq!(ask(json!({"prompt": "x", "size": "1024x1024"}), "generate").await.1, Some("b"));
    assert_eq!(
        ask(json!({"prompt": "x", "ratio": "16:9"}), "generate").await.1,
        Some("a"),
        "a names no ratios"
    );
    let image = "data:image/png;base64,iVBORw==";
    assert_eq!(ask(json!({"prompt": "x", "image": image}), "edit").await.1, Some("c"));
    let (answer, asked) = ask(json!({"prompt": "x", "image": [image, image, image]}), "edit").await;
    assert_eq!((answer.outcome(), asked), ((400, "unsupported"), None), "{}", answer.body);
}

#[tokio::test]
async fn arks_and_dashscopes_own_ways_are_spoken() {
    let base = |app: &TestApp, path: &str| app.sim.base_url().replace("/v1", path);
    let app = TestApp::with(Plan { capability: "image", size: 1, ..Plan::default() }).await;
    let ark = json!({"providers": [{"key": "sim", "protocol": "volcengine_ark", "base_url": base(&app, "/api/v3")}]});
    import(&app, ark).await;
    let body = json!({"model_group": "main_image", "input": {"prompt": "x", "n": 3, "watermark": false}});
    let answer = Answer::of(app.post("/api/generate").body(body.to_string())).await;
    assert_eq!(answer.body["output"]["data"].as_array().map(Vec::len), Some(3), "{}", answer.body);
    let asked = app.sim.last_request("a");
    assert_eq!(
        (&asked["sequential_image_generation"], &asked["watermark"], &asked["n"]),
        (&json!("auto"), &json!(false), &Value::Null)
    );

    let app = TestApp::with(Plan {
        capability: "audio",
        size: 1,
        account: json!({"account_key": "app-7:token-7"}),
        models: json!({"a": {"features": {"voices": {"alloy": "BV001"}}}}),
        ..Plan::default()
    })
    .await;
    let speech = json!({"providers": [{"key": "sim", "protocol": "volcengine_ark", "base_url": base(&app, "/api/v1")}]});
    import(&app, speech).await;
    let body = json!({"model": "main_audio", "input": "Hello", "voice": "alloy"});
    let spoken = app.post("/v1/audio/speech").body(body.to_string()).send().await.expect("an answer");
    assert_eq!(spoken.status(), 200);
    assert_eq!(spoken.bytes().await.expect("a body").len(), 417);
    assert_eq!(app.sim.last_key("BV001").as_deref(), Some("token-7"), "the token of APPID:TOKEN");
    assert_eq!(app.sim.last_request("BV001")["app"]["appid"], "app-7");
    app.set("BV001", "empty-choices");
    let answer = Answer::of(app.post("/v1/audio/speech").body(body.to_string())).await;
    assert_eq!(answer.outcome(), (504, "outcome_unknown"));
    app.set("BV001", "error-in-200");
    let answer = Answer::of(app.post("/v1/audio/speech").body(body.to_string())).await;
    assert_eq!(answer.status, 429, "3003 is a limit of concurrency: {}", answer.body);

    let app = TestApp::with(Plan { capability: "rerank", size: 1, ..Plan::default() }).await;
    let dashscope =
        json!({"providers": [{"key": "sim", "protocol": "dashscope", "base_url": base(&app, "/api/v1")}]});
    import(&app, dashscope).await;
    let body = json!({"model": "main_rerank", "query": "q", "documents": ["a", "bbb"], "top_n": 1});
    let answer = Answer::of(app.post("/v1/rerank").body(body.to_string())).await;
    assert_eq!(answer.body["results"], json!([{"index": 1, "relevance_score": 0.9}]), "{}", answer.body);
    assert_eq!(app.sim.last_request("a")["parameters"]["top_n"], 1);
}

#[tokio::test]
async fn ollama_needs_no_key_and_no_version_in_its_address() {
    let app = TestApp::with(Plan { size: 1, ..Plan::default() }).await;
    let base = app.sim.base_url().replace("/v1", "");
    import(
        &app,
        json!({"providers": [{"key": "home", "name": "Home", "protocol": "ollama", "base_url": base, "allow_private_network": true}],
               "models": [{"name": "local", "provider": "home", "upstream_model": "llama", "capability": "text"}]}),
    )
    .await;
    let answer = generate(&app, json!({"model_group": null, "ai_model_id": "local"})).await;
    assert_eq!(served_by(&answer), "llama", "{}", answer.body);
    assert_eq!(app.sim.last_key("llama"), None);
}
