//! What an upstream's refusal means: its dialect → a class of failure.
//!
//! `code` and `type` in the body come first, then the status, then the text: what is most exact wins.
//! The dialects are recorded in `fixtures/`, one file each.

mod body;
mod codes;
mod texts;

use forebay_engine::{Class, Failure};
use serde_json::Value;

pub use body::ErrorBody;

/// The class of an error answer with this status and body.
pub fn classify(status: u16, body: &Value) -> Failure {
    let error = ErrorBody::read_refusal(body);
    let class = class_of(&error, Some(status));
    failure(error, class, status)
}

/// The class of an error inside a 200; `None` when there is none.
pub fn classify_inside(body: &Value) -> Option<Failure> {
    let error = ErrorBody::read(body);
    if !error.is_error() {
        return None;
    }
    let status =
        error.codes.iter().find_map(|code| code.parse::<u16>().ok()).filter(|code| (400..600).contains(code));
    let class = match class_of(&error, status) {
        // Its own words came over a whole connection: the upstream knows that it did nothing.
        Class::Unknown => Class::Upstream,
        class => class,
    };
    Some(failure(error, class, 200))
}

fn failure(error: ErrorBody, class: Class, status: u16) -> Failure {
    let exceeds_context = class == Class::Request
        && (error.codes.iter().any(|code| codes::is_context_length(code))
            || texts::too_long(&error.message.to_lowercase()));
    let message = if error.message.is_empty() { format!("status {status}") } else { short(&error.message) };
    Failure { param: error.param, exceeds_context, ..Failure::new(class, message).with_status(status) }
}

/// `status` is the answer's own, or what stands for it inside a 200; without one the body is all there is.
fn class_of(error: &ErrorBody, status: Option<u16>) -> Class {
    let message = error.message.to_lowercase();
    let by_status = status.and_then(class_of_status);
    match error.codes.iter().find_map(|code| codes::exact(code)) {
        Some(Class::Quota) if error.codes.iter().any(|code| code == "insufficient_quota") => {
            if texts::is_model_studio(error) {
                Class::RateLimited
            } else {
                Class::Quota
            }
        }
        // Nothing but an empty account is answered with a 402.
        Some(Class::RateLimited | Class::Auth | Class::Request) if status == Some(402) => Class::Quota,
        Some(Class::RateLimited) => {
            texts::plain(&message).or_else(|| texts::no_room(&message)).unwrap_or(Class::RateLimited)
        }
        Some(class @ (Class::Auth | Class::Request)) => texts::plain(&message).unwrap_or(class),
        Some(class) => class,
        None => {
            let by_word = error.codes.iter().find_map(|code| codes::broad(code));
            let by_code = match by_status {
                None | Some(Class::Request | Class::Upstream) => by_word.or(by_status),
                Some(exact) => Some(exact),
            };
            let by_text = || {
                let no_room = || texts::no_room(&message).filter(|_| by_code == Some(Class::RateLimited));
                texts::plain(&message).or_else(|| texts::hint(&message, status)).or_else(no_room)
            };
            let refused = status.is_none_or(|status| (400..500).contains(&status));
            refused.then(by_text).flatten().or(by_code).unwrap_or(Class::Upstream)
        }
    }
}

fn class_of_status(status: u16) -> Option<Class> {
    let class = match status {
        401 | 403 => Class::Auth,
        402 => Class::Quota,
        404 | 405 | 300..=399 => Class::Misconfigured,
        429 => Class::RateLimited,
        408 | 500 | 503 | 521..=523 | 529 => Class::Upstream,
        502 | 504 | 520 | 524 => Class::Unknown,
        400 | 406..=499 => Class::Request,
        500..=599 => Class::Upstream,
        _ => return None,
    };
    Some(class)
}

/// Cut to what a table's row and a page can show.
pub fn short(text: &str) -> String {
    const LONGEST: usize = 300;
    let mut short: String = text.chars().take(LONGEST).collect();
    if short.len() < text.len() {
        short.push('…');
    }
    short
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    #[test]
    fn the_status_decides_where_the_body_says_nothing() {
        let cases = [
            (301, Class::Misconfigured),
            (400, Class::Request),
            (401, Class::Auth),
            (402, Class::Quota),
            (403, Class::Auth),
            (404, Class::Misconfigured),
            (405, Class::Misconfigured),
            (408, Class::Upstream),
            (413, Class::Request),
            (422, Class::Request),
            (429, Class::RateLimited),
            (500, Class::Upstream),
            (502, Class::Unknown),
            (503, Class::Upstream),
            (504, Class::Unknown),
            (520, Class::Unknown),
            (521, Class::Upstream),
            (524, Class::Unknown),
            (529, Class::Upstream),
        ];
        for (status, class) in cases {
            assert_eq!(classify(status, &Value::Null).class, class, "{status}");
        }
    }

    #[test]
    fn the_body_is_more_exact_than_the_status() {
        let cases = [
            (429, json!({"error": {"code": "insufficient_quota", "message": "x"}}), Class::Quota),
            (403, json!({"error": {"code": "insufficient_quota"}}), Class::Quota),
            (400, json!({"error": {"code": "billing_hard_limit_reached"}}), Class::Quota),
            (429, json!({"error": {"message": "You exceeded your current quota"}}), Class::Quota),
            (
                400,
                json!({"error": {"code": 400, "status": "INVALID_ARGUMENT", "message": "API key not valid.",
                                 "details": [{"reason": "API_KEY_INVALID"}]}}),
                Class::Auth,
            ),
            (
                400,
                json!([{"error": {"code": 429, "status": "RESOURCE_EXHAUSTED", "message": "q"}}]),
                Class::RateLimited,
            ),
            (400, json!({"code": "DataInspectionFailed", "message": "inappropriate"}), Class::Policy),
            (400, json!({"error": {"code": "content_policy_violation", "message": "x"}}), Class::Policy),
            (403, json!({"error": {"message": "no permission to use this model"}}), Class::Misconfigured),
            (
                500,
                json!({"type": "error", "error": {"type": "overloaded_error", "message": "o"}}),
                Class::Upstream,
            ),
            (500, json!({"error": {"type": "rate_limit_error", "message": "slow down"}}), Class::RateLimited),
            (
                400,
                json!({"error": {"type": "invalid_request_error", "message": "max_tokens", "param": "max_tokens"}}),
                Class::Request,
            ),
        ];
        for (status, body, class) in cases {
            assert_eq!(classify(status, &body).class, class, "{status} {body}");
        }
    }

    #[test]
    fn an_error_inside_a_200_has_its_own_class() {
        assert_eq!(classify_inside(&json!({"choices": []})), None);
        let inside = |body| classify_inside(&body).expect("an error").class;
        assert_eq!(
            inside(json!({"error": {"code": "rate_limit_exceeded", "message": "x"}})),
            Class::RateLimited
        );
        assert_eq!(inside(json!({"error": {"code": 502, "message": "bad gateway"}})), Class::Upstream);
        assert_eq!(inside(json!({"error": "something"})), Class::Upstream);
    }

    #[test]
    fn the_param_is_kept_and_a_long_message_is_cut() {
        let failure = classify(400, &json!({"error": {"message": "x".repeat(1_000), "param": "n"}}));
        assert_eq!(failure.param.as_deref(), Some("n"));
        assert_eq!(failure.message.chars().count(), 301);
    }

    proptest! {
        #[test]
        fn no_body_panics(text in ".{0,40}", status in 100_u16..700) {
            let body = serde_json::from_str(&text).unwrap_or(Value::String(text));
            classify(status, &body);
            classify_inside(&json!({"error": body}));
        }
    }
}
