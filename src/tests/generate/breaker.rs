//! Breaker, cooldown and choice, on real sockets and named after their numbers.

use std::collections::HashMap;
use std::time::Duration;

use forebay_engine::{BreakerState, Clock};
use serde_json::json;

use crate::app::{Answer, Plan, TestApp, eventually};

/// Sends so many generations, sixteen at a time; how many each member served, and other outcomes.
async fn split(app: &TestApp, count: usize) -> HashMap<String, usize> {
    let mut outcomes: HashMap<String, usize> = HashMap::new();
    for _ in 0..count / 16 {
        let answers = futures::future::join_all((0..16).map(|_| app.generate())).await;
        for answer in answers {
            let served =
                answer.body["output"]["choices"][0]["message"]["content"].as_str().map(str::to_owned);
            let by = served.unwrap_or_else(|| format!("{:?}", answer.outcome()));
            *outcomes.entry(by).or_default() += 1;
        }
    }
    outcomes
}

fn share(outcomes: &HashMap<String, usize>, model: &str) -> f64 {
    let total: usize = outcomes.values().sum();
    *outcomes.get(&format!("Hello from {model}.")).unwrap_or(&0) as f64 / total as f64
}

#[tokio::test]
async fn one_three_six_splits_trips_recovers_and_says_when_all_are_out() {
    let app = TestApp::with(Plan { weights: Some([1, 3, 6]), ..Plan::default() }).await;
    let outcomes = split(&app, 1_008).await;
    for (model, expected) in [("a", 0.1), ("b", 0.3), ("c", 0.6)] {
        assert!((share(&outcomes, model) - expected).abs() < 0.06, "{outcomes:?}");
    }

    app.set("c", "500");
    let outcomes = split(&app, 112).await;
    assert!(
        outcomes.keys().all(|outcome| outcome.starts_with("Hello")),
        "callers saw only 200s: {outcomes:?}"
    );
    assert_eq!(app.breaker("c").state, BreakerState::Open);
    let before = app.asked()[2];
    let outcomes = split(&app, 1_008).await;
    assert!(
        (share(&outcomes, "a") - 0.25).abs() < 0.06 && (share(&outcomes, "b") - 0.75).abs() < 0.06,
        "{outcomes:?}"
    );
    assert_eq!(app.asked()[2], before, "nothing was sent to the open one");

    app.set("c", "ok");
    app.clock.advance(Duration::from_secs(60));
    let outcomes = split(&app, 1_008).await;
    assert!((share(&outcomes, "c") - 0.6).abs() < 0.06, "{outcomes:?}");
    assert_eq!(app.breaker("c").state, BreakerState::Closed);

    ["a", "b", "c"].iter().for_each(|model| app.set(model, "503"));
    let settings = json!({"settings": {"routing": {"text": {"waits_ms": [1]}}}});
    let settings = forebay_wire::import::parse_value(&settings).expect("settings");
    app.catalog.import(&settings, forebay::catalog::Author("test"), false).await.expect("they are taken");
    let mut answer = app.generate().await;
    while answer.outcome() == (502, "upstream_failed") {
        answer = app.generate().await;
    }
    assert_eq!(answer.outcome(), (503, "no_available_model"));
    let after = answer.body["error"]["retry_after_ms"].as_u64().expect("it says when");
    assert!((1..=60_000).contains(&after) && answer.header("retry-after").is_some(), "{after}");
    app.money_adds_up().await;
}

#[tokio::test]
async fn b1_of_two_429s_at_once_the_longer_wait_holds_in_either_order() {
    for order in [[("1", 40), ("60", 120)], [("60", 40), ("1", 120)]] {
        let app = TestApp::with(Plan { size: 2, ..Plan::default() }).await;
        // Both are out at the same moment; the first answers before the second.
        let (mut waiting, mut held) = (Vec::new(), 0);
        for (seconds, after_ms) in order {
            app.set("a", &format!("late-429-{after_ms}-{seconds}"));
            let request = app.generation();
            waiting.push(tokio::spawn(async move { Answer::of(request).await }));
            held += 1;
            app.sim.until("a", |visits| visits.requests == held).await;
        }
        for answer in waiting {
            assert_eq!(answer.await.expect("an answer").status, 200, "the other member serves both");
        }
        let left = cooling_left(&app, "a");
        assert!((Duration::from_secs(58)..=Duration::from_secs(60)).contains(&left), "{left:?}");
    }
}

/// How long the first account of a member is still set aside at it.
fn cooling_left(app: &TestApp, model: &str) -> Duration {
    let snapshot = app.catalog.snapshot();
    let member =
        snapshot.pools.values().flat_map(|pool| pool.members()).find(|member| &*member.name == model);
    let binding = &member.expect("a member").accounts[0];
    let now = app.clock.now();
    now.until(binding.cooldown.until().max(binding.account.state.cooldown.until()))
}

#[tokio::test]
async fn b15_a_late_refusal_of_the_old_key_cools_nothing() {
    let app = TestApp::with(Plan { size: 2, ..Plan::default() }).await;
    app.set("a", "401");
    assert_eq!(app.generate().await.status, 200);
    assert!(cooling_left(&app, "a") > Duration::ZERO, "the key is set aside");
    // One more with the old key is under way, past the cooldown, while an operator replaces the key.
    app.clock.advance(Duration::from_secs(11));
    app.set("a", "late-401-200");
    let before = app.asked()[0];
    let request = app.generation();
    let late = tokio::spawn(async move { Answer::of(request).await });
    app.sim.until("a", |visits| visits.requests == before + 1).await;
    let key = json!({"accounts": [{"label": "acc-a", "account_key": "sk-canary-new"}]});
    let document = forebay_wire::import::parse_value(&key).expect("a file");
    app.catalog.import(&document, forebay::catalog::Author("test"), false).await.expect("imported");
    assert_eq!(late.await.expect("an answer").status, 200);
    assert_eq!(cooling_left(&app, "a"), Duration::ZERO, "the new key is not blamed");
    app.set("a", "ok");
    app.generate().await;
    assert_eq!(app.sim.last_key("a").as_deref(), Some("sk-canary-new"));
}

#[tokio::test]
async fn b16_sixty_four_first_requests_beside_a_dead_member_are_all_answered() {
    for behaviour in ["500", "late-503-30"] {
        let app = TestApp::with(Plan { weights: Some([1, 1, 1]), size: 2, ..Plan::default() }).await;
        app.set("a", behaviour);
        let all = (0..64).map(|_| {
            let request = app.generation();
            tokio::spawn(async move { Answer::of(request).await.status })
        });
        for status in futures::future::join_all(all).await {
            assert_eq!(status.expect("an answer"), 200, "{behaviour}");
        }
    }
}

#[tokio::test]
async fn b2_b10_a_rate_limited_member_is_left_alone_as_long_as_it_says() {
    for (behaviour, seconds) in [("429-107", 107), ("429", 60)] {
        let app = TestApp::start().await;
        app.set("a", behaviour);
        assert_eq!(app.generate().await.body["output"]["choices"][0]["message"]["content"], "Hello from b.");
        app.set("a", "ok");
        app.clock.advance(Duration::from_secs(seconds - 1));
        app.generate().await;
        assert_eq!(app.asked()[0], 1, "{behaviour}");
        app.clock.advance(Duration::from_secs(2));
        app.generate().await;
        assert_eq!(app.asked()[0], 2, "{behaviour}");
        assert_eq!(app.breaker("a").consecutive_failures, 0);
    }
}

#[tokio::test]
async fn b3_all_rate_limited_is_429_and_all_bad_keys_503() {
    let app = TestApp::with(Plan { size: 2, ..Plan::default() }).await;
    app.set("a", "429-40");
    app.set("b", "429-90");
    assert_eq!(app.generate().await.outcome(), (429, "rate_limited"));
    let before = app.asked();
    let answer = app.generate().await;
    assert_eq!((answer.outcome(), app.asked()), ((429, "rate_limited"), before));
    let after: u64 = answer.header("retry-after").and_then(|text| text.parse().ok()).expect("Retry-After");
    assert!((35..=40).contains(&after), "{after}");

    let app = TestApp::with(Plan { size: 2, ..Plan::default() }).await;
    app.set("a", "401");
    app.set("b", "401");
    assert_eq!(app.generate().await.outcome(), (502, "upstream_failed"));
    let answer = app.generate().await;
    assert_eq!((answer.outcome(), app.asked()), ((503, "no_available_model"), [1, 1, 0]));
}

#[tokio::test]
async fn b11_a_name_that_does_not_resolve_is_not_sent_and_the_caller_is_served() {
    let models = json!({"a": {"base_url": "http://no-such-host.invalid/v1"}});
    let app = TestApp::with(Plan { models, ..Plan::default() }).await;
    assert_eq!(app.generate().await.body["output"]["choices"][0]["message"]["content"], "Hello from b.");
    let (_, attempts) = app.last_task().await;
    assert_eq!(attempts[0].error_class.as_deref(), Some("not_sent"));
    assert_eq!(attempts[0].cost, Some(0), "what never left costs nothing");
}

#[tokio::test]
async fn b11_a_port_that_refuses_is_not_sent() {
    let closed =
        std::net::TcpListener::bind("127.0.0.1:0").expect("a port").local_addr().expect("its address");
    let app = TestApp::start().await;
    let file = json!({
        "providers": [{"key": "dead", "name": "Dead", "protocol": "openai", "base_url": format!("http://{closed}/v1"),
                       "tier": "other", "allow_private_network": true}],
        "accounts": [{"label": "acc-dead", "provider": "dead", "account_key": "k"}],
        "models": [{"name": "dead", "provider": "dead", "upstream_model": "x", "capability": "text",
                    "pool": "main_text", "weight": 1_000_000, "accounts": [{"label": "acc-dead", "priority": 0}]}],
    });
    let file = forebay_wire::import::parse_value(&file).expect("a file");
    app.catalog.import(&file, forebay::catalog::Author("test"), false).await.expect("it is taken");
    // B16: sixty-four first requests meet a dead member, and all are answered.
    let answers = futures::future::join_all((0..64).map(|_| app.generate())).await;
    assert!(answers.iter().all(|answer| answer.status == 200));
    assert_eq!(app.breaker("dead").state, BreakerState::Open);
}

#[tokio::test]
async fn b12_fifty_at_once_and_never_six_in_flight() {
    let app =
        TestApp::with(Plan { size: 1, account: json!({"max_concurrency": 5}), ..Plan::default() }).await;
    app.set("a", "slow-20");
    let answers = futures::future::join_all((0..50).map(|_| app.generate())).await;
    assert!(answers.iter().all(|answer| answer.status == 200));
    assert_eq!(app.sim.visits("a").peak, 5);
    assert!(app.permits_are_free());
}

#[tokio::test]
async fn b13_an_edit_every_few_milliseconds_fails_no_request() {
    let app = TestApp::start().await;
    let edits = async {
        for n in 0..40 {
            let file = json!({
                "pools": [{"group_key": "main_text", "circuit_failure_threshold": 3 + n % 5}],
                "models": [{"name": "b", "weight": 1 + n}],
            });
            let file = forebay_wire::import::parse_value(&file).expect("a file");
            app.catalog.import(&file, forebay::catalog::Author("test"), false).await.expect("it is taken");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    let load = async {
        let mut outcomes = HashMap::new();
        for _ in 0..40 {
            for answer in futures::future::join_all((0..8).map(|_| app.generate())).await {
                *outcomes.entry(answer.status).or_insert(0) += 1;
            }
        }
        outcomes
    };
    let ((), outcomes) = tokio::join!(edits, load);
    assert_eq!(outcomes, HashMap::from([(200, 320)]));
}

#[tokio::test]
async fn b14_a_replaced_key_is_used_by_the_very_next_call() {
    let app = TestApp::with(Plan { size: 1, ..Plan::default() }).await;
    app.set("a", "401");
    app.generate().await;
    assert_eq!(app.generate().await.outcome(), (503, "no_available_model"));
    app.set("a", "ok");
    let file = json!({"accounts": [{"label": "acc-a", "account_key": "sk-new"}]});
    let file = forebay_wire::import::parse_value(&file).expect("a file");
    app.catalog.import(&file, forebay::catalog::Author("test"), false).await.expect("it is taken");
    assert_eq!(app.generate().await.status, 200);
    assert_eq!(app.sim.last_key("a").as_deref(), Some("sk-new"));
}

#[tokio::test]
async fn b8_a_deactivated_member_gets_nothing_more_and_what_it_has_in_flight_finishes() {
    let app = TestApp::start().await;
    app.set("a", "slow-300");
    let in_flight = tokio::spawn(Answer::of(app.generation()));
    app.sim.until("a", |visits| visits.open == 1).await;
    let file = json!({"models": [{"name": "a", "is_active": false}]});
    let file = forebay_wire::import::parse_value(&file).expect("a file");
    app.catalog.import(&file, forebay::catalog::Author("test"), false).await.expect("it is taken");
    assert_eq!(app.generate().await.body["output"]["choices"][0]["message"]["content"], "Hello from b.");
    let answer = in_flight.await.expect("it ends");
    assert_eq!(answer.body["output"]["choices"][0]["message"]["content"], "Hello from a.");
    assert_eq!(app.asked(), [1, 1, 0]);
}

#[tokio::test]
async fn a_full_pool_is_429_with_retry_after_and_no_failure_of_the_model() {
    let app = TestApp::with(Plan {
        size: 1,
        models: json!({"a": {"max_concurrency": 1}}),
        pool: json!({"queue_timeout_ms": 50}),
        ..Plan::default()
    })
    .await;
    app.set("a", "slow-500");
    let first = tokio::spawn(app.generation().send());
    app.sim.until("a", |visits| visits.open == 1).await;
    let answer = app.generate().await;
    assert_eq!(answer.outcome(), (429, "congested"));
    assert!(answer.header("retry-after").is_some());
    assert_eq!(app.breaker("a").consecutive_failures, 0);
    first.await.expect("no panic").expect("it is served");
}

/// The first member alone, with its breaker half-open: the next request is the probe.
async fn half_open() -> TestApp {
    let app =
        TestApp::with(Plan { size: 1, pool: json!({"circuit_failure_threshold": 1}), ..Plan::default() })
            .await;
    app.set("a", "503");
    // With so little time there is no wait for a retry.
    let body = crate::app::chat(&json!({"deadline_ms": 500})).to_string();
    assert_eq!(Answer::of(app.post("/api/generate").body(body)).await.outcome(), (502, "upstream_failed"));
    assert_eq!(app.breaker("a").state, BreakerState::Open);
    app.clock.advance(Duration::from_secs(60));
    app
}

#[tokio::test]
async fn b4_a_probe_whose_caller_hangs_up_frees_its_slot() {
    let app = half_open().await;
    app.set("a", "hang");
    let probe = tokio::spawn(app.generation().send());
    app.sim.until("a", |visits| visits.open == 1).await;
    assert_eq!(app.breaker("a").state, BreakerState::HalfOpen);
    assert_eq!(app.generate().await.outcome(), (503, "no_available_model"), "one probe at a time");
    probe.abort();
    app.sim.until("a", |visits| visits.open == 0).await;
    app.set("a", "ok");
    eventually("the slot", || app.permits_are_free()).await;
    assert_eq!(app.generate().await.status, 200, "the next request probes");
    assert_eq!(app.breaker("a").state, BreakerState::Closed);
}

#[tokio::test]
async fn b5_a_probe_that_ends_in_the_callers_fault_changes_nothing() {
    let app = half_open().await;
    app.set("a", "400");
    assert_eq!(app.generate().await.outcome(), (400, "invalid_request"));
    assert_eq!(app.breaker("a").state, BreakerState::HalfOpen);
    app.set("a", "ok");
    assert_eq!(app.generate().await.status, 200);
}

#[tokio::test]
async fn b7_late_results_of_an_older_state_change_nothing() {
    let app = TestApp::with(Plan { size: 2, ..Plan::default() }).await;
    app.set("a", "hang");
    let late: Vec<_> = (0..10).map(|_| tokio::spawn(app.generation().send())).collect();
    app.sim.until("a", |visits| visits.open == 10).await;
    let operator = app.operator_token("root", "admin").await;
    let force = app.client.post(app.url("/api/admin/breakers/a/force-open")).bearer_auth(operator);
    let forced =
        Answer::of(force.header("content-type", "application/json").body(r#"{"seconds": 130}"#)).await;
    assert_eq!(forced.status, 200, "{}", forced.body);
    // The ten time out while it is open, and each of them is a failure of the state before.
    app.clock.advance(Duration::from_secs(121));
    for task in late {
        assert_eq!(task.await.expect("no panic").expect("an answer").status(), 504);
    }
    app.clock.advance(Duration::from_secs(10));
    app.set("a", "ok");
    assert_eq!(app.generate().await.body["output"]["choices"][0]["message"]["content"], "Hello from a.");
    assert_eq!(app.breaker("a").state, BreakerState::Closed);
    assert_eq!(app.breaker("a").consecutive_failures, 0);
}

#[tokio::test]
async fn b9_one_500_disables_nobody_and_a_success_clears_it() {
    let app = TestApp::start().await;
    app.set("a", "500");
    app.generate().await;
    assert_eq!((app.breaker("a").state, app.breaker("a").consecutive_failures), (BreakerState::Closed, 1));
    app.set("a", "ok");
    app.generate().await;
    assert_eq!(app.breaker("a").consecutive_failures, 0);
}

#[tokio::test]
async fn b17_a_keyless_model_that_does_not_exist_there_is_set_aside_for_five_minutes() {
    let app = TestApp::start().await;
    let file = json!({
        "providers": [{"key": "local", "name": "Local", "protocol": "ollama", "base_url": app.sim.base_url(),
                       "tier": "other", "allow_private_network": true}],
        "models": [{"name": "keyless", "provider": "local", "upstream_model": "keyless", "capability": "text",
                    "pool": "main_text", "weight": 1_000_000}],
    });
    let file = forebay_wire::import::parse_value(&file).expect("a file");
    app.catalog.import(&file, forebay::catalog::Author("test"), false).await.expect("it is taken");
    app.set("keyless", "404");
    app.generate().await;
    assert_eq!(app.sim.visits("keyless").requests, 1);
    app.clock.advance(Duration::from_secs(299));
    app.generate().await;
    assert_eq!(app.sim.visits("keyless").requests, 1);
    app.clock.advance(Duration::from_secs(2));
    app.set("keyless", "ok");
    app.generate().await;
    assert_eq!(app.sim.visits("keyless").requests, 2);
    assert_eq!(app.sim.last_key("keyless"), None, "no credential is sent");
}

#[tokio::test]
async fn b18_the_healthy_third_is_asked_before_the_caps_are_used_up() {
    let app = TestApp::start().await;
    app.set("a", "500");
    app.set("b", "503");
    assert_eq!(app.generate().await.body["output"]["choices"][0]["message"]["content"], "Hello from c.");
    assert_eq!(app.asked(), [1, 1, 1]);
}
