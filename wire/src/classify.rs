//! What an upstream's refusal means: its dialect → a class of failure.
//!
//! `code` and `type` in the body come first, then the status, then the text: what is most exact wins.

use forebay_engine::{Class, Failure};
use serde_json::Value;

/// What an error body says, whatever its dialect.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ErrorBody {
    /// Its codes, from the most to the least exact, in lower case.
    pub codes: Vec<String>,
    /// Its message.
    pub message: String,
    /// The parameter that it blames.
    pub param: Option<String>,
}

impl ErrorBody {
    /// Finds the error in `body`; empty when there is none.
    ///
    /// Understood: OpenAI `{"error": {"code", "type", "message", "param"}}`, an `error` that is a
    /// text, Anthropic `{"type": "error", "error": {"type"}}`, Google `{"error": {"code": 429,
    /// "status", "details": [{"reason"}]}}` (also inside a list), DashScope and SiliconFlow
    /// `{"code", "message"}`.
    pub fn read(body: &Value) -> Self {
        let body = body.as_array().and_then(|list| list.first()).unwrap_or(body);
        match body.get("error") {
            Some(Value::String(message)) => Self { message: message.clone(), ..Self::default() },
            Some(error) if error.is_object() => Self::read_object(error),
            _ if body.get("code").is_some() && body.get("message").is_some() => Self::read_object(body),
            _ => Self::default(),
        }
    }

    /// There is an error in it.
    pub fn is_error(&self) -> bool {
        !self.codes.is_empty() || !self.message.is_empty()
    }

    fn read_object(error: &Value) -> Self {
        let details = error.get("details").and_then(Value::as_array).into_iter().flatten();
        let reasons = details.filter_map(|detail| detail.get("reason"));
        let codes = reasons
            .chain(["code", "status", "type"].into_iter().filter_map(|name| error.get(name)))
            .filter_map(code_text)
            .collect();
        let text = |name| error.get(name).and_then(Value::as_str).map(str::to_owned);
        Self { codes, message: text("message").unwrap_or_default(), param: text("param") }
    }
}

fn code_text(code: &Value) -> Option<String> {
    match code {
        Value::String(text) if !text.is_empty() => Some(text.to_ascii_lowercase()),
        Value::Number(number) => Some(number.to_string()),
        _ => None,
    }
}

/// The class of an error answer with this status and body.
pub fn classify(status: u16, body: &Value) -> Failure {
    let error = ErrorBody::read(body);
    let message = error.message.to_lowercase();
    let by_code = error.codes.iter().find_map(|code| class_of_code(code));
    let class = match (by_code, class_of_status(status)) {
        // Quota and content rules hide behind many codes and statuses; their texts are plain.
        (None, by_status) => class_of_text(&message, status).or(by_status).unwrap_or(Class::Upstream),
        (Some(Class::Request | Class::RateLimited | Class::Auth), _) => {
            refined(&message).or(by_code).unwrap_or(Class::Request)
        }
        (Some(class), _) => class,
    };
    let described = if error.message.is_empty() { format!("status {status}") } else { error.message };
    Failure { param: error.param, ..Failure::new(class, short(&described)).with_status(status) }
}

/// The class of an error inside a 200; `None` when there is none.
pub fn classify_inside(body: &Value) -> Option<Failure> {
    let error = ErrorBody::read(body);
    if !error.is_error() {
        return None;
    }
    let status =
        error.codes.iter().find_map(|code| code.parse::<u16>().ok()).filter(|code| (400..600).contains(code));
    let mut failure = classify(status.unwrap_or(500), body);
    // Its own words came over a whole connection: the upstream knows that it did nothing.
    if failure.class == Class::Unknown {
        failure.class = Class::Upstream;
    }
    failure.http_status = Some(200);
    Some(failure)
}

fn class_of_code(code: &str) -> Option<Class> {
    let class = match code {
        "insufficient_quota"
        | "billing_hard_limit_reached"
        | "billing_not_active"
        | "insufficient_balance"
        | "arrearage"
        | "accountoverdueerror"
        | "access_terminated"
        | "billing_error"
        | "30001" => Class::Quota,
        "rate_limit_exceeded"
        | "rate_limit_error"
        | "rate_limit_reached"
        | "requests"
        | "tokens"
        | "too_many_requests"
        | "resource_exhausted"
        | "throttling"
        | "throttling.ratequota"
        | "throttling.allocationquota"
        | "concurrency_limit_exceeded"
        | "requestburst_too_fast"
        | "ratelimitexceeded.endpointrpmexceeded"
        | "ratelimitexceeded.endpointtpmexceeded"
        | "ratelimitexceeded"
        | "accountratelimitexceeded"
        | "modelaccountrpmratelimitexceeded"
        | "modelaccounttpmratelimitexceeded" => Class::RateLimited,
        "invalid_api_key"
        | "authentication_error"
        | "api_key_invalid"
        | "invalidapikey"
        | "unauthenticated"
        | "account_deactivated"
        | "invalid_authentication"
        | "authenticationerror" => Class::Auth,
        "model_not_found"
        | "not_found_error"
        | "modelnotopen"
        | "model_not_available"
        | "modelnotfound"
        | "invalidendpointormodel.notfound"
        | "accessdenied.unpurchased"
        | "model_access_denied"
        | "deployment_not_found"
        | "deploymentnotfound" => Class::Misconfigured,
        "overloaded_error"
        | "server_overloaded"
        | "internal_error"
        | "internalerror"
        | "api_error"
        | "server_error"
        | "unavailable"
        | "service_unavailable"
        | "serveroverloaded"
        | "internal"
        | "engine_overloaded" => Class::Upstream,
        "content_policy_violation"
        | "content_filter"
        | "datainspectionfailed"
        | "data_inspection_failed"
        | "sensitivecontentdetected"
        | "inputtextsensitivecontentdetected"
        | "moderation_blocked"
        | "outputtextsensitivecontentdetected"
        | "safety" => Class::Policy,
        "context_length_exceeded"
        | "invalid_request_error"
        | "invalid_argument"
        | "invalidparameter"
        | "string_above_max_length"
        | "unsupported_parameter"
        | "unsupported_value"
        | "missing_required_parameter"
        | "invalid_value"
        | "invalid_type" => Class::Request,
        _ => return None,
    };
    Some(class)
}

fn class_of_status(status: u16) -> Option<Class> {
    let class = match status {
        401 | 403 => Class::Auth,
        402 => Class::Quota,
        404 | 405 | 300..=399 => Class::Misconfigured,
        429 => Class::RateLimited,
        408 | 500 | 503 | 521..=523 | 529 => Class::Upstream,
        502 | 504 | 520 | 524 => Class::Unknown,
        400 | 413 | 422 => Class::Request,
        406..=499 => Class::Request,
        500..=599 => Class::Upstream,
        _ => return None,
    };
    Some(class)
}

/// What a text says more exactly than the code beside it.
fn refined(message: &str) -> Option<Class> {
    let says = |parts: &[&str]| parts.iter().any(|part| message.contains(part));
    if says(&["api key not valid", "api_key_invalid", "incorrect api key", "invalid api key"]) {
        Some(Class::Auth)
    } else if says(&[
        "insufficient_quota",
        "insufficient balance",
        "exceeded your current quota",
        "overdue",
        "billing",
    ]) {
        Some(Class::Quota)
    } else if says(&["content policy", "content management policy", "safety system", "sensitive content"]) {
        Some(Class::Policy)
    } else {
        None
    }
}

fn class_of_text(message: &str, status: u16) -> Option<Class> {
    if !(400..500).contains(&status) {
        return None;
    }
    let says = |parts: &[&str]| parts.iter().any(|part| message.contains(part));
    refined(message).or_else(|| {
        if status == 403 && says(&["model", "permission"]) {
            Some(Class::Misconfigured)
        } else if says(&["burst too fast"]) {
            Some(Class::Upstream)
        } else {
            None
        }
    })
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
