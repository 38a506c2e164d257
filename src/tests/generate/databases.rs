//! The whole server on either database: generations, streams, keys and money.

use serde_json::json;

use crate::app::{Answer, Plan, Streamed, TestApp, chat};
use crate::databases::on_both;

#[tokio::test]
async fn a_day_in_the_life_of_a_caller_is_the_same_on_both_databases() {
    on_both(async |database| {
        let app = TestApp::with(Plan { database_url: Some(database.url.clone()), ..Plan::default() }).await;
        let name = database.name;
        assert_eq!(app.generate().await.status, 200, "{name}");
        assert!(Streamed::of(app.completion(json!({"stream": true}))).await.is_done(), "{name}");

        app.set("a", "500");
        let saved = app.generate().await;
        assert_eq!(saved.body["output"]["choices"][0]["message"]["content"], "Hello from b.", "{name}");
        app.set("a", "502");
        assert_eq!(app.generate().await.outcome(), (504, "outcome_unknown"), "{name}");
        app.set("a", "ok");

        let keyed = || app.generation().header("idempotency-key", "order-1");
        let first = Answer::of(keyed()).await;
        let asked = app.asked();
        assert_eq!((Answer::of(keyed()).await.body, app.asked()), (first.body, asked), "{name}");

        let dear = chat(&json!({"input": {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 10_000_000, "n": 100}}));
        let refused = Answer::of(app.post("/api/generate").body(dear.to_string())).await;
        assert_eq!(refused.outcome(), (402, "insufficient_credits"), "{name}");

        let answers = futures::future::join_all((0..100).map(|_| app.generate())).await;
        assert!(answers.iter().all(|answer| answer.status == 200), "{name}");
        let tasks = Answer::of(app.get("/api/tasks?limit=100&status=succeeded")).await;
        assert_eq!(tasks.body["tasks"].as_array().map(Vec::len), Some(100), "{name}");
        app.money_adds_up().await;
    })
    .await;
}
