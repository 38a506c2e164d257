//! The console over HTTP: pages, server functions, static files, and what guards them.
//!
//! [`console`] wants the session layer (tower-sessions) around it: the session port finds the
//! session in the request's extensions.

mod assets;
mod guard;
mod origin;

use std::path::PathBuf;
use std::sync::Arc;

use axum::Router;
use axum::middleware::from_fn_with_state;
use axum::response::Redirect;
use axum::routing::get;
use forebay_app::accounts::port::AccountsPort;
use forebay_app::frame::document;
use forebay_app::pools::port::PoolsPort;
use forebay_app::session::port::SessionPort;
use forebay_app::tasks::port::TasksPort;
use forebay_app::{App, frame::Frame};
use http::request::Parts;
use leptos::config::LeptosOptions;
use leptos::nonce::Nonce;
use leptos::prelude::{provide_context, use_context};
use leptos_axum::{LeptosRoutes, generate_route_list};
use tower_http::limit::RequestBodyLimitLayer;

pub use origin::is_same_origin;

/// Where the console begins.
const FIRST_PAGE: &str = "/admin/model-pools";

/// A form of the console is never larger.
const BODY_LIMIT: usize = 256 * 1024;

/// What the pages ask of the rest of the server.
#[derive(Clone)]
pub struct Ports {
    /// Login and sessions.
    pub session: Arc<dyn SessionPort>,
    /// `/admin/model-pools`.
    pub pools: Arc<dyn PoolsPort>,
    /// `/admin/api-accounts`.
    pub accounts: Arc<dyn AccountsPort>,
    /// `/admin/tasks`.
    pub tasks: Arc<dyn TasksPort>,
}

/// How the console is served.
#[derive(Clone, Debug)]
pub struct WebOptions {
    /// FOREBAY_SITE_ROOT: the built site, with `pkg/` in it.
    pub site_root: PathBuf,
    /// FOREBAY_PUBLIC_URL: `https://forebay.example.com`.
    pub public_url: String,
    /// FOREBAY_TIME_ZONE, as the pages name it.
    pub time_zone: String,
}

/// The routes `/admin/…`, `/pkg/…`, `/favicon.*`, and `/`, which leads to the console.
///
/// Without a built site the pages are served all the same, without style and script, and a warning
/// says how to build it.
pub fn console(ports: Ports, options: WebOptions) -> Router {
    let assets = assets::read(&options.site_root);
    let leptos = LeptosOptions::builder().output_name("forebay").build();
    let guard = guard::Guard::new(ports.session.clone(), options.public_url, options.time_zone);
    let pages = Router::new()
        .leptos_routes_with_context(
            &leptos,
            generate_route_list(App),
            move || provide_request(&ports),
            move || document(&assets),
        )
        .route("/admin", get(|| async { Redirect::temporary(FIRST_PAGE) }))
        .route("/admin/", get(|| async { Redirect::temporary(FIRST_PAGE) }))
        .layer(RequestBodyLimitLayer::new(BODY_LIMIT))
        .layer(from_fn_with_state(guard, guard::enter))
        .with_state(leptos);
    Router::new()
        .route("/", get(|| async { Redirect::temporary(FIRST_PAGE) }))
        .merge(pages)
        .merge(assets::routes(&options.site_root))
}

/// What components and server functions find in context: the ports, and what [`guard::enter`] left
/// in the request.
fn provide_request(ports: &Ports) {
    provide_context(ports.session.clone());
    provide_context(ports.pools.clone());
    provide_context(ports.accounts.clone());
    provide_context(ports.tasks.clone());
    let Some(parts) = use_context::<Parts>() else {
        return;
    };
    if let Some(nonce) = parts.extensions.get::<Nonce>() {
        provide_context(nonce.clone());
    }
    if let Some(frame) = parts.extensions.get::<Frame>() {
        provide_context(frame.clone());
    }
}
