//! Who may do what: tokens, roles, sessions, and the admin API's manners.

use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::extract::Request;
use axum::http::{Method, StatusCode, header};
use axum::response::IntoResponse;
use axum::routing::{get, post};
use forebay::admin::{Admin, Parts};
use forebay::auth::{password, sessions, tokens};
use forebay::ledger::{Ledger, Options};
use forebay::store::Store;
use forebay::store::events::BreakerEvents;
use forebay_app::port::{PortError, Presence};
use forebay_app::secret::Secret;
use forebay_app::session::port::SessionPort;
use forebay_engine::random::ThreadRandom;
use serde_json::{Value, json};
use tower::Service;

use super::configuration::{self, FILE, Opened, file, keys};
use crate::databases::{Database, on_both};

struct World {
    router: Router,
    store: Store,
}

async fn world(database: &Database) -> World {
    let Opened { catalog, state, clock } = configuration::open(database, keys()).await;
    catalog.import(&file(FILE), forebay::catalog::Author("story"), false).await.expect("imported");
    let store = database.open().await;
    let ledger = Ledger::start(store.clone(), "node-1", Options::default()).await.expect("the ledger starts");
    let admin = Admin::new(Parts {
        trial: Arc::new(forebay::upstream::HttpUpstream::new(catalog.clone())),
        events: forebay::telemetry::Events::new(),
        catalog,
        ledger,
        operators: forebay::auth::Operators::new(store.clone()),
        state,
        clock,
        random: Arc::new(ThreadRandom),
        breaker_events: BreakerEvents::start(store.clone(), "node-1"),
        time_zone: jiff::tz::TimeZone::UTC,
        public_url: "http://forebay.test".into(),
        trusted_proxies: Vec::new(),
    });
    let (login, who, logout) = (admin.clone(), admin.clone(), admin.clone());
    let router = Router::new()
        .route(
            "/login",
            post(async move |request: Request| {
                let (parts, body) = request.into_parts();
                let body = axum::body::to_bytes(body, 1_000).await.expect("a body");
                let secret = Secret::new(String::from_utf8_lossy(&body));
                answer(login.sign_in(&parts, "ops", &secret).await)
            }),
        )
        .route(
            "/who",
            get(async move |request: Request| {
                answer(who.current(&request.into_parts().0, Presence::Watching).await)
            }),
        )
        .route(
            "/logout",
            post(async move |request: Request| answer(logout.sign_out(&request.into_parts().0).await)),
        )
        .nest("/api/admin", admin.routes())
        .layer(sessions::layer(&store, false));
    for (name, role) in [("ops", "admin"), ("guest", "viewer")] {
        let hash = password::hash("a good password".into()).await.expect("hashed");
        let sql = format!(
            "INSERT INTO admin_users (id, name, password_hash, role, token_hash)
             VALUES ('{name}', '{name}', '{hash}', '{role}', '{}')",
            tokens::hex(&tokens::hash(&format!("fba_{name}")))
        );
        database.sql(&sql).await;
    }
    World { router, store }
}

fn answer<T: serde::Serialize>(result: Result<T, PortError>) -> axum::response::Response {
    match result {
        Ok(value) => axum::Json(value).into_response(),
        Err(error) => (StatusCode::BAD_REQUEST, axum::Json(error)).into_response(),
    }
}

impl World {
    async fn ask(
        &self,
        method: Method,
        path: &str,
        headers: &[(&str, &str)],
        body: Value,
    ) -> (StatusCode, Value, Option<String>) {
        let mut request =
            Request::builder().method(method).uri(path).header(header::CONTENT_TYPE, "application/json");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let body = match &body {
            Value::Null => Body::empty(),
            Value::String(text) => Body::from(text.clone()),
            other => Body::from(other.to_string()),
        };
        let request = request.body(body).expect("a request");
        let response = self.router.clone().call(request).await.expect("an answer");
        let status = response.status();
        let cookie = response.headers().get(header::SET_COOKIE).and_then(|cookie| cookie.to_str().ok());
        let cookie = cookie.and_then(|cookie| cookie.split(';').next()).map(str::to_owned);
        let body = axum::body::to_bytes(response.into_body(), 1 << 20).await.expect("a body");
        let text = String::from_utf8_lossy(&body).into_owned();
        assert!(!text.contains("sk-canary"), "no answer shows a key: {path}");
        (status, serde_json::from_str(&text).unwrap_or(Value::String(text)), cookie)
    }

    async fn api(&self, token: &str, method: Method, path: &str, body: Value) -> (StatusCode, Value) {
        let authorization = format!("Bearer {token}");
        let path = format!("/api/admin{path}");
        let (status, body, _) = self.ask(method, &path, &[("authorization", &authorization)], body).await;
        (status, body)
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_viewer_looks_and_an_admin_changes() {
    on_both(async |database| {
        let world = world(&database).await;
        let (status, body) = world.api("fba_nobody", Method::GET, "/pools", Value::Null).await;
        assert_eq!((status, &body["error"]["code"]), (StatusCode::UNAUTHORIZED, &json!("unauthorized")));
        for path in [
            "/pools",
            "/pools/main_text",
            "/tasks",
            "/config",
            "/settings",
            "/audit",
            "/breaker-events",
            "/callers",
        ] {
            let (status, body) = world.api("fba_guest", Method::GET, path, Value::Null).await;
            assert_eq!(status, StatusCode::OK, "{path}: {body}");
        }
        for (method, path, body) in [
            (Method::PUT, "/pools/main_text", json!({ "name": "x" })),
            (Method::DELETE, "/models/sim-fast", Value::Null),
            (Method::PUT, "/models/sim-fast/accounts/sim-a", json!({ "priority": 1 })),
            (Method::POST, "/breakers/reset", Value::Null),
            (Method::POST, "/breakers/sim-fast/force-open", json!({ "seconds": 5 })),
            (Method::POST, "/accounts/sim-a/clear-cooldown", Value::Null),
            (Method::POST, "/callers/team-a/tokens", Value::Null),
            (Method::POST, "/callers/team-a/credits", json!({ "amount": "1" })),
            (Method::PUT, "/settings", json!({ "body_limit": 2048 })),
            (Method::PUT, "/config", json!({})),
        ] {
            let (status, _) = world.api("fba_guest", method, path, body).await;
            assert_eq!(status, StatusCode::FORBIDDEN, "{path}");
        }
        let entries = "SELECT COUNT(*) FROM audit_log WHERE actor = 'guest'";
        assert_eq!(database.number(entries).await, 0);

        let (status, body) = world
            .api(
                "fba_ops",
                Method::PUT,
                "/pools/main_text",
                json!({ "name": "New", "weight": 1, "queue_max": -1 }),
            )
            .await;
        assert_eq!(status, StatusCode::BAD_REQUEST);
        let fields: Vec<_> =
            body["error"]["fields"].as_array().expect("fields").iter().map(|f| f["field"].clone()).collect();
        assert_eq!(fields, ["weight", "queue_max"], "every bad field is named");
        let (status, body) =
            world.api("fba_ops", Method::PUT, "/pools/main_text", json!({ "name": "New" })).await;
        assert_eq!((status, &body["pool"]["name"]), (StatusCode::OK, &json!("New")), "{body}");
        let (status, _) = world.api("fba_ops", Method::DELETE, "/pools/main_text", Value::Null).await;
        assert_eq!(status, StatusCode::CONFLICT);
        let (status, _) = world.api("fba_ops", Method::GET, "/nothing", Value::Null).await;
        assert_eq!(status, StatusCode::NOT_FOUND);
        let (_, audit) = world.api("fba_ops", Method::GET, "/audit", Value::Null).await;
        let newest = &audit["entries"][0];
        assert_eq!((&newest["actor"], &newest["object"]), (&json!("ops"), &json!("pool main_text")));
        assert_eq!(
            (&newest["before"], &newest["after"]),
            (&json!({ "name": "Main text" }), &json!({ "name": "New" }))
        );
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_incident_is_handled_through_the_api() {
    on_both(async |database| {
        let world = world(&database).await;
        let (status, body) = world
            .api("fba_ops", Method::POST, "/breakers/sim-fast/force-open", json!({ "seconds": 60 }))
            .await;
        assert_eq!(status, StatusCode::OK, "{body}");
        let (_, pool) = world.api("fba_ops", Method::GET, "/pools/main_text", Value::Null).await;
        let breaker = &pool["members"][0]["breaker"];
        assert_eq!((&breaker["state"], &breaker["forced"]), (&json!("open"), &json!(true)));
        assert_eq!(pool["active_channels"], 0);
        let probe = json!({ "n": 100 });
        let (_, picks) =
            world.api("fba_ops", Method::POST, "/pools/main_text/mock-generate-probe", probe.clone()).await;
        assert_eq!(picks["picked"], json!({}));
        assert!(picks["excluded"]["sim-fast"].as_str().is_some_and(|why| why.contains("breaker")), "{picks}");
        let (_, reset) = world.api("fba_ops", Method::POST, "/breakers/reset", Value::Null).await;
        assert_eq!(reset["reset"], 1);
        let (_, picks) =
            world.api("fba_ops", Method::POST, "/pools/main_text/mock-generate-probe", probe).await;
        assert_eq!(picks["picked"], json!({ "sim-fast": 100 }));

        let mut seen = Value::Null;
        for _ in 0..100 {
            (_, seen) = world.api("fba_ops", Method::GET, "/breaker-events", Value::Null).await;
            if seen["events"].as_array().is_some_and(|events| events.len() == 2) {
                break;
            }
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
        assert_eq!(
            (&seen["events"][1]["cause"], &seen["events"][1]["by"]),
            (&json!("forced"), &json!("ops"))
        );

        let (status, token) = world.api("fba_ops", Method::POST, "/callers/team-a/tokens", Value::Null).await;
        assert_eq!(status, StatusCode::CREATED);
        assert!(token["token"].as_str().is_some_and(|token| token.starts_with("fb_")));
        let (_, credits) = world
            .api(
                "fba_ops",
                Method::POST,
                "/callers/team-a/credits",
                json!({ "amount": "-0.5", "reason": "goodwill" }),
            )
            .await;
        assert_eq!(credits["balance"], "99.500000");
        let (_, callers) = world.api("fba_ops", Method::GET, "/callers", Value::Null).await;
        assert_eq!(callers["callers"][0]["balance"], "99.500000");
        assert_eq!(callers["callers"][0]["tokens"][0]["prefix"], token["prefix"]);
        let path = format!("/callers/team-a/tokens/{}", token["prefix"].as_str().unwrap_or_default());
        assert_eq!(world.api("fba_ops", Method::DELETE, &path, Value::Null).await.0, StatusCode::OK);
        assert_eq!(world.store.credit_differences().await.expect("sums"), []);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_lives_in_the_table_and_dies_with_it() {
    on_both(async |database| {
        let world = world(&database).await;
        let (_, who, _) = world.ask(Method::GET, "/who", &[], Value::Null).await;
        assert_eq!(who, Value::Null);
        let (status, wrong, _) = world.ask(Method::POST, "/login", &[], json!("wrong password")).await;
        let expected = serde_json::to_value(PortError::WrongPassword).expect("JSON");
        assert_eq!((status, wrong), (StatusCode::BAD_REQUEST, expected));
        let (_, operator, cookie) = world.ask(Method::POST, "/login", &[], json!("a good password")).await;
        assert_eq!(operator, json!({ "name": "ops", "role": "admin" }));
        let cookie = cookie.expect("a cookie");
        let id = cookie.split('=').nth(1).expect("an id");
        let stored = format!("SELECT COUNT(*) FROM sessions WHERE id = '{id}' OR data LIKE '%{id}%'");
        assert_eq!(database.number(&stored).await, 0, "ids are stored hashed");

        let with = |extra: &[(&'static str, &'static str)]| {
            let mut headers = vec![("cookie".to_owned(), cookie.clone())];
            headers.extend(extra.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())));
            headers
        };
        let ask = async |method: Method, path: &str, headers: Vec<(String, String)>, body: Value| {
            let headers: Vec<_> =
                headers.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
            world.ask(method, path, &headers, body).await
        };
        let before = database.number("SELECT expires_at FROM sessions WHERE operator = 'ops'").await;
        let (_, who, cookie_again) = ask(Method::GET, "/who", with(&[]), Value::Null).await;
        assert_eq!(who["name"], "ops");
        assert!(cookie_again.is_none(), "a poll does not extend it");
        assert_eq!(database.number("SELECT expires_at FROM sessions WHERE operator = 'ops'").await, before);
        let (status, ..) = ask(Method::GET, "/api/admin/pools", with(&[]), Value::Null).await;
        assert_eq!(status, StatusCode::OK);
        let body = || json!({ "name": "By session" });
        let (status, ..) = ask(Method::PUT, "/api/admin/pools/main_text", with(&[]), body()).await;
        assert_eq!(status, StatusCode::FORBIDDEN, "no word of an origin");
        let cross = with(&[("sec-fetch-site", "cross-site")]);
        assert_eq!(
            ask(Method::PUT, "/api/admin/pools/main_text", cross, body()).await.0,
            StatusCode::FORBIDDEN
        );
        let own = with(&[("sec-fetch-site", "same-origin")]);
        assert_eq!(ask(Method::PUT, "/api/admin/pools/main_text", own, body()).await.0, StatusCode::OK);

        database.sql("UPDATE admin_users SET is_enabled = 0 WHERE name = 'ops'").await;
        assert_eq!(ask(Method::GET, "/who", with(&[]), Value::Null).await.1, Value::Null, "disabled at once");
        database.sql("UPDATE admin_users SET is_enabled = 1 WHERE name = 'ops'").await;
        ask(Method::POST, "/logout", with(&[]), Value::Null).await;
        assert_eq!(ask(Method::GET, "/who", with(&[]), Value::Null).await.1, Value::Null);
        assert_eq!(database.number("SELECT COUNT(*) FROM sessions").await, 0);

        for _ in 0..5 {
            world.ask(Method::POST, "/login", &[], json!("wrong password")).await;
        }
        let (_, throttled, _) = world.ask(Method::POST, "/login", &[], json!("a good password")).await;
        assert!(throttled.to_string().contains("throttled"), "even the right one waits: {throttled}");
    })
    .await;
}
