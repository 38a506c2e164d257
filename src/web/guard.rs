//! What every request for a page or a server function passes: same origin, signed in, and the
//! headers of the answer.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse, Redirect, Response};
use forebay_app::Language;
use forebay_app::frame::Frame;
use forebay_app::port::Presence;
use forebay_app::session::port::SessionPort;
use http::request::Parts;
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header};
use leptos::nonce::Nonce;

use super::origin::is_same_origin;

const LOGIN: &str = "/admin/login";

/// What [`enter`] needs to know.
#[derive(Clone)]
pub(super) struct Guard {
    sessions: Arc<dyn SessionPort>,
    public_url: Arc<str>,
    zone: Arc<str>,
}

impl Guard {
    pub(super) fn new(sessions: Arc<dyn SessionPort>, public_url: String, zone: String) -> Self {
        Self { sessions, public_url: public_url.into(), zone: zone.into() }
    }

    /// What the page is rendered with.
    async fn frame(&self, parts: &Parts) -> Result<Frame, Response> {
        let operator = self.sessions.current(parts, Presence::Acting).await.map_err(|error| {
            tracing::error!(%error, "the session could not be read");
            (StatusCode::SERVICE_UNAVAILABLE, "The session could not be read. Try again in a moment.\n")
                .into_response()
        })?;
        Ok(Frame {
            language: language(&parts.headers),
            operator,
            zone: self.zone.to_string(),
            wrong_address: self.sessions.wrong_address(parts),
        })
    }
}

/// Refuses writes from other origins, leads who is not signed in to the login page, and adds the
/// headers. Server functions authorise for themselves.
pub(super) async fn enter(State(guard): State<Guard>, request: Request, next: Next) -> Response {
    let (mut parts, body) = request.into_parts();
    let reads = parts.method == Method::GET || parts.method == Method::HEAD;
    if !reads && !is_same_origin(&parts.headers, &guard.public_url) {
        return (StatusCode::FORBIDDEN, "This request does not come from a page of the console.\n")
            .into_response();
    }
    let nonce = Nonce::new();
    if reads {
        let frame = match guard.frame(&parts).await {
            Ok(frame) => frame,
            Err(response) => return with_headers(response, &nonce),
        };
        if frame.operator.is_none() && parts.uri.path() != LOGIN {
            return with_headers(Redirect::to(&login_and_back(&parts)).into_response(), &nonce);
        }
        if frame.operator.is_some() && parts.uri.path() == LOGIN {
            return with_headers(Redirect::to(super::FIRST_PAGE).into_response(), &nonce);
        }
        parts.extensions.insert(frame);
    }
    parts.extensions.insert(nonce.clone());
    with_headers(next.run(Request::from_parts(parts, body)).await, &nonce)
}

/// The login page, which knows where to go on to.
fn login_and_back(parts: &Parts) -> String {
    let wanted = parts.uri.path_and_query().map_or("/admin", |wanted| wanted.as_str());
    let mut url = format!("{LOGIN}?next=");
    for byte in wanted.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'/' | b'-' | b'_' | b'.' => url.push(byte.into()),
            _ => url.push_str(&format!("%{byte:02X}")),
        }
    }
    url
}

/// The operator's choice, else the browser's.
fn language(headers: &HeaderMap) -> Language {
    let text =
        |name| headers.get(name).and_then(|value: &HeaderValue| value.to_str().ok()).unwrap_or_default();
    let chosen = text(header::COOKIE)
        .split(';')
        .filter_map(|pair| pair.trim().split_once('='))
        .find_map(|(name, tag)| (name == Language::COOKIE).then_some(tag));
    chosen.and_then(Language::of_tag).unwrap_or_else(|| Language::negotiate(text(header::ACCEPT_LANGUAGE)))
}

fn with_headers(mut response: Response, nonce: &Nonce) -> Response {
    let policy = format!(
        "default-src 'none'; script-src 'self' 'nonce-{nonce}' 'wasm-unsafe-eval'; style-src 'self'; \
         img-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
    );
    let headers = response.headers_mut();
    match HeaderValue::from_str(&policy) {
        Ok(policy) => {
            headers.insert(header::CONTENT_SECURITY_POLICY, policy);
        }
        Err(error) => tracing::error!(%error, "the content security policy could not be sent"),
    }
    for (name, value) in [
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::X_FRAME_OPTIONS, "DENY"),
        // Forms sent without JavaScript come back to where they were, by the Referer.
        (header::REFERRER_POLICY, "same-origin"),
        (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
        (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
        (HeaderName::from_static("permissions-policy"), "camera=(), geolocation=(), microphone=()"),
        (header::CACHE_CONTROL, "no-store"),
        (header::VARY, "Accept-Language, Cookie"),
    ] {
        headers.insert(name, HeaderValue::from_static(value));
    }
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts(uri: &str, headers: &[(HeaderName, &'static str)]) -> Parts {
        let mut request = Request::builder().uri(uri);
        for (name, value) in headers {
            request = request.header(name, *value);
        }
        request.body(()).expect("a request").into_parts().0
    }

    #[test]
    fn login_goes_on_to_the_page_that_was_wanted() {
        let parts = parts("/admin/tasks?status=failed&q=a%20b", &[]);
        assert_eq!(login_and_back(&parts), "/admin/login?next=/admin/tasks%3Fstatus%3Dfailed%26q%3Da%2520b");
    }

    #[test]
    fn the_operators_language_wins_over_the_browsers() {
        let cookie = (header::COOKIE, "a=b; forebay_language=zh-CN");
        let accept = (header::ACCEPT_LANGUAGE, "en-GB,en;q=0.9");
        assert_eq!(language(&parts("/", &[cookie, accept.clone()]).headers), Language::Chinese);
        assert_eq!(language(&parts("/", &[accept]).headers), Language::English);
        assert_eq!(language(&parts("/", &[]).headers), Language::English);
    }

    #[test]
    fn every_answer_carries_the_policy_with_its_nonce() {
        let nonce = Nonce::new();
        let response = with_headers(StatusCode::OK.into_response(), &nonce);
        let policy = response.headers()[header::CONTENT_SECURITY_POLICY].to_str().expect("text").to_owned();
        assert!(policy.contains(&format!("'nonce-{nonce}'")));
        assert!(!policy.contains("unsafe-inline"));
    }
}
