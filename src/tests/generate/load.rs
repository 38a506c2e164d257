//! Under load and in trouble: a surge, a dead member, a shaky one, a slow database, floods of nonsense.

use std::time::{Duration, Instant};

use futures::future::join_all;
use serde_json::json;

use crate::app::{Answer, Plan, TestApp};

/// Sends `count` generations at once; each one's status, and how long it took.
async fn burst(app: &TestApp, count: usize) -> Vec<(u16, bool, Duration)> {
    let sent = (0..count).map(|_| {
        let request = app.generation();
        tokio::spawn(async move {
            let began = Instant::now();
            let answer = Answer::of(request).await;
            (answer.status, answer.header("retry-after").is_some(), began.elapsed())
        })
    });
    join_all(sent).await.into_iter().map(|answer| answer.expect("an answer")).collect()
}

#[tokio::test]
async fn a_surge_of_fifty_times_is_served_within_bounds_or_told_when_to_come_back() {
    let app = TestApp::with(Plan {
        pool: json!({"queue_timeout_ms": 500, "queue_max": 40}),
        models: json!({"a": {"max_concurrency": 8}}),
        size: 1,
        ..Plan::default()
    })
    .await;
    app.set("a", "slow-20");
    // Within its means.
    assert!(burst(&app, 8).await.iter().all(|(status, ..)| *status == 200));
    // Fifty times as many in one step.
    let answers = burst(&app, 400).await;
    let served = answers.iter().filter(|(status, ..)| *status == 200).count();
    assert!(served >= 8, "{served} were served");
    for (status, retry_after, took) in &answers {
        match status {
            200 => assert!(*took < Duration::from_secs(5), "{took:?}"),
            429 | 503 => assert!(*retry_after, "{status} without Retry-After"),
            other => panic!("{other} in a surge"),
        }
    }
    assert!(app.sim.visits("a").peak <= 8, "{:?}", app.sim.visits("a"));
    // And at once as before.
    assert!(burst(&app, 8).await.iter().all(|(status, ..)| *status == 200));
    assert!(app.permits_are_free());
    app.money_adds_up().await;
}

#[tokio::test]
async fn a_dead_or_disabled_member_is_passed_over_in_less_than_two_seconds() {
    let app = TestApp::start().await;
    // Nobody listens there any more.
    let free = std::net::TcpListener::bind("127.0.0.1:0").expect("a port").local_addr().expect("an address");
    let file = json!({"providers": [{"key": "dead", "name": "Dead", "protocol": "openai", "base_url": format!("http://{free}/v1"), "allow_private_network": true}],
                      "accounts": [{"label": "acc-dead", "provider": "dead", "account_key": "sk-dead"}],
                      "models": [{"name": "dead", "provider": "dead", "capability": "text", "pool": "main_text", "priority": 0, "weight": 1000,
                                  "accounts": [{"label": "acc-dead", "priority": 0}]}]});
    let document = forebay_wire::import::parse_value(&file).expect("a file");
    app.catalog.import(&document, forebay::catalog::Author("test"), false).await.expect("imported");
    for _ in 0..10 {
        let began = Instant::now();
        assert_eq!(app.generate().await.status, 200);
        assert!(began.elapsed() < Duration::from_secs(2), "{:?}", began.elapsed());
    }
    let off = json!({"models": [{"name": "a", "is_active": false}, {"name": "dead", "is_active": false}]});
    let document = forebay_wire::import::parse_value(&off).expect("a file");
    app.catalog.import(&document, forebay::catalog::Author("test"), false).await.expect("imported");
    let began = Instant::now();
    assert_eq!(app.generate().await.status, 200);
    assert!(began.elapsed() < Duration::from_secs(2));
}

#[tokio::test]
async fn one_member_in_three_that_fails_five_percent_is_hardly_noticed() {
    let app = TestApp::with(Plan { weights: Some([1, 1, 1]), ..Plan::default() }).await;
    app.set("a", "flaky-5");
    let (mut served, mut all) = (0, 0);
    for _ in 0..40 {
        let answers = burst(&app, 50).await;
        all += answers.len();
        served += answers.iter().filter(|(status, ..)| *status == 200).count();
    }
    assert!(served * 10_000 >= all * 9_995, "{served} of {all}");
    assert!(app.asked()[0] > 100, "the shaky one was asked");
}

#[tokio::test]
async fn o4_floods_of_paths_and_names_make_no_new_series() {
    let app = TestApp::start().await;
    app.generate().await;
    let series = async || {
        let text =
            app.client.get(app.url("/metrics")).send().await.expect("an answer").text().await.expect("text");
        text.lines().filter(|line| !line.starts_with('#') && !line.is_empty()).count()
    };
    let before = series().await;
    let began = Instant::now();
    for round in 0..40 {
        let requests = (0..50).map(|n| {
            let path = format!("/v1/{round}/{n}");
            let unknown = app.get(&path);
            let nobody = app.completion(json!({"model": format!("m-{round}-{n}")}));
            async move {
                let (path, model) = (Answer::of(unknown).await.status, Answer::of(nobody).await.status);
                assert_eq!((path, model), (404, 404));
            }
        });
        join_all(requests).await;
    }
    // Four thousand refusals; a 404 asks no database.
    assert!(began.elapsed() < Duration::from_secs(20), "{:?}", began.elapsed());
    assert_eq!(series().await, before);
}

#[tokio::test]
async fn o7_an_import_with_one_bad_row_changes_nothing_and_names_it() {
    let app = TestApp::start().await;
    let before = app.catalog.export();
    let token = app.operator_token("root", "admin").await;
    let file = json!({"pools": [{"group_key": "new_pool", "name": "New", "capability": "text"}],
                      "models": [{"name": "a", "weight": 7}, {"name": "b", "weight": 0}]});
    let answer = Answer::of(
        app.client
            .put(app.url("/api/admin/config"))
            .bearer_auth(&token)
            .header("content-type", "application/json")
            .body(file.to_string()),
    )
    .await;
    assert_eq!(answer.status, 400, "{}", answer.body);
    let told = answer.body.to_string();
    assert!(told.contains("models[1] (b)") && told.contains("weight"), "{told}");
    assert_eq!(app.catalog.export(), before);
}
