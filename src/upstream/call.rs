//! One HTTP request to an upstream: sent once, and its refusal understood.

use std::borrow::Cow;

use bytes::{Bytes, BytesMut};
use forebay_engine::upstream::Sent;
use forebay_engine::{Class, Failure};
use forebay_wire::classify::{classify, short};
use forebay_wire::retry_after::retry_after;
use http::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE};
use reqwest::{Client, Response, Url};
use secrecy::{ExposeSecret, SecretString};
use serde_json::Value;

use super::body::OnceBody;

/// What of an error's body is read, in bytes.
const ERROR_CAP: usize = 64 * 1024;

/// A request as its protocol wants it.
#[derive(Debug)]
pub(super) struct Call {
    /// What the body is.
    pub(super) content_type: Cow<'static, str>,
    /// What the answer shall be.
    pub(super) accept: &'static str,
    /// How the key is shown.
    pub(super) scheme: Scheme,
    /// The body.
    pub(super) body: Bytes,
}

/// How a key is shown to an upstream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Scheme {
    /// `Bearer KEY`.
    Bearer,
    /// `Bearer;TOKEN`, as Volcengine's speech API wants the second half of `APPID:TOKEN`.
    BearerSemicolon,
}

impl Scheme {
    fn header(self, key: &str) -> String {
        match self {
            Self::Bearer => format!("Bearer {key}"),
            Self::BearerSemicolon => {
                format!("Bearer;{}", key.split_once(':').map_or(key, |(_, token)| token))
            }
        }
    }
}

impl Call {
    /// A JSON body, answered in JSON.
    pub(super) const fn json(body: Bytes) -> Self {
        Self {
            content_type: Cow::Borrowed("application/json"),
            accept: "application/json",
            scheme: Scheme::Bearer,
            body,
        }
    }
}

/// A key on its way into a header, and out of every message.
#[derive(Debug, Default)]
pub(super) struct Secret(String);

impl Secret {
    pub(super) fn new(key: Option<&SecretString>) -> Self {
        Self(key.map_or_else(String::new, |key| key.expose_secret().to_owned()))
    }

    /// `message` without the key, cut to what a table's row can show.
    pub(super) fn redact(&self, message: &str) -> String {
        // What is shorter than this is part of many words, and no key that anybody uses.
        const SHORTEST: usize = 6;
        if self.0.len() < SHORTEST { short(message) } else { short(&message.replace(&self.0, "[key]")) }
    }

    /// The failure with its message redacted.
    pub(super) fn redacted(&self, failure: Failure) -> Failure {
        Failure { message: self.redact(&failure.message), ..failure }
    }

    pub(super) fn expose(&self) -> &str {
        &self.0
    }
}

/// Sends; a response of any status. `sent` is set once any of the body may have left.
pub(super) async fn send(
    client: &Client,
    url: Url,
    call: Call,
    secret: &Secret,
    sent: &Sent,
) -> Result<Response, Failure> {
    let body = OnceBody::new(call.body, sent.clone());
    let mut request = client
        .post(url)
        .header(CONTENT_TYPE, &*call.content_type)
        .header(ACCEPT, call.accept)
        .body(reqwest::Body::wrap(body));
    if !secret.0.is_empty() {
        let mut shown = http::HeaderValue::try_from(call.scheme.header(&secret.0))
            .map_err(|_| Failure::new(Class::Auth, "the key has characters that no header can carry"))?;
        shown.set_sensitive(true);
        request = request.header(AUTHORIZATION, shown);
    }
    request.send().await.map_err(|error| {
        // Before the body was read nothing was sent; after it nobody can tell.
        let class = if sent.get() { Class::Unknown } else { Class::NotSent };
        Failure::new(class, secret.redact(&innermost(&error)))
    })
}

pub(super) fn innermost(error: &dyn std::error::Error) -> String {
    let mut last = error;
    while let Some(source) = last.source() {
        last = source;
    }
    last.to_string()
}

/// What an answer other than 200 means.
pub(super) async fn refusal(response: Response, secret: &Secret) -> Failure {
    let status = response.status().as_u16();
    let headers = response.headers().clone();
    let bytes = read_all(response, ERROR_CAP).await.unwrap_or_default();
    let body = serde_json::from_slice(&bytes).unwrap_or(Value::Null);
    let header = |name: &str| headers.get(name)?.to_str().ok();
    let after = retry_after(header, &body, jiff::Timestamp::now());
    secret.redacted(classify(status, &body).with_retry_after(after))
}

/// The whole body of at most `cap` bytes. A cut is [`Class::Unknown`].
pub(super) async fn read_all(mut response: Response, cap: usize) -> Result<Bytes, Failure> {
    let mut all = BytesMut::new();
    loop {
        match response.chunk().await {
            Ok(None) => return Ok(all.freeze()),
            Ok(Some(chunk)) if all.is_empty() && chunk.len() <= cap => all = BytesMut::from(chunk),
            Ok(Some(chunk)) if all.len() + chunk.len() <= cap => all.extend_from_slice(&chunk),
            Ok(Some(_)) => {
                let why = format!("an answer of more than {} MiB", cap >> 20);
                return Err(Failure::new(Class::BadAnswer, why));
            }
            Err(error) => {
                let why = format!("the answer was cut short: {}", innermost(&error));
                return Err(Failure::new(Class::Unknown, why));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_scheme_shows_its_part_of_the_key_and_no_message_shows_any() {
        assert_eq!(Scheme::Bearer.header("sk-1"), "Bearer sk-1");
        assert_eq!(Scheme::BearerSemicolon.header("app:tok"), "Bearer;tok");
        let secret = Secret("sk-canary".into());
        assert_eq!(secret.redact("bad key sk-canary!"), "bad key [key]!");
    }
}
