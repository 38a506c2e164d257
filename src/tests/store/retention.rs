//! What is past its retention goes in small batches, and nothing else does.

use forebay::catalog::Author;
use serde_json::json;

use super::configuration::{self, Opened, file, keys};
use crate::databases::on_both;

#[tokio::test]
async fn o5_old_finished_tasks_go_with_their_attempts_and_the_money_stays() {
    on_both(async |database| {
        let Opened { catalog, .. } = configuration::open(&database, keys()).await;
        let store = database.open().await;
        let id = |age_days: i64, n: usize| {
            let ms = forebay::store::Store::now_ms() - age_days * 86_400_000;
            let digits = format!("{ms:012x}");
            format!("{}-{}-7000-8000-{n:012x}", &digits[..8], &digits[8..])
        };
        for n in 0..450 {
            let (old, young) = (id(91, n), id(89, n));
            database
                .sql(&format!(
                    "INSERT INTO ai_tasks (id, status) VALUES ('{old}', 'succeeded'), ('{young}', 'failed');
                     INSERT INTO ai_model_attempts (task_id, seq) VALUES ('{old}', 1), ('{young}', 1)"
                ))
                .await;
        }
        database
            .sql(&format!("INSERT INTO ai_tasks (id, status) VALUES ('{}', 'running')", id(400, 1)))
            .await;
        database
            .sql(&format!("INSERT INTO breaker_events (id) VALUES ('{}'), ('{}')", id(31, 1), id(29, 1)))
            .await;
        forebay::retention::sweep(&store, &catalog).await.expect("swept");
        for (what, count) in [
            ("ai_tasks WHERE status = 'succeeded'", 0),
            ("ai_tasks WHERE status = 'failed'", 450),
            ("ai_tasks WHERE status = 'running'", 1),
            ("ai_model_attempts", 450),
            ("breaker_events", 1),
        ] {
            let query = format!("SELECT COUNT(*) FROM {what}");
            assert_eq!(database.number(&query).await, count, "{what} on {}", database.name);
        }
        // The setting is live.
        let shorter = json!({"settings": {"retention": {"tasks_days": 30}}});
        catalog.import(&file(&shorter.to_string()), Author("story"), false).await.expect("imported");
        forebay::retention::sweep(&store, &catalog).await.expect("swept");
        assert_eq!(database.number("SELECT COUNT(*) FROM ai_tasks WHERE status = 'failed'").await, 0);
    })
    .await;
}
