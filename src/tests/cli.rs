//! The commands, run as an operator runs them beside a running server.

use std::os::unix::fs::PermissionsExt;
use std::process::Output;

use forebay::ledger::TaskFilter;
use forebay::store::Store;
use serde_json::{Value, json};

use crate::app::{Plan, TestApp};

/// Runs the binary on the app's database.
async fn forebay(app: &TestApp, arguments: &[&str]) -> Output {
    tokio::process::Command::new(env!("CARGO_BIN_EXE_forebay"))
        .args(arguments)
        .env_clear()
        .env("FOREBAY_DATA_DIR", app.folder())
        .env("FOREBAY_ADDR", app.addr.to_string())
        .env("RUST_LOG", "error")
        .output()
        .await
        .expect("it runs")
}

fn told(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|_| panic!("{}", String::from_utf8_lossy(&output.stderr)))
}

#[tokio::test]
async fn smoke_sends_a_task_of_each_capability_and_shows_its_chain() {
    let app = TestApp::start().await;
    let output = forebay(&app, &["smoke", "--json"]).await;
    let result = told(&output);
    assert!(output.status.success(), "{result}");
    assert_eq!(result["tasks"].as_array().map(Vec::len), Some(1), "there is one pool");
    assert_eq!(result["tasks"][0]["attempts"][0]["model"], "a");
    app.set("a", "500");
    let result = told(&forebay(&app, &["smoke", "--json"]).await);
    let chain: Vec<&Value> =
        result["tasks"][0]["attempts"].as_array().expect("a chain").iter().map(|a| &a["status"]).collect();
    assert_eq!(chain, [&json!("failed"), &json!("succeeded")]);
    for model in ["b", "c"] {
        app.set(model, "500");
    }
    let output = forebay(&app, &["smoke", "--json"]).await;
    assert_eq!((output.status.code(), &told(&output)["ok"]), (Some(1), &json!(false)));
    // Its token has ended with it.
    app.catalog.reload().await.expect("it holds together");
    let id = app.catalog.caller_id("smoke").expect("the caller stays");
    assert!(!app.catalog.tokens().await.expect("tokens").contains_key(&id));
}

#[tokio::test]
async fn check_asks_every_provider_that_is_used_and_names_what_is_wrong() {
    let app = TestApp::with(Plan { size: 1, ..Plan::default() }).await;
    app.operator_token("root", "admin").await;
    let output = forebay(&app, &["check", "--providers", "--json"]).await;
    let result = told(&output);
    assert!(output.status.success(), "{result}");
    let checks: Vec<&str> =
        result["checks"].as_array().expect("checks").iter().filter_map(|c| c["check"].as_str()).collect();
    assert!(checks.contains(&"provider sim: account acc-a"), "{checks:?}");
    // A provider that is gone.
    let free = std::net::TcpListener::bind("127.0.0.1:0").expect("a port").local_addr().expect("an address");
    let file = json!({"providers": [{"key": "sim", "base_url": format!("http://{free}/v1")}]});
    let document = forebay_wire::import::parse_value(&file).expect("a file");
    app.catalog.import(&document, forebay::catalog::Author("test"), false).await.expect("imported");
    let output = forebay(&app, &["check", "--providers", "--json"]).await;
    let result = told(&output);
    assert_eq!(output.status.code(), Some(1));
    let wrong: Vec<&Value> =
        result["checks"].as_array().expect("checks").iter().filter(|c| c["ok"] == false).collect();
    assert_eq!((wrong.len(), &wrong[0]["check"]), (1, &json!("provider sim: connection")), "{wrong:?}");
    assert!(!result.to_string().contains("sk-canary"));
}

#[tokio::test]
async fn a_host_that_does_not_resolve_is_saved_with_a_warning() {
    let app = TestApp::start().await;
    let file = app.folder().join("more.json");
    let provider = json!({"key": "lost", "name": "Lost", "protocol": "openai", "base_url": "https://no-such-host.invalid/v1"});
    std::fs::write(&file, json!({"providers": [provider]}).to_string()).expect("a file");
    let output = forebay(&app, &["import", file.to_str().expect("UTF-8"), "--json"]).await;
    let told = told(&output);
    assert!(output.status.success(), "{told}");
    assert!(
        told["warnings"][0].as_str().is_some_and(|warning| warning.contains("does not resolve")),
        "{told}"
    );
    app.catalog.reload().await.expect("it holds together");
    assert!(app.catalog.snapshot().providers.contains_key("lost"));
}

#[tokio::test]
async fn a_backup_is_whole_private_and_replaces_nothing() {
    let app = TestApp::start().await;
    app.generate().await;
    app.ledger.flush().await;
    let file = app.folder().join("backup.db");
    let path = file.to_str().expect("UTF-8");
    let output = forebay(&app, &["backup", path]).await;
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    for database in [&file, &app.folder().join("forebay.db")] {
        let mode = std::fs::metadata(database).expect("it is there").permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "{}", database.display());
    }
    let copy = Store::open(&format!("sqlite:{path}"), false).await.expect("a database");
    let tasks = copy.tasks(&TaskFilter::default(), None, 10).await.expect("a page").tasks;
    assert_eq!(tasks.len(), 1);
    copy.close().await;
    let before = std::fs::read(&file).expect("it is there");
    let again = forebay(&app, &["backup", path]).await;
    assert_eq!(again.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&again.stderr).contains("exists"));
    assert_eq!(std::fs::read(&file).expect("it is there"), before);
}
