//! What a message says more exactly than the code or the status beside it. All in lower case.

use forebay_engine::Class::{self, Auth, Misconfigured, Policy, Quota, RateLimited, Upstream};

use super::ErrorBody;

/// Sentences that are plain enough to correct a code that only says "refused", in the order in which
/// they are looked for.
const PLAIN: &[(Class, &[&str])] = &[
    (
        Auth,
        &[
            "api key not valid",
            "api_key_invalid",
            "incorrect api key",
            "invalid api key",
            "invalid api-key",
            "api key is invalid",
            "authentication fails",
            "requested grant not found",
        ],
    ),
    // Volcengine's speech speaks of quotas for both: its lifetime is the trial's.
    (RateLimited, &["quota exceeded for types: concurrency"]),
    (
        Quota,
        &[
            "insufficient_quota",
            "insufficient balance",
            "balance is insufficient",
            "insufficient credits",
            "credit balance is too low",
            "overdue balance",
            "balance is overdue",
            "bill is overdue",
            "overdue payment",
            "billing hard limit",
            "billing to be enabled",
            "spend limit",
            "specified api usage limits",
            "prepayment credits",
            "free allocated quota exceeded",
            "free trial quota",
            "usage quota",
            "quota exceeded for types:",
            "余额不足",
            "欠费",
        ],
    ),
    (
        Policy,
        &[
            "content policy",
            "content management policy",
            "content filtering policy",
            "safety system",
            "sensitive content",
            "may contain sensitive",
            "sensitive words",
            "inappropriate content",
            "敏感内容",
            "不合规",
        ],
    ),
    (
        Misconfigured,
        &[
            "model does not exist",
            "model not exist",
            "model not found",
            "model disabled",
            "does not exist or you do not have access",
            "is not found for api version",
            "requested resource not granted",
            "get resource id: access denied",
            "user location is not supported",
        ],
    ),
];

/// An upstream that has no room, whoever asks: what some send with a 429.
const NO_ROOM: &[&str] = &[
    "too busy",
    "overloaded",
    "increased too quickly",
    "burst too fast",
    "request burst",
    "due to system capacity limits",
    "high demand",
];

/// Sentences that say that a request is too long for the model.
const TOO_LONG: &[&str] = &[
    "context length",
    "context_length",
    "context window",
    "prompt is too long",
    "input is too long",
    "reduce the length of the messages",
    "exceeds the maximum number of tokens",
    "exceeded model token limit",
    "input length",
    "maximum prompt length",
    "max_seq_len",
    "exceed max message tokens",
];

/// The class that a plain sentence in `message` tells.
pub(super) fn plain(message: &str) -> Option<Class> {
    PLAIN.iter().find(|(_, texts)| says(message, texts)).map(|(class, _)| *class)
}

/// The class of a message that came without any code, with a status of 4xx or inside a 200.
pub(super) fn hint(message: &str, status: Option<u16>) -> Option<Class> {
    if status == Some(403) && message.contains("model") {
        Some(Misconfigured)
    } else if says(message, &["exceeded your current quota"])
        || (matches!(status, Some(403 | 429)) && message.contains("billing"))
    {
        Some(Quota)
    } else {
        None
    }
}

/// The upstream has no room, for all that it calls it a rate.
pub(super) fn no_room(message: &str) -> Option<Class> {
    says(message, NO_ROOM).then_some(Upstream)
}

/// Model Studio answers `insufficient_quota` to more tokens a minute than allowed, and then points to
/// its own pages; with everybody else the code means an empty account.
pub(super) fn is_model_studio(error: &ErrorBody) -> bool {
    says(&error.message.to_lowercase(), &["model-studio", "aliyun.com", "alibabacloud.com"])
}

/// The request is too long for this model.
pub(super) fn too_long(message: &str) -> bool {
    says(message, TOO_LONG)
}

fn says(message: &str, texts: &[&str]) -> bool {
    texts.iter().any(|text| message.contains(text))
}
